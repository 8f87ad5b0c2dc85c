/* tokenizer_json.c -- a tokenizer out of a tokenizer.json.
 *
 * The tokens of the model and those that were added are first laid out by id, then made a
 * vocabulary: a token's key is what the model looks for, its piece what the decoder makes of it. */
#include "engine/text/tokenizer_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Ids may have holes, but a file of a few bytes must not ask for gigabytes. */
enum { ID_MAX = 1 << 22 };

/* ---- words ---- */

const char *tokenizer_json_type(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type ? type : "";
}

bool tokenizer_json_has(const json_t *part, const char *type)
{
    static const char *const lists[] = {"pretokenizers", "normalizers", "decoders"};
    const json_t *one;
    size_t i;

    if (strcmp(tokenizer_json_type(part), type) == 0)
        return true;
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++)
        json_array_foreach(json_object_get(part, lists[list]), i, one)
        {
            if (tokenizer_json_has(one, type))
                return true;
        }
    return false;
}

int tokenizer_json_unknown(const char *what, const char *type, struct fault *fault)
{
    return fault_set(fault, E_UNSUPPORTED, "the %s '%.60s' is not supported by this version", what,
                     type);
}

bool tokenizer_json_pattern(const json_t *pattern, const char **ret_text, size_t *ret_bytes,
                            bool *ret_literal)
{
    const json_t *text = json_object_get(pattern, "String");

    *ret_literal = text != NULL;
    if (!text)
        text = json_object_get(pattern, "Regex");
    *ret_text = json_string_value(text);
    *ret_bytes = json_string_length(text);
    return *ret_text && *ret_bytes > 0;
}

/* ---- tokens by id ---- */

struct token_text {
    const char *text; /* NULL: the id is not used */
    uint32_t bytes;
    uint8_t type;
    bool of_model; /* the model has it, whatever was added */
};

struct token_list {
    struct token_text *tokens;
    uint32_t count;
    size_t bytes;
};

/* A vocabulary is an object {text: id}, or for Unigram a list of [text, score]. */
static uint32_t count_ids(const json_t *vocabulary, const json_t *added)
{
    int64_t last = (int64_t)json_array_size(vocabulary) - 1, id;
    const json_t *value;
    const char *key;
    size_t i;

    json_object_foreach((json_t *)vocabulary, key, value)
    {
        (void)key;
        if (json_integral(value, &id) && id > last)
            last = id;
    }
    json_array_foreach(added, i, value)
    {
        if (json_integral(json_object_get(value, "id"), &id) && id > last)
            last = id;
    }
    return last < ID_MAX ? (uint32_t)(last + 1) : UINT32_MAX;
}

static int put_text(struct token_list *list, const json_t *id_value, const char *text, size_t bytes,
                    enum token_type type, struct fault *fault)
{
    struct token_text *token;
    int64_t id;

    if (!json_integral(id_value, &id) || id < 0 || id >= list->count)
        return fault_set(fault, E_CORRUPT, "the id of token '%.60s' is no id", text);
    token = &list->tokens[id];
    list->bytes += bytes;
    if (bytes > INT32_MAX || list->bytes > INT32_MAX)
        return fault_set(fault, E_TOO_LARGE, "the vocabulary's pieces take %zu bytes", list->bytes);
    *token = (struct token_text){text, (uint32_t)bytes, (uint8_t)type,
                                 token->of_model || type == TOKEN_NORMAL};
    return 0;
}

static int list_model(struct token_list *list, const json_t *vocabulary, struct fault *fault)
{
    const json_t *value;
    const char *key;
    size_t i, bytes;
    int r = 0;

    json_object_keylen_foreach((json_t *)vocabulary, key, bytes, value)
    {
        r = put_text(list, value, key, bytes, TOKEN_NORMAL, fault);
        if (r < 0)
            return r;
    }
    json_array_foreach(vocabulary, i, value)
    {
        const json_t *text = json_array_get(value, 0);

        if (!json_is_string(text))
            return fault_set(fault, E_CORRUPT, "piece %zu of the vocabulary is no text", i);
        bytes = json_string_length(text);
        list->bytes += bytes;
        if (list->bytes > INT32_MAX)
            return fault_set(fault, E_TOO_LARGE, "the vocabulary's pieces take %zu bytes",
                             list->bytes);
        list->tokens[i] =
            (struct token_text){json_string_value(text), (uint32_t)bytes, TOKEN_NORMAL, true};
    }
    return 0;
}

static int list_added(struct token_list *list, const json_t *added, struct fault *fault)
{
    const json_t *one;
    size_t i;

    json_array_foreach(added, i, one)
    {
        const json_t *content = json_object_get(one, "content");
        bool special = json_is_true(json_object_get(one, "special"));
        int r;

        if (!json_is_string(content))
            return fault_set(fault, E_CORRUPT, "added token %zu has no content", i);
        r = put_text(list, json_object_get(one, "id"), json_string_value(content),
                     json_string_length(content), special ? TOKEN_CONTROL : TOKEN_USER_DEFINED,
                     fault);
        if (r < 0)
            return r;
    }
    return 0;
}

static int list_tokens(struct token_list *list, const json_t *vocabulary, const json_t *added,
                       struct fault *fault)
{
    int r;

    *list = (struct token_list){.count = count_ids(vocabulary, added)};
    if (list->count == 0 || list->count == UINT32_MAX)
        return fault_set(fault, list->count == 0 ? E_CORRUPT : E_TOO_LARGE,
                         list->count == 0 ? "the tokenizer has no vocabulary"
                                          : "the tokenizer has ids above %d",
                         ID_MAX);
    list->tokens = calloc(list->count, sizeof *list->tokens);
    if (!list->tokens)
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    r = list_model(list, vocabulary, fault);
    return r < 0 ? r : list_added(list, added, fault);
}

/* ---- the vocabulary ---- */

struct codings {
    enum piece_coding keys;
    struct token_decoder decoder;
};

/* `key` has room for the token's bytes. */
static int put_token(struct vocabulary *vocabulary, const struct token_text *token,
                     const struct codings *codings, char *key, struct buf *piece)
{
    struct vocabulary_entry entry = {.type = token->type, .key = key};
    int byte = token->of_model ? piece_byte(token->text, token->bytes) : -1;
    bool whole = true;

    if (!token->text) {
        entry.type = TOKEN_UNUSED;
        vocabulary_put(vocabulary, &entry);
        return 0;
    }
    if (byte >= 0 && codings->keys == PIECES_PLAIN && codings->decoder.byte_fallback) {
        if (vocabulary_left(vocabulary) == 0)
            return E_TOO_LARGE;
        vocabulary_put_byte(vocabulary, (uint8_t)byte, token->text, token->bytes);
        return 0;
    }
    entry.key_bytes = piece_decode(codings->keys, token->text, token->bytes, key, &whole);
    entry.indexed = token->of_model && token->type != TOKEN_CONTROL && whole;
    buf_reset(piece);
    token_decoder_apply(&codings->decoder, token->text, token->bytes, piece);
    if (buf_failed(piece))
        return E_MEMORY;
    if (piece->bytes > vocabulary_left(vocabulary))
        return E_TOO_LARGE;
    entry.piece = buf_string(piece);
    entry.piece_bytes = piece->bytes;
    vocabulary_put(vocabulary, &entry);
    return 0;
}

static int make_vocabulary(struct vocabulary *vocabulary, const struct token_list *list,
                           const struct codings *codings, struct fault *fault)
{
    /* A decoder may put a space before each token, or write longer text for some. */
    size_t room = 2 * list->bytes + list->count + 4096, longest = 1;
    struct buf piece;
    char *key;
    int r;

    for (uint32_t id = 0; id < list->count; id++)
        if (list->tokens[id].bytes > longest)
            longest = list->tokens[id].bytes;
    r = vocabulary_init(vocabulary, list->count, room, true, fault);
    if (r < 0)
        return r;
    key = malloc(longest);
    buf_init(&piece, 64 * longest + 64);
    if (!key)
        r = E_MEMORY;
    for (uint32_t id = 0; id < list->count && r == 0; id++)
        r = put_token(vocabulary, &list->tokens[id], codings, key, &piece);
    buf_fini(&piece);
    free(key);
    if (r == E_TOO_LARGE)
        return fault_set(fault, r, "the decoder makes the vocabulary's pieces too long");
    return r < 0 ? fault_set(fault, E_MEMORY, "out of memory for the vocabulary") : 0;
}

/* ---- added tokens ---- */

/* What the normalizer makes of an added token's text goes to `text`, at *ret_start. */
static int normalize_special(const struct tokenizer *tokenizer, struct special *special,
                             struct buf *text, size_t *ret_start, struct fault *fault)
{
    struct normalizer_work work;
    const char *normal = special->text;
    size_t bytes = special->bytes;
    int r = 0;

    normalizer_work_init(&work);
    if (tokenizer->normalizer)
        r = normalizer_apply(tokenizer->normalizer, &work, special->text, special->bytes, &normal,
                             &bytes, fault);
    *ret_start = text->bytes;
    buf_put(text, normal, bytes);
    special->bytes = bytes;
    normalizer_work_fini(&work);
    if (r == -ENOMEM || buf_failed(text))
        return fault_set(fault, E_MEMORY, "out of memory for the added tokens");
    return r;
}

static bool flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static struct special read_special(const json_t *one)
{
    const json_t *content = json_object_get(one, "content");
    int64_t id = -1;

    (void)json_integral(json_object_get(one, "id"), &id); /* was checked when it was listed */
    return (struct special){.text = json_string_value(content),
                            .bytes = json_string_length(content),
                            .id = (int32_t)id,
                            .control = flag(one, "special"),
                            .left_strip = flag(one, "lstrip"),
                            .right_strip = flag(one, "rstrip"),
                            .single_word = flag(one, "single_word")};
}

/* Those of one kind: looked for before normalizing, or after. */
static int make_specials(struct tokenizer *tokenizer, const json_t *added, bool normalized,
                         struct specials *specials, struct fault *fault)
{
    struct special *list = calloc(json_array_size(added) + 1, sizeof *list);
    size_t *starts = calloc(json_array_size(added) + 1, sizeof *starts);
    const json_t *one;
    uint32_t count = 0;
    struct buf text;
    size_t i;
    int r = 0;

    buf_init(&text, 1 << 30);
    if (!list || !starts)
        r = fault_set(fault, E_MEMORY, "out of memory for the added tokens");
    json_array_foreach(added, i, one)
    {
        if (r < 0 || flag(one, "normalized") != normalized)
            continue;
        list[count] = read_special(one);
        if (normalized)
            r = normalize_special(tokenizer, &list[count], &text, &starts[count], fault);
        count++;
    }
    for (uint32_t j = 0; j < count && normalized && r == 0; j++)
        list[j].text = buf_string(&text) + starts[j];
    if (r == 0)
        r = specials_init(specials, list, count, fault);
    buf_fini(&text);
    free(starts);
    free(list);
    return r;
}

/* ---- the whole ---- */

static int make_parts(struct tokenizer *tokenizer, const json_t *tree, struct fault *fault)
{
    const json_t *part = json_object_get(tree, "normalizer");
    int r = 0;

    if (part && !json_is_null(part)) {
        r = normalizer_open(&tokenizer->normalizer, fault);
        if (r == 0)
            r = tokenizer_json_normalizer(part, tokenizer->normalizer, fault);
    }
    part = json_object_get(tree, "pre_tokenizer");
    if (r == 0 && part && !json_is_null(part)) {
        r = pretokenizer_open(&tokenizer->pretokenizer, fault);
        if (r == 0)
            r = tokenizer_json_pretokenizer(part, tokenizer->pretokenizer, fault);
    }
    part = json_object_get(tree, "post_processor");
    if (r == 0 && part && !json_is_null(part))
        r = tokenizer_json_post(part, tokenizer, fault);
    return r;
}

int tokenizer_open_json(const json_t *tree, struct tokenizer **ret_tokenizer, struct fault *fault)
{
    const json_t *model = json_object_get(tree, "model");
    const json_t *added = json_object_get(tree, "added_tokens");
    struct tokenizer *tokenizer = NULL;
    struct token_list list = {0};
    struct codings codings = {0};
    bool byte_level;
    int r = tokenizer_open_empty(&tokenizer, fault);

    if (r < 0)
        return r;
    byte_level = tokenizer_json_has(json_object_get(tree, "pre_tokenizer"), "ByteLevel") ||
                 tokenizer_json_has(json_object_get(tree, "normalizer"), "ByteLevel");
    codings.keys = byte_level ? PIECES_BYTE_LEVEL : PIECES_PLAIN;
    r = list_tokens(&list, json_object_get(model, "vocab"), added, fault);
    if (r == 0)
        r = tokenizer_json_decoder(json_object_get(tree, "decoder"), &codings.decoder,
                                   &tokenizer->decode, fault);
    if (r == 0)
        r = make_vocabulary(&tokenizer->vocabulary, &list, &codings, fault);
    if (r == 0)
        r = make_parts(tokenizer, tree, fault);
    if (r == 0)
        r = make_specials(tokenizer, added, false, &tokenizer->specials, fault);
    if (r == 0)
        r = make_specials(tokenizer, added, true, &tokenizer->normalized_specials, fault);
    if (r == 0)
        r = tokenizer_json_model(model, tokenizer, byte_level, fault);
    free(list.tokens);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}
