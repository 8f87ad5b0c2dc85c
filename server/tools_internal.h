/* tools_internal.h -- what the files behind tools.h share: the parser, and what a format's step is
 * made of.
 *
 *     TOP --marker--> a format's own states --call whole--> TOP
 *      |  text goes out     raw keeps every byte     |
 *      +<-------- tools_fail(): raw goes out as content
 *
 * A format is a table of markers and a step that takes one byte. In the state TOP the step calls
 * tools_top(), which knows the markers; a marker that opens a call leads to a state of the format's
 * own. From there on raw records the bytes, until the call is done or has failed. */
#ifndef WEFT_TOOLS_INTERNAL_H
#define WEFT_TOOLS_INTERNAL_H

#include "config/base/buf.h"
#include "server/json_scan.h"
#include "server/tools.h"

enum tool_act {
    TOOL_ACT_OPEN,      /* a call: recorded from here on, in the marker's state */
    TOOL_ACT_CLOSE,     /* behind a call: left out there, text elsewhere */
    TOOL_ACT_THINK,     /* at the beginning: what follows is reasoning */
    TOOL_ACT_THINK_END, /* in reasoning */
    TOOL_ACT_TURN_END,  /* left out at the very end, if it may be given */
    TOOL_ACT_STEER,     /* always a marker: tools_steer of the format is called */
};

struct tool_marker {
    const char *text;
    enum tool_act act;
    unsigned state; /* after OPEN; STEER: the format's own */
};

enum { TOP = 0 }; /* the one state that all formats have */

struct tool_format {
    const char *name;
    const struct tool_marker *markers;
    size_t marker_count;
    void (*step)(struct tool_parser *parser, char byte);
    void (*steer)(struct tool_parser *parser, const struct tool_marker *marker); /* or NULL */
    void (*finish)(struct tool_parser *parser);                                  /* or NULL */
    const char *const *inner;    /* markers inside calls, ended by NULL; or NULL */
    const void *style;           /* what tells formats of one file apart */
    const char *opens_reasoning; /* at the end of a prompt, beside the THINK markers; or NULL */
    const char *opens_header;    /* at the end of a prompt, of what follows; or NULL */
    bool short_ids;
    bool only_reasoning; /* no calls */
};

#define TOOL_MARKERS(array) .markers = (array), .marker_count = sizeof(array) / sizeof *(array)

enum object_role { ROLE_OTHER, ROLE_NAME, ROLE_ID, ROLE_ARGUMENTS, ROLE_TEXT_ARGUMENTS };

/* A call written as a JSON object. */
struct tool_object {
    uint8_t state;
    uint8_t nest; /* 1: inside {"function": {...}} */
    enum object_role role;
    char key[16]; /* cut: a longer one is none that we know */
    size_t key_bytes;
};

/* Python literals on their way to JSON: tools_pythonic.c. */
enum { PYTHON_DEPTH_MAX = 32, PYTHON_WORD_BYTES_MAX = 64 };
struct tool_python {
    uint8_t state;
    uint8_t depth;
    char closers[PYTHON_DEPTH_MAX]; /* of each level: ] ) } */
    bool keyed[PYTHON_DEPTH_MAX];   /* a dict's key is read, not its value */
    bool any[PYTHON_DEPTH_MAX];     /* the level has an item */
    char quote;
    uint8_t quotes; /* of a closing triple seen so far */
    bool triple;
    bool raw;
    char escape;
    uint8_t digits_left;
    uint32_t code;
    uint32_t high; /* a first surrogate that waits for its second */
    char word[PYTHON_WORD_BYTES_MAX];
    size_t word_bytes;
};

struct tool_call {
    bool open; /* a candidate is being read */
    bool begun;
    bool arguments_seen;
    bool hold;   /* not begun before it is whole */
    size_t told; /* bytes of arguments so far, told or held */
    struct buf name;
    struct buf id;
    struct buf arguments; /* while the call is not begun */
};

struct tool_parser {
    const struct tool_format *format;
    struct tool_options options;
    tool_sink *sink;
    void *data;
    bool failed;

    unsigned state;
    bool unmarked; /* the candidate began without a marker: it must be more than a name */
    bool in_array;
    bool block;   /* behind a call, before any text */
    bool started; /* the format's own: something has come */
    bool streams; /* a value goes out as it comes */

    bool reasoning;
    bool reasoned;   /* there was reasoning, and it has ended */
    bool any_text;   /* content, or inside reasoning: some of it */
    bool skip_space; /* white space at the beginning of a part is left out */
    bool cut;
    struct buf space; /* white space that the next marker swallows */

    struct buf out; /* pieces of one kind that are put together */
    enum tool_delta_kind out_kind;

    char held[TOOL_MARKER_BYTES_MAX + 1]; /* what may become a marker */
    size_t held_bytes;
    const struct tool_marker *turn_end; /* came, and nothing after it yet */

    bool recording;
    bool raw_lost;
    struct buf raw;

    uint32_t call_count;
    struct tool_call call;
    struct tool_object object;
    struct json_scan scan;
    struct buf text; /* a name, a value, a header: the format's scratch */
    struct buf key;
    struct tool_python python;
};

/* --- text ------------------------------------------------------------------------------------- */

void tools_text(struct tool_parser *parser, const char *text, size_t bytes);
/* Another part: white space around its border is left out. */
void tools_part(struct tool_parser *parser, bool reasoning);
/* Does the request have a tool of this name? True too when its tools are unknown. */
bool tools_known(const struct tool_parser *parser, const char *name);
/* The state TOP: text and markers. */
void tools_top(struct tool_parser *parser, char byte);
/* No content and no call so far: here a call without a marker may begin. */
bool tools_fresh(const struct tool_parser *parser);

/* Is what is held with `byte` one of `texts`? Returns its index, TOOLS_HELD while it may become
 * one, or TOOLS_PLAIN: then `plain` (of TOOL_MARKER_BYTES_MAX + 1 bytes) has *ret_bytes >= 1 bytes
 * that belong to none, and the rest is still held. */
enum { TOOLS_HELD = -1, TOOLS_PLAIN = -2 };
int tools_match(struct tool_parser *parser, const char *const *texts, size_t count, char byte,
                char *plain, size_t *ret_bytes);

bool tools_is_space(char byte);
bool tools_is_name(char byte); /* letters, digits, and _ - . : / */
/* A byte of a name, or white space around it; `text` holds what came behind it. false: neither, or
 * the name is too long. */
bool tools_put_name(struct tool_parser *parser, struct buf *name, char byte);

/* --- calls ------------------------------------------------------------------------------------ */

/* A candidate begins with these bytes; the state is the caller's to set. */
void tools_open(struct tool_parser *parser, const char *text, size_t bytes);
/* The byte at hand, which is recorded, does not fit: all before it is content, and it is text. */
void tools_fail(struct tool_parser *parser, char byte);
/* The same without a byte that is left over. */
void tools_break(struct tool_parser *parser);
void tools_begin(struct tool_parser *parser);
void tools_arguments(struct tool_parser *parser, const char *text, size_t bytes);
/* One byte of a string's content, escaped. */
void tools_escaped(struct tool_parser *parser, char byte);
/* The call is whole. Recording goes on: the next one may follow, or tools_rest() ends it. */
void tools_done(struct tool_parser *parser);
/* Back to TOP, without what is recorded. */
void tools_drop(struct tool_parser *parser);
/* The same, behind a call. */
void tools_rest(struct tool_parser *parser);

/* tools_call.c. Both: END when the value is whole, BAD when it is none. */
void tools_object_init(struct tool_parser *parser);
enum json_scan_result tools_object_byte(struct tool_parser *parser, char byte);
void tools_value_init(struct tool_parser *parser);
/* An object that is the arguments themselves, of a call whose name is known. */
enum json_scan_result tools_value_byte(struct tool_parser *parser, char byte);

/* tools_tagged.c: a value of this schema in tags is the text of a string, not JSON. */
bool tools_is_text(const json_t *schema);

extern const struct tool_format tool_hermes, tool_llama3_json, tool_mistral, tool_granite;
extern const struct tool_format tool_deepseek_v3, tool_deepseek_v31;
extern const struct tool_format tool_glm45, tool_qwen3_coder;
extern const struct tool_format tool_think;
extern const struct tool_format tool_harmony, tool_llama_pythonic, tool_functionary;

#endif
