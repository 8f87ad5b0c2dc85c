/* command_docs.c -- `weft docs PAGE`: the pages of the repository that come from tables in the
 * code: options, fields of requests, metrics. */
#include <stdio.h>
#include <string.h>

#include "config/base/buf.h"
#include "server/commands.h"
#include "server/metrics.h"

enum { PAGE_BYTES_MAX = 256 << 10 };

int command_docs(const struct config *config, struct fault *fault)
{
    const char *page = config->operands[0];
    struct buf text;
    int r = 0;

    buf_init(&text, PAGE_BYTES_MAX);
    if (strcmp(page, "options") == 0)
        config_options_page(&text);
    else if (strcmp(page, "config") == 0)
        config_sample_file(&text);
    else if (strcmp(page, "fields") == 0)
        openai_fields_docs(&text);
    else if (strcmp(page, "metrics") == 0)
        metrics_docs(&text);
    else
        r = fault_set(fault, E_INVALID,
                      "There is no page '%.60s'; there are options, config, fields and metrics",
                      page);
    must(!buf_failed(&text));
    if (r == 0 && (fputs(buf_string(&text), stdout) < 0 || fflush(stdout) < 0))
        r = fault_errno(fault, "Cannot write the page");
    buf_fini(&text);
    return r;
}
