/* tokenizer_json_post.c -- the "post_processor" of a tokenizer.json: which tokens go before and
 * after a text. */
#include <string.h>

#include "engine/text/tokenizer_json.h"

static int add_id(const struct tokenizer *tokenizer, struct token_affix *affix, const json_t *value,
                  struct fault *fault)
{
    int64_t id;

    if (!json_integral(value, &id) || id < 0 || id >= tokenizer->vocabulary.count)
        return fault_set(fault, E_CORRUPT, "the post-processor names a token that is none");
    if (affix->count == TOKENIZER_AFFIX_MAX)
        return fault_set(fault, E_UNSUPPORTED, "the post-processor adds more than %d tokens",
                         TOKENIZER_AFFIX_MAX);
    affix->ids[affix->count++] = (int32_t)id;
    return 0;
}

/* "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...] */
static int read_template(const json_t *part, struct tokenizer *tokenizer, struct fault *fault)
{
    const json_t *names = json_object_get(part, "special_tokens"), *one, *id;
    struct token_affix *affix = &tokenizer->before;
    size_t i, j;

    json_array_foreach(json_object_get(part, "single"), i, one)
    {
        const json_t *special = json_object_get(one, "SpecialToken");
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids;

        if (json_object_get(one, "Sequence")) {
            affix = &tokenizer->after;
            continue;
        }
        ids = name ? json_object_get(json_object_get(names, name), "ids") : NULL;
        if (!json_is_array(ids))
            return fault_set(fault, E_CORRUPT, "the post-processor's template is not complete");
        json_array_foreach(ids, j, id)
        {
            int r = add_id(tokenizer, affix, id, fault);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* "cls": ["[CLS]", 101], "sep": ["[SEP]", 102] */
static int read_bert(const json_t *part, struct tokenizer *tokenizer, struct fault *fault)
{
    int r = add_id(tokenizer, &tokenizer->before, json_array_get(json_object_get(part, "cls"), 1),
                   fault);

    return r < 0 ? r
                 : add_id(tokenizer, &tokenizer->after,
                          json_array_get(json_object_get(part, "sep"), 1), fault);
}

static int read_sequence(const json_t *part, struct tokenizer *tokenizer, struct fault *fault)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(part, "processors"), i, one)
    {
        int r = tokenizer_json_post(one, tokenizer, fault);

        if (r < 0)
            return r;
    }
    return 0;
}

int tokenizer_json_post(const json_t *part, struct tokenizer *tokenizer, struct fault *fault)
{
    const char *type = tokenizer_json_type(part);

    if (strcmp(type, "ByteLevel") == 0) /* trims offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(part, tokenizer, fault);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_bert(part, tokenizer, fault);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(part, tokenizer, fault);
    return tokenizer_json_unknown("post-processor", type, fault);
}
