/* tools_deepseek.c -- DeepSeek's calls, one behind the other between two markers:
 *
 *     deepseek_v3   BEGINS BEGIN function SEP f\n```json\n{...}\n``` END \n BEGIN ... END ENDS
 *     deepseek_v31  BEGINS BEGIN f SEP {...} END BEGIN ... END ENDS
 *
 * where BEGINS is <｜tool▁calls▁begin｜> and so on. From the models' chat templates. R1 opens its
 * reasoning in the prompt. Both formats are told apart by what stands before SEP, so either parser
 * reads both. */
#include <string.h>

#include "server/tools_internal.h"

#define BEGINS "<｜tool▁calls▁begin｜>"
#define ENDS   "<｜tool▁calls▁end｜>"
#define BEGIN  "<｜tool▁call▁begin｜>"
#define END    "<｜tool▁call▁end｜>"
#define SEP    "<｜tool▁sep｜>"

enum { CALLS = TOP + 1, HEADER, NAME, FENCE, ARGUMENTS };

static void in_calls(struct tool_parser *parser, char byte)
{
    static const char *const next[] = {BEGIN};
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found;

    if (parser->held_bytes == 0 && tools_is_space(byte))
        return;
    found = tools_match(parser, next, 1, byte, plain, &bytes);
    if (found == 0)
        parser->state = HEADER;
    else if (found == TOOLS_PLAIN)
        tools_fail(parser, byte);
}

/* What stands before SEP: the name, or the word "function". */
static void in_header(struct tool_parser *parser, char byte)
{
    static const char *const separator[] = {SEP};
    struct buf *name = &parser->call.name;
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;

    switch (tools_match(parser, separator, 1, byte, plain, &bytes)) {
    case 0:
        if (strcmp(buf_string(name), "function") == 0) {
            buf_reset(name);
            parser->state = NAME;
        } else {
            tools_value_init(parser);
            parser->state = ARGUMENTS;
        }
        break;
    case TOOLS_PLAIN:
        if (bytes > 1 || !tools_put_name(parser, name, byte))
            tools_fail(parser, byte);
        break;
    default:
        break;
    }
}

static void in_name(struct tool_parser *parser, char byte)
{
    struct buf *name = &parser->call.name;

    if (byte == '\n' && name->bytes > 0) {
        parser->state = FENCE;
    } else if (tools_is_name(byte)) {
        buf_byte(name, byte);
        if (buf_failed(name))
            tools_fail(parser, byte);
    } else if (!tools_is_space(byte)) {
        tools_fail(parser, byte);
    }
}

/* ```json, which some leave out. */
static void in_fence(struct tool_parser *parser, char byte)
{
    if (byte == '{') {
        tools_value_init(parser);
        parser->state = ARGUMENTS;
        parser->format->step(parser, byte);
    } else if (!tools_is_space(byte) && (!byte || !strchr("`json", byte))) {
        tools_fail(parser, byte);
    }
}

static void in_arguments(struct tool_parser *parser, char byte)
{
    enum json_scan_result r;

    if (parser->call.name.bytes == 0) {
        tools_fail(parser, byte);
        return;
    }
    r = tools_value_byte(parser, byte);
    if (r == JSON_SCAN_BAD) {
        tools_fail(parser, byte);
    } else if (r != JSON_SCAN_MORE) {
        tools_done(parser);
        tools_rest(parser);
    }
}

static void deepseek_step(struct tool_parser *parser, char byte)
{
    switch (parser->state) {
    case TOP:
        tools_top(parser, byte);
        break;
    case CALLS:
        in_calls(parser, byte);
        break;
    case HEADER:
        in_header(parser, byte);
        break;
    case NAME:
        in_name(parser, byte);
        break;
    case FENCE:
        in_fence(parser, byte);
        break;
    default:
        in_arguments(parser, byte);
        break;
    }
}

static const struct tool_marker markers[] = {
    {BEGINS, TOOL_ACT_OPEN, CALLS},      {BEGIN, TOOL_ACT_OPEN, HEADER},
    {"```", TOOL_ACT_CLOSE, 0},          {END, TOOL_ACT_CLOSE, 0},
    {ENDS, TOOL_ACT_CLOSE, 0},           {"<think>", TOOL_ACT_THINK, 0},
    {"</think>", TOOL_ACT_THINK_END, 0}, {"<｜end▁of▁sentence｜>", TOOL_ACT_TURN_END, 0},
};
static const char *const inner[] = {SEP, NULL};

const struct tool_format tool_deepseek_v3 = {
    .name = "deepseek_v3", TOOL_MARKERS(markers), .step = deepseek_step, .inner = inner};
const struct tool_format tool_deepseek_v31 = {
    .name = "deepseek_v31", TOOL_MARKERS(markers), .step = deepseek_step, .inner = inner};
