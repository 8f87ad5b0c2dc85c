/* gguf.c -- maps a GGUF file and checks all of it once, so that every later read is a plain load.
 *
 * The parser is a cursor that only moves forward; each read asks first whether so many bytes are
 * left, and sizes are compared by subtraction from what is left, never by adding two numbers from
 * the file. Counts are bounded by the bytes that so many entries must take at least, so nothing
 * allocated here is larger than a small multiple of the file. */
#include "engine/gguf.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    return cursor->file->bytes - cursor->at;
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
    memcpy(ret_value, cursor->file->base + cursor->at, bytes);
    cursor->at += bytes;
    return true;
}

static bool cursor_string(struct cursor *cursor, struct gguf_string *ret_string)
{
    uint64_t bytes;

    if (!cursor_take(cursor, &bytes, sizeof bytes) || bytes > cursor_left(cursor))
        return false;
    ret_string->text = (const char *)cursor->file->base + cursor->at;
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

static int compare_names(const struct gguf_string *a, const struct gguf_string *b)
{
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, shorter);

    if (order)
        return order;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

struct named_items {
    const char *items;
    size_t stride;
};

static const struct gguf_string *item_name(const struct named_items *named, uint32_t position)
{
    return (const struct gguf_string *)(const void *)(named->items + position * named->stride);
}

static int compare_positions(const void *a, const void *b, void *named)
{
    return compare_names(item_name(named, *(const uint32_t *)a),
                         item_name(named, *(const uint32_t *)b));
}

/* Sorts; a name that occurs twice is refused, because readers would differ on which one counts. */
static int index_build(struct gguf_index *index, const void *items, size_t stride, uint32_t count,
                       const struct gguf *file, const char *what, struct fault *fault)
{
    struct named_items named = {items, stride};
    char printed[PRINTED_NAME];

    index->count = count;
    index->order = malloc((count ? count : 1) * sizeof *index->order);
    if (!index->order)
        return fault_set(fault, E_MEMORY, "out of memory for the index of %s", file->path);
    for (uint32_t i = 0; i < count; i++)
        index->order[i] = i;
    if (count > 1)
        qsort_r(index->order, count, sizeof *index->order, compare_positions, &named);
    for (uint32_t i = 1; i < count; i++) {
        const struct gguf_string *name = item_name(&named, index->order[i]);

        if (compare_names(item_name(&named, index->order[i - 1]), name) == 0) {
            gguf_string_print(*name, printed, sizeof printed);
            return fault_set(fault, E_CORRUPT, "%s: broken GGUF file: %s %s occurs twice",
                             file->path, what, printed);
        }
    }
    return 0;
}

const void *gguf_index_find(const struct gguf_index *index, const void *items, size_t stride,
                            struct gguf_string name)
{
    struct named_items named = {items, stride};
    uint32_t low = 0, high = index->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t position = index->order[middle];
        int order = compare_names(&name, item_name(&named, position));

        if (order == 0)
            return named.items + position * stride;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
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
    key->value = file->base + cursor->at;
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
    key->value = file->base + cursor->at;
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
    if (data_at > file->bytes) /* a file without tensors may end before the padding */
        data_at = file->bytes;
    data_bytes = file->bytes - (size_t)data_at;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        struct gguf_tensor *tensor = &file->tensors[i];

        if (offsets[i] % alignment != 0)
            return tensor_fault(file, tensor, "is not aligned as the file says", fault);
        if (offsets[i] > data_bytes || tensor->bytes > data_bytes - offsets[i])
            return tensor_fault(file, tensor, "reaches beyond the end of the file", fault);
        tensor->data = file->base + data_at + offsets[i];
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
            file->bytes);
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

static int map_file(struct gguf *file, struct fault *fault)
{
    struct stat info;
    void *base;
    int fd, r;

    /* O_NONBLOCK: a pipe in the model's place must not hang the start. */
    fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fault_errno(fault, "cannot open %s", file->path);
    if (fstat(fd, &info) < 0) {
        r = fault_errno(fault, "cannot stat %s", file->path);
        goto out;
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        r = fault_set(fault, E_INVALID, "%s is %s, not a GGUF file", file->path,
                      S_ISDIR(info.st_mode)   ? "a folder"
                      : S_ISREG(info.st_mode) ? "empty"
                                              : "no regular file");
        goto out;
    }
    base = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED) {
        r = fault_errno(fault, "cannot map %s", file->path);
        goto out;
    }
    file->base = base;
    file->bytes = (size_t)info.st_size;
    file->mapped = true;
    r = 0;
out:
    close(fd);
    return r;
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
    r = map_file(file, fault);
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
    file->base = data;
    file->bytes = bytes;
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
    free(file->key_index.order);
    free(file->tensor_index.order);
    if (file->mapped)
        munmap((void *)(uintptr_t)file->base, file->bytes);
    free(file->path);
    free(file);
}

void gguf_rest(const struct gguf *file)
{
    if (file->mapped)
        madvise((void *)(uintptr_t)file->base, file->bytes, MADV_DONTNEED);
}

const char *gguf_path(const struct gguf *file)
{
    return file->path;
}

uint64_t gguf_bytes(const struct gguf *file)
{
    return file->bytes;
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
    return gguf_index_find(&file->tensor_index, file->tensors, sizeof *file->tensors,
                           (struct gguf_string){name, strlen(name)});
}
