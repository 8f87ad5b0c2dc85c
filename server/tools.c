/* tools.c -- see tools.h: the table of formats, and what they share. */
#include "server/tools.h"

#include <stdlib.h>
#include <string.h>

#include "server/tools_internal.h"

enum { SPACE_BYTES_MAX = 64, OUT_BYTES_MAX = 64 << 20, ARGUMENTS_BYTES_MAX = 8 << 20 };

/* --- reasoning alone -------------------------------------------------------------------------- */

static const struct tool_marker think_markers[] = {
    {"<think>", TOOL_ACT_THINK, 0},       {"</think>", TOOL_ACT_THINK_END, 0},
    {"<|im_end|>", TOOL_ACT_TURN_END, 0}, {"<|endoftext|>", TOOL_ACT_TURN_END, 0},
    {"</s>", TOOL_ACT_TURN_END, 0},
};
const struct tool_format tool_think = {
    .name = "think", TOOL_MARKERS(think_markers), .step = tools_top, .only_reasoning = true};

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    const struct tool_format *format;
} formats[] = {
    {"llama3_json", &tool_llama3_json},
    {"hermes", &tool_hermes},
    {"qwen3", &tool_hermes}, /* with <think>, which hermes knows */
    {"qwen3_coder", &tool_qwen3_coder},
    {"mistral", &tool_mistral},
    {"deepseek_v3", &tool_deepseek_v3},
    {"deepseek_v31", &tool_deepseek_v31},
    {"glm45", &tool_glm45},
    {"harmony", &tool_harmony},
    {"llama_pythonic", &tool_llama_pythonic},
    {"granite", &tool_granite},
    {"functionary", &tool_functionary},
    {"think", &tool_think},
};

const struct tool_format *tool_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].format;
    }
    return NULL;
}

int tool_format_named(const char *name, const struct tool_format **ret_format, struct fault *fault)
{
    const struct tool_format *format = tool_format_find(name);
    char known[256];
    struct buf list;

    if (format) {
        *ret_format = format;
        return 0;
    }
    buf_init_fixed(&list, known, sizeof known);
    tool_format_list(&list);
    return fault_field(fault, E_INVALID, "tool_parser",
                       "--tool-parser: there is no format '%.40s'; known are %s", name,
                       buf_string(&list));
}

const char *tool_format_name(const struct tool_format *format)
{
    return format->name;
}

void tool_format_list(struct buf *text)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        buf_text(text, i > 0 ? ", " : "");
        buf_text(text, formats[i].name);
    }
}

bool tool_format_marks(const struct tool_format *format, const char *text, size_t bytes)
{
    for (size_t i = 0; i < format->marker_count; i++) {
        const struct tool_marker *marker = &format->markers[i];

        if (marker->act != TOOL_ACT_TURN_END && strlen(marker->text) == bytes &&
            memcmp(marker->text, text, bytes) == 0)
            return true;
    }
    for (size_t i = 0; format->inner && format->inner[i]; i++) {
        if (strlen(format->inner[i]) == bytes && memcmp(format->inner[i], text, bytes) == 0)
            return true;
    }
    return false;
}

const char *tool_format_marker(const struct tool_format *format, size_t index)
{
    if (index < format->marker_count)
        return format->markers[index].text;
    if (!format->inner)
        return NULL;
    for (size_t i = 0; format->inner[i]; i++) {
        if (i == index - format->marker_count)
            return format->inner[i];
    }
    return NULL;
}

bool tool_format_calls(const struct tool_format *format)
{
    return !format->only_reasoning;
}

bool tool_format_short_ids(const struct tool_format *format)
{
    return format->short_ids;
}

/* --- opening and closing ---------------------------------------------------------------------- */

int tool_parser_open(const struct tool_format *format, const struct tool_options *options,
                     struct tool_parser **ret_parser, struct fault *fault)
{
    struct tool_parser *parser = calloc(1, sizeof *parser);

    if (!parser)
        return fault_set(fault, E_MEMORY, "Out of memory");
    parser->format = format;
    parser->options = *options;
    parser->state = TOP;
    parser->reasoning = options->starts_in_reasoning;
    parser->skip_space = parser->reasoning;
    buf_init(&parser->space, SPACE_BYTES_MAX + 1);
    buf_init(&parser->out, OUT_BYTES_MAX);
    buf_init(&parser->raw, TOOL_CALL_BYTES_MAX);
    buf_init(&parser->text, TOOL_CALL_BYTES_MAX);
    buf_init(&parser->key, TOOL_NAME_BYTES_MAX);
    buf_init(&parser->call.name, TOOL_NAME_BYTES_MAX);
    buf_init(&parser->call.id, TOOL_ID_BYTES_MAX);
    buf_init(&parser->call.arguments, ARGUMENTS_BYTES_MAX);
    *ret_parser = parser;
    return 0;
}

void tool_parser_close(struct tool_parser *parser)
{
    if (!parser)
        return;
    buf_fini(&parser->space);
    buf_fini(&parser->out);
    buf_fini(&parser->raw);
    buf_fini(&parser->text);
    buf_fini(&parser->key);
    buf_fini(&parser->call.name);
    buf_fini(&parser->call.id);
    buf_fini(&parser->call.arguments);
    free(parser);
}

bool tool_parser_reasons(const struct tool_parser *parser)
{
    return parser->reasoning;
}

bool tool_parser_cut(const struct tool_parser *parser)
{
    return parser->cut;
}

bool tool_parser_failed(const struct tool_parser *parser)
{
    return parser->failed;
}

/* --- deltas ----------------------------------------------------------------------------------- */

static void flush(struct tool_parser *parser)
{
    struct tool_delta delta = {
        .kind = parser->out_kind, .text = buf_string(&parser->out), .bytes = parser->out.bytes};

    if (buf_failed(&parser->out))
        parser->failed = true;
    if (delta.kind == TOOL_ARGUMENTS)
        delta.index = parser->call_count - 1;
    if (delta.bytes > 0)
        parser->sink(parser->data, &delta);
    buf_reset(&parser->out);
}

static void emit(struct tool_parser *parser, enum tool_delta_kind kind, const char *text,
                 size_t bytes)
{
    if (parser->out_kind != kind)
        flush(parser);
    parser->out_kind = kind;
    buf_put(&parser->out, text, bytes);
}

static void tell(struct tool_parser *parser, enum tool_delta_kind kind)
{
    const struct tool_call *call = &parser->call;
    struct tool_delta delta = {.kind = kind, .index = parser->call_count - 1, .text = ""};

    flush(parser);
    if (kind == TOOL_BEGIN) {
        delta.text = buf_string(&call->name);
        delta.bytes = call->name.bytes;
        delta.id = call->id.bytes > 0 ? buf_string(&call->id) : NULL;
    }
    parser->sink(parser->data, &delta);
}

/* --- text ------------------------------------------------------------------------------------- */

bool tools_is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

bool tools_is_name(char byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') ||
           (byte && strchr("_-.:/", byte));
}

bool tools_put_name(struct tool_parser *parser, struct buf *name, char byte)
{
    if (tools_is_space(byte)) {
        if (name->bytes > 0)
            buf_byte(&parser->text, byte);
        return !buf_failed(&parser->text);
    }
    if (!tools_is_name(byte) || parser->text.bytes > 0)
        return false;
    buf_byte(name, byte);
    return !buf_failed(name);
}

static enum tool_delta_kind text_kind(const struct tool_parser *parser)
{
    return parser->reasoning ? TOOL_REASONING : TOOL_CONTENT;
}

static void release_space(struct tool_parser *parser)
{
    if (buf_failed(&parser->space))
        parser->failed = true;
    emit(parser, text_kind(parser), buf_string(&parser->space), parser->space.bytes);
    buf_reset(&parser->space);
}

void tools_text(struct tool_parser *parser, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (tools_is_space(text[i])) {
            if (parser->skip_space)
                continue;
            buf_byte(&parser->space, text[i]);
            if (parser->space.bytes == SPACE_BYTES_MAX)
                release_space(parser);
            continue;
        }
        release_space(parser);
        emit(parser, text_kind(parser), text + i, 1);
        parser->skip_space = parser->block = false;
        parser->any_text = true;
    }
}

bool tools_fresh(const struct tool_parser *parser)
{
    return !parser->reasoning && !parser->any_text && parser->call_count == 0 &&
           !parser->turn_end && parser->options.calls;
}

bool tools_known(const struct tool_parser *parser, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(parser->options.tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *known = json_string_value(json_object_get(function ? function : tool, "name"));

        if (known && strcmp(known, name) == 0)
            return true;
    }
    return !parser->options.tools;
}

/* --- markers ---------------------------------------------------------------------------------- */

int tools_match(struct tool_parser *parser, const char *const *texts, size_t count, char byte,
                char *plain, size_t *ret_bytes)
{
    *ret_bytes = 0;
    must(parser->held_bytes < sizeof parser->held);
    parser->held[parser->held_bytes++] = byte;
    while (parser->held_bytes > 0) {
        for (size_t i = 0; i < count; i++) {
            if (strncmp(texts[i], parser->held, parser->held_bytes) != 0)
                continue;
            if (texts[i][parser->held_bytes] != '\0')
                return *ret_bytes > 0 ? TOOLS_PLAIN : TOOLS_HELD;
            parser->held_bytes = 0;
            return (int)i;
        }
        plain[(*ret_bytes)++] = parser->held[0];
        memmove(parser->held, parser->held + 1, --parser->held_bytes);
    }
    return TOOLS_PLAIN;
}

static bool marker_active(const struct tool_parser *parser, const struct tool_marker *marker)
{
    switch (marker->act) {
    case TOOL_ACT_OPEN:
        return parser->options.calls && !parser->reasoning;
    case TOOL_ACT_CLOSE:
        return parser->block && !parser->reasoning;
    case TOOL_ACT_THINK: /* once more where the prompt has opened it already */
        return !parser->any_text && !parser->reasoned && parser->call_count == 0;
    case TOOL_ACT_THINK_END:
        return parser->reasoning;
    case TOOL_ACT_TURN_END:
        return parser->options.ends_given;
    case TOOL_ACT_STEER:
        return true;
    }
    return false;
}

void tools_part(struct tool_parser *parser, bool reasoning)
{
    buf_reset(&parser->space);
    parser->reasoning = reasoning;
    parser->any_text = false;
    parser->skip_space = true;
}

static void act(struct tool_parser *parser, const struct tool_marker *marker)
{
    switch (marker->act) {
    case TOOL_ACT_OPEN:
        tools_open(parser, marker->text, strlen(marker->text));
        parser->state = marker->state;
        break;
    case TOOL_ACT_CLOSE:
        break;
    case TOOL_ACT_THINK:
        tools_part(parser, true);
        break;
    case TOOL_ACT_THINK_END:
        tools_part(parser, false);
        parser->reasoned = true;
        break;
    case TOOL_ACT_TURN_END:
        parser->turn_end = marker;
        break;
    case TOOL_ACT_STEER:
        parser->format->steer(parser, marker);
        break;
    }
}

/* Which markers count depends on what has come, and that changes only when text is released: so
 * the held bytes are looked at anew after each one that is. */
void tools_top(struct tool_parser *parser, char byte)
{
    const struct tool_format *format = parser->format;

    if (parser->turn_end) { /* it was not the end: text like any other */
        const char *text = parser->turn_end->text;

        parser->turn_end = NULL;
        tools_text(parser, text, strlen(text));
    }
    parser->held[parser->held_bytes++] = byte;
    while (parser->held_bytes > 0) {
        char first = parser->held[0];

        for (size_t i = 0; i < format->marker_count; i++) {
            const struct tool_marker *marker = &format->markers[i];

            if (strncmp(marker->text, parser->held, parser->held_bytes) != 0 ||
                !marker_active(parser, marker))
                continue;
            if (marker->text[parser->held_bytes] == '\0') {
                parser->held_bytes = 0;
                act(parser, marker);
            }
            return;
        }
        memmove(parser->held, parser->held + 1, --parser->held_bytes);
        tools_text(parser, &first, 1);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

static void call_reset(struct tool_parser *parser)
{
    struct tool_call *call = &parser->call;

    buf_reset(&call->name);
    buf_reset(&call->id);
    buf_reset(&call->arguments);
    call->open = call->begun = call->arguments_seen = call->hold = false;
    call->told = 0;
}

void tools_open(struct tool_parser *parser, const char *text, size_t bytes)
{
    call_reset(parser);
    parser->call.open = true;
    parser->recording = true;
    parser->unmarked = parser->in_array = false;
    buf_reset(&parser->raw);
    buf_put(&parser->raw, text, bytes);
    buf_reset(&parser->text);
}

void tools_drop(struct tool_parser *parser)
{
    parser->recording = parser->raw_lost = parser->block = false;
    parser->held_bytes = 0;
    parser->state = TOP;
    buf_reset(&parser->raw);
    call_reset(parser);
}

void tools_break(struct tool_parser *parser)
{
    if (buf_failed(&parser->raw))
        parser->failed = true;
    if (parser->call.begun)
        tell(parser, parser->raw_lost ? TOOL_END : TOOL_BROKEN);
    if (!parser->raw_lost && parser->raw.bytes > 0) {
        release_space(parser);
        emit(parser, TOOL_CONTENT, buf_string(&parser->raw), parser->raw.bytes);
        parser->any_text = true;
        parser->skip_space = false;
    }
    tools_drop(parser);
}

void tools_fail(struct tool_parser *parser, char byte)
{
    if (parser->raw.bytes > 0)
        buf_cut(&parser->raw, parser->raw.bytes - 1);
    tools_break(parser);
    parser->format->step(parser, byte);
}

void tools_begin(struct tool_parser *parser)
{
    struct tool_call *call = &parser->call;

    if (call->begun)
        return;
    call->begun = true;
    parser->call_count++;
    if (buf_failed(&call->arguments))
        parser->failed = true;
    tell(parser, TOOL_BEGIN);
    emit(parser, TOOL_ARGUMENTS, buf_string(&call->arguments), call->arguments.bytes);
    buf_reset(&call->arguments);
}

void tools_arguments(struct tool_parser *parser, const char *text, size_t bytes)
{
    parser->call.told += bytes;
    if (parser->call.begun)
        emit(parser, TOOL_ARGUMENTS, text, bytes);
    else
        buf_put(&parser->call.arguments, text, bytes);
}

void tools_escaped(struct tool_parser *parser, char byte)
{
    char text[16];
    struct buf escaped;

    if ((unsigned char)byte >= 0x20 && byte != '"' && byte != '\\') {
        tools_arguments(parser, &byte, 1);
        return;
    }
    buf_init_fixed(&escaped, text, sizeof text);
    buf_json_string(&escaped, &byte, 1);
    tools_arguments(parser, text + 1, escaped.bytes - 2);
}

void tools_done(struct tool_parser *parser)
{
    if (parser->call.told == 0)
        tools_arguments(parser, "{}", 2);
    tools_begin(parser);
    tell(parser, TOOL_END);
    call_reset(parser);
    buf_reset(&parser->raw);
    buf_reset(&parser->space); /* not before: a broken call brings it back */
    parser->raw_lost = false;
    parser->any_text = false;
    parser->skip_space = true;
}

void tools_rest(struct tool_parser *parser)
{
    tools_drop(parser);
    parser->block = true;
}

/* --- feeding ---------------------------------------------------------------------------------- */

/* Returns false when a candidate grew so long that it is given up. */
static bool record(struct tool_parser *parser, char byte)
{
    buf_byte(&parser->raw, byte);
    if (!buf_failed(&parser->raw))
        return true;
    if (parser->raw.bytes < TOOL_CALL_BYTES_MAX) { /* no memory */
        parser->failed = true;
        return true;
    }
    if (parser->call.begun) {
        parser->raw_lost = true;
        buf_reset(&parser->raw);
        return true;
    }
    buf_cut(&parser->raw, parser->raw.bytes); /* it is whole up to here */
    tools_break(parser);
    tools_top(parser, byte);
    return false;
}

void tool_parser_feed(struct tool_parser *parser, const char *text, size_t bytes, tool_sink *sink,
                      void *data)
{
    parser->sink = sink;
    parser->data = data;
    for (size_t i = 0; i < bytes; i++) {
        if (parser->recording && !parser->raw_lost && !record(parser, text[i]))
            continue;
        parser->format->step(parser, text[i]);
    }
    flush(parser);
}

/* A token that ended the turn inside a call is not part of what comes back. */
static void cut_turn_end(struct tool_parser *parser)
{
    struct buf *raw = &parser->raw;

    for (size_t i = 0; parser->options.ends_given && i < parser->format->marker_count; i++) {
        const struct tool_marker *marker = &parser->format->markers[i];
        size_t bytes = strlen(marker->text);

        if (marker->act == TOOL_ACT_TURN_END && raw->bytes >= bytes && !buf_failed(raw) &&
            memcmp(raw->data + raw->bytes - bytes, marker->text, bytes) == 0) {
            buf_cut(raw, raw->bytes - bytes);
            return;
        }
    }
}

/* What closes a call may be cut off as well: the call is told already, and this is no text. */
static void cut_close(struct tool_parser *parser)
{
    for (size_t i = 0; i < parser->format->marker_count; i++) {
        const struct tool_marker *marker = &parser->format->markers[i];

        if (marker->act == TOOL_ACT_CLOSE && marker_active(parser, marker) &&
            strncmp(marker->text, parser->held, parser->held_bytes) == 0)
            parser->held_bytes = 0;
    }
}

void tool_parser_finish(struct tool_parser *parser, tool_sink *sink, void *data)
{
    parser->sink = sink;
    parser->data = data;
    if (parser->format->finish)
        parser->format->finish(parser);
    if (parser->call.open) {
        parser->cut = true;
        cut_turn_end(parser);
        tools_break(parser);
    } else if (parser->state == TOP) {
        cut_close(parser);
        tools_text(parser, parser->held, parser->held_bytes);
    }
    parser->held_bytes = 0;
    if (parser->reasoning)
        parser->cut = true;
    else if (parser->any_text || (parser->call_count == 0 && !parser->reasoned))
        release_space(parser);
    flush(parser);
}
