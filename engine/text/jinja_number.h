/* jinja_number.h -- Python's numbers: integers without a limit (but for BIG_LIMBS_MAX), and floats.
 *
 * An integer that fits int64 is always a VALUE_INT; larger ones are VALUE_BIG. */
#ifndef WEFT_JINJA_NUMBER_H
#define WEFT_JINJA_NUMBER_H

#include "engine/text/jinja_run.h"

enum {
    BIG_LIMBS_MAX = 448, /* about the 4,300 digits that Python prints */
    FLOAT_TEXT_ROOM = 400,
    FLOAT_STEPS = 50, /* what printing or reading a float counts as */
};

struct big {
    bool negative;
    uint32_t count; /* of limbs; the last is not 0 */
    uint32_t limbs[];
};

/* Digits of `base` 2 to 16, no sign or separators; `negative` is its sign. */
int number_read(struct run *run, const char *digits, size_t count, unsigned base, bool negative,
                struct value *ret_value);
/* Both operands are numbers. */
int number_arithmetic(struct run *run, enum operation operation, struct value left,
                      struct value right, struct value *ret_value);
int number_negate(struct run *run, struct value value, struct value *ret_value);
/* -1, 0, 1; 2 when a NaN is among them. */
int number_compare(struct value left, struct value right);
double number_float(struct value value);
/* The integer part of a float. */
int number_truncate(struct run *run, double real, struct value *ret_value);
void number_print(struct value value, struct buf *out);
/* repr() of a float: the shortest digits that read back as it. */
void float_print(double real, char ret_text[static FLOAT_TEXT_ROOM]);
/* float(text): whole text, blanks around allowed. */
bool float_read(const struct text *text, double *ret_real);
/* int(text, base): 1, 0 when it is none, or a fault. */
int integer_read(struct run *run, const struct text *text, unsigned base, struct value *ret_value);

#endif
