/* tokenizer_models.c -- the models behind one interface: struct token_model. */
#include "engine/text/tokenizer_internal.h"

static void close_bpe(void *data)
{
    bpe_close(data);
}

static int encode_bpe(const void *data, const char *piece, size_t bytes, struct encode_work *work,
                      struct tokens *tokens)
{
    return bpe_encode(data, piece, bytes, &work->merge, tokens);
}

void tokenizer_use_bpe(struct tokenizer *tokenizer, struct bpe *bpe)
{
    tokenizer->model = (struct token_model){bpe, encode_bpe, close_bpe};
}

static void close_spm(void *data)
{
    spm_close(data);
}

static int encode_spm(const void *data, const char *piece, size_t bytes, struct encode_work *work,
                      struct tokens *tokens)
{
    return spm_encode(data, piece, bytes, &work->merge, tokens);
}

void tokenizer_use_spm(struct tokenizer *tokenizer, struct spm *spm)
{
    tokenizer->model = (struct token_model){spm, encode_spm, close_spm};
}

static void close_unigram(void *data)
{
    unigram_close(data);
}

static int encode_unigram(const void *data, const char *piece, size_t bytes,
                          struct encode_work *work, struct tokens *tokens)
{
    return unigram_encode(data, piece, bytes, &work->text, tokens);
}

void tokenizer_use_unigram(struct tokenizer *tokenizer, struct unigram *unigram)
{
    tokenizer->model = (struct token_model){unigram, encode_unigram, close_unigram};
}

static void close_words(void *data)
{
    words_close(data);
}

static int encode_words(const void *data, const char *piece, size_t bytes, struct encode_work *work,
                        struct tokens *tokens)
{
    return words_encode(data, piece, bytes, &work->text, tokens);
}

void tokenizer_use_words(struct tokenizer *tokenizer, struct words *words)
{
    tokenizer->model = (struct token_model){words, encode_words, close_words};
}
