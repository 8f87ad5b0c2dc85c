/* openai_constraint.c -- what a request asks of its answer, put together as one constraint: the
 * form of the content, the calls that may or must come, and the reasoning that may precede both.
 *
 * Where the prompt has opened the model's reasoning, the answer is free to the end of it and the
 * constraint begins there; where the model may begin to reason by itself, the grammar has that as
 * its first part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/gbnf.h"
#include "engine/text/regex_grammar.h"
#include "server/openai_request.h"
#include "server/tools_write.h"

enum { KEY_BYTES_MAX = 8 << 20 };

/* A grammar of calls: one must come, or those that come must fit, or content has a form beside
 * them. */
static bool holds_calls(const struct draft *draft)
{
    return draft->tools && (draft->tool_choice != TOOL_CHOICE_AUTO || draft->strict_tools ||
                            draft->form.kind != FORM_FREE);
}

static bool may_reason(const struct draft *draft)
{
    return draft->format && draft->context->may_reason && !draft->starts_in_reasoning &&
           !draft->starts_behind_reasoning;
}

/* Calls may come and must then fit; nothing else is asked. */
static bool is_free(const struct draft *draft)
{
    return holds_calls(draft) && draft->tool_choice == TOOL_CHOICE_AUTO &&
           draft->form.kind == FORM_FREE;
}

/* The control token that begins the first call, where the text before it need not be looked at;
 * NULL: it must. A marker that is text may be part of a token that goes on in a wrong way. */
static const char *opening(const struct draft *draft)
{
    const char *marker;

    if (!is_free(draft) || may_reason(draft) || draft->starts_in_reasoning)
        return NULL;
    marker = tools_opening(draft->format);
    return marker && constraints_marker(draft->context->constraints, marker) >= 0 ? marker : NULL;
}

/* --- the form --------------------------------------------------------------------------------- */

static int build_choice(const json_t *list, struct grammar *grammar, int32_t *ret_node,
                        struct fault *fault)
{
    size_t count = json_array_size(list), i;
    const char **texts = calloc(count, sizeof *texts);
    size_t *bytes = calloc(count, sizeof *bytes);
    const json_t *item;
    int r = E_MEMORY;

    json_array_foreach(list, i, item)
    {
        if (!texts || !bytes)
            break;
        texts[i] = json_string_value(item);
        bytes[i] = json_string_length(item);
    }
    if (texts && bytes)
        r = schema_build_choice(grammar, texts, bytes, count, ret_node, fault);
    else
        fault_set(fault, r, "There is no memory for the choices");
    free(texts);
    free(bytes);
    return r;
}

static int build_kind(const struct answer_form *form, struct grammar *grammar,
                      struct constraint_effort *effort, int32_t *ret_node, struct fault *fault)
{
    struct schema_options options = {.space = form->space, .work_left = &effort->work_left};
    const char *text = json_string_value(form->value);
    size_t bytes = json_string_length(form->value);

    switch (form->kind) {
    case FORM_OBJECT:
        return schema_build_any(grammar, true, &options, ret_node, fault);
    case FORM_SCHEMA:
        return schema_build(grammar, form->value, &options, ret_node, fault);
    case FORM_REGEX:
        return regex_grammar_build(grammar, text, bytes, NULL, ret_node, fault);
    case FORM_CHOICE:
        return build_choice(form->value, grammar, ret_node, fault);
    case FORM_GRAMMAR:
        return gbnf_build(grammar, text, bytes, ret_node, fault);
    case FORM_FREE:
        break;
    }
    return *ret_node = grammar_empty(grammar);
}

/* --- the whole -------------------------------------------------------------------------------- */

static int build(void *data, struct grammar *grammar, struct constraint_effort *effort,
                 int32_t *ret_node, struct fault *fault)
{
    const struct draft *draft = data;
    struct tool_answer answer = {
        .format = draft->format,
        .constraints = draft->context->constraints,
        .tools = holds_calls(draft) ? draft->tools : NULL,
        .only = draft->tool_name,
        .forced =
            draft->tool_choice == TOOL_CHOICE_REQUIRED || draft->tool_choice == TOOL_CHOICE_NAMED,
        .parallel = draft->fields.parallel_tool_calls,
        .starts_in_header = draft->starts_in_header,
        .behind_reasoning = draft->starts_in_reasoning,
        .may_reason = may_reason(draft),
        .behind_opening = opening(draft) != NULL,
        .content = -1,
        .effort = effort,
    };
    int r = 0;

    if (draft->form.kind != FORM_FREE)
        r = build_kind(&draft->form, grammar, effort, &answer.content, fault);
    if (r < 0)
        return fault_field(fault, r, draft->form.field, "'%s': %s", draft->form.field,
                           fault->message);
    if (!draft->format) {
        *ret_node = answer.content;
        return 0;
    }
    return tools_write(&answer, grammar, ret_node, fault);
}

/* Everything that the grammar depends on. */
static int put_json(struct buf *key, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    int r = E_MEMORY;

    if (text && strlen(text) + key->bytes > KEY_BYTES_MAX) {
        r = E_TOO_LARGE;
    } else if (text) {
        buf_text(key, text);
        buf_byte(key, '\n');
        r = 0;
    }
    free(text);
    return r;
}

static int make_key(const struct draft *draft, struct buf *key)
{
    const json_t *tool;
    int r = 0;
    size_t i;

    buf_format(key, "%d %d %d%d%d%d\n", (int)draft->form.kind, (int)draft->form.space,
               draft->format != NULL, draft->starts_in_reasoning, may_reason(draft),
               draft->starts_in_header);
    if (draft->form.value)
        r = put_json(key, draft->form.value);
    if (!holds_calls(draft))
        return r;
    buf_format(key, "%d %d%d %s\n", (int)draft->tool_choice, draft->fields.parallel_tool_calls,
               opening(draft) != NULL, draft->tool_name ? draft->tool_name : "");
    json_array_foreach(draft->tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const json_t *parameters = json_object_get(function, "parameters");

        buf_format(key, "%s %d ", json_string_value(json_object_get(function, "name")),
                   json_is_true(json_object_get(function, "strict")));
        if (r == 0 && parameters)
            r = put_json(key, parameters);
    }
    return r;
}

/* Behind the model's reasoning, if the prompt has opened it, or behind what begins a call. */
static int place(struct draft *draft, struct request_constraint *to)
{
    const char *end = opening(draft);
    int32_t id, *ids;

    to->may_be_cut = is_free(draft);
    if (draft->starts_in_reasoning)
        end = tools_reasoning_end(draft->format);
    if (!end)
        return 0;
    id = constraints_marker(draft->context->constraints, end);
    if (id < 0) {
        to->after_text = end; /* a constant */
        to->after_text_bytes = (uint32_t)strlen(end);
        return 0;
    }
    ids = arena_take(draft->arena, 1, sizeof *ids);
    if (!ids)
        return draft_out_of_memory(draft);
    ids[0] = id;
    to->after_tokens = ids;
    to->after_token_count = 1;
    return 0;
}

static const char *name_of(const struct draft *draft, size_t index)
{
    const json_t *tool = json_array_get(draft->tools, index);

    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Each part of the grammar is well-formed, and yet no answer is allowed. */
static int nothing_fits(struct draft *draft)
{
    bool forced =
        draft->tool_choice == TOOL_CHOICE_REQUIRED || draft->tool_choice == TOOL_CHOICE_NAMED;
    enum answer_form_kind kind = forced ? FORM_FREE : draft->form.kind;
    const char *form = draft->form.field;
    size_t count = json_array_size(draft->tools), i = 0;
    char field[64];

    if (kind == FORM_SCHEMA)
        return draft_fault(draft, E_INVALID, form, "'%s': no value at all fits the schema", form);
    if (kind == FORM_REGEX)
        return draft_fault(draft, E_INVALID, form,
                           "'%s': no text at all fits the regular expression", form);
    if (kind != FORM_FREE)
        return E_INVALID;
    while (draft->tool_name && i < count && strcmp(name_of(draft, i), draft->tool_name) != 0)
        i++;
    if (count > 1 && !draft->tool_name)
        return draft_fault(draft, E_INVALID, "tools",
                           "'tools': no arguments at all fit the schemas of their parameters");
    (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
    return draft_fault(draft, E_INVALID, field, "'%s': no arguments at all fit the schema", field);
}

static int compile(struct draft *draft, const struct buf *key)
{
    struct constraint **to = &draft->request->constraint.constraint;
    int r;

    r = constraints_get(draft->context->constraints, buf_string(key), key->bytes, draft->patient,
                        build, draft, to, &draft->fault);
    if (r == CONSTRAINTS_LATER)
        return OPENAI_LATER;
    if (r == E_INVALID && !*draft->fault.field)
        return nothing_fits(draft);
    if (r == E_TOO_LARGE) /* for good, and no matter of the body's size */
        r = draft->fault.code = E_INVALID;
    return r;
}

int draft_constrain(struct draft *draft)
{
    const char *field = draft->form.kind != FORM_FREE ? draft->form.field
                        : draft->strict_tools         ? "tools"
                                                      : "tool_choice";
    struct fault *fault = &draft->fault;
    struct buf key;
    int r;

    if (draft->form.kind == FORM_FREE && !holds_calls(draft))
        return 0;
    if (!draft->context->constraints)
        return draft_fault(draft, E_UNSUPPORTED, field,
                           "'%s': this model has no tokenizer, so its answers cannot be held to a "
                           "form",
                           field);
    buf_init(&key, 2 * KEY_BYTES_MAX);
    r = make_key(draft, &key);
    if (r == E_TOO_LARGE)
        r = fault_set(fault, E_INVALID, "what the answer must be has more than %d bytes",
                      KEY_BYTES_MAX);
    else if (r < 0 || buf_failed(&key))
        r = draft_out_of_memory(draft);
    else
        r = compile(draft, &key);
    buf_fini(&key);
    if (r == 0)
        return place(draft, &draft->request->constraint);
    if (r < 0 && !*fault->field && r != E_MEMORY && r != E_FULL)
        return draft_fault(draft, r, field, "'%s': %s", field, fault->message);
    return r;
}
