/* sentencepiece_text.c -- see sentencepiece_text.h. */
#include "engine/text/sentencepiece_text.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

static const char space_symbol[] = "\xe2\x96\x81";

void sentencepiece_rules_close(struct sentencepiece_rules *rules)
{
    if (!rules)
        return;
    charsmap_close(rules->map);
    specials_fini(&rules->symbols);
    free(rules);
}

/* One call of sentencepiece_rules_apply(). */
struct reading {
    const struct sentencepiece_rules *rules;
    const char *text;
    size_t bytes;
    size_t at;
    struct special_hits hits;    /* of symbols */
    struct special_match symbol; /* the next one; bytes: none is left */
};

static void find_symbol(struct reading *reading)
{
    if (!specials_next(&reading->rules->symbols, &reading->hits, false, reading->text,
                       reading->bytes, reading->at, &reading->symbol))
        reading->symbol = (struct special_match){reading->bytes, reading->bytes, -1};
}

/* What the next stretch of the text becomes; takes it. */
static const char *next_part(struct reading *reading, size_t *ret_bytes)
{
    const char *at = reading->text + reading->at, *becomes = NULL;
    size_t taken, count = 0;

    if (reading->at == reading->symbol.start) {
        *ret_bytes = reading->symbol.end - reading->symbol.start;
        reading->at = reading->symbol.end;
        find_symbol(reading);
        return at;
    }
    if (reading->rules->map) /* an entry may reach into a symbol: the symbol is not seen then */
        becomes =
            charsmap_longest(reading->rules->map, at, reading->bytes - reading->at, &taken, &count);
    if (!becomes) {
        utf8_next(at, reading->bytes - reading->at, &taken, NULL);
        becomes = at;
        count = taken;
    }
    reading->at += taken;
    if (reading->at > reading->symbol.start)
        find_symbol(reading);
    *ret_bytes = count;
    return becomes;
}

static void put_space(const struct sentencepiece_rules *rules, struct buf *to)
{
    buf_text(to, rules->escapes_spaces ? space_symbol : " ");
}

static void put_part(const struct sentencepiece_rules *rules, const char *part, size_t bytes,
                     struct buf *to)
{
    const char *end = part + bytes, *space;

    while (rules->escapes_spaces && (space = memchr(part, ' ', (size_t)(end - part)))) {
        buf_put(to, part, (size_t)(space - part));
        buf_text(to, space_symbol);
        part = space + 1;
    }
    buf_put(to, part, (size_t)(end - part));
}

static void remove_end(const struct sentencepiece_rules *rules, size_t start, struct buf *to)
{
    const char *space = rules->escapes_spaces ? space_symbol : " ";
    size_t bytes = strlen(space);

    while (to->bytes - start >= bytes && memcmp(to->data + to->bytes - bytes, space, bytes) == 0)
        buf_cut(to, to->bytes - bytes);
}

static void read_text(struct reading *reading, struct buf *to)
{
    const struct sentencepiece_rules *rules = reading->rules;
    bool after_space = rules->removes_spaces;
    size_t start = to->bytes, count = 0;
    const char *part = "";

    find_symbol(reading);
    while (rules->removes_spaces && reading->at < reading->bytes) {
        struct reading before = *reading;

        part = next_part(reading, &count);
        if (count == 1 && *part == ' ')
            continue;
        *reading = before; /* hits that were taken are still there: the list only got shorter */
        break;
    }
    if (reading->at >= reading->bytes)
        return;
    if (!rules->space_is_suffix && rules->dummy_prefix)
        put_space(rules, to);
    while (reading->at < reading->bytes) {
        part = next_part(reading, &count);
        while (after_space && count > 0 && *part == ' ') {
            part++;
            count--;
        }
        put_part(rules, part, count, to);
        if (count > 0)
            after_space = part[count - 1] == ' ';
        after_space = after_space && rules->removes_spaces;
    }
    if (rules->removes_spaces && !buf_failed(to))
        remove_end(rules, start, to);
    if (rules->space_is_suffix && rules->dummy_prefix)
        put_space(rules, to);
}

void sentencepiece_rules_apply(const struct sentencepiece_rules *rules, const char *text,
                               size_t bytes, struct buf *to)
{
    struct reading reading = {.rules = rules, .text = text, .bytes = bytes};

    special_hits_init(&reading.hits);
    if (specials_scan(&rules->symbols, text, bytes, &reading.hits) < 0)
        to->failed = true;
    else
        read_text(&reading, to);
    special_hits_fini(&reading.hits);
}
