/* The HTTP contract on top of the broker: routes, handlers by resource, problem
 * documents. One `struct api` per net thread. All its functions run on that thread,
 * except the callbacks of a request that run on the shard of its queue. */
#ifndef TRIAGE_API_API_H
#define TRIAGE_API_API_H

#include "base/status.h"
#include "base/turn.h"
#include "net/server.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api;
struct auth;
struct broker;
struct budget;
struct broker_port;
struct guard;
struct moves; /* what moves queues to other servers */
struct rate;
struct request_times; /* how long requests take */
struct turn_watch;

/* The numbers of all net threads together. */
typedef void api_http_counters(void *ctx, struct http_counters *sum);

/* The turns of all loops together. */
typedef void api_turn_counters(void *ctx, struct turn_counters *sum);

/* Everything is borrowed for the life of the api, and shared between the threads. */
struct api_options {
    struct broker *broker;
    const char *version;
    const char *engine;     /* "local" */
    const char *durability; /* "fsync" */
    int64_t started_ms;     /* wall clock */
    const char *openapi;    /* text of openapi.yaml; NULL: not served */
    size_t openapi_len;
    const atomic_bool *draining;      /* NULL: never */
    struct auth *auth;                /* NULL: everybody may do everything */
    struct guard *guard;              /* NULL: from anywhere */
    struct rate *rate;                /* NULL: no limit; for requests without a token */
    api_http_counters *http_counters; /* NULL: left out of /metrics */
    void *http_counters_ctx;
    struct budget *budget;            /* NULL: left out of /metrics */
    api_turn_counters *turn_counters; /* NULL: left out of /metrics */
    void *turn_counters_ctx;
    struct moves *moves;                 /* NULL: no queue moves */
    struct request_times *request_times; /* NULL: requests are not timed */
    uint32_t metrics_queues; /* how many queues /metrics shows one by one; 0: all of them */
};

struct request_times *request_times_new(void);
void request_times_free(struct request_times *all); /* the apis are gone; NULL is fine */

struct moves *moves_new(void);
void moves_free(struct moves *m); /* the loops have ended; NULL is fine */

struct api *api_new(struct broker_port *port, const struct api_options *options);
void api_free(struct api *api); /* nothing under way; NULL is fine */

/* Before its loop runs: the watch of that loop, whose clock requests are timed with. */
void api_watch(struct api *api, struct turn_watch *turns);

/* Goes on with the moves that were begun before this server was started. To be called on one api,
 * before its loop runs. */
void api_resume_moves(struct api *api);

/* The hooks of net/server.h; ctx is the api. */
http_handler api_handle;
http_admit api_admit;
http_problem api_problem;

#endif
