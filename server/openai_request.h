/* openai_request.h -- a request body on its way to a request and a reply: what the openai_*.c
 * files share.
 *
 *     bytes --json--> body --fields--> plain values --endpoint--> prompts --> request, reply
 *
 * A draft lives on a prepare thread's stack while openai_parse() runs. Functions return 0 or the
 * code of the fault that they wrote into the draft. */
#ifndef WEFT_OPENAI_REQUEST_H
#define WEFT_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/json.h"
#include "engine/text/schema.h"
#include "server/openai.h"

/* The plain fields, read and in range; names and defaults are in openai_fields.def. */
struct openai_fields {
#define FLAG(member, ...)    bool member;
#define INTEGER(member, ...) int64_t member;
#define REAL(member, ...)    double member;
#include "server/openai_fields.def"
};
#define OPENAI_ABSENT INT64_MIN /* an integer that was not given */

/* Reads the plain fields and refuses what is not served. `generation`: what fields are where the
 * body does not say; NULL, or what that does not say: the table's default. */
int openai_fields_read(enum openai_endpoint endpoint, const struct generation_config *generation,
                       const json_t *body, struct openai_fields *ret_fields, struct fault *fault);

/* What an answer's content must be: openai_form.c. */
enum answer_form_kind {
    FORM_FREE,
    FORM_OBJECT, /* any JSON object */
    FORM_SCHEMA,
    FORM_REGEX,
    FORM_CHOICE,
    FORM_GRAMMAR, /* GBNF */
};
struct answer_form {
    enum answer_form_kind kind;
    char field[64];      /* that asks for it */
    const json_t *value; /* the schema, text or array of texts; lent by the body or `owned` */
    json_t *owned;
    enum schema_space space;
    char space_field[64]; /* that asks for `space`; "": none */
};

/* Which calls an answer may have or must have: openai_tools.c. */
enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED, TOOL_CHOICE_NAMED };

struct draft {
    const struct openai_context *context;
    enum openai_endpoint endpoint;
    const json_t *body;
    size_t body_bytes;
    struct openai_fields fields;
    struct arena *arena;     /* becomes the request's */
    struct request *request; /* lies in it */
    bool prompts_are_text;   /* not token ids */
    bool base64;             /* how vectors are written */
    struct answer_form form;
    const json_t *tools; /* that may be called, checked; NULL: none */
    enum tool_choice tool_choice;
    const char *tool_name;            /* TOOL_CHOICE_NAMED: which one */
    bool strict_tools;                /* a call has to fit: one of the tools says so */
    const struct tool_format *format; /* by which the answer is split; NULL: it is not */
    bool starts_in_reasoning;         /* the prompt has opened it */
    bool starts_behind_reasoning;     /* it has closed it */
    bool starts_in_header;            /* it has opened a call's header, or a text's */
    struct tokens tokens;             /* scratch: one prompt at a time */
    struct fault fault;
    bool patient; /* a constraint may take long to make */
};

enum { EMBEDDING_INPUTS_MAX = 2048 };

/* Makes room for so many prompts; refuses more choices than are allowed. */
int draft_prompts(struct draft *draft, size_t count);
/* 0, or the fault that a model without a tokenizer gives to texts. */
int draft_needs_tokenizer(struct draft *draft, const char *field);
/* Encodes a text as prompt number `index`. `field` names it in faults. */
int draft_encode(struct draft *draft, uint32_t index, const char *field, const char *text,
                 size_t bytes, unsigned flags);
/* Takes a copy of ids as prompt number `index`. A `count` above the context is refused unread. */
int draft_tokens(struct draft *draft, uint32_t index, const char *field, const int32_t *ids,
                 size_t count);
/* Reads item number `index` of a list of token ids. `list` names it in faults. */
int draft_token_id(struct draft *draft, const char *list, size_t index, const json_t *value,
                   int32_t *ret_id);
int draft_out_of_memory(struct draft *draft);
/* A fault that names a field by printf. */
int draft_fault(struct draft *draft, int code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* openai_tools.c: what may be called, and by which format the answer is split. */
int draft_read_tools(struct draft *draft);
/* openai_tools.c: the tools again, with an empty text for each description and no parameters where
 * they say nothing of these; a new reference, or NULL when nothing was missing or memory was. */
json_t *tools_completed(const json_t *tools);
/* openai_form.c: fills `form`. */
int draft_read_form(struct draft *draft);
/* openai_constraint.c: request->constraint, of what was read. OPENAI_LATER, unless `patient`. */
int draft_constrain(struct draft *draft);
/* openai_messages.c: the messages as a template takes them; a new reference. */
int draft_read_messages(struct draft *draft, json_t **ret_messages);
/* openai_sampling.c: fills request->sampling, and what is wanted of the answer. */
struct reply_wish;
int draft_read_sampling(struct draft *draft);
int draft_read_wish(struct draft *draft, struct reply_wish *ret_wish);
/* reply_make.c: from a draft that is complete. */
int draft_make_reply(struct draft *draft, const struct reply_wish *wish, struct reply **ret_reply);
/* The endpoints' own part: fills request->prompts. */
int chat_read_prompt(struct draft *draft);
/* openai_prompts.c: texts or token ids, one or several, out of the body's `key`. */
int draft_read_prompts(struct draft *draft, const char *key);
/* openai_embeddings.c: all of a request for vectors that is not among the plain fields. */
int embeddings_read(struct draft *draft);
/* The field that the endpoint's prompts come in. */
const char *draft_prompt_field(const struct draft *draft);

#endif
