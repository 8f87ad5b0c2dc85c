/* tokenizer_json_pretokenizer.c -- the "pre_tokenizer" of a tokenizer.json. Every kind comes down
 * to the three stages of pretokenizer.h. */
#include <string.h>

#include "engine/text/tokenizer_json.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
/* Rust's \w */
#define WORD        "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define PUNCTUATION "[\\p{P}$+<=>^`|~]"

static int add_split(struct pretokenizer *pretokenizer, const char *pattern,
                     enum split_behaviour behaviour, struct fault *fault)
{
    const struct split_rule rule = {
        .pattern = pattern, .bytes = strlen(pattern), .behaviour = behaviour};

    return pretokenizer_add_split(pretokenizer, &rule, fault);
}

static int read_behaviour(const json_t *part, const char *fallback,
                          enum split_behaviour *ret_behaviour, struct fault *fault)
{
    static const struct {
        const char *name;
        enum split_behaviour behaviour;
    } rows[] = {
        {"Isolated", SPLIT_ISOLATED},
        {"Removed", SPLIT_REMOVED},
        {"MergedWithPrevious", SPLIT_TO_PREVIOUS},
        {"MergedWithNext", SPLIT_TO_NEXT},
        {"Contiguous", SPLIT_CONTIGUOUS},
    };
    const char *name = json_string_value(json_object_get(part, "behavior"));

    if (!name)
        name = fallback;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *ret_behaviour = rows[i].behaviour;
            return 0;
        }
    }
    return tokenizer_json_unknown("behavior of a pre-tokenizer", name, fault);
}

static int read_split(const json_t *part, struct pretokenizer *pretokenizer, struct fault *fault)
{
    struct split_rule rule = {0};
    int r;

    if (!tokenizer_json_pattern(json_object_get(part, "pattern"), &rule.pattern, &rule.bytes,
                                &rule.literal))
        return fault_set(fault, E_CORRUPT, "a Split pre-tokenizer has no pattern");
    r = read_behaviour(part, "Isolated", &rule.behaviour, fault);
    if (r == 0)
        r = json_get_bool(part, "pre_tokenizer.", "invert", &rule.invert, fault);
    return r < 0 ? r : pretokenizer_add_split(pretokenizer, &rule, fault);
}

static int read_byte_level(const json_t *part, struct pretokenizer *pretokenizer,
                           struct fault *fault)
{
    bool prefix = true, regex = true;
    int r = 0;

    if (json_get_bool(part, "pre_tokenizer.", "add_prefix_space", &prefix, fault) < 0 ||
        json_get_bool(part, "pre_tokenizer.", "use_regex", &regex, fault) < 0)
        return E_INVALID;
    if (prefix)
        r = pretokenizer_add_prepend(pretokenizer, " ", PREPEND_ALWAYS, fault);
    if (r == 0 && regex)
        r = add_split(pretokenizer, GPT2, SPLIT_ISOLATED, fault);
    return r;
}

static int read_digits(const json_t *part, struct pretokenizer *pretokenizer, struct fault *fault)
{
    bool individual = false;

    if (json_get_bool(part, "pre_tokenizer.", "individual_digits", &individual, fault) < 0)
        return E_INVALID;
    return add_split(pretokenizer, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, fault);
}

static int read_whitespace(const json_t *part, struct pretokenizer *pretokenizer,
                           struct fault *fault)
{
    static const char words[] = "[" WORD "]+|[^" WORD "\\s]+";
    const struct split_rule rule = {
        .pattern = words, .bytes = strlen(words), .behaviour = SPLIT_REMOVED, .invert = true};

    (void)part;
    return pretokenizer_add_split(pretokenizer, &rule, fault);
}

static int read_whitespace_split(const json_t *part, struct pretokenizer *pretokenizer,
                                 struct fault *fault)
{
    (void)part;
    return add_split(pretokenizer, "\\s+", SPLIT_REMOVED, fault);
}

static int read_punctuation(const json_t *part, struct pretokenizer *pretokenizer,
                            struct fault *fault)
{
    enum split_behaviour behaviour = SPLIT_ISOLATED;
    int r = read_behaviour(part, "Isolated", &behaviour, fault);

    return r < 0 ? r : add_split(pretokenizer, PUNCTUATION, behaviour, fault);
}

static int read_bert(const json_t *part, struct pretokenizer *pretokenizer, struct fault *fault)
{
    int r = add_split(pretokenizer, "\\s+", SPLIT_REMOVED, fault);

    (void)part;
    return r < 0 ? r : add_split(pretokenizer, PUNCTUATION, SPLIT_ISOLATED, fault);
}

static int read_delimiter(const json_t *part, struct pretokenizer *pretokenizer,
                          struct fault *fault)
{
    const json_t *delimiter = json_object_get(part, "delimiter");
    const struct split_rule rule = {.pattern = json_string_value(delimiter),
                                    .bytes = json_string_length(delimiter),
                                    .literal = true,
                                    .behaviour = SPLIT_REMOVED};

    if (!rule.pattern)
        return fault_set(fault, E_CORRUPT, "a CharDelimiterSplit has no delimiter");
    return pretokenizer_add_split(pretokenizer, &rule, fault);
}

static int read_metaspace(const json_t *part, struct pretokenizer *pretokenizer,
                          struct fault *fault)
{
    const json_t *replacement = json_object_get(part, "replacement");
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));
    const char *to = json_is_string(replacement) ? json_string_value(replacement) : "\xe2\x96\x81";
    struct split_rule rule = {
        .pattern = to, .bytes = strlen(to), .literal = true, .behaviour = SPLIT_TO_NEXT};
    bool prefix = true, split = true;
    int r;

    /* Files older than prepend_scheme say add_prefix_space. */
    if (json_get_bool(part, "pre_tokenizer.", "add_prefix_space", &prefix, fault) < 0 ||
        json_get_bool(part, "pre_tokenizer.", "split", &split, fault) < 0)
        return E_INVALID;
    if (!scheme)
        scheme = prefix ? "always" : "never";
    r = pretokenizer_add_replace(pretokenizer, ' ', to, fault);
    if (r == 0 && strcmp(scheme, "never") != 0)
        r = pretokenizer_add_prepend(
            pretokenizer, to, strcmp(scheme, "first") == 0 ? PREPEND_FIRST : PREPEND_ALWAYS, fault);
    if (r == 0 && split)
        r = pretokenizer_add_split(pretokenizer, &rule, fault);
    return r;
}

static int read_sequence(const json_t *part, struct pretokenizer *pretokenizer, struct fault *fault)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(part, "pretokenizers"), i, one)
    {
        int r = tokenizer_json_pretokenizer(one, pretokenizer, fault);

        if (r < 0)
            return r;
    }
    return 0;
}

int tokenizer_json_pretokenizer(const json_t *part, struct pretokenizer *pretokenizer,
                                struct fault *fault)
{
    static const struct {
        const char *type;
        int (*read)(const json_t *part, struct pretokenizer *pretokenizer, struct fault *fault);
    } rows[] = {
        {"Split", read_split},
        {"ByteLevel", read_byte_level},
        {"Digits", read_digits},
        {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
        {"Punctuation", read_punctuation},
        {"BertPreTokenizer", read_bert},
        {"CharDelimiterSplit", read_delimiter},
        {"Metaspace", read_metaspace},
        {"Sequence", read_sequence},
    };
    const char *type = tokenizer_json_type(part);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].read(part, pretokenizer, fault);
    return tokenizer_json_unknown("pre-tokenizer", type, fault);
}
