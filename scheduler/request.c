/* request.c -- a request is freed in one call. */
#include "scheduler/request.h"

#include "engine/text/constraint.h"
#include "scheduler/vectors.h"

void request_free(struct request *request)
{
    if (!request)
        return;
    constraint_close(request->constraint.constraint);
    vectors_close(request->vectors);
    arena_close(request->arena);
}
