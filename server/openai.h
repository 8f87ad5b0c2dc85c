/* openai.h -- between JSON and requests, between events and JSON: the OpenAI endpoints without
 * HTTP.
 *
 * Parsing runs on a prepare thread and gives a request (for the scheduler) and a reply (for the
 * loop). The reply turns events into bytes: text pieces, stop strings, log-probabilities, usage,
 * in the endpoint's shape, streamed or whole. Knows no socket; the exchange moves the bytes. */
#ifndef WEFT_OPENAI_H
#define WEFT_OPENAI_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"
#include "scheduler/event.h"
#include "scheduler/request.h"
#include "server/api_error.h"
#include "server/constraints.h"
#include "server/tools.h"

/* What requests are read against: immutable, shared by the prepare threads. */
struct openai_context {
    const struct tokenizer *tokenizer; /* NULL: token ids only */
    const struct chat_template *chat_template;
    const char *model_id; /* the served name */
    uint32_t context;     /* tokens a sequence may hold */
    uint32_t vocabulary;
    bool encoder;          /* it gives embeddings and generates nothing */
    uint32_t vector_width; /* of embeddings; 0: none are given, because of `no_vectors` */
    enum pooling pooling;
    const char *no_vectors;
    /* What requests take that say nothing of it; NULL: openai_fields.def's defaults only. */
    const struct generation_config *generation;
    uint64_t created;       /* Unix time at start: `created` of the model */
    uint32_t choices_max;   /* n, and prompts x n */
    bool strict_max_tokens; /* a max_tokens above the room left is an error, not lowered */
    const struct tool_format
        *tool_format; /* how the model writes calls and reasoning; NULL: plain */
    bool may_reason;  /* the template has marks of reasoning: an answer may begin with it */
    struct constraints *constraints; /* NULL: answers cannot be held to a form */
    bool parse_always; /* chat answers are split by it even when the request has no tools */
};

struct reply; /* one answer being built; belongs to the loop once the request is submitted */

enum openai_endpoint { OPENAI_CHAT, OPENAI_COMPLETIONS, OPENAI_EMBEDDINGS };

/* Reads a body. On success both are the caller's (the reply owns its own memory). On failure
 * `error` is filled and nothing is returned. Checks everything that can be checked before the
 * first token. OPENAI_LATER, unless `patient`: the constraint takes long to make. */
enum { OPENAI_LATER = 1 };
int openai_parse(enum openai_endpoint endpoint, const struct openai_context *context, bool patient,
                 const char *body, size_t bytes, struct request **ret_request,
                 struct reply **ret_reply, struct api_error *error);

void reply_close(struct reply *reply); /* NULL is fine */
bool reply_streams(const struct reply *reply);
const char *reply_id(const struct reply *reply); /* "chatcmpl-..." */

/* What the loop must do after an event. */
struct reply_action {
    bool finished;      /* every choice has ended: the answer is whole */
    bool cancel_choice; /* a stop string ended this choice: tell the scheduler */
    uint32_t choice;
    bool failed; /* EVENT_FAILURE: `error` holds what to answer (before headers) */
    struct api_error error;
    uint64_t
        token_gap_ns; /* from the choice's token before to this one; 0: there is no such pair */
};

/* Streaming: appends whole SSE events to `out` (several or none), the last of them "data: [DONE]".
 * Not streaming: appends nothing until finished, then the whole body. Failures after the headers
 * are one error event and [DONE]. */
void reply_begin(struct reply *reply, struct buf *out); /* role chunks, at the head of a stream */
void reply_feed(struct reply *reply, const struct event *event, struct buf *out,
                struct reply_action *ret_action);

/* For the log line and the metrics. Counts are of all choices, times and `finish` of the first. */
struct reply_summary {
    uint32_t prompt_tokens;
    uint32_t generated_tokens;
    uint32_t preemptions;
    uint64_t queued_ns;
    uint64_t prefill_ns;
    uint64_t decode_ns;
    const char *finish; /* "stop", "length", "cancelled", "error" */
};
void reply_summary_get(const struct reply *reply, struct reply_summary *ret_summary);

/* Appends docs/fields.md. */
void openai_fields_docs(struct buf *text);

void openai_models_body(const struct openai_context *context, struct buf *body);
/* One entry, for /v1/models/{id}. */
void openai_model_body(const struct openai_context *context, struct buf *body);

#endif
