/* openai_chat.c -- /v1/chat/completions: messages in, the assistant's message out.
 *
 * Log-probabilities are one array of entries, in parts[0]; alternatives look the same inside:
 *     {"token":"...","logprob":-0.1,"bytes":[...],"top_logprobs":[{"token":...},...]} */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"
#include "server/reply.h"

/* --- the prompt ------------------------------------------------------------------------------- */

enum { FIELD_BYTES = 64, RENDERED_BYTES_MIN = 1 << 16, RENDERED_BYTES_PER_BODY_BYTE = 8 };

static int render(struct draft *draft, const json_t *list, struct buf *text)
{
    size_t count = json_array_size(list);
    struct chat_message *messages = arena_take(draft->arena, count, sizeof *messages);

    if (!messages)
        return draft_out_of_memory(draft);
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(list, i);
        const json_t *role = json_object_get(message, "role");
        const json_t *content = json_object_get(message, "content");

        if (json_object_get(message, "tool_calls")) { /* a prompt without them would be another */
            char field[FIELD_BYTES];

            (void)snprintf(field, sizeof field, "messages[%zu].tool_calls", i);
            return draft_fault(draft, E_UNSUPPORTED, field,
                               "'%s' is not supported by this model's chat template", field);
        }
        messages[i] =
            (struct chat_message){json_string_value(role), json_string_length(role),
                                  json_string_value(content), json_string_length(content)};
    }
    return chat_template_render(draft->context->chat_template, messages, count,
                                draft->fields.add_generation_prompt, text, &draft->fault);
}

int chat_read_prompt(struct draft *draft)
{
    json_t *messages = NULL;
    struct buf text;
    int r = draft_read_messages(draft, &messages);

    if (r == 0)
        r = draft_prompts(draft, 1);
    buf_init(&text, RENDERED_BYTES_MIN + draft->body_bytes * RENDERED_BYTES_PER_BODY_BYTE);
    if (r == 0)
        r = render(draft, messages, &text);
    if (r == 0 && buf_failed(&text))
        r = draft_out_of_memory(draft);
    if (r == 0 && draft->format)
        draft->starts_in_reasoning =
            tool_format_opens_reasoning(draft->format, buf_string(&text), text.bytes);
    if (r == 0)
        r = draft_encode(draft, 0, "messages", buf_string(&text), text.bytes,
                         draft->fields.chat_add_special ? ENCODE_ADD_SPECIAL : 0);
    buf_fini(&text);
    json_decref(messages);
    return r;
}

/* --- the answer ------------------------------------------------------------------------------- */

/* The token's bytes as numbers, so that half characters can be put together again. */
static void put_chat_candidate(const struct reply *reply, int32_t id, float logprob,
                               struct buf *out)
{
    const char *piece = "";
    size_t bytes = 0;

    if ((uint32_t)id < tokenizer_count(reply->tokenizer))
        piece = tokenizer_piece(reply->tokenizer, id, &bytes);
    buf_text(out, "{\"token\":");
    reply_put_token(reply, id, out);
    buf_text(out, ",\"logprob\":");
    buf_json_number(out, (double)logprob, LOGPROB_DIGITS);
    buf_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes; i++) {
        if (i > 0)
            buf_byte(out, ',');
        buf_u64(out, (unsigned char)piece[i]);
    }
    buf_byte(out, ']');
}

static void put_chat_entry(const struct reply *reply, struct reply_choice *choice, int32_t id,
                           uint32_t text_offset, const struct event_token *token)
{
    struct buf *out = &choice->parts[0];

    (void)text_offset;
    must(token); /* chat has no echo */
    if (choice->entry_count++ > 0)
        buf_byte(out, ',');
    put_chat_candidate(reply, id, token->logprob, out);
    buf_text(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < reply_top_count(reply, token); i++) {
        if (i > 0)
            buf_byte(out, ',');
        put_chat_candidate(reply, token->top[i].token, token->top[i].logprob, out);
        buf_byte(out, '}');
    }
    buf_text(out, "]}");
}

static void put_chat_logprobs(const struct reply_choice *choice, struct buf *out)
{
    buf_text(out, "{\"content\":[");
    buf_put(out, choice->parts[0].data, choice->parts[0].bytes);
    buf_text(out, "],\"refusal\":null}");
}

static void put_chat_piece(const char *text, size_t bytes, struct buf *out)
{
    if (!text) {
        buf_text(out, ",\"delta\":{}");
        return;
    }
    buf_text(out, ",\"delta\":{\"content\":");
    buf_json_string(out, text, bytes);
    buf_byte(out, '}');
}

static void put_chat_whole(const char *text, size_t bytes, struct buf *out)
{
    buf_text(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    buf_json_string(out, text, bytes);
    buf_text(out, ",\"refusal\":null}");
}

const struct reply_shape chat_shape = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .put_piece = put_chat_piece,
    .put_whole = put_chat_whole,
    .put_entry = put_chat_entry,
    .put_logprobs = put_chat_logprobs,
    .end_has_entry = false,
    .prompt_ids_on_top = true,
};
