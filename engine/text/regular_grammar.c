/* regular_grammar.c -- regular.h: an automaton from a grammar without recursion.
 *
 * The grammar's nodes become positions (K. Thompson, CACM 11, 1968): one that waits for a code
 * point of a class and then goes on, or one that goes on to two others at once. A state of the
 * result is the set of waiting positions that one text can lead to. */
#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"
#include "config/base/utf8.h"
#include "engine/text/grammar_internal.h"
#include "engine/text/regular.h"

enum {
    DEPTH_MAX = 512,
    POSITIONS_MAX = 1 << 16,
    NOWHERE = UINT32_MAX,
};

struct position {
    enum { POSITION_CLASS, POSITION_FORK, POSITION_ACCEPT } kind;
    const struct grammar_range *ranges; /* of a class */
    uint32_t range_count;
    uint32_t next;  /* NOWHERE: no way on */
    uint32_t other; /* a fork's second way */
};

struct builder {
    struct regular_space *space;
    const struct grammar *grammar;
    struct position *positions;
    uint32_t position_count;
    uint32_t position_room;
    int failed;
};

static uint32_t add(struct builder *builder, struct position position)
{
    if (builder->failed != 0)
        return NOWHERE;
    if (--builder->space->work_left < 0 || builder->position_count == POSITIONS_MAX) {
        builder->failed = E_TOO_LARGE;
        return NOWHERE;
    }
    if (builder->position_count == builder->position_room) {
        uint32_t room = builder->position_room == 0 ? 64 : 2 * builder->position_room;
        struct position *more = arena_take(builder->space->arena, room, sizeof *more);

        if (!more) {
            builder->failed = E_MEMORY;
            return NOWHERE;
        }
        if (builder->position_count > 0)
            memcpy(more, builder->positions, builder->position_count * sizeof *more);
        builder->positions = more;
        builder->position_room = room;
    }
    builder->positions[builder->position_count] = position;
    return builder->position_count++;
}

static uint32_t add_fork(struct builder *builder, uint32_t next, uint32_t other)
{
    return add(builder, (struct position){.kind = POSITION_FORK, .next = next, .other = other});
}

/* ---- positions of a node, made from the end: `next` is where they lead ---- */

static uint32_t build(struct builder *builder, int32_t index, uint32_t next, int depth);

static uint32_t build_literal(struct builder *builder, const struct grammar_node *node,
                              uint32_t next)
{
    const char *text = grammar_bytes(builder->grammar, node);
    struct grammar_range *points = arena_take(builder->space->arena, node->count, sizeof *points);
    size_t at = 0, count = 0, bytes;

    if (!points) {
        builder->failed = E_MEMORY;
        return NOWHERE;
    }
    for (; at < node->count; at += bytes) {
        if (!utf8_next(text + at, node->count - at, &bytes, NULL)) {
            builder->failed = E_INVALID;
            return NOWHERE;
        }
        points[count].first = regular_code_point(text + at, &bytes);
        points[count].last = points[count].first;
        count++;
    }
    while (count-- > 0)
        next = add(builder, (struct position){POSITION_CLASS, points + count, 1, next, NOWHERE});
    return next;
}

static uint32_t build_repeat(struct builder *builder, const struct grammar_node *node,
                             uint32_t next, int depth)
{
    int32_t child = grammar_children(builder->grammar, node)[0];

    if (node->high == GRAMMAR_UNBOUNDED) {
        uint32_t loop = add_fork(builder, NOWHERE, next);
        uint32_t body = build(builder, child, loop, depth);

        if (builder->failed != 0)
            return NOWHERE;
        builder->positions[loop].next = body;
        next = loop;
    } else {
        uint32_t end = next;

        for (int32_t i = node->low; i < node->high && builder->failed == 0; i++)
            next = add_fork(builder, build(builder, child, next, depth), end);
    }
    for (int32_t i = 0; i < node->low && builder->failed == 0; i++)
        next = build(builder, child, next, depth);
    return next;
}

static uint32_t build(struct builder *builder, int32_t index, uint32_t next, int depth)
{
    const struct grammar_node *node = grammar_node_get(builder->grammar, (uint32_t)index);
    const int32_t *children;
    uint32_t ways = NOWHERE;

    if (depth >= DEPTH_MAX || --builder->space->work_left < 0)
        builder->failed = builder->failed != 0 ? builder->failed : E_TOO_LARGE;
    if (builder->failed != 0)
        return NOWHERE;
    switch (node->kind) {
    case NODE_LITERAL:
        return build_literal(builder, node, next);
    case NODE_CLASS:
        return add(builder,
                   (struct position){POSITION_CLASS, grammar_ranges(builder->grammar, node),
                                     node->count, next, NOWHERE});
    case NODE_SEQUENCE:
        children = grammar_children(builder->grammar, node);
        for (uint32_t i = node->count; i-- > 0;)
            next = build(builder, children[i], next, depth + 1);
        return next;
    case NODE_CHOICE:
        children = grammar_children(builder->grammar, node);
        for (uint32_t i = node->count; i-- > 0;)
            ways = add_fork(builder, build(builder, children[i], next, depth + 1), ways);
        return ways;
    case NODE_REPEAT:
        return build_repeat(builder, node, next, depth + 1);
    case NODE_REFERENCE:
        return build(builder, grammar_rule_get(builder->grammar, node->first)->node, next,
                     depth + 1);
    }
    return NOWHERE;
}

/* ---- sets of positions ---- */

struct subset {
    struct builder *builder;
    uint32_t *members; /* the waiting positions, and the accepting one; sorted */
    uint32_t count;
    uint32_t *seen; /* by position: the round in which it was met */
    uint32_t round;
    uint32_t *stack;
};

static void subset_add(struct subset *subset, uint32_t from)
{
    const struct position *positions = subset->builder->positions;
    uint32_t depth = 0;

    if (from == NOWHERE || subset->seen[from] == subset->round)
        return;
    subset->seen[from] = subset->round;
    subset->stack[depth++] = from;
    while (depth > 0) {
        uint32_t at = subset->stack[--depth];
        uint32_t ways[2] = {positions[at].next, positions[at].other};

        subset->builder->space->work_left--;
        if (positions[at].kind != POSITION_FORK) {
            subset->members[subset->count++] = at;
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (ways[i] == NOWHERE || subset->seen[ways[i]] == subset->round)
                continue;
            subset->seen[ways[i]] = subset->round;
            subset->stack[depth++] = ways[i];
        }
    }
}

static int number_compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

static void subset_begin(struct subset *subset)
{
    subset->count = 0;
    subset->round++;
}

static uint32_t subset_state(struct subset *subset, struct regular_maker *maker)
{
    qsort(subset->members, subset->count, sizeof *subset->members, number_compare);
    return regular_maker_state(maker, subset->members, subset->count);
}

/* Where a class begins (or has just ended) to take code points. */
struct border {
    uint32_t point;
    uint32_t member; /* of the state's key */
    bool ends;
};

static int border_compare(const void *left, const void *right)
{
    const struct border *a = left, *b = right;

    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return (int)b->ends - (int)a->ends; /* a class may end and begin at one point */
}

/* The state's edges: between two borders the same members take every code point. */
static int subset_edges(struct subset *subset, struct regular_maker *maker, const uint32_t *key,
                        uint32_t words)
{
    struct builder *builder = subset->builder;
    uint32_t border_count = 0, i = 0, open = 0, first = 0;
    struct border *borders;
    bool *active = arena_take(builder->space->arena, words, sizeof *active);

    for (uint32_t m = 0; m < words; m++)
        border_count += 2 * builder->positions[key[m]].range_count;
    borders = arena_take(builder->space->arena, border_count, sizeof *borders);
    if (!active || !borders)
        return E_MEMORY;
    border_count = 0;
    for (uint32_t m = 0; m < words; m++) {
        const struct position *position = &builder->positions[key[m]];

        for (uint32_t n = 0; n < position->range_count; n++) {
            borders[border_count++] = (struct border){position->ranges[n].first, m, false};
            borders[border_count++] = (struct border){position->ranges[n].last + 1, m, true};
        }
    }
    qsort(borders, border_count, sizeof *borders, border_compare);
    while (i < border_count) {
        uint32_t point = borders[i].point;

        builder->space->work_left -= words;
        if (builder->space->work_left < 0)
            return E_TOO_LARGE;
        if (open > 0) {
            subset_begin(subset);
            for (uint32_t m = 0; m < words; m++)
                if (active[m])
                    subset_add(subset, builder->positions[key[m]].next);
            regular_maker_edge(maker, first, point - 1, subset_state(subset, maker));
        }
        for (; i < border_count && borders[i].point == point; i++) {
            active[borders[i].member] = !borders[i].ends;
            open += borders[i].ends ? (uint32_t)-1 : 1;
        }
        first = point;
    }
    return 0;
}

static int determinize(struct builder *builder, uint32_t start, const struct regular **ret_set)
{
    struct arena *arena = builder->space->arena;
    uint32_t n = builder->position_count, words;
    struct subset subset = {
        .builder = builder,
        .members = arena_take(arena, n, sizeof *subset.members),
        .seen = arena_take(arena, n, sizeof *subset.seen),
        .stack = arena_take(arena, n, sizeof *subset.stack),
    };
    struct regular_maker *maker;
    int r = regular_maker_open(builder->space, &maker);

    if (r < 0 || !subset.members || !subset.seen || !subset.stack)
        return E_MEMORY;
    subset_begin(&subset);
    subset_add(&subset, start);
    subset_state(&subset, maker);
    for (uint32_t s = 0; s < regular_maker_count(maker); s++) {
        const uint32_t *key = regular_maker_key(maker, s, &words);
        bool accepts = false;

        for (uint32_t m = 0; m < words; m++)
            accepts = accepts || builder->positions[key[m]].kind == POSITION_ACCEPT;
        regular_maker_begin(maker, accepts);
        r = subset_edges(&subset, maker, key, words);
        if (r < 0)
            return r;
    }
    return regular_maker_finish(maker, ret_set);
}

int regular_from_grammar(struct regular_space *space, const struct grammar *grammar, int32_t node,
                         const struct regular **ret_set)
{
    struct builder builder = {.space = space, .grammar = grammar};
    uint32_t start = add(&builder, (struct position){.kind = POSITION_ACCEPT, .next = NOWHERE});

    start = build(&builder, node, start, 0);
    if (builder.failed != 0)
        return builder.failed;
    return determinize(&builder, start, ret_set);
}
