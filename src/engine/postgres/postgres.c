#include "engine/postgres/postgres.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_MS   500 /* others' leases end, too */
#define TIMEOUT_MS 15000

static const struct engine_ops postgres_ops;

static struct pg *pg_of(struct engine *e)
{
    assert(e->ops == &postgres_ops);
    return (struct pg *)e;
}

void pg_wake(struct pg *pg)
{
    struct pg_shared *shared = pg->shared;
    if (shared->wake && atomic_load(&pg->running))
        shared->wake(shared->wake_ctx, pg->shard);
}

/* Queues */

struct pg_queue *pg_queue_by_id(struct pg *pg, uint32_t id)
{
    return map_get(&pg->by_id, (const char *)&id, sizeof(id));
}

struct pg_queue *pg_queue_add(struct pg *pg, const char *name, uint32_t id, uint32_t version,
                              const struct queue_config *config)
{
    struct pg_queue *q = mem_zalloc(sizeof(*q));
    snprintf(q->face.name, sizeof(q->face.name), "%s", name);
    q->pg = pg;
    q->face.id = id;
    q->face.version = version;
    q->face.config = *config;
    q->face.next_seq = 1;
    map_put(&pg->queues, q->face.name, strlen(q->face.name), q);
    map_put(&pg->by_id, (const char *)&q->face.id, sizeof(q->face.id), q);
    return q;
}

static void free_if_idle(struct pg_queue *q)
{
    if (q->retired && q->busy == 0)
        free(q);
}

void pg_queue_retire(struct pg_queue *q)
{
    if (q->retired)
        return;
    map_remove(&q->pg->queues, q->face.name, strlen(q->face.name));
    map_remove(&q->pg->by_id, (const char *)&q->face.id, sizeof(q->face.id));
    q->retired = true;
}

void pg_view_changed(struct pg_queue *q)
{
    q->face.view = q->seen;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        struct lane_view *lane = &q->face.view.lanes[slot];
        uint64_t taken = q->taking[slot] < lane->ready ? q->taking[slot] : lane->ready;
        lane->ready -= taken;
        q->face.view.ready -= taken;
    }
}

/* What a claim is going to take, as far as the view tells. */
static void reserve(struct pg_queue *q, const struct plan *plan, struct taking *taking)
{
    uint32_t left = plan->want;
    *taking = (struct taking){0};
    for (uint32_t i = 0; left > 0 && i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        uint32_t more = step->max;
        for (uint32_t k = 0; left > 0 && more > 0 && k < step->lane_count; k++) {
            uint8_t slot = plan->lanes[step->first_lane + k].slot;
            uint64_t there = q->face.view.lanes[slot].ready - taking->from[slot];
            uint32_t n = more < left ? more : left;
            n = there < n ? (uint32_t)there : n;
            taking->from[slot] = (uint16_t)(taking->from[slot] + n);
            left -= n;
            more -= n;
        }
    }
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        q->taking[slot] += taking->from[slot];
    pg_view_changed(q);
}

/* Groups */

static struct job *job_new(struct instant now)
{
    struct job *job = mem_zalloc(sizeof(*job));
    job->last = &job->first;
    job->calls_end = &job->calls;
    job->now = now;
    return job;
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct pg *pg = pg_of(e);
    struct pg_queue *q = (struct pg_queue *)op->queue;
    atomic_store(&pg->running, true);
    if (!pg->open)
        pg->open = job_new(now);
    pg->open->now = now;
    if (q)
        q->busy++;
    if (op->verb == ENGINE_CLAIM) {
        op->engine = mem_alloc(sizeof(struct taking));
        reserve(q, op->claim.plan, op->engine);
    } else {
        op->engine = q;
    }
    *pg->open->last = op;
    pg->open->last = &op->next;
    pg->open->op_count++;
}

static struct link *idle_link(struct pg *pg)
{
    for (int i = 0; i < LINKS; i++) {
        if (link_idle(pg->links[i]))
            return pg->links[i];
    }
    return NULL;
}

/* What looks at a whole queue, or changes it as a whole, is not to meet a job half done. */
static bool wants_to_be_alone(const struct job *job)
{
    bool alone = false;
    for (const struct engine_op *op = job->first; op && !alone; op = op->next)
        alone = !op->queue || view_wanted((const struct pg_queue *)op->queue, op, job->now);
    return alone;
}

static void hand_over(struct pg *pg, struct job *job, struct link *link)
{
    calls_build(pg, job);
    pg->jobs_under_way++;
    job->link = link;
    link_put(link, job);
}

/* What comes after a change of a configuration goes by the new one, and so into the next job. */
static struct job *cut_behind_change(struct job *job)
{
    uint32_t count = 1;
    for (struct engine_op *op = job->first; op && op->next; op = op->next, count++) {
        if (!op->queue || (op->verb != ENGINE_QUEUE_SET && op->verb != ENGINE_QUEUE_DELETE))
            continue;
        struct job *rest = job_new(job->now);
        rest->first = op->next;
        rest->last = job->last;
        rest->op_count = job->op_count - count;
        job->op_count = count;
        op->next = NULL;
        job->last = &op->next;
        return rest;
    }
    return NULL;
}

/* While transactions run the next group gathers, until it is worth one of its own beside them. */
static void flush(struct engine *e)
{
    struct pg *pg = pg_of(e);
    struct job *job = pg->open;
    struct link *link = job ? idle_link(pg) : NULL;
    bool first = pg->jobs_under_way == 0;
    if (!link || (!first && (pg->alone || job->op_count < pg->last_count)))
        return;
    bool alone = wants_to_be_alone(job);
    if (alone && !first)
        return;
    pg->alone = alone;
    pg->last_count = job->op_count;
    pg->open = cut_behind_change(job);
    hand_over(pg, job, link);
}

void pg_fail(struct engine_op *op, enum status status)
{
    op->status = status;
    if (op->verb != ENGINE_CLAIM)
        return;
    op->claim.found = 0;
    for (uint32_t i = 0; i < op->claim.plan->step_count; i++)
        op->claim.plan->steps[i].found = 0;
}

static void end_claim(struct pg_queue *q, struct engine_op *op)
{
    struct taking *taking = op->engine;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        q->taking[slot] -= taking->from[slot];
    free(taking);
    pg_view_changed(q);
}

/* Queues with news are shown to whoever swept. */
static void tell(struct pg *pg, struct engine_op *op)
{
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        if (!q->told)
            continue;
        bool gone = q->face.gone;
        if (!gone)
            q->told = false;
        if (op->sweep.touched)
            op->sweep.touched(op, &q->face);
        if (gone) {
            pg_queue_retire(q);
            free_if_idle(q);
            at = 0;
        }
    }
}

static uint32_t report(struct pg *pg, struct job *job)
{
    uint32_t count = 0;
    for (struct engine_op *op = job->first; op; count++) {
        struct engine_op *next = op->next;
        bool claims = op->verb == ENGINE_CLAIM;
        struct pg_queue *q = claims ? (struct pg_queue *)op->queue : op->engine;
        if (job->fate != JOB_DONE)
            pg_fail(op, STATUS_ENGINE_UNAVAILABLE);
        if (claims)
            end_claim(q, op);
        if (op->verb == ENGINE_SWEEP && job->fate == JOB_DONE)
            tell(pg, op);
        engine_finish(&pg->base, op);
        if (q) {
            q->busy--;
            free_if_idle(q);
        }
        op = next;
    }
    return count;
}

/* What a sweep moved shows only in the views of a second transaction. */
static bool look_again(struct pg *pg, struct job *job)
{
    if (job->looked || !pg->told || !job_asks_to_sweep(job))
        return false;
    calls_free(job);
    job->looked = true;
    job->writes = false;
    calls_views(pg, job);
    if (!job->calls)
        return false;
    link_put(job->link, job);
    return true;
}

static uint32_t take_job(struct pg *pg, struct job *job)
{
    if (job->fate == JOB_STALE && job->tries++ < 8) {
        calls_free(job);
        job->reloading = true;
        job->writes = false;
        calls_queues(job);
        link_put(job->link, job);
        return 0;
    }
    if (job->reloading && job->fate == JOB_DONE) {
        calls_answer(pg, job);
        calls_free(job);
        job->reloading = false;
        calls_build(pg, job);
        link_put(job->link, job);
        return 0;
    }
    if (job->fate == JOB_DONE) {
        calls_answer(pg, job);
        if (look_again(pg, job))
            return 0;
    }
    if (job->looked) /* the job itself was done before it looked, and stays so */
        job->fate = JOB_DONE;
    pg->jobs_under_way--;
    pg->base.counters.groups += job->fate == JOB_DONE;
    pg->base.counters.group_ops += job->op_count;
    uint32_t count = report(pg, job);
    calls_free(job);
    free(job);
    return count;
}

static uint32_t poll(struct engine *e)
{
    struct pg *pg = pg_of(e);
    uint32_t count = 0;
    for (int i = 0; i < LINKS; i++) {
        struct job *job = link_take(pg->links[i]);
        count += job ? take_job(pg, job) : 0;
    }
    flush(e);
    return count;
}

/* Time */

static void hear(void *ctx, uint32_t id)
{
    struct pg *pg = ctx;
    struct pg_queue *q = pg_queue_by_id(pg, id);
    if (q)
        q->told = pg->told = true;
}

static int64_t next_due_ms(struct engine *e, struct instant now)
{
    struct pg *pg = pg_of(e);
    atomic_store(&pg->running, true);
    if (pg->shared->listener && listener_take(pg->shared->listener, pg->shard, hear, pg))
        pg->all_told = true;
    int64_t due = pg->due_ms == INT64_MAX ? INT64_MAX : pg->due_ms - now.wall_ms;
    int64_t anyway = pg->sweep_mono_ms + SWEEP_MS - now.mono_ms;
    if (!pg->shared->invented_time && anyway < due)
        due = anyway;
    if (due <= 0) {
        pg->sweep_mono_ms = now.mono_ms;
        pg->sweep_due = true;
    }
    return due < 0 || pg->sweep_due || pg->told || pg->all_told ? 0 : due;
}

/* The rest */

static struct engine_queue *find_queue(struct engine *e, const char *name, size_t len)
{
    struct pg_queue *q = map_get(&pg_of(e)->queues, name, len);
    return q ? &q->face : NULL;
}

static struct engine_queue *each_queue(struct engine *e, size_t *at)
{
    struct pg_queue *q = map_each(&pg_of(e)->queues, at);
    return q ? &q->face : NULL;
}

static enum status health(struct engine *e, struct buf *detail)
{
    struct pg *pg = pg_of(e);
    for (int i = 0; i < LINKS; i++) {
        buf_clear(detail);
        if (!link_healthy(pg->links[i], detail))
            return STATUS_ENGINE_UNAVAILABLE;
    }
    return STATUS_OK;
}

static void free_shard(struct pg *pg)
{
    for (int i = 0; i < LINKS; i++) {
        if (pg->links[i])
            link_close(pg->links[i]);
    }
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at)); at = 0) {
        pg_queue_retire(q);
        free(q);
    }
    map_fini(&pg->queues);
    map_fini(&pg->by_id);
    free(pg->open);
    free(pg);
}

static void free_shared(struct pg_shared *shared)
{
    if (shared->listener)
        listener_close(shared->listener);
    for (uint32_t i = 0; i < shared->shard_count; i++) {
        if (shared->shards[i])
            free_shard(shared->shards[i]);
    }
    free(shared->shards);
    free(shared->conninfo);
    free(shared->listen_conninfo);
    free(shared);
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    (void)shard_count;
    free_shared(pg_of(shards[0])->shared);
}

static const struct engine_ops postgres_ops = {
    .name = "postgres",
    .capabilities = ENGINE_DURABLE | ENGINE_SHARED,
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = next_due_ms,
    .queue_find = find_queue,
    .queue_each = each_queue,
    .health = health,
    .close = close_all,
};

static struct pg *shard_new(struct pg_shared *shared, uint32_t index, struct buf *error)
{
    struct pg *pg = mem_zalloc(sizeof(*pg));
    pg->base.ops = &postgres_ops;
    pg->shared = shared;
    pg->shard = index;
    pg->due_ms = INT64_MAX;
    for (int i = 0; i < LINKS; i++) {
        pg->links[i] = link_open(pg, error);
        if (!pg->links[i]) {
            free_shard(pg);
            return NULL;
        }
    }
    return pg;
}

/* Before the shards run: the queues that are there, and what is in them. */
static enum status load(struct pg *pg, struct buf *error)
{
    struct job *job = job_new((struct instant){0});
    calls_queues(job);
    link_put(pg->links[0], job);
    struct job *done;
    while (!(done = link_take(pg->links[0])))
        uv_sleep(1);
    assert(done == job);
    enum status status = job->fate == JOB_DONE ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE;
    if (status)
        buf_puts(error, job->error);
    else
        calls_answer(pg, job);
    pg->all_told = pg->told;
    calls_free(job);
    free(job);
    return status;
}

/* What to do about it, for whoever starts a server. */
static void advise(struct buf *error)
{
    static const struct {
        const char *said, *advice;
    } known[] = {
        {"session is read-only",
         "it is a standby, or read-only by default: name the primary, or all "
         "hosts of which one is it"},
        {"no password supplied", "give one in the connection string, PGPASSWORD or ~/.pgpass"},
        {"permission denied for",
         "the role has to own the schema triage, or be given what "
         "docs/engines.md lists once triaged migrate has run as the owner"},
        {"Is the server running", "--postgres 'host=db1 dbname=triage' would say where it is"},
        {"database \"", "create it with createdb"},
    };
    while (error->len > 0 && error->data[error->len - 1] == '\n')
        error->len--;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strstr(buf_cstr(error), known[i].said)) {
            buf_printf(error, " (%s)", known[i].advice);
            return;
        }
    }
}

static enum status prepare(struct pg_shared *shared, struct buf *error)
{
    PGconn *conn = link_connect(shared->conninfo, error);
    enum status status = conn ? schema_install(conn, error) : STATUS_ENGINE_UNAVAILABLE;
    PQfinish(conn);
    if (status)
        advise(error);
    return status;
}

enum status postgres_migrate(const struct engine_options *options, struct buf *report)
{
    struct pg_shared shared = {.conninfo = (char *)options->postgres, .sync_commit = true};
    enum status status = prepare(&shared, report);
    if (!status)
        buf_printf(report, "the schema is at version %d", schema_version());
    return status;
}

enum status postgres_open(const struct engine_options *options, uint32_t shard_count,
                          struct engine *shards[], struct buf *error)
{
    struct pg_shared *shared = mem_zalloc(sizeof(*shared));
    const char *conninfo = options->postgres ? options->postgres : "";
    const char *listen = options->postgres_listen ? options->postgres_listen : "";
    shared->conninfo = mem_dup(conninfo, strlen(conninfo) + 1);
    shared->listen_conninfo =
        *listen ? mem_dup(listen, strlen(listen) + 1) : mem_dup(conninfo, strlen(conninfo) + 1);
    shared->timeout_ms =
        options->postgres_timeout_ms > 0 ? options->postgres_timeout_ms : TIMEOUT_MS;
    shared->invented_time = options->now.wall_ms != 0;
    shared->sync_commit = options->durability == DURABILITY_FSYNC;
    shared->wake = options->wake;
    shared->wake_ctx = options->wake_ctx;
    shared->shard_count = shard_count;
    shared->shards = mem_zalloc(shard_count * sizeof(struct pg *));
    random_bytes(shared->node, sizeof(shared->node));
    enum status status = prepare(shared, error);
    for (uint32_t i = 0; !status && i < shard_count; i++) {
        shared->shards[i] = shard_new(shared, i, error);
        status = shared->shards[i] ? load(shared->shards[i], error) : STATUS_ENGINE_UNAVAILABLE;
        shards[i] = shared->shards[i] ? &shared->shards[i]->base : NULL;
    }
    if (status) {
        free_shared(shared);
        return status;
    }
    if (!shared->invented_time)
        shared->listener = listener_open(shared);
    return STATUS_OK;
}
