/* fuzz_checkpoint_index.c -- libFuzzer target: any bytes at all as model.safetensors.index.json.
 *
 * What is read names files that cannot leave the folder, each once and in order, and every tensor
 * has one. Corpus: tests/fuzz/corpus_checkpoint_index. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct checkpoint_index *index)
{
    must(index->tensor_count > 0 && index->file_count > 0);
    for (uint32_t i = 0; i < index->file_count; i++) {
        const char *file = index->files[i];

        must(*file && strlen(file) <= 255 && !strchr(file, '/'));
        must(strcmp(file, "..") != 0 && strcmp(file, ".") != 0);
        must(i == 0 || strcmp(index->files[i - 1], file) < 0);
        must(checkpoint_index_names(index, file));
    }
    must(!checkpoint_index_names(index, "../model.safetensors"));
    for (uint32_t i = 0; i < index->tensor_count; i++)
        must(index->tensors[i].name && index->tensors[i].file < index->file_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint_index index = {0};
    struct fault fault = {0};

    if (checkpoint_index_read((const char *)data, size, &index, &fault) == 0)
        check(&index);
    else
        must(fault.code < 0 && fault.message[0]);
    checkpoint_index_fini(&index);
    return 0;
}
