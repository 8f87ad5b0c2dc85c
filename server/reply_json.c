/* reply_json.c -- chunks, the whole body, usage. Everything that all chunks of a stream share is
 * written once, as `head`, and copied. */
#include <string.h>

#include "server/reply.h"

uint32_t reply_generated(const struct reply *reply)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < reply->choice_count; i++)
        count += reply->choices[i].generated;
    return count;
}

static void put_usage(const struct reply *reply, struct buf *out)
{
    uint32_t generated = reply_generated(reply), cached = 0;
    uint64_t reasoning = 0;

    /* The choices of a prompt share it: it was computed, or found, once. */
    for (uint32_t i = 0; i < reply->choice_count; i += reply->choices_per_prompt)
        cached += reply->choices[i].finish.cached_tokens;
    for (uint32_t i = 0; i < reply->choice_count; i++)
        reasoning += reply->choices[i].reasoning_tokens;
    buf_text(out, "{\"prompt_tokens\":");
    buf_u64(out, reply->prompt_tokens);
    buf_text(out, ",\"completion_tokens\":");
    buf_u64(out, generated);
    buf_text(out, ",\"total_tokens\":");
    buf_u64(out, (uint64_t)reply->prompt_tokens + generated);
    buf_text(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    buf_u64(out, cached);
    buf_text(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":");
    buf_u64(out, reasoning);
    buf_text(out, "}}");
}

static void open_chunk(const struct reply *reply, struct buf *out)
{
    buf_text(out, "data: {");
    buf_put(out, reply->head, reply->head_bytes);
    buf_text(out, "\"choices\":[");
}

static void close_chunk(const struct reply *reply, struct buf *out)
{
    if (reply->wish.continuous_usage) {
        buf_text(out, ",\"usage\":");
        put_usage(reply, out);
    } else if (reply->wish.include_usage) {
        buf_text(out, ",\"usage\":null");
    }
    buf_text(out, "}\n\n");
}

static void put_index(uint32_t index, struct buf *out)
{
    buf_text(out, "{\"index\":");
    buf_u64(out, index);
}

static void put_finish(const struct reply *reply, const struct reply_choice *choice,
                       struct buf *out)
{
    buf_text(out, ",\"finish_reason\":\"");
    buf_text(out, choice->finish_reason);
    buf_text(out, "\",\"stop_reason\":");
    if (choice->walk.matched >= 0)
        buf_json_string(out, stop_string_text(reply->stops, choice->walk.matched),
                        stop_string_bytes(reply->stops, choice->walk.matched));
    else if (choice->stop_token >= 0)
        buf_u64(out, (uint64_t)choice->stop_token);
    else
        buf_text(out, "null");
}

static void put_prompt_ids(const struct reply_prompt *prompt, struct buf *out)
{
    buf_text(out, ",\"prompt_token_ids\":");
    buf_put(out, prompt->ids, prompt->ids_bytes);
}

/* The ids of a choice's tokens, and once those of its prompt. */
static void put_ids(const struct reply *reply, struct reply_choice *choice, struct buf *out)
{
    if (!reply->wish.return_token_ids)
        return;
    if (!reply->shape->prompt_ids_on_top && !choice->prompt_ids_sent)
        put_prompt_ids(choice->prompt, out);
    choice->prompt_ids_sent = true;
    buf_text(out, ",\"token_ids\":[");
    buf_put(out, choice->ids.data, choice->ids.bytes);
    buf_byte(out, ']');
}

static void open_piece(const struct reply *reply, const struct reply_choice *choice,
                       struct buf *out)
{
    open_chunk(reply, out);
    put_index((uint32_t)(choice - reply->choices), out);
}

static void close_piece(struct reply *reply, struct reply_choice *choice, bool last,
                        struct buf *out)
{
    buf_text(out, ",\"logprobs\":");
    if (choice->entry_count > 0)
        reply->shape->put_logprobs(choice, out);
    else
        buf_text(out, "null");
    if (last)
        put_finish(reply, choice, out);
    else
        buf_text(out, ",\"finish_reason\":null");
    put_ids(reply, choice, out);
    buf_text(out, "}]");
    close_chunk(reply, out);
    reply_entries_reset(choice);
}

void reply_put_chunk(struct reply *reply, struct reply_choice *choice, const char *text,
                     size_t bytes, struct buf *out)
{
    open_piece(reply, choice, out);
    reply->shape->put_piece(text, bytes, out);
    close_piece(reply, choice, !text, out);
}

void reply_put_piece(struct reply *reply, struct reply_choice *choice, const struct buf *piece,
                     struct buf *out)
{
    open_piece(reply, choice, out);
    buf_put(out, buf_string(piece), piece->bytes);
    close_piece(reply, choice, false, out);
}

void reply_put_role_chunk(struct reply *reply, uint32_t index, struct buf *out)
{
    open_chunk(reply, out);
    put_index(index, out);
    buf_text(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                  "\"finish_reason\":null}]");
    if (reply->wish.return_token_ids)
        put_prompt_ids(reply->choices[index].prompt, out);
    close_chunk(reply, out);
}

void reply_put_usage_chunk(const struct reply *reply, struct buf *out)
{
    open_chunk(reply, out);
    buf_text(out, "],\"usage\":");
    put_usage(reply, out);
    buf_text(out, "}\n\n");
}

void reply_put_error_event(const struct api_error *error, struct buf *out)
{
    buf_text(out, "data: ");
    api_error_body(error, out);
    buf_text(out, "\n\n");
}

void reply_put_done(struct buf *out)
{
    buf_text(out, "data: [DONE]\n\n");
}

void reply_put_body(struct reply *reply, struct buf *out)
{
    buf_byte(out, '{');
    buf_put(out, reply->head, reply->head_bytes);
    buf_text(out, "\"choices\":[");
    for (uint32_t i = 0; i < reply->choice_count; i++) {
        struct reply_choice *choice = &reply->choices[i];

        if (i > 0)
            buf_byte(out, ',');
        put_index(i, out);
        if (choice->parser)
            reply_put_message(choice, out);
        else
            reply->shape->put_whole(buf_string(&choice->text), choice->text.bytes, out);
        buf_text(out, ",\"logprobs\":");
        if (reply->wish.logprobs)
            reply->shape->put_logprobs(choice, out);
        else
            buf_text(out, "null");
        put_finish(reply, choice, out);
        put_ids(reply, choice, out);
        buf_byte(out, '}');
    }
    buf_text(out, "],\"usage\":");
    put_usage(reply, out);
    if (reply->wish.return_token_ids && reply->shape->prompt_ids_on_top)
        put_prompt_ids(&reply->prompts[0], out);
    buf_text(out, ",\"service_tier\":null}");
}
