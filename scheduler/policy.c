/* policy.c -- the plan of one step. Quadratic in the rows at worst, with a few hundred rows and
 * small steps: some microseconds, while the step before it runs. */
#include "scheduler/policy.h"

enum {
    AGEING = 4, /* a step of waiting makes a prompt count as shorter by a quarter of the budget */
};

/* The running sequence of lowest order above `*last`, among those that decode; -1 at the end. */
static int64_t next_decode(const struct policy_input *input, uint64_t *last, bool *started)
{
    int64_t best = -1;

    for (uint32_t i = 0; i < input->running_count; i++) {
        const struct policy_running *running = &input->running[i];

        if (running->prompt_left || !running->may_decode)
            continue;
        if (*started && running->order <= *last)
            continue;
        if (best < 0 || running->order < input->running[best].order)
            best = i;
    }
    if (best >= 0) {
        *last = input->running[best].order;
        *started = true;
    }
    return best;
}

/* Returns how many pages are missing for those that sit out. */
static uint32_t plan_decodes(const struct policy_input *input, uint32_t *pages_free,
                             struct policy_plan *plan)
{
    uint32_t missing = 0;
    uint64_t last = 0;
    bool started = false;
    int64_t index;

    while ((index = next_decode(input, &last, &started)) >= 0) {
        uint32_t pages = input->running[index].pages_missing;

        if (pages > *pages_free) {
            missing += pages;
            continue;
        }
        *pages_free -= pages;
        plan->decodes[plan->decode_count++] = (uint32_t)index;
    }
    return missing;
}

static bool contains(const uint32_t *indices, uint32_t count, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        if (indices[i] == index)
            return true;
    return false;
}

static void plan_preemption(const struct policy_input *input, uint32_t missing,
                            struct policy_plan *plan)
{
    uint32_t coming = input->pages_leaving;

    while (coming < missing && plan->preempt_count + 1 < input->running_count) {
        int64_t victim = -1;

        for (uint32_t i = 0; i < input->running_count; i++)
            if (!contains(plan->preempts, plan->preempt_count, i) &&
                (victim < 0 || input->running[i].order > input->running[victim].order))
                victim = i;
        coming += input->running[victim].pages_held;
        plan->preempts[plan->preempt_count++] = (uint32_t)victim;
    }
}

/* A victim takes no part in the step that makes it one. */
static void drop_victims(struct policy_plan *plan)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < plan->decode_count; i++)
        if (!contains(plan->preempts, plan->preempt_count, plan->decodes[i]))
            plan->decodes[kept++] = plan->decodes[i];
    plan->decode_count = kept;
}

static void plan_admissions(const struct policy_input *input, uint32_t pages_free,
                            struct policy_plan *plan)
{
    uint32_t prefilling = 0, decoding = 0;

    for (uint32_t i = 0; i < input->running_count; i++) {
        prefilling += input->running[i].prompt_left > 0;
        decoding += input->running[i].prompt_left == 0;
    }
    for (uint32_t i = 0; i < input->waiting_count; i++) {
        uint32_t pages = input->waiting[i].pages;
        /* With nobody else on the way even a prompt that leaves no reserve must get in. */
        uint32_t reserve = decoding + prefilling;

        if (prefilling == input->prefills_max || plan->admit_count == input->rows_free)
            break;
        if (pages > pages_free || pages_free - pages < reserve)
            break;
        pages_free -= pages;
        prefilling++;
        plan->admit_count++;
    }
}

struct candidate {
    uint32_t left;
    uint32_t waited;
    uint64_t order;
};

static struct candidate candidate_at(const struct policy_input *input, uint32_t index)
{
    if (index < input->running_count)
        return (struct candidate){input->running[index].prompt_left,
                                  input->running[index].steps_waited, input->running[index].order};
    index -= input->running_count;
    return (struct candidate){input->waiting[index].prompt_tokens, 0, input->waiting[index].order};
}

static bool before(struct candidate a, struct candidate b, uint32_t budget)
{
    int64_t credit = budget / AGEING + 1;
    int64_t left_a = (int64_t)a.left - (int64_t)a.waited * credit;
    int64_t left_b = (int64_t)b.left - (int64_t)b.waited * credit;

    return left_a != left_b ? left_a < left_b : a.order < b.order;
}

static bool planned(const struct policy_plan *plan, uint32_t index)
{
    for (uint32_t i = 0; i < plan->prefill_count; i++)
        if (plan->prefills[i].index == index)
            return true;
    return false;
}

static void plan_prefills(const struct policy_input *input, struct policy_plan *plan)
{
    uint32_t budget = input->prefill_tokens;
    uint32_t count = input->running_count + plan->admit_count;

    while (budget > 0) {
        struct candidate best = {0, 0, 0};
        int64_t chosen = -1;

        for (uint32_t i = 0; i < count; i++) {
            struct candidate candidate = candidate_at(input, i);

            if (candidate.left == 0 || planned(plan, i) ||
                contains(plan->preempts, plan->preempt_count, i))
                continue;
            if (chosen < 0 || before(candidate, best, input->prefill_tokens)) {
                chosen = i;
                best = candidate;
            }
        }
        if (chosen < 0)
            break;
        if (best.left > budget)
            best.left = budget;
        budget -= best.left;
        plan->prefills[plan->prefill_count++] =
            (struct policy_prefill){.index = (uint32_t)chosen, .tokens = best.left};
    }
}

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan)
{
    uint32_t pages_free = input->pages_free;
    uint32_t missing;

    ret_plan->decode_count = 0;
    ret_plan->preempt_count = 0;
    ret_plan->admit_count = 0;
    ret_plan->prefill_count = 0;
    missing = plan_decodes(input, &pages_free, ret_plan);
    if (missing > 0) {
        plan_preemption(input, missing, ret_plan);
        drop_victims(ret_plan);
    } else {
        plan_admissions(input, pages_free, ret_plan);
    }
    plan_prefills(input, ret_plan);
}
