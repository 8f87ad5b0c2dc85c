/* tokenizer_gguf.c -- a tokenizer out of a GGUF file's metadata: tokenizer.ggml.*. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_gguf.h"

/* ---- special tokens ---- */

int tokenizer_gguf_id(const struct tokenizer *tokenizer, const struct gguf *file, const char *key,
                      int32_t *ret_id, struct fault *fault)
{
    uint64_t id;
    int r = gguf_get_u64(file, key, &id, fault);

    if (r <= 0)
        return r;
    if (id >= tokenizer->vocabulary.count)
        return fault_set(fault, E_CORRUPT, "%s: %s is not a token of the vocabulary",
                         gguf_path(file), key);
    *ret_id = (int32_t)id;
    return 0;
}

static int read_ends(struct tokenizer *tokenizer, const struct gguf *file, struct fault *fault)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};

    tokenizer_add_end(tokenizer, tokenizer->eos);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t id = -1;
        int r = tokenizer_gguf_id(tokenizer, file, keys[i], &id, fault);

        if (r < 0)
            return r;
        tokenizer_add_end(tokenizer, id);
    }
    tokenizer_add_known_ends(tokenizer);
    return 0;
}

static int read_special_ids(struct tokenizer *tokenizer, const struct gguf *file,
                            struct gguf_affixes adds, struct fault *fault)
{
    int r;

    r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.bos_token_id", &tokenizer->bos, fault);
    if (r == 0)
        r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.eos_token_id", &tokenizer->eos,
                              fault);
    if (r == 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &adds.bos, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_eos_token", &adds.eos, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_sep_token", &adds.sep, fault);
    if (r >= 0)
        r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.seperator_token_id", &adds.sep_id,
                              fault);
    if (r < 0)
        return r;
    if (adds.bos && tokenizer->bos >= 0)
        tokenizer->before.ids[tokenizer->before.count++] = tokenizer->bos;
    if (adds.eos && tokenizer->eos >= 0)
        tokenizer->after.ids[tokenizer->after.count++] = tokenizer->eos;
    if (adds.sep && adds.sep_id >= 0)
        tokenizer->after.ids[tokenizer->after.count++] = adds.sep_id;
    return read_ends(tokenizer, file, fault);
}

static bool is_special(const struct vocabulary *vocabulary, uint32_t id)
{
    enum token_type type = vocabulary->types[id];

    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
}

static int make_specials(struct tokenizer *tokenizer, struct fault *fault)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    struct special *list;
    uint32_t count = 0;
    int r;

    for (uint32_t id = 0; id < vocabulary->count; id++)
        count += is_special(vocabulary, id);
    list = calloc((size_t)count + 1, sizeof *list);
    if (!list)
        return fault_set(fault, E_MEMORY, "out of memory for the special tokens");
    count = 0;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        struct special special = {.id = (int32_t)id,
                                  .control = vocabulary->types[id] != TOKEN_USER_DEFINED};

        if (!is_special(vocabulary, id))
            continue;
        special.text = vocabulary_piece(vocabulary, (int32_t)id, &special.bytes);
        list[count++] = special;
    }
    r = specials_init(&tokenizer->specials, list, count, fault);
    free(list);
    return r;
}

/* ---- opening ---- */

static int spaced_coding(const struct gguf *file, enum piece_coding *ret_coding,
                         struct fault *fault)
{
    (void)file;
    (void)fault;
    *ret_coding = PIECES_SPACED;
    return 0;
}

struct model_row {
    const char *name; /* tokenizer.ggml.model */
    int (*coding)(const struct gguf *file, enum piece_coding *ret_coding, struct fault *fault);
    int (*open)(struct tokenizer *tokenizer, const struct gguf *file, struct gguf_affixes *adds,
                struct fault *fault);
};
static const struct model_row model_rows[] = {
    {"gpt2", tokenizer_gguf_bpe_coding, tokenizer_gguf_bpe},
    {"gemma4", tokenizer_gguf_bpe_coding, tokenizer_gguf_bpe},
    {"llama", spaced_coding, tokenizer_gguf_spm},
    {"t5", spaced_coding, tokenizer_gguf_unigram},
    {"bert", spaced_coding, tokenizer_gguf_bert},
};
enum { MODEL_ROW_COUNT = sizeof model_rows / sizeof *model_rows };

static int find_model(const struct gguf *file, const struct model_row **ret_row,
                      struct fault *fault)
{
    struct gguf_string model = {"", 0};
    char printable[64];
    int r = gguf_get_string(file, "tokenizer.ggml.model", &model, fault);

    if (r < 0)
        return r;
    if (r == 0)
        return fault_set(fault, E_UNSUPPORTED, "%s holds no tokenizer", gguf_path(file));
    for (size_t i = 0; i < MODEL_ROW_COUNT; i++) {
        if (strlen(model_rows[i].name) == model.bytes &&
            memcmp(model_rows[i].name, model.text, model.bytes) == 0) {
            *ret_row = &model_rows[i];
            return 0;
        }
    }
    gguf_string_print(model, printable, sizeof printable);
    return fault_set(
        fault, E_UNSUPPORTED,
        "tokenizer model '%s' is not supported by this version (it knows gpt2, llama, t5, bert)",
        printable);
}

int tokenizer_open_gguf(const struct gguf *file, struct tokenizer **ret_tokenizer,
                        struct fault *fault)
{
    const struct model_row *row = NULL;
    struct tokenizer *tokenizer = NULL;
    enum piece_coding coding = PIECES_PLAIN;
    struct gguf_affixes adds = {.sep_id = -1};
    int r;

    r = find_model(file, &row, fault);
    if (r == 0)
        r = row->coding(file, &coding, fault);
    if (r == 0)
        r = tokenizer_open_empty(&tokenizer, fault);
    if (r < 0)
        return r;
    r = vocabulary_init_gguf(&tokenizer->vocabulary, file, coding, fault);
    if (r == 0)
        r = make_specials(tokenizer, fault);
    if (r == 0)
        r = row->open(tokenizer, file, &adds, fault);
    if (r == 0)
        r = read_special_ids(tokenizer, file, adds, fault);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}
