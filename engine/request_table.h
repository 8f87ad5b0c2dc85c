/* request_table.h -- the rows of running sequences, as the host knows them.
 *
 * It applies a batch's changes, turns the batch into `struct work`, and moves rows on: last token,
 * position, tokens left, end tokens. Where the host samples, a row is moved on at once. Where the
 * device does, a row is moved on when the step is submitted (that a token will come is known, and
 * where), and the token itself is learnt steps later: a promise stands for it in between. Only one
 * thread touches the table: the lane's, or the scheduler's where steps are only enqueued. */
#ifndef WEFT_REQUEST_TABLE_H
#define WEFT_REQUEST_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/backend.h"
#include "engine/batch.h"
#include "engine/engine.h"

enum row_state { ROW_FREE, ROW_PREFILL, ROW_DECODE, ROW_ENDED };

struct request_row {
    enum row_state state;
    int32_t last_token; /* sampled, not yet computed */
    uint32_t position;  /* of last_token */
    uint32_t tokens_left;
    uint32_t generated; /* since the prompt's end, over preemptions */
    bool stopped;       /* an end token was drawn */
    uint32_t opened;    /* how often the row was opened: promises of an earlier one are void */
    struct batch_opening opening;
    uint32_t *pages; /* [limits->pages_per_row] */
    /* What penalties look at; kept only for rows that have one (`counted`). */
    bool counted;
    uint16_t *generated_counts; /* [vocabulary], saturating */
    uint64_t *prompt_seen;      /* a bit per token id */
    struct row_mask mask;       /* looked at where the opening says `masked` */
};

/* A token that the device is about to draw. */
struct row_promise {
    uint32_t row;
    uint32_t opened;
    uint32_t generated; /* before it */
    bool last;          /* no more are allowed */
};

struct request_table;

int request_table_open(const struct engine_limits *limits, struct request_table **ret_table,
                       struct fault *fault);
void request_table_close(struct request_table *table);
/* Masks lie elsewhere: where the device reads them. */
void request_table_place_masks(struct request_table *table, uint32_t *words,
                               _Atomic uint32_t *positions);
uint64_t request_table_bytes(const struct engine_limits *limits);

/* Applies the batch's changes and fills `work` (its arrays are the table's own). Sets up step->rows
 * and step->prompts with rows, states and targets, the sampled values still to come. */
void request_table_begin(struct request_table *table, const struct batch *batch, struct work *work,
                         struct step *step);
struct request_row *request_table_row(struct request_table *table, uint32_t row);
/* Moves the row on by a token that is not known yet. */
struct row_promise request_table_promise(struct request_table *table, uint32_t row);
/* The promised token is `token`. Returns what the step_row shall say: IDLE when the row had ended
 * before it. */
enum step_row_state request_table_learn(struct request_table *table,
                                        const struct row_promise *promise, int32_t token);
/* The promised token was not drawn, for want of its mask: LATE, or IDLE when the row had ended. */
enum step_row_state request_table_late(struct request_table *table,
                                       const struct row_promise *promise);
/* Promise and learn at once (`token` -1: late): the row's next token is `token`. */
enum step_row_state request_table_advance(struct request_table *table, uint32_t row, int32_t token);
/* Is the mask there for the token at `position`? Rows without masks always may draw. */
bool request_row_may_draw(const struct request_row *row, uint32_t position);
/* May an end or stop token be drawn after so many generated ones? (Not before min_tokens.) */
bool request_row_may_end(const struct request_row *row, uint32_t generated);

#endif
