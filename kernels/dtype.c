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
        if (table[i].gguf_code == code && code != DTYPE_NO_GGUF) {
            *ret_type = (enum dtype)i;
            return true;
        }
    }
    return false;
}

const char *dtype_gguf_refused(uint32_t code)
{
    static const char *const names[] = {
        [9] = "Q8_1", [15] = "Q8_K", [24] = "I8",  [25] = "I16",
        [26] = "I32", [27] = "I64",  [28] = "F64", [41] = "Q1_0",
    };

    if (code >= sizeof names / sizeof *names || !names[code])
        return "unknown";
    return names[code];
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
