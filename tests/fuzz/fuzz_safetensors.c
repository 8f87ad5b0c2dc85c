/* fuzz_safetensors.c -- libFuzzer target: any bytes at all as a safetensors file.
 *
 * Whatever is opened fills its data: every byte of every tensor is read, one after the other, so
 * that a bound which was checked wrongly is found by the sanitizer. Corpus:
 * tests/fuzz/corpus_safetensors. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct safetensors *file)
{
    volatile uint8_t seen = 0;
    const uint8_t *at = NULL;

    for (uint32_t i = 0; i < safetensors_count(file); i++) {
        const struct stored_tensor *tensor = safetensors_at(file, i);
        const uint8_t *bytes = tensor->data;
        uint64_t elements = 1;

        must(!at || bytes == at);
        must(tensor->format[0] && tensor->dimension_count <= TENSOR_DIMENSIONS_MAX);
        for (uint64_t j = 0; j < tensor->bytes; j++)
            seen ^= bytes[j];
        for (size_t j = 0; j < tensor->name.bytes; j++)
            seen ^= (uint8_t)tensor->name.text[j];
        for (uint32_t j = 0; j < tensor->dimension_count; j++)
            elements *= tensor->dimensions[j];
        must(!tensor->known || dtype_bytes(tensor->type, elements) == tensor->bytes);
        at = bytes + tensor->bytes;
    }
    (void)seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* an exact end for the sanitizer */
    struct safetensors *file = NULL;
    struct fault fault = {0};

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (safetensors_open_memory(copy, size, "fuzz", &file, &fault) == 0)
        read_all(file);
    else
        must(fault.code < 0 && fault.message[0]);
    safetensors_close(file);
    free(copy);
    return 0;
}
