/* test_jinja.c -- protects: the language of chat templates does what Jinja2 does in Transformers'
 * sandbox, says where a template is wrong, leaks nothing when memory fails, ends soon with a
 * template that would not, and renders on many threads at once. What is expected here was printed
 * by Jinja2 3.1.6. Published templates are in tests/golden/test_chat_template.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/text/jinja.h"
#include "tests/lib/failing_malloc.h"

static const char variables[] =
    "{\"s\":\"Hello World\",\"n\":5,\"f\":2.5,\"t\":true,\"z\":null,\"l\":[3,1,2],\"e\":[],"
    "\"d\":{\"b\":1,\"a\":\"x\"},\"u\":\"\\u00e4\\u00df\\u4e16\",\"x_token\":null,"
    "\"m\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\",\"n\":2}]"
    "}";

static const struct tm now = {.tm_year = 126,
                              .tm_mon = 10,
                              .tm_mday = 30,
                              .tm_hour = 12,
                              .tm_min = 34,
                              .tm_sec = 56,
                              .tm_wday = 1,
                              .tm_yday = 333};

static int render(const char *source, struct buf *ret_text, struct fault *fault)
{
    const struct jinja_variables from = {.text = variables, .bytes = sizeof variables - 1};
    const struct jinja_input input = {
        .sources = &from, .count = 1, .spread = "", .skip_null = "_token", .now = &now};
    struct jinja *jinja = NULL;
    int r = jinja_open(source, strlen(source), &jinja, fault);

    if (r == 0)
        r = jinja_render(jinja, &input, ret_text, fault);
    jinja_close(jinja);
    return r;
}

struct row {
    const char *source;
    const char *expected;
};

static void assert_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct fault fault = {0};
        struct buf text;

        buf_init(&text, 1 << 20);
        if (render(rows[i].source, &text, &fault) < 0)
            fail_msg("%s\nfails: %s", rows[i].source, fault.message);
        if (strcmp(buf_string(&text), rows[i].expected) != 0)
            fail_msg("%s\ngives '%s', not '%s'", rows[i].source, buf_string(&text),
                     rows[i].expected);
        buf_fini(&text);
    }
}
#define ASSERT_ROWS(rows) assert_rows(rows, sizeof(rows) / sizeof *(rows))

static void test_white_space(void **state)
{
    static const struct row rows[] = {
        {"a {%- if t -%} b {%- endif -%} c", "abc"},
        {"x\n  {% if t %}\n  y\n  {% endif %}\nz", "x\n  y\nz"},
        {"\t{%+ if t %}x{% endif +%}\ny", "\tx\ny"},
        {"   \n{{- n }}", "5"},
        {"{{ n -}}\n\n x", "5x"},
        {"x\n\n", "x\n"},
        {"a\r\nb\rc", "a\nb\nc"},
        {"x {# c -#}  \n y", "x y"},
        {"{#- c #}\n\nx\n  {# d #}\ny", "\nx\ny"},
        {"{# {{ x }} {% if %} #}y{#-#}", "y"},
        {"a{% raw -%}\n\n {{ x }} {%- endraw -%}\n b", "a{{ x }}b"},
        {"{% raw %}\n{{ a }}\n{% endraw %}\nb", "\n{{ a }}\nb"},
        {"{{'}}'}}{{\"%}\"}}{{ {'a':{'b':1}}['a']['b']}}", "}}%}1"},
        {"  {% if t %}{% endif %}  {% if t %}{% endif %}x", "  x"},
        {"{{+ n }}{%-set a=1-%} {{-a-}} ", "51"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_values_in_words(void **state)
{
    static const struct row rows[] = {
        {"{{ 1.5 }} {{ 1e16 }} {{ 1e-5 }} {{ -0.0 }} {{ 0.1 + 0.2 }} {{ 1e400 }} {{ 5e-324 }}",
         "1.5 1e+16 1e-05 -0.0 0.30000000000000004 inf 5e-324"},
        {"{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 123456789.123 }}",
         "1000 31 5 15 123456789.123"},
        {"{{ ['a', \"b'c\", 'd\"e', 'f\\ng', '\\x7f\\u200b'] }} {{ ('a',) }} {{ {1: none} }}",
         "['a', \"b'c\", 'd\"e', 'f\\ng', '\\x7f\\u200b'] ('a',) {1: None}"},
        {"{{ d.items() }} {{ range(1, 9, 2) }} {{ namespace(a=1) }} {{ nope }}|{{ [nope] }}",
         "dict_items([('b', 1), ('a', 'x')]) range(1, 9, 2) <Namespace {'a': 1}> |[Undefined]"},
        {"{{ 'a\\b\\t\\101\\u00e9\\'' 'b' \"\\\"\" }}", "a\b\tA\xc3\xa9'b\""},
        {"{{ 'a\\d' }}", "a\\d"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_numbers(void **state)
{
    static const struct row rows[] = {
        {"{{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }}",
         "3.5 -4 2 -2 -4.0 1.5"},
        {"{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** -1 }} {{ -1|abs }} {{ 1 ~ 2 + 3 ~ 4 }}",
         "4 64 0.5 1 1234"},
        {"{{ 2 ** 70 }} {{ 2 ** 100 // 3 ** 20 }} {{ -(2 ** 70) // 7 }} {{ -(2 ** 70) % 7 }}",
         "1180591620717411303424 363558641556578823726 -168655945816773043347 5"},
        {"{{ 9223372036854775807 + 1 }} {{ -9223372036854775807 - 2 }} {{ 2 ** 63 - 1 - 2 ** 63 }}",
         "9223372036854775808 -9223372036854775809 -1"},
        {"{{ 12345678901234567890|tojson }} {{ 2 ** 70 == 2.0 ** 70 }} {{ 2 ** 70 > 5 }}",
         "12345678901234567890 True True"},
        {"{{ 2.5|round }} {{ 2.675|round(2) }} {{ 1234|round(-2) }} {{ 42.55|round(1, 'ceil') }}",
         "2.0 2.67 1200 42.6"},
        {"{{ '3.9'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }} {{ 1e30|int }}",
         "3 7 31 1000000000000000019884624838656"},
        {"{{ 'inf'|float }} {{ '0x10'|float }} {{ '1_0.5'|float }} {{ true + true }}",
         "inf 0.0 10.5 2"},
        {"{{ 1 < 2 < 3 }} {{ 1 == 1.0 == true }} {{ {1.0: 'x'}[true] }} {{ [1,2] < [1,3] }}",
         "True True x True"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_texts(void **state)
{
    static const struct row rows[] = {
        {"{{ 'a b  c'.split() }} {{ ' a b '.split(none, 0) }} {{ 'a,b,c'.rsplit(',', 1) }}",
         "['a', 'b', 'c'] ['a b '] ['a,b', 'c']"},
        {"{{ 'xxaxx'.strip('x') }} {{ '\\u3000a\\x1c'.strip() }} {{ s[::-1] }} {{ u[1:] }}",
         "a a dlroW olleH \xc3\x9f\xe4\xb8\x96"},
        {"{{ s.find('o', 5) }} {{ s.count('l') }} {{ 'abc'.replace('', '-') }} {{ 'o' in s }}",
         "7 3 -a-b-c- True"},
        {"{{ '\xc3\x9f'.upper() }} {{ '\xce\x91\xce\xa3'.lower() }} {{ \"it's a\".title() }} "
         "{{ \"it's a\"|title }}",
         "SS \xce\xb1\xcf\x82 It'S A It's A"},
        {"{{ '{:>5}|{:05.1f}|{!r:<4}|{x[a]}|{:,}'.format('a', 3.14159, 'b', 1234567, x={'a': 1}) "
         "}}",
         "    a|003.1|'b' |1|1,234,567"},
        {"{{ '%s-%05.1f-%r-%x-%.3d%%' % ('a', 3.14159, 'b', 255, 5) }} {{ '%(k)s' % {'k': 1} }}",
         "a-003.1-'b'-ff-005% 1"},
        {"{{ 'a\\nb\\n\\nc'|indent(2) }}|{{ 'hello big wide world'|truncate(10) }}",
         "a\n  b\n\n  c|hello..."},
        {"{{ 'x'.center(5, '*') }} {{ '-5'.zfill(4) }} {{ 'a\\tb'.expandtabs(4) }} "
         "{{ 'a=b=c'.rpartition('=') }}",
         "**x** -005 a   b ('a=b', '=', 'c')"},
        {"{{ '<b>'|e }} {{ ('<'|safe) + '<' }} {{ ('<'|e) ~ '<' }} {{ ['<'|safe] }}",
         "&lt;b&gt; <&lt; &lt;< [Markup('<')]"},
        {"{{ 'a b&/\xc3\xa9'|urlencode }} {{ '<p>a  <b>b</b></p>&lt;'|striptags }}",
         "a%20b%26/%C3%A9 a b<"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_filters(void **state)
{
    static const struct row rows[] = {
        {"{{ m|selectattr('role', 'equalto', 'user')|map(attribute='content')|join }} "
         "{{ m|map(attribute='n', default=0)|list }} {{ m|rejectattr('n')|list|length }}",
         "U [0, 2] 1"},
        {"{{ l|sort }} {{ ['b', 'A']|sort }} {{ [none, none]|sort }} {{ d|dictsort }}",
         "[1, 2, 3] ['A', 'b'] [None, None] [('a', 'x'), ('b', 1)]"},
        {"{{ l|min }} {{ ['b', 'A']|max }} {{ l|sum(start=10) }} {{ [1, 2, 1, 'A', "
         "'a']|unique|list }}",
         "1 b 16 [1, 2, 'A']"},
        {"{{ range(5)|batch(2, 'x')|list }} {{ range(5)|slice(2)|list }} {{ l|reverse|list }}",
         "[[0, 1], [2, 3], [4, 'x']] [[0, 1, 2], [3, 4]] [2, 1, 3]"},
        {"{% for g in m|groupby('role') %}{{ g.grouper }}{{ g.list|length }} {% endfor %}",
         "system1 user1 "},
        {"{{ nope|default('y') }} {{ ''|d('z', true) }} {{ none|default('q') }} {{ e|first }}|",
         "y z None |"},
        {"{{ {'a': [1, {}]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ]\n}"},
        {"{{ {'b': 1, 'a': '\xc3\xa9\\n<'}|tojson(separators=(',', ':'), sort_keys=true) }} "
         "{{ '\xc3\xa9'|tojson(true) }}",
         "{\"a\":\"\xc3\xa9\\n<\",\"b\":1} \"\\u00e9\""},
        {"{{ [1, none, 'a']|select('string')|list }} {{ [3, 4]|reject('odd')|list }}", "['a'] [4]"},
        {"{{ 1500000|filesizeformat }} {{ {'a': 1, 'b': none}|xmlattr }}", "1.5 MB  a=\"1\""},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_members_and_tests(void **state)
{
    static const struct row rows[] = {
        {"{{ {'items': 7}['items'] }} {{ l.0 }} {{ d.zz }}|{{ z.x }}|{{ l[9] }}|{{ l['a'] }}|",
         "7 3 ||||"},
        {"{{ s.__class__ }}|{{ l.append is defined }} {{ namespace(_x=1)._x }}|", "|False |"},
        {"{{ nope is sequence }} {{ nope is iterable }} {{ nope is none }} {{ nope == nope2 }}",
         "True True False True"},
        {"{{ n is divisibleby 5 and t }} {{ not n in l }} {{ n is not none }} {{ 1 is true }}",
         "True True True False"},
        {"{{ 'upper' is filter }} {{ 'eq' is test }} {{ 3 is in l }} {{ x_token is defined }}",
         "True True True False"},
        {"{{ l[::-2] }} {{ l[-2:] }} {{ (1, 2, 3)[1:] }} {{ range(9)[2:5]|list }}",
         "[2, 3] [1, 2] (2, 3) [2, 3, 4]"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

static void test_statements(void **state)
{
    static const struct row rows[] = {
        {"{% for i in l if i > 1 %}{{ loop.index }}{{ i }}{{ loop.last }}{{ loop.previtem }}"
         "{{ loop.nextitem }} {% else %}e{% endfor %}",
         "13False2 22True3 "},
        {"{% for i in l %}{{ loop.revindex }}{{ loop.length }}{{ loop.cycle('a', 'b') }}"
         "{{ loop.changed(i > 1) }} {% endfor %}",
         "33aTrue 23bTrue 13aTrue "},
        {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
        {"{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 2 %}{% break %}"
         "{% endif %}{% endfor %}",
         "32"},
        {"{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}"
         "{{ i }}{{ loop.depth }}{% endif %}{% endfor %}",
         "11(22(33))"},
        {"{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
         "4 2 3 1"},
        {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}"
         "{{ ns.x }}",
         "7"},
        {"{% macro f(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
         "{{ f(1, 2, 3, k=4) }}{{ f(1) }}",
         "12(3,){'k': 4}11(){}"},
        {"{% macro f() %}{{ caller('a', b=2) }}{% endmacro %}{% call(a, b=1) f() %}{{ a }}{{ b }}"
         "{% endcall %}",
         "a2"},
        {"{% set x = 1 %}{% macro h() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ h() }}", "2"},
        {"{% set x | upper %}a{{ n }}{% endset %}{{ x }}{% filter replace('a', 'b') %}aa"
         "{% endfilter %}",
         "A5bb"},
        {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}|{% print n, s %}",
         "3|5Hello World"},
        {"{% generation %}g{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "gFalse"},
        {"{{ 'a' if z else 'b' if n else 'c' }}{{ 'x' if false }}", "b"},
        {"{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}"
         "{% set j = joiner('|') %}{{ j() }}{{ j() }}",
         "121|"},
        {"{{ strftime_now('%d %b %Y, %H:%M %f%z%%') }}", "30 Nov 2026, 12:34 000000%"},
        {"{% if false %}{{ n|nosuch }}{% endif %}x", "x"},
    };

    (void)state;
    ASSERT_ROWS(rows);
}

/* Each must fail with the place and the word. */
static void test_what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *source;
        int code;
        const char *words;
    } rows[] = {
        {"a\n  {{ nope.x }}", E_UNSUPPORTED, "line 2, column 11: 'nope' is undefined"},
        {"{{ d.q.r }}", E_UNSUPPORTED, "'dict object' has no attribute 'q'"},
        {"{{ s + 1 }}", E_UNSUPPORTED, "can only concatenate str (not \"int\") to str"},
        {"{{ l|map('string')|tojson }}", E_UNSUPPORTED, "generator is not JSON serializable"},
        {"{{ l.append(1) }}", E_UNSUPPORTED, "would change a list"},
        {"{{ n|from_json }}", E_UNSUPPORTED, "there is no filter 'from_json'"},
        {"{{ n|random }}", E_UNSUPPORTED, "no filter 'random' in this engine"},
        {"{{ 1 / 0 }}", E_UNSUPPORTED, "division by zero"},
        {"{{ [1, 'a']|sort }}", E_UNSUPPORTED, "have no order"},
        {"{{ d.get('a', default=1) }}", E_UNSUPPORTED, "no keyword arguments"},
        {"{% macro f(a) %}{{ a.x.y }}{% endmacro %}\n{{ f(d) }}", E_UNSUPPORTED, "column 24"},
        {"{% include 'x' %}", E_INVALID, "the tag 'include' is not supported"},
        {"{% nosuch %}", E_INVALID, "the tag 'nosuch' is not known"},
        {"{% for i in l %}", E_INVALID, "the tag 'for' has no 'endfor'"},
        {"x {{ 'open }}", E_INVALID, "line 1, column 6: the string has no end"},
        {"\xc3\xa9{{ ] }}", E_INVALID, "column 5: unexpected ']'"},
        {"{{ (1, }}", E_INVALID, "unexpected '}'"},
        {"{% set loop.x.y = 1 %}", E_INVALID, "column"},
        {"{% break %}", E_INVALID, "no loop"},
        {"{{ 1 + }}", E_INVALID, "an expression is expected here, not '}}'"},
        {"{# open", E_INVALID, "the comment has no end"},
        {"{{ '\\ud800' }}", E_INVALID, "escape that is not supported"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fault fault = {0};
        struct buf text;

        buf_init(&text, 1 << 20);
        assert_int_equal(render(rows[i].source, &text, &fault), rows[i].code);
        if (!strstr(fault.message, rows[i].words) || !strstr(fault.message, "chat template"))
            fail_msg("%s\nsays '%s', not '%s'", rows[i].source, fault.message, rows[i].words);
        assert_int_equal(text.bytes, 0);
        buf_fini(&text);
    }
}

static void test_raise_exception(void **state)
{
    struct fault fault = {0};
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    assert_int_equal(render("x{% if t %}{{ raise_exception('No\n' ~ n ~ ' \xc3\xa9') }}{% endif %}",
                            &text, &fault),
                     E_INVALID);
    assert_string_equal(fault.message, "No\n5 \xc3\xa9");
    assert_int_equal(text.bytes, 0);
    /* Too long a message is cut between characters. */
    assert_int_equal(render("{{ raise_exception('a' ~ '\xc3\xa9' * 400) }}", &text, &fault),
                     E_INVALID);
    assert_int_equal(strlen(fault.message), sizeof fault.message - 1);
    buf_fini(&text);
}

/* --- hostile templates ------------------------------------------------------------------------ */

static void test_hostile_templates(void **state)
{
    static const char *const rows[] = {
        "{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(1) }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) "
        "}}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ range(99999999999) }}",
        "{{ 'a' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{{ 9 ** 99999 }}",
        "{{ '%9999999d' % 1 }}",
        "{{ '{:>9999999}'.format(1) }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}"
        "{{ ns.x }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}"
        "{{ ns.x|tojson }}",
        "{% set ns = namespace(x=(), y=()) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}"
        "{% set ns.y = (ns.y,) %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set x = 'ab' * 5000000 %}{% for i in range(99999) %}{{ x.rfind('c') }}{% endfor %}",
        "{% set x = [1] * 50000 %}{% set y = [1] * 50000 %}{% for i in range(99999) %}"
        "{% if x == y %}{% endif %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99) %}{{ 1.2345678901234567e300 }}{% endfor "
        "%}"
        "{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% set ns = namespace(x=namespace()) %}{% set ns.x.y = 1 %}{% set ns.x = ns %}{{ ns }}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t before_ns = clock_now();
        struct fault fault = {0};
        struct buf text;
        int r;

        buf_init(&text, 64 << 20);
        r = render(rows[i], &text, &fault);
        if (r != E_TOO_LARGE && r != E_INVALID)
            fail_msg("%s\nends with %d: %s", rows[i], r, fault.message);
        assert_int_equal(text.bytes, 0);
        buf_fini(&text);
        /* Some seconds at the very most, also under a sanitizer and on a busy machine. */
        assert_true(clock_seconds(clock_now() - before_ns) < 60);
    }
}

static void assert_refused(const char *piece, size_t times, const char *after)
{
    size_t bytes = strlen(piece), after_bytes = strlen(after);
    char *source = malloc(times * bytes + after_bytes + 1);
    struct fault fault = {0};
    struct jinja *jinja = NULL;

    assert_non_null(source);
    for (size_t i = 0; i < times; i++)
        memcpy(source + i * bytes, piece, bytes);
    memcpy(source + times * bytes, after, after_bytes + 1);
    assert_true(jinja_open(source, times * bytes + after_bytes, &jinja, &fault) < 0);
    assert_null(jinja);
    assert_non_null(strstr(fault.message, "the chat template"));
    free(source);
}

static void test_hostile_sources(void **state)
{
    (void)state;
    assert_refused("{% if 1 %}", 10000, "");
    assert_refused("{{ (", 1,
                   "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((("
                   "((((((((((((((((((((((((((((((((((((((((((((((((((((((1");
    assert_refused(
        "{{ not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not "
        "not not",
        1, " 1 }}");
    assert_refused("{{ a", 1,
                   ".b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b"
                   ".b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b"
                   ".b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b.b"
                   " }}");
    assert_refused("{# x #}", 200000, "");
    assert_refused("\xff", 1, "");
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void test_json_input(void **state)
{
    static const char *const wrong[] = {"",
                                        "{",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "[1]",
                                        "{} x",
                                        "{\"a\":01}",
                                        "{\"a\":\"\\x\"}",
                                        "{\"a\":\"\n\"}",
                                        "{\"a\":\"\\ud800\"}",
                                        "{\"a\":\"\xff\"}",
                                        "{\"a\":-}",
                                        "{a:1}",
                                        "{\"a\" 1}",
                                        "nul"};
    struct jinja *jinja = NULL;
    char deep[400] = "{\"a\":";

    (void)state;
    memset(deep + 5, '[', 300);
    assert_int_equal(jinja_open("{{ a }}", 7, &jinja, NULL), 0);
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        const char *json = i < sizeof wrong / sizeof *wrong ? wrong[i] : deep;
        const struct jinja_variables from = {.text = json, .bytes = strlen(json)};
        const struct jinja_input input = {
            .sources = &from, .count = 1, .spread = "", .skip_null = ""};
        struct fault fault = {0};
        struct buf text;

        buf_init(&text, 1 << 20);
        assert_int_equal(jinja_render(jinja, &input, &text, &fault), E_INVALID);
        assert_non_null(strstr(fault.message, "JSON"));
        buf_fini(&text);
    }
    jinja_close(jinja);
}

/* --- memory and threads ----------------------------------------------------------------------- */

#define BUSY                                                                                       \
    "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}{% set ns = namespace(x='') " \
    "%}"                                                                                           \
    "{% for i in l|sort if i %}{% set ns.x = ns.x ~ loop.last ~ f(i, 2, 3) %}{% endfor %}{{ ns.x " \
    "}}"                                                                                           \
    "{{ m|selectattr('n')|map(attribute='content')|list|tojson }}{{ s.split('o')|join(u) }}"       \
    "{{ '%s'|format(d) }}{% set q %}{{ s|upper }}{% endset %}{{ q[::-1] }}{{ 2 ** 70 // 3 }}"      \
    "{{ s.replace('l', 'LL')|indent(2, true) }}{{ '{:>9}{}'.format(n, f) }}{{ l|groupby(0) if z "  \
    "}}"

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct buf text;
        int r;

        buf_init(&text, 1 << 20);
        failing_malloc_arm(nth);
        r = render(BUSY, &text, NULL);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            buf_fini(&text);
            break;
        }
        assert_int_equal(r, E_MEMORY);
        assert_int_equal(text.bytes, 0);
        buf_fini(&text);
    }
}

enum { THREADS = 4, ROUNDS = 200 };

struct shared {
    const struct jinja *jinja;
    char expected[4096];
};

static void *render_often(void *data)
{
    const struct shared *shared = data;
    const struct jinja_variables from = {.text = variables, .bytes = sizeof variables - 1};
    const struct jinja_input input = {
        .sources = &from, .count = 1, .spread = "", .skip_null = "", .now = &now};
    uintptr_t same = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct buf text;

        buf_init(&text, 1 << 20);
        if (jinja_render(shared->jinja, &input, &text, NULL) == 0)
            same += strcmp(buf_string(&text), shared->expected) == 0;
        buf_fini(&text);
    }
    return (void *)same;
}

static void test_threads_share_a_template(void **state)
{
    struct shared shared = {.jinja = NULL};
    struct jinja *jinja = NULL;
    pthread_t threads[THREADS];
    struct buf text;

    (void)state;
    buf_init(&text, sizeof shared.expected - 1);
    assert_int_equal(render(BUSY, &text, NULL), 0);
    memcpy(shared.expected, buf_string(&text), text.bytes + 1);
    buf_fini(&text);
    assert_int_equal(jinja_open(BUSY, strlen(BUSY), &jinja, NULL), 0);
    shared.jinja = jinja;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &shared), 0);
    for (int i = 0; i < THREADS; i++) {
        void *same;

        assert_int_equal(pthread_join(threads[i], &same), 0);
        assert_int_equal((uintptr_t)same, ROUNDS);
    }
    jinja_close(jinja);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_values_in_words),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_members_and_tests),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_what_is_wrong_is_said),
        cmocka_unit_test(test_raise_exception),
        cmocka_unit_test(test_hostile_templates),
        cmocka_unit_test(test_hostile_sources),
        cmocka_unit_test(test_json_input),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_threads_share_a_template),
    };

    return cmocka_run_group_tests_name("engine/text/jinja", tests, NULL, NULL);
}
