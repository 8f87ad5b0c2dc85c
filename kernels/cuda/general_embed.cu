/* general_embed.cu -- a step's beginning in general: scaled embeddings, rotary tables of several
 * bases, learned positions, norms of embeddings. A block a token. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int THREADS = 256;

template <class T> __global__ void embed(const struct cuda_general_embed a)
{
    const uint32_t token = blockIdx.x;
    const struct cuda_token placed = a.placed[token];
    const bool used = placed.row != CUDA_ROW_NONE;
    const T *from = static_cast<const T *>(a.table) + (used ? (size_t)placed.token * a.columns : 0);
    const uint32_t prompt = used ? a.samplings[placed.row].prompt_count : 0;

    for (uint32_t i = threadIdx.x; i < a.columns; i += blockDim.x) {
        const float v = used ? to_float(from[i]) * a.scale : 0.0f;

        if (a.residual)
            a.residual[(size_t)token * a.columns + i] = v;
        else
            static_cast<T *>(a.narrow)[(size_t)token * a.columns + i] = from_float<T>(v);
    }
    for (uint32_t i = threadIdx.x; i < a.rope_count * a.rope_pairs; i += blockDim.x) {
        const struct cuda_general_rope &rope = a.ropes[i / a.rope_pairs];
        const bool is_long = rope.long_frequencies && prompt > rope.long_from;
        const float *frequencies = is_long ? rope.long_frequencies : rope.frequencies;
        float sine, cosine;

        sincosf((float)placed.position * frequencies[i % a.rope_pairs], &sine, &cosine);
        reinterpret_cast<float2 *>(a.rotary)[(size_t)token * a.rope_count * a.rope_pairs + i] =
            make_float2(cosine * rope.scale, sine * rope.scale);
    }
    if (token == 0 && threadIdx.x == 0)
        ++*a.step;
}

template <class T> __global__ void positions(const struct cuda_general_positions a)
{
    __shared__ float sums[33];
    const uint32_t token = blockIdx.x;
    const struct cuda_token placed = a.placed[token];
    const bool used = placed.row != CUDA_ROW_NONE;
    float *x = a.residual + (size_t)token * a.width;

    if (a.positions) {
        const T *row = static_cast<const T *>(a.positions) +
                       (size_t)((used ? placed.position : 0) + a.offset) * a.width;

        for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
            x[i] += to_float(row[i]);
    }
    if (!a.norm.gain)
        return;
    /* Each thread reads only what it wrote itself, here and below. */
    const struct norm_sums norm =
        block_norm(a.width, a.norm.centred, a.norm.epsilon, sums, [=](uint32_t i) { return x[i]; });

    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        x[i] = normed(a.norm, norm, x[i], i);
}

} /* namespace */

extern "C" int cuda_general_embed(const struct cuda_stream *stream,
                                  const struct cuda_general_embed *a)
{
    const struct cuda_grid grid = {a->tokens, 1, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, embed, *a);
}

extern "C" int cuda_general_positions(const struct cuda_stream *stream,
                                      const struct cuda_general_positions *a)
{
    const struct cuda_grid grid = {a->tokens, 1, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, positions, *a);
}
