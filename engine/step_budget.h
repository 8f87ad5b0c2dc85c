/* step_budget.h -- how much of prompts fits into a step of a given time, measured at the start. */
#ifndef WEFT_STEP_BUDGET_H
#define WEFT_STEP_BUDGET_H

#include <stdint.h>

#include "config/base/fault.h"
#include "engine/engine.h"

/* Runs steps of `least` prompt tokens, of twice as many and so on, up to the limit of a step or of
 * what the KV cache holds, until one takes longer than `step_ns`. *ret_tokens is how many would
 * just fit, between two measurements by proportion; `least` where not even they do. The engine has
 * had no batch yet, and afterwards no row is open. E_MEMORY, E_DEVICE. */
int step_budget_measure(struct engine *engine, uint64_t step_ns, uint32_t least,
                        uint32_t *ret_tokens, struct fault *fault);

#endif
