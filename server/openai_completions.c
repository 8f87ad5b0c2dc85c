/* openai_completions.c -- /v1/completions: how continuations of texts or token ids are written.
 *
 * Log-probabilities are four arrays side by side, one in each part: tokens, token_logprobs,
 * top_logprobs (an object each) and text_offset (in characters). */
#include <string.h>

#include "server/openai_request.h"
#include "server/reply.h"

enum { PART_TOKENS, PART_LOGPROBS, PART_TOPS, PART_OFFSETS };

/* Different tokens may have the same text (parts of characters all show as U+FFFD). Keys of an
 * object must differ, so the likelier one, which came first, stays. */
struct top_keys {
    size_t start[TOP_LOGPROBS_MAX + 1]; /* in the part, with the quotes */
    size_t bytes[TOP_LOGPROBS_MAX + 1];
    unsigned count;
};

static void put_top(const struct reply *reply, struct buf *out, struct top_keys *keys, int32_t id,
                    float logprob)
{
    size_t before = out->bytes, start;

    if (keys->count > 0)
        buf_byte(out, ',');
    start = out->bytes;
    reply_put_token(reply, id, out);
    for (unsigned i = 0; i < keys->count && !buf_failed(out); i++) {
        if (keys->bytes[i] == out->bytes - start &&
            !memcmp(out->data + keys->start[i], out->data + start, keys->bytes[i])) {
            buf_cut(out, before);
            return;
        }
    }
    keys->start[keys->count] = start;
    keys->bytes[keys->count++] = out->bytes - start;
    buf_byte(out, ':');
    buf_json_number(out, (double)logprob, LOGPROB_DIGITS);
}

static void put_legacy_tops(const struct reply *reply, const struct event_token *token,
                            struct buf *out)
{
    struct top_keys keys = {.count = 0};
    uint32_t count = reply_top_count(reply, token);
    bool among = false;

    buf_byte(out, '{');
    for (uint32_t i = 0; i < count; i++) {
        put_top(reply, out, &keys, token->top[i].token, token->top[i].logprob);
        among = among || token->top[i].token == token->token;
    }
    if (!among)
        put_top(reply, out, &keys, token->token, token->logprob);
    buf_byte(out, '}');
}

static void put_legacy_entry(const struct reply *reply, struct reply_choice *choice, int32_t id,
                             uint32_t text_offset, const struct event_token *token)
{
    if (choice->entry_count++ > 0) {
        for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++)
            buf_byte(&choice->parts[part], ',');
    }
    reply_put_token(reply, id, &choice->parts[PART_TOKENS]);
    buf_u64(&choice->parts[PART_OFFSETS], text_offset);
    if (token) {
        buf_json_number(&choice->parts[PART_LOGPROBS], (double)token->logprob, LOGPROB_DIGITS);
        put_legacy_tops(reply, token, &choice->parts[PART_TOPS]);
    } else {
        buf_text(&choice->parts[PART_LOGPROBS], "null");
        buf_text(&choice->parts[PART_TOPS], "null");
    }
}

static void put_legacy_logprobs(const struct reply_choice *choice, struct buf *out)
{
    static const char *const names[LOGPROB_PARTS_MAX] = {
        [PART_TOKENS] = "{\"tokens\":[",
        [PART_LOGPROBS] = "],\"token_logprobs\":[",
        [PART_TOPS] = "],\"top_logprobs\":[",
        [PART_OFFSETS] = "],\"text_offset\":[",
    };

    for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++) {
        buf_text(out, names[part]);
        buf_put(out, choice->parts[part].data, choice->parts[part].bytes);
    }
    buf_text(out, "]}");
}

static void put_legacy_piece(const char *text, size_t bytes, struct buf *out)
{
    buf_text(out, ",\"text\":");
    buf_json_string(out, text ? text : "", bytes);
}

const struct reply_shape completions_shape = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .put_piece = put_legacy_piece,
    .put_whole = put_legacy_piece,
    .put_entry = put_legacy_entry,
    .put_logprobs = put_legacy_logprobs,
    .end_has_entry = true,
    .prompt_ids_on_top = false,
};
