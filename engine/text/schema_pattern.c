/* schema_pattern.c -- the sets of "pattern", "patternProperties" and "format", made once for each
 * expression. */
#include <string.h>

#include "engine/text/grammar_internal.h"
#include "engine/text/regex_grammar.h"
#include "engine/text/schema_internal.h"

struct schema_pattern {
    struct schema_pattern *next;
    const char *text;
    size_t bytes;
    bool whole; /* a format: matches the whole text, a pattern anywhere in it */
    const struct regular *set;
};

enum {
    PATTERN_NODE_MAX = 1 << 16,
    PATTERN_WORK_MAX = 4 << 20, /* of one expression's automaton */
};

/* The expression as nodes of a grammar of its own. */
static int read_expression(struct schema_compiler *compiler, const json_t *schema,
                           const char *keyword, const struct schema_pattern *pattern,
                           struct grammar **ret_grammar, int32_t *ret_node)
{
    struct regex_options options = {.search = !pattern->whole};
    struct grammar *grammar = NULL;
    struct fault why = {0};
    int r = grammar_open(PATTERN_NODE_MAX, &grammar, &why);

    if (r == 0)
        r = regex_grammar_build(grammar, pattern->text, pattern->bytes, &options, ret_node, &why);
    if (r == 0) {
        *ret_grammar = grammar;
        return 0;
    }
    grammar_close(grammar);
    if (r == E_MEMORY)
        return schema_exhausted(compiler, r, keyword);
    return schema_refuse(compiler, r, schema, keyword, "%.160s", why.message);
}

static int make_pattern(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                        struct schema_pattern *pattern)
{
    struct regular_space space = compiler->regular;
    struct grammar *grammar;
    int32_t node;
    int r = read_expression(compiler, schema, keyword, pattern, &grammar, &node);

    if (r < 0)
        return r;
    if (space.work_left > PATTERN_WORK_MAX)
        space.work_left = PATTERN_WORK_MAX;
    compiler->regular.work_left -= space.work_left;
    r = regular_from_grammar(&space, grammar, node, &pattern->set);
    compiler->regular.work_left += space.work_left > 0 ? space.work_left : 0;
    grammar_close(grammar);
    if (r == E_TOO_LARGE)
        return schema_refuse(compiler, r, schema, keyword,
                             "takes too large an automaton: shorten it, or its repetitions");
    return r < 0 ? schema_exhausted(compiler, r, keyword) : 0;
}

int schema_pattern_set(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                       const char *text, size_t bytes, const struct regular **ret_set)
{
    struct schema_pattern *pattern = compiler->patterns;
    bool whole = strcmp(keyword, "format") == 0;
    int r;

    for (; pattern; pattern = pattern->next) {
        if (!schema_spend(compiler, 1))
            return E_TOO_LARGE;
        if (pattern->bytes == bytes && pattern->whole == whole &&
            memcmp(pattern->text, text, bytes) == 0)
            break;
    }
    if (!pattern) {
        if (bytes > SCHEMA_PATTERN_BYTES_MAX)
            return schema_refuse(compiler, E_TOO_LARGE, schema, keyword, "is longer than %d bytes",
                                 SCHEMA_PATTERN_BYTES_MAX);
        pattern = schema_take(compiler, 1, sizeof *pattern);
        if (!pattern)
            return E_MEMORY;
        *pattern = (struct schema_pattern){compiler->patterns, text, bytes, whole, NULL};
        r = make_pattern(compiler, schema, keyword, pattern);
        if (r < 0)
            return r;
        compiler->patterns = pattern;
    }
    *ret_set = pattern->set;
    return 0;
}

/* ---- expressions whose automaton is too large: node by node, repetitions counted ---- */

/* A literal within a JSON string: what is written in one way as it stands. */
static int32_t copy_literal(struct schema_compiler *compiler, const char *text, size_t bytes)
{
    int32_t *nodes = schema_take(compiler, bytes + 1, sizeof *nodes);
    size_t count = 0, one;

    if (!nodes)
        return E_MEMORY;
    for (size_t at = 0; at < bytes; at += one) {
        struct grammar_range range;

        range.first = range.last = regular_code_point(text + at, &one);
        nodes[count++] = schema_text_class(compiler, &range, 1);
    }
    return grammar_sequence(compiler->grammar, nodes, count);
}

/* The node in the compiler's grammar; `copies` has those of its children. */
static int32_t copy_node(struct schema_compiler *compiler, const struct grammar *from,
                         const struct grammar_node *node, const int32_t *copies)
{
    const int32_t *children;
    int32_t *nodes;

    if (!schema_spend(compiler, 1 + (int64_t)node->count))
        return E_TOO_LARGE;
    switch (node->kind) {
    case NODE_LITERAL:
        return copy_literal(compiler, grammar_bytes(from, node), node->count);
    case NODE_CLASS:
        return schema_text_class(compiler, grammar_ranges(from, node), node->count);
    case NODE_REPEAT:
        return grammar_repeat(compiler->grammar, copies[grammar_children(from, node)[0]], node->low,
                              node->high);
    case NODE_SEQUENCE:
    case NODE_CHOICE:
        children = grammar_children(from, node);
        nodes = schema_take(compiler, node->count, sizeof *nodes);
        if (!nodes)
            return E_MEMORY;
        for (uint32_t i = 0; i < node->count; i++)
            nodes[i] = copies[children[i]];
        return node->kind == NODE_SEQUENCE ? grammar_sequence(compiler->grammar, nodes, node->count)
                                           : grammar_choice(compiler->grammar, nodes, node->count);
    case NODE_REFERENCE:
        break; /* an expression has none */
    }
    return E_UNSUPPORTED;
}

int32_t schema_pattern_node(struct schema_compiler *compiler, const json_t *schema,
                            const char *text, size_t bytes)
{
    const struct schema_pattern pattern = {.text = text, .bytes = bytes};
    int32_t node, copy = E_MEMORY, *copies;
    struct grammar *grammar;
    int r = read_expression(compiler, schema, "pattern", &pattern, &grammar, &node);

    if (r < 0)
        return r;
    copies = schema_take(compiler, (size_t)node + 1, sizeof *copies);
    for (int32_t i = 0; copies && i <= node; i++) { /* children come before their parents */
        copy = copy_node(compiler, grammar, grammar_node_get(grammar, (uint32_t)i), copies);
        copies[i] = copy;
    }
    grammar_close(grammar);
    return copy;
}
