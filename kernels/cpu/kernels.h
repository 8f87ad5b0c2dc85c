/* kernels.h -- what the CPU computes, as one table of functions for each family of processors.
 *
 *     CPU_PLAIN    *_ref.c     plain C, any processor: the oracle for the others
 *     CPU_AVX2     *_avx2.c
 *     CPU_AVX512   *_avx512.c
 *
 * Within one family a row's results have the same bits whatever rows are computed beside it and
 * however many threads divide the work: every sum has one fixed order. Families differ in the last
 * bits.
 *
 * Buffers are 64-byte aligned, rows padded with zeros to whole blocks of 32 floats. Nothing here
 * allocates, fails or knows a model. */
#ifndef WEFT_CPU_KERNELS_H
#define WEFT_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/cpu/activations.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/packed.h"

enum {
    PAGE_TOKENS = 16, /* of the KV cache; a vector lane is one token */
    LANES = 16,
    ATTEND_ROWS_MAX = 12, /* that one pass over the keys serves */
    ATTEND_CHUNK = 256,   /* tokens between two corrections of the running maximum */
    RAW_BLOCKS = 8,       /* of PACK_RAW made into floats at once: 256 columns */
};

/* Scratch of one thread. */
struct kernel_scratch {
    float *raw;     /* [RAW_BLOCKS x 32 x 16] */
    float *queries; /* [head_size][ATTEND_ROWS_MAX] */
    float *scores;  /* [ATTEND_ROWS_MAX][ATTEND_CHUNK + LANES] */
    float *sums;    /* [ATTEND_ROWS_MAX][padded value_size] */
};

/* One KV head of one page: 16 scales of the keys and 16 of the values (floats), keys
 * [head_size][16 tokens], values [16 tokens][padded value_size] whose padding is zero.
 *
 * Elements are 16-bit integers with one scale for each token's key and one for its value: keys have
 * a few large dimensions, which f16 would round 16 times more coarsely and which decide the scores.
 * f32: floats, and the scales are not used. */
struct kv_shape {
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t value_size;   /* at most head_size */
    uint32_t value_padded; /* up to whole vectors of 16 */
    bool f32;
};
enum { KV_SCALES_BYTES = 2 * PAGE_TOKENS * 4, KV_INT_MOST = 32767 };

static inline size_t kv_block_bytes(const struct kv_shape *shape)
{
    size_t elements = (size_t)PAGE_TOKENS * (shape->head_size + shape->value_padded);

    return KV_SCALES_BYTES + elements * (shape->f32 ? 4 : 2);
}

/* The queries of one sequence against its keys and values of one layer, for one KV head. Row i is
 * token i / group and query head kv_head x group + i % group; a token sees the positions up to its
 * own. */
struct attend {
    const struct kv_shape *shape;
    const uint8_t *pages;       /* of the layer: page p, KV head h at block p x kv_heads + h */
    const uint32_t *page_table; /* page numbers by position / 16 */
    uint32_t kv_head;
    uint32_t group;       /* query heads for each KV head */
    uint32_t position;    /* of token 0 */
    const float *queries; /* token 0, head 0; scaled and rotated */
    size_t query_stride;  /* floats from token to token */
    float *out;           /* token 0, head 0; heads of value_size */
    size_t out_stride;
    uint32_t window;     /* a token sees itself and the window - 1 before it; 0: all */
    uint32_t keys;       /* every token sees so many, those after it too; 0: only those up to it */
    float softcap;       /* c: scores become c tanh(score / c); 0: none */
    const float *slopes; /* score += slopes[query head] x the key's position; NULL: none */
    const float *sinks;  /* a score for each query head that takes its share of the weights and adds
                            nothing; NULL: none */
};

/* out = (x - mean) / sqrt(variance + epsilon) x gain + bias; not centred: without the mean and the
 * bias, by the mean of squares. */
struct norm {
    bool centred;
    uint32_t columns;
    float epsilon;
    const float *gain;
    const float *bias; /* NULL: none */
};

/* Rotary tables of one token: out[i] = x[i] cosines[i] + x[partner of i] sines[i], the partner's
 * sign in sines. */
struct rotary {
    uint32_t size; /* dimensions that rotate, even; may be 0 */
    bool halves;   /* partner at distance size / 2; else the neighbour */
    const float *cosines;
    const float *sines;
};

struct cpu_kernels {
    const char *name; /* "avx512-vnni" */

    /* In which form a product of `rows` rows with weights packed so wants its inputs. */
    enum form (*form)(enum pack pack, enum precision precision, uint32_t rows);
    /* Fills units (row, first_block ...) in every form of x->forms from float values. */
    void (*put)(const struct activations *x, uint32_t row, uint32_t first_block,
                uint32_t block_count, const float *values);
    /* y[row][16 (g - first) + lane] = W x for groups first .. first + count - 1 and all rows of x,
     * `stride` floats from row to row. add: onto what is there. */
    void (*product)(const struct packed *w, uint32_t first, uint32_t count,
                    const struct activations *x, float *y, size_t stride, bool add,
                    const struct kernel_scratch *scratch);

    /* Over norm->columns values; the padding of `out` becomes zeros. out may be x. */
    void (*norm)(const struct norm *norm, const float *x, float *out);
    /* out[i] = activation(gate[i]) x up[i], 32 values; up NULL: without it. `limit` is
     * ACTIVATION_SWIGLU_OAI's. */
    void (*activate)(enum activation activation, const float *gate, const float *up, float limit,
                     float *out);
    /* c tanh(x / c) in place, whole vectors of 16. */
    void (*softcap)(float *values, uint32_t count, float cap);
    /* One head in place; then every value x scale. */
    void (*rotate)(float *head, uint32_t head_size, const struct rotary *rotary, float scale);
    void (*kv_write)(const struct kv_shape *shape, uint8_t *block, uint32_t token, const float *key,
                     const float *value);
    /* Rows first .. first + count - 1 of the attention, count <= ATTEND_ROWS_MAX. */
    void (*attend)(const struct attend *attend, uint32_t first, uint32_t count,
                   const struct kernel_scratch *scratch);
    /* Index of the largest (the lowest on a tie), NANs aside; *ret_value is it. */
    uint32_t (*argmax)(const float *values, uint32_t count, float *ret_value);
};

extern const struct cpu_kernels cpu_kernels_plain;
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avx512;

/* kernels->product in pieces: inputs of a few rows and weights of a few groups, which stay in the
 * first and the second cache while each is used with all of the other. The same bits. */
void cpu_product(const struct cpu_kernels *kernels, const struct packed *w, uint32_t first,
                 uint32_t count, const struct activations *x, float *y, size_t stride, bool add,
                 const struct kernel_scratch *scratch);

/* The table for a level, or the next lower one that this build has. */
const struct cpu_kernels *cpu_kernels_get(enum cpu_level level);

#endif
