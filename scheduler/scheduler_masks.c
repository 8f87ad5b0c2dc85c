/* scheduler_masks.c -- answers that are held to a constraint, as the scheduler's thread sees them.
 *
 *     step N         token p drawn ---.                        p+1 drawn, its mask is there
 *     step N+1       forward of p     |        forward of p ----'
 *     here                            learn p: post
 *     mask thread                                 take p, make p+1's mask
 *
 * So a constrained row is in every step like the others, as long as masks are made in less than a
 * step. What does not go that way is held and opened again (sequence.h). */
#include <stdatomic.h>

#include "config/base/clock.h"
#include "scheduler/scheduler_internal.h"

enum {
    SLOW_NS = 1000000, /* masks of an answer whose last one took longer come after the others' */
    /* A jump costs its row the two steps that are in flight, and everybody the difference of a
     * step that reads tokens in to one that only decodes, so that it must save some more. */
    JUMP_LEAST = ENGINE_STEPS_IN_FLIGHT + 4,
};

/* --- jobs ------------------------------------------------------------------------------------- */

/* Text that must follow is looked for once behind each drawn token, and by rules that know no time:
 * how an answer is cut into tokens decides what else is drawn, and a seed gives one answer whatever
 * is late or preempted. */
static uint32_t jump_least(const struct sequence *sequence)
{
    const struct mask_job *job = &sequence->mask->job;

    /* Who asks for log-probabilities has them of every token, so that each is drawn. */
    if (sequence->sampling.logprobs != LOGPROBS_NONE)
        return 0;
    if (!job->state)
        return 1; /* nothing is in flight yet */
    return job->from < job->to ? JUMP_LEAST : 0;
}

static void post(struct scheduler *scheduler, struct sequence *sequence, struct row_mask row)
{
    struct sequence_mask *mask = sequence->mask;
    struct mask_job *job = &mask->job;
    const struct sampling *asked = &sequence->sampling;
    uint32_t generated = sequence_generated(sequence);

    must(!mask->busy && mask->begun && generated < sequence->max_tokens);
    job->from = mask->taken;
    job->to = sequence->token_count;
    job->tokens_left = sequence->max_tokens - generated;
    job->no_end_for = asked->min_tokens > generated ? asked->min_tokens - generated : 0;
    if (asked->ignore_eos)
        job->no_end_for = UINT32_MAX;
    job->jump_least = jump_least(sequence);
    job->jump_most = job->tokens_left - 1 < MASK_JUMP_MAX ? job->tokens_left - 1 : MASK_JUMP_MAX;
    if (job->jump_least == 0)
        job->jump_most = 0;
    job->mask = row;
    mask->busy = true;
    mask_pool_post(scheduler->mask_pool, &job->work, !row.words || job->took_ns > SLOW_NS);
}

void scheduler_mask_wait(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->mask && sequence->mask->begun)
        post(scheduler, sequence, (struct row_mask){0});
}

void scheduler_mask_admit(struct scheduler *scheduler, struct sequence *sequence)
{
    struct row_mask row = engine_mask(scheduler->engine, sequence->row);

    scheduler_send_undrawn(scheduler, sequence);
    atomic_store_explicit(row.position, 0, memory_order_release);
    if (sequence->mask->begun)
        post(scheduler, sequence, row);
}

/* Its results from here on count for nothing. */
static void hold(struct sequence *sequence)
{
    sequence->held = true;
    sequence->stale = sequence->in_flight;
    sequence->sampling_in_flight = 0;
}

static void post_for_row(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->state == SEQUENCE_RUNNING) /* else when it waits again */
        post(scheduler, sequence, engine_mask(scheduler->engine, sequence->row));
}

/* --- where it begins -------------------------------------------------------------------------- */

/* The longest beginning of `text`, shorter than `count`, with which its first `count` bytes end. */
static uint32_t border(const char *text, uint32_t count)
{
    for (uint32_t length = count - 1; length > 0; length--) {
        uint32_t same = 0;

        while (same < length && text[same] == text[count - length + same])
            same++;
        if (same == length)
            return length;
    }
    return 0;
}

/* Looks for the text in the newest token; what the token goes on with is the job's to take. */
static bool text_ends(struct sequence *sequence)
{
    const struct request_constraint *asked = &sequence->owner->request->constraint;
    struct sequence_mask *mask = sequence->mask;
    size_t bytes;
    const char *text = constraint_token_text(asked->constraint,
                                             sequence->tokens[sequence->token_count - 1], &bytes);

    for (size_t i = 0; i < bytes; i++) {
        while (mask->text_matched > 0 && asked->after_text[mask->text_matched] != text[i])
            mask->text_matched = border(asked->after_text, mask->text_matched);
        mask->text_matched += asked->after_text[mask->text_matched] == text[i];
        if (mask->text_matched == asked->after_text_bytes) {
            mask->job.text = text + i + 1;
            mask->job.text_bytes = bytes - i - 1;
            return true;
        }
    }
    return false;
}

static bool begins(struct sequence *sequence)
{
    const struct request_constraint *asked = &sequence->owner->request->constraint;
    uint32_t count = asked->after_token_count;

    if (count == 0)
        return text_ends(sequence);
    if (count > sequence_generated(sequence))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (sequence->tokens[sequence->token_count - count + i] != asked->after_tokens[i])
            return false;
    return true;
}

void scheduler_mask_learn(struct scheduler *scheduler, struct sequence *sequence)
{
    struct sequence_mask *mask = sequence->mask;

    if (!mask->begun) {
        if (!begins(sequence))
            return;
        mask->begun = true;
        mask->taken = sequence->token_count;
        if (sequence->state == SEQUENCE_RUNNING)
            hold(sequence);
    }
    /* The mask was used before its thread could say that it is done. */
    if (mask->busy)
        mask->again = true;
    else
        post_for_row(scheduler, sequence);
}

void scheduler_mask_late(struct scheduler *scheduler, struct sequence *sequence)
{
    count(&scheduler->published.masks_late_total, 1);
    if (sequence->state == SEQUENCE_RUNNING && !sequence->held)
        hold(sequence);
}

/* --- what was found --------------------------------------------------------------------------- */

static void count_time(struct scheduler *scheduler, uint64_t took_ns)
{
    uint32_t i = 0;

    while (i < MASK_BOUNDS && took_ns > scheduler_mask_bound_ns(i))
        i++;
    count(&scheduler->published.masks[i], 1);
    count(&scheduler->published.mask_ns_total, took_ns);
}

static void append_undrawn(struct sequence *sequence, const struct mask_job *job)
{
    must(sequence->token_count == job->to &&
         job->jump_count < sequence->max_tokens - sequence_generated(sequence));
    for (uint32_t i = 0; i < job->jump_count; i++)
        sequence->tokens[sequence->token_count++] = job->jump[i];
    sequence->unsent += job->jump_count;
    if (sequence->state == SEQUENCE_RUNNING)
        hold(sequence);
}

static void take(struct scheduler *scheduler, struct sequence *sequence)
{
    struct sequence_mask *mask = sequence->mask;
    const struct mask_job *job = &mask->job;
    bool again = mask->again;

    mask->busy = mask->again = false;
    count_time(scheduler, job->took_ns);
    if (sequence->ended)
        return;
    mask->taken = job->to + job->jump_count;
    if (job->fault.code < 0)
        scheduler_end(scheduler, sequence, job->fault.code);
    else if (job->ended)
        scheduler_finish_complete(scheduler, sequence);
    else if (job->jump_count > 0)
        append_undrawn(sequence, job);
    else if (again)
        post_for_row(scheduler, sequence);
}

void scheduler_masks_collect(struct scheduler *scheduler)
{
    struct mask_work *next;

    for (struct mask_work *work = mask_pool_done(scheduler->mask_pool); work; work = next) {
        struct mask_job *job = (struct mask_job *)work; /* its first member */

        next = work->next;
        take(scheduler, job->owner);
    }
}

/* --- opening again ---------------------------------------------------------------------------- */

/* Pages for tokens that were appended. The policy was not asked, so only those that leave one for
 * every sequence that runs. */
static bool take_pages(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t page_tokens = scheduler->limits.page_tokens;
    uint32_t pages = (sequence->token_count + page_tokens - 1) / page_tokens;
    uint32_t more = pages > sequence->page_count ? pages - sequence->page_count : 0;

    if (more > 0 && kv_pages_free(scheduler->pages) < more + scheduler->running.count)
        return false;
    while (more-- > 0)
        must(kv_pages_take(scheduler->pages, &sequence->pages[sequence->page_count++]) == 0);
    return true;
}

/* The last token that was drawn may not have been computed, the logits behind it are to be. */
static void resume(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t undrawn = sequence->unsent;

    if (undrawn > scheduler->jump_room)
        return;
    if (!take_pages(scheduler, sequence)) {
        scheduler_preempt(scheduler, sequence);
        return;
    }
    scheduler->jump_room -= undrawn;
    scheduler_send_undrawn(scheduler, sequence);
    sequence->held = false;
    sequence->opened = sequence->token_count;
    sequence->submitted = sequence->token_count - undrawn - 1;
    sequence->pages_granted = 0;
    if (sequence->row_open)
        scheduler->close_rows[scheduler->close_count++] = sequence->row;
    sequence->row_open = false;
}

void scheduler_masks_resume(struct scheduler *scheduler)
{
    struct sequence *next;

    for (struct sequence *s = scheduler->running.first; s; s = next) {
        next = s->after;
        if (s->held && !s->mask->busy)
            resume(scheduler, s);
    }
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Closing a state waits for whoever makes a mask of the same constraint, so not on our thread. */
static void retire(struct mask_work *work, uint32_t *words)
{
    struct running_request *owner = (struct running_request *)work; /* its first member */
    struct request *request = owner->request;

    (void)words;
    for (uint32_t i = 0; i < request->prompt_count * request->choices; i++)
        if (owner->sequences[i].mask)
            constraint_state_close(owner->sequences[i].mask->job.state);
    request_free(request);
}

void scheduler_masks_retire(struct scheduler *scheduler, struct running_request *owner)
{
    owner->retirement = (struct mask_work){.run = retire, .quiet = true};
    mask_pool_post(scheduler->mask_pool, &owner->retirement, true);
}
