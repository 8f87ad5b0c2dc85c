/* quantize_list.c -- see quantize_list.h. */
#include "engine/quantize_list.h"

#include <stdlib.h>
#include <string.h>

enum { PRINTED_NAME = 96 };

static bool same(struct gguf_string name, const char *text)
{
    return name.bytes == strlen(text) && memcmp(name.text, text, name.bytes) == 0;
}

/* Keys that say what the file is, or that only made sense for the old one. */
static bool is_replaced(struct gguf_string key)
{
    return same(key, "general.file_type") || same(key, "general.quantization_version") ||
           same(key, "general.alignment");
}

static int add(const struct checkpoint *checkpoint, const struct stored_tensor *tensor,
               struct quantize_list *list, struct fault *fault)
{
    struct quantize_tensor *to = &list->tensors[list->count++];
    uint64_t rows = 1;
    char printed[PRINTED_NAME];

    gguf_string_print(tensor->name, printed, sizeof printed);
    if (!tensor->known)
        return fault_set(fault, E_UNSUPPORTED,
                         "%s: the tensor %s is of %s, in which weights are not read",
                         checkpoint_path(checkpoint), printed, tensor->format);
    to->name = tensor->name;
    to->dimension_count = tensor->dimension_count;
    for (uint32_t i = 0; i < GGUF_DIMENSIONS_MAX; i++) {
        to->dimensions[i] = tensor->dimensions[i];
        if (i > 0)
            rows *= tensor->dimensions[i]; /* the reader has checked that the product fits */
    }
    if (rows > UINT32_MAX || tensor->dimensions[0] > UINT32_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s: the tensor %s is too large",
                         checkpoint_path(checkpoint), printed);
    to->columns = (uint32_t)tensor->dimensions[0];
    to->rows = (uint32_t)rows;
    to->kept = tensor->type;
    to->parts[to->part_count++] =
        (struct weight_part){.type = tensor->type, .rows = to->rows, .data = tensor->data};
    return 0;
}

int quantize_list_gguf(const struct checkpoint *checkpoint, struct quantize_list *list,
                       struct gguf_writer *writer, struct fault *fault)
{
    const struct gguf *file = checkpoint_gguf(checkpoint);
    uint32_t count = checkpoint_tensor_count(checkpoint);
    int r = 0;

    for (uint64_t i = 0; i < gguf_key_count(file); i++) {
        if (!is_replaced(gguf_key_name(file, i)))
            gguf_put_key_of(writer, file, i);
    }
    list->tensors = calloc((size_t)count + 1, sizeof *list->tensors);
    if (!list->tensors)
        return fault_set(fault, E_MEMORY, "out of memory for the list of tensors");
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = add(checkpoint, checkpoint_tensor_at(checkpoint, i), list, fault);
    list->tied = !checkpoint_tensor_find(checkpoint, "output.weight");
    return r;
}

void quantize_list_fini(struct quantize_list *list)
{
    free(list->tensors);
    free(list->names);
    model_close(list->model);
    *list = (struct quantize_list){0};
}
