/* sse.c -- see sse.h (format: WHATWG HTML, section "Server-sent events"). */
#include "server/sse.h"

void sse_headers(const char *request_id, struct http_header ret_headers[SSE_HEADERS_MAX])
{
    ret_headers[0] = (struct http_header){"Content-Type", "text/event-stream; charset=utf-8"};
    ret_headers[1] = (struct http_header){"Cache-Control", "no-cache"};
    ret_headers[2] = (struct http_header){"X-Accel-Buffering", "no"};
    ret_headers[3] = (struct http_header){"x-request-id", request_id};
    ret_headers[4] = (struct http_header){NULL, NULL};
}

void sse_comment(struct buf *out)
{
    buf_text(out, ": keep-alive\n\n");
}
