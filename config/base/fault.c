/* fault.c -- writing faults: bounded, always whole UTF-8. */
#include "config/base/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts an incomplete character off the end and replaces every byte that is not part of valid UTF-8,
 * since messages may quote what a user or a file sent. */
static void make_utf8(char *text)
{
    unsigned char *at = (unsigned char *)text;

    while (*at) {
        unsigned need = *at < 0x80                  ? 0
                        : *at >= 0xc2 && *at < 0xe0 ? 1
                        : (*at & 0xf0) == 0xe0      ? 2
                        : *at >= 0xf0 && *at < 0xf5 ? 3
                                                    : 4;
        unsigned have = 0;

        while (have < need && need < 4 && (at[have + 1] & 0xc0) == 0x80)
            have++;
        bool bad =
            need == 4 || have < need ||
            (need == 2 && ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f))) ||
            (need == 3 && ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)));
        if (bad && at[have + 1] == 0 && need < 4) {
            *at = 0; /* cut in the middle of a character by the buffer's end */
            return;
        }
        if (bad)
            *at++ = '?';
        else
            at += need + 1;
    }
}

static void write_message(struct fault *fault, const char *format, va_list args)
{
    vsnprintf(fault->message, sizeof fault->message, format, args);
    make_utf8(fault->message);
}

int fault_set(struct fault *fault, int code, const char *format, ...)
{
    va_list args;

    if (!fault)
        return code;
    fault->code = code;
    fault->field[0] = 0;
    va_start(args, format);
    write_message(fault, format, args);
    va_end(args);
    return code;
}

int fault_field(struct fault *fault, int code, const char *field, const char *format, ...)
{
    va_list args;

    if (!fault)
        return code;
    fault->code = code;
    snprintf(fault->field, sizeof fault->field, "%s", field);
    make_utf8(fault->field);
    va_start(args, format);
    write_message(fault, format, args);
    va_end(args);
    return code;
}

int fault_errno(struct fault *fault, const char *format, ...)
{
    int error = errno ? errno : EIO;
    char reason[96];
    va_list args;
    size_t used;

    if (!fault)
        return -error;
    fault->code = -error;
    fault->field[0] = 0;
    va_start(args, format);
    write_message(fault, format, args);
    va_end(args);
    used = strlen(fault->message);
    snprintf(fault->message + used, sizeof fault->message - used, ": %s",
             strerror_r(error, reason, sizeof reason));
    make_utf8(fault->message);
    return -error;
}

int fault_prefix(struct fault *fault, const char *format, ...)
{
    char old[sizeof fault->message];
    va_list args;
    size_t used;

    if (!fault)
        return E_INVALID;
    memcpy(old, fault->message, sizeof old);
    va_start(args, format);
    write_message(fault, format, args);
    va_end(args);
    used = strlen(fault->message);
    snprintf(fault->message + used, sizeof fault->message - used, ": %s", old);
    make_utf8(fault->message);
    return fault->code;
}

_Noreturn void must_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "weft: a bug: %s does not hold at %s:%d\n", condition, file, line);
    abort();
}
