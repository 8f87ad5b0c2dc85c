/* test_regex_grammar.c -- protects: what an expression matches, whole and as a search, anchors
 * included; what is refused, by its name; and that nesting and counts are bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/constraint.h"
#include "engine/text/regex_grammar.h"
#include "tests/lib/failing_malloc.h"

static bool matches(const char *pattern, bool search, const char *text)
{
    struct regex_options options = {.search = search};
    struct constraint_state *one = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    int32_t node = 0, rule;
    size_t taken;
    bool complete;

    assert_int_equal(grammar_open(10000, &grammar, NULL), 0);
    rule = grammar_rule(grammar, "r");
    grammar_set_root(grammar, rule);
    if (regex_grammar_build(grammar, pattern, strlen(pattern), &options, &node, &fault) < 0 ||
        grammar_define(grammar, rule, node) < 0 ||
        constraint_open(grammar, NULL, NULL, &constraint, &fault) < 0)
        fail_msg("%s: %s", pattern, fault.message);
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    constraint_state_bytes(one, text, strlen(text), &taken, NULL);
    complete = constraint_state_is_complete(one);
    constraint_state_close(one);
    constraint_close(constraint);
    grammar_close(grammar);
    return complete;
}

struct example {
    const char *pattern;
    const char *yes[3];
    const char *no[3];
};

static void expect(const struct example *examples, size_t count, bool search)
{
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < 3 && examples[i].yes[k]; k++) {
            if (!matches(examples[i].pattern, search, examples[i].yes[k]))
                fail_msg("%s does not match %s", examples[i].pattern, examples[i].yes[k]);
        }
        for (int k = 0; k < 3 && examples[i].no[k]; k++) {
            if (matches(examples[i].pattern, search, examples[i].no[k]))
                fail_msg("%s matches %s", examples[i].pattern, examples[i].no[k]);
        }
    }
}

static void whole_texts(void **state)
{
    static const struct example examples[] = {
        {"", {""}, {"a"}},
        {"a|", {"", "a"}, {"aa"}},
        {"^abc$", {"abc"}, {"ab", "abcd"}},
        {"\\Aa\\Z", {"a"}, {"b"}},
        {"(^a|b$)", {"a", "b"}, {"ab"}},
        {"[]a]+", {"]a"}, {"[", ""}},
        {"[^]a]", {"b"}, {"]", "a"}},
        {"[a-]", {"a", "-"}, {"b"}},
        {"[\\w-]+", {"a-b", "_9"}, {"a b"}},
        {"[a-\\d]+", {"a-1"}, {"b"}},
        {"[\\s\\S]", {"\n", "\xc2\x85", "\xe2\x80\xa8"}, {""}},
        {"[^\\W\\w]|b", {"b"}, {"a", "\xc3\xa9", "\n"}},
        {"\\S", {"a", "\xc3\xa9"}, {"\xc2\xa0", " ", "\xe2\x80\xa8"}},
        {"\\D\\W", {"a-", "\xc3\xa9\xc3\xa9"}, {"1-", "aa"}},
        {".", {"\xf0\x9f\x98\x80"}, {"\n", "\r", ""}},
        {"\\u00e9\\x41\\U0001F600", {"\xc3\xa9\x41\xf0\x9f\x98\x80"}, {"e"}},
        {"\\ud83d\\ude00|\\u{1F601}", {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x81"}, {"a"}},
        {"\\t\\n\\cA", {"\t\n\x01"}, {"tnA"}},
        {"[\\b]", {"\b"}, {"b"}},
        {"a{2}b{1,}c{,2}d{1,2}", {"aabbd", "aabccdd"}, {"abd", "aabcccd", "aabddd"}},
        {"a{,}b", {"a{,}b"}, {"b"}},
        {"a{x}{1}", {"a{x}"}, {"a"}},
        {"a{b}|{}", {"a{b}", "{}"}, {"ab"}},
        {"a*?b+?c??", {"aab", "bc"}, {"c"}},
        {"(?:ab|c)+(?P<n>d)(?<m>e)", {"abcde"}, {"de"}},
        {"a(?#a comment)b", {"ab"}, {"a"}},
        {"((a*)*)*", {"", "aaaa"}, {"b"}},
        {"\\.\\*\\/\\-\\\"", {".*/-\""}, {"a*/-\""}},
        {"\xc3\xa9+", {"\xc3\xa9\xc3\xa9"}, {"\xc3"}},
    };

    (void)state;
    expect(examples, sizeof examples / sizeof *examples, false);
}

static void searches(void **state)
{
    static const struct example examples[] = {
        {"", {"", "anything\nat all"}, {NULL}},
        {"b", {"b", "abc", "\nb\n"}, {"", "a"}},
        {"^b", {"b", "bc"}, {"ab"}},
        {"b$", {"b", "ab"}, {"bc"}},
        {"^b$", {"b"}, {"ab", "bc"}},
        {"^a|b$", {"ax", "xb", "a"}, {"xax", "bx"}},
        {"^(a|b)$", {"a", "b"}, {"ab"}},
        {"(^a|b)c", {"acx", "xbc"}, {"xac"}},
        {"a(b$|c)", {"xab", "acx"}, {"abx"}},
        {"^(a$|b)", {"a", "bx"}, {"ax", "xb"}},
        {"^(?:$|a)", {"", "ax"}, {"b"}},
        {"((^a))", {"ax"}, {"xa"}},
        {"^", {"", "x"}, {NULL}},
        {"$", {"", "x"}, {NULL}},
        {"^$", {""}, {"x"}},
        {"^^a$$", {"a"}, {"aa"}},
        {"[0-9]", {"a1b", "1"}, {"ab"}},
    };

    (void)state;
    expect(examples, sizeof examples / sizeof *examples, true);
}

static void expect_refused(const char *pattern, int code, const char *message)
{
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    int r = regex_grammar_open(pattern, strlen(pattern), &grammar, &fault);

    if (r != code || !strstr(fault.message, message))
        fail_msg("%.60s: %d %s", pattern, r, fault.message);
}

static void what_no_automaton_does_is_refused_by_name(void **state)
{
    (void)state;
    expect_refused("a(?=b)", E_UNSUPPORTED, "character 2: look-ahead");
    expect_refused("[^\\x00-\\U0010ffff]", E_INVALID, "No text at all fits");
    expect_refused("a(?!b)", E_UNSUPPORTED, "look-ahead");
    expect_refused("(?<=a)b", E_UNSUPPORTED, "look-behind");
    expect_refused("(?<!a)b", E_UNSUPPORTED, "look-behind");
    expect_refused("(a)\\1", E_UNSUPPORTED, "back-references");
    expect_refused("(?P<n>a)(?P=n)", E_UNSUPPORTED, "back-references");
    expect_refused("(?<n>a)\\k<n>", E_UNSUPPORTED, "back-references");
    expect_refused("(?>a)", E_UNSUPPORTED, "atomic");
    expect_refused("a++", E_UNSUPPORTED, "possessive");
    expect_refused("(?i)a", E_UNSUPPORTED, "flags");
    expect_refused("(?i:a)", E_UNSUPPORTED, "flags");
    expect_refused("(?(1)a|b)", E_UNSUPPORTED, "conditions");
    expect_refused("\xc3\xa9\\b", E_UNSUPPORTED, "character 3: word boundaries");
    expect_refused("\\p{L}", E_UNSUPPORTED, "properties");
    expect_refused("a^b", E_UNSUPPORTED, "^ and $");
    expect_refused("(a$)b", E_UNSUPPORTED, "^ and $");
    expect_refused("(^a)*", E_UNSUPPORTED, "anchor");
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    expect_refused("*a", E_INVALID, "character 1: there is nothing before it");
    expect_refused("a**", E_INVALID, "cannot be repeated");
    expect_refused("(a", E_INVALID, "character 1: the group is not closed");
    expect_refused("a)", E_INVALID, "character 2: the parenthesis closes nothing");
    expect_refused("[a", E_INVALID, "character 1: the class has no closing");
    expect_refused("[b-a]", E_INVALID, "before it begins");
    expect_refused("a{3,2}", E_INVALID, "fewer");
    expect_refused("a{99999999999}", E_TOO_LARGE, "too large");
    expect_refused("a\\", E_INVALID, "behind the backslash");
    expect_refused("\\q", E_INVALID, "not known");
    expect_refused("\\ud800", E_INVALID, "Unicode");
    expect_refused("\\x4", E_INVALID, "hexadecimal");
    expect_refused("\\012", E_INVALID, "octal");
    expect_refused("\xff", E_INVALID, "UTF-8");
    expect_refused("(?P<n", E_INVALID, "not closed");
}

static void hostile_ones_are_bounded(void **state)
{
    static char deep[20001], long_text[3001];

    (void)state;
    memset(deep, '(', 10000);
    memset(deep + 10000, ')', 10000);
    expect_refused(deep, E_TOO_LARGE, "nested too deep");
    memset(long_text, 'a', 3000);
    assert_true(matches("(a*)*", false, long_text));
    assert_true(matches("((a|aa)+)+", false, long_text));
    assert_true(matches("(a{0,1000000}){0,1000000}", false, "aaaaaaaa"));
    assert_false(matches("a{1000000000}", false, long_text));
    assert_false(matches("(x+x+)+y", false, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
}

static void every_allocation_may_fail(void **state)
{
    static const char pattern[] = "^(?:[a-z\\d]{2,3}|\\u00e9.)+x$";

    (void)state;
    for (uint64_t n = 1;; n++) {
        struct grammar *grammar = NULL;
        int r;

        failing_malloc_arm(n);
        r = regex_grammar_open(pattern, strlen(pattern), &grammar, NULL);
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
        cmocka_unit_test(whole_texts),
        cmocka_unit_test(searches),
        cmocka_unit_test(what_no_automaton_does_is_refused_by_name),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(hostile_ones_are_bounded),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
