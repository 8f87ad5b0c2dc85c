/* sse.h -- server-sent events on the wire: what a stream's head and its heartbeat look like.
 *
 * Events themselves are written by the reply (openai.h). Loop thread. */
#ifndef WEFT_SSE_H
#define WEFT_SSE_H

#include "config/base/buf.h"
#include "server/http.h"

enum { SSE_HEADERS_MAX = 5 };

/* The headers of a stream, ended by a NULL name. Nothing between us and the client may keep events
 * back: no cache, and no buffering in nginx. `request_id` is lent. */
void sse_headers(const char *request_id, struct http_header ret_headers[SSE_HEADERS_MAX]);

/* A comment, which clients skip: it keeps proxies awake while a request waits, and writing it finds
 * dead peers. */
void sse_comment(struct buf *out);

#endif
