/* main.c -- from the command line to a command. Messages go to standard error, one line each. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/buf.h"
#include "config/config.h"
#include "server/commands.h"

enum { HELP_BYTES_MAX = 64 << 10 };

extern char **environ;

static int (*const commands[COMMAND_COUNT])(const struct config *, struct fault *) = {
#define COMMAND(enumerator, name, operands, help) [COMMAND_##enumerator] = command_##name,
#include "config/options.def"
};

static int print_help(bool all, enum command command)
{
    struct buf text;
    int r;

    buf_init(&text, HELP_BYTES_MAX);
    if (all)
        config_help_all(&text);
    else
        config_help(command, &text);
    must(!buf_failed(&text));
    r = fputs(buf_string(&text), stdout) < 0 || fflush(stdout) < 0;
    buf_fini(&text);
    return r;
}

static int complain(const struct fault *fault, int exit_code)
{
    fprintf(stderr, "weft: %s\n", fault->message);
    return exit_code;
}

static int run(enum command command, int count, char **arguments)
{
    struct fault fault = {0};
    struct config config;
    int r;

    r = config_init(&config, command, count, (const char *const *)arguments,
                    (const char *const *)environ, &fault);
    if (r < 0) {
        r = complain(&fault, EXIT_USAGE);
    } else if (r > 0) {
        r = print_help(false, command);
    } else {
        r = commands[command](&config, &fault);
        if (r < 0)
            r = complain(&fault, 1);
    }
    config_fini(&config);
    return r;
}

/* A standard descriptor that came closed would become a client's connection or the model file, and
 * the log would be written there. Its number is held by one that cannot be read or written either,
 * so that its use is an error as it would have been. */
static void hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

int main(int argc, char **argv)
{
    struct fault fault = {0};
    enum command command = COMMAND_VERSION;

    hold_standard_descriptors();
    if (argc < 2) {
        print_help(true, command);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(true, command);
    if (strcmp(argv[1], "--version") != 0 && command_find(argv[1], &command, &fault) < 0)
        return complain(&fault, EXIT_USAGE);
    return run(command, argc - 2, argv + 2);
}
