/* pretokenizer_gguf.c -- the pre-tokenizers that GGUF names (tokenizer.ggml.pre), one row each.
 *
 * The patterns are those that llama.cpp's names stand for. A last alternative such as \\s+ that
 * only takes what is left over is not needed: what lies between matches is a piece too. */
#include <string.h>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer_internal.h"

enum { STAGES_MAX = 6 };

#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* Llama 3 and Qwen differ in how many digits stay together. */
#define WORDS(digits)                                    \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)"

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
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

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

int pretokenizer_open_gguf(struct gguf_string name, struct pretokenizer **ret_pretokenizer,
                           struct pretokenizer_traits *ret_traits, struct fault *fault)
{
    struct pretokenizer *pretokenizer = NULL;
    const struct row *row = NULL;
    int r;

    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == name.bytes && memcmp(rows[i].name, name.text, name.bytes) == 0)
            row = &rows[i];
    if (!row)
        return unknown_name(name, fault);
    r = pretokenizer_open(&pretokenizer, fault);
    for (size_t i = 0; i < STAGES_MAX && row->stages[i] && r == 0; i++)
        r = pretokenizer_add_split(
            pretokenizer,
            &(struct split_rule){.pattern = row->stages[i], .bytes = strlen(row->stages[i])},
            fault);
    if (r < 0) {
        pretokenizer_close(pretokenizer);
        return r;
    }
    *ret_pretokenizer = pretokenizer;
    *ret_traits = row->traits;
    return 0;
}
