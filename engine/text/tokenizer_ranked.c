/* tokenizer_ranked.c -- see tokenizer_ranked.h.
 *
 * Every way to cut a token in two tokens is a merge of that token's rank, which makes it the same
 * encoding as one with a list of merges. */
#include "engine/text/tokenizer_ranked.h"

#include <stdlib.h>
#include <string.h>

static int make_vocabulary(struct vocabulary *vocabulary, const struct ranked *ranked,
                           struct fault *fault)
{
    uint64_t count = (uint64_t)ranked->first_id + ranked->count;
    const struct special **by_id;
    size_t bytes = ranked->bytes.bytes;
    int r;

    for (uint32_t i = 0; i < ranked->special_count; i++) {
        bytes += ranked->specials[i].bytes;
        if ((uint64_t)ranked->specials[i].id >= count)
            count = (uint64_t)ranked->specials[i].id + 1;
    }
    r = vocabulary_init(vocabulary, count, bytes, false, fault);
    if (r < 0)
        return r;
    by_id = calloc(count, sizeof *by_id);
    if (!by_id)
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    for (uint32_t i = 0; i < ranked->special_count; i++)
        by_id[ranked->specials[i].id] = &ranked->specials[i];
    for (uint32_t id = 0; id < count; id++) {
        struct vocabulary_entry entry = {.type = TOKEN_UNUSED};
        uint32_t rank = id - ranked->first_id;

        if (by_id[id]) {
            entry.type = by_id[id]->control ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
            entry.piece = by_id[id]->text;
            entry.piece_bytes = by_id[id]->bytes;
        } else if (id >= ranked->first_id && rank < ranked->count && ranked->tokens[rank].known) {
            entry.type = TOKEN_NORMAL;
            entry.piece = ranked->bytes.data + ranked->tokens[rank].start;
            entry.piece_bytes = ranked->tokens[rank].count;
            entry.indexed = true;
        }
        vocabulary_put(vocabulary, &entry);
    }
    free(by_id);
    return 0;
}

static void add_cuts(struct bpe *bpe, const struct vocabulary *vocabulary, int32_t id)
{
    size_t bytes;
    const char *piece = vocabulary_piece(vocabulary, id, &bytes);

    if (vocabulary_find(vocabulary, piece, bytes) != id) /* one of two with the same bytes */
        return;
    for (size_t cut = 1; cut < bytes; cut++) {
        int32_t left = vocabulary_find(vocabulary, piece, cut);
        int32_t right = left < 0 ? -1 : vocabulary_find(vocabulary, piece + cut, bytes - cut);

        if (right >= 0)
            bpe_add_pair(bpe, left, right, id, (uint32_t)id);
    }
}

static int make_model(struct tokenizer *tokenizer, struct fault *fault)
{
    const struct bpe_options options = {
        .byte_level = true, .whole_pieces = true, .unknown = -1, .prefix = "", .suffix = ""};
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    struct bpe *bpe = NULL;
    uint64_t cuts = 0;
    int r;

    for (uint32_t id = 0; id < vocabulary->count; id++) {
        size_t bytes;

        (void)vocabulary_piece(vocabulary, (int32_t)id, &bytes);
        if (vocabulary->types[id] == TOKEN_NORMAL && bytes > 1)
            cuts += bytes - 1;
    }
    r = bpe_open(vocabulary, &options, cuts, &bpe, fault);
    if (r < 0)
        return r;
    for (uint32_t id = 0; id < vocabulary->count; id++)
        if (vocabulary->types[id] == TOKEN_NORMAL)
            add_cuts(bpe, vocabulary, (int32_t)id);
    tokenizer_use_bpe(tokenizer, bpe);
    return 0;
}

int tokenizer_make_ranked(struct tokenizer *tokenizer, const struct ranked *ranked,
                          struct fault *fault)
{
    const struct split_rule rule = {.pattern = ranked->pattern, .bytes = strlen(ranked->pattern)};
    int r = make_vocabulary(&tokenizer->vocabulary, ranked, fault);

    if (r == 0)
        r = specials_init(&tokenizer->specials, ranked->specials, ranked->special_count, fault);
    if (r == 0 && ranked->nfc)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0 && ranked->nfc)
        r = normalizer_add_form(tokenizer->normalizer, FORM_C, fault);
    if (r == 0)
        r = pretokenizer_open(&tokenizer->pretokenizer, fault);
    if (r == 0)
        r = pretokenizer_add_split(tokenizer->pretokenizer, &rule, fault);
    return r < 0 ? r : make_model(tokenizer, fault);
}
