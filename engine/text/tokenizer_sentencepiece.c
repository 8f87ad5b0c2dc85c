/* tokenizer_sentencepiece.c -- a tokenizer out of a sentencepiece model file (tokenizer.model). */
#include <stdlib.h>
#include <string.h>

#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_files.h"

/* What sentencepiece writes for an unknown token where the model says nothing else. */
static const char unknown_surface[] = " \xe2\x81\x87 ";

static void put_piece(struct vocabulary *vocabulary, const struct sentencepiece_piece *piece,
                      char *room)
{
    int byte = piece->type == TOKEN_BYTE ? piece_byte(piece->text, piece->bytes) : -1;
    struct vocabulary_entry entry = {.type = piece->type,
                                     .key = piece->text,
                                     .key_bytes = piece->bytes,
                                     .indexed = piece->type == TOKEN_NORMAL ||
                                                piece->type == TOKEN_USER_DEFINED};

    if (byte >= 0) {
        vocabulary_put_byte(vocabulary, (uint8_t)byte, piece->text, piece->bytes);
        return;
    }
    entry.piece = room;
    entry.piece_bytes = piece_decode(piece->type == TOKEN_CONTROL ? PIECES_PLAIN : PIECES_SPACED,
                                     piece->text, piece->bytes, room, NULL);
    if (piece->type == TOKEN_UNKNOWN) {
        entry.piece = unknown_surface;
        entry.piece_bytes = strlen(unknown_surface);
    }
    vocabulary_put(vocabulary, &entry);
}

static int make_vocabulary(struct vocabulary *vocabulary, const struct sentencepiece *model,
                           struct fault *fault)
{
    size_t bytes = 0, longest = 1;
    char *room;
    int r;

    for (uint32_t id = 0; id < model->count; id++) {
        bytes += model->pieces[id].bytes + sizeof unknown_surface;
        if (model->pieces[id].bytes > longest)
            longest = model->pieces[id].bytes;
    }
    r = vocabulary_init(vocabulary, model->count, bytes, true, fault);
    if (r < 0)
        return r;
    room = malloc(longest);
    if (!room)
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    for (uint32_t id = 0; id < model->count; id++)
        put_piece(vocabulary, &model->pieces[id], room);
    free(room);
    return 0;
}

/* The pieces of one type, to be looked for in texts. */
static int make_specials(const struct sentencepiece *model, enum token_type type,
                         struct specials *specials, struct fault *fault)
{
    struct special *list = calloc((size_t)model->count + 1, sizeof *list);
    uint32_t count = 0;
    int r;

    if (!list)
        return fault_set(fault, E_MEMORY, "out of memory for the special tokens");
    for (uint32_t id = 0; id < model->count; id++)
        if (model->pieces[id].type == type ||
            (type == TOKEN_CONTROL && model->pieces[id].type == TOKEN_UNKNOWN))
            list[count++] = (struct special){.text = model->pieces[id].text,
                                             .bytes = model->pieces[id].bytes,
                                             .id = (int32_t)id,
                                             .control = type == TOKEN_CONTROL};
    r = specials_init(specials, list, count, fault);
    free(list);
    return r;
}

static int make_normalizer(struct tokenizer *tokenizer, const struct sentencepiece *model,
                           struct fault *fault)
{
    struct sentencepiece_rules *rules = calloc(1, sizeof *rules);
    int r;

    if (!rules)
        return fault_set(fault, E_MEMORY, "out of memory for the normalizer");
    rules->dummy_prefix = model->dummy_prefix;
    rules->removes_spaces = model->removes_spaces;
    rules->escapes_spaces = model->escapes_spaces;
    rules->space_is_suffix = model->space_is_suffix;
    r = make_specials(model, TOKEN_USER_DEFINED, &rules->symbols, fault);
    if (r == 0 && model->charsmap_bytes > 0)
        r = charsmap_open(model->charsmap, model->charsmap_bytes, &rules->map, fault);
    if (r == 0)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r < 0) {
        sentencepiece_rules_close(rules);
        return r;
    }
    return normalizer_add_sentencepiece(tokenizer->normalizer, rules, fault);
}

static int make_bpe(struct tokenizer *tokenizer, const struct sentencepiece *model,
                    struct fault *fault)
{
    const struct spm_options options = {
        .byte_fallback = model->byte_fallback, .fuse_unknown = true, .unknown = model->unknown};
    struct spm *spm = NULL;
    int r = spm_open(&tokenizer->vocabulary, &options, &spm, fault);

    if (r < 0)
        return r;
    for (uint32_t id = 0; id < model->count; id++)
        spm_set_score(spm, (int32_t)id, model->pieces[id].score);
    tokenizer_use_spm(tokenizer, spm);
    return 0;
}

static int make_unigram(struct tokenizer *tokenizer, const struct sentencepiece *model,
                        struct fault *fault)
{
    const struct unigram_options options = {
        .single_precision = true, .byte_fallback = model->byte_fallback, .unknown = model->unknown};
    struct unigram *unigram = NULL;
    int r = unigram_open(&tokenizer->vocabulary, &options, &unigram, fault);

    if (r < 0)
        return r;
    tokenizer_use_unigram(tokenizer, unigram);
    for (uint32_t id = 0; id < model->count; id++) {
        const struct sentencepiece_piece *piece = &model->pieces[id];

        if (piece->type == TOKEN_NORMAL)
            unigram_see_score(unigram, (double)piece->score);
        if ((piece->type == TOKEN_NORMAL || piece->type == TOKEN_USER_DEFINED) &&
            unigram_add(unigram, (int32_t)id, (double)piece->score,
                        piece->type == TOKEN_USER_DEFINED) < 0)
            return fault_set(fault, E_MEMORY, "out of memory for the tokenizer's scores");
    }
    return 0;
}

static int make_model(struct tokenizer *tokenizer, const struct sentencepiece *model,
                      struct fault *fault)
{
    return model->kind == SENTENCEPIECE_BPE ? make_bpe(tokenizer, model, fault)
                                            : make_unigram(tokenizer, model, fault);
}

static int make_tokenizer(struct tokenizer *tokenizer, const struct sentencepiece *model,
                          struct fault *fault)
{
    int r = make_vocabulary(&tokenizer->vocabulary, model, fault);

    if (r == 0)
        r = make_specials(model, TOKEN_CONTROL, &tokenizer->specials, fault);
    if (r == 0 && model->kind == SENTENCEPIECE_BPE) /* a unigram model takes them by their score */
        r = make_specials(model, TOKEN_USER_DEFINED, &tokenizer->normalized_specials, fault);
    if (r == 0)
        r = make_normalizer(tokenizer, model, fault);
    if (r == 0)
        r = make_model(tokenizer, model, fault);
    if (r < 0)
        return r;
    tokenizer->bos = model->bos;
    tokenizer->eos = model->eos;
    tokenizer->reads_controls_as_text = true;
    tokenizer->decode.bytes = BYTES_BY_TOKEN;
    tokenizer->decode.hides_controls = true;
    if (model->dummy_prefix || model->removes_spaces)
        tokenizer->decode.start = model->removes_spaces ? START_WITHOUT_ANY : START_WITHOUT_SPACE;
    /* What sentencepiece itself leaves to its caller: Llama's and its kin's classes add it. */
    if (model->bos >= 0)
        tokenizer->before.ids[tokenizer->before.count++] = model->bos;
    return 0;
}

int tokenizer_open_sentencepiece(const void *bytes, size_t count, struct tokenizer **ret_tokenizer,
                                 struct fault *fault)
{
    struct tokenizer *tokenizer = NULL;
    struct sentencepiece model;
    int r = sentencepiece_read(&model, bytes, count, fault);

    if (r < 0)
        return r;
    r = tokenizer_open_empty(&tokenizer, fault);
    if (r == 0)
        r = make_tokenizer(tokenizer, &model, fault);
    sentencepiece_fini(&model);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}
