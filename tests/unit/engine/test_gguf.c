/* Protects the GGUF reader's promise: every well-formed file is read as it is, and no file at all,
 * however cut, flipped or made up, is more than a fault. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/gguf_builder.h"
#include "tests/lib/gguf_model.h"

#define LLAMA "tests/data/arch/gguf_llama_q4_1/llama-Q4_1.gguf"
#define QWEN3 "tests/data/arch/gguf_qwen3_iq4_nl/qwen3-IQ4_NL.gguf"

enum { HOSTILE_SECONDS = 20 };

static struct gguf_builder builder;

static struct gguf *open_built(void)
{
    struct gguf *file = NULL;
    struct fault fault = {0};

    if (gguf_open_memory(builder.bytes, builder.used, "built", &file, &fault) < 0)
        fail_msg("%s", fault.message);
    return file;
}

/* The built file must be refused with that code and a message that holds `text`. */
static void expect_refusal(int code, const char *text)
{
    struct gguf *file = NULL;
    struct fault fault = {0};
    int r = gguf_open_memory(builder.bytes, builder.used, "built", &file, &fault);

    if (r == 0)
        fail_msg("opened, where \"%s\" was to be expected", text);
    assert_null(file);
    if (r != code || !strstr(fault.message, text))
        fail_msg("code %d, message \"%s\"; expected %d and \"%s\"", r, fault.message, code, text);
}

static void reads_a_real_file(void **state)
{
    struct gguf *file = NULL;
    struct fault fault = {0};
    struct gguf_string string;
    struct gguf_array array;
    const struct gguf_tensor *tensor;
    uint64_t number;
    double real;
    bool yes;

    (void)state;
    assert_int_equal(gguf_open(LLAMA, &file, &fault), 0);
    assert_int_equal(gguf_version(file), 3);
    assert_int_equal(gguf_key_count(file), 23);
    assert_int_equal(gguf_tensor_count(file), 21);
    assert_int_equal(gguf_get_string(file, "general.architecture", &string, &fault), 1);
    assert_int_equal(string.bytes, 5);
    assert_memory_equal(string.text, "llama", 5);
    assert_int_equal(gguf_get_u64(file, "llama.context_length", &number, &fault), 1);
    assert_int_equal(number, 4096);
    assert_int_equal(gguf_get_f64(file, "llama.rope.freq_base", &real, &fault), 1);
    assert_true(real == 10000.0);
    assert_int_equal(gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &yes, &fault), 1);
    assert_true(yes);
    assert_int_equal(gguf_get_array(file, "tokenizer.ggml.tokens", &array, &fault), 1);
    assert_int_equal(array.count, 291);
    string = gguf_array_string(&array, 1);
    assert_int_equal(string.bytes, 3);
    assert_memory_equal(string.text, "<s>", 3);
    assert_int_equal(gguf_get_array(file, "tokenizer.ggml.token_type", &array, &fault), 1);
    assert_int_equal(gguf_array_int(&array, 0), 2);
    assert_int_equal(gguf_get_u64(file, "no.such.key", &number, &fault), 0);
    tensor = gguf_tensor_find(file, "blk.1.ffn_down.weight");
    assert_non_null(tensor);
    assert_true(tensor->known && tensor->type == DT_Q4_1);
    assert_int_equal(tensor->dimensions[0], 160);
    assert_int_equal(tensor->dimensions[1], 96);
    assert_int_equal(tensor->bytes, 160 * 96 / 32 * 20);
    assert_null(gguf_tensor_find(file, "blk.2.ffn_down.weight"));
    gguf_close(file);
}

static void refuses_the_wrong_type_by_name(void **state)
{
    struct gguf *file = NULL;
    struct fault fault = {0};
    struct gguf_array array;
    uint64_t number = 77;

    (void)state;
    assert_int_equal(gguf_open(LLAMA, &file, &fault), 0);
    assert_int_equal(gguf_get_u64(file, "general.architecture", &number, &fault), E_CORRUPT);
    assert_non_null(strstr(fault.message, "general.architecture"));
    assert_int_equal(number, 77);
    assert_int_equal(gguf_get_array(file, "general.name", &array, &fault), E_CORRUPT);
    assert_int_equal(gguf_get_bool(file, "llama.block_count", &(bool){false}, &fault), E_CORRUPT);
    gguf_close(file);
}

static void reads_numbers_of_every_width(void **state)
{
    static const struct {
        uint32_t type;
        uint8_t bytes;
        uint8_t value[8];
        int64_t integer;
        double real;
    } cases[] = {
        {GGUF_U8, 1, {0xff}, 255, 255},
        {GGUF_I8, 1, {0xff}, -1, -1},
        {GGUF_U16, 2, {0x34, 0x12}, 0x1234, 0x1234},
        {GGUF_I16, 2, {0, 0x80}, -32768, -32768},
        {GGUF_U32, 4, {0xff, 0xff, 0xff, 0xff}, 0xffffffff, 0xffffffff},
        {GGUF_I32, 4, {0xfe, 0xff, 0xff, 0xff}, -2, -2},
        {GGUF_U64, 8, {1, 0, 0, 0, 0, 0, 0, 0x80}, INT64_MAX, 0x1p63},
        {GGUF_I64, 8, {0, 0, 0, 0, 0, 0, 0, 0x80}, INT64_MIN, -0x1p63},
        {GGUF_F32, 4, {0, 0, 0x20, 0xc0}, -2, -2.5},
        {GGUF_F64, 8, {0, 0, 0, 0, 0, 0, 0xf8, 0x7f}, INT64_MIN, NAN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf *file;
        struct fault fault = {0};
        struct gguf_array array;
        uint64_t number = 0;
        double real = 0;
        int wanted = cases[i].integer < 0 || cases[i].type == GGUF_F32 ? E_CORRUPT : 1;

        put_header(&builder, 3, 0, 2);
        put_key(&builder, "scalar", cases[i].type);
        put_bytes(&builder, cases[i].value, cases[i].bytes);
        put_key(&builder, "array", GGUF_ARRAY);
        put_u32(&builder, cases[i].type);
        put_u64(&builder, 1);
        put_bytes(&builder, cases[i].value, cases[i].bytes);
        file = open_built();
        assert_int_equal(gguf_get_u64(file, "scalar", &number, &fault), wanted);
        if (wanted == 1 && cases[i].type != GGUF_U64)
            assert_true((int64_t)number == cases[i].integer);
        assert_int_equal(gguf_get_f64(file, "scalar", &real, &fault), 1);
        assert_true(real == cases[i].real || (isnan(real) && isnan(cases[i].real)));
        assert_int_equal(gguf_get_array(file, "array", &array, &fault), 1);
        assert_true(gguf_array_int(&array, 0) == cases[i].integer);
        gguf_close(file);
    }
}

static void prints_values_for_people(void **state)
{
    struct gguf *file;
    char text[200];

    (void)state;
    put_header(&builder, 2, 0, 3);
    put_key(&builder, "name", GGUF_STRING);
    put_string(&builder, "a\xc3\xa4\n\xff\xc2\x85z");
    put_key(&builder, "list", GGUF_ARRAY);
    put_u32(&builder, GGUF_I32);
    put_u64(&builder, 5);
    for (uint32_t i = 0; i < 5; i++)
        put_u32(&builder, 0 - i);
    put_key(&builder, "flag", GGUF_BOOL);
    put_bytes(&builder, "\x01", 1);
    file = open_built();
    gguf_key_print(file, 0, text, sizeof text);
    assert_string_equal(text, "a\xc3\xa4??"
                              "?z");
    gguf_key_print(file, 1, text, sizeof text);
    assert_string_equal(text, "5 x i32 [0, -1, -2, -3, ...]");
    gguf_key_print(file, 2, text, sizeof text);
    assert_string_equal(text, "true");
    for (size_t room = 1; room < 30; room++) { /* any room: cut, and never written past */
        memset(text, 'x', sizeof text);
        gguf_key_print(file, 1, text, room);
        assert_true(strlen(text) < room);
        assert_int_equal(text[room], 'x');
    }
    gguf_close(file);
}

static void refuses_broken_headers(void **state)
{
    (void)state;
    put_header(&builder, 3, 0, 0);
    builder.bytes[0] = 'g';
    expect_refusal(E_CORRUPT, "not a GGUF file");
    put_header(&builder, 1, 0, 0);
    expect_refusal(E_UNSUPPORTED, "version 1");
    put_header(&builder, 0x03000000, 0, 0);
    expect_refusal(E_UNSUPPORTED, "big-endian");
    put_header(&builder, 3, UINT64_MAX, 0);
    expect_refusal(E_CORRUPT, "cannot be in");
    put_header(&builder, 3, 0, UINT64_MAX / 14);
    expect_refusal(E_CORRUPT, "cannot be in");
    put_header(&builder, 3, 1, 1);
    expect_refusal(E_CORRUPT, "cannot be in");
    put_header(&builder, 3, 0, 0);
    builder.used = 0;
    expect_refusal(E_CORRUPT, "not a GGUF file");
}

static void refuses_broken_metadata(void **state)
{
    (void)state;
    put_header(&builder, 3, 0, 1);
    put_u64(&builder, UINT64_MAX); /* a name longer than the file, and than memory */
    put_data(&builder, 64);
    expect_refusal(E_CORRUPT, "ends inside metadata entry 0");

    put_header(&builder, 3, 0, 1);
    put_key(&builder, "key", GGUF_TYPE_COUNT);
    put_data(&builder, 64);
    expect_refusal(E_CORRUPT, "unknown type 13");

    put_header(&builder, 3, 0, 1);
    put_key(&builder, "", GGUF_U8);
    put_data(&builder, 64);
    expect_refusal(E_CORRUPT, "name of 0 bytes");

    put_header(&builder, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&builder, "twice", GGUF_U32);
        put_u32(&builder, 1);
    }
    expect_refusal(E_CORRUPT, "twice occurs twice");

    put_header(&builder, 3, 0, 1);
    put_key(&builder, "nested", GGUF_ARRAY);
    put_u32(&builder, GGUF_ARRAY);
    put_u64(&builder, 1);
    put_data(&builder, 64);
    expect_refusal(E_UNSUPPORTED, "array of arrays");

    /* Counts whose sizes overflow 64 bits, for numbers and for strings. */
    for (uint32_t type = GGUF_STRING; type <= GGUF_U64; type += GGUF_U64 - GGUF_STRING) {
        put_header(&builder, 3, 0, 1);
        put_key(&builder, "many", GGUF_ARRAY);
        put_u32(&builder, type);
        put_u64(&builder, UINT64_MAX / 8 + 2);
        put_data(&builder, 64);
        expect_refusal(E_CORRUPT, "ends inside metadata entry 0");
    }

    for (uint32_t alignment = 0; alignment < 3; alignment++) {
        static const uint32_t wrong[] = {0, 48, 1u << 20};

        put_header(&builder, 3, 0, 1);
        put_key(&builder, "general.alignment", GGUF_U32);
        put_u32(&builder, wrong[alignment]);
        expect_refusal(E_CORRUPT, "general.alignment");
    }
}

static void build_tensor(uint64_t columns, uint64_t rows, uint32_t type, uint64_t offset)
{
    put_header(&builder, 3, 1, 0);
    put_tensor(&builder, "weight", columns, rows, type, offset);
    put_data(&builder, 1024);
}

static void refuses_broken_tensors(void **state)
{
    struct gguf *file;

    (void)state;
    build_tensor(32, 8, 0, 0); /* exactly fits */
    file = open_built();
    assert_int_equal(gguf_tensor_at(file, 0)->bytes, 1024);
    gguf_close(file);

    build_tensor(32, 9, 0, 0);
    expect_refusal(E_CORRUPT, "beyond the end");
    build_tensor(32, 8, 0, 32);
    expect_refusal(E_CORRUPT, "beyond the end");
    build_tensor(32, 1, 0, UINT64_MAX - 31);
    expect_refusal(E_CORRUPT, "beyond the end");
    build_tensor(32, 1, 0, 8);
    expect_refusal(E_CORRUPT, "not aligned");
    build_tensor(0, 1, 0, 0);
    expect_refusal(E_CORRUPT, "size of zero");
    build_tensor(1ull << 33, 1ull << 33, 0, 0);
    expect_refusal(E_CORRUPT, "beyond counting");
    build_tensor(1ull << 32, (1ull << 31) + 1, 0,
                 0); /* the elements fit 64 bits, the bytes do not */
    expect_refusal(E_CORRUPT, "beyond counting");
    build_tensor(16, 2, 3, 0);
    expect_refusal(E_CORRUPT, "whole blocks");

    put_header(&builder, 3, 1, 0);
    put_string(&builder, "weight");
    put_u32(&builder, 5);
    put_data(&builder, 1024);
    expect_refusal(E_CORRUPT, "1 to 4 dimensions");

    put_header(&builder, 3, 2, 0);
    put_tensor(&builder, "weight", 32, 1, 0, 0);
    put_tensor(&builder, "weight", 32, 1, 0, 0);
    put_data(&builder, 1024);
    expect_refusal(E_CORRUPT, "weight occurs twice");

    build_tensor(32, 8, 99, 0); /* an unknown type is the model's affair */
    file = open_built();
    assert_false(gguf_tensor_at(file, 0)->known);
    assert_int_equal(gguf_tensor_at(file, 0)->bytes, 0);
    gguf_close(file);
}

static void refuses_what_is_no_file(void **state)
{
    char path[] = "/tmp/weft-gguf-XXXXXX", pipe_path[64];
    struct gguf *file = NULL;
    struct fault fault = {0};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(gguf_open("/nonexistent.gguf", &file, &fault), -ENOENT);
    assert_non_null(strstr(fault.message, "/nonexistent.gguf"));
    assert_int_equal(gguf_open("/tmp", &file, &fault), E_INVALID);
    assert_non_null(strstr(fault.message, "a folder"));
    assert_int_equal(gguf_open(path, &file, &fault), E_INVALID);
    assert_non_null(strstr(fault.message, "empty"));
    unlink(path);
    snprintf(pipe_path, sizeof pipe_path, "%s.pipe", path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(gguf_open(pipe_path, &file, &fault), E_INVALID); /* and does not hang */
    unlink(pipe_path);
    assert_null(file);
}

static void survives_a_failing_allocation(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct gguf *file = NULL;
        struct model *model = NULL;
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = gguf_open(LLAMA, &file, &fault);
        if (r == 0)
            r = gguf_model_open(file, &model, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_true(nth > 5);
            model_close(model);
            gguf_close(file);
            return;
        }
        assert_int_equal(r, E_MEMORY);
        assert_null(model);
        gguf_close(file);
    }
}

/* --- thousands of cuts and flips ------------------------------------------------------------ */

static uint8_t *read_whole(const char *path, size_t *ret_bytes)
{
    FILE *stream = fopen(path, "rb");
    uint8_t *bytes;
    long size;

    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    size = ftell(stream);
    rewind(stream);
    bytes = aligned_alloc(16, ((size_t)size + 15) / 16 * 16);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, stream), (size_t)size);
    fclose(stream);
    *ret_bytes = (size_t)size;
    return bytes;
}

/* Opens what is left of a file as far as it can be opened, and reads every metadata value and the
 * first and last byte of every tensor: whatever passes the checks must be there. Returns 1 when the
 * model opened. */
static int survive(const uint8_t *from, size_t bytes)
{
    /* A block of exactly that size, so that the sanitizer sees a read past its end. */
    uint8_t *copy = aligned_alloc(16, (bytes + 15) / 16 * 16 + 16);
    struct gguf *file = NULL;
    struct model *model = NULL;
    struct fault fault = {0};
    volatile uint8_t seen = 0;
    char text[100];
    int r;

    assert_non_null(copy);
    memcpy(copy, from, bytes);
    r = gguf_open_memory(copy, bytes, "hostile", &file, &fault);
    assert_true(r <= 0);
    if (r < 0) {
        assert_int_not_equal(fault.message[0], 0);
        free(copy);
        return 0;
    }
    for (uint64_t i = 0; i < gguf_key_count(file); i++)
        gguf_key_print(file, i, text, sizeof text);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, i);

        if (tensor->bytes) {
            seen ^= ((const uint8_t *)tensor->data)[0];
            seen ^= ((const uint8_t *)tensor->data)[tensor->bytes - 1];
            assert_true((const uint8_t *)tensor->data + tensor->bytes <= copy + bytes);
        }
    }
    r = gguf_model_open(file, &model, &fault);
    assert_true(r <= 0);
    model_close(model);
    gguf_close(file);
    free(copy);
    return r == 0;
}

/* Deterministic, so that a failure can be repeated (xorshift64). */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void survives_cuts_and_flips(const char *path, uint64_t seed)
{
    uint64_t deadline = clock_now() + HOSTILE_SECONDS * 1000000000ull;
    size_t bytes, entries;
    uint8_t *whole = read_whole(path, &bytes);
    uint32_t tries = 0, opened = 0;

    entries = bytes < 24576 ? bytes : 24576; /* metadata and tensor entries lie here */
    assert_int_equal(survive(whole, bytes), 1);
    for (size_t cut = 0; cut < entries && clock_now() < deadline; cut += 1 + cut / 64, tries++)
        assert_int_equal(survive(whole, cut), 0);
    for (uint32_t i = 0; i < 50000 && clock_now() < deadline; i++, tries++) {
        uint32_t flips = 1 + (uint32_t)(next_random(&seed) % 3);
        size_t places[3];
        uint8_t before[3];

        for (uint32_t f = 0; f < flips; f++) {
            static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
            uint64_t random = next_random(&seed);

            /* Half of them hit the first keys and the counts, whose bytes matter most. */
            places[f] = (size_t)(random >> 16) % (random & 1 ? entries : 1024);
            before[f] = whole[places[f]];
            whole[places[f]] = random & 2 ? values[(random >> 2) % 5] : (uint8_t)(random >> 8);
        }
        opened += (uint32_t)survive(whole, bytes);
        while (flips-- > 0)
            whole[places[flips]] = before[flips];
    }
    assert_true(tries > 3000); /* the machine had the time for a test that means something */
    assert_true(opened < tries);
    free(whole);
}

static void survives_a_hostile_llama(void **state)
{
    (void)state;
    survives_cuts_and_flips(LLAMA, 0x9e3779b97f4a7c15);
}

static void survives_a_hostile_qwen3(void **state)
{
    (void)state;
    survives_cuts_and_flips(QWEN3, 0xd1b54a32d192ed03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_real_file),
        cmocka_unit_test(refuses_the_wrong_type_by_name),
        cmocka_unit_test(reads_numbers_of_every_width),
        cmocka_unit_test(prints_values_for_people),
        cmocka_unit_test(refuses_broken_headers),
        cmocka_unit_test(refuses_broken_metadata),
        cmocka_unit_test(refuses_broken_tensors),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(survives_a_failing_allocation),
        cmocka_unit_test(survives_a_hostile_llama),
        cmocka_unit_test(survives_a_hostile_qwen3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
