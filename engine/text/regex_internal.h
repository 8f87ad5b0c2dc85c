/* regex_internal.h -- an expression while it is read: shared by regex_grammar.c, which reads groups
 * and builds, and regex_atom.c, which reads characters and classes. */
#ifndef WEFT_REGEX_INTERNAL_H
#define WEFT_REGEX_INTERNAL_H

#include "engine/text/regex_grammar.h"

enum regex_kind {
    REGEX_CHARACTER, /* a code point */
    REGEX_NODE,      /* a node of the grammar */
    REGEX_SEQUENCE,
    REGEX_CHOICE,
    REGEX_REPEAT,
    REGEX_START, /* ^ */
    REGEX_END,   /* $ */
};

/* A part of the expression. Children are a chain; numbers are indices + 1, 0 is none. */
struct regex_part {
    enum regex_kind kind;
    bool anchored; /* it, or something in it, is ^ or $ */
    uint32_t first;
    uint32_t last;
    uint32_t next;
    uint32_t character;
    int32_t node;
    int32_t low;
    int32_t high;
};

struct regex_list {
    void *items;
    uint32_t count;
    uint32_t room;
};

struct regex {
    struct grammar *grammar;
    const char *text;
    size_t bytes;
    size_t at;
    struct regex_list parts;  /* struct regex_part */
    struct regex_list ranges; /* struct grammar_range */
    struct regex_list nodes;  /* int32_t */
    struct fault *fault;
};

int regex_list_put(struct regex *regex, struct regex_list *list, const void *item,
                   size_t item_bytes);
int regex_complain(struct regex *regex, int code, const char *what);
/* The byte `ahead` of here, or 0. */
char regex_peek(const struct regex *regex, size_t ahead);

/* Appends a part without children. */
int regex_part_add(struct regex *regex, enum regex_kind kind, uint32_t *ret_part);
struct regex_part *regex_part_get(struct regex *regex, uint32_t part);

/* `.`, a class, an escape or a plain character, the reader standing on it. */
int regex_atom(struct regex *regex, uint32_t *ret_part);

#endif
