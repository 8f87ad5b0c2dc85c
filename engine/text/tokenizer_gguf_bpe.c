/* tokenizer_gguf_bpe.c -- BPE with a list of merges out of a GGUF file: its model "gpt2". */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_gguf.h"

static int find_merges(const struct gguf *file, struct gguf_array *ret_merges, size_t *ret_longest,
                       struct fault *fault)
{
    size_t longest = 1;
    int r = gguf_get_array(file, "tokenizer.ggml.merges", ret_merges, fault);

    if (r < 0)
        return r;
    if (r == 0 || ret_merges->type != GGUF_STRING)
        return fault_set(fault, E_CORRUPT, "%s: tokenizer.ggml.merges is not a list of strings",
                         gguf_path(file));
    for (uint64_t i = 0; i < ret_merges->count; i++)
        if (gguf_array_string(ret_merges, i).bytes > longest)
            longest = gguf_array_string(ret_merges, i).bytes;
    *ret_longest = longest;
    return 0;
}

/* "Ä t he" joins the tokens of " t" and "he". `room` has space for the whole line. */
static int read_merge(struct bpe *bpe, struct gguf_string line, enum piece_coding coding,
                      uint32_t rank, char *room)
{
    const char *space = line.bytes > 1 ? memchr(line.text + 1, ' ', line.bytes - 1) : NULL;
    size_t left, left_bytes, right_bytes;

    if (!space)
        return 0;
    left = (size_t)(space - line.text);
    left_bytes = piece_decode(coding, line.text, left, room, NULL);
    right_bytes = piece_decode(coding, space + 1, line.bytes - left - 1, room + left_bytes, NULL);
    return bpe_add_merge(bpe, room, left_bytes, room + left_bytes, right_bytes, rank);
}

static int read_merges(struct bpe *bpe, const struct gguf *file, const struct gguf_array *merges,
                       enum piece_coding coding, size_t longest, struct fault *fault)
{
    char *room = malloc(longest);
    int r = 0;

    if (!room)
        return fault_set(fault, E_MEMORY, "out of memory for the merges of %s", gguf_path(file));
    for (uint64_t i = 0; i < merges->count && r == 0; i++) {
        struct gguf_string line = gguf_array_string(merges, i);
        char printable[64];

        r = read_merge(bpe, line, coding, (uint32_t)i, room);
        if (r > 0) {
            r = 0;
            continue;
        }
        if (r < 0) {
            r = fault_set(fault, E_MEMORY, "out of memory for the merges of %s", gguf_path(file));
            break;
        }
        gguf_string_print(line, printable, sizeof printable);
        r = fault_set(fault, E_CORRUPT,
                      "%s: merge %" PRIu64 " ('%s') does not join two tokens to a third",
                      gguf_path(file), i, printable);
    }
    free(room);
    return r;
}

/* The name in the file; models of that kind that name none have llama.cpp's default. */
static int read_traits(const struct gguf *file, struct gguf_string *ret_name,
                       struct pretokenizer_traits *ret_traits, struct fault *fault)
{
    struct gguf_string model = {"", 0};
    int r;

    *ret_name = (struct gguf_string){"default", 7};
    r = gguf_get_string(file, "tokenizer.ggml.model", &model, fault);
    if (r >= 0)
        r = gguf_get_string(file, "tokenizer.ggml.pre", ret_name, fault);
    if (model.bytes == strlen("gemma4") && memcmp(model.text, "gemma4", model.bytes) == 0)
        *ret_name = (struct gguf_string){"gemma4", 6};
    return r < 0 ? r : pretokenizer_traits_gguf(*ret_name, ret_traits, fault);
}

static int open_normalizer(struct tokenizer *tokenizer, const struct pretokenizer_traits *traits,
                           struct fault *fault)
{
    static const char space[] = "\xe2\x96\x81";
    int r = 0;

    if (traits->nfc || traits->escapes_spaces)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0 && traits->nfc)
        r = normalizer_add_form(tokenizer->normalizer, FORM_C, fault);
    if (r == 0 && traits->escapes_spaces)
        r = normalizer_add_replace(tokenizer->normalizer, " ", 1, true, space, strlen(space),
                                   fault);
    return r;
}

int tokenizer_gguf_bpe(struct tokenizer *tokenizer, const struct gguf *file,
                       struct gguf_affixes *adds, struct fault *fault)
{
    struct bpe_options options = {.unknown = -1, .prefix = "", .suffix = ""};
    struct pretokenizer_traits traits = {0};
    struct gguf_array merges = {0};
    struct gguf_string name;
    struct bpe *bpe = NULL;
    size_t longest = 1;
    int r = read_traits(file, &name, &traits, fault);

    if (r == 0)
        r = pretokenizer_open_gguf(name, &tokenizer->pretokenizer, fault);
    if (r == 0)
        r = open_normalizer(tokenizer, &traits, fault);
    if (r == 0)
        r = find_merges(file, &merges, &longest, fault);
    options.byte_level = !traits.raw;
    options.byte_fallback = traits.raw;
    options.whole_pieces = traits.whole_pieces;
    options.whole_newlines = traits.whole_newlines;
    if (r == 0)
        r = bpe_open(&tokenizer->vocabulary, &options, merges.count, &bpe, fault);
    if (r < 0)
        return r;
    tokenizer_use_bpe(tokenizer, bpe);
    adds->bos = traits.adds_bos;
    adds->sep = traits.adds_sep;
    return read_merges(bpe, file, &merges, traits.raw ? PIECES_PLAIN : PIECES_BYTE_LEVEL, longest,
                       fault);
}

int tokenizer_gguf_bpe_coding(const struct gguf *file, enum piece_coding *ret_coding,
                              struct fault *fault)
{
    struct pretokenizer_traits traits = {0};
    struct gguf_string name;
    int r = read_traits(file, &name, &traits, fault);

    *ret_coding = traits.raw ? PIECES_SPACED : PIECES_BYTE_LEVEL;
    return r;
}
