/* test_openai_form.c -- protects: in whatever field a client asks for a form of the answer, the
 * request's constraint allows just that; two at once, unknown ones and those that cannot be held to
 * are refused by name; compiled constraints are shared, bounded, and put off when they are slow; a
 * constraint begins behind the reasoning that the prompt has opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/regex_grammar.h"
#include "server/openai_request.h"
#include "server/reply.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/fake_text.h"

static const struct tokenizer plain_tokenizer = {.adds_bos = false};
static const struct chat_template chatml = {.foreign = false};

static struct openai_context context = {.tokenizer = &plain_tokenizer,
                                        .chat_template = &chatml,
                                        .model_id = "m",
                                        .context = 1000,
                                        .vocabulary = FAKE_COUNT,
                                        .choices_max = 8};

enum { BODY_BYTES = 1 << 16 };

/* `fields` of a chat with the message `content`. */
static int parse(const char *content, const char *fields, bool patient,
                 struct request **ret_request, struct api_error *error)
{
    struct reply *reply = NULL;
    static char body[BODY_BYTES];
    int r, bytes;

    bytes = snprintf(body, BODY_BYTES,
                     "{\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                     "\"chat_template_kwargs\":{\"suffix\":\"%s\"}%s%s}",
                     content, *fields ? "," : "", fields);
    assert_true(bytes > 0 && bytes < BODY_BYTES);
    *ret_request = NULL;
    *error = (struct api_error){0};
    r = openai_parse(OPENAI_CHAT, &context, patient, body, (size_t)bytes, ret_request, &reply,
                     error);
    reply_close(reply);
    return r;
}

static struct constraint *constraint_of(const char *fields)
{
    struct constraint *constraint;
    struct request *request;
    struct api_error error;

    if (parse("", fields, false, &request, &error) != 0)
        fail_msg("refused: %s\n%s", error.message, fields);
    constraint = request->constraint.constraint;
    if (constraint)
        constraint_share(constraint);
    request_free(request);
    return constraint;
}

static bool allows(struct constraint *constraint, const char *text)
{
    struct constraint_state *state;
    size_t taken;
    bool all;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    all = constraint_state_bytes(state, text, strlen(text), &taken, NULL) > 0 &&
          constraint_state_is_complete(state);
    constraint_state_close(state);
    return all;
}

/* The answer may be `yes` and not `no`; NULL: no such text. */
static void holds(const char *fields, const char *yes, const char *no)
{
    struct constraint *constraint = constraint_of(fields);

    if (!constraint)
        fail_msg("no constraint of %s", fields);
    if (yes && !allows(constraint, yes))
        fail_msg("%s\nrefuses %s", fields, yes);
    if (no && allows(constraint, no))
        fail_msg("%s\nallows %s", fields, no);
    constraint_close(constraint);
}

static void bad(const char *fields, const char *param, const char *message)
{
    struct request *request;
    struct api_error error;

    if (parse("", fields, true, &request, &error) == 0)
        fail_msg("taken: %s", fields);
    if (strcmp(error.param, param) != 0 || !strstr(error.message, message) ||
        api_error_status(error.kind) != 400)
        fail_msg("%s\nis answered %d, param '%s': %s", fields, api_error_status(error.kind),
                 error.param, error.message);
}

static int open_constraints(size_t bytes_max)
{
    struct constraints_options options = {
        .tokenizer = &plain_tokenizer, .format = context.tool_format, .bytes_max = bytes_max};

    constraints_close(context.constraints);
    return constraints_open(&options, &context.constraints, NULL);
}

static int begin(void **state)
{
    (void)state;
    context.tool_format = NULL;
    context.parse_always = context.may_reason = false;
    return open_constraints(64 << 20);
}

static int end(void **state)
{
    (void)state;
    constraints_close(context.constraints);
    context.constraints = NULL;
    return 0;
}

/* --- fields ----------------------------------------------------------------------------------- */

#define N_SCHEMA                                                          \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}," \
    "\"required\":[\"n\"],\"additionalProperties\":false}"

static void test_response_format(void **state)
{
    (void)state;
    assert_null(constraint_of(""));
    assert_null(constraint_of("\"response_format\":null"));
    assert_null(constraint_of("\"response_format\":{\"type\":\"text\"}"));
    holds("\"response_format\":{\"type\":\"json_object\"}", "{\n  \"a\": [1, null]\n}", "[1]");
    holds("\"response_format\":{\"type\":\"json_object\",\"schema\":" N_SCHEMA "}", "{\"n\": 3}",
          "{\"m\":3}");
    holds("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
          "\"strict\":true,\"description\":\"d\",\"schema\":" N_SCHEMA "}}",
          "{\"n\":3}", "{\"n\":3.5}");
    holds("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
          "\"strict\":false,\"schema\":" N_SCHEMA "}}",
          "{\"n\":3}", "{\"n\":3.5}");
    bad("\"response_format\":\"json\"", "response_format", "object");
    bad("\"response_format\":{}", "response_format.type", "missing");
    bad("\"response_format\":{\"type\":\"structural_tag\"}", "response_format.type",
        "structural_tag");
    bad("\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema", "missing");
    bad("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}",
        "response_format.json_schema.schema", "missing");
    bad("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"\"}}",
        "response_format.json_schema.name", "64");
    bad("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}",
        "response_format.json_schema.schema", "object");
    bad("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1}}",
        "response_format.json_schema.strict", "true or false");
    bad("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
        "{\"properties\":{\"a\":{\"contentEncoding\":\"x\"}}}}}",
        "response_format.json_schema.schema", "\"contentEncoding\" at #/properties/a");
}

static void test_other_servers_fields(void **state)
{
    (void)state;
    holds("\"guided_json\":" N_SCHEMA, "{\"n\":1}", "{}");
    holds("\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\"", "null", "true");
    holds("\"guided_regex\":\"[ab]+\"", "abba", "abc");
    holds("\"guided_choice\":[\"yes\",\"no\"]", "no", "maybe");
    holds("\"guided_grammar\":\"root ::= \\\"a\\\"{2}\"", "aa", "a");
    holds("\"grammar\":\"root ::= x\\nx ::= [0-9]\"", "7", "x");
    holds("\"json_schema\":" N_SCHEMA, "{\"n\":1}", "{}");
    holds("\"regex\":\"a?b\"", "b", "a");
    holds("\"ebnf\":\"root ::= [0-9]\"", "7", "77");
    holds("\"structured_outputs\":{\"json\":" N_SCHEMA "}", "{\"n\":1}", "{}");
    holds("\"structured_outputs\":{\"regex\":\"a\"}", "a", "b");
    holds("\"structured_outputs\":{\"choice\":[\"a\"]}", "a", "b");
    holds("\"structured_outputs\":{\"grammar\":\"root ::= [0-9]\"}", "7", "b");
    holds("\"structured_outputs\":{\"json_object\":true}", "{}", "[]");
    assert_null(constraint_of("\"structured_outputs\":{},\"grammar\":\"\",\"guided_json\":null"));
    assert_null(constraint_of("\"structured_outputs\":{\"json_object\":false,\"json\":null}"));
    bad("\"guided_json\":\"{\"", "guided_json", "no JSON");
    bad("\"guided_json\":5", "guided_json", "schema");
    bad("\"guided_regex\":5", "guided_regex", "string");
    bad("\"guided_regex\":\"(?=a)\"", "guided_regex", "look-ahead");
    bad("\"guided_regex\":\"[^\\\\x00-\\\\U0010ffff]\"", "guided_regex",
        "no text at all fits the regular expression");
    bad("\"guided_choice\":[]", "guided_choice", "array");
    bad("\"guided_choice\":[\"a\",1]", "guided_choice[1]", "string");
    bad("\"grammar\":\"root ::= y\"", "grammar", "line 1, column 10");
    bad("\"grammar\":\"root ::= root \\\"a\\\" | \\\"b\\\"\"", "grammar", "begins with itself");
    bad("\"structured_outputs\":[]", "structured_outputs", "object");
    bad("\"structured_outputs\":{\"structural_tag\":\"x\"}", "structured_outputs.structural_tag",
        "not supported");
    bad("\"structured_outputs\":{\"regexp\":\"a\"}", "structured_outputs.regexp", "not known");
    bad("\"structured_outputs\":{\"regex\":\"a\",\"x\":false}", "structured_outputs.x",
        "not known");
    holds("\"structured_outputs\":{\"regex\":\"a\",\"x\":null,\"disable_fallback\":true}", "a",
          "b");
    bad("\"structural_tag\":\"x\"", "structural_tag", "not supported");
}

static void test_two_at_once(void **state)
{
    (void)state;
    bad("\"response_format\":{\"type\":\"json_object\"},\"grammar\":\"root ::= [0-9]\"", "grammar",
        "'response_format' and 'grammar'");
    bad("\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}", "structured_outputs.regex",
        "'structured_outputs.json'");
    bad("\"guided_json\":{},\"guided_choice\":[\"a\"]", "guided_choice", "'guided_json'");
    bad("\"structured_outputs\":{\"regex\":\"a\"},\"regex\":\"a\"", "regex", "structured_outputs");
}

static void test_white_space(void **state)
{
    (void)state;
    holds("\"guided_json\":" N_SCHEMA, "{\"n\": 1}", "{ \"n\": 1}");
    holds("\"guided_json\":" N_SCHEMA ",\"guided_whitespace_pattern\":\"[\\\\n\\\\t ]*\"",
          "{\n  \"n\": 1\n}", NULL);
    holds("\"guided_json\":" N_SCHEMA ",\"guided_whitespace_pattern\":\" ?\"", "{\"n\": 1}",
          "{\n\"n\": 1}");
    holds("\"structured_outputs\":{\"json\":" N_SCHEMA ",\"whitespace_pattern\":\"\"}", "{\"n\":1}",
          "{\"n\": 1}");
    holds("\"structured_outputs\":{\"json\":" N_SCHEMA ",\"disable_any_whitespace\":true}",
          "{\"n\":1}", "{\"n\": 1}");
    holds("\"structured_outputs\":{\"disable_any_whitespace\":true},\"guided_json\":" N_SCHEMA,
          "{\"n\":1}", "{\"n\": 1}");
    holds("\"structured_outputs\":{\"regex\":\"a\",\"disable_any_whitespace\":false}", "a", "b");
    bad("\"structured_outputs\":{\"regex\":\"a\",\"disable_any_whitespace\":true}",
        "structured_outputs.disable_any_whitespace", "JSON");
    bad("\"structured_outputs\":{\"disable_any_whitespace\":true}",
        "structured_outputs.disable_any_whitespace", "JSON");
    bad("\"structured_outputs\":{\"choice\":[\"a\"],\"whitespace_pattern\":\" ?\"}",
        "structured_outputs.whitespace_pattern", "JSON");
    bad("\"guided_whitespace_pattern\":\" ?\"", "guided_whitespace_pattern", "JSON");
    bad("\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"(\"}",
        "structured_outputs.whitespace_pattern", "not closed");
    bad("\"guided_json\":{},\"guided_whitespace_pattern\":\" +\"", "guided_whitespace_pattern",
        "empty text");
}

/* --- calls and reasoning ---------------------------------------------------------------------- */

#define TOOLS                                                                                 \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" N_SCHEMA \
    "}},{\"type\":\"function\",\"function\":{\"name\":\"g\"%s}}]"
#define CALL_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>"
#define CALL_G "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"

static void with_tools(const char *more_of_g, const char *rest, const char *yes, const char *no)
{
    char fields[1024];

    snprintf(fields, sizeof fields, TOOLS "%s", more_of_g, rest);
    holds(fields, yes, no);
}

static int hermes(void **state)
{
    (void)state;
    context.tool_format = tool_format_find("hermes");
    context.parse_always = context.may_reason = false;
    return open_constraints(64 << 20);
}

static void test_tool_choice(void **state)
{
    char fields[1024];

    (void)state;
    with_tools("", ",\"tool_choice\":\"required\"", CALL_F, "No.");
    with_tools("", ",\"tool_choice\":\"required\"", CALL_F "\n" CALL_G, "");
    with_tools("", ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false", CALL_G,
               CALL_F "\n" CALL_G);
    with_tools("", ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", CALL_G,
               CALL_F);
    with_tools("", ",\"response_format\":{\"type\":\"json_object\"}", "{\"a\":1}", "text");
    with_tools("", ",\"response_format\":{\"type\":\"json_object\"}", CALL_G, "[]");
    snprintf(fields, sizeof fields, TOOLS, "");
    assert_null(constraint_of(fields));
}

/* Markers are text here, so the grammar has the text before the calls too. */
static void test_strict_calls_that_may_come(void **state)
{
    struct request *request;
    struct api_error error;
    char fields[1024];

    (void)state;
    snprintf(fields, sizeof fields, TOOLS, ",\"strict\":true");
    assert_int_equal(parse("", fields, false, &request, &error), 0);
    assert_int_equal(request->constraint.after_text_bytes, 0);
    assert_true(request->constraint.may_be_cut);
    request_free(request);
    snprintf(fields, sizeof fields, TOOLS ",\"tool_choice\":\"required\"", "");
    assert_int_equal(parse("", fields, false, &request, &error), 0);
    assert_false(request->constraint.may_be_cut);
    request_free(request);
    with_tools(",\"strict\":true", "", "Yes. " CALL_F,
               "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 1}}\n</tool_call>");
    with_tools(",\"strict\":true", "", "Just text, 1 < 2 </tool_call>", "Text <tool_call> text");
    context.tool_format = tool_format_find("llama3_json");
    assert_int_equal(open_constraints(64 << 20), 0);
    with_tools(",\"strict\":true", "", "Just text", "{\"name\": \"h\", \"parameters\": {}}");
    with_tools(",\"strict\":true", "", "{\"name\": \"g\", \"parameters\": {}}",
               "Text <|python_tag|> text");
}

#define NEVER(name) \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":{\"not\":{}}}}"

/* Not strict: what cannot be held to leaves the arguments any object. */
static void test_schemas_of_functions(void **state)
{
    (void)state;
    with_tools(",\"parameters\":{\"if\":{}}", ",\"tool_choice\":\"required\"",
               "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": [1]}}\n</tool_call>", "x");
    bad("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,"
        "\"parameters\":{\"properties\":{\"a\":{\"if\":{}}}}}}]",
        "tools[0].function.parameters", "\"if\" at #/properties/a");
    with_tools(",\"parameters\":{\"not\":{}}", ",\"tool_choice\":\"required\"", CALL_F, CALL_G);
    bad("\"tools\":[" NEVER("g") "],\"tool_choice\":\"required\"", "tools[0].function.parameters",
        "no arguments at all fit the schema");
    bad("\"tools\":[" NEVER("f") "," NEVER("g") "],\"tool_choice\":{\"type\":\"function\","
                                                "\"function\":{\"name\":\"g\"}}",
        "tools[1].function.parameters", "no arguments at all fit the schema");
    bad("\"tools\":[" NEVER("f") "," NEVER("g") "],\"tool_choice\":\"required\"", "tools",
        "no arguments at all fit the schemas");
    context.tool_format = tool_format_find("glm45");
    assert_int_equal(open_constraints(64 << 20), 0);
    bad("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,"
        "\"parameters\":{\"minProperties\":1}}}]",
        "tools[0].function.parameters",
        "\"minProperties\" at #: cannot be enforced in this model's");
}

static void test_reasoning(void **state)
{
    struct request *request;
    struct api_error error;
    struct constraint *constraint;

    (void)state;
    context.parse_always = context.may_reason = true;
    constraint = constraint_of("\"guided_regex\":\"a+\"");
    assert_true(allows(constraint, "aa"));
    assert_true(allows(constraint, "<think>Well <b> ...</think>\n\naa"));
    assert_false(allows(constraint, "<think>Well"));
    assert_false(allows(constraint, "<think>Well</think>b"));
    constraint_close(constraint);
    assert_int_equal(parse("<think>\\n", "\"guided_regex\":\"a+\"", false, &request, &error), 0);
    assert_int_equal(request->constraint.after_text_bytes, strlen("</think>"));
    assert_memory_equal(request->constraint.after_text, "</think>", strlen("</think>"));
    assert_true(allows(request->constraint.constraint, "\n\naa"));
    assert_false(allows(request->constraint.constraint, "<think></think>aa"));
    request_free(request);
    assert_int_equal(
        parse("<think>\\n\\n</think>", "\"guided_regex\":\"a+\"", false, &request, &error), 0);
    assert_int_equal(request->constraint.after_text_bytes, 0);
    assert_false(allows(request->constraint.constraint, "<think></think>aa"));
    request_free(request);
}

/* --- the cache -------------------------------------------------------------------------------- */

static void test_constraints_are_shared(void **state)
{
    struct constraint *first = constraint_of("\"guided_json\":" N_SCHEMA);
    struct constraint *second = constraint_of("\"response_format\":{\"type\":\"json_schema\","
                                              "\"json_schema\":{\"schema\":" N_SCHEMA "}}");
    struct constraint *other = constraint_of("\"guided_json\":{}");
    struct constraints_stats stats;

    (void)state;
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, other);
    constraints_stats_get(context.constraints, &stats);
    assert_int_equal(stats.count, 2);
    assert_int_equal(stats.hits, 1);
    assert_int_equal(stats.misses, 2);
    constraint_close(first);
    constraint_close(second);
    constraint_close(other);
}

/* What nobody uses goes, the one that was used last stays; what is in use is never dropped. */
static void test_the_cache_is_bounded(void **state)
{
    struct constraint *kept[64];
    struct constraints_stats stats;
    struct request *request;
    struct api_error error;
    char fields[128];
    int r = 0, count = 0;

    (void)state;
    assert_int_equal(open_constraints(100 << 10), 0);
    for (int i = 0; i < 64; i++) {
        snprintf(fields, sizeof fields, "\"guided_regex\":\"(a|b){%d}[a-z]{1,50}%d\"", i, i);
        constraint_close(constraint_of(fields));
        constraint_close(constraint_of("\"guided_regex\":\"kept\""));
        constraints_stats_get(context.constraints, &stats);
        assert_true(stats.bytes <= 100 << 10);
    }
    assert_true(stats.count < 64);
    assert_int_equal(stats.misses, 65);
    assert_int_equal(stats.hits, 63);
    for (; count < 64 && r == 0; count++) {
        snprintf(fields, sizeof fields, "\"guided_regex\":\"(a|b){%d}[a-z]{1,50}y%d\"", count,
                 count);
        r = parse("", fields, false, &request, &error);
        kept[count] = NULL;
        if (r == 0) {
            kept[count] = constraint_share(request->constraint.constraint);
            request_free(request);
        }
    }
    assert_true(r < 0);
    assert_int_equal(api_error_status(error.kind), 429);
    for (int i = 0; i < count; i++)
        constraint_close(kept[i]);
    r = parse("", fields, false, &request, &error);
    assert_int_equal(r, 0);
    request_free(request);
}

/* As prepare threads do it: some ask for the same, some for new ones, and there is little room. */
static int build_regex(void *data, struct grammar *grammar, struct constraint_effort *effort,
                       int32_t *ret_node, struct fault *fault)
{
    (void)effort;
    return regex_grammar_build(grammar, data, strlen(data), NULL, ret_node, fault);
}

static void *ask_often(void *data)
{
    uintptr_t thread = (uintptr_t)data;
    char pattern[64];

    for (unsigned i = 0; i < 200; i++) {
        struct constraint *constraint = NULL;
        struct fault fault;

        snprintf(pattern, sizeof pattern, "(a|b){%u}[a-z]{1,50}", i % 3 ? i % 10 : i);
        if (constraints_get(context.constraints, pattern, strlen(pattern), thread % 2, build_regex,
                            pattern, &constraint, &fault) == 0) {
            must(allows(constraint, "aaaaaaaaaaa") == (i % 3 == 0 ? i < 11 : true));
            constraint_close(constraint);
        } else {
            must(fault.code == E_FULL);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct constraints_stats stats;
    pthread_t threads[4];

    (void)state;
    assert_int_equal(open_constraints(60 << 10), 0);
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, (void *)i), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    constraints_stats_get(context.constraints, &stats);
    assert_true(stats.hits > 0 && stats.misses > 60 && stats.hits + stats.misses <= 800);
}

static void test_slow_ones_are_put_off(void **state)
{
    static const char slow[] = "\"guided_json\":{\"type\":\"string\",\"pattern\":"
                               "\"^(a|b)*a(a|b){13}$\",\"maxLength\":4000}";
    struct request *request = NULL;
    struct api_error error;

    (void)state;
    assert_int_equal(parse("", slow, false, &request, &error), OPENAI_LATER);
    assert_null(request);
    assert_true(parse("", slow, true, &request, &error) <= 0);
    request_free(request);
}

/* Whichever allocation fails: the request is refused for lack of memory, and nothing is lost. */
static void survives(const char *fields)
{
    for (uint64_t n = 1;; n++) {
        struct request *request;
        struct api_error error;
        int r;

        assert_int_equal(open_constraints(1 << 20), 0); /* nothing is kept from the last time */
        failing_malloc_arm(n);
        r = parse("", fields, true, &request, &error);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            request_free(request);
            return;
        }
        if (r == 0) /* it could do without */
            request_free(request);
        else if (api_error_status(error.kind) != 503 && !strstr(error.message, "memory"))
            fail_msg("allocation %d of %s: %d %s", (int)n, fields, api_error_status(error.kind),
                     error.message);
    }
}

static void test_failing_allocations(void **state)
{
    (void)state;
    survives("\"response_format\":{\"type\":\"json_object\"}");
    survives("\"guided_choice\":[\"a\",\"b\"]");
    survives(
        "\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\",\"guided_whitespace_pattern\":\" ?\"");
    survives("\"grammar\":\"root ::= [0-9]\"");
    survives("\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":" N_SCHEMA "}}],"
             "\"tool_choice\":\"required\"");
    context.tool_format = tool_format_find("glm45");
    survives("\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":"
             "{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{}}}}}]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_response_format, begin),
        cmocka_unit_test_setup(test_other_servers_fields, begin),
        cmocka_unit_test_setup(test_two_at_once, begin),
        cmocka_unit_test_setup(test_white_space, begin),
        cmocka_unit_test_setup(test_tool_choice, hermes),
        cmocka_unit_test_setup(test_strict_calls_that_may_come, hermes),
        cmocka_unit_test_setup(test_schemas_of_functions, hermes),
        cmocka_unit_test_setup(test_reasoning, hermes),
        cmocka_unit_test_setup(test_constraints_are_shared, begin),
        cmocka_unit_test_setup(test_the_cache_is_bounded, begin),
        cmocka_unit_test_setup(test_threads, begin),
        cmocka_unit_test_setup(test_slow_ones_are_put_off, begin),
        cmocka_unit_test_setup(test_failing_allocations, hermes),
    };

    return cmocka_run_group_tests(tests, NULL, end);
}
