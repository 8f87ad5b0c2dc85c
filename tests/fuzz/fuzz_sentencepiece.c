/* fuzz_sentencepiece.c -- libFuzzer target: any bytes as a tokenizer.model of either format.
 *
 * What opens must encode the input's last bytes, and some fixed ones, to ids below its count, whose
 * text is UTF-8. Corpus: tests/fuzz/corpus_sentencepiece. */
#include <stdint.h>

#include "engine/text/tokenizer_files.h"
#include "tests/lib/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int open_file(const char *text, size_t bytes, struct tokenizer **ret_tokenizer)
{
    if (tiktoken_is_like(text, bytes))
        return tokenizer_open_tiktoken(text, bytes, NULL, ret_tokenizer, NULL);
    return tokenizer_open_sentencepiece(text, bytes, ret_tokenizer, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_tokenizer_file(data, size, open_file);
    return 0;
}
