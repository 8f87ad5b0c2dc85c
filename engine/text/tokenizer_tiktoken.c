/* tokenizer_tiktoken.c -- a tokenizer out of a file of OpenAI's format: on each line a token in
 * base64 and its rank.
 *
 *     IQ== 0
 *     Ig== 1
 *
 * Such a file tells neither how texts are cut nor the special tokens, which programs have by heart.
 * So has the table here, by the number of ranks, which no two of them share. Names in a
 * tokenizer_config.json count for more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/base64.h"
#include "engine/text/tokenizer_files.h"
#include "engine/text/tokenizer_ranked.h"

enum {
    RANKS_MAX = 1 << 22,
    RANK_GAPS_MAX = 1024,
    SPECIALS_MAX = 4096,
    NAME_ROOM = 64,
    LINE_BYTES_MAX = 8192
};

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define WORDS(digits)                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K                                                                                    \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" SHORT "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"                      \
    "\\s+(?!\\S)"

/* Names of special tokens follow the ranks, or stand at their own numbers. */
struct named {
    const char *name; /* "%u" in it: from `number` on, counted, `count` of them */
    uint32_t id;
    uint32_t count;
    uint32_t number;
};
enum { NAMED_MAX = 16 };

static const struct row {
    uint32_t ranks;
    const char *pattern;
    bool nfc;
    const char *bos; /* NULL: none is added */
    const char *eos;
    struct named named[NAMED_MAX];
} rows[] = {
    {50256, GPT2, false, NULL, "<|endoftext|>", {{"<|endoftext|>", 50256, 1, 0}}},
    {100256,
     WORDS("\\p{N}{1,3}"),
     false,
     NULL,
     "<|endoftext|>",
     {{"<|endoftext|>", 100257, 1, 0},
      {"<|fim_prefix|>", 100258, 1, 0},
      {"<|fim_middle|>", 100259, 1, 0},
      {"<|fim_suffix|>", 100260, 1, 0},
      {"<|endofprompt|>", 100276, 1, 0}}},
    {199998,
     O200K,
     false,
     NULL,
     "<|endoftext|>",
     {{"<|endoftext|>", 199999, 1, 0}, {"<|endofprompt|>", 200018, 1, 0}}},
    /* Llama 3 (meta-llama/llama3, llama/tokenizer.py); later ones rename some of them. */
    {128000,
     WORDS("\\p{N}{1,3}"),
     false,
     "<|begin_of_text|>",
     "<|end_of_text|>",
     {{"<|begin_of_text|>", 128000, 1, 0},
      {"<|end_of_text|>", 128001, 1, 0},
      {"<|reserved_special_token_%u|>", 128002, 4, 0},
      {"<|start_header_id|>", 128006, 1, 0},
      {"<|end_header_id|>", 128007, 1, 0},
      {"<|reserved_special_token_4|>", 128008, 1, 0},
      {"<|eot_id|>", 128009, 1, 0},
      {"<|reserved_special_token_%u|>", 128010, 246, 5}}},
    /* Qwen (tokenization_qwen.py) */
    {151643,
     WORDS("\\p{N}"),
     true,
     NULL,
     "<|endoftext|>",
     {{"<|endoftext|>", 151643, 1, 0},
      {"<|im_start|>", 151644, 1, 0},
      {"<|im_end|>", 151645, 1, 0},
      {"<|extra_%u|>", 151646, 205, 0}}},
};

/* ---- lines ---- */

struct line {
    const char *token;
    size_t token_bytes;
    int64_t rank;
};

/* The line at *at, and where the next one starts. false: it is none. */
static bool read_line(const char *text, size_t bytes, size_t *at, struct line *ret_line)
{
    const char *start = text + *at, *end = memchr(start, '\n', bytes - *at), *space;
    size_t count = end ? (size_t)(end - start) : bytes - *at;
    int64_t rank = 0;

    *at += count + (end != NULL);
    if (count > 0 && start[count - 1] == '\r')
        count--;
    space = count > 0 && count < LINE_BYTES_MAX ? memchr(start, ' ', count) : NULL;
    if (!space || space == start || space + 1 == start + count)
        return false;
    for (const char *digit = space + 1; digit < start + count; digit++) {
        if (*digit < '0' || *digit > '9' || rank > RANKS_MAX)
            return false;
        rank = 10 * rank + (*digit - '0');
    }
    *ret_line = (struct line){start, (size_t)(space - start), rank};
    return true;
}

bool tiktoken_is_like(const char *text, size_t bytes)
{
    struct buf token;
    struct line line;
    size_t at = 0;
    bool like;

    buf_init(&token, LINE_BYTES_MAX);
    like = bytes > 0 && read_line(text, bytes, &at, &line) &&
           base64_append(line.token, line.token_bytes, &token) == 0;
    buf_fini(&token);
    return like;
}

/* Ranks may have gaps, but a short file must not ask for much. */
static size_t count_ranks(const char *text, size_t bytes)
{
    size_t count = RANK_GAPS_MAX;

    for (size_t i = 0; i < bytes && count < RANKS_MAX; i++)
        count += text[i] == '\n';
    return count;
}

static int read_tokens(const char *text, size_t bytes, struct ranked *ranked, struct fault *fault)
{
    size_t number = 1, room = count_ranks(text, bytes);
    struct line line;

    ranked->tokens = calloc(room, sizeof *ranked->tokens);
    if (!ranked->tokens)
        return fault_set(fault, E_MEMORY, "out of memory for the vocabulary");

    for (size_t at = 0; at < bytes; number++) {
        size_t start = ranked->bytes.bytes;

        if (text[at] == '\n') { /* an empty line */
            at++;
            continue;
        }
        if (!read_line(text, bytes, &at, &line) || line.rank >= (int64_t)room ||
            base64_append(line.token, line.token_bytes, &ranked->bytes) < 0)
            return fault_set(fault, E_CORRUPT, "line %zu is no token and its rank", number);
        ranked->tokens[line.rank] =
            (struct ranked_token){(uint32_t)start, (uint32_t)(ranked->bytes.bytes - start), true};
        if (line.rank >= ranked->count)
            ranked->count = (uint32_t)line.rank + 1;
    }
    return 0;
}

/* ---- special tokens ---- */

static void add_named(struct ranked *ranked, const struct named *named, char *names)
{
    for (uint32_t i = 0; i < named->count && ranked->special_count < SPECIALS_MAX; i++) {
        char *name = names + (size_t)ranked->special_count * NAME_ROOM;
        const char *mark = strstr(named->name, "%u");

        if (mark)
            snprintf(name, NAME_ROOM, "%.*s%" PRIu32 "%s", (int)(mark - named->name), named->name,
                     named->number + i, mark + 2);
        else
            snprintf(name, NAME_ROOM, "%s", named->name);
        ranked->specials[ranked->special_count++] = (struct special){
            .text = name, .bytes = strlen(name), .id = (int32_t)(named->id + i), .control = true};
    }
}

/* "added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>", "special": true}} */
static void add_configured(struct ranked *ranked, const json_t *config)
{
    const json_t *one;
    const char *key;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, one)
    {
        const json_t *content = json_object_get(one, "content");
        char *end;
        long id = strtol(key, &end, 10);
        uint32_t at = 0;

        if (*end || end == key || id < 0 || id >= RANKS_MAX || !json_is_string(content))
            continue;
        while (at < ranked->special_count && ranked->specials[at].id != id)
            at++;
        if (at == SPECIALS_MAX)
            continue;
        if (at == ranked->special_count)
            ranked->special_count++;
        ranked->specials[at] =
            (struct special){.text = json_string_value(content),
                             .bytes = json_string_length(content),
                             .id = (int32_t)id,
                             .control = !json_is_false(json_object_get(one, "special")),
                             .left_strip = json_is_true(json_object_get(one, "lstrip")),
                             .right_strip = json_is_true(json_object_get(one, "rstrip")),
                             .single_word = json_is_true(json_object_get(one, "single_word"))};
    }
}

/* ---- opening ---- */

static int make_tokenizer(struct tokenizer *tokenizer, struct ranked *ranked, const json_t *config,
                          char *names, struct fault *fault)
{
    const struct row *row = NULL;
    int r;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].ranks == ranked->count)
            row = &rows[i];
    if (!row)
        return fault_set(fault, E_UNSUPPORTED,
                         "a file of %" PRIu32 " ranks is of no tokenizer that this version knows",
                         ranked->count);
    ranked->pattern = row->pattern;
    ranked->nfc = row->nfc;
    for (size_t i = 0; i < NAMED_MAX && row->named[i].name; i++)
        add_named(ranked, &row->named[i], names);
    add_configured(ranked, config);
    r = tokenizer_make_ranked(tokenizer, ranked, fault);
    if (r < 0)
        return r;
    tokenizer->eos = tokenizer_find(tokenizer, row->eos);
    if (row->bos)
        tokenizer->bos = tokenizer_find(tokenizer, row->bos);
    if (tokenizer->bos >= 0)
        tokenizer->before.ids[tokenizer->before.count++] = tokenizer->bos;
    return 0;
}

int tokenizer_open_tiktoken(const char *text, size_t bytes, const json_t *config,
                            struct tokenizer **ret_tokenizer, struct fault *fault)
{
    struct ranked ranked = {0};
    struct tokenizer *tokenizer = NULL;
    char *names = malloc((size_t)SPECIALS_MAX * NAME_ROOM);
    int r = 0;

    buf_init(&ranked.bytes, INT32_MAX);
    ranked.specials = calloc(SPECIALS_MAX, sizeof *ranked.specials);
    if (!names || !ranked.specials)
        r = fault_set(fault, E_MEMORY, "out of memory for the vocabulary");
    if (r == 0)
        r = read_tokens(text, bytes, &ranked, fault);
    if (r == 0)
        r = tokenizer_open_empty(&tokenizer, fault);
    if (r == 0)
        r = make_tokenizer(tokenizer, &ranked, config, names, fault);
    free(ranked.tokens);
    free(ranked.specials);
    buf_fini(&ranked.bytes);
    free(names);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}
