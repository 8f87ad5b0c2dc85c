/* test_tools_write.c -- protects: what the grammar of a format's calls allows, the format's parser
 * reads as just these calls, with arguments that fit their schema; a call that must come does; text
 * beside calls is no call that does not fit; reasoning may precede all of it. Texts are drawn at
 * random, token by token, evenly among those allowed, from a vocabulary of bytes, words and the
 * format's markers, as control tokens and as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "server/tools_write.h"
#include "tests/lib/tool_text.h"

enum { BYTES = 256, WORDS = 12, MARKS_MAX = 24, ROUNDS = 40, TOKENS_MAX = 1500 };

/* --- a vocabulary: bytes, words, markers, an end ---------------------------------------------- */

struct tokenizer {
    const char *marks[MARKS_MAX];
    uint32_t mark_count;
    int32_t end;
};

static const char *const words[WORDS] = {"\": ", "\", ",  "{\"", "\"}",   "<", "</",
                                         "tool", "_call", "]",   "f = (", "'", "\xe2\x82\xac"};

uint32_t tokenizer_count(const struct tokenizer *tokenizer)
{
    return BYTES + WORDS + tokenizer->mark_count + 1;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes)
{
    static char bytes[BYTES][2];
    uint32_t mark = (uint32_t)id - BYTES - WORDS;
    const char *text;

    if (id < BYTES) {
        bytes[id][0] = (char)id;
        *ret_bytes = 1;
        return bytes[id];
    }
    text = id < BYTES + WORDS             ? words[id - BYTES]
           : mark < tokenizer->mark_count ? tokenizer->marks[mark]
                                          : "<end>";
    *ret_bytes = strlen(text);
    return text;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    (void)tokenizer;
    return id >= BYTES + WORDS;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece)
{
    for (uint32_t i = 0; i < tokenizer->mark_count; i++) {
        if (strcmp(tokenizer->marks[i], piece) == 0)
            return (int32_t)(BYTES + WORDS + i);
    }
    return -1;
}

uint32_t tokenizer_ends(const struct tokenizer *tokenizer, const int32_t **ret_ids)
{
    *ret_ids = &tokenizer->end;
    return 1;
}

static void tokenizer_make(struct tokenizer *tokenizer, const struct tool_format *format,
                           bool control)
{
    const char *mark;

    *tokenizer = (struct tokenizer){.mark_count = 0};
    for (size_t i = 0; control && (mark = tool_format_marker(format, i)); i++) {
        if (tokenizer_find(tokenizer, mark) < 0)
            tokenizer->marks[tokenizer->mark_count++] = mark;
    }
    tokenizer->end = (int32_t)(BYTES + WORDS + tokenizer->mark_count);
}

/* --- tools ------------------------------------------------------------------------------------ */

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"now\",\"strict\":true}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"strict\":true,\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"place\":{\"type\":\"string\",\"maxLength\":12},"
    "\"unit\":{\"enum\":[\"C\",\"F\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":30}"
    ","
    "\"tags\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tag\"},\"maxItems\":3},"
    "\"note\":{\"type\":[\"string\",\"null\"],\"maxLength\":5},\"exact\":{\"type\":\"boolean\"}},"
    "\"required\":[\"place\",\"days\"],\"additionalProperties\":false,"
    "\"$defs\":{\"tag\":{\"type\":\"string\",\"pattern\":\"^[a-z/'<]{1,4}$\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"set\",\"parameters\":{\"properties\":{"
    "\"level\":{\"type\":\"number\"}},\"additionalProperties\":false}}}]";
static json_t *tools;

static const json_t *parameters_of(const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");

        if (strcmp(json_string_value(json_object_get(function, "name")), name) == 0)
            return json_object_get(function, "parameters");
    }
    fail_msg("no tool '%s'", name);
    return NULL;
}

static void arguments_fit(const char *name, const char *text)
{
    static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    const json_t *schema = parameters_of(name);
    struct constraint_state *state;
    struct constraint *constraint;
    struct grammar *grammar;
    json_t *made = NULL;
    size_t taken;

    if (!schema)
        assert_int_equal(json_parse(none, sizeof none - 1, &made, NULL), 0);
    assert_int_equal(schema_compile(made ? made : schema, NULL, &grammar, NULL), 0);
    assert_int_equal(constraint_open(grammar, NULL, NULL, &constraint, NULL), 0);
    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    if (constraint_state_bytes(state, text, strlen(text), &taken, NULL) <= 0 ||
        !constraint_state_is_complete(state))
        fail_msg("%s(%s) does not fit behind byte %zu", name, text, taken);
    constraint_state_close(state);
    constraint_close(constraint);
    grammar_close(grammar);
    json_decref(made);
}

/* --- drawing ---------------------------------------------------------------------------------- */

static uint64_t random_state = 7;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % bound);
}

/* One of the tokens allowed. Text of one's own choice would go on and on, so what is no byte of
 * free text, an end or a marker, is taken more often. */
static int32_t draw(const uint32_t *words_of_mask, uint32_t count)
{
    uint32_t seen = 0, special = 0;
    int32_t found = -1, found_special = -1;

    for (uint32_t id = 0; id < count; id++) {
        if (!(words_of_mask[id / 32] >> id % 32 & 1))
            continue;
        if (random_below(++seen) == 0)
            found = (int32_t)id;
        if (id >= BYTES + WORDS && random_below(++special) == 0)
            found_special = (int32_t)id;
    }
    return found_special >= 0 && random_below(8) == 0 ? found_special : found;
}

/* Appends a whole answer's text. false: it has no end, which may be where a call is begun that
 * takes more tokens than CONSTRAINT_FINISH_MARGIN. */
static bool generate(const struct tokenizer *tokenizer, struct constraint *constraint,
                     struct buf *text)
{
    uint32_t count = tokenizer_count(tokenizer), mask[16], left = TOKENS_MAX;
    struct constraint_state *state;
    struct fault fault;

    assert_true(count / 32 + 1 <= 16);
    assert_int_equal(constraint_state_open(constraint, &state, &fault), 0);
    for (; left > 0; left--) {
        size_t bytes;
        const char *piece;
        int32_t id;

        assert_int_equal(constraint_state_mask_within(state, left, mask, 16, &fault), 1);
        id = draw(mask, count);
        assert_int_equal(constraint_state_token(state, id, &fault), 1);
        if (id == tokenizer->end)
            break;
        piece = tokenizer_piece(tokenizer, id, &bytes);
        buf_put(text, piece, bytes);
    }
    constraint_state_close(state);
    return left > 0;
}

/* --- reading back ----------------------------------------------------------------------------- */

static int build_answer(void *data, struct grammar *grammar, struct constraint_effort *effort,
                        int32_t *ret_node, struct fault *fault)
{
    struct tool_answer *answer = data;

    answer->effort = effort;
    return tools_write(answer, grammar, ret_node, fault);
}

static void calls_fit(const struct told *told)
{
    char *calls = strdup(buf_string(&told->calls));

    for (char *line = calls, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *arguments = strchr(line, '(');

        *end = '\0';
        assert_non_null(arguments);
        *arguments++ = '\0';
        assert_true(strlen(arguments) > 0 && arguments[strlen(arguments) - 1] == ')');
        arguments[strlen(arguments) - 1] = '\0';
        arguments_fit(line, arguments);
    }
    free(calls);
}

struct round {
    const struct tool_format *format;
    bool control;
    bool forced;
    bool parallel;
    const char *only;
    bool header;
    bool may_reason;
    bool behind_opening;
};

/* Returns how many calls there are. */
static uint32_t read_back(const struct round *round, const struct buf *text)
{
    struct tool_options options = {.calls = true, .tools = tools};
    struct told told;
    uint32_t count;

    told_open(&told);
    told_run(&told, round->format, &options, buf_string(text), text->bytes, NULL, 0);
    if (round->forced && (told.whole == 0 || told.begun != told.whole || told.content.bytes > 0 ||
                          told.cut || (told.whole > 1 && (!round->parallel || round->only))))
        fail_msg("%s: %u calls of %u, content '%s' of\n%s", tool_format_name(round->format),
                 told.whole, told.begun, buf_string(&told.content), buf_string(text));
    assert_int_equal(told.begun, told.whole);
    if (round->only)
        assert_int_equal(strncmp(buf_string(&told.calls), round->only, strlen(round->only)), 0);
    if (!round->may_reason)
        assert_int_equal(told.reasoning.bytes, 0);
    calls_fit(&told);
    count = told.whole;
    told_close(&told);
    return count;
}

static void run(const struct round *round, const char *name)
{
    struct tokenizer tokenizer;
    struct constraints_options options = {
        .tokenizer = &tokenizer, .format = round->format, .bytes_max = 64 << 20};
    struct tool_answer answer = {.format = round->format,
                                 .tools = tools,
                                 .only = round->only,
                                 .forced = round->forced,
                                 .parallel = round->parallel,
                                 .starts_in_header = round->header,
                                 .may_reason = round->may_reason,
                                 .behind_opening = round->behind_opening,
                                 .content = -1};
    struct constraint *constraint = NULL;
    struct constraints *constraints;
    unsigned finished = 0, calls = 0;
    struct fault fault = {0};
    struct buf text;

    tokenizer_make(&tokenizer, round->format, round->control);
    assert_int_equal(constraints_open(&options, &constraints, &fault), 0);
    answer.constraints = constraints;
    if (constraints_get(constraints, "k", 1, false, build_answer, &answer, &constraint, &fault) < 0)
        fail_msg("%s: %s", name, fault.message);
    buf_init(&text, 1 << 20);
    for (unsigned i = 0; i < ROUNDS; i++) {
        buf_reset(&text);
        if (round->behind_opening)
            buf_text(&text, tools_opening(round->format));
        if (!generate(&tokenizer, constraint, &text))
            continue;
        finished++;
        calls += read_back(round, &text);
    }
    assert_true(finished >= ROUNDS * 9 / 10 && (calls > 0 || !round->control));
    buf_fini(&text);
    constraint_close(constraint);
    constraints_close(constraints);
}

/* --- tests ------------------------------------------------------------------------------------ */

static const char *const names[] = {"hermes",      "llama3_json",  "mistral",        "granite",
                                    "deepseek_v3", "deepseek_v31", "glm45",          "qwen3_coder",
                                    "harmony",     "functionary",  "llama_pythonic", "functionary"};
enum { NAMES = sizeof names / sizeof *names };

static void run_all(struct round round)
{
    for (size_t i = 0; i < NAMES; i++) {
        round.format = tool_format_find(names[i]);
        round.header = i == NAMES - 1;
        round.control = true;
        run(&round, names[i]);
        round.control = false;
        run(&round, names[i]);
    }
}

static void forced_calls_come(void **state)
{
    (void)state;
    run_all((struct round){.forced = true, .parallel = true});
    run_all((struct round){.forced = true, .parallel = false});
}

static void a_named_call_comes_once(void **state)
{
    (void)state;
    run_all((struct round){.forced = true, .parallel = true, .only = "get_weather"});
}

static void calls_that_come_fit(void **state)
{
    (void)state;
    run_all((struct round){.forced = false, .parallel = true});
}

/* The grammar begins behind the marker that begins the first call. */
static void calls_fit_behind_their_marker(void **state)
{
    static const char *const marked[] = {"hermes", "mistral", "glm45"};
    struct round round = {.forced = true, .parallel = true, .behind_opening = true};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        round.format = tool_format_find(marked[i]);
        assert_non_null(tools_opening(round.format));
        round.control = false;
        run(&round, marked[i]);
        round.control = true;
        run(&round, marked[i]);
    }
    for (size_t i = 0; i < NAMES; i++) {
        bool one = strcmp(names[i], "hermes") == 0 || strcmp(names[i], "mistral") == 0 ||
                   strcmp(names[i], "glm45") == 0;

        assert_int_equal(tools_opening(tool_format_find(names[i])) != NULL, one);
    }
}

static void reasoning_may_precede(void **state)
{
    (void)state;
    run_all((struct round){.forced = true, .parallel = true, .may_reason = true});
}

static int make_tools(void **state)
{
    (void)state;
    return json_parse(tools_text, sizeof tools_text - 1, &tools, NULL);
}

static int drop_tools(void **state)
{
    (void)state;
    json_decref(tools);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_calls_come),     cmocka_unit_test(a_named_call_comes_once),
        cmocka_unit_test(calls_that_come_fit),   cmocka_unit_test(calls_fit_behind_their_marker),
        cmocka_unit_test(reasoning_may_precede),
    };

    return cmocka_run_group_tests(tests, make_tools, drop_tools);
}
