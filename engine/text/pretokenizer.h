/* pretokenizer.h -- cuts a text into the pieces that a byte-level BPE then merges, one by one.
 *
 * The cut is part of the model: another one gives other ids. GGUF names it (tokenizer.ggml.pre);
 * each name is a row of a table with one to five patterns. The first cuts the text into matches
 * and what lies between them, the next cuts each of those pieces, on its own, further.
 *
 *     smollm:   "in 2024"   --\p{N}-->             "in " | "2" | "0" | "2" | "4"
 *                           --GPT-2's pattern-->   "in" | " " | "2" | "0" | "2" | "4"
 *
 * Immutable after opening; any thread cuts. */
#ifndef WEFT_PRETOKENIZER_H
#define WEFT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/fault.h"
#include "engine/gguf.h"

struct pretokenizer;

/* What else the makers' tokenizer of that name does. */
struct pretokenizer_traits {
    bool whole_pieces; /* a piece that is a token by itself is not merged */
    bool adds_bos;     /* unless the file says otherwise */
    bool nfc;          /* text is brought into normalization form C first */
};

/* E_UNSUPPORTED for a name that is not in the table (with the list of those that are). */
int pretokenizer_open(struct gguf_string name, struct pretokenizer **ret_pretokenizer,
                      struct fault *fault);
void pretokenizer_close(struct pretokenizer *pretokenizer); /* NULL is fine */
const struct pretokenizer_traits *pretokenizer_traits(const struct pretokenizer *pretokenizer);

/* Gives every piece, in order, to `piece`; together they are the whole text, which is well-formed
 * UTF-8. Stops at the first that returns a negative code and returns it. */
int pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                       int (*piece)(void *data, const char *text, size_t bytes), void *data,
                       struct fault *fault);

#endif
