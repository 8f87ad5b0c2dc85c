/* hf_quantization.c -- see hf_quantization.h.
 *
 * A method is a row: which tensors hold its elements, by the end of their names, and the function
 * that finds the tables beside one. Every shape is checked here, once, so that reading may trust
 * them.
 *
 * Formats: compressed-tensors' README and compressors (vLLM project); AutoGPTQ's and AutoAWQ's
 * packing, as Transformers 4.57 reads them; DeepSeek-V3's README_WEIGHTS.md; OCP's microscaling
 * formats and GPT-OSS's model card. */
#include "engine/hf_quantization.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/gguf.h"
#include "kernels/quant_tables.h"

enum {
    NAME_BYTES = 512, /* of a table's tensor */
    PRINTED_NAME = 120,
    NEW_ENDING_BYTES = 8, /* more than ".weight" adds to a name */
    TABLES_MAX = 6,       /* tensors of one weight */
    MX_BLOCK = 32,
    ROWS_MAX = 1 << 30,
};

/* What stands before a key in messages. */
#define PATH "quantization_config."

struct hf_quantization {
    struct quant_tables *tables;
    uint32_t count;
    char *names;
    size_t names_bytes;
};

/* The set of tensors that is being put together. */
struct set {
    const struct stored_tensor *elements;
    size_t base_bytes; /* of the elements' name: what the other names begin with */
    const struct stored_tensor *used[TABLES_MAX];
    uint32_t used_count;
    struct quant_tables tables;
    uint32_t experts; /* 1 but for mxfp4 */
};

struct work {
    const json_t *config; /* quantization_config */
    const struct method *method;
    struct stored_tensor *tensors;
    uint32_t count;
    struct name_index index;
    bool *gone;
    struct gguf_string *new_names; /* the index is searched by the old ones until all are found */
    struct hf_quantization *made;
    int64_t block_rows; /* fp8: of what one scale serves */
    int64_t block_columns;
    int64_t group; /* gptq, awq: columns; -1: all */
    enum quant_zeros zeros;
    struct fault *fault;
};

struct method {
    const char *name;
    int (*configure)(struct work *work);
    struct {
        const char *ending; /* of the elements' names */
        const char *format; /* of the elements */
        int (*resolve)(struct work *work, struct set *set);
    } sets[3];
};

static int broken(const struct work *work, const struct stored_tensor *tensor, const char *what)
{
    char printed[PRINTED_NAME];

    gguf_string_print(tensor->name, printed, sizeof printed);
    return fault_set(work->fault, E_CORRUPT, "the tensor %s %s", printed, what);
}

/* --- finding tables ------------------------------------------------------------------------ */

/* The tensor named as the elements are, with another ending; or NULL. It is used up by this set. */
static const struct stored_tensor *find(struct work *work, struct set *set, const char *ending)
{
    const struct stored_tensor *tensor;
    char name[NAME_BYTES];
    size_t bytes = set->base_bytes + strlen(ending);

    if (bytes >= sizeof name)
        return NULL;
    memcpy(name, set->elements->name.text, set->base_bytes);
    memcpy(name + set->base_bytes, ending, strlen(ending));
    tensor = name_index_find(&work->index, work->tensors, sizeof *work->tensors,
                             (struct gguf_string){name, bytes});
    if (tensor) {
        must(set->used_count < TABLES_MAX);
        set->used[set->used_count++] = tensor;
    }
    return tensor;
}

static int need(struct work *work, struct set *set, const char *ending,
                const struct stored_tensor **ret_tensor)
{
    char printed[PRINTED_NAME];

    *ret_tensor = find(work, set, ending);
    if (*ret_tensor)
        return 0;
    gguf_string_print(set->elements->name, printed, sizeof printed);
    return fault_set(work->fault, E_CORRUPT,
                     "the tensor %s is quantized, but the one beside it that ends in \"%s\" is "
                     "missing",
                     printed, ending);
}

static bool shaped(const struct stored_tensor *tensor, uint64_t columns, uint64_t rows)
{
    for (uint32_t i = 2; i < TENSOR_DIMENSIONS_MAX; i++) {
        if (tensor->dimensions[i] != 1)
            return false;
    }
    return tensor->dimensions[0] == columns && tensor->dimensions[1] == rows;
}

static int want(const struct work *work, const struct stored_tensor *tensor, const char *format,
                uint64_t columns, uint64_t rows)
{
    char text[PRINTED_NAME];

    if (strcmp(tensor->format, format) == 0 && shaped(tensor, columns, rows))
        return 0;
    snprintf(text, sizeof text, "is not %s [%llu, %llu], as its weight wants it", format,
             (unsigned long long)rows, (unsigned long long)columns);
    return broken(work, tensor, text);
}

static uint64_t parts_of(uint64_t count, uint64_t part)
{
    return count / part + (count % part != 0);
}

static int set_shape(const struct work *work, struct set *set, uint64_t rows, uint64_t columns)
{
    if (rows == 0 || columns == 0 || rows > ROWS_MAX || columns > ROWS_MAX)
        return broken(work, set->elements, "has a size of zero or beyond counting");
    set->tables.rows = (uint32_t)rows;
    set->tables.columns = (uint32_t)columns;
    return 0;
}

/* Groups of `scale_columns` columns, and scales of so many rows each. */
static int set_scales(const struct work *work, struct set *set, const struct stored_tensor *scales,
                      uint64_t scale_rows, uint64_t scale_columns)
{
    struct quant_tables *t = &set->tables;

    if (!scales->known ||
        (scales->type != DT_F32 && scales->type != DT_F16 && scales->type != DT_BF16))
        return broken(work, scales, "is not F32, F16 or BF16, as scales are");
    t->scales = scales->data;
    t->scale_type = scales->type;
    t->scale_rows = (uint32_t)scale_rows;
    t->scale_columns = (uint32_t)scale_columns;
    t->groups = (uint32_t)parts_of(t->columns, scale_columns);
    return 0;
}

/* A table of each column's group; one that says what is so without it is left aside. */
static int set_groups(const struct work *work, struct set *set, const struct stored_tensor *table)
{
    struct quant_tables *t = &set->tables;
    bool ordered = true, unset = true;
    int r = want(work, table, "I32", t->columns, 1);

    if (r < 0)
        return r;
    for (uint32_t c = 0; c < t->columns; c++) {
        int32_t group;

        memcpy(&group, (const uint8_t *)table->data + 4 * (size_t)c, sizeof group);
        ordered = ordered && group == (int32_t)(c / t->scale_columns);
        unset = unset && group == -1;
        if (!unset && (group < 0 || group >= (int32_t)t->groups))
            return broken(work, table, "names a group that has no scale");
    }
    if (!ordered && !unset)
        t->group_of = table->data;
    return 0;
}

/* --- FP8 and INT8 -------------------------------------------------------------------------- */

/* One scale, one a row, one for some columns of a row, or one a block: the shape tells. */
static int resolve_bytes(struct work *work, struct set *set)
{
    const struct stored_tensor *elements = set->elements, *scales, *zeros;
    struct quant_tables *t = &set->tables;
    int r = set_shape(work, set, elements->dimensions[1], elements->dimensions[0]);
    uint64_t across, down;

    if (r == 0 && !shaped(elements, t->columns, t->rows))
        r = broken(work, elements, "has more than two dimensions");
    scales = r < 0 ? NULL : find(work, set, "weight_scale_inv");
    if (r == 0 && !scales)
        r = need(work, set, "weight_scale", &scales);
    if (r < 0)
        return r;
    zeros = find(work, set, "weight_zero_point");
    (void)find(work, set, "input_scale");
    across = scales->dimensions[0];
    down = scales->dimensions[1];
    if (scales->dimension_count < 2 && across == t->rows) { /* a row's scale without a column */
        down = across;
        across = 1;
    }
    if (across * down == 1) {
        r = set_scales(work, set, scales, t->rows, t->columns);
    } else if (down == t->rows && across > 0 && t->columns % across == 0) {
        r = set_scales(work, set, scales, 1, t->columns / across);
    } else {
        r = want(work, scales, scales->format, parts_of(t->columns, (uint64_t)work->block_columns),
                 parts_of(t->rows, (uint64_t)work->block_rows));
        if (r == 0)
            r = set_scales(work, set, scales, (uint64_t)work->block_rows,
                           (uint64_t)work->block_columns);
    }
    if (r < 0 || !zeros || t->type != DT_I8)
        return r;
    if (t->scale_rows != 1)
        return broken(work, zeros, "has no scales by row beside it");
    t->zero_kind = ZEROS_I8;
    t->zeros = zeros->data;
    return want(work, zeros, "I8", t->groups, t->rows);
}

static int resolve_f8(struct work *work, struct set *set)
{
    set->tables.type = DT_F8_E4M3;
    return resolve_bytes(work, set);
}

static int resolve_i8(struct work *work, struct set *set)
{
    set->tables.type = DT_I8;
    return resolve_bytes(work, set);
}

/* A word of the config; where it is missing *ret_text stays. */
static int read_word(const struct work *work, const char *key, const char **ret_text)
{
    size_t bytes;
    int r = json_get_string(work->config, PATH, key, ret_text, &bytes, work->fault);

    return r < 0 ? r : 0;
}

/* [rows, columns] of what a scale serves: `list` or, without one, 128 x 128. */
static int read_block(struct work *work, const json_t *list)
{
    work->block_rows = work->block_columns = 128;
    if (!list || json_is_null(list))
        return 0;
    if (json_array_size(list) != 2 || !json_integral(json_array_get(list, 0), &work->block_rows) ||
        !json_integral(json_array_get(list, 1), &work->block_columns) || work->block_rows < 1 ||
        work->block_columns < 1 || work->block_rows > ROWS_MAX || work->block_columns > ROWS_MAX)
        return fault_set(work->fault, E_INVALID,
                         "quantization_config: the block of weights is not two sizes");
    return 0;
}

static int configure_fp8(struct work *work)
{
    return read_block(work, json_object_get(work->config, "weight_block_size"));
}

/* --- compressed-tensors -------------------------------------------------------------------- */

static int resolve_packed(struct work *work, struct set *set)
{
    const struct stored_tensor *shape, *scales, *zeros, *groups;
    struct quant_tables *t = &set->tables;
    int64_t sizes[2];
    int r = need(work, set, "weight_shape", &shape);

    if (r == 0)
        r = want(work, shape, "I64", 2, 1);
    if (r < 0)
        return r;
    memcpy(sizes, shape->data, sizeof sizes);
    if (sizes[0] < 1 || sizes[1] < 1)
        return broken(work, shape, "is not a shape");
    r = set_shape(work, set, (uint64_t)sizes[0], (uint64_t)sizes[1]);
    if (r == 0 && t->columns % 8 != 0)
        r = broken(work, set->elements, "has rows that are not whole words");
    if (r == 0)
        r = want(work, set->elements, "I32", t->columns / 8, t->rows);
    if (r == 0)
        r = need(work, set, "weight_scale", &scales);
    if (r < 0)
        return r;
    if (scales->dimensions[0] == 0 || t->columns % scales->dimensions[0] != 0)
        return broken(work, scales, "does not divide the columns of its weight");
    r = want(work, scales, scales->format, scales->dimensions[0], t->rows);
    if (r == 0)
        r = set_scales(work, set, scales, 1, t->columns / scales->dimensions[0]);
    t->type = DT_INT4;
    t->zero_kind = ZEROS_8;
    zeros = find(work, set, "weight_zero_point");
    if (r == 0 && zeros) {
        t->zero_kind = ZEROS_ROW_WORDS;
        t->zeros = zeros->data;
        r = want(work, zeros, "I32", t->groups, parts_of(t->rows, 8));
    }
    groups = find(work, set, "weight_g_idx");
    if (r == 0 && groups)
        r = set_groups(work, set, groups);
    return r;
}

static int configure_compressed(struct work *work)
{
    static const char *const known[] = {"dense",         "float-quantized", "naive-quantized",
                                        "int-quantized", "pack-quantized",  "mixed-precision"};
    json_t *group, *groups = NULL, *sparsity = NULL;
    const char *format = NULL, *name, *sparse;
    bool found;
    int r = read_word(work, "format", &format);

    if (r == 0)
        r = json_get_object(work->config, PATH, "config_groups", &groups, work->fault);
    if (r >= 0)
        r = json_get_object(work->config, PATH, "sparsity_config", &sparsity, work->fault);
    if (r < 0)
        return r;
    sparse = json_string_value(json_object_get(sparsity, "format"));
    found = !format;
    for (size_t i = 0; format && i < sizeof known / sizeof *known; i++)
        found = found || strcmp(format, known[i]) == 0;
    if (!found)
        return fault_set(work->fault, E_UNSUPPORTED,
                         "quantization_config: the format \"%.60s\" of compressed-tensors is not "
                         "read; known ones are float-, naive-, int- and pack-quantized",
                         format);
    if (sparse && strcmp(sparse, "dense") != 0)
        return fault_set(work->fault, E_UNSUPPORTED,
                         "quantization_config: the sparse format \"%.60s\" is not read", sparse);
    r = read_block(work, NULL);
    json_object_foreach(groups, name, group)
    {
        const json_t *block = json_object_get(json_object_get(group, "weights"), "block_structure");

        if (json_is_array(block) && r == 0)
            r = read_block(work, block);
    }
    return r;
}

/* --- GPTQ and AWQ -------------------------------------------------------------------------- */

/* Zeros, scales and groups: the same tables for both. */
static int resolve_grouped(struct work *work, struct set *set)
{
    const struct stored_tensor *zeros, *scales, *groups;
    struct quant_tables *t = &set->tables;
    uint64_t group = work->group < 0 ? t->columns : (uint64_t)work->group;
    int r;

    if (t->rows % 8 != 0)
        return broken(work, set->elements, "has rows that are not whole words");
    r = need(work, set, "qzeros", &zeros);
    if (r == 0)
        r = need(work, set, "scales", &scales);
    if (r == 0)
        r = set_scales(work, set, scales, 1, group);
    if (r == 0)
        r = want(work, scales, scales->format, t->rows, t->groups);
    if (r == 0)
        r = want(work, zeros, "I32", t->rows / 8, t->groups);
    if (r < 0)
        return r;
    t->scales_by_group = true;
    t->zero_kind = work->zeros;
    t->zeros = zeros->data;
    groups = find(work, set, "g_idx");
    return groups ? set_groups(work, set, groups) : 0;
}

static int resolve_gptq(struct work *work, struct set *set)
{
    const struct stored_tensor *elements = set->elements;
    int r = set_shape(work, set, elements->dimensions[0], elements->dimensions[1] * 8);

    set->tables.type = DT_GPTQ4;
    if (r == 0)
        r = want(work, elements, "I32", set->tables.rows, set->tables.columns / 8);
    return r < 0 ? r : resolve_grouped(work, set);
}

static int resolve_awq(struct work *work, struct set *set)
{
    const struct stored_tensor *elements = set->elements;
    int r = set_shape(work, set, elements->dimensions[0] * 8, elements->dimensions[1]);

    set->tables.type = DT_AWQ4;
    if (r == 0)
        r = want(work, elements, "I32", set->tables.rows / 8, set->tables.columns);
    return r < 0 ? r : resolve_grouped(work, set);
}

static int read_bits_and_group(struct work *work)
{
    int64_t bits = 4;
    int r = json_get_int(work->config, PATH, "bits", 1, 64, &bits, work->fault);

    if (r < 0)
        return r;
    if (bits != 4)
        return fault_set(work->fault, E_UNSUPPORTED,
                         "quantization_config: %s of %lld bits is not read, only of 4",
                         work->method->name, (long long)bits);
    work->group = 128;
    r = json_get_int(work->config, PATH, "group_size", -1, ROWS_MAX, &work->group, work->fault);
    if (r >= 0 && work->group == 0)
        return fault_set(work->fault, E_INVALID, "quantization_config: 'group_size' is 0");
    return r < 0 ? r : 0;
}

static int configure_gptq(struct work *work)
{
    const char *format = "gptq";
    int r = read_word(work, "checkpoint_format", &format);

    if (r < 0)
        return r;
    if (strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return fault_set(
            work->fault, E_UNSUPPORTED,
            "quantization_config: GPTQ's checkpoint format \"%.60s\" is not read, only "
            "gptq and gptq_v2",
            format);
    work->zeros = strcmp(format, "gptq") == 0 ? ZEROS_GPTQ_LESS : ZEROS_GPTQ;
    return read_bits_and_group(work);
}

static int configure_awq(struct work *work)
{
    const char *version = "gemm";
    int r = read_word(work, "version", &version);

    if (r < 0)
        return r;
    if (strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return fault_set(work->fault, E_UNSUPPORTED,
                         "quantization_config: AWQ's version \"%.60s\" is not read, only gemm",
                         version);
    work->zeros = ZEROS_AWQ;
    return read_bits_and_group(work);
}

/* --- MXFP4 --------------------------------------------------------------------------------- */

static int resolve_mxfp4(struct work *work, struct set *set)
{
    const struct stored_tensor *elements = set->elements, *scales;
    const uint64_t *sizes = elements->dimensions; /* 16, blocks, rows, experts */
    struct quant_tables *t = &set->tables;
    uint64_t rows;
    int r = need(work, set, "_scales", &scales);

    if (r < 0)
        return r;
    if (sizes[0] != MX_BLOCK / 2 || sizes[1] > ROWS_MAX / MX_BLOCK || sizes[4] != 1 ||
        __builtin_mul_overflow(sizes[2], sizes[3], &rows))
        return broken(work, elements, "is not [experts, rows, blocks, 16]");
    r = set_shape(work, set, rows, sizes[1] * MX_BLOCK);
    if (r < 0)
        return r;
    if (strcmp(scales->format, "U8") != 0 || scales->dimensions[0] != sizes[1] ||
        scales->dimensions[1] != sizes[2] || scales->dimensions[2] != sizes[3] ||
        scales->dimensions[3] != 1)
        return broken(work, scales, "is not U8 with a scale for each block of its weight");
    set->experts = (uint32_t)sizes[3];
    *t = (struct quant_tables){.type = DT_E2M1,
                               .rows = t->rows,
                               .columns = t->columns,
                               .scale_type = DT_F8_E8M0,
                               .scales = scales->data,
                               .scale_rows = 1,
                               .scale_columns = MX_BLOCK,
                               .groups = (uint32_t)sizes[1]};
    return 0;
}

static int configure_nothing(struct work *work)
{
    (void)work;
    return 0;
}

/* --- the methods --------------------------------------------------------------------------- */

static const struct method methods[] = {
    {"fp8", configure_fp8, {{".weight", "F8_E4M3", resolve_f8}}},
    {"compressed-tensors",
     configure_compressed,
     {{".weight", "F8_E4M3", resolve_f8},
      {".weight", "I8", resolve_i8},
      {".weight_packed", "I32", resolve_packed}}},
    {"gptq", configure_gptq, {{".qweight", "I32", resolve_gptq}}},
    {"awq", configure_awq, {{".qweight", "I32", resolve_awq}}},
    {"mxfp4", configure_nothing, {{"_blocks", "U8", resolve_mxfp4}}},
};

static int find_method(struct work *work)
{
    const char *name = "";
    char list[96] = "";
    int r = read_word(work, "quant_method", &name);

    if (r < 0)
        return r;
    if (!*name)
        return fault_set(work->fault, E_INVALID, "'" PATH "quant_method' is missing");

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        size_t used = strlen(list);

        if (strcmp(methods[i].name, name) == 0)
            work->method = &methods[i];
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", methods[i].name);
    }
    if (work->method)
        return work->method->configure(work);
    return fault_set(work->fault, E_UNSUPPORTED,
                     "quantization_config: the method \"%.60s\" is not read; known ones are %s",
                     name, list);
}

/* Takes the set's tensors out of the list and puts the weight in the elements' place. */
static void replace(struct work *work, const struct set *set)
{
    struct stored_tensor *tensor = &work->tensors[set->elements - work->tensors];
    struct quant_tables *tables = &work->made->tables[work->made->count++];
    uint64_t rows = set->tables.rows / set->experts;
    size_t base = set->base_bytes;
    char *name = work->made->names + work->made->names_bytes;
    bool dotted = base > 0 && tensor->name.text[base - 1] == '.';

    memcpy(name, tensor->name.text, base);
    memcpy(name + base, dotted ? "weight" : ".weight", dotted ? 6 : 7);
    work->made->names_bytes += base + (dotted ? 6 : 7);
    *tables = set->tables;
    tables->data = tensor->data;
    work->new_names[tensor - work->tensors] = (struct gguf_string){name, base + (dotted ? 6 : 7)};
    tensor->known = true;
    tensor->type = tables->type;
    tensor->tables = tables;
    snprintf(tensor->format, sizeof tensor->format, "%s", dtype_get(tables->type)->name);
    tensor->dimension_count = set->experts > 1 ? 3 : 2;
    for (uint32_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++)
        tensor->dimensions[i] = 1;
    tensor->dimensions[0] = tables->columns;
    tensor->dimensions[1] = rows;
    tensor->dimensions[2] = set->experts;
    for (uint32_t i = 0; i < set->used_count; i++) {
        tensor->bytes += set->used[i]->bytes;
        work->gone[set->used[i] - work->tensors] = true;
    }
}

static bool ends_in(struct gguf_string name, const char *ending)
{
    size_t bytes = strlen(ending);

    return name.bytes > bytes && memcmp(name.text + name.bytes - bytes, ending, bytes) == 0;
}

static int resolve(struct work *work, uint32_t index)
{
    const struct stored_tensor *tensor = &work->tensors[index];

    for (size_t i = 0; i < 3 && work->method->sets[i].ending; i++) {
        const char *ending = work->method->sets[i].ending;
        struct set set = {.elements = tensor, .experts = 1};
        int r;

        if (!ends_in(tensor->name, ending) ||
            strcmp(tensor->format, work->method->sets[i].format) != 0)
            continue;
        /* ".weight" and the like: the dot belongs to what the tables' names begin with. */
        set.base_bytes = tensor->name.bytes - strlen(ending) + (*ending == '.');
        r = work->method->sets[i].resolve(work, &set);
        if (r == 0)
            replace(work, &set);
        return r;
    }
    return 0;
}

static int resolve_all(struct work *work)
{
    uint32_t kept = 0, twice;
    size_t room = 0;
    int r =
        name_index_build(&work->index, work->tensors, sizeof *work->tensors, work->count, &twice);

    for (uint32_t i = 0; i < work->count; i++)
        room += work->tensors[i].name.bytes + NEW_ENDING_BYTES;
    work->gone = calloc((size_t)work->count + 1, sizeof *work->gone);
    work->new_names = calloc((size_t)work->count + 1, sizeof *work->new_names);
    work->made->tables = calloc((size_t)work->count + 1, sizeof *work->made->tables);
    work->made->names = malloc(room + 1);
    if (r < 0 || !work->gone || !work->new_names || !work->made->tables || !work->made->names)
        return fault_set(work->fault, E_MEMORY, "out of memory for the list of tensors");
    must(r == 0); /* the checkpoint has refused names that occur twice */
    for (uint32_t i = 0; i < work->count; i++) {
        r = resolve(work, i);
        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < work->count; i++) {
        if (work->new_names[i].text)
            work->tensors[i].name = work->new_names[i];
        if (!work->gone[i])
            work->tensors[kept++] = work->tensors[i];
    }
    work->count = kept;
    return 0;
}

int hf_quantization_apply(const char *config, size_t bytes, struct stored_tensor *tensors,
                          uint32_t *count, struct hf_quantization **ret_quantization,
                          struct fault *fault)
{
    struct work work = {.tensors = tensors, .count = *count, .fault = fault};
    json_t *root, *own = NULL;
    int r;

    if (json_parse(config, bytes, &root, NULL) < 0)
        return 0; /* whoever reads the sizes tells what is wrong with it */
    r = json_is_object(root) ? json_get_object(root, "", "quantization_config", &own, fault) : 0;
    if (r <= 0) {
        json_decref(root);
        return r;
    }
    r = 0;
    work.config = own;
    work.made = calloc(1, sizeof *work.made);
    if (!work.made)
        r = fault_set(fault, E_MEMORY, "out of memory for the tables of weights");
    if (r == 0)
        r = find_method(&work);
    if (r == 0)
        r = resolve_all(&work);
    if (r == 0) {
        *count = work.count;
        *ret_quantization = work.made;
        work.made = NULL;
    }
    hf_quantization_close(work.made);
    name_index_close(&work.index);
    free(work.gone);
    free(work.new_names);
    json_decref(root);
    return r;
}

void hf_quantization_close(struct hf_quantization *quantization)
{
    if (!quantization)
        return;
    free(quantization->tables);
    free(quantization->names);
    free(quantization);
}
