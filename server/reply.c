/* reply.c -- from events to text: detokenizing, stop strings, holding back, and the end of each
 * choice. See reply.h for the idea. */
#include "server/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/vectors.h"

int reply_open_choices(struct reply *reply)
{
    reply->choices = arena_take(reply->arena, reply->choice_count, sizeof *reply->choices);
    if (!reply->choices)
        return -ENOMEM;
    for (uint32_t i = 0; i < reply->choice_count; i++) {
        struct reply_choice *choice = &reply->choices[i];

        choice->prompt = &reply->prompts[i / reply->choices_per_prompt];
        choice->echoed = !reply->wish.echo;
        choice->characters = reply->wish.echo ? choice->prompt->echo_characters : 0;
        choice->stop_token = -1;
        detok_init(&choice->detok, reply->tokenizer, reply->wish.skip_special);
        stop_walk_init(&choice->walk, reply->stops);
        buf_init(&choice->text, REPLY_BUF_BYTES_MAX);
        buf_init(&choice->ids, REPLY_BUF_BYTES_MAX);
        for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++)
            buf_init(&choice->parts[part], REPLY_BUF_BYTES_MAX);
        if (reply_parts_open(reply, choice) < 0)
            return -ENOMEM;
    }
    return 0;
}

void reply_close(struct reply *reply)
{
    if (!reply)
        return;
    for (uint32_t i = 0; reply->choices && i < reply->choice_count; i++) {
        struct reply_choice *choice = &reply->choices[i];

        buf_fini(&choice->text);
        buf_fini(&choice->ids);
        for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++)
            buf_fini(&choice->parts[part]);
        free(choice->pending);
        reply_parts_close(choice);
    }
    json_decref(reply->tools);
    vectors_close(reply->vectors);
    arena_close(reply->arena);
}

bool reply_streams(const struct reply *reply)
{
    return reply->wish.stream;
}

const char *reply_id(const struct reply *reply)
{
    return reply->id;
}

/* --- releasing -------------------------------------------------------------------------------- */

uint32_t reply_count_characters(const char *text, size_t bytes)
{
    uint32_t count = 0;

    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80; /* not a continuation byte */
    return count;
}

/* Released text is passed on and dropped; else it is kept for the whole body. */
static bool passes_on(const struct reply *reply, const struct reply_choice *choice)
{
    return reply->wish.stream || choice->parser;
}

/* Everything before `end` of the choice's text is final, with the entries that belong to it. */
static void release(struct reply *reply, struct reply_choice *choice, size_t end, struct buf *out)
{
    if (end <= choice->released)
        return;
    reply_entries_release(reply, choice, choice->text_start + end);
    if (!passes_on(reply, choice)) {
        choice->released = end;
        return;
    }
    if (choice->parser)
        reply_parts_feed(reply, choice, choice->text.data, end, out);
    else
        reply_put_chunk(reply, choice, choice->text.data, end, out);
    buf_drop(&choice->text, end);
    choice->text_start += end;
}

/* The prompt comes before anything that was generated. */
static void release_echo(struct reply *reply, struct reply_choice *choice, struct buf *out)
{
    const struct reply_prompt *prompt = choice->prompt;

    if (choice->echoed)
        return;
    choice->echoed = true;
    while (reply->wish.logprobs && choice->prompt_next < prompt->count) {
        uint32_t at = choice->prompt_next++;

        reply->shape->put_entry(reply, choice, prompt->tokens[at], prompt->offsets[at], NULL);
    }
    buf_put(&choice->text, prompt->echo, prompt->echo_bytes);
    release(reply, choice, choice->text.bytes, out);
}

static void end_choice(struct reply *reply, struct reply_choice *choice, const char *reason,
                       struct buf *out)
{
    reply_entries_release(reply, choice, UINT64_MAX);
    if (choice->parser)
        reply_parts_finish(reply, choice, out);
    if (choice->call_count > 0 && strcmp(reason, "stop") == 0 && !reply->wish.named_call)
        reason = "tool_calls";
    choice->finish_reason = reason;
    if (reply->wish.stream)
        reply_put_chunk(reply, choice, NULL, 0, out);
}

/* Looks for stop strings in the text from `from` on, which is new, and releases what is then
 * final. */
static void walk(struct reply *reply, struct reply_choice *choice, size_t from, struct buf *out)
{
    size_t used;

    choice->characters +=
        reply_count_characters(choice->text.data + from, choice->text.bytes - from);
    while (
        stop_walk_feed(&choice->walk, choice->text.data + from, choice->text.bytes - from, &used)) {
        from += used;
        if (choice->generated > reply->wish.min_tokens) {
            size_t end = from;

            if (!reply->wish.include_stop)
                end -= stop_string_bytes(reply->stops, choice->walk.matched);
            must(end >= choice->released);
            release(reply, choice, end, out);
            buf_cut(&choice->text, passes_on(reply, choice) ? 0 : end);
            choice->state = CHOICE_STOPPED;
            end_choice(reply, choice, "stop", out);
            return;
        }
        choice->walk.matched = -1; /* too early: it is text like any other */
    }
    release(reply, choice, choice->text.bytes - stop_walk_held(&choice->walk), out);
}

/* --- tokens ----------------------------------------------------------------------------------- */

static bool contains(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

/* Could this token end its choice? The event that follows it says whether it did. */
static bool may_end(const struct reply *reply, int32_t id)
{
    const int32_t *ends;
    uint32_t end_count = tokenizer_ends(reply->tokenizer, &ends);

    return contains(reply->wish.stop_tokens, reply->wish.stop_token_count, id) ||
           (!reply->wish.ignore_eos && contains(ends, end_count, id));
}

static void keep_entry(const struct reply *reply, struct reply_choice *choice,
                       const struct event_token *token, bool bare)
{
    struct reply_entry entry = {.start = choice->text_start + choice->text.bytes,
                                .text_offset = choice->characters,
                                .bare = bare || !reply->wish.logprobs,
                                .token = *token};

    if (reply->wish.return_token_ids || !entry.bare)
        reply_entry_push(choice, &entry);
}

/* Control tokens are left out, but for the markers that the parser reads. */
static bool skips(const struct reply *reply, const struct reply_choice *choice, int32_t token)
{
    const char *piece;
    size_t bytes;

    if (!reply->wish.skip_special || !choice->parser ||
        !tokenizer_is_special(reply->tokenizer, token))
        return reply->wish.skip_special;
    piece = tokenizer_piece(reply->tokenizer, token, &bytes);
    return !tool_format_marks(reply->format, piece, bytes);
}

/* A token that is part of the text. */
static void take_token(struct reply *reply, struct reply_choice *choice,
                       const struct event_token *token, struct buf *out)
{
    size_t before = choice->text.bytes;
    bool reasons = choice->parser && tool_parser_reasons(choice->parser);

    choice->generated++;
    keep_entry(reply, choice, token, false);
    /* A vocabulary may be padded beyond what the tokenizer knows. */
    if ((uint32_t)token->token < tokenizer_count(reply->tokenizer)) {
        choice->detok.skip_special = skips(reply, choice, token->token);
        detok_feed(&choice->detok, token->token, &choice->text);
    }
    if (choice->text.bytes > before)
        walk(reply, choice, before, out);
    if (!reply->tokenizer && reply->wish.stream) { /* an event a token, as with text */
        reply_entries_release(reply, choice, UINT64_MAX);
        reply_put_chunk(reply, choice, "", 0, out);
    }
    /* The markers themselves are not counted. */
    choice->reasoning_tokens += reasons && tool_parser_reasons(choice->parser);
}

/* The token that ended the choice: counted, but not part of the text unless the request asks for
 * it. */
static void take_end(struct reply *reply, struct reply_choice *choice, struct buf *out)
{
    const struct event_token *token = &choice->suspect;
    bool asked = contains(reply->wish.stop_tokens, reply->wish.stop_token_count, token->token);

    if (asked)
        choice->stop_token = token->token;
    if (asked && reply->wish.include_stop) {
        take_token(reply, choice, token, out);
        return;
    }
    choice->generated++;
    keep_entry(reply, choice, token, !reply->shape->end_has_entry);
}

static void feed_prompt(struct reply *reply, struct reply_choice *choice,
                        const struct event_token *token, struct buf *out)
{
    const struct reply_prompt *prompt = choice->prompt;

    if (choice->echoed || !reply->wish.logprobs || token->position >= prompt->count ||
        token->position < choice->prompt_next)
        return; /* not wanted, or computed a second time after a preemption */
    while (choice->prompt_next < token->position) { /* the first one has no event */
        uint32_t at = choice->prompt_next++;

        reply->shape->put_entry(reply, choice, prompt->tokens[at], prompt->offsets[at], NULL);
    }
    reply->shape->put_entry(reply, choice, token->token, prompt->offsets[token->position], token);
    choice->prompt_next++;
    if (choice->prompt_next == prompt->count)
        release_echo(reply, choice, out);
}

static void feed_token(struct reply *reply, struct reply_choice *choice, const struct event *event,
                       struct buf *out, struct reply_action *action)
{
    if (choice->state != CHOICE_RUNNING)
        return;
    if (choice->token_ns > 0 && event->made_ns > choice->token_ns)
        action->token_gap_ns = event->made_ns - choice->token_ns;
    choice->token_ns = event->made_ns;
    release_echo(reply, choice, out);
    if (choice->suspected) {
        choice->suspected = false; /* it did not end the choice after all */
        take_token(reply, choice, &choice->suspect, out);
    }
    if (choice->state == CHOICE_RUNNING && may_end(reply, event->token.token)) {
        choice->suspected = true;
        choice->suspect = event->token;
    } else if (choice->state == CHOICE_RUNNING) {
        take_token(reply, choice, &event->token, out);
    }
    action->cancel_choice = choice->state == CHOICE_STOPPED;
}

static void feed_finish(struct reply *reply, struct reply_choice *choice,
                        const struct event_finish *finish, struct buf *out)
{
    static const char *const reasons[] = {
        [FINISH_STOP] = "stop", [FINISH_LENGTH] = "length", [FINISH_CANCELLED] = "abort"};
    size_t before;

    choice->finish = *finish;
    if (reply->vectors)
        reply_put_vector(reply, choice);
    if (choice->state == CHOICE_RUNNING) {
        release_echo(reply, choice, out);
        if (choice->suspected && finish->reason == FINISH_STOP)
            take_end(reply, choice, out);
        else if (choice->suspected)
            take_token(reply, choice, &choice->suspect, out);
    }
    if (choice->state == CHOICE_RUNNING) { /* half a character at the end */
        before = choice->text.bytes;
        detok_flush(&choice->detok, &choice->text);
        if (choice->text.bytes > before)
            walk(reply, choice, before, out);
    }
    if (choice->state == CHOICE_RUNNING) {
        release(reply, choice, choice->text.bytes, out);
        end_choice(reply, choice, reasons[finish->reason], out);
    }
    choice->state = CHOICE_ENDED;
    reply->ended_count++;
}

/* --- events ----------------------------------------------------------------------------------- */

static void fail(struct reply *reply, const struct api_error *error, struct buf *out,
                 struct reply_action *action)
{
    reply->failed = true;
    action->failed = true;
    action->error = *error;
    if (!reply->begun)
        return;
    reply_put_error_event(error, out);
    reply_put_done(out);
}

static void fail_by(struct reply *reply, int code, const char *message, struct buf *out,
                    struct reply_action *action)
{
    struct api_error error = {0};
    struct fault fault = {0};

    fault_set(&fault, code, "%s", message);
    api_error_from_fault(&error, &fault);
    fail(reply, &error, out, action);
}

static bool choice_overflowed(const struct reply_choice *choice)
{
    bool failed = choice->out_of_memory || buf_failed(&choice->text) || buf_failed(&choice->ids) ||
                  reply_parts_failed(choice);

    for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++)
        failed = failed || buf_failed(&choice->parts[part]);
    return failed;
}

void reply_begin(struct reply *reply, struct buf *out)
{
    if (reply->begun)
        return;
    reply->begun = true;
    for (uint32_t i = 0; reply->shape == &chat_shape && i < reply->choice_count; i++)
        reply_put_role_chunk(reply, i, out);
}

static void finish_reply(struct reply *reply, struct buf *out)
{
    if (reply->vectors) {
        reply_put_vectors(reply, out);
        return;
    }
    if (!reply->wish.stream) {
        reply_put_body(reply, out);
        return;
    }
    if (reply->wish.include_usage)
        reply_put_usage_chunk(reply, out);
    reply_put_done(out);
}

void reply_feed(struct reply *reply, const struct event *event, struct buf *out,
                struct reply_action *ret_action)
{
    struct api_error error = {0};
    struct reply_choice *choice;

    *ret_action = (struct reply_action){.choice = event->choice};
    must(event->choice < reply->choice_count);
    choice = &reply->choices[event->choice];
    if (reply->failed || choice->state == CHOICE_ENDED)
        return;
    switch (event->kind) {
    case EVENT_STARTED:
        break;
    case EVENT_PROMPT:
        feed_prompt(reply, choice, &event->token, out);
        break;
    case EVENT_TOKEN:
        feed_token(reply, choice, event, out, ret_action);
        break;
    case EVENT_FINISH:
        /* An answer may end early, a vector may not. */
        if (reply->vectors && event->finish.reason == FINISH_CANCELLED) {
            fail_by(reply, E_CLOSED, "", out, ret_action);
            return;
        }
        feed_finish(reply, choice, &event->finish, out);
        break;
    case EVENT_FAILURE:
        fail_by(reply, event->failure.code, event->failure.message, out, ret_action);
        return;
    }
    if (choice_overflowed(choice)) {
        api_error_set(&error, API_INTERNAL, "", "The answer is too large for this server.");
        fail(reply, &error, out, ret_action);
        return;
    }
    ret_action->finished = reply->ended_count == reply->choice_count;
    if (ret_action->finished)
        finish_reply(reply, out);
}

void reply_summary_get(const struct reply *reply, struct reply_summary *ret_summary)
{
    const struct reply_choice *first = &reply->choices[0];
    const char *finish = first->finish_reason ? first->finish_reason : "cancelled";

    if (strcmp(finish, "abort") == 0)
        finish = "cancelled";
    *ret_summary = (struct reply_summary){.prompt_tokens = reply->prompt_tokens,
                                          .generated_tokens = reply_generated(reply),
                                          .queued_ns = first->finish.queued_ns,
                                          .prefill_ns = first->finish.prefill_ns,
                                          .decode_ns = first->finish.decode_ns,
                                          .finish = reply->failed ? "error" : finish};
    for (uint32_t i = 0; i < reply->choice_count; i++)
        ret_summary->preemptions += reply->choices[i].finish.preemptions;
}
