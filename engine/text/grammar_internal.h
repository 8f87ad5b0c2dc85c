/* grammar_internal.h -- how a grammar lies in memory: for grammar.c and for what compiles it.
 *
 * Nodes lie in the order of their making, so a child's number is below its parent's, and only a
 * reference can lead upward. Lists (children, ranges, a literal's bytes) are spans of pools. */
#ifndef WEFT_GRAMMAR_INTERNAL_H
#define WEFT_GRAMMAR_INTERNAL_H

#include "engine/text/grammar.h"

enum node_kind {
    NODE_LITERAL,   /* bytes[first .. first + count); "" is the empty text */
    NODE_CLASS,     /* ranges[first .. first + count): sorted, apart, without surrogates */
    NODE_SEQUENCE,  /* children[first .. first + count) */
    NODE_CHOICE,    /* the same; none: matches nothing */
    NODE_REPEAT,    /* children[first], low..high times */
    NODE_REFERENCE, /* rules[first] */
};

struct grammar_node {
    enum node_kind kind;
    uint32_t first;
    uint32_t count;
    int32_t low;
    int32_t high;
};

struct grammar_rule {
    uint32_t name; /* in names, with a NUL */
    int32_t node;  /* -1: not defined */
};

struct grammar_pool {
    void *data;
    uint32_t count;
    uint32_t room;
};

struct grammar {
    uint32_t node_max;
    int32_t root;               /* a rule; -1: none yet */
    struct grammar_pool nodes;  /* struct grammar_node */
    struct grammar_pool rules;  /* struct grammar_rule */
    struct grammar_pool lists;  /* int32_t: children */
    struct grammar_pool ranges; /* struct grammar_range */
    struct grammar_pool bytes;  /* char: literals */
    struct grammar_pool names;  /* char */
};

const struct grammar_node *grammar_node_get(const struct grammar *grammar, uint32_t node);
const int32_t *grammar_children(const struct grammar *grammar, const struct grammar_node *node);
const struct grammar_range *grammar_ranges(const struct grammar *grammar,
                                           const struct grammar_node *node);
const char *grammar_bytes(const struct grammar *grammar, const struct grammar_node *node);
const struct grammar_rule *grammar_rule_get(const struct grammar *grammar, uint32_t rule);
const char *grammar_rule_name(const struct grammar *grammar, uint32_t rule);

/* Sorts and joins in place what touches or overlaps; returns how many are left. */
size_t grammar_ranges_join(struct grammar_range *ranges, size_t count);

enum grammar_question {
    GRAMMAR_PRODUCTIVE, /* matches at least one text */
    GRAMMAR_NULLABLE,   /* matches the empty text */
};
/* Answers the question for every node, in time linear in the grammar: `answers` has room for a byte
 * a node. An undefined rule answers no. 0 or E_MEMORY. */
int grammar_solve(const struct grammar *grammar, enum grammar_question question, uint8_t *answers);

#endif
