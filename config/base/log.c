/* log.c -- see log.h. A line is made in an array on the caller's stack, so logging allocates
 * nothing and takes no lock; a field that does not fit is left out whole, and the line stays
 * well-formed. */
#include "config/base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/base/buf.h"

enum { LINE_BYTES_MAX = 4096, LINE_END_BYTES = 2 };

static const char *const level_names[LOG_LEVEL_COUNT] = {"debug", "info", "warn", "error"};
static _Atomic enum log_level level_lowest = LOG_INFO;
static _Atomic enum log_format line_format = LOG_TEXT;

void log_setup(enum log_level lowest, enum log_format format)
{
    atomic_store(&level_lowest, lowest);
    atomic_store(&line_format, format);
}

bool log_enabled(enum log_level level)
{
    return level >= atomic_load_explicit(&level_lowest, memory_order_relaxed);
}

static void put_time(struct buf *line)
{
    struct timespec now;
    struct tm date;
    char text[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &date);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &date);
    buf_format(line, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

static bool is_plain(const char *text)
{
    if (!*text)
        return false;
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;

        /* Not ASCII: quoted too, so that ill-formed UTF-8 is repaired in one place. */
        if (byte <= ' ' || byte >= 0x7f || byte == '"' || byte == '=' || byte == '\\')
            return false;
    }
    return true;
}

static void put_field(struct buf *line, const struct log_field *field, enum log_format format)
{
    size_t before = line->bytes;

    if (format == LOG_JSON) {
        buf_byte(line, ',');
        buf_json_string(line, field->key, strlen(field->key));
        buf_byte(line, ':');
    } else {
        buf_format(line, " %s=", field->key);
    }
    if (field->kind == LOG_FIELD_INT)
        buf_format(line, "%lld", (long long)field->integer);
    else if (field->kind == LOG_FIELD_REAL)
        buf_json_number(line, field->real, 6);
    else if (format == LOG_TEXT && is_plain(field->text))
        buf_text(line, field->text);
    else
        buf_json_string(line, field->text, strlen(field->text));
    if (buf_failed(line))
        buf_cut(line, before);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    enum log_format format = atomic_load_explicit(&line_format, memory_order_relaxed);
    char memory[LINE_BYTES_MAX + LINE_END_BYTES];
    struct buf line;
    ssize_t r;

    if (!log_enabled(level))
        return;
    buf_init_fixed(&line, memory, LINE_BYTES_MAX);
    buf_text(&line, format == LOG_JSON ? "{\"time\":\"" : "");
    put_time(&line);
    if (format == LOG_JSON) {
        buf_format(&line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
        buf_json_string(&line, event, strlen(event));
    } else {
        buf_format(&line, " %s %s", level_names[level], event);
    }
    for (; fields->key; fields++) {
        if (fields->kind != LOG_FIELD_STR || fields->text)
            put_field(&line, fields, format);
    }
    line.ceiling += LINE_END_BYTES; /* the end always fits */
    line.room += LINE_END_BYTES;
    buf_text(&line, format == LOG_JSON ? "}\n" : "\n");
    /* One write, so that lines of several threads never mix. Nothing can be done about a log that
     * is gone. */
    do {
        r = write(STDERR_FILENO, line.data, line.bytes);
    } while (r < 0 && errno == EINTR);
}
