/* mask_job.c -- see the header. */
#include "scheduler/mask_job.h"

#include <stdatomic.h>

#include "config/base/clock.h"

/* A step of the state: dead is a fault here, since only allowed tokens are drawn. */
static int check_alive(int r, struct fault *fault)
{
    if (r != 0)
        return r < 0 ? r : 0;
    return fault_set(fault, E_INVALID, "The answer went on in a way that its grammar forbids");
}

static int take(struct mask_job *job)
{
    int r = 0;

    if (!job->state)
        r = constraint_state_open(job->constraint, &job->state, &job->fault);
    if (r == 0 && job->text_bytes > 0) {
        size_t taken;

        r = check_alive(
            constraint_state_bytes(job->state, job->text, job->text_bytes, &taken, &job->fault),
            &job->fault);
        job->text_bytes = 0;
    }
    for (; r == 0 && job->from < job->to; job->from++)
        r = check_alive(constraint_state_token(job->state, job->tokens[job->from], &job->fault),
                        &job->fault);
    return r;
}

/* --- the mask --------------------------------------------------------------------------------- */

static bool has(const uint32_t *words, int32_t token)
{
    return words[(uint32_t)token / 32] >> (uint32_t)token % 32 & 1;
}

static bool is_empty(const uint32_t *words, uint32_t count)
{
    uint32_t any = 0;

    for (uint32_t i = 0; i < count; i++)
        any |= words[i];
    return any == 0;
}

/* Takes the tokens out of the mask, unless nothing would be left. Returns whether it did. */
static bool leave_out(uint32_t *words, uint32_t word_count, const int32_t *tokens, uint32_t count)
{
    uint64_t had[(STOP_TOKENS_MAX + 63) / 64] = {0};
    bool left;

    count = count < STOP_TOKENS_MAX ? count : STOP_TOKENS_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if ((uint32_t)tokens[i] / 32 >= word_count || !has(words, tokens[i]))
            continue;
        had[i / 64] |= (uint64_t)1 << i % 64;
        words[(uint32_t)tokens[i] / 32] &= ~(1u << (uint32_t)tokens[i] % 32);
    }
    left = !is_empty(words, word_count);
    for (uint32_t i = 0; i < count && !left; i++)
        if (had[i / 64] >> i % 64 & 1)
            words[(uint32_t)tokens[i] / 32] |= 1u << (uint32_t)tokens[i] % 32;
    return left;
}

/* Is there anything but an end? Leaves the ends in, or out where the request wants more. */
static bool keep_ends(const struct mask_job *job, uint32_t *words, uint32_t word_count)
{
    const struct engine_limits *limits = job->limits;
    bool ends[END_TOKENS_MAX] = {false}, goes_on = job->jump_count < job->no_end_for;
    uint32_t count = limits->end_count < END_TOKENS_MAX ? limits->end_count : END_TOKENS_MAX;

    for (uint32_t i = 0; i < count; i++)
        ends[i] = has(words, limits->end_tokens[i]);
    if (!leave_out(words, word_count, limits->end_tokens, count))
        return false;
    if (goes_on)
        (void)leave_out(words, word_count, job->stop_tokens, job->stop_count);
    for (uint32_t i = 0; i < count && !goes_on; i++)
        if (ends[i])
            words[(uint32_t)limits->end_tokens[i] / 32] |= 1u
                                                           << (uint32_t)limits->end_tokens[i] % 32;
    return true;
}

static int make_mask(struct mask_job *job, uint32_t *scratch)
{
    bool complete = constraint_state_is_complete(job->state);
    uint32_t *words = job->mask.words ? job->mask.words : scratch;
    uint32_t word_count = (job->limits->vocabulary + 31) / 32;
    uint32_t tokens_left = job->may_be_cut ? UINT32_MAX : job->tokens_left - job->jump_count;
    int r;

    if (!job->mask.words && !complete)
        return 0; /* only whether it has ended is to be known */
    r = constraint_state_mask_within(job->state, tokens_left, words, word_count, &job->fault);
    if (r < 0)
        return r;
    if (r == 0)
        return fault_set(&job->fault, E_INVALID,
                         "The model's tokens cannot write what the grammar asks for");
    if (!keep_ends(job, words, word_count))
        job->ended = true;
    else if (job->mask.words)
        atomic_store_explicit(job->mask.position, job->to + job->jump_count, memory_order_release);
    return 0;
}

void mask_job_run(struct mask_work *work, uint32_t *words)
{
    struct mask_job *job = (struct mask_job *)work; /* its first member */
    uint64_t began_ns = clock_now();
    int r;

    job->fault = (struct fault){0};
    job->ended = false;
    job->jump_count = 0;
    r = take(job);
    if (r == 0 && constraint_state_is_ended(job->state)) {
        job->ended = true;
    } else if (r == 0) {
        if (job->jump_most > 0)
            r = constraint_state_jump(job->state, job->jump_least, job->jump, job->jump_most,
                                      &job->fault);
        job->jump_count = r > 0 ? (uint32_t)r : 0;
        r = r < 0 ? r : make_mask(job, words);
    }
    if (r < 0)
        job->fault.code = r == E_TOO_LARGE ? E_INVALID : r; /* no matter of the request's size */
    job->took_ns = clock_now() - began_ns;
}
