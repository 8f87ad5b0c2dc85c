/* schema_pattern.c -- the sets of "pattern", "patternProperties" and "format", made once for each
 * expression. */
#include <string.h>

#include "engine/text/regex_grammar.h"
#include "engine/text/schema_internal.h"

struct schema_pattern {
    struct schema_pattern *next;
    const char *text;
    size_t bytes;
    bool whole; /* a format: matches the whole text, a pattern anywhere in it */
    const struct regular *set;
};

enum { PATTERN_NODE_MAX = 1 << 16 };

static int make_pattern(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                        struct schema_pattern *pattern)
{
    struct regex_options options = {.search = !pattern->whole};
    struct fault why = {0};
    struct grammar *grammar;
    int32_t node;
    int r = grammar_open(PATTERN_NODE_MAX, &grammar, &why);

    if (r == 0) {
        r = regex_grammar_build(grammar, pattern->text, pattern->bytes, &options, &node, &why);
        if (r == 0)
            r = regular_from_grammar(&compiler->regular, grammar, node, &pattern->set);
        grammar_close(grammar);
    }
    if (r == E_MEMORY)
        return schema_exhausted(compiler, r, keyword);
    if (r == E_TOO_LARGE)
        return schema_refuse(compiler, r, schema, keyword,
                             "takes too large an automaton: shorten it, or its repetitions");
    if (r < 0)
        return schema_refuse(compiler, r, schema, keyword, "%.160s", why.message);
    return 0;
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
