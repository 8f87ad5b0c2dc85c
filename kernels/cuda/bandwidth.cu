/* bandwidth.cu -- how fast this card reads its memory: the ceiling of every decode step.
 *
 * Every block streams a contiguous share of its own, and all of it is read once. From capability
 * 9.0 on by bulk copies into a ring of shared memory, one block a multiprocessor: six pieces of
 * 16 KB are in flight, twice what reaches the plateau (on an H200, of random bf16: 32 KB 4.3 TB/s,
 * 48 KB 4.56 to 4.65, 96 KB 4.58 to 4.69). One warp looks at each piece before its place is free
 * again. Below 9.0 by plain loads, eight of 16 bytes in flight a thread. */
#include "kernels/cuda/common.cuh"

namespace
{

constexpr uint32_t PIECE_BYTES = 16384;
constexpr uint32_t PIECES = 6;
constexpr uint32_t RING_THREADS = 64; /* a warp that copies, a warp that looks */
constexpr uint32_t PLAIN_THREADS = 256;
constexpr uint32_t PLAIN_LOADS = 8;
constexpr uint32_t PLAIN_BLOCKS = 8; /* a multiprocessor */
constexpr uint32_t UNLIKELY = 0x12345678;

__global__ void __launch_bounds__(RING_THREADS)
    stream_ring(const uint8_t *memory, size_t piece_count, uint32_t *sink)
{
#if HAS_BULK_COPY
    extern __shared__ __align__(128) uint8_t ring[];
    __shared__ uint64_t full[PIECES], empty[PIECES];
    const uint8_t *share = memory + blockIdx.x * piece_count * PIECE_BYTES;
    uint32_t seen = 0;

    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < PIECES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        const uint64_t policy = policy_evict_first();

        for (size_t i = 0; i < piece_count; i++) {
            const uint32_t place = i % PIECES, parity = i / PIECES % 2;

            barrier_wait(&empty[place], parity ^ 1);
            barrier_expect(&full[place], PIECE_BYTES);
            bulk_copy(ring + place * PIECE_BYTES, share + i * PIECE_BYTES, PIECE_BYTES,
                      &full[place], policy);
        }
    } else if (threadIdx.x < 32) {
        for (size_t i = 0; i < piece_count; i++) {
            const uint32_t place = i % PIECES, parity = i / PIECES % 2;
            const uint4 *piece = reinterpret_cast<const uint4 *>(ring + place * PIECE_BYTES);

            barrier_wait(&full[place], parity);
            seen ^= piece[threadIdx.x].x;
            __syncwarp();
            if (threadIdx.x == 0)
                barrier_arrive(&empty[place]);
        }
        if (seen == UNLIKELY)
            *sink = seen;
    }
#endif
}

__global__ void __launch_bounds__(PLAIN_THREADS)
    stream_plain(const uint4 *memory, size_t round_count, uint32_t *sink)
{
    const uint4 *at =
        memory + (size_t)blockIdx.x * round_count * PLAIN_LOADS * PLAIN_THREADS + threadIdx.x;
    uint32_t seen = 0;

    for (size_t i = 0; i < round_count; i++, at += PLAIN_LOADS * PLAIN_THREADS) {
        uint4 loaded[PLAIN_LOADS];

#pragma unroll
        for (uint32_t j = 0; j < PLAIN_LOADS; j++)
            loaded[j] = __ldcs(at + j * PLAIN_THREADS);
#pragma unroll
        for (uint32_t j = 0; j < PLAIN_LOADS; j++)
            seen ^= loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w;
    }
    if (seen == UNLIKELY)
        *sink = seen;
}

} /* namespace */

extern "C" int cuda_read_memory(const struct cuda_stream *stream, const void *memory, size_t bytes,
                                uint32_t *sink, size_t *ret_bytes)
{
    const uint32_t processors = (uint32_t)stream->context->properties.multiprocessors;
    const size_t round_bytes = PLAIN_LOADS * PLAIN_THREADS * sizeof(uint4);
    const size_t piece_count = bytes / processors / PIECE_BYTES;
    const size_t round_count = bytes / (processors * PLAIN_BLOCKS) / round_bytes;
    int r;

    if (stream->context->properties.capability < 90) {
        *ret_bytes = round_count * round_bytes * processors * PLAIN_BLOCKS;
        return launch(stream, cuda_grid{processors * PLAIN_BLOCKS, 1, 1, PLAIN_THREADS, 0, false},
                      stream_plain, (const uint4 *)memory, round_count, sink);
    }
    r = cuda_kernel_shared(stream->context, (const void *)stream_ring, PIECES * PIECE_BYTES);
    if (r < 0)
        return r;
    *ret_bytes = piece_count * PIECE_BYTES * processors;
    return launch(stream, cuda_grid{processors, 1, 1, RING_THREADS, PIECES * PIECE_BYTES, false},
                  stream_ring, (const uint8_t *)memory, piece_count, sink);
}
