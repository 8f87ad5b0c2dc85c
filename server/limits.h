/* limits.h -- the small rules about headers and waiting that every request meets. Pure functions.
 */
#ifndef WEFT_LIMITS_H
#define WEFT_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_ID_BYTES_MAX = 128 };

/* A client's own x-request-id: 1 to REQUEST_ID_BYTES_MAX of letters, digits and "-_.:/+=@~".
 * Anything else is not taken over, so that what we echo and log is harmless. */
bool request_id_valid(const char *text);

enum content_type {
    CONTENT_TYPE_JSON, /* application/json with any parameters, or none given */
    CONTENT_TYPE_FORM, /* what curl -d says when not told otherwise: fine when the body looks like
                          JSON */
    CONTENT_TYPE_OTHER,
};
enum content_type content_type_read(const char *header); /* NULL: absent */

/* Whether the first byte that is not white space is `{`. */
bool body_looks_like_json(const char *body, size_t bytes);

/* Whether a Content-Encoding means that the body is as it is. */
bool content_encoding_plain(const char *header); /* NULL: absent */

/* How long a refused client should wait, in milliseconds: until the waiting work, at the rate of
 * late, would have made some room. Between 1 and 60 seconds; 1 while the rate is not known. */
uint32_t retry_after_ms(uint64_t waiting, double sequences_per_second);

#endif
