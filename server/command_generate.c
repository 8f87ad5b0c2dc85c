/* command_generate.c -- `weft generate`: one prompt to the terminal, through the same scheduler as
 * the server.
 *
 *     main thread      sleeps on an eventfd, prints tokens as they come
 *     scheduler thread rings it (the bell) when there are events
 *     SIGINT           rings it too: the first cancels the answer, a second ends the process */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "engine/text/detok.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"
#include "scheduler/scheduler.h"
#include "server/commands.h"
#include "server/progress.h"
#include "server/startup.h"

enum { PROMPT_BYTES_MAX = 16 << 20, PIECES_BYTES_MAX = 1 << 20, EVENT_CAPACITY = 1024 };

struct answer {
    const struct config *config;
    struct engine *engine;
    const struct tokenizer *tokenizer;
    struct scheduler *scheduler;
    int wake_fd;
    struct detok detok;
    struct buf text; /* shown with the next write */
    char last_byte;
    struct event_finish finish;
    bool finished;
};

/* A signal handler can reach only statics. */
static volatile sig_atomic_t interrupted;
static int interrupt_fd;

static void wake(void *data)
{
    uint64_t one = 1;
    /* It can only fail when the counter is full, and then a wake is on its way. */
    ssize_t r = write(*(const int *)data, &one, sizeof one);

    (void)r;
}

static void on_interrupt(int number)
{
    int error = errno;

    (void)number;
    interrupted = 1;
    wake(&interrupt_fd);
    errno = error;
}

/* All of standard input. */
static int read_prompt(struct buf *prompt, struct fault *fault)
{
    char block[4096];

    if (isatty(STDIN_FILENO))
        fprintf(stderr, "Type the prompt and end it with Ctrl-D on a line of its own:\n");
    /* Never after the end: a terminal would be read again, and want a second Ctrl-D. */
    while (!feof(stdin) && !ferror(stdin))
        buf_put(prompt, block, fread(block, 1, sizeof block, stdin));
    if (ferror(stdin))
        return fault_errno(fault, "Cannot read the prompt from standard input");
    if (buf_failed(prompt))
        return fault_set(fault, E_TOO_LARGE, "The prompt has more than %d bytes", PROMPT_BYTES_MAX);
    return 0;
}

/* The conversation that the template is to render. NULL: there is no memory. */
static json_t *make_conversation(const struct config *config, const struct buf *prompt)
{
    json_t *messages = json_array();
    const char *texts[] = {config->system, buf_string(prompt)};
    static const char *const roles[] = {"system", "user"};
    json_t *input = json_object();

    if (json_object_set_new(input, "messages", messages) < 0 ||
        json_object_set_new(input, "add_generation_prompt", json_true()) < 0)
        goto failed;
    for (size_t i = 0; i < 2; i++) {
        json_t *message;

        if (!*texts[i] && i == 0)
            continue;
        message = json_object();
        if (json_array_append_new(messages, message) < 0 ||
            json_object_set_new(message, "role", json_string(roles[i])) < 0 ||
            json_object_set_new(message, "content", json_string(texts[i])) < 0)
            goto failed;
    }
    return input;
failed:
    json_decref(input);
    return NULL;
}

/* What the model is to continue: the prompt as it is, or as a conversation in the model's own form.
 */
static int render_prompt(const struct answer *answer, const struct buf *prompt,
                         struct buf *ret_text, struct fault *fault)
{
    const struct config *config = answer->config;
    struct chat_template *template_ = NULL;
    time_t seconds = time(NULL);
    json_t *input;
    struct tm now;
    int r;

    if (config->raw) {
        buf_put(ret_text, buf_string(prompt), prompt->bytes);
        return buf_failed(ret_text) ? fault_set(fault, E_MEMORY, "There is no memory left") : 0;
    }
    input = make_conversation(config, prompt);
    if (!input)
        return fault_set(fault, E_INVALID, "The prompt is not UTF-8, or there is no memory left");
    r = startup_template_open(config, engine_gguf(answer->engine),
                              engine_model_path(answer->engine), &template_, fault);
    if (r == 0 && !localtime_r(&seconds, &now))
        r = fault_errno(fault, "Cannot tell the time");
    if (r == 0)
        r = chat_template_render(template_, input, &now, ret_text, fault);
    if (r < 0 && fault->code == E_UNSUPPORTED)
        fault_prefix(fault, "No chat with this model (--raw continues a text)");
    json_decref(input);
    chat_template_close(template_);
    return r;
}

static int encode_prompt(const struct answer *answer, struct tokens *tokens, struct fault *fault)
{
    struct buf prompt, text;
    int r = 0;

    buf_init(&prompt, PROMPT_BYTES_MAX);
    buf_init(&text, 2 * PROMPT_BYTES_MAX);
    if (*answer->config->prompt)
        buf_text(&prompt, answer->config->prompt);
    else
        r = read_prompt(&prompt, fault);
    if (r == 0)
        r = render_prompt(answer, &prompt, &text, fault);
    /* A rendered conversation already has the special tokens that the model wants. */
    if (r == 0)
        r = tokenizer_encode(answer->tokenizer, buf_string(&text), text.bytes,
                             answer->config->raw ? ENCODE_ADD_SPECIAL : 0, tokens, fault);
    if (r == 0 && tokens->count == 0)
        r = fault_set(fault, E_INVALID, "The prompt is empty");
    buf_fini(&prompt);
    buf_fini(&text);
    return r;
}

static int choose_seed(const struct config *config, uint64_t *ret_seed, struct fault *fault)
{
    *ret_seed = config->seed;
    if (config->seed == 0 && getrandom(ret_seed, sizeof *ret_seed, 0) != sizeof *ret_seed)
        return fault_errno(fault, "Cannot get a random seed");
    return 0;
}

/* Moves to the scheduler; on a failure nothing is left behind. */
static int submit(struct answer *answer, const struct tokens *tokens, struct fault *fault)
{
    const struct config *config = answer->config;
    uint32_t context = engine_limits(answer->engine)->context;
    struct arena *arena = NULL;
    struct request *request;
    int32_t *ids;
    int r;

    if (tokens->count >= context)
        return fault_set(fault, E_CONTEXT,
                         "The prompt has %zu tokens, but the context holds %" PRIu32, tokens->count,
                         context);
    if (arena_open(4096 + tokens->count * sizeof *ids, SIZE_MAX / 2, &arena) < 0)
        return fault_set(fault, E_MEMORY, "There is no memory left for the prompt");
    request = arena_take(arena, 1, sizeof *request);
    ids = (int32_t *)(void *)arena_copy(arena, tokens->ids, tokens->count * sizeof *ids);
    if (!request || !ids || !(request->prompts = arena_take(arena, 1, sizeof *request->prompts))) {
        arena_close(arena);
        return fault_set(fault, E_MEMORY, "There is no memory left for the prompt");
    }
    request->arena = arena;
    request->exchange_id = 1;
    request->prompt_count = 1;
    request->prompts[0] = (struct request_prompt){.tokens = ids, .count = (uint32_t)tokens->count};
    request->choices = 1;
    request->max_tokens = context - (uint32_t)tokens->count;
    if (config->max_tokens < request->max_tokens)
        request->max_tokens = config->max_tokens;
    sampling_init(&request->sampling);
    request->sampling.temperature = (float)config->temperature;
    request->sampling.top_k = config->top_k;
    request->sampling.top_p = (float)config->top_p;
    request->sampling.min_p = (float)config->min_p;
    request->arrived_ns = clock_now();
    r = choose_seed(config, &request->sampling.seed, fault);
    if (r == 0 && scheduler_submit(answer->scheduler, request) < 0)
        r = fault_set(fault, E_FULL, "The scheduler takes no request");
    if (r < 0)
        request_free(request);
    return r;
}

static void show(struct answer *answer)
{
    if (answer->text.bytes == 0)
        return;
    fwrite(buf_string(&answer->text), 1, answer->text.bytes, stdout);
    answer->last_byte = answer->text.data[answer->text.bytes - 1];
    fflush(stdout);
    buf_reset(&answer->text);
}

static int take_events(struct answer *answer, struct fault *fault)
{
    struct event event;

    while (!answer->finished && scheduler_next(answer->scheduler, &event)) {
        switch (event.kind) {
        case EVENT_TOKEN:
            detok_feed(&answer->detok, event.token.token, &answer->text);
            break;
        case EVENT_FINISH:
            detok_flush(&answer->detok, &answer->text);
            answer->finish = event.finish;
            answer->finished = true;
            break;
        case EVENT_FAILURE:
            show(answer);
            return fault_set(fault, event.failure.code, "%s",
                             event.failure.code == E_DEVICE ? event.failure.message
                                                            : "The scheduler gave up the answer");
        default:
            break;
        }
    }
    show(answer);
    if (ferror(stdout))
        return fault_errno(fault, "Cannot write to standard output");
    return 0;
}

static int follow(struct answer *answer, struct fault *fault)
{
    bool cancelled = false;

    while (!answer->finished) {
        uint64_t rings;
        int r;

        if (read(answer->wake_fd, &rings, sizeof rings) < 0 && errno != EINTR)
            return fault_errno(fault, "Cannot wait for the answer");
        if (interrupted && !cancelled)
            cancelled = scheduler_cancel(answer->scheduler, 1, CHOICE_ALL) == 0;
        r = take_events(answer, fault);
        if (r < 0)
            return r;
    }
    return 0;
}

static void print_summary(const struct answer *answer)
{
    static const char *const reasons[] = {[FINISH_STOP] = "it ended",
                                          [FINISH_LENGTH] =
                                              "--max-tokens or the context is used up",
                                          [FINISH_CANCELLED] = "interrupted"};
    const struct event_finish *finish = &answer->finish;
    double prefill = clock_seconds(finish->prefill_ns), decode = clock_seconds(finish->decode_ns);

    if (answer->last_byte != '\n')
        putchar('\n');
    fflush(stdout);
    /* The first token comes out of the prefill; decoding made the others. */
    fprintf(stderr,
            "%" PRIu32 " prompt tokens in %.2f s (%.1f tokens/s), %" PRIu32
            " generated in %.2f s (%.1f tokens/s): %s\n",
            finish->prompt_tokens, prefill, prefill > 0 ? finish->prompt_tokens / prefill : 0,
            finish->generated_tokens, decode,
            decode > 0 && finish->generated_tokens > 1 ? (finish->generated_tokens - 1) / decode
                                                       : 0,
            reasons[finish->reason]);
}

static int generate(struct answer *answer, struct fault *fault)
{
    const struct scheduler_options options = {
        .queue_length_max = 1,
        .event_capacity = EVENT_CAPACITY,
        .prefills_max = 1,
        .bell = wake,
        .bell_data = &answer->wake_fd,
    };
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct tokens tokens;
    int r;

    tokens_init(&tokens, PROMPT_BYTES_MAX);
    r = encode_prompt(answer, &tokens, fault);
    if (r == 0)
        r = scheduler_open(answer->engine, &options, &answer->scheduler, fault);
    if (r == 0) {
        interrupt_fd = answer->wake_fd;
        sigaction(SIGINT, &action, NULL);
        r = submit(answer, &tokens, fault);
    }
    tokens_fini(&tokens);
    if (r == 0)
        r = follow(answer, fault);
    if (r == 0)
        print_summary(answer);
    scheduler_close(answer->scheduler);
    signal(SIGINT, SIG_DFL);
    return r == 0 && interrupted ? EXIT_INTERRUPTED : r;
}

int command_generate(const struct config *config, struct fault *fault)
{
    struct config one = *config;
    struct answer answer = {.config = config, .last_byte = '\n'};
    struct progress progress;
    int r;

    one.max_batch = 1;
    one.token_gap = 0; /* nobody is beside it */
    buf_init(&answer.text, PIECES_BYTES_MAX);
    progress_init(&progress, false);
    answer.wake_fd = eventfd(0, EFD_CLOEXEC);
    if (answer.wake_fd < 0)
        return fault_errno(fault, "Cannot make an eventfd");
    r = startup_engine_open(&one, &progress, &answer.engine, fault);
    if (r == 0)
        r = startup_check_generates(answer.engine, fault);
    if (r == 0)
        r = engine_tokenizer(answer.engine, &answer.tokenizer, fault);
    if (r == 0) {
        progress_memory(&progress, answer.engine);
        detok_init(&answer.detok, answer.tokenizer, true);
        r = generate(&answer, fault);
    }
    engine_close(answer.engine);
    close(answer.wake_fd);
    buf_fini(&answer.text);
    return r;
}
