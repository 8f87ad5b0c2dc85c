/* test_openai_embeddings.c -- protects requests for vectors and what becomes of their events: the
 * body in both formats, vectors that come in any order, and that half an answer is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/text/base64.h"
#include "scheduler/vectors.h"
#include "server/openai.h"
#include "tests/lib/fake_text.h"

static const struct tokenizer plain_tokenizer = {.adds_bos = false};

static struct openai_context context = {.tokenizer = &plain_tokenizer,
                                        .model_id = "m",
                                        .context = 100,
                                        .vocabulary = FAKE_COUNT,
                                        .vector_width = 3,
                                        .pooling = POOLING_MEAN,
                                        .choices_max = 1};

static int parse(const char *body, struct request **ret_request, struct reply **ret_reply,
                 struct api_error *error)
{
    *error = (struct api_error){0};
    *ret_request = NULL;
    *ret_reply = NULL;
    return openai_parse(OPENAI_EMBEDDINGS, &context, true, body, strlen(body), ret_request,
                        ret_reply, error);
}

/* Ends choice `index`; its vector is 3k, 0, 4k. The request may be gone before. */
static void finish(struct reply *reply, struct vectors *vectors, uint32_t index, float k,
                   struct buf *out, struct reply_action *action)
{
    const struct event event = {
        .choice = index, .kind = EVENT_FINISH, .finish = {.reason = FINISH_LENGTH}};
    float *vector = vectors_at(vectors, index);

    vector[0] = 3 * k;
    vector[1] = 0;
    vector[2] = 4 * k;
    reply_feed(reply, &event, out, action);
}

/* What two inputs, the second of which ends first, are answered. */
static void assert_answer(const char *body, const char *wanted)
{
    struct reply_action action;
    struct request *request;
    struct reply *reply;
    struct api_error error;
    struct buf out;

    buf_init(&out, 1 << 16);
    assert_int_equal(parse(body, &request, &reply, &error), 0);
    assert_int_equal(request->prompt_count, 2);
    assert_int_equal(request->choices, 1);
    assert_int_equal(request->max_tokens, 0);
    assert_int_equal(request->pooling, POOLING_MEAN);
    assert_false(reply_streams(reply));
    finish(reply, request->vectors, 1, -7, &out, &action);
    assert_false(action.finished);
    assert_int_equal(out.bytes, 0);
    finish(reply, request->vectors, 0, 2, &out, &action);
    request_free(request);
    assert_true(action.finished);
    if (!strstr(buf_string(&out), wanted))
        fail_msg("%s\nis not in %s", wanted, buf_string(&out));
    assert_non_null(strstr(buf_string(&out), "\"object\":\"list\""));
    assert_non_null(
        strstr(buf_string(&out), "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}}"));
    reply_close(reply);
    buf_fini(&out);
}

static void test_bodies(void **state)
{
    (void)state;
    assert_answer("{\"input\":[\"a\",\"bc\"]}",
                  "\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.600000024,0,"
                  "0.800000012]},{\"object\":\"embedding\",\"index\":1,\"embedding\":"
                  "[-0.600000024,0,-0.800000012]}]");
    assert_answer("{\"input\":[[97],[98,99]],\"normalize\":false,\"encoding_format\":\"float\"}",
                  "[6,0,8]},{\"object\":\"embedding\",\"index\":1,\"embedding\":[-21,0,-28]}");
    assert_answer("{\"input\":[\"a\",\"bc\"],\"dimensions\":2}", "\"embedding\":[1,0]}");
    assert_answer("{\"input\":[\"a\",\"bc\"],\"dimensions\":1,\"encoding_format\":\"base64\"}",
                  "\"embedding\":\"AACAPw==\"},{\"object\":\"embedding\",\"index\":1,\"embedding\":"
                  "\"AACAvw==\"}");
}

static void test_a_vector_that_was_cut_short_is_a_failure(void **state)
{
    const struct event cancelled = {.kind = EVENT_FINISH, .finish = {.reason = FINISH_CANCELLED}};
    struct reply_action action;
    struct request *request;
    struct reply *reply;
    struct api_error error;
    struct buf out;

    (void)state;
    buf_init(&out, 1 << 16);
    assert_int_equal(parse("{\"input\":\"a\"}", &request, &reply, &error), 0);
    reply_feed(reply, &cancelled, &out, &action);
    assert_true(action.failed && !action.finished);
    assert_int_equal(api_error_status(action.error.kind), 503);
    assert_int_equal(out.bytes, 0);
    request_free(request);
    reply_close(reply);
    buf_fini(&out);
}

static void test_a_model_without_vectors_says_so(void **state)
{
    const struct openai_context before = context;
    struct request *request;
    struct reply *reply;
    struct api_error error;

    (void)state;
    context.vector_width = 0;
    context.no_vectors = "None are made here";
    assert_true(parse("{\"input\":\"a\"}", &request, &reply, &error) < 0);
    assert_int_equal(api_error_status(error.kind), 400);
    assert_non_null(strstr(error.message, "None are made here"));
    context = before;
    context.tokenizer = NULL;
    assert_true(parse("{\"input\":\"a\"}", &request, &reply, &error) < 0);
    assert_non_null(strstr(error.message, "'input' of token ids"));
    assert_int_equal(parse("{\"input\":[1]}", &request, &reply, &error), 0);
    request_free(request);
    reply_close(reply);
    context = before;
}

/* Of every length, what is written is read as it was. */
static void test_base64(void **state)
{
    unsigned char bytes[70];
    struct buf text, back;

    (void)state;
    buf_init(&text, 1 << 10);
    buf_init(&back, 1 << 10);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 151 + 250);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        buf_reset(&text);
        buf_reset(&back);
        base64_write(bytes, count, &text);
        assert_int_equal(text.bytes, (count + 2) / 3 * 4);
        assert_int_equal(base64_append(buf_string(&text), text.bytes, &back), 0);
        assert_int_equal(back.bytes, count);
        assert_memory_equal(buf_string(&back), bytes, count);
    }
    buf_fini(&text);
    buf_fini(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_a_vector_that_was_cut_short_is_a_failure),
        cmocka_unit_test(test_a_model_without_vectors_says_so),
        cmocka_unit_test(test_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
