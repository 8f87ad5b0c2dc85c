/* tokenizer_tekken.c -- a tokenizer out of Mistral's tekken.json.
 *
 *     {"config": {"pattern", "default_vocab_size", "default_num_special_tokens", "version"},
 *      "vocab": [{"rank", "token_bytes": base64}, ...], "special_tokens": [{"rank", "token_str"}]}
 *
 * Ids are special tokens first, then ranks; more ranks may be listed than count. Files without
 * special_tokens have those that mistral-common knows by heart, and fillers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/base64.h"
#include "engine/text/tokenizer_files.h"
#include "engine/text/tokenizer_ranked.h"

enum { VOCABULARY_MAX = 1 << 22, SPECIALS_MAX = 1 << 16, FILLER_ROOM = 32, TOKEN_BYTES_MAX = 4096 };

static const char *const usual_specials[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
enum { USUAL_COUNT = sizeof usual_specials / sizeof *usual_specials };

struct sizes {
    int64_t vocabulary;
    int64_t specials;
};

static int read_sizes(const json_t *config, struct sizes *ret_sizes, struct fault *fault)
{
    int r = json_get_int(config, "config.", "default_vocab_size", 1, VOCABULARY_MAX,
                         &ret_sizes->vocabulary, fault);

    if (r > 0)
        r = json_get_int(config, "config.", "default_num_special_tokens", 0, SPECIALS_MAX,
                         &ret_sizes->specials, fault);
    if (r < 0)
        return r;
    if (r == 0 || ret_sizes->specials >= ret_sizes->vocabulary)
        return fault_set(fault, E_CORRUPT, "its config does not tell the size of the vocabulary");
    return 0;
}

static int read_tokens(const json_t *list, struct ranked *ranked, struct fault *fault)
{
    const json_t *one;
    size_t i;

    ranked->tokens = calloc(ranked->count, sizeof *ranked->tokens);
    if (!ranked->tokens)
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    json_array_foreach(list, i, one)
    {
        const json_t *text = json_object_get(one, "token_bytes");
        size_t start = ranked->bytes.bytes;
        int64_t rank;
        int r;

        if (!json_integral(json_object_get(one, "rank"), &rank) || rank < 0 ||
            !json_is_string(text))
            return fault_set(fault, E_CORRUPT, "token %zu of its vocabulary is none", i);
        if (rank >= ranked->count)
            continue;
        if (json_string_length(text) > TOKEN_BYTES_MAX)
            return fault_set(fault, E_CORRUPT, "token %zu of its vocabulary is too long", i);
        r = base64_append(json_string_value(text), json_string_length(text), &ranked->bytes);
        if (r < 0)
            return r == E_CORRUPT
                       ? fault_set(fault, r, "token %zu of its vocabulary is not base64", i)
                       : fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
        ranked->tokens[rank] =
            (struct ranked_token){(uint32_t)start, (uint32_t)(ranked->bytes.bytes - start), true};
    }
    return 0;
}

/* `fillers` has FILLER_ROOM bytes for each special token. */
static int read_specials(const json_t *list, struct ranked *ranked, char *fillers,
                         struct fault *fault)
{
    const json_t *one;
    size_t i;

    for (uint32_t id = 0; id < ranked->special_count; id++) {
        char *filler = fillers + (size_t)id * FILLER_ROOM;
        const char *text = filler;

        snprintf(filler, FILLER_ROOM, "<SPECIAL_%" PRIu32 ">", id);
        if (!json_is_array(list) && id < USUAL_COUNT)
            text = usual_specials[id];
        ranked->specials[id] = (struct special){
            .text = text, .bytes = strlen(text), .id = (int32_t)id, .control = true};
    }
    json_array_foreach(list, i, one)
    {
        const json_t *text = json_object_get(one, "token_str");
        int64_t rank;

        if (!json_integral(json_object_get(one, "rank"), &rank) || rank < 0 ||
            rank >= ranked->special_count || !json_is_string(text))
            return fault_set(fault, E_CORRUPT, "special token %zu is none", i);
        ranked->specials[rank].text = json_string_value(text);
        ranked->specials[rank].bytes = json_string_length(text);
        ranked->specials[rank].control = !json_is_false(json_object_get(one, "is_control"));
    }
    return 0;
}

static int make_tokenizer(struct tokenizer *tokenizer, const struct ranked *ranked,
                          struct fault *fault)
{
    int r = tokenizer_make_ranked(tokenizer, ranked, fault);

    if (r < 0)
        return r;
    tokenizer->reads_controls_as_text = true;
    tokenizer->bos = tokenizer_find(tokenizer, "<s>");
    tokenizer->eos = tokenizer_find(tokenizer, "</s>");
    if (tokenizer->bos >= 0)
        tokenizer->before.ids[tokenizer->before.count++] = tokenizer->bos;
    return 0;
}

int tokenizer_open_tekken(const json_t *tree, struct tokenizer **ret_tokenizer, struct fault *fault)
{
    const json_t *config = json_object_get(tree, "config");
    struct tokenizer *tokenizer = NULL;
    struct sizes sizes = {0};
    struct ranked ranked = {.pattern = json_string_value(json_object_get(config, "pattern"))};
    char *fillers = NULL;
    int r;

    if (!ranked.pattern || !json_is_array(json_object_get(tree, "vocab")))
        return fault_set(fault, E_CORRUPT, "it has no pattern or no vocabulary");
    r = read_sizes(config, &sizes, fault);
    if (r < 0)
        return r;
    buf_init(&ranked.bytes, INT32_MAX);
    ranked.first_id = ranked.special_count = (uint32_t)sizes.specials;
    ranked.count = (uint32_t)(sizes.vocabulary - sizes.specials);
    ranked.specials = calloc((size_t)ranked.special_count + 1, sizeof *ranked.specials);
    fillers = malloc(((size_t)ranked.special_count + 1) * FILLER_ROOM);
    if (!ranked.specials || !fillers)
        r = fault_set(fault, E_MEMORY, "out of memory for the special tokens");
    if (r == 0)
        r = read_tokens(json_object_get(tree, "vocab"), &ranked, fault);
    if (r == 0)
        r = read_specials(json_object_get(tree, "special_tokens"), &ranked, fillers, fault);
    if (r == 0)
        r = tokenizer_open_empty(&tokenizer, fault);
    if (r == 0)
        r = make_tokenizer(tokenizer, &ranked, fault);
    free(ranked.tokens);
    free(ranked.specials);
    buf_fini(&ranked.bytes);
    free(fillers);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}
