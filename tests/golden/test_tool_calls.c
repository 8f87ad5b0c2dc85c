/* test_tool_calls.c -- protects: what models of each family wrote is split into content, reasoning
 * and calls as tests/data/tool_calls says, whole, byte by byte, and cut as the tokenizers cut it or
 * at random. With WEFT_GOLDENS the cases there are read instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "tests/lib/goldens.h"
#include "tests/lib/tool_text.h"

enum { CUTS_MAX = 4096, PATH_BYTES = 4096 };

/* Without white space around it; nothing and null are the same. */
static void check_part(const char *id, const char *part, const struct buf *told,
                       const json_t *expected)
{
    const char *text = json_is_string(expected) ? json_string_value(expected) : "";
    const char *got = buf_string(told);
    size_t bytes = strlen(text), got_bytes = told->bytes;

    while (got_bytes > 0 && strchr(" \n\r\t", *got)) {
        got++;
        got_bytes--;
    }
    while (got_bytes > 0 && strchr(" \n\r\t", got[got_bytes - 1]))
        got_bytes--;
    if (bytes != got_bytes || memcmp(text, got, bytes) != 0)
        fail_msg("%s: %s is '%s', not '%s'", id, part, buf_string(told), text);
}

/* Ours are `name#id(arguments)\n`: arguments are compared as values. */
static void check_calls(const char *id, const struct told *told, const json_t *expected,
                        const json_t *ids)
{
    const char *at = buf_string(&told->calls);
    const json_t *call;
    size_t i;

    if (told->whole != json_array_size(expected))
        fail_msg("%s: %u calls, not %zu: %s", id, told->whole, json_array_size(expected), at);
    json_array_foreach(expected, i, call)
    {
        char name[TOOL_NAME_BYTES_MAX + TOOL_ID_BYTES_MAX + 2];
        size_t bytes = strcspn(at, "("), arguments = strcspn(at + bytes, "\n");
        json_t *value = NULL;

        if (ids)
            snprintf(name, sizeof name, "%s#%s", json_string_value(json_object_get(call, "name")),
                     json_string_value(json_array_get(ids, i)));
        else
            snprintf(name, sizeof name, "%s", json_string_value(json_object_get(call, "name")));
        if (bytes != strlen(name) || memcmp(at, name, bytes) != 0)
            fail_msg("%s: call %zu is not %s: %s", id, i, name, at);
        assert_int_equal(json_parse(at + bytes + 1, arguments - 2, &value, NULL), 0);
        if (!json_equal(value, json_object_get(call, "arguments")))
            fail_msg("%s: call %zu has other arguments: %s", id, i, at);
        json_decref(value);
        at += bytes + arguments + 1;
    }
}

static void check_told(const char *id, const struct told *told, const json_t *one)
{
    const json_t *expected = json_object_get(one, "expected");
    const char *reason = told->cut ? "length" : told->whole > 0 ? "tool_calls" : "stop";

    assert_false(told->failed);
    check_part(id, "content", &told->content, json_object_get(expected, "content"));
    check_part(id, "reasoning", &told->reasoning, json_object_get(expected, "reasoning_content"));
    check_calls(id, told, json_object_get(expected, "tool_calls"), json_object_get(one, "ids"));
    assert_string_equal(reason, json_string_value(json_object_get(expected, "finish_reason")));
}

/* Returns how many ways of cutting were checked. */
static size_t check_case(const json_t *one, const json_t *tools)
{
    const char *id = json_string_value(json_object_get(one, "id"));
    const char *raw = json_string_value(json_object_get(one, "raw"));
    const struct tool_format *format =
        tool_format_find(json_string_value(json_object_get(one, "format")));
    const struct tool_options options = {
        .calls = true,
        .starts_in_reasoning = json_is_true(json_object_get(one, "starts_in_reasoning")),
        .ends_given = true,
        .tools = tools};
    size_t cuts[CUTS_MAX], i, checked = 0;
    const json_t *list, *cut;
    const char *name;
    struct told told;

    assert_non_null(format);
    for (size_t every = 0; every < 8; every++, checked++) {
        told_open(&told);
        told_run(&told, format, &options, raw, strlen(raw), NULL, every);
        check_told(id, &told, one);
        told_close(&told);
    }
    json_object_foreach((json_t *)json_object_get(one, "splits"), name, list)
    {
        assert_true(json_array_size(list) <= CUTS_MAX);
        json_array_foreach(list, i, cut) cuts[i] = (size_t)json_integer_value(cut);
        told_open(&told);
        told_run(&told, format, &options, raw, strlen(raw), cuts, json_array_size(list));
        check_told(id, &told, one);
        told_close(&told);
        checked++;
    }
    return checked;
}

static void test_cases(void **state)
{
    const char *folder = getenv("WEFT_GOLDENS");
    char command[PATH_BYTES];
    const json_t *cases, *one;
    size_t i, checked = 0;
    json_t *file;

    (void)state;
    if (!folder || !*folder)
        folder = "tests/data";
    snprintf(command, sizeof command, "cat '%s/tool_calls/tool_calls.json'", folder);
    file = command_json(command, 0);
    cases = json_object_get(file, "cases");
    assert_true(json_array_size(cases) >= 33);
    json_array_foreach(cases, i, one)
    {
        checked += check_case(one, json_object_get(file, "tools"));
    }
    assert_true(checked >= json_array_size(cases) * 12);
    json_decref(file);
}

/* Each published template shows the format that its model writes. */
static void test_templates(void **state)
{
    static const struct {
        const char *template, *format;
        bool always;
    } known[] = {
        {"axo-llama4", "llama_pythonic", false},
        {"axo-qwen3", "hermes", true},
        {"lcp-Qwen3.5-4B", "qwen3_coder", true},
        {"lcp-GLM-4.6", "glm45", true},
        {"lcp-NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", false},
        {"lcp-Qwen-Qwen2.5-7B-Instruct", "hermes", false},
        {"lcp-ibm-granite-granite-3.3-2B-Instruct", "granite", true},
        {"lcp-ibm-granite-granite-4.1", "granite", false},
        {"lcp-llama-cpp-deepseek-r1", "deepseek_v3", true},
        {"lcp-meetkai-functionary-medium-v3.1", "functionary", false},
        {"lcp-meta-llama-Llama-3.1-8B-Instruct", "llama3_json", false},
        {"lcp-meta-llama-Llama-3.2-3B-Instruct", "llama3_json", false},
        {"lcp-mistralai-Ministral-3-14B-Reasoning-2512", "mistral", true},
        {"lcp-mistralai-Mistral-Nemo-Instruct-2407", "mistral", false},
        {"xin-Deepseek-V3.1", "deepseek_v31", true},
        {"trl-deepseekv3", "deepseek_v3", true},
        {"xin-glm-4.5", "glm45", true},
        {"xin-gpt-oss", "harmony", true},
        {"xin-mistral-instruct-v0.3", "mistral", false},
        {"lcp-HuggingFaceTB-SmolLM3-3B", "think", true},
        {"axo-phi_4", "think", true},
        {"axo-chatml", NULL, false},
        {"axo-gemma", NULL, false},
        {"hand-zephyr", NULL, false},
    };
    const char *folder = goldens_folder();

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct tool_format *format;
        char command[PATH_BYTES];
        bool always = true;
        size_t bytes;
        char *text;

        snprintf(command, sizeof command, "cat '%s/chat_templates/%s.jinja'", folder,
                 known[i].template);
        text = command_output(command, &bytes);
        format = tool_format_choose(text, bytes, &always);
        if (!format != !known[i].format || always != known[i].always ||
            (format && strcmp(tool_format_name(format), known[i].format) != 0))
            fail_msg("%s shows %s, always %d", known[i].template,
                     format ? tool_format_name(format) : "nothing", always);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_templates)};

    return cmocka_run_group_tests_name("golden/tool_calls", tests, NULL, NULL);
}
