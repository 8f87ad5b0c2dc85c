/* config.c -- see config.h. Each source is read whole before the next, so a later one simply
 * overwrites. The command line is read twice: once to find --config, and once in its turn. */
#include "config/config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "config/option.h"

enum {
    CONFIG_BYTES_MAX = 16 << 20, /* all texts of all sources */
    /* inih splits longer lines silently (INI_MAX_LINE, 200 with the NUL). */
    FILE_LINE_BYTES_MAX = 198,
    FILE_LINES_MAX = 10000,
    WHERE_BYTES = 160,
};

static const unsigned all_commands = (1u << COMMAND_COUNT) - 1;

const char *command_name(enum command command)
{
    return command_rows[command].name;
}

int command_find(const char *name, enum command *ret_command, struct fault *fault)
{
    unsigned nearest = 0;

    if (*name == '-')
        return fault_set(fault, E_INVALID,
                         "A command comes before the options, as in `weft serve %.60s`; "
                         "`weft --help` lists them all",
                         name);
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, command_rows[i].name) == 0) {
            *ret_command = (enum command)i;
            return 0;
        }
        if (edit_distance(name, command_rows[i].name) <
            edit_distance(name, command_rows[nearest].name))
            nearest = i;
    }
    return fault_set(
        fault, E_NOT_FOUND,
        "There is no command '%.60s'; the nearest is '%s', and `weft --help` lists them all", name,
        command_rows[nearest].name);
}

static int set_defaults(struct config *config, struct fault *fault)
{
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        int r = row->member ? option_set(config, row, row->default_text, row->member, fault) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

/* One reading of a configuration file. */
struct file_reader {
    struct config *config;
    const char *path;
    FILE *stream;
    unsigned line;
    bool line_too_long;
    uint64_t seen[4]; /* bits by row: a key stands once */
    struct fault *fault;
    int result;
};

/* fgets() for inih, which does not tell its handler the line. */
static char *read_line(char *text, int room, void *data)
{
    struct file_reader *reader = data;
    char *line = fgets(text, room, reader->stream);
    size_t bytes = line ? strlen(line) : 0;

    if (!line)
        return NULL;
    reader->line++;
    if ((bytes > FILE_LINE_BYTES_MAX && line[bytes - 1] != '\n') || reader->line > FILE_LINES_MAX) {
        reader->line_too_long = true;
        return NULL;
    }
    /* An indented line would continue the value before it. */
    memmove(line, line + strspn(line, " \t"), bytes - strspn(line, " \t") + 1);
    return line;
}

static int fail_at(struct file_reader *reader, int result)
{
    if (reader->result == 0)
        reader->result = result;
    return 0; /* inih's word for an error */
}

static int on_key(void *data, const char *section, const char *key, const char *value)
{
    struct file_reader *reader = data;
    const struct option_row *row = option_find(key, strlen(key));
    char where[WHERE_BYTES], name[OPTION_NAME_BYTES_MAX];
    size_t index;
    int r;

    if (reader->result < 0)
        return 0;
    if (*section)
        return fail_at(reader, fault_set(reader->fault, E_INVALID,
                                         "%s:%u: the file has no sections, but here stands [%s]",
                                         reader->path, reader->line, section));
    if (!row)
        return fail_at(reader, fault_set(reader->fault, E_INVALID,
                                         "%s:%u: there is no option '%s'; the nearest is '%s'",
                                         reader->path, reader->line, key,
                                         option_name(option_nearest(key, all_commands), name)));
    if (strcmp(row->member, "config") == 0)
        return fail_at(reader, fault_set(reader->fault, E_INVALID,
                                         "%s:%u: a configuration file cannot name another one",
                                         reader->path, reader->line));
    index = (size_t)(row - option_rows);
    must(index < 64 * sizeof reader->seen / sizeof reader->seen[0]);
    if (reader->seen[index / 64] >> index % 64 & 1)
        return fail_at(reader, fault_set(reader->fault, E_INVALID, "%s:%u: '%s' stands here twice",
                                         reader->path, reader->line, key));
    reader->seen[index / 64] |= (uint64_t)1 << index % 64;
    snprintf(where, sizeof where, "%s = %s", key, value);
    r = option_set(reader->config, row, value, where, reader->fault);
    if (r < 0) {
        fault_prefix(reader->fault, "%s:%u", reader->path, reader->line);
        return fail_at(reader, r);
    }
    return 1;
}

static int read_file(struct config *config, const char *path, struct fault *fault)
{
    struct file_reader reader = {.config = config, .path = path, .fault = fault};
    int line, r;

    reader.stream = fopen(path, "re");
    if (!reader.stream)
        return fault_errno(fault, "Cannot open the configuration file %s", path);
    line = ini_parse_stream(read_line, &reader, on_key, &reader);
    r = reader.result;
    if (r < 0)
        goto out;
    if (ferror(reader.stream))
        r = fault_errno(fault, "Cannot read the configuration file %s", path);
    else if (reader.line_too_long)
        r = fault_set(fault, E_TOO_LARGE, "%s:%u: a line may have %d bytes and a file %d lines",
                      path, reader.line, FILE_LINE_BYTES_MAX, FILE_LINES_MAX);
    else if (line > 0)
        r = fault_set(fault, E_INVALID, "%s:%d: expected `option = value`", path, line);
    else if (line < 0)
        r = fault_set(fault, E_MEMORY, "There is no memory left to read %s", path);
out:
    fclose(reader.stream);
    return r;
}

/* Variables that are not options: the tests' own, and what Kubernetes sets in every container when
 * a service is named weft (WEFT_PORT=tcp://..., WEFT_SERVICE_HOST, WEFT_PORT_8000_TCP_ADDR ...). */
static bool is_foreign_variable(const char *name, size_t bytes, const char *value)
{
    static const char *const ours[] = {"WEFT_GOLDENS", "WEFT_BINARY", "WEFT_BUILD",
                                       "WEFT_DEMO_MODEL"};
    static const char *const prefixes[] = {"WEFT_TEST_", "WEFT_SERVICE_", "WEFT_PORT_"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strlen(ours[i]) == bytes && memcmp(name, ours[i], bytes) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return bytes == strlen("WEFT_PORT") && memcmp(name, "WEFT_PORT", bytes) == 0 &&
           (strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0);
}

static int read_variable(struct config *config, const char *variable, struct fault *fault)
{
    const char *value = strchr(variable, '=');
    char key[OPTION_NAME_BYTES_MAX], name[OPTION_NAME_BYTES_MAX], where[WHERE_BYTES];
    const struct option_row *row;
    size_t bytes, i;

    if (strncmp(variable, "WEFT_", 5) != 0 || !value)
        return 0;
    bytes = (size_t)(value++ - variable);
    if (is_foreign_variable(variable, bytes, value))
        return 0;
    for (i = 0; i + 5 < bytes && i < sizeof key - 1; i++) {
        char byte = variable[i + 5];

        /* Upper case only: weft_port and WEFT_port are others' names. */
        key[i] = byte == '_' ? '-' : byte >= 'A' && byte <= 'Z' ? (char)(byte - 'A' + 'a') : byte;
        if (byte >= 'a' && byte <= 'z')
            key[i] = '?';
    }
    key[i] = '\0';
    row = i + 5 == bytes ? option_find(key, i) : NULL;
    if (!row)
        return fault_set(fault, E_INVALID,
                         "The environment variable %.*s is no option; the nearest is %s",
                         (int)(bytes < 80 ? bytes : 80), variable,
                         option_variable(option_nearest(key, all_commands), name));
    snprintf(where, sizeof where, "%s", variable);
    return option_set(config, row, value, where, fault);
}

/* A walk over the command line. */
struct line_reader {
    enum command command;
    int count;
    const char *const *arguments;
    int next;
};

/* One flag of the command line, its value found. */
struct line_flag {
    const struct option_row *row; /* NULL: an operand, or --help */
    bool help;
    const char *text; /* the operand or the value */
    char where[WHERE_BYTES];
};

static int unknown_flag(const struct line_reader *reader, const char *argument, size_t bytes,
                        struct fault *fault)
{
    const char *command = command_name(reader->command);
    char bare[OPTION_NAME_BYTES_MAX], name[OPTION_NAME_BYTES_MAX];
    const char *from = argument + strspn(argument, "-");
    const struct option_row *nearest;

    snprintf(bare, sizeof bare, "%.*s", (int)(bytes - (size_t)(from - argument)), from);
    for (char *at = bare; *at; at++)
        *at = *at == '_' ? '-' : *at;
    nearest = option_nearest(bare, 1u << reader->command);
    if (bytes > 80)
        bytes = 80;
    if (!nearest)
        return fault_set(fault, E_INVALID, "There is no option '%.*s': `weft %s` has none",
                         (int)bytes, argument, command);
    return fault_set(
        fault, E_INVALID,
        "There is no option '%.*s'; the nearest is --%s, and `weft %s --help` lists them all",
        (int)bytes, argument, option_name(nearest, name), command);
}

/* The row of `--name`, or of `--no-name` for a flag (*ret_negated). */
static const struct option_row *find_flag(const char *name, size_t bytes, bool *ret_negated)
{
    const struct option_row *row = option_find(name, bytes);

    *ret_negated = false;
    if (row || bytes <= 3 || strncmp(name, "no-", 3) != 0)
        return row;
    row = option_find(name + 3, bytes - 3);
    *ret_negated = row && row->kind == OPTION_FLAG;
    return *ret_negated ? row : NULL;
}

static int read_flag(struct line_reader *reader, struct line_flag *flag, struct fault *fault)
{
    const char *argument = reader->arguments[reader->next++];
    size_t bytes = strcspn(argument, "=");
    const char *value = argument[bytes] ? argument + bytes + 1 : NULL;
    bool negated;

    *flag = (struct line_flag){.text = argument};
    if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
        flag->help = true;
        return 0;
    }
    flag->row =
        strncmp(argument, "--", 2) == 0 ? find_flag(argument + 2, bytes - 2, &negated) : NULL;
    if (!flag->row)
        return unknown_flag(reader, argument, bytes, fault);
    if (!(flag->row->commands & 1u << reader->command)) {
        unsigned other = (unsigned)__builtin_ctz(flag->row->commands);

        return fault_set(fault, E_INVALID, "%.*s is an option of `weft %s`, not of `weft %s`",
                         (int)bytes, argument, command_rows[other].name,
                         command_name(reader->command));
    }
    if (flag->row->kind == OPTION_FLAG && !value)
        value = negated ? "false" : "true";
    else if (negated)
        return fault_set(fault, E_INVALID, "%.*s takes no value", (int)bytes, argument);
    if (!value && reader->next < reader->count)
        value = reader->arguments[reader->next++];
    if (!value)
        return fault_set(fault, E_INVALID, "%s needs a value", argument);
    flag->text = value;
    snprintf(flag->where, sizeof flag->where, "%.*s %.100s", (int)bytes, argument,
             *value ? value : "''");
    return 0;
}

/* Calls for every argument; stops at --help with 1. With `only` nothing but that row is stored. */
static int read_command_line(struct config *config, enum command command, int count,
                             const char *const *arguments, const struct option_row *only,
                             struct fault *fault)
{
    struct line_reader reader = {.command = command, .count = count, .arguments = arguments};
    const char **operands = NULL;
    bool only_operands = false;
    uint32_t operand_count = 0;

    operands = arena_take(config->arena, (size_t)count + 1, sizeof *operands);
    if (!operands)
        return fault_set(fault, E_MEMORY, "There is no memory left to read the command line");
    while (reader.next < count) {
        const char *argument = arguments[reader.next];
        struct line_flag flag;
        int r;

        if (only_operands || argument[0] != '-' || strcmp(argument, "-") == 0) {
            operands[operand_count++] = argument;
            reader.next++;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            only_operands = true;
            reader.next++;
            continue;
        }
        r = read_flag(&reader, &flag, fault);
        if (r < 0)
            return r;
        if (flag.help)
            return 1;
        if (only && only != flag.row)
            continue;
        r = option_set(config, flag.row, flag.text, flag.where, fault);
        if (r < 0)
            return r;
    }
    config->operands = operands;
    config->operand_count = operand_count;
    return 0;
}

/* "IN OUT": two. */
static uint32_t word_count(const char *text)
{
    uint32_t count = *text != '\0';

    for (; *text; text++)
        count += *text == ' ';
    return count;
}

static int check_operands(const struct config *config, enum command command, struct fault *fault)
{
    const struct command_row *row = &command_rows[command];
    uint32_t most = word_count(row->operands);

    if (config->operand_count > most)
        return fault_set(fault, E_INVALID, "`weft %s` cannot do anything with '%.100s'%s",
                         row->name, config->operands[most], most ? "" : "; options start with --");
    if (config->operand_count < most && row->operands[0] != '[')
        return fault_set(fault, E_INVALID, "`weft %s` needs %s; see `weft %s --help`", row->name,
                         row->operands, row->name);
    return 0;
}

int config_init(struct config *config, enum command command, int argument_count,
                const char *const *arguments, const char *const *environment, struct fault *fault)
{
    const struct option_row *path_row = option_find("config", strlen("config"));
    int r;

    *config = (struct config){0};
    r = arena_open(4096, CONFIG_BYTES_MAX, &config->arena);
    if (r < 0)
        return fault_set(fault, E_MEMORY, "There is no memory left to read the settings");
    r = set_defaults(config, fault);
    if (r < 0)
        return r;
    for (size_t i = 0; environment[i]; i++) {
        if (strncmp(environment[i], "WEFT_CONFIG=", 12) == 0)
            r = read_variable(config, environment[i], fault);
        if (r < 0)
            return r;
    }
    r = read_command_line(config, command, argument_count, arguments, path_row, fault);
    if (r != 0)
        return r;
    r = check_operands(config, command, fault);
    if (r == 0 && *config->config)
        r = read_file(config, config->config, fault);
    for (size_t i = 0; r == 0 && environment[i]; i++)
        r = read_variable(config, environment[i], fault);
    if (r == 0)
        r = read_command_line(config, command, argument_count, arguments, NULL, fault);
    return r;
}

void config_fini(struct config *config)
{
    arena_close(config->arena);
    *config = (struct config){0};
}
