/* prefix.h -- names for prefixes: a chain of hashes, one link a full page.
 *
 *     root(salt) -> h0 = H(root, tokens of page 0) -> h1 = H(h0, tokens of page 1) -> ...
 *
 * XXH3's 128 bits under a secret of this process, so that a client cannot aim for a collision;
 * still a hit must compare the tokens before it is believed. */
#ifndef WEFT_PREFIX_H
#define WEFT_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

struct prefix_hash {
    uint64_t low;
    uint64_t high;
};

enum { PREFIX_SECRET_BYTES = 192 };

struct prefix_key {
    unsigned char secret[PREFIX_SECRET_BYTES];
};

/* Draws the secret from the system. Returns 0 or -errno. */
int prefix_key_init(struct prefix_key *key);
/* The chain's start; sequences with different salts never share. */
struct prefix_hash prefix_root(const struct prefix_key *key, const void *salt, uint32_t salt_bytes);
struct prefix_hash prefix_next(const struct prefix_key *key, struct prefix_hash before,
                               const int32_t *tokens, uint32_t count);

static inline bool prefix_equal(struct prefix_hash a, struct prefix_hash b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
