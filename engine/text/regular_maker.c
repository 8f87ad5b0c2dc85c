/* regular_maker.c -- regular.h: automata made state by state, trimmed and made small.
 *
 * Keys are found by an open-addressed table of state numbers. What cannot reach an accepting state
 * is dropped; states that accept the same texts are made one by refining a partition (E. F. Moore,
 * 1956), for automata of a size where that is quick. */
#include "engine/text/regular.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"

enum {
    GONE = -1,              /* the number of a state that was dropped */
    MERGE_STATES_MAX = 512, /* refining takes as many rounds as there are states, at worst */
};

struct key {
    uint32_t *words;
    uint32_t count;
};

struct regular_maker {
    struct regular_space *space;
    int failed;
    struct key *keys;
    struct regular_state *states;
    uint32_t state_count;
    uint32_t state_room;
    uint32_t begun;
    struct regular_edge *edges;
    uint32_t edge_count;
    uint32_t edge_room;
    uint32_t *table; /* state + 1; 0: free */
    uint32_t table_room;
};

static bool spend(struct regular_maker *maker, int64_t work)
{
    maker->space->work_left -= work;
    if (maker->space->work_left < 0 && maker->failed == 0)
        maker->failed = E_TOO_LARGE;
    return maker->failed == 0;
}

/* A larger copy of an array: an arena takes nothing back, so rooms double. */
static void *grown(struct regular_maker *maker, const void *from, uint32_t count, uint32_t *room,
                   size_t bytes)
{
    uint32_t more = *room < 16 ? 32 : 2 * *room;
    void *to = arena_take(maker->space->arena, more, bytes);

    if (!to) {
        maker->failed = E_MEMORY;
        return NULL;
    }
    if (count > 0)
        memcpy(to, from, count * bytes);
    *room = more;
    return to;
}

int regular_maker_open(struct regular_space *space, struct regular_maker **ret_maker)
{
    struct regular_maker *maker = arena_take(space->arena, 1, sizeof *maker);

    if (!maker)
        return E_MEMORY;
    maker->edges = arena_take(space->arena, 0, sizeof *maker->edges); /* none is a list too */
    if (!maker->edges)
        return E_MEMORY;
    maker->space = space;
    *ret_maker = maker;
    return 0;
}

static uint32_t key_hash(const uint32_t *words, uint32_t count)
{
    uint64_t hash = count + UINT64_C(0x9E3779B97F4A7C15);

    for (uint32_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

static void table_insert(struct regular_maker *maker, uint32_t state)
{
    const struct key *key = &maker->keys[state];
    uint32_t at = key_hash(key->words, key->count) & (maker->table_room - 1);

    while (maker->table[at] != 0)
        at = (at + 1) & (maker->table_room - 1);
    maker->table[at] = state + 1;
}

static bool make_room(struct regular_maker *maker)
{
    if (maker->state_count == maker->state_room) {
        uint32_t room = maker->state_room;
        void *keys = grown(maker, maker->keys, maker->state_count, &room, sizeof *maker->keys);
        void *states = grown(maker, maker->states, maker->state_count, &maker->state_room,
                             sizeof *maker->states);

        if (!keys || !states)
            return false;
        maker->keys = keys;
        maker->states = states;
    }
    if (2 * (maker->state_count + 1) > maker->table_room) {
        uint32_t *table = grown(maker, NULL, 0, &maker->table_room, sizeof *table);

        if (!table)
            return false;
        maker->table = table;
        for (uint32_t i = 0; i < maker->state_count; i++)
            table_insert(maker, i);
    }
    return true;
}

uint32_t regular_maker_state(struct regular_maker *maker, const uint32_t *key, uint32_t words)
{
    uint32_t at, state;

    if (!spend(maker, 1 + words) || !make_room(maker))
        return 0;
    at = key_hash(key, words) & (maker->table_room - 1);
    for (; maker->table[at] != 0; at = (at + 1) & (maker->table_room - 1)) {
        const struct key *other = &maker->keys[maker->table[at] - 1];

        if (other->count == words && memcmp(other->words, key, words * sizeof *key) == 0)
            return maker->table[at] - 1;
    }
    if (maker->state_count == maker->space->state_max) {
        maker->failed = E_TOO_LARGE;
        return 0;
    }
    state = maker->state_count;
    maker->keys[state].words = arena_take(maker->space->arena, words, sizeof *key);
    if (!maker->keys[state].words) {
        maker->failed = E_MEMORY;
        return 0;
    }
    memcpy(maker->keys[state].words, key, words * sizeof *key);
    maker->keys[state].count = words;
    maker->table[at] = state + 1;
    maker->state_count++;
    return state;
}

uint32_t regular_maker_count(const struct regular_maker *maker)
{
    return maker->failed == 0 ? maker->state_count : 0;
}

const uint32_t *regular_maker_key(const struct regular_maker *maker, uint32_t state,
                                  uint32_t *ret_words)
{
    *ret_words = maker->keys[state].count;
    return maker->keys[state].words;
}

void regular_maker_begin(struct regular_maker *maker, bool accepts)
{
    if (maker->failed != 0)
        return;
    maker->states[maker->begun++] =
        (struct regular_state){.edge_first = maker->edge_count, .accepts = accepts};
}

void regular_maker_edge(struct regular_maker *maker, uint32_t first, uint32_t last, uint32_t target)
{
    struct regular_state *state;

    if (!spend(maker, 1))
        return;
    state = &maker->states[maker->begun - 1];
    if (state->edge_count > 0) {
        struct regular_edge *before = &maker->edges[maker->edge_count - 1];

        if (before->target == target && before->last + 1 == first) {
            before->last = last;
            return;
        }
    }
    if (maker->edge_count == maker->edge_room) {
        void *edges =
            grown(maker, maker->edges, maker->edge_count, &maker->edge_room, sizeof *maker->edges);

        if (!edges)
            return;
        maker->edges = edges;
    }
    maker->edges[maker->edge_count++] = (struct regular_edge){first, last, target};
    state->edge_count++;
}

/* ---- trimming and merging ---- */

/* number[state] becomes GONE where no accepting state can be reached, else 0. */
static int find_useful(struct regular_maker *maker, int32_t *number)
{
    struct arena *arena = maker->space->arena;
    uint32_t n = maker->state_count, waiting = 0;
    uint32_t *first = arena_take(arena, n + 2, sizeof *first);
    uint32_t *sources = arena_take(arena, maker->edge_count, sizeof *sources);
    uint32_t *queue = arena_take(arena, n, sizeof *queue);

    if (!first || !sources || !queue)
        return E_MEMORY;
    for (uint32_t e = 0; e < maker->edge_count; e++)
        first[maker->edges[e].target + 2]++;
    for (uint32_t s = 0; s < n; s++)
        first[s + 2] += first[s + 1];
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t e = 0; e < maker->states[s].edge_count; e++)
            sources[first[maker->edges[maker->states[s].edge_first + e].target + 1]++] = s;
    for (uint32_t s = 0; s < n; s++) {
        number[s] = maker->states[s].accepts ? 0 : GONE;
        if (maker->states[s].accepts)
            queue[waiting++] = s;
    }
    while (waiting > 0) {
        uint32_t s = queue[--waiting];

        for (uint32_t i = first[s]; i < first[s + 1]; i++) {
            if (number[sources[i]] == GONE) {
                number[sources[i]] = 0;
                queue[waiting++] = sources[i];
            }
        }
    }
    return 0;
}

struct view {
    const struct regular_maker *maker;
    const int32_t *number;
};

/* The state's edges with targets as classes, neighbours that lead to one class joined. */
static bool next_joined(const struct view *view, const struct regular_state *state, uint32_t *at,
                        struct regular_edge *ret_edge)
{
    const struct regular_edge *edges = view->maker->edges + state->edge_first;
    struct regular_edge joined;

    while (*at < state->edge_count && view->number[edges[*at].target] == GONE)
        ++*at;
    if (*at == state->edge_count)
        return false;
    joined = edges[*at];
    joined.target = (uint32_t)view->number[joined.target];
    for (++*at; *at < state->edge_count; ++*at) {
        if (edges[*at].first != joined.last + 1 ||
            view->number[edges[*at].target] != (int32_t)joined.target)
            break;
        joined.last = edges[*at].last;
    }
    *ret_edge = joined;
    return true;
}

static int state_compare(const void *left, const void *right, void *context)
{
    const struct view *view = context;
    uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right, i = 0, j = 0;
    const struct regular_state *a = &view->maker->states[l], *b = &view->maker->states[r];

    if (view->number[l] != view->number[r])
        return view->number[l] < view->number[r] ? -1 : 1;
    for (;;) {
        struct regular_edge x, y;
        bool more = next_joined(view, a, &i, &x);

        if (more != next_joined(view, b, &j, &y))
            return more ? 1 : -1;
        if (!more)
            return 0;
        if (x.first != y.first)
            return x.first < y.first ? -1 : 1;
        if (x.last != y.last)
            return x.last < y.last ? -1 : 1;
        if (x.target != y.target)
            return x.target < y.target ? -1 : 1;
    }
}

/* Numbers the useful states by the texts they accept; returns how many classes there are. */
static int64_t find_classes(struct regular_maker *maker, int32_t *number)
{
    struct arena *arena = maker->space->arena;
    uint32_t n = 0, classes = 1, before = 0;
    uint32_t *order = arena_take(arena, maker->state_count, sizeof *order);
    int32_t *next = arena_take(arena, maker->state_count, sizeof *next);
    struct view view = {maker, number};

    if (!order || !next)
        return E_MEMORY;
    for (uint32_t s = 0; s < maker->state_count; s++) {
        if (number[s] == GONE)
            continue;
        order[n++] = s;
        number[s] = n > 0 && maker->states[s].accepts ? 1 : 0;
    }
    while (classes != before && n > 0) {
        if (!spend(maker, (int64_t)n * 4))
            return maker->failed;
        qsort_r(order, n, sizeof *order, state_compare, &view);
        before = classes;
        classes = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (i > 0 && state_compare(&order[i - 1], &order[i], &view) != 0)
                classes++;
            next[order[i]] = (int32_t)classes;
        }
        classes++;
        for (uint32_t i = 0; i < n; i++)
            number[order[i]] = next[order[i]];
    }
    return classes;
}

/* Writes the classes as states, in the order in which a walk from the start meets them. */
static int write_set(struct regular_maker *maker, const int32_t *number, uint32_t classes,
                     struct regular *set)
{
    struct arena *arena = maker->space->arena;
    struct view view = {maker, number};
    int32_t *place = arena_take(arena, classes, sizeof *place);
    uint32_t *sample = arena_take(arena, classes, sizeof *sample);

    set->states = arena_take(arena, classes, sizeof *set->states);
    set->edges = arena_take(arena, maker->edge_count, sizeof *set->edges);
    if (!place || !sample || !set->states || !set->edges)
        return E_MEMORY;
    memset(place, 0xff, classes * sizeof *place);
    place[number[0]] = 0;
    set->state_count = 1;
    for (uint32_t s = 0; s < set->state_count; s++) {
        const struct regular_state *state = &maker->states[sample[s]];
        struct regular_edge edge;
        uint32_t at = 0;

        set->states[s] = (struct regular_state){set->edge_count, 0, state->accepts};
        while (next_joined(&view, state, &at, &edge)) {
            if (place[edge.target] < 0) {
                place[edge.target] = (int32_t)set->state_count;
                for (uint32_t t = 0; t < state->edge_count; t++) {
                    uint32_t target = maker->edges[state->edge_first + t].target;

                    if (number[target] == (int32_t)edge.target)
                        sample[set->state_count] = target;
                }
                set->state_count++;
            }
            edge.target = (uint32_t)place[edge.target];
            set->edges[set->edge_count++] = edge;
            set->states[s].edge_count++;
        }
    }
    return 0;
}

int regular_maker_finish(struct regular_maker *maker, const struct regular **ret_set)
{
    struct regular *set;
    int32_t *number;
    int64_t classes;
    int r;

    if (maker->failed != 0)
        return maker->failed;
    set = arena_take(maker->space->arena, 1, sizeof *set);
    number = arena_take(maker->space->arena, maker->state_count, sizeof *number);
    if (!set || !number)
        return E_MEMORY;
    r = find_useful(maker, number);
    if (r < 0)
        return r;
    if (number[0] == GONE) { /* the empty set: a start without edges */
        set->states = arena_take(maker->space->arena, 1, sizeof *set->states);
        set->edges = arena_take(maker->space->arena, 0, sizeof *set->edges);
        set->state_count = 1;
        *ret_set = set;
        return set->states && set->edges ? 0 : E_MEMORY;
    }
    classes = 0;
    if (maker->state_count <= MERGE_STATES_MAX) {
        classes = find_classes(maker, number);
    } else {
        for (uint32_t s = 0; s < maker->state_count; s++)
            if (number[s] != GONE)
                number[s] = (int32_t)classes++;
    }
    if (classes < 0)
        return (int)classes;
    r = write_set(maker, number, (uint32_t)classes, set);
    if (r == 0)
        *ret_set = set;
    return r;
}
