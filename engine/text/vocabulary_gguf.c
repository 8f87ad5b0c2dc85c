/* vocabulary_gguf.c -- a vocabulary out of a GGUF file's metadata. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/vocabulary.h"

struct source {
    struct gguf_array tokens;
    struct gguf_array types; /* count 0: all are normal */
    size_t bytes;            /* of all pieces as the file writes them */
};

static int find_source(const struct gguf *file, struct source *ret_source, struct fault *fault)
{
    struct source source = {0};
    int r;

    r = gguf_get_array(file, "tokenizer.ggml.tokens", &source.tokens, fault);
    if (r < 0)
        return r;
    if (r == 0 || source.tokens.type != GGUF_STRING || source.tokens.count == 0)
        return fault_set(fault, E_CORRUPT, "%s: tokenizer.ggml.tokens is not a list of strings",
                         gguf_path(file));
    for (uint64_t i = 0; i < source.tokens.count; i++)
        source.bytes += gguf_array_string(&source.tokens, i).bytes;
    r = gguf_get_array(file, "tokenizer.ggml.token_type", &source.types, fault);
    if (r < 0)
        return r;
    if (r > 0 && (source.types.count != source.tokens.count || source.types.type == GGUF_STRING))
        return fault_set(fault, E_CORRUPT,
                         "%s: tokenizer.ggml.token_type does not match tokenizer.ggml.tokens",
                         gguf_path(file));
    *ret_source = source;
    return 0;
}

static enum token_type type_of(const struct source *source, uint32_t id)
{
    int64_t type = source->types.count > 0 ? gguf_array_int(&source->types, id) : TOKEN_NORMAL;

    return type >= TOKEN_NORMAL && type <= TOKEN_BYTE ? (enum token_type)type : TOKEN_NORMAL;
}

static void put_token(struct vocabulary *vocabulary, const struct source *source, uint32_t id,
                      enum piece_coding coding, char *room)
{
    struct gguf_string raw = gguf_array_string(&source->tokens, id);
    enum token_type type = type_of(source, id);
    int byte = type == TOKEN_BYTE ? piece_byte(raw.text, raw.bytes) : -1;
    struct vocabulary_entry entry = {.type = type,
                                     .indexed = type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED};

    if (byte >= 0) {
        vocabulary_put_byte(vocabulary, (uint8_t)byte, raw.text, raw.bytes);
        return;
    }
    if (coding == PIECES_SPACED) { /* texts are looked up as the file writes them */
        entry.key = raw.text;
        entry.key_bytes = raw.bytes;
    }
    entry.piece = room;
    entry.piece_bytes =
        piece_decode(type == TOKEN_NORMAL ? coding : PIECES_PLAIN, raw.text, raw.bytes, room, NULL);
    vocabulary_put(vocabulary, &entry);
}

int vocabulary_init_gguf(struct vocabulary *vocabulary, const struct gguf *file,
                         enum piece_coding coding, struct fault *fault)
{
    struct source source;
    size_t longest = 1;
    char *room;
    int r;

    r = find_source(file, &source, fault);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < source.tokens.count; i++)
        if (gguf_array_string(&source.tokens, i).bytes > longest)
            longest = gguf_array_string(&source.tokens, i).bytes;
    r = vocabulary_init(vocabulary, source.tokens.count, source.bytes, coding == PIECES_SPACED,
                        fault);
    if (r < 0) {
        (void)fault_prefix(fault, "%s", gguf_path(file));
        return r;
    }
    room = malloc(longest);
    if (!room) {
        vocabulary_fini(vocabulary);
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary of %s",
                         gguf_path(file));
    }
    for (uint32_t id = 0; id < source.tokens.count; id++)
        put_token(vocabulary, &source, id, coding, room);
    free(room);
    return 0;
}
