/* arch_table.h -- the rows themselves; arch.h finds one by its name. */
#ifndef WEFT_ARCH_TABLE_H
#define WEFT_ARCH_TABLE_H

#include "engine/arch.h"

extern const struct arch arch_table[];
extern const size_t arch_table_count;

#endif
