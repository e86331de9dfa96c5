/* What /metrics shows of queues: which ones, and their samples as text. Private to src/api. */
#ifndef TRIAGE_API_METRICS_H
#define TRIAGE_API_METRICS_H

#include "api/call.h"
#include "api/exposition.h"
#include "api/stats.h"

enum source {
    OF_QUEUE,   /* struct queue_row, one sample per queue, gathered queue by queue */
    OF_WAITERS, /* as OF_QUEUE, but different on each server that shares the store */
    OF_LEVEL,   /* one sample per queue and level, gathered with the rows */
    OF_ALERT,   /* one sample per queue and threshold, gathered with the rows */
    OF_WAIT,    /* level_times: a histogram per queue and level, gathered with the rows */
    OF_LEASE,   /* the same */
    OF_BROKER,  /* struct broker_counters */
    OF_REQUEST, /* its requests[], one sample per kind */
    OF_ENGINE,  /* struct engine_counters */
    OF_COMMITS, /* its commits: a histogram */
    OF_VERB,    /* its ops[], one sample per verb */
    OF_OWN,     /* its own[]: a place in the table for what the engines declare */
    OF_HTTP,    /* struct http_counters */
    OF_ROUTES,  /* struct request_times: a histogram per route */
    OF_LOOP,    /* struct turn_counters */
    OF_TURNS,   /* its times: a histogram */
    OF_REFUSAL, /* one sample per reason */
    OF_BUDGET,  /* struct budget_counters */
    OF_SERVER,  /* struct facts */
};

struct metric {
    const char *name;
    const char *type;
    const char *help;
    enum source source;
    size_t offset; /* of a uint64_t */
    enum unit unit;
};

const struct metric *metric_at(size_t i); /* NULL past the end */
#define METRICS_MAX 128

/* Numbers of the store are the same on every server that shares it; the others are each server's
 * own. Whoever adds up the answers of several servers asks for one of the two scopes. */
enum scope { SCOPE_ALL, SCOPE_STORE, SCOPE_SERVER };
enum scope scope_of(enum source source);

static inline bool in_scope(enum scope asked, enum scope scope)
{
    return asked == SCOPE_ALL || asked == scope;
}

/* A name of a queue, or the beginning of names and a '*'. */
struct queue_pattern {
    char text[QUEUE_NAME_MAX + 2];
};
#define QUEUE_PATTERNS_MAX 64

/* The label of the queues that are not shown one by one. No queue can have this name. */
#define OTHER_QUEUES "(other)"

/* Samples as text. There may be very many queues. They are shown in portions, and each queue is
 * written as text when it is shown, so that the end has little to do. */
struct gathered {
    enum scope scope;
    bool open; /* the answer is OpenMetrics */
    struct queue_pattern patterns[QUEUE_PATTERNS_MAX];
    uint32_t pattern_count; /* 0: all queues */

    call_finish *finish;
    struct buf ranks; /* struct queue_rank, while the queues to show are chosen */
    bool chosen;      /* `ranks` has those that are shown one by one, in order of their names */
    struct others {   /* the sums over the rest */
        struct queue_row row;
        uint64_t level_ready;
        uint32_t watched, alerts; /* bits, by kind */
        struct durations wait, lease;
        uint64_t queues;
    } others;

    struct buf samples[METRICS_MAX]; /* by the place of the metric */
};

/* Both end in a call of `finish`, with everything gathered in call->extra. */
void gather_start(struct call *c, struct gathered *g, call_finish *finish);
void gather_fini(struct gathered *g);

#endif
