/* tokenizer_bpe.c -- see tokenizer_bpe.h.
 *
 * Merges are a hash of pairs of ids. Nearly all pieces are words of a few bytes, for which looking
 * through all pairs for the best one beats any heap; long pieces go to merge.c. */
#include "engine/text/tokenizer_bpe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/utf8.h"

enum { SMALL_PIECE = 32, MERGES_MAX = 1 << 26, KEY_BYTES_MAX = 256 };

struct pair_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
    struct merge_pair joined;
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct bpe_options options; /* whose texts are the two below */
    char prefix[KEY_BYTES_MAX];
    char suffix[KEY_BYTES_MAX];
    struct pair_slot *slots;
    uint32_t slot_mask;
    uint64_t merge_room;
    struct buf joined;     /* while merges are added */
    int32_t byte_ids[256]; /* the token of a single byte, -1: none */
};

/* ---- the merges ---- */

static struct pair_slot *slot_of(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t slot = (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32) & bpe->slot_mask;

    while (bpe->slots[slot].pair != UINT64_MAX && bpe->slots[slot].pair != pair)
        slot = (slot + 1) & bpe->slot_mask;
    return &bpe->slots[slot];
}

static bool find_pair(const struct bpe *bpe, int32_t left, int32_t right,
                      struct merge_pair *ret_pair)
{
    const struct pair_slot *slot = slot_of(bpe, left, right);

    *ret_pair = slot->joined;
    return slot->pair != UINT64_MAX;
}

void bpe_add_pair(struct bpe *bpe, int32_t left, int32_t right, int32_t joined, uint32_t rank)
{
    struct pair_slot *slot = slot_of(bpe, left, right);

    if (slot->pair != UINT64_MAX)
        return;
    must(bpe->merge_room > 0);
    bpe->merge_room--;
    *slot = (struct pair_slot){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, {rank, joined}};
}

int bpe_add_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right,
                  size_t right_bytes, uint32_t rank)
{
    size_t cut = strlen(bpe->options.prefix);
    int32_t left_id = vocabulary_find(bpe->vocabulary, left, left_bytes);
    int32_t right_id = vocabulary_find(bpe->vocabulary, right, right_bytes);
    int32_t joined_id;

    if (left_id < 0 || right_id < 0 || right_bytes < cut)
        return 0;
    buf_reset(&bpe->joined);
    buf_put(&bpe->joined, left, left_bytes);
    buf_put(&bpe->joined, right + cut, right_bytes - cut);
    if (buf_failed(&bpe->joined))
        return -ENOMEM;
    joined_id = vocabulary_find(bpe->vocabulary, bpe->joined.data, bpe->joined.bytes);
    if (joined_id < 0)
        return 0;
    bpe_add_pair(bpe, left_id, right_id, joined_id, rank);
    return 1;
}

/* ---- opening ---- */

int bpe_open(const struct vocabulary *vocabulary, const struct bpe_options *options,
             uint64_t merge_count, struct bpe **ret_bpe, struct fault *fault)
{
    size_t slot_count = 16;
    struct bpe *bpe;

    if (merge_count > MERGES_MAX)
        return fault_set(fault, E_TOO_LARGE, "%" PRIu64 " merges, more than %d", merge_count,
                         MERGES_MAX);
    if (strlen(options->prefix) + strlen(options->suffix) + 4 > KEY_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "the prefix or suffix of words is too long");
    while (slot_count < 2 * merge_count)
        slot_count *= 2;
    bpe = calloc(1, sizeof *bpe);
    if (bpe)
        bpe->slots = malloc(slot_count * sizeof *bpe->slots);
    if (!bpe || !bpe->slots) {
        bpe_close(bpe);
        return fault_set(fault, E_MEMORY, "out of memory for the merges");
    }
    memset(bpe->slots, 0xff, slot_count * sizeof *bpe->slots);
    bpe->slot_mask = (uint32_t)slot_count - 1;
    bpe->merge_room = merge_count;
    buf_init(&bpe->joined, UINT32_MAX);
    bpe->vocabulary = vocabulary;
    bpe->options = *options;
    memcpy(bpe->prefix, options->prefix, strlen(options->prefix) + 1);
    memcpy(bpe->suffix, options->suffix, strlen(options->suffix) + 1);
    bpe->options.prefix = bpe->prefix;
    bpe->options.suffix = bpe->suffix;
    for (int byte = 0; byte < 256; byte++)
        bpe->byte_ids[byte] = vocabulary_find(vocabulary, (const char[]){(char)byte}, 1);
    *ret_bpe = bpe;
    return 0;
}

void bpe_close(struct bpe *bpe)
{
    if (!bpe)
        return;
    buf_fini(&bpe->joined);
    free(bpe->slots);
    free(bpe);
}

/* ---- the symbols that a piece starts as ---- */

/* Where they go: an array that has room for them all, or the list of a merge. */
struct symbols {
    int32_t *ids; /* NULL: the list */
    size_t count;
    struct merge_work *work;
    bool last_unknown;
};

static int put_symbol(struct symbols *symbols, size_t start, size_t bytes, int32_t id)
{
    symbols->last_unknown = false;
    if (!symbols->ids)
        return merge_add(symbols->work, (uint32_t)start, (uint32_t)bytes, id);
    symbols->ids[symbols->count++] = id;
    return 0;
}

static int put_bytes(const struct bpe *bpe, struct symbols *symbols, const char *piece,
                     size_t bytes)
{
    int r = 0;

    for (size_t i = 0; i < bytes && r == 0; i++) {
        int32_t id = bpe->byte_ids[(uint8_t)piece[i]];

        if (id >= 0)
            r = put_symbol(symbols, i, 1, id);
    }
    return r;
}

/* A character that is no token: its bytes where all of them are tokens, or the unknown token, or
 * nothing. */
static int put_unknown(const struct bpe *bpe, struct symbols *symbols, const char *piece,
                       size_t start, size_t bytes)
{
    bool fused = symbols->last_unknown && bpe->options.fuse_unknown;
    bool spelled = bpe->options.byte_fallback;
    int r = 0;

    for (size_t i = 0; i < bytes; i++)
        spelled = spelled && bpe->vocabulary->byte_tokens[(uint8_t)piece[start + i]] >= 0;
    if (spelled) {
        for (size_t i = 0; i < bytes && r == 0; i++)
            r = put_symbol(symbols, start + i, 1,
                           bpe->vocabulary->byte_tokens[(uint8_t)piece[start + i]]);
        return r;
    }
    if (bpe->options.unknown < 0)
        return 0;
    if (!fused)
        r = put_symbol(symbols, start, bytes, bpe->options.unknown);
    symbols->last_unknown = true;
    return r;
}

/* The id of a character with what marks its place in the word; -1: none. */
static int32_t find_marked(const struct bpe *bpe, const char *character, size_t bytes,
                           const char *prefix, const char *suffix)
{
    size_t before = strlen(prefix), behind = strlen(suffix);
    char key[KEY_BYTES_MAX];

    memcpy(key, prefix, before);
    memcpy(key + before, character, bytes);
    memcpy(key + before + bytes, suffix, behind);
    return vocabulary_find(bpe->vocabulary, key, before + bytes + behind);
}

static int put_characters(const struct bpe *bpe, struct symbols *symbols, const char *piece,
                          size_t bytes)
{
    bool marked = *bpe->options.prefix || *bpe->options.suffix;
    int r = 0;

    for (size_t at = 0, taken; at < bytes && r == 0; at += taken) {
        int32_t id;

        utf8_next(piece + at, bytes - at, &taken, NULL);
        if (marked)
            id = find_marked(bpe, piece + at, taken, at > 0 ? bpe->options.prefix : "",
                             at + taken == bytes ? bpe->options.suffix : "");
        else if (taken == 1)
            id = bpe->byte_ids[(uint8_t)piece[at]];
        else
            id = vocabulary_find(bpe->vocabulary, piece + at, taken);
        r = id >= 0 ? put_symbol(symbols, at, taken, id)
                    : put_unknown(bpe, symbols, piece, at, taken);
    }
    return r;
}

static int put_symbols(const struct bpe *bpe, struct symbols *symbols, const char *piece,
                       size_t bytes)
{
    return bpe->options.byte_level ? put_bytes(bpe, symbols, piece, bytes)
                                   : put_characters(bpe, symbols, piece, bytes);
}

/* ---- encoding ---- */

static bool find_symbols(const void *model, const char *text, const struct merge_symbol *left,
                         const struct merge_symbol *right, struct merge_pair *ret_pair)
{
    (void)text;
    return find_pair(model, left->id, right->id, ret_pair);
}

static int encode_long(const struct bpe *bpe, const char *piece, size_t bytes,
                       struct merge_work *work, struct tokens *tokens)
{
    const struct merge_rules rules = {find_symbols, bpe};
    struct symbols symbols = {.work = work};
    int r;

    merge_begin(work);
    r = put_symbols(bpe, &symbols, piece, bytes);
    if (r == 0)
        r = merge_run(work, &rules, piece);
    if (r < 0 || work->symbol_count == 0)
        return r;
    for (uint32_t i = 0; i != UINT32_MAX && r == 0; i = work->symbols[i].next)
        r = tokens_put(tokens, work->symbols[i].id);
    return r;
}

static int encode_short(const struct bpe *bpe, const char *piece, size_t bytes,
                        struct tokens *tokens)
{
    int32_t ids[SMALL_PIECE];
    struct merge_pair pairs[SMALL_PIECE]; /* [i]: what ids[i] and ids[i + 1] become */
    struct symbols symbols = {.ids = ids};
    int r = put_symbols(bpe, &symbols, piece, bytes);
    size_t count = symbols.count;

    for (size_t i = 0; i + 1 < count; i++)
        find_pair(bpe, ids[i], ids[i + 1], &pairs[i]);
    while (count > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < count; i++)
            if (pairs[i].rank < pairs[best].rank)
                best = i;
        if (pairs[best].rank == UINT32_MAX) /* as a free slot has it */
            break;
        ids[best] = pairs[best].id;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best > 0)
            find_pair(bpe, ids[best - 1], ids[best], &pairs[best - 1]);
        if (best + 1 < count)
            find_pair(bpe, ids[best], ids[best + 1], &pairs[best]);
    }
    for (size_t i = 0; i < count && r == 0; i++)
        r = tokens_put(tokens, ids[i]);
    return r;
}

int bpe_encode(const struct bpe *bpe, const char *piece, size_t bytes, struct merge_work *work,
               struct tokens *tokens)
{
    if (bpe->options.whole_pieces || (bpe->options.whole_newlines && *piece == '\n')) {
        int32_t id = vocabulary_find(bpe->vocabulary, piece, bytes);

        if (id >= 0)
            return tokens_put(tokens, id);
    }
    return bytes <= SMALL_PIECE ? encode_short(bpe, piece, bytes, tokens)
                                : encode_long(bpe, piece, bytes, work, tokens);
}
