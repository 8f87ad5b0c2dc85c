/* tools_tagged.c -- calls whose arguments stand in tags, one by one:
 *
 *     glm45         <tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>
 *     qwen3_coder   <tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>...
 *
 * From the models' chat templates. A value has no type of its own: where the tool's schema says
 * string it is one, and goes out as it comes; otherwise it is read to its end and taken as JSON if
 * it is that, as a string if not. */
#include <string.h>

#include "server/tools_internal.h"

enum { FUNCTION = TOP + 1, NAME, KEY, BETWEEN, VALUE, AFTER };

struct tag_style {
    const char *function; /* before the name, or NULL */
    const char *name_end; /* behind it; NULL: the next tag ends it */
    const char *key;      /* before a key */
    const char *key_end;
    const char *value;       /* before a value; NULL: nothing, but for a line break */
    const char *value_end;   /* behind it */
    const char *value_break; /* the same with the line break that is not part of it, or NULL */
    const char *call_end;
};

static const struct tag_style *style_of(const struct tool_parser *parser)
{
    return parser->format->style;
}

/* --- types ------------------------------------------------------------------------------------ */

enum {
    TYPE_STRING = 1,
    TYPE_NULL = 2,
    TYPE_BOOLEAN = 4,
    TYPE_NUMBER = 8,
    TYPE_ARRAY = 16,
    TYPE_OBJECT = 32,
    TYPE_ANY = 63,
    SCHEMA_DEPTH_MAX = 4,
};

static const json_t *parameter_schema(const struct tool_parser *parser)
{
    const char *name = buf_string(&parser->call.name);
    const json_t *tool;
    size_t i;

    json_array_foreach(parser->options.tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *known;

        if (!function)
            function = tool;
        known = json_string_value(json_object_get(function, "name"));
        if (known && strcmp(known, name) == 0)
            return json_object_get(
                json_object_get(json_object_get(function, "parameters"), "properties"),
                buf_string(&parser->key));
    }
    return NULL;
}

static unsigned type_named(const json_t *type)
{
    static const struct {
        const char *word;
        unsigned type;
    } words[] = {{"string", TYPE_STRING}, {"null", TYPE_NULL},      {"boolean", TYPE_BOOLEAN},
                 {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};

    for (size_t i = 0; json_is_string(type) && i < sizeof words / sizeof *words; i++) {
        if (strcmp(json_string_value(type), words[i].word) == 0)
            return words[i].type;
    }
    return TYPE_ANY;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    default:
        return TYPE_NUMBER;
    }
}

/* What a schema lets a value be; what we do not understand lets it be anything. */
static unsigned types_of(const json_t *schema, unsigned depth)
{
    const json_t *type = json_object_get(schema, "type");
    const json_t *any = json_object_get(schema, "anyOf"), *item;
    const json_t *values = json_object_get(schema, "enum");
    unsigned found = 0;
    size_t i;

    if (!any)
        any = json_object_get(schema, "oneOf");
    if (json_is_string(type))
        return type_named(type);
    json_array_foreach(type, i, item) found |= type_named(item);
    if (!type) {
        json_array_foreach(values, i, item) found |= type_of_value(item);
    }
    if (!type && !values && depth > 0) {
        json_array_foreach(any, i, item) found |= types_of(item, depth - 1);
    }
    return found ? found : TYPE_ANY;
}

bool tools_is_text(const json_t *schema)
{
    return types_of(schema, SCHEMA_DEPTH_MAX) == TYPE_STRING;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Skips white space before one of `texts`. Returns its index, or a negative number; has failed the
 * call when something else stands there. */
static int expect(struct tool_parser *parser, const char *const *texts, size_t count, char byte)
{
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found;

    if (parser->held_bytes == 0 && tools_is_space(byte))
        return TOOLS_HELD;
    found = tools_match(parser, texts, count, byte, plain, &bytes);
    if (found == TOOLS_PLAIN)
        tools_fail(parser, byte);
    return found;
}

static void done(struct tool_parser *parser)
{
    if (parser->call.told > 0)
        tools_arguments(parser, "}", 1);
    tools_done(parser);
    tools_rest(parser);
}

/* Another key, or the end of the call. */
static void tag_follows(struct tool_parser *parser, int found)
{
    if (found == 0) {
        buf_reset(&parser->key);
        parser->state = KEY;
    } else if (found == 1) {
        done(parser);
    }
}

static void in_name(struct tool_parser *parser, char byte)
{
    const struct tag_style *style = style_of(parser);
    const char *const ends[] = {style->key, style->call_end, style->name_end};
    struct buf *name = &parser->call.name;
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found = tools_match(parser, ends, style->name_end ? 3 : 2, byte, plain, &bytes);

    if (found == TOOLS_HELD)
        return;
    if (found >= 0 && (name->bytes == 0 || bytes > 0)) {
        tools_fail(parser, byte);
        return;
    }
    if (found >= 0) {
        tools_begin(parser);
        if (found == 2)
            parser->state = AFTER;
        else
            tag_follows(parser, found);
        return;
    }
    if (bytes != 1 || !tools_put_name(parser, name, byte))
        tools_fail(parser, byte);
}

static void value_begin(struct tool_parser *parser)
{
    const struct buf *key = &parser->key;

    tools_arguments(parser, parser->call.told > 0 ? ", " : "{", parser->call.told > 0 ? 2 : 1);
    tools_arguments(parser, "\"", 1);
    for (size_t i = 0; i < key->bytes; i++)
        tools_escaped(parser, key->data[i]);
    tools_arguments(parser, "\": ", 3);
    parser->streams = tools_is_text(parameter_schema(parser));
    if (parser->streams)
        tools_arguments(parser, "\"", 1);
    parser->started = false;
    buf_reset(&parser->text);
    parser->state = VALUE;
}

static void in_key(struct tool_parser *parser, char byte)
{
    const struct tag_style *style = style_of(parser);
    const char *const ends[] = {style->key_end};
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found = tools_match(parser, ends, 1, byte, plain, &bytes);

    if (found == 0) {
        parser->state = BETWEEN;
        if (!style->value)
            value_begin(parser);
        return;
    }
    buf_put(&parser->key, plain, bytes);
    if (buf_failed(&parser->key))
        tools_fail(parser, byte);
}

/* Python's words stand for JSON's where a template prints values as Python does. */
static const char *python_word(const struct buf *text)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(buf_string(text), words[i][0]) == 0)
            return words[i][1];
    }
    return buf_string(text);
}

/* A value that may be more than a string is JSON, if that is what the schema lets it be. */
static void put_value(struct tool_parser *parser)
{
    unsigned types = types_of(parameter_schema(parser), SCHEMA_DEPTH_MAX);
    const char *text = python_word(&parser->text);
    size_t bytes = strlen(text);
    json_t *value = NULL;
    bool string = json_parse(text, bytes, &value, NULL) < 0 ||
                  ((types & TYPE_STRING) && !(types & type_of_value(value)));

    json_decref(value);
    if (!string) {
        while (bytes > 0 && tools_is_space(text[bytes - 1]))
            bytes--;
        for (; bytes > 0 && tools_is_space(*text); bytes--)
            text++;
        tools_arguments(parser, text, bytes);
        return;
    }
    text = buf_string(&parser->text);
    bytes = parser->text.bytes;
    tools_arguments(parser, "\"", 1);
    for (size_t i = 0; i < bytes; i++)
        tools_escaped(parser, text[i]);
    tools_arguments(parser, "\"", 1);
}

static void in_value(struct tool_parser *parser, char byte)
{
    const struct tag_style *style = style_of(parser);
    const char *const ends[] = {style->value_end, style->value_break};
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found;

    if (!parser->started) { /* a line break before it is not part of it */
        parser->started = true;
        if (!style->value && byte == '\n')
            return;
    }
    found = tools_match(parser, ends, style->value_break ? 2 : 1, byte, plain, &bytes);
    for (size_t i = 0; i < bytes && parser->streams; i++)
        tools_escaped(parser, plain[i]);
    if (!parser->streams)
        buf_put(&parser->text, plain, bytes);
    if (buf_failed(&parser->text)) {
        tools_fail(parser, byte);
        return;
    }
    if (found < 0)
        return;
    if (parser->streams)
        tools_arguments(parser, "\"", 1);
    else
        put_value(parser);
    parser->state = AFTER;
}

static void tag_step(struct tool_parser *parser, char byte)
{
    const struct tag_style *style = style_of(parser);
    const char *const tags[] = {style->key, style->call_end};
    int found;

    switch (parser->state) {
    case TOP:
        tools_top(parser, byte);
        break;
    case FUNCTION:
        if (expect(parser, &style->function, 1, byte) == 0)
            parser->state = NAME;
        break;
    case NAME:
        in_name(parser, byte);
        break;
    case KEY:
        in_key(parser, byte);
        break;
    case BETWEEN:
        if (expect(parser, &style->value, 1, byte) == 0)
            value_begin(parser);
        break;
    case VALUE:
        in_value(parser, byte);
        break;
    default:
        found = expect(parser, tags, 2, byte);
        if (found >= 0)
            tag_follows(parser, found);
        break;
    }
}

/* --- the formats ------------------------------------------------------------------------------ */

static const struct tool_marker glm_markers[] = {
    {"<tool_call>", TOOL_ACT_OPEN, NAME},
    {"</tool_call>", TOOL_ACT_CLOSE, 0},
    {"<think>", TOOL_ACT_THINK, 0},
    {"</think>", TOOL_ACT_THINK_END, 0},
    {"<|observation|>", TOOL_ACT_TURN_END, 0},
    {"<|user|>", TOOL_ACT_TURN_END, 0},
    {"<|endoftext|>", TOOL_ACT_TURN_END, 0},
};
static const char *const glm_inner[] = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                                        NULL};
static const struct tag_style glm_style = {.key = "<arg_key>",
                                           .key_end = "</arg_key>",
                                           .value = "<arg_value>",
                                           .value_end = "</arg_value>",
                                           .call_end = "</tool_call>"};
const struct tool_format tool_glm45 = {.name = "glm45",
                                       TOOL_MARKERS(glm_markers),
                                       .step = tag_step,
                                       .inner = glm_inner,
                                       .style = &glm_style};

static const struct tool_marker coder_markers[] = {
    {"<tool_call>", TOOL_ACT_OPEN, FUNCTION}, {"<function=", TOOL_ACT_OPEN, NAME},
    {"</tool_call>", TOOL_ACT_CLOSE, 0},      {"<think>", TOOL_ACT_THINK, 0},
    {"</think>", TOOL_ACT_THINK_END, 0},      {"<|im_end|>", TOOL_ACT_TURN_END, 0},
    {"<|endoftext|>", TOOL_ACT_TURN_END, 0},
};
static const struct tag_style coder_style = {.function = "<function=",
                                             .name_end = ">",
                                             .key = "<parameter=",
                                             .key_end = ">",
                                             .value_end = "</parameter>",
                                             .value_break = "\n</parameter>",
                                             .call_end = "</function>"};
const struct tool_format tool_qwen3_coder = {
    .name = "qwen3_coder", TOOL_MARKERS(coder_markers), .step = tag_step, .style = &coder_style};
