/* openai_chat.c -- /v1/chat/completions: messages in, the assistant's message out.
 *
 * Log-probabilities are one array of entries, in parts[0]; alternatives look the same inside:
 *     {"token":"...","logprob":-0.1,"bytes":[...],"top_logprobs":[{"token":...},...]} */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/openai_request.h"
#include "server/reply.h"

/* --- the prompt ------------------------------------------------------------------------------- */

enum { RENDERED_BYTES_MIN = 1 << 16, RENDERED_BYTES_PER_BODY_BYTE = 8 };

/* reasoning_effort and verbosity reach templates that know them by their names; no effort at all is
 * what other templates call thinking. */
static int read_effort(struct draft *draft, json_t *input)
{
    static const char *const keys[] = {"reasoning_effort", "verbosity"};
    static const char *const switches[] = {"enable_thinking", "thinking"};
    const char *effort = "";
    size_t bytes;
    int r;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *word = "";

        r = json_get_string(draft->body, "", keys[i], &word, &bytes, &draft->fault);
        if (r < 0)
            return r;
        if (r > 0 && json_object_set_new(input, keys[i], json_string(word)) < 0)
            return draft_out_of_memory(draft);
        if (i == 0)
            effort = word;
    }
    for (size_t i = 0; strcmp(effort, "none") == 0 && i < sizeof switches / sizeof *switches; i++) {
        if (json_object_set_new(input, switches[i], json_false()) < 0)
            return draft_out_of_memory(draft);
    }
    return 0;
}

/* Returns 1 if there are documents, 0, or a fault. */
static int read_documents(struct draft *draft, json_t **ret_documents)
{
    int r = json_get_array(draft->body, "", "documents", ret_documents, &draft->fault);

    for (size_t i = 0; r > 0 && i < json_array_size(*ret_documents); i++) {
        char field[32];

        if (json_is_object(json_array_get(*ret_documents, i)))
            continue;
        (void)snprintf(field, sizeof field, "documents[%zu]", i);
        return draft_fault(draft, E_INVALID, field, "'%s' must be an object", field);
    }
    return r;
}

/* What the template is rendered with, but for the messages. */
static int read_variables(struct draft *draft, json_t *input)
{
    json_t *more = NULL, *documents = NULL;
    int r = json_get_object(draft->body, "", "chat_template_kwargs", &more, &draft->fault);

    if (r >= 0)
        r = read_documents(draft, &documents);
    if (r >= 0)
        r = read_effort(draft, input);
    if (r < 0)
        return r;
    if ((more && json_object_set(input, "chat_template_kwargs", more) < 0) ||
        (documents && json_object_set(input, "documents", documents) < 0) ||
        (draft->tools && json_object_set(input, "tools", (json_t *)(uintptr_t)draft->tools) < 0) ||
        json_object_set_new(input, "add_generation_prompt",
                            json_boolean(draft->fields.add_generation_prompt)) < 0)
        return draft_out_of_memory(draft);
    return 0;
}

/* A function may come without description or parameters, and some templates fail for that: once
 * more with these filled in. A fault that this does not cure stays as it was. */
static int render_completed(struct draft *draft, json_t *input, const struct tm *now,
                            struct buf *text)
{
    json_t *tools = tools_completed(draft->tools);
    struct fault again = {0};

    if (!tools)
        return E_UNSUPPORTED;
    if (json_object_set_new(input, "tools", tools) < 0)
        return draft_out_of_memory(draft);
    if (chat_template_render(draft->context->chat_template, input, now, text, &again) < 0)
        return E_UNSUPPORTED;
    draft->fault = (struct fault){0};
    return 0;
}

static int render(struct draft *draft, json_t *messages, struct buf *text)
{
    json_t *input = json_object();
    time_t seconds = time(NULL);
    struct tm now;
    int r = json_object_set(input, "messages", messages) < 0 ? draft_out_of_memory(draft)
                                                             : read_variables(draft, input);

    if (r == 0) {
        (void)localtime_r(&seconds, &now);
        r = chat_template_render(draft->context->chat_template, input, &now, text, &draft->fault);
    }
    if (r == E_UNSUPPORTED && draft->tools)
        r = render_completed(draft, input, &now, text);
    /* A body that came in whole is not too large for HTTP: its conversation cannot be rendered. */
    if (r == E_TOO_LARGE)
        r = draft->fault.code = E_INVALID;
    if (r == E_INVALID && !*draft->fault.field)
        (void)snprintf(draft->fault.field, sizeof draft->fault.field, "messages");
    json_decref(input);
    return r;
}

/* Where in an answer the prompt leaves the model. */
static void read_opening(struct draft *draft, const struct buf *text)
{
    const struct tool_format *format = draft->format;
    const char *prompt = buf_string(text);

    draft->starts_in_reasoning = tool_format_opens_reasoning(format, prompt, text->bytes);
    draft->starts_behind_reasoning = tool_format_closes_reasoning(format, prompt, text->bytes);
    draft->starts_in_header = tool_format_opens_header(format, prompt, text->bytes);
}

int chat_read_prompt(struct draft *draft)
{
    json_t *messages = NULL;
    struct buf text;
    int r = draft_needs_tokenizer(draft, "messages");

    if (r == 0)
        r = draft_read_messages(draft, &messages);
    if (r == 0)
        r = draft_prompts(draft, 1);
    buf_init(&text, RENDERED_BYTES_MIN + draft->body_bytes * RENDERED_BYTES_PER_BODY_BYTE);
    if (r == 0)
        r = render(draft, messages, &text);
    if (r == 0 && draft->format)
        read_opening(draft, &text);
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
