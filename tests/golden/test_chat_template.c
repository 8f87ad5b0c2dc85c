/* test_chat_template.c -- protects: published chat templates are rendered exactly as their makers'
 * library does. Every case of WEFT_GOLDENS/chat_templates must give the recorded text or, where the
 * template refuses the conversation, its own words; where the library fails, so must we. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/template.h"
#include "tests/lib/goldens.h"

/* The clock of the recordings. */
static const struct tm now = {.tm_year = 126,
                              .tm_mon = 10,
                              .tm_mday = 30,
                              .tm_hour = 12,
                              .tm_min = 34,
                              .tm_sec = 56,
                              .tm_wday = 1,
                              .tm_yday = 333};

/* conversation name -> its "messages" and "tools" as JSON text, since they hold integers that no
 * tree of ours can. */
static json_t *read_conversations(void)
{
    char command[8192];

    snprintf(command, sizeof command,
             "python3 -c 'import json, sys\n"
             "whole = json.load(open(sys.argv[1]))[\"conversations\"].items()\n"
             "keys = (\"messages\", \"tools\")\n"
             "print(json.dumps({n: {k: json.dumps(c.get(k)) for k in keys} for n, c in whole}))' "
             "'%s/chat_templates/conversations.json'",
             goldens_folder());
    return command_json(command, 0);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The line that `weft template` would get. The caller frees. */
static char *make_input(const json_t *reference, const json_t *one, const json_t *conversations)
{
    const json_t *conversation = json_object_get(conversations, text_of(one, "conv"));
    char *kwargs = json_dumps(json_object_get(one, "kwargs"), 0), *line = NULL;
    char *globals = json_dumps(json_object_get(reference, "globals"), 0);
    size_t bytes;
    FILE *to = open_memstream(&line, &bytes);

    assert_non_null(to);
    fprintf(to,
            "{\"messages\":%s,\"tools\":%s,\"add_generation_prompt\":%s,"
            "\"chat_template_kwargs\":%s%s%s",
            text_of(conversation, "messages"),
            json_is_true(json_object_get(one, "tools")) ? text_of(conversation, "tools") : "null",
            json_is_true(json_object_get(one, "add_generation_prompt")) ? "true" : "false", kwargs,
            strlen(globals) > 2 ? "," : "", globals + 1);
    assert_int_equal(fclose(to), 0);
    free(kwargs);
    free(globals);
    return line;
}

static void check_case(const struct chat_template *template_, const char *name, const char *line,
                       const json_t *one)
{
    const json_t *expected = json_object_get(one, "expected");
    const json_t *error = json_object_get(one, "error");
    struct fault fault = {0};
    struct buf text;
    int r;

    buf_init(&text, 64 << 20);
    r = chat_template_render_text(template_, line, strlen(line), &now, &text, &fault);
    if (expected) {
        if (r < 0)
            fail_msg("%s refuses %s: %s", name, text_of(one, "conv"), fault.message);
        if (text.bytes != json_string_length(expected) ||
            memcmp(buf_string(&text), json_string_value(expected), text.bytes) != 0)
            fail_msg("%s renders %s as '%s', not '%s'", name, text_of(one, "conv"),
                     buf_string(&text), json_string_value(expected));
    } else {
        if (r >= 0)
            fail_msg("%s renders %s", name, text_of(one, "conv"));
        assert_int_equal(text.bytes, 0);
        if (strcmp(text_of(error, "kind"), "raise_exception") == 0) {
            assert_string_equal(fault.message, text_of(error, "message"));
            assert_int_equal(r, E_INVALID);
        } else {
            assert_non_null(strstr(fault.message, "the chat template, line "));
            assert_int_equal(r, E_UNSUPPORTED);
        }
    }
    buf_fini(&text);
}

static size_t check_template(const char *path, const char *name, const json_t *conversations)
{
    struct chat_template *template_ = NULL;
    struct fault fault = {0};
    char command[4096];
    json_t *reference;
    const json_t *one;
    size_t i;

    if (chat_template_open_path(path, &template_, &fault) < 0 ||
        chat_template_check(template_, &fault) < 0)
        fail_msg("%s: %s", name, fault.message);
    snprintf(command, sizeof command, "xz -dc '%s/chat_templates/%s.json.xz'", goldens_folder(),
             name);
    reference = command_json(command, 0);
    json_array_foreach(json_object_get(reference, "cases"), i, one)
    {
        char *line = make_input(reference, one, conversations);

        check_case(template_, name, line, one);
        free(line);
    }
    json_decref(reference);
    chat_template_close(template_);
    return i;
}

static void test_published_templates(void **state)
{
    char pattern[4096];
    json_t *conversations;
    size_t cases = 0;
    glob_t found;

    (void)state;
    conversations = read_conversations();
    snprintf(pattern, sizeof pattern, "%s/chat_templates/*.jinja", goldens_folder());
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 100);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[256];

        snprintf(name, sizeof name, "%s", strrchr(found.gl_pathv[i], '/') + 1);
        *strstr(name, ".jinja") = 0;
        cases += check_template(found.gl_pathv[i], name, conversations);
    }
    print_message("%zu templates, %zu cases\n", (size_t)found.gl_pathc, cases);
    assert_true(cases >= 5000);
    globfree(&found);
    json_decref(conversations);
}

/* Each snippet shows one feature of the language. */
static void test_snippets(void **state)
{
    char command[4096];
    json_t *file;
    const json_t *one;
    char *variables;
    size_t i;

    (void)state;
    snprintf(command, sizeof command, "cat '%s/chat_templates/jinja_snippets.json'",
             goldens_folder());
    file = command_json(command, 0);
    variables = json_dumps(json_object_get(file, "variables"), 0);
    json_array_foreach(json_object_get(file, "snippets"), i, one)
    {
        const json_t *source = json_object_get(one, "template");
        const json_t *expected = json_object_get(one, "expected");
        const struct jinja_variables from = {.text = variables, .bytes = strlen(variables)};
        const struct jinja_input input = {
            .sources = &from, .count = 1, .spread = "", .skip_null = "", .now = &now};
        struct jinja *jinja = NULL;
        struct fault fault = {0};
        struct buf text;
        int r;

        buf_init(&text, 1 << 20);
        r = jinja_open(json_string_value(source), json_string_length(source), &jinja, &fault);
        if (r == 0)
            r = jinja_render(jinja, &input, &text, &fault);
        if (expected ? r < 0 || text.bytes != json_string_length(expected) ||
                           memcmp(buf_string(&text), json_string_value(expected), text.bytes)
                     : r >= 0)
            fail_msg("%s: '%s', %s", text_of(one, "name"), buf_string(&text), fault.message);
        buf_fini(&text);
        jinja_close(jinja);
    }
    assert_true(i >= 150);
    free(variables);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_templates),
                                       cmocka_unit_test(test_snippets)};

    return cmocka_run_group_tests_name("golden/chat_template", tests, NULL, NULL);
}
