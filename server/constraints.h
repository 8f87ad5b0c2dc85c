/* constraints.h -- compiled constraints, made once and shared by the requests that ask for the
 * same.
 *
 *     key (the constraint's full text)  ->  struct constraint     the least recently used goes
 *
 * Compiling is bounded twice. A prepare thread makes what is quick to make, some milliseconds at
 * most; what is not is put off (CONSTRAINTS_LATER) to the one thread that may take longer
 * (prepare.h), so a hostile schema delays nobody but other large ones. Two that ask at once for the
 * same new one both make it: that is quick, or one after the other.
 *
 * Memory is bounded by `bytes_max`, and one compilation beside it: a constraint that somebody still
 * uses is kept and counted, and when those leave no room a new one is refused.
 *
 * Where a model's format marks its parts with control tokens, which are no text, a grammar has two
 * bytes for such a token that no text has (0xFF and a number), so a string can never hold one.
 *
 * Any thread. */
#ifndef WEFT_CONSTRAINTS_H
#define WEFT_CONSTRAINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/constraint.h"
#include "engine/text/schema.h"
#include "server/tools.h"

struct constraints;

struct constraints_options {
    const struct tokenizer *tokenizer;
    const struct tool_format *format; /* whose markers grammars may have; NULL: none */
    size_t bytes_max;
};

/* Makes the vocabulary's tree. Everything in the options is lent until the end. */
int constraints_open(const struct constraints_options *options,
                     struct constraints **ret_constraints, struct fault *fault);
/* Requests must be gone: their constraints use the tree. NULL is fine. */
void constraints_close(struct constraints *constraints);

/* What making one constraint may take, all its schemas together. */
struct constraint_effort {
    int64_t work_left; /* as in schema_options */
    bool patient;      /* there is no more to be had */
};
/* Makes the node that the answer must match. */
typedef int constraints_build(void *data, struct grammar *grammar, struct constraint_effort *effort,
                              int32_t *ret_node, struct fault *fault);

/* An owner of the constraint for this key, made by `build` where it is new. CONSTRAINTS_LATER,
 * unless `patient`: not quick to make. Faults: those of `build` and constraint_open(), with
 * the code E_TOO_LARGE only when patient; E_FULL: too many are in use. */
enum { CONSTRAINTS_LATER = 1 };
int constraints_get(struct constraints *constraints, const void *key, size_t bytes, bool patient,
                    constraints_build *build, void *data, struct constraint **ret_constraint,
                    struct fault *fault);

/* A text of the model's format, its markers as the tokens that they are, as a node. */
int32_t constraints_spell(const struct constraints *constraints, struct grammar *grammar,
                          const char *text);
/* The control token of this text; -1: it is none, but text. */
int32_t constraints_marker(const struct constraints *constraints, const char *text);

struct constraints_stats {
    uint32_t count;    /* that are kept */
    size_t bytes;      /* of these, when the last one was made */
    uint64_t hits;     /* asked for and kept already */
    uint64_t misses;   /* made */
    uint64_t build_ns; /* took all makings, of what was refused too */
};
/* Never waits. NULL: all zero. */
void constraints_stats_get(struct constraints *constraints, struct constraints_stats *ret_stats);

#endif
