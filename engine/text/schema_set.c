/* schema_set.c -- which schemas hold at a place: $ref and allOf are followed, anyOf and oneOf are
 * multiplied out. */
#include <string.h>

#include "engine/text/schema_internal.h"

/* The way by which a schema was met: one that is met again on its own way never ends. */
struct way {
    const json_t *schema;
    const struct way *up;
    uint32_t depth;
};

struct group {
    const json_t *branches;
    const struct way *way; /* of the schema that holds it */
};

/* Schemas gathered so far, and groups of which a branch is still to be taken. */
struct gathering {
    struct schema_set set;
    struct group *groups;
    uint32_t group_count;
    uint32_t group_room;
    uint32_t group_next;
    unsigned types;
};

struct leaves {
    struct schema_compiler *compiler;
    struct schema_leaf *all;
    uint32_t count;
    uint32_t room;
};

int schema_set_add(struct schema_compiler *compiler, struct schema_set *set, const json_t *schema)
{
    if (json_is_boolean(schema)) {
        set->never = set->never || json_is_false(schema);
        return 0;
    }
    if (!json_is_object(schema))
        return fault_set(compiler->fault, E_INVALID,
                         "a schema must be an object, or true or false");
    if (!schema_spend(compiler, 1 + set->count / 8))
        return E_TOO_LARGE;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->schemas[i] == schema)
            return 0;
    if (set->count == set->room) {
        uint32_t room = set->room == 0 ? 4 : 2 * set->room;
        const json_t **more = schema_take(compiler, room, sizeof *more);

        if (!more)
            return E_MEMORY;
        if (set->count > 0)
            memcpy(more, set->schemas, set->count * sizeof *more);
        set->schemas = more;
        set->room = room;
    }
    set->schemas[set->count++] = schema;
    return 0;
}

int schema_set_copy(struct schema_compiler *compiler, const struct schema_set *from,
                    struct schema_set *ret_set)
{
    struct schema_set set = *from;

    if (!schema_spend(compiler, 1 + set.count / 8))
        return E_TOO_LARGE;
    set.room = set.count;
    set.schemas = schema_take(compiler, set.count, sizeof *set.schemas);
    if (!set.schemas)
        return E_MEMORY;
    if (set.count > 0)
        memcpy(set.schemas, from->schemas, set.count * sizeof *set.schemas);
    *ret_set = set;
    return 0;
}

/* ---- references ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One token of a pointer, up to '/' or the end, its %XX and ~0 ~1 resolved. The key has room. */
static const char *read_token(const char *at, char *key)
{
    while (*at && *at != '/') {
        char c = *at++;

        if (c == '%' && hex_digit(at[0]) >= 0 && hex_digit(at[1]) >= 0) {
            c = (char)(hex_digit(at[0]) * 16 + hex_digit(at[1]));
            at += 2;
        }
        if (c == '~' && (*at == '0' || *at == '1'))
            c = *at++ == '0' ? '~' : '/';
        *key++ = c;
    }
    *key = 0;
    return at;
}

static const json_t *list_item(const json_t *list, const char *key)
{
    size_t index = 0;

    if (!*key || (key[0] == '0' && key[1]))
        return NULL;
    for (; *key; key++) {
        if (*key < '0' || *key > '9' || index > json_array_size(list))
            return NULL;
        index = index * 10 + (size_t)(*key - '0');
    }
    return json_array_get(list, index);
}

/* The value that a JSON pointer (RFC 6901, "" or "/...") leads to; NULL: none. `key` has room for
 * all of the pointer. */
static const json_t *follow_pointer(const json_t *root, const char *at, char *key)
{
    while (root && *at == '/') {
        at = read_token(at + 1, key);
        if (json_is_array(root))
            root = list_item(root, key);
        else
            root = json_object_get(root, key);
    }
    return *at ? NULL : root;
}

static const json_t *find_anchor(struct schema_compiler *compiler, const json_t *at,
                                 const char *name, int depth)
{
    const json_t *found = NULL, *anchor = json_object_get(at, "$anchor");
    const char *key;
    json_t *child;
    size_t i;

    if (depth == SCHEMA_REFERENCES_MAX || --compiler->regular.work_left < 0)
        return NULL;
    if (json_is_string(anchor) && strcmp(json_string_value(anchor), name) == 0)
        return at;
    if (json_is_object(at)) {
        json_object_foreach((json_t *)at, key, child)
        {
            found = found ? found : find_anchor(compiler, child, name, depth + 1);
        }
    } else {
        json_array_foreach(at, i, child)
        {
            found = found ? found : find_anchor(compiler, child, name, depth + 1);
        }
    }
    return found;
}

int schema_resolve(struct schema_compiler *compiler, const json_t *schema,
                   const json_t **ret_target)
{
    const char *reference = json_string_value(json_object_get(schema, "$ref"));
    const char *id = json_string_value(json_object_get(compiler->root, "$id"));
    const json_t *target;
    char *key;

    if (!reference)
        return schema_refuse(compiler, E_INVALID, schema, "$ref", "must be a string");
    if (!schema_spend(compiler, 8 + (int64_t)strlen(reference)))
        return E_TOO_LARGE;
    key = schema_take(compiler, strlen(reference) + 1, 1);
    if (!key)
        return E_MEMORY;
    if (id && *id && strncmp(reference, id, strlen(id)) == 0)
        reference += strlen(id);
    if (*reference != '#' && !(*reference == 0 && id))
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "$ref",
                             "\"%.80s\" leads out of the schema; only \"#...\" is followed",
                             reference);
    if (*reference == '#')
        reference++;
    if (*reference == 0 || *reference == '/')
        target = follow_pointer(compiler->root, reference, key);
    else
        target = find_anchor(compiler, compiler->root, reference, 0);
    if (!schema_spend(compiler, 0))
        return E_TOO_LARGE;
    if (!json_is_object(target) && !json_is_boolean(target))
        return schema_refuse(compiler, E_INVALID, schema, "$ref", "\"#%.80s\" leads to no schema",
                             reference);
    *ret_target = target;
    return 0;
}

/* ---- gathering ---- */

static int add_group(struct schema_compiler *compiler, struct gathering *gathering,
                     const json_t *branches, const struct way *way)
{
    for (uint32_t i = 0; i < gathering->group_count; i++)
        if (gathering->groups[i].branches == branches)
            return 0;
    if (gathering->group_count == gathering->group_room) {
        uint32_t room = gathering->group_room == 0 ? 4 : 2 * gathering->group_room;
        struct group *more = schema_take(compiler, room, sizeof *more);

        if (!more)
            return E_MEMORY;
        if (gathering->group_count > 0)
            memcpy(more, gathering->groups, gathering->group_count * sizeof *more);
        gathering->groups = more;
        gathering->group_room = room;
    }
    gathering->groups[gathering->group_count++] = (struct group){branches, way};
    return 0;
}

static int gather(struct schema_compiler *compiler, struct gathering *gathering,
                  const json_t *schema, const struct way *up);

/* What an object's $ref and allOf add, and its groups. */
static int gather_parts(struct schema_compiler *compiler, struct gathering *gathering,
                        const json_t *schema, const struct way *way)
{
    static const char *const names[] = {"anyOf", "oneOf"};
    const json_t *part, *target;
    size_t i;
    int r;

    if (json_object_get(schema, "$ref")) {
        r = schema_resolve(compiler, schema, &target);
        r = r < 0 ? r : gather(compiler, gathering, target, way);
        if (r < 0)
            return r;
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, part)
    {
        r = gather(compiler, gathering, part, way);
        if (r < 0)
            return r;
    }
    for (i = 0; i < 2; i++) {
        part = json_object_get(schema, names[i]);
        r = part ? add_group(compiler, gathering, part, way) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int gather(struct schema_compiler *compiler, struct gathering *gathering,
                  const json_t *schema, const struct way *up)
{
    struct way *way;
    uint32_t before = gathering->set.count;
    int r = schema_set_add(compiler, &gathering->set, schema);

    if (r < 0 || json_is_boolean(schema))
        return r;
    if (!schema_spend(compiler, 1 + (up ? up->depth : 0)))
        return E_TOO_LARGE;
    for (const struct way *at = up; at; at = at->up)
        if (at->schema == schema)
            return schema_refuse(compiler, E_INVALID, schema, "$ref",
                                 "the schema refers to itself for the same value, without an end");
    if (gathering->set.count == before)
        return 0;
    if (up && up->depth == SCHEMA_REFERENCES_MAX)
        return schema_refuse(compiler, E_TOO_LARGE, schema, "$ref",
                             "more than %d schemas lead from one to the next",
                             SCHEMA_REFERENCES_MAX);
    r = schema_keywords_check(compiler, schema);
    if (r < 0)
        return r;
    way = schema_take(compiler, 1, sizeof *way);
    if (!way)
        return E_MEMORY;
    *way = (struct way){schema, up, up ? up->depth + 1 : 1};
    gathering->types &= schema_types(schema);
    return gather_parts(compiler, gathering, schema, way);
}

/* ---- leaves ---- */

static int add_leaf(struct leaves *leaves, const struct gathering *gathering)
{
    struct schema_compiler *compiler = leaves->compiler;
    struct schema_leaf *leaf;
    int r;

    if (leaves->count == SCHEMA_LEAVES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE,
                                "anyOf and oneOf multiply to too many combinations");
    if (leaves->count == leaves->room) {
        uint32_t room = leaves->room == 0 ? 4 : 2 * leaves->room;
        struct schema_leaf *more = schema_take(compiler, room, sizeof *more);

        if (!more)
            return E_MEMORY;
        if (leaves->count > 0)
            memcpy(more, leaves->all, leaves->count * sizeof *more);
        leaves->all = more;
        leaves->room = room;
    }
    leaf = &leaves->all[leaves->count];
    *leaf = (struct schema_leaf){.types = gathering->types};
    for (uint32_t i = 0; i < gathering->set.count; i++) {
        if (!schema_keywords_ask(gathering->set.schemas[i]))
            continue;
        r = schema_set_add(compiler, &leaf->set, gathering->set.schemas[i]);
        if (r < 0)
            return r;
    }
    r = schema_keywords_negate(compiler, leaf);
    if (r == 0 && leaf->types != 0)
        leaves->count++;
    return r;
}

static int expand(struct leaves *leaves, struct gathering *gathering, int depth)
{
    struct schema_compiler *compiler = leaves->compiler;
    const struct group *group;
    const json_t *branch;
    size_t i;

    if (gathering->set.never || gathering->types == 0)
        return 0;
    if (gathering->group_next == gathering->group_count)
        return add_leaf(leaves, gathering);
    if (depth == SCHEMA_REFERENCES_MAX)
        return schema_exhausted(compiler, E_TOO_LARGE, "too many anyOf and oneOf hold together");
    group = &gathering->groups[gathering->group_next];
    json_array_foreach(group->branches, i, branch)
    {
        struct gathering more = *gathering;
        int r = schema_set_copy(compiler, &gathering->set, &more.set);

        if (r < 0)
            return r;
        if (!schema_spend(compiler, 1 + more.group_count))
            return E_TOO_LARGE;
        more.groups = schema_take(compiler, more.group_count, sizeof *more.groups);
        if (!more.groups)
            return E_MEMORY;
        memcpy(more.groups, gathering->groups, more.group_count * sizeof *more.groups);
        more.group_room = more.group_count;
        more.group_next++;
        r = gather(compiler, &more, branch, group->way);
        r = r < 0 ? r : expand(leaves, &more, depth + 1);
        if (r < 0)
            return r;
    }
    return 0;
}

int schema_leaves(struct schema_compiler *compiler, const struct schema_set *set,
                  struct schema_leaf **ret_leaves, uint32_t *ret_count)
{
    struct leaves leaves = {.compiler = compiler};
    struct gathering gathering = {.types = TYPE_ANY};
    int r;

    gathering.set.never = set->never;
    for (uint32_t i = 0; i < set->count; i++) {
        r = gather(compiler, &gathering, set->schemas[i], NULL);
        if (r < 0)
            return r;
    }
    r = expand(&leaves, &gathering, 0);
    if (r < 0)
        return r;
    *ret_leaves = leaves.all;
    *ret_count = leaves.count;
    return 0;
}
