/* command_serve.c -- `weft serve`: boot and shutdown order, nothing else.
 *
 *     bind the port | load the model | tokenizer, template, vocabulary | loop | scheduler |
 *     prepare | listen | HTTP | ready
 *
 * What is opened first is closed last, but for HTTP, which closes before the scheduler: no client
 * may wait for a thread that is gone. Runs on the main thread, which becomes the loop thread. */
#include "server/commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "engine/gguf.h"
#include "server/exchange.h"
#include "server/listener.h"
#include "server/notify.h"
#include "server/server.h"
#include "server/startup.h"

enum {
    PREPARE_JOBS_MAX = 1024,
    PREPARE_THREADS = 2,
    BODIES_MAX = 16,          /* largest bodies held at once, all clients together */
    DESCRIPTORS_OF_OURS = 64, /* beside one for each connection: files, epoll, libraries */
    EVENTS_MIN = 4096,
    MODEL_ID_BYTES_MAX = 256,
    CLOSE_SECONDS_MAX = 5, /* after a failure of the device */
};

struct serve {
    struct server server;
    struct progress progress;
    struct listener listener;
    struct engine *engine;
    const struct tokenizer *tokenizer; /* the engine's; NULL: token ids only */
    struct chat_template *chat_template;
    uint64_t started_ns;
    char model_id[MODEL_ID_BYTES_MAX + 1];
    struct fault pooling_fault; /* why there are no embeddings */
};

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

/* --served-model-name, else the file's own name without its ending, or the folder's: what the user
 * typed, and unlike general.name it tells one quantization from another. Random weights have their
 * shape's name. */
static void name_model(struct serve *serve, const struct config *config)
{
    const char *path = engine_model_path(serve->engine);
    const char *text = path ? path : engine_model_name(serve->engine);
    const char *base = strrchr(text, '/') ? strrchr(text, '/') + 1 : text;
    const char *ending = engine_gguf(serve->engine) ? strrchr(base, '.') : NULL;
    struct gguf_string name = {base,
                               ending && ending != base ? (size_t)(ending - base) : strlen(base)};

    if (*config->served_model_name)
        name = (struct gguf_string){config->served_model_name, strlen(config->served_model_name)};
    gguf_string_print(name, serve->model_id, sizeof serve->model_id);
}

/* How the model writes calls and reasoning: --tool-parser, or what its template shows. An explicit
 * choice holds for every chat answer. */
static int choose_format(struct serve *serve, const struct config *config, struct fault *fault)
{
    struct openai_context *openai = &serve->server.openai;
    size_t bytes = 0;
    const char *text = chat_template_source(serve->chat_template, true, &bytes);
    int r = 0;

    if (strcmp(config->tool_parser, "none") == 0)
        return 0;
    if (strcmp(config->tool_parser, "auto") != 0) {
        openai->parse_always = true;
        r = tool_format_named(config->tool_parser, &openai->tool_format, fault);
    } else if (text) {
        openai->tool_format = tool_format_choose(text, bytes, &openai->parse_always);
    }
    if (openai->tool_format && text)
        openai->may_reason = tool_format_reasons(openai->tool_format, text, bytes);
    return r;
}

/* As Transformers does. */
static void warn_of_ignored(const struct engine *engine)
{
    const char *first;
    uint32_t count = engine_ignored(engine, &first);

    if (count > 0)
        log_event(LOG_WARN, "tensors_ignored", LOG_INT("count", count), LOG_STR("first", first),
                  LOG_STR("reason", "the architecture has no use for them"));
}

static int load_model(struct serve *serve, const struct config *config, struct fault *fault)
{
    uint64_t before_ns;
    int r = startup_engine_open(config, &serve->progress, &serve->engine, fault);

    if (r < 0)
        return r;
    warn_of_ignored(serve->engine);
    before_ns = clock_now();
    r = engine_tokenizer(serve->engine, &serve->tokenizer, fault);
    if (r < 0)
        log_event(LOG_WARN, "no_tokenizer", LOG_STR("reason", fault->message),
                  LOG_STR("served", "token ids"));
    r = startup_template_open(config, engine_gguf(serve->engine), engine_model_path(serve->engine),
                              &serve->chat_template, fault);
    if (r < 0)
        return r;
    progress_phase(&serve->progress, "reading chat template",
                   clock_seconds(clock_now() - before_ns));
    progress_memory(&serve->progress, serve->engine);
    name_model(serve, config);
    return 0;
}

/* What answers can be held to needs the vocabulary as a tree. */
static int open_constraints(struct serve *serve, const struct config *config, struct fault *fault)
{
    struct openai_context *openai = &serve->server.openai;
    struct constraints_options options = {.tokenizer = serve->tokenizer,
                                          .format = openai->tool_format,
                                          .bytes_max = config->constraint_bytes};
    uint64_t before_ns = clock_now();
    int r;

    if (!serve->tokenizer)
        return 0;
    r = constraints_open(&options, &openai->constraints, fault);
    progress_phase(&serve->progress, "ordering vocabulary", clock_seconds(clock_now() - before_ns));
    return r;
}

/* --generation-config: what the makers say of drawing tokens becomes the requests' defaults, and
 * the log tells. */
static const struct generation_config *choose_defaults(const struct engine *engine,
                                                       const struct config *config)
{
    const struct generation_config *file = engine_generation_config(engine);
    const struct log_field values[] = {
        LOG_REAL("temperature", file->temperature),
        LOG_REAL("top_p", file->top_p),
        LOG_REAL("min_p", file->min_p),
        LOG_REAL("typical_p", file->typical_p),
        LOG_REAL("repetition_penalty", file->repetition_penalty),
        LOG_REAL("top_k", file->top_k >= 0 ? (double)file->top_k : NAN),
        LOG_REAL("max_tokens", file->max_new_tokens >= 0 ? (double)file->max_new_tokens : NAN)};
    struct log_field said[sizeof values / sizeof *values + 1];
    size_t count = 0;

    if (config->generation_config == CONFIG_GENERATION_NONE)
        return NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!isnan(values[i].real))
            said[count++] = values[i];
    said[count].key = NULL;
    if (count > 0)
        log_write(LOG_INFO, "generation_config", said);
    return file;
}

/* --pooling, or what the model's makers say. */
static void choose_pooling(struct serve *serve, const struct config *config)
{
    static const enum pooling modes[] = {[CONFIG_POOLING_LAST] = POOLING_LAST,
                                         [CONFIG_POOLING_MEAN] = POOLING_MEAN,
                                         [CONFIG_POOLING_CLS] = POOLING_CLS};
    struct openai_context *openai = &serve->server.openai;

    openai->encoder = engine_limits(serve->engine)->encoder;
    openai->vector_width = engine_limits(serve->engine)->vector_width;
    if (openai->vector_width == 0) {
        openai->no_vectors = "This model gives no embeddings on this device";
    } else if (config->pooling != CONFIG_POOLING_AUTO) {
        openai->pooling = modes[config->pooling];
    } else if (engine_pooling(serve->engine, &openai->pooling, &serve->pooling_fault) < 0) {
        openai->vector_width = 0;
        openai->no_vectors = serve->pooling_fault.message;
    }
}

static int fill_options(struct serve *serve, const struct config *config, struct fault *fault)
{
    const struct engine_limits *limits = engine_limits(serve->engine);
    int r;

    serve->server.options = (struct server_options){
        .body_bytes_max = config->max_body_bytes,
        .bodies_bytes_max = config->max_body_bytes * BODIES_MAX,
        .stream_buffer_bytes_max = config->stream_buffer_bytes,
        .sse_keepalive_ns = nanoseconds(config->sse_keepalive),
        .drain_delay_ns = nanoseconds(config->drain_delay),
        .drain_timeout_ns = nanoseconds(config->drain_timeout),
        .strict_content_type = config->strict_content_type,
    };
    serve->server.openai = (struct openai_context){
        .tokenizer = serve->tokenizer,
        .chat_template = serve->chat_template,
        .model_id = serve->model_id,
        .context = limits->context,
        .vocabulary = limits->vocabulary,
        .generation = choose_defaults(serve->engine, config),
        .created = clock_wall_seconds(),
        .choices_max = config->max_choices,
        .strict_max_tokens = config->strict_max_tokens,
    };
    choose_pooling(serve, config);
    r = choose_format(serve, config, fault);
    return r < 0 ? r : open_constraints(serve, config, fault);
}

static int start_threads(struct serve *serve, const struct config *config, struct fault *fault)
{
    struct server *server = &serve->server;
    struct loop_hooks hooks = server_hooks(server);
    struct scheduler_options scheduling = {
        .queue_length_max = config->max_queue,
        .event_capacity = config->max_batch * 4 > EVENTS_MIN ? config->max_batch * 4 : EVENTS_MIN,
        .prefills_max = config->max_prefills,
        .bell = loop_ring,
    };
    struct prepare_options preparing = {
        .threads = config->prepare_threads ? config->prepare_threads : PREPARE_THREADS,
        .jobs_max = PREPARE_JOBS_MAX,
        .context = &server->openai,
        .bell = loop_ring,
    };
    int r = loop_open(&hooks, &server->loop, fault);

    if (r < 0)
        return r;
    scheduling.bell_data = server->loop;
    preparing.bell_data = server->loop;
    if (metrics_open(serve->model_id, engine_device_name(serve->engine),
                     engine_limits(serve->engine)->page_tokens, &server->metrics) < 0)
        return fault_set(fault, E_MEMORY, "no memory for the metrics");
    r = scheduler_open(serve->engine, &scheduling, &server->scheduler, fault);
    if (r < 0)
        return r;
    return prepare_open(&preparing, &server->prepare, fault);
}

/* One descriptor for each connection: raises the limit as far as it goes. Returns how many
 * connections fit. */
static uint32_t connections_that_fit(uint32_t wanted)
{
    struct rlimit limit;
    uint64_t needed = (uint64_t)wanted + DESCRIPTORS_OF_OURS;
    uint32_t fit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= needed)
        return wanted;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= needed)
        return wanted;
    fit = limit.rlim_cur > 2 * DESCRIPTORS_OF_OURS
              ? (uint32_t)(limit.rlim_cur - DESCRIPTORS_OF_OURS)
              : DESCRIPTORS_OF_OURS;
    log_event(LOG_WARN, "connections_lowered", LOG_INT("wanted", wanted),
              LOG_INT("connections", fit), LOG_INT("descriptors", limit.rlim_cur));
    return fit;
}

static int open_doors(struct serve *serve, const struct config *config, struct fault *fault)
{
    struct server *server = &serve->server;
    struct http_options options = {
        .connections_max = connections_that_fit(config->max_connections),
        .idle_timeout_seconds = (uint32_t)(config->idle_timeout + 0.999),
        .header_timeout_ns = nanoseconds(config->header_timeout),
    };
    /* An exchange outlives its connection until its sequences have ended. */
    int r = exchanges_open(
        server, options.connections_max + config->max_queue + config->max_batch + PREPARE_JOBS_MAX,
        &server->exchanges, fault);

    if (r < 0)
        return r;
    r = listener_listen(&serve->listener, fault);
    if (r < 0)
        return r;
    options.listen_fd = listener_take(&serve->listener);
    options.hooks = exchanges_hooks(server->exchanges);
    return http_open(server->loop, &options, &server->http, fault);
}

/* In the log, for a supervisor, and for a person: with a line that works when pasted. */
static void announce(const struct serve *serve)
{
    const struct openai_context *openai = &serve->server.openai;
    bool chat = serve->tokenizer && !openai->encoder &&
                chat_template_check(serve->chat_template, NULL) == 0;
    const char *path = chat ? "chat/completions" : openai->encoder ? "embeddings" : "completions";
    const char *more = openai->encoder ? "" : ",\"max_tokens\":64,\"stream\":true";
    const char *body = "\"prompt\":\"A loom is\"";

    log_event(LOG_INFO, "ready", LOG_STR("address", serve->listener.address),
              LOG_STR("model", serve->model_id),
              LOG_STR("device", engine_device_name(serve->engine)),
              LOG_INT("context", openai->context),
              LOG_REAL("seconds", clock_seconds(clock_now() - serve->started_ns)));
    if (openai->encoder)
        body = serve->tokenizer ? "\"input\":\"A loom is\"" : "\"input\":[1,2,3]";
    else if (!serve->tokenizer)
        body = "\"prompt\":[1,2,3],\"return_token_ids\":true";
    else if (chat)
        body = "\"messages\":[{\"role\":\"user\",\"content\":\"What is a loom?\"}]";
    (void)printf("Ready: %s on http://%s\nTry:\n  curl -N http://%s/v1/%s "
                 "-H 'Content-Type: application/json' -d '{%s%s}'\n",
                 serve->model_id, serve->listener.reachable, serve->listener.reachable, path, body,
                 more);
    (void)fflush(stdout);
    notify_supervisor("READY=1");
}

/* A device that failed may keep its driver waiting for ever when its memory is given back; the
 * process then ends by the alarm, and its supervisor starts another. */
static void serve_close(struct serve *serve)
{
    if (serve->server.exit_code != 0)
        (void)alarm(CLOSE_SECONDS_MAX);
    http_close(serve->server.http);
    scheduler_close(serve->server.scheduler);
    prepare_close(serve->server.prepare);
    exchanges_close(serve->server.exchanges);
    metrics_close(serve->server.metrics);
    loop_close(serve->server.loop);
    constraints_close(serve->server.openai.constraints);
    chat_template_close(serve->chat_template);
    engine_close(serve->engine);
    listener_fini(&serve->listener);
}

int command_serve(const struct config *config, struct fault *fault)
{
    struct serve serve = {.listener.fd = -1, .started_ns = clock_now()};
    int r;

    log_setup((enum log_level)config->log_level, (enum log_format)config->log_format);
    progress_init(&serve.progress, true);
    r = listener_init(config->host, (uint16_t)config->port, &serve.listener, fault);
    if (r < 0)
        goto out;
    r = load_model(&serve, config, fault);
    if (r < 0)
        goto out;
    r = fill_options(&serve, config, fault);
    if (r < 0)
        goto out;
    r = start_threads(&serve, config, fault);
    if (r < 0)
        goto out;
    r = open_doors(&serve, config, fault);
    if (r < 0)
        goto out;
    announce(&serve);
    loop_run(serve.server.loop);
    r = serve.server.exit_code;
out:
    serve_close(&serve);
    if (r >= 0)
        log_event(LOG_INFO, "stopped", LOG_INT("exit_code", r));
    return r;
}
