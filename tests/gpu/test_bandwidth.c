/* test_bandwidth.c -- reading device memory as fast as the card does: sizes that blocks cannot
 * share out evenly, how much of them was read (run it under compute-sanitizer to see that it is no
 * more), and that a pass over gigabytes takes the time of gigabytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/kernels.h"

enum { REMAINDER_MOST = 32768 }; /* what a block leaves of its share */

static struct cuda_context context;
static struct cuda_stream stream;
static uint32_t *sink;

static void reads_whole_shares(void **state)
{
    const size_t shares = (size_t)context.properties.multiprocessors * 8;
    const size_t sizes[] = {0,
                            1,
                            16384 * shares / 8 - 1,
                            16384 * shares / 8,
                            16384 * shares + 16,
                            3 * REMAINDER_MOST * shares + 100001};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory;
        size_t read;

        assert_int_equal(cuda_allocate(&context, sizes[i], &memory), 0);
        assert_int_equal(cuda_fill(&stream, memory, 0x5a, sizes[i]), 0);
        assert_int_equal(cuda_read_memory(&stream, memory, sizes[i], sink, &read), 0);
        assert_int_equal(cuda_stream_synchronize(&stream), 0);
        assert_true(read <= sizes[i]);
        assert_true(read + REMAINDER_MOST * shares > sizes[i]);
        cuda_release(&context, memory);
    }
}

static float pass_ms(const void *memory, size_t bytes, size_t *ret_read)
{
    struct CUevent_st *began, *ended;
    float ms = 0;

    assert_int_equal(cuda_event_open(&context, true, &began), 0);
    assert_int_equal(cuda_event_open(&context, true, &ended), 0);
    assert_int_equal(cuda_event_record(&stream, began), 0);
    assert_int_equal(cuda_read_memory(&stream, memory, bytes, sink, ret_read), 0);
    assert_int_equal(cuda_event_record(&stream, ended), 0);
    assert_int_equal(cuda_event_wait(&context, ended), 0);
    assert_int_equal(cuda_event_between(&context, began, ended, &ms), 0);
    cuda_event_close(&context, began);
    cuda_event_close(&context, ended);
    return ms;
}

/* The least of several: a pause of the host between launch and event counts as time. */
static float least_ms(const void *memory, size_t bytes, size_t *ret_read)
{
    float least = INFINITY;

    for (int i = 0; i < 5; i++) {
        float ms = pass_ms(memory, bytes, ret_read);

        if (ms < least)
            least = ms;
    }
    return least;
}

/* Four times the memory, four times the time: nothing is skipped, nothing comes from a cache. */
static void takes_the_time_of_its_bytes(void **state)
{
    const size_t bytes = (size_t)1 << 30;
    void *memory;
    size_t read;
    float one, four;

    (void)state;
    assert_int_equal(cuda_allocate(&context, 4 * bytes, &memory), 0);
    assert_int_equal(
        cuda_random(&stream, DT_BF16, random_weight_make("x", 0, 1), memory, 2 * (uint64_t)bytes),
        0);
    one = least_ms(memory, bytes, &read);
    four = least_ms(memory, 4 * bytes, &read);
    printf("read %.3f GB in %.3f ms: %.3f TB/s; 1 GB in %.3f ms\n", (double)read * 1e-9,
           (double)four, (double)read / (double)four * 1e-9, (double)one);
    assert_true(four > 3.5f * one && four < 4.5f * one);
    cuda_release(&context, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_whole_shares),
        cmocka_unit_test(takes_the_time_of_its_bytes),
    };
    struct fault fault = {0};
    int r = cuda_context_open(&context, &fault);

    if (r == 0)
        r = cuda_stream_open(&context, &stream);
    if (r == 0)
        r = cuda_allocate(&context, sizeof *sink, (void **)&sink);
    if (r < 0) {
        fprintf(stderr, "%s\n", fault.code ? fault.message : context.failure.message);
        return 77;
    }
    r = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_release(&context, sink);
    cuda_stream_close(&stream);
    return r;
}
