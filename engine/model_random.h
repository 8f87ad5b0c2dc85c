/* model_random.h -- what model_open_random() (model.h) made of the lines of an architecture. */
#ifndef WEFT_MODEL_RANDOM_H
#define WEFT_MODEL_RANDOM_H

#include "engine/arch.h"

/* Is there a part that was made for this line, and not for another that may fill the same? `expert`
 * is below arch_weight_count(). False for models of files. */
bool model_random_has(const struct arch_weight *line, struct model *model, uint32_t layer,
                      uint32_t expert);

#endif
