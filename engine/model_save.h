/* model_save.h -- a random model as a checkpoint: the folder that Transformers would write.
 *
 *     DIR/config.json                        the shape's own text, less quantization_config
 *     DIR/model.safetensors                  or, beyond 5 GB, model-00001-of-00004.safetensors ...
 *     DIR/model.safetensors.index.json       with the list of which tensor is where
 *
 *     a .safetensors file:  u64 header bytes | {"name":{"dtype","shape","data_offsets"},...} | data
 *
 * (Format: the README of huggingface/safetensors.) Tensors have the names and the forms of the
 * checkpoints of their class (saved_tensor.h), little-endian, without gaps. */
#ifndef WEFT_MODEL_SAVE_H
#define WEFT_MODEL_SAVE_H

#include "engine/engine.h"

/* Writes into `folder`.partial, which becomes `folder` when everything has reached the disk; after
 * a failure nothing is left. A few MiB are all the memory that it takes. `file_bytes_max` is that
 * of a file's tensors (0: 5 GB). Faults: those of model_open_random(); a folder that exists, or the
 * rest of a save that was killed; a disk that is full or refuses. */
int model_save(const char *shape, const char *folder, uint64_t file_bytes_max,
               const struct engine_progress *progress, struct fault *fault);

#endif
