/* random_grammar.h -- random grammars, and a slow recognizer that shares nothing with the
 * automaton: for every node and place of a text, the set of places where a match can end, made
 * larger until nothing changes. */
#ifndef WEFT_TEST_RANDOM_GRAMMAR_H
#define WEFT_TEST_RANDOM_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "engine/text/grammar_internal.h"

enum { RANDOM_NODES_MAX = 64, RANDOM_RULES = 4, RECOGNIZER_BYTES_MAX = 30 };

struct random_source {
    uint64_t state;
};

static inline uint32_t random_below(struct random_source *source, uint32_t bound)
{
    source->state = source->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(source->state >> 33) % bound;
}

/* ---- making ---- */

static inline int32_t random_leaf(struct grammar *grammar, struct random_source *source,
                                  const int32_t *rules)
{
    static const char *const literals[] = {"", "a", "b", "ab", "ba", "aab", "\"", "\xc3\xa9"};
    static const struct grammar_range classes[][2] = {
        {{'a', 'b'}, {'a', 'b'}},
        {{'"', '"'}, {'\\', '\\'}},
        {{'b', 'b'}, {0xE0, 0xEF}},
        {{0x20, 0x10FFFF}, {'a', 'a'}},
    };
    uint32_t pick = random_below(source, 10);

    if (pick < 3)
        return grammar_reference(grammar, rules[random_below(source, RANDOM_RULES)]);
    if (pick < 7) {
        const char *text = literals[random_below(source, 8)];

        return grammar_literal(grammar, text, strlen(text));
    }
    pick = random_below(source, 4);
    return grammar_class(grammar, classes[pick], 2, pick == 1 && random_below(source, 2));
}

static inline int32_t random_node(struct grammar *grammar, struct random_source *source,
                                  const int32_t *rules, uint32_t depth)
{
    int32_t children[3];
    uint32_t count = 1 + random_below(source, 3), kind = random_below(source, 10);

    if (depth == 0 || kind < 2)
        return random_leaf(grammar, source, rules);
    for (uint32_t i = 0; i < count; i++)
        children[i] = random_node(grammar, source, rules, depth - 1);
    if (kind < 5)
        return grammar_sequence(grammar, children, count);
    if (kind < 8)
        return grammar_choice(grammar, children, count);
    count = random_below(source, 3);
    return grammar_repeat(grammar, children[0], (int32_t)count,
                          random_below(source, 3) == 0
                              ? GRAMMAR_UNBOUNDED
                              : (int32_t)(count + random_below(source, 4)));
}

/* A grammar of RANDOM_RULES rules; it may be one that is refused. */
static inline struct grammar *random_grammar(struct random_source *source)
{
    struct grammar *grammar = NULL;
    int32_t rules[RANDOM_RULES];

    if (grammar_open(4096, &grammar, NULL) < 0)
        return NULL;
    for (int i = 0; i < RANDOM_RULES; i++)
        rules[i] = grammar_rule(grammar, "rule");
    for (int i = 0; i < RANDOM_RULES; i++)
        (void)grammar_define(grammar, rules[i], random_node(grammar, source, rules, 3));
    grammar_set_root(grammar, rules[0]);
    return grammar;
}

/* ---- recognizing ---- */

/* Bit j of ends[node][i]: the node matches bytes i..j of the text. */
struct recognizer {
    const struct grammar *grammar;
    const uint8_t *text;
    uint32_t bytes;
    uint32_t ends[4096][RECOGNIZER_BYTES_MAX + 1];
};

static inline uint32_t recognize_class(const struct recognizer *r, const struct grammar_node *node,
                                       uint32_t i)
{
    uint32_t left = r->bytes - i, c, taken = 1;
    const uint8_t *at = r->text + i;

    if (left == 0)
        return 0;
    c = at[0];
    if (c >= 0x80) {
        taken = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        if (c < 0xC2 || c > 0xF4 || taken > left)
            return 0;
        c &= 0x7Fu >> taken;
        for (uint32_t k = 1; k < taken; k++) {
            if ((at[k] & 0xC0) != 0x80)
                return 0;
            c = c << 6 | (at[k] & 0x3F);
        }
        if (c < (taken == 2 ? 0x80u : taken == 3 ? 0x800u : 0x10000u))
            return 0;
    }
    for (uint32_t k = 0; k < node->count; k++) {
        const struct grammar_range *range = &grammar_ranges(r->grammar, node)[k];

        if (c >= range->first && c <= range->last)
            return 1u << (i + taken);
    }
    return 0;
}

/* Where matches of `node` can end that begin at one of the places `from`. */
static inline uint32_t recognize_from(const struct recognizer *r, int32_t node, uint32_t from)
{
    uint32_t ends = 0;

    for (uint32_t i = 0; i <= r->bytes; i++)
        ends |= from >> i & 1 ? r->ends[node][i] : 0;
    return ends;
}

static inline uint32_t recognize_node(const struct recognizer *r, uint32_t n, uint32_t i)
{
    const struct grammar_node *node = grammar_node_get(r->grammar, n);
    const int32_t *children = grammar_children(r->grammar, node);
    uint32_t ends = 0, at = 1u << i;

    switch (node->kind) {
    case NODE_LITERAL:
        if (node->count == 0)
            return at;
        return i + node->count <= r->bytes &&
                       memcmp(r->text + i, grammar_bytes(r->grammar, node), node->count) == 0
                   ? 1u << (i + node->count)
                   : 0;
    case NODE_CLASS:
        return recognize_class(r, node, i);
    case NODE_SEQUENCE:
        for (uint32_t k = 0; k < node->count; k++)
            at = recognize_from(r, children[k], at);
        return at;
    case NODE_CHOICE:
        for (uint32_t k = 0; k < node->count; k++)
            ends |= r->ends[children[k]][i];
        return ends;
    case NODE_REPEAT:
        /* More rounds than bytes and low together add nothing new. */
        for (int32_t k = 0; k <= node->low + (int32_t)r->bytes + 1; k++) {
            if (node->high != GRAMMAR_UNBOUNDED && k > node->high)
                break;
            ends |= k >= node->low ? at : 0;
            at = recognize_from(r, children[0], at);
        }
        return ends;
    case NODE_REFERENCE:
        return r->ends[grammar_rule_get(r->grammar, node->first)->node][i];
    }
    return 0;
}

static inline bool recognize(struct recognizer *r, const struct grammar *grammar, const char *text,
                             uint32_t bytes)
{
    uint32_t root = (uint32_t)grammar_rule_get(grammar, (uint32_t)grammar->root)->node;
    bool changed = true;

    r->grammar = grammar;
    r->text = (const uint8_t *)text;
    r->bytes = bytes;
    memset(r->ends, 0, grammar->nodes.count * sizeof *r->ends);
    while (changed) {
        changed = false;
        for (uint32_t n = 0; n < grammar->nodes.count; n++) {
            for (uint32_t i = 0; i <= bytes; i++) {
                uint32_t ends = recognize_node(r, n, i);

                changed |= ends != r->ends[n][i];
                r->ends[n][i] |= ends;
            }
        }
    }
    return r->ends[root][0] >> bytes & 1;
}

#endif
