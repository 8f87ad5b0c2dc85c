/* api_error.h -- errors as HTTP shows them: one table from codes to status, type and code.
 *
 * Body: {"error":{"message":…,"type":…,"param":…|null,"code":…|null}} (API.md's section on errors;
 * at most 1 KB of message). */
#ifndef WEFT_API_ERROR_H
#define WEFT_API_ERROR_H

#include "config/base/buf.h"
#include "config/base/fault.h"

enum api_error_kind {
    API_OK,
    API_BAD_REQUEST,        /* 400 invalid_request_error */
    API_CONTEXT_LENGTH,     /* 400 invalid_request_error, context_length_exceeded */
    API_UNAUTHORIZED,       /* 401 */
    API_NOT_FOUND,          /* 404 path */
    API_MODEL_NOT_FOUND,    /* 404 model_not_found */
    API_METHOD_NOT_ALLOWED, /* 405 */
    API_TIMEOUT,            /* 408 */
    API_TOO_LARGE,          /* 413 */
    API_UNSUPPORTED_MEDIA,  /* 415 invalid_request_error: a Content-Encoding */
    API_QUEUE_FULL,         /* 429 rate_limit_exceeded, Retry-After */
    API_INTERNAL,           /* 500 */
    API_NOT_IMPLEMENTED,    /* 501 */
    API_UNAVAILABLE,        /* 503 overloaded, Retry-After */
    API_ERROR_COUNT,
};

struct api_error {
    enum api_error_kind kind;
    char param[64]; /* "" = null */
    char message[1024];
};

int api_error_status(enum api_error_kind kind);
/* Fills from a fault by its code (E_INVALID -> 400, E_FULL -> 429 and so on). */
void api_error_from_fault(struct api_error *error, const struct fault *fault);
void api_error_set(struct api_error *error, enum api_error_kind kind, const char *param,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Appends the JSON body. */
void api_error_body(const struct api_error *error, struct buf *body);

#endif
