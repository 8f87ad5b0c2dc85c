/* tools_arguments.c -- see tools_arguments.h.
 *
 * As JSON a schema is held to whole. Written one by one, arguments are those that "properties"
 * declares, in its order; what else an object's schema may ask cannot be held to there. */
#include "server/tools_arguments.h"

#include <stdio.h>
#include <string.h>

#include "engine/text/schema.h"
#include "server/tools_internal.h"

enum { FIELD_BYTES = 64, KEY_BYTES_MAX = 256, NAME_LENGTH_MAX = 64 };

struct maker {
    const struct argument_rules *rules;
    struct grammar *grammar;
    struct schema_options options;
    const json_t *schema; /* of the object */
    struct fault *fault;
};

static int32_t literal(const struct maker *maker, const char *text)
{
    return grammar_literal(maker->grammar, text, strlen(text));
}

static int32_t sequence(const struct maker *maker, int32_t first, int32_t second, int32_t third)
{
    const int32_t nodes[] = {first, second, third};

    return grammar_sequence(maker->grammar, nodes, 3);
}

/* --- one argument ----------------------------------------------------------------------------- */

/* `schema` NULL: any value. Without quotes a string stands only where the reader, who looks at the
 * declared properties, takes it for one. */
static int32_t value_node(const struct maker *maker, const json_t *schema, bool declared)
{
    const struct argument_tags *tags = maker->rules->tags;
    const char *const ends[] = {tags ? tags->end : ""};
    struct schema_markers markers = {ends, 1};
    int32_t node = 0;
    int r;

    if (tags && declared && tools_is_text(schema))
        r = schema_build_plain_string(maker->grammar, maker->schema, schema, &markers,
                                      &maker->options, &node, maker->fault);
    else if (schema)
        r = schema_build_at(maker->grammar, maker->schema, schema, &maker->options, &node,
                            maker->fault);
    else
        r = schema_build_any(maker->grammar, false, &maker->options, &node, maker->fault);
    return r < 0 ? r : node;
}

/* Can the format write the key at all? */
static bool key_fits(const struct maker *maker, const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

    if (*key == '\0' || strlen(key) >= KEY_BYTES_MAX)
        return false;
    if (maker->rules->style == ARGUMENTS_TAGGED)
        return !strpbrk(key, "<>\n");
    return strchr(letters, *key) &&
           key[strspn(key, letters) + strspn(key + strspn(key, letters), "0123456789")] == '\0';
}

static int32_t argument_node(const struct maker *maker, int32_t key, int32_t value)
{
    const struct argument_tags *tags = maker->rules->tags;
    int32_t node;

    if (!tags)
        return sequence(maker, key, literal(maker, "="), value);
    node = sequence(maker, literal(maker, tags->before), key, literal(maker, tags->middle));
    return sequence(maker, node, value, literal(maker, tags->after));
}

static const char *separator(const struct maker *maker)
{
    return maker->rules->tags ? "" : ", ";
}

/* --- arguments one by one --------------------------------------------------------------------- */

static bool is_required(const struct maker *maker, const char *key)
{
    const json_t *name;
    size_t i;

    json_array_foreach(json_object_get(maker->schema, "required"), i, name)
    {
        if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
            return true;
    }
    return false;
}

/* What may follow an argument, and what may stand in its place if it is the first: both lists are
 * made from their end. */
struct rest {
    int32_t first;
    int32_t later;
};

static int put_argument(const struct maker *maker, const char *key, struct rest *rest)
{
    const json_t *schema = json_object_get(json_object_get(maker->schema, "properties"), key);
    bool required = is_required(maker, key), declared = schema != NULL;
    int32_t node, first[2], later[2];

    if (!key_fits(maker, key)) {
        if (!required)
            return 0;
        return fault_set(maker->fault, E_UNSUPPORTED,
                         "this model's format of calls cannot have the argument '%.64s'", key);
    }
    if (!declared)
        schema = json_object_get(maker->schema, "additionalProperties");
    node = value_node(maker, schema, declared);
    if (node < 0)
        return node;
    node = argument_node(maker, literal(maker, key), node);
    first[0] = sequence(maker, node, rest->later, grammar_empty(maker->grammar));
    later[0] = sequence(maker, literal(maker, separator(maker)), node, rest->later);
    first[1] = rest->first;
    later[1] = rest->later;
    rest->first = required ? first[0] : grammar_choice(maker->grammar, first, 2);
    rest->later = required ? later[0] : grammar_choice(maker->grammar, later, 2);
    return 0;
}

/* What an object's schema may have here. */
static int check_keywords(const struct maker *maker)
{
    static const char *const known[] = {
        "type",        "properties",  "required",   "additionalProperties",
        "title",       "description", "$defs",      "default",
        "definitions", "$schema",     "examples",   "$id",
        "example",     "$comment",    "deprecated",
    };
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)maker->schema, key, value)
    {
        bool found = strncmp(key, "x-", 2) == 0;

        for (size_t i = 0; !found && i < sizeof known / sizeof *known; i++)
            found = strcmp(key, known[i]) == 0;
        if (!found)
            return fault_set(maker->fault, E_UNSUPPORTED,
                             "schema keyword \"%.40s\" at #: cannot be enforced in this model's "
                             "format of calls",
                             key);
    }
    return 0;
}

static int32_t listed(const struct maker *maker)
{
    const json_t *properties = json_object_get(maker->schema, "properties");
    const json_t *required = json_object_get(maker->schema, "required"), *name;
    struct rest rest = {grammar_empty(maker->grammar), grammar_empty(maker->grammar)};
    const char *keys[1024];
    size_t count = 0, i;
    const char *key;
    json_t *value;
    int r = check_keywords(maker);

    json_object_foreach((json_t *)(uintptr_t)properties, key, value)
    {
        if (count < sizeof keys / sizeof *keys)
            keys[count++] = key;
    }
    json_array_foreach(required, i, name)
    {
        if (json_is_string(name) && !json_object_get(properties, json_string_value(name)) &&
            count < sizeof keys / sizeof *keys)
            keys[count++] = json_string_value(name);
    }
    if (count == sizeof keys / sizeof *keys)
        return fault_set(maker->fault, E_TOO_LARGE, "it has too many properties");
    while (r == 0 && count > 0)
        r = put_argument(maker, keys[--count], &rest);
    return r < 0 ? r : rest.first;
}

/* Any arguments. */
static int32_t unlisted(const struct maker *maker)
{
    static const struct grammar_range letters[] = {{'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    int32_t key = grammar_repeat(maker->grammar, grammar_class(maker->grammar, letters, 3, false),
                                 1, NAME_LENGTH_MAX);
    int32_t node = value_node(maker, NULL, false), more;

    if (node < 0)
        return node;
    node = argument_node(maker, key, node);
    more = sequence(maker, literal(maker, separator(maker)), node, grammar_empty(maker->grammar));
    more = grammar_repeat(maker->grammar, more, 0, GRAMMAR_UNBOUNDED);
    return grammar_repeat(maker->grammar,
                          sequence(maker, node, more, grammar_empty(maker->grammar)), 0, 1);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int32_t held(const struct maker *maker)
{
    int32_t node = 0;
    int r;

    if (maker->rules->style != ARGUMENTS_JSON)
        return listed(maker);
    r = schema_build(maker->grammar, maker->schema, &maker->options, &node, maker->fault);
    return r < 0 ? r : node;
}

static int32_t any(const struct maker *maker)
{
    int32_t node = 0;
    int r;

    if (maker->rules->style != ARGUMENTS_JSON)
        return unlisted(maker);
    r = schema_build_any(maker->grammar, true, &maker->options, &node, maker->fault);
    return r < 0 ? r : node;
}

/* Names the field; `code` has a sentence already, if it is not the grammar's. */
static int refuse(const struct maker *maker, int code)
{
    struct fault why = *maker->fault;
    char field[FIELD_BYTES];

    if (why.code == 0)
        fault_set(&why, code, "it is too large");
    (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", maker->rules->index);
    return fault_field(maker->fault, why.code, field, "'%s': %s", field, why.message);
}

int tools_arguments_build(const struct argument_rules *rules, struct grammar *grammar,
                          int32_t *ret_node, struct fault *fault)
{
    const json_t *parameters = json_object_get(rules->function, "parameters");
    bool strict = json_is_true(json_object_get(rules->function, "strict"));
    struct maker maker = {.rules = rules,
                          .grammar = grammar,
                          .options = {.work_left = &rules->effort->work_left,
                                      .python = rules->style == ARGUMENTS_PYTHON},
                          .fault = fault};
    json_t *schema;
    int32_t node;

    if (!parameters || json_is_null(parameters)) {
        *ret_node = literal(&maker, rules->style == ARGUMENTS_JSON ? "{}" : "");
        return *ret_node < 0 ? refuse(&maker, *ret_node) : 0;
    }
    schema = json_copy((json_t *)(uintptr_t)parameters);
    if (!schema || (!json_object_get(schema, "type") &&
                    json_object_set_new(schema, "type", json_string("object")) < 0)) {
        json_decref(schema);
        return fault_set(fault, E_MEMORY, "There is no memory for the tools");
    }
    fault->code = 0;
    maker.schema = schema;
    node = held(&maker);
    /* What would only take longer is not given up for that. */
    if (node < 0 && !strict && node != E_MEMORY &&
        (node != E_TOO_LARGE || rules->effort->patient)) {
        fault->code = 0;
        node = any(&maker);
    }
    json_decref(schema);
    if (node < 0)
        return refuse(&maker, node);
    *ret_node = node;
    return 0;
}
