/* pretokenizer_gguf.c -- the pre-tokenizers that GGUF names (tokenizer.ggml.pre), by llama.cpp's
 * names for them.
 *
 * The patterns are the makers' own, out of their tokenizer.json, where llama.cpp has rewritten them
 * for want of \p{Lu} or (?i:). A last alternative such as \s+ that only takes what is left over is
 * not needed: what lies between matches is a piece too.
 */
#include <string.h>

#include "engine/text/pretokenizer.h"
#include "engine/text/tokenizer_internal.h"

enum { STAGES_MAX = 6 };

#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES      "|\\s*[\\r\\n]+|\\s+(?!\\S)"
/* Llama 3's and Qwen's family: they differ in which letters and how many digits stay together. */
#define WORDS(letters, digits)                                \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits \
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
/* GPT-4o's family: words begin anew where lower case turns to upper case. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(before, upper, lower, behind) \
    before upper "*" lower "+" behind "|" before upper "+" lower "*" behind
#define NO_WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_WORDS(behind, digits) \
    CASES(NO_WORD, UPPER, LOWER, behind) "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
/* Kimi's: the same, but Chinese stands alone. */
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
/* DeepSeek's */
#define CHINESE_JAPANESE "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK_WORDS(punctuation)                                                      \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?" \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" punctuation
#define IDEOGRAPHS "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define BLOOM      " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define YOUTU                                                                                  \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}" \
    "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|"   \
    "[\\x{3105}-\\x{312f}]+|" CHINESE_JAPANESE
#define LINES "[^\\n]+|[\\n]+"
#define CASED                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"          \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"  \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"           \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"          \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"          \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"  \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"          \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"           \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"            \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"           \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"          \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"        \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"  \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_MARKS \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"

#define ASIAN                                                                              \
    "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}"         \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-"  \
    "\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}" \
    "\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}"
#define PUNCTUATION "[\\p{P}$+<=>^~|`]+"
#define BAILING                                                                                   \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*" \
    "|\\s*[\\r\\n]|\\s+(?!\\S)"

static const struct row {
    const char *names; /* a blank before and behind each */
    struct pretokenizer_traits traits;
    const char *stages[STAGES_MAX];
} rows[] = {
    {" default ", {0}, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt "
     "olmo jais trillion granite-docling exaone4 ",
     {0},
     {GPT2}},
    {" jina-v1-en jina-v2-code roberta-bpe ", {.adds_sep = true}, {GPT2}},
    {" smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ",
     {0},
     {"\\p{N}", GPT2}},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {.whole_pieces = true, .adds_bos = true},
     {WORDS("\\p{L}", "\\p{N}{1,3}")}},
    {" dbrx smaug-bpe chatglm-bpe glm4 ", {0}, {WORDS("\\p{L}", "\\p{N}{1,3}")}},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 megrez ", {.nfc = true}, {WORDS("\\p{L}", "\\p{N}")}},
    {" stablelm2 hunyuan solar-open grok-2 ", {0}, {WORDS("\\p{L}", "\\p{N}")}},
    {" qwen35 ",
     {.nfc = true},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"
                  "[\\r\\n]*" SPACES}},
    {" ufakzeka ",
     {0},
     {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES}},
    {" laguna ", {0}, {LINES, WORDS("\\p{L}", "\\p{N}")}},
    {" minicpm5 ", {.whole_pieces = true}, {"\\p{N}{1,3}", WORDS("\\p{L}", "\\p{N}+")}},
    /* \s*[\r\n]+ is not tried again within a run of spaces whose start has shown no newline. */
    {" jais-2 ",
     {0},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                  "(?<![^\\S\\r\\n])\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|"
                  "\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|"
                  "\\s{1,2}(?!\\S)|\\s{1}"}},
    {" seed-coder ",
     {0},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES}},
    {" bailingmoe bailingmoe2 llada-moe ", {0}, {BAILING}},
    {" exaone-moe ",
     {0},
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?"
                  "[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)"}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ",
     {0},
     {CASED_WORDS(CONTRACTION "?", "\\p{N}{1,3}")}},
    {" granite-embed-multi-97m ",
     {.whole_pieces = true},
     {CASED_WORDS(CONTRACTION "?", "\\p{N}{1,3}")}},
    {" tiny_aya cohere2moe ",
     {0},
     {"\\d{1,3}(?=(?:\\d{3})*\\b)", CASED_WORDS(CONTRACTION "?", "\\p{N}{1,3}")}},
    {" youtu ", {.whole_pieces = true}, {YOUTU, CASED_WORDS(CONTRACTION "?", "\\p{N}")}},
    {" tekken ", {.whole_pieces = true, .adds_bos = true}, {CASED_WORDS("", "\\p{N}")}},
    {" kimi-k2 ",
     {0},
     {"\\p{Han}+|" CASES(NO_WORD, KIMI_UPPER, KIMI_LOWER,
                         CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES}},
    {" superbpe ", {0}, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {" falcon ", {0}, {PUNCTUATION, GPT2, "[0-9][0-9][0-9]"}},
    {" deepseek-llm ",
     {0},
     {"[\\r\\n]", "\\s?[" CASED "]+", "\\s?[" DEEPSEEK_MARKS "]+", "\\s+$", IDEOGRAPHS, "\\p{N}+"}},
    {" deepseek-coder ", {0}, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", IDEOGRAPHS, "\\p{N}"}},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
     {0},
     {"\\p{N}{1,3}", CHINESE_JAPANESE, DEEPSEEK_WORDS("[\\r\\n]*" SPACES)}},
    {" spark2_5 ",
     {0},
     {"\\p{N}{1,3}", CHINESE_JAPANESE, DEEPSEEK_WORDS("|[\\r\\n]|\\s+(?!\\S)"), "\\p{N}"}},
    {" afmoe ",
     {0},
     {"(?:\\p{N}{1,2}(?=(?:\\p{N}{3})+(?!\\p{N})))|\\p{N}{3}", "[" ASIAN "]+",
      DEEPSEEK_WORDS("[\\r\\n]*" SPACES)}},
    {" bloom gpt3-finnish poro-chat ", {0}, {BLOOM}},
    {" viking ", {0}, {BLOOM, "\\p{N}"}},
    {" chameleon ",
     {.adds_bos = true},
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {" gemma4 granite-embed-multi-311m ",
     {.raw = true, .escapes_spaces = true, .whole_newlines = true},
     {LINES}},
    {" sarvam-moe ", {.raw = true, .escapes_spaces = true}, {LINES}},
    {" whitespace ", {.raw = true}, {"\\S+"}},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static bool has_name(const char *names, struct gguf_string name)
{
    const char *at = names;

    while (name.bytes > 0 && (at = memmem(at, strlen(at), name.text, name.bytes))) {
        if (at[-1] == ' ' && at[name.bytes] == ' ' && !memchr(name.text, ' ', name.bytes))
            return true;
        at++;
    }
    return false;
}

static int unknown_name(struct gguf_string name, struct fault *fault)
{
    char printable[64];

    gguf_string_print(name, printable, sizeof printable);
    return fault_set(fault, E_UNSUPPORTED,
                     "pre-tokenizer '%s' is not supported by this version (it knows llama.cpp's "
                     "names: gpt-2, smollm, llama-bpe, qwen2, tekken, gpt-4o, deepseek-v3 ...)",
                     printable);
}

static const struct row *find_row(struct gguf_string name)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (has_name(rows[i].names, name))
            return &rows[i];
    return NULL;
}

int pretokenizer_traits_gguf(struct gguf_string name, struct pretokenizer_traits *ret_traits,
                             struct fault *fault)
{
    const struct row *row = find_row(name);

    if (!row)
        return unknown_name(name, fault);
    *ret_traits = row->traits;
    return 0;
}

int pretokenizer_open_gguf(struct gguf_string name, struct pretokenizer **ret_pretokenizer,
                           struct fault *fault)
{
    struct pretokenizer *pretokenizer = NULL;
    const struct row *row = find_row(name);
    int r;

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
    return 0;
}
