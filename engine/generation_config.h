/* generation_config.h -- generation_config.json of a model's folder: how its makers draw tokens.
 *
 * Only what changes the distribution, the length or the end of an answer is read; "do_sample" is
 * not, as in vLLM: a request says with its temperature whether it samples. */
#ifndef WEFT_GENERATION_CONFIG_H
#define WEFT_GENERATION_CONFIG_H

#include <stdint.h>

#include "config/base/fault.h"

enum { GENERATION_END_TOKENS_MAX = 16 };

/* NAN, or -1 for integers: the file does not say. */
struct generation_config {
    double temperature;        /* 0 to 2 */
    double top_p;              /* 0 to 1 */
    double min_p;              /* 0 to 1 */
    double typical_p;          /* 0 to 1 */
    double repetition_penalty; /* 0.01 to 100 */
    int64_t top_k;             /* 0: all */
    int64_t max_new_tokens;    /* at least 1 */
    uint32_t end_count;        /* eos_token_id: none, one or a list; what does not fit is dropped */
    int32_t end_tokens[GENERATION_END_TOKENS_MAX];
};

/* A file that says nothing. */
void generation_config_init(struct generation_config *config);
/* `text` is the whole file. Codes: E_INVALID (the fault's field is the key), E_MEMORY. */
int generation_config_read(const char *text, size_t bytes, struct generation_config *ret_config,
                           struct fault *fault);
/* The folder's; one without such a file says nothing. */
int generation_config_open(const char *folder, struct generation_config *ret_config,
                           struct fault *fault);

#endif
