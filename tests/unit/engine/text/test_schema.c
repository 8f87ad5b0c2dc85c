/* test_schema.c -- protects: each keyword allows exactly what it should: texts that fit, at the
 * borders, and texts that just do not. The reference cases are in golden/test_constrained_schema.c;
 * here stands what those leave out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/constraint.h"
#include "engine/text/schema.h"

enum { TEXTS_MAX = 14 };

struct sample {
    const char *schema;
    const char *fits[TEXTS_MAX];
    const char *misfits[TEXTS_MAX];
};

static bool accepts(struct constraint *constraint, const char *text)
{
    struct constraint_state *state = NULL;
    size_t taken;
    bool complete;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    complete = constraint_state_bytes(state, text, strlen(text), &taken, NULL) == 1 &&
               constraint_state_is_complete(state);
    constraint_state_close(state);
    return complete;
}

static struct constraint *constraint_of(struct grammar *grammar)
{
    struct constraint *constraint = NULL;
    struct fault fault = {0};

    if (constraint_open(grammar, NULL, NULL, &constraint, &fault) < 0)
        fail_msg("%s", fault.message);
    grammar_close(grammar);
    return constraint;
}

static void check(const struct sample *sample)
{
    json_t *schema = json_loads(sample->schema, JSON_DECODE_ANY, NULL);
    struct grammar *grammar = NULL;
    struct constraint *constraint;
    struct fault fault = {0};

    if (!schema || schema_compile(schema, NULL, &grammar, &fault) < 0)
        fail_msg("%s: %s", sample->schema, fault.message);
    constraint = constraint_of(grammar);
    for (int i = 0; i < TEXTS_MAX && sample->fits[i]; i++)
        if (!accepts(constraint, sample->fits[i]))
            fail_msg("%s refuses %s", sample->schema, sample->fits[i]);
    for (int i = 0; i < TEXTS_MAX && sample->misfits[i]; i++)
        if (accepts(constraint, sample->misfits[i]))
            fail_msg("%s accepts %s", sample->schema, sample->misfits[i]);
    constraint_close(constraint);
    json_decref(schema);
}

static void check_all(const struct sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check(&samples[i]);
}
#define CHECK_ALL(samples) check_all(samples, sizeof(samples) / sizeof *(samples))

static void test_numbers(void **state)
{
    static const struct sample samples[] = {
        {"{\"type\":\"integer\",\"multipleOf\":6,\"minimum\":-12,\"maximum\":40}",
         {"-12", "-6", "0", "6", "36"},
         {"-18", "-0", "3", "42", "06", "6.0", "-"}},
        {"{\"type\":\"integer\",\"multipleOf\":2.5}",
         {"0", "5", "-25", "12345678901234567890"},
         {"2", "2.5", "3"}},
        {"{\"type\":\"integer\",\"multipleOf\":1000}",
         {"0", "1000", "-25000", "10000000"},
         {"100", "1", "1500", "000"}},
        {"{\"type\":\"number\",\"multipleOf\":0.05}",
         {"0", "0.05", "0.1", "0.10", "-2.95", "7"},
         {"0.01", "0.051", "0.005", "1e1"}},
        {"{\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}],\"type\":\"integer\"}",
         {"12", "24", "0"},
         {"4", "6", "18"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":2}",
         {"-1", "0", "1"},
         {"-2", "2", "-0"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.1,\"maximum\":100}",
         {"0.11", "100", "100.0", "99.999", "0.1000001"},
         {"0.1", "0.10", "0", "100.1", "100.01", "-1"}},
        {"{\"type\":\"number\",\"minimum\":-0.5,\"maximum\":0.5}",
         {"-0.5", "0.5", "0", "0.25", "-0.0625"},
         {"-0.51", "0.6", "1", "-1", "-0", "5e-1"}},
        {"{\"type\":\"number\",\"minimum\":0}", {"0", "1e5", "2.5E-3", "7"}, {"-1", "-0", "1e"}},
        {"{\"type\":\"integer\",\"minimum\":9223372036854775807}",
         {"9223372036854775807", "9223372036854775808", "10000000000000000000"},
         {"9223372036854775806", "922337203685477580", "0"}},
        {"{\"allOf\":[{\"minimum\":3},{\"minimum\":5,\"maximum\":9},{\"exclusiveMaximum\":9}],"
         "\"type\":\"integer\"}",
         {"5", "8"},
         {"4", "9"}},
        {"{\"type\":\"number\",\"minimum\":1e-7,\"maximum\":2e-7}",
         {"0.0000001", "0.00000015", "0.0000002"},
         {"0.00000009", "0.0000003", "0", "1"}},
        {"{\"type\":\"integer\"}", {"12345678901234567890"}, {"123456789012345678901", "1e3"}},
        {"{\"type\":\"number\"}", {"1e279", "1E-07"}, {"1e280", "1e999", "1e1000"}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_strings(void **state)
{
    static const struct sample samples[] = {
        {"{\"type\":\"string\"}",
         {"\"\\u0041\\ud83d\\ude00\\uFFFF\"", "\"\x7f\"", "\"\\b\\f\\n\\r\\t\\/\""},
         {"\"\\ud800\"", "\"\\udc00\"", "\"\\ud83d\\u0041\"", "\"\t\"", "\"\xff\"",
          "\"\xc0\x80\""}},
        {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":1}",
         {"\"a\"", "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", "\"\\u0041\"", "\"\\n\""},
         {"\"\"", "\"ab\"", "\"\\ud83d\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[\\\"\\n/\\u00e9\\ud83d\\ude00]$\"}",
         {"\"\\\"\"", "\"\\n\"", "\"/\"", "\"\\/\"", "\"\xc3\xa9\"", "\"\\u00e9\"", "\"\\u00E9\"",
          "\"\\uD83D\\uDE00\"", "\"\\u000a\""},
         {"\"\"\"", "\"\n\"", "\"e\"", "\"\\\\\"", "\"\\ud83d\\ude01\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"bb\"", "\"aba\"",
          "\"\xc3\xa9"
          "b\""},
         {"\"b\"", "\"aaaa\"", "\"aab\xc3\xa9\"", "\"ac\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a/\xc3\xa9]{3,20000}=!$\"}",
         {"\"aaa=!\"", "\"a\\/\\u00e9/=!\""},
         {"\"aa=!\"", "\"aaab=!\"", "\"aaa\""}},
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"abc\"]}}",
         {"\"\"", "\"ab\"", "\"abcd\"", "\"b\"", "\"\\n\""},
         {"\"a\"", "\"abc\"", "1"}},
        {"{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "null", "[\"\"]"}, {"\"\"", "{}"}},
        {"{\"type\":[\"string\",\"null\"],\"not\":{\"const\":null}}", {"\"null\""}, {"null"}},
        {"{\"enum\":[\"a/b\",\"\\u0001\",\"\xf0\x9f\x98\x80\",\"\"]}",
         {"\"a/b\"", "\"\\u0001\"", "\"\xf0\x9f\x98\x80\"", "\"\""},
         {"\"a\"", "\"\x01\"", "\"\\\"\""}},
        {"{\"enum\":[1,2.5,1.0,\"abc\",\"ab\",[1,{\"a\":null}],{}],\"maximum\":2,\"minLength\":3}",
         {"1", "1.0", "\"abc\"", "[1,{\"a\":null}]", "[1, {\"a\": null}]", "{}"},
         {"2.5", "\"ab\"", "[1]"}},
        {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]},{\"not\":{\"const\":null}}],\"type\":"
         "\"integer\"}",
         {"2", "3"},
         {"1", "4"}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_formats(void **state)
{
    static const struct sample samples[] = {
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0001-01-01\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"0000-01-01\"", "\"2024-04-31\"", "\"2024-00-01\"",
          "\"x2024-02-29\"", "\"0000-02-29\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}",
         {"\"23:59:59Z\"", "\"00:00:00.123+02:00\"", "\"12:30:00-23:59\""},
         {"\"24:00:00Z\"", "\"23:60:00Z\"", "\"12:30:00\"", "\"12:30Z\"", "\"12:30:00+24:00\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-29T12:00:00Z\"", "\"2024-01-01T00:00:00.5-07:00\""},
         {"\"2024-02-30T12:00:00Z\"", "\"2024-02-29 12:00:00Z\"", "\"2024-02-29\""}},
        {"{\"type\":\"string\",\"format\":\"duration\"}",
         {"\"P1Y2M3DT4H5M6S\"", "\"PT1S\"", "\"P3W\"", "\"P1D\"", "\"PT5M\"", "\"P2MT1H\""},
         {"\"P\"", "\"PT\"", "\"P1YT\"", "\"P1W2D\"", "\"1D\"", "\"P1Y3D\"", "\"PT1H2S\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}",
         {"\"a@b.c\"", "\"first.last+tag@example.com\""},
         {"\"a\"", "\"@b.c\"", "\"a@\"", "\"a..b@c.d\"", "\"a b@c.d\""}},
        {"{\"type\":\"string\",\"format\":\"hostname\"}",
         {"\"example.com\"", "\"a\"", "\"x-1.y2\""},
         {"\"-a\"", "\"a-\"", "\"a..b\"", "\"\"", "\"a_b\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}",
         {"\"0.0.0.0\"", "\"255.249.199.99\""},
         {"\"256.0.0.0\"", "\"1.2.3\"", "\"01.2.3.4\"", "\"1.2.3.4.5\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1\"", "\"1::8\"",
          "\"1:2:3:4:5:6:7::\"", "\"1:2:3:4:5:6:1.2.3.4\"", "\"1::3:4:5:6:7:8\""},
         {"\"1:2:3\"", "\":::\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\"", "\"1::2::3\"", "\":1\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"\"https://example.com/a?b=c#d\"", "\"mailto:a@b.c\"", "\"urn:x:y\"",
          "\"http://u@h:80/%7Ex\""},
         {"\"example.com\"", "\"http://a b\"", "\"//x\"", "\"1a:b\"", "\"http://h/%zz\""}},
        {"{\"type\":\"string\",\"format\":\"json-pointer\"}",
         {"\"\"", "\"/a/0/~0~1\"", "\"/\""},
         {"\"a\"", "\"/~2\"", "\"/~\""}},
        {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^20\"}",
         {"\"2024-02-29\""},
         {"\"1999-01-01\""}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_objects(void **state)
{
    static const struct sample samples[] = {
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"required\":["
         "\"c\","
         "\"a\"],\"type\":\"object\"}",
         {"{\"a\":null,\"c\":1}", "{\"a\": null, \"b\": null, \"c\": [1, 2], \"d\": {}}"},
         {"{\"a\":null}", "{\"c\":1}", "{\"a\":null,\"c\":1,\"a\":1}",
          "{\"a\":null,\"c\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":3}",
         {"{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"b\"],"
         "\"maxProperties\":2,\"minProperties\":2,\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":2}", "{\"b\":1,\"d\":null}"},
         {"{\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"d\":1}"}},
        {"{\"type\":\"object\",\"maxProperties\":0}", {"{}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"z$\":{"
         "\"maximum\":5}},\"additionalProperties\":{\"type\":\"string\"}}",
         {"{\"a\":9}", "{\"az\":5}", "{\"z\":3,\"z2\":\"\"}", "{\"z\":\"any\"}", "{\"b\":\"\"}"},
         {"{\"a\":\"\"}", "{\"az\":6}", "{\"az\":1.5}", "{\"b\":1}", "{\"z\":6}"}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"minimum\":2}},\"patternProperties\":{"
         "\"^a\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
         {"{\"ab\":2}", "{\"ab\":2,\"ac\":1}", "{\"a\":1}", "{}"},
         {"{\"ab\":1}", "{\"ab\":2.5}", "{\"b\":1}", "{\"ab\":\"\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":2},"
         "\"properties\":{\"abc\":{}}}",
         {"{\"ab\":1}", "{}"},
         {"{\"abc\":1}", "{\"A\":1}", "{\"\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\",1]}}",
         {"{\"x\":1,\"y\":2}", "{}"},
         {"{\"z\":1}", "{\"\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":false}", {"{}"}, {"{\"a\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{"
         "\"type\":\"null\"}},{\"properties\":{\"b\":{}}}],\"type\":\"object\"}",
         {"{\"a\":1,\"b\":null}", "{\"c\":null}"},
         {"{\"b\":1}", "{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
         {"{\"b\":1}", "{\"c\":1}"},
         {"{\"a\":1}", "{\"b\":1,\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[1]},\"b\":{}}}",
         {"{\"b\":1}"},
         {"{\"a\":1}", "{\"a\":\"\"}"}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_arrays(void **state)
{
    static const struct sample samples[] = {
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],"
         "\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":4}",
         {"[null]", "[null,true]", "[null,true,1]", "[null, true, 1, 2]"},
         {"[]", "[true]", "[null,true,1,2,3]", "[null,true,null]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{},{}],\"maxItems\":1}",
         {"[]", "[null]"},
         {"[null,1]", "[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"minItems\":3}",
         {"[null,1,\"\"]", "[null,1,2,3]"},
         {"[null,1]", "[1,1,1]"}},
        {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{},false]}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":70,\"maxItems\":70}",
         {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
          "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"},
         {"[1,1,1]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,\"a\"]},\"uniqueItems\":true,\"minItems\":"
         "2}",
         {"[1,2]", "[\"a\",1]", "[2,\"a\",1]"},
         {"[1]", "[1,1]", "[1,2,1]", "[1,2,\"a\",1]", "[]"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"items\":{\"type\":[\"null\","
         "\"integer\"]},\"minContains\":2}",
         {"[null,null]", "[1,null,2,null,3]", "[null,null,null]"},
         {"[]", "[null]", "[1,null]", "[null,\"\",null]"}},
        {"{\"allOf\":[{\"contains\":{\"type\":\"null\"},\"minContains\":0},{\"contains\":{\"type\":"
         "\"integer\"}}],\"type\":\"array\"}",
         {"[1]", "[null,1]"},
         {"[]", "[null]"}},
        {"{\"allOf\":[{\"prefixItems\":[{\"minimum\":3}]},{\"items\":{\"type\":\"integer\"}}],"
         "\"type\":\"array\"}",
         {"[3,1]", "[]"},
         {"[2]", "[3.5]", "[3,\"\"]"}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_combinations(void **state)
{
    static const struct sample samples[] = {
        {"true", {"1", "{}", "[[]]"}, {""}},
        {"{\"anyOf\":[{\"type\":\"integer\",\"minimum\":5},{\"const\":1},false]}",
         {"1", "5"},
         {"2", "\"\""}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"integer\"}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],"
         "\"additionalProperties\":false}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
         {"{}", "{\"c\":1}"}},
        {"{\"oneOf\":[{\"$ref\":\"#/definitions/n\"},{\"type\":\"null\"}],\"definitions\":{\"n\":{"
         "\"type\":\"integer\"}}}",
         {"1", "null"},
         {"\"\""}},
        {"{\"$ref\":\"#s\",\"maxLength\":2,\"$defs\":{\"x\":{\"$anchor\":\"s\",\"type\":\"string\","
         "\"minLength\":1}}}",
         {"\"a\"", "\"ab\""},
         {"\"\"", "\"abc\""}},
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]},{\"anyOf\":[{"
         "\"minimum\":3,\"maxLength\":1},{\"maximum\":1,\"minLength\":3}]}]}",
         {"3", "1", "\"a\"", "\"abc\""},
         {"2", "\"ab\"", "null"}},
        {"{\"properties\":{\"next\":{\"$ref\":\"#\"}},\"type\":\"object\",\"additionalProperties\":"
         "false}",
         {"{}", "{\"next\":{}}", "{\"next\":{\"next\":{}}}"},
         {"{\"next\":1}", "{\"next\":{\"a\":1}}"}},
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/anyOf/0\"}},"
         "\"required\":[\"a\"]},{\"type\":\"null\"}]}",
         {"null"},
         {"{\"a\":null}", "{\"a\":{}}"}},
    };

    (void)state;
    CHECK_ALL(samples);
}

static void test_choice(void **state)
{
    const char *texts[] = {"yes", "no", "not \"so\"", ""};
    size_t bytes[] = {3, 2, 8, 0};
    struct grammar *grammar = NULL;
    struct constraint *constraint;

    (void)state;
    assert_int_equal(schema_choice(texts, bytes, 4, &grammar, NULL), 0);
    constraint = constraint_of(grammar);
    for (int i = 0; i < 4; i++)
        assert_true(accepts(constraint, texts[i]));
    assert_false(accepts(constraint, "ye"));
    assert_false(accepts(constraint, "not"));
    assert_false(accepts(constraint, "\"yes\""));
    constraint_close(constraint);
}

static void test_any(void **state)
{
    struct schema_options options = {.space = SCHEMA_SPACE_FREE};
    struct grammar *grammar = NULL;
    struct constraint *constraint;

    (void)state;
    assert_int_equal(schema_any_object(&options, &grammar, NULL), 0);
    constraint = constraint_of(grammar);
    assert_true(accepts(constraint, "{\n  \"a\": [\n    1,\n    {}\n  ]\n}"));
    assert_false(accepts(constraint, "[]"));
    assert_false(accepts(constraint, "{} "));
    assert_false(accepts(constraint, "{\n\n\n}"));
    constraint_close(constraint);
    assert_int_equal(schema_any_value(NULL, &grammar, NULL), 0);
    constraint = constraint_of(grammar);
    assert_true(accepts(constraint, "[1, \"a\", null]"));
    assert_false(accepts(constraint, "[1,\n2]"));
    constraint_close(constraint);
}

/* A schema as a part of a larger grammar: <call>SCHEMA</call>. */
static void test_part(void **state)
{
    json_t *schema = json_loads("{\"type\":\"integer\"}", 0, NULL);
    struct grammar *grammar = NULL;
    struct constraint *constraint;
    int32_t nodes[3], rule;

    (void)state;
    assert_int_equal(grammar_open(SCHEMA_NODE_MAX, &grammar, NULL), 0);
    nodes[0] = grammar_literal(grammar, "<call>", 6);
    nodes[2] = grammar_literal(grammar, "</call>", 7);
    assert_int_equal(schema_build(grammar, schema, NULL, &nodes[1], NULL), 0);
    rule = grammar_rule(grammar, "root");
    assert_int_equal(grammar_define(grammar, rule, grammar_sequence(grammar, nodes, 3)), 0);
    grammar_set_root(grammar, rule);
    constraint = constraint_of(grammar);
    assert_true(accepts(constraint, "<call>-12</call>"));
    assert_false(accepts(constraint, "<call></call>"));
    constraint_close(constraint);
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_strings),
        cmocka_unit_test(test_formats), cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),  cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_choice),  cmocka_unit_test(test_any),
        cmocka_unit_test(test_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
