/* buf.c -- see buf.h. */
#include "config/base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"
#include "config/base/utf8.h"

enum { BUF_ROOM_FIRST = 64 };

void buf_init(struct buf *buf, size_t ceiling_bytes)
{
    *buf = (struct buf){.ceiling = ceiling_bytes < SIZE_MAX ? ceiling_bytes : SIZE_MAX - 1};
}

void buf_init_fixed(struct buf *buf, void *memory, size_t room)
{
    must(room > 0);
    *buf = (struct buf){.data = memory, .room = room, .ceiling = room - 1, .fixed = true};
    buf->data[0] = '\0';
}

void buf_fini(struct buf *buf)
{
    if (!buf->fixed)
        free(buf->data);
    *buf = (struct buf){.failed = true};
}

void buf_reset(struct buf *buf)
{
    buf_cut(buf, 0);
}

void buf_cut(struct buf *buf, size_t bytes)
{
    must(bytes <= buf->bytes);
    buf->bytes = bytes;
    buf->failed = false;
    if (buf->data)
        buf->data[bytes] = '\0';
}

/* Makes room for `more` bytes and the NUL. */
static bool grow(struct buf *buf, size_t more)
{
    size_t need, room;
    char *data;

    if (buf->failed || more > buf->ceiling - buf->bytes) {
        buf->failed = true;
        return false;
    }
    need = buf->bytes + more + 1;
    if (need <= buf->room)
        return true;
    room = buf->room > BUF_ROOM_FIRST ? buf->room : BUF_ROOM_FIRST;
    while (room < need)
        room = room > SIZE_MAX / 2 ? need : room * 2;
    if (room > buf->ceiling + 1)
        room = buf->ceiling + 1;
    data = realloc(buf->data, room);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->room = room;
    return true;
}

void buf_put(struct buf *buf, const void *data, size_t bytes)
{
    if (!grow(buf, bytes))
        return;
    if (bytes > 0)
        memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    buf->data[buf->bytes] = '\0';
}

void buf_text(struct buf *buf, const char *text)
{
    buf_put(buf, text, strlen(text));
}

void buf_byte(struct buf *buf, char byte)
{
    buf_put(buf, &byte, 1);
}

void buf_format(struct buf *buf, const char *format, ...)
{
    va_list arguments;
    int wanted;

    va_start(arguments, format);
    wanted = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (wanted < 0 || !grow(buf, (size_t)wanted)) {
        buf->failed = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(buf->data + buf->bytes, (size_t)wanted + 1, format, arguments);
    va_end(arguments);
    buf->bytes += (size_t)wanted;
}

void buf_u64(struct buf *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    buf_put(buf, digits + at, sizeof digits - at);
}

static void put_escape(struct buf *buf, unsigned char byte)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* byte, letter, byte, letter ... */
    char wide[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};

    for (size_t i = 0; i < sizeof letters - 1; i += 2) {
        if (byte == (unsigned char)letters[i]) {
            char escape[2] = {'\\', letters[i + 1]};

            buf_put(buf, escape, 2);
            return;
        }
    }
    buf_put(buf, wide, sizeof wide);
}

/* Runs that need no change are copied whole: most text is one run. */
void buf_json_string(struct buf *buf, const char *text, size_t bytes)
{
    size_t before = buf->bytes;
    size_t run = 0; /* where the run that is not yet copied starts */
    size_t at = 0;

    buf_byte(buf, '"');
    while (at < bytes) {
        unsigned char byte = (unsigned char)text[at];
        size_t part = 1;
        bool plain = byte >= 0x20 && byte != '"' && byte != '\\';

        if (byte >= 0x80)
            plain = utf8_next(text + at, bytes - at, &part, NULL);
        if (!plain) {
            buf_put(buf, text + run, at - run);
            if (byte < 0x80)
                put_escape(buf, byte);
            else
                buf_text(buf, "\xef\xbf\xbd");
            run = at + part;
        }
        at += part;
    }
    buf_put(buf, text + run, at - run);
    buf_byte(buf, '"');
    if (buf->failed) { /* no half strings */
        buf_cut(buf, before);
        buf->failed = true;
    }
}

void buf_json_number(struct buf *buf, double value, int digits)
{
    if (isfinite(value))
        buf_format(buf, "%.*g", digits, value);
    else
        buf_text(buf, value > 0 ? "9999.0" : "-9999.0");
}

void buf_drop(struct buf *buf, size_t bytes)
{
    must(bytes <= buf->bytes);
    if (bytes == 0)
        return;
    buf->bytes -= bytes;
    memmove(buf->data, buf->data + bytes, buf->bytes + 1);
}

const char *buf_string(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

bool buf_failed(const struct buf *buf)
{
    return buf->failed;
}
