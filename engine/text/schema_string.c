/* schema_string.c -- strings: lengths, patterns, formats and what "not" forbids, as one set.
 *
 * A length alone is a counted repetition. Everything else is a set (regular.h), and what holds
 * together is their intersection. A length that all texts of a pattern have anyway is not counted:
 * an intersection has as many states as the one has, times the other's. */
#include <string.h>

#include "engine/text/schema_internal.h"

/* *set becomes what is in it and in `other`; NULL is every text. */
static int narrow(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                  const struct regular *other, const struct regular **set)
{
    int r;

    if (!*set) {
        *set = other;
        return 0;
    }
    r = regular_intersect(&compiler->regular, *set, other, set);
    if (r == E_TOO_LARGE)
        return schema_refuse(compiler, r, schema, keyword,
                             "cannot be held together with the others: too large an automaton");
    return r < 0 ? schema_exhausted(compiler, r, keyword) : 0;
}

/* The patterns and formats of all schemas. */
static int narrow_patterns(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                           const struct regular **set)
{
    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *schema = leaf->set.schemas[i];
        const json_t *pattern = json_object_get(schema, "pattern");
        const json_t *format = json_object_get(schema, "format");
        const struct regular *one;
        int r = 0;

        if (pattern) {
            r = schema_pattern_set(compiler, schema, "pattern", json_string_value(pattern),
                                   json_string_length(pattern), &one);
            r = r < 0 ? r : narrow(compiler, schema, "pattern", one, set);
        }
        if (r == 0 && format) {
            const char *expression = schema_format_find(json_string_value(format));

            if (!expression)
                return schema_refuse(compiler, E_UNSUPPORTED, schema, "format",
                                     "\"%.40s\" is not supported", json_string_value(format));
            r = schema_pattern_set(compiler, schema, "format", expression, strlen(expression),
                                   &one);
            r = r < 0 ? r : narrow(compiler, schema, "format", one, set);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

/* Takes the strings away that "not" lists, the types having been seen to. */
static int subtract_texts(struct schema_compiler *compiler, const json_t *negated,
                          const struct regular **set)
{
    const json_t *listed = json_object_get(negated, "enum"), *one;
    const json_t *constant = json_object_get(negated, "const");
    size_t room = json_array_size(listed) + 1, count = 0, i;
    const char **texts = schema_take(compiler, room, sizeof *texts);
    size_t *bytes = schema_take(compiler, room, sizeof *bytes);
    const struct regular *words, *all = *set;
    int r = 0;

    if (!texts || !bytes)
        return E_MEMORY;
    for (i = 0; i < room; i++) {
        one = i < room - 1 ? json_array_get(listed, i) : constant;
        if (!json_is_string(one))
            continue;
        texts[count] = json_string_value(one);
        bytes[count++] = json_string_length(one);
    }
    if (count == 0)
        return 0;
    if (!all)
        r = regular_lengths(&compiler->regular, 0, REGULAR_UNBOUNDED, &all);
    r = r < 0 ? r : regular_words(&compiler->regular, texts, bytes, count, &words);
    r = r < 0 ? r : regular_subtract(&compiler->regular, all, words, set);
    return r < 0 ? schema_exhausted(compiler, r, "not") : 0;
}

static int narrow_lengths(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                          int32_t low, int32_t high, const struct regular **set)
{
    int64_t shortest, longest;
    const struct regular *lengths;
    const json_t *schema = leaf->set.schemas[0];
    const char *keyword = high < 0 ? "minLength" : "maxLength";
    int r;

    for (uint32_t i = 0; i < leaf->set.count; i++)
        if (json_object_get(leaf->set.schemas[i], keyword))
            schema = leaf->set.schemas[i];
    if (*set) {
        r = regular_measure(&compiler->regular, *set, &shortest, &longest);
        if (r < 0)
            return schema_exhausted(compiler, r, "the lengths of a pattern");
        if (shortest >= low && (high < 0 || (longest != REGULAR_UNBOUNDED && longest <= high)))
            return 0;
    }
    r = regular_lengths(&compiler->regular, low, high < 0 ? REGULAR_UNBOUNDED : high, &lengths);
    if (r == E_TOO_LARGE)
        return schema_refuse(compiler, r, schema, keyword,
                             "is too large to be held together with a pattern or format");
    r = r < 0 ? schema_exhausted(compiler, r, keyword)
              : narrow(compiler, schema, keyword, lengths, set);
    return r;
}

static int read_lengths(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                        int32_t *ret_low, int32_t *ret_high)
{
    int r;

    *ret_low = 0;
    *ret_high = GRAMMAR_UNBOUNDED;
    r = schema_count_largest(compiler, &leaf->set, "minLength", ret_low);
    return r < 0 ? r : schema_count_least(compiler, &leaf->set, "maxLength", ret_high);
}

/* All but the lengths. */
static int string_set(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      const struct regular **ret_set)
{
    const struct regular *set = NULL;
    int r = narrow_patterns(compiler, leaf, &set);

    for (uint32_t i = 0; r == 0 && i < leaf->set.count; i++) {
        const json_t *negated = json_object_get(leaf->set.schemas[i], "not");

        if (json_is_object(negated))
            r = subtract_texts(compiler, negated, &set);
    }
    if (r == 0)
        *ret_set = set;
    return r;
}

int schema_string_set(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      const struct regular **ret_set)
{
    const struct regular *set;
    int32_t low, high;
    int r = string_set(compiler, leaf, &set);

    r = r < 0 ? r : read_lengths(compiler, leaf, &low, &high);
    if (r >= 0 && (low > 0 || high >= 0))
        r = narrow_lengths(compiler, leaf, low, high, &set);
    if (r < 0)
        return r;
    *ret_set = set;
    return 0;
}

/* The schema whose pattern is all that is asked of a string; NULL: there is more, or none. */
static const json_t *lone_pattern(const struct schema_leaf *leaf)
{
    static const char *const names[] = {"pattern", "format", "minLength", "maxLength", "not"};
    const json_t *found = NULL;

    for (uint32_t i = 0; i < leaf->set.count; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            if (!json_object_get(leaf->set.schemas[i], names[n]))
                continue;
            if (n > 0 || found)
                return NULL;
            found = leaf->set.schemas[i];
        }
    }
    return found;
}

/* A pattern whose set is too large, alone: node by node. The fault is withdrawn. */
static int32_t string_counted(struct schema_compiler *compiler, const json_t *schema)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    int32_t quote = schema_literal(compiler, "\""), nodes[3] = {quote, 0, quote};

    compiler->fault->code = 0;
    compiler->fault->message[0] = 0;
    nodes[1] = schema_pattern_node(compiler, schema, json_string_value(pattern),
                                   json_string_length(pattern));
    return grammar_sequence(compiler->grammar, nodes, 3);
}

int32_t schema_string(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    const struct regular *set;
    int32_t low, high, nodes[3];
    int r = string_set(compiler, leaf, &set);

    if (r == E_TOO_LARGE && lone_pattern(leaf) && schema_spend(compiler, 1))
        return string_counted(compiler, lone_pattern(leaf));
    r = r < 0 ? r : read_lengths(compiler, leaf, &low, &high);
    if (r < 0)
        return r;
    if (!set && low == 0 && high < 0)
        return schema_any(compiler, TYPE_STRING);
    if (high >= 0 && low > high)
        return grammar_never(compiler->grammar);
    nodes[0] = schema_literal(compiler, "\"");
    if (!set) {
        nodes[1] = grammar_repeat(compiler->grammar, schema_text_char(compiler), low, high);
        nodes[2] = nodes[0];
        return grammar_sequence(compiler->grammar, nodes, 3);
    }
    if (low > 0 || high >= 0) {
        r = narrow_lengths(compiler, leaf, low, high, &set);
        if (r < 0)
            return r;
    }
    return schema_pair(compiler, nodes[0], schema_text_set(compiler, set, SPELLING_JSON));
}
