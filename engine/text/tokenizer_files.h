/* tokenizer_files.h -- tokenizers out of the bytes of one file, a function for each format.
 *
 * What stands in the files beside it (tokenizer_config.json) is the folder's part:
 * tokenizer_dir.c. */
#ifndef WEFT_TOKENIZER_FILES_H
#define WEFT_TOKENIZER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/json.h"
#include "engine/text/tokenizer_internal.h"

/* tokenizer.json; `tree` is only read. */
int tokenizer_open_json(const json_t *tree, struct tokenizer **ret_tokenizer, struct fault *fault);
/* tokenizer.model, sentencepiece's protocol buffer. */
int tokenizer_open_sentencepiece(const void *bytes, size_t count, struct tokenizer **ret_tokenizer,
                                 struct fault *fault);
/* tekken.json, Mistral's; `tree` is only read. */
int tokenizer_open_tekken(const json_t *tree, struct tokenizer **ret_tokenizer,
                          struct fault *fault);
/* Lines of base64 and a rank, OpenAI's (*.tiktoken, Llama 3's tokenizer.model); `config`, a
 * tokenizer_config.json or NULL, may name its special tokens. */
int tokenizer_open_tiktoken(const char *text, size_t bytes, const json_t *config,
                            struct tokenizer **ret_tokenizer, struct fault *fault);
/* Whether a file reads like one. */
bool tiktoken_is_like(const char *text, size_t bytes);

#endif
