/* command_quantize.c -- `weft quantize IN OUT --type q4_k`: a model as a GGUF file in another
 * number format.
 *
 *     model-q4_k.gguf  96.4 MB, 5.73 bits a weight
 *       Q4_K   180 tensors  52.1 MB
 *       F32     61 tensors  138 kB
 *       30 tensors have rows that are no whole blocks: blk.0.attn_q.weight became Q5_0 */
#include <inttypes.h>
#include <stdio.h>

#include "engine/model_quantize.h"
#include "server/commands.h"
#include "server/progress.h"

enum { SIZE_BYTES = 16 };

static int print_summary(const char *path, const struct quantize_summary *summary)
{
    char size[SIZE_BYTES];
    bool good;

    progress_bytes_print(summary->file_bytes, size, sizeof size);
    good = printf("%s  %s, %.2f bits a weight\n", path, size,
                  8 * (double)summary->file_bytes /
                      (double)(summary->elements + !summary->elements)) >= 0;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (summary->tensors[type] == 0)
            continue;
        progress_bytes_print(summary->bytes[type], size, sizeof size);
        good = printf("  %-6s %5" PRIu32 " tensor%s  %s\n", dtype_get((enum dtype)type)->name,
                      summary->tensors[type], summary->tensors[type] == 1 ? " " : "s", size) >= 0 &&
               good;
    }
    if (summary->fallback_count > 0)
        good = printf("  %" PRIu32 " tensor%s rows that are no whole blocks: %s became %s\n",
                      summary->fallback_count, summary->fallback_count == 1 ? " has" : "s have",
                      summary->fallback, dtype_get(summary->fallback_type)->name) >= 0 &&
               good;
    if (!summary->tokenizer)
        good = puts("  no tokenizer: the folder has none that GGUF's keys can tell") >= 0 && good;
    return good && fflush(stdout) == 0;
}

int command_quantize(const struct config *config, struct fault *fault)
{
    struct quantize_options options = {.from = config->operands[0],
                                       .to = config->operands[1],
                                       .type = (enum quantize_type)config->type,
                                       .overwrite = config->overwrite,
                                       .threads = config->threads};
    struct quantize_summary summary;
    struct progress progress;
    int r;

    progress_init(&progress, false);
    options.progress = progress_engine(&progress);
    r = model_quantize(&options, &summary, fault);
    if (r == 0 && !print_summary(options.to, &summary))
        r = fault_errno(fault, "Cannot write to standard output");
    return r;
}
