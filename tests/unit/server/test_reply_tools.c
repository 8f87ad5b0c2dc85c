/* test_reply_tools.c -- protects: answers in parts. What a stream's deltas amount to is what the
 * whole message says: content, reasoning, calls with their ids and arguments; finish_reason, the
 * count of reasoning tokens, log-probabilities that are never lost. */
#include "server/reply.h"
#include "tests/lib/answers.h"
#include "tests/lib/failing_malloc.h"

enum { TOKENS_MAX = 1024 };

/* One answer, put together. */
struct parts {
    char content[1024];
    char reasoning[1024];
    char calls[1024]; /* name(arguments)\n, in the order of their indices */
    char finish[16];
    unsigned ids; /* distinct ones that look right */
    unsigned entries;
    json_int_t reasoning_tokens;
    bool content_null;
};

static unsigned text_tokens(const char *text, int32_t *tokens)
{
    unsigned count = 0;

    for (; *text; text++) {
        assert_true(count < TOKENS_MAX);
        tokens[count++] = (unsigned char)*text;
    }
    return count;
}

static void append(char *to, size_t room, const json_t *text)
{
    size_t bytes = strlen(to);

    if (json_is_string(text))
        snprintf(to + bytes, room - bytes, "%s", json_string_value(text));
}

static bool is_call_id(const char *id)
{
    return id && strncmp(id, "call_", 5) == 0 && strlen(id) == 29 &&
           strspn(id + 5, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == 24;
}

/* Calls of a delta or a message. A stream gives an index, and a name with an id only at first. */
static void add_calls(struct parts *parts, const json_t *calls, bool streamed)
{
    static char arguments[8][256], names[8][64];
    const json_t *call;
    size_t i;

    if (!calls && !streamed)
        return;
    if (!streamed || parts->ids == 0) {
        memset(names, 0, sizeof names);
        memset(arguments, 0, sizeof arguments);
    }
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        const json_t *name = json_object_get(function, "name");
        size_t at = streamed ? (size_t)json_integer_value(json_object_get(call, "index")) : i;

        assert_int_equal(streamed, json_object_get(call, "index") != NULL);
        assert_true(at < 8);
        assert_int_equal(name != NULL, json_object_get(call, "id") != NULL);
        if (name) {
            assert_string_equal(json_string_value(json_object_get(call, "type")), "function");
            assert_true(is_call_id(json_string_value(json_object_get(call, "id"))));
            assert_string_equal(names[at], "");
            parts->ids++;
            append(names[at], sizeof names[at], name);
        }
        assert_string_not_equal(names[at], "");
        append(arguments[at], sizeof arguments[at], json_object_get(function, "arguments"));
    }
    parts->calls[0] = '\0';
    for (size_t at = 0; at < 8 && *names[at]; at++) {
        size_t bytes = strlen(parts->calls);

        snprintf(parts->calls + bytes, sizeof parts->calls - bytes, "%s(%s)\n", names[at],
                 arguments[at]);
    }
}

static void add_choice_parts(struct parts *parts, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta");
    const json_t *message = delta ? delta : json_object_get(choice, "message");
    const json_t *reasoning = json_object_get(message, "reasoning_content");

    append(parts->content, sizeof parts->content, json_object_get(message, "content"));
    append(parts->reasoning, sizeof parts->reasoning, reasoning);
    assert_true(reasoning == json_object_get(message, "reasoning") ||
                json_equal(reasoning, json_object_get(message, "reasoning")));
    if (delta ? json_object_get(message, "tool_calls") != NULL : true)
        add_calls(parts, json_object_get(message, "tool_calls"), delta != NULL);
    parts->content_null = json_is_null(json_object_get(message, "content"));
    append(parts->finish, sizeof parts->finish, json_object_get(choice, "finish_reason"));
    parts->entries +=
        json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content"));
}

static void run(const char *fields, bool stream, const int32_t *tokens, unsigned count,
                enum finish_reason finish, struct parts *ret_parts)
{
    const struct script script = {tokens, count, finish};
    struct reply_action action;
    struct reply *reply;
    struct said said;
    struct buf out;
    json_t *events, *event, *usage;
    char body[2048];
    size_t i;

    snprintf(body, sizeof body, "{" MESSAGES ",%s%s}", fields,
             stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    reply = reply_of(&plain_tokenizer, OPENAI_CHAT, body);
    *ret_parts = (struct parts){.ids = 0};
    said_init(&said);
    buf_init(&out, 1 << 24);
    if (stream)
        reply_begin(reply, &out);
    feed_script(reply, 0, &script, &out, &action);
    assert_true(action.finished);
    events = stream ? read_stream(&out, &said) : json_pack("[o]", read_body(&out, &said));
    json_array_foreach(events, i, event)
    {
        const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);

        if (choice)
            add_choice_parts(ret_parts, choice);
    }
    usage = json_object_get(json_array_get(events, json_array_size(events) - 1), "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), count - 0);
    ret_parts->reasoning_tokens = json_integer_value(
        json_object_get(json_object_get(usage, "completion_tokens_details"), "reasoning_tokens"));
    json_decref(events);
    buf_fini(&out);
    said_fini(&said);
    reply_close(reply);
}

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define CALL  "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"\xc3\xa9\"}}</tool_call>"

static void check(const char *fields, const char *text, enum finish_reason finish,
                  const struct parts *expected)
{
    int32_t tokens[TOKENS_MAX];
    unsigned count = text_tokens(text, tokens);

    if (finish == FINISH_STOP)
        tokens[count++] = FAKE_END;
    for (int stream = 0; stream <= 1; stream++) {
        struct parts parts;

        run(fields, stream, tokens, count, finish, &parts);
        if (strcmp(parts.content, expected->content) != 0 ||
            strcmp(parts.reasoning, expected->reasoning) != 0 ||
            strcmp(parts.calls, expected->calls) != 0 ||
            strcmp(parts.finish, expected->finish) != 0 ||
            parts.reasoning_tokens != expected->reasoning_tokens)
            fail_msg("%s stream %d: '%s' reasoning '%s' calls '%s' %s, %d", text, stream,
                     parts.content, parts.reasoning, parts.calls, parts.finish,
                     (int)parts.reasoning_tokens);
        if (!stream)
            assert_int_equal(parts.content_null, expected->content_null);
        if (strstr(fields, "logprobs"))
            assert_int_equal(parts.entries, count - (finish == FINISH_STOP));
    }
}

static int hermes(void **state)
{
    (void)state;
    answer_format = tool_format_find("hermes");
    return 0;
}

static int no_format(void **state)
{
    (void)state;
    answer_format = NULL;
    return 0;
}

static void test_calls(void **state)
{
    (void)state;
    check(TOOLS, "Hi.\n" CALL, FINISH_STOP,
          &(struct parts){
              .content = "Hi.", .calls = "f({\"a\":\"\xc3\xa9\"})\n", .finish = "tool_calls"});
    check(TOOLS, CALL "\n" CALL, FINISH_STOP,
          &(struct parts){.calls = "f({\"a\":\"\xc3\xa9\"})\nf({\"a\":\"\xc3\xa9\"})\n",
                          .finish = "tool_calls",
                          .content_null = true});
    check(TOOLS ",\"parallel_tool_calls\":false", CALL "\n" CALL, FINISH_STOP,
          &(struct parts){
              .calls = "f({\"a\":\"\xc3\xa9\"})\n", .finish = "tool_calls", .content_null = true});
    check(TOOLS, CALL, FINISH_LENGTH,
          &(struct parts){
              .calls = "f({\"a\":\"\xc3\xa9\"})\n", .finish = "length", .content_null = true});
    check(TOOLS, "No call.", FINISH_STOP, &(struct parts){.content = "No call.", .finish = "stop"});
    check(TOOLS, "", FINISH_STOP, &(struct parts){.finish = "stop"});
    check(TOOLS ",\"logprobs\":true", "<think>A</think>B" CALL, FINISH_STOP,
          &(struct parts){.content = "B",
                          .reasoning = "A",
                          .calls = "f({\"a\":\"\xc3\xa9\"})\n",
                          .finish = "tool_calls",
                          .reasoning_tokens = 8});
}

/* Without tools, and with "none", what looks like a call is text. */
static void test_no_calls(void **state)
{
    (void)state;
    check("\"n\":1", CALL, FINISH_STOP, &(struct parts){.content = CALL, .finish = "stop"});
    check(TOOLS ",\"tool_choice\":\"none\"", CALL, FINISH_STOP,
          &(struct parts){.content = CALL, .finish = "stop"});
}

static void test_reasoning(void **state)
{
    (void)state;
    /* A byte is a token: the end marker is known with its last one. */
    check("\"n\":1", "<think>\nHm.\n</think>\n\nYes.", FINISH_STOP,
          &(struct parts){
              .content = "Yes.", .reasoning = "Hm.", .finish = "stop", .reasoning_tokens = 12});
    check("\"include_reasoning\":false", "<think>Hm.</think>Yes.", FINISH_STOP,
          &(struct parts){.content = "Yes.", .finish = "stop", .reasoning_tokens = 10});
    check("\"n\":1", "<think>Hm.", FINISH_LENGTH,
          &(struct parts){
              .reasoning = "Hm.", .finish = "length", .reasoning_tokens = 3, .content_null = true});
}

static void test_plain_text_is_as_before(void **state)
{
    (void)state;
    check("\"n\":1", "  Two \n\n lines < 3 <tool_call \n", FINISH_STOP,
          &(struct parts){.content = "  Two \n\n lines < 3 <tool_call \n", .finish = "stop"});
}

/* A stop string ends the answer wherever it stands in the raw text. */
static void test_stop_strings(void **state)
{
    static const char text[] = "Hi " CALL "ENDx";
    int32_t tokens[TOKENS_MAX];
    unsigned count = text_tokens(text, tokens);

    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        struct parts parts;

        run(TOOLS ",\"stop\":\"END\"", stream, tokens, count - 1, FINISH_LENGTH, &parts);
        assert_string_equal(parts.content, "Hi");
        assert_string_equal(parts.calls, "f({\"a\":\"\xc3\xa9\"})\n");
        assert_string_equal(parts.finish, "tool_calls");
    }
}

/* A call that is cut off comes back as content. A whole answer has nothing of it; a stream that had
 * begun to tell it cannot take that back. */
static void test_half_calls(void **state)
{
    static const char half[] = "Hi <tool_call>{\"name\":\"f\",\"arguments\":{\"a";
    int32_t tokens[TOKENS_MAX];
    unsigned count = text_tokens(half, tokens);
    struct parts parts;

    (void)state;
    run(TOOLS, false, tokens, count, FINISH_LENGTH, &parts);
    assert_string_equal(parts.content, half);
    assert_string_equal(parts.calls, "");
    assert_string_equal(parts.finish, "length");
    run(TOOLS, true, tokens, count, FINISH_LENGTH, &parts);
    assert_string_equal(parts.content, half);
    assert_string_equal(parts.calls, "f({\"a)\n");
    assert_string_equal(parts.finish, "length");
    run(TOOLS, true, tokens, 28, FINISH_LENGTH, &parts); /* the name was not whole */
    assert_memory_equal(parts.content, half, 28);
    assert_string_equal(parts.calls, "");
}

/* Control tokens are left out of the text, but those that are markers are read. */
static void test_special_tokens(void **state)
{
    int32_t tokens[] = {'a', FAKE_BOS, FAKE_START, 'b', FAKE_END};
    struct parts parts;

    (void)state;
    for (int stream = 0; stream <= 1; stream++) {
        run(TOOLS, stream, tokens, 5, FINISH_STOP, &parts);
        assert_string_equal(parts.content, "ab");
        run(TOOLS ",\"skip_special_tokens\":false", stream, tokens, 5, FINISH_STOP, &parts);
        assert_string_equal(parts.content, "a<s><|im_start|>b");
    }
}

static void test_no_allocation_in_steady_state(void **state)
{
    static const char text[] = "Hm \n" CALL;
    struct reply *reply =
        reply_of(&plain_tokenizer, OPENAI_CHAT, "{" MESSAGES "," TOOLS ",\"stream\":true}");
    struct reply_action action;
    struct buf out;

    (void)state;
    buf_init(&out, 1 << 20);
    for (unsigned i = 0; i < 20 * (sizeof text - 1); i++) {
        struct event event = token_event(0, (unsigned char)text[i % (sizeof text - 1)], 3);

        if (i == 10 * (sizeof text - 1))
            failing_malloc_arm(UINT64_MAX);
        buf_reset(&out);
        reply_feed(reply, &event, &out, &action);
        assert_false(action.failed);
    }
    assert_int_equal(failing_malloc_count(), 0);
    (void)failing_malloc_disarm();
    buf_fini(&out);
    reply_close(reply);
}

static void test_failing_allocations(void **state)
{
    static const char body[] = "{" MESSAGES "," TOOLS ",\"n\":2}";
    struct openai_context context = context_of(&plain_tokenizer);
    int32_t tokens[TOKENS_MAX];
    unsigned count = text_tokens("<think>A</think>B" CALL, tokens);
    bool armed = true;

    (void)state;
    for (uint64_t nth = 1; armed; nth++) {
        struct request *request = NULL;
        struct reply *reply = NULL;
        struct api_error error = {0};
        struct reply_action action = {0};
        struct buf out;
        int r;

        buf_init(&out, 1 << 20);
        failing_malloc_arm(nth);
        r = openai_parse(OPENAI_CHAT, &context, true, body, sizeof body - 1, &request, &reply,
                         &error);
        for (unsigned choice = 0; r == 0 && choice < 2 && !action.failed; choice++) {
            for (unsigned i = 0; i < count && !action.failed; i++) {
                struct event event = token_event(choice, tokens[i], i);

                reply_feed(reply, &event, &out, &action);
            }
            if (!action.failed)
                feed_finish(reply, choice, FINISH_STOP, &out, &action);
        }
        armed = failing_malloc_disarm();
        if (r < 0)
            assert_int_equal(api_error_status(error.kind), 503);
        else if (!action.failed && !buf_failed(&out))
            assert_true(action.finished);
        assert_true(armed || (r == 0 && action.finished && !buf_failed(&out)));
        buf_fini(&out);
        request_free(request);
        reply_close(reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_calls, hermes),
        cmocka_unit_test_setup(test_no_calls, hermes),
        cmocka_unit_test_setup(test_reasoning, hermes),
        cmocka_unit_test_setup(test_plain_text_is_as_before, hermes),
        cmocka_unit_test_setup(test_plain_text_is_as_before, no_format),
        cmocka_unit_test_setup(test_stop_strings, hermes),
        cmocka_unit_test_setup(test_half_calls, hermes),
        cmocka_unit_test_setup(test_special_tokens, hermes),
        cmocka_unit_test_setup(test_no_allocation_in_steady_state, hermes),
        cmocka_unit_test_setup(test_failing_allocations, hermes),
    };

    return cmocka_run_group_tests_name("server/reply_tools", tests, NULL, NULL);
}
