/* fuzz_tools.c -- libFuzzer target: any text through any tool parser.
 *
 *     [format] [flags] [seed of the cuts] [text ...]
 *
 * However the text is cut, the same is told; whole calls have an object as arguments; and where no
 * call and no reasoning was found, the text comes back as it was. Corpus:
 * tests/fuzz/corpus_tools. */
#include <stdint.h>
#include <stdlib.h>

#include "config/base/json.h"
#include "tests/lib/tool_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FLAG_NO_CALLS = 1, FLAG_REASONS = 2, FLAG_ENDS = 4, FLAG_TOOLS = 8, CUTS_MAX = 64 };

static const char *const names[] = {
    "llama3_json", "hermes",         "mistral", "deepseek_v3", "deepseek_v31", "glm45",
    "harmony",     "llama_pythonic", "granite", "functionary", "qwen3_coder",
};

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":[\"string\",\"null\"]},\"i\":{\"type\":"
    "\"integer\"},\"e\":{\"enum\":[\"a\",1]},\"o\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"
    "\"object\"}]}}}}}]";

static size_t random_cuts(uint8_t seed, size_t bytes, size_t *cuts)
{
    uint32_t state = seed * 2654435761u + 1;
    size_t count = 0, at = 0;

    while (count < CUTS_MAX && at < bytes) {
        state = state * 1664525u + 1013904223u;
        at += 1 + (state >> 16) % 13;
        if (at < bytes)
            cuts[count++] = at;
    }
    return count;
}

static bool has(const char *text, size_t bytes, const char *word)
{
    return memmem(text, bytes, word, strlen(word)) != NULL;
}

/* No call, no reasoning, no marker that is always one: nothing may have been lost. */
static void check_text(const struct told *told, const char *name,
                       const struct tool_options *options, const char *text, size_t bytes)
{
    if (told->whole > 0 || options->starts_in_reasoning || options->ends_given ||
        has(text, bytes, "<think>") || has(text, bytes, "[THINK]") ||
        strcmp(name, "harmony") == 0 || strcmp(name, "functionary") == 0)
        return;
    if (told->content.bytes != bytes || memcmp(buf_string(&told->content), text, bytes) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned flags = size > 1 ? data[1] : 0;
    const char *name = names[(size > 0 ? data[0] : 0) % (sizeof names / sizeof *names)];
    const char *text = size > 3 ? (const char *)data + 3 : "";
    size_t bytes = size > 3 ? size - 3 : 0, cuts[CUTS_MAX], cut_count;
    json_t *tools = flags & FLAG_TOOLS ? json_loads(tools_text, 0, NULL) : NULL;
    const struct tool_options options = {.calls = !(flags & FLAG_NO_CALLS),
                                         .starts_in_reasoning = flags & FLAG_REASONS,
                                         .ends_given = flags & FLAG_ENDS,
                                         .tools = tools};
    const struct tool_format *format = tool_format_find(name);
    struct told whole, single, cut;

    told_open(&whole);
    told_open(&single);
    told_open(&cut);
    cut_count = random_cuts(size > 2 ? data[2] : 0, bytes, cuts);
    told_run(&whole, format, &options, text, bytes, NULL, 0);
    told_run(&single, format, &options, text, bytes, NULL, 1);
    told_run(&cut, format, &options, text, bytes, cuts, cut_count);
    if (!told_same(&whole, &single) || !told_same(&whole, &cut) || whole.failed)
        abort();
    check_text(&whole, name, &options, text, bytes);
    told_close(&whole);
    told_close(&single);
    told_close(&cut);
    json_decref(tools);
    return 0;
}
