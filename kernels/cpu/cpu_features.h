/* cpu_features.h -- which family of kernels this processor can run. */
#ifndef WEFT_CPU_FEATURES_H
#define WEFT_CPU_FEATURES_H

#include <stdint.h>

enum cpu_level {
    CPU_PLAIN,  /* any processor */
    CPU_AVX2,   /* AVX2, FMA, F16C */
    CPU_AVX512, /* AVX-512 F, BW, DQ, VL and VNNI besides */
    CPU_LEVEL_COUNT,
};

/* The best that processor and operating system allow (CPUID, XCR0). */
enum cpu_level cpu_level_detect(void);

/* How many threads can compute at once: the process's affinity and the CPU quota of its control
 * groups (version 2: cpu.max; version 1: cpu.cfs_quota_us and cpu.cfs_period_us), from its own
 * group up to the root. At least 1; a quota of 2.5 processors counts as 2. */
uint32_t cpu_threads_available(void);
/* The quota alone below another root, where `root`/proc and `root`/sys stand for /proc and /sys;
 * UINT32_MAX: none. */
uint32_t cpu_quota_under(const char *root);

#endif
