/* dequant.h -- stored weights back to float32, in plain C: what the bits of every format mean.
 *
 * This is the oracle for all faster kernels. Results are the products and sums of the format's own
 * definition, each rounded to float32. */
#ifndef WEFT_CPU_DEQUANT_H
#define WEFT_CPU_DEQUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* Not for the formats that need tables (dequant_tables.h). */
bool dequant_supported(enum dtype type);
/* `elements` must be whole blocks; `from` may have any alignment. */
void dequant_row(enum dtype type, const void *from, uint64_t elements, float *to);

/* A block of Q2_K to Q6_K as integers: [256] quants, and [16] scales and minimums, of 16 each:
 * weight = scale q - minimum. */
void dequant_parts(enum dtype type, const void *from, int8_t *q, float *scales, float *minimums);

/* The scale of a block of MXFP4, of the doubled values: 2^(exponent - 128). */
float dequant_mxfp4_scale(uint8_t exponent);

/* The 16 values that a quant of IQ4_NL stands for; of a float of 4 bits (E2M1), doubled. */
extern const int8_t dequant_iq4_nl_values[16];
extern const int8_t dequant_e2m1_values[16];

#endif
