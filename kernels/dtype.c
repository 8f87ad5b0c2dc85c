/* dtype.c -- the table of number formats. */
#include "kernels/dtype.h"

static const struct dtype_info table[DTYPE_COUNT] = {
#define X(enumerator, name, code, block, bytes) [enumerator] = {name, code, block, bytes},
    DTYPE_TABLE(X)
#undef X
};

const struct dtype_info *dtype_get(enum dtype type)
{
    return &table[type];
}

bool dtype_from_gguf(uint32_t code, enum dtype *ret_type)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (table[i].gguf_code == code) {
            *ret_type = (enum dtype)i;
            return true;
        }
    }
    return false;
}

size_t dtype_bytes(enum dtype type, uint64_t elements)
{
    const struct dtype_info *info = &table[type];
    size_t bytes;

    if (elements % info->block)
        return 0;
    if (__builtin_mul_overflow(elements / info->block, (uint64_t)info->bytes, &bytes))
        return 0;
    return bytes;
}
