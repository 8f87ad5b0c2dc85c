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
