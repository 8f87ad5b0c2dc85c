/* cublas.c -- cuBLASLt behind three functions; see the header.
 *
 * cuBLAS is column-major: out^T [outputs][rows] = w^T^T x^T, so w is the transposed first operand
 * and nothing is moved. A plan (descriptors, algorithm) is kept for each shape in a fixed table. */
#include "kernels/cuda/cublas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLANS_MAX = 4096, /* a power of two; well above shapes x sizes of steps */
    PROPOSALS_MAX = 8,
    TIMED_RUNS = 4,
};

#define FUNCTIONS(X)                        \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)

struct functions {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
};

struct key {
    uint32_t type, out_type, accumulate, rows, outputs, columns, out_stride;
};

struct plan {
    bool used;
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulAlgo_t proposals[PROPOSALS_MAX];
    int proposal_count;
    int chosen;
};

struct cublas {
    struct cuda_context *context;
    void *library;
    struct functions f;
    cublasLtHandle_t handle;
    struct plan *plans;
    uint32_t plan_count;
};

static int failed(struct cublas *c, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    if (c->context->failure.code == 0)
        fault_set(&c->context->failure, E_DEVICE, "the GPU failed: cuBLAS: %s (status %d)", what,
                  (int)status);
    return E_DEVICE;
}

/* --- opening ------------------------------------------------------------------------------- */

static void *open_library(void)
{
    static const char *const names[] = {
        "libcublasLt.so.13",
        "libcublasLt.so.12",
        "/usr/local/cuda/lib64/libcublasLt.so.13",
        "/usr/local/cuda/lib64/libcublasLt.so.12",
    };
    void *library = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool find_functions(struct cublas *c)
{
    bool all = true;

#define X(name)                                      \
    *(void **)&c->f.name = dlsym(c->library, #name); \
    all = all && c->f.name;
    FUNCTIONS(X)
#undef X
    return all;
}

int cublas_open(struct cuda_context *context, struct cublas **ret_cublas, struct fault *fault)
{
    struct cublas *c = calloc(1, sizeof *c);
    int r = 0;

    if (!c)
        return fault_set(fault, E_MEMORY, "out of memory for cuBLAS");
    c->context = context;
    c->plans = calloc(PLANS_MAX, sizeof *c->plans);
    c->library = open_library();
    if (!c->plans)
        r = fault_set(fault, E_MEMORY, "out of memory for cuBLAS");
    else if (!c->library || !find_functions(c))
        r = fault_set(fault, E_UNSUPPORTED,
                      "cuBLAS is not installed: libcublasLt.so (12 or 13) was looked for on the "
                      "loader's path and in /usr/local/cuda/lib64");
    else if (c->f.cublasLtCreate(&c->handle) != CUBLAS_STATUS_SUCCESS)
        r = fault_set(fault, E_UNSUPPORTED, "cuBLAS cannot be used with this driver or GPU");
    if (r < 0) {
        cublas_close(c);
        return r;
    }
    *ret_cublas = c;
    return 0;
}

void cublas_close(struct cublas *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; c->plans && i < PLANS_MAX; i++) {
        struct plan *plan = &c->plans[i];

        if (plan->product)
            c->f.cublasLtMatmulDescDestroy(plan->product);
        if (plan->w)
            c->f.cublasLtMatrixLayoutDestroy(plan->w);
        if (plan->x)
            c->f.cublasLtMatrixLayoutDestroy(plan->x);
        if (plan->out)
            c->f.cublasLtMatrixLayoutDestroy(plan->out);
    }
    if (c->handle)
        c->f.cublasLtDestroy(c->handle);
    free(c->plans);
    if (c->library)
        dlclose(c->library);
    free(c);
}

/* --- plans --------------------------------------------------------------------------------- */

static cudaDataType data_type(enum dtype type)
{
    return type == DT_BF16 ? CUDA_R_16BF : type == DT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static uint32_t hash(const struct key *key)
{
    const uint32_t *words = (const uint32_t *)key;
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < sizeof *key / sizeof *words; i++)
        h = (h ^ words[i]) * 16777619u;
    return h ^ h >> 15;
}

static int propose(struct cublas *c, struct plan *plan)
{
    cublasLtMatmulHeuristicResult_t found[PROPOSALS_MAX];
    cublasLtMatmulPreference_t preference = NULL;
    size_t workspace = CUBLAS_WORKSPACE_BYTES;
    int r = failed(c, c->f.cublasLtMatmulPreferenceCreate(&preference), "a preference");

    if (r < 0)
        return r;
    r = failed(c,
               c->f.cublasLtMatmulPreferenceSetAttribute(preference,
                                                         CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof workspace),
               "a preference");
    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatmulAlgoGetHeuristic(c->handle, plan->product, plan->w, plan->x,
                                                       plan->out, plan->out, preference,
                                                       PROPOSALS_MAX, found, &plan->proposal_count),
                   "no algorithm for a product");
    c->f.cublasLtMatmulPreferenceDestroy(preference);
    if (r == 0 && plan->proposal_count == 0)
        r = failed(c, CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm for a product");
    for (int i = 0; r == 0 && i < plan->proposal_count; i++)
        plan->proposals[i] = found[i].algo;
    return r;
}

static int make_plan(struct cublas *c, struct plan *plan)
{
    const struct key *key = &plan->key;
    cudaDataType type = data_type(key->type), out_type = data_type(key->out_type);
    cublasOperation_t transposed = CUBLAS_OP_T;
    int r = failed(c, c->f.cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "a description");

    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof transposed),
                   "a description");
    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatrixLayoutCreate(&plan->w, type, key->columns, key->outputs,
                                                   key->columns),
                   "a layout");
    if (r == 0)
        r = failed(
            c,
            c->f.cublasLtMatrixLayoutCreate(&plan->x, type, key->columns, key->rows, key->columns),
            "a layout");
    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatrixLayoutCreate(&plan->out, out_type, key->outputs, key->rows,
                                                   key->out_stride),
                   "a layout");
    return r < 0 ? r : propose(c, plan);
}

static int find_plan(struct cublas *c, const struct cublas_product *p, struct plan **ret_plan)
{
    struct key key = {p->type,    p->out_type, p->accumulate, p->rows,
                      p->outputs, p->columns,  p->out_stride};
    struct plan *plan;
    int r;

    for (uint32_t i = hash(&key);; i++) {
        plan = &c->plans[i % PLANS_MAX];
        if (!plan->used)
            break;
        if (memcmp(&plan->key, &key, sizeof key) == 0) {
            *ret_plan = plan;
            return 0;
        }
    }
    must(c->plan_count < PLANS_MAX - 1);
    plan->key = key;
    r = make_plan(c, plan);
    if (r < 0)
        return r;
    plan->used = true;
    c->plan_count++;
    *ret_plan = plan;
    return 0;
}

/* --- running ------------------------------------------------------------------------------- */

static int run(struct cublas *c, const struct cuda_stream *stream, const struct cublas_product *p,
               const struct plan *plan, int proposal, void *workspace)
{
    float one = 1.0f, beta = p->accumulate ? 1.0f : 0.0f;

    c->context->calls[CUDA_CALL_LAUNCH]++;
    return failed(c,
                  c->f.cublasLtMatmul(c->handle, plan->product, &one, p->w, plan->w, p->x, plan->x,
                                      &beta, p->out, plan->out, p->out, plan->out,
                                      &plan->proposals[proposal], workspace, CUBLAS_WORKSPACE_BYTES,
                                      stream->handle),
                  "a matrix product");
}

int cublas_run(struct cublas *c, const struct cuda_stream *stream, const struct cublas_product *p,
               void *workspace)
{
    struct plan *plan;
    int r = find_plan(c, p, &plan);

    return r < 0 ? r : run(c, stream, p, plan, plan->chosen, workspace);
}

static int time_proposal(struct cublas *c, const struct cuda_stream *stream,
                         const struct cublas_product *p, const struct plan *plan, int proposal,
                         void *workspace, struct CUevent_st *events[2], float *ret_ms)
{
    int r = run(c, stream, p, plan, proposal, workspace);

    if (r == 0)
        r = cuda_event_record(stream, events[0]);
    for (int i = 0; r == 0 && i < TIMED_RUNS; i++)
        r = run(c, stream, p, plan, proposal, workspace);
    if (r == 0)
        r = cuda_event_record(stream, events[1]);
    if (r == 0)
        r = cuda_event_wait(c->context, events[1]);
    return r < 0 ? r : cuda_event_between(c->context, events[0], events[1], ret_ms);
}

int cublas_measure(struct cublas *c, const struct cuda_stream *stream,
                   const struct cublas_product *p, void *workspace)
{
    struct CUevent_st *events[2] = {NULL, NULL};
    float best = 0.0f;
    struct plan *plan;
    int r = find_plan(c, p, &plan);

    for (int i = 0; r == 0 && i < 2; i++)
        r = cuda_event_open(c->context, true, &events[i]);
    for (int i = 0; r == 0 && i < plan->proposal_count; i++) {
        float ms = 0.0f;

        r = time_proposal(c, stream, p, plan, i, workspace, events, &ms);
        if (r == 0 && (i == 0 || ms < best)) {
            best = ms;
            plan->chosen = i;
        }
    }
    for (int i = 0; i < 2; i++)
        cuda_event_close(c->context, events[i]);
    return r;
}
