/* openai_chat.c -- /v1/chat/completions: messages in, the assistant's message out.
 *
 * Log-probabilities are one array of entries, in parts[0]; alternatives look the same inside:
 *     {"token":"...","logprob":-0.1,"bytes":[...],"top_logprobs":[{"token":...},...]} */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"
#include "server/reply.h"

/* --- messages --------------------------------------------------------------------------------- */

enum { FIELD_BYTES = 64, RENDERED_BYTES_MIN = 1 << 16, RENDERED_BYTES_PER_BODY_BYTE = 8 };

static const char *const roles[][2] = {
    /* as sent, as the template knows it */
    {"system", "system"},    {"user", "user"}, {"assistant", "assistant"},
    {"developer", "system"}, {"tool", "tool"}, {"function", "function"},
};

static int read_role(struct draft *draft, const json_t *message, const char *path,
                     struct chat_message *ret_message)
{
    const char *role = NULL;
    char field[FIELD_BYTES];
    size_t bytes = 0;
    int r = json_get_string(message, path, "role", &role, &bytes, &draft->fault);

    (void)snprintf(field, sizeof field, "%srole", path);
    if (r < 0)
        return r;
    if (r == 0)
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i][0]) == 0) {
            ret_message->role = roles[i][1];
            ret_message->role_bytes = strlen(roles[i][1]);
            return 0;
        }
    }
    return draft_fault(draft, E_INVALID, field,
                       "'%s' is '%.40s'; known are system, developer, user, assistant, tool and "
                       "function",
                       field, role);
}

/* The text of one part of a message's content. `path` ends in a point: "messages[0].content[0]." */
static int read_part(struct draft *draft, const json_t *part, const char *path,
                     const char **ret_text, size_t *ret_bytes)
{
    const char *type = NULL, *missing = "type";
    char field[FIELD_BYTES];
    size_t bytes = 0;
    int r;

    if (!json_is_object(part)) {
        (void)snprintf(field, sizeof field, "%.*s", (int)strlen(path) - 1, path);
        return draft_fault(draft, E_INVALID, field, "'%s' must be an object", field);
    }
    r = json_get_string(part, path, "type", &type, &bytes, &draft->fault);
    if (r > 0 && strcmp(type, "text") == 0) {
        missing = "text";
        r = json_get_string(part, path, "text", ret_text, ret_bytes, &draft->fault);
    } else if (r > 0) {
        (void)snprintf(field, sizeof field, "%stype", path);
        return draft_fault(draft, E_UNSUPPORTED, field,
                           "'%s' is '%.40s', but this model reads parts of type 'text' only", field,
                           type);
    }
    if (r != 0)
        return r < 0 ? r : 0;
    (void)snprintf(field, sizeof field, "%s%s", path, missing);
    return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
}

/* Text parts, joined with line breaks. */
static int join_parts(struct draft *draft, const json_t *parts, const char *path,
                      struct chat_message *ret_message)
{
    size_t count = json_array_size(parts), bytes = 0, part_bytes = 0, at = 0;
    const char *part = NULL;
    char field[FIELD_BYTES];
    char *text;
    int r;

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(field, sizeof field, "%scontent[%zu].", path, i);
        r = read_part(draft, json_array_get(parts, i), field, &part, &part_bytes);
        if (r < 0)
            return r;
        bytes += part_bytes + 1;
    }
    text = arena_take(draft->arena, bytes + 1, 1);
    if (!text)
        return draft_out_of_memory(draft);
    for (size_t i = 0; i < count; i++) {
        (void)read_part(draft, json_array_get(parts, i), field, &part, &part_bytes);
        if (i > 0)
            text[at++] = '\n';
        memcpy(text + at, part, part_bytes);
        at += part_bytes;
    }
    ret_message->content = text;
    ret_message->content_bytes = at;
    return 0;
}

static int read_content(struct draft *draft, const json_t *message, const char *path,
                        struct chat_message *ret_message)
{
    const json_t *content = json_object_get(message, "content");
    char field[FIELD_BYTES];

    (void)snprintf(field, sizeof field, "%scontent", path);
    if (json_is_string(content)) {
        ret_message->content = json_string_value(content);
        ret_message->content_bytes = json_string_length(content);
        return 0;
    }
    if (json_is_array(content))
        return join_parts(draft, content, path, ret_message);
    if (content && !json_is_null(content))
        return draft_fault(draft, E_INVALID, field, "'%s' must be a string or an array of parts",
                           field);
    if (strcmp(ret_message->role, "assistant") != 0)
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    ret_message->content = "";
    return 0;
}

/* What was called is part of the conversation: a prompt without it would be another one. */
static int refuse_calls(struct draft *draft, const json_t *message, const char *path)
{
    static const char *const keys[] = {"tool_calls", "function_call"};
    char field[FIELD_BYTES];

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *calls = json_object_get(message, keys[i]);

        if (!calls || json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0))
            continue;
        (void)snprintf(field, sizeof field, "%s%s", path, keys[i]);
        return draft_fault(draft, E_UNSUPPORTED, field, "'%s' is not supported by this server",
                           field);
    }
    return 0;
}

static int read_message(struct draft *draft, const json_t *message, size_t index,
                        struct chat_message *ret_message)
{
    char path[FIELD_BYTES / 2];
    int r;

    (void)snprintf(path, sizeof path, "messages[%zu]", index);
    if (!json_is_object(message))
        return draft_fault(draft, E_INVALID, path, "'%s' must be an object", path);
    (void)snprintf(path, sizeof path, "messages[%zu].", index);
    r = refuse_calls(draft, message, path);
    if (r < 0)
        return r;
    r = read_role(draft, message, path, ret_message);
    return r < 0 ? r : read_content(draft, message, path, ret_message);
}

int chat_read_prompt(struct draft *draft)
{
    json_t *list = NULL;
    struct chat_message *messages;
    struct buf text;
    size_t count;
    int r = json_get_array(draft->body, "", "messages", &list, &draft->fault);

    if (r < 0)
        return r;
    count = json_array_size(list);
    if (count == 0)
        return draft_fault(draft, E_INVALID, "messages", "'messages' %s",
                           r ? "is empty: at least one message is needed" : "is missing");
    messages = arena_take(draft->arena, count, sizeof *messages);
    if (!messages)
        return draft_out_of_memory(draft);
    for (size_t i = 0; i < count; i++) {
        r = read_message(draft, json_array_get(list, i), i, &messages[i]);
        if (r < 0)
            return r;
    }
    r = draft_prompts(draft, 1);
    if (r < 0)
        return r;
    buf_init(&text, RENDERED_BYTES_MIN + draft->body_bytes * RENDERED_BYTES_PER_BODY_BYTE);
    r = chat_template_render(draft->context->chat_template, messages, count,
                             draft->fields.add_generation_prompt, &text, &draft->fault);
    if (r == 0 && buf_failed(&text))
        r = draft_out_of_memory(draft);
    if (r == 0)
        r = draft_encode(draft, 0, "messages", buf_string(&text), text.bytes,
                         draft->fields.chat_add_special ? ENCODE_ADD_SPECIAL : 0);
    buf_fini(&text);
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
