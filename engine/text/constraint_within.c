/* constraint_within.c -- which tokens leave a text the time to come to its end.
 *
 * With many tokens left all that the grammar allows do. Nearer to the last one the vocabulary's
 * tree is walked as for a mask, and of the tokens that may follow those go behind which the end is
 * too far. How far the nearest and the farthest of them lead is kept with the state: within free
 * text no token leads far, and its masks stay as they are but for the last few.
 *
 * So far a byte counts as a token: that holds whatever the model draws. Where it leaves no room,
 * the shortest way may still fit in tokens. It is cut into the longest ones, and once these are as
 * many as may come, only they may. */
#include <string.h>

#include "engine/text/constraint_internal.h"

enum {
    WAY_BYTES_MAX = 1024, /* longer ways are not cut into tokens */
    SPARE_TOKENS = 8,     /* with fewer to spare, only the way is left */
};

static void leave_out_node(const struct trie_nodes *tree, uint32_t node, uint32_t *words,
                           size_t word_count)
{
    for (uint32_t t = tree->nodes[node].token_first; t < tree->nodes[node + 1].token_first; t++)
        if ((uint32_t)tree->ids[t] / 32 < word_count)
            words[tree->ids[t] / 32] &= ~(1u << tree->ids[t] % 32);
}

/* Leaves out the tokens behind path[0] that lead to more than `most` bytes from the end. */
static int walk(struct constraint *constraint, uint32_t most, uint32_t *words, size_t word_count,
                struct state_finish *ret_finish)
{
    const struct trie_nodes *tree = &constraint->vocabulary->all;
    const struct automaton *automaton = constraint->automaton;

    ret_finish->nearest = DISTANCE_MAX;
    ret_finish->farthest = 0;
    for (uint32_t n = 0; n < tree->node_count;) {
        const struct trie_node *node = &tree->nodes[n];
        size_t from = constraint->path[node->depth - 1];
        uint32_t byte_class = automaton->byte_class[node->byte], distance;
        uint32_t next = constraint->memo.rows[from * automaton->class_count + byte_class];
        int r = 0;

        if (next == STATE_UNKNOWN)
            r = constraint_walk_step(constraint, node->depth, byte_class, &next);
        if (r < 0)
            return r;
        if (next == STATE_DEAD) {
            n = node->skip;
            continue;
        }
        constraint->path[node->depth] = next;
        if (tree->nodes[n + 1].token_first > node->token_first) {
            r = constraint_finish_distance(constraint, next, &distance);
            if (r < 0)
                return r;
            if (distance < ret_finish->nearest)
                ret_finish->nearest = distance;
            if (distance > ret_finish->farthest)
                ret_finish->farthest = distance;
            if (distance > most)
                leave_out_node(tree, n, words, word_count);
        }
        n++;
    }
    return 0;
}

/* With the lock held. Where the text cannot end and every token leads too far, *ret_none: that need
 * not be walked again, and what is left of `words` means nothing. */
static int leave_out_far(struct constraint *constraint, uint32_t number, uint32_t most,
                         uint32_t *words, size_t word_count, bool *ret_none)
{
    struct state_finish *known;
    struct state_finish found;
    uint32_t distance;
    int r = constraint_finish_distance(constraint, number, &distance);

    if (r < 0)
        return r;
    known = &constraint->finish.states[number];
    *ret_none = known->farthest != DISTANCE_UNKNOWN && known->nearest > most && distance > 0;
    if (known->farthest != DISTANCE_UNKNOWN && (known->farthest <= most || *ret_none))
        return 0;
    constraint->path[0] = number;
    r = walk(constraint, most, words, word_count, &found);
    constraint->path_count = 0;
    if (r == 0) /* the number may be another one by now */
        r = constraint_finish_distance(constraint, constraint->path[0], &distance);
    if (r < 0)
        return r;
    known = &constraint->finish.states[constraint->path[0]];
    known->nearest = found.nearest;
    known->farthest = found.farthest;
    *ret_none = found.nearest > most && distance > 0;
    return 0;
}

static int leave_out(struct constraint_state *state, uint32_t most, uint32_t *words,
                     size_t word_count, bool *ret_none)
{
    struct constraint *constraint = state->constraint;
    int r;

    pthread_mutex_lock(&constraint->lock);
    constraint->memo.work = 0;
    constraint->here = STATE_DEAD;
    r = leave_out_far(constraint, state->number, most, words, word_count, ret_none);
    pthread_mutex_unlock(&constraint->lock);
    return r;
}

/* The node of the longest token that `bytes` begin with, and its length; or 0. */
static size_t longest(const struct trie_nodes *tree, const char *bytes, size_t count,
                      uint32_t *ret_node)
{
    uint32_t n = 0, end = tree->node_count;
    size_t length = 0;

    for (size_t i = 0; i < count; i++) {
        while (n < end && tree->nodes[n].byte != (uint8_t)bytes[i])
            n = tree->nodes[n].skip;
        if (n >= end)
            break;
        if (tree->nodes[n + 1].token_first > tree->nodes[n].token_first) {
            length = i + 1;
            *ret_node = n;
        }
        end = tree->nodes[n].skip;
        n++;
    }
    return length;
}

/* How many of the longest tokens write it, and the node of the first; or 0. */
static uint32_t cut(const struct trie_nodes *tree, const char *bytes, size_t count,
                    uint32_t *ret_first)
{
    uint32_t tokens = 0, node = 0;
    size_t length;

    for (size_t at = 0; at < count; at += length) {
        length = longest(tree, bytes + at, count - at, &node);
        if (length == 0)
            return 0;
        if (tokens++ == 0)
            *ret_first = node;
    }
    return tokens;
}

/* `words` is the mask. Where the way does not fit in its longest tokens either, nothing helps. */
static int leave_out_slow(struct constraint_state *state, uint32_t distance, uint32_t tokens_left,
                          uint32_t *words, size_t word_count, struct fault *fault)
{
    const struct trie_nodes *tree = &state->constraint->vocabulary->all;
    char way[WAY_BYTES_MAX];
    uint32_t tokens, spare, first = 0;
    bool none;
    int count = distance > sizeof way ? 0 : constraint_state_finish(state, way, sizeof way, fault);

    if (count < 0)
        return count;
    tokens = cut(tree, way, (size_t)count, &first);
    if (tokens == 0 || tokens + 1 > tokens_left)
        return 0;
    spare = tokens_left - 1 - tokens;
    if (spare >= SPARE_TOKENS)
        return leave_out(state, distance + spare - SPARE_TOKENS, words, word_count, &none);
    memset(words, 0, word_count * sizeof *words);
    for (uint32_t t = tree->nodes[first].token_first; t < tree->nodes[first + 1].token_first; t++)
        if ((uint32_t)tree->ids[t] / 32 < word_count)
            words[tree->ids[t] / 32] |= 1u << tree->ids[t] % 32;
    return 0;
}

static void only_ends(const struct vocabulary_trie *trie, uint32_t *words, size_t word_count)
{
    memset(words, 0, word_count * sizeof *words);
    for (uint32_t i = 0; i < trie->end_count; i++)
        if ((uint32_t)trie->ends[i] / 32 < word_count)
            words[trie->ends[i] / 32] |= 1u << trie->ends[i] % 32;
}

int constraint_state_mask_within(struct constraint_state *state, uint32_t tokens_left,
                                 uint32_t *words, size_t word_count, struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    int64_t distance;
    bool none = false;
    uint32_t any = 0;
    int r = constraint_state_mask(state, words, word_count, fault);

    if (r <= 0 || state->ended || tokens_left > INT32_MAX)
        return r;
    distance = constraint_state_distance(state, fault);
    if (distance < 0)
        return (int)distance;
    if (distance + 1 + CONSTRAINT_FINISH_MARGIN < tokens_left)
        return r;
    /* One token goes now, and the end takes one too. */
    if (tokens_left == 1 && distance == 0)
        only_ends(constraint->vocabulary, words, word_count);
    else
        r = leave_out(state, tokens_left > 2 ? tokens_left - 2 : 0, words, word_count, &none);
    if (r >= 0 && none) {
        r = constraint_state_mask(state, words, word_count, fault);
        if (r >= 0)
            r = leave_out_slow(state, (uint32_t)distance, tokens_left, words, word_count, fault);
    }
    if (r < 0)
        return constraint_fault(r, fault);
    for (size_t i = 0; i < word_count; i++)
        any |= words[i];
    return any ? 1 : constraint_state_mask(state, words, word_count, fault);
}
