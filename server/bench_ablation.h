/* bench_ablation.h -- `weft bench --ablation`: what each mechanism of the GPU's decode loop gives.
 *
 * The engine is opened anew for each line, with one mechanism more than before, down from the plain
 * loop: launch kernel by kernel, wait, draw on the host. Nothing else differs, the random weights
 * included. A mechanism that does not pay has a ratio below 1.
 *
 * Runs on the thread that calls it. */
#ifndef WEFT_BENCH_ABLATION_H
#define WEFT_BENCH_ABLATION_H

#include <stdint.h>

#include "config/base/fault.h"
#include "config/config.h"

/* Prints the table for these batch sizes, none above config->max_batch, at one prompt length.
 * Faults: E_UNSUPPORTED without a GPU; whatever opening an engine or a step can have. */
int bench_ablation(const struct config *config, const uint32_t *sizes, uint32_t size_count,
                   uint32_t context, struct fault *fault);

#endif
