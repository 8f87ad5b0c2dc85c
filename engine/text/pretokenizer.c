/* pretokenizer.c -- see pretokenizer.h. The patterns are the published ones, rewritten in two ways.
 *
 * \s is spelled out as Unicode's White_Space: PCRE2's own has U+180E besides. A last
 * alternative such as \s+ that only takes what is left over is not needed: what lies between
 * matches is a piece too. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretokenizer.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

enum { STAGES_MAX = 5, MATCH_LIMIT = 10 * 1000 * 1000, HEAP_LIMIT_KIB = 64 * 1024 };

#define SPACE                                                                                   \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define S    "[" SPACE "]"
#define NOTS "[^" SPACE "]"

#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" S "+(?!" NOTS ")"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* Llama 3 and Qwen differ in how many digits stay together. */
#define WORDS(digits)                                                  \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE \
                "\\p{L}\\p{N}]+[\\r\\n]*|" S "*[\\r\\n]+|" S "+(?!" NOTS ")"

static const struct row {
    const char *name;
    struct pretokenizer_traits traits;
    const char *stages[STAGES_MAX];
} rows[] = {
    {"default", {0}, {GPT2}},
    {"gpt-2", {0}, {GPT2}},
    {"smollm", {0}, {"\\p{N}", GPT2}},
    {"qwen2", {.nfc = true}, {WORDS("\\p{N}")}},
    {"llama-bpe", {.whole_pieces = true, .adds_bos = true}, {WORDS("\\p{N}{1,3}")}},
    {"falcon", {0}, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-coder",
     {0},
     {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

struct pretokenizer {
    const struct row *row;
    size_t stage_count;
    pcre2_code *stages[STAGES_MAX];
    pcre2_match_context *limits;
};

static int unknown_name(struct gguf_string name, struct fault *fault)
{
    char printable[64], list[256] = "";
    size_t used = 0;

    gguf_string_print(name, printable, sizeof printable);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t bytes = strlen(rows[i].name);

        if (used + bytes + 3 > sizeof list)
            break;
        if (i > 0) {
            memcpy(list + used, ", ", 2);
            used += 2;
        }
        memcpy(list + used, rows[i].name, bytes + 1);
        used += bytes;
    }
    return fault_set(fault, E_UNSUPPORTED,
                     "pre-tokenizer '%s' is not supported by this version (it knows %s)", printable,
                     list);
}

static int compile(struct pretokenizer *pretokenizer, struct fault *fault)
{
    pretokenizer->limits = pcre2_match_context_create(NULL);
    if (!pretokenizer->limits)
        return fault_set(fault, E_MEMORY, "out of memory for a pre-tokenizer");
    pcre2_set_match_limit(pretokenizer->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(pretokenizer->limits, HEAP_LIMIT_KIB);
    for (size_t i = 0; i < STAGES_MAX && pretokenizer->row->stages[i]; i++) {
        const char *pattern = pretokenizer->row->stages[i];
        PCRE2_SIZE offset;
        int error;

        pretokenizer->stages[i] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                                PCRE2_UTF | PCRE2_UCP, &error, &offset, NULL);
        if (!pretokenizer->stages[i])
            return fault_set(fault, E_UNSUPPORTED,
                             "the PCRE2 library here cannot compile the pattern of '%s' (error %d)",
                             pretokenizer->row->name, error);
        /* Where machine code may not be made, matching interprets: the same, slower. */
        (void)pcre2_jit_compile(pretokenizer->stages[i], PCRE2_JIT_COMPLETE);
        pretokenizer->stage_count++;
    }
    return 0;
}

int pretokenizer_open(struct gguf_string name, struct pretokenizer **ret_pretokenizer,
                      struct fault *fault)
{
    struct pretokenizer *pretokenizer;
    const struct row *row = NULL;
    int r;

    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == name.bytes && memcmp(rows[i].name, name.text, name.bytes) == 0)
            row = &rows[i];
    if (!row)
        return unknown_name(name, fault);
    pretokenizer = calloc(1, sizeof *pretokenizer);
    if (!pretokenizer)
        return fault_set(fault, E_MEMORY, "out of memory for a pre-tokenizer");
    pretokenizer->row = row;
    r = compile(pretokenizer, fault);
    if (r < 0) {
        pretokenizer_close(pretokenizer);
        return r;
    }
    *ret_pretokenizer = pretokenizer;
    return 0;
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (size_t i = 0; i < STAGES_MAX; i++)
        pcre2_code_free(pretokenizer->stages[i]);
    pcre2_match_context_free(pretokenizer->limits);
    free(pretokenizer);
}

const struct pretokenizer_traits *pretokenizer_traits(const struct pretokenizer *pretokenizer)
{
    return &pretokenizer->row->traits;
}

/* One call of pretokenizer_split(). */
struct split {
    const struct pretokenizer *pretokenizer;
    pcre2_match_data *matches[STAGES_MAX];
    int (*piece)(void *data, const char *text, size_t bytes);
    void *data;
    struct fault *fault;
};

/* Where the next match of a stage lies. 1, or 0 when there is none, or a negative code. */
static int next_match(struct split *split, size_t stage, const char *text, size_t bytes,
                      size_t from, size_t *ret_start, size_t *ret_end)
{
    const PCRE2_SIZE *span;
    int r;

    r = pcre2_match(split->pretokenizer->stages[stage], (PCRE2_SPTR)text, bytes, from,
                    PCRE2_NO_UTF_CHECK, split->matches[stage], split->pretokenizer->limits);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r == PCRE2_ERROR_NOMEMORY)
        return fault_set(split->fault, E_MEMORY, "out of memory while splitting a text");
    if (r < 0)
        return fault_set(split->fault, E_TOO_LARGE,
                         "the text takes too long to split into words (PCRE2 error %d)", r);
    span = pcre2_get_ovector_pointer(split->matches[stage]);
    *ret_start = span[0];
    *ret_end = span[1];
    /* No pattern of the table matches nothing; if one did we would stand still. */
    return span[1] > span[0] ? 1 : 0;
}

static int split_stage(struct split *split, size_t stage, const char *text, size_t bytes)
{
    size_t at = 0;

    if (stage == split->pretokenizer->stage_count)
        return split->piece(split->data, text, bytes);
    while (at < bytes) {
        size_t start = bytes, end = bytes;
        int r = next_match(split, stage, text, bytes, at, &start, &end);

        if (r >= 0 && start > at)
            r = split_stage(split, stage + 1, text + at, start - at);
        if (r >= 0 && end > start)
            r = split_stage(split, stage + 1, text + start, end - start);
        if (r < 0)
            return r;
        at = end;
    }
    return 0;
}

int pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t bytes,
                       int (*piece)(void *data, const char *text, size_t bytes), void *data,
                       struct fault *fault)
{
    struct split split = {
        .pretokenizer = pretokenizer, .piece = piece, .data = data, .fault = fault};
    int r = 0;

    for (size_t i = 0; i < pretokenizer->stage_count; i++) {
        split.matches[i] = pcre2_match_data_create(1, NULL);
        if (!split.matches[i])
            r = fault_set(fault, E_MEMORY, "out of memory while splitting a text");
    }
    if (r == 0)
        r = split_stage(&split, 0, text, bytes);
    for (size_t i = 0; i < pretokenizer->stage_count; i++)
        pcre2_match_data_free(split.matches[i]);
    return r;
}
