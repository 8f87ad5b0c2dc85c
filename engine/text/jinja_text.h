/* jinja_text.h -- texts as Python's str knows them: counted, cut and changed by characters. */
#ifndef WEFT_JINJA_TEXT_H
#define WEFT_JINJA_TEXT_H

#include <string.h>

#include "engine/text/jinja_run.h"

/* --- characters ---- */

/* The character at the start of well-formed UTF-8. */
uint32_t char_decode(const char *text, size_t *ret_bytes);
size_t char_encode(uint32_t code, char ret_bytes[static 4]);
void char_put(uint32_t code, struct buf *out);
bool char_is_space(uint32_t code);
bool char_is_printable(uint32_t code);

/* --- making; NULL: the fault is set ---- */

struct text *text_copy(struct run *run, const char *data, size_t bytes);
struct text *text_lend(struct run *run, const char *data, size_t bytes); /* not copied */
static inline struct text *text_of(struct run *run, const char *string)
{
    return text_lend(run, string, strlen(string));
}
/* A part of another, by bytes; keeps its being markup. */
struct text *text_part(struct run *run, const struct text *text, size_t start, size_t end);
struct text *text_join(struct run *run, const struct text *left, const struct text *right);
struct text *text_repeat(struct run *run, const struct text *text, int64_t times);
struct text *text_escape(struct run *run, const struct text *text); /* for HTML; gives markup */
/* 0 and the value, or the fault when `text` is NULL. */
int text_give(struct text *text, struct run *run, struct value *ret_value);

/* --- asking ---- */

size_t text_chars(const struct text *text);
/* The byte where character number `index` <= chars begins. */
size_t text_offset(const struct text *text, size_t index);
uint32_t text_hash(const char *data, size_t bytes);
bool text_equal(const struct text *left, const struct text *right);
bool text_is(const struct text *text, const char *string);
int text_compare(const struct text *left, const struct text *right); /* by code points */
/* The first byte of `part` at or after `from`, the last before `to`; SIZE_MAX: nowhere. */
size_t text_find(const struct text *text, const struct text *part, size_t from, size_t to);
size_t text_find_last(const struct text *text, const struct text *part, size_t from, size_t to);

/* --- changing ---- */

enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_FOLD };
struct text *text_change_case(struct run *run, const struct text *text, enum text_case to);
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* `set`: the characters to strip; NULL: white space. */
struct text *text_strip(struct run *run, const struct text *text, const struct text *set,
                        unsigned sides);
/* At most `limit` of them; negative: all. */
struct text *text_replace(struct run *run, const struct text *text, const struct text *from,
                          const struct text *to, int64_t limit);
/* repr(text), with Python's choice of quotes. */
void text_repr(const struct text *text, struct buf *out);

/* Full mappings of what becomes several characters (jinja_case.c): NULL when there is none. */
const uint32_t *case_special(uint32_t code, enum text_case to);

#endif
