/* tools.h -- from a model's text to an answer's parts: content, reasoning and tool calls.
 *
 *     <think>Hm.</think>Let me see.<tool_call>{"name": "now", "arguments": {}}</tool_call>
 *        [reasoning]    [content]                     [name]      [arguments]
 *
 * Each family of models writes calls in a format of its own; a row of the table in tools.c is one.
 * A parser is fed the text as it comes, in any pieces, and tells its parts at once. It works byte
 * by byte, so that how the text was cut cannot change what comes out. Held back is only what may
 * still become a marker, white space before a marker, and what looks like a call until that is
 * decided.
 *
 * A call that turns out to be none, or that is only half there when the text ends, comes back as
 * content, verbatim. If its beginning has been told already, TOOL_BROKEN says so first: whoever
 * gathers whole calls drops that one.
 *
 * Memory is bounded: a call's text is kept, so that it can come back, for as long as it has at most
 * TOOL_CALL_BYTES_MAX bytes; a longer one stays a call, whatever becomes of it. One thread at a
 * time. */
#ifndef WEFT_TOOLS_H
#define WEFT_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "config/base/json.h"

enum {
    TOOL_NAME_BYTES_MAX = 256,
    TOOL_ID_BYTES_MAX = 64,
    TOOL_CALL_BYTES_MAX = 1 << 20,
    TOOL_MARKER_BYTES_MAX = 47,
};

enum tool_delta_kind {
    TOOL_CONTENT,   /* text */
    TOOL_REASONING, /* text */
    TOOL_BEGIN,     /* call `index` begins: text is its name; id is what the model gave, or NULL */
    TOOL_ARGUMENTS, /* text is the next part of the arguments' JSON */
    TOOL_END,       /* the arguments are whole */
    TOOL_BROKEN,    /* call `index` is none: its text follows as content */
};

struct tool_delta {
    enum tool_delta_kind kind;
    uint32_t index; /* of the call: 0, 1, ... */
    const char *text;
    size_t bytes;
    const char *id;
};

/* What `delta` points to is gone after the call. */
typedef void tool_sink(void *data, const struct tool_delta *delta);

struct tool_format; /* a row of the table: immutable */

/* NULL: no format is called so. */
const struct tool_format *tool_format_find(const char *name);
/* The same, with a fault that lists the names. 0 or E_INVALID. */
int tool_format_named(const char *name, const struct tool_format **ret_format, struct fault *fault);
const char *tool_format_name(const struct tool_format *format);
/* Appends "hermes, mistral, ..." */
struct buf;
void tool_format_list(struct buf *text);
/* The format that a chat template shows, or NULL. *ret_always: every answer has to be parsed, not
 * only those to requests with tools, since there is reasoning to be split off. */
const struct tool_format *tool_format_choose(const char *text, size_t bytes, bool *ret_always);
/* Does a chat template have the format's marks of reasoning? */
bool tool_format_reasons(const struct tool_format *format, const char *text, size_t bytes);
/* Does a prompt that ends so leave the model inside its reasoning? */
bool tool_format_opens_reasoning(const struct tool_format *format, const char *text, size_t bytes);
/* Is this the text of one of the format's markers? Then a special token that reads so must be fed,
 * although it is left out of an answer's text otherwise. */
bool tool_format_marks(const struct tool_format *format, const char *text, size_t bytes);
/* The format's markers one by one, those inside calls too; NULL behind the last. */
const char *tool_format_marker(const struct tool_format *format, size_t index);
/* Does a prompt that ends so leave the model behind its reasoning, or without any? */
bool tool_format_closes_reasoning(const struct tool_format *format, const char *text, size_t bytes);
/* Is a prompt that ends so one that has opened the header of what follows? */
bool tool_format_opens_header(const struct tool_format *format, const char *text, size_t bytes);
/* false: only reasoning is split off. */
bool tool_format_calls(const struct tool_format *format);
/* The model was trained on ids of nine letters and digits. */
bool tool_format_short_ids(const struct tool_format *format);

struct tool_options {
    bool calls;               /* look for calls; else only for reasoning */
    bool starts_in_reasoning; /* the prompt has opened it */
    bool ends_given;          /* the text may end with the token that ended the turn: left out */
    const json_t *tools;      /* the request's, NULL: unknown; lent for the parser's life */
};

struct tool_parser;

/* 0 or E_MEMORY. */
int tool_parser_open(const struct tool_format *format, const struct tool_options *options,
                     struct tool_parser **ret_parser, struct fault *fault);
void tool_parser_close(struct tool_parser *parser); /* NULL is fine */

/* The sink is called for what these bytes decide, pieces of the same kind put together. */
void tool_parser_feed(struct tool_parser *parser, const char *text, size_t bytes, tool_sink *sink,
                      void *data);
/* No more text comes. */
void tool_parser_finish(struct tool_parser *parser, tool_sink *sink, void *data);

bool tool_parser_reasons(const struct tool_parser *parser); /* the text is inside reasoning */
/* After finish: reasoning, a call or a message was open, so the text was cut off. */
bool tool_parser_cut(const struct tool_parser *parser);
bool tool_parser_failed(
    const struct tool_parser *parser); /* no memory: what came out is not whole */

#endif
