/* buf.h -- bytes that grow up to a ceiling.
 *
 * Every buffer is born with a ceiling. An append that would pass it fails, and so does every later
 * one: the buffer is `failed`, its content is whole up to the last append that fitted. Callers may
 * append a hundred times and look once, at the end (buf_failed).
 *
 * The bytes are always followed by a NUL that is not counted, so text can be read as a C string.
 * Not thread-safe. */
#ifndef WEFT_BUF_H
#define WEFT_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL while empty and never grown: use buf_string() for a C string */
    size_t bytes;
    size_t room; /* allocated, the NUL included */
    size_t ceiling;
    bool failed;
    bool fixed; /* buf_init_fixed(): the memory is another's */
};

void buf_init(struct buf *buf, size_t ceiling_bytes);
/* In the caller's memory of `room` >= 1 bytes (the NUL included): never grows, never allocates. */
void buf_init_fixed(struct buf *buf, void *memory, size_t room);
void buf_fini(struct buf *buf);  /* frees; safe to call twice */
void buf_reset(struct buf *buf); /* empty and not failed; keeps its memory */

void buf_put(struct buf *buf, const void *data, size_t bytes);
void buf_text(struct buf *buf, const char *text); /* appends a C string */
void buf_byte(struct buf *buf, char byte);
void buf_format(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_u64(struct buf *buf, uint64_t value);
/* JSON string content with the quotes: escapes what RFC 8259 section 7 requires; ill-formed UTF-8
 * becomes U+FFFD. */
void buf_json_string(struct buf *buf, const char *text, size_t bytes);
/* A JSON number with `digits` significant digits; what is not finite is written as -9999.0 or
 * 9999.0. */
void buf_json_number(struct buf *buf, double value, int digits);
/* Drops the first `bytes` bytes. */
void buf_drop(struct buf *buf, size_t bytes);
/* Keeps the first `bytes` bytes only, and the buffer has not failed any more: takes appends back.
 */
void buf_cut(struct buf *buf, size_t bytes);

const char *buf_string(const struct buf *buf); /* never NULL */
bool buf_failed(const struct buf *buf);

#endif
