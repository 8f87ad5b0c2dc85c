/* openai_sampling.c -- how tokens are chosen and what is wanted of the answer: all of a body that
 * is no prompt. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "server/openai_request.h"
#include "server/reply.h"

enum { BIAS_MAX = 100 /* either sign */, FIELD_BYTES = 48 };
static const double temperature_min = 0.01; /* lower ones would overflow logit / temperature */

int draft_token_id(struct draft *draft, const char *list, size_t index, const json_t *value,
                   int32_t *ret_id)
{
    char field[FIELD_BYTES];
    int64_t id = -1;
    bool integral = json_integral(value, &id);

    if (integral && id >= 0 && id < (int64_t)draft->context->vocabulary) {
        *ret_id = (int32_t)id;
        return 0;
    }
    (void)snprintf(field, sizeof field, "%s[%zu]", list, index);
    if (!integral)
        return draft_fault(draft, E_INVALID, field, "'%s' must be a token id, which is an integer",
                           field);
    return draft_fault(draft, E_INVALID, field,
                       "'%s' is %" PRId64 ", but token ids go from 0 to %" PRIu32, field, id,
                       draft->context->vocabulary - 1);
}

static int read_stop_tokens(struct draft *draft)
{
    struct sampling *sampling = &draft->request->sampling;
    json_t *list = NULL;
    int32_t *ids;
    int r = json_get_array(draft->body, "", "stop_token_ids", &list, &draft->fault);

    if (r <= 0)
        return r;
    if (json_array_size(list) > STOP_TOKENS_MAX)
        return draft_fault(draft, E_INVALID, "stop_token_ids",
                           "'stop_token_ids' has %zu ids; at most %d are taken",
                           json_array_size(list), STOP_TOKENS_MAX);
    ids = arena_take(draft->arena, json_array_size(list), sizeof *ids);
    if (!ids)
        return draft_out_of_memory(draft);
    for (size_t i = 0; i < json_array_size(list); i++) {
        r = draft_token_id(draft, "stop_token_ids", i, json_array_get(list, i), &ids[i]);
        if (r < 0)
            return r;
    }
    sampling->stop_tokens = ids;
    sampling->stop_count = (uint32_t)json_array_size(list);
    return 0;
}

/* A key is a token id as JSON would write it: no sign, no leading zeros, so no id comes twice. */
static bool read_bias_key(const char *key, uint32_t vocabulary, int32_t *ret_id)
{
    uint64_t id = 0;
    size_t digits = strspn(key, "0123456789");

    if (digits == 0 || digits > 9 || key[digits] != '\0' || (key[0] == '0' && digits > 1))
        return false;
    for (size_t i = 0; i < digits; i++)
        id = id * 10 + (uint64_t)(key[i] - '0');
    if (id >= vocabulary)
        return false;
    *ret_id = (int32_t)id;
    return true;
}

static int read_logit_bias(struct draft *draft)
{
    struct sampling *sampling = &draft->request->sampling;
    struct logit_bias *biases;
    json_t *object = NULL, *value;
    const char *key;
    uint32_t n = 0;
    int r = json_get_object(draft->body, "", "logit_bias", &object, &draft->fault);

    if (r <= 0)
        return r;
    if (json_object_size(object) > LOGIT_BIAS_MAX)
        return draft_fault(draft, E_INVALID, "logit_bias",
                           "'logit_bias' has %zu tokens; at most %d are taken",
                           json_object_size(object), LOGIT_BIAS_MAX);
    biases = arena_take(draft->arena, json_object_size(object), sizeof *biases);
    if (!biases)
        return draft_out_of_memory(draft);
    json_object_foreach(object, key, value)
    {
        double bias = 0;

        if (!read_bias_key(key, draft->context->vocabulary, &biases[n].token))
            return draft_fault(
                draft, E_INVALID, "logit_bias",
                "The key '%.40s' of 'logit_bias' is not a token id from 0 to %" PRIu32, key,
                draft->context->vocabulary - 1);
        r = json_get_real(object, "logit_bias.", key, -BIAS_MAX, BIAS_MAX, &bias, &draft->fault);
        if (r < 0)
            return r;
        biases[n].bias = (float)bias;
        n += r > 0; /* null: none for this token */
    }
    sampling->biases = biases;
    sampling->bias_count = n;
    return 0;
}

int draft_read_sampling(struct draft *draft)
{
    const struct openai_fields *fields = &draft->fields;
    struct sampling *sampling = &draft->request->sampling;
    double temperature = fields->temperature;
    int r;

    if (temperature > 0 && temperature < temperature_min)
        temperature = temperature_min;
    sampling_init(sampling);
    sampling->temperature = (float)temperature;
    sampling->top_k = fields->top_k > 0 ? (uint32_t)fields->top_k : 0;
    sampling->top_p = (float)fields->top_p;
    sampling->min_p = (float)fields->min_p;
    sampling->typical_p = (float)fields->typical_p;
    sampling->repetition_penalty = (float)fields->repetition_penalty;
    sampling->frequency_penalty = (float)fields->frequency_penalty;
    sampling->presence_penalty = (float)fields->presence_penalty;
    sampling->ignore_eos = fields->ignore_eos;
    if (fields->seed != OPENAI_ABSENT)
        sampling->seed = (uint64_t)fields->seed;
    else if (getrandom(&sampling->seed, sizeof sampling->seed, 0) < 0)
        return fault_errno(&draft->fault, "cannot get random numbers");
    r = read_stop_tokens(draft);
    return r < 0 ? r : read_logit_bias(draft);
}

static int read_logprobs(struct draft *draft, struct reply_wish *wish)
{
    const struct openai_fields *fields = &draft->fields;
    struct sampling *sampling = &draft->request->sampling;

    if (draft->endpoint == OPENAI_CHAT) {
        wish->logprobs = fields->chat_logprobs;
        wish->top_logprobs = (uint32_t)fields->top_logprobs;
        if (wish->top_logprobs > 0 && !wish->logprobs)
            return draft_fault(draft, E_INVALID, "top_logprobs",
                               "'top_logprobs' needs 'logprobs' to be true");
    } else if (fields->logprobs != OPENAI_ABSENT) {
        wish->logprobs = true;
        wish->top_logprobs = (uint32_t)fields->logprobs;
    }
    if (wish->logprobs) {
        sampling->logprobs = (int32_t)wish->top_logprobs;
        sampling->prompt_logprobs = wish->echo ? (int32_t)wish->top_logprobs : LOGPROBS_NONE;
    }
    return 0;
}

static int read_stream_options(struct draft *draft, struct reply_wish *wish)
{
    json_t *options = NULL;
    int r = json_get_object(draft->body, "", "stream_options", &options, &draft->fault);

    if (r <= 0)
        return r;
    if (!wish->stream)
        return draft_fault(draft, E_INVALID, "stream_options",
                           "'stream_options' needs 'stream' to be true");
    r = json_get_bool(options, "stream_options.", "include_usage", &wish->include_usage,
                      &draft->fault);
    if (r < 0)
        return r;
    r = json_get_bool(options, "stream_options.", "continuous_usage_stats", &wish->continuous_usage,
                      &draft->fault);
    wish->continuous_usage = wish->continuous_usage && wish->include_usage;
    return r < 0 ? r : 0;
}

int draft_read_wish(struct draft *draft, struct reply_wish *ret_wish)
{
    const struct openai_fields *fields = &draft->fields;
    struct reply_wish wish = {
        .stream = fields->stream,
        .echo = fields->echo,
        .return_token_ids = fields->return_token_ids || fields->return_tokens,
        .tokens_as_ids = fields->tokens_as_ids,
        .skip_special = fields->skip_special,
        .include_stop = fields->include_stop,
        .ignore_eos = fields->ignore_eos,
        .include_reasoning = fields->include_reasoning,
        .parallel_calls = fields->parallel_tool_calls,
    };
    int r = read_stream_options(draft, &wish);

    if (r < 0)
        return r;
    r = read_logprobs(draft, &wish);
    if (r < 0)
        return r;
    *ret_wish = wish;
    return 0;
}
