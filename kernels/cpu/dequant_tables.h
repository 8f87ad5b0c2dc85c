/* dequant_tables.h -- weights with tables beside them back to float32, in plain C: the oracle. */
#ifndef WEFT_CPU_DEQUANT_TABLES_H
#define WEFT_CPU_DEQUANT_TABLES_H

#include <stdint.h>

#include "kernels/quant_tables.h"

/* Columns first_column .. + count - 1 of a row. Any threads at once. */
void dequant_tables(const struct quant_tables *tables, uint32_t row, uint32_t first_column,
                    uint32_t count, float *to);

/* What that is made of: the columns' elements as stored, as far as they are integers without their
 * zero; and the scale and the zero of one column. */
void tables_elements(const struct quant_tables *tables, uint32_t row, uint32_t first_column,
                     uint32_t count, float *to);
uint8_t tables_nibble(const struct quant_tables *tables, uint32_t row,
                      uint32_t column); /* DT_E2M1 */
float tables_scale(const struct quant_tables *tables, uint32_t row, uint32_t column);
float tables_zero(const struct quant_tables *tables, uint32_t row, uint32_t column);

#endif
