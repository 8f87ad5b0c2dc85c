/* cpu_product.h -- what the operations of a step on the CPU have in common: rows that are normed
 * and go into a product, by all threads of the pool.
 *
 * Everything here is called by every seat of a run, with the same arguments. */
#ifndef WEFT_CPU_PRODUCT_H
#define WEFT_CPU_PRODUCT_H

#include "engine/cpu_internal.h"

/* What goes into a product. */
struct cpu_source {
    const float *rows;
    size_t stride;
    const uint32_t *indices; /* which rows; NULL: all in order */
    uint32_t row_count;
    uint32_t columns;
    const struct cpu_norm *norm; /* NULL, or its gain is: no norm */
    unsigned forms;
};

static inline float *cpu_row(float *rows, size_t stride, uint32_t row)
{
    return rows + row * stride;
}

/* In which forms a product of so many rows wants its inputs. */
unsigned cpu_form(const struct backend *b, const struct packed *w, uint32_t rows);
unsigned cpu_forms(const struct backend *b, const struct cpu_matrix *matrix, uint32_t rows);

/* One row, padding included; out may be x. */
void cpu_norm_row(const struct backend *b, const struct cpu_norm *norm, uint32_t columns,
                  const float *x, float *out);

/* Returns (by value: the memory is shared, the shape is this product's) what the product reads.
 * With more than a few rows there is a barrier at the end. */
struct activations cpu_prepare(const struct backend *b, const struct pool_seat *seat,
                               const struct cpu_source *source);

/* Groups first .. end - 1 of a matrix of several parts, and its bias. y is the first group's output
 * of row 0. */
void cpu_product_groups(const struct backend *b, const struct pool_seat *seat,
                        const struct cpu_matrix *matrix, uint64_t first, uint64_t end,
                        const struct activations *x, float *y, size_t stride, bool add);
/* All of it, shared by the seats. */
void cpu_product_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work,
                       const struct cpu_matrix *matrix, const struct activations *x, float *y,
                       size_t stride, bool add);

/* What seats take from in phase `phase` of a run; with few rows a phase is too short for that. */
struct pool_work *cpu_work(struct backend *b, uint32_t phase, uint32_t rows);

/* The product of a branch's last matrix goes onto x, by way of what the layer does to branches. */
void cpu_add_branch(struct backend *b, const struct pool_seat *seat, uint32_t phase,
                    const struct cpu_matrix *matrix, const struct activations *x,
                    const struct cpu_norm *post, const struct cpu_norm *stream);

/* One row of a branch, which is overwritten, onto a row of x. */
void cpu_add_row(const struct backend *b, float *branch, const struct cpu_norm *post, float *x);

/* The hidden layers of all jobs, shared by the seats: x through gate, up and activation to hidden.
 * cpu_ffn_forms() says which forms both need for so many rows. */
void cpu_ffn_forms(const struct backend *b, struct cpu_ffn_job *job, uint32_t rows);
void cpu_hidden_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work,
                      const struct cpu_ffn_job *jobs, uint32_t count);

/* Where the layer's pages begin. */
uint8_t *cpu_layer_pages(const struct backend *b);
/* The tables of a token for the layer's rope. */
struct rotary cpu_rotary(const struct backend *b, uint32_t token);
/* `count` values normed in place, which need not be aligned or padded. */
void cpu_norm_values(const struct backend *b, const struct pool_seat *seat, const float *gain,
                     uint32_t count, float *values);

/* Latent attention: from x to the queries and the pages, and from what attention gives to its
 * output product's inputs (cpu_latent.c). */
void cpu_latent_in(struct backend *b, const struct pool_seat *seat);
void cpu_latent_out(struct backend *b, const struct pool_seat *seat);

/* A run of the pool for which all that can be taken is there. */
void cpu_run(struct backend *b, pool_function function);
/* The same for one layer, which b->layer is meanwhile. */
void cpu_run_layer(struct backend *b, uint32_t layer, pool_function function);

/* The segment that the step's token belongs to. */
const struct work_segment *cpu_segment(const struct work *work, uint32_t token);

#endif
