/* cpu_features.c -- CPUID for the kernels, affinity and control groups for the number of threads.
 *
 * A quota may stand on any group above ours, hence the walk to the root. Where a container sees its
 * own group as the root, the walk ends at once and the root's files are read. */
#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 4096, CPUS_MAX = 1 << 16 };

#if defined(__x86_64__)
/* Which register states the operating system keeps for us (XCR0), as bits. */
static uint32_t kept_states(void)
{
    uint32_t low, high;

    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

enum cpu_level cpu_level_detect(void)
{
    enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xe6 };
    const uint32_t leaf1_wanted = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const uint32_t avx512_wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1_wanted) != leaf1_wanted ||
        (kept_states() & XCR0_AVX) != XCR0_AVX)
        return CPU_PLAIN;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
        return CPU_PLAIN;
    if ((b & avx512_wanted) == avx512_wanted && (c & bit_AVX512VNNI) &&
        (kept_states() & XCR0_AVX512) == XCR0_AVX512)
        return CPU_AVX512;
    return CPU_AVX2;
}
#else
enum cpu_level cpu_level_detect(void)
{
    return CPU_PLAIN;
}
#endif

/* The first line of a small file; false when it cannot be read. */
static bool read_line(const char *folder, const char *file, char *ret_line, size_t room)
{
    char path[PATH_BYTES + 64];
    FILE *stream;
    bool got;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    stream = fopen(path, "re");
    if (!stream)
        return false;
    got = fgets(ret_line, (int)room, stream) != NULL;
    fclose(stream);
    return got;
}

/* Whole processors in quota / period microseconds, at least one; UINT32_MAX: no limit. */
static uint32_t processors(const char *quota_text, const char *period_text)
{
    long long quota = strtoll(quota_text, NULL, 10), period = strtoll(period_text, NULL, 10);

    if (quota <= 0 || period <= 0 || quota / period >= UINT32_MAX) /* "max", -1, nonsense */
        return UINT32_MAX;
    return quota < period ? 1 : (uint32_t)(quota / period);
}

static uint32_t group_quota(const char *folder, bool version2)
{
    char quota[128], period[128], *space;

    if (version2) {
        if (!read_line(folder, "cpu.max", quota, sizeof quota))
            return UINT32_MAX;
        space = strchr(quota, ' ');
        return space ? processors(quota, space + 1) : UINT32_MAX;
    }
    if (!read_line(folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_line(folder, "cpu.cfs_period_us", period, sizeof period))
        return UINT32_MAX;
    return processors(quota, period);
}

/* The least quota of the groups from `group` ("/a/b") up to the root. */
static uint32_t groups_quota(const char *root, const char *group, bool version2)
{
    const char *mount = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    size_t mount_bytes = strlen(root) + strlen(mount);
    uint32_t least = UINT32_MAX;
    char folder[PATH_BYTES];
    int length = snprintf(folder, sizeof folder, "%s%s%s", root, mount, group);

    if (length < 0 || (size_t)length >= sizeof folder)
        return UINT32_MAX;
    for (;;) {
        uint32_t quota = group_quota(folder, version2);
        char *slash = strrchr(folder, '/');

        if (quota < least)
            least = quota;
        if (!slash || (size_t)(slash - folder) < mount_bytes)
            return least;
        *slash = '\0';
    }
}

/* Does the list "cpu,cpuacct" name the cpu controller? */
static bool names_cpu(char *controllers)
{
    for (char *name; (name = strsep(&controllers, ",")) != NULL;)
        if (strcmp(name, "cpu") == 0)
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:cpu,cpuacct:/path" (version 1). */
uint32_t cpu_quota_under(const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    uint32_t least = UINT32_MAX;
    FILE *stream;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    stream = fopen(path, "re");
    if (!stream)
        return UINT32_MAX;
    while (fgets(line, sizeof line, stream)) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        uint32_t quota = UINT32_MAX;

        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (strcmp(group, "/") == 0)
            *group = '\0';
        if (*controllers == '\0')
            quota = groups_quota(root, group, true);
        else if (names_cpu(controllers))
            quota = groups_quota(root, group, false);
        if (quota < least)
            least = quota;
    }
    fclose(stream);
    return least;
}

/* The mask has to be as large as the kernel's own, whose size is not known beforehand. */
static uint32_t affinity_count(void)
{
    for (int cpus = 1024; cpus <= CPUS_MAX; cpus *= 2) {
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        cpu_set_t *set = CPU_ALLOC(cpus);
        int count = 0;
        bool too_small = false;

        if (!set)
            return 1;
        if (sched_getaffinity(0, bytes, set) == 0)
            count = CPU_COUNT_S(bytes, set);
        else
            too_small = errno == EINVAL;
        CPU_FREE(set);
        if (!too_small)
            return count > 0 ? (uint32_t)count : 1;
    }
    return 1;
}

uint32_t cpu_threads_available(void)
{
    uint32_t count = affinity_count(), quota = cpu_quota_under("");

    return quota < count ? quota : count;
}
