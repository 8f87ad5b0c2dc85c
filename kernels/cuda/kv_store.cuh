/* kv_store.cuh -- rotary positions and where a key or value goes: what the two ways to q, k and v
 * (a fused product, skinny.cu; a kernel of its own, rows.cu) have to do alike. */
#ifndef WEFT_CUDA_KV_STORE_CUH
#define WEFT_CUDA_KV_STORE_CUH

#include "kernels/cuda/common.cuh"

/* The two elements of a head that pair `pair` turns; pairs beyond the rotary part are neighbours
 * that stay as they are. */
__device__ __forceinline__ void pair_elements(const struct cuda_rotary &rotary, uint32_t pair,
                                              uint32_t *ret_first, uint32_t *ret_second)
{
    uint32_t half = rotary.size / 2;

    if (rotary.halves && pair < half) {
        *ret_first = pair;
        *ret_second = pair + half;
    } else {
        *ret_first = 2 * pair;
        *ret_second = 2 * pair + 1;
    }
}

__device__ __forceinline__ void rotate(const struct cuda_rotary &rotary, uint32_t token,
                                       uint32_t pair, float *first, float *second)
{
    uint32_t pairs = rotary.size / 2;

    if (pair >= pairs)
        return;
    float2 turn = reinterpret_cast<const float2 *>(rotary.table)[(size_t)token * pairs + pair];
    float turned = *first * turn.x - *second * turn.y;
    *second = *first * turn.y + *second * turn.x;
    *first = turned;
}

/* Element `element` of a head, key (half 0) or value (half 1), to the token's place in its page. */
template <class T>
__device__ __forceinline__ void store_kv(const struct cuda_qkv &q, const struct cuda_token &token,
                                         uint32_t kv_head, uint32_t half, uint32_t element, float v)
{
    constexpr uint32_t CHUNK_ELEMENTS = 16 / sizeof(T);
    const uint32_t head_bytes = q.head_size * sizeof(T);
    const uint32_t place = token.position % CUDA_PAGE_TOKENS;
    const uint32_t page =
        q.page_table[(size_t)token.row * q.pages_per_row + token.position / CUDA_PAGE_TOKENS];
    const uint32_t chunk = cuda_kv_chunk(element / CHUNK_ELEMENTS, head_bytes / 16, place);
    uint8_t *block = static_cast<uint8_t *>(q.pages) +
                     cuda_kv_block(page, q.kv_heads, kv_head, half, head_bytes);

    reinterpret_cast<T *>(block + (size_t)place * head_bytes +
                          chunk * 16)[element % CHUNK_ELEMENTS] = from_float<T>(v);
}

#endif
