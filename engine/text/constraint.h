/* constraint.h -- output that is guaranteed to fit a grammar: which tokens may come next.
 *
 *     grammar -> constraint_open -> constraint       one for all requests with this grammar
 *                                       |
 *     a sequence:                constraint_state -> mask -> sampler -> token -> advance ...
 *
 * A constraint is an automaton (automaton.h) that never changes, and a cache of where it can stand
 * and which tokens may follow there (constraint_memo.h), which grows as it is used, up to a bound.
 * Owners count themselves: constraint_share() and constraint_close(); every state is an owner too.
 *
 * Threads: any number may use states of one constraint at once; a lock is held for each call, and
 * while a mask is made. One state belongs to one thread at a time.
 *
 * What is alive can end: whatever has been taken, some text completes it (if the vocabulary can
 * write it). Bounded: more work than `work_max` in one call is E_TOO_LARGE and the state stays what
 * it was (a grammar that is ambiguous beyond reason); so is E_MEMORY. */
#ifndef WEFT_CONSTRAINT_H
#define WEFT_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/grammar.h"
#include "engine/text/vocabulary_trie.h"

struct constraint;
struct constraint_state;

enum { CONSTRAINT_ROLLBACK_MAX = 64 };

struct constraint_limits {
    size_t cache_bytes; /* of places and masks; more is forgotten and made again. 0: 16 MiB */
    uint64_t work_max;  /* places looked at in one call, some 50 ns each. 0: 2 million */
};

/* `vocabulary` is lent until the constraint is closed; NULL: bytes only, no tokens. `limits` may be
 * NULL. The grammar may go afterwards. Faults: what automaton_open() refuses. */
int constraint_open(const struct grammar *grammar, const struct vocabulary_trie *vocabulary,
                    const struct constraint_limits *limits, struct constraint **ret_constraint,
                    struct fault *fault);
struct constraint *constraint_share(struct constraint *constraint); /* one owner more */
void constraint_close(struct constraint *constraint); /* one owner less; NULL is fine */
/* Bytes that the cache holds now: for metrics and tests. */
size_t constraint_cache_bytes(struct constraint *constraint);
/* All its memory, the states' not counted. Never waits: while another thread works with it, the
 * cache counts as full. */
size_t constraint_bytes(struct constraint *constraint);
uint32_t constraint_owners(struct constraint *constraint);

/* At the beginning of the text. */
int constraint_state_open(struct constraint *constraint, struct constraint_state **ret_state,
                          struct fault *fault);
/* `to` becomes what `from` is, its past too; both of one constraint. Cheap. */
void constraint_state_copy(struct constraint_state *to, const struct constraint_state *from);
void constraint_state_close(struct constraint_state *state); /* NULL is fine */

/* One step, which constraint_state_rollback() can take back. Returns 1 when the state is alive
 * afterwards, 0 when it is dead, or a fault. */
int constraint_state_token(struct constraint_state *state, int32_t id, struct fault *fault);
/* The same with bytes; *ret_taken of them could follow (all, when alive). */
int constraint_state_bytes(struct constraint_state *state, const char *bytes, size_t count,
                           size_t *ret_taken, struct fault *fault);
/* Takes back the last `steps` steps, at most CONSTRAINT_ROLLBACK_MAX of them; E_INVALID: there are
 * not so many. */
int constraint_state_rollback(struct constraint_state *state, uint32_t steps);

bool constraint_state_is_complete(const struct constraint_state *state); /* the text may end here */
bool constraint_state_is_dead(const struct constraint_state *state);
bool constraint_state_is_ended(const struct constraint_state *state); /* an end token was taken */

/* Writes a bit for each token id (id % 32 of word id / 32), zeros past the vocabulary: text tokens
 * that can follow, and the end tokens when the text is complete. Returns 1, 0 when no token is
 * allowed, or a fault (the words are then undefined). */
int constraint_state_mask(struct constraint_state *state, uint32_t *words, size_t word_count,
                          struct fault *fault);

/* The longest text that must follow: wherever the text may end, or go on in two ways, it stops.
 * At most `room` bytes. Returns their count, or a fault. Does not move the state. */
int constraint_state_forced(struct constraint_state *state, char *bytes, size_t room,
                            struct fault *fault);

/* Takes text that must follow, as tokens: the longest first, at most `room`, and leaves the last of
 * them to be drawn. One step, as constraint_state_bytes(). Fewer than `least` are not taken.
 * Returns their count, 0, or a fault. */
int constraint_state_jump(struct constraint_state *state, uint32_t least, int32_t *tokens,
                          uint32_t room, struct fault *fault);
/* The bytes of a text token, the vocabulary's; 0 bytes for every other. No lock is taken. */
const char *constraint_token_text(const struct constraint *constraint, int32_t id,
                                  size_t *ret_bytes);

/* ---- coming to an end in time: constraint_finish.c, constraint_within.c ---- */

enum {
    CONSTRAINT_FINISH_MARGIN = 64, /* tokens kept back for what one token may open */
};

/* Bytes of the shortest text that completes the state's: 0 where it may end, 1 << 30 where it is
 * dead; or a fault. */
int64_t constraint_state_distance(struct constraint_state *state, struct fault *fault);
/* That text, at most `room` bytes of it. Returns their count, or a fault. Does not move the state.
 */
int constraint_state_finish(struct constraint_state *state, char *bytes, size_t room,
                            struct fault *fault);
/* As constraint_state_mask(), for a text that may take `tokens_left` tokens more, its end among
 * them: without the tokens behind which the shortest way to the end, taken a byte a token, would
 * not fit. Where all tokens are such, that way is cut into the longest tokens, and only its first
 * is left when no others fit; where these are too many as well, or it is longer than 1,024 bytes,
 * all are left. So a text comes to its end in time, unless one token opens more than the margin or
 * there never was room. */
int constraint_state_mask_within(struct constraint_state *state, uint32_t tokens_left,
                                 uint32_t *words, size_t word_count, struct fault *fault);

#endif
