/* quantize_tokenizer.c -- see quantize_tokenizer.h. */
#include "engine/quantize_tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/file_read.h"

enum {
    PATH_BYTES = 4608,
    FILE_BYTES_MAX = 256 << 20,
    TOKENS_MAX = MODEL_VOCABULARY_MAX,
    SPLITS_BYTES = 2048,
    UNUSED_NAME_BYTES = 24,
};

/* tokenizer.ggml.token_type */
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5 };

#define WORDS(digits)                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* How a tokenizer.json splits, one step a line, and what GGUF calls it. */
static const struct {
    const char *steps;
    const char *name;
    bool whole; /* ignore_merges */
} splits[] = {
    {"gpt2\n", "gpt-2", false},
    {"digits\ngpt2\n", "smollm", false},
    {WORDS("\\p{N}{1,3}") "\n", "llama-bpe", true},
    {WORDS("\\p{N}") "\n", "qwen2", false},
};

struct tokens {
    struct gguf_string *texts;
    int32_t *types;
    char (*unused)[UNUSED_NAME_BYTES]; /* names of ids that no token has */
    uint32_t count;
};

/* 1 with the tree, 0 where there is no such file. Numbers may be beyond 64 bits, as Transformers'
 * "no limit" is: then they are read as reals. */
static int read_json(const char *folder, const char *name, json_t **ret_tree, struct fault *fault)
{
    char path[PATH_BYTES];
    json_error_t error;
    struct buf text;
    int r;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return fault_set(fault, E_TOO_LARGE, "the path of %s is too long", name);
    buf_init(&text, FILE_BYTES_MAX);
    r = file_read(path, &text, fault);
    if (r == 0)
        *ret_tree = json_loadb(buf_string(&text), text.bytes, JSON_DECODE_INT_AS_REAL, &error);
    buf_fini(&text);
    if (r == 0 && !*ret_tree)
        return fault_set(fault, E_CORRUPT, "%s, line %d: %.200s", path, error.line, error.text);
    if (r == -ENOENT)
        return 0;
    return r < 0 ? r : 1;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* --- how it splits ------------------------------------------------------------------------- */

/* Appends one step of a pre-tokenizer; false: it is none that is known. */
static bool add_step(const json_t *step, struct buf *steps)
{
    const char *type = text_of(step, "type");
    const char *pattern = text_of(json_object_get(step, "pattern"), "Regex");

    if (strcmp(type, "ByteLevel") == 0) {
        if (json_is_true(json_object_get(step, "use_regex")))
            buf_text(steps, "gpt2\n");
        return !json_is_true(json_object_get(step, "add_prefix_space"));
    }
    if (strcmp(type, "Digits") == 0) {
        buf_text(steps, "digits\n");
        return json_is_true(json_object_get(step, "individual_digits"));
    }
    if (strcmp(type, "Split") != 0 || !*pattern)
        return false;
    buf_text(steps, pattern);
    buf_byte(steps, '\n');
    return strcmp(text_of(step, "behavior"), "Isolated") == 0 &&
           !json_is_true(json_object_get(step, "invert"));
}

/* GGUF's name for how the file splits, or NULL. */
static const char *name_of_splits(const json_t *root)
{
    const json_t *outer = json_object_get(root, "pre_tokenizer"), *step;
    const json_t *list = json_object_get(outer, "pretokenizers");
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *model = json_object_get(root, "model");
    bool whole = json_is_true(json_object_get(model, "ignore_merges"));
    bool nfc = strcmp(text_of(normalizer, "type"), "NFC") == 0, known = true;
    char room[SPLITS_BYTES];
    struct buf steps;
    size_t i;

    buf_init_fixed(&steps, room, sizeof room);
    if (!json_is_array(list))
        known = add_step(outer, &steps);
    json_array_foreach(list, i, step) known = known && add_step(step, &steps);
    if (!known || buf_failed(&steps) || (json_is_object(normalizer) && !nfc))
        return NULL;
    for (i = 0; i < sizeof splits / sizeof *splits; i++) {
        if (strcmp(buf_string(&steps), splits[i].steps) == 0 && whole == splits[i].whole &&
            nfc == (strcmp(splits[i].name, "qwen2") == 0))
            return splits[i].name;
    }
    return NULL;
}

static bool is_byte_level_bpe(const json_t *root)
{
    const json_t *model = json_object_get(root, "model");

    return strcmp(text_of(model, "type"), "BPE") == 0 &&
           !json_is_true(json_object_get(model, "byte_fallback")) &&
           strcmp(text_of(json_object_get(root, "decoder"), "type"), "ByteLevel") == 0;
}

/* --- the vocabulary ------------------------------------------------------------------------ */

static bool put_token(struct tokens *tokens, const json_t *id, const char *text, int32_t type)
{
    int64_t at;

    if (!json_integral(id, &at) || at < 0 || at >= tokens->count)
        return false;
    tokens->texts[at] = (struct gguf_string){text, strlen(text)};
    tokens->types[at] = type;
    return true;
}

static int fill_tokens(const json_t *root, struct tokens *tokens, struct fault *fault)
{
    const json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab"), *entry;
    const json_t *added = json_object_get(root, "added_tokens");
    bool fits = true;
    const char *name;
    size_t i;

    json_object_foreach((json_t *)vocabulary, name, entry) fits =
        put_token(tokens, entry, name, TOKEN_NORMAL) && fits;
    json_array_foreach(added, i, entry) fits =
        put_token(tokens, json_object_get(entry, "id"), text_of(entry, "content"),
                  json_is_true(json_object_get(entry, "special")) ? TOKEN_CONTROL : TOKEN_USER) &&
        fits;
    if (!fits)
        return fault_set(fault, E_CORRUPT,
                         "tokenizer.json has a token whose id is not below the vocabulary's %u",
                         tokens->count);
    for (uint32_t id = 0; id < tokens->count; id++) {
        if (tokens->texts[id].text)
            continue;
        snprintf(tokens->unused[id], UNUSED_NAME_BYTES, "[PAD%u]", id);
        tokens->texts[id] = (struct gguf_string){tokens->unused[id], strlen(tokens->unused[id])};
        tokens->types[id] = TOKEN_UNUSED;
    }
    return 0;
}

/* The embedding's rows: ids beyond the tokenizer's have names of their own. */
static int put_vocabulary(const json_t *root, uint32_t count, struct gguf_writer *writer,
                          struct fault *fault)
{
    struct tokens tokens = {.count = count};
    int r;

    tokens.texts = calloc((size_t)count + 1, sizeof *tokens.texts);
    tokens.types = calloc((size_t)count + 1, sizeof *tokens.types);
    tokens.unused = calloc((size_t)count + 1, sizeof *tokens.unused);
    if (tokens.texts && tokens.types && tokens.unused)
        r = fill_tokens(root, &tokens, fault);
    else
        r = fault_set(fault, E_MEMORY, "out of memory for %u tokens", count);
    if (r == 0) {
        gguf_put_array(writer, "tokenizer.ggml.tokens", GGUF_STRING, tokens.texts, count);
        gguf_put_array(writer, "tokenizer.ggml.token_type", GGUF_I32, tokens.types, count);
    }
    free(tokens.texts);
    free(tokens.types);
    free(tokens.unused);
    return r;
}

/* "a b", or ["a", "b"] as newer files have it. */
static int put_merges(const json_t *root, struct gguf_writer *writer, struct fault *fault)
{
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges"), *merge;
    size_t count = json_array_size(merges), i;
    struct gguf_string *texts = calloc(count + 1, sizeof *texts);
    struct buf pairs;
    size_t at = 0;

    if (!texts)
        return fault_set(fault, E_MEMORY, "out of memory for %zu merges", count);
    buf_init(&pairs, FILE_BYTES_MAX);
    json_array_foreach(merges, i, merge)
    {
        const char *left = json_string_value(json_array_get(merge, 0));
        const char *right = json_string_value(json_array_get(merge, 1));

        if (left && right)
            buf_format(&pairs, "%s %s", left, right);
        else if (json_is_string(merge))
            buf_text(&pairs, json_string_value(merge));
        texts[i].bytes = pairs.bytes;
    }
    for (i = 0; i < count && !buf_failed(&pairs); i++) { /* they do not move any more */
        size_t end = texts[i].bytes;

        texts[i] = (struct gguf_string){buf_string(&pairs) + at, end - at};
        at = end;
    }
    if (!buf_failed(&pairs))
        gguf_put_array(writer, "tokenizer.ggml.merges", GGUF_STRING, texts, count);
    i = buf_failed(&pairs);
    buf_fini(&pairs);
    free(texts);
    return i ? fault_set(fault, E_MEMORY, "out of memory for %zu merges", count) : 0;
}

/* --- special tokens ------------------------------------------------------------------------ */

/* The id of a token of tokenizer_config.json, which is a text or has one; -1: none. */
static int64_t id_of(const json_t *root, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key), *entry;
    const char *text = json_is_object(value) ? text_of(value, "content") : json_string_value(value);
    int64_t id = -1;
    size_t i;

    if (!text)
        return -1;
    json_array_foreach(json_object_get(root, "added_tokens"), i,
                       entry) if (strcmp(text_of(entry, "content"), text) == 0)(void)
        json_integral(json_object_get(entry, "id"), &id);
    if (id < 0)
        (void)json_integral(
            json_object_get(json_object_get(json_object_get(root, "model"), "vocab"), text), &id);
    return id;
}

/* Does a post-processor put a special token before a text? */
static bool adds_first(const json_t *processor)
{
    const json_t *list = json_object_get(processor, "processors"), *inner;
    const json_t *single = json_object_get(processor, "single");
    bool adds = json_is_object(json_object_get(json_array_get(single, 0), "SpecialToken"));
    size_t i;

    json_array_foreach(list, i, inner) adds =
        adds || json_is_object(json_object_get(json_array_get(json_object_get(inner, "single"), 0),
                                               "SpecialToken"));
    return adds;
}

static void put_specials(const json_t *root, const json_t *config, const struct model *model,
                         struct gguf_writer *writer)
{
    int64_t bos = id_of(root, config, "bos_token"), eos = id_of(root, config, "eos_token");
    int64_t pad = id_of(root, config, "pad_token");
    const json_t *adds = json_object_get(config, "add_bos_token");

    if (eos < 0 && model->end_count > 0)
        eos = model->end_tokens[0];
    if (bos >= 0)
        gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (eos >= 0)
        gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (pad >= 0)
        gguf_put_u32(writer, "tokenizer.ggml.padding_token_id", (uint32_t)pad);
    for (uint32_t i = 0; i < model->end_count; i++) {
        if (model->end_tokens[i] != eos) { /* GGUF has room for one more */
            gguf_put_u32(writer, "tokenizer.ggml.eot_token_id", (uint32_t)model->end_tokens[i]);
            break;
        }
    }
    gguf_put_bool(writer, "tokenizer.ggml.add_bos_token",
                  json_is_boolean(adds) ? json_is_true(adds) && bos >= 0
                                        : adds_first(json_object_get(root, "post_processor")));
}

/* --- all of it ----------------------------------------------------------------------------- */

static int put_template(const char *folder, const json_t *config, struct gguf_writer *writer,
                        struct fault *fault)
{
    const char *inside = json_string_value(json_object_get(config, "chat_template"));
    char path[PATH_BYTES];
    struct buf text;
    int r;

    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) >= (int)sizeof path)
        return fault_set(fault, E_TOO_LARGE, "the path of the chat template is too long");
    buf_init(&text, FILE_BYTES_MAX);
    r = file_read(path, &text, fault);
    if (r == 0)
        gguf_put_string(writer, "tokenizer.chat_template",
                        (struct gguf_string){buf_string(&text), text.bytes});
    else if (r == -ENOENT && inside)
        gguf_put_string(writer, "tokenizer.chat_template",
                        (struct gguf_string){inside, strlen(inside)});
    buf_fini(&text);
    return r == -ENOENT ? 0 : r;
}

int quantize_tokenizer(const char *folder, const struct model *model, struct gguf_writer *writer,
                       struct fault *fault)
{
    json_t *root = NULL, *config = NULL;
    const char *name;
    int r = read_json(folder, "tokenizer_config.json", &config, fault);

    if (r >= 0)
        r = put_template(folder, config, writer, fault);
    if (r >= 0)
        r = read_json(folder, "tokenizer.json", &root, fault);
    name = r > 0 && is_byte_level_bpe(root) ? name_of_splits(root) : NULL;
    if (r >= 0)
        r = 0;
    if (name) {
        gguf_put_string(writer, "tokenizer.ggml.model", (struct gguf_string){"gpt2", 4});
        gguf_put_string(writer, "tokenizer.ggml.pre", (struct gguf_string){name, strlen(name)});
        r = put_vocabulary(root, model->vocabulary, writer, fault);
        if (r == 0)
            r = put_merges(root, writer, fault);
        if (r == 0)
            put_specials(root, config, model, writer);
        r = r < 0 ? r : 1;
    }
    json_decref(root);
    json_decref(config);
    return r;
}
