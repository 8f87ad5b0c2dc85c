/* command_inspect.c -- `weft inspect MODEL`: what a model's file or folder holds, and the memory
 * that serving it would take; with --random-weights a shape in the file's place.
 *
 * What the file says is printed before anything is judged, so that a model that cannot be served
 * can still be looked at; the reason then is the command's fault. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/checkpoint.h"
#include "engine/model.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"
#include "server/commands.h"
#include "server/progress.h"
#include "server/startup.h"

enum { PATH_BYTES_MAX = 4352, BYTES_TEXT_ROOM = 24, NAME_ROOM = 128, VALUE_ROOM = 96 };

static void print_bytes(const char *label, uint64_t bytes)
{
    char text[BYTES_TEXT_ROOM];

    progress_bytes_print(bytes, text, sizeof text);
    printf("  %-20s %10s\n", label, text);
}

/* One line for each number format: how many tensors, how many bytes. */
static void print_types(const struct checkpoint *checkpoint)
{
    uint64_t counts[DTYPE_COUNT] = {0}, bytes[DTYPE_COUNT] = {0}, unknown = 0;
    uint32_t count = checkpoint_tensor_count(checkpoint);

    for (uint32_t i = 0; i < count; i++) {
        const struct stored_tensor *tensor = checkpoint_tensor_at(checkpoint, i);

        if (!tensor->known) {
            unknown++;
            continue;
        }
        counts[tensor->type]++;
        bytes[tensor->type] += tensor->bytes;
    }
    printf("\ntensors: %" PRIu32 "\n", count);
    for (unsigned type = 0; type < DTYPE_COUNT; type++) {
        char text[BYTES_TEXT_ROOM];

        progress_bytes_print(bytes[type], text, sizeof text);
        if (counts[type] > 0)
            printf("  %-20s %10s  in %" PRIu64 "\n", dtype_get((enum dtype)type)->name, text,
                   counts[type]);
    }
    if (unknown > 0)
        printf("  %-20s %10s  in %" PRIu64 "\n", "not read here", "", unknown);
}

static void print_tensors(const struct checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct stored_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        char name[NAME_ROOM], shape[VALUE_ROOM];

        gguf_string_print(tensor->name, name, sizeof name);
        checkpoint_print_shape(checkpoint, tensor, shape, sizeof shape);
        printf("  %-40s %-6s %s\n", name, tensor->format, shape);
    }
}

static void print_keys(const struct gguf *file)
{
    printf("\nmetadata: %" PRIu64 " keys\n", gguf_key_count(file));
    for (uint64_t i = 0; i < gguf_key_count(file); i++) {
        char name[NAME_ROOM], value[VALUE_ROOM];

        gguf_string_print(gguf_key_name(file, i), name, sizeof name);
        gguf_key_print(file, i, value, sizeof value);
        printf("  %s = %s\n", name, value);
    }
}

/* The first level of config.json. */
static int print_config(const struct checkpoint *checkpoint, struct fault *fault)
{
    const struct buf *text = checkpoint_config(checkpoint);
    json_t *root = NULL, *value;
    const char *key;
    int r = json_parse(buf_string(text), text->bytes, &root, fault);

    if (r < 0) {
        fault_prefix(fault, "%s/config.json", checkpoint_path(checkpoint));
        return r;
    }
    printf("\nconfig.json: %zu keys\n", json_object_size(root));
    json_object_foreach(root, key, value)
    {
        char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
        char name[NAME_ROOM], shown[VALUE_ROOM];

        gguf_string_print((struct gguf_string){key, strlen(key)}, name, sizeof name);
        if (dumped)
            gguf_string_print((struct gguf_string){dumped, strlen(dumped)}, shown, sizeof shown);
        printf("  %s = %s\n", name, dumped ? shown : "?");
        free(dumped);
    }
    json_decref(root);
    return 0;
}

static void print_model(const struct model *model)
{
    printf("\nmodel: %s\n", model->name);
    printf("  %-20s %10s\n", "architecture", model->architecture);
    printf("  %-20s %10.1f million\n", "parameters", (double)model->parameters * 1e-6);
    printf("  %-20s %10" PRIu32 "\n", "layers", model->layer_count);
    printf("  %-20s %10" PRIu32 "\n", "width", model->width);
    printf("  %-20s %10" PRIu32 "  of %" PRIu32 ", %" PRIu32 " for keys and values\n", "heads",
           model->heads, model->head_size, model->kv_heads);
    printf("  %-20s %10" PRIu32 "\n", "feed-forward width", model->ffn_width);
    printf("  %-20s %10" PRIu32 "\n", "vocabulary", model->vocabulary);
    printf("  %-20s %10" PRIu32 "\n", "context", model->context);
}

/* Whether texts and chats can be served; token ids always can. */
static void print_text(const struct config *config, const struct checkpoint *checkpoint)
{
    const struct gguf *file = checkpoint_gguf(checkpoint);
    const char *path = checkpoint_path(checkpoint);
    struct chat_template *template_ = NULL;
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};

    if ((file ? tokenizer_open_gguf(file, &tokenizer, &fault)
              : tokenizer_open_path(path, &tokenizer, &fault)) < 0)
        printf("\ntokenizer: %s\n", fault.message);
    else
        printf("\ntokenizer: %" PRIu32 " tokens\n", tokenizer_count(tokenizer));
    if (startup_template_open(config, file, path, &template_, &fault) < 0 ||
        chat_template_check(template_, &fault) < 0)
        printf("chat template: %s\n", fault.message);
    else
        printf("chat template: known\n");
    chat_template_close(template_);
    tokenizer_close(tokenizer);
}

static int print_plan(const struct config *config, const char *path, struct fault *fault)
{
    struct engine_options options;
    struct engine_outline outline;
    struct engine_memory memory;
    struct engine_limits limits;
    uint32_t step_tokens;
    int r;

    startup_engine_options(config, path, NULL, &options);
    r = engine_plan(&options, &outline, fault);
    if (r < 0)
        return r;
    memory = outline.memory;
    limits = outline.limits;
    step_tokens = limits.batch.prefill_tokens + limits.batch.rows;
    printf("\ndevice: %s\n", outline.device_name);
    if (outline.device_note.code < 0)
        printf("  not on a GPU: %s\n", outline.device_note.message);
    printf("\nmemory plan for %" PRIu32 " sequences of %" PRIu32 " tokens at most\n",
           limits.batch.rows, limits.context);
    print_bytes("weights", memory.weights);
    print_bytes("kv cache", memory.kv_cache);
    print_bytes("activations", memory.activations);
    print_bytes("request table", memory.request_table);
    print_bytes("all together",
                memory.weights + memory.kv_cache + memory.activations + memory.request_table);
    print_bytes("available", memory.available);
    printf("  %-20s %10" PRIu32 "  %s%" PRIu32 " beside answers that are being written\n",
           "tokens of a step", step_tokens,
           limits.loaded_tokens < step_tokens && config->loaded_tokens == 0 ? "at least " : "",
           limits.loaded_tokens);
    printf("  %-20s %10" PRIu64 "  in %" PRIu32 " pages of %" PRIu32 "\n", "kv cache tokens",
           (uint64_t)limits.page_count * limits.page_tokens, limits.page_count, limits.page_tokens);
    return 0;
}

static int inspect_shape(const struct config *config, struct fault *fault)
{
    struct model *model = NULL;
    char size[BYTES_TEXT_ROOM];
    int r = model_open_random(config->random_weights, &model, fault);

    if (r < 0)
        return r;
    progress_bytes_print(model->weight_bytes, size, sizeof size);
    printf("random weights: %s of %s\n", size, dtype_get(model->embedding.parts[0].type)->name);
    print_model(model);
    model_close(model);
    return print_plan(config, NULL, fault);
}

/* What the checkpoint says, before anything is judged. */
static int print_checkpoint(const struct config *config, const struct checkpoint *checkpoint,
                            struct fault *fault)
{
    const struct gguf *file = checkpoint_gguf(checkpoint);
    uint32_t files = checkpoint_file_count(checkpoint);
    char size[BYTES_TEXT_ROOM];
    int r = 0;

    progress_bytes_print(checkpoint_bytes(checkpoint), size, sizeof size);
    if (file) {
        printf("file: %s\n  GGUF version %" PRIu32 ", %s\n", checkpoint_path(checkpoint),
               gguf_version(file), size);
        print_keys(file);
    } else {
        printf("folder: %s\n  safetensors in %" PRIu32 " file%s, %s\n", checkpoint_path(checkpoint),
               files, files == 1 ? "" : "s", size);
        r = print_config(checkpoint, fault);
    }
    print_types(checkpoint);
    if (config->tensors)
        print_tensors(checkpoint);
    print_text(config, checkpoint);
    return r;
}

static int inspect(const struct config *config, const struct checkpoint *checkpoint,
                   struct fault *fault)
{
    struct model *model = NULL;
    int r = print_checkpoint(config, checkpoint, fault);

    if (r == 0)
        r = model_open(checkpoint, &model, fault);
    if (r < 0)
        return r;
    print_model(model);
    if (model->ignored_count > 0)
        printf("  %-20s %10" PRIu32 "  tensors, the first is %s\n", "not used",
               model->ignored_count, model->ignored);
    model_close(model);
    return print_plan(config, checkpoint_path(checkpoint), fault);
}

static int inspect_file(const struct config *config, const char *path, struct fault *fault)
{
    struct checkpoint *checkpoint = NULL;
    int r = checkpoint_open(path, &checkpoint, fault);

    if (r == 0)
        r = inspect(config, checkpoint, fault);
    checkpoint_close(checkpoint);
    return r;
}

int command_inspect(const struct config *config, struct fault *fault)
{
    struct config named = *config;
    char found[PATH_BYTES_MAX];
    const char *path;
    int r;

    if (config->operand_count > 0)
        named.model = config->operands[0];
    r = startup_source(&named, found, sizeof found, &path, fault);
    if (r < 0)
        return r;
    r = path ? inspect_file(&named, path, fault) : inspect_shape(&named, fault);
    if (fflush(stdout) != 0 && r == 0)
        r = fault_errno(fault, "Cannot write to standard output");
    return r;
}
