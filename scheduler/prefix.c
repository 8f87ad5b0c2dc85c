/* prefix.c -- the chain of page hashes, by XXH3 with a secret. */
#include "scheduler/prefix.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#define XXH_STATIC_LINKING_ONLY /* the state may lie on the stack */
#include <xxhash.h>

int prefix_key_init(struct prefix_key *key)
{
    size_t have = 0;

    while (have < sizeof key->secret) {
        ssize_t got = getrandom(key->secret + have, sizeof key->secret - have, 0);

        if (got < 0 && errno != EINTR)
            return -errno;
        if (got > 0)
            have += (size_t)got;
    }
    return 0;
}

static struct prefix_hash wrap(XXH128_hash_t hash)
{
    return (struct prefix_hash){.low = hash.low64, .high = hash.high64};
}

struct prefix_hash prefix_root(const struct prefix_key *key, const void *salt, uint32_t salt_bytes)
{
    return wrap(XXH3_128bits_withSecret(salt, salt_bytes, key->secret, sizeof key->secret));
}

struct prefix_hash prefix_next(const struct prefix_key *key, struct prefix_hash before,
                               const int32_t *tokens, uint32_t count)
{
    XXH3_state_t state;

    XXH3_128bits_reset_withSecret(&state, key->secret, sizeof key->secret);
    XXH3_128bits_update(&state, &before, sizeof before);
    XXH3_128bits_update(&state, tokens, count * sizeof *tokens);
    return wrap(XXH3_128bits_digest(&state));
}
