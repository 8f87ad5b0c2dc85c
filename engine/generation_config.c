/* generation_config.c -- see generation_config.h. */
#include "engine/generation_config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "config/base/buf.h"
#include "config/base/json.h"
#include "engine/file_read.h"

enum { PATH_BYTES = 4608, FILE_BYTES_MAX = 16 << 20 };

static const struct real_key {
    const char *key;
    size_t offset;
    double low;
    double high;
} real_keys[] = {
    {"temperature", offsetof(struct generation_config, temperature), 0, 2},
    {"top_p", offsetof(struct generation_config, top_p), 0, 1},
    {"min_p", offsetof(struct generation_config, min_p), 0, 1},
    {"typical_p", offsetof(struct generation_config, typical_p), 0, 1},
    {"repetition_penalty", offsetof(struct generation_config, repetition_penalty), 0.01, 100},
};

void generation_config_init(struct generation_config *config)
{
    *config = (struct generation_config){.temperature = NAN,
                                         .top_p = NAN,
                                         .min_p = NAN,
                                         .typical_p = NAN,
                                         .repetition_penalty = NAN,
                                         .top_k = -1,
                                         .max_new_tokens = -1};
}

static int add_end_token(const json_t *value, struct generation_config *config, struct fault *fault)
{
    int64_t token;

    if (!json_integral(value, &token) || token < 0)
        return fault_field(fault, E_INVALID, "eos_token_id",
                           "'eos_token_id' must be a token id or a list of them");
    if (token <= INT32_MAX && config->end_count < GENERATION_END_TOKENS_MAX)
        config->end_tokens[config->end_count++] = (int32_t)token;
    return 0;
}

static int read_end_tokens(const json_t *root, struct generation_config *config,
                           struct fault *fault)
{
    const json_t *value = json_object_get(root, "eos_token_id");
    int r = 0;

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_array(value))
        return add_end_token(value, config, fault);
    for (size_t i = 0; i < json_array_size(value) && r == 0; i++)
        r = add_end_token(json_array_get(value, i), config, fault);
    return r;
}

static int read_root(const json_t *root, struct generation_config *config, struct fault *fault)
{
    int r;

    if (!json_is_object(root))
        return fault_set(fault, E_INVALID, "It is no JSON object");
    for (size_t i = 0; i < sizeof real_keys / sizeof *real_keys; i++) {
        const struct real_key *line = &real_keys[i];
        double *value = (double *)(void *)((char *)config + line->offset);

        r = json_get_real(root, "", line->key, line->low, line->high, value, fault);
        if (r < 0)
            return r;
    }
    r = json_get_int(root, "", "top_k", 0, INT32_MAX, &config->top_k, fault);
    if (r < 0)
        return r;
    r = json_get_int(root, "", "max_new_tokens", 1, INT64_MAX, &config->max_new_tokens, fault);
    return r < 0 ? r : read_end_tokens(root, config, fault);
}

int generation_config_read(const char *text, size_t bytes, struct generation_config *ret_config,
                           struct fault *fault)
{
    struct generation_config config;
    json_t *root = NULL;
    int r = json_parse(text, bytes, &root, fault);

    if (r < 0)
        return r;
    generation_config_init(&config);
    r = read_root(root, &config, fault);
    json_decref(root);
    if (r == 0)
        *ret_config = config;
    return r;
}

int generation_config_open(const char *folder, struct generation_config *ret_config,
                           struct fault *fault)
{
    char path[PATH_BYTES];
    struct buf text;
    int bytes = snprintf(path, sizeof path, "%s/generation_config.json", folder), r;

    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return fault_set(fault, E_TOO_LARGE, "the path of generation_config.json is too long");
    generation_config_init(ret_config);
    if (access(path, F_OK) < 0)
        return 0;
    buf_init(&text, FILE_BYTES_MAX);
    r = file_read(path, &text, fault);
    if (r == 0) {
        r = generation_config_read(buf_string(&text), text.bytes, ret_config, fault);
        if (r < 0)
            fault_prefix(fault, "%s", path);
    }
    buf_fini(&text);
    return r;
}
