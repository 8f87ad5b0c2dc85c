/* cuda_measure.c -- how fast the card reads its memory, by reading the backend's own.
 *
 * That is the weights where they are large; else the KV pages, which are given random values first,
 * as a card may treat memory that was never written, or only zeroed, in a way of its own. */
#include <stdlib.h>

#include "engine/cuda_internal.h"

enum { REPEATS = 9 };

#define READ_BYTES_LEAST ((uint64_t)2 << 30)
#define READ_BYTES_MOST  ((uint64_t)8 << 30)

struct read_events {
    struct CUevent_st *began;
    struct CUevent_st *ended;
};

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* The median rate of REPEATS passes over the memory, after one that does not count. */
static int measure(struct backend *b, const struct read_events *events, const void *memory,
                   size_t bytes, double *ret_bytes_per_second)
{
    const struct cuda_stream *stream = &b->lanes[0].stream;
    double rates[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        size_t read;
        float ms;
        int r = cuda_event_record(stream, events->began);

        if (r == 0)
            r = cuda_read_memory(stream, memory, bytes, (uint32_t *)b->lanes[0].logits, &read);
        if (r == 0)
            r = cuda_event_record(stream, events->ended);
        if (r == 0)
            r = cuda_event_wait(&b->context, events->ended);
        if (r == 0)
            r = cuda_event_between(&b->context, events->began, events->ended, &ms);
        if (r < 0)
            return r;
        if (i >= 0)
            rates[i] = (double)read / ((double)ms * 1e-3);
    }
    qsort(rates, REPEATS, sizeof *rates, compare);
    *ret_bytes_per_second = rates[REPEATS / 2];
    return 0;
}

int cuda_read_bandwidth(struct backend *b, double *ret_bytes_per_second, struct fault *fault)
{
    const struct cuda_stream *stream = &b->lanes[0].stream;
    uint64_t weight_bytes = cuda_weights_bytes(b, b->model, b->packs);
    uint64_t kv_bytes = (uint64_t)b->limits.page_count * b->page_bytes * b->model->layer_count;
    bool pages = weight_bytes < READ_BYTES_LEAST && kv_bytes > weight_bytes;
    uint64_t bytes = pages ? kv_bytes : weight_bytes;
    struct read_events events = {0};
    int r = 0;

    if (bytes > READ_BYTES_MOST)
        bytes = READ_BYTES_MOST;
    if (pages)
        r = cuda_random(stream, b->type, random_weight_make("bandwidth", 0.0f, 1.0f), b->kv,
                        bytes / b->element_bytes);
    if (r == 0)
        r = cuda_event_open(&b->context, true, &events.began);
    if (r == 0)
        r = cuda_event_open(&b->context, true, &events.ended);
    if (r == 0)
        r = measure(b, &events, pages ? b->kv : b->weights.region, bytes, ret_bytes_per_second);
    if (r == 0 && pages)
        r = cuda_fill(stream, b->kv, 0, bytes);
    cuda_event_close(&b->context, events.began);
    cuda_event_close(&b->context, events.ended);
    if (r < 0 && fault)
        *fault = b->context.failure;
    return r;
}
