/* cpu_latent.c -- DeepSeek's latent attention on the CPU, in its absorbed form.
 *
 * A token's keys and values of all heads come of one latent c [kv_latent], beside which only a part
 * r of the keys rotates, the same for all heads:
 *
 *     key[h] = (K[h] c, r)      value[h] = V[h] c      K and V: kv_up's rows of head h
 *
 * So the pages hold (c, r) as the one key head and c as its value. A query (q, s) of head h becomes
 * (K[h]^T q, s), whose product with (c, r) is the same score; what attention sums are latents, and
 * V[h] makes values of the sum. Nothing is ever computed for each token of the context and head.
 *
 *     in      norm, inputs | q_down, kv_down | (norm, inputs | q_up |) pages; K^T for each head
 *     out     V for each head |
 *
 * Heads are small, so a seat takes a head with 8 tokens at once, all by itself. The formulas are
 * those of DeepSeek-V2's paper (arXiv 2405.04434, section 2.1 and appendix C). */
#include <string.h>

#include "engine/cpu_product.h"

/* A head of up to 8 tokens. */
struct tile {
    uint32_t head;
    uint32_t first_token;
    uint32_t count;
};

static uint32_t tiles_of(const struct backend *b)
{
    return (b->work->token_count + TILE_ROWS - 1) / TILE_ROWS;
}

static struct tile tile_at(const struct backend *b, uint64_t index)
{
    uint32_t tiles = tiles_of(b);
    struct tile tile = {(uint32_t)(index / tiles), (uint32_t)(index % tiles) * TILE_ROWS, 0};

    tile.count = b->work->token_count - tile.first_token;
    if (tile.count > TILE_ROWS)
        tile.count = TILE_ROWS;
    return tile;
}

/* The tile's rows as inputs of a head's product. */
static struct activations tile_inputs(const struct backend *b, const struct pool_seat *seat,
                                      const struct tile *tile, const struct packed *w)
{
    struct activations x = b->seats[seat->index].head;

    x.rows = tile->count;
    x.blocks = w->blocks;
    x.forms = cpu_form(b, w, tile->count);
    return x;
}

/* `count` values, scaled, as row `row` of the inputs. */
static void put_values(const struct backend *b, const struct pool_seat *seat,
                       const struct activations *x, uint32_t row, const float *values,
                       uint32_t count, float scale)
{
    float *padded = b->seats[seat->index].row;

    for (uint32_t i = 0; i < count; i++)
        padded[i] = scale * values[i];
    memset(padded + count, 0, ((size_t)x->blocks * BLOCK_COLUMNS - count) * sizeof *padded);
    b->kernels->put(x, row, 0, x->blocks, padded);
}

static void product(const struct backend *b, const struct pool_seat *seat, const struct packed *w,
                    const struct activations *x)
{
    const struct cpu_seat *scratch = &b->seats[seat->index];

    cpu_product(b->kernels, w, 0, w->groups, x, scratch->tile, (size_t)w->groups * GROUP_ROWS,
                false, &scratch->kernel);
}

/* --- in ------------------------------------------------------------------------------------ */

static void write_page(const struct backend *b, const struct pool_seat *seat, uint32_t token)
{
    const struct model *m = b->model;
    float *key = cpu_row(b->kv_down, b->strides.kv_down, token);
    struct rotary rotary = cpu_rotary(b, token);
    uint32_t position = b->work->positions[token];
    size_t page = cpu_segment(b->work, token)->pages[position / PAGE_TOKENS];

    cpu_norm_values(b, seat, b->layer->latent.kv_norm.gain, m->kv_latent, key);
    b->kernels->rotate(key + m->kv_latent, m->ropes[0].size, &rotary, 1);
    b->kernels->kv_write(&b->kv_shape, cpu_layer_pages(b) + page * kv_block_bytes(&b->kv_shape),
                         position % PAGE_TOKENS, key, key);
}

static void absorb(const struct backend *b, const struct pool_seat *seat, const struct tile *tile)
{
    const struct model *m = b->model;
    const struct packed *keys = &b->layer->latent.keys[tile->head];
    uint32_t rotates = m->ropes[0].size, plain = m->head_size - rotates;
    struct activations x = tile_inputs(b, seat, tile, keys);

    for (uint32_t i = 0; i < tile->count; i++)
        put_values(b, seat, &x, i,
                   cpu_row(b->qkv, b->strides.qkv, tile->first_token + i) +
                       tile->head * m->head_size,
                   plain, m->attention_scale);
    product(b, seat, keys, &x);
    for (uint32_t i = 0; i < tile->count; i++) {
        uint32_t token = tile->first_token + i;
        float *q = cpu_row(b->qkv, b->strides.qkv, token) + tile->head * m->head_size + plain;
        float *to = cpu_row(b->absorbed, b->strides.absorbed, token) +
                    (size_t)tile->head * (m->kv_latent + rotates);
        struct rotary rotary = cpu_rotary(b, token);

        memcpy(to, b->seats[seat->index].tile + (size_t)i * keys->groups * GROUP_ROWS,
               m->kv_latent * sizeof *to);
        b->kernels->rotate(q, rotates, &rotary, m->attention_scale);
        memcpy(to + m->kv_latent, q, rotates * sizeof *to);
    }
}

static void first_products(struct backend *b, const struct pool_seat *seat)
{
    const struct cpu_latent *latent = &b->layer->latent;
    bool narrows = latent->q_down.part_count > 0;
    const struct cpu_matrix *q = narrows ? &latent->q_down : &latent->q_up;
    uint32_t tokens = b->work->token_count;
    struct cpu_source source = {.rows = b->x,
                                .stride = b->strides.width,
                                .row_count = tokens,
                                .columns = b->model->width,
                                .norm = &b->layer->attention_norm,
                                .forms = cpu_forms(b, q, tokens) |
                                         cpu_forms(b, &latent->kv_down, tokens)};
    struct activations x = cpu_prepare(b, seat, &source);

    cpu_product_share(b, seat, cpu_work(b, 0, tokens), q, &x, narrows ? b->latent : b->qkv,
                      narrows ? b->strides.latent : b->strides.qkv, false);
    cpu_product_share(b, seat, NULL, &latent->kv_down, &x, b->kv_down, b->strides.kv_down, false);
    pool_barrier(seat);
}

void cpu_latent_in(struct backend *b, const struct pool_seat *seat)
{
    const struct cpu_latent *latent = &b->layer->latent;
    uint32_t tokens = b->work->token_count;
    uint64_t first, end;

    first_products(b, seat);
    if (latent->q_down.part_count > 0) {
        struct cpu_source source = {.rows = b->latent,
                                    .stride = b->strides.latent,
                                    .row_count = tokens,
                                    .columns = b->model->q_latent,
                                    .norm = &latent->q_norm,
                                    .forms = cpu_forms(b, &latent->q_up, tokens)};
        struct activations x = cpu_prepare(b, seat, &source);

        cpu_product_share(b, seat, cpu_work(b, 1, tokens), &latent->q_up, &x, b->qkv,
                          b->strides.qkv, false);
        pool_barrier(seat);
    }
    for (uint32_t token = seat->index; token < tokens; token += seat->count)
        write_page(b, seat, token);
    pool_share(seat, (uint64_t)tiles_of(b) * b->model->heads, 1, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        struct tile tile = tile_at(b, i);

        absorb(b, seat, &tile);
    }
}

/* --- out ----------------------------------------------------------------------------------- */

static void expand(const struct backend *b, const struct pool_seat *seat, const struct tile *tile)
{
    const struct model *m = b->model;
    const struct packed *values = &b->layer->latent.values[tile->head];
    struct activations x = tile_inputs(b, seat, tile, values);

    for (uint32_t i = 0; i < tile->count; i++)
        put_values(b, seat, &x, i,
                   cpu_row(b->summed, b->strides.summed, tile->first_token + i) +
                       (size_t)tile->head * m->kv_latent,
                   m->kv_latent, 1);
    product(b, seat, values, &x);
    for (uint32_t i = 0; i < tile->count; i++)
        memcpy(cpu_row(b->attention, b->strides.attention, tile->first_token + i) +
                   (size_t)tile->head * m->value_size,
               b->seats[seat->index].tile + (size_t)i * values->groups * GROUP_ROWS,
               m->value_size * sizeof(float));
}

void cpu_latent_out(struct backend *b, const struct pool_seat *seat)
{
    uint64_t first, end;

    pool_share(seat, (uint64_t)tiles_of(b) * b->model->heads, 1, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        struct tile tile = tile_at(b, i);

        expand(b, seat, &tile);
    }
    pool_barrier(seat);
}
