/* tool_text.h -- a model's text through a tool parser, cut anywhere, and what it told, joined.
 *
 *     struct told told;
 *     told_open(&told);
 *     told_run(&told, format, &options, raw, bytes, cuts, cut_count);
 *     ... told.content, told.calls ...
 *     told_close(&told);
 *
 * The order of what is told is checked on the way with must(): the fuzzer uses this too. */
#ifndef WEFT_TEST_TOOL_TEXT_H
#define WEFT_TEST_TOOL_TEXT_H

#include <string.h>

#include "config/base/buf.h"
#include "server/json_scan.h"
#include "server/tools.h"

struct told {
    struct buf content;
    struct buf reasoning;
    struct buf calls; /* `name(arguments)\n` of each whole call, with `#id` if one was given */
    struct buf call;  /* the same of the one that is being told */
    struct buf arguments;
    uint32_t begun; /* calls that began */
    uint32_t whole;
    uint32_t deltas;
    bool in_call;
    bool cut;
    bool failed;
};

static inline void told_open(struct told *told)
{
    *told = (struct told){.in_call = false};
    buf_init(&told->content, 64 << 20);
    buf_init(&told->reasoning, 64 << 20);
    buf_init(&told->calls, 64 << 20);
    buf_init(&told->call, 64 << 20);
    buf_init(&told->arguments, 64 << 20);
}

static inline void told_close(struct told *told)
{
    buf_fini(&told->content);
    buf_fini(&told->reasoning);
    buf_fini(&told->calls);
    buf_fini(&told->call);
    buf_fini(&told->arguments);
}

/* One object, from its first byte to its last. */
static inline bool told_is_object(const struct buf *text)
{
    enum json_scan_result r = JSON_SCAN_MORE;
    struct json_scan scan;

    json_scan_init(&scan);
    for (size_t i = 0; i < text->bytes; i++) {
        if (r != JSON_SCAN_MORE || (unsigned char)text->data[i] == 0)
            return false;
        r = json_scan_byte(&scan, text->data[i]);
    }
    return text->bytes > 0 && text->data[0] == '{' && r == JSON_SCAN_END;
}

static inline void told_take(void *data, const struct tool_delta *delta)
{
    struct told *told = data;

    told->deltas++;
    switch (delta->kind) {
    case TOOL_CONTENT:
    case TOOL_REASONING:
        must(!told->in_call && delta->bytes > 0);
        buf_put(delta->kind == TOOL_CONTENT ? &told->content : &told->reasoning, delta->text,
                delta->bytes);
        return;
    case TOOL_BEGIN:
        must(!told->in_call && delta->index == told->begun && delta->bytes > 0);
        told->in_call = true;
        told->begun++;
        buf_reset(&told->call);
        buf_reset(&told->arguments);
        buf_put(&told->call, delta->text, delta->bytes);
        if (delta->id)
            buf_format(&told->call, "#%s", delta->id);
        return;
    case TOOL_ARGUMENTS:
        must(told->in_call && delta->index == told->begun - 1 && delta->bytes > 0);
        buf_put(&told->arguments, delta->text, delta->bytes);
        return;
    case TOOL_END:
        must(told->in_call && delta->index == told->begun - 1);
        told->in_call = false;
        told->whole++;
        buf_put(&told->calls, buf_string(&told->call), told->call.bytes);
        buf_byte(&told->calls, '(');
        buf_put(&told->calls, buf_string(&told->arguments), told->arguments.bytes);
        buf_text(&told->calls, ")\n");
        return;
    case TOOL_BROKEN:
        must(told->in_call && delta->index == told->begun - 1);
        told->in_call = false;
        return;
    }
}

/* Pieces end at cuts[0], cuts[1], ...; NULL with a count: every `count` bytes; NULL, 0: whole. */
static inline void told_run(struct told *told, const struct tool_format *format,
                            const struct tool_options *options, const char *raw, size_t bytes,
                            const size_t *cuts, size_t count)
{
    struct tool_parser *parser = NULL;
    size_t from = 0;

    if (tool_parser_open(format, options, &parser, NULL) < 0) {
        told->failed = true;
        return;
    }
    for (size_t i = 0; from < bytes; i++) {
        size_t end = bytes;

        if (!cuts && count > 0 && from + count < bytes)
            end = from + count;
        else if (cuts && i < count)
            end = cuts[i];
        tool_parser_feed(parser, raw + from, end - from, told_take, told);
        from = end;
    }
    tool_parser_finish(parser, told_take, told);
    must(!told->in_call);
    told->cut = tool_parser_cut(parser);
    told->failed = tool_parser_failed(parser);
    tool_parser_close(parser);
}

static inline bool told_same_text(const struct buf *a, const struct buf *b)
{
    return a->bytes == b->bytes && memcmp(buf_string(a), buf_string(b), a->bytes) == 0;
}

static inline bool told_same(const struct told *a, const struct told *b)
{
    return told_same_text(&a->content, &b->content) &&
           told_same_text(&a->reasoning, &b->reasoning) && told_same_text(&a->calls, &b->calls) &&
           a->begun == b->begun && a->whole == b->whole && a->cut == b->cut;
}

#endif
