/* request.h -- what comes in: one client's wish, ready to run.
 *
 * Made by a prepare thread, moved worker -> loop -> scheduler thread; the giver forgets it.
 * Everything in it lies in its own arena and is freed with it (request_free), after the last
 * sequence's final event.
 *
 * One request is prompt_count x choices sequences. A choice's number is prompt x choices + k. */
#ifndef WEFT_REQUEST_H
#define WEFT_REQUEST_H

#include <stdint.h>

#include "config/base/arena.h"
#include "engine/batch.h"

struct request_prompt {
    const int32_t *tokens;
    uint32_t count; /* >= 1, and fits the context */
};

struct request {
    struct arena *arena; /* owns this struct too; has room for each sequence's state and tokens */
    uint64_t exchange_id;
    uint32_t prompt_count;
    struct request_prompt *prompts;
    uint32_t choices; /* per prompt */
    /* Per choice, clamped to the room that the shortest prompt leaves (the scheduler lowers it to
     * the room that each choice's own prompt leaves); 0: score the prompt only. */
    uint32_t max_tokens;
    struct sampling sampling; /* `stream` is set per choice by the scheduler */
    uint64_t arrived_ns;      /* clock_now() at the first header */
};

void request_free(struct request *request); /* NULL is fine */

#endif
