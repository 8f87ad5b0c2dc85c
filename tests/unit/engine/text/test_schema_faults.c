/* test_schema_faults.c -- protects: what cannot be enforced is refused by its name and place, never
 * ignored; schemas that would take ever longer, or are none, end in a fault, soon; no allocation
 * that fails is overlooked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "engine/text/schema.h"
#include "tests/lib/failing_malloc.h"

static int compile(const char *text, struct fault *fault)
{
    json_error_t error;
    json_t *schema = json_loads(text, JSON_DECODE_ANY, &error);
    struct grammar *grammar = NULL;
    int r;

    if (!schema)
        fail_msg("%s: %s", text, error.text);
    r = schema_compile(schema, NULL, &grammar, fault);
    grammar_close(grammar);
    json_decref(schema);
    return r;
}

struct refusal {
    const char *schema;
    int code;
    const char *keyword; /* as the fault names it, with the place */
};

static const struct refusal refusals[] = {
    {"{\"if\":{}}", E_UNSUPPORTED, "\"if\" at #:"},
    {"{\"properties\":{\"a\":{\"then\":{}}}}", E_UNSUPPORTED, "\"then\" at #/properties/a:"},
    {"{\"items\":{\"else\":{}}}", E_UNSUPPORTED, "\"else\" at #/items:"},
    {"{\"properties\":{\"a/b~\":{\"minimun\":1}}}", E_UNSUPPORTED,
     "\"minimun\" at #/properties/a~1b~0:"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", E_UNSUPPORTED, "\"uniqueItems\" at #:"},
    {"{\"contains\":{\"type\":\"null\"},\"maxContains\":2}", E_UNSUPPORTED, "\"contains\" at #:"},
    {"{\"contains\":{},\"maxItems\":1,\"uniqueItems\":true}", E_UNSUPPORTED, "\"contains\" at #:"},
    {"{\"items\":{\"enum\":[1,2]},\"contains\":{\"const\":1},\"uniqueItems\":true}", E_UNSUPPORTED,
     "\"uniqueItems\" at #:"},
    {"{\"items\":{\"enum\":[1,1.0]},\"uniqueItems\":true}", E_UNSUPPORTED, "\"uniqueItems\" at #:"},
    {"{\"items\":{\"enum\":[[1],[1.0]]},\"uniqueItems\":true}", E_UNSUPPORTED,
     "\"uniqueItems\" at #:"},
    {"{\"not\":{\"required\":[\"a\"]}}", E_UNSUPPORTED, "\"not\" at #:"},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", E_UNSUPPORTED, "\"not\" at #:"},
    {"{\"dependentRequired\":{\"a\":[\"b\"]}}", E_UNSUPPORTED, "\"dependentRequired\" at #:"},
    {"{\"dependentSchemas\":{}}", E_UNSUPPORTED, "\"dependentSchemas\" at #:"},
    {"{\"unevaluatedProperties\":false}", E_UNSUPPORTED, "\"unevaluatedProperties\" at #:"},
    {"{\"unevaluatedItems\":false}", E_UNSUPPORTED, "\"unevaluatedItems\" at #:"},
    {"{\"type\":\"string\",\"format\":\"regex\"}", E_UNSUPPORTED, "\"format\" at #:"},
    {"{\"contentEncoding\":\"base64\"}", E_UNSUPPORTED, "\"contentEncoding\" at #:"},
    {"{\"$dynamicRef\":\"#a\"}", E_UNSUPPORTED, "\"$dynamicRef\" at #:"},
    {"{\"$ref\":\"https://example.com/a\"}", E_UNSUPPORTED, "\"$ref\" at #:"},
    {"{\"allOf\":[{},{\"$ref\":\"other.json\"}]}", E_UNSUPPORTED, "\"$ref\" at #/allOf/1:"},
    {"{\"enum\":[[1]],\"minItems\":2}", E_UNSUPPORTED, "\"minItems\" at #:"},
    {"{\"type\":\"number\",\"maximum\":1e60}", E_UNSUPPORTED, "\"maximum\" at #:"},
    {"{\"$ref\":\"#/$defs/none\"}", E_INVALID, "\"$ref\" at #:"},
    {"{\"$ref\":\"#none\"}", E_INVALID, "\"$ref\" at #:"},
    {"{\"type\":\"text\"}", E_INVALID, "\"type\" at #:"},
    {"{\"type\":[]}", E_INVALID, "\"type\" at #:"},
    {"{\"enum\":[]}", E_INVALID, "\"enum\" at #:"},
    {"{\"anyOf\":[]}", E_INVALID, "\"anyOf\" at #:"},
    {"{\"allOf\":{}}", E_INVALID, "\"allOf\" at #:"},
    {"{\"items\":[{}]}", E_INVALID, "\"items\" at #:"},
    {"{\"minLength\":-1}", E_INVALID, "\"minLength\" at #:"},
    {"{\"minLength\":\"1\"}", E_INVALID, "\"minLength\" at #:"},
    {"{\"minimum\":true}", E_INVALID, "\"minimum\" at #:"},
    {"{\"multipleOf\":0}", E_INVALID, "\"multipleOf\" at #: must be above 0"},
    {"{\"multipleOf\":-1e-300}", E_INVALID, "must be above 0"},
    {"{\"multipleOf\":-1e300}", E_INVALID, "must be above 0"},
    {"{\"multipleOf\":1e-300}", E_UNSUPPORTED, "more than 9 decimals: smaller steps"},
    {"{\"multipleOf\":1e-10}", E_UNSUPPORTED, "more than 9 decimals: smaller steps"},
    {"{\"multipleOf\":1e300}", E_UNSUPPORTED, "up to"},
    {"{\"required\":[1]}", E_INVALID, "\"required\" at #:"},
    {"{\"properties\":{\"a\":1}}", E_INVALID, "\"properties\" at #:"},
    {"{\"$ref\":\"#\"}", E_INVALID, "itself"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", E_INVALID, "itself"},
    {"{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},"
     "\"$ref\":\"#/$defs/a\"}",
     E_INVALID, "\"$ref\""},
    {"{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"items\":{\"$ref\":\"#/$defs/"
     "a\"}}",
     E_INVALID, "itself"},
    {"1", E_INVALID, "must be an object"},
    {"[]", E_INVALID, "must be an object"},
    {"\"x\"", E_INVALID, "must be an object"},
    /* nothing fits */
    {"false", E_INVALID, "no value"},
    {"{\"type\":\"string\",\"enum\":[1]}", E_INVALID, "no value"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", E_INVALID, "no value"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", E_INVALID, "no value"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", E_INVALID,
     "no value"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     E_INVALID, "no value"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", E_INVALID, "no value"},
    /* too large */
    {"{\"type\":\"string\",\"maxLength\":99999999999}", E_TOO_LARGE, "\"maxLength\" at #:"},
    {"{\"type\":\"array\",\"minItems\":2000000000}", E_TOO_LARGE, "\"minItems\" at #:"},
    {"{\"type\":\"object\",\"minProperties\":2000000000}", E_TOO_LARGE, "\"minProperties\" at #:"},
    {"{\"type\":\"integer\",\"multipleOf\":99999}", E_TOO_LARGE, "multipleOf"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];
        struct fault fault = {0};
        int r = compile(refusal->schema, &fault);

        if (r != refusal->code || fault.code != r || !strstr(fault.message, refusal->keyword))
            fail_msg("%s gives %d, '%s'", refusal->schema, r, fault.message);
        assert_int_equal(compile(refusal->schema, NULL), refusal->code);
    }
}

static const char *const taken[] = {
    "true",
    "{}",
    "{\"title\":1,\"description\":\"\",\"default\":null,\"examples\":[],\"$schema\":\"x\","
    "\"$id\":\"y\",\"$comment\":\"z\",\"deprecated\":true,\"readOnly\":true,\"writeOnly\":true,"
    "\"x-own\":{},\"$defs\":{\"unused\":{\"if\":{}}}}",
    "{\"$id\":\"https://e.com/s\",\"$defs\":{\"a b\":{\"$anchor\":\"q\",\"type\":\"null\"}},"
    "\"allOf\":[{\"$ref\":\"#q\"},{\"$ref\":\"#/$defs/a%20b\"},{\"$ref\":\"https://e.com/s#q\"}]}",
    "{\"type\":\"integer\",\"uniqueItems\":true,\"contentEncoding\":\"base64\"}",
    "{\"type\":\"array\",\"uniqueItems\":false}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}",
    "{\"items\":{\"enum\":[1,2,3,\"a\"]},\"uniqueItems\":true}",
    "{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"minContains\":2}",
    "{\"not\":{\"const\":\"a\"}}",
    "{\"not\":{\"type\":[\"string\",\"null\"]}}",
    "{\"not\":false}",
    "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
};

static void test_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct fault fault = {0};

        if (compile(taken[i], &fault) != 0)
            fail_msg("%s: %s", taken[i], fault.message);
    }
}

/* ---- hostile ---- */

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Ends within the time whatever comes of it; compiles `schema`, which is freed. */
static int compile_soon(json_t *schema, double seconds, struct fault *fault)
{
    struct grammar *grammar = NULL;
    double start = seconds_now();
    int r;

    assert_non_null(schema);
    r = schema_compile(schema, NULL, &grammar, fault);
    if (seconds_now() - start > seconds)
        fail_msg("%.3f s: %s", seconds_now() - start, fault->message);
    grammar_close(grammar);
    json_decref(schema);
    return r;
}

/* allOf of `count` times an anyOf of two objects. */
static json_t *product_of_choices(int count)
{
    json_t *all = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(all,
                              json_pack("{s:[{s:{s:{s:s}}},{s:{s:{s:s}}}]}", "anyOf", "properties",
                                        "a", "type", "string", "properties", "b", "type", "null"));
    return json_pack("{s:o}", "allOf", all);
}

/* $defs a0 .. an, each of which asks for the next one twice. */
static json_t *doubling_references(int count, const char *join)
{
    json_t *defs = json_object();
    char name[16], reference[32];

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a%d", i);
        snprintf(reference, sizeof reference, "#/$defs/a%d", i + 1);
        json_object_set_new(
            defs, name, json_pack("{s:[{s:s},{s:s}]}", join, "$ref", reference, "$ref", reference));
    }
    snprintf(name, sizeof name, "a%d", count);
    json_object_set_new(defs, name, json_pack("{s:s}", "type", "null"));
    return json_pack("{s:o,s:s}", "$defs", defs, "$ref", "#/$defs/a0");
}

static json_t *nested_arrays(int depth)
{
    json_t *schema = json_pack("{s:s}", "type", "null");

    for (int i = 0; i < depth; i++)
        schema = json_pack("{s:s,s:o}", "type", "array", "items", schema);
    return schema;
}

static json_t *chain_of_references(int count)
{
    json_t *defs = json_object();
    char name[16], reference[32];

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "a%d", i);
        snprintf(reference, sizeof reference, "#/$defs/a%d", i + 1);
        json_object_set_new(defs, name, json_pack("{s:s,s:{}}", "$ref", reference, "properties"));
    }
    snprintf(name, sizeof name, "a%d", count);
    json_object_set_new(defs, name, json_pack("{s:s}", "type", "null"));
    return json_pack("{s:o,s:s}", "$defs", defs, "$ref", "#/$defs/a0");
}

static json_t *many_properties(int count, const char *type)
{
    json_t *properties = json_object(), *required = json_array();
    char name[32];

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "property_%d", i);
        json_object_set_new(properties, name, json_pack("{s:s}", "type", type));
        if (i % 2)
            json_array_append_new(required, json_string(name));
    }
    return json_pack("{s:s,s:o,s:o}", "type", "object", "properties", properties, "required",
                     required);
}

static void test_hostile(void **state)
{
    struct fault fault = {0};
    json_t *schema;

    (void)state;
    assert_int_equal(compile_soon(product_of_choices(40), 1, &fault), E_TOO_LARGE);
    assert_int_equal(compile_soon(product_of_choices(400), 1, &fault), E_TOO_LARGE);
    assert_int_equal(compile_soon(doubling_references(60, "allOf"), 1, &fault), 0);
    assert_int_equal(compile_soon(doubling_references(60, "anyOf"), 1, &fault), E_TOO_LARGE);
    assert_int_equal(compile_soon(nested_arrays(1000), 1, &fault), 0);
    assert_int_equal(compile_soon(chain_of_references(10000), 1, &fault), E_TOO_LARGE);
    assert_int_equal(compile_soon(many_properties(100000, "string"), 2, &fault), E_TOO_LARGE);
    schema = many_properties(3000, "string");
    json_object_set_new(schema, "maxProperties", json_integer(2000));
    assert_int_equal(compile_soon(schema, 1, &fault), E_TOO_LARGE);
}

/* 100 properties, open: names of others must be told from all of them. */
static void test_hundred_properties(void **state)
{
    double least = 1e9;

    (void)state;
    for (int i = 0; i < 5; i++) {
        json_t *schema = many_properties(100, i % 2 ? "string" : "integer");
        struct grammar *grammar = NULL;
        double start = seconds_now(), taken_s;

        assert_int_equal(schema_compile(schema, NULL, &grammar, NULL), 0);
        taken_s = seconds_now() - start;
        least = taken_s < least ? taken_s : least;
        grammar_close(grammar);
        json_decref(schema);
    }
    printf("100 properties compile in %.2f ms\n", least * 1e3);
    assert_true(least < 0.020);
}

/* ---- choices, and any value ---- */

static void test_choice(void **state)
{
    const char *texts[] = {"yes", "no", "\xff"};
    size_t bytes[] = {3, 2, 1};
    struct grammar *grammar = NULL;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(schema_choice(texts, bytes, 2, &grammar, &fault), 0);
    grammar_close(grammar);
    assert_int_equal(schema_choice(texts, bytes, 0, &grammar, &fault), E_INVALID);
    assert_int_equal(schema_choice(texts, bytes, 3, &grammar, &fault), E_INVALID);
    assert_true(strstr(fault.message, "UTF-8") != NULL);
}

static const char of_everything[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3},\"b\":{"
    "\"enum\":[\"x\",\"y\",1,{\"k\":[1.5]}]},\"c\":{\"type\":\"string\",\"maxLength\":4},\"d\":{"
    "\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]},\"f\":{\"type\":\"string\","
    "\"pattern\":\"^[a-c]+$\",\"minLength\":2,\"format\":\"hostname\","
    "\"not\":{\"const\":\"aa\"}},\"g\":{\"items\":{\"enum\":[1,2]},\"uniqueItems\":true},"
    "\"h\":{\"type\":\"array\",\"contains\":{\"type\":\"null\"}},"
    "\"i\":{\"type\":\"string\",\"pattern\":\"^a{20000}$\"}},"
    "\"patternProperties\":{\"^p\":{\"type\":\"null\"}},"
    "\"required\":[\"b\",\"e\"],"
    "\"minProperties\":3,\"propertyNames\":{\"maxLength\":9},\"additionalProperties\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"number\",\"maximum\":2.5},\"prefixItems\":[true],"
    "\"minItems\":1}}";

static int build_all(const json_t *schema)
{
    const char *texts[] = {"yes", "no"};
    size_t bytes[] = {3, 2};
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    int r = schema_compile(schema, NULL, &grammar, &fault);

    if (r == 0)
        grammar_close(grammar);
    if (r == 0 && (r = schema_choice(texts, bytes, 2, &grammar, &fault)) == 0)
        grammar_close(grammar);
    if (r == 0 && (r = schema_any_object(NULL, &grammar, &fault)) == 0)
        grammar_close(grammar);
    if (r == 0 && (r = schema_any_value(NULL, &grammar, &fault)) == 0)
        grammar_close(grammar);
    if (r < 0)
        assert_int_equal(fault.code, r);
    return r;
}

static void test_without_memory(void **state)
{
    json_t *schema = json_loads(of_everything, 0, NULL);

    (void)state;
    assert_non_null(schema);
    for (uint64_t n = 1;; n++) {
        int r;

        failing_malloc_arm(n);
        r = build_all(schema);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            break;
        }
        if (r != E_MEMORY)
            fail_msg("allocation %d: %d", (int)n, r);
    }
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_taken),
        cmocka_unit_test(test_hostile),  cmocka_unit_test(test_hundred_properties),
        cmocka_unit_test(test_choice),   cmocka_unit_test(test_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
