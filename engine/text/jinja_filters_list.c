/* jinja_filters_list.c -- the filters that go through lists: map, select, sort, group and so on.
 *
 * What is a generator in Jinja is a stream here: it is made at once, but can be gone through only
 * once, too. */
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { PARTS_MAX = 16, KEYS_MAX = 8, SLICES_MAX = 100000 };

static struct value argument_or(const struct call *call, size_t index, struct value otherwise)
{
    return call->arguments[index].kind == VALUE_UNSET ? otherwise : call->arguments[index];
}

static bool is_given(struct value value)
{
    return value.kind != VALUE_UNSET && value.kind != VALUE_NONE;
}

/* --- attributes and keys ---------------------------------------------------------------------- */

/* How a filter looks at an item: by an attribute ("a.b.0"), a default for it, and without case. */
struct getter {
    struct value parts[PARTS_MAX];
    size_t count;
    struct value otherwise;
    bool folds;
};

static bool is_number(const struct text *text)
{
    for (size_t i = 0; i < text->bytes; i++) {
        if (text->data[i] < '0' || text->data[i] > '9')
            return false;
    }
    return text->bytes > 0;
}

static int getter_init(struct run *run, struct value attribute, struct value otherwise, bool folds,
                       struct getter *ret_getter)
{
    size_t start = 0;

    *ret_getter = (struct getter){.otherwise = otherwise, .folds = folds};
    if (!is_given(attribute))
        return 0;
    if (attribute.kind != VALUE_TEXT) {
        ret_getter->parts[ret_getter->count++] = attribute;
        return 0;
    }
    for (size_t at = 0; at <= attribute.text->bytes; at++) {
        struct text *part;
        struct value number;

        if (at < attribute.text->bytes && attribute.text->data[at] != '.')
            continue;
        if (ret_getter->count == PARTS_MAX)
            return run_fault(run, E_TOO_LARGE, "an attribute has more than %d parts", PARTS_MAX);
        part = text_part(run, attribute.text, start, at);
        if (!part)
            return E_MEMORY;
        number = value_text(part);
        if (is_number(part) && integer_read(run, part, 10, &number) < 0)
            return run_failed(run);
        ret_getter->parts[ret_getter->count++] = number;
        start = at + 1;
    }
    return 0;
}

/* Text without case, so that 'a' sorts beside 'A'. */
static int fold(struct run *run, struct value *value)
{
    if (value->kind != VALUE_TEXT)
        return 0;
    return text_give(text_change_case(run, value->text, CASE_LOWER), run, value);
}

static int get(struct run *run, const struct getter *getter, struct value item,
               struct value *ret_value)
{
    for (size_t i = 0; i < getter->count; i++) {
        if (value_element(run, item, getter->parts[i], &item) < 0)
            return run_failed(run);
        if (item.kind == VALUE_UNDEFINED && is_given(getter->otherwise))
            item = getter->otherwise;
    }
    if (getter->folds && fold(run, &item) < 0)
        return run_failed(run);
    *ret_value = item;
    return run_step(run, 1);
}

/* --- map and select --------------------------------------------------------------------------- */

/* What a filter or test of a given name makes of each item. */
struct applied {
    const struct builtin *builtin; /* NULL: the item itself */
    struct call call;
};

static int applied_init(struct run *run, const struct call *call, size_t from, bool is_test,
                        struct applied *ret_applied)
{
    struct value name = call->arguments[from];

    if (name.kind != VALUE_TEXT)
        return run_wrong(run, "the name of a %s is expected", is_test ? "test" : "filter");
    ret_applied->builtin = is_test ? test_find(name.text->data, name.text->bytes)
                                   : filter_find(name.text->data, name.text->bytes);
    if (!ret_applied->builtin)
        return run_wrong(run, "there is no %s '%.*s'", is_test ? "test" : "filter",
                         (int)(name.text->bytes < 100 ? name.text->bytes : 100), name.text->data);
    ret_applied->call = (struct call){.arguments = call->arguments + from + 1,
                                      .count = call->count - from - 1,
                                      .named = call->named};
    return 0;
}

static int apply(struct run *run, struct applied *applied, struct value item,
                 struct value *ret_value)
{
    int r = run_enter(run);

    if (r < 0)
        return r;
    applied->call.self = item;
    r = builtin_call(run, applied->builtin, &applied->call, ret_value);
    if (r == 0)
        run->depth--;
    return r;
}

int filter_map(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = NULL, *made = list_make(run, 0);
    struct applied applied = {.builtin = NULL};
    struct getter getter;
    int r = 0;

    if (call->count == 0) {
        const struct value *attribute =
            call->named ? dict_find_name(call->named, "attribute") : NULL;
        const struct value *otherwise = call->named ? dict_find_name(call->named, "default") : NULL;

        if (!attribute || call->named->count != 1u + (otherwise != NULL))
            return run_wrong(run, "map requires a filter argument");
        r = getter_init(run, *attribute, otherwise ? *otherwise : UNSET, false, &getter);
    } else {
        r = applied_init(run, call, 0, false, &applied);
    }
    if (r < 0)
        return r;
    if (value_is_true(call->self) && !(items = value_items(run, call->self)))
        return run_failed(run);
    for (size_t i = 0; items && made && r == 0 && i < items->count; i++) {
        struct value value;

        r = applied.builtin ? apply(run, &applied, items->items[i], &value)
                            : get(run, &getter, items->items[i], &value);
        if (r == 0)
            r = list_put(run, made, value);
    }
    return r < 0 ? r : value_stream(run, made, ret_value);
}

static int select_items(struct run *run, const struct call *call, bool by_attribute, bool wanted,
                        struct value *ret_value)
{
    struct list *items = NULL, *made = list_make(run, 0);
    struct applied applied = {.builtin = NULL};
    struct getter getter = {.count = 0};
    size_t from = by_attribute ? 1 : 0;
    int r = 0;

    if (call->count < from)
        return run_wrong(run, "Missing parameter for attribute name");
    if (by_attribute)
        r = getter_init(run, call->arguments[0], UNSET, false, &getter);
    if (r == 0 && call->count > from)
        r = applied_init(run, call, from, true, &applied);
    if (r < 0)
        return r;
    if (value_is_true(call->self) && !(items = value_items(run, call->self)))
        return run_failed(run);
    for (size_t i = 0; items && made && r == 0 && i < items->count; i++) {
        struct value value;

        r = get(run, &getter, items->items[i], &value);
        if (r == 0 && applied.builtin)
            r = apply(run, &applied, value, &value);
        if (r == 0 && value_is_true(value) == wanted)
            r = list_put(run, made, items->items[i]);
    }
    return r < 0 ? r : value_stream(run, made, ret_value);
}

int filter_select(struct run *run, const struct call *call, struct value *ret_value)
{
    return select_items(run, call, false, true, ret_value);
}

int filter_reject(struct run *run, const struct call *call, struct value *ret_value)
{
    return select_items(run, call, false, false, ret_value);
}

int filter_selectattr(struct run *run, const struct call *call, struct value *ret_value)
{
    return select_items(run, call, true, true, ret_value);
}

int filter_rejectattr(struct run *run, const struct call *call, struct value *ret_value)
{
    return select_items(run, call, true, false, ret_value);
}

/* --- order ------------------------------------------------------------------------------------ */

struct keyed {
    struct value key;
    struct value item;
};

/* Stable, by merging; `down` turns the order round, not that of equal ones. */
static int merge_sort(struct run *run, struct keyed *items, struct keyed *scratch, size_t count,
                      bool down)
{
    size_t half = count / 2, left = 0, right = half;

    if (count < 2)
        return 0;
    if (merge_sort(run, items, scratch, half, down) < 0 ||
        merge_sort(run, items + half, scratch, count - half, down) < 0)
        return run_failed(run);
    for (size_t i = 0; i < count; i++) {
        int order = 0;

        if (left < half && right < count) {
            int r = value_compare(run, items[right].key, items[left].key, &order);

            if (r < 0 || run_step(run, 1) < 0)
                return r < 0 ? r : E_TOO_LARGE;
            if (order == 2)
                order = 0;
        }
        if (right == count || (left < half && (down ? order <= 0 : order >= 0)))
            scratch[i] = items[left++];
        else
            scratch[i] = items[right++];
    }
    memcpy(items, scratch, count * sizeof *items);
    return 0;
}

/* The items with their keys, in order; *ret_count of them. NULL: the fault is set. As `lists` keys
 * that are equal need no order: [none, none] can be sorted. */
static struct keyed *sorted(struct run *run, struct value value, const struct getter *getters,
                            size_t getter_count, bool lists, bool down, size_t *ret_count)
{
    struct list *items = value_items(run, value);
    struct keyed *keyed = items ? run_take(run, items->count, 2 * sizeof *keyed) : NULL;

    if (!keyed)
        return NULL;
    for (size_t i = 0; i < items->count; i++) {
        struct list *keys;

        keyed[i].item = items->items[i];
        if (!lists) {
            if (get(run, &getters[0], keyed[i].item, &keyed[i].key) < 0)
                return NULL;
            continue;
        }
        keys = list_make(run, getter_count);
        for (; keys && keys->count < getter_count; keys->count++) {
            if (get(run, &getters[keys->count], keyed[i].item, &keys->items[keys->count]) < 0)
                return NULL;
        }
        if (!keys)
            return NULL;
        keyed[i].key = value_list(VALUE_LIST, keys);
    }
    if (merge_sort(run, keyed, keyed + items->count, items->count, down) < 0)
        return NULL;
    *ret_count = items->count;
    return keyed;
}

static int give_items(struct run *run, const struct keyed *keyed, size_t count,
                      struct value *ret_value)
{
    struct list *list = keyed ? list_make(run, count) : NULL;

    if (!list)
        return run_failed(run);
    for (; list->count < count; list->count++)
        list->items[list->count] = keyed[list->count].item;
    *ret_value = value_list(VALUE_LIST, list);
    return 0;
}

/* sort(reverse=False, case_sensitive=False, attribute=None); attributes may be several: "a,b". */
int filter_sort(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value attribute = call->arguments[2];
    struct getter getters[KEYS_MAX];
    bool folds = !value_is_true(call->arguments[1]);
    size_t count = 0, start = 0, item_count = 0;
    struct keyed *keyed;

    if (attribute.kind != VALUE_TEXT) {
        if (getter_init(run, attribute, UNSET, folds, &getters[count++]) < 0)
            return run_failed(run);
    } else {
        for (size_t at = 0; at <= attribute.text->bytes; at++) {
            struct text *part;

            if (at < attribute.text->bytes && attribute.text->data[at] != ',')
                continue;
            if (count == KEYS_MAX)
                return run_fault(run, E_TOO_LARGE, "sort by more than %d attributes", KEYS_MAX);
            part = text_part(run, attribute.text, start, at);
            if (!part || getter_init(run, value_text(part), UNSET, folds, &getters[count++]) < 0)
                return run_failed(run);
            start = at + 1;
        }
    }
    keyed = sorted(run, call->self, getters, count, true, value_is_true(call->arguments[0]),
                   &item_count);
    return give_items(run, keyed, item_count, ret_value);
}

/* dictsort(case_sensitive=False, by='key', reverse=False) */
int filter_dictsort(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value by = call->arguments[1];
    struct view view = {.kind = VIEW_ITEMS, .dict = call->self.dict};
    struct value items = {.kind = VALUE_VIEW, .view = &view};
    struct getter getter;
    size_t count = 0;
    bool by_value = by.kind == VALUE_TEXT && text_is(by.text, "value");
    struct keyed *keyed;

    if (call->self.kind != VALUE_DICT)
        return run_wrong(run, "'%s' object has no attribute 'items'", value_type(call->self));
    if (by.kind != VALUE_UNSET && !by_value && !(by.kind == VALUE_TEXT && text_is(by.text, "key")))
        return run_wrong(run, "You can only sort by either \"key\" or \"value\"");
    if (getter_init(run, value_int(by_value), UNSET, !value_is_true(call->arguments[0]), &getter) <
        0)
        return run_failed(run);
    keyed = sorted(run, items, &getter, 1, false, value_is_true(call->arguments[2]), &count);
    return give_items(run, keyed, count, ret_value);
}

/* groupby(attribute, default=None, case_sensitive=False) */
int filter_groupby(struct run *run, const struct call *call, struct value *ret_value)
{
    bool folds = !value_is_true(call->arguments[2]);
    struct list *groups = list_make(run, 0), *group = NULL;
    struct getter getter, plain;
    size_t count = 0;
    struct keyed *keyed;

    if (getter_init(run, call->arguments[0], call->arguments[1], folds, &getter) < 0 ||
        getter_init(run, call->arguments[0], call->arguments[1], false, &plain) < 0)
        return run_failed(run);
    keyed = sorted(run, call->self, &getter, 1, false, false, &count);
    if (!keyed || !groups)
        return run_failed(run);
    for (size_t i = 0; i < count; i++) {
        int r = i > 0 ? value_equal(run, keyed[i - 1].key, keyed[i].key) : 0;
        struct value key, tuple;

        if (r == 0) {
            group = list_make(run, 0);
            if (!group || get(run, &plain, keyed[i].item, &key) < 0 ||
                list_pair(run, VALUE_TUPLE, key, value_list(VALUE_LIST, group), &tuple) < 0)
                return run_failed(run);
            tuple.list->grouped = true;
            r = list_put(run, groups, tuple);
        }
        if (r < 0 || list_put(run, group, keyed[i].item) < 0)
            return run_failed(run);
    }
    *ret_value = value_list(VALUE_LIST, groups);
    return 0;
}

/* unique(case_sensitive=False, attribute=None) */
int filter_unique(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = value_items(run, call->self), *made = list_make(run, 0);
    struct dict *seen = dict_make(run, 0);
    struct getter getter;

    if (!items || !made || !seen ||
        getter_init(run, call->arguments[1], UNSET, !value_is_true(call->arguments[0]), &getter) <
            0)
        return run_failed(run);
    for (size_t i = 0; i < items->count; i++) {
        uint32_t before = seen->count;
        struct value key;

        if (get(run, &getter, items->items[i], &key) < 0 || dict_put(run, seen, key, NONE) < 0)
            return run_failed(run);
        if (seen->count > before && list_put(run, made, items->items[i]) < 0)
            return E_MEMORY;
    }
    return value_stream(run, made, ret_value);
}

/* min and max(case_sensitive=False, attribute=None) */
static int extreme(struct run *run, const struct call *call, int sign, struct value *ret_value)
{
    struct list *items = value_items(run, call->self);
    struct value best, key;
    struct getter getter;

    if (!items || getter_init(run, call->arguments[1], UNSET, !value_is_true(call->arguments[0]),
                              &getter) < 0)
        return run_failed(run);
    if (items->count == 0) {
        *ret_value = value_undefined(run, MISSING_REASON, NULL, NULL,
                                     "No aggregated item, sequence was empty.");
        return 0;
    }
    for (size_t i = 0; i < items->count; i++) {
        int order = sign;

        if (get(run, &getter, items->items[i], &key) < 0 ||
            (i > 0 && value_compare(run, key, best, &order) < 0))
            return run_failed(run);
        if (order != sign)
            continue;
        best = key;
        *ret_value = items->items[i];
    }
    return 0;
}

int filter_min(struct run *run, const struct call *call, struct value *ret_value)
{
    return extreme(run, call, -1, ret_value);
}

int filter_max(struct run *run, const struct call *call, struct value *ret_value)
{
    return extreme(run, call, 1, ret_value);
}

/* sum(attribute=None, start=0) */
int filter_sum(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value sum = argument_or(call, 1, value_int(0)), value;
    struct list *items = value_items(run, call->self);
    struct getter getter;

    if (!items || getter_init(run, call->arguments[0], UNSET, false, &getter) < 0)
        return run_failed(run);
    if (sum.kind == VALUE_TEXT)
        return run_wrong(run, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < items->count; i++) {
        if (get(run, &getter, items->items[i], &value) < 0 ||
            value_arithmetic(run, OPERATION_ADD, sum, value, &sum) < 0)
            return run_failed(run);
    }
    *ret_value = sum;
    return 0;
}

/* --- parts ------------------------------------------------------------------------------------ */

int filter_first(struct run *run, const struct call *call, struct value *ret_value)
{
    struct iterator iterator;
    int r = iterator_init(run, call->self, &iterator);

    if (r == 0)
        r = iterator_next(run, &iterator, ret_value);
    if (r == 0)
        *ret_value =
            value_undefined(run, MISSING_REASON, NULL, NULL, "No first item, sequence was empty.");
    return r < 0 ? r : 0;
}

int filter_last(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items;

    if (call->self.kind == VALUE_STREAM)
        return run_wrong(run, "'generator' object is not reversible");
    items = value_items(run, call->self);
    if (!items)
        return run_failed(run);
    *ret_value = items->count > 0 ? items->items[items->count - 1]
                                  : value_undefined(run, MISSING_REASON, NULL, NULL,
                                                    "No last item, sequence was empty.");
    return 0;
}

int filter_list(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = value_items(run, call->self);

    if (!items)
        return run_failed(run);
    *ret_value = value_list(VALUE_LIST, items);
    return 0;
}

int filter_items(struct run *run, const struct call *call, struct value *ret_value)
{
    struct view view = {.kind = VIEW_ITEMS, .dict = call->self.dict};
    struct value items = {.kind = VALUE_VIEW, .view = &view};

    if (call->self.kind == VALUE_UNDEFINED)
        return value_stream(run, list_make(run, 0), ret_value);
    if (call->self.kind != VALUE_DICT)
        return run_wrong(run, "Can only get item pairs from a mapping.");
    return value_stream(run, value_items(run, items), ret_value);
}

int filter_reverse(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct value bounds[3] = {NONE, NONE, value_int(-1)};
    struct list *items, *made;

    if (call->self.kind == VALUE_TEXT)
        return value_slice(run, call->self, bounds, ret_value);
    items = value_items(run, call->self);
    made = items ? list_make(run, items->count) : NULL;
    if (!made)
        return run_failed(run);
    for (; made->count < items->count; made->count++)
        made->items[made->count] = items->items[items->count - 1 - made->count];
    if (call->self.kind != VALUE_STREAM)
        return value_stream(run, made, ret_value);
    *ret_value = value_list(VALUE_LIST, made);
    return 0;
}

/* join(d='', attribute=None) */
int filter_join(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = value_items(run, call->self);
    size_t start = run->out->bytes;
    struct getter getter;
    struct text *between = NULL;
    int r = items ? getter_init(run, call->arguments[1], UNSET, false, &getter) : run_failed(run);

    if (r == 0 && call->arguments[0].kind != VALUE_UNSET) {
        between = value_string(run, call->arguments[0]);
        r = between ? 0 : run_failed(run);
    }
    for (size_t i = 0; r == 0 && i < items->count; i++) {
        struct value value;

        if (i > 0 && between)
            r = value_print(run, value_text(between), run->out);
        if (r == 0)
            r = get(run, &getter, items->items[i], &value);
        if (r == 0)
            r = value_print(run, value, run->out);
    }
    return r < 0 ? r : text_give(run_capture(run, start), run, ret_value);
}

/* batch(linecount, fill_with=None) */
int filter_batch(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = value_items(run, call->self), *rows = list_make(run, 0), *row = NULL;
    int64_t size;

    if (!items || !rows || value_index(run, call->arguments[0], "linecount", &size) < 0)
        return run_failed(run);
    if (size < 1 || size > SLICES_MAX)
        return run_wrong(run, "linecount must be between 1 and %d", SLICES_MAX);
    for (size_t i = 0; i < items->count; i++) {
        if (i % (size_t)size == 0) {
            row = list_make(run, 0);
            if (!row || list_put(run, rows, value_list(VALUE_LIST, row)) < 0)
                return E_MEMORY;
        }
        if (list_put(run, row, items->items[i]) < 0)
            return E_MEMORY;
    }
    while (row && is_given(call->arguments[1]) && row->count < (size_t)size) {
        if (list_put(run, row, call->arguments[1]) < 0 || run_step(run, 1) < 0)
            return E_TOO_LARGE;
    }
    return value_stream(run, rows, ret_value);
}

/* slice(slices, fill_with=None) */
int filter_slice(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *items = value_items(run, call->self), *columns = list_make(run, 0);
    int64_t slices, size, extra, at = 0;

    if (!items || !columns || value_index(run, call->arguments[0], "slices", &slices) < 0)
        return run_failed(run);
    if (slices < 1 || slices > SLICES_MAX)
        return run_wrong(run, "slices must be between 1 and %d", SLICES_MAX);
    size = (int64_t)items->count / slices;
    extra = (int64_t)items->count % slices;
    for (int64_t i = 0; i < slices; i++) {
        struct list *column = list_make(run, 0);
        int r = column ? run_step(run, 1) : E_MEMORY;

        for (int64_t end = at + size + (i < extra); r == 0 && at < end; at++)
            r = list_put(run, column, items->items[at]);
        if (r == 0 && is_given(call->arguments[1]) && i >= extra)
            r = list_put(run, column, call->arguments[1]);
        if (r == 0)
            r = list_put(run, columns, value_list(VALUE_LIST, column));
        if (r < 0)
            return r;
    }
    return value_stream(run, columns, ret_value);
}
