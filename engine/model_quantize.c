/* model_quantize.c -- see model_quantize.h.
 *
 * The list of tensors with their new types gives the head of the file; then tensor by tensor some
 * rows at a time are read as floats, quantized and written, divided among the threads by rows. */
#include "engine/model_quantize.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "engine/quantize_list.h"
#include "engine/weight_part.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/quant.h"

enum {
    PATH_BYTES = 4096,
    PRINTED_NAME = 96,
    PIECE_BYTES = 4 << 20, /* what is made and written at once; a row may be larger */
    HEAD_BYTES_MAX = 1 << 30,
    REPORT_NS = 50 * 1000 * 1000,
    QUANTIZATION_VERSION = 2, /* of ggml's blocks */
};

/* A type that can be asked for, and the number that general.file_type has for it. */
static const struct target {
    enum dtype type;
    uint32_t file_type;
} targets[] = {
    [QUANTIZE_Q8_0] = {DT_Q8_0, 7},  [QUANTIZE_Q4_0] = {DT_Q4_0, 2},
    [QUANTIZE_Q4_1] = {DT_Q4_1, 3},  [QUANTIZE_Q4_K] = {DT_Q4_K, 14},
    [QUANTIZE_Q6_K] = {DT_Q6_K, 18}, [QUANTIZE_F16] = {DT_F16, 1},
    [QUANTIZE_BF16] = {DT_BF16, 32},
};

struct work {
    const struct quantize_options *options;
    struct checkpoint *checkpoint;
    struct quantize_list list;
    struct gguf_writer writer;
    struct quantize_summary summary;
    char partial[PATH_BYTES];
    int fd;
    struct pool *pool;
    uint8_t *piece; /* of the new file */
    float *rows;    /* [threads][columns_max] */
    uint32_t columns_max;
    size_t piece_bytes;
    uint64_t done;
    uint64_t total;
    uint64_t began_ns;
    uint64_t reported_ns;
    struct fault *fault;
};

/* --- what becomes what --------------------------------------------------------------------- */

static bool has(struct gguf_string name, const char *part)
{
    return memmem(name.text, name.bytes, part, strlen(part)) != NULL;
}

static bool is_named(struct gguf_string name, const char *text)
{
    return name.bytes == strlen(text) && memcmp(name.text, text, name.bytes) == 0;
}

/* Matrices that a product reads. Small ones that decide much stay as they are. */
static bool is_quantized(const struct quantize_tensor *tensor)
{
    static const char *const kept[] = {"_norm", "ffn_gate_inp", "position_embd", "token_types",
                                       "rope_", "ssm_conv1d",   "attn_sinks"};

    if (tensor->dimension_count < 2 || tensor->rows < 2 || !has(tensor->name, ".weight"))
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (has(tensor->name, kept[i]))
            return false;
    }
    return true;
}

static bool fits(const struct quantize_tensor *tensor, enum dtype type)
{
    return tensor->columns % dtype_get(type)->block == 0;
}

static enum dtype next_type(enum dtype type)
{
    return type == DT_Q4_K ? DT_Q5_0 : type == DT_Q6_K ? DT_Q8_0 : DT_F16;
}

static void choose_type(struct work *work, struct quantize_tensor *tensor)
{
    enum dtype wanted = targets[work->options->type].type;
    bool head = is_named(tensor->name, work->list.tied ? "token_embd.weight" : "output.weight");

    tensor->to = tensor->kept;
    if (!is_quantized(tensor))
        return;
    if (head && (wanted == DT_Q4_0 || wanted == DT_Q4_1 || wanted == DT_Q4_K))
        wanted = DT_Q6_K;
    tensor->to = wanted;
    while (!fits(tensor, tensor->to))
        tensor->to = next_type(tensor->to);
    if (tensor->to == wanted)
        return;
    if (work->summary.fallback_count++ == 0) {
        gguf_string_print(tensor->name, work->summary.fallback, sizeof work->summary.fallback);
        work->summary.fallback_type = tensor->to;
    }
}

static int list_tensors(struct work *work)
{
    int r;

    if (checkpoint_gguf(work->checkpoint))
        r = quantize_list_gguf(work->checkpoint, &work->list, &work->writer, work->fault);
    else
        r = quantize_list_folder(work->checkpoint, &work->list, &work->writer, work->fault);
    if (r < 0)
        return r;
    gguf_put_u32(&work->writer, "general.file_type", targets[work->options->type].file_type);
    gguf_put_u32(&work->writer, "general.quantization_version", QUANTIZATION_VERSION);
    for (uint32_t i = 0; i < work->list.count; i++) {
        struct quantize_tensor *tensor = &work->list.tensors[i];
        uint64_t elements = (uint64_t)tensor->rows * tensor->columns;
        uint64_t row;

        choose_type(work, tensor);
        tensor->bytes = dtype_bytes(tensor->to, elements);
        must(tensor->bytes > 0);
        gguf_put_tensor(&work->writer, tensor->name, tensor->dimension_count, tensor->dimensions,
                        tensor->to, tensor->bytes);
        work->summary.tensors[tensor->to]++;
        work->summary.bytes[tensor->to] += tensor->bytes;
        work->summary.elements += elements;
        row = dtype_bytes(tensor->to, tensor->columns);
        work->piece_bytes = row > work->piece_bytes ? row : work->piece_bytes;
        work->columns_max =
            tensor->columns > work->columns_max ? tensor->columns : work->columns_max;
    }
    work->total = work->writer.data_bytes;
    work->summary.tokenizer = work->list.tokenizer || checkpoint_gguf(work->checkpoint);
    return 0;
}

/* --- quantizing ---------------------------------------------------------------------------- */

/* Some rows of a tensor, for the pool. */
struct making {
    struct work *work;
    const struct quantize_tensor *tensor;
    uint32_t first;
    uint32_t rows;
    atomic_bool misfit;
};

/* Where row `row` of the new tensor comes from: the part, and the row in it. */
static const struct weight_part *source_of(const struct quantize_tensor *tensor, uint32_t *row)
{
    const struct weight_part *part = tensor->parts;
    const struct quantize_turn *turn = tensor->turns;
    uint32_t in_head;

    for (; *row >= part->rows; part++, turn++)
        *row -= part->rows;
    if (turn->head_size == 0)
        return part;
    in_head = *row % turn->head_size;
    if (in_head < turn->rope_size) /* 0 1 2 3 ... come from 0, half, 1, half + 1 ... */
        *row += in_head / 2 + in_head % 2 * (turn->rope_size / 2) - in_head;
    return part;
}

static void make_share(void *data, const struct pool_seat *seat)
{
    struct making *making = data;
    const struct quantize_tensor *tensor = making->tensor;
    size_t row_bytes = dtype_bytes(tensor->to, tensor->columns);
    float *floats = making->work->rows + (size_t)seat->index * making->work->columns_max;
    uint64_t first, end;

    pool_share(seat, making->rows, 1, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        uint32_t row = making->first + (uint32_t)i;
        const struct weight_part *part = source_of(tensor, &row);
        uint8_t *to = making->work->piece + i * row_bytes;

        if (tensor->to == part->type && weight_part_plain(part)) {
            weight_part_read(part, tensor->columns, row, 1, tensor->to, to);
            continue;
        }
        weight_part_read(part, tensor->columns, row, 1, DT_F32, floats);
        if (!quant_row(tensor->to, floats, tensor->columns, to))
            atomic_store(&making->misfit, true);
    }
}

static int write_all(const struct work *work, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t written = write(work->fd, at, bytes);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fault_errno(work->fault, "cannot write %.300s", work->partial);
        at += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static void report(struct work *work, uint64_t bytes)
{
    const struct engine_progress *progress = &work->options->progress;
    uint64_t now = clock_now();

    work->done += bytes;
    if (!progress->report || (now - work->reported_ns < REPORT_NS && work->done < work->total))
        return;
    work->reported_ns = now;
    progress->report(progress->data, "quantizing", work->done, work->total,
                     clock_seconds(now - work->began_ns));
}

static int write_tensor(struct work *work, const struct quantize_tensor *tensor)
{
    static const uint8_t padding[GGUF_ALIGNMENT];
    size_t row_bytes = dtype_bytes(tensor->to, tensor->columns);
    uint32_t together = (uint32_t)(work->piece_bytes / row_bytes);
    uint64_t padded = gguf_padded(tensor->bytes) - tensor->bytes;
    int r = 0;

    for (uint32_t row = 0; row < tensor->rows && r == 0; row += together) {
        uint32_t left = tensor->rows - row;
        struct making making = {work, tensor, row, left < together ? left : together, false};

        pool_run(work->pool, make_share, &making);
        if (atomic_load(&making.misfit)) {
            char printed[PRINTED_NAME];

            gguf_string_print(tensor->name, printed, sizeof printed);
            return fault_set(work->fault, E_INVALID,
                             "the tensor %s holds a number that %s cannot: it is infinite, not a "
                             "number, or too large",
                             printed, dtype_get(tensor->to)->name);
        }
        r = write_all(work, work->piece, making.rows * row_bytes);
        report(work, making.rows * row_bytes);
        if (left <= together)
            break; /* before the sum could overflow */
    }
    if (r == 0 && padded > 0) {
        r = write_all(work, padding, padded);
        report(work, padded);
    }
    /* What was read of the source need not stay in memory. */
    checkpoint_rest(work->checkpoint);
    return r;
}

static int write_file(struct work *work)
{
    struct buf head;
    int r;

    buf_init(&head, HEAD_BYTES_MAX);
    r = gguf_writer_head(&work->writer, &head, work->fault);
    if (r == 0)
        r = write_all(work, head.data, head.bytes);
    work->summary.file_bytes = head.bytes + work->writer.data_bytes;
    buf_fini(&head);
    for (uint32_t i = 0; i < work->list.count && r == 0; i++)
        r = write_tensor(work, &work->list.tensors[i]);
    /* A disk may refuse only now. */
    if (r == 0 && fsync(work->fd) < 0)
        r = fault_errno(work->fault, "cannot write %.300s", work->partial);
    return r;
}

/* --- the file ------------------------------------------------------------------------------ */

static int check_target(const struct work *work)
{
    struct stat info;

    if (lstat(work->options->to, &info) < 0)
        return 0;
    if (S_ISDIR(info.st_mode))
        return fault_set(work->fault, -EEXIST, "%.300s is a folder", work->options->to);
    if (!work->options->overwrite)
        return fault_set(work->fault, -EEXIST, "%.300s exists already; --overwrite replaces it",
                         work->options->to);
    return 0;
}

/* What a folder's config says, a GGUF file says in other words, and some it cannot say. So the file
 * is opened as anybody would, and must describe the same model. */
static int read_back(const struct work *work)
{
    struct checkpoint *checkpoint = NULL;
    struct model *model = NULL;
    const char *what = NULL;
    struct fault misfit = {0};
    int r = checkpoint_open(work->partial, &checkpoint, &misfit);

    if (r == 0)
        r = model_open(checkpoint, &model, &misfit);
    if (r < 0 && r != E_MEMORY)
        r = fault_set(work->fault, E_UNSUPPORTED, "%.200s cannot be a GGUF file: %.250s",
                      work->options->from, misfit.message);
    if (r == 0)
        what = quantize_difference(work->list.model, model);
    if (what)
        r = fault_set(work->fault, E_UNSUPPORTED,
                      "%.200s cannot be a GGUF file: those of the architecture %s do not tell %s",
                      work->options->from, model->architecture, what);
    model_close(model);
    checkpoint_close(checkpoint);
    return r;
}

static int write_partial(struct work *work)
{
    int r;

    work->fd = open(work->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (work->fd < 0)
        return errno == EEXIST
                   ? fault_set(work->fault, -EEXIST,
                               "%.300s exists: another run is going on, or was killed; then "
                               "remove it",
                               work->partial)
                   : fault_errno(work->fault, "cannot create %.300s", work->partial);
    r = write_file(work);
    if (close(work->fd) < 0 && r == 0)
        r = fault_errno(work->fault, "cannot write %.300s", work->partial);
    if (r == 0 && work->list.model)
        r = read_back(work);
    if (r == 0)
        r = check_target(work); /* somebody may have made it meanwhile */
    if (r == 0 && rename(work->partial, work->options->to) < 0)
        r = fault_errno(work->fault, "cannot rename %.300s to %.300s", work->partial,
                        work->options->to);
    if (r < 0)
        unlink(work->partial);
    return r;
}

static int open_memory(struct work *work)
{
    uint32_t threads = work->options->threads ? work->options->threads : cpu_threads_available();

    if (threads > POOL_THREADS_MAX)
        threads = POOL_THREADS_MAX;
    if (work->piece_bytes < PIECE_BYTES)
        work->piece_bytes = PIECE_BYTES;
    work->piece = malloc(work->piece_bytes);
    work->rows = calloc((size_t)threads * work->columns_max + 1, sizeof *work->rows);
    if (!work->piece || !work->rows)
        return fault_set(work->fault, E_MEMORY, "out of memory for rows of %u numbers",
                         work->columns_max);
    return pool_open(threads, &work->pool, work->fault);
}

int model_quantize(const struct quantize_options *options, struct quantize_summary *ret_summary,
                   struct fault *fault)
{
    struct work work = {.options = options, .began_ns = clock_now(), .fault = fault};
    int r, bytes;

    bytes = snprintf(work.partial, sizeof work.partial, "%s.partial", options->to);
    if (!*options->to || bytes < 0 || bytes >= (int)sizeof work.partial)
        return fault_set(fault, E_INVALID, "the new file's name is %s",
                         *options->to ? "too long" : "empty");
    r = check_target(&work);
    if (r < 0)
        return r;
    gguf_writer_init(&work.writer);
    r = checkpoint_open(options->from, &work.checkpoint, fault);
    if (r == 0)
        r = list_tensors(&work);
    if (r == 0)
        r = open_memory(&work);
    if (r == 0)
        r = write_partial(&work);
    if (r == 0)
        *ret_summary = work.summary;
    pool_close(work.pool);
    free(work.piece);
    free(work.rows);
    quantize_list_fini(&work.list);
    gguf_writer_fini(&work.writer);
    checkpoint_close(work.checkpoint);
    return r;
}
