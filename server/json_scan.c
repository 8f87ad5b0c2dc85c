/* json_scan.c -- see json_scan.h. */
#include "server/json_scan.h"

#include <string.h>

enum {
    SCAN_VALUE,
    SCAN_FIRST_ITEM, /* a value or ']' */
    SCAN_FIRST_KEY,  /* a key or '}' */
    SCAN_KEY,
    SCAN_COLON,
    SCAN_AFTER, /* ',' or what closes the level */
    SCAN_STRING,
    SCAN_ESCAPE,
    SCAN_HEX,
    SCAN_WORD,
    SCAN_MINUS,
    SCAN_ZERO,
    SCAN_INTEGER,
    SCAN_POINT,
    SCAN_FRACTION,
    SCAN_E,
    SCAN_SIGN,
    SCAN_EXPONENT,
};

void json_scan_init(struct json_scan *scan)
{
    *scan = (struct json_scan){.state = SCAN_VALUE};
}

bool json_scan_in_string(const struct json_scan *scan)
{
    return scan->state >= SCAN_STRING && scan->state <= SCAN_HEX;
}

bool json_scan_may_end(const struct json_scan *scan)
{
    return scan->depth == 0 && (scan->state == SCAN_ZERO || scan->state == SCAN_INTEGER ||
                                scan->state == SCAN_FRACTION || scan->state == SCAN_EXPONENT);
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static enum json_scan_result to(struct json_scan *scan, unsigned state)
{
    scan->state = (uint8_t)state;
    return JSON_SCAN_MORE;
}

/* A value has ended with the byte at hand. */
static enum json_scan_result ended(struct json_scan *scan)
{
    scan->state = SCAN_AFTER;
    return scan->depth == 0 ? JSON_SCAN_END : JSON_SCAN_MORE;
}

static enum json_scan_result open_level(struct json_scan *scan, bool object)
{
    uint64_t bit;

    if (scan->depth == JSON_SCAN_DEPTH_MAX)
        return JSON_SCAN_BAD;
    bit = UINT64_C(1) << scan->depth++;
    scan->objects = object ? scan->objects | bit : scan->objects & ~bit;
    return to(scan, object ? SCAN_FIRST_KEY : SCAN_FIRST_ITEM);
}

static bool in_object(const struct json_scan *scan)
{
    return scan->depth > 0 && (scan->objects >> (scan->depth - 1) & 1);
}

static enum json_scan_result close_level(struct json_scan *scan)
{
    scan->depth--;
    return ended(scan);
}

static enum json_scan_result begin_value(struct json_scan *scan, char byte)
{
    switch (byte) {
    case '{':
        return open_level(scan, true);
    case '[':
        return open_level(scan, false);
    case '"':
        scan->in_key = false;
        return to(scan, SCAN_STRING);
    case '-':
        return to(scan, SCAN_MINUS);
    case '0':
        return to(scan, SCAN_ZERO);
    case 't':
        scan->word = "rue";
        return to(scan, SCAN_WORD);
    case 'f':
        scan->word = "alse";
        return to(scan, SCAN_WORD);
    case 'n':
        scan->word = "ull";
        return to(scan, SCAN_WORD);
    default:
        return is_digit(byte) ? to(scan, SCAN_INTEGER) : JSON_SCAN_BAD;
    }
}

static enum json_scan_result after_value(struct json_scan *scan, char byte)
{
    if (is_space(byte))
        return JSON_SCAN_MORE;
    if (byte == ',')
        return to(scan, in_object(scan) ? SCAN_KEY : SCAN_VALUE);
    if (byte == (in_object(scan) ? '}' : ']'))
        return close_level(scan);
    return JSON_SCAN_BAD;
}

static enum json_scan_result in_string(struct json_scan *scan, char byte)
{
    if (scan->state == SCAN_HEX) {
        if (!is_digit(byte) && !((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f'))
            return JSON_SCAN_BAD;
        return --scan->hex_left > 0 ? JSON_SCAN_MORE : to(scan, SCAN_STRING);
    }
    if (scan->state == SCAN_ESCAPE) {
        if (byte == 'u') {
            scan->hex_left = 4;
            return to(scan, SCAN_HEX);
        }
        return byte && strchr("\"\\/bfnrt", byte) ? to(scan, SCAN_STRING) : JSON_SCAN_BAD;
    }
    if (byte == '\\')
        return to(scan, SCAN_ESCAPE);
    if (byte != '"')
        return JSON_SCAN_MORE;
    return scan->in_key ? to(scan, SCAN_COLON) : ended(scan);
}

/* The byte after a number belongs to the level around it. */
static enum json_scan_result number_ended(struct json_scan *scan, char byte)
{
    scan->state = SCAN_AFTER;
    return scan->depth == 0 ? JSON_SCAN_END_BEFORE : after_value(scan, byte);
}

static enum json_scan_result in_number(struct json_scan *scan, char byte)
{
    bool digit = is_digit(byte), e = byte == 'e' || byte == 'E';

    switch (scan->state) {
    case SCAN_MINUS:
        return digit ? to(scan, byte == '0' ? SCAN_ZERO : SCAN_INTEGER) : JSON_SCAN_BAD;
    case SCAN_ZERO:
    case SCAN_INTEGER:
        if (digit)
            return scan->state == SCAN_ZERO ? JSON_SCAN_BAD : JSON_SCAN_MORE;
        if (byte == '.')
            return to(scan, SCAN_POINT);
        return e ? to(scan, SCAN_E) : number_ended(scan, byte);
    case SCAN_POINT:
        return digit ? to(scan, SCAN_FRACTION) : JSON_SCAN_BAD;
    case SCAN_FRACTION:
        if (digit)
            return JSON_SCAN_MORE;
        return e ? to(scan, SCAN_E) : number_ended(scan, byte);
    case SCAN_E:
        if (byte == '+' || byte == '-')
            return to(scan, SCAN_SIGN);
        return digit ? to(scan, SCAN_EXPONENT) : JSON_SCAN_BAD;
    case SCAN_SIGN:
        return digit ? to(scan, SCAN_EXPONENT) : JSON_SCAN_BAD;
    default:
        return digit ? JSON_SCAN_MORE : number_ended(scan, byte);
    }
}

enum json_scan_result json_scan_byte(struct json_scan *scan, char byte)
{
    if (json_scan_in_string(scan))
        return in_string(scan, byte);
    if (scan->state >= SCAN_MINUS)
        return in_number(scan, byte);
    if (scan->state == SCAN_WORD) {
        if (byte != *scan->word)
            return JSON_SCAN_BAD;
        return *++scan->word ? JSON_SCAN_MORE : ended(scan);
    }
    if (scan->state == SCAN_AFTER)
        return after_value(scan, byte);
    if (is_space(byte))
        return JSON_SCAN_MORE;
    if (scan->state == SCAN_COLON)
        return byte == ':' ? to(scan, SCAN_VALUE) : JSON_SCAN_BAD;
    if ((scan->state == SCAN_FIRST_ITEM && byte == ']') ||
        (scan->state == SCAN_FIRST_KEY && byte == '}'))
        return close_level(scan);
    if (scan->state == SCAN_VALUE || scan->state == SCAN_FIRST_ITEM)
        return begin_value(scan, byte);
    if (byte != '"')
        return JSON_SCAN_BAD;
    scan->in_key = true;
    return to(scan, SCAN_STRING);
}
