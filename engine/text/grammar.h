/* grammar.h -- a context-free grammar over bytes: what JSON schemas, regular expressions and GBNF
 * texts compile to, and what constraint.h turns into an automaton.
 *
 * A grammar is a set of rules over a shared tree of nodes:
 *
 *     rule "list" ::= '[' ( value ( ',' value )* )? ']'
 *                      |    \__ reference   |
 *                   literal           repeat (sequence, 0, GRAMMAR_UNBOUNDED)
 *
 * Nodes are numbers; a node may be used in several places. Every maker returns the node (>= 0), or
 * E_MEMORY, or E_TOO_LARGE when the grammar outgrew its ceiling: such a code may be handed on as a
 * child and comes out again, so a builder needs to look only at the end. One thread builds; a
 * grammar that is no longer changed may be read by any. */
#ifndef WEFT_GRAMMAR_H
#define WEFT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

struct grammar;

enum { GRAMMAR_UNBOUNDED = -1 };

/* Code points first..last, both included, 0..0x10FFFF without surrogates. */
struct grammar_range {
    uint32_t first;
    uint32_t last;
};

/* `node_max` bounds the nodes, and so the memory (hostile input): children and ranges to 8 for each
 * node of it, bytes of literals and names to 64. */
int grammar_open(uint32_t node_max, struct grammar **ret_grammar, struct fault *fault);
void grammar_close(struct grammar *grammar); /* NULL is fine */

int32_t grammar_empty(struct grammar *grammar); /* matches "" */
int32_t grammar_never(struct grammar *grammar); /* matches nothing: a choice of none */
int32_t grammar_literal(struct grammar *grammar, const char *text, size_t bytes);
/* One code point, as UTF-8; `negated`: any valid one outside the ranges. */
int32_t grammar_class(struct grammar *grammar, const struct grammar_range *ranges, size_t count,
                      bool negated);
int32_t grammar_sequence(struct grammar *grammar, const int32_t *nodes, size_t count);
int32_t grammar_choice(struct grammar *grammar, const int32_t *nodes, size_t count);
/* 0 <= low <= high, or high == GRAMMAR_UNBOUNDED. Counted, not copied `high` times. */
int32_t grammar_repeat(struct grammar *grammar, int32_t node, int32_t low, int32_t high);

/* Rules may be referred to before they are defined, and recursively. Every call makes a new rule
 * and returns its number; the name is for messages only. A rule is defined once. */
int32_t grammar_rule(struct grammar *grammar, const char *name);
int32_t grammar_reference(struct grammar *grammar, int32_t rule); /* a node */
int grammar_define(struct grammar *grammar, int32_t rule, int32_t node);
void grammar_set_root(struct grammar *grammar, int32_t rule);

/* Every rule that is reachable is defined; the root can match at least one text. */
int grammar_check(const struct grammar *grammar, struct fault *fault);

#endif
