/* place.cu -- weights to where the products read them, once, at start.
 *
 * Packed form (skinny.cu): blocks of 64 outputs x 128 columns; in a block, for each 32 outputs, for
 * each 16 columns, for each 16 outputs, for each lane its eight elements of the `a` operand of
 * mma.m16n8k16. Outputs and columns beyond the weight's own are zeros. */
#include "kernels/cuda/common.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr uint32_t BLOCKS_MOST = 1 << 16;
constexpr uint32_t ABSENT = 0xffffffffu;

template <class T> __global__ void convert(const float *from, T *to, uint64_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;

    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        to[i] = from_float<T>(from[i]);
}

template <class T> __global__ void make_random(struct random_weight random, T *to, uint64_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;

    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        to[i] = from_float<T>(random_weight_value(random, i));
}

/* Which row of the row-major weight lies in row `packed`. */
__device__ __forceinline__ uint32_t source_row(const struct cuda_pack &a, uint32_t packed)
{
    if (a.order == CUDA_PACK_GATE_UP) {
        uint32_t column = packed / 16 * 8 + packed % 8;

        if (column >= a.ffn)
            return ABSENT;
        return packed % 16 < 8 ? column : a.ffn + column;
    }
    if (a.order == CUDA_PACK_PAIRS && packed < a.paired_rows) {
        uint32_t within = packed % a.head_size, half = a.rotary_size / 2;
        uint32_t pair = within / 16 * 8 + within % 8, second = within % 16 >= 8;
        uint32_t element =
            a.rotary_halves && pair < half ? pair + second * half : 2 * pair + second;

        return packed - within + element;
    }
    return packed < a.outputs ? packed : ABSENT;
}

__global__ void pack(const struct cuda_pack a, const uint16_t *from, uint16_t *to, uint64_t count)
{
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    const uint32_t chunks = (a.columns + CUDA_SKINNY_COLUMNS - 1) / CUDA_SKINNY_COLUMNS;

    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) {
        uint32_t inside = (uint32_t)(i % (CUDA_SKINNY_OUTPUTS * CUDA_SKINNY_COLUMNS));
        uint64_t block = i / (CUDA_SKINNY_OUTPUTS * CUDA_SKINNY_COLUMNS);
        uint32_t fragment = inside / 256, lane = inside % 256 / 8, e = inside % 8;
        uint32_t half = fragment / (CUDA_SKINNY_COLUMNS / 16 * 2);
        uint32_t tile = half * 2 + fragment % 2;
        uint32_t step = fragment / 2 % (CUDA_SKINNY_COLUMNS / 16);
        uint32_t row = (uint32_t)(block / chunks) * CUDA_SKINNY_OUTPUTS + tile * 16 + lane / 4 +
                       (e >> 1 & 1) * 8;
        uint32_t column = (uint32_t)(block % chunks) * CUDA_SKINNY_COLUMNS + step * 16 +
                          lane % 4 * 2 + (e & 1) + (e >> 2) * 8;
        uint32_t source = source_row(a, row);

        to[i] = source != ABSENT && column < a.columns ? from[(size_t)source * a.columns + column]
                                                       : (uint16_t)0;
    }
}

struct cuda_grid grid_of(uint64_t count)
{
    uint64_t blocks = (count + THREADS - 1) / THREADS;

    return cuda_grid{
        (uint32_t)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST), 1, 1, THREADS, 0, false};
}

template <class T>
int launch_convert(const struct cuda_stream *stream, const float *from, void *to, uint64_t count)
{
    return launch(stream, grid_of(count), convert<T>, from, static_cast<T *>(to), count);
}

template <class T>
int launch_random(const struct cuda_stream *stream, struct random_weight random, void *to,
                  uint64_t count)
{
    return launch(stream, grid_of(count), make_random<T>, random, static_cast<T *>(to), count);
}

} /* namespace */

extern "C" int cuda_random(const struct cuda_stream *stream, enum dtype type,
                           struct random_weight random, void *to, uint64_t count)
{
    return type == DT_BF16  ? launch_random<bf16>(stream, random, to, count)
           : type == DT_F16 ? launch_random<f16>(stream, random, to, count)
                            : launch_random<float>(stream, random, to, count);
}

extern "C" int cuda_convert(const struct cuda_stream *stream, enum dtype type, const float *from,
                            void *to, uint64_t count)
{
    return type == DT_BF16  ? launch_convert<bf16>(stream, from, to, count)
           : type == DT_F16 ? launch_convert<f16>(stream, from, to, count)
                            : launch_convert<float>(stream, from, to, count);
}

extern "C" uint64_t cuda_pack_bytes(uint32_t outputs, uint32_t columns)
{
    uint64_t tiles = ((uint64_t)outputs + CUDA_SKINNY_OUTPUTS - 1) / CUDA_SKINNY_OUTPUTS;
    uint64_t chunks = ((uint64_t)columns + CUDA_SKINNY_COLUMNS - 1) / CUDA_SKINNY_COLUMNS;

    return tiles * chunks * CUDA_SKINNY_OUTPUTS * CUDA_SKINNY_COLUMNS * 2;
}

extern "C" int cuda_pack(const struct cuda_stream *stream, const struct cuda_pack *a,
                         const void *from, void *to)
{
    uint64_t count = cuda_pack_bytes(a->outputs, a->columns) / 2;

    return launch(stream, grid_of(count), pack, *a, static_cast<const uint16_t *>(from),
                  static_cast<uint16_t *>(to), count);
}
