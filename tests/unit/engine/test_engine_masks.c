/* Protects masks on the CPU: see tests/lib/masked_rows.h. */
#include "tests/lib/masked_rows.h"

static void rows_on_the_cpu(void **state)
{
    const struct engine_options options = {.random_shape = "tests/gpu/tiny.json",
                                           .device = DEVICE_CPU,
                                           .cpu_activations = ACTIVATIONS_F32,
                                           .threads = 2,
                                           .max_batch = 8,
                                           .max_context = 128,
                                           .kv_bytes = 64 << 20};

    (void)state;
    masked_rows_follow_their_masks(&options, true, 1e-3f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_on_the_cpu)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
