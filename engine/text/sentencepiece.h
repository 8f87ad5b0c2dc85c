/* sentencepiece.h -- a sentencepiece model file (tokenizer.model), read.
 *
 * The file is a protocol buffer, sentencepiece_model.proto's ModelProto. Only its wire format is
 * needed: records of a field number, a wire type and a value, in any order; fields that are not
 * known are passed over. Nothing is copied: pieces point into the file's bytes. */
#ifndef WEFT_SENTENCEPIECE_H
#define WEFT_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/vocabulary.h"

enum sentencepiece_kind { SENTENCEPIECE_UNIGRAM = 1, SENTENCEPIECE_BPE = 2 };

struct sentencepiece_piece {
    const char *text; /* well-formed UTF-8 */
    uint32_t bytes;
    float score;
    enum token_type type; /* the file numbers them as GGUF does */
};

struct sentencepiece {
    struct sentencepiece_piece *pieces; /* the index is the id */
    uint32_t count;
    enum sentencepiece_kind kind;
    bool byte_fallback;
    int32_t unknown; /* -1: none */
    int32_t bos;
    int32_t eos;
    /* How texts are normalized. */
    const void *charsmap; /* charsmap.h; 0 bytes: none */
    size_t charsmap_bytes;
    bool dummy_prefix;    /* a space before the text */
    bool removes_spaces;  /* at the ends, and but one of several */
    bool escapes_spaces;  /* U+2581 for a space */
    bool space_is_suffix; /* the dummy goes behind the text */
};

/* `bytes` outlives it. E_CORRUPT for what is no such file, E_UNSUPPORTED for another kind of
 * model. */
int sentencepiece_read(struct sentencepiece *model, const void *bytes, size_t count,
                       struct fault *fault);
void sentencepiece_fini(struct sentencepiece *model);

#endif
