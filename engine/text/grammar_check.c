/* grammar_check.c -- which nodes can match a text at all, or the empty one; see
 * grammar_internal.h.
 *
 * A node waits for as many of its children as it needs to say yes: a sequence for all, a choice for
 * one. Each yes is told to whom it concerns, once, so the whole is linear. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/grammar_internal.h"

struct solver {
    const struct grammar *grammar;
    uint8_t *answers;
    uint32_t *waits; /* a node: children that have yet to say yes */
    uint32_t *first; /* a node: its listeners are listeners[first[n] .. first[n + 1]) */
    uint32_t *listeners;
    uint32_t *todo;
    uint32_t todo_count;
};

/* A child, or a reference's body; -1 when the rule has none. */
static int32_t child_get(const struct grammar *grammar, const struct grammar_node *node, uint32_t i)
{
    if (node->kind == NODE_REFERENCE)
        return grammar_rule_get(grammar, node->first)->node;
    return grammar_children(grammar, node)[i];
}

static uint32_t child_count(const struct grammar_node *node)
{
    if (node->kind == NODE_LITERAL || node->kind == NODE_CLASS)
        return 0;
    return node->kind == NODE_REFERENCE ? 1 : node->count;
}

/* Who listens to whom, as counting sort: ends at first[node], then moves to the beginnings. */
static void listeners_fill(struct solver *solver)
{
    const struct grammar *grammar = solver->grammar;
    uint32_t node_count = grammar->nodes.count;

    for (uint32_t n = 0; n < node_count; n++) {
        const struct grammar_node *node = grammar_node_get(grammar, n);

        for (uint32_t i = 0; i < child_count(node); i++) {
            int32_t child = child_get(grammar, node, i);

            if (child >= 0)
                solver->first[child]++;
        }
    }
    for (uint32_t n = 0, sum = 0; n <= node_count; n++) {
        sum += solver->first[n];
        solver->first[n] = sum;
    }
    for (uint32_t n = 0; n < node_count; n++) {
        const struct grammar_node *node = grammar_node_get(grammar, n);

        for (uint32_t i = 0; i < child_count(node); i++) {
            int32_t child = child_get(grammar, node, i);

            if (child >= 0)
                solver->listeners[--solver->first[child]] = n;
        }
    }
}

static void say_yes(struct solver *solver, uint32_t node)
{
    if (!solver->answers[node]) {
        solver->answers[node] = 1;
        solver->todo[solver->todo_count++] = node;
    }
}

static void start(struct solver *solver, enum grammar_question question)
{
    const struct grammar *grammar = solver->grammar;

    for (uint32_t n = 0; n < grammar->nodes.count; n++) {
        const struct grammar_node *node = grammar_node_get(grammar, n);
        bool yes = false;

        solver->waits[n] = 1;
        if (node->kind == NODE_LITERAL)
            yes = question == GRAMMAR_PRODUCTIVE || node->count == 0;
        else if (node->kind == NODE_CLASS)
            yes = question == GRAMMAR_PRODUCTIVE;
        else if (node->kind == NODE_SEQUENCE)
            solver->waits[n] = node->count;
        else if (node->kind == NODE_REPEAT)
            yes = node->low == 0;
        if (yes)
            say_yes(solver, n);
    }
}

int grammar_solve(const struct grammar *grammar, enum grammar_question question, uint8_t *answers)
{
    size_t node_count = grammar->nodes.count, edges = grammar->lists.count + node_count;
    struct solver solver = {.grammar = grammar, .answers = answers};

    solver.waits = calloc(3 * node_count + 1 + edges, sizeof *solver.waits);
    if (!solver.waits)
        return E_MEMORY;
    solver.todo = solver.waits + node_count;
    solver.first = solver.todo + node_count;
    solver.listeners = solver.first + node_count + 1;
    memset(answers, 0, node_count);
    listeners_fill(&solver);
    start(&solver, question);
    while (solver.todo_count > 0) {
        uint32_t node = solver.todo[--solver.todo_count];

        for (uint32_t i = solver.first[node]; i < solver.first[node + 1]; i++) {
            uint32_t listener = solver.listeners[i];

            if (solver.waits[listener] > 0 && --solver.waits[listener] == 0)
                say_yes(&solver, listener);
        }
    }
    free(solver.waits);
    return 0;
}

/* Marks what the root reaches; returns the first rule that is used and not defined, or -1. */
static int32_t find_undefined(const struct grammar *grammar, uint8_t *reached, uint32_t *todo)
{
    uint32_t count = 0;
    int32_t body = grammar_rule_get(grammar, (uint32_t)grammar->root)->node;

    if (body < 0)
        return grammar->root;
    reached[body] = 1;
    todo[count++] = (uint32_t)body;
    while (count > 0) {
        const struct grammar_node *node = grammar_node_get(grammar, todo[--count]);

        for (uint32_t i = 0; i < child_count(node); i++) {
            int32_t child = child_get(grammar, node, i);

            if (child < 0)
                return (int32_t)node->first;
            if (!reached[child]) {
                reached[child] = 1;
                todo[count++] = (uint32_t)child;
            }
        }
    }
    return -1;
}

int grammar_check(const struct grammar *grammar, struct fault *fault)
{
    uint32_t node_count = grammar->nodes.count;
    uint8_t *marks = NULL;
    uint32_t *todo = NULL;
    int32_t rule;
    int r;

    if (grammar->root < 0)
        return fault_set(fault, E_INVALID, "The grammar has no root");
    marks = calloc(node_count, 1);
    todo = calloc(node_count, sizeof *todo);
    if (!marks || !todo) {
        r = fault_set(fault, E_MEMORY, "There is no memory to check the grammar");
        goto out;
    }
    rule = find_undefined(grammar, marks, todo);
    if (rule >= 0) {
        r = fault_set(fault, E_INVALID, "The rule '%s' is used and not defined",
                      grammar_rule_name(grammar, (uint32_t)rule));
        goto out;
    }
    r = grammar_solve(grammar, GRAMMAR_PRODUCTIVE, marks);
    if (r < 0)
        r = fault_set(fault, r, "There is no memory to check the grammar");
    else if (!marks[grammar_rule_get(grammar, (uint32_t)grammar->root)->node])
        r = fault_set(fault, E_INVALID, "The rule '%s' cannot match any text: it never ends",
                      grammar_rule_name(grammar, (uint32_t)grammar->root));
out:
    free(todo);
    free(marks);
    return r;
}
