/* tools_write.c -- see tools_write.h. A row of `shapes` is one way in which a format writes calls;
 * a format with several lets the model choose. The arguments are made in tools_arguments.c. */
#include "server/tools_write.h"

#include <string.h>

#include "server/tools_arguments.h"
#include "server/tools_internal.h"

#define DEEPSEEK(part) "<｜tool▁" part "｜>"

static const struct argument_tags glm_tags = {"<arg_key>", "</arg_key>\n<arg_value>",
                                              "</arg_value>\n", "</arg_value>"};
static const struct argument_tags coder_tags = {"<parameter=", ">\n", "\n</parameter>\n",
                                                "</parameter>"};

/* begin (before name middle arguments after) between (...) end */
static const struct call_shape {
    const struct tool_format *format;
    const char *begin;
    const char *before;
    const char *middle;
    const char *after;
    const char *between;
    const char *end;
    const char *head; /* bytes that text beside calls may not begin with */
    enum argument_style style;
    const struct argument_tags *tags;
    bool in_header; /* only where the prompt has opened a header; else only where not */
    bool single;    /* a call ends the turn */
} shapes[] = {
    {.format = &tool_hermes,
     .before = "<tool_call>\n{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = "}\n</tool_call>",
     .between = "\n"},
    {.format = &tool_llama3_json,
     .before = "{\"name\": \"",
     .middle = "\", \"parameters\": ",
     .after = "}",
     .between = "; ",
     .head = "{"},
    {.format = &tool_llama3_json,
     .begin = "<|python_tag|>",
     .before = "{\"name\": \"",
     .middle = "\", \"parameters\": ",
     .after = "}",
     .between = "; "},
    {.format = &tool_mistral,
     .begin = "[TOOL_CALLS][",
     .before = "{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = "}",
     .between = ", ",
     .end = "]"},
    {.format = &tool_mistral, .before = "[TOOL_CALLS]", .middle = "[ARGS]"},
    {.format = &tool_granite,
     .begin = "<|tool_call|>[",
     .before = "{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = "}",
     .between = ", ",
     .end = "]",
     .head = "["},
    {.format = &tool_granite,
     .before = "<tool_call>\n{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = "}\n</tool_call>",
     .between = "\n",
     .head = "["},
    {.format = &tool_deepseek_v3,
     .begin = DEEPSEEK("calls▁begin"),
     .before = DEEPSEEK("call▁begin") "function" DEEPSEEK("sep"),
     .middle = "\n```json\n",
     .after = "\n```" DEEPSEEK("call▁end"),
     .between = "\n",
     .end = DEEPSEEK("calls▁end")},
    {.format = &tool_deepseek_v31,
     .begin = DEEPSEEK("calls▁begin"),
     .before = DEEPSEEK("call▁begin"),
     .middle = DEEPSEEK("sep"),
     .after = DEEPSEEK("call▁end"),
     .end = DEEPSEEK("calls▁end")},
    {.format = &tool_glm45,
     .before = "<tool_call>",
     .middle = "\n",
     .after = "</tool_call>",
     .between = "\n",
     .style = ARGUMENTS_TAGGED,
     .tags = &glm_tags},
    {.format = &tool_qwen3_coder,
     .before = "<tool_call>\n<function=",
     .middle = ">\n",
     .after = "</function>\n</tool_call>",
     .between = "\n",
     .style = ARGUMENTS_TAGGED,
     .tags = &coder_tags},
    {.format = &tool_llama_pythonic,
     .begin = "[",
     .middle = "(",
     .after = ")",
     .between = ", ",
     .end = "]",
     .head = "[",
     .style = ARGUMENTS_PYTHON},
    {.format = &tool_llama_pythonic,
     .begin = "<|python_start|>[",
     .middle = "(",
     .after = ")",
     .between = ", ",
     .end = "]<|python_end|>",
     .head = "[",
     .style = ARGUMENTS_PYTHON},
    {.format = &tool_functionary, .before = "<function=", .middle = ">", .after = "</function>"},
    {.format = &tool_functionary, .middle = "\n", .between = ">>>", .in_header = true},
    {.format = &tool_harmony,
     .before = "<|channel|>commentary to=functions.",
     .middle = " <|constrain|>json<|message|>",
     .single = true},
    {.format = &tool_harmony,
     .before = " to=functions.",
     .middle = "<|channel|>commentary json<|message|>",
     .single = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, SPACE_MAX = 4, MARKERS_MAX = 12 };

struct writer {
    const struct tool_answer *answer;
    struct grammar *grammar;
    struct fault *fault;
};

static int32_t spell(const struct writer *writer, const char *text)
{
    return constraints_spell(writer->answer->constraints, writer->grammar, text ? text : "");
}

static int32_t pair(const struct writer *writer, int32_t first, int32_t second)
{
    const int32_t nodes[] = {first, second};

    return grammar_sequence(writer->grammar, nodes, 2);
}

static int32_t optional(const struct writer *writer, int32_t node)
{
    return grammar_repeat(writer->grammar, node, 0, 1);
}

/* --- text ------------------------------------------------------------------------------------- */

/* Text in which the format's reader sees no marker of these kinds. */
static int32_t plain(const struct writer *writer, unsigned acts, const char *head)
{
    const struct tool_format *format = writer->answer->format;
    const char *texts[MARKERS_MAX];
    struct schema_markers markers = {.texts = texts};
    int32_t node = 0;
    int r;

    for (size_t i = 0; i < format->marker_count; i++) {
        if (acts >> format->markers[i].act & 1) {
            must(markers.count < MARKERS_MAX);
            texts[markers.count++] = format->markers[i].text;
        }
    }
    r = schema_build_plain(writer->grammar, &markers, head ? head : "", &node, writer->fault);
    return r < 0 ? r : node;
}

const char *tools_opening(const struct tool_format *format)
{
    const char *found = NULL;

    for (size_t i = 0; i < format->marker_count; i++) {
        if (format->markers[i].act != TOOL_ACT_OPEN)
            continue;
        if (found)
            return NULL;
        found = format->markers[i].text;
    }
    for (size_t i = 0; found && i < SHAPES; i++) {
        const char *first = shapes[i].begin ? shapes[i].begin : shapes[i].before;

        if (shapes[i].format == format && (!first || strncmp(first, found, strlen(found)) != 0))
            return NULL;
    }
    return found;
}

static const char *marker_text(const struct tool_format *format, enum tool_act act)
{
    for (size_t i = 0; i < format->marker_count; i++) {
        if (format->markers[i].act == act)
            return format->markers[i].text;
    }
    return NULL;
}

const char *tools_reasoning_end(const struct tool_format *format)
{
    return format == &tool_harmony ? "<|end|>" : marker_text(format, TOOL_ACT_THINK_END);
}

/* White space that models put between their reasoning and the answer. */
static int32_t gap(const struct writer *writer)
{
    static const struct grammar_range blanks[] = {{'\n', '\n'}, {' ', ' '}};
    int32_t blank = grammar_class(writer->grammar, blanks, 2, false);

    return grammar_repeat(writer->grammar, blank, 0, SPACE_MAX);
}

/* What comes before the answer proper; it may be empty. */
static int32_t reasoning(const struct writer *writer)
{
    const struct tool_answer *answer = writer->answer;
    const char *begin = marker_text(answer->format, TOOL_ACT_THINK);
    bool harmony = answer->format == &tool_harmony;
    int32_t nodes[4];

    if (answer->behind_reasoning)
        return harmony ? spell(writer, "<|start|>assistant") : gap(writer);
    if (!answer->may_reason || (!harmony && !begin))
        return grammar_empty(writer->grammar);
    nodes[0] = spell(writer, harmony ? "<|channel|>analysis<|message|>" : begin);
    nodes[1] = plain(writer, 1u << (harmony ? TOOL_ACT_STEER : TOOL_ACT_THINK_END), NULL);
    nodes[2] =
        spell(writer, harmony ? "<|end|><|start|>assistant" : tools_reasoning_end(answer->format));
    nodes[3] = harmony ? grammar_empty(writer->grammar) : gap(writer);
    return optional(writer, grammar_sequence(writer->grammar, nodes, 4));
}

/* --- calls ------------------------------------------------------------------------------------ */

static bool fits(const struct tool_answer *answer, const struct call_shape *shape)
{
    return shape->format == answer->format &&
           (shape->format != &tool_functionary || shape->in_header == answer->starts_in_header);
}

/* One call of one tool, from its name on. */
static int32_t write_call(const struct writer *writer, const struct call_shape *shape,
                          const json_t *tool, size_t index)
{
    struct argument_rules rules = {.style = shape->style,
                                   .tags = shape->tags,
                                   .function = json_object_get(tool, "function"),
                                   .index = index,
                                   .effort = writer->answer->effort};
    const char *name = json_string_value(json_object_get(rules.function, "name"));
    int32_t nodes[4], arguments = 0;
    int r = tools_arguments_build(&rules, writer->grammar, &arguments, writer->fault);

    if (r < 0)
        return r;
    nodes[0] = grammar_literal(writer->grammar, name, strlen(name));
    nodes[1] = spell(writer, shape->middle);
    nodes[2] = arguments;
    nodes[3] = spell(writer, shape->after);
    return grammar_sequence(writer->grammar, nodes, 4);
}

/* The same of any of the tools. */
static int32_t write_any_call(const struct writer *writer, const struct call_shape *shape)
{
    const struct tool_answer *answer = writer->answer;
    int32_t choice = grammar_never(writer->grammar);
    const json_t *tool;
    size_t i;

    json_array_foreach(answer->tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        int32_t ways[2] = {choice, 0};

        if (answer->only &&
            strcmp(json_string_value(json_object_get(function, "name")), answer->only) != 0)
            continue;
        ways[1] = write_call(writer, shape, tool, i);
        if (ways[1] < 0)
            return ways[1];
        choice = grammar_choice(writer->grammar, ways, 2);
    }
    return choice;
}

/* What stands before the first call's name. */
static int32_t write_opening(const struct writer *writer, const struct call_shape *shape)
{
    const char *begin = shape->begin ? shape->begin : "";
    const char *before = shape->before ? shape->before : "";
    size_t skip = 0;

    if (writer->answer->behind_opening)
        skip = strlen(tools_opening(writer->answer->format));
    if (*begin)
        return pair(writer, spell(writer, begin + skip), spell(writer, before));
    return spell(writer, before + skip);
}

static int32_t write_shape(const struct writer *writer, const struct call_shape *shape)
{
    bool one = shape->single || !writer->answer->parallel || writer->answer->only;
    int32_t rule = grammar_rule(writer->grammar, "call"), nodes[4], more[3], call;
    int r = rule;

    if (r >= 0)
        r = call = write_any_call(writer, shape);
    if (r >= 0)
        r = grammar_define(writer->grammar, rule, call);
    if (r < 0)
        return r;
    call = grammar_reference(writer->grammar, rule);
    more[0] = spell(writer, shape->between);
    more[1] = spell(writer, shape->before);
    more[2] = call;
    nodes[0] = write_opening(writer, shape);
    nodes[1] = call;
    nodes[2] = one ? grammar_empty(writer->grammar)
                   : grammar_repeat(writer->grammar, grammar_sequence(writer->grammar, more, 3), 0,
                                    GRAMMAR_UNBOUNDED);
    nodes[3] = spell(writer, shape->end);
    return grammar_sequence(writer->grammar, nodes, 4);
}

/* Calls in any of the format's ways; `*ret_head` is what text beside them may not begin with. */
static int32_t write_calls(const struct writer *writer, const char **ret_head)
{
    int32_t ways[SHAPES];
    size_t count = 0;

    for (size_t i = 0; i < SHAPES; i++) {
        if (!fits(writer->answer, &shapes[i]))
            continue;
        ways[count] = write_shape(writer, &shapes[i]);
        if (ways[count] < 0)
            return ways[count];
        count++;
        if (shapes[i].head)
            *ret_head = shapes[i].head;
    }
    return grammar_choice(writer->grammar, ways, count);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* An answer's text, where it is no call. */
static int32_t write_content(const struct writer *writer, const char *head)
{
    const struct tool_answer *answer = writer->answer;
    bool harmony = answer->format == &tool_harmony;
    bool named = answer->format == &tool_functionary && answer->starts_in_header;
    int32_t text = answer->content;

    if (text < 0)
        text = plain(writer, 1u << TOOL_ACT_OPEN | (harmony ? 1u << TOOL_ACT_STEER : 0), head);
    if (harmony)
        return pair(writer, spell(writer, "<|channel|>final<|message|>"), text);
    return named ? pair(writer, spell(writer, "all\n"), text) : text;
}

static int32_t write_body(const struct writer *writer)
{
    const struct tool_answer *answer = writer->answer;
    bool named = answer->format == &tool_functionary && answer->starts_in_header;
    const char *head = "";
    int32_t calls, ways[2];

    if (!answer->tools)
        return write_content(writer, head);
    calls = write_calls(writer, &head);
    if (calls < 0 || answer->forced || answer->behind_opening)
        return calls;
    ways[0] = write_content(writer, head);
    ways[1] = calls;
    if (answer->content >= 0 || *head || answer->format == &tool_harmony)
        return grammar_choice(writer->grammar, ways, 2);
    /* Text may come before the calls, for their marker tells them from it. */
    if (named)
        ways[1] = pair(writer, spell(writer, ">>>"), calls);
    ways[0] = pair(writer, ways[0], optional(writer, ways[1]));
    ways[1] = calls;
    return named ? grammar_choice(writer->grammar, ways, 2) : ways[0];
}

int tools_write(const struct tool_answer *answer, struct grammar *grammar, int32_t *ret_node,
                struct fault *fault)
{
    struct writer writer = {answer, grammar, fault};
    int32_t before, body;

    fault->code = 0;
    before = reasoning(&writer);
    body = write_body(&writer);
    *ret_node = pair(&writer, before, body);
    if (*ret_node >= 0)
        return 0;
    if (fault->code < 0)
        return fault->code;
    return fault_set(fault, *ret_node, "the calls of these tools make too large a grammar");
}
