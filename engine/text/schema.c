/* schema.c -- see schema.h, and schema_internal.h for the idea. Here: places and their queue. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/schema_internal.h"

enum {
    ARENA_FIRST = 64 << 10,
    ARENA_BYTES_MAX = 128 << 20,
    WORK_MAX = 20 << 20,
    STATES_MAX = 1 << 14, /* of one automaton */
    PATH_DEPTH_MAX = 128,
    PATH_BYTES_MAX = 200,
};

/* ---- faults ---- */

int schema_exhausted(struct schema_compiler *compiler, int code, const char *what)
{
    if (code == E_MEMORY && arena_bytes(compiler->regular.arena) >= ARENA_BYTES_MAX / 2)
        code = E_TOO_LARGE;
    if (code == E_MEMORY)
        return fault_set(compiler->fault, code, "not enough memory for the schema");
    return fault_set(compiler->fault, code, "the schema is too large or too intricate: %s", what);
}

bool schema_spend(struct schema_compiler *compiler, int64_t work)
{
    compiler->regular.work_left -= work;
    if (compiler->regular.work_left >= 0)
        return true;
    schema_exhausted(compiler, E_TOO_LARGE, "it takes too many steps to compile");
    return false;
}

void *schema_take(struct schema_compiler *compiler, size_t count, size_t bytes)
{
    void *memory = arena_take(compiler->regular.arena, count, bytes);

    if (!memory)
        schema_exhausted(compiler, E_MEMORY, "it takes too much memory to compile");
    return memory;
}

/* Puts "/key" before what the path holds, as a JSON pointer escapes it. */
static void put_key(struct buf *path, const char *key, size_t bytes)
{
    buf_byte(path, '/');
    for (size_t i = 0; i < bytes; i++) {
        if (key[i] == '~')
            buf_text(path, "~0");
        else if (key[i] == '/')
            buf_text(path, "~1");
        else
            buf_byte(path, key[i]);
    }
}

/* Where `wanted` stands below `at`: by a walk, for a fault is the end of the work. */
static bool find_path(const json_t *at, const json_t *wanted, struct buf *path, int depth)
{
    size_t before = path->bytes, i;
    const char *key;
    json_t *child;

    if (at == wanted)
        return true;
    if (depth == PATH_DEPTH_MAX)
        return false;
    if (json_is_object(at)) {
        json_object_foreach((json_t *)at, key, child)
        {
            put_key(path, key, strlen(key));
            if (find_path(child, wanted, path, depth + 1))
                return true;
            buf_cut(path, before);
        }
    } else if (json_is_array(at)) {
        json_array_foreach(at, i, child)
        {
            buf_format(path, "/%zu", i);
            if (find_path(child, wanted, path, depth + 1))
                return true;
            buf_cut(path, before);
        }
    }
    return false;
}

int schema_refuse(struct schema_compiler *compiler, int code, const json_t *schema,
                  const char *keyword, const char *format, ...)
{
    char memory[PATH_BYTES_MAX * 4], reason[256];
    struct buf path;
    va_list arguments;

    buf_init_fixed(&path, memory, sizeof memory);
    buf_byte(&path, '#');
    if (!find_path(compiler->root, schema, &path, 0))
        buf_text(&path, "/...");
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return fault_set(compiler->fault, code, "schema keyword \"%.64s\" at %.*s: %s", keyword,
                     PATH_BYTES_MAX, buf_string(&path), reason);
}

/* ---- small nodes ---- */

int32_t schema_literal(struct schema_compiler *compiler, const char *text)
{
    return grammar_literal(compiler->grammar, text, strlen(text));
}

int32_t schema_optional(struct schema_compiler *compiler, int32_t node)
{
    return grammar_repeat(compiler->grammar, node, 0, 1);
}

int32_t schema_pair(struct schema_compiler *compiler, int32_t first, int32_t second)
{
    int32_t nodes[2] = {first, second};

    return grammar_sequence(compiler->grammar, nodes, 2);
}

/* ( '\n' ' '{0,64} | ' ' )?: what indents, or separates. */
static int32_t free_space(struct schema_compiler *compiler)
{
    static const struct grammar_range blanks[] = {{'\t', '\t'}, {' ', ' '}};
    int32_t blank = grammar_class(compiler->grammar, blanks, 2, false), ways[2];

    ways[0] = schema_pair(compiler, schema_literal(compiler, "\n"),
                          grammar_repeat(compiler->grammar, blank, 0, 64));
    ways[1] = schema_literal(compiler, " ");
    return schema_optional(compiler, grammar_choice(compiler->grammar, ways, 2));
}

static int32_t spaced(struct schema_compiler *compiler, bool before, char byte, bool after)
{
    char text[2] = {byte, 0};
    int32_t node = schema_literal(compiler, text);

    switch (compiler->options.space) {
    case SCHEMA_SPACE_NONE:
        break;
    case SCHEMA_SPACE_PYTHON:
        if (byte == ',' || byte == ':')
            node = schema_pair(compiler, node,
                               schema_optional(compiler, schema_literal(compiler, " ")));
        break;
    case SCHEMA_SPACE_FREE:
        if (before)
            node = schema_pair(compiler, free_space(compiler), node);
        if (after)
            node = schema_pair(compiler, node, free_space(compiler));
        break;
    }
    return node;
}

int32_t schema_open_bracket(struct schema_compiler *compiler, char bracket)
{
    return spaced(compiler, false, bracket, true);
}

int32_t schema_close_bracket(struct schema_compiler *compiler, char bracket)
{
    return spaced(compiler, true, bracket, false);
}

int32_t schema_comma(struct schema_compiler *compiler)
{
    return spaced(compiler, false, ',', true);
}

int32_t schema_colon(struct schema_compiler *compiler)
{
    return spaced(compiler, false, ':', true);
}

/* ---- places ---- */

static int pointer_compare(const void *left, const void *right)
{
    const json_t *a = *(const json_t *const *)left, *b = *(const json_t *const *)right;

    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* A schema that is nothing but a reference stands for what it leads to. */
static int see_through(struct schema_compiler *compiler, struct schema_set *set)
{
    for (int i = 0; set->count == 1 && json_object_size(set->schemas[0]) == 1 &&
                    json_object_get(set->schemas[0], "$ref");
         i++) {
        const json_t *schema = set->schemas[0], *target;
        int r;

        if (i == SCHEMA_REFERENCES_MAX)
            return schema_refuse(compiler, E_INVALID, schema, "$ref",
                                 "the schema refers to itself for the same value, without an end");
        r = schema_resolve(compiler, schema, &target);
        if (r < 0)
            return r;
        set->count = 0;
        r = schema_set_add(compiler, set, target);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct schema_place *find_place(struct schema_compiler *compiler,
                                       const struct schema_set *key, uint32_t bucket)
{
    struct schema_place *place = compiler->places[bucket];

    for (; place; place = place->next_same_hash)
        if (place->set.count == key->count && place->set.never == key->never &&
            memcmp(place->set.schemas, key->schemas, key->count * sizeof *key->schemas) == 0)
            break;
    return place;
}

int32_t schema_place(struct schema_compiler *compiler, const struct schema_set *set)
{
    struct schema_set key, order;
    struct schema_place *place;
    uint64_t hash = 0;
    uint32_t bucket;
    int r = schema_set_copy(compiler, set, &order);

    r = r < 0 ? r : see_through(compiler, &order);
    r = r < 0 ? r : schema_set_copy(compiler, &order, &key);
    if (r < 0)
        return r;
    if (!schema_spend(compiler, 8 + (int64_t)key.count))
        return E_TOO_LARGE;
    if (key.never)
        return grammar_never(compiler->grammar);
    if (key.count == 0)
        return schema_any(compiler, TYPE_ANY);
    qsort(key.schemas, key.count, sizeof *key.schemas, pointer_compare);
    for (uint32_t i = 0; i < key.count; i++)
        hash = (hash ^ (uintptr_t)key.schemas[i] >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    bucket = (uint32_t)(hash >> 40) % SCHEMA_BUCKETS;
    place = find_place(compiler, &key, bucket);
    if (place)
        return grammar_reference(compiler->grammar, place->rule);
    if (++compiler->place_count > SCHEMA_PLACES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE, "it describes too many values");
    place = schema_take(compiler, 1, sizeof *place);
    if (!place)
        return E_MEMORY;
    place->set = key;
    place->order = order;
    place->rule = grammar_rule(compiler->grammar, "value");
    place->next_same_hash = compiler->places[bucket];
    compiler->places[bucket] = place;
    if (compiler->queue_last)
        compiler->queue_last->next = place;
    else
        compiler->queue_first = place;
    compiler->queue_last = place;
    return grammar_reference(compiler->grammar, place->rule);
}

/* All that one leaf allows, a way for each type. */
static int32_t compile_leaf(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    static const unsigned plain[] = {TYPE_NULL, TYPE_BOOLEAN};
    int32_t ways[6], node;
    size_t count = 0;
    bool found;
    int r = schema_keywords_refuse(compiler, leaf);

    if (r < 0)
        return r;
    node = schema_enum(compiler, leaf, &found);
    if (node < 0 || found)
        return node;
    if (leaf->set.count == 0)
        return schema_any(compiler, leaf->types);
    for (size_t i = 0; i < 2; i++)
        if (leaf->types & plain[i])
            ways[count++] = schema_any(compiler, plain[i]);
    if (leaf->types & TYPE_NUMBER)
        ways[count++] = schema_number(compiler, leaf);
    if (leaf->types & TYPE_STRING)
        ways[count++] = schema_string(compiler, leaf);
    if (leaf->types & TYPE_ARRAY)
        ways[count++] = schema_array(compiler, leaf);
    if (leaf->types & TYPE_OBJECT)
        ways[count++] = schema_object(compiler, leaf);
    return count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
}

static int compile_place(struct schema_compiler *compiler, const struct schema_place *place)
{
    struct schema_leaf *leaves;
    int32_t *ways, node;
    uint32_t count;
    int r = schema_leaves(compiler, &place->order, &leaves, &count);

    if (r < 0)
        return r;
    ways = schema_take(compiler, count, sizeof *ways);
    if (!ways)
        return E_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        ways[i] = compile_leaf(compiler, &leaves[i]);
        if (ways[i] < 0)
            return ways[i];
    }
    node = count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
    return grammar_define(compiler->grammar, place->rule, node);
}

/* ---- the doors ---- */

int schema_begin(struct schema_compiler *compiler, struct grammar *grammar, const json_t *root,
                 const struct schema_options *options, struct fault *fault)
{
    *compiler = (struct schema_compiler){
        .grammar = grammar,
        .root = root,
        .fault = fault,
        .regular = {.state_max = STATES_MAX, .work_left = WORK_MAX},
        .hex = -1,
        .any_char = -1,
        .escape_beyond = -1,
        .any_string = -1,
        .any_value = -1,
        .any_array = -1,
        .any_object = -1,
        .integer = -1,
        .number = -1,
    };
    if (options)
        compiler->options = *options;
    if (compiler->options.work_left)
        compiler->regular.work_left = *compiler->options.work_left;
    fault->code = 0;
    if (arena_open(ARENA_FIRST, ARENA_BYTES_MAX, &compiler->regular.arena) < 0)
        return fault_set(compiler->fault, E_MEMORY, "not enough memory for the schema");
    return 0;
}

int schema_end(struct schema_compiler *compiler, int code)
{
    if (code < 0 && compiler->fault->code < 0)
        code = compiler->fault->code;
    else if (code < 0)
        code = schema_exhausted(compiler, code, "its grammar has too many parts");
    if (compiler->options.work_left)
        *compiler->options.work_left = compiler->regular.work_left;
    arena_close(compiler->regular.arena);
    return code < 0 ? code : 0;
}

int schema_build_at(struct grammar *grammar, const json_t *root, const json_t *schema,
                    const struct schema_options *options, int32_t *ret_node, struct fault *fault)
{
    struct schema_compiler compiler;
    struct schema_set set = {0};
    struct fault own;
    int32_t node = 0;
    int r;

    fault = fault ? fault : &own;
    r = schema_begin(&compiler, grammar, root, options, fault);
    if (r < 0)
        return r;
    r = schema_set_add(&compiler, &set, schema);
    if (r == 0)
        node = schema_place(&compiler, &set);
    r = r < 0 ? r : node < 0 ? node : 0;
    while (r == 0 && compiler.queue_first) {
        struct schema_place *place = compiler.queue_first;

        compiler.queue_first = place->next;
        if (!place->next)
            compiler.queue_last = NULL;
        r = compile_place(&compiler, place);
    }
    r = schema_end(&compiler, r);
    if (r == 0)
        *ret_node = node;
    return r;
}

int schema_build(struct grammar *grammar, const json_t *schema,
                 const struct schema_options *options, int32_t *ret_node, struct fault *fault)
{
    return schema_build_at(grammar, schema, schema, options, ret_node, fault);
}

/* A grammar whose root is one rule, "root" ::= `node`. Takes the grammar. */
static int finish(struct grammar *grammar, int32_t node, struct grammar **ret_grammar,
                  struct fault *fault)
{
    int32_t rule = grammar_rule(grammar, "root");
    int r = rule < 0 ? rule : grammar_define(grammar, rule, node);

    if (r < 0) {
        fault_set(fault, r,
                  r == E_MEMORY ? "not enough memory for the grammar"
                                : "the grammar has too many parts");
    } else {
        grammar_set_root(grammar, rule);
        r = grammar_check(grammar, fault);
    }
    if (r < 0)
        grammar_close(grammar);
    else
        *ret_grammar = grammar;
    return r;
}

int schema_compile(const json_t *schema, const struct schema_options *options,
                   struct grammar **ret_grammar, struct fault *fault)
{
    struct grammar *grammar;
    int32_t node;
    int r = grammar_open(SCHEMA_NODE_MAX, &grammar, fault);

    if (r < 0)
        return r;
    r = schema_build(grammar, schema, options, &node, fault);
    if (r < 0) {
        grammar_close(grammar);
        return r;
    }
    r = finish(grammar, node, ret_grammar, fault);
    return r == E_INVALID ? fault_set(fault, r, "no value at all fits the schema") : r;
}

int schema_build_any(struct grammar *grammar, bool object, const struct schema_options *options,
                     int32_t *ret_node, struct fault *fault)
{
    struct schema_compiler compiler;
    int32_t node;
    int r;

    r = schema_begin(&compiler, grammar, NULL, options, fault);
    if (r < 0)
        return r;
    node = schema_any(&compiler, object ? TYPE_OBJECT : TYPE_ANY);
    r = schema_end(&compiler, node);
    if (r == 0)
        *ret_node = node;
    return r;
}

static int any_grammar(bool object, const struct schema_options *options,
                       struct grammar **ret_grammar, struct fault *fault)
{
    struct grammar *grammar;
    struct fault own;
    int32_t node;
    int r = grammar_open(SCHEMA_NODE_MAX, &grammar, fault);

    if (r < 0)
        return r;
    r = schema_build_any(grammar, object, options, &node, fault ? fault : &own);
    if (r < 0) {
        grammar_close(grammar);
        return r;
    }
    return finish(grammar, node, ret_grammar, fault);
}

int schema_any_object(const struct schema_options *options, struct grammar **ret_grammar,
                      struct fault *fault)
{
    return any_grammar(true, options, ret_grammar, fault);
}

int schema_any_value(const struct schema_options *options, struct grammar **ret_grammar,
                     struct fault *fault)
{
    return any_grammar(false, options, ret_grammar, fault);
}

int schema_choice(const char *const *texts, const size_t *bytes, size_t count,
                  struct grammar **ret_grammar, struct fault *fault)
{
    struct grammar *grammar;
    struct fault own;
    int32_t node;
    int r = grammar_open(SCHEMA_NODE_MAX, &grammar, fault);

    if (r < 0)
        return r;
    r = schema_build_choice(grammar, texts, bytes, count, &node, fault ? fault : &own);
    if (r < 0) {
        grammar_close(grammar);
        return r;
    }
    return finish(grammar, node, ret_grammar, fault);
}
