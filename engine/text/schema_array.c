/* schema_array.c -- arrays: items by position, then the rest, counted.
 *
 *     '[' item 0 ( ',' item 1 ( ',' rest ){low,high} )? ']'
 *
 * "contains" holds without a count of what else fits: an item that matches both schemas stands
 * among any others. "uniqueItems" would need a memory of what has been, which a grammar lacks; it
 * is enforced for few constants, by a rule for each set of those that are left. */
#include <string.h>

#include "engine/text/schema_internal.h"

enum { UNIQUE_VALUES_MAX = 8 };

struct array {
    struct schema_compiler *compiler;
    const struct schema_leaf *leaf;
    uint32_t prefix_count;
    int32_t low;
    int32_t high; /* GRAMMAR_UNBOUNDED */
    int32_t comma;
    int32_t close;
};

/* The schemas of the item at `index`; of the rest, where it is prefix_count. */
static int item_set(const struct array *array, uint32_t index, struct schema_set *ret_set)
{
    struct schema_set set = {0};

    for (uint32_t i = 0; i < array->leaf->set.count; i++) {
        const json_t *schema = array->leaf->set.schemas[i];
        const json_t *item = json_array_get(json_object_get(schema, "prefixItems"), index);
        int r;

        item = item ? item : json_object_get(schema, "items");
        r = item ? schema_set_add(array->compiler, &set, item) : 0;
        if (r < 0)
            return r;
    }
    *ret_set = set;
    return 0;
}

static int32_t follow(const struct array *array, int32_t item)
{
    return schema_pair(array->compiler, array->comma, item);
}

static int array_read(struct array *array)
{
    struct schema_compiler *compiler = array->compiler;
    const struct schema_set *set = &array->leaf->set;
    int r;

    for (uint32_t i = 0; i < set->count; i++) {
        size_t count = json_array_size(json_object_get(set->schemas[i], "prefixItems"));

        if (count > SCHEMA_COUNT_MAX)
            return schema_refuse(compiler, E_TOO_LARGE, set->schemas[i], "prefixItems",
                                 "may have %d items at most", SCHEMA_COUNT_MAX);
        if (count > array->prefix_count)
            array->prefix_count = (uint32_t)count;
    }
    array->high = GRAMMAR_UNBOUNDED;
    r = schema_count_largest(compiler, set, "minItems", &array->low);
    r = r < 0 ? r : schema_count_least(compiler, set, "maxItems", &array->high);
    array->comma = schema_comma(compiler);
    array->close = schema_close_bracket(compiler, ']');
    return r < 0 ? r : 0;
}

/* What comes once all positions of prefixItems are taken: ( ',' item )* and the end. */
static int32_t rest(const struct array *array)
{
    int32_t low = array->low - (int32_t)array->prefix_count, high = array->high, item;
    struct schema_set set;
    int r = item_set(array, array->prefix_count, &set);

    if (r < 0)
        return r;
    low = low < 0 ? 0 : low;
    if (high >= 0)
        high -= (int32_t)array->prefix_count;
    item = schema_place(array->compiler, &set);
    if (array->prefix_count > 0) {
        item = grammar_repeat(array->compiler->grammar, follow(array, item), low, high);
    } else if (high != 0) {
        int32_t more = grammar_repeat(array->compiler->grammar, follow(array, item),
                                      low > 0 ? low - 1 : 0, high < 0 ? high : high - 1);

        item = schema_pair(array->compiler, item, more);
        if (low == 0)
            item = schema_optional(array->compiler, item);
    } else {
        return array->close;
    }
    return schema_pair(array->compiler, item, array->close);
}

/* From the end: a rule for what follows each position, so that shared ends are shared. */
static int32_t positions(const struct array *array)
{
    struct schema_compiler *compiler = array->compiler;
    uint32_t count = array->prefix_count;
    int32_t node;

    if (array->high >= 0 && (uint32_t)array->high < count) {
        count = (uint32_t)array->high;
        node = array->close;
    } else {
        node = rest(array);
    }
    for (uint32_t i = count; i-- > 0;) {
        struct schema_set set;
        int32_t item, rule;
        int r = item_set(array, i, &set);

        if (r < 0)
            return r;
        item = schema_place(compiler, &set);
        node = schema_pair(compiler, i > 0 ? follow(array, item) : item, node);
        if ((int64_t)i >= array->low) {
            int32_t ways[2] = {array->close, node};

            node = grammar_choice(compiler->grammar, ways, 2);
        }
        rule = grammar_rule(compiler->grammar, "items");
        r = rule < 0 ? rule : grammar_define(compiler->grammar, rule, node);
        if (r < 0)
            return r;
        node = grammar_reference(compiler->grammar, rule);
    }
    return node;
}

/* ---- contains ---- */

static const json_t *find_keyword(const struct array *array, const char *keyword)
{
    for (uint32_t i = 0; i < array->leaf->set.count; i++)
        if (json_object_get(array->leaf->set.schemas[i], keyword))
            return array->leaf->set.schemas[i];
    return NULL;
}

/* ( item ',' )* ( match ( ',' item )* ',' ){n-1} match ( ',' item )* ']' */
static int32_t contains(const struct array *array, const json_t *schema, int32_t least)
{
    struct schema_compiler *compiler = array->compiler;
    int32_t item, match, others, nodes[5];
    struct schema_set set, both;
    int r = item_set(array, 0, &set);

    r = r < 0 ? r : schema_set_copy(compiler, &set, &both);
    r = r < 0 ? r : schema_set_add(compiler, &both, json_object_get(schema, "contains"));
    if (r < 0)
        return r;
    item = schema_place(compiler, &set);
    match = schema_place(compiler, &both);
    others = grammar_repeat(compiler->grammar, follow(array, item), 0, GRAMMAR_UNBOUNDED);
    nodes[0] = grammar_repeat(compiler->grammar, schema_pair(compiler, item, array->comma), 0,
                              GRAMMAR_UNBOUNDED);
    nodes[1] = match;
    nodes[2] = schema_pair(compiler, others, follow(array, match));
    nodes[2] = grammar_repeat(compiler->grammar, nodes[2], least - 1, least - 1);
    nodes[3] = others;
    nodes[4] = array->close;
    return grammar_sequence(compiler->grammar, nodes, 5);
}

/* The schemas that ask for an item by "contains": how many, and the first. */
static uint32_t find_contains(const struct array *array, const json_t **ret_schema,
                              int64_t *ret_least)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < array->leaf->set.count; i++) {
        const json_t *schema = array->leaf->set.schemas[i];
        int64_t least = 1;

        if (!json_object_get(schema, "contains"))
            continue;
        json_integral(json_object_get(schema, "minContains"), &least);
        if (least == 0 && !json_object_get(schema, "maxContains"))
            continue;
        if (found++ > 0)
            continue;
        *ret_schema = schema;
        *ret_least = least;
    }
    return found;
}

static int32_t array_contains(struct array *array)
{
    struct schema_compiler *compiler = array->compiler;
    const json_t *schema = NULL;
    int64_t least = 0;
    uint32_t found = find_contains(array, &schema, &least);

    if (found == 0)
        return positions(array);
    if (least > SCHEMA_COUNT_MAX)
        return schema_refuse(compiler, E_TOO_LARGE, schema, "minContains", "may be %d at most",
                             SCHEMA_COUNT_MAX);
    if (found > 1 || json_object_get(schema, "maxContains") || array->prefix_count > 0 ||
        array->high >= 0 || array->low > least)
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "contains",
                             "cannot be enforced beside maxContains, prefixItems, maxItems, "
                             "minItems or another contains");
    return contains(array, schema, (int32_t)least);
}

/* ---- uniqueItems ---- */

/* The constants that an item may be, if the items' one schema is an enum alone; NULL: no. */
static const json_t *item_constants(const struct array *array)
{
    const json_t *item, *constants;
    struct schema_set set;

    if (item_set(array, 0, &set) < 0 || array->prefix_count > 0 || set.count != 1)
        return NULL;
    item = set.schemas[0];
    constants = json_object_get(item, "enum");
    if (!constants || json_array_size(constants) > UNIQUE_VALUES_MAX ||
        json_object_size(item) > (json_object_get(item, "type") ? 2 : 1))
        return NULL;
    for (size_t i = 0; i < json_array_size(constants); i++)
        for (size_t j = 0; j < i; j++)
            if (schema_values_equal(json_array_get(constants, i), json_array_get(constants, j)))
                return NULL;
    return constants;
}

/* One item more, of those that are not in `used`, whose count is `count`. */
static int32_t unique_more(const struct array *array, const int32_t *values, size_t value_count,
                           const int32_t *rules, uint32_t used, int32_t count)
{
    struct schema_compiler *compiler = array->compiler;
    int32_t ways[UNIQUE_VALUES_MAX + 1];
    size_t n = 0;

    if (count >= array->low)
        ways[n++] = array->close;
    for (uint32_t i = 0; i < value_count; i++) {
        int32_t item = values[i];

        if (used >> i & 1 || (array->high >= 0 && count >= array->high))
            continue;
        item = count > 0 ? follow(array, item) : item;
        ways[n++] = schema_pair(compiler, item,
                                grammar_reference(compiler->grammar, rules[used | 1u << i]));
    }
    return grammar_choice(compiler->grammar, ways, n);
}

static int32_t array_unique(struct array *array, const json_t *schema)
{
    struct schema_compiler *compiler = array->compiler;
    const json_t *constants = item_constants(array);
    int32_t values[UNIQUE_VALUES_MAX], rules[1 << UNIQUE_VALUES_MAX];
    uint32_t count = (uint32_t)json_array_size(constants);

    if (array->high == 0 || array->high == 1)
        return array_contains(array);
    if (!constants || find_keyword(array, "contains"))
        return schema_refuse(compiler, E_UNSUPPORTED, schema, "uniqueItems",
                             "cannot be enforced, but for items of one \"enum\" of at most %d "
                             "different values",
                             UNIQUE_VALUES_MAX);
    for (uint32_t i = 0; i < count; i++)
        values[i] = schema_json_value(compiler, json_array_get(constants, i));
    for (uint32_t used = 0; used < 1u << count; used++) {
        rules[used] = grammar_rule(compiler->grammar, "unique items");
        if (rules[used] < 0)
            return rules[used];
    }
    for (uint32_t used = 0; used < 1u << count; used++) {
        int32_t taken = __builtin_popcount(used);
        int r = grammar_define(compiler->grammar, rules[used],
                               unique_more(array, values, count, rules, used, taken));

        if (r < 0)
            return r;
    }
    return grammar_reference(compiler->grammar, rules[0]);
}

int32_t schema_array(struct schema_compiler *compiler, const struct schema_leaf *leaf)
{
    struct array array = {.compiler = compiler, .leaf = leaf};
    const json_t *unique = NULL;
    int32_t body;
    int r = array_read(&array);

    if (r < 0)
        return r;
    if (array.high >= 0 && array.low > array.high)
        return grammar_never(compiler->grammar);
    for (uint32_t i = 0; i < leaf->set.count; i++)
        if (json_is_true(json_object_get(leaf->set.schemas[i], "uniqueItems")))
            unique = leaf->set.schemas[i];
    body = unique ? array_unique(&array, unique) : array_contains(&array);
    return schema_pair(compiler, schema_open_bracket(compiler, '['), body);
}
