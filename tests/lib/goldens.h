/* goldens.h -- reference data that is too large or not ours to keep in the tree: the folder that
 * WEFT_GOLDENS names, and the demo model where it has been fetched.
 *
 * A test that misses its data says so and skips:
 *
 *     const char *folder = goldens_folder();      (prints why and skips when there is none)
 */
#ifndef WEFT_TEST_GOLDENS_H
#define WEFT_TEST_GOLDENS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static inline const char *goldens_folder(void)
{
    const char *folder = getenv("WEFT_GOLDENS");

    if (!folder || !*folder) {
        printf("skip: WEFT_GOLDENS names no folder of reference data\n");
        skip();
    }
    return folder;
}

/* What a shell command prints, with a NUL behind it; the test fails when the command does. */
static inline char *command_output(const char *command, size_t *ret_bytes)
{
    size_t bytes = 0, room = 1 << 16, taken;
    char *text = malloc(room);
    FILE *pipe = popen(command, "r");

    assert_non_null(text);
    assert_non_null(pipe);
    while ((taken = fread(text + bytes, 1, room - bytes - 1, pipe)) > 0) {
        bytes += taken;
        if (room - bytes < 2) {
            room *= 2;
            text = realloc(text, room);
            assert_non_null(text);
        }
    }
    if (pclose(pipe) != 0)
        fail_msg("%s: failed", command);
    text[bytes] = 0;
    if (ret_bytes)
        *ret_bytes = bytes;
    return text;
}

/* A JSON document out of a command, with NULs allowed in strings as the references have them;
 * `flags` are jansson's. */
static inline json_t *command_json(const char *command, size_t flags)
{
    size_t bytes;
    char *text = command_output(command, &bytes);
    json_error_t error;
    json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL | flags, &error);

    if (!value)
        fail_msg("%s: %s", command, error.text);
    free(text);
    return value;
}

/* WEFT_DEMO_MODEL, or the cache folder that `make serve` fetches into. */
static inline const char *demo_model(void)
{
    static char path[4096];
    const char *given = getenv("WEFT_DEMO_MODEL"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (given && *given)
        snprintf(path, sizeof path, "%s", given);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/weft/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/weft/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    if (access(path, R_OK) < 0) {
        printf("skip: there is no demo model at %s\n", path);
        skip();
    }
    return path;
}

#endif
