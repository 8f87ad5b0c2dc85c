/* tokenizer_words.c -- see tokenizer_words.h. */
#include "engine/text/tokenizer_words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_BYTES_MAX = 64 };

struct words {
    const struct vocabulary *vocabulary;
    struct words_options options; /* whose texts are the two below */
    char start[MARK_BYTES_MAX];
    char next[MARK_BYTES_MAX];
};

int words_open(const struct vocabulary *vocabulary, const struct words_options *options,
               struct words **ret_words, struct fault *fault)
{
    struct words *words;

    if (strlen(options->start) >= MARK_BYTES_MAX || strlen(options->next) >= MARK_BYTES_MAX)
        return fault_set(fault, E_UNSUPPORTED, "the mark before parts of words is too long");
    words = calloc(1, sizeof *words);
    if (!words)
        return fault_set(fault, E_MEMORY, "out of memory for a tokenizer");
    words->vocabulary = vocabulary;
    words->options = *options;
    memcpy(words->start, options->start, strlen(options->start) + 1);
    memcpy(words->next, options->next, strlen(options->next) + 1);
    *ret_words = words;
    return 0;
}

void words_close(struct words *words)
{
    free(words);
}

static int put_unknown(const struct words *words, struct tokens *tokens)
{
    return words->options.unknown < 0 ? 0 : tokens_put(tokens, words->options.unknown);
}

static bool starts_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

/* The longest token that `mark` and the text start with, and how much of the text it takes. */
static int32_t longest(const struct words *words, const char *mark, const char *text, size_t bytes,
                       struct buf *work, size_t *ret_taken)
{
    size_t before = strlen(mark), most = words->vocabulary->key_bytes_max;

    if (most <= before)
        return -1;
    if (bytes > most - before)
        bytes = most - before;
    buf_reset(work);
    buf_text(work, mark);
    buf_put(work, text, bytes);
    if (buf_failed(work))
        return -ENOMEM;
    for (size_t taken = bytes; taken > 0; taken--) {
        int32_t id = vocabulary_find(words->vocabulary, work->data, before + taken);

        if (id < 0)
            continue;
        *ret_taken = taken;
        return id;
    }
    return -1;
}

int words_encode(const struct words *words, const char *word, size_t bytes, struct buf *work,
                 struct tokens *tokens)
{
    size_t before = tokens->count, characters = 0;
    int r = 0;

    if (words->options.whole) {
        int32_t id = vocabulary_find(words->vocabulary, word, bytes);

        return id >= 0 ? tokens_put(tokens, id) : put_unknown(words, tokens);
    }
    for (size_t i = 0; i < bytes; i++)
        characters += starts_character(word[i]);
    if (characters > words->options.characters_max)
        return put_unknown(words, tokens);
    for (size_t at = 0, taken = 0; at < bytes && r == 0; at += taken) {
        int32_t id = longest(words, at == 0 ? words->start : words->next, word + at, bytes - at,
                             work, &taken);

        if (id == -ENOMEM)
            return -ENOMEM;
        if (id < 0) { /* one part that is none spoils the word */
            tokens->count = before;
            return put_unknown(words, tokens);
        }
        r = tokens_put(tokens, id);
    }
    return r;
}
