/* constraint_cover.c -- which slice of the vocabulary may follow a state as a whole; see
 * vocabulary_slices.h.
 *
 * The automaton tells it for a class that goes round (automaton_check.c). Otherwise the characters
 * of a slice are followed, all at once: the states that n of them lead to, for n = 0, 1, 2 ... When
 * none is dead and no new one appears, the slice may follow at any length. When from some length on
 * all are dead, that is the length, and no longer token of the slice can follow either.
 *
 *     "pattern": "[0-9]"      before a digit -> before or behind a digit -> no new state: all text
 *     "maxLength": 2          0 -> 1 -> 2 -> dead: up to two characters, and no more */

#include "engine/text/constraint_internal.h"

enum {
    LEVELS_MAX = 16,    /* characters that are followed */
    LEVELS_UNKNOWN = 8, /* when nothing says how many can follow */
    PAIRS_MAX = 256,
};

/* How many characters of a slice may follow a place. */
static uint32_t run_length(const struct constraint *constraint, const struct place *place)
{
    const struct automaton *automaton = constraint->automaton;
    const struct automaton_instruction *at = &automaton->code[place->at];
    uint32_t high;

    if (place->machine != at->to || at->loop == LOOP_NONE)
        return 0;
    if (at->loop == LOOP_FREE)
        return UINT32_MAX;
    high = automaton->repeats[at->count].high;
    return high == UINT32_MAX ? high : high - memo_frame_count(&constraint->memo, place->frame);
}

/* The longest of slice_lengths, as an index + 1, that is no more than `run`. */
static uint32_t length_index(uint32_t run)
{
    uint32_t index = SLICE_LENGTH_COUNT;

    while (index > 0 && slice_lengths[index - 1] > run)
        index--;
    return index;
}

/* The state's mark is 1 for none, above that a slice and a length. */
struct cover cover_find(const struct constraint *constraint, uint32_t number)
{
    uint32_t *mark = &constraint->memo.marks[number];
    uint32_t count, best = 0, best_count = 0;
    const struct place *places = memo_places(&constraint->memo, number, &count);

    for (uint32_t i = 0; *mark == 0 && i < count; i++) {
        uint32_t index = length_index(run_length(constraint, &places[i]));
        uint8_t slices = constraint->automaton->code[places[i].at].slices;

        for (unsigned s = 0; index > 0 && s < VOCABULARY_SLICE_COUNT; s++) {
            uint32_t covered = constraint->vocabulary->slices[s].counts[index - 1];

            if ((slices >> s & 1) && covered > best_count) {
                best = 1 + s * SLICE_LENGTH_COUNT + index - 1;
                best_count = covered;
            }
        }
    }
    if (*mark == 0)
        *mark = 1 + best;
    if (*mark == 1)
        return (struct cover){0};
    return (struct cover){
        .slice = &constraint->vocabulary->slices[(*mark - 2) / SLICE_LENGTH_COUNT],
        .index = (*mark - 2) % SLICE_LENGTH_COUNT,
        .exact = (*mark - 2) % SLICE_LENGTH_COUNT == SLICE_LENGTH_COUNT - 1,
    };
}

/* ---- following a slice ---- */

/* The slices' characters above ASCII in UTF-8: from each state of a decoder over some bytes to
 * another; 0 is between characters. All from U+00A0 on but U+2028 and U+2029. */
static const struct {
    uint8_t from, low, high, to;
} decoder[] = {
    {0, 0xC2, 0xC2, 10}, {0, 0xC3, 0xDF, 1}, {0, 0xE0, 0xE0, 4},  {0, 0xE1, 0xE1, 2},
    {0, 0xE2, 0xE2, 8},  {0, 0xE3, 0xEC, 2}, {0, 0xED, 0xED, 5},  {0, 0xEE, 0xEF, 2},
    {0, 0xF0, 0xF0, 6},  {0, 0xF1, 0xF3, 3}, {0, 0xF4, 0xF4, 7},  {1, 0x80, 0xBF, 0},
    {2, 0x80, 0xBF, 1},  {3, 0x80, 0xBF, 2}, {4, 0xA0, 0xBF, 1},  {5, 0x80, 0x9F, 1},
    {6, 0x90, 0xBF, 2},  {7, 0x80, 0x8F, 2}, {8, 0x80, 0x80, 9},  {8, 0x81, 0xBF, 1},
    {9, 0x80, 0xA7, 0},  {9, 0xAA, 0xBF, 0}, {10, 0xA0, 0xBF, 0},
};
enum { DECODER_EDGES = sizeof decoder / sizeof *decoder };

/* A state between characters or within one. */
struct pair {
    uint32_t state;
    uint8_t decoder;
    uint8_t level; /* characters that were read before, at least */
};

struct follower {
    struct constraint *constraint;
    struct pair pairs[PAIRS_MAX]; /* all that were met, in the order of their levels */
    uint32_t count;
    struct pair later[PAIRS_MAX]; /* those of the next level, to be met then */
    uint32_t later_count;
    uint32_t run;  /* characters after which something is dead */
    bool live;     /* at that level, something else is not */
    bool circular; /* some state is reached by texts of several lengths */
    bool full;     /* too many pairs: what is behind them is not known */
};

static bool was_met(const struct follower *follower, struct pair pair, uint8_t *ret_level)
{
    for (uint32_t i = 0; i < follower->count; i++) {
        if (follower->pairs[i].state == pair.state && follower->pairs[i].decoder == pair.decoder) {
            *ret_level = follower->pairs[i].level;
            return true;
        }
    }
    return false;
}

static void meet(struct follower *follower, struct pair pair)
{
    uint8_t level;

    if (was_met(follower, pair, &level))
        return;
    if (follower->count == PAIRS_MAX)
        follower->full = true;
    else
        follower->pairs[follower->count++] = pair;
}

/* A character is whole: what is behind it belongs to the next level. */
static void meet_later(struct follower *follower, uint32_t state, uint8_t level)
{
    struct pair pair = {state, 0, level};
    uint8_t before;

    if (was_met(follower, pair, &before)) {
        follower->circular = true;
        return;
    }
    for (uint32_t i = 0; i < follower->later_count; i++) {
        if (follower->later[i].state == state)
            return;
    }
    if (follower->later_count == PAIRS_MAX)
        follower->full = true;
    else
        follower->later[follower->later_count++] = pair;
}

/* All bytes low..high behind a pair. */
static int follow_bytes(struct follower *follower, struct pair from, uint8_t low, uint8_t high,
                        uint8_t to)
{
    struct constraint *constraint = follower->constraint;
    const struct automaton *automaton = constraint->automaton;
    uint32_t last = automaton->byte_class[high], next;
    int r = 0;

    for (uint32_t c = automaton->byte_class[low]; r == 0 && c <= last; c++) {
        r = memo_next(&constraint->memo, from.state, c, &next);
        if (r < 0)
            return r;
        if (next == STATE_DEAD) {
            follower->run = from.level;
        } else if (to == 0) {
            follower->live = true;
            meet_later(follower, next, from.level + 1);
        } else {
            meet(follower, (struct pair){next, to, from.level});
        }
    }
    return r;
}

static int follow_pair(struct follower *follower, const struct vocabulary_slice *slice,
                       struct pair pair)
{
    int r = 0;

    for (size_t k = 0; r == 0 && pair.decoder == 0 && k < slice->range_count; k++) {
        if (slice->ranges[k].first < 0x80)
            r = follow_bytes(follower, pair, (uint8_t)slice->ranges[k].first,
                             (uint8_t)slice->ranges[k].last, 0);
    }
    for (int k = 0; r == 0 && k < DECODER_EDGES; k++) {
        if (decoder[k].from == pair.decoder && slice->ranges[slice->range_count - 1].first >= 0x80)
            r = follow_bytes(follower, pair, decoder[k].low, decoder[k].high, decoder[k].to);
    }
    return r;
}

/* Level by level, until something is dead, nothing is new, or `levels` were followed. */
static int follow(struct follower *follower, const struct vocabulary_slice *slice, uint32_t number,
                  uint32_t levels)
{
    uint32_t done = 0;
    int r = 0;

    follower->count = 0;
    follower->circular = follower->full = false;
    follower->run = UINT32_MAX;
    follower->later[0] = (struct pair){number, 0, 0};
    follower->later_count = 1;
    for (uint32_t level = 0; level < levels && follower->later_count > 0; level++) {
        for (uint32_t i = 0; i < follower->later_count; i++)
            meet(follower, follower->later[i]);
        follower->later_count = 0;
        follower->live = false;
        for (; r == 0 && done < follower->count; done++) {
            r = follow_pair(follower, slice, follower->pairs[done]);
            if (level == 0 && follower->run == 0) /* not even one character */
                return r;
        }
        if (follower->full && follower->run > level)
            follower->run = level;
        if (r < 0 || follower->run != UINT32_MAX)
            return r;
    }
    if (follower->later_count > 0)
        follower->run = levels;
    return r;
}

/* What following a slice has shown. */
static struct cover cover_shown(const struct follower *follower, const struct trie_slice *slice,
                                uint32_t levels)
{
    uint32_t index = length_index(follower->run);

    if (index == 0)
        return (struct cover){0};
    /* All lengths up to LEVELS_MAX have masks of their own. */
    return (struct cover){
        .slice = slice,
        .index = index - 1,
        .exact = follower->run == UINT32_MAX || (follower->run < levels && !follower->live &&
                                                 !follower->circular && !follower->full),
    };
}

static bool is_better(struct cover cover, struct cover than)
{
    if (!cover.slice || !than.slice)
        return cover.slice;
    if (cover.exact != than.exact)
        return cover.exact;
    return cover.slice->counts[cover.index] > than.slice->counts[than.index];
}

int cover_find_best(struct constraint *constraint, uint32_t number, struct cover *ret_cover)
{
    struct cover best = cover_find(constraint, number);
    uint32_t levels =
        best.slice && slice_lengths[best.index] <= LEVELS_MAX ? LEVELS_MAX + 1 : LEVELS_UNKNOWN;
    struct follower follower = {.constraint = constraint};
    int r = 0;

    for (unsigned s = 0; r == 0 && s < VOCABULARY_SLICE_COUNT; s++) {
        struct cover shown;

        /* Larger slices come first: those from here on would not be better. */
        if (best.slice == &constraint->vocabulary->slices[s] &&
            (best.exact || slice_lengths[best.index] > LEVELS_MAX))
            break;
        r = follow(&follower, &vocabulary_slices[s], number, levels);
        shown = cover_shown(&follower, &constraint->vocabulary->slices[s], levels);
        if (r == 0 && is_better(shown, best))
            best = shown;
    }
    if (r == 0)
        *ret_cover = best;
    return r;
}
