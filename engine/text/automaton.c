/* automaton.c -- writes a grammar out as instructions; see automaton.h.
 *
 * Every node is told where to begin and where to go on afterwards, so a node is written without
 * looking at its neighbours, and a list of what is still to be written takes the place of
 * recursion (10,000 nested groups are a long list). What cannot match anything is left out: each
 * place that is reached can be left again with a whole text, so what is alive can end. */
#include "engine/text/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "engine/text/automaton_internal.h"
#include "engine/text/vocabulary_slices.h"

enum {
    CODE_MAX = 1 << 19,
    TARGETS_MAX = 1 << 20,
    REPEATS_MAX = 1 << 18,
    SMALL_MAX = 12, /* instructions that a rule may have to be written in place of its name */
};

int automaton_reserve(void *items_pointer, uint32_t *room, uint32_t count, size_t item_bytes,
                      size_t more, uint32_t ceiling)
{
    void *items, *grown;
    size_t wanted = *room ? *room : 64;

    memcpy(&items, items_pointer, sizeof items);
    if (more > ceiling || count > ceiling - more)
        return E_TOO_LARGE;
    if (count + more <= *room)
        return 0;
    while (wanted < count + more)
        wanted *= 2;
    grown = realloc(items, wanted * item_bytes);
    if (!grown)
        return E_MEMORY;
    memcpy(items_pointer, &grown, sizeof grown);
    *room = (uint32_t)wanted;
    return 0;
}

/* ---- what is still to be written ---- */

struct task {
    uint32_t node;
    uint32_t at;
    uint32_t next;
};

struct writer {
    struct automaton_build build;
    struct task *tasks;
    uint32_t task_count;
    uint32_t task_room;
    /* A choice's alternatives, nested choices taken apart. */
    uint32_t *parts;
    uint32_t part_count;
    uint32_t part_room;
    uint32_t *pending; /* nodes that are still to be taken apart */
    uint32_t pending_room;
    struct machine_text *texts;
    uint32_t text_room;
    struct grammar_range *ranges;
    uint32_t range_room;
};

static int code_add(struct writer *writer, uint32_t count, uint32_t *ret_at)
{
    struct automaton *automaton = writer->build.automaton;
    int r = automaton_reserve(&automaton->code, &writer->build.code_room, automaton->code_count,
                              sizeof *automaton->code, count, CODE_MAX);

    if (r < 0)
        return r;
    memset(automaton->code + automaton->code_count, 0, count * sizeof *automaton->code);
    *ret_at = automaton->code_count;
    automaton->code_count += count;
    return 0;
}

static int task_add(struct writer *writer, uint32_t node, uint32_t at, uint32_t next)
{
    int r = automaton_reserve(&writer->tasks, &writer->task_room, writer->task_count,
                              sizeof *writer->tasks, 1, CODE_MAX);

    if (r == 0)
        writer->tasks[writer->task_count++] = (struct task){node, at, next};
    return r;
}

static struct automaton_instruction *code_get(struct writer *writer, uint32_t at)
{
    return &writer->build.automaton->code[at];
}

static void write_jump(struct writer *writer, uint32_t at, uint32_t next)
{
    *code_get(writer, at) = (struct automaton_instruction){.op = OP_JUMP, .next = next};
}

static void write_match(struct writer *writer, uint32_t at, uint32_t state, uint32_t next)
{
    *code_get(writer, at) =
        (struct automaton_instruction){.op = OP_MATCH, .to = state, .next = next};
}

/* Ways for a split at `at`, still without targets. */
static int write_split(struct writer *writer, uint32_t at, uint32_t count, uint32_t **ret_targets)
{
    struct automaton *automaton = writer->build.automaton;
    int r =
        automaton_reserve(&automaton->targets, &writer->build.target_room, automaton->target_count,
                          sizeof *automaton->targets, count, TARGETS_MAX);

    if (r < 0)
        return r;
    *code_get(writer, at) = (struct automaton_instruction){
        .op = OP_SPLIT, .to = automaton->target_count, .count = count};
    *ret_targets = automaton->targets + automaton->target_count;
    automaton->target_count += count;
    return 0;
}

/* ---- nodes ---- */

static int write_literal(struct writer *writer, const struct grammar_node *node, struct task task)
{
    struct machine_text text = {grammar_bytes(writer->build.grammar, node), node->count};
    uint32_t state;
    int r;

    if (node->count == 0) {
        write_jump(writer, task.at, task.next);
        return 0;
    }
    r = machine_add_texts(&writer->build, &text, 1, &state);
    if (r == 0)
        write_match(writer, task.at, state, task.next);
    return r;
}

static int write_class(struct writer *writer, const struct grammar_range *ranges, size_t count,
                       struct task task)
{
    uint8_t slices = 0;
    uint32_t state;
    int r = machine_add_class(&writer->build, ranges, count, &state);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < VOCABULARY_SLICE_COUNT; i++) {
        const struct vocabulary_slice *slice = &vocabulary_slices[i];
        size_t held = 0, j = 0;

        for (; held < slice->range_count; held++) {
            while (j < count && ranges[j].last < slice->ranges[held].first)
                j++;
            if (j == count || ranges[j].first > slice->ranges[held].first ||
                ranges[j].last < slice->ranges[held].last)
                break;
        }
        if (held == slice->range_count)
            slices |= (uint8_t)(1u << i);
    }
    write_match(writer, task.at, state, task.next);
    code_get(writer, task.at)->slices = slices;
    return 0;
}

static int write_sequence(struct writer *writer, const struct grammar_node *node, struct task task)
{
    const int32_t *children = grammar_children(writer->build.grammar, node);
    uint32_t first;
    int r = code_add(writer, node->count - 1, &first);

    for (uint32_t i = 0; r == 0 && i < node->count; i++)
        r = task_add(writer, (uint32_t)children[i], i == 0 ? task.at : first + i - 1,
                     i + 1 == node->count ? task.next : first + i);
    return r;
}

static int list_put(uint32_t **list, uint32_t *room, uint32_t *count, uint32_t value)
{
    int r = automaton_reserve(list, room, *count, sizeof **list, 1, TARGETS_MAX);

    if (r == 0)
        (*list)[(*count)++] = value;
    return r;
}

/* The alternatives that can match into writer->parts, nested choices taken apart. */
static int choice_take_apart(struct writer *writer, uint32_t choice)
{
    const struct grammar *grammar = writer->build.grammar;
    uint32_t pending = 0;
    int r = list_put(&writer->pending, &writer->pending_room, &pending, choice);

    writer->part_count = 0;
    while (r == 0 && pending > 0) {
        uint32_t n = writer->pending[--pending];
        const struct grammar_node *node = grammar_node_get(grammar, n);

        if (!writer->build.productive[n])
            continue;
        if (node->kind != NODE_CHOICE)
            r = list_put(&writer->parts, &writer->part_room, &writer->part_count, n);
        for (uint32_t i = node->count; node->kind == NODE_CHOICE && r == 0 && i-- > 0;)
            r = list_put(&writer->pending, &writer->pending_room, &pending,
                         (uint32_t)grammar_children(grammar, node)[i]);
    }
    return r;
}

/* What a choice's alternatives come to: all classes are one, all literals are one machine. */
struct choice_counts {
    uint32_t ranges;
    uint32_t texts;
    uint32_t others;
    bool empty;
};

/* Sorts the parts into writer->ranges and writer->texts; the others stay in writer->parts. */
static int choice_sort(struct writer *writer, struct choice_counts *counts)
{
    const struct grammar *grammar = writer->build.grammar;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < writer->part_count; i++) {
        const struct grammar_node *node = grammar_node_get(grammar, writer->parts[i]);

        if (node->kind == NODE_LITERAL && node->count == 0) {
            counts->empty = true;
        } else if (node->kind == NODE_LITERAL) {
            r = automaton_reserve(&writer->texts, &writer->text_room, counts->texts,
                                  sizeof *writer->texts, 1, TARGETS_MAX);
            if (r == 0)
                writer->texts[counts->texts++] =
                    (struct machine_text){grammar_bytes(grammar, node), node->count};
        } else if (node->kind == NODE_CLASS) {
            r = automaton_reserve(&writer->ranges, &writer->range_room, counts->ranges,
                                  sizeof *writer->ranges, node->count, TARGETS_MAX);
            if (r == 0)
                memcpy(writer->ranges + counts->ranges, grammar_ranges(grammar, node),
                       node->count * sizeof *writer->ranges);
            if (r == 0)
                counts->ranges += node->count;
        } else {
            writer->parts[counts->others++] = writer->parts[i];
        }
    }
    counts->ranges = (uint32_t)grammar_ranges_join(writer->ranges, counts->ranges);
    return r;
}

static int write_choice(struct writer *writer, uint32_t choice, struct task task)
{
    struct choice_counts counts = {0};
    uint32_t ways, at = task.at, *targets, state;
    int r = choice_take_apart(writer, choice);

    if (r == 0)
        r = choice_sort(writer, &counts);
    ways = (counts.ranges > 0) + (counts.texts > 0) + counts.empty + counts.others;
    must(r < 0 || ways > 0);
    if (r == 0 && ways > 1) {
        r = code_add(writer, ways, &at);
        if (r == 0)
            r = write_split(writer, task.at, ways, &targets);
        for (uint32_t i = 0; r == 0 && i < ways; i++)
            targets[i] = at + i;
    }
    if (r == 0 && counts.empty)
        write_jump(writer, at++, task.next);
    if (r == 0 && counts.ranges > 0)
        r = write_class(writer, writer->ranges, counts.ranges,
                        (struct task){.at = at++, .next = task.next});
    if (r == 0 && counts.texts > 0) {
        r = machine_add_texts(&writer->build, writer->texts, counts.texts, &state);
        if (r == 0)
            write_match(writer, at++, state, task.next);
    }
    for (uint32_t i = 0; r == 0 && i < counts.others; i++)
        r = task_add(writer, writer->parts[i], at++, task.next);
    return r;
}

/* Counted repetitions go round with a count in a frame. */
static int write_counted(struct writer *writer, const struct grammar_node *node, uint32_t body,
                         struct task task)
{
    struct automaton *automaton = writer->build.automaton;
    struct automaton_repeat *repeat;
    uint32_t index = automaton->repeat_count, at;
    int r = automaton_reserve(&automaton->repeats, &writer->build.repeat_room, index,
                              sizeof *automaton->repeats, 1, REPEATS_MAX);

    if (r == 0)
        r = code_add(writer, 2, &at);
    if (r < 0)
        return r;
    automaton->repeat_count++;
    repeat = &automaton->repeats[index];
    repeat->low = writer->build.nullable[body] ? 0 : (uint32_t)node->low;
    repeat->high = node->high == GRAMMAR_UNBOUNDED ? UINT32_MAX : (uint32_t)node->high;
    repeat->body = at;
    repeat->exit = task.next;
    *code_get(writer, task.at) = (struct automaton_instruction){.op = OP_REPEAT, .to = index};
    *code_get(writer, at + 1) = (struct automaton_instruction){.op = OP_AGAIN, .to = index};
    return task_add(writer, body, at, at + 1);
}

static int write_repeat(struct writer *writer, const struct grammar_node *node, struct task task)
{
    uint32_t body = (uint32_t)grammar_children(writer->build.grammar, node)[0], at, split;
    bool unbounded = node->high == GRAMMAR_UNBOUNDED;
    uint32_t low = writer->build.nullable[body] ? 0 : (uint32_t)node->low, *targets;
    int r;

    if (!writer->build.productive[body]) {
        write_jump(writer, task.at, task.next);
        return 0;
    }
    if (!(low == 0 && node->high == 1) && !(unbounded && low <= 1))
        return write_counted(writer, node, body, task);
    r = code_add(writer, 2, &at);
    if (r < 0)
        return r;
    split = task.at;
    if (low == 1) {
        write_jump(writer, task.at, at);
        split = at + 1;
    }
    r = write_split(writer, split, 2, &targets);
    if (r < 0)
        return r;
    targets[0] = at;
    targets[1] = task.next;
    return task_add(writer, body, at, unbounded ? split : task.next);
}

/* The entry of a rule, which is written when it is first called. */
static int rule_get(struct writer *writer, uint32_t rule, uint32_t *ret_entry)
{
    uint32_t body = (uint32_t)grammar_rule_get(writer->build.grammar, rule)->node, at;
    int r = 0;

    if (writer->build.rules[rule] == UINT32_MAX) {
        r = code_add(writer, 2, &at);
        if (r == 0)
            r = task_add(writer, body, at, at + 1);
        if (r < 0)
            return r;
        *code_get(writer, at + 1) = (struct automaton_instruction){.op = OP_RETURN};
        writer->build.rules[rule] = at;
    }
    *ret_entry = writer->build.rules[rule];
    return r;
}

static int write_reference(struct writer *writer, const struct grammar_node *node, struct task task)
{
    uint32_t body = (uint32_t)grammar_rule_get(writer->build.grammar, node->first)->node, entry;
    int r;

    if (writer->build.small[body] > 0 && writer->build.small[body] <= SMALL_MAX)
        return task_add(writer, body, task.at, task.next);
    r = rule_get(writer, node->first, &entry);
    if (r == 0)
        *code_get(writer, task.at) =
            (struct automaton_instruction){.op = OP_CALL,
                                           .nullable = writer->build.nullable[body],
                                           .to = entry,
                                           .count = node->first,
                                           .next = task.next};
    return r;
}

static int write_node(struct writer *writer, struct task task)
{
    const struct grammar_node *node = grammar_node_get(writer->build.grammar, task.node);

    switch (node->kind) {
    case NODE_LITERAL:
        return write_literal(writer, node, task);
    case NODE_CLASS:
        return write_class(writer, grammar_ranges(writer->build.grammar, node), node->count, task);
    case NODE_SEQUENCE:
        return write_sequence(writer, node, task);
    case NODE_CHOICE:
        return write_choice(writer, task.node, task);
    case NODE_REPEAT:
        return write_repeat(writer, node, task);
    case NODE_REFERENCE:
        return write_reference(writer, node, task);
    }
    must(!"a node of no kind");
    return 0;
}

/* ---- the whole ---- */

/* Instructions of each node, 0 for those that are large or refer to a rule that is. Twice, so that
 * a rule may stand behind its use; what is not 0 has an end, so recursion stays 0. */
static void measure(struct automaton_build *build)
{
    const struct grammar *grammar = build->grammar;

    for (uint32_t n = 0, pass = 0; pass < 2;
         n = n + 1 < grammar->nodes.count ? n + 1 : (pass++, 0)) {
        const struct grammar_node *node = grammar_node_get(grammar, n);
        uint32_t sum = 1, count = node->kind == NODE_REFERENCE ? 1 : node->count;

        if (node->kind == NODE_LITERAL || node->kind == NODE_CLASS)
            count = 0;
        for (uint32_t i = 0; i < count && sum > 0; i++) {
            int32_t child = node->kind == NODE_REFERENCE
                                ? grammar_rule_get(grammar, node->first)->node
                                : grammar_children(grammar, node)[i];
            uint32_t part = child < 0 ? 0 : build->small[child];

            sum = part > 0 && sum + part <= SMALL_MAX ? sum + part : 0;
        }
        build->small[n] = (uint8_t)sum;
    }
}

static int write_all(struct writer *writer, struct fault *fault)
{
    struct automaton_build *build = &writer->build;
    struct automaton *automaton = build->automaton;
    uint32_t root = (uint32_t)build->grammar->root;
    int r;

    r = grammar_solve(build->grammar, GRAMMAR_PRODUCTIVE, build->productive);
    if (r == 0)
        r = grammar_solve(build->grammar, GRAMMAR_NULLABLE, build->nullable);
    if (r == 0)
        r = machine_add_end(build);
    if (r == 0) {
        measure(build);
        r = rule_get(writer, root, &automaton->start);
    }
    while (r == 0 && writer->task_count > 0)
        r = write_node(writer, writer->tasks[--writer->task_count]);
    if (r == E_TOO_LARGE)
        return fault_set(
            fault, r, "The grammar is too large: written out it has more than %d parts", CODE_MAX);
    if (r < 0)
        return fault_set(fault, r, "There is no memory for the grammar's automaton");
    return automaton_finish(build, fault);
}

int automaton_open(const struct grammar *grammar, struct automaton **ret_automaton,
                   struct fault *fault)
{
    struct writer writer = {.build.grammar = grammar};
    uint32_t node_count = grammar->nodes.count, rule_count = grammar->rules.count;
    int r = grammar_check(grammar, fault);

    if (r < 0)
        return r;
    writer.build.automaton = calloc(1, sizeof *writer.build.automaton);
    writer.build.rules = malloc((rule_count + 1) * sizeof *writer.build.rules);
    writer.build.productive = calloc(3, node_count);
    if (!writer.build.automaton || !writer.build.rules || !writer.build.productive) {
        r = fault_set(fault, E_MEMORY, "There is no memory for the grammar's automaton");
        goto out;
    }
    memset(writer.build.rules, 0xFF, (rule_count + 1) * sizeof *writer.build.rules);
    writer.build.nullable = writer.build.productive + node_count;
    writer.build.small = writer.build.nullable + node_count;
    r = write_all(&writer, fault);
    if (r == 0) {
        *ret_automaton = writer.build.automaton;
        writer.build.automaton = NULL;
    }
out:
    automaton_close(writer.build.automaton);
    free(writer.build.rules);
    free(writer.build.productive);
    free(writer.tasks);
    free(writer.pending);
    free(writer.parts);
    free(writer.texts);
    free(writer.ranges);
    return r;
}

void automaton_close(struct automaton *automaton)
{
    if (!automaton)
        return;
    free(automaton->code);
    free(automaton->targets);
    free(automaton->repeats);
    free(automaton->states);
    free(automaton->edges);
    free(automaton);
}
