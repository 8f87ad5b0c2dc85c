/* tokenizer_json.h -- the parts of a tokenizer.json (the `tokenizers` library's format), each read
 * by a file of its own.
 *
 *     added_tokens | normalizer | pre_tokenizer | model | post_processor | decoder
 *
 * The tree outlives every call; what a part refers to by name is looked up in `token_ids`. */
#ifndef WEFT_TOKENIZER_JSON_H
#define WEFT_TOKENIZER_JSON_H

#include "config/base/json.h"
#include "engine/text/tokenizer_files.h"

/* What the decoder does to each token's text. */
enum { DECODER_REPLACES_MAX = 8, DECODER_TEXT_MAX = 64 };
struct token_decoder {
    bool byte_level;
    bool byte_fallback;
    bool joins_words;                   /* no decoder: a space before each token */
    char word_prefix[DECODER_TEXT_MAX]; /* WordPiece: before what goes on with a word; "" : none */
    char word_suffix[DECODER_TEXT_MAX]; /* behind what ends a word; "": none */
    bool cleanup;                       /* no space before punctuation and contractions */
    unsigned strip_left;                /* of each token, this many of ... */
    char strip_text[DECODER_TEXT_MAX];
    uint32_t replace_count;
    struct {
        char from[DECODER_TEXT_MAX];
        char to[DECODER_TEXT_MAX];
    } replaces[DECODER_REPLACES_MAX];
};

/* The word that names an object's kind, "" where there is none. */
const char *tokenizer_json_type(const json_t *object);
/* Whether the tree of a pre-tokenizer or normalizer has such a part. */
bool tokenizer_json_has(const json_t *part, const char *type);
/* E_UNSUPPORTED: "the normalizer 'X' is not supported by this version". */
int tokenizer_json_unknown(const char *what, const char *type, struct fault *fault);
/* {"String": "x"} or {"Regex": "x"}. false: neither. */
bool tokenizer_json_pattern(const json_t *pattern, const char **ret_text, size_t *ret_bytes,
                            bool *ret_literal);

int tokenizer_json_normalizer(const json_t *part, struct normalizer *normalizer,
                              struct fault *fault);
int tokenizer_json_pretokenizer(const json_t *part, struct pretokenizer *pretokenizer,
                                struct fault *fault);
int tokenizer_json_post(const json_t *part, struct tokenizer *tokenizer, struct fault *fault);
int tokenizer_json_decoder(const json_t *part, struct token_decoder *decoder,
                           struct decode_rules *rules, struct fault *fault);
/* Appends what the token adds to a text. */
void token_decoder_apply(const struct token_decoder *decoder, const char *text, size_t bytes,
                         struct buf *piece);
/* Makes tokenizer->model; the vocabulary is there. */
int tokenizer_json_model(const json_t *model, struct tokenizer *tokenizer, bool byte_level,
                         struct fault *fault);

#endif
