/* test_gbnf.c -- protects: the notation's corners as llama.cpp has them, faults with line and
 * column, and that depth, counts and size are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "tests/lib/failing_malloc.h"

static bool accepts(const char *source, const char *text)
{
    struct constraint_state *one = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    size_t taken;
    bool complete;

    if (gbnf_parse(source, strlen(source), &grammar, &fault) < 0 ||
        constraint_open(grammar, NULL, NULL, &constraint, &fault) < 0)
        fail_msg("%s: %s", source, fault.message);
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    constraint_state_bytes(one, text, strlen(text), &taken, NULL);
    complete = constraint_state_is_complete(one);
    constraint_state_close(one);
    constraint_close(constraint);
    grammar_close(grammar);
    return complete;
}

static void expect_refused(const char *source, int code, const char *message)
{
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    int r = gbnf_parse(source, strlen(source), &grammar, &fault);

    if (r == 0)
        r = constraint_open(grammar, NULL, NULL, &constraint, &fault);
    if (r != code || !strstr(fault.message, message))
        fail_msg("%.60s: %d %s", source, r, fault.message);
    grammar_close(grammar);
}

static void corners_of_the_notation(void **state)
{
    (void)state;
    assert_true(accepts("root::=\"a\"", "a"));
    assert_true(accepts("# only\n\nroot ::= # here\n  \"a\" # there\n# end", "a"));
    assert_true(accepts("root ::= \"a\" |\r\n \"b\"\r\nx ::= \"c\"\r\n", "b"));
    assert_true(accepts("root ::= | \"a\"", ""));
    assert_true(accepts("root ::= \"\" \"a\"", "a"));
    assert_true(accepts("root ::= (\"a\"\n\"b\"\n)\n", "ab"));
    assert_true(accepts("root ::= [a-]+ [-a]", "-a-"));
    assert_true(accepts("root ::= [^-]", "a"));
    assert_false(accepts("root ::= [^-]", "-"));
    assert_true(accepts("root ::= [\\]\\[]{2}", "[]"));
    assert_true(accepts("root ::= \"a\"{ 2 , 3 }", "aaa"));
    assert_false(accepts("root ::= \"a\"{2,3}", "aaaa"));
    assert_true(accepts("root ::= \"a\"{2,}", "aaaaa"));
    assert_true(accepts("root ::= \"a\"{0}", ""));
    assert_true(accepts("root ::= (\"a\"?)*\n", "aaa"));
    assert_true(accepts("root ::= \"ab\"* \"c\"", "ababc"));
    assert_true(accepts("root ::= a_b-9\na_b-9 ::= .", "\xf0\x9f\x98\x80"));
    assert_true(accepts("root ::= \"\\x41\\u00e9\\U0001F600\"", "A\xc3\xa9\xf0\x9f\x98\x80"));
    assert_true(accepts("root ::= [\xe3\x81\x81-\xe3\x82\x9f]", "\xe3\x81\x93"));
    assert_true(accepts("root ::= rest\nrest ::= \"a\" rest | \"\"", "aaaa"));
}

static void faults_say_where(void **state)
{
    (void)state;
    expect_refused("root ::= \"a", E_INVALID, "line 1, column 10: the literal has no closing");
    expect_refused("root ::= \"a\"\nb ::= [a", E_INVALID, "line 2, column 7: the class has no");
    expect_refused("root ::= []", E_INVALID, "line 1, column 11: the class is empty");
    expect_refused("root ::= [b-a]", E_INVALID, "the range ends before it begins");
    expect_refused("root ::= \"\\q\"", E_INVALID, "line 1, column 11: the escape is not known");
    expect_refused("root ::= \"\\ud800\"", E_INVALID, "no character of Unicode");
    expect_refused("root ::= \"\\x4\"", E_INVALID, "hexadecimal");
    expect_refused("root ::= \"\xff\"", E_INVALID, "not UTF-8");
    expect_refused("root ::= \"a\")", E_INVALID, "closes nothing");
    expect_refused("root ::= \"a\" ]", E_INVALID, "line 1, column 14: an item or the end");
    expect_refused("root ::= \"a\"{3,2}", E_INVALID, "fewer than the least");
    expect_refused("root ::= \"a\"{x}", E_INVALID, "a number is expected");
    expect_refused("root ::= \"a\"{1", E_INVALID, "'}' is expected");
    expect_refused("root ::= \"a\"{99999999999}", E_TOO_LARGE, "too large");
    expect_refused("root ::= \"a\"\nroot ::= \"b\"", E_INVALID,
                   "line 2, column 1: the rule is defin");
    expect_refused("root ::= (+ \"a\")", E_INVALID, "line 1, column 11: there is nothing before");
    expect_refused("root ::= <[12]>", E_UNSUPPORTED, "tokens");
    expect_refused("\xc3\xa9 ::= \"a\"", E_INVALID, "line 1, column 1: the name of a rule");
    expect_refused("", E_INVALID, "no rule named 'root'");
    expect_refused("root ::= \"a\" root", E_INVALID, "never ends");
}

static void left_recursion_is_refused_by_name(void **state)
{
    (void)state;
    expect_refused("root ::= e\ne ::= e \"+\" e | \"1\"", E_UNSUPPORTED, "'e' is left-recursive");
    expect_refused("root ::= a\na ::= b? c \"x\" | \"y\"\nb ::= \"b\"\nc ::= a \"z\"",
                   E_UNSUPPORTED, "left-recursive");
    expect_refused("root ::= (root | \"a\"){2}", E_UNSUPPORTED, "'root' is left-recursive");
    assert_true(accepts("root ::= root | \"a\"", "a")); /* goes round, but adds nothing */
}

/* ---- hostile ones ---- */

static char *repeated(const char *begin, const char *part, size_t count, const char *middle,
                      const char *closing, const char *end)
{
    size_t room =
        strlen(begin) + count * (strlen(part) + strlen(closing)) + strlen(middle) + strlen(end) + 1;
    char *text = malloc(room), *at = text;

    assert_non_null(text);
    at = stpcpy(at, begin);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, part);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, closing);
    stpcpy(at, end);
    return text;
}

static void ten_thousand_groups_are_a_long_list(void **state)
{
    char *source = repeated("root ::= ", "(", 10000, "\"a\"", ")", "");
    char *stars = repeated("root ::= ", "(", 10000, "\"a\"", ")*", "");
    char *open = repeated("root ::= ", "(", 10000, "", "", "");

    (void)state;
    assert_true(accepts(source, "a"));
    assert_true(accepts(stars, "aaa"));
    expect_refused(open, E_INVALID, "column 10009: the parenthesis is not closed");
    free(source);
    free(stars);
    free(open);
}

static void deep_recursion_is_followed(void **state)
{
    char *text = repeated("", "[", 10000, "", "]", "");

    (void)state;
    assert_true(accepts("root ::= \"[\" root? \"]\"", text));
    free(text);
}

static void huge_counts_cost_nothing(void **state)
{
    (void)state;
    assert_true(accepts("root ::= ((\"a\"{0,2000000000}){0,2000000000}){0,2000000000}", "aaaa"));
    assert_false(accepts("root ::= \"a\"{2000000000}", "aaaa"));
    assert_true(accepts("root ::= (\"a\"? \"b\"?){2000000000}", "abba"));
}

/* Rules that double what stands before: 2^40 ways to read it, or a text of 2^40 letters. */
static void doubling_is_shared_or_refused(void **state)
{
    char source[4096] = "root ::= r0 \"!\"\n";
    char ways[4096] = "root ::= r0 \"!\"\n";

    (void)state;
    for (int i = 0; i < 40; i++) {
        char *end = source + strlen(source), *way = ways + strlen(ways);

        snprintf(end, 80, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
        snprintf(way, 80, "r%d ::= \"a\" r%d | \"a\" \"\" r%d \"\"\n", i, i + 1, i + 1);
    }
    memcpy(source + strlen(source), "r40 ::= \"a\"?", 13);
    memcpy(ways + strlen(ways), "r40 ::= \"b\"", 12);
    assert_true(accepts(source, "aaaaaaaaaaaaaaaaaaaaaaa!"));
    assert_true(accepts(ways, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab!"));
}

/* Where more readings of a text are open than can be followed in time, that is a fault. */
static void ambiguity_is_bounded(void **state)
{
    static const char source[] = "root ::= (((\"a\"{0,100}){0,100}){0,100}){0,100} \"b\"";
    struct constraint_limits limits = {.work_max = 200000};
    struct constraint_state *one = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    size_t taken;
    int r = 1;

    (void)state;
    assert_int_equal(gbnf_parse(source, strlen(source), &grammar, NULL), 0);
    assert_int_equal(constraint_open(grammar, NULL, &limits, &constraint, NULL), 0);
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    for (int i = 0; r == 1 && i < 1000; i++)
        r = constraint_state_bytes(one, "a", 1, &taken, &fault);
    assert_int_equal(r, E_TOO_LARGE);
    assert_non_null(strstr(fault.message, "too ambiguous"));
    assert_false(constraint_state_is_dead(one)); /* it stays where it was */
    constraint_state_close(one);
    constraint_close(constraint);
    grammar_close(grammar);
}

static void every_allocation_may_fail(void **state)
{
    static const char source[] = "root ::= (a | [x-z]{2}) \"\xc3\xa9\" # b\na ::= \"q\"+ root?\n";

    (void)state;
    for (uint64_t n = 1;; n++) {
        struct grammar *grammar = NULL;
        int r;

        failing_malloc_arm(n);
        r = gbnf_parse(source, strlen(source), &grammar, NULL);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            grammar_close(grammar);
            break;
        }
        assert_int_equal(r, E_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corners_of_the_notation),
        cmocka_unit_test(faults_say_where),
        cmocka_unit_test(left_recursion_is_refused_by_name),
        cmocka_unit_test(ten_thousand_groups_are_a_long_list),
        cmocka_unit_test(deep_recursion_is_followed),
        cmocka_unit_test(huge_counts_cost_nothing),
        cmocka_unit_test(doubling_is_shared_or_refused),
        cmocka_unit_test(ambiguity_is_bounded),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
