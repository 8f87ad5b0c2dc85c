/* cuda_trace.c -- device times of steps and copies on the host's clock, while a trace is written.
 *
 * An event is recorded before and after each; times are differences to a base event, which is
 * recorded on an idle device while the host looks at its clock. The clocks drift and differences
 * come as float milliseconds, so the base is moved whenever nothing is in flight and it is a second
 * old: times are right to a few microseconds for some ten seconds after it. Without a trace nothing
 * here costs anything: there are no events. */
#include "config/base/clock.h"
#include "engine/cuda_internal.h"

enum {
    BASE_AGE_NS = 1000 * 1000 * 1000,
    BASE_EXACT_NS = 20 * 1000, /* what the host may be unsure of when the base was */
    BASE_ATTEMPTS = 32,
};

static int open_timing(struct backend *b, struct cuda_timing *timing)
{
    int r = cuda_event_open(&b->context, true, &timing->began);

    return r < 0 ? r : cuda_event_open(&b->context, true, &timing->ended);
}

static void close_timing(struct backend *b, struct cuda_timing *timing)
{
    cuda_event_close(&b->context, timing->began);
    cuda_event_close(&b->context, timing->ended);
}

int cuda_trace_open(struct backend *b)
{
    int r = 0;

    if (!b->trace.span)
        return 0;
    r = cuda_event_open(&b->context, true, &b->trace_base);
    if (r == 0)
        r = cuda_event_open(&b->context, true, &b->trace_spare);
    for (uint32_t i = 0; i < b->lane_count; i++) {
        for (int j = 0; j < CUDA_STEP_SLOTS && r == 0; j++)
            r = open_timing(b, &b->lanes[i].timings[j]);
        for (int j = 0; j < CUDA_CHANGE_SLOTS && r == 0; j++)
            r = open_timing(b, &b->lanes[i].changes[j].timing);
    }
    return r;
}

void cuda_trace_close(struct backend *b)
{
    cuda_event_close(&b->context, b->trace_base);
    cuda_event_close(&b->context, b->trace_spare);
    for (uint32_t i = 0; i < CUDA_LANES_MAX; i++) {
        for (int j = 0; j < CUDA_STEP_SLOTS; j++)
            close_timing(b, &b->lanes[i].timings[j]);
        for (int j = 0; j < CUDA_CHANGE_SLOTS; j++)
            close_timing(b, &b->lanes[i].changes[j].timing);
    }
}

/* Records the base where nothing is in flight, so that it happens at once, and waits for it. Of
 * some attempts the one whose time is known best is kept: another program may hold the card. */
static int move_base(struct backend *b)
{
    uint64_t least = UINT64_MAX;
    int r = 0;

    for (int i = 0; i < BASE_ATTEMPTS && r == 0 && least > BASE_EXACT_NS; i++) {
        struct CUevent_st *event = b->trace_spare;
        uint64_t before = clock_now(), unsure;
        bool done = false;

        r = cuda_event_record(&b->lanes[0].stream, event);
        while (r == 0 && !done)
            r = cuda_event_done(&b->context, event, &done);
        unsure = clock_now() - before;
        if (unsure >= least)
            continue;
        least = unsure;
        b->trace_spare = b->trace_base;
        b->trace_base = event;
        b->trace_base_ns = before + unsure / 2;
    }
    return r;
}

int cuda_trace_begin(struct backend *b, struct cuda_lane *lane)
{
    struct cuda_timing *timing = &lane->timings[lane->steps % CUDA_STEP_SLOTS];
    const char *mixed = lane->decode_segments > 0 ? "prefill + decode" : "prefill";

    if (!timing->began)
        return 0;
    timing->name = lane->decodes ? "decode" : mixed;
    timing->tokens = lane->token_count;
    timing->step = b->work->batch->number;
    return cuda_event_record(&lane->stream, timing->began);
}

int cuda_trace_end(struct cuda_lane *lane)
{
    struct cuda_timing *timing = &lane->timings[lane->steps % CUDA_STEP_SLOTS];

    return timing->ended ? cuda_event_record(&lane->stream, timing->ended) : 0;
}

int cuda_trace_step(struct backend *b)
{
    if (!b->trace.span || b->submit_count != b->complete_count ||
        (b->trace_base_ns > 0 && clock_now() - b->trace_base_ns < BASE_AGE_NS))
        return 0;
    return move_base(b);
}

/* On the host's clock; may lie before a base that was moved since. */
static uint64_t host_ns(const struct backend *b, float ms)
{
    return b->trace_base_ns + (uint64_t)(int64_t)((double)ms * 1e6);
}

static int tell(struct backend *b, const struct cuda_timing *timing, uint32_t track)
{
    float began, ended;
    int r = cuda_event_between(&b->context, b->trace_base, timing->began, &began);

    if (r == 0)
        r = cuda_event_between(&b->context, b->trace_base, timing->ended, &ended);
    if (r == 0)
        b->trace.span(b->trace.data, &(struct engine_span){.track = track,
                                                           .name = timing->name,
                                                           .began_ns = host_ns(b, began),
                                                           .ended_ns = host_ns(b, ended),
                                                           .step = timing->step,
                                                           .tokens = timing->tokens});
    return r;
}

/* The lane's step in that slot is complete, and so are the copies that it waited for. */
int cuda_trace_complete(struct backend *b, struct cuda_lane *lane, uint32_t slot)
{
    int r = 0;

    if (!b->trace.span)
        return 0;
    for (int i = 0; i < CUDA_CHANGE_SLOTS && r == 0; i++) {
        struct cuda_timing *timing = &lane->changes[i].timing;

        if (!timing->name || timing->step > lane->timings[slot].step)
            continue;
        r = tell(b, timing, TRACK_COPIES);
        timing->name = NULL;
    }
    return r < 0 ? r : tell(b, &lane->timings[slot], TRACK_LANES + (uint32_t)(lane - b->lanes));
}

/* Where a step has more changes than there are slots, the first ones' copies are not told. */
int cuda_trace_copy_begin(struct backend *b, struct cuda_change_slot *slot)
{
    if (!b->trace.span)
        return 0;
    slot->timing.name = "changes";
    slot->timing.step = b->work->batch->number;
    return cuda_event_record(&b->copies, slot->timing.began);
}

int cuda_trace_copy_end(struct backend *b, struct cuda_change_slot *slot)
{
    return b->trace.span ? cuda_event_record(&b->copies, slot->timing.ended) : 0;
}

void cuda_waited(struct backend *b, struct step *step, uint64_t began_ns)
{
    uint64_t ended_ns = clock_now();

    step->waited_ns += ended_ns - began_ns;
    if (b->trace.span)
        b->trace.span(b->trace.data, &(struct engine_span){.track = TRACK_HOST,
                                                           .name = "wait",
                                                           .began_ns = began_ns,
                                                           .ended_ns = ended_ns,
                                                           .step = step->number});
}
