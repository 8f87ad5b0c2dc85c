/* jinja_text.c -- see jinja_text.h. */
#include "engine/text/jinja_text.h"

#include <stdio.h>
#include <utf8proc.h>

enum { ROOM_BYTES_MIN = 256 };

/* --- characters ------------------------------------------------------------------------------- */

uint32_t char_decode(const char *text, size_t *ret_bytes)
{
    const unsigned char *at = (const unsigned char *)text;

    if (at[0] < 0x80) {
        *ret_bytes = 1;
        return at[0];
    }
    if (at[0] < 0xe0) {
        *ret_bytes = 2;
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (at[0] < 0xf0) {
        *ret_bytes = 3;
        return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *ret_bytes = 4;
    return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

size_t char_encode(uint32_t code, char ret_bytes[static 4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)ret_bytes);
}

void char_put(uint32_t code, struct buf *out)
{
    char bytes[4];

    buf_put(out, bytes, char_encode(code, bytes));
}

bool char_is_space(uint32_t code)
{
    if (code < 0x80)
        return (code >= 9 && code <= 13) || (code >= 0x1c && code <= 0x20);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool char_is_printable(uint32_t code)
{
    if (code < 0x80)
        return code >= 0x20 && code < 0x7f;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

/* --- making ----------------------------------------------------------------------------------- */

struct text *text_lend(struct run *run, const char *data, size_t bytes)
{
    struct text *text = run_take(run, 1, sizeof *text);

    if (text)
        *text = (struct text){.data = data, .bytes = bytes, .chars = CHARS_UNKNOWN};
    return text;
}

struct text *text_copy(struct run *run, const char *data, size_t bytes)
{
    char *copy = arena_copy(run->arena, data, bytes);

    if (!copy) {
        (void)run_out_of_memory(run);
        return NULL;
    }
    return run_step(run, bytes / 64) < 0 ? NULL : text_lend(run, copy, bytes);
}

struct text *text_part(struct run *run, const struct text *text, size_t start, size_t end)
{
    struct text *part = text_lend(run, text->data + start, end - start);

    if (!part)
        return NULL;
    part->markup = text->markup;
    if (text->chars == text->bytes)
        part->chars = part->bytes;
    return part;
}

int text_give(struct text *text, struct run *run, struct value *ret_value)
{
    if (!text)
        return run->fault && run->fault->code < 0 ? run->fault->code : E_MEMORY;
    *ret_value = value_text(text);
    return 0;
}

/* Bytes that can be written at the end of `left`, `more` of them at least: behind it, when nothing
 * has been written there yet. */
static struct text *text_grow(struct run *run, const struct text *left, size_t more)
{
    struct text_room *room = left->room;
    size_t bytes;
    struct text *text = text_lend(run, NULL, 0);

    if (!text || __builtin_add_overflow(left->bytes, more, &bytes))
        return NULL;
    text->bytes = bytes;
    if (room && left->data + left->bytes == room->data + room->used &&
        more <= room->size - room->used) {
        text->data = left->data;
        text->room = room;
        room->used += more;
        return text;
    }
    room = run_take(run, 1, sizeof *room);
    if (!room)
        return NULL;
    room->size = bytes < ROOM_BYTES_MIN ? bytes : bytes + bytes / 2;
    room->data = run_take(run, room->size, 1);
    if (!room->data || run_step(run, left->bytes / 64) < 0)
        return NULL;
    memcpy(room->data, left->data, left->bytes);
    room->used = bytes;
    text->data = room->data;
    text->room = room;
    return text;
}

static struct text *join_plain(struct run *run, const struct text *left, const struct text *right)
{
    struct text *text = text_grow(run, left, right->bytes);

    if (!text || run_step(run, right->bytes / 64) < 0)
        return NULL;
    memcpy(text->room->data + (text->data - text->room->data) + left->bytes, right->data,
           right->bytes);
    if (left->chars != CHARS_UNKNOWN && right->chars != CHARS_UNKNOWN)
        text->chars = left->chars + right->chars;
    return text;
}

struct text *text_join(struct run *run, const struct text *left, const struct text *right)
{
    struct text *text;

    if (left->markup == right->markup) {
        text = join_plain(run, left, right);
    } else {
        if (left->markup)
            right = text_escape(run, right);
        else
            left = text_escape(run, left);
        text = left && right ? join_plain(run, left, right) : NULL;
    }
    if (text)
        text->markup = left->markup || right->markup;
    return text;
}

struct text *text_repeat(struct run *run, const struct text *text, int64_t times)
{
    struct text *repeated;
    size_t bytes;
    char *data;

    if (times <= 0 || text->bytes == 0)
        times = 0;
    if (__builtin_mul_overflow((size_t)times, text->bytes, &bytes) ||
        bytes > JINJA_MEMORY_BYTES_MAX) {
        (void)run_fault(run, E_TOO_LARGE, "a text is repeated %lld times, which is too long",
                        (long long)times);
        return NULL;
    }
    data = run_take(run, bytes + 1, 1);
    if (!data || run_step(run, (uint64_t)times / 8 + bytes / 64) < 0)
        return NULL;
    for (int64_t i = 0; i < times; i++)
        memcpy(data + (size_t)i * text->bytes, text->data, text->bytes);
    repeated = text_lend(run, data, bytes);
    if (repeated)
        repeated->markup = text->markup;
    return repeated;
}

struct text *text_escape(struct run *run, const struct text *text)
{
    static const char *const escapes[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&#34;", ['\''] = "&#39;"};
    size_t start = run->out->bytes;
    struct text *escaped;

    if (text->markup)
        return text_part(run, text, 0, text->bytes);
    for (size_t i = 0; i < text->bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];

        if (c < 128 && escapes[c])
            buf_text(run->out, escapes[c]);
        else
            buf_byte(run->out, (char)c);
    }
    escaped = run_capture(run, start);
    if (escaped)
        escaped->markup = true;
    return escaped;
}

/* --- asking ----------------------------------------------------------------------------------- */

static size_t count_chars(const char *data, size_t bytes)
{
    size_t chars = 0;

    for (size_t i = 0; i < bytes; i++)
        chars += ((unsigned char)data[i] & 0xc0) != 0x80;
    return chars;
}

size_t text_chars(const struct text *text)
{
    if (text->chars == CHARS_UNKNOWN)
        /* Only a text of this rendering's own is not yet counted. */
        ((struct text *)(uintptr_t)text)->chars = count_chars(text->data, text->bytes);
    return text->chars;
}

size_t text_offset(const struct text *text, size_t index)
{
    size_t at = 0;

    if (text_chars(text) == text->bytes)
        return index;
    while (index > 0) {
        do
            at++;
        while (at < text->bytes && ((unsigned char)text->data[at] & 0xc0) == 0x80);
        index--;
    }
    return at;
}

uint32_t text_hash(const char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    return (uint32_t)hash ? (uint32_t)hash : 1;
}

bool text_equal(const struct text *left, const struct text *right)
{
    return left == right ||
           (left->bytes == right->bytes && memcmp(left->data, right->data, left->bytes) == 0);
}

bool text_is(const struct text *text, const char *string)
{
    size_t bytes = strlen(string);

    return text->bytes == bytes && memcmp(text->data, string, bytes) == 0;
}

/* UTF-8 sorts as its code points do. */
int text_compare(const struct text *left, const struct text *right)
{
    size_t bytes = left->bytes < right->bytes ? left->bytes : right->bytes;
    int order = memcmp(left->data, right->data, bytes);

    if (order != 0)
        return order < 0 ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

size_t text_find(const struct text *text, const struct text *part, size_t from, size_t to)
{
    const char *found;

    if (from > to || part->bytes > to - from)
        return SIZE_MAX;
    found = memmem(text->data + from, to - from, part->data, part->bytes);
    return found ? (size_t)(found - text->data) : SIZE_MAX;
}

size_t text_find_last(const struct text *text, const struct text *part, size_t from, size_t to)
{
    if (from > to || part->bytes > to - from)
        return SIZE_MAX;
    for (size_t at = to - part->bytes + 1; at-- > from;) {
        if (memcmp(text->data + at, part->data, part->bytes) == 0)
            return at;
    }
    return SIZE_MAX;
}

/* --- changing --------------------------------------------------------------------------------- */

static bool is_cased(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
        return true;
    default:
        return (code >= 0x2b0 && code <= 0x2b8) || (code >= 0x24b6 && code <= 0x24e9) ||
               (code >= 0x2160 && code <= 0x217f) || code == 0xaa || code == 0xba;
    }
}

/* Does not keep a sigma from being the last letter. */
static bool is_ignorable(uint32_t code)
{
    static const char marks[] = "'.:^`";
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);

    return (code < 128 && code && strchr(marks, (int)code)) || code == 0xa8 || code == 0xad ||
           code == 0xaf || code == 0xb4 || code == 0xb7 || code == 0xb8 || code == 0x2019 ||
           category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM;
}

/* A capital sigma at the end of a word is small in another form. */
static uint32_t lower_sigma(const struct text *text, size_t at)
{
    size_t bytes, i = at;
    uint32_t code = 0;

    while (i > 0) {
        do
            i--;
        while (((unsigned char)text->data[i] & 0xc0) == 0x80);
        code = char_decode(text->data + i, &bytes);
        if (!is_ignorable(code))
            break;
        code = 0;
    }
    if (!code || !is_cased(code))
        return 0x3c3;
    for (i = at + 2; i < text->bytes; i += bytes) {
        code = char_decode(text->data + i, &bytes);
        if (!is_ignorable(code))
            return is_cased(code) ? 0x3c3 : 0x3c2;
    }
    return 0x3c2;
}

static void put_case(const struct text *text, size_t at, uint32_t code, enum text_case to,
                     struct buf *out)
{
    const uint32_t *special;
    utf8proc_int32_t folded[8];
    utf8proc_int32_t changed = (utf8proc_int32_t)code;

    if (code < 128) {
        bool letter = (code | 32) >= 'a' && (code | 32) <= 'z';

        if (letter)
            code = to == CASE_UPPER || to == CASE_TITLE ? code & ~32u : code | 32;
        buf_byte(out, (char)code);
        return;
    }
    if (to == CASE_FOLD) {
        int last = 0;
        utf8proc_ssize_t count =
            utf8proc_decompose_char(changed, folded, 8, UTF8PROC_CASEFOLD, &last);

        for (utf8proc_ssize_t i = 0; i < count && i < 8; i++)
            char_put((uint32_t)folded[i], out);
        return;
    }
    special = case_special(code, to);
    if (special) {
        for (; *special; special++)
            char_put(*special, out);
        return;
    }
    if (to == CASE_UPPER)
        changed = utf8proc_toupper(changed);
    else if (to == CASE_TITLE)
        changed = utf8proc_totitle(changed);
    else if (code == 0x3a3)
        changed = (utf8proc_int32_t)lower_sigma(text, at);
    else
        changed = utf8proc_tolower(changed);
    char_put((uint32_t)changed, out);
}

struct text *text_change_case(struct run *run, const struct text *text, enum text_case to)
{
    size_t start = run->out->bytes, bytes;
    struct text *changed;
    bool after_cased = false;

    if (run_step(run, text->bytes / 8) < 0)
        return NULL;
    for (size_t at = 0; at < text->bytes; at += bytes) {
        uint32_t code = char_decode(text->data + at, &bytes);
        enum text_case one = to;

        if (to == CASE_CAPITALIZE)
            one = at == 0 ? CASE_TITLE : CASE_LOWER;
        else if (to == CASE_TITLE)
            one = after_cased ? CASE_LOWER : CASE_TITLE;
        else if (to == CASE_SWAP)
            one = utf8proc_islower((utf8proc_int32_t)code) ? CASE_UPPER : CASE_LOWER;
        if (to == CASE_TITLE)
            after_cased = is_cased(code);
        put_case(text, at, code, one, run->out);
    }
    changed = run_capture(run, start);
    if (changed)
        changed->markup = text->markup;
    return changed;
}

static bool in_set(const char *at, size_t bytes, uint32_t code, const struct text *set)
{
    if (!set)
        return char_is_space(code);
    return bytes == 1 ? memchr(set->data, *at, set->bytes) != NULL
                      : memmem(set->data, set->bytes, at, bytes) != NULL;
}

struct text *text_strip(struct run *run, const struct text *text, const struct text *set,
                        unsigned sides)
{
    size_t start = 0, end = text->bytes, bytes;

    if (set && run_step(run, set->bytes * (text->bytes < 64 ? 1 : text->bytes / 64)) < 0)
        return NULL;
    while ((sides & STRIP_LEFT) && start < end) {
        uint32_t code = char_decode(text->data + start, &bytes);

        if (!in_set(text->data + start, bytes, code, set))
            break;
        start += bytes;
    }
    while ((sides & STRIP_RIGHT) && end > start) {
        size_t at = end;

        do
            at--;
        while (((unsigned char)text->data[at] & 0xc0) == 0x80);
        if (!in_set(text->data + at, end - at, char_decode(text->data + at, &bytes), set))
            break;
        end = at;
    }
    return text_part(run, text, start, end);
}

struct text *text_replace(struct run *run, const struct text *text, const struct text *from,
                          const struct text *to, int64_t limit)
{
    size_t start = run->out->bytes, at = 0;
    struct text *changed;

    if (text->markup) {
        from = text_escape(run, from);
        to = text_escape(run, to);
    }
    if (!from || !to || run_step(run, text->bytes / 16) < 0)
        return NULL;
    while (limit != 0) {
        size_t found = text_find(text, from, at, text->bytes);
        size_t one = 0;

        if (run_step(run, 1 + to->bytes / 64) < 0) {
            buf_cut(run->out, start);
            return NULL;
        }
        if (found == SIZE_MAX)
            break;
        buf_put(run->out, text->data + at, found - at);
        buf_put(run->out, to->data, to->bytes);
        at = found + from->bytes;
        limit -= limit > 0;
        if (from->bytes > 0)
            continue;
        if (at == text->bytes) /* between all characters, and at both ends */
            break;
        (void)char_decode(text->data + at, &one);
        buf_put(run->out, text->data + at, one);
        at += one;
    }
    buf_put(run->out, text->data + at, text->bytes - at);
    changed = run_capture(run, start);
    if (changed)
        changed->markup = text->markup;
    return changed;
}

void text_repr(const struct text *text, struct buf *out)
{
    bool single = memchr(text->data, '\'', text->bytes) != NULL;
    bool twin = memchr(text->data, '"', text->bytes) != NULL;
    char quote = single && !twin ? '"' : '\'';
    size_t bytes;

    buf_byte(out, quote);
    for (size_t i = 0; i < text->bytes; i += bytes) {
        uint32_t code = char_decode(text->data + i, &bytes);

        if (code == (unsigned char)quote || code == '\\')
            buf_format(out, "\\%c", (int)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            buf_text(out, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        else if (char_is_printable(code))
            buf_put(out, text->data + i, bytes);
        else if (code < 0x100)
            buf_format(out, "\\x%02x", code);
        else
            buf_format(out, code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    }
    buf_byte(out, quote);
}
