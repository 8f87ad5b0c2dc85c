/* kernels.c -- the family of kernels for a level, and products in pieces that fit the caches. */
#include "kernels/cpu/kernels.h"

const struct cpu_kernels *cpu_kernels_get(enum cpu_level level)
{
#if defined(__x86_64__)
    if (level == CPU_AVX512)
        return &cpu_kernels_avx512;
    if (level == CPU_AVX2)
        return &cpu_kernels_avx2;
#endif
    (void)level;
    return &cpu_kernels_plain;
}

/* Half of a usual first and a quarter of a usual second cache. */
enum { INPUT_BYTES = 24 << 10, WEIGHT_BYTES = 512 << 10 };

static uint32_t input_rows(const struct activations *x)
{
    uint32_t row_bytes = x->blocks * BLOCK_COLUMNS * (x->forms & FORM_F32 ? 4 : 2);
    uint32_t rows = INPUT_BYTES / row_bytes / TILE_ROWS * TILE_ROWS;

    return rows > TILE_ROWS ? rows : TILE_ROWS;
}

static uint32_t weight_groups(const struct packed *w)
{
    size_t groups = WEIGHT_BYTES / w->group_bytes;

    return groups > 1 ? (uint32_t)groups : 1;
}

void cpu_product(const struct cpu_kernels *kernels, const struct packed *w, uint32_t first,
                 uint32_t count, const struct activations *x, float *y, size_t stride, bool add,
                 const struct kernel_scratch *scratch)
{
    uint32_t rows = input_rows(x), groups = weight_groups(w);

    /* PACK_RAW is made into floats at each use: all rows have to use it at once. */
    if (x->rows <= rows || w->pack == PACK_RAW) {
        kernels->product(w, first, count, x, y, stride, add, scratch);
        return;
    }
    for (uint32_t g = 0; g < count; g += groups) {
        uint32_t some = count - g < groups ? count - g : groups;

        for (uint32_t row = 0; row < x->rows; row += rows) {
            uint32_t left = x->rows - row < rows ? x->rows - row : rows;
            struct activations part = activations_rows(x, row, left);

            kernels->product(w, first + g, some, &part, y + row * stride + g * GROUP_ROWS, stride,
                             add, scratch);
        }
    }
}
