/* matmul_avx2.h -- the products' entries of the AVX2 table; contracts in kernels.h. */
#ifndef WEFT_CPU_MATMUL_AVX2_H
#define WEFT_CPU_MATMUL_AVX2_H

#include "kernels/cpu/kernels.h"

enum form form_avx2(enum pack pack, enum precision precision, uint32_t rows);
void put_avx2(const struct activations *x, uint32_t row, uint32_t first_block, uint32_t block_count,
              const float *values);
void product_avx2(const struct packed *w, uint32_t first, uint32_t count,
                  const struct activations *x, float *y, size_t stride, bool add,
                  const struct kernel_scratch *scratch);

#endif
