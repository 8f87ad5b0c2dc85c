/* cuda_library.h -- the CUDA backend, which is a shared object of its own: a machine without a GPU
 * or its driver never opens it. */
#ifndef WEFT_CUDA_LIBRARY_H
#define WEFT_CUDA_LIBRARY_H

#include "config/base/fault.h"
#include "engine/backend.h"

/* Looks for libweft-cuda.so beside the binary and in ../lib and ../lib/weft from there. It stays
 * open as long as the process runs. Faults (E_UNSUPPORTED): not there, or of another build. */
int cuda_library_open(const struct backend_ops **ret_ops, struct fault *fault);

#endif
