/* tools_pythonic.c -- calls as Python would write them: Llama 3.2 and 4.
 *
 *     [get_weather(location='Oslo', days=2), now()]
 *     <|python_start|>[get_weather(location='Oslo')]<|python_end|>
 *
 * From the makers' prompt descriptions. Arguments are literals, given by name; they become JSON as
 * they come:
 *
 *     {'tags': ('x', "y"), 'n': None, 'm': -.5}   ->   {"tags": ["x", "y"], "n": null, "m": -0.5}
 *
 * A list at the beginning may be text like any other, so nothing is told before a name, a bracket
 * and an argument's name with = have been seen, or the brackets of a call without arguments. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "server/tools_internal.h"

enum { LIST = TOP + 1, NAME, FIRST_KEY, KEY, IN_KEY, EQUALS, VALUE, AFTER_CALL };
enum { PY_VALUE, PY_QUOTED, PY_STRING, PY_ESCAPE, PY_DIGITS, PY_WORD, PY_AFTER };

static bool is_letter(char byte)
{
    return byte == '_' || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* --- strings ---------------------------------------------------------------------------------- */

static void put_code(struct tool_parser *parser, uint32_t code)
{
    char text[4];
    size_t bytes;

    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        code = 0xfffd;
    bytes = utf8_put(code, text);
    for (size_t i = 0; i < bytes; i++)
        tools_escaped(parser, text[i]);
}

/* A first surrogate whose second did not come. */
static void put_lone(struct tool_parser *parser)
{
    if (parser->python.high)
        put_code(parser, 0xfffd);
    parser->python.high = 0;
}

static void put_unit(struct tool_parser *parser, uint32_t code)
{
    struct tool_python *python = &parser->python;

    if (python->high && code >= 0xdc00 && code < 0xe000) {
        put_code(parser, 0x10000 + ((python->high - 0xd800) << 10) + (code - 0xdc00));
        python->high = 0;
        return;
    }
    put_lone(parser);
    if (code >= 0xd800 && code < 0xdc00)
        python->high = code;
    else
        put_code(parser, code);
}

static void escape_begin(struct tool_parser *parser, char byte)
{
    static const char letters[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    struct tool_python *python = &parser->python;

    python->state = PY_STRING;
    python->escape = byte;
    python->code = 0;
    if (byte == 'x' || byte == 'u' || byte == 'U') {
        python->digits_left = byte == 'x' ? 2 : byte == 'u' ? 4 : 8;
        python->state = PY_DIGITS;
        return;
    }
    if (byte >= '0' && byte <= '7') {
        python->code = (uint32_t)(byte - '0');
        python->digits_left = 2;
        python->state = PY_DIGITS;
        return;
    }
    put_lone(parser);
    if (byte == '\n') /* the string goes on in the next line */
        return;
    for (size_t i = 0; i < sizeof letters - 1; i += 2) {
        if (letters[i] == byte) {
            tools_escaped(parser, letters[i + 1]);
            return;
        }
    }
    tools_escaped(parser, '\\');
    tools_escaped(parser, byte);
}

static enum json_scan_result value_byte(struct tool_parser *parser, char byte);

static enum json_scan_result in_digits(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;
    bool octal = is_digit(python->escape);
    uint32_t digit = is_digit(byte) ? (uint32_t)(byte - '0') : (uint32_t)((byte | 0x20) - 'a' + 10);

    if (octal && (byte < '0' || byte > '7')) { /* one to three of them */
        python->state = PY_STRING;
        put_unit(parser, python->code);
        return value_byte(parser, byte);
    }
    if (!octal && !is_digit(byte) && !((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f'))
        return JSON_SCAN_BAD;
    python->code = python->code << (octal ? 3 : 4) | digit;
    if (--python->digits_left == 0) {
        python->state = PY_STRING;
        put_unit(parser, python->code);
    }
    return JSON_SCAN_MORE;
}

static enum json_scan_result value_ended(struct tool_parser *parser)
{
    parser->python.state = PY_AFTER;
    return JSON_SCAN_MORE;
}

static enum json_scan_result string_ended(struct tool_parser *parser)
{
    put_lone(parser);
    tools_arguments(parser, "\"", 1);
    return value_ended(parser);
}

static enum json_scan_result in_string(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;

    if (byte == python->quote) {
        if (!python->triple || ++python->quotes == 3)
            return string_ended(parser);
        return JSON_SCAN_MORE;
    }
    if (python->quotes > 0)
        put_lone(parser);
    for (; python->quotes > 0; python->quotes--)
        tools_escaped(parser, python->quote);
    if (byte == '\\' && !python->raw) {
        python->state = PY_ESCAPE;
        return JSON_SCAN_MORE;
    }
    put_lone(parser);
    tools_escaped(parser, byte);
    return JSON_SCAN_MORE;
}

/* After the first quote: another one is an empty string, and a third opens a long one. */
static enum json_scan_result in_quoted(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;

    if (byte == python->quote && python->quotes == 0) {
        python->quotes = 1;
        return JSON_SCAN_MORE;
    }
    if (python->quotes == 0) {
        python->state = PY_STRING;
        return in_string(parser, byte);
    }
    python->quotes = 0;
    if (byte == python->quote) {
        python->triple = true;
        python->state = PY_STRING;
        return JSON_SCAN_MORE;
    }
    (void)string_ended(parser);
    return value_byte(parser, byte);
}

/* --- numbers and words ------------------------------------------------------------------------ */

/* Python's number as JSON's: 1_000, .5, 5., +1 and 0x1f. Returns false for what is no number. */
static bool put_number(struct tool_parser *parser, const char *word)
{
    char text[2 * PYTHON_WORD_BYTES_MAX];
    struct json_scan scan;
    struct buf out;
    char before = '\0';

    buf_init_fixed(&out, text, sizeof text);
    if (*word == '-')
        buf_byte(&out, '-');
    if (*word == '-' || *word == '+')
        word++;
    if (word[0] == '0' && (word[1] | 0x20) >= 'a' && strchr("xob", word[1] | 0x20)) {
        char *end;
        int base = (word[1] | 0x20) == 'x' ? 16 : (word[1] | 0x20) == 'o' ? 8 : 2;
        uint64_t value = strtoull(word + 2, &end, base);

        if (!word[2] || word[2] == '-' || word[2] == '+' || *end || value == UINT64_MAX)
            return false;
        buf_u64(&out, value);
        word = end;
    }
    for (; *word; word++) {
        bool gap = *word == '_' && is_digit(before) && is_digit(word[1]);

        if (*word == '.' && !is_digit(before))
            buf_byte(&out, '0');
        if (!gap)
            buf_byte(&out, *word);
        if (*word == '.' && !is_digit(word[1]))
            buf_byte(&out, '0');
        before = *word;
    }
    json_scan_init(&scan);
    for (size_t i = 0; i < out.bytes; i++) {
        if (json_scan_byte(&scan, text[i]) != JSON_SCAN_MORE)
            return false;
    }
    tools_arguments(parser, text, out.bytes);
    return json_scan_may_end(&scan) && !buf_failed(&out);
}

static bool put_word(struct tool_parser *parser)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    struct tool_python *python = &parser->python;
    bool key = python->depth > 0 && python->keyed[python->depth - 1], put = false;

    python->word[python->word_bytes] = '\0';
    if (key) /* JSON's keys are strings */
        tools_arguments(parser, "\"", 1);
    for (size_t i = 0; i < sizeof words / sizeof *words && !put; i++) {
        if (strcmp(python->word, words[i][0]) == 0) {
            tools_arguments(parser, words[i][1], strlen(words[i][1]));
            put = true;
        }
    }
    put = put || put_number(parser, python->word);
    if (key)
        tools_arguments(parser, "\"", 1);
    return put;
}

/* --- values ----------------------------------------------------------------------------------- */

static enum json_scan_result string_begin(struct tool_parser *parser, char quote, bool raw)
{
    struct tool_python *python = &parser->python;

    python->state = PY_QUOTED;
    python->quote = quote;
    python->quotes = 0;
    python->triple = false;
    python->raw = raw;
    python->high = 0;
    tools_arguments(parser, "\"", 1);
    return JSON_SCAN_MORE;
}

static enum json_scan_result close_level(struct tool_parser *parser)
{
    struct tool_python *python = &parser->python;
    char closer = python->closers[--python->depth];

    tools_arguments(parser, closer == '}' ? "}" : "]", 1);
    return value_ended(parser);
}

static enum json_scan_result open_level(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;

    if (python->depth == PYTHON_DEPTH_MAX ||
        (python->depth > 0 && python->keyed[python->depth - 1]))
        return JSON_SCAN_BAD;
    python->closers[python->depth] = byte == '[' ? ']' : byte == '(' ? ')' : '}';
    python->keyed[python->depth] = byte == '{';
    python->any[python->depth] = false;
    python->depth++;
    tools_arguments(parser, byte == '{' ? "{" : "[", 1);
    python->state = PY_VALUE;
    return JSON_SCAN_MORE;
}

/* JSON has no comma before a closing bracket, so each is written before what follows it. */
static void item_begin(struct tool_parser *parser)
{
    struct tool_python *python = &parser->python;
    unsigned level = python->depth - 1u;

    if (python->depth == 0 || (python->closers[level] == '}' && !python->keyed[level]))
        return;
    if (python->any[level])
        tools_arguments(parser, ", ", 2);
    python->any[level] = true;
}

static enum json_scan_result begin_value(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;
    bool closes = python->depth > 0 && byte == python->closers[python->depth - 1];

    if (tools_is_space(byte))
        return JSON_SCAN_MORE;
    if (closes && (byte != '}' || python->keyed[python->depth - 1]))
        return close_level(parser);
    if (byte == '\'' || byte == '"') {
        item_begin(parser);
        return string_begin(parser, byte, false);
    }
    if (byte == '[' || byte == '(' || byte == '{') {
        item_begin(parser);
        return open_level(parser, byte);
    }
    if (!is_letter(byte) && !is_digit(byte) && (!byte || !strchr("+-.", byte)))
        return JSON_SCAN_BAD;
    item_begin(parser);
    python->word[0] = byte;
    python->word_bytes = 1;
    python->state = PY_WORD;
    return JSON_SCAN_MORE;
}

static enum json_scan_result in_word(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;

    if ((byte == '\'' || byte == '"') && python->word_bytes == 1 &&
        strchr("rRuUbBfF", python->word[0]))
        return string_begin(parser, byte, (python->word[0] | 0x20) == 'r');
    if (is_letter(byte) || is_digit(byte) || (byte && strchr("+-.", byte))) {
        if (python->word_bytes == PYTHON_WORD_BYTES_MAX - 1)
            return JSON_SCAN_BAD;
        python->word[python->word_bytes++] = byte;
        return JSON_SCAN_MORE;
    }
    if (!put_word(parser))
        return JSON_SCAN_BAD;
    (void)value_ended(parser);
    return value_byte(parser, byte);
}

static enum json_scan_result after_value(struct tool_parser *parser, char byte)
{
    struct tool_python *python = &parser->python;
    unsigned level = python->depth - 1u;
    bool dict, keyed;

    if (tools_is_space(byte))
        return JSON_SCAN_MORE;
    if (python->depth == 0)
        return JSON_SCAN_END_BEFORE;
    dict = python->closers[level] == '}';
    keyed = python->keyed[level];
    if (keyed) {
        if (byte != ':')
            return JSON_SCAN_BAD;
        tools_arguments(parser, ": ", 2);
        python->keyed[level] = false;
        python->state = PY_VALUE;
        return JSON_SCAN_MORE;
    }
    if (byte == python->closers[level])
        return close_level(parser);
    if (byte != ',')
        return JSON_SCAN_BAD;
    python->keyed[level] = dict;
    python->state = PY_VALUE;
    return JSON_SCAN_MORE;
}

static enum json_scan_result value_byte(struct tool_parser *parser, char byte)
{
    switch (parser->python.state) {
    case PY_VALUE:
        return begin_value(parser, byte);
    case PY_QUOTED:
        return in_quoted(parser, byte);
    case PY_STRING:
        return in_string(parser, byte);
    case PY_ESCAPE:
        escape_begin(parser, byte);
        return JSON_SCAN_MORE;
    case PY_DIGITS:
        return in_digits(parser, byte);
    case PY_WORD:
        return in_word(parser, byte);
    default:
        return after_value(parser, byte);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

static void call_done(struct tool_parser *parser)
{
    if (parser->call.told > 0)
        tools_arguments(parser, "}", 1);
    tools_done(parser);
    parser->state = AFTER_CALL;
}

static void value_begin(struct tool_parser *parser)
{
    tools_begin(parser);
    tools_arguments(parser, parser->call.told > 0 ? ", \"" : "{\"", parser->call.told > 0 ? 3 : 2);
    tools_arguments(parser, buf_string(&parser->key), parser->key.bytes);
    tools_arguments(parser, "\": ", 3);
    parser->python = (struct tool_python){.state = PY_VALUE};
    parser->state = VALUE;
}

static void in_value(struct tool_parser *parser, char byte)
{
    enum json_scan_result r = value_byte(parser, byte);

    if (r == JSON_SCAN_MORE)
        return;
    if (r == JSON_SCAN_END_BEFORE && byte == ',')
        parser->state = KEY;
    else if (r == JSON_SCAN_END_BEFORE && byte == ')')
        call_done(parser);
    else
        tools_fail(parser, byte);
}

/* A list of calls, or one call where a marker says that it is one. */
static void in_list(struct tool_parser *parser, char byte)
{
    if (tools_is_space(byte))
        return;
    if (byte == '[' && !parser->in_array && parser->call.open && parser->call_count == 0) {
        parser->in_array = true;
    } else if (is_letter(byte)) {
        parser->call.open = true;
        buf_byte(&parser->call.name, byte);
        parser->state = NAME;
    } else if (byte == ']' && !parser->call.open) {
        tools_rest(parser);
    } else {
        tools_fail(parser, byte);
    }
}

static void in_call(struct tool_parser *parser, char byte)
{
    bool word = is_letter(byte) || is_digit(byte);
    struct buf *into = parser->state == NAME ? &parser->call.name : &parser->key;

    if (parser->state == NAME && (word || byte == '.' || byte == '-') && !buf_failed(into)) {
        buf_byte(into, byte);
    } else if (parser->state == NAME && byte == '(' && !buf_failed(into)) {
        parser->state = FIRST_KEY;
    } else if (parser->state == IN_KEY && word && !buf_failed(into)) {
        buf_byte(into, byte);
    } else if (parser->state != NAME && tools_is_space(byte)) {
        if (parser->state == IN_KEY)
            parser->state = EQUALS;
    } else if ((parser->state == IN_KEY || parser->state == EQUALS) && byte == '=') {
        value_begin(parser);
    } else if ((parser->state == FIRST_KEY || parser->state == KEY) && byte == ')') {
        call_done(parser);
    } else if ((parser->state == FIRST_KEY || parser->state == KEY) && is_letter(byte)) {
        buf_reset(&parser->key);
        buf_byte(&parser->key, byte);
        parser->state = IN_KEY;
    } else {
        tools_fail(parser, byte);
    }
}

static void after_call(struct tool_parser *parser, char byte)
{
    if (tools_is_space(byte))
        return;
    if (parser->in_array && byte == ',') {
        parser->state = LIST;
    } else if (parser->in_array && byte == ']') {
        tools_rest(parser);
    } else {
        tools_rest(parser);
        parser->format->step(parser, byte);
    }
}

static void pythonic_step(struct tool_parser *parser, char byte)
{
    switch (parser->state) {
    case TOP:
        if (byte == '[' && parser->held_bytes == 0 && tools_fresh(parser)) {
            tools_open(parser, &byte, 1);
            parser->in_array = true;
            parser->state = LIST;
        } else {
            tools_top(parser, byte);
        }
        break;
    case LIST:
        in_list(parser, byte);
        break;
    case VALUE:
        in_value(parser, byte);
        break;
    case AFTER_CALL:
        after_call(parser, byte);
        break;
    default:
        in_call(parser, byte);
        break;
    }
}

static const struct tool_marker markers[] = {
    {"<|python_start|>", TOOL_ACT_OPEN, LIST}, {"<|python_tag|>", TOOL_ACT_OPEN, LIST},
    {"<|python_end|>", TOOL_ACT_CLOSE, 0},     {"<|eot|>", TOOL_ACT_TURN_END, 0},
    {"<|eom|>", TOOL_ACT_TURN_END, 0},         {"<|eot_id|>", TOOL_ACT_TURN_END, 0},
    {"<|eom_id|>", TOOL_ACT_TURN_END, 0},      {"<|end_of_text|>", TOOL_ACT_TURN_END, 0},
};

const struct tool_format tool_llama_pythonic = {
    .name = "llama_pythonic", TOOL_MARKERS(markers), .step = pythonic_step};
