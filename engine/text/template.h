/* template.h -- a conversation to the prompt that the model was trained on.
 *
 * The template comes with the model. This version knows the ChatML family (<|im_start|>role ...
 * <|im_end|>, with or without a default system message that the template itself states); a model
 * with another template is refused for chat with a message that says so. Immutable after opening:
 * any thread renders. */
#ifndef WEFT_TEMPLATE_H
#define WEFT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/gguf.h"

struct chat_template;

struct chat_message {
    const char *role;
    size_t role_bytes;
    const char *content;
    size_t content_bytes;
};

/* Reads tokenizer.chat_template; `file` NULL has none. Always succeeds for a readable file: a
 * missing or foreign template is remembered, and rendering says what is wrong. */
int chat_template_open_gguf(const struct gguf *file, struct chat_template **ret_template,
                            struct fault *fault);
void chat_template_close(struct chat_template *template_); /* NULL is fine */

/* 0, or the fault that rendering will give (E_UNSUPPORTED). */
int chat_template_check(const struct chat_template *template_, struct fault *fault);
/* add_generation_prompt: ends with the opening of the assistant's turn. */
int chat_template_render(const struct chat_template *template_, const struct chat_message *messages,
                         size_t count, bool add_generation_prompt, struct buf *ret_text,
                         struct fault *fault);

#endif
