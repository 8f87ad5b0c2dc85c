/* kv_pages.c -- a stack of free pages and a counter each. */
#include "scheduler/kv_pages.h"

#include <errno.h>
#include <stdlib.h>

#include "config/base/fault.h"

struct kv_pages {
    uint32_t count;
    uint32_t free_count;
    uint32_t *free_stack;
    uint32_t *uses;
    struct prefix_hash *hashes;
};

int kv_pages_open(uint32_t page_count, struct kv_pages **ret_pages)
{
    struct kv_pages *pages = calloc(1, sizeof *pages);

    if (!pages)
        return -ENOMEM;
    pages->count = page_count;
    pages->free_count = page_count;
    pages->free_stack = calloc(page_count, sizeof *pages->free_stack);
    pages->uses = calloc(page_count, sizeof *pages->uses);
    pages->hashes = calloc(page_count, sizeof *pages->hashes);
    if (!pages->free_stack || !pages->uses || !pages->hashes) {
        kv_pages_close(pages);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < page_count; i++)
        pages->free_stack[i] = page_count - 1 - i; /* low pages first */
    *ret_pages = pages;
    return 0;
}

void kv_pages_close(struct kv_pages *pages)
{
    if (!pages)
        return;
    free(pages->free_stack);
    free(pages->uses);
    free(pages->hashes);
    free(pages);
}

int kv_pages_take(struct kv_pages *pages, uint32_t *ret_page)
{
    uint32_t page;

    if (pages->free_count == 0)
        return E_FULL;
    page = pages->free_stack[--pages->free_count];
    must(pages->uses[page] == 0);
    pages->uses[page] = 1;
    pages->hashes[page] = (struct prefix_hash){0, 0};
    *ret_page = page;
    return 0;
}

void kv_pages_share(struct kv_pages *pages, uint32_t page)
{
    must(page < pages->count && pages->uses[page] > 0);
    pages->uses[page]++;
}

void kv_pages_drop(struct kv_pages *pages, uint32_t page)
{
    must(page < pages->count && pages->uses[page] > 0);
    if (--pages->uses[page] == 0)
        pages->free_stack[pages->free_count++] = page;
}

void kv_pages_name(struct kv_pages *pages, uint32_t page, struct prefix_hash hash)
{
    must(page < pages->count && pages->uses[page] > 0);
    pages->hashes[page] = hash;
}

struct prefix_hash kv_pages_hash(const struct kv_pages *pages, uint32_t page)
{
    must(page < pages->count);
    return pages->hashes[page];
}

uint32_t kv_pages_count(const struct kv_pages *pages)
{
    return pages->count;
}

uint32_t kv_pages_free(const struct kv_pages *pages)
{
    return pages->free_count;
}

uint32_t kv_pages_uses(const struct kv_pages *pages, uint32_t page)
{
    must(page < pages->count);
    return pages->uses[page];
}
