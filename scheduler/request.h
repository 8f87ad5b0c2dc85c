/* request.h -- what comes in: one client's wish, ready to run.
 *
 * Made by a prepare thread, moved worker -> loop -> scheduler thread; the giver forgets it.
 * Everything in it lies in its own arena and is freed with it (request_free), after the last
 * sequence's final event.
 *
 * One request is prompt_count x choices sequences. A choice's number is prompt x choices + k.
 *
 * Where it has a constraint, every choice's answer is held to it: no token is drawn that cannot
 * follow, and the answer finishes (FINISH_STOP) as soon as nothing but its end can. That may be
 * without an end token; the last event's token is then part of the text. `min_tokens` and
 * `ignore_eos` only decide where the answer may end and may go on. */
#ifndef WEFT_REQUEST_H
#define WEFT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "engine/batch.h"

struct constraint; /* engine/text/constraint.h */
struct vectors;    /* vectors.h */

struct request_prompt {
    const int32_t *tokens;
    uint32_t count; /* >= 1, and fits the context */
};

/* What an answer is held to, and from where on. The answer before it is free (a model's reasoning,
 * the text before a tool call); one that never comes there stays free. */
struct request_constraint {
    struct constraint *constraint; /* one owner of it is the request; NULL: the answer is free */
    /* It begins behind the first place in the answer where this run of tokens was generated, or
     * else where this text was (tokens that are no text, control tokens, are none of it). A token
     * that goes on behind the text begins what is constrained; where that cannot be, the answer
     * fails. Both empty: at the answer's beginning. In the arena. */
    const int32_t *after_tokens;
    uint32_t after_token_count;
    const char *after_text;
    uint32_t after_text_bytes;
    /* The limit of tokens cuts the answer wherever it is, as it does a free one; else the answer is
     * brought to its end before. */
    bool may_be_cut;
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
    struct request_constraint constraint;
    /* One for each choice, whose sequence only computes its prompt (max_tokens 0); one owner of
     * them is the request. NULL: none is wanted. */
    struct vectors *vectors;
    enum pooling pooling;
    uint64_t arrived_ns; /* clock_now() at the first header */
};

/* Closes its constraint and gives up its vectors too. NULL is fine. */
void request_free(struct request *request);

#endif
