/* policy.c -- the plan of one step: a few passes over the rows, made while the step before runs. */
#include "scheduler/policy.h"

enum {
    OLDEST_SHARE = 4,  /* the oldest prompt has a quarter of the budget for itself */
    PROMPTS_SHARE = 4, /* prompts have a quarter of a loaded step, however many decode */
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t share_of(uint32_t tokens, uint32_t share)
{
    return (tokens + share - 1) / share;
}

static bool decodes(const struct policy_running *running)
{
    return running->prompt_left == 0 && running->may_decode && !running->held;
}

/* Returns how many pages are lacking, for those that sit out and for those that come close. */
static uint32_t plan_decodes(const struct policy_input *input, uint32_t *pages_free,
                             struct policy_plan *plan)
{
    uint32_t lacking = 0;

    for (uint32_t i = 0; i < input->running_count; i++) {
        const struct policy_running *running = &input->running[i];

        if (!decodes(running))
            continue;
        if (running->pages_missing > *pages_free) {
            lacking += running->pages_missing + running->pages_ahead;
            continue;
        }
        *pages_free -= running->pages_missing;
        plan->decodes[plan->decode_count++] =
            (struct policy_decode){.index = i, .pages = running->pages_missing};
    }
    /* Only now, so that nobody sits out for a page that another holds ahead. */
    for (uint32_t i = 0; i < plan->decode_count; i++) {
        uint32_t ahead = input->running[plan->decodes[i].index].pages_ahead;
        uint32_t granted = least(ahead, *pages_free);

        plan->decodes[i].pages += granted;
        *pages_free -= granted;
        lacking += ahead - granted;
    }
    return lacking;
}

static bool is_victim(const struct policy_plan *plan, uint32_t index)
{
    for (uint32_t i = 0; i < plan->preempt_count; i++)
        if (plan->preempts[i] == index)
            return true;
    return false;
}

/* Whoever loses least, the youngest of equals; 0, which is the oldest, when there is nobody. */
static uint32_t choose_victim(const struct policy_input *input, const struct policy_plan *plan)
{
    uint32_t victim = 0;

    for (uint32_t i = 1; i < input->running_count; i++) {
        const struct policy_running *running = &input->running[i];
        bool ends_soon = running->prompt_left == 0 && !running->may_decode;

        if (ends_soon || is_victim(plan, i))
            continue;
        if (victim == 0 || running->computed <= input->running[victim].computed)
            victim = i;
    }
    return victim;
}

static void plan_preemption(const struct policy_input *input, uint32_t lacking,
                            struct policy_plan *plan)
{
    uint32_t coming = input->pages_leaving;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < input->running_count; i++)
        if (input->running[i].prompt_left == 0 && !input->running[i].may_decode)
            coming += input->running[i].pages_freed;
    while (coming < lacking) {
        uint32_t victim = choose_victim(input, plan);

        if (victim == 0)
            break;
        coming += input->running[victim].pages_freed;
        plan->preempts[plan->preempt_count++] = victim;
    }
    /* A victim takes no part in the step that makes it one. */
    for (uint32_t i = 0; i < plan->decode_count; i++)
        if (!is_victim(plan, plan->decodes[i].index))
            plan->decodes[kept++] = plan->decodes[i];
    plan->decode_count = kept;
}

static uint32_t prompt_budget(const struct policy_input *input, const struct policy_plan *plan)
{
    uint32_t budget = share_of(input->loaded_tokens, PROMPTS_SHARE);

    if (plan->decode_count == 0)
        return input->prefill_tokens;
    if (plan->decode_count < input->loaded_tokens &&
        input->loaded_tokens - plan->decode_count > budget)
        budget = input->loaded_tokens - plan->decode_count;
    return least(budget, input->prefill_tokens);
}

static void plan_admissions(const struct policy_input *input, uint32_t pages_free,
                            struct policy_plan *plan)
{
    uint32_t prefilling = 0, reserve = 0;
    uint32_t room = prompt_budget(input, plan); /* of it, for prompts in one piece */

    for (uint32_t i = 0; i < input->running_count; i++) {
        uint32_t left = input->running[i].prompt_left;

        if (left > 0 && prefilling++ == 0)
            room -= room / OLDEST_SHARE;
        if (left <= room)
            room -= left;
        reserve += input->running[i].pages_growth;
    }
    for (uint32_t i = 0; i < input->waiting_count; i++) {
        const struct policy_waiting *waiting = &input->waiting[i];

        if (plan->admit_count == input->rows_free || waiting->pages > pages_free ||
            pages_free - waiting->pages < reserve)
            break;
        if (prefilling >= input->prefills_max && waiting->prompt_tokens > room)
            continue;
        room -= least(room, waiting->prompt_tokens);
        pages_free -= waiting->pages;
        prefilling++;
        plan->admits[plan->admit_count++] = i;
    }
}

static uint32_t prompt_left(const struct policy_input *input, const struct policy_plan *plan,
                            uint32_t index)
{
    if (index < input->running_count)
        return input->running[index].prompt_left;
    return input->waiting[plan->admits[index - input->running_count]].prompt_tokens;
}

/* Gives entry `at` up to `most` tokens of the budget. */
static void feed(const struct policy_input *input, struct policy_plan *plan, uint32_t at,
                 uint32_t most, uint32_t *budget)
{
    struct policy_prefill *prefill = &plan->prefills[at];
    uint32_t left = prompt_left(input, plan, prefill->index) - prefill->tokens;
    uint32_t tokens = least(least(left, most), *budget);

    if (input->whole_prompts)
        tokens = left <= *budget ? left : 0;
    prefill->tokens += tokens;
    *budget -= tokens;
}

/* The entry from `from` on with the least left to do, the oldest of equals. */
static uint32_t shortest(const struct policy_input *input, const struct policy_plan *plan,
                         uint32_t from)
{
    uint32_t best = from, best_left = UINT32_MAX;

    for (uint32_t i = from; i < plan->prefill_count; i++) {
        uint32_t left = prompt_left(input, plan, plan->prefills[i].index);

        if (left < best_left ||
            (left == best_left && plan->prefills[i].index < plan->prefills[best].index)) {
            best = i;
            best_left = left;
        }
    }
    return best;
}

/* Sorts the prompts by what is left of them, only as far as the budget reaches. The oldest prompt
 * has its share already and may get more in its turn; it is carried along by its tokens. */
static void plan_prefills(const struct policy_input *input, struct policy_plan *plan)
{
    uint32_t count = input->running_count + plan->admit_count;
    uint32_t budget = prompt_budget(input, plan);
    uint32_t share = share_of(budget, OLDEST_SHARE);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (prompt_left(input, plan, i) > 0 && (i >= input->running_count || !is_victim(plan, i)))
            plan->prefills[plan->prefill_count++] = (struct policy_prefill){.index = i};
    if (plan->prefill_count > 0)
        feed(input, plan, 0, share, &budget);
    for (uint32_t i = 0; i < plan->prefill_count && budget > 0; i++) {
        uint32_t best = shortest(input, plan, i);
        struct policy_prefill chosen = plan->prefills[best];

        plan->prefills[best] = plan->prefills[i];
        plan->prefills[i] = chosen;
        feed(input, plan, i, UINT32_MAX, &budget);
    }
    for (uint32_t i = 0; i < plan->prefill_count; i++)
        if (plan->prefills[i].tokens > 0)
            plan->prefills[kept++] = plan->prefills[i];
    plan->prefill_count = kept;
}

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan)
{
    uint32_t pages_free = input->pages_free;
    uint32_t lacking;

    ret_plan->decode_count = 0;
    ret_plan->preempt_count = 0;
    ret_plan->admit_count = 0;
    ret_plan->prefill_count = 0;
    lacking = plan_decodes(input, &pages_free, ret_plan);
    if (lacking > 0)
        plan_preemption(input, lacking, ret_plan);
    else
        plan_admissions(input, pages_free, ret_plan);
    plan_prefills(input, ret_plan);
}
