/* jinja_expression.c -- tokens to the tree: expressions, by recursive descent.
 *
 *     condition < or < and < not < comparison, in < + - < ~ < * / // % < ** < sign < filter, test
 *
 * weakest first; a filter takes what stands before it, its sign included: -1|abs is 1. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"
#include "engine/text/jinja_tree.h"

enum { SHOWN_ROOM = 64, NUMBER_ROOM = 4096 };

static int parse_or(struct parser *parser, struct node **ret_node);
static int parse_unary(struct parser *parser, bool with_filters, struct node **ret_node);

/* --- literals --------------------------------------------------------------------------------- */

static int constant(struct parser *parser, const struct token *token, struct value value,
                    struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_CONSTANT, token);

    if (!node)
        return E_MEMORY;
    node->constant = value;
    *ret_node = node;
    return 0;
}

static uint32_t hex_digits(const char *at, const char *end, size_t count, bool *ret_valid)
{
    uint32_t code = 0;

    *ret_valid = (size_t)(end - at) >= count;
    for (size_t i = 0; *ret_valid && i < count; i++) {
        char c = at[i];

        if (c >= '0' && c <= '9')
            code = code << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            code = code << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            *ret_valid = false;
    }
    return code;
}

/* Writes what the escape after a backslash at `at` stands for. Returns the place behind it, NULL
 * when it is none. */
static const char *unescape(const char *at, const char *end, char **out)
{
    static const char plain[] = "\\'\"abfnrtv";
    static const char codes[] = "\\'\"\a\b\f\n\r\t\v";
    const char *found = memchr(plain, *at, sizeof plain - 1);
    size_t count = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    uint32_t code = 0;
    bool valid;

    if (found) {
        *(*out)++ = codes[found - plain];
        return at + 1;
    }
    if (*at == '\n')
        return at + 1;
    if (*at >= '0' && *at <= '7') {
        for (size_t i = 0; i < 3 && at < end && *at >= '0' && *at <= '7'; i++)
            code = code * 8 + (uint32_t)(*at++ - '0');
        *out += char_encode(code, *out);
        return at;
    }
    if (count > 0) {
        code = hex_digits(at + 1, end, count, &valid);
        if (!valid || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return NULL;
        *out += char_encode(code, *out);
        return at + 1 + count;
    }
    if (*at == 'N')
        return NULL;  /* by a character's name */
    *(*out)++ = '\\'; /* no escape: both stay */
    return at;
}

/* Appends what a string token says. */
static int decode(struct parser *parser, const struct token *token, char **out)
{
    const char *at = token->text + 1, *end = token->text + token->bytes - 1;

    while (at < end) {
        if (*at != '\\') {
            *(*out)++ = *at++;
            continue;
        }
        at = unescape(at + 1, end, out);
        if (!at)
            return parse_fault(parser->run, token,
                               "the string has an escape that is not supported");
    }
    return 0;
}

/* 'one' "literal" out of several that stand side by side. */
static int parse_string(struct parser *parser, struct node **ret_node)
{
    const struct token *first = parser->at;
    size_t bytes = 0;
    struct text *text;
    char *data, *out;

    for (const struct token *token = first; token->kind == TOKEN_STRING; token++)
        bytes += token->bytes;
    data = out = run_take(parser->run, bytes, 1); /* no escape is shorter than what it says */
    if (!data)
        return E_MEMORY;
    for (; parser->at->kind == TOKEN_STRING; parser->at++) {
        int r = decode(parser, parser->at, &out);

        if (r < 0)
            return r;
    }
    text = parser_text(parser, data, (size_t)(out - data));
    return text ? constant(parser, first, value_text(text), ret_node) : E_MEMORY;
}

static int parse_number(struct parser *parser, struct node **ret_node)
{
    const struct token *token = parser->at++;
    char digits[NUMBER_ROOM];
    struct value value;
    size_t count = 0, start = 0;
    unsigned base = 10;

    if (token->bytes >= sizeof digits)
        return parse_fault(parser->run, token, "the number is too long");
    for (uint32_t i = 0; i < token->bytes; i++) {
        if (token->text[i] != '_')
            digits[count++] = token->text[i];
    }
    digits[count] = 0;
    if (token->kind == TOKEN_FLOAT)
        return constant(parser, token, value_float(strtod(digits, NULL)), ret_node);
    if (count > 2 && digits[0] == '0' && (digits[1] | 32) > '9') {
        base = (digits[1] | 32) == 'x' ? 16 : (digits[1] | 32) == 'o' ? 8 : 2;
        start = 2;
    }
    if (number_read(parser->run, digits + start, count - start, base, false, &value) < 0)
        return run_failed(parser->run);
    return constant(parser, token, value, ret_node);
}

static int parse_word(struct parser *parser, struct node **ret_node)
{
    const struct token *token = parser->at++;
    struct node *node;

    if (token_is_name(token, "true") || token_is_name(token, "True"))
        return constant(parser, token, value_bool(true), ret_node);
    if (token_is_name(token, "false") || token_is_name(token, "False"))
        return constant(parser, token, value_bool(false), ret_node);
    if (token_is_name(token, "none") || token_is_name(token, "None"))
        return constant(parser, token, NONE, ret_node);
    if (parser->macro) {
        parser->macro->uses_caller |= token_is_name(token, "caller");
        parser->macro->uses_varargs |= token_is_name(token, "varargs");
        parser->macro->uses_kwargs |= token_is_name(token, "kwargs");
    }
    node = parser_node(parser, NODE_NAME, token);
    if (!node)
        return E_MEMORY;
    *ret_node = node;
    return parser_name(parser, token, &node->name);
}

static int parse_list(struct parser *parser, struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_LIST, parser->at), **last;
    int r = 0;

    if (!node)
        return E_MEMORY;
    parser->at++;
    last = &node->items;
    while (r == 0 && parser->at->kind != TOKEN_RIGHT_BRACKET) {
        if (node->items)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r < 0 || parser->at->kind == TOKEN_RIGHT_BRACKET)
            break;
        r = parse_expression(parser, last);
        if (r == 0)
            last = &(*last)->next;
    }
    *ret_node = node;
    return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_BRACKET, "']'");
}

static int parse_dict(struct parser *parser, struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_DICT, parser->at);
    struct pair **last;
    int r = 0;

    if (!node)
        return E_MEMORY;
    parser->at++;
    last = &node->pairs;
    while (r == 0 && parser->at->kind != TOKEN_RIGHT_BRACE) {
        struct pair *pair;

        if (node->pairs)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r < 0 || parser->at->kind == TOKEN_RIGHT_BRACE)
            break;
        pair = run_take(parser->run, 1, sizeof *pair);
        if (!pair)
            return E_MEMORY;
        r = parse_expression(parser, &pair->first);
        if (r == 0)
            r = parser_expect(parser, TOKEN_COLON, "':'");
        if (r == 0)
            r = parse_expression(parser, &pair->second);
        *last = pair;
        last = &pair->next;
    }
    *ret_node = node;
    return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_BRACE, "'}'");
}

static int parse_primary(struct parser *parser, unsigned flags, struct node **ret_node)
{
    const struct token *token = parser->at;
    char shown[SHOWN_ROOM];
    struct node *node;
    int r;

    switch (token->kind) {
    case TOKEN_NAME:
        if (!(flags & TUPLE_NAMESPACE) || token[1].kind != TOKEN_DOT)
            return parse_word(parser, ret_node);
        node = parser_node(parser, NODE_NAMESPACE_MEMBER, token);
        if (!node)
            return E_MEMORY;
        parser->at += 2;
        if (parser->at->kind != TOKEN_NAME)
            return parser_fault(parser, "a member's name is expected here");
        node->namespace_member.name = parser_text(parser, parser->at->text, parser->at->bytes);
        parser->at++;
        *ret_node = node;
        return node->namespace_member.name
                   ? parser_name(parser, token, &node->namespace_member.variable)
                   : E_MEMORY;
    case TOKEN_STRING:
        return parse_string(parser, ret_node);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(parser, ret_node);
    case TOKEN_LEFT_PAREN:
        parser->at++;
        r = parse_tuple(parser, TUPLE_BRACKETED | (flags & TUPLE_NAMESPACE), NULL, ret_node);
        return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_PAREN, "')'");
    case TOKEN_LEFT_BRACKET:
        return parse_list(parser, ret_node);
    case TOKEN_LEFT_BRACE:
        return parse_dict(parser, ret_node);
    default:
        token_print(token, shown, sizeof shown);
        return parser_fault(parser, "an expression is expected here, not %s", shown);
    }
}

/* --- what follows a value --------------------------------------------------------------------- */

/* One subscript: an expression or a slice, whose node then has no owner yet. */
static int parse_subscript(struct parser *parser, struct node **ret_node)
{
    struct node *slice = parser_node(parser, NODE_SLICE, parser->at);
    int r = 0;

    if (!slice)
        return E_MEMORY;
    if (parser->at->kind != TOKEN_COLON) {
        r = parse_expression(parser, &slice->slice.bounds[0]);
        if (r == 0 && parser->at->kind != TOKEN_COLON) {
            *ret_node = slice->slice.bounds[0];
            return 0;
        }
    }
    for (int i = 1; i < 3 && r == 0 && parser_skip(parser, TOKEN_COLON); i++) {
        enum token_kind kind = parser->at->kind;

        if (kind != TOKEN_COLON && kind != TOKEN_RIGHT_BRACKET && kind != TOKEN_COMMA)
            r = parse_expression(parser, &slice->slice.bounds[i]);
    }
    *ret_node = slice;
    return r;
}

/* owner[...], the parser standing behind the bracket. */
static int parse_element(struct parser *parser, struct node *owner, const struct token *token,
                         struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_ELEMENT, token), *key = NULL;
    int r = 0;

    if (!node)
        return E_MEMORY;
    if (parser->at->kind == TOKEN_RIGHT_BRACKET)
        key = parser_node(parser, NODE_TUPLE, token);
    else
        r = parse_subscript(parser, &key);
    if (!key || r < 0)
        return r < 0 ? r : E_MEMORY;
    if (parser->at->kind == TOKEN_COMMA) {
        struct node *tuple = parser_node(parser, NODE_TUPLE, token), **last = &key->next;

        if (!tuple)
            return E_MEMORY;
        tuple->items = key;
        while (r == 0 && parser_skip(parser, TOKEN_COMMA)) {
            r = parse_expression(parser, last);
            if (r == 0)
                last = &(*last)->next;
        }
        if (tuple->items->kind == NODE_SLICE && !tuple->items->slice.owner)
            r = parser_fault(parser, "a slice among several subscripts is not supported");
        key = tuple;
    }
    if (r == 0 && key->kind == NODE_SLICE && !key->slice.owner) {
        key->slice.owner = owner;
        node = key;
    } else {
        node->element.owner = owner;
        node->element.key = key;
    }
    *ret_node = node;
    return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_BRACKET, "']'");
}

static int parse_member(struct parser *parser, struct node *owner, struct node **ret_node)
{
    const struct token *token = parser->at++;
    struct node *node = parser_node(parser, NODE_MEMBER, token);

    if (!node)
        return E_MEMORY;
    *ret_node = node;
    if (token->kind == TOKEN_NAME) {
        node->member.owner = owner;
        node->member.name = parser_text(parser, token->text, token->bytes);
        return node->member.name ? 0 : E_MEMORY;
    }
    parser->at--;
    if (token->kind != TOKEN_INTEGER)
        return parser_fault(parser, "a name or an integer is expected after '.'");
    node->kind = NODE_ELEMENT;
    node->element.owner = owner;
    return parse_number(parser, &node->element.key);
}

/* (a, b=1, *c, **d), the parser standing behind the parenthesis. */
static int parse_arguments(struct parser *parser, struct argument **ret_arguments)
{
    struct argument **last = ret_arguments;
    enum argument_kind latest = ARGUMENT_PLAIN;
    int r = 0;

    while (r == 0 && parser->at->kind != TOKEN_RIGHT_PAREN) {
        struct argument *argument;

        if (last != ret_arguments)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r < 0 || parser->at->kind == TOKEN_RIGHT_PAREN)
            break;
        argument = run_take(parser->run, 1, sizeof *argument);
        if (!argument)
            return E_MEMORY;
        if (parser_skip(parser, TOKEN_MULTIPLY)) {
            argument->kind = ARGUMENT_SPREAD;
        } else if (parser_skip(parser, TOKEN_POWER)) {
            argument->kind = ARGUMENT_SPREAD_NAMED;
        } else if (parser->at->kind == TOKEN_NAME && parser->at[1].kind == TOKEN_ASSIGN) {
            argument->kind = ARGUMENT_NAMED;
            argument->name = parser_text(parser, parser->at->text, parser->at->bytes);
            if (!argument->name)
                return E_MEMORY;
            parser->at += 2;
        }
        if (argument->kind == ARGUMENT_PLAIN ? latest != ARGUMENT_PLAIN
                                             : argument->kind == latest && latest != ARGUMENT_NAMED)
            return parser_fault(parser, "this argument may not stand here");
        latest = argument->kind;
        r = parse_expression(parser, &argument->value);
        *last = argument;
        last = &argument->next;
    }
    return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_PAREN, "')'");
}

static int parse_call(struct parser *parser, struct node *callee, const struct token *token,
                      struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_CALL, token);

    if (!node)
        return E_MEMORY;
    node->call.callee = callee;
    *ret_node = node;
    return parse_arguments(parser, &node->call.arguments);
}

static int count_postfix(struct parser *parser, unsigned *count)
{
    return ++*count > JINJA_NESTING_MAX
               ? parser_fault(parser, "more than %d members, calls or filters in a row",
                              JINJA_NESTING_MAX)
               : 0;
}

static int parse_postfix(struct parser *parser, struct node **node)
{
    unsigned count = 0;
    int r = 0;

    while (r == 0) {
        const struct token *token = parser->at;

        if (parser_skip(parser, TOKEN_DOT))
            r = parse_member(parser, *node, node);
        else if (parser_skip(parser, TOKEN_LEFT_BRACKET))
            r = parse_element(parser, *node, token, node);
        else if (parser_skip(parser, TOKEN_LEFT_PAREN))
            r = parse_call(parser, *node, token, node);
        else
            return 0;
        if (r == 0)
            r = count_postfix(parser, &count);
    }
    return r;
}

/* "name" or "name.name" of a filter or test, and what is known by it. */
static int parse_builtin(struct parser *parser, enum node_kind kind, struct node *input,
                         struct node **ret_node)
{
    const struct token *token = parser->at;
    struct node *node = parser_node(parser, kind, token);
    size_t bytes;

    if (!node)
        return E_MEMORY;
    do {
        if (parser->at->kind != TOKEN_NAME)
            return parser_fault(parser, "the name of a %s is expected here",
                                kind == NODE_FILTER ? "filter" : "test");
        parser->at++;
    } while (parser_skip(parser, TOKEN_DOT));
    bytes = (size_t)(parser->at[-1].text + parser->at[-1].bytes - token->text);
    node->call.name = parser_text(parser, token->text, bytes);
    node->call.callee = input;
    node->call.builtin =
        kind == NODE_FILTER ? filter_find(token->text, bytes) : test_find(token->text, bytes);
    *ret_node = node;
    return node->call.name ? 0 : E_MEMORY;
}

int parse_filters(struct parser *parser, struct node *input, bool named_at_once,
                  struct node **ret_node)
{
    unsigned count = 0;
    int r = 0;

    *ret_node = input;
    while (r == 0 && (named_at_once || parser_skip(parser, TOKEN_PIPE))) {
        named_at_once = false;
        r = parse_builtin(parser, NODE_FILTER, *ret_node, ret_node);
        if (r == 0 && parser_skip(parser, TOKEN_LEFT_PAREN))
            r = parse_arguments(parser, &(*ret_node)->call.arguments);
        if (r == 0)
            r = count_postfix(parser, &count);
    }
    return r;
}

/* A test may take one argument without parentheses: `x is divisibleby 3`. */
static bool starts_argument(const struct parser *parser)
{
    switch (parser->at->kind) {
    case TOKEN_NAME:
        return !token_is_name(parser->at, "else") && !token_is_name(parser->at, "or") &&
               !token_is_name(parser->at, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
    case TOKEN_LEFT_BRACKET:
    case TOKEN_LEFT_BRACE:
        return true;
    default:
        return false;
    }
}

bool node_is_content(const struct jinja *jinja, const struct node *node)
{
    while (node->kind == NODE_FILTER)
        node = node->call.callee;
    switch (node->kind) {
    case NODE_NAME:
        return text_is(jinja->names[node->name], "content");
    case NODE_MEMBER:
        return text_is(node->member.name, "content");
    case NODE_ELEMENT:
        return node->element.key->kind == NODE_CONSTANT &&
               node->element.key->constant.kind == VALUE_TEXT &&
               text_is(node->element.key->constant.text, "content");
    default:
        return false;
    }
}

static int parse_test(struct parser *parser, struct node *input, struct node **ret_node)
{
    const struct token *token = parser->at;
    bool negated = parser_skip_name(parser, "not");
    struct argument *argument;
    struct node *node = NULL;
    int r = parse_builtin(parser, NODE_TEST, input, &node);

    if (r == 0 && parser_skip(parser, TOKEN_LEFT_PAREN)) {
        r = parse_arguments(parser, &node->call.arguments);
    } else if (r == 0 && starts_argument(parser)) {
        if (token_is_name(parser->at, "is"))
            return parser_fault(parser, "tests cannot be chained with 'is'");
        argument = run_take(parser->run, 1, sizeof *argument);
        if (!argument)
            return E_MEMORY;
        node->call.arguments = argument;
        r = parse_primary(parser, 0, &argument->value);
        if (r == 0)
            r = parse_postfix(parser, &argument->value);
    }
    if (r == 0 && text_is(node->call.name, "string"))
        parser->jinja->traits.asks_content_type |= node_is_content(parser->jinja, input);
    if (r == 0 && negated) {
        struct node *not_ = parser_node(parser, NODE_NOT, token);

        if (!not_)
            return E_MEMORY;
        not_->items = node;
        node = not_;
    }
    *ret_node = node;
    return r;
}

static int parse_filters_and_tests(struct parser *parser, struct node **node)
{
    unsigned count = 0;
    int r = 0;

    while (r == 0) {
        const struct token *token = parser->at;

        if (token->kind == TOKEN_PIPE)
            r = parse_filters(parser, *node, false, node);
        else if (parser_skip_name(parser, "is"))
            r = parse_test(parser, *node, node);
        else if (parser_skip(parser, TOKEN_LEFT_PAREN))
            r = parse_call(parser, *node, token, node);
        else
            return 0;
        if (r == 0)
            r = count_postfix(parser, &count);
    }
    return r;
}

/* --- operators -------------------------------------------------------------------------------- */

static int parse_unary(struct parser *parser, bool with_filters, struct node **ret_node)
{
    const struct token *token = parser->at;
    struct node *node = NULL;
    int r = parser_nest(parser);

    if (r < 0)
        return r;
    if (token->kind == TOKEN_SUBTRACT || token->kind == TOKEN_ADD) {
        node = parser_node(parser, token->kind == TOKEN_ADD ? NODE_POSITIVE : NODE_NEGATIVE, token);
        if (!node)
            return E_MEMORY;
        parser->at++;
        r = parse_unary(parser, false, &node->items);
    } else {
        r = parse_primary(parser, 0, &node);
    }
    if (r == 0)
        r = parse_postfix(parser, &node);
    if (r == 0 && with_filters)
        r = parse_filters_and_tests(parser, &node);
    parser->nesting--;
    if (r == 0)
        *ret_node = node;
    return r;
}

static int parse_signed(struct parser *parser, struct node **ret_node)
{
    return parse_unary(parser, true, ret_node);
}

/* An operator between two operands, by its token. */
struct infix {
    enum token_kind token;
    enum operation operation;
};
static const struct infix power_infixes[] = {{TOKEN_POWER, OPERATION_POWER}, {TOKEN_END, 0}};
static const struct infix product_infixes[] = {{TOKEN_MULTIPLY, OPERATION_MULTIPLY},
                                               {TOKEN_DIVIDE, OPERATION_DIVIDE},
                                               {TOKEN_FLOOR, OPERATION_FLOOR},
                                               {TOKEN_MODULO, OPERATION_MODULO},
                                               {TOKEN_END, 0}};
static const struct infix tilde_infixes[] = {{TOKEN_TILDE, 0}, {TOKEN_END, 0}};
static const struct infix sum_infixes[] = {
    {TOKEN_ADD, OPERATION_ADD}, {TOKEN_SUBTRACT, OPERATION_SUBTRACT}, {TOKEN_END, 0}};
static const struct infix comparison_infixes[] = {{TOKEN_EQUAL, OPERATION_EQUAL},
                                                  {TOKEN_NOT_EQUAL, OPERATION_NOT_EQUAL},
                                                  {TOKEN_LESS, OPERATION_LESS},
                                                  {TOKEN_LESS_EQUAL, OPERATION_LESS_EQUAL},
                                                  {TOKEN_GREATER, OPERATION_GREATER},
                                                  {TOKEN_GREATER_EQUAL, OPERATION_GREATER_EQUAL},
                                                  {TOKEN_END, 0}};

/* Steps over an operator of the list. */
static bool skip_infix(struct parser *parser, const struct infix *infixes,
                       enum operation *ret_operation)
{
    for (; infixes->token != TOKEN_END; infixes++) {
        if (parser_skip(parser, infixes->token)) {
            *ret_operation = infixes->operation;
            return true;
        }
    }
    return false;
}

/* Operands of one strength, from left to right; `inner` reads one. */
static int parse_chain(struct parser *parser, enum node_kind kind, const struct infix *infixes,
                       int (*inner)(struct parser *, struct node **), struct node **ret_node)
{
    struct node *node = NULL;
    struct operand **last = NULL;
    enum operation operation;
    const struct token *token;
    int r = inner(parser, ret_node);

    while (r == 0) {
        struct operand *operand;

        token = parser->at;
        if (!skip_infix(parser, infixes, &operation)) {
            if (kind != NODE_COMPARE)
                return 0;
            operation = OPERATION_IN;
            if (token_is_name(token, "not") && token_is_name(token + 1, "in")) {
                parser->at++;
                operation = OPERATION_NOT_IN;
            }
            if (!parser_skip_name(parser, "in"))
                return 0;
        }
        if (!node) {
            node = parser_node(parser, kind, token);
            if (!node)
                return E_MEMORY;
            node->chain.first = *ret_node;
            last = &node->chain.rest;
            *ret_node = node;
        }
        operand = run_take(parser->run, 1, sizeof *operand);
        if (!operand)
            return E_MEMORY;
        operand->operation = operation;
        r = inner(parser, &operand->node);
        *last = operand;
        last = &operand->next;
    }
    return r;
}

static int parse_power(struct parser *parser, struct node **ret_node)
{
    return parse_chain(parser, NODE_ARITHMETIC, power_infixes, parse_signed, ret_node);
}

static int parse_product(struct parser *parser, struct node **ret_node)
{
    return parse_chain(parser, NODE_ARITHMETIC, product_infixes, parse_power, ret_node);
}

static int parse_tilde(struct parser *parser, struct node **ret_node)
{
    return parse_chain(parser, NODE_CONCAT, tilde_infixes, parse_product, ret_node);
}

static int parse_sum(struct parser *parser, struct node **ret_node)
{
    return parse_chain(parser, NODE_ARITHMETIC, sum_infixes, parse_tilde, ret_node);
}

static int parse_not(struct parser *parser, struct node **ret_node)
{
    struct node *node;
    int r;

    if (!token_is_name(parser->at, "not"))
        return parse_chain(parser, NODE_COMPARE, comparison_infixes, parse_sum, ret_node);
    node = parser_node(parser, NODE_NOT, parser->at++);
    r = parser_nest(parser);
    if (!node || r < 0)
        return node ? r : E_MEMORY;
    *ret_node = node;
    r = parse_not(parser, &node->items);
    parser->nesting--;
    return r;
}

/* Operands between words. */
static int parse_words(struct parser *parser, enum node_kind kind, const char *word,
                       int (*inner)(struct parser *, struct node **), struct node **ret_node)
{
    struct node *node = NULL;
    struct operand **last = NULL;
    int r = inner(parser, ret_node);

    while (r == 0 && token_is_name(parser->at, word)) {
        struct operand *operand = run_take(parser->run, 1, sizeof *operand);

        if (!operand)
            return E_MEMORY;
        if (!node) {
            node = parser_node(parser, kind, parser->at);
            if (!node)
                return E_MEMORY;
            node->chain.first = *ret_node;
            last = &node->chain.rest;
            *ret_node = node;
        }
        parser->at++;
        r = inner(parser, &operand->node);
        *last = operand;
        last = &operand->next;
    }
    return r;
}

static int parse_and(struct parser *parser, struct node **ret_node)
{
    return parse_words(parser, NODE_AND, "and", parse_not, ret_node);
}

static int parse_or(struct parser *parser, struct node **ret_node)
{
    return parse_words(parser, NODE_OR, "or", parse_and, ret_node);
}

int parse_expression(struct parser *parser, struct node **ret_node)
{
    unsigned count = 0;
    int r = parser_nest(parser);

    if (r == 0)
        r = parse_or(parser, ret_node);
    while (r == 0 && token_is_name(parser->at, "if")) {
        struct node *node = parser_node(parser, NODE_CONDITION, parser->at++);

        if (!node)
            return E_MEMORY;
        node->condition.yes = *ret_node;
        *ret_node = node;
        r = parse_or(parser, &node->condition.test);
        if (r == 0 && parser_skip_name(parser, "else"))
            r = parse_expression(parser, &node->condition.no);
        if (r == 0)
            r = count_postfix(parser, &count);
    }
    parser->nesting--;
    return r;
}

/* --- tuples and targets ----------------------------------------------------------------------- */

static bool ends_tuple(const struct parser *parser, const char *end_word)
{
    enum token_kind kind = parser->at->kind;

    return kind == TOKEN_OUTPUT_END || kind == TOKEN_BLOCK_END || kind == TOKEN_RIGHT_PAREN ||
           (end_word && token_is_name(parser->at, end_word));
}

int parse_tuple(struct parser *parser, unsigned flags, const char *end_word, struct node **ret_node)
{
    const struct token *start = parser->at;
    struct node *first = NULL, **last = &first, *tuple;
    bool is_tuple = false;
    int r = parser_nest(parser);

    while (r == 0) {
        if (first)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r < 0 || ends_tuple(parser, end_word))
            break;
        if (flags & TUPLE_SIMPLE)
            r = parse_primary(parser, flags & TUPLE_NAMESPACE, last);
        else if (flags & TUPLE_PLAIN)
            r = parse_or(parser, last);
        else
            r = parse_expression(parser, last);
        if (r < 0)
            break;
        last = &(*last)->next;
        if (parser->at->kind != TOKEN_COMMA)
            break;
        is_tuple = true;
    }
    parser->nesting--;
    if (r < 0)
        return r;
    if (first && !is_tuple) {
        *ret_node = first;
        return 0;
    }
    if (!first && !(flags & TUPLE_BRACKETED))
        return parser_fault(parser, "an expression is expected here");
    tuple = parser_node(parser, NODE_TUPLE, start);
    if (!tuple)
        return E_MEMORY;
    tuple->items = first;
    *ret_node = tuple;
    return 0;
}

/* Whether something can be assigned to: names, members of namespaces, and tuples or lists of
 * them. */
static int check_target(struct parser *parser, const struct node *node, unsigned depth)
{
    static const char *const reserved[] = {"loop", "self"};

    switch (node->kind) {
    case NODE_NAME:
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved && parser->loops > 0; i++) {
            if (text_is(parser->jinja->names[node->name], reserved[i]))
                return parser_fault(parser, "'%s' cannot be assigned to in a loop", reserved[i]);
        }
        return 0;
    case NODE_NAMESPACE_MEMBER:
        return 0;
    case NODE_TUPLE:
    case NODE_LIST:
        for (const struct node *item = node->items; item; item = item->next) {
            if (check_target(parser, item, depth + 1) < 0)
                return E_INVALID;
        }
        return 0;
    default:
        return parser_fault(parser, "this cannot be assigned to");
    }
}

int parse_target(struct parser *parser, unsigned flags, const char *end_word,
                 struct node **ret_node)
{
    int r = parse_tuple(parser, TUPLE_SIMPLE | flags, end_word, ret_node);

    return r < 0 ? r : check_target(parser, *ret_node, 0);
}
