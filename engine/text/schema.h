/* schema.h -- JSON schemas (draft 2020-12) as grammars: schema -> grammar.h -> constraint.h.
 *
 *     {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
 *      "additionalProperties": false}                  ->  '{' '"n":' ' '? integer '}'
 *
 * A text that the grammar matches is JSON and valid by the schema. The other way round holds but
 * for spelling: members stand in the order of "properties" and others after them, white space is
 * bounded (below), a literal is written in one way, an integer without point or exponent, a number
 * of more than 20 digits not at all. docs/structured.md lists the keywords.
 *
 * What the grammar cannot enforce is refused, with the keyword and where it stands, as a JSON
 * pointer: nothing is ignored but annotations (title, description, default, ...) and "x-...".
 * "oneOf" is taken as "anyOf".
 *
 * Codes: E_INVALID (no schema, or one that nothing fits), E_UNSUPPORTED, E_TOO_LARGE (time and
 * memory are bounded), E_MEMORY. Thread-safe. */
#ifndef WEFT_SCHEMA_H
#define WEFT_SCHEMA_H

#include "config/base/fault.h"
#include "config/base/json.h"
#include "engine/text/grammar.h"

enum schema_space {
    SCHEMA_SPACE_PYTHON, /* one blank may follow ',' and ':': compact, or as Python spaces it */
    SCHEMA_SPACE_NONE,   /* compact only */
    SCHEMA_SPACE_FREE,   /* also a line's end and up to 64 blanks after it, where JSON allows any */
};

struct schema_options {
    enum schema_space space;
    /* Steps that compiling may take, some 20 ns each: goes down as they are taken, so that several
     * schemas can share them. NULL: 20 million. */
    int64_t *work_left;
    bool python; /* for Python: True, False, None; no \/, which is two characters there */
};

/* `options` may be NULL: all zero. The caller owns the grammar; its root is set and checked. */
int schema_compile(const json_t *schema, const struct schema_options *options,
                   struct grammar **ret_grammar, struct fault *fault);
/* Any JSON object (json_object mode); any JSON value. */
int schema_any_object(const struct schema_options *options, struct grammar **ret_grammar,
                      struct fault *fault);
int schema_any_value(const struct schema_options *options, struct grammar **ret_grammar,
                     struct fault *fault);
/* One of these texts as it stands, no JSON: well-formed UTF-8, at least one text. */
int schema_choice(const char *const *texts, const size_t *bytes, size_t count,
                  struct grammar **ret_grammar, struct fault *fault);

/* The same as a part of a larger grammar: *ret_node matches what the schema allows. */
int schema_build(struct grammar *grammar, const json_t *schema,
                 const struct schema_options *options, int32_t *ret_node, struct fault *fault);
/* `schema` stands within `root`, where its references are resolved. */
int schema_build_at(struct grammar *grammar, const json_t *root, const json_t *schema,
                    const struct schema_options *options, int32_t *ret_node, struct fault *fault);
/* Any JSON value, or any object. */
int schema_build_any(struct grammar *grammar, bool object, const struct schema_options *options,
                     int32_t *ret_node, struct fault *fault);
int schema_build_choice(struct grammar *grammar, const char *const *texts, const size_t *bytes,
                        size_t count, int32_t *ret_node, struct fault *fault);

/* Texts that stand between markers, and so hold none of them: schema_plain.c. */
struct schema_markers {
    const char *const *texts; /* each of 1 to 64 characters */
    size_t count;
};
/* Any text without the markers. `head`: and without one of these bytes first behind white space;
 * "": whatever it begins with. */
int schema_build_plain(struct grammar *grammar, const struct schema_markers *markers,
                       const char *head, int32_t *ret_node, struct fault *fault);
/* The strings that a schema allows, as they stand: no quotes, no escapes, none of the markers. */
int schema_build_plain_string(struct grammar *grammar, const json_t *root, const json_t *schema,
                              const struct schema_markers *markers,
                              const struct schema_options *options, int32_t *ret_node,
                              struct fault *fault);

/* What a grammar for these functions should allow (grammar_open). */
enum { SCHEMA_NODE_MAX = 1 << 20 };

#endif
