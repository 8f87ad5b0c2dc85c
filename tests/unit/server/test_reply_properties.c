/* test_reply_properties.c -- protects what holds for every answer, by random ones: the text is
 * what the tokens spell up to the first stop string, streamed or not; no entry and no id is lost;
 * steady streaming allocates nothing; and running out of memory anywhere is said, not swallowed. */
#include "tests/lib/answers.h"
#include "tests/lib/failing_malloc.h"

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

/* The answer's text by the definition: decode everything; naive_stop() cuts it at the stop string
 * that ends first, the longest of them. */
static size_t naive_text(const int32_t *tokens, unsigned count, char *text, size_t room)
{
    struct detok detok;
    struct buf buf;

    buf_init_fixed(&buf, text, room);
    detok_init(&detok, &plain_tokenizer, true);
    for (unsigned i = 0; i < count; i++)
        detok_feed(&detok, tokens[i], &buf);
    detok_flush(&detok, &buf);
    assert_false(buf_failed(&buf));
    return buf.bytes;
}

static bool naive_stop(const char *text, size_t bytes, const char stops[][8], unsigned count,
                       size_t *ret_bytes)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;

        for (unsigned i = 0; i < count; i++) {
            size_t n = strlen(stops[i]);

            if (n <= end && n > longest && !memcmp(text + end - n, stops[i], n))
                longest = n;
        }
        if (longest > 0) {
            *ret_bytes = end - longest;
            return true;
        }
    }
    return false;
}

/* Up to 7 bytes of whole characters. */
static void random_stop(uint64_t *seed, char stop[8])
{
    static const char *const parts[] = {"a",  "b", "aa",          "\xc3\xa9", "\xe2\x82\xac",
                                        "EN", "D", "\xef\xbf\xbd"};

    (void)snprintf(stop, 8, "%s%s", parts[random_below(seed, 8)], parts[random_below(seed, 8)]);
}

/* Every token that was made has its entry and its id. */
static void check_nothing_lost(const struct said *said, json_t *body, unsigned count, bool stopped)
{
    json_t *usage = json_object_get(body, "usage");
    size_t ids = json_array_size(said->token_ids);

    assert_int_equal(ids, json_integer_value(json_object_get(usage, "completion_tokens")));
    if (ids > 0)
        assert_int_equal(json_array_size(json_object_get(said->logprobs, "content")), ids);
    if (!stopped)
        assert_int_equal(ids, count);
}

static void check_random_answer(uint64_t *seed)
{
    static const int32_t alphabet[] = {
        'a',           'a',  'b',  'b',        FAKE_AAB,   FAKE_STOP_HEAD, FAKE_STOP_TAIL,
        FAKE_E_ACUTE,  0xc3, 0xa9, FAKE_WORLD, FAKE_START, FAKE_QUOTE,     FAKE_EURO_HEAD,
        FAKE_EURO_TAIL};
    unsigned count = random_below(seed, 40), stop_count = random_below(seed, 4);
    char stops[3][8] = {""}, text[4096], fields[512];
    int32_t tokens[40];
    const struct script script = {tokens, count, FINISH_LENGTH};
    size_t bytes, cut = 0;
    struct said said;
    struct buf list;
    bool stopped;
    json_t *body;

    for (unsigned i = 0; i < count; i++)
        tokens[i] = alphabet[random_below(seed, sizeof alphabet / sizeof *alphabet)];
    buf_init_fixed(&list, fields, sizeof fields);
    buf_text(&list, MESSAGES ",\"return_token_ids\":true,\"logprobs\":true,\"stop\":[");
    for (unsigned i = 0; i < stop_count; i++) {
        random_stop(seed, stops[i]);
        buf_format(&list, "%s\"%s\"", i ? "," : "", stops[i]);
    }
    buf_byte(&list, ']');
    body = run_both(OPENAI_CHAT, fields, &script, &said);
    bytes = naive_text(tokens, count, text, sizeof text);
    stopped = naive_stop(text, bytes, (const char(*)[8])stops, stop_count, &cut);
    text[stopped ? cut : bytes] = '\0';
    assert_string_equal(buf_string(&said.text), text);
    assert_string_equal(said.finish, stopped ? "stop" : "length");
    check_nothing_lost(&said, body, count, stopped);
    json_decref(body);
    said_fini(&said);
}

static void test_random_tokens_and_stops(void **state)
{
    uint64_t seed = 12345;

    (void)state;
    for (unsigned round = 0; round < 3000; round++)
        check_random_answer(&seed);
}

static void test_no_allocation_in_steady_state(void **state)
{
    struct reply *reply =
        reply_of(&plain_tokenizer, OPENAI_CHAT,
                 "{" MESSAGES ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":3,"
                 "\"return_token_ids\":true,\"stop\":[\"END\",\"aabaabb\"]}");
    struct reply_action action;
    struct buf out;

    (void)state;
    buf_init(&out, 1 << 20);
    for (unsigned i = 0; i < 400; i++) {
        static const int32_t tokens[] = {
            'a', 'a', 'b', FAKE_AAB, FAKE_HELLO, FAKE_EURO_HEAD, FAKE_EURO_TAIL};
        struct event event = token_event(0, tokens[i % 7], 3);

        if (i == 100)
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

/* Whichever allocation fails, the answer is whole or the failure is said. */
static void test_failing_allocations(void **state)
{
    static const int32_t tokens[] = {'a', FAKE_EURO_HEAD, FAKE_EURO_TAIL, 'E', 'N', 'x', FAKE_END};
    static const char body[] =
        "{\"prompt\":\"ab\",\"logprobs\":2,\"echo\":true,\"return_token_ids\":true,"
        "\"stop\":\"END\",\"logit_bias\":{\"5\":1},\"stop_token_ids\":[3]}";
    struct openai_context context = context_of(&plain_tokenizer);
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
        r = openai_parse(OPENAI_COMPLETIONS, &context, true, body, sizeof body - 1, &request,
                         &reply, &error);
        for (unsigned i = 0; r == 0 && i < 7 && !action.failed; i++) {
            struct event event = token_event(0, tokens[i], i);

            reply_feed(reply, &event, &out, &action);
        }
        if (r == 0 && !action.failed)
            feed_finish(reply, 0, FINISH_STOP, &out, &action);
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
        cmocka_unit_test(test_random_tokens_and_stops),
        cmocka_unit_test(test_no_allocation_in_steady_state),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
