/* request_table.h -- the rows of running sequences, for backends whose memory is the host's.
 *
 * Lives on the device side: only the lane's thread touches it once it is open. It applies a batch's
 * changes, turns the batch into `struct work`, and after sampling moves each row on: last token,
 * position, tokens left, end tokens. (A CUDA backend keeps the same table in device memory.) */
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
    struct batch_opening opening;
    uint32_t *pages; /* [limits->pages_per_row] */
    /* What penalties look at; kept only for rows that have one (`counted`). */
    bool counted;
    uint16_t *generated_counts; /* [vocabulary], saturating */
    uint64_t *prompt_seen;      /* a bit per token id */
};

struct request_table;

int request_table_open(const struct engine_limits *limits, struct request_table **ret_table,
                       struct fault *fault);
void request_table_close(struct request_table *table);
uint64_t request_table_bytes(const struct engine_limits *limits);

/* Applies the batch's changes and fills `work` (its arrays are the table's own). Sets up step->rows
 * and step->prompts with rows, states and targets, the sampled values still to come. */
void request_table_begin(struct request_table *table, const struct batch *batch, struct work *work,
                         struct step *step);
struct request_row *request_table_row(struct request_table *table, uint32_t row);
/* The row's next token is `token`: moves the row on and returns what the step_row shall say. */
enum step_row_state request_table_advance(struct request_table *table, uint32_t row, int32_t token);
/* May an end or stop token be drawn next? (Not before min_tokens.) */
bool request_row_may_end(const struct request_row *row);

#endif
