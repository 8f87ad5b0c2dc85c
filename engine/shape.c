/* shape.c -- see shape.h. The Makefile turns config/shapes into engine/shapes.inc: a row
 * {name, text} for each file. */
#include "engine/shape.h"

#include <stdio.h>
#include <string.h>

#include "config/base/buf.h"
#include "engine/file_read.h"

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

static const struct {
    const char *name;
    const char *text;
} shapes[] = {
#include "engine/shapes.inc"
};

/* "a/b/c.json" -> "c", "a/b/config.json" -> "b". */
static void name_file(const char *path, char ret_name[static SHAPE_NAME_BYTES])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path, *end = base + strlen(base);

    if (strcmp(base, "config.json") == 0 && slash && slash > path) {
        end = slash;
        base = slash;
        while (base > path && base[-1] != '/')
            base--;
    } else if (end - base > 5 && strcmp(end - 5, ".json") == 0) {
        end -= 5;
    }
    gguf_string_print((struct gguf_string){base, (size_t)(end - base)}, ret_name, SHAPE_NAME_BYTES);
}

static int unknown(const char *shape, struct fault *fault)
{
    char known[384];
    struct buf names;

    buf_init_fixed(&names, known, sizeof known);
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        buf_format(&names, "%s%s", i ? ", " : "", shapes[i].name);
    return fault_set(fault, E_NOT_FOUND,
                     "there is no shape '%.60s'; known ones are %s, and any config.json by its "
                     "path",
                     shape, buf_string(&names));
}

static bool is_path(const char *shape)
{
    size_t bytes = strlen(shape);

    return strchr(shape, '/') || (bytes > 5 && strcmp(shape + bytes - 5, ".json") == 0);
}

int shape_text(const char *shape, struct buf *text, struct fault *fault)
{
    if (is_path(shape))
        return file_read(shape, text, fault);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        if (strcmp(shape, shapes[i].name) != 0)
            continue;
        buf_text(text, shapes[i].text);
        return buf_failed(text) ? fault_set(fault, E_MEMORY, "out of memory for a shape") : 0;
    }
    return unknown(shape, fault);
}

int shape_read(const char *shape, struct hf_config *ret_config,
               char ret_name[static SHAPE_NAME_BYTES], struct fault *fault)
{
    struct buf text;
    int r;

    buf_init(&text, SHAPE_FILE_BYTES_MAX);
    r = shape_text(shape, &text, fault);
    if (r == 0) {
        r = hf_config_read(buf_string(&text), text.bytes, ret_config, fault);
        if (r < 0)
            fault_prefix(fault, "%.300s", shape);
    }
    if (r == 0 && is_path(shape))
        name_file(shape, ret_name);
    else if (r == 0)
        snprintf(ret_name, SHAPE_NAME_BYTES, "%s", shape);
    buf_fini(&text);
    return r;
}
