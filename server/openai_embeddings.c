/* openai_embeddings.c -- /v1/embeddings: texts or token ids in, a vector of each out.
 *
 * An input is a sequence of which nothing is generated; when it has ended its vector lies in the
 * block that request and reply share (scheduler/vectors.h). It is written as JSON as soon as it is
 * there, so that the whole body is only copied together in the end.
 *
 *     the first `dimensions` values | divided by their length | numbers, or base64 of float32 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/base64.h"
#include "scheduler/vectors.h"
#include "server/openai_request.h"
#include "server/reply.h"

enum { VECTOR_DIGITS = 9 /* every float32 can be told apart */ };

/* --- the request ------------------------------------------------------------------------------ */

static int read_encoding(struct draft *draft)
{
    const char *name = "float";
    size_t bytes = 0;
    int r = json_get_string(draft->body, "", "encoding_format", &name, &bytes, &draft->fault);

    if (r < 0)
        return r;
    draft->base64 = strcmp(name, "base64") == 0;
    if (!draft->base64 && strcmp(name, "float") != 0)
        return draft_fault(draft, E_INVALID, "encoding_format",
                           "'encoding_format' must be \"float\" or \"base64\"");
    return 0;
}

int embeddings_read(struct draft *draft)
{
    const struct openai_context *context = draft->context;
    struct request *request = draft->request;
    int r;

    if (context->vector_width == 0)
        return draft_fault(draft, E_UNSUPPORTED, "", "%s", context->no_vectors);
    r = read_encoding(draft);
    if (r < 0)
        return r;
    if (draft->fields.dimensions != OPENAI_ABSENT &&
        draft->fields.dimensions > (int64_t)context->vector_width)
        return draft_fault(draft, E_INVALID, "dimensions",
                           "'dimensions' is %lld, but this model's vectors have %u values",
                           (long long)draft->fields.dimensions, context->vector_width);
    sampling_init(&request->sampling);
    r = draft_read_prompts(draft, "input");
    if (r < 0)
        return r;
    request->pooling = context->pooling;
    request->vectors = vectors_open(request->prompt_count, context->vector_width);
    return request->vectors ? 0 : draft_out_of_memory(draft);
}

/* --- the answer ------------------------------------------------------------------------------- */

/* By what each value is multiplied; a vector of nothing but zeros stays as it is. */
static double scale_of(const float *vector, uint32_t count, bool normalize)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += (double)vector[i] * (double)vector[i];
    return normalize && sum > 0 ? 1 / sqrt(sum) : 1;
}

static void put_numbers(const float *vector, uint32_t count, double scale, struct buf *out)
{
    for (uint32_t i = 0; i < count; i++) {
        buf_byte(out, i > 0 ? ',' : '[');
        buf_json_number(out, (double)(float)(vector[i] * scale), VECTOR_DIGITS);
    }
    buf_byte(out, ']');
}

/* Little-endian, whatever this machine is. `vector` is written over. */
static void put_base64(float *vector, uint32_t count, double scale, struct buf *out)
{
    unsigned char *bytes = (unsigned char *)vector;

    for (uint32_t i = 0; i < count; i++) {
        float value = (float)(vector[i] * scale);
        uint32_t bits;

        memcpy(&bits, &value, sizeof bits);
        for (unsigned byte = 0; byte < sizeof bits; byte++)
            bytes[i * sizeof bits + byte] = (unsigned char)(bits >> 8 * byte);
    }
    buf_byte(out, '"');
    base64_write(bytes, count * sizeof *vector, out);
    buf_byte(out, '"');
}

void reply_put_vector(struct reply *reply, struct reply_choice *choice)
{
    const struct reply_vectors *wish = &reply->wish.vectors;
    float *vector = vectors_at(reply->vectors, (uint32_t)(choice - reply->choices));
    double scale = scale_of(vector, wish->dimensions, wish->normalize);

    buf_reset(&choice->text);
    if (wish->base64)
        put_base64(vector, wish->dimensions, scale, &choice->text);
    else
        put_numbers(vector, wish->dimensions, scale, &choice->text);
}

void reply_put_vectors(const struct reply *reply, struct buf *out)
{
    buf_byte(out, '{');
    buf_put(out, reply->head, reply->head_bytes);
    buf_text(out, "\"data\":[");
    for (uint32_t i = 0; i < reply->choice_count; i++) {
        const struct reply_choice *choice = &reply->choices[i];

        buf_text(out, i > 0 ? ",{\"object\":\"embedding\",\"index\":"
                            : "{\"object\":\"embedding\",\"index\":");
        buf_u64(out, i);
        buf_text(out, ",\"embedding\":");
        buf_put(out, buf_string(&choice->text), choice->text.bytes);
        buf_byte(out, '}');
    }
    buf_text(out, "],\"usage\":{\"prompt_tokens\":");
    buf_u64(out, reply->prompt_tokens);
    buf_text(out, ",\"total_tokens\":");
    buf_u64(out, reply->prompt_tokens);
    buf_text(out, "}}");
}

const struct reply_shape embeddings_shape = {.id_prefix = "embd-", .object = "list"};
