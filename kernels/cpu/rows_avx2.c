/* rows_avx2.c -- the AVX2 table, and its operations on rows and heads. */

/* A row of sums is two of the 16 registers; four rows leave room for a line and its input. */
#define ATTEND_SHAPES(X) X(4, 1, 1) X(3, 1, 1) X(2, 2, 2) X(1, 4, 4)

#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/matmul_avx2.h"
#include "kernels/cpu/rows_lanes.h"

const struct cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    .form = form_avx2,
    .put = put_avx2,
    .product = product_avx2,
    .norm = norm_lanes,
    .activate = activate_lanes,
    .softcap = softcap_lanes,
    .rotate = rotate_lanes,
    .kv_write = kv_write_lanes,
    .attend = attend_lanes,
    .argmax = argmax_lanes,
};
