/* command_parse.c -- `weft parse`: JSON lines through a tool parser, as a server would read a
 * model's text.
 *
 *     {"raw":"...","splits":[5,9],"starts_in_reasoning":false}
 *       -> {"content":...,"reasoning_content":...,"tool_calls":[{"name":...,"arguments":...}],
 *           "finish_reason":...}
 *
 * The text is fed in the pieces that end at the byte offsets of `splits`; it may end with the
 * token that ended the turn. Reads no model. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/commands.h"
#include "server/json_lines.h"
#include "server/tools.h"

enum { TOOLS_BYTES_MAX = 16 << 20, PART_BYTES_MAX = 256 << 20 };

struct job {
    const struct tool_format *format;
    json_t *tools;
};

/* What the deltas amount to. */
struct gathered {
    struct buf content;
    struct buf reasoning;
    struct buf calls; /* whole ones, as JSON */
    struct buf call;  /* the one that is being told */
    struct buf arguments;
};

static void gather(void *data, const struct tool_delta *delta)
{
    struct gathered *all = data;

    switch (delta->kind) {
    case TOOL_CONTENT:
        buf_put(&all->content, delta->text, delta->bytes);
        break;
    case TOOL_REASONING:
        buf_put(&all->reasoning, delta->text, delta->bytes);
        break;
    case TOOL_BEGIN:
        buf_reset(&all->call);
        buf_reset(&all->arguments);
        buf_json_string(&all->call, delta->text, delta->bytes);
        break;
    case TOOL_ARGUMENTS:
        buf_put(&all->arguments, delta->text, delta->bytes);
        break;
    case TOOL_END:
        buf_text(&all->calls, all->calls.bytes > 0 ? ",{\"name\":" : "{\"name\":");
        buf_put(&all->calls, buf_string(&all->call), all->call.bytes);
        buf_text(&all->calls, ",\"arguments\":");
        buf_put(&all->calls, buf_string(&all->arguments), all->arguments.bytes);
        buf_byte(&all->calls, '}');
        break;
    case TOOL_BROKEN:
        break;
    }
}

static void put_part(const char *name, const struct buf *part, struct buf *answer)
{
    buf_format(answer, "\"%s\":", name);
    if (part->bytes > 0)
        buf_json_string(answer, part->data, part->bytes);
    else
        buf_text(answer, "null");
}

static void put_answer(const struct gathered *all, bool cut, struct buf *answer)
{
    const char *reason = cut ? "length" : all->calls.bytes > 0 ? "tool_calls" : "stop";

    buf_byte(answer, '{');
    put_part("content", &all->content, answer);
    buf_byte(answer, ',');
    put_part("reasoning_content", &all->reasoning, answer);
    buf_text(answer, ",\"tool_calls\":[");
    buf_put(answer, buf_string(&all->calls), all->calls.bytes);
    buf_format(answer, "],\"finish_reason\":\"%s\"}", reason);
}

static int feed_pieces(struct tool_parser *parser, const char *raw, size_t bytes,
                       const json_t *splits, struct gathered *all, struct fault *fault)
{
    size_t from = 0;

    for (size_t i = 0; i <= json_array_size(splits); i++) {
        int64_t end = (int64_t)bytes;

        if (i < json_array_size(splits) && !json_integral(json_array_get(splits, i), &end))
            return fault_field(fault, E_INVALID, "splits", "'splits[%zu]' must be an integer", i);
        if (end < (int64_t)from || end > (int64_t)bytes)
            return fault_field(fault, E_INVALID, "splits",
                               "'splits[%zu]' must be between %zu and %zu, not %" PRId64, i, from,
                               bytes, end);
        tool_parser_feed(parser, raw + from, (size_t)end - from, gather, all);
        from = (size_t)end;
    }
    tool_parser_finish(parser, gather, all);
    return 0;
}

static int parse_text(const struct job *job, const char *raw, size_t bytes, const json_t *splits,
                      bool reasoning, struct buf *answer, struct fault *fault)
{
    const struct tool_options options = {
        .calls = true, .starts_in_reasoning = reasoning, .ends_given = true, .tools = job->tools};
    struct tool_parser *parser = NULL;
    struct gathered all;
    int r = tool_parser_open(job->format, &options, &parser, fault);

    if (r < 0)
        return r;
    buf_init(&all.content, PART_BYTES_MAX);
    buf_init(&all.reasoning, PART_BYTES_MAX);
    buf_init(&all.calls, PART_BYTES_MAX);
    buf_init(&all.call, PART_BYTES_MAX);
    buf_init(&all.arguments, PART_BYTES_MAX);
    r = feed_pieces(parser, raw, bytes, splits, &all, fault);
    if (r == 0 && (tool_parser_failed(parser) || buf_failed(&all.content) ||
                   buf_failed(&all.reasoning) || buf_failed(&all.calls) || buf_failed(&all.call)))
        r = fault_set(fault, E_MEMORY, "Out of memory");
    if (r == 0)
        put_answer(&all, tool_parser_cut(parser), answer);
    buf_fini(&all.content);
    buf_fini(&all.reasoning);
    buf_fini(&all.calls);
    buf_fini(&all.call);
    buf_fini(&all.arguments);
    tool_parser_close(parser);
    return r;
}

static int parse_line(void *data, const json_t *object, struct buf *answer, struct fault *fault)
{
    const struct job *job = data;
    const char *raw = NULL;
    json_t *splits = NULL;
    bool reasoning = false;
    size_t bytes = 0;
    int r = json_get_string(object, "", "raw", &raw, &bytes, fault);

    if (r == 0)
        return fault_field(fault, E_INVALID, "raw", "'raw' is missing");
    if (r < 0 || (r = json_get_array(object, "", "splits", &splits, fault)) < 0 ||
        (r = json_get_bool(object, "", "starts_in_reasoning", &reasoning, fault)) < 0)
        return r;
    return parse_text(job, raw, bytes, splits, reasoning, answer, fault);
}

/* The request's tools: an array, or an object that has it as "tools". */
static int read_tools(const char *path, json_t **ret_tools, struct fault *fault)
{
    json_t *value = NULL, *tools;
    FILE *file = fopen(path, "rb");
    struct buf text;
    char piece[4096];
    size_t bytes;
    int r = 0;

    if (!file)
        return fault_errno(fault, "Cannot open %s", path);
    buf_init(&text, TOOLS_BYTES_MAX);
    while ((bytes = fread(piece, 1, sizeof piece, file)) > 0)
        buf_put(&text, piece, bytes);
    if (ferror(file))
        r = fault_errno(fault, "Cannot read %s", path);
    else if (buf_failed(&text))
        r = fault_set(fault, E_TOO_LARGE, "%s has more than %d bytes", path, TOOLS_BYTES_MAX);
    else if ((r = json_parse(buf_string(&text), text.bytes, &value, fault)) < 0)
        r = fault_prefix(fault, "%s", path);
    if (r == 0) {
        tools = json_is_object(value) ? json_object_get(value, "tools") : value;
        if (json_is_array(tools))
            *ret_tools = json_incref(tools);
        else
            r = fault_set(fault, E_INVALID, "%s holds no array of tools", path);
    }
    json_decref(value);
    buf_fini(&text);
    (void)fclose(file);
    return r;
}

int command_parse(const struct config *config, struct fault *fault)
{
    struct job job = {.tools = NULL};
    int r = tool_format_named(config->tool_parser, &job.format, fault);

    if (r == 0 && *config->tools)
        r = read_tools(config->tools, &job.tools, fault);
    if (r == 0)
        r = json_lines_run(parse_line, &job, fault);
    json_decref(job.tools);
    return r;
}
