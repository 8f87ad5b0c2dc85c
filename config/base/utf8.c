/* utf8.c -- see utf8.h. The second byte's range carries all the special cases of table 3-7. */
#include "config/base/utf8.h"

#include <stdint.h>

struct lead {
    unsigned count; /* bytes of the character; 0: no character starts so */
    uint8_t low;    /* of the second byte */
    uint8_t high;
};

static struct lead lead_of(uint8_t byte)
{
    if (byte < 0x80)
        return (struct lead){1, 0, 0};
    if (byte < 0xc2 || byte > 0xf4)
        return (struct lead){0, 0, 0};
    if (byte < 0xe0)
        return (struct lead){2, 0x80, 0xbf};
    if (byte < 0xf0)
        return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
}

bool utf8_next(const char *text, size_t bytes, size_t *ret_bytes, bool *ret_cut)
{
    const uint8_t *at = (const uint8_t *)text;
    struct lead lead = lead_of(at[0]);
    size_t used;

    if (ret_cut)
        *ret_cut = false;
    for (used = 1; used < lead.count; used++) {
        uint8_t low = used == 1 ? lead.low : 0x80;
        uint8_t high = used == 1 ? lead.high : 0xbf;

        if (used == bytes && ret_cut)
            *ret_cut = true;
        if (used == bytes || at[used] < low || at[used] > high)
            break;
    }
    *ret_bytes = used;
    return lead.count > 0 && used == lead.count;
}

size_t utf8_put(uint32_t code, char to[4])
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}
