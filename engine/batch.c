/* batch.c -- a batch's arrays, taken once; and what `struct sampling` is when nobody asked for
 * anything. */
#include "engine/batch.h"

#include <stdlib.h>

void sampling_init(struct sampling *sampling)
{
    *sampling = (struct sampling){
        .top_p = 1.0f,
        .typical_p = 1.0f,
        .repetition_penalty = 1.0f,
        .logprobs = LOGPROBS_NONE,
        .prompt_logprobs = LOGPROBS_NONE,
    };
}

int batch_open(const struct batch_limits *limits, struct batch **ret_batch, struct fault *fault)
{
    struct batch *batch = calloc(1, sizeof *batch);

    if (!batch)
        goto out;
    batch->close_rows = calloc(limits->rows, sizeof *batch->close_rows);
    batch->openings = calloc(limits->rows, sizeof *batch->openings);
    batch->grants = calloc(limits->grants, sizeof *batch->grants);
    batch->prefills = calloc(limits->rows, sizeof *batch->prefills);
    batch->decode_rows = calloc(limits->rows, sizeof *batch->decode_rows);
    if (!batch->close_rows || !batch->openings || !batch->grants || !batch->prefills ||
        !batch->decode_rows)
        goto out;
    *ret_batch = batch;
    return 0;
out:
    batch_close(batch);
    return fault_set(fault, E_MEMORY, "out of memory for a batch of %u rows", limits->rows);
}

void batch_close(struct batch *batch)
{
    if (!batch)
        return;
    free(batch->close_rows);
    free(batch->openings);
    free(batch->grants);
    free(batch->prefills);
    free(batch->decode_rows);
    free(batch);
}

void batch_reset(struct batch *batch)
{
    batch->close_count = 0;
    batch->opening_count = 0;
    batch->grant_count = 0;
    batch->prefill_count = 0;
    batch->decode_count = 0;
}
