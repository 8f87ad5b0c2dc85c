/* fake_text.h -- a tokenizer and a chat template for tests of what is built on them: every byte is
 * a token, and a few more have texts that make trouble (halves of characters, words, control
 * tokens). Include it in one test file; it defines the functions of tokenizer.h and template.h. */
#ifndef WEFT_FAKE_TEXT_H
#define WEFT_FAKE_TEXT_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template.h"
#include "engine/text/tokenizer.h"

enum fake_token { /* 0..255 are the bytes */
                  FAKE_START = 256,
                  FAKE_END,
                  FAKE_BOS,
                  FAKE_HELLO,
                  FAKE_WORLD,
                  FAKE_E_ACUTE,
                  FAKE_EURO_HEAD,
                  FAKE_EURO_TAIL,
                  FAKE_STOP_HEAD,
                  FAKE_STOP_TAIL,
                  FAKE_AAB,
                  FAKE_QUOTE,
                  FAKE_COUNT,
};

static const char *const fake_pieces[] = {
    "<|im_start|>", "<|im_end|>", "<s>", " hello", " wor\nld", "\xc3\xa9",
    "\xe2\x82",     "\xac",       "xEN", "D.y",    "aab",      "\"\\\t",
};

struct tokenizer {
    bool adds_bos;
};

void tokens_init(struct tokens *tokens, size_t ceiling)
{
    *tokens = (struct tokens){.ceiling = ceiling};
}

void tokens_fini(struct tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct tokens){.ids = NULL};
}

int tokens_put(struct tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->ceiling)
        return E_TOO_LARGE;
    if (tokens->count == tokens->room) {
        size_t room = tokens->room ? tokens->room * 2 : 64;
        int32_t *ids = realloc(tokens->ids, room * sizeof *ids);

        if (!ids)
            return -ENOMEM;
        tokens->ids = ids;
        tokens->room = room;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes)
{
    static char bytes[256][2];

    (void)tokenizer;
    must(id >= 0 && id < FAKE_COUNT);
    if (id >= FAKE_START) {
        *ret_bytes = strlen(fake_pieces[id - FAKE_START]);
        return fake_pieces[id - FAKE_START];
    }
    bytes[id][0] = (char)id;
    *ret_bytes = 1;
    return bytes[id];
}

const char *tokenizer_first_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes)
{
    return tokenizer_piece(tokenizer, id, ret_bytes);
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    (void)tokenizer;
    return id == FAKE_START || id == FAKE_END || id == FAKE_BOS;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     unsigned flags, struct tokens *tokens, struct fault *fault)
{
    int r = 0;

    if ((flags & ENCODE_ADD_SPECIAL) && tokenizer->adds_bos)
        r = tokens_put(tokens, FAKE_BOS);
    for (size_t at = 0; r == 0 && at < bytes;) {
        int32_t id = (unsigned char)text[at];
        size_t used = 1;

        for (int32_t special = FAKE_START; special <= FAKE_BOS; special++) {
            size_t n = strlen(fake_pieces[special - FAKE_START]);

            if (n <= bytes - at && !memcmp(text + at, fake_pieces[special - FAKE_START], n)) {
                id = special;
                used = n;
            }
        }
        r = tokens_put(tokens, id);
        at += used;
    }
    return r < 0 ? fault_set(fault, r, "too many tokens, or out of memory") : 0;
}

uint32_t tokenizer_count(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_COUNT;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece)
{
    (void)tokenizer;
    for (int32_t id = FAKE_START; id <= FAKE_BOS; id++) {
        if (strcmp(fake_pieces[id - FAKE_START], piece) == 0)
            return id;
    }
    return -1;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_BOS;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

uint32_t tokenizer_ends(const struct tokenizer *tokenizer, const int32_t **ret_ids)
{
    static const int32_t ends[] = {FAKE_END};

    (void)tokenizer;
    *ret_ids = ends;
    return 1;
}

struct chat_template {
    bool foreign;
    bool goes_through_parts; /* takes contents as arrays, and knows no other */
};

void chat_template_traits(const struct chat_template *template_, bool with_tools,
                          struct jinja_traits *ret_traits)
{
    (void)with_tools;
    *ret_traits = (struct jinja_traits){.iterates_content = template_->goes_through_parts};
}

/* ChatML. An array as content is written as its texts between brackets; of the other variables
 * `suffix` is written, and each of the documents' titles. */
int chat_template_render(const struct chat_template *template_, const json_t *input,
                         const struct tm *now, struct buf *ret_text, struct fault *fault)
{
    const json_t *suffix =
        json_object_get(json_object_get(input, "chat_template_kwargs"), "suffix");
    json_t *message, *part;
    size_t i, j;

    (void)now;
    if (template_->foreign)
        return fault_set(fault, E_UNSUPPORTED, "The model has no chat template");
    json_array_foreach(json_object_get(input, "documents"), i, message)
        buf_text(ret_text, json_string_value(json_object_get(message, "title")));
    json_array_foreach(json_object_get(input, "messages"), i, message)
    {
        const json_t *content = json_object_get(message, "content");

        buf_text(ret_text, "<|im_start|>");
        buf_text(ret_text, json_string_value(json_object_get(message, "role")));
        buf_byte(ret_text, '\n');
        if (json_is_string(content))
            buf_put(ret_text, json_string_value(content), json_string_length(content));
        json_array_foreach(content, j, part)
        {
            buf_byte(ret_text, '[');
            buf_text(ret_text, json_string_value(json_object_get(part, "text")));
            buf_byte(ret_text, ']');
        }
        buf_text(ret_text, "<|im_end|>\n");
    }
    if (json_is_true(json_object_get(input, "add_generation_prompt")))
        buf_text(ret_text, "<|im_start|>assistant\n");
    if (suffix)
        buf_text(ret_text, json_string_value(suffix));
    return buf_failed(ret_text) ? fault_set(fault, E_MEMORY, "Out of memory") : 0;
}

#endif
