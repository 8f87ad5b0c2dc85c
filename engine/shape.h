/* shape.h -- the shapes of known models, without their weights: config/shapes/NAME.json.
 *
 * They are built into the program, so that it needs no folder beside it. Immutable. */
#ifndef WEFT_SHAPE_H
#define WEFT_SHAPE_H

#include "config/base/buf.h"
#include "engine/hf_config.h"

enum { SHAPE_NAME_BYTES = 128, SHAPE_FILE_BYTES_MAX = 1 << 20 };

/* `shape` is the name of one that is built in, or the path of a config.json: whatever holds a slash
 * or ends in .json. *ret_name is a printable name: the built-in's, the file's without .json, or
 * that of its folder where the file is called config.json. Faults: E_NOT_FOUND with the known
 * names; those of hf_config_read(), with the path before them. */
int shape_read(const char *shape, struct hf_config *ret_config,
               char ret_name[static SHAPE_NAME_BYTES], struct fault *fault);
/* The same file as it is, appended to `text`, which has a ceiling of SHAPE_FILE_BYTES_MAX. */
int shape_text(const char *shape, struct buf *text, struct fault *fault);

#endif
