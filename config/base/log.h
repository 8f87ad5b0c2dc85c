/* log.h -- one line per event, written whole, in key=value text or JSON.
 *
 * Only server/ and scheduler.c log; everything below returns faults. Prompts, completions and keys
 * never appear. The log is process state (like signals): one writer to standard error, safe from
 * any thread, each line one write(2).
 *
 *     log_event(LOG_INFO, "listening", LOG_STR("address", host), LOG_INT("port", port));
 *     2026-11-30T07:36:12.123Z info listening address=127.0.0.1 port=8000
 *     {"time":"2026-11-30T07:36:12.123Z","level":"info","event":"listening","address":...} */
#ifndef WEFT_LOG_H
#define WEFT_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_LEVEL_COUNT };
enum log_format { LOG_TEXT, LOG_JSON };

struct log_field {
    const char *key; /* NULL ends the list */
    enum { LOG_FIELD_STR, LOG_FIELD_INT, LOG_FIELD_REAL } kind;
    const char *text; /* NULL: the field is left out */
    int64_t integer;
    double real;
};
#define LOG_STR(key_, value_) \
    ((struct log_field){.key = (key_), .kind = LOG_FIELD_STR, .text = (value_)})
#define LOG_INT(key_, value_) \
    ((struct log_field){.key = (key_), .kind = LOG_FIELD_INT, .integer = (int64_t)(value_)})
#define LOG_REAL(key_, value_) \
    ((struct log_field){.key = (key_), .kind = LOG_FIELD_REAL, .real = (value_)})

void log_setup(enum log_level lowest, enum log_format format);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields);
/* At least one field. */
#define log_event(level_, event_, ...) \
    log_write((level_), (event_), (const struct log_field[]){__VA_ARGS__, {.key = NULL}})

#endif
