/* matmul_ref.h -- the plain products by name: tests compare with them, other families fall back on
 * them. */
#ifndef WEFT_CPU_MATMUL_REF_H
#define WEFT_CPU_MATMUL_REF_H

#include "kernels/cpu/kernels.h"

enum form form_ref(enum pack pack, enum precision precision, uint32_t rows);
void put_ref(const struct activations *x, uint32_t row, uint32_t first_block, uint32_t block_count,
             const float *values);
void product_ref(const struct packed *w, uint32_t first, uint32_t count,
                 const struct activations *x, float *y, size_t stride, bool add,
                 const struct kernel_scratch *scratch);

#endif
