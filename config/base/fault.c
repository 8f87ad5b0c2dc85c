/* fault.c -- see fault.h. Messages may quote file names and input, so every text is made valid
 * UTF-8 here, in one place, whatever came in. */
#include "config/base/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

/* What is ill-formed or a control character becomes '?', byte for byte: a message is one line, and
 * what it quotes cannot command a terminal. A character that the end of the array cut is dropped.
 */
static void clean(char *text, bool was_cut)
{
    size_t bytes = strlen(text);
    size_t at = 0;

    while (at < bytes) {
        size_t part;
        bool cut;

        if (!utf8_next(text + at, bytes - at, &part, &cut)) {
            if (cut && was_cut) {
                text[at] = '\0';
                return;
            }
            memset(text + at, '?', part);
        } else if (part == 1 && ((unsigned char)text[at] < ' ' || text[at] == 0x7f)) {
            text[at] = '?';
        } else if (part == 2 && memcmp(text + at, "\xc2\xa0", 2) < 0) { /* U+0080 to U+009F */
            memset(text + at, '?', part);
        }
        at += part;
    }
}

/* Through a copy: an argument may be the very message that is being replaced. */
static void write_text(char *text, size_t room, const char *format, va_list arguments)
{
    char copy[sizeof((struct fault *)NULL)->message];
    int wanted;

    must(room <= sizeof copy);
    wanted = vsnprintf(copy, room, format, arguments);
    if (wanted < 0)
        copy[0] = '\0';
    clean(copy, wanted >= 0 && (size_t)wanted >= room);
    memcpy(text, copy, strlen(copy) + 1);
}

static void write_plain(char *text, size_t room, const char *from)
{
    size_t bytes = strnlen(from, room);
    bool cut = bytes == room;

    memcpy(text, from, cut ? room - 1 : bytes);
    text[cut ? room - 1 : bytes] = '\0';
    clean(text, cut);
}

int fault_set(struct fault *fault, int code, const char *format, ...)
{
    va_list arguments;

    if (!fault)
        return code;
    fault->code = code;
    fault->field[0] = '\0';
    va_start(arguments, format);
    write_text(fault->message, sizeof fault->message, format, arguments);
    va_end(arguments);
    return code;
}

int fault_field(struct fault *fault, int code, const char *field, const char *format, ...)
{
    va_list arguments;

    if (!fault)
        return code;
    fault->code = code;
    write_plain(fault->field, sizeof fault->field, field);
    va_start(arguments, format);
    write_text(fault->message, sizeof fault->message, format, arguments);
    va_end(arguments);
    return code;
}

int fault_errno(struct fault *fault, const char *format, ...)
{
    int error = errno ? errno : EIO;
    char text[sizeof fault->message];
    char reason[128];
    va_list arguments;

    if (!fault)
        return -error;
    va_start(arguments, format);
    write_text(text, sizeof text, format, arguments);
    va_end(arguments);
    return fault_set(fault, -error, "%s: %s", text, strerror_r(error, reason, sizeof reason));
}

int fault_prefix(struct fault *fault, const char *format, ...)
{
    char prefix[sizeof fault->message];
    char text[sizeof fault->message];
    va_list arguments;
    int wanted;

    if (!fault)
        return E_INVALID; /* the code is lost with the fault, but a failure stays one */
    va_start(arguments, format);
    write_text(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    memcpy(text, fault->message, sizeof text);
    wanted = snprintf(fault->message, sizeof fault->message, "%s: %s", prefix, text);
    clean(fault->message, wanted >= (int)sizeof fault->message);
    return fault->code;
}

_Noreturn void must_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "weft: a bug: must(%s) failed at %s:%d\n", condition, file, line);
    abort();
}
