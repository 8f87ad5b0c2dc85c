/* fuzz_gguf.c -- libFuzzer target: any bytes at all as a model file.
 *
 * What opens is also bound as a model, printed, and read at both ends of every tensor, so that a
 * bound which was checked wrongly is found by the sanitizer. Corpus: tests/fuzz/corpus_gguf. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"
#include "engine/model.h"
#include "tests/lib/gguf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct gguf *file)
{
    volatile uint8_t seen = 0;
    char text[100];

    for (uint64_t i = 0; i < gguf_key_count(file); i++)
        gguf_key_print(file, i, text, sizeof text);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, i);

        if (tensor->bytes == 0)
            continue;
        seen ^= ((const uint8_t *)tensor->data)[0];
        seen ^= ((const uint8_t *)tensor->data)[tensor->bytes - 1];
    }
    (void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The reader wants its bytes aligned to 16; malloc gives that, and an exact end for the
     * sanitizer. */
    uint8_t *copy = malloc(size ? size : 1);
    struct gguf *file = NULL;
    struct model *model = NULL;

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (gguf_open_memory(copy, size, "fuzz", &file, NULL) == 0) {
        read_all(file);
        if (gguf_model_open(file, &model, NULL) == 0)
            model_close(model);
        gguf_close(file);
    }
    free(copy);
    return 0;
}
