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
    CANDIDATES_MAX = 64, /* 4 sizes x proposals x with and without a split */
    TIMED_RUNS = 4,
    ROWS_NEAR = 128, /* up to so many, what is proposed for other sizes is tried too */
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
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulAlgoConfigGetAttribute) \
    X(cublasLtMatmulAlgoConfigSetAttribute) \
    X(cublasLtMatmulAlgoCheck)

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
    cublasLtMatmulAlgo_t algorithm;
};

/* Algorithms that can compute a plan's product. */
struct candidates {
    cublasLtMatmulAlgo_t algorithms[CANDIDATES_MAX];
    int count;
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

static void close_layouts(struct cublas *c, cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t out)
{
    if (x)
        c->f.cublasLtMatrixLayoutDestroy(x);
    if (out)
        c->f.cublasLtMatrixLayoutDestroy(out);
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
        close_layouts(c, plan->x, plan->out);
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

/* x and out of so many rows. */
static int make_layouts(struct cublas *c, const struct key *key, uint32_t rows,
                        cublasLtMatrixLayout_t *ret_x, cublasLtMatrixLayout_t *ret_out)
{
    int r = failed(c,
                   c->f.cublasLtMatrixLayoutCreate(ret_x, data_type(key->type), key->columns, rows,
                                                   key->columns),
                   "a layout");

    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatrixLayoutCreate(ret_out, data_type(key->out_type), key->outputs,
                                                   rows, key->out_stride),
                   "a layout");
    return r;
}

/* What the library proposes for the plan's product, if it had so many rows; first guess first. */
static int propose(struct cublas *c, const struct plan *plan, uint32_t rows,
                   cublasLtMatmulHeuristicResult_t found[PROPOSALS_MAX], int *ret_count)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatrixLayout_t x = NULL, out = NULL;
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
        r = make_layouts(c, &plan->key, rows, &x, &out);
    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatmulAlgoGetHeuristic(c->handle, plan->product, plan->w, x, out,
                                                       out, preference, PROPOSALS_MAX, found,
                                                       ret_count),
                   "no algorithm for a product");
    if (r == 0 && *ret_count == 0)
        r = failed(c, CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm for a product");
    c->f.cublasLtMatmulPreferenceDestroy(preference);
    close_layouts(c, x, out);
    return r;
}

/* Unless it is there already, or cannot compute the product. */
static void add_candidate(struct cublas *c, const struct plan *plan,
                          const cublasLtMatmulAlgo_t *algorithm, struct candidates *candidates)
{
    cublasLtMatmulHeuristicResult_t result;

    for (int i = 0; i < candidates->count; i++)
        if (memcmp(&candidates->algorithms[i], algorithm, sizeof *algorithm) == 0)
            return;
    if (candidates->count < CANDIDATES_MAX &&
        c->f.cublasLtMatmulAlgoCheck(c->handle, plan->product, plan->w, plan->x, plan->out,
                                     plan->out, algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= CUBLAS_WORKSPACE_BYTES)
        candidates->algorithms[candidates->count++] = *algorithm;
}

/* The proposals for so many rows, and those that split the columns also without that: a split takes
 * a kernel more, and the library likes it better than it deserves where few rows follow each other
 * closely. */
static int add_proposals(struct cublas *c, const struct plan *plan, uint32_t rows,
                         struct candidates *candidates)
{
    cublasLtMatmulHeuristicResult_t found[PROPOSALS_MAX];
    int count = 0, r = propose(c, plan, rows, found, &count);

    for (int i = 0; i < count && r == 0; i++) {
        cublasLtMatmulAlgo_t unsplit = found[i].algo;
        int32_t splits = 1;
        uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;

        add_candidate(c, plan, &found[i].algo, candidates);
        if (c->f.cublasLtMatmulAlgoConfigGetAttribute(&unsplit, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                      &splits, sizeof splits,
                                                      NULL) != CUBLAS_STATUS_SUCCESS ||
            splits <= 1)
            continue;
        splits = 1;
        if (c->f.cublasLtMatmulAlgoConfigSetAttribute(&unsplit, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                      &splits,
                                                      sizeof splits) == CUBLAS_STATUS_SUCCESS &&
            c->f.cublasLtMatmulAlgoConfigSetAttribute(
                &unsplit, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction, sizeof reduction) ==
                CUBLAS_STATUS_SUCCESS)
            add_candidate(c, plan, &unsplit, candidates);
    }
    return r;
}

static int make_plan(struct cublas *c, struct plan *plan)
{
    const struct key *key = &plan->key;
    cublasLtMatmulHeuristicResult_t found[PROPOSALS_MAX];
    cublasOperation_t transposed = CUBLAS_OP_T;
    int count = 0;
    int r = failed(c, c->f.cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "a description");

    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof transposed),
                   "a description");
    if (r == 0)
        r = failed(c,
                   c->f.cublasLtMatrixLayoutCreate(&plan->w, data_type(key->type), key->columns,
                                                   key->outputs, key->columns),
                   "a layout");
    if (r == 0)
        r = make_layouts(c, key, key->rows, &plan->x, &plan->out);
    if (r == 0)
        r = propose(c, plan, key->rows, found, &count);
    if (r == 0)
        plan->algorithm = found[0].algo;
    return r;
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
               const struct plan *plan, const cublasLtMatmulAlgo_t *algorithm, void *workspace)
{
    float one = 1.0f, beta = p->accumulate ? 1.0f : 0.0f;

    c->context->calls[CUDA_CALL_LAUNCH]++;
    return failed(c,
                  c->f.cublasLtMatmul(c->handle, plan->product, &one, p->w, plan->w, p->x, plan->x,
                                      &beta, p->out, plan->out, p->out, plan->out, algorithm,
                                      workspace, CUBLAS_WORKSPACE_BYTES, stream->handle),
                  "a matrix product");
}

int cublas_run(struct cublas *c, const struct cuda_stream *stream, const struct cublas_product *p,
               void *workspace)
{
    struct plan *plan;
    int r = find_plan(c, p, &plan);

    return r < 0 ? r : run(c, stream, p, plan, &plan->algorithm, workspace);
}

struct timing {
    const struct cuda_stream *stream;
    const struct cublas_product *product;
    void *workspace;
    struct CUevent_st *events[2];
};

static int time_runs(struct cublas *c, const struct timing *t, const struct plan *plan,
                     const cublasLtMatmulAlgo_t *algorithm, int runs, float *ret_ms)
{
    int r = cuda_event_record(t->stream, t->events[0]);

    for (int i = 0; r == 0 && i < runs; i++)
        r = run(c, t->stream, t->product, plan, algorithm, t->workspace);
    if (r == 0)
        r = cuda_event_record(t->stream, t->events[1]);
    if (r == 0)
        r = cuda_event_wait(c->context, t->events[1]);
    if (r == 0)
        r = cuda_event_between(c->context, t->events[0], t->events[1], ret_ms);
    *ret_ms /= (float)runs;
    return r;
}

/* The fastest. The first run of each loads its code. */
static int choose(struct cublas *c, const struct timing *t, struct plan *plan,
                  const struct candidates *candidates)
{
    float best = 0.0f;
    int r = 0;

    for (int i = 0; r == 0 && i < candidates->count; i++) {
        const cublasLtMatmulAlgo_t *algorithm = &candidates->algorithms[i];
        float ms = 0.0f;

        r = time_runs(c, t, plan, algorithm, 1, &ms);
        if (r == 0)
            r = time_runs(c, t, plan, algorithm, 1, &ms);
        if (r == 0 && (i == 0 || ms < best * 2))
            r = time_runs(c, t, plan, algorithm, TIMED_RUNS, &ms);
        if (r == 0 && (i == 0 || ms < best)) {
            best = ms;
            plan->algorithm = *algorithm;
        }
    }
    return r;
}

int cublas_measure(struct cublas *c, const struct cuda_stream *stream,
                   const struct cublas_product *p, void *workspace)
{
    const uint32_t rows = p->rows, near[] = {rows, (rows + 15) / 16 * 8, rows - 8, rows + 8};
    struct timing timing = {.stream = stream, .product = p, .workspace = workspace};
    struct candidates candidates = {.count = 0};
    struct plan *plan;
    int r = find_plan(c, p, &plan);

    for (size_t i = 0; r == 0 && i < sizeof near / sizeof *near; i++)
        if (i == 0 || (rows > 8 && rows <= ROWS_NEAR))
            r = add_proposals(c, plan, near[i], &candidates);
    for (int i = 0; r == 0 && i < 2; i++)
        r = cuda_event_open(c->context, true, &timing.events[i]);
    if (r == 0)
        r = choose(c, &timing, plan, &candidates);
    for (int i = 0; i < 2; i++)
        cuda_event_close(c->context, timing.events[i]);
    return r;
}
