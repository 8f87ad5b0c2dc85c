/* startup.h -- from settings to a running engine: what serve, generate, bench and inspect share. */
#ifndef WEFT_STARTUP_H
#define WEFT_STARTUP_H

#include <stddef.h>

#include "config/base/fault.h"
#include "config/config.h"
#include "engine/engine.h"
#include "engine/text/template.h"
#include "server/progress.h"

/* The file or folder to load: --model, or the demo model in the cache folder ($XDG_CACHE_HOME/weft,
 * else ~/.cache/weft). E_NOT_FOUND says what to do when there is neither. */
int startup_model_path(const struct config *config, char *ret_path, size_t room,
                       struct fault *fault);
/* The same where --random-weights is known: *ret_path is then NULL, else `path`, which it fills.
 * E_INVALID: both are given. */
int startup_source(const struct config *config, char *path, size_t room, const char **ret_path,
                   struct fault *fault);
/* The options of an engine; `path` (NULL: --random-weights) is lent to them. `progress` may be
 * NULL. */
void startup_engine_options(const struct config *config, const char *path,
                            struct progress *progress, struct engine_options *ret_options);
/* Both, and engine_open(). */
int startup_engine_open(const struct config *config, struct progress *progress,
                        struct engine **ret_engine, struct fault *fault);
/* The same, and spans of its steps go to `trace`. */
int startup_engine_open_traced(const struct config *config, struct progress *progress,
                               struct engine_trace trace, struct engine **ret_engine,
                               struct fault *fault);
/* E_UNSUPPORTED: the model is an encoder, which generates nothing. */
int startup_check_generates(const struct engine *engine, struct fault *fault);
/* The chat template: --chat-template, else the model's own (in the GGUF `file` or the folder
 * `path`; both may be NULL), else an empty one. */
int startup_template_open(const struct config *config, const struct gguf *file, const char *path,
                          struct chat_template **ret_template, struct fault *fault);

#endif
