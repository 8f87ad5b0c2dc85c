/* gbnf.c -- see gbnf.h.
 *
 * Groups may nest as deep as the text is long, so they are kept on a list instead of the C stack:
 * every open group has the nodes of its sequence so far and, behind each `|`, what came before. */
#include "engine/text/gbnf.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

enum {
    NODES_MAX = 1 << 19,
    TEXT_BYTES_MAX = 4 << 20,
    LITERAL_PART_BYTES = 4,
    CODE_POINT_MAX = 0x10FFFF,
    NAME_SHOWN_MAX = 60,
};

struct position {
    uint32_t line;
    uint32_t column;
};

struct name {
    const char *text;
    uint32_t bytes;
    int32_t rule;
    struct position used; /* line 0: not yet */
    bool defined;
};

/* A group that is open, or a rule's body at the bottom. */
struct group {
    uint32_t sequence_first;
    uint32_t choice_first;
    struct position opened;
};

struct list {
    void *items;
    uint32_t count;
    uint32_t room;
};

struct parser {
    const char *text;
    size_t bytes;
    size_t at;
    struct position here;
    struct grammar *grammar;
    struct list names;    /* struct name */
    struct list slots;    /* uint32_t: a hash table of names + 1, room is a power of two */
    struct list sequence; /* int32_t nodes, of all open groups */
    struct list choice;   /* the same: finished alternatives */
    struct list groups;   /* struct group */
    struct list ranges;   /* struct grammar_range, of one class */
    struct list literal;  /* char, of one literal */
    struct fault *fault;
};

/* ---- small things ---- */

static int complain(struct parser *parser, int code, const char *what)
{
    return fault_set(parser->fault, code, "Grammar, line %" PRIu32 ", column %" PRIu32 ": %s",
                     parser->here.line, parser->here.column, what);
}

static int no_memory(struct parser *parser)
{
    return fault_set(parser->fault, E_MEMORY, "There is no memory for the grammar");
}

static int list_put(struct parser *parser, struct list *list, const void *item, size_t item_bytes)
{
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 32;
        void *items = realloc(list->items, room * item_bytes);

        if (!items)
            return no_memory(parser);
        list->items = items;
        list->room = room;
    }
    memcpy((char *)list->items + list->count++ * item_bytes, item, item_bytes);
    return 0;
}

/* The byte `ahead` of here; 0 behind the end (and a NUL in the text is never taken for it, as
 * nothing but a class or a literal takes one). */
static char peek(const struct parser *parser, size_t ahead)
{
    return parser->at + ahead < parser->bytes ? parser->text[parser->at + ahead] : 0;
}

static bool at_end(const struct parser *parser)
{
    return parser->at >= parser->bytes;
}

static bool starts(const struct parser *parser, const char *text)
{
    size_t bytes = strlen(text);

    return parser->bytes - parser->at >= bytes &&
           memcmp(parser->text + parser->at, text, bytes) == 0;
}

/* Past `bytes` bytes of one character. */
static void advance(struct parser *parser, size_t bytes)
{
    if (parser->text[parser->at] == '\n') {
        parser->here.line++;
        parser->here.column = 1;
    } else {
        parser->here.column++;
    }
    parser->at += bytes;
}

static void advance_over(struct parser *parser, const char *text)
{
    for (; *text; text++)
        advance(parser, 1);
}

static bool is_newline(char c)
{
    return c == '\n' || c == '\r';
}

/* Blanks and comments; newlines too where they end nothing. */
static void skip_space(struct parser *parser, bool newlines)
{
    size_t taken;

    while (!at_end(parser)) {
        char c = peek(parser, 0);

        if (c == '#') {
            while (!at_end(parser) && !is_newline(peek(parser, 0))) {
                utf8_next(parser->text + parser->at, parser->bytes - parser->at, &taken, NULL);
                advance(parser, taken);
            }
        } else if (c == ' ' || c == '\t' || (newlines && is_newline(c))) {
            advance(parser, 1);
        } else {
            break;
        }
    }
}

/* ---- names ---- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static uint32_t hash_name(const char *text, uint32_t bytes)
{
    uint64_t hash = 0xCBF29CE484222325u;

    for (uint32_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001B3u;
    return (uint32_t)(hash ^ hash >> 32);
}

static struct name *name_get(struct parser *parser, uint32_t index)
{
    return (struct name *)parser->names.items + index;
}

/* The slot where a name is or would be. */
static uint32_t *slot_find(struct parser *parser, const char *text, uint32_t bytes)
{
    uint32_t *slots = parser->slots.items;
    uint32_t at = hash_name(text, bytes) & (parser->slots.room - 1);

    while (slots[at] != 0) {
        const struct name *name = name_get(parser, slots[at] - 1);

        if (name->bytes == bytes && memcmp(name->text, text, bytes) == 0)
            break;
        at = (at + 1) & (parser->slots.room - 1);
    }
    return &slots[at];
}

static int slots_grow(struct parser *parser)
{
    struct list old = parser->slots;
    uint32_t room = old.room ? old.room * 2 : 64;

    if (parser->names.count * 2 + 2 <= old.room)
        return 0;
    parser->slots.items = calloc(room, sizeof(uint32_t));
    if (!parser->slots.items) {
        parser->slots = old;
        return no_memory(parser);
    }
    parser->slots.room = room;
    for (uint32_t i = 0; i < parser->names.count; i++)
        *slot_find(parser, name_get(parser, i)->text, name_get(parser, i)->bytes) = i + 1;
    free(old.items);
    return 0;
}

/* The name that stands here, as an index. */
static int parse_name(struct parser *parser, uint32_t *ret_index)
{
    struct name name = {.text = parser->text + parser->at};
    char shown[NAME_SHOWN_MAX + 1];
    uint32_t *slot;
    int r;

    while (is_name(peek(parser, name.bytes)) && name.bytes < TEXT_BYTES_MAX)
        name.bytes++;
    if (name.bytes == 0)
        return complain(parser, E_INVALID, "the name of a rule is expected");
    r = slots_grow(parser);
    if (r < 0)
        return r;
    slot = slot_find(parser, name.text, name.bytes);
    if (*slot == 0) {
        uint32_t bytes = name.bytes < NAME_SHOWN_MAX ? name.bytes : NAME_SHOWN_MAX;

        memcpy(shown, name.text, bytes);
        shown[bytes] = 0;
        name.rule = grammar_rule(parser->grammar, shown);
        r = list_put(parser, &parser->names, &name, sizeof name);
        if (r < 0)
            return r;
        *slot = parser->names.count;
    }
    *ret_index = *slot - 1;
    for (uint32_t i = 0; i < name.bytes; i++)
        advance(parser, 1);
    return 0;
}

/* ---- characters ---- */

static int parse_hex(struct parser *parser, int digits, uint32_t *ret_value)
{
    uint32_t value = 0;

    for (int i = 0; i < digits; i++) {
        char c = peek(parser, 0);

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
        else
            return complain(parser, E_INVALID, "a hexadecimal digit is expected");
        advance(parser, 1);
    }
    if (value > CODE_POINT_MAX || (value >= 0xD800 && value <= 0xDFFF))
        return complain(parser, E_INVALID, "the escape is no character of Unicode");
    *ret_value = value;
    return 0;
}

static int parse_escape(struct parser *parser, uint32_t *ret_character)
{
    static const char names[] = "trn\\\"[]", values[] = "\t\r\n\\\"[]";
    char c = peek(parser, 1);
    const char *found = c ? strchr(names, c) : NULL;

    if (!found && c != 'x' && c != 'u' && c != 'U')
        return complain(parser, E_INVALID, "the escape is not known");
    advance(parser, 1);
    advance(parser, 1);
    if (!found)
        return parse_hex(parser, c == 'x' ? 2 : c == 'u' ? 4 : 8, ret_character);
    *ret_character = (uint8_t)values[found - names];
    return 0;
}

/* One character of a literal or class, escapes read. */
static int parse_character(struct parser *parser, uint32_t *ret_character)
{
    const char *text = parser->text + parser->at;
    uint32_t character = (uint8_t)text[0];
    size_t taken;

    if (text[0] == '\\')
        return parse_escape(parser, ret_character);
    if (!utf8_next(text, parser->bytes - parser->at, &taken, NULL))
        return complain(parser, E_INVALID, "the text is not UTF-8");
    if (taken > 1)
        character &= 0x7Fu >> taken;
    for (size_t i = 1; i < taken; i++)
        character = character << 6 | ((uint8_t)text[i] & 0x3F);
    advance(parser, taken);
    *ret_character = character;
    return 0;
}

/* ---- items ---- */

static int unclosed(struct parser *parser, struct position opened, const char *what)
{
    parser->here = opened;
    return complain(parser, E_INVALID, what);
}

static int parse_literal(struct parser *parser, int32_t *ret_node)
{
    struct position opened = parser->here;
    int r = 0;

    parser->literal.count = 0;
    advance(parser, 1);
    while (r == 0 && !at_end(parser) && peek(parser, 0) != '"') {
        char part[LITERAL_PART_BYTES];
        uint32_t character = 0, bytes;

        r = parse_character(parser, &character);
        bytes = utf8_put(character, part);
        for (uint32_t i = 0; r == 0 && i < bytes; i++)
            r = list_put(parser, &parser->literal, &part[i], 1);
    }
    if (r < 0)
        return r;
    if (at_end(parser))
        return unclosed(parser, opened, "the literal has no closing quote");
    advance(parser, 1);
    *ret_node = grammar_literal(parser->grammar, parser->literal.items, parser->literal.count);
    return 0;
}

static int parse_class(struct parser *parser, int32_t *ret_node)
{
    struct position opened = parser->here;
    bool negated;
    int r = 0;

    parser->ranges.count = 0;
    advance(parser, 1);
    negated = peek(parser, 0) == '^';
    if (negated)
        advance(parser, 1);
    while (r == 0 && !at_end(parser) && peek(parser, 0) != ']') {
        struct grammar_range range = {0};

        r = parse_character(parser, &range.first);
        range.last = range.first;
        if (r == 0 && peek(parser, 0) == '-' && peek(parser, 1) != ']' &&
            parser->at + 1 < parser->bytes) {
            advance(parser, 1);
            r = parse_character(parser, &range.last);
        }
        if (r == 0 && range.last < range.first)
            r = complain(parser, E_INVALID, "the range ends before it begins");
        if (r == 0)
            r = list_put(parser, &parser->ranges, &range, sizeof range);
    }
    if (r < 0)
        return r;
    if (at_end(parser))
        return unclosed(parser, opened, "the class has no closing bracket");
    if (parser->ranges.count == 0)
        return complain(parser, E_INVALID, "the class is empty");
    advance(parser, 1);
    *ret_node = grammar_class(parser->grammar, parser->ranges.items, parser->ranges.count, negated);
    return 0;
}

static int parse_count(struct parser *parser, int32_t *ret_count)
{
    int64_t count = 0;

    if (peek(parser, 0) < '0' || peek(parser, 0) > '9')
        return complain(parser, E_INVALID, "a number is expected");
    while (peek(parser, 0) >= '0' && peek(parser, 0) <= '9') {
        count = count * 10 + (peek(parser, 0) - '0');
        if (count > INT32_MAX)
            return complain(parser, E_TOO_LARGE, "the number of repetitions is too large");
        advance(parser, 1);
    }
    *ret_count = (int32_t)count;
    return 0;
}

/* {m} {m,} {m,n}, the parser standing on the brace. */
static int parse_counts(struct parser *parser, int32_t *low, int32_t *high)
{
    int r;

    advance(parser, 1);
    skip_space(parser, true);
    r = parse_count(parser, low);
    if (r < 0)
        return r;
    *high = *low;
    skip_space(parser, true);
    if (peek(parser, 0) == ',') {
        advance(parser, 1);
        skip_space(parser, true);
        *high = GRAMMAR_UNBOUNDED;
        if (peek(parser, 0) != '}')
            r = parse_count(parser, high);
        if (r < 0)
            return r;
        skip_space(parser, true);
    }
    if (peek(parser, 0) != '}')
        return complain(parser, E_INVALID, "'}' is expected");
    if (*high != GRAMMAR_UNBOUNDED && *high < *low)
        return complain(parser, E_INVALID, "the most repetitions are fewer than the least");
    advance(parser, 1);
    return 0;
}

/* ---- sequences and groups ---- */

static struct group *group_top(struct parser *parser)
{
    return (struct group *)parser->groups.items + parser->groups.count - 1;
}

static int group_open(struct parser *parser)
{
    struct group group = {parser->sequence.count, parser->choice.count, parser->here};

    return list_put(parser, &parser->groups, &group, sizeof group);
}

/* The nodes of a list from `first` on; NULL: none. */
static const int32_t *nodes_from(const struct list *list, uint32_t first)
{
    return list->count > first ? (const int32_t *)list->items + first : NULL;
}

/* The sequence so far is an alternative. */
static int alternative_end(struct parser *parser)
{
    struct group *group = group_top(parser);
    int32_t node =
        grammar_sequence(parser->grammar, nodes_from(&parser->sequence, group->sequence_first),
                         parser->sequence.count - group->sequence_first);

    parser->sequence.count = group->sequence_first;
    return list_put(parser, &parser->choice, &node, sizeof node);
}

static int group_end(struct parser *parser, int32_t *ret_node)
{
    int r = alternative_end(parser);
    struct group *group = group_top(parser);

    if (r < 0)
        return r;
    *ret_node = grammar_choice(parser->grammar, nodes_from(&parser->choice, group->choice_first),
                               parser->choice.count - group->choice_first);
    parser->choice.count = group->choice_first;
    parser->groups.count--;
    return 0;
}

static int parse_repetition(struct parser *parser)
{
    char sign = peek(parser, 0);
    int32_t low = sign == '+', high = sign == '?' ? 1 : GRAMMAR_UNBOUNDED, *last;
    int r = 0;

    if (parser->sequence.count == group_top(parser)->sequence_first)
        return complain(parser, E_INVALID, "there is nothing before it to repeat");
    if (sign == '{')
        r = parse_counts(parser, &low, &high);
    else
        advance(parser, 1);
    if (r < 0)
        return r;
    last = (int32_t *)parser->sequence.items + parser->sequence.count - 1;
    *last = grammar_repeat(parser->grammar, *last, low, high);
    return 0;
}

static int parse_reference(struct parser *parser, int32_t *ret_node)
{
    struct position here = parser->here;
    uint32_t index;
    struct name *name;
    int r = parse_name(parser, &index);

    if (r < 0)
        return r;
    name = name_get(parser, index);
    if (name->used.line == 0)
        name->used = here;
    *ret_node = grammar_reference(parser->grammar, name->rule);
    return 0;
}

/* One item or sign of a body. Returns 1 when the body ends here. */
static int parse_item(struct parser *parser)
{
    char c = peek(parser, 0);
    int32_t node = 0;
    int r = 0;

    switch (c) {
    case '"':
        r = parse_literal(parser, &node);
        break;
    case '[':
        r = parse_class(parser, &node);
        break;
    case '.':
        advance(parser, 1);
        node = grammar_class(parser->grammar, NULL, 0, true);
        break;
    case '(':
        r = group_open(parser);
        advance(parser, 1);
        skip_space(parser, true);
        return r;
    case ')':
        if (parser->groups.count == 1)
            return complain(parser, E_INVALID, "the parenthesis closes nothing");
        advance(parser, 1);
        r = group_end(parser, &node);
        break;
    case '|':
        advance(parser, 1);
        skip_space(parser, true);
        return alternative_end(parser);
    case '*':
    case '+':
    case '?':
    case '{':
        r = parse_repetition(parser);
        skip_space(parser, parser->groups.count > 1);
        return r;
    case '<':
    case '!':
        return complain(parser, E_UNSUPPORTED, "tokens in a grammar are not supported");
    default:
        if (!is_name(c))
            return 1;
        r = parse_reference(parser, &node);
    }
    if (r == 0)
        r = list_put(parser, &parser->sequence, &node, sizeof node);
    skip_space(parser, parser->groups.count > 1);
    return r;
}

static int parse_body(struct parser *parser, int32_t *ret_node)
{
    int r;

    parser->groups.count = 0;
    r = group_open(parser);
    while (r == 0 && !at_end(parser))
        r = parse_item(parser);
    if (r < 0)
        return r;
    if (parser->groups.count > 1)
        return unclosed(parser, group_top(parser)->opened, "the parenthesis is not closed");
    if (!at_end(parser) && !is_newline(peek(parser, 0)))
        return complain(parser, E_INVALID, "an item or the end of the line is expected");
    return group_end(parser, ret_node);
}

/* ---- rules ---- */

static int parse_rule(struct parser *parser)
{
    struct position begins = parser->here;
    uint32_t index;
    int32_t node = 0;
    int r = parse_name(parser, &index);

    if (r < 0)
        return r;
    skip_space(parser, false);
    if (!starts(parser, "::="))
        return complain(parser, E_INVALID, "'::=' is expected");
    if (name_get(parser, index)->defined)
        return unclosed(parser, begins, "the rule is defined a second time");
    name_get(parser, index)->defined = true;
    advance_over(parser, "::=");
    skip_space(parser, true);
    r = parse_body(parser, &node);
    if (r < 0)
        return r;
    r = grammar_define(parser->grammar, name_get(parser, index)->rule, node);
    if (r == E_TOO_LARGE)
        return complain(parser, r, "the grammar is too large");
    return r < 0 ? no_memory(parser) : 0;
}

/* Every name is defined, and one of them is `root`: its rule. */
static int check_names(struct parser *parser, int32_t *ret_root)
{
    uint32_t root = 0;

    for (uint32_t i = 0; i < parser->names.count; i++) {
        const struct name *name = name_get(parser, i);
        int shown = name->bytes < NAME_SHOWN_MAX ? (int)name->bytes : NAME_SHOWN_MAX;

        if (!name->defined)
            return fault_set(parser->fault, E_INVALID,
                             "Grammar, line %" PRIu32 ", column %" PRIu32
                             ": the rule '%.*s' is not defined",
                             name->used.line, name->used.column, shown, name->text);
        if (name->bytes == 4 && memcmp(name->text, "root", 4) == 0)
            root = i + 1;
    }
    if (root == 0)
        return fault_set(parser->fault, E_INVALID, "The grammar has no rule named 'root'");
    *ret_root = name_get(parser, root - 1)->rule;
    return 0;
}

static int parse_rules(struct grammar *grammar, const char *text, size_t bytes, int32_t *ret_root,
                       struct fault *fault)
{
    struct parser parser = {
        .text = text, .bytes = bytes, .here = {1, 1}, .grammar = grammar, .fault = fault};
    int r = 0;

    if (bytes > TEXT_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE, "The grammar has more than %d bytes", TEXT_BYTES_MAX);
    skip_space(&parser, true);
    while (r == 0 && !at_end(&parser)) {
        r = parse_rule(&parser);
        skip_space(&parser, true);
    }
    if (r == 0)
        r = check_names(&parser, ret_root);
    free(parser.names.items);
    free(parser.slots.items);
    free(parser.sequence.items);
    free(parser.choice.items);
    free(parser.groups.items);
    free(parser.ranges.items);
    free(parser.literal.items);
    return r;
}

int gbnf_build(struct grammar *grammar, const char *text, size_t bytes, int32_t *ret_node,
               struct fault *fault)
{
    int32_t root, node;
    int r = parse_rules(grammar, text, bytes, &root, fault);

    if (r < 0)
        return r;
    node = grammar_reference(grammar, root);
    if (node < 0)
        return fault_set(fault, node, "The grammar is too large");
    *ret_node = node;
    return 0;
}

int gbnf_parse(const char *text, size_t bytes, struct grammar **ret_grammar, struct fault *fault)
{
    struct grammar *grammar;
    int32_t root;
    int r = grammar_open(NODES_MAX, &grammar, fault);

    if (r < 0)
        return r;
    r = parse_rules(grammar, text, bytes, &root, fault);
    if (r < 0) {
        grammar_close(grammar);
        return r;
    }
    grammar_set_root(grammar, root);
    *ret_grammar = grammar;
    return 0;
}
