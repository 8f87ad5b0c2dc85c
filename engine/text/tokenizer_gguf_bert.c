/* tokenizer_gguf_bert.c -- BERT's WordPiece out of a GGUF file: its model "bert".
 *
 * The file writes U+2581 before what starts a word, and nothing before what goes on with one, where
 * BERT's own has nothing and "##". */
#include <string.h>

#include "engine/text/tokenizer_gguf.h"

/* BERT's own ids, where the file names no others. */
enum { BERT_UNKNOWN = 100, BERT_START = 101, BERT_SEPARATOR = 102, WORD_CHARACTERS_MAX = 100 };

static int open_normalizer(struct tokenizer *tokenizer, const struct gguf *file,
                           struct fault *fault)
{
    bool lowercase = true, strip;
    int r = gguf_get_bool(file, "tokenizer.ggml.normalizer.lowercase", &lowercase, fault);

    strip = lowercase;
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.normalizer.strip_accents", &strip, fault);
    if (r >= 0)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0)
        r = normalizer_add_characters(tokenizer->normalizer, CHARACTERS_CLEAN | CHARACTERS_APART,
                                      fault);
    if (r == 0 && strip)
        r = normalizer_add_form(tokenizer->normalizer, FORM_D, fault);
    if (r == 0 && strip)
        r = normalizer_add_characters(tokenizer->normalizer, CHARACTERS_NO_NONSPACING_MARKS, fault);
    if (r == 0 && lowercase)
        r = normalizer_add_characters(tokenizer->normalizer, CHARACTERS_LOWERCASE, fault);
    return r;
}

static int open_pretokenizer(struct tokenizer *tokenizer, struct fault *fault)
{
    static const char spaces[] = "\\s+", punctuation[] = "[\\p{P}$+<=>^`|~]";
    int r = pretokenizer_open(&tokenizer->pretokenizer, fault);

    if (r == 0)
        r = pretokenizer_add_split(tokenizer->pretokenizer,
                                   &(struct split_rule){.pattern = spaces,
                                                        .bytes = strlen(spaces),
                                                        .behaviour = SPLIT_REMOVED},
                                   fault);
    if (r == 0)
        r = pretokenizer_add_split(
            tokenizer->pretokenizer,
            &(struct split_rule){.pattern = punctuation, .bytes = strlen(punctuation)}, fault);
    return r;
}

static int32_t known(const struct tokenizer *tokenizer, int32_t id)
{
    return (uint32_t)id < tokenizer->vocabulary.count ? id : -1;
}

int tokenizer_gguf_bert(struct tokenizer *tokenizer, const struct gguf *file,
                        struct gguf_affixes *adds, struct fault *fault)
{
    struct words_options options = {.start = "\xe2\x96\x81",
                                    .next = "",
                                    .characters_max = WORD_CHARACTERS_MAX,
                                    .unknown = known(tokenizer, BERT_UNKNOWN)};
    struct words *words = NULL;
    int r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.unknown_token_id", &options.unknown,
                              fault);

    if (r == 0)
        r = open_normalizer(tokenizer, file, fault);
    if (r == 0)
        r = open_pretokenizer(tokenizer, fault);
    if (r == 0)
        r = words_open(&tokenizer->vocabulary, &options, &words, fault);
    if (r < 0)
        return r;
    tokenizer_use_words(tokenizer, words);
    tokenizer->decode.start = START_WITHOUT_SPACE;
    tokenizer->bos = known(tokenizer, BERT_START);
    adds->sep_id = known(tokenizer, BERT_SEPARATOR);
    adds->bos = adds->sep = true;
    /* Both are names for what starts a text; files have one of them, or both. */
    return tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.cls_token_id", &tokenizer->bos,
                             fault);
}
