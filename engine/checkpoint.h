/* checkpoint.h -- a model as its makers ship it: a GGUF file, or a folder in Hugging Face's layout.
 *
 *     model.gguf
 *     folder/config.json                      what the model computes
 *           /generation_config.json           (optional)
 *           /model.safetensors                its weights, or
 *           /model.safetensors.index.json     {"weight_map": {tensor: file, ...}} and those files
 *
 * Where a folder has both kinds of weights, model.safetensors counts, as for Transformers. The path
 * of a .safetensors file stands for its folder, with the weights of that file alone unless the
 * folder's index names it. Files that an index names lie in the folder itself: a name with a slash
 * is refused. (The file may be a link to anywhere, as in Hugging Face's cache.) All tensors of all
 * files are one list here, and no two have one name. Immutable after opening: any thread may read.
 */
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/stored_tensor.h"

struct checkpoint;

/* Faults: what the path is not; a file that is missing (by name), broken or hostile. */
int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, struct fault *fault);
/* A GGUF file that is open already; it must outlive the checkpoint, which does not close it. */
int checkpoint_open_gguf(const struct gguf *file, struct checkpoint **ret_checkpoint,
                         struct fault *fault);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is fine */
/* What was read of the weights need not stay in this process's memory. */
void checkpoint_rest(const struct checkpoint *checkpoint);

const char *checkpoint_path(const struct checkpoint *checkpoint);        /* the file or folder */
const struct gguf *checkpoint_gguf(const struct checkpoint *checkpoint); /* NULL: a folder */
/* config.json as it is; only of folders. */
const struct buf *checkpoint_config(const struct checkpoint *checkpoint);
uint64_t checkpoint_bytes(const struct checkpoint *checkpoint); /* of the files with weights */
uint32_t checkpoint_file_count(const struct checkpoint *checkpoint);

uint32_t checkpoint_tensor_count(const struct checkpoint *checkpoint);
const struct stored_tensor *checkpoint_tensor_at(const struct checkpoint *checkpoint,
                                                 uint32_t index);
const struct stored_tensor *checkpoint_tensor_find(const struct checkpoint *checkpoint,
                                                   const char *name);
/* As its file writes it: "64 x 172" in GGUF, columns first; "[172, 64]" in safetensors. */
void checkpoint_print_shape(const struct checkpoint *checkpoint, const struct stored_tensor *tensor,
                            char *ret_text, size_t room);

#endif
