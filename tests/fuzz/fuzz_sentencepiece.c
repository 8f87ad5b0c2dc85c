/* fuzz_sentencepiece.c -- libFuzzer target: any bytes as a tokenizer.model of either format.
 *
 * What opens must encode the input's last bytes, and some fixed ones, to ids below its count, whose
 * text is UTF-8. Corpus: tests/fuzz/corpus_sentencepiece. */
#include <stdint.h>
#include <string.h>

#include "engine/text/tokenizer_files.h"
#include "tests/lib/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES_MAX = 200 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char fixed[] =
        " The  caf\xc3\xa9\xcc\x81 \xe4\xb8\xad 12345\n\n<s>\xf0\x9f\x98\x80 ##a</s>";
    size_t bytes = size < TEXT_BYTES_MAX ? size : TEXT_BYTES_MAX;
    struct tokenizer *tokenizer = NULL;
    char *copy = malloc(size + 1);
    int r;

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    copy[size] = 0;
    r = tiktoken_is_like(copy, size) ? tokenizer_open_tiktoken(copy, size, NULL, &tokenizer, NULL)
                                     : tokenizer_open_sentencepiece(copy, size, &tokenizer, NULL);
    if (r == 0) {
        encode_and_decode(tokenizer, copy + size - bytes, bytes);
        encode_and_decode(tokenizer, fixed, sizeof fixed - 1);
    }
    tokenizer_close(tokenizer);
    free(copy);
    return 0;
}
