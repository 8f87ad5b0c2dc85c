/* json_scan.h -- is this JSON, asked byte by byte.
 *
 * A value that arrives in pieces is followed to its end without being kept: an automaton with one
 * bit a level for "object or array". It takes what RFC 8259 takes, and besides control characters
 * inside strings, which models write and whoever passes the text on must escape. Bytes from 0x80 on
 * are not looked at: inside strings they pass, outside they are wrong. */
#ifndef WEFT_JSON_SCAN_H
#define WEFT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 64 };

enum json_scan_result {
    JSON_SCAN_BAD,
    JSON_SCAN_MORE,
    JSON_SCAN_END,        /* the value ends with this byte */
    JSON_SCAN_END_BEFORE, /* a number ended before this byte, which is not part of it */
};

struct json_scan {
    uint8_t state;
    uint8_t depth;
    uint8_t hex_left;
    bool in_key;
    const char *word; /* what is still to come of true, false or null */
    uint64_t objects; /* bit n: level n is an object */
};

void json_scan_init(struct json_scan *scan);
/* White space before the value is skipped. Not to be called after END, END_BEFORE or BAD. */
enum json_scan_result json_scan_byte(struct json_scan *scan, char byte);
bool json_scan_in_string(const struct json_scan *scan);
/* The bytes so far would be a value if nothing followed: a number. */
bool json_scan_may_end(const struct json_scan *scan);

#endif
