/* tools_harmony.c -- GPT-OSS: a turn is a row of messages, each with a channel and perhaps a
 * recipient.
 *
 *     <|channel|>analysis<|message|>Hm.<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>
 *     <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{...}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>Done.<|return|>
 *
 * After the format's published description. analysis is reasoning, a message to a function is a
 * call, everything else is content. The prompt ends with <|start|>assistant, so the text may begin
 * with a recipient. A header is read to its <|message|> before anything is told; one that is cut
 * off comes back only if it names a function. */
#include <string.h>

#include "server/tools_internal.h"

enum { HEADER = TOP + 1, ARGUMENTS };
enum { ON_START, ON_CHANNEL, ON_MESSAGE, ON_CONSTRAIN, ON_CLOSE };
enum { HEADER_BYTES_MAX = 1024 };

#define FUNCTIONS "functions."

static const struct tool_marker markers[] = {
    {"<|start|>", TOOL_ACT_STEER, ON_START},         {"<|channel|>", TOOL_ACT_STEER, ON_CHANNEL},
    {"<|message|>", TOOL_ACT_STEER, ON_MESSAGE},     {"<|end|>", TOOL_ACT_STEER, ON_CLOSE},
    {"<|return|>", TOOL_ACT_STEER, ON_CLOSE},        {"<|call|>", TOOL_ACT_STEER, ON_CLOSE},
    {"<|constrain|>", TOOL_ACT_STEER, ON_CONSTRAIN},
};
enum { MARKER_COUNT = sizeof markers / sizeof *markers };

/* Which of the markers is it? As tools_match(). */
static int match(struct tool_parser *parser, char byte, char *plain, size_t *ret_bytes)
{
    const char *texts[MARKER_COUNT];

    for (size_t i = 0; i < MARKER_COUNT; i++)
        texts[i] = markers[i].text;
    return tools_match(parser, texts, MARKER_COUNT, byte, plain, ret_bytes);
}

static void header_begin(struct tool_parser *parser, const char *raw, const char *text)
{
    tools_open(parser, raw, strlen(raw));
    buf_text(&parser->text, text);
    parser->state = HEADER;
}

static void to_part(struct tool_parser *parser, bool reasoning)
{
    if (parser->reasoning && !reasoning)
        parser->reasoned = true;
    if (parser->reasoning != reasoning)
        tools_part(parser, reasoning);
}

static void steer(struct tool_parser *parser, const struct tool_marker *marker)
{
    switch (marker->state) {
    case ON_START:
        header_begin(parser, marker->text, "");
        break;
    case ON_CHANNEL:
        header_begin(parser, marker->text, " channel:");
        break;
    default:
        to_part(parser, false);
        break;
    }
}

/* The word of the header that begins with `prefix`, without it. Returns its bytes, 0: none. */
static size_t header_word(const struct buf *header, const char *prefix, const char **ret_word)
{
    const char *at = buf_string(header);

    while (*at) {
        size_t bytes = strcspn(at, " \n\r\t");

        if (strncmp(at, prefix, strlen(prefix)) == 0) {
            *ret_word = at + strlen(prefix);
            return bytes - strlen(prefix);
        }
        at += bytes;
        at += strspn(at, " \n\r\t");
    }
    return 0;
}

/* The function that the message is for, into the call's name. */
static bool read_recipient(struct tool_parser *parser)
{
    struct buf *name = &parser->call.name;
    const char *word = NULL;
    size_t bytes = header_word(&parser->text, "to=", &word), skip = strlen(FUNCTIONS);

    if (bytes > skip && strncmp(word, FUNCTIONS, skip) == 0) {
        buf_put(name, word + skip, bytes - skip);
    } else if (bytes > 0) { /* the model's own tools: only if the request has such a one */
        buf_put(name, word, bytes);
        if (!parser->options.tools || !tools_known(parser, buf_string(name)))
            buf_reset(name);
    }
    for (size_t i = 0; i < name->bytes; i++) {
        if (!tools_is_name(name->data[i]))
            buf_reset(name);
    }
    return name->bytes > 0 && parser->options.calls;
}

static void message_begin(struct tool_parser *parser)
{
    const char *channel = "";
    size_t bytes = header_word(&parser->text, "channel:", &channel);

    if (read_recipient(parser)) {
        to_part(parser, false);
        tools_value_init(parser);
        parser->state = ARGUMENTS;
        return;
    }
    tools_drop(parser);
    to_part(parser, bytes == strlen("analysis") && strncmp(channel, "analysis", bytes) == 0);
}

static void in_header(struct tool_parser *parser, char byte)
{
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    size_t bytes;
    int found = match(parser, byte, plain, &bytes);

    buf_put(&parser->text, plain, bytes);
    if (parser->text.bytes > HEADER_BYTES_MAX) {
        tools_break(parser);
        return;
    }
    if (found < 0)
        return;
    switch (markers[found].state) {
    case ON_MESSAGE:
        message_begin(parser);
        break;
    case ON_CHANNEL:
        buf_text(&parser->text, " channel:");
        break;
    case ON_CONSTRAIN:
        buf_text(&parser->text, " constrain:");
        break;
    case ON_START:
        tools_drop(parser);
        header_begin(parser, markers[found].text, "");
        break;
    default:
        tools_drop(parser);
        break;
    }
}

/* A message to a function may be empty. */
static void in_arguments(struct tool_parser *parser, char byte)
{
    char plain[TOOL_MARKER_BYTES_MAX + 1];
    enum json_scan_result r;
    size_t bytes;
    int found;

    if (parser->call.told == 0 && (parser->held_bytes > 0 || byte == '<')) {
        found = match(parser, byte, plain, &bytes);
        if (found == TOOLS_PLAIN) {
            tools_fail(parser, byte);
        } else if (found >= 0) {
            tools_done(parser);
            tools_rest(parser);
            steer(parser, &markers[found]);
        }
        return;
    }
    r = tools_value_byte(parser, byte);
    if (r == JSON_SCAN_BAD) {
        tools_fail(parser, byte);
    } else if (r != JSON_SCAN_MORE) {
        tools_done(parser);
        tools_rest(parser);
    }
}

/* The prompt has written <|start|>assistant: " to=f" goes on with that header. */
static void in_first(struct tool_parser *parser, char byte)
{
    static const char *const recipient[] = {" to="};
    char plain[2 * TOOL_MARKER_BYTES_MAX];
    size_t bytes;

    switch (tools_match(parser, recipient, 1, byte, plain, &bytes)) {
    case 0:
        parser->started = true;
        header_begin(parser, recipient[0], recipient[0]);
        break;
    case TOOLS_PLAIN:
        parser->started = true;
        memcpy(plain + bytes, parser->held, parser->held_bytes);
        bytes += parser->held_bytes;
        parser->held_bytes = 0;
        for (size_t i = 0; i < bytes; i++)
            parser->format->step(parser, plain[i]);
        break;
    default:
        break;
    }
}

static void harmony_step(struct tool_parser *parser, char byte)
{
    switch (parser->state) {
    case TOP:
        if (!parser->started && !parser->options.starts_in_reasoning)
            in_first(parser, byte);
        else
            tools_top(parser, byte);
        break;
    case HEADER:
        in_header(parser, byte);
        break;
    default:
        in_arguments(parser, byte);
        break;
    }
}

static void harmony_finish(struct tool_parser *parser)
{
    const char *word;

    if (parser->state == HEADER && header_word(&parser->text, "to=", &word) == 0) {
        parser->cut = true;
        tools_drop(parser);
    } else if (parser->state == ARGUMENTS && parser->call.told == 0 && parser->held_bytes == 0 &&
               !parser->options.ends_given) {
        /* <|call|> ends the turn, so it was not part of the text. */
        tools_done(parser);
        tools_rest(parser);
    }
}

const struct tool_format tool_harmony = {.name = "harmony",
                                         TOOL_MARKERS(markers),
                                         .step = harmony_step,
                                         .steer = steer,
                                         .finish = harmony_finish,
                                         .opens_reasoning = "<|channel|>analysis<|message|>"};
