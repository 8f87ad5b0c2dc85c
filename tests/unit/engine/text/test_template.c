/* test_template.c -- protects: where chat templates are found (GGUF, files, folders), which of
 * several is taken, what they see, and what is said when there is none or it is broken. The
 * language itself is tested in test_jinja.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/text/template.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/gguf_stream.h"

static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30, .tm_hour = 7};

static void put_string(struct gguf_stream *stream, const char *key, const char *text)
{
    gguf_stream_key(stream, key, GGUF_STRING);
    gguf_stream_text(stream, text, strlen(text));
}

/* A file's metadata: templates by key (NULL: none), and three tokens. */
static struct gguf *make_gguf(struct gguf_stream *stream, const char *plain, const char *tool_use)
{
    static const char *const pieces[] = {"<unk>", "<s>", "</s>"};

    gguf_stream_open(stream);
    gguf_stream_key(stream, "tokenizer.ggml.tokens", GGUF_ARRAY);
    gguf_stream_u32(stream, GGUF_STRING);
    gguf_stream_u64(stream, 3);
    for (size_t i = 0; i < 3; i++)
        gguf_stream_text(stream, pieces[i], strlen(pieces[i]));
    gguf_stream_number(stream, "tokenizer.ggml.bos_token_id", 1);
    gguf_stream_number(stream, "tokenizer.ggml.eos_token_id", 2);
    gguf_stream_number(stream, "tokenizer.ggml.padding_token_id", 77); /* there is none */
    if (plain)
        put_string(stream, "tokenizer.chat_template", plain);
    if (tool_use)
        put_string(stream, "tokenizer.chat_template.tool_use", tool_use);
    return gguf_stream_finish(stream);
}

static void assert_renders(const struct chat_template *template_, const char *input,
                           const char *expected)
{
    struct fault fault = {0};
    json_t *tree = NULL;
    struct buf text;

    assert_int_equal(json_parse(input, strlen(input), &tree, NULL), 0);
    for (int i = 0; i < 2; i++) { /* out of a tree and out of text */
        int r;

        buf_init(&text, 4096);
        r = i == 0
                ? chat_template_render(template_, tree, &now, &text, &fault)
                : chat_template_render_text(template_, input, strlen(input), &now, &text, &fault);
        if (r < 0)
            fail_msg("%s", fault.message);
        assert_string_equal(buf_string(&text), expected);
        buf_fini(&text);
    }
    json_decref(tree);
}

static void assert_fails(const struct chat_template *template_, const char *input, int code,
                         const char *word)
{
    struct fault fault = {0};
    struct buf text;

    buf_init(&text, 4096);
    buf_text(&text, "before");
    assert_int_equal(
        chat_template_render_text(template_, input, strlen(input), &now, &text, &fault), code);
    if (!strstr(fault.message, word))
        fail_msg("'%s' does not say '%s'", fault.message, word);
    assert_string_equal(buf_string(&text), "before");
    buf_fini(&text);
}

static void test_gguf(void **state)
{
    struct chat_template *template_ = NULL;
    struct gguf_stream stream;
    struct gguf *file = make_gguf(
        &stream,
        "{{ bos_token }}{{ pad_token is defined }}{% for m in messages %}{{ m.role }}:{{ m.content "
        "}}"
        "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ tools }}{{ x }}",
        "T{{ tools }}");

    (void)state;
    assert_int_equal(chat_template_open_gguf(file, "", &template_, NULL), 0);
    assert_int_equal(chat_template_check(template_, NULL), 0);
    assert_renders(template_, "{\"messages\":[{\"role\":\"a\",\"content\":\"b\"}]}",
                   "<s>Falsea:b</s>None");
    assert_renders(template_,
                   "{\"messages\":[],\"add_generation_prompt\":true,\"bos_token\":null,"
                   "\"chat_template_kwargs\":{\"x\":[1],\"bos_token\":\"B\"}}",
                   "BFalse>None[1]");
    assert_renders(template_, "{\"messages\":[],\"tools\":[]}", "T[]");
    assert_renders(template_, "{\"messages\":[],\"tools\":null}", "<s>FalseNone");
    assert_fails(template_, "[]", E_INVALID, "not a JSON object");
    assert_fails(template_, "{", E_INVALID, "Invalid JSON at line 1");
    assert_fails(template_, "{\"chat_template_kwargs\":[]}", E_INVALID, "must be an object");
    chat_template_close(template_);
    gguf_close(file);
    free(stream.bytes);
}

/* Integers that no tree holds, and NULs, go through text. */
static void test_text_holds_more_than_trees(void **state)
{
    static const char line[] =
        "{\"messages\":[12345678901234567890123,\"a\\u0000b\",5.0],\"big\":-9223372036854775809}";
    struct chat_template *template_ = NULL;
    struct gguf_stream stream;
    struct gguf *file = make_gguf(&stream, "{{ messages|tojson }}{{ big }}", NULL);
    struct buf text;

    (void)state;
    assert_int_equal(chat_template_open_gguf(file, "", &template_, NULL), 0);
    buf_init(&text, 4096);
    assert_int_equal(chat_template_render_text(template_, line, sizeof line - 1, &now, &text, NULL),
                     0);
    assert_string_equal(buf_string(&text),
                        "[12345678901234567890123, \"a\\u0000b\", 5.0]-9223372036854775809");
    buf_fini(&text);
    chat_template_close(template_);
    gguf_close(file);
    free(stream.bytes);
}

static void test_none_and_broken_ones(void **state)
{
    static const struct {
        const char *source;
        int code;
        const char *word;
    } rows[] = {
        {NULL, E_UNSUPPORTED, "--chat-template FILE"},
        {"{% if x %}", E_INVALID, "line 1, column 4"},
        {"a\n{{ 'x' | }}", E_INVALID, "line 2, column 10"},
        {"\xff", E_INVALID, "not UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *template_ = NULL;
        struct gguf_stream stream;
        struct gguf *file = make_gguf(&stream, rows[i].source, NULL);
        struct fault fault = {0};

        assert_int_equal(chat_template_open_gguf(file, "", &template_, NULL), 0);
        assert_int_equal(chat_template_check(template_, &fault), rows[i].code);
        assert_non_null(strstr(fault.message, rows[i].word));
        assert_non_null(strstr(fault.message, "--chat-template FILE"));
        assert_fails(template_, "{\"messages\":[]}", rows[i].code, rows[i].word);
        chat_template_close(template_);
        gguf_close(file);
        free(stream.bytes);
    }
}

static void test_a_template_that_is_no_text(void **state)
{
    struct chat_template *template_ = NULL;
    struct gguf_stream stream;
    struct gguf *file;

    (void)state;
    gguf_stream_open(&stream);
    gguf_stream_number(&stream, "tokenizer.chat_template", 7);
    file = gguf_stream_finish(&stream);
    assert_int_equal(chat_template_open_gguf(file, "", &template_, NULL), E_CORRUPT);
    assert_null(template_);
    chat_template_close(NULL);
    gguf_close(file);
    free(stream.bytes);
}

/* --- files ------------------------------------------------------------------------------------ */

static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[256];
    FILE *to;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    to = fopen(path, "w");
    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(fclose(to), 0);
}

static int make_folder(void **state)
{
    char path[256];

    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-template-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    return mkdir(path, 0700);
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static struct chat_template *open_path(const char *name)
{
    struct chat_template *template_ = NULL;
    struct fault fault = {0};
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (chat_template_open_path(path, &template_, &fault) < 0)
        fail_msg("%s", fault.message);
    return template_;
}

static void test_folder(void **state)
{
    struct chat_template *template_;

    (void)state;
    write_file("tokenizer_config.json",
               "{\"model_max_length\":1000000000000000019884624838656,\"bos_token\":\"<b>\","
               "\"eos_token\":{\"content\":\"<e>\"},\"unk_token\":null,\"chat_template\":["
               "{\"name\":\"default\",\"template\":\"D{{ bos_token }}{{ eos_token }}\"},"
               "{\"name\":\"tool_use\",\"template\":\"U\"},{\"name\":7}]}");
    template_ = open_path("tokenizer_config.json");
    assert_renders(template_, "{\"messages\":[]}", "D<b><e>");
    assert_renders(template_, "{\"messages\":[],\"tools\":[]}", "U");
    chat_template_close(template_);

    write_file("additional_chat_templates/tool_use.jinja", "V");
    template_ = open_path("");
    assert_renders(template_, "{\"messages\":[]}", "D<b><e>");
    assert_renders(template_, "{\"messages\":[],\"tools\":[]}", "V");
    chat_template_close(template_);

    /* A file of its own goes before the one in the config; the tokens are still the config's. */
    write_file("chat_template.jinja", "F{{ bos_token }}\n");
    template_ = open_path("");
    assert_renders(template_, "{\"messages\":[]}", "F<b>");
    chat_template_close(template_);
    template_ = open_path("chat_template.jinja");
    assert_renders(template_, "{\"messages\":[]}", "F");
    chat_template_close(template_);
}

static void test_a_file_in_the_models_place(void **state)
{
    struct chat_template *template_ = NULL;
    struct gguf_stream stream;
    struct gguf *file = make_gguf(&stream, "model", NULL);
    struct fault fault = {0};
    char path[256];

    (void)state;
    write_file("mine.txt", "mine{{ bos_token }}");
    snprintf(path, sizeof path, "%s/mine.txt", folder);
    assert_int_equal(chat_template_open_gguf(file, path, &template_, NULL), 0);
    assert_renders(template_, "{\"messages\":[]}", "mine<s>");
    chat_template_close(template_);
    template_ = NULL;

    write_file("mine.txt", "{{");
    assert_int_equal(chat_template_open_gguf(file, path, &template_, &fault), E_INVALID);
    assert_non_null(strstr(fault.message, path));
    snprintf(path, sizeof path, "%s/none", folder);
    assert_true(chat_template_open_gguf(file, path, &template_, &fault) < 0);
    write_file("x.json", "{}");
    snprintf(path, sizeof path, "%s/x.json", folder);
    assert_int_equal(chat_template_open_gguf(file, path, &template_, &fault), E_NOT_FOUND);
    write_file("x.json", "{");
    assert_int_equal(chat_template_open_gguf(file, path, &template_, &fault), E_CORRUPT);
    assert_null(template_);
    gguf_close(file);
    free(stream.bytes);
}

/* --- what a server asks ----------------------------------------------------------------------- */

/* The folder's template, another one with the folder's tokens, and none at all. */
static void test_a_folders_own_or_another(void **state)
{
    struct chat_template *template_ = NULL;
    struct fault fault = {0};
    char other[256];

    (void)state;
    snprintf(other, sizeof other, "%s/other.txt", folder);
    write_file("other.txt", "other{{ bos_token }}");
    assert_int_equal(chat_template_open_folder(folder, "", &template_, &fault), 0);
    assert_int_equal(chat_template_check(template_, &fault), E_UNSUPPORTED);
    chat_template_close(template_);
    write_file("tokenizer_config.json",
               "{\"bos_token\":\"<b>\",\"chat_template\":\"own{{ bos_token }}\"}");
    assert_int_equal(chat_template_open_folder(folder, "", &template_, &fault), 0);
    assert_renders(template_, "{\"messages\":[]}", "own<b>");
    chat_template_close(template_);
    assert_int_equal(chat_template_open_folder(folder, other, &template_, &fault), 0);
    assert_renders(template_, "{\"messages\":[]}", "other<b>");
    chat_template_close(template_);
    template_ = NULL;
    write_file("other.txt", "{% broken");
    assert_true(chat_template_open_folder(folder, other, &template_, &fault) < 0);
    assert_null(template_);
    assert_non_null(strstr(fault.message, other));
}

static void test_traits(void **state)
{
    static const struct {
        const char *source;
        struct jinja_traits traits;
    } rows[] = {
        {"{% for m in messages %}{{ m.content }}{% endfor %}", {false, false, false}},
        {"{% for p in m['content'] %}{% endfor %}", {true, false, false}},
        {"{% macro f(content) %}{% if content is not string %}{% for p in content | list %}"
         "{% endfor %}{% endif %}{% endmacro %}",
         {true, true, false}},
        {"{% if m.content is string %}{% endif %}{{ m.role == 'developer' }}", {false, true, true}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *template_ = NULL;
        struct gguf_stream stream;
        struct gguf *file = make_gguf(&stream, rows[i].source, NULL);
        struct jinja_traits traits;

        assert_int_equal(chat_template_open_gguf(file, "", &template_, NULL), 0);
        chat_template_traits(template_, false, &traits);
        assert_memory_equal(&traits, &rows[i].traits, sizeof traits);
        chat_template_close(template_);
        gguf_close(file);
        free(stream.bytes);
    }
}

static void test_failing_allocations(void **state)
{
    struct gguf_stream stream;
    struct gguf *file = make_gguf(&stream,
                                  "{{ bos_token }}{% for m in messages %}{{ m }}"
                                  "{% endfor %}",
                                  "T");
    json_t *input = json_object();

    (void)state;
    json_object_set_new(input, "messages", json_array());
    for (uint64_t nth = 1;; nth++) {
        struct chat_template *template_ = NULL;
        struct buf text;
        int r;

        buf_init(&text, 4096);
        failing_malloc_arm(nth);
        r = chat_template_open_gguf(file, "", &template_, NULL);
        if (r == 0)
            r = chat_template_render(template_, input, &now, &text, NULL);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_string_equal(buf_string(&text), "<s>");
            buf_fini(&text);
            chat_template_close(template_);
            break;
        }
        assert_int_equal(r, E_MEMORY);
        assert_int_equal(text.bytes, 0);
        buf_fini(&text);
        chat_template_close(template_);
    }
    json_decref(input);
    gguf_close(file);
    free(stream.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_text_holds_more_than_trees),
        cmocka_unit_test(test_none_and_broken_ones),
        cmocka_unit_test(test_a_template_that_is_no_text),
        cmocka_unit_test_setup_teardown(test_folder, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_a_file_in_the_models_place, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_a_folders_own_or_another, make_folder, remove_folder),
        cmocka_unit_test(test_traits),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests_name("engine/text/template", tests, NULL, NULL);
}
