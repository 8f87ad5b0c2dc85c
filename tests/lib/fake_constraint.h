/* fake_constraint.h -- constraint.h without a grammar, for tests of the scheduler: masks are made
 * when the test allows it, and calls fail when it says so.
 *
 * Tokens. The n-th token of the text must be one with n % 10 as its last digit. Of `period` tokens
 * the first `forced` have no choice: such a one must be 10 + n % 10. From `complete_from` tokens on
 * the text may end, at `ends_at` it must. A token's text is its number in brackets: "<17>".
 *
 * Everything is here, so one file of a program includes it; what contradicts the contract aborts
 * (must): the mask threads are not cmocka's. */
#ifndef WEFT_TEST_FAKE_CONSTRAINT_H
#define WEFT_TEST_FAKE_CONSTRAINT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/constraint.h"

enum { FAKE_TOKENS = 1000, FAKE_END = FAKE_TOKENS - 1, FAKE_TEXT_BYTES = 8 };

struct fake_rules {
    uint32_t period; /* 0: nothing is forced */
    uint32_t forced;
    uint32_t complete_from; /* 0: only at ends_at */
    uint32_t ends_at;       /* 0: never */
    uint32_t fails_at;      /* the mask of this token fails; 0: none does */
    int fail_code;
    bool waits_for_permits; /* a mask is made when fake_constraint_permit() allows it */
};

struct constraint {
    struct fake_rules rules;
    atomic_uint owners;
    _Atomic uint64_t masks; /* that were asked for */
    char texts[FAKE_TOKENS][FAKE_TEXT_BYTES];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    uint64_t permitted;
};

struct constraint_state {
    struct constraint *constraint;
    uint32_t count;
    bool ended;
    atomic_flag used; /* by one thread at a time */
};

static inline struct constraint *fake_constraint_open(const struct fake_rules *rules)
{
    struct constraint *constraint = calloc(1, sizeof *constraint);

    must(constraint);
    constraint->rules = *rules;
    constraint->owners = 1;
    for (int i = 0; i < FAKE_TOKENS; i++)
        (void)snprintf(constraint->texts[i], FAKE_TEXT_BYTES, "<%d>", i);
    pthread_mutex_init(&constraint->lock, NULL);
    pthread_cond_init(&constraint->changed, NULL);
    constraint->permitted = rules->waits_for_permits ? 0 : UINT64_MAX;
    return constraint;
}

static inline void fake_constraint_permit(struct constraint *constraint, uint64_t count)
{
    pthread_mutex_lock(&constraint->lock);
    constraint->permitted =
        count > UINT64_MAX - constraint->permitted ? UINT64_MAX : constraint->permitted + count;
    pthread_cond_broadcast(&constraint->changed);
    pthread_mutex_unlock(&constraint->lock);
}

static inline bool fake_is_forced(const struct fake_rules *rules, uint32_t n)
{
    return rules->period > 0 && n % rules->period < rules->forced;
}

static inline bool fake_follows(const struct fake_rules *rules, uint32_t n, int32_t token)
{
    if (fake_is_forced(rules, n))
        return (uint32_t)token == 10 + n % 10;
    return token != FAKE_END && (uint32_t)token % 10 == n % 10;
}

static inline bool fake_may_end(const struct fake_rules *rules, uint32_t n)
{
    return (rules->complete_from > 0 && n >= rules->complete_from) ||
           (rules->ends_at > 0 && n >= rules->ends_at);
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
    pthread_mutex_destroy(&constraint->lock);
    pthread_cond_destroy(&constraint->changed);
    free(constraint);
}

int constraint_state_open(struct constraint *constraint, struct constraint_state **ret_state,
                          struct fault *fault)
{
    struct constraint_state *state = calloc(1, sizeof *state);

    (void)fault;
    must(state);
    atomic_flag_clear(&state->used);
    state->constraint = constraint_share(constraint);
    *ret_state = state;
    return 0;
}

void constraint_state_close(struct constraint_state *state)
{
    if (!state)
        return;
    must(!atomic_flag_test_and_set(&state->used));
    constraint_close(state->constraint);
    free(state);
}

int constraint_state_token(struct constraint_state *state, int32_t id, struct fault *fault)
{
    (void)fault;
    must(!atomic_flag_test_and_set(&state->used));
    must(!state->ended);
    if (id == FAKE_END) {
        must(fake_may_end(&state->constraint->rules, state->count));
        state->ended = true;
    } else {
        must(fake_follows(&state->constraint->rules, state->count++, id));
    }
    atomic_flag_clear(&state->used);
    return 1;
}

/* What follows the text behind which it begins: dead where that is a 9. */
int constraint_state_bytes(struct constraint_state *state, const char *bytes, size_t count,
                           size_t *ret_taken, struct fault *fault)
{
    (void)fault;
    must(state->count == 0);
    *ret_taken = count;
    return bytes[0] != '9';
}

bool constraint_state_is_complete(const struct constraint_state *state)
{
    return fake_may_end(&state->constraint->rules, state->count);
}

bool constraint_state_is_ended(const struct constraint_state *state)
{
    return state->ended;
}

static inline void fake_wait_for_permit(struct constraint *constraint)
{
    pthread_mutex_lock(&constraint->lock);
    while (constraint->permitted == 0)
        pthread_cond_wait(&constraint->changed, &constraint->lock);
    constraint->permitted -= constraint->permitted < UINT64_MAX;
    pthread_mutex_unlock(&constraint->lock);
}

int constraint_state_mask_within(struct constraint_state *state, uint32_t tokens_left,
                                 uint32_t *words, size_t word_count, struct fault *fault)
{
    const struct fake_rules *rules = &state->constraint->rules;

    must(tokens_left > 0 && word_count >= (FAKE_TOKENS + 31) / 32);
    must(!atomic_flag_test_and_set(&state->used));
    atomic_fetch_add(&state->constraint->masks, 1);
    fake_wait_for_permit(state->constraint);
    memset(words, 0, word_count * sizeof *words);
    for (int32_t id = 0; id < FAKE_TOKENS; id++)
        if (rules->ends_at == 0 || state->count < rules->ends_at)
            words[id / 32] |= (uint32_t)fake_follows(rules, state->count, id) << id % 32;
    if (fake_may_end(rules, state->count))
        words[FAKE_END / 32] |= 1u << FAKE_END % 32;
    atomic_flag_clear(&state->used);
    if (rules->fails_at > 0 && state->count >= rules->fails_at)
        return fault_set(fault, rules->fail_code, "It failed, as it was told to");
    return 1;
}

int constraint_state_jump(struct constraint_state *state, uint32_t least, int32_t *tokens,
                          uint32_t room, struct fault *fault)
{
    const struct fake_rules *rules = &state->constraint->rules;
    uint32_t count = 0;

    (void)fault;
    must(!atomic_flag_test_and_set(&state->used));
    while (count < room && fake_is_forced(rules, state->count + count) &&
           (rules->ends_at == 0 || state->count + count + 1 < rules->ends_at)) {
        tokens[count] = (int32_t)(10 + (state->count + count) % 10);
        count++;
    }
    count = count < least ? 0 : count;
    state->count += count;
    atomic_flag_clear(&state->used);
    return (int)count;
}

const char *constraint_token_text(const struct constraint *constraint, int32_t id,
                                  size_t *ret_bytes)
{
    *ret_bytes = strlen(constraint->texts[id]);
    return constraint->texts[id];
}

#endif
