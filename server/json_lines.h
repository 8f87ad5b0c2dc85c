/* json_lines.h -- a command that reads JSON objects from standard input, one a line, and answers
 * each with a line.
 *
 * A line that cannot be answered gives {"error":"..."} in its place and the next one is read, so
 * line N out is the answer to line N in. Each answer is flushed: the other side may be waiting for
 * it. */
#ifndef WEFT_JSON_LINES_H
#define WEFT_JSON_LINES_H

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "config/base/json.h"

/* Appends the answer, an object without a newline, or returns a fault. */
typedef int json_line_handler(void *data, const json_t *object, struct buf *answer,
                              struct fault *fault);

/* Until the end of the input. Returns 0, 1 when a line failed, or a fault when the streams did. */
int json_lines_run(json_line_handler *handler, void *data, struct fault *fault);
/* The same with a JSON string on each line. */
int json_lines_run_strings(json_line_handler *handler, void *data, struct fault *fault);

/* The same for a handler that reads the line itself. */
typedef int text_line_handler(void *data, const char *line, size_t bytes, struct buf *answer,
                              struct fault *fault);
int text_lines_run(text_line_handler *handler, void *data, struct fault *fault);

#endif
