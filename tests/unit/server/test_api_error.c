/* test_api_error.c -- protects what clients read when something went wrong: OpenAI's error shape,
 * always valid JSON and valid UTF-8, bounded, and with nothing of the server's inside in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "config/base/json.h"
#include "server/api_error.h"

static json_t *body_of(const struct api_error *error)
{
    struct fault fault = {0};
    struct buf body;
    json_t *value = NULL;

    buf_init(&body, 8192);
    api_error_body(error, &body);
    assert_false(buf_failed(&body));
    if (json_parse(body.data, body.bytes, &value, &fault) < 0)
        fail_msg("%s: %s", fault.message, body.data);
    buf_fini(&body);
    return value;
}

static const char *text_at(json_t *body, const char *key)
{
    return json_string_value(json_object_get(json_object_get(body, "error"), key));
}

static void test_every_kind_has_a_row(void **state)
{
    (void)state;
    for (int kind = API_BAD_REQUEST; kind < API_ERROR_COUNT; kind++) {
        struct api_error error;
        json_t *body;
        int status = api_error_status(kind);

        assert_in_range(status, 400, 599);
        api_error_set(&error, kind, "", "Number %d.", 7);
        body = body_of(&error);
        assert_string_equal(text_at(body, "message"), "Number 7.");
        assert_non_null(text_at(body, "type"));
        assert_true(json_is_null(json_object_get(json_object_get(body, "error"), "param")));
        assert_non_null(json_object_get(json_object_get(body, "error"), "code"));
        json_decref(body);
    }
}

static void test_context_length(void **state)
{
    struct fault fault;
    struct api_error error;
    json_t *body;

    (void)state;
    fault_field(&fault, E_CONTEXT, "messages", "maximum context length is %d tokens", 5);
    api_error_from_fault(&error, &fault);
    assert_int_equal(api_error_status(error.kind), 400);
    body = body_of(&error);
    assert_string_equal(text_at(body, "message"), "maximum context length is 5 tokens.");
    assert_string_equal(text_at(body, "code"), "context_length_exceeded");
    assert_string_equal(text_at(body, "param"), "messages");
    json_decref(body);
}

static void test_codes_of_faults(void **state)
{
    static const struct {
        int code;
        int status;
    } cases[] = {{E_INVALID, 400},   {E_CORRUPT, 400}, {E_UNSUPPORTED, 400}, {E_NOT_FOUND, 404},
                 {E_TOO_LARGE, 413}, {E_FULL, 429},    {E_MEMORY, 503},      {E_CLOSED, 503},
                 {E_DEVICE, 500},    {-5, 500}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fault fault;
        struct api_error error;

        fault_set(&fault, cases[i].code, "reason at 0x7fff1234 in /etc/secret");
        api_error_from_fault(&error, &fault);
        assert_int_equal(api_error_status(error.kind), cases[i].status);
        /* Why a device failed is what clients and operators have to hear; other reasons of ours
         * are nobody's business. */
        if (cases[i].status >= 500 && cases[i].code != E_DEVICE)
            assert_null(strstr(error.message, "secret"));
        else
            assert_non_null(strstr(error.message, "secret"));
    }
}

static void test_long_and_broken_texts(void **state)
{
    char text[4096];
    struct api_error error;
    json_t *body;

    (void)state;
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    for (int shift = 0; shift < 2; shift++) { /* so that the cut falls inside a character */
        api_error_set(&error, API_BAD_REQUEST, text + 2 * shift, "%s%s", shift ? "x" : "", text);
        body = body_of(&error);
        assert_in_range(strlen(text_at(body, "message")), 1000, 1024);
        assert_null(strstr(text_at(body, "message"), "\xef\xbf\xbd"));
        json_decref(body);
    }
    api_error_set(&error, API_BAD_REQUEST, "", "bad \xff\xfe \" \\ \n end");
    body = body_of(&error);
    assert_string_equal(text_at(body, "message"), "bad \xef\xbf\xbd\xef\xbf\xbd \" \\ \n end");
    json_decref(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_has_a_row),
        cmocka_unit_test(test_context_length),
        cmocka_unit_test(test_codes_of_faults),
        cmocka_unit_test(test_long_and_broken_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
