/* reply_tools.c -- answers in parts: content, reasoning and tool calls.
 *
 *     released text --> tool parser --> a chunk for each delta, or the parts of the whole message
 *
 * A choice with a parser keeps no text of its own: what is released goes through the parser, which
 * says what it is. Log-probability entries and token ids travel with the next chunk there is. */
#include <inttypes.h>
#include <string.h>

#include "server/reply.h"

enum { ID_ROOM = 40 };

int reply_parts_open(struct reply *reply, struct reply_choice *choice)
{
    struct reply_message *message = &choice->message;

    buf_init(&message->content, REPLY_BUF_BYTES_MAX);
    buf_init(&message->reasoning, REPLY_BUF_BYTES_MAX);
    buf_init(&message->calls, REPLY_BUF_BYTES_MAX);
    buf_init(&message->arguments, REPLY_BUF_BYTES_MAX);
    if (!reply->format)
        return 0;
    return tool_parser_open(reply->format, &reply->parse, &choice->parser, NULL);
}

void reply_parts_close(struct reply_choice *choice)
{
    struct reply_message *message = &choice->message;

    tool_parser_close(choice->parser);
    buf_fini(&message->content);
    buf_fini(&message->reasoning);
    buf_fini(&message->calls);
    buf_fini(&message->arguments);
}

bool reply_parts_failed(const struct reply_choice *choice)
{
    const struct reply_message *message = &choice->message;

    return buf_failed(&message->content) || buf_failed(&message->reasoning) ||
           buf_failed(&message->calls) || buf_failed(&message->arguments) ||
           (choice->parser && tool_parser_failed(choice->parser));
}

/* --- ids -------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Random once for each reply, then different for each call: letters and digits, and as many of them
 * as the model was trained on. */
static void make_id(const struct reply *reply, const struct reply_choice *choice, uint32_t index,
                    char *id, size_t room)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bool brief = tool_format_short_ids(reply->format);
    uint64_t place = (uint64_t)(choice - reply->choices) << 32 | index, value = 0;
    size_t length = brief ? 9 : 24;
    struct buf out;

    buf_init_fixed(&out, id, room);
    buf_text(&out, brief ? "" : "call_");
    for (size_t i = 0; i < length; i++) {
        if (i % 8 == 0)
            value = mix(reply->random + mix(place * 4 + i / 8));
        buf_byte(&out, digits[value % 62]);
        value /= 62;
    }
}

/* --- deltas ----------------------------------------------------------------------------------- */

/* The index that the client sees: broken calls of a whole answer leave no gap. */
static void put_call_head(const struct tool_delta *delta, uint32_t index, const char *id,
                          struct buf *out)
{
    buf_format(out, "{\"index\":%" PRIu32 ",\"id\":", index);
    buf_json_string(out, id, strlen(id));
    buf_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    buf_json_string(out, delta->text, delta->bytes);
    buf_text(out, ",\"arguments\":\"\"}}");
}

static void put_reasoning(const char *text, size_t bytes, struct buf *out)
{
    buf_text(out, "\"reasoning_content\":");
    buf_json_string(out, text, bytes);
    buf_text(out, ",\"reasoning\":");
    buf_json_string(out, text, bytes);
}

static void put_delta(const struct tool_delta *delta, const char *id, struct buf *out)
{
    buf_text(out, ",\"delta\":{");
    switch (delta->kind) {
    case TOOL_CONTENT:
        buf_text(out, "\"content\":");
        buf_json_string(out, delta->text, delta->bytes);
        break;
    case TOOL_REASONING:
        put_reasoning(delta->text, delta->bytes, out);
        break;
    case TOOL_BEGIN:
        buf_text(out, "\"tool_calls\":[");
        put_call_head(delta, delta->index, id, out);
        buf_byte(out, ']');
        break;
    default:
        buf_format(out, "\"tool_calls\":[{\"index\":%" PRIu32 ",\"function\":{\"arguments\":",
                   delta->index);
        buf_json_string(out, delta->text, delta->bytes);
        buf_text(out, "}}]");
        break;
    }
    buf_byte(out, '}');
}

/* A whole message keeps its calls as JSON; the last one is dropped again if it is broken. */
static void gather(struct reply_choice *choice, const struct tool_delta *delta, const char *id)
{
    struct reply_message *message = &choice->message;

    switch (delta->kind) {
    case TOOL_CONTENT:
        buf_put(&message->content, delta->text, delta->bytes);
        break;
    case TOOL_REASONING:
        buf_put(&message->reasoning, delta->text, delta->bytes);
        break;
    case TOOL_BEGIN:
        message->call_start = message->calls.bytes;
        buf_reset(&message->arguments);
        if (message->calls.bytes > 0)
            buf_byte(&message->calls, ',');
        buf_text(&message->calls, "{\"id\":");
        buf_json_string(&message->calls, id, strlen(id));
        buf_text(&message->calls, ",\"type\":\"function\",\"function\":{\"name\":");
        buf_json_string(&message->calls, delta->text, delta->bytes);
        break;
    case TOOL_ARGUMENTS:
        buf_put(&message->arguments, delta->text, delta->bytes);
        break;
    case TOOL_END:
        buf_text(&message->calls, ",\"arguments\":");
        buf_json_string(&message->calls, buf_string(&message->arguments), message->arguments.bytes);
        buf_text(&message->calls, "}}");
        break;
    case TOOL_BROKEN:
        if (!buf_failed(&message->calls))
            buf_cut(&message->calls, message->call_start);
        break;
    }
}

struct listener_of_parts {
    struct reply *reply;
    struct reply_choice *choice;
    struct buf *out;
};

/* With parallel_tool_calls false the first whole call is the only one. */
static bool wanted(struct reply *reply, struct reply_choice *choice, const struct tool_delta *delta)
{
    if (delta->kind == TOOL_BEGIN)
        choice->muted = !reply->wish.parallel_calls && choice->call_count > 0;
    if (delta->kind == TOOL_END && !choice->muted)
        choice->call_count++;
    if (delta->kind == TOOL_REASONING)
        return reply->wish.include_reasoning;
    return delta->kind == TOOL_CONTENT || !choice->muted;
}

static void take_delta(void *data, const struct tool_delta *delta)
{
    const struct listener_of_parts *to = data;
    char made[ID_ROOM] = "";
    const char *id = delta->id ? delta->id : made;

    if (!wanted(to->reply, to->choice, delta))
        return;
    if (delta->kind == TOOL_BEGIN && !delta->id)
        make_id(to->reply, to->choice, delta->index, made, sizeof made);
    if (!to->reply->wish.stream) {
        gather(to->choice, delta, id);
    } else if (delta->kind != TOOL_END && delta->kind != TOOL_BROKEN) {
        struct buf *piece = &to->choice->message.content;

        buf_reset(piece);
        put_delta(delta, id, piece);
        reply_put_piece(to->reply, to->choice, piece, to->out);
    }
}

void reply_parts_feed(struct reply *reply, struct reply_choice *choice, const char *text,
                      size_t bytes, struct buf *out)
{
    struct listener_of_parts to = {reply, choice, out};

    tool_parser_feed(choice->parser, text, bytes, take_delta, &to);
}

void reply_parts_finish(struct reply *reply, struct reply_choice *choice, struct buf *out)
{
    struct listener_of_parts to = {reply, choice, out};

    tool_parser_finish(choice->parser, take_delta, &to);
}

/* --- the whole message ------------------------------------------------------------------------ */

void reply_put_message(const struct reply_choice *choice, struct buf *out)
{
    const struct reply_message *message = &choice->message;
    const struct buf *content = &message->content, *reasoning = &message->reasoning;

    buf_text(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (content->bytes > 0 || (message->calls.bytes == 0 && reasoning->bytes == 0))
        buf_json_string(out, buf_string(content), content->bytes);
    else
        buf_text(out, "null");
    buf_text(out, ",\"refusal\":null");
    if (reasoning->bytes > 0) {
        buf_byte(out, ',');
        put_reasoning(reasoning->data, reasoning->bytes, out);
    }
    if (message->calls.bytes > 0) {
        buf_text(out, ",\"tool_calls\":[");
        buf_put(out, message->calls.data, message->calls.bytes);
        buf_byte(out, ']');
    }
    buf_byte(out, '}');
}
