/* tools_call.c -- calls written in JSON, followed byte by byte.
 *
 *     {"name": "now", "arguments": {"zone": "UTC"}, "id": "a1"}      keys in any order
 *     {"zone": "UTC"}                                                or the arguments alone
 *
 * The arguments are passed on as they come, but for control characters inside strings, which are
 * escaped: models write them, and JSON has none. Some models write the arguments as a string that
 * holds the JSON: that is read to its end first. */
#include <string.h>

#include "server/tools_internal.h"

enum {
    OBJECT_START,
    OBJECT_FIRST_KEY,
    OBJECT_KEY,
    OBJECT_IN_KEY,
    OBJECT_COLON,
    OBJECT_VALUE,
    OBJECT_IN_VALUE,
    OBJECT_AFTER,
};

void tools_object_init(struct tool_parser *parser)
{
    parser->object = (struct tool_object){.state = OBJECT_START};
    buf_reset(&parser->text);
}

static enum json_scan_result to(struct tool_parser *parser, unsigned state)
{
    parser->object.state = (uint8_t)state;
    return JSON_SCAN_MORE;
}

/* Keeps the JSON of a string in `text` until it is whole. */
static void collect_begin(struct tool_parser *parser)
{
    buf_reset(&parser->text);
    json_scan_init(&parser->scan);
}

static enum json_scan_result collect(struct tool_parser *parser, char byte)
{
    if ((unsigned char)byte < 0x20 && json_scan_in_string(&parser->scan))
        buf_format(&parser->text, "\\u%04x", (unsigned)byte);
    else
        buf_byte(&parser->text, byte);
    return json_scan_byte(&parser->scan, byte);
}

static bool key_is(const struct tool_parser *parser, const char *word)
{
    return parser->object.key_bytes == strlen(word) &&
           memcmp(parser->object.key, word, parser->object.key_bytes) == 0;
}

/* The first byte of a value tells what is to be done with it. */
static bool choose_role(struct tool_parser *parser, char byte)
{
    struct tool_object *object = &parser->object;
    bool arguments = key_is(parser, "arguments") || key_is(parser, "parameters");

    object->role = ROLE_OTHER;
    if (key_is(parser, "name") || (key_is(parser, "function") && byte == '"')) {
        object->role = ROLE_NAME;
        return byte == '"';
    }
    if (key_is(parser, "id") && byte == '"')
        object->role = ROLE_ID;
    if (!arguments)
        return true;
    if (parser->call.arguments_seen || (byte != '{' && byte != '"' && byte != 'n'))
        return false;
    parser->call.arguments_seen = true;
    if (byte != 'n') /* null: no arguments */
        object->role = byte == '{' ? ROLE_ARGUMENTS : ROLE_TEXT_ARGUMENTS;
    return true;
}

static void may_begin(struct tool_parser *parser)
{
    const struct tool_call *call = &parser->call;

    if (call->name.bytes > 0 && call->arguments_seen && !call->hold)
        tools_begin(parser);
}

/* Arguments inside a string count as what they hold, if that is an object. */
static void take_text_arguments(struct tool_parser *parser, const json_t *string)
{
    const char *text = json_string_value(string);
    size_t bytes = json_string_length(string);
    json_t *value = NULL;

    if (bytes == 0) {
        tools_arguments(parser, "{}", 2);
    } else if (json_parse(text, bytes, &value, NULL) == 0 && json_is_object(value)) {
        tools_arguments(parser, text, bytes);
    } else {
        tools_arguments(parser, buf_string(&parser->text), parser->text.bytes);
    }
    json_decref(value);
}

static bool take_text(struct tool_parser *parser)
{
    json_t *string = NULL;
    bool taken = true;

    if (buf_failed(&parser->text) ||
        json_parse(buf_string(&parser->text), parser->text.bytes, &string, NULL) < 0)
        return false;
    switch (parser->object.role) {
    case ROLE_NAME:
        buf_reset(&parser->call.name);
        buf_put(&parser->call.name, json_string_value(string), json_string_length(string));
        taken = parser->call.name.bytes > 0;
        break;
    case ROLE_ID: /* one that is too long is no loss */
        buf_put(&parser->call.id, json_string_value(string), json_string_length(string));
        break;
    default:
        take_text_arguments(parser, string);
        break;
    }
    json_decref(string);
    return taken;
}

static enum json_scan_result value_ended(struct tool_parser *parser)
{
    enum object_role role = parser->object.role;

    if (role != ROLE_OTHER && role != ROLE_ARGUMENTS && !take_text(parser))
        return JSON_SCAN_BAD;
    may_begin(parser);
    return to(parser, OBJECT_AFTER);
}

static void pass_on(struct tool_parser *parser, char byte)
{
    if ((unsigned char)byte < 0x20 && json_scan_in_string(&parser->scan))
        tools_escaped(parser, byte);
    else
        tools_arguments(parser, &byte, 1);
}

static enum json_scan_result in_value(struct tool_parser *parser, char byte)
{
    enum json_scan_result r;

    switch (parser->object.role) {
    case ROLE_ARGUMENTS:
        pass_on(parser, byte);
        r = json_scan_byte(&parser->scan, byte);
        break;
    case ROLE_OTHER:
        r = json_scan_byte(&parser->scan, byte);
        break;
    default:
        r = collect(parser, byte);
        break;
    }
    if (r == JSON_SCAN_MORE || r == JSON_SCAN_BAD)
        return r;
    if (value_ended(parser) == JSON_SCAN_BAD)
        return JSON_SCAN_BAD;
    return r == JSON_SCAN_END_BEFORE ? tools_object_byte(parser, byte) : JSON_SCAN_MORE;
}

static enum json_scan_result begin_value(struct tool_parser *parser, char byte)
{
    if (byte == '{' && key_is(parser, "function") && parser->object.nest == 0) {
        parser->object.nest = 1;
        return to(parser, OBJECT_FIRST_KEY);
    }
    if (!choose_role(parser, byte))
        return JSON_SCAN_BAD;
    if (parser->object.role == ROLE_ARGUMENTS)
        may_begin(parser);
    collect_begin(parser);
    parser->object.state = OBJECT_IN_VALUE;
    return in_value(parser, byte);
}

/* The key's JSON is compared as it stands: none that we know needs an escape. */
static enum json_scan_result in_key(struct tool_parser *parser, char byte)
{
    struct tool_object *object = &parser->object;
    enum json_scan_result r = json_scan_byte(&parser->scan, byte);

    if (r == JSON_SCAN_BAD)
        return r;
    if (r == JSON_SCAN_END)
        return to(parser, OBJECT_COLON);
    if (object->key_bytes < sizeof object->key)
        object->key[object->key_bytes++] = byte;
    return JSON_SCAN_MORE;
}

static enum json_scan_result begin_key(struct tool_parser *parser)
{
    parser->object.key_bytes = 0;
    json_scan_init(&parser->scan);
    (void)json_scan_byte(&parser->scan, '"');
    return to(parser, OBJECT_IN_KEY);
}

static enum json_scan_result close_object(struct tool_parser *parser)
{
    const struct tool_call *call = &parser->call;

    if (parser->object.nest > 0) {
        parser->object.nest = 0;
        return to(parser, OBJECT_AFTER);
    }
    if (call->name.bytes == 0 || (parser->unmarked && !call->arguments_seen))
        return JSON_SCAN_BAD;
    return JSON_SCAN_END;
}

enum json_scan_result tools_object_byte(struct tool_parser *parser, char byte)
{
    unsigned state = parser->object.state;

    if (state == OBJECT_IN_KEY)
        return in_key(parser, byte);
    if (state == OBJECT_IN_VALUE)
        return in_value(parser, byte);
    if (tools_is_space(byte))
        return JSON_SCAN_MORE;
    switch (state) {
    case OBJECT_START:
        return byte == '{' ? to(parser, OBJECT_FIRST_KEY) : JSON_SCAN_BAD;
    case OBJECT_FIRST_KEY:
    case OBJECT_KEY:
        if (byte == '"')
            return begin_key(parser);
        return byte == '}' && state == OBJECT_FIRST_KEY ? close_object(parser) : JSON_SCAN_BAD;
    case OBJECT_COLON:
        return byte == ':' ? to(parser, OBJECT_VALUE) : JSON_SCAN_BAD;
    case OBJECT_VALUE:
        return begin_value(parser, byte);
    default:
        if (byte == ',')
            return to(parser, OBJECT_KEY);
        return byte == '}' ? close_object(parser) : JSON_SCAN_BAD;
    }
}

void tools_value_init(struct tool_parser *parser)
{
    json_scan_init(&parser->scan);
    parser->call.arguments_seen = true;
}

enum json_scan_result tools_value_byte(struct tool_parser *parser, char byte)
{
    if (parser->call.told == 0) {
        if (tools_is_space(byte))
            return JSON_SCAN_MORE;
        if (byte != '{')
            return JSON_SCAN_BAD;
        tools_begin(parser);
    }
    pass_on(parser, byte);
    return json_scan_byte(&parser->scan, byte);
}
