/* buf.c -- growing by doubling up to the ceiling; the NUL at the end is not counted. */
#include "config/base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 256 };

void buf_init(struct buf *buf, size_t ceiling_bytes)
{
    *buf = (struct buf){.ceiling = ceiling_bytes};
}

void buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){.ceiling = buf->ceiling};
}

void buf_reset(struct buf *buf)
{
    buf->bytes = 0;
    buf->failed = false;
    if (buf->data)
        buf->data[0] = 0;
}

/* Makes room for `more` bytes and the NUL; false marks the buffer failed. */
static bool reserve(struct buf *buf, size_t more)
{
    size_t room = buf->room ? buf->room : FIRST_ROOM;
    char *data;

    if (buf->failed)
        return false;
    if (more > buf->ceiling - buf->bytes || buf->bytes > buf->ceiling)
        goto failed;
    if (buf->room > buf->bytes + more)
        return true;
    while (room <= buf->bytes + more)
        room *= 2;
    data = realloc(buf->data, room);
    if (!data)
        goto failed;
    buf->data = data;
    buf->room = room;
    return true;
failed:
    buf->failed = true;
    return false;
}

void buf_put(struct buf *buf, const void *data, size_t bytes)
{
    if (!reserve(buf, bytes))
        return;
    if (bytes)
        memcpy(buf->data + buf->bytes, data, bytes);
    buf->bytes += bytes;
    buf->data[buf->bytes] = 0;
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
    char small[256];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (length < 0) {
        buf->failed = true;
    } else if ((size_t)length < sizeof small) {
        buf_put(buf, small, (size_t)length);
    } else if (reserve(buf, (size_t)length)) {
        va_start(args, format);
        vsnprintf(buf->data + buf->bytes, (size_t)length + 1, format, args);
        va_end(args);
        buf->bytes += (size_t)length;
    }
}

void buf_u64(struct buf *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    buf_put(buf, digits + at, sizeof digits - at);
}

/* Length of the well-formed character at `at` (Unicode 15, table 3-7), or minus the length of the
 * maximal ill-formed part. */
static int utf8_step(const unsigned char *at, size_t left)
{
    unsigned char low = 0x80, high = 0xbf;
    int need;

    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        need = 1;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        need = 2;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        need = 3;
    else
        return -1;
    if (at[0] == 0xe0)
        low = 0xa0;
    if (at[0] == 0xed)
        high = 0x9f;
    if (at[0] == 0xf0)
        low = 0x90;
    if (at[0] == 0xf4)
        high = 0x8f;
    for (int i = 1; i <= need; i++) {
        if ((size_t)i >= left || at[i] < low || at[i] > high)
            return -i;
        low = 0x80;
        high = 0xbf;
    }
    return need + 1;
}

static void put_escape(struct buf *buf, unsigned char byte)
{
    static const char short_names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                       ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    char text[2] = {'\\', byte < sizeof short_names ? short_names[byte] : 0};

    if (text[1])
        buf_put(buf, text, 2);
    else
        buf_format(buf, "\\u%04x", byte);
}

void buf_json_string(struct buf *buf, const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t done = 0, plain = 0; /* text[done .. plain) is still to be copied as it is */

    buf_byte(buf, '"');
    while (plain < bytes) {
        unsigned char byte = at[plain];

        if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\' && byte != 0x7f) {
            plain++;
            continue;
        }
        int step = utf8_step(at + plain, bytes - plain);

        if (step > 1) {
            plain += (size_t)step;
            continue;
        }
        buf_put(buf, at + done, plain - done);
        if (step < 0) {
            buf_text(buf, "\xef\xbf\xbd");
            plain += (size_t)-step;
        } else {
            put_escape(buf, byte);
            plain++;
        }
        done = plain;
    }
    buf_put(buf, at + done, plain - done);
    buf_byte(buf, '"');
}

void buf_json_number(struct buf *buf, double value, int digits)
{
    if (!isfinite(value))
        value = value > 0 ? 9999.0 : -9999.0;
    buf_format(buf, "%.*g", digits, value);
}

void buf_drop(struct buf *buf, size_t bytes)
{
    if (bytes >= buf->bytes) {
        buf->bytes = 0;
    } else if (bytes) {
        memmove(buf->data, buf->data + bytes, buf->bytes - bytes);
        buf->bytes -= bytes;
    }
    if (buf->data)
        buf->data[buf->bytes] = 0;
}

const char *buf_string(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

bool buf_failed(const struct buf *buf)
{
    return buf->failed;
}
