/* log.c -- formats a line on the stack and writes it with one write(2). */
#include "config/base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config/base/buf.h"

enum { LINE_BYTES_MAX = 8192 };

static atomic_int lowest_level = LOG_INFO;
static atomic_int line_format = LOG_TEXT;
static const char *const level_names[LOG_LEVEL_COUNT] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level lowest, enum log_format format)
{
    atomic_store(&lowest_level, lowest);
    atomic_store(&line_format, format);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

static void put_time(struct buf *line)
{
    struct timespec now;
    struct tm parts;
    char text[40];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    buf_format(line, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

static void put_text_value(struct buf *line, const char *text)
{
    for (const char *at = text;; at++) {
        if (*at == 0 && at != text) {
            buf_text(line, text);
            return;
        }
        if (*at <= ' ' || *at >= 0x7f || *at == '"' || *at == '=' || *at == '\\')
            break; /* an empty value, too, is shown in quotes */
    }
    buf_json_string(line, text, strlen(text));
}

static void put_field(struct buf *line, const struct log_field *field, bool json)
{
    if (json) {
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
    else if (json)
        buf_json_string(line, field->text, strlen(field->text));
    else
        put_text_value(line, field->text);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    bool json = atomic_load_explicit(&line_format, memory_order_relaxed) == LOG_JSON;
    struct buf line;
    ssize_t written;

    if (!log_enabled(level))
        return;
    buf_init(&line, LINE_BYTES_MAX);
    if (json)
        buf_text(&line, "{\"time\":\"");
    put_time(&line);
    if (json) {
        buf_format(&line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
        buf_json_string(&line, event, strlen(event));
    } else {
        buf_format(&line, " %s %s", level_names[level], event);
    }
    for (; fields->key; fields++)
        if (fields->kind != LOG_FIELD_STR || fields->text)
            put_field(&line, fields, json);
    buf_text(&line, json ? "}\n" : "\n");
    if (!buf_failed(&line)) {
        written = write(STDERR_FILENO, line.data, line.bytes);
        (void)written; /* a log that cannot be written has nobody to tell */
    }
    buf_fini(&line);
}
