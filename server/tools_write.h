/* tools_write.h -- the answers that a model may write, as a grammar in the model's own format: what
 * tools.h reads, the other way round.
 *
 *     [ reasoning ]  content                     free text, or of a given form
 *     [ reasoning ]  text without markers  calls    where a call may come
 *     [ reasoning ]  calls                          where it must
 *
 * Where one marker tells calls from text (tools_opening), the grammar may begin behind it, and the
 * text before is free.
 *
 * The arguments of a call fit the function's schema. Where the format writes them one by one (tags,
 * Python's literals), they stand in the order of the schema's properties. */
#ifndef WEFT_TOOLS_WRITE_H
#define WEFT_TOOLS_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/constraints.h"

struct tool_answer {
    const struct tool_format *format;
    const struct constraints *constraints;
    const json_t *tools; /* that may be called; NULL: none */
    const char *only;    /* the one that must be; NULL: any */
    bool forced;         /* there must be a call, and nothing else */
    bool parallel;       /* there may be several */
    bool starts_in_header;
    bool behind_reasoning; /* what the grammar matches begins behind it */
    bool may_reason;       /* first, by itself */
    bool behind_opening;   /* it begins behind the marker of the first call */
    int32_t content;       /* a node: the form of an answer that is no call; -1: any text */
    struct constraint_effort *effort;
};

/* Faults name the tool's field. A schema that cannot be held to is a fault where the function is
 * strict; otherwise its arguments are any object. */
int tools_write(const struct tool_answer *answer, struct grammar *grammar, int32_t *ret_node,
                struct fault *fault);

/* The one marker that begins the format's calls; NULL: there are several ways. */
const char *tools_opening(const struct tool_format *format);
/* What ends the format's reasoning when the prompt has begun it; NULL: it has none. */
const char *tools_reasoning_end(const struct tool_format *format);

#endif
