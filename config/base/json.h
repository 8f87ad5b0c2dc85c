/* json.h -- jansson behind one door, with a depth cap and faults that say where.
 *
 * jansson builds a tree recursively up to 2,048 levels; we refuse more than JSON_DEPTH_MAX before
 * it builds anything. Every optional field may be null and then counts as absent. Numbers follow
 * API.md: 16, 16.0 and 1.6e1 are all the integer 16; 16.5, "16" and true are not integers. */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

enum { JSON_DEPTH_MAX = 64 };

/* Parses a whole document. The fault says line and column and what was expected; it never quotes
 * more than 200 bytes, and none that are not UTF-8. The caller owns *ret_value (json_decref). */
int json_parse(const char *text, size_t bytes, json_t **ret_value, struct fault *fault);
/* The same, and a key that occurs twice in an object is refused: for files whose readers would
 * differ on which one counts. */
int json_parse_unique(const char *text, size_t bytes, json_t **ret_value, struct fault *fault);

/* The same, and strings may hold NULs. */
int json_parse_with_nul(const char *text, size_t bytes, json_t **ret_value, struct fault *fault);

/* Fields of an object. All return 1 with the value, 0 when the field is absent or null (the out
 * parameter is untouched), or E_INVALID with the field named in the fault. `path` is put before
 * the key in messages ("stream_options."), "" at the top. */
int json_get_int(const json_t *object, const char *path, const char *key, int64_t low, int64_t high,
                 int64_t *ret_value, struct fault *fault);
int json_get_real(const json_t *object, const char *path, const char *key, double low, double high,
                  double *ret_value, struct fault *fault);
int json_get_bool(const json_t *object, const char *path, const char *key, bool *ret_value,
                  struct fault *fault);
/* The text is lent by the tree and holds no NUL, unless json_parse_with_nul() read it. */
int json_get_string(const json_t *object, const char *path, const char *key, const char **ret_text,
                    size_t *ret_bytes, struct fault *fault);
int json_get_object(const json_t *object, const char *path, const char *key, json_t **ret_value,
                    struct fault *fault);
int json_get_array(const json_t *object, const char *path, const char *key, json_t **ret_value,
                   struct fault *fault);
/* An integer by the rule above, from any value. false: it is none, or outside int64. */
bool json_integral(const json_t *value, int64_t *ret_value);

#endif
