/* weight_part.h -- rows of a weight, whether they lie in a file or are random. Any thread. */
#ifndef WEFT_WEIGHT_PART_H
#define WEFT_WEIGHT_PART_H

#include "engine/model.h"

/* Writes rows `first_row` .. + `rows` - 1 of the part, each of `columns` elements, to `to` without
 * gaps, as `type`: DT_F32, DT_F16, DT_BF16 (to nearest, ties to even), or the part's own where it
 * has no tables. This is what every backend can load from, whatever the part's format is. */
void weight_part_read(const struct weight_part *part, uint32_t columns, uint32_t first_row,
                      uint32_t rows, enum dtype type, void *to);
/* One element of a random part, likewise. */
void weight_part_read_element(const struct weight_part *part, uint32_t columns, uint32_t row,
                              uint32_t column, enum dtype type, void *to);
/* Are the part's rows in a file as they are, one after the other at `data`? */
bool weight_part_plain(const struct weight_part *part);
/* Are they the elements 0, 1, 2 ... of `random` as they are? */
bool weight_part_generated(const struct weight_part *part);
/* Do both name the same weights, as head and embedding do where they are tied? */
bool weight_part_same(const struct weight_part *a, const struct weight_part *b);

#endif
