/* tokenizer_gguf.c -- a tokenizer out of a GGUF file's metadata: tokenizer.ggml.*. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_internal.h"

/* ---- special tokens ---- */

/* An id from the file: 0 when the key is absent (*ret_id stays). */
static int read_id(const struct tokenizer *tokenizer, const struct gguf *file, const char *key,
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
        int r = read_id(tokenizer, file, keys[i], &id, fault);

        if (r < 0)
            return r;
        tokenizer_add_end(tokenizer, id);
    }
    tokenizer_add_known_ends(tokenizer);
    return 0;
}

/* What goes before and after a text, unless the file says otherwise. */
struct affixes {
    bool bos;
    bool eos;
    bool sep;
};

static int read_special_ids(struct tokenizer *tokenizer, const struct gguf *file,
                            struct affixes adds, struct fault *fault)
{
    int32_t sep = -1;
    int r;

    r = read_id(tokenizer, file, "tokenizer.ggml.bos_token_id", &tokenizer->bos, fault);
    if (r == 0)
        r = read_id(tokenizer, file, "tokenizer.ggml.eos_token_id", &tokenizer->eos, fault);
    if (r == 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &adds.bos, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_eos_token", &adds.eos, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_sep_token", &adds.sep, fault);
    if (r >= 0)
        r = read_id(tokenizer, file, "tokenizer.ggml.seperator_token_id", &sep, fault);
    if (r < 0)
        return r;
    if (adds.bos && tokenizer->bos >= 0)
        tokenizer->before.ids[tokenizer->before.count++] = tokenizer->bos;
    if (adds.eos && tokenizer->eos >= 0)
        tokenizer->after.ids[tokenizer->after.count++] = tokenizer->eos;
    if (adds.sep && sep >= 0)
        tokenizer->after.ids[tokenizer->after.count++] = sep;
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

/* ---- byte-level BPE: the model "gpt2" ---- */

static int find_merges(const struct gguf *file, struct gguf_array *ret_merges, size_t *ret_longest,
                       struct fault *fault)
{
    size_t longest = 1;
    int r = gguf_get_array(file, "tokenizer.ggml.merges", ret_merges, fault);

    if (r < 0)
        return r;
    if (r == 0 || ret_merges->type != GGUF_STRING)
        return fault_set(fault, E_CORRUPT, "%s: tokenizer.ggml.merges is not a list of strings",
                         gguf_path(file));
    for (uint64_t i = 0; i < ret_merges->count; i++)
        if (gguf_array_string(ret_merges, i).bytes > longest)
            longest = gguf_array_string(ret_merges, i).bytes;
    *ret_longest = longest;
    return 0;
}

/* "Ä t he" joins the tokens of " t" and "he". `room` has space for the whole line. */
static int read_merge(struct bpe *bpe, struct gguf_string line, enum piece_coding coding,
                      uint32_t rank, char *room)
{
    const char *space = line.bytes > 1 ? memchr(line.text + 1, ' ', line.bytes - 1) : NULL;
    size_t left, left_bytes, right_bytes;

    if (!space)
        return 0;
    left = (size_t)(space - line.text);
    left_bytes = piece_decode(coding, line.text, left, room, NULL);
    right_bytes = piece_decode(coding, space + 1, line.bytes - left - 1, room + left_bytes, NULL);
    return bpe_add_merge(bpe, room, left_bytes, room + left_bytes, right_bytes, rank);
}

static int read_merges(struct bpe *bpe, const struct gguf *file, const struct gguf_array *merges,
                       enum piece_coding coding, size_t longest, struct fault *fault)
{
    char *room = malloc(longest);
    int r = 0;

    if (!room)
        return fault_set(fault, E_MEMORY, "out of memory for the merges of %s", gguf_path(file));
    for (uint64_t i = 0; i < merges->count && r == 0; i++) {
        struct gguf_string line = gguf_array_string(merges, i);
        char printable[64];

        r = read_merge(bpe, line, coding, (uint32_t)i, room);
        if (r > 0) {
            r = 0;
            continue;
        }
        if (r < 0) {
            r = fault_set(fault, E_MEMORY, "out of memory for the merges of %s", gguf_path(file));
            break;
        }
        gguf_string_print(line, printable, sizeof printable);
        r = fault_set(fault, E_CORRUPT,
                      "%s: merge %" PRIu64 " ('%s') does not join two tokens to a third",
                      gguf_path(file), i, printable);
    }
    free(room);
    return r;
}

/* The name in the file; models of that kind that name none have llama.cpp's default. */
static int read_traits(const struct gguf *file, struct gguf_string *ret_name,
                       struct pretokenizer_traits *ret_traits, struct fault *fault)
{
    struct gguf_string model = {"", 0};
    int r;

    *ret_name = (struct gguf_string){"default", 7};
    r = gguf_get_string(file, "tokenizer.ggml.model", &model, fault);
    if (r >= 0)
        r = gguf_get_string(file, "tokenizer.ggml.pre", ret_name, fault);
    if (model.bytes == strlen("gemma4") && memcmp(model.text, "gemma4", model.bytes) == 0)
        *ret_name = (struct gguf_string){"gemma4", 6};
    return r < 0 ? r : pretokenizer_traits_gguf(*ret_name, ret_traits, fault);
}

static int open_normalizer(struct tokenizer *tokenizer, const struct pretokenizer_traits *traits,
                           struct fault *fault)
{
    static const char space[] = "\xe2\x96\x81";
    int r = 0;

    if (traits->nfc || traits->escapes_spaces)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0 && traits->nfc)
        r = normalizer_add_form(tokenizer->normalizer, FORM_C, fault);
    if (r == 0 && traits->escapes_spaces)
        r = normalizer_add_replace(tokenizer->normalizer, " ", 1, true, space, strlen(space),
                                   fault);
    return r;
}

static int open_bpe(struct tokenizer *tokenizer, const struct gguf *file, struct affixes *adds,
                    struct fault *fault)
{
    struct bpe_options options = {.unknown = -1, .prefix = "", .suffix = ""};
    struct pretokenizer_traits traits = {0};
    struct gguf_array merges = {0};
    struct gguf_string name;
    struct bpe *bpe = NULL;
    size_t longest = 1;
    int r = read_traits(file, &name, &traits, fault);

    if (r == 0)
        r = pretokenizer_open_gguf(name, &tokenizer->pretokenizer, fault);
    if (r == 0)
        r = open_normalizer(tokenizer, &traits, fault);
    if (r == 0)
        r = find_merges(file, &merges, &longest, fault);
    options.byte_level = !traits.raw;
    options.byte_fallback = traits.raw;
    options.whole_pieces = traits.whole_pieces;
    options.whole_newlines = traits.whole_newlines;
    if (r == 0)
        r = bpe_open(&tokenizer->vocabulary, &options, merges.count, &bpe, fault);
    if (r < 0)
        return r;
    tokenizer_use_bpe(tokenizer, bpe);
    adds->bos = traits.adds_bos;
    adds->sep = traits.adds_sep;
    return read_merges(bpe, file, &merges, traits.raw ? PIECES_PLAIN : PIECES_BYTE_LEVEL, longest,
                       fault);
}

static int coding_of_bpe(const struct gguf *file, enum piece_coding *ret_coding,
                         struct fault *fault)
{
    struct pretokenizer_traits traits = {0};
    struct gguf_string name;
    int r = read_traits(file, &name, &traits, fault);

    *ret_coding = traits.raw ? PIECES_SPACED : PIECES_BYTE_LEVEL;
    return r;
}

/* ---- sentencepiece's BPE: the model "llama" ---- */

static int open_spaces(struct tokenizer *tokenizer, const struct gguf *file, struct fault *fault)
{
    static const char space[] = "\xe2\x96\x81";
    bool prefix = true;
    int r = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &prefix, fault);

    if (r >= 0)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0 && prefix)
        r = normalizer_add_prepend(tokenizer->normalizer, space, strlen(space), fault);
    return r < 0 ? r
                 : normalizer_add_replace(tokenizer->normalizer, " ", 1, true, space, strlen(space),
                                          fault);
}

static int read_scores(const struct gguf *file, const struct vocabulary *vocabulary,
                       struct gguf_array *ret_scores, struct fault *fault)
{
    int r = gguf_get_array(file, "tokenizer.ggml.scores", ret_scores, fault);

    if (r < 0)
        return r;
    if (r == 0 || ret_scores->type != GGUF_F32 || ret_scores->count != vocabulary->count)
        return fault_set(fault, E_CORRUPT,
                         "%s: tokenizer.ggml.scores does not match tokenizer.ggml.tokens",
                         gguf_path(file));
    return 0;
}

static int open_spm(struct tokenizer *tokenizer, const struct gguf *file, struct affixes *adds,
                    struct fault *fault)
{
    struct spm_options options = {.byte_fallback = true};
    struct gguf_array scores = {0};
    struct spm *spm = NULL;
    int r = read_scores(file, &tokenizer->vocabulary, &scores, fault);

    if (r == 0)
        r = read_id(tokenizer, file, "tokenizer.ggml.unknown_token_id", &options.unknown, fault);
    if (r == 0)
        r = open_spaces(tokenizer, file, fault);
    if (r == 0)
        r = spm_open(&tokenizer->vocabulary, &options, &spm, fault);
    if (r < 0)
        return r;
    for (uint32_t id = 0; id < tokenizer->vocabulary.count; id++)
        spm_set_score(spm, (int32_t)id, (float)gguf_array_real(&scores, id));
    tokenizer_use_spm(tokenizer, spm);
    adds->bos = true;
    if (tokenizer->vocabulary.count > 2) { /* sentencepiece's own numbers */
        tokenizer->bos = 1;
        tokenizer->eos = 2;
    }
    return 0;
}

static int coding_of_spaced(const struct gguf *file, enum piece_coding *ret_coding,
                            struct fault *fault)
{
    (void)file;
    (void)fault;
    *ret_coding = PIECES_SPACED;
    return 0;
}

/* ---- opening ---- */

struct model_row {
    const char *name; /* tokenizer.ggml.model */
    int (*coding)(const struct gguf *file, enum piece_coding *ret_coding, struct fault *fault);
    int (*open)(struct tokenizer *tokenizer, const struct gguf *file, struct affixes *adds,
                struct fault *fault);
};
static const struct model_row model_rows[] = {
    {"gpt2", coding_of_bpe, open_bpe},
    {"gemma4", coding_of_bpe, open_bpe},
    {"llama", coding_of_spaced, open_spm},
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
    return fault_set(fault, E_UNSUPPORTED,
                     "tokenizer model '%s' is not supported by this version (it knows gpt2, llama)",
                     printable);
}

int tokenizer_open_gguf(const struct gguf *file, struct tokenizer **ret_tokenizer,
                        struct fault *fault)
{
    const struct model_row *row = NULL;
    struct tokenizer *tokenizer = NULL;
    enum piece_coding coding = PIECES_PLAIN;
    struct affixes adds = {0};
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
