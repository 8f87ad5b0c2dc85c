/* jinja_exec.c -- statements: the tree to text, with scopes and loops; and the rendering. */
#include <errno.h>

#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_text.h"

enum { ARENA_FIRST_BYTES = 32 << 10, BINDINGS_FIRST = 4 };

/* --- variables -------------------------------------------------------------------------------- */

int frame_bind(struct run *run, struct frame *frame, uint32_t name, struct value value)
{
    if (!frame) {
        run->root[name] = value;
        return 0;
    }
    for (uint32_t i = 0; i < frame->count; i++) {
        if (frame->bindings[i].name == name) {
            frame->bindings[i].value = value;
            return 0;
        }
    }
    if (frame->count == frame->room) {
        uint32_t room = frame->room ? frame->room * 2 : BINDINGS_FIRST;
        struct binding *bindings = run_take(run, room, sizeof *bindings);

        if (!bindings)
            return E_MEMORY;
        if (frame->count > 0)
            memcpy(bindings, frame->bindings, frame->count * sizeof *bindings);
        frame->bindings = bindings;
        frame->room = room;
    }
    frame->bindings[frame->count++] = (struct binding){name, value};
    return 0;
}

static int unpack(struct run *run, struct frame *frame, const struct node *targets,
                  struct value value)
{
    struct iterator iterator;
    struct value item;
    int r = iterator_init(run, value, &iterator);

    for (; r == 0 && targets; targets = targets->next) {
        r = iterator_next(run, &iterator, &item);
        if (r == 0)
            return run_wrong(run, "there are fewer values than variables to unpack them into");
        if (r > 0)
            r = assign(run, frame, targets, item);
    }
    if (r == 0)
        r = iterator_next(run, &iterator, &item);
    return r > 0 ? run_wrong(run, "there are more values than variables to unpack them into") : r;
}

int assign(struct run *run, struct frame *frame, const struct node *target, struct value value)
{
    struct value owner;

    switch (target->kind) {
    case NODE_NAME:
        return frame_bind(run, frame, target->name, value);
    case NODE_NAMESPACE_MEMBER:
        owner = lookup(run, frame, target->namespace_member.variable);
        if (owner.kind != VALUE_NAMESPACE)
            return run_wrong(run, "cannot assign attribute on non-namespace object");
        return dict_put(run, owner.dict, value_text(target->namespace_member.name), value);
    default:
        return unpack(run, frame, target->items, value);
    }
}

/* --- loops ------------------------------------------------------------------------------------ */

int loop_peek(struct run *run, struct loop *loop)
{
    const struct for_node *node = loop->node;
    int r;

    if (loop->next.kind != VALUE_UNSET)
        return 1;
    while ((r = iterator_next(run, &loop->iterator, &loop->next)) > 0) {
        struct value truth;

        if (!node->test || loop->passed)
            return 1;
        loop->test_frame.count = 0;
        r = assign(run, &loop->test_frame, node->target, loop->next);
        if (r == 0)
            r = eval(run, &loop->test_frame, node->test, &truth);
        if (r < 0)
            return r;
        if (value_is_true(truth))
            return 1;
    }
    loop->next = UNSET;
    return r;
}

int exec_loop(struct run *run, const struct for_node *node, struct frame *outer, struct value over,
              int64_t depth)
{
    struct frame *frame = run_take(run, 1, sizeof *frame);
    struct loop *loop = run_take(run, 1, sizeof *loop);
    int r;

    if (!frame || !loop)
        return E_MEMORY;
    loop->node = node;
    loop->outer = frame->outer = loop->test_frame.outer = outer;
    loop->index = -1;
    loop->depth = depth;
    r = iterator_init(run, over, &loop->iterator);
    if (r < 0)
        return locate(run, node->over, r);
    while ((r = loop_peek(run, loop)) > 0) {
        loop->previous = loop->current;
        loop->current = loop->next;
        loop->next = UNSET;
        loop->index++;
        frame->count = 0;
        r = assign(run, frame, node->target, loop->current);
        if (r < 0)
            return locate(run, node->target, r);
        r = frame_bind(run, frame, NAME_LOOP, (struct value){.kind = VALUE_LOOP, .loop = loop});
        if (r == 0)
            r = exec_body(run, frame, node->body);
        if (r < 0)
            return r;
        if (r == FLOW_BREAK)
            break;
    }
    if (r < 0 || loop->index >= 0)
        return r < 0 ? r : 0;
    frame->count = 0;
    return exec_body(run, frame, node->otherwise);
}

static int exec_for(struct run *run, struct frame *frame, const struct node *node)
{
    struct value over;
    int r = eval(run, frame, node->loop->over, &over);

    return r < 0 ? r : exec_loop(run, node->loop, frame, over, 0);
}

/* --- the other statements --------------------------------------------------------------------- */

static int exec_if(struct run *run, struct frame *frame, const struct node *node)
{
    struct value truth;

    for (const struct pair *branch = node->choice.branches; branch; branch = branch->next) {
        int r = eval(run, frame, branch->first, &truth);

        if (r < 0)
            return r;
        if (value_is_true(truth))
            return exec_body(run, frame, branch->second);
    }
    return exec_body(run, frame, node->choice.otherwise);
}

static int exec_scope(struct run *run, struct frame *outer, const struct node *body)
{
    struct frame *frame = run_take(run, 1, sizeof *frame);

    if (!frame)
        return E_MEMORY;
    frame->outer = outer;
    return exec_body(run, frame, body);
}

int exec_capture(struct run *run, struct frame *outer, const struct node *body,
                 struct value *ret_value)
{
    size_t start = run->out->bytes;
    int r = exec_scope(run, outer, body);

    /* A break out of the captured text leaves nothing of it. */
    if (r > 0)
        return run_wrong(run, "'break' and 'continue' cannot leave a set or filter block");
    return r < 0 ? r : text_give(run_capture(run, start), run, ret_value);
}

static int exec_with(struct run *run, struct frame *outer, const struct node *node)
{
    struct frame *frame = run_take(run, 1, sizeof *frame);
    struct value value;
    int r = 0;

    if (!frame)
        return E_MEMORY;
    frame->outer = outer;
    for (const struct pair *pair = node->with.pairs; r == 0 && pair; pair = pair->next) {
        r = eval(run, outer, pair->second, &value);
        if (r == 0)
            r = assign(run, frame, pair->first, value);
    }
    return r < 0 ? r : exec_body(run, frame, node->with.body);
}

static int exec_macro(struct run *run, struct frame *frame, const struct node *node)
{
    struct macro *macro = run_take(run, 1, sizeof *macro);

    if (!macro)
        return E_MEMORY;
    *macro = (struct macro){node->macro, frame};
    return frame_bind(run, frame, node->macro->variable,
                      (struct value){.kind = VALUE_MACRO, .macro = macro});
}

static int exec_output(struct run *run, struct frame *frame, const struct node *items)
{
    struct value value;
    int r = 0;

    for (; r == 0 && items; items = items->next) {
        r = eval(run, frame, items, &value);
        if (r == 0)
            r = value_print(run, value, run->out);
    }
    return r;
}

static int exec_node(struct run *run, struct frame *frame, const struct node *node)
{
    struct value value;
    int r;

    switch (node->kind) {
    case NODE_DATA:
        return value_print(run, node->constant, run->out);
    case NODE_OUTPUT:
        return exec_output(run, frame, node->items);
    case NODE_IF:
        return exec_if(run, frame, node);
    case NODE_FOR:
        return exec_for(run, frame, node);
    case NODE_SET:
        r = eval(run, frame, node->set.value, &value);
        return r < 0 ? r : assign(run, frame, node->set.target, value);
    case NODE_WITH:
        return exec_with(run, frame, node);
    case NODE_MACRO:
        return exec_macro(run, frame, node);
    case NODE_SCOPE:
        return exec_scope(run, frame, node->items);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        must(!"a statement");
        return E_UNSUPPORTED;
    }
}

int exec_body(struct run *run, struct frame *frame, const struct node *body)
{
    int r = 0;

    for (; r == 0 && body; body = body->next) {
        r = run_enter(run);
        if (r == 0)
            r = exec_node(run, frame, body);
        if (r < 0)
            return locate(run, body, r);
        run->depth--;
    }
    return r;
}

/* --- rendering -------------------------------------------------------------------------------- */

static struct value *find_variable(struct run *run, const char *name, size_t bytes)
{
    const struct text key = {.data = name, .bytes = bytes};
    const struct value *number = dict_find(run->jinja->name_numbers, &key);

    return number ? &run->root[number->integer] : NULL;
}

/* The input says it, but as if it did not. */
static bool is_skipped(const struct jinja_input *input, const char *key, size_t bytes, bool null)
{
    size_t end = strlen(input->skip_null);

    return null && end > 0 && bytes >= end && memcmp(key + bytes - end, input->skip_null, end) == 0;
}

static int set_variables_tree(struct run *run, const struct jinja_input *input, const json_t *tree,
                              const char *spread)
{
    const json_t *more = *spread ? json_object_get(tree, spread) : NULL;
    const char *key;
    json_t *member;

    if (json_is_object(more) && set_variables_tree(run, input, more, "") < 0)
        return run_failed(run);
    json_object_foreach((json_t *)(uintptr_t)tree, key, member)
    {
        struct value *variable = find_variable(run, key, strlen(key));
        int r = 0;

        if (variable && !is_skipped(input, key, strlen(key), json_is_null(member)))
            r = json_tree_value(run, member, variable);
        if (r < 0)
            return r;
    }
    return 0;
}

static int set_variables(struct run *run, const struct jinja_input *input, const struct dict *dict,
                         const char *spread)
{
    const struct value *more = *spread ? dict_find_name(dict, spread) : NULL;

    if (more && more->kind == VALUE_DICT && set_variables(run, input, more->dict, "") < 0)
        return run_failed(run);
    for (uint32_t i = 0; i < dict->count; i++) {
        const struct dict_entry *entry = &dict->entries[i];
        const struct text *key = entry->key.text;
        struct value *variable = find_variable(run, key->data, key->bytes);

        if (variable && !is_skipped(input, key->data, key->bytes, entry->value.kind == VALUE_NONE))
            *variable = entry->value;
    }
    return 0;
}

static int set_source(struct run *run, const struct jinja_input *input,
                      const struct jinja_variables *source)
{
    struct value value;
    int r;

    if (source->tree)
        return set_variables_tree(run, input, source->tree, input->spread);
    r = json_text_value(run, source->text, source->bytes, &value);
    if (r == 0 && value.kind != VALUE_DICT)
        r = run_fault(run, E_INVALID, "The variables are not a JSON object");
    return r < 0 ? r : set_variables(run, input, value.dict, input->spread);
}

static int render(struct run *run, const struct jinja_input *input)
{
    int r = 0;

    run->root = run_take(run, run->jinja->name_count, sizeof *run->root);
    if (!run->root)
        return E_MEMORY;
    memcpy(run->root, run->jinja->root, run->jinja->name_count * sizeof *run->root);
    for (size_t i = 0; r == 0 && i < input->count; i++)
        r = set_source(run, input, &input->sources[i]);
    if (r == 0)
        r = exec_body(run, NULL, run->jinja->body);
    return r < 0 ? r : run_check_out(run);
}

int jinja_render(const struct jinja *jinja, const struct jinja_input *input, struct buf *ret_text,
                 struct fault *fault)
{
    struct fault own = {0};
    struct run run = {.fault = fault ? fault : &own,
                      .out = ret_text,
                      .steps_left = input->steps_max ? input->steps_max : JINJA_STEPS_MAX,
                      .jinja = jinja,
                      .now = input->now};
    size_t start = ret_text->bytes, ceiling = JINJA_MEMORY_BYTES_MAX;
    int r;

    for (size_t i = 0; i < input->count; i++)
        ceiling += input->sources[i].bytes * JINJA_MEMORY_PER_BYTE;
    run.fault->code = 0;
    if (arena_open(ARENA_FIRST_BYTES, ceiling, &run.arena) < 0)
        return fault_set(fault, E_MEMORY, "out of memory for the chat template");
    r = render(&run, input);
    arena_close(run.arena);
    if (r >= 0)
        return 0;
    buf_cut(ret_text, start);
    return run.fault->code < 0 ? run.fault->code : r;
}
