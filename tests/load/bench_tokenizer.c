/* bench_tokenizer.c -- how fast texts become tokens, for tests/load/bench_tokenizer.py.
 *
 *     bench_tokenizer MODEL TEXT BYTES
 *
 * Encodes the file TEXT in parts of about BYTES (each ends with a character) with the tokenizer of
 * a folder or file, three times, and prints the tokens of once and the processor seconds: of
 * opening, and the least of one encoding. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/text/tokenizer.h"

enum { ROUNDS = 3, TOKENS_MAX = 1 << 28 };

static double processor_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static char *read_text(const char *path, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *text = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;

    if (!text || fseek(file, 0, SEEK_SET) != 0 ||
        fread(text, 1, (size_t)bytes, file) != (size_t)bytes) {
        perror(path);
        exit(1);
    }
    fclose(file);
    *ret_bytes = (size_t)bytes;
    return text;
}

static size_t encode_parts(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                           size_t part_bytes)
{
    size_t count = 0;

    for (size_t at = 0, end; at < bytes; at = end) {
        struct tokens tokens;
        struct fault fault = {0};

        end = bytes - at > part_bytes ? at + part_bytes : bytes;
        while (end < bytes && ((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        tokens_init(&tokens, TOKENS_MAX);
        if (tokenizer_encode(tokenizer, text + at, end - at, 0, &tokens, &fault) < 0) {
            fprintf(stderr, "%s\n", fault.message);
            exit(1);
        }
        count += tokens.count;
        tokens_fini(&tokens);
    }
    return count;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};
    double began = processor_seconds(), opening, least = 0;
    size_t bytes, count = 0;
    char *text;

    if (argc != 4) {
        fprintf(stderr, "usage: bench_tokenizer MODEL TEXT BYTES\n");
        return 2;
    }
    if (tokenizer_open_path(argv[1], &tokenizer, &fault) < 0) {
        fprintf(stderr, "%s\n", fault.message);
        return 1;
    }
    opening = processor_seconds() - began;
    text = read_text(argv[2], &bytes);
    for (int round = 0; round < ROUNDS; round++) {
        double seconds;

        began = processor_seconds();
        count = encode_parts(tokenizer, text, bytes, strtoul(argv[3], NULL, 10));
        seconds = processor_seconds() - began;
        if (round == 0 || seconds < least)
            least = seconds;
    }
    printf("%zu %.6f %.6f\n", count, opening, least);
    free(text);
    tokenizer_close(tokenizer);
    return 0;
}
