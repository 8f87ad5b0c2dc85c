/* openai_models.c -- what GET /v1/models and /v1/models/{id} say. */
#include <string.h>

#include "server/openai.h"

void openai_model_body(const struct openai_context *context, struct buf *body)
{
    buf_text(body, "{\"id\":");
    buf_json_string(body, context->model_id, strlen(context->model_id));
    buf_text(body, ",\"object\":\"model\",\"created\":");
    buf_u64(body, context->created);
    buf_text(body, ",\"owned_by\":\"weft\",\"root\":");
    buf_json_string(body, context->model_id, strlen(context->model_id));
    buf_format(body, ",\"parent\":null,\"max_model_len\":%u,\"context_length\":%u}",
               context->context, context->context);
}

void openai_models_body(const struct openai_context *context, struct buf *body)
{
    buf_text(body, "{\"object\":\"list\",\"data\":[");
    openai_model_body(context, body);
    buf_text(body, "]}");
}
