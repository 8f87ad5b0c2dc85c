/* schema_names.c -- the names that members may have, and what each name asks of the value.
 *
 * A name that matches a pattern of "patternProperties" must have a value that fits there; one that
 * neither matches nor is declared falls to "additionalProperties". So the names that are not
 * declared are cut into classes, each of names that match the same patterns: sets made with
 * regular.h, of which most are empty. */
#include <string.h>

#include "engine/text/schema_internal.h"

enum { CLASSES_MAX = 64 };

struct schema_name_pattern {
    const json_t *owner; /* the leaf's schema that has it */
    const json_t *value;
    const struct regular *set;
};

struct name_class {
    const struct regular *names;
    uint64_t matched; /* a bit a pattern */
};

static int read_patterns(struct schema_compiler *compiler, struct schema_names *names)
{
    const struct schema_set *set = &names->leaf->set;
    size_t room = 0;
    const char *text;
    json_t *value;

    for (uint32_t i = 0; i < set->count; i++)
        room += json_object_size(json_object_get(set->schemas[i], "patternProperties"));
    if (room > CLASSES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE, "patternProperties has too many patterns");
    names->patterns = schema_take(compiler, room, sizeof *names->patterns);
    if (!names->patterns)
        return E_MEMORY;
    for (uint32_t i = 0; i < set->count; i++) {
        const json_t *owner = set->schemas[i];

        json_object_foreach(json_object_get(owner, "patternProperties"), text, value)
        {
            struct schema_name_pattern *pattern = &names->patterns[names->pattern_count++];
            int r = schema_pattern_set(compiler, owner, "patternProperties", text, strlen(text),
                                       &pattern->set);

            if (r < 0)
                return r;
            pattern->owner = owner;
            pattern->value = value;
        }
    }
    return 0;
}

/* The schemas for a name which matches these patterns and is, or is not, among the properties. */
static int value_set(struct schema_compiler *compiler, const struct schema_names *names,
                     const char *name, uint64_t matched, struct schema_set *ret_set)
{
    struct schema_set set = {0};

    for (uint32_t i = 0; i < names->leaf->set.count; i++) {
        const json_t *schema = names->leaf->set.schemas[i], *value = NULL;
        bool spoken_of = false;
        int r = 0;

        if (name)
            value = json_object_get(json_object_get(schema, "properties"), name);
        if (value) {
            spoken_of = true;
            r = schema_set_add(compiler, &set, value);
        }
        for (uint32_t p = 0; r == 0 && p < names->pattern_count; p++) {
            if (names->patterns[p].owner != schema || !(matched >> p & 1))
                continue;
            spoken_of = true;
            r = schema_set_add(compiler, &set, names->patterns[p].value);
        }
        value = json_object_get(schema, "additionalProperties");
        if (r == 0 && !spoken_of && value)
            r = schema_set_add(compiler, &set, value);
        if (r < 0)
            return r;
    }
    *ret_set = set;
    return 0;
}

/* The names that all propertyNames allow. */
static int read_allowed(struct schema_compiler *compiler, struct schema_names *names)
{
    const struct schema_leaf *leaf = names->leaf;
    struct schema_set set = {0};
    struct schema_leaf *leaves;
    const json_t *owner = NULL;
    uint32_t count = 0, strings = 0;
    int r;

    for (uint32_t i = 0; i < leaf->set.count; i++) {
        const json_t *value = json_object_get(leaf->set.schemas[i], "propertyNames");

        if (!value)
            continue;
        owner = leaf->set.schemas[i];
        r = schema_set_add(compiler, &set, value);
        if (r < 0)
            return r;
    }
    r = owner ? schema_leaves(compiler, &set, &leaves, &count) : 0;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        if (!(leaves[i].types & TYPE_STRING))
            continue;
        if (strings++ > 0)
            return schema_refuse(compiler, E_UNSUPPORTED, owner, "propertyNames",
                                 "with anyOf or oneOf cannot be enforced");
        r = schema_keywords_refuse(compiler, &leaves[i]);
        r = r < 0 ? r : schema_enum_strings(compiler, &leaves[i], &names->allowed);
    }
    if (r == 0 && owner && strings == 0) {
        r = regular_words(&compiler->regular, NULL, NULL, 0, &names->allowed);
        r = r < 0 ? schema_exhausted(compiler, r, "propertyNames") : 0;
    }
    return r;
}

int schema_names_read(struct schema_compiler *compiler, const struct schema_leaf *leaf,
                      struct schema_names *names)
{
    int r;

    names->leaf = leaf;
    r = read_patterns(compiler, names);
    return r < 0 ? r : read_allowed(compiler, names);
}

int schema_member_set(struct schema_compiler *compiler, const struct schema_names *names,
                      const char *name, struct schema_set *ret_set)
{
    uint64_t matched = 0;
    struct schema_set set;
    int r;

    for (uint32_t p = 0; p < names->pattern_count; p++)
        if (regular_matches(names->patterns[p].set, name, strlen(name)))
            matched |= UINT64_C(1) << p;
    r = value_set(compiler, names, name, matched, &set);
    if (r < 0)
        return r;
    if (names->allowed && !regular_matches(names->allowed, name, strlen(name)))
        set.never = true;
    *ret_set = set;
    return 0;
}

/* ---- members that are not declared ---- */

/* Every class is split by the pattern into what matches and what does not. */
static int split(struct schema_compiler *compiler, struct name_class *classes, uint32_t *count,
                 uint32_t index, const struct regular *pattern)
{
    uint32_t before = *count, kept = 0;
    struct name_class parts[2 * CLASSES_MAX];

    for (uint32_t i = 0; i < before; i++) {
        struct name_class in = classes[i], out = classes[i];
        int r = regular_intersect(&compiler->regular, classes[i].names, pattern, &in.names);

        r = r < 0 ? r : regular_subtract(&compiler->regular, classes[i].names, pattern, &out.names);
        if (r < 0)
            return schema_exhausted(compiler, r, "patternProperties");
        in.matched |= UINT64_C(1) << index;
        if (!regular_is_empty(in.names))
            parts[kept++] = in;
        if (!regular_is_empty(out.names))
            parts[kept++] = out;
    }
    if (kept > CLASSES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE, "patternProperties overlap too much");
    memcpy(classes, parts, kept * sizeof *parts);
    *count = kept;
    return 0;
}

static int32_t name_and_value(struct schema_compiler *compiler, const struct regular *names,
                              const struct schema_set *set)
{
    int32_t nodes[4];

    nodes[0] = schema_literal(compiler, "\"");
    nodes[1] = schema_text_set(compiler, names, SPELLING_JSON);
    nodes[2] = schema_colon(compiler);
    nodes[3] = schema_place(compiler, set);
    return grammar_sequence(compiler->grammar, nodes, 4);
}

/* Whether no name can be left for others: then their sets need not be made. */
static bool is_closed(const struct schema_leaf *leaf)
{
    for (uint32_t i = 0; i < leaf->set.count; i++)
        if (json_is_false(json_object_get(leaf->set.schemas[i], "additionalProperties")) &&
            json_object_size(json_object_get(leaf->set.schemas[i], "patternProperties")) == 0)
            return true;
    return false;
}

static int first_class(struct schema_compiler *compiler, const struct schema_names *names,
                       const struct regular **ret_set)
{
    const struct regular *set = names->allowed, *declared;
    int r = 0;

    if (!set)
        r = regular_lengths(&compiler->regular, 0, REGULAR_UNBOUNDED, &set);
    if (r == 0 && names->count > 0) {
        r = regular_words(&compiler->regular, names->texts, names->bytes, names->count, &declared);
        r = r < 0 ? r : regular_subtract(&compiler->regular, set, declared, &set);
    }
    if (r < 0)
        return schema_exhausted(compiler, r, "the names of members that are not declared");
    *ret_set = set;
    return 0;
}

int32_t schema_other_member(struct schema_compiler *compiler, const struct schema_names *names)
{
    struct name_class classes[CLASSES_MAX];
    int32_t ways[CLASSES_MAX];
    uint32_t class_count = 1;
    size_t count = 0;
    int r;

    if (is_closed(names->leaf))
        return grammar_never(compiler->grammar);
    classes[0].matched = 0;
    r = first_class(compiler, names, &classes[0].names);
    for (uint32_t p = 0; r == 0 && p < names->pattern_count; p++)
        r = split(compiler, classes, &class_count, p, names->patterns[p].set);
    for (uint32_t i = 0; r == 0 && i < class_count; i++) {
        struct schema_set set;

        r = value_set(compiler, names, NULL, classes[i].matched, &set);
        if (r == 0 && !set.never)
            ways[count++] = name_and_value(compiler, classes[i].names, &set);
    }
    if (r < 0)
        return r;
    return count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
}
