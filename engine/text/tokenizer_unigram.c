/* tokenizer_unigram.c -- see tokenizer_unigram.h.
 *
 * The trie's edges are one hash of (node, byte) to node. */
#include "engine/text/tokenizer_unigram.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

#define UNKNOWN_PENALTY 10.0

struct edge {
    uint32_t from; /* node + 1; 0: free */
    uint32_t to;
    uint8_t byte;
};

struct node {
    int32_t id; /* the token that ends here, -1: none */
    bool user_defined;
    double score;
};

struct unigram {
    const struct vocabulary *vocabulary;
    struct unigram_options options;
    struct edge *edges;
    uint32_t edge_mask;
    uint32_t edge_count;
    struct node *nodes; /* [0] is the root */
    uint32_t node_count;
    uint32_t node_room;
    double lowest;
    double highest;
};

int unigram_open(const struct vocabulary *vocabulary, const struct unigram_options *options,
                 struct unigram **ret_unigram, struct fault *fault)
{
    struct unigram *unigram = calloc(1, sizeof *unigram);

    if (unigram) {
        unigram->edge_mask = 1023;
        unigram->edges = calloc((size_t)unigram->edge_mask + 1, sizeof *unigram->edges);
        unigram->node_room = 1024;
        unigram->nodes = calloc(unigram->node_room, sizeof *unigram->nodes);
    }
    if (!unigram || !unigram->edges || !unigram->nodes) {
        unigram_close(unigram);
        return fault_set(fault, E_MEMORY, "out of memory for the tokenizer's scores");
    }
    unigram->nodes[0].id = -1;
    unigram->node_count = 1;
    unigram->vocabulary = vocabulary;
    unigram->options = *options;
    unigram->lowest = HUGE_VAL;
    unigram->highest = (double)FLT_MIN; /* sentencepiece starts there, and so must all */
    *ret_unigram = unigram;
    return 0;
}

void unigram_close(struct unigram *unigram)
{
    if (!unigram)
        return;
    free(unigram->edges);
    free(unigram->nodes);
    free(unigram);
}

/* ---- the trie ---- */

static struct edge *edge_of(const struct unigram *unigram, uint32_t node, uint8_t byte)
{
    uint64_t key = (uint64_t)node << 8 | byte;
    uint32_t slot = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & unigram->edge_mask;

    while (unigram->edges[slot].from != 0 &&
           !(unigram->edges[slot].from == node + 1 && unigram->edges[slot].byte == byte))
        slot = (slot + 1) & unigram->edge_mask;
    return &unigram->edges[slot];
}

static int grow_edges(struct unigram *unigram)
{
    struct edge *old = unigram->edges;
    size_t count = (size_t)unigram->edge_mask + 1;

    if (2 * ((size_t)unigram->edge_count + 1) <= count)
        return 0;
    unigram->edges = calloc(2 * count, sizeof *unigram->edges);
    if (!unigram->edges) {
        unigram->edges = old;
        return E_MEMORY;
    }
    unigram->edge_mask = (uint32_t)(2 * count - 1);
    for (size_t i = 0; i < count; i++)
        if (old[i].from != 0)
            *edge_of(unigram, old[i].from - 1, old[i].byte) = old[i];
    free(old);
    return 0;
}

static int add_node(struct unigram *unigram)
{
    if (unigram->node_count == unigram->node_room) {
        struct node *grown =
            realloc(unigram->nodes, 2 * (size_t)unigram->node_room * sizeof *unigram->nodes);

        if (!grown)
            return E_MEMORY;
        unigram->nodes = grown;
        unigram->node_room *= 2;
    }
    unigram->nodes[unigram->node_count++] = (struct node){.id = -1};
    return 0;
}

void unigram_see_score(struct unigram *unigram, double score)
{
    if (score < unigram->lowest)
        unigram->lowest = score;
    if (score > unigram->highest)
        unigram->highest = score;
}

int unigram_add(struct unigram *unigram, int32_t id, double score, bool user_defined)
{
    uint32_t node = 0;
    size_t bytes;
    const char *key = vocabulary_key(unigram->vocabulary, id, &bytes);

    if (bytes == 0)
        return 0;
    for (size_t i = 0; i < bytes; i++) {
        struct edge *edge = edge_of(unigram, node, (uint8_t)key[i]);

        if (edge->from == 0) {
            int r = grow_edges(unigram);

            if (r == 0)
                r = add_node(unigram);
            if (r < 0)
                return r;
            edge = edge_of(unigram, node, (uint8_t)key[i]);
            *edge = (struct edge){node + 1, unigram->node_count - 1, (uint8_t)key[i]};
            unigram->edge_count++;
        }
        node = edge->to;
    }
    if (unigram->nodes[node].id < 0)
        unigram->nodes[node] = (struct node){id, user_defined, score};
    return 0;
}

/* ---- encoding ---- */

struct best {
    double sum;
    uint32_t start; /* of the last token; UINT32_MAX: nothing leads here */
    int32_t id;     /* -1: unknown */
};

static double sum_of(const struct unigram *unigram, double sum, double score)
{
    return unigram->options.single_precision ? (double)(float)(sum + score) : sum + score;
}

static void offer(struct best *best, double sum, uint32_t start, int32_t id)
{
    if (best->start == UINT32_MAX || sum > best->sum)
        *best = (struct best){sum, start, id};
}

/* Offers every token that starts at `at`. */
static void walk(const struct unigram *unigram, const char *text, size_t bytes, size_t at,
                 size_t character_bytes, struct best *best)
{
    double sum = best[at].sum;
    bool has_character = false;
    uint32_t node = 0;

    for (size_t end = at; end < bytes;) {
        const struct edge *edge = edge_of(unigram, node, (uint8_t)text[end]);
        const struct node *reached;
        double score;

        if (edge->from == 0)
            break;
        node = edge->to;
        end++;
        reached = &unigram->nodes[node];
        if (reached->id < 0)
            continue;
        score =
            reached->user_defined ? (double)(end - at) * unigram->highest - 0.1 : reached->score;
        offer(&best[end], sum_of(unigram, sum, score), (uint32_t)at, reached->id);
        has_character = has_character || end - at == character_bytes;
    }
    if (!has_character)
        offer(&best[at + character_bytes], sum_of(unigram, sum, unigram->lowest - UNKNOWN_PENALTY),
              (uint32_t)at, -1);
}

/* Turns the way back into a way forth: best[start].id becomes the token that starts there, and
 * best[start].start where it ends. */
static void turn_round(struct best *best, size_t bytes)
{
    size_t at = bytes;
    uint32_t end = (uint32_t)bytes;
    int32_t id = best[at].id;
    uint32_t start = best[at].start;

    while (at > 0) {
        int32_t before_id = best[start].id;
        uint32_t before_start = best[start].start;

        best[start].id = id;
        best[start].start = end;
        at = start;
        end = start;
        id = before_id;
        start = before_start;
    }
}

static int put_bytes(const struct unigram *unigram, const char *text, size_t bytes,
                     struct tokens *tokens)
{
    int r = 0;

    for (size_t i = 0; i < bytes && r == 0; i++)
        r = tokens_put(tokens, unigram->vocabulary->byte_tokens[(uint8_t)text[i]]);
    return r;
}

static bool is_spelled(const struct unigram *unigram, const char *text, size_t bytes)
{
    bool spelled = unigram->options.byte_fallback;

    for (size_t i = 0; i < bytes && spelled; i++)
        spelled = unigram->vocabulary->byte_tokens[(uint8_t)text[i]] >= 0;
    return spelled;
}

static int put_way(const struct unigram *unigram, const char *text, size_t bytes,
                   const struct best *best, struct tokens *tokens)
{
    int r = 0;

    for (size_t at = 0; at < bytes && r == 0;) {
        size_t end = best[at].start;
        int32_t id = best[at].id;

        if (id >= 0 && id != unigram->options.unknown) {
            r = tokens_put(tokens, id);
            at = end;
            continue;
        }
        /* Neighbours that are unknown are one. */
        while (end < bytes && (best[end].id < 0 || best[end].id == unigram->options.unknown))
            end = best[end].start;
        if (is_spelled(unigram, text + at, end - at))
            r = put_bytes(unigram, text + at, end - at, tokens);
        else if (unigram->options.unknown >= 0)
            r = tokens_put(tokens, unigram->options.unknown);
        at = end;
    }
    return r;
}

int unigram_encode(const struct unigram *unigram, const char *text, size_t bytes, struct buf *work,
                   struct tokens *tokens)
{
    struct best *best;

    if (bytes == 0)
        return 0;
    buf_reset(work);
    for (size_t i = 0; i <= bytes; i++)
        buf_put(work, &(struct best){.start = UINT32_MAX, .id = -1}, sizeof *best);
    if (buf_failed(work))
        return -ENOMEM;
    best = (struct best *)(void *)work->data;
    best[0].start = 0;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        utf8_next(text + at, bytes - at, &taken, NULL);
        walk(unigram, text, bytes, at, taken, best);
    }
    turn_round(best, bytes);
    return put_way(unigram, text, bytes, best, tokens);
}
