/* cuda_general.c -- the operations of a step for every model that the fused and fast kernels do not
 * compute (model_plain.h says which those are): each product by cuBLAS, what lies between by the
 * general kernels (kernels/cuda/general.h).
 *
 *     embed           rows, rotary | (product) | positions, norm
 *     attention_in    norm | q k v product | biases, norms, rotary, pages
 *     attention       the fast kernels' where a layer asks for nothing else
 *     attention_out   product | bias, norm, scale, onto the residual
 *     mlp             norm | gate and up product | activation | down product | as attention_out
 *     mixture         norm | router, choice | experts, shared one | sum | as attention_out
 *     head            norm | (product) | product | bias, scale, cap
 *
 * Shapes do not depend on the step, so all of it is captured in graphs like the fused path. */
#include <string.h>

#include "engine/cuda_internal.h"
#include "engine/model_plain.h"
#include "kernels/cuda/general.h"

enum { FAST_HEAD_SIZE_MAX = 256 };

uint32_t cuda_general_key_size(const struct model *m)
{
    return m->attention == ATTENTION_LATENT ? m->kv_latent + m->ropes[0].size : m->head_size;
}

uint32_t cuda_general_kv_value_size(const struct model *m)
{
    return m->attention == ATTENTION_LATENT ? m->kv_latent : m->value_size;
}

/* --- what is computed here ----------------------------------------------------------------- */

static bool fast_heads(const struct backend *b, const struct model *m)
{
    return m->attention == ATTENTION_HEADS && m->head_size == m->value_size &&
           m->head_size <= FAST_HEAD_SIZE_MAX && m->head_size * b->element_bytes % 16 == 0;
}

bool cuda_general_needed(const struct backend *b, const struct model *model)
{
    return b->options.general || !fast_heads(b, model) || !model_is_plain(model);
}

int cuda_general_check(const struct model *model, struct fault *fault)
{
    uint32_t size = cuda_general_key_size(model);

    if (size < model->value_size)
        size = model->value_size;
    if (size > CUDA_ANY_HEAD_MAX)
        return fault_set(fault, E_UNSUPPORTED,
                         "heads of %u elements are not served on GPUs (up to %d are)", size,
                         CUDA_ANY_HEAD_MAX);
    if (model->encoder)
        return fault_set(fault, E_UNSUPPORTED, "encoders (%s) are not served on GPUs yet",
                         model->architecture);
    if (model->expert_count > CUDA_EXPERTS_MAX || model->experts_used > CUDA_EXPERTS_MAX)
        return fault_set(fault, E_UNSUPPORTED,
                         "mixtures of %u experts are not served on GPUs (up to %d are)",
                         model->expert_count, CUDA_EXPERTS_MAX);
    return 0;
}

bool cuda_general_attends_fast(const struct backend *b, uint32_t layer)
{
    const struct model *m = b->model;
    uint32_t window = m->layers[layer].window;

    return fast_heads(b, m) && m->attention_softcap == 0 && !m->alibi &&
           m->layers[layer].sinks.rows == 0 && (window == 0 || window >= b->limits.context);
}

bool cuda_general_plans(const struct backend *b)
{
    for (uint32_t i = 0; i < b->model->layer_count; i++)
        if (cuda_general_attends_fast(b, i))
            return true;
    return false;
}

/* --- memory -------------------------------------------------------------------------------- */

static size_t largest(const size_t *values, size_t count)
{
    size_t most = 0;

    for (size_t i = 0; i < count; i++)
        if (values[i] > most)
            most = values[i];
    return most;
}

/* Outputs of gate and up together, for each of the layer's hidden values. */
static uint32_t ffn_parts(const struct model *m)
{
    return m->gated ? 2 : 1;
}

static uint32_t rotary_stride(const struct model *m)
{
    return m->rope_count * m->ropes[0].size;
}

void cuda_general_place_lane(struct backend *b, struct carve *carve, struct cuda_lane *lane)
{
    const struct model *m = b->model;
    size_t tokens = b->tokens_max, element = b->element_bytes;
    size_t q = (size_t)m->heads * m->head_size;
    size_t kv = (size_t)m->kv_heads * (m->head_size + m->value_size);
    size_t inputs[] = {m->width, m->embedding_width, m->q_latent};
    size_t pairs = tokens * m->experts_used;
    size_t hidden[] = {tokens * m->ffn_width, tokens * m->shared_width, pairs * m->expert_width};
    bool latent = m->attention == ATTENTION_LATENT;

    lane->rotary = carve_take(carve, tokens * rotary_stride(m) + 1, sizeof(float));
    lane->x = carve_take(carve, tokens * largest(inputs, sizeof inputs / sizeof *inputs), element);
    lane->qkv = carve_take(carve, tokens * (q + kv), sizeof(float));
    lane->q = carve_take(carve, tokens * m->heads * cuda_general_key_size(m), element);
    lane->kv_down =
        carve_take(carve, latent ? tokens * cuda_general_key_size(m) : 0, sizeof(float));
    lane->q_latent = carve_take(carve, tokens * m->q_latent, sizeof(float));
    lane->summed = carve_take(carve, latent ? tokens * m->heads * m->kv_latent : 0, element);
    lane->scores = carve_take(carve, tokens * m->expert_count, sizeof(float));
    lane->chosen = carve_take(carve, pairs, sizeof(uint32_t));
    lane->shares = carve_take(carve, pairs, sizeof(float));
    lane->expert_lists = carve_take(carve, pairs * m->expert_count, sizeof(uint32_t));
    lane->expert_counts = carve_take(carve, m->expert_count, sizeof(uint32_t));
    lane->expert_outputs = carve_take(carve, pairs * m->width, sizeof(float));
    lane->shared = carve_take(carve, m->shared_width > 0 ? tokens * m->width : 0, sizeof(float));
    lane->attended = carve_take(carve, tokens * m->heads * m->value_size, element);
    lane->gate_up = carve_take(carve, ffn_parts(m) * largest(hidden, 3), sizeof(float));
    lane->hidden = carve_take(carve, largest(hidden, 3), element);
    lane->narrow = carve_take(carve, (size_t)b->head_rows * m->embedding_width, element);
    lane->branch = carve_take(carve, tokens * m->width, sizeof(float));
}

static size_t rope_floats(const struct model *m)
{
    return (size_t)m->ropes[0].size / 2;
}

void cuda_general_place_tables(struct backend *b, struct carve *carve)
{
    const struct model *m = b->model;

    b->frequencies = carve_take(carve, m->rope_count * 2 * rope_floats(m) + 1, sizeof(float));
    b->slopes = carve_take(carve, m->heads, sizeof(float));
}

/* The copies share a piece of pinned memory, so each is waited for. */
static int fill(struct backend *b, void *to, const float *from, size_t count)
{
    int r;

    if (!from || count == 0)
        return 0;
    memcpy(b->pinned, from, count * sizeof *from);
    r = cuda_copy(&b->copies, to, b->pinned, count * sizeof *from);
    return r < 0 ? r : cuda_stream_synchronize(&b->copies);
}

int cuda_general_fill_tables(struct backend *b)
{
    const struct model *m = b->model;
    size_t pairs = rope_floats(m);
    int r = fill(b, b->slopes, m->alibi, m->heads);

    for (uint32_t i = 0; i < m->rope_count && r == 0; i++) {
        r = fill(b, b->frequencies + 2 * i * pairs, m->ropes[i].frequencies, pairs);
        if (r == 0)
            r = fill(b, b->frequencies + (2 * i + 1) * pairs, m->ropes[i].long_frequencies, pairs);
    }
    return r;
}

/* --- pieces -------------------------------------------------------------------------------- */

/* out[rows][outputs] = x w, as `out_type`. */
static void product(struct backend *b, struct cuda_lane *lane, const struct cuda_matrix *matrix,
                    uint32_t rows, const void *x, void *out, enum dtype out_type, uint32_t stride)
{
    struct cublas_product product = {
        .type = b->type,
        .out_type = out_type,
        .rows = rows,
        .outputs = matrix->outputs,
        .columns = matrix->columns,
        .out_stride = stride,
        .w = matrix->rows,
        .x = x,
        .out = out,
    };

    cuda_note(b, cublas_run(b->cublas, &lane->stream, &product, lane->workspace));
}

static void product_f32(struct backend *b, struct cuda_lane *lane, const struct cuda_matrix *matrix,
                        const void *x, void *out)
{
    product(b, lane, matrix, lane->tokens, x, out, DT_F32, matrix->outputs);
}

static struct cuda_norm_form norm_of(const struct backend *b, const float *gain, const float *bias)
{
    return (struct cuda_norm_form){.gain = gain,
                                   .bias = bias,
                                   .epsilon = b->model->norm_epsilon,
                                   .centred = b->model->norm == NORM_LAYER};
}

/* What a branch reads: the residual stream, normed. */
static void branch_input(struct backend *b, struct cuda_lane *lane, const float *gain,
                         const float *bias)
{
    const struct cuda_general_norm norm = {
        .type = b->type,
        .count = lane->tokens,
        .width = b->model->width,
        .from = lane->residual,
        .stride = b->model->width,
        .norm = norm_of(b, b->model->norms_stream ? NULL : gain, bias),
        .x = lane->x,
    };

    cuda_note(b, cuda_general_norm(&lane->stream, &norm));
}

/* What it gives, onto the residual stream. */
static void add_branch(struct backend *b, struct cuda_lane *lane, const float *bias,
                       struct cuda_norm_form post, struct cuda_norm_form stream)
{
    struct cuda_general_branch branch = {
        .tokens = lane->tokens,
        .width = b->model->width,
        .branch = lane->branch,
        .bias = bias,
        .post = post,
        .scale = b->model->residual_scale,
        .residual = lane->residual,
    };

    if (b->model->norms_stream)
        branch.stream = stream;
    cuda_note(b, cuda_general_branch(&lane->stream, &branch));
}

static struct cuda_general_kv kv_of(const struct backend *b, uint32_t layer)
{
    const struct model *m = b->model;

    return (struct cuda_general_kv){
        .type = b->type,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_size = cuda_general_key_size(m),
        .value_size = cuda_general_kv_value_size(m),
        .pages = (uint8_t *)b->kv + (size_t)layer * b->limits.page_count * b->page_bytes,
        .page_table = b->page_table,
        .pages_per_row = b->limits.pages_per_row,
    };
}

/* --- embedding ----------------------------------------------------------------------------- */

static void set_ropes(const struct backend *b, struct cuda_general_embed *embed)
{
    const struct model *m = b->model;
    size_t pairs = rope_floats(m);

    embed->rope_count = m->rope_count;
    embed->rope_pairs = (uint32_t)pairs;
    for (uint32_t i = 0; i < m->rope_count; i++)
        embed->ropes[i] = (struct cuda_general_rope){
            .frequencies = b->frequencies + 2 * i * pairs,
            .long_frequencies =
                m->ropes[i].long_frequencies ? b->frequencies + (2 * i + 1) * pairs : NULL,
            .long_from = m->ropes[i].long_from,
            .scale = m->ropes[i].scale,
        };
}

void cuda_general_embed_lane(struct backend *b, struct cuda_lane *lane)
{
    const struct model *m = b->model;
    const struct cuda_weights *weights = &b->weights;
    bool narrow = weights->embedding_in.outputs > 0;
    struct cuda_general_embed embed = {
        .type = b->type,
        .tokens = lane->tokens,
        .placed = lane->prepare.placed.tokens,
        .table = weights->embedding.rows,
        .columns = m->embedding_width,
        .scale = m->embedding_scale,
        .residual = narrow ? NULL : lane->residual,
        .narrow = lane->x,
        .samplings = b->samplings,
        .rotary = lane->rotary,
        .step = lane->step_counter,
    };
    const struct cuda_general_positions positions = {
        .type = b->type,
        .tokens = lane->tokens,
        .width = m->width,
        .placed = lane->prepare.placed.tokens,
        .positions = weights->positions.rows,
        .offset = m->position_offset,
        .norm = norm_of(b, weights->embedding_norm, weights->embedding_norm_bias),
        .residual = lane->residual,
    };

    set_ropes(b, &embed);
    cuda_note(b, cuda_general_embed(&lane->stream, &embed));
    if (narrow)
        product_f32(b, lane, &weights->embedding_in, lane->x, lane->residual);
    if (positions.positions || positions.norm.gain)
        cuda_note(b, cuda_general_positions(&lane->stream, &positions));
}

/* --- attention ----------------------------------------------------------------------------- */

static enum cuda_head_norm head_norm_of(const struct model *m)
{
    static const enum cuda_head_norm kinds[] = {
        [QK_NORM_NONE] = CUDA_HEAD_NORM_NONE,
        [QK_NORM_HEAD] = CUDA_HEAD_NORM_SHARED,
        [QK_NORM_HEADS] = CUDA_HEAD_NORM_OWN,
        [QK_NORM_WIDE] = CUDA_HEAD_NORM_WIDE,
    };

    return kinds[m->qk_norm];
}

/* q and the latents, from x. */
static void latent_products(struct backend *b, struct cuda_lane *lane,
                            const struct cuda_layer *weights)
{
    const struct model *m = b->model;
    const struct cuda_general_norm norm = {
        .type = b->type,
        .count = lane->tokens,
        .width = m->q_latent,
        .from = lane->q_latent,
        .stride = m->q_latent,
        .norm = norm_of(b, weights->q_down_norm, NULL),
        .x = lane->x,
    };

    product_f32(b, lane, &weights->kv_down, lane->x, lane->kv_down);
    if (weights->q_down.outputs > 0) {
        product_f32(b, lane, &weights->q_down, lane->x, lane->q_latent);
        cuda_note(b, cuda_general_norm(&lane->stream, &norm));
    }
    product_f32(b, lane, &weights->q_up, lane->x, lane->qkv);
}

static struct cuda_latent latent_of(const struct backend *b, const struct cuda_lane *lane,
                                    uint32_t layer)
{
    const struct model *m = b->model;
    const struct cuda_layer *weights = &b->weights.layers[layer];

    return (struct cuda_latent){
        .kv = kv_of(b, layer),
        .tokens = lane->tokens,
        .placed = lane->prepare.placed.tokens,
        .query_size = m->head_size,
        .value_size = m->value_size,
        .rope_size = m->ropes[0].size,
        .rotary_halves = m->rope == ROPE_HALVES,
        .rotary_stride = rotary_stride(m),
        .rotary = lane->rotary,
        .norm = norm_of(b, weights->kv_down_norm, NULL),
        .kv_down = lane->kv_down,
        .queries = lane->qkv,
        .kv_up = weights->kv_up.rows,
        .q = lane->q,
        .summed = lane->summed,
        .attended = lane->attended,
    };
}

void cuda_general_attention_in(struct backend *b, struct cuda_lane *lane, uint32_t layer)
{
    const struct model *m = b->model;
    const struct cuda_layer *weights = &b->weights.layers[layer];
    uint32_t rope = m->layers[layer].rope;
    struct cuda_latent latent;
    struct cuda_general_qkv qkv = {
        .kv = kv_of(b, layer),
        .tokens = lane->tokens,
        .placed = lane->prepare.placed.tokens,
        .qkv = lane->qkv,
        .bias = weights->qkv_bias,
        .norm = head_norm_of(m),
        .q_norm = weights->q_norm,
        .k_norm = weights->k_norm,
        .epsilon = m->norm_epsilon,
        .centred = m->norm == NORM_LAYER,
        .rotary_halves = m->rope == ROPE_HALVES,
        .rotary_stride = rotary_stride(m),
        .rotary = lane->rotary,
        .q = lane->q,
    };

    if (rope < m->rope_count) {
        qkv.rotary_size = m->ropes[0].size;
        qkv.rotary += (size_t)rope * m->ropes[0].size;
    }
    branch_input(b, lane, weights->attention_norm, weights->attention_norm_bias);
    if (m->attention == ATTENTION_LATENT) {
        latent_products(b, lane, weights);
        latent = latent_of(b, lane, layer);
        cuda_note(b, cuda_latent_in(&lane->stream, &latent));
        return;
    }
    product_f32(b, lane, &weights->qkv, lane->x, lane->qkv);
    cuda_note(b, cuda_general_qkv(&lane->stream, &qkv));
}

void cuda_general_attention(struct backend *b, struct cuda_lane *lane, uint32_t layer)
{
    const struct model *m = b->model;
    struct cuda_attention_any attention = {
        .kv = kv_of(b, layer),
        .scale = m->attention_scale,
        .softcap = m->attention_softcap,
        .window = m->layers[layer].window,
        .slopes = m->alibi ? b->slopes : NULL,
        .sinks = b->weights.layers[layer].sinks,
        .q = lane->q,
        .out = m->attention == ATTENTION_LATENT ? lane->summed : lane->attended,
        .segments = lane->prepare.placed.segments,
    };

    if (lane->tile_count > 0)
        cuda_note(b, cuda_attention_any_prefill(&lane->stream, &attention, lane->mapped_tiles,
                                                lane->tile_count));
    attention.segments += lane->first_decode;
    if (lane->decode_segments > 0)
        cuda_note(b, cuda_attention_any_decode(&lane->stream, &attention, lane->decode_segments));
    if (m->attention == ATTENTION_LATENT) {
        const struct cuda_latent latent = latent_of(b, lane, layer);

        cuda_note(b, cuda_latent_out(&lane->stream, &latent));
    }
}

void cuda_general_attention_out(struct backend *b, struct cuda_lane *lane, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];

    product_f32(b, lane, &weights->out, lane->attended, lane->branch);
    add_branch(b, lane, weights->out_bias,
               norm_of(b, weights->post_attention_norm, weights->post_attention_norm_bias),
               norm_of(b, weights->attention_norm, weights->attention_norm_bias));
}

/* --- feed-forward -------------------------------------------------------------------------- */

/* hidden = activation of gate_up, `rows` rows. */
static void activate(struct backend *b, struct cuda_lane *lane, uint32_t rows, uint32_t ffn,
                     const float *bias)
{
    const struct cuda_general_activate activate = {
        .type = b->type,
        .tokens = rows,
        .ffn = ffn,
        .activation = b->model->activation,
        .gated = b->model->gated,
        .limit = b->model->activation_limit,
        .gate_up = lane->gate_up,
        .bias = bias,
        .x = lane->hidden,
    };

    cuda_note(b, cuda_general_activate(&lane->stream, &activate));
}

void cuda_general_mlp(struct backend *b, struct cuda_lane *lane, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];

    branch_input(b, lane, weights->ffn_norm, weights->ffn_norm_bias);
    product_f32(b, lane, &weights->gate_up, lane->x, lane->gate_up);
    activate(b, lane, lane->tokens, b->model->ffn_width, weights->gate_up_bias);
    product_f32(b, lane, &weights->down, lane->hidden, lane->branch);
    add_branch(b, lane, weights->down_bias,
               norm_of(b, weights->post_ffn_norm, weights->post_ffn_norm_bias),
               norm_of(b, weights->ffn_norm, weights->ffn_norm_bias));
}

static struct cuda_mixture mixture_of(const struct backend *b, const struct cuda_lane *lane,
                                      const struct cuda_layer *weights)
{
    static const enum cuda_router routers[] = {
        [ROUTER_SOFTMAX] = CUDA_ROUTER_SOFTMAX,
        [ROUTER_SOFTMAX_CHOSEN] = CUDA_ROUTER_SOFTMAX_CHOSEN,
        [ROUTER_SIGMOID] = CUDA_ROUTER_SIGMOID,
    };
    const struct model *m = b->model;

    return (struct cuda_mixture){
        .tokens = lane->tokens,
        .experts = m->expert_count,
        .used = m->experts_used,
        .router = routers[m->router],
        .groups = m->router_groups,
        .groups_used = m->router_groups_used,
        .normalizes = m->router_normalizes,
        .scale = m->router_scale,
        .scores = lane->scores,
        .router_bias = weights->router_bias,
        .chosen = lane->chosen,
        .shares = lane->shares,
        .lists = lane->expert_lists,
        .list_stride = b->tokens_max * m->experts_used,
        .counts = lane->expert_counts,
    };
}

/* The chosen experts', for every pair. */
static void run_experts(struct backend *b, struct cuda_lane *lane, const struct cuda_layer *weights,
                        const struct cuda_mixture *mixture)
{
    const struct model *m = b->model;
    const struct cuda_expert_product gate_up = {
        .mixture = *mixture,
        .type = b->type,
        .outputs = ffn_parts(m) * m->expert_width,
        .columns = m->width,
        .w = weights->experts_gate_up,
        .bias = weights->experts_gate_up_bias,
        .x = lane->x,
        .x_by_token = true,
        .out = lane->gate_up,
    };
    const struct cuda_expert_product down = {
        .mixture = *mixture,
        .type = b->type,
        .outputs = m->width,
        .columns = m->expert_width,
        .w = weights->experts_down,
        .bias = weights->experts_down_bias,
        .x = lane->hidden,
        .out = lane->expert_outputs,
    };

    cuda_note(b, cuda_expert_product(&lane->stream, &gate_up));
    activate(b, lane, mixture->tokens * mixture->used, m->expert_width, NULL);
    cuda_note(b, cuda_expert_product(&lane->stream, &down));
}

/* The router's scores, in float32 throughout: two experts often score nearly alike, and a rounded
 * input would choose the other one. */
static void route(struct backend *b, struct cuda_lane *lane, const struct cuda_layer *weights)
{
    const struct model *m = b->model;
    const struct cuda_general_norm norm = {
        .type = DT_F32,
        .count = lane->tokens,
        .width = m->width,
        .from = lane->residual,
        .stride = m->width,
        .norm = norm_of(b, weights->ffn_norm, weights->ffn_norm_bias),
        .x = lane->branch, /* free until the sum */
    };
    const struct cublas_product scores = {
        .type = DT_F32,
        .out_type = DT_F32,
        .rows = lane->tokens,
        .outputs = m->expert_count,
        .columns = m->width,
        .out_stride = m->expert_count,
        .w = weights->router,
        .x = lane->branch,
        .out = lane->scores,
    };

    cuda_note(b, cuda_general_norm(&lane->stream, &norm));
    cuda_note(b, cublas_run(b->cublas, &lane->stream, &scores, lane->workspace));
}

void cuda_general_mixture(struct backend *b, struct cuda_lane *lane, uint32_t layer)
{
    const struct model *m = b->model;
    const struct cuda_layer *weights = &b->weights.layers[layer];
    const struct cuda_mixture mixture = mixture_of(b, lane, weights);
    bool shared = weights->shared_down.outputs > 0;
    const struct cuda_expert_sum sum = {
        .mixture = mixture,
        .type = b->type,
        .width = m->width,
        .outputs = lane->expert_outputs,
        .shared = shared ? lane->shared : NULL,
        .shared_gate = weights->shared_gate,
        .x = lane->x,
        .branch = lane->branch,
    };

    branch_input(b, lane, weights->ffn_norm, weights->ffn_norm_bias);
    route(b, lane, weights);
    cuda_note(b, cuda_mixture_choose(&lane->stream, &mixture));
    run_experts(b, lane, weights, &mixture);
    if (shared) {
        product_f32(b, lane, &weights->shared_gate_up, lane->x, lane->gate_up);
        activate(b, lane, lane->tokens, m->shared_width, NULL);
        product_f32(b, lane, &weights->shared_down, lane->hidden, lane->shared);
    }
    cuda_note(b, cuda_expert_sum(&lane->stream, &sum));
    add_branch(b, lane, NULL, norm_of(b, weights->post_ffn_norm, weights->post_ffn_norm_bias),
               norm_of(b, weights->ffn_norm, weights->ffn_norm_bias));
}

/* --- head ---------------------------------------------------------------------------------- */

void cuda_general_head(struct backend *b, struct cuda_lane *lane, uint32_t first, uint32_t count)
{
    const struct model *m = b->model;
    const struct cuda_weights *weights = &b->weights;
    const struct cuda_general_norm norm = {
        .type = b->type,
        .count = count,
        .width = m->width,
        .from = lane->residual,
        .stride = m->width,
        .outputs = lane->prepare.placed.outputs + first,
        .norm = norm_of(b, weights->final_norm, weights->final_norm_bias),
        .x = lane->x,
    };
    const struct cuda_general_logits logits = {
        .count = count,
        .vocabulary = m->vocabulary,
        .stride = b->logits_stride,
        .logits = lane->logits,
        .bias = weights->head_bias,
        .scale = m->logit_scale,
        .cap = m->logit_softcap,
    };
    const void *x = lane->x;

    cuda_note(b, cuda_general_norm(&lane->stream, &norm));
    if (weights->embedding_out.outputs > 0) {
        product(b, lane, &weights->embedding_out, count, x, lane->narrow, b->type,
                weights->embedding_out.outputs);
        x = lane->narrow;
    }
    product(b, lane, &weights->head, count, x, lane->logits, DT_F32, b->logits_stride);
    if (logits.bias || logits.scale != 1 || logits.cap > 0)
        cuda_note(b, cuda_general_logits(&lane->stream, &logits));
}
