/* attention.cuh -- what the attention kernels share.
 *
 * Softmax is taken in base 2: scores are multiplied by scale * log2(e) once. */
#ifndef WEFT_ATTENTION_CUH
#define WEFT_ATTENTION_CUH

#include "kernels/cuda/common.cuh"

constexpr uint32_t HEAD_SIZE_MAX = 256;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOWEST = -1e30f; /* a score that counts for nothing, and is no infinity */

/* Where element `column` of token `token`'s result lies in args.out. */
__device__ __forceinline__ size_t output_index(const struct cuda_attention &args, uint32_t token,
                                               uint32_t column)
{
    return args.out_tiles > 0 ? cuda_fragment(token, column, args.out_tiles)
                              : (size_t)token * args.heads * args.head_size + column;
}

/* Any element type, head size and group, on any target: attention_general.cu. */
int attention_general_decode(const struct cuda_stream *stream, const struct cuda_attention *args,
                             uint32_t sequences, bool dependent);
int attention_general_prefill(const struct cuda_stream *stream, const struct cuda_attention *args,
                              const struct cuda_prefill_tile *tiles, uint32_t tile_count);

#endif
