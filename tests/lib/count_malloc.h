/* count_malloc.h -- counts allocations of the whole process, for tests that a path allocates
 * nothing.
 *
 * Included by one file of a test program, it stands before glibc's allocator. Under a sanitizer,
 * which has an allocator of its own, nothing is counted and allocations_counted() says so. */
#ifndef WEFT_TEST_COUNT_MALLOC_H
#define WEFT_TEST_COUNT_MALLOC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_SANITIZED_MALLOC 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_SANITIZED_MALLOC 1
#endif

static atomic_size_t allocation_count;

static inline size_t allocations(void)
{
    return atomic_load(&allocation_count);
}

#ifdef WEFT_SANITIZED_MALLOC
static inline bool allocations_counted(void)
{
    return false;
}
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocation_count, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocation_count, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&allocation_count, 1);
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocation_count, 1);
    return __libc_memalign(alignment, bytes);
}

static inline bool allocations_counted(void)
{
    return true;
}
#endif

#endif
