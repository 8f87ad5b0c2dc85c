/* Protects: progress is redrawn in place on a terminal, is one line a phase elsewhere and one log
 * event a phase in a server, and sizes are printed with a fitting unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/log.h"
#include "server/progress.h"

static char text[8192];

/* What a load of 100 MB in two reports, and a phase without a size, write to standard error. */
static void capture(enum progress_form form)
{
    struct progress progress = {.form = form};
    struct engine_progress engine = progress_engine(&progress);
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    ssize_t bytes;

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    engine.report(engine.data, "loading weights", 50000000, 100000000, 0);
    engine.report(engine.data, "loading weights", 100000000, 100000000, 0.25);
    progress_phase(&progress, "listening", 1.5);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    bytes = pread(fileno(file), text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    fclose(file);
}

static void test_bar(void **state)
{
    (void)state;
    capture(PROGRESS_BAR);
    assert_string_equal(
        text, "\rloading weights      [##########----------]  50%  50.0 MB of 100 MB\033[K"
              "\rloading weights          100 MB    0.25 s\033[K\n"
              "listening                          1.50 s\n");
}

static void test_lines(void **state)
{
    (void)state;
    capture(PROGRESS_LINES);
    assert_string_equal(text, "loading weights          100 MB    0.25 s\n"
                              "listening                          1.50 s\n");
}

static void test_log(void **state)
{
    const char *second;

    (void)state;
    log_setup(LOG_INFO, LOG_TEXT);
    capture(PROGRESS_LOG);
    assert_non_null(strstr(text, " info startup phase=\"loading weights\" seconds=0.25\n"));
    second = strchr(text, '\n') + 1;
    assert_non_null(strstr(second, " info startup phase=listening seconds=1.5\n"));
    assert_int_equal(strlen(second), strcspn(second, "\n") + 1);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    assert_null(progress_engine(NULL).report);
}

static void test_bytes(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 bytes"},         {999, "999 bytes"},          {1000, "1.0 KB"},
        {99900, "99.9 KB"},     {100000, "100 KB"},          {98362432, "98.4 MB"},
        {1500000000, "1.5 GB"}, {UINT64_MAX, "18446744 TB"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char shown[24];

        progress_bytes_print(cases[i].bytes, shown, sizeof shown);
        assert_string_equal(shown, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bar),   cmocka_unit_test(test_lines),
        cmocka_unit_test(test_log),   cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
