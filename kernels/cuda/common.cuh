/* common.cuh -- what the kernels share: element types, loads, reductions, matrix instructions,
 * programmatic launch, asynchronous copies, and the layouts that two of them have to agree on.
 *
 * Targets go down to compute capability 7.5; what a target lacks is behind the same function
 * (bulk copies and dependent launches begin with 9.0, cp.async and bf16 matrix instructions with
 * 8.0). PTX forms are from NVIDIA's PTX ISA manual, 9.0. */
#ifndef WEFT_CUDA_COMMON_CUH
#define WEFT_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/kernels.h"

using bf16 = __nv_bfloat16;
using f16 = __half;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_BULK_COPY 1
#else
#define HAS_BULK_COPY 0
#endif

constexpr unsigned ALL_LANES = 0xffffffffu;

/* --- element types ------------------------------------------------------------------------- */

__device__ __forceinline__ float to_float(float v)
{
    return v;
}
__device__ __forceinline__ float to_float(bf16 v)
{
    return __bfloat162float(v);
}
__device__ __forceinline__ float to_float(f16 v)
{
    return __half2float(v);
}
template <class T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v)
{
    return v;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float v)
{
    return __float2bfloat16(v);
}
template <> __device__ __forceinline__ f16 from_float<f16>(float v)
{
    return __float2half(v);
}

constexpr float F16_MOST = 65504.0f;

/* Within the type's range. */
template <class T> __device__ __forceinline__ float saturated(float v)
{
    return v;
}
template <> __device__ __forceinline__ float saturated<f16>(float v)
{
    return fminf(fmaxf(v, -F16_MOST), F16_MOST);
}

/* Two neighbours in one register, the first one low. */
template <class T> __device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t pack_pair<bf16>(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}
template <> __device__ __forceinline__ uint32_t pack_pair<f16>(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* --- reductions ---------------------------------------------------------------------------- */

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, distance);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, distance));
    return v;
}

/* Of all threads of the block, in a fixed order; `shared` holds 33 floats. Every thread gets it. */
__device__ __forceinline__ float block_sum(float v, float *shared)
{
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < (blockDim.x + 31) / 32 ? shared[threadIdx.x] : 0.0f;
        v = warp_sum(v);
        if (threadIdx.x == 0)
            shared[32] = v;
    }
    __syncthreads();
    v = shared[32];
    __syncthreads();
    return v;
}

/* 2^x, relative error below 2^-22; numbers below 2^-126 come out as 0. */
__device__ __forceinline__ float exp2_approximate(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* --- programmatic dependent launch --------------------------------------------------------- */

__device__ __forceinline__ void dependency_wait()
{
#if HAS_BULK_COPY
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void dependents_launch()
{
#if HAS_BULK_COPY
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* --- matrix instructions ------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* c[16][8] += a[16][16] b[16][8]: a is row-major, b column-major, as `mma.m16n8k16` has them. */
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const uint4 &a, uint32_t b0,
                                            uint32_t b1);
template <>
__device__ __forceinline__ void mma_16x8x16<f16>(float (&c)[4], const uint4 &a, uint32_t b0,
                                                 uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.z), "r"(a.w), "r"(b1));
#endif
}
/* Not below 8.0: there the engine places f16 instead of bf16. */
template <>
__device__ __forceinline__ void mma_16x8x16<bf16>(float (&c)[4], const uint4 &a, uint32_t b0,
                                                  uint32_t b1)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else
    __trap();
#endif
}

/* Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ uint4 load_matrices(uint32_t address)
{
    uint4 r;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "r"(address)
                 : "memory");
    return r;
}

__device__ __forceinline__ uint4 load_matrices_transposed(uint32_t address)
{
    uint4 r;

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "r"(address)
                 : "memory");
    return r;
}

/* Lane l has row l / 4, columns 2 (l % 4) and the next, of an 8x8 matrix of 16-bit elements; it
 * gets the same place of the transposed one. */
__device__ __forceinline__ uint32_t transposed_matrix(uint32_t pair)
{
    uint32_t r;

    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
    return r;
}

/* --- barriers in shared memory and bulk copies (9.0) --------------------------------------- */

#if HAS_BULK_COPY
__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Traps after some seconds, so that a wrong pipeline ends as an error and not as a hang. Not
 * unrolled: the kernels of a layer share an instruction cache that they barely fit in. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
#pragma unroll 1
    for (uint32_t tries = 0; tries < 1u << 24; tries++) {
        uint32_t done;

        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
        if (done)
            return;
    }
    __trap();
}

/* Global to shared memory; both 16-byte aligned, bytes a multiple of 16; counted by the barrier. */
__device__ __forceinline__ void bulk_copy(void *to, const void *from, uint32_t bytes,
                                          uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

__device__ __forceinline__ uint64_t policy_evict_first()
{
    uint64_t policy;

    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t policy_evict_normal()
{
    uint64_t policy;

    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#endif

/* What plain stores wrote becomes visible to bulk copies (issue it on both sides of the hand-over).
 */
__device__ __forceinline__ void bulk_fence()
{
#if HAS_BULK_COPY
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/* A barrier of `threads` threads of the block; ids 1 to 15. */
__device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* --- hand-over between blocks -------------------------------------------------------------- */

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *pointer)
{
    uint32_t v;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(pointer) : "memory");
    return v;
}

/* What the host wrote into mapped memory while the kernel runs. */
__device__ __forceinline__ uint32_t load_acquire_system(const uint32_t *pointer)
{
    uint32_t v;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(pointer) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t add_acquire_release(uint32_t *pointer, uint32_t v)
{
    uint32_t before;

    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(pointer), "r"(v)
                 : "memory");
    return before;
}

/* --- layouts ------------------------------------------------------------------------------- */

/* Where chunk `chunk` (16 bytes) of a token's head lies in its row of `chunks`; `token` is the
 * token's place in its page. Rows that share a bank group are eight tokens apart. */
__host__ __device__ __forceinline__ uint32_t cuda_kv_chunk(uint32_t chunk, uint32_t chunks,
                                                           uint32_t token)
{
    return (chunk & ~7u) < (chunks & ~7u) ? chunk ^ (token & 7u) : chunk;
}

/* Bytes from the layer's pages to a page's keys (half 0) or values (half 1) of one head. */
__host__ __device__ __forceinline__ size_t cuda_kv_block(uint32_t page, uint32_t kv_heads,
                                                         uint32_t kv_head, uint32_t half,
                                                         uint32_t head_bytes)
{
    return (((size_t)page * kv_heads + kv_head) * 2 + half) * CUDA_PAGE_TOKENS * head_bytes;
}

/* Activations in the order in which `mma` takes its b operand: for each 16 columns, for each tile
 * of 8 tokens, for each lane its four elements. Index of (token, column) with `tiles` tiles. */
__host__ __device__ __forceinline__ size_t cuda_fragment(uint32_t token, uint32_t column,
                                                         uint32_t tiles)
{
    return ((size_t)(column >> 4) * tiles + (token >> 3)) * 128 +
           ((token & 7) * 4 + ((column & 7) >> 1)) * 4 + (column & 1) + ((column >> 3) & 1) * 2;
}

/* --- launching ----------------------------------------------------------------------------- */

/* launch(stream, grid, kernel, arguments...): cuda_launch() with the arguments' types checked. */
template <class... Parameters, class... Arguments>
static int launch(const struct cuda_stream *stream, const struct cuda_grid &grid,
                  void (*kernel)(Parameters...), const Arguments &...arguments)
{
    return [&](Parameters... converted) {
        void *list[] = {(void *)&converted...};
        return cuda_launch(stream, (const void *)kernel, &grid, list);
    }(arguments...);
}

#endif
