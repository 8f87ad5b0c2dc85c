/* reply_logprobs.c -- log-probability entries and token ids that wait for their text.
 *
 * How an entry looks is the endpoint's affair (openai_chat.c, openai_completions.c): it is rendered
 * into parts, each the inside of a JSON array, when its text is released. */
#include <stdlib.h>
#include <string.h>

#include "server/reply.h"

enum { PENDING_FIRST = 16 };

void reply_put_token(const struct reply *reply, int32_t id, struct buf *out)
{
    const char *piece = "";
    size_t bytes = 0;

    if (reply->wish.tokens_as_ids) {
        buf_format(out, "\"token_id:%d\"", id);
        return;
    }
    if ((uint32_t)id < tokenizer_count(reply->tokenizer))
        piece = tokenizer_piece(reply->tokenizer, id, &bytes);
    buf_json_string(out, piece, bytes);
}

void reply_entry_push(struct reply_choice *choice, const struct reply_entry *entry)
{
    if (choice->pending_count == choice->pending_room) {
        uint32_t room = choice->pending_room ? choice->pending_room * 2 : PENDING_FIRST;
        struct reply_entry *pending = realloc(choice->pending, (size_t)room * sizeof *pending);

        if (!pending) {
            choice->out_of_memory = true;
            return;
        }
        choice->pending = pending;
        choice->pending_room = room;
    }
    choice->pending[choice->pending_count++] = *entry;
}

void reply_entries_release(const struct reply *reply, struct reply_choice *choice, uint64_t end)
{
    uint32_t n = 0;

    while (n < choice->pending_count && choice->pending[n].start < end) {
        const struct reply_entry *entry = &choice->pending[n++];

        if (!entry->bare)
            reply->shape->put_entry(reply, choice, entry->token.token, entry->text_offset,
                                    &entry->token);
        if (reply->wish.return_token_ids)
            buf_format(&choice->ids, "%s%d", choice->ids.bytes ? "," : "", entry->token.token);
    }
    choice->pending_count -= n;
    if (choice->pending_count > 0)
        memmove(choice->pending, choice->pending + n,
                choice->pending_count * sizeof *choice->pending);
}

void reply_entries_reset(struct reply_choice *choice)
{
    for (unsigned part = 0; part < LOGPROB_PARTS_MAX; part++)
        buf_cut(&choice->parts[part], 0);
    buf_cut(&choice->ids, 0);
    choice->entry_count = 0;
}

uint32_t reply_top_count(const struct reply *reply, const struct event_token *token)
{
    return token->top_count < reply->wish.top_logprobs ? token->top_count
                                                       : reply->wish.top_logprobs;
}
