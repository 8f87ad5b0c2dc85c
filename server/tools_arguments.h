/* tools_arguments.h -- a call's arguments as a grammar, in each of the styles in which models write
 * them:
 *
 *     JSON      {"zone": "UTC", "n": 3}
 *     tags      <arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n<arg_key>n</arg_key>...
 *     Python    zone="UTC", n=3 */
#ifndef WEFT_TOOLS_ARGUMENTS_H
#define WEFT_TOOLS_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "config/base/json.h"
#include "server/constraints.h"

enum argument_style { ARGUMENTS_JSON, ARGUMENTS_TAGGED, ARGUMENTS_PYTHON };

struct argument_tags {
    const char *before; /* a key */
    const char *middle;
    const char *after;
    const char *end; /* what ends a value: in none of them */
};

struct argument_rules {
    enum argument_style style;
    const struct argument_tags *tags;
    const json_t *function; /* name, parameters, strict; checked */
    size_t index;           /* of the tool: for faults */
    struct constraint_effort *effort;
};

int tools_arguments_build(const struct argument_rules *rules, struct grammar *grammar,
                          int32_t *ret_node, struct fault *fault);

#endif
