/* reply_make.c -- a reply from the draft of its request: what the answer repeats of the prompt,
 * the stop strings and the head of every chunk. Runs on a prepare thread; the reply's memory is
 * its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "config/base/clock.h"
#include "scheduler/vectors.h"
#include "server/openai_request.h"
#include "server/reply.h"

enum { REPLY_ARENA_BYTES_MAX = 256 << 20, FIELD_BYTES = 48 };

static int read_stops(struct draft *draft, struct reply *reply)
{
    bool text = draft->endpoint != OPENAI_EMBEDDINGS;
    const json_t *value = text ? json_object_get(draft->body, "stop") : NULL;
    const char *texts[STOP_STRINGS_MAX];
    size_t bytes[STOP_STRINGS_MAX];
    size_t count = json_is_array(value) ? json_array_size(value) : json_is_string(value);
    struct stops *stops = NULL;
    char field[FIELD_BYTES] = "stop";
    int r;

    if (value && !json_is_null(value) && !json_is_array(value) && !json_is_string(value))
        return draft_fault(draft, E_INVALID, field,
                           "'stop' must be a string or an array of strings");
    if (count > STOP_STRINGS_MAX)
        return draft_fault(draft, E_INVALID, field, "'stop' has %zu strings; at most %d are taken",
                           count, STOP_STRINGS_MAX);
    if (count > 0 && !draft->context->tokenizer)
        return draft_fault(draft, E_UNSUPPORTED, field,
                           "'stop': this model has no tokenizer, so its answers have no text to "
                           "stop at; 'stop_token_ids' are taken");
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;

        if (json_is_array(value))
            (void)snprintf(field, sizeof field, "stop[%zu]", i);
        if (!json_is_string(item))
            return draft_fault(draft, E_INVALID, field, "'%s' must be a string", field);
        texts[i] = json_string_value(item);
        bytes[i] = json_string_length(item);
        if (bytes[i] == 0 || bytes[i] > STOP_STRING_BYTES_MAX)
            return draft_fault(draft, E_INVALID, field, "'%s' has %zu bytes; 1 to %d are taken",
                               field, bytes[i], STOP_STRING_BYTES_MAX);
    }
    r = stops_build(reply->arena, texts, bytes, (uint32_t)count, &stops, &draft->fault);
    if (r < 0)
        return r;
    reply->stops = stops;
    return 0;
}

/* The text of a prompt as its tokens spell it, and where each token's text begins. */
static int fill_echo(const struct draft *draft, struct reply *reply, struct reply_prompt *prompt,
                     struct buf *text)
{
    const struct tokenizer *tokenizer = draft->context->tokenizer;
    uint32_t *offsets = arena_take(reply->arena, prompt->count, sizeof *offsets);
    struct detok detok;

    if (!offsets)
        return -ENOMEM;
    buf_reset(text);
    detok_init_start(&detok, tokenizer, false);
    for (uint32_t i = 0; i < prompt->count; i++) {
        /* A beginning that the tokenizer added is not part of what the client sent. */
        bool added = i == 0 && draft->prompts_are_text && draft->fields.add_special &&
                     tokenizer_adds_bos(tokenizer) && prompt->tokens[0] == tokenizer_bos(tokenizer);
        size_t before = text->bytes;

        offsets[i] = prompt->echo_characters;
        if (!added && (uint32_t)prompt->tokens[i] < tokenizer_count(tokenizer))
            detok_feed(&detok, prompt->tokens[i], text);
        prompt->echo_characters +=
            reply_count_characters(buf_string(text) + before, text->bytes - before);
    }
    detok_flush(&detok, text);
    prompt->echo_characters = reply_count_characters(buf_string(text), text->bytes);
    prompt->offsets = offsets;
    prompt->echo = arena_copy(reply->arena, buf_string(text), text->bytes);
    prompt->echo_bytes = text->bytes;
    return prompt->echo && !buf_failed(text) ? 0 : -ENOMEM;
}

static int fill_prompt(const struct draft *draft, struct reply *reply, uint32_t index,
                       struct buf *scratch)
{
    const struct request_prompt *from = &draft->request->prompts[index];
    struct reply_prompt *prompt = &reply->prompts[index];

    prompt->count = from->count;
    reply->prompt_tokens += from->count;
    if (!reply->wish.echo && !reply->wish.return_token_ids)
        return 0;
    prompt->tokens =
        (int32_t *)arena_copy(reply->arena, from->tokens, from->count * sizeof *from->tokens);
    if (!prompt->tokens)
        return -ENOMEM;
    if (reply->wish.return_token_ids) {
        buf_reset(scratch);
        for (uint32_t i = 0; i < from->count; i++)
            buf_format(scratch, "%c%d", i ? ',' : '[', from->tokens[i]);
        buf_byte(scratch, ']');
        prompt->ids = arena_copy(reply->arena, buf_string(scratch), scratch->bytes);
        prompt->ids_bytes = scratch->bytes;
        if (!prompt->ids || buf_failed(scratch))
            return -ENOMEM;
    }
    return reply->wish.echo ? fill_echo(draft, reply, prompt, scratch) : 0;
}

/* What all chunks of the answer say first. */
static int fill_head(const struct draft *draft, struct reply *reply, struct buf *scratch)
{
    const struct reply_shape *shape = reply->shape;
    const char *model = draft->context->model_id;
    uint64_t random[2];

    if (getrandom(random, sizeof random, 0) < 0)
        return -errno;
    (void)snprintf(reply->id, sizeof reply->id, "%s%016" PRIx64 "%016" PRIx64, shape->id_prefix,
                   random[0], random[1]);
    reply->random = random[0] ^ random[1] << 1;
    buf_reset(scratch);
    buf_format(scratch,
               "\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", reply->id,
               reply->wish.stream ? shape->chunk_object : shape->object, clock_wall_seconds());
    buf_json_string(scratch, model, strlen(model));
    buf_text(scratch, ",\"system_fingerprint\":\"weft-" WEFT_VERSION "-" WEFT_COMMIT "\",");
    reply->head = arena_copy(reply->arena, buf_string(scratch), scratch->bytes);
    reply->head_bytes = scratch->bytes;
    return reply->head && !buf_failed(scratch) ? 0 : -ENOMEM;
}

static void take_vectors(const struct draft *draft, struct reply *reply)
{
    const struct openai_fields *fields = &draft->fields;

    reply->vectors = vectors_share(draft->request->vectors);
    reply->wish.vectors = (struct reply_vectors){.dimensions = draft->context->vector_width,
                                                 .normalize = fields->normalize,
                                                 .base64 = draft->base64};
    if (fields->dimensions != OPENAI_ABSENT)
        reply->wish.vectors.dimensions = (uint32_t)fields->dimensions;
}

static int fill_reply(struct draft *draft, const struct reply_wish *wish, struct reply *reply)
{
    static const struct reply_shape *const shapes[] = {[OPENAI_CHAT] = &chat_shape,
                                                       [OPENAI_COMPLETIONS] = &completions_shape,
                                                       [OPENAI_EMBEDDINGS] = &embeddings_shape};
    const struct request *request = draft->request;
    const struct sampling *sampling = &request->sampling;
    struct buf scratch;
    int r;

    reply->wish = *wish;
    reply->wish.named_call = draft->tool_choice == TOOL_CHOICE_NAMED;
    reply->wish.min_tokens = sampling->min_tokens;
    reply->wish.stop_token_count = sampling->stop_count;
    reply->wish.stop_tokens = (int32_t *)arena_copy(
        reply->arena, sampling->stop_tokens, sampling->stop_count * sizeof *sampling->stop_tokens);
    reply->shape = shapes[draft->endpoint];
    reply->tokenizer = draft->context->tokenizer;
    if (request->vectors)
        take_vectors(draft, reply);
    reply->format = draft->format;
    reply->tools = json_incref((json_t *)draft->tools);
    reply->parse = (struct tool_options){.calls = draft->tools != NULL,
                                         .starts_in_reasoning = draft->starts_in_reasoning,
                                         .tools = draft->tools};
    reply->prompt_count = request->prompt_count;
    reply->prompts = arena_take(reply->arena, request->prompt_count, sizeof *reply->prompts);
    reply->choices_per_prompt = request->choices;
    reply->choice_count = request->prompt_count * request->choices;
    r = read_stops(draft, reply);
    if (r < 0)
        return r;
    if (!reply->prompts || !reply->wish.stop_tokens)
        return draft_out_of_memory(draft);
    buf_init(&scratch, REPLY_BUF_BYTES_MAX);
    r = fill_head(draft, reply, &scratch);
    for (uint32_t i = 0; r == 0 && i < request->prompt_count; i++)
        r = fill_prompt(draft, reply, i, &scratch);
    if (r == 0)
        r = reply_open_choices(reply);
    buf_fini(&scratch);
    return r < 0 ? draft_out_of_memory(draft) : 0;
}

int draft_make_reply(struct draft *draft, const struct reply_wish *wish, struct reply **ret_reply)
{
    struct arena *arena = NULL;
    struct reply *reply;
    int r;

    if (arena_open(sizeof *reply + sizeof(struct reply_choice) + 4096, REPLY_ARENA_BYTES_MAX,
                   &arena) < 0)
        return draft_out_of_memory(draft);
    reply = arena_take(arena, 1, sizeof *reply);
    if (!reply) {
        arena_close(arena);
        return draft_out_of_memory(draft);
    }
    reply->arena = arena;
    r = fill_reply(draft, wish, reply);
    if (r < 0) {
        reply_close(reply);
        return r;
    }
    *ret_reply = reply;
    return 0;
}
