/* json_lines.c -- see json_lines.h. */
#include "server/json_lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES_MAX = 64 << 20, ANSWER_BYTES_MAX = 512 << 20 };

/* One line without its newline. A line that is too long is read to its end and `line` has failed.
 * Returns false at the end of the input. */
static bool read_line(FILE *stream, struct buf *line)
{
    int byte;
    bool any = false;

    buf_reset(line);
    while ((byte = getc_unlocked(stream)) != EOF) {
        any = true;
        if (byte == '\n')
            break;
        buf_byte(line, (char)byte);
    }
    return any;
}

struct json_job {
    json_type type; /* of a line */
    json_line_handler *handler;
    void *data;
};

static int answer_json(void *data, const char *line, size_t bytes, struct buf *answer,
                       struct fault *fault)
{
    const struct json_job *job = data;
    json_t *object = NULL;
    int r = json_parse_with_nul(line, bytes, &object, fault);

    if (r < 0)
        return r;
    if (json_typeof(object) != job->type)
        r = fault_set(fault, E_INVALID, "The line is not a JSON %s",
                      job->type == JSON_OBJECT ? "object" : "string");
    else
        r = job->handler(job->data, object, answer, fault);
    json_decref(object);
    return r;
}

static int answer_line(text_line_handler *handler, void *data, const struct buf *line,
                       struct buf *answer, struct fault *fault)
{
    int r;

    if (buf_failed(line))
        return fault_set(fault, E_TOO_LARGE, "The line has more than %d bytes", LINE_BYTES_MAX);
    r = handler(data, buf_string(line), line->bytes, answer, fault);
    if (r == 0 && buf_failed(answer))
        r = fault_set(fault, E_TOO_LARGE, "The answer has more than %d bytes", ANSWER_BYTES_MAX);
    return r;
}

int json_lines_run(json_line_handler *handler, void *data, struct fault *fault)
{
    return text_lines_run(answer_json, &(struct json_job){JSON_OBJECT, handler, data}, fault);
}

int json_lines_run_strings(json_line_handler *handler, void *data, struct fault *fault)
{
    return text_lines_run(answer_json, &(struct json_job){JSON_STRING, handler, data}, fault);
}

int text_lines_run(text_line_handler *handler, void *data, struct fault *fault)
{
    struct buf line, answer;
    int r = 0;

    buf_init(&line, LINE_BYTES_MAX);
    buf_init(&answer, ANSWER_BYTES_MAX);
    while (read_line(stdin, &line)) {
        struct fault line_fault = {0};

        buf_reset(&answer);
        if (answer_line(handler, data, &line, &answer, &line_fault) < 0) {
            r = 1;
            buf_reset(&answer);
            buf_text(&answer, "{\"error\":");
            buf_json_string(&answer, line_fault.message, strlen(line_fault.message));
            buf_byte(&answer, '}');
        }
        buf_byte(&answer, '\n');
        if (fwrite(buf_string(&answer), 1, answer.bytes, stdout) < answer.bytes ||
            fflush(stdout) != 0) {
            r = fault_errno(fault, "Cannot write to standard output");
            goto out;
        }
    }
    if (ferror(stdin))
        r = fault_errno(fault, "Cannot read standard input");
out:
    buf_fini(&line);
    buf_fini(&answer);
    return r;
}
