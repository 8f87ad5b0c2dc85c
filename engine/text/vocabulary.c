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

static size_t decode_byte_level(const char *raw, size_t count, char *ret_bytes, bool *ret_whole)
{
    const uint8_t *at = (const uint8_t *)raw, *end = at + count;
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
            memcpy(ret_bytes, raw, count);
            *ret_whole = false;
            return count;
        }
        ret_bytes[used++] = (char)byte;
    }
    return used;
}

static size_t decode_spaced(const char *raw, size_t count, char *ret_bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < count;) {
        if (count - i >= 3 && memcmp(raw + i, "\xe2\x96\x81", 3) == 0) {
            ret_bytes[used++] = ' ';
            i += 3;
        } else {
            ret_bytes[used++] = raw[i++];
        }
    }
    return used;
}

size_t piece_decode(enum piece_coding coding, const char *raw, size_t count, char *ret_bytes,
                    bool *ret_whole)
{
    bool whole = true;
    size_t used = 0;

    if (count > 0 && coding == PIECES_BYTE_LEVEL) {
        used = decode_byte_level(raw, count, ret_bytes, &whole);
    } else if (count > 0 && coding == PIECES_SPACED) {
        used = decode_spaced(raw, count, ret_bytes);
    } else if (count > 0) {
        memcpy(ret_bytes, raw, count);
        used = count;
    }
    if (ret_whole)
        *ret_whole = whole;
    return used;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int piece_byte(const char *raw, size_t count)
{
    int high, low;

    if (count != 6 || memcmp(raw, "<0x", 3) != 0 || raw[5] != '>')
        return -1;
    high = hex_digit(raw[3]);
    low = hex_digit(raw[4]);
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

const char *vocabulary_key(const struct vocabulary *vocabulary, int32_t id, size_t *ret_bytes)
{
    *ret_bytes = vocabulary->key_offsets[id + 1] - vocabulary->key_offsets[id];
    return vocabulary->keys + vocabulary->key_offsets[id];
}

/* Where this key is, or the free slot where it would be. */
static uint32_t slot_of(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    uint32_t slot = (uint32_t)hash_bytes(bytes, count) & vocabulary->slot_mask;

    while (vocabulary->slots[slot] >= 0) {
        size_t key_bytes;
        const char *key = vocabulary_key(vocabulary, vocabulary->slots[slot], &key_bytes);

        if (key_bytes == count && memcmp(key, bytes, count) == 0)
            break;
        slot = (slot + 1) & vocabulary->slot_mask;
    }
    return slot;
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    if (count == 0 || count > vocabulary->key_bytes_max)
        return -1;
    return vocabulary->slots[slot_of(vocabulary, bytes, count)];
}

/* ---- making ---- */

int vocabulary_init(struct vocabulary *vocabulary, uint64_t room, size_t bytes, bool with_keys,
                    struct fault *fault)
{
    size_t slot_count = 16;
    bool whole;

    memset(vocabulary, 0, sizeof *vocabulary);
    if (room > VOCABULARY_COUNT_MAX)
        return fault_set(fault, E_TOO_LARGE, "a vocabulary of %" PRIu64 " tokens, more than %d",
                         room, VOCABULARY_COUNT_MAX);
    if (bytes > INT32_MAX)
        return fault_set(fault, E_TOO_LARGE, "the vocabulary's pieces take %zu bytes", bytes);
    while (slot_count < 2 * room)
        slot_count *= 2;
    vocabulary->room = (uint32_t)room;
    vocabulary->bytes_room = (uint32_t)bytes;
    vocabulary->slot_mask = (uint32_t)slot_count - 1;
    vocabulary->bytes = malloc(bytes + 1);
    vocabulary->offsets = calloc(room + 1, sizeof *vocabulary->offsets);
    vocabulary->keys = with_keys ? malloc(bytes + 1) : vocabulary->bytes;
    vocabulary->key_offsets =
        with_keys ? calloc(room + 1, sizeof *vocabulary->key_offsets) : vocabulary->offsets;
    vocabulary->types = calloc(room + 1, sizeof *vocabulary->types);
    vocabulary->slots = malloc(slot_count * sizeof *vocabulary->slots);
    whole = vocabulary->bytes && vocabulary->offsets && vocabulary->keys &&
            vocabulary->key_offsets && vocabulary->types && vocabulary->slots;
    if (!whole) {
        vocabulary_fini(vocabulary);
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    }
    memset(vocabulary->slots, 0xff, slot_count * sizeof *vocabulary->slots);
    memset(vocabulary->byte_tokens, 0xff, sizeof vocabulary->byte_tokens);
    return 0;
}

void vocabulary_fini(struct vocabulary *vocabulary)
{
    if (vocabulary->keys != vocabulary->bytes)
        free(vocabulary->keys);
    if (vocabulary->key_offsets != vocabulary->offsets)
        free(vocabulary->key_offsets);
    free(vocabulary->bytes);
    free(vocabulary->offsets);
    free(vocabulary->types);
    free(vocabulary->slots);
    memset(vocabulary, 0, sizeof *vocabulary);
}

size_t vocabulary_left(const struct vocabulary *vocabulary)
{
    return vocabulary->bytes_room - vocabulary->offsets[vocabulary->count];
}

static void append(const struct vocabulary *vocabulary, char *bytes, uint32_t *offsets,
                   const char *text, size_t count)
{
    uint32_t at = offsets[vocabulary->count];

    must(count <= vocabulary->bytes_room - at);
    if (count > 0)
        memcpy(bytes + at, text, count);
    offsets[vocabulary->count + 1] = at + (uint32_t)count;
}

void vocabulary_put(struct vocabulary *vocabulary, const struct vocabulary_entry *entry)
{
    bool has_keys = vocabulary->keys != vocabulary->bytes;
    size_t key_bytes;
    const char *key;

    must(vocabulary->count < vocabulary->room);
    append(vocabulary, vocabulary->bytes, vocabulary->offsets, entry->piece, entry->piece_bytes);
    if (has_keys)
        append(vocabulary, vocabulary->keys, vocabulary->key_offsets, entry->key, entry->key_bytes);
    vocabulary->types[vocabulary->count] = (uint8_t)entry->type;
    key = vocabulary_key(vocabulary, (int32_t)vocabulary->count, &key_bytes);
    if (entry->indexed && key_bytes > 0) {
        vocabulary->slots[slot_of(vocabulary, key, key_bytes)] = (int32_t)vocabulary->count;
        if (key_bytes > vocabulary->key_bytes_max)
            vocabulary->key_bytes_max = (uint32_t)key_bytes;
    }
    vocabulary->count++;
}

void vocabulary_put_byte(struct vocabulary *vocabulary, uint8_t byte, const char *key,
                         size_t key_bytes)
{
    vocabulary->byte_tokens[byte] = (int32_t)vocabulary->count;
    vocabulary_put(vocabulary, &(struct vocabulary_entry){.type = TOKEN_BYTE,
                                                          .piece = (const char *)&byte,
                                                          .piece_bytes = 1,
                                                          .key = key,
                                                          .key_bytes = key_bytes});
}
