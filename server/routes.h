/* routes.h -- the table of what this server answers. Loop thread. */
#ifndef WEFT_ROUTES_H
#define WEFT_ROUTES_H

#include <stdbool.h>

#include "config/base/buf.h"
#include "server/api_error.h"
#include "server/openai.h"
#include "server/server.h"

/* What a GET gives: 200 with a body in `body`, or an error. */
struct page {
    const char *content_type;
    struct buf *body;
    struct api_error error; /* API_OK unless the page is an error */
};

struct route {
    const char *path;  /* exact; one that ends in '/' takes any non-empty rest */
    const char *label; /* as the metrics show it */
    const char *allow; /* the Allow header */
    void (*get)(struct server *server, const char *rest, struct page *page); /* NULL: POST only */
    enum openai_endpoint endpoint;                                           /* of a POST */
    bool quiet; /* probes: logged at debug level only */
};

/* NULL: there is nothing at this path. `ret_rest` is what follows a path that ends in '/', else "".
 */
const struct route *route_find(const char *path, const char **ret_rest);

#endif
