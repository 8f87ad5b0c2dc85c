/* fuzz_openai_request.c -- libFuzzer target: any bytes at all as a request body, and any tokens as
 * its answer.
 *
 *     [flags] [body ...] 0xff [a token each ...]
 *
 * A body that is taken is answered by the tokens, streamed or not as it asks, to its end; what
 * comes out must be JSON. If it has a constraint, that takes the tokens too, as far as they fit.
 * Corpus: tests/fuzz/corpus_openai_request. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "server/openai.h"
#include "tests/lib/fake_text.h"

enum {
    FLAG_COMPLETIONS = 1,
    FLAG_BOS = 2,
    FLAG_STRICT = 4,
    FLAG_FAILURE = 8,
    FLAG_STOP = 16,
    FLAG_SPLIT = 32, /* of chats; with FLAG_COMPLETIONS: embeddings instead */
    VECTOR_WIDTH = 5,
    FLAGS_FORMAT = 6, /* two bits from here on */
    FORMATS = 4,
};

static enum openai_endpoint endpoint_of(unsigned flags)
{
    if (!(flags & FLAG_COMPLETIONS))
        return OPENAI_CHAT;
    return flags & FLAG_SPLIT ? OPENAI_EMBEDDINGS : OPENAI_COMPLETIONS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An echo may hold NUL, so its escape is right in an answer, though json_parse() takes none.
 * jansson takes it in values only, so no NUL is sampled here: it would be a key. */
static void check_json(const char *text, size_t bytes)
{
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);

    must(value);
    json_decref(value);
}

static void check_answer(const struct reply *reply, const struct buf *out)
{
    const char *at = out->data;

    if (out->bytes == 0)
        return;
    if (!reply_streams(reply)) {
        check_json(out->data, out->bytes);
        return;
    }
    while (at < out->data + out->bytes) {
        const char *end = strstr(at, "\n\n");

        must(end && !memcmp(at, "data: ", 6));
        if (memcmp(at, "data: [DONE]", 12))
            check_json(at + 6, (size_t)(end - at - 6));
        at = end + 2;
    }
}

/* One choice from its first event to its last. Returns whether the reply said that it failed. */
static bool feed_choice(struct reply *reply, uint32_t choice, unsigned flags, const uint8_t *tokens,
                        size_t count, struct buf *out)
{
    struct reply_action action = {0};
    struct event event = {.choice = choice, .kind = EVENT_PROMPT};

    for (uint32_t i = 0; i < 3; i++) {
        event.token = (struct event_token){.token = 'a', .position = i, .logprob = -1};
        reply_feed(reply, &event, out, &action);
    }
    event.kind = EVENT_TOKEN;
    for (size_t i = 0; i < count; i++) {
        int32_t token =
            tokens[i] < 0xf0 ? tokens[i] + !tokens[i] : FAKE_START + (tokens[i] - 0xf0) % 12;

        event.made_ns += 10;
        event.token = (struct event_token){.token = token, .logprob = -2, .top_count = 1};
        event.token.top[0] = (struct token_logprob){.token = token, .logprob = -1};
        reply_feed(reply, &event, out, &action);
    }
    event = (struct event){.choice = choice, .kind = EVENT_FINISH};
    event.finish.reason = flags & FLAG_STOP ? FINISH_STOP : FINISH_LENGTH;
    if (flags & FLAG_FAILURE)
        event =
            (struct event){.choice = choice, .kind = EVENT_FAILURE, .failure = {.code = E_DEVICE}};
    reply_feed(reply, &event, out, &action);
    return action.failed;
}

/* One for each format, for good. */
static struct constraints *constraints_of(unsigned number, const struct tool_format **ret_format)
{
    static const char *const names[FORMATS] = {"hermes", "glm45", "llama_pythonic", "harmony"};
    static const struct tokenizer tokenizer = {.adds_bos = false};
    static struct constraints *made[FORMATS];
    struct constraints_options options = {.tokenizer = &tokenizer, .bytes_max = 4 << 20};

    *ret_format = options.format = tool_format_find(names[number]);
    if (!made[number])
        must(constraints_open(&options, &made[number], NULL) == 0);
    return made[number];
}

static void feed_constraint(struct constraint *constraint, const uint8_t *tokens, size_t count)
{
    struct constraint_state *state;
    uint32_t mask[FAKE_COUNT / 32 + 1];
    int alive = 1;

    must(constraint_state_open(constraint, &state, NULL) == 0);
    for (size_t i = 0; i < count && i < 64 && alive > 0; i++) {
        bool allowed = constraint_state_mask(state, mask, FAKE_COUNT / 32 + 1, NULL) > 0 &&
                       mask[tokens[i] / 32] >> tokens[i] % 32 & 1;

        alive = constraint_state_token(state, tokens[i], NULL);
        must(alive < 0 || allowed == (alive > 0));
    }
    constraint_state_close(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct chat_template chatml = {.foreign = false};
    unsigned flags = size > 0 ? data[0] : 0;
    const uint8_t *end = size > 1 ? memchr(data + 1, 0xff, size - 1) : NULL;
    size_t bytes = size > 1 ? (end ? (size_t)(end - data) : size) - 1 : 0;
    struct tokenizer tokenizer = {.adds_bos = flags & FLAG_BOS};
    struct openai_context context = {.tokenizer = &tokenizer,
                                     .chat_template = &chatml,
                                     .model_id = "m",
                                     .context = 200,
                                     .vocabulary = FAKE_COUNT,
                                     .vector_width = VECTOR_WIDTH,
                                     .choices_max = 4,
                                     .strict_max_tokens = flags & FLAG_STRICT,
                                     .parse_always = flags & FLAG_SPLIT,
                                     .may_reason = flags & FLAG_SPLIT};
    struct request *request = NULL;
    struct reply *reply = NULL;
    struct api_error error = {0};
    struct buf out;
    bool failed = false;
    int r;

    buf_init(&out, 1 << 24);
    context.constraints = constraints_of(flags >> FLAGS_FORMAT, &context.tool_format);
    r = openai_parse(endpoint_of(flags), &context, false, size > 1 ? (const char *)data + 1 : "",
                     bytes, &request, &reply, &error);
    if (r == 0) {
        uint32_t choices = request->prompt_count * request->choices;

        if (request->constraint.constraint)
            feed_constraint(request->constraint.constraint, end ? end + 1 : data,
                            end ? (size_t)(data + size - end - 1) : 0);
        if (reply_streams(reply))
            reply_begin(reply, &out);
        for (uint32_t i = 0; i < choices && !failed; i++)
            failed = feed_choice(reply, i, flags, end ? end + 1 : data,
                                 end ? (size_t)(data + size - end - 1) : 0, &out);
        check_answer(reply, &out);
    } else if (r < 0) {
        api_error_body(&error, &out);
        check_json(out.data, out.bytes);
    }
    buf_fini(&out);
    request_free(request);
    reply_close(reply);
    return 0;
}
