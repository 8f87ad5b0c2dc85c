/* hf_class.h -- the classes of Transformers that are served, and what each takes where its
 * config.json says nothing.
 *
 * Internal to the reader of config.json: hf_config.c (sizes and common keys), hf_rope.c (rotary),
 * hf_class.c (the table, and keys that one class alone has), hf_mixture.c (those of experts). */
#ifndef WEFT_HF_CLASS_H
#define WEFT_HF_CLASS_H

#include "config/base/json.h"
#include "engine/hf_config.h"

struct hf_reading;

/* Which layers slide, where the file does not list them. */
enum hf_window {
    HF_WINDOW_NONE,      /* the class has no window */
    HF_WINDOW_LISTED,    /* those that layer_types lists, and no others */
    HF_WINDOW_ALL,       /* every layer */
    HF_WINDOW_SWITCH,    /* layers from max_window_layers on, if use_sliding_window */
    HF_WINDOW_ALTERNATE, /* the first, the third ... */
    HF_WINDOW_PATTERN,   /* all but every sliding_window_pattern-th (6 unless it is given) */
};

/* A key that is true or false, and which weights it stands for. */
struct hf_switch {
    const char *key;
    bool otherwise; /* where the file has no such key */
    unsigned features;
};
enum { HF_SWITCHES_MAX = 3 };

struct hf_class {
    const char *name;
    const char *arch; /* the row of arch_table.c */
    const char *text; /* key of the object that describes the text model; NULL: the file does */
    uint32_t heads;   /* 0: the file must say it, as with the other sizes */
    uint32_t vocabulary;
    uint32_t kv_heads;  /* 0: as many as heads */
    uint32_t head_size; /* 0: width / heads */
    uint32_t context;
    uint32_t ffn_factor; /* feed-forward width in widths; 0: the file must say it */
    bool tied;
    const char *epsilon; /* key; NULL: always norm_epsilon */
    double norm_epsilon;
    const char *activation; /* key; NULL: as the row says */
    double rope_base;
    double rope_part;       /* of a head, that rotates; 0: rotary_dim is their number */
    double rope_local_base; /* of the layers that slide; 0: as of the others */
    enum hf_window window_rule;
    int64_t window; /* 0: none */
    struct hf_switch switches[HF_SWITCHES_MAX];
    int (*own)(struct hf_reading *reading); /* keys of this class; NULL: none */
};

extern const struct hf_class hf_classes[];
extern const size_t hf_class_count;

/* What is read, and where it goes. */
struct hf_reading {
    const json_t *file; /* all of it */
    const json_t *root; /* the model's object in it: the same, but where the class has `text` */
    const struct hf_class *class_;
    struct hf_config config;
    struct fault *fault;
};

int hf_refuse(struct hf_reading *reading, int code, const char *key, const char *what);
/* A number from 1e-12 to `high`. Absent: *ret_value stays, and is refused when that is 0. */
int hf_read_positive(struct hf_reading *reading, const json_t *object, const char *path,
                     const char *key, double high, double *ret_value);
/* Absent: stays. */
int hf_read_bool(struct hf_reading *reading, const char *key, bool *ret_value);
/* E_UNSUPPORTED where the switch stands the other way; absent is as `only`. */
int hf_require_bool(struct hf_reading *reading, const char *key, bool only);
int hf_read_rope(struct hf_reading *reading);

/* Keys of the classes with experts (hf_mixture.c). */
int hf_read_mixtral(struct hf_reading *reading);
int hf_read_qwen2_moe(struct hf_reading *reading);
int hf_read_qwen3_moe(struct hf_reading *reading);
int hf_read_gpt_oss(struct hf_reading *reading);
int hf_read_deepseek_v2(struct hf_reading *reading);
int hf_read_deepseek_v3(struct hf_reading *reading);

#endif
