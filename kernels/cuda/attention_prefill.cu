/* attention_prefill.cu -- causal attention of prompt chunks over the pages of their sequences. */
#include "kernels/cuda/attention.cuh"

extern "C" int cuda_attention_prefill(const struct cuda_stream *stream,
                                      const struct cuda_attention *args,
                                      const struct cuda_prefill_tile *tiles, uint32_t tile_count)
{
    return attention_general_prefill(stream, args, tiles, tile_count);
}
