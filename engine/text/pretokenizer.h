/* pretokenizer.h -- cuts a text into the pieces that a model then turns into tokens, one by one.
 *
 * The cut is part of the model: another one gives other ids. It is a list of stages; each works on
 * every piece of the one before it, alone.
 *
 *     smollm:   "in 2024"   --\p{N}-->             "in " | "2" | "0" | "2" | "4"
 *                           --GPT-2's pattern-->   "in" | " " | "2" | "0" | "2" | "4"
 *
 * A stage splits by a pattern, or puts something before a piece, or replaces a text in it. No
 * stages: the text is one piece. Immutable when all stages are there; any thread cuts, with a
 * workspace of its own. */
#ifndef WEFT_PRETOKENIZER_H
#define WEFT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/text/pattern.h"

struct pretokenizer;

/* What becomes of a pattern's matches; what lies between them is always a piece. */
enum split_behaviour {
    SPLIT_ISOLATED,    /* each is a piece */
    SPLIT_REMOVED,     /* dropped */
    SPLIT_TO_PREVIOUS, /* the end of the piece before it, if that is no match itself */
    SPLIT_TO_NEXT,     /* the start of the piece behind it, if that is no match itself */
    SPLIT_CONTIGUOUS,  /* neighbouring matches are one piece */
};

struct split_rule {
    const char *pattern;
    size_t bytes;
    bool literal; /* the pattern is the text that is looked for */
    bool invert;  /* what lies between the matches is taken for them, and the other way round */
    enum split_behaviour behaviour;
};

enum prepend_when {
    PREPEND_ALWAYS, /* to each piece that does not start with it */
    PREPEND_FIRST,  /* only to the one at the start of the text */
};

int pretokenizer_open(struct pretokenizer **ret_pretokenizer, struct fault *fault);
void pretokenizer_close(struct pretokenizer *pretokenizer); /* NULL is fine */
int pretokenizer_add_split(struct pretokenizer *pretokenizer, const struct split_rule *rule,
                           struct fault *fault);
int pretokenizer_add_prepend(struct pretokenizer *pretokenizer, const char *text,
                             enum prepend_when when, struct fault *fault);
/* Every `from`, which is one byte, becomes `to`. */
int pretokenizer_add_replace(struct pretokenizer *pretokenizer, char from, const char *to,
                             struct fault *fault);

/* One thread's. */
struct pretokenizer_work {
    struct pattern_work *pattern; /* NULL until the first text */
};
void pretokenizer_work_init(struct pretokenizer_work *work);
void pretokenizer_work_fini(struct pretokenizer_work *work);

typedef int pretokenizer_piece(void *data, const char *text, size_t bytes);

/* Gives every piece, in order, to `piece`, which may not keep it. The text is well-formed UTF-8;
 * `first`: it is the start of the whole text. Stops at the first that returns a negative code and
 * returns it. */
int pretokenizer_split(const struct pretokenizer *pretokenizer, struct pretokenizer_work *work,
                       const char *text, size_t bytes, bool first, pretokenizer_piece *piece,
                       void *data, struct fault *fault);

#endif
