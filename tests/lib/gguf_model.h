/* gguf_model.h -- the model of a GGUF file that a test has open. */
#ifndef WEFT_TESTS_GGUF_MODEL_H
#define WEFT_TESTS_GGUF_MODEL_H

#include "engine/model.h"

/* As model_open(). Its weights lie in the file, so that the checkpoint need not stay. */
static inline int gguf_model_open(const struct gguf *file, struct model **ret_model,
                                  struct fault *fault)
{
    struct checkpoint *checkpoint = NULL;
    int r = checkpoint_open_gguf(file, &checkpoint, fault);

    if (r == 0)
        r = model_open(checkpoint, ret_model, fault);
    checkpoint_close(checkpoint);
    return r;
}

#endif
