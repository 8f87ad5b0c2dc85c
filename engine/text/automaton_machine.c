/* automaton_machine.c -- machines over bytes for literals and character classes; see
 * automaton_internal.h.
 *
 * A class becomes an automaton over UTF-8: the first byte gives the top bits of the code point, and
 * a continuation byte six more, so a state with n bytes to come speaks of 64^n code points:
 *
 *     U+0410..U+044F    D0 [90-BF]    one state behind D0, one behind D1
 *                       D1 [80-8F]
 *
 * Blocks of code points that are wholly inside lead to the shared states of any n bytes. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/automaton_internal.h"

enum { STATES_MAX = 1 << 21, EDGES_MAX = 1 << 21, CONTINUATION = 0x80 };

static int state_add(struct automaton_build *build, uint32_t *ret_state)
{
    struct automaton *automaton = build->automaton;
    int r = automaton_reserve(&automaton->states, &build->state_room, automaton->state_count,
                              sizeof *automaton->states, 1, STATES_MAX);

    if (r == 0) {
        automaton->states[automaton->state_count] = (struct machine_state){0};
        *ret_state = automaton->state_count++;
    }
    return r;
}

/* Appends an edge to the state that is being written, whose edges are the last ones. */
static int edge_add(struct automaton_build *build, uint32_t state, unsigned low, unsigned high,
                    uint32_t next)
{
    struct automaton *automaton = build->automaton;
    struct machine_state *from = &automaton->states[state];
    int r;

    if (from->count > 0) {
        struct machine_edge *last = &automaton->edges[automaton->edge_count - 1];

        if (last->next == next && last->high + 1u == low) {
            last->high = (uint8_t)high;
            return 0;
        }
    }
    r = automaton_reserve(&automaton->edges, &build->edge_room, automaton->edge_count,
                          sizeof *automaton->edges, 1, EDGES_MAX);
    if (r < 0)
        return r;
    if (from->count == 0)
        from->first = automaton->edge_count;
    automaton->edges[automaton->edge_count++] =
        (struct machine_edge){(uint8_t)low, (uint8_t)high, next};
    from->count++;
    return 0;
}

int machine_add_end(struct automaton_build *build)
{
    struct automaton *automaton = build->automaton;
    uint32_t end;
    int r = state_add(build, &end);

    /* Memory for edges from the start: a span of none points somewhere. */
    if (r == 0)
        r = automaton_reserve(&automaton->edges, &build->edge_room, 0, sizeof *automaton->edges, 1,
                              EDGES_MAX);
    if (r == 0) {
        must(end == MACHINE_END);
        automaton->states[end].accept = 1;
    }
    return r;
}

/* ---- literals ---- */

static int compare_texts(const void *a, const void *b)
{
    const struct machine_text *left = a, *right = b;
    uint32_t common = left->count < right->count ? left->count : right->count;
    int order = memcmp(left->bytes, right->bytes, common);

    if (order != 0)
        return order;
    return left->count < right->count ? -1 : left->count > right->count;
}

/* Texts first..last share their first `depth` bytes, and `state` stands behind those. */
struct text_task {
    uint32_t state;
    uint32_t first;
    uint32_t last;
    uint32_t depth;
};

/* One byte further: writes the state's edges and makes the states behind them. */
static int text_task_run(struct automaton_build *build, const struct machine_text *texts,
                         struct text_task task, struct text_task *tasks, size_t *task_count)
{
    uint32_t i = task.first;
    int r = 0;

    while (r == 0 && i < task.last && texts[i].count == task.depth)
        i++;
    if (i > task.first)
        build->automaton->states[task.state].accept = 1;
    while (r == 0 && i < task.last) {
        uint8_t byte = (uint8_t)texts[i].bytes[task.depth];
        uint32_t first = i, next = MACHINE_END;

        while (i < task.last && (uint8_t)texts[i].bytes[task.depth] == byte)
            i++;
        /* Sorted: if the last one ends here they all do. */
        if (texts[i - 1].count > task.depth + 1) {
            r = state_add(build, &next);
            if (r == 0)
                tasks[(*task_count)++] = (struct text_task){next, first, i, task.depth + 1};
        }
        if (r == 0)
            r = edge_add(build, task.state, byte, byte, next);
    }
    return r;
}

int machine_add_texts(struct automaton_build *build, struct machine_text *texts, size_t count,
                      uint32_t *ret_state)
{
    /* Waiting tasks have texts of their own, so there are never more of them than texts. */
    struct text_task *tasks = malloc((count + 1) * sizeof *tasks);
    size_t task_count = 0;
    uint32_t start;
    int r;

    if (!tasks)
        return E_MEMORY;
    qsort(texts, count, sizeof *texts, compare_texts);
    r = state_add(build, &start);
    if (r == 0)
        tasks[task_count++] = (struct text_task){start, 0, (uint32_t)count, 0};
    while (r == 0 && task_count > 0) {
        struct text_task task = tasks[--task_count];

        r = text_task_run(build, texts, task, tasks, &task_count);
    }
    free(tasks);
    if (r == 0)
        *ret_state = start;
    return r;
}

/* ---- character classes ---- */

/* The part of a class within one block of code points: from `base` on, ranges first..last. */
struct class_part {
    const struct grammar_range *ranges;
    size_t first;
    size_t last;
};

/* Narrows to the ranges that touch low..high. Returns whether they hold all of it. */
static bool part_cut(struct class_part *part, uint32_t low, uint32_t high)
{
    while (part->first < part->last && part->ranges[part->first].last < low)
        part->first++;
    while (part->last > part->first && part->ranges[part->last - 1].first > high)
        part->last--;
    return part->last == part->first + 1 && part->ranges[part->first].first <= low &&
           part->ranges[part->first].last >= high;
}

static int full_get(struct automaton_build *build, unsigned bytes, uint32_t *ret_state)
{
    uint32_t below = MACHINE_END, state = MACHINE_END;
    int r = 0;

    for (unsigned n = 1; r == 0 && n <= bytes; n++, below = state) {
        state = build->full[n];
        if (state != MACHINE_END)
            continue;
        r = state_add(build, &state);
        if (r == 0)
            r = edge_add(build, state, CONTINUATION, CONTINUATION + 63, below);
        if (r == 0)
            build->full[n] = state;
    }
    *ret_state = state;
    return r;
}

static int part_add(struct automaton_build *build, struct class_part part, uint32_t base,
                    unsigned bytes, uint32_t *ret_state);

/* Where each of the digits low..high of a block leads, without writing it yet: a state's edges must
 * lie together, and those behind are made first. Returns how many lead anywhere. */
static int digits_find(struct automaton_build *build, struct class_part part, uint32_t base,
                       unsigned bytes, uint32_t low, uint32_t high, uint32_t *nexts, uint64_t *some)
{
    int r = 0;

    *some = 0;
    for (uint32_t digit = low; r == 0 && digit <= high && part.first < part.last; digit++) {
        uint32_t first = base + (digit << (6 * bytes));
        uint32_t last = first + ((uint32_t)1 << (6 * bytes)) - 1;
        struct class_part inside = part;

        if (part_cut(&inside, first, last))
            r = full_get(build, bytes, &nexts[digit]);
        else if (inside.first == inside.last)
            continue;
        else
            r = part_add(build, inside, first, bytes, &nexts[digit]);
        *some |= (uint64_t)1 << digit;
        part.first = inside.first;
    }
    return r;
}

static int digits_write(struct automaton_build *build, uint32_t state, unsigned mark,
                        const uint32_t *nexts, uint64_t some)
{
    int r = 0;

    for (unsigned digit = 0; r == 0 && digit < 64; digit++) {
        if (some >> digit & 1)
            r = edge_add(build, state, mark + digit, mark + digit, nexts[digit]);
    }
    return r;
}

/* A state with `bytes` continuation bytes to come. Three levels deep at most. */
static int part_add(struct automaton_build *build, struct class_part part, uint32_t base,
                    unsigned bytes, uint32_t *ret_state)
{
    uint32_t nexts[64];
    uint64_t some;
    int r = digits_find(build, part, base, bytes - 1, 0, 63, nexts, &some);

    if (r == 0)
        r = state_add(build, ret_state);
    if (r == 0)
        r = digits_write(build, *ret_state, CONTINUATION, nexts, some);
    return r;
}

/* Copies what lies within low..high. */
static size_t ranges_clip(const struct grammar_range *from, size_t count, uint32_t low,
                          uint32_t high, struct grammar_range *to)
{
    size_t made = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t first = from[i].first > low ? from[i].first : low;
        uint32_t last = from[i].last < high ? from[i].last : high;

        if (first <= last)
            to[made++] = (struct grammar_range){first, last};
    }
    return made;
}

int machine_add_class(struct automaton_build *build, const struct grammar_range *ranges,
                      size_t count, uint32_t *ret_state)
{
    /* First bytes: what stands before the top bits, the code points of so many bytes. */
    static const struct {
        unsigned mark, bytes;
        uint32_t first, last;
    } lengths[] = {{0xC0, 1, 0x80, 0x7FF}, {0xE0, 2, 0x800, 0xFFFF}, {0xF0, 3, 0x10000, 0x10FFFF}};
    struct grammar_range *clipped = malloc((count + 1) * sizeof *clipped);
    uint32_t nexts[3][64], start;
    uint64_t some[3] = {0};
    int r = clipped ? 0 : E_MEMORY;

    for (int i = 0; r == 0 && i < 3; i++) {
        struct class_part part = {clipped, 0, 0};

        part.last = ranges_clip(ranges, count, lengths[i].first, lengths[i].last, clipped);
        r = digits_find(build, part, 0, lengths[i].bytes, lengths[i].first >> 6 * lengths[i].bytes,
                        lengths[i].last >> 6 * lengths[i].bytes, nexts[i], &some[i]);
    }
    if (r == 0)
        r = state_add(build, &start);
    for (size_t i = 0; r == 0 && i < count && ranges[i].first < 0x80; i++)
        r = edge_add(build, start, ranges[i].first, ranges[i].last < 0x7F ? ranges[i].last : 0x7F,
                     MACHINE_END);
    for (int i = 0; r == 0 && i < 3; i++)
        r = digits_write(build, start, lengths[i].mark, nexts[i], some[i]);
    if (r == 0)
        *ret_state = start;
    free(clipped);
    return r;
}

bool machine_step(const struct automaton *automaton, uint32_t state, uint8_t byte,
                  uint32_t *ret_state)
{
    const struct machine_edge *edges = automaton->edges + automaton->states[state].first;
    uint32_t low = 0, high = automaton->states[state].count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (byte > edges[middle].high)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == automaton->states[state].count || byte < edges[low].low)
        return false;
    *ret_state = edges[low].next;
    return true;
}
