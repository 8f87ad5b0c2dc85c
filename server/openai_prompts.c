/* openai_prompts.c -- texts or token ids, one or several: the prompts of completions, the inputs of
 * embeddings. */
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"

enum { FIELD_BYTES = 64 };

static int read_text(struct draft *draft, uint32_t index, const char *field, const json_t *value)
{
    return draft_encode(draft, index, field, json_string_value(value), json_string_length(value),
                        draft->fields.add_special ? ENCODE_ADD_SPECIAL : 0);
}

static int read_ids(struct draft *draft, uint32_t index, const char *field, const json_t *list)
{
    size_t count = json_array_size(list);
    int r;

    draft->tokens.count = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t id = 0;

        r = draft_token_id(draft, field, i, json_array_get(list, i), &id);
        if (r < 0)
            return r;
        r = tokens_put(&draft->tokens, id);
        if (r == E_TOO_LARGE)
            return draft_tokens(draft, index, field, draft->tokens.ids, count);
        if (r < 0)
            return draft_out_of_memory(draft);
    }
    return draft_tokens(draft, index, field, draft->tokens.ids, count);
}

static int read_list(struct draft *draft, const char *key, const json_t *list)
{
    size_t count = json_array_size(list);
    bool texts = json_is_string(json_array_get(list, 0));
    char field[FIELD_BYTES];
    int r = draft_prompts(draft, count);

    for (size_t i = 0; r >= 0 && i < count; i++) {
        const json_t *item = json_array_get(list, i);

        (void)snprintf(field, sizeof field, "%s[%zu]", key, i);
        if (texts ? !json_is_string(item) : !json_is_array(item))
            return draft_fault(draft, E_INVALID, field, "'%s' must be %s, like the first one",
                               field, texts ? "a string" : "an array of token ids");
        r = texts ? read_text(draft, (uint32_t)i, field, item)
                  : read_ids(draft, (uint32_t)i, field, item);
    }
    return r;
}

int draft_read_prompts(struct draft *draft, const char *key)
{
    const json_t *prompt = json_object_get(draft->body, key);
    const json_t *first = json_array_get(prompt, 0);
    int r;

    if (!prompt || json_is_null(prompt))
        return draft_fault(draft, E_INVALID, key, "'%s' is missing", key);
    if (json_is_string(prompt) || json_is_number(first)) {
        r = draft_prompts(draft, 1);
        if (r < 0)
            return r;
        return json_is_string(prompt) ? read_text(draft, 0, key, prompt)
                                      : read_ids(draft, 0, key, prompt);
    }
    if (json_is_array(prompt) && !first)
        return draft_fault(draft, E_INVALID, key, "'%s' is empty", key);
    if (json_is_string(first) || json_is_array(first))
        return read_list(draft, key, prompt);
    return draft_fault(
        draft, E_INVALID, key,
        "'%s' must be a string, an array of strings, an array of token ids or an array of such "
        "arrays",
        key);
}
