/* option.h -- the table of options.def as data: inside config/ only.
 *
 * A value is text until it meets its row; option_set() is the one way from text into `struct
 * config`, whether the text is a default, a line of a file, a variable or a flag. */
#ifndef WEFT_OPTION_H
#define WEFT_OPTION_H

#include <stddef.h>

#include "config/config.h"

enum option_kind {
    OPTION_FLAG,
    OPTION_UINT,
    OPTION_LONG,
    OPTION_BYTES,
    OPTION_SECONDS,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_CHOICE,
};

enum { OPTION_NAME_BYTES_MAX = 40 };

struct option_row {
    const char *group;  /* a row is an option or a heading: then only this is set */
    const char *member; /* "max_batch" */
    enum option_kind kind;
    size_t offset; /* in struct config */
    const char *default_text;
    double low;
    double high;
    unsigned commands; /* bits 1 << enum command */
    const char *help;
    const char *const *words; /* CHOICE: NULL-terminated */
};

struct command_row {
    const char *name;
    const char *operands; /* "" for none, in brackets where it may be left out */
    const char *help;
};

extern const struct option_row option_rows[];
extern const size_t option_row_count;
extern const struct command_row command_rows[COMMAND_COUNT];

/* max_batch -> "max-batch" (flag and key) or "WEFT_MAX_BATCH" (variable); returns `name`. */
const char *option_name(const struct option_row *row, char name[static OPTION_NAME_BYTES_MAX]);
const char *option_variable(const struct option_row *row, char name[static OPTION_NAME_BYTES_MAX]);
/* By flag name; NULL when there is none. `bytes` of `name` count. */
const struct option_row *option_find(const char *name, size_t bytes);
/* The option of one of `commands` whose flag name is nearest; NULL where they have none. */
const struct option_row *option_nearest(const char *name, unsigned commands);
/* "0 to 65535", "text or json". Appended. */
void option_range(const struct option_row *row, struct buf *text);
/* What is accepted, for people: "a whole number from 0 to 65535". Appended. */
void option_accepts(const struct option_row *row, struct buf *text);

/* Reads `text` into the row's member. On a bad value the fault starts with `where` ("--port
 * 70000"). */
int option_set(struct config *config, const struct option_row *row, const char *text,
               const char *where, struct fault *fault);

/* How many insertions, deletions, replacements and swaps of neighbours lead from one to the other;
 * texts longer than 63 bytes are cut. */
unsigned edit_distance(const char *left, const char *right);

#endif
