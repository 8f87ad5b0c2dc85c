/* regular.h -- regular sets of texts, as deterministic automata over code points.
 *
 * What a schema asks of a string (a pattern, a format, a length) and of a member's name (none of
 * those declared, one that matches a pattern) is a regular set; asked together they are an
 * intersection, and so is a number's range, read as text. grammar.h has neither intersection nor
 * complement, so they are taken here, and the result is written as rules.
 *
 *     "a[0-9]*", at most three long     (0) --a--> (1) --0-9--> [2] --0-9--> [3]   all but 0 accept
 *
 * State 0 is the start. Every state is reached and reaches one that accepts, but for the start of
 * the empty set. A state's edges are sorted and do not overlap, so a text has one walk at most.
 *
 * All memory is the arena's. Codes: E_TOO_LARGE (more states, or more work, than the space allows),
 * E_MEMORY. One thread. */
#ifndef WEFT_REGULAR_H
#define WEFT_REGULAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "engine/text/grammar.h"

enum { REGULAR_UNBOUNDED = -1 };

struct regular_edge {
    uint32_t first; /* code points, both included */
    uint32_t last;
    uint32_t target;
};

struct regular_state {
    uint32_t edge_first;
    uint32_t edge_count;
    bool accepts;
};

struct regular {
    uint32_t state_count;
    uint32_t edge_count;
    struct regular_state *states;
    struct regular_edge *edges;
};

/* What making sets may cost. `work_left` goes down with every edge that is looked at. */
struct regular_space {
    struct arena *arena;
    uint32_t state_max;
    int64_t work_left;
};

/* Every text; every text of `low` to `high` code points (REGULAR_UNBOUNDED: no limit). */
int regular_lengths(struct regular_space *space, int64_t low, int64_t high,
                    const struct regular **ret_set);
/* Exactly these texts; E_INVALID where one is no well-formed UTF-8. */
int regular_words(struct regular_space *space, const char *const *texts, const size_t *bytes,
                  size_t count, const struct regular **ret_set);
/* In `left` and in `right`; in `left` and not in `right`. */
int regular_intersect(struct regular_space *space, const struct regular *left,
                      const struct regular *right, const struct regular **ret_set);
int regular_subtract(struct regular_space *space, const struct regular *left,
                     const struct regular *right, const struct regular **ret_set);

/* What a grammar without recursion matches, as regex_grammar.h makes one of a pattern. */
int regular_from_grammar(struct regular_space *space, const struct grammar *grammar, int32_t node,
                         const struct regular **ret_set);

bool regular_matches(const struct regular *set, const char *text, size_t bytes);
bool regular_is_empty(const struct regular *set);
/* The code point at the start of well-formed UTF-8, and its length in bytes. */
uint32_t regular_code_point(const char *text, size_t *ret_bytes);
/* Of the texts of a set that is not empty, in code points; *ret_longest may be REGULAR_UNBOUNDED.
 */
int regular_measure(struct regular_space *space, const struct regular *set, int64_t *ret_shortest,
                    int64_t *ret_longest);

/* ---- making a set state by state ----
 *
 * A state is named by a key of words of the caller's choice; the first one asked for is the start.
 * The caller goes through the states in order until there are no new ones, and gives each its edges
 * in ascending order:
 *
 *     for (i = 0; i < regular_maker_count(maker); i++) {
 *         key = regular_maker_key(maker, i);
 *         regular_maker_begin(maker, accepts(key));
 *         regular_maker_edge(maker, 'a', 'z', regular_maker_state(maker, next, words));
 *     }
 *
 * A failure is kept and told by regular_maker_finish(), after which the maker is gone. */
struct regular_maker;

int regular_maker_open(struct regular_space *space, struct regular_maker **ret_maker);
uint32_t regular_maker_state(struct regular_maker *maker, const uint32_t *key, uint32_t words);
/* 0 once something has failed, which ends the loop above. */
uint32_t regular_maker_count(const struct regular_maker *maker);
const uint32_t *regular_maker_key(const struct regular_maker *maker, uint32_t state,
                                  uint32_t *ret_words);
void regular_maker_begin(struct regular_maker *maker, bool accepts);
void regular_maker_edge(struct regular_maker *maker, uint32_t first, uint32_t last,
                        uint32_t target);
int regular_maker_finish(struct regular_maker *maker, const struct regular **ret_set);

#endif
