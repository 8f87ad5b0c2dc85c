/* metrics.h -- counters and histograms of the server, and the text that Prometheus reads.
 *
 * Loop thread only. Gauges and the scheduler's own counters come from its statistics at the time of
 * writing, so they are right when nothing runs, too. */
#ifndef WEFT_METRICS_H
#define WEFT_METRICS_H

#include "config/base/buf.h"
#include "scheduler/scheduler.h"
#include "server/openai.h"

struct metrics;

/* `device` is the engine's name of it, `page_tokens` the tokens in a KV page.
 * Returns 0 or -ENOMEM. */
int metrics_open(const char *model_id, const char *device, uint32_t page_tokens,
                 struct metrics **ret_metrics);
void metrics_close(struct metrics *metrics); /* NULL is fine */

/* One HTTP exchange ended. `route` and `method` are lent; unknown paths are "other". A client that
 * left is 499. */
void metrics_http(struct metrics *metrics, const char *route, const char *method, int status,
                  double seconds);
/* One inference request ended, in whatever way, `seconds` after its first header. */
void metrics_request(struct metrics *metrics, const struct reply_summary *summary, double seconds);

/* A token came so long after the one before of its choice (reply_action). */
void metrics_token_gap(struct metrics *metrics, uint64_t gap_ns);

/* Appends the whole exposition (text format 0.0.4). */
void metrics_write(const struct metrics *metrics, const struct scheduler_stats *stats,
                   const struct constraints_stats *constraints, struct buf *text);
/* Appends docs/metrics.md. */
void metrics_docs(struct buf *text);

#endif
