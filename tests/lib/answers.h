/* answers.h -- for tests of replies: a request read, events fed as a scheduler would, and what
 * came out read back. Include it in one test file; the texts are fake_text.h's. */
#ifndef WEFT_ANSWERS_H
#define WEFT_ANSWERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/text/detok.h"
#include "server/openai.h"
#include "tests/lib/fake_text.h"

static const struct tokenizer plain_tokenizer = {.adds_bos = false};
static const struct chat_template chatml = {.foreign = false};

/* By which chat answers are split; NULL: they are not. */
static const struct tool_format *answer_format;

static struct openai_context context_of(const struct tokenizer *tokenizer)
{
    return (struct openai_context){.tokenizer = tokenizer,
                                   .chat_template = &chatml,
                                   .model_id = "the \"model\"",
                                   .context = 4096,
                                   .vocabulary = FAKE_COUNT,
                                   .choices_max = 16,
                                   .tool_format = answer_format,
                                   .parse_always = answer_format != NULL};
}

static struct reply *reply_of(const struct tokenizer *tokenizer, enum openai_endpoint endpoint,
                              const char *body)
{
    struct openai_context context = context_of(tokenizer);
    struct request *request = NULL;
    struct reply *reply = NULL;
    struct api_error error = {0};

    if (openai_parse(endpoint, &context, true, body, strlen(body), &request, &reply, &error) < 0)
        fail_msg("%s\nin %s", error.message, body);
    request_free(request);
    return reply;
}

/* --- feeding ---------------------------------------------------------------------------------- */

/* What the scheduler would say to one choice. */
struct script {
    const int32_t *tokens;
    unsigned count;
    enum finish_reason finish;
};

static struct event token_event(uint32_t choice, int32_t token, unsigned n)
{
    struct event event = {.choice = choice, .kind = EVENT_TOKEN, .made_ns = 1000 + n * 10};

    event.token.token = token;
    event.token.logprob = (float)-n / 8;
    event.token.rank = 1;
    event.token.position = n;
    event.token.top_count = 3;
    event.token.top[0].token = 'a';
    event.token.top[0].logprob = -0.25f;
    event.token.top[1].token = FAKE_EURO_HEAD; /* shows like the next */
    event.token.top[1].logprob = -1.5f;
    event.token.top[2].token = FAKE_EURO_TAIL;
    event.token.top[2].logprob = -INFINITY;
    return event;
}

static void feed_finish(struct reply *reply, uint32_t choice, enum finish_reason reason,
                        struct buf *out, struct reply_action *ret_action)
{
    struct event event = {.choice = choice, .kind = EVENT_FINISH};

    event.finish.reason = reason;
    event.finish.cached_tokens = 2;
    event.finish.prefill_ns = 5;
    reply_feed(reply, &event, out, ret_action);
}

/* Feeds one choice to its end. After a stop string two more tokens arrive, as they do in a real
 * server. */
static void feed_script(struct reply *reply, uint32_t choice, const struct script *script,
                        struct buf *out, struct reply_action *ret_action)
{
    struct event started = {.choice = choice, .kind = EVENT_STARTED};
    unsigned left = UINT32_MAX;

    reply_feed(reply, &started, out, ret_action);
    for (unsigned i = 0; i < script->count && left > 0; i++, left--) {
        struct event event = token_event(choice, script->tokens[i], i);

        reply_feed(reply, &event, out, ret_action);
        assert_false(ret_action->finished);
        assert_false(ret_action->failed);
        if (ret_action->cancel_choice) {
            assert_int_equal(left > 2, 1); /* asked for once */
            assert_int_equal(ret_action->choice, choice);
            left = 3;
        }
    }
    feed_finish(reply, choice, left <= 3 ? FINISH_CANCELLED : script->finish, out, ret_action);
}

/* --- reading answers -------------------------------------------------------------------------- */

/* What one choice said, put together from chunks or read from the whole body. */
struct said {
    struct buf text;
    json_t *logprobs; /* chat: the entries; legacy: the object of arrays; NULL: none */
    json_t *token_ids;
    json_t *prompt_ids;
    char finish[16];
    json_t *stop_reason;
    unsigned chunks; /* with text */
};

static void said_init(struct said *said)
{
    *said = (struct said){.token_ids = json_array()};
    buf_init(&said->text, 1 << 20);
}

static void said_fini(struct said *said)
{
    buf_fini(&said->text);
    json_decref(said->logprobs);
    json_decref(said->token_ids);
    json_decref(said->prompt_ids);
    json_decref(said->stop_reason);
}

static json_t *parse(const char *text, size_t bytes)
{
    struct fault fault = {0};
    json_t *value = NULL;

    if (json_parse(text, bytes, &value, &fault) < 0)
        fail_msg("%s in %.*s", fault.message, (int)bytes, text);
    return value;
}

/* Appends the arrays of one logprobs object to those that came before. */
static void add_logprobs(struct said *said, json_t *logprobs)
{
    json_t *value;
    const char *key;

    if (!logprobs || json_is_null(logprobs))
        return;
    if (!said->logprobs)
        said->logprobs = json_object();
    json_object_foreach(logprobs, key, value)
    {
        json_t *list = json_object_get(said->logprobs, key);

        if (!json_is_array(value))
            continue; /* refusal */
        if (!list) {
            list = json_array();
            json_object_set_new(said->logprobs, key, list);
        }
        json_array_extend(list, value);
    }
}

static void add_choice(struct said *all, json_t *choice)
{
    struct said *said = &all[json_integer_value(json_object_get(choice, "index"))];
    json_t *message = json_object_get(choice, "delta");
    const json_t *text, *finish = json_object_get(choice, "finish_reason");

    assert_non_null(finish); /* present in every chunk */
    assert_string_equal(said->finish, "");
    if (!message)
        message = json_object_get(choice, "message");
    text = message ? json_object_get(message, "content") : json_object_get(choice, "text");
    buf_put(&said->text, json_string_value(text), json_string_length(text));
    said->chunks += json_string_length(text) > 0;
    add_logprobs(said, json_object_get(choice, "logprobs"));
    json_array_extend(said->token_ids, json_object_get(choice, "token_ids"));
    if (json_object_get(choice, "prompt_token_ids")) {
        assert_null(said->prompt_ids);
        said->prompt_ids = json_incref(json_object_get(choice, "prompt_token_ids"));
    }
    if (json_is_string(finish)) {
        (void)snprintf(said->finish, sizeof said->finish, "%s", json_string_value(finish));
        said->stop_reason = json_incref(json_object_get(choice, "stop_reason"));
        assert_non_null(said->stop_reason);
    }
}

/* Reads a stream, event by event; returns the parsed events, the last of which was [DONE]. */
static json_t *read_stream(const struct buf *out, struct said *all)
{
    json_t *events = json_array();
    const char *at = out->data, *id = NULL;
    bool done = false;

    while (at < out->data + out->bytes) {
        const char *end = strstr(at, "\n\n");
        json_t *event, *choice;
        size_t i;

        assert_non_null(end);
        assert_false(done);
        assert_memory_equal(at, "data: ", 6);
        if (!strncmp(at, "data: [DONE]", 12)) {
            done = true;
            at = end + 2;
            continue;
        }
        event = parse(at + 6, (size_t)(end - at - 6));
        json_array_append_new(events, event);
        json_array_foreach(json_object_get(event, "choices"), i, choice) add_choice(all, choice);
        if (!id)
            id = json_string_value(json_object_get(event, "id"));
        if (json_object_get(event, "id"))
            assert_string_equal(json_string_value(json_object_get(event, "id")), id);
        at = end + 2;
    }
    assert_true(done);
    return events;
}

static json_t *read_body(const struct buf *out, struct said *all)
{
    json_t *body = parse(out->data, out->bytes), *choice;
    size_t i;

    json_array_foreach(json_object_get(body, "choices"), i, choice)
    {
        assert_int_equal(json_integer_value(json_object_get(choice, "index")), (int)i);
        add_choice(all, choice);
    }
    return body;
}

/* Runs the same script through a streaming and a plain reply, checks that they say the same, and
 * returns the plain answer's body. `fields` are those of the request, without braces and `stream`.
 */
static inline json_t *run_both(enum openai_endpoint endpoint, const char *fields,
                               const struct script *script, struct said *ret_said)
{
    struct said streamed;
    struct buf out;
    json_t *events, *body = NULL;

    buf_init(&out, 1 << 24);
    said_init(&streamed);
    said_init(ret_said);
    for (int stream = 1; stream >= 0; stream--) {
        struct reply_action action;
        struct reply *reply;
        char request[4096];

        (void)snprintf(request, sizeof request, "{%s,\"stream\":%s}", fields,
                       stream ? "true" : "false");
        reply = reply_of(&plain_tokenizer, endpoint, request);
        assert_int_equal(reply_streams(reply), stream);
        buf_reset(&out);
        if (stream)
            reply_begin(reply, &out);
        feed_script(reply, 0, script, &out, &action);
        assert_true(action.finished);
        assert_false(action.failed);
        if (stream) {
            events = read_stream(&out, &streamed);
            json_decref(events);
        } else {
            body = read_body(&out, ret_said);
        }
        reply_close(reply);
    }
    assert_string_equal(buf_string(&streamed.text), buf_string(&ret_said->text));
    assert_string_equal(streamed.finish, ret_said->finish);
    assert_true(json_equal(streamed.stop_reason, ret_said->stop_reason));
    assert_true(json_equal(streamed.token_ids, ret_said->token_ids));
    if (streamed.logprobs)
        assert_true(json_equal(streamed.logprobs, ret_said->logprobs));
    said_fini(&streamed);
    buf_fini(&out);
    return body;
}

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

#endif
