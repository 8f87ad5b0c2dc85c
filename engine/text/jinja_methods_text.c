/* jinja_methods_text.c -- the methods of texts: those of Python's str. */
#include <stdio.h>
#include <utf8proc.h>

#include "engine/text/jinja_text.h"

enum { WIDTH_MAX = 1 << 20 };

#define GIVEN(value) ((value).kind != VALUE_UNSET && (value).kind != VALUE_NONE)

static int text_argument(struct run *run, struct value value, struct text **ret_text)
{
    if (value.kind != VALUE_TEXT)
        return run_wrong(run, "the argument must be str, not '%s'", value_type(value));
    *ret_text = value.text;
    return 0;
}

/* Optional start and end, in characters, as bytes. 1: the range is empty beyond the text's end. */
static int byte_range(struct run *run, const struct text *text, struct value start,
                      struct value end, size_t *ret_from, size_t *ret_to)
{
    int64_t length = (int64_t)text_chars(text), low = 0, high = length;

    if (GIVEN(start) && value_index(run, start, "a position", &low) < 0)
        return run_failed(run);
    if (GIVEN(end) && value_index(run, end, "a position", &high) < 0)
        return run_failed(run);
    if (low < 0)
        low = low < -length ? 0 : low + length;
    if (high < 0)
        high = high < -length ? 0 : high + length;
    if (high > length)
        high = length;
    if (low > high)
        return 1;
    *ret_from = text_offset(text, (size_t)low);
    *ret_to = text_offset(text, (size_t)high);
    return run_step(run, text->bytes / 16);
}

/* --- changing texts --------------------------------------------------------------------------- */

#define CASE_METHOD(name, to)                                                          \
    static int name(struct run *run, const struct call *call, struct value *ret_value) \
    {                                                                                  \
        return text_give(text_change_case(run, call->self.text, to), run, ret_value);  \
    }
CASE_METHOD(text_upper, CASE_UPPER)
CASE_METHOD(text_lower, CASE_LOWER)
CASE_METHOD(text_title, CASE_TITLE)
CASE_METHOD(text_capitalize, CASE_CAPITALIZE)
CASE_METHOD(text_swapcase, CASE_SWAP)
CASE_METHOD(text_casefold, CASE_FOLD)

static int strip(struct run *run, const struct call *call, unsigned sides, struct value *ret_value)
{
    struct text *set = NULL;

    if (GIVEN(call->arguments[0]) && text_argument(run, call->arguments[0], &set) < 0)
        return run_failed(run);
    return text_give(text_strip(run, call->self.text, set, sides), run, ret_value);
}

static int text_strip_both(struct run *run, const struct call *call, struct value *ret_value)
{
    return strip(run, call, STRIP_LEFT | STRIP_RIGHT, ret_value);
}

static int text_lstrip(struct run *run, const struct call *call, struct value *ret_value)
{
    return strip(run, call, STRIP_LEFT, ret_value);
}

static int text_rstrip(struct run *run, const struct call *call, struct value *ret_value)
{
    return strip(run, call, STRIP_RIGHT, ret_value);
}

static int text_replace_method(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *from, *to;
    int64_t limit = -1;

    if (text_argument(run, call->arguments[0], &from) < 0 ||
        text_argument(run, call->arguments[1], &to) < 0)
        return run_failed(run);
    if (call->arguments[2].kind != VALUE_UNSET &&
        value_index(run, call->arguments[2], "the count", &limit) < 0)
        return run_failed(run);
    return text_give(text_replace(run, call->self.text, from, to, limit), run, ret_value);
}

static int remove_affix(struct run *run, const struct call *call, bool prefix,
                        struct value *ret_value)
{
    const struct text *text = call->self.text;
    size_t bytes;
    struct text *affix;
    bool found;

    if (text_argument(run, call->arguments[0], &affix) < 0)
        return run_failed(run);
    bytes = affix->bytes;
    found = bytes <= text->bytes &&
            memcmp(text->data + (prefix ? 0 : text->bytes - bytes), affix->data, bytes) == 0;
    if (!found)
        bytes = 0;
    return text_give(
        text_part(run, text, prefix ? bytes : 0, prefix ? text->bytes : text->bytes - bytes), run,
        ret_value);
}

static int text_removeprefix(struct run *run, const struct call *call, struct value *ret_value)
{
    return remove_affix(run, call, true, ret_value);
}

static int text_removesuffix(struct run *run, const struct call *call, struct value *ret_value)
{
    return remove_affix(run, call, false, ret_value);
}

/* So many of a character before and after. */
static int pad(struct run *run, struct text *text, int64_t before, int64_t after,
               const struct text *fill, struct value *ret_value)
{
    struct text *left, *right;

    left = text_repeat(run, fill, before);
    right = text_repeat(run, fill, after);
    if (left)
        left = text_join(run, left, text);
    return text_give(left && right ? text_join(run, left, right) : NULL, run, ret_value);
}

static int justify(struct run *run, const struct call *call, int side, struct value *ret_value)
{
    const struct text blank = {.data = " ", .bytes = 1, .chars = 1};
    const struct text *fill = &blank;
    int64_t width, missing, left;

    if (value_index(run, call->arguments[0], "the width", &width) < 0)
        return run_failed(run);
    if (width > WIDTH_MAX)
        return run_fault(run, E_TOO_LARGE, "the width is more than %d", WIDTH_MAX);
    if (call->arguments[1].kind == VALUE_TEXT)
        fill = call->arguments[1].text;
    if (text_chars(fill) != 1 ||
        (call->arguments[1].kind != VALUE_TEXT && GIVEN(call->arguments[1])))
        return run_wrong(run, "The fill character must be exactly one character long");
    missing = width - (int64_t)text_chars(call->self.text);
    if (missing <= 0)
        return text_give(call->self.text, run, ret_value);
    left = side < 0 ? 0 : side > 0 ? missing : missing / 2 + (missing & width & 1);
    return pad(run, call->self.text, left, missing - left, fill, ret_value);
}

static int text_center(struct run *run, const struct call *call, struct value *ret_value)
{
    return justify(run, call, 0, ret_value);
}

static int text_ljust(struct run *run, const struct call *call, struct value *ret_value)
{
    return justify(run, call, -1, ret_value);
}

static int text_rjust(struct run *run, const struct call *call, struct value *ret_value)
{
    return justify(run, call, 1, ret_value);
}

static int text_zfill(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text zero = {.data = "0", .bytes = 1, .chars = 1};
    struct text *text = call->self.text, *sign, *rest;
    int64_t width, missing;
    bool has_sign = text->bytes > 0 && (text->data[0] == '-' || text->data[0] == '+');

    if (value_index(run, call->arguments[0], "the width", &width) < 0)
        return run_failed(run);
    if (width > WIDTH_MAX)
        return run_fault(run, E_TOO_LARGE, "the width is more than %d", WIDTH_MAX);
    missing = width - (int64_t)text_chars(text);
    if (missing <= 0)
        return text_give(text, run, ret_value);
    sign = text_part(run, text, 0, has_sign);
    rest = text_part(run, text, has_sign, text->bytes);
    if (sign)
        sign = text_join(run, sign, text_repeat(run, &zero, missing));
    return text_give(sign && rest ? text_join(run, sign, rest) : NULL, run, ret_value);
}

static int text_expandtabs(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    size_t start = run->out->bytes;
    int64_t size = 8, column = 0;

    if (GIVEN(call->arguments[0]) &&
        value_index(run, call->arguments[0], "the tab size", &size) < 0)
        return run_failed(run);
    if (size > 1000 || run_step(run, text->bytes) < 0)
        return run_fault(run, E_TOO_LARGE, "the tab size is too large");
    for (size_t i = 0; i < text->bytes; i++) {
        char c = text->data[i];

        if (c == '\t') {
            for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--, column++)
                buf_byte(run->out, ' ');
            continue;
        }
        buf_byte(run->out, c);
        if (c == '\n' || c == '\r')
            column = 0;
        else
            column += ((unsigned char)c & 0xc0) != 0x80;
    }
    return text_give(run_capture(run, start), run, ret_value);
}

/* --- cutting texts ---------------------------------------------------------------------------- */

static int put_part(struct run *run, struct list *list, const struct text *text, size_t start,
                    size_t end)
{
    struct text *part = text_part(run, text, start, end);

    return part && run_step(run, 1) == 0 ? list_put(run, list, value_text(part)) : E_TOO_LARGE;
}

/* By runs of white space. */
static int split_blanks(struct run *run, const struct text *text, int64_t limit, struct list *list)
{
    size_t at = 0, bytes;

    for (;;) {
        size_t start;

        while (at < text->bytes && char_is_space(char_decode(text->data + at, &bytes)))
            at += bytes;
        if (at == text->bytes)
            return 0;
        start = at;
        if (limit-- == 0)
            return put_part(run, list, text, start, text->bytes);
        while (at < text->bytes && !char_is_space(char_decode(text->data + at, &bytes)))
            at += bytes;
        if (put_part(run, list, text, start, at) < 0)
            return E_TOO_LARGE;
    }
}

static int split_arguments(struct run *run, const struct call *call, struct text **ret_by,
                           int64_t *ret_limit)
{
    *ret_by = NULL;
    *ret_limit = -1;
    if (GIVEN(call->arguments[0]) && text_argument(run, call->arguments[0], ret_by) < 0)
        return run_failed(run);
    if (*ret_by && (*ret_by)->bytes == 0)
        return run_wrong(run, "empty separator");
    if (call->arguments[1].kind != VALUE_UNSET)
        return value_index(run, call->arguments[1], "maxsplit", ret_limit);
    return 0;
}

static int text_split(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct list *list = list_make(run, 0);
    size_t at = 0, found;
    struct text *by;
    int64_t limit;
    int r;

    if (!list || split_arguments(run, call, &by, &limit) < 0 || run_step(run, text->bytes / 16) < 0)
        return run_failed(run);
    *ret_value = value_list(VALUE_LIST, list);
    if (!by)
        return split_blanks(run, text, limit, list);
    while (limit != 0 && (found = text_find(text, by, at, text->bytes)) != SIZE_MAX) {
        r = put_part(run, list, text, at, found);
        if (r < 0)
            return r;
        at = found + by->bytes;
        limit -= limit > 0;
    }
    return put_part(run, list, text, at, text->bytes);
}

static void reverse(struct list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        struct value item = list->items[i];

        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

/* From the end, by runs of white space. */
static int rsplit_blanks(struct run *run, const struct text *text, int64_t limit, struct list *list)
{
    size_t end = text->bytes, start, bytes;

    for (;;) {
        struct text head = {.data = text->data, .bytes = end, .chars = CHARS_UNKNOWN};
        struct text *rest = text_strip(run, &head, NULL, STRIP_RIGHT);

        if (!rest)
            return E_MEMORY;
        end = rest->bytes;
        if (end == 0)
            return 0;
        if (limit-- == 0)
            return put_part(run, list, text, 0, end);
        for (start = end; start > 0; start -= bytes) {
            bytes = 1;
            while (((unsigned char)text->data[start - bytes] & 0xc0) == 0x80)
                bytes++;
            if (char_is_space(char_decode(text->data + start - bytes, &bytes)))
                break;
        }
        if (put_part(run, list, text, start, end) < 0)
            return E_TOO_LARGE;
        end = start;
    }
}

static int text_rsplit(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct list *list = list_make(run, 0);
    size_t end = text->bytes, found;
    struct text *by;
    int64_t limit;
    int r = 0;

    if (!list || split_arguments(run, call, &by, &limit) < 0)
        return run_failed(run);
    if (run_step(run, text->bytes / 16 * (by ? by->bytes / 64 + 1 : 1)) < 0)
        return E_TOO_LARGE;
    *ret_value = value_list(VALUE_LIST, list);
    if (by) {
        while (r == 0 && limit != 0 && (found = text_find_last(text, by, 0, end)) != SIZE_MAX) {
            r = put_part(run, list, text, found + by->bytes, end);
            end = found;
            limit -= limit > 0;
        }
        if (r == 0)
            r = put_part(run, list, text, 0, end);
    } else {
        r = rsplit_blanks(run, text, limit, list);
    }
    reverse(list);
    return r;
}

static bool is_line_end(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

static int text_splitlines(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct list *list = list_make(run, 0);
    bool keep = value_is_true(call->arguments[0]);
    size_t start = 0, at = 0, bytes;

    if (!list || run_step(run, text->bytes / 16) < 0)
        return E_TOO_LARGE;
    while (at < text->bytes) {
        uint32_t code = char_decode(text->data + at, &bytes);
        size_t end = at;

        at += bytes;
        if (!is_line_end(code))
            continue;
        if (code == '\r' && at < text->bytes && text->data[at] == '\n')
            at++;
        if (put_part(run, list, text, start, keep ? at : end) < 0)
            return E_TOO_LARGE;
        start = at;
    }
    *ret_value = value_list(VALUE_LIST, list);
    return start < text->bytes ? put_part(run, list, text, start, text->bytes) : 0;
}

static int partition(struct run *run, const struct call *call, bool last, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct list *list = list_make(run, 3);
    struct text *by;
    size_t found, ends[3][2];

    if (!list || text_argument(run, call->arguments[0], &by) < 0)
        return run_failed(run);
    if (by->bytes == 0)
        return run_wrong(run, "empty separator");
    if (run_step(run, text->bytes / 16 * (by->bytes / 64 + 1)) < 0)
        return E_TOO_LARGE;
    found = last ? text_find_last(text, by, 0, text->bytes) : text_find(text, by, 0, text->bytes);
    if (found == SIZE_MAX) {
        size_t at = last ? 0 : text->bytes;

        ends[0][0] = ends[2][0] = 0;
        ends[0][1] = ends[1][0] = ends[1][1] = at;
        ends[2][0] = at;
        ends[2][1] = text->bytes;
    } else {
        ends[0][0] = 0;
        ends[0][1] = ends[1][0] = found;
        ends[1][1] = ends[2][0] = found + by->bytes;
        ends[2][1] = text->bytes;
    }
    for (int i = 0; i < 3; i++) {
        if (put_part(run, list, text, ends[i][0], ends[i][1]) < 0)
            return E_MEMORY;
    }
    *ret_value = value_list(VALUE_TUPLE, list);
    return 0;
}

static int text_partition(struct run *run, const struct call *call, struct value *ret_value)
{
    return partition(run, call, false, ret_value);
}

static int text_rpartition(struct run *run, const struct call *call, struct value *ret_value)
{
    return partition(run, call, true, ret_value);
}

static int text_join_method(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *between = call->self.text;
    struct list *list = value_items(run, call->arguments[0]);
    struct text *text = text_part(run, between, 0, 0);

    for (size_t i = 0; list && text && i < list->count; i++) {
        struct value item = list->items[i];

        if (item.kind != VALUE_TEXT)
            return run_wrong(run, "sequence item %zu: expected str instance, %s found", i,
                             value_type(item));
        if (i > 0)
            text = text_join(run, text, between);
        if (text)
            text = text_join(run, text, item.text);
    }
    return text_give(list ? text : NULL, run, ret_value);
}

static int text_format_map(struct run *run, const struct call *call, struct value *ret_value)
{
    struct call inner = {.self = call->self};

    if (call->arguments[0].kind != VALUE_DICT)
        return run_wrong(run, "format_map() takes a mapping");
    inner.named = call->arguments[0].dict;
    return format_braces(run, &inner, ret_value);
}

static int text_left_out(struct run *run, const struct call *call, struct value *ret_value)
{
    (void)call;
    (void)ret_value;
    return run_wrong(run, "the methods encode, translate and maketrans are not supported");
}

/* --- asking texts ----------------------------------------------------------------------------- */

/* Whether the range begins or ends with one of a text or tuple of texts. */
static int has_affix(struct run *run, const struct call *call, bool prefix, struct value *ret_value)
{
    const struct text *text = call->self.text;
    struct value affixes = call->arguments[0];
    struct list one = {.items = &affixes, .count = 1};
    const struct list *list = affixes.kind == VALUE_TUPLE ? affixes.list : &one;
    size_t from, to;
    int r = byte_range(run, text, call->arguments[1], call->arguments[2], &from, &to);

    *ret_value = value_bool(false);
    for (size_t i = 0; r >= 0 && i < list->count; i++) {
        struct text *affix;

        if (text_argument(run, list->items[i], &affix) < 0)
            return run_failed(run);
        if (r == 0 && affix->bytes <= to - from &&
            memcmp(text->data + (prefix ? from : to - affix->bytes), affix->data, affix->bytes) ==
                0)
            *ret_value = value_bool(true);
    }
    return r < 0 ? r : 0;
}

static int text_startswith(struct run *run, const struct call *call, struct value *ret_value)
{
    return has_affix(run, call, true, ret_value);
}

static int text_endswith(struct run *run, const struct call *call, struct value *ret_value)
{
    return has_affix(run, call, false, ret_value);
}

static int find(struct run *run, const struct call *call, bool last, bool must_be,
                struct value *ret_value)
{
    const struct text *text = call->self.text;
    size_t from, to, found = SIZE_MAX;
    struct text *part;
    int r;

    if (text_argument(run, call->arguments[0], &part) < 0)
        return run_failed(run);
    r = byte_range(run, text, call->arguments[1], call->arguments[2], &from, &to);
    if (r < 0 || run_step(run, text->bytes / 16 * (part->bytes / 64 + 1)) < 0)
        return run_failed(run);
    if (r == 0)
        found = last ? text_find_last(text, part, from, to) : text_find(text, part, from, to);
    if (found == SIZE_MAX && must_be)
        return run_wrong(run, "substring not found");
    *ret_value = value_int(-1);
    if (found != SIZE_MAX) {
        struct text head = {.data = text->data, .bytes = found, .chars = CHARS_UNKNOWN};

        *ret_value = value_int((int64_t)text_chars(&head));
    }
    return 0;
}

static int text_find_method(struct run *run, const struct call *call, struct value *ret_value)
{
    return find(run, call, false, false, ret_value);
}

static int text_rfind(struct run *run, const struct call *call, struct value *ret_value)
{
    return find(run, call, true, false, ret_value);
}

static int text_index(struct run *run, const struct call *call, struct value *ret_value)
{
    return find(run, call, false, true, ret_value);
}

static int text_rindex(struct run *run, const struct call *call, struct value *ret_value)
{
    return find(run, call, true, true, ret_value);
}

static int text_count(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    size_t from = 0, to = 0, found;
    int64_t count = 0;
    struct text *part;
    int r;

    if (text_argument(run, call->arguments[0], &part) < 0)
        return run_failed(run);
    r = byte_range(run, text, call->arguments[1], call->arguments[2], &from, &to);
    if (r < 0)
        return r;
    if (r == 0 && part->bytes == 0) {
        struct text range = {.data = text->data + from, .bytes = to - from, .chars = CHARS_UNKNOWN};

        count = (int64_t)text_chars(&range) + 1;
    }
    while (r == 0 && part->bytes > 0 && (found = text_find(text, part, from, to)) != SIZE_MAX) {
        from = found + part->bytes;
        count++;
        r = run_step(run, 1);
    }
    if (r < 0)
        return r;
    *ret_value = value_int(count);
    return 0;
}

static bool is_letter(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);

    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

static bool is_numeric(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);

    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

static bool is_digit(uint32_t code)
{
    return is_decimal(code) || code == 0xb2 || code == 0xb3 || code == 0xb9 ||
           (code >= 0x2070 && code <= 0x2089) || (code >= 0x2460 && code <= 0x2468);
}

static bool is_alphanumeric(uint32_t code)
{
    return is_letter(code) || is_numeric(code);
}

/* All characters are of a kind, and there is one (`empty`: what none gives). */
static int all(struct run *run, const struct call *call, bool (*is)(uint32_t code), bool empty,
               struct value *ret_value)
{
    const struct text *text = call->self.text;
    bool truth = text->bytes > 0 || empty;
    size_t bytes;

    for (size_t at = 0; truth && at < text->bytes; at += bytes)
        truth = is(char_decode(text->data + at, &bytes));
    *ret_value = value_bool(truth);
    return run_step(run, text->bytes / 16);
}

static bool is_ascii(uint32_t code)
{
    return code < 128;
}

#define ALL_METHOD(name, is, empty)                                                    \
    static int name(struct run *run, const struct call *call, struct value *ret_value) \
    {                                                                                  \
        return all(run, call, is, empty, ret_value);                                   \
    }
ALL_METHOD(text_isalpha, is_letter, false)
ALL_METHOD(text_isdecimal, is_decimal, false)
ALL_METHOD(text_isdigit, is_digit, false)
ALL_METHOD(text_isnumeric, is_numeric, false)
ALL_METHOD(text_isalnum, is_alphanumeric, false)
ALL_METHOD(text_isspace, char_is_space, false)
ALL_METHOD(text_isprintable, char_is_printable, true)
ALL_METHOD(text_isascii, is_ascii, true)

/* Cased characters are all upper (lower), and there is one. */
static int one_case(struct run *run, const struct text *text, bool upper, struct value *ret_value)
{
    bool truth = true, found = false;
    size_t bytes;

    for (size_t at = 0; truth && at < text->bytes; at += bytes) {
        utf8proc_int32_t code = (utf8proc_int32_t)char_decode(text->data + at, &bytes);
        utf8proc_category_t category = utf8proc_category(code);
        bool is_upper = category == UTF8PROC_CATEGORY_LU, is_lower = utf8proc_islower(code);

        if (category == UTF8PROC_CATEGORY_LT || (upper ? is_lower : is_upper))
            truth = false;
        found |= upper ? is_upper : is_lower;
    }
    *ret_value = value_bool(truth && found);
    return run_step(run, text->bytes / 16);
}

static int text_isupper(struct run *run, const struct call *call, struct value *ret_value)
{
    return one_case(run, call->self.text, true, ret_value);
}

static int text_islower(struct run *run, const struct call *call, struct value *ret_value)
{
    return one_case(run, call->self.text, false, ret_value);
}

static int text_istitle(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    bool truth = true, found = false, after_cased = false;
    size_t bytes;

    for (size_t at = 0; truth && at < text->bytes; at += bytes) {
        utf8proc_int32_t code = (utf8proc_int32_t)char_decode(text->data + at, &bytes);
        utf8proc_category_t category = utf8proc_category(code);
        bool is_upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
        bool is_lower = utf8proc_islower(code);

        if (is_upper ? after_cased : is_lower && !after_cased)
            truth = false;
        after_cased = is_upper || is_lower;
        found |= after_cased;
    }
    *ret_value = value_bool(truth && found);
    return run_step(run, text->bytes / 16);
}

static int text_isidentifier(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct text *text = call->self.text;
    bool truth = text->bytes > 0;
    size_t bytes;

    for (size_t at = 0; truth && at < text->bytes; at += bytes) {
        uint32_t code = char_decode(text->data + at, &bytes);

        truth = code == '_' || is_letter(code) || (at > 0 && is_decimal(code));
    }
    *ret_value = value_bool(truth);
    return run_step(run, text->bytes / 16);
}

/* --- the table ------------------------------------------------------------------------------- */

const struct builtin text_methods[] = {
    {"split", "sep, maxsplit", 0, text_split},
    {"strip", "/chars", 0, text_strip_both},
    {"lstrip", "/chars", 0, text_lstrip},
    {"rstrip", "/chars", 0, text_rstrip},
    {"startswith", "/prefix, start, end", 1, text_startswith},
    {"endswith", "/suffix, start, end", 1, text_endswith},
    {"replace", "/old, new, count", 2, text_replace_method},
    {"upper", "", 0, text_upper},
    {"lower", "", 0, text_lower},
    {"title", "", 0, text_title},
    {"capitalize", "", 0, text_capitalize},
    {"swapcase", "", 0, text_swapcase},
    {"casefold", "", 0, text_casefold},
    {"format", NULL, 0, format_braces},
    {"format_map", "/mapping", 1, text_format_map},
    {"encode", NULL, 0, text_left_out},
    {"translate", NULL, 0, text_left_out},
    {"maketrans", NULL, 0, text_left_out},
    {"join", "/iterable", 1, text_join_method},
    {"find", "/sub, start, end", 1, text_find_method},
    {"rfind", "/sub, start, end", 1, text_rfind},
    {"index", "/sub, start, end", 1, text_index},
    {"rindex", "/sub, start, end", 1, text_rindex},
    {"count", "/sub, start, end", 1, text_count},
    {"rsplit", "sep, maxsplit", 0, text_rsplit},
    {"splitlines", "keepends", 0, text_splitlines},
    {"partition", "/sep", 1, text_partition},
    {"rpartition", "/sep", 1, text_rpartition},
    {"removeprefix", "/prefix", 1, text_removeprefix},
    {"removesuffix", "/suffix", 1, text_removesuffix},
    {"center", "/width, fillchar", 1, text_center},
    {"ljust", "/width, fillchar", 1, text_ljust},
    {"rjust", "/width, fillchar", 1, text_rjust},
    {"zfill", "/width", 1, text_zfill},
    {"expandtabs", "tabsize", 0, text_expandtabs},
    {"isalpha", "", 0, text_isalpha},
    {"isdigit", "", 0, text_isdigit},
    {"isdecimal", "", 0, text_isdecimal},
    {"isnumeric", "", 0, text_isnumeric},
    {"isalnum", "", 0, text_isalnum},
    {"isspace", "", 0, text_isspace},
    {"isupper", "", 0, text_isupper},
    {"islower", "", 0, text_islower},
    {"istitle", "", 0, text_istitle},
    {"isascii", "", 0, text_isascii},
    {"isprintable", "", 0, text_isprintable},
    {"isidentifier", "", 0, text_isidentifier},
    {NULL, NULL, 0, NULL},
};
