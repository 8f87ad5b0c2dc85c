/* config.h -- all settings of one run, from the table in options.def.
 *
 *     default  <  file (--config)  <  environment (WEFT_*)  <  command line
 *
 * What a user got wrong is a fault that says where it stands, what is accepted, and for a name that
 * does not exist the nearest one that does. Filled once at start by the main thread and read-only
 * from then on: any thread may read. */
#ifndef WEFT_CONFIG_H
#define WEFT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "config/base/buf.h"
#include "config/base/fault.h"

enum command {
#define COMMAND(enumerator, name, operands, help) COMMAND_##enumerator,
#include "config/options.def"
    COMMAND_COUNT
};

/* The words of the CHOICE options, in the table's order; log_level and log_format are those of
 * base/log.h. */
enum config_device {
    CONFIG_DEVICE_AUTO,
    CONFIG_DEVICE_CPU,
    CONFIG_DEVICE_CUDA,
    CONFIG_DEVICE_NULL
};
enum config_cpu_activations {
    CONFIG_ACTIVATIONS_INT16,
    CONFIG_ACTIVATIONS_F32,
    CONFIG_ACTIVATIONS_INT8
};

enum config_pooling {
    CONFIG_POOLING_AUTO,
    CONFIG_POOLING_LAST,
    CONFIG_POOLING_MEAN,
    CONFIG_POOLING_CLS,
};
enum config_generation { CONFIG_GENERATION_AUTO, CONFIG_GENERATION_NONE };

#define CONFIG_TYPE_FLAG    bool
#define CONFIG_TYPE_UINT    uint32_t
#define CONFIG_TYPE_LONG    uint64_t
#define CONFIG_TYPE_BYTES   uint64_t
#define CONFIG_TYPE_SECONDS double
#define CONFIG_TYPE_REAL    double
#define CONFIG_TYPE_TEXT    const char * /* never NULL; "" when not given */
#define CONFIG_TYPE_CHOICE  unsigned

struct config {
    struct arena *arena; /* owns the texts */
    uint32_t operand_count;
    const char *const *operands; /* what stands on the command line without a flag; lent by argv */
#define OPTION(kind, member, ...) CONFIG_TYPE_##kind member;
#include "config/options.def"
};

/* Reads everything for `command`. `arguments` are those after the command's name; `environment` is
 * a NULL-terminated list of NAME=value. A file key or a variable that belongs to another command is
 * checked and otherwise ignored, so that one file serves all commands. Returns 0; 1 when --help was
 * asked for (the config is filled as far as it was read); or a fault. config_fini() is due after
 * all three. */
int config_init(struct config *config, enum command command, int argument_count,
                const char *const *arguments, const char *const *environment, struct fault *fault);
void config_fini(struct config *config);

const char *command_name(enum command command);
/* Returns 0, or E_NOT_FOUND with the nearest name in the fault. */
int command_find(const char *name, enum command *ret_command, struct fault *fault);

/* Generated texts, appended. */
void config_help(enum command command, struct buf *text); /* weft COMMAND --help */
void config_help_all(struct buf *text);                   /* weft --help */
void config_options_page(struct buf *text);               /* docs/options.md */
void config_sample_file(struct buf *text);                /* deploy/weft.conf */

#endif
