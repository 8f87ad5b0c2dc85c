/* openai_form.c -- the form that an answer's content must have, in all the ways that clients ask
 * for it:
 *
 *     "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {...}}}
 *     "response_format": {"type": "json_object"}             with "schema": llama.cpp's way
 *     "structured_outputs": {"regex": "[a-z]+"}              vLLM; so are guided_regex and the like
 *     "grammar": "root ::= ...", "json_schema": {...}        llama.cpp
 *     "regex", "ebnf"                                        SGLang
 *
 * Only one of them may be given. What is asked is read here and compiled in openai_constraint.c. */
#include <stdio.h>
#include <string.h>

#include "engine/text/constraint.h"
#include "engine/text/regex_grammar.h"
#include "server/openai_request.h"

enum { FORM_BYTES_MAX = 1 << 20, NAME_BYTES_MAX = 64, FIELD_BYTES = 64 };

static int missing(struct draft *draft, const char *field)
{
    return draft_fault(draft, E_INVALID, field, "'%s' is missing", field);
}

/* The field says what the answer must be; none before it may have. */
static int claim(struct draft *draft, enum answer_form_kind kind, const char *path, const char *key)
{
    struct answer_form *form = &draft->form;
    char field[FIELD_BYTES];

    (void)snprintf(field, sizeof field, "%s%s", path, key);
    if (form->kind != FORM_FREE)
        return draft_fault(draft, E_INVALID, field,
                           "'%s' and '%s' both say what the answer must be; give one of them",
                           form->field, field);
    form->kind = kind;
    memcpy(form->field, field, sizeof field);
    return 0;
}

/* --- one value -------------------------------------------------------------------------------- */

/* A schema is an object, true or false, or such a one as text. */
static int read_schema(struct draft *draft, const char *path, const char *key, const json_t *value)
{
    struct answer_form *form = &draft->form;
    int r = claim(draft, FORM_SCHEMA, path, key);

    if (r < 0)
        return r;
    form->value = value;
    if (json_is_string(value)) {
        struct fault why = {0};

        if (json_parse(json_string_value(value), json_string_length(value), &form->owned, &why) < 0)
            return draft_fault(draft, E_INVALID, form->field, "'%s' is no JSON: %s", form->field,
                               why.message);
        form->value = form->owned;
    }
    if (!json_is_object(form->value) && !json_is_boolean(form->value))
        return draft_fault(draft, E_INVALID, form->field, "'%s' must be a JSON schema, an object",
                           form->field);
    return 0;
}

/* An empty text asks for nothing. */
static int read_text(struct draft *draft, enum answer_form_kind kind, const char *path,
                     const char *key, const json_t *value)
{
    struct answer_form *form = &draft->form;
    int r;

    if (json_is_string(value) && json_string_length(value) == 0)
        return 0;
    r = claim(draft, kind, path, key);
    if (r == 0 && !json_is_string(value))
        return draft_fault(draft, E_INVALID, form->field, "'%s' must be a string", form->field);
    form->value = value;
    return r;
}

static int read_choices(struct draft *draft, const char *path, const char *key, const json_t *value)
{
    struct answer_form *form = &draft->form;
    const json_t *item;
    size_t i;
    int r = claim(draft, FORM_CHOICE, path, key);

    if (r < 0)
        return r;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return draft_fault(draft, E_INVALID, form->field, "'%s' must be an array of strings",
                           form->field);
    json_array_foreach(value, i, item)
    {
        if (!json_is_string(item)) {
            char field[FIELD_BYTES + 24];

            (void)snprintf(field, sizeof field, "%s[%zu]", form->field, i);
            return draft_fault(draft, E_INVALID, field, "'%s' must be a string", field);
        }
    }
    form->value = value;
    return 0;
}

static int read_object(struct draft *draft, const char *path, const char *key)
{
    draft->form.space = SCHEMA_SPACE_FREE; /* as models write it */
    return claim(draft, FORM_OBJECT, path, key);
}

struct form_key {
    const char *key;
    enum answer_form_kind kind;
};

/* The members of `object` that ask for a form. */
static int read_keys(struct draft *draft, const json_t *object, const char *path,
                     const struct form_key *keys, size_t count)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        const json_t *value = json_object_get(object, keys[i].key);

        if (!value || json_is_null(value))
            continue;
        if (keys[i].kind == FORM_SCHEMA)
            r = read_schema(draft, path, keys[i].key, value);
        else if (keys[i].kind == FORM_CHOICE)
            r = read_choices(draft, path, keys[i].key, value);
        else
            r = read_text(draft, keys[i].kind, path, keys[i].key, value);
    }
    return r;
}

/* --- white space ------------------------------------------------------------------------------ */

/* 1, 0 or a fault. */
static int matches(struct constraint *constraint, const char *text, struct fault *fault)
{
    struct constraint_state *state = NULL;
    size_t taken;
    int r = constraint_state_open(constraint, &state, fault);

    if (r == 0)
        r = constraint_state_bytes(state, text, strlen(text), &taken, fault);
    if (r > 0)
        r = constraint_state_is_complete(state);
    constraint_state_close(state);
    return r;
}

enum { SPACE_EMPTY, SPACE_BLANK, SPACE_BREAK, SPACE_INDENT, SPACE_COUNT };

/* Which samples of white space the expression matches. */
static int try_spaces(const json_t *pattern, bool *ret_matches, struct fault *fault)
{
    static const char *const samples[SPACE_COUNT] = {
        [SPACE_EMPTY] = "",
        [SPACE_BLANK] = " ",
        [SPACE_BREAK] = "\n",
        [SPACE_INDENT] = "\n                                                                ",
    };
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    int r = regex_grammar_open(json_string_value(pattern), json_string_length(pattern), &grammar,
                               fault);

    if (r == 0)
        r = constraint_open(grammar, NULL, NULL, &constraint, fault);
    grammar_close(grammar);
    for (size_t i = 0; r >= 0 && i < SPACE_COUNT; i++) {
        r = matches(constraint, samples[i], fault);
        ret_matches[i] = r > 0;
    }
    constraint_close(constraint);
    return r < 0 ? r : 0;
}

/* The white space between a schema's parts, as an expression. We have three forms of it; one of
 * them has to fit. */
static int read_space_pattern(struct draft *draft, const char *field, const json_t *value)
{
    bool fits[SPACE_COUNT];
    struct fault why = {0};
    int r;

    if (!json_is_string(value))
        return draft_fault(draft, E_INVALID, field, "'%s' must be a string", field);
    r = try_spaces(value, fits, &why);
    if (r < 0)
        return draft_fault(draft, r == E_TOO_LARGE ? E_INVALID : r, field, "'%s': %s", field,
                           why.message);
    if (!fits[SPACE_EMPTY])
        return draft_fault(draft, E_UNSUPPORTED, field,
                           "'%s' must match the empty text: white space is never required here",
                           field);
    draft->form.space = !fits[SPACE_BLANK]                        ? SCHEMA_SPACE_NONE
                        : fits[SPACE_BREAK] && fits[SPACE_INDENT] ? SCHEMA_SPACE_FREE
                                                                  : SCHEMA_SPACE_PYTHON;
    return 0;
}

static int read_space(struct draft *draft, const json_t *object, const char *path,
                      const char *pattern)
{
    const json_t *value = json_object_get(object, pattern);
    char field[FIELD_BYTES], *asks = draft->form.space_field;
    bool none = false;
    int r = 0;

    (void)snprintf(field, sizeof field, "%s%s", path, pattern);
    if (value && !json_is_null(value)) {
        (void)snprintf(asks, sizeof draft->form.space_field, "%s", field);
        r = read_space_pattern(draft, field, value);
    }
    if (r == 0 && *path)
        r = json_get_bool(object, path, "disable_any_whitespace", &none, &draft->fault);
    if (none) {
        (void)snprintf(asks, sizeof draft->form.space_field, "%sdisable_any_whitespace", path);
        draft->form.space = SCHEMA_SPACE_NONE;
    }
    return r < 0 ? r : 0;
}

/* --- the fields ------------------------------------------------------------------------------- */

static int read_json_schema(struct draft *draft, const json_t *format)
{
    static const char path[] = "response_format.json_schema.";
    const json_t *schema = json_object_get(format, "schema");
    json_t *object = NULL;
    const char *name = NULL, *description = NULL;
    size_t bytes = 0;
    bool strict = false; /* the form is kept to either way */
    int r = json_get_object(format, "response_format.", "json_schema", &object, &draft->fault);

    if (r == 0 && schema)
        return read_schema(draft, "response_format.", "schema", schema);
    if (r == 0)
        return missing(draft, "response_format.json_schema");
    if (r > 0)
        r = json_get_string(object, path, "name", &name, &bytes, &draft->fault);
    if (r > 0 && (bytes == 0 || bytes > NAME_BYTES_MAX))
        return draft_fault(draft, E_INVALID, "response_format.json_schema.name",
                           "'response_format.json_schema.name' must have 1 to %d characters",
                           NAME_BYTES_MAX);
    if (r >= 0)
        r = json_get_string(object, path, "description", &description, &bytes, &draft->fault);
    if (r >= 0)
        r = json_get_bool(object, path, "strict", &strict, &draft->fault);
    if (r < 0)
        return r;
    schema = json_object_get(object, "schema");
    if (!schema || json_is_null(schema))
        return missing(draft, "response_format.json_schema.schema");
    return read_schema(draft, path, "schema", schema);
}

static int read_response_format(struct draft *draft)
{
    const json_t *schema;
    json_t *format = NULL;
    const char *type = NULL;
    size_t bytes;
    int r = json_get_object(draft->body, "", "response_format", &format, &draft->fault);

    if (r <= 0)
        return r;
    r = json_get_string(format, "response_format.", "type", &type, &bytes, &draft->fault);
    if (r == 0)
        return missing(draft, "response_format.type");
    if (r < 0)
        return r;
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_schema") == 0)
        return read_json_schema(draft, format);
    if (strcmp(type, "json_object") != 0)
        return draft_fault(draft, E_UNSUPPORTED, "response_format.type",
                           "'response_format.type' is '%.40s'; known are 'text', 'json_object' and "
                           "'json_schema'",
                           type);
    schema = json_object_get(format, "schema");
    if (schema && !json_is_null(schema))
        return read_schema(draft, "response_format.", "schema", schema);
    return read_object(draft, "", "response_format");
}

/* What is given under a name that we do not know may ask for anything. */
static int check_structured(struct draft *draft, json_t *object)
{
    static const char *const known[] = {
        "json", "regex", "choice", "grammar", "json_object", "whitespace_pattern",
        "disable_any_whitespace", "structural_tag", "disable_additional_properties",
        /* choose among the other server's engines */
        "backend", "disable_fallback", "_backend", "_backend_was_auto"};
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        bool is_known = json_is_null(value);
        char field[FIELD_BYTES];

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || strcmp(name, known[i]) == 0;
        (void)snprintf(field, sizeof field, "structured_outputs.%.32s", name);
        if (!is_known)
            return draft_fault(draft, E_UNSUPPORTED, field, "'%s' is not known to this server",
                               field);
    }
    return 0;
}

static int read_structured(struct draft *draft)
{
    static const char path[] = "structured_outputs.";
    static const struct form_key keys[] = {{"json", FORM_SCHEMA},
                                           {"regex", FORM_REGEX},
                                           {"choice", FORM_CHOICE},
                                           {"grammar", FORM_GRAMMAR}};
    static const char *const refused[] = {"structural_tag", "disable_additional_properties"};
    json_t *object = NULL;
    bool any_object = false;
    int r = json_get_object(draft->body, "", "structured_outputs", &object, &draft->fault);

    if (r <= 0 || json_object_size(object) == 0)
        return r < 0 ? r : 0;
    r = check_structured(draft, object);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *value = json_object_get(object, refused[i]);
        char field[FIELD_BYTES];

        (void)snprintf(field, sizeof field, "%s%s", path, refused[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return draft_fault(draft, E_UNSUPPORTED, field, "'%s' is not supported by this server",
                               field);
    }
    r = read_keys(draft, object, path, keys, sizeof keys / sizeof *keys);
    if (r == 0)
        r = json_get_bool(object, path, "json_object", &any_object, &draft->fault);
    if (r >= 0 && any_object)
        r = read_object(draft, path, "json_object");
    return r < 0 ? r : read_space(draft, object, path, "whitespace_pattern");
}

int draft_read_form(struct draft *draft)
{
    static const struct form_key keys[] = {
        {"guided_json", FORM_SCHEMA},   {"guided_regex", FORM_REGEX},
        {"guided_choice", FORM_CHOICE}, {"guided_grammar", FORM_GRAMMAR},
        {"json_schema", FORM_SCHEMA},   {"grammar", FORM_GRAMMAR},
        {"regex", FORM_REGEX},          {"ebnf", FORM_GRAMMAR},
    };
    const char *space = draft->form.space_field;
    int r = read_response_format(draft);

    if (r == 0)
        r = read_structured(draft);
    if (r == 0)
        r = read_keys(draft, draft->body, "", keys, sizeof keys / sizeof *keys);
    if (r == 0)
        r = read_space(draft, draft->body, "", "guided_whitespace_pattern");
    if (r == 0 && *space && draft->form.kind != FORM_OBJECT && draft->form.kind != FORM_SCHEMA)
        return draft_fault(draft, E_INVALID, space,
                           "'%s' tells the white space of JSON, and no JSON is asked for", space);
    return r;
}
