/* vocabulary_trie.h -- a vocabulary as a tree of bytes, in the order in which a walk visits it.
 *
 *     node   0  1  2  3          The nodes of "a" "ab" "abc" "b": a walk goes on with the next one,
 *     byte   a  b  c  b          or, when nothing behind a node can be allowed, with node `skip`.
 *     depth  1  2  3  1          The root is not written. Tokens of one text share a node.
 *     skip   3  3  3  4
 *
 * Made once for a tokenizer; immutable, any thread may read. */
#ifndef WEFT_VOCABULARY_TRIE_H
#define WEFT_VOCABULARY_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary_slices.h"

/* Lent while opening. `bytes` NULL or `count` 0: never part of a text (a control token). */
struct vocabulary_token {
    const char *bytes;
    size_t count;
};

struct trie_node {
    uint32_t skip;
    uint32_t token_first; /* in ids; the node's tokens end where the next node's begin */
    uint16_t depth;
    uint8_t byte;
};

struct trie_nodes {
    struct trie_node *nodes; /* node_count, and one more whose token_first ends the list */
    int32_t *ids;            /* tokens in the order of the nodes */
    uint32_t node_count;
    uint32_t id_count;
};

/* A slice's tokens: mask i has those of at most slice_lengths[i] characters. */
enum { SLICE_LENGTH_COUNT = 22, SLICE_LENGTH_MAX = 253, COVER_NEVER = 255 };
extern const uint8_t slice_lengths[SLICE_LENGTH_COUNT];
struct trie_slice {
    /* A node: most characters of a token there or behind; COVER_NEVER: not all are of the slice. */
    uint8_t *cover;
    uint32_t *masks;                     /* SLICE_LENGTH_COUNT masks */
    uint32_t counts[SLICE_LENGTH_COUNT]; /* tokens in each */
    struct trie_nodes rest;              /* a tree of the tokens that are in none */
};

struct vocabulary_trie {
    struct trie_nodes all;
    int32_t *ends;
    char *text; /* of all tokens, one behind the other */
    uint32_t *text_starts;
    uint32_t end_count;
    uint32_t token_count;
    uint32_t word_count; /* of a mask */
    uint32_t depth_max;
    struct trie_slice slices[VOCABULARY_SLICE_COUNT];
};

/* Tokens longer than 65,535 bytes are left out. `ends` are allowed where a text is complete. */
int vocabulary_trie_open(const struct vocabulary_token *tokens, uint32_t count, const int32_t *ends,
                         uint32_t end_count, struct vocabulary_trie **ret_trie,
                         struct fault *fault);
/* The tokenizer's pieces; control tokens are never text. */
int vocabulary_trie_open_tokenizer(const struct tokenizer *tokenizer,
                                   struct vocabulary_trie **ret_trie, struct fault *fault);
void vocabulary_trie_close(struct vocabulary_trie *trie); /* NULL is fine */

/* The bytes of a text token; 0 bytes for every other. */
const char *vocabulary_trie_text(const struct vocabulary_trie *trie, int32_t id, size_t *ret_bytes);
bool vocabulary_trie_is_end(const struct vocabulary_trie *trie, int32_t id);

#endif
