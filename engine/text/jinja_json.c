/* jinja_json.c -- JSON to values, and values to JSON as Python's json.dumps writes it.
 *
 * The reader knows integers of any size and strings with NULs, which jansson does not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/base/utf8.h"
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { NUMBER_BYTES_MAX = 4400, INDENT_MAX = 1000 };

/* --- out of a tree ---------------------------------------------------------------------------- */

static int tree_value(struct run *run, const json_t *tree, unsigned depth, struct value *ret_value);

static int tree_object(struct run *run, const json_t *tree, unsigned depth, struct value *ret_value)
{
    struct dict *dict = dict_make(run, (uint32_t)json_object_size(tree));
    const char *key;
    json_t *member;
    int r = 0;

    if (!dict)
        return E_MEMORY;
    json_object_foreach((json_t *)(uintptr_t)tree, key, member)
    {
        struct text *name = text_of(run, key);
        struct value value;

        if (!name)
            return E_MEMORY;
        r = tree_value(run, member, depth + 1, &value);
        if (r == 0)
            r = dict_put(run, dict, value_text(name), value);
        if (r < 0)
            return r;
    }
    *ret_value = value_dict(dict);
    return 0;
}

static int tree_array(struct run *run, const json_t *tree, unsigned depth, struct value *ret_value)
{
    size_t count = json_array_size(tree);
    struct list *list = list_make(run, count);

    if (!list)
        return E_MEMORY;
    for (; list->count < count; list->count++) {
        int r = tree_value(run, json_array_get(tree, list->count), depth + 1,
                           &list->items[list->count]);

        if (r < 0)
            return r;
    }
    *ret_value = value_list(VALUE_LIST, list);
    return 0;
}

static int tree_value(struct run *run, const json_t *tree, unsigned depth, struct value *ret_value)
{
    if (depth > JINJA_JSON_DEPTH_MAX)
        return run_fault(run, E_INVALID, "The JSON is nested more than %d levels deep",
                         JINJA_JSON_DEPTH_MAX);
    switch (json_typeof(tree)) {
    case JSON_OBJECT:
        return tree_object(run, tree, depth, ret_value);
    case JSON_ARRAY:
        return tree_array(run, tree, depth, ret_value);
    case JSON_STRING:
        return text_give(text_lend(run, json_string_value(tree), json_string_length(tree)), run,
                         ret_value);
    case JSON_INTEGER:
        *ret_value = value_int(json_integer_value(tree));
        return 0;
    case JSON_REAL:
        *ret_value = value_float(json_real_value(tree));
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        *ret_value = value_bool(json_is_true(tree));
        return 0;
    default:
        *ret_value = NONE;
        return 0;
    }
}

int json_tree_value(struct run *run, const json_t *tree, struct value *ret_value)
{
    return tree_value(run, tree, 0, ret_value);
}

/* --- out of text ------------------------------------------------------------------------------ */

struct reader {
    struct run *run;
    const char *start;
    const char *at;
    const char *end;
    unsigned depth;
};

static int read_value(struct reader *reader, struct value *ret_value);

static int broken(struct reader *reader, const char *what)
{
    size_t line = 1, column = 1;

    for (const char *at = reader->start; at < reader->at; at++) {
        column = *at == '\n' ? 1 : column + 1;
        line += *at == '\n';
    }
    return run_fault(reader->run, E_INVALID, "Invalid JSON at line %zu, column %zu: %s", line,
                     column, what);
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && *reader->at && strchr(" \t\r\n", *reader->at))
        reader->at++;
}

static bool read_char(struct reader *reader, char c)
{
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static bool read_hex(struct reader *reader, uint32_t *ret_code)
{
    uint32_t code = 0;

    if (reader->end - reader->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = *reader->at++;

        if (c >= '0' && c <= '9')
            code = code << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            code = code << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    *ret_code = code;
    return true;
}

/* Behind a backslash. */
static bool read_escape(struct reader *reader, char **out)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char codes[] = "\"\\/\b\f\n\r\t";
    const char *found =
        reader->at < reader->end && *reader->at ? strchr(letters, *reader->at) : NULL;
    uint32_t code, low;

    if (found) {
        reader->at++;
        *(*out)++ = codes[found - letters];
        return true;
    }
    if (reader->at == reader->end || *reader->at++ != 'u' || !read_hex(reader, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (reader->end - reader->at < 6 || reader->at[0] != '\\' || reader->at[1] != 'u')
            return false;
        reader->at += 2;
        if (!read_hex(reader, &low) || low < 0xdc00 || low > 0xdfff)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return false;
    }
    *out += char_encode(code, *out);
    return true;
}

/* The reader stands behind the opening quote. Lent when nothing is escaped. */
static struct text *read_string(struct reader *reader)
{
    const char *start = reader->at, *end = start;
    bool escaped = false;
    char *data, *out;
    size_t bytes;

    while (end < reader->end && *end != '"') {
        if ((unsigned char)*end < 0x20 ||
            !utf8_next(end, (size_t)(reader->end - end), &bytes, NULL))
            break;
        if (*end == '\\') {
            escaped = true;
            bytes = end + 1 < reader->end && (unsigned char)end[1] < 0x80 ? 2 : 1;
        }
        end += bytes;
    }
    if (end >= reader->end || *end != '"') {
        reader->at = end < reader->end ? end : reader->end;
        (void)broken(reader, "the string has no end, or a character that must be escaped");
        return NULL;
    }
    if (!escaped) {
        reader->at = end + 1;
        return text_lend(reader->run, start, (size_t)(end - start));
    }
    data = out = run_take(reader->run, (size_t)(end - start) + 1, 1);
    if (!data)
        return NULL;
    while (reader->at < end) {
        if (*reader->at != '\\') {
            *out++ = *reader->at++;
            continue;
        }
        reader->at++;
        if (!read_escape(reader, &out)) {
            (void)broken(reader, "the escape is not valid");
            return NULL;
        }
    }
    reader->at = end + 1;
    return text_lend(reader->run, data, (size_t)(out - data));
}

static const char *skip_digits(const struct reader *reader, const char *at)
{
    while (at < reader->end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static int read_number(struct reader *reader, struct value *ret_value)
{
    const char *start = reader->at, *digits = start + (*start == '-'), *at;
    char copy[NUMBER_BYTES_MAX];
    bool real = false;
    size_t bytes;

    at = skip_digits(reader, digits);
    if (at == digits || (*digits == '0' && at > digits + 1))
        return broken(reader, "a value is expected");
    if (at + 1 < reader->end && *at == '.' && skip_digits(reader, at + 1) > at + 1) {
        real = true;
        at = skip_digits(reader, at + 1);
    }
    if (at < reader->end && (*at | 32) == 'e') {
        const char *exponent = at + 1;

        if (exponent < reader->end && (*exponent == '+' || *exponent == '-'))
            exponent++;
        if (skip_digits(reader, exponent) > exponent) {
            real = true;
            at = skip_digits(reader, exponent);
        }
    }
    bytes = (size_t)(at - start);
    if (bytes >= sizeof copy)
        return broken(reader, "the number is too long");
    reader->at = at;
    if (!real)
        return number_read(reader->run, digits, (size_t)(at - digits), 10, *start == '-',
                           ret_value);
    memcpy(copy, start, bytes);
    copy[bytes] = 0;
    *ret_value = value_float(strtod(copy, NULL));
    return 0;
}

static int read_array(struct reader *reader, struct value *ret_value)
{
    struct list *list = list_make(reader->run, 0);
    struct value value;
    int r = 0;

    if (!list)
        return E_MEMORY;
    if (!read_char(reader, ']')) {
        do {
            r = read_value(reader, &value);
            if (r == 0)
                r = list_put(reader->run, list, value);
        } while (r == 0 && read_char(reader, ','));
        if (r == 0 && !read_char(reader, ']'))
            r = broken(reader, "',' or ']' is expected");
    }
    *ret_value = value_list(VALUE_LIST, list);
    return r;
}

static int read_object(struct reader *reader, struct value *ret_value)
{
    struct dict *dict = dict_make(reader->run, 0);
    struct value value;
    struct text *key;
    int r = 0;

    if (!dict)
        return E_MEMORY;
    if (!read_char(reader, '}')) {
        do {
            if (!read_char(reader, '"'))
                return broken(reader, "a member's name is expected");
            key = read_string(reader);
            if (!key)
                return run_failed(reader->run);
            if (!read_char(reader, ':'))
                return broken(reader, "':' is expected");
            r = read_value(reader, &value);
            if (r == 0)
                r = dict_put(reader->run, dict, value_text(key), value);
        } while (r == 0 && read_char(reader, ','));
        if (r == 0 && !read_char(reader, '}'))
            r = broken(reader, "',' or '}' is expected");
    }
    *ret_value = value_dict(dict);
    return r;
}

static int read_value(struct reader *reader, struct value *ret_value)
{
    static const struct {
        const char *word;
        struct value value;
    } words[] = {
        {"true", {.kind = VALUE_BOOL, .truth = true}},
        {"false", {.kind = VALUE_BOOL, .truth = false}},
        {"null", {.kind = VALUE_NONE}},
    };
    int r = 0;

    skip_blanks(reader);
    if (reader->at == reader->end)
        return broken(reader, "a value is expected");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i].word);

        if ((size_t)(reader->end - reader->at) >= bytes &&
            memcmp(reader->at, words[i].word, bytes) == 0) {
            reader->at += bytes;
            *ret_value = words[i].value;
            return 0;
        }
    }
    if (*reader->at == '"') {
        reader->at++;
        return text_give(read_string(reader), reader->run, ret_value);
    }
    if (*reader->at != '[' && *reader->at != '{')
        return read_number(reader, ret_value);
    if (++reader->depth > JINJA_JSON_DEPTH_MAX)
        return broken(reader, "it is nested too deeply");
    r = *reader->at++ == '[' ? read_array(reader, ret_value) : read_object(reader, ret_value);
    reader->depth--;
    return r;
}

int json_text_value(struct run *run, const char *text, size_t bytes, struct value *ret_value)
{
    struct reader reader = {.run = run, .start = text, .at = text, .end = text + bytes};
    int r = read_value(&reader, ret_value);

    skip_blanks(&reader);
    return r < 0 || reader.at == reader.end ? r : broken(&reader, "there is more behind the value");
}

/* --- writing ---------------------------------------------------------------------------------- */

struct writer {
    struct run *run;
    bool ascii;
    bool sorted;
    const struct text *indent; /* NULL: all on one line */
    const struct text *between;
    const struct text *colon;
    unsigned depth;
};

static int write_value(struct writer *writer, struct value value);

static void write_string(const struct writer *writer, const struct text *text)
{
    static const char escapes[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    struct buf *out = writer->run->out;
    size_t bytes, plain = 0;

    buf_byte(out, '"');
    for (size_t i = 0; i < text->bytes; i += bytes) {
        uint32_t code = char_decode(text->data + i, &bytes);

        if (code >= 0x20 && code != '"' && code != '\\' && !(writer->ascii && code >= 0x7f))
            continue;
        buf_put(out, text->data + plain, i - plain);
        plain = i + bytes;
        if (code == '"' || code == '\\') {
            buf_format(out, "\\%c", (int)code);
        } else if (code < 0x20 && escapes[code]) {
            buf_format(out, "\\%c", escapes[code]);
        } else if (code == 0x7f) {
            buf_byte(out, 0x7f);
        } else if (code < 0x10000) {
            buf_format(out, "\\u%04x", code);
        } else {
            buf_format(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                       0xdc00 + ((code - 0x10000) & 0x3ff));
        }
    }
    buf_put(out, text->data + plain, text->bytes - plain);
    buf_byte(out, '"');
}

static void write_line(const struct writer *writer)
{
    if (!writer->indent)
        return;
    buf_byte(writer->run->out, '\n');
    for (unsigned i = 0; i < writer->depth; i++)
        buf_put(writer->run->out, writer->indent->data, writer->indent->bytes);
}

static void write_real(const struct writer *writer, double real)
{
    char text[FLOAT_TEXT_ROOM];

    if (isnan(real))
        buf_text(writer->run->out, "NaN");
    else if (isinf(real))
        buf_text(writer->run->out, real < 0 ? "-Infinity" : "Infinity");
    else {
        float_print(real, text);
        buf_text(writer->run->out, text);
    }
}

static int write_key(struct writer *writer, struct value key)
{
    struct buf *out = writer->run->out;

    switch (key.kind) {
    case VALUE_TEXT:
        write_string(writer, key.text);
        return 0;
    case VALUE_NONE:
    case VALUE_BOOL:
        buf_text(out, key.kind == VALUE_NONE ? "\"null\"" : key.truth ? "\"true\"" : "\"false\"");
        return 0;
    case VALUE_INT:
    case VALUE_BIG:
    case VALUE_FLOAT:
        buf_byte(out, '"');
        if (key.kind == VALUE_FLOAT)
            write_real(writer, key.real);
        else
            number_print(key, out);
        buf_byte(out, '"');
        return 0;
    default:
        return run_wrong(writer->run, "keys of JSON must be strings or numbers, not '%s'",
                         value_type(key));
    }
}

static int write_list(struct writer *writer, const struct list *list)
{
    struct buf *out = writer->run->out;
    int r = 0;

    buf_byte(out, '[');
    writer->depth++;
    for (size_t i = 0; r == 0 && i < list->count; i++) {
        if (i > 0)
            buf_put(out, writer->between->data, writer->between->bytes);
        write_line(writer);
        r = write_value(writer, list->items[i]);
    }
    writer->depth--;
    if (list->count > 0)
        write_line(writer);
    buf_byte(out, ']');
    return r;
}

/* The entries in the order of their keys, by insertion: few objects are large. */
static int sort_entries(struct run *run, const struct dict *dict, struct dict_entry *entries)
{
    for (uint32_t i = 0; i < dict->count; i++) {
        uint32_t at = i;

        for (; at > 0; at--) {
            int order, r = value_compare(run, entries[at - 1].key, dict->entries[i].key, &order);

            if (r < 0 || run_step(run, 1) < 0)
                return r < 0 ? r : E_TOO_LARGE;
            if (order <= 0)
                break;
            entries[at] = entries[at - 1];
        }
        entries[at] = dict->entries[i];
    }
    return 0;
}

static int write_dict(struct writer *writer, const struct dict *dict)
{
    const struct dict_entry *entries = dict->entries;
    struct buf *out = writer->run->out;
    int r = 0;

    if (writer->sorted && dict->count > 1) {
        struct dict_entry *sorted = run_take(writer->run, dict->count, sizeof *sorted);

        if (!sorted)
            return E_MEMORY;
        r = sort_entries(writer->run, dict, sorted);
        entries = sorted;
    }
    buf_byte(out, '{');
    writer->depth++;
    for (uint32_t i = 0; r == 0 && i < dict->count; i++) {
        if (i > 0)
            buf_put(out, writer->between->data, writer->between->bytes);
        write_line(writer);
        r = write_key(writer, entries[i].key);
        buf_put(out, writer->colon->data, writer->colon->bytes);
        if (r == 0)
            r = write_value(writer, entries[i].value);
    }
    writer->depth--;
    if (dict->count > 0)
        write_line(writer);
    buf_byte(out, '}');
    return r;
}

static int write_value(struct writer *writer, struct value value)
{
    struct buf *out = writer->run->out;
    int r = run_enter(writer->run);

    if (r < 0)
        return r;
    switch (value.kind) {
    case VALUE_NONE:
    case VALUE_BOOL:
        buf_text(out, value.kind == VALUE_NONE ? "null" : value.truth ? "true" : "false");
        break;
    case VALUE_INT:
    case VALUE_BIG:
        r = value_print(writer->run, value, out);
        break;
    case VALUE_FLOAT:
        write_real(writer, value.real);
        r = run_step(writer->run, FLOAT_STEPS);
        break;
    case VALUE_TEXT:
        write_string(writer, value.text);
        r = run_step(writer->run, value.text->bytes / 16);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        r = write_list(writer, value.list);
        break;
    case VALUE_DICT:
        r = write_dict(writer, value.dict);
        break;
    default:
        return run_wrong(writer->run, "Object of type %s is not JSON serializable",
                         value_type(value));
    }
    if (r == 0)
        writer->run->depth--;
    return r < 0 ? r : run_check_out(writer->run);
}

static int read_separators(struct writer *writer, struct value separators)
{
    struct list *list = value_items(writer->run, separators);

    if (!list)
        return run_failed(writer->run);
    if (list->count != 2 || list->items[0].kind != VALUE_TEXT || list->items[1].kind != VALUE_TEXT)
        return run_wrong(writer->run, "separators must be two strings");
    writer->between = list->items[0].text;
    writer->colon = list->items[1].text;
    return 0;
}

static int read_indent(struct writer *writer, struct value indent)
{
    const struct text blank = {.data = " ", .bytes = 1, .chars = 1};
    int64_t count;

    if (indent.kind == VALUE_TEXT) {
        writer->indent = indent.text;
        return 0;
    }
    if (value_index(writer->run, indent, "indent", &count) < 0)
        return run_failed(writer->run);
    if (count > INDENT_MAX)
        return run_fault(writer->run, E_TOO_LARGE, "indent is more than %d", INDENT_MAX);
    writer->indent = text_repeat(writer->run, &blank, count);
    return writer->indent ? 0 : E_MEMORY;
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
int filter_tojson(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct value *arguments = call->arguments;
    const struct text comma = {.data = ", ", .bytes = 2}, colon = {.data = ": ", .bytes = 2};
    struct writer writer = {.run = run,
                            .ascii = value_is_true(arguments[0]),
                            .sorted = value_is_true(arguments[3]),
                            .between = &comma,
                            .colon = &colon};
    const struct text short_comma = {.data = ",", .bytes = 1};
    size_t start = run->out->bytes;
    int r = 0;

    if (arguments[1].kind != VALUE_UNSET && arguments[1].kind != VALUE_NONE) {
        writer.between = &short_comma;
        r = read_indent(&writer, arguments[1]);
    }
    if (r == 0 && arguments[2].kind != VALUE_UNSET && arguments[2].kind != VALUE_NONE)
        r = read_separators(&writer, arguments[2]);
    if (r == 0)
        r = write_value(&writer, call->self);
    return r < 0 ? r : text_give(run_capture(run, start), run, ret_value);
}
