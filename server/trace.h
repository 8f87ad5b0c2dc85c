/* trace.h -- what the engine did when, as a file that Perfetto (ui.perfetto.dev) and Chrome show.
 *
 *     host    | submit 7 | complete 6 [ wait ] | submit 8 | ...
 *     copies       | changes 7 |
 *     lane 0  | decode 6            | decode 7              | ...
 *
 * Spans are kept in memory and written at the end, as writing while measuring would be measured
 * too; beyond TRACE_SPANS_MAX they are only counted. The format is the JSON of Google's "Trace
 * Event Format": complete events ("ph": "X") in order of time, microseconds, a track a thread.
 *
 * Belongs to the thread that calls the engine. */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include "config/base/fault.h"
#include "engine/engine.h"

enum { TRACE_SPANS_MAX = 1 << 18 };

struct trace;

/* Creates the file at once, so that a wrong path shows before the work. */
int trace_open(const char *path, struct trace **ret_trace, struct fault *fault);
void trace_close(struct trace *trace); /* NULL is fine; the file is as it was written */
/* What engine_open() wants; the trace must outlive the engine's steps. */
struct engine_trace trace_engine(struct trace *trace);
/* Writes all spans so far, `title` above the tracks. Once. *ret_left_out: how many did not fit. */
int trace_write(struct trace *trace, const char *title, uint64_t *ret_left_out,
                struct fault *fault);

#endif
