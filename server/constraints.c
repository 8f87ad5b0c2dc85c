/* constraints.c -- see constraints.h. The kept constraints are a list, the last used first; they
 * are few enough to be looked through. */
#include "server/constraints.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/clock.h"

enum {
    ENTRIES_MAX = 1024,
    MEMO_BYTES_MAX = 8 << 20, /* masks of one constraint */
    QUICK_NODES = 1 << 15,    /* of a grammar */
    QUICK_WORK = 1 << 19,     /* steps of schemas: some 10 ms */
    PATIENT_WORK = 20 << 20,  /* the same: half a second */
    QUICK_KEY_BYTES = 1 << 16,
    MARKERS_MAX = 24,
    MARK = 0xFF, /* begins a control token's bytes: in no UTF-8 */
    MARK_FIRST = 0x80,
};

struct entry {
    struct entry *next;
    struct constraint *constraint;
    uint64_t hash;
    size_t bytes;
    char key[];
};

struct marker {
    const char *text;
    int32_t id;
    char bytes[2]; /* in grammars */
};

struct constraints {
    struct constraints_options options;
    struct vocabulary_trie *trie;
    struct marker markers[MARKERS_MAX];
    uint32_t marker_count;
    pthread_mutex_t lock; /* holds for all below */
    struct entry *first;
    uint32_t count;
    /* Statistics, which are read without the lock. */
    atomic_uint kept;
    atomic_size_t bytes;
    atomic_ullong hits;
    atomic_ullong misses;
    atomic_ullong build_ns;
};

/* --- the vocabulary --------------------------------------------------------------------------- */

static void find_markers(struct constraints *constraints)
{
    const struct tokenizer *tokenizer = constraints->options.tokenizer;
    const struct tool_format *format = constraints->options.format;
    const char *text;

    for (size_t i = 0; format && (text = tool_format_marker(format, i)); i++) {
        struct marker *marker = &constraints->markers[constraints->marker_count];
        int32_t id = tokenizer_find(tokenizer, text);

        if (id < 0 || !tokenizer_is_special(tokenizer, id) ||
            constraints_marker(constraints, text) >= 0)
            continue;
        must(constraints->marker_count < MARKERS_MAX);
        *marker = (struct marker){
            text, id, {(char)MARK, (char)(MARK_FIRST + constraints->marker_count++)}};
    }
}

static int make_trie(struct constraints *constraints, struct fault *fault)
{
    const struct tokenizer *tokenizer = constraints->options.tokenizer;
    uint32_t count = tokenizer_count(tokenizer), end_count;
    struct vocabulary_token *tokens = calloc((size_t)count + 1, sizeof *tokens);
    const int32_t *ends;
    int r;

    if (!tokens)
        return fault_set(fault, E_MEMORY, "There is no memory for the vocabulary's tree");
    for (uint32_t id = 0; id < count; id++) {
        struct vocabulary_token *token = &tokens[id];

        if (tokenizer_is_special(tokenizer, (int32_t)id))
            continue;
        token->bytes = tokenizer_piece(tokenizer, (int32_t)id, &token->count);
        if (token->count > 0 && memchr(token->bytes, MARK, token->count))
            token->count = 0; /* never part of UTF-8, and not to be taken for a marker */
    }
    for (uint32_t i = 0; i < constraints->marker_count; i++) {
        const struct marker *marker = &constraints->markers[i];

        tokens[marker->id] = (struct vocabulary_token){marker->bytes, sizeof marker->bytes};
    }
    end_count = tokenizer_ends(tokenizer, &ends);
    r = vocabulary_trie_open(tokens, count, ends, end_count, &constraints->trie, fault);
    free(tokens);
    return r;
}

int32_t constraints_marker(const struct constraints *constraints, const char *text)
{
    for (uint32_t i = 0; i < constraints->marker_count; i++) {
        if (strcmp(constraints->markers[i].text, text) == 0)
            return constraints->markers[i].id;
    }
    return -1;
}

/* The marker that `text` begins with; of several the longest. */
static const struct marker *marker_at(const struct constraints *constraints, const char *text)
{
    const struct marker *found = NULL;

    for (uint32_t i = 0; i < constraints->marker_count; i++) {
        const struct marker *marker = &constraints->markers[i];

        if (strncmp(text, marker->text, strlen(marker->text)) == 0 &&
            (!found || strlen(found->text) < strlen(marker->text)))
            found = marker;
    }
    return found;
}

int32_t constraints_spell(const struct constraints *constraints, struct grammar *grammar,
                          const char *text)
{
    char spelled[256];
    struct buf out;

    buf_init_fixed(&out, spelled, sizeof spelled);
    while (*text) {
        const struct marker *marker = marker_at(constraints, text);

        if (marker)
            buf_put(&out, marker->bytes, sizeof marker->bytes);
        else
            buf_byte(&out, *text);
        text += marker ? strlen(marker->text) : 1;
    }
    must(!buf_failed(&out));
    return grammar_literal(grammar, buf_string(&out), out.bytes);
}

/* --- opening and closing ---------------------------------------------------------------------- */

int constraints_open(const struct constraints_options *options,
                     struct constraints **ret_constraints, struct fault *fault)
{
    struct constraints *constraints = calloc(1, sizeof *constraints);
    int r;

    if (!constraints || pthread_mutex_init(&constraints->lock, NULL) != 0) {
        free(constraints);
        return fault_set(fault, E_MEMORY, "There is no memory for constraints");
    }
    constraints->options = *options;
    find_markers(constraints);
    r = make_trie(constraints, fault);
    if (r < 0) {
        constraints_close(constraints);
        return r;
    }
    *ret_constraints = constraints;
    return 0;
}

static void entry_close(struct constraints *constraints, struct entry **at)
{
    struct entry *entry = *at;

    *at = entry->next;
    constraints->count--;
    constraint_close(entry->constraint);
    free(entry);
}

void constraints_close(struct constraints *constraints)
{
    if (!constraints)
        return;
    while (constraints->first)
        entry_close(constraints, &constraints->first);
    vocabulary_trie_close(constraints->trie);
    pthread_mutex_destroy(&constraints->lock);
    free(constraints);
}

/* --- keeping ---------------------------------------------------------------------------------- */

/* FNV-1a: only to compare fewer keys, each match is compared whole. */
static uint64_t hash_of(const void *key, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)key)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* With the lock held. Moves the entry to the front; NULL: there is none. */
static struct entry *find(struct constraints *constraints, const void *key, size_t bytes,
                          uint64_t hash)
{
    for (struct entry **at = &constraints->first; *at; at = &(*at)->next) {
        struct entry *entry = *at;

        if (entry->hash != hash || entry->bytes != bytes || memcmp(entry->key, key, bytes) != 0)
            continue;
        *at = entry->next;
        entry->next = constraints->first;
        constraints->first = entry;
        return entry;
    }
    return NULL;
}

static size_t bytes_of(const struct constraints *constraints)
{
    size_t bytes = 0;

    for (struct entry *entry = constraints->first; entry; entry = entry->next)
        bytes += sizeof *entry + entry->bytes + constraint_bytes(entry->constraint);
    return bytes;
}

/* The last one that nobody else owns; NULL: all are in use. The first, just made, is not one. */
static struct entry **idle_last(struct constraints *constraints)
{
    struct entry **idle = NULL;

    if (!constraints->first)
        return NULL;
    for (struct entry **at = &constraints->first->next; *at; at = &(*at)->next) {
        if (constraint_owners((*at)->constraint) == 1)
            idle = at;
    }
    return idle;
}

/* With the lock held. false: what is in use takes more than is allowed. */
static bool make_room(struct constraints *constraints)
{
    while (bytes_of(constraints) > constraints->options.bytes_max ||
           constraints->count > ENTRIES_MAX) {
        struct entry **idle = idle_last(constraints);

        if (!idle)
            return false;
        entry_close(constraints, idle);
    }
    return true;
}

/* Keeps a new constraint, or takes the one that another thread has kept meanwhile. */
static int keep(struct constraints *constraints, struct entry *entry,
                struct constraint **ret_constraint, struct fault *fault)
{
    struct entry *other;
    bool room = true;

    pthread_mutex_lock(&constraints->lock);
    other = find(constraints, entry->key, entry->bytes, entry->hash);
    if (!other) {
        entry->next = constraints->first;
        constraints->first = entry;
        constraints->count++;
        room = make_room(constraints);
    }
    if (room)
        *ret_constraint = constraint_share((other ? other : entry)->constraint);
    else
        entry_close(constraints, &constraints->first);
    atomic_store(&constraints->kept, constraints->count);
    atomic_store(&constraints->bytes, bytes_of(constraints));
    pthread_mutex_unlock(&constraints->lock);
    if (other) {
        constraint_close(entry->constraint);
        free(entry);
    }
    return room ? 0
                : fault_set(fault, E_FULL,
                            "The constraints that are in use leave no room for another one");
}

/* --- making ----------------------------------------------------------------------------------- */

static int compile(struct constraints *constraints, bool patient, constraints_build *build,
                   void *data, struct constraint **ret_constraint, struct fault *fault)
{
    struct constraint_effort effort = {patient ? PATIENT_WORK : QUICK_WORK, patient};
    struct constraint_limits limits = {.cache_bytes = MEMO_BYTES_MAX};
    struct grammar *grammar;
    int32_t node = 0, root;
    int r = grammar_open(patient ? SCHEMA_NODE_MAX : QUICK_NODES, &grammar, fault);

    if (r < 0)
        return r;
    r = build(data, grammar, &effort, &node, fault);
    if (r == 0) {
        root = grammar_rule(grammar, "root");
        r = root < 0 ? root : grammar_define(grammar, root, node);
        if (r == 0)
            grammar_set_root(grammar, root);
        else
            fault_set(fault, r, "The constraint is too large");
    }
    if (r == 0)
        r = grammar_check(grammar, fault);
    if (r == 0)
        r = constraint_open(grammar, constraints->trie, &limits, ret_constraint, fault);
    grammar_close(grammar);
    return r;
}

int constraints_get(struct constraints *constraints, const void *key, size_t bytes, bool patient,
                    constraints_build *build, void *data, struct constraint **ret_constraint,
                    struct fault *fault)
{
    uint64_t hash = hash_of(key, bytes), began_ns;
    struct constraint *constraint = NULL;
    struct entry *entry;
    int r;

    pthread_mutex_lock(&constraints->lock);
    entry = find(constraints, key, bytes, hash);
    if (entry)
        *ret_constraint = constraint_share(entry->constraint);
    atomic_fetch_add(&constraints->hits, entry != NULL);
    pthread_mutex_unlock(&constraints->lock);
    if (entry)
        return 0;
    if (!patient && bytes > QUICK_KEY_BYTES)
        return CONSTRAINTS_LATER;
    began_ns = clock_now();
    r = compile(constraints, patient, build, data, &constraint, fault);
    atomic_fetch_add(&constraints->misses, r == 0);
    atomic_fetch_add(&constraints->build_ns, clock_now() - began_ns);
    if (r == E_TOO_LARGE && !patient)
        return CONSTRAINTS_LATER;
    if (r < 0)
        return r;
    entry = malloc(sizeof *entry + bytes);
    if (!entry) {
        constraint_close(constraint);
        return fault_set(fault, E_MEMORY, "There is no memory for the constraint");
    }
    *entry = (struct entry){.constraint = constraint, .hash = hash, .bytes = bytes};
    memcpy(entry->key, key, bytes);
    return keep(constraints, entry, ret_constraint, fault);
}

void constraints_stats_get(struct constraints *constraints, struct constraints_stats *ret_stats)
{
    *ret_stats = (struct constraints_stats){.count = 0};
    if (!constraints)
        return;
    ret_stats->count = atomic_load(&constraints->kept);
    ret_stats->bytes = atomic_load(&constraints->bytes);
    ret_stats->hits = atomic_load(&constraints->hits);
    ret_stats->misses = atomic_load(&constraints->misses);
    ret_stats->build_ns = atomic_load(&constraints->build_ns);
}
