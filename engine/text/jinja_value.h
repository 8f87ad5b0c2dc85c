/* jinja_value.h -- the values that a template computes with: Python's, as far as it sees them.
 *
 * Values are small and passed by value; what they point to lies in the arena of the rendering, or
 * of the parsed template for its constants, and is never freed alone. All but namespaces, streams
 * and cycles are immutable once they are made. Texts are well-formed UTF-8 and count in
 * characters.
 *
 * Functions that can fail return 0 (or what they say) or a negative code, the fault written into
 * the run (jinja_run.h). Engine-internal: only the jinja_*.c files include this. */
#ifndef WEFT_JINJA_VALUE_H
#define WEFT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/buf.h"

struct run;

enum value_kind {
    VALUE_UNSET, /* no value at all: an argument that was not given, a variable not set */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* an integer outside int64 */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_RANGE,
    VALUE_VIEW,   /* a dict's keys, values or items */
    VALUE_STREAM, /* a generator: can be gone through once */
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD,
    VALUE_CYCLE, /* cycler() and joiner() */
};

struct value {
    enum value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct big *big;
        struct text *text;
        struct list *list; /* and tuples */
        struct dict *dict; /* and namespaces */
        const struct range *range;
        const struct view *view;
        struct stream *stream;
        struct loop *loop;
        const struct macro *macro;
        const struct builtin *function;
        const struct method *method;
        struct cycle *cycle;
        const struct missing *missing; /* why it is undefined; may be NULL */
    };
};

/* --- texts ---- */

#define CHARS_UNKNOWN SIZE_MAX

/* Bytes at the end of which a longer text may grow: `text + more` in a loop is linear. */
struct text_room {
    char *data;
    size_t used;
    size_t size;
};

struct text {
    const char *data; /* no NUL at the end */
    size_t bytes;
    size_t chars;  /* or CHARS_UNKNOWN; a constant's are known */
    uint32_t hash; /* 0: not yet known; a constant's is */
    bool markup;   /* made by `escape` or `safe`: what is added to it is escaped */
    struct text_room *room;
};

/* --- containers ---- */

struct list {
    struct value *items;
    size_t count;
    size_t room;
    bool grouped; /* a (grouper, list) of groupby, which has these two members */
};

struct dict_entry {
    struct value key;
    struct value value;
    uint32_t hash;
};

/* Insertion-ordered; `slots` is an index by hash once there are more than a few entries. */
struct dict {
    struct dict_entry *entries;
    uint32_t count;
    uint32_t room;
    uint32_t *slots; /* entry + 1, 0 = free */
    uint32_t slot_mask;
};

struct range {
    int64_t start;
    int64_t step;
    int64_t count;
    int64_t stop; /* as given */
};

enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct view {
    enum view_kind kind;
    const struct dict *dict;
};

struct stream {
    const struct list *list;
    size_t at;
};

struct cycle {
    bool joins; /* a joiner: nothing first, then items[0] */
    const struct list *items;
    size_t at;
};

enum missing_kind { MISSING_NAME, MISSING_MEMBER, MISSING_ELEMENT, MISSING_REASON, MISSING_UNSAFE };
struct missing {
    enum missing_kind kind;
    const struct text *name; /* the variable, member or element */
    const char *owner;       /* the type of what lacks it */
    const char *reason;
};

/* --- making ---- */

#define UNSET ((struct value){.kind = VALUE_UNSET})
#define NONE  ((struct value){.kind = VALUE_NONE})

static inline struct value value_bool(bool truth)
{
    return (struct value){.kind = VALUE_BOOL, .truth = truth};
}

static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

static inline struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}

static inline struct value value_text(struct text *text)
{
    return (struct value){.kind = VALUE_TEXT, .text = text};
}

static inline struct value value_list(enum value_kind kind, struct list *list)
{
    return (struct value){.kind = kind, .list = list};
}

static inline struct value value_dict(struct dict *dict)
{
    return (struct value){.kind = VALUE_DICT, .dict = dict};
}

struct value value_undefined(struct run *run, enum missing_kind kind, const struct text *name,
                             const char *owner, const char *reason);
/* A stream over what is in the list. */
int value_stream(struct run *run, const struct list *list, struct value *ret_value);

struct list *list_make(struct run *run, size_t room); /* NULL: the fault is set */
int list_put(struct run *run, struct list *list, struct value value);
/* A list or tuple of two. */
int list_pair(struct run *run, enum value_kind kind, struct value first, struct value second,
              struct value *ret_value);

struct dict *dict_make(struct run *run, uint32_t room);
int dict_put(struct run *run, struct dict *dict, struct value key, struct value value);
/* NULL when it is not there. Keys of texts are found without any fault. */
struct value *dict_find(const struct dict *dict, const struct text *key);
struct value *dict_find_name(const struct dict *dict, const char *key);
/* 1 found, 0 not, or a fault: a list cannot be a key. */
int dict_get(struct run *run, const struct dict *dict, struct value key, struct value *ret_value);

/* --- asking ---- */

bool value_is_true(struct value value);
bool value_is_number(struct value value);  /* bools are */
bool value_is_integer(struct value value); /* bools are */
bool value_is_callable(struct value value);
const char *value_type(struct value value); /* Python's name of the type */
/* The same as `is`. */
bool value_is_same(struct value left, struct value right);
/* 1, 0 or a fault (nested too deeply). */
int value_equal(struct run *run, struct value left, struct value right);
/* -1, 0, 1 into *ret_order, 2 when a NaN is among them; a fault when the two have no order. */
int value_compare(struct run *run, struct value left, struct value right, int *ret_order);
int value_length(struct run *run, struct value value, int64_t *ret_length);
/* `item in container`: 1, 0 or a fault. */
int value_contains(struct run *run, struct value container, struct value item);
/* An integer within int64: 0, or a fault that says what `what` must be. */
int value_index(struct run *run, struct value value, const char *what, int64_t *ret_index);
/* Fault: an operation on an undefined value. */
int value_fault_undefined(struct run *run, struct value value);
/* A value that is not undefined; otherwise the fault. */
static inline int value_defined(struct run *run, struct value value)
{
    return value.kind == VALUE_UNDEFINED ? value_fault_undefined(run, value) : 0;
}

/* Appends str(value) or repr(value). */
int value_print(struct run *run, struct value value, struct buf *out);
int value_repr(struct run *run, struct value value, struct buf *out);
/* str(value) as a text; NULL: the fault is set. */
struct text *value_string(struct run *run, struct value value);

/* --- going through ---- */

struct iterator {
    struct value over;
    size_t at;
};
int iterator_init(struct run *run, struct value value, struct iterator *ret_iterator);
/* 1 with the next item, 0 at the end, or a fault. */
int iterator_next(struct run *run, struct iterator *iterator, struct value *ret_item);
/* How many items are left, where that is known: -1 otherwise. */
int64_t iterator_left(const struct iterator *iterator);
/* All of them. NULL: the fault is set. */
struct list *value_items(struct run *run, struct value value);

#endif
