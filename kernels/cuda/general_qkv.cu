/* general_qkv.cu -- from the product of q, k and v to what attention reads, in general: biases,
 * norms of heads or of all heads together, partial rotary of either pairing, values of another size
 * than keys. A block a token, a warp a head. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int THREADS = 256;

/* One head of q or k, or of v: how its elements come about. */
struct head {
    const float *from;
    const float *bias;
    const float *gain; /* NULL: no norm */
    struct norm_sums sums;

    __device__ __forceinline__ float raw(uint32_t i) const
    {
        return from[i] + (bias ? bias[i] : 0.0f);
    }
    __device__ __forceinline__ float at(uint32_t i) const
    {
        return gain ? (raw(i) - sums.mean) * sums.inverse * gain[i] : raw(i);
    }
};

/* By one warp. */
__device__ struct norm_sums warp_norm(const struct head &head, uint32_t size, uint32_t centred,
                                      float epsilon)
{
    const uint32_t lane = threadIdx.x % warpSize;
    struct norm_sums sums = {0.0f, 1.0f};
    float sum = 0.0f;

    if (centred) {
        for (uint32_t i = lane; i < size; i += warpSize)
            sum += head.raw(i);
        sums.mean = warp_sum(sum) / (float)size;
        sum = 0.0f;
    }
    for (uint32_t i = lane; i < size; i += warpSize) {
        const float v = head.raw(i) - sums.mean;

        sum += v * v;
    }
    sums.inverse = rsqrtf(warp_sum(sum) / (float)size + epsilon);
    return sums;
}

/* Elements of the head through put(element, value), q's and k's rotated. */
template <class Put>
__device__ __forceinline__ void each_element(const struct cuda_general_qkv &a,
                                             const struct head &head, uint32_t token, uint32_t size,
                                             uint32_t rotary_size, Put put)
{
    const uint32_t lane = threadIdx.x % warpSize, half = rotary_size / 2;
    const float2 *table =
        reinterpret_cast<const float2 *>(a.rotary + (size_t)token * a.rotary_stride);

    for (uint32_t pair = lane; pair < half; pair += warpSize) {
        const uint32_t first = a.rotary_halves ? pair : 2 * pair;
        const uint32_t second = a.rotary_halves ? pair + half : 2 * pair + 1;
        const float left = head.at(first), right = head.at(second);
        const float2 turn = table[pair];

        put(first, left * turn.x - right * turn.y);
        put(second, left * turn.y + right * turn.x);
    }
    for (uint32_t i = rotary_size + lane; i < size; i += warpSize)
        put(i, head.at(i));
}

template <class T> __global__ void finish_qkv(const struct cuda_general_qkv a)
{
    __shared__ float shared[33];
    const struct cuda_general_kv &kv = a.kv;
    const uint32_t token = blockIdx.x, warp = threadIdx.x / warpSize, warps = blockDim.x / warpSize;
    const uint32_t q_width = kv.heads * kv.head_size, k_width = kv.kv_heads * kv.head_size;
    const uint32_t width = q_width + k_width + kv.kv_heads * kv.value_size;
    const float *row = a.qkv + (size_t)token * width;
    const struct cuda_token placed = a.placed[token];
    struct norm_sums wide[2] = {};

    if (placed.row == CUDA_ROW_NONE)
        return;
    for (uint32_t half = 0; half < 2 && a.norm == CUDA_HEAD_NORM_WIDE; half++) {
        const uint32_t first = half ? q_width : 0;
        const float *from = row + first, *bias = a.bias ? a.bias + first : nullptr;

        wide[half] = block_norm(half ? k_width : q_width, a.centred, a.epsilon, shared,
                                [=](uint32_t i) { return from[i] + (bias ? bias[i] : 0.0f); });
    }
    const uint32_t place = placed.position % CUDA_PAGE_TOKENS;
    const uint32_t page =
        kv.page_table[(size_t)placed.row * kv.pages_per_row + placed.position / CUDA_PAGE_TOKENS];

    for (uint32_t i = warp; i < kv.heads + 2 * kv.kv_heads; i += warps) {
        const bool is_q = i < kv.heads, is_v = i >= kv.heads + kv.kv_heads;
        const uint32_t kv_head = (i - kv.heads) % kv.kv_heads, index = is_q ? i : kv_head;
        const uint32_t size = is_v ? kv.value_size : kv.head_size;
        const uint32_t first = (is_v ? q_width + k_width : is_q ? 0 : q_width) + index * size;
        const float *gain = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
        struct head head = {row + first, a.bias ? a.bias + first : nullptr, nullptr, {0.0f, 1.0f}};

        if (gain && a.norm != CUDA_HEAD_NORM_NONE) {
            head.sums = a.norm == CUDA_HEAD_NORM_WIDE ? wide[is_q ? 0 : 1]
                                                      : warp_norm(head, size, a.centred, a.epsilon);
            head.gain = a.norm == CUDA_HEAD_NORM_SHARED ? gain : gain + index * size;
        }
        each_element(a, head, token, size, is_v ? 0 : a.rotary_size, [=](uint32_t e, float v) {
            if (is_q)
                static_cast<T *>(a.q)[((size_t)token * kv.heads + i) * size + e] = from_float<T>(v);
            else
                static_cast<T *>(kv.pages)[kv_element<T>(kv, page, kv_head, is_v, place, e)] =
                    from_float<T>(v);
        });
    }
    bulk_fence(); /* attention may read the pages by bulk copies */
}

} /* namespace */

extern "C" int cuda_general_qkv(const struct cuda_stream *stream, const struct cuda_general_qkv *a)
{
    const struct cuda_grid grid = {a->tokens, 1, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->kv.type, stream, grid, finish_qkv, *a);
}
