/* schema_keywords.c -- every keyword of JSON schema: what it takes, and whether it is enforced.
 *
 * One row a keyword. A keyword without a row is refused too: it may be a slip ("minimun"), or ask
 * for something of its own. */
#include <string.h>

#include "engine/text/schema_internal.h"

enum keyword_kind {
    KIND_ANY,
    KIND_SCHEMA,
    KIND_SCHEMAS, /* at least one */
    KIND_SCHEMA_MAP,
    KIND_STRING,
    KIND_STRINGS,
    KIND_NUMBER,
    KIND_COUNT,
    KIND_BOOLEAN,
    KIND_LIST, /* of anything, not empty */
    KIND_TYPE,
};

enum keyword_role {
    ROLE_NOTE,    /* an annotation, or a place for schemas that others refer to */
    ROLE_SET,     /* says which schemas hold: schema_set.c */
    ROLE_ASK,     /* enforced by the file of its type */
    ROLE_REFUSED, /* no grammar of ours holds it */
};

struct keyword {
    const char *name;
    enum keyword_kind kind;
    enum keyword_role role;
    unsigned types; /* of values that it speaks about */
};

static const struct keyword keywords[] = {
    {"$schema", KIND_STRING, ROLE_NOTE, TYPE_ANY},
    {"$id", KIND_STRING, ROLE_NOTE, TYPE_ANY},
    {"$comment", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"$anchor", KIND_STRING, ROLE_NOTE, TYPE_ANY},
    {"$defs", KIND_SCHEMA_MAP, ROLE_NOTE, TYPE_ANY},
    {"definitions", KIND_SCHEMA_MAP, ROLE_NOTE, TYPE_ANY},
    {"title", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"description", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"default", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"examples", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"example", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"deprecated", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"readOnly", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"writeOnly", KIND_ANY, ROLE_NOTE, TYPE_ANY},
    {"discriminator", KIND_ANY, ROLE_NOTE, TYPE_ANY}, /* OpenAPI: a hint beside oneOf */

    {"$ref", KIND_STRING, ROLE_SET, TYPE_ANY},
    {"allOf", KIND_SCHEMAS, ROLE_SET, TYPE_ANY},
    {"anyOf", KIND_SCHEMAS, ROLE_SET, TYPE_ANY},
    {"oneOf", KIND_SCHEMAS, ROLE_SET, TYPE_ANY},

    {"type", KIND_TYPE, ROLE_ASK, TYPE_ANY},
    {"enum", KIND_LIST, ROLE_ASK, TYPE_ANY},
    {"const", KIND_ANY, ROLE_ASK, TYPE_ANY},
    {"not", KIND_SCHEMA, ROLE_ASK, TYPE_ANY},
    {"minimum", KIND_NUMBER, ROLE_ASK, TYPE_NUMBER},
    {"maximum", KIND_NUMBER, ROLE_ASK, TYPE_NUMBER},
    {"exclusiveMinimum", KIND_NUMBER, ROLE_ASK, TYPE_NUMBER},
    {"exclusiveMaximum", KIND_NUMBER, ROLE_ASK, TYPE_NUMBER},
    {"multipleOf", KIND_NUMBER, ROLE_ASK, TYPE_NUMBER},
    {"minLength", KIND_COUNT, ROLE_ASK, TYPE_STRING},
    {"maxLength", KIND_COUNT, ROLE_ASK, TYPE_STRING},
    {"pattern", KIND_STRING, ROLE_ASK, TYPE_STRING},
    {"format", KIND_STRING, ROLE_ASK, TYPE_STRING},
    {"prefixItems", KIND_SCHEMAS, ROLE_ASK, TYPE_ARRAY},
    {"items", KIND_SCHEMA, ROLE_ASK, TYPE_ARRAY},
    {"minItems", KIND_COUNT, ROLE_ASK, TYPE_ARRAY},
    {"maxItems", KIND_COUNT, ROLE_ASK, TYPE_ARRAY},
    {"contains", KIND_SCHEMA, ROLE_ASK, TYPE_ARRAY},
    {"minContains", KIND_COUNT, ROLE_ASK, TYPE_ARRAY},
    {"maxContains", KIND_COUNT, ROLE_ASK, TYPE_ARRAY},
    {"uniqueItems", KIND_BOOLEAN, ROLE_ASK, TYPE_ARRAY},
    {"properties", KIND_SCHEMA_MAP, ROLE_ASK, TYPE_OBJECT},
    {"patternProperties", KIND_SCHEMA_MAP, ROLE_ASK, TYPE_OBJECT},
    {"additionalProperties", KIND_SCHEMA, ROLE_ASK, TYPE_OBJECT},
    {"propertyNames", KIND_SCHEMA, ROLE_ASK, TYPE_OBJECT},
    {"required", KIND_STRINGS, ROLE_ASK, TYPE_OBJECT},
    {"minProperties", KIND_COUNT, ROLE_ASK, TYPE_OBJECT},
    {"maxProperties", KIND_COUNT, ROLE_ASK, TYPE_OBJECT},

    {"if", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"then", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"else", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"$dynamicRef", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"$dynamicAnchor", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"$recursiveRef", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"$recursiveAnchor", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"$vocabulary", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"nullable", KIND_ANY, ROLE_REFUSED, TYPE_ANY},
    {"contentEncoding", KIND_ANY, ROLE_REFUSED, TYPE_STRING},
    {"contentMediaType", KIND_ANY, ROLE_REFUSED, TYPE_STRING},
    {"contentSchema", KIND_ANY, ROLE_REFUSED, TYPE_STRING},
    {"additionalItems", KIND_ANY, ROLE_REFUSED, TYPE_ARRAY},
    {"unevaluatedItems", KIND_ANY, ROLE_REFUSED, TYPE_ARRAY},
    {"dependencies", KIND_ANY, ROLE_REFUSED, TYPE_OBJECT},
    {"dependentRequired", KIND_ANY, ROLE_REFUSED, TYPE_OBJECT},
    {"dependentSchemas", KIND_ANY, ROLE_REFUSED, TYPE_OBJECT},
    {"unevaluatedProperties", KIND_ANY, ROLE_REFUSED, TYPE_OBJECT},
};

static const struct {
    const char *name;
    unsigned types;
} type_names[] = {
    {"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
    {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
    {"object", TYPE_OBJECT},
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

/* ---- types ---- */

/* 0: no type of that name. */
static unsigned named_type(const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < sizeof type_names / sizeof *type_names; i++)
        if (strcmp(type_names[i].name, json_string_value(name)) == 0)
            return type_names[i].types;
    return 0;
}

/* 0: neither a type nor a list of types. */
static unsigned listed_types(const json_t *value)
{
    unsigned types = 0;
    const json_t *one;
    size_t i;

    if (!json_is_array(value))
        return named_type(value);
    json_array_foreach(value, i, one)
    {
        if (named_type(one) == 0)
            return 0;
        types |= named_type(one);
    }
    return types;
}

unsigned schema_types(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");

    return type ? listed_types(type) : TYPE_ANY;
}

/* ---- kinds ---- */

static bool is_schema(const json_t *value)
{
    return json_is_object(value) || json_is_boolean(value);
}

static bool is_count(const json_t *value)
{
    int64_t count;

    return json_integral(value, &count) && count >= 0;
}

static bool all_schemas(json_t *map)
{
    const char *key;
    json_t *value;

    if (!json_is_object(map))
        return false;
    json_object_foreach(map, key, value)
    {
        if (!is_schema(value))
            return false;
    }
    return true;
}

static bool all_in_list(const json_t *list, bool (*fits)(const json_t *value))
{
    const json_t *one;
    size_t i;

    if (!json_is_array(list))
        return false;
    json_array_foreach(list, i, one)
    {
        if (!fits(one))
            return false;
    }
    return true;
}

static bool is_string(const json_t *value)
{
    return json_is_string(value);
}

/* What the keyword should have been, NULL: it is. */
static const char *misfit(enum keyword_kind kind, json_t *value)
{
    switch (kind) {
    case KIND_ANY:
        break;
    case KIND_SCHEMA:
        return is_schema(value) ? NULL : "must be a schema (an object, or true or false)";
    case KIND_SCHEMAS:
        return json_array_size(value) > 0 && all_in_list(value, is_schema)
                   ? NULL
                   : "must be a list of schemas, at least one";
    case KIND_SCHEMA_MAP:
        return all_schemas(value) ? NULL : "must be an object whose members are schemas";
    case KIND_STRING:
        return json_is_string(value) ? NULL : "must be a string";
    case KIND_STRINGS:
        return all_in_list(value, is_string) ? NULL : "must be a list of strings";
    case KIND_NUMBER:
        return json_is_number(value) ? NULL : "must be a number";
    case KIND_COUNT:
        return is_count(value) ? NULL : "must be an integer, 0 or more";
    case KIND_BOOLEAN:
        return json_is_boolean(value) ? NULL : "must be true or false";
    case KIND_LIST:
        return json_array_size(value) > 0 ? NULL : "must be a list, not empty";
    case KIND_TYPE:
        return listed_types(value) != 0 ? NULL
                                        : "must be null, boolean, integer, number, string, array "
                                          "or object, or a list of those";
    }
    return NULL;
}

int schema_keywords_check(struct schema_compiler *compiler, const json_t *schema)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)schema, name, value)
    {
        const struct keyword *keyword = find_keyword(name);
        const char *wrong;

        if (!schema_spend(compiler,
                          16 + (int64_t)json_array_size(value) + (int64_t)json_object_size(value)))
            return E_TOO_LARGE;
        if (!keyword && strncmp(name, "x-", 2) == 0)
            continue;
        if (!keyword)
            return schema_refuse(compiler, E_UNSUPPORTED, schema, name,
                                 "is not known, so it cannot be enforced (names that begin with "
                                 "\"x-\" are ignored)");
        wrong = misfit(keyword->kind, value);
        if (wrong)
            return schema_refuse(compiler, E_INVALID, schema, name, "%s", wrong);
    }
    return 0;
}

bool schema_keywords_ask(const json_t *schema)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)schema, name, value)
    {
        const struct keyword *keyword = find_keyword(name);

        if (keyword && (keyword->role == ROLE_ASK || keyword->role == ROLE_REFUSED))
            return true;
    }
    return false;
}

int schema_keywords_refuse(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *schema = leaf->set.schemas[i];
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)schema, name, value)
        {
            const struct keyword *keyword = find_keyword(name);

            if (keyword && keyword->role == ROLE_REFUSED && (keyword->types & leaf->types))
                return schema_refuse(compiler, E_UNSUPPORTED, schema, name,
                                     "is not supported: it cannot be enforced while generating");
        }
    }
    return 0;
}

/* ---- counts ---- */

static int count_of(struct schema_compiler *compiler, const struct schema_set *set,
                    const char *keyword, bool largest, int32_t *ret_count)
{
    int64_t count = 0;
    bool found = false;

    for (uint32_t i = 0; i < set->count; i++) {
        const json_t *value = json_object_get(set->schemas[i], keyword);
        int64_t one = 0;

        if (!value)
            continue;
        if (!json_integral(value, &one) || one < 0 || one > SCHEMA_COUNT_MAX)
            return schema_refuse(compiler, E_TOO_LARGE, set->schemas[i], keyword,
                                 "may be %d at most", SCHEMA_COUNT_MAX);
        if (!found || (largest ? one > count : one < count))
            count = one;
        found = true;
    }
    if (found)
        *ret_count = (int32_t)count;
    return found;
}

int schema_count_largest(struct schema_compiler *compiler, const struct schema_set *set,
                         const char *keyword, int32_t *ret_count)
{
    return count_of(compiler, set, keyword, true, ret_count);
}

int schema_count_least(struct schema_compiler *compiler, const struct schema_set *set,
                       const char *keyword, int32_t *ret_count)
{
    return count_of(compiler, set, keyword, false, ret_count);
}

/* ---- not ---- */

/* Whether a schema asks nothing but that a value is one of some strings or null. */
static bool lists_texts(const json_t *schema)
{
    const json_t *listed = json_object_get(schema, "enum"), *constant, *one;
    const char *name;
    json_t *value;
    size_t i;

    json_object_foreach((json_t *)schema, name, value)
    {
        const struct keyword *keyword = find_keyword(name);

        if (!keyword ||
            (keyword->role != ROLE_NOTE && strcmp(name, "enum") != 0 && strcmp(name, "const") != 0))
            return false;
    }
    constant = json_object_get(schema, "const");
    if ((listed != NULL) == (constant != NULL))
        return false;
    if (constant)
        return json_is_string(constant) || json_is_null(constant);
    json_array_foreach(listed, i, one)
    {
        if (!json_is_string(one) && !json_is_null(one))
            return false;
    }
    return true;
}

static bool is_type_only(const json_t *schema)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)schema, name, value)
    {
        const struct keyword *keyword = find_keyword(name);

        if (!keyword || (keyword->role != ROLE_NOTE && keyword->kind != KIND_TYPE))
            return false;
    }
    return true;
}

static bool lists_null(const json_t *schema)
{
    const json_t *one;
    size_t i;

    if (json_is_null(json_object_get(schema, "const")))
        return true;
    json_array_foreach(json_object_get(schema, "enum"), i, one)
    {
        if (json_is_null(one))
            return true;
    }
    return false;
}

int schema_keywords_negate(struct schema_compiler *compiler, struct schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *schema = leaf->set.schemas[i];
        const json_t *negated = json_object_get(schema, "not");
        int r;

        if (!negated || json_is_false(negated))
            continue;
        if (json_is_true(negated)) {
            leaf->types = 0;
            continue;
        }
        r = schema_keywords_check(compiler, negated);
        if (r < 0)
            return r;
        if (is_type_only(negated))
            leaf->types &= ~schema_types(negated);
        else if (!lists_texts(negated))
            return schema_refuse(compiler, E_UNSUPPORTED, schema, "not",
                                 "is supported only with \"type\", or \"enum\" or \"const\" of "
                                 "strings and null");
        else if (lists_null(negated))
            leaf->types &= ~(unsigned)TYPE_NULL;
        if ((leaf->types & TYPE_NUMBER) == TYPE_FRACTION)
            return schema_refuse(compiler, E_UNSUPPORTED, schema, "not",
                                 "a number that is no integer cannot be enforced");
    }
    return 0;
}
