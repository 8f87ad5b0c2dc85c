/* quantize_folder.c -- a folder's model as a GGUF file: its tensors and its keys.
 *
 * Names come from the architecture's row, where each weight has both kinds. Keys are those that
 * gguf_config.c reads. What they cannot say shows when the file is read back, and is refused then
 * (quantize_difference()). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hf_config.h"
#include "engine/quantize_list.h"
#include "engine/quantize_tokenizer.h"
#include "engine/weight_part.h"

enum { KEY_BYTES = 96, NAMES_MORE = 4 };
_Static_assert(sizeof(((struct quantize_list *)0)->names[0]) == ARCH_NAME_BYTES,
               "names are as long as the rows' are");

struct making {
    const struct checkpoint *checkpoint;
    struct quantize_list *list;
    struct gguf_writer *writer;
    struct hf_config *config;
    const struct arch *arch;
    struct model *model;
    struct fault *fault;
};

/* --- tensors ------------------------------------------------------------------------------- */

/* Was this line's tensor what the part is bound to? A row may have several lines for a part. */
static bool is_bound(const struct making *making, const struct arch_weight *line, uint32_t layer,
                     const struct weight_part *part)
{
    const char *prefix = making->arch->hf_prefix ? making->arch->hf_prefix : "model.";
    size_t bytes = strlen(prefix);
    const struct stored_tensor *tensor;
    char name[ARCH_NAME_BYTES];
    const uint8_t *at = part->data, *begin;

    if (line->flags & WEIGHT_HF_EACH_HEAD)
        return true;
    arch_weight_name(line->hf_name, layer, 0, name);
    tensor = checkpoint_tensor_find(making->checkpoint, name);
    if (!tensor && strncmp(name, prefix, bytes) == 0)
        tensor = checkpoint_tensor_find(making->checkpoint, name + bytes);
    if (!tensor)
        return false;
    begin = tensor->data;
    return tensor->tables ? part->tables == tensor->tables
                          : at >= begin && at < begin + tensor->bytes;
}

static struct quantize_turn turn_of(const struct making *making, const struct weight *weight,
                                    uint32_t part, uint32_t layer)
{
    const struct layer *in = &making->model->layers[layer];
    bool rotates = (weight == &in->qkv || weight == &in->qkv_bias) && part < 2;

    if (!rotates || making->arch->rope == making->arch->hf_rope || making->model->rope_count == 0)
        return (struct quantize_turn){0};
    return (struct quantize_turn){making->model->head_size, making->model->ropes[0].size};
}

static void set_shape(const struct making *making, const struct arch_weight *line,
                      struct quantize_tensor *tensor)
{
    const struct model *model = making->model;
    bool gains = line->columns == DIM_QK_NORM || line->columns == DIM_QK_NORM_KV;

    for (uint32_t i = 0; i < GGUF_DIMENSIONS_MAX; i++)
        tensor->dimensions[i] = 1;
    tensor->dimension_count = 1;
    tensor->dimensions[0] = (uint64_t)tensor->rows * tensor->columns;
    if (gains && model->qk_norm == QK_NORM_HEADS) {
        tensor->dimension_count = 2;
        tensor->dimensions[0] = model->head_size;
        tensor->dimensions[1] = tensor->columns / model->head_size;
    } else if (line->rows != DIM_ONE && line->columns != DIM_ONE) {
        tensor->dimension_count = 2;
        tensor->dimensions[0] = tensor->columns;
        tensor->dimensions[1] = tensor->rows;
    }
}

/* Lines that cut one tensor of GGUF's follow each other, and their parts are stacked again. */
static void add_line(struct making *making, const struct arch_weight *line, uint32_t layer)
{
    struct quantize_list *list = making->list;
    struct quantize_tensor *tensor = list->count ? &list->tensors[list->count - 1] : NULL;
    char *name = list->names[list->count];
    const struct weight_part *part;
    struct weight *weight;

    if (arch_weight_count(line, making->model, layer) == 0)
        return;
    weight = arch_weight_at(line, making->model, layer, 0);
    part = &weight->parts[line->part];
    if (!line->name || !line->hf_name || weight->part_count <= line->part ||
        !is_bound(making, line, layer, part))
        return;
    if (weight == &making->model->head &&
        weight_part_same(part, &making->model->embedding.parts[0])) {
        list->tied = true;
        return;
    }
    arch_weight_name(line->name, layer, 0, name);
    if (!tensor || tensor->name.bytes != strlen(name) ||
        memcmp(tensor->name.text, name, tensor->name.bytes) != 0) {
        tensor = &list->tensors[list->count++];
        tensor->name = (struct gguf_string){name, strlen(name)};
        tensor->columns = weight->columns;
        tensor->kept = DT_F32;
    }
    tensor->turns[tensor->part_count] = turn_of(making, weight, line->part, layer);
    tensor->parts[tensor->part_count++] = *part;
    tensor->rows += part->rows;
    set_shape(making, line, tensor);
}

static int list_tensors(struct making *making)
{
    struct quantize_list *list = making->list;
    size_t room = (size_t)making->arch->weight_count * making->model->layer_count + NAMES_MORE;

    if (making->model->expert_count > 0 || making->model->attention != ATTENTION_HEADS)
        return fault_set(making->fault, E_UNSUPPORTED, "%s: %s not written as GGUF yet",
                         checkpoint_path(making->checkpoint),
                         making->model->expert_count > 0 ? "mixtures of experts are"
                                                         : "latent attention is");
    list->tensors = calloc(room, sizeof *list->tensors);
    list->names = calloc(room, sizeof *list->names);
    if (!list->tensors || !list->names)
        return fault_set(making->fault, E_MEMORY, "out of memory for the list of tensors");
    for (uint32_t layer = 0; layer < making->model->layer_count; layer++) {
        for (uint32_t i = 0; i < making->arch->weight_count; i++) {
            const struct arch_weight *line = &making->arch->weights[i];

            if (layer == 0 && !(line->flags & WEIGHT_PER_LAYER))
                add_line(making, line, 0);
        }
        for (uint32_t i = 0; i < making->arch->weight_count; i++) {
            if (making->arch->weights[i].flags & WEIGHT_PER_LAYER)
                add_line(making, &making->arch->weights[i], layer);
        }
    }
    list->tied =
        weight_part_same(&making->model->head.parts[0], &making->model->embedding.parts[0]);
    return 0;
}

/* --- rotary factors ------------------------------------------------------------------------ */

/* A tensor of one row that the list owns. */
static int add_factors(struct making *making, const char *name, const float *factors,
                       uint32_t count)
{
    struct quantize_list *list = making->list;
    struct quantize_tensor *tensor = &list->tensors[list->count];
    float *own = model_own(making->model, count * sizeof *own);

    if (!own)
        return fault_set(making->fault, E_MEMORY, "out of memory for the rotary factors");
    memcpy(own, factors, count * sizeof *own);
    snprintf(list->names[list->count], ARCH_NAME_BYTES, "%s", name);
    *tensor = (struct quantize_tensor){
        .name = {list->names[list->count], strlen(name)},
        .dimension_count = 1,
        .dimensions = {count, 1, 1, 1},
        .parts = {{.type = DT_F32, .rows = 1, .data = own}},
        .part_count = 1,
        .rows = 1,
        .columns = count,
        .kept = DT_F32,
    };
    list->count++;
    return 0;
}

static void put_u32(const struct making *making, const char *suffix, uint32_t value)
{
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%s.%s", making->arch->name, suffix);
    gguf_put_u32(making->writer, key, value);
}

static void put_f32(const struct making *making, const char *suffix, double value)
{
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%s.%s", making->arch->name, suffix);
    gguf_put_f32(making->writer, key, (float)value);
}

static void put_scaling(const struct making *making, const char *kind)
{
    char key[KEY_BYTES];

    snprintf(key, sizeof key, "%s.rope.scaling.type", making->arch->name);
    gguf_put_string(making->writer, key, (struct gguf_string){kind, strlen(kind)});
}

/* Llama 3's rule is not known to GGUF, which has its outcome: a divisor for each frequency. */
static int put_divisors(struct making *making)
{
    const struct rope *rope = &making->model->ropes[0];
    double base = making->config->plan.ropes[0].base;
    float *factors = calloc(rope->size / 2 + 1, sizeof *factors);
    int r;

    if (!factors)
        return fault_set(making->fault, E_MEMORY, "out of memory for the rotary factors");
    for (uint32_t i = 0; i < rope->size / 2; i++)
        factors[i] = (float)(pow(base, -2.0 * i / rope->size) / (double)rope->frequencies[i]);
    r = add_factors(making, "rope_freqs.weight", factors, rope->size / 2);
    free(factors);
    return r;
}

static int put_longrope(struct making *making, const struct rope_plan *plan)
{
    int r = add_factors(making, "rope_factors_long.weight", plan->long_factors, plan->long_count);

    if (r == 0)
        r = add_factors(making, "rope_factors_short.weight", plan->short_factors,
                        plan->short_count);
    put_scaling(making, "longrope");
    put_f32(making, "rope.scaling.attn_factor", (double)making->model->ropes[0].scale);
    put_u32(making, "rope.scaling.original_context_length", plan->context_original);
    return r;
}

static int put_rope(struct making *making)
{
    const struct rope_plan *plan = &making->config->plan.ropes[0];
    const struct model *model = making->model;

    if (model->rope_count == 0)
        return 0;
    put_u32(making, "rope.dimension_count", model->ropes[0].size);
    put_f32(making, "rope.freq_base", plan->base);
    if (model->rope_count > 1)
        put_f32(making, "rope.freq_base_swa", making->config->plan.ropes[1].base);
    switch (plan->scaling) {
    case ROPE_SCALING_LINEAR:
        put_scaling(making, "linear");
        put_f32(making, "rope.scaling.factor", plan->factor);
        return 0;
    case ROPE_SCALING_LLAMA3:
        return put_divisors(making);
    case ROPE_SCALING_YARN:
        put_scaling(making, "yarn");
        put_f32(making, "rope.scaling.factor", plan->factor);
        put_f32(making, "rope.scaling.yarn_beta_fast", plan->beta_fast);
        put_f32(making, "rope.scaling.yarn_beta_slow", plan->beta_slow);
        put_u32(making, "rope.scaling.original_context_length", plan->context_original);
        return 0;
    case ROPE_SCALING_LONGROPE:
        return put_longrope(making, plan);
    default:
        return 0;
    }
}

/* --- keys ---------------------------------------------------------------------------------- */

static void put_sizes(const struct making *making)
{
    const struct model *model = making->model;

    put_u32(making, "block_count", model->layer_count);
    put_u32(making, "context_length", model->context);
    put_u32(making, "embedding_length", model->width);
    put_u32(making, "feed_forward_length", model->ffn_width);
    put_u32(making, "vocab_size", model->vocabulary);
    put_u32(making, "attention.head_count", model->heads);
    put_u32(making, "attention.head_count_kv", model->kv_heads);
    put_u32(making, "attention.key_length", model->head_size);
    put_u32(making, "attention.value_length", model->value_size);
    put_f32(making,
            model->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                    : "attention.layer_norm_epsilon",
            (double)model->norm_epsilon);
    if (model->window > 0)
        put_u32(making, "attention.sliding_window", model->window);
}

/* What most architectures do not have. */
static void put_extras(const struct making *making)
{
    const struct model *model = making->model;
    bool granite = strcmp(making->arch->name, "granite") == 0;
    char key[KEY_BYTES];

    if (fabsf(model->attention_scale * sqrtf((float)model->head_size) - 1) > 1e-6f)
        put_f32(making, "attention.scale", (double)model->attention_scale);
    if (model->attention_softcap > 0)
        put_f32(making, "attn_logit_softcapping", (double)model->attention_softcap);
    if (model->logit_softcap > 0)
        put_f32(making, "final_logit_softcapping", (double)model->logit_softcap);
    if (model->embedding_scale != 1)
        put_f32(making, "embedding_scale", (double)model->embedding_scale);
    if (model->residual_scale != 1)
        put_f32(making, "residual_scale", (double)model->residual_scale);
    if (model->logit_scale != 1)
        put_f32(making, "logit_scale",
                granite ? 1 / (double)model->logit_scale : (double)model->logit_scale);
    if (model->parallel != ((making->arch->flags & ARCH_PARALLEL) != 0)) {
        snprintf(key, sizeof key, "%s.use_parallel_residual", making->arch->name);
        gguf_put_bool(making->writer, key, model->parallel);
    }
}

static int put_keys(struct making *making)
{
    const char *name = making->model->name;

    gguf_put_string(making->writer, "general.architecture",
                    (struct gguf_string){making->arch->name, strlen(making->arch->name)});
    gguf_put_string(making->writer, "general.name", (struct gguf_string){name, strlen(name)});
    put_sizes(making);
    put_extras(making);
    return put_rope(making);
}

int quantize_list_folder(const struct checkpoint *checkpoint, struct quantize_list *list,
                         struct gguf_writer *writer, struct fault *fault)
{
    struct making making = {
        .checkpoint = checkpoint, .list = list, .writer = writer, .fault = fault};
    const struct buf *text = checkpoint_config(checkpoint);
    int r = model_open(checkpoint, &list->model, fault);

    if (r < 0)
        return r;
    making.model = list->model;
    making.config = malloc(sizeof *making.config); /* its lists of factors are long */
    if (!making.config)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", checkpoint_path(checkpoint));
    r = hf_config_read(buf_string(text), text->bytes, making.config, fault);
    making.arch = making.config->plan.arch;
    if (r == 0)
        r = list_tensors(&making);
    if (r == 0)
        r = put_keys(&making);
    if (r == 0)
        r = quantize_tokenizer(checkpoint_path(checkpoint), list->model, writer, fault);
    if (r > 0)
        list->tokenizer = true;
    free(making.config);
    return r < 0 ? r : 0;
}

/* --- reading back -------------------------------------------------------------------------- */

static bool near(float a, float b)
{
    return fabsf(a - b) <= 2e-6f * fmaxf(fabsf(a), fabsf(b));
}

static bool same_rope(const struct rope *a, const struct rope *b)
{
    bool same = a->size == b->size && near(a->scale, b->scale) && a->long_from == b->long_from &&
                !a->long_frequencies == !b->long_frequencies;

    for (uint32_t i = 0; same && i < a->size / 2; i++) {
        same = near(a->frequencies[i], b->frequencies[i]);
        if (same && a->long_frequencies)
            same = near(a->long_frequencies[i], b->long_frequencies[i]);
    }
    return same;
}

static const char *layers_differ(const struct model *a, const struct model *b)
{
    for (uint32_t i = 0; i < a->layer_count; i++) {
        const struct layer *x = &a->layers[i], *y = &b->layers[i];

        if (x->window != y->window)
            return "which layers see only a window";
        if ((x->rope == ROPE_NONE) != (y->rope == ROPE_NONE))
            return "which layers rotate";
        if (x->rope != ROPE_NONE && !same_rope(&a->ropes[x->rope], &b->ropes[y->rope]))
            return "its rotary frequencies";
        if (x->qkv_bias.rows != y->qkv_bias.rows ||
            x->attention_out_bias.rows != y->attention_out_bias.rows ||
            x->ffn.gate_up_bias.rows != y->ffn.gate_up_bias.rows ||
            x->ffn.down_bias.rows != y->ffn.down_bias.rows)
            return "its biases";
        if (x->attention_norm.rows != y->attention_norm.rows ||
            x->attention_norm_bias.rows != y->attention_norm_bias.rows ||
            x->ffn_norm.rows != y->ffn_norm.rows || x->q_norm.columns != y->q_norm.columns ||
            x->post_attention_norm.rows != y->post_attention_norm.rows)
            return "its norms";
    }
    return NULL;
}

const char *quantize_difference(const struct model *a, const struct model *b)
{
    if (strcmp(a->architecture, b->architecture) != 0 || a->layer_count != b->layer_count ||
        a->width != b->width || a->heads != b->heads || a->kv_heads != b->kv_heads ||
        a->head_size != b->head_size || a->ffn_width != b->ffn_width ||
        a->vocabulary != b->vocabulary || a->context != b->context ||
        a->embedding_width != b->embedding_width || a->position_offset != b->position_offset)
        return "its sizes";
    if (a->norm != b->norm || !near(a->norm_epsilon, b->norm_epsilon) ||
        a->norms_stream != b->norms_stream || a->qk_norm != b->qk_norm)
        return "its norms";
    if (a->parallel != b->parallel)
        return "whether its branches are parallel";
    if (a->activation != b->activation || a->gated != b->gated)
        return "its activation";
    if (!near(a->attention_scale, b->attention_scale) ||
        !near(a->embedding_scale, b->embedding_scale) ||
        !near(a->residual_scale, b->residual_scale) || !near(a->logit_scale, b->logit_scale) ||
        !near(a->attention_softcap, b->attention_softcap) ||
        !near(a->logit_softcap, b->logit_softcap))
        return "its scales";
    if (!a->alibi != !b->alibi)
        return "its ALiBi slopes";
    for (uint32_t i = 0; a->alibi && i < a->heads; i++)
        if (!near(a->alibi[i], b->alibi[i]))
            return "its ALiBi slopes";
    return layers_differ(a, b);
}
