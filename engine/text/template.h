/* template.h -- a conversation to the prompt that the model was trained on.
 *
 * The template is a program in Jinja (jinja.h) that comes with the model, in one of these places:
 *
 *     a GGUF file              tokenizer.chat_template, and variants tokenizer.chat_template.NAME
 *     a model's folder         chat_template.jinja, additional_chat_templates/NAME.jinja; else
 *                              chat_template.json or tokenizer_config.json
 *     tokenizer_config.json    chat_template: a string, or a list of {"name", "template"}
 *     any other file           is the template
 *
 * The variant `tool_use` is taken when tools are given, else `default`. Immutable after opening:
 * any thread renders. */
#ifndef WEFT_TEMPLATE_H
#define WEFT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "config/base/json.h"
#include "engine/gguf.h"
#include "engine/text/jinja.h"

struct chat_template;

/* The template of a GGUF file (NULL: it has none), or `path` (not "") in its place; the texts of
 * bos_token and the others are the file's. A model's template that is missing or broken is
 * remembered, and rendering says what is wrong; one that was asked for by its path is a fault at
 * once. */
int chat_template_open_gguf(const struct gguf *file, const char *path,
                            struct chat_template **ret_template, struct fault *fault);
/* The same of a model's folder, in Hugging Face's layout. */
int chat_template_open_folder(const char *folder, const char *path,
                              struct chat_template **ret_template, struct fault *fault);
/* A file or a model's folder; E_NOT_FOUND when it has no template. */
int chat_template_open_path(const char *path, struct chat_template **ret_template,
                            struct fault *fault);
void chat_template_close(struct chat_template *template_); /* NULL is fine */

/* 0, or the fault that rendering without tools will give (E_UNSUPPORTED, E_INVALID). */
int chat_template_check(const struct chat_template *template_, struct fault *fault);
/* What the template that would be taken expects of messages. All false when there is none. */
void chat_template_traits(const struct chat_template *template_, bool with_tools,
                          struct jinja_traits *ret_traits);
/* Its text; NULL when there is none. Lent. */
const char *chat_template_source(const struct chat_template *template_, bool with_tools,
                                 size_t *ret_bytes);

/* Appends the prompt. `input` is an object:
 *
 *     messages                  reach the template as they stand
 *     tools, documents          null when absent
 *     add_generation_prompt     end with the opening of the assistant's turn; false when absent
 *     chat_template_kwargs      more variables, by name
 *     bos_token, eos_token ...  in place of the model's own
 *
 * and `now` is what strftime_now tells. A template that calls raise_exception gives E_INVALID with
 * its own words; one that cannot be rendered E_UNSUPPORTED, and one that wants too much
 * E_TOO_LARGE, with line and column. On a fault `ret_text` is as it was. */
int chat_template_render(const struct chat_template *template_, const json_t *input,
                         const struct tm *now, struct buf *ret_text, struct fault *fault);
/* The same out of JSON text, where integers may have any size and strings hold NULs. */
int chat_template_render_text(const struct chat_template *template_, const char *input,
                              size_t bytes, const struct tm *now, struct buf *ret_text,
                              struct fault *fault);

#endif
