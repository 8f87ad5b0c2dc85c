/* jinja_eval.h -- scopes, loops and macros at work: what the evaluator's two halves share. */
#ifndef WEFT_JINJA_EVAL_H
#define WEFT_JINJA_EVAL_H

#include "engine/text/jinja_tree.h"

struct binding {
    uint32_t name;
    struct value value;
};

/* Variables of one scope; the outermost, the template's own, is run->root and written NULL. */
struct frame {
    struct frame *outer;
    struct binding *bindings;
    uint32_t count;
    uint32_t room;
};

struct macro {
    const struct macro_node *node;
    struct frame *closure; /* where it was defined */
};

struct loop {
    const struct for_node *node;
    struct frame *outer;
    struct frame test_frame; /* of the loop's condition */
    struct iterator iterator;
    struct value previous; /* UNSET: none */
    struct value current;
    struct value next;    /* looked at already; UNSET: not */
    struct value changed; /* what loop.changed() saw last */
    bool passed;          /* what the iterator still has needs no test any more */
    int64_t index;        /* from 0 */
    int64_t depth;
};

enum { FLOW_ON = 0, FLOW_BREAK = 1, FLOW_CONTINUE = 2 };

int eval(struct run *run, struct frame *frame, const struct node *node, struct value *ret_value);
/* Statements; returns how to go on, or a fault. */
int exec_body(struct run *run, struct frame *frame, const struct node *body);
/* The text that statements make, in a scope of their own. */
int exec_capture(struct run *run, struct frame *outer, const struct node *body,
                 struct value *ret_value);
int exec_loop(struct run *run, const struct for_node *node, struct frame *outer, struct value over,
              int64_t depth);
int frame_bind(struct run *run, struct frame *frame, uint32_t name, struct value value);
/* The next item that the loop's condition lets pass: 1, 0 or a fault. */
int loop_peek(struct run *run, struct loop *loop);
int assign(struct run *run, struct frame *frame, const struct node *target, struct value value);
struct value lookup(struct run *run, const struct frame *frame, uint32_t name);
/* Puts the place before the fault, if none has. Returns `r`. */
int locate(struct run *run, const struct node *node, int r);

#endif
