/* regular.c -- see regular.h. Every set is made through a maker: products by pairs of states. */
#include "engine/text/regular.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"
#include "config/base/utf8.h"

enum {
    OUTSIDE = UINT32_MAX, /* where `right` has no edge: nothing of it is left */
    SURROGATE_FIRST = 0xD800,
    SURROGATE_LAST = 0xDFFF,
    CODE_POINT_LAST = 0x10FFFF,
};

static void any_edge(struct regular_maker *maker, uint32_t target)
{
    regular_maker_edge(maker, 0, SURROGATE_FIRST - 1, target);
    regular_maker_edge(maker, SURROGATE_LAST + 1, CODE_POINT_LAST, target);
}

int regular_lengths(struct regular_space *space, int64_t low, int64_t high,
                    const struct regular **ret_set)
{
    int64_t last = high == REGULAR_UNBOUNDED ? low : high;
    struct regular_maker *maker;
    uint32_t key = 0, words;
    int r = regular_maker_open(space, &maker);

    if (r < 0)
        return r;
    if (last >= space->state_max)
        return E_TOO_LARGE;
    regular_maker_state(maker, &key, 1);
    for (uint32_t i = 0; i < regular_maker_count(maker); i++) {
        uint32_t length = *regular_maker_key(maker, i, &words);

        regular_maker_begin(maker, length >= low && length <= last);
        key = length + (length < last ? 1 : 0);
        if (length < last || high == REGULAR_UNBOUNDED)
            any_edge(maker, regular_maker_state(maker, &key, 1));
    }
    return regular_maker_finish(maker, ret_set);
}

uint32_t regular_code_point(const char *text, size_t *ret_bytes)
{
    const unsigned char *at = (const unsigned char *)text;

    if (at[0] < 0x80) {
        *ret_bytes = 1;
        return at[0];
    }
    if (at[0] < 0xE0) {
        *ret_bytes = 2;
        return (uint32_t)(at[0] & 0x1F) << 6 | (at[1] & 0x3F);
    }
    if (at[0] < 0xF0) {
        *ret_bytes = 3;
        return (uint32_t)(at[0] & 0x0F) << 12 | (uint32_t)(at[1] & 0x3F) << 6 | (at[2] & 0x3F);
    }
    *ret_bytes = 4;
    return (uint32_t)(at[0] & 0x07) << 18 | (uint32_t)(at[1] & 0x3F) << 12 |
           (uint32_t)(at[2] & 0x3F) << 6 | (at[3] & 0x3F);
}

struct word {
    const char *text;
    size_t bytes;
};

static int word_compare(const void *left, const void *right)
{
    const struct word *a = left, *b = right;
    size_t shared = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = shared > 0 ? memcmp(a->text, b->text, shared) : 0;

    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* One state of the trie: words[key[0]] up to words[key[1]] begin with the same key[2] bytes. */
static void trie_state(struct regular_maker *maker, const struct word *words, const uint32_t *key)
{
    uint32_t first = key[0], end = key[1], depth = key[2];
    bool accepts = first < end && words[first].bytes == depth;

    regular_maker_begin(maker, accepts);
    while (first < end && words[first].bytes == depth)
        first++;
    while (first < end) {
        size_t bytes;
        uint32_t point = regular_code_point(words[first].text + depth, &bytes), next[3],
                 i = first + 1;

        while (i < end && memcmp(words[i].text + depth, words[first].text + depth, bytes) == 0)
            i++;
        next[0] = first;
        next[1] = i;
        next[2] = depth + (uint32_t)bytes;
        regular_maker_edge(maker, point, point, regular_maker_state(maker, next, 3));
        first = i;
    }
}

static bool well_formed(const char *text, size_t bytes)
{
    size_t at = 0, one;

    while (at < bytes) {
        if (!utf8_next(text + at, bytes - at, &one, NULL))
            return false;
        at += one;
    }
    return true;
}

int regular_words(struct regular_space *space, const char *const *texts, const size_t *bytes,
                  size_t count, const struct regular **ret_set)
{
    struct word *words = arena_take(space->arena, count, sizeof *words);
    struct regular_maker *maker;
    uint32_t key[3] = {0, (uint32_t)count, 0}, width;
    int r;

    if (!words)
        return E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (!well_formed(texts[i], bytes[i]))
            return E_INVALID;
        words[i] = (struct word){texts[i], bytes[i]};
    }
    qsort(words, count, sizeof *words, word_compare);
    r = regular_maker_open(space, &maker);
    if (r < 0)
        return r;
    regular_maker_state(maker, key, 3);
    for (uint32_t i = 0; i < regular_maker_count(maker); i++)
        trie_state(maker, words, regular_maker_key(maker, i, &width));
    return regular_maker_finish(maker, ret_set);
}

/* ---- products ---- */

struct product {
    struct regular_maker *maker;
    const struct regular *left;
    const struct regular *right;
    bool subtract;
};

static void product_edge(const struct product *product, uint32_t first, uint32_t last,
                         uint32_t left, uint32_t right)
{
    uint32_t key[2] = {left, right};

    if (right == OUTSIDE && !product->subtract)
        return;
    regular_maker_edge(product->maker, first, last, regular_maker_state(product->maker, key, 2));
}

static void product_state(const struct product *product, uint32_t left, uint32_t right)
{
    const struct regular_state *a = &product->left->states[left];
    const struct regular_state *b = right == OUTSIDE ? NULL : &product->right->states[right];
    const struct regular_edge *edge = b ? product->right->edges + b->edge_first : NULL;
    const struct regular_edge *end = b ? edge + b->edge_count : NULL;
    bool right_accepts = b && b->accepts;

    regular_maker_begin(product->maker, a->accepts && right_accepts != product->subtract);
    for (uint32_t i = 0; i < a->edge_count; i++) {
        struct regular_edge part = product->left->edges[a->edge_first + i];

        while (edge < end && edge->last < part.first)
            edge++;
        for (const struct regular_edge *at = edge; at < end && at->first <= part.last; at++) {
            uint32_t last = at->last < part.last ? at->last : part.last;

            if (at->first > part.first) {
                product_edge(product, part.first, at->first - 1, part.target, OUTSIDE);
                part.first = at->first;
            }
            product_edge(product, part.first, last, part.target, at->target);
            part.first = last + 1;
        }
        if (part.first <= part.last)
            product_edge(product, part.first, part.last, part.target, OUTSIDE);
    }
}

static int combine(struct regular_space *space, const struct regular *left,
                   const struct regular *right, bool subtract, const struct regular **ret_set)
{
    struct product product = {NULL, left, right, subtract};
    uint32_t key[2] = {0, 0}, words;
    int r = regular_maker_open(space, &product.maker);

    if (r < 0)
        return r;
    regular_maker_state(product.maker, key, 2);
    for (uint32_t i = 0; i < regular_maker_count(product.maker); i++) {
        const uint32_t *pair = regular_maker_key(product.maker, i, &words);

        product_state(&product, pair[0], pair[1]);
    }
    return regular_maker_finish(product.maker, ret_set);
}

int regular_intersect(struct regular_space *space, const struct regular *left,
                      const struct regular *right, const struct regular **ret_set)
{
    return combine(space, left, right, false, ret_set);
}

int regular_subtract(struct regular_space *space, const struct regular *left,
                     const struct regular *right, const struct regular **ret_set)
{
    return combine(space, left, right, true, ret_set);
}

/* ---- questions ---- */

bool regular_matches(const struct regular *set, const char *text, size_t bytes)
{
    const struct regular_state *state = &set->states[0];
    size_t at = 0, one;

    while (at < bytes) {
        uint32_t point, i;

        if (!utf8_next(text + at, bytes - at, &one, NULL))
            return false;
        point = regular_code_point(text + at, &one);
        at += one;
        for (i = 0; i < state->edge_count; i++)
            if (set->edges[state->edge_first + i].last >= point)
                break;
        if (i == state->edge_count || set->edges[state->edge_first + i].first > point)
            return false;
        state = &set->states[set->edges[state->edge_first + i].target];
    }
    return state->accepts;
}

bool regular_is_empty(const struct regular *set)
{
    return set->edge_count == 0 && !set->states[0].accepts;
}

/* Takes states without unseen predecessors off one by one; what is left lies on or after a loop. */
static bool longest_walk(const struct regular *set, uint32_t *incoming, uint32_t *order,
                         int64_t *longest)
{
    uint32_t done = 0, found = 0;

    for (uint32_t e = 0; e < set->edge_count; e++)
        incoming[set->edges[e].target]++;
    if (incoming[0] == 0)
        order[found++] = 0;
    while (done < found) {
        uint32_t s = order[done++];

        for (uint32_t e = 0; e < set->states[s].edge_count; e++) {
            uint32_t target = set->edges[set->states[s].edge_first + e].target;

            if (longest[target] < longest[s] + 1)
                longest[target] = longest[s] + 1;
            if (--incoming[target] == 0)
                order[found++] = target;
        }
    }
    return done == set->state_count;
}

int regular_measure(struct regular_space *space, const struct regular *set, int64_t *ret_shortest,
                    int64_t *ret_longest)
{
    uint32_t n = set->state_count, done = 0, found = 1;
    uint32_t *incoming = arena_take(space->arena, n, sizeof *incoming);
    uint32_t *order = arena_take(space->arena, n, sizeof *order);
    int64_t *length = arena_take(space->arena, n, sizeof *length);
    int64_t shortest = -1, longest = 0;

    if (!incoming || !order || !length)
        return E_MEMORY;
    /* States are numbered as a walk meets them, but not by distance: breadth first. */
    for (uint32_t s = 1; s < n; s++)
        length[s] = -1;
    for (order[0] = 0; done < found && shortest < 0; done++) {
        const struct regular_state *state = &set->states[order[done]];

        if (state->accepts)
            shortest = length[order[done]];
        for (uint32_t e = 0; e < state->edge_count; e++) {
            uint32_t target = set->edges[state->edge_first + e].target;

            if (length[target] < 0) {
                length[target] = length[order[done]] + 1;
                order[found++] = target;
            }
        }
    }
    memset(length, 0, n * sizeof *length);
    if (longest_walk(set, incoming, order, length)) {
        for (uint32_t s = 0; s < n; s++)
            if (set->states[s].accepts && length[s] > longest)
                longest = length[s];
    } else {
        longest = REGULAR_UNBOUNDED;
    }
    *ret_shortest = shortest;
    *ret_longest = longest;
    return 0;
}
