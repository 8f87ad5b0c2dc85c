/* checkpoint.c -- see checkpoint.h. */
#include "engine/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/checkpoint_index.h"
#include "engine/file_read.h"
#include "engine/hf_quantization.h"
#include "engine/safetensors.h"

enum {
    PATH_BYTES = 4608,
    PRINTED_NAME = 120,
    CONFIG_BYTES_MAX = 16 << 20,
    INDEX_BYTES_MAX = 64 << 20,
    TENSORS_MAX = 1 << 22,
};

static const char weights_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct checkpoint {
    char *path;
    const struct gguf *gguf;
    struct gguf *own_gguf; /* to be closed here */
    struct buf config;
    struct safetensors **files;
    uint32_t file_count;
    struct stored_tensor *tensors;
    uint32_t tensor_count;
    struct name_index index;
    struct hf_quantization *quantization; /* of a folder whose weights need tables */
    uint64_t bytes;
};

/* --- files of a folder --------------------------------------------------------------------- */

static int path_in(const struct checkpoint *checkpoint, const char *name,
                   char path[static PATH_BYTES], struct fault *fault)
{
    int bytes = snprintf(path, PATH_BYTES, "%s/%s", checkpoint->path, name);

    if (bytes < 0 || bytes >= PATH_BYTES)
        return fault_set(fault, E_TOO_LARGE, "the path of %.100s in %.200s is too long", name,
                         checkpoint->path);
    return 0;
}

static bool is_there(const struct checkpoint *checkpoint, const char *name)
{
    char path[PATH_BYTES];

    return path_in(checkpoint, name, path, NULL) == 0 && access(path, F_OK) == 0;
}

static int read_text(const struct checkpoint *checkpoint, const char *name, struct buf *text,
                     struct fault *fault)
{
    char path[PATH_BYTES];
    int r = path_in(checkpoint, name, path, fault);

    return r < 0 ? r : file_read(path, text, fault);
}

static int open_file(struct checkpoint *checkpoint, const char *name, struct fault *fault)
{
    struct safetensors *file;
    char path[PATH_BYTES];
    int r = path_in(checkpoint, name, path, fault);

    if (r == 0)
        r = safetensors_open(path, &file, fault);
    if (r < 0)
        return r;
    checkpoint->files[checkpoint->file_count++] = file;
    checkpoint->bytes += safetensors_bytes(file);
    return 0;
}

static int take_files(struct checkpoint *checkpoint, uint32_t count, struct fault *fault)
{
    checkpoint->files = calloc(count, sizeof *checkpoint->files);
    return checkpoint->files
               ? 0
               : fault_set(fault, E_MEMORY, "out of memory for the files of %s", checkpoint->path);
}

/* --- the list of tensors ------------------------------------------------------------------- */

static int index_tensors(struct checkpoint *checkpoint, struct fault *fault)
{
    char printed[PRINTED_NAME];
    uint32_t twice;
    int r = name_index_build(&checkpoint->index, checkpoint->tensors, sizeof *checkpoint->tensors,
                             checkpoint->tensor_count, &twice);

    if (r < 0)
        return fault_set(fault, r, "out of memory for the tensors of %s", checkpoint->path);
    if (r == 0)
        return 0;
    gguf_string_print(checkpoint->tensors[twice].name, printed, sizeof printed);
    return fault_set(fault, E_CORRUPT, "%s: the tensor %s is in two files", checkpoint->path,
                     printed);
}

static int take_tensors(struct checkpoint *checkpoint, uint64_t count, struct fault *fault)
{
    if (count > TENSORS_MAX)
        return fault_set(fault, E_TOO_LARGE, "%s holds more than %d tensors", checkpoint->path,
                         TENSORS_MAX);
    checkpoint->tensors = calloc((size_t)count + 1, sizeof *checkpoint->tensors);
    return checkpoint->tensors ? 0
                               : fault_set(fault, E_MEMORY, "out of memory for the tensors of %s",
                                           checkpoint->path);
}

static int gather_tensors(struct checkpoint *checkpoint, struct fault *fault)
{
    uint64_t count = 0;
    int r;

    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        count += safetensors_count(checkpoint->files[i]);
    r = take_tensors(checkpoint, count, fault);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < checkpoint->file_count; i++) {
        for (uint32_t j = 0; j < safetensors_count(checkpoint->files[i]); j++)
            checkpoint->tensors[checkpoint->tensor_count++] =
                *safetensors_at(checkpoint->files[i], j);
    }
    return index_tensors(checkpoint, fault);
}

static void convert_gguf(const struct gguf_tensor *from, struct stored_tensor *to)
{
    *to = (struct stored_tensor){.name = from->name,
                                 .known = from->known,
                                 .type = from->type,
                                 .dimension_count = from->dimension_count,
                                 .data = from->data,
                                 .bytes = from->bytes};
    for (uint32_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++)
        to->dimensions[i] = i < GGUF_DIMENSIONS_MAX ? from->dimensions[i] : 1;
    if (from->known)
        snprintf(to->format, sizeof to->format, "%s", dtype_get(from->type)->name);
    else
        snprintf(to->format, sizeof to->format, "type %" PRIu32 " (%s)", from->code,
                 dtype_gguf_refused(from->code));
}

static int gather_gguf(struct checkpoint *checkpoint, struct fault *fault)
{
    uint64_t count = gguf_tensor_count(checkpoint->gguf);
    int r = take_tensors(checkpoint, count, fault);

    if (r < 0)
        return r;
    for (uint64_t i = 0; i < count; i++)
        convert_gguf(gguf_tensor_at(checkpoint->gguf, i),
                     &checkpoint->tensors[checkpoint->tensor_count++]);
    checkpoint->bytes = gguf_bytes(checkpoint->gguf);
    return index_tensors(checkpoint, fault);
}

/* --- folders ------------------------------------------------------------------------------- */

/* Every tensor lies where the index says. */
static int check_index(const struct checkpoint *checkpoint, const struct checkpoint_index *index,
                       struct fault *fault)
{
    for (uint32_t i = 0; i < index->tensor_count; i++) {
        const struct indexed_tensor *line = &index->tensors[i];
        const struct stored_tensor *tensor = checkpoint_tensor_find(checkpoint, line->name);
        const struct safetensors *file = checkpoint->files[line->file];
        uint32_t count = safetensors_count(file);
        const uint8_t *at = tensor ? tensor->data : NULL;

        /* A file's tensors lie in their order. */
        if (at && count > 0 && at >= (const uint8_t *)safetensors_at(file, 0)->data &&
            at <= (const uint8_t *)safetensors_at(file, count - 1)->data)
            continue;
        return fault_set(fault, E_CORRUPT,
                         "%s says that the tensor %.150s is in %.100s, but it is not there",
                         index_name, line->name, index->files[line->file]);
    }
    return 0;
}

static int open_indexed(struct checkpoint *checkpoint, const struct checkpoint_index *index,
                        struct fault *fault)
{
    int r = take_files(checkpoint, index->file_count, fault);

    for (uint32_t i = 0; i < index->file_count && r == 0; i++) {
        r = open_file(checkpoint, index->files[i], fault);
        if (r < 0)
            fault_prefix(fault, "%s names %.100s", index_name, index->files[i]);
    }
    if (r == 0)
        r = gather_tensors(checkpoint, fault);
    return r < 0 ? r : check_index(checkpoint, index, fault);
}

static int open_single(struct checkpoint *checkpoint, const char *name, struct fault *fault)
{
    int r = take_files(checkpoint, 1, fault);

    if (r == 0)
        r = open_file(checkpoint, name, fault);
    return r < 0 ? r : gather_tensors(checkpoint, fault);
}

static int no_weights(const struct checkpoint *checkpoint, struct fault *fault)
{
    static const struct {
        const char *name;
        const char *advice;
    } others[] = {
        {"pytorch_model.bin", "PyTorch's own files are not read: convert them to safetensors"},
        {"pytorch_model.bin.index.json",
         "PyTorch's own files are not read: convert them to safetensors"},
        {"consolidated.safetensors", "consolidated.safetensors has other names for the tensors: "
                                     "fetch the files in Hugging Face's layout"},
    };
    const char *advice = "are all files there?";

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (is_there(checkpoint, others[i].name)) {
            advice = others[i].advice;
            break;
        }
    }
    return fault_set(fault, E_NOT_FOUND, "%s has neither %s nor %s: %s", checkpoint->path,
                     weights_name, index_name, advice);
}

/* `name`: the .safetensors file that the path named, or NULL. */
static int open_weights(struct checkpoint *checkpoint, const char *name, struct fault *fault)
{
    struct checkpoint_index index = {0};
    bool indexed = is_there(checkpoint, index_name);
    struct buf text;
    int r = 0;

    if (!name && is_there(checkpoint, weights_name))
        name = weights_name;
    if (!indexed || (name && strcmp(name, weights_name) == 0))
        return name ? open_single(checkpoint, name, fault) : no_weights(checkpoint, fault);
    buf_init(&text, INDEX_BYTES_MAX);
    r = read_text(checkpoint, index_name, &text, fault);
    if (r == 0) {
        r = checkpoint_index_read(buf_string(&text), text.bytes, &index, fault);
        if (r < 0)
            fault_prefix(fault, "%s/%s", checkpoint->path, index_name);
    }
    if (r == 0 && name && !checkpoint_index_names(&index, name))
        r = open_single(checkpoint, name, fault);
    else if (r == 0)
        r = open_indexed(checkpoint, &index, fault);
    checkpoint_index_fini(&index);
    buf_fini(&text);
    return r;
}

/* Sets of tensors that are one weight become one in the list. */
static int join_quantized(struct checkpoint *checkpoint, struct fault *fault)
{
    const struct buf *config = &checkpoint->config;
    int r = hf_quantization_apply(buf_string(config), config->bytes, checkpoint->tensors,
                                  &checkpoint->tensor_count, &checkpoint->quantization, fault);

    if (r < 0)
        return fault_prefix(fault, "%s", checkpoint->path), r;
    if (!checkpoint->quantization)
        return 0;
    name_index_close(&checkpoint->index);
    return index_tensors(checkpoint, fault);
}

static int open_folder(struct checkpoint *checkpoint, const char *name, struct fault *fault)
{
    int r;

    if (!is_there(checkpoint, "config.json"))
        return fault_set(fault, E_NOT_FOUND,
                         "%s has no config.json: a model's folder has one beside its weights",
                         checkpoint->path);
    r = read_text(checkpoint, "config.json", &checkpoint->config, fault);
    if (r == 0)
        r = open_weights(checkpoint, name, fault);
    return r < 0 ? r : join_quantized(checkpoint, fault);
}

/* --- opening ------------------------------------------------------------------------------- */

static struct checkpoint *checkpoint_new(const char *path, size_t bytes)
{
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);

    if (!checkpoint)
        return NULL;
    buf_init(&checkpoint->config, CONFIG_BYTES_MAX);
    checkpoint->path = strndup(path, bytes);
    if (!checkpoint->path) {
        free(checkpoint);
        return NULL;
    }
    return checkpoint;
}

static int finish(int r, struct checkpoint *checkpoint, struct checkpoint **ret_checkpoint)
{
    if (r < 0)
        checkpoint_close(checkpoint);
    else
        *ret_checkpoint = checkpoint;
    return r;
}

/* `path` as a folder, and what stands for its weights. */
static int open_as_folder(const char *path, size_t bytes, const char *name,
                          struct checkpoint **ret_checkpoint, struct fault *fault)
{
    bool nameless = path[bytes - 1] == '.' &&
                    (bytes == 1 || path[bytes - 2] == '/' || (bytes > 1 && path[bytes - 2] == '.'));
    struct checkpoint *checkpoint = checkpoint_new(path, bytes);

    if (!checkpoint)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", path);
    if (nameless) { /* "." and "..": the model is called as the folder is */
        char *whole = realpath(checkpoint->path, NULL);

        if (whole) {
            free(checkpoint->path);
            checkpoint->path = whole;
        }
    }
    return finish(open_folder(checkpoint, name, fault), checkpoint, ret_checkpoint);
}

int checkpoint_open(const char *path, struct checkpoint **ret_checkpoint, struct fault *fault)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t bytes = strlen(path);
    struct checkpoint *checkpoint;
    struct stat info;
    int r;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        while (bytes > 1 && path[bytes - 1] == '/')
            bytes--;
        return open_as_folder(path, bytes, NULL, ret_checkpoint, fault);
    }
    if (strlen(base) > 12 && strcmp(base + strlen(base) - 12, ".safetensors") == 0) {
        if (!slash)
            return open_as_folder(".", 1, base, ret_checkpoint, fault);
        bytes = slash == path ? 1 : (size_t)(slash - path);
        return open_as_folder(path, bytes, base, ret_checkpoint, fault);
    }
    checkpoint = checkpoint_new(path, bytes);
    if (!checkpoint)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", path);
    r = gguf_open(path, &checkpoint->own_gguf, fault);
    checkpoint->gguf = checkpoint->own_gguf;
    if (r == 0)
        r = gather_gguf(checkpoint, fault);
    return finish(r, checkpoint, ret_checkpoint);
}

int checkpoint_open_gguf(const struct gguf *file, struct checkpoint **ret_checkpoint,
                         struct fault *fault)
{
    struct checkpoint *checkpoint = checkpoint_new(gguf_path(file), strlen(gguf_path(file)));

    if (!checkpoint)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", gguf_path(file));
    checkpoint->gguf = file;
    return finish(gather_gguf(checkpoint, fault), checkpoint, ret_checkpoint);
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        safetensors_close(checkpoint->files[i]);
    free(checkpoint->files);
    free(checkpoint->tensors);
    name_index_close(&checkpoint->index);
    hf_quantization_close(checkpoint->quantization);
    gguf_close(checkpoint->own_gguf);
    buf_fini(&checkpoint->config);
    free(checkpoint->path);
    free(checkpoint);
}

void checkpoint_rest(const struct checkpoint *checkpoint)
{
    if (checkpoint->gguf)
        gguf_rest(checkpoint->gguf);
    for (uint32_t i = 0; i < checkpoint->file_count; i++)
        safetensors_rest(checkpoint->files[i]);
}

/* --- reading ------------------------------------------------------------------------------- */

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
}

const struct gguf *checkpoint_gguf(const struct checkpoint *checkpoint)
{
    return checkpoint->gguf;
}

const struct buf *checkpoint_config(const struct checkpoint *checkpoint)
{
    must(!checkpoint->gguf);
    return &checkpoint->config;
}

uint64_t checkpoint_bytes(const struct checkpoint *checkpoint)
{
    return checkpoint->bytes;
}

uint32_t checkpoint_file_count(const struct checkpoint *checkpoint)
{
    return checkpoint->gguf ? 1 : checkpoint->file_count;
}

uint32_t checkpoint_tensor_count(const struct checkpoint *checkpoint)
{
    return checkpoint->tensor_count;
}

const struct stored_tensor *checkpoint_tensor_at(const struct checkpoint *checkpoint,
                                                 uint32_t index)
{
    must(index < checkpoint->tensor_count);
    return &checkpoint->tensors[index];
}

const struct stored_tensor *checkpoint_tensor_find(const struct checkpoint *checkpoint,
                                                   const char *name)
{
    return name_index_find(&checkpoint->index, checkpoint->tensors, sizeof *checkpoint->tensors,
                           (struct gguf_string){name, strlen(name)});
}

void checkpoint_print_shape(const struct checkpoint *checkpoint, const struct stored_tensor *tensor,
                            char *ret_text, size_t room)
{
    uint32_t count = tensor->dimension_count;
    struct buf text;

    buf_init_fixed(&text, ret_text, room);
    for (uint32_t i = 0; i < count; i++) {
        if (checkpoint->gguf)
            buf_format(&text, "%s%" PRIu64, i > 0 ? " x " : "", tensor->dimensions[i]);
        else
            buf_format(&text, "%s%" PRIu64, i > 0 ? ", " : "[", tensor->dimensions[count - 1 - i]);
    }
    if (!checkpoint->gguf)
        buf_text(&text, count > 0 ? "]" : "[]");
    ret_text[text.bytes] = '\0';
}
