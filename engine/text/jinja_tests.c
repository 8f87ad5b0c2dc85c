/* jinja_tests.c -- what may stand after `is`, and the functions that are there from the start. */
#include <stdio.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { RANGE_MAX = 100000, TIME_ROOM = 4096, TIME_FORMAT_MAX = 256 };

static int give(struct run *run, bool truth, struct value *ret_value)
{
    (void)run;
    *ret_value = value_bool(truth);
    return 0;
}

#define TEST(name, truth)                                                              \
    static int name(struct run *run, const struct call *call, struct value *ret_value) \
    {                                                                                  \
        struct value self = call->self;                                                \
                                                                                       \
        return give(run, (truth), ret_value);                                          \
    }
TEST(is_defined, self.kind != VALUE_UNDEFINED)
TEST(is_undefined, self.kind == VALUE_UNDEFINED)
TEST(is_none, self.kind == VALUE_NONE)
TEST(is_boolean, self.kind == VALUE_BOOL)
TEST(is_true, self.kind == VALUE_BOOL && self.truth)
TEST(is_false, self.kind == VALUE_BOOL && !self.truth)
TEST(is_integer, self.kind == VALUE_INT || self.kind == VALUE_BIG)
TEST(is_float, self.kind == VALUE_FLOAT)
TEST(is_number, value_is_number(self))
TEST(is_string, self.kind == VALUE_TEXT)
TEST(is_mapping, self.kind == VALUE_DICT)
TEST(is_callable, value_is_callable(self))
TEST(is_escaped, self.kind == VALUE_TEXT && self.text->markup)
TEST(is_sameas, value_is_same(self, call->arguments[0]))
TEST(is_sequence, self.kind == VALUE_TEXT || self.kind == VALUE_LIST || self.kind == VALUE_TUPLE ||
                      self.kind == VALUE_DICT || self.kind == VALUE_RANGE ||
                      self.kind == VALUE_UNDEFINED)
TEST(is_iterable, (self.kind >= VALUE_TEXT && self.kind <= VALUE_STREAM) ||
                      self.kind == VALUE_UNDEFINED || self.kind == VALUE_LOOP)
TEST(is_filter, self.kind == VALUE_TEXT && filter_find(self.text->data, self.text->bytes))
TEST(is_test, self.kind == VALUE_TEXT && test_find(self.text->data, self.text->bytes))

/* self % by == rest */
static int remainder_is(struct run *run, struct value self, struct value by, int64_t rest,
                        struct value *ret_value)
{
    struct value value;
    int r = value_arithmetic(run, OPERATION_MODULO, self, by, &value);

    if (r == 0)
        r = value_equal(run, value, value_int(rest));
    return r < 0 ? r : give(run, r > 0, ret_value);
}

static int is_odd(struct run *run, const struct call *call, struct value *ret_value)
{
    return remainder_is(run, call->self, value_int(2), 1, ret_value);
}

static int is_even(struct run *run, const struct call *call, struct value *ret_value)
{
    return remainder_is(run, call->self, value_int(2), 0, ret_value);
}

static int is_divisibleby(struct run *run, const struct call *call, struct value *ret_value)
{
    return remainder_is(run, call->self, call->arguments[0], 0, ret_value);
}

#define RELATION(name, operation)                                                       \
    static int name(struct run *run, const struct call *call, struct value *ret_value)  \
    {                                                                                   \
        bool truth = false;                                                             \
        int r = value_relation(run, operation, call->self, call->arguments[0], &truth); \
                                                                                        \
        return r < 0 ? r : give(run, truth, ret_value);                                 \
    }
RELATION(is_equal, OPERATION_EQUAL)
RELATION(is_not_equal, OPERATION_NOT_EQUAL)
RELATION(is_less, OPERATION_LESS)
RELATION(is_less_equal, OPERATION_LESS_EQUAL)
RELATION(is_greater, OPERATION_GREATER)
RELATION(is_greater_equal, OPERATION_GREATER_EQUAL)
RELATION(is_in, OPERATION_IN)

static int one_case(struct run *run, struct value self, const char *method, struct value *ret_value)
{
    struct text *text = value_string(run, self), *name = text_of(run, method);
    const struct builtin *builtin;
    struct call call;

    if (!text || !name)
        return run_failed(run);
    call = (struct call){.self = value_text(text)};
    builtin = method_find(call.self, name);
    return builtin_call(run, builtin, &call, ret_value);
}

static int is_lower(struct run *run, const struct call *call, struct value *ret_value)
{
    return one_case(run, call->self, "islower", ret_value);
}

static int is_upper(struct run *run, const struct call *call, struct value *ret_value)
{
    return one_case(run, call->self, "isupper", ret_value);
}

static const struct builtin tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"iterable", "", 0, is_iterable},
    {"sequence", "", 0, is_sequence},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"number", "", 0, is_number},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"callable", "", 0, is_callable},
    {"escaped", "", 0, is_escaped},
    {"sameas", "other", 1, is_sameas},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisibleby},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"in", "seq", 1, is_in},
    {"==", "b", 1, is_equal},
    {"eq", "b", 1, is_equal},
    {"equalto", "b", 1, is_equal},
    {"!=", "b", 1, is_not_equal},
    {"ne", "b", 1, is_not_equal},
    {"<", "b", 1, is_less},
    {"lt", "b", 1, is_less},
    {"lessthan", "b", 1, is_less},
    {"<=", "b", 1, is_less_equal},
    {"le", "b", 1, is_less_equal},
    {">", "b", 1, is_greater},
    {"gt", "b", 1, is_greater},
    {"greaterthan", "b", 1, is_greater},
    {">=", "b", 1, is_greater_equal},
    {"ge", "b", 1, is_greater_equal},
};

const struct builtin *test_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strlen(tests[i].name) == bytes && memcmp(tests[i].name, name, bytes) == 0)
            return &tests[i];
    }
    return NULL;
}

/* --- functions -------------------------------------------------------------------------------- */

static int function_range(struct run *run, const struct call *call, struct value *ret_value)
{
    struct range *range = run_take(run, 1, sizeof *range);
    int64_t bounds[3] = {0, 0, 1};

    if (!range)
        return E_MEMORY;
    if (call->count < 1 || call->count > 3 || call->named)
        return run_wrong(run, "range() takes one to three arguments");
    for (size_t i = 0; i < call->count; i++) {
        size_t at = call->count == 1 ? 1 : i;

        if (value_index(run, call->arguments[i], "an argument of range()", &bounds[at]) < 0)
            return run_failed(run);
        if (bounds[at] > INT64_MAX / 4 || bounds[at] < -INT64_MAX / 4)
            return run_fault(run, E_TOO_LARGE, "an argument of range() is too large");
    }
    if (bounds[2] == 0)
        return run_wrong(run, "range() arg 3 must not be zero");
    *range = (struct range){.start = bounds[0], .stop = bounds[1], .step = bounds[2]};
    if (range->step > 0 && range->start < range->stop)
        range->count = (range->stop - range->start - 1) / range->step + 1;
    else if (range->step < 0 && range->start > range->stop)
        range->count = (range->start - range->stop - 1) / -range->step + 1;
    if (range->count > RANGE_MAX)
        return run_fault(run, E_TOO_LARGE, "a range has more than %d items", RANGE_MAX);
    *ret_value = (struct value){.kind = VALUE_RANGE, .range = range};
    return 0;
}

/* dict(mapping or pairs, **more) */
static int make_dict(struct run *run, const struct call *call, struct dict **ret_dict)
{
    struct dict *dict = dict_make(run, 0);
    struct iterator iterator;
    struct value item;
    int r = 0;

    if (!dict)
        return E_MEMORY;
    if (call->count > 1)
        return run_wrong(run, "dict() takes at most one argument that is not named");
    if (call->count == 1 &&
        (call->arguments[0].kind == VALUE_DICT || call->arguments[0].kind == VALUE_NAMESPACE)) {
        const struct dict *from = call->arguments[0].dict;

        for (uint32_t i = 0; r == 0 && i < from->count; i++)
            r = dict_put(run, dict, from->entries[i].key, from->entries[i].value);
    } else if (call->count == 1) {
        r = iterator_init(run, call->arguments[0], &iterator);
        while (r == 0 && (r = iterator_next(run, &iterator, &item)) > 0) {
            struct list *pair = value_items(run, item);

            if (!pair)
                return run_failed(run);
            if (pair->count != 2)
                return run_wrong(run, "an element of dict() has %zu parts, not 2", pair->count);
            r = dict_put(run, dict, pair->items[0], pair->items[1]);
        }
    }
    for (uint32_t i = 0; r == 0 && call->named && i < call->named->count; i++)
        r = dict_put(run, dict, call->named->entries[i].key, call->named->entries[i].value);
    *ret_dict = dict;
    return r;
}

static int function_dict(struct run *run, const struct call *call, struct value *ret_value)
{
    struct dict *dict = NULL;
    int r = make_dict(run, call, &dict);

    if (r == 0)
        *ret_value = value_dict(dict);
    return r;
}

static int function_namespace(struct run *run, const struct call *call, struct value *ret_value)
{
    struct dict *dict = NULL;
    int r = make_dict(run, call, &dict);

    if (r == 0)
        *ret_value = (struct value){.kind = VALUE_NAMESPACE, .dict = dict};
    return r;
}

static int make_cycle(struct run *run, const struct value *items, size_t count, bool joins,
                      struct value *ret_value)
{
    struct cycle *cycle = run_take(run, 1, sizeof *cycle);
    struct list *list = list_make(run, count);

    if (!cycle || !list)
        return E_MEMORY;
    for (; list->count < count; list->count++)
        list->items[list->count] = items[list->count];
    *cycle = (struct cycle){.joins = joins, .items = list};
    *ret_value = (struct value){.kind = VALUE_CYCLE, .cycle = cycle};
    return 0;
}

static int function_cycler(struct run *run, const struct call *call, struct value *ret_value)
{
    if (call->count == 0)
        return run_wrong(run, "at least one item has to be provided");
    return make_cycle(run, call->arguments, call->count, false, ret_value);
}

static int function_joiner(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value by = call->arguments[0];

    if (by.kind == VALUE_UNSET && text_give(text_of(run, ", "), run, &by) < 0)
        return E_MEMORY;
    return make_cycle(run, &by, 1, true, ret_value);
}

static int function_raise(struct run *run, const struct call *call, struct value *ret_value)
{
    struct text *text = value_string(run, call->arguments[0]);
    size_t bytes;

    (void)ret_value;
    if (!text)
        return run_failed(run);
    /* The words are the template's, line breaks included, and all that is said. */
    run->located = true;
    (void)fault_set(run->fault, E_INVALID, "%s", "");
    bytes = text->bytes < sizeof run->fault->message ? text->bytes : sizeof run->fault->message - 1;
    while (bytes < text->bytes && bytes > 0 && ((unsigned char)text->data[bytes] & 0xc0) == 0x80)
        bytes--;
    memcpy(run->fault->message, text->data, bytes);
    run->fault->message[bytes] = 0;
    return E_INVALID;
}

static int function_strftime(struct run *run, const struct call *call, struct value *ret_value)
{
    struct value format = call->arguments[0];
    char text[TIME_ROOM], pattern[TIME_FORMAT_MAX * 3 + 8];
    size_t bytes, at = 0;

    if (format.kind != VALUE_TEXT)
        return run_wrong(run, "strftime_now() takes a string, not '%s'", value_type(format));
    if (!run->now)
        return run_wrong(run, "strftime_now() is not known here");
    if (format.text->bytes > TIME_FORMAT_MAX || memchr(format.text->data, 0, format.text->bytes))
        return run_fault(run, E_TOO_LARGE, "the format of strftime_now() is too long");
    for (size_t i = 0; i < format.text->bytes; i++) {
        char c = format.text->data[i];
        char next = i + 1 < format.text->bytes ? format.text->data[i + 1] : 0;

        if (c == '%' && next == 'f') { /* microseconds: Python's own */
            memcpy(pattern + at, "000000", 6);
            at += 6;
            i++;
        } else if (c == '%' && (next == 'z' || next == 'Z' || next == '%' || !next)) {
            if (next == '%' || !next) {
                pattern[at++] = '%';
                pattern[at++] = '%';
            }
            i += next != 0; /* the time has no zone */
        } else {
            pattern[at++] = c;
        }
    }
    /* strftime() gives 0 for a text that is empty, too: the mark makes it longer. */
    pattern[at++] = '.';
    pattern[at] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    bytes = strftime(text, sizeof text, pattern, run->now);
#pragma GCC diagnostic pop
    if (bytes == 0)
        return run_fault(run, E_TOO_LARGE, "the text of strftime_now() is too long");
    return text_give(text_copy(run, text, bytes - 1), run, ret_value);
}

static int function_left_out(struct run *run, const struct call *call, struct value *ret_value)
{
    (void)call;
    (void)ret_value;
    return run_wrong(run, "this function is not supported");
}

static const struct builtin functions[] = {
    {"range", NULL, 0, function_range},
    {"dict", NULL, 0, function_dict},
    {"namespace", NULL, 0, function_namespace},
    {"cycler", NULL, 0, function_cycler},
    {"joiner", "sep", 0, function_joiner},
    {"raise_exception", "message", 1, function_raise},
    {"strftime_now", "format", 1, function_strftime},
    {"lipsum", NULL, 0, function_left_out},
    {"self", NULL, 0, function_left_out},
};

const struct builtin *function_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strlen(functions[i].name) == bytes && memcmp(functions[i].name, name, bytes) == 0)
            return &functions[i];
    }
    return NULL;
}
