/* automaton_check.c -- looks at a whole automaton: calls in tail position, left recursion, classes
 * that go round, classes of bytes; see automaton_internal.h.
 *
 * Left recursion: the automaton reaches the same instruction again without having read a byte, and
 * with a frame more each time. Instructions are followed along the ways that read nothing; where
 * such ways go round (a strongly connected component, found by Tarjan's algorithm), none of them
 * may push a frame. A round that pushes none, a ::= a | "x", adds nothing and does no harm. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/automaton_internal.h"

enum { LOOP_STEPS_MAX = 64 };

/* ---- tail calls ---- */

/* Through jumps, which may go round when a repetition is of nothing. */
static uint32_t jumps_follow(const struct automaton *automaton, uint32_t at)
{
    for (int i = 0; i < LOOP_STEPS_MAX && automaton->code[at].op == OP_JUMP; i++)
        at = automaton->code[at].next;
    return at;
}

static void tail_calls_find(struct automaton *automaton)
{
    for (uint32_t i = 0; i < automaton->code_count; i++) {
        struct automaton_instruction *at = &automaton->code[i];

        if (at->op == OP_CALL)
            at->tail = automaton->code[jumps_follow(automaton, at->next)].op == OP_RETURN;
    }
}

/* ---- left recursion ---- */

/* The `index`-th way on from an instruction that reads nothing. What stands behind OP_AGAIN was
 * reached through a byte, or the same round was open from its beginning. */
static bool way_get(const struct automaton *automaton, uint32_t from, uint32_t index,
                    uint32_t *ret_to, bool *ret_pushes)
{
    const struct automaton_instruction *at = &automaton->code[from];

    *ret_pushes = false;
    switch (at->op) {
    case OP_JUMP:
        *ret_to = at->next;
        return index == 0;
    case OP_SPLIT:
        if (index >= at->count)
            return false;
        *ret_to = automaton->targets[at->to + index];
        return true;
    case OP_CALL:
        *ret_to = index == 0 ? at->to : at->next;
        *ret_pushes = index == 0 && !at->tail;
        return index < (at->nullable ? 2u : 1u);
    case OP_REPEAT: {
        const struct automaton_repeat *repeat = &automaton->repeats[at->to];

        *ret_to = index == 0 ? repeat->body : repeat->exit;
        *ret_pushes = index == 0;
        return index < (repeat->low == 0 ? 2u : 1u);
    }
    default:
        return false;
    }
}

struct tarjan {
    const struct automaton *automaton;
    uint32_t *order; /* when an instruction was first seen, 0: not yet */
    uint32_t *low;   /* the oldest one it reaches; UINT32_MAX: its component is done */
    uint32_t *path;  /* instructions being followed, and at which way each is */
    uint32_t *way;
    uint32_t *open; /* seen, component not known yet */
    uint32_t *component;
    uint32_t open_count;
    uint32_t seen;
};

static void component_close(struct tarjan *t, uint32_t root)
{
    uint32_t at;

    do {
        at = t->open[--t->open_count];
        t->component[at] = root;
        t->low[at] = UINT32_MAX;
    } while (at != root);
}

static void component_find(struct tarjan *t, uint32_t start)
{
    uint32_t depth = 0, to;
    bool pushes;

    t->path[depth++] = start;
    while (depth > 0) {
        uint32_t at = t->path[depth - 1];

        if (t->order[at] == 0) {
            t->order[at] = t->low[at] = ++t->seen;
            t->way[at] = 0;
            t->open[t->open_count++] = at;
        }
        if (way_get(t->automaton, at, t->way[at], &to, &pushes)) {
            if (t->order[to] == 0) {
                t->path[depth++] = to; /* and looks at this way again when it comes back */
                continue;
            }
            if (t->low[to] < t->low[at])
                t->low[at] = t->low[to];
            t->way[at]++;
            continue;
        }
        if (t->low[at] == t->order[at])
            component_close(t, at);
        depth--;
    }
}

/* A call within a round of which some part pushes a frame; a round always has a call. */
static bool recursion_find(const struct tarjan *t, uint32_t *ret_call)
{
    const struct automaton *automaton = t->automaton;
    uint32_t to, pushing = UINT32_MAX;
    bool pushes;

    for (uint32_t at = 0; at < automaton->code_count && pushing == UINT32_MAX; at++) {
        for (uint32_t i = 0; way_get(automaton, at, i, &to, &pushes); i++) {
            if (pushes && t->component[at] == t->component[to])
                pushing = t->component[at];
        }
    }
    for (uint32_t at = 0; at < automaton->code_count && pushing != UINT32_MAX; at++) {
        const struct automaton_instruction *call = &automaton->code[at];

        if (call->op == OP_CALL && t->component[at] == pushing &&
            t->component[call->to] == pushing) {
            *ret_call = at;
            return true;
        }
    }
    return false;
}

static int left_recursion_refuse(const struct automaton_build *build, struct fault *fault)
{
    uint32_t count = build->automaton->code_count, call;
    struct tarjan t = {.automaton = build->automaton};
    uint32_t *memory = calloc((size_t)count * 6, sizeof *memory);
    int r = 0;

    if (!memory)
        return fault_set(fault, E_MEMORY, "There is no memory to check the grammar");
    t.order = memory;
    t.low = t.order + count;
    t.path = t.low + count;
    t.way = t.path + count;
    t.open = t.way + count;
    t.component = t.open + count;
    for (uint32_t at = 0; at < count; at++) {
        if (t.order[at] == 0)
            component_find(&t, at);
    }
    if (recursion_find(&t, &call))
        r = fault_set(fault, E_UNSUPPORTED,
                      "The rule '%s' is left-recursive: it begins with itself before anything is "
                      "matched. Write it as a repetition",
                      grammar_rule_name(build->grammar, build->automaton->code[call].count));
    free(memory);
    return r;
}

/* ---- classes that go round ---- */

/* Whether `to` is reached from `from` along what reads nothing and leaves the frame as it is; else
 * *ret_repeat becomes the repetition whose round ends there, if one does. */
static bool loop_reaches(const struct automaton *automaton, uint32_t from, uint32_t to,
                         uint32_t *ret_repeat)
{
    uint32_t todo[LOOP_STEPS_MAX], count = 0;

    todo[count++] = from;
    for (int steps = 0; count > 0 && steps < LOOP_STEPS_MAX; steps++) {
        const struct automaton_instruction *at;
        uint32_t here = todo[--count];

        if (here == to)
            return true;
        at = &automaton->code[here];
        if (at->op == OP_AGAIN)
            *ret_repeat = at->to;
        if (at->op == OP_JUMP)
            todo[count++] = at->next;
        if (at->op == OP_CALL && at->tail)
            todo[count++] = at->to;
        for (uint32_t i = 0; at->op == OP_SPLIT && i < at->count && count < LOOP_STEPS_MAX; i++)
            todo[count++] = automaton->targets[at->to + i];
    }
    return false;
}

static void loops_find(struct automaton *automaton)
{
    for (uint32_t i = 0; i < automaton->code_count; i++) {
        struct automaton_instruction *at = &automaton->code[i];
        uint32_t repeat = UINT32_MAX, nested = UINT32_MAX;

        if (at->op != OP_MATCH || at->slices == 0)
            continue;
        if (loop_reaches(automaton, at->next, i, &repeat))
            at->loop = LOOP_FREE;
        else if (repeat != UINT32_MAX &&
                 loop_reaches(automaton, automaton->repeats[repeat].body, i, &nested))
            at->loop = LOOP_COUNTED;
        if (at->loop == LOOP_COUNTED)
            at->count = repeat;
    }
}

/* ---- classes of bytes ---- */

static void bytes_classify(struct automaton *automaton)
{
    bool begins[257] = {true};

    for (uint32_t i = 0; i < automaton->edge_count; i++) {
        begins[automaton->edges[i].low] = true;
        begins[automaton->edges[i].high + 1] = true;
    }
    automaton->class_count = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (begins[byte])
            automaton->class_byte[automaton->class_count++] = (uint8_t)byte;
        automaton->byte_class[byte] = (uint8_t)(automaton->class_count - 1);
    }
}

int automaton_finish(struct automaton_build *build, struct fault *fault)
{
    tail_calls_find(build->automaton);
    loops_find(build->automaton);
    bytes_classify(build->automaton);
    return left_recursion_refuse(build, fault);
}
