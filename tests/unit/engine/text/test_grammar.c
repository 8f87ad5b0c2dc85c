/* test_grammar.c -- protects: what makers hand back, the ceiling, classes as sorted ranges, and
 * that a grammar with a rule missing or a root that cannot end is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/grammar_internal.h"
#include "tests/lib/failing_malloc.h"

static struct grammar *open_grammar(uint32_t node_max)
{
    struct grammar *grammar = NULL;

    assert_int_equal(grammar_open(node_max, &grammar, NULL), 0);
    return grammar;
}

static void expect_class(const struct grammar_range *ranges, size_t count, bool negated,
                         const struct grammar_range *expected, size_t expected_count)
{
    struct grammar *grammar = open_grammar(100);
    int32_t made = grammar_class(grammar, ranges, count, negated);
    const struct grammar_node *node;

    assert_true(made >= 0);
    node = grammar_node_get(grammar, (uint32_t)made);
    assert_int_equal(node->kind, NODE_CLASS);
    assert_int_equal(node->count, expected_count);
    for (size_t i = 0; i < expected_count; i++) {
        assert_int_equal(grammar_ranges(grammar, node)[i].first, expected[i].first);
        assert_int_equal(grammar_ranges(grammar, node)[i].last, expected[i].last);
    }
    grammar_close(grammar);
}

static void classes_are_sorted_and_apart(void **state)
{
    static const struct grammar_range mixed[] = {{'x', 'z'}, {'a', 'c'}, {'d', 'd'}, {'b', 'b'}};
    static const struct grammar_range sorted[] = {{'a', 'd'}, {'x', 'z'}};
    static const struct grammar_range others[] = {
        {0, 'a' - 1}, {'e', 'w'}, {'z' + 1, 0xD7FF}, {0xE000, 0x10FFFF}};
    static const struct grammar_range all[] = {{0, UINT32_MAX}};
    static const struct grammar_range valid[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    static const struct grammar_range across[] = {{0xD700, 0xE001}};
    static const struct grammar_range parts[] = {{0xD700, 0xD7FF}, {0xE000, 0xE001}};

    (void)state;
    expect_class(mixed, 4, false, sorted, 2);
    expect_class(mixed, 4, true, others, 4);
    expect_class(all, 1, false, valid, 2);
    expect_class(NULL, 0, true, valid, 2);
    expect_class(across, 1, false, parts, 2);
}

static void classes_of_nothing_match_nothing(void **state)
{
    static const struct grammar_range all[] = {{0, 0x10FFFF}}, surrogates[] = {{0xD800, 0xDFFF}};
    struct grammar *grammar = open_grammar(100);

    (void)state;
    assert_int_equal(grammar_class(grammar, NULL, 0, false), grammar_never(grammar));
    assert_int_equal(grammar_class(grammar, all, 1, true), grammar_never(grammar));
    assert_int_equal(grammar_class(grammar, surrogates, 1, false), grammar_never(grammar));
    grammar_close(grammar);
}

static void a_code_travels_upward(void **state)
{
    struct grammar *grammar = open_grammar(3);
    int32_t nodes[2] = {grammar_literal(grammar, "a", 1), 0};

    (void)state;
    assert_int_equal(nodes[0], 2);
    nodes[1] = grammar_literal(grammar, "b", 1);
    assert_int_equal(nodes[1], E_TOO_LARGE);
    assert_int_equal(grammar_sequence(grammar, nodes, 2), E_TOO_LARGE);
    assert_int_equal(grammar_choice(grammar, nodes, 2), E_TOO_LARGE);
    assert_int_equal(grammar_repeat(grammar, E_TOO_LARGE, 0, 1), E_TOO_LARGE);
    assert_int_equal(grammar_define(grammar, grammar_rule(grammar, "r"), E_TOO_LARGE), E_TOO_LARGE);
    assert_int_equal(grammar_reference(grammar, E_TOO_LARGE), E_TOO_LARGE);
    grammar_close(grammar);
}

static void literals_are_bounded_by_the_ceiling_too(void **state)
{
    struct grammar *grammar = open_grammar(10);
    char text[641] = {0};

    (void)state;
    assert_int_equal(grammar_literal(grammar, text, 641), E_TOO_LARGE);
    assert_true(grammar_literal(grammar, text, 640) >= 0);
    assert_int_equal(grammar_literal(grammar, text, 1), E_TOO_LARGE);
    grammar_close(grammar);
}

static void trivial_nodes_are_not_made(void **state)
{
    struct grammar *grammar = open_grammar(100);
    int32_t a = grammar_literal(grammar, "a", 1);

    (void)state;
    assert_int_equal(grammar_literal(grammar, "", 0), grammar_empty(grammar));
    assert_int_equal(grammar_sequence(grammar, NULL, 0), grammar_empty(grammar));
    assert_int_equal(grammar_choice(grammar, NULL, 0), grammar_never(grammar));
    assert_int_equal(grammar_sequence(grammar, &a, 1), a);
    assert_int_equal(grammar_choice(grammar, &a, 1), a);
    assert_int_equal(grammar_repeat(grammar, a, 1, 1), a);
    assert_int_equal(grammar_repeat(grammar, a, 0, 0), grammar_empty(grammar));
    grammar_close(grammar);
}

static void expect_verdict(struct grammar *grammar, const char *message)
{
    struct fault fault = {0};
    int r = grammar_check(grammar, &fault);

    if (message) {
        assert_int_equal(r, E_INVALID);
        assert_non_null(strstr(fault.message, message));
    } else {
        assert_int_equal(r, 0);
    }
}

static void what_cannot_match_is_refused(void **state)
{
    struct grammar *grammar = open_grammar(100);
    int32_t root, other, parts[2];

    (void)state;
    expect_verdict(grammar, "no root");
    root = grammar_rule(grammar, "start");
    other = grammar_rule(grammar, "other");
    grammar_set_root(grammar, root);
    expect_verdict(grammar, "'start'");
    parts[0] = grammar_literal(grammar, "(", 1);
    parts[1] = grammar_reference(grammar, other);
    assert_int_equal(grammar_define(grammar, root, grammar_sequence(grammar, parts, 2)), 0);
    expect_verdict(grammar, "'other' is used and not defined");
    parts[1] = grammar_reference(grammar, root);
    assert_int_equal(grammar_define(grammar, other, grammar_sequence(grammar, parts, 2)), 0);
    expect_verdict(grammar, "'start' cannot match any text");
    grammar_close(grammar);
}

static void recursion_that_can_end_is_taken(void **state)
{
    struct grammar *grammar = open_grammar(100);
    int32_t root = grammar_rule(grammar, "start"), unused = grammar_rule(grammar, "unused");
    int32_t parts[2] = {grammar_literal(grammar, "(", 1), grammar_reference(grammar, root)};
    int32_t choice[2] = {grammar_sequence(grammar, parts, 2), grammar_empty(grammar)};

    (void)state;
    assert_true(unused > root);
    grammar_set_root(grammar, root);
    assert_int_equal(grammar_define(grammar, root, grammar_choice(grammar, choice, 2)), 0);
    expect_verdict(grammar, NULL);
    grammar_close(grammar);
}

static void questions_are_answered_for_every_node(void **state)
{
    struct grammar *grammar = open_grammar(100);
    int32_t rule = grammar_rule(grammar, "r");
    int32_t a = grammar_literal(grammar, "a", 1), itself = grammar_reference(grammar, rule);
    int32_t optional = grammar_repeat(grammar, a, 0, 1);
    int32_t twice = grammar_sequence(grammar, (int32_t[]){optional, optional}, 2);
    int32_t mixed = grammar_sequence(grammar, (int32_t[]){optional, a}, 2);
    int32_t never = grammar_sequence(grammar, (int32_t[]){a, itself}, 2);
    int32_t many = grammar_repeat(grammar, itself, 2, GRAMMAR_UNBOUNDED);
    uint8_t answers[100];

    (void)state;
    assert_int_equal(grammar_define(grammar, rule, never), 0);
    assert_int_equal(grammar_solve(grammar, GRAMMAR_NULLABLE, answers), 0);
    assert_true(answers[optional] && answers[twice] && answers[grammar_empty(grammar)]);
    assert_false(answers[a] || answers[mixed] || answers[never] || answers[many]);
    assert_int_equal(grammar_solve(grammar, GRAMMAR_PRODUCTIVE, answers), 0);
    assert_true(answers[a] && answers[optional] && answers[twice] && answers[mixed]);
    assert_false(answers[never] || answers[itself] || answers[many]);
    assert_false(answers[grammar_never(grammar)]);
    grammar_close(grammar);
}

static int build(struct grammar **ret_grammar)
{
    static const struct grammar_range digits[] = {{'0', '9'}};
    struct grammar *grammar = NULL;
    int32_t rule, parts[2];
    int r = grammar_open(1000, &grammar, NULL);

    if (r < 0)
        return r;
    rule = grammar_rule(grammar, "root");
    parts[0] = grammar_class(grammar, digits, 1, true);
    parts[1] = grammar_repeat(grammar, grammar_literal(grammar, "ab", 2), 0, 5);
    r = grammar_define(grammar, rule, grammar_sequence(grammar, parts, 2));
    if (r == 0) {
        grammar_set_root(grammar, rule);
        r = grammar_check(grammar, NULL);
    }
    *ret_grammar = grammar;
    return r;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct grammar *grammar = NULL;
        int r;

        failing_malloc_arm(n);
        r = build(&grammar);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            grammar_close(grammar);
            break;
        }
        assert_int_equal(r, E_MEMORY);
        grammar_close(grammar);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_sorted_and_apart),
        cmocka_unit_test(classes_of_nothing_match_nothing),
        cmocka_unit_test(a_code_travels_upward),
        cmocka_unit_test(literals_are_bounded_by_the_ceiling_too),
        cmocka_unit_test(trivial_nodes_are_not_made),
        cmocka_unit_test(what_cannot_match_is_refused),
        cmocka_unit_test(recursion_that_can_end_is_taken),
        cmocka_unit_test(questions_are_answered_for_every_node),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
