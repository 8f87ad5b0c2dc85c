/* tokenizer_gguf.h -- between the files that make a tokenizer out of a GGUF file's metadata. */
#ifndef WEFT_TOKENIZER_GGUF_H
#define WEFT_TOKENIZER_GGUF_H

#include "engine/text/tokenizer_internal.h"

/* What goes before and after a text, unless the file says otherwise. */
struct gguf_affixes {
    bool bos;
    bool eos;
    bool sep;
    int32_t sep_id;
};

/* Each makes what its model needs besides the vocabulary and the special tokens. */
int tokenizer_gguf_bpe(struct tokenizer *tokenizer, const struct gguf *file,
                       struct gguf_affixes *adds, struct fault *fault);
int tokenizer_gguf_bpe_coding(const struct gguf *file, enum piece_coding *ret_coding,
                              struct fault *fault);
int tokenizer_gguf_spm(struct tokenizer *tokenizer, const struct gguf *file,
                       struct gguf_affixes *adds, struct fault *fault);
int tokenizer_gguf_unigram(struct tokenizer *tokenizer, const struct gguf *file,
                           struct gguf_affixes *adds, struct fault *fault);
int tokenizer_gguf_bert(struct tokenizer *tokenizer, const struct gguf *file,
                        struct gguf_affixes *adds, struct fault *fault);

/* An id from the file: 0 when the key is absent (*ret_id stays). */
int tokenizer_gguf_id(const struct tokenizer *tokenizer, const struct gguf *file, const char *key,
                      int32_t *ret_id, struct fault *fault);
/* tokenizer.ggml.scores, one for each token. */
int tokenizer_gguf_scores(const struct gguf *file, const struct vocabulary *vocabulary,
                          struct gguf_array *ret_scores, struct fault *fault);

#endif
