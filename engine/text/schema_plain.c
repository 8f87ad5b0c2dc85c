/* schema_plain.c -- texts without quotes and escapes: a schema's strings as they stand, choices,
 * and text that stands between markers.
 *
 * Text without some markers is the set of those texts in which no marker ends (A. V. Aho and
 * M. J. Corasick, CACM 18, 1975): a state is the longest beginning of a marker that the text so far
 * ends with. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/schema_internal.h"

enum { MARKERS_MAX = 16, MARKER_POINTS_MAX = 64, CHOICE_STATES_MAX = 1 << 20 };

struct marker {
    uint32_t points[MARKER_POINTS_MAX];
    uint32_t count;
};

struct markers {
    struct marker items[MARKERS_MAX];
    uint32_t count;
    uint32_t alphabet[MARKERS_MAX * MARKER_POINTS_MAX + 16]; /* sorted, each point once */
    uint32_t alphabet_count;
    const char *head;
};

/* The beginning of a marker; of an empty one `marker` is 0. In front: nothing but white space so
 * far. */
enum { KEY_FRONT, KEY_MARKER, KEY_LENGTH, KEY_WORDS };

static int point_compare(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

static void markers_init(struct markers *markers, const struct schema_markers *from,
                         const char *head)
{
    static const char spaces[] = " \t\n\r";
    uint32_t kept = 0;

    must(from->count <= MARKERS_MAX && strlen(head) <= 8);
    *markers = (struct markers){.count = (uint32_t)from->count, .head = head};
    for (size_t i = 0; i < from->count; i++) {
        struct marker *marker = &markers->items[i];
        size_t bytes;

        for (const char *at = from->texts[i]; *at; at += bytes) {
            must(marker->count < MARKER_POINTS_MAX);
            marker->points[marker->count] = regular_code_point(at, &bytes);
            markers->alphabet[markers->alphabet_count++] = marker->points[marker->count++];
        }
        must(marker->count > 0);
    }
    for (const char *at = spaces; *head && *at; at++)
        markers->alphabet[markers->alphabet_count++] = (unsigned char)*at;
    for (const char *at = head; *at; at++)
        markers->alphabet[markers->alphabet_count++] = (unsigned char)*at;
    qsort(markers->alphabet, markers->alphabet_count, sizeof *markers->alphabet, point_compare);
    for (uint32_t i = 0; i < markers->alphabet_count; i++) {
        if (kept == 0 || markers->alphabet[kept - 1] != markers->alphabet[i])
            markers->alphabet[kept++] = markers->alphabet[i];
    }
    markers->alphabet_count = kept;
}

/* The state behind `key` and a point; false: a marker ends there. */
static bool markers_next(const struct markers *markers, const uint32_t *key, uint32_t point,
                         uint32_t *ret_key)
{
    uint32_t text[MARKER_POINTS_MAX + 1], count = key[KEY_LENGTH];
    bool found = false;

    memset(ret_key, 0, KEY_WORDS * sizeof *ret_key);
    memcpy(text, markers->items[key[KEY_MARKER]].points, count * sizeof *text);
    text[count++] = point;
    for (uint32_t start = 0; start < count; start++) {
        for (uint32_t i = 0; i < markers->count; i++) {
            const struct marker *marker = &markers->items[i];
            uint32_t length = count - start;

            if (marker->count < length ||
                memcmp(marker->points, text + start, length * sizeof *text) != 0)
                continue;
            if (marker->count == length)
                return false;
            if (!found) {
                ret_key[KEY_MARKER] = i;
                ret_key[KEY_LENGTH] = length;
                found = true;
            }
        }
    }
    return true;
}

static void point_edge(struct regular_maker *maker, const struct markers *markers,
                       const uint32_t *key, uint32_t point)
{
    uint32_t next[KEY_WORDS];
    bool space = point < 0x80 && strchr(" \t\n\r", (int)point);

    if (key[KEY_FRONT] && point > 0 && point < 0x80 && strchr(markers->head, (int)point))
        return;
    if (!markers_next(markers, key, point, next))
        return;
    next[KEY_FRONT] = key[KEY_FRONT] && space && next[KEY_LENGTH] == 0;
    regular_maker_edge(maker, point, point, regular_maker_state(maker, next, KEY_WORDS));
}

/* Code points first..last, which no marker has. */
static void gap_edge(struct regular_maker *maker, uint32_t first, uint32_t last)
{
    static const uint32_t beyond[KEY_WORDS];
    static const uint32_t parts[2][2] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};

    for (size_t i = 0; i < 2; i++) {
        uint32_t low = first > parts[i][0] ? first : parts[i][0];
        uint32_t high = last < parts[i][1] ? last : parts[i][1];

        if (low <= high)
            regular_maker_edge(maker, low, high, regular_maker_state(maker, beyond, KEY_WORDS));
    }
}

static int plain_set(struct schema_compiler *compiler, const struct schema_markers *from,
                     const char *head, const struct regular **ret_set)
{
    struct markers *markers = schema_take(compiler, 1, sizeof *markers);
    struct regular_maker *maker;
    uint32_t words, start[KEY_WORDS] = {0};
    int r;

    if (!markers)
        return E_MEMORY;
    markers_init(markers, from, head);
    r = regular_maker_open(&compiler->regular, &maker);
    if (r < 0)
        return schema_exhausted(compiler, r, "text between markers");
    start[KEY_FRONT] = *head != '\0';
    regular_maker_state(maker, start, KEY_WORDS);
    for (uint32_t i = 0; i < regular_maker_count(maker); i++) {
        uint32_t key[KEY_WORDS], from_point = 0;

        memcpy(key, regular_maker_key(maker, i, &words), sizeof key);
        regular_maker_begin(maker, true);
        for (uint32_t a = 0; a < markers->alphabet_count; a++) {
            uint32_t point = markers->alphabet[a];

            if (point > from_point)
                gap_edge(maker, from_point, point - 1);
            point_edge(maker, markers, key, point);
            from_point = point + 1;
        }
        gap_edge(maker, from_point, 0x10FFFF);
    }
    r = regular_maker_finish(maker, ret_set);
    return r < 0 ? schema_exhausted(compiler, r, "text between markers") : 0;
}

int schema_build_plain(struct grammar *grammar, const struct schema_markers *markers,
                       const char *head, int32_t *ret_node, struct fault *fault)
{
    struct schema_compiler compiler;
    const struct regular *set;
    int r = schema_begin(&compiler, grammar, NULL, NULL, fault);

    if (r < 0)
        return r;
    r = plain_set(&compiler, markers, head, &set);
    if (r == 0)
        r = *ret_node = schema_text_set(&compiler, set, SPELLING_TEXT);
    return schema_end(&compiler, r);
}

/* ---- strings of a schema ---- */

/* A leaf's strings, without those that hold a marker. */
static int32_t leaf_strings(struct schema_compiler *compiler, struct schema_leaf *leaf,
                            const struct regular *plain)
{
    const struct regular *set = NULL;
    int r;

    leaf->types &= TYPE_STRING;
    if (leaf->types == 0)
        return grammar_never(compiler->grammar);
    r = schema_keywords_refuse(compiler, leaf);
    r = r < 0 ? r : schema_enum_strings(compiler, leaf, &set);
    if (r < 0)
        return r;
    if (set) {
        r = regular_intersect(&compiler->regular, set, plain, &set);
        if (r < 0)
            return schema_exhausted(compiler, r, "a string between markers");
    }
    return schema_text_set(compiler, set ? set : plain, SPELLING_TEXT);
}

static int32_t plain_strings(struct schema_compiler *compiler, const json_t *schema,
                             const struct schema_markers *markers)
{
    struct schema_set set = {0};
    struct schema_leaf *leaves;
    const struct regular *plain;
    uint32_t count;
    int32_t *ways;
    int r = plain_set(compiler, markers, "", &plain);

    r = r < 0 ? r : schema_set_add(compiler, &set, schema);
    r = r < 0 ? r : schema_leaves(compiler, &set, &leaves, &count);
    if (r < 0)
        return r;
    ways = schema_take(compiler, count + 1, sizeof *ways);
    if (!ways)
        return E_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        ways[i] = leaf_strings(compiler, &leaves[i], plain);
        if (ways[i] < 0)
            return ways[i];
    }
    return grammar_choice(compiler->grammar, ways, count);
}

int schema_build_plain_string(struct grammar *grammar, const json_t *root, const json_t *schema,
                              const struct schema_markers *markers,
                              const struct schema_options *options, int32_t *ret_node,
                              struct fault *fault)
{
    struct schema_compiler compiler;
    int r = schema_begin(&compiler, grammar, root, options, fault);

    if (r < 0)
        return r;
    r = *ret_node = plain_strings(&compiler, schema, markers);
    return schema_end(&compiler, r);
}

/* ---- choices ---- */

int schema_build_choice(struct grammar *grammar, const char *const *texts, const size_t *bytes,
                        size_t count, int32_t *ret_node, struct fault *fault)
{
    struct schema_compiler compiler;
    const struct regular *set;
    int r;

    if (count == 0)
        return fault_set(fault, E_INVALID, "a choice needs at least one text");
    r = schema_begin(&compiler, grammar, NULL, NULL, fault);
    if (r < 0)
        return r;
    compiler.regular.state_max = CHOICE_STATES_MAX;
    r = regular_words(&compiler.regular, texts, bytes, count, &set);
    if (r == E_INVALID)
        fault_set(fault, r, "a text to choose from is no well-formed UTF-8");
    else if (r < 0)
        r = schema_exhausted(&compiler, r, "there are too many texts to choose from");
    else
        r = *ret_node = schema_text_set(&compiler, set, SPELLING_TEXT);
    return schema_end(&compiler, r);
}
