/* kernels.c -- the family of kernels for a level. */
#include "kernels/cpu/kernels.h"

const struct cpu_kernels *cpu_kernels_get(enum cpu_level level)
{
#if defined(__x86_64__)
    if (level == CPU_AVX512)
        return &cpu_kernels_avx512;
    if (level == CPU_AVX2)
        return &cpu_kernels_avx2;
#endif
    (void)level;
    return &cpu_kernels_plain;
}
