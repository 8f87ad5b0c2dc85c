/* config_text.c -- the options for people: --help, the documentation's page and the sample file,
 * all from the table. */
#include <stdio.h>
#include <string.h>

#include "config/option.h"

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

/* Words of `help` from `column` on, broken before HELP_WIDTH. */
static void put_wrapped(struct buf *text, const char *help, size_t column)
{
    size_t at = column;

    while (*help) {
        size_t word = strcspn(help, " ");

        if (at > column && at + 1 + word > HELP_WIDTH) {
            buf_format(text, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            buf_byte(text, ' ');
            at++;
        }
        buf_put(text, help, word);
        at += word;
        help += word;
        help += *help == ' ';
    }
    buf_byte(text, '\n');
}

static const char *value_name(const struct option_row *row)
{
    static const char *const names[] = {
        [OPTION_FLAG] = "",        [OPTION_UINT] = " N",          [OPTION_LONG] = " N",
        [OPTION_BYTES] = " BYTES", [OPTION_SECONDS] = " SECONDS", [OPTION_REAL] = " NUMBER",
        [OPTION_TEXT] = " TEXT",   [OPTION_CHOICE] = " WORD",
    };

    return names[row->kind];
}

static void put_option_help(struct buf *text, const struct option_row *row)
{
    char name[OPTION_NAME_BYTES_MAX], flag[2 * OPTION_NAME_BYTES_MAX], memory[1024];
    struct buf help;

    snprintf(flag, sizeof flag, "  --%s%s", option_name(row, name), value_name(row));
    buf_format(text, "%-*s", HELP_COLUMN, flag);
    if (strlen(flag) >= HELP_COLUMN)
        buf_format(text, "\n%*s", HELP_COLUMN, "");
    buf_init_fixed(&help, memory, sizeof memory);
    buf_text(&help, row->help);
    if (row->kind != OPTION_FLAG && (row->kind != OPTION_TEXT || *row->default_text)) {
        buf_text(&help, " [");
        if (row->kind != OPTION_TEXT) {
            option_range(row, &help);
            buf_text(&help, "; ");
        }
        buf_format(&help, "default %s]", row->default_text);
    }
    put_wrapped(text, buf_string(&help), HELP_COLUMN);
}

/* The options of `commands`, each group under its heading. */
static void put_options(struct buf *text, unsigned commands)
{
    const char *group = NULL;

    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (row->group) {
            group = row->group;
        } else if (row->commands & commands) {
            if (group)
                buf_format(text, "\n%s:\n", group);
            group = NULL;
            put_option_help(text, row);
        }
    }
}

void config_help(enum command command, struct buf *text)
{
    const struct command_row *row = &command_rows[command];
    size_t before;

    buf_format(text, "Usage: weft %s%s%s [options]\n%s.\n", row->name, *row->operands ? " " : "",
               row->operands, row->help);
    before = text->bytes;
    put_options(text, 1u << command);
    if (text->bytes > before)
        buf_text(text,
                 "\nEach option can also be a line `option = value` of the configuration file "
                 "or a variable,\n--max-context as WEFT_MAX_CONTEXT; the command line wins, then "
                 "the variable, then the file.\n");
}

void config_help_all(struct buf *text)
{
    buf_text(text, "Usage: weft COMMAND [options]\n\n");
    for (unsigned i = 0; i < COMMAND_COUNT; i++)
        buf_format(text, "  %-12s%s\n", command_rows[i].name, command_rows[i].help);
    buf_text(text, "\n`weft COMMAND --help` lists a command's options.\n");
}

static void put_table_row(struct buf *text, const struct option_row *row)
{
    char name[OPTION_NAME_BYTES_MAX];

    buf_format(text, "| `--%s` | ", option_name(row, name));
    if (*row->default_text)
        buf_format(text, "`%s`", row->default_text);
    buf_text(text, " | ");
    option_accepts(row, text);
    buf_format(text, " | %s | ", row->help);
    for (unsigned i = 0, shown = 0; i < COMMAND_COUNT; i++) {
        if (row->commands >> i & 1)
            buf_format(text, "%s%s", shown++ ? ", " : "", command_rows[i].name);
    }
    buf_text(text, " |\n");
}

void config_options_page(struct buf *text)
{
    buf_text(text, "# Options\n\n"
                   "This page is made by `weft docs options` from `config/options.def`.\n\n"
                   "An option `--max-batch` can be given in four places, the later winning over "
                   "the earlier: its "
                   "default, a line\n`max-batch = 64` of the file that `--config` names, the "
                   "environment variable "
                   "`WEFT_MAX_BATCH`, and the command line\n(`--max-batch 64` or "
                   "`--max-batch=64`). A switch is "
                   "turned on by `--cpu-exact` and off by `--no-cpu-exact`; in the\nfile and the "
                   "environment it is "
                   "`true` or `false`. A name that does not exist, or a value out of range, is an "
                   "error\nthat names "
                   "what is accepted, wherever it stands.\n\n"
                   "## Commands\n\n| command | |\n|---|---|\n");
    for (unsigned i = 0; i < COMMAND_COUNT; i++)
        buf_format(text, "| `weft %s%s%s` | %s |\n", command_rows[i].name,
                   *command_rows[i].operands ? " " : "", command_rows[i].operands,
                   command_rows[i].help);
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (row->group)
            buf_format(text,
                       "\n## %s\n\n| option | default | accepted | | commands |\n"
                       "|---|---|---|---|---|\n",
                       row->group);
        else
            put_table_row(text, row);
    }
}

void config_sample_file(struct buf *text)
{
    const char *group = NULL;
    char name[OPTION_NAME_BYTES_MAX];

    buf_text(text,
             "# weft.conf: settings of `weft serve --config weft.conf`, each with its default.\n"
             "# Made by `weft docs config` from config/options.def; docs/options.md has the "
             "ranges.\n"
             "# Variables (WEFT_PORT=8080) and the command line (--port 8080) win over this "
             "file.\n");
    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (row->group) {
            group = row->group;
        } else if (row->commands & 1u << COMMAND_SERVE && strcmp(row->member, "config") != 0) {
            if (group)
                buf_format(text, "\n# -- %s --\n", group);
            group = NULL;
            buf_format(text, "# %s\n#%s =%s%s\n", row->help, option_name(row, name),
                       *row->default_text ? " " : "", row->default_text);
        }
    }
}
