/* vocabulary.c -- see vocabulary.h. */
#include "engine/text/vocabulary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- how files write pieces ---- */

/* GPT-2 writes the printable bytes of Latin-1 as themselves and the 68 others, in order, as U+0100
 * and up (OpenAI's bytes_to_unicode). Returns -1 for what is not in that alphabet. */
static int alphabet_byte(uint32_t character)
{
    if ((character >= 33 && character <= 126) || (character >= 161 && character <= 172) ||
        (character >= 174 && character <= 255))
        return (int)character;
    if (character < 256 || character >= 256 + 68)
        return -1;
    character -= 256;
    if (character < 33)
        return (int)character; /* 0..32 */
    if (character < 33 + 34)
        return (int)character - 33 + 127; /* 127..160 */
    return 173;
}

static size_t decode_byte_level(struct gguf_string raw, char *ret_bytes)
{
    const uint8_t *at = (const uint8_t *)raw.text, *end = at + raw.bytes;
    size_t used = 0;

    while (at < end) {
        uint32_t character = *at++;
        int byte;

        /* The alphabet ends at U+0143: one or two bytes of UTF-8. */
        if (character >= 0xc2 && character <= 0xc5 && at < end && (*at & 0xc0) == 0x80)
            character = (character & 0x1f) << 6 | (*at++ & 0x3f);
        else if (character >= 0x80)
            character = UINT32_MAX;
        byte = alphabet_byte(character);
        if (byte < 0) {
            memcpy(ret_bytes, raw.text, raw.bytes);
            return raw.bytes;
        }
        ret_bytes[used++] = (char)byte;
    }
    return used;
}

static size_t decode_spaced(struct gguf_string raw, char *ret_bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < raw.bytes;) {
        if (raw.bytes - i >= 3 && memcmp(raw.text + i, "\xe2\x96\x81", 3) == 0) {
            ret_bytes[used++] = ' ';
            i += 3;
        } else {
            ret_bytes[used++] = raw.text[i++];
        }
    }
    return used;
}

size_t piece_decode(enum piece_coding coding, struct gguf_string raw, char *ret_bytes)
{
    if (raw.bytes == 0)
        return 0;
    return coding == PIECES_BYTE_LEVEL ? decode_byte_level(raw, ret_bytes)
                                       : decode_spaced(raw, ret_bytes);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" -> 10, anything else -> -1 */
static int byte_token(struct gguf_string raw)
{
    int high, low;

    if (raw.bytes != 6 || memcmp(raw.text, "<0x", 3) != 0 || raw.text[5] != '>')
        return -1;
    high = hex_digit(raw.text[3]);
    low = hex_digit(raw.text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* ---- the index ---- */

static uint64_t hash_bytes(const char *bytes, size_t count)
{
    uint64_t hash = count * 0x9e3779b97f4a7c15u, word;

    for (; count >= 8; bytes += 8, count -= 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, bytes, count);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

const char *vocabulary_piece(const struct vocabulary *vocabulary, int32_t id, size_t *ret_bytes)
{
    *ret_bytes = vocabulary->offsets[id + 1] - vocabulary->offsets[id];
    return vocabulary->bytes + vocabulary->offsets[id];
}

/* Where these bytes are, or the free slot where they would be. */
static uint32_t slot_of(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    uint32_t slot = (uint32_t)hash_bytes(bytes, count) & vocabulary->slot_mask;

    while (vocabulary->slots[slot] >= 0) {
        size_t piece_bytes;
        const char *piece = vocabulary_piece(vocabulary, vocabulary->slots[slot], &piece_bytes);

        if (piece_bytes == count && memcmp(piece, bytes, count) == 0)
            break;
        slot = (slot + 1) & vocabulary->slot_mask;
    }
    return slot;
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    if (count == 0 || count > vocabulary->piece_bytes_max)
        return -1;
    return vocabulary->slots[slot_of(vocabulary, bytes, count)];
}

static void index_pieces(struct vocabulary *vocabulary)
{
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        enum token_type type = vocabulary->types[id];
        size_t bytes;
        const char *piece = vocabulary_piece(vocabulary, (int32_t)id, &bytes);

        if ((type != TOKEN_NORMAL && type != TOKEN_USER_DEFINED) || bytes == 0)
            continue;
        vocabulary->slots[slot_of(vocabulary, piece, bytes)] = (int32_t)id;
        if (bytes > vocabulary->piece_bytes_max)
            vocabulary->piece_bytes_max = (uint32_t)bytes;
    }
}

/* ---- reading ---- */

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
    if (source.tokens.count > VOCABULARY_COUNT_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s: a vocabulary of %" PRIu64 " tokens, more than %d",
                         gguf_path(file), source.tokens.count, VOCABULARY_COUNT_MAX);
    for (uint64_t i = 0; i < source.tokens.count; i++)
        source.bytes += gguf_array_string(&source.tokens, i).bytes;
    if (source.bytes > INT32_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s: the vocabulary's pieces take %zu bytes",
                         gguf_path(file), source.bytes);
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

static void read_pieces(struct vocabulary *vocabulary, const struct source *source,
                        enum piece_coding coding)
{
    uint32_t used = 0;

    for (uint32_t id = 0; id < vocabulary->count; id++) {
        struct gguf_string raw = gguf_array_string(&source->tokens, id);
        enum token_type type = type_of(source, id);
        int byte = type == TOKEN_BYTE ? byte_token(raw) : -1;
        char *to = vocabulary->bytes + used;

        vocabulary->types[id] = (uint8_t)type;
        vocabulary->offsets[id] = used;
        if (byte >= 0) {
            *to = (char)byte;
            vocabulary->byte_tokens[byte] = (int32_t)id;
            used++;
        } else if (type == TOKEN_NORMAL) {
            used += (uint32_t)piece_decode(coding, raw, to);
        } else if (raw.bytes > 0) {
            memcpy(to, raw.text, raw.bytes);
            used += (uint32_t)raw.bytes;
        }
    }
    vocabulary->offsets[vocabulary->count] = used;
}

int vocabulary_init_gguf(struct vocabulary *vocabulary, const struct gguf *file,
                         enum piece_coding coding, struct fault *fault)
{
    struct source source;
    size_t slot_count = 16;
    int r;

    memset(vocabulary, 0, sizeof *vocabulary);
    r = find_source(file, &source, fault);
    if (r < 0)
        return r;
    vocabulary->count = (uint32_t)source.tokens.count;
    while (slot_count < 2 * (size_t)vocabulary->count)
        slot_count *= 2;
    vocabulary->slot_mask = (uint32_t)slot_count - 1;
    vocabulary->bytes = malloc(source.bytes + 1);
    vocabulary->offsets = calloc((size_t)vocabulary->count + 1, sizeof *vocabulary->offsets);
    vocabulary->types = calloc(vocabulary->count, sizeof *vocabulary->types);
    vocabulary->slots = malloc(slot_count * sizeof *vocabulary->slots);
    if (!vocabulary->bytes || !vocabulary->offsets || !vocabulary->types || !vocabulary->slots) {
        vocabulary_fini(vocabulary);
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary of %s",
                         gguf_path(file));
    }
    memset(vocabulary->slots, 0xff, slot_count * sizeof *vocabulary->slots);
    memset(vocabulary->byte_tokens, 0xff, sizeof vocabulary->byte_tokens);
    read_pieces(vocabulary, &source, coding);
    index_pieces(vocabulary);
    return 0;
}

void vocabulary_fini(struct vocabulary *vocabulary)
{
    free(vocabulary->bytes);
    free(vocabulary->offsets);
    free(vocabulary->types);
    free(vocabulary->slots);
    memset(vocabulary, 0, sizeof *vocabulary);
}
