/* constraint_jump.c -- text that must follow, as tokens that nobody has to draw.
 *
 *     forced text       "name": "          the longest tokens first:  ["name] [":] [ "]
 *     appended          ["name] [":]       the last one is left to be drawn, since a model may like
 *                                          one that is longer:        [ "]  [ "J]  [ "Jo] ...
 *
 * So the text is what it would have been, and nothing that the model may choose is chosen for it
 * but where its tokens end within text that it has no say in. */
#include <string.h>

#include "engine/text/constraint_internal.h"

enum { FORCED_BYTES = 512 };

/* The longest token that begins the text; -1: none does. */
static int32_t longest_token(const struct trie_nodes *trie, const char *bytes, size_t count,
                             size_t *ret_bytes)
{
    uint32_t n = 0, end = trie->node_count;
    int32_t longest = -1;

    for (size_t i = 0; i < count; i++) {
        while (n < end && trie->nodes[n].byte != (uint8_t)bytes[i])
            n = trie->nodes[n].skip;
        if (n >= end)
            break;
        if (trie->nodes[n].token_first < trie->nodes[n + 1].token_first) {
            longest = trie->ids[trie->nodes[n].token_first];
            *ret_bytes = i + 1;
        }
        end = trie->nodes[n].skip;
        n++;
    }
    return longest;
}

int constraint_state_jump(struct constraint_state *state, uint32_t least, int32_t *tokens,
                          uint32_t room, struct fault *fault)
{
    const struct vocabulary_trie *vocabulary = state->constraint->vocabulary;
    char text[FORCED_BYTES];
    int bytes = constraint_state_forced(state, text, sizeof text, fault);
    size_t at = 0, last_bytes = 0;
    uint32_t count = 0;

    must(vocabulary);
    if (bytes <= 0)
        return bytes;
    while (count < room) {
        int32_t token = longest_token(&vocabulary->all, text + at, (size_t)bytes - at, &last_bytes);

        if (token < 0 || at + last_bytes >= (size_t)bytes)
            break;
        tokens[count++] = token;
        at += last_bytes;
    }
    if (count == 0 || count < least)
        return 0;
    bytes = constraint_state_bytes(state, text, at, &last_bytes, fault);
    if (bytes < 0)
        return bytes;
    must(bytes == 1); /* it was said to follow */
    return (int)count;
}

const char *constraint_token_text(const struct constraint *constraint, int32_t id,
                                  size_t *ret_bytes)
{
    return vocabulary_trie_text(constraint->vocabulary, id, ret_bytes);
}
