/* skinny_finish.cuh -- what becomes of a finished tile of a product of few rows (skinny.cu): by
 * kind the logits, the residual and the next norm's squares, the hidden activations, or q, k and v
 * turned and in their pages.
 *
 * A warp finishes 16 outputs of up to 8 tokens at a time, from where the matrix instructions left
 * them: lane l has outputs l / 4 and l / 4 + 8, tokens 2 (l % 4) and the next:
 *     v[0] = (o, t)  v[1] = (o, t + 1)  v[2] = (o + 8, t)  v[3] = (o + 8, t + 1) */
#ifndef WEFT_CUDA_SKINNY_FINISH_CUH
#define WEFT_CUDA_SKINNY_FINISH_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kv_store.cuh"

/* All that a kernel is given, by value. */
struct Product {
    const uint8_t *weights;
    const uint8_t *x;
    uint32_t tokens;
    uint32_t outputs;
    uint32_t chunks; /* of a tile's columns */
    uint32_t stages; /* of the ring */
    uint32_t each, extra;
    const float *squares;
    uint32_t squares_count;
    float width, epsilon;
    float4 *partials;  /* [2][blocks][a tile's sums] */
    uint32_t *arrived; /* [outputs / 16], zero between kernels */
    void *out;
    uint32_t out_stride;
    float *residual;
    const float *next_gamma;
    void *next_x;
    float *next_squares;
    struct cuda_qkv qkv;
};

/* --- one warp's 16 outputs of a finished tile ---------------------------------------------- */

struct Place {
    uint32_t row_tile; /* output / 16 */
    uint32_t output;
    uint32_t token;
};

template <class T>
__device__ __forceinline__ void finish_plain(const Product &p, const Place &at, const float (&v)[4])
{
    T *out = static_cast<T *>(p.out);

#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
        if (token < p.tokens && output < p.outputs)
            out[(size_t)token * p.out_stride + output] = from_float<T>(v[e]);
    }
}

__device__ __forceinline__ void finish_logits(const Product &p, const Place &at,
                                              const float (&v)[4])
{
    finish_plain<float>(p, at, v);
}

/* The sums of 16 columns as the next product's b operand: what lane l holds of it is token l / 4,
 * columns 2 (l % 4), the next, and those eight on: two transposed matrices. Tokens beyond the
 * step's are written too; nobody reads what becomes of them. */
template <class T, int TILES>
__device__ __forceinline__ void store_fragment(void *x, const Place &at, const float (&v)[4])
{
    uint2 fragment;

    fragment.x = transposed_matrix(pack_pair<T>(saturated<T>(v[0]), saturated<T>(v[1])));
    fragment.y = transposed_matrix(pack_pair<T>(saturated<T>(v[2]), saturated<T>(v[3])));
    reinterpret_cast<uint2 *>(x)[(at.row_tile * TILES + at.token / 8) * 32 + threadIdx.x % 32] =
        fragment;
}

template <class T, int TILES>
__device__ __forceinline__ void finish_residual(const Product &p, const Place &at,
                                                const float (&v)[4], const float (&before)[4])
{
    float square[2] = {0.0f, 0.0f}, x[4];

#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
        float after = before[e] + v[e];

        if (token < p.tokens && output < p.outputs)
            __stcg(p.residual + (size_t)token * p.outputs + output, after);
        x[e] = p.next_gamma && output < p.outputs ? after * p.next_gamma[output] : 0.0f;
        square[e & 1] += after * after;
    }
    if (!p.next_gamma)
        return;
    store_fragment<T, TILES>(p.next_x, at, x);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
        square[0] += __shfl_xor_sync(ALL_LANES, square[0], distance);
        square[1] += __shfl_xor_sync(ALL_LANES, square[1], distance);
    }
    if (threadIdx.x % 32 < 4) {
        uint32_t count = (p.outputs + 15) / 16;
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (at.token + e < p.tokens && at.row_tile < count)
                __stcg(p.next_squares + (size_t)(at.token + e) * count + at.row_tile, square[e]);
    }
}

/* Packed rows: 8 gates, then their 8 ups: half of a fragment. */
template <class T, int TILES>
__device__ __forceinline__ void finish_swiglu(const Product &p, const Place &at,
                                              const float (&v)[4])
{
    float hidden[2];

#pragma unroll
    for (int e = 0; e < 2; e++)
        hidden[e] = saturated<T>(v[e] / (1.0f + __expf(-v[e])) * v[2 + e]);
    uint32_t pair = transposed_matrix(pack_pair<T>(hidden[0], hidden[1]));
    uint32_t fragment = at.row_tile / 2 * TILES + at.token / 8;

    reinterpret_cast<uint32_t *>(
        p.next_x)[(fragment * 32 + threadIdx.x % 32) * 2 + at.row_tile % 2] = pair;
}

/* Where the tile's 16 rows belong: a head is whole tiles. */
struct Heads {
    uint32_t part; /* 0 q, 1 k, 2 v; 3: padding */
    uint32_t head;
    uint32_t row; /* of the tile in its head */
};
__device__ __forceinline__ Heads heads_of(const struct cuda_qkv &q, uint32_t row_tile)
{
    const uint32_t q_rows = q.heads * q.head_size, kv_rows = q.kv_heads * q.head_size;
    uint32_t row = row_tile * 16, part = 0;

    if (row >= q_rows) {
        part = 1 + (row - q_rows) / kv_rows;
        row = (row - q_rows) % kv_rows;
    }
    return Heads{part < 3 ? part : 3, row / q.head_size, row % q.head_size};
}

/* Packed rows of q and k: the first elements of eight pairs, then their second ones (cuda_pack).
 * `turns` are cosine and sine of the two tokens, `slots` their places in the pages. Two neighbours
 * are stored at once: a pair's own where pairs are neighbours, else those of two lanes. */
template <class T>
__device__ __forceinline__ void finish_qkv(const Product &p, const Place &at, const float (&v)[4],
                                           const float (&turns)[4], const uint32_t *slots)
{
    const struct cuda_qkv &q = p.qkv;
    const Heads heads = heads_of(q, at.row_tile);
    const uint32_t within = at.output % 8, half = q.rotary.size / 2;
    uint32_t first = heads.row + within, second = first + 8;
    bool neighbours = false;

    if (heads.part == 3)
        return;
    if (heads.part < 2) {
        uint32_t pair = heads.row / 2 + within;

        pair_elements(q.rotary, pair, &first, &second);
        neighbours = !q.rotary.halves || pair >= half;
    }
    float bias[2] = {0.0f, 0.0f};
    if (q.bias) {
        uint32_t base = at.row_tile * 16 - heads.row;
        bias[0] = q.bias[base + first];
        bias[1] = q.bias[base + second];
    }
    const bool odd = within & 1;
    const uint32_t element = neighbours || !odd ? first : second - 1;
    const uint32_t chunk = element * sizeof(T) / 16, head_bytes = q.head_size * sizeof(T);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float a = v[e] + bias[0], b = v[2 + e] + bias[1];

        if (heads.part < 2) {
            float turned = a * turns[2 * e] - b * turns[2 * e + 1];
            b = a * turns[2 * e + 1] + b * turns[2 * e];
            a = turned;
        }
        if (!neighbours) {
            float other = __shfl_xor_sync(ALL_LANES, odd ? a : b, 4);
            if (odd)
                a = other;
            else
                b = other;
        }
        if (slots[e] == CUDA_ROW_NONE)
            continue;
        const uint32_t place = slots[e] % CUDA_PAGE_TOKENS;
        uint8_t *to = heads.part == 0
                          ? static_cast<uint8_t *>(q.q) +
                                ((size_t)(at.token + e) * q.heads + heads.head) * head_bytes +
                                element * sizeof(T)
                          : static_cast<uint8_t *>(q.pages) +
                                cuda_kv_block(slots[e] / CUDA_PAGE_TOKENS, q.kv_heads, heads.head,
                                              heads.part - 1, head_bytes) +
                                (size_t)place * head_bytes +
                                cuda_kv_chunk(chunk, head_bytes / 16, place) * 16 +
                                element * sizeof(T) % 16;
        *reinterpret_cast<uint32_t *>(to) = pack_pair<T>(a, b);
    }
}

/* Where the keys and values of the lane's tokens belong: page x CUDA_PAGE_TOKENS + place; tokens
 * beyond the step's and padding: CUDA_ROW_NONE. Looked up in two rounds, all loads of a round at
 * once, and other work between them. */
template <int TILES> struct Slots {
    struct cuda_token placed[TILES][2];
    uint32_t at[TILES][2];

    __device__ __forceinline__ void load_tokens(const Product &p)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                uint32_t token = j * 8 + threadIdx.x % 4 * 2 + e;

                placed[j][e].row = CUDA_ROW_NONE;
                if (token < p.tokens)
                    placed[j][e] = p.qkv.rows.placed[token];
            }
    }
    __device__ __forceinline__ void load_pages(const Product &p)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const struct cuda_token &token = placed[j][e];

                at[j][e] = CUDA_ROW_NONE;
                if (token.row != CUDA_ROW_NONE)
                    at[j][e] = p.qkv.page_table[(size_t)token.row * p.qkv.pages_per_row +
                                                token.position / CUDA_PAGE_TOKENS] *
                                   CUDA_PAGE_TOKENS +
                               token.position % CUDA_PAGE_TOKENS;
            }
    }
};

#endif
