/* command_tokenize.c -- `weft tokenize` and `weft detokenize`: JSON lines through the model's
 * tokenizer.
 *
 *     {"text":"Hi","add_special_tokens":true,"specials_as_text":false}  ->  {"ids":[1,19556]}
 *     {"ids":[1,19556],"skip_special_tokens":false}
 *                                 ->  {"text":"<|im_start|>Hi","pieces_hex":["3c...","4869"]}
 *
 * Only the tokenizer's files are read: a folder with one will do, or a GGUF without tensors. */
#include <inttypes.h>

#include "engine/text/tokenizer.h"
#include "server/commands.h"
#include "server/json_lines.h"
#include "server/startup.h"

enum { PATH_BYTES_MAX = 4352, IDS_MAX = 64 << 20, TEXT_BYTES_MAX = 256 << 20 };

struct job {
    const struct config *config;
    const struct tokenizer *tokenizer;
};

static int tokenize_line(void *data, const json_t *object, struct buf *answer, struct fault *fault)
{
    const struct job *job = data;
    bool add_special = true;
    bool specials_as_text = job->config->specials_as_text;
    struct tokens tokens;
    const char *text;
    size_t bytes;
    int r;

    r = json_get_string(object, "", "text", &text, &bytes, fault);
    if (r == 0)
        return fault_field(fault, E_INVALID, "text", "'text' is missing");
    if (r < 0 || (r = json_get_bool(object, "", "add_special_tokens", &add_special, fault)) < 0 ||
        (r = json_get_bool(object, "", "specials_as_text", &specials_as_text, fault)) < 0)
        return r;
    tokens_init(&tokens, IDS_MAX);
    r = tokenizer_encode(job->tokenizer, text, bytes,
                         (add_special ? ENCODE_ADD_SPECIAL : 0u) |
                             (specials_as_text ? ENCODE_SPECIALS_AS_TEXT : ENCODE_AS_LIBRARY),
                         &tokens, fault);
    if (r >= 0) {
        r = 0;
        buf_text(answer, "{\"ids\":[");
        for (size_t i = 0; i < tokens.count; i++)
            buf_format(answer, "%s%" PRId32, i > 0 ? "," : "", tokens.ids[i]);
        buf_text(answer, "]}");
    }
    tokens_fini(&tokens);
    return r;
}

static int read_id(const struct job *job, const json_t *ids, size_t index, int32_t *ret_id,
                   struct fault *fault)
{
    uint32_t count = tokenizer_count(job->tokenizer);
    int64_t id;

    if (!json_integral(json_array_get(ids, index), &id))
        return fault_field(fault, E_INVALID, "ids", "'ids[%zu]' must be an integer", index);
    if (id < 0 || id >= count)
        return fault_field(fault, E_INVALID, "ids",
                           "'ids[%zu]' must be between 0 and %" PRIu32 ", not %" PRId64, index,
                           count - 1, id);
    *ret_id = (int32_t)id;
    return 0;
}

static void put_piece(void *data, const char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    struct buf *pieces = data;

    buf_text(pieces, pieces->bytes > 0 ? ",\"" : "\"");
    for (size_t i = 0; i < count; i++) {
        buf_byte(pieces, digits[(uint8_t)bytes[i] >> 4]);
        buf_byte(pieces, digits[bytes[i] & 15]);
    }
    buf_byte(pieces, '"');
}

static int decode(const struct job *job, const struct tokens *tokens, bool skip_special,
                  struct buf *answer, struct fault *fault)
{
    struct buf text, pieces;
    int r = 0;

    buf_init(&text, TEXT_BYTES_MAX);
    buf_init(&pieces, 4 * (size_t)TEXT_BYTES_MAX);
    tokenizer_decode(job->tokenizer, tokens->ids, tokens->count, skip_special, &text, put_piece,
                     &pieces);
    if (buf_failed(&text) || buf_failed(&pieces)) {
        r = fault_set(fault, E_TOO_LARGE, "The text has more than %d bytes", TEXT_BYTES_MAX);
    } else {
        buf_text(answer, "{\"text\":");
        buf_json_string(answer, buf_string(&text), text.bytes);
        buf_text(answer, ",\"pieces_hex\":[");
        buf_put(answer, buf_string(&pieces), pieces.bytes);
        buf_text(answer, "]}");
    }
    buf_fini(&text);
    buf_fini(&pieces);
    return r;
}

static int detokenize_line(void *data, const json_t *object, struct buf *answer,
                           struct fault *fault)
{
    const struct job *job = data;
    bool skip_special = false;
    struct tokens tokens;
    json_t *ids;
    int r;

    r = json_get_array(object, "", "ids", &ids, fault);
    if (r == 0)
        return fault_field(fault, E_INVALID, "ids", "'ids' is missing");
    if (r < 0 || (r = json_get_bool(object, "", "skip_special_tokens", &skip_special, fault)) < 0)
        return r;
    tokens_init(&tokens, IDS_MAX);
    r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(ids); i++) {
        int32_t id = 0;

        r = read_id(job, ids, i, &id, fault);
        if (r == 0 && tokens_put(&tokens, id) < 0)
            r = fault_set(fault, E_TOO_LARGE, "There are more than %d tokens", IDS_MAX);
    }
    if (r == 0)
        r = decode(job, &tokens, skip_special, answer, fault);
    tokens_fini(&tokens);
    return r;
}

static int run(const struct config *config, json_line_handler *handler, struct fault *fault)
{
    struct tokenizer *tokenizer = NULL;
    char path[PATH_BYTES_MAX];
    int r;

    r = startup_model_path(config, path, sizeof path, fault);
    if (r == 0)
        r = tokenizer_open_path(path, &tokenizer, fault);
    if (r == 0)
        r = json_lines_run(handler, &(struct job){.config = config, .tokenizer = tokenizer}, fault);
    tokenizer_close(tokenizer);
    return r;
}

int command_tokenize(const struct config *config, struct fault *fault)
{
    return run(config, tokenize_line, fault);
}

int command_detokenize(const struct config *config, struct fault *fault)
{
    return run(config, detokenize_line, fault);
}
