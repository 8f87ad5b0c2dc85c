/* sentencepiece.c -- see sentencepiece.h.
 *
 * (protobuf.dev, "Encoding": a key is a varint, field number << 3 | wire type; wire types are
 * 0 varint, 1 eight bytes, 2 a length and that many bytes, 5 four bytes.) */
#include "engine/text/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

enum { WIRE_VARINT = 0, WIRE_EIGHT = 1, WIRE_BYTES = 2, WIRE_FOUR = 5 };

struct message {
    const uint8_t *at;
    const uint8_t *end;
};

struct field {
    uint32_t number;
    uint64_t value;       /* of a number */
    struct message bytes; /* of bytes */
    int wire;
};

static bool read_varint(struct message *message, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        uint8_t byte = *message->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct message *message, size_t bytes, uint64_t *ret_value)
{
    uint64_t value = 0;

    if ((size_t)(message->end - message->at) < bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)message->at[i] << 8 * i;
    message->at += bytes;
    *ret_value = value;
    return true;
}

/* 1, 0 at the end, E_CORRUPT. */
static int next_field(struct message *message, struct field *ret_field)
{
    struct field field = {0};
    uint64_t key, bytes;

    if (message->at == message->end)
        return 0;
    if (!read_varint(message, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return E_CORRUPT;
    field.number = (uint32_t)(key >> 3);
    field.wire = (int)(key & 7);
    switch (field.wire) {
    case WIRE_VARINT:
        if (!read_varint(message, &field.value))
            return E_CORRUPT;
        break;
    case WIRE_EIGHT:
        if (!read_fixed(message, 8, &field.value))
            return E_CORRUPT;
        break;
    case WIRE_FOUR:
        if (!read_fixed(message, 4, &field.value))
            return E_CORRUPT;
        break;
    case WIRE_BYTES:
        if (!read_varint(message, &bytes) || bytes > (size_t)(message->end - message->at))
            return E_CORRUPT;
        field.bytes = (struct message){message->at, message->at + bytes};
        message->at += bytes;
        break;
    default:
        return E_CORRUPT;
    }
    *ret_field = field;
    return 1;
}

/* ---- what the file says ---- */

static bool is_well_formed(const char *text, size_t bytes)
{
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (!utf8_next(text + at, bytes - at, &taken, NULL))
            return false;
    return true;
}

static int read_piece(struct message message, struct sentencepiece_piece *ret_piece)
{
    struct sentencepiece_piece piece = {.text = "", .type = TOKEN_NORMAL};
    struct field field;
    int r;

    while ((r = next_field(&message, &field)) > 0) {
        if (field.number == 1 && field.wire == WIRE_BYTES) {
            size_t bytes = (size_t)(field.bytes.end - field.bytes.at);

            if (bytes > INT32_MAX || !is_well_formed((const char *)field.bytes.at, bytes))
                return E_CORRUPT;
            piece.text = (const char *)field.bytes.at;
            piece.bytes = (uint32_t)bytes;
        } else if (field.number == 2 && field.wire == WIRE_FOUR) {
            uint32_t bits = (uint32_t)field.value;

            memcpy(&piece.score, &bits, sizeof bits);
        } else if (field.number == 3 && field.wire == WIRE_VARINT) {
            if (field.value < TOKEN_NORMAL || field.value > TOKEN_BYTE)
                return E_CORRUPT;
            piece.type = (enum token_type)field.value;
        }
    }
    *ret_piece = piece;
    return r;
}

static int read_trainer(struct message message, struct sentencepiece *model)
{
    struct field field;
    int r;

    while ((r = next_field(&message, &field)) > 0) {
        if (field.wire != WIRE_VARINT)
            continue;
        switch (field.number) {
        case 3:
            if (field.value > 4)
                return E_CORRUPT;
            model->kind = (enum sentencepiece_kind)field.value;
            break;
        case 24:
            model->space_is_suffix = field.value != 0;
            break;
        case 35:
            model->byte_fallback = field.value != 0;
            break;
        case 40:
            model->unknown = (int32_t)field.value;
            break;
        case 41:
            model->bos = (int32_t)field.value;
            break;
        case 42:
            model->eos = (int32_t)field.value;
            break;
        default:
            break;
        }
    }
    return r;
}

static int read_normalizer(struct message message, struct sentencepiece *model)
{
    struct field field;
    int r;

    while ((r = next_field(&message, &field)) > 0) {
        if (field.number == 2 && field.wire == WIRE_BYTES) {
            model->charsmap = field.bytes.at;
            model->charsmap_bytes = (size_t)(field.bytes.end - field.bytes.at);
        }
        if (field.wire != WIRE_VARINT)
            continue;
        if (field.number == 3)
            model->dummy_prefix = field.value != 0;
        else if (field.number == 4)
            model->removes_spaces = field.value != 0;
        else if (field.number == 5)
            model->escapes_spaces = field.value != 0;
    }
    return r;
}

static int count_pieces(struct message message, uint32_t *ret_count)
{
    struct field field;
    uint32_t count = 0;
    int r;

    while ((r = next_field(&message, &field)) > 0) {
        if (field.number == 1 && field.wire == WIRE_BYTES && ++count > VOCABULARY_COUNT_MAX)
            return E_CORRUPT;
    }
    *ret_count = count;
    return r;
}

static int read_parts(struct message message, struct sentencepiece *model)
{
    struct field field;
    int r;

    while ((r = next_field(&message, &field)) > 0) {
        if (field.wire != WIRE_BYTES)
            continue;
        if (field.number == 1)
            r = read_piece(field.bytes, &model->pieces[model->count++]);
        else if (field.number == 2)
            r = read_trainer(field.bytes, model);
        else if (field.number == 3)
            r = read_normalizer(field.bytes, model);
        if (r < 0)
            break;
    }
    return r;
}

static int32_t checked_id(const struct sentencepiece *model, int32_t id)
{
    return id >= 0 && (uint32_t)id < model->count ? id : -1;
}

int sentencepiece_read(struct sentencepiece *model, const void *bytes, size_t count,
                       struct fault *fault)
{
    const struct message all = {bytes, (const uint8_t *)bytes + count};
    uint32_t pieces = 0;
    int r;

    /* What the format has where a field is not written. */
    *model = (struct sentencepiece){.kind = SENTENCEPIECE_UNIGRAM,
                                    .bos = 1,
                                    .eos = 2,
                                    .dummy_prefix = true,
                                    .removes_spaces = true,
                                    .escapes_spaces = true};
    r = count_pieces(all, &pieces);
    if (r < 0 || pieces == 0)
        return fault_set(fault, E_CORRUPT, "it is no sentencepiece model");
    model->pieces = calloc(pieces, sizeof *model->pieces);
    if (!model->pieces)
        return fault_set(fault, E_MEMORY, "out of memory for %u pieces", pieces);
    r = read_parts(all, model);
    if (r < 0)
        r = fault_set(fault, E_CORRUPT, "the sentencepiece model is broken");
    else if (model->kind != SENTENCEPIECE_UNIGRAM && model->kind != SENTENCEPIECE_BPE)
        r = fault_set(fault, E_UNSUPPORTED,
                      "sentencepiece models of whole words or characters are not supported by this "
                      "version");
    if (r < 0) {
        sentencepiece_fini(model);
        return r;
    }
    model->unknown = checked_id(model, model->unknown);
    model->bos = checked_id(model, model->bos);
    model->eos = checked_id(model, model->eos);
    return 0;
}

void sentencepiece_fini(struct sentencepiece *model)
{
    free(model->pieces);
    *model = (struct sentencepiece){0};
}
