/* progress.h -- long work shows itself: one bar on a terminal, plain lines otherwise, log lines in
 * a server.
 *
 *     loading weights  [###########---------]  57%   55 MB of 98 MB      terminal, redrawn in place
 *     loading weights  98 MB  0.21 s                                     a phase that has ended
 *
 * Writes to standard error. Belongs to the thread that starts the process. */
#ifndef WEFT_PROGRESS_H
#define WEFT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

enum progress_form {
    PROGRESS_BAR,   /* a terminal */
    PROGRESS_LINES, /* one line at the end of each phase */
    PROGRESS_LOG,   /* the same as events of the log: phase=... seconds=... */
};

struct progress {
    enum progress_form form;
    bool drawn; /* a bar stands on the terminal's last line */
    uint64_t started_ns;
};

/* Chooses the form: `log` is for servers, whose standard error is a log unless it is a terminal. */
void progress_init(struct progress *progress, bool log);
/* What engine_open() wants; `progress` must outlive the call. */
struct engine_progress progress_engine(struct progress *progress);
/* A phase of the caller's own that has ended. */
void progress_phase(struct progress *progress, const char *phase, double seconds);
/* Why it is the CPU that computes, what memory each part took, and the whole time since
 * progress_init(). */
void progress_memory(struct progress *progress, const struct engine *engine);
/* "98.2 MB"; at most 16 bytes with the NUL. */
void progress_bytes_print(uint64_t bytes, char *ret_text, uint32_t room);

#endif
