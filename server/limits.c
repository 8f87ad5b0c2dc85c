/* limits.c -- see limits.h. */
#include "server/limits.h"

#include <string.h>
#include <strings.h>

enum { RETRY_MS_MIN = 1000, RETRY_MS_MAX = 60000 };

bool request_id_valid(const char *text)
{
    size_t n = 0;

    for (; text[n]; n++) {
        bool letter_or_digit = (text[n] >= 'a' && text[n] <= 'z') ||
                               (text[n] >= 'A' && text[n] <= 'Z') ||
                               (text[n] >= '0' && text[n] <= '9');

        if (n == REQUEST_ID_BYTES_MAX || (!letter_or_digit && !strchr("-_.:/+=@~", text[n])))
            return false;
    }
    return n > 0;
}

/* Compares a media type up to its parameters. */
static bool media_type_is(const char *header, const char *type)
{
    size_t n = strlen(type);

    if (strncasecmp(header, type, n) != 0)
        return false;
    header += n;
    header += strspn(header, " \t");
    return *header == '\0' || *header == ';';
}

enum content_type content_type_read(const char *header)
{
    if (!header || !*header)
        return CONTENT_TYPE_JSON;
    header += strspn(header, " \t");
    if (media_type_is(header, "application/json"))
        return CONTENT_TYPE_JSON;
    if (media_type_is(header, "application/x-www-form-urlencoded"))
        return CONTENT_TYPE_FORM;
    return CONTENT_TYPE_OTHER;
}

bool body_looks_like_json(const char *body, size_t bytes)
{
    size_t i = 0;

    while (i < bytes && (body[i] == ' ' || body[i] == '\t' || body[i] == '\r' || body[i] == '\n'))
        i++;
    return i < bytes && body[i] == '{';
}

bool content_encoding_plain(const char *header)
{
    return !header || !*header || !strcasecmp(header, "identity");
}

uint32_t retry_after_ms(uint64_t waiting, double sequences_per_second)
{
    double ms;

    if (!(sequences_per_second > 0))
        return RETRY_MS_MIN;
    /* Half of the queue is gone by then, so that those who come back find room and not each other.
     */
    ms = (double)waiting / 2 / sequences_per_second * 1000;
    if (ms < RETRY_MS_MIN)
        return RETRY_MS_MIN;
    return ms > RETRY_MS_MAX ? RETRY_MS_MAX : (uint32_t)ms;
}
