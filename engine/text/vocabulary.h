/* vocabulary.h -- the pieces of a vocabulary: id to bytes, and bytes to id.
 *
 *     offsets  [ 0 | 1 | 4 | 9 ...      bytes  [ ! | t h e | h e l l o ...      slots  hash -> id
 *
 * Pieces are kept as the bytes that they add to a text, whatever the file writes for them. The
 * index holds only the tokens that plain text may become: never a control token, so that no text
 * can smuggle one in by merging. Embedded in the tokenizer; immutable after init. */
#ifndef WEFT_VOCABULARY_H
#define WEFT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/gguf.h"

enum { VOCABULARY_COUNT_MAX = 1 << 24 };

/* tokenizer.ggml.token_type, numbered as in the file. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED, /* recognized in any text, and shown */
    TOKEN_UNUSED,
    TOKEN_BYTE, /* "<0x0A>": stands for one byte that nothing else could express */
};

/* How the file writes a piece. */
enum piece_coding {
    PIECES_BYTE_LEVEL, /* GPT-2's alphabet: a printable character for each byte */
    PIECES_SPACED,     /* UTF-8 with U+2581 for the space, byte tokens as "<0x0A>" */
};

struct vocabulary {
    uint32_t count;
    uint32_t piece_bytes_max; /* of the indexed ones */
    char *bytes;
    uint32_t *offsets; /* [count + 1] */
    uint8_t *types;    /* [count] enum token_type */
    int32_t *slots;    /* the index: open addressing, -1 = free */
    uint32_t slot_mask;
    int32_t byte_tokens[256]; /* the TOKEN_BYTE of each byte, -1: none */
};

/* Reads tokenizer.ggml.tokens and .token_type. On failure nothing is left to free. */
int vocabulary_init_gguf(struct vocabulary *vocabulary, const struct gguf *file,
                         enum piece_coding coding, struct fault *fault);
void vocabulary_fini(struct vocabulary *vocabulary);

/* `id` < count. */
const char *vocabulary_piece(const struct vocabulary *vocabulary, int32_t id, size_t *ret_bytes);
/* The token that is exactly these bytes; of equal ones the last. -1: none. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count);

/* Turns a piece as the file writes it into its bytes (at most raw.bytes of them) and returns their
 * number. A byte-level piece with a character outside the alphabet stands for itself. */
size_t piece_decode(enum piece_coding coding, struct gguf_string raw, char *ret_bytes);

#endif
