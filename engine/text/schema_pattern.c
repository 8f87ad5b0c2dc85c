/* schema_pattern.c -- the sets of "pattern", "patternProperties" and "format". */
#include "engine/text/schema_internal.h"

int schema_pattern_set(struct schema_compiler *compiler, const json_t *schema, const char *keyword,
                       const char *text, size_t bytes, const struct regular **ret_set)
{
    (void)text;
    (void)bytes;
    (void)ret_set;
    return schema_refuse(compiler, E_UNSUPPORTED, schema, keyword, "is not supported");
}
