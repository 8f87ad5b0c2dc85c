/* constraint_mask.c -- which tokens may follow: a walk over the vocabulary's tree, remembered for
 * each state of the memo.
 *
 * Where the grammar wants something definite, nearly every branch of the tree ends at its first
 * byte. Where it takes any text, a slice (vocabulary_slices.h) has the answer for nearly all
 * tokens, and the walk leaves out what the slice covers. The answer is kept as the slice and the
 * token ids besides, or as a whole mask when these would be more. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/constraint_internal.h"

struct mask {
    struct memo_note note;
    const uint32_t *base; /* a slice's mask, or NULL */
    uint32_t count;       /* ids, or words of a whole mask */
    bool whole;
    uint32_t data[];
};

int constraint_walk_step(struct constraint *constraint, uint32_t depth, uint32_t byte_class,
                         uint32_t *ret_next)
{
    int r;

    constraint->path_count = depth;
    r = constraint_make_room(constraint);
    if (r < 0)
        return r;
    return memo_step(&constraint->memo, constraint->path[depth - 1], byte_class, ret_next);
}

/* Appends tokens to the `found` ones. */
static int allow(struct constraint *constraint, const int32_t *ids, uint32_t count, uint32_t found)
{
    if (count > constraint->allowed_room - found) {
        uint32_t room = constraint->allowed_room ? constraint->allowed_room : 4096;
        int32_t *grown;

        while (count > room - found)
            room *= 2;
        grown = realloc(constraint->allowed, room * sizeof *grown);
        if (!grown)
            return E_MEMORY;
        constraint->allowed = grown;
        constraint->allowed_room = room;
    }
    if (count > 0)
        memcpy(constraint->allowed + found, ids, count * sizeof *ids);
    return 0;
}

/* Collects the tokens that may follow path[0], but for those that `base` covers. */
static int walk(struct constraint *constraint, struct cover base, uint32_t *ret_count)
{
    const struct vocabulary_trie *trie = constraint->vocabulary;
    const struct trie_nodes *tree = base.exact ? &base.slice->rest : &trie->all;
    const struct automaton *automaton = constraint->automaton;
    bool all = tree == &trie->all;
    uint32_t n = 0, found = 0, class_count = automaton->class_count;
    struct memo *memo = &constraint->memo;

    while (n < tree->node_count) {
        const struct trie_node *node = &tree->nodes[n];
        uint32_t byte_class = automaton->byte_class[node->byte], next;
        uint32_t end = n + 1, count;

        if (all && cover_has(base, n)) {
            n = node->skip;
            continue;
        }
        next = memo->rows[(size_t)constraint->path[node->depth - 1] * class_count + byte_class];
        if (next == STATE_UNKNOWN) {
            int r = constraint_walk_step(constraint, node->depth, byte_class, &next);

            if (r < 0)
                return r;
        }
        if (next == STATE_DEAD) {
            n = node->skip;
            continue;
        }
        /* Text may go on freely from here: all that is plain text behind this node is allowed. */
        if (all && node->skip > end && cover_has(cover_find(constraint, next), n))
            end = node->skip;
        constraint->path[node->depth] = next;
        count = tree->nodes[end].token_first - node->token_first;
        if (count > 0 && allow(constraint, tree->ids + node->token_first, count, found) < 0)
            return E_MEMORY;
        found += count;
        n = end;
    }
    *ret_count = found;
    return 0;
}

/* Keeps the walk's answer with the state path[0]; NULL: no memory. */
static struct mask *mask_keep(struct constraint *constraint, struct cover cover, uint32_t found)
{
    const struct vocabulary_trie *trie = constraint->vocabulary;
    bool whole = found > trie->word_count;
    uint32_t count = whole ? trie->word_count : found;
    size_t bytes = sizeof(struct mask) + count * sizeof(uint32_t);
    struct mask *mask = malloc(bytes);

    if (!mask)
        return NULL;
    mask->note.bytes = bytes;
    mask->base = cover.slice ? cover.slice->masks + (size_t)cover.index * trie->word_count : NULL;
    mask->count = count;
    mask->whole = whole;
    if (whole)
        memset(mask->data, 0, count * sizeof *mask->data);
    for (uint32_t i = 0; i < found; i++) {
        uint32_t id = (uint32_t)constraint->allowed[i];

        if (whole)
            mask->data[id / 32] |= 1u << id % 32;
        else
            mask->data[i] = id;
    }
    memo_note_put(&constraint->memo, constraint->path[0], &mask->note);
    return mask;
}

static void mask_copy(const struct mask *mask, uint32_t words_own, uint32_t *words,
                      size_t word_count)
{
    size_t shared = word_count < words_own ? word_count : words_own;

    if (mask->base)
        memcpy(words, mask->base, shared * sizeof *words);
    else
        memset(words, 0, shared * sizeof *words);
    memset(words + shared, 0, (word_count - shared) * sizeof *words);
    for (uint32_t i = 0; i < mask->count; i++) {
        if (mask->whole && i < shared)
            words[i] |= mask->data[i];
        else if (!mask->whole && mask->data[i] / 32 < word_count)
            words[mask->data[i] / 32] |= 1u << mask->data[i] % 32;
    }
}

int constraint_mask_write(struct constraint *constraint, uint32_t number, uint32_t *words,
                          size_t word_count)
{
    const struct mask *mask = (const struct mask *)constraint->memo.notes[number];
    int r = 0;

    if (!mask) {
        struct cover cover;
        uint32_t found = 0;

        r = cover_find_best(constraint, number, &cover);
        constraint->path[0] = number;
        if (r == 0)
            r = walk(constraint, cover, &found);
        constraint->path_count = 0;
        if (r < 0)
            return r;
        mask = mask_keep(constraint, cover, found);
        if (!mask)
            return E_MEMORY;
    }
    mask_copy(mask, constraint->vocabulary->word_count, words, word_count);
    return 0;
}
