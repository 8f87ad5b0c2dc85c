/* command_version.c -- `weft version`: what this binary is and what it will use here. */
#include <stdio.h>

#include "engine/engine.h"
#include "server/commands.h"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* What the CPU can do of that for which weft has kernels; they are chosen at run time. */
static const char *cpu_features(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        return "x86-64 with AVX-512 and VNNI";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "x86-64 with AVX2";
    return "x86-64";
#elif defined(__aarch64__)
    return "AArch64";
#else
    return "plain C";
#endif
}

int command_version(const struct config *config, struct fault *fault)
{
    char gpu[DEVICE_NAME_BYTES] = "";
    struct fault none = {0};

    (void)config;
    (void)engine_find_gpu(gpu, &none);
    if (printf("weft %s\ncommit   %s\ncompiler %s\ncpu      %s\ngpu      %s%s\n", WEFT_VERSION,
               WEFT_COMMIT, COMPILER, cpu_features(), *gpu ? gpu : "none: ", none.message) < 0 ||
        fflush(stdout) < 0)
        return fault_errno(fault, "Cannot write the version");
    return 0;
}
