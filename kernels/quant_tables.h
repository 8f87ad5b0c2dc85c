/* quant_tables.h -- a matrix whose elements mean something only with tables that lie beside it, as
 * Hugging Face's quantized checkpoints store it: FP8, GPTQ, AWQ, compressed-tensors, MXFP4.
 *
 *     weight[row][column] = (element[row][column] - zero[row][g]) x scale[row][g]
 *     g, the column's group, is column / scale_columns unless a table names it (GPTQ's act-order)
 *
 * Where element [row][column] lies depends on the type (words are 32 bits, low bits first; rows are
 * outputs, columns inputs):
 *     DT_F8_E4M3, DT_I8   [rows][columns]
 *     DT_INT4             words [rows][columns / 8], eight columns of one row; stored plus 8
 *     DT_GPTQ4            words [columns / 8][rows], eight columns of one row
 *     DT_AWQ4             words [columns][rows / 8], eight rows of one column, in the order
 *                         0 2 4 6 1 3 5 7
 *     DT_E2M1             bytes [rows][columns / 2], two columns of one row
 *
 * Nothing in the file need be aligned. Made by engine/hf_quantization.h, which checks every shape;
 * read by kernels/cpu/dequant_tables.h. Immutable. */
#ifndef WEFT_QUANT_TABLES_H
#define WEFT_QUANT_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

enum quant_zeros {
    ZEROS_NONE,
    ZEROS_8,         /* the same everywhere */
    ZEROS_I8,        /* [rows][groups] */
    ZEROS_ROW_WORDS, /* words [rows / 8][groups], eight rows of one group: DT_INT4 */
    ZEROS_GPTQ,      /* words [groups][rows / 8], eight rows of one group */
    ZEROS_GPTQ_LESS, /* the same less 1, modulo 16: the older form */
    ZEROS_AWQ,       /* the same in AWQ's order */
};

struct quant_tables {
    enum dtype type;
    const void *data;
    uint32_t rows;
    uint32_t columns;

    enum dtype scale_type; /* DT_F32, DT_F16, DT_BF16, DT_F8_E8M0 */
    const void *scales;
    uint32_t scale_rows;    /* so many rows share a scale; the last ones may be fewer */
    uint32_t scale_columns; /* so many columns are a group; the last one may be smaller */
    uint32_t groups;        /* of a row */
    bool scales_by_group;   /* [groups][rows] instead of [row blocks][groups] */

    enum quant_zeros zero_kind;
    const void *zeros;
    const void *group_of; /* [columns] int32, each below `groups`; NULL: in order */
};

#endif
