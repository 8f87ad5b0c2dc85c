/* pooling.c -- see pooling.h. */
#include "engine/pooling.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/buf.h"
#include "config/base/json.h"
#include "engine/batch.h"
#include "engine/checkpoint.h"
#include "engine/file_read.h"
#include "engine/gguf.h"

enum { PATH_BYTES = 4608, FILE_BYTES_MAX = 1 << 20, KEY_BYTES = 128 };

bool pooling_wants(const struct batch_opening *opening, uint32_t position)
{
    switch (opening->pooling) {
    case POOLING_LAST:
        return position == opening->token_count - 1;
    case POOLING_MEAN:
        return true;
    case POOLING_CLS:
        return position == 0;
    }
    return false;
}

void pooling_take(const struct batch_opening *opening, uint32_t position, const float *state,
                  uint32_t width)
{
    float *vector = opening->vector;

    if (!pooling_wants(opening, position))
        return;
    if (opening->pooling != POOLING_MEAN || position == 0) {
        memcpy(vector, state, width * sizeof *vector);
    } else {
        for (uint32_t i = 0; i < width; i++)
            vector[i] += state[i];
    }
    if (opening->pooling == POOLING_MEAN && position == opening->token_count - 1) {
        for (uint32_t i = 0; i < width; i++)
            vector[i] /= (float)opening->token_count;
    }
}

/* --- what the makers say ------------------------------------------------------------------- */

/* A mode for each key; -1: none of ours. (The keys of Sentence Transformers' Pooling.) */
static const struct mode_key {
    const char *key;
    int mode;
} mode_keys[] = {
    {"pooling_mode_cls_token", POOLING_CLS},   {"pooling_mode_mean_tokens", POOLING_MEAN},
    {"pooling_mode_lasttoken", POOLING_LAST},  {"pooling_mode_max_tokens", -1},
    {"pooling_mode_mean_sqrt_len_tokens", -1}, {"pooling_mode_weightedmean_tokens", -1},
};

static int read_root(const json_t *root, enum pooling *ret_pooling, struct fault *fault)
{
    uint32_t count = 0;
    int r;

    if (!json_is_object(root))
        return fault_set(fault, E_INVALID, "It is no JSON object");
    for (size_t i = 0; i < sizeof mode_keys / sizeof *mode_keys; i++) {
        bool on = false;

        r = json_get_bool(root, "", mode_keys[i].key, &on, fault);
        if (r < 0)
            return r;
        if (on && mode_keys[i].mode < 0)
            return fault_set(fault, E_UNSUPPORTED, "the model pools by '%s', which is not served",
                             mode_keys[i].key);
        if (on && count++ == 0)
            *ret_pooling = (enum pooling)mode_keys[i].mode;
    }
    if (count > 1)
        return fault_set(fault, E_UNSUPPORTED,
                         "the model pools in %" PRIu32 " ways at once, which is not served", count);
    return 0;
}

int pooling_read_config(const char *text, size_t bytes, enum pooling *ret_pooling,
                        struct fault *fault)
{
    enum pooling pooling = POOLING_LAST;
    json_t *root = NULL;
    int r = json_parse(text, bytes, &root, fault);

    if (r < 0)
        return r;
    r = read_root(root, &pooling, fault);
    json_decref(root);
    if (r == 0)
        *ret_pooling = pooling;
    return r;
}

static int read_folder(const char *folder, enum pooling *ret_pooling, struct fault *fault)
{
    char path[PATH_BYTES];
    struct buf text;
    int bytes = snprintf(path, sizeof path, "%s/1_Pooling/config.json", folder), r;

    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return fault_set(fault, E_TOO_LARGE, "the path of 1_Pooling/config.json is too long");
    if (access(path, F_OK) < 0)
        return 0;
    buf_init(&text, FILE_BYTES_MAX);
    r = file_read(path, &text, fault);
    if (r == 0) {
        r = pooling_read_config(buf_string(&text), text.bytes, ret_pooling, fault);
        if (r < 0)
            fault_prefix(fault, "%s", path);
    }
    buf_fini(&text);
    return r;
}

/* llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank. */
static int read_gguf(const struct gguf *gguf, enum pooling *ret_pooling, struct fault *fault)
{
    static const enum pooling modes[] = {POOLING_LAST, POOLING_MEAN, POOLING_CLS, POOLING_LAST};
    struct gguf_string architecture;
    char name[64], key[KEY_BYTES];
    uint64_t type = 0;
    int r = gguf_get_string(gguf, "general.architecture", &architecture, fault);

    if (r <= 0)
        return r;
    gguf_string_print(architecture, name, sizeof name);
    (void)snprintf(key, sizeof key, "%s.pooling_type", name);
    r = gguf_get_u64(gguf, key, &type, fault);
    if (r <= 0)
        return r;
    if (type >= sizeof modes / sizeof *modes)
        return fault_set(fault, E_UNSUPPORTED,
                         "the model pools by %s %" PRIu64 ", which is not served", key, type);
    *ret_pooling = modes[type];
    return 0;
}

int pooling_read(const struct checkpoint *checkpoint, enum pooling *ret_pooling,
                 struct fault *fault)
{
    const struct gguf *gguf = checkpoint_gguf(checkpoint);

    if (gguf)
        return read_gguf(gguf, ret_pooling, fault);
    return read_folder(checkpoint_path(checkpoint), ret_pooling, fault);
}
