/* jinja_parser.c -- tokens to the tree: the tags. Expressions are in jinja_expression.c. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/base/utf8.h"
#include "engine/text/jinja_text.h"
#include "engine/text/jinja_tree.h"

enum {
    SHOWN_ROOM = 64,
    PARSE_MEMORY_MIN = 1 << 18,
    PARSE_MEMORY_PER_BYTE = 256, /* "{{a}}" is three tokens and two nodes */
};

/* --- small things ----------------------------------------------------------------------------- */

int parser_fault(struct parser *parser, const char *format, ...)
{
    char message[sizeof parser->run->fault->message];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return parse_fault(parser->run, parser->at, "%s", message);
}

int parser_nest(struct parser *parser)
{
    if (parser->nesting >= JINJA_NESTING_MAX)
        return parser_fault(parser, "more than %d tags or brackets inside one another",
                            JINJA_NESTING_MAX);
    parser->nesting++;
    return 0;
}

struct node *parser_node(struct parser *parser, enum node_kind kind, const struct token *token)
{
    struct node *node = run_take(parser->run, 1, sizeof *node);

    if (node) {
        node->kind = kind;
        node->line = token->line;
        node->column = token->column;
    }
    return node;
}

/* Constants are read by many threads at once: what others find out when they need it is known. */
struct text *parser_text(struct parser *parser, const char *data, size_t bytes)
{
    struct text *text = text_lend(parser->run, data, bytes);

    if (text) {
        (void)text_chars(text);
        text->hash = text_hash(data, bytes);
    }
    return text;
}

int parser_name(struct parser *parser, const struct token *token, uint32_t *ret_number)
{
    struct jinja *jinja = parser->jinja;
    const struct text shown = {.data = token->text, .bytes = token->bytes};
    const struct value *known = dict_find(jinja->name_numbers, &shown);
    struct text *text;

    if (known) {
        *ret_number = (uint32_t)known->integer;
        return 0;
    }
    text = parser_text(parser, token->text, token->bytes);
    if (!text)
        return E_MEMORY;
    if (jinja->name_count == parser->name_room) {
        uint32_t room = parser->name_room ? parser->name_room * 2 : 64;
        struct text **names = run_take(parser->run, room, sizeof *names);

        if (!names)
            return E_MEMORY;
        if (jinja->name_count > 0)
            memcpy(names, jinja->names, jinja->name_count * sizeof *names);
        jinja->names = names;
        parser->name_room = room;
    }
    jinja->names[jinja->name_count] = text;
    *ret_number = jinja->name_count++;
    return dict_put(parser->run, jinja->name_numbers, value_text(text), value_int(*ret_number));
}

bool token_is_name(const struct token *token, const char *name)
{
    return token->kind == TOKEN_NAME && token->bytes == strlen(name) &&
           memcmp(token->text, name, token->bytes) == 0;
}

bool parser_skip(struct parser *parser, enum token_kind kind)
{
    if (parser->at->kind != kind)
        return false;
    parser->at++;
    return true;
}

bool parser_skip_name(struct parser *parser, const char *name)
{
    if (!token_is_name(parser->at, name))
        return false;
    parser->at++;
    return true;
}

int parser_expect(struct parser *parser, enum token_kind kind, const char *what)
{
    char shown[SHOWN_ROOM];

    if (parser_skip(parser, kind))
        return 0;
    token_print(parser->at, shown, sizeof shown);
    return parser_fault(parser, "%s is expected here, not %s", what, shown);
}

/* --- bodies ----------------------------------------------------------------------------------- */

static int parse_tag(struct parser *parser, struct node **ret_node);

/* A list of nodes under construction. */
struct chain {
    struct node *first;
    struct node **last;
};

static void chain_put(struct chain *chain, struct node *node)
{
    *chain->last = node;
    chain->last = &node->next;
}

static int parse_output(struct parser *parser, struct node **ret_node)
{
    struct node *node = parser_node(parser, NODE_OUTPUT, parser->at);
    int r;

    if (!node)
        return E_MEMORY;
    parser->at++;
    r = parse_tuple(parser, 0, NULL, &node->items);
    if (r == 0)
        r = parser_expect(parser, TOKEN_OUTPUT_END, "'}}'");
    *ret_node = node;
    return r;
}

static bool is_end_word(const struct parser *parser, const char *const *words)
{
    for (; *words; words++) {
        if (token_is_name(&parser->at[1], *words))
            return true;
    }
    return false;
}

/* Up to a tag that starts with one of `words` (NULL-terminated; NULL: up to the template's end).
 * The parser then stands on that word. */
static int parse_body(struct parser *parser, const char *const *words, const struct token *opener,
                      struct node **ret_body)
{
    struct chain chain = {.last = &chain.first};
    int r = parser_nest(parser);

    while (r == 0 && parser->at->kind != TOKEN_END) {
        struct node *node = NULL;

        if (parser->at->kind == TOKEN_DATA) {
            node = parser_node(parser, NODE_DATA, parser->at);
            if (!node)
                return E_MEMORY;
            node->constant = value_text(parser_text(parser, parser->at->text, parser->at->bytes));
            if (!node->constant.text)
                return E_MEMORY;
            parser->at++;
        } else if (parser->at->kind == TOKEN_OUTPUT_BEGIN) {
            r = parse_output(parser, &node);
        } else if (words && is_end_word(parser, words)) {
            parser->at++;
            parser->nesting--;
            *ret_body = chain.first;
            return 0;
        } else {
            r = parse_tag(parser, &node);
        }
        if (r == 0 && node)
            chain_put(&chain, node);
    }
    if (r < 0)
        return r;
    if (words)
        return parse_fault(parser->run, opener, "the tag '%.*s' has no '%s'", (int)opener->bytes,
                           opener->text, words[0]);
    parser->nesting--;
    *ret_body = chain.first;
    return 0;
}

/* The rest of an opening tag, then its body; the parser then stands on the end word. */
static int parse_block(struct parser *parser, const char *const *words, const struct token *opener,
                       struct node **ret_body)
{
    int r;

    parser_skip(parser, TOKEN_COLON);
    r = parser_expect(parser, TOKEN_BLOCK_END, "'%}'");
    return r < 0 ? r : parse_body(parser, words, opener, ret_body);
}

/* The same with one end word, which is passed over. */
static int parse_whole_block(struct parser *parser, const char *end, const struct token *opener,
                             struct node **ret_body)
{
    const char *const words[] = {end, NULL};
    int r = parse_block(parser, words, opener, ret_body);

    if (r == 0)
        parser->at++;
    return r;
}

/* --- tags ------------------------------------------------------------------------------------- */

static int parse_if(struct parser *parser, struct node *node)
{
    static const char *const words[] = {"endif", "elif", "else", NULL};
    const struct token *opener = parser->at - 1;
    struct pair **last = &node->choice.branches;

    for (;;) {
        struct pair *branch = run_take(parser->run, 1, sizeof *branch);
        int r;

        if (!branch)
            return E_MEMORY;
        *last = branch;
        last = &branch->next;
        r = parse_tuple(parser, TUPLE_PLAIN, NULL, &branch->first);
        if (r == 0)
            r = parse_block(parser, words, opener, &branch->second);
        if (r < 0)
            return r;
        if (parser_skip_name(parser, "elif"))
            continue;
        if (parser_skip_name(parser, "else"))
            return parse_whole_block(parser, "endif", opener, &node->choice.otherwise);
        parser->at++;
        return 0;
    }
}

static int parse_for(struct parser *parser, struct node *node)
{
    static const char *const words[] = {"endfor", "else", NULL};
    const struct token *opener = parser->at - 1;
    struct for_node *loop = run_take(parser->run, 1, sizeof *loop);
    int r;

    if (!loop)
        return E_MEMORY;
    node->loop = loop;
    parser->loops++; /* `loop` is no name for its items, either */
    r = parse_target(parser, 0, "in", &loop->target);
    parser->loops--;
    if (r == 0 && !parser_skip_name(parser, "in"))
        r = parser_fault(parser, "'in' is expected here");
    if (r == 0)
        r = parse_tuple(parser, TUPLE_PLAIN, "recursive", &loop->over);
    if (r == 0 && parser_skip_name(parser, "if"))
        r = parse_expression(parser, &loop->test);
    if (r < 0)
        return r;
    loop->recursive = parser_skip_name(parser, "recursive");
    parser->jinja->traits.iterates_content |= node_is_content(parser->jinja, loop->over);
    parser->loops++;
    r = parse_block(parser, words, opener, &loop->body);
    parser->loops--;
    if (r < 0)
        return r;
    if (parser_skip_name(parser, "else"))
        return parse_whole_block(parser, "endfor", opener, &loop->otherwise);
    parser->at++;
    return 0;
}

static int parse_set(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    struct node *capture;
    int r = parse_target(parser, TUPLE_NAMESPACE, NULL, &node->set.target);

    if (r < 0)
        return r;
    if (parser_skip(parser, TOKEN_ASSIGN))
        return parse_tuple(parser, 0, NULL, &node->set.value);
    capture = parser_node(parser, NODE_CAPTURE, opener);
    if (!capture)
        return E_MEMORY;
    node->set.value = capture;
    if (parser->at->kind == TOKEN_PIPE)
        r = parse_filters(parser, capture, false, &node->set.value);
    return r < 0 ? r : parse_whole_block(parser, "endset", opener, &capture->items);
}

static int parse_with(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    struct pair **last = &node->with.pairs;
    int r = 0;

    while (r == 0 && parser->at->kind != TOKEN_BLOCK_END) {
        struct pair *pair = run_take(parser->run, 1, sizeof *pair);

        if (!pair)
            return E_MEMORY;
        if (node->with.pairs)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r == 0)
            r = parse_target(parser, 0, NULL, &pair->first);
        if (r == 0)
            r = parser_expect(parser, TOKEN_ASSIGN, "'='");
        if (r == 0)
            r = parse_expression(parser, &pair->second);
        *last = pair;
        last = &pair->next;
    }
    return r < 0 ? r : parse_whole_block(parser, "endwith", opener, &node->with.body);
}

/* "(a, b=1)" of a macro or call block. */
static int parse_signature(struct parser *parser, struct macro_node *macro)
{
    struct parameter **last = &macro->parameters;
    int r = parser_expect(parser, TOKEN_LEFT_PAREN, "'('");
    bool optional = false;

    while (r == 0 && parser->at->kind != TOKEN_RIGHT_PAREN) {
        struct parameter *parameter = run_take(parser->run, 1, sizeof *parameter);

        if (!parameter)
            return E_MEMORY;
        if (macro->parameters)
            r = parser_expect(parser, TOKEN_COMMA, "','");
        if (r == 0 && parser->at->kind != TOKEN_NAME)
            r = parser_fault(parser, "a parameter's name is expected here");
        if (r == 0)
            r = parser_name(parser, parser->at++, &parameter->name);
        if (r == 0 && parser_skip(parser, TOKEN_ASSIGN)) {
            optional = true;
            r = parse_expression(parser, &parameter->initial);
        } else if (r == 0 && optional) {
            r = parser_fault(parser, "a parameter without default follows one that has one");
        }
        *last = parameter;
        last = &parameter->next;
        macro->parameter_count++;
    }
    return r < 0 ? r : parser_expect(parser, TOKEN_RIGHT_PAREN, "')'");
}

/* What a macro's own names are used for inside another one counts there too. */
static void leave_macro(struct parser *parser, struct macro_node *outer, uint32_t loops)
{
    const struct macro_node *inner = parser->macro;

    if (outer) {
        outer->uses_caller |= inner->uses_caller;
        outer->uses_varargs |= inner->uses_varargs;
        outer->uses_kwargs |= inner->uses_kwargs;
    }
    parser->macro = outer;
    parser->loops = loops;
}

static int parse_macro(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    struct macro_node *macro = run_take(parser->run, 1, sizeof *macro), *outer = parser->macro;
    uint32_t loops = parser->loops;
    int r;

    if (!macro)
        return E_MEMORY;
    node->macro = macro;
    if (parser->at->kind != TOKEN_NAME)
        return parser_fault(parser, "a macro's name is expected here");
    macro->name = parser_text(parser, parser->at->text, parser->at->bytes);
    if (!macro->name || parser_name(parser, parser->at, &macro->variable) < 0)
        return E_MEMORY;
    parser->at++;
    parser->macro = macro;
    parser->loops = 0;
    r = parse_signature(parser, macro);
    if (r == 0)
        r = parse_whole_block(parser, "endmacro", opener, &macro->body);
    leave_macro(parser, outer, loops);
    return r;
}

static int parse_call(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    struct macro_node *caller = run_take(parser->run, 1, sizeof *caller), *outer = parser->macro;
    uint32_t loops = parser->loops;
    int r = 0;

    if (!caller)
        return E_MEMORY;
    node->kind = NODE_OUTPUT;
    parser->macro = caller;
    parser->loops = 0;
    if (parser->at->kind == TOKEN_LEFT_PAREN)
        r = parse_signature(parser, caller);
    if (r == 0)
        r = parse_expression(parser, &node->items);
    if (r == 0 && node->items->kind != NODE_CALL)
        r = parser_fault(parser, "a call is expected here");
    if (r == 0) {
        node->items->call.caller = caller;
        r = parse_whole_block(parser, "endcall", opener, &caller->body);
    }
    leave_macro(parser, outer, loops);
    return r;
}

static int parse_filter_tag(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    struct node *capture = parser_node(parser, NODE_CAPTURE, opener);
    int r;

    if (!capture)
        return E_MEMORY;
    node->kind = NODE_OUTPUT;
    r = parse_filters(parser, capture, true, &node->items);
    return r < 0 ? r : parse_whole_block(parser, "endfilter", opener, &capture->items);
}

/* Without inheritance a block is what stands in it; it is a scope of its own. */
static int parse_block_tag(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    int r;

    if (parser->at->kind != TOKEN_NAME)
        return parser_fault(parser, "a block's name is expected here");
    parser->at++;
    while (parser_skip_name(parser, "scoped"))
        continue;
    r = parse_whole_block(parser, "endblock", opener, &node->items);
    parser_skip(parser, TOKEN_NAME);
    return r;
}

static int parse_print(struct parser *parser, struct node *node)
{
    struct node **last = &node->items;
    int r;

    do {
        r = parse_expression(parser, last);
        if (r == 0)
            last = &(*last)->next;
    } while (r == 0 && parser_skip(parser, TOKEN_COMMA));
    return r;
}

/* The marks that tell training which text the model makes; rendering passes them over. */
static int parse_generation(struct parser *parser, struct node *node)
{
    const struct token *opener = parser->at - 1;
    uint32_t loops = parser->loops;
    int r;

    parser->loops = 0; /* as in Jinja, where the block is a function */
    r = parse_whole_block(parser, "endgeneration", opener, &node->items);
    parser->loops = loops;
    return r;
}

static int parse_jump(struct parser *parser, struct node *node)
{
    (void)node;
    if (parser->loops == 0)
        return parser_fault(parser, "there is no loop around this");
    return 0;
}

static const struct tag {
    const char *name;
    enum node_kind kind;
    int (*parse)(struct parser *parser, struct node *node); /* NULL: not supported */
} tags[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"with", NODE_WITH, parse_with},
    {"call", NODE_OUTPUT, parse_call},
    {"filter", NODE_OUTPUT, parse_filter_tag},
    {"block", NODE_SCOPE, parse_block_tag},
    {"print", NODE_OUTPUT, parse_print},
    {"generation", NODE_SCOPE, parse_generation},
    {"break", NODE_BREAK, parse_jump},
    {"continue", NODE_CONTINUE, parse_jump},
    {"extends", NODE_SCOPE, NULL},
    {"include", NODE_SCOPE, NULL},
    {"import", NODE_SCOPE, NULL},
    {"from", NODE_SCOPE, NULL},
    {"autoescape", NODE_SCOPE, NULL},
};

static int parse_tag(struct parser *parser, struct node **ret_node)
{
    const struct token *name = ++parser->at;
    char shown[SHOWN_ROOM];
    struct node *node;
    int r;

    token_print(name, shown, sizeof shown);
    if (name->kind != TOKEN_NAME)
        return parser_fault(parser, "a tag's name is expected here, not %s", shown);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!token_is_name(name, tags[i].name))
            continue;
        if (!tags[i].parse)
            return parser_fault(parser, "the tag %s is not supported", shown);
        node = parser_node(parser, tags[i].kind, name);
        if (!node)
            return E_MEMORY;
        parser->at++;
        r = tags[i].parse(parser, node);
        *ret_node = node;
        return r < 0 ? r : parser_expect(parser, TOKEN_BLOCK_END, "'%}'");
    }
    return parser_fault(parser, "the tag %s is not known", shown);
}

/* --- the whole -------------------------------------------------------------------------------- */

/* A copy with '\n' for every newline, without one at the very end. NULL: no memory. */
static char *normalize(struct run *run, const char *source, size_t bytes, size_t *ret_bytes)
{
    char *copy = run_take(run, bytes + 1, 1);
    size_t at = 0;

    for (size_t i = 0; copy && i < bytes; i++) {
        if (source[i] == '\r') {
            copy[at++] = '\n';
            i += i + 1 < bytes && source[i + 1] == '\n';
        } else {
            copy[at++] = source[i];
        }
    }
    *ret_bytes = at > 0 && copy[at - 1] == '\n' ? at - 1 : at;
    return copy;
}

static int check_utf8(const char *source, size_t bytes, struct fault *fault)
{
    for (size_t at = 0, one; at < bytes; at += one) {
        if (!utf8_next(source + at, bytes - at, &one, NULL))
            return fault_set(fault, E_INVALID, "the chat template is not UTF-8 (byte %zu)", at);
    }
    return 0;
}

/* What the words of the template tell. */
static void note_words(struct jinja *jinja, const struct token *token)
{
    for (; token->kind != TOKEN_END; token++) {
        if (token->kind == TOKEN_STRING && token->bytes == 11 &&
            memcmp(token->text + 1, "developer", 9) == 0)
            jinja->traits.knows_developer = true;
    }
}

static int number_own_names(struct parser *parser)
{
    static const char *const names[NAME_FIRST_FREE] = {"loop", "caller", "varargs", "kwargs"};

    for (uint32_t i = 0; i < NAME_FIRST_FREE; i++) {
        const struct token token = {.text = names[i], .bytes = (uint32_t)strlen(names[i])};
        uint32_t number;

        if (parser_name(parser, &token, &number) < 0)
            return E_MEMORY;
        must(number == i);
    }
    return 0;
}

/* The variables that are there without being given. */
static int fill_root(struct run *run, struct jinja *jinja)
{
    jinja->root = run_take(run, jinja->name_count, sizeof *jinja->root);
    if (!jinja->root)
        return E_MEMORY;
    for (uint32_t i = 0; i < jinja->name_count; i++) {
        const struct builtin *function =
            function_find(jinja->names[i]->data, jinja->names[i]->bytes);

        jinja->root[i] =
            function ? (struct value){.kind = VALUE_FUNCTION, .function = function} : UNSET;
    }
    return 0;
}

static int parse(struct run *run, struct jinja *jinja, const char *source, size_t bytes)
{
    struct parser parser = {.run = run, .jinja = jinja};
    struct token *tokens = NULL;
    char *copy = normalize(run, source, bytes, &bytes);
    int r;

    if (!copy)
        return E_MEMORY;
    jinja->name_numbers = dict_make(run, 64);
    if (!jinja->name_numbers || number_own_names(&parser) < 0)
        return E_MEMORY;
    jinja->source = copy;
    jinja->source_bytes = bytes;
    r = lexer_run(run, copy, bytes, &tokens);
    if (r < 0)
        return r;
    parser.at = tokens;
    note_words(jinja, tokens);
    r = parse_body(&parser, NULL, NULL, &jinja->body);
    return r < 0 ? r : fill_root(run, jinja);
}

int jinja_open(const char *source, size_t bytes, struct jinja **ret_jinja, struct fault *fault)
{
    struct fault own = {0};
    struct run run = {.fault = fault ? fault : &own, .steps_left = UINT64_MAX};
    struct arena *arena = NULL;
    struct jinja *jinja;
    int r;

    if (bytes > JINJA_SOURCE_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "the chat template has more than %d bytes",
                         JINJA_SOURCE_BYTES_MAX);
    r = check_utf8(source, bytes, fault);
    if (r < 0)
        return r;
    if (arena_open(4096 + bytes * 16, PARSE_MEMORY_MIN + bytes * PARSE_MEMORY_PER_BYTE, &arena) < 0)
        return fault_set(fault, E_MEMORY, "out of memory for the chat template");
    run.arena = arena;
    run.fault->code = 0;
    jinja = run_take(&run, 1, sizeof *jinja);
    r = E_MEMORY;
    if (jinja) {
        jinja->arena = arena;
        r = parse(&run, jinja, source, bytes);
    }
    if (r < 0) {
        arena_close(arena);
        return run.fault->code < 0 ? run.fault->code : r;
    }
    *ret_jinja = jinja;
    return 0;
}

void jinja_close(struct jinja *jinja)
{
    if (jinja)
        arena_close(jinja->arena);
}

const char *jinja_source(const struct jinja *jinja, size_t *ret_bytes)
{
    *ret_bytes = jinja->source_bytes;
    return jinja->source;
}

void jinja_traits_get(const struct jinja *jinja, struct jinja_traits *ret_traits)
{
    *ret_traits = jinja->traits;
}
