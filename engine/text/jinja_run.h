/* jinja_run.h -- one rendering (or parsing) at work: its memory, its limits, its fault.
 *
 * Lives on the stack of jinja_render(); one thread. The output and every text under construction
 * are at the end of `out`: what is captured (a macro's result, a value in words) is taken from
 * there and cut off again. */
#ifndef WEFT_JINJA_RUN_H
#define WEFT_JINJA_RUN_H

#include <time.h>

#include "config/base/arena.h"
#include "config/base/fault.h"
#include "engine/text/jinja.h"
#include "engine/text/jinja_value.h"

struct frame;

struct run {
    struct arena *arena;
    struct fault *fault;
    struct buf *out;
    uint64_t steps_left;
    uint32_t depth;
    bool located; /* the fault already says where */
    const struct jinja *jinja;
    struct value *root; /* the variables at the top level, by name */
    const struct tm *now;
};

int run_fault(struct run *run, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Python's TypeErrors and the like: E_UNSUPPORTED. */
#define run_wrong(run, ...) ((void)run_fault(run, E_UNSUPPORTED, __VA_ARGS__), E_UNSUPPORTED)
int run_out_of_memory(struct run *run);
/* The code of the fault that a callee has set. */
static inline int run_failed(const struct run *run)
{
    return run->fault->code < 0 ? run->fault->code : E_MEMORY;
}
void *run_take(struct run *run, size_t count, size_t bytes); /* NULL: the fault is set */

/* Counts work; a fault when there has been too much. */
int run_out_of_steps(struct run *run);
static inline int run_step(struct run *run, uint64_t steps)
{
    if (run->steps_left < steps)
        return run_out_of_steps(run);
    run->steps_left -= steps;
    return 0;
}

/* One level deeper; run->depth-- is the way back, after success only. */
int run_too_deep(struct run *run);
static inline int run_enter(struct run *run)
{
    if (run->depth >= JINJA_DEPTH_MAX)
        return run_too_deep(run);
    run->depth++;
    return run_step(run, 1);
}

/* What was appended to run->out since it had `start` bytes, as a text; cut off there. NULL: the
 * fault is set. */
struct text *run_capture(struct run *run, size_t start);
/* A fault when run->out has failed. */
int run_check_out(struct run *run);

/* --- calls ---- */

/* Arguments of a builtin. Those with a parameter list get exactly as many `arguments` as it names,
 * VALUE_UNSET where none was given; the others get what was written. */
struct call {
    struct value self; /* what a filter or method works on */
    const struct value *arguments;
    size_t count;
    const struct dict *named; /* NULL: none */
};

typedef int builtin_function(struct run *run, const struct call *call, struct value *ret_value);

/* One row of a table of filters, tests, methods or functions. */
struct builtin {
    const char *name;
    const char *parameters; /* "width, blank", "/width" for not by name; NULL takes anything */
    unsigned needed;        /* how many of them have no default */
    builtin_function *function;
};

/* Sorted by nothing: the tables are short, and looked through when a template is parsed. */
const struct builtin *filter_find(const char *name, size_t bytes);
const struct builtin *test_find(const char *name, size_t bytes);
const struct builtin *function_find(const char *name, size_t bytes);
extern const struct builtin text_methods[]; /* jinja_methods_text.c; ends with a name of NULL */
/* A method of the value: of its type, not its members. NULL when there is none. */
const struct builtin *method_find(struct value value, const struct text *name);
/* Whether the type has a method of that name that would change it. */
bool method_is_unsafe(struct value value, const struct text *name);
/* Filters that Jinja has and this engine has not. */
bool filter_is_left_out(const char *name, size_t bytes);

/* Binds the arguments to the parameters and calls. `what` is "filter", "test" ... for faults. */
int builtin_call(struct run *run, const struct builtin *builtin, const struct call *call,
                 struct value *ret_value);
/* Calls a macro, function, method or loop. */
int value_call(struct run *run, struct value callee, const struct call *call,
               struct value *ret_value);
/* x.name and x[key], the way Jinja's sandbox looks them up: never a fault for what is not there. */
int value_member(struct run *run, struct value owner, const struct text *name,
                 struct value *ret_value);
/* Only what belongs to the type: a method, a namespace's variable. 1 found, 0 not, or a fault. */
int value_attribute(struct run *run, struct value owner, const struct text *name,
                    struct value *ret_value);
int value_element(struct run *run, struct value owner, struct value key, struct value *ret_value);
/* loop.name: 1 found, 0 not. */
int loop_member(struct run *run, struct loop *loop, const struct text *name,
                struct value *ret_value);
int64_t loop_number(const struct loop *loop); /* from 1 */
struct method {
    struct value self;
    const struct builtin *builtin;
};

/* --- operations ---- */

enum operation {
    OPERATION_ADD,
    OPERATION_SUBTRACT,
    OPERATION_MULTIPLY,
    OPERATION_DIVIDE,
    OPERATION_FLOOR,
    OPERATION_MODULO,
    OPERATION_POWER,
    OPERATION_EQUAL,
    OPERATION_NOT_EQUAL,
    OPERATION_LESS,
    OPERATION_LESS_EQUAL,
    OPERATION_GREATER,
    OPERATION_GREATER_EQUAL,
    OPERATION_IN,
    OPERATION_NOT_IN,
};
int value_arithmetic(struct run *run, enum operation operation, struct value left,
                     struct value right, struct value *ret_value);
int value_relation(struct run *run, enum operation operation, struct value left, struct value right,
                   bool *ret_truth);
int value_slice(struct run *run, struct value value, const struct value bounds[3],
                struct value *ret_value);

/* Reads and writes JSON (jinja_json.c). */
int json_text_value(struct run *run, const char *text, size_t bytes, struct value *ret_value);
int json_tree_value(struct run *run, const json_t *tree, struct value *ret_value);
int filter_tojson(struct run *run, const struct call *call, struct value *ret_value);

/* `text % arguments` and text.format(...) (jinja_format.c). */
int format_percent(struct run *run, const struct text *text, struct value arguments,
                   struct value *ret_value);
int format_braces(struct run *run, const struct call *call, struct value *ret_value);
int filter_format(struct run *run, const struct call *call, struct value *ret_value);

/* --- filters that live in other files than their table ---- */
builtin_function filter_batch, filter_dictsort, filter_first, filter_groupby, filter_items,
    filter_join, filter_last, filter_list, filter_map, filter_max, filter_min, filter_reject,
    filter_rejectattr, filter_reverse, filter_select, filter_selectattr, filter_slice, filter_sort,
    filter_sum, filter_unique;

#endif
