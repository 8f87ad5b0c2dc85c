/* quantize_tokenizer.h -- a folder's tokenizer as the keys of a GGUF file.
 *
 * Byte-level BPE whose splits GGUF has a name for becomes tokenizer.ggml.*: the vocabulary with its
 * kinds, the merges, the special tokens and whether BOS goes before a text. The chat template is
 * kept with any tokenizer. */
#ifndef WEFT_QUANTIZE_TOKENIZER_H
#define WEFT_QUANTIZE_TOKENIZER_H

#include "engine/gguf_write.h"
#include "engine/model.h"

/* Returns 1; 0 where the folder has no tokenizer.json or one that GGUF's keys cannot tell: then the
 * file has none. Faults: JSON that is broken, memory. */
int quantize_tokenizer(const char *folder, const struct model *model, struct gguf_writer *writer,
                       struct fault *fault);

#endif
