/* json.c -- see json.h. */
#include "config/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Finds the first byte that opens more than JSON_DEPTH_MAX levels, without building anything:
 * jansson would recurse first and complain later. Broken JSON may pass; jansson's own complaint is
 * the better one. */
static int check_depth(const char *text, size_t bytes, struct fault *fault)
{
    size_t line = 1, line_start = 0;
    unsigned depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < bytes; i++) {
        char byte = text[i];

        if (byte == '\n') {
            line++;
            line_start = i + 1;
        } else if (in_string) {
            if (byte == '\\')
                i++;
            else if (byte == '"')
                in_string = false;
        } else if (byte == '"') {
            in_string = true;
        } else if (byte == '[' || byte == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return fault_set(
                    fault, E_INVALID,
                    "The JSON is nested more than %d levels deep at line %zu, column %zu",
                    JSON_DEPTH_MAX, line, i - line_start + 1);
        } else if ((byte == ']' || byte == '}') && depth > 0) {
            depth--;
        }
    }
    return 0;
}

static int set_fault(const json_error_t *error, struct fault *fault)
{
    const char *what = error->text;
    char text[sizeof error->text];

    if (json_error_code(error) == json_error_numeric_overflow) {
        /* jansson says "too big integer near '18446744073709551615'", which does not tell the
         * range. */
        const char *near = strstr(what, " near ");
        bool real = strstr(what, "real") != NULL;

        snprintf(text, sizeof text, "a number is too large for %s%s",
                 real ? "a double" : "a signed 64-bit integer", near ? near : "");
        what = text;
    }
    if (json_error_code(error) == json_error_null_character)
        what = "\\u0000 is not taken";
    if (json_error_code(error) == json_error_out_of_memory)
        return fault_set(fault, E_MEMORY, "Out of memory while reading JSON");
    return fault_set(fault, E_INVALID, "Invalid JSON at line %d, column %d: %s", error->line,
                     error->column, what);
}

static int parse(const char *text, size_t bytes, size_t flags, json_t **ret_value,
                 struct fault *fault)
{
    json_error_t error;
    json_t *value;
    int r;

    if (bytes == 0)
        return fault_set(fault, E_INVALID, "Invalid JSON: it is empty");
    r = check_depth(text, bytes, fault);
    if (r < 0)
        return r;
    value = json_loadb(text, bytes, JSON_DECODE_ANY | flags, &error);
    if (!value)
        return set_fault(&error, fault);
    *ret_value = value;
    return 0;
}

int json_parse(const char *text, size_t bytes, json_t **ret_value, struct fault *fault)
{
    return parse(text, bytes, 0, ret_value, fault);
}

int json_parse_unique(const char *text, size_t bytes, json_t **ret_value, struct fault *fault)
{
    return parse(text, bytes, JSON_REJECT_DUPLICATES, ret_value, fault);
}

int json_parse_with_nul(const char *text, size_t bytes, json_t **ret_value, struct fault *fault)
{
    return parse(text, bytes, JSON_ALLOW_NUL, ret_value, fault);
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fractional number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* The field's value; NULL when it is absent or null. */
static json_t *find(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return value && !json_is_null(value) ? value : NULL;
}

static int wrong(const json_t *value, const char *path, const char *key, const char *expected,
                 struct fault *fault)
{
    char field[sizeof fault->field];

    snprintf(field, sizeof field, "%s%s", path, key);
    return fault_field(fault, E_INVALID, field, "'%s' must be %s, not %s", field, expected,
                       type_name(value));
}

/* `number` is what came, `low` and `high` ("" = none) what is allowed, all as text. */
static int out_of_range(const char *path, const char *key, const char *low, const char *high,
                        const char *number, struct fault *fault)
{
    char field[sizeof fault->field];

    snprintf(field, sizeof field, "%s%s", path, key);
    if (!*high)
        return fault_field(fault, E_INVALID, field, "'%s' must be at least %s, not %s", field, low,
                           number);
    return fault_field(fault, E_INVALID, field, "'%s' must be between %s and %s, not %s", field,
                       low, high, number);
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
    /* -2^63 is a double, 2^63 - 1 is not. */
    if (real != floor(real) || real < -0x1p63 || real >= 0x1p63)
        return false;
    *ret_value = (int64_t)real;
    return true;
}

int json_get_int(const json_t *object, const char *path, const char *key, int64_t low, int64_t high,
                 int64_t *ret_value, struct fault *fault)
{
    const json_t *value = find(object, key);
    char low_text[24], high_text[24] = "", number[32];
    int64_t integer = 0;
    bool integral;

    if (!value)
        return 0;
    integral = json_integral(value, &integer);
    if (integral && integer >= low && integer <= high) {
        *ret_value = integer;
        return 1;
    }
    /* 1e30 is a whole number, only too large a one. */
    if (!integral &&
        (!json_is_real(value) || json_real_value(value) != floor(json_real_value(value))))
        return wrong(value, path, key, "an integer", fault);
    if (integral)
        snprintf(number, sizeof number, "%lld", (long long)integer);
    else
        snprintf(number, sizeof number, "%.10g", json_real_value(value));
    snprintf(low_text, sizeof low_text, "%lld", (long long)low);
    if (high != INT64_MAX || !integral)
        snprintf(high_text, sizeof high_text, "%lld", (long long)high);
    return out_of_range(path, key, low_text, high_text, number, fault);
}

int json_get_real(const json_t *object, const char *path, const char *key, double low, double high,
                  double *ret_value, struct fault *fault)
{
    const json_t *value = find(object, key);
    char low_text[32], high_text[32] = "", number[32];
    double real;

    if (!value)
        return 0;
    if (!json_is_number(value))
        return wrong(value, path, key, "a number", fault);
    real = json_number_value(value);
    if (real >= low && real <= high) {
        *ret_value = real;
        return 1;
    }
    snprintf(low_text, sizeof low_text, "%.15g", low);
    if (isfinite(high))
        snprintf(high_text, sizeof high_text, "%.15g", high);
    snprintf(number, sizeof number, "%.15g", real);
    return out_of_range(path, key, low_text, high_text, number, fault);
}

int json_get_bool(const json_t *object, const char *path, const char *key, bool *ret_value,
                  struct fault *fault)
{
    const json_t *value = find(object, key);

    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong(value, path, key, "true or false", fault);
    *ret_value = json_is_true(value);
    return 1;
}

int json_get_string(const json_t *object, const char *path, const char *key, const char **ret_text,
                    size_t *ret_bytes, struct fault *fault)
{
    const json_t *value = find(object, key);

    if (!value)
        return 0;
    if (!json_is_string(value))
        return wrong(value, path, key, "a string", fault);
    *ret_text = json_string_value(value);
    *ret_bytes = json_string_length(value);
    return 1;
}

int json_get_object(const json_t *object, const char *path, const char *key, json_t **ret_value,
                    struct fault *fault)
{
    json_t *value = find(object, key);

    if (!value)
        return 0;
    if (!json_is_object(value))
        return wrong(value, path, key, "an object", fault);
    *ret_value = value;
    return 1;
}

int json_get_array(const json_t *object, const char *path, const char *key, json_t **ret_value,
                   struct fault *fault)
{
    json_t *value = find(object, key);

    if (!value)
        return 0;
    if (!json_is_array(value))
        return wrong(value, path, key, "an array", fault);
    *ret_value = value;
    return 1;
}
