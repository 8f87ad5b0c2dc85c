/* failing_malloc.c -- see failing_malloc.h. The linker's --wrap=malloc sends calls of malloc to
 * __wrap_malloc and makes the true one __real_malloc. */
#include "tests/lib/failing_malloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static atomic_uint_fast64_t failing_number; /* 0: none */
static atomic_uint_fast64_t count;
static atomic_bool has_failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t members, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t members, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);

void failing_malloc_arm(uint64_t nth)
{
    atomic_store(&has_failed, false);
    atomic_store(&count, 0);
    atomic_store(&failing_number, nth);
}

bool failing_malloc_disarm(void)
{
    atomic_store(&failing_number, 0);
    return atomic_load(&has_failed);
}

uint64_t failing_malloc_count(void)
{
    return atomic_load(&count);
}

static bool must_fail(void)
{
    if (atomic_fetch_add(&count, 1) + 1 != atomic_load(&failing_number))
        return false;
    atomic_store(&has_failed, true);
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return must_fail() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t members, size_t bytes)
{
    return must_fail() ? NULL : __real_calloc(members, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    return must_fail() ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return must_fail() ? NULL : __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    return must_fail() ? ENOMEM : __real_posix_memalign(ret_memory, alignment, bytes);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes);
    char *copy = __wrap_malloc(length + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *__wrap_strdup(const char *text)
{
    return __wrap_strndup(text, strlen(text));
}
