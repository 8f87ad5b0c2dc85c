/* dtype.h -- the number formats that a tensor can be stored in: one row each, for every floor.
 *
 * Block formats store `block` consecutive elements of a row in `bytes` bytes. The ggml types and
 * their codes are those of the GGUF format (ggml's docs/gguf.md); layouts are in
 * kernels/cpu/dequant_ref.c and dequant_codebook.c. The last four are formats of elements that need
 * tables beside them (quant_tables.h). */
#ifndef WEFT_DTYPE_H
#define WEFT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus /* the CUDA kernels' files */
extern "C" {
#endif

#define DTYPE_NO_GGUF UINT32_MAX

/* X(enumerator, name, GGUF code, elements per block, bytes per block) */
#define DTYPE_TABLE(X)                            \
    X(DT_F32, "F32", 0, 1, 4)                     \
    X(DT_F16, "F16", 1, 1, 2)                     \
    X(DT_BF16, "BF16", 30, 1, 2)                  \
    X(DT_Q4_0, "Q4_0", 2, 32, 18)                 \
    X(DT_Q4_1, "Q4_1", 3, 32, 20)                 \
    X(DT_Q5_0, "Q5_0", 6, 32, 22)                 \
    X(DT_Q5_1, "Q5_1", 7, 32, 24)                 \
    X(DT_Q8_0, "Q8_0", 8, 32, 34)                 \
    X(DT_Q2_K, "Q2_K", 10, 256, 84)               \
    X(DT_Q3_K, "Q3_K", 11, 256, 110)              \
    X(DT_Q4_K, "Q4_K", 12, 256, 144)              \
    X(DT_Q5_K, "Q5_K", 13, 256, 176)              \
    X(DT_Q6_K, "Q6_K", 14, 256, 210)              \
    X(DT_IQ4_NL, "IQ4_NL", 20, 32, 18)            \
    X(DT_IQ4_XS, "IQ4_XS", 23, 256, 136)          \
    X(DT_IQ3_XXS, "IQ3_XXS", 18, 256, 98)         \
    X(DT_IQ3_S, "IQ3_S", 21, 256, 110)            \
    X(DT_IQ2_XXS, "IQ2_XXS", 16, 256, 66)         \
    X(DT_IQ2_XS, "IQ2_XS", 17, 256, 74)           \
    X(DT_IQ2_S, "IQ2_S", 22, 256, 82)             \
    X(DT_IQ1_S, "IQ1_S", 19, 256, 50)             \
    X(DT_IQ1_M, "IQ1_M", 29, 256, 56)             \
    X(DT_TQ1_0, "TQ1_0", 34, 256, 54)             \
    X(DT_TQ2_0, "TQ2_0", 35, 256, 66)             \
    X(DT_MXFP4, "MXFP4", 39, 32, 17)              \
    X(DT_NVFP4, "NVFP4", 40, 64, 36)              \
    X(DT_F8_E4M3, "F8_E4M3", DTYPE_NO_GGUF, 1, 1) \
    X(DT_F8_E8M0, "F8_E8M0", DTYPE_NO_GGUF, 1, 1) \
    X(DT_I8, "I8", DTYPE_NO_GGUF, 1, 1)           \
    X(DT_INT4, "INT4", DTYPE_NO_GGUF, 8, 4)       \
    X(DT_GPTQ4, "GPTQ4", DTYPE_NO_GGUF, 8, 4)     \
    X(DT_AWQ4, "AWQ4", DTYPE_NO_GGUF, 8, 4)       \
    X(DT_E2M1, "E2M1", DTYPE_NO_GGUF, 2, 1)

enum dtype {
#define X(enumerator, name, code, block, bytes) enumerator,
    DTYPE_TABLE(X)
#undef X
        DTYPE_COUNT
};

struct dtype_info {
    const char *name;
    uint32_t gguf_code;
    uint32_t block; /* elements */
    uint32_t bytes; /* of one block */
};

const struct dtype_info *dtype_get(enum dtype type); /* never NULL for a valid enumerator */
bool dtype_from_gguf(uint32_t code, enum dtype *ret_type);
/* The name of a type of GGUF's that weights are not read in (F64, integers, formats of
 * activations); "unknown" for every other code. */
const char *dtype_gguf_refused(uint32_t code);
/* Bytes of `elements` elements; 0 when they are not whole blocks or the size overflows. */
size_t dtype_bytes(enum dtype type, uint64_t elements);

#ifdef __cplusplus
}
#endif

#endif
