/* tokenizer_bpe.c -- see tokenizer_bpe.h.
 *
 * Merges are a hash of pairs of ids. Nearly all pieces are words of a few bytes, for which looking
 * through all pairs for the best one beats any heap; long pieces go to merge.c. */
#include "engine/text/tokenizer_bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/normalize.h"
#include "engine/text/pretokenizer.h"

enum { SMALL_PIECE = 32, MERGES_MAX = 1 << 24 };

struct pair_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
    struct merge_pair joined;
};

struct bpe {
    const struct vocabulary *vocabulary;
    struct pretokenizer *pretokenizer;
    struct pretokenizer_traits traits;
    struct pair_slot *slots;
    uint32_t slot_mask;
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

/* "Ġt he" -> the ids of "Ġt", "he" and "Ġthe". `room` has space for the whole line. */
static bool read_merge(const struct bpe *bpe, struct gguf_string line, char *room,
                       int32_t *ret_left, int32_t *ret_right, int32_t *ret_joined)
{
    const char *space = line.bytes > 1 ? memchr(line.text + 1, ' ', line.bytes - 1) : NULL;
    struct gguf_string left, right;
    size_t left_bytes, right_bytes;

    if (!space)
        return false;
    left = (struct gguf_string){line.text, (size_t)(space - line.text)};
    right = (struct gguf_string){space + 1, line.bytes - left.bytes - 1};
    left_bytes = piece_decode(PIECES_BYTE_LEVEL, left, room);
    right_bytes = piece_decode(PIECES_BYTE_LEVEL, right, room + left_bytes);
    *ret_left = vocabulary_find(bpe->vocabulary, room, left_bytes);
    *ret_right = vocabulary_find(bpe->vocabulary, room + left_bytes, right_bytes);
    *ret_joined = vocabulary_find(bpe->vocabulary, room, left_bytes + right_bytes);
    return *ret_left >= 0 && *ret_right >= 0 && *ret_joined >= 0;
}

static int find_merges(const struct gguf *file, struct gguf_array *ret_merges, size_t *ret_longest,
                       struct fault *fault)
{
    size_t longest = 1;
    int r = gguf_get_array(file, "tokenizer.ggml.merges", ret_merges, fault);

    if (r < 0)
        return r;
    if (r == 0 || ret_merges->type != GGUF_STRING)
        return fault_set(fault, E_CORRUPT, "%s: tokenizer.ggml.merges is not a list of strings",
                         gguf_path(file));
    if (ret_merges->count > MERGES_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s: %" PRIu64 " merges, more than %d",
                         gguf_path(file), ret_merges->count, MERGES_MAX);
    for (uint64_t i = 0; i < ret_merges->count; i++)
        if (gguf_array_string(ret_merges, i).bytes > longest)
            longest = gguf_array_string(ret_merges, i).bytes;
    *ret_longest = longest;
    return 0;
}

static int read_merges(struct bpe *bpe, const struct gguf *file, struct fault *fault)
{
    struct gguf_array merges;
    size_t slot_count = 16, longest = 1;
    char *room = NULL;
    int r = find_merges(file, &merges, &longest, fault);

    if (r < 0)
        return r;
    while (slot_count < 2 * merges.count)
        slot_count *= 2;
    bpe->slot_mask = (uint32_t)slot_count - 1;
    bpe->slots = malloc(slot_count * sizeof *bpe->slots);
    room = malloc(longest);
    if (!bpe->slots || !room) {
        free(room);
        return fault_set(fault, E_MEMORY, "out of memory for the merges of %s", gguf_path(file));
    }
    memset(bpe->slots, 0xff, slot_count * sizeof *bpe->slots);
    for (uint64_t i = 0; i < merges.count && r == 0; i++) {
        struct gguf_string line = gguf_array_string(&merges, i);
        int32_t left, right, joined;
        struct pair_slot *slot;

        if (!read_merge(bpe, line, room, &left, &right, &joined)) {
            char printable[64];

            gguf_string_print(line, printable, sizeof printable);
            r = fault_set(fault, E_CORRUPT,
                          "%s: merge %" PRIu64 " ('%s') does not join two tokens to a third",
                          gguf_path(file), i, printable);
            break;
        }
        slot = slot_of(bpe, left, right);
        if (slot->pair == UINT64_MAX) /* a pair that comes twice keeps its first rank */
            *slot = (struct pair_slot){(uint64_t)(uint32_t)left << 32 | (uint32_t)right,
                                       {(uint32_t)i, joined}};
    }
    free(room);
    return r;
}

/* ---- opening ---- */

int bpe_open_gguf(const struct gguf *file, const struct vocabulary *vocabulary,
                  struct bpe **ret_bpe, struct fault *fault)
{
    struct gguf_string name = {"default", 7};
    struct bpe *bpe;
    int r;

    r = gguf_get_string(file, "tokenizer.ggml.pre", &name, fault);
    if (r < 0)
        return r;
    bpe = calloc(1, sizeof *bpe);
    if (!bpe)
        return fault_set(fault, E_MEMORY, "out of memory for the tokenizer of %s", gguf_path(file));
    bpe->vocabulary = vocabulary;
    r = pretokenizer_open(name, &bpe->pretokenizer, fault);
    if (r == 0)
        r = read_merges(bpe, file, fault);
    if (r < 0) {
        bpe_close(bpe);
        return r;
    }
    bpe->traits = *pretokenizer_traits(bpe->pretokenizer);
    for (int byte = 0; byte < 256; byte++)
        bpe->byte_ids[byte] = vocabulary_find(vocabulary, (const char[]){(char)byte}, 1);
    *ret_bpe = bpe;
    return 0;
}

void bpe_close(struct bpe *bpe)
{
    if (!bpe)
        return;
    pretokenizer_close(bpe->pretokenizer);
    free(bpe->slots);
    free(bpe);
}

bool bpe_adds_bos(const struct bpe *bpe)
{
    return bpe->traits.adds_bos;
}

/* ---- encoding ---- */

struct encoding {
    const struct bpe *bpe;
    struct merge_work *work;
    struct tokens *tokens;
};

static bool find_symbols(const void *model, const char *text, const struct merge_symbol *left,
                         const struct merge_symbol *right, struct merge_pair *ret_pair)
{
    (void)text;
    return find_pair(model, left->id, right->id, ret_pair);
}

static int encode_long(struct encoding *encoding, const char *piece, size_t bytes)
{
    const struct merge_rules rules = {find_symbols, encoding->bpe};
    struct merge_work *work = encoding->work;
    int r = 0;

    merge_begin(work);
    for (size_t i = 0; i < bytes && r == 0; i++) {
        int32_t id = encoding->bpe->byte_ids[(uint8_t)piece[i]];

        if (id >= 0)
            r = merge_add(work, (uint32_t)i, 1, id);
    }
    if (r == 0)
        r = merge_run(work, &rules, piece);
    if (r < 0 || work->symbol_count == 0)
        return r;
    for (uint32_t i = 0; i != UINT32_MAX && r == 0; i = work->symbols[i].next)
        r = tokens_put(encoding->tokens, work->symbols[i].id);
    return r;
}

static int encode_short(struct encoding *encoding, const char *piece, size_t bytes)
{
    const struct bpe *bpe = encoding->bpe;
    int32_t ids[SMALL_PIECE];
    struct merge_pair pairs[SMALL_PIECE]; /* [i]: what ids[i] and ids[i + 1] become */
    size_t count = 0;
    int r = 0;

    for (size_t i = 0; i < bytes; i++)
        if (bpe->byte_ids[(uint8_t)piece[i]] >= 0)
            ids[count++] = bpe->byte_ids[(uint8_t)piece[i]];
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
        r = tokens_put(encoding->tokens, ids[i]);
    return r;
}

static int encode_piece(void *data, const char *piece, size_t bytes)
{
    struct encoding *encoding = data;

    if (encoding->bpe->traits.whole_pieces) {
        int32_t id = vocabulary_find(encoding->bpe->vocabulary, piece, bytes);

        if (id >= 0)
            return tokens_put(encoding->tokens, id);
    }
    return bytes <= SMALL_PIECE ? encode_short(encoding, piece, bytes)
                                : encode_long(encoding, piece, bytes);
}

int bpe_encode(const struct bpe *bpe, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens, struct fault *fault)
{
    struct encoding encoding = {bpe, work, tokens};
    struct buf normal;
    int r = 0;

    if (!bpe->traits.nfc || nfc_is_plain(text, bytes))
        return pretokenizer_split(bpe->pretokenizer, text, bytes, encode_piece, &encoding, fault);
    buf_init(&normal, 3 * bytes);
    r = nfc_append(&normal, text, bytes);
    if (r == 0)
        r = pretokenizer_split(bpe->pretokenizer, normal.data, normal.bytes, encode_piece,
                               &encoding, fault);
    buf_fini(&normal);
    return r;
}
