/* test_openai_tools.c -- protects: tools and the choice among them are checked and what cannot be
 * kept is refused by name; the messages of a conversation with calls reach the template as it
 * expects them; an answer is split when it must be, and only then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"
#include "server/reply.h"
#include "tests/lib/fake_text.h"

static const struct tokenizer plain_tokenizer = {.adds_bos = false};
static const struct chat_template chatml = {.foreign = false};

static struct openai_context context = {.tokenizer = &plain_tokenizer,
                                        .chat_template = &chatml,
                                        .model_id = "m",
                                        .context = 1000,
                                        .vocabulary = FAKE_COUNT,
                                        .choices_max = 8};

static int parse(const char *fields, struct reply **ret_reply, struct api_error *error)
{
    struct request *request = NULL;
    char body[8192];
    int r, bytes = snprintf(body, sizeof body,
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s%s}",
                            *fields ? "," : "", fields);

    assert_true(bytes > 0 && (size_t)bytes < sizeof body);
    *error = (struct api_error){0};
    r = openai_parse(OPENAI_CHAT, &context, true, body, (size_t)bytes, &request, ret_reply, error);
    request_free(request);
    return r;
}

static void good(const char *fields, bool split, bool calls)
{
    struct reply *reply = NULL;
    struct api_error error;

    if (parse(fields, &reply, &error) < 0)
        fail_msg("refused: %s\n%s", error.message, fields);
    assert_int_equal(reply->format != NULL, split);
    assert_int_equal(reply->parse.calls, calls);
    assert_int_equal(reply->parse.tools != NULL, calls);
    reply_close(reply);
}

static void bad(const char *fields, const char *param, const char *message)
{
    struct reply *reply = NULL;
    struct api_error error;

    if (parse(fields, &reply, &error) == 0)
        fail_msg("taken: %s", fields);
    if (api_error_status(error.kind) != 400 || strcmp(error.param, param) != 0 ||
        !strstr(error.message, message))
        fail_msg("%s\nis answered %d, param '%s': %s", fields, api_error_status(error.kind),
                 error.param, error.message);
}

#define FUNCTION(more)  "{\"type\":\"function\",\"function\":{" more "}}"
#define TOOLS(function) "\"tools\":[" function "]"
#define F               FUNCTION("\"name\":\"f\"")

static int with_format(void **state)
{
    (void)state;
    context.tool_format = tool_format_find("hermes");
    context.parse_always = false;
    return 0;
}

/* --- tools ------------------------------------------------------------------------------------ */

static void test_tools_are_taken(void **state)
{
    (void)state;
    good("", false, false);
    good("\"tools\":[]", false, false);
    good("\"tools\":null,\"tool_choice\":null,\"parallel_tool_calls\":null", false, false);
    good("\"tool_choice\":\"none\"", false, false);
    good(TOOLS(F), true, true);
    good(TOOLS(F) ",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false", true, true);
    good(TOOLS(F) ",\"tool_choice\":\"none\"", false, false);
    good(TOOLS(F "," FUNCTION("\"name\":\"a.b-c_9\",\"description\":\"d\",\"strict\":false,"
                              "\"parameters\":{\"type\":\"object\",\"properties\":{}}")),
         true, true);
    good(TOOLS("{\"function\":{\"name\":\"f\",\"parameters\":null}}"), true, true);
    context.parse_always = true;
    good("", true, false);
    good(TOOLS(F) ",\"tool_choice\":\"none\"", true, false);
}

static void test_wrong_tools(void **state)
{
    char many[8000] = "\"tools\":[", name[200];

    (void)state;
    bad("\"tools\":{}", "tools", "array");
    bad(TOOLS("5"), "tools[0]", "object");
    bad(TOOLS("{}"), "tools[0].function", "missing");
    bad(TOOLS(F ",{\"type\":\"custom\"}"), "tools[1].type", "custom");
    bad(TOOLS("{\"type\":5}"), "tools[0].type", "string");
    bad(TOOLS(FUNCTION("\"x\":1")), "tools[0].function.name", "missing");
    bad(TOOLS(FUNCTION("\"name\":5")), "tools[0].function.name", "string");
    bad(TOOLS(FUNCTION("\"name\":\"\"")), "tools[0].function.name", "letters");
    bad(TOOLS(FUNCTION("\"name\":\"a b\"")), "tools[0].function.name", "letters");
    snprintf(name, sizeof name, TOOLS(FUNCTION("\"name\":\"%065d\"")), 1);
    bad(name, "tools[0].function.name", "64 letters");
    bad(TOOLS(F "," F), "tools[1].function.name", "'f' a second time");
    bad(TOOLS(FUNCTION("\"name\":\"f\",\"description\":5")), "tools[0].function.description",
        "string");
    bad(TOOLS(FUNCTION("\"name\":\"f\",\"parameters\":[]")), "tools[0].function.parameters",
        "object");
    bad(TOOLS(FUNCTION("\"name\":\"f\",\"parameters\":{\"type\":\"array\"}")),
        "tools[0].function.parameters.type", "array");
    bad(TOOLS(FUNCTION("\"name\":\"f\",\"parameters\":{\"properties\":5}")),
        "tools[0].function.parameters.properties", "object");
    for (unsigned i = 0; i < 129; i++) {
        size_t bytes = strlen(many);

        snprintf(many + bytes, sizeof many - bytes, "%s{\"function\":{\"name\":\"f%u\"}}",
                 i > 0 ? "," : "", i);
    }
    memcpy(many + strlen(many), "]", 2);
    bad(many, "tools", "at most 128");
}

static void test_tool_choice(void **state)
{
    (void)state;
    bad("\"tool_choice\":\"auto\"", "tool_choice", "needs 'tools'");
    bad("\"tool_choice\":\"required\",\"tools\":[]", "tool_choice", "needs 'tools'");
    bad(TOOLS(F) ",\"tool_choice\":\"any\"", "tool_choice", "must be");
    bad(TOOLS(F) ",\"tool_choice\":5", "tool_choice", "must be");
    bad(TOOLS(F) ",\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice.type",
        "allowed_tools");
    bad(TOOLS(F) ",\"tool_choice\":{}", "tool_choice.function", "missing");
    bad(TOOLS(F) ",\"tool_choice\":{\"function\":{}}", "tool_choice.function.name", "missing");
    bad(TOOLS(F) ",\"tool_choice\":{\"function\":{\"name\":\"g\"}}", "tool_choice.function.name",
        "none of 'tools'");
    bad("\"parallel_tool_calls\":5", "parallel_tool_calls", "true or false");
}

/* A call that must come, or must fit, needs constraints, which this server has none of. */
static void test_constraints_are_refused(void **state)
{
    (void)state;
    bad(TOOLS(F) ",\"tool_choice\":\"required\"", "tool_choice", "no tokenizer");
    bad(TOOLS(F) ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
        "tool_choice", "no tokenizer");
    bad(TOOLS(FUNCTION("\"name\":\"f\",\"strict\":true")), "tools", "no tokenizer");
}

static void test_unknown_format(void **state)
{
    (void)state;
    context.tool_format = NULL;
    bad(TOOLS(F), "tools", "--tool-parser");
    good(TOOLS(F) ",\"tool_choice\":\"none\"", false, false);
    context.tool_format = tool_format_find("think");
    bad(TOOLS(F), "tools", "--tool-parser");
}

static void test_reasoning_opened_by_the_prompt(void **state)
{
    static const struct {
        const char *content;
        bool starts;
    } cases[] = {{"x <think>\\n", true}, {"<think>", true}, {"<think>x", false}, {"", false}};

    (void)state;
    context.parse_always = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request *request = NULL;
        struct reply *reply = NULL;
        struct api_error error = {0};
        char body[256];
        /* The fake template ends a message with <|im_end|>: before it is not the end. */
        int bytes = snprintf(body, sizeof body,
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],"
                             "\"add_generation_prompt\":false}",
                             cases[i].content);

        assert_int_equal(openai_parse(OPENAI_CHAT, &context, true, body, (size_t)bytes, &request,
                                      &reply, &error),
                         0);
        assert_false(reply->parse.starts_in_reasoning);
        assert_int_equal(tool_format_opens_reasoning(context.tool_format, cases[i].content,
                                                     strcspn(cases[i].content, "\\")),
                         cases[i].starts);
        request_free(request);
        reply_close(reply);
    }
}

/* --- messages --------------------------------------------------------------------------------- */

/* What a template would get, as JSON; the fault's message if it is refused. */
static void check_messages(const char *messages, const char *expected)
{
    struct draft draft = {.context = &context, .endpoint = OPENAI_CHAT};
    json_t *got = NULL, *body = NULL, *wanted = NULL;
    char text[2048];
    char *dump;
    int r, bytes = snprintf(text, sizeof text, "{\"messages\":[%s]}", messages);

    assert_int_equal(json_parse(text, (size_t)bytes, &body, NULL), 0);
    draft.body = body;
    r = draft_read_messages(&draft, &got);
    if (r < 0) {
        if (strncmp(expected, draft.fault.field, strlen(draft.fault.field)) != 0 ||
            !strstr(draft.fault.message, expected + strlen(draft.fault.field) + 1))
            fail_msg("%s: %s: %s", messages, draft.fault.field, draft.fault.message);
    } else {
        snprintf(text, sizeof text, "[%s]", expected);
        assert_int_equal(json_parse(text, strlen(text), &wanted, NULL), 0);
        dump = json_dumps(got, JSON_COMPACT);
        if (!json_equal(got, wanted))
            fail_msg("%s: %s", messages, dump);
        free(dump);
        json_decref(wanted);
    }
    /* The body is as it was. */
    snprintf(text, sizeof text, "{\"messages\":[%s]}", messages);
    assert_int_equal(json_parse(text, (size_t)bytes, &wanted, NULL), 0);
    assert_true(json_equal(wanted, body));
    json_decref(wanted);
    json_decref(got);
    json_decref(body);
}

static void test_messages_for_the_template(void **state)
{
    (void)state;
    check_messages("{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\"}",
                   "{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\"}");
    check_messages("{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                   "{\"type\":\"text\",\"text\":\"b\"}]}",
                   "{\"role\":\"system\",\"content\":\"a\\nb\"}");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
                   "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1]}\"}}]}",
                   "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\","
                   "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                   "{\"a\":[1]}}}]}");
    check_messages("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
                   "{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\"}},"
                   "{\"function\":{\"name\":\"h\",\"arguments\":\"not JSON\"}},"
                   "{\"function\":{\"name\":\"i\",\"arguments\":\"[1]\"}},"
                   "{\"function\":{\"name\":\"j\",\"arguments\":\"\"}}]}",
                   "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":"
                   "{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\","
                   "\"arguments\":{}}},{\"function\":{\"name\":\"h\",\"arguments\":\"not JSON\"}},"
                   "{\"function\":{\"name\":\"i\",\"arguments\":\"[1]\"}},"
                   "{\"function\":{\"name\":\"j\",\"arguments\":{}}}]}");
    check_messages("{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[],"
                   "\"reasoning\":\"r\"}",
                   "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"r\","
                   "\"reasoning_content\":\"r\"}");
    check_messages("{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}",
                   "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}");
}

static void test_wrong_messages(void **state)
{
    (void)state;
    check_messages("{\"role\":\"tool\"}", "messages[0].content missing");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":5}", "messages[0].tool_calls array");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[5]}",
                   "messages[0].tool_calls[0] object");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":5}]}",
                   "messages[0].tool_calls[0].id string");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{}]}",
                   "messages[0].tool_calls[0] missing");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}",
                   "messages[0].tool_calls[0].function.name missing");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                   "\"arguments\":5}}]}",
                   "messages[0].tool_calls[0].function.arguments string");
    check_messages("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":5}]}",
                   "messages[0].tool_calls[0].type string");
    check_messages("{\"role\":\"assistant\",\"reasoning\":5}", "messages[0].reasoning string");
    check_messages("{\"role\":\"assistant\",\"reasoning\":5,\"reasoning_content\":\"r\"}",
                   "messages[0].reasoning string");
    check_messages("{\"role\":\"tool\",\"tool_call_id\":5,\"content\":\"r\"}",
                   "messages[0].tool_call_id string");
    check_messages("{\"role\":\"user\",\"name\":[],\"content\":\"r\"}", "messages[0].name string");
    check_messages("{\"role\":\"assistant\",\"refusal\":5}", "messages[0].refusal string");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_tools_are_taken, with_format),
        cmocka_unit_test_setup(test_wrong_tools, with_format),
        cmocka_unit_test_setup(test_tool_choice, with_format),
        cmocka_unit_test_setup(test_constraints_are_refused, with_format),
        cmocka_unit_test_setup(test_unknown_format, with_format),
        cmocka_unit_test_setup(test_reasoning_opened_by_the_prompt, with_format),
        cmocka_unit_test_setup(test_messages_for_the_template, with_format),
        cmocka_unit_test_setup(test_wrong_messages, with_format),
    };

    return cmocka_run_group_tests_name("server/openai_tools", tests, NULL, NULL);
}
