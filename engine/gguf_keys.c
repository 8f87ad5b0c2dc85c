/* gguf_keys.c -- reads metadata values by key; gguf.c has checked already that they lie inside the
 * file. */
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"
#include "engine/gguf_file.h"

enum { PRINTED_STRING = 60, PRINTED_ELEMENTS = 4, PRINTED_ELEMENT = 24 };

static const char *const type_names[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = "u8",         [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",       [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
    [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
    [GGUF_F64] = "f64",
};

struct number {
    bool integer;
    bool negative;      /* integer: the value is -(magnitude) */
    uint64_t magnitude; /* integer */
    double real;        /* always */
};

static struct number signed_number(int64_t value)
{
    return (struct number){true, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value,
                           (double)value};
}

static struct number unsigned_number(uint64_t value)
{
    return (struct number){true, false, value, (double)value};
}

/* Little-endian, as gguf.c asserts; unaligned, hence the copies. */
#define LOAD(type_, at_)                       \
    ({                                         \
        type_ value_;                          \
        memcpy(&value_, (at_), sizeof value_); \
        value_;                                \
    })

static struct number load_number(enum gguf_type type, const uint8_t *at)
{
    switch (type) {
    case GGUF_U8:
        return unsigned_number(*at);
    case GGUF_BOOL:
        return unsigned_number(*at != 0);
    case GGUF_I8:
        return signed_number(LOAD(int8_t, at));
    case GGUF_U16:
        return unsigned_number(LOAD(uint16_t, at));
    case GGUF_I16:
        return signed_number(LOAD(int16_t, at));
    case GGUF_U32:
        return unsigned_number(LOAD(uint32_t, at));
    case GGUF_I32:
        return signed_number(LOAD(int32_t, at));
    case GGUF_U64:
        return unsigned_number(LOAD(uint64_t, at));
    case GGUF_I64:
        return signed_number(LOAD(int64_t, at));
    case GGUF_F32:
        return (struct number){.real = (double)LOAD(float, at)};
    case GGUF_F64:
        return (struct number){.real = LOAD(double, at)};
    default:
        must(gguf_scalar_bytes(type) != 0);
        return (struct number){0};
    }
}

static const struct gguf_key *find(const struct gguf *file, const char *key)
{
    return name_index_find(&file->key_index, file->keys, sizeof *file->keys,
                           (struct gguf_string){key, strlen(key)});
}

static int wrong_type(const struct gguf *file, const struct gguf_key *entry, const char *key,
                      const char *wanted, struct fault *fault)
{
    return fault_set(fault, E_CORRUPT, "%s: metadata %s is of type %s, not %s", file->path, key,
                     type_names[entry->type], wanted);
}

int gguf_get_u64(const struct gguf *file, const char *key, uint64_t *ret_value, struct fault *fault)
{
    const struct gguf_key *entry = find(file, key);
    struct number number;

    if (!entry)
        return 0;
    if (entry->type == GGUF_STRING || entry->type == GGUF_ARRAY || entry->type == GGUF_BOOL ||
        entry->type == GGUF_F32 || entry->type == GGUF_F64)
        return wrong_type(file, entry, key, "an integer", fault);
    number = load_number(entry->type, entry->value);
    if (number.negative)
        return fault_set(fault, E_CORRUPT, "%s: metadata %s is negative", file->path, key);
    *ret_value = number.magnitude;
    return 1;
}

int gguf_get_f64(const struct gguf *file, const char *key, double *ret_value, struct fault *fault)
{
    const struct gguf_key *entry = find(file, key);

    if (!entry)
        return 0;
    if (entry->type == GGUF_STRING || entry->type == GGUF_ARRAY || entry->type == GGUF_BOOL)
        return wrong_type(file, entry, key, "a number", fault);
    *ret_value = load_number(entry->type, entry->value).real;
    return 1;
}

int gguf_get_bool(const struct gguf *file, const char *key, bool *ret_value, struct fault *fault)
{
    const struct gguf_key *entry = find(file, key);

    if (!entry)
        return 0;
    if (entry->type != GGUF_BOOL)
        return wrong_type(file, entry, key, "bool", fault);
    *ret_value = *entry->value != 0;
    return 1;
}

int gguf_get_string(const struct gguf *file, const char *key, struct gguf_string *ret_value,
                    struct fault *fault)
{
    const struct gguf_key *entry = find(file, key);

    if (!entry)
        return 0;
    if (entry->type != GGUF_STRING)
        return wrong_type(file, entry, key, "string", fault);
    *ret_value = (struct gguf_string){(const char *)entry->value, (size_t)entry->count};
    return 1;
}

static struct gguf_array key_array(const struct gguf *file, const struct gguf_key *entry)
{
    return (struct gguf_array){entry->element, entry->count, entry->value, entry->string_at, file};
}

int gguf_get_array(const struct gguf *file, const char *key, struct gguf_array *ret_value,
                   struct fault *fault)
{
    const struct gguf_key *entry = find(file, key);

    if (!entry)
        return 0;
    if (entry->type != GGUF_ARRAY)
        return wrong_type(file, entry, key, "an array", fault);
    *ret_value = key_array(file, entry);
    return 1;
}

struct gguf_string gguf_array_string(const struct gguf_array *array, uint64_t index)
{
    const uint8_t *at;

    must(index < array->count && array->type == GGUF_STRING);
    at = array->file->map.base + array->string_at[index];
    return (struct gguf_string){(const char *)at + sizeof(uint64_t), (size_t)LOAD(uint64_t, at)};
}

static struct number array_number(const struct gguf_array *array, uint64_t index)
{
    must(index < array->count && array->type != GGUF_STRING);
    return load_number(array->type, array->data + index * gguf_scalar_bytes(array->type));
}

int64_t gguf_array_int(const struct gguf_array *array, uint64_t index)
{
    struct number number = array_number(array, index);

    if (!number.integer) /* out of range, or no number: the nearest end, so that the conversion is
                            defined */
        return number.real >= 0x1p63    ? INT64_MAX
               : number.real >= -0x1p63 ? (int64_t)number.real
                                        : INT64_MIN;
    if (number.negative)
        return (int64_t)(0 - number.magnitude);
    return number.magnitude > INT64_MAX ? INT64_MAX : (int64_t)number.magnitude;
}

double gguf_array_real(const struct gguf_array *array, uint64_t index)
{
    return array_number(array, index).real;
}

/* --- for people ---------------------------------------------------------------------------- */

/* A control character of ASCII or of U+0080..9F. */
static bool is_control(const uint8_t *text, size_t bytes)
{
    return text[0] < 0x20 || text[0] == 0x7f || (bytes == 2 && text[0] == 0xc2 && text[1] < 0xa0);
}

void gguf_string_print(struct gguf_string string, char *ret_text, size_t room)
{
    size_t written = 0;

    for (size_t at = 0; at < string.bytes;) {
        const char *text = string.text + at;
        size_t bytes;
        bool printable = utf8_next(text, string.bytes - at, &bytes, NULL) &&
                         !is_control((const uint8_t *)text, bytes);

        at += bytes;
        if (!printable)
            bytes = 1;
        if (written + bytes >= room)
            break;
        memcpy(ret_text + written, printable ? text : "?", bytes);
        written += bytes;
    }
    ret_text[written] = '\0';
}

uint64_t gguf_key_count(const struct gguf *file)
{
    return file->key_count;
}

struct gguf_string gguf_key_name(const struct gguf *file, uint64_t index)
{
    must(index < file->key_count);
    return file->keys[index].name;
}

enum gguf_type gguf_key_raw(const struct gguf *file, uint64_t index, const void **ret_value,
                            size_t *ret_bytes)
{
    const struct gguf_key *entry;
    const uint8_t *begin, *end;

    must(index < file->key_count);
    entry = &file->keys[index];
    begin = entry->value;
    end = begin + gguf_scalar_bytes(entry->type);
    if (entry->type == GGUF_STRING) {
        begin -= sizeof(uint64_t); /* its length */
        end += entry->count;
    } else if (entry->type == GGUF_ARRAY) {
        struct gguf_array array = key_array(file, entry);

        begin -= sizeof(uint32_t) + sizeof(uint64_t); /* the elements' type and count */
        end += entry->count * gguf_scalar_bytes(entry->element);
        if (entry->element == GGUF_STRING && entry->count > 0) {
            struct gguf_string last = gguf_array_string(&array, entry->count - 1);

            end = (const uint8_t *)last.text + last.bytes;
        }
    }
    *ret_value = begin;
    *ret_bytes = (size_t)(end - begin);
    return entry->type;
}

static void print_number(enum gguf_type type, struct number number, char *ret_text, size_t room)
{
    if (type == GGUF_BOOL)
        snprintf(ret_text, room, "%s", number.magnitude ? "true" : "false");
    else if (number.integer)
        snprintf(ret_text, room, "%s%llu", number.negative ? "-" : "",
                 (unsigned long long)number.magnitude);
    else
        snprintf(ret_text, room, "%.7g", number.real);
}

/* "12 x f32 [1, 2, 3, 4, ...]" */
static void print_array(const struct gguf_array *array, char *ret_text, size_t room)
{
    size_t used;

    snprintf(ret_text, room, "%llu x %s [", (unsigned long long)array->count,
             type_names[array->type]);
    for (uint64_t i = 0; i < array->count && i < PRINTED_ELEMENTS; i++) {
        char element[PRINTED_ELEMENT];

        if (array->type == GGUF_STRING)
            gguf_string_print(gguf_array_string(array, i), element, sizeof element);
        else
            print_number(array->type, array_number(array, i), element, sizeof element);
        used = strlen(ret_text);
        snprintf(ret_text + used, room - used, "%s%s", i ? ", " : "", element);
    }
    used = strlen(ret_text);
    snprintf(ret_text + used, room - used, "%s]", array->count > PRINTED_ELEMENTS ? ", ..." : "");
}

void gguf_key_print(const struct gguf *file, uint64_t index, char *ret_text, size_t room)
{
    const struct gguf_key *entry;

    must(index < file->key_count && room > 0);
    entry = &file->keys[index];
    if (entry->type == GGUF_ARRAY) {
        struct gguf_array array = key_array(file, entry);

        print_array(&array, ret_text, room);
    } else if (entry->type == GGUF_STRING) {
        bool cut = entry->count > PRINTED_STRING;
        size_t used;

        gguf_string_print((struct gguf_string){(const char *)entry->value,
                                               cut ? PRINTED_STRING : (size_t)entry->count},
                          ret_text, room);
        used = strlen(ret_text);
        snprintf(ret_text + used, room - used, "%s", cut ? "..." : "");
    } else {
        print_number(entry->type, load_number(entry->type, entry->value), ret_text, room);
    }
}
