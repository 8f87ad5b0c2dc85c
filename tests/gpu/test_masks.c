/* Protects masks on a GPU, in every way to run steps: see tests/lib/masked_rows.h. */
#include "tests/lib/masked_rows.h"

static void run(struct cuda_options cuda, const char *mode)
{
    struct engine_options options = {.random_shape = "tiny.json",
                                     .device = DEVICE_CUDA,
                                     .cuda = cuda,
                                     .max_batch = 8,
                                     .max_context = 128,
                                     .prefill_tokens = 256};

    printf("%-16s", mode);
    options.cuda.memory_fraction = 0.5;
    options.cuda.type = CUDA_TYPE_F32;
    masked_rows_follow_their_masks(&options, false, 1e-3f);
    options.cuda.type = CUDA_TYPE_AUTO;
    printf("%-16s", "");
    masked_rows_follow_their_masks(&options, false, 0.3f); /* bfloat16, and other kernels */
}

static void every_mode_follows_masks(void **state)
{
    (void)state;
    run((struct cuda_options){0}, "graphs");
    run((struct cuda_options){.no_graphs = true}, "no graphs");
    run((struct cuda_options){.host_sampling = true}, "plain loop");
    run((struct cuda_options){.sampling_stream = true}, "sampling stream");
    run((struct cuda_options){.prefill_lane = true}, "prompts apart");
    run((struct cuda_options){.streams = 2}, "two lanes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_mode_follows_masks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
