/* schema_internal.h -- what the files of schema.c share.
 *
 * A *place* is where one JSON value stands: the root, a member's value, an item. Several schemas
 * may have to hold there at once (allOf, $ref beside other keywords, properties of two schemas), so
 * a place is named by a set of schemas and is one rule of the grammar. Its schemas' anyOf and oneOf
 * are multiplied out into *leaves*: sets of schemas of which only their own keywords count.
 *
 *     place {S}, S = {"$ref": "#/$defs/a", "anyOf": [B, C]}     ->  leaves {S, A, B}, {S, A, C}
 *
 * Places are compiled from a queue and leaves one after another, so the depth of a schema costs no
 * stack. All memory is the arena's; every loop over input spends from `regular.work_left`.
 *
 * Functions that make nodes return the node, or a negative code with the fault written; a code may
 * be handed to grammar.h's makers and comes out again. */
#ifndef WEFT_SCHEMA_INTERNAL_H
#define WEFT_SCHEMA_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "config/base/buf.h"
#include "config/base/json.h"
#include "engine/text/regular.h"
#include "engine/text/schema.h"

enum schema_type {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_INTEGER = 1 << 2,
    TYPE_FRACTION = 1 << 3, /* a number that is no integer; "number" is both */
    TYPE_STRING = 1 << 4,
    TYPE_ARRAY = 1 << 5,
    TYPE_OBJECT = 1 << 6,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ANY = (1 << 7) - 1,
};

enum {
    SCHEMA_LEAVES_MAX = 1024,    /* of one place */
    SCHEMA_PLACES_MAX = 50000,   /* of one schema */
    SCHEMA_COUNT_MAX = 1 << 20,  /* of "minItems", "maxLength", ... */
    SCHEMA_REFERENCES_MAX = 256, /* "$ref" or "allOf" that lead from one to the next */
    SCHEMA_PATTERN_BYTES_MAX = 8192,
};

/* Schemas that hold together, in the order met. Only objects: true adds nothing. */
struct schema_set {
    const json_t **schemas;
    uint32_t count;
    uint32_t room;
    bool never; /* a schema that is false is among them */
};

struct schema_place {
    struct schema_set set;   /* sorted by address */
    struct schema_set order; /* the same as they came, for the order of members */
    int32_t rule;
    struct schema_place *next_same_hash;
    struct schema_place *next; /* in the queue */
};

struct schema_leaf {
    struct schema_set set;
    unsigned types;
};

enum schema_spelling {
    SPELLING_TEXT,    /* as it stands */
    SPELLING_JSON,    /* within a JSON string, any escape but \u for what can be typed */
    SPELLING_LITERAL, /* within a JSON string, each code point in one way */
};

enum { SCHEMA_BUCKETS = 1024 };

struct schema_class; /* schema_text.c: a class of code points in some spelling */
struct schema_pattern;

struct schema_compiler {
    struct grammar *grammar;
    struct schema_options options;
    const json_t *root;
    struct fault *fault;
    struct regular_space regular; /* the arena, and the work that is left */
    struct schema_place *places[SCHEMA_BUCKETS];
    struct schema_place *queue_first;
    struct schema_place *queue_last;
    uint32_t place_count;
    int value_depth; /* of the constant that is being written */
    struct schema_class *classes[SCHEMA_BUCKETS];
    struct schema_pattern *patterns;
    /* shared nodes and rules, made when first asked for; -1: not yet */
    int32_t hex;
    int32_t any_char;
    int32_t escape_beyond;
    int32_t any_string;
    int32_t any_value;
    int32_t any_array;
    int32_t any_object;
    int32_t integer;
    int32_t number;
};

/* ---- schema.c ---- */

/* `root` is what references are resolved in, and may be NULL where there is no schema. Ended by
 * schema_end(), unless it failed. */
int schema_begin(struct schema_compiler *compiler, struct grammar *grammar, const json_t *root,
                 const struct schema_options *options, struct fault *fault);
/* Frees the memory. A negative code that came up through nodes has no sentence yet if it was the
 * grammar's: it gets one. Returns 0 or the code. */
int schema_end(struct schema_compiler *compiler, int code);

/* Writes the fault of a code from regular.h or the arena (E_MEMORY: perhaps its ceiling). */
int schema_exhausted(struct schema_compiler *compiler, int code, const char *what);
/* E_UNSUPPORTED or E_INVALID about a keyword of a schema, with its pointer. */
int schema_refuse(struct schema_compiler *compiler, int code, const json_t *schema,
                  const char *keyword, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* false, with the fault written: the schema asks for more work than is allowed. */
bool schema_spend(struct schema_compiler *compiler, int64_t work);
void *schema_take(struct schema_compiler *compiler, size_t count, size_t bytes);
/* A reference to the place where these schemas hold; the set is copied. */
int32_t schema_place(struct schema_compiler *compiler, const struct schema_set *set);
/* Small helpers over grammar.h. */
int32_t schema_literal(struct schema_compiler *compiler, const char *text);
int32_t schema_optional(struct schema_compiler *compiler, int32_t node);
int32_t schema_pair(struct schema_compiler *compiler, int32_t first, int32_t second);

/* Punctuation with the white space that the options allow. */
int32_t schema_open_bracket(struct schema_compiler *compiler, char bracket);
int32_t schema_close_bracket(struct schema_compiler *compiler, char bracket);
int32_t schema_comma(struct schema_compiler *compiler);
int32_t schema_colon(struct schema_compiler *compiler);

/* ---- schema_set.c: which schemas hold ---- */

int schema_set_add(struct schema_compiler *compiler, struct schema_set *set, const json_t *schema);
int schema_set_copy(struct schema_compiler *compiler, const struct schema_set *from,
                    struct schema_set *ret_set);
/* The leaves of a set, *ret_leaves an array of *ret_count: none if nothing can hold. */
int schema_leaves(struct schema_compiler *compiler, const struct schema_set *set,
                  struct schema_leaf **ret_leaves, uint32_t *ret_count);
/* Follows a reference; `schema` is the object that holds it. */
int schema_resolve(struct schema_compiler *compiler, const json_t *schema,
                   const json_t **ret_target);
/* ---- schema_keywords.c ---- */

/* Every keyword of the object is known and of the right kind. */
int schema_keywords_check(struct schema_compiler *compiler, const json_t *schema);
/* Refuses what a leaf asks of values of these types and no grammar can hold. */
int schema_keywords_refuse(struct schema_compiler *compiler, const struct schema_leaf *leaf);
/* Whether any of its keywords asks something of a value by itself. */
bool schema_keywords_ask(const json_t *schema);
/* Takes the types away that "not" forbids; strings it forbids are schema_string.c's affair. */
int schema_keywords_negate(struct schema_compiler *compiler, struct schema_leaf *leaf);
unsigned schema_types(const json_t *schema);
/* The keyword's count in *ret_count, the largest (or least) of all schemas: 1; 0: none has it. */
int schema_count_largest(struct schema_compiler *compiler, const struct schema_set *set,
                         const char *keyword, int32_t *ret_count);
int schema_count_least(struct schema_compiler *compiler, const struct schema_set *set,
                       const char *keyword, int32_t *ret_count);

/* ---- one file a type; each returns a node ---- */

int32_t schema_number(struct schema_compiler *compiler, const struct schema_leaf *leaf);
int32_t schema_string(struct schema_compiler *compiler, const struct schema_leaf *leaf);
int32_t schema_array(struct schema_compiler *compiler, const struct schema_leaf *leaf);
int32_t schema_object(struct schema_compiler *compiler, const struct schema_leaf *leaf);
/* enum and const; *ret_found tells whether the leaf has any. */
int32_t schema_enum(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                    bool *ret_found);

/* The strings that the leaf allows, its enum and const too; *ret_set NULL: all of them. */
int schema_enum_strings(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                        const struct regular **ret_set);
/* As the standard compares: 1 and 1.0 are one value. The nesting is bounded by json_parse(). */
bool schema_values_equal(const json_t *a, const json_t *b);
/* Whether the number fits the leaf's bounds: for enum. Negative with the fault written. */
int schema_number_fits(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                       const json_t *number);
/* The same without enum and const. */
int schema_string_set(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      const struct regular **ret_set);
/* The texts in which the expression matches: anywhere, or the whole text for the keyword "format".
 */
int schema_pattern_set(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                       const char *pattern, size_t bytes, const struct regular **ret_set);
/* The same as nodes within a JSON string, without its quotes: for one pattern alone whose set is
 * too large, for repetitions are counted there. */
int32_t schema_pattern_node(struct schema_compiler *compiler, const json_t *schema,
                            const char *text, size_t bytes);
/* The expression of a format, NULL: not one of ours. */
const char *schema_format_find(const char *name);

/* ---- schema_names.c: members that are not declared ---- */

struct schema_name_pattern; /* of patternProperties */

/* What an object says about names. The declared ones are the caller's to fill in. */
struct schema_names {
    const struct schema_leaf *leaf;
    const char **texts; /* declared: none of them is taken for another */
    size_t *bytes;
    uint32_t count;
    struct schema_name_pattern *patterns;
    uint32_t pattern_count;
    const struct regular *allowed; /* by propertyNames; NULL: any */
};
int schema_names_read(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      struct schema_names *names);
/* The schemas of a declared member's value; `never` where it may not be there. */
int schema_member_set(struct schema_compiler *compiler, const struct schema_names *names,
                      const char *name, struct schema_set *ret_set);
/* Any one member that is not declared, its name, colon and value; grammar_never() if there is
 * none. */
int32_t schema_other_member(struct schema_compiler *compiler, const struct schema_names *names);

/* ---- schema_text.c: texts and JSON strings ---- */

/* The set's texts as nodes; in a JSON string also the closing quote. */
int32_t schema_text_set(struct schema_compiler *compiler, const struct regular *set,
                        enum schema_spelling spelling);
/* A JSON string with its quotes. */
int32_t schema_text_literal(struct schema_compiler *compiler, const char *text, size_t bytes);
/* One code point of a JSON string, in any spelling; one of a class. */
int32_t schema_text_char(struct schema_compiler *compiler);
int32_t schema_text_class(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count);

/* ---- schema_any.c ---- */

int32_t schema_any(struct schema_compiler *compiler, unsigned types);
int32_t schema_json_value(struct schema_compiler *compiler, const json_t *value);

#endif
