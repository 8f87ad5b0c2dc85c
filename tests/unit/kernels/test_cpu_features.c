/* Protects how many threads compute: the tightest CPU quota of any control group above us counts,
 * in both versions' files, a part of a processor is not counted, and nonsense does not limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/kernels.h"

static char root[64];

/* Writes `text` to root/path, making the folders on the way. */
static void write_file(const char *path, const char *text)
{
    char whole[256];
    FILE *stream;

    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    stream = fopen(whole, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

static int new_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/weft-quota-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void no_groups_no_quota(void **state)
{
    (void)state;
    assert_true(cpu_quota_under(root) == UINT32_MAX);
    write_file("proc/self/cgroup", "nonsense\n");
    assert_true(cpu_quota_under(root) == UINT32_MAX);
}

static void version_2(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "0::/a/b\n");
    assert_true(cpu_quota_under(root) == UINT32_MAX);
    write_file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_true(cpu_quota_under(root) == UINT32_MAX);
    write_file("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(cpu_quota_under(root), 2);
    write_file("sys/fs/cgroup/a/cpu.max", "50000 100000\n"); /* above ours, and tighter */
    assert_int_equal(cpu_quota_under(root), 1);
    write_file("sys/fs/cgroup/a/cpu.max", "800000 100000\n");
    assert_int_equal(cpu_quota_under(root), 2);
    write_file("sys/fs/cgroup/a/b/cpu.max", "-7 rubbish\n");
    assert_int_equal(cpu_quota_under(root), 8);
}

static void version_2_at_the_root(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "0::/\n"); /* as a container sees it */
    write_file("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_int_equal(cpu_quota_under(root), 3);
}

static void version_1(void **state)
{
    (void)state;
    write_file("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/x/y\n3:memory:/z\n");
    write_file("sys/fs/cgroup/cpu/x/y/cpu.cfs_quota_us", "-1\n");
    write_file("sys/fs/cgroup/cpu/x/y/cpu.cfs_period_us", "100000\n");
    assert_true(cpu_quota_under(root) == UINT32_MAX);
    write_file("sys/fs/cgroup/cpu/x/y/cpu.cfs_quota_us", "600000\n");
    assert_int_equal(cpu_quota_under(root), 6);
    write_file("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n");
    write_file("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_quota_under(root), 4);
}

static void this_machine(void **state)
{
    enum cpu_level level = cpu_level_detect();

    (void)state;
    assert_true(cpu_threads_available() >= 1);
    assert_true(cpu_threads_available() <= cpu_quota_under(""));
    assert_true(level < CPU_LEVEL_COUNT);
    assert_non_null(cpu_kernels_get(level));
    assert_string_equal(cpu_kernels_get(CPU_PLAIN)->name, "plain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_groups_no_quota, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_2, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_2_at_the_root, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_1, new_root, drop_root),
        cmocka_unit_test(this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
