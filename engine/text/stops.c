/* stops.c -- see stops.h. A. Aho and M. Corasick, "Efficient string matching", CACM 18 (1975).
 *
 * A state is a node of the strings' trie: the longest end of the text that begins one of them. A
 * node has as many children as there are strings at most, and every step towards the root was paid
 * for by a byte that went away from it: constant work per byte. */
#include "engine/text/stops.h"

struct stop_node {
    uint32_t first_child; /* 0: none, for the root is nobody's child */
    uint32_t next_sibling;
    uint32_t fallback; /* the longest proper end of this node's text that is a node too */
    uint32_t held;     /* bytes of its text that may still grow into a stop string */
    int32_t match;     /* the longest string that ends here, -1: none */
    uint16_t depth;
    uint8_t byte;
};

struct stops {
    uint32_t count;
    const char **texts;
    size_t *bytes;
    uint32_t node_count;
    struct stop_node *nodes;
};

static uint32_t child_of(const struct stops *stops, uint32_t node, uint8_t byte)
{
    uint32_t child = stops->nodes[node].first_child;

    while (child != 0 && stops->nodes[child].byte != byte)
        child = stops->nodes[child].next_sibling;
    return child;
}

static uint32_t step(const struct stops *stops, uint32_t node, uint8_t byte)
{
    for (;;) {
        uint32_t child = child_of(stops, node, byte);

        if (child != 0 || node == 0)
            return child;
        node = stops->nodes[node].fallback;
    }
}

static void add(struct stops *stops, int32_t index)
{
    uint32_t node = 0;

    for (size_t i = 0; i < stops->bytes[index]; i++) {
        uint8_t byte = (uint8_t)stops->texts[index][i];
        uint32_t child = child_of(stops, node, byte);

        if (child == 0) {
            child = stops->node_count++;
            stops->nodes[child] = (struct stop_node){
                .next_sibling = stops->nodes[node].first_child,
                .match = -1,
                .depth = (uint16_t)(i + 1),
                .byte = byte,
            };
            stops->nodes[node].first_child = child;
        }
        node = child;
    }
    if (stops->nodes[node].match < 0)
        stops->nodes[node].match = index;
}

/* Breadth first, so that every shorter node is done; `queue` holds all nodes. */
static void link_nodes(struct stops *stops, uint32_t *queue)
{
    uint32_t head = 0, tail = 1;

    queue[0] = 0;
    while (head < tail) {
        uint32_t parent = queue[head++];

        for (uint32_t child = stops->nodes[parent].first_child; child != 0;
             child = stops->nodes[child].next_sibling) {
            struct stop_node *node = &stops->nodes[child];

            node->fallback =
                parent == 0 ? 0 : step(stops, stops->nodes[parent].fallback, node->byte);
            if (node->match < 0)
                node->match = stops->nodes[node->fallback].match;
            node->held = node->first_child != 0 ? node->depth : stops->nodes[node->fallback].held;
            queue[tail++] = child;
        }
    }
}

int stops_build(struct arena *arena, const char *const *strings, const size_t *bytes,
                uint32_t count, struct stops **ret_stops, struct fault *fault)
{
    struct stops *stops;
    uint32_t *queue;
    size_t node_count = 1;

    if (count > STOP_STRINGS_MAX)
        return fault_set(fault, E_INVALID, "%u stop strings are more than %d", count,
                         STOP_STRINGS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (bytes[i] == 0)
            return fault_set(fault, E_INVALID, "a stop string is empty");
        if (bytes[i] > STOP_STRING_BYTES_MAX)
            return fault_set(fault, E_INVALID, "a stop string of %zu bytes is longer than %d",
                             bytes[i], STOP_STRING_BYTES_MAX);
        node_count += bytes[i];
    }
    stops = arena_take(arena, 1, sizeof *stops);
    queue = arena_take(arena, node_count, sizeof *queue);
    if (!stops || !queue)
        return fault_set(fault, E_MEMORY, "out of memory for the stop strings");
    stops->count = count;
    stops->texts = arena_take(arena, count, sizeof *stops->texts);
    stops->bytes = arena_take(arena, count, sizeof *stops->bytes);
    stops->nodes = arena_take(arena, node_count, sizeof *stops->nodes);
    if (!stops->texts || !stops->bytes || !stops->nodes)
        return fault_set(fault, E_MEMORY, "out of memory for the stop strings");
    stops->node_count = 1;
    stops->nodes[0].match = -1;
    for (uint32_t i = 0; i < count; i++) {
        stops->texts[i] = arena_copy(arena, strings[i], bytes[i]);
        stops->bytes[i] = bytes[i];
        if (!stops->texts[i])
            return fault_set(fault, E_MEMORY, "out of memory for the stop strings");
        add(stops, (int32_t)i);
    }
    link_nodes(stops, queue);
    *ret_stops = stops;
    return 0;
}

void stop_walk_init(struct stop_walk *walk, const struct stops *stops)
{
    *walk = (struct stop_walk){.stops = stops, .matched = -1};
}

bool stop_walk_feed(struct stop_walk *walk, const char *text, size_t bytes, size_t *ret_used)
{
    for (size_t i = 0; i < bytes; i++) {
        int32_t match;

        walk->state = step(walk->stops, walk->state, (uint8_t)text[i]);
        match = walk->stops->nodes[walk->state].match;
        if (match >= 0) {
            walk->matched = match;
            *ret_used = i + 1;
            return true;
        }
    }
    return false;
}

size_t stop_walk_held(const struct stop_walk *walk)
{
    return walk->stops->nodes[walk->state].held;
}

size_t stop_string_bytes(const struct stops *stops, int32_t index)
{
    must(index >= 0 && (uint32_t)index < stops->count);
    return stops->bytes[index];
}

const char *stop_string_text(const struct stops *stops, int32_t index)
{
    must(index >= 0 && (uint32_t)index < stops->count);
    return stops->texts[index];
}
