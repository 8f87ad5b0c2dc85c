/* fuzz_tokenizer.c -- libFuzzer target: any bytes as the vocabulary of a model, any bytes as a
 * text.
 *
 * The input is a GGUF file; its last bytes are the text too. What opens must give ids below its
 * count, and their text must be UTF-8. Where the file is no tokenizer the text goes to three
 * tokenizers made up here. Corpus: tests/fuzz/corpus_tokenizer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/fuzz_text.h"
#include "tests/lib/tiny_vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES_MAX = 500 };

/* Opened at the first input and kept: the fuzzer ends with the process. */
static void use_made_up_ones(const char *text, size_t bytes)
{
    static const char *const names[] = {"smollm", "qwen2", "llama-bpe"};
    static struct tokenizer *tokenizers[3];

    for (int i = 0; i < 3; i++) {
        if (!tokenizers[i]) {
            static struct gguf_stream streams[3];
            struct gguf *file;

            gguf_stream_open(&streams[i]);
            tiny_write(&streams[i], names[i]);
            file = gguf_stream_finish(&streams[i]);
            check(tokenizer_open_gguf(file, &tokenizers[i], NULL) == 0);
            gguf_close(file);
        }
        encode_and_decode(tokenizers[i], text, bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    size_t bytes = size < TEXT_BYTES_MAX ? size : TEXT_BYTES_MAX;
    struct tokenizer *tokenizer = NULL;
    struct gguf *file = NULL;
    const char *text;

    if (!copy)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    text = (const char *)copy + size - bytes;
    if (gguf_open_memory(copy, size, "fuzz", &file, NULL) == 0 &&
        tokenizer_open_gguf(file, &tokenizer, NULL) == 0)
        encode_and_decode(tokenizer, text, bytes);
    else
        use_made_up_ones(text, bytes);
    tokenizer_close(tokenizer);
    gguf_close(file);
    free(copy);
    return 0;
}
