/* normalize.c -- see normalize.h.
 *
 * utf8proc decomposes and composes; the order of combining marks between the two is made here,
 * because utf8proc sorts a run of marks by swapping neighbours, which takes hours for a megabyte of
 * them. */
#include "engine/text/normalize.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* U+FDFA decomposes to 18 characters, more than any other. */
enum { DECOMPOSED_MAX = 18, MARK_CLASSES = 256 };

static bool is_compatible(enum normalization form)
{
    return form == FORM_KC || form == FORM_KD;
}

/* Nothing below U+0300 changes in form C, nothing below U+0080 in any. */
bool normalize_is_plain(enum normalization form, const char *text, size_t bytes)
{
    uint8_t first = form == FORM_C ? 0xcc : 0x80;

    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= first)
            return false;
    return true;
}

static uint8_t mark_class(int32_t character)
{
    return (uint8_t)utf8proc_get_property(character)->combining_class;
}

/* Sorts a run of marks by class, equal ones staying in order (a counting sort). */
static void sort_marks(int32_t *marks, size_t count, int32_t *spare)
{
    size_t starts[MARK_CLASSES + 1] = {0};

    for (size_t i = 0; i < count; i++)
        starts[mark_class(marks[i]) + 1]++;
    for (size_t i = 1; i <= MARK_CLASSES; i++)
        starts[i] += starts[i - 1];
    for (size_t i = 0; i < count; i++)
        spare[starts[mark_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void order_marks(int32_t *text, size_t count, int32_t *spare)
{
    for (size_t i = 0; i < count;) {
        size_t end = i;

        while (end < count && mark_class(text[end]) != 0)
            end++;
        if (end - i > 1)
            sort_marks(text + i, end - i, spare);
        i = end + 1;
    }
}

/* Returns how many characters were written. No canonical decomposition has more characters than
 * twice the bytes of what it replaces (two bytes become three at most, three become four), no other
 * more than six times. */
static size_t decompose(enum normalization form, const char *text, size_t bytes,
                        int32_t *ret_characters)
{
    const utf8proc_option_t options =
        (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                            (is_compatible(form) ? UTF8PROC_COMPAT : 0));
    size_t used = 0;

    for (size_t at = 0; at < bytes;) {
        int32_t character;
        int boundary = 0;
        ssize_t taken =
            utf8proc_iterate((const uint8_t *)text + at, (ssize_t)(bytes - at), &character);
        ssize_t count;

        if (taken <= 0)
            break; /* not well-formed: against the contract */
        count = utf8proc_decompose_char(character, ret_characters + used, DECOMPOSED_MAX, options,
                                        &boundary);
        if (count <= 0 || count > DECOMPOSED_MAX) {
            ret_characters[used] = character;
            count = 1;
        }
        used += (size_t)count;
        at += (size_t)taken;
    }
    return used;
}

int normalize_append(enum normalization form, struct buf *ret_text, const char *text, size_t bytes)
{
    size_t room = (is_compatible(form) ? 6 : 2) * bytes + DECOMPOSED_MAX;
    int32_t *characters = malloc(room * sizeof *characters);
    int32_t *spare = NULL;
    ssize_t count;
    int r = -ENOMEM;

    if (!characters)
        goto out;
    count = (ssize_t)decompose(form, text, bytes, characters);
    spare = malloc(((size_t)count + 1) * sizeof *spare);
    if (!spare)
        goto out;
    order_marks(characters, (size_t)count, spare);
    if (form == FORM_C || form == FORM_KC)
        count = utf8proc_normalize_utf32(characters, count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (ssize_t i = 0; i < count; i++) {
        uint8_t encoded[4];

        buf_put(ret_text, encoded, (size_t)utf8proc_encode_char(characters[i], encoded));
    }
    r = buf_failed(ret_text) ? -ENOMEM : 0;
out:
    free(characters);
    free(spare);
    return r;
}
