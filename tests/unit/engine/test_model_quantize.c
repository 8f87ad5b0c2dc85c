/* Protects the writing of quantized files from within: each allocation may fail, and nothing is
 * left then. What is written is tested with the command (tests/e2e/test_quantize.py). */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/model_quantize.h"
#include "tests/lib/failing_malloc.h"

#define SOURCE "tests/data/arch/gguf_qwen3_iq4_nl/qwen3-IQ4_NL.gguf"

static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void failing_allocations_leave_nothing(void **state)
{
    char root[] = "/tmp/weft_test_quantize_XXXXXX", target[64];
    struct quantize_options options = {
        .from = SOURCE, .to = target, .type = QUANTIZE_Q4_K, .threads = 2};
    int failures = 0;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(target, sizeof target, "%s/new.gguf", root);
    for (uint64_t nth = 1;; nth++) {
        struct quantize_summary summary;
        struct fault fault = {0};
        bool failed;
        int r;

        failing_malloc_arm(nth);
        r = model_quantize(&options, &summary, &fault);
        failed = failing_malloc_disarm();
        if (r == 0) {
            assert_int_equal(count_entries(root), 1);
            assert_int_equal(unlink(target), 0);
        } else {
            failures++;
            assert_true(failed);
            assert_int_equal(fault.code, r);
            assert_int_equal(count_entries(root), 0);
        }
        if (!failed)
            break;
    }
    assert_true(failures >= 10);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(failing_allocations_leave_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
