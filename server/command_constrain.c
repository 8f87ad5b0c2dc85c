/* command_constrain.c -- `weft constrain`: which texts fit a JSON schema, a regular expression or a
 * grammar.
 *
 *     "a text"  ->  {"accept":true}  or  {"accept":false,"dead_at":3}
 *
 * dead_at is the byte where nothing could follow any more, null when the text is only unfinished. A
 * constraint that is refused is told on standard error, with exit code 2. Reads no model. */
#include <stdio.h>
#include <string.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "engine/text/regex_grammar.h"
#include "engine/text/schema.h"
#include "server/commands.h"
#include "server/json_lines.h"

enum { FILE_BYTES_MAX = 16 << 20 };

static int judge_line(void *data, const json_t *line, struct buf *answer, struct fault *fault)
{
    struct constraint *constraint = data;
    struct constraint_state *state = NULL;
    size_t taken = 0;
    int r = constraint_state_open(constraint, &state, fault);

    if (r < 0)
        return r;
    r = constraint_state_bytes(state, json_string_value(line), json_string_length(line), &taken,
                               fault);
    if (r == 0)
        buf_format(answer, "{\"accept\":false,\"dead_at\":%zu}", taken);
    else if (r > 0 && constraint_state_is_complete(state))
        buf_text(answer, "{\"accept\":true}");
    else if (r > 0)
        buf_text(answer, "{\"accept\":false,\"dead_at\":null}");
    constraint_state_close(state);
    return r < 0 ? r : 0;
}

static int read_file(const char *path, struct buf *text, struct fault *fault)
{
    FILE *file = fopen(path, "rbe");
    char piece[4096];
    size_t bytes;
    int r = 0;

    if (!file)
        return fault_errno(fault, "Cannot open %s", path);
    while ((bytes = fread(piece, 1, sizeof piece, file)) > 0)
        buf_put(text, piece, bytes);
    if (ferror(file))
        r = fault_errno(fault, "Cannot read %s", path);
    else if (buf_failed(text))
        r = fault_set(fault, E_TOO_LARGE, "%s has more than %d bytes", path, FILE_BYTES_MAX);
    (void)fclose(file);
    return r;
}

static int compile_schema(const struct buf *text, struct grammar **ret_grammar, struct fault *fault)
{
    json_t *schema = NULL;
    int r = json_parse(buf_string(text), text->bytes, &schema, fault);

    if (r == 0)
        r = schema_compile(schema, NULL, ret_grammar, fault);
    json_decref(schema);
    return r;
}

/* `text` is the schema's or the grammar's. */
static int compile(const struct config *config, const struct buf *text,
                   struct constraint **ret_constraint, struct fault *fault)
{
    struct grammar *grammar = NULL;
    int r;

    if (*config->schema)
        r = compile_schema(text, &grammar, fault);
    else if (*config->grammar)
        r = gbnf_parse(buf_string(text), text->bytes, &grammar, fault);
    else
        r = regex_grammar_open(config->regex, strlen(config->regex), &grammar, fault);
    if (r == 0)
        r = constraint_open(grammar, NULL, NULL, ret_constraint, fault);
    grammar_close(grammar);
    return r;
}

int command_constrain(const struct config *config, struct fault *fault)
{
    const char *path = *config->schema ? config->schema : config->grammar;
    struct constraint *constraint = NULL;
    struct buf text;
    int r;

    if ((*config->schema != 0) + (*config->regex != 0) + (*config->grammar != 0) != 1) {
        fprintf(stderr,
                "weft: Give one of --schema, --regex and --grammar; an empty --regex counts "
                "as none ('()' is the expression of the empty text)\n");
        return EXIT_USAGE;
    }
    buf_init(&text, FILE_BYTES_MAX);
    r = *path ? read_file(path, &text, fault) : 0;
    if (r < 0)
        goto out;
    if (compile(config, &text, &constraint, fault) < 0) {
        fprintf(stderr, "weft: %s\n", fault->message);
        r = EXIT_USAGE;
        goto out;
    }
    r = json_lines_run_strings(judge_line, constraint, fault);
out:
    constraint_close(constraint);
    buf_fini(&text);
    return r;
}
