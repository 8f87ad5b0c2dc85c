/* constraint.c -- see constraint.h: owners, states, steps. Masks are in constraint_mask.c.
 *
 * A state is the number of a place in the memo and the numbers of the last steps. When the cache
 * has outgrown its bound, all numbers that some state holds are kept and given anew; therefore the
 * constraint knows all its states. */
#include "engine/text/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/constraint_internal.h"

enum { CACHE_BYTES = 16 << 20, WORK_MAX = 2 << 20 };

int constraint_fault(int r, struct fault *fault)
{
    if (r == E_TOO_LARGE)
        return fault_set(fault, r, "The grammar is too ambiguous: too many readings of one text");
    if (r < 0)
        return fault_set(fault, r, "There is no memory to follow the grammar");
    return r;
}

static void constraint_free(struct constraint *constraint)
{
    if (!constraint)
        return;
    memo_fini(&constraint->memo);
    constraint_finish_fini(&constraint->finish);
    automaton_close(constraint->automaton);
    free(constraint->path);
    free(constraint->allowed);
    free(constraint);
}

static int walk_room(struct constraint *constraint)
{
    const struct vocabulary_trie *vocabulary = constraint->vocabulary;

    if (!vocabulary)
        return 0;
    constraint->path = malloc((vocabulary->depth_max + (size_t)1) * sizeof *constraint->path);
    return constraint->path ? 0 : E_MEMORY;
}

int constraint_open(const struct grammar *grammar, const struct vocabulary_trie *vocabulary,
                    const struct constraint_limits *limits, struct constraint **ret_constraint,
                    struct fault *fault)
{
    struct constraint *constraint = calloc(1, sizeof *constraint);
    int r;

    if (!constraint)
        return constraint_fault(E_MEMORY, fault);
    if (limits)
        constraint->limits = *limits;
    if (constraint->limits.cache_bytes == 0)
        constraint->limits.cache_bytes = CACHE_BYTES;
    if (constraint->limits.work_max == 0)
        constraint->limits.work_max = WORK_MAX;
    constraint->room_bytes = constraint->limits.cache_bytes;
    constraint->vocabulary = vocabulary;
    atomic_init(&constraint->owners, 1);
    r = automaton_open(grammar, &constraint->automaton, fault);
    if (r < 0)
        goto out;
    r = constraint_fault(
        memo_init(&constraint->memo, constraint->automaton, constraint->limits.work_max), fault);
    if (r < 0)
        goto out;
    r = constraint_fault(walk_room(constraint), fault);
    if (r == 0 && pthread_mutex_init(&constraint->lock, NULL) != 0)
        r = constraint_fault(E_MEMORY, fault);
    if (r == 0) {
        *ret_constraint = constraint;
        constraint = NULL;
    }
out:
    constraint_free(constraint);
    return r;
}

struct constraint *constraint_share(struct constraint *constraint)
{
    atomic_fetch_add(&constraint->owners, 1);
    return constraint;
}

void constraint_close(struct constraint *constraint)
{
    if (!constraint || atomic_fetch_sub(&constraint->owners, 1) > 1)
        return;
    must(!constraint->states);
    pthread_mutex_destroy(&constraint->lock);
    constraint_free(constraint);
}

size_t constraint_cache_bytes(struct constraint *constraint)
{
    size_t bytes;

    pthread_mutex_lock(&constraint->lock);
    bytes = memo_bytes(&constraint->memo);
    pthread_mutex_unlock(&constraint->lock);
    return bytes;
}

size_t constraint_bytes(struct constraint *constraint)
{
    const struct automaton *automaton = constraint->automaton;
    size_t bytes = sizeof *constraint + sizeof *automaton +
                   automaton->code_count * sizeof *automaton->code +
                   automaton->target_count * sizeof *automaton->targets +
                   automaton->repeat_count * sizeof *automaton->repeats +
                   automaton->state_count * sizeof *automaton->states +
                   automaton->edge_count * sizeof *automaton->edges;

    if (pthread_mutex_trylock(&constraint->lock) != 0)
        return bytes + constraint->limits.cache_bytes;
    bytes += memo_bytes(&constraint->memo);
    pthread_mutex_unlock(&constraint->lock);
    return bytes;
}

uint32_t constraint_owners(struct constraint *constraint)
{
    return atomic_load(&constraint->owners);
}

/* All numbers that are held, when `into` is not NULL; returns how many. */
static size_t held_collect(struct constraint *constraint, uint32_t **into)
{
    size_t count = 0;

    for (struct constraint_state *state = constraint->states; state; state = state->next) {
        if (into)
            into[count] = &state->number;
        count++;
        for (uint32_t i = 0; i < state->past_count; i++, count++) {
            if (into)
                into[count] = &state->past[(state->past_first + i) % CONSTRAINT_ROLLBACK_MAX];
        }
    }
    for (uint32_t i = 0; i < constraint->path_count; i++, count++) {
        if (into)
            into[count] = &constraint->path[i];
    }
    if (into)
        into[count] = &constraint->here;
    return count + 1;
}

/* What is held may be more than the bound alone: then forgetting again soon would not help. */
int constraint_make_room(struct constraint *constraint)
{
    size_t count;
    uint32_t **held;
    int r;

    if (memo_bytes(&constraint->memo) <= constraint->room_bytes)
        return 0;
    count = held_collect(constraint, NULL);
    held = malloc(count * sizeof *held);
    if (!held)
        return E_MEMORY;
    held_collect(constraint, held);
    r = memo_forget(&constraint->memo, held, count);
    constraint_finish_forget(&constraint->finish);
    free(held);
    constraint->room_bytes = 2 * memo_bytes(&constraint->memo);
    if (constraint->room_bytes < constraint->limits.cache_bytes)
        constraint->room_bytes = constraint->limits.cache_bytes;
    return r;
}

/* ---- states ---- */

/* Locks for one call, whose work starts from nothing. */
static void enter(struct constraint *constraint)
{
    pthread_mutex_lock(&constraint->lock);
    constraint->memo.work = 0;
    constraint->here = STATE_DEAD;
}

static void leave(struct constraint *constraint)
{
    pthread_mutex_unlock(&constraint->lock);
}

int constraint_state_open(struct constraint *constraint, struct constraint_state **ret_state,
                          struct fault *fault)
{
    struct constraint_state *state = calloc(1, sizeof *state);

    if (!state)
        return constraint_fault(E_MEMORY, fault);
    state->constraint = constraint_share(constraint);
    enter(constraint);
    state->number = constraint->memo.start;
    state->next = constraint->states;
    state->back = &constraint->states;
    if (state->next)
        state->next->back = &state->next;
    constraint->states = state;
    leave(constraint);
    *ret_state = state;
    return 0;
}

void constraint_state_copy(struct constraint_state *to, const struct constraint_state *from)
{
    struct constraint_state *next = to->next, **back = to->back;

    must(to->constraint == from->constraint);
    enter(to->constraint);
    next = to->next;
    back = to->back;
    *to = *from;
    to->next = next;
    to->back = back;
    leave(to->constraint);
}

void constraint_state_close(struct constraint_state *state)
{
    struct constraint *constraint;

    if (!state)
        return;
    constraint = state->constraint;
    enter(constraint);
    *state->back = state->next;
    if (state->next)
        state->next->back = state->back;
    leave(constraint);
    constraint_close(constraint);
    free(state);
}

/* The state moves on to `number`; where it was goes into its past. */
static void move(struct constraint_state *state, uint32_t number, bool ended)
{
    uint32_t at;

    if (state->past_count == CONSTRAINT_ROLLBACK_MAX) {
        state->past_first = (state->past_first + 1) % CONSTRAINT_ROLLBACK_MAX;
        state->past_count--;
    }
    at = (state->past_first + state->past_count++) % CONSTRAINT_ROLLBACK_MAX;
    state->past[at] = state->number;
    state->past_ended[at] = state->ended;
    state->number = number;
    state->ended = ended;
}

/* Bytes from a state on, until they are all taken or it is dead. */
static int follow_bytes(struct constraint *constraint, const char *bytes, size_t count,
                        uint32_t *number, size_t *ret_taken)
{
    const struct automaton *automaton = constraint->automaton;
    uint32_t next = *number;
    size_t taken = 0;
    int r = 0;

    while (taken < count) {
        r = memo_next(&constraint->memo, *number, automaton->byte_class[(uint8_t)bytes[taken]],
                      &next);
        if (r < 0)
            return r;
        *number = next;
        if (next == STATE_DEAD)
            break;
        taken++;
    }
    *ret_taken = taken;
    return 0;
}

/* Long texts go through in parts: room and work are for a part. */
int constraint_state_bytes(struct constraint_state *state, const char *bytes, size_t count,
                           size_t *ret_taken, struct fault *fault)
{
    enum { PART_BYTES = 256 };
    struct constraint *constraint = state->constraint;
    uint32_t number;
    size_t taken = 0, part = 0, wanted;
    int r = 0;

    enter(constraint);
    number = state->ended ? STATE_DEAD : state->number;
    do {
        wanted = count - taken < PART_BYTES ? count - taken : PART_BYTES;
        constraint->memo.work = 0;
        constraint->here = number;
        r = constraint_make_room(constraint);
        number = constraint->here;
        if (r == 0)
            r = follow_bytes(constraint, bytes + taken, wanted, &number, &part);
        taken += r == 0 ? part : 0;
    } while (r == 0 && part == wanted && taken < count);
    if (r == 0) {
        move(state, number, false);
        *ret_taken = taken;
    }
    leave(constraint);
    if (r < 0)
        return constraint_fault(r, fault);
    return number != STATE_DEAD;
}

int constraint_state_token(struct constraint_state *state, int32_t id, struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    const char *bytes;
    size_t count, taken;
    bool complete;

    must(constraint->vocabulary);
    if (vocabulary_trie_is_end(constraint->vocabulary, id)) {
        enter(constraint);
        complete = !state->ended && memo_may_end(&constraint->memo, state->number);
        move(state, complete ? state->number : STATE_DEAD, complete);
        leave(constraint);
        return complete;
    }
    bytes = vocabulary_trie_text(constraint->vocabulary, id, &count);
    if (count == 0) {
        enter(constraint);
        move(state, STATE_DEAD, false);
        leave(constraint);
        return 0;
    }
    return constraint_state_bytes(state, bytes, count, &taken, fault);
}

int constraint_state_rollback(struct constraint_state *state, uint32_t steps)
{
    uint32_t at;

    if (steps > state->past_count)
        return E_INVALID;
    if (steps == 0)
        return 0;
    enter(state->constraint);
    state->past_count -= steps;
    at = (state->past_first + state->past_count) % CONSTRAINT_ROLLBACK_MAX;
    state->number = state->past[at];
    state->ended = state->past_ended[at];
    leave(state->constraint);
    return 0;
}

bool constraint_state_is_complete(const struct constraint_state *state)
{
    bool complete;

    enter(state->constraint);
    complete = state->ended || memo_may_end(&state->constraint->memo, state->number);
    leave(state->constraint);
    return complete;
}

bool constraint_state_is_dead(const struct constraint_state *state)
{
    bool dead;

    enter(state->constraint);
    dead = state->number == STATE_DEAD;
    leave(state->constraint);
    return dead;
}

bool constraint_state_is_ended(const struct constraint_state *state)
{
    return state->ended;
}

int constraint_state_mask(struct constraint_state *state, uint32_t *words, size_t word_count,
                          struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    const struct vocabulary_trie *vocabulary = constraint->vocabulary;
    uint32_t any = 0;
    int r = 0;

    must(vocabulary);
    enter(constraint);
    if (state->ended || state->number == STATE_DEAD) {
        memset(words, 0, word_count * sizeof *words);
        leave(constraint);
        return 0;
    }
    r = constraint_make_room(constraint);
    if (r == 0)
        r = constraint_mask_write(constraint, state->number, words, word_count);
    if (r == 0 && memo_may_end(&constraint->memo, state->number)) {
        for (uint32_t i = 0; i < vocabulary->end_count; i++) {
            if ((uint32_t)vocabulary->ends[i] / 32 < word_count)
                words[vocabulary->ends[i] / 32] |= 1u << vocabulary->ends[i] % 32;
        }
    }
    leave(constraint);
    if (r < 0)
        return constraint_fault(r, fault);
    for (size_t i = 0; i < word_count; i++)
        any |= words[i];
    return any != 0;
}

/* ---- what must follow ---- */

/* The one byte that can follow a state; false: none, or several. */
static bool forced_byte(const struct constraint *constraint, uint32_t number, uint8_t *ret_byte)
{
    const struct automaton *automaton = constraint->automaton;
    uint32_t count;
    const struct place *places = memo_places(&constraint->memo, number, &count);

    for (uint32_t i = 0; i < count; i++) {
        const struct machine_state *state = &automaton->states[places[i].machine];
        const struct machine_edge *edge = &automaton->edges[state->first];

        if (state->count != 1 || edge->low != edge->high || (i > 0 && edge->low != *ret_byte))
            return false;
        *ret_byte = edge->low;
    }
    return count > 0;
}

int constraint_state_forced(struct constraint_state *state, char *bytes, size_t room,
                            struct fault *fault)
{
    struct constraint *constraint = state->constraint;
    size_t count = 0;
    uint32_t number;
    int r;

    enter(constraint);
    r = constraint_make_room(constraint);
    number = state->number;
    while (r == 0 && count < room && count < INT32_MAX && !state->ended) {
        uint8_t byte = 0;

        if (memo_may_end(&constraint->memo, number) || !forced_byte(constraint, number, &byte))
            break;
        r = memo_next(&constraint->memo, number, constraint->automaton->byte_class[byte], &number);
        if (r == 0)
            bytes[count++] = (char)byte;
    }
    leave(constraint);
    return r < 0 ? constraint_fault(r, fault) : (int)count;
}
