/* schema_enum.c -- enum and const: the values that all schemas of a leaf list, each written out.
 *
 * Strings go into one set, so that a long list of names is one automaton. */
#include <math.h>
#include <string.h>

#include "engine/text/schema_internal.h"

static unsigned type_of(const json_t *value)
{
    double number;

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        number = json_real_value(value);
        return number == floor(number) ? TYPE_INTEGER : TYPE_FRACTION;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_NULL:
        return TYPE_NULL;
    }
    return 0;
}

static bool equal_members(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *value;

    if (json_object_size(a) != json_object_size(b))
        return false;
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        const json_t *other = json_object_get(b, name);

        if (!other || !schema_values_equal(value, other))
            return false;
    }
    return true;
}

bool schema_values_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    if (json_is_object(a) && json_is_object(b))
        return equal_members(a, b);
    if (!json_is_array(a) || !json_is_array(b))
        return json_equal(a, b) == 1;
    if (json_array_size(a) != json_array_size(b))
        return false;
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!schema_values_equal(json_array_get(a, i), json_array_get(b, i)))
            return false;
    return true;
}

/* Whether the schema's own enum, const and not let the value through. */
static bool listed(const json_t *schema, const json_t *value, bool negated)
{
    const json_t *constant = json_object_get(schema, "const"), *one;
    const json_t *values = json_object_get(schema, "enum"), *not = json_object_get(schema, "not");
    size_t i;

    if (constant && !schema_values_equal(constant, value))
        return false;
    if (!negated && json_is_object(not ) && !json_object_get(not, "type") &&
        listed(not, value, true))
        return false;
    if (!values)
        return true;
    json_array_foreach(values, i, one)
    {
        if (schema_values_equal(one, value))
            return true;
    }
    return false;
}

/* Keywords about values of this type that are not looked at here. */
static int refuse_structure(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                            unsigned type)
{
    static const char *const of_arrays[] = {"items",    "prefixItems", "minItems",
                                            "maxItems", "contains",    "uniqueItems"};
    static const char *const of_objects[] = {
        "properties",    "patternProperties", "required",     "additionalProperties",
        "propertyNames", "minProperties",     "maxProperties"};
    const char *const *names = type == TYPE_ARRAY ? of_arrays : of_objects;
    size_t count = type == TYPE_ARRAY ? sizeof of_arrays / sizeof *of_arrays
                                      : sizeof of_objects / sizeof *of_objects;

    for (uint32_t i = 0; i < leaf->set.count; i++)
        for (size_t n = 0; n < count; n++)
            if (json_object_get(leaf->set.schemas[i], names[n]))
                return schema_refuse(compiler, E_UNSUPPORTED, leaf->set.schemas[i], names[n],
                                     "cannot be enforced beside an enum or const with such values");
    return 0;
}

/* Whether the value fits all that the leaf asks: 1, 0, or a negative code. */
static int fits(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                const json_t *value)
{
    unsigned type = type_of(value);
    const struct regular *strings;
    int r;

    if (!(leaf->types & type))
        return 0;
    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *values = json_object_get(leaf->set.schemas[i], "enum");

        if (!schema_spend(compiler, 8 + (int64_t)json_array_size(values)))
            return E_TOO_LARGE;
        if (!listed(leaf->set.schemas[i], value, false))
            return 0;
    }
    if (type & TYPE_NUMBER)
        return schema_number_fits(compiler, leaf, value);
    if (type & (TYPE_ARRAY | TYPE_OBJECT)) {
        r = refuse_structure(compiler, leaf, type);
        return r < 0 ? r : 1;
    }
    if (type != TYPE_STRING)
        return 1;
    r = schema_string_set(compiler, leaf, &strings);
    if (r < 0)
        return r;
    return !strings ||
           regular_matches(strings, json_string_value(value), json_string_length(value));
}

struct candidates {
    const json_t **values;
    size_t count;
};

/* The strings among the candidates as a set; *ret_count 0: there are none. */
static int string_words(struct schema_compiler *compiler, const struct candidates *candidates,
                        size_t *ret_count, const struct regular **ret_set)
{
    const char **texts = schema_take(compiler, candidates->count, sizeof *texts);
    size_t *bytes = schema_take(compiler, candidates->count, sizeof *bytes), count = 0;
    int r;

    if (!texts || !bytes)
        return E_MEMORY;
    for (size_t i = 0; i < candidates->count; i++) {
        const json_t *value = candidates->values[i];

        if (!json_is_string(value))
            continue;
        texts[count] = json_string_value(value);
        bytes[count++] = json_string_length(value);
    }
    r = regular_words(&compiler->regular, texts, bytes, count, ret_set);
    if (r < 0)
        return schema_exhausted(compiler, r, "the strings of an enum");
    *ret_count = count;
    return 0;
}

static int32_t write_values(struct schema_compiler *compiler, const struct candidates *candidates)
{
    int32_t *ways = schema_take(compiler, candidates->count + 1, sizeof *ways);
    const struct regular *strings;
    size_t count = 0, string_count;
    int r;

    if (!ways)
        return E_MEMORY;
    for (size_t i = 0; i < candidates->count; i++)
        if (!json_is_string(candidates->values[i]))
            ways[count++] = schema_json_value(compiler, candidates->values[i]);
    r = string_words(compiler, candidates, &string_count, &strings);
    if (r < 0)
        return r;
    if (string_count > 0)
        ways[count++] = schema_pair(compiler, schema_literal(compiler, "\""),
                                    schema_text_set(compiler, strings, SPELLING_LITERAL));
    return count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
}

/* What the leaf's first const or enum lists and all its schemas allow. 1; 0: it has neither. */
static int find_candidates(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                           struct candidates *candidates)
{
    const json_t *constant = NULL, *values = NULL, *value;
    size_t i;

    for (i = 0; i < leaf->set.count; i++) {
        const json_t *schema = leaf->set.schemas[i];

        constant = constant ? constant : json_object_get(schema, "const");
        values = values ? values : json_object_get(schema, "enum");
    }
    if (!constant && !values)
        return 0;
    candidates->values = schema_take(compiler, json_array_size(values) + 1, sizeof constant);
    if (!candidates->values)
        return E_MEMORY;
    for (i = 0; i < (constant ? 1 : json_array_size(values)); i++) {
        int r;

        value = constant ? constant : json_array_get(values, i);
        r = fits(compiler, leaf, value);
        if (r < 0)
            return r;
        if (r > 0)
            candidates->values[candidates->count++] = value;
    }
    return 1;
}

int32_t schema_enum(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                    bool *ret_found)
{
    struct candidates candidates = {0};
    int r = find_candidates(compiler, leaf, &candidates);

    *ret_found = r > 0;
    return r <= 0 ? r : write_values(compiler, &candidates);
}

int schema_enum_strings(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                        const struct regular **ret_set)
{
    struct candidates candidates = {0};
    size_t count;
    int r = find_candidates(compiler, leaf, &candidates);

    if (r == 0)
        return schema_string_set(compiler, leaf, ret_set);
    return r < 0 ? r : string_words(compiler, &candidates, &count, ret_set);
}
