/* tokenizer_json_model.c -- the "model" of a tokenizer.json. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_json.h"

/* The id of a token that the model names, -1 for null. */
static int find_token(const json_t *model, const char *key, const struct tokenizer *tokenizer,
                      int32_t *ret_id, struct fault *fault)
{
    const json_t *name = json_object_get(model, key), *vocabulary = json_object_get(model, "vocab");
    int64_t id;

    *ret_id = -1;
    if (!json_is_string(name))
        return 0;
    if (!json_integral(
            json_object_getn(vocabulary, json_string_value(name), json_string_length(name)), &id) ||
        id < 0 || id >= tokenizer->vocabulary.count) {
        *ret_id = tokenizer_find(tokenizer, json_string_value(name));
        return *ret_id >= 0 ? 0
                            : fault_set(fault, E_CORRUPT, "the model's %s '%.60s' is no token", key,
                                        json_string_value(name));
    }
    *ret_id = (int32_t)id;
    return 0;
}

/* ---- BPE ---- */

static const char *text_or_empty(const json_t *model, const char *key)
{
    const char *text = json_string_value(json_object_get(model, key));

    return text ? text : "";
}

/* One merge, as "a b" or ["a", "b"]: its halves as keys in `room`. 1, 0: it is none, -ENOMEM. */
static int read_merge(const json_t *merge, enum piece_coding coding, struct buf *room,
                      size_t *ret_left)
{
    const char *left = json_string_value(merge), *right;
    size_t left_bytes, right_bytes;
    char *to;

    if (left) {
        size_t bytes = json_string_length(merge);

        right = bytes > 1 ? memchr(left + 1, ' ', bytes - 1) : NULL;
        if (!right)
            return 0;
        left_bytes = (size_t)(right - left);
        right_bytes = bytes - left_bytes - 1;
        right++;
    } else {
        const json_t *halves[2] = {json_array_get(merge, 0), json_array_get(merge, 1)};

        left = json_string_value(halves[0]);
        right = json_string_value(halves[1]);
        left_bytes = json_string_length(halves[0]);
        right_bytes = json_string_length(halves[1]);
        if (!left || !right)
            return 0;
    }
    buf_reset(room);
    buf_put(room, left, left_bytes);
    buf_put(room, right, right_bytes); /* the room that decoding needs at most */
    if (buf_failed(room))
        return -ENOMEM;
    if (!room->data) /* two empty halves */
        return 0;
    to = room->data;
    *ret_left = piece_decode(coding, left, left_bytes, to, NULL);
    room->bytes = *ret_left + piece_decode(coding, right, right_bytes, to + *ret_left, NULL);
    return 1;
}

/* A merge whose result is a control token is known and passed over: no text may become one. */
static bool is_known(const json_t *merge, const json_t *model, struct buf *room)
{
    const char *text = json_string_value(merge), *left = text, *right = NULL;
    size_t cut = strlen(text_or_empty(model, "continuing_subword_prefix"));

    buf_reset(room);
    if (text) {
        const char *space = strchr(text + (*text != 0), ' ');

        if (space) {
            buf_put(room, text, (size_t)(space - text));
            right = space + 1;
        }
    } else {
        left = json_string_value(json_array_get(merge, 0));
        right = json_string_value(json_array_get(merge, 1));
        if (left)
            buf_text(room, left);
    }
    if (!left || !right || strlen(right) < cut)
        return false;
    buf_text(room, right + cut);
    return !buf_failed(room) &&
           json_object_getn(json_object_get(model, "vocab"), buf_string(room), room->bytes);
}

static int read_merges(struct bpe *bpe, const json_t *model, enum piece_coding coding,
                       struct fault *fault)
{
    const json_t *merges = json_object_get(model, "merges"), *merge;
    struct buf room;
    size_t i;
    int r = 0;

    buf_init(&room, INT32_MAX);
    json_array_foreach(merges, i, merge)
    {
        size_t left = 0;

        r = read_merge(merge, coding, &room, &left);
        if (r > 0)
            r = bpe_add_merge(bpe, room.data, left, room.data + left, room.bytes - left,
                              (uint32_t)i);
        if (r == 0 && !is_known(merge, model, &room)) {
            r = fault_set(fault, E_CORRUPT, "merge %zu does not join two tokens to a third", i);
            break;
        }
        if (r < 0) {
            r = fault_set(fault, E_MEMORY, "out of memory for the merges");
            break;
        }
    }
    buf_fini(&room);
    return r < 0 ? r : 0;
}

static int read_bpe(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                    struct fault *fault)
{
    const json_t *merges = json_object_get(model, "merges");
    struct bpe_options options = {.byte_level = byte_level};
    struct bpe *bpe = NULL;
    int r;

    options.prefix = text_or_empty(model, "continuing_subword_prefix");
    options.suffix = text_or_empty(model, "end_of_word_suffix");
    if (*options.prefix || *options.suffix)
        options.byte_level = false;
    if (!json_is_array(merges))
        return fault_set(fault, E_CORRUPT, "the model has no list of merges");
    if (json_get_bool(model, "model.", "ignore_merges", &options.whole_pieces, fault) < 0 ||
        json_get_bool(model, "model.", "byte_fallback", &options.byte_fallback, fault) < 0 ||
        json_get_bool(model, "model.", "fuse_unk", &options.fuse_unknown, fault) < 0)
        return E_CORRUPT;
    r = find_token(model, "unk_token", tokenizer, &options.unknown, fault);
    if (r == 0)
        r = bpe_open(&tokenizer->vocabulary, &options, json_array_size(merges), &bpe, fault);
    if (r < 0)
        return r;
    tokenizer_use_bpe(tokenizer, bpe);
    return read_merges(bpe, model, byte_level ? PIECES_BYTE_LEVEL : PIECES_PLAIN, fault);
}

/* ---- Unigram ---- */

/* "vocab": [["<unk>", 0.0], ["\xe2\x96\x81the", -3.5], ...], "unk_id": 0 */
static int read_unigram(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                        struct fault *fault)
{
    const json_t *vocabulary = json_object_get(model, "vocab"), *one;
    struct unigram_options options = {.unknown = -1};
    struct unigram *unigram = NULL;
    int64_t unknown = -1;
    size_t i;
    int r;

    (void)byte_level;
    if (json_get_int(model, "model.", "unk_id", 0, (int64_t)tokenizer->vocabulary.count - 1,
                     &unknown, fault) < 0 ||
        json_get_bool(model, "model.", "byte_fallback", &options.byte_fallback, fault) < 0)
        return E_CORRUPT;
    options.unknown = (int32_t)unknown;
    r = unigram_open(&tokenizer->vocabulary, &options, &unigram, fault);
    if (r < 0)
        return r;
    tokenizer_use_unigram(tokenizer, unigram);
    json_array_foreach(vocabulary, i, one)
    {
        const json_t *score = json_array_get(one, 1);

        if (!json_is_number(score))
            return fault_set(fault, E_CORRUPT, "piece %zu of the vocabulary has no score", i);
        unigram_see_score(unigram, json_number_value(score));
        if (tokenizer->vocabulary.types[i] != TOKEN_CONTROL &&
            unigram_add(unigram, (int32_t)i, json_number_value(score), false) < 0)
            return fault_set(fault, E_MEMORY, "out of memory for the tokenizer's scores");
    }
    return 0;
}

/* ---- WordPiece and WordLevel ---- */

static int open_words(const json_t *model, struct tokenizer *tokenizer,
                      struct words_options *options, struct fault *fault)
{
    struct words *words = NULL;
    int r = find_token(model, "unk_token", tokenizer, &options->unknown, fault);

    if (r == 0)
        r = words_open(&tokenizer->vocabulary, options, &words, fault);
    if (r == 0)
        tokenizer_use_words(tokenizer, words);
    return r;
}

static int read_word_piece(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                           struct fault *fault)
{
    const char *next = json_string_value(json_object_get(model, "continuing_subword_prefix"));
    struct words_options options = {.start = "", .next = next ? next : "##"};
    int64_t most = 100;

    (void)byte_level;
    if (json_get_int(model, "model.", "max_input_chars_per_word", 0, INT32_MAX, &most, fault) < 0)
        return E_CORRUPT;
    options.characters_max = (uint32_t)most;
    return open_words(model, tokenizer, &options, fault);
}

static int read_word_level(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                           struct fault *fault)
{
    struct words_options options = {.whole = true, .start = "", .next = ""};

    (void)byte_level;
    return open_words(model, tokenizer, &options, fault);
}

/* ---- kinds ---- */

/* Older files do not name the model's kind. */
static const char *kind_of(const json_t *model)
{
    const char *type = tokenizer_json_type(model);

    if (*type)
        return type;
    if (json_object_get(model, "merges"))
        return "BPE";
    if (json_is_array(json_object_get(model, "vocab")))
        return "Unigram";
    return json_object_get(model, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

int tokenizer_json_model(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                         struct fault *fault)
{
    static const struct {
        const char *type;
        int (*read)(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                    struct fault *fault);
    } rows[] = {
        {"BPE", read_bpe},
        {"Unigram", read_unigram},
        {"WordPiece", read_word_piece},
        {"WordLevel", read_word_level},
    };
    const char *type = kind_of(model);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].read(model, tokenizer, byte_level, fault);
    return tokenizer_json_unknown("model", type, fault);
}
