/* regex_atom.c -- characters, escapes and classes of regular expressions; see regex_internal.h. */
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/regex_internal.h"

enum { CODE_POINT_MAX = 0x10FFFF };

static const struct grammar_range digits[] = {{'0', '9'}};
static const struct grammar_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct grammar_range spaces[] = {{'\t', '\r'}, {' ', ' '}};
/* What Unicode, Python or ECMA take for white space: \S is outside of all three. */
static const struct grammar_range spaces_wide[] = {
    {0x09, 0x0D},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
    {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
    {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
};
static const struct grammar_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static int range_put(struct regex *regex, uint32_t first, uint32_t last)
{
    struct grammar_range range = {first, last};

    return regex_list_put(regex, &regex->ranges, &range, sizeof range);
}

static int ranges_put(struct regex *regex, const struct grammar_range *ranges, size_t count)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++)
        r = range_put(regex, ranges[i].first, ranges[i].last);
    return r;
}

/* The ranges are sorted and apart. */
static int ranges_put_others(struct regex *regex, const struct grammar_range *ranges, size_t count)
{
    uint32_t next = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        if (ranges[i].first > next)
            r = range_put(regex, next, ranges[i].first - 1);
        next = ranges[i].last + 1;
    }
    return r < 0 ? r : range_put(regex, next, CODE_POINT_MAX);
}

#define COUNT(items) (sizeof(items) / sizeof *(items))

/* \d \D \w \W \s \S: 1 when `c` is one of them and its ranges were put. */
static int put_named_class(struct regex *regex, char c)
{
    int r;

    switch (c) {
    case 'd':
        r = ranges_put(regex, digits, COUNT(digits));
        break;
    case 'D':
        r = ranges_put_others(regex, digits, COUNT(digits));
        break;
    case 'w':
        r = ranges_put(regex, words, COUNT(words));
        break;
    case 'W':
        r = ranges_put_others(regex, words, COUNT(words));
        break;
    case 's':
        r = ranges_put(regex, spaces, COUNT(spaces));
        break;
    case 'S':
        r = ranges_put_others(regex, spaces_wide, COUNT(spaces_wide));
        break;
    default:
        return 0;
    }
    return r < 0 ? r : 1;
}

/* One character as it stands. */
static int plain_character(struct regex *regex, uint32_t *ret_character)
{
    const char *text = regex->text + regex->at;
    uint32_t character = (uint8_t)text[0];
    size_t taken;

    if (!utf8_next(text, regex->bytes - regex->at, &taken, NULL))
        return regex_complain(regex, E_INVALID, "the text is not UTF-8");
    if (taken > 1)
        character &= 0x7Fu >> taken;
    for (size_t i = 1; i < taken; i++)
        character = character << 6 | ((uint8_t)text[i] & 0x3F);
    regex->at += taken;
    *ret_character = character;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `digits` hexadecimal digits `ahead` of here; false: there are none. */
static bool hex_peek(const struct regex *regex, size_t ahead, int count, uint32_t *ret_value)
{
    uint32_t value = 0;

    for (int i = 0; i < count; i++) {
        int digit = hex_digit(regex_peek(regex, ahead + (size_t)i));

        if (digit < 0)
            return false;
        value = value << 4 | (uint32_t)digit;
    }
    *ret_value = value;
    return true;
}

/* \u{H...}, the reader standing on the brace. */
static int braced_hex(struct regex *regex, uint32_t *ret_value)
{
    uint32_t value = 0;
    int digit;

    regex->at++;
    while ((digit = hex_digit(regex_peek(regex, 0))) >= 0 && value <= CODE_POINT_MAX) {
        value = value << 4 | (uint32_t)digit;
        regex->at++;
    }
    if (regex_peek(regex, 0) != '}')
        return regex_complain(regex, E_INVALID, "'}' is expected");
    regex->at++;
    *ret_value = value;
    return 0;
}

/* Behind \x, \u or \U. Two escapes may write a surrogate pair. */
static int hex_escape(struct regex *regex, char c, uint32_t *ret_character)
{
    int count = c == 'x' ? 2 : c == 'u' ? 4 : 8, r = 0;
    uint32_t value = 0, second;

    if (c == 'u' && regex_peek(regex, 0) == '{') {
        r = braced_hex(regex, &value);
    } else if (hex_peek(regex, 0, count, &value)) {
        regex->at += (size_t)count;
    } else {
        return regex_complain(regex, E_INVALID, "hexadecimal digits are expected");
    }
    if (r < 0)
        return r;
    if (value >= 0xD800 && value <= 0xDBFF && regex_peek(regex, 0) == '\\' &&
        regex_peek(regex, 1) == 'u' && hex_peek(regex, 2, 4, &second) && second >= 0xDC00 &&
        second <= 0xDFFF) {
        value = 0x10000 + ((value - 0xD800) << 10) + (second - 0xDC00);
        regex->at += 6;
    }
    if (value > CODE_POINT_MAX || (value >= 0xD800 && value <= 0xDFFF))
        return regex_complain(regex, E_INVALID, "the escape is no character of Unicode");
    *ret_character = value;
    return 0;
}

static int refuse_escape(struct regex *regex, char c)
{
    if ((c >= '1' && c <= '9') || c == 'k')
        return regex_complain(regex, E_UNSUPPORTED, "back-references are not supported");
    if (c == 'b' || c == 'B')
        return regex_complain(regex, E_UNSUPPORTED, "word boundaries (\\b, \\B) are not supported");
    if (c == 'p' || c == 'P')
        return regex_complain(regex, E_UNSUPPORTED, "properties (\\p) are not supported");
    return regex_complain(regex, E_INVALID, "the escape is not known");
}

/* One character behind a backslash, the reader standing behind it; no named class. */
static int escaped_character(struct regex *regex, bool in_class, uint32_t *ret_character)
{
    static const char names[] = "tnrfva0", values[] = "\t\n\r\f\v\a\0";
    char c = regex_peek(regex, 0);
    const char *found = c ? strchr(names, c) : NULL;

    if (regex->at >= regex->bytes)
        return regex_complain(regex, E_INVALID, "nothing stands behind the backslash");
    if (c == '0' && regex_peek(regex, 1) >= '0' && regex_peek(regex, 1) <= '9')
        return regex_complain(regex, E_INVALID, "octal escapes are not supported");
    if (found || (c == 'b' && in_class)) {
        regex->at++;
        *ret_character = found ? (uint8_t)values[found - names] : '\b';
        return 0;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        regex->at++;
        return hex_escape(regex, c, ret_character);
    }
    if (c == 'c' &&
        ((regex_peek(regex, 1) | 0x20) >= 'a' && (regex_peek(regex, 1) | 0x20) <= 'z')) {
        *ret_character = (uint32_t)regex_peek(regex, 1) & 0x1F;
        regex->at += 2;
        return 0;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse_escape(regex, c);
    return plain_character(regex, ret_character);
}

/* One end of a range, or a named class: *ret_named then, and its ranges are put. */
static int class_item(struct regex *regex, uint32_t *ret_character, bool *ret_named)
{
    int r;

    *ret_named = false;
    if (regex_peek(regex, 0) != '\\')
        return plain_character(regex, ret_character);
    regex->at++;
    r = put_named_class(regex, regex_peek(regex, 0));
    if (r == 1) {
        regex->at++;
        *ret_named = true;
        return 0;
    }
    return r < 0 ? r : escaped_character(regex, true, ret_character);
}

static int class_range(struct regex *regex)
{
    uint32_t first = 0, last = 0;
    bool named;
    int r = class_item(regex, &first, &named);

    if (r < 0 || named)
        return r;
    last = first;
    if (regex_peek(regex, 0) == '-' && regex_peek(regex, 1) != ']' &&
        regex->at + 1 < regex->bytes) {
        regex->at++;
        r = class_item(regex, &last, &named);
        if (r == 0 && named) { /* [a-\d]: the hyphen is itself */
            r = range_put(regex, '-', '-');
            last = first;
        }
        if (r == 0 && last < first)
            r = regex_complain(regex, E_INVALID, "the range ends before it begins");
    }
    return r < 0 ? r : range_put(regex, first, last);
}

/* [\s\S] and its kin are any character, whatever \s is taken for. */
static int class_complete(struct regex *regex, size_t first)
{
    static const char *const pairs[] = {"dD", "wW", "sS"};
    unsigned seen = 0;

    for (size_t i = first; i + 1 < regex->at; i++) {
        const char *text = regex->text + i;

        if (text[0] != '\\')
            continue;
        for (int p = 0; p < 3; p++) {
            seen |= (unsigned)(text[1] == pairs[p][0]) << 2 * p;
            seen |= (unsigned)(text[1] == pairs[p][1]) << (2 * p + 1);
        }
        i++;
    }
    return seen & seen >> 1 & 0x15 ? range_put(regex, 0, CODE_POINT_MAX) : 0;
}

static int class_read(struct regex *regex, int32_t *ret_node)
{
    size_t opened = regex->at++;
    bool negated = regex_peek(regex, 0) == '^', first = true;
    int r = 0;

    regex->at += negated;
    while (r == 0 && regex->at < regex->bytes && (first || regex_peek(regex, 0) != ']')) {
        r = class_range(regex);
        first = false;
    }
    if (r < 0)
        return r;
    if (regex->at >= regex->bytes) {
        regex->at = opened;
        return regex_complain(regex, E_INVALID, "the class has no closing bracket");
    }
    r = class_complete(regex, opened);
    if (r < 0)
        return r;
    regex->at++;
    *ret_node = grammar_class(regex->grammar, regex->ranges.items, regex->ranges.count, negated);
    return 0;
}

int regex_atom(struct regex *regex, uint32_t *ret_part)
{
    char c = regex_peek(regex, 0);
    uint32_t character = 0;
    bool is_node = c == '.' || c == '[';
    int32_t node = 0;
    int r = 0;

    regex->ranges.count = 0;
    if (c == '.') {
        regex->at++;
        node = grammar_class(regex->grammar, line_ends, COUNT(line_ends), true);
    } else if (c == '[') {
        r = class_read(regex, &node);
    } else if (c == '\\') {
        regex->at++;
        r = put_named_class(regex, regex_peek(regex, 0));
        if (r == 1) {
            regex->at++;
            is_node = true;
            r = 0;
            node = grammar_class(regex->grammar, regex->ranges.items, regex->ranges.count, false);
        } else if (r == 0) {
            r = escaped_character(regex, false, &character);
        }
    } else {
        r = plain_character(regex, &character);
    }
    if (r == 0)
        r = regex_part_add(regex, is_node ? REGEX_NODE : REGEX_CHARACTER, ret_part);
    if (r < 0)
        return r;
    regex_part_get(regex, *ret_part)->node = node;
    regex_part_get(regex, *ret_part)->character = character;
    return 0;
}
