/* digit_groups.c -- see digit_groups.h. */
#include "engine/text/digit_groups.h"

#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <utf8proc.h>

#include "engine/text/character.h"

enum digit_grouping digit_grouping_of(const char *pattern, size_t bytes)
{
    static const struct {
        const char *pattern;
        enum digit_grouping grouping;
    } rows[] = {
        {"(?=(\\d{3})+(?!\\d))", DIGITS_AS_STARTS},
        {"(?=(?:\\d{3})+(?!\\d))", DIGITS_AS_STARTS},
        {"\\d{1,3}(?=(?:\\d{3})*\\b)", DIGITS_OF_WHOLE_WORDS},
        {"(?:\\p{N}{1,2}(?=(?:\\p{N}{3})+(?!\\p{N})))|\\p{N}{3}", DIGITS_AS_GROUPS},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].pattern) == bytes && memcmp(rows[i].pattern, pattern, bytes) == 0)
            return rows[i].grouping;
    return DIGITS_PLAIN;
}

static bool is_digit(enum digit_grouping grouping, int32_t character)
{
    utf8proc_category_t category = utf8proc_category(character);

    return category == UTF8PROC_CATEGORY_ND ||
           (grouping == DIGITS_AS_GROUPS &&
            (category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO));
}

/* The next number at or after `at`, that counts. */
static bool find_number(struct digit_walk *walk, enum digit_grouping grouping, const char *text,
                        size_t bytes, size_t at)
{
    size_t start = at, count = 0, taken;

    for (; at < bytes; at += taken) {
        int32_t character = character_at(text + at, bytes - at, &taken);

        if (is_digit(grouping, character)) {
            if (count++ == 0)
                start = at;
        } else if (count > 0 &&
                   !(grouping == DIGITS_OF_WHOLE_WORDS && character_is_word(character))) {
            break;
        } else {
            count = 0;
        }
    }
    *walk = (struct digit_walk){start, count};
    return count > 0;
}

static size_t behind_digits(const char *text, size_t bytes, size_t at, size_t count)
{
    size_t taken;

    for (; count > 0 && at < bytes; count--, at += taken)
        (void)character_at(text + at, bytes - at, &taken);
    return at;
}

bool digit_walk_next(struct digit_walk *walk, enum digit_grouping grouping, const char *text,
                     size_t bytes, size_t from, size_t *ret_start, size_t *ret_end)
{
    size_t group, end;

    do {
        if (walk->left == 0 &&
            !find_number(walk, grouping, text, bytes, walk->at > from ? walk->at : from))
            return false;
        group = walk->left % 3 > 0 ? walk->left % 3 : 3;
        end = behind_digits(text, bytes, walk->at, group);
        *ret_start = walk->at;
        *ret_end = grouping == DIGITS_AS_STARTS ? walk->at : end;
        walk->at = end;
        walk->left -= group;
        /* A group of one or two starts no group of three. */
    } while (grouping == DIGITS_AS_STARTS && group < 3);
    return true;
}
