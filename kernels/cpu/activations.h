/* activations.h -- the inputs of a product, in the forms that its kernels read.
 *
 * Rows (tokens) go in tiles of 8, the last ones in a tile of 1, 2, 4 or 8 that may have empty rows:
 * their memory holds anything, and what is computed from it is not written. A tile lies in one
 * piece, block after block, so a kernel's loads are at fixed distances from one pointer:
 *
 *     11 rows:   tile of 8 (rows 0..7) | tile of 4 (8, 9, 10, empty)
 *     tile of n: | block 0: n x 32 values | block 1: n x 32 values | ...
 *
 * A *unit* is one row of one block (32 values): unit(row, block) = first row of the tile x blocks +
 * block x n + row in the tile. Values of unit u begin at 32 u; its scale and sum are at u.
 *
 *     FORM_F32     float values; sums_f32 = their sum
 *     FORM_WORDS   16-bit integers q with a scale for each unit: x = scale q, |q| <= 32,512 (or
 *                  127); in the order 0 2 1 3, 4 6 5 7, ... (the even and the odd bytes of a
 *                  packed line are pairs of 16 bits)
 *     FORM_BYTES   the same integers as two signed bytes, q = 256 high + low (or q = high alone)
 *
 * NaN and infinity are any q in that range: a broken model computes nonsense, but defined nonsense.
 * With both integer forms: sums = scale x (sum of q), of the quantized values, so that a rounding
 * error meets the weight's q less its zero point and not q itself; offsets = -128 x (sum of q),
 * for PACK_Q8, whose quants are stored with 128 added. */
#ifndef WEFT_CPU_ACTIVATIONS_H
#define WEFT_CPU_ACTIVATIONS_H

#include <stddef.h>
#include <stdint.h>

enum {
    TILE_ROWS = 8,
    /* Largest integers: 32,512 = 127 x 256, so that the high byte fits. */
    ACTIVATION_INT16_MOST = 32512,
    ACTIVATION_INT8_MOST = 127,
};
/* A block whose largest value is not above this counts as zeros: its inverse would overflow. */
#define ACTIVATION_LEAST 1e-30f

enum form { FORM_F32 = 1, FORM_WORDS = 2, FORM_BYTES = 4 };

/* How exact activations are. */
enum precision {
    PRECISION_INT16, /* 16 bits for each block of 32: as exact as float32 in practice */
    PRECISION_F32,
    PRECISION_INT8,
};

struct activations {
    uint32_t rows;
    uint32_t blocks;
    unsigned forms; /* which are filled (a set of enum form) */
    enum precision precision;
    /* Memory for as many units as there may ever be, 64-byte aligned. */
    float *f32;
    int16_t *words;
    int8_t *high;
    int8_t *low;
    float *sums_f32;
    float *scales;
    float *sums;
    int32_t *offsets;
};

/* Places of the tile that begins at row `first`, a multiple of 8; there may be fewer rows. */
static inline uint32_t tile_places(uint32_t rows, uint32_t first)
{
    uint32_t left = rows - first;

    return left > 4 ? 8 : left > 2 ? 4 : left;
}

/* For how many units a product of `rows` rows needs memory. */
static inline size_t units_of(size_t rows, size_t blocks)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS * blocks;
}

static inline size_t unit_of(const struct activations *x, uint32_t row, uint32_t block)
{
    uint32_t first = row / TILE_ROWS * TILE_ROWS;

    return (size_t)first * x->blocks + (size_t)block * tile_places(x->rows, first) + (row - first);
}

/* Rows first .. first + count - 1 alone; first is a multiple of 8, count too unless they are the
 * last. */
static inline struct activations activations_rows(const struct activations *x, uint32_t first,
                                                  uint32_t count)
{
    size_t unit = (size_t)first * x->blocks;
    struct activations part = *x;

    part.rows = count;
    part.f32 += unit * 32;
    part.words += unit * 32;
    part.high += unit * 32;
    part.low += unit * 32;
    part.sums_f32 += unit;
    part.scales += unit;
    part.sums += unit;
    part.offsets += unit;
    return part;
}

#endif
