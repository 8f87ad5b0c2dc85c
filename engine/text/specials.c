/* specials.c -- see specials.h. Nodes lie in one array; a node's children are a list through it. */
#include "engine/text/specials.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct special_node {
    uint32_t first_child; /* 0: none, for the root is nobody's child */
    uint32_t next_sibling;
    int32_t id; /* the token that ends here, -1: none */
    uint8_t byte;
};

static bool is_special(const struct vocabulary *vocabulary, uint32_t id)
{
    enum token_type type = vocabulary->types[id];

    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
}

static uint32_t child_of(const struct specials *specials, uint32_t node, uint8_t byte)
{
    uint32_t child = specials->nodes[node].first_child;

    while (child != 0 && specials->nodes[child].byte != byte)
        child = specials->nodes[child].next_sibling;
    return child;
}

static void add(struct specials *specials, const char *piece, size_t bytes, int32_t id)
{
    uint32_t node = 0;

    for (size_t i = 0; i < bytes; i++) {
        uint32_t child = child_of(specials, node, (uint8_t)piece[i]);

        if (child == 0) {
            child = specials->node_count++;
            specials->nodes[child] = (struct special_node){
                .next_sibling = specials->nodes[node].first_child,
                .id = -1,
                .byte = (uint8_t)piece[i],
            };
            specials->nodes[node].first_child = child;
        }
        node = child;
    }
    specials->nodes[node].id = id;
    specials->starts[(uint8_t)piece[0]] = true;
}

int specials_init(struct specials *specials, const struct vocabulary *vocabulary,
                  struct fault *fault)
{
    size_t total = 1, bytes;

    memset(specials, 0, sizeof *specials);
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        if (!is_special(vocabulary, id))
            continue;
        vocabulary_piece(vocabulary, (int32_t)id, &bytes);
        if (bytes > SPECIAL_BYTES_MAX)
            return fault_set(fault, E_CORRUPT,
                             "special token %" PRIu32 " of the vocabulary is %zu bytes long", id,
                             bytes);
        total += bytes;
    }
    specials->nodes = calloc(total, sizeof *specials->nodes);
    if (!specials->nodes)
        return fault_set(fault, E_MEMORY, "out of memory for the special tokens");
    specials->nodes[0].id = -1;
    specials->node_count = 1;
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        const char *piece = vocabulary_piece(vocabulary, (int32_t)id, &bytes);

        if (is_special(vocabulary, id) && bytes > 0)
            add(specials, piece, bytes, (int32_t)id);
    }
    return 0;
}

void specials_fini(struct specials *specials)
{
    free(specials->nodes);
    memset(specials, 0, sizeof *specials);
}

bool specials_next(const struct specials *specials, const struct vocabulary *vocabulary,
                   bool user_defined_only, const char *text, size_t bytes, size_t from,
                   struct special_match *ret_match)
{
    for (size_t start = from; start < bytes; start++) {
        struct special_match match = {.start = start, .id = -1};
        uint32_t node = 0;

        if (!specials->starts[(uint8_t)text[start]])
            continue;
        for (size_t at = start; at < bytes; at++) {
            int32_t id;

            node = child_of(specials, node, (uint8_t)text[at]);
            if (node == 0)
                break;
            id = specials->nodes[node].id;
            if (id >= 0 && (!user_defined_only || vocabulary->types[id] == TOKEN_USER_DEFINED)) {
                match.id = id;
                match.bytes = at + 1 - start;
            }
        }
        if (match.id >= 0) {
            *ret_match = match;
            return true;
        }
    }
    return false;
}

int32_t specials_find(const struct specials *specials, const char *text, size_t bytes)
{
    uint32_t node = 0;

    for (size_t i = 0; i < bytes; i++) {
        node = child_of(specials, node, (uint8_t)text[i]);
        if (node == 0)
            return -1;
    }
    return specials->nodes[node].id; /* the root's is -1 */
}
