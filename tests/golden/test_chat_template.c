/* test_chat_template.c -- protects: a published chat template is rendered exactly as its makers'
 * library does, or not at all. Every template of WEFT_GOLDENS/chat_templates is offered; those that
 * are taken must give the recorded text for every conversation whose contents are plain text. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/gguf.h"
#include "engine/text/template.h"
#include "tests/lib/gguf_stream.h"
#include "tests/lib/goldens.h"

enum { MESSAGES_MAX = 64 };

/* Returns how many messages there are, 0 when one is not plain text. */
static size_t read_messages(const json_t *conversation, struct chat_message *messages)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(conversation, "messages"), i, one)
    {
        const json_t *role = json_object_get(one, "role");
        const json_t *content = json_object_get(one, "content");

        if (!json_is_string(content))
            return 0;
        assert_true(i < MESSAGES_MAX);
        messages[i] =
            (struct chat_message){json_string_value(role), json_string_length(role),
                                  json_string_value(content), json_string_length(content)};
    }
    return i;
}

/* Returns how many cases were compared. */
static size_t check_renders(const struct chat_template *template_, const char *name,
                            const json_t *conversations)
{
    char command[4096];
    json_t *reference;
    const json_t *one;
    size_t i, compared = 0;

    snprintf(command, sizeof command, "xz -dc '%s/chat_templates/%s.json.xz'", goldens_folder(),
             name);
    reference = command_json(command, 0);
    json_array_foreach(json_object_get(reference, "cases"), i, one)
    {
        const char *conversation = json_string_value(json_object_get(one, "conv"));
        const json_t *expected = json_object_get(one, "expected");
        bool open = json_is_true(json_object_get(one, "add_generation_prompt"));
        struct chat_message messages[MESSAGES_MAX];
        size_t count = read_messages(json_object_get(conversations, conversation), messages);
        struct buf text;

        if (count == 0)
            continue;
        buf_init(&text, 64 << 20);
        assert_int_equal(chat_template_render(template_, messages, count, open, &text, NULL), 0);
        assert_non_null(expected);
        if (text.bytes != json_string_length(expected) ||
            memcmp(buf_string(&text), json_string_value(expected), text.bytes) != 0)
            fail_msg("%s renders %s as '%s', not '%s'", name, conversation, buf_string(&text),
                     json_string_value(expected));
        buf_fini(&text);
        compared++;
    }
    json_decref(reference);
    return compared;
}

static bool offer(const char *path, const char *name, const json_t *conversations)
{
    struct chat_template *template_;
    struct gguf_stream stream;
    struct gguf *file;
    char command[4096];
    size_t bytes;
    char *text;
    bool taken;

    snprintf(command, sizeof command, "cat '%s'", path);
    text = command_output(command, &bytes);
    gguf_stream_open(&stream);
    gguf_stream_key(&stream, "tokenizer.chat_template", GGUF_STRING);
    gguf_stream_text(&stream, text, bytes);
    file = gguf_stream_finish(&stream);
    assert_non_null(file);
    assert_int_equal(chat_template_open_gguf(file, &template_, NULL), 0);
    taken = chat_template_check(template_, NULL) == 0;
    if (taken)
        assert_true(check_renders(template_, name, conversations) >= 20);
    chat_template_close(template_);
    gguf_close(file);
    free(stream.bytes);
    free(text);
    return taken;
}

static void test_published_templates(void **state)
{
    /* Plain ChatML, with and without a preamble; all others have more to say. */
    static const char *const known[] = {"axo-chatml",  "tokcfg-smollm2_gguf", "xin-MiniCPM-V-2.6",
                                        "xin-Yi-chat", "xin-cogagent",        "xin-marco-o1"};
    char pattern[4096];
    const json_t *conversations;
    json_t *file;
    size_t taken = 0;
    glob_t found;

    (void)state;
    snprintf(pattern, sizeof pattern, "cat '%s/chat_templates/conversations.json'",
             goldens_folder());
    file = command_json(pattern, JSON_DECODE_INT_AS_REAL); /* it has huge integers */
    conversations = json_object_get(file, "conversations");
    snprintf(pattern, sizeof pattern, "%s/chat_templates/*.jinja", goldens_folder());
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 100);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[256];
        bool expected = false;

        snprintf(name, sizeof name, "%s", strrchr(found.gl_pathv[i], '/') + 1);
        *strstr(name, ".jinja") = 0;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            expected |= strcmp(name, known[j]) == 0;
        if (offer(found.gl_pathv[i], name, conversations) != expected)
            fail_msg("template %s is %s", name, expected ? "refused" : "taken");
        taken += expected;
    }
    assert_int_equal(taken, sizeof known / sizeof *known);
    globfree(&found);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_templates)};

    return cmocka_run_group_tests_name("golden/chat_template", tests, NULL, NULL);
}
