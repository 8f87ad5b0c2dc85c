/* template.c -- see template.h.
 *
 * A template is a program in Jinja. Here it is only recognized: written in one canonical way (white
 * space between tags and inside them as Jinja drops it, string literals decoded, their quotes
 * become QUOTE), and then compared, part by part, with the forms below, which all mean the same
 * rendering. What differs in anything else is refused, so a template is either rendered exactly or
 * not at all.
 *
 *     {% for message in messages %}
 *         {% if loop.first and messages[0]['role'] != 'system' %}{{ PREAMBLE }}{% endif %}
 *         {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
 *     {% endfor %}
 *     {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
 *
 * The line with the preamble may be missing.
 *
 * White space: transformers renders with trim_blocks (the newline after a block tag goes) and
 * lstrip_blocks (blanks before one at the start of a line go). */
#include "engine/text/template.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define QUOTE "\1"

enum { TEMPLATE_BYTES_MAX = 1 << 20 };

struct chat_template {
    bool found;
    bool known;
    struct buf preamble; /* comes first when the first message is not the system's */
};

/* ---- the canonical text ---- */

struct scanner {
    const char *at;
    const char *end;
    struct buf *out;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool starts(const struct scanner *scanner, const char *text)
{
    size_t bytes = strlen(text);

    return (size_t)(scanner->end - scanner->at) >= bytes && memcmp(scanner->at, text, bytes) == 0;
}

/* A literal, the scanner standing on its quote. 'a' + 'b' becomes one literal. */
static bool scan_literal(struct scanner *scanner)
{
    struct buf *out = scanner->out;
    char quote = *scanner->at++;

    if (out->bytes >= 2 && memcmp(out->data + out->bytes - 2, QUOTE "+", 2) == 0)
        buf_cut(out, out->bytes - 2);
    else
        buf_text(out, QUOTE);
    while (scanner->at < scanner->end && *scanner->at != quote) {
        char c = *scanner->at++;

        if (c == '\\') {
            if (scanner->at == scanner->end)
                return false;
            c = *scanner->at++;
            if (c == 'n')
                c = '\n';
            else if (c == 't')
                c = '\t';
            else if (c != '\\' && c != '\'' && c != '"')
                return false;
        } else if (c == '\r') { /* Jinja knows one kind of newline */
            c = '\n';
            if (scanner->at < scanner->end && *scanner->at == '\n')
                scanner->at++;
        }
        buf_byte(out, c);
    }
    if (scanner->at == scanner->end)
        return false;
    scanner->at++;
    buf_text(out, QUOTE);
    return true;
}

/* One tag, the scanner behind its opening, up to and with `close`. A blank is kept between words
 * only; a member named with a dot is written with brackets. */
static bool scan_tag(struct scanner *scanner, const char *close)
{
    struct buf *out = scanner->out;
    bool blank = false;

    for (;;) {
        char c, last = out->bytes > 0 ? out->data[out->bytes - 1] : 0;

        if (scanner->at == scanner->end)
            return false;
        if (starts(scanner, close) || (*scanner->at == '-' && scanner->end - scanner->at >= 3 &&
                                       scanner->at[1] == close[0] && scanner->at[2] == close[1]))
            return true;
        c = *scanner->at;
        if (c == '%' || c == '{' || c == '}') { /* no form has one, and "% }" is no end of a tag */
            return false;
        } else if (c == '\'' || c == '"') {
            if (!scan_literal(scanner))
                return false;
        } else if (is_blank(c)) {
            scanner->at++;
            blank = true;
            continue;
        } else if (starts(scanner, ".role") && is_word(last)) {
            buf_text(out, "[" QUOTE "role" QUOTE "]");
            scanner->at += 5;
        } else if (starts(scanner, ".content") && is_word(last)) {
            buf_text(out, "[" QUOTE "content" QUOTE "]");
            scanner->at += 8;
        } else {
            if (blank && is_word(c) && is_word(last))
                buf_byte(out, ' ');
            if (blank && last == '!')
                return false;
            buf_byte(out, c);
            scanner->at++;
        }
        blank = false;
    }
}

/* What came before a stretch of text. */
enum border { BORDER_START, BORDER_BLOCK, BORDER_OUTPUT, BORDER_STRIP /* a tag that ends in - */ };

/* Text between tags, cut as Jinja cuts it. */
static void scan_text(struct scanner *scanner, enum border border)
{
    const char *start = scanner->at, *end, *line;
    bool at_line_start = border == BORDER_START;

    while (scanner->at < scanner->end && !starts(scanner, "{%") && !starts(scanner, "{{") &&
           !starts(scanner, "{#"))
        scanner->at++;
    end = scanner->at;
    if (scanner->at == scanner->end && end > start && end[-1] == '\n')
        end--; /* a template's last newline is not part of it */
    for (line = start; line < end && border == BORDER_STRIP && is_blank(*line); line++)
        at_line_start = *line == '\n';
    if (border == BORDER_BLOCK && line < end && *line == '\r')
        line++;
    if (border == BORDER_BLOCK && line < end && *line == '\n') {
        line++;
        at_line_start = true;
    }
    if (border == BORDER_STRIP || at_line_start)
        start = line;
    if (starts(scanner, "{%-") || starts(scanner, "{{-")) {
        while (end > start && is_blank(end[-1]))
            end--;
    } else if (starts(scanner, "{%")) {
        for (line = end; line > start && (line[-1] == ' ' || line[-1] == '\t');)
            line--;
        if (line == start ? at_line_start : line[-1] == '\n')
            end = line;
    }
    buf_put(scanner->out, start, (size_t)(end - start));
}

/* false: not to be read (an open tag, an unknown escape, a comment, a control character). */
static bool canonical(const char *text, size_t bytes, struct buf *ret_text)
{
    struct scanner scanner = {text, text + bytes, ret_text};
    enum border border = BORDER_START;

    if (memchr(text, QUOTE[0], bytes))
        return false;
    for (;;) {
        const char *close;
        bool strip;

        scan_text(&scanner, border);
        if (scanner.at == scanner.end)
            return true;
        close = scanner.at[1] == '%' ? "%}" : "}}";
        if (scanner.at[1] == '#')
            return false;
        buf_put(ret_text, scanner.at, 2);
        scanner.at += 2;
        if (scanner.at < scanner.end && *scanner.at == '-')
            scanner.at++;
        if (!scan_tag(&scanner, close))
            return false;
        strip = *scanner.at == '-';
        scanner.at += strip ? 3 : 2;
        border = strip ? BORDER_STRIP : close[0] == '%' ? BORDER_BLOCK : BORDER_OUTPUT;
        buf_text(ret_text, close);
    }
}

/* ---- recognizing ---- */

static bool skip(const char **at, const char *part)
{
    size_t bytes = strlen(part);

    if (strncmp(*at, part, bytes) != 0)
        return false;
    *at += bytes;
    return true;
}

/* Reads what the canonical text says; false when it is not of this family. */
static bool recognize(const char *at, struct buf *preamble)
{
    skip(&at, "{%if not add_generation_prompt is defined%}"
              "{%set add_generation_prompt=false%}{%endif%}");
    if (!skip(&at, "{%for message in messages%}"))
        return false;
    if (skip(&at, "{%if loop.first and messages[0][" QUOTE "role" QUOTE "]!=" QUOTE "system" QUOTE
                  "%}{{" QUOTE) ||
        skip(&at, "{%if loop.first and message[" QUOTE "role" QUOTE "]!=" QUOTE "system" QUOTE
                  "%}{{" QUOTE)) {
        size_t bytes = strcspn(at, QUOTE);

        buf_put(preamble, at, bytes);
        at += bytes;
        if (!skip(&at, QUOTE "}}{%endif%}"))
            return false;
    }
    return skip(&at, "{{" QUOTE "<|im_start|>" QUOTE "+message[" QUOTE "role" QUOTE "]+" QUOTE
                     "\n" QUOTE "+message[" QUOTE "content" QUOTE "]+" QUOTE "<|im_end|>\n" QUOTE
                     "}}{%endfor%}{%if add_generation_prompt%}{{" QUOTE
                     "<|im_start|>assistant\n" QUOTE "}}{%endif%}") &&
           *at == 0;
}

static int read_template(struct chat_template *template_, const char *text, size_t bytes)
{
    struct buf plain;
    int r;

    if (bytes > TEMPLATE_BYTES_MAX || memchr(text, 0, bytes))
        return 0;
    /* ".role" grows by three bytes, a literal not at all: only memory can run out. */
    buf_init(&plain, 2 * bytes + 16);
    if (canonical(text, bytes, &plain))
        template_->known = recognize(buf_string(&plain), &template_->preamble);
    r = buf_failed(&plain) || buf_failed(&template_->preamble) ? -ENOMEM : 0;
    buf_fini(&plain);
    return r;
}

static int out_of_memory(const struct gguf *file, struct fault *fault)
{
    return fault_set(fault, E_MEMORY, "out of memory for the chat template of %s",
                     file ? gguf_path(file) : "the model");
}

int chat_template_open_gguf(const struct gguf *file, struct chat_template **ret_template,
                            struct fault *fault)
{
    struct chat_template *template_;
    struct gguf_string text;
    int r = file ? gguf_get_string(file, "tokenizer.chat_template", &text, fault) : 0;

    if (r < 0)
        return r;
    template_ = calloc(1, sizeof *template_);
    if (!template_)
        return out_of_memory(file, fault);
    buf_init(&template_->preamble, TEMPLATE_BYTES_MAX);
    template_->found = r > 0;
    if (template_->found && read_template(template_, text.text, text.bytes) < 0) {
        chat_template_close(template_);
        return out_of_memory(file, fault);
    }
    *ret_template = template_;
    return 0;
}

void chat_template_close(struct chat_template *template_)
{
    if (!template_)
        return;
    buf_fini(&template_->preamble);
    free(template_);
}

/* ---- rendering ---- */

int chat_template_check(const struct chat_template *template_, struct fault *fault)
{
    if (!template_->found)
        return fault_set(fault, E_UNSUPPORTED,
                         "this model has no chat template, and this version chats by "
                         "ChatML templates only; /v1/completions works");
    if (!template_->known)
        return fault_set(fault, E_UNSUPPORTED,
                         "this model's chat template is not a plain ChatML one, the only kind that "
                         "this version knows; /v1/completions works");
    return 0;
}

static bool is_system(const struct chat_message *message)
{
    return message->role_bytes == 6 && memcmp(message->role, "system", 6) == 0;
}

int chat_template_render(const struct chat_template *template_, const struct chat_message *messages,
                         size_t count, bool add_generation_prompt, struct buf *ret_text,
                         struct fault *fault)
{
    int r = chat_template_check(template_, fault);

    if (r < 0)
        return r;
    if (count > 0 && !is_system(&messages[0]))
        buf_put(ret_text, buf_string(&template_->preamble), template_->preamble.bytes);
    for (size_t i = 0; i < count; i++) {
        buf_text(ret_text, "<|im_start|>");
        buf_put(ret_text, messages[i].role, messages[i].role_bytes);
        buf_byte(ret_text, '\n');
        buf_put(ret_text, messages[i].content, messages[i].content_bytes);
        buf_text(ret_text, "<|im_end|>\n");
    }
    if (add_generation_prompt)
        buf_text(ret_text, "<|im_start|>assistant\n");
    if (buf_failed(ret_text))
        return fault_set(fault, E_TOO_LARGE, "the conversation is longer than %zu bytes",
                         ret_text->ceiling);
    return 0;
}
