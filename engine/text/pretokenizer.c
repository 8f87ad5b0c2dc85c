/* pretokenizer.c -- see pretokenizer.h. */
#include "engine/text/pretokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/utf8.h"
#include "engine/text/digit_groups.h"

enum { STAGES_MAX = 32, STAGE_TEXT_BYTES_MAX = 256 };

enum stage_kind { STAGE_SPLIT, STAGE_PREPEND, STAGE_REPLACE };

struct stage {
    enum stage_kind kind;
    struct pattern *pattern; /* split; NULL: by digits */
    enum digit_grouping grouping;
    enum split_behaviour behaviour;
    bool invert;
    enum prepend_when when; /* prepend */
    char from;              /* replace */
    char text[STAGE_TEXT_BYTES_MAX];
    size_t text_bytes;
};

struct pretokenizer {
    size_t stage_count;
    struct stage stages[STAGES_MAX];
};

/* ---- making ---- */

int pretokenizer_open(struct pretokenizer **ret_pretokenizer, struct fault *fault)
{
    struct pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);

    if (!pretokenizer)
        return fault_set(fault, E_MEMORY, "out of memory for a pre-tokenizer");
    *ret_pretokenizer = pretokenizer;
    return 0;
}

void pretokenizer_close(struct pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (size_t i = 0; i < pretokenizer->stage_count; i++)
        pattern_close(pretokenizer->stages[i].pattern);
    free(pretokenizer);
}

static int add_stage(struct pretokenizer *pretokenizer, const struct stage *stage,
                     struct fault *fault)
{
    if (pretokenizer->stage_count == STAGES_MAX)
        return fault_set(fault, E_TOO_LARGE, "a pre-tokenizer of more than %d stages", STAGES_MAX);
    pretokenizer->stages[pretokenizer->stage_count++] = *stage;
    return 0;
}

int pretokenizer_add_split(struct pretokenizer *pretokenizer, const struct split_rule *rule,
                           struct fault *fault)
{
    struct stage stage = {
        .kind = STAGE_SPLIT, .behaviour = rule->behaviour, .invert = rule->invert};
    const char *pattern = rule->pattern;
    size_t bytes = rule->bytes;
    int r = 0;

    if (!rule->literal)
        stage.grouping = digit_grouping_of(pattern, bytes);
    if (!rule->literal && bytes == strlen("\\s+$") && memcmp(pattern, "\\s+$", bytes) == 0) {
        pattern = "(?<!\\s)\\s+$"; /* tried once for each run of spaces, not at each space */
        bytes = strlen(pattern);
    }
    if (stage.grouping == DIGITS_PLAIN)
        r = pattern_open(pattern, bytes, rule->literal, &stage.pattern, fault);
    if (r < 0)
        return r;
    r = add_stage(pretokenizer, &stage, fault);
    if (r < 0)
        pattern_close(stage.pattern);
    return r;
}

static int add_text_stage(struct pretokenizer *pretokenizer, struct stage *stage, const char *text,
                          struct fault *fault)
{
    stage->text_bytes = strlen(text);
    if (stage->text_bytes >= STAGE_TEXT_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "a pre-tokenizer with a text of %zu bytes",
                         stage->text_bytes);
    memcpy(stage->text, text, stage->text_bytes);
    return add_stage(pretokenizer, stage, fault);
}

int pretokenizer_add_prepend(struct pretokenizer *pretokenizer, const char *text,
                             enum prepend_when when, struct fault *fault)
{
    struct stage stage = {.kind = STAGE_PREPEND, .when = when};

    return add_text_stage(pretokenizer, &stage, text, fault);
}

int pretokenizer_add_replace(struct pretokenizer *pretokenizer, char from, const char *to,
                             struct fault *fault)
{
    struct stage stage = {.kind = STAGE_REPLACE, .from = from};

    return add_text_stage(pretokenizer, &stage, to, fault);
}

/* ---- cutting ---- */

void pretokenizer_work_init(struct pretokenizer_work *work)
{
    *work = (struct pretokenizer_work){0};
}

void pretokenizer_work_fini(struct pretokenizer_work *work)
{
    pattern_work_close(work->pattern);
    pretokenizer_work_init(work);
}

/* One call of pretokenizer_split(). */
struct cutting {
    const struct pretokenizer *pretokenizer;
    struct pattern_work *work;
    pretokenizer_piece *piece;
    void *data;
    struct fault *fault;
};

struct span {
    size_t start;
    size_t end;
};

/* What a stage has found so far and not handed on: a span that may still grow. */
struct splitting {
    struct cutting *cutting;
    size_t stage;
    const char *text;
    bool first; /* the text is the start of the whole text */
    struct span held;
    bool holds;
    bool last_matched;
};

static int cut(struct cutting *cutting, size_t stage, const char *text, size_t bytes, bool first);

static int hand_on(struct splitting *splitting, struct span span)
{
    if (span.end == span.start)
        return 0;
    return cut(splitting->cutting, splitting->stage + 1, splitting->text + span.start,
               span.end - span.start, splitting->first && span.start == 0);
}

static int release(struct splitting *splitting)
{
    if (!splitting->holds)
        return 0;
    splitting->holds = false;
    return hand_on(splitting, splitting->held);
}

/* Holds `span`, joined to what is held or after handing that on. */
static int hold(struct splitting *splitting, struct span span, bool join)
{
    int r = 0;

    if (join && splitting->holds) {
        splitting->held.end = span.end;
        return 0;
    }
    r = release(splitting);
    splitting->held = span;
    splitting->holds = true;
    return r;
}

/* The next span in the text, a match or what lies between two. */
static int take_span(struct splitting *splitting, struct span span, bool matched)
{
    const struct stage *stage = &splitting->cutting->pretokenizer->stages[splitting->stage];
    bool last_matched = splitting->last_matched;

    matched = matched != stage->invert;
    splitting->last_matched = matched;
    switch (stage->behaviour) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_REMOVED:
        return matched ? 0 : hand_on(splitting, span);
    case SPLIT_TO_PREVIOUS:
        return hold(splitting, span, matched && !last_matched);
    case SPLIT_TO_NEXT:
        return hold(splitting, span, !matched && last_matched);
    case SPLIT_CONTIGUOUS:
        return hold(splitting, span, matched == last_matched);
    }
    return hand_on(splitting, span);
}

static size_t next_character(const char *text, size_t bytes, size_t at)
{
    size_t taken;

    if (at >= bytes)
        return bytes + 1;
    utf8_next(text + at, bytes - at, &taken, NULL);
    return at + taken;
}

static int cut_by_pattern(struct cutting *cutting, size_t stage, const char *text, size_t bytes,
                          bool first)
{
    const struct stage *by = &cutting->pretokenizer->stages[stage];
    struct digit_walk walk = {0};
    struct splitting splitting = {.cutting = cutting, .stage = stage, .text = text, .first = first};
    size_t at = 0, from = 0;
    int r = 0;

    while (from <= bytes) {
        struct span match;

        r = by->pattern
                ? pattern_next(by->pattern, cutting->work, text, bytes, from, &match.start,
                               &match.end, cutting->fault)
                : digit_walk_next(&walk, by->grouping, text, bytes, from, &match.start, &match.end);
        if (r <= 0)
            break;
        r = 0;
        if (match.end > match.start)
            from = match.end;
        else /* an empty match parts its neighbours */
            from = next_character(text, bytes, match.start);
        if (match.start > at)
            r = take_span(&splitting, (struct span){at, match.start}, false);
        if (r >= 0 && (match.end > match.start || match.start > at))
            r = take_span(&splitting, match, true);
        if (r < 0)
            return r;
        at = match.end;
        if (at == bytes)
            break;
    }
    if (r >= 0 && at < bytes)
        r = take_span(&splitting, (struct span){at, bytes}, false);
    return r < 0 ? r : release(&splitting);
}

static bool starts_with(const struct stage *stage, const char *text, size_t bytes)
{
    return bytes >= stage->text_bytes && memcmp(text, stage->text, stage->text_bytes) == 0;
}

/* A stage that changes the text: the next ones see a copy. */
static int cut_changed(struct cutting *cutting, size_t stage_index, const char *text, size_t bytes,
                       bool first)
{
    const struct stage *stage = &cutting->pretokenizer->stages[stage_index];
    struct buf changed;
    size_t start = 0;
    int r;

    buf_init(&changed, (stage->text_bytes + 1) * (bytes + 1));
    if (stage->kind == STAGE_PREPEND) {
        buf_put(&changed, stage->text, stage->text_bytes);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            if (text[i] != stage->from)
                continue;
            buf_put(&changed, text + start, i - start);
            buf_put(&changed, stage->text, stage->text_bytes);
            start = i + 1;
        }
    }
    buf_put(&changed, text + start, bytes - start);
    r = buf_failed(&changed) ? -ENOMEM
                             : cut(cutting, stage_index + 1, changed.data, changed.bytes, first);
    buf_fini(&changed);
    return r;
}

static int cut(struct cutting *cutting, size_t stage_index, const char *text, size_t bytes,
               bool first)
{
    const struct stage *stage;
    bool changes;

    if (bytes == 0)
        return 0;
    if (stage_index == cutting->pretokenizer->stage_count)
        return cutting->piece(cutting->data, text, bytes);
    stage = &cutting->pretokenizer->stages[stage_index];
    if (stage->kind == STAGE_SPLIT)
        return cut_by_pattern(cutting, stage_index, text, bytes, first);
    if (stage->kind == STAGE_PREPEND)
        changes = !starts_with(stage, text, bytes) && (stage->when == PREPEND_ALWAYS || first);
    else
        changes = memchr(text, stage->from, bytes) != NULL;
    return changes ? cut_changed(cutting, stage_index, text, bytes, first)
                   : cut(cutting, stage_index + 1, text, bytes, first);
}

int pretokenizer_split(const struct pretokenizer *pretokenizer, struct pretokenizer_work *work,
                       const char *text, size_t bytes, bool first, pretokenizer_piece *piece,
                       void *data, struct fault *fault)
{
    struct cutting cutting = {pretokenizer, NULL, piece, data, fault};

    if (!work->pattern && pattern_work_open(&work->pattern) < 0)
        return -ENOMEM;
    cutting.work = work->pattern;
    return cut(&cutting, 0, text, bytes, first);
}
