/* automaton_distance.c -- see automaton_distance.h.
 *
 * Shortest ways where some costs are sums of two (a call: the rule, and what follows it): D. E.
 * Knuth's generalization of Dijkstra's algorithm (1977). What is nearest is settled first, and
 * whoever waits for it then looks whether it can be. */
#include "engine/text/automaton_distance.h"

#include <stdlib.h>
#include <string.h>

struct heap_item {
    uint32_t distance;
    uint32_t at;
};

struct solver {
    const struct automaton *automaton;
    struct automaton_distances *distances;
    bool *settled;
    uint32_t *first; /* of each instruction in `waiting`: who depends on it */
    uint32_t *waiting;
    struct heap_item *heap;
    uint32_t heap_count;
};

/* ---- a heap of candidates: a distance may be found several times ---- */

static void heap_put(struct solver *solver, uint32_t distance, uint32_t at)
{
    struct heap_item *heap = solver->heap, item = {distance, at};
    uint32_t i = solver->heap_count++;

    for (; i > 0 && heap[(i - 1) / 2].distance > distance; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static struct heap_item heap_take(struct solver *solver)
{
    struct heap_item *heap = solver->heap, top = heap[0], last = heap[--solver->heap_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= solver->heap_count)
            break;
        if (child + 1 < solver->heap_count && heap[child + 1].distance < heap[child].distance)
            child++;
        if (heap[child].distance >= last.distance)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* ---- who depends on whom ---- */

/* The `index`-th instruction that an instruction's distance is made of. */
static bool part_get(const struct automaton *automaton, uint32_t at, uint32_t index,
                     uint32_t *ret_part)
{
    const struct automaton_instruction *here = &automaton->code[at];
    const struct automaton_repeat *repeat;

    switch ((enum automaton_op)here->op) {
    case OP_MATCH:
    case OP_JUMP:
        *ret_part = here->next;
        return index == 0;
    case OP_SPLIT:
        if (index < here->count)
            *ret_part = automaton->targets[here->to + index];
        return index < here->count;
    case OP_CALL:
        *ret_part = index == 0 ? here->to : here->next;
        return index < 2;
    case OP_REPEAT:
        repeat = &automaton->repeats[here->to];
        *ret_part = index == 0 ? repeat->exit : repeat->body;
        return index < (repeat->low > 0 ? 2u : 1u);
    case OP_RETURN:
    case OP_AGAIN:
        break;
    }
    return false;
}

/* The instruction's distance by what is settled; false: something it needs is not. */
static bool distance_of(const struct solver *solver, uint32_t at, uint32_t *ret_distance)
{
    const struct automaton *automaton = solver->automaton;
    const struct automaton_instruction *here = &automaton->code[at];
    const uint32_t *code = solver->distances->code;
    uint32_t part;

    if (here->op == OP_SPLIT)
        must(false); /* by the caller: one way is enough */
    for (uint32_t i = 0; part_get(automaton, at, i, &part); i++)
        if (!solver->settled[part])
            return false;
    switch ((enum automaton_op)here->op) {
    case OP_MATCH:
        *ret_distance = distance_add(code[here->next], solver->distances->states[here->to], 1);
        break;
    case OP_CALL:
        *ret_distance = distance_add(code[here->next], code[here->to], 1);
        break;
    case OP_REPEAT:
        *ret_distance =
            distance_add(code[automaton->repeats[here->to].exit],
                         code[automaton->repeats[here->to].body], automaton->repeats[here->to].low);
        break;
    default:
        *ret_distance = code[here->next];
        break;
    }
    return true;
}

static uint32_t parts_count(const struct automaton *automaton)
{
    uint32_t count = 0, part;

    for (uint32_t at = 0; at < automaton->code_count; at++)
        for (uint32_t i = 0; part_get(automaton, at, i, &part); i++)
            count++;
    return count;
}

static void waiting_fill(struct solver *solver)
{
    const struct automaton *automaton = solver->automaton;
    uint32_t part;

    for (uint32_t at = 0; at < automaton->code_count; at++)
        for (uint32_t i = 0; part_get(automaton, at, i, &part); i++)
            solver->first[part + 2]++;
    for (uint32_t at = 0; at < automaton->code_count; at++)
        solver->first[at + 2] += solver->first[at + 1];
    for (uint32_t at = 0; at < automaton->code_count; at++)
        for (uint32_t i = 0; part_get(automaton, at, i, &part); i++)
            solver->waiting[solver->first[part + 1]++] = at;
}

static void code_solve(struct solver *solver)
{
    const struct automaton *automaton = solver->automaton;
    uint32_t *code = solver->distances->code;

    waiting_fill(solver);
    for (uint32_t at = 0; at < automaton->code_count; at++) {
        code[at] = DISTANCE_MAX;
        if (automaton->code[at].op == OP_RETURN || automaton->code[at].op == OP_AGAIN)
            heap_put(solver, 0, at);
    }
    while (solver->heap_count > 0) {
        struct heap_item item = heap_take(solver);

        if (solver->settled[item.at])
            continue;
        solver->settled[item.at] = true;
        code[item.at] = item.distance;
        for (uint32_t i = solver->first[item.at]; i < solver->first[item.at + 1]; i++) {
            uint32_t at = solver->waiting[i], distance = item.distance;

            if (!solver->settled[at] &&
                (automaton->code[at].op == OP_SPLIT || distance_of(solver, at, &distance)))
                heap_put(solver, distance, at);
        }
    }
}

/* ---- machines ---- */

/* Rounds until nothing changes: a machine is one character or one literal deep. */
static void states_solve(const struct automaton *automaton, uint32_t *states)
{
    bool changed = true;

    for (uint32_t s = 0; s < automaton->state_count; s++)
        states[s] = automaton->states[s].accept || s == 0 ? 0 : DISTANCE_MAX;
    while (changed) {
        changed = false;
        for (uint32_t s = automaton->state_count; s-- > 0;) {
            const struct machine_state *state = &automaton->states[s];

            for (uint32_t e = state->first; e < state->first + state->count; e++) {
                uint32_t distance = distance_add(states[automaton->edges[e].next], 1, 1);

                if (distance < states[s]) {
                    states[s] = distance;
                    changed = true;
                }
            }
        }
    }
}

int automaton_distances_init(struct automaton_distances *distances,
                             const struct automaton *automaton)
{
    uint32_t parts = parts_count(automaton), count = automaton->code_count;
    struct solver solver = {.automaton = automaton, .distances = distances};
    int r = E_MEMORY;

    *distances = (struct automaton_distances){
        .code = calloc(count + 1, sizeof *distances->code),
        .states = calloc(automaton->state_count + 1, sizeof *distances->states),
        .rounds = calloc(count + 1, sizeof *distances->rounds),
    };
    solver.settled = calloc(count + 1, sizeof *solver.settled);
    solver.first = calloc((size_t)count + 2, sizeof *solver.first);
    solver.waiting = calloc((size_t)parts + 1, sizeof *solver.waiting);
    solver.heap = calloc((size_t)parts + count + 1, sizeof *solver.heap);
    if (distances->code && distances->states && distances->rounds && solver.settled &&
        solver.first && solver.waiting && solver.heap) {
        states_solve(automaton, distances->states);
        code_solve(&solver);
        for (uint32_t i = 0; i < automaton->repeat_count; i++)
            distances->rounds[automaton->repeats[i].body] = i + 1;
        r = 0;
    }
    free(solver.settled);
    free(solver.first);
    free(solver.waiting);
    free(solver.heap);
    if (r < 0)
        automaton_distances_fini(distances);
    return r;
}

void automaton_distances_fini(struct automaton_distances *distances)
{
    free(distances->code);
    free(distances->states);
    free(distances->rounds);
    *distances = (struct automaton_distances){0};
}
