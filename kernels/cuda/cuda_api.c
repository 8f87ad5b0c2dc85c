/* cuda_api.c -- see the header. The only file that includes the CUDA runtime's own. */
#include "kernels/cuda/cuda_api.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

/* Below it there are neither the instructions nor the shared memory that the kernels want. */
enum { CAPABILITY_LEAST = 75 };

static int checked(struct cuda_context *context, enum cuda_call call, cudaError_t error,
                   const char *what)
{
    context->calls[call]++;
    if (error == cudaSuccess)
        return 0;
    if (context->failure.code == 0)
        fault_set(&context->failure, E_DEVICE, "the GPU failed: %s: %s (%s)", what,
                  cudaGetErrorString(error), cudaGetErrorName(error));
    return E_DEVICE;
}

static int no_device(struct fault *fault, cudaError_t error)
{
    cudaGetLastError(); /* not to be found again by a later call */
    if (error == cudaErrorInsufficientDriver)
        return fault_set(fault, E_UNSUPPORTED,
                         "the NVIDIA driver is missing or older than CUDA %d.%d needs",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return fault_set(fault, E_UNSUPPORTED, "no usable NVIDIA GPU: %s", cudaGetErrorString(error));
}

int cuda_context_open(struct cuda_context *context, struct fault *fault)
{
    struct cudaDeviceProp found;
    struct cuda_properties *properties = &context->properties;
    int count = 0;
    cudaError_t error;

    memset(context, 0, sizeof *context);
    error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count == 0)
        error = cudaErrorNoDevice;
    /* Must come before the device is first used. */
    if (error == cudaSuccess)
        error = cudaSetDevice(0);
    if (error == cudaSuccess)
        error = cudaGetDeviceProperties(&found, 0);
    if (error != cudaSuccess)
        return no_device(fault, error);
    snprintf(properties->name, sizeof properties->name, "%.63s", found.name);
    properties->capability = found.major * 10 + found.minor;
    properties->multiprocessors = found.multiProcessorCount;
    properties->shared_bytes = found.sharedMemPerBlockOptin;
    if (properties->capability < CAPABILITY_LEAST)
        return fault_set(fault, E_UNSUPPORTED,
                         "%s has compute capability %d.%d; %d.%d is the least that is supported",
                         properties->name, found.major, found.minor, CAPABILITY_LEAST / 10,
                         CAPABILITY_LEAST % 10);
    return 0;
}

/* --- memory -------------------------------------------------------------------------------- */

int cuda_memory_free(struct cuda_context *context, size_t *ret_bytes)
{
    size_t total;

    return checked(context, CUDA_CALL_SETUP, cudaMemGetInfo(ret_bytes, &total),
                   "asking for the free memory");
}

int cuda_allocate(struct cuda_context *context, size_t bytes, void **ret_memory)
{
    cudaError_t error = cudaMalloc(ret_memory, bytes > 0 ? bytes : 1);

    context->calls[CUDA_CALL_ALLOCATE]++;
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return E_MEMORY;
    }
    context->calls[CUDA_CALL_ALLOCATE]--;
    return checked(context, CUDA_CALL_ALLOCATE, error, "taking memory");
}

void cuda_release(struct cuda_context *context, void *memory)
{
    if (memory)
        checked(context, CUDA_CALL_ALLOCATE, cudaFree(memory), "giving memory back");
}

int cuda_pinned_allocate(struct cuda_context *context, size_t bytes, void **ret_host,
                         void **ret_device)
{
    int r = checked(context, CUDA_CALL_ALLOCATE,
                    cudaHostAlloc(ret_host, bytes > 0 ? bytes : 1, cudaHostAllocMapped),
                    "taking pinned memory");

    if (r < 0)
        return r;
    memset(*ret_host, 0, bytes);
    return checked(context, CUDA_CALL_SETUP, cudaHostGetDevicePointer(ret_device, *ret_host, 0),
                   "mapping pinned memory");
}

void cuda_pinned_release(struct cuda_context *context, void *host)
{
    if (host)
        checked(context, CUDA_CALL_ALLOCATE, cudaFreeHost(host), "giving pinned memory back");
}

/* --- streams ------------------------------------------------------------------------------- */

int cuda_stream_open(struct cuda_context *context, struct cuda_stream *ret_stream)
{
    ret_stream->context = context;
    return checked(context, CUDA_CALL_SETUP,
                   cudaStreamCreateWithFlags(&ret_stream->handle, cudaStreamNonBlocking),
                   "opening a stream");
}

void cuda_stream_close(struct cuda_stream *stream)
{
    if (stream->handle)
        checked(stream->context, CUDA_CALL_SETUP, cudaStreamDestroy(stream->handle),
                "closing a stream");
    stream->handle = NULL;
}

int cuda_stream_synchronize(const struct cuda_stream *stream)
{
    return checked(stream->context, CUDA_CALL_SYNCHRONIZE, cudaStreamSynchronize(stream->handle),
                   "waiting for a stream");
}

int cuda_copy(const struct cuda_stream *stream, void *to, const void *from, size_t bytes)
{
    return checked(stream->context, CUDA_CALL_COPY,
                   cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->handle), "a copy");
}

int cuda_fill(const struct cuda_stream *stream, void *memory, int byte, size_t bytes)
{
    return checked(stream->context, CUDA_CALL_COPY,
                   cudaMemsetAsync(memory, byte, bytes, stream->handle), "filling memory");
}

int cuda_event_open(struct cuda_context *context, bool timed, struct CUevent_st **ret_event)
{
    unsigned flags = cudaEventBlockingSync | (timed ? 0 : cudaEventDisableTiming);

    return checked(context, CUDA_CALL_SETUP, cudaEventCreateWithFlags(ret_event, flags),
                   "opening an event");
}

void cuda_event_close(struct cuda_context *context, struct CUevent_st *event)
{
    if (event)
        checked(context, CUDA_CALL_SETUP, cudaEventDestroy(event), "closing an event");
}

int cuda_event_record(const struct cuda_stream *stream, struct CUevent_st *event)
{
    return checked(stream->context, CUDA_CALL_EVENT, cudaEventRecord(event, stream->handle),
                   "recording an event");
}

int cuda_event_wait(struct cuda_context *context, struct CUevent_st *event)
{
    return checked(context, CUDA_CALL_EVENT_WAIT, cudaEventSynchronize(event), "computing a step");
}

int cuda_event_done(struct cuda_context *context, struct CUevent_st *event, bool *ret_done)
{
    cudaError_t error = cudaEventQuery(event);

    *ret_done = error != cudaErrorNotReady;
    return checked(context, CUDA_CALL_EVENT, *ret_done ? error : cudaSuccess, "computing a step");
}

int cuda_event_between(struct cuda_context *context, struct CUevent_st *from, struct CUevent_st *to,
                       float *ret_ms)
{
    return checked(context, CUDA_CALL_EVENT, cudaEventElapsedTime(ret_ms, from, to),
                   "measuring time");
}

int cuda_stream_wait(const struct cuda_stream *stream, struct CUevent_st *event)
{
    return checked(stream->context, CUDA_CALL_EVENT, cudaStreamWaitEvent(stream->handle, event, 0),
                   "ordering streams");
}

/* --- graphs and kernels -------------------------------------------------------------------- */

int cuda_capture_begin(const struct cuda_stream *stream)
{
    return checked(stream->context, CUDA_CALL_SETUP,
                   cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal),
                   "capturing a graph");
}

int cuda_capture_end(const struct cuda_stream *stream, struct CUgraphExec_st **ret_graph)
{
    cudaGraph_t graph = NULL;
    int r = checked(stream->context, CUDA_CALL_SETUP, cudaStreamEndCapture(stream->handle, &graph),
                    "capturing a graph");

    if (r == 0)
        r = checked(stream->context, CUDA_CALL_SETUP, cudaGraphInstantiate(ret_graph, graph, 0),
                    "making a graph");
    if (graph)
        cudaGraphDestroy(graph);
    return r;
}

int cuda_graph_launch(const struct cuda_stream *stream, struct CUgraphExec_st *graph)
{
    return checked(stream->context, CUDA_CALL_GRAPH, cudaGraphLaunch(graph, stream->handle),
                   "replaying a graph");
}

void cuda_graph_close(struct cuda_context *context, struct CUgraphExec_st *graph)
{
    if (graph)
        checked(context, CUDA_CALL_SETUP, cudaGraphExecDestroy(graph), "closing a graph");
}

int cuda_kernel_shared(struct cuda_context *context, const void *kernel, size_t bytes)
{
    int r = checked(
        context, CUDA_CALL_SETUP,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "giving a kernel shared memory");

    if (r < 0)
        return r;
    /* As much of the cache as possible: else two blocks may not fit beside each other. */
    return checked(context, CUDA_CALL_SETUP,
                   cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                        cudaSharedmemCarveoutMaxShared),
                   "giving a kernel shared memory");
}

int cuda_kernel_check(struct cuda_context *context, const void *kernel, struct fault *fault)
{
    const struct cuda_properties *properties = &context->properties;
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);

    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
        cudaGetLastError();
        return fault_set(fault, E_UNSUPPORTED,
                         "libweft-cuda.so was not built for this GPU: %s has compute capability "
                         "%d.%d (make CUDA_ARCHS=release builds for all)",
                         properties->name, properties->capability / 10,
                         properties->capability % 10);
    }
    return checked(context, CUDA_CALL_SETUP, error, "looking for a kernel");
}

int cuda_launch(const struct cuda_stream *stream, const void *kernel, const struct cuda_grid *grid,
                void **arguments)
{
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    cudaLaunchConfig_t config = {
        .gridDim = {grid->x, grid->y > 0 ? grid->y : 1, grid->z > 0 ? grid->z : 1},
        .blockDim = {grid->threads, 1, 1},
        .dynamicSmemBytes = grid->shared_bytes,
        .stream = stream->handle,
        .attrs = &attribute,
        .numAttrs = grid->dependent && stream->context->properties.capability >= 90,
    };

    attribute.val.programmaticStreamSerializationAllowed = 1;
    return checked(stream->context, CUDA_CALL_LAUNCH,
                   cudaLaunchKernelExC(&config, kernel, arguments), "launching a kernel");
}
