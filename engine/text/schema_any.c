/* schema_any.c -- any JSON value of some types, and one given value written out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/schema_internal.h"

static int32_t in_quotes(struct schema_compiler *compiler)
{
    int32_t quote = schema_literal(compiler, "\"");
    int32_t nodes[3] = {
        quote, grammar_repeat(compiler->grammar, schema_text_char(compiler), 0, GRAMMAR_UNBOUNDED),
        quote};

    return grammar_sequence(compiler->grammar, nodes, 3);
}

/* ( item ( ',' item )* )? between brackets. */
static int32_t listed(struct schema_compiler *compiler, const char *brackets, int32_t item)
{
    int32_t nodes[3];

    nodes[1] = schema_pair(compiler, schema_comma(compiler), item);
    nodes[1] = grammar_repeat(compiler->grammar, nodes[1], 0, GRAMMAR_UNBOUNDED);
    nodes[1] = schema_optional(compiler, schema_pair(compiler, item, nodes[1]));
    nodes[0] = schema_open_bracket(compiler, brackets[0]);
    nodes[2] = schema_close_bracket(compiler, brackets[1]);
    return grammar_sequence(compiler->grammar, nodes, 3);
}

/* The rule is known before its node is made: values are recursive. */
static int32_t shared(struct schema_compiler *compiler, int32_t *reference, const char *name,
                      int32_t (*make)(struct schema_compiler *compiler))
{
    int32_t rule;
    int r;

    if (*reference >= 0)
        return *reference;
    rule = grammar_rule(compiler->grammar, name);
    if (rule < 0)
        return rule;
    *reference = grammar_reference(compiler->grammar, rule);
    r = grammar_define(compiler->grammar, rule, make(compiler));
    return r < 0 ? r : *reference;
}

static int32_t any_array(struct schema_compiler *compiler)
{
    return listed(compiler, "[]", schema_any(compiler, TYPE_ANY));
}

static int32_t any_object(struct schema_compiler *compiler)
{
    int32_t nodes[3] = {schema_any(compiler, TYPE_STRING), schema_colon(compiler),
                        schema_any(compiler, TYPE_ANY)};

    return listed(compiler, "{}", grammar_sequence(compiler->grammar, nodes, 3));
}

static int32_t any_value(struct schema_compiler *compiler)
{
    static const unsigned types[] = {TYPE_NULL,   TYPE_BOOLEAN, TYPE_NUMBER,
                                     TYPE_STRING, TYPE_ARRAY,   TYPE_OBJECT};
    int32_t ways[6];

    for (size_t i = 0; i < 6; i++)
        ways[i] = schema_any(compiler, types[i]);
    return grammar_choice(compiler->grammar, ways, 6);
}

/* The three words of JSON that Python writes in its own way. */
static int32_t word(struct schema_compiler *compiler, const char *json, const char *python)
{
    return schema_literal(compiler, compiler->options.python ? python : json);
}

static int32_t of_type(struct schema_compiler *compiler, unsigned type)
{
    struct schema_leaf leaf = {.types = type};
    int32_t ways[2];

    switch (type) {
    case TYPE_NULL:
        return word(compiler, "null", "None");
    case TYPE_BOOLEAN:
        ways[0] = word(compiler, "true", "True");
        ways[1] = word(compiler, "false", "False");
        return grammar_choice(compiler->grammar, ways, 2);
    case TYPE_STRING:
        return shared(compiler, &compiler->any_string, "string", in_quotes);
    case TYPE_ARRAY:
        return shared(compiler, &compiler->any_array, "array", any_array);
    case TYPE_OBJECT:
        return shared(compiler, &compiler->any_object, "object", any_object);
    default:
        return schema_number(compiler, &leaf);
    }
}

int32_t schema_any(struct schema_compiler *compiler, unsigned types)
{
    int32_t ways[7];
    size_t count = 0;

    if (types == TYPE_ANY)
        return shared(compiler, &compiler->any_value, "any value", any_value);
    if (types & TYPE_NUMBER)
        ways[count++] = of_type(compiler, types & TYPE_NUMBER);
    for (unsigned type = TYPE_NULL; type <= TYPE_OBJECT; type <<= 1)
        if (types & type & ~(unsigned)TYPE_NUMBER)
            ways[count++] = of_type(compiler, type);
    return count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
}

/* ---- one value ---- */

static int32_t real(struct schema_compiler *compiler, double value)
{
    char text[40];

    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(text, sizeof text, "%.1f", value);
        return schema_literal(compiler, text);
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return schema_literal(compiler, text);
}

static int32_t list_value(struct schema_compiler *compiler, const json_t *value)
{
    size_t count = json_array_size(value), n = 0, i;
    int32_t *nodes = schema_take(compiler, 2 * count + 2, sizeof *nodes);
    const json_t *one;

    if (!nodes)
        return E_MEMORY;
    nodes[n++] = schema_open_bracket(compiler, '[');
    json_array_foreach(value, i, one)
    {
        if (i > 0)
            nodes[n++] = schema_comma(compiler);
        nodes[n++] = schema_json_value(compiler, one);
    }
    nodes[n++] = schema_close_bracket(compiler, ']');
    return grammar_sequence(compiler->grammar, nodes, n);
}

static int32_t object_value(struct schema_compiler *compiler, const json_t *value)
{
    size_t count = json_object_size(value), n = 0;
    int32_t *nodes = schema_take(compiler, 4 * count + 2, sizeof *nodes);
    const char *key;
    json_t *one;

    if (!nodes)
        return E_MEMORY;
    nodes[n++] = schema_open_bracket(compiler, '{');
    json_object_foreach((json_t *)value, key, one)
    {
        if (n > 1)
            nodes[n++] = schema_comma(compiler);
        nodes[n++] = schema_text_literal(compiler, key, strlen(key));
        nodes[n++] = schema_colon(compiler);
        nodes[n++] = schema_json_value(compiler, one);
    }
    nodes[n++] = schema_close_bracket(compiler, '}');
    return grammar_sequence(compiler->grammar, nodes, n);
}

static int32_t write_value(struct schema_compiler *compiler, const json_t *value)
{
    char text[32];

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return object_value(compiler, value);
    case JSON_ARRAY:
        return list_value(compiler, value);
    case JSON_STRING:
        return schema_text_literal(compiler, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return schema_literal(compiler, text);
    case JSON_REAL:
        return real(compiler, json_real_value(value));
    case JSON_TRUE:
        return word(compiler, "true", "True");
    case JSON_FALSE:
        return word(compiler, "false", "False");
    case JSON_NULL:
        break;
    }
    return word(compiler, "null", "None");
}

int32_t schema_json_value(struct schema_compiler *compiler, const json_t *value)
{
    int32_t node;

    if (!schema_spend(compiler, 8))
        return E_TOO_LARGE;
    if (compiler->value_depth == JSON_DEPTH_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE, "a constant is nested too deeply");
    compiler->value_depth++;
    node = write_value(compiler, value);
    compiler->value_depth--;
    return node;
}
