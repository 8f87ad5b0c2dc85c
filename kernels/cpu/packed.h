/* packed.h -- the one layout that every product kernel reads: 16 rows x 32 columns.
 *
 * Rows go in groups of 16, columns in blocks of 32; missing rows and columns are zeros. In a group
 * the blocks follow each other, and in a block a vector lane belongs to one row, so a product never
 * sums across lanes:
 *
 *     group g = rows 16 g .. 16 g + 15:   | block 0 | block 1 | ... | block n - 1 |     group_bytes
 *
 *     PACK_F32   2,048 bytes a block: 32 lines of 16 floats, one a column
 *     PACK_F16   1,024, the same of 16-bit floats; PACK_BF16 too
 *     PACK_Q4    320: 4 lines of 64 bytes, then 16 scales and 16 minimums as f16
 *                Line j, lane r: 4 bytes; their low nibbles are row r's columns 8 j .. 8 j + 3,
 *                the high ones 8 j + 4 .. 8 j + 7. Value = scale q + minimum.
 *                Holds Q4_1, and Q4_0 (minimum = -8 scale). Where `zeros` is set, minimums are to
 *                be multiplied by the scale first: GPTQ and AWQ, whose -zero x scale is no f16.
 *                Where `wide` is set, scales and minimums are floats (384 bytes): Q4_K, and MXFP4,
 *                where `e2m1` is set too: q is a float of 4 bits, which stands for twice its value
 *                plus 12 (minimum = -12 scale).
 *     PACK_Q8    544: 8 lines of 64 bytes, and 16 scales as f16 (all scales of a group before
 *                all its lines, so that lines stay aligned)
 *                Line j, lane r: columns 4 j .. 4 j + 3, plus 128. Value = scale (q - 128).
 *                Holds Q8_0, and Q5_0 and IQ4_NL exactly.
 *     PACK_Q8_HALVES  704: the same 8 lines, then 16 scales as floats for columns 0 .. 15, 16 for
 *                16 .. 31, and 16 minimums. Value = scale (q - 128) + minimum: Q3_K, Q5_K, Q6_K.
 *     PACK_F8    576: 32 lines of 16 bytes (E4M3), one a column, then 16 scales as floats, times
 *                256. Value = scale x byte; a byte's bits, moved to those of an f16, are 256 times
 *                too small.
 *     PACK_RAW   not packed: rows as the file has them, with their tables where the format needs
 *                some, made PACK_F32 piece by piece at each use
 *
 * The lines of PACK_Q4 and PACK_Q8 are operands of the dot-product instructions as they are
 * (vpdpbusd wants four unsigned bytes a lane; the even and the odd bytes are pairs for vpdpwssd and
 * vpmaddwd). */
#ifndef WEFT_CPU_PACKED_H
#define WEFT_CPU_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/quant_tables.h"

enum {
    GROUP_ROWS = 16,
    BLOCK_COLUMNS = 32,
    Q4_BLOCK_BYTES = 320,
    Q4_WIDE_BYTES = 384,
    HALVES_BLOCK_BYTES = 704,
    F8_LINES_BYTES = 512, /* of a block */
    F8_BLOCK_BYTES = 576,
    Q8_LINES_BYTES = 512, /* of a block */
    Q8_SCALES_BYTES = 32, /* of a block */
};

enum pack {
    PACK_F32,
    PACK_F16,
    PACK_BF16,
    PACK_F8,
    PACK_Q4,
    PACK_Q8,
    PACK_Q8_HALVES,
    PACK_RAW,
    PACK_COUNT
};

/* A matrix, or the rows of one that have the same format. */
struct packed {
    enum pack pack;
    enum dtype type; /* of the source */
    uint32_t rows;
    uint32_t columns;
    uint32_t groups;
    uint32_t blocks;
    bool zeros;          /* PACK_Q4 */
    bool wide;           /* PACK_Q4 */
    bool e2m1;           /* PACK_Q4, wide */
    size_t group_bytes;  /* PACK_RAW: of 16 source rows */
    const uint8_t *data; /* 64-byte aligned; PACK_RAW: the source's rows, any alignment */
    const struct quant_tables *tables; /* of the source; PACK_RAW: instead of `data` */
    /* In `tables` row r is first_row + (r / block_rows) block_stride + r % block_rows, or
     * first_row + r where block_rows is 0. */
    uint32_t first_row;
    uint32_t block_rows;
    uint32_t block_stride;
};

/* What a quant of PACK_Q4 stands for where `e2m1` is set. */
extern const uint8_t packed_e2m1[16];

/* Everything but `data`, from the source's format and shape. */
struct packed packed_shape(enum dtype type, uint32_t rows, uint32_t columns);
/* The same of rows with tables: packed where their groups are whole blocks of columns. Scales are
 * rounded to f16, but those of FP8. `tables` and where rows lie in it are for the caller to set,
 * before packed_group(). */
struct packed packed_shape_tables(const struct quant_tables *tables, uint32_t rows,
                                  uint32_t columns);
/* Bytes that `data` needs; 0 for PACK_RAW. */
size_t packed_bytes(const struct packed *packed);
/* Packs source rows 16 group .. 16 group + 15 (as far as they exist) to `to`. `source` is the first
 * row of the matrix (not read where there are tables). Not for PACK_RAW. Any threads at once. */
void packed_group(const struct packed *packed, const void *source, uint32_t group, uint8_t *to);
/* Rows 16 group ... of PACK_RAW, columns from 32 first_block on: `block_count` blocks of PACK_F32
 * at `to`. first_block x 32 is a whole number of the source's blocks. */
void packed_raw_blocks(const struct packed *packed, uint32_t group, uint32_t first_block,
                       uint32_t block_count, float *to);
/* One row as floats, blocks x 32 of them. */
void packed_row(const struct packed *packed, uint32_t row, float *to);

#endif
