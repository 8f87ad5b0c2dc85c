/* Protects the walk over the layers: the operations in their order, once a layer, a mixture where
 * there are experts, and nothing at all for a step without tokens or after a backend that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/forward.h"

/* What was called, a letter each; layers add their number. */
struct backend {
    char calls[64];
    int begin_result;
};

static void note(struct backend *backend, char letter)
{
    size_t used = strlen(backend->calls);

    assert_true(used + 1 < sizeof backend->calls);
    backend->calls[used] = letter;
}

static int begin(struct backend *backend, const struct model *model, struct work *work)
{
    (void)model;
    (void)work;
    note(backend, 'b');
    return backend->begin_result;
}

static void embed(struct backend *backend)
{
    note(backend, 'e');
}

static void attention_in(struct backend *backend, uint32_t layer)
{
    note(backend, 'i');
    note(backend, (char)('0' + layer));
}

static void attention(struct backend *backend, uint32_t layer)
{
    note(backend, 'a');
    note(backend, (char)('0' + layer));
}

static void attention_out(struct backend *backend, uint32_t layer)
{
    note(backend, 'o');
    note(backend, (char)('0' + layer));
}

static void mlp(struct backend *backend, uint32_t layer)
{
    note(backend, 'm');
    note(backend, (char)('0' + layer));
}

static void mixture(struct backend *backend, uint32_t layer)
{
    note(backend, 'x');
    note(backend, (char)('0' + layer));
}

static void head(struct backend *backend)
{
    note(backend, 'h');
}

static int sample(struct backend *backend, struct request_table *table, struct step *step)
{
    (void)table;
    (void)step;
    note(backend, 's');
    return 0;
}

static const struct backend_ops ops = {
    .synchronous = true,
    .begin = begin,
    .embed = embed,
    .attention_in = attention_in,
    .attention = attention,
    .attention_out = attention_out,
    .mlp = mlp,
    .mixture = mixture,
    .head = head,
    .sample = sample,
};

static void walks_every_layer_in_order(void **state)
{
    struct backend backend = {0};
    struct layer layers[3] = {{0}};
    struct ffn expert;
    struct model model = {.layer_count = 3, .layers = layers};
    struct work work = {.token_count = 1};
    struct step step = {0};

    (void)state;
    layers[1].experts = &expert;
    assert_int_equal(forward(&ops, &backend, &model, &work, NULL, &step), 0);
    assert_string_equal(backend.calls, "bei0a0o0m0i1a1o1x1i2a2o2m2hs");
}

static void computes_nothing_without_tokens(void **state)
{
    struct backend backend = {0};
    struct layer layers[2] = {{0}};
    struct model model = {.layer_count = 2, .layers = layers};
    struct work work = {0};
    struct step step = {0};

    (void)state;
    assert_int_equal(forward(&ops, &backend, &model, &work, NULL, &step), 0);
    assert_string_equal(backend.calls, "");
}

static void stops_where_the_backend_fails(void **state)
{
    struct backend backend = {.begin_result = E_DEVICE};
    struct layer layers[2] = {{0}};
    struct model model = {.layer_count = 2, .layers = layers};
    struct work work = {.token_count = 1};
    struct step step = {0};

    (void)state;
    assert_int_equal(forward(&ops, &backend, &model, &work, NULL, &step), E_DEVICE);
    assert_string_equal(backend.calls, "b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_every_layer_in_order),
        cmocka_unit_test(computes_nothing_without_tokens),
        cmocka_unit_test(stops_where_the_backend_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
