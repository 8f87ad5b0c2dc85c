/* tokens.c -- see tokens.h. */
#include "engine/text/tokens.h"

#include <errno.h>
#include <stdlib.h>

#include "config/base/fault.h"

void tokens_init(struct tokens *tokens, size_t ceiling)
{
    *tokens = (struct tokens){.ceiling = ceiling};
}

void tokens_fini(struct tokens *tokens)
{
    free(tokens->ids);
    tokens_init(tokens, tokens->ceiling);
}

int tokens_put(struct tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->ceiling)
        return E_TOO_LARGE;
    if (tokens->count == tokens->room) {
        size_t room = tokens->room > 0 ? tokens->room * 2 : 64;
        int32_t *ids;

        if (room > tokens->ceiling)
            room = tokens->ceiling;
        ids = realloc(tokens->ids, room * sizeof *ids);
        if (!ids)
            return -ENOMEM;
        tokens->ids = ids;
        tokens->room = room;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}
