/* test_template.c -- protects: which chat templates are taken, that those are rendered exactly, and
 * that another one, a broken one or none says so and harms nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/template.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/gguf_stream.h"

#define LOOP "{% for message in messages %}"
#define TURN                                                                                 \
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}" \
    "{% endfor %}"
#define OPENING "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define PREAMBLE                                                                             \
    "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nIt\\'s " \
    "\"me\"<|im_end|>\n' }}{% endif %}"

struct opened {
    struct gguf_stream stream;
    struct gguf *file;
    struct chat_template *template_;
};

static void open_text(struct opened *opened, const char *text, size_t bytes)
{
    gguf_stream_open(&opened->stream);
    if (text) {
        gguf_stream_key(&opened->stream, "tokenizer.chat_template", GGUF_STRING);
        gguf_stream_text(&opened->stream, text, bytes);
    }
    opened->file = gguf_stream_finish(&opened->stream);
    assert_non_null(opened->file);
    assert_int_equal(chat_template_open_gguf(opened->file, &opened->template_, NULL), 0);
}

static void close_text(struct opened *opened)
{
    chat_template_close(opened->template_);
    gguf_close(opened->file);
    free(opened->stream.bytes);
}

static const struct chat_message conversation[] = {
    {"user", 4, "{{ Hi }}", 8}, {"assistant", 9, "", 0}, {"tool", 4, "a\0b", 3}};

static void assert_renders(const char *template_text, size_t count, bool open, const char *expected,
                           size_t expected_bytes)
{
    struct opened opened;
    struct buf text;

    open_text(&opened, template_text, strlen(template_text));
    buf_init(&text, 4096);
    assert_int_equal(chat_template_check(opened.template_, NULL), 0);
    assert_int_equal(chat_template_render(opened.template_, conversation, count, open, &text, NULL),
                     0);
    assert_int_equal(text.bytes, expected_bytes);
    assert_memory_equal(buf_string(&text), expected, expected_bytes);
    buf_fini(&text);
    close_text(&opened);
}

#define ASSERT_RENDERS(template_, count_, open_, expected_) \
    assert_renders((template_), (count_), (open_), (expected_), sizeof(expected_) - 1)

static void test_rendering(void **state)
{
    (void)state;
    ASSERT_RENDERS(LOOP TURN OPENING, 3, true,
                   "<|im_start|>user\n{{ Hi }}<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
                   "<|im_start|>tool\na\0b<|im_end|>\n<|im_start|>assistant\n");
    ASSERT_RENDERS(LOOP TURN OPENING, 1, false, "<|im_start|>user\n{{ Hi }}<|im_end|>\n");
    ASSERT_RENDERS(LOOP PREAMBLE TURN OPENING, 1, false,
                   "<|im_start|>system\nIt's \"me\"<|im_end|>\n"
                   "<|im_start|>user\n{{ Hi }}<|im_end|>\n");
    ASSERT_RENDERS(LOOP PREAMBLE TURN OPENING, 0, true, "<|im_start|>assistant\n");
}

static void test_a_system_message_takes_the_preambles_place(void **state)
{
    static const struct chat_message system = {"system", 6, "S", 1};
    static const char text[] = LOOP PREAMBLE TURN OPENING;
    struct opened opened;
    struct buf rendered;

    (void)state;
    open_text(&opened, text, strlen(text));
    buf_init(&rendered, 4096);
    assert_int_equal(chat_template_render(opened.template_, &system, 1, false, &rendered, NULL), 0);
    assert_string_equal(buf_string(&rendered), "<|im_start|>system\nS<|im_end|>\n");
    buf_fini(&rendered);
    /* Too long for the buffer: a fault, not half a prompt. */
    buf_init(&rendered, 10);
    assert_int_equal(chat_template_render(opened.template_, &system, 1, false, &rendered, NULL),
                     E_TOO_LARGE);
    buf_fini(&rendered);
    close_text(&opened);
}

/* The same template written in other ways that Jinja reads alike. */
static void test_other_spellings(void **state)
{
    static const char *const same[] = {
        LOOP TURN OPENING,
        LOOP TURN OPENING "\n",
        LOOP TURN OPENING "\n\n", /* one newline after the tag goes, and one at the end */
        " \t" LOOP TURN OPENING,
        LOOP "\n" TURN "\n  " OPENING,
        "{%for message in messages%}{{ '<|im_start|>'+message.role+\"\\n\" + message.content +\n"
        "'<|im_end|>\\n' }}{%endfor%}{%if add_generation_prompt%}{{'<|im_start|>assistant\\n'}}"
        "{%endif%}",
        "{% for message in messages %}\n    {{- '<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' + '\n' -}}\n{% endfor %}\n"
        "{%- if add_generation_prompt -%}\n  {{ '<|im_start|>assistant\r\n' -}}\n{% endif %}",
        "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
        "{% endif %}" LOOP TURN OPENING,
    };

    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        ASSERT_RENDERS(same[i], 1, true,
                       "<|im_start|>user\n{{ Hi }}<|im_end|>\n<|im_start|>assistant\n");
}

static void assert_refused(const char *text, size_t bytes, const char *word)
{
    struct fault fault = {0};
    struct opened opened;
    struct buf rendered;

    open_text(&opened, text, bytes);
    buf_init(&rendered, 4096);
    assert_int_equal(chat_template_check(opened.template_, &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.message, word));
    assert_non_null(strstr(fault.message, "/v1/completions"));
    assert_int_equal(
        chat_template_render(opened.template_, conversation, 1, true, &rendered, &fault),
        E_UNSUPPORTED);
    assert_int_equal(rendered.bytes, 0);
    buf_fini(&rendered);
    close_text(&opened);
}

/* Each would be rendered wrongly by the plain rule. */
static void test_other_templates_are_refused(void **state)
{
    static const char *const other[] = {
        "",
        "{{ bos_token }}" LOOP TURN OPENING,
        LOOP TURN,
        LOOP TURN OPENING OPENING,
        LOOP TURN OPENING "\n\n\n",
        LOOP " " TURN OPENING,
        LOOP " " PREAMBLE TURN OPENING,
        LOOP TURN " " OPENING,
        LOOP TURN "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif %}",
        LOOP TURN "{% if add_generation_prompt and x %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        LOOP "{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim + "
             "'<|im_end|>' + '\n'}}{% endfor %}" OPENING,
        LOOP "{{'<|im_start|>' + message['role'] + '\n\n' + message['content'] + '<|im_end|>' + "
             "'\n'}}{% endfor %}" OPENING,
        LOOP "{# a comment #}" TURN OPENING,
        LOOP
        "{% if loop.first and messages[0]['role'] != 'tool' %}{{ 'x' }}{% endif %}" TURN OPENING,
        LOOP "{% if loop.first and messages[0]['role'] != 'system' %}{{ 'x' + y }}{% endif %}" TURN
            OPENING,
        LOOP
        "{% if loop.first and messages[0]['role'] != 'system' %}{{ '\\u0041' }}{% endif %}" TURN
            OPENING,
        "{% for message in messages",
        "{% for message in messages %}{{ 'open",
        "{% for message in messages % }" TURN OPENING,
        LOOP
        "{% if loop.first and messages[0]['role'] ! = 'system' %}{{ 'x' }}{% endif %}" TURN OPENING,
        "{{ 'a\\",
        "{%",
        "{{ -",
        "{",
    };
    static const char with_nul[] = LOOP TURN OPENING "\0";
    static const char with_mark[] = LOOP "\1" TURN OPENING;

    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_refused(other[i], strlen(other[i]), "ChatML");
    assert_refused(with_nul, sizeof with_nul - 1, "ChatML");
    assert_refused(with_mark, sizeof with_mark - 1, "ChatML");
    assert_refused(NULL, 0, "no chat template");
}

/* A changed byte may make another preamble, but never a template that is half understood. */
static void test_cut_and_changed_templates(void **state)
{
    static const char text[] = LOOP PREAMBLE TURN OPENING;
    const size_t bytes = sizeof text - 1;
    const char *literal = strstr(text, "<|im_start|>"), *literal_end = strstr(literal, "' }}");

    (void)state;
    for (size_t cut = 0; cut < bytes; cut++)
        assert_refused(text, cut, "ChatML");
    for (size_t at = 0; at < bytes; at++) {
        char *copy = strdup(text);
        struct opened opened;

        assert_non_null(copy);
        copy[at] = copy[at] == '~' ? '^' : '~';
        open_text(&opened, copy, bytes);
        /* Only inside the preamble's literal is another byte as good. */
        if (text + at < literal || text + at >= literal_end)
            assert_int_equal(chat_template_check(opened.template_, NULL), E_UNSUPPORTED);
        close_text(&opened);
        free(copy);
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
    assert_int_equal(chat_template_open_gguf(file, &template_, NULL), E_CORRUPT);
    assert_null(template_);
    chat_template_close(NULL);
    gguf_close(file);
    free(stream.bytes);
}

static void test_failing_allocations(void **state)
{
    static const char text[] = LOOP PREAMBLE TURN OPENING;
    struct opened opened;

    (void)state;
    open_text(&opened, text, sizeof text - 1);
    for (uint64_t nth = 1;; nth++) {
        struct chat_template *template_ = NULL;
        int r;

        failing_malloc_arm(nth);
        r = chat_template_open_gguf(opened.file, &template_, NULL);
        if (!failing_malloc_disarm()) {
            assert_int_equal(chat_template_check(template_, NULL), 0);
            chat_template_close(template_);
            break;
        }
        assert_int_equal(r, E_MEMORY);
        assert_null(template_);
    }
    close_text(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rendering),
        cmocka_unit_test(test_a_system_message_takes_the_preambles_place),
        cmocka_unit_test(test_other_spellings),
        cmocka_unit_test(test_other_templates_are_refused),
        cmocka_unit_test(test_cut_and_changed_templates),
        cmocka_unit_test(test_a_template_that_is_no_text),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests_name("engine/text/template", tests, NULL, NULL);
}
