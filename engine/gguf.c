/* gguf.c -- maps a GGUF file and checks all of it once, so that every later read is a plain load.
 *
 * The parser is a cursor that only moves forward; each read asks first whether so many bytes are
 * left, and sizes are compared by subtraction from what is left, never by adding two numbers from
 * the file. Counts are bounded by the bytes that so many entries must take at least, so nothing
 * allocated here is larger than a small multiple of the file. */
#include "engine/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "engine/gguf_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are read as they lie in the file");

enum {
    GGUF_KEYS_MAX = 1 << 16,
    GGUF_TENSORS_MAX = 1 << 20,
    GGUF_KEY_BYTES_MIN = 8 + 1 + 4 + 1, /* name length, name, type, value */
    GGUF_TENSOR_BYTES_MIN =
        8 + 1 + 4 + 8 + 4 + 8,   /* name, dimension count, one dimension, type, offset */
    GGUF_NAME_BYTES_MAX = 65535, /* of keys, by the format */
    GGUF_ALIGNMENT_DEFAULT = 32,
    GGUF_ALIGNMENT_MIN = 8, /* by the format; floats in the file can then be read in place */
    GGUF_ALIGNMENT_MAX = 1 << 16,
    PRINTED_NAME = 96, /* room for a name in a message */
};

struct cursor {
    const struct gguf *file;
    size_t at;
};

static size_t cursor_left(const struct cursor *cursor)
{
    return cursor->file->map.bytes - cursor->at;
}

static bool cursor_skip(struct cursor *cursor, uint64_t bytes)
{
    if (bytes > cursor_left(cursor))
        return false;
    cursor->at += (size_t)bytes;
    return true;
}

static bool cursor_take(struct cursor *cursor, void *ret_value, size_t bytes)
{
    if (bytes > cursor_left(cursor))
        return false;
    memcpy(ret_value, cursor->file->map.base + cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

static bool cursor_string(struct cursor *cursor, struct gguf_string *ret_string)
{
    uint64_t bytes;

    if (!cursor_take(cursor, &bytes, sizeof bytes) || bytes > cursor_left(cursor))
        return false;
    ret_string->text = (const char *)cursor->file->map.base + cursor->at;
    ret_string->bytes = (size_t)bytes;
    cursor->at += (size_t)bytes;
    return true;
}

static int ends_inside(const struct gguf *file, struct fault *fault, const char *what,
                       uint64_t index)
{
    return fault_set(fault, E_CORRUPT,
                     "%s: broken GGUF file: it ends inside %s %llu, or a length there is wrong",
                     file->path, what, (unsigned long long)index);
}

size_t gguf_scalar_bytes(enum gguf_type type)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };

    return bytes[type];
}

/* --- names --------------------------------------------------------------------------------- */

/* A name that occurs twice is refused, because readers would differ on which one counts. */
static int index_build(struct name_index *index, const void *items, size_t stride, uint32_t count,
                       const struct gguf *file, const char *what, struct fault *fault)
{
    char printed[PRINTED_NAME];
    uint32_t twice;
    int r = name_index_build(index, items, stride, count, &twice);

    if (r < 0)
        return fault_set(fault, r, "out of memory for the index of %s", file->path);
    if (r == 0)
        return 0;
    gguf_string_print(
        *(const struct gguf_string *)(const void *)((const char *)items + twice * stride), printed,
        sizeof printed);
    return fault_set(fault, E_CORRUPT, "%s: broken GGUF file: %s %s occurs twice", file->path, what,
                     printed);
}

/* --- metadata ------------------------------------------------------------------------------ */

static int read_array(struct gguf *file, struct cursor *cursor, uint32_t index, struct fault *fault)
{
    struct gguf_key *key = &file->keys[index];
    uint32_t element;
    size_t scalar;

    if (!cursor_take(cursor, &element, sizeof element) ||
        !cursor_take(cursor, &key->count, sizeof key->count))
        return ends_inside(file, fault, "metadata entry", index);
    if (element >= GGUF_TYPE_COUNT || element == GGUF_ARRAY)
        return fault_set(fault, element == GGUF_ARRAY ? E_UNSUPPORTED : E_CORRUPT,
                         "%s: metadata entry %u is an array of %s", file->path, index,
                         element == GGUF_ARRAY ? "arrays" : "an unknown type");
    key->element = (enum gguf_type)element;
    key->value = file->map.base + cursor->at;
    scalar = gguf_scalar_bytes(key->element);
    if (scalar) {
        if (key->count > cursor_left(cursor) / scalar || !cursor_skip(cursor, key->count * scalar))
            return ends_inside(file, fault, "metadata entry", index);
        return 0;
    }
    if (key->count > cursor_left(cursor) / sizeof(uint64_t))
        return ends_inside(file, fault, "metadata entry", index);
    key->string_at = malloc((size_t)(key->count ? key->count : 1) * sizeof *key->string_at);
    if (!key->string_at)
        return fault_set(fault, E_MEMORY, "out of memory for the metadata of %s", file->path);
    for (uint64_t i = 0; i < key->count; i++) {
        struct gguf_string string;

        key->string_at[i] = cursor->at;
        if (!cursor_string(cursor, &string))
            return ends_inside(file, fault, "metadata entry", index);
    }
    return 0;
}

static int read_key(struct gguf *file, struct cursor *cursor, uint32_t index, struct fault *fault)
{
    struct gguf_key *key = &file->keys[index];
    struct gguf_string string;
    uint32_t type;

    if (!cursor_string(cursor, &key->name) || !cursor_take(cursor, &type, sizeof type))
        return ends_inside(file, fault, "metadata entry", index);
    if (key->name.bytes == 0 || key->name.bytes > GGUF_NAME_BYTES_MAX)
        return fault_set(fault, E_CORRUPT,
                         "%s: broken GGUF file: metadata entry %u has a name of %zu bytes",
                         file->path, index, key->name.bytes);
    if (type >= GGUF_TYPE_COUNT)
        return fault_set(fault, E_CORRUPT,
                         "%s: broken GGUF file: metadata entry %u has the unknown type %u",
                         file->path, index, type);
    key->type = (enum gguf_type)type;
    if (key->type == GGUF_ARRAY)
        return read_array(file, cursor, index, fault);
    key->value = file->map.base + cursor->at;
    if (key->type == GGUF_STRING) {
        if (!cursor_string(cursor, &string))
            return ends_inside(file, fault, "metadata entry", index);
        key->value = (const uint8_t *)string.text;
        key->count = string.bytes;
        return 0;
    }
    if (!cursor_skip(cursor, gguf_scalar_bytes(key->type)))
        return ends_inside(file, fault, "metadata entry", index);
    return 0;
}

static int read_alignment(const struct gguf *file, uint64_t *ret_alignment, struct fault *fault)
{
    uint64_t alignment = GGUF_ALIGNMENT_DEFAULT;
    int r = gguf_get_u64(file, "general.alignment", &alignment, fault);

    if (r < 0)
        return r;
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > GGUF_ALIGNMENT_MAX ||
        (alignment & (alignment - 1)) != 0)
        return fault_set(fault, E_CORRUPT,
                         "%s: general.alignment is %llu; it must be a power of two from %d to %d",
                         file->path, (unsigned long long)alignment, GGUF_ALIGNMENT_MIN,
                         GGUF_ALIGNMENT_MAX);
    *ret_alignment = alignment;
    return 0;
}

/* --- tensors ------------------------------------------------------------------------------- */

static int tensor_fault(const struct gguf *file, const struct gguf_tensor *tensor, const char *why,
                        struct fault *fault)
{
    char printed[PRINTED_NAME];

    gguf_string_print(tensor->name, printed, sizeof printed);
    return fault_set(fault, E_CORRUPT, "%s: broken GGUF file: tensor %s %s", file->path, printed,
                     why);
}

/* Everything of a tensor's entry but where its data lies, which is known only after the last entry.
 */
static int read_tensor(struct gguf *file, struct cursor *cursor, uint32_t index,
                       uint64_t *ret_offset, struct fault *fault)
{
    struct gguf_tensor *tensor = &file->tensors[index];
    uint64_t elements = 1;

    if (!cursor_string(cursor, &tensor->name) ||
        !cursor_take(cursor, &tensor->dimension_count, sizeof tensor->dimension_count))
        return ends_inside(file, fault, "tensor entry", index);
    if (tensor->name.bytes == 0 || tensor->name.bytes > GGUF_NAME_BYTES_MAX)
        return tensor_fault(file, tensor, "has no usable name", fault);
    if (tensor->dimension_count == 0 || tensor->dimension_count > GGUF_DIMENSIONS_MAX)
        return tensor_fault(file, tensor, "does not have 1 to 4 dimensions", fault);
    for (uint32_t i = 0; i < GGUF_DIMENSIONS_MAX; i++) {
        tensor->dimensions[i] = 1;
        if (i >= tensor->dimension_count)
            continue;
        if (!cursor_take(cursor, &tensor->dimensions[i], sizeof tensor->dimensions[i]))
            return ends_inside(file, fault, "tensor entry", index);
        if (tensor->dimensions[i] == 0 ||
            __builtin_mul_overflow(elements, tensor->dimensions[i], &elements))
            return tensor_fault(file, tensor, "has a size of zero or beyond counting", fault);
    }
    if (!cursor_take(cursor, &tensor->code, sizeof tensor->code) ||
        !cursor_take(cursor, ret_offset, sizeof *ret_offset))
        return ends_inside(file, fault, "tensor entry", index);
    tensor->known = dtype_from_gguf(tensor->code, &tensor->type);
    if (!tensor->known)
        return 0;
    if (tensor->dimensions[0] % dtype_get(tensor->type)->block != 0)
        return tensor_fault(file, tensor, "has rows that are not whole blocks of its type", fault);
    tensor->bytes = dtype_bytes(tensor->type, elements);
    if (tensor->bytes == 0)
        return tensor_fault(file, tensor, "has a size beyond counting", fault);
    return 0;
}

static int place_tensors(struct gguf *file, size_t entries_end, const uint64_t *offsets,
                         struct fault *fault)
{
    uint64_t alignment = 0, data_at;
    size_t data_bytes;
    int r;

    r = read_alignment(file, &alignment, fault);
    if (r < 0)
        return r;
    data_at = (entries_end + alignment - 1) & ~(alignment - 1);
    if (data_at > file->map.bytes) /* a file without tensors may end before the padding */
        data_at = file->map.bytes;
    data_bytes = file->map.bytes - (size_t)data_at;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        struct gguf_tensor *tensor = &file->tensors[i];

        if (offsets[i] % alignment != 0)
            return tensor_fault(file, tensor, "is not aligned as the file says", fault);
        if (offsets[i] > data_bytes || tensor->bytes > data_bytes - offsets[i])
            return tensor_fault(file, tensor, "reaches beyond the end of the file", fault);
        tensor->data = file->map.base + data_at + offsets[i];
    }
    return 0;
}

static int read_tensors(struct gguf *file, struct cursor *cursor, struct fault *fault)
{
    uint64_t *offsets;
    int r = 0;

    file->tensors = calloc(file->tensor_count + 1, sizeof *file->tensors);
    offsets = calloc(file->tensor_count + 1, sizeof *offsets);
    if (!file->tensors || !offsets) {
        r = fault_set(fault, E_MEMORY, "out of memory for the tensors of %s", file->path);
        goto out;
    }
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        r = read_tensor(file, cursor, i, &offsets[i], fault);
        if (r < 0)
            goto out;
    }
    r = index_build(&file->tensor_index, file->tensors, sizeof *file->tensors, file->tensor_count,
                    file, "tensor", fault);
    if (r < 0)
        goto out;
    r = place_tensors(file, cursor->at, offsets, fault);
out:
    free(offsets);
    return r;
}

/* --- the file ------------------------------------------------------------------------------ */

static int read_header(struct gguf *file, struct cursor *cursor, struct fault *fault)
{
    uint64_t tensor_count, key_count;
    uint32_t magic;

    if (!cursor_take(cursor, &magic, sizeof magic) || magic != 0x46554747u) /* "GGUF" */
        return fault_set(fault, E_CORRUPT, "%s is not a GGUF file: it does not begin with \"GGUF\"",
                         file->path);
    if (!cursor_take(cursor, &file->version, sizeof file->version))
        return ends_inside(file, fault, "header field", 1);
    if (file->version < 2 || file->version > 3)
        return fault_set(fault, E_UNSUPPORTED,
                         "%s: GGUF version %u is not read here, only 2 and 3%s", file->path,
                         file->version,
                         file->version & 0xffff ? "" : " (this file seems to be big-endian)");
    if (!cursor_take(cursor, &tensor_count, sizeof tensor_count) ||
        !cursor_take(cursor, &key_count, sizeof key_count))
        return ends_inside(file, fault, "header field", 2);
    if (tensor_count > GGUF_TENSORS_MAX || key_count > GGUF_KEYS_MAX ||
        tensor_count > cursor_left(cursor) / GGUF_TENSOR_BYTES_MIN ||
        key_count > cursor_left(cursor) / GGUF_KEY_BYTES_MIN)
        return fault_set(
            fault, E_CORRUPT,
            "%s: broken GGUF file: %llu tensors and %llu metadata entries cannot be in %zu bytes",
            file->path, (unsigned long long)tensor_count, (unsigned long long)key_count,
            file->map.bytes);
    file->tensor_count = (uint32_t)tensor_count;
    file->key_count = (uint32_t)key_count;
    return 0;
}

static int parse(struct gguf *file, struct fault *fault)
{
    struct cursor cursor = {file, 0};
    int r;

    r = read_header(file, &cursor, fault);
    if (r < 0)
        return r;
    file->keys = calloc(file->key_count + 1, sizeof *file->keys);
    if (!file->keys)
        return fault_set(fault, E_MEMORY, "out of memory for the metadata of %s", file->path);
    for (uint32_t i = 0; i < file->key_count; i++) {
        r = read_key(file, &cursor, i, fault);
        if (r < 0)
            return r;
    }
    r = index_build(&file->key_index, file->keys, sizeof *file->keys, file->key_count, file,
                    "metadata key", fault);
    if (r < 0)
        return r;
    return read_tensors(file, &cursor, fault);
}

static struct gguf *file_new(const char *path)
{
    struct gguf *file = calloc(1, sizeof *file);

    if (!file)
        return NULL;
    file->path = strdup(path);
    if (!file->path) {
        free(file);
        return NULL;
    }
    return file;
}

int gguf_open(const char *path, struct gguf **ret_file, struct fault *fault)
{
    struct gguf *file = file_new(path);
    int r;

    if (!file)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", path);
    r = file_map_open(file->path, "a GGUF file", &file->map, fault);
    if (r < 0)
        goto out;
    r = parse(file, fault);
    if (r < 0)
        goto out;
    *ret_file = file;
    file = NULL;
out:
    gguf_close(file);
    return r;
}

int gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **ret_file,
                     struct fault *fault)
{
    struct gguf *file = file_new(name);
    int r;

    must((uintptr_t)data % 16 == 0);
    if (!file)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", name);
    file->map = (struct file_map){.base = data, .bytes = bytes, .borrowed = true};
    r = parse(file, fault);
    if (r < 0)
        goto out;
    *ret_file = file;
    file = NULL;
out:
    gguf_close(file);
    return r;
}

void gguf_close(struct gguf *file)
{
    if (!file)
        return;
    for (uint32_t i = 0; file->keys && i < file->key_count; i++)
        free(file->keys[i].string_at);
    free(file->keys);
    free(file->tensors);
    name_index_close(&file->key_index);
    name_index_close(&file->tensor_index);
    file_map_close(&file->map);
    free(file->path);
    free(file);
}

void gguf_rest(const struct gguf *file)
{
    file_map_rest(&file->map);
}

const char *gguf_path(const struct gguf *file)
{
    return file->path;
}

uint64_t gguf_bytes(const struct gguf *file)
{
    return file->map.bytes;
}

uint32_t gguf_version(const struct gguf *file)
{
    return file->version;
}

uint64_t gguf_tensor_count(const struct gguf *file)
{
    return file->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, uint64_t index)
{
    must(index < file->tensor_count);
    return &file->tensors[index];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name)
{
    return name_index_find(&file->tensor_index, file->tensors, sizeof *file->tensors,
                           (struct gguf_string){name, strlen(name)});
}
