/* json.c -- depth scan, parse, and typed fields. */
#include "config/base/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* jansson recurses; so the depth is counted first, by brackets outside strings. Returns the byte
 * where the document gets too deep, or `bytes`. */
static size_t too_deep_at(const char *text, size_t bytes)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == '[' || text[i] == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return i;
        } else if (text[i] == ']' || text[i] == '}') {
            depth--;
        }
    }
    return bytes;
}

static void line_and_column(const char *text, size_t at, int *ret_line, int *ret_column)
{
    int line = 1, column = 1;

    for (size_t i = 0; i < at; i++) {
        column++;
        if (text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    *ret_line = line;
    *ret_column = column;
}

int json_parse(const char *text, size_t bytes, json_t **ret_value, struct fault *fault)
{
    size_t deep_at = too_deep_at(text, bytes);
    json_error_t error;
    json_t *value;
    int line, column;

    if (deep_at < bytes) {
        line_and_column(text, deep_at, &line, &column);
        return fault_set(fault, E_INVALID,
                         "The JSON is nested more than %d levels deep at line %d, column %d.",
                         JSON_DEPTH_MAX, line, column);
    }
    value = json_loadb(text, bytes, JSON_DECODE_ANY, &error);
    if (!value && json_error_code(&error) == json_error_out_of_memory)
        return fault_set(fault, E_MEMORY, "There is no memory left to read the JSON.");
    if (!value)
        return fault_set(fault, E_INVALID, "The JSON is not valid at line %d, column %d: %.200s.",
                         error.line, error.column, error.text);
    *ret_value = value;
    return 0;
}

bool json_integral(const json_t *value, int64_t *ret_value)
{
    double real;

    if (json_is_integer(value)) {
        *ret_value = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value))
        return false;
    real = json_real_value(value);
    /* 2^63 itself is out; both bounds are exact doubles. */
    if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0) || real != trunc(real))
        return false;
    *ret_value = (int64_t)real;
    return true;
}

/* The field's full name and value; false when absent or null. */
static bool find_field(const json_t *object, const char *path, const char *key, char *ret_name,
                       size_t room, json_t **ret_value)
{
    json_t *value = json_object_get(object, key);

    if (!value || json_is_null(value))
        return false;
    snprintf(ret_name, room, "%s%s", path, key);
    *ret_value = value;
    return true;
}

enum { NAME_BYTES = 64 };

int json_get_int(const json_t *object, const char *path, const char *key, int64_t low, int64_t high,
                 int64_t *ret_value, struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;
    int64_t number;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_integral(value, &number))
        return fault_field(fault, E_INVALID, name, "`%s` must be an integer.", name);
    if (number < low || number > high) {
        if (high == INT64_MAX)
            return fault_field(fault, E_INVALID, name, "`%s` must be at least %lld, not %lld.",
                               name, (long long)low, (long long)number);
        return fault_field(fault, E_INVALID, name, "`%s` must be from %lld to %lld, not %lld.",
                           name, (long long)low, (long long)high, (long long)number);
    }
    *ret_value = number;
    return 1;
}

int json_get_real(const json_t *object, const char *path, const char *key, double low, double high,
                  double *ret_value, struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;
    double number;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_is_number(value))
        return fault_field(fault, E_INVALID, name, "`%s` must be a number.", name);
    number = json_number_value(value);
    if (!(number >= low && number <= high))
        return fault_field(fault, E_INVALID, name, "`%s` must be from %g to %g, not %g.", name, low,
                           high, number);
    *ret_value = number;
    return 1;
}

int json_get_bool(const json_t *object, const char *path, const char *key, bool *ret_value,
                  struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_is_boolean(value))
        return fault_field(fault, E_INVALID, name, "`%s` must be true or false.", name);
    *ret_value = json_is_true(value);
    return 1;
}

int json_get_string(const json_t *object, const char *path, const char *key, const char **ret_text,
                    size_t *ret_bytes, struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_is_string(value))
        return fault_field(fault, E_INVALID, name, "`%s` must be a string.", name);
    *ret_text = json_string_value(value);
    *ret_bytes = json_string_length(value);
    return 1;
}

int json_get_object(const json_t *object, const char *path, const char *key, json_t **ret_value,
                    struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_is_object(value))
        return fault_field(fault, E_INVALID, name, "`%s` must be an object.", name);
    *ret_value = value;
    return 1;
}

int json_get_array(const json_t *object, const char *path, const char *key, json_t **ret_value,
                   struct fault *fault)
{
    char name[NAME_BYTES];
    json_t *value;

    if (!find_field(object, path, key, name, sizeof name, &value))
        return 0;
    if (!json_is_array(value))
        return fault_field(fault, E_INVALID, name, "`%s` must be an array.", name);
    *ret_value = value;
    return 1;
}
