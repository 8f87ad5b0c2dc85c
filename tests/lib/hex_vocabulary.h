/* hex_vocabulary.h -- a vocabulary as benchmarks hand it on: a line for each token, its bytes in
 * hexadecimal, "-" for one that is never text, "end" for one that ends a text. */
#ifndef WEFT_TEST_HEX_VOCABULARY_H
#define WEFT_TEST_HEX_VOCABULARY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/vocabulary_trie.h"

enum { HEX_TOKENS_MAX = 1 << 20, HEX_ENDS_MAX = 64 };

/* The bytes of a line of hexadecimal digits, in place. */
static inline size_t unhex(char *line, size_t digits)
{
    for (size_t i = 0; i + 1 < digits; i += 2) {
        char pair[3] = {line[i], line[i + 1], 0};

        line[i / 2] = (char)strtoul(pair, NULL, 16);
    }
    return digits / 2;
}

static inline struct vocabulary_trie *read_vocabulary(const char *path)
{
    struct vocabulary_token *tokens = calloc(HEX_TOKENS_MAX, sizeof *tokens);
    struct vocabulary_trie *trie = NULL;
    FILE *file = fopen(path, "r");
    uint32_t count = 0, end_count = 0;
    int32_t ends[HEX_ENDS_MAX];
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;

    must(file && tokens);
    while ((bytes = getline(&line, &room, file)) > 0 && count < HEX_TOKENS_MAX) {
        bytes -= line[bytes - 1] == '\n';
        if (bytes == 3 && end_count < HEX_ENDS_MAX)
            ends[end_count++] = (int32_t)count;
        if (bytes != 1 && bytes != 3) {
            char *copy = malloc((size_t)bytes + 1);

            must(copy);
            memcpy(copy, line, (size_t)bytes);
            tokens[count] = (struct vocabulary_token){copy, unhex(copy, (size_t)bytes)};
        }
        count++;
    }
    must(vocabulary_trie_open(tokens, count, ends, end_count, &trie, NULL) == 0);
    fclose(file);
    free(line);
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)tokens[i].bytes);
    free(tokens);
    return trie;
}

#endif
