/* jinja_tree.h -- a template as tokens, then as a tree: what lexer, parser and evaluator share.
 *
 * Everything lies in the template's arena and is immutable once parsed, so that many threads may
 * evaluate it. Names are numbered; a variable is looked up by its number. */
#ifndef WEFT_JINJA_TREE_H
#define WEFT_JINJA_TREE_H

#include "engine/text/jinja_run.h"

/* --- tokens ---- */

enum token_kind {
    TOKEN_END,
    TOKEN_DATA, /* text between tags, already trimmed */
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_NAME,
    TOKEN_STRING, /* with its quotes */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_ADD,
    TOKEN_SUBTRACT,
    TOKEN_DIVIDE,
    TOKEN_FLOOR,
    TOKEN_MULTIPLY,
    TOKEN_POWER,
    TOKEN_MODULO,
    TOKEN_TILDE,
    TOKEN_LEFT_BRACKET,
    TOKEN_RIGHT_BRACKET,
    TOKEN_LEFT_PAREN,
    TOKEN_RIGHT_PAREN,
    TOKEN_LEFT_BRACE,
    TOKEN_RIGHT_BRACE,
    TOKEN_EQUAL,
    TOKEN_NOT_EQUAL,
    TOKEN_GREATER,
    TOKEN_GREATER_EQUAL,
    TOKEN_LESS,
    TOKEN_LESS_EQUAL,
    TOKEN_ASSIGN,
    TOKEN_DOT,
    TOKEN_COLON,
    TOKEN_PIPE,
    TOKEN_COMMA,
    TOKEN_SEMICOLON,
};

struct token {
    enum token_kind kind;
    uint32_t line; /* both from 1; columns are characters */
    uint32_t column;
    uint32_t bytes;
    const char *text;
};

/* Cuts `source` (well-formed UTF-8 with '\n' for every newline) up; the last token is TOKEN_END. */
int lexer_run(struct run *run, const char *source, size_t bytes, struct token **ret_tokens);
/* "end of the template", "'%}'": what a user sees of a token. */
void token_print(const struct token *token, char *ret_text, size_t room);
int parse_fault(struct run *run, const struct token *token, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- the tree ---- */

enum node_kind {
    /* statements */
    NODE_DATA,
    NODE_OUTPUT,
    NODE_IF,
    NODE_FOR,
    NODE_SET,
    NODE_WITH,
    NODE_MACRO,
    NODE_SCOPE,
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_NAMESPACE_MEMBER, /* a target only */
    NODE_MEMBER,
    NODE_ELEMENT,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ARITHMETIC,
    NODE_CONCAT,
    NODE_COMPARE,
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_CONDITION,
    NODE_CAPTURE, /* statements whose text is the value: set blocks, filter blocks */
};

enum argument_kind { ARGUMENT_PLAIN, ARGUMENT_NAMED, ARGUMENT_SPREAD, ARGUMENT_SPREAD_NAMED };
struct argument {
    enum argument_kind kind;
    struct text *name;
    struct node *value;
    struct argument *next;
};

/* a + b - c is the first operand and then (+ b) (- c), so that long sums nest nothing. */
struct operand {
    enum operation operation;
    struct node *node;
    struct operand *next;
};

struct parameter {
    uint32_t name;
    struct node *initial; /* NULL: none */
    struct parameter *next;
};

struct macro_node {
    struct text *name; /* NULL: the body of a call block */
    uint32_t variable; /* that it becomes */
    struct parameter *parameters;
    uint32_t parameter_count;
    struct node *body;
    bool uses_caller;
    bool uses_varargs;
    bool uses_kwargs;
};

/* One branch of an if, a pair of a dict, an assignment of a with. */
struct pair {
    struct node *first;
    struct node *second;
    struct pair *next;
};

struct for_node {
    struct node *target;
    struct node *over;
    struct node *test; /* NULL: every item */
    struct node *body;
    struct node *otherwise;
    bool recursive;
};

struct node {
    enum node_kind kind;
    uint32_t line;
    uint32_t column;
    struct node *next; /* of a body, a list, an output */
    union {
        struct value constant; /* DATA, CONSTANT */
        uint32_t name;
        struct node *items; /* OUTPUT, LIST, TUPLE, SCOPE, CAPTURE; NOT, NEGATIVE, POSITIVE: one */
        struct pair *pairs; /* DICT */
        struct for_node *loop;
        struct macro_node *macro;
        struct {
            struct pair *branches;
            struct node *otherwise;
        } choice; /* IF */
        struct {
            struct node *target;
            struct node *value;
        } set;
        struct {
            struct pair *pairs; /* target, value */
            struct node *body;
        } with;
        struct {
            struct node *owner;
            struct text *name;
        } member;
        struct {
            uint32_t variable;
            struct text *name;
        } namespace_member;
        struct {
            struct node *owner;
            struct node *key;
        } element;
        struct {
            struct node *owner;
            struct node *bounds[3]; /* NULL: none */
        } slice;
        struct {
            struct node *callee; /* FILTER, TEST: what goes in */
            struct argument *arguments;
            struct macro_node *caller;     /* of a call block */
            const struct builtin *builtin; /* FILTER, TEST; NULL: there is none of that name */
            struct text *name;
        } call;
        struct {
            struct node *first;
            struct operand *rest;
        } chain; /* ARITHMETIC, CONCAT, COMPARE, AND, OR */
        struct {
            struct node *test;
            struct node *yes;
            struct node *no; /* NULL: undefined */
        } condition;
    };
};

/* Names with a meaning of their own have the first numbers. */
enum { NAME_LOOP, NAME_CALLER, NAME_VARARGS, NAME_KWARGS, NAME_FIRST_FREE };

struct jinja {
    struct arena *arena;
    const char *source;
    size_t source_bytes;
    struct node *body;
    struct text **names;
    struct value *root; /* [name_count]: the functions, before any variable is set */
    uint32_t name_count;
    struct dict *name_numbers; /* text -> number */
    struct jinja_traits traits;
};

/* --- the parser's own two halves ---- */

struct parser {
    struct run *run;
    struct jinja *jinja;
    const struct token *at;
    uint32_t name_room;
    uint32_t nesting;
    uint32_t loops; /* around this place, within the macro */
    struct macro_node *macro;
};

int parser_fault(struct parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct node *parser_node(struct parser *parser, enum node_kind kind, const struct token *token);
int parser_name(struct parser *parser, const struct token *token, uint32_t *ret_number);
bool token_is_name(const struct token *token, const char *name);
bool parser_skip(struct parser *parser, enum token_kind kind);
bool parser_skip_name(struct parser *parser, const char *name);
int parser_expect(struct parser *parser, enum token_kind kind, const char *what);
struct text *parser_text(struct parser *parser, const char *data, size_t bytes);
int parser_nest(struct parser *parser);
/* message.content, message['content'] or content, perhaps filtered. */
bool node_is_content(const struct jinja *jinja, const struct node *node);

enum {
    TUPLE_SIMPLE = 1 << 0,    /* of names only: a target */
    TUPLE_PLAIN = 1 << 1,     /* no `a if b else c` */
    TUPLE_BRACKETED = 1 << 2, /* may be empty */
    TUPLE_NAMESPACE = 1 << 3, /* ns.member is a target */
};
int parse_tuple(struct parser *parser, unsigned flags, const char *end_word,
                struct node **ret_node);
int parse_expression(struct parser *parser, struct node **ret_node);
int parse_target(struct parser *parser, unsigned flags, const char *end_word,
                 struct node **ret_node);
/* A filter's name and arguments, then more after '|'. */
int parse_filters(struct parser *parser, struct node *input, bool named_at_once,
                  struct node **ret_node);

#endif
