/* Protects what tests/e2e/test_save.py cannot reach: division into several files with their index,
 * and that a save which fails at any allocation leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "engine/model_save.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/folder.h"

enum { PATH_ROOM = 256 };

static const char shape_text[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"
    "\"vocab_size\":500,\"torch_dtype\":\"float16\"}";

struct place {
    char root[PATH_ROOM / 4];
    char shape[PATH_ROOM / 2];
    char folder[PATH_ROOM / 2];
};

static void place_open(struct place *place)
{
    FILE *stream;

    snprintf(place->root, sizeof place->root, "/tmp/weft-save-XXXXXX");
    assert_non_null(mkdtemp(place->root));
    snprintf(place->shape, sizeof place->shape, "%s/shape.json", place->root);
    snprintf(place->folder, sizeof place->folder, "%s/model", place->root);
    stream = fopen(place->shape, "w");
    assert_non_null(stream);
    assert_true(fputs(shape_text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static uint32_t count_entries(const char *path)
{
    DIR *folder = opendir(path);
    uint32_t count = 0;

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2; /* . and .. */
}

static void place_close(const struct place *place)
{
    assert_int_equal(unlink(place->shape), 0);
    assert_int_equal(rmdir(place->root), 0); /* nothing else is left in it */
}

/* A whole file, and the JSON in it that begins at `at`, `bytes` long (0: to the end). */
static json_t *read_json(const char *folder, const char *name, bool header, size_t *ret_data_bytes)
{
    char path[PATH_ROOM];
    size_t bytes, at = 0, length;
    uint64_t header_bytes;
    json_t *value = NULL;
    struct fault fault = {0};
    FILE *stream;
    char *text;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    bytes = (size_t)ftell(stream);
    rewind(stream);
    text = malloc(bytes);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, bytes, stream), bytes);
    fclose(stream);
    length = bytes;
    if (header) {
        memcpy(&header_bytes, text, sizeof header_bytes);
        assert_int_equal(header_bytes % 8, 0);
        assert_true(header_bytes < bytes);
        at = sizeof header_bytes;
        length = (size_t)header_bytes;
        *ret_data_bytes = bytes - at - length;
    }
    if (json_parse(text + at, length, &value, &fault) < 0)
        fail_msg("%s: %s", name, fault.message);
    free(text);
    return value;
}

static void divides_into_files(void **state)
{
    const struct engine_progress silent = {0};
    char name[64];
    struct place place;
    struct fault fault = {0};
    json_t *index, *map, *header, *tensor;
    const char *key;
    size_t data_bytes, total = 0;
    uint32_t tensors = 0;

    (void)state;
    place_open(&place);
    /* Embedding and head take 64,000 bytes each, a layer 61,696: three tensors are alone. */
    if (model_save(place.shape, place.folder, 70000, &silent, &fault) < 0)
        fail_msg("%s", fault.message);
    index = read_json(place.folder, "model.safetensors.index.json", false, NULL);
    map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), 3 + 3 * 9);
    assert_int_equal(count_entries(place.folder), 5 + 2);
    for (int file = 1; file <= 5; file++) {
        snprintf(name, sizeof name, "model-%05d-of-00005.safetensors", file);
        header = read_json(place.folder, name, true, &data_bytes);
        total += data_bytes;
        assert_true(data_bytes > 0 && data_bytes <= 70000);
        json_object_foreach(header, key, tensor)
        {
            if (strcmp(key, "__metadata__") == 0)
                continue;
            tensors++;
            assert_string_equal(json_string_value(json_object_get(map, key)), name);
            assert_true(json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"),
                                                          1)) <= (json_int_t)data_bytes);
        }
        json_decref(header);
    }
    assert_int_equal(tensors, json_object_size(map));
    assert_int_equal(total, json_integer_value(
                                json_object_get(json_object_get(index, "metadata"), "total_size")));
    json_decref(index);
    remove_folder(place.folder);
    place_close(&place);
}

static void trailing_slashes_are_no_name(void **state)
{
    const struct engine_progress silent = {0};
    char folder[PATH_ROOM], long_name[5000];
    struct place place;
    struct fault fault = {0};

    (void)state;
    place_open(&place);
    snprintf(folder, sizeof folder, "%s//", place.folder);
    assert_int_equal(model_save(place.shape, folder, 0, &silent, &fault), 0);
    assert_int_equal(count_entries(place.folder), 2);
    assert_int_equal(model_save(place.shape, folder, 0, &silent, &fault), -EEXIST);
    remove_folder(place.folder);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_int_equal(model_save(place.shape, long_name, 0, &silent, &fault), E_INVALID);
    assert_int_equal(model_save(place.shape, "", 0, &silent, &fault), E_INVALID);
    place_close(&place);
}

static void failing_allocations_leave_nothing(void **state)
{
    const struct engine_progress silent = {0};
    struct place place;
    int failures = 0;

    (void)state;
    place_open(&place);
    for (uint64_t nth = 1;; nth++) {
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = model_save(place.shape, place.folder, 70000, &silent, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            remove_folder(place.folder);
            break;
        }
        if (r == 0) { /* it was not needed */
            remove_folder(place.folder);
            continue;
        }
        failures++;
        assert_int_equal(fault.code, r);
        assert_int_equal(count_entries(place.root), 1); /* the shape */
    }
    assert_true(failures >= 5);
    place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_into_files),
        cmocka_unit_test(trailing_slashes_are_no_name),
        cmocka_unit_test(failing_allocations_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
