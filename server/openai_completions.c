/* openai_completions.c -- /v1/completions: texts or token ids in, their continuations out.
 *
 * Log-probabilities are four arrays side by side, one in each part: tokens, token_logprobs,
 * top_logprobs (an object each) and text_offset (in characters). */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"
#include "server/reply.h"

/* --- prompts ---------------------------------------------------------------------------------- */

enum { FIELD_BYTES = 64 };

static int read_text(struct draft *draft, uint32_t index, const char *field, const json_t *value)
{
    return draft_encode(draft, index, field, json_string_value(value), json_string_length(value),
                        draft->fields.add_special ? ENCODE_ADD_SPECIAL : 0);
}

static int read_ids(struct draft *draft, uint32_t index, const char *field, const json_t *list)
{
    size_t count = json_array_size(list);
    int r;

    draft->tokens.count = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t id = 0;

        r = draft_token_id(draft, field, i, json_array_get(list, i), &id);
        if (r < 0)
            return r;
        r = tokens_put(&draft->tokens, id);
        if (r == E_TOO_LARGE)
            return draft_tokens(draft, index, field, draft->tokens.ids, count);
        if (r < 0)
            return draft_out_of_memory(draft);
    }
    return draft_tokens(draft, index, field, draft->tokens.ids, count);
}

static int read_list(struct draft *draft, const json_t *list)
{
    size_t count = json_array_size(list);
    bool texts = json_is_string(json_array_get(list, 0));
    char field[FIELD_BYTES];
    int r = draft_prompts(draft, count);

    for (size_t i = 0; r >= 0 && i < count; i++) {
        const json_t *item = json_array_get(list, i);

        (void)snprintf(field, sizeof field, "prompt[%zu]", i);
        if (texts ? !json_is_string(item) : !json_is_array(item))
            return draft_fault(draft, E_INVALID, field, "'%s' must be %s, like the first one",
                               field, texts ? "a string" : "an array of token ids");
        r = texts ? read_text(draft, (uint32_t)i, field, item)
                  : read_ids(draft, (uint32_t)i, field, item);
    }
    return r;
}

int completions_read_prompts(struct draft *draft)
{
    const json_t *prompt = json_object_get(draft->body, "prompt");
    const json_t *first = json_array_get(prompt, 0);
    int r;

    if (!prompt || json_is_null(prompt))
        return draft_fault(draft, E_INVALID, "prompt", "'prompt' is missing");
    if (json_is_string(prompt) || json_is_number(first)) {
        r = draft_prompts(draft, 1);
        if (r < 0)
            return r;
        return json_is_string(prompt) ? read_text(draft, 0, "prompt", prompt)
                                      : read_ids(draft, 0, "prompt", prompt);
    }
    if (json_is_array(prompt) && !first)
        return draft_fault(draft, E_INVALID, "prompt", "'prompt' is empty");
    if (json_is_string(first) || json_is_array(first))
        return read_list(draft, prompt);
    return draft_fault(
        draft, E_INVALID, "prompt",
        "'prompt' must be a string, an array of strings, an array of token ids or an "
        "array of such arrays");
}

/* --- the answer ------------------------------------------------------------------------------- */

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
