/* routes.c -- the table, and the pages that are too small for a file of their own. */
#include "server/routes.h"

#include <string.h>

#include "config/base/clock.h"
#include "server/health.h"

#define ALLOW_GET  "GET, HEAD, OPTIONS"
#define ALLOW_POST "POST, OPTIONS"

static void status_body(struct page *page, const char *status)
{
    buf_format(page->body, "{\"status\":\"%s\"}", status);
}

static void get_live(struct server *server, const char *rest, struct page *page)
{
    (void)server;
    (void)rest;
    status_body(page, "ok");
}

static void get_health(struct server *server, const char *rest, struct page *page)
{
    struct scheduler_stats stats;
    const char *trouble;

    (void)rest;
    scheduler_stats_get(server->scheduler, &stats);
    trouble = health_trouble(&stats, clock_now());
    if (trouble)
        api_error_set(&page->error, API_UNAVAILABLE, "", "Not healthy: %s.", trouble);
    else
        status_body(page, "ok");
}

static void get_ready(struct server *server, const char *rest, struct page *page)
{
    const char *unready = server_unready(server);

    if (unready)
        api_error_set(&page->error, API_UNAVAILABLE, "", "Not ready: %s.", unready);
    else
        get_health(server, rest, page);
}

static void get_models(struct server *server, const char *rest, struct page *page)
{
    (void)rest;
    openai_models_body(&server->openai, page->body);
}

static void get_model(struct server *server, const char *rest, struct page *page)
{
    if (strcmp(rest, server->openai.model_id) == 0)
        openai_model_body(&server->openai, page->body);
    else
        api_error_set(&page->error, API_MODEL_NOT_FOUND, "model",
                      "The model `%.200s` does not exist.", rest);
}

static void get_version(struct server *server, const char *rest, struct page *page)
{
    (void)server;
    (void)rest;
    buf_text(page->body, "{\"version\":\"" WEFT_VERSION "\",\"commit\":\"" WEFT_COMMIT "\"}");
}

static void get_metrics(struct server *server, const char *rest, struct page *page)
{
    struct constraints_stats constraints;
    struct scheduler_stats stats;

    (void)rest;
    scheduler_stats_get(server->scheduler, &stats);
    page->content_type = "text/plain; version=0.0.4; charset=utf-8";
    constraints_stats_get(server->openai.constraints, &constraints);
    metrics_write(server->metrics, &stats, &constraints, page->body);
}

static const struct route routes[] = {
    {"/v1/chat/completions", "/v1/chat/completions", ALLOW_POST, NULL, OPENAI_CHAT, false},
    {"/v1/completions", "/v1/completions", ALLOW_POST, NULL, OPENAI_COMPLETIONS, false},
    {"/v1/embeddings", "/v1/embeddings", ALLOW_POST, NULL, OPENAI_EMBEDDINGS, false},
    {"/v1/models", "/v1/models", ALLOW_GET, get_models, 0, false},
    {"/v1/models/", "/v1/models/{id}", ALLOW_GET, get_model, 0, false},
    {"/health", "/health", ALLOW_GET, get_health, 0, true},
    {"/livez", "/livez", ALLOW_GET, get_live, 0, true},
    {"/ready", "/ready", ALLOW_GET, get_ready, 0, true},
    {"/readyz", "/readyz", ALLOW_GET, get_ready, 0, true},
    {"/metrics", "/metrics", ALLOW_GET, get_metrics, 0, true},
    {"/version", "/version", ALLOW_GET, get_version, 0, false},
};

const struct route *route_find(const char *path, const char **ret_rest)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool open = routes[i].path[n - 1] == '/';

        if (strncmp(path, routes[i].path, n) == 0 && (path[n] != '\0') == open) {
            *ret_rest = path + n;
            return &routes[i];
        }
    }
    return NULL;
}
