/* jinja_filters.c -- the table of filters, and those that work on texts and numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { WIDTH_MAX = 1 << 16, ROUND_DIGITS_MAX = 300, TRUNCATE_LEEWAY = 5 };

/* str() of what is filtered. NULL: the fault is set. */
static struct text *self_text(struct run *run, const struct call *call)
{
    return value_string(run, call->self);
}

static int case_filter(struct run *run, const struct call *call, enum text_case to,
                       struct value *ret_value)
{
    struct text *text = self_text(run, call);

    return text_give(text ? text_change_case(run, text, to) : NULL, run, ret_value);
}

static int filter_upper(struct run *run, const struct call *call, struct value *ret_value)
{
    return case_filter(run, call, CASE_UPPER, ret_value);
}

static int filter_lower(struct run *run, const struct call *call, struct value *ret_value)
{
    return case_filter(run, call, CASE_LOWER, ret_value);
}

static int filter_capitalize(struct run *run, const struct call *call, struct value *ret_value)
{
    return case_filter(run, call, CASE_CAPITALIZE, ret_value);
}

static bool splits_words(uint32_t code)
{
    return char_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
           code == '<';
}

/* Unlike the method: a word goes on after an apostrophe, and begins after a bracket only. */
static int filter_title(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call), *made = text_of(run, "");
    size_t at = 0, bytes;

    while (text && made && at < text->bytes) {
        size_t start = at;
        struct text *part;
        bool gap = splits_words(char_decode(text->data + at, &bytes));

        at += bytes;
        if (!gap) {
            part = text_part(run, text, start, at);
            part = part ? text_change_case(run, part, CASE_UPPER) : NULL;
            made = part ? text_join(run, made, part) : NULL;
            start = at;
        }
        while (at < text->bytes && splits_words(char_decode(text->data + at, &bytes)) == gap)
            at += bytes;
        part = text_part(run, text, start, at);
        if (part && !gap)
            part = text_change_case(run, part, CASE_LOWER);
        made = made && part ? text_join(run, made, part) : NULL;
    }
    return text_give(text ? made : NULL, run, ret_value);
}

static int filter_trim(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call), *set = NULL;
    struct value chars = call->arguments[0];

    if (chars.kind == VALUE_TEXT)
        set = chars.text;
    else if (chars.kind != VALUE_UNSET && chars.kind != VALUE_NONE)
        return run_wrong(run, "strip arg must be None or str");
    return text_give(text ? text_strip(run, text, set, STRIP_LEFT | STRIP_RIGHT) : NULL, run,
                     ret_value);
}

static int filter_string(struct run *run, const struct call *call, struct value *ret_value)
{
    return text_give(self_text(run, call), run, ret_value);
}

static int marked(struct run *run, struct text *text, bool escapes, bool again,
                  struct value *ret_value)
{
    if (text && (!escapes || again)) {
        text = text_part(run, text, 0, text->bytes);
        if (text)
            text->markup = !escapes;
    }
    if (text && escapes)
        text = text_escape(run, text);
    return text_give(text, run, ret_value);
}

static int filter_safe(struct run *run, const struct call *call, struct value *ret_value)
{
    return marked(run, self_text(run, call), false, false, ret_value);
}

static int filter_escape(struct run *run, const struct call *call, struct value *ret_value)
{
    return marked(run, self_text(run, call), true, false, ret_value);
}

static int filter_forceescape(struct run *run, const struct call *call, struct value *ret_value)
{
    return marked(run, self_text(run, call), true, true, ret_value);
}

static int filter_replace(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call), *from, *to;
    int64_t limit = -1;

    if (call->arguments[2].kind != VALUE_UNSET && call->arguments[2].kind != VALUE_NONE &&
        value_index(run, call->arguments[2], "the count", &limit) < 0)
        return run_failed(run);
    if (text && text->markup) { /* without autoescape the filter knows only plain texts */
        text = text_part(run, text, 0, text->bytes);
        if (text)
            text->markup = false;
    }
    from = value_string(run, call->arguments[0]);
    to = value_string(run, call->arguments[1]);
    return text_give(text && from && to ? text_replace(run, text, from, to, limit) : NULL, run,
                     ret_value);
}

static int filter_default(struct run *run, const struct call *call, struct value *ret_value)
{
    bool takes = call->self.kind == VALUE_UNDEFINED ||
                 (value_is_true(call->arguments[1]) && !value_is_true(call->self));

    *ret_value = call->self;
    if (takes && call->arguments[0].kind == VALUE_UNSET)
        return text_give(text_of(run, ""), run, ret_value);
    if (takes)
        *ret_value = call->arguments[0];
    return 0;
}

static int filter_length(struct run *run, const struct call *call, struct value *ret_value)
{
    int64_t length = 0;
    int r = value_length(run, call->self, &length);

    *ret_value = value_int(length);
    return r;
}

static int filter_attr(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *name = value_string(run, call->arguments[0]);
    int r;

    if (!name)
        return run_failed(run);
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fault_undefined(run, call->self);
    r = value_attribute(run, call->self, name, ret_value);
    if (r == 0)
        *ret_value = value_undefined(run, MISSING_MEMBER, name, value_type(call->self), NULL);
    return r < 0 ? r : 0;
}

/* --- lines ------------------------------------------------------------------------------------ */

static struct list *lines_of(struct run *run, struct text *text)
{
    struct text *name = text_of(run, "splitlines");
    struct call call = {.self = value_text(text)};
    struct value lines;

    if (!name || builtin_call(run, method_find(call.self, name), &call, &lines) < 0)
        return NULL;
    return lines.list;
}

/* indent(width=4, first=False, blank=False) */
static int filter_indent(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text blank = {.data = " ", .bytes = 1, .chars = 1};
    const struct text newline = {.data = "\n", .bytes = 1, .chars = 1};
    struct value width = call->arguments[0];
    struct text *text = call->self.text, *indent = width.text, *made;
    int64_t count = 4;
    struct list *lines;

    if (call->self.kind != VALUE_TEXT)
        return run_wrong(run, "only a string can be indented, not '%s'", value_type(call->self));
    if (width.kind != VALUE_TEXT) {
        if (width.kind != VALUE_UNSET && value_index(run, width, "the width", &count) < 0)
            return run_failed(run);
        if (count > WIDTH_MAX)
            return run_fault(run, E_TOO_LARGE, "the width is more than %d", WIDTH_MAX);
        indent = text_repeat(run, &blank, count);
    }
    text = text_join(run, text, &newline); /* so that there always is a line */
    lines = text && indent ? lines_of(run, text) : NULL;
    made = lines ? text_of(run, "") : NULL;
    if (made && value_is_true(call->arguments[1]))
        made = text_join(run, made, indent);
    for (size_t i = 0; made && i < lines->count; i++) {
        struct text *line = lines->items[i].text;

        if (i > 0)
            made = text_join(run, made, &newline);
        if (made && i > 0 && (line->bytes > 0 || value_is_true(call->arguments[2])))
            made = text_join(run, made, indent);
        if (made)
            made = text_join(run, made, line);
    }
    return text_give(made, run, ret_value);
}

static int filter_center(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call), *name = text_of(run, "center");
    struct value width =
        call->arguments[0].kind == VALUE_UNSET ? value_int(80) : call->arguments[0];
    struct call inner;

    if (!text || !name)
        return run_failed(run);
    inner = (struct call){.self = value_text(text), .arguments = &width, .count = 1};
    return builtin_call(run, method_find(inner.self, name), &inner, ret_value);
}

/* truncate(length=255, killwords=False, end='...', leeway=5) */
static int filter_truncate(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value end_value = call->arguments[2];
    struct text *text = call->self.text, *end, *head;
    const struct text blank = {.data = " ", .bytes = 1, .chars = 1};
    int64_t length = 255, leeway = TRUNCATE_LEEWAY, keep;
    size_t at;

    if (call->self.kind != VALUE_TEXT)
        return run_wrong(run, "only a string can be truncated, not '%s'", value_type(call->self));
    end = end_value.kind == VALUE_TEXT ? end_value.text : text_of(run, "...");
    if (!end)
        return E_MEMORY;
    if (call->arguments[0].kind != VALUE_UNSET &&
        value_index(run, call->arguments[0], "the length", &length) < 0)
        return run_failed(run);
    if (call->arguments[3].kind != VALUE_UNSET && call->arguments[3].kind != VALUE_NONE &&
        value_index(run, call->arguments[3], "the leeway", &leeway) < 0)
        return run_failed(run);
    keep = length - (int64_t)text_chars(end);
    if (keep < 0 || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        return run_wrong(run, "the length or the leeway does not fit");
    if ((int64_t)text_chars(text) <= length + leeway)
        return text_give(text, run, ret_value);
    head = text_part(run, text, 0, text_offset(text, (size_t)keep));
    if (head && !value_is_true(call->arguments[1])) {
        at = text_find_last(head, &blank, 0, head->bytes);
        if (at != SIZE_MAX)
            head = text_part(run, head, 0, at);
    }
    return text_give(head ? text_join(run, head, end) : NULL, run, ret_value);
}

/* One line cut into lines of at most `width` characters, at blanks, and after hyphens. */
static int wrap_line(struct run *run, const struct text *line, size_t width, bool breaks_words,
                     const struct text *between)
{
    size_t at = 0, column = 0, bytes, blanks = 0, blank_start = 0;

    while (at < line->bytes) {
        size_t start = at, chars = 0;
        bool gap = line->data[at] == ' ' || line->data[at] == '\t';

        while (at < line->bytes && (line->data[at] == ' ' || line->data[at] == '\t') == gap) {
            (void)char_decode(line->data + at, &bytes);
            at += bytes;
            chars++;
            if (!gap && line->data[at - 1] == '-' && at < line->bytes && line->data[at] != '-' &&
                chars > 1)
                break;
        }
        if (run_step(run, 1 + chars / 16) < 0)
            return E_TOO_LARGE;
        if (gap) {
            blanks = chars;
            blank_start = start;
            continue;
        }
        if (column > 0 && column + blanks + chars > width) {
            buf_put(run->out, between->data, between->bytes);
            column = blanks = 0;
        }
        if (column > 0 || start == blanks) {
            buf_put(run->out, line->data + blank_start, blanks);
            column += blanks;
        }
        blanks = 0;
        for (size_t i = start; i < at; i += bytes, column++) {
            if (breaks_words && column >= width) {
                buf_put(run->out, between->data, between->bytes);
                column = 0;
            }
            (void)char_decode(line->data + i, &bytes);
            buf_put(run->out, line->data + i, bytes);
        }
    }
    return 0;
}

/* wordwrap(width=79, break_long_words=True, wrapstring=None) */
static int filter_wordwrap(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text newline = {.data = "\n", .bytes = 1, .chars = 1};
    struct text *text = self_text(run, call);
    const struct text *between =
        call->arguments[2].kind == VALUE_TEXT ? call->arguments[2].text : &newline;
    bool breaks = call->arguments[1].kind == VALUE_UNSET || value_is_true(call->arguments[1]);
    struct list *lines = text ? lines_of(run, text) : NULL;
    size_t start = run->out->bytes;
    int64_t width = 79;

    if (!lines || (call->arguments[0].kind != VALUE_UNSET &&
                   value_index(run, call->arguments[0], "the width", &width) < 0))
        return run_failed(run);
    if (width < 1)
        return run_wrong(run, "the width must be at least 1");
    for (size_t i = 0; i < lines->count; i++) {
        if (i > 0)
            buf_put(run->out, between->data, between->bytes);
        if (wrap_line(run, lines->items[i].text, (size_t)width, breaks, between) < 0)
            return E_TOO_LARGE;
    }
    return text_give(run_capture(run, start), run, ret_value);
}

static int filter_wordcount(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call);
    int64_t count = 0;
    bool inside = false;

    if (!text || run_step(run, text->bytes / 16) < 0)
        return run_failed(run);
    for (size_t i = 0; i < text->bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];
        bool word =
            c >= 0x80 || c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');

        count += word && !inside;
        inside = word;
    }
    *ret_value = value_int(count);
    return 0;
}

/* &lt; and the like back to characters: those that `escape` makes, a few more, and numbers. */
static struct text *unescape(struct run *run, const struct text *text)
{
    static const struct {
        const char *name;
        uint32_t code;
    } names[] = {{"lt", '<'},   {"gt", '>'},    {"amp", '&'},
                 {"quot", '"'}, {"apos", '\''}, {"nbsp", 0xa0}};
    size_t start = run->out->bytes;

    for (size_t at = 0; at < text->bytes; at++) {
        const char *here = text->data + at;
        size_t left = text->bytes - at < 12 ? text->bytes - at : 12;
        const char *end = *here == '&' ? memchr(here, ';', left) : NULL;
        uint32_t code = 0;

        for (size_t i = 0; end && i < sizeof names / sizeof *names; i++) {
            if (strlen(names[i].name) == (size_t)(end - here) - 1 &&
                memcmp(here + 1, names[i].name, (size_t)(end - here) - 1) == 0)
                code = names[i].code;
        }
        if (end && here[1] == '#') {
            bool hex = (here[2] | 32) == 'x';
            char *stop;
            unsigned long number = strtoul(here + 2 + hex, &stop, hex ? 16 : 10);

            if (stop == end && number > 0 && number <= 0x10ffff &&
                (number < 0xd800 || number >= 0xe000))
                code = (uint32_t)number;
        }
        if (!code) {
            buf_byte(run->out, *here);
            continue;
        }
        char_put(code, run->out);
        at = (size_t)(end - text->data);
    }
    return run_capture(run, start);
}

/* Without tags and comments; blanks in a row become one. */
static int filter_striptags(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = self_text(run, call), *name = text_of(run, "split");
    const struct text blank = {.data = " ", .bytes = 1, .chars = 1};
    size_t start = run->out->bytes;
    bool comments = true, tags = true; /* there may be an end of one */
    struct text *plain;
    struct value words;
    struct call inner;

    if (!text || !name || run_step(run, text->bytes / 16) < 0)
        return run_failed(run);
    for (size_t at = 0; at < text->bytes; at++) {
        const char *here = text->data + at;
        size_t left = text->bytes - at;
        bool comment = left >= 4 && memcmp(here, "<!--", 4) == 0;
        const char *end = NULL;

        if (*here == '<' && (comment ? comments : tags)) {
            end = comment ? memmem(here, left, "-->", 3) : memchr(here, '>', left);
            if (end)
                at += (size_t)(end - here) + (comment ? 2 : 0);
            else if (comment)
                comments = false;
            else
                tags = false;
        }
        if (!end)
            buf_byte(run->out, *here);
    }
    plain = run_capture(run, start);
    if (plain)
        plain = unescape(run, plain);
    if (!plain)
        return run_failed(run);
    inner = (struct call){.self = value_text(plain)};
    if (builtin_call(run, method_find(inner.self, name), &inner, &words) < 0)
        return run_failed(run);
    for (size_t i = 0; i < words.list->count; i++) {
        if (i > 0)
            buf_put(run->out, blank.data, blank.bytes);
        buf_put(run->out, words.list->items[i].text->data, words.list->items[i].text->bytes);
    }
    return text_give(run_capture(run, start), run, ret_value);
}

/* --- addresses and attributes ----------------------------------------------------------------- */

static void quote(struct run *run, const struct text *text, bool in_query)
{
    for (size_t i = 0; i < text->bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];

        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
            (c && strchr("_.-~", c)) || (c == '/' && !in_query))
            buf_byte(run->out, (char)c);
        else if (c == ' ' && in_query)
            buf_byte(run->out, '+');
        else
            buf_format(run->out, "%%%02X", c);
    }
}

static int filter_urlencode(struct run *run, const struct call *call, struct value *ret_value)
{
    size_t start = run->out->bytes;
    struct value pairs = call->self;
    struct view view = {.kind = VIEW_ITEMS, .dict = call->self.dict};
    struct list *items, *pair;
    struct text *text;

    if (pairs.kind < VALUE_LIST || pairs.kind > VALUE_STREAM) {
        text = self_text(run, call);
        if (!text || run_step(run, text->bytes / 16) < 0)
            return run_failed(run);
        quote(run, text, false);
        return text_give(run_capture(run, start), run, ret_value);
    }
    if (pairs.kind == VALUE_DICT)
        pairs = (struct value){.kind = VALUE_VIEW, .view = &view};
    items = value_items(run, pairs);
    for (size_t i = 0; items && i < items->count; i++) {
        pair = value_items(run, items->items[i]);
        if (!pair || pair->count != 2)
            return pair ? run_wrong(run, "urlencode takes pairs") : run_failed(run);
        for (size_t j = 0; j < 2; j++) {
            text = value_string(run, pair->items[j]);
            if (!text || run_step(run, text->bytes / 16) < 0)
                return run_failed(run);
            if (i > 0 || j > 0)
                buf_byte(run->out, j ? '=' : '&');
            quote(run, text, true);
        }
    }
    return items ? text_give(run_capture(run, start), run, ret_value) : run_failed(run);
}

/* xmlattr(autospace=True) */
static int filter_xmlattr(struct run *run, const struct call *call, struct value *ret_value)
{
    bool space = call->arguments[0].kind == VALUE_UNSET || value_is_true(call->arguments[0]);
    struct text *made = text_of(run, "");
    const struct dict *dict = call->self.dict;

    if (call->self.kind != VALUE_DICT)
        return run_wrong(run, "xmlattr takes a mapping, not '%s'", value_type(call->self));
    for (uint32_t i = 0; made && i < dict->count; i++) {
        struct value value = dict->entries[i].value;
        struct text *key = value_string(run, dict->entries[i].key), *text;

        if (value.kind == VALUE_NONE || value.kind == VALUE_UNDEFINED)
            continue;
        for (size_t j = 0; key && j < key->bytes; j++) {
            if (memchr(" \t\n\r\f/>=", key->data[j], 8))
                return run_wrong(run, "Invalid character in attribute name");
        }
        text = value_string(run, value);
        key = key ? text_escape(run, key) : NULL;
        text = text ? text_escape(run, text) : NULL;
        if (!key || !text)
            return run_failed(run);
        key->markup = text->markup = false;
        if (space || i > 0)
            made = text_join(run, made, text_of(run, " "));
        made = made ? text_join(run, made, key) : NULL;
        made = made ? text_join(run, made, text_of(run, "=\"")) : NULL;
        made = made ? text_join(run, made, text) : NULL;
        made = made ? text_join(run, made, text_of(run, "\"")) : NULL;
    }
    return text_give(made, run, ret_value);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static int filter_abs(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value value = call->self;

    if (value_defined(run, value) < 0)
        return run_failed(run);
    if (!value_is_number(value))
        return run_wrong(run, "bad operand type for abs(): '%s'", value_type(value));
    if (number_compare(value, value_int(0)) == -1)
        return number_negate(run, value, ret_value);
    *ret_value = value.kind == VALUE_BOOL ? value_int(value.truth) : value;
    if (value.kind == VALUE_FLOAT)
        *ret_value = value_float(fabs(value.real));
    return 0;
}

/* int(default=0, base=10) */
static int filter_int(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value value = call->self;
    int64_t base = 10;
    double real = 0;
    int r;

    if (value_defined(run, value) < 0)
        return run_failed(run);
    if (call->arguments[1].kind != VALUE_UNSET &&
        value_index(run, call->arguments[1], "the base", &base) < 0)
        return run_failed(run);
    if (value.kind == VALUE_TEXT) {
        if (base < 0 || base > 16 || base == 1)
            return run_wrong(run, "an integer's base must be 0 or from 2 to 16");
        r = integer_read(run, value.text, (unsigned)base, ret_value);
        if (r != 0)
            return r < 0 ? r : 0;
        if (float_read(value.text, &real) && isfinite(real))
            return number_truncate(run, real, ret_value);
    } else if (value_is_integer(value)) {
        *ret_value = value.kind == VALUE_BOOL ? value_int(value.truth) : value;
        return 0;
    } else if (value.kind == VALUE_FLOAT && isfinite(value.real)) {
        return number_truncate(run, value.real, ret_value);
    }
    *ret_value = call->arguments[0].kind == VALUE_UNSET ? value_int(0) : call->arguments[0];
    return 0;
}

static int filter_float(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value value = call->self;
    double real = 0;

    if (value_defined(run, value) < 0)
        return run_failed(run);
    if (value_is_number(value))
        *ret_value = value_float(number_float(value));
    else if (value.kind == VALUE_TEXT && float_read(value.text, &real))
        *ret_value = value_float(real);
    else
        *ret_value = call->arguments[0].kind == VALUE_UNSET ? value_float(0) : call->arguments[0];
    return 0;
}

/* round(precision=0, method='common') */
static int filter_round(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value method = call->arguments[1];
    char digits[FLOAT_TEXT_ROOM + ROUND_DIGITS_MAX];
    int64_t precision = 0;
    double real, scale;

    if (value_defined(run, call->self) < 0 || run_step(run, 4 * FLOAT_STEPS) < 0)
        return run_failed(run);
    if (!value_is_number(call->self))
        return run_wrong(run, "type %s doesn't define __round__ method", value_type(call->self));
    if (call->arguments[0].kind != VALUE_UNSET &&
        value_index(run, call->arguments[0], "the precision", &precision) < 0)
        return run_failed(run);
    if (precision > ROUND_DIGITS_MAX || precision < -ROUND_DIGITS_MAX)
        return run_wrong(run, "the precision is more than %d", ROUND_DIGITS_MAX);
    real = number_float(call->self);
    scale = pow(10, (double)precision);
    if (method.kind == VALUE_TEXT && text_is(method.text, "ceil")) {
        *ret_value = value_float(ceil(real * scale) / scale);
    } else if (method.kind == VALUE_TEXT && text_is(method.text, "floor")) {
        *ret_value = value_float(floor(real * scale) / scale);
    } else if (method.kind != VALUE_UNSET &&
               !(method.kind == VALUE_TEXT && text_is(method.text, "common"))) {
        return run_wrong(run, "method must be common, ceil or floor");
    } else if (value_is_integer(call->self) && precision >= 0) {
        *ret_value = call->self.kind == VALUE_BOOL ? value_int(call->self.truth) : call->self;
    } else if (precision < 0) {
        real = rint(real * scale) / scale;
        if (value_is_integer(call->self))
            return number_truncate(run, real, ret_value);
        *ret_value = value_float(real);
    } else {
        /* Printing rounds as Python does: exactly, and a half to even. */
        (void)snprintf(digits, sizeof digits, "%.*f", (int)precision, real);
        *ret_value = value_float(strtod(digits, NULL));
    }
    return 0;
}

/* filesizeformat(binary=False) */
static int filter_filesizeformat(struct run *run, const struct call *call, struct value *ret_value)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    bool twos = value_is_true(call->arguments[0]);
    const char *const *prefixes = twos ? binary : decimal;
    double base = twos ? 1024 : 1000, bytes, unit;
    char text[FLOAT_TEXT_ROOM];
    struct value number;
    size_t i = 0;

    if (filter_float(run, &(struct call){.self = call->self, .arguments = &UNSET, .count = 1},
                     &number) < 0)
        return run_failed(run);
    bytes = number.real;
    unit = base * base;
    while (i < 7 && bytes >= unit) {
        unit *= base;
        i++;
    }
    if (bytes == 1)
        (void)snprintf(text, sizeof text, "1 Byte");
    else if (bytes < base)
        (void)snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
    else
        (void)snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, prefixes[i]);
    return text_give(text_copy(run, text, strlen(text)), run, ret_value);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct builtin filters[] = {
    {"tojson", "ensure_ascii, indent, separators, sort_keys", 0, filter_tojson},
    {"length", "", 0, filter_length},
    {"count", "", 0, filter_length},
    {"trim", "chars", 0, filter_trim},
    {"string", "", 0, filter_string},
    {"default", "default_value, boolean", 0, filter_default},
    {"d", "default_value, boolean", 0, filter_default},
    {"join", "d, attribute", 0, filter_join},
    {"selectattr", NULL, 0, filter_selectattr},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"select", NULL, 0, filter_select},
    {"reject", NULL, 0, filter_reject},
    {"map", NULL, 0, filter_map},
    {"items", "", 0, filter_items},
    {"list", "", 0, filter_list},
    {"safe", "", 0, filter_safe},
    {"escape", "", 0, filter_escape},
    {"e", "", 0, filter_escape},
    {"forceescape", "", 0, filter_forceescape},
    {"lower", "", 0, filter_lower},
    {"upper", "", 0, filter_upper},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"replace", "old, new, count", 2, filter_replace},
    {"dictsort", "case_sensitive, by, reverse", 0, filter_dictsort},
    {"sort", "reverse, case_sensitive, attribute", 0, filter_sort},
    {"groupby", "attribute, default, case_sensitive", 1, filter_groupby},
    {"unique", "case_sensitive, attribute", 0, filter_unique},
    {"min", "case_sensitive, attribute", 0, filter_min},
    {"max", "case_sensitive, attribute", 0, filter_max},
    {"sum", "attribute, start", 0, filter_sum},
    {"first", "", 0, filter_first},
    {"last", "", 0, filter_last},
    {"reverse", "", 0, filter_reverse},
    {"batch", "linecount, fill_with", 1, filter_batch},
    {"slice", "slices, fill_with", 1, filter_slice},
    {"indent", "width, first, blank", 0, filter_indent},
    {"int", "default, base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision, method", 0, filter_round},
    {"attr", "name", 1, filter_attr},
    {"format", NULL, 0, filter_format},
    {"center", "width", 0, filter_center},
    {"truncate", "length, killwords, end, leeway", 0, filter_truncate},
    {"wordwrap", "width, break_long_words, wrapstring, break_on_hyphens", 0, filter_wordwrap},
    {"wordcount", "", 0, filter_wordcount},
    {"striptags", "", 0, filter_striptags},
    {"urlencode", "", 0, filter_urlencode},
    {"xmlattr", "autospace", 0, filter_xmlattr},
    {"filesizeformat", "binary", 0, filter_filesizeformat},
};

const struct builtin *filter_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (strlen(filters[i].name) == bytes && memcmp(filters[i].name, name, bytes) == 0)
            return &filters[i];
    }
    return NULL;
}

bool filter_is_left_out(const char *name, size_t bytes)
{
    static const char *const names[] = {"random", "urlize", "pprint"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == bytes && memcmp(names[i], name, bytes) == 0)
            return true;
    }
    return false;
}
