/* test_constrained_schema.c -- protects: what a schema allows is what jsonschema, the reference,
 * finds valid. Every text of tests/data/constrained/json_schema.json: of each valid document the
 * compact or the spaced form is accepted and every beginning of it is alive; nothing invalid is
 * accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "engine/text/constraint.h"
#include "engine/text/schema.h"

static const char cases_path[] = "tests/data/constrained/json_schema.json";

/* Whether the text is accepted; every byte that is taken leaves the state alive or dead. */
static bool accepts(struct constraint *constraint, const char *text, size_t bytes)
{
    struct constraint_state *state = NULL;
    struct fault fault = {0};
    size_t taken;
    bool complete;
    int r;

    assert_int_equal(constraint_state_open(constraint, &state, &fault), 0);
    r = constraint_state_bytes(state, text, bytes, &taken, &fault);
    if (r < 0)
        fail_msg("%s", fault.message);
    complete = r == 1 && constraint_state_is_complete(state);
    constraint_state_close(state);
    return complete;
}

static bool accepts_form(struct constraint *constraint, const json_t *forms, const char *form)
{
    const json_t *text = json_object_get(forms, form);

    return text && accepts(constraint, json_string_value(text), json_string_length(text));
}

static void check_schema(const json_t *one, const struct schema_options *options)
{
    const char *id = json_string_value(json_object_get(one, "id"));
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    const json_t *text;
    size_t i;

    if (schema_compile(json_object_get(one, "schema"), options, &grammar, &fault) < 0)
        fail_msg("%s: %s", id, fault.message);
    if (constraint_open(grammar, NULL, NULL, &constraint, &fault) < 0)
        fail_msg("%s: %s", id, fault.message);
    grammar_close(grammar);
    json_array_foreach(json_object_get(one, "valid"), i, text)
    {
        bool compact = accepts_form(constraint, text, "compact");
        bool spaced = accepts_form(constraint, text, "spaced");

        if (!compact ||
            (!spaced && json_object_get(text, "spaced") && options->space != SCHEMA_SPACE_NONE))
            fail_msg("%s refuses %s", id, json_string_value(json_object_get(text, "compact")));
        if (options->space == SCHEMA_SPACE_FREE && json_object_get(text, "indented") &&
            !accepts_form(constraint, text, "indented"))
            fail_msg("%s refuses %s", id, json_string_value(json_object_get(text, "indented")));
    }
    json_array_foreach(json_object_get(one, "invalid"), i, text)
    {
        const json_t *string = json_object_get(text, "text");

        if (accepts(constraint, json_string_value(string), json_string_length(string)))
            fail_msg("%s accepts %s", id, json_string_value(string));
    }
    constraint_close(constraint);
}

static void check_all(enum schema_space space)
{
    struct schema_options options = {.space = space};
    json_error_t error;
    json_t *cases = json_load_file(cases_path, JSON_ALLOW_NUL, &error);
    const json_t *one;
    size_t i, count = 0;

    if (!cases)
        fail_msg("%s: %s", cases_path, error.text);
    json_array_foreach(json_object_get(cases, "cases"), i, one)
    {
        check_schema(one, &options);
        count++;
    }
    assert_int_equal(count, 43);
    json_decref(cases);
}

static void test_python_space(void **state)
{
    (void)state;
    check_all(SCHEMA_SPACE_PYTHON);
}

static void test_no_space(void **state)
{
    (void)state;
    check_all(SCHEMA_SPACE_NONE);
}

static void test_free_space(void **state)
{
    (void)state;
    check_all(SCHEMA_SPACE_FREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python_space),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_free_space),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
