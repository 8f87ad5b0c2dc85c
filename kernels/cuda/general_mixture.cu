/* general_mixture.cu -- mixtures of experts without the host: the choice stays on the device.
 *
 *     scores -> chosen, shares     a warp a token
 *     chosen -> lists              a block an expert: which (token, choice) pairs are its own
 *     lists -> products            a warp an output of an expert, for all pairs on its list
 *     outputs -> sum               a block a token, with the shared expert's
 *
 * An expert's weights are read once for eight pairs; experts that nobody chose are not read. A
 * pair's result does not depend on what else is on the list. The rules of choice are those of
 * engine/cpu_mixture.c; a tie goes to the lower number. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int ROUTE_THREADS = 32;
constexpr int THREADS = 256;
constexpr int TOGETHER = 8; /* pairs of a warp at once */
constexpr float TAKEN = -1e30f;

/* The place of the largest value, by one warp. */
__device__ __forceinline__ uint32_t warp_best(const float *values, uint32_t count)
{
    float most = TAKEN, least = (float)count;

    for (uint32_t i = threadIdx.x; i < count; i += warpSize)
        most = fmaxf(most, values[i]);
    most = warp_max(most);
    for (uint32_t i = threadIdx.x; i < count; i += warpSize)
        if (values[i] >= most)
            least = fminf(least, (float)i);
    return min((uint32_t)-warp_max(-least), count - 1);
}

/* How good a group is: its best value, or the sum of its two best. */
__device__ float group_value(const float *values, uint32_t count, bool two)
{
    float first = TAKEN, second = TAKEN;

    for (uint32_t i = 0; i < count; i++) {
        second = fmaxf(second, fminf(first, values[i]));
        first = fmaxf(first, values[i]);
    }
    return two && count > 1 ? first + second : first;
}

/* All experts outside of the best groups become taken. `groups` has room for a value of each. */
__device__ void keep_groups(const struct cuda_mixture &a, float *values, float *groups)
{
    const uint32_t size = a.experts / a.groups, lane = threadIdx.x;

    for (uint32_t i = lane; i < a.groups; i += warpSize)
        groups[i] = group_value(values + i * size, size, a.router == CUDA_ROUTER_SIGMOID);
    __syncwarp();
    for (uint32_t k = 0; k < a.groups_used; k++) {
        const uint32_t best = warp_best(groups, a.groups);

        __syncwarp();
        if (lane == 0)
            groups[best] = 2.0f * TAKEN; /* kept */
        __syncwarp();
    }
    for (uint32_t i = lane; i < a.experts; i += warpSize)
        if (groups[i / size] > 1.5f * TAKEN)
            values[i] = TAKEN;
    __syncwarp();
}

/* scores = softmax(scores), by one warp. */
__device__ void softmax(float *scores, uint32_t count)
{
    float most = TAKEN, sum = 0.0f;

    for (uint32_t i = threadIdx.x; i < count; i += warpSize)
        most = fmaxf(most, scores[i]);
    most = warp_max(most);
    for (uint32_t i = threadIdx.x; i < count; i += warpSize)
        sum += scores[i] = expf(scores[i] - most);
    sum = warp_sum(sum);
    for (uint32_t i = threadIdx.x; i < count; i += warpSize)
        scores[i] /= sum;
    __syncwarp();
}

__global__ void choose(const struct cuda_mixture a)
{
    __shared__ float scores[CUDA_EXPERTS_MAX], values[CUDA_EXPERTS_MAX], groups[CUDA_EXPERTS_MAX];
    const uint32_t token = blockIdx.x, lane = threadIdx.x;
    uint32_t *chosen = a.chosen + (size_t)token * a.used;
    float *shares = a.shares + (size_t)token * a.used, total = 0.0f;
    const bool apart = a.router == CUDA_ROUTER_SIGMOID;

    for (uint32_t i = lane; i < a.experts; i += warpSize) {
        const float score = a.scores[(size_t)token * a.experts + i];

        scores[i] = apart           ? 1.0f / (1.0f + expf(-score))
                    : a.router_bias ? score + a.router_bias[i]
                                    : score;
    }
    __syncwarp();
    if (a.router == CUDA_ROUTER_SOFTMAX)
        softmax(scores, a.experts);
    for (uint32_t i = lane; i < a.experts; i += warpSize)
        values[i] = scores[i] + (apart && a.router_bias ? a.router_bias[i] : 0.0f);
    __syncwarp();
    if (a.groups > 0)
        keep_groups(a, values, groups);
    for (uint32_t k = 0; k < a.used; k++) {
        const uint32_t best = warp_best(values, a.experts);

        __syncwarp();
        if (lane == 0) {
            chosen[k] = best;
            groups[k] = scores[best]; /* the groups are done with */
            values[best] = 2.0f * TAKEN;
        }
        __syncwarp();
    }
    if (a.router == CUDA_ROUTER_SOFTMAX_CHOSEN)
        softmax(groups, a.used);
    for (uint32_t k = 0; k < a.used; k++)
        total += groups[k];
    if (apart)
        total += 1e-20f; /* all may be 0 */
    for (uint32_t k = lane; k < a.used; k += warpSize)
        shares[k] = groups[k] * (a.normalizes ? a.scale / total : a.scale);
}

/* The order within a list may differ from run to run: nothing depends on it. */
__global__ void list_pairs(const struct cuda_mixture a)
{
    __shared__ uint32_t count;
    const uint32_t expert = blockIdx.x, pairs = a.tokens * a.used;

    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x)
        if (a.chosen[i] == expert)
            a.lists[(size_t)expert * a.list_stride + atomicAdd(&count, 1u)] = i;
    __syncthreads();
    if (threadIdx.x == 0)
        a.counts[expert] = count;
}

template <class T> __global__ void products(const struct cuda_expert_product a)
{
    const uint32_t lane = threadIdx.x % warpSize, warps = blockDim.x / warpSize;
    const uint32_t expert = blockIdx.y, count = a.mixture.counts[expert];
    const uint32_t *list = a.mixture.lists + (size_t)expert * a.mixture.list_stride;

    for (uint32_t output = blockIdx.x * warps + threadIdx.x / warpSize; output < a.outputs;
         output += gridDim.x * warps) {
        const T *w =
            static_cast<const T *>(a.w) + ((size_t)expert * a.outputs + output) * a.columns;

        for (uint32_t first = 0; first < count; first += TOGETHER) {
            const T *x[TOGETHER];
            float sum[TOGETHER] = {};

#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                const uint32_t pair = list[min(first + j, count - 1)];

                x[j] = static_cast<const T *>(a.x) +
                       (size_t)(a.x_by_token ? pair / a.mixture.used : pair) * a.columns;
            }
            for (uint32_t i = lane; i < a.columns; i += warpSize) {
                const float weight = to_float(w[i]);

#pragma unroll
                for (int j = 0; j < TOGETHER; j++)
                    sum[j] = fmaf(weight, to_float(x[j][i]), sum[j]);
            }
#pragma unroll
            for (int j = 0; j < TOGETHER; j++) {
                sum[j] = warp_sum(sum[j]);
                if (lane == 0 && first + j < count)
                    a.out[(size_t)list[first + j] * a.outputs + output] =
                        sum[j] + (a.bias ? a.bias[(size_t)expert * a.outputs + output] : 0.0f);
            }
        }
    }
}

template <class T> __global__ void combine(const struct cuda_expert_sum a)
{
    __shared__ float shared[33];
    const uint32_t token = blockIdx.x, used = a.mixture.used;
    const size_t row = (size_t)token * a.width;
    const T *x = static_cast<const T *>(a.x) + row;
    float share = 1.0f;

    if (a.shared && a.shared_gate) {
        float sum = 0.0f;

        for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
            sum += to_float(x[i]) * a.shared_gate[i];
        share = 1.0f / (1.0f + expf(-block_sum(sum, shared)));
    }
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float sum = a.shared ? share * a.shared[row + i] : 0.0f;

        for (uint32_t k = 0; k < used; k++) {
            const size_t pair = (size_t)token * used + k;

            sum += a.mixture.shares[pair] * a.outputs[pair * a.width + i];
        }
        a.branch[row + i] = sum;
    }
}

} /* namespace */

extern "C" int cuda_mixture_choose(const struct cuda_stream *stream, const struct cuda_mixture *a)
{
    int r = launch(stream, cuda_grid{a->tokens, 1, 1, ROUTE_THREADS, 0, false}, choose, *a);

    return r < 0 ? r
                 : launch(stream, cuda_grid{a->experts, 1, 1, THREADS, 0, false}, list_pairs, *a);
}

extern "C" int cuda_expert_product(const struct cuda_stream *stream,
                                   const struct cuda_expert_product *a)
{
    const uint32_t warps = THREADS / 32;
    const struct cuda_grid grid = {
        (a->outputs + warps - 1) / warps, a->mixture.experts, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, products, *a);
}

extern "C" int cuda_expert_sum(const struct cuda_stream *stream, const struct cuda_expert_sum *a)
{
    const struct cuda_grid grid = {a->mixture.tokens, 1, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, combine, *a);
}
