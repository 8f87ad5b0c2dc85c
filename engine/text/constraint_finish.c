/* constraint_finish.c -- constraint.h: how far the end of the text is, and the way there.
 *
 * The shortest way from a place is what is left of its machine, then of its rule or round
 * (automaton_distance.h), then of all that its frames return to. Frames are numbered above those
 * below them, so what each still asks for is worked out in order, once, until the memo forgets. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/constraint_internal.h"

/* The least that follows once the rule or round on top of this frame has come to its end. */
static uint32_t frame_distance(const struct constraint *constraint, uint32_t frame)
{
    const struct memo *memo = &constraint->memo;
    const struct constraint_finish *finish = &constraint->finish;
    const struct automaton_repeat *repeat;
    const uint32_t *words, *below;
    uint32_t count, least = DISTANCE_MAX, at, times;

    if (frame == FRAME_BOTTOM)
        return 0;
    words = interner_get(&memo->frames, frame, &count);
    at = words[0];
    times = words[1] + 1;
    below = interner_get(&memo->sets, words[2], &count);
    for (uint32_t i = 0; i < count; i++)
        if (finish->frames[below[i]] < least)
            least = finish->frames[below[i]];
    if (finish->distances.rounds[at] == 0)
        return distance_add(least, finish->distances.code[at], 1);
    repeat = &constraint->automaton->repeats[finish->distances.rounds[at] - 1];
    least = distance_add(least, finish->distances.code[repeat->exit], 1);
    return distance_add(least, finish->distances.code[at],
                        repeat->low > times ? repeat->low - times : 0);
}

static int frames_measure(struct constraint *constraint)
{
    struct constraint_finish *finish = &constraint->finish;
    uint32_t wanted = constraint->memo.frames.count;

    if (wanted > finish->frame_room) {
        uint32_t room = 2 * wanted;
        uint32_t *frames = realloc(finish->frames, room * sizeof *frames);

        if (!frames)
            return E_MEMORY;
        finish->frames = frames;
        finish->frame_room = room;
    }
    for (; finish->frame_count < wanted; finish->frame_count++)
        finish->frames[finish->frame_count] = frame_distance(constraint, finish->frame_count);
    return 0;
}

/* Entries for all states that there are; those of states that are new say unknown. */
static int states_grow(struct constraint *constraint)
{
    struct constraint_finish *finish = &constraint->finish;
    uint32_t wanted = constraint->memo.states.count;

    if (wanted > finish->state_room) {
        uint32_t room = 2 * wanted;
        struct state_finish *states = realloc(finish->states, room * sizeof *states);

        if (!states)
            return E_MEMORY;
        finish->states = states;
        finish->state_room = room;
    }
    for (; finish->state_count < wanted; finish->state_count++)
        finish->states[finish->state_count] =
            (struct state_finish){DISTANCE_UNKNOWN, DISTANCE_UNKNOWN, DISTANCE_UNKNOWN};
    return 0;
}

/* Bytes to the end from a state that is alive, worked out. */
static int measure(struct constraint *constraint, uint32_t number, uint32_t *ret_distance)
{
    const struct automaton_distances *distances = &constraint->finish.distances;
    uint32_t count, least = DISTANCE_MAX;
    const struct place *places;
    int r = frames_measure(constraint);

    if (r < 0)
        return r;
    if (memo_may_end(&constraint->memo, number))
        least = 0;
    places = memo_places(&constraint->memo, number, &count);
    for (uint32_t i = 0; i < count && least > 0; i++) {
        uint32_t one =
            distance_add(distances->states[places[i].machine],
                         distances->code[constraint->automaton->code[places[i].at].next], 1);

        one = distance_add(one, constraint->finish.frames[places[i].frame], 1);
        least = one < least ? one : least;
    }
    *ret_distance = least;
    return 0;
}

int constraint_finish_distance(struct constraint *constraint, uint32_t number,
                               uint32_t *ret_distance)
{
    struct constraint_finish *finish = &constraint->finish;
    int r = number < finish->state_count ? 0 : states_grow(constraint);

    if (r == 0 && finish->states[number].distance == DISTANCE_UNKNOWN)
        r = measure(constraint, number, &finish->states[number].distance);
    if (r == 0)
        *ret_distance = finish->states[number].distance;
    return r;
}

void constraint_finish_forget(struct constraint_finish *finish)
{
    finish->frame_count = 0;
    finish->state_count = 0;
}

static int finish_begin(struct constraint *constraint)
{
    if (constraint->finish.distances.code)
        return 0;
    return automaton_distances_init(&constraint->finish.distances, constraint->automaton);
}

void constraint_finish_fini(struct constraint_finish *finish)
{
    automaton_distances_fini(&finish->distances);
    free(finish->frames);
    free(finish->states);
    *finish = (struct constraint_finish){0};
}

/* The state nearest to the end among those a byte away from `number`, and that byte. */
static int nearest(struct constraint *constraint, uint32_t *number, uint8_t *ret_byte,
                   uint32_t *distance)
{
    const struct automaton *automaton = constraint->automaton;
    uint32_t from = *number, least = DISTANCE_MAX;

    for (uint32_t c = 0; c < automaton->class_count; c++) {
        uint32_t next, one;
        int r = memo_next(&constraint->memo, from, c, &next);

        if (r < 0)
            return r;
        if (next == STATE_DEAD)
            continue;
        r = constraint_finish_distance(constraint, next, &one);
        if (r < 0)
            return r;
        if (one >= least)
            continue;
        least = one;
        *number = next;
        *ret_byte = automaton->class_byte[c];
    }
    *distance = least;
    return 0;
}

/* With the lock held; *ret_count bytes of the shortest way, at most `room`. */
static int way_find(struct constraint *constraint, uint32_t number, char *bytes, size_t room,
                    size_t *ret_count)
{
    uint32_t distance;
    size_t count = 0;
    int r = constraint_finish_distance(constraint, number, &distance);

    while (r == 0 && distance > 0 && count < room) {
        uint8_t byte = 0;

        constraint->here = number;
        constraint->memo.work = 0;
        r = nearest(constraint, &number, &byte, &distance);
        if (r == 0)
            bytes[count++] = (char)byte;
    }
    *ret_count = count;
    return r;
}

static void enter(struct constraint *constraint)
{
    pthread_mutex_lock(&constraint->lock);
    constraint->memo.work = 0;
    constraint->here = STATE_DEAD;
}

int64_t constraint_state_distance(struct constraint_state *state, struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    uint32_t distance = DISTANCE_MAX;
    int r;

    enter(constraint);
    r = finish_begin(constraint);
    if (r == 0 && state->ended)
        distance = 0;
    else if (r == 0 && state->number != STATE_DEAD)
        r = constraint_finish_distance(constraint, state->number, &distance);
    pthread_mutex_unlock(&constraint->lock);
    return r < 0 ? constraint_fault(r, fault) : (int64_t)distance;
}

int constraint_state_finish(struct constraint_state *state, char *bytes, size_t room,
                            struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    size_t count = 0;
    int r;

    enter(constraint);
    r = finish_begin(constraint);
    if (r == 0 && !state->ended && state->number != STATE_DEAD) {
        r = constraint_make_room(constraint);
        if (r == 0)
            r = way_find(constraint, state->number, bytes, room, &count);
    }
    pthread_mutex_unlock(&constraint->lock);
    return r < 0 ? constraint_fault(r, fault) : (int)count;
}
