/* step.cu -- a step's description, from the host's memory to where the kernels read it.
 *
 *     mapped   [ slot 0 | slot 1 | slot 2 | slot 3 ]     written by the host before it submits
 *                          ^ step mod 4                  read here over PCIe, a few kilobytes
 *     placed   [ tokens, segments, outputs ]             one set at fixed addresses: graphs name it
 *
 * The device counts steps itself, so that a replayed graph takes the next slot without a changed
 * argument. What only the device knows is filled in on the way: which token was sampled last, and
 * which rows have ended since the host wrote (they become padding). */
#include "kernels/cuda/common.cuh"

namespace
{

constexpr int THREADS = 256;

__device__ __forceinline__ bool gone(const struct cuda_row *rows, uint32_t row)
{
    return rows[row].ended != 0;
}

/* All that comes over PCIe is asked for at once, needed or not: every answer takes microseconds.
 * The slot has room for the bucket. */
__global__ void prepare(const struct cuda_prepare a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const struct cuda_step_slot slot = a.mapped[*a.step % CUDA_STEP_SLOTS];
    const struct cuda_step_counts counts = *slot.counts;
    struct cuda_token token = {0, CUDA_ROW_NONE, 0};
    struct cuda_segment segment = {0, 0, 0, 0};
    struct cuda_output output = {0, 0, 0, 0, -1, CUDA_OUTPUT_UNUSED};

    if (i < a.tokens)
        token = slot.tokens[i];
    if (i < a.segments)
        segment = slot.segments[i];
    if (i < a.outputs)
        output = slot.outputs[i];
    if (i >= counts.tokens)
        token = {0, CUDA_ROW_NONE, 0};
    if (i >= counts.segments)
        segment = {0, 0, 0, 0};
    if (i >= counts.outputs)
        output = {0, 0, 0, 0, -1, CUDA_OUTPUT_UNUSED};
    if (i < a.tokens) {
        if (token.row != CUDA_ROW_NONE && token.token < 0) {
            token.token = a.rows[token.row].last_token;
            if (gone(a.rows, token.row))
                token = {0, CUDA_ROW_NONE, 0};
        }
        a.placed.tokens[i] = token;
    }
    if (i < a.segments) {
        if (segment.token_count > 0 && gone(a.rows, segment.row))
            segment.token_count = 0;
        a.placed.segments[i] = segment;
    }
    if (i < a.outputs)
        a.placed.outputs[i] = output;
}

/* --- changes ------------------------------------------------------------------------------- */

/* A block an opening. */
__global__ void open_rows(const struct cuda_changes a)
{
    const struct cuda_opening &opening = a.openings[blockIdx.x];
    const uint32_t row = opening.row, thread = threadIdx.x;
    uint16_t *counts = a.generated_counts + (size_t)row * a.vocabulary;
    uint32_t *seen = a.prompt_seen + (size_t)row * a.mask_words;
    const int32_t *tokens = a.tokens + opening.first_token;

    if (thread == 0) {
        a.samplings[row] = opening.sampling;
        a.rows[row] = {-1, 0};
    }
    for (uint32_t i = thread; i < opening.sampling.bias_count; i += THREADS)
        a.row_biases[(size_t)row * a.bias_max + i] = a.biases[opening.first_bias + i];
    if (!opening.sampling.counted)
        return;
    for (uint32_t i = thread; i < a.vocabulary; i += THREADS)
        counts[i] = 0;
    for (uint32_t i = thread; i < a.mask_words; i += THREADS)
        seen[i] = 0;
    __syncthreads();
    for (uint32_t i = thread; i < opening.prompt_count; i += THREADS)
        atomicOr(seen + tokens[i] / 32, 1u << (tokens[i] % 32));
    /* After a preemption: few enough for one thread, and 16-bit counters have no atomics. */
    if (thread == 0)
        for (uint32_t i = opening.prompt_count; i < opening.token_count; i++)
            if (counts[tokens[i]] < UINT16_MAX)
                counts[tokens[i]]++;
}

__global__ void grant_pages(const struct cuda_changes a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;

    if (i < a.grant_count) {
        const struct cuda_grant grant = a.grants[i];
        a.page_table[(size_t)grant.row * a.pages_per_row + grant.index] = grant.page;
    }
}

uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

} /* namespace */

extern "C" int cuda_prepare(const struct cuda_stream *stream, const struct cuda_prepare *a)
{
    uint32_t items = most(a->tokens, most(a->segments, a->outputs));

    return launch(stream, cuda_grid{(items + THREADS - 1) / THREADS, 1, 1, THREADS, 0, false},
                  prepare, *a);
}

/* All files are built for the same GPUs, so one kernel speaks for all. */
extern "C" int cuda_kernels_check(struct cuda_context *context, struct fault *fault)
{
    return cuda_kernel_check(context, (const void *)prepare, fault);
}

extern "C" int cuda_apply_changes(const struct cuda_stream *stream, const struct cuda_changes *a)
{
    int r = 0;

    if (a->opening_count > 0)
        r = launch(stream, cuda_grid{a->opening_count, 1, 1, THREADS, 0, false}, open_rows, *a);
    if (r == 0 && a->grant_count > 0)
        r = launch(stream,
                   cuda_grid{(a->grant_count + THREADS - 1) / THREADS, 1, 1, THREADS, 0, false},
                   grant_pages, *a);
    return r;
}
