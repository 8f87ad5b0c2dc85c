/* jinja.h -- the part of Jinja2 that chat templates use: a parser to a tree, and an evaluator.
 *
 *     source --lexer--> tokens --parser--> tree --evaluator, variables--> text
 *
 * What it means to be right is what Jinja2 3.1 prints in the environment of Hugging Face's
 * Transformers: an immutable sandbox with trim_blocks, lstrip_blocks, loopcontrols, the tag
 * `generation`, a plain `tojson`, raise_exception and strftime_now. Values print as Python prints
 * them. Left out, with a fault that names it: import, include, extends, autoescape, and the filters
 * random, urlize and pprint; coroutines and translations do not exist here at all.
 *
 * A template is a stranger's program. It can compute for JINJA_STEPS_MAX steps, nest
 * JINJA_DEPTH_MAX calls and take JINJA_MEMORY_BYTES_MAX bytes, and then it is refused; it reaches
 * nothing but its variables. A parsed template is immutable: any number of threads render it at
 * once. */
#ifndef WEFT_JINJA_H
#define WEFT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "config/base/json.h"

enum {
    JINJA_SOURCE_BYTES_MAX = 1 << 20,
    JINJA_NESTING_MAX = 100,    /* tags or brackets inside one another, in the source */
    JINJA_DEPTH_MAX = 1000,     /* tags, expressions, calls and data inside one another, at work */
    JINJA_STEPS_MAX = 10 << 20, /* parts evaluated, and bytes of text handled by 64 */
    JINJA_MEMORY_BYTES_MAX = 128 << 20, /* and JINJA_MEMORY_PER_BYTE more for each byte of input */
    JINJA_MEMORY_PER_BYTE = 16,
    JINJA_JSON_DEPTH_MAX = 64,
};

struct jinja;

/* Copies the source. Faults: E_INVALID with line and column, E_TOO_LARGE, E_MEMORY. */
int jinja_open(const char *source, size_t bytes, struct jinja **ret_jinja, struct fault *fault);
void jinja_close(struct jinja *jinja); /* NULL is fine */

/* Where a template's variables come from: `count` objects, of which a later one's members go before
 * an earlier one's. Each is a tree, or (tree NULL) JSON text, whose integers may have any size.
 * What they hold is lent until the rendering ends. */
struct jinja_variables {
    const json_t *tree;
    const char *text;
    size_t bytes;
};

/* `spread` names a member whose own members are variables too ("" for none), unless the object
 * itself has one of that name. Members that end in
 * `skip_null` ("" for none) are as if absent when they are null. */
struct jinja_input {
    const struct jinja_variables *sources;
    size_t count;
    const char *spread;
    const char *skip_null;
    const struct tm *now; /* what strftime_now tells; NULL: it faults */
    uint64_t steps_max;   /* 0: JINJA_STEPS_MAX */
};

/* Appends to `ret_text`, or leaves it as it was.
 * Faults: E_INVALID with the template's own words when it called raise_exception; else
 * E_UNSUPPORTED, E_TOO_LARGE or E_MEMORY, with line and column. */
int jinja_render(const struct jinja *jinja, const struct jinja_input *input, struct buf *ret_text,
                 struct fault *fault);

/* What a server must know of a template before it makes up its variables. */
struct jinja_traits {
    bool iterates_content;  /* has a loop over something's `content` */
    bool asks_content_type; /* tells a content that is a string from others */
    bool knows_developer;   /* has the word 'developer' */
};
/* The source, every newline as '\n'. Lent. */
const char *jinja_source(const struct jinja *jinja, size_t *ret_bytes);
void jinja_traits_get(const struct jinja *jinja, struct jinja_traits *ret_traits);

#endif
