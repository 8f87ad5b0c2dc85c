/* fuzz_template.c -- libFuzzer target: any bytes as a chat template. What is taken must render two
 * messages to its preamble, if it has one, and plain ChatML. Corpus: tests/fuzz/corpus_template. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template.h"
#include "tests/lib/gguf_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char expected[] = "<|im_start|>user\nx<|im_end|>\n<|im_start|>tool\ny<|im_end|>\n"
                                   "<|im_start|>assistant\n";
    static const struct chat_message messages[] = {{"user", 4, "x", 1}, {"tool", 4, "y", 1}};
    struct chat_template *template_ = NULL;
    struct gguf_stream stream;
    struct gguf *file;
    struct buf text;

    gguf_stream_open(&stream);
    gguf_stream_key(&stream, "tokenizer.chat_template", GGUF_STRING);
    gguf_stream_text(&stream, (const char *)data, size);
    file = gguf_stream_finish(&stream);
    buf_init(&text, 4 << 20);
    if (file && chat_template_open_gguf(file, &template_, NULL) == 0 &&
        chat_template_check(template_, NULL) == 0) {
        if (chat_template_render(template_, messages, 2, true, &text, NULL) < 0 ||
            text.bytes < sizeof expected - 1 ||
            memcmp(text.data + text.bytes - (sizeof expected - 1), expected, sizeof expected - 1))
            abort();
    }
    buf_fini(&text);
    chat_template_close(template_);
    gguf_close(file);
    free(stream.bytes);
    return 0;
}
