/* Protects: the order of the sources, that every option can be set from each of them, that what is
 * wrong is refused with the place, the range and the nearest right name, and that the committed
 * pages are the table's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/option.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/page.h"

static const char *const no_variables[] = {NULL};

/* A configuration file that is gone after the test. */
static const char *write_file(const char *text)
{
    static char path[64];
    int fd;

    snprintf(path, sizeof path, "/tmp/weft_test_config_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static int count_of(const char *const *arguments)
{
    int count = 0;

    while (arguments[count])
        count++;
    return count;
}

/* A command that needs operands is given some. */
static int read_config(struct config *config, enum command command, const char *const *arguments,
                       const char *const *variables, struct fault *fault)
{
    static const char *all[16];
    int count = 0;

    if (command == COMMAND_QUANTIZE) {
        all[count++] = "IN";
        all[count++] = "OUT";
    }
    must(count + count_of(arguments) < 16);
    while (*arguments)
        all[count++] = *arguments++;
    return config_init(config, command, count, all, variables ? variables : no_variables, fault);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_ARGUMENTS   ((const char *const[]){NULL})

static void assert_refused(enum command command, const char *const *arguments,
                           const char *const *variables, const char *message)
{
    struct fault fault = {0};
    struct config config;

    assert_true(read_config(&config, command, arguments, variables, &fault) < 0);
    assert_string_equal(fault.message, message);
    config_fini(&config);
}

static void test_defaults(void **state)
{
    struct fault fault = {0};
    struct config config;

    (void)state;
    assert_int_equal(read_config(&config, COMMAND_SERVE, NO_ARGUMENTS, NULL, &fault), 0);
    assert_string_equal(config.host, "127.0.0.1");
    assert_int_equal(config.port, 8000);
    assert_string_equal(config.model, "");
    assert_int_equal(config.device, CONFIG_DEVICE_AUTO);
    assert_int_equal(config.cpu_activations, CONFIG_ACTIVATIONS_INT16);
    assert_int_equal(config.max_body_bytes, 16 << 20);
    assert_true(config.drain_timeout == 30);
    assert_false(config.cpu_exact);
    assert_int_equal(config.operand_count, 0);
    config_fini(&config);
}

static void test_precedence(void **state)
{
    const char *path = write_file(
        "# comment\n\nmax-batch = 11\nport = 12\n  threads=13   \ncpu-exact = yes\nhost = a\n");
    char variable[128];
    struct fault fault = {0};
    struct config config;

    (void)state;
    snprintf(variable, sizeof variable, "WEFT_CONFIG=%s", path);
    assert_int_equal(
        read_config(&config, COMMAND_SERVE,
                    ARGUMENTS("--threads", "33", "--no-cpu-exact", "--host=c"),
                    ARGUMENTS("WEFT_THREADS=23", variable, "WEFT_PORT=22", "WEFT_HOST=b"), &fault),
        0);
    assert_int_equal(config.max_queue, 1024); /* default */
    assert_int_equal(config.max_batch, 11);   /* file */
    assert_int_equal(config.port, 22);        /* variable over file */
    assert_int_equal(config.threads, 33);     /* command line over both */
    assert_string_equal(config.host, "c");
    assert_false(config.cpu_exact);
    config_fini(&config);
    unlink(path);
}

static void test_command_line_names_the_file_over_the_environment(void **state)
{
    const char *path = write_file("port = 12\n");
    struct fault fault = {0};
    struct config config;

    (void)state;
    assert_int_equal(read_config(&config, COMMAND_SERVE, ARGUMENTS("--config", path),
                                 ARGUMENTS("WEFT_CONFIG=/does/not/exist"), &fault),
                     0);
    assert_int_equal(config.port, 12);
    config_fini(&config);
    unlink(path);
}

/* A value other than the default, in range, as text. */
static void other_value(const struct option_row *row, char *text, size_t room)
{
    if (row->kind == OPTION_FLAG)
        snprintf(text, room, "true");
    else if (row->kind == OPTION_CHOICE)
        snprintf(text, room, "%s", row->words[strcmp(row->words[0], row->default_text) == 0]);
    else if (row->kind == OPTION_TEXT)
        snprintf(text, room, "other");
    else
        snprintf(text, room, "%.0f",
                 strtod(row->default_text, NULL) == row->high ? row->low : row->high);
}

static bool is_member_equal(const struct config *left, const struct config *right,
                            const struct option_row *row)
{
    const char *a = (const char *)left + row->offset, *b = (const char *)right + row->offset;

    switch (row->kind) {
    case OPTION_FLAG:
        return *(const bool *)a == *(const bool *)b;
    case OPTION_UINT:
    case OPTION_CHOICE:
        return *(const uint32_t *)a == *(const uint32_t *)b;
    case OPTION_LONG:
    case OPTION_BYTES:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    case OPTION_SECONDS:
    case OPTION_REAL:
        return *(const double *)a == *(const double *)b;
    case OPTION_TEXT:
        return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    }
    return false;
}

/* Each option alone, from each source, changes its own member and no other, and nothing where the
 * value is the default. */
static void test_every_option_from_every_source(void **state)
{
    (void)state;
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        char name[OPTION_NAME_BYTES_MAX], variable[OPTION_NAME_BYTES_MAX], value[64];
        char flag[128], setting[128], line[128];

        if (!row->member || strcmp(row->member, "config") == 0)
            continue;
        other_value(row, value, sizeof value);
        snprintf(flag, sizeof flag, "--%s=%s", option_name(row, name), value);
        snprintf(setting, sizeof setting, "%s=%s", option_variable(row, variable), value);
        snprintf(line, sizeof line, "%s = %s\n", name, value);
        for (int source = 0; source < 3; source++) {
            enum command command = (enum command)__builtin_ctz(row->commands);
            const char *path = source == 2 ? write_file(line) : NULL;
            struct config config, plain;
            struct fault fault = {0};
            int r;

            assert_int_equal(read_config(&plain, command, NO_ARGUMENTS, NULL, NULL), 0);
            if (source == 0)
                r = read_config(&config, command, ARGUMENTS(flag), NULL, &fault);
            else if (source == 1)
                r = read_config(&config, command, NO_ARGUMENTS, ARGUMENTS(setting), &fault);
            else
                r = read_config(&config, command, ARGUMENTS("--config", path), NULL, &fault);
            if (r < 0)
                fail_msg("%s", fault.message);
            for (size_t j = 0; j < option_row_count; j++) {
                if (option_rows[j].member && strcmp(option_rows[j].member, "config") != 0)
                    assert_int_equal(is_member_equal(&config, &plain, &option_rows[j]), i != j);
            }
            config_fini(&config);
            config_fini(&plain);
            if (path)
                unlink(path);
        }
    }
}

/* Just inside and just outside of every numeric range. */
static void test_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        double values[4] = {row->low, row->high, row->low - 1, 2 * row->high + 1};

        if (!row->member || row->kind == OPTION_FLAG || row->kind == OPTION_CHOICE ||
            row->kind == OPTION_TEXT)
            continue;
        for (int j = 0; j < 4; j++) {
            char flag[128], name[OPTION_NAME_BYTES_MAX];
            struct config config;
            int r;

            snprintf(flag, sizeof flag, "--%s=%.16g", option_name(row, name), values[j]);
            r = read_config(&config, (enum command)__builtin_ctz(row->commands), ARGUMENTS(flag),
                            NULL, NULL);
            assert_int_equal(r, j < 2 ? 0 : E_INVALID);
            config_fini(&config);
        }
    }
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"65536", 65536},
        {"64K", 65536},
        {"64k", 65536},
        {"64KiB", 65536},
        {"2M", 2 << 20},
        {"1G", 1 << 30},
        {"64KB", 0},
        {"64 K", 0},
        {"K", 0},
        {"", 0},
        {"-1", 0},
        {"+65536", 0},
        {"1.5M", 0},
        {"0x10000", 0},
        {"99999999999999999999999", 0},
        {"18014398509481985K", 0},
        {"65536x", 0},
        {" 65536", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config config;
        char flag[64];
        int r;

        snprintf(flag, sizeof flag, "--max-body-bytes=%s", cases[i].text);
        r = read_config(&config, COMMAND_SERVE, ARGUMENTS(flag), NULL, NULL);
        assert_int_equal(r, cases[i].bytes ? 0 : E_INVALID);
        if (cases[i].bytes)
            assert_int_equal(config.max_body_bytes, cases[i].bytes);
        config_fini(&config);
    }
}

static void test_reals(void **state)
{
    static const char *const bad[] = {"", "nan", "inf", "1e999", "0x1", "1,5", "1.5s", " 1", "--1"};
    struct config config;

    (void)state;
    assert_int_equal(
        read_config(&config, COMMAND_SERVE, ARGUMENTS("--drain-delay", "2.5e-1"), NULL, NULL), 0);
    assert_true(config.drain_delay == 0.25);
    config_fini(&config);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(
            read_config(&config, COMMAND_SERVE, ARGUMENTS("--drain-delay", bad[i]), NULL, NULL),
            E_INVALID);
        config_fini(&config);
    }
}

static void test_messages_of_the_command_line(void **state)
{
    (void)state;
    assert_refused(
        COMMAND_SERVE, ARGUMENTS("--prot", "1"), NULL,
        "There is no option '--prot'; the nearest is --port, and `weft serve --help` lists "
        "them all");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--max_bacth=1"), NULL,
                   "There is no option '--max_bacth'; the nearest is --max-batch, and `weft serve "
                   "--help` lists them all");
    assert_refused(
        COMMAND_SERVE, ARGUMENTS("-p", "1"), NULL,
        "There is no option '-p'; the nearest is --port, and `weft serve --help` lists them "
        "all");
    assert_refused(COMMAND_VERSION, ARGUMENTS("--x"), NULL,
                   "There is no option '--x': `weft version` has none");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--a\x1b[31m\nb"), NULL,
                   "There is no option '--a?[31m?b'; the nearest is --streams, and `weft serve "
                   "--help` lists them all");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--port", "65536"), NULL,
                   "--port 65536: accepted is a whole number from 0 to 65535");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--port=x"), NULL,
                   "--port x: accepted is a whole number from 0 to 65535");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--port"), NULL, "--port needs a value");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--device", "gpu"), NULL,
                   "--device gpu: accepted is auto, cpu, cuda or null (nearest: cpu)");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--host", ""), NULL,
                   "--host '': accepted is a text of 1 to 255 bytes");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--no-port"), NULL,
                   "There is no option '--no-port'; the nearest is --port, and `weft serve --help` "
                   "lists them all");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--no-cpu-exact=true"), NULL,
                   "--no-cpu-exact takes no value");
    assert_refused(COMMAND_GENERATE, ARGUMENTS("--port", "1"), NULL,
                   "--port is an option of `weft serve`, not of `weft generate`");
    assert_refused(COMMAND_SERVE, ARGUMENTS("model.gguf"), NULL,
                   "`weft serve` cannot do anything with 'model.gguf'; options start with --");
    assert_refused(COMMAND_DOCS, NO_ARGUMENTS, NULL,
                   "`weft docs` needs PAGE; see `weft docs --help`");
}

static void test_messages_of_the_environment(void **state)
{
    struct config config;

    (void)state;
    assert_refused(COMMAND_SERVE, NO_ARGUMENTS, ARGUMENTS("WEFT_PROT=1"),
                   "The environment variable WEFT_PROT is no option; the nearest is WEFT_PORT");
    assert_refused(COMMAND_VERSION, NO_ARGUMENTS, ARGUMENTS("WEFT_PORT=x"),
                   "WEFT_PORT=x: accepted is a whole number from 0 to 65535");
    assert_refused(COMMAND_SERVE, NO_ARGUMENTS, ARGUMENTS("WEFT_Port=1"),
                   "The environment variable WEFT_Port is no option; the nearest is WEFT_PORT");
    /* Another command's option, other programs' variables, and Kubernetes' for a service named
     * weft. */
    assert_int_equal(
        read_config(&config, COMMAND_GENERATE, NO_ARGUMENTS,
                    ARGUMENTS("WEFT_PORT=1", "WEFT_GOLDENS=/x", "WEFT_BUILD=b", "WEFT", "PATH=/bin",
                              "WEFT_SERVICE_HOST=10.0.0.1", "WEFT_PORT_80_TCP=tcp://10.0.0.1:80"),
                    NULL),
        0);
    config_fini(&config);
    assert_int_equal(read_config(&config, COMMAND_SERVE, NO_ARGUMENTS,
                                 ARGUMENTS("WEFT_PORT=tcp://10.0.0.1:80"), NULL),
                     0);
    assert_int_equal(config.port, 8000);
    config_fini(&config);
}

static void test_messages_of_the_file(void **state)
{
    char long_line[400];
    const struct {
        const char *text;
        const char *message; /* after the path */
    } cases[] = {
        {"port = 1\nmax-bacth = 2\n",
         ":2: there is no option 'max-bacth'; the nearest is 'max-batch'"},
        {"\n\nport = x\n", ":3: port = x: accepted is a whole number from 0 to 65535"},
        {"port = 1\n\nport = 2\n", ":3: 'port' stands here twice"},
        {"[serve]\nport = 1\n", ":2: the file has no sections, but here stands [serve]"},
        {"port 1\n", ":1: expected `option = value`"},
        {"config = x\n", ":1: a configuration file cannot name another one"},
        {long_line, ":1: a line may have 198 bytes and a file 10000 lines"},
    };

    (void)state;
    memset(long_line, 'x', sizeof long_line - 1);
    memcpy(long_line, "model = ", 8);
    long_line[sizeof long_line - 1] = '\0';
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = write_file(cases[i].text);
        char message[512];

        snprintf(message, sizeof message, "%s%s", path, cases[i].message);
        assert_refused(COMMAND_SERVE, ARGUMENTS("--config", path), NULL, message);
        unlink(path);
    }
    assert_refused(COMMAND_SERVE, ARGUMENTS("--config", "/does/not/exist"), NULL,
                   "Cannot open the configuration file /does/not/exist: No such file or directory");
    assert_refused(COMMAND_SERVE, ARGUMENTS("--config", "/"), NULL,
                   "Cannot read the configuration file /: Is a directory");
}

static void test_longest_line_of_a_file(void **state)
{
    char text[512], expected[256];
    const char *path;
    struct config config;

    (void)state;
    memset(expected, 'm', sizeof expected);
    expected[190] = '\0';
    snprintf(text, sizeof text, "model = %s\nport = 5\n",
             expected); /* 198 bytes before the newline */
    path = write_file(text);
    assert_int_equal(read_config(&config, COMMAND_SERVE, ARGUMENTS("--config", path), NULL, NULL),
                     0);
    assert_string_equal(config.model, expected);
    assert_int_equal(config.port, 5);
    config_fini(&config);
    unlink(path);
}

static void test_operands_and_help(void **state)
{
    struct config config;

    (void)state;
    assert_int_equal(read_config(&config, COMMAND_INSPECT,
                                 ARGUMENTS("--tensors", "--", "--odd.gguf"), NULL, NULL),
                     0);
    assert_true(config.tensors);
    assert_int_equal(config.operand_count, 1);
    assert_string_equal(config.operands[0], "--odd.gguf");
    config_fini(&config);
    assert_int_equal(read_config(&config, COMMAND_INSPECT, ARGUMENTS("--help"), NULL, NULL), 1);
    config_fini(&config);
    assert_int_equal(
        read_config(&config, COMMAND_GENERATE, ARGUMENTS("--prompt", "--help"), NULL, NULL),
        0); /* a value is a value */
    assert_string_equal(config.prompt, "--help");
    config_fini(&config);
}

static void test_commands(void **state)
{
    struct fault fault = {0};
    enum command command;

    (void)state;
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        assert_int_equal(command_find(command_name((enum command)i), &command, &fault), 0);
        assert_int_equal(command, i);
    }
    assert_int_equal(command_find("--port", &command, &fault), E_INVALID);
    assert_string_equal(fault.message, "A command comes before the options, as in `weft serve "
                                       "--port`; `weft --help` lists them all");
    assert_int_equal(command_find("tokenise", &command, &fault), E_NOT_FOUND);
    assert_string_equal(fault.message,
                        "There is no command 'tokenise'; the nearest is 'tokenize', and "
                        "`weft --help` lists them all");
}

static void test_edit_distance(void **state)
{
    char long_text[200];

    (void)state;
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("port", "prot"), 1);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("max-batch", "max-bach"), 1);
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(edit_distance(long_text, ""), 63);
}

/* Every command's help fits a terminal and has all of its options, and no other's. */
static void test_help(void **state)
{
    (void)state;
    for (unsigned command = 0; command < COMMAND_COUNT; command++) {
        struct buf text;

        buf_init(&text, 1 << 20);
        config_help((enum command)command, &text);
        assert_false(buf_failed(&text));
        for (size_t i = 0; i < option_row_count; i++) {
            char name[OPTION_NAME_BYTES_MAX], flag[64];

            if (!option_rows[i].member)
                continue;
            snprintf(flag, sizeof flag, "\n  --%s ", option_name(&option_rows[i], name));
            assert_int_equal(strstr(buf_string(&text), flag) != NULL,
                             option_rows[i].commands >> command & 1);
        }
        for (const char *line = buf_string(&text); *line; line += strcspn(line, "\n") + 1)
            assert_true(strcspn(line, "\n") <= 100);
        buf_fini(&text);
    }
}

static void test_committed_pages(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 18);
    config_options_page(&text);
    assert_false(buf_failed(&text));
    assert_page_is("docs/options.md", &text);
    buf_reset(&text);
    config_sample_file(&text);
    assert_false(buf_failed(&text));
    assert_page_is("deploy/weft.conf", &text);
    buf_fini(&text);
}

/* The sample with every comment sign before an option taken away is a file that changes nothing. */
static void test_sample_file_is_valid(void **state)
{
    struct config config, plain;
    struct fault fault = {0};
    const char *path;
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 18);
    config_sample_file(&text);
    for (char *line = text.data; *line; line += strcspn(line, "\n") + 1) {
        if (line[0] == '#' && line[1] >= 'a' && line[1] <= 'z')
            line[0] = ' ';
    }
    /* An empty host would be refused and so is no default; an empty text is. */
    path = write_file(buf_string(&text));
    if (read_config(&config, COMMAND_SERVE, ARGUMENTS("--config", path), NULL, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_int_equal(read_config(&plain, COMMAND_SERVE, NO_ARGUMENTS, NULL, NULL), 0);
    for (size_t i = 0; i < option_row_count; i++) {
        if (option_rows[i].member && strcmp(option_rows[i].member, "config") != 0)
            assert_true(is_member_equal(&config, &plain, &option_rows[i]));
    }
    config_fini(&config);
    config_fini(&plain);
    buf_fini(&text);
    unlink(path);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct fault fault = {0};
        struct config config;
        int r;

        failing_malloc_arm(n);
        r = read_config(&config, COMMAND_SERVE, ARGUMENTS("--host", "x"), ARGUMENTS("WEFT_MODEL=y"),
                        &fault);
        config_fini(&config);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(r, E_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_command_line_names_the_file_over_the_environment),
        cmocka_unit_test(test_every_option_from_every_source),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_messages_of_the_command_line),
        cmocka_unit_test(test_messages_of_the_environment),
        cmocka_unit_test(test_messages_of_the_file),
        cmocka_unit_test(test_longest_line_of_a_file),
        cmocka_unit_test(test_operands_and_help),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_committed_pages),
        cmocka_unit_test(test_sample_file_is_valid),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
