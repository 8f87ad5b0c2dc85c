/* tools_json.c -- calls as JSON objects behind a marker, or at the very beginning:
 *
 *     hermes        <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>   also Qwen
 *     llama3_json   {"name": "f", "parameters": {...}}; {...}     perhaps behind <|python_tag|>
 *     granite       <|tool_call|>[{"name": "f", "arguments": {...}}, {...}]
 *     mistral       [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "a1B2c3D4e"}, {...}]
 *                   [TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}
 *
 * From the formats' chat templates and the makers' descriptions. Every format here takes one
 * object, several, or an array of them. In an array of mistral's a call's id stands at the end, so
 * such a call is told when it is whole. */
#include <string.h>

#include "server/tools_internal.h"

enum { START = TOP + 1, OBJECT, NEXT, NEXT_OF_ARRAY, NAME, CALL_ID, ARGUMENTS };

struct json_style {
    bool object_begins; /* an unmarked '{' at the beginning may be a call */
    bool array_begins;  /* so may '[' */
    bool named;         /* a name may follow the marker */
    bool id_last;
    bool separated; /* objects outside an array, with ; or , between them */
};

static const struct json_style *style_of(const struct tool_parser *parser)
{
    return parser->format->style;
}

static void object_begin(struct tool_parser *parser, char byte)
{
    parser->call.open = true;
    parser->call.hold = style_of(parser)->id_last && parser->in_array;
    parser->state = OBJECT;
    tools_object_init(parser);
    (void)tools_object_byte(parser, byte);
}

static void in_object(struct tool_parser *parser, char byte)
{
    switch (tools_object_byte(parser, byte)) {
    case JSON_SCAN_BAD:
        tools_fail(parser, byte);
        break;
    case JSON_SCAN_MORE:
        break;
    default:
        tools_done(parser);
        parser->state = parser->in_array ? NEXT_OF_ARRAY : NEXT;
        break;
    }
}

static void start(struct tool_parser *parser, char byte)
{
    if (tools_is_space(byte))
        return;
    if (byte == '{') {
        object_begin(parser, byte);
    } else if (byte == '[') {
        parser->in_array = true;
        parser->state = NEXT_OF_ARRAY;
    } else if (style_of(parser)->named && tools_is_name(byte)) {
        parser->state = NAME;
        buf_byte(&parser->call.name, byte);
    } else {
        tools_fail(parser, byte);
    }
}

static void next(struct tool_parser *parser, char byte)
{
    if (tools_is_space(byte) || (style_of(parser)->separated && (byte == ';' || byte == ',')))
        return;
    if (byte == '{' && parser->call_count > 0) {
        object_begin(parser, byte);
        return;
    }
    tools_rest(parser);
    parser->format->step(parser, byte);
}

static void next_of_array(struct tool_parser *parser, char byte)
{
    if (tools_is_space(byte) || byte == ',')
        return;
    if (byte == '{') {
        object_begin(parser, byte);
    } else if (byte == ']' && !parser->call.open) {
        parser->in_array = false;
        parser->state = NEXT;
    } else {
        tools_fail(parser, byte);
    }
}

/* Behind [TOOL_CALLS]: a name, perhaps an id, then the arguments. */
static void in_name(struct tool_parser *parser, char byte)
{
    static const char *const ends[] = {"[ARGS]", "[CALL_ID]"};
    struct buf *into = parser->state == NAME ? &parser->call.name : &parser->call.id;
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;

    if (byte == '{' && parser->held_bytes == 0) {
        tools_value_init(parser);
        parser->state = ARGUMENTS;
        parser->format->step(parser, byte);
        return;
    }
    switch (tools_match(parser, ends, 2, byte, plain, &bytes)) {
    case 0:
        tools_value_init(parser);
        parser->state = ARGUMENTS;
        break;
    case 1:
        buf_reset(&parser->text);
        parser->state = CALL_ID;
        break;
    case TOOLS_PLAIN:
        if (bytes > 1 || !tools_put_name(parser, into, byte))
            tools_fail(parser, byte);
        break;
    default:
        break;
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

static void top(struct tool_parser *parser, char byte)
{
    const struct json_style *style = style_of(parser);
    bool object = style->object_begins && byte == '{', array = style->array_begins && byte == '[';

    if ((object || array) && parser->held_bytes == 0 && tools_fresh(parser)) {
        tools_open(parser, &byte, 1);
        parser->unmarked = true;
        start(parser, byte);
        return;
    }
    tools_top(parser, byte);
}

static void json_step(struct tool_parser *parser, char byte)
{
    switch (parser->state) {
    case TOP:
        top(parser, byte);
        break;
    case START:
        start(parser, byte);
        break;
    case OBJECT:
        in_object(parser, byte);
        break;
    case NEXT:
        next(parser, byte);
        break;
    case NEXT_OF_ARRAY:
        next_of_array(parser, byte);
        break;
    case NAME:
    case CALL_ID:
        in_name(parser, byte);
        break;
    default:
        in_arguments(parser, byte);
        break;
    }
}

/* --- the formats ------------------------------------------------------------------------------ */

static const struct tool_marker hermes_markers[] = {
    {"<tool_call>", TOOL_ACT_OPEN, START}, {"</tool_call>", TOOL_ACT_CLOSE, 0},
    {"<think>", TOOL_ACT_THINK, 0},        {"</think>", TOOL_ACT_THINK_END, 0},
    {"<|im_end|>", TOOL_ACT_TURN_END, 0},  {"<|endoftext|>", TOOL_ACT_TURN_END, 0},
    {"<|eot_id|>", TOOL_ACT_TURN_END, 0},  {"<|end_of_text|>", TOOL_ACT_TURN_END, 0},
    {"</s>", TOOL_ACT_TURN_END, 0},
};
static const struct json_style hermes_style = {.named = false};
const struct tool_format tool_hermes = {
    .name = "hermes", TOOL_MARKERS(hermes_markers), .step = json_step, .style = &hermes_style};

static const struct tool_marker llama3_markers[] = {
    {"<|python_tag|>", TOOL_ACT_OPEN, START}, {"<think>", TOOL_ACT_THINK, 0},
    {"</think>", TOOL_ACT_THINK_END, 0},      {"<|eot_id|>", TOOL_ACT_TURN_END, 0},
    {"<|eom_id|>", TOOL_ACT_TURN_END, 0},     {"<|end_of_text|>", TOOL_ACT_TURN_END, 0},
};
static const struct json_style llama3_style = {.object_begins = true, .separated = true};
const struct tool_format tool_llama3_json = {
    .name = "llama3_json", TOOL_MARKERS(llama3_markers), .step = json_step, .style = &llama3_style};

static const struct tool_marker mistral_markers[] = {
    {"[TOOL_CALLS]", TOOL_ACT_OPEN, START},
    {"[THINK]", TOOL_ACT_THINK, 0},
    {"[/THINK]", TOOL_ACT_THINK_END, 0},
    {"</s>", TOOL_ACT_TURN_END, 0},
};
static const char *const mistral_inner[] = {"[ARGS]", "[CALL_ID]", NULL};
static const struct json_style mistral_style = {.named = true, .id_last = true};
const struct tool_format tool_mistral = {.name = "mistral",
                                         TOOL_MARKERS(mistral_markers),
                                         .step = json_step,
                                         .inner = mistral_inner,
                                         .style = &mistral_style,
                                         .short_ids = true};

enum { RESPONSE, RESPONSE_END };

/* Behind its reasoning Granite puts the answer into tags. */
static void granite_steer(struct tool_parser *parser, const struct tool_marker *marker)
{
    bool opens = marker->state == RESPONSE && parser->reasoned && !parser->any_text;
    bool closes = marker->state == RESPONSE_END && parser->started;

    if (opens || closes)
        parser->started = opens;
    else
        tools_text(parser, marker->text, strlen(marker->text));
}

static const struct tool_marker granite_markers[] = {
    {"<|tool_call|>", TOOL_ACT_OPEN, START},       {"<tool_call>", TOOL_ACT_OPEN, START},
    {"<function_call>", TOOL_ACT_OPEN, START},     {"</tool_call>", TOOL_ACT_CLOSE, 0},
    {"</function_call>", TOOL_ACT_CLOSE, 0},       {"<think>", TOOL_ACT_THINK, 0},
    {"</think>", TOOL_ACT_THINK_END, 0},           {"<response>", TOOL_ACT_STEER, RESPONSE},
    {"</response>", TOOL_ACT_STEER, RESPONSE_END}, {"<|end_of_text|>", TOOL_ACT_TURN_END, 0},
    {"<|endoftext|>", TOOL_ACT_TURN_END, 0},
};
static const struct json_style granite_style = {.array_begins = true};
const struct tool_format tool_granite = {.name = "granite",
                                         TOOL_MARKERS(granite_markers),
                                         .step = json_step,
                                         .steer = granite_steer,
                                         .style = &granite_style};
