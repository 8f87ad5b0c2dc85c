/* jinja_methods.c -- methods of lists, dicts, loops and the like, and where a method is found:
 * Python's, but for those that would change what they belong to, which the sandbox of templates
 * refuses. */
#include <math.h>
#include <stdio.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

/* --- lists and dicts -------------------------------------------------------------------------- */

static int list_index(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct list *list = call->self.list;

    for (size_t i = 0; i < list->count; i++) {
        int r = value_equal(run, list->items[i], call->arguments[0]);

        if (r < 0 || run_step(run, 1) < 0)
            return r < 0 ? r : E_TOO_LARGE;
        if (r > 0) {
            *ret_value = value_int((int64_t)i);
            return 0;
        }
    }
    return run_wrong(run, "the value is not in the list");
}

static int list_count(struct run *run, const struct call *call, struct value *ret_value)
{
    const struct list *list = call->self.list;
    int64_t count = 0;

    for (size_t i = 0; i < list->count; i++) {
        int r = value_equal(run, list->items[i], call->arguments[0]);

        if (r < 0 || run_step(run, 1) < 0)
            return r < 0 ? r : E_TOO_LARGE;
        count += r;
    }
    *ret_value = value_int(count);
    return 0;
}

/* Nothing changes, so a copy is the same. */
static int copy(struct run *run, const struct call *call, struct value *ret_value)
{
    *ret_value = call->self;
    return run_step(run, 1);
}

static int dict_get_method(struct run *run, const struct call *call, struct value *ret_value)
{
    int r = dict_get(run, call->self.dict, call->arguments[0], ret_value);

    if (r == 0)
        *ret_value = call->arguments[1].kind == VALUE_UNSET ? NONE : call->arguments[1];
    return r < 0 ? r : 0;
}

static int view(struct run *run, const struct call *call, enum view_kind kind,
                struct value *ret_value)
{
    struct view *made = run_take(run, 1, sizeof *made);

    if (!made)
        return E_MEMORY;
    *made = (struct view){kind, call->self.dict};
    *ret_value = (struct value){.kind = VALUE_VIEW, .view = made};
    return 0;
}

static int dict_keys(struct run *run, const struct call *call, struct value *ret_value)
{
    return view(run, call, VIEW_KEYS, ret_value);
}

static int dict_values(struct run *run, const struct call *call, struct value *ret_value)
{
    return view(run, call, VIEW_VALUES, ret_value);
}

static int dict_items(struct run *run, const struct call *call, struct value *ret_value)
{
    return view(run, call, VIEW_ITEMS, ret_value);
}

/* --- loops, cyclers, numbers, functions ------------------------------------------------------- */

static int loop_cycle(struct run *run, const struct call *call, struct value *ret_value)
{
    if (call->count == 0)
        return run_wrong(run, "no items for cycling given");
    *ret_value = call->arguments[(size_t)call->self.loop->index % call->count];
    return 0;
}

static int loop_changed(struct run *run, const struct call *call, struct value *ret_value)
{
    struct loop *loop = call->self.loop;
    struct list *list = list_make(run, call->count);
    struct value now = value_list(VALUE_TUPLE, list);
    int r = 0;

    if (!list)
        return E_MEMORY;
    for (; list->count < call->count; list->count++)
        list->items[list->count] = call->arguments[list->count];
    if (loop->changed.kind != VALUE_UNSET)
        r = value_equal(run, loop->changed, now);
    loop->changed = now;
    *ret_value = value_bool(r == 0);
    return r < 0 ? r : 0;
}

static int cycle_next(struct run *run, const struct call *call, struct value *ret_value)
{
    struct cycle *cycle = call->self.cycle;

    *ret_value = cycle->items->items[cycle->at];
    cycle->at = (cycle->at + 1) % cycle->items->count;
    return run_step(run, 1);
}

static int cycle_reset(struct run *run, const struct call *call, struct value *ret_value)
{
    call->self.cycle->at = 0;
    *ret_value = NONE;
    return run_step(run, 1);
}

static int float_is_integer(struct run *run, const struct call *call, struct value *ret_value)
{
    double real = number_float(call->self);

    *ret_value = value_bool(isfinite(real) && real == floor(real));
    return run_step(run, 1);
}

static int dict_fromkeys(struct run *run, const struct call *call, struct value *ret_value)
{
    struct list *keys = value_items(run, call->arguments[0]);
    struct dict *dict = dict_make(run, 0);
    struct value value = call->arguments[1].kind == VALUE_UNSET ? NONE : call->arguments[1];

    for (size_t i = 0; keys && dict && i < keys->count; i++) {
        int r = dict_put(run, dict, keys->items[i], value);

        if (r < 0)
            return r;
    }
    *ret_value = value_dict(dict);
    return keys && dict ? 0 : run_failed(run);
}

/* --- tables ----------------------------------------------------------------------------------- */

static const struct builtin list_methods[] = {
    {"index", "/value", 1, list_index},
    {"count", "/value", 1, list_count},
    {"copy", "", 0, copy},
    {NULL, NULL, 0, NULL},
};
static const struct builtin tuple_methods[] = {
    {"index", "/value", 1, list_index},
    {"count", "/value", 1, list_count},
    {NULL, NULL, 0, NULL},
};
static const struct builtin dict_methods[] = {
    {"get", "/key, default", 1, dict_get_method},
    {"items", "", 0, dict_items},
    {"keys", "", 0, dict_keys},
    {"values", "", 0, dict_values},
    {"copy", "", 0, copy},
    {"fromkeys", "/iterable, value", 1, dict_fromkeys},
    {NULL, NULL, 0, NULL},
};
static const struct builtin loop_methods[] = {
    {"cycle", NULL, 0, loop_cycle},
    {"changed", NULL, 0, loop_changed},
    {NULL, NULL, 0, NULL},
};
static const struct builtin cycle_methods[] = {
    {"next", "", 0, cycle_next},
    {"reset", "", 0, cycle_reset},
    {NULL, NULL, 0, NULL},
};
static const struct builtin number_methods[] = {
    {"is_integer", "", 0, float_is_integer},
    {NULL, NULL, 0, NULL},
};
static const struct builtin function_methods[] = {
    {"fromkeys", "/iterable, value", 1, dict_fromkeys},
    {NULL, NULL, 0, NULL},
};

const struct builtin *method_find(struct value value, const struct text *name)
{
    const struct builtin *methods;

    switch (value.kind) {
    case VALUE_TEXT:
        methods = text_methods;
        break;
    case VALUE_LIST:
        methods = list_methods;
        break;
    case VALUE_TUPLE:
        methods = tuple_methods;
        break;
    case VALUE_DICT:
        methods = dict_methods;
        break;
    case VALUE_LOOP:
        methods = loop_methods;
        break;
    case VALUE_CYCLE:
        methods = cycle_methods;
        break;
    case VALUE_INT:
    case VALUE_FLOAT:
        methods = number_methods;
        break;
    case VALUE_FUNCTION:
        if (strcmp(value.function->name, "dict") != 0)
            return NULL;
        methods = function_methods;
        break;
    default:
        return NULL;
    }
    for (; methods->name; methods++) {
        if (methods->name[0] == (name->bytes ? *name->data : 0) && text_is(name, methods->name))
            return methods;
    }
    return NULL;
}

bool method_is_unsafe(struct value value, const struct text *name)
{
    static const char *const of_lists[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const char *const *names = value.kind == VALUE_LIST ? of_lists : of_dicts;
    size_t count = value.kind == VALUE_LIST   ? sizeof of_lists / sizeof *of_lists
                   : value.kind == VALUE_DICT ? sizeof of_dicts / sizeof *of_dicts
                                              : 0;

    for (size_t i = 0; i < count; i++) {
        if (text_is(name, names[i]))
            return true;
    }
    return false;
}
