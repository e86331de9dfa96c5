#include "conformance/rig.h"
#include "core/explain.h"
#include "engine/chaos.h"

#include <assert.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void on_wake(void *ctx, uint32_t shard)
{
    struct rig *r = ctx;
    assert(shard == 0);
    pthread_mutex_lock(&r->lock);
    r->wake = true;
    pthread_cond_signal(&r->woken);
    pthread_mutex_unlock(&r->lock);
}

void rig_wait(struct rig *r)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += RIG_PATIENCE_S;
    pthread_mutex_lock(&r->lock);
    int late = 0;
    while (!r->wake && !late)
        late = pthread_cond_timedwait(&r->woken, &r->lock, &until);
    r->wake = false;
    pthread_mutex_unlock(&r->lock);
    if (late) {
        fprintf(stderr, "the engine did not answer within %d s\n", RIG_PATIENCE_S);
        abort();
    }
}

static void open_engine(struct rig *r)
{
    struct buf error = {0};
    r->options.now = r->now;
    enum status s = engine_open(&r->options, 1, &r->engine, &error);
    if (s != STATUS_OK) {
        fprintf(stderr, "engine_open: %s: %s\n", status_name(s), buf_cstr(&error));
        abort();
    }
    buf_fini(&error);
    struct chaos_options chaos = {.seed = 1,
                                  .hold_polls_max = r->hold_polls_max,
                                  .wake = r->options.wake,
                                  .wake_ctx = r->options.wake_ctx};
    if (r->hold_polls_max > 0)
        chaos_wrap(&r->engine, 1, &chaos);
}

/* As good as a new one, without the time it takes to make one. */
static void empty_database(const char *conninfo)
{
    static const char sql[] =
        "SET client_min_messages = error;"
        "DO $$ BEGIN IF to_regclass('triage.queue') IS NOT NULL THEN"
        " TRUNCATE triage.schedule, triage.queue, triage.level, triage.ready, triage.scheduled, "
        "triage.leased,"
        " triage.dead, triage.history, triage.body, triage.dedup, triage.tally, triage.lane,"
        " triage.counted, triage.waiting, triage.mark RESTART IDENTITY;"
        " ALTER SEQUENCE triage.seq RESTART;"
        " UPDATE triage.sweeping SET floor_ms = -140737488355328, full_ms = 0;"
        " END IF; END $$";
    PGconn *conn = PQconnectdb(conninfo);
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s: %s\n", conninfo, PQerrorMessage(conn));
        abort();
    }
    PQclear(result);
    PQfinish(conn);
}

static void give(struct rig *r, struct engine_value value)
{
    r->values[r->options.value_count++] = value;
    r->options.values = r->values;
}

uint64_t rig_counter(const struct rig *r, const char *name)
{
    const struct engine_kind *kind = r->engine->kind;
    for (uint32_t i = 0, place = 0; i < kind->counter_count; i++) {
        if (strcmp(kind->counters[i].name, name) == 0)
            return r->engine->counters.own[place];
        place += engine_counter_places(&kind->counters[i]);
    }
    return 0;
}

static void give_store(struct rig *r, const char *kind)
{
    if (strcmp(kind, "postgres") == 0) {
        empty_database(getenv("TRIAGE_TEST_POSTGRES"));
        give(r, (struct engine_value){.name = "postgres", .text = getenv("TRIAGE_TEST_POSTGRES")});
    } else if (strcmp(kind, "local") == 0) {
        folder_make(r->dir);
        give(r, (struct engine_value){.name = "data", .text = r->dir});
    }
}

/* Another database on the same server: a name given later counts. */
static void cell_database(struct rig *r, uint32_t cell, char *out, size_t size)
{
    const char *first = getenv("TRIAGE_TEST_POSTGRES");
    (void)r;
    snprintf(out, size, "%s%s", first, "");
    if (cell > 0) {
        PGconn *conn = PQconnectdb(first);
        char sql[128];
        snprintf(sql, sizeof(sql), "CREATE DATABASE %s_cell%u", PQdb(conn), cell);
        PQclear(PQexec(conn, sql)); /* it may be there */
        snprintf(out, size, "%s dbname=%s_cell%u", first, PQdb(conn), cell);
        PQfinish(conn);
    }
    empty_database(out);
}

static void give_cells(struct rig *r, const struct rig_options *options)
{
    size_t len = 0;
    char store[600] = "";
    bool files = strcmp(options->kind, "local") == 0;
    if (files)
        folder_make(r->dir);
    for (uint32_t i = 0; i < options->cells; i++) {
        if (files)
            snprintf(store, sizeof(store), "%s/%u", r->dir, i);
        else if (strcmp(options->kind, "postgres") == 0)
            cell_database(r, i, store, sizeof(store));
        len += (size_t)snprintf(r->cells + len, sizeof(r->cells) - len, "c%u=%s:%s\n", i,
                                options->kind, store);
        assert(len < sizeof(r->cells));
    }
    r->options.kind = "cells";
    give(r, (struct engine_value){.name = "cell", .text = r->cells});
}

void rig_init(struct rig *r, const struct rig_options *options)
{
    const char *kind = options->kind;
    *r = (struct rig){
        /* 2050: a store may throw away in the background what the real clock says has run out. */
        .now = {.wall_ms = 2524608000000, .mono_ms = 5000000},
        .hold_polls_max = options->hold_polls_max,
        .memory_limit = options->memory_limit,
        .options = {.kind = kind,
                    .durability = options->durability,
                    .sync_interval_ms = 20,
                    .asks = options->asks,
                    .trace = options->traced,
                    .wake = on_wake,
                    .wake_ctx = r},
    };
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->woken, NULL);
    if (options->cells > 0)
        give_cells(r, options);
    else
        give_store(r, kind);
    if (strcmp(kind, "local") == 0) {
        give(r, (struct engine_value){.name = "memory_limit", .number = options->memory_limit});
        give(r, (struct engine_value){.name = "disk_reserve", .number = 1});
    }
    open_engine(r);
}

void rig_fini(struct rig *r)
{
    engine_close(&r->engine, 1);
    if (r->dir[0])
        folder_remove(r->dir);
    pthread_cond_destroy(&r->woken);
    pthread_mutex_destroy(&r->lock);
}

void rig_reopen(struct rig *r)
{
    engine_close(&r->engine, 1);
    r->engine = NULL;
    open_engine(r);
}

bool rig_durable(const struct rig *r)
{
    return engine_has(r->engine, ENGINE_DURABLE);
}

static void on_done(struct engine_op *op)
{
    uint32_t *left = op->user;
    assert(*left > 0);
    --*left;
}

static void ignore_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op, (void)q;
}

static void await(struct rig *r, const uint32_t *left)
{
    engine_flush(r->engine);
    while (*left > 0) {
        if (engine_poll(r->engine) == 0 && *left > 0)
            rig_wait(r);
    }
}

/* Merges what was read, and next to nothing else. */
static void merge(struct rig *r)
{
    uint32_t left = 1;
    struct engine_op op = {.verb = ENGINE_SWEEP,
                           .sweep = {.max = 1, .touched = ignore_touched},
                           .done = on_done,
                           .user = &left};
    while (r->engine->reading > 0) {
        engine_flush(r->engine);
        engine_poll(r->engine);
        if (r->engine->reading > 0)
            rig_wait(r);
    }
    engine_submit(r->engine, &op, r->now);
    await(r, &left);
}

static void hold(struct rig *r, struct engine_queue *q)
{
    struct claim_question ask = {q->config.level_count - 1, CLAIM_MAX, false};
    while (!engine_holds(r->engine, q, &ask, r->now))
        merge(r);
}

static void hold_all(struct rig *r)
{
    size_t at = 0;
    for (struct engine_queue *q; (q = engine_queue_each(r->engine, &at));)
        hold(r, q);
    while (r->engine->reading > 0 && !r->engine->failed)
        merge(r); /* counts of a tail, and reads ahead of claims */
}

void rig_run(struct rig *r, struct engine_op *ops[], uint32_t count)
{
    uint32_t left = count;
    for (uint32_t i = 0; i < count; i++) {
        if (r->options.asks && ops[i]->verb == ENGINE_CLAIM)
            hold(r, ops[i]->queue);
        ops[i]->done = on_done;
        ops[i]->user = &left;
        engine_submit(r->engine, ops[i], r->now);
        if (r->overlap)
            engine_flush(r->engine);
    }
    assert(left == count || r->options.asks);
    await(r, &left);
    if (r->options.asks && !r->engine->failed)
        hold_all(r);
    assert(r->engine->in_flight == 0);
}

void rig_run_one(struct rig *r, struct engine_op *op)
{
    rig_run(r, &op, 1);
}

uint64_t rig_position(struct rig *r, struct engine_queue *q, const struct policy *p, int rank,
                      struct place at, bool *exact)
{
    struct explain e = {.config = &q->config,
                        .policy = p,
                        .now_ms = r->now.wall_ms,
                        .rank = rank,
                        .ready_ms = at.ready_ms,
                        .seq = at.seq};
    struct count_item items[EXPLAIN_ITEMS_MAX];
    explain_places(&e, items);
    struct engine_op count = {.verb = ENGINE_COUNT,
                              .queue = q,
                              .count = {.items = items, .count = explain_item_count(&e)}};
    rig_run_one(r, &count);
    assert(count.status == STATUS_OK);
    uint64_t ahead = explain_ahead(&e, items, exact);
    if (!explain_is_near(&e, items))
        return ahead;
    struct heads_item heads[LEVEL_COUNT_MAX];
    explain_heads(&e, heads);
    struct engine_op look = {.verb = ENGINE_HEADS,
                             .queue = q,
                             .heads = {.items = heads, .count = q->config.level_count}};
    rig_run_one(r, &look);
    assert(look.status == STATUS_OK);
    *exact = explain_follow(&e, heads, &ahead);
    for (int i = 0; i < q->config.level_count; i++)
        free(heads[i].places);
    return ahead;
}

void rig_sweep(struct rig *r, uint32_t max)
{
    for (uint32_t round = 0; round < 1000000; round++) {
        struct engine_op op = {.verb = ENGINE_SWEEP,
                               .sweep = {.max = max, .touched = ignore_touched}};
        rig_run_one(r, &op);
        if (r->engine->reading > 0)
            merge(r);
        else if (!op.sweep.more && engine_next_due_ms(r->engine, r->now) > 0)
            return;
    }
    fprintf(stderr, "sweeping never ends\n");
    abort();
}

struct queue_config rig_config(uint32_t level_count)
{
    struct queue_config c = {
        .profile = "custom",
        .level_count = (uint8_t)level_count,
        .policy = POLICY_STRICT,
        .visibility_ms = 30000,
        .max_attempts = 3,
        .backoff = BACKOFF_NONE,
        .backoff_base_ms = 1000,
        .backoff_max_ms = 300000,
        .expired = EXPIRED_DROP,
        .dedup_window_ms = 300000,
        .dedup_scope = DEDUP_WINDOW,
    };
    for (uint32_t i = 0; i < level_count; i++) {
        snprintf(c.levels[i].name, sizeof(c.levels[i].name), "L%u", i);
        c.levels[i].has_number = true;
        c.levels[i].number = i;
        c.levels[i].weight = 1;
    }
    return c;
}

struct engine_queue *rig_queue(struct rig *r, const char *name, const struct queue_config *config)
{
    struct engine_queue *q = engine_queue_find(r->engine, name, strlen(name));
    if (q)
        return q;
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .set = {.name = name, .config = config}};
    rig_run_one(r, &op);
    assert(op.status == STATUS_OK);
    return op.queue;
}
