/* checkpoint_index.c -- see checkpoint_index.h. */
#include "engine/checkpoint_index.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/json.h"

enum { FILES_MAX = 4096, TENSORS_MAX = 1 << 22, FILE_NAME_BYTES_MAX = 255 };

/* A file of the folder itself: nothing that climbs out of it, into it, or means the folder. */
static bool is_plain_name(const char *name)
{
    size_t bytes = strlen(name);

    return bytes > 0 && bytes <= FILE_NAME_BYTES_MAX && !strchr(name, '/') && !strchr(name, '\\') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int compare_texts(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;

    return strcmp(*one, *other);
}

static uint32_t find_file(const struct checkpoint_index *index, const char *name, bool *ret_found)
{
    const char **at =
        bsearch(&name, index->files, index->file_count, sizeof *index->files, compare_texts);

    *ret_found = at != NULL;
    return at ? (uint32_t)(at - index->files) : 0;
}

/* Copies all names, because the tree will go. */
static int copy_names(struct checkpoint_index *index, json_t *map, struct fault *fault)
{
    size_t count = json_object_size(map), bytes = 0;
    const char *key;
    json_t *value;
    char *at;

    json_object_foreach(map, key, value)
    {
        const char *file = json_string_value(value);

        if (!file || !is_plain_name(file))
            return fault_set(fault, E_CORRUPT,
                             "the tensor %.100s is said to be in '%.80s', which is no name of a "
                             "file in the folder",
                             key, file ? file : "(no text)");
        bytes += strlen(key) + 1 + strlen(file) + 1;
    }
    index->text = malloc(bytes);
    index->tensors = calloc(count, sizeof *index->tensors);
    index->files = calloc(count, sizeof *index->files);
    if (!index->text || !index->tensors || !index->files)
        return fault_set(fault, E_MEMORY, "out of memory for %zu tensors", count);
    at = index->text;
    json_object_foreach(map, key, value)
    {
        const char *const texts[] = {key, json_string_value(value)};

        index->tensors[index->tensor_count++].name = at;
        index->files[index->file_count++] = at + strlen(key) + 1;
        for (size_t i = 0; i < 2; i++) {
            size_t length = strlen(texts[i]) + 1;

            memcpy(at, texts[i], length);
            at += length;
        }
    }
    return 0;
}

/* Sorts the files and keeps each once; then each tensor is told its file. */
static int number_files(struct checkpoint_index *index, struct fault *fault)
{
    uint32_t kept = 1;
    bool found;

    qsort(index->files, index->file_count, sizeof *index->files, compare_texts);
    for (uint32_t i = 1; i < index->file_count; i++) {
        if (strcmp(index->files[i], index->files[kept - 1]) != 0)
            index->files[kept++] = index->files[i];
    }
    index->file_count = kept;
    if (kept > FILES_MAX)
        return fault_set(fault, E_TOO_LARGE, "it names more than %d files", FILES_MAX);
    for (uint32_t i = 0; i < index->tensor_count; i++) {
        struct indexed_tensor *tensor = &index->tensors[i];

        /* The file's name stands behind the tensor's. */
        tensor->file = find_file(index, tensor->name + strlen(tensor->name) + 1, &found);
        must(found);
    }
    return 0;
}

static int read_root(struct checkpoint_index *index, const json_t *root, struct fault *fault)
{
    json_t *map = json_object_get(root, "weight_map");
    int r;

    if (!json_is_object(map) || json_object_size(map) == 0)
        return fault_set(fault, E_CORRUPT, "there is no 'weight_map' with the tensors' files");
    if (json_object_size(map) > TENSORS_MAX)
        return fault_set(fault, E_TOO_LARGE, "it names more than %d tensors", TENSORS_MAX);
    r = copy_names(index, map, fault);
    return r < 0 ? r : number_files(index, fault);
}

int checkpoint_index_read(const char *text, size_t bytes, struct checkpoint_index *ret_index,
                          struct fault *fault)
{
    struct checkpoint_index index = {0};
    json_t *root = NULL;
    int r = json_parse_unique(text, bytes, &root, fault);

    if (r == E_INVALID && fault)
        fault->code = E_CORRUPT;
    if (r < 0)
        return r == E_INVALID ? E_CORRUPT : r;
    r = read_root(&index, root, fault);
    json_decref(root);
    if (r < 0)
        checkpoint_index_fini(&index);
    else
        *ret_index = index;
    return r;
}

void checkpoint_index_fini(struct checkpoint_index *index)
{
    free(index->text);
    free(index->tensors);
    free(index->files);
    *index = (struct checkpoint_index){0};
}

bool checkpoint_index_names(const struct checkpoint_index *index, const char *file)
{
    bool found;

    (void)find_file(index, file, &found);
    return found;
}
