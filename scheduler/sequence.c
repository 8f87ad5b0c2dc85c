/* sequence.c -- lists, and making a request's sequences. */
#include "scheduler/sequence.h"

#include <string.h>

#include "config/base/fault.h"

/* `after` NULL: at the end. */
static void insert_before(struct sequence_list *list, struct sequence *sequence,
                          struct sequence *after)
{
    sequence->after = after;
    sequence->before = after ? after->before : list->last;
    if (sequence->before)
        sequence->before->after = sequence;
    else
        list->first = sequence;
    if (after)
        after->before = sequence;
    else
        list->last = sequence;
    list->count++;
}

void sequence_list_append(struct sequence_list *list, struct sequence *sequence)
{
    insert_before(list, sequence, NULL);
}

void sequence_list_insert(struct sequence_list *list, struct sequence *sequence)
{
    struct sequence *at = list->first;

    while (at && at->order < sequence->order)
        at = at->after;
    insert_before(list, sequence, at);
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

static struct sequence *make_one(struct running_request *owner, uint32_t choice,
                                 const struct engine_limits *limits)
{
    struct request *request = owner->request;
    const struct request_prompt *prompt = &request->prompts[choice / request->choices];
    uint32_t room = limits->context - prompt->count;
    uint32_t max_tokens = request->max_tokens < room ? request->max_tokens : room;
    struct sequence *sequence = arena_take(request->arena, 1, sizeof *sequence);

    if (!sequence)
        return NULL;
    sequence->tokens =
        arena_take(request->arena, (size_t)prompt->count + max_tokens, sizeof *sequence->tokens);
    sequence->pages = arena_take(request->arena, limits->pages_per_row, sizeof *sequence->pages);
    if (!sequence->tokens || !sequence->pages)
        return NULL;
    memcpy(sequence->tokens, prompt->tokens, prompt->count * sizeof *sequence->tokens);
    sequence->owner = owner;
    sequence->choice = choice;
    sequence->token_count = prompt->count;
    sequence->prompt_count = prompt->count;
    sequence->max_tokens = max_tokens;
    sequence->row = ROW_NONE;
    sequence->sampling = request->sampling;
    sequence->sampling.stream = choice;
    return sequence;
}

int sequences_make(struct request *request, const struct engine_limits *limits, uint64_t order,
                   struct sequence_list *list)
{
    uint32_t count = request->prompt_count * request->choices;
    struct running_request *owner = arena_take(request->arena, 1, sizeof *owner);
    struct sequence_list made = {0};

    if (!owner)
        return E_MEMORY;
    owner->request = request;
    owner->sequences_left = count;
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = make_one(owner, i, limits);

        if (!sequence)
            return E_MEMORY;
        sequence->order = order + i;
        sequence_list_append(&made, sequence);
    }
    while (made.first) {
        struct sequence *sequence = made.first;

        sequence_list_remove(&made, sequence);
        sequence_list_append(list, sequence);
    }
    return 0;
}

uint32_t sequence_generated(const struct sequence *sequence)
{
    return sequence->token_count - sequence->prompt_count;
}

bool sequence_may_decode(const struct sequence *sequence)
{
    return sequence_generated(sequence) + sequence->sampling_in_flight < sequence->max_tokens;
}
