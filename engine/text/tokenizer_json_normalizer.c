/* tokenizer_json_normalizer.c -- the "normalizer" of a tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/base64.h"
#include "engine/text/tokenizer_json.h"

static int add_form(const json_t *part, enum normalization form, struct normalizer *normalizer,
                    struct fault *fault)
{
    (void)part;
    return normalizer_add_form(normalizer, form, fault);
}

static int read_nfc(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    return add_form(part, FORM_C, normalizer, fault);
}

static int read_nfd(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    return add_form(part, FORM_D, normalizer, fault);
}

static int read_nfkc(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    return add_form(part, FORM_KC, normalizer, fault);
}

static int read_nfkd(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    return add_form(part, FORM_KD, normalizer, fault);
}

static int read_lowercase(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    (void)part;
    return normalizer_add_characters(normalizer, CHARACTERS_LOWERCASE, fault);
}

static int read_strip_accents(const json_t *part, struct normalizer *normalizer,
                              struct fault *fault)
{
    (void)part;
    return normalizer_add_characters(normalizer, CHARACTERS_NO_MARKS, fault);
}

static int read_strip(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    bool left = true, right = true;

    if (json_get_bool(part, "normalizer.", "strip_left", &left, fault) < 0 ||
        json_get_bool(part, "normalizer.", "strip_right", &right, fault) < 0)
        return E_INVALID;
    return normalizer_add_strip(normalizer, left, right, fault);
}

static int read_prepend(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    const json_t *text = json_object_get(part, "prepend");

    if (!json_is_string(text))
        return fault_set(fault, E_CORRUPT, "a Prepend normalizer has no 'prepend'");
    return normalizer_add_prepend(normalizer, json_string_value(text), json_string_length(text),
                                  fault);
}

static int read_replace(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    const json_t *content = json_object_get(part, "content");
    const char *pattern;
    size_t bytes;
    bool literal;

    if (!json_is_string(content) ||
        !tokenizer_json_pattern(json_object_get(part, "pattern"), &pattern, &bytes, &literal))
        return fault_set(fault, E_CORRUPT, "a Replace normalizer needs a pattern and its content");
    return normalizer_add_replace(normalizer, pattern, bytes, literal, json_string_value(content),
                                  json_string_length(content), fault);
}

static int read_bert(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    bool clean = true, apart = true, lowercase = true, strip;
    int r = 0, given;

    if (json_get_bool(part, "normalizer.", "clean_text", &clean, fault) < 0 ||
        json_get_bool(part, "normalizer.", "handle_chinese_chars", &apart, fault) < 0 ||
        json_get_bool(part, "normalizer.", "lowercase", &lowercase, fault) < 0)
        return E_INVALID;
    strip = lowercase;
    given = json_get_bool(part, "normalizer.", "strip_accents", &strip, fault);
    if (given < 0)
        return given;
    if (clean || apart)
        r = normalizer_add_characters(
            normalizer, (clean ? CHARACTERS_CLEAN : 0u) | (apart ? CHARACTERS_APART : 0u), fault);
    if (r == 0 && strip)
        r = normalizer_add_form(normalizer, FORM_D, fault);
    if (r == 0 && strip)
        r = normalizer_add_characters(normalizer, CHARACTERS_NO_NONSPACING_MARKS, fault);
    if (r == 0 && lowercase)
        r = normalizer_add_characters(normalizer, CHARACTERS_LOWERCASE, fault);
    return r;
}

static int read_precompiled(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    const json_t *text = json_object_get(part, "precompiled_charsmap");
    struct charsmap *map = NULL;
    struct buf bytes;
    int r;

    if (json_is_null(text) || !text)
        return 0;
    if (!json_is_string(text))
        return fault_set(fault, E_CORRUPT, "'precompiled_charsmap' is not text");
    if (json_string_length(text) == 0)
        return 0;
    buf_init(&bytes, json_string_length(text));
    r = base64_append(json_string_value(text), json_string_length(text), &bytes);
    if (r < 0)
        r = fault_set(fault, r == E_CORRUPT ? E_CORRUPT : E_MEMORY,
                      r == E_CORRUPT ? "'precompiled_charsmap' is not base64"
                                     : "out of memory for a map of characters");
    if (r == 0)
        r = charsmap_open(buf_string(&bytes), bytes.bytes, &map, fault);
    if (r == 0)
        r = normalizer_add_charsmap(normalizer, map, CHARSMAP_CLUSTERS, fault);
    buf_fini(&bytes);
    return r;
}

/* What it does is done where the vocabulary is read: its pieces are bytes. */
static int read_byte_level(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    (void)part;
    (void)normalizer;
    (void)fault;
    return 0;
}

static int read_sequence(const json_t *part, struct normalizer *normalizer, struct fault *fault)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(part, "normalizers"), i, one)
    {
        int r = tokenizer_json_normalizer(one, normalizer, fault);

        if (r < 0)
            return r;
    }
    return 0;
}

int tokenizer_json_normalizer(const json_t *part, struct normalizer *normalizer,
                              struct fault *fault)
{
    static const struct {
        const char *type;
        int (*read)(const json_t *part, struct normalizer *normalizer, struct fault *fault);
    } rows[] = {
        {"NFC", read_nfc},
        {"NFD", read_nfd},
        {"NFKC", read_nfkc},
        {"NFKD", read_nfkd},
        {"Lowercase", read_lowercase},
        {"StripAccents", read_strip_accents},
        {"Strip", read_strip},
        {"Prepend", read_prepend},
        {"Replace", read_replace},
        {"BertNormalizer", read_bert},
        {"Precompiled", read_precompiled},
        {"ByteLevel", read_byte_level},
        {"Sequence", read_sequence},
    };
    const char *type = tokenizer_json_type(part);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].read(part, normalizer, fault);
    return tokenizer_json_unknown("normalizer", type, fault);
}
