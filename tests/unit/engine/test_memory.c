/* Protects the memory facts: the tightest of the machine's and every control group's limit counts,
 * in both versions' files, and nonsense in them does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine/memory.h"

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
    snprintf(root, sizeof root, "/tmp/weft-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void machine_without_groups(void **state)
{
    (void)state;
    assert_true(memory_available_under(root) == UINT64_MAX); /* nothing is known, nothing limits */
    write_file("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   64 kB\n");
    assert_int_equal(memory_available_under(root), 64 * 1024);
}

static void version_2_walks_to_the_root(void **state)
{
    (void)state;
    write_file("proc/meminfo", "MemAvailable: 1048576 kB\n");
    write_file("proc/self/cgroup", "0::/a/b\n");
    write_file("sys/fs/cgroup/a/b/memory.max", "max\n");
    write_file("sys/fs/cgroup/a/b/memory.current", "100\n");
    assert_int_equal(memory_available_under(root), 1u << 30);
    write_file("sys/fs/cgroup/a/memory.max", "1000000\n");
    write_file("sys/fs/cgroup/a/memory.current", "400000\n");
    assert_int_equal(memory_available_under(root), 600000);
    write_file("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 2\ninactive_file 150000\n");
    assert_int_equal(memory_available_under(root), 750000);
    write_file("sys/fs/cgroup/memory.max", "5000\n"); /* a container's own group seen as the root */
    write_file("sys/fs/cgroup/memory.current", "6000\n");
    assert_int_equal(memory_available_under(root), 0);
}

static void version_1_has_its_own_files(void **state)
{
    (void)state;
    write_file("proc/meminfo", "MemAvailable: 1048576 kB\n");
    write_file("proc/self/cgroup", "5:cpu,memory:/x\n2:pids:/y\n0::/\n");
    write_file("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "70000\n");
    write_file("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "20000\n");
    assert_int_equal(memory_available_under(root), 50000);
    /* "No limit" in version 1 is a very large number. */
    write_file("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(memory_available_under(root), 1u << 30);
}

static void this_machine_says_something(void **state)
{
    (void)state;
    assert_true(memory_available() > 1u << 20);
    assert_true(memory_available() < UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(machine_without_groups, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_2_walks_to_the_root, new_root, drop_root),
        cmocka_unit_test_setup_teardown(version_1_has_its_own_files, new_root, drop_root),
        cmocka_unit_test(this_machine_says_something),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
