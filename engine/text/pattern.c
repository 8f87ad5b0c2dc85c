/* pattern.c -- see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"

enum {
    MATCH_LIMIT = 100 * 1000 * 1000,
    HEAP_LIMIT_KIB = 256 * 1024,
    STACK_BYTES_FIRST = 64 << 10,
    STACK_BYTES_MAX = 256 << 20, /* mapped, and touched where used */
    PATTERN_BYTES_MAX = 64 << 10,
    SETS_MAX = 8, /* of one [a&&b&&c] */
};

struct pattern {
    pcre2_code *code;
};

struct pattern_work {
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack; /* NULL until the machine's own was too small */
};

/* ---- rewriting ---- */

#define SPACE_SET                                                                               \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
/* Oniguruma's own, with the superscripts and fractions of Latin-1. */
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* \p{Han} is PCRE2's word for all that Chinese is written with, punctuation too; for others the
 * script alone. Returns how many bytes of "{Han}" were taken, 0 for another property. */
static size_t rewrite_script(char letter, const char *text, size_t bytes, struct buf *to)
{
    static const char *const scripts[] = {
        "Arabic",   "Armenian", "Bengali",   "Bopomofo",  "Cyrillic", "Devanagari",
        "Ethiopic", "Georgian", "Greek",     "Gujarati",  "Gurmukhi", "Han",
        "Hangul",   "Hebrew",   "Hiragana",  "Kannada",   "Katakana", "Khmer",
        "Lao",      "Latin",    "Malayalam", "Mongolian", "Myanmar",  "Oriya",
        "Sinhala",  "Tamil",    "Telugu",    "Thai",      "Tibetan",
    };

    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        size_t name = strlen(scripts[i]);

        if (bytes >= name + 2 && text[0] == '{' && text[name + 1] == '}' &&
            memcmp(text + 1, scripts[i], name) == 0) {
            buf_byte(to, '\\');
            buf_byte(to, letter);
            buf_text(to, "{sc:");
            buf_text(to, scripts[i]);
            buf_byte(to, '}');
            return name + 2;
        }
    }
    return 0;
}

/* What stands behind a backslash, inside a class or not. Returns how many bytes were taken. */
static size_t rewrite_escape(const char *text, size_t bytes, bool in_class, struct buf *to)
{
    static const struct {
        char letter;
        const char *in_class; /* NULL: there is no way */
        const char *outside;
    } rows[] = {
        {'s', SPACE_SET, "[" SPACE_SET "]"}, {'S', "\\P{White_Space}", "[^" SPACE_SET "]"},
        {'w', WORD_SET, "[" WORD_SET "]"},   {'W', NULL, "[^" WORD_SET "]"},
        {'h', "0-9A-Fa-f", "[0-9A-Fa-f]"}, /* Oniguruma: a hexadecimal digit */
    };
    size_t taken = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].letter == *text && (!in_class || rows[i].in_class)) {
            buf_text(to, in_class ? rows[i].in_class : rows[i].outside);
            return 1;
        }
    }
    if (*text == 'p' || *text == 'P')
        taken = rewrite_script(*text, text + 1, bytes - 1, to);
    if (taken == 0) {
        buf_byte(to, '\\');
        buf_byte(to, *text);
    }
    return 1 + taken;
}

/* Where the class that opens at text[at] ends (behind its bracket), or bytes. */
static size_t class_end(const char *text, size_t bytes, size_t at)
{
    size_t depth = 0;

    for (size_t i = at; i < bytes; i++) {
        if (text[i] == '\\') {
            i++;
        } else if (text[i] == '[') {
            depth++;
            if (i + 1 < bytes && text[i + 1] == '^')
                i++;
            if (i + 1 < bytes && text[i + 1] == ']') /* a bracket that comes first is itself */
                i++;
        } else if (text[i] == ']' && --depth == 0) {
            return i + 1;
        }
    }
    return bytes;
}

/* A class in a class joins it, so its brackets go; [:alpha:] stays. */
static void rewrite_class_body(const char *text, size_t bytes, struct buf *to)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\' && i + 1 < bytes) {
            i += rewrite_escape(text + i + 1, bytes - i - 1, true, to);
        } else if (text[i] == '[' && i + 1 < bytes && text[i + 1] == ':') {
            const char *end = memmem(text + i, bytes - i, ":]", 2);
            size_t named = end ? (size_t)(end - (text + i)) + 2 : bytes - i;

            buf_put(to, text + i, named);
            i += named - 1;
        } else if (text[i] != '[' && (text[i] != ']' || i == 0)) {
            buf_byte(to, text[i]);
        }
    }
}

/* The parts of [a&&b] as starts and ends; false: there is no such thing in it. */
static size_t find_sets(const char *body, size_t bytes, size_t starts[SETS_MAX],
                        size_t ends[SETS_MAX])
{
    size_t count = 0, start = 0, depth = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (body[i] == '\\') {
            i++;
        } else if (body[i] == '[') {
            depth++;
        } else if (body[i] == ']' && depth > 0) {
            depth--;
        } else if (depth == 0 && body[i] == '&' && i + 1 < bytes && body[i + 1] == '&' &&
                   count + 1 < SETS_MAX) {
            starts[count] = start;
            ends[count++] = i;
            start = i + 2;
            i++;
        }
    }
    starts[count] = start;
    ends[count] = bytes;
    return count + 1;
}

/* [ab], or [ab&&[^c]] as (?:(?=[ab])[^c]) . */
static void rewrite_class(const char *text, size_t bytes, struct buf *to)
{
    size_t starts[SETS_MAX], ends[SETS_MAX], count;
    bool inverted = bytes > 2 && text[1] == '^';
    const char *body = text + 1 + inverted;
    size_t body_bytes = bytes - 2 - inverted;

    count = find_sets(body, body_bytes, starts, ends);
    if (count == 1) {
        buf_text(to, inverted ? "[^" : "[");
        rewrite_class_body(body, body_bytes, to);
        buf_byte(to, ']');
        return;
    }
    if (inverted) /* any character that is not in all of them */
        buf_text(to, "(?:(?!");
    else
        buf_text(to, "(?:");
    for (size_t i = 0; i < count; i++) {
        const char *set = body + starts[i];
        size_t set_bytes = ends[i] - starts[i];
        bool last = i + 1 == count;

        if (!last)
            buf_text(to, "(?=");
        if (set_bytes >= 2 && set[0] == '[' && class_end(set, set_bytes, 0) == set_bytes) {
            rewrite_class(set, set_bytes, to);
        } else {
            buf_byte(to, '[');
            rewrite_class_body(set, set_bytes, to);
            buf_byte(to, ']');
        }
        if (!last)
            buf_byte(to, ')');
    }
    buf_text(to, inverted ? ")(?s:.))" : ")");
}

static void rewrite(const char *text, size_t bytes, struct buf *to)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\' && i + 1 < bytes) {
            i += rewrite_escape(text + i + 1, bytes - i - 1, false, to);
        } else if (text[i] == '[') {
            size_t end = class_end(text, bytes, i);

            if (end - i < 2 || text[end - 1] != ']') { /* PCRE2 will say what is missing */
                buf_put(to, text + i, bytes - i);
                return;
            }
            rewrite_class(text + i, end - i, to);
            i = end - 1;
        } else {
            buf_byte(to, text[i]);
        }
    }
}

/* ---- opening ---- */

static int compile(struct pattern *pattern, const char *text, size_t bytes, bool literal,
                   struct fault *fault)
{
    /* As Oniguruma's Ruby, ^ and $ stand at every line. */
    uint32_t flags = literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
    PCRE2_SIZE offset = 0;
    char words[128] = "";
    int error = 0;

    pattern->code = pcre2_compile((PCRE2_SPTR)text, bytes, flags, &error, &offset, NULL);
    if (!pattern->code) {
        if (error == PCRE2_ERROR_HEAP_FAILED || error == PCRE2_ERROR_NOMEMORY)
            return fault_set(fault, E_MEMORY, "out of memory for a pattern");
        pcre2_get_error_message(error, (PCRE2_UCHAR *)words, sizeof words);
        return fault_set(fault, E_UNSUPPORTED,
                         "the pattern '%.200s' cannot be read: %s (at %zu of its form for PCRE2)",
                         text, words, (size_t)offset);
    }
    /* Where machine code may not be made, matching interprets: the same, slower. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int pattern_open(const char *text, size_t bytes, bool literal, struct pattern **ret_pattern,
                 struct fault *fault)
{
    struct pattern *pattern;
    struct buf rewritten;
    int r;

    if (bytes > PATTERN_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "a pattern of %zu bytes, more than %d", bytes,
                         PATTERN_BYTES_MAX);
    pattern = calloc(1, sizeof *pattern);
    if (!pattern)
        return fault_set(fault, E_MEMORY, "out of memory for a pattern");
    buf_init(&rewritten, 64 * (size_t)PATTERN_BYTES_MAX);
    if (literal)
        buf_put(&rewritten, text, bytes);
    else
        rewrite(text, bytes, &rewritten);
    r = buf_failed(&rewritten)
            ? fault_set(fault, E_MEMORY, "out of memory for a pattern")
            : compile(pattern, buf_string(&rewritten), rewritten.bytes, literal, fault);
    buf_fini(&rewritten);
    if (r < 0) {
        pattern_close(pattern);
        return r;
    }
    *ret_pattern = pattern;
    return 0;
}

void pattern_close(struct pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

/* ---- matching ---- */

int pattern_work_open(struct pattern_work **ret_work)
{
    struct pattern_work *work = calloc(1, sizeof *work);

    if (!work)
        return -ENOMEM;
    work->match = pcre2_match_data_create(1, NULL);
    work->limits = pcre2_match_context_create(NULL);
    if (!work->match || !work->limits) {
        pattern_work_close(work);
        return -ENOMEM;
    }
    pcre2_set_match_limit(work->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(work->limits, HEAP_LIMIT_KIB);
    *ret_work = work;
    return 0;
}

void pattern_work_close(struct pattern_work *work)
{
    if (!work)
        return;
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->limits);
    pcre2_jit_stack_free(work->stack);
    free(work);
}

int pattern_next(const struct pattern *pattern, struct pattern_work *work, const char *text,
                 size_t bytes, size_t from, size_t *ret_start, size_t *ret_end, struct fault *fault)
{
    const PCRE2_SIZE *span;
    int r;

    r = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, work->match,
                    work->limits);
    if (r == PCRE2_ERROR_JIT_STACKLIMIT && !work->stack) {
        work->stack = pcre2_jit_stack_create(STACK_BYTES_FIRST, STACK_BYTES_MAX, NULL);
        if (work->stack)
            pcre2_jit_stack_assign(work->limits, NULL, work->stack);
        r = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK,
                        work->match, work->limits);
    }
    /* Where that is not enough the interpreter has the heap. */
    if (r == PCRE2_ERROR_JIT_STACKLIMIT)
        r = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, work->match, work->limits);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r == PCRE2_ERROR_NOMEMORY)
        return fault_set(fault, E_MEMORY, "out of memory while splitting a text");
    if (r < 0)
        return fault_set(fault, E_TOO_LARGE,
                         "the text takes too long to split into words (PCRE2 error %d)", r);
    span = pcre2_get_ovector_pointer(work->match);
    if (span[1] < span[0]) /* \K in a lookbehind; no pattern in use has it */
        return 0;
    *ret_start = span[0];
    *ret_end = span[1];
    return 1;
}
