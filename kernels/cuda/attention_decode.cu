/* attention_decode.cu -- attention of one new token a sequence over its pages. */
#include "kernels/cuda/attention.cuh"

extern "C" uint64_t cuda_attention_scratch(const struct cuda_properties *properties, uint32_t heads,
                                           uint32_t kv_heads, uint32_t head_size,
                                           uint32_t sequences)
{
    (void)properties, (void)heads, (void)kv_heads, (void)head_size, (void)sequences;
    return 256;
}

extern "C" int cuda_attention_plan(const struct cuda_stream *stream,
                                   const struct cuda_attention *args, uint32_t sequences,
                                   bool fixed_splits, void *scratch, bool dependent)
{
    (void)stream, (void)args, (void)sequences, (void)fixed_splits, (void)scratch, (void)dependent;
    return 0;
}

extern "C" int cuda_attention_decode(const struct cuda_stream *stream,
                                     const struct cuda_attention *args, uint32_t sequences,
                                     void *scratch, bool dependent)
{
    (void)scratch;
    return attention_general_decode(stream, args, sequences, dependent);
}
