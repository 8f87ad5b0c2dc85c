/* model_save.c -- see model_save.h.
 *
 * First the list of all tensors, divided into files; then file by file the header and the tensors,
 * a few rows at a time, which all processors make. */
#include "engine/model_save.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/json.h"
#include "engine/saved_tensor.h"
#include "engine/shape.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/pool.h"

enum {
    PATH_BYTES = 4096,
    FILE_NAME_BYTES = 48,
    PIECE_BYTES = 4 << 20, /* what is made and written at once; a row may be larger */
    TEXT_BYTES_MAX = 64 << 20,
    REPORT_NS = 50 * 1000 * 1000,
    ALIGNMENT = 8, /* of the first tensor's data */
};
#define FILE_BYTES_MAX UINT64_C(5000000000) /* Transformers' 5GB */

static const char index_name[] = "model.safetensors.index.json";

struct save {
    struct model *model;
    struct saved_tensor *tensors;
    uint32_t tensor_count;
    uint32_t file_count;
    char partial[PATH_BYTES];
    int folder_fd;
    struct pool *pool;
    uint8_t *piece;
    size_t piece_bytes;
    const struct engine_progress *progress;
    uint64_t done;
    uint64_t began_ns;
    uint64_t reported_ns;
    struct fault *fault;
};

/* --- what goes where ----------------------------------------------------------------------- */

/* A text model inside of a larger one? */
static int read_nested(const struct save *save, const char *shape, bool *ret_nested)
{
    struct hf_config config;
    char name[SHAPE_NAME_BYTES];
    int r = shape_read(shape, &config, name, save->fault);

    if (r == 0)
        *ret_nested = config.plan.nested;
    return r;
}

static int list_tensors(struct save *save, const char *shape, uint64_t file_bytes_max)
{
    const char *name = save->model->architecture;
    const struct arch *arch;
    uint64_t file_bytes = 0;
    bool nested;
    int r = arch_find((struct gguf_string){name, strlen(name)}, &arch, save->fault);

    if (r == 0)
        r = read_nested(save, shape, &nested);
    if (r == 0)
        r = saved_tensors_list(save->model, arch, nested, &save->tensors, &save->tensor_count,
                               save->fault);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < save->tensor_count; i++) {
        struct saved_tensor *tensor = &save->tensors[i];

        if (file_bytes > 0 && file_bytes + tensor->bytes > file_bytes_max) {
            save->file_count++;
            file_bytes = 0;
        }
        file_bytes += tensor->bytes;
        tensor->file = save->file_count;
        if (dtype_bytes(tensor->type, tensor->columns) > save->piece_bytes)
            save->piece_bytes = dtype_bytes(tensor->type, tensor->columns);
    }
    save->file_count++;
    return 0;
}

static void file_name(const struct save *save, uint32_t file, char name[static FILE_NAME_BYTES])
{
    if (save->file_count == 1)
        snprintf(name, FILE_NAME_BYTES, "model.safetensors");
    else
        snprintf(name, FILE_NAME_BYTES, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors",
                 file + 1, save->file_count);
}

/* --- texts --------------------------------------------------------------------------------- */

static void put_tensor(const struct saved_tensor *tensor, uint64_t at, struct buf *text)
{
    buf_format(text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensor->name,
               dtype_get(tensor->type)->name);
    for (uint32_t i = 0; i < tensor->dimension_count; i++)
        buf_format(text, "%s%" PRIu64, i > 0 ? "," : "", tensor->shape[i]);
    buf_format(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + tensor->bytes);
}

/* With the length before it, padded with blanks. */
static void put_header(const struct save *save, uint32_t file, struct buf *text)
{
    uint8_t length[8];
    uint64_t at = 0, bytes;

    buf_put(text, "\0\0\0\0\0\0\0", sizeof length);
    buf_text(text, "{\"__metadata__\":{\"format\":\"pt\"}"); /* Transformers asks for it */
    for (uint32_t i = 0; i < save->tensor_count; i++) {
        if (save->tensors[i].file != file)
            continue;
        put_tensor(&save->tensors[i], at, text);
        at += save->tensors[i].bytes;
    }
    buf_byte(text, '}');
    while (text->bytes % ALIGNMENT != 0 && !buf_failed(text))
        buf_byte(text, ' ');
    if (buf_failed(text))
        return;
    bytes = text->bytes - sizeof length;
    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (uint8_t)(bytes >> 8 * i);
    memcpy(text->data, length, sizeof length);
}

static void put_index(const struct save *save, struct buf *text)
{
    char name[FILE_NAME_BYTES];

    buf_format(text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n",
               save->model->weight_bytes);
    buf_text(text, "  \"weight_map\": {");
    for (uint32_t i = 0; i < save->tensor_count; i++) {
        file_name(save, save->tensors[i].file, name);
        buf_format(text, "%s\n    \"%s\": \"%s\"", i > 0 ? "," : "", save->tensors[i].name, name);
    }
    buf_text(text, "\n  }\n}\n");
}

/* --- writing ------------------------------------------------------------------------------- */

static int write_all(const struct save *save, int fd, const char *name, const void *data,
                     size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);

        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fault_errno(save->fault, "cannot write %.300s/%s", save->partial, name);
        at += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static void report(struct save *save, uint64_t bytes)
{
    uint64_t now = clock_now(), total = save->model->weight_bytes;

    save->done += bytes;
    if (!save->progress->report || (now - save->reported_ns < REPORT_NS && save->done < total))
        return;
    save->reported_ns = now;
    save->progress->report(save->progress->data, "writing weights", save->done, total,
                           clock_seconds(now - save->began_ns));
}

/* Rows of a tensor, for the pool. */
struct making {
    struct model *model;
    const struct saved_tensor *tensor;
    uint64_t first;
    uint64_t rows;
    uint8_t *to;
};

static void make_share(void *data, const struct pool_seat *seat)
{
    const struct making *making = data;
    const struct saved_tensor *tensor = making->tensor;
    uint64_t first, end;

    pool_share(seat, making->rows, 1, &first, &end);
    saved_tensor_read(tensor, making->model, making->first + first, end - first,
                      making->to + first * dtype_bytes(tensor->type, tensor->columns));
}

static int write_tensor(struct save *save, int fd, const char *name,
                        const struct saved_tensor *tensor)
{
    size_t row_bytes = dtype_bytes(tensor->type, tensor->columns);
    uint64_t together = save->piece_bytes / row_bytes;

    for (uint64_t row = 0; row < tensor->rows; row += together) {
        uint64_t rows = tensor->rows - row < together ? tensor->rows - row : together;
        int r;

        pool_run(save->pool, make_share,
                 &(struct making){save->model, tensor, row, rows, save->piece});
        r = write_all(save, fd, name, save->piece, rows * row_bytes);
        if (r < 0)
            return r;
        report(save, rows * row_bytes);
    }
    return 0;
}

/* `text`, and after it the tensors of `file` (-1: none). */
static int write_file(struct save *save, const char *name, const struct buf *text, int64_t file)
{
    int fd, r;

    if (buf_failed(text))
        return fault_set(save->fault, E_MEMORY, "out of memory for %s", name);
    fd = openat(save->folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fault_errno(save->fault, "cannot create %.300s/%s", save->partial, name);
    r = write_all(save, fd, name, text->data, text->bytes);
    for (uint32_t i = 0; i < save->tensor_count && r == 0; i++) {
        if (save->tensors[i].file == file)
            r = write_tensor(save, fd, name, &save->tensors[i]);
    }
    /* A disk may refuse only now. */
    if (r == 0 && fsync(fd) < 0)
        r = fault_errno(save->fault, "cannot write %.300s/%s", save->partial, name);
    if (close(fd) < 0 && r == 0)
        r = fault_errno(save->fault, "cannot write %.300s/%s", save->partial, name);
    return r;
}

/* The shape's own text; but what is saved is not quantized, whatever the shape's checkpoint is. */
static int put_config(const struct save *save, const char *shape, struct buf *text)
{
    static const char key[] = "quantization_config";
    json_t *root = NULL;
    char *dumped;
    int r = shape_text(shape, text, save->fault);

    if (r == 0)
        r = json_parse(buf_string(text), text->bytes, &root, save->fault);
    if (r < 0)
        return r;
    if (json_object_get(root, key)) {
        (void)json_object_del(root, key);
        dumped = json_dumps(root, JSON_INDENT(2));
        buf_reset(text);
        if (dumped)
            buf_format(text, "%s\n", dumped);
        else
            r = fault_set(save->fault, E_MEMORY, "out of memory for config.json");
        free(dumped);
    }
    json_decref(root);
    return r;
}

static int write_files(struct save *save, const char *shape)
{
    char name[FILE_NAME_BYTES];
    struct buf text;
    int r;

    buf_init(&text, TEXT_BYTES_MAX);
    r = put_config(save, shape, &text);
    if (r == 0)
        r = write_file(save, "config.json", &text, -1);
    for (uint32_t file = 0; file < save->file_count && r == 0; file++) {
        buf_reset(&text);
        put_header(save, file, &text);
        file_name(save, file, name);
        r = write_file(save, name, &text, file);
    }
    if (r == 0 && save->file_count > 1) {
        buf_reset(&text);
        put_index(save, &text);
        r = write_file(save, index_name, &text, -1);
    }
    buf_fini(&text);
    return r;
}

/* --- the folder ---------------------------------------------------------------------------- */

static int open_folder(struct save *save, const char *folder)
{
    struct stat info;

    if (lstat(folder, &info) == 0)
        return fault_set(save->fault, -EEXIST, "%.300s exists already", folder);
    if (mkdir(save->partial, 0777) < 0)
        return errno == EEXIST
                   ? fault_set(save->fault, -EEXIST,
                               "%.300s exists: another save is going on, or was killed; then "
                               "remove it",
                               save->partial)
                   : fault_errno(save->fault, "cannot create %.300s", save->partial);
    save->folder_fd = open(save->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (save->folder_fd < 0) {
        fault_errno(save->fault, "cannot open %.300s", save->partial);
        rmdir(save->partial);
        return -EIO;
    }
    return 0;
}

static void remove_files(const struct save *save)
{
    char name[FILE_NAME_BYTES];

    unlinkat(save->folder_fd, "config.json", 0);
    unlinkat(save->folder_fd, index_name, 0);
    for (uint32_t file = 0; file < save->file_count; file++) {
        file_name(save, file, name);
        unlinkat(save->folder_fd, name, 0);
    }
    rmdir(save->partial);
}

static int save_into(struct save *save, const char *shape, const char *folder)
{
    int r = open_folder(save, folder);

    if (r < 0)
        return r;
    r = write_files(save, shape);
    if (r == 0 && fsync(save->folder_fd) < 0)
        r = fault_errno(save->fault, "cannot write %.300s", save->partial);
    if (r == 0 && rename(save->partial, folder) < 0)
        r = fault_errno(save->fault, "cannot rename %.300s to %.300s", save->partial, folder);
    if (r < 0)
        remove_files(save);
    close(save->folder_fd);
    return r;
}

int model_save(const char *shape, const char *folder, uint64_t file_bytes_max,
               const struct engine_progress *progress, struct fault *fault)
{
    struct save save = {
        .piece_bytes = PIECE_BYTES, .progress = progress, .began_ns = clock_now(), .fault = fault};
    char whole[PATH_BYTES - sizeof ".partial"];
    uint32_t threads = cpu_threads_available();
    size_t bytes = strlen(folder);
    int r;

    while (bytes > 1 && folder[bytes - 1] == '/')
        bytes--;
    if (bytes == 0 || bytes >= sizeof whole)
        return fault_set(fault, E_INVALID, "the folder's name is %s", bytes ? "too long" : "empty");
    snprintf(whole, sizeof whole, "%.*s", (int)bytes, folder);
    snprintf(save.partial, sizeof save.partial, "%s.partial", whole);
    r = model_open_random(shape, &save.model, fault);
    if (r < 0)
        return r;
    r = list_tensors(&save, shape, file_bytes_max ? file_bytes_max : FILE_BYTES_MAX);
    if (r < 0)
        goto out;
    save.piece = malloc(save.piece_bytes);
    if (!save.piece) {
        r = fault_set(fault, E_MEMORY, "out of memory for a piece of %zu bytes", save.piece_bytes);
        goto out;
    }
    r = pool_open(threads < POOL_THREADS_MAX ? threads : POOL_THREADS_MAX, &save.pool, fault);
    if (r == 0)
        r = save_into(&save, shape, whole);
out:
    pool_close(save.pool);
    free(save.piece);
    free(save.tensors);
    model_close(save.model);
    return r;
}
