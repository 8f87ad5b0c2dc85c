/* jinja_operate.c -- operators, members, elements and slices of values, as Python has them. */
#include <stdio.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { INDEX_ROOM = 24 };

/* --- operators -------------------------------------------------------------------------------- */

static int join_lists(struct run *run, struct value left, struct value right,
                      struct value *ret_value)
{
    struct list *list = list_make(run, left.list->count + right.list->count);

    if (!list)
        return E_MEMORY;
    list->count = left.list->count + right.list->count;
    for (size_t i = 0; i < list->count; i++)
        list->items[i] =
            i < left.list->count ? left.list->items[i] : right.list->items[i - left.list->count];
    *ret_value = value_list(left.kind, list);
    return run_step(run, list->count / 4);
}

static int repeat_list(struct run *run, struct value value, int64_t times, struct value *ret_value)
{
    const struct list *from = value.list;
    struct list *list;
    size_t count;

    if (times < 0)
        times = 0;
    if (__builtin_mul_overflow((size_t)times, from->count, &count) ||
        count > JINJA_MEMORY_BYTES_MAX / sizeof *from->items)
        return run_fault(run, E_TOO_LARGE, "a list is repeated %lld times, which is too long",
                         (long long)times);
    list = list_make(run, count);
    if (!list || run_step(run, count / 4) < 0)
        return E_TOO_LARGE;
    list->count = count;
    for (size_t i = 0; i < count; i++)
        list->items[i] = from->items[i % from->count];
    *ret_value = value_list(value.kind, list);
    return 0;
}

static bool is_sequence(struct value value)
{
    return value.kind == VALUE_TEXT || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static int repeat(struct run *run, struct value sequence, struct value times,
                  struct value *ret_value)
{
    int64_t count;
    int r = value_index(run, times, "the factor", &count);

    if (r < 0)
        return r;
    if (sequence.kind != VALUE_TEXT)
        return repeat_list(run, sequence, count, ret_value);
    return text_give(text_repeat(run, sequence.text, count), run, ret_value);
}

static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

int value_arithmetic(struct run *run, enum operation operation, struct value left,
                     struct value right, struct value *ret_value)
{
    if (value_is_number(left) && value_is_number(right))
        return number_arithmetic(run, operation, left, right, ret_value);
    if (left.kind == VALUE_TEXT && operation == OPERATION_MODULO && right.kind != VALUE_UNDEFINED)
        return format_percent(run, left.text, right, ret_value);
    if (value_defined(run, left) < 0 || value_defined(run, right) < 0)
        return run_failed(run);
    if (operation == OPERATION_ADD && left.kind == right.kind) {
        if (left.kind == VALUE_TEXT)
            return text_give(text_join(run, left.text, right.text), run, ret_value);
        if (left.kind == VALUE_LIST || left.kind == VALUE_TUPLE)
            return join_lists(run, left, right, ret_value);
    }
    if (operation == OPERATION_MULTIPLY && is_sequence(left) && value_is_integer(right))
        return repeat(run, left, right, ret_value);
    if (operation == OPERATION_MULTIPLY && is_sequence(right) && value_is_integer(left))
        return repeat(run, right, left, ret_value);
    if (operation == OPERATION_ADD && is_sequence(left))
        return run_wrong(run, "can only concatenate %s (not \"%s\") to %s", value_type(left),
                         value_type(right), value_type(left));
    return run_wrong(run, "unsupported operand type(s) for %s: '%s' and '%s'", signs[operation],
                     value_type(left), value_type(right));
}

int value_relation(struct run *run, enum operation operation, struct value left, struct value right,
                   bool *ret_truth)
{
    int order = 0, r;

    switch (operation) {
    case OPERATION_EQUAL:
    case OPERATION_NOT_EQUAL:
        r = value_equal(run, left, right);
        *ret_truth = (r > 0) == (operation == OPERATION_EQUAL);
        return r < 0 ? r : 0;
    case OPERATION_IN:
    case OPERATION_NOT_IN:
        if (right.kind == VALUE_NONE || value_is_number(right))
            return run_wrong(run, "argument of type '%s' is not iterable", value_type(right));
        r = value_contains(run, right, left);
        *ret_truth = (r > 0) == (operation == OPERATION_IN);
        return r < 0 ? r : 0;
    default:
        break;
    }
    r = value_compare(run, left, right, &order);
    if (order == 2) /* nothing is true of a NaN */
        *ret_truth = false;
    else if (operation == OPERATION_LESS)
        *ret_truth = order < 0;
    else if (operation == OPERATION_LESS_EQUAL)
        *ret_truth = order <= 0;
    else if (operation == OPERATION_GREATER)
        *ret_truth = order > 0;
    else
        *ret_truth = order >= 0;
    return r;
}

/* --- members ---------------------------------------------------------------------------------- */

static const char *owner_name(struct value value)
{
    switch (value.kind) {
    case VALUE_NONE:
        return "None";
    case VALUE_BOOL:
        return "bool object";
    case VALUE_INT:
    case VALUE_BIG:
        return "int object";
    case VALUE_FLOAT:
        return "float object";
    case VALUE_TEXT:
        return "str object";
    case VALUE_LIST:
        return "list object";
    case VALUE_TUPLE:
        return "tuple object";
    case VALUE_DICT:
        return "dict object";
    default:
        return value_type(value);
    }
}

int64_t loop_number(const struct loop *loop)
{
    return loop->index + 1;
}

int loop_member(struct run *run, struct loop *loop, const struct text *name,
                struct value *ret_value)
{
    bool reversed = text_is(name, "revindex") || text_is(name, "revindex0");
    int64_t left;
    int r;

    if (text_is(name, "index0"))
        *ret_value = value_int(loop->index);
    else if (text_is(name, "index"))
        *ret_value = value_int(loop->index + 1);
    else if (text_is(name, "first"))
        *ret_value = value_bool(loop->index == 0);
    else if (text_is(name, "depth0"))
        *ret_value = value_int(loop->depth);
    else if (text_is(name, "depth"))
        *ret_value = value_int(loop->depth + 1);
    else if (text_is(name, "previtem"))
        *ret_value =
            loop->previous.kind != VALUE_UNSET
                ? loop->previous
                : value_undefined(run, MISSING_REASON, NULL, NULL, "there is no previous item");
    else if (text_is(name, "last") || text_is(name, "nextitem")) {
        r = loop_peek(run, loop);
        if (r < 0)
            return r;
        if (text_is(name, "last"))
            *ret_value = value_bool(r == 0);
        else
            *ret_value =
                r > 0 ? loop->next
                      : value_undefined(run, MISSING_REASON, NULL, NULL, "there is no next item");
    } else if (reversed || text_is(name, "length")) {
        left = loop->node->test && !loop->passed ? -1 : iterator_left(&loop->iterator);
        if (left < 0) {
            struct list *rest = list_make(run, 0);

            while (rest && (r = loop_peek(run, loop)) > 0) {
                if (list_put(run, rest, loop->next) < 0)
                    return E_MEMORY;
                loop->next = UNSET;
            }
            if (!rest || r < 0)
                return rest ? r : E_MEMORY;
            loop->passed = true;
            loop->iterator = (struct iterator){.over = value_list(VALUE_LIST, rest)};
            left = (int64_t)rest->count;
        }
        left += loop->next.kind != VALUE_UNSET;
        *ret_value =
            value_int(reversed ? left + text_is(name, "revindex") : loop->index + 1 + left);
    } else {
        return 0;
    }
    return 1;
}

static int missing(struct run *run, struct value owner, enum missing_kind kind,
                   const struct text *name, struct value *ret_value)
{
    *ret_value = value_undefined(run, kind, name, owner_name(owner), NULL);
    return 0;
}

int value_attribute(struct run *run, struct value owner, const struct text *name,
                    struct value *ret_value)
{
    const struct builtin *builtin = method_find(owner, name);
    const struct value *found;
    struct method *method;

    if (builtin) {
        method = run_take(run, 1, sizeof *method);
        if (!method)
            return E_MEMORY;
        *method = (struct method){owner, builtin};
        *ret_value = (struct value){.kind = VALUE_METHOD, .method = method};
        return 1;
    }
    switch (owner.kind) {
    case VALUE_NAMESPACE:
        if (name->bytes > 0 && name->data[0] == '_')
            return 0;
        found = dict_find(owner.dict, name);
        if (found)
            *ret_value = *found;
        return found != NULL;
    case VALUE_LOOP:
        return loop_member(run, owner.loop, name, ret_value);
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_BIG:
        if (text_is(name, "imag"))
            *ret_value = value_int(0);
        else if (text_is(name, "denominator"))
            *ret_value = value_int(1);
        else if (text_is(name, "real") || text_is(name, "numerator"))
            *ret_value = owner.kind == VALUE_BOOL ? value_int(owner.truth) : owner;
        else
            return 0;
        return 1;
    case VALUE_FLOAT:
        if (!text_is(name, "real") && !text_is(name, "imag"))
            return 0;
        *ret_value = text_is(name, "real") ? owner : value_float(0);
        return 1;
    case VALUE_MACRO:
        if (!text_is(name, "name") || !owner.macro->node->name)
            return 0;
        *ret_value = value_text(owner.macro->node->name);
        return 1;
    case VALUE_CYCLE:
        if (owner.cycle->joins || !text_is(name, "current"))
            return 0;
        *ret_value = owner.cycle->items->items[owner.cycle->at];
        return 1;
    case VALUE_TUPLE:
        if (!owner.list->grouped || (!text_is(name, "grouper") && !text_is(name, "list")))
            return 0;
        *ret_value = owner.list->items[text_is(name, "list")];
        return 1;
    default:
        return 0;
    }
}

int value_member(struct run *run, struct value owner, const struct text *name,
                 struct value *ret_value)
{
    const struct value *found;
    int r;

    if (owner.kind == VALUE_UNDEFINED)
        return value_fault_undefined(run, owner);
    r = value_attribute(run, owner, name, ret_value);
    if (r != 0)
        return r < 0 ? r : 0;
    if (method_is_unsafe(owner, name))
        return missing(run, owner, MISSING_UNSAFE, name, ret_value);
    found = owner.kind == VALUE_DICT ? dict_find(owner.dict, name) : NULL;
    if (!found)
        return missing(run, owner, MISSING_MEMBER, name, ret_value);
    *ret_value = *found;
    return 0;
}

static struct text *index_text(struct run *run, int64_t index)
{
    char shown[INDEX_ROOM];
    int bytes = snprintf(shown, sizeof shown, "%lld", (long long)index);

    return text_copy(run, shown, (size_t)bytes);
}

/* Item number `index` of a text, list, tuple or range: negative ones count from the end. */
static int item_at(struct run *run, struct value owner, int64_t index, struct value *ret_value)
{
    int64_t length = 0;
    size_t start;
    int r = value_length(run, owner, &length);

    if (r < 0)
        return r;
    if (index < -length || index >= length)
        return missing(run, owner, MISSING_ELEMENT, index_text(run, index), ret_value);
    if (index < 0)
        index += length;
    if (owner.kind == VALUE_TEXT) {
        struct text *text = owner.text;

        if (run_step(run, text->chars == text->bytes ? 0 : text->bytes / 16) < 0)
            return E_TOO_LARGE;
        start = text_offset(text, (size_t)index);
        (void)char_decode(text->data + start, (size_t *)&length);
        return text_give(text_part(run, text, start, start + (size_t)length), run, ret_value);
    }
    *ret_value = owner.kind == VALUE_RANGE
                     ? value_int(owner.range->start + index * owner.range->step)
                     : owner.list->items[index];
    return 0;
}

/* A list cannot be a key, nor a tuple that holds one: there is nothing under it then. */
static bool is_hashable(struct value key, unsigned depth)
{
    if (key.kind == VALUE_LIST || key.kind == VALUE_DICT || key.kind == VALUE_VIEW || depth > 20)
        return false;
    for (size_t i = 0; key.kind == VALUE_TUPLE && i < key.list->count; i++) {
        if (!is_hashable(key.list->items[i], depth + 1))
            return false;
    }
    return true;
}

int value_element(struct run *run, struct value owner, struct value key, struct value *ret_value)
{
    int r = 0;

    if (owner.kind == VALUE_UNDEFINED)
        return value_fault_undefined(run, owner);
    if (owner.kind == VALUE_DICT && is_hashable(key, 0))
        r = dict_get(run, owner.dict, key, ret_value);
    if (r != 0)
        return r < 0 ? r : 0;
    if (key.kind == VALUE_INT || key.kind == VALUE_BOOL) {
        int64_t index = key.kind == VALUE_INT ? key.integer : key.truth;

        if (is_sequence(owner) || owner.kind == VALUE_RANGE)
            return item_at(run, owner, index, ret_value);
        return missing(run, owner, MISSING_ELEMENT, index_text(run, index), ret_value);
    }
    if (key.kind != VALUE_TEXT)
        return missing(run, owner, MISSING_ELEMENT, NULL, ret_value);
    r = value_attribute(run, owner, key.text, ret_value);
    if (r != 0)
        return r < 0 ? r : 0;
    return missing(run, owner, method_is_unsafe(owner, key.text) ? MISSING_UNSAFE : MISSING_MEMBER,
                   key.text, ret_value);
}

/* --- slices ----------------------------------------------------------------------------------- */

static int64_t clamp(int64_t bound, int64_t length, int64_t low, int64_t high)
{
    if (bound < 0)
        bound = bound < -length ? -1 - length : bound + length;
    return bound < low ? low : bound > high ? high : bound;
}

/* Start, step and count of a slice over `length` items. */
static int slice_bounds(struct run *run, const struct value bounds[3], int64_t length,
                        struct range *ret_range)
{
    static const char what[] = "slice indices";
    int64_t start, stop, step = 1;
    bool down;

    if (bounds[2].kind != VALUE_NONE && value_index(run, bounds[2], what, &step) < 0)
        return run_failed(run);
    if (step == 0)
        return run_wrong(run, "slice step cannot be zero");
    down = step < 0;
    start = down ? length - 1 : 0;
    stop = down ? -1 : length;
    if (bounds[0].kind != VALUE_NONE) {
        if (value_index(run, bounds[0], what, &start) < 0)
            return run_failed(run);
        start = clamp(start, length, down ? -1 : 0, down ? length - 1 : length);
    }
    if (bounds[1].kind != VALUE_NONE) {
        if (value_index(run, bounds[1], what, &stop) < 0)
            return run_failed(run);
        stop = clamp(stop, length, down ? -1 : 0, down ? length - 1 : length);
    }
    *ret_range = (struct range){.start = start, .step = step, .stop = stop};
    if (down && start > stop)
        ret_range->count = (start - stop - 1) / (step == INT64_MIN ? INT64_MAX : -step) + 1;
    else if (!down && start < stop)
        ret_range->count = (stop - start - 1) / step + 1;
    return 0;
}

static int slice_text(struct run *run, struct text *text, const struct range *range,
                      struct value *ret_value)
{
    size_t start = run->out->bytes, at;
    struct text *slice;

    if (range->count == 0)
        return text_give(text_part(run, text, 0, 0), run, ret_value);
    if (run_step(run, text->bytes / 64) < 0)
        return E_TOO_LARGE;
    if (range->step == 1) {
        at = text_offset(text, (size_t)range->start);
        slice = text_part(run, text, at, text_offset(text, (size_t)(range->start + range->count)));
        return text_give(slice, run, ret_value);
    }
    /* Character by character; a text of several bytes each is walked once for every one. */
    for (int64_t i = 0; i < range->count; i++) {
        size_t bytes;

        if (run_step(run, 1 + (text->chars == text->bytes ? 0 : text->bytes / 16)) < 0) {
            buf_cut(run->out, start);
            return E_TOO_LARGE;
        }
        at = text_offset(text, (size_t)(range->start + i * range->step));
        (void)char_decode(text->data + at, &bytes);
        buf_put(run->out, text->data + at, bytes);
    }
    slice = run_capture(run, start);
    if (slice)
        slice->markup = text->markup;
    return text_give(slice, run, ret_value);
}

int value_slice(struct run *run, struct value value, const struct value bounds[3],
                struct value *ret_value)
{
    struct range range = {.count = 0}, *made;
    struct list *list;
    int64_t length;

    if (value_defined(run, value) < 0)
        return run_failed(run);
    if (!is_sequence(value) && value.kind != VALUE_RANGE)
        return run_wrong(run, "'%s' object cannot be sliced", value_type(value));
    if (value_length(run, value, &length) < 0 || slice_bounds(run, bounds, length, &range) < 0)
        return run_failed(run);
    if (value.kind == VALUE_TEXT)
        return slice_text(run, value.text, &range, ret_value);
    if (value.kind == VALUE_RANGE) {
        made = run_take(run, 1, sizeof *made);
        if (!made)
            return E_MEMORY;
        made->start = value.range->start + range.start * value.range->step;
        made->stop = value.range->start + range.stop * value.range->step;
        made->step = range.count > 1 ? range.step * value.range->step : value.range->step;
        made->count = range.count;
        *ret_value = (struct value){.kind = VALUE_RANGE, .range = made};
        return 0;
    }
    list = list_make(run, (size_t)range.count);
    if (!list || run_step(run, (uint64_t)range.count / 4) < 0)
        return E_TOO_LARGE;
    list->count = (size_t)range.count;
    for (int64_t i = 0; i < range.count; i++)
        list->items[i] = value.list->items[range.start + i * range.step];
    *ret_value = value_list(value.kind, list);
    return 0;
}
