/* commands.h -- what `weft NAME` does, one function and one file for each command of
 * config/options.def.
 *
 * Each runs on the main thread until the command's work is done. Returns the exit code, 0 for
 * success; or a fault, which main() prints (exit code 1). A positive code means that the user has
 * been told already. */
#ifndef WEFT_COMMANDS_H
#define WEFT_COMMANDS_H

#include "config/base/fault.h"
#include "config/config.h"

/* Exit codes: 2 is for a command line that cannot be understood, 130 for a user's Ctrl-C, as shells
 * have it. */
enum { EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

int command_serve(const struct config *config, struct fault *fault);
int command_generate(const struct config *config, struct fault *fault);
int command_inspect(const struct config *config, struct fault *fault);
int command_tokenize(const struct config *config, struct fault *fault);
int command_detokenize(const struct config *config, struct fault *fault);
int command_constrain(const struct config *config, struct fault *fault);
int command_parse(const struct config *config, struct fault *fault);
int command_template(const struct config *config, struct fault *fault);
int command_bench(const struct config *config, struct fault *fault);
int command_save(const struct config *config, struct fault *fault);
int command_quantize(const struct config *config, struct fault *fault);
int command_version(const struct config *config, struct fault *fault);
int command_docs(const struct config *config, struct fault *fault);

#endif
