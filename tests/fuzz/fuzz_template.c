/* fuzz_template.c -- libFuzzer target: any bytes as a chat template, or as the JSON that one is
 * rendered with. Whatever it is, it ends soon, takes bounded memory, gives UTF-8, and gives the
 * same again. Corpus: tests/fuzz/corpus_template; up to a line "%%%%" it is the template, behind
 * that the JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_BYTES_MAX = 1 << 20, STEPS_MAX = 1 << 17 };

static const char variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S \\u00e9\\n\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<b>\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":[1,2.5,true,123456789012345678901]}}}]}],"
    "\"tools\":[{\"type\":\"function\"}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\","
    "\"s\":\"Hello World\",\"n\":5,\"f\":2.5,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":\"x\"}}";

static void check_utf8(const struct buf *text)
{
    for (size_t at = 0, one; at < text->bytes; at += one) {
        if (!utf8_next(text->data + at, text->bytes - at, &one, NULL))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 30};
    const char *source = (const char *)data;
    const char *mark = size > 0 ? memmem(source, size, "\n%%%%\n", 6) : NULL;
    struct jinja_variables from = {.text = variables, .bytes = sizeof variables - 1};
    const struct jinja_input input = {.sources = &from,
                                      .count = 1,
                                      .spread = "d",
                                      .skip_null = "_token",
                                      .now = &now,
                                      .steps_max = STEPS_MAX};
    struct jinja *jinja = NULL;
    struct fault fault = {0};
    struct buf first, second;

    if (mark) {
        from.text = mark + 6;
        from.bytes = (size_t)(source + size - from.text);
        size = (size_t)(mark - source);
    }
    if (jinja_open(source, size, &jinja, &fault) < 0) {
        if (fault.code >= 0 || !*fault.message)
            abort();
        return 0;
    }
    buf_init(&first, TEXT_BYTES_MAX);
    buf_init(&second, TEXT_BYTES_MAX);
    if (jinja_render(jinja, &input, &first, &fault) == 0) {
        check_utf8(&first);
        if (jinja_render(jinja, &input, &second, NULL) < 0 || first.bytes != second.bytes ||
            memcmp(buf_string(&first), buf_string(&second), first.bytes) != 0)
            abort();
    } else if (fault.code >= 0 || first.bytes > 0) {
        abort();
    }
    buf_fini(&first);
    buf_fini(&second);
    jinja_close(jinja);
    return 0;
}
