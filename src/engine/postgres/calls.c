/* Makes the calls of a group. Ops of the same kind share a call. */
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct pg_call *call_add(struct pg_job *job, enum call_kind kind, struct pg_queue *q,
                         enum engine_verb verb, const char *sql)
{
    struct pg_call *c = mem_zalloc(sizeof(*c));
    assert(!*job->calls_end);
    c->kind = kind;
    c->verb = verb;
    c->queue = q;
    c->puts = q ? q->puts : 0;
    c->sql = sql;
    *job->calls_end = c;
    job->calls_end = &c->next;
    return c;
}

static void call_join(struct pg_call *c, struct engine_op *op)
{
    if (c->op_count == c->op_cap) {
        c->op_cap = c->op_cap ? c->op_cap * 2 : 4;
        c->ops = mem_realloc(c->ops, c->op_cap * sizeof(struct engine_op *));
    }
    assert(c->op_count < c->op_cap);
    c->ops[c->op_count++] = op;
}

/* Gathering. An op that looks at a whole queue, or changes it as a whole, ends a segment. Within a
 * segment ops of the same kind become one call. */

struct call_segment {
    struct pg_call *first, **end; /* calls of puts and settles */
    struct pg_call *claims, **claims_end;
};

static bool joins(const struct pg_call *c, const struct pg_queue *q, const struct engine_op *op)
{
    assert(c->op_count > 0);
    const struct engine_op *like = c->ops[0];
    if (c->queue != q || c->verb != op->verb || like->lot != op->lot)
        return false;
    switch (op->verb) {
    case ENGINE_PUT:
        return !q || (like->put.epoch == op->put.epoch &&
                      engine_only_known(like) == engine_only_known(op));
    case ENGINE_ACK:
        return true;
    case ENGINE_NACK:
    case ENGINE_RELEASE:
        return like->settle.delay_ms == op->settle.delay_ms &&
               like->settle.reason_len == op->settle.reason_len &&
               (op->settle.reason_len == 0 ||
                memcmp(like->settle.reason, op->settle.reason, op->settle.reason_len) == 0);
    case ENGINE_EXTEND:
        return like->settle.lease_ms == op->settle.lease_ms;
    case ENGINE_CLAIM:
        return like->claim.lease_ms == op->claim.lease_ms && claims_fit(c, op->claim.plan);
    default:
        return false;
    }
}

static enum call_kind kind_of(enum engine_verb verb)
{
    static const enum call_kind kinds[ENGINE_VERB_COUNT] = {
        [ENGINE_PUT] = CALL_PUT,
        [ENGINE_IMPORT] = CALL_OTHER,
        [ENGINE_ACK] = CALL_SETTLE,
        [ENGINE_NACK] = CALL_SETTLE,
        [ENGINE_RELEASE] = CALL_SETTLE,
        [ENGINE_EXTEND] = CALL_SETTLE,
        [ENGINE_CLAIM] = CALL_CLAIM,
        [ENGINE_QUEUE_OPEN] = CALL_OTHER,
        [ENGINE_QUEUE_SET] = CALL_OTHER,
        [ENGINE_QUEUE_DELETE] = CALL_OTHER,
        [ENGINE_QUEUE_PLACE] = CALL_OTHER,
        [ENGINE_QUEUE_SHARE] = CALL_OTHER,
        [ENGINE_CANCEL] = CALL_OTHER,
        [ENGINE_ESCALATE] = CALL_OTHER,
        [ENGINE_PROMOTE] = CALL_OTHER,
        [ENGINE_LEAVE] = CALL_OTHER,
        [ENGINE_LEFT] = CALL_OTHER,
        [ENGINE_COUNT] = CALL_OTHER,
        [ENGINE_HEADS] = CALL_OTHER,
        [ENGINE_GET] = CALL_OTHER,
        [ENGINE_PURGE] = CALL_OTHER,
        [ENGINE_LIST] = CALL_OTHER,
        [ENGINE_DEAD_LIST] = CALL_OTHER,
        [ENGINE_DEAD_REDRIVE] = CALL_OTHER,
        [ENGINE_DEAD_DROP] = CALL_OTHER,
        [ENGINE_SWEEP] = CALL_OTHER,
        [ENGINE_SCHEDULE_SET] = CALL_OTHER,
        [ENGINE_SCHEDULE_DELETE] = CALL_OTHER,
        [ENGINE_SCHEDULE_LIST] = CALL_OTHER,
        [ENGINE_FIRE] = CALL_OTHER,
    };
    return kinds[verb];
}

static void segment_end(struct pg_job *job, struct call_segment *s)
{
    *s->end = s->claims;
    if (s->first) {
        *job->calls_end = s->first;
        job->calls_end = s->claims ? s->claims_end : s->end;
    }
    *s = (struct call_segment){0};
    s->end = &s->first;
    s->claims_end = &s->claims;
}

/* Whether the op can share a call with ops of other queues. A message with a dedup key cannot, nor
 * one for a queue with limits: it depends on what the queue holds. Nor can an op that has nothing
 * to store: no row would say that the place of its queue refuses it. */
static bool is_shareable(const struct pg_queue *q, const struct engine_op *op)
{
    if (op->verb == ENGINE_ACK)
        return true;
    bool ok = op->verb == ENGINE_PUT && q->face.config.max_depth == 0 &&
              q->face.config.max_bytes == 0 && !engine_only_known(op);
    bool stores = false;
    for (uint32_t i = 0; ok && i < op->put.count; i++) {
        ok = op->put.items[i].draft.dedup_len == 0;
        stores = stores || op->put.items[i].status == STATUS_OK;
    }
    return ok && stores;
}

/* The call that the op joins: one of its queue alone before one that queues share. The former
 * comes later in the segment, so messages of a queue stay in the order of their ops. */
static struct pg_call *find_call(struct pg_call *first, const struct pg_queue *q,
                                 const struct engine_op *op)
{
    struct pg_call *shared = NULL;
    for (struct pg_call *c = first; c; c = c->next) {
        if (joins(c, q, op))
            return c;
        if (joins(c, NULL, op))
            shared = c;
    }
    return shared && is_shareable(q, op) ? shared : NULL;
}

static void segment_add(struct call_segment *s, struct pg_queue *q, struct engine_op *op)
{
    bool claim = op->verb == ENGINE_CLAIM;
    struct pg_call *c = find_call(claim ? s->claims : s->first, q, op);
    if (!c) {
        struct pg_call ***end = claim ? &s->claims_end : &s->end;
        struct pg_job tail = {.calls_end = *end};
        c = call_add(&tail, kind_of(op->verb), is_shareable(q, op) ? NULL : q, op->verb, NULL);
        *end = tail.calls_end;
    }
    call_join(c, op);
}

/* Refuses items that can be refused without the database. */
static void check_puts(struct pg_queue *q, struct engine_op *op)
{
    for (uint32_t i = 0; i < op->put.count; i++) {
        struct put_item *item = &op->put.items[i];
        bool known = levels_resolve(&q->face.config, &item->draft.priority) >= 0;
        item->status = known ? STATUS_OK : STATUS_UNKNOWN_PRIORITY;
        item->deduplicated = false;
    }
}

static bool only_reads(enum engine_verb verb)
{
    return verb == ENGINE_GET || verb == ENGINE_COUNT || verb == ENGINE_HEADS ||
           verb == ENGINE_LIST || verb == ENGINE_DEAD_LIST || verb == ENGINE_QUEUE_OPEN ||
           verb == ENGINE_SCHEDULE_LIST;
}

static void add_view(struct pg_job *job, struct pg_queue *q)
{
    struct pg_call *c = call_add(job, CALL_VIEW, q, 0, "SELECT * FROM triage.engine_view($1)");
    param_int(&c->params, WIRE_INT4, q->face.id);
}

static void list_queue(struct pg *pg, struct pg_queue *q)
{
    if (q->listed)
        return;
    assert(q->pg == pg);
    assert(!q->next_listed);
    q->listed = true;
    q->next_listed = pg->listed;
    pg->listed = q;
}

static void list_to_view(struct pg *pg, struct pg_queue *q)
{
    list_queue(pg, q);
    q->viewed = true;
}

/* The op was made for one configuration, and the queue may have another one by now. */
static bool is_outdated(const struct pg_queue *q, const struct engine_op *op)
{
    bool made = op->verb == ENGINE_CLAIM || op->verb == ENGINE_QUEUE_SET ||
                op->verb == ENGINE_ESCALATE || op->verb == ENGINE_HEADS ||
                op->verb == ENGINE_QUEUE_SHARE || (op->verb == ENGINE_COUNT && op->count.count > 0);
    return q && !q->face.gone && made && op->version != q->face.version;
}

/* OK, or the refusal of an op that needs no database for it. */
static enum status check_op(const struct pg_queue *q, const struct engine_op *op)
{
    bool lists = op->verb == ENGINE_LIST || op->verb == ENGINE_DEAD_LIST;
    if (op->lot == LOT_REFUSED)
        return STATUS_ENGINE_REFUSED;
    if (q && q->face.gone)
        return STATUS_QUEUE_NOT_FOUND;
    if (op->outdated)
        return STATUS_ENGINE_UNAVAILABLE;
    if (lists && !cursor_valid(op))
        return STATUS_INVALID_FIELD;
    return STATUS_OK;
}

static void gather(struct pg *pg, struct pg_job *job)
{
    struct call_segment s = {0};
    s.end = &s.first;
    s.claims_end = &s.claims;
    for (struct engine_op *op = job->first; op; op = op->next) {
        struct pg_queue *q = pg_queue_of(op->queue);
        op->outdated = is_outdated(q, op);
        pg_fail(op, check_op(q, op));
        if (op->status)
            continue;
        if (op->verb == ENGINE_SWEEP && !job->sweeps) {
            op->status = STATUS_OK;
            op->sweep.more = false;
            continue;
        }
        job->writes = job->writes || !only_reads(op->verb);
        if (op->verb == ENGINE_PUT)
            check_puts(q, op);
        if (op->verb == ENGINE_IMPORT)
            imports_check(q, op);
        if (q) {
            list_queue(pg, q);
            q->viewed =
                op->verb != ENGINE_QUEUE_DELETE && (q->viewed || view_wanted(q, op, job->now));
            q->behind = true;
            q->claimed = q->claimed || op->verb == ENGINE_CLAIM ||
                         (op->verb == ENGINE_COUNT && op->count.waits);
        }
        if (kind_of(op->verb) != CALL_OTHER) {
            segment_add(&s, q, op);
            continue;
        }
        segment_end(job, &s);
        call_join(call_add(job, CALL_OTHER, q, op->verb, NULL), op);
    }
    segment_end(job, &s);
}

void calls_queues(struct pg_job *job)
{
    call_add(job, CALL_QUEUES, NULL, 0, "SELECT id, config FROM triage.engine_queues()");
}

void calls_views(struct pg *pg, struct pg_job *job)
{
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        if (!q->told || q->face.gone)
            continue;
        q->behind = true; /* until the answer has come */
        add_view(job, q);
    }
    pg->told = false;
}

void calls_places(struct pg *pg, struct pg_job *job)
{
    for (const struct engine_op *op = job->first; op; op = op->next) {
        if (op->status == STATUS_MOVED)
            list_queue(pg, pg_queue_of(op->queue));
    }
    for (struct pg_queue *q; (q = pg->listed);) {
        pg->listed = q->next_listed;
        q->next_listed = NULL;
        q->listed = false;
        struct pg_call *c =
            call_add(job, CALL_PLACE, q, 0,
                     "SELECT place_epoch, place_closed, place_map FROM triage.queue WHERE id = $1");
        param_int(&c->params, WIRE_INT4, q->face.id);
    }
}

#define WAIT_MS      4000
#define WAIT_MS_LEFT 2000 /* the wait is announced again when less than this is left */

/* Tells the database on which queues consumers of this process wait, or are about to. Other
 * processes notify only for such queues. */
static void add_waits(struct pg *pg, struct pg_job *job)
{
    struct pg_call *c = NULL;
    for (struct pg_queue *q = pg->listed; q; q = q->next_listed) {
        bool waits = q->claimed || q->face.waiting > 0;
        if (!waits || q->waits_until_ms - job->now.mono_ms > WAIT_MS_LEFT)
            continue;
        q->waits_until_ms = job->now.mono_ms + WAIT_MS;
        if (!c) {
            c = call_add(job, CALL_WAIT, NULL, 0, "SELECT triage.engine_wait($1,$2,$3)");
            param_bytes(&c->params, WIRE_UUID, pg->shared->node, sizeof(pg->shared->node));
            param_array(&c->params, WIRE_INT4_ARRAY);
        }
        element_int(&c->params, WIRE_INT4, q->face.id);
    }
    if (!c)
        return;
    param_array_end(&c->params);
    param_int(&c->params, WIRE_INT8, WAIT_MS);
    job->writes = true;
}

#define LOOK_MS  5000 /* how old a view may be that only metrics and alerts need */
#define LOOK_MAX 20   /* such views that one sweep reads, besides those of queues with alerts */

/* The queues whose views are oldest, the oldest first. To take any that are old enough would not
 * do: a sweep could read the same ones each time, and never the rest. */
struct oldest {
    struct pg_queue *queues[LOOK_MAX];
    uint32_t count;
};

static void oldest_offer(struct oldest *o, struct pg_queue *q)
{
    uint32_t at = o->count;
    while (at > 0 && o->queues[at - 1]->read_ms > q->read_ms)
        at--;
    if (at == LOOK_MAX)
        return;
    o->count += o->count < LOOK_MAX;
    memmove(o->queues + at + 1, o->queues + at, (o->count - at - 1) * sizeof(o->queues[0]));
    assert(o->count <= LOOK_MAX);
    assert(at < o->count);
    o->queues[at] = q;
}

static bool asks_to_look(const struct engine_op *op)
{
    return op->verb == ENGINE_SWEEP && op->sweep.look;
}

/* Whether a request asks for all queues and has not got a portion yet. */
static bool somebody_asks(const struct pg_job *job)
{
    bool asks = false;
    for (const struct engine_op *op = job->first; op && !asks; op = op->next)
        asks = asks_to_look(op) && op->sweep.cursor == 0;
    return asks;
}

static bool has_alerts(const struct pg_queue *q)
{
    const struct queue_config *c = &q->face.config;
    return c->alert_dead_letters > 0 || c->alert_oldest_ready_seconds > 0;
}

/* How long ago the queue was read whose view is the oldest. */
static int64_t oldest_view_ms(const struct pg *pg, struct instant now)
{
    int64_t oldest_ms = now.mono_ms;
    size_t at = 0;
    for (const struct pg_queue *q; (q = map_each(&pg->queues, &at));)
        oldest_ms = q->read_ms < oldest_ms ? q->read_ms : oldest_ms;
    return now.mono_ms - oldest_ms;
}

/* The call for this portion of the changes. Ops that ask for the same portion share it. */
static struct pg_call *changes_call(const struct pg *pg, struct pg_job *job, uint32_t cursor)
{
    static const char sql[] =
        "SELECT queue FROM (SELECT queue FROM triage.tally WHERE queue > $2 UNION "
        "SELECT queue FROM triage.counted WHERE queue > $2 AND at_ms >= triage.now_ms() - $1) c "
        "ORDER BY queue LIMIT $3";
    enum { LAG_MS = 30000 };
    for (struct pg_call *c = job->calls; c; c = c->next) {
        if (c->kind == CALL_CHANGES && c->ops[0]->sweep.cursor == cursor)
            return c;
    }
    struct pg_call *c = call_add(job, CALL_CHANGES, NULL, ENGINE_SWEEP, sql);
    param_int(&c->params, WIRE_INT8, oldest_view_ms(pg, job->now) + LAG_MS);
    param_int(&c->params, WIRE_INT4, cursor);
    param_int(&c->params, WIRE_INT4, CHANGES_MAX);
    return c;
}

/* Asks which queues have changed since this process last looked: those with tallies, and those that
 * were summed up since. A summing up bears the time at which its transaction began, so it may look
 * older than it is (hence LAG_MS). The queues that have changed are read after this job. */
static void ask_for_changes(const struct pg *pg, struct pg_job *job)
{
    for (struct engine_op *op = job->first; op; op = op->next) {
        if (asks_to_look(op) && op->lot != LOT_REFUSED)
            call_join(changes_call(pg, job, op->sweep.cursor), op);
    }
}

/* Chooses the queues whose views are read: those with news; those that an op has changed; those
 * with waiting consumers, in case news got lost; and some of those that only other processes
 * use. */
static void look_at_queues(struct pg *pg, const struct pg_job *job, bool all)
{
    size_t at = 0;
    struct oldest old = {0};
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        q->told = q->told || q->face.waiting > 0;
        bool is_old = job->sweeps && job->now.mono_ms - q->read_ms >= LOOK_MS;
        bool look = q->told || q->behind || all || (is_old && has_alerts(q));
        if (q->face.gone)
            continue;
        if (look)
            list_to_view(pg, q);
        else if (is_old)
            oldest_offer(&old, q);
    }
    for (uint32_t i = 0; i < old.count; i++)
        list_to_view(pg, old.queues[i]);
}

/* A sweep also looks at queues. A sweep that was asked for by news does nothing else. */
static void add_news(struct pg *pg, struct pg_job *job)
{
    bool asked = somebody_asks(job);
    /* The database does not know an invented clock. */
    bool all = asked && pg->shared->invented_time;
    look_at_queues(pg, job, all);
    bool overdue = job->sweeps && pg->list_due;
    if (pg->all_told || asked || overdue)
        calls_queues(job);
    ask_for_changes(pg, job);
    pg->all_told = pg->told = false;
    if (!job->sweeps)
        return;
    struct pg_call *c =
        call_add(job, CALL_DUE, NULL, 0,
                 "SELECT least(triage.engine_due($1), triage.engine_schedules_next($1))");
    param_now(pg, job, &c->params);
    pg_schedules_ask(pg, job);
    tables_ask(pg, job);
    duty_ask(pg, job);
}

static void add_views(struct pg *pg, struct pg_job *job)
{
    for (struct pg_queue *q; (q = pg->listed);) {
        assert(q->listed);
        pg->listed = q->next_listed;
        q->next_listed = NULL;
        if (q->viewed)
            add_view(job, q);
        q->listed = q->viewed = q->claimed = false;
    }
}

bool job_is_asked_for(const struct pg_job *job)
{
    const struct engine_op *op = job->first;
    while (op && op->verb == ENGINE_SWEEP && !op->sweep.look)
        op = op->next;
    return op != NULL;
}

/* Functions that do not take the time as a parameter read it here. */
static void add_clock(struct pg_job *job)
{
    struct pg_call *c =
        call_add(job, CALL_WAIT, NULL, 0, "SELECT set_config('triage.now_ms', $1::text, true)");
    param_int(&c->params, WIRE_INT8, job->now.wall_ms);
}

bool job_asks_to_sweep(const struct pg_job *job)
{
    const struct engine_op *op = job->first;
    while (op && op->verb != ENGINE_SWEEP)
        op = op->next;
    return op != NULL;
}

/* Every op that is not refused is in one call. A sweep is also in one that asks for changes. */
static void assert_once(const struct pg_job *job)
{
    uint64_t asked = 0, carried = 0;
    for (const struct engine_op *op = job->first; op; op = op->next)
        asked += !op->status && (op->verb != ENGINE_SWEEP || job->sweeps);
    for (const struct pg_call *c = job->calls; c; c = c->next)
        carried += c->kind != CALL_CHANGES ? c->op_count : 0;
    assert(asked == carried);
}

void calls_build(struct pg *pg, struct pg_job *job)
{
    assert(!job->calls);
    assert(!pg->listed);
    assert(!job->reloading);
    job->calls_end = &job->calls;
    job->writes = false;
    random_bytes(job->token, sizeof(job->token));
    bool asked = job_asks_to_sweep(job);
    if (asked && (pg->sweep_due || pg->shared->invented_time)) {
        job->sweeps = true;
        pg->sweep_due = false;
    }
    if (pg->shared->invented_time)
        add_clock(job);
    struct pg_call **gathered = job->calls_end;
    gather(pg, job);
    for (struct pg_call *c = *gathered; c; c = c->next)
        call_build(pg, job, c);
    if (asked)
        add_news(pg, job);
    if (!pg->shared->invented_time)
        add_waits(pg, job);
    add_views(pg, job);
    assert_once(job);
}

void calls_free(struct pg_job *job)
{
    while (job->calls) {
        struct pg_call *c = job->calls;
        job->calls = c->next;
        params_fini(&c->params);
        PQclear(c->result);
        free(c->ops);
        free(c);
    }
    job->calls_end = &job->calls;
    job->refused = NULL;
}
