/* schema_object.c -- objects: declared members in order, then the others.
 *
 *     rest 0 ::= ( ',' member 0 )? rest 1        a rule for each member: what may still come once
 *     rest 1 ::=   ',' member 1    rest 2        there has been one; '?' where it is not required
 *     rest 2 ::= ( ',' other )* '}'
 *
 * Before the first member there is no comma, so the same again for "none yet":
 *
 *     first 0 ::= member 0 rest 1 | first 1      and none at all: first 2 ::= other ... | '}'
 *
 * With minProperties or maxProperties there are as many copies as members can be told apart. */
#include <string.h>

#include "engine/text/schema_internal.h"

enum {
    STATES_MAX = 1 << 15, /* members times counts */
};

struct member {
    const char *name;
    bool required;
    int32_t node; /* name, colon and value */
};

struct object {
    struct schema_compiler *compiler;
    const struct schema_leaf *leaf;
    struct member *members;
    struct schema_names names;
    uint32_t room;
    int32_t low;
    int32_t high;   /* GRAMMAR_UNBOUNDED */
    int32_t counts; /* 0 .. counts - 1 are told apart, the last stands for itself and more */
    int32_t other;  /* a member that is not declared, or never */
    int32_t comma;
    int32_t close;
};

/* ---- names, in order ---- */

static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

struct name_table {
    uint32_t *slots; /* member + 1 */
    uint32_t mask;
};

/* Finds or adds the member; NULL without memory. */
static struct member *member_of(struct object *object, struct name_table *table, const char *name)
{
    uint32_t at = name_hash(name) & table->mask;
    struct member *member;

    for (; table->slots[at] != 0; at = (at + 1) & table->mask)
        if (strcmp(object->members[table->slots[at] - 1].name, name) == 0)
            return &object->members[table->slots[at] - 1];
    table->slots[at] = object->names.count + 1;
    member = &object->members[object->names.count];
    member->name = name;
    object->names.texts[object->names.count] = name;
    object->names.bytes[object->names.count] = strlen(name);
    object->names.count++;
    return member;
}

static int tables_take(struct object *object, struct name_table *table)
{
    const struct schema_set *set = &object->leaf->set;
    size_t room = 1, slots = 16;

    for (uint32_t i = 0; i < set->count; i++)
        room += json_object_size(json_object_get(set->schemas[i], "properties")) +
                json_array_size(json_object_get(set->schemas[i], "required"));
    if (!schema_spend(object->compiler, (int64_t)room * 8))
        return E_TOO_LARGE;
    while (slots < 2 * room)
        slots *= 2;
    table->mask = (uint32_t)slots - 1;
    table->slots = schema_take(object->compiler, slots, sizeof *table->slots);
    object->members = schema_take(object->compiler, room, sizeof *object->members);
    object->names.texts = schema_take(object->compiler, room, sizeof *object->names.texts);
    object->names.bytes = schema_take(object->compiler, room, sizeof *object->names.bytes);
    if (!table->slots || !object->members || !object->names.texts || !object->names.bytes)
        return E_MEMORY;
    return 0;
}

static int find_members(struct object *object)
{
    const struct schema_set *set = &object->leaf->set;
    struct name_table table;
    const char *name;
    json_t *value;
    size_t n;
    int r = tables_take(object, &table);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < set->count; i++) {
        json_object_foreach(json_object_get(set->schemas[i], "properties"), name, value)
        {
            member_of(object, &table, name);
        }
    }
    for (uint32_t i = 0; i < set->count; i++) {
        json_array_foreach(json_object_get(set->schemas[i], "required"), n, value)
        {
            name = json_string_value(value);
            if (strlen(name) != json_string_length(value))
                return schema_refuse(object->compiler, E_UNSUPPORTED, set->schemas[i], "required",
                                     "a name with a NUL cannot be enforced");
            member_of(object, &table, name)->required = true;
        }
    }
    return 0;
}

/* Writes each member; one that can never be there is taken out, or nothing fits at all. */
static int write_members(struct object *object, bool *ret_never)
{
    struct schema_compiler *compiler = object->compiler;
    int32_t colon = schema_colon(compiler);

    *ret_never = false;
    for (uint32_t i = 0; i < object->names.count; i++) {
        struct member *member = &object->members[i];
        struct schema_set set;
        int32_t nodes[3];
        int r = schema_member_set(compiler, &object->names, member->name, &set);

        if (r < 0)
            return r;
        if (set.never) {
            *ret_never = *ret_never || member->required;
            member->node = -1;
            continue;
        }
        nodes[0] = schema_text_literal(compiler, member->name, strlen(member->name));
        nodes[1] = colon;
        nodes[2] = schema_place(compiler, &set);
        member->node = grammar_sequence(compiler->grammar, nodes, 3);
        if (member->node < 0)
            return member->node;
    }
    return 0;
}

/* ---- the chain ---- */

static int32_t defined(struct object *object, const char *name, int32_t node)
{
    struct grammar *grammar = object->compiler->grammar;
    int32_t rule = grammar_rule(grammar, name);
    int r = rule < 0 ? rule : grammar_define(grammar, rule, node);

    return r < 0 ? r : grammar_reference(grammar, rule);
}

static bool may_grow(const struct object *object, int32_t count)
{
    return object->high < 0 || count < object->high;
}

static int32_t more_count(const struct object *object, int32_t count)
{
    return count + 1 < object->counts ? count + 1 : object->counts - 1;
}

/* ( ',' other )* '}' after `count` members; or other ( ',' other )* '}' at the start. */
static int32_t others(struct object *object, int32_t count)
{
    struct schema_compiler *compiler = object->compiler;
    int32_t low = object->low > count ? object->low - count : 0, node;
    int32_t high = object->high < 0 ? GRAMMAR_UNBOUNDED : object->high - count;

    if (high == 0)
        return low == 0 ? object->close : grammar_never(compiler->grammar);
    if (count > 0) {
        node = grammar_repeat(compiler->grammar,
                              schema_pair(compiler, object->comma, object->other), low, high);
    } else {
        node =
            grammar_repeat(compiler->grammar, schema_pair(compiler, object->comma, object->other),
                           low > 0 ? low - 1 : 0, high < 0 ? high : high - 1);
        node = schema_pair(compiler, object->other, node);
        if (low == 0)
            node = schema_optional(compiler, node);
    }
    return schema_pair(compiler, node, object->close);
}

/* `after[count]` is what follows when so many members have been; before[count] becomes the same
 * for one member earlier. */
static int32_t with_member(struct object *object, const struct member *member, int32_t count,
                           const int32_t *after)
{
    struct schema_compiler *compiler = object->compiler;
    int32_t node = member->node, ways[2];

    if (member->required && !may_grow(object, count))
        return grammar_never(compiler->grammar);
    if (!may_grow(object, count))
        return after[count];
    if (count > 0)
        node = schema_pair(compiler, object->comma, node);
    if (count > 0 && !member->required && more_count(object, count) == count)
        return schema_pair(compiler, schema_optional(compiler, node), after[count]);
    ways[0] = schema_pair(compiler, node, after[more_count(object, count)]);
    if (member->required)
        return ways[0];
    ways[1] = after[count];
    return grammar_choice(compiler->grammar, ways, 2);
}

static int32_t chain(struct object *object)
{
    struct schema_compiler *compiler = object->compiler;
    int32_t *after, *before;

    if ((int64_t)object->counts * (object->names.count + 1) > STATES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE,
                                "minProperties or maxProperties with that many properties");
    after = schema_take(compiler, (size_t)object->counts, sizeof *after);
    before = schema_take(compiler, (size_t)object->counts, sizeof *before);
    if (!after || !before)
        return E_MEMORY;
    for (int32_t count = 0; count < object->counts; count++) {
        after[count] = defined(object, "other members", others(object, count));
        if (after[count] < 0)
            return after[count];
    }
    for (uint32_t i = object->names.count; i-- > 0;) {
        const struct member *member = &object->members[i];
        int32_t *swap = before;

        if (member->node < 0)
            continue;
        if (!schema_spend(compiler, 8 * (int64_t)object->counts))
            return E_TOO_LARGE;
        for (int32_t count = 0; count < object->counts; count++) {
            before[count] = defined(object, "members", with_member(object, member, count, after));
            if (before[count] < 0)
                return before[count];
        }
        before = after;
        after = swap;
    }
    return after[0];
}

/* How many counts have to be told apart. */
static int read_counts(struct object *object)
{
    const struct schema_set *set = &object->leaf->set;
    int32_t most = 1;
    int r;

    object->high = GRAMMAR_UNBOUNDED;
    r = schema_count_largest(object->compiler, set, "minProperties", &object->low);
    r = r < 0 ? r : schema_count_least(object->compiler, set, "maxProperties", &object->high);
    if (r < 0)
        return r;
    if (object->low > most)
        most = object->low;
    if (object->high > most)
        most = object->high;
    /* More than there are declared are only counted by the repetition of the others. */
    if (most > (int32_t)object->names.count)
        most = object->names.count > 0 ? (int32_t)object->names.count : 1;
    object->counts = most + 1;
    return 0;
}

int32_t schema_object(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    struct object object = {.compiler = compiler, .leaf = leaf};
    bool never;
    int r = find_members(&object);

    r = r < 0 ? r : schema_names_read(compiler, leaf, &object.names);
    r = r < 0 ? r : write_members(&object, &never);
    r = r < 0 ? r : read_counts(&object);
    if (r < 0)
        return r;
    if (never || (object.high >= 0 && object.low > object.high))
        return grammar_never(compiler->grammar);
    object.comma = schema_comma(compiler);
    object.close = schema_close_bracket(compiler, '}');
    object.other = schema_other_member(compiler, &object.names);
    if (object.other < 0)
        return object.other;
    return schema_pair(compiler, schema_open_bracket(compiler, '{'), chain(&object));
}
