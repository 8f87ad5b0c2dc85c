/* model_quantize.h -- any model that is read here, written as a GGUF file in another number format.
 *
 * Matrices become the wanted type; norms, biases, a mixture's router and other small things stay as
 * they are. Where a row is no whole number of blocks, the type is the next that fits: Q4_K becomes
 * Q5_0, Q6_K becomes Q8_0, and those of 32 become F16. With types of four bits the head (or the
 * embedding, where it is the head too) is Q6_K. So does llama.cpp.
 *
 * A GGUF file's keys are kept. A folder's are made of its config.json (quantize_list.h); that file
 * is read back before it gets its name, and must describe the same model. */
#ifndef WEFT_MODEL_QUANTIZE_H
#define WEFT_MODEL_QUANTIZE_H

#include "engine/engine.h"
#include "kernels/dtype.h"

enum quantize_type {
    QUANTIZE_Q8_0,
    QUANTIZE_Q4_0,
    QUANTIZE_Q4_1,
    QUANTIZE_Q4_K,
    QUANTIZE_Q6_K,
    QUANTIZE_F16,
    QUANTIZE_BF16,
};

struct quantize_options {
    const char *from; /* what checkpoint_open() takes */
    const char *to;
    enum quantize_type type;
    bool overwrite;
    uint32_t threads; /* 0: as many as there are */
    struct engine_progress progress;
};

struct quantize_summary {
    uint32_t tensors[DTYPE_COUNT];
    uint64_t bytes[DTYPE_COUNT];
    uint64_t elements; /* of all tensors */
    uint64_t file_bytes;
    bool tokenizer;           /* false: a folder's, which GGUF's keys cannot tell, or it has none */
    uint32_t fallback_count;  /* tensors whose rows were no whole blocks of the wanted type */
    char fallback[96];        /* the first one's name */
    enum dtype fallback_type; /* what it became */
};

/* Writes `to`.partial, which becomes `to` when everything has reached the disk; after a failure
 * nothing is left. Memory: the model stays in its mapped files; beside them a few MiB and a row of
 * floats for each thread. Faults: those of checkpoint_open(); a file that exists, or the rest of a
 * run that was killed; a number that the type cannot hold (by the tensor's name); a disk that is
 * full or refuses. */
int model_quantize(const struct quantize_options *options, struct quantize_summary *ret_summary,
                   struct fault *fault);

#endif
