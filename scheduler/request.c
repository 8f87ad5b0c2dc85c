/* request.c -- a request is freed in one call. */
#include "scheduler/request.h"

#include "engine/text/constraint.h"

void request_free(struct request *request)
{
    if (!request)
        return;
    constraint_close(request->constraint.constraint);
    arena_close(request->arena);
}
