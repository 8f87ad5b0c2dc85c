/* vocabulary.h -- the pieces of a vocabulary: id to bytes, and bytes to id.
 *
 *     offsets  [ 0 | 1 | 4 | 9 ...      bytes  [ ! | t h e | h e l l o ...      slots  hash -> id
 *
 * A token has two texts: its piece, the bytes that it adds to a text, and its key, which the model
 * looks for when it encodes. They differ where a file marks the start or the middle of a word
 * ("\xe2\x96\x81the", "##ing"). The index holds only the tokens that plain text may become: never a
 * control token, so that no text can smuggle one in by merging. Embedded in the tokenizer;
 * immutable after init. */
#ifndef WEFT_VOCABULARY_H
#define WEFT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/gguf.h"

enum { VOCABULARY_COUNT_MAX = 1 << 24 };

/* Numbered as in GGUF's tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED, /* recognized in any text, and shown */
    TOKEN_UNUSED,
    TOKEN_BYTE, /* "<0x0A>": stands for one byte that nothing else could express */
};

/* How files write pieces. */
enum piece_coding {
    PIECES_PLAIN,      /* as they are */
    PIECES_BYTE_LEVEL, /* GPT-2's alphabet: a printable character for each byte */
    PIECES_SPACED,     /* UTF-8 with U+2581 for the space, byte tokens as "<0x0A>" */
};

struct vocabulary {
    uint32_t count;
    uint32_t room;
    uint32_t key_bytes_max; /* of the indexed ones */
    char *bytes;
    uint32_t *offsets; /* [count + 1] */
    char *keys;        /* the same as bytes and offsets, where the vocabulary has no others */
    uint32_t *key_offsets;
    uint32_t bytes_room;
    uint8_t *types; /* [count] enum token_type */
    int32_t *slots; /* the index: open addressing, -1 = free */
    uint32_t slot_mask;
    int32_t byte_tokens[256]; /* the TOKEN_BYTE of each byte, -1: none */
};

/* Making one: room for `room` tokens whose pieces, and whose keys, are `bytes` long in all;
 * `with_keys`: those differ. Then the tokens in the order of their ids, then the index. On failure
 * nothing is left to free. */
int vocabulary_init(struct vocabulary *vocabulary, uint64_t room, size_t bytes, bool with_keys,
                    struct fault *fault);
struct vocabulary_entry {
    enum token_type type;
    const char *piece;
    size_t piece_bytes;
    const char *key; /* without keys of its own the vocabulary takes the piece */
    size_t key_bytes;
    bool indexed; /* the model may find it */
};
/* What is left of the room for pieces. */
size_t vocabulary_left(const struct vocabulary *vocabulary);
void vocabulary_put(struct vocabulary *vocabulary, const struct vocabulary_entry *entry);
/* A byte token is one whose type says so and whose text reads "<0x0A>". */
void vocabulary_put_byte(struct vocabulary *vocabulary, uint8_t byte, const char *key,
                         size_t key_bytes);
void vocabulary_fini(struct vocabulary *vocabulary);

/* Reads tokenizer.ggml.tokens and .token_type. On failure nothing is left to free. */
int vocabulary_init_gguf(struct vocabulary *vocabulary, const struct gguf *file,
                         enum piece_coding coding, struct fault *fault);

/* `id` < count. */
const char *vocabulary_piece(const struct vocabulary *vocabulary, int32_t id, size_t *ret_bytes);
const char *vocabulary_key(const struct vocabulary *vocabulary, int32_t id, size_t *ret_bytes);
/* The token whose key is exactly these bytes; of equal ones the last. -1: none. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count);

/* Turns a piece as the file writes it into its bytes (at most `count` of them) and returns their
 * number. A byte-level piece with a character outside the alphabet stands for itself: *ret_whole is
 * false then (it may be NULL). */
size_t piece_decode(enum piece_coding coding, const char *raw, size_t count, char *ret_bytes,
                    bool *ret_whole);
/* "<0x0A>" -> 10, anything else -> -1 */
int piece_byte(const char *raw, size_t count);

#endif
