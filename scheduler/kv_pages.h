/* kv_pages.h -- which sequence holds which page of the KV cache.
 *
 *     free stack        uses[]                    One counter a page and a stack of free ones, both
 *     [ 7 | 2 | 9 ]     page 3: 2 <- a prefix     allocated at start: taking and giving are O(1)
 *                               shared by two     and never allocate. 0 = free, 1 = private,
 *                                                 more = read only.
 *
 * A full page carries the hash of its tokens and of all before them (prefix.h), so that equal
 * prefixes can find each other.
 *
 * Owner and only thread: scheduler. Codes: E_FULL. */
#ifndef WEFT_KV_PAGES_H
#define WEFT_KV_PAGES_H

#include <stdint.h>

#include "scheduler/prefix.h"

struct kv_pages;

int kv_pages_open(uint32_t page_count, struct kv_pages **ret_pages); /* 0 or -ENOMEM */
void kv_pages_close(struct kv_pages *pages);                         /* NULL is fine */

int kv_pages_take(struct kv_pages *pages, uint32_t *ret_page); /* E_FULL: evict, ask again */
void kv_pages_share(struct kv_pages *pages, uint32_t page);
void kv_pages_drop(struct kv_pages *pages, uint32_t page); /* the last holder frees it */

/* The page is full, its content never changes again. */
void kv_pages_name(struct kv_pages *pages, uint32_t page, struct prefix_hash hash);
/* Zero while the page is not full. */
struct prefix_hash kv_pages_hash(const struct kv_pages *pages, uint32_t page);

uint32_t kv_pages_count(const struct kv_pages *pages);
uint32_t kv_pages_free(const struct kv_pages *pages);
uint32_t kv_pages_uses(const struct kv_pages *pages, uint32_t page);

#endif
