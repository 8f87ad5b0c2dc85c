/* fuzz_regex.c -- libFuzzer target: a line with a regular expression, and behind it a text. Where
 * PCRE2 reads the expression in the same way, both must agree on the text, as a whole and as a
 * search, byte for byte cut anywhere. Corpus: tests/fuzz/corpus_regex. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/constraint.h"
#include "engine/text/regex_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MATCHED, NOT_MATCHED, UNKNOWN };

/* What the two write differently, or what white space and line ends mean. */
static bool is_comparable(const char *pattern, size_t bytes, const char *text, size_t text_bytes)
{
    static const char *const differing[] = {"\\v", "\\u", "\\U", "\\x", "\\s", "\\S", "\\W",
                                            "\\D", "[:",  "[.",  "[=",  "{,",  "\\c", "\\0",
                                            "\\Z", "(*",  "\\a", "\\E", "\\Q"};
    char copy[256];

    if (bytes >= sizeof copy || memchr(pattern, 0, bytes) || memchr(text, 0, text_bytes))
        return false;
    memcpy(copy, pattern, bytes);
    copy[bytes] = 0;
    for (size_t i = 0; i < sizeof differing / sizeof *differing; i++) {
        if (strstr(copy, differing[i]))
            return false;
    }
    for (size_t at = 0, taken; at < text_bytes; at += taken) {
        if ((uint8_t)text[at] < ' ' || (uint8_t)text[at] == 0xC2 || (uint8_t)text[at] == 0xE2 ||
            !utf8_next(text + at, text_bytes - at, &taken, NULL))
            return false;
    }
    return true;
}

static int pcre_matches(const char *pattern, size_t bytes, bool search, const char *text,
                        size_t text_bytes)
{
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY;
    PCRE2_SIZE offset;
    int error, r, verdict = UNKNOWN;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context = pcre2_match_context_create(NULL);

    if (!search)
        options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    code = pcre2_compile((PCRE2_SPTR)pattern, bytes, options, &error, &offset, NULL);
    if (code && context) {
        match = pcre2_match_data_create_from_pattern(code, NULL);
        pcre2_set_match_limit(context, 20000);
        r = pcre2_match(code, (PCRE2_SPTR)text, text_bytes, 0, 0, match, context);
        verdict = r >= 0 ? MATCHED : r == PCRE2_ERROR_NOMATCH ? NOT_MATCHED : UNKNOWN;
        pcre2_match_data_free(match);
    }
    pcre2_code_free(code);
    pcre2_match_context_free(context);
    return verdict;
}

static int our_verdict(const struct grammar *grammar, const char *text, size_t bytes)
{
    struct constraint_limits limits = {.work_max = 50000};
    struct constraint_state *state = NULL;
    struct constraint *constraint = NULL;
    int r = constraint_open(grammar, NULL, &limits, &constraint, NULL);
    size_t taken;

    if (r == 0)
        r = constraint_state_open(constraint, &state, NULL);
    for (size_t i = 0; r >= 0 && i < bytes; i++)
        r = constraint_state_bytes(state, text + i, 1, &taken, NULL);
    if (r >= 0)
        r = constraint_state_is_complete(state) ? MATCHED : NOT_MATCHED;
    constraint_state_close(state);
    constraint_close(constraint);
    return r < 0 ? UNKNOWN : r;
}

static void run(const char *pattern, size_t bytes, bool search, const char *text, size_t text_bytes)
{
    struct regex_options options = {.search = search};
    struct grammar *grammar = NULL;
    int32_t node, rule;
    int ours, theirs;

    must(grammar_open(20000, &grammar, NULL) == 0);
    rule = grammar_rule(grammar, "regex");
    grammar_set_root(grammar, rule);
    if (regex_grammar_build(grammar, pattern, bytes, &options, &node, NULL) == 0 &&
        grammar_define(grammar, rule, node) == 0) {
        ours = our_verdict(grammar, text, text_bytes);
        if (ours != UNKNOWN && is_comparable(pattern, bytes, text, text_bytes)) {
            theirs = pcre_matches(pattern, bytes, search, text, text_bytes);
            must(theirs == UNKNOWN || ours == theirs);
        }
    }
    grammar_close(grammar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = memchr(data, '\n', size);
    size_t bytes = line ? (size_t)(line - data) : size;
    const char *text = (const char *)data + (line ? bytes + 1 : size);

    run((const char *)data, bytes, false, text, size - (size_t)(text - (const char *)data));
    run((const char *)data, bytes, true, text, size - (size_t)(text - (const char *)data));
    return 0;
}
