/* digit_groups.h -- numbers cut in groups of three digits from their ends: "12345" is "12", "345".
 *
 * Some tokenizers say it with a pattern that looks ahead to the number's end at every digit, which
 * for a megabyte of digits takes hours. Here a number is walked once. */
#ifndef WEFT_DIGIT_GROUPS_H
#define WEFT_DIGIT_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

enum digit_grouping {
    DIGITS_PLAIN,          /* no grouping */
    DIGITS_AS_GROUPS,      /* each group is a match */
    DIGITS_AS_STARTS,      /* an empty match before each group of three */
    DIGITS_OF_WHOLE_WORDS, /* groups, only where no letter follows the number */
};

/* The grouping that a pattern stands for. */
enum digit_grouping digit_grouping_of(const char *pattern, size_t bytes);

/* A walk through one text, from its start; {0} before it. */
struct digit_walk {
    size_t at;   /* the next group's start */
    size_t left; /* digits of the number from there on */
};
/* The next match at or after `from`, which only grows. false: none. */
bool digit_walk_next(struct digit_walk *walk, enum digit_grouping grouping, const char *text,
                     size_t bytes, size_t from, size_t *ret_start, size_t *ret_end);

#endif
