/* The engine itself. Ops gather in jobs, jobs go to connections, and their answers end the ops. */
#include "engine/postgres/postgres.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdlib.h>

#define SWEEP_MS 500 /* leases of other servers' consumers end, too */
#define HOLD_MS  100 /* pause after a sweep that failed, because the same is still due */

/* Far below what PostgreSQL takes in one value, and enough to make a commit worth its cost. */
#define JOB_BYTES_MAX (16 * 1024 * 1024)

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

/* Groups */

struct pg_job *job_new(struct instant now)
{
    struct pg_job *job = mem_zalloc(sizeof(*job));
    job->last = &job->first;
    job->calls_end = &job->calls;
    job->now = now;
    return job;
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct pg *pg = pg_of(e);
    struct pg_queue *q = pg_queue_of(op->queue);
    assert(!q || q->pg == pg);
    assert(!q || !q->deleting);
    atomic_store(&pg->running, true);
    if (!pg->open)
        pg->open = job_new(now);
    pg->open->now = now;
    op->lot = 0;
    op->version = q ? q->face.version : 0;
    if (q) {
        q->busy++;
        q->deleting = q->deleting || op->verb == ENGINE_QUEUE_DELETE;
    }
    if (op->verb == ENGINE_CLAIM) {
        op->engine = mem_alloc(sizeof(struct taking));
        pg_queue_reserve(q, op->claim.plan, op->engine);
        assert(taking_of(op)->anywhere <= op->claim.plan->want);
    } else {
        op->engine = q;
    }
    assert(!*pg->open->last);
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

/* Whether the job must not run beside another. An op that looks at a whole queue, or changes it as
 * a whole, must not see another job half done. And a claim that uses tokens needs those that the
 * claim before it left. */
static bool wants_to_be_alone(const struct pg_job *job)
{
    bool alone = false;
    for (const struct engine_op *op = job->first; op && !alone; op = op->next)
        alone = !op->queue || (op->verb == ENGINE_CLAIM && op->claim.plan->policy) ||
                view_wanted(pg_queue_of(op->queue), op, job->now);
    return alone;
}

static void hand_over(struct pg *pg, struct pg_job *job, struct link *link)
{
    assert(job->op_count > 0);
    assert(!job->link);
    assert(pg->jobs_under_way < LINKS);
    calls_build(pg, job);
    pg->jobs_under_way++;
    job->link = link;
    link_put(link, job);
}

static size_t draft_bytes(const struct draft *d)
{
    return d->payload_len + d->metadata_len + d->dedup_len;
}

/* About how many bytes an op adds to a job, sent or received. */
static size_t op_bytes(const struct engine_op *op)
{
    size_t bytes = 0;
    if (op->verb == ENGINE_PUT) {
        for (uint32_t i = 0; i < op->put.count; i++)
            bytes += draft_bytes(&op->put.items[i].draft);
    } else if (op->verb == ENGINE_IMPORT) {
        for (uint32_t i = 0; i < op->import.count; i++)
            bytes += draft_bytes(&op->import.items[i].draft);
    } else if (op->verb == ENGINE_CLAIM) {
        const struct queue_view *v = &pg_queue_of(op->queue)->seen;
        bytes = op->claim.plan->want * (v->bytes / (v->ready + v->scheduled + 1));
    }
    return bytes;
}

/* Ops after a change of the configuration go by the new one, so they are in the next job. */
static bool changes_queue(const struct engine_op *op)
{
    return op->queue && (op->verb == ENGINE_QUEUE_SET || op->verb == ENGINE_QUEUE_DELETE ||
                         op->verb == ENGINE_QUEUE_PLACE);
}

static bool lists(const struct engine_op *op)
{
    return op->verb == ENGINE_LIST || op->verb == ENGINE_DEAD_LIST;
}

/* Ops that one job may have, one after the other. A list may take long, so it is in a job of its
 * own: when that runs out of time, no changes fail with it. A place is set without puts before it,
 * which hold the lock that it waits for: two servers that do so would wait for each other. */
static bool go_together(const struct engine_op *op, const struct engine_op *next)
{
    return !changes_queue(op) && lists(op) == lists(next) && next->verb != ENGINE_QUEUE_PLACE;
}

/* Splits off the ops that are for the next job: those that do not go together with these, and those
 * that would make this job larger than JOB_BYTES_MAX. One op alone may be larger. */
static struct pg_job *cut(struct pg_job *job)
{
    uint32_t count = 1;
    size_t bytes = 0;
    for (struct engine_op *op = job->first; op && op->next; op = op->next, count++) {
        bytes += op_bytes(op);
        if (go_together(op, op->next) && bytes + op_bytes(op->next) <= JOB_BYTES_MAX)
            continue;
        struct pg_job *rest = job_new(job->now);
        rest->first = op->next;
        rest->last = job->last;
        assert(count < job->op_count);
        rest->op_count = job->op_count - count;
        job->op_count = count;
        op->next = NULL;
        job->last = &op->next;
        return rest;
    }
    return NULL;
}

/* While transactions run, the next group gathers, until it is worth a transaction beside them. */
static void flush(struct engine *e)
{
    struct pg *pg = pg_of(e);
    struct pg_job *job = pg->open;
    struct link *link = job ? idle_link(pg) : NULL;
    bool first = pg->jobs_under_way == 0;
    if (!link || (!first && (pg->alone || job->op_count < pg->last_count)))
        return;
    bool alone = wants_to_be_alone(job);
    if (alone && !first)
        return;
    pg->alone = alone;
    pg->open = cut(job);
    pg->last_count = job->op_count;
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
    struct taking *taking = taking_of(op);
    pg_queue_unreserve(q, taking);
    tag_end(&taking->tag, TAKING_TAG);
    free(taking);
    op->engine = NULL;
}

static void tell_replaced(struct pg *pg, struct engine_op *op)
{
    for (struct pg_queue *q; (q = pg->replaced);) {
        pg->replaced = q->next_replaced;
        if (op->sweep.touched)
            op->sweep.touched(op, &q->face);
        assert(q->retired);
        assert(q->busy > 0);
        q->busy--;
        pg_queue_let_go(q);
    }
}

/* Shows queues with news to the op that swept. */
static void tell(struct pg *pg, struct engine_op *op)
{
    size_t at = 0;
    tell_replaced(pg, op);
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        bool gone = q->face.gone;
        if (!q->told || (q->deleting && !gone))
            continue;
        if (!gone)
            q->told = false;
        if (op->sweep.touched)
            op->sweep.touched(op, &q->face);
        if (gone) {
            pg_queue_retire(q);
            pg_queue_let_go(q);
            at = 0;
        }
    }
}

/* An op whose queue was found to be gone, in the same job or meanwhile, must not hand out the
 * queue. */
static void check_gone(const struct pg_queue *q, struct engine_op *op)
{
    bool hands_out = op->verb == ENGINE_QUEUE_OPEN || op->verb == ENGINE_QUEUE_SET;
    if (q && q->face.gone && (op->verb == ENGINE_QUEUE_DELETE ? op->status : hands_out))
        op->status = STATUS_QUEUE_NOT_FOUND;
}

static uint32_t report(struct pg *pg, struct pg_job *job)
{
    uint32_t count = 0;
    for (struct engine_op *op = job->first; op; count++) {
        struct engine_op *next = op->next;
        bool claims = op->verb == ENGINE_CLAIM;
        struct pg_queue *q = pg_queue_of(claims ? op->queue : op->engine);
        if (job->fate != JOB_DONE && op->lot != LOT_REFUSED)
            pg_fail(op, STATUS_ENGINE_UNAVAILABLE);
        if (claims)
            end_claim(q, op);
        if (op->verb == ENGINE_SWEEP && job->fate == JOB_DONE)
            tell(pg, op);
        if (op->verb == ENGINE_QUEUE_DELETE)
            q->deleting = false;
        check_gone(q, op);
        engine_finish(&pg->base, op);
        if (q) {
            assert(q->busy > 0);
            q->busy--;
            pg_queue_let_go(q);
        }
        op = next;
    }
    return count;
}

/* Changes made by a sweep show only in a second transaction, so the views are read by that; and so
 * are the places that refused something. */
static bool look_again(struct pg *pg, struct pg_job *job)
{
    bool news = pg->told && job_asks_to_sweep(job);
    if (job->looked || (!news && !job->moved))
        return false;
    calls_free(job);
    job->looked = true;
    job->writes = false;
    job->until_ms = 0;
    if (news)
        calls_views(pg, job);
    if (job->moved)
        calls_places(pg, job);
    if (!job->calls)
        return false;
    link_put(job->link, job);
    return true;
}

/* Drops the calls of a job that did not happen. The news that they were to read are still unread,
 * and the database was not told where consumers wait. */
static void forget_calls(struct pg *pg, struct pg_job *job)
{
    for (const struct pg_call *c = job->calls; c; c = c->next)
        pg->all_told = pg->all_told || c->kind == CALL_QUEUES;
    for (const struct engine_op *op = job->first; op; op = op->next) {
        if (op->queue)
            pg_queue_of(op->queue)->waits_until_ms = 0;
    }
    calls_free(job);
}

/* Finds out which op the database refuses, and lets it fail alone: see impl.h. */
static bool go_on_without(struct pg *pg, struct pg_job *job)
{
    struct pg_call *c = job->refused;
    if (job->fate != JOB_REFUSED || !c || c->op_count == 0 || job->reloading || job->looked ||
        clock_now().mono_ms >= job->until_ms)
        return false;
    uint32_t lot = c->op_count == 1 ? LOT_REFUSED : ++job->lots;
    assert(lot > 0);
    for (uint32_t i = c->op_count / 2; i < c->op_count; i++)
        c->ops[i]->lot = lot;
    forget_calls(pg, job);
    calls_build(pg, job);
    link_put(job->link, job);
    return true;
}

/* Which place refused them could not be read, so the refusal is not passed on. */
static void fail_moved(struct pg_job *job)
{
    for (struct engine_op *op = job->first; op; op = op->next) {
        if (op->status == STATUS_MOVED)
            pg_fail(op, STATUS_ENGINE_UNAVAILABLE);
    }
}

/* An invented clock is the caller's: there is nothing to compare. */
void pg_learn_clock(struct pg *pg, struct pg_job *job)
{
    const struct exchange *x = &job->exchange;
    if (x->heard_us != 0 && !pg->shared->invented_time)
        offset_learn(&pg->offset, x->asked_us, x->theirs_us, x->heard_us);
    pg->base.ahead_us = offset_us(&pg->offset);
    job->exchange = (struct exchange){0};
}

static uint32_t take_job(struct pg *pg, struct pg_job *job)
{
    pg_learn_clock(pg, job);
    if (go_on_without(pg, job))
        return 0;
    if (job->fate == JOB_STALE && job->tries++ < 8) {
        forget_calls(pg, job);
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
    if (job->looked && job->fate != JOB_DONE)
        fail_moved(job);
    if (job->looked) /* the job was done before it looked again */
        job->fate = JOB_DONE;
    if (job->fate != JOB_DONE && job_asks_to_sweep(job))
        pg->held_until_ms = clock_now().mono_ms + HOLD_MS;
    for (const struct pg_call *c = job->fate == JOB_DONE ? NULL : job->calls; c; c = c->next)
        pg->list_due = pg->list_due || c->kind == CALL_QUEUES;
    assert(pg->jobs_under_way > 0);
    pg->jobs_under_way--;
    pg->base.counters.groups += job->fate == JOB_DONE;
    pg->base.counters.group_ops += job->fate == JOB_DONE ? job->op_count : 0;
    if (job->fate == JOB_DONE && job->commit_us > 0) {
        pg->base.counters.commit_us += job->commit_us;
        durations_add(&pg->base.counters.commits, &duration_works, job->commit_us);
    }
    uint32_t op_count = job->op_count, count = report(pg, job);
    assert(count == op_count);
    calls_free(job);
    free(job);
    return count;
}

static uint32_t poll(struct engine *e)
{
    struct pg *pg = pg_of(e);
    uint32_t count = 0;
    for (int i = 0; i < LINKS; i++) {
        struct pg_job *job = link_take(pg->links[i]);
        assert(!job || job->link == pg->links[i]);
        count += job ? take_job(pg, job) : 0;
    }
    flush(e);
    return count;
}

/* Time */

static void hear(void *ctx, uint32_t id)
{
    pg_queue_tell(pg_of(ctx), id);
}

static int64_t next_due_ms(struct engine *e, struct instant now)
{
    struct pg *pg = pg_of(e);
    atomic_store(&pg->running, true);
    if (pg->shared->listener && listener_take(pg->shared->listener, pg->shard, hear, pg))
        pg->all_told = true;
    if (!pg->shared->invented_time && pg->held_until_ms > now.mono_ms)
        return pg->held_until_ms - now.mono_ms;
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
    struct pg_queue *q = pg_queue_of(map_get(&pg_of(e)->queues, name, len));
    return q ? &q->face : NULL;
}

static struct engine_queue *each_queue(struct engine *e, size_t *at)
{
    struct pg_queue *q = pg_queue_of(map_each(&pg_of(e)->queues, at));
    return q ? &q->face : NULL;
}

static bool speaks(struct engine *e, struct instant now)
{
    return duty_speaks(pg_of(e)->shared, now);
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

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    (void)shard_count;
    pg_close(pg_of(shards[0])->shared);
}

const struct engine_ops postgres_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = next_due_ms,
    .queue_find = find_queue,
    .queue_each = each_queue,
    .speaks = speaks,
    .health = health,
    .close = close_all,
};
