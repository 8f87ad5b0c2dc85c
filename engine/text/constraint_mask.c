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

struct cover {
    const struct trie_slice *slice; /* NULL: none */
    uint32_t index;                 /* of its lengths */
};

/* How many characters of a slice may follow a place. */
static uint32_t run_length(const struct constraint *constraint, const struct place *place)
{
    const struct automaton *automaton = constraint->automaton;
    const struct automaton_instruction *at = &automaton->code[place->at];
    uint32_t high;

    if (place->machine != at->to || at->loop == LOOP_NONE)
        return 0;
    if (at->loop == LOOP_FREE)
        return UINT32_MAX;
    high = automaton->repeats[at->count].high;
    return high == UINT32_MAX ? high : high - memo_frame_count(&constraint->memo, place->frame);
}

/* The slice that covers most tokens of all that may follow some place of the state. */
static struct cover cover_find(const struct constraint *constraint, uint32_t number)
{
    struct cover best = {0};
    uint32_t count, best_count = 0;
    const struct place *places = memo_places(&constraint->memo, number, &count);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t run = run_length(constraint, &places[i]), index = SLICE_LENGTH_COUNT;
        uint8_t slices = constraint->automaton->code[places[i].at].slices;

        while (index > 0 && slice_lengths[index - 1] > run)
            index--;
        for (unsigned s = 0; index > 0 && s < VOCABULARY_SLICE_COUNT; s++) {
            const struct trie_slice *slice = &constraint->vocabulary->slices[s];

            if ((slices >> s & 1) && slice->counts[index - 1] > best_count) {
                best = (struct cover){slice, index - 1};
                best_count = slice->counts[index - 1];
            }
        }
    }
    return best;
}

/* Collects the tokens that may follow path[0] and are not covered. */
static int walk(struct constraint *constraint, struct cover cover, uint32_t *ret_count)
{
    const struct vocabulary_trie *trie = constraint->vocabulary;
    const struct automaton *automaton = constraint->automaton;
    uint8_t length = cover.slice ? slice_lengths[cover.index] : 0;
    const uint8_t *covers = cover.slice ? cover.slice->cover : NULL;
    uint32_t n = 0, found = 0, class_count = automaton->class_count;
    struct memo *memo = &constraint->memo;

    while (n < trie->node_count) {
        const struct trie_node *node = &trie->nodes[n];
        uint32_t from = constraint->path[node->depth - 1];
        uint32_t byte_class = automaton->byte_class[node->byte], next;

        if (covers && covers[n] <= length) {
            n = node->skip;
            continue;
        }
        next = memo->rows[(size_t)from * class_count + byte_class];
        if (next == STATE_UNKNOWN) {
            int r;

            constraint->path_count = node->depth;
            r = constraint_make_room(constraint);
            if (r == 0)
                r = memo_step(memo, constraint->path[node->depth - 1], byte_class, &next);
            if (r < 0)
                return r;
        }
        if (next == STATE_DEAD) {
            n = node->skip;
            continue;
        }
        constraint->path[node->depth] = next;
        for (uint32_t i = node->token_first; i < node[1].token_first; i++)
            constraint->allowed[found++] = trie->ids[i];
        n++;
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
    if (!whole) {
        memcpy(mask->data, constraint->allowed, found * sizeof *mask->data);
    } else {
        memset(mask->data, 0, count * sizeof *mask->data);
        for (uint32_t i = 0; i < found; i++)
            mask->data[constraint->allowed[i] / 32] |= 1u << constraint->allowed[i] % 32;
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
        struct cover cover = cover_find(constraint, number);
        uint32_t found = 0;

        constraint->path[0] = number;
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
