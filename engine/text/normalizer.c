/* normalizer.c -- see normalizer.h. */
#include "engine/text/normalizer.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "config/base/utf8.h"
#include "engine/text/character.h"

enum {
    STEPS_MAX = 32,
    STEP_TEXT_BYTES_MAX = 256,
    GROWTH_MAX = 64, /* no list of steps in use makes a text longer than this many times */
};

enum step_kind {
    STEP_FORM,
    STEP_PREPEND,
    STEP_REPLACE,
    STEP_STRIP,
    STEP_CHARACTERS,
    STEP_MAP,
    STEP_SENTENCEPIECE,
};

struct step {
    enum step_kind kind;
    enum normalization form;
    unsigned rules;
    bool left, right;
    struct pattern *pattern; /* NULL: `from` is looked for */
    struct charsmap *map;
    enum charsmap_reading reading;
    struct sentencepiece_rules *sentencepiece;
    char from[STEP_TEXT_BYTES_MAX];
    char to[STEP_TEXT_BYTES_MAX];
    size_t from_bytes;
    size_t to_bytes;
};

struct normalizer {
    size_t step_count;
    struct step steps[STEPS_MAX];
};

/* ---- making ---- */

int normalizer_open(struct normalizer **ret_normalizer, struct fault *fault)
{
    struct normalizer *normalizer = calloc(1, sizeof *normalizer);

    if (!normalizer)
        return fault_set(fault, E_MEMORY, "out of memory for a normalizer");
    *ret_normalizer = normalizer;
    return 0;
}

void normalizer_close(struct normalizer *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->step_count; i++) {
        pattern_close(normalizer->steps[i].pattern);
        charsmap_close(normalizer->steps[i].map);
        sentencepiece_rules_close(normalizer->steps[i].sentencepiece);
    }
    free(normalizer);
}

/* Takes what the step owns, also when it fails. */
static int add_step(struct normalizer *normalizer, const struct step *step, struct fault *fault)
{
    if (normalizer->step_count == STEPS_MAX) {
        pattern_close(step->pattern);
        charsmap_close(step->map);
        sentencepiece_rules_close(step->sentencepiece);
        return fault_set(fault, E_TOO_LARGE, "a normalizer of more than %d steps", STEPS_MAX);
    }
    normalizer->steps[normalizer->step_count++] = *step;
    return 0;
}

static int copy_text(char to[static STEP_TEXT_BYTES_MAX], size_t *ret_bytes, const char *text,
                     size_t bytes, struct fault *fault)
{
    if (bytes > STEP_TEXT_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "a normalizer with a text of %zu bytes", bytes);
    if (bytes > 0)
        memcpy(to, text, bytes);
    *ret_bytes = bytes;
    return 0;
}

int normalizer_add_form(struct normalizer *normalizer, enum normalization form, struct fault *fault)
{
    return add_step(normalizer, &(struct step){.kind = STEP_FORM, .form = form}, fault);
}

int normalizer_add_prepend(struct normalizer *normalizer, const char *text, size_t bytes,
                           struct fault *fault)
{
    struct step step = {.kind = STEP_PREPEND};
    int r = copy_text(step.to, &step.to_bytes, text, bytes, fault);

    return r < 0 ? r : add_step(normalizer, &step, fault);
}

int normalizer_add_replace(struct normalizer *normalizer, const char *pattern, size_t pattern_bytes,
                           bool literal, const char *to, size_t to_bytes, struct fault *fault)
{
    struct step step = {.kind = STEP_REPLACE};
    int r = copy_text(step.to, &step.to_bytes, to, to_bytes, fault);

    if (r == 0 && literal)
        r = copy_text(step.from, &step.from_bytes, pattern, pattern_bytes, fault);
    else if (r == 0)
        r = pattern_open(pattern, pattern_bytes, false, &step.pattern, fault);
    return r < 0 ? r : add_step(normalizer, &step, fault);
}

int normalizer_add_strip(struct normalizer *normalizer, bool left, bool right, struct fault *fault)
{
    return add_step(normalizer, &(struct step){.kind = STEP_STRIP, .left = left, .right = right},
                    fault);
}

int normalizer_add_charsmap(struct normalizer *normalizer, struct charsmap *map,
                            enum charsmap_reading reading, struct fault *fault)
{
    return add_step(normalizer, &(struct step){.kind = STEP_MAP, .map = map, .reading = reading},
                    fault);
}

int normalizer_add_sentencepiece(struct normalizer *normalizer, struct sentencepiece_rules *rules,
                                 struct fault *fault)
{
    return add_step(normalizer, &(struct step){.kind = STEP_SENTENCEPIECE, .sentencepiece = rules},
                    fault);
}

int normalizer_add_characters(struct normalizer *normalizer, unsigned rules, struct fault *fault)
{
    return add_step(normalizer, &(struct step){.kind = STEP_CHARACTERS, .rules = rules}, fault);
}

/* ---- steps ---- */

static void put_character(struct buf *to, int32_t character)
{
    char encoded[4];

    buf_put(to, encoded, utf8_put((uint32_t)character, encoded));
}

/* The one character whose lower case is two, whatever stands beside it. */
enum { CAPITAL_I_WITH_DOT = 0x130, DOT_ABOVE = 0x307 };

static void put_lowercase(struct buf *to, int32_t character)
{
    if (character == CAPITAL_I_WITH_DOT) {
        put_character(to, 'i');
        put_character(to, DOT_ABOVE);
        return;
    }
    put_character(to, utf8proc_tolower(character));
}

/* BERT's blocks of ideographs (google-research/bert, tokenization.py). */
static bool is_ideograph(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool is_dropped(unsigned rules, int32_t character)
{
    utf8proc_category_t category = utf8proc_category(character);

    if ((rules & CHARACTERS_NO_NONSPACING_MARKS) && category == UTF8PROC_CATEGORY_MN)
        return true;
    if ((rules & CHARACTERS_NO_MARKS) &&
        (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME))
        return true;
    if (!(rules & CHARACTERS_CLEAN) || character == '\t' || character == '\n' || character == '\r')
        return false;
    return character == 0 || character == 0xfffd || category == UTF8PROC_CATEGORY_CC ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

static void change_characters(unsigned rules, const char *text, size_t bytes, struct buf *to)
{
    for (size_t at = 0; at < bytes;) {
        size_t taken;
        int32_t character = character_at(text + at, bytes - at, &taken);
        bool apart;

        if (character < 0)
            break; /* not well-formed: against the contract */
        at += taken;
        if (is_dropped(rules, character))
            continue;
        if ((rules & CHARACTERS_CLEAN) && character_is_space(character))
            character = ' ';
        apart = (rules & CHARACTERS_APART) && is_ideograph(character);
        if (apart)
            buf_byte(to, ' ');
        if (rules & CHARACTERS_LOWERCASE)
            put_lowercase(to, character);
        else
            put_character(to, character);
        if (apart)
            buf_byte(to, ' ');
    }
}

static void replace_literal(const struct step *step, const char *text, size_t bytes, struct buf *to)
{
    const char *at = text, *end = text + bytes;

    for (const char *found;
         step->from_bytes > 0 && at < end &&
         (found = step->from_bytes == 1
                      ? memchr(at, step->from[0], (size_t)(end - at))
                      : memmem(at, (size_t)(end - at), step->from, step->from_bytes));
         at = found + step->from_bytes) {
        buf_put(to, at, (size_t)(found - at));
        buf_put(to, step->to, step->to_bytes);
    }
    buf_put(to, at, (size_t)(end - at));
}

static int replace_pattern(const struct step *step, struct normalizer_work *work, const char *text,
                           size_t bytes, struct buf *to, struct fault *fault)
{
    size_t at = 0, from = 0;
    int r = 0;

    if (!work->pattern && pattern_work_open(&work->pattern) < 0)
        return -ENOMEM;
    while (from <= bytes) {
        size_t start, end;

        r = pattern_next(step->pattern, work->pattern, text, bytes, from, &start, &end, fault);
        if (r <= 0)
            break;
        buf_put(to, text + at, start - at);
        buf_put(to, step->to, step->to_bytes);
        at = end;
        from = end;
        if (end == start && end < bytes) {
            size_t taken;

            utf8_next(text + end, bytes - end, &taken, NULL);
            from += taken;
        } else if (end == start) {
            break;
        }
    }
    buf_put(to, text + at, bytes - at);
    return r < 0 ? r : 0;
}

static bool space_at(const char *text, size_t bytes, size_t *ret_taken)
{
    return character_is_space(character_at(text, bytes, ret_taken));
}

static void strip(const struct step *step, const char **text, size_t *bytes)
{
    size_t taken;

    while (step->left && *bytes > 0 && space_at(*text, *bytes, &taken)) {
        *text += taken;
        *bytes -= taken;
    }
    while (step->right && *bytes > 0) {
        size_t start = *bytes - 1;

        while (start > 0 && ((uint8_t)(*text)[start] & 0xc0) == 0x80)
            start--;
        if (!space_at(*text + start, *bytes - start, &taken))
            break;
        *bytes = start;
    }
}

/* Whether the step may change this text at all. */
static bool changes(const struct step *step, const char *text, size_t bytes)
{
    if (step->kind == STEP_FORM)
        return !normalize_is_plain(step->form, text, bytes);
    if (step->kind == STEP_REPLACE && step->from_bytes > 0)
        return memmem(text, bytes, step->from, step->from_bytes) != NULL;
    if (step->kind == STEP_CHARACTERS &&
        !(step->rules & ~(unsigned)(CHARACTERS_NO_MARKS | CHARACTERS_NO_NONSPACING_MARKS)))
        return !normalize_is_plain(FORM_D, text, bytes);
    return true;
}

static int run_step(const struct step *step, struct normalizer_work *work, const char *text,
                    size_t bytes, struct buf *to, struct fault *fault)
{
    switch (step->kind) {
    case STEP_FORM:
        return normalize_append(step->form, to, text, bytes);
    case STEP_PREPEND:
        buf_put(to, step->to, step->to_bytes);
        buf_put(to, text, bytes);
        break;
    case STEP_REPLACE:
        if (step->pattern)
            return replace_pattern(step, work, text, bytes, to, fault);
        replace_literal(step, text, bytes, to);
        break;
    case STEP_CHARACTERS:
        change_characters(step->rules, text, bytes, to);
        break;
    case STEP_MAP:
        charsmap_apply(step->map, step->reading, text, bytes, to);
        break;
    case STEP_SENTENCEPIECE:
        sentencepiece_rules_apply(step->sentencepiece, text, bytes, to);
        break;
    case STEP_STRIP: /* no copy: normalizer_apply() */
        break;
    }
    return 0;
}

/* ---- all of them ---- */

void normalizer_work_init(struct normalizer_work *work)
{
    *work = (struct normalizer_work){0};
    buf_init(&work->results[0], 0);
    buf_init(&work->results[1], 0);
}

void normalizer_work_fini(struct normalizer_work *work)
{
    buf_fini(&work->results[0]);
    buf_fini(&work->results[1]);
    pattern_work_close(work->pattern);
    work->pattern = NULL;
}

int normalizer_apply(const struct normalizer *normalizer, struct normalizer_work *work,
                     const char *text, size_t bytes, const char **ret_text, size_t *ret_bytes,
                     struct fault *fault)
{
    size_t ceiling = GROWTH_MAX * bytes + (STEPS_MAX + 1) * STEP_TEXT_BYTES_MAX;
    unsigned turn = 0;
    int r = 0;

    for (size_t i = 0; i < normalizer->step_count && bytes > 0 && r == 0; i++) {
        const struct step *step = &normalizer->steps[i];
        struct buf *to = &work->results[turn];

        if (step->kind == STEP_STRIP) {
            strip(step, &text, &bytes);
            continue;
        }
        if (!changes(step, text, bytes))
            continue;
        buf_reset(to);
        if (to->ceiling < ceiling)
            to->ceiling = ceiling;
        r = run_step(step, work, text, bytes, to, fault);
        if (r == 0 && buf_failed(to))
            r = -ENOMEM;
        text = buf_string(to);
        bytes = to->bytes;
        turn ^= 1;
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return r;
}
