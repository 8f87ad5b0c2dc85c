/* random_generate.c -- writes random texts under a schema: a program for tests.
 *
 *     random_generate SCHEMA_FILE COUNT SEED TOKENS_MAX [GGUF]
 *
 * Every token is drawn evenly among the allowed ones, so the constraint does all the work. The
 * vocabulary is the GGUF's, or one of all bytes and of what JSON is often made of. Prints a line
 * for each text: {"finished":true,"tokens":12,"text":"..."}. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/json.h"
#include "engine/gguf.h"
#include "engine/text/constraint.h"
#include "engine/text/schema.h"
#include "engine/text/tokenizer.h"

enum { TEXT_BYTES_MAX = 1 << 20, LINE_BYTES_MAX = 8 << 20, BYTES = 256 };

static uint64_t random_state;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 32) * bound >> 32);
}

static void check(int r, const struct fault *fault)
{
    if (r >= 0)
        return;
    fprintf(stderr, "%s\n", fault->message);
    exit(2);
}

static const char *const pieces[] = {"\":",
                                     "\": ",
                                     "\",",
                                     "\", \"",
                                     "\"}",
                                     "\"]",
                                     "{\"",
                                     "[\"",
                                     "\"\"",
                                     "[]",
                                     "{}",
                                     "],",
                                     "},",
                                     "]}",
                                     "}}",
                                     "]]",
                                     "true",
                                     "false",
                                     "null",
                                     " \"",
                                     ", ",
                                     ": ",
                                     "  ",
                                     "\n",
                                     "\n  ",
                                     "00",
                                     "10",
                                     "12",
                                     "19",
                                     "20",
                                     "99",
                                     "123",
                                     "2024",
                                     "the",
                                     " the",
                                     "and",
                                     " and",
                                     "ing",
                                     "er",
                                     "a ",
                                     "ed",
                                     "name",
                                     "type",
                                     "value",
                                     "items",
                                     "id",
                                     "kind",
                                     "\\n",
                                     "\\\"",
                                     "\\u00",
                                     "\xc3\xa9",
                                     "\xe4\xb8",
                                     "\xf0\x9f\x98\x80",
                                     "hello",
                                     " world",
                                     "e",
                                     "x",
                                     "red",
                                     "Oslo",
                                     "celsius",
                                     "INV-",
                                     "-",
                                     "."};
enum { PIECES = sizeof pieces / sizeof *pieces };

/* All bytes, pieces as tokenizers have them, and an end. */
static struct vocabulary_trie *own_vocabulary(void)
{
    static char bytes[BYTES];
    static struct vocabulary_token tokens[BYTES + PIECES + 1];
    struct vocabulary_trie *trie = NULL;
    struct fault fault = {0};
    int32_t end = BYTES + PIECES;

    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){bytes + i, 1};
    }
    for (int i = 0; i < PIECES; i++)
        tokens[BYTES + i] = (struct vocabulary_token){pieces[i], strlen(pieces[i])};
    check(vocabulary_trie_open(tokens, BYTES + PIECES + 1, &end, 1, &trie, &fault), &fault);
    return trie;
}

static struct vocabulary_trie *model_vocabulary(const char *path)
{
    struct vocabulary_trie *trie = NULL;
    struct tokenizer *tokenizer = NULL;
    struct gguf *file = NULL;
    struct fault fault = {0};

    check(gguf_open(path, &file, &fault), &fault);
    check(tokenizer_open_gguf(file, &tokenizer, &fault), &fault);
    check(vocabulary_trie_open_tokenizer(tokenizer, &trie, &fault), &fault);
    tokenizer_close(tokenizer);
    gguf_close(file);
    return trie;
}

static int32_t draw(const uint32_t *mask, uint32_t words)
{
    uint32_t count = 0, wanted;

    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcount(mask[i]);
    if (count == 0)
        return -1;
    wanted = random_below(count);
    for (uint32_t i = 0;; i++) {
        uint32_t here = (uint32_t)__builtin_popcount(mask[i]), word = mask[i];

        if (wanted >= here) {
            wanted -= here;
            continue;
        }
        for (; wanted > 0; wanted--)
            word &= word - 1;
        return (int32_t)(32 * i + (uint32_t)__builtin_ctz(word));
    }
}

/* Returns the number of tokens drawn; the end is one. */
static uint32_t generate(struct constraint *constraint, const struct vocabulary_trie *trie,
                         uint32_t tokens_max, uint32_t *mask, struct buf *text, bool *ret_finished)
{
    struct constraint_state *state = NULL;
    struct fault fault = {0};
    uint32_t drawn = 0;

    *ret_finished = false;
    check(constraint_state_open(constraint, &state, &fault), &fault);
    while (drawn < tokens_max && !*ret_finished) {
        const char *piece;
        size_t bytes;
        int32_t id;

        check(
            constraint_state_mask_within(state, tokens_max - drawn, mask, trie->word_count, &fault),
            &fault);
        id = draw(mask, trie->word_count);
        if (id < 0) {
            fprintf(stderr, "no token is allowed after %s\n", buf_string(text));
            exit(2);
        }
        drawn++;
        check(constraint_state_token(state, id, &fault), &fault);
        *ret_finished = vocabulary_trie_is_end(trie, id);
        piece = vocabulary_trie_text(trie, id, &bytes);
        buf_put(text, piece, bytes);
    }
    constraint_state_close(state);
    return drawn;
}

static struct constraint *compile(const char *path, const struct vocabulary_trie *trie)
{
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    json_error_t error;
    json_t *schema = json_load_file(path, JSON_DECODE_ANY, &error);

    if (!schema) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        exit(2);
    }
    check(schema_compile(schema, NULL, &grammar, &fault), &fault);
    check(constraint_open(grammar, trie, NULL, &constraint, &fault), &fault);
    grammar_close(grammar);
    json_decref(schema);
    return constraint;
}

int main(int count, char **arguments)
{
    struct vocabulary_trie *trie;
    struct constraint *constraint;
    struct buf text, line;
    uint32_t *mask;
    long texts;

    if (count != 5 && count != 6) {
        fprintf(stderr, "random_generate SCHEMA_FILE COUNT SEED TOKENS_MAX [GGUF]\n");
        return 2;
    }
    trie = count == 6 ? model_vocabulary(arguments[5]) : own_vocabulary();
    constraint = compile(arguments[1], trie);
    texts = strtol(arguments[2], NULL, 10);
    random_state = strtoull(arguments[3], NULL, 10);
    mask = calloc(trie->word_count, sizeof *mask);
    buf_init(&text, TEXT_BYTES_MAX);
    buf_init(&line, LINE_BYTES_MAX);
    for (long i = 0; mask && i < texts; i++) {
        bool finished;
        uint32_t drawn;

        buf_reset(&text);
        buf_reset(&line);
        drawn = generate(constraint, trie, (uint32_t)strtoul(arguments[4], NULL, 10), mask, &text,
                         &finished);
        buf_json_string(&line, buf_string(&text), text.bytes);
        printf("{\"finished\":%s,\"tokens\":%" PRIu32 ",\"text\":%s}\n",
               finished ? "true" : "false", drawn, buf_string(&line));
    }
    buf_fini(&line);
    buf_fini(&text);
    free(mask);
    constraint_close(constraint);
    vocabulary_trie_close(trie);
    return 0;
}
