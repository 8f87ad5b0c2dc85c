/* grammar.c -- see grammar.h.
 *
 * A code instead of a node travels upward: every maker hands back the first bad child it was given.
 * The ceiling counts nodes, and each pool may hold a fixed multiple of it. */
#include "engine/text/grammar.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/grammar_internal.h"

enum {
    CODE_POINT_MAX = 0x10FFFF,
    SURROGATE_FIRST = 0xD800,
    SURROGATE_LAST = 0xDFFF,
    NODE_MAX_MAX = 1 << 24,
    LISTS_PER_NODE = 8,  /* children and ranges */
    BYTES_PER_NODE = 64, /* literals and names */
    NAME_SHOWN_MAX = 100,
};

/* Room for `more` items behind those there are. */
static int pool_reserve(struct grammar_pool *pool, size_t item_bytes, size_t more, uint64_t ceiling)
{
    uint64_t room = pool->room ? pool->room : 16;
    void *data;

    if (more > ceiling || pool->count > ceiling - more)
        return E_TOO_LARGE;
    if (pool->count + more <= pool->room)
        return 0;
    while (room < pool->count + more)
        room *= 2;
    room = room < ceiling ? room : ceiling;
    data = realloc(pool->data, room * item_bytes);
    if (!data)
        return E_MEMORY;
    pool->data = data;
    pool->room = (uint32_t)room;
    return 0;
}

static void pool_put(struct grammar_pool *pool, size_t item_bytes, const void *items, size_t count)
{
    if (count > 0)
        memcpy((char *)pool->data + pool->count * item_bytes, items, count * item_bytes);
    pool->count += (uint32_t)count;
}

/* ---- reading ---- */

const struct grammar_node *grammar_node_get(const struct grammar *grammar, uint32_t node)
{
    return (const struct grammar_node *)grammar->nodes.data + node;
}

/* An item that a node's list begins with. A pool of nothing has no memory, and only empty lists. */
static const void *pool_at(const struct grammar_pool *pool, size_t item_bytes, uint32_t index)
{
    static const uint32_t nothing;

    return pool->data ? (const char *)pool->data + index * item_bytes : (const char *)&nothing;
}

const int32_t *grammar_children(const struct grammar *grammar, const struct grammar_node *node)
{
    return pool_at(&grammar->lists, sizeof(int32_t), node->first);
}

const struct grammar_range *grammar_ranges(const struct grammar *grammar,
                                           const struct grammar_node *node)
{
    return pool_at(&grammar->ranges, sizeof(struct grammar_range), node->first);
}

const char *grammar_bytes(const struct grammar *grammar, const struct grammar_node *node)
{
    return pool_at(&grammar->bytes, 1, node->first);
}

const struct grammar_rule *grammar_rule_get(const struct grammar *grammar, uint32_t rule)
{
    return (const struct grammar_rule *)grammar->rules.data + rule;
}

const char *grammar_rule_name(const struct grammar *grammar, uint32_t rule)
{
    return (const char *)grammar->names.data + grammar_rule_get(grammar, rule)->name;
}

/* ---- making ---- */

static int32_t node_add(struct grammar *grammar, const struct grammar_node *node)
{
    int r = pool_reserve(&grammar->nodes, sizeof *node, 1, grammar->node_max);

    if (r < 0)
        return r;
    pool_put(&grammar->nodes, sizeof *node, node, 1);
    return (int32_t)grammar->nodes.count - 1;
}

/* Every pool has memory from the start, so that a span of nothing points somewhere. */
static int pools_start(struct grammar *grammar)
{
    if (pool_reserve(&grammar->lists, sizeof(int32_t), 1, UINT32_MAX) < 0 ||
        pool_reserve(&grammar->ranges, sizeof(struct grammar_range), 1, UINT32_MAX) < 0 ||
        pool_reserve(&grammar->bytes, 1, 1, UINT32_MAX) < 0)
        return E_MEMORY;
    return 0;
}

/* Nodes 0 and 1 are the empty text and the choice of none. */
int grammar_open(uint32_t node_max, struct grammar **ret_grammar, struct fault *fault)
{
    struct grammar *grammar = calloc(1, sizeof *grammar);
    struct grammar_node empty = {.kind = NODE_LITERAL}, never = {.kind = NODE_CHOICE};

    if (!grammar)
        return fault_set(fault, E_MEMORY, "There is no memory for a grammar");
    grammar->node_max = node_max < 2 ? 2 : node_max < NODE_MAX_MAX ? node_max : NODE_MAX_MAX;
    grammar->root = -1;
    if (pools_start(grammar) < 0 || node_add(grammar, &empty) < 0 ||
        node_add(grammar, &never) < 0) {
        grammar_close(grammar);
        return fault_set(fault, E_MEMORY, "There is no memory for a grammar");
    }
    *ret_grammar = grammar;
    return 0;
}

void grammar_close(struct grammar *grammar)
{
    if (!grammar)
        return;
    free(grammar->nodes.data);
    free(grammar->rules.data);
    free(grammar->lists.data);
    free(grammar->ranges.data);
    free(grammar->bytes.data);
    free(grammar->names.data);
    free(grammar);
}

int32_t grammar_empty(struct grammar *grammar)
{
    (void)grammar;
    return 0;
}

int32_t grammar_never(struct grammar *grammar)
{
    (void)grammar;
    return 1;
}

int32_t grammar_literal(struct grammar *grammar, const char *text, size_t bytes)
{
    struct grammar_node node = {.kind = NODE_LITERAL, .first = grammar->bytes.count};
    int r;

    if (bytes == 0)
        return grammar_empty(grammar);
    r = pool_reserve(&grammar->bytes, 1, bytes, (uint64_t)grammar->node_max * BYTES_PER_NODE);
    if (r < 0)
        return r;
    node.count = (uint32_t)bytes;
    r = node_add(grammar, &node);
    if (r >= 0)
        pool_put(&grammar->bytes, 1, text, bytes);
    return r;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct grammar_range *left = a, *right = b;

    return left->first < right->first ? -1 : left->first > right->first;
}

size_t grammar_ranges_join(struct grammar_range *ranges, size_t count)
{
    size_t kept = 0;

    if (count > 1)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last)
                ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

/* Appends first..last without the surrogates in it. */
static size_t ranges_put(struct grammar_range *to, size_t count, uint32_t first, uint32_t last)
{
    last = last < CODE_POINT_MAX ? last : CODE_POINT_MAX;
    if (first < SURROGATE_FIRST && last >= first)
        to[count++] = (struct grammar_range){
            first, last < SURROGATE_FIRST ? last : (uint32_t)SURROGATE_FIRST - 1};
    if (first <= SURROGATE_LAST)
        first = SURROGATE_LAST + 1;
    if (last >= first)
        to[count++] = (struct grammar_range){first, last};
    return count;
}

/* The gaps between `count` joined ranges, behind them in the same array. */
static size_t ranges_invert(const struct grammar_range *from, size_t count,
                            struct grammar_range *to)
{
    uint32_t next = 0;
    size_t made = 0;

    for (size_t i = 0; i < count; i++) {
        if (from[i].first > next)
            made = ranges_put(to, made, next, from[i].first - 1);
        next = from[i].last + 1;
    }
    return ranges_put(to, made, next, CODE_POINT_MAX);
}

int32_t grammar_class(struct grammar *grammar, const struct grammar_range *ranges, size_t count,
                      bool negated)
{
    struct grammar_node node = {.kind = NODE_CLASS, .first = grammar->ranges.count};
    uint64_t ceiling = (uint64_t)grammar->node_max * LISTS_PER_NODE;
    struct grammar_range *joined;
    size_t made = 0;
    int r;

    if (count > ceiling)
        return E_TOO_LARGE;
    joined = malloc((4 * count + 3) * sizeof *joined);
    if (!joined)
        return E_MEMORY;
    for (size_t i = 0; i < count; i++)
        made = ranges_put(joined, made, ranges[i].first, ranges[i].last);
    made = grammar_ranges_join(joined, made);
    node.count = (uint32_t)made;
    if (negated)
        node.count = (uint32_t)ranges_invert(joined, made, joined + made);
    if (node.count == 0) {
        r = grammar_never(grammar);
        goto out;
    }
    r = pool_reserve(&grammar->ranges, sizeof *joined, node.count, ceiling);
    if (r < 0)
        goto out;
    r = node_add(grammar, &node);
    if (r >= 0)
        pool_put(&grammar->ranges, sizeof *joined, negated ? joined + made : joined, node.count);
out:
    free(joined);
    return r;
}

static int32_t list_add(struct grammar *grammar, struct grammar_node node, const int32_t *children,
                        size_t count)
{
    int r;

    for (size_t i = 0; i < count; i++) {
        if (children[i] < 0)
            return children[i];
        must((uint32_t)children[i] < grammar->nodes.count);
    }
    node.first = grammar->lists.count;
    node.count = (uint32_t)count;
    r = pool_reserve(&grammar->lists, sizeof *children, count,
                     (uint64_t)grammar->node_max * LISTS_PER_NODE);
    if (r < 0)
        return r;
    r = node_add(grammar, &node);
    if (r >= 0)
        pool_put(&grammar->lists, sizeof *children, children, count);
    return r;
}

int32_t grammar_sequence(struct grammar *grammar, const int32_t *nodes, size_t count)
{
    if (count == 0)
        return grammar_empty(grammar);
    if (count == 1)
        return nodes[0];
    return list_add(grammar, (struct grammar_node){.kind = NODE_SEQUENCE}, nodes, count);
}

int32_t grammar_choice(struct grammar *grammar, const int32_t *nodes, size_t count)
{
    if (count == 0)
        return grammar_never(grammar);
    if (count == 1)
        return nodes[0];
    return list_add(grammar, (struct grammar_node){.kind = NODE_CHOICE}, nodes, count);
}

int32_t grammar_repeat(struct grammar *grammar, int32_t node, int32_t low, int32_t high)
{
    must(low >= 0 && (high == GRAMMAR_UNBOUNDED || high >= low));
    if (node < 0)
        return node;
    if (high == 0)
        return grammar_empty(grammar);
    if (low == 1 && high == 1)
        return node;
    return list_add(grammar, (struct grammar_node){.kind = NODE_REPEAT, .low = low, .high = high},
                    &node, 1);
}

int32_t grammar_rule(struct grammar *grammar, const char *name)
{
    struct grammar_rule rule = {.name = grammar->names.count, .node = -1};
    size_t bytes = strlen(name);
    int r;

    bytes = bytes < NAME_SHOWN_MAX ? bytes : NAME_SHOWN_MAX;
    r = pool_reserve(&grammar->names, 1, bytes + 1, (uint64_t)grammar->node_max * BYTES_PER_NODE);
    if (r == 0)
        r = pool_reserve(&grammar->rules, sizeof rule, 1, grammar->node_max);
    if (r < 0)
        return r;
    pool_put(&grammar->names, 1, name, bytes);
    pool_put(&grammar->names, 1, "", 1);
    pool_put(&grammar->rules, sizeof rule, &rule, 1);
    return (int32_t)grammar->rules.count - 1;
}

int32_t grammar_reference(struct grammar *grammar, int32_t rule)
{
    struct grammar_node node = {.kind = NODE_REFERENCE, .first = (uint32_t)rule};

    if (rule < 0)
        return rule;
    must((uint32_t)rule < grammar->rules.count);
    return node_add(grammar, &node);
}

int grammar_define(struct grammar *grammar, int32_t rule, int32_t node)
{
    struct grammar_rule *entry;

    if (rule < 0)
        return rule;
    if (node < 0)
        return node;
    must((uint32_t)rule < grammar->rules.count && (uint32_t)node < grammar->nodes.count);
    entry = (struct grammar_rule *)grammar->rules.data + rule;
    must(entry->node < 0);
    entry->node = node;
    return 0;
}

void grammar_set_root(struct grammar *grammar, int32_t rule)
{
    must(rule < (int32_t)grammar->rules.count);
    grammar->root = rule;
}
