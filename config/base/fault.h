/* fault.h -- what went wrong, as a value with a message fit to show a user.
 *
 * A function that can fail returns 0 (or a count) on success and a negative code on failure: -errno
 * from the system, or one of ours below. Where a human will read the reason, the last parameter is
 * a `struct fault *`; the callee writes the whole sentence, the caller passes it up unchanged or
 * puts its own context before it (fault_prefix). Library code never logs; it returns.
 *
 * A fault is plain memory on the caller's stack: no allocation, nothing to free. NULL is allowed
 * everywhere a fault is taken and means that nobody will read it. */
#ifndef WEFT_FAULT_H
#define WEFT_FAULT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus /* the CUDA kernels' files */
extern "C" {
#endif

/* Our own codes lie below any errno, so the two never meet. */
enum fault_code {
    E_INVALID = -10001,     /* the input is wrong: a value, a type, a combination */
    E_CORRUPT = -10002,     /* a file or message breaks its own format */
    E_UNSUPPORTED = -10003, /* well-formed, known or not, and not served here */
    E_NOT_FOUND = -10004,
    E_FULL = -10005,      /* a bounded thing has no room now; try again later */
    E_TOO_LARGE = -10006, /* over a limit that will not change by waiting */
    E_MEMORY = -10007,    /* an allocation failed, or a plan does not fit */
    E_DEVICE = -10008,    /* the device failed; sticky */
    E_CLOSED = -10009,    /* the other side is gone or shutting down */
    E_CONTEXT = -10010,   /* the prompt is longer than the context */
};

struct fault {
    int code;          /* negative; 0 while nothing is wrong */
    char field[64];    /* the input's field at fault ("messages[2].role"), or "" */
    char message[512]; /* a whole sentence without a final newline; always valid UTF-8 */
};

/* Writes the code and the printf-style message, cut to fit at a character's border. Returns
 * `code`, so that `return fault_set(fault, E_CORRUPT, "...")` reads well. */
int fault_set(struct fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, naming the field of the input that is at fault. */
int fault_field(struct fault *fault, int code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same from errno: the message ends in ": " and errno's text. Returns -errno. */
int fault_errno(struct fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the message that is there. Returns the fault's code. */
int fault_prefix(struct fault *fault, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For our own bugs only, never for input, files or devices: always on, prints the place and
 * aborts. */
#define must(condition) ((condition) ? (void)0 : must_failed(#condition, __FILE__, __LINE__))
void must_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
