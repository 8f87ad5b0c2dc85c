/* hf_rope.c -- the rotary parameters of a config.json.
 *
 *     rope_theta, partial_rotary_factor, rope_scaling: {...}       up to Transformers 4
 *     rope_parameters: {rope_theta, rope_type, ...}                from 5 on
 *     rope_parameters: {full_attention: {...}, sliding_attention: {...}}
 *
 * plus the names that single classes have for the first two. */
#include <math.h>
#include <string.h>

#include "engine/hf_class.h"

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

/* One object with its place in messages, and the plan that it fills. */
struct rope_reading {
    struct hf_reading *reading;
    const json_t *object; /* NULL: the file has none */
    const char *path;
    struct rope_plan *plan;
};

static int read_positive(const struct rope_reading *rope, const char *key, double high,
                         double *ret_value)
{
    return hf_read_positive(rope->reading, rope->object, rope->path, key, high, ret_value);
}

/* A positive number that may be missing. */
static int read_optional(const struct rope_reading *rope, const char *key, double *ret_value)
{
    int r = json_get_real(rope->object, rope->path, key, 0, 1e6, ret_value, rope->reading->fault);

    return r < 0 ? r : 0;
}

/* --- the kinds ----------------------------------------------------------------------------- */

/* Without one in the object, Phi-3's key beside it, or the context itself. */
static int read_original(const struct rope_reading *rope)
{
    static const char key[] = "original_max_position_embeddings";
    struct hf_reading *reading = rope->reading;
    int64_t original = reading->config.plan.sizes.context;
    int r = json_get_int(rope->object, rope->path, key, 1, MODEL_CONTEXT_MAX, &original,
                         reading->fault);

    if (r == 0)
        r = json_get_int(reading->root, "", key, 1, MODEL_CONTEXT_MAX, &original, reading->fault);
    rope->plan->context_original = (uint32_t)original;
    return r < 0 ? r : 0;
}

static int read_factor(const struct rope_reading *rope)
{
    rope->plan->factor = 0;
    return read_positive(rope, "factor", 1e6, &rope->plan->factor);
}

static int read_llama3(const struct rope_reading *rope)
{
    struct rope_plan *plan = rope->plan;
    int r = read_factor(rope);

    if (r == 0)
        r = read_positive(rope, "low_freq_factor", 1e6, &plan->low_frequency_factor);
    if (r == 0)
        r = read_positive(rope, "high_freq_factor", 1e6, &plan->high_frequency_factor);
    if (r < 0)
        return r;
    if (!(plan->high_frequency_factor > plan->low_frequency_factor))
        return hf_refuse(rope->reading, E_INVALID, "high_freq_factor",
                         "must be above 'low_freq_factor'");
    return read_original(rope);
}

/* Where there is no factor it is how much longer the context became. */
static int read_grown_factor(const struct rope_reading *rope)
{
    struct rope_plan *plan = rope->plan;
    int r = read_original(rope);

    if (r < 0)
        return r;
    plan->factor = (double)rope->reading->config.plan.sizes.context / plan->context_original;
    return read_positive(rope, "factor", 1e6, &plan->factor);
}

static int read_yarn(const struct rope_reading *rope)
{
    struct rope_plan *plan = rope->plan;
    int r = read_grown_factor(rope);

    if (r == 0)
        r = read_positive(rope, "beta_fast", 1e6, &plan->beta_fast);
    if (r == 0)
        r = read_positive(rope, "beta_slow", 1e6, &plan->beta_slow);
    if (r == 0)
        r = read_optional(rope, "attention_factor", &plan->attention_factor);
    if (r == 0)
        r = read_optional(rope, "mscale", &plan->mscale);
    if (r == 0)
        r = read_optional(rope, "mscale_all_dim", &plan->mscale_all_dim);
    if (r == 0)
        r = json_get_bool(rope->object, rope->path, "truncate", &plan->truncate,
                          rope->reading->fault);
    if (r < 0)
        return r;
    if (!(plan->base > 1))
        return hf_refuse(rope->reading, E_INVALID, "rope_theta", "must be above 1 for yarn");
    return 0;
}

static int read_factors(const struct rope_reading *rope, const char *key, uint32_t wanted,
                        float *factors, uint32_t *ret_count)
{
    json_t *list = NULL;
    int r = json_get_array(rope->object, rope->path, key, &list, rope->reading->fault);

    if (r < 0)
        return r;
    if (r == 0)
        return fault_field(rope->reading->fault, E_INVALID, key, "'%s%s' is missing", rope->path,
                           key);
    if (json_array_size(list) != wanted)
        return fault_field(rope->reading->fault, E_INVALID, key,
                           "'%s%s' must have %u factors, one for each pair that rotates",
                           rope->path, key, wanted);
    for (uint32_t i = 0; i < wanted; i++) {
        double value = json_number_value(json_array_get(list, i));

        if (!(value > 0 && value < 1e9))
            return fault_field(rope->reading->fault, E_INVALID, key,
                               "'%s%s' must hold positive numbers", rope->path, key);
        factors[i] = (float)value;
    }
    *ret_count = wanted;
    return 0;
}

static int read_longrope(const struct rope_reading *rope)
{
    struct rope_plan *plan = rope->plan;
    uint32_t pairs = rope->reading->config.plan.sizes.ropes[0].size / 2;
    int r = read_grown_factor(rope);

    if (r == 0)
        r = read_optional(rope, "attention_factor", &plan->attention_factor);
    if (r == 0)
        r = read_factors(rope, "short_factor", pairs, plan->short_factors, &plan->short_count);
    if (r == 0)
        r = read_factors(rope, "long_factor", pairs, plan->long_factors, &plan->long_count);
    if (r == 0 && plan->context_original < 2)
        r = hf_refuse(rope->reading, E_INVALID, "original_max_position_embeddings",
                      "must be at least 2");
    return r;
}

static int read_scaling(const struct rope_reading *rope)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
        int (*read)(const struct rope_reading *rope);
    } kinds[] = {
        {"default", ROPE_SCALING_NONE, NULL},
        {"linear", ROPE_SCALING_LINEAR, read_factor},
        {"dynamic", ROPE_SCALING_DYNAMIC, read_factor},
        {"llama3", ROPE_SCALING_LLAMA3, read_llama3},
        {"yarn", ROPE_SCALING_YARN, read_yarn},
        {"longrope", ROPE_SCALING_LONGROPE, read_longrope},
        {"su", ROPE_SCALING_LONGROPE, read_longrope}, /* the first Phi-3 files */
    };
    struct fault *fault = rope->reading->fault;
    const char *kind = "default";
    size_t bytes;
    int r = json_get_string(rope->object, rope->path, "type", &kind, &bytes, fault);

    if (r >= 0) /* "type" is the older name */
        r = json_get_string(rope->object, rope->path, "rope_type", &kind, &bytes, fault);
    if (r < 0)
        return r;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(kind, kinds[i].name) != 0)
            continue;
        rope->plan->scaling = kinds[i].scaling;
        return kinds[i].read ? kinds[i].read(rope) : 0;
    }
    return fault_field(fault, E_UNSUPPORTED, "rope_type",
                       "the rotary scaling '%.60s' is not supported (known: default, linear, "
                       "dynamic, llama3, yarn, longrope)",
                       kind);
}

/* --- base and size ------------------------------------------------------------------------- */

static int check_base(struct hf_reading *reading, double base)
{
    return base >= 1 ? 0 : hf_refuse(reading, E_INVALID, "rope_theta", "must be at least 1");
}

static int read_base(struct hf_reading *reading, double *ret_base)
{
    static const char *const keys[] = {"rope_theta", "rotary_emb_base"};
    int r = 0;

    for (size_t i = 0; i < COUNT_OF(keys) && r == 0; i++)
        r = hf_read_positive(reading, reading->root, "", keys[i], 1e12, ret_base);
    return r;
}

/* How many dimensions of a head rotate: a share of it, or (rotary_dim) their number. */
static int read_size(struct hf_reading *reading, const struct rope_reading *rope)
{
    struct model *sizes = &reading->config.plan.sizes;
    double part = reading->class_->rope_part;
    int64_t size = 64; /* GPT-J's */
    int r;

    if (part == 0) {
        r = json_get_int(reading->root, "", "rotary_dim", 2, sizes->head_size, &size,
                         reading->fault);
        if (r == 0 && size > sizes->head_size)
            return hf_refuse(reading, E_INVALID, "rotary_dim", "is missing");
    } else {
        r = hf_read_positive(reading, reading->root, "", "partial_rotary_factor", 1, &part);
        if (r == 0)
            r = hf_read_positive(reading, reading->root, "", "rotary_pct", 1, &part);
        if (r == 0 && rope->object)
            r = read_positive(rope, "partial_rotary_factor", 1, &part);
        size = (int64_t)(sizes->head_size * part);
    }
    if (r < 0)
        return r;
    if (size < 2 || size % 2 != 0)
        return fault_field(reading->fault, E_INVALID, "head_dim",
                           "'head_dim': %lld dimensions of a head cannot rotate in pairs",
                           (long long)size);
    for (uint32_t i = 0; i < sizes->rope_count; i++)
        sizes->ropes[i].size = (uint32_t)size;
    return 0;
}

/* One plan: its base in the object goes before the one beside it. */
static int read_plan(const struct rope_reading *rope)
{
    int r = 0;

    if (rope->object) {
        r = read_positive(rope, "rope_theta", 1e12, &rope->plan->base);
        if (r == 0)
            r = read_scaling(rope);
    }
    return r < 0 ? r : check_base(rope->reading, rope->plan->base);
}

static int find_object(struct hf_reading *reading, struct rope_reading *rope)
{
    json_t *object = NULL;
    int r = json_get_object(reading->root, "", "rope_scaling", &object, reading->fault);

    rope->path = "rope_scaling.";
    if (r == 0) {
        rope->path = "rope_parameters.";
        r = json_get_object(reading->root, "", "rope_parameters", &object, reading->fault);
    }
    rope->object = r > 0 ? object : NULL;
    return r;
}

/* The layers that slide rotate by a base of their own, without scaling. */
static int read_local(struct hf_reading *reading, const json_t *object)
{
    struct model_plan *plan = &reading->config.plan;
    struct rope_reading local = {.reading = reading,
                                 .object = object,
                                 .path = "rope_parameters.sliding_attention.",
                                 .plan = &plan->ropes[1]};
    int r;

    local.plan->base = reading->class_->rope_local_base;
    r = hf_read_positive(reading, reading->root, "", "rope_local_base_freq", 1e12,
                         &local.plan->base);
    return r < 0 ? r : read_plan(&local);
}

int hf_read_rope(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    struct rope_reading rope = {.reading = reading, .plan = &plan->ropes[0]};
    json_t *global = NULL, *local = NULL;
    int r;

    if (plan->sizes.rope_count == 0)
        return 0;
    if (reading->class_->rope_local_base > 0)
        plan->sizes.rope_count = 2;
    rope.plan->base = reading->class_->rope_base;
    r = find_object(reading, &rope);
    if (r >= 0)
        r = read_base(reading, &rope.plan->base);
    if (r < 0)
        return r;
    if (rope.object) {
        r = json_get_object(rope.object, rope.path, "sliding_attention", &local, reading->fault);
        if (r >= 0)
            r = json_get_object(rope.object, rope.path, "full_attention", &global, reading->fault);
        if (r > 0) {
            rope.object = global;
            rope.path = "rope_parameters.full_attention.";
        }
    }
    if (r >= 0)
        r = read_size(reading, &rope);
    if (r == 0)
        r = read_plan(&rope);
    if (r == 0 && plan->sizes.rope_count == 2)
        r = read_local(reading, local);
    return r;
}
