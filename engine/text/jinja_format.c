/* jinja_format.c -- '%s' % x and '{}'.format(x), as Python formats.
 *
 *     {name.member[0]!r:*>+#010,.3f}     field, conversion, then fill, align, sign, alternate form,
 *                                        zero, width, grouping, precision, type */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { WIDTH_MAX = 1 << 16, PRECISION_MAX = 300, DIGITS_ROOM = 1024, BRACES_NESTED_MAX = 2 };

struct spec {
    uint32_t fill; /* 0: a blank, or a zero */
    char align;    /* one of <>=^, or 0 */
    char sign;     /* one of +- and blank */
    bool alternate;
    bool zero;
    int64_t width;
    char group;         /* ',' or '_', or 0 */
    int64_t precision;  /* -1: none */
    int64_t digits_min; /* of an integer: '%.3d' */
    char type;          /* or 0 */
};

/* --- reading a specification ------------------------------------------------------------------ */

static int read_width(struct run *run, const char **at, const char *end, int64_t max,
                      int64_t *ret_width)
{
    int64_t width = 0;

    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        width = width * 10 + (**at - '0');
        if (width > max)
            return run_fault(run, E_TOO_LARGE, "a width or precision is more than %lld",
                             (long long)max);
    }
    *ret_width = width;
    return 0;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static int read_spec(struct run *run, const struct text *text, struct spec *ret_spec)
{
    const char *at = text->data, *end = at + text->bytes;
    struct spec spec = {.precision = -1};
    size_t bytes;

    if (at < end) {
        uint32_t fill = char_decode(at, &bytes);

        if (at + bytes < end && is_align(at[bytes])) {
            spec.fill = fill;
            spec.align = at[bytes];
            at += bytes + 1;
        } else if (is_align(*at)) {
            spec.align = *at++;
        }
    }
    if (at < end && (*at == '+' || *at == '-' || *at == ' '))
        spec.sign = *at++;
    at += at < end && *at == 'z';
    if (at < end && *at == '#') {
        spec.alternate = true;
        at++;
    }
    if (at < end && *at == '0') {
        spec.zero = true;
        at++;
    }
    if (read_width(run, &at, end, WIDTH_MAX, &spec.width) < 0)
        return E_TOO_LARGE;
    if (at < end && (*at == ',' || *at == '_'))
        spec.group = *at++;
    if (at < end && *at == '.') {
        at++;
        if (at == end || *at < '0' || *at > '9')
            return run_wrong(run, "Format specifier missing precision");
        if (read_width(run, &at, end, PRECISION_MAX, &spec.precision) < 0)
            return E_TOO_LARGE;
    }
    if (at < end)
        spec.type = *at++;
    if (at != end)
        return run_wrong(run, "Invalid format specifier '%.*s'", (int)text->bytes, text->data);
    *ret_spec = spec;
    return 0;
}

/* --- writing by one --------------------------------------------------------------------------- */

static void put_fill(struct run *run, uint32_t fill, int64_t count)
{
    for (; count > 0; count--)
        char_put(fill, run->out);
}

/* `body` with its sign or prefix before it, to the width. */
static void put_aligned(struct run *run, const struct spec *spec, char align, const char *prefix,
                        const struct text *body)
{
    int64_t missing = spec->width - (int64_t)(strlen(prefix) + text_chars(body)), left = 0;
    uint32_t fill = spec->fill ? spec->fill : spec->zero ? '0' : ' ';

    if (spec->align)
        align = spec->align;
    else if (spec->zero)
        align = align == '<' ? '<' : '=';
    if (missing < 0)
        missing = 0;
    if (align == '>')
        left = missing;
    else if (align == '^')
        left = missing / 2;
    put_fill(run, fill, left);
    buf_text(run->out, prefix);
    if (align == '=') {
        put_fill(run, fill, missing);
        missing = 0;
    }
    buf_put(run->out, body->data, body->bytes);
    put_fill(run, fill, missing - left);
}

/* Puts separators between groups of digits: "1234567.5" -> "1,234,567.5". */
static void group_digits(const char *digits, char separator, unsigned size,
                         char ret_text[static DIGITS_ROOM])
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), at = 0;

    for (size_t i = 0; digits[i] && at + 2 < DIGITS_ROOM; i++) {
        if (i > 0 && i < whole && (whole - i) % size == 0)
            ret_text[at++] = separator;
        ret_text[at++] = digits[i];
    }
    ret_text[at] = 0;
}

static int put_number(struct run *run, const struct spec *spec, bool negative, const char *base,
                      const char *digits)
{
    char grouped[DIGITS_ROOM], prefix[4];
    unsigned size = spec->type && strchr("xXob", spec->type) ? 4 : 3;
    struct text body = {.chars = CHARS_UNKNOWN};

    (void)snprintf(prefix, sizeof prefix, "%s%s",
                   negative            ? "-"
                   : spec->sign == '+' ? "+"
                   : spec->sign == ' ' ? " "
                                       : "",
                   base);
    if (spec->group) {
        group_digits(digits, spec->group, size, grouped);
        digits = grouped;
    }
    body.data = digits;
    body.bytes = strlen(digits);
    put_aligned(run, spec, '>', prefix, &body);
    return run_check_out(run);
}

static int put_float(struct run *run, const struct spec *spec, double real)
{
    char digits[DIGITS_ROOM], shown[FLOAT_TEXT_ROOM];
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    double size = fabs(real);

    if (run_step(run, 4 * FLOAT_STEPS) < 0)
        return E_TOO_LARGE;
    switch (spec->type) {
    case 'f':
    case 'F':
        (void)snprintf(digits, sizeof digits, "%.*f", precision, size);
        break;
    case '%':
        (void)snprintf(digits, sizeof digits, "%.*f%%", precision, size * 100);
        break;
    case 'e':
        (void)snprintf(digits, sizeof digits, spec->alternate ? "%#.*e" : "%.*e", precision, size);
        break;
    case 'E':
        (void)snprintf(digits, sizeof digits, spec->alternate ? "%#.*E" : "%.*E", precision, size);
        break;
    case 'g':
        (void)snprintf(digits, sizeof digits, spec->alternate ? "%#.*g" : "%.*g", precision, size);
        break;
    case 'G':
        (void)snprintf(digits, sizeof digits, spec->alternate ? "%#.*G" : "%.*G", precision, size);
        break;
    case 0:
        float_print(size, shown);
        if (spec->precision < 0)
            (void)snprintf(digits, sizeof digits, "%s", shown);
        else
            (void)snprintf(digits, sizeof digits, "%.*g", precision, size);
        if (spec->precision >= 0 && !strpbrk(digits, ".en"))
            (void)snprintf(digits + strlen(digits), sizeof digits - strlen(digits), ".0");
        break;
    default:
        return run_wrong(run, "Unknown format code '%c' for object of type 'float'", spec->type);
    }
    return put_number(run, spec, signbit(real) && !isnan(real), "", digits);
}

/* Digits of an integer in a base that is a power of two. */
static int put_based(struct run *run, const struct spec *spec, struct value value)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    unsigned bits = spec->type == 'b' ? 1 : spec->type == 'o' ? 3 : 4;
    const char *letters = spec->type == 'X' ? upper : lower;
    const char base[3] = {'0', spec->type, 0};
    char digits[72];
    size_t at = sizeof digits - 1;
    uint64_t size;

    if (value.kind == VALUE_BIG)
        return run_fault(run, E_TOO_LARGE, "an integer of more than 64 bits in that base");
    size = value.integer < 0 ? 0 - (uint64_t)value.integer : (uint64_t)value.integer;
    digits[at] = 0;
    do {
        digits[--at] = letters[size & ((1u << bits) - 1)];
        size >>= bits;
    } while (size);
    return put_number(run, spec, value.integer < 0, spec->alternate ? base : "", digits + at);
}

static int put_integer(struct run *run, const struct spec *spec, struct value value)
{
    size_t start = run->out->bytes, bytes, zeros;
    char digits[DIGITS_ROOM];
    struct text *text;
    bool negative;

    if (value.kind == VALUE_BOOL)
        value = value_int(value.truth);
    if (spec->type && strchr("eEfFgG%", spec->type))
        return put_float(run, spec, number_float(value));
    if (spec->type && strchr("xXob", spec->type))
        return put_based(run, spec, value);
    if (spec->type == 'c') {
        if (value.kind == VALUE_BIG || value.integer < 1 || value.integer > 0x10ffff ||
            (value.integer >= 0xd800 && value.integer < 0xe000))
            return run_wrong(run, "%%c arg not in range(0x110000)");
        digits[char_encode((uint32_t)value.integer, digits)] = 0;
        return put_number(run, spec, false, "", digits);
    }
    if (spec->type && spec->type != 'd' && spec->type != 'n')
        return run_wrong(run, "Unknown format code '%c' for object of type 'int'", spec->type);
    if (spec->precision >= 0)
        return run_wrong(run, "Precision not allowed in integer format specifier");
    number_print(value, run->out);
    text = run_capture(run, start);
    if (!text)
        return run_failed(run);
    negative = text->bytes > 0 && text->data[0] == '-';
    bytes = text->bytes - negative;
    zeros = spec->digits_min > (int64_t)bytes ? (size_t)spec->digits_min - bytes : 0;
    if (bytes + zeros >= sizeof digits)
        return run_fault(run, E_TOO_LARGE, "the integer is too long for a format");
    memset(digits, '0', zeros);
    memcpy(digits + zeros, text->data + negative, bytes);
    digits[zeros + bytes] = 0;
    return put_number(run, spec, negative, "", digits);
}

static int put_text(struct run *run, const struct spec *spec, const struct text *text)
{
    struct text *part = NULL;

    if (spec->precision >= 0 && (int64_t)text_chars(text) > spec->precision) {
        part = text_part(run, text, 0, text_offset(text, (size_t)spec->precision));
        if (!part)
            return E_MEMORY;
        text = part;
    }
    put_aligned(run, spec, '<', "", text);
    return run_check_out(run);
}

/* format(value, specification) */
static int put_formatted(struct run *run, struct value value, const struct text *specification)
{
    struct spec spec = {.precision = -1};

    if (specification->bytes == 0)
        return value_print(run, value, run->out);
    if (run_step(run, specification->bytes / 8) < 0 || read_spec(run, specification, &spec) < 0)
        return run_failed(run);
    if (run_step(run, (uint64_t)spec.width / 4) < 0)
        return E_TOO_LARGE;
    if (value.kind == VALUE_TEXT) {
        if (spec.type && spec.type != 's')
            return run_wrong(run, "Unknown format code '%c' for object of type 'str'", spec.type);
        if (spec.align == '=' || spec.sign || spec.group)
            return run_wrong(run, "this format is not allowed for a string");
        return put_text(run, &spec, value.text);
    }
    if (value.kind == VALUE_FLOAT)
        return put_float(run, &spec, value.real);
    if (value_is_integer(value))
        return put_integer(run, &spec, value);
    return run_wrong(run, "unsupported format string passed to %s.__format__", value_type(value));
}

/* --- {} --------------------------------------------------------------------------------------- */

struct braces {
    struct run *run;
    const struct call *call;
    size_t next; /* number of the next {} */
    bool escapes;
};

/* "name.member[key]" */
static int find_field(struct braces *braces, const char *at, const char *end,
                      struct value *ret_value)
{
    struct run *run = braces->run;
    const char *start = at;
    struct value value, key;
    struct text *name;
    int r;

    while (at < end && *at != '.' && *at != '[')
        at++;
    name = text_lend(run, start, (size_t)(at - start));
    if (!name)
        return E_MEMORY;
    r = name->bytes > 0 ? integer_read(run, name, 10, &key) : 0;
    if (name->bytes == 0)
        key = value_int((int64_t)braces->next++);
    if (r < 0)
        return r;
    if (name->bytes == 0 || (r > 0 && *start >= '0' && *start <= '9')) {
        if (key.kind != VALUE_INT || (uint64_t)key.integer >= braces->call->count)
            return run_wrong(run, "Replacement index out of range for positional args tuple");
        value = braces->call->arguments[key.integer];
    } else {
        const struct value *found =
            braces->call->named ? dict_find(braces->call->named, name) : NULL;

        if (!found)
            return run_wrong(run, "no argument '%.*s' for the format", (int)name->bytes,
                             name->data);
        value = *found;
    }
    while (r >= 0 && at < end) {
        bool is_member = *at++ == '.';

        start = at;
        while (at < end && (is_member ? *at != '.' && *at != '[' : *at != ']'))
            at++;
        name = text_lend(run, start, (size_t)(at - start));
        if (!name || name->bytes == 0)
            return run_wrong(run, "Empty attribute in format string");
        key = value_text(name);
        if (!is_member && (at++ == end || integer_read(run, name, 10, &key) < 0))
            return run_wrong(run, "expected ']' before end of format string");
        r = is_member ? value_member(run, value, name, &value)
                      : value_element(run, value, key, &value);
    }
    *ret_value = value;
    return r < 0 ? r : 0;
}

static int put_braces(struct braces *braces, const char *at, const char *end, unsigned depth);

/* What stands between { and }. */
static int put_field(struct braces *braces, const char *at, const char *end, unsigned depth)
{
    struct run *run = braces->run;
    const char *name_end = at, *conversion;
    struct value value;
    struct text *spec, *text;
    size_t start = run->out->bytes;

    while (name_end < end && *name_end != '!' && *name_end != ':') {
        if (*name_end == '[') {
            while (name_end < end && *name_end != ']')
                name_end++;
        }
        name_end += name_end < end;
    }
    if (find_field(braces, at, name_end, &value) < 0)
        return run_failed(run);
    conversion = name_end;
    if (name_end < end && *name_end == '!') {
        name_end += 2;
        if (name_end > end || (name_end < end && *name_end != ':') ||
            (conversion[1] != 'r' && conversion[1] != 's'))
            return run_wrong(run, "the conversion of a format is not known");
        if (conversion[1] == 's') {
            text = value_string(run, value);
        } else {
            if (value_repr(run, value, run->out) < 0)
                return run_failed(run);
            text = run_capture(run, start);
        }
        if (text_give(text, run, &value) < 0)
            return run_failed(run);
    }
    name_end += name_end < end;
    if (put_braces(braces, name_end, end, depth + 1) < 0)
        return run_failed(run);
    spec = run_capture(run, start);
    if (!spec || put_formatted(run, value, spec) < 0)
        return run_failed(run);
    if (!braces->escapes || (value.kind == VALUE_TEXT && value.text->markup))
        return 0;
    text = run_capture(run, start);
    text = text ? text_escape(run, text) : NULL;
    return text ? value_print(run, value_text(text), run->out) : run_failed(run);
}

static int put_braces(struct braces *braces, const char *at, const char *end, unsigned depth)
{
    struct run *run = braces->run;

    if (depth > BRACES_NESTED_MAX)
        return run_wrong(run, "Max string recursion exceeded");
    while (at < end) {
        const char *start = at;
        unsigned opened = 1;

        if (run_step(run, 1) < 0)
            return E_TOO_LARGE;
        while (at < end && *at != '{' && *at != '}')
            at++;
        buf_put(run->out, start, (size_t)(at - start));
        if (at == end)
            break;
        if (depth == 0 && at + 1 < end && at[1] == *at) { /* {{ and }} */
            buf_byte(run->out, *at);
            at += 2;
            continue;
        }
        if (*at == '}')
            return run_wrong(run, "Single '}' encountered in format string");
        start = ++at;
        for (; at < end && opened > 0; at++)
            opened += (*at == '{') - (*at == '}');
        if (opened > 0)
            return run_wrong(run, "expected '}' before end of string");
        if (put_field(braces, start, at - 1, depth) < 0)
            return run_failed(run);
    }
    return run_check_out(run);
}

int format_braces(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct braces braces = {.run = run, .call = call, .escapes = text->markup};
    size_t start = run->out->bytes;
    struct text *made;

    if (run_step(run, text->bytes / 64) < 0 ||
        put_braces(&braces, text->data, text->data + text->bytes, 0) < 0)
        return run_failed(run);
    made = run_capture(run, start);
    if (made)
        made->markup = text->markup;
    return text_give(made, run, ret_value);
}

/* --- % ---------------------------------------------------------------------------------------- */

struct percent {
    struct run *run;
    const char *at;
    const char *end;
    struct value arguments;
    size_t next;
    bool escapes; /* the format is markup */
};

static int next_argument(struct percent *percent, struct value *ret_value)
{
    struct value arguments = percent->arguments;
    size_t count = arguments.kind == VALUE_TUPLE ? arguments.list->count : 1;

    if (percent->next >= count)
        return run_wrong(percent->run, "not enough arguments for format string");
    *ret_value = arguments.kind == VALUE_TUPLE ? arguments.list->items[percent->next] : arguments;
    percent->next++;
    return 0;
}

/* "(name)" of a mapping. */
static int named_argument(struct percent *percent, struct value *ret_value)
{
    const char *close = memchr(percent->at, ')', (size_t)(percent->end - percent->at));
    const struct value *found;
    struct text *name;

    if (percent->arguments.kind != VALUE_DICT)
        return run_wrong(percent->run, "format requires a mapping");
    if (!close)
        return run_wrong(percent->run, "incomplete format key");
    name = text_lend(percent->run, percent->at, (size_t)(close - percent->at));
    if (!name)
        return E_MEMORY;
    percent->at = close + 1;
    percent->next = 1;
    found = dict_find(percent->arguments.dict, name);
    if (!found)
        return run_wrong(percent->run, "no argument '%.*s' for the format",
                         (int)(name->bytes < 100 ? name->bytes : 100), name->data);
    *ret_value = *found;
    return 0;
}

/* A width or precision: digits, or '*'. */
static int percent_width(struct percent *percent, int64_t max, int64_t *ret_width)
{
    struct value value;

    if (percent->at == percent->end || *percent->at != '*')
        return read_width(percent->run, &percent->at, percent->end, max, ret_width);
    percent->at++;
    if (next_argument(percent, &value) < 0 ||
        value_index(percent->run, value, "the width", ret_width) < 0)
        return run_failed(percent->run);
    if (*ret_width < 0 || *ret_width > max)
        return run_fault(percent->run, E_TOO_LARGE, "a width or precision is more than %lld",
                         (long long)max);
    return 0;
}

static int percent_put(struct percent *percent, struct spec *spec, char type, struct value value)
{
    struct run *run = percent->run;
    size_t start = run->out->bytes;
    struct text *text;

    if (run_step(run, (uint64_t)spec->width / 4) < 0)
        return E_TOO_LARGE;
    if (type == 's' || type == 'r' || (type == 'c' && value.kind == VALUE_TEXT)) {
        if ((type == 'r' ? value_repr : value_print)(run, value, run->out) < 0)
            return run_failed(run);
        text = run_capture(run, start);
        if (text && percent->escapes && !(value.kind == VALUE_TEXT && value.text->markup))
            text = text_escape(run, text);
        spec->zero = false;
        spec->align = spec->align ? spec->align : '>';
        return text ? put_text(run, spec, text) : run_failed(run);
    }
    if (!strchr("diuxXoeEfFgGc", type) || !type)
        return run_wrong(run, "unsupported format character '%c'", type);
    if (value_defined(run, value) < 0)
        return run_failed(run);
    if (!value_is_number(value))
        return run_wrong(run, "%%%c format: a real number is required, not %s", type,
                         value_type(value));
    spec->type = type == 'i' || type == 'u' ? 'd' : type;
    if (spec->align == '<')
        spec->zero = false;
    if (strchr("eEfFgG", type))
        return put_float(run, spec, number_float(value));
    if (value.kind == VALUE_FLOAT && number_truncate(run, value.real, &value) < 0)
        return run_failed(run);
    spec->digits_min = spec->precision;
    spec->precision = -1;
    return put_integer(run, spec, value);
}

static int percent_field(struct percent *percent)
{
    struct spec spec = {.precision = -1};
    struct value value = UNSET;
    char type;

    if (percent->at < percent->end && *percent->at == '(') {
        percent->at++;
        if (named_argument(percent, &value) < 0)
            return run_failed(percent->run);
    }
    for (; percent->at < percent->end && *percent->at && strchr("-+ #0", *percent->at);
         percent->at++) {
        spec.alternate |= *percent->at == '#';
        spec.zero |= *percent->at == '0';
        if (*percent->at == '-')
            spec.align = '<';
        if (*percent->at == '+' || (*percent->at == ' ' && !spec.sign))
            spec.sign = *percent->at;
    }
    if (percent_width(percent, WIDTH_MAX, &spec.width) < 0)
        return run_failed(percent->run);
    if (percent->at < percent->end && *percent->at == '.') {
        percent->at++;
        if (percent_width(percent, PRECISION_MAX, &spec.precision) < 0)
            return run_failed(percent->run);
    }
    while (percent->at < percent->end && *percent->at && strchr("hlL", *percent->at))
        percent->at++;
    if (percent->at == percent->end)
        return run_wrong(percent->run, "incomplete format");
    type = *percent->at++;
    if (type == '%') {
        buf_byte(percent->run->out, '%');
        return 0;
    }
    if (value.kind == VALUE_UNSET && next_argument(percent, &value) < 0)
        return run_failed(percent->run);
    return percent_put(percent, &spec, type, value);
}

int format_percent(struct run *run, const struct text *text, struct value arguments,
                   struct value *ret_value)
{
    struct percent percent = {.run = run,
                              .at = text->data,
                              .end = text->data + text->bytes,
                              .arguments = arguments,
                              .escapes = text->markup};
    size_t start = run->out->bytes;
    struct text *made;

    if (run_step(run, text->bytes / 64) < 0)
        return E_TOO_LARGE;
    while (percent.at < percent.end) {
        const char *found = memchr(percent.at, '%', (size_t)(percent.end - percent.at));
        const char *end = found ? found : percent.end;

        buf_put(run->out, percent.at, (size_t)(end - percent.at));
        percent.at = found ? found + 1 : end;
        if (found && (run_step(run, 1) < 0 || percent_field(&percent) < 0))
            return run_failed(run);
    }
    if (arguments.kind == VALUE_TUPLE ? percent.next < arguments.list->count
                                      : percent.next == 0 && arguments.kind != VALUE_DICT)
        return run_wrong(run, "not all arguments converted during string formatting");
    made = run_capture(run, start);
    if (made)
        made->markup = text->markup;
    return text_give(made, run, ret_value);
}

/* '%s'|format(x): by position or by name, not both. */
int filter_format(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = value_string(run, call->self);
    struct list list = {.items = (struct value *)(uintptr_t)call->arguments, .count = call->count};
    struct value arguments = value_list(VALUE_TUPLE, &list);

    if (!text)
        return run_failed(run);
    if (call->named && call->count > 0)
        return run_wrong(run, "can't handle positional and keyword arguments at the same time");
    if (call->named)
        arguments =
            (struct value){.kind = VALUE_DICT, .dict = (struct dict *)(uintptr_t)call->named};
    return format_percent(run, text, arguments, ret_value);
}
