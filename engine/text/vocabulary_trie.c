/* vocabulary_trie.c -- see vocabulary_trie.h: the tokens are sorted, and each writes the nodes that
 * it does not share with the one before it. */
#include "engine/text/vocabulary_trie.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

enum { TOKEN_BYTES_MAX = UINT16_MAX };

const uint8_t slice_lengths[SLICE_LENGTH_COUNT] = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 32, 48, 96, SLICE_LENGTH_MAX};

/* Plain characters of a JSON string; words; letters and digits. The first two without what ends a
 * line somewhere (U+0085, U+2028, U+2029), as `.` and classes of lines are. */
#define BEYOND_ASCII                  \
    {0xA0, 0x2027}, {0x202A, 0xD7FF}, \
    {                                 \
        0xE000, 0x10FFFF              \
    }
static const struct grammar_range plain_ranges[] = {
    {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, BEYOND_ASCII};
static const struct grammar_range word_ranges[] = {
    {' ', ' '}, {'0', '9'}, {'A', 'Z'}, {'a', 'z'}, BEYOND_ASCII};
static const struct grammar_range letter_ranges[] = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
#define SLICE(ranges)                          \
    {                                          \
        ranges, sizeof ranges / sizeof *ranges \
    }
const struct vocabulary_slice vocabulary_slices[VOCABULARY_SLICE_COUNT] = {
    SLICE(plain_ranges), SLICE(word_ranges), SLICE(letter_ranges)};

/* ---- texts ---- */

static bool is_end(const int32_t *ends, uint32_t end_count, int32_t id)
{
    for (uint32_t i = 0; i < end_count; i++) {
        if (ends[i] == id)
            return true;
    }
    return false;
}

bool vocabulary_trie_is_end(const struct vocabulary_trie *trie, int32_t id)
{
    return is_end(trie->ends, trie->end_count, id);
}

const char *vocabulary_trie_text(const struct vocabulary_trie *trie, int32_t id, size_t *ret_bytes)
{
    *ret_bytes = 0;
    if (id < 0 || (uint32_t)id >= trie->token_count)
        return "";
    *ret_bytes = trie->text_starts[id + 1] - trie->text_starts[id];
    return trie->text + trie->text_starts[id];
}

static int texts_copy(struct vocabulary_trie *trie, const struct vocabulary_token *tokens,
                      const int32_t *ends, uint32_t end_count)
{
    size_t bytes = 0;

    trie->text_starts = calloc((size_t)trie->token_count + 1, sizeof *trie->text_starts);
    trie->all.ids = malloc((trie->token_count + (size_t)1) * sizeof *trie->all.ids);
    if (!trie->text_starts || !trie->all.ids)
        return E_MEMORY;
    for (uint32_t id = 0; id < trie->token_count; id++) {
        bool text = tokens[id].bytes && tokens[id].count > 0 &&
                    tokens[id].count <= TOKEN_BYTES_MAX && !is_end(ends, end_count, (int32_t)id);

        trie->text_starts[id] = (uint32_t)bytes;
        bytes += text ? tokens[id].count : 0;
        if (bytes > UINT32_MAX / 2)
            return E_TOO_LARGE;
        if (text)
            trie->all.ids[trie->all.id_count++] = (int32_t)id;
    }
    trie->text_starts[trie->token_count] = (uint32_t)bytes;
    trie->text = malloc(bytes + 1);
    if (!trie->text)
        return E_MEMORY;
    for (uint32_t i = 0; i < trie->all.id_count; i++)
        memcpy(trie->text + trie->text_starts[trie->all.ids[i]], tokens[trie->all.ids[i]].bytes,
               tokens[trie->all.ids[i]].count);
    return 0;
}

/* ---- nodes ---- */

static int compare_ids(const void *a, const void *b, void *data)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    size_t left_bytes, right_bytes;
    const char *left_text = vocabulary_trie_text(data, left, &left_bytes);
    const char *right_text = vocabulary_trie_text(data, right, &right_bytes);
    int order = memcmp(left_text, right_text, left_bytes < right_bytes ? left_bytes : right_bytes);

    if (order != 0)
        return order;
    if (left_bytes != right_bytes)
        return left_bytes < right_bytes ? -1 : 1;
    return left < right ? -1 : left > right;
}

static size_t common_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t n = 0;

    while (n < a_bytes && n < b_bytes && a[n] == b[n])
        n++;
    return n;
}

/* Ends the nodes of the path deeper than `depth`. */
static void path_end(struct vocabulary_trie *trie, const uint32_t *path, size_t from, size_t depth)
{
    while (from > depth)
        trie->all.nodes[path[--from]].skip = trie->all.node_count;
}

/* `path` has room for the longest token. */
static void nodes_write(struct vocabulary_trie *trie, uint32_t *path)
{
    const char *before = "";
    size_t before_bytes = 0;

    for (uint32_t i = 0; i < trie->all.id_count; i++) {
        size_t bytes;
        const char *text = vocabulary_trie_text(trie, trie->all.ids[i], &bytes);
        size_t shared = common_bytes(before, before_bytes, text, bytes);

        path_end(trie, path, before_bytes, shared);
        for (size_t depth = shared; depth < bytes; depth++) {
            path[depth] = trie->all.node_count;
            trie->all.nodes[trie->all.node_count++] = (struct trie_node){
                .token_first = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)text[depth]};
        }
        before = text;
        before_bytes = bytes;
    }
    path_end(trie, path, before_bytes, 0);
    trie->all.nodes[trie->all.node_count] =
        (struct trie_node){.skip = trie->all.node_count, .token_first = trie->all.id_count};
}

static int nodes_make(struct vocabulary_trie *trie)
{
    size_t bytes, before_bytes = 0, count = 0;
    const char *before = "";
    uint32_t *path;

    qsort_r(trie->all.ids, trie->all.id_count, sizeof *trie->all.ids, compare_ids, trie);
    for (uint32_t i = 0; i < trie->all.id_count; i++) {
        const char *text = vocabulary_trie_text(trie, trie->all.ids[i], &bytes);

        count += bytes - common_bytes(before, before_bytes, text, bytes);
        trie->depth_max = bytes > trie->depth_max ? (uint32_t)bytes : trie->depth_max;
        before = text;
        before_bytes = bytes;
    }
    trie->all.nodes = malloc((count + 1) * sizeof *trie->all.nodes);
    path = malloc((trie->depth_max + (size_t)1) * sizeof *path);
    if (trie->all.nodes && path)
        nodes_write(trie, path);
    free(path);
    return trie->all.nodes && path ? 0 : E_MEMORY;
}

/* ---- slices ---- */

/* How many characters a token has, when they are whole and all of the slice; COVER_NEVER if not. */
static uint8_t slice_length(const struct vocabulary_slice *slice, const char *text, size_t bytes)
{
    size_t length = 0, taken;

    for (size_t at = 0; at < bytes; at += taken) {
        uint32_t character = (uint8_t)text[at];
        size_t i = 0;

        if (!utf8_next(text + at, bytes - at, &taken, NULL) || ++length > SLICE_LENGTH_MAX)
            return COVER_NEVER;
        if (taken > 1)
            character &= 0x7Fu >> taken;
        for (size_t more = 1; more < taken; more++)
            character = character << 6 | ((uint8_t)text[at + more] & 0x3F);
        while (i < slice->range_count && character > slice->ranges[i].last)
            i++;
        if (i == slice->range_count || character < slice->ranges[i].first)
            return COVER_NEVER;
    }
    return (uint8_t)length;
}

static void slice_token(struct vocabulary_trie *trie, struct trie_slice *slice, int32_t id,
                        uint8_t length)
{
    for (uint32_t i = 0; i < SLICE_LENGTH_COUNT; i++) {
        if (length > slice_lengths[i])
            continue;
        slice->masks[(size_t)i * trie->word_count + (uint32_t)id / 32] |= 1u << id % 32;
        slice->counts[i]++;
    }
}

static int slice_make(struct vocabulary_trie *trie, struct trie_slice *slice,
                      const struct vocabulary_slice *of)
{
    slice->cover = calloc(trie->all.node_count + (size_t)1, 1);
    slice->masks = calloc((size_t)trie->word_count * SLICE_LENGTH_COUNT, sizeof *slice->masks);
    if (!slice->cover || !slice->masks)
        return E_MEMORY;
    /* Backward, so that all behind a node is done before it. */
    for (uint32_t n = trie->all.node_count; n-- > 0;) {
        struct trie_node *node = &trie->all.nodes[n];

        for (uint32_t i = node->token_first; i < trie->all.nodes[n + 1].token_first; i++) {
            size_t bytes;
            const char *text = vocabulary_trie_text(trie, trie->all.ids[i], &bytes);
            uint8_t length = slice_length(of, text, bytes);

            slice->cover[n] = length > slice->cover[n] ? length : slice->cover[n];
            if (length != COVER_NEVER)
                slice_token(trie, slice, trie->all.ids[i], length);
        }
        for (uint32_t child = n + 1; child < node->skip; child = trie->all.nodes[child].skip) {
            if (slice->cover[child] > slice->cover[n])
                slice->cover[n] = slice->cover[child];
        }
    }
    return 0;
}

/* The nodes that a slice does not cover at any length, and the tokens that are not its own. */
static int rest_make(const struct vocabulary_trie *trie, struct trie_slice *slice)
{
    const struct trie_nodes *all = &trie->all;
    const uint32_t *mask = slice->masks + (size_t)(SLICE_LENGTH_COUNT - 1) * trie->word_count;
    struct trie_nodes *rest = &slice->rest;
    uint32_t *numbers = malloc((all->node_count + (size_t)1) * sizeof *numbers);
    uint32_t count = 0, others = all->id_count - slice->counts[SLICE_LENGTH_COUNT - 1];

    for (uint32_t n = 0; numbers && n < all->node_count; n++) {
        numbers[n] = count;
        count += slice->cover[n] == COVER_NEVER;
    }
    rest->nodes = malloc((count + (size_t)1) * sizeof *rest->nodes);
    rest->ids = malloc((others + (size_t)1) * sizeof *rest->ids);
    if (!numbers || !rest->nodes || !rest->ids) {
        free(numbers);
        return E_MEMORY;
    }
    numbers[all->node_count] = count;
    for (uint32_t n = 0; n < all->node_count; n++) {
        struct trie_node node = all->nodes[n];

        if (slice->cover[n] != COVER_NEVER)
            continue;
        node.skip = numbers[node.skip];
        node.token_first = rest->id_count;
        rest->nodes[rest->node_count++] = node;
        for (uint32_t i = all->nodes[n].token_first; i < all->nodes[n + 1].token_first; i++) {
            if (!(mask[all->ids[i] / 32] >> all->ids[i] % 32 & 1))
                rest->ids[rest->id_count++] = all->ids[i];
        }
    }
    rest->nodes[count] = (struct trie_node){.skip = count, .token_first = rest->id_count};
    free(numbers);
    return 0;
}

/* ---- the whole ---- */

static int trie_make(struct vocabulary_trie *trie, const struct vocabulary_token *tokens,
                     const int32_t *ends, uint32_t end_count)
{
    int r;

    trie->ends = malloc((end_count + (size_t)1) * sizeof *trie->ends);
    if (!trie->ends)
        return E_MEMORY;
    for (uint32_t i = 0; i < end_count; i++) {
        if (ends[i] >= 0 && (uint32_t)ends[i] < trie->token_count)
            trie->ends[trie->end_count++] = ends[i];
    }
    r = texts_copy(trie, tokens, ends, end_count);
    if (r == 0)
        r = nodes_make(trie);
    for (int i = 0; r == 0 && i < VOCABULARY_SLICE_COUNT; i++)
        r = slice_make(trie, &trie->slices[i], &vocabulary_slices[i]);
    for (int i = 0; r == 0 && i < VOCABULARY_SLICE_COUNT; i++)
        r = rest_make(trie, &trie->slices[i]);
    return r;
}

int vocabulary_trie_open(const struct vocabulary_token *tokens, uint32_t count, const int32_t *ends,
                         uint32_t end_count, struct vocabulary_trie **ret_trie, struct fault *fault)
{
    struct vocabulary_trie *trie = calloc(1, sizeof *trie);
    int r = E_MEMORY;

    if (trie) {
        trie->token_count = count;
        trie->word_count = count / 32 + (count % 32 > 0);
        r = trie_make(trie, tokens, ends, end_count);
    }
    if (r < 0) {
        vocabulary_trie_close(trie);
        return fault_set(fault, r, "There is no memory for the vocabulary's tree");
    }
    *ret_trie = trie;
    return 0;
}

int vocabulary_trie_open_tokenizer(const struct tokenizer *tokenizer,
                                   struct vocabulary_trie **ret_trie, struct fault *fault)
{
    uint32_t count = tokenizer_count(tokenizer), end_count;
    struct vocabulary_token *tokens = calloc((size_t)count + 1, sizeof *tokens);
    const int32_t *ends;
    int r;

    if (!tokens)
        return fault_set(fault, E_MEMORY, "There is no memory for the vocabulary's tree");
    for (uint32_t id = 0; id < count; id++) {
        if (!tokenizer_is_special(tokenizer, (int32_t)id))
            tokens[id].bytes = tokenizer_piece(tokenizer, (int32_t)id, &tokens[id].count);
    }
    end_count = tokenizer_ends(tokenizer, &ends);
    r = vocabulary_trie_open(tokens, count, ends, end_count, ret_trie, fault);
    free(tokens);
    return r;
}

void vocabulary_trie_close(struct vocabulary_trie *trie)
{
    if (!trie)
        return;
    for (int i = 0; i < VOCABULARY_SLICE_COUNT; i++) {
        free(trie->slices[i].cover);
        free(trie->slices[i].masks);
        free(trie->slices[i].rest.nodes);
        free(trie->slices[i].rest.ids);
    }
    free(trie->all.nodes);
    free(trie->all.ids);
    free(trie->ends);
    free(trie->text);
    free(trie->text_starts);
    free(trie);
}
