/* schema_text.c -- regular sets and literals as nodes, plain or within a JSON string.
 *
 * A state that is entered from several places, or from itself through others, becomes a rule; one
 * that is entered once is written where it is entered, and a run of states with one way on is one
 * literal. In a JSON string a code point has up to three spellings:
 *
 *     itself (but " \ and control characters)  |  \n and the like  |  \uXXXX, two of them past FFFF
 *
 * In a set of which only some code points go on, \u is left to what cannot be typed (control
 * characters, non-ASCII): nobody writes \u0041 for A, and the automaton stays small. */
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/schema_internal.h"

enum {
    INLINE_DEPTH_MAX = 24,
    ESCAPED_RANGES_MAX = 32, /* a class of more ranges (say, all letters) is not escaped */
    LITERAL_BYTES_MAX = 4096,
    SURROGATE_FIRST = 0xD800,
    SURROGATE_LAST = 0xDFFF,
    PLANE_ONE = 0x10000,
    CODE_POINT_LAST = 0x10FFFF,
};

static const struct grammar_range unescaped[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
static const struct grammar_range untyped[] = {
    {0, 0x1F}, {0x7F, SURROGATE_FIRST - 1}, {SURROGATE_LAST + 1, CODE_POINT_LAST}};
static const struct grammar_range everything[] = {{0, SURROGATE_FIRST - 1},
                                                  {SURROGATE_LAST + 1, CODE_POINT_LAST}};
/* The letter after a backslash, and what it stands for. */
static const char short_escapes[][2] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'b', '\b'},
                                        {'f', '\f'}, {'n', '\n'},  {'r', '\r'}, {'t', '\t'}};
enum { SHORT_ESCAPES = sizeof short_escapes / sizeof *short_escapes };

/* A list of nodes that become one choice. */
struct ways {
    int32_t nodes[2 * 16 + 8];
    size_t count;
};

static void ways_add(struct ways *ways, int32_t node)
{
    ways->nodes[ways->count++] = node;
}

static int32_t ways_choice(struct schema_compiler *compiler, const struct ways *ways)
{
    return ways->count == 1 ? ways->nodes[0]
                            : grammar_choice(compiler->grammar, ways->nodes, ways->count);
}

/* The parts of `ranges` that lie in `within`; `ret_ranges` has room for all. */
static size_t ranges_cut(const struct grammar_range *ranges, size_t count,
                         const struct grammar_range *within, size_t within_count,
                         struct grammar_range *ret_ranges)
{
    size_t cut = 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < within_count; j++) {
            uint32_t first = ranges[i].first, last = ranges[i].last;

            first = first < within[j].first ? within[j].first : first;
            last = last > within[j].last ? within[j].last : last;
            if (first <= last)
                ret_ranges[cut++] = (struct grammar_range){first, last};
        }
    }
    return cut;
}

static bool ranges_have(const struct grammar_range *ranges, size_t count, uint32_t point)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].first <= point && point <= ranges[i].last)
            return true;
    return false;
}

/* ---- hexadecimal ---- */

static int32_t hex_class(struct schema_compiler *compiler, unsigned digits)
{
    struct grammar_range ranges[3 * 16];
    size_t count = 0;

    for (uint32_t digit = 0; digit < 16; digit++) {
        if (!(digits >> digit & 1))
            continue;
        if (digit < 10) {
            ranges[count++] = (struct grammar_range){'0' + digit, '0' + digit};
        } else {
            ranges[count++] = (struct grammar_range){'A' + digit - 10, 'A' + digit - 10};
            ranges[count++] = (struct grammar_range){'a' + digit - 10, 'a' + digit - 10};
        }
    }
    return grammar_class(compiler->grammar, ranges, count, false);
}

static int32_t hex_any(struct schema_compiler *compiler, int32_t digits)
{
    if (compiler->hex < 0)
        compiler->hex = hex_class(compiler, 0xFFFF);
    return grammar_repeat(compiler->grammar, compiler->hex, digits, digits);
}

/* `level` digits that spell, after `base`, a number within the ranges. */
static int32_t hex_number(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count, uint32_t base, int level)
{
    uint32_t span = UINT32_C(1) << (4 * (level - 1));
    struct ways ways = {.count = 0};
    unsigned whole = 0;

    if (!schema_spend(compiler, 16))
        return E_TOO_LARGE;
    for (uint32_t digit = 0; digit < 16; digit++) {
        struct grammar_range part = {base + digit * span, base + (digit + 1) * span - 1};
        uint32_t covered = 0;

        for (size_t i = 0; i < count; i++) {
            struct grammar_range cut;

            if (ranges_cut(&ranges[i], 1, &part, 1, &cut) > 0)
                covered += cut.last - cut.first + 1;
        }
        if (covered == span)
            whole |= 1u << digit;
        else if (covered > 0)
            ways_add(&ways,
                     schema_pair(compiler, hex_class(compiler, 1u << digit),
                                 hex_number(compiler, ranges, count, part.first, level - 1)));
    }
    if (whole != 0 && level == 1)
        ways_add(&ways, hex_class(compiler, whole));
    else if (whole != 0)
        ways_add(&ways,
                 schema_pair(compiler, hex_class(compiler, whole), hex_any(compiler, level - 1)));
    return ways_choice(compiler, &ways);
}

/* Two escapes, the second with its "\u" and the first without: high..high, then low..low. */
static int32_t surrogates(struct schema_compiler *compiler, uint32_t high_first, uint32_t high_last,
                          uint32_t low_first, uint32_t low_last)
{
    struct grammar_range high = {SURROGATE_FIRST + high_first, SURROGATE_FIRST + high_last};
    struct grammar_range low = {0xDC00 + low_first, 0xDC00 + low_last};
    int32_t nodes[3] = {
        hex_number(compiler, &high, 1, 0, 4),
        schema_literal(compiler, "\\u"),
        hex_number(compiler, &low, 1, 0, 4),
    };

    return grammar_sequence(compiler->grammar, nodes, 3);
}

/* What follows "\u" for the ranges, which are not empty. */
static int32_t hex_escape(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count)
{
    struct grammar_range one[ESCAPED_RANGES_MAX * 4];
    size_t plane_zero = ranges_cut(ranges, count, everything, 2, one);
    int32_t nodes[ESCAPED_RANGES_MAX * 3 + 16];
    size_t ways = 0;

    while (plane_zero > 0 && one[plane_zero - 1].first >= PLANE_ONE)
        plane_zero--;
    if (plane_zero > 0) {
        if (one[plane_zero - 1].last >= PLANE_ONE)
            one[plane_zero - 1].last = PLANE_ONE - 1;
        nodes[ways++] = hex_number(compiler, one, plane_zero, 0, 4);
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t first, last, high, high_last;

        if (ranges[i].last < PLANE_ONE)
            continue;
        first = (ranges[i].first < PLANE_ONE ? PLANE_ONE : ranges[i].first) - PLANE_ONE;
        last = ranges[i].last - PLANE_ONE;
        high = first >> 10;
        high_last = last >> 10;
        if (high == high_last) {
            nodes[ways++] = surrogates(compiler, high, high, first & 0x3FF, last & 0x3FF);
            continue;
        }
        if ((first & 0x3FF) != 0) {
            nodes[ways++] = surrogates(compiler, high, high, first & 0x3FF, 0x3FF);
            high++;
        }
        if ((last & 0x3FF) != 0x3FF) {
            nodes[ways++] = surrogates(compiler, high_last, high_last, 0, last & 0x3FF);
            high_last--;
        }
        if (high <= high_last)
            nodes[ways++] = surrogates(compiler, high, high_last, 0, 0x3FF);
    }
    return ways == 1 ? nodes[0] : grammar_choice(compiler->grammar, nodes, ways);
}

/* A rule of its own: it is rarely used, and large. */
static int32_t hex_escape_rule(struct schema_compiler *compiler, const char *name,
                               const struct grammar_range *ranges, size_t count)
{
    int32_t rule = grammar_rule(compiler->grammar, name);
    int r = rule < 0 ? rule
                     : grammar_define(compiler->grammar, rule, hex_escape(compiler, ranges, count));

    return r < 0 ? r : grammar_reference(compiler->grammar, rule);
}

/* ---- one code point of a class ---- */

static int32_t escape(struct schema_compiler *compiler, const struct grammar_range *ranges,
                      size_t count)
{
    struct grammar_range letters[SHORT_ESCAPES], rest[ESCAPED_RANGES_MAX * 3];
    struct ways ways = {.count = 0};
    size_t letter_count = 0, rest_count;

    for (size_t i = 0; i < SHORT_ESCAPES; i++) {
        uint32_t letter = (unsigned char)short_escapes[i][0];

        if (letter == '/' && compiler->options.python)
            continue;
        if (ranges_have(ranges, count, (unsigned char)short_escapes[i][1]))
            letters[letter_count++] = (struct grammar_range){letter, letter};
    }
    if (letter_count > 0)
        ways_add(&ways, grammar_class(compiler->grammar, letters, letter_count, false));
    rest_count = ranges_cut(ranges, count, untyped, 3, rest);
    if (rest_count > 0) {
        int32_t node;

        if (rest_count == 3 && memcmp(rest, untyped, sizeof untyped) == 0) {
            if (compiler->escape_beyond < 0)
                compiler->escape_beyond = hex_escape_rule(compiler, "escape", rest, rest_count);
            node = compiler->escape_beyond;
        } else {
            node = hex_escape(compiler, rest, rest_count);
        }
        ways_add(&ways, schema_pair(compiler, schema_literal(compiler, "u"), node));
    }
    if (ways.count == 0)
        return -1;
    return schema_pair(compiler, schema_literal(compiler, "\\"), ways_choice(compiler, &ways));
}

static int32_t json_class(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count)
{
    struct grammar_range *plain =
        schema_take(compiler, count + sizeof unescaped / sizeof *unescaped, sizeof *plain);
    struct ways ways = {.count = 0};
    size_t plain_count;

    if (!plain)
        return E_MEMORY;
    plain_count = ranges_cut(ranges, count, unescaped, 3, plain);
    if (plain_count > 0)
        ways_add(&ways, grammar_class(compiler->grammar, plain, plain_count, false));
    if (count <= ESCAPED_RANGES_MAX) {
        int32_t node = escape(compiler, ranges, count);

        if (node != -1)
            ways_add(&ways, node);
    }
    return ways.count == 0 ? grammar_never(compiler->grammar) : ways_choice(compiler, &ways);
}

/* Classes are remembered: a set's states mostly share them. */
struct schema_class {
    struct schema_class *next;
    struct grammar_range *ranges;
    size_t count;
    enum schema_spelling spelling;
    int32_t node;
};

static int32_t class_node(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count, enum schema_spelling spelling)
{
    uint32_t hash = (uint32_t)spelling;
    struct schema_class **bucket, *class;

    for (size_t i = 0; i < count; i++)
        hash = (hash * 31 + ranges[i].first) * 31 + ranges[i].last;
    bucket = &compiler->classes[(hash ^ hash >> 10) % SCHEMA_BUCKETS];
    if (!schema_spend(compiler, (int64_t)count))
        return E_TOO_LARGE;
    for (class = *bucket; class; class = class->next)
        if (class->count == count && class->spelling == spelling &&
            memcmp(class->ranges, ranges, count * sizeof *ranges) == 0)
            return class->node;
    class = schema_take(compiler, 1, sizeof *class);
    if (class)
        class->ranges = schema_take(compiler, count, sizeof *ranges);
    if (!class || !class->ranges)
        return E_MEMORY;
    memcpy(class->ranges, ranges, count * sizeof *ranges);
    class->count = count;
    class->spelling = spelling;
    class->node = spelling == SPELLING_TEXT ? grammar_class(compiler->grammar, ranges, count, false)
                                            : json_class(compiler, ranges, count);
    class->next = *bucket;
    *bucket = class;
    return class->node;
}

int32_t schema_text_class(struct schema_compiler *compiler, const struct grammar_range *ranges,
                          size_t count)
{
    return class_node(compiler, ranges, count, SPELLING_JSON);
}

int32_t schema_text_char(struct schema_compiler *compiler)
{
    static const char letters[] = "\"\\bfnrt/";
    struct grammar_range ranges[sizeof letters - 1];
    size_t count = sizeof letters - 1 - (compiler->options.python ? 1 : 0);
    int32_t escapes[2], ways[2];

    if (compiler->any_char >= 0)
        return compiler->any_char;
    for (size_t i = 0; i < count; i++)
        ranges[i].first = ranges[i].last = (unsigned char)letters[i];
    escapes[0] = grammar_class(compiler->grammar, ranges, count, false);
    escapes[1] = schema_pair(compiler, schema_literal(compiler, "u"),
                             hex_escape_rule(compiler, "any escape", everything, 2));
    ways[0] = grammar_class(compiler->grammar, unescaped, 3, false);
    ways[1] = schema_pair(compiler, schema_literal(compiler, "\\"),
                          grammar_choice(compiler->grammar, escapes, 2));
    compiler->any_char = grammar_choice(compiler->grammar, ways, 2);
    return compiler->any_char;
}

/* ---- literals ---- */

/* Appends the one spelling that a literal has in a JSON string. */
static void spell(struct buf *text, const char *point, size_t bytes)
{
    unsigned char c = (unsigned char)point[0];

    for (size_t i = 0; i < SHORT_ESCAPES; i++) {
        if (bytes == 1 && short_escapes[i][1] == point[0] && c != '/') {
            buf_byte(text, '\\');
            buf_byte(text, short_escapes[i][0]);
            return;
        }
    }
    if (c < 0x20)
        buf_format(text, "\\u%04x", c);
    else
        buf_put(text, point, bytes);
}

int32_t schema_text_literal(struct schema_compiler *compiler, const char *text, size_t bytes)
{
    size_t room = 6 * bytes + 3, at = 0, one;
    char *memory = schema_take(compiler, room, 1);
    struct buf out;

    if (!memory)
        return E_MEMORY;
    buf_init_fixed(&out, memory, room);
    buf_byte(&out, '"');
    for (; at < bytes; at += one) {
        regular_code_point(text + at, &one);
        spell(&out, text + at, one);
    }
    buf_byte(&out, '"');
    return grammar_literal(compiler->grammar, out.data, out.bytes);
}

/* ---- sets ---- */

struct writer {
    struct schema_compiler *compiler;
    const struct regular *set;
    enum schema_spelling spelling;
    uint32_t *incoming; /* ways into each state, loops to itself not counted */
    int32_t *rules;     /* of each state; -1: none */
    uint32_t *queue;    /* states whose rules are to be defined */
    uint32_t queued;
};

static int32_t state_rule(struct writer *writer, uint32_t state)
{
    if (writer->rules[state] < 0) {
        int32_t rule = grammar_rule(writer->compiler->grammar, "text");

        if (rule < 0)
            return rule;
        writer->rules[state] = rule;
        writer->queue[writer->queued++] = state;
    }
    return grammar_reference(writer->compiler->grammar, writer->rules[state]);
}

static int32_t write_state(struct writer *writer, uint32_t state, int depth);

static int32_t write_target(struct writer *writer, uint32_t state, int depth)
{
    if (depth < INLINE_DEPTH_MAX && writer->incoming[state] == 1)
        return write_state(writer, state, depth + 1);
    return state_rule(writer, state);
}

/* The one spelling of a point, if it has one in this set. */
static bool is_fixed(const struct writer *writer, const struct regular_edge *edge)
{
    if (edge->first != edge->last)
        return false;
    if (writer->spelling != SPELLING_JSON)
        return true;
    return edge->first >= 0x20 && edge->first < 0x7F && edge->first != '"' && edge->first != '\\' &&
           edge->first != '/';
}

static void put_fixed(const struct writer *writer, const struct regular_edge *edge,
                      struct buf *text)
{
    char point[4];
    size_t bytes = utf8_put(edge->first, point);

    if (writer->spelling == SPELLING_TEXT)
        buf_put(text, point, bytes);
    else
        spell(text, point, bytes);
}

/* As many states as have one way on, of one spelling; *ret_state is where they lead. */
static int32_t write_run(struct writer *writer, const struct regular_edge *edge,
                         uint32_t *ret_state)
{
    const struct regular *set = writer->set;
    char memory[LITERAL_BYTES_MAX];
    struct buf text;

    buf_init_fixed(&text, memory, sizeof memory);
    put_fixed(writer, edge, &text);
    *ret_state = edge->target;
    while (text.bytes + 8 < sizeof memory) {
        const struct regular_state *state = &set->states[*ret_state];

        edge = set->edges + state->edge_first;
        if (writer->incoming[*ret_state] != 1 || state->accepts || state->edge_count != 1 ||
            edge->target == *ret_state || !is_fixed(writer, edge))
            break;
        put_fixed(writer, edge, &text);
        *ret_state = edge->target;
    }
    return grammar_literal(writer->compiler->grammar, text.data, text.bytes);
}

/* All edges of a state that lead to one target, from edge `first` on. */
static int32_t write_class(struct writer *writer, const struct regular_state *state, uint32_t first)
{
    const struct regular_edge *edges = writer->set->edges + state->edge_first;
    struct grammar_range *ranges = schema_take(writer->compiler, state->edge_count, sizeof *ranges);
    size_t count = 0;

    if (!ranges)
        return E_MEMORY;
    for (uint32_t i = first; i < state->edge_count; i++)
        if (edges[i].target == edges[first].target)
            ranges[count++] = (struct grammar_range){edges[i].first, edges[i].last};
    return class_node(writer->compiler, ranges, count,
                      writer->spelling == SPELLING_TEXT ? SPELLING_TEXT : SPELLING_JSON);
}

static bool target_met(const struct regular_edge *edges, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (edges[i].target == edges[at].target)
            return true;
    return false;
}

static bool target_again(const struct regular_edge *edges, uint32_t count, uint32_t at)
{
    for (uint32_t i = at + 1; i < count; i++)
        if (edges[i].target == edges[at].target)
            return true;
    return false;
}

static int32_t write_state(struct writer *writer, uint32_t index, int depth)
{
    struct schema_compiler *compiler = writer->compiler;
    const struct regular_state *state = &writer->set->states[index];
    const struct regular_edge *edges = writer->set->edges + state->edge_first;
    int32_t *ways = schema_take(compiler, state->edge_count + 1, sizeof *ways), loop = -1, node;
    size_t count = 0;

    if (!ways)
        return E_MEMORY;
    if (!schema_spend(compiler, 1 + (int64_t)state->edge_count * state->edge_count / 8))
        return E_TOO_LARGE;
    if (state->accepts)
        ways[count++] = schema_literal(compiler, writer->spelling == SPELLING_TEXT ? "" : "\"");
    for (uint32_t i = 0; i < state->edge_count; i++) {
        uint32_t target = edges[i].target;

        if (target_met(edges, i))
            continue;
        if (target == index) {
            loop = write_class(writer, state, i);
            if (loop < 0)
                return loop;
            continue;
        }
        if (is_fixed(writer, &edges[i]) && !target_again(edges, state->edge_count, i))
            node = write_run(writer, &edges[i], &target);
        else
            node = write_class(writer, state, i);
        ways[count++] = schema_pair(compiler, node, write_target(writer, target, depth));
    }
    node = count == 1 ? ways[0] : grammar_choice(compiler->grammar, ways, count);
    if (loop >= 0)
        node = schema_pair(compiler, grammar_repeat(compiler->grammar, loop, 0, GRAMMAR_UNBOUNDED),
                           node);
    return node;
}

int32_t schema_text_set(struct schema_compiler *compiler, const struct regular *set,
                        enum schema_spelling spelling)
{
    uint32_t n = set->state_count;
    struct writer writer = {
        .compiler = compiler,
        .set = set,
        .spelling = spelling,
        .incoming = schema_take(compiler, n, sizeof *writer.incoming),
        .rules = schema_take(compiler, n, sizeof *writer.rules),
        .queue = schema_take(compiler, n, sizeof *writer.queue),
    };
    int32_t start;

    if (!writer.incoming || !writer.rules || !writer.queue)
        return E_MEMORY;
    writer.incoming[0] = 1;
    for (uint32_t s = 0; s < n; s++) {
        writer.rules[s] = -1;
        for (uint32_t e = 0; e < set->states[s].edge_count; e++) {
            const struct regular_edge *edges = set->edges + set->states[s].edge_first;

            if (edges[e].target != s && !target_met(edges, e))
                writer.incoming[edges[e].target]++;
        }
    }
    start = writer.incoming[0] == 1 ? write_state(&writer, 0, 0) : state_rule(&writer, 0);
    for (uint32_t i = 0; i < writer.queued; i++) {
        uint32_t state = writer.queue[i];
        int r =
            grammar_define(compiler->grammar, writer.rules[state], write_state(&writer, state, 0));

        if (r < 0)
            return r;
    }
    return start;
}
