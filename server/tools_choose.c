/* tools_choose.c -- which format does a model write? Its chat template shows it: it has the markers
 * that the model was trained on.
 *
 * The first row whose texts all occur wins. A template without any of them says nothing about
 * calls; if it knows <think>, reasoning is split all the same. */
#include <string.h>

#include "server/tools_internal.h"

static const struct signature {
    const struct tool_format *format;
    const char *texts[2];
    bool always; /* even plain answers have markers of the format */
} signatures[] = {
    {&tool_harmony, {"<|channel|>", "<|message|>"}, true},
    {&tool_deepseek_v3, {"<｜tool▁calls▁begin｜>", "```json"}, false},
    {&tool_deepseek_v31, {"<｜tool▁calls▁begin｜>", NULL}, false},
    {&tool_glm45, {"<arg_key>", NULL}, false},
    {&tool_qwen3_coder, {"<function=", "<parameter="}, false},
    {&tool_functionary, {"<function=", "</function>"}, false},
    {&tool_functionary, {">>>", "Supported function definitions"}, true},
    {&tool_mistral, {"[TOOL_CALLS]", NULL}, false},
    {&tool_granite, {"<|start_of_role|>", "<tool_call>"}, false},
    {&tool_granite, {"<|start_of_role|>", "<|tool_call|>"}, false},
    {&tool_hermes, {"<tool_call>", "</tool_call>"}, false},
    {&tool_llama_pythonic, {"<|python_start|>", NULL}, false},
    {&tool_llama3_json, {"{\"name\": function name, \"parameters\":", NULL}, false},
    {&tool_think, {"<think>", NULL}, true},
    {&tool_think, {"</think>", NULL}, true},
};

static bool has(const char *text, size_t bytes, const char *part)
{
    return !part || memmem(text, bytes, part, strlen(part));
}

bool tool_format_reasons(const struct tool_format *format, const char *text, size_t bytes)
{
    for (size_t i = 0; i < format->marker_count; i++) {
        const struct tool_marker *marker = &format->markers[i];

        if ((marker->act == TOOL_ACT_THINK || marker->act == TOOL_ACT_THINK_END) &&
            has(text, bytes, marker->text))
            return true;
    }
    return format == &tool_harmony;
}

const struct tool_format *tool_format_choose(const char *text, size_t bytes, bool *ret_always)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *signature = &signatures[i];

        if (!has(text, bytes, signature->texts[0]) || !has(text, bytes, signature->texts[1]))
            continue;
        *ret_always = signature->always || tool_format_reasons(signature->format, text, bytes);
        return signature->format;
    }
    *ret_always = false;
    return NULL;
}

static bool ends_with(const char *text, size_t bytes, const char *end)
{
    size_t end_bytes = end ? strlen(end) : 0;

    return end_bytes > 0 && bytes >= end_bytes &&
           memcmp(text + bytes - end_bytes, end, end_bytes) == 0;
}

static size_t without_space(const char *text, size_t bytes)
{
    while (bytes > 0 && tools_is_space(text[bytes - 1]))
        bytes--;
    return bytes;
}

bool tool_format_opens_reasoning(const struct tool_format *format, const char *text, size_t bytes)
{
    bytes = without_space(text, bytes);
    for (size_t i = 0; i < format->marker_count; i++) {
        const struct tool_marker *marker = &format->markers[i];

        if (ends_with(text, bytes,
                      marker->act == TOOL_ACT_THINK ? marker->text : format->opens_reasoning))
            return true;
    }
    return false;
}

bool tool_format_closes_reasoning(const struct tool_format *format, const char *text, size_t bytes)
{
    bytes = without_space(text, bytes);
    for (size_t i = 0; i < format->marker_count; i++) {
        if (format->markers[i].act == TOOL_ACT_THINK_END &&
            ends_with(text, bytes, format->markers[i].text))
            return true;
    }
    return false;
}

bool tool_format_opens_header(const struct tool_format *format, const char *text, size_t bytes)
{
    return ends_with(text, bytes, format->opens_header);
}
