/* cuda_api.h -- the CUDA runtime behind one door: each call checked, and counted by its kind.
 *
 * Nothing else in the project calls the runtime (`make tidy` sees to it). The counts are what tests
 * look at: a step in the decode loop allocates nothing and synchronizes nothing.
 *
 * Failures are sticky, as CUDA's own are: the first one is kept in the context with its text, and
 * every function here that can fail returns E_DEVICE (E_MEMORY for a refused allocation). A
 * context and all that was opened from it belong to one thread at a time. */
#ifndef WEFT_CUDA_API_H
#define WEFT_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* the runtime's own handles */
struct CUevent_st;
struct CUgraphExec_st;

enum cuda_call {
    CUDA_CALL_ALLOCATE,    /* device or pinned memory, and their release */
    CUDA_CALL_SYNCHRONIZE, /* the host waits for a stream or the device */
    CUDA_CALL_EVENT_WAIT,  /* the host waits for one event */
    CUDA_CALL_EVENT,       /* recorded, queried, or waited for by a stream */
    CUDA_CALL_COPY,
    CUDA_CALL_LAUNCH, /* one kernel */
    CUDA_CALL_GRAPH,  /* one replay */
    CUDA_CALL_SETUP,  /* the rest: opening, properties, capture */
    CUDA_CALL_COUNT
};

struct cuda_properties {
    char name[64];
    int capability; /* 90 for 9.0 */
    int multiprocessors;
    size_t shared_bytes; /* that one block may have */
};

struct cuda_context {
    struct cuda_properties properties;
    uint64_t calls[CUDA_CALL_COUNT];
    struct fault failure; /* code 0: none yet */
};

/* A stream with the context that it counts in. */
struct cuda_stream {
    struct cuda_context *context;
    struct CUstream_st *handle;
};

/* Opens the first device of this process and makes it current. Faults (E_UNSUPPORTED) say what is
 * missing: no driver, no device, one that is too old. */
int cuda_context_open(struct cuda_context *context, struct fault *fault);

int cuda_memory_free(struct cuda_context *context, size_t *ret_bytes);
int cuda_allocate(struct cuda_context *context, size_t bytes, void **ret_memory);
void cuda_release(struct cuda_context *context, void *memory); /* NULL is fine */
/* Pinned host memory that the device can read and write too, at *ret_device. */
int cuda_pinned_allocate(struct cuda_context *context, size_t bytes, void **ret_host,
                         void **ret_device);
void cuda_pinned_release(struct cuda_context *context, void *host); /* NULL is fine */

int cuda_stream_open(struct cuda_context *context, struct cuda_stream *ret_stream);
void cuda_stream_close(struct cuda_stream *stream); /* one that was never opened is fine */
int cuda_stream_synchronize(const struct cuda_stream *stream);

/* Asynchronous; host memory has to be pinned, or the copy is no longer that. */
int cuda_copy(const struct cuda_stream *stream, void *to, const void *from, size_t bytes);
int cuda_fill(const struct cuda_stream *stream, void *memory, int byte, size_t bytes);

/* `timed` events cost more; others only order. Waiting for one sleeps in the driver. */
int cuda_event_open(struct cuda_context *context, bool timed, struct CUevent_st **ret_event);
void cuda_event_close(struct cuda_context *context, struct CUevent_st *event); /* NULL is fine */
int cuda_event_record(const struct cuda_stream *stream, struct CUevent_st *event);
int cuda_event_wait(struct cuda_context *context, struct CUevent_st *event);
int cuda_event_done(struct cuda_context *context, struct CUevent_st *event, bool *ret_done);
int cuda_event_between(struct cuda_context *context, struct CUevent_st *from, struct CUevent_st *to,
                       float *ret_ms);
int cuda_stream_wait(const struct cuda_stream *stream, struct CUevent_st *event);

/* What is enqueued on the stream in between becomes a graph instead of running. */
int cuda_capture_begin(const struct cuda_stream *stream);
int cuda_capture_end(const struct cuda_stream *stream, struct CUgraphExec_st **ret_graph);
int cuda_graph_launch(const struct cuda_stream *stream, struct CUgraphExec_st *graph);
void cuda_graph_close(struct cuda_context *context, struct CUgraphExec_st *graph);

/* E_UNSUPPORTED: `kernel` was not built for this GPU. */
int cuda_kernel_check(struct cuda_context *context, const void *kernel, struct fault *fault);
/* `kernel` may take so much dynamic shared memory from now on. */
int cuda_kernel_shared(struct cuda_context *context, const void *kernel, size_t bytes);
struct cuda_grid {
    uint32_t x, y, z;
    uint32_t threads;
    size_t shared_bytes;
    /* The kernel may start before the one ahead of it on the stream has ended, and waits for it
     * itself (programmatic dependent launch); ignored below compute capability 9.0. */
    bool dependent;
};
int cuda_launch(const struct cuda_stream *stream, const void *kernel, const struct cuda_grid *grid,
                void **arguments);

#ifdef __cplusplus
}
#endif

#endif
