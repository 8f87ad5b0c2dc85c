/* openai_fields.c -- the table of fields at work: reading, refusing, documenting. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/openai_request.h"

enum {
    CHAT = 1 << OPENAI_CHAT,
    COMPLETIONS = 1 << OPENAI_COMPLETIONS,
    EMBEDDINGS = 1 << OPENAI_EMBEDDINGS,
    BOTH = CHAT | COMPLETIONS,
    ALL = BOTH | EMBEDDINGS,
};

/* Values of a refused field that ask for nothing. */
enum neutral {
    NEUTRAL_NONE, /* null only */
    NEUTRAL_FALSE,
    NEUTRAL_ZERO,
    NEUTRAL_ONE,
    NEUTRAL_EMPTY,      /* [], {}, "" */
    NEUTRAL_WORD_NONE,  /* "none" */
    NEUTRAL_MODALITIES, /* ["text"] */
    NEUTRAL_N,          /* the value of n */
};

static bool is_word(const json_t *value, const char *word)
{
    return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
}

static bool is_neutral(const json_t *value, enum neutral neutral, int64_t n)
{
    int64_t integer;

    switch (neutral) {
    case NEUTRAL_NONE:
        return false;
    case NEUTRAL_FALSE:
        return json_is_false(value);
    case NEUTRAL_ZERO:
        return json_is_number(value) && json_number_value(value) == 0;
    case NEUTRAL_ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case NEUTRAL_EMPTY:
        return (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0) || is_word(value, "");
    case NEUTRAL_WORD_NONE:
        return is_word(value, "none");
    case NEUTRAL_MODALITIES:
        return json_is_array(value) && json_array_size(value) == 1 &&
               is_word(json_array_get(value, 0), "text");
    case NEUTRAL_N:
        return json_integral(value, &integer) && integer == n;
    }
    return false;
}

struct refused_field {
    const char *key;
    unsigned endpoints;
    enum neutral neutral;
};
static const struct refused_field refused_fields[] = {
#define REFUSED(key, endpoints, neutral, help) {key, endpoints, neutral},
#include "server/openai_fields.def"
};

static int refuse(unsigned endpoint, const json_t *body, int64_t n, struct fault *fault)
{
    for (size_t i = 0; i < sizeof refused_fields / sizeof *refused_fields; i++) {
        const struct refused_field *field = &refused_fields[i];
        const json_t *value = json_object_get(body, field->key);

        if (!(field->endpoints & endpoint) || !value || json_is_null(value) ||
            is_neutral(value, field->neutral, n))
            continue;
        return fault_field(fault, E_UNSUPPORTED, field->key, "'%s' is not supported by this server",
                           field->key);
    }
    return 0;
}

static void take_defaults(const struct generation_config *generation, struct openai_fields *fields)
{
    const struct {
        double value;
        double *field;
    } reals[] = {
        {generation->temperature, &fields->temperature},
        {generation->top_p, &fields->top_p},
        {generation->min_p, &fields->min_p},
        {generation->typical_p, &fields->typical_p},
        {generation->repetition_penalty, &fields->repetition_penalty},
    };

    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!isnan(reals[i].value))
            *reals[i].field = reals[i].value;
    if (generation->top_k >= 0)
        fields->top_k = generation->top_k;
}

int openai_fields_read(enum openai_endpoint endpoint, const struct generation_config *generation,
                       const json_t *body, struct openai_fields *ret_fields, struct fault *fault)
{
    const unsigned bit = 1u << endpoint;
    const int64_t ABSENT = OPENAI_ABSENT;
    struct openai_fields fields = {
#define FLAG(member, key, endpoints, initial, help)                      .member = initial,
#define INTEGER(member, key, endpoints, low, high, initial, shown, help) .member = initial,
#define REAL(member, key, endpoints, low, high, initial, help)           .member = initial,
#include "server/openai_fields.def"
    };

    if (generation)
        take_defaults(generation, &fields);
#define FLAG(member, key, endpoints, initial, help)                                   \
    if (((endpoints)&bit) && json_get_bool(body, "", key, &fields.member, fault) < 0) \
        return fault->code;
#define INTEGER(member, key, endpoints, low, high, initial, shown, help)                        \
    if (((endpoints)&bit) && json_get_int(body, "", key, low, high, &fields.member, fault) < 0) \
        return fault->code;
#define REAL(member, key, endpoints, low, high, initial, help)                                   \
    if (((endpoints)&bit) && json_get_real(body, "", key, low, high, &fields.member, fault) < 0) \
        return fault->code;
#include "server/openai_fields.def"

    *ret_fields = fields;
    return refuse(bit, body, fields.n, fault);
}

/* --- documentation ---------------------------------------------------------------------------- */

static const char *endpoints_name(unsigned endpoints)
{
    static const char *const names[] = {
        [CHAT] = "chat",
        [COMPLETIONS] = "completions",
        [EMBEDDINGS] = "embeddings",
        [BOTH] = "both",
        [COMPLETIONS | EMBEDDINGS] = "completions, embeddings",
        [ALL] = "all",
    };

    return names[endpoints];
}

static void docs_row(struct buf *text, const char *key, unsigned endpoints, const char *takes,
                     const char *shown, const char *help)
{
    buf_format(text, "| `%s` | %s | %s | %s | %s |\n", key, endpoints_name(endpoints), takes, shown,
               help);
}

static void docs_integer(struct buf *text, const char *key, unsigned endpoints, int64_t low,
                         int64_t high, const char *shown, const char *help)
{
    char takes[64];

    if (low < -1)
        (void)snprintf(takes, sizeof takes, "integer of 64 bits");
    else if (high >= INT32_MAX)
        (void)snprintf(takes, sizeof takes, "integer ≥ %lld", (long long)low);
    else
        (void)snprintf(takes, sizeof takes, "integer %lld…%lld", (long long)low, (long long)high);
    docs_row(text, key, endpoints, takes, shown, help);
}

static void docs_real(struct buf *text, const char *key, unsigned endpoints, double low,
                      double high, double initial, const char *help)
{
    char takes[64], shown[32];

    (void)snprintf(takes, sizeof takes, "number %g…%g", low, high);
    (void)snprintf(shown, sizeof shown, "%g", initial);
    docs_row(text, key, endpoints, takes, shown, help);
}

static const char *neutral_name(enum neutral neutral)
{
    static const char *const names[] = {
        [NEUTRAL_NONE] = "",
        [NEUTRAL_FALSE] = "`false`",
        [NEUTRAL_ZERO] = "`0`",
        [NEUTRAL_ONE] = "`1`",
        [NEUTRAL_EMPTY] = "empty",
        [NEUTRAL_WORD_NONE] = "`\"none\"`",
        [NEUTRAL_MODALITIES] = "`[\"text\"]`",
        [NEUTRAL_N] = "the value of `n`",
    };

    return names[neutral];
}

static void docs_served(struct buf *text)
{
    buf_text(text,
             "| field | endpoint | takes | default | what it does |\n|---|---|---|---|---|\n");
#define FLAG(member, key, endpoints, initial, help) \
    docs_row(text, key, endpoints, "boolean", (initial) ? "true" : "false", help);
#define INTEGER(member, key, endpoints, low, high, initial, shown, help) \
    docs_integer(text, key, endpoints, low, high, shown, help);
#define REAL(member, key, endpoints, low, high, initial, help) \
    docs_real(text, key, endpoints, low, high, initial, help);
#define SPECIAL(key, endpoints, takes, shown, help) \
    docs_row(text, key, endpoints, takes, shown, help);
#include "server/openai_fields.def"
}

static void docs_others(struct buf *text)
{
    buf_text(text, "| field | endpoint | answered | unless | for |\n|---|---|---|---|---|\n");
#define REFUSED(key, endpoints, neutral, help) \
    docs_row(text, key, endpoints, "400", neutral_name(neutral), help);
#define IGNORED(key, endpoints, help) docs_row(text, key, endpoints, "without effect", "", help);
#include "server/openai_fields.def"
}

void openai_fields_docs(struct buf *text)
{
    buf_text(
        text,
        "# Fields of a request\n\n"
        "For `POST /v1/chat/completions` (chat), `POST /v1/completions` (completions; `both` are "
        "these "
        "two) and\n`POST /v1/embeddings` (embeddings). `null` counts as absent everywhere, and "
        "fields that are not listed here are ignored. Integers "
        "may be written as `16`, `16.0` or `1.6e1`. A wrong type or a value out\nof range is "
        "answered 400, with the field's name in `error.param`. How the rest of the API behaves is "
        "in [api.md](api.md). Where the\nmodel's folder has a generation_config.json, its values "
        "are "
        "the defaults ([models.md](models.md)).\n\n"
        "This page is made from `server/openai_fields.def` by `weft docs fields`.\n\n"
        "## Served\n\n");
    docs_served(text);
    buf_text(text,
             "\n## Not served\n\n"
             "What would restrict an answer is never silently ignored: unless the value is the one "
             "that asks for nothing, the request is\nrefused and the field named.\n\n");
    docs_others(text);
}
