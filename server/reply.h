/* reply.h -- one answer being built, as the files behind openai.h see it.
 *
 *     event --> detokenizer --> stop walk --> release --> chunk (streamed) or the whole body
 *
 * In chat a tool parser may stand behind the release: it says what of the text is content, what
 * reasoning, what a call (reply_tools.c).
 *
 *     text   [ released | held back ]     Whatever is released is final; what may still become a
 *              ^ sent or kept             stop string or a character is held back.
 *
 * Streaming writes each released piece as a chunk, otherwise the pieces stay until the end: so a
 * stream is by construction a split of the whole text.
 *
 * A token's log-probability entry and id wait in `pending` until text after their start is
 * released and travel with it; what is left when the choice ends goes out with its last chunk, so
 * none is lost.
 *
 * Made on a prepare thread (openai_request.c), then it belongs to the loop. In steady state an
 * event allocates nothing: all buffers are reused. */
#ifndef WEFT_REPLY_H
#define WEFT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "config/base/buf.h"
#include "engine/text/detok.h"
#include "engine/text/stops.h"
#include "server/openai.h"
#include "server/tools.h"

enum {
    REPLY_ID_BYTES = 48,
    REPLY_BUF_BYTES_MAX = 64 << 20, /* text or entries of one choice */
    LOGPROB_DIGITS = 8,             /* significant ones: as many as float32 has */
    LOGPROB_PARTS_MAX = 4,          /* arrays that the legacy shape keeps side by side */
};

/* How vectors are written. */
struct reply_vectors {
    uint32_t dimensions; /* values that are kept */
    bool normalize;
    bool base64;
};

/* What the request wants of its answer. */
struct reply_wish {
    struct reply_vectors vectors; /* embeddings only; nothing else below is wanted of them */
    bool stream;
    bool include_usage;
    bool continuous_usage; /* with include_usage only */
    bool echo;
    bool logprobs;
    uint32_t top_logprobs;
    bool return_token_ids;
    bool tokens_as_ids; /* "token_id:123" instead of a token's text in log-probability entries */
    bool skip_special;
    bool include_stop;
    bool ignore_eos;
    bool include_reasoning;
    bool parallel_calls;
    bool named_call;     /* the call was the client's wish: it ends with "stop" */
    uint32_t min_tokens; /* stop strings that end in these first tokens do not count */
    uint32_t stop_token_count;
    const int32_t *stop_tokens; /* in the reply's arena */
};

/* What an answer repeats of its prompt; filled as far as the wish needs it. */
struct reply_prompt {
    const int32_t *tokens;
    uint32_t count;
    const uint32_t *offsets; /* [count] where each token's text starts in `echo`, in characters */
    const char *echo;
    size_t echo_bytes;
    uint32_t echo_characters;
    const char *ids; /* "[1,2,3]" */
    size_t ids_bytes;
};

/* A token whose text is not released yet. */
struct reply_entry {
    uint64_t start;       /* where its text begins, in bytes of the choice's whole text */
    uint32_t text_offset; /* the same in characters, the echo included */
    bool bare;            /* an id without an entry */
    struct event_token token;
};

enum choice_state {
    CHOICE_RUNNING,
    CHOICE_STOPPED, /* a stop string ended it; its EVENT_FINISH is still to come */
    CHOICE_ENDED,
};

/* A choice's answer in parts: reply_tools.c. */
struct reply_message {
    struct buf content; /* streaming: scratch for one delta */
    struct buf reasoning;
    struct buf calls;     /* JSON objects with commas between them */
    struct buf arguments; /* of the last one */
    size_t call_start;    /* where it begins in `calls` */
};

struct reply_choice {
    enum choice_state state;
    const struct reply_prompt *prompt;
    struct detok detok;
    struct stop_walk walk;

    struct buf text;     /* streaming: what is not sent; otherwise everything */
    size_t released;     /* of `text` */
    uint64_t text_start; /* bytes sent and dropped before `text` */
    uint32_t characters; /* of all text so far, the echo included */

    bool suspected; /* `suspect` may be the token that ended the choice: the next event tells */
    struct event_token suspect; /* its text is not fed yet */
    uint64_t token_ns;          /* when the last token was made; 0: none yet */
    uint32_t generated;

    struct tool_parser *parser; /* NULL: the text is the answer */
    struct reply_message message;
    uint32_t call_count; /* whole calls */
    bool muted;          /* the call that is being told is one too many */
    uint32_t reasoning_tokens;

    bool echoed;          /* the echo is released, or none is wanted */
    uint32_t prompt_next; /* position of the prompt token whose entry is rendered next */

    struct reply_entry *pending;
    uint32_t pending_count;
    uint32_t pending_room;
    bool out_of_memory;

    /* Rendered and to go out with the next chunk, or kept for the whole body. */
    struct buf parts[LOGPROB_PARTS_MAX];
    uint32_t entry_count;
    struct buf ids;
    bool prompt_ids_sent;

    const char *finish_reason; /* NULL while it runs */
    int32_t stop_token;        /* of the request's stop_token_ids; -1: none matched */
    struct event_finish finish;
};

/* What tells the two endpoints apart. */
struct reply_shape {
    const char *id_prefix;
    const char *object;
    const char *chunk_object;
    /* A chunk's new text, `,"delta":{...}`; NULL with the last chunk. */
    void (*put_piece)(const char *text, size_t bytes, struct buf *out);
    /* A choice's text in the whole body, `,"message":{...}`. */
    void (*put_whole)(const char *text, size_t bytes, struct buf *out);
    /* Renders a token's entry into parts. `token` NULL: the first prompt token, which has no
     * log-probability. */
    void (*put_entry)(const struct reply *reply, struct reply_choice *choice, int32_t id,
                      uint32_t text_offset, const struct event_token *token);
    /* The value of "logprobs" from the parts. */
    void (*put_logprobs)(const struct reply_choice *choice, struct buf *out);
    bool end_has_entry;     /* the end token has an entry of its own */
    bool prompt_ids_on_top; /* prompt_token_ids lies beside `choices`, not in each of them */
};
extern const struct reply_shape chat_shape;
extern const struct reply_shape completions_shape;
extern const struct reply_shape embeddings_shape; /* has no texts: reply_put_vectors() */

struct reply {
    struct arena *arena; /* owns this struct too */
    const struct reply_shape *shape;
    const struct tokenizer *tokenizer; /* NULL: there is no text, only ids */
    const struct stops *stops;
    struct reply_wish wish;
    char id[REPLY_ID_BYTES];
    uint64_t random; /* of this reply: ids of calls are made of it */

    const struct tool_format *format; /* by which chat answers are split; NULL: they are not */
    struct tool_options parse;
    json_t *tools; /* owned: `parse` lends it to the parsers */

    const char *head; /* what every chunk, and the whole body, says first: `"id":...,` */
    size_t head_bytes;
    uint32_t prompt_count;
    struct reply_prompt *prompts;
    uint32_t prompt_tokens;
    uint32_t choices_per_prompt;
    uint32_t choice_count;
    struct reply_choice *choices;
    struct vectors *vectors; /* one for each choice; one owner is the reply. NULL: text is wanted */

    uint32_t ended_count;
    bool begun;  /* the head of the stream is written */
    bool failed; /* nothing more will be said */
};

/* Sets up the choices; everything above `ended_count` is filled in already. 0 or -ENOMEM. */
int reply_open_choices(struct reply *reply);

/* reply_json.c: everything that becomes JSON. */
/* One chunk with text[0 .. bytes) and all rendered entries and ids, which are then empty again.
 * `text` NULL: the choice's last chunk. */
void reply_put_chunk(struct reply *reply, struct reply_choice *choice, const char *text,
                     size_t bytes, struct buf *out);
/* The same with a delta that is JSON already: `,"delta":{...}`. */
void reply_put_piece(struct reply *reply, struct reply_choice *choice, const struct buf *piece,
                     struct buf *out);
void reply_put_role_chunk(struct reply *reply, uint32_t index, struct buf *out);
void reply_put_usage_chunk(const struct reply *reply, struct buf *out);
void reply_put_error_event(const struct api_error *error, struct buf *out);
void reply_put_done(struct buf *out);
void reply_put_body(struct reply *reply, struct buf *out);
uint32_t reply_generated(const struct reply *reply); /* tokens, of all choices */

/* reply_logprobs.c: entries. */
/* Appends a token's text as a JSON string, or "token_id:123". */
void reply_put_token(const struct reply *reply, int32_t id, struct buf *out);
/* Takes a token into `pending`. */
void reply_entry_push(struct reply_choice *choice, const struct reply_entry *entry);
/* Renders the pending entries whose text begins before `end` (UINT64_MAX: all). */
void reply_entries_release(const struct reply *reply, struct reply_choice *choice, uint64_t end);
void reply_entries_reset(struct reply_choice *choice); /* the rendered ones */
/* How many alternatives to show at a token. */
uint32_t reply_top_count(const struct reply *reply, const struct event_token *token);

/* reply_tools.c: choices whose text is split. */
int reply_parts_open(struct reply *reply, struct reply_choice *choice); /* 0 or a fault's code */
void reply_parts_close(struct reply_choice *choice);
bool reply_parts_failed(const struct reply_choice *choice);
void reply_parts_feed(struct reply *reply, struct reply_choice *choice, const char *text,
                      size_t bytes, struct buf *out);
void reply_parts_finish(struct reply *reply, struct reply_choice *choice, struct buf *out);
/* `,"message":{...}` */
void reply_put_message(const struct reply_choice *choice, struct buf *out);

/* openai_embeddings.c: answers of vectors. */
/* The choice's vector is whole: it becomes the choice's text. */
void reply_put_vector(struct reply *reply, struct reply_choice *choice);
void reply_put_vectors(const struct reply *reply, struct buf *out); /* the whole body */

uint32_t reply_count_characters(const char *text, size_t bytes);

#endif
