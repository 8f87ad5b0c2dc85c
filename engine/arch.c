/* arch.c -- the table of architectures.
 *
 * A weight's names are the files'; where it goes is an offset into struct model or struct layer, so
 * that binding a model is one loop over its row (model.c). q, k and v are parts of one product, as
 * are gate and up. */
#include "engine/arch.h"

#include <stdio.h>
#include <string.h>

#define IN_MODEL(member_) offsetof(struct model, member_)
#define IN_LAYER(member_) offsetof(struct layer, member_)
#define COUNT_OF(array_)  (sizeof(array_) / sizeof((array_)[0]))

enum {
    LAYER = WEIGHT_PER_LAYER,
    NORM = WEIGHT_PER_LAYER | WEIGHT_FLOAT,
    BIAS = WEIGHT_PER_LAYER | WEIGHT_FLOAT | WEIGHT_OPTIONAL,
};

/* A table: name in GGUF, name in Transformers; the weight, which part; rows, columns; flags. */
/* clang-format off */
#define COMMON_WEIGHTS                                                                          \
    {"token_embd.weight", "model.embed_tokens.weight",                                          \
     IN_MODEL(embedding), 0, DIM_VOCABULARY, DIM_WIDTH, 0},                                     \
    {"output_norm.weight", "model.norm.weight",                                                 \
     IN_MODEL(final_norm), 0, DIM_ONE, DIM_WIDTH, WEIGHT_FLOAT},                                \
    {"output.weight", "lm_head.weight",                                                         \
     IN_MODEL(head), 0, DIM_VOCABULARY, DIM_WIDTH, WEIGHT_OPTIONAL},                            \
    {"rope_freqs.weight", NULL,                                                                 \
     IN_MODEL(rope_freqs), 0, DIM_ONE, DIM_ROPE, WEIGHT_FLOAT | WEIGHT_OPTIONAL},               \
    {"blk.%u.attn_norm.weight", "model.layers.%u.input_layernorm.weight",                       \
     IN_LAYER(attention_norm), 0, DIM_ONE, DIM_WIDTH, NORM},                                    \
    {"blk.%u.attn_q.weight", "model.layers.%u.self_attn.q_proj.weight",                         \
     IN_LAYER(qkv), 0, DIM_Q, DIM_WIDTH, LAYER},                                                \
    {"blk.%u.attn_k.weight", "model.layers.%u.self_attn.k_proj.weight",                         \
     IN_LAYER(qkv), 1, DIM_KV, DIM_WIDTH, LAYER},                                               \
    {"blk.%u.attn_v.weight", "model.layers.%u.self_attn.v_proj.weight",                         \
     IN_LAYER(qkv), 2, DIM_KV, DIM_WIDTH, LAYER},                                               \
    {"blk.%u.attn_output.weight", "model.layers.%u.self_attn.o_proj.weight",                    \
     IN_LAYER(attention_out), 0, DIM_WIDTH, DIM_Q, LAYER},                                      \
    {"blk.%u.ffn_norm.weight", "model.layers.%u.post_attention_layernorm.weight",               \
     IN_LAYER(ffn_norm), 0, DIM_ONE, DIM_WIDTH, NORM},                                          \
    {"blk.%u.ffn_gate.weight", "model.layers.%u.mlp.gate_proj.weight",                          \
     IN_LAYER(gate_up), 0, DIM_FFN, DIM_WIDTH, LAYER},                                          \
    {"blk.%u.ffn_up.weight", "model.layers.%u.mlp.up_proj.weight",                              \
     IN_LAYER(gate_up), 1, DIM_FFN, DIM_WIDTH, LAYER},                                          \
    {"blk.%u.ffn_down.weight", "model.layers.%u.mlp.down_proj.weight",                          \
     IN_LAYER(down), 0, DIM_WIDTH, DIM_FFN, LAYER}

static const struct arch_weight llama_weights[] = {
    COMMON_WEIGHTS,
    {"blk.%u.attn_q.bias", "model.layers.%u.self_attn.q_proj.bias",
     IN_LAYER(qkv_bias), 0, DIM_Q, DIM_ONE, BIAS},
    {"blk.%u.attn_k.bias", "model.layers.%u.self_attn.k_proj.bias",
     IN_LAYER(qkv_bias), 1, DIM_KV, DIM_ONE, BIAS},
    {"blk.%u.attn_v.bias", "model.layers.%u.self_attn.v_proj.bias",
     IN_LAYER(qkv_bias), 2, DIM_KV, DIM_ONE, BIAS},
};

static const struct arch_weight qwen3_weights[] = {
    COMMON_WEIGHTS,
    {"blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight",
     IN_LAYER(q_norm), 0, DIM_ONE, DIM_HEAD, NORM},
    {"blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight",
     IN_LAYER(k_norm), 0, DIM_ONE, DIM_HEAD, NORM},
};

/* Converters to GGUF reorder llama's q and k rows so that rotated pairs are neighbours. */
static const struct arch archs[] = {
    {"llama", NORM_RMS, FFN_SWIGLU, ROPE_INTERLEAVED, llama_weights, COUNT_OF(llama_weights)},
    {"qwen3", NORM_RMS, FFN_SWIGLU, ROPE_HALVES, qwen3_weights, COUNT_OF(qwen3_weights)},
};
/* clang-format on */

enum { NAME_MAX_BYTES = 32, LIST_BYTES = 128 };

/* How many letters must be put in, taken out or changed to make one of the other (Levenshtein). */
static uint32_t edits_between(const char *a, const char *b)
{
    uint32_t row[NAME_MAX_BYTES + 1];
    size_t a_bytes = strlen(a), b_bytes = strlen(b);

    must(b_bytes <= NAME_MAX_BYTES);
    for (size_t j = 0; j <= b_bytes; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 1; i <= a_bytes; i++) {
        uint32_t diagonal = row[0];

        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_bytes; j++) {
            uint32_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_bytes];
}

int arch_find(struct gguf_string name, const struct arch **ret_arch, struct fault *fault)
{
    const struct arch *closest = &archs[0];
    char printed[NAME_MAX_BYTES + 1], known[LIST_BYTES];
    uint32_t edits_least = UINT32_MAX;
    size_t used = 0;

    gguf_string_print(name, printed, sizeof printed);
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        size_t bytes = strlen(archs[i].name);
        uint32_t edits = edits_between(printed, archs[i].name);

        if (bytes == name.bytes && memcmp(archs[i].name, name.text, bytes) == 0) {
            *ret_arch = &archs[i];
            return 0;
        }
        if (edits < edits_least) {
            edits_least = edits;
            closest = &archs[i];
        }
        must(used + bytes + 3 <= sizeof known);
        if (i > 0) {
            memcpy(known + used, ", ", 2);
            used += 2;
        }
        memcpy(known + used, archs[i].name, bytes);
        used += bytes;
    }
    known[used] = '\0';
    return fault_set(
        fault, E_UNSUPPORTED,
        "the architecture \"%s\" is not supported; known ones are %s (the closest is %s)", printed,
        known, closest->name);
}

uint32_t arch_dim_value(const struct model *model, enum arch_dim dim)
{
    switch (dim) {
    case DIM_WIDTH:
        return model->width;
    case DIM_VOCABULARY:
        return model->vocabulary;
    case DIM_Q:
        return model->heads * model->head_size;
    case DIM_KV:
        return model->kv_heads * model->head_size;
    case DIM_HEAD:
        return model->head_size;
    case DIM_FFN:
        return model->ffn_width;
    case DIM_ROPE:
        return model->rope_size / 2;
    case DIM_ONE:
        break;
    }
    return 1;
}

struct weight *arch_weight_at(const struct arch_weight *line, struct model *model, uint32_t layer)
{
    char *base = line->flags & WEIGHT_PER_LAYER ? (char *)&model->layers[layer] : (char *)model;

    return (struct weight *)(void *)(base + line->weight_offset);
}

void arch_weight_add(const struct arch_weight *line, struct model *model, struct weight *weight,
                     struct weight_part part)
{
    must(weight->part_count == line->part);
    part.rows = arch_dim_value(model, line->rows);
    weight->parts[weight->part_count++] = part;
    weight->rows += part.rows;
    weight->columns = arch_dim_value(model, line->columns);
    model->parameters += (uint64_t)part.rows * weight->columns;
}

void arch_weight_name(const char *format, uint32_t layer, char name[static ARCH_NAME_BYTES])
{
    const char *number = strstr(format, "%u");

    if (number)
        snprintf(name, ARCH_NAME_BYTES, "%.*s%u%s", (int)(number - format), format, layer,
                 number + 2);
    else
        snprintf(name, ARCH_NAME_BYTES, "%s", format);
}
