/* openai_tools.c -- the request's tools: what may be called, whether it must be, and how the
 * model's text is to be read for it.
 *
 *     "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": true}}]
 *     "tool_choice": "none" | "auto" | "required" | {"type": "function", "function": {"name": "f"}}
 *
 * A call that must come, or must fit its schema, is a constraint on the answer: tools_write.h. */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"

enum {
    TOOLS_MAX = 128,
    NAME_BYTES_MAX = 64,
    SCHEMA_BYTES_MAX = 1 << 18,
    PATH_BYTES = 40,
    FIELD_BYTES = 64,
};

static bool is_name(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        char byte = text[i];

        if (!(byte >= '0' && byte <= '9') && !((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') &&
            byte != '_' && byte != '-' && byte != '.')
            return false;
    }
    return bytes > 0 && bytes <= NAME_BYTES_MAX;
}

/* `path` ends in a point: "tools[0].function.". */
static int check_schema(struct draft *draft, const json_t *function, const char *path)
{
    json_t *schema = NULL, *properties = NULL;
    const char *type = NULL;
    char field[FIELD_BYTES];
    size_t bytes;
    int r = json_get_object(function, path, "parameters", &schema, &draft->fault);

    if (r <= 0)
        return r;
    (void)snprintf(field, sizeof field, "%.*sparameters", PATH_BYTES, path);
    bytes = json_dumpb(schema, NULL, 0, JSON_COMPACT);
    if (bytes > SCHEMA_BYTES_MAX)
        return draft_fault(draft, E_TOO_LARGE, field, "'%s' has %zu bytes; at most %d are taken",
                           field, bytes, SCHEMA_BYTES_MAX);
    (void)snprintf(field, sizeof field, "%.*sparameters.", PATH_BYTES, path);
    r = json_get_string(schema, field, "type", &type, &bytes, &draft->fault);
    if (r < 0)
        return r;
    if (r > 0 && strcmp(type, "object") != 0) {
        (void)snprintf(field, sizeof field, "%.*sparameters.type", PATH_BYTES, path);
        return draft_fault(draft, E_INVALID, field, "'%s' must be \"object\", not \"%.40s\"", field,
                           type);
    }
    r = json_get_object(schema, field, "properties", &properties, &draft->fault);
    return r < 0 ? r : 0;
}

static int check_function(struct draft *draft, const json_t *function, const char *path)
{
    const char *name = NULL, *description = NULL;
    char field[FIELD_BYTES];
    size_t bytes = 0;
    bool strict = false;
    int r = json_get_string(function, path, "name", &name, &bytes, &draft->fault);

    (void)snprintf(field, sizeof field, "%.*sname", PATH_BYTES, path);
    if (r == 0)
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    if (r > 0 && !is_name(name, bytes))
        return draft_fault(draft, E_INVALID, field,
                           "'%s' must be 1 to %d letters, digits, '_', '-' and '.'", field,
                           NAME_BYTES_MAX);
    if (r > 0)
        r = json_get_string(function, path, "description", &description, &bytes, &draft->fault);
    if (r >= 0)
        r = json_get_bool(function, path, "strict", &strict, &draft->fault);
    if (r < 0)
        return r;
    draft->strict_tools = draft->strict_tools || strict;
    return check_schema(draft, function, path);
}

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static int check_tool(struct draft *draft, const json_t *tools, size_t index)
{
    const json_t *tool = json_array_get(tools, index);
    const char *type = NULL;
    json_t *function = NULL;
    char path[PATH_BYTES], field[FIELD_BYTES];
    size_t bytes = 0;
    int r;

    (void)snprintf(path, sizeof path, "tools[%zu]", index);
    if (!json_is_object(tool))
        return draft_fault(draft, E_INVALID, path, "'%s' must be an object", path);
    (void)snprintf(path, sizeof path, "tools[%zu].", index);
    r = json_get_string(tool, path, "type", &type, &bytes, &draft->fault);
    if (r < 0)
        return r;
    if (r > 0 && strcmp(type, "function") != 0) {
        (void)snprintf(path, sizeof path, "tools[%zu].type", index);
        return draft_fault(draft, E_UNSUPPORTED, path, "'%s' is '%.40s'; known is 'function'", path,
                           type);
    }
    r = json_get_object(tool, path, "function", &function, &draft->fault);
    (void)snprintf(path, sizeof path, "tools[%zu].function%s", index, r > 0 ? "." : "");
    if (r == 0)
        return draft_fault(draft, E_INVALID, path, "'%s' is missing", path);
    if (r > 0)
        r = check_function(draft, function, path);
    for (size_t i = 0; r >= 0 && i < index; i++) {
        if (strcmp(tool_name(json_array_get(tools, i)), tool_name(tool)) != 0)
            continue;
        (void)snprintf(field, sizeof field, "tools[%zu].function.name", index);
        return draft_fault(draft, E_INVALID, field, "'%s' is '%s' a second time", field,
                           tool_name(tool));
    }
    return r < 0 ? r : 0;
}

static int read_list(struct draft *draft, const json_t **ret_tools)
{
    json_t *tools = NULL;
    int r = json_get_array(draft->body, "", "tools", &tools, &draft->fault);

    if (r < 0 || json_array_size(tools) == 0)
        return r < 0 ? r : 0;
    if (json_array_size(tools) > TOOLS_MAX)
        return draft_fault(draft, E_INVALID, "tools", "'tools' has %zu tools; at most %d are taken",
                           json_array_size(tools), TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        r = check_tool(draft, tools, i);
        if (r < 0)
            return r;
    }
    *ret_tools = tools;
    return 0;
}

/* --- for templates ---------------------------------------------------------------------------- */

/* Takes `value` over. True if it was missing. */
static bool fill(json_t *object, const char *key, json_t *value)
{
    const json_t *present = json_object_get(object, key);
    bool missing = !present || json_is_null(present);

    if (missing)
        (void)json_object_set(object, key, value);
    json_decref(value);
    return missing;
}

json_t *tools_completed(const json_t *tools)
{
    json_t *copy = json_deep_copy(tools);
    bool missing = false;

    for (size_t i = 0; i < json_array_size(copy); i++) {
        json_t *function = json_object_get(json_array_get(copy, i), "function");
        json_t *properties, *property;
        const char *name;

        missing |= fill(function, "description", json_string(""));
        missing |=
            fill(function, "parameters", json_pack("{s:s, s:{}}", "type", "object", "properties"));
        properties = json_object_get(json_object_get(function, "parameters"), "properties");
        json_object_foreach(properties, name, property)
        {
            if (json_is_object(property))
                missing |= fill(property, "description", json_string(""));
        }
    }
    if (!missing) {
        json_decref(copy);
        copy = NULL;
    }
    return copy;
}

/* --- the choice ------------------------------------------------------------------------------- */

static int read_named(struct draft *draft, const json_t *tools, const json_t *choice,
                      const char **ret_name)
{
    const char *type = NULL, *name = NULL;
    json_t *function = NULL;
    size_t bytes = 0;
    int r = json_get_string(choice, "tool_choice.", "type", &type, &bytes, &draft->fault);

    if (r > 0 && strcmp(type, "function") != 0)
        return draft_fault(draft, E_UNSUPPORTED, "tool_choice.type",
                           "'tool_choice.type' is '%.40s'; known is 'function'", type);
    if (r >= 0)
        r = json_get_object(choice, "tool_choice.", "function", &function, &draft->fault);
    if (r == 0)
        return draft_fault(draft, E_INVALID, "tool_choice.function",
                           "'tool_choice.function' is missing");
    if (r > 0)
        r = json_get_string(function, "tool_choice.function.", "name", &name, &bytes,
                            &draft->fault);
    if (r == 0)
        return draft_fault(draft, E_INVALID, "tool_choice.function.name",
                           "'tool_choice.function.name' is missing");
    for (size_t i = 0; r > 0 && i < json_array_size(tools); i++) {
        if (strcmp(tool_name(json_array_get(tools, i)), name) == 0) {
            *ret_name = name;
            return 0;
        }
    }
    return r < 0 ? r
                 : draft_fault(draft, E_INVALID, "tool_choice.function.name",
                               "'tool_choice.function.name' is '%.64s', which is none of 'tools'",
                               name);
}

static int read_choice(struct draft *draft, const json_t *tools)
{
    static const char *const words[] = {[TOOL_CHOICE_NONE] = "none",
                                        [TOOL_CHOICE_AUTO] = "auto",
                                        [TOOL_CHOICE_REQUIRED] = "required"};
    const json_t *choice = json_object_get(draft->body, "tool_choice");
    const char *word = json_string_value(choice);

    draft->tool_choice = tools ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    if (!choice || json_is_null(choice))
        return 0;
    for (unsigned i = 0; word && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            draft->tool_choice = (enum tool_choice)i;
            word = NULL;
        }
    }
    if (word || (!json_is_string(choice) && !json_is_object(choice)))
        return draft_fault(draft, E_INVALID, "tool_choice",
                           "'tool_choice' must be \"none\", \"auto\", \"required\" or an object "
                           "that names a function");
    if (!tools && (json_is_object(choice) || draft->tool_choice != TOOL_CHOICE_NONE))
        return draft_fault(draft, E_INVALID, "tool_choice", "'tool_choice' needs 'tools'");
    if (!json_is_object(choice))
        return 0;
    draft->tool_choice = TOOL_CHOICE_NAMED;
    return read_named(draft, tools, choice, &draft->tool_name);
}

int draft_read_tools(struct draft *draft)
{
    const struct openai_context *context = draft->context;
    const json_t *tools = NULL;
    int r = read_list(draft, &tools);

    if (r < 0)
        return r;
    r = read_choice(draft, tools);
    if (r < 0)
        return r;
    if (draft->tool_choice == TOOL_CHOICE_NONE)
        tools = NULL;
    if (tools && (!context->tool_format || !tool_format_calls(context->tool_format)))
        return draft_fault(draft, E_UNSUPPORTED, "tools",
                           "'tools': how this model writes calls is not known from its chat "
                           "template; start the server with --tool-parser");
    draft->tools = tools;
    if (tools || context->parse_always)
        draft->format = context->tool_format;
    return 0;
}
