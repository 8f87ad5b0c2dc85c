/* general_latent.cu -- DeepSeek's latent attention in its absorbed form: what goes before and after
 * attention_any.cu. A block a token and head.
 *
 * Pages hold a token's latent with the keys' rotating part as the one key head, and the latent as
 * its value. kv_up has rows for each head: keys' first, then values'. The formulas are told in
 * engine/cpu_latent.c. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int THREADS = 128;

/* Pair `pair` of the rotating part: its two places, and the values turned. */
struct turned {
    uint32_t first, second;
    float left, right;
};
__device__ __forceinline__ struct turned turn(const struct cuda_latent &a, uint32_t token,
                                              const float *from, uint32_t pair)
{
    const uint32_t half = a.rope_size / 2;
    const float2 angle =
        reinterpret_cast<const float2 *>(a.rotary + (size_t)token * a.rotary_stride)[pair];
    struct turned t = {a.rotary_halves ? pair : 2 * pair,
                       a.rotary_halves ? pair + half : 2 * pair + 1, 0.0f, 0.0f};
    const float left = from[t.first], right = from[t.second];

    t.left = left * angle.x - right * angle.y;
    t.right = left * angle.y + right * angle.x;
    return t;
}

template <class T> __device__ void write_page(const struct cuda_latent &a, uint32_t token)
{
    __shared__ float shared[33];
    const struct cuda_general_kv &kv = a.kv;
    const struct cuda_token placed = a.placed[token];
    const uint32_t latent = kv.value_size, place = placed.position % CUDA_PAGE_TOKENS;
    const uint32_t page =
        kv.page_table[(size_t)placed.row * kv.pages_per_row + placed.position / CUDA_PAGE_TOKENS];
    const float *from = a.kv_down + (size_t)token * kv.head_size;
    T *pages = static_cast<T *>(kv.pages);
    const struct norm_sums sums = block_norm(latent, a.norm.centred, a.norm.epsilon, shared,
                                             [=](uint32_t i) { return from[i]; });

    for (uint32_t i = threadIdx.x; i < latent; i += blockDim.x) {
        const T v = from_float<T>(normed(a.norm, sums, from[i], i));

        pages[kv_element<T>(kv, page, 0, 0, place, i)] = v;
        pages[kv_element<T>(kv, page, 0, 1, place, i)] = v;
    }
    for (uint32_t pair = threadIdx.x; pair < a.rope_size / 2; pair += blockDim.x) {
        const struct turned t = turn(a, token, from + latent, pair);

        pages[kv_element<T>(kv, page, 0, 0, place, latent + t.first)] = from_float<T>(t.left);
        pages[kv_element<T>(kv, page, 0, 0, place, latent + t.second)] = from_float<T>(t.right);
    }
}

template <class T> __global__ void latent_in(const struct cuda_latent a)
{
    const uint32_t token = blockIdx.x, head = blockIdx.y, latent = a.kv.value_size;
    const uint32_t plain = a.query_size - a.rope_size;
    const float *q = a.queries + ((size_t)token * a.kv.heads + head) * a.query_size;
    const T *keys =
        static_cast<const T *>(a.kv_up) + (size_t)head * (plain + a.value_size) * latent;
    T *to = static_cast<T *>(a.q) + ((size_t)token * a.kv.heads + head) * a.kv.head_size;

    if (a.placed[token].row == CUDA_ROW_NONE)
        return;
    if (head == 0)
        write_page<T>(a, token);
    for (uint32_t i = threadIdx.x; i < latent; i += blockDim.x) {
        float sum = 0.0f;

        for (uint32_t j = 0; j < plain; j++)
            sum = fmaf(q[j], to_float(keys[(size_t)j * latent + i]), sum);
        to[i] = from_float<T>(sum);
    }
    for (uint32_t pair = threadIdx.x; pair < a.rope_size / 2; pair += blockDim.x) {
        const struct turned t = turn(a, token, q + plain, pair);

        to[latent + t.first] = from_float<T>(t.left);
        to[latent + t.second] = from_float<T>(t.right);
    }
}

template <class T> __global__ void latent_out(const struct cuda_latent a)
{
    const uint32_t token = blockIdx.x, head = blockIdx.y, latent = a.kv.value_size;
    const uint32_t lane = threadIdx.x % warpSize, plain = a.query_size - a.rope_size;
    const T *sums = static_cast<const T *>(a.summed) + ((size_t)token * a.kv.heads + head) * latent;
    const T *values =
        static_cast<const T *>(a.kv_up) + ((size_t)head * (plain + a.value_size) + plain) * latent;

    for (uint32_t v = threadIdx.x / warpSize; v < a.value_size; v += blockDim.x / warpSize) {
        float sum = 0.0f;

        for (uint32_t i = lane; i < latent; i += warpSize)
            sum = fmaf(to_float(sums[i]), to_float(values[(size_t)v * latent + i]), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            static_cast<T *>(a.attended)[((size_t)token * a.kv.heads + head) * a.value_size + v] =
                from_float<T>(sum);
    }
}

} /* namespace */

extern "C" int cuda_latent_in(const struct cuda_stream *stream, const struct cuda_latent *a)
{
    const struct cuda_grid grid = {a->tokens, a->kv.heads, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->kv.type, stream, grid, latent_in, *a);
}

extern "C" int cuda_latent_out(const struct cuda_stream *stream, const struct cuda_latent *a)
{
    const struct cuda_grid grid = {a->tokens, a->kv.heads, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->kv.type, stream, grid, latent_out, *a);
}
