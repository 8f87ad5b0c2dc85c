/* rows_avx512.c -- the AVX-512 table, and its operations on rows and heads. */

/* 24 sums and a line fit the 32 registers; a fused multiply-add takes four steps on two units, so
 * eight sums at once keep them busy. */
#define ATTEND_SHAPES(X) X(12, 1, 2) X(8, 2, 2) X(4, 4, 4) X(3, 4, 4) X(2, 4, 4) X(1, 4, 4)

#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/rows_lanes.h"

const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512-vnni",
    .form = form_avx512,
    .put = put_avx512,
    .product = product_avx512,
    .norm = norm_lanes,
    .activate = activate_lanes,
    .softcap = softcap_lanes,
    .rotate = rotate_lanes,
    .kv_write = kv_write_lanes,
    .attend = attend_lanes,
    .argmax = argmax_lanes,
};
