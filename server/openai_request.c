/* openai_request.c -- a body becomes a request for the scheduler and a reply for the loop.
 *
 * Everything that can be wrong is found here, before the first token, so that it has a real HTTP
 * status. Runs on a prepare thread. */
#include "server/openai_request.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/reply.h"

enum {
    COMPLETION_TOKENS_DEFAULT = 16,
    ARENA_FIRST_BYTES_MAX = 1 << 20,
    ARENA_BYTES_PER_BODY_BYTE = 32, /* 2 bytes of body can be a message, before it is refused */
    ARENA_BYTES_PER_TOKEN = 16,     /* a prompt, its copy for each sequence, and pages */
    ARENA_BYTES_PER_CHOICE = 4096,
    /* jansson takes about 50 bytes a value, so their number is limited before it starts; an array
     * or object costs as much as several more. */
    BODY_VALUES_MIN = 1 << 16,
    BODY_VALUES_MAX = 1 << 21,
    BODY_CONTAINER_VALUES = 8,
};

int draft_fault(struct draft *draft, int code, const char *field, const char *format, ...)
{
    char message[sizeof draft->fault.message];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fault_field(&draft->fault, code, field, "%s", message);
}

int draft_out_of_memory(struct draft *draft)
{
    return fault_set(&draft->fault, E_MEMORY, "Out of memory");
}

/* --- prompts ---------------------------------------------------------------------------------- */

int draft_prompts(struct draft *draft, size_t count)
{
    const struct openai_context *context = draft->context;
    struct request *request = draft->request;

    if (draft->endpoint == OPENAI_EMBEDDINGS && count > EMBEDDING_INPUTS_MAX)
        return draft_fault(draft, E_INVALID, "input", "'input' has %zu items; at most %d are taken",
                           count, EMBEDDING_INPUTS_MAX);
    if (draft->endpoint != OPENAI_EMBEDDINGS &&
        (count > context->choices_max || (uint64_t)draft->fields.n * count > context->choices_max))
        return draft_fault(draft, E_INVALID, draft->fields.n > 1 ? "n" : "prompt",
                           "%zu prompt%s with n = %" PRId64 " ask for more than the %" PRIu32
                           " answers that one request may have",
                           count, count == 1 ? "" : "s", draft->fields.n, context->choices_max);
    request->prompts = arena_take(draft->arena, count, sizeof *request->prompts);
    if (!request->prompts)
        return draft_out_of_memory(draft);
    request->prompt_count = (uint32_t)count;
    request->choices = (uint32_t)draft->fields.n;
    return 0;
}

static int too_long(struct draft *draft, const char *field, const char *more, size_t count)
{
    return draft_fault(draft, E_CONTEXT, field,
                       "This model's maximum context length is %" PRIu32
                       " tokens. However, your prompt has %s%zu tokens",
                       draft->context->context, more, count);
}

int draft_tokens(struct draft *draft, uint32_t index, const char *field, const int32_t *ids,
                 size_t count)
{
    struct request_prompt *prompt = &draft->request->prompts[index];
    int32_t *copy;

    if (count == 0)
        return draft_fault(draft, E_INVALID, field,
                           draft->endpoint == OPENAI_EMBEDDINGS
                               ? "'%s' has no tokens: there is nothing to make a vector of"
                               : "'%s' has no tokens: an empty prompt cannot be continued by this "
                                 "model",
                           field);
    if (count > draft->context->context)
        return too_long(draft, field, "", count);
    copy = arena_take(draft->arena, count, sizeof *copy);
    if (!copy)
        return draft_out_of_memory(draft);
    memcpy(copy, ids, count * sizeof *copy);
    prompt->tokens = copy;
    prompt->count = (uint32_t)count;
    return 0;
}

/* No token stands for more bytes of text than this. */
static size_t longest_piece(const struct tokenizer *tokenizer)
{
    size_t longest = 1, bytes;

    for (uint32_t id = 0; id < tokenizer_count(tokenizer); id++) {
        (void)tokenizer_piece(tokenizer, (int32_t)id, &bytes);
        if (bytes > longest)
            longest = bytes;
    }
    return longest;
}

int draft_needs_tokenizer(struct draft *draft, const char *field)
{
    if (draft->context->tokenizer)
        return 0;
    return draft_fault(draft, E_UNSUPPORTED, field,
                       draft->endpoint == OPENAI_EMBEDDINGS
                           ? "This model has no tokenizer: it takes only an 'input' of token ids, "
                             "such as [1, 2, 3]"
                           : "This model has no tokenizer: it continues only a 'prompt' of token "
                             "ids, such as [1, 2, 3]");
}

int draft_encode(struct draft *draft, uint32_t index, const char *field, const char *text,
                 size_t bytes, unsigned flags)
{
    size_t ceiling = draft->tokens.ceiling;
    int r = draft_needs_tokenizer(draft, field);

    if (r < 0)
        return r;
    /* A megabyte without a space is one word to a tokenizer, which it works on as a whole. */
    if (bytes > ceiling && bytes / longest_piece(draft->context->tokenizer) > ceiling)
        return too_long(draft, field, "more than ", ceiling);
    draft->prompts_are_text = true;
    draft->tokens.count = 0;
    r = tokenizer_encode(draft->context->tokenizer, text, bytes, flags, &draft->tokens,
                         &draft->fault);
    if (r == E_TOO_LARGE)
        return too_long(draft, field, "more than ", ceiling);
    if (r < 0)
        return r;
    return draft_tokens(draft, index, field, draft->tokens.ids, draft->tokens.count);
}

/* --- how long the answer may be --------------------------------------------------------------- */

const char *draft_prompt_field(const struct draft *draft)
{
    static const char *const names[] = {
        [OPENAI_CHAT] = "messages", [OPENAI_COMPLETIONS] = "prompt", [OPENAI_EMBEDDINGS] = "input"};

    return names[draft->endpoint];
}

/* Lowers the wanted number of tokens to the room that the shortest prompt leaves. */
static int fit(struct draft *draft)
{
    const struct openai_fields *fields = &draft->fields;
    struct request *request = draft->request;
    bool newer = fields->max_completion_tokens != OPENAI_ABSENT;
    const char *field = newer ? "max_completion_tokens" : "max_tokens";
    int64_t wanted = newer ? fields->max_completion_tokens : fields->max_tokens;
    uint32_t context = draft->context->context, room_max = 0;
    const struct generation_config *generation = draft->context->generation;

    if (wanted == 0 && draft->endpoint == OPENAI_CHAT)
        return draft_fault(draft, E_INVALID, field, "'%s' must be at least 1, not 0", field);
    if (wanted != OPENAI_ABSENT && fields->min_tokens > wanted)
        return draft_fault(draft, E_INVALID, "min_tokens",
                           "'min_tokens' (%" PRId64 ") is more than '%s' (%" PRId64 ")",
                           fields->min_tokens, field, wanted);
    for (uint32_t i = 0; i < request->prompt_count; i++) {
        uint32_t count = request->prompts[i].count;
        uint32_t room = context - count;

        if (room == 0 && wanted != 0)
            return too_long(draft, draft_prompt_field(draft), "", count);
        if (draft->context->strict_max_tokens && wanted > (int64_t)room)
            return draft_fault(draft, E_CONTEXT, field,
                               "This model's maximum context length is %" PRIu32
                               " tokens. However, you requested %" PRIu64 " tokens (%" PRIu32
                               " in the prompt, %" PRId64 " in the answer)",
                               context, (uint64_t)wanted + count, count, wanted);
        if (room > room_max)
            room_max = room;
    }
    if (generation && generation->max_new_tokens >= 0 &&
        generation->max_new_tokens < (int64_t)room_max)
        room_max = (uint32_t)generation->max_new_tokens;
    if (wanted == OPENAI_ABSENT)
        wanted = draft->endpoint == OPENAI_CHAT ? (int64_t)room_max : COMPLETION_TOKENS_DEFAULT;
    request->max_tokens = wanted > (int64_t)room_max ? room_max : (uint32_t)wanted;
    request->sampling.min_tokens = fields->min_tokens > (int64_t)request->max_tokens
                                       ? request->max_tokens
                                       : (uint32_t)fields->min_tokens;
    return 0;
}

/* --- all together ----------------------------------------------------------------------------- */

static int check_model(struct draft *draft)
{
    const char *model = NULL;
    size_t bytes = 0;
    int r = json_get_string(draft->body, "", "model", &model, &bytes, &draft->fault);

    if (r <= 0)
        return r;
    if (strcmp(model, draft->context->model_id) == 0)
        return 0;
    return draft_fault(draft, E_NOT_FOUND, "model", "The model `%.200s` does not exist", model);
}

/* Values are counted by the commas between them and the brackets around them. */
static int check_value_count(struct draft *draft, const char *body)
{
    uint64_t choices_max =
        draft->endpoint == OPENAI_EMBEDDINGS ? EMBEDDING_INPUTS_MAX : draft->context->choices_max;
    uint64_t limit = draft->context->context * choices_max;
    uint64_t count = 0;
    bool in_string = false;

    limit = BODY_VALUES_MIN + (limit < BODY_VALUES_MAX ? limit : BODY_VALUES_MAX);
    if (draft->body_bytes <= limit)
        return 0;
    for (size_t i = 0; i < draft->body_bytes; i++) {
        if (body[i] == '"')
            in_string = !in_string;
        else if (in_string && body[i] == '\\')
            i++;
        else if (!in_string && (body[i] == '{' || body[i] == '['))
            count += BODY_CONTAINER_VALUES;
        else if (!in_string)
            count += body[i] == ',';
    }
    if (count > limit)
        return fault_set(&draft->fault, E_INVALID,
                         "The body holds too many values: more than this model could read");
    return 0;
}

/* The scheduler takes what its sequences need from the same arena, so the ceiling has room for
 * every choice. */
static size_t arena_ceiling(const struct draft *draft)
{
    const struct openai_context *context = draft->context;
    size_t choices_max =
        draft->endpoint == OPENAI_EMBEDDINGS ? EMBEDDING_INPUTS_MAX : context->choices_max;

    return draft->body_bytes * ARENA_BYTES_PER_BODY_BYTE +
           choices_max *
               ((size_t)context->context * ARENA_BYTES_PER_TOKEN + ARENA_BYTES_PER_CHOICE);
}

static int open_request(struct draft *draft)
{
    size_t first =
        draft->body_bytes < ARENA_FIRST_BYTES_MAX ? draft->body_bytes : ARENA_FIRST_BYTES_MAX;

    if (arena_open(sizeof *draft->request + first, arena_ceiling(draft), &draft->arena) < 0)
        return draft_out_of_memory(draft);
    draft->request = arena_take(draft->arena, 1, sizeof *draft->request);
    if (!draft->request)
        return draft_out_of_memory(draft);
    draft->request->arena = draft->arena;
    return 0;
}

/* What an answer of text needs. 0, a fault's code or OPENAI_LATER. */
static int read_answer(struct draft *draft, struct reply_wish *wish)
{
    int r;

    if (draft->context->encoder)
        return draft_fault(draft, E_UNSUPPORTED, "",
                           "This model is an encoder, which generates no text: it answers "
                           "/v1/embeddings");
    r = draft_read_sampling(draft);
    if (r < 0)
        return r;
    r = draft_read_wish(draft, wish);
    if (r < 0)
        return r;
    r = draft->endpoint == OPENAI_CHAT ? draft_read_tools(draft) : 0;
    if (r < 0)
        return r;
    r = draft_read_form(draft);
    if (r < 0)
        return r;
    r = draft->endpoint == OPENAI_CHAT ? chat_read_prompt(draft)
                                       : draft_read_prompts(draft, "prompt");
    if (r < 0)
        return r;
    r = fit(draft);
    return r < 0 ? r : draft_constrain(draft);
}

static int read_body(struct draft *draft, struct reply **ret_reply)
{
    struct reply_wish wish = {0};
    int r;

    if (!json_is_object(draft->body))
        return fault_set(&draft->fault, E_INVALID, "The body must be a JSON object");
    r = check_model(draft);
    if (r < 0)
        return r;
    r = openai_fields_read(draft->endpoint, draft->context->generation, draft->body, &draft->fields,
                           &draft->fault);
    if (r < 0)
        return r;
    r = open_request(draft);
    if (r < 0)
        return r;
    r = draft->endpoint == OPENAI_EMBEDDINGS ? embeddings_read(draft) : read_answer(draft, &wish);
    if (r != 0)
        return r;
    return draft_make_reply(draft, &wish, ret_reply);
}

int openai_parse(enum openai_endpoint endpoint, const struct openai_context *context, bool patient,
                 const char *body, size_t bytes, struct request **ret_request,
                 struct reply **ret_reply, struct api_error *error)
{
    struct draft draft = {
        .context = context, .endpoint = endpoint, .body_bytes = bytes, .patient = patient};
    json_t *tree = NULL;
    int r;

    /* Room to say how much too long a prompt is, yet an end to the work on one that is hopeless. */
    tokens_init(&draft.tokens, (size_t)context->context * 4 + 4096);
    r = check_value_count(&draft, body);
    if (r == 0)
        r = json_parse(body, bytes, &tree, &draft.fault);
    draft.body = tree;
    if (r == 0)
        r = read_body(&draft, ret_reply);
    if (r == 0) {
        *ret_request = draft.request;
    } else {
        if (r != OPENAI_LATER)
            api_error_from_fault(error, &draft.fault);
        if (r == E_NOT_FOUND)
            error->kind = API_MODEL_NOT_FOUND;
        if (draft.request)
            request_free(draft.request);
        else
            arena_close(draft.arena);
    }
    json_decref(draft.form.owned);
    tokens_fini(&draft.tokens);
    json_decref(tree);
    return r;
}
