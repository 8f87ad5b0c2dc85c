/* command_save.c -- `weft save --random-weights SHAPE DIR`: a random model as a checkpoint that
 * other programs read. */
#include <stdio.h>

#include "engine/model_save.h"
#include "server/commands.h"
#include "server/progress.h"

int command_save(const struct config *config, struct fault *fault)
{
    struct engine_progress report;
    struct progress progress;
    int r;

    if (!*config->random_weights) { /* the command line is wrong */
        fprintf(stderr, "weft: --random-weights SHAPE is missing: it says what is to be saved\n");
        return EXIT_USAGE;
    }
    progress_init(&progress, false);
    report = progress_engine(&progress);
    r = model_save(config->random_weights, config->operands[0], 0, &report, fault);
    if (r == 0 && (printf("%s\n", config->operands[0]) < 0 || fflush(stdout) != 0))
        r = fault_errno(fault, "Cannot write to standard output");
    return r;
}
