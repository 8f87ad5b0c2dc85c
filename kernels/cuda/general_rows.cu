/* general_rows.cu -- between products in general: norms of both kinds with and without bias, what a
 * branch adds to the residual stream, activations, and what logits go through. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int THREADS = 256;

template <class T> __global__ void norm_rows(const struct cuda_general_norm a)
{
    __shared__ float shared[33];
    const uint32_t row = a.outputs ? a.outputs[blockIdx.x].token : blockIdx.x;
    const float *from = a.from + (size_t)row * a.stride;
    T *to = static_cast<T *>(a.x) + (size_t)blockIdx.x * a.width;
    struct norm_sums sums = {0.0f, 1.0f};

    if (a.norm.gain)
        sums = block_norm(a.width, a.norm.centred, a.norm.epsilon, shared,
                          [=](uint32_t i) { return from[i]; });
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        to[i] = from_float<T>(a.norm.gain ? normed(a.norm, sums, from[i], i) : from[i]);
}

/* Each thread reads of the residual only what it wrote itself. */
__global__ void add_branch(const struct cuda_general_branch a)
{
    __shared__ float shared[33];
    const float *branch = a.branch + (size_t)blockIdx.x * a.width, *bias = a.bias;
    float *residual = a.residual + (size_t)blockIdx.x * a.width;
    struct norm_sums sums = {0.0f, 1.0f};

    if (a.post.gain)
        sums = block_norm(a.width, a.post.centred, a.post.epsilon, shared,
                          [=](uint32_t i) { return branch[i] + (bias ? bias[i] : 0.0f); });
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float v = branch[i] + (bias ? bias[i] : 0.0f);

        if (a.post.gain)
            v = normed(a.post, sums, v, i);
        residual[i] += a.scale * v;
    }
    if (!a.stream.gain)
        return;
    sums = block_norm(a.width, a.stream.centred, a.stream.epsilon, shared,
                      [=](uint32_t i) { return residual[i]; });
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        residual[i] = normed(a.stream, sums, residual[i], i);
}

__device__ __forceinline__ float activated(enum activation activation, float x)
{
    switch (activation) {
    case ACTIVATION_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACTIVATION_GELU_QUICK:
    case ACTIVATION_SWIGLU_OAI:
        return x / (1.0f + expf(-1.702f * x));
    case ACTIVATION_RELU:
        return fmaxf(x, 0.0f);
    default:
        return x / (1.0f + expf(-x));
    }
}

template <class T> __global__ void activate(const struct cuda_general_activate a)
{
    const float *row = a.gate_up + (size_t)blockIdx.y * (a.gated ? 2 : 1) * a.ffn;
    T *to = static_cast<T *>(a.x) + (size_t)blockIdx.y * a.ffn;

    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.ffn;
         i += gridDim.x * blockDim.x) {
        float gate = row[i] + (a.bias ? a.bias[i] : 0.0f), up = 1.0f;

        if (a.gated)
            up = row[a.ffn + i] + (a.bias ? a.bias[a.ffn + i] : 0.0f);
        if (a.activation == ACTIVATION_SWIGLU_OAI) {
            gate = fminf(gate, a.limit);
            up = fminf(fmaxf(up, -a.limit), a.limit) + 1.0f;
        }
        to[i] = from_float<T>(activated(a.activation, gate) * up);
    }
}

__global__ void finish_logits(const struct cuda_general_logits a)
{
    float *logits = a.logits + (size_t)blockIdx.y * a.stride;

    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.vocabulary;
         i += gridDim.x * blockDim.x) {
        const float v = (logits[i] + (a.bias ? a.bias[i] : 0.0f)) * a.scale;

        logits[i] = a.cap > 0.0f ? a.cap * tanhf(v / a.cap) : v;
    }
}

} /* namespace */

extern "C" int cuda_general_norm(const struct cuda_stream *stream,
                                 const struct cuda_general_norm *a)
{
    const struct cuda_grid grid = {a->count, 1, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, norm_rows, *a);
}

extern "C" int cuda_general_branch(const struct cuda_stream *stream,
                                   const struct cuda_general_branch *a)
{
    return launch(stream, cuda_grid{a->tokens, 1, 1, THREADS, 0, false}, add_branch, *a);
}

extern "C" int cuda_general_activate(const struct cuda_stream *stream,
                                     const struct cuda_general_activate *a)
{
    const struct cuda_grid grid = {
        (a->ffn + THREADS - 1) / THREADS, a->tokens, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->type, stream, grid, activate, *a);
}

extern "C" int cuda_general_logits(const struct cuda_stream *stream,
                                   const struct cuda_general_logits *a)
{
    const struct cuda_grid grid = {
        (a->vocabulary + THREADS - 1) / THREADS, a->count, 1, THREADS, 0, false};

    return launch(stream, grid, finish_logits, *a);
}
