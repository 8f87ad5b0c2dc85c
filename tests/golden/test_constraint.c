/* test_constraint.c -- protects: what GBNF grammars and regular expressions accept and refuse, and
 * where exactly a text dies, by the cases of tests/data/constrained (made with recognizers in
 * Python, to which llguidance agreed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "engine/text/regex_grammar.h"

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *value = json_load_file(path, JSON_ALLOW_NUL, &error);

    if (!value)
        fail_msg("%s: %s", path, error.text);
    return value;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The index of the character that a byte belongs to. */
static size_t characters_before(const char *text, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < bytes; i++)
        count += ((uint8_t)text[i] & 0xC0) != 0x80;
    /* Within a character: it has begun, but is not whole. */
    return count - (((uint8_t)text[bytes] & 0xC0) == 0x80);
}

struct verdict {
    bool accept;
    bool dead;
    size_t taken;
};

static struct verdict judge(struct constraint *constraint, const char *text, size_t bytes)
{
    struct constraint_state *state = NULL;
    struct verdict verdict;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    verdict.dead = !constraint_state_bytes(state, text, bytes, &verdict.taken, NULL);
    assert_int_equal(verdict.dead, constraint_state_is_dead(state));
    verdict.accept = constraint_state_is_complete(state);
    constraint_state_close(state);
    return verdict;
}

/* An accepted text is alive after every byte, wherever it is cut. */
static void expect_prefixes_alive(struct constraint *constraint, const char *text, size_t bytes)
{
    struct constraint_state *state = NULL;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    for (size_t i = 0; i < bytes; i++) {
        size_t taken;

        assert_int_equal(constraint_state_bytes(state, text + i, 1, &taken, NULL), 1);
    }
    assert_true(constraint_state_is_complete(state));
    constraint_state_close(state);
}

static void expect_accepted(struct constraint *constraint, const char *id, const json_t *texts)
{
    const json_t *value;
    size_t i;

    json_array_foreach(texts, i, value)
    {
        const char *text = json_string_value(value);
        struct verdict verdict = judge(constraint, text, strlen(text));

        if (!verdict.accept)
            fail_msg("%s: \"%s\" is refused at byte %zu", id, text, verdict.taken);
        expect_prefixes_alive(constraint, text, strlen(text));
    }
}

static struct constraint *open_or_fail(struct grammar *grammar, const char *id)
{
    struct constraint *constraint = NULL;
    struct fault fault = {0};

    if (constraint_open(grammar, NULL, NULL, &constraint, &fault) < 0)
        fail_msg("%s: %s", id, fault.message);
    grammar_close(grammar);
    return constraint;
}

static void run_grammar(const json_t *one)
{
    const char *id = text_of(one, "id"), *source = text_of(one, "grammar");
    struct constraint *constraint;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    const json_t *value;
    size_t i;

    if (gbnf_parse(source, strlen(source), &grammar, &fault) < 0)
        fail_msg("%s: %s", id, fault.message);
    constraint = open_or_fail(grammar, id);
    expect_accepted(constraint, id, json_object_get(one, "accepted"));
    json_array_foreach(json_object_get(one, "refused"), i, value)
    {
        const char *text = text_of(value, "text");
        const json_t *dead_at = json_object_get(value, "dead_at");
        struct verdict verdict = judge(constraint, text, strlen(text));

        if (verdict.accept || verdict.dead == json_is_null(dead_at))
            fail_msg("%s: \"%s\": accepted %d, dead %d", id, text, verdict.accept, verdict.dead);
        if (verdict.dead)
            assert_int_equal(characters_before(text, verdict.taken), json_integer_value(dead_at));
    }
    constraint_close(constraint);
}

static void grammars_agree_with_the_reference(void **state)
{
    json_t *data = load("tests/data/constrained/gbnf.json");
    const json_t *grammars = json_object_get(data, "grammars"), *one;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(grammars), 16);
    json_array_foreach(grammars, i, one) run_grammar(one);
    json_decref(data);
}

static void wrong_grammars_are_refused(void **state)
{
    static const char *const parts[][2] = {
        {"no-root", "no rule named 'root'"},
        {"unknown-rule", "line 1, column 10: the rule 'foo' is not defined"},
        {"left-recursion", "The rule 'expr' is left-recursive"},
        {"unclosed-group", "line 1, column 10: the parenthesis is not closed"},
        {"nothing-to-repeat", "line 1, column 10: there is nothing before it to repeat"},
        {"no-arrow", "line 1, column 6: '::=' is expected"},
    };
    json_t *data = load("tests/data/constrained/gbnf.json");
    const json_t *grammars = json_object_get(data, "invalid_grammars"), *one;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(grammars), sizeof parts / sizeof *parts);
    json_array_foreach(grammars, i, one)
    {
        const char *source = text_of(one, "grammar");
        struct constraint *constraint = NULL;
        struct grammar *grammar = NULL;
        struct fault fault = {0};
        int r = gbnf_parse(source, strlen(source), &grammar, &fault);

        if (r == 0)
            r = constraint_open(grammar, NULL, NULL, &constraint, &fault);
        assert_true(r < 0);
        assert_string_equal(text_of(one, "id"), parts[i][0]);
        if (!strstr(fault.message, parts[i][1]))
            fail_msg("%s: %s", parts[i][0], fault.message);
        grammar_close(grammar);
    }
    json_decref(data);
}

static void run_pattern(const json_t *one)
{
    const char *id = text_of(one, "id"), *pattern = text_of(one, "pattern");
    struct constraint *constraint;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    const json_t *value;
    size_t i;

    if (regex_grammar_open(pattern, strlen(pattern), &grammar, &fault) < 0)
        fail_msg("%s: %s", id, fault.message);
    constraint = open_or_fail(grammar, id);
    expect_accepted(constraint, id, json_object_get(one, "accepted"));
    json_array_foreach(json_object_get(one, "refused"), i, value)
    {
        const char *text = json_string_value(value);

        if (judge(constraint, text, strlen(text)).accept)
            fail_msg("%s: \"%s\" is accepted", id, text);
    }
    constraint_close(constraint);
}

static void patterns_agree_with_the_reference(void **state)
{
    json_t *data = load("tests/data/constrained/regex.json");
    const json_t *patterns = json_object_get(data, "patterns"), *one;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(patterns), 12);
    json_array_foreach(patterns, i, one) run_pattern(one);
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_agree_with_the_reference),
        cmocka_unit_test(wrong_grammars_are_refused),
        cmocka_unit_test(patterns_agree_with_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
