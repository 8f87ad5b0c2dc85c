/* page.h -- for tests that a committed page is what its table in the code makes. */
#ifndef WEFT_PAGE_H
#define WEFT_PAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config/base/buf.h"

/* `path` from the root of the tree, where tests run. */
static void assert_page_is(const char *path, const struct buf *expected)
{
    static char text[1 << 18];
    FILE *file = fopen(path, "r");
    size_t bytes;

    assert_false(buf_failed(expected));
    if (!file)
        fail_msg("cannot open %s from the root of the tree", path);
    bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    if (strcmp(text, buf_string(expected)) != 0)
        fail_msg("%s differs from what its table makes: run `make docs`", path);
}

#endif
