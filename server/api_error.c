/* api_error.c -- see api_error.h. */
#include "server/api_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/base/utf8.h"

struct api_error_row {
    int status;
    const char *type;
    const char *code; /* NULL: null */
};

static const struct api_error_row rows[API_ERROR_COUNT] = {
    [API_OK] = {200, "none", NULL},
    [API_BAD_REQUEST] = {400, "invalid_request_error", NULL},
    [API_CONTEXT_LENGTH] = {400, "invalid_request_error", "context_length_exceeded"},
    [API_UNAUTHORIZED] = {401, "authentication_error", "invalid_api_key"},
    [API_NOT_FOUND] = {404, "invalid_request_error", "not_found"},
    [API_MODEL_NOT_FOUND] = {404, "invalid_request_error", "model_not_found"},
    [API_METHOD_NOT_ALLOWED] = {405, "invalid_request_error", "method_not_allowed"},
    [API_TIMEOUT] = {408, "timeout", "timeout"},
    [API_TOO_LARGE] = {413, "invalid_request_error", "request_too_large"},
    [API_UNSUPPORTED_MEDIA] = {415, "invalid_request_error", "unsupported_media_type"},
    [API_QUEUE_FULL] = {429, "rate_limit_error", "rate_limit_exceeded"},
    [API_INTERNAL] = {500, "server_error", NULL},
    [API_NOT_IMPLEMENTED] = {501, "not_supported", "not_supported"},
    [API_UNAVAILABLE] = {503, "server_error", "overloaded"},
};

static const struct api_error_row *row_of(enum api_error_kind kind)
{
    must((unsigned)kind < API_ERROR_COUNT);
    return &rows[kind];
}

int api_error_status(enum api_error_kind kind)
{
    return row_of(kind)->status;
}

/* A text that was cut to fit may end in part of a character: that part goes. What else is
 * ill-formed is replaced when the body is written. */
static void drop_cut_character(char *text)
{
    size_t bytes = strlen(text);
    size_t at = 0, part;
    bool cut = false;

    while (at < bytes) {
        (void)utf8_next(text + at, bytes - at, &part, &cut);
        if (cut)
            text[at] = '\0';
        at += part;
    }
}

void api_error_set(struct api_error *error, enum api_error_kind kind, const char *param,
                   const char *format, ...)
{
    va_list arguments;

    error->kind = kind;
    (void)snprintf(error->param, sizeof error->param, "%s", param);
    va_start(arguments, format);
    (void)vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    drop_cut_character(error->param);
    drop_cut_character(error->message);
}

static enum api_error_kind kind_of(int code)
{
    switch (code) {
    case E_INVALID:
    case E_CORRUPT:
    case E_UNSUPPORTED:
        return API_BAD_REQUEST;
    case E_CONTEXT:
        return API_CONTEXT_LENGTH;
    case E_NOT_FOUND:
        return API_NOT_FOUND;
    case E_TOO_LARGE:
        return API_TOO_LARGE;
    case E_FULL:
        return API_QUEUE_FULL;
    case E_MEMORY:
    case -ENOMEM:
    case E_CLOSED:
        return API_UNAVAILABLE;
    default:
        return API_INTERNAL;
    }
}

void api_error_from_fault(struct api_error *error, const struct fault *fault)
{
    enum api_error_kind kind = kind_of(fault->code);
    size_t bytes = strlen(fault->message);

    if (fault->code == E_DEVICE && bytes > 0) {
        api_error_set(error, kind, "", "The server failed while it worked on this request: %s.",
                      fault->message);
        return;
    }
    /* What else went wrong inside is for our log: its message may name files or addresses. */
    if (kind == API_INTERNAL)
        api_error_set(error, kind, "", "The server failed while it worked on this request.");
    else if (kind == API_UNAVAILABLE)
        api_error_set(error, kind, "", "%s",
                      fault->code != E_CLOSED ? "The server is out of memory. Try again later."
                                              : "The server is shutting down. Try again.");
    else
        api_error_set(error, kind, fault->field, "%s%s", fault->message,
                      bytes > 0 && strchr(".!?", fault->message[bytes - 1]) ? "" : ".");
}

void api_error_body(const struct api_error *error, struct buf *body)
{
    const struct api_error_row *row = row_of(error->kind);

    buf_text(body, "{\"error\":{\"message\":");
    buf_json_string(body, error->message, strlen(error->message));
    buf_format(body, ",\"type\":\"%s\",\"param\":", row->type);
    if (error->param[0])
        buf_json_string(body, error->param, strlen(error->param));
    else
        buf_text(body, "null");
    if (row->code)
        buf_format(body, ",\"code\":\"%s\"}}", row->code);
    else
        buf_text(body, ",\"code\":null}}");
}
