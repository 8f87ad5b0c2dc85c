/* attention_lanes.h -- attention over lanes.h, for the .c file of each instruction set to include
 * once. Before, that file lists in ATTEND_SHAPES(X) how many rows it can keep in registers:
 * X(rows, pages at once for scores, vectors at once for sums), most rows first, down to one.
 *
 * A lane is one token of a page. For a handful of query rows (heads of a group, neighbouring
 * tokens) each key line is loaded once:
 *
 *     scores[row][token] = sum over d of keys[d][token] queries[d][row]      d in order, one chain
 *     weights = exp(scores - running maximum), in chunks of ATTEND_CHUNK tokens at fixed positions;
 *               times the token's value scale
 *     sums[row][dimension] += values[token][dimension] weights[row][token]   tokens in order
 *
 * Chunks that no row's window reaches are left out; in the others what a row does not see has no
 * weight. Each row's operations and their order depend on that row's length alone, never on its
 * neighbours, so a token's result has the same bits in a prefill chunk and in a decode step. */
#ifndef WEFT_CPU_ATTENTION_LANES_H
#define WEFT_CPU_ATTENTION_LANES_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/lanes.h"

#ifndef ATTEND_SHAPES /* to be compiled alone */
#define ATTEND_SHAPES(X) X(1, 1, 1)
#endif

enum {
    SCORES_STRIDE = ATTEND_CHUNK + LANES, /* rows do not meet in the cache */
    PAGES_MAX = 4,
    VECTORS_MAX = 4,
};

/* The state of the rows that one call computes. */
struct attend_state {
    const struct attend *attend;
    const struct kernel_scratch *scratch;
    uint32_t count;
    bool adjusts; /* scores are not used as they are */
    size_t block_bytes;
    uint32_t lengths[ATTEND_ROWS_MAX]; /* tokens up to each row's own */
    uint32_t firsts[ATTEND_ROWS_MAX];  /* the first one that it sees */
    uint32_t heads[ATTEND_ROWS_MAX];   /* its query head */
    float largest[ATTEND_ROWS_MAX];
    floats16 totals[ATTEND_ROWS_MAX];
};

static const float lane_numbers[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Finite, so that differences of scores are numbers. */
#define HIDDEN_SCORE -1e30f

static const uint8_t *block_of(const struct attend_state *s, uint32_t page)
{
    size_t number = s->attend->page_table[page];

    return s->attend->pages +
           (number * s->attend->shape->kv_heads + s->attend->kv_head) * s->block_bytes;
}

/* Sixteen elements, not scaled. */
INLINE floats16 load_line(const uint8_t *block, size_t at, const bool f32)
{
    const void *elements = block + KV_SCALES_BYTES;

    return f32 ? lanes_load((const float *)elements + at)
               : lanes_load_i16((const int16_t *)elements + at);
}

/* --- scores ----------------------------------------------------------------------------------- */

/* `pages` pages from `page` on, for rows row .. row + rows - 1. Several pages at once when the rows
 * are few: a sum has to wait for itself, but not for the other sums. */
INLINE void score_pages(const struct attend_state *s, uint32_t page, uint32_t row,
                        const uint32_t rows, const uint32_t pages, const bool f32)
{
    const float *queries = s->scratch->queries + row;
    float *to = s->scratch->scores + row * SCORES_STRIDE + page * PAGE_TOKENS % ATTEND_CHUNK;
    const uint8_t *blocks[PAGES_MAX];
    floats16 sums[PAGES_MAX][ATTEND_ROWS_MAX];

    for (uint32_t p = 0; p < pages; p++)
        blocks[p] = block_of(s, page + p);
    UNROLL
    for (uint32_t p = 0; p < pages; p++) {
        UNROLL
        for (uint32_t r = 0; r < rows; r++)
            sums[p][r] = lanes_zero();
    }
    for (uint32_t d = 0; d < s->attend->shape->head_size; d++, queries += ATTEND_ROWS_MAX) {
        UNROLL
        for (uint32_t p = 0; p < pages; p++) {
            floats16 key = load_line(blocks[p], (size_t)d * PAGE_TOKENS, f32);

            UNROLL
            for (uint32_t r = 0; r < rows; r++)
                sums[p][r] = lanes_fma(key, lanes_set(queries[r]), sums[p][r]);
        }
    }
    UNROLL
    for (uint32_t p = 0; p < pages; p++) {
        floats16 scales = f32 ? lanes_set(1) : lanes_load((const float *)blocks[p]);

        UNROLL
        for (uint32_t r = 0; r < rows; r++)
            lanes_store(to + r * SCORES_STRIDE + p * PAGE_TOKENS, lanes_mul(sums[p][r], scales));
    }
}

INLINE void score_range(const struct attend_state *s, uint32_t page, uint32_t end, uint32_t row,
                        const uint32_t rows, const uint32_t pages, const bool f32)
{
    for (; page + pages <= end; page += pages)
        score_pages(s, page, row, rows, pages, f32);
    for (; page < end; page++)
        score_pages(s, page, row, rows, 1, f32);
}

/* What the family does to scores of tokens chunk .. chunk + seen - 1 before they become weights;
 * those before the row's window end below all others. Whole vectors: what is behind `seen` may be
 * anything. */
static void adjust_row(const struct attend_state *s, uint32_t row, uint32_t chunk, uint32_t seen)
{
    const struct attend *attend = s->attend;
    float *scores = s->scratch->scores + row * SCORES_STRIDE;
    uint32_t hidden = s->firsts[row] > chunk ? s->firsts[row] - chunk : 0;

    for (uint32_t i = 0; i < seen; i += LANES) {
        floats16 a = lanes_load(scores + i);

        if (attend->softcap > 0) {
            a = lanes_tanh(lanes_mul(a, lanes_set(1.0f / attend->softcap)));
            a = lanes_mul(a, lanes_set(attend->softcap));
        }
        if (attend->slopes)
            a = lanes_fma(lanes_add(lanes_set((float)(chunk + i)), lanes_load(lane_numbers)),
                          lanes_set(attend->slopes[s->heads[row]]), a);
        if (i + LANES <= hidden)
            a = lanes_set(HIDDEN_SCORE);
        else if (i < hidden)
            a = lanes_first(lanes_set(HIDDEN_SCORE), hidden - i, a);
        lanes_store(scores + i, a);
    }
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Turns the row's scores of the chunk into weights and moves its running maximum and total on;
 * zeros where the row sees nothing, up to `tokens`. value_scales: NULL for none. Returns by how
 * much earlier sums shrink. */
static float weigh_row(struct attend_state *s, uint32_t row, uint32_t chunk, uint32_t tokens,
                       const float *value_scales)
{
    float *scores = s->scratch->scores + row * SCORES_STRIDE;
    uint32_t seen = s->lengths[row] > chunk ? s->lengths[row] - chunk : 0;
    uint32_t whole, i;
    floats16 most = lanes_set(s->largest[row]), shrink;
    float largest, factor[LANES];

    seen = seen < tokens ? seen : tokens;
    if (chunk + seen <= s->firsts[row])
        seen = 0;
    else if (s->adjusts)
        adjust_row(s, row, chunk, seen);
    whole = seen / LANES * LANES;
    for (i = 0; i < whole; i += LANES)
        most = lanes_max(lanes_load(scores + i), most);
    if (whole < seen)
        most = lanes_max(lanes_first(lanes_load(scores + i), seen - whole, most), most);
    largest = lanes_largest(most);
    shrink = lanes_exp(lanes_set(seen > 0 ? s->largest[row] - largest : 0.0f));
    s->totals[row] = lanes_mul(s->totals[row], shrink);
    s->largest[row] = largest;
    for (i = 0; i < tokens; i += LANES) {
        floats16 e = lanes_zero();

        if (i < seen)
            e = lanes_exp(lanes_sub(lanes_load(scores + i), lanes_set(largest)));
        if (i < seen && seen - i < LANES)
            e = lanes_first(e, seen - i, lanes_zero());
        s->totals[row] = lanes_add(s->totals[row], e);
        if (value_scales)
            e = lanes_mul(e, lanes_load(value_scales + i));
        lanes_store(scores + i, e);
    }
    lanes_store(factor, shrink);
    return factor[0];
}

/* --- sums ------------------------------------------------------------------------------------- */

/* Adds the chunk's values to `vectors` vectors of the sums, from dimension d on. */
INLINE void sum_vectors(const struct attend_state *s, uint32_t chunk, uint32_t tokens, uint32_t row,
                        uint32_t d, const float *shrink, const uint32_t rows,
                        const uint32_t vectors, const bool f32)
{
    const struct kv_shape *shape = s->attend->shape;
    const float *weights = s->scratch->scores + row * SCORES_STRIDE;
    float *at = s->scratch->sums + row * shape->value_padded + d;
    floats16 sums[ATTEND_ROWS_MAX][VECTORS_MAX];

    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            sums[r][v] = lanes_mul(lanes_load(at + r * shape->value_padded + v * LANES),
                                   lanes_set(shrink[r]));
    }
    for (uint32_t token = 0; token < tokens; token += PAGE_TOKENS) {
        const uint8_t *block = block_of(s, (chunk + token) / PAGE_TOKENS);
        size_t line = (size_t)shape->head_size * PAGE_TOKENS + d;
        uint32_t end = tokens - token < PAGE_TOKENS ? tokens - token : PAGE_TOKENS;

        for (uint32_t t = token; t < token + end; t++, line += shape->value_padded) {
            UNROLL
            for (uint32_t v = 0; v < vectors; v++) {
                floats16 value = load_line(block, line + v * LANES, f32);

                UNROLL
                for (uint32_t r = 0; r < rows; r++)
                    sums[r][v] =
                        lanes_fma(value, lanes_set(weights[r * SCORES_STRIDE + t]), sums[r][v]);
            }
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t v = 0; v < vectors; v++)
            lanes_store(at + r * shape->value_padded + v * LANES, sums[r][v]);
    }
}

INLINE void sum_range(const struct attend_state *s, uint32_t chunk, uint32_t tokens, uint32_t row,
                      const float *shrink, const uint32_t rows, const uint32_t vectors,
                      const bool f32)
{
    uint32_t d = 0, padded = s->attend->shape->value_padded;

    for (; d + vectors * LANES <= padded; d += vectors * LANES)
        sum_vectors(s, chunk, tokens, row, d, shrink + row, rows, vectors, f32);
    for (; d < padded; d += LANES)
        sum_vectors(s, chunk, tokens, row, d, shrink + row, rows, 1, f32);
}

/* --- the shapes ------------------------------------------------------------------------------- */

#define X(ROWS, PAGES, VECTORS)                                                           \
    static void score_##ROWS(const struct attend_state *s, uint32_t page, uint32_t end,   \
                             uint32_t row)                                                \
    {                                                                                     \
        if (s->attend->shape->f32)                                                        \
            score_range(s, page, end, row, ROWS, PAGES, true);                            \
        else                                                                              \
            score_range(s, page, end, row, ROWS, PAGES, false);                           \
    }                                                                                     \
    static void sum_##ROWS(const struct attend_state *s, uint32_t chunk, uint32_t tokens, \
                           uint32_t row, const float *shrink)                             \
    {                                                                                     \
        if (s->attend->shape->f32)                                                        \
            sum_range(s, chunk, tokens, row, shrink, ROWS, VECTORS, true);                \
        else                                                                              \
            sum_range(s, chunk, tokens, row, shrink, ROWS, VECTORS, false);               \
    }
ATTEND_SHAPES(X)
#undef X

static const struct attend_shape {
    uint32_t rows;
    void (*score)(const struct attend_state *s, uint32_t page, uint32_t end, uint32_t row);
    void (*sum)(const struct attend_state *s, uint32_t chunk, uint32_t tokens, uint32_t row,
                const float *shrink);
} attend_shapes[] = {
#define X(ROWS, PAGES, VECTORS) {ROWS, score_##ROWS, sum_##ROWS},
    ATTEND_SHAPES(X)
#undef X
};

/* The largest shape of at most `rows` rows. */
static const struct attend_shape *shape_for(uint32_t rows)
{
    const struct attend_shape *shape = attend_shapes;

    while (shape->rows > rows)
        shape++;
    return shape;
}

/* --- all of it -------------------------------------------------------------------------------- */

static void attend_chunk(struct attend_state *s, uint32_t chunk, uint32_t tokens)
{
    float shrink[ATTEND_ROWS_MAX], scales[ATTEND_CHUNK];
    bool f32 = s->attend->shape->f32;
    uint32_t page = chunk / PAGE_TOKENS, pages = (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;

    for (uint32_t row = 0; row < s->count; row += shape_for(s->count - row)->rows)
        shape_for(s->count - row)->score(s, page, page + pages, row);
    for (uint32_t i = 0; i < pages && !f32; i++)
        memcpy(scales + i * PAGE_TOKENS, (const float *)block_of(s, page + i) + PAGE_TOKENS,
               PAGE_TOKENS * sizeof *scales);
    for (uint32_t row = 0; row < s->count; row++)
        shrink[row] = weigh_row(s, row, chunk, tokens, f32 ? NULL : scales);
    for (uint32_t row = 0; row < s->count; row += shape_for(s->count - row)->rows)
        shape_for(s->count - row)->sum(s, chunk, tokens, row, shrink);
}

/* What the row's sums are multiplied with: one over the weights' total, a sink's share in it. */
static float normaliser(const struct attend_state *s, uint32_t row)
{
    float total = lanes_sum(s->totals[row]), sink, largest;

    if (!s->attend->sinks)
        return 1.0f / total;
    sink = s->attend->sinks[s->heads[row]];
    largest = fmaxf(sink, s->largest[row]);
    return expf(s->largest[row] - largest) /
           (total * expf(s->largest[row] - largest) + expf(sink - largest));
}

static void write_row(const struct attend_state *s, uint32_t row, float *out)
{
    const struct kv_shape *shape = s->attend->shape;
    float *sums = s->scratch->sums + row * shape->value_padded;
    floats16 inverse = lanes_set(normaliser(s, row));

    for (uint32_t d = 0; d < shape->value_padded; d += LANES)
        lanes_store(sums + d, lanes_mul(lanes_load(sums + d), inverse));
    memcpy(out, sums, shape->value_size * sizeof *out);
}

static void attend_lanes(const struct attend *a, uint32_t first, uint32_t count,
                         const struct kernel_scratch *scratch)
{
    struct attend_state s = {
        .attend = a,
        .scratch = scratch,
        .count = count,
        .adjusts = a->window > 0 || a->softcap > 0 || a->slopes,
        .block_bytes = kv_block_bytes(a->shape),
    };
    uint32_t longest = a->keys ? a->keys : a->position + (first + count - 1) / a->group + 1, start;

    memset(scratch->sums, 0, count * a->shape->value_padded * sizeof(float));
    for (uint32_t row = 0; row < count; row++) {
        uint32_t token = (first + row) / a->group;
        size_t head = (size_t)a->kv_head * a->group + (first + row) % a->group;
        const float *query = a->queries + token * a->query_stride + head * a->shape->head_size;

        for (uint32_t d = 0; d < a->shape->head_size; d++)
            scratch->queries[d * ATTEND_ROWS_MAX + row] = query[d];
        s.heads[row] = (uint32_t)head;
        s.lengths[row] = a->keys ? a->keys : a->position + token + 1;
        s.firsts[row] =
            a->window > 0 && s.lengths[row] > a->window ? s.lengths[row] - a->window : 0;
        s.largest[row] = -INFINITY;
        s.totals[row] = lanes_zero();
    }
    start = s.firsts[0] / ATTEND_CHUNK * ATTEND_CHUNK; /* the first row's window is the earliest */
    for (uint32_t chunk = start; chunk < longest; chunk += ATTEND_CHUNK)
        attend_chunk(&s, chunk, longest - chunk < ATTEND_CHUNK ? longest - chunk : ATTEND_CHUNK);
    for (uint32_t row = 0; row < count; row++) {
        uint32_t token = (first + row) / a->group;
        size_t head = (size_t)a->kv_head * a->group + (first + row) % a->group;

        write_row(&s, row, a->out + token * a->out_stride + head * a->shape->value_size);
    }
}

#endif
