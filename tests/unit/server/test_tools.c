/* test_tools.c -- protects: a model's text is split into content, reasoning and calls whatever way
 * it is cut; what is no call, or half of one, comes back as it was; text goes out as soon as it
 * cannot be a call; memory is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/tool_text.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {"
    "\"s\": {\"type\": \"string\"}, \"n\": {\"type\": [\"string\", \"null\"]},"
    "\"i\": {\"type\": \"integer\"}, \"e\": {\"enum\": [\"1\", \"2\"]},"
    "\"o\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

struct expected {
    const char *format;
    const char *raw;
    const char *content;
    const char *reasoning;
    const char *calls; /* name#id(arguments)\n */
    bool cut;
};

static json_t *tools;

static int load_tools(void **state)
{
    (void)state;
    tools = json_loads(tools_text, 0, NULL);
    return tools ? 0 : -1;
}

static int free_tools(void **state)
{
    (void)state;
    json_decref(tools);
    return 0;
}

static void check_one(const struct expected *one, const struct tool_options *options, size_t every)
{
    struct told told;

    told_open(&told);
    told_run(&told, tool_format_find(one->format), options, one->raw, strlen(one->raw), NULL,
             every);
    assert_false(told.failed);
    if (strcmp(buf_string(&told.content), one->content) != 0 ||
        strcmp(buf_string(&told.reasoning), one->reasoning) != 0 ||
        strcmp(buf_string(&told.calls), one->calls) != 0 || told.cut != one->cut)
        fail_msg("%s: '%s' by %zu gives content '%s' reasoning '%s' calls '%s' cut %d", one->format,
                 one->raw, every, buf_string(&told.content), buf_string(&told.reasoning),
                 buf_string(&told.calls), told.cut);
    told_close(&told);
}

static void check(const struct expected *expected, size_t count, const struct tool_options *options)
{
    for (size_t i = 0; i < count; i++)
        for (size_t every = 0; every < 6; every++)
            check_one(&expected[i], options, every);
}

#define CHECK(expected, ...)                               \
    check(expected, sizeof(expected) / sizeof *(expected), \
          &(struct tool_options){.tools = tools, __VA_ARGS__})

/* --- the formats ------------------------------------------------------------------------------ */

static void test_json_objects(void **state)
{
    static const struct expected cases[] = {
        {"hermes", "<tool_call>{\"name\":\"f\"}", "", "", "f({})\n", false},
        {"hermes", "A\n<tool_call>{\"arguments\":{\"a\":1},\"name\":\"f\"}</tool_call>\n B ", "AB ",
         "", "f({\"a\":1})\n", false},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "",
         "", "f({\"a\":1})\n", false},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "", "", "f({})\n",
         false},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x\ny\"}}", "", "",
         "f({\"a\":\"x\\ny\"})\n", false},
        {"hermes", "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "", "",
         "f({})\n", false},
        {"hermes", "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"}]</tool_call>", "", "",
         "f({})\ng({})\n", false},
        {"hermes", "<tool_call>{\"name\":\"f\"}{\"name\":\"g\"}</tool_call>", "", "",
         "f({})\ng({})\n", false},
        {"llama3_json", "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
         "", "", "f({})\ng({})\n", false},
        {"llama3_json", "{\"name\":\"f\"}", "{\"name\":\"f\"}", "", "", false},
        {"llama3_json", "A {\"name\":\"f\",\"parameters\":{}}",
         "A {\"name\":\"f\",\"parameters\":{}}", "", "", false},
        {"llama3_json", "<|python_tag|>print(1)<|eom_id|>", "<|python_tag|>print(1)", "", "",
         false},
        {"granite", "<|tool_call|>[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\"}]", "", "",
         "f({})\ng({})\n", false},
        {"granite", "[{\"name\":\"f\",\"arguments\":{}}]<|end_of_text|>", "", "", "f({})\n", false},
        {"granite", "[1, 2]", "[1, 2]", "", "", false},
        {"granite", "<function_call>{\"name\":\"f\"}</function_call>", "", "", "f({})\n", false},
        {"mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]g{\"a\":1}</s>", "", "",
         "f#abcdefghi({})\ng({\"a\":1})\n", false},
        {"mistral", "[TOOL_CALLS] [{\"id\":\"a1\",\"name\":\"f\",\"arguments\":{}}]", "", "",
         "f#a1({})\n", false},
        {"mistral", "a [TOOL_CALLS] b c", "a [TOOL_CALLS] b c", "", "", false},
        {"mistral", "a [TOOL_CALLS] b", "a [TOOL_CALLS] b", "", "", true},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

static void test_marked_and_tagged(void **state)
{
    static const struct expected cases[] = {
        {"deepseek_v31", "Hi<｜tool▁calls▁begin｜>x", "Hi<｜tool▁calls▁begin｜>x", "", "", false},
        {"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\":1}", "",
         "", "f({\"a\":1})\n", false},
        {"glm45", "<tool_call>f\n<arg_key>n</arg_key><arg_value>150</arg_value></tool_call>", "",
         "", "f({\"n\": \"150\"})\n", false},
        {"glm45", "<tool_call>f\n<arg_key>n</arg_key><arg_value>null</arg_value></tool_call>", "",
         "", "f({\"n\": null})\n", false},
        {"glm45", "<tool_call>f\n<arg_key>e</arg_key><arg_value>1</arg_value></tool_call>", "", "",
         "f({\"e\": \"1\"})\n", false},
        {"glm45", "<tool_call>f\n<arg_key>o</arg_key><arg_value>{}</arg_value></tool_call>", "", "",
         "f({\"o\": {}})\n", false},
        {"glm45", "<tool_call>h<arg_key>x</arg_key><arg_value> 1</arg_value>\n</tool_call>", "", "",
         "h({\"x\": 1})\n", false},
        {"glm45", "<tool_call>f g</tool_call>", "<tool_call>f g</tool_call>", "", "", false},
        {"qwen3_coder",
         "<tool_call>\n<function=f>\n<parameter=s>\na\n\nb\n</parameter>\n<parameter=i>\nTrue\n"
         "</parameter>\n</function>\n</tool_call><|im_end|>",
         "", "", "f({\"s\": \"a\\n\\nb\", \"i\": true})\n", false},
        {"qwen3_coder", "<function=g>\n</function>", "", "", "g({})\n", false},
        {"functionary", "<function=f>{\"s\":\"</function>\"}</function><function=g>{}</function>",
         "", "", "f({\"s\":\"</function>\"})\ng({})\n", false},
        {"functionary", "all\nHello>>>f\n{\"a\":1}>>>g\n{}<|eot_id|>", "Hello", "",
         "f({\"a\":1})\ng({})\n", false},
        {"functionary", "g\n{}", "", "", "g({})\n", false},
        {"functionary", "Yes\nno", "Yes\nno", "", "", false},
        {"functionary", "Yes", "Yes", "", "", false},
        {"functionary", "a >>> print(1)\n", "a >>> print(1)\n", "", "", false},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

static void test_harmony(void **state)
{
    static const struct expected cases[] = {
        {"harmony", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", "",
         "f({})\n", false},
        {"harmony", "<|channel|>commentary to=functions.f<|message|><|call|>", "", "", "f({})\n",
         false},
        {"harmony", "<|channel|>commentary to=g<|message|>{}<|call|>", "", "", "g({})\n", false},
        {"harmony", "<|channel|>analysis to=python<|message|>print(1)<|call|>", "", "print(1)", "",
         false},
        {"harmony",
         "<|channel|>commentary<|message|>Now. <|end|><|start|>assistant<|channel|>final<|message|>"
         "Done.<|return|>",
         "Now. Done.", "", "", false},
        {"harmony", "<|channel|>analysis<|message|>hm", "", "hm", "", true},
        {"harmony", "<|channel|>ana", "", "", "", true},
        {"harmony", "plain text", "plain text", "", "", false},
        {"harmony", " to", " to", "", "", false},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>[1]<|call|>",
         "<|channel|>commentary to=functions.f<|message|>[1]", "", "", false},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

static void test_pythonic(void **state)
{
    static const struct expected cases[] = {
        {"llama_pythonic",
         "[f(a=[1,(2,3),{\"k\":.5,'l':5.,1:None}], b=r\"\\d\", c='''x'y''', h='')]", "", "",
         "f({\"a\": [1, [2, 3], {\"k\": 0.5, \"l\": 5.0, \"1\": null}], \"b\": \"\\\\d\", "
         "\"c\": \"x'y\", \"h\": \"\"})\n",
         false},
        {"llama_pythonic", "[f(d='\\u00e9\\x41\\ud83d\\ude00\\101\\q\\ud83d', e='\\\ny')]", "", "",
         "f({\"d\": \"éA😀A\\\\q\xef\xbf\xbd\", \"e\": \"y\"})\n", false},
        {"llama_pythonic", "[f(e=1_000, f=0x1f, g=+1, h=-1.5e3, i=[1,], j=(), k={},)]", "", "",
         "f({\"e\": 1000, \"f\": 31, \"g\": 1, \"h\": -1.5e3, \"i\": [1], \"j\": [], \"k\": {}})\n",
         false},
        {"llama_pythonic", "<|python_start|>f(a = True)<|python_end|>after", "after", "",
         "f({\"a\": true})\n", false},
        {"llama_pythonic", "[f(x)]", "[f(x)]", "", "", false},
        {"llama_pythonic", "[f('x')]", "[f('x')]", "", "", false},
        {"llama_pythonic", "[f(a=01)]", "[f(a=01)]", "", "", false},
        {"llama_pythonic", "[f(a={1})]", "[f(a={1})]", "", "", false},
        {"llama_pythonic", "[f(a={(1,): 2})]", "[f(a={(1,): 2})]", "", "", false},
        {"llama_pythonic", "[]", "[]", "", "", false},
        {"llama_pythonic", "Look: [g()]", "Look: [g()]", "", "", false},
        {"llama_pythonic", "[f(a=1), [", ", [", "", "f({\"a\": 1})\n", false},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

/* --- reasoning -------------------------------------------------------------------------------- */

static void test_reasoning(void **state)
{
    static const struct expected cases[] = {
        {"hermes", "<think>\nA\n\nB </think>\n\nHi <think>x</think>", "Hi <think>x</think>",
         "A\n\nB", "", false},
        {"hermes", " <think></think> Hi", "Hi", "", "", false},
        {"hermes", "<think>A</thin", "", "A</thin", "", true},
        {"hermes", "A</think>B", "A</think>B", "", "", false},
        {"hermes", "<thin", "<thin", "", "", false},
        {"mistral", "[THINK]x[/THINK]y</s>", "y", "x", "", false},
        {"granite", "<think>x</think>\n<response>y</response>", "y", "x", "", false},
        {"granite", "a <response>y</response>", "a <response>y</response>", "", "", false},
    };
    static const struct expected opened[] = {
        {"deepseek_v3", "A</think>\n\nB", "B", "A", "", false},
        {"deepseek_v3", "\n<think>\nA</think>B", "B", "A", "", false},
        {"glm45", "A <tool_call>f</think>", "", "A <tool_call>f", "", false},
        {"harmony", "A<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>", "B", "A",
         "", false},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
    CHECK(opened, .calls = true, .ends_given = true, .starts_in_reasoning = true);
}

static void test_without_calls(void **state)
{
    static const struct expected cases[] = {
        {"hermes", "<think>A</think><tool_call>{\"name\":\"f\"}", "<tool_call>{\"name\":\"f\"}",
         "A", "", false},
        {"llama3_json", "{\"name\":\"f\",\"parameters\":{}}", "{\"name\":\"f\",\"parameters\":{}}",
         "", "", false},
        {"llama_pythonic", "[f()]", "[f()]", "", "", false},
        {"functionary", "all\nHi>>>g\n{}", "Hi>>>g\n{}", "", "", false},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "{}", "", "",
         false},
    };

    (void)state;
    CHECK(cases, .ends_given = true);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void test_half_calls_come_back(void **state)
{
    static const struct expected cases[] = {
        {"hermes", "A <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}<|im_end|>",
         "A <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}", "", "", false},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x<|im_end|>",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x", "", "", true},
        {"hermes", "A <tool_call>", "A <tool_call>", "", "", true},
        {"hermes", "<tool_call>[{\"name\":\"f\"},{\"name\":\"g\"", ",{\"name\":\"g\"", "",
         "f({})\n", true},
        {"llama3_json", "{\"name\":\"f\",\"para", "{\"name\":\"f\",\"para", "", "", true},
        {"granite", "<|tool_call|>[", "<|tool_call|>[", "", "", true},
        {"mistral", "[TOOL_CALLS]f[AR", "[TOOL_CALLS]f[AR", "", "", true},
        {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\"", "[TOOL_CALLS]f[ARGS]{\"a\"", "", "", true},
        {"deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```js",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```js", "", "", true},
        {"glm45", "<tool_call>f\n<arg_key>s</arg_key><arg_value>x</arg_va",
         "<tool_call>f\n<arg_key>s</arg_key><arg_value>x</arg_va", "", "", true},
        {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\nab",
         "<tool_call>\n<function=f>\n<parameter=s>\nab", "", "", true},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\":",
         "<|channel|>commentary to=functions.f<|message|>{\"a\":", "", "", true},
        {"harmony", "<|channel|>commentary to=functions.f", "<|channel|>commentary to=functions.f",
         "", "", true},
        {"llama_pythonic", "[f(a=1", "[f(a=1", "", "", true},
        {"functionary", "f\n{\"a\"", "f\n{\"a\"", "", "", true},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

/* The end that comes amid a marker behind a whole call leaves nothing of it. */
static void test_half_closes_are_left_out(void **state)
{
    static const struct expected cases[] = {
        {"hermes", "<tool_call>{\"name\":\"f\"}\n</tool_", "", "", "f({})\n", false},
        {"hermes", "<tool_call>{\"name\":\"f\"}</tool_x", "</tool_x", "", "f({})\n", false},
        {"hermes", "A</tool_", "A</tool_", "", "", false},
        {"functionary", "<function=f>{}</func", "", "", "f({})\n", false},
        {"deepseek_v3",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n``", "",
         "", "f({})\n", false},
        {"deepseek_v31",
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
         "｜tool▁ca",
         "", "", "f({})\n", false},
    };

    (void)state;
    CHECK(cases, .calls = true, .ends_given = true);
}

static void test_end_of_turn(void **state)
{
    static const struct expected given[] = {
        {"hermes", "A</s>B</s>", "A</s>B", "", "", false},
        {"mistral", "A</s", "A</s", "", "", false},
    };
    static const struct expected plain[] = {
        {"hermes", "A</s>B</s>", "A</s>B</s>", "", "", false},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>", "", "", "f({})\n", false},
    };

    (void)state;
    CHECK(given, .calls = true, .ends_given = true);
    CHECK(plain, .calls = true);
}

/* --- at once ---------------------------------------------------------------------------------- */

static void check_after(struct tool_parser *parser, struct told *told, const char *text,
                        const char *content, const char *arguments)
{
    tool_parser_feed(parser, text, strlen(text), told_take, told);
    assert_string_equal(buf_string(&told->content), content);
    assert_string_equal(buf_string(&told->arguments), arguments);
}

static void test_goes_out_at_once(void **state)
{
    const struct tool_options options = {.calls = true};
    struct tool_parser *parser;
    struct told told;

    (void)state;
    told_open(&told);
    assert_int_equal(tool_parser_open(tool_format_find("hermes"), &options, &parser, NULL), 0);
    check_after(parser, &told, "Hello", "Hello", "");
    check_after(parser, &told, ", a < b", "Hello, a < b", "");
    check_after(parser, &told, " <tool", "Hello, a < b", "");
    check_after(parser, &told, "s> ok", "Hello, a < b <tools> ok", "");
    check_after(parser, &told, "\n<tool_call>{\"name\": \"f\", ", "Hello, a < b <tools> ok", "");
    assert_int_equal(told.begun, 0);
    check_after(parser, &told, "\"arguments\": {\"a", "Hello, a < b <tools> ok", "{\"a");
    assert_int_equal(told.begun, 1);
    assert_string_equal(buf_string(&told.call), "f");
    check_after(parser, &told, "\": 1}", "Hello, a < b <tools> ok", "{\"a\": 1}");
    check_after(parser, &told, "}\n</tool_call>", "Hello, a < b <tools> ok", "{\"a\": 1}");
    assert_int_equal(told.whole, 1);
    tool_parser_finish(parser, told_take, &told);
    assert_false(tool_parser_cut(parser));
    tool_parser_close(parser);
    told_close(&told);
}

/* A piece of text is told in one delta. */
static void test_pieces_are_joined(void **state)
{
    const struct tool_options options = {.calls = true};
    const char *text = "Several words\nand a line.";
    struct told told;

    (void)state;
    told_open(&told);
    told_run(&told, tool_format_find("hermes"), &options, text, strlen(text), NULL, 0);
    assert_int_equal(told.deltas, 1);
    told_close(&told);
}

/* --- bounds ----------------------------------------------------------------------------------- */

static void feed_many(struct tool_parser *parser, struct told *told, const char *text, size_t bytes)
{
    size_t one = strlen(text);

    for (size_t fed = 0; fed < bytes; fed += one)
        tool_parser_feed(parser, text, one, told_take, told);
}

/* A call that was told already stays one when it grows too long to be kept. */
static void test_long_calls(void **state)
{
    const struct tool_options options = {.calls = true};
    const char *begin = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", *end = "\"}}";
    struct tool_parser *parser;
    struct told told;

    (void)state;
    for (unsigned whole = 0; whole < 2; whole++) {
        told_open(&told);
        assert_int_equal(tool_parser_open(tool_format_find("hermes"), &options, &parser, NULL), 0);
        tool_parser_feed(parser, begin, strlen(begin), told_take, &told);
        feed_many(parser, &told, "0123456789abcdef", 2 * TOOL_CALL_BYTES_MAX);
        if (whole)
            tool_parser_feed(parser, end, strlen(end), told_take, &told);
        tool_parser_finish(parser, told_take, &told);
        assert_int_equal(told.whole, 1);
        assert_int_equal(told.content.bytes, 0);
        assert_true(told.arguments.bytes >= 2 * TOOL_CALL_BYTES_MAX);
        assert_int_equal(told_is_object(&told.arguments), whole);
        assert_int_equal(tool_parser_cut(parser), !whole);
        assert_false(tool_parser_failed(parser));
        tool_parser_close(parser);
        told_close(&told);
    }
}

/* One that was not is content from there on. */
static void test_long_candidates(void **state)
{
    static const struct {
        const char *format, *begin, *more;
    } cases[] = {
        {"hermes", "<tool_call>", "          "},
        {"llama3_json", "{\"arguments\":{\"a\":\"", "0123456789"},
        {"llama_pythonic", "[", "          "},
        {"deepseek_v3", "<｜tool▁calls▁begin｜>", "\n"},
        {"functionary", "<function=", "aaaaaaaaaa"},
        {"harmony", "<|channel|>", "aaaaaaaaaa"},
        {"glm45", "<tool_call>f<arg_key>", "aaaaaaaaaa"},
        {"mistral", "[TOOL_CALLS]", "aaaaaaaaaa"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tool_options options = {.calls = true};
        size_t bytes = TOOL_CALL_BYTES_MAX + TOOL_CALL_BYTES_MAX / 2;
        const char *begin = cases[i].begin;
        struct tool_parser *parser;
        struct told told;

        told_open(&told);
        assert_int_equal(
            tool_parser_open(tool_format_find(cases[i].format), &options, &parser, NULL), 0);
        tool_parser_feed(parser, begin, strlen(begin), told_take, &told);
        feed_many(parser, &told, cases[i].more, bytes);
        tool_parser_finish(parser, told_take, &told);
        assert_int_equal(told.whole, 0);
        assert_true(told.content.bytes >= strlen(begin) + bytes);
        assert_memory_equal(told.content.data, begin, strlen(begin));
        assert_false(tool_parser_failed(parser));
        tool_parser_close(parser);
        told_close(&told);
    }
}

static void test_deep_arguments(void **state)
{
    const struct tool_options options = {.calls = true};
    static const char *const begins[] = {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":",
                                         "[f(a="};
    static const char *const formats[] = {"hermes", "llama_pythonic"};
    char text[12000];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        size_t bytes = strlen(begins[i]);
        struct told told;

        memcpy(text, begins[i], bytes);
        memset(text + bytes, '[', 10000);
        told_open(&told);
        told_run(&told, tool_format_find(formats[i]), &options, text, bytes + 10000, NULL, 1);
        assert_int_equal(told.whole, 0);
        assert_int_equal(told.content.bytes, bytes + 10000);
        told_close(&told);
    }
}

/* --- the table, and memory -------------------------------------------------------------------- */

static void test_table(void **state)
{
    const struct tool_format *mistral = tool_format_find("mistral");
    struct buf list;

    (void)state;
    buf_init(&list, 1000);
    tool_format_list(&list);
    assert_non_null(strstr(buf_string(&list), "llama3_json, hermes"));
    buf_fini(&list);
    assert_null(tool_format_find("no-such-format"));
    assert_ptr_equal(tool_format_find("qwen3"), tool_format_find("hermes"));
    assert_string_equal(tool_format_name(mistral), "mistral");
    assert_true(tool_format_short_ids(mistral));
    assert_false(tool_format_short_ids(tool_format_find("hermes")));
    assert_true(tool_format_marks(mistral, "[ARGS]", 6));
    assert_true(tool_format_marks(mistral, "[TOOL_CALLS]", 12));
    assert_false(tool_format_marks(mistral, "[TOOL_CALLS", 11));
    assert_false(tool_format_marks(mistral, "</s>", 4)); /* an end is never text */
}

/* Each allocation fails once: what is told is right, or the parser says that it is not. */
static void test_failing_allocations(void **state)
{
    static const char *const texts[][2] = {
        {"hermes", "A <tool_call>{\"name\":\"f\",\"arguments\":\"{}\"}</tool_call> B"},
        {"glm45", "<tool_call>f\n<arg_key>n</arg_key><arg_value>1 2</arg_value></tool_call>"},
        {"llama_pythonic", "[f(a='x'), g()] B"},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|>"},
    };
    const struct tool_options options = {.calls = true, .tools = tools};
    size_t i = 0;
    uint64_t nth = 1;

    (void)state;
    while (i < sizeof texts / sizeof *texts) {
        const struct tool_format *format = tool_format_find(texts[i][0]);
        const char *raw = texts[i][1];
        struct told told, expected;
        bool armed;

        told_open(&told);
        told_open(&expected);
        told_run(&expected, format, &options, raw, strlen(raw), NULL, 0);
        /* What is told is kept without an allocation, so that only the parser's can fail. */
        buf_put(&told.content, raw, strlen(raw));
        buf_put(&told.reasoning, raw, strlen(raw));
        buf_put(&told.calls, raw, strlen(raw));
        buf_put(&told.call, raw, strlen(raw));
        buf_put(&told.arguments, raw, strlen(raw));
        buf_reset(&told.content);
        buf_reset(&told.reasoning);
        buf_reset(&told.calls);
        buf_reset(&told.call);
        buf_reset(&told.arguments);
        failing_malloc_arm(nth++);
        told_run(&told, format, &options, raw, strlen(raw), NULL, 0);
        armed = failing_malloc_disarm();
        if (!armed) {
            assert_true(told_same(&told, &expected));
            i++;
            nth = 1;
        } else if (!told.failed && told.whole == expected.whole) {
            assert_true(told_same_text(&told.content, &expected.content));
        }
        told_close(&told);
        told_close(&expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_objects),
        cmocka_unit_test(test_marked_and_tagged),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_pythonic),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_without_calls),
        cmocka_unit_test(test_half_calls_come_back),
        cmocka_unit_test(test_half_closes_are_left_out),
        cmocka_unit_test(test_end_of_turn),
        cmocka_unit_test(test_goes_out_at_once),
        cmocka_unit_test(test_pieces_are_joined),
        cmocka_unit_test(test_long_calls),
        cmocka_unit_test(test_long_candidates),
        cmocka_unit_test(test_deep_arguments),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests_name("server/tools", tests, load_tools, free_tools);
}
