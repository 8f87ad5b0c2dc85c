/* option.c -- see option.h. */
#include "config/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define COMMAND(enumerator, name, operands, help) ON_##enumerator = 1u << COMMAND_##enumerator,
#include "config/options.def"
};

/* The words sit behind an empty one, so that an option without words has a valid list as well. */
const struct option_row option_rows[] = {
#define GROUP(title) {.group = (title)},
#define OPTION(kind_, member_, default_, low_, high_, commands_, help_, ...) \
    {.member = #member_,                                                     \
     .kind = OPTION_##kind_,                                                 \
     .offset = offsetof(struct config, member_),                             \
     .default_text = (default_),                                             \
     .low = (low_),                                                          \
     .high = (high_),                                                        \
     .commands = (commands_),                                                \
     .help = (help_),                                                        \
     .words = (const char *const[]){"", ##__VA_ARGS__, NULL} + 1},
#include "config/options.def"
};
const size_t option_row_count = sizeof option_rows / sizeof option_rows[0];

const struct command_row command_rows[COMMAND_COUNT] = {
#define COMMAND(enumerator, name_, operands_, help_) \
    [COMMAND_##enumerator] = {.name = #name_, .operands = (operands_), .help = (help_)},
#include "config/options.def"
};

const char *option_name(const struct option_row *row, char name[static OPTION_NAME_BYTES_MAX])
{
    snprintf(name, OPTION_NAME_BYTES_MAX, "%s", row->member);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return name;
}

const char *option_variable(const struct option_row *row, char name[static OPTION_NAME_BYTES_MAX])
{
    snprintf(name, OPTION_NAME_BYTES_MAX, "WEFT_%s", row->member);
    for (char *at = name; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    return name;
}

const struct option_row *option_find(const char *name, size_t bytes)
{
    char candidate[OPTION_NAME_BYTES_MAX];

    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];

        if (row->member && strlen(option_name(row, candidate)) == bytes &&
            memcmp(candidate, name, bytes) == 0)
            return row;
    }
    return NULL;
}

unsigned edit_distance(const char *left, const char *right)
{
    enum { LENGTH_MAX = 63 };
    size_t rows = strnlen(left, LENGTH_MAX), columns = strnlen(right, LENGTH_MAX);
    unsigned cost[LENGTH_MAX + 1][LENGTH_MAX + 1];

    for (size_t i = 0; i <= rows; i++)
        cost[i][0] = (unsigned)i;
    for (size_t j = 0; j <= columns; j++)
        cost[0][j] = (unsigned)j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= columns; j++) {
            unsigned best = cost[i - 1][j - 1] + (left[i - 1] != right[j - 1]);

            if (cost[i - 1][j] + 1 < best)
                best = cost[i - 1][j] + 1;
            if (cost[i][j - 1] + 1 < best)
                best = cost[i][j - 1] + 1;
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] &&
                cost[i - 2][j - 2] + 1 < best)
                best = cost[i - 2][j - 2] + 1;
            cost[i][j] = best;
        }
    }
    return cost[rows][columns];
}

const struct option_row *option_nearest(const char *name, unsigned commands)
{
    const struct option_row *nearest = NULL;
    unsigned distance = UINT32_MAX;
    char candidate[OPTION_NAME_BYTES_MAX];

    for (size_t i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        unsigned d;

        if (!(row->commands & commands))
            continue;
        d = edit_distance(name, option_name(row, candidate));
        if (d < distance) {
            distance = d;
            nearest = row;
        }
    }
    return nearest;
}

/* 16777216 -> "16M"; only where nothing is lost. */
static void put_bytes(struct buf *text, uint64_t bytes)
{
    static const char suffixes[] = {'K', 'M', 'G', 'T'};
    char suffix = '\0';

    for (size_t i = 0; i < sizeof suffixes && bytes > 0 && bytes % 1024 == 0; i++) {
        bytes /= 1024;
        suffix = suffixes[i];
    }
    buf_u64(text, bytes);
    if (suffix)
        buf_byte(text, suffix);
}

void option_range(const struct option_row *row, struct buf *text)
{
    switch (row->kind) {
    case OPTION_FLAG:
        buf_text(text, "true or false");
        break;
    case OPTION_BYTES:
        put_bytes(text, (uint64_t)row->low);
        buf_text(text, " to ");
        put_bytes(text, (uint64_t)row->high);
        break;
    case OPTION_CHOICE:
        for (size_t i = 0; row->words[i]; i++)
            buf_format(text, "%s%s",
                       i == 0              ? ""
                       : row->words[i + 1] ? ", "
                                           : " or ",
                       row->words[i]);
        break;
    default:
        buf_format(text, "%.16g to %.16g", row->low, row->high);
        break;
    }
}

void option_accepts(const struct option_row *row, struct buf *text)
{
    static const char *const before[] = {
        [OPTION_FLAG] = "",
        [OPTION_UINT] = "a whole number from ",
        [OPTION_BYTES] = "a size from ",
        [OPTION_LONG] = "a whole number from ",
        [OPTION_REAL] = "a number from ",
        [OPTION_SECONDS] = "a number of seconds from ",
        [OPTION_CHOICE] = "",
        [OPTION_TEXT] = "a text of ",
    };
    static const char *const after[OPTION_CHOICE + 1] = {
        [OPTION_BYTES] = ", with K, M, G or T for powers of 1,024",
        [OPTION_TEXT] = " bytes",
    };

    buf_text(text, before[row->kind]);
    option_range(row, text);
    if (after[row->kind])
        buf_text(text, after[row->kind]);
}

/* Digits only: no sign, no space, nothing behind. An overflow is as good as the largest value: it
 * is out of every range of the table. */
static bool read_whole(const char *text, size_t bytes, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (bytes == 0)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            value = UINT64_MAX / 10; /* stays out of range, and can take more digits */
    }
    *ret_value = value;
    return true;
}

/* 64K, 64k and 64KiB are the same. */
static bool read_bytes(const char *text, uint64_t *ret_value)
{
    static const char suffixes[] = "kmgt";
    size_t digits = strspn(text, "0123456789");
    const char *suffix = text + digits;
    uint64_t value, unit = 1;

    if (!read_whole(text, digits, &value))
        return false;
    if (*suffix) {
        const char *found = strchr(suffixes, tolower((unsigned char)*suffix));

        if (!found || (suffix[1] && strcmp(suffix + 1, "iB") != 0))
            return false;
        unit = (uint64_t)1 << (10 * (found - suffixes + 1));
    }
    if (__builtin_mul_overflow(value, unit, &value))
        value = UINT64_MAX;
    *ret_value = value;
    return true;
}

static bool read_real(const char *text, double *ret_value)
{
    char *end;
    double value;

    /* strtod also reads spaces, "inf" and hexadecimal. */
    if (!*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    value = strtod(text, &end);
    if (*end || !isfinite(value))
        return false;
    *ret_value = value;
    return true;
}

static bool read_flag(const char *text, bool *ret_value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret_value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool read_choice(const struct option_row *row, const char *text, unsigned *ret_value)
{
    for (unsigned i = 0; row->words[i]; i++) {
        if (strcmp(text, row->words[i]) == 0) {
            *ret_value = i;
            return true;
        }
    }
    return false;
}

static bool in_range(const struct option_row *row, double value)
{
    return value >= row->low && value <= row->high;
}

/* 1: done; 0: not accepted; or -ENOMEM. */
static int try_set(struct config *config, const struct option_row *row, const char *text)
{
    void *member = (char *)config + row->offset;
    uint64_t whole;
    double real;
    const char *copy;

    switch (row->kind) {
    case OPTION_FLAG:
        return read_flag(text, member);
    case OPTION_CHOICE:
        return read_choice(row, text, member);
    case OPTION_UINT:
    case OPTION_LONG:
    case OPTION_BYTES:
        if (row->kind == OPTION_BYTES ? !read_bytes(text, &whole)
                                      : !read_whole(text, strlen(text), &whole))
            return 0;
        if (!in_range(row, (double)whole))
            return 0;
        if (row->kind == OPTION_UINT)
            *(uint32_t *)member = (uint32_t)whole;
        else
            *(uint64_t *)member = whole;
        return 1;
    case OPTION_SECONDS:
    case OPTION_REAL:
        if (!read_real(text, &real) || !in_range(row, real))
            return 0;
        *(double *)member = real;
        return 1;
    case OPTION_TEXT:
        if (!in_range(row, (double)strlen(text)))
            return 0;
        copy = arena_copy(config->arena, text, strlen(text));
        if (!copy)
            return -ENOMEM;
        *(const char **)member = copy;
        return 1;
    }
    return 0;
}

static const char *nearest_word(const struct option_row *row, const char *text)
{
    const char *nearest = row->words[0];

    for (size_t i = 1; row->words[i]; i++) {
        if (edit_distance(text, row->words[i]) < edit_distance(text, nearest))
            nearest = row->words[i];
    }
    return nearest;
}

int option_set(struct config *config, const struct option_row *row, const char *text,
               const char *where, struct fault *fault)
{
    char memory[256], name[OPTION_NAME_BYTES_MAX];
    struct buf accepts;
    int r = try_set(config, row, text);

    if (r > 0)
        return 0;
    if (r < 0)
        return fault_set(fault, E_MEMORY, "There is no memory left to keep %s", where);
    buf_init_fixed(&accepts, memory, sizeof memory);
    option_accepts(row, &accepts);
    if (row->kind == OPTION_CHOICE)
        buf_format(&accepts, " (nearest: %s)", nearest_word(row, text));
    return fault_field(fault, E_INVALID, option_name(row, name), "%s: accepted is %s", where,
                       buf_string(&accepts));
}
