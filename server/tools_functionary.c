/* tools_functionary.c -- Functionary's two formats:
 *
 *     v3.1   <function=f>{...}</function>
 *     v3.2   all\nSome text>>>f\n{...}>>>g\n{...}        each part begins with a recipient and \n
 *
 * From the models' chat templates. The prompt of v3.2 ends with >>>, so the text begins with a
 * recipient: a first word with a line break behind it, "all" or a tool's name. */
#include <string.h>

#include "server/tools_internal.h"

enum { NAME = TOP + 1, RECIPIENT, ARGUMENTS };

static void in_name(struct tool_parser *parser, char byte)
{
    struct buf *name = &parser->call.name;

    if (byte == '>' && name->bytes > 0) {
        tools_value_init(parser);
        parser->state = ARGUMENTS;
        return;
    }
    if (tools_is_name(byte))
        buf_byte(name, byte);
    if (!tools_is_name(byte) || buf_failed(name))
        tools_fail(parser, byte);
}

static void in_recipient(struct tool_parser *parser, char byte)
{
    struct buf *name = &parser->call.name;

    if (byte == '\n' && strcmp(buf_string(name), "all") == 0) {
        tools_drop(parser);
    } else if (byte == '\n' && name->bytes > 0 && parser->options.calls &&
               tools_known(parser, buf_string(name))) {
        tools_value_init(parser);
        parser->state = ARGUMENTS;
    } else if (tools_is_name(byte) && name->bytes < TOOL_NAME_BYTES_MAX) {
        buf_byte(name, byte);
    } else {
        tools_fail(parser, byte);
    }
}

static void in_arguments(struct tool_parser *parser, char byte)
{
    enum json_scan_result r = tools_value_byte(parser, byte);

    if (r == JSON_SCAN_BAD) {
        tools_fail(parser, byte);
    } else if (r != JSON_SCAN_MORE) {
        tools_done(parser);
        tools_rest(parser);
    }
}

static void functionary_step(struct tool_parser *parser, char byte)
{
    bool first = !parser->started;

    parser->started = true;
    switch (parser->state) {
    case TOP:
        if (first && tools_is_name(byte)) {
            tools_open(parser, &byte, 1);
            parser->unmarked = true;
            parser->state = RECIPIENT;
            in_recipient(parser, byte);
        } else {
            tools_top(parser, byte);
        }
        break;
    case NAME:
        in_name(parser, byte);
        break;
    case RECIPIENT:
        in_recipient(parser, byte);
        break;
    default:
        in_arguments(parser, byte);
        break;
    }
}

/* An answer of one word is no recipient that was cut off. */
static void functionary_finish(struct tool_parser *parser)
{
    if (parser->state == RECIPIENT && parser->unmarked)
        tools_break(parser);
}

static const struct tool_marker markers[] = {
    {"<function=", TOOL_ACT_OPEN, NAME},  {"</function>", TOOL_ACT_CLOSE, 0},
    {">>>", TOOL_ACT_OPEN, RECIPIENT},    {"<|eot_id|>", TOOL_ACT_TURN_END, 0},
    {"<|eom_id|>", TOOL_ACT_TURN_END, 0}, {"<|end_of_text|>", TOOL_ACT_TURN_END, 0},
};

const struct tool_format tool_functionary = {.name = "functionary",
                                             TOOL_MARKERS(markers),
                                             .step = functionary_step,
                                             .finish = functionary_finish,
                                             .opens_header = ">>>"};
