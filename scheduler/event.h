/* event.h -- what goes out: one fact about one choice, by value through the ring.
 *
 * For every choice: any number of EVENT_PROMPT (positions in order), any number of EVENT_TOKEN,
 * then exactly one EVENT_FINISH or EVENT_FAILURE. An exchange that is gone is found by nobody, and
 * the event is dropped. */
#ifndef WEFT_EVENT_H
#define WEFT_EVENT_H

#include <stdint.h>

#include "engine/engine.h"

/* Where the request is for vectors the choice's is whole when its EVENT_FINISH says FINISH_LENGTH:
 * vectors.h. */
enum event_kind {
    EVENT_STARTED, /* the choice was admitted and its prefill begins */
    EVENT_PROMPT,  /* the log-probability of prompt token `position` */
    EVENT_TOKEN,
    EVENT_FINISH,
    EVENT_FAILURE,
};

enum finish_reason {
    FINISH_STOP, /* an end or stop token, the last EVENT_TOKEN; or a constraint is complete */
    FINISH_LENGTH,
    FINISH_CANCELLED, /* asked for by scheduler_cancel() */
};

struct event_token {
    int32_t token;
    float logprob; /* NAN: not asked. Where it is, a constraint's text is never appended undrawn */
    uint32_t rank;
    uint32_t position; /* in the sequence */
    uint32_t top_count;
    struct token_logprob top[TOP_LOGPROBS_MAX];
};

struct event_finish {
    enum finish_reason reason;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t generated_tokens; /* an end token counts */
    uint32_t preemptions;
    uint64_t queued_ns;  /* arrival to admission */
    uint64_t prefill_ns; /* admission to first token, or to the end when there is none */
    uint64_t decode_ns;  /* first token to last */
};

enum { FAILURE_MESSAGE_BYTES = 192 };

/* `code` E_DEVICE, E_CLOSED, E_MEMORY; or E_INVALID: an answer's constraint is ambiguous beyond
 * reason, or the model's tokens cannot write what it asks for. The messages of E_DEVICE and of
 * constraints are for the client to read; "" where the code says it all. */
struct event_failure {
    int code;
    char message[FAILURE_MESSAGE_BYTES];
};

struct event {
    uint64_t exchange_id;
    uint32_t choice;
    enum event_kind kind;
    uint64_t made_ns; /* clock_now() when the scheduler made it */
    union {
        struct event_token token; /* EVENT_PROMPT, EVENT_TOKEN */
        struct event_finish finish;
        struct event_failure failure;
    };
};

#endif
