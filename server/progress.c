/* progress.c -- see progress.h. */
#include "server/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"

enum { BAR_CELLS = 20, BYTES_TEXT_ROOM = 24 };

/* Totals below this are counts of something (layers, threads), not bytes. */
enum { BYTES_LEAST = 4096 };

void progress_init(struct progress *progress, bool log)
{
    *progress = (struct progress){.form = PROGRESS_LINES, .started_ns = clock_now()};
    if (isatty(STDERR_FILENO))
        progress->form = PROGRESS_BAR;
    else if (log)
        progress->form = PROGRESS_LOG;
}

void progress_bytes_print(uint64_t bytes, char *ret_text, uint32_t room)
{
    static const char *const units[] = {"bytes", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1000 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    snprintf(ret_text, room, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

static void print_amount(uint64_t amount, uint64_t total, char text[static BYTES_TEXT_ROOM])
{
    if (total >= BYTES_LEAST)
        progress_bytes_print(amount, text, BYTES_TEXT_ROOM);
    else
        snprintf(text, BYTES_TEXT_ROOM, "%lu", (unsigned long)amount);
}

static void draw(struct progress *progress, const char *phase, uint64_t done, uint64_t total)
{
    char bar[BAR_CELLS + 1], done_text[BYTES_TEXT_ROOM], total_text[BYTES_TEXT_ROOM];
    double share = total > 0 ? (double)done / (double)total : 0;
    int cells = (int)(share * BAR_CELLS);

    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < cells ? '#' : '-';
    bar[BAR_CELLS] = '\0';
    print_amount(done, total, done_text);
    print_amount(total, total, total_text);
    /* \r and "erase to the end of the line": the bar stays in place. */
    fprintf(stderr, "\r%-20s [%s] %3.0f%%  %s of %s\033[K", phase, bar, share * 100, done_text,
            total_text);
    fflush(stderr);
    progress->drawn = true;
}

static void end_phase(struct progress *progress, const char *phase, uint64_t total, double seconds)
{
    char amount[BYTES_TEXT_ROOM] = "";

    if (progress->form == PROGRESS_LOG) {
        log_event(LOG_INFO, "startup", LOG_STR("phase", phase),
                  LOG_REAL("seconds", round(seconds * 1e3) / 1e3));
        return;
    }
    if (total > 1)
        print_amount(total, total, amount);
    fprintf(stderr, "%s%-20s %10s  %6.2f s%s\n", progress->drawn ? "\r" : "", phase, amount,
            seconds, progress->drawn ? "\033[K" : "");
    progress->drawn = false;
}

static void report(void *data, const char *phase, uint64_t done, uint64_t total, double seconds)
{
    struct progress *progress = data;

    if (done >= total)
        end_phase(progress, phase, total, seconds);
    else if (progress->form == PROGRESS_BAR)
        draw(progress, phase, done, total);
}

struct engine_progress progress_engine(struct progress *progress)
{
    return (struct engine_progress){.report = progress ? report : NULL, .data = progress};
}

void progress_phase(struct progress *progress, const char *phase, double seconds)
{
    end_phase(progress, phase, 0, seconds);
}

static void tell_device(const struct progress *progress, const struct engine *engine)
{
    const char *note = engine_device_note(engine);

    if (!*note)
        return;
    if (progress->form == PROGRESS_LOG)
        log_event(LOG_INFO, "computing_on_cpu", LOG_STR("reason", note));
    else
        fprintf(stderr, "computing on the CPU: %s\n", note);
}

void progress_memory(struct progress *progress, const struct engine *engine)
{
    const struct engine_memory *memory = engine_memory(engine);
    const struct engine_limits *limits = engine_limits(engine);
    double seconds = clock_seconds(clock_now() - progress->started_ns);
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {{"weights", memory->weights},
                 {"kv cache", memory->kv_cache},
                 {"activations", memory->activations},
                 {"request table", memory->request_table}};

    tell_device(progress, engine);
    if (progress->form == PROGRESS_LOG) {
        log_event(LOG_INFO, "memory", LOG_INT("weights_bytes", memory->weights),
                  LOG_INT("kv_cache_bytes", memory->kv_cache),
                  LOG_INT("activations_bytes", memory->activations),
                  LOG_INT("request_table_bytes", memory->request_table),
                  LOG_INT("available_bytes", memory->available),
                  LOG_INT("kv_pages", limits->page_count),
                  LOG_INT("prefill_tokens", limits->batch.prefill_tokens),
                  LOG_INT("loaded_tokens", limits->loaded_tokens),
                  LOG_INT("kv_tokens", (uint64_t)limits->page_count * limits->page_tokens));
        return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char text[BYTES_TEXT_ROOM];

        progress_bytes_print(parts[i].bytes, text, sizeof text);
        fprintf(stderr, "%-20s %10s", parts[i].name, text);
        if (i == 1)
            fprintf(stderr, "  (%llu tokens in %lu pages)",
                    (unsigned long long)limits->page_count * limits->page_tokens,
                    (unsigned long)limits->page_count);
        fputc('\n', stderr);
    }
    fprintf(stderr, "%-20s %10s  %6.2f s  %s\n", "ready", "", seconds, engine_device_name(engine));
}
