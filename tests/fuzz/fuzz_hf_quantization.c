/* fuzz_hf_quantization.c -- libFuzzer target: a config and any tensors, whose sets become weights.
 *
 * The input is the text of a config.json, a NUL, and a safetensors file. Whatever is put together
 * is read, first and last rows of it, so that a table whose size was checked wrongly is found by
 * the sanitizer. Corpus: tests/fuzz/corpus_hf_quantization. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hf_quantization.h"
#include "engine/safetensors.h"
#include "kernels/cpu/dequant_tables.h"

enum { ROWS_READ = 20, COLUMNS_READ = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_row(const struct quant_tables *tables, uint32_t row)
{
    static float values[COLUMNS_READ];
    uint32_t count = tables->columns < COLUMNS_READ ? tables->columns : COLUMNS_READ;

    dequant_tables(tables, row, 0, count, values);
    dequant_tables(tables, row, tables->columns - count, count, values);
}

static void read_tensor(const struct stored_tensor *tensor)
{
    const struct quant_tables *tables = tensor->tables;

    if (!tables)
        return;
    must(tensor->known && tensor->type == tables->type && tensor->name.bytes > 0);
    must(tensor->dimensions[0] == tables->columns &&
         tensor->dimensions[1] * tensor->dimensions[2] == tables->rows);
    for (uint32_t row = 0; row < ROWS_READ && row < tables->rows; row++) {
        read_row(tables, row);
        read_row(tables, tables->rows - 1 - row);
    }
}

static void apply(const uint8_t *config, size_t bytes, const struct safetensors *file)
{
    struct hf_quantization *quantization = NULL;
    uint32_t count = safetensors_count(file);
    struct stored_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
    struct fault fault = {0};
    int r;

    if (!tensors)
        return;
    for (uint32_t i = 0; i < count; i++)
        tensors[i] = *safetensors_at(file, i);
    r = hf_quantization_apply((const char *)config, bytes, tensors, &count, &quantization, &fault);
    must(r == 0 || (fault.code == r && fault.message[0]));
    for (uint32_t i = 0; i < count && r == 0; i++)
        read_tensor(&tensors[i]);
    hf_quantization_close(quantization);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    struct safetensors *file = NULL;
    size_t bytes;
    uint8_t *copy;

    if (!end)
        return 0;
    bytes = size - (size_t)(end + 1 - data);
    copy = malloc(bytes ? bytes : 1); /* an exact end for the sanitizer */
    if (!copy)
        return 0;
    memcpy(copy, end + 1, bytes);
    if (safetensors_open_memory(copy, bytes, "fuzz", &file, NULL) == 0)
        apply(data, (size_t)(end - data), file);
    safetensors_close(file);
    free(copy);
    return 0;
}
