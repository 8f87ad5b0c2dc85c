/* jinja_value.c -- see jinja_value.h. */
#include "engine/text/jinja_value.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { DICT_PLAIN_MAX = 8, PROBES_FREE = 16, NAME_SHOWN_MAX = 80 };

/* --- the run ---------------------------------------------------------------------------------- */

int run_fault(struct run *run, int code, const char *format, ...)
{
    char message[sizeof run->fault->message];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fault_set(run->fault, code, "%s", message);
}

int run_out_of_memory(struct run *run)
{
    /* The arena is full when even a small thing does not fit; else the system said no. */
    if (arena_bytes(run->arena) >= JINJA_MEMORY_BYTES_MAX / 2)
        return run_fault(run, E_TOO_LARGE, "the template takes more memory than it may");
    return run_fault(run, E_MEMORY, "out of memory for the chat template");
}

int run_out_of_steps(struct run *run)
{
    run->steps_left = 0;
    return run_fault(run, E_TOO_LARGE, "the template works longer than it may");
}

int run_too_deep(struct run *run)
{
    return run_fault(run, E_TOO_LARGE, "the template nests calls or data too deeply");
}

void *run_take(struct run *run, size_t count, size_t bytes)
{
    void *memory = arena_take(run->arena, count, bytes);

    if (!memory)
        (void)run_out_of_memory(run);
    return memory;
}

int run_check_out(struct run *run)
{
    if (!buf_failed(run->out))
        return 0;
    if (run->out->bytes < run->out->ceiling / 2)
        return run_out_of_memory(run);
    return run_fault(run, E_TOO_LARGE, "the text is longer than %zu bytes", run->out->ceiling);
}

struct text *run_capture(struct run *run, size_t start)
{
    struct text *text = NULL;

    if (run_check_out(run) == 0)
        text = text_copy(run, buf_string(run->out) + start, run->out->bytes - start);
    buf_cut(run->out, start);
    return text;
}

/* --- undefined -------------------------------------------------------------------------------- */

struct value value_undefined(struct run *run, enum missing_kind kind, const struct text *name,
                             const char *owner, const char *reason)
{
    struct missing *missing = arena_take(run->arena, 1, sizeof *missing);

    if (missing)
        *missing = (struct missing){kind, name, owner, reason};
    return (struct value){.kind = VALUE_UNDEFINED, .missing = missing};
}

int value_fault_undefined(struct run *run, struct value value)
{
    const struct missing *missing = value.missing;
    const char *name = "", *owner;
    int shown = 0;

    if (!missing)
        return run_wrong(run, "an undefined value is used");
    if (missing->name) {
        name = missing->name->data;
        shown = missing->name->bytes > NAME_SHOWN_MAX ? NAME_SHOWN_MAX : (int)missing->name->bytes;
    }
    owner = missing->owner ? missing->owner : "";
    switch (missing->kind) {
    case MISSING_NAME:
        return run_wrong(run, "'%.*s' is undefined", shown, name);
    case MISSING_MEMBER:
        return run_wrong(run, "'%s' has no attribute '%.*s'", owner, shown, name);
    case MISSING_ELEMENT:
        return run_wrong(run, "%s has no element %.*s", owner, shown, name);
    case MISSING_UNSAFE:
        return run_wrong(run, "'%.*s' would change a %s, which templates may not", shown, name,
                         owner);
    default:
        return run_wrong(run, "%s", missing->reason);
    }
}

/* --- lists and streams ------------------------------------------------------------------------ */

struct list *list_make(struct run *run, size_t room)
{
    struct list *list = run_take(run, 1, sizeof *list);

    if (!list || room == 0)
        return list;
    list->items = run_take(run, room, sizeof *list->items);
    list->room = room;
    return list->items && run_step(run, room / 16) == 0 ? list : NULL;
}

int list_put(struct run *run, struct list *list, struct value value)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 8;
        struct value *items = run_take(run, room, sizeof *items);

        if (!items)
            return E_MEMORY;
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = value;
    return 0;
}

int list_pair(struct run *run, enum value_kind kind, struct value first, struct value second,
              struct value *ret_value)
{
    struct list *list = list_make(run, 2);

    if (!list)
        return E_MEMORY;
    list->items[0] = first;
    list->items[1] = second;
    list->count = 2;
    *ret_value = value_list(kind, list);
    return 0;
}

int value_stream(struct run *run, const struct list *list, struct value *ret_value)
{
    struct stream *stream = list ? run_take(run, 1, sizeof *stream) : NULL;

    if (!stream)
        return run_failed(run);
    stream->list = list;
    *ret_value = (struct value){.kind = VALUE_STREAM, .stream = stream};
    return 0;
}

/* --- dicts ------------------------------------------------------------------------------------ */

static uint32_t hash_text(struct text *text)
{
    if (text->hash == 0)
        text->hash = text_hash(text->data, text->bytes);
    return text->hash;
}

static uint32_t hash_integer(int64_t integer)
{
    uint64_t mixed = (uint64_t)integer * 0x9e3779b97f4a7c15u;

    return (uint32_t)(mixed >> 32);
}

/* Equal values have equal hashes: 1, 1.0 and True are one key. A fault for what can change. */
static int hash_value(struct run *run, struct value value, uint32_t *ret_hash)
{
    uint32_t hash = 7;

    switch (value.kind) {
    case VALUE_TEXT:
        *ret_hash = hash_text(value.text);
        return 0;
    case VALUE_BOOL:
    case VALUE_INT:
        *ret_hash = hash_integer(value.kind == VALUE_BOOL ? value.truth : value.integer);
        return 0;
    case VALUE_FLOAT:
        *ret_hash =
            value.real >= -0x1p62 && value.real < 0x1p62 ? hash_integer((int64_t)value.real) : 1;
        return 0;
    case VALUE_TUPLE:
        if (run_enter(run) < 0)
            return E_TOO_LARGE;
        for (size_t i = 0; i < value.list->count; i++) {
            uint32_t one = 0;

            if (hash_value(run, value.list->items[i], &one) < 0)
                return run_failed(run);
            hash = hash * 31 + one;
        }
        run->depth--;
        *ret_hash = hash;
        return 0;
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_VIEW:
        return run_wrong(run, "unhashable type: '%s'", value_type(value));
    default:
        *ret_hash = value.kind;
        return 0;
    }
}

struct dict *dict_make(struct run *run, uint32_t room)
{
    struct dict *dict = run_take(run, 1, sizeof *dict);

    if (!dict || room == 0)
        return dict;
    dict->entries = run_take(run, room, sizeof *dict->entries);
    dict->room = room;
    return dict->entries ? dict : NULL;
}

static int dict_index(struct run *run, struct dict *dict)
{
    uint32_t size = 32;

    while (size < dict->room * 2)
        size *= 2;
    dict->slots = run_take(run, size, sizeof *dict->slots);
    if (!dict->slots)
        return E_MEMORY;
    dict->slot_mask = size - 1;
    for (uint32_t i = 0; i < dict->count; i++) {
        uint32_t slot = dict->entries[i].hash & dict->slot_mask;

        while (dict->slots[slot])
            slot = (slot + 1) & dict->slot_mask;
        dict->slots[slot] = i + 1;
    }
    return run_step(run, dict->count / 4);
}

/* The entry of a text; NULL: none. */
static struct dict_entry *find_text(const struct dict *dict, const char *data, size_t bytes,
                                    uint32_t hash)
{
    if (dict->slots) {
        for (uint32_t slot = hash & dict->slot_mask; dict->slots[slot];
             slot = (slot + 1) & dict->slot_mask) {
            struct dict_entry *entry = &dict->entries[dict->slots[slot] - 1];

            if (entry->hash == hash && entry->key.kind == VALUE_TEXT &&
                entry->key.text->bytes == bytes && !memcmp(entry->key.text->data, data, bytes))
                return entry;
        }
        return NULL;
    }
    for (uint32_t i = 0; i < dict->count; i++) {
        struct dict_entry *entry = &dict->entries[i];

        if (entry->hash == hash && entry->key.kind == VALUE_TEXT &&
            entry->key.text->bytes == bytes && !memcmp(entry->key.text->data, data, bytes))
            return entry;
    }
    return NULL;
}

/* The same of any key: 1, 0 or a fault. Long walks over others of nearly the same hash are work. */
static int find_entry(struct run *run, const struct dict *dict, struct value key, uint32_t hash,
                      struct dict_entry **ret_entry)
{
    uint32_t probes = 0;

    for (uint32_t slot = dict->slots ? hash & dict->slot_mask : 0;
         dict->slots ? dict->slots[slot] != 0 : slot < dict->count;
         slot = dict->slots ? (slot + 1) & dict->slot_mask : slot + 1) {
        struct dict_entry *entry = &dict->entries[dict->slots ? dict->slots[slot] - 1 : slot];
        int r = 0;

        if (++probes > PROBES_FREE && run_step(run, 1) < 0)
            return E_TOO_LARGE;
        if (entry->hash == hash)
            r = value_equal(run, entry->key, key);
        if (r < 0)
            return r;
        if (r > 0) {
            *ret_entry = entry;
            return 1;
        }
    }
    return 0;
}

int dict_put(struct run *run, struct dict *dict, struct value key, struct value value)
{
    struct dict_entry *entry = NULL;
    uint32_t hash = 0, slot;
    int r = hash_value(run, key, &hash);

    if (r == 0)
        r = find_entry(run, dict, key, hash, &entry);
    if (r < 0)
        return r;
    if (r > 0) {
        entry->value = value;
        return 0;
    }
    if (dict->count == dict->room) {
        uint32_t room = dict->room ? dict->room * 2 : 4;
        struct dict_entry *entries = run_take(run, room, sizeof *entries);

        if (!entries)
            return E_MEMORY;
        if (dict->count > 0)
            memcpy(entries, dict->entries, dict->count * sizeof *entries);
        dict->entries = entries;
        dict->room = room;
        dict->slots = NULL;
    }
    dict->entries[dict->count++] = (struct dict_entry){key, value, hash};
    if (dict->count <= DICT_PLAIN_MAX)
        return 0;
    if (!dict->slots)
        return dict_index(run, dict);
    for (slot = hash & dict->slot_mask; dict->slots[slot];)
        slot = (slot + 1) & dict->slot_mask;
    dict->slots[slot] = dict->count;
    return 0;
}

struct value *dict_find(const struct dict *dict, const struct text *key)
{
    uint32_t hash = key->hash ? key->hash : text_hash(key->data, key->bytes);
    struct dict_entry *entry = find_text(dict, key->data, key->bytes, hash);

    return entry ? &entry->value : NULL;
}

struct value *dict_find_name(const struct dict *dict, const char *key)
{
    size_t bytes = strlen(key);
    struct dict_entry *entry = find_text(dict, key, bytes, text_hash(key, bytes));

    return entry ? &entry->value : NULL;
}

int dict_get(struct run *run, const struct dict *dict, struct value key, struct value *ret_value)
{
    struct dict_entry *entry = NULL;
    uint32_t hash = 0;
    int r;

    if (key.kind == VALUE_TEXT) {
        struct value *found = dict_find(dict, key.text);

        if (found)
            *ret_value = *found;
        return found != NULL;
    }
    r = hash_value(run, key, &hash);
    if (r == 0)
        r = find_entry(run, dict, key, hash, &entry);
    if (r > 0)
        *ret_value = entry->value;
    return r;
}

/* --- asking ----------------------------------------------------------------------------------- */

bool value_is_true(struct value value)
{
    switch (value.kind) {
    case VALUE_UNSET:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.truth;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_TEXT:
        return value.text->bytes > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        return value.list->count > 0;
    case VALUE_DICT:
        return value.dict->count > 0;
    case VALUE_RANGE:
        return value.range->count > 0;
    case VALUE_VIEW:
        return value.view->dict->count > 0;
    default:
        return true;
    }
}

bool value_is_number(struct value value)
{
    return value.kind >= VALUE_BOOL && value.kind <= VALUE_FLOAT;
}

bool value_is_integer(struct value value)
{
    return value.kind >= VALUE_BOOL && value.kind <= VALUE_BIG;
}

bool value_is_callable(struct value value)
{
    return value.kind == VALUE_MACRO || value.kind == VALUE_FUNCTION ||
           value.kind == VALUE_METHOD || value.kind == VALUE_LOOP ||
           value.kind == VALUE_UNDEFINED || (value.kind == VALUE_CYCLE && value.cycle->joins);
}

const char *value_type(struct value value)
{
    static const char *const names[] = {
        [VALUE_UNSET] = "Undefined",
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_BIG] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_TEXT] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_DICT] = "dict",
        [VALUE_RANGE] = "range",
        [VALUE_VIEW] = "dict view",
        [VALUE_STREAM] = "generator",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_MACRO] = "Macro",
        [VALUE_FUNCTION] = "function",
        [VALUE_METHOD] = "builtin method",
        [VALUE_CYCLE] = "Cycler",
    };

    return names[value.kind];
}

bool value_is_same(struct value left, struct value right)
{
    if (left.kind != right.kind)
        return false;
    switch (left.kind) {
    case VALUE_UNDEFINED:
    case VALUE_UNSET:
    case VALUE_NONE:
        return left.kind == VALUE_NONE || left.missing == right.missing;
    case VALUE_BOOL:
        return left.truth == right.truth;
    case VALUE_INT:
        return left.integer == right.integer;
    case VALUE_FLOAT:
        return left.real == right.real;
    default:
        return left.text == right.text;
    }
}

static int lists_equal(struct run *run, const struct list *left, const struct list *right)
{
    int r = left->count == right->count;

    for (size_t i = 0; r > 0 && i < left->count; i++) {
        if (run_step(run, 1) < 0)
            return E_TOO_LARGE;
        r = value_equal(run, left->items[i], right->items[i]);
    }
    return r;
}

static int dicts_equal(struct run *run, const struct dict *left, const struct dict *right)
{
    int r = left->count == right->count;

    for (uint32_t i = 0; r > 0 && i < left->count; i++) {
        struct value other;

        if (run_step(run, 1) < 0)
            return E_TOO_LARGE;
        r = dict_get(run, right, left->entries[i].key, &other);
        if (r > 0)
            r = value_equal(run, left->entries[i].value, other);
    }
    return r;
}

static int ranges_equal(const struct range *left, const struct range *right)
{
    if (left->count != right->count)
        return 0;
    return left->count == 0 ||
           (left->start == right->start && (left->count == 1 || left->step == right->step));
}

int value_equal(struct run *run, struct value left, struct value right)
{
    int r;

    if (value_is_number(left) && value_is_number(right))
        return number_compare(left, right) == 0;
    if (left.kind != right.kind)
        return 0;
    switch (left.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return 1;
    case VALUE_TEXT:
        if (run_step(run, left.text->bytes / 64) < 0)
            return E_TOO_LARGE;
        return text_equal(left.text, right.text);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
        if (run_enter(run) < 0)
            return E_TOO_LARGE;
        r = left.kind == VALUE_DICT ? dicts_equal(run, left.dict, right.dict)
                                    : lists_equal(run, left.list, right.list);
        if (r >= 0)
            run->depth--;
        return r;
    case VALUE_RANGE:
        return ranges_equal(left.range, right.range);
    default:
        return value_is_same(left, right);
    }
}

int value_compare(struct run *run, struct value left, struct value right, int *ret_order)
{
    int r;

    if (value_is_number(left) && value_is_number(right)) {
        *ret_order = number_compare(left, right);
        return 0;
    }
    if (left.kind == VALUE_TEXT && right.kind == VALUE_TEXT) {
        *ret_order = text_compare(left.text, right.text);
        return run_step(run, left.text->bytes / 64);
    }
    if (left.kind != right.kind || (left.kind != VALUE_LIST && left.kind != VALUE_TUPLE)) {
        if (value_defined(run, left) < 0 || value_defined(run, right) < 0)
            return run_failed(run);
        return run_wrong(run, "'%s' and '%s' have no order", value_type(left), value_type(right));
    }
    r = run_enter(run);
    for (size_t i = 0; r == 0 && i < left.list->count && i < right.list->count; i++) {
        r = value_equal(run, left.list->items[i], right.list->items[i]);
        if (r == 0) {
            r = value_compare(run, left.list->items[i], right.list->items[i], ret_order);
            run->depth--;
            return r;
        }
        r = r < 0 ? r : 0;
    }
    if (r < 0)
        return r;
    run->depth--;
    *ret_order = left.list->count < right.list->count ? -1 : left.list->count > right.list->count;
    return 0;
}

int value_length(struct run *run, struct value value, int64_t *ret_length)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
        *ret_length = 0;
        return 0;
    case VALUE_TEXT:
        *ret_length = (int64_t)text_chars(value.text);
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
        *ret_length = (int64_t)value.list->count;
        return 0;
    case VALUE_DICT:
        *ret_length = value.dict->count;
        return 0;
    case VALUE_RANGE:
        *ret_length = value.range->count;
        return 0;
    case VALUE_VIEW:
        *ret_length = value.view->dict->count;
        return 0;
    case VALUE_LOOP: {
        struct value length;
        struct text name = {.data = "length", .bytes = 6, .chars = 6};
        int r = loop_member(run, value.loop, &name, &length);

        *ret_length = r > 0 ? length.integer : 0;
        return r < 0 ? r : 0;
    }
    default:
        return run_wrong(run, "object of type '%s' has no len()", value_type(value));
    }
}

int value_contains(struct run *run, struct value container, struct value item)
{
    struct iterator iterator;
    struct value one;
    int r;

    if (container.kind == VALUE_TEXT) {
        if (item.kind != VALUE_TEXT)
            return run_wrong(run, "'in <string>' requires string as left operand, not %s",
                             value_type(item));
        if (run_step(run, container.text->bytes / 16) < 0)
            return E_TOO_LARGE;
        return text_find(container.text, item.text, 0, container.text->bytes) != SIZE_MAX;
    }
    if (container.kind == VALUE_DICT)
        return dict_get(run, container.dict, item, &one);
    if (container.kind == VALUE_VIEW && container.view->kind == VIEW_KEYS)
        return dict_get(run, container.view->dict, item, &one);
    r = iterator_init(run, container, &iterator);
    if (r < 0)
        return r;
    while ((r = iterator_next(run, &iterator, &one)) > 0) {
        r = value_equal(run, one, item);
        if (r != 0)
            return r;
    }
    return r;
}

int value_index(struct run *run, struct value value, const char *what, int64_t *ret_index)
{
    if (value.kind == VALUE_INT)
        *ret_index = value.integer;
    else if (value.kind == VALUE_BOOL)
        *ret_index = value.truth;
    else if (value.kind == VALUE_UNDEFINED)
        return value_fault_undefined(run, value);
    else if (value.kind == VALUE_BIG)
        *ret_index = value.big->negative ? INT64_MIN : INT64_MAX;
    else
        return run_wrong(run, "%s must be an integer, not '%s'", what, value_type(value));
    return 0;
}

/* --- printing --------------------------------------------------------------------------------- */

static int print_list(struct run *run, struct value value, struct buf *out)
{
    bool tuple = value.kind == VALUE_TUPLE;
    int r = 0;

    buf_byte(out, tuple ? '(' : '[');
    for (size_t i = 0; r == 0 && i < value.list->count; i++) {
        if (i > 0)
            buf_text(out, ", ");
        r = value_repr(run, value.list->items[i], out);
    }
    buf_text(out, !tuple ? "]" : value.list->count == 1 ? ",)" : ")");
    return r;
}

static int print_dict(struct run *run, const struct dict *dict, struct buf *out)
{
    int r = 0;

    buf_byte(out, '{');
    for (uint32_t i = 0; r == 0 && i < dict->count; i++) {
        if (i > 0)
            buf_text(out, ", ");
        r = value_repr(run, dict->entries[i].key, out);
        buf_text(out, ": ");
        if (r == 0)
            r = value_repr(run, dict->entries[i].value, out);
    }
    buf_byte(out, '}');
    return r;
}

static int print_view(struct run *run, const struct view *view, struct buf *out)
{
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    struct iterator iterator = {.over = {.kind = VALUE_VIEW, .view = view}};
    struct value item;
    bool more = false;
    int r;

    buf_text(out, names[view->kind]);
    while ((r = iterator_next(run, &iterator, &item)) > 0) {
        if (more)
            buf_text(out, ", ");
        more = true;
        r = value_repr(run, item, out);
        if (r < 0)
            return r;
    }
    buf_text(out, "])");
    return r;
}

static void print_range(const struct range *range, struct buf *out)
{
    buf_format(out, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
    if (range->step != 1)
        buf_format(out, ", %lld", (long long)range->step);
    buf_byte(out, ')');
}

static int print_container(struct run *run, struct value value, struct buf *out)
{
    int r = run_enter(run);

    if (r < 0)
        return r;
    switch (value.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        r = print_list(run, value, out);
        break;
    case VALUE_NAMESPACE:
        buf_text(out, "<Namespace ");
        r = print_dict(run, value.dict, out);
        buf_byte(out, '>');
        break;
    case VALUE_DICT:
        r = print_dict(run, value.dict, out);
        break;
    default:
        r = print_view(run, value.view, out);
        break;
    }
    if (r == 0)
        run->depth--;
    return r < 0 ? r : run_check_out(run);
}

int value_repr(struct run *run, struct value value, struct buf *out)
{
    if (value.kind == VALUE_TEXT) {
        if (value.text->markup)
            buf_text(out, "Markup(");
        text_repr(value.text, out);
        if (value.text->markup)
            buf_byte(out, ')');
        return run_step(run, value.text->bytes / 8);
    }
    if (value.kind == VALUE_UNDEFINED) {
        buf_text(out, "Undefined");
        return 0;
    }
    return value_print(run, value, out);
}

int value_print(struct run *run, struct value value, struct buf *out)
{
    switch (value.kind) {
    case VALUE_UNSET:
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_NONE:
        buf_text(out, "None");
        return 0;
    case VALUE_FLOAT:
        number_print(value, out);
        return run_step(run, FLOAT_STEPS);
    case VALUE_BOOL:
    case VALUE_INT:
        number_print(value, out);
        return 0;
    case VALUE_BIG:
        number_print(value, out);
        return run_step(run, (uint64_t)value.big->count * value.big->count);
    case VALUE_TEXT:
        buf_put(out, value.text->data, value.text->bytes);
        if (run_step(run, value.text->bytes / 64) < 0)
            return E_TOO_LARGE;
        return run_check_out(run);
    case VALUE_RANGE:
        print_range(value.range, out);
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_VIEW:
    case VALUE_NAMESPACE:
        return print_container(run, value, out);
    case VALUE_LOOP: {
        int64_t length = 0;
        int r = value_length(run, value, &length);

        buf_format(out, "<LoopContext %lld/%lld>", (long long)loop_number(value.loop),
                   (long long)length);
        return r;
    }
    default:
        /* Python would print an address. */
        buf_format(out, "<%s>", value_type(value));
        return 0;
    }
}

struct text *value_string(struct run *run, struct value value)
{
    size_t start = run->out->bytes;

    if (value.kind == VALUE_TEXT)
        return value.text;
    if (value_print(run, value, run->out) < 0) {
        buf_cut(run->out, start);
        return NULL;
    }
    return run_capture(run, start);
}

/* --- going through ---------------------------------------------------------------------------- */

int iterator_init(struct run *run, struct value value, struct iterator *ret_iterator)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
    case VALUE_TEXT:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_RANGE:
    case VALUE_VIEW:
    case VALUE_STREAM:
        *ret_iterator = (struct iterator){.over = value};
        return 0;
    default:
        return run_wrong(run, "'%s' object is not iterable", value_type(value));
    }
}

static int next_entry(struct run *run, const struct dict *dict, enum view_kind kind, size_t at,
                      struct value *ret_item)
{
    const struct dict_entry *entry = &dict->entries[at];

    if (kind == VIEW_KEYS)
        *ret_item = entry->key;
    else if (kind == VIEW_VALUES)
        *ret_item = entry->value;
    else if (list_pair(run, VALUE_TUPLE, entry->key, entry->value, ret_item) < 0)
        return E_MEMORY;
    return 1;
}

static int next_char(struct run *run, const struct text *text, size_t *at, struct value *ret_item)
{
    struct text *one;
    size_t bytes;

    if (*at >= text->bytes)
        return 0;
    (void)char_decode(text->data + *at, &bytes);
    one = text_lend(run, text->data + *at, bytes);
    if (!one)
        return E_MEMORY;
    *at += bytes;
    *ret_item = value_text(one);
    return 1;
}

int iterator_next(struct run *run, struct iterator *iterator, struct value *ret_item)
{
    struct value over = iterator->over;
    size_t at = iterator->at;

    if (run_step(run, 1) < 0)
        return E_TOO_LARGE;
    switch (over.kind) {
    case VALUE_TEXT:
        return next_char(run, over.text, &iterator->at, ret_item);
    case VALUE_LIST:
    case VALUE_TUPLE:
        if (at >= over.list->count)
            return 0;
        *ret_item = over.list->items[iterator->at++];
        return 1;
    case VALUE_STREAM:
        if (over.stream->at >= over.stream->list->count)
            return 0;
        *ret_item = over.stream->list->items[over.stream->at++];
        return 1;
    case VALUE_RANGE:
        if (at >= (size_t)over.range->count)
            return 0;
        *ret_item = value_int(over.range->start + (int64_t)iterator->at++ * over.range->step);
        return 1;
    case VALUE_DICT:
        if (at >= over.dict->count)
            return 0;
        iterator->at++;
        return next_entry(run, over.dict, VIEW_KEYS, at, ret_item);
    case VALUE_VIEW:
        if (at >= over.view->dict->count)
            return 0;
        iterator->at++;
        return next_entry(run, over.view->dict, over.view->kind, at, ret_item);
    default:
        return 0;
    }
}

int64_t iterator_left(const struct iterator *iterator)
{
    struct value over = iterator->over;

    switch (over.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        return (int64_t)(over.list->count - iterator->at);
    case VALUE_RANGE:
        return over.range->count - (int64_t)iterator->at;
    case VALUE_DICT:
        return (int64_t)(over.dict->count - iterator->at);
    case VALUE_VIEW:
        return (int64_t)(over.view->dict->count - iterator->at);
    case VALUE_STREAM:
        return (int64_t)(over.stream->list->count - over.stream->at);
    case VALUE_UNDEFINED:
        return 0;
    default:
        return -1;
    }
}

struct list *value_items(struct run *run, struct value value)
{
    struct iterator iterator;
    struct value item;
    struct list *list;
    int64_t left;
    int r;

    if (iterator_init(run, value, &iterator) < 0)
        return NULL;
    left = iterator_left(&iterator);
    if (left > 0 && run_step(run, (uint64_t)left) < 0)
        return NULL;
    list = list_make(run, left > 0 ? (size_t)left : 0);
    while (list && (r = iterator_next(run, &iterator, &item)) != 0) {
        if (r < 0 || list_put(run, list, item) < 0)
            return NULL;
    }
    return list;
}
