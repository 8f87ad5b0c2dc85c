/* jinja_eval.c -- expressions: the tree to values. */
#include "engine/text/jinja_eval.h"

#include <stdio.h>

#include "engine/text/jinja_number.h"
#include "engine/text/jinja_text.h"

enum { ARGUMENTS_PLAIN = 6 };

int locate(struct run *run, const struct node *node, int r)
{
    if (!run->located) {
        run->located = true;
        (void)fault_prefix(run->fault, "the chat template, line %u, column %u", node->line,
                           node->column);
    }
    return r;
}

struct value lookup(struct run *run, const struct frame *frame, uint32_t name)
{
    for (; frame; frame = frame->outer) {
        for (uint32_t i = frame->count; i-- > 0;) {
            if (frame->bindings[i].name == name)
                return frame->bindings[i].value;
        }
    }
    if (run->root[name].kind != VALUE_UNSET)
        return run->root[name];
    return value_undefined(run, MISSING_NAME, run->jinja->names[name], NULL, NULL);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Arguments as they are evaluated; few need no memory. */
struct arguments {
    struct value plain[ARGUMENTS_PLAIN];
    struct list more; /* all of them, once they are more */
    size_t count;
    struct dict *named;
};

static int put_argument(struct run *run, struct arguments *arguments, struct value value)
{
    if (arguments->count < ARGUMENTS_PLAIN) {
        arguments->plain[arguments->count++] = value;
        return 0;
    }
    if (arguments->count++ == ARGUMENTS_PLAIN) {
        for (size_t i = 0; i < ARGUMENTS_PLAIN; i++) {
            if (list_put(run, &arguments->more, arguments->plain[i]) < 0)
                return E_MEMORY;
        }
    }
    return list_put(run, &arguments->more, value);
}

static int put_named(struct run *run, struct arguments *arguments, struct value name,
                     struct value value)
{
    if (name.kind != VALUE_TEXT)
        return run_wrong(run, "keywords must be strings");
    if (!arguments->named)
        arguments->named = dict_make(run, 4);
    if (!arguments->named)
        return E_MEMORY;
    if (dict_find(arguments->named, name.text))
        return run_wrong(run, "the argument '%.*s' is given twice", (int)name.text->bytes,
                         name.text->data);
    return dict_put(run, arguments->named, name, value);
}

static int spread(struct run *run, struct arguments *arguments, enum argument_kind kind,
                  struct value value)
{
    struct iterator iterator;
    struct value item;
    int r;

    if (kind == ARGUMENT_SPREAD_NAMED) {
        if (value.kind != VALUE_DICT)
            return run_wrong(run, "what follows ** must be a mapping, not '%s'", value_type(value));
        for (uint32_t i = 0; i < value.dict->count; i++) {
            r = put_named(run, arguments, value.dict->entries[i].key, value.dict->entries[i].value);
            if (r < 0)
                return r;
        }
        return 0;
    }
    r = iterator_init(run, value, &iterator);
    if (r < 0)
        return r;
    while ((r = iterator_next(run, &iterator, &item)) > 0) {
        r = put_argument(run, arguments, item);
        if (r < 0)
            return r;
    }
    return r;
}

static int gather(struct run *run, struct frame *frame, const struct argument *list,
                  struct arguments *arguments, struct call *call)
{
    arguments->count = 0;
    arguments->named = NULL;
    arguments->more = (struct list){.count = 0};
    for (; list; list = list->next) {
        struct value value;
        int r = eval(run, frame, list->value, &value);

        if (r == 0) {
            if (list->kind == ARGUMENT_PLAIN)
                r = put_argument(run, arguments, value);
            else if (list->kind == ARGUMENT_NAMED)
                r = put_named(run, arguments, value_text(list->name), value);
            else
                r = spread(run, arguments, list->kind, value);
        }
        if (r < 0)
            return r;
    }
    call->arguments = arguments->count > ARGUMENTS_PLAIN ? arguments->more.items : arguments->plain;
    call->count = arguments->count;
    call->named = arguments->named;
    return 0;
}

/* The number of the parameter of that name; -1: none. */
static int find_parameter(const char *parameters, const struct text *name)
{
    int index = 0;

    while (*parameters) {
        size_t bytes = strcspn(parameters, ",");

        if (bytes == name->bytes && memcmp(parameters, name->data, bytes) == 0)
            return index;
        parameters += bytes;
        parameters += strspn(parameters, ", ");
        index++;
    }
    return -1;
}

int builtin_call(struct run *run, const struct builtin *builtin, const struct call *call,
                 struct value *ret_value)
{
    struct value bound[8] = {{.kind = VALUE_UNSET}};
    struct call plain = {.self = call->self, .arguments = bound};
    const char *parameters = builtin->parameters;
    size_t count;

    if (!parameters)
        return builtin->function(run, call, ret_value);
    if (*parameters == '/' && call->named && call->named->count > 0)
        return run_wrong(run, "%s() takes no keyword arguments", builtin->name);
    parameters += *parameters == '/';
    count = *parameters ? 1 : 0;
    for (const char *at = parameters; *at; at++)
        count += *at == ',';
    must(count <= sizeof bound / sizeof *bound);
    if (call->count > count)
        return run_wrong(run, "%s() takes at most %zu arguments, not %zu", builtin->name, count,
                         call->count);
    for (size_t i = 0; i < call->count; i++)
        bound[i] = call->arguments[i];
    for (uint32_t i = 0; call->named && i < call->named->count; i++) {
        const struct text *name = call->named->entries[i].key.text;
        int index = find_parameter(parameters, name);

        if (index < 0 || bound[index].kind != VALUE_UNSET)
            return run_wrong(run, "%s() takes no argument '%.*s'%s", builtin->name,
                             (int)name->bytes, name->data, index < 0 ? "" : " twice");
        bound[index] = call->named->entries[i].value;
    }
    for (unsigned i = 0; i < builtin->needed; i++) {
        if (bound[i].kind == VALUE_UNSET)
            return run_wrong(run, "%s() needs %u argument%s", builtin->name, builtin->needed,
                             builtin->needed == 1 ? "" : "s");
    }
    plain.count = count;
    return builtin->function(run, &plain, ret_value);
}

static bool is_parameter(const struct macro_node *node, const struct run *run,
                         const struct text *name, uint32_t from)
{
    uint32_t index = 0;

    for (const struct parameter *one = node->parameters; one; one = one->next) {
        if (index++ >= from && text_equal(run->jinja->names[one->name], name))
            return true;
    }
    return false;
}

/* What no parameter takes: into kwargs and varargs, where the macro uses them. */
static int bind_rest(struct run *run, const struct macro_node *node, const struct call *call,
                     struct frame *frame)
{
    struct value caller = value_undefined(run, MISSING_REASON, NULL, NULL, "there is no caller");
    struct dict *kwargs = dict_make(run, 0);
    struct list *varargs;
    int r = 0;

    if (!kwargs)
        return E_MEMORY;
    for (uint32_t i = 0; r == 0 && call->named && i < call->named->count; i++) {
        const struct dict_entry *entry = &call->named->entries[i];

        if (is_parameter(node, run, entry->key.text, (uint32_t)call->count))
            continue;
        if (node->uses_caller && text_is(entry->key.text, "caller"))
            caller = entry->value;
        else if (node->uses_kwargs)
            r = dict_put(run, kwargs, entry->key, entry->value);
        else
            return run_wrong(run, "the macro takes no argument '%.*s'", (int)entry->key.text->bytes,
                             entry->key.text->data);
    }
    if (r == 0 && node->uses_caller)
        r = frame_bind(run, frame, NAME_CALLER, caller);
    if (r == 0 && node->uses_kwargs)
        r = frame_bind(run, frame, NAME_KWARGS, value_dict(kwargs));
    if (r < 0 || !node->uses_varargs) {
        if (r == 0 && call->count > node->parameter_count)
            return run_wrong(run, "the macro takes at most %u arguments, not %zu",
                             node->parameter_count, call->count);
        return r;
    }
    varargs = list_make(run, 0);
    for (size_t i = node->parameter_count; varargs && r == 0 && i < call->count; i++)
        r = list_put(run, varargs, call->arguments[i]);
    if (!varargs || r < 0)
        return E_MEMORY;
    return frame_bind(run, frame, NAME_VARARGS, value_list(VALUE_TUPLE, varargs));
}

static int call_macro(struct run *run, const struct macro *macro, const struct call *call,
                      struct value *ret_value)
{
    const struct macro_node *node = macro->node;
    struct frame frame = {.outer = macro->closure}, *own;
    struct text *text;
    size_t index = 0, start = run->out->bytes;
    int r = bind_rest(run, node, call, &frame);

    /* A macro or call block inside may outlive this call. */
    own = run_take(run, 1, sizeof *own);
    if (!own)
        return E_MEMORY;
    *own = frame;
    for (const struct parameter *one = node->parameters; r == 0 && one; one = one->next) {
        const struct text *name = run->jinja->names[one->name];
        const struct value *named = call->named ? dict_find(call->named, name) : NULL;
        struct value value;

        if (index < call->count)
            value = call->arguments[index];
        else if (named)
            value = *named;
        else if (one->initial)
            r = eval(run, own, one->initial, &value);
        else
            value = value_undefined(run, MISSING_NAME, name, NULL, NULL);
        if (r == 0)
            r = frame_bind(run, own, one->name, value);
        index++;
    }
    if (r == 0)
        r = exec_body(run, own, node->body);
    if (r < 0)
        return r;
    text = run_capture(run, start);
    return text_give(text, run, ret_value);
}

static int call_loop(struct run *run, const struct loop *loop, const struct call *call,
                     struct value *ret_value)
{
    size_t start = run->out->bytes;
    int r;

    if (!loop->node->recursive)
        return run_wrong(run, "only a loop that is marked 'recursive' can be called");
    if (call->count != 1 || call->named)
        return run_wrong(run, "a loop is called with one argument");
    r = exec_loop(run, loop->node, loop->outer, call->arguments[0], loop->depth + 1);
    return r < 0 ? r : text_give(run_capture(run, start), run, ret_value);
}

static int call_joiner(struct cycle *joiner, struct run *run, struct value *ret_value)
{
    if (joiner->at++ == 0)
        return text_give(text_of(run, ""), run, ret_value);
    *ret_value = joiner->items->items[0];
    return 0;
}

int value_call(struct run *run, struct value callee, const struct call *call,
               struct value *ret_value)
{
    struct call with_self = *call;
    int r = run_enter(run);

    if (r < 0)
        return r;
    switch (callee.kind) {
    case VALUE_MACRO:
        r = call_macro(run, callee.macro, call, ret_value);
        break;
    case VALUE_FUNCTION:
        r = builtin_call(run, callee.function, call, ret_value);
        break;
    case VALUE_METHOD:
        with_self.self = callee.method->self;
        r = builtin_call(run, callee.method->builtin, &with_self, ret_value);
        break;
    case VALUE_LOOP:
        r = call_loop(run, callee.loop, call, ret_value);
        break;
    case VALUE_UNDEFINED:
        return value_fault_undefined(run, callee);
    case VALUE_CYCLE:
        if (callee.cycle->joins) {
            r = call_joiner(callee.cycle, run, ret_value);
            break;
        }
        /* fallthrough */
    default:
        return run_wrong(run, "'%s' object is not callable", value_type(callee));
    }
    if (r == 0)
        run->depth--;
    return r;
}

static int eval_call(struct run *run, struct frame *frame, const struct node *node,
                     struct value *ret_value)
{
    const struct node *callee_node = node->call.callee;
    const struct builtin *method = NULL;
    struct arguments arguments;
    struct value callee;
    struct call call;
    int r;

    if (callee_node->kind == NODE_MEMBER) {
        r = eval(run, frame, callee_node->member.owner, &call.self);
        if (r < 0)
            return r;
        method = method_find(call.self, callee_node->member.name);
        if (!method)
            r = value_member(run, call.self, callee_node->member.name, &callee);
        if (r < 0)
            return locate(run, callee_node, r);
    } else {
        r = eval(run, frame, callee_node, &callee);
    }
    if (r == 0)
        r = gather(run, frame, node->call.arguments, &arguments, &call);
    if (r == 0 && node->call.caller) {
        struct text *name = run->jinja->names[NAME_CALLER];
        struct macro *caller = run_take(run, 1, sizeof *caller);

        if (!caller)
            return E_MEMORY;
        *caller = (struct macro){node->call.caller, frame};
        r = put_named(run, &arguments, value_text(name),
                      (struct value){.kind = VALUE_MACRO, .macro = caller});
        call.named = arguments.named;
    }
    if (r < 0)
        return r;
    return method ? builtin_call(run, method, &call, ret_value)
                  : value_call(run, callee, &call, ret_value);
}

static int eval_filter(struct run *run, struct frame *frame, const struct node *node,
                       struct value *ret_value)
{
    const char *kind = node->kind == NODE_FILTER ? "filter" : "test";
    const struct text *name = node->call.name;
    struct arguments arguments;
    struct call call;
    int r;

    if (!node->call.builtin)
        return run_wrong(run, "there is no %s '%.*s'%s", kind, (int)name->bytes, name->data,
                         node->kind == NODE_FILTER && filter_is_left_out(name->data, name->bytes)
                             ? " in this engine"
                             : "");
    r = eval(run, frame, node->call.callee, &call.self);
    if (r == 0)
        r = gather(run, frame, node->call.arguments, &arguments, &call);
    return r < 0 ? r : builtin_call(run, node->call.builtin, &call, ret_value);
}

/* --- the other expressions -------------------------------------------------------------------- */

static int eval_list(struct run *run, struct frame *frame, const struct node *node,
                     struct value *ret_value)
{
    struct list *list = list_make(run, 0);
    struct value value;
    int r = list ? 0 : E_MEMORY;

    for (const struct node *item = node->items; r == 0 && item; item = item->next) {
        r = eval(run, frame, item, &value);
        if (r == 0)
            r = list_put(run, list, value);
    }
    if (r == 0)
        *ret_value = value_list(node->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, list);
    return r;
}

static int eval_dict(struct run *run, struct frame *frame, const struct node *node,
                     struct value *ret_value)
{
    struct dict *dict = dict_make(run, 0);
    struct value key, value;
    int r = dict ? 0 : E_MEMORY;

    for (const struct pair *pair = node->pairs; r == 0 && pair; pair = pair->next) {
        r = eval(run, frame, pair->first, &key);
        if (r == 0)
            r = eval(run, frame, pair->second, &value);
        if (r == 0)
            r = dict_put(run, dict, key, value);
    }
    if (r == 0)
        *ret_value = value_dict(dict);
    return r;
}

static int eval_arithmetic(struct run *run, struct frame *frame, const struct node *node,
                           struct value *ret_value)
{
    struct value left, right;
    int r = eval(run, frame, node->chain.first, &left);

    for (const struct operand *one = node->chain.rest; r == 0 && one; one = one->next) {
        r = eval(run, frame, one->node, &right);
        if (r == 0)
            r = value_arithmetic(run, one->operation, left, right, &left);
    }
    if (r == 0)
        *ret_value = left;
    return r;
}

static struct text *plain_text(struct run *run, struct text *text)
{
    if (text && text->markup) {
        text = text_part(run, text, 0, text->bytes);
        if (text)
            text->markup = false;
    }
    return text;
}

static int eval_concat(struct run *run, struct frame *frame, const struct node *node,
                       struct value *ret_value)
{
    struct value value;
    struct text *text;
    int r = eval(run, frame, node->chain.first, &value);

    if (r < 0)
        return r;
    text = plain_text(run, value_string(run, value));
    for (const struct operand *one = node->chain.rest; text && one; one = one->next) {
        struct text *right;

        r = eval(run, frame, one->node, &value);
        if (r < 0)
            return r;
        right = plain_text(run, value_string(run, value));
        text = right ? text_join(run, text, right) : NULL;
    }
    return text_give(text, run, ret_value);
}

static int eval_compare(struct run *run, struct frame *frame, const struct node *node,
                        struct value *ret_value)
{
    struct value left, right;
    bool truth = true;
    int r = eval(run, frame, node->chain.first, &left);

    for (const struct operand *one = node->chain.rest; r == 0 && truth && one; one = one->next) {
        r = eval(run, frame, one->node, &right);
        if (r == 0)
            r = value_relation(run, one->operation, left, right, &truth);
        left = right;
    }
    if (r == 0)
        *ret_value = value_bool(truth);
    return r;
}

static int eval_logic(struct run *run, struct frame *frame, const struct node *node,
                      struct value *ret_value)
{
    bool ends = node->kind == NODE_OR;
    int r = eval(run, frame, node->chain.first, ret_value);

    for (const struct operand *one = node->chain.rest;
         r == 0 && one && value_is_true(*ret_value) != ends; one = one->next)
        r = eval(run, frame, one->node, ret_value);
    return r;
}

static int eval_sign(struct run *run, struct frame *frame, const struct node *node,
                     struct value *ret_value)
{
    struct value value;
    int r = eval(run, frame, node->items, &value);

    if (r == 0)
        r = value_defined(run, value);
    if (r < 0)
        return r;
    if (!value_is_number(value))
        return run_wrong(run, "bad operand type for unary sign: '%s'", value_type(value));
    if (node->kind == NODE_NEGATIVE)
        return number_negate(run, value, ret_value);
    *ret_value = value.kind == VALUE_BOOL ? value_int(value.truth) : value;
    return 0;
}

static int eval_condition(struct run *run, struct frame *frame, const struct node *node,
                          struct value *ret_value)
{
    struct value test;
    int r = eval(run, frame, node->condition.test, &test);

    if (r < 0)
        return r;
    if (value_is_true(test))
        return eval(run, frame, node->condition.yes, ret_value);
    if (node->condition.no)
        return eval(run, frame, node->condition.no, ret_value);
    *ret_value = value_undefined(run, MISSING_REASON, NULL, NULL,
                                 "the inline if-expression is false and has no else");
    return 0;
}

static int eval_element(struct run *run, struct frame *frame, const struct node *node,
                        struct value *ret_value)
{
    struct value owner, key;
    int r = eval(run, frame, node->element.owner, &owner);

    if (r == 0)
        r = eval(run, frame, node->element.key, &key);
    return r < 0 ? r : value_element(run, owner, key, ret_value);
}

static int eval_slice(struct run *run, struct frame *frame, const struct node *node,
                      struct value *ret_value)
{
    struct value owner, bounds[3] = {NONE, NONE, NONE};
    int r = eval(run, frame, node->slice.owner, &owner);

    for (int i = 0; r == 0 && i < 3; i++) {
        if (node->slice.bounds[i])
            r = eval(run, frame, node->slice.bounds[i], &bounds[i]);
    }
    return r < 0 ? r : value_slice(run, owner, bounds, ret_value);
}

static int eval_node(struct run *run, struct frame *frame, const struct node *node,
                     struct value *ret_value)
{
    struct value value;
    int r;

    switch (node->kind) {
    case NODE_MEMBER:
        r = eval(run, frame, node->member.owner, &value);
        return r < 0 ? r : value_member(run, value, node->member.name, ret_value);
    case NODE_ELEMENT:
        return eval_element(run, frame, node, ret_value);
    case NODE_SLICE:
        return eval_slice(run, frame, node, ret_value);
    case NODE_CALL:
        return eval_call(run, frame, node, ret_value);
    case NODE_FILTER:
    case NODE_TEST:
        return eval_filter(run, frame, node, ret_value);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(run, frame, node, ret_value);
    case NODE_DICT:
        return eval_dict(run, frame, node, ret_value);
    case NODE_ARITHMETIC:
        return eval_arithmetic(run, frame, node, ret_value);
    case NODE_CONCAT:
        return eval_concat(run, frame, node, ret_value);
    case NODE_COMPARE:
        return eval_compare(run, frame, node, ret_value);
    case NODE_AND:
    case NODE_OR:
        return eval_logic(run, frame, node, ret_value);
    case NODE_NOT:
        r = eval(run, frame, node->items, &value);
        if (r == 0)
            *ret_value = value_bool(!value_is_true(value));
        return r;
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return eval_sign(run, frame, node, ret_value);
    case NODE_CONDITION:
        return eval_condition(run, frame, node, ret_value);
    case NODE_CAPTURE:
        return exec_capture(run, frame, node->items, ret_value);
    default:
        must(!"an expression");
        return E_UNSUPPORTED;
    }
}

int eval(struct run *run, struct frame *frame, const struct node *node, struct value *ret_value)
{
    int r;

    if (node->kind == NODE_CONSTANT) {
        *ret_value = node->constant;
        return 0;
    }
    if (node->kind == NODE_NAME) {
        *ret_value = lookup(run, frame, node->name);
        return run_step(run, 1);
    }
    r = run_enter(run);
    if (r == 0)
        r = eval_node(run, frame, node, ret_value);
    if (r < 0)
        return locate(run, node, r);
    run->depth--;
    return 0;
}
