/* specials.c -- see specials.h. Nodes lie in one array; a node's children are a list through it. */
#include "engine/text/specials.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/character.h"

struct special_node {
    uint32_t first_child; /* 0: none, for the root is nobody's child */
    uint32_t next_sibling;
    uint32_t fail;   /* the node of the longest other suffix of what leads here */
    uint32_t output; /* the nearest node on the way of `fail` where a token ends; 0: none */
    uint32_t end;    /* 1 + index into ends of the token that ends here, 0: none */
    uint16_t depth;
    uint8_t byte;
};

struct special_end {
    uint32_t bytes;
    int32_t id;
    bool control;
    bool left_strip;
    bool right_strip;
    bool single_word;
};

/* ---- making ---- */

static uint32_t child_of(const struct specials *specials, uint32_t node, uint8_t byte)
{
    uint32_t child = node == 0 ? specials->children[byte] : specials->nodes[node].first_child;

    while (child != 0 && specials->nodes[child].byte != byte)
        child = specials->nodes[child].next_sibling;
    return child;
}

static uint32_t add_child(struct specials *specials, uint32_t node, uint8_t byte)
{
    uint32_t child = specials->node_count++;
    struct special_node *parent = &specials->nodes[node];

    specials->nodes[child] = (struct special_node){
        .next_sibling = parent->first_child, .depth = (uint16_t)(parent->depth + 1), .byte = byte};
    parent->first_child = child;
    if (node == 0) {
        specials->nodes[child].next_sibling = 0; /* the table is the root's list */
        specials->children[byte] = child;
    }
    return child;
}

static void add(struct specials *specials, const struct special *special)
{
    uint32_t node = 0;

    for (size_t i = special->bytes; i-- > 0;) {
        uint8_t byte = (uint8_t)special->text[i];
        uint32_t child = child_of(specials, node, byte);

        node = child != 0 ? child : add_child(specials, node, byte);
    }
    if (specials->nodes[node].end == 0)
        specials->nodes[node].end = ++specials->end_count;
    specials->ends[specials->nodes[node].end - 1] = (struct special_end){
        .bytes = (uint32_t)special->bytes,
        .id = special->id,
        .control = special->control,
        .left_strip = special->left_strip,
        .right_strip = special->right_strip,
        .single_word = special->single_word,
    };
}

/* Where reading `byte` leads from `node`. */
static uint32_t step(const struct specials *specials, uint32_t node, uint8_t byte)
{
    for (;;) {
        uint32_t child = child_of(specials, node, byte);

        if (child != 0 || node == 0)
            return child;
        node = specials->nodes[node].fail;
    }
}

static void link_child(struct specials *specials, uint32_t parent, uint32_t child)
{
    struct special_node *node = &specials->nodes[child];
    uint32_t fail = parent == 0 ? 0 : step(specials, specials->nodes[parent].fail, node->byte);

    node->fail = fail;
    node->output = specials->nodes[fail].end != 0 ? fail : specials->nodes[fail].output;
}

/* In the order of depth, for a link leads to a node nearer to the root. `queue` has room for all
 * nodes. */
static void link_nodes(struct specials *specials, uint32_t *queue)
{
    uint32_t head = 0, tail = 0;

    for (int byte = 0; byte < 256; byte++) {
        if (specials->children[byte] != 0) {
            link_child(specials, 0, specials->children[byte]);
            queue[tail++] = specials->children[byte];
        }
    }
    while (head < tail) {
        uint32_t node = queue[head++];

        for (uint32_t child = specials->nodes[node].first_child; child != 0;
             child = specials->nodes[child].next_sibling) {
            link_child(specials, node, child);
            queue[tail++] = child;
        }
    }
}

int specials_init(struct specials *specials, const struct special *list, uint32_t count,
                  struct fault *fault)
{
    size_t total = 1;
    uint32_t *queue;

    memset(specials, 0, sizeof *specials);
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].bytes > SPECIAL_BYTES_MAX)
            return fault_set(fault, E_CORRUPT,
                             "special token %" PRId32 " of the vocabulary is %zu bytes long",
                             list[i].id, list[i].bytes);
        total += list[i].bytes;
    }
    if (total == 1)
        return 0;
    if (total > UINT32_MAX)
        return fault_set(fault, E_TOO_LARGE, "the special tokens take %zu bytes", total);
    specials->nodes = calloc(total, sizeof *specials->nodes);
    specials->ends = calloc(count, sizeof *specials->ends);
    queue = malloc(total * sizeof *queue);
    if (!specials->nodes || !specials->ends || !queue) {
        free(queue);
        specials_fini(specials);
        return fault_set(fault, E_MEMORY, "out of memory for the special tokens");
    }
    specials->node_count = 1;
    for (uint32_t i = 0; i < count; i++)
        if (list[i].bytes > 0)
            add(specials, &list[i]);
    link_nodes(specials, queue);
    free(queue);
    return 0;
}

void specials_fini(struct specials *specials)
{
    free(specials->nodes);
    free(specials->ends);
    memset(specials, 0, sizeof *specials);
}

/* ---- white space and words around a match ---- */

static size_t character_before(const char *text, size_t at)
{
    at--;
    while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t end)
{
    size_t taken;

    if (start > 0) {
        size_t before = character_before(text, start);

        if (character_is_word(character_at(text + before, start - before, &taken)))
            return false;
    }
    return end == bytes || !character_is_word(character_at(text + end, bytes - end, &taken));
}

static size_t spaces_before(const char *text, size_t from, size_t start)
{
    while (start > from) {
        size_t before = character_before(text, start), taken;

        if (before < from ||
            !character_is_space(character_at(text + before, start - before, &taken)))
            break;
        start = before;
    }
    return start;
}

static size_t spaces_behind(const char *text, size_t bytes, size_t end)
{
    size_t taken;

    while (end < bytes && character_is_space(character_at(text + end, bytes - end, &taken)))
        end += taken;
    return end;
}

/* ---- looking ---- */

void special_hits_init(struct special_hits *hits)
{
    *hits = (struct special_hits){0};
}

void special_hits_fini(struct special_hits *hits)
{
    free(hits->list);
    special_hits_init(hits);
}

static int put_hit(struct special_hits *hits, struct special_hit hit)
{
    if (hits->count == hits->room) {
        size_t room = hits->room > 0 ? 2 * hits->room : 16;
        struct special_hit *list = realloc(hits->list, room * sizeof *list);

        if (!list)
            return -ENOMEM;
        hits->list = list;
        hits->room = room;
    }
    hits->list[hits->count++] = hit;
    return 0;
}

int specials_scan(const struct specials *specials, const char *text, size_t bytes,
                  struct special_hits *hits)
{
    uint32_t node = 0;
    int r = 0;

    hits->count = 0;
    for (size_t at = specials->nodes ? bytes : 0; at > 0 && r == 0;) {
        const struct special_node *reached;
        uint32_t ending;

        if (node == 0) /* nearly all of nearly every text */
            while (at > 0 && specials->children[(uint8_t)text[at - 1]] == 0)
                at--;
        if (at == 0)
            break;
        node = step(specials, node, (uint8_t)text[--at]);
        reached = &specials->nodes[node];
        ending = reached->end != 0 ? node : reached->output;
        if (ending != 0)
            r = put_hit(hits, (struct special_hit){at, specials->nodes[ending].end - 1});
    }
    return r;
}

bool specials_next(const struct specials *specials, struct special_hits *hits,
                   bool controls_as_text, const char *text, size_t bytes, size_t from,
                   struct special_match *ret_match)
{
    size_t at = from;

    while (hits->count > 0) {
        struct special_hit hit = hits->list[--hits->count];
        const struct special_end *special = &specials->ends[hit.special];
        size_t end = hit.start + special->bytes;

        if (hit.start < at)
            continue;
        at = end;
        if ((controls_as_text && special->control) ||
            (special->single_word && !stands_alone(text, bytes, hit.start, end)))
            continue;
        ret_match->id = special->id;
        ret_match->start = special->left_strip ? spaces_before(text, from, hit.start) : hit.start;
        ret_match->end = special->right_strip ? spaces_behind(text, bytes, end) : end;
        return true;
    }
    return false;
}

int32_t specials_find(const struct specials *specials, const char *text, size_t bytes)
{
    uint32_t node = 0, end;

    if (!specials->nodes)
        return -1;
    for (size_t i = bytes; i-- > 0;) {
        node = child_of(specials, node, (uint8_t)text[i]);
        if (node == 0)
            return -1;
    }
    end = specials->nodes[node].end; /* the root's is 0 */
    return end == 0 ? -1 : specials->ends[end - 1].id;
}
