/* Protects the opening of checkpoints in folders: tensors of all files are found by their names,
 * weights are bound to where they lie in the mapping, and every allocation may fail. (Broken files:
 * tests/e2e/test_broken_checkpoints.py.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/checkpoint_index.h"
#include "engine/model.h"
#include "engine/model_save.h"
#include "engine/safetensors.h"
#include "tests/lib/failing_malloc.h"

enum { PATH_BYTES = 256, FILE_BYTES_MAX = 40000 };

static const char shape[] = "tests/gpu/tiny.json";
static char root[] = "/tmp/weft_checkpoint_XXXXXX";
static char sharded[PATH_BYTES], whole[PATH_BYTES];

static int make_folders(void **state)
{
    const struct engine_progress quiet = {0};
    struct fault fault = {0};

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(sharded, sizeof sharded, "%s/sharded", root);
    snprintf(whole, sizeof whole, "%s/whole", root);
    if (model_save(shape, sharded, FILE_BYTES_MAX, &quiet, &fault) < 0 ||
        model_save(shape, whole, 0, &quiet, &fault) < 0)
        fail_msg("%s", fault.message);
    return 0;
}

static int remove_folders(void **state)
{
    char command[PATH_BYTES];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static struct checkpoint *open_right(const char *path)
{
    struct checkpoint *checkpoint = NULL;
    struct fault fault = {0};

    if (checkpoint_open(path, &checkpoint, &fault) < 0)
        fail_msg("%s", fault.message);
    return checkpoint;
}

/* One list, whatever the number of files; the same bytes. */
static void finds_tensors_of_all_files(void **state)
{
    struct checkpoint *several = open_right(sharded), *one = open_right(whole);

    (void)state;
    assert_true(checkpoint_file_count(several) > 2);
    assert_int_equal(checkpoint_file_count(one), 1);
    assert_int_equal(checkpoint_tensor_count(several), checkpoint_tensor_count(one));
    assert_null(checkpoint_gguf(one));
    for (uint32_t i = 0; i < checkpoint_tensor_count(one); i++) {
        const struct stored_tensor *tensor = checkpoint_tensor_at(one, i), *same;
        char name[128];

        assert_true(tensor->name.bytes < sizeof name);
        memcpy(name, tensor->name.text, tensor->name.bytes);
        name[tensor->name.bytes] = '\0';
        assert_ptr_equal(checkpoint_tensor_find(one, name), tensor);
        same = checkpoint_tensor_find(several, name);
        assert_non_null(same);
        assert_int_equal(same->bytes, tensor->bytes);
        assert_memory_equal(same->data, tensor->data, tensor->bytes);
    }
    assert_null(checkpoint_tensor_find(one, "model.layers.0"));
    checkpoint_close(several);
    checkpoint_close(one);
}

static void binds_where_they_lie(void **state)
{
    struct checkpoint *checkpoint = open_right(sharded);
    struct model *model = NULL;
    struct fault fault = {0};

    (void)state;
    if (model_open(checkpoint, &model, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_string_equal(model->name, "sharded");
    assert_int_equal(model->rope, ROPE_HALVES);
    assert_int_equal(model->ignored_count, 0);
    assert_ptr_equal(
        model->layers[0].qkv.parts[1].data,
        checkpoint_tensor_find(checkpoint, "model.layers.0.self_attn.k_proj.weight")->data);
    model_close(model);
    checkpoint_close(checkpoint);
}

static void survives_a_failing_allocation(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct checkpoint *checkpoint = NULL;
        struct model *model = NULL;
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = checkpoint_open(sharded, &checkpoint, &fault);
        if (r == 0)
            r = model_open(checkpoint, &model, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_true(nth > 20);
            model_close(model);
            checkpoint_close(checkpoint);
            return;
        }
        if (r == 0) { /* stdio's own buffer is not needed */
            model_close(model);
            checkpoint_close(checkpoint);
            continue;
        }
        if (r != E_MEMORY && r != -12)
            fail_msg("allocation %llu: code %d, %s", (unsigned long long)nth, r, fault.message);
        assert_int_not_equal(fault.message[0], 0);
        assert_null(model);
        checkpoint_close(checkpoint);
    }
}

static void reads_an_index(void **state)
{
    static const char text[] = "{\"weight_map\": {\"b\": \"two\", \"a\": \"one\", \"c\": \"two\"}}";
    struct checkpoint_index index = {0};

    (void)state;
    assert_int_equal(checkpoint_index_read(text, strlen(text), &index, NULL), 0);
    assert_int_equal(index.tensor_count, 3);
    assert_int_equal(index.file_count, 2);
    assert_string_equal(index.files[0], "one");
    for (uint32_t i = 0; i < index.tensor_count; i++)
        assert_int_equal(index.tensors[i].file, strcmp(index.tensors[i].name, "a") != 0);
    assert_true(checkpoint_index_names(&index, "two"));
    assert_false(checkpoint_index_names(&index, "a"));
    checkpoint_index_fini(&index);
    assert_int_equal(checkpoint_index_read("{}", 2, &index, NULL), E_CORRUPT);
}

/* --- thousands of cuts and flips ------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Opens a block of exactly that size. 1: it opened, and all that it shows lies inside. */
static int survive(const uint8_t *from, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);
    struct safetensors *file = NULL;
    struct fault fault = {0};
    int r;

    assert_non_null(copy);
    memcpy(copy, from, bytes);
    r = safetensors_open_memory(copy, bytes, "hostile", &file, &fault);
    assert_true(r <= 0);
    assert_true(r == 0 || fault.message[0]);
    for (uint32_t i = 0; file && i < safetensors_count(file); i++) {
        const struct stored_tensor *tensor = safetensors_at(file, i);

        assert_true((const uint8_t *)tensor->data >= copy);
        assert_true((const uint8_t *)tensor->data + tensor->bytes <= copy + bytes);
    }
    safetensors_close(file);
    free(copy);
    return r == 0;
}

static void survives_cuts_and_flips(void **state)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}";
    uint8_t file[8 + sizeof header - 1 + 32] = {sizeof header - 1};
    uint64_t seed = 88172645463325252u;
    uint32_t opened = 0;

    (void)state;
    memcpy(file + 8, header, sizeof header - 1);
    assert_int_equal(survive(file, sizeof file), 1);
    for (size_t bytes = 0; bytes < sizeof file; bytes++)
        assert_int_equal(survive(file, bytes), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        uint8_t changed[sizeof file];

        memcpy(changed, file, sizeof file);
        for (uint64_t flips = 1 + next_random(&seed) % 3; flips > 0; flips--)
            changed[next_random(&seed) % (sizeof file - 32)] ^= 1 << next_random(&seed) % 8;
        opened += (uint32_t)survive(changed, sizeof changed);
    }
    assert_true(opened < 4000); /* flips in names, mostly */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_tensors_of_all_files),    cmocka_unit_test(binds_where_they_lie),
        cmocka_unit_test(survives_a_failing_allocation), cmocka_unit_test(reads_an_index),
        cmocka_unit_test(survives_cuts_and_flips),
    };

    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
