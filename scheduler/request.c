/* request.c -- a request is freed in one call. */
#include "scheduler/request.h"

void request_free(struct request *request)
{
    if (request)
        arena_close(request->arena);
}
