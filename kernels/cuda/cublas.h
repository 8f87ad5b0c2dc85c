/* cublas.h -- large matrix products through cuBLASLt, which is opened at run time.
 *
 *     out[row][output] (+)= sum over columns of x[row][column] w[output][column]
 *
 * The library is looked for as the loader does, then in CUDA's usual folder. Of what it proposes
 * for a shape and ones like it, cublas_measure() times the first few and keeps the fastest; a shape
 * that was not measured runs the first proposal. Accumulation is in float32. */
#ifndef WEFT_CUDA_CUBLAS_H
#define WEFT_CUDA_CUBLAS_H

#include "kernels/cuda/cuda_api.h"
#include "kernels/dtype.h"

struct cublas;

struct cublas_product {
    enum dtype type;     /* of w and x; F32 computes in float32 throughout */
    enum dtype out_type; /* `type` or F32 */
    bool accumulate;     /* onto out */
    uint32_t rows, outputs, columns;
    uint32_t out_stride; /* elements from one row of out to the next */
    const void *w;       /* [outputs][columns] */
    const void *x;       /* [rows][columns] */
    void *out;
};

enum { CUBLAS_WORKSPACE_BYTES = 32 << 20 };

/* Faults: E_UNSUPPORTED when the library is not there, with where it was looked for. */
int cublas_open(struct cuda_context *context, struct cublas **ret_cublas, struct fault *fault);
void cublas_close(struct cublas *cublas); /* NULL is fine */

/* Enqueues the product. `workspace` (CUBLAS_WORKSPACE_BYTES) belongs to the stream. The first time
 * for a shape takes about 0.1 ms of the caller's time, later ones about 3 us. */
int cublas_run(struct cublas *cublas, const struct cuda_stream *stream,
               const struct cublas_product *product, void *workspace);
/* Decides which algorithm the shape will use; `out` is written to. Synchronizes; for start-up. */
int cublas_measure(struct cublas *cublas, const struct cuda_stream *stream,
                   const struct cublas_product *product, void *workspace);

#endif
