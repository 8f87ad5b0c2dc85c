/* test_schema_plain.c -- protects: text without markers is every text but those that hold one,
 * wherever it begins; a schema's strings as they stand have its lengths, patterns and enums and no
 * marker; constants and strings for Python are Python's; references are resolved in the schema
 * around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/text/constraint.h"
#include "engine/text/schema.h"

enum { TEXT_BYTES = 12, NODES = 1 << 14, ROUNDS = 4000 };

static struct grammar *grammar_new(void)
{
    struct grammar *grammar;

    assert_int_equal(grammar_open(NODES, &grammar, NULL), 0);
    return grammar;
}

/* Takes the grammar. */
static struct constraint *finish(struct grammar *grammar, int32_t node)
{
    int32_t rule = grammar_rule(grammar, "root");
    struct constraint *constraint;

    assert_int_equal(grammar_define(grammar, rule, node), 0);
    grammar_set_root(grammar, rule);
    assert_int_equal(constraint_open(grammar, NULL, NULL, &constraint, NULL), 0);
    grammar_close(grammar);
    return constraint;
}

static bool accepts(struct constraint *constraint, const char *text)
{
    struct constraint_state *state;
    size_t taken;
    bool all;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    all = constraint_state_bytes(state, text, strlen(text), &taken, NULL) == 1 &&
          constraint_state_is_complete(state);
    constraint_state_close(state);
    return all;
}

/* --- text between markers --------------------------------------------------------------------- */

static uint32_t random_below(uint32_t bound)
{
    static uint64_t state = 3;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % bound;
}

static bool holds_marker(const char *text, const struct schema_markers *markers)
{
    for (size_t i = 0; i < markers->count; i++) {
        if (strstr(text, markers->texts[i]))
            return true;
    }
    return false;
}

/* Random texts of the markers' own letters, against a plain search. */
static void against_search(const struct schema_markers *markers, const char *head)
{
    static const char letters[] = "<<>abc/{ \n";
    struct grammar *grammar = grammar_new();
    struct constraint *constraint;
    unsigned held = 0;
    struct fault fault;
    int32_t node;

    assert_int_equal(schema_build_plain(grammar, markers, head, &node, &fault), 0);
    constraint = finish(grammar, node);
    for (unsigned round = 0; round < ROUNDS; round++) {
        char text[TEXT_BYTES + 1] = "";
        uint32_t bytes = random_below(TEXT_BYTES + 1);
        const char *first;
        bool expected;

        for (uint32_t i = 0; i < bytes; i++)
            text[i] = letters[random_below(sizeof letters - 1)];
        first = text + strspn(text, " \n");
        expected = !holds_marker(text, markers) && !(*first && strchr(head, *first));
        held += !expected;
        if (accepts(constraint, text) != expected)
            fail_msg("'%s' is %s", text, expected ? "refused" : "taken");
    }
    assert_true(held > 10);
    constraint_close(constraint);
}

static void test_text_without_markers(void **state)
{
    static const char *const one[] = {"<a>"}, *const more[] = {"<a", "<<b", "a<a>", "</b>"},
                             *const nested[] = {"aab", "ab", "b<b<"};

    (void)state;
    against_search(&(struct schema_markers){one, 1}, "");
    against_search(&(struct schema_markers){more, 4}, "");
    against_search(&(struct schema_markers){nested, 3}, "");
    against_search(&(struct schema_markers){one, 1}, "{");
    against_search(&(struct schema_markers){more, 4}, "{<");
    against_search(&(struct schema_markers){NULL, 0}, "{a");
}

static void test_markers_beyond_ascii(void **state)
{
    static const char *const texts[] = {"<\uff5cend\uff5c>"};
    struct schema_markers markers = {texts, 1};
    struct grammar *grammar = grammar_new();
    struct constraint *constraint;
    struct fault fault;
    int32_t node;

    (void)state;
    assert_int_equal(schema_build_plain(grammar, &markers, "", &node, &fault), 0);
    constraint = finish(grammar, node);
    assert_true(accepts(constraint, ""));
    assert_true(accepts(constraint, "\u00e9 <\uff5cen<\uff5cend\uff5c \U0001f600"));
    assert_false(accepts(constraint, "x<\uff5cend\uff5c>"));
    assert_false(accepts(constraint, "\xff\x80"));
    constraint_close(constraint);
}

/* --- strings of schemas ----------------------------------------------------------------------- */

static struct constraint *strings_of(const char *schema_text, const char *pointer)
{
    static const char *const texts[] = {"</v>"};
    struct schema_markers markers = {texts, 1};
    json_t *root = json_loads(schema_text, 0, NULL);
    struct grammar *grammar = grammar_new();
    struct fault fault;
    int32_t node;

    assert_non_null(root);
    if (schema_build_plain_string(grammar, root, pointer ? json_object_get(root, pointer) : root,
                                  &markers, NULL, &node, &fault) < 0)
        fail_msg("%s", fault.message);
    json_decref(root);
    return finish(grammar, node);
}

static void check_strings(const char *schema, const char *pointer, const char *fits,
                          const char *misfits)
{
    struct constraint *constraint = strings_of(schema, pointer);

    if (!accepts(constraint, fits))
        fail_msg("%s refuses %s", schema, fits);
    if (accepts(constraint, misfits))
        fail_msg("%s takes %s", schema, misfits);
    constraint_close(constraint);
}

static void test_plain_strings(void **state)
{
    (void)state;
    check_strings("{\"type\":\"string\"}", NULL, "a \"b\" \\ \n </v", "a</v>");
    check_strings("{\"type\":\"string\",\"maxLength\":3}", NULL, "\"\n\u00e9", "abcd");
    check_strings("{\"type\":\"string\",\"pattern\":\"^[a-z</>]+$\"}", NULL, "a<v>", "</v>");
    check_strings("{\"enum\":[\"a\",\"b c\"]}", NULL, "b c", "\"a\"");
    check_strings("{\"anyOf\":[{\"const\":\"x\"},{\"type\":\"string\",\"minLength\":3}]}", NULL,
                  "x", "y");
    check_strings("{\"p\":{\"$ref\":\"#/$defs/d\"},\"$defs\":{\"d\":{\"enum\":[\"q\"]}}}", "p", "q",
                  "r");
}

static void test_plain_strings_are_refused(void **state)
{
    static const char *const texts[] = {"</v>"};
    struct schema_markers markers = {texts, 1};
    json_t *schema = json_loads("{\"type\":\"string\",\"contentEncoding\":\"x\"}", 0, NULL);
    struct grammar *grammar = grammar_new();
    struct fault fault = {0};
    int32_t node;

    (void)state;
    assert_true(schema_build_plain_string(grammar, schema, schema, &markers, NULL, &node, &fault) <
                0);
    assert_non_null(strstr(fault.message, "contentEncoding"));
    grammar_close(grammar);
    json_decref(schema);
}

/* --- Python, and parts of schemas ------------------------------------------------------------- */

static void test_python(void **state)
{
    struct schema_options options = {.python = true};
    json_t *schema =
        json_loads("{\"type\":\"array\",\"items\":{\"anyOf\":[{\"enum\":[true,null,[false]]},"
                   "{\"type\":[\"boolean\",\"null\",\"string\"]},"
                   "{\"type\":\"string\",\"pattern\":\"^/\"}]}}",
                   0, NULL);
    struct grammar *grammar = grammar_new();
    struct constraint *constraint;
    struct fault fault;
    int32_t node;

    (void)state;
    assert_int_equal(schema_build(grammar, schema, &options, &node, &fault), 0);
    constraint = finish(grammar, node);
    assert_true(accepts(constraint, "[True, None, [False], False, \"/\\n\"]"));
    assert_false(accepts(constraint, "[true]"));
    assert_false(accepts(constraint, "[null]"));
    assert_false(accepts(constraint, "[\"\\/\"]"));
    constraint_close(constraint);
    json_decref(schema);
}

static void test_parts(void **state)
{
    json_t *root = json_loads("{\"p\":{\"items\":{\"$ref\":\"#/$defs/n\"},\"type\":\"array\"},"
                              "\"$defs\":{\"n\":{\"type\":\"integer\"}}}",
                              0, NULL);
    int64_t work = 3;
    struct schema_options little = {.work_left = &work};
    struct grammar *grammar = grammar_new();
    struct constraint *constraint;
    struct fault fault;
    int32_t node;

    (void)state;
    assert_int_equal(
        schema_build_at(grammar, root, json_object_get(root, "p"), &little, &node, &fault),
        E_TOO_LARGE);
    assert_true(work < 0);
    work = 1000;
    assert_int_equal(
        schema_build_at(grammar, root, json_object_get(root, "p"), &little, &node, &fault), 0);
    assert_true(work > 0 && work < 1000);
    constraint = finish(grammar, node);
    assert_true(accepts(constraint, "[1,2]"));
    assert_false(accepts(constraint, "[\"a\"]"));
    constraint_close(constraint);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_without_markers),
        cmocka_unit_test(test_markers_beyond_ascii),
        cmocka_unit_test(test_plain_strings),
        cmocka_unit_test(test_plain_strings_are_refused),
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
