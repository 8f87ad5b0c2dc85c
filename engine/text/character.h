/* character.h -- one character of a text, and what Unicode says of it. Pure. */
#ifndef WEFT_CHARACTER_H
#define WEFT_CHARACTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The one that the text starts with, of *ret_bytes >= 1 bytes; -1 where it is not well-formed. */
int32_t character_at(const char *text, size_t bytes, size_t *ret_bytes);
bool character_is_space(int32_t character); /* White_Space */
/* A letter, mark, decimal digit, letter number, connector or joiner (Unicode TR 18, annex C). */
bool character_is_word(int32_t character);

#endif
