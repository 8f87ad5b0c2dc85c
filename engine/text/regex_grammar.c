/* regex_grammar.c -- see regex_grammar.h.
 *
 * The expression is read into a tree and then built from the top, every part told what lies before
 * and behind it: an edge of the text that is still open (a search may have anything there), one
 * that ^ or $ has closed, or something else, where anchors mean nothing that can be built.
 *
 *     ^a|b$   search      'a' any*  |  any* 'b' */
#include "engine/text/regex_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/regex_internal.h"

enum {
    PATTERN_BYTES_MAX = 1 << 20,
    NODES_MAX = 1 << 19,
    NESTING_MAX = 250,
    CHARACTER_BYTES_MAX = 4,
};

enum edge {
    EDGE_OPEN,   /* the text's, and anything may lie there */
    EDGE_CLOSED, /* the text's, and nothing lies there */
    EDGE_NONE,
};

int regex_complain(struct regex *regex, int code, const char *what)
{
    size_t character = 1;

    for (size_t i = 0; i < regex->at && i < regex->bytes; i++)
        character += ((uint8_t)regex->text[i] & 0xC0) != 0x80;
    return fault_set(regex->fault, code, "Regular expression, character %zu: %s", character, what);
}

static int no_memory(struct regex *regex)
{
    return fault_set(regex->fault, E_MEMORY, "There is no memory for the regular expression");
}

int regex_list_put(struct regex *regex, struct regex_list *list, const void *item,
                   size_t item_bytes)
{
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 32;
        void *items = realloc(list->items, room * item_bytes);

        if (!items)
            return no_memory(regex);
        list->items = items;
        list->room = room;
    }
    memcpy((char *)list->items + list->count++ * item_bytes, item, item_bytes);
    return 0;
}

char regex_peek(const struct regex *regex, size_t ahead)
{
    return regex->at + ahead < regex->bytes ? regex->text[regex->at + ahead] : 0;
}

static bool starts(const struct regex *regex, const char *text)
{
    size_t bytes = strlen(text);

    return regex->bytes - regex->at >= bytes && memcmp(regex->text + regex->at, text, bytes) == 0;
}

struct regex_part *regex_part_get(struct regex *regex, uint32_t part)
{
    return (struct regex_part *)regex->parts.items + part - 1;
}

int regex_part_add(struct regex *regex, enum regex_kind kind, uint32_t *ret_part)
{
    struct regex_part part = {.kind = kind, .anchored = kind == REGEX_START || kind == REGEX_END};
    int r = regex_list_put(regex, &regex->parts, &part, sizeof part);

    if (r == 0)
        *ret_part = regex->parts.count;
    return r;
}

static void part_append(struct regex *regex, uint32_t parent, uint32_t child)
{
    struct regex_part *above = regex_part_get(regex, parent);

    if (above->last)
        regex_part_get(regex, above->last)->next = child;
    else
        above->first = child;
    above->last = child;
    above->anchored |= regex_part_get(regex, child)->anchored;
}

/* ---- reading ---- */

static int read_choice(struct regex *regex, unsigned depth, uint32_t *ret_part);

/* Past "(?:" and its kin; what is not a group is refused by its name. *ret_comment: "(?#...)" was
 * read whole. */
static int read_group_kind(struct regex *regex, bool *ret_comment)
{
    static const struct {
        const char *begins, *refusal;
    } kinds[] = {
        {"(?:", NULL},
        {"(?P<", NULL},
        {"(?<=", "look-behind is not supported"},
        {"(?<!", "look-behind is not supported"},
        {"(?<", NULL},
        {"(?=", "look-ahead is not supported"},
        {"(?!", "look-ahead is not supported"},
        {"(?P=", "back-references are not supported"},
        {"(?>", "atomic groups are not supported"},
        {"(?(", "conditions are not supported"},
        {"(?#", NULL},
        {"(?", "flags are not supported"},
        {"(", NULL},
    };
    size_t i = 0;

    while (!starts(regex, kinds[i].begins))
        i++;
    if (kinds[i].refusal)
        return regex_complain(regex, E_UNSUPPORTED, kinds[i].refusal);
    regex->at += strlen(kinds[i].begins);
    *ret_comment = strcmp(kinds[i].begins, "(?#") == 0;
    if (*ret_comment || strchr(kinds[i].begins, '<')) {
        char end = *ret_comment ? ')' : '>';

        while (regex->at < regex->bytes && regex_peek(regex, 0) != end)
            regex->at++;
        if (regex->at >= regex->bytes)
            return regex_complain(regex, E_INVALID, "the group is not closed");
        regex->at++;
    }
    return 0;
}

static int read_group(struct regex *regex, unsigned depth, uint32_t *ret_part)
{
    size_t opened = regex->at;
    bool comment = false;
    int r;

    if (depth >= NESTING_MAX)
        return regex_complain(regex, E_TOO_LARGE, "groups are nested too deep");
    r = read_group_kind(regex, &comment);
    if (r < 0)
        return r;
    if (comment)
        return regex_part_add(regex, REGEX_SEQUENCE, ret_part);
    r = read_choice(regex, depth + 1, ret_part);
    if (r < 0)
        return r;
    if (regex_peek(regex, 0) != ')') {
        regex->at = opened;
        return regex_complain(regex, E_INVALID, "the group is not closed");
    }
    regex->at++;
    return 0;
}

/* A number of repetitions, `ahead` of here; false: there is none. What is too large becomes -1. */
static bool peek_count(const struct regex *regex, size_t *ahead, int64_t *ret_count)
{
    size_t first = *ahead;
    int64_t count = 0;

    for (;; ++*ahead) {
        char c = regex_peek(regex, *ahead);

        if (c < '0' || c > '9')
            break;
        count = count < 0 ? count : count * 10 + (c - '0');
        if (count > INT32_MAX)
            count = -1;
    }
    *ret_count = count;
    return *ahead > first;
}

/* {m} {m,} {m,n} {,n}: 1 when read, 0 when the brace is a character like others. */
static int read_counts(struct regex *regex, int32_t *low, int32_t *high)
{
    int64_t least = 0, most = 0;
    size_t ahead = 1;
    bool has_least = peek_count(regex, &ahead, &least), has_most = has_least;

    most = least;
    if (regex_peek(regex, ahead) == ',') {
        ahead++;
        has_most = peek_count(regex, &ahead, &most);
        if (has_least && !has_most)
            most = GRAMMAR_UNBOUNDED;
        has_most |= has_least;
    }
    if (!has_most || regex_peek(regex, ahead) != '}')
        return 0;
    if (least < 0 || (most < 0 && regex_peek(regex, ahead - 1) != ','))
        return regex_complain(regex, E_TOO_LARGE, "the number of repetitions is too large");
    if (most >= 0 && most < least)
        return regex_complain(regex, E_INVALID, "the most repetitions are fewer than the least");
    regex->at += ahead + 1;
    *low = (int32_t)least;
    *high = (int32_t)most;
    return 1;
}

/* A sign of repetition: 1 when read, 0 when there is none. */
static int read_sign(struct regex *regex, int32_t *low, int32_t *high)
{
    char c = regex_peek(regex, 0);

    if (c == '{')
        return read_counts(regex, low, high);
    if (c != '*' && c != '+' && c != '?')
        return 0;
    regex->at++;
    *low = c == '+';
    *high = c == '?' ? 1 : GRAMMAR_UNBOUNDED;
    return 1;
}

/* What is behind an item repeats it. */
static int read_repetition(struct regex *regex, uint32_t *part)
{
    int32_t low = 0, high = 0;
    uint32_t repeated = 0;
    int r = read_sign(regex, &low, &high);

    if (r <= 0)
        return r;
    if (regex_part_get(regex, *part)->anchored)
        return regex_complain(regex, E_UNSUPPORTED, "an anchor cannot be repeated");
    if (regex_peek(regex, 0) == '?')
        regex->at++;
    else if (regex_peek(regex, 0) == '+')
        return regex_complain(regex, E_UNSUPPORTED, "possessive repetition is not supported");
    r = regex_part_add(regex, REGEX_REPEAT, &repeated);
    if (r < 0)
        return r;
    regex_part_get(regex, repeated)->low = low;
    regex_part_get(regex, repeated)->high = high;
    part_append(regex, repeated, *part);
    *part = repeated;
    r = read_sign(regex, &low, &high);
    if (r == 1)
        r = regex_complain(regex, E_INVALID, "a repetition cannot be repeated");
    return r;
}

static int read_item(struct regex *regex, unsigned depth, uint32_t *ret_part)
{
    char c = regex_peek(regex, 0);
    int32_t low, high;
    int r;

    if (c == '^' || c == '$') {
        regex->at++;
        r = regex_part_add(regex, c == '^' ? REGEX_START : REGEX_END, ret_part);
    } else if (starts(regex, "\\A") || starts(regex, "\\Z") || starts(regex, "\\z")) {
        r = regex_part_add(regex, regex_peek(regex, 1) == 'A' ? REGEX_START : REGEX_END, ret_part);
        regex->at += 2;
    } else if (c == '(') {
        r = read_group(regex, depth, ret_part);
    } else {
        size_t begins = regex->at;

        r = read_sign(regex, &low, &high);
        if (r == 1) {
            regex->at = begins;
            r = regex_complain(regex, E_INVALID, "there is nothing before it to repeat");
        }
        if (r == 0)
            r = regex_atom(regex, ret_part);
    }
    return r < 0 ? r : read_repetition(regex, ret_part);
}

static int read_choice(struct regex *regex, unsigned depth, uint32_t *ret_part)
{
    uint32_t choice = 0, sequence = 0, item = 0;
    int r = regex_part_add(regex, REGEX_CHOICE, &choice);

    while (r == 0) {
        r = regex_part_add(regex, REGEX_SEQUENCE, &sequence);
        while (r == 0 && regex->at < regex->bytes && regex_peek(regex, 0) != '|' &&
               regex_peek(regex, 0) != ')') {
            r = read_item(regex, depth, &item);
            if (r == 0)
                part_append(regex, sequence, item);
        }
        if (r < 0)
            return r;
        part_append(regex, choice, sequence);
        if (regex_peek(regex, 0) != '|')
            break;
        regex->at++;
    }
    if (r == 0)
        *ret_part = choice;
    return r;
}

/* ---- building ---- */

static int build(struct regex *regex, uint32_t part, enum edge left, enum edge right,
                 int32_t *ret_node);

static int node_put(struct regex *regex, int32_t node)
{
    return regex_list_put(regex, &regex->nodes, &node, sizeof node);
}

/* The nodes from `first` on, which a choice or a sequence takes off the list; NULL: none. */
static const int32_t *nodes_from(const struct regex *regex, uint32_t first)
{
    return regex->nodes.count > first ? (const int32_t *)regex->nodes.items + first : NULL;
}

/* Anything at an edge that is open. */
static int edge_put(struct regex *regex, enum edge edge)
{
    if (edge != EDGE_OPEN)
        return 0;
    return node_put(regex,
                    grammar_repeat(regex->grammar, grammar_class(regex->grammar, NULL, 0, true), 0,
                                   GRAMMAR_UNBOUNDED));
}

/* Characters that stand side by side, as one literal; moves *part behind them. */
static int characters_put(struct regex *regex, uint32_t *part, uint32_t end)
{
    char text[64 * CHARACTER_BYTES_MAX];
    size_t bytes = 0;

    while (*part != end && regex_part_get(regex, *part)->kind == REGEX_CHARACTER &&
           bytes + CHARACTER_BYTES_MAX <= sizeof text) {
        bytes += utf8_put(regex_part_get(regex, *part)->character, text + bytes);
        *part = regex_part_get(regex, *part)->next;
    }
    return node_put(regex, grammar_literal(regex->grammar, text, bytes));
}

static int build_sequence(struct regex *regex, uint32_t sequence, enum edge left, enum edge right,
                          int32_t *ret_node)
{
    uint32_t part = regex_part_get(regex, sequence)->first, end = 0, first = regex->nodes.count;
    uint32_t kept = 0;
    int32_t node;
    int r = 0;

    for (; part && regex_part_get(regex, part)->kind == REGEX_START && left != EDGE_NONE;
         part = regex_part_get(regex, part)->next)
        left = EDGE_CLOSED;
    /* `end` is where a run of $ begins that reaches to the end of the sequence. */
    for (uint32_t i = part; i; i = regex_part_get(regex, i)->next) {
        if (regex_part_get(regex, i)->kind != REGEX_END || right == EDGE_NONE)
            end = 0;
        else if (end == 0)
            end = i;
    }
    right = end ? EDGE_CLOSED : right;
    if (part == end || !regex_part_get(regex, part)->anchored) {
        r = edge_put(regex, left);
        left = EDGE_NONE;
    }
    while (r == 0 && part != end) {
        const struct regex_part *item = regex_part_get(regex, part);
        uint32_t next = item->next;

        kept = part;
        if (item->kind == REGEX_CHARACTER) {
            r = characters_put(regex, &part, end);
            left = EDGE_NONE;
            continue;
        }
        r = build(regex, part, left, next == end && item->anchored ? right : EDGE_NONE, &node);
        if (r == 0)
            r = node_put(regex, node);
        left = EDGE_NONE;
        part = next;
    }
    if (r == 0 && !(kept && regex_part_get(regex, kept)->anchored))
        r = edge_put(regex, right);
    if (r == 0)
        *ret_node =
            grammar_sequence(regex->grammar, nodes_from(regex, first), regex->nodes.count - first);
    regex->nodes.count = first;
    return r;
}

static int build_choice(struct regex *regex, uint32_t choice, enum edge left, enum edge right,
                        int32_t *ret_node)
{
    uint32_t first = regex->nodes.count;
    int32_t node;
    int r = 0;

    for (uint32_t part = regex_part_get(regex, choice)->first; r == 0 && part;
         part = regex_part_get(regex, part)->next) {
        r = build(regex, part, left, right, &node);
        if (r == 0)
            r = node_put(regex, node);
    }
    if (r == 0)
        *ret_node =
            grammar_choice(regex->grammar, nodes_from(regex, first), regex->nodes.count - first);
    regex->nodes.count = first;
    return r;
}

/* A part between its edges. Depth is bounded by the nesting that was read. */
static int build(struct regex *regex, uint32_t part, enum edge left, enum edge right,
                 int32_t *ret_node)
{
    const struct regex_part *it = regex_part_get(regex, part);
    int32_t low = it->low, high = it->high, node;
    char text[CHARACTER_BYTES_MAX];
    int r;

    switch (it->kind) {
    case REGEX_SEQUENCE:
        return build_sequence(regex, part, left, right, ret_node);
    case REGEX_CHOICE:
        return build_choice(regex, part, left, right, ret_node);
    case REGEX_REPEAT:
        r = build(regex, it->first, EDGE_NONE, EDGE_NONE, &node);
        if (r == 0)
            *ret_node = grammar_repeat(regex->grammar, node, low, high);
        return r;
    case REGEX_CHARACTER:
        *ret_node = grammar_literal(regex->grammar, text, utf8_put(it->character, text));
        return 0;
    case REGEX_NODE:
        *ret_node = it->node;
        return 0;
    case REGEX_START:
    case REGEX_END:
        break;
    }
    return fault_set(regex->fault, E_UNSUPPORTED,
                     "Regular expression: ^ and $ can stand only where the text begins or ends");
}

int regex_grammar_build(struct grammar *grammar, const char *pattern, size_t bytes,
                        const struct regex_options *options, int32_t *ret_node, struct fault *fault)
{
    struct regex regex = {.grammar = grammar, .text = pattern, .bytes = bytes, .fault = fault};
    enum edge edge = options && options->search ? EDGE_OPEN : EDGE_CLOSED;
    uint32_t whole = 0;
    int32_t node = 0;
    int r = 0;

    if (bytes > PATTERN_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "The regular expression has more than %d bytes",
                         PATTERN_BYTES_MAX);
    r = read_choice(&regex, 0, &whole);
    if (r == 0 && regex.at < bytes)
        r = regex_complain(&regex, E_INVALID, "the parenthesis closes nothing");
    if (r == 0)
        r = build(&regex, whole, edge, edge, &node);
    if (r == 0 && node == E_TOO_LARGE)
        r = fault_set(fault, node, "The regular expression is too large");
    if (r == 0 && node < 0)
        r = no_memory(&regex);
    if (r == 0)
        *ret_node = node;
    free(regex.parts.items);
    free(regex.ranges.items);
    free(regex.nodes.items);
    return r;
}

int regex_grammar_open(const char *pattern, size_t bytes, struct grammar **ret_grammar,
                       struct fault *fault)
{
    struct grammar *grammar = NULL;
    int32_t node = 0, rule;
    int r = grammar_open(NODES_MAX, &grammar, fault);

    if (r == 0)
        r = regex_grammar_build(grammar, pattern, bytes, NULL, &node, fault);
    if (r < 0)
        goto out;
    rule = grammar_rule(grammar, "regex");
    r = grammar_define(grammar, rule, node);
    if (r < 0) {
        r = fault_set(fault, r, "There is no memory for the regular expression");
        goto out;
    }
    grammar_set_root(grammar, rule);
    r = grammar_check(grammar, fault);
    if (r == E_INVALID)
        r = fault_set(fault, r, "No text at all fits the regular expression");
    if (r < 0)
        goto out;
    *ret_grammar = grammar;
    grammar = NULL;
out:
    grammar_close(grammar);
    return r;
}
