/* jinja_lexer.c -- source to tokens, as Jinja's lexer cuts it with trim_blocks and lstrip_blocks.
 *
 *     text {%- if x %}\n   {# note #}\n{{ y -}}   text
 *         ^^ a minus eats white space up to the text, newlines too
 *                     ^^ a block's or comment's end eats one newline
 *                       ^^^ blanks before a block or comment at the start of a line go
 *
 * Between brackets an end of a tag is none: {{ {'a': {}} }} is one tag. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/jinja_text.h"
#include "engine/text/jinja_tree.h"

enum { SHOWN_BYTES = 40 };

struct lexer {
    struct run *run;
    const char *at;
    const char *end;
    const char *counted; /* line and column are those of this place */
    uint32_t line;
    uint32_t column;
    bool line_starting; /* the last tag's end took a newline */
    struct token *tokens;
    size_t count;
    size_t room;
    uint32_t bracket_count;
    char brackets[JINJA_NESTING_MAX];
};

int parse_fault(struct run *run, const struct token *token, const char *format, ...)
{
    char message[sizeof run->fault->message];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return run_fault(run, E_INVALID, "the chat template, line %u, column %u: %s", token->line,
                     token->column, message);
}

void token_print(const struct token *token, char *ret_text, size_t room)
{
    if (token->kind == TOKEN_END)
        (void)snprintf(ret_text, room, "the end of the template");
    else if (token->kind == TOKEN_DATA)
        (void)snprintf(ret_text, room, "text");
    else
        (void)snprintf(ret_text, room, "'%.*s'",
                       token->bytes > SHOWN_BYTES ? SHOWN_BYTES : (int)token->bytes, token->text);
}

/* Moves the count of lines and columns up to `to`. */
static void count_to(struct lexer *lexer, const char *to)
{
    for (; lexer->counted < to; lexer->counted++) {
        if (*lexer->counted == '\n') {
            lexer->line++;
            lexer->column = 1;
        } else if (((unsigned char)*lexer->counted & 0xc0) != 0x80) {
            lexer->column++;
        }
    }
}

static struct token token_here(struct lexer *lexer, const char *start, size_t bytes)
{
    count_to(lexer, start);
    return (struct token){
        .line = lexer->line, .column = lexer->column, .text = start, .bytes = (uint32_t)bytes};
}

static int put(struct lexer *lexer, enum token_kind kind, const char *start, size_t bytes)
{
    struct token token = token_here(lexer, start, bytes);

    token.kind = kind;
    if (lexer->count == lexer->room) {
        size_t room = lexer->room ? lexer->room * 2 : 256;
        struct token *tokens = run_take(lexer->run, room, sizeof *tokens);

        if (!tokens)
            return E_MEMORY;
        if (lexer->count > 0)
            memcpy(tokens, lexer->tokens, lexer->count * sizeof *tokens);
        lexer->tokens = tokens;
        lexer->room = room;
    }
    lexer->tokens[lexer->count++] = token;
    return 0;
}

static bool starts(const struct lexer *lexer, const char *at, const char *word)
{
    size_t bytes = strlen(word);

    return (size_t)(lexer->end - at) >= bytes && memcmp(at, word, bytes) == 0;
}

static const char *skip_space(const struct lexer *lexer, const char *at)
{
    while (at < lexer->end) {
        size_t bytes;

        if (!char_is_space(char_decode(at, &bytes)))
            break;
        at += bytes;
    }
    return at;
}

static const char *back_space(const char *start, const char *end)
{
    while (end > start) {
        const char *at = end - 1;
        size_t bytes;

        while (at > start && ((unsigned char)*at & 0xc0) == 0x80)
            at--;
        if (!char_is_space(char_decode(at, &bytes)))
            break;
        end = at;
    }
    return end;
}

/* Text up to the tag that begins at `tag`, cut as the tag wants. */
static int put_data(struct lexer *lexer, const char *start, const char *tag, char sign,
                    bool is_output)
{
    const char *end = tag, *line = tag;

    if (sign == '-') {
        end = back_space(start, end);
    } else if (sign != '+' && !is_output) {
        while (line > start && line[-1] != '\n')
            line--;
        if ((line > start || lexer->line_starting) && skip_space(lexer, line) >= tag)
            end = line;
    }
    return end > start ? put(lexer, TOKEN_DATA, start, (size_t)(end - start)) : 0;
}

/* What follows a tag's end is eaten: all white space after a minus, else one newline. */
static void tag_ended(struct lexer *lexer, const char *at, char sign, bool trims)
{
    const char *after = at;

    if (sign == '-')
        after = skip_space(lexer, at);
    else if (sign != '+' && trims && at < lexer->end && *at == '\n')
        after++;
    lexer->line_starting = after > at && after[-1] == '\n';
    lexer->at = after;
}

static int comment(struct lexer *lexer, const char *tag, const char *content)
{
    struct token token = token_here(lexer, tag, 2);

    for (const char *at = content; at + 1 < lexer->end; at++) {
        if (at[0] == '#' && at[1] == '}') {
            char sign = at > content ? at[-1] : 0;

            tag_ended(lexer, at + 2, sign == '-' || sign == '+' ? sign : 0, true);
            return 0;
        }
    }
    return parse_fault(lexer->run, &token, "the comment has no end");
}

/* {% raw %}: everything up to {% endraw %} is text. `at` stands behind the opening tag. */
static int raw(struct lexer *lexer, const char *tag)
{
    struct token token = token_here(lexer, tag, 2);

    for (const char *at = lexer->at; at + 1 < lexer->end; at++) {
        const char *word = at + 2;
        char sign = 0, end_sign = 0;

        if (at[0] != '{' || at[1] != '%')
            continue;
        if (word < lexer->end && (*word == '-' || *word == '+'))
            sign = *word++;
        word = skip_space(lexer, word);
        if (!starts(lexer, word, "endraw"))
            continue;
        word = skip_space(lexer, word + 6);
        if (word < lexer->end && (*word == '-' || *word == '+'))
            end_sign = *word++;
        if (!starts(lexer, word, "%}"))
            continue;
        if (put_data(lexer, lexer->at, at, sign, false) < 0)
            return E_MEMORY;
        tag_ended(lexer, word + 2, end_sign, true);
        return 0;
    }
    return parse_fault(lexer->run, &token, "the raw block has no end");
}

/* Whether a {% raw %} begins at `tag`: the place behind it, or NULL. */
static const char *raw_begin(const struct lexer *lexer, const char *tag, char *ret_sign)
{
    const char *at = tag + 2;

    if (at < lexer->end && (*at == '-' || *at == '+'))
        at++;
    at = skip_space(lexer, at);
    if (!starts(lexer, at, "raw"))
        return NULL;
    at = skip_space(lexer, at + 3);
    *ret_sign = starts(lexer, at, "-%}") ? '-' : 0;
    at += *ret_sign == '-';
    return starts(lexer, at, "%}") ? at + 2 : NULL;
}

/* --- inside a tag ----------------------------------------------------------------------------- */

static const char *digits(const struct lexer *lexer, const char *at)
{
    while (at < lexer->end) {
        if (*at >= '0' && *at <= '9')
            at++;
        else if (*at == '_' && at + 1 < lexer->end && at[1] >= '0' && at[1] <= '9')
            at += 2;
        else
            break;
    }
    return at;
}

static bool is_digit(const struct lexer *lexer, const char *at)
{
    return at < lexer->end && *at >= '0' && *at <= '9';
}

/* The end of a float that begins at `at`; NULL when it is none. */
static const char *float_end(const struct lexer *lexer, const char *at)
{
    const char *end = digits(lexer, at), *exponent;
    bool found = false;

    if (at[-1] == '.') /* there is always a tag before: x.0.1 is no number */
        return NULL;
    if (end < lexer->end && *end == '.' && is_digit(lexer, end + 1)) {
        end = digits(lexer, end + 1);
        found = true;
    }
    if (end < lexer->end && (*end | 32) == 'e') {
        exponent = end + 1;
        if (exponent < lexer->end && (*exponent == '+' || *exponent == '-'))
            exponent++;
        if (is_digit(lexer, exponent)) {
            end = digits(lexer, exponent);
            found = true;
        }
    }
    return found ? end : NULL;
}

static bool is_base_digit(char c, int base)
{
    int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' ? (c | 32) - 'a' + 10 : 99;

    return value >= 0 && value < base;
}

static const char *integer_end(const struct lexer *lexer, const char *at)
{
    int base = 0;

    if (*at == '0' && at + 1 < lexer->end)
        base = (at[1] | 32) == 'x' ? 16 : (at[1] | 32) == 'o' ? 8 : (at[1] | 32) == 'b' ? 2 : 0;
    if (base) {
        const char *end = at + 2, *last = at;

        while (end < lexer->end && (*end == '_' || is_base_digit(*end, base))) {
            if (*end == '_' && (end + 1 == lexer->end || !is_base_digit(end[1], base)))
                break;
            last = ++end;
        }
        return last > at + 2 ? last : at + 1;
    }
    if (*at != '0')
        return digits(lexer, at);
    while (at < lexer->end && (*at == '0' || (*at == '_' && at + 1 < lexer->end && at[1] == '0')))
        at++;
    return at;
}

static int number(struct lexer *lexer)
{
    const char *start = lexer->at, *end = float_end(lexer, start);
    enum token_kind kind = end ? TOKEN_FLOAT : TOKEN_INTEGER;

    if (!end)
        end = integer_end(lexer, start);
    lexer->at = end;
    return put(lexer, kind, start, (size_t)(end - start));
}

static bool is_word(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c >= 0x80;
}

static int word(struct lexer *lexer)
{
    const char *start = lexer->at;

    while (lexer->at < lexer->end && is_word((unsigned char)*lexer->at))
        lexer->at++;
    return put(lexer, TOKEN_NAME, start, (size_t)(lexer->at - start));
}

static int string(struct lexer *lexer)
{
    const char *start = lexer->at, *at = start + 1;
    struct token token = token_here(lexer, start, 1);

    while (at < lexer->end && *at != *start)
        at += *at == '\\' && at + 1 < lexer->end ? 2 : 1;
    if (at >= lexer->end)
        return parse_fault(lexer->run, &token, "the string has no end");
    lexer->at = at + 1;
    return put(lexer, TOKEN_STRING, start, (size_t)(lexer->at - start));
}

static const struct {
    const char *text;
    enum token_kind kind;
} operators[] = {
    {"//", TOKEN_FLOOR},       {"**", TOKEN_POWER},         {"==", TOKEN_EQUAL},
    {"!=", TOKEN_NOT_EQUAL},   {">=", TOKEN_GREATER_EQUAL}, {"<=", TOKEN_LESS_EQUAL},
    {"+", TOKEN_ADD},          {"-", TOKEN_SUBTRACT},       {"/", TOKEN_DIVIDE},
    {"*", TOKEN_MULTIPLY},     {"%", TOKEN_MODULO},         {"~", TOKEN_TILDE},
    {"[", TOKEN_LEFT_BRACKET}, {"]", TOKEN_RIGHT_BRACKET},  {"(", TOKEN_LEFT_PAREN},
    {")", TOKEN_RIGHT_PAREN},  {"{", TOKEN_LEFT_BRACE},     {"}", TOKEN_RIGHT_BRACE},
    {">", TOKEN_GREATER},      {"<", TOKEN_LESS},           {"=", TOKEN_ASSIGN},
    {".", TOKEN_DOT},          {":", TOKEN_COLON},          {"|", TOKEN_PIPE},
    {",", TOKEN_COMMA},        {";", TOKEN_SEMICOLON},
};

static int bracket(struct lexer *lexer, char c)
{
    struct token token = token_here(lexer, lexer->at, 1);
    char opened;

    if (c == '(' || c == '[' || c == '{') {
        if (lexer->bracket_count == sizeof lexer->brackets)
            return parse_fault(lexer->run, &token, "more than %d brackets inside one another",
                               JINJA_NESTING_MAX);
        lexer->brackets[lexer->bracket_count++] = c;
        return 0;
    }
    if (c != ')' && c != ']' && c != '}')
        return 0;
    if (lexer->bracket_count == 0)
        return parse_fault(lexer->run, &token, "unexpected '%c'", c);
    opened = lexer->brackets[--lexer->bracket_count];
    if (c != (opened == '(' ? ')' : opened == '[' ? ']' : '}'))
        return parse_fault(lexer->run, &token, "unexpected '%c', which does not close '%c'", c,
                           opened);
    return 0;
}

static int operator_(struct lexer *lexer)
{
    struct token token = token_here(lexer, lexer->at, 1);
    char shown[SHOWN_BYTES];
    size_t bytes;

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(lexer, lexer->at, operators[i].text))
            continue;
        bytes = strlen(operators[i].text);
        if (bytes == 1 && bracket(lexer, *lexer->at) < 0)
            return E_INVALID;
        lexer->at += bytes;
        return put(lexer, operators[i].kind, lexer->at - bytes, bytes);
    }
    (void)char_decode(lexer->at, &bytes);
    token.bytes = (uint32_t)bytes;
    token.kind = TOKEN_NAME;
    token_print(&token, shown, sizeof shown);
    return parse_fault(lexer->run, &token, "unexpected %s", shown);
}

/* One token of a tag. Returns 1 when it was the tag's end. */
static int tag_token(struct lexer *lexer, bool is_output)
{
    const char *close = is_output ? "}}" : "%}", *at;
    char sign;
    int r;

    lexer->at = skip_space(lexer, lexer->at);
    at = lexer->at;
    if (at == lexer->end)
        return 1;
    sign = *at == '-' || (*at == '+' && !is_output) ? *at : 0;
    if (lexer->bracket_count == 0 && starts(lexer, at + (sign != 0), close)) {
        r = put(lexer, is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, at, 2 + (sign != 0));
        tag_ended(lexer, at + 2 + (sign != 0), sign, !is_output);
        return r < 0 ? r : 1;
    }
    if (*at >= '0' && *at <= '9')
        return number(lexer);
    if (*at == '\'' || *at == '"')
        return string(lexer);
    return is_word((unsigned char)*at) ? word(lexer) : operator_(lexer);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The tag that begins at `tag`, the text before it included. */
static int tag(struct lexer *lexer, const char *tag_start)
{
    bool is_output = tag_start[1] == '{';
    const char *after = tag_start + 2;
    char sign = after < lexer->end ? *after : 0, raw_sign;
    const char *raw_content;
    int r;

    if (sign != '-' && sign != '+')
        sign = 0;
    r = put_data(lexer, lexer->at, tag_start, sign, is_output);
    if (r < 0)
        return r;
    if (tag_start[1] == '#')
        return comment(lexer, tag_start, after + (sign != 0));
    raw_content = is_output ? NULL : raw_begin(lexer, tag_start, &raw_sign);
    if (raw_content) {
        tag_ended(lexer, raw_content, raw_sign, false);
        return raw(lexer, tag_start);
    }
    lexer->at = after + (sign != 0);
    lexer->bracket_count = 0;
    r = put(lexer, is_output ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN, tag_start, 2);
    while (r == 0)
        r = tag_token(lexer, is_output);
    return r < 0 ? r : 0;
}

int lexer_run(struct run *run, const char *source, size_t bytes, struct token **ret_tokens)
{
    struct lexer lexer = {.run = run,
                          .at = source,
                          .end = source + bytes,
                          .counted = source,
                          .line = 1,
                          .column = 1,
                          .line_starting = true};
    int r = 0;

    while (r == 0 && lexer.at < lexer.end) {
        const char *at = lexer.at;

        while (at + 1 < lexer.end &&
               !(at[0] == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#')))
            at++;
        if (at + 1 >= lexer.end) {
            r = put(&lexer, TOKEN_DATA, lexer.at, (size_t)(lexer.end - lexer.at));
            break;
        }
        r = tag(&lexer, at);
    }
    if (r == 0)
        r = put(&lexer, TOKEN_END, lexer.end, 0);
    if (r == 0)
        *ret_tokens = lexer.tokens;
    return r;
}
