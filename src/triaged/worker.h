/* A thread of the server: one event loop with a shard of the broker, an HTTP
 * server, or both on it. The first worker runs on the main thread. */
#ifndef TRIAGE_TRIAGED_WORKER_H
#define TRIAGE_TRIAGED_WORKER_H

#include "api/api.h"
#include "base/turn.h"
#include "broker/broker.h"
#include "net/server.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

/* All workers, and how far their end has come. */
struct worker_set {
    struct worker *workers;
    uint32_t count;
    uint32_t drain_ms; /* how long connections may take to end */
    atomic_int stage;
    atomic_uint left; /* workers that are not through with this stage */
};

struct worker {
    uint32_t index;
    bool has_shard;
    bool has_net;
    uv_loop_t loop;
    uv_thread_t thread;
    uv_async_t stop;
    struct turn_watch turns;
    struct broker *broker;
    struct broker_port *port;
    struct http_server *http;
    struct api *api;
    struct worker_set *set;
    int stage;
};

void worker_init(struct worker *w, struct worker_set *set, uint32_t index, bool has_shard,
                 bool has_net);

/* Opens port, api and HTTP server; the broker is open. Where it listens is said to `w->http`. */
void worker_open(struct worker *w, struct broker *b, const struct api_options *options,
                 const struct http_limits *limits);

void worker_start(struct worker *w); /* in a thread of its own */
void worker_run(struct worker *w);   /* on this one, until it has drained */

/* From any thread, once: all of them take no more, answer what is under way, end. */
void worker_stop_all(struct worker_set *set);

void worker_join(struct worker *w);
void worker_fini(struct worker *w);

#endif
