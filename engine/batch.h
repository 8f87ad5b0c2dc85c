/* batch.h -- what one step shall do: the changes to the request table, the prefill rows, the decode
 * rows.
 *
 * The request table lives on the device, a row per running sequence: last token, position, page
 * table, sampling parameters, random counter, stop ids, tokens left. The scheduler sends only what
 * changed; in steady decoding a batch is a list of rows and nothing else. Changes apply in this
 * order before the step computes: close, open, grant. A row may be closed and opened anew in one
 * batch.
 *
 * A decode row continues from the token that the *device* sampled last, which the host may not know
 * yet. A row that ended on the device (end token, length) stays in later batches as a padding row
 * until the host has heard of it and closes it; its step_row says STEP_ROW_IDLE.
 *
 * A row may be closed and opened again with the pages that it had, to go on differently: behind
 * tokens that nobody drew, or once more where its mask was late. Its first chunk then begins with
 * the first token that is new; what is in flight for the row as it was says STEP_ROW_IDLE.
 *
 * Lifetimes. The arrays of a batch belong to whoever called batch_open() and are reused. What a
 * `batch_opening` points to is lent to the engine from the submit that opens the row until the step
 * that closes it has completed: the scheduler keeps a sequence's tokens and parameters at a fixed
 * address that long, and appends the tokens it hears of (never changing earlier ones).
 *
 * Owner: scheduler (two in flight and one being planned). */
#ifndef WEFT_BATCH_H
#define WEFT_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/pooling.h"

enum {
    TOP_LOGPROBS_MAX = 20, /* alternatives reported per position */
    LOGIT_BIAS_MAX = 1024, /* biased tokens of a sequence */
    STOP_TOKENS_MAX = 128, /* stop tokens of a sequence, besides the model's end tokens */
    END_TOKENS_MAX = 16,   /* end tokens of a model */
    LOGPROBS_NONE = -1,    /* sampling.logprobs: none at all, not even the chosen token's */
};

struct logit_bias {
    int32_t token;
    float bias;
};

/* How a row chooses its tokens. Processors apply in this order, each on the result of the one
 * before: logit_bias, repetition, frequency and presence penalty, temperature, top_k, top_p, min_p,
 * typical_p. Neutral values switch a processor off. */
struct sampling {
    float temperature;        /* 0 = greedy (the likeliest token, lowest id on a tie) */
    uint32_t top_k;           /* 0 = off */
    float top_p;              /* 1 = off; 0 counts as "top 1" */
    float min_p;              /* 0 = off */
    float typical_p;          /* 1 = off */
    float repetition_penalty; /* 1 = off; over prompt and generated tokens */
    float frequency_penalty;  /* 0 = off; over generated tokens */
    float presence_penalty;   /* 0 = off; over generated tokens */
    uint64_t seed;           /* with `stream` and the position the whole key of the random number */
    uint32_t stream;         /* tells choices of one request apart */
    int32_t logprobs;        /* LOGPROBS_NONE, or how many alternatives (0..TOP_LOGPROBS_MAX) */
    int32_t prompt_logprobs; /* the same for the prompt's tokens, each time they are computed */
    uint32_t min_tokens;     /* end and stop tokens cannot be drawn before so many */
    bool ignore_eos;         /* the model's end tokens do not end the sequence */
    uint32_t stop_count;     /* tokens that end it besides the model's own */
    const int32_t *stop_tokens;
    uint32_t bias_count;
    const struct logit_bias *biases;
};

void sampling_init(struct sampling *sampling); /* greedy, everything off, no log-probabilities */

struct batch_opening {
    uint32_t row;
    const int32_t *tokens; /* the prompt, and after a preemption what was generated before it */
    uint32_t token_count;  /* known now; positions 0 .. token_count - 1 */
    uint32_t prompt_count; /* how many of them are the prompt; the rest count as generated */
    uint32_t tokens_left;  /* how many may still be generated, >= 1 unless only scoring (0) */
    const struct sampling *sampling;
    bool masked; /* each token is one of the row's mask: engine_mask() */
    /* [engine_limits.vector_width], written by the row's chunks, whole when the last one has
     * completed; NULL: no vector is wanted. With tokens_left 0 only. */
    float *vector;
    enum pooling pooling; /* of what the vector is made */
};

/* Pages are granted before the step that first writes them, at the latest in its own batch. */
struct batch_grant {
    uint32_t row;
    uint32_t index; /* which page of the row: position / page_tokens */
    uint32_t page;  /* page number in the pool */
};

/* `count` tokens of the row's own `tokens`, from `position` on. When position + count == the
 * opening's token_count the chunk is the last: the step samples the row's next token from it
 * (unless tokens_left is 0), and the row may decode from the next batch on. */
struct batch_prefill {
    uint32_t row;
    uint32_t position;
    uint32_t count;
};

struct batch {
    uint64_t number; /* rises by one with each batch; for logs and traces */
    uint32_t close_count;
    uint32_t *close_rows;
    uint32_t opening_count;
    struct batch_opening *openings;
    uint32_t grant_count;
    struct batch_grant *grants;
    uint32_t prefill_count;
    struct batch_prefill *prefills;
    uint32_t decode_count;
    uint32_t *decode_rows;
};

/* The most that one batch may hold; the arrays are sized by it once. */
struct batch_limits {
    uint32_t rows;           /* rows of the request table: closes, openings, prefills, decodes */
    uint32_t grants;         /* page grants in one batch */
    uint32_t prefill_tokens; /* sum of prefill counts */
};

int batch_open(const struct batch_limits *limits, struct batch **ret_batch, struct fault *fault);
void batch_close(struct batch *batch);
void batch_reset(struct batch *batch); /* empties the lists */

#endif
