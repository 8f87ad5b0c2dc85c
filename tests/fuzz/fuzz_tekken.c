/* fuzz_tekken.c -- libFuzzer target: any bytes as Mistral's tekken.json.
 *
 * What opens must encode the input's last bytes, and some fixed ones, to ids below its count, whose
 * text is UTF-8. Corpus: tests/fuzz/corpus_tekken. */
#include <stdint.h>

#include "engine/text/tokenizer_files.h"
#include "tests/lib/fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int open_file(const char *text, size_t bytes, struct tokenizer **ret_tokenizer)
{
    json_t *tree = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    int r = tree ? tokenizer_open_tekken(tree, ret_tokenizer, NULL) : E_INVALID;

    json_decref(tree);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_tokenizer_file(data, size, open_file);
    return 0;
}
