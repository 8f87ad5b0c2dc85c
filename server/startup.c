/* startup.c -- see startup.h. */
#include "server/startup.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* config/ cannot include the engine's enumerators; the words' order is the same. */
static_assert((int)CONFIG_DEVICE_AUTO == (int)DEVICE_AUTO, "order of --device");
static_assert((int)CONFIG_DEVICE_CPU == (int)DEVICE_CPU, "order of --device");
static_assert((int)CONFIG_DEVICE_CUDA == (int)DEVICE_CUDA, "order of --device");
static_assert((int)CONFIG_DEVICE_NULL == (int)DEVICE_NULL, "order of --device");
static_assert((int)CONFIG_ACTIVATIONS_INT16 == (int)ACTIVATIONS_INT16,
              "order of --cpu-activations");
static_assert((int)CONFIG_ACTIVATIONS_F32 == (int)ACTIVATIONS_F32, "order of --cpu-activations");
static_assert((int)CONFIG_ACTIVATIONS_INT8 == (int)ACTIVATIONS_INT8, "order of --cpu-activations");

enum { PATH_BYTES_MAX = 4352 }; /* a --model of 4,096 bytes fits, and a home with the demo's name */

/* The name that deploy/fetch-demo-model gives it. */
static const char demo_model[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

int startup_model_path(const struct config *config, char *ret_path, size_t room,
                       struct fault *fault)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char path[PATH_BYTES_MAX];
    int wanted;

    if (*config->model)
        wanted = snprintf(path, sizeof path, "%s", config->model);
    else if (cache &&
             cache[0] == '/') /* a relative one is to be ignored, says the XDG specification */
        wanted = snprintf(path, sizeof path, "%s/weft/%s", cache, demo_model);
    else
        wanted = snprintf(path, sizeof path, "%s/.cache/weft/%s", home ? home : "", demo_model);
    if (wanted < 0 || (size_t)wanted >= sizeof path || (size_t)wanted >= room)
        return fault_set(fault, E_TOO_LARGE, "The path of the model is too long");
    if (!*config->model && access(path, R_OK) < 0)
        return fault_field(fault, E_NOT_FOUND, "model",
                           "No model is given and the demo model is not at %s: use --model "
                           "FILE.gguf or FOLDER, or "
                           "fetch it with `make serve` (in a bundle ./fetch-demo-model, installed "
                           "weft-fetch-demo-model)",
                           path);
    memcpy(ret_path, path, (size_t)wanted + 1);
    return 0;
}

void startup_engine_options(const struct config *config, const char *path,
                            struct progress *progress, struct engine_options *ret_options)
{
    static const uint32_t streams[] = {0, 1, 2, 4}; /* by the option's word */

    *ret_options = (struct engine_options){
        .model_path = path,
        .random_shape = config->random_weights,
        .skip_tokenizer = config->skip_tokenizer,
        .device = (enum engine_device)config->device,
        .threads = config->threads,
        .max_batch = config->max_batch,
        .max_context = config->max_context,
        .kv_bytes = config->kv_bytes,
        .prefill_tokens = config->prefill_tokens,
        .loaded_tokens = config->loaded_tokens,
        .token_gap_ns = (uint64_t)(config->token_gap * 1e9),
        .cpu_activations =
            config->cpu_exact ? ACTIVATIONS_F32 : (enum cpu_activations)config->cpu_activations,
        .cuda = {.type = (enum cuda_type)config->gpu_type,
                 .memory_fraction = config->memory_fraction,
                 .streams = streams[config->streams],
                 .no_graphs = config->no_graphs,
                 .host_sampling = config->sync,
                 .sampling_stream = config->sampling_stream,
                 .prefill_lane = config->prefill_lane},
        .kv_pages = config->kv_pages,
        .null_step_us = config->null_step_us,
        .null_fail_step = config->null_fail_step,
        .progress = progress_engine(progress),
    };
}

int startup_source(const struct config *config, char *path, size_t room, const char **ret_path,
                   struct fault *fault)
{
    int r;

    if (*config->random_weights) {
        if (*config->model)
            return fault_field(fault, E_INVALID, "random_weights",
                               "--random-weights %.60s: a model is given too (--model %.200s); "
                               "take one of them",
                               config->random_weights, config->model);
        *ret_path = NULL;
        return 0;
    }
    r = startup_model_path(config, path, room, fault);
    if (r == 0)
        *ret_path = path;
    return r;
}

int startup_engine_open(const struct config *config, struct progress *progress,
                        struct engine **ret_engine, struct fault *fault)
{
    return startup_engine_open_traced(config, progress, (struct engine_trace){0}, ret_engine,
                                      fault);
}

int startup_engine_open_traced(const struct config *config, struct progress *progress,
                               struct engine_trace trace, struct engine **ret_engine,
                               struct fault *fault)
{
    struct engine_options options;
    char path[PATH_BYTES_MAX];
    const char *model_path;
    int r;

    r = startup_source(config, path, sizeof path, &model_path, fault);
    if (r < 0)
        return r;
    startup_engine_options(config, model_path, progress, &options);
    options.trace = trace;
    return engine_open(&options, ret_engine, fault);
}

int startup_check_generates(const struct engine *engine, struct fault *fault)
{
    if (!engine_limits(engine)->encoder)
        return 0;
    return fault_set(fault, E_UNSUPPORTED,
                     "%s is an encoder, which generates no text: `weft serve` answers "
                     "/v1/embeddings with it",
                     engine_model_name(engine));
}

int startup_template_open(const struct config *config, const struct gguf *file, const char *path,
                          struct chat_template **ret_template, struct fault *fault)
{
    if (!file && path)
        return chat_template_open_folder(path, config->chat_template, ret_template, fault);
    return chat_template_open_gguf(file, config->chat_template, ret_template, fault);
}
