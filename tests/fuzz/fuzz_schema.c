/* fuzz_schema.c -- libFuzzer target: any bytes as a JSON schema. One that is taken becomes an
 * automaton; a walk of it, bytes drawn from the input, is brought to its end by the shortest way
 * and must then be JSON. Corpus: tests/fuzz/corpus_schema. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"
#include "engine/text/constraint.h"
#include "engine/text/schema.h"

enum { WALK_BYTES = 300, TEXT_BYTES_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Takes some byte that is alive; false: none is, or there was no way to tell. */
static bool step(struct constraint_state *state, uint64_t *random_state, char *ret_byte)
{
    uint32_t first = draw(random_state);
    size_t taken;

    for (uint32_t i = 0; i < 256; i++) {
        int r;

        *ret_byte = (char)(first + i * 37);
        r = constraint_state_bytes(state, ret_byte, 1, &taken, NULL);
        if (r == 1)
            return true;
        if (r < 0 || constraint_state_rollback(state, 1) < 0)
            return false;
    }
    return false;
}

static void check_json(const char *text, size_t bytes)
{
    json_error_t error;
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);

    if (!value && json_error_code(&error) != json_error_numeric_overflow &&
        json_error_code(&error) != json_error_stack_overflow)
        abort();
    json_decref(value);
}

static void walk(struct constraint *constraint, uint64_t random_state)
{
    struct constraint_state *state = NULL;
    char *text = malloc(TEXT_BYTES_MAX);
    size_t bytes = 0, taken;
    int64_t distance = -1;
    int r = -1;

    if (text && constraint_state_open(constraint, &state, NULL) == 0) {
        while (bytes < WALK_BYTES && step(state, &random_state, text + bytes))
            bytes++;
        distance = constraint_state_distance(state, NULL);
        r = constraint_state_finish(state, text + bytes, TEXT_BYTES_MAX - bytes, NULL);
    }
    if (r >= 0 && distance >= 0 && distance <= (int64_t)(TEXT_BYTES_MAX - bytes)) {
        if (r != distance)
            abort();
        if (constraint_state_bytes(state, text + bytes, (size_t)r, &taken, NULL) == 0 ||
            !constraint_state_is_complete(state))
            abort();
        check_json(text, bytes + (size_t)r);
    }
    constraint_state_close(state);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct schema_options options = {.space = (enum schema_space)(size % 3)};
    struct constraint_limits limits = {.work_max = 1 << 16};
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    uint64_t random_state = size;
    json_t *schema;

    if (json_parse((const char *)data, size, &schema, NULL) < 0)
        return 0;
    for (size_t i = 0; i < size; i++)
        random_state = random_state * 31 + data[i];
    if (schema_compile(schema, &options, &grammar, &fault) < 0) {
        if (fault.code >= 0 || fault.message[0] == 0)
            abort();
    } else if (constraint_open(grammar, NULL, &limits, &constraint, &fault) == 0) {
        walk(constraint, random_state);
        walk(constraint, random_state + 1);
        constraint_close(constraint);
    }
    grammar_close(grammar);
    json_decref(schema);
    return 0;
}
