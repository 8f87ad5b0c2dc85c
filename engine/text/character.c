/* character.c -- see character.h. */
#include "engine/text/character.h"

#include <utf8proc.h>

int32_t character_at(const char *text, size_t bytes, size_t *ret_bytes)
{
    int32_t character = -1;
    ssize_t taken = utf8proc_iterate((const uint8_t *)text, (ssize_t)bytes, &character);

    *ret_bytes = taken > 0 ? (size_t)taken : 1;
    return taken > 0 ? character : -1;
}

bool character_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool character_is_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200c || c == 0x200d;
    }
}
