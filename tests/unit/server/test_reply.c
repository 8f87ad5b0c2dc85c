/* test_reply.c -- protects what clients read: the text whole and uncut whatever the tokens'
 * borders, stop strings that never leak, log-probabilities and ids that travel with their text and
 * are never lost, the order of a stream's chunks, and that a stream says exactly what the whole
 * answer says. */
#include "tests/lib/answers.h"

static const struct tokenizer bos_tokenizer = {.adds_bos = true};

/* --- chat ------------------------------------------------------------------------------------- */

static void test_chat_whole(void **state)
{
    static const int32_t tokens[] = {FAKE_HELLO, FAKE_EURO_HEAD, FAKE_EURO_TAIL, FAKE_QUOTE,
                                     FAKE_END};
    const struct script script = {tokens, 5, FINISH_STOP};
    struct said said;
    json_t *body, *usage, *entries, *entry;

    (void)state;
    body = run_both(OPENAI_CHAT, MESSAGES ",\"logprobs\":true,\"top_logprobs\":3", &script, &said);
    assert_string_equal(buf_string(&said.text), " hello\xe2\x82\xac\"\\\t");
    assert_string_equal(said.finish, "stop");
    assert_true(json_is_null(said.stop_reason));
    assert_string_equal(json_string_value(json_object_get(body, "object")), "chat.completion");
    assert_string_equal(json_string_value(json_object_get(body, "model")), "the \"model\"");
    assert_memory_equal(json_string_value(json_object_get(body, "id")), "chatcmpl-", 9);
    usage = json_object_get(body, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 5);
    assert_int_equal(json_integer_value(json_object_get(usage, "total_tokens")),
                     5 + json_integer_value(json_object_get(usage, "prompt_tokens")));
    entries = json_object_get(said.logprobs, "content");
    assert_int_equal(json_array_size(entries), 4); /* the end token has none */
    entry = json_array_get(entries, 1);
    assert_string_equal(json_string_value(json_object_get(entry, "token")), "\xef\xbf\xbd");
    assert_int_equal(json_array_size(json_object_get(entry, "bytes")), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(entry, "bytes"), 0)), 0xe2);
    assert_int_equal(json_array_size(json_object_get(entry, "top_logprobs")), 3);
    entry = json_array_get(json_object_get(entry, "top_logprobs"), 2);
    assert_true(json_number_value(json_object_get(entry, "logprob")) == -9999.0);
    json_decref(body);
    said_fini(&said);
}

static void test_chat_stream_order(void **state)
{
    static const int32_t tokens[] = {FAKE_HELLO, 'x', FAKE_END};
    const struct script script = {tokens, 3, FINISH_STOP};
    struct reply *reply = reply_of(
        &plain_tokenizer, OPENAI_CHAT,
        "{" MESSAGES ",\"stream\":true,\"n\":2,\"stream_options\":{\"include_usage\":true}}");
    struct said said[2];
    struct reply_action action;
    struct buf out;
    json_t *events, *event, *delta;
    size_t i, count;

    (void)state;
    said_init(&said[0]);
    said_init(&said[1]);
    buf_init(&out, 1 << 20);
    reply_begin(reply, &out);
    feed_script(reply, 1, &script, &out, &action);
    assert_false(action.finished);
    feed_script(reply, 0, &script, &out, &action);
    assert_true(action.finished);
    events = read_stream(&out, said);
    count = json_array_size(events);
    assert_int_equal(count, 2 + 2 * 3 + 1); /* roles; two texts and an end each; usage */
    json_array_foreach(events, i, event)
    {
        json_t *choice = json_array_get(json_object_get(event, "choices"), 0);

        assert_int_equal(json_array_size(json_object_get(event, "choices")), i < count - 1);
        assert_non_null(json_object_get(event, "usage"));
        assert_int_equal(json_is_null(json_object_get(event, "usage")), i < count - 1);
        if (i < 2) {
            delta = json_object_get(choice, "delta");
            assert_string_equal(json_string_value(json_object_get(delta, "role")), "assistant");
            assert_string_equal(json_string_value(json_object_get(delta, "content")), "");
        }
        if (i < count - 1 && json_is_string(json_object_get(choice, "finish_reason")))
            assert_int_equal(json_object_size(json_object_get(choice, "delta")), 0);
    }
    event = json_object_get(json_array_get(events, count - 1), "usage");
    assert_int_equal(json_integer_value(json_object_get(event, "completion_tokens")), 6);
    assert_string_equal(buf_string(&said[0].text), " hellox");
    assert_string_equal(buf_string(&said[1].text), " hellox");
    json_decref(events);
    buf_fini(&out);
    reply_close(reply);
    said_fini(&said[0]);
    said_fini(&said[1]);
}

static void test_usage_only_when_asked(void **state)
{
    static const int32_t tokens[] = {'x', 'y'};
    const struct script script = {tokens, 2, FINISH_LENGTH};
    static const struct {
        const char *options;
        bool key, earlier;
    } cases[] = {{"{}", false, false},
                 {"{\"include_usage\":true}", true, false},
                 {"{\"continuous_usage_stats\":true}", false, false},
                 {"{\"include_usage\":true,\"continuous_usage_stats\":true}", true, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[256];
        struct reply *reply;
        struct reply_action action;
        struct said said;
        struct buf out;
        json_t *events, *first;

        (void)snprintf(request, sizeof request,
                       "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":%s}",
                       cases[i].options);
        reply = reply_of(&plain_tokenizer, OPENAI_COMPLETIONS, request);
        buf_init(&out, 1 << 20);
        said_init(&said);
        feed_script(reply, 0, &script, &out, &action);
        events = read_stream(&out, &said);
        first = json_object_get(json_array_get(events, 0), "usage");
        assert_int_equal(json_array_size(events), 3 + cases[i].key);
        assert_int_equal(first != NULL, cases[i].key);
        assert_int_equal(json_is_object(first), cases[i].earlier);
        assert_string_equal(said.finish, "length");
        json_decref(events);
        said_fini(&said);
        buf_fini(&out);
        reply_close(reply);
    }
}

/* --- stop strings and tokens ------------------------------------------------------------------ */

static void test_stop_across_tokens(void **state)
{
    static const int32_t tokens[] = {FAKE_HELLO, 'x', FAKE_STOP_HEAD, FAKE_STOP_TAIL, 'z'};
    const struct script script = {tokens, 5, FINISH_LENGTH};
    struct said said;
    json_t *body, *usage;

    (void)state;
    body =
        run_both(OPENAI_CHAT,
                 MESSAGES ",\"logprobs\":true,\"return_token_ids\":true,\"stop\":[\"qq\",\"END.\"]",
                 &script, &said);
    assert_string_equal(buf_string(&said.text), " helloxx");
    assert_string_equal(said.finish, "stop");
    assert_string_equal(json_string_value(said.stop_reason), "END.");
    usage = json_object_get(body, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 4);
    assert_int_equal(json_array_size(json_object_get(said.logprobs, "content")), 4);
    assert_int_equal(json_array_size(said.token_ids), 4);
    json_decref(body);
    said_fini(&said);

    body = run_both(OPENAI_COMPLETIONS,
                    "\"prompt\":\"a\",\"include_stop_str_in_output\":true,\"stop\":\"END.\"",
                    &script, &said);
    assert_string_equal(buf_string(&said.text), " helloxxEND.");
    json_decref(body);
    said_fini(&said);
}

/* What may become a stop string waits, with its entries and ids; they come with their text. */
static void test_entries_travel_with_their_text(void **state)
{
    static const int32_t tokens[] = {FAKE_HELLO, 'E', 'N', 'E', 'x'};
    static const struct {
        const char *text;
        size_t entries;
    } expected[] = {{" hello", 1}, {"EN", 2}, {"Ex", 2}};
    const struct script script = {tokens, 5, FINISH_LENGTH};
    struct reply *reply =
        reply_of(&plain_tokenizer, OPENAI_CHAT,
                 "{" MESSAGES ",\"stream\":true,\"logprobs\":true,\"return_token_ids\":true,"
                 "\"stop\":\"END\"}");
    struct reply_action action;
    struct said said;
    struct buf out;
    json_t *events;

    (void)state;
    said_init(&said);
    buf_init(&out, 1 << 20);
    feed_script(reply, 0, &script, &out, &action);
    events = read_stream(&out, &said);
    assert_int_equal(json_array_size(events), 4);
    for (size_t i = 0; i < 3; i++) {
        json_t *choices = json_object_get(json_array_get(events, i), "choices");
        json_t *choice = json_array_get(choices, 0);
        json_t *text = json_object_get(json_object_get(choice, "delta"), "content");
        json_t *entries = json_object_get(json_object_get(choice, "logprobs"), "content");

        assert_string_equal(json_string_value(text), expected[i].text);
        assert_int_equal(json_array_size(entries), expected[i].entries);
        assert_int_equal(json_array_size(json_object_get(choice, "token_ids")),
                         expected[i].entries);
    }
    json_decref(events);
    said_fini(&said);
    buf_fini(&out);
    reply_close(reply);
}

static void test_min_tokens_lets_stop_strings_pass(void **state)
{
    static const int32_t tokens[] = {'a', 'b', 'a', 'b', 'c'};
    const struct script script = {tokens, 5, FINISH_LENGTH};
    struct said said;
    json_t *body;

    (void)state;
    body = run_both(OPENAI_COMPLETIONS, "\"prompt\":\"a\",\"stop\":\"ab\",\"min_tokens\":2",
                    &script, &said);
    assert_string_equal(buf_string(&said.text), "ab");
    assert_string_equal(said.finish, "stop");
    json_decref(body);
    said_fini(&said);
}

static void test_stop_tokens(void **state)
{
    static const int32_t tokens[] = {'a', 'b'};
    static const int32_t going_on[] = {'a', 'b', 'c'};
    const struct script ends = {tokens, 2, FINISH_STOP}, goes_on = {going_on, 3, FINISH_LENGTH};
    struct said said;
    json_t *body;

    (void)state;
    body = run_both(OPENAI_COMPLETIONS, "\"prompt\":\"a\",\"logprobs\":1,\"stop_token_ids\":[98]",
                    &ends, &said);
    assert_string_equal(buf_string(&said.text), "a");
    assert_int_equal(json_integer_value(said.stop_reason), 98);
    assert_int_equal(json_array_size(json_object_get(said.logprobs, "tokens")), 2);
    json_decref(body);
    said_fini(&said);

    body = run_both(OPENAI_COMPLETIONS,
                    "\"prompt\":\"a\",\"stop_token_ids\":[98],\"include_stop_str_in_output\":true",
                    &ends, &said);
    assert_string_equal(buf_string(&said.text), "ab");
    json_decref(body);
    said_fini(&said);

    /* The engine did not end there: then it is text like any other. */
    body =
        run_both(OPENAI_COMPLETIONS, "\"prompt\":\"a\",\"stop_token_ids\":[98]", &goes_on, &said);
    assert_string_equal(buf_string(&said.text), "abc");
    assert_string_equal(said.finish, "length");
    json_decref(body);
    said_fini(&said);
}

static void test_control_tokens(void **state)
{
    static const int32_t tokens[] = {'a', FAKE_START, 'b', FAKE_END, 'c'};
    const struct script script = {tokens, 5, FINISH_LENGTH};
    struct said said;
    json_t *body;

    (void)state;
    body = run_both(OPENAI_CHAT, MESSAGES ",\"ignore_eos\":true", &script, &said);
    assert_string_equal(buf_string(&said.text), "abc");
    json_decref(body);
    said_fini(&said);
    body = run_both(OPENAI_CHAT, MESSAGES ",\"ignore_eos\":true,\"skip_special_tokens\":false",
                    &script, &said);
    assert_string_equal(buf_string(&said.text), "a<|im_start|>b<|im_end|>c");
    json_decref(body);
    said_fini(&said);
}

/* --- completions ------------------------------------------------------------------------------ */

static void test_legacy_logprobs(void **state)
{
    static const int32_t tokens[] = {FAKE_E_ACUTE, FAKE_EURO_HEAD, FAKE_EURO_TAIL, 'x', FAKE_END};
    const struct script script = {tokens, 5, FINISH_STOP};
    static const int offsets[] = {0, 1, 1, 2, 3};
    struct said said;
    json_t *body, *top;

    (void)state;
    body = run_both(OPENAI_COMPLETIONS, "\"prompt\":\"a\",\"logprobs\":3,\"return_token_ids\":true",
                    &script, &said);
    assert_string_equal(buf_string(&said.text), "\xc3\xa9\xe2\x82\xacx");
    assert_int_equal(json_array_size(json_object_get(said.logprobs, "tokens")), 5);
    assert_int_equal(json_array_size(json_object_get(said.logprobs, "token_logprobs")), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(
            json_integer_value(json_array_get(json_object_get(said.logprobs, "text_offset"), i)),
            offsets[i]);
    top = json_array_get(json_object_get(said.logprobs, "top_logprobs"), 0);
    assert_int_equal(json_object_size(top), 3); /* two show alike; the sampled one is outside */
    assert_non_null(json_object_get(top, "\xc3\xa9"));
    assert_true(json_number_value(json_object_get(top, "\xef\xbf\xbd")) == -1.5);
    assert_int_equal(json_array_size(said.prompt_ids), 1);
    json_decref(body);
    said_fini(&said);

    body = run_both(OPENAI_COMPLETIONS,
                    "\"prompt\":\"a\",\"logprobs\":0,\"return_tokens_as_token_ids\":true", &script,
                    &said);
    top = json_array_get(json_object_get(said.logprobs, "top_logprobs"), 0);
    assert_int_equal(json_object_size(top), 1);
    assert_non_null(json_object_get(top, "token_id:261"));
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(said.logprobs, "tokens"), 0)),
        "token_id:261");
    json_decref(body);
    said_fini(&said);
}

static void feed_prompt(struct reply *reply, uint32_t choice, uint32_t position, int32_t token,
                        struct buf *out)
{
    struct event event = token_event(choice, token, position);
    struct reply_action action;

    event.kind = EVENT_PROMPT;
    event.token.position = position;
    reply_feed(reply, &event, out, &action);
}

/* As lm-eval scores: echo, logprobs and no or one token. */
static void check_echo(const struct tokenizer *tokenizer, bool stream, int max_tokens)
{
    char request[256];
    struct reply *reply;
    struct reply_action action;
    struct said said;
    struct buf out;
    json_t *body, *list;
    uint32_t first = tokenizer->adds_bos;

    (void)snprintf(
        request, sizeof request,
        "{\"prompt\":\"h\xc3\xa9y\",\"echo\":true,\"logprobs\":1,\"max_tokens\":%d,\"stream\":%s}",
        max_tokens, stream ? "true" : "false");
    reply = reply_of(tokenizer, OPENAI_COMPLETIONS, request);
    buf_init(&out, 1 << 20);
    said_init(&said);
    for (uint32_t i = 1; i < 4 + first; i++) {
        static const int32_t ids[] = {FAKE_BOS, 'h', 0xc3, 0xa9, 'y'};

        feed_prompt(reply, 0, i, ids[i + 1 - first], &out);
        feed_prompt(reply, 0, i, ids[i + 1 - first], &out); /* again, after a preemption */
    }
    if (max_tokens > 0) {
        struct event event = token_event(0, FAKE_HELLO, 9);

        reply_feed(reply, &event, &out, &action);
    }
    feed_finish(reply, 0, FINISH_LENGTH, &out, &action);
    assert_true(action.finished);
    body = stream ? read_stream(&out, &said) : read_body(&out, &said);
    assert_string_equal(buf_string(&said.text), max_tokens ? "h\xc3\xa9y hello" : "h\xc3\xa9y");
    list = json_object_get(said.logprobs, "token_logprobs");
    assert_int_equal(json_array_size(list), 4 + (int)first + max_tokens);
    assert_true(json_is_null(json_array_get(list, 0)));
    assert_true(json_is_number(json_array_get(list, 1)));
    assert_true(json_is_null(json_array_get(json_object_get(said.logprobs, "top_logprobs"), 0)));
    list = json_object_get(said.logprobs, "text_offset");
    assert_int_equal(json_integer_value(json_array_get(list, first)), 0);
    assert_int_equal(json_integer_value(json_array_get(list, first + 1)), 1); /* both halves */
    assert_int_equal(json_integer_value(json_array_get(list, first + 2)), 1);
    assert_int_equal(json_integer_value(json_array_get(list, first + 3)), 2);
    if (max_tokens)
        assert_int_equal(json_integer_value(json_array_get(list, first + 4)), 3);
    json_decref(body);
    said_fini(&said);
    buf_fini(&out);
    reply_close(reply);
}

static void test_echo_with_logprobs(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        check_echo(i & 1 ? &bos_tokenizer : &plain_tokenizer, i & 2, (i & 4) > 0);
}

static void test_echo_of_many_prompts(void **state)
{
    static const int32_t tokens[] = {'x', FAKE_END};
    const struct script script = {tokens, 2, FINISH_STOP};
    struct said said[4];
    struct reply_action action;
    struct buf out;
    json_t *body;

    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        char request[256];
        struct reply *reply;

        (void)snprintf(request, sizeof request,
                       "{\"prompt\":[[97,98],[265]],\"n\":2,\"echo\":true,\"stream\":%s}",
                       stream ? "true" : "false");
        reply = reply_of(&plain_tokenizer, OPENAI_COMPLETIONS, request);
        buf_init(&out, 1 << 20);
        for (uint32_t i = 0; i < 4; i++)
            said_init(&said[i]);
        for (uint32_t i = 0; i < 4; i++) {
            feed_script(reply, 3 - i, &script, &out, &action);
            assert_int_equal(action.finished, i == 3);
        }
        body = stream ? read_stream(&out, said) : read_body(&out, said);
        for (uint32_t i = 0; i < 4; i++) {
            assert_string_equal(buf_string(&said[i].text), i < 2 ? "abx" : "D.yx");
            said_fini(&said[i]);
        }
        if (!stream)
            assert_int_equal(json_integer_value(
                                 json_object_get(json_object_get(body, "usage"), "prompt_tokens")),
                             3);
        json_decref(body);
        buf_fini(&out);
        reply_close(reply);
    }
}

/* --- failures and the summary ----------------------------------------------------------------- */

static void test_failure_before_and_after_the_head(void **state)
{
    (void)state;
    for (int begun = 0; begun < 2; begun++) {
        struct reply *reply =
            reply_of(&plain_tokenizer, OPENAI_CHAT, "{" MESSAGES ",\"stream\":true,\"n\":2}");
        struct event event = {
            .choice = 1, .kind = EVENT_FAILURE, .failure = {E_DEVICE, "the GPU is gone"}};
        struct reply_action action;
        struct reply_summary summary;
        struct said said[2];
        struct buf out;
        size_t bytes;

        buf_init(&out, 1 << 20);
        said_init(&said[0]);
        said_init(&said[1]);
        if (begun)
            reply_begin(reply, &out);
        reply_feed(reply, &event, &out, &action);
        assert_true(action.failed);
        assert_int_equal(api_error_status(action.error.kind), 500);
        assert_non_null(strstr(action.error.message, ": the GPU is gone."));
        if (begun) {
            json_t *events = read_stream(&out, said);

            assert_int_equal(json_array_size(events), 3);
            assert_non_null(json_object_get(json_array_get(events, 2), "error"));
            json_decref(events);
        } else {
            assert_int_equal(out.bytes, 0);
        }
        bytes = out.bytes;
        event = token_event(0, 'x', 1);
        reply_feed(reply, &event, &out, &action); /* nobody listens any more */
        assert_false(action.failed || action.finished);
        assert_int_equal(out.bytes, bytes);
        reply_summary_get(reply, &summary);
        assert_string_equal(summary.finish, "error");
        said_fini(&said[0]);
        said_fini(&said[1]);
        buf_fini(&out);
        reply_close(reply);
    }
}

static void test_summary_and_token_gaps(void **state)
{
    struct reply *reply = reply_of(&plain_tokenizer, OPENAI_CHAT, "{" MESSAGES "}");
    struct event event = token_event(0, 'x', 0);
    struct reply_action action;
    struct reply_summary summary;
    struct buf out;

    (void)state;
    buf_init(&out, 1 << 20);
    reply_summary_get(reply, &summary);
    assert_string_equal(summary.finish, "cancelled");
    reply_feed(reply, &event, &out, &action);
    assert_int_equal(action.token_gap_ns, 0);
    event = token_event(0, 'y', 7);
    reply_feed(reply, &event, &out, &action);
    assert_int_equal(action.token_gap_ns, 70);
    event = (struct event){.kind = EVENT_FINISH};
    event.finish = (struct event_finish){
        .reason = FINISH_LENGTH, .preemptions = 3, .queued_ns = 4, .prefill_ns = 5, .decode_ns = 6};
    reply_feed(reply, &event, &out, &action);
    reply_summary_get(reply, &summary);
    assert_int_equal(summary.generated_tokens, 2);
    assert_int_equal(summary.preemptions, 3);
    assert_int_equal(summary.queued_ns + summary.prefill_ns + summary.decode_ns, 15);
    assert_string_equal(summary.finish, "length");
    buf_fini(&out);
    reply_close(reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_whole),
        cmocka_unit_test(test_chat_stream_order),
        cmocka_unit_test(test_usage_only_when_asked),
        cmocka_unit_test(test_stop_across_tokens),
        cmocka_unit_test(test_entries_travel_with_their_text),
        cmocka_unit_test(test_min_tokens_lets_stop_strings_pass),
        cmocka_unit_test(test_stop_tokens),
        cmocka_unit_test(test_control_tokens),
        cmocka_unit_test(test_legacy_logprobs),
        cmocka_unit_test(test_echo_with_logprobs),
        cmocka_unit_test(test_echo_of_many_prompts),
        cmocka_unit_test(test_failure_before_and_after_the_head),
        cmocka_unit_test(test_summary_and_token_gaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
