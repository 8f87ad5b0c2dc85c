/* openai_messages.c -- the messages of a chat request, checked, as a chat template takes them.
 *
 * They stay as they came but for what templates expect otherwise:
 *
 *     developer                          the role is system, unless the template knows developer
 *     content in parts                   one string, parts joined with line breaks, unless the
 *                                        template goes through parts
 *     content as a string                one part, if the template goes through parts only
 *     content null or left out           "", where that is allowed: an assistant's
 *     tool_calls[i].function.arguments   the object, when it came as JSON text of one
 *     reasoning                          also as reasoning_content
 *
 * Messages are copied as far as they change; what does not is shared with the body. */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"

enum { PATH_BYTES = 32, FIELD_BYTES = 64, CALLS_MAX = 256, JOINED_BYTES_MAX = 1 << 30 };

static const char *const roles[] = {"system", "user", "assistant", "developer", "tool", "function"};

/* `path` ends in a point, here and below: "messages[2].". */
static int read_role(struct draft *draft, const json_t *message, const char *path,
                     const struct jinja_traits *traits, const char **ret_role)
{
    const char *role = NULL;
    char field[FIELD_BYTES];
    size_t bytes = 0;
    int r = json_get_string(message, path, "role", &role, &bytes, &draft->fault);

    (void)snprintf(field, sizeof field, "%.*srole", PATH_BYTES, path);
    if (r < 0)
        return r;
    if (r == 0)
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i]) != 0)
            continue;
        *ret_role = roles[i];
        if (strcmp(role, "developer") == 0 && !traits->knows_developer)
            *ret_role = "system";
        return 0;
    }
    return draft_fault(draft, E_INVALID, field,
                       "'%s' is '%.40s'; known are system, developer, user, assistant, tool and "
                       "function",
                       field, role);
}

/* --- content ---------------------------------------------------------------------------------- */

/* Appends the text of one part of a message's content. `path`: "messages[0].content[0]." */
static int join_part(struct draft *draft, const json_t *part, const char *path, struct buf *joined)
{
    const char *type = NULL, *text = NULL, *missing = "type";
    char field[FIELD_BYTES];
    size_t bytes = 0;
    int r;

    if (!json_is_object(part)) {
        (void)snprintf(field, sizeof field, "%.*s", (int)strlen(path) - 1, path);
        return draft_fault(draft, E_INVALID, field, "'%s' must be an object", field);
    }
    r = json_get_string(part, path, "type", &type, &bytes, &draft->fault);
    if (r > 0 && strcmp(type, "text") == 0) {
        missing = "text";
        r = json_get_string(part, path, "text", &text, &bytes, &draft->fault);
        if (r > 0) {
            buf_put(joined, text, bytes);
            return 0;
        }
    } else if (r > 0) {
        (void)snprintf(field, sizeof field, "%.*stype", FIELD_BYTES - 8, path);
        return draft_fault(draft, E_UNSUPPORTED, field,
                           "'%s' is '%.40s', but this model reads parts of type 'text' only", field,
                           type);
    }
    if (r < 0)
        return r;
    (void)snprintf(field, sizeof field, "%.*s%s", FIELD_BYTES - 8, path, missing);
    return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
}

static int join_parts(struct draft *draft, const json_t *parts, const char *path,
                      json_t **ret_content)
{
    char field[FIELD_BYTES];
    struct buf joined;
    int r = 0;

    buf_init(&joined, JOINED_BYTES_MAX);
    for (size_t i = 0; r == 0 && i < json_array_size(parts); i++) {
        if (i > 0)
            buf_byte(&joined, '\n');
        (void)snprintf(field, sizeof field, "%.*scontent[%zu].", PATH_BYTES, path, i);
        r = join_part(draft, json_array_get(parts, i), field, &joined);
    }
    if (r == 0) {
        *ret_content = json_stringn_nocheck(buf_string(&joined), joined.bytes);
        if (!*ret_content || buf_failed(&joined))
            r = draft_out_of_memory(draft);
    }
    buf_fini(&joined);
    return r;
}

/* A text as the only part of an array. NULL: no memory. */
static json_t *one_part(json_t *content)
{
    json_t *part = json_object(), *parts = json_array();

    if (json_object_set_new(part, "type", json_string("text")) < 0 ||
        json_object_set(part, "text", content) < 0 || json_array_append(parts, part) < 0) {
        json_decref(parts);
        parts = NULL;
    }
    json_decref(part);
    return parts;
}

/* A new reference, also when it is the value that came. */
static int read_content(struct draft *draft, const json_t *message, const char *role,
                        const char *path, const struct jinja_traits *traits, json_t **ret_content)
{
    json_t *content = json_object_get(message, "content");
    char field[FIELD_BYTES];

    (void)snprintf(field, sizeof field, "%.*scontent", PATH_BYTES, path);
    if (json_is_array(content)) {
        int r = join_parts(draft, content, path, ret_content);

        if (r == 0 && traits->iterates_content) { /* they are all right, and stay apart */
            json_decref(*ret_content);
            *ret_content = json_incref(content);
        }
        return r;
    }
    if (content && !json_is_null(content) && !json_is_string(content))
        return draft_fault(draft, E_INVALID, field, "'%s' must be a string or an array of parts",
                           field);
    if (!json_is_string(content) && strcmp(role, "assistant") != 0)
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    if (!json_is_string(content))
        *ret_content = json_string("");
    else if (traits->iterates_content && !traits->asks_content_type)
        *ret_content = one_part(content);
    else
        *ret_content = json_incref(content);
    return *ret_content ? 0 : draft_out_of_memory(draft);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* `path`: "messages[2].tool_calls[0].function." Text that is no object stays text: what to do with
 * it is the template's matter. */
static int read_arguments(struct draft *draft, json_t *function, const char *path)
{
    const json_t *arguments = json_object_get(function, "arguments");
    char field[FIELD_BYTES];
    json_t *value = NULL;
    int r = 0;

    (void)snprintf(field, sizeof field, "%.*sarguments", FIELD_BYTES - 12, path);
    if (json_is_object(arguments))
        return 0;
    if (!arguments || json_is_null(arguments)) {
        value = json_object();
    } else if (!json_is_string(arguments)) {
        return draft_fault(draft, E_INVALID, field, "'%s' must be a string of JSON or an object",
                           field);
    } else if (json_string_length(arguments) == 0) {
        value = json_object();
    } else if (json_parse(json_string_value(arguments), json_string_length(arguments), &value,
                          NULL) < 0 ||
               !json_is_object(value)) {
        json_decref(value);
        return 0;
    }
    if (!value || json_object_set_new(function, "arguments", value) < 0)
        r = draft_out_of_memory(draft);
    return r;
}

/* A copy of one call, with its function's arguments as an object. */
static int read_call(struct draft *draft, const json_t *call, const char *path, json_t **ret_call)
{
    const char *text = NULL;
    char field[FIELD_BYTES];
    json_t *function = NULL, *copy;
    size_t bytes = 0;
    int r;

    (void)snprintf(field, sizeof field, "%.*s", (int)strlen(path) - 1, path);
    if (!json_is_object(call))
        return draft_fault(draft, E_INVALID, field, "'%s' must be an object", field);
    r = json_get_string(call, path, "id", &text, &bytes, &draft->fault);
    if (r >= 0)
        r = json_get_string(call, path, "type", &text, &bytes, &draft->fault);
    if (r >= 0)
        r = json_get_object(call, path, "function", &function, &draft->fault);
    if (r == 0)
        return draft_fault(draft, E_INVALID, field, "'%sfunction' is missing", path);
    (void)snprintf(field, sizeof field, "%.*sfunction.", FIELD_BYTES - 24, path);
    if (r > 0)
        r = json_get_string(function, field, "name", &text, &bytes, &draft->fault);
    if (r == 0 || (r > 0 && bytes == 0)) {
        (void)snprintf(field, sizeof field, "%.*sfunction.name", FIELD_BYTES - 24, path);
        return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
    }
    if (r < 0)
        return r;
    copy = json_copy((json_t *)call);
    function = json_copy(function);
    if (json_object_set_new(copy, "function", function) < 0)
        r = draft_out_of_memory(draft);
    else
        r = read_arguments(draft, function, field);
    if (r < 0)
        json_decref(copy);
    else
        *ret_call = copy;
    return r;
}

static int read_calls(struct draft *draft, json_t *message, const char *path)
{
    json_t *calls = NULL, *copies, *copy = NULL;
    char field[FIELD_BYTES];
    char one[FIELD_BYTES + PATH_BYTES];
    int r = json_get_array(message, path, "tool_calls", &calls, &draft->fault);

    if (r < 0)
        return r;
    if (json_array_size(calls) == 0) { /* as good as none, which templates ask for */
        (void)json_object_del(message, "tool_calls");
        return 0;
    }
    (void)snprintf(field, sizeof field, "%.*stool_calls", PATH_BYTES, path);
    if (json_array_size(calls) > CALLS_MAX)
        return draft_fault(draft, E_INVALID, field, "'%s' has %zu calls; at most %d are taken",
                           field, json_array_size(calls), CALLS_MAX);
    copies = json_array();
    for (size_t i = 0; r >= 0 && i < json_array_size(calls); i++) {
        (void)snprintf(one, sizeof one, "%s[%zu].", field, i);
        r = read_call(draft, json_array_get(calls, i), one, &copy);
        if (r == 0 && json_array_append_new(copies, copy) < 0)
            r = draft_out_of_memory(draft);
    }
    if (r >= 0 && json_object_set(message, "tool_calls", copies) < 0)
        r = draft_out_of_memory(draft);
    json_decref(copies);
    return r < 0 ? r : 0;
}

/* What was called is part of the conversation, and this older form of it no template knows. */
static int refuse_function_call(struct draft *draft, const json_t *message, const char *path)
{
    const json_t *call = json_object_get(message, "function_call");
    char field[FIELD_BYTES];

    if (!call || json_is_null(call))
        return 0;
    (void)snprintf(field, sizeof field, "%.*sfunction_call", PATH_BYTES, path);
    return draft_fault(draft, E_UNSUPPORTED, field,
                       "'%s' is not supported by this server: use 'tool_calls'", field);
}

/* --- messages --------------------------------------------------------------------------------- */

/* Members that templates print; a value of another kind would be told the model as it is. */
static int check_texts(struct draft *draft, const json_t *message, const char *path)
{
    static const char *const names[] = {"name", "tool_call_id", "refusal", "reasoning",
                                        "reasoning_content"};
    const char *text = NULL;
    size_t bytes = 0;
    int r = 0;

    for (size_t i = 0; r >= 0 && i < sizeof names / sizeof *names; i++)
        r = json_get_string(message, path, names[i], &text, &bytes, &draft->fault);
    return r < 0 ? r : 0;
}

static int read_reasoning(struct draft *draft, json_t *message, const char *path)
{
    const char *text = NULL;
    size_t bytes = 0;
    int r = json_get_string(message, path, "reasoning_content", &text, &bytes, &draft->fault);

    if (r != 0)
        return r < 0 ? r : 0;
    r = json_get_string(message, path, "reasoning", &text, &bytes, &draft->fault);
    if (r > 0 &&
        json_object_set(message, "reasoning_content", json_object_get(message, "reasoning")) < 0)
        return draft_out_of_memory(draft);
    return r < 0 ? r : 0;
}

static int read_message(struct draft *draft, const json_t *message, size_t index,
                        const struct jinja_traits *traits, json_t **ret_message)
{
    json_t *copy, *content = NULL;
    const char *role = NULL;
    char path[PATH_BYTES];
    int r;

    (void)snprintf(path, sizeof path, "messages[%zu]", index);
    if (!json_is_object(message))
        return draft_fault(draft, E_INVALID, path, "'%s' must be an object", path);
    (void)snprintf(path, sizeof path, "messages[%zu].", index);
    r = refuse_function_call(draft, message, path);
    if (r == 0)
        r = read_role(draft, message, path, traits, &role);
    if (r == 0)
        r = check_texts(draft, message, path);
    if (r == 0)
        r = read_content(draft, message, role, path, traits, &content);
    if (r < 0)
        return r;
    copy = json_copy((json_t *)message);
    if (json_object_set_new(copy, "content", content) < 0 ||
        json_object_set_new(copy, "role", json_string(role)) < 0)
        r = draft_out_of_memory(draft);
    if (r == 0)
        r = read_calls(draft, copy, path);
    if (r == 0)
        r = read_reasoning(draft, copy, path);
    if (r < 0)
        json_decref(copy);
    else
        *ret_message = copy;
    return r;
}

int draft_read_messages(struct draft *draft, json_t **ret_messages)
{
    json_t *list = NULL, *messages, *message = NULL;
    struct jinja_traits traits;
    int r = json_get_array(draft->body, "", "messages", &list, &draft->fault);

    if (r < 0)
        return r;
    if (json_array_size(list) == 0)
        return draft_fault(draft, E_INVALID, "messages", "'messages' %s",
                           r ? "is empty: at least one message is needed" : "is missing");
    chat_template_traits(draft->context->chat_template, draft->tools != NULL, &traits);
    messages = json_array();
    for (size_t i = 0; r >= 0 && i < json_array_size(list); i++) {
        r = read_message(draft, json_array_get(list, i), i, &traits, &message);
        if (r == 0 && json_array_append_new(messages, message) < 0)
            r = draft_out_of_memory(draft);
    }
    if (r < 0) {
        json_decref(messages);
        return r;
    }
    *ret_messages = messages;
    return 0;
}
