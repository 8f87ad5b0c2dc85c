/* quant.h -- float32 into the stored formats: the other direction of dequant.h, for converting
 * files.
 *
 * Formats of few bits search: of many scales for a block the one is taken whose squared error,
 * after the scale has been rounded as the format stores it, is least. Q8_0 is rounded plainly, bit
 * for bit as ggml does it. Nothing here allocates; any threads at once. */
#ifndef WEFT_CPU_QUANT_H
#define WEFT_CPU_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

/* F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K and Q6_K can be made. */
bool quant_supported(enum dtype type);
/* `elements` must be whole blocks; `to` may have any alignment. False: a number is infinite or not
 * a number, or too large for the format; what was written is then of no use. */
bool quant_row(enum dtype type, const float *from, uint64_t elements, void *to);

#endif
