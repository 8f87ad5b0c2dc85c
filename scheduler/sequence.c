/* sequence.c -- lists, making a request's sequences, and the groups that share a prompt. */
#include "scheduler/sequence.h"

#include <string.h>

#include "config/base/fault.h"

/* `before` NULL: at the beginning. */
static void insert_after(struct sequence_list *list, struct sequence *sequence,
                         struct sequence *before)
{
    sequence->before = before;
    sequence->after = before ? before->after : list->first;
    if (before)
        before->after = sequence;
    else
        list->first = sequence;
    if (sequence->after)
        sequence->after->before = sequence;
    else
        list->last = sequence;
    list->count++;
}

void sequence_list_append(struct sequence_list *list, struct sequence *sequence)
{
    insert_after(list, sequence, list->last);
}

void sequence_list_insert(struct sequence_list *list, struct sequence *sequence)
{
    struct sequence *at = list->last;

    while (at && at->order > sequence->order)
        at = at->before;
    insert_after(list, sequence, at);
}

void sequence_list_remove(struct sequence_list *list, struct sequence *sequence)
{
    if (sequence->before)
        sequence->before->after = sequence->after;
    else
        list->first = sequence->after;
    if (sequence->after)
        sequence->after->before = sequence->before;
    else
        list->last = sequence->before;
    sequence->before = NULL;
    sequence->after = NULL;
    list->count--;
}

/* --- making ----------------------------------------------------------------------------------- */

static int make_mask(struct sequence *sequence, const struct engine_limits *limits)
{
    const struct request *request = sequence->owner->request;
    const struct request_constraint *asked = &request->constraint;
    struct sequence_mask *mask = arena_take(request->arena, 1, sizeof *mask);

    if (!mask)
        return E_MEMORY;
    mask->sampling = sequence->sampling;
    mask->sampling.min_tokens = 0;
    mask->sampling.ignore_eos = false;
    mask->begun = asked->after_token_count == 0 && asked->after_text_bytes == 0;
    mask->taken = sequence->prompt_count;
    mask->job.work.run = mask_job_run;
    mask->job.owner = sequence;
    mask->job.constraint = asked->constraint;
    mask->job.may_be_cut = asked->may_be_cut;
    mask->job.limits = limits;
    mask->job.tokens = sequence->tokens;
    mask->job.stop_tokens = sequence->sampling.stop_tokens;
    mask->job.stop_count = sequence->sampling.stop_count;
    sequence->mask = mask;
    return 0;
}

static int make_one(struct running_request *owner, uint32_t choice,
                    const struct engine_limits *limits)
{
    struct request *request = owner->request;
    const struct request_prompt *prompt = &request->prompts[choice / request->choices];
    uint32_t room = limits->context - prompt->count;
    uint32_t max_tokens = request->max_tokens < room ? request->max_tokens : room;
    struct sequence *sequence = &owner->sequences[choice];

    sequence->tokens =
        arena_take(request->arena, (size_t)prompt->count + max_tokens, sizeof *sequence->tokens);
    sequence->pages = arena_take(request->arena, limits->pages_per_row, sizeof *sequence->pages);
    if (!sequence->tokens || !sequence->pages)
        return E_MEMORY;
    memcpy(sequence->tokens, prompt->tokens, prompt->count * sizeof *sequence->tokens);
    sequence->owner = owner;
    sequence->group = &owner->groups[choice / request->choices];
    sequence->choice = choice;
    sequence->token_count = prompt->count;
    sequence->prompt_count = prompt->count;
    sequence->max_tokens = max_tokens;
    sequence->row = ROW_NONE;
    sequence->sampling = request->sampling;
    sequence->sampling.stream = choice;
    if (request->constraint.constraint && max_tokens > 0)
        return make_mask(sequence, limits);
    return 0;
}

/* At least one token of the prompt is left for each choice to compute, since its result is what the
 * first token is drawn from. Log-probabilities of the prompt are reported for each choice, so each
 * computes them. */
static uint32_t pages_to_share(const struct request *request, uint32_t prompt, uint32_t page_tokens)
{
    if (request->choices == 1 || request->sampling.prompt_logprobs != LOGPROBS_NONE)
        return 0;
    return (request->prompts[prompt].count - 1) / page_tokens;
}

int sequences_make(struct request *request, const struct engine_limits *limits, uint64_t order,
                   struct sequence_list *list)
{
    uint32_t count = request->prompt_count * request->choices;
    struct running_request *owner = arena_take(request->arena, 1, sizeof *owner);

    if (!owner)
        return E_MEMORY;
    owner->request = request;
    owner->sequences_left = count;
    owner->sequences = arena_take(request->arena, count, sizeof *owner->sequences);
    owner->groups = arena_take(request->arena, request->prompt_count, sizeof *owner->groups);
    if (!owner->sequences || !owner->groups)
        return E_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        if (make_one(owner, i, limits) < 0)
            return E_MEMORY;
    for (uint32_t i = 0; i < request->prompt_count; i++)
        owner->groups[i].page_count = pages_to_share(request, i, limits->page_tokens);
    for (uint32_t i = 0; i < count; i++) {
        owner->sequences[i].order = order + i;
        sequence_list_append(list, &owner->sequences[i]);
    }
    return 0;
}

/* --- questions -------------------------------------------------------------------------------- */

uint32_t sequence_generated(const struct sequence *sequence)
{
    return sequence->token_count - sequence->prompt_count;
}

bool sequence_mask_busy(const struct sequence *sequence)
{
    return sequence->mask && sequence->mask->busy;
}

bool sequence_may_decode(const struct sequence *sequence)
{
    return sequence_generated(sequence) + sequence->sampling_in_flight < sequence->max_tokens;
}

uint32_t sequence_positions_max(const struct sequence *sequence)
{
    return sequence->prompt_count + sequence->max_tokens - (sequence->max_tokens > 0);
}

/* --- groups ----------------------------------------------------------------------------------- */

bool sequence_waits_for_source(const struct sequence *sequence, uint32_t page_tokens)
{
    const struct prompt_group *group = sequence->group;

    return group->source && group->source->submitted < group->page_count * page_tokens;
}

uint32_t sequence_pages_shared(const struct sequence *sequence)
{
    return sequence->group->source ? sequence->group->page_count : 0;
}

uint32_t sequence_pages_own(const struct sequence *sequence)
{
    const struct prompt_group *group = sequence->group;
    bool shares = sequence->page_count > 0 && group->holders > 1;

    return sequence->page_count - (shares ? group->page_count : 0);
}

void sequence_leave_group(struct sequence *sequence)
{
    struct running_request *owner = sequence->owner;
    uint32_t choices = owner->request->choices;
    struct sequence *first = &owner->sequences[sequence->choice / choices * choices];

    if (sequence->group->source != sequence)
        return;
    sequence->group->source = NULL;
    /* All others that run were admitted when the pages were full, so any will do. */
    for (uint32_t i = 0; i < choices; i++)
        if (first[i].state == SEQUENCE_RUNNING && &first[i] != sequence)
            sequence->group->source = &first[i];
}
