/* safetensors.c -- see safetensors.h.
 *
 * The header is bounded before it is parsed, and the tree that the parser makes lives only while
 * the file is opened. Offsets and sizes are 64-bit numbers from outside: they are compared by
 * subtraction and multiplied with overflow checks. */
#include "engine/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/file_map.h"
#include "engine/gguf.h"

enum {
    LENGTH_BYTES = 8,
    HEADER_BYTES_MAX = 32 << 20, /* some 200,000 tensors; real ones have at most some thousand */
    TENSORS_MAX = 1 << 20,
    PRINTED_NAME = 120, /* room for a name in a message */
};

struct safetensors {
    char *path;
    struct file_map map;
    const uint8_t *data; /* after the header */
    uint64_t data_bytes;
    char *names; /* one after the other */
    struct stored_tensor *tensors;
    uint32_t count;
};

/* The formats of safetensors' dtype.rs whose elements are whole bytes. */
static const struct format {
    const char *name;
    uint32_t bytes; /* of an element */
    bool known;
    enum dtype type;
} formats[] = {
    {"F32", 4, true, DT_F32},      {"F16", 2, true, DT_F16},      {"BF16", 2, true, DT_BF16},
    {"BOOL", 1, false, DT_F32},    {"U8", 1, false, DT_F32},      {"I8", 1, false, DT_F32},
    {"F8_E5M2", 1, false, DT_F32}, {"F8_E4M3", 1, false, DT_F32}, {"F8_E8M0", 1, false, DT_F32},
    {"I16", 2, false, DT_F32},     {"U16", 2, false, DT_F32},     {"I32", 4, false, DT_F32},
    {"U32", 4, false, DT_F32},     {"F64", 8, false, DT_F32},     {"I64", 8, false, DT_F32},
    {"U64", 8, false, DT_F32},     {"C64", 8, false, DT_F32},
};

/* What reading the header needs besides the file. */
struct reading {
    struct safetensors *file;
    size_t names_used;
    struct fault *fault;
};

static int tensor_fault(const struct safetensors *file, struct gguf_string name,
                        struct fault *fault, int code, const char *what)
{
    char printed[PRINTED_NAME];

    gguf_string_print(name, printed, sizeof printed);
    return fault_set(fault, code, "%s: the tensor %s %s", file->path, printed, what);
}

/* --- one tensor's entry -------------------------------------------------------------------- */

static int read_format(const struct reading *reading, const json_t *entry,
                       struct stored_tensor *tensor, uint32_t *ret_bytes)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    char what[96];

    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++) {
        const struct format *format = &formats[i];

        if (strcmp(name, format->name) != 0)
            continue;
        snprintf(tensor->format, sizeof tensor->format, "%s", name);
        tensor->known = format->known;
        tensor->type = format->type;
        *ret_bytes = format->bytes;
        return 0;
    }
    if (!name)
        return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT,
                            "has no 'dtype' that is a text");
    snprintf(what, sizeof what, "has the dtype \"%.40s\", which is not known here", name);
    return tensor_fault(reading->file, tensor->name, reading->fault, E_UNSUPPORTED, what);
}

/* The number of elements. */
static int read_shape(const struct reading *reading, const json_t *entry,
                      struct stored_tensor *tensor, uint64_t *ret_elements)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t count = json_array_size(shape);
    uint64_t elements = 1;

    if (!json_is_array(shape))
        return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT,
                            "has no 'shape' that is a list");
    if (count > TENSOR_DIMENSIONS_MAX)
        return tensor_fault(reading->file, tensor->name, reading->fault, E_UNSUPPORTED,
                            "has more than 8 dimensions");
    tensor->dimension_count = (uint32_t)count;
    for (size_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++) {
        int64_t size = 1;

        if (i < count && (!json_integral(json_array_get(shape, count - 1 - i), &size) || size < 0))
            return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT,
                                "has a 'shape' with something that is no size");
        tensor->dimensions[i] = (uint64_t)size;
        if (__builtin_mul_overflow(elements, (uint64_t)size, &elements))
            return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT,
                                "has a size beyond counting");
    }
    *ret_elements = elements;
    return 0;
}

static int read_place(const struct reading *reading, const json_t *entry,
                      struct stored_tensor *tensor, uint64_t wanted)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t begin, end;
    char what[160];

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !json_integral(json_array_get(offsets, 0), &begin) ||
        !json_integral(json_array_get(offsets, 1), &end) || begin < 0 || end < begin)
        return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT,
                            "has no 'data_offsets' that are a begin and an end");
    if ((uint64_t)end > reading->file->data_bytes) {
        snprintf(what, sizeof what,
                 "ends at byte %llu of the data, but the file has only %llu bytes of data",
                 (unsigned long long)end, (unsigned long long)reading->file->data_bytes);
        return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT, what);
    }
    tensor->bytes = (uint64_t)(end - begin);
    if (tensor->bytes != wanted) {
        snprintf(what, sizeof what, "takes %llu bytes, but its shape and dtype %s want %llu",
                 (unsigned long long)tensor->bytes, tensor->format, (unsigned long long)wanted);
        return tensor_fault(reading->file, tensor->name, reading->fault, E_CORRUPT, what);
    }
    tensor->data = reading->file->data + begin;
    return 0;
}

static int read_tensor(struct reading *reading, const char *key, const json_t *entry)
{
    struct safetensors *file = reading->file;
    struct stored_tensor *tensor = &file->tensors[file->count];
    uint64_t elements = 0, wanted;
    size_t bytes = strlen(key);
    uint32_t element_bytes = 0;
    int r;

    memcpy(file->names + reading->names_used, key, bytes);
    tensor->name = (struct gguf_string){file->names + reading->names_used, bytes};
    reading->names_used += bytes;
    if (!json_is_object(entry))
        return tensor_fault(file, tensor->name, reading->fault, E_CORRUPT,
                            "is described by something that is no object");
    r = read_format(reading, entry, tensor, &element_bytes);
    if (r < 0)
        return r;
    r = read_shape(reading, entry, tensor, &elements);
    if (r < 0)
        return r;
    if (__builtin_mul_overflow(elements, element_bytes, &wanted))
        return tensor_fault(file, tensor->name, reading->fault, E_CORRUPT,
                            "has a size beyond counting");
    r = read_place(reading, entry, tensor, wanted);
    if (r == 0)
        file->count++;
    return r;
}

/* --- all of them --------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct stored_tensor *one = a, *other = b;

    if (one->data != other->data)
        return one->data < other->data ? -1 : 1;
    return (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

/* By place; each begins where the one before it ends, and the last one ends with the file. */
static int check_places(const struct safetensors *file, struct fault *fault)
{
    const uint8_t *at = file->data;
    char what[PRINTED_NAME + 96], other[PRINTED_NAME];

    if (file->count > 1)
        qsort(file->tensors, file->count, sizeof *file->tensors, compare_places);
    for (uint32_t i = 0; i < file->count; i++) {
        const struct stored_tensor *tensor = &file->tensors[i];
        const uint8_t *begin = tensor->data;

        if (begin < at) {
            gguf_string_print(file->tensors[i - 1].name, other, sizeof other);
            snprintf(what, sizeof what, "overlaps the tensor %s", other);
            return tensor_fault(file, tensor->name, fault, E_CORRUPT, what);
        }
        if (begin > at) {
            snprintf(what, sizeof what, "begins after %llu bytes that belong to no tensor",
                     (unsigned long long)(begin - at));
            return tensor_fault(file, tensor->name, fault, E_CORRUPT, what);
        }
        at += tensor->bytes;
    }
    if (at != file->data + file->data_bytes)
        return fault_set(fault, E_CORRUPT, "%s: %llu bytes after the last tensor belong to no one",
                         file->path, (unsigned long long)(file->data + file->data_bytes - at));
    return 0;
}

/* Is it an object of texts, as the format wants? */
static bool is_metadata(const json_t *value)
{
    const char *key;
    json_t *text;

    if (!json_is_object(value))
        return false;
    json_object_foreach((json_t *)value, key, text)
    {
        if (!json_is_string(text))
            return false;
    }
    return true;
}

static int read_tensors(struct reading *reading, json_t *root)
{
    struct safetensors *file = reading->file;
    const char *key;
    json_t *entry;
    int r;

    if (!json_is_object(root))
        return fault_set(reading->fault, E_CORRUPT, "%s: the header is no JSON object", file->path);
    if (json_object_size(root) > TENSORS_MAX)
        return fault_set(reading->fault, E_TOO_LARGE, "%s holds more than %d tensors", file->path,
                         TENSORS_MAX);
    file->tensors = calloc(json_object_size(root) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return fault_set(reading->fault, E_MEMORY, "out of memory for the tensors of %s",
                         file->path);
    json_object_foreach(root, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if (!is_metadata(entry))
                return fault_set(reading->fault, E_CORRUPT,
                                 "%s: '__metadata__' is no object of texts", file->path);
            continue;
        }
        r = read_tensor(reading, key, entry);
        if (r < 0)
            return r;
    }
    return check_places(file, reading->fault);
}

static int parse(struct safetensors *file, struct fault *fault)
{
    struct reading reading = {.file = file, .fault = fault};
    json_t *root = NULL;
    uint64_t length = 0;
    const char *header;
    int r;

    if (file->map.bytes < LENGTH_BYTES + 2)
        return fault_set(fault, E_CORRUPT, "%s is not a safetensors file: it has only %zu bytes",
                         file->path, file->map.bytes);
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)file->map.base[i] << 8 * i;
    header = (const char *)file->map.base + LENGTH_BYTES;
    if (length > file->map.bytes - LENGTH_BYTES || length < 2 || header[0] != '{')
        return fault_set(fault, E_CORRUPT,
                         "%s is not a safetensors file, or it was cut: its first bytes say that "
                         "the header has %llu bytes of %zu",
                         file->path, (unsigned long long)length, file->map.bytes);
    if (length > HEADER_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s: the header has %llu bytes; at most %d are read",
                         file->path, (unsigned long long)length, HEADER_BYTES_MAX);
    file->data = file->map.base + LENGTH_BYTES + length;
    file->data_bytes = file->map.bytes - LENGTH_BYTES - length;
    file->names = malloc((size_t)length); /* all names are in the header */
    if (!file->names)
        return fault_set(fault, E_MEMORY, "out of memory for the names in %s", file->path);
    r = json_parse_unique(header, (size_t)length, &root, fault);
    if (r < 0) {
        fault_prefix(fault, "%s: the header", file->path);
        return r == E_INVALID && fault ? (fault->code = E_CORRUPT) : r;
    }
    r = read_tensors(&reading, root);
    json_decref(root);
    return r;
}

/* --- the file ------------------------------------------------------------------------------ */

static struct safetensors *file_new(const char *path)
{
    struct safetensors *file = calloc(1, sizeof *file);

    if (file)
        file->path = strdup(path);
    if (file && !file->path) {
        free(file);
        return NULL;
    }
    return file;
}

int safetensors_open(const char *path, struct safetensors **ret_file, struct fault *fault)
{
    struct safetensors *file = file_new(path);
    int r;

    if (!file)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", path);
    r = file_map_open(path, "a safetensors file", &file->map, fault);
    if (r == 0)
        r = parse(file, fault);
    if (r < 0) {
        safetensors_close(file);
        return r;
    }
    *ret_file = file;
    return 0;
}

int safetensors_open_memory(const void *data, size_t bytes, const char *name,
                            struct safetensors **ret_file, struct fault *fault)
{
    struct safetensors *file = file_new(name);
    int r;

    if (!file)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", name);
    file->map = (struct file_map){.base = data, .bytes = bytes, .borrowed = true};
    r = parse(file, fault);
    if (r < 0) {
        safetensors_close(file);
        return r;
    }
    *ret_file = file;
    return 0;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    free(file->tensors);
    free(file->names);
    file_map_close(&file->map);
    free(file->path);
    free(file);
}

void safetensors_rest(const struct safetensors *file)
{
    file_map_rest(&file->map);
}

const char *safetensors_path(const struct safetensors *file)
{
    return file->path;
}

uint64_t safetensors_bytes(const struct safetensors *file)
{
    return file->map.bytes;
}

uint32_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct stored_tensor *safetensors_at(const struct safetensors *file, uint32_t index)
{
    must(index < file->count);
    return &file->tensors[index];
}
