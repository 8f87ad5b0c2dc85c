/* base64.c -- see base64.h. */
#include "engine/text/base64.h"

#include <stdint.h>

static int value_of(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

int base64_append(const char *text, size_t bytes, struct buf *to)
{
    uint32_t bits = 0, count = 0;

    while (bytes > 0 && text[bytes - 1] == '=')
        bytes--;
    if (bytes % 4 == 1)
        return E_CORRUPT;
    for (size_t i = 0; i < bytes; i++) {
        int value = value_of(text[i]);

        if (value < 0)
            return E_CORRUPT;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            buf_byte(to, (char)(uint8_t)(bits >> count));
        }
    }
    return buf_failed(to) ? E_MEMORY : 0;
}

void base64_write(const unsigned char *bytes, size_t count, struct buf *to)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t bits = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? bytes[i + 2] : 0);
        const char text[] = {letters[bits >> 18], letters[bits >> 12 & 63],
                             left > 1 ? letters[bits >> 6 & 63] : '=',
                             left > 2 ? letters[bits & 63] : '='};

        buf_put(to, text, sizeof text);
    }
}
