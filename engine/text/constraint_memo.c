/* constraint_memo.c -- see constraint_memo.h.
 *
 * A step takes the byte in every place and then follows, from where machines have ended, all that
 * reads nothing. Frames that are pushed on the way are fresh: they are found by (instruction,
 * count), may get more frames below them while the step lasts, and are numbered at its end. Nothing
 * is left-recursive, so fresh frames never go round.
 *
 * A rule or a round of a repetition that comes to its end with its frame still fresh has matched
 * the empty text. That is not followed: whoever called it went past it in the first place, knowing
 * that it can be empty. */
#include "engine/text/constraint_memo.h"

#include <stdlib.h>
#include <string.h>

#define FRESH 0x80000000u

enum {
    PLACES_MAX = 1 << 14,
    TABLE_FIRST = 64,
    FRESH_WORDS = 4,
    FRAME_WORDS = 3,
};

/* ---- lists and tables of one step ---- */

static int list_put(struct item_list *list, const uint32_t *words, uint32_t count)
{
    if (list->count + count > list->room) {
        uint32_t room = list->room ? list->room * 2 : 64;
        uint32_t *grown;

        while (room < list->count + count)
            room *= 2;
        grown = realloc(list->words, room * sizeof *grown);
        if (!grown)
            return E_MEMORY;
        list->words = grown;
        list->room = room;
    }
    memcpy(list->words + list->count, words, count * sizeof *words);
    list->count += count;
    return 0;
}

static uint32_t pair_slot(const struct pair_table *table, uint64_t key)
{
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    uint32_t at = (uint32_t)(hash >> 32) & (table->slot_count - 1);

    while (table->rounds[at] == table->round && table->keys[at] != key)
        at = (at + 1) & (table->slot_count - 1);
    return at;
}

static void pair_fini(struct pair_table *table)
{
    free(table->keys);
    free(table->values);
    free(table->rounds);
    *table = (struct pair_table){0};
}

static int pair_grow(struct pair_table *table)
{
    struct pair_table grown = {.slot_count =
                                   table->slot_count ? table->slot_count * 2 : TABLE_FIRST,
                               .count = table->count,
                               .round = 1};

    grown.keys = malloc(grown.slot_count * sizeof *grown.keys);
    grown.values = malloc(grown.slot_count * sizeof *grown.values);
    grown.rounds = calloc(grown.slot_count, sizeof *grown.rounds);
    if (!grown.keys || !grown.values || !grown.rounds) {
        pair_fini(&grown);
        return E_MEMORY;
    }
    for (uint32_t i = 0; i < table->slot_count; i++) {
        uint32_t at;

        if (table->rounds[i] != table->round)
            continue;
        at = pair_slot(&grown, table->keys[i]);
        grown.keys[at] = table->keys[i];
        grown.values[at] = table->values[i];
        grown.rounds[at] = 1;
    }
    pair_fini(table);
    *table = grown;
    return 0;
}

static void pair_forget(struct pair_table *table)
{
    table->count = 0;
    if (++table->round == 0) {
        memset(table->rounds, 0, table->slot_count * sizeof *table->rounds);
        table->round = 1;
    }
}

/* 1 when the pair is new and has got the value, 0 with the value it had, or E_MEMORY. */
static int pair_put(struct pair_table *table, uint32_t first, uint32_t second, uint32_t *value)
{
    uint64_t key = (uint64_t)first << 32 | second;
    uint32_t at;

    if (2 * (table->count + 1) > table->slot_count) {
        int r = pair_grow(table);

        if (r < 0)
            return r;
    }
    at = pair_slot(table, key);
    if (table->rounds[at] == table->round) {
        *value = table->values[at];
        return 0;
    }
    table->rounds[at] = table->round;
    table->keys[at] = key;
    table->values[at] = *value;
    table->count++;
    return 1;
}

/* ---- one step ---- */

static int item_put(struct memo *memo, uint32_t at, uint32_t frame)
{
    uint32_t item[2] = {at, frame}, value = 0;
    int r = pair_put(&memo->seen, at, frame, &value);

    return r <= 0 ? r : list_put(&memo->items, item, 2);
}

/* Goes on at `entry` with a frame (at, count) above `below`. */
static int frame_push(struct memo *memo, uint32_t at, uint32_t count, uint32_t below,
                      uint32_t entry)
{
    uint32_t fresh = memo->fresh.count / FRESH_WORDS, edge[2] = {below, 0};
    int r = pair_put(&memo->fresh_numbers, at, count, &fresh);

    if (r > 0)
        r = list_put(&memo->fresh, (uint32_t[FRESH_WORDS]){at, count, 0, UINT32_MAX}, FRESH_WORDS);
    if (r < 0)
        return r;
    edge[1] = memo->fresh.words[fresh * FRESH_WORDS + 2];
    r = list_put(&memo->edges, edge, 2);
    if (r < 0)
        return r;
    memo->fresh.words[fresh * FRESH_WORDS + 2] = memo->edges.count / 2;
    memo->work++;
    return item_put(memo, entry, fresh | FRESH);
}

static int follow_return(struct memo *memo, uint32_t frame)
{
    const uint32_t *words, *below;
    uint32_t count;
    int r = 0;

    words = interner_get(&memo->frames, frame, &count);
    below = interner_get(&memo->sets, words[2], &count);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = item_put(memo, words[0], below[i]);
    memo->work += count;
    return r;
}

static int follow_again(struct memo *memo, const struct automaton_repeat *repeat, uint32_t frame)
{
    bool bounded = repeat->high != UINT32_MAX;
    const uint32_t *words, *below;
    uint32_t count, times;
    int r = 0;

    words = interner_get(&memo->frames, frame, &count);
    below = interner_get(&memo->sets, words[2], &count);
    times = words[1] + 1;
    if (!bounded && times > repeat->low)
        times = repeat->low;
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        if (!bounded || times < repeat->high)
            r = frame_push(memo, repeat->body, times, below[i], repeat->body);
        if (r == 0 && times >= repeat->low)
            r = item_put(memo, repeat->exit, below[i]);
    }
    memo->work += count;
    return r;
}

static int follow(struct memo *memo, uint32_t at, uint32_t frame, bool *may_end)
{
    const struct automaton *automaton = memo->automaton;
    const struct automaton_instruction *here = &automaton->code[at];
    const struct automaton_repeat *repeat;
    int r = 0;

    switch ((enum automaton_op)here->op) {
    case OP_MATCH:
        return list_put(&memo->places, (uint32_t[PLACE_WORDS]){at, here->to, frame}, PLACE_WORDS);
    case OP_JUMP:
        return item_put(memo, here->next, frame);
    case OP_SPLIT:
        for (uint32_t i = 0; r == 0 && i < here->count; i++)
            r = item_put(memo, automaton->targets[here->to + i], frame);
        memo->work += here->count;
        return r;
    case OP_CALL:
        r = here->tail ? item_put(memo, here->to, frame)
                       : frame_push(memo, here->next, 0, frame, here->to);
        return r == 0 && here->nullable ? item_put(memo, here->next, frame) : r;
    case OP_RETURN:
        if (frame == FRAME_BOTTOM)
            *may_end = true;
        else if (!(frame & FRESH))
            return follow_return(memo, frame);
        return 0;
    case OP_REPEAT:
        repeat = &automaton->repeats[here->to];
        r = frame_push(memo, repeat->body, 0, frame, repeat->body);
        return r == 0 && repeat->low == 0 ? item_put(memo, repeat->exit, frame) : r;
    case OP_AGAIN:
        return frame & FRESH ? 0 : follow_again(memo, &automaton->repeats[here->to], frame);
    }
    return 0;
}

static int compare_words(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static uint32_t words_unique(uint32_t *words, uint32_t count)
{
    uint32_t kept = 0;

    if (count > 1)
        qsort(words, count, sizeof *words, compare_words);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || words[kept - 1] != words[i])
            words[kept++] = words[i];
    }
    return kept;
}

/* Numbers the fresh frame on top of `todo`, or puts those below it that have no number yet on top
 * of it. */
static int fresh_number(struct memo *memo)
{
    uint32_t fresh = memo->todo.words[memo->todo.count - 1], waiting = memo->todo.count;
    uint32_t *words = memo->fresh.words + fresh * FRESH_WORDS, number[FRAME_WORDS];
    int r = 0;

    memo->below.count = 0;
    for (uint32_t edge = words[2]; r == 0 && edge > 0; edge = memo->edges.words[2 * edge - 1]) {
        uint32_t below = memo->edges.words[2 * edge - 2];
        uint32_t known = below;

        if (below & FRESH)
            known = memo->fresh.words[(below & ~FRESH) * FRESH_WORDS + 3];
        if (known == UINT32_MAX)
            r = list_put(&memo->todo, (uint32_t[]){below & ~FRESH}, 1);
        else
            r = list_put(&memo->below, &known, 1);
    }
    if (r < 0 || memo->todo.count > waiting)
        return r;
    memo->work += memo->below.count;
    number[0] = words[0];
    number[1] = words[1];
    r = interner_put(&memo->sets, memo->below.words,
                     words_unique(memo->below.words, memo->below.count), &number[2]);
    if (r == 0)
        r = interner_put(&memo->frames, number, FRAME_WORDS, &words[3]);
    if (r == 0)
        memo->todo.count--;
    return r;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *left = a, *right = b;

    if (left->at != right->at)
        return left->at < right->at ? -1 : 1;
    if (left->machine != right->machine)
        return left->machine < right->machine ? -1 : 1;
    return left->frame < right->frame ? -1 : left->frame > right->frame;
}

/* The places with all their frames numbered, sorted, each once. */
static int places_settle(struct memo *memo)
{
    struct place *places = (struct place *)(memo->places.words + 1);
    uint32_t count = memo->places.count / PLACE_WORDS, kept = 0;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < count; i++) {
        uint32_t fresh = places[i].frame & ~FRESH;

        if (!(places[i].frame & FRESH))
            continue;
        memo->todo.count = 0;
        if (memo->fresh.words[fresh * FRESH_WORDS + 3] == UINT32_MAX)
            r = list_put(&memo->todo, &fresh, 1);
        while (r == 0 && memo->todo.count > 0) {
            fresh = memo->todo.words[memo->todo.count - 1];
            if (memo->fresh.words[fresh * FRESH_WORDS + 3] == UINT32_MAX)
                r = fresh_number(memo);
            else
                memo->todo.count--;
        }
        fresh = places[i].frame & ~FRESH;
        if (r == 0)
            places[i].frame = memo->fresh.words[fresh * FRESH_WORDS + 3];
    }
    if (r < 0)
        return r;
    if (count > 1)
        qsort(places, count, sizeof *places, compare_places);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || compare_places(&places[kept - 1], &places[i]) != 0)
            places[kept++] = places[i];
    }
    memo->places.count = 1 + kept * PLACE_WORDS;
    return kept > PLACES_MAX ? E_TOO_LARGE : 0;
}

/* Room for a row, a note and a mark of one state more. */
static int rows_grow(struct memo *memo)
{
    uint32_t room = memo->row_room ? memo->row_room * 2 : 64;
    size_t row_bytes = memo->automaton->class_count * sizeof *memo->rows;
    uint32_t *rows;
    struct memo_note **notes;
    uint32_t *marks;

    if (memo->states.count < memo->row_room)
        return 0;
    rows = realloc(memo->rows, room * row_bytes);
    if (!rows)
        return E_MEMORY;
    memo->rows = rows;
    notes = realloc(memo->notes, room * sizeof *notes);
    if (!notes)
        return E_MEMORY;
    memo->notes = notes;
    marks = realloc(memo->marks, room * sizeof *marks);
    if (!marks)
        return E_MEMORY;
    memo->marks = marks;
    memset((char *)rows + memo->row_room * row_bytes, 0xFF, (room - memo->row_room) * row_bytes);
    memset(notes + memo->row_room, 0, (room - memo->row_room) * sizeof *notes);
    memset(marks + memo->row_room, 0, (room - memo->row_room) * sizeof *marks);
    memo->row_room = room;
    return 0;
}

static int step_begin(struct memo *memo)
{
    uint32_t may_end = 0;

    memo->items.count = 0;
    memo->places.count = 0;
    memo->fresh.count = 0;
    memo->edges.count = 0;
    pair_forget(&memo->seen);
    pair_forget(&memo->fresh_numbers);
    return list_put(&memo->places, &may_end, 1);
}

static int step_end(struct memo *memo, uint32_t *ret_state)
{
    bool may_end = false;
    uint32_t state;
    int r = 0;

    while (r == 0 && memo->items.count > 0) {
        uint32_t *item = memo->items.words + (memo->items.count -= 2);

        if (++memo->work > memo->work_max)
            return E_TOO_LARGE;
        r = follow(memo, item[0], item[1], &may_end);
    }
    if (r == 0)
        r = places_settle(memo);
    if (r == 0)
        r = rows_grow(memo);
    if (r < 0)
        return r;
    memo->places.words[0] = may_end;
    r = interner_put(&memo->states, memo->places.words, memo->places.count, &state);
    if (r == 0)
        *ret_state = state;
    return r;
}

int memo_step(struct memo *memo, uint32_t state, uint32_t byte_class, uint32_t *ret_state)
{
    const struct automaton *automaton = memo->automaton;
    uint8_t byte = automaton->class_byte[byte_class];
    const struct place *places;
    uint32_t count, next;
    int r;

    places = memo_places(memo, state, &count);
    memo->work += 1 + count;
    if (memo->work > memo->work_max)
        return E_TOO_LARGE;
    r = step_begin(memo);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        uint32_t behind;

        if (!machine_step(automaton, places[i].machine, byte, &behind))
            continue;
        if (automaton->states[behind].count > 0)
            r = list_put(&memo->places, (uint32_t[]){places[i].at, behind, places[i].frame},
                         PLACE_WORDS);
        if (r == 0 && automaton->states[behind].accept)
            r = item_put(memo, automaton->code[places[i].at].next, places[i].frame);
    }
    if (r == 0)
        r = step_end(memo, &next);
    if (r < 0)
        return r;
    memo->rows[(size_t)state * automaton->class_count + byte_class] = next;
    *ret_state = next;
    return 0;
}

/* ---- the memo ---- */

static int tables_make(struct memo *memo)
{
    uint32_t frame[FRAME_WORDS] = {UINT32_MAX, 0, 0}, dead = 0, number;
    int r = interner_put(&memo->sets, NULL, 0, &number);

    if (r == 0)
        r = interner_put(&memo->frames, frame, FRAME_WORDS, &number);
    if (r == 0)
        r = rows_grow(memo);
    if (r == 0)
        r = interner_put(&memo->states, &dead, 1, &number);
    if (r == 0)
        r = pair_grow(&memo->seen);
    if (r == 0)
        r = pair_grow(&memo->fresh_numbers);
    return r;
}

int memo_init(struct memo *memo, const struct automaton *automaton, uint64_t work_max)
{
    int r;

    *memo = (struct memo){.automaton = automaton, .work_max = work_max};
    r = tables_make(memo);
    if (r == 0)
        r = step_begin(memo);
    if (r == 0)
        r = item_put(memo, automaton->start, FRAME_BOTTOM);
    if (r == 0)
        r = step_end(memo, &memo->start);
    if (r < 0)
        memo_fini(memo);
    return r;
}

void memo_fini(struct memo *memo)
{
    for (uint32_t i = 0; i < memo->states.count && memo->notes; i++)
        free(memo->notes[i]);
    interner_fini(&memo->sets);
    interner_fini(&memo->frames);
    interner_fini(&memo->states);
    free(memo->rows);
    free(memo->notes);
    free(memo->marks);
    free(memo->items.words);
    free(memo->places.words);
    free(memo->fresh.words);
    free(memo->edges.words);
    free(memo->below.words);
    free(memo->todo.words);
    pair_fini(&memo->seen);
    pair_fini(&memo->fresh_numbers);
    *memo = (struct memo){0};
}

void memo_note_put(struct memo *memo, uint32_t state, struct memo_note *note)
{
    must(!memo->notes[state]);
    memo->notes[state] = note;
    memo->note_bytes += note->bytes;
}

bool memo_may_end(const struct memo *memo, uint32_t state)
{
    uint32_t count;

    return interner_get(&memo->states, state, &count)[0] != 0;
}

const struct place *memo_places(const struct memo *memo, uint32_t state, uint32_t *ret_count)
{
    uint32_t count;
    const uint32_t *words = interner_get(&memo->states, state, &count);

    *ret_count = (count - 1) / PLACE_WORDS;
    return (const struct place *)(words + 1);
}

uint32_t memo_frame_count(const struct memo *memo, uint32_t frame)
{
    uint32_t count;

    return interner_get(&memo->frames, frame, &count)[1];
}

size_t memo_bytes(const struct memo *memo)
{
    size_t row_bytes = memo->automaton->class_count * sizeof *memo->rows + sizeof *memo->notes;

    return interner_bytes(&memo->sets) + interner_bytes(&memo->frames) +
           interner_bytes(&memo->states) + memo->states.count * row_bytes + memo->note_bytes;
}

/* ---- forgetting ---- */

/* Copies the frames marked in `numbers` (not 0), which get their new numbers there. What lies below
 * a frame has a smaller number. */
static int frames_copy(const struct memo *from, struct memo *to, uint32_t *numbers)
{
    struct item_list below = {0};
    uint32_t count;
    int r = 0;

    for (uint32_t frame = from->frames.count; frame-- > 1;) {
        const uint32_t *set;

        if (numbers[frame] == 0)
            continue;
        set = interner_get(&from->sets, interner_get(&from->frames, frame, &count)[2], &count);
        for (uint32_t i = 0; i < count; i++)
            numbers[set[i]] = 1;
    }
    numbers[FRAME_BOTTOM] = FRAME_BOTTOM;
    for (uint32_t frame = 1; r == 0 && frame < from->frames.count; frame++) {
        const uint32_t *words = interner_get(&from->frames, frame, &count), *set;
        uint32_t made[FRAME_WORDS] = {words[0], words[1], 0};

        if (numbers[frame] == 0)
            continue;
        set = interner_get(&from->sets, words[2], &count);
        below.count = 0;
        for (uint32_t i = 0; r == 0 && i < count; i++)
            r = list_put(&below, &numbers[set[i]], 1);
        if (r == 0)
            r = interner_put(&to->sets, below.words, words_unique(below.words, below.count),
                             &made[2]);
        if (r == 0)
            r = interner_put(&to->frames, made, FRAME_WORDS, &numbers[frame]);
    }
    free(below.words);
    return r;
}

static int state_copy(const struct memo *from, struct memo *to, uint32_t state,
                      const uint32_t *numbers, uint32_t *ret_state)
{
    uint32_t count, may_end = memo_may_end(from, state);
    const struct place *places = memo_places(from, state, &count);
    int r;

    to->places.count = 0;
    r = list_put(&to->places, &may_end, 1);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = list_put(&to->places,
                     (uint32_t[]){places[i].at, places[i].machine, numbers[places[i].frame]},
                     PLACE_WORDS);
    if (r == 0)
        r = places_settle(to);
    if (r == 0)
        r = rows_grow(to);
    return r < 0 ? r : interner_put(&to->states, to->places.words, to->places.count, ret_state);
}

int memo_forget(struct memo *memo, uint32_t **states, size_t count)
{
    struct memo kept = {
        .automaton = memo->automaton, .work = memo->work, .work_max = memo->work_max};
    uint32_t *made = malloc((count + 1) * sizeof *made);
    uint32_t *numbers = calloc(memo->frames.count, sizeof *numbers);
    int r = made && numbers ? tables_make(&kept) : E_MEMORY;

    for (size_t i = 0; r == 0 && i <= count; i++) {
        uint32_t place_count, state = i < count ? *states[i] : memo->start;
        const struct place *places = memo_places(memo, state, &place_count);

        for (uint32_t j = 0; j < place_count; j++)
            numbers[places[j].frame] = 1;
    }
    if (r == 0)
        r = frames_copy(memo, &kept, numbers);
    for (size_t i = 0; r == 0 && i <= count; i++)
        r = state_copy(memo, &kept, i < count ? *states[i] : memo->start, numbers, &made[i]);
    if (r == 0) {
        kept.start = made[count];
        for (size_t i = 0; i < count; i++)
            *states[i] = made[i];
        memo_fini(memo);
        *memo = kept;
    } else {
        memo_fini(&kept);
    }
    free(numbers);
    free(made);
    return r;
}
