#include "engine/local/local.h"
#include "base/mem.h"
#include "base/plant.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MEMORY_LIMIT_DEFAULT (128ULL * 1024 * 1024)
#define WINDOW               512
#define WINDOW_TINY          8 /* with less than a megabyte, even a short queue has a tail */

static const struct engine_ops local_ops;

static struct local *local_of(struct engine *e)
{
    assert(e->ops == &local_ops);
    return (struct local *)e;
}

/* Queues */

static struct local_queue *local_queue_at(struct engine_queue *q)
{
    return q ? local_queue_of(&resident_queue_of(q)->core) : NULL;
}

struct local_queue *local_queue_new(struct local *l, const char *name, uint32_t id,
                                    const struct queue_config *config)
{
    struct local_queue *lq = mem_zalloc(sizeof(*lq));
    lq->local = l;
    lq->rq = resident_queue_new(&l->r, name, id, config);
    lq->rq->store = lq;
    lq->rq->core.reports = true;
    lq->rq->core.room = (struct queue_room){l->shared->window, l->shared->memory_limit};
    lq->expiry_due_ms = INT64_MAX;
    lq->expiry_from =
        (struct expiry_mark){-TIME_MS_MAX - 1, {.queue = id, .ready_ms = -TIME_MS_MAX - 1}};
    store_keeps(l->shared->store, id, config->history_ms);
    return lq;
}

static void local_queue_free(struct local_queue *lq)
{
    assert(!lq->parked);
    journal_unpend(lq);
    fetch_abandon(lq);
    look_abandon(lq);
    hold_forget(lq);
    tail_limbo_free(lq, UINT64_MAX);
    journal_keys_free(lq, UINT64_MAX);
    resident_queue_free(lq->rq);
    free(lq->limbo);
    free(lq->dedup);
    free(lq->guests);
    free(lq->ended);
    free(lq);
}

static void write_queue(struct local *l, const struct resident_queue *rq)
{
    struct key k;
    key_queue(&k, KEY_QUEUE, rq->face.id);
    buf_clear(&l->scratch);
    record_put_queue(&l->scratch, rq->face.name, &rq->face.config);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

static void queue_set(struct local *l, struct engine_op *op)
{
    op->status = STATUS_OK;
    if (op->queue) {
        struct resident_queue *rq = resident_queue_of(op->queue);
        op->status = resident_configure(rq, op, l->now);
        if (op->status || op->set.dry)
            return;
        store_keeps(l->shared->store, rq->face.id, rq->face.config.history_ms);
        write_queue(l, rq);
        return;
    }
    struct queue_config config = *op->set.config;
    bool ok = levels_adopt_slots(NULL, NULL, &config, NULL);
    assert(ok);
    uint32_t id = engine_queue_id(&l->shared->next_queue_id, op);
    struct local_queue *lq = local_queue_new(l, op->set.name, id, &config);
    op->queue = &lq->rq->face;
    write_queue(l, lq->rq);
    if (op->set.celled) {
        resident_share(lq->rq, queue_share_new());
        journal_share(lq->rq);
    }
    lq->changed = true;
    resident_touch(lq->rq);
}

/* The highest number ever used is kept apart, so that a deleted queue's is not used again. */
static void write_next_queue(struct local *l)
{
    struct key k = {.len = 1, .bytes = {KEY_NEXT_QUEUE}};
    uint32_t next = atomic_load(&l->shared->next_queue_id);
    uint8_t be[4] = {(uint8_t)(next >> 24), (uint8_t)(next >> 16), (uint8_t)(next >> 8),
                     (uint8_t)next};
    buf_clear(&l->scratch);
    buf_put(&l->scratch, be, sizeof(be));
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

static void queue_delete(struct local *l, struct engine_op *op)
{
    static const struct {
        enum store_family family;
        enum key_tag tag;
    } all[] = {
        {STORE_HOT, KEY_MESSAGE},  {STORE_HOT, KEY_STATE},    {STORE_HOT, KEY_QUEUE},
        {STORE_HOT, KEY_COUNTERS}, {STORE_COLD, KEY_MESSAGE}, {STORE_COLD, KEY_EXPIRY},
        {STORE_COLD, KEY_DEDUP},   {STORE_COLD, KEY_DEAD},    {STORE_COLD, KEY_HISTORY},
        {STORE_HOT, KEY_SCHEDULE}, {STORE_HOT, KEY_PLACE},    {STORE_HOT, KEY_SHARE},
    };
    struct resident_queue *rq = resident_queue_of(op->queue);
    assert(!local_queue_of(&rq->core)->parked); /* nothing comes after it */
    op->status = STATUS_OK;
    journal_write_cold(l);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct key k;
        key_queue(&k, all[i].tag, rq->face.id);
        store_delete_prefix(l->shared->store, journal_batch(l), all[i].family, &k);
    }
    write_next_queue(l);
    store_keeps(l->shared->store, rq->face.id, -1);
    fetch_abandon(local_queue_of(&rq->core));
    look_abandon(local_queue_of(&rq->core));
    hold_forget(local_queue_of(&rq->core));
    resident_queue_retire(rq);
}

/* The engine */

/* Only what ends is met again in an op that names it twice. */
static bool may_repeat(const struct engine_op *op)
{
    return ((op->verb == ENGINE_ACK || op->verb == ENGINE_NACK || op->verb == ENGINE_RELEASE) &&
            op->settle.count > 1) ||
           (op->verb == ENGINE_LEFT && op->leave.count > 1) ||
           ((op->verb == ENGINE_DEAD_DROP || op->verb == ENGINE_PURGE) && op->bulk.id_count > 1);
}

static void begin_op(struct local_queue *lq, const struct engine_op *op, struct instant now)
{
    struct local *l = lq->local;
    l->synced = lq->cold_group <= l->finished;
    l->repeats = l->shared->reader && may_repeat(op);
    peaks_see(&lq->peaks, now.wall_ms, lq->rq->face.next_seq);
}

static bool has_pages(const struct engine_op *op)
{
    return op->verb == ENGINE_LIST || op->verb == ENGINE_PURGE || op->verb == ENGINE_DEAD_LIST ||
           op->verb == ENGINE_DEAD_REDRIVE || op->verb == ENGINE_DEAD_DROP;
}

/* For a caller that does not ask: the op finds its pages in hand, as others do. */
static void read_now(struct local_queue *lq, const struct engine_op *op)
{
    journal_await_cold(lq);
    look_pages_now(lq, op);
}

/* False: the op goes on when more of the store was read. */
static bool apply(struct local *l, struct engine_op *op, struct instant now)
{
    bool whole = true;
    struct local_queue *lq = local_queue_at(op->queue);
    assert(!l->present); /* one op at a time */
    assert(!lq || lq->guest_count + lq->ended_count == 0);
    l->present = lq ? lq->rq : NULL;
    if (lq)
        begin_op(lq, op, now);
    if (lq && !l->shared->reader && has_pages(op))
        read_now(lq, op);
    switch (op->verb) {
    case ENGINE_QUEUE_SET:
        queue_set(l, op);
        l->present = NULL;
        return true;
    case ENGINE_QUEUE_DELETE:
        queue_delete(l, op);
        l->present = NULL;
        return true;
    case ENGINE_LIST:
        op->status = STATUS_OK;
        while (!(whole = walk_list(lq, op, now)) && !l->shared->reader)
            look_pages_now(lq, op);
        break;
    case ENGINE_PURGE:
        op->status = STATUS_OK;
        if (op->bulk.id_count == 0)
            walk_purge(lq, op, now);
        else
            resident_apply(&l->r, op, now);
        break;
    case ENGINE_DEAD_LIST:
        walk_dead_list(lq, op, now);
        break;
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        if (op->bulk.id_count == 0)
            walk_dead(lq, op, now);
        else
            resident_apply(&l->r, op, now);
        break;
    case ENGINE_SWEEP:
        l->sweep_bytes = 0;
        fetch_merge(l, op, now);
        hold_show(l, op);
        resident_apply(&l->r, op, now);
        break;
    default:
        resident_apply(&l->r, op, now);
        if (op->verb == ENGINE_PUT || op->verb == ENGINE_FIRE)
            lq->changed = true; /* what was deduplicated shows only in the totals */
    }
    if (lq) {
        guests_dismiss(lq);
        l->repeats = false;
        tail_top_up(lq->rq, now);
        resident_touch(lq->rq);
    }
    l->present = NULL;
    return whole;
}

/* A queue whose sweep has to read the disk is held, and swept when the reader has read (sweep_on).
 */
static uint32_t before_sweep(struct resident_queue *rq, uint32_t max, struct instant now)
{
    struct local_queue *lq = local_queue_of(&rq->core);
    struct local *l = lq->local;
    uint32_t now_max = max;
    assert(!l->present);
    assert(!rq->held);
    l->present = rq;
    l->ready_before = rq->face.view.ready;
    walk_expire(rq, max, now);
    if (look_needed_by_sweep(lq, &now_max, now)) {
        hold_sweep(lq, max);
        now_max = 0;
    }
    if (now_max == 0)
        l->present = NULL;
    return now_max;
}

/* What time made ready is written down by the clock that said so. */
static void after_sweep(struct resident_queue *rq, struct instant now)
{
    struct local_queue *lq = local_queue_of(&rq->core);
    assert(lq->local->present == rq);
    peaks_see(&lq->peaks, now.wall_ms, rq->face.next_seq);
    tail_count_on(lq);
    tail_top_up(rq, now);
    lq->changed = lq->changed || rq->face.view.ready != lq->local->ready_before;
    look_done(lq);
    lq->local->present = NULL;
}

static int64_t due_ms(struct resident_queue *rq)
{
    const struct local_queue *lq = local_queue_of(&rq->core);
    return lq->counting ? lq->local->now.wall_ms : lq->expiry_due_ms;
}

static const struct resident_store local_store = {
    .report = journal_report,
    .bring_head = tail_bring_head,
    .bring = guest_bring,
    .bring_body = tail_bring_body,
    .find_key = journal_find_key,
    .lists = walk_lists,
    .due_ms = due_ms,
    .before_sweep = before_sweep,
    .after_sweep = after_sweep,
    .schedule_changed = journal_schedule,
    .place_changed = journal_place,
    .check = local_queue_check,
    .share_changed = journal_share,
};

/* Whether it needs space. What the queue's place refuses needs none, and a queue that moves to
 * another server stores no new messages. */
static bool stores(const struct engine_op *op)
{
    if (op->verb == ENGINE_PUT && config_moves(&op->queue->config))
        return false;
    if (op->verb == ENGINE_PUT || op->verb == ENGINE_IMPORT)
        return !engine_only_known(op) && !engine_moved(op);
    return op->verb == ENGINE_SCHEDULE_SET || op->verb == ENGINE_FIRE;
}

/* About what a draft takes on the disk. */
static uint64_t draft_bytes(const struct draft *d)
{
    const uint64_t head = 128; /* its own records, the log's and the tables' frames around it */
    return head + d->payload_len + d->metadata_len + d->dedup_len;
}

static uint64_t stored_bytes(const struct engine_op *op)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; op->verb == ENGINE_PUT && i < op->put.count; i++)
        sum += draft_bytes(&op->put.items[i].draft);
    for (uint32_t i = 0; op->verb == ENGINE_IMPORT && i < op->import.count; i++)
        sum += draft_bytes(&op->import.items[i].draft);
    if (op->verb == ENGINE_SCHEDULE_SET)
        sum += draft_bytes(&op->schedule.set->draft);
    if (op->verb == ENGINE_FIRE && op->fire.item) /* and the schedule's own record */
        sum += 2 * draft_bytes(&op->fire.item->draft);
    return sum;
}

/* What is stored counts from here on, long before the disk has it. */
static enum status take_space(struct local *l, const struct engine_op *op)
{
    uint64_t bytes = stored_bytes(op);
    enum status status = store_space_take(l->shared->store, bytes);
    if (!status)
        journal_group(l)->stored += bytes;
    return status;
}

static void refuse_storing(struct engine_op *op, enum status status)
{
    op->status = status;
    for (uint32_t i = 0; op->verb == ENGINE_PUT && i < op->put.count; i++)
        op->put.items[i].status = status;
    for (uint32_t i = 0; op->verb == ENGINE_IMPORT && i < op->import.count; i++)
        op->import.items[i].status = status;
}

/* The op is reported with the open group. */
static void join_group(struct local *l, struct engine_op *op)
{
    struct group *g = journal_group(l);
    assert(!*g->last);
    op->next = NULL;
    *g->last = op;
    g->last = &op->next;
    g->op_count++;
}

/* The op has failed, perhaps after it took effect: what a claim has shown does not count then. */
static void op_fail(struct engine_op *op, enum status status)
{
    op->status = status;
    if (op->verb != ENGINE_CLAIM)
        return;
    op->claim.found = 0;
    for (uint32_t i = 0; i < op->claim.plan->step_count; i++)
        op->claim.plan->steps[i].found = 0;
}

static void submit_now(struct local *l, struct engine_op *op, struct instant now)
{
    struct local_queue *lq = local_queue_at(op->queue);
    if (l->r.base.failed)
        op_fail(op, STATUS_ENGINE_UNAVAILABLE);
    else if (stores(op) && take_space(l, op) != STATUS_OK)
        refuse_storing(op, STATUS_STORAGE_FULL);
    else if (!apply(l, op, now)) {
        hold_return(lq, op);
        return;
    }
    if (lq)
        look_done(lq);
    join_group(l, op);
}

/* Takes up the parked ops of a queue that is not held. */
static void submit_parked(struct local *l, struct local_queue *lq)
{
    while (lq->parked && !hold_again(lq))
        submit_now(l, hold_next(lq), l->now);
}

/* A queue that is deleted takes what is parked with it: what needs the store comes too late, the
 * rest takes effect in its order. */
static void submit_delete(struct local *l, struct local_queue *lq, struct engine_op *op)
{
    const struct queue_view *v = &lq->rq->face.view;
    bool half = lq->looks.resumed; /* the first one has begun */
    look_abandon(lq);
    for (struct engine_op *parked; (parked = hold_next(lq)); half = false) {
        if (l->r.base.failed || (!half && !hold_needed(lq, parked))) {
            submit_now(l, parked, l->now);
            continue;
        }
        parked->status = STATUS_QUEUE_NOT_FOUND;
        look_done(lq);
        join_group(l, parked);
    }
    hold_forget(lq);
    bool filled = v->ready + v->scheduled + v->leased + v->dead + lq->rq->face.schedules > 0;
    if (l->r.base.failed || !op->remove.if_empty || !filled) {
        submit_now(l, op, l->now);
        return;
    }
    op->status = STATUS_QUEUE_NOT_EMPTY;
    join_group(l, op);
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct local *l = local_of(e);
    struct local_queue *lq = local_queue_at(op->queue);
    bool held = lq && lq->rq->held;
    bool may_park = lq && l->shared->reader && !e->failed;
    l->now = now;
    if (held && op->verb == ENGINE_QUEUE_DELETE)
        submit_delete(l, lq, op);
    else if (may_park && (held || hold_needed(lq, op)))
        hold_park(lq, op);
    else
        submit_now(l, op, now);
    if (lq && lq->parked && !lq->rq->held)
        submit_parked(l, lq);
}

/* The sweep that a queue was held for. What became due meanwhile may have to be read as well: then
 * the queue is held again. */
static void sweep_on(struct local *l, struct local_queue *lq)
{
    uint32_t max = lq->sweep_max;
    assert(!l->present);
    assert(!lq->rq->held);
    lq->sweep_max = 0;
    l->sweep_bytes = 0;
    resident_sweep_queue(lq->rq, max, l->now);
    resident_touch(lq->rq);
}

/* Takes up what was put off, as far as the store has come. True: there is something to flush. */
static bool take_parked(struct local *l)
{
    struct local_queue *lq;
    bool any = false;
    for (; (lq = hold_over(l)); any = true) {
        if (lq->sweep_max > 0 && !l->r.base.failed)
            sweep_on(l, lq);
        if (!lq->rq->held)
            submit_parked(l, lq);
    }
    return any;
}

/* The ops of the open group, which is left without them: for the planted bug in flush(). */
static struct engine_op *take_ops(struct local *l)
{
    struct group *g = journal_group(l);
    struct engine_op *first = g->first;
    g->first = NULL;
    g->last = &g->first;
    g->op_count = 0;
    return first;
}

static void flush(struct engine *e)
{
    struct local *l = local_of(e);
    struct engine_op *early = PLANTED(ANSWER_EARLY) && l->open ? take_ops(l) : NULL;
    if (l->open || l->r.dirty)
        journal_close(l);
    fetch_send(l);
    while (early) {
        struct engine_op *next = early->next;
        engine_finish(e, early);
        early = next;
    }
}

static uint32_t poll(struct engine *e)
{
    struct local *l = local_of(e);
    struct group *g = commit_take(l->shared->commit, l->shard);
    uint32_t count = 0;
    while (g) {
        struct group *next_group = g->next;
        if (g->status)
            e->failed = true;
        else
            journal_committed(l, g->number);
        assert(g->shard == l->shard);
        assert(g->number == l->finished + 1);
        assert(g->number <= l->submitted);
        l->finished = g->number;
        e->counters.group_ops += g->op_count;
        for (struct engine_op *op = g->first; op; count++) {
            struct engine_op *next = op->next;
            bool goes = op->verb == ENGINE_QUEUE_DELETE && op->status != STATUS_QUEUE_NOT_EMPTY;
            struct resident_queue *gone = goes ? resident_queue_of(op->queue) : NULL;
            if (g->status)
                op_fail(op, g->status);
            engine_finish(e, op);
            if (gone)
                local_queue_free(local_queue_of(&gone->core));
            op = next;
        }
        journal_recycle(l, g);
        g = next_group;
    }
    if (e->reading > 0)
        fetch_take(l);
    if (l->held && take_parked(l))
        flush(e);
    if (!e->failed) { /* a sync between groups can fail as well */
        struct buf ignored = {0};
        enum status status;
        e->failed = commit_failure(l->shared->commit, &ignored, &status);
        buf_fini(&ignored);
    }
    if (l->shard == 0) { /* these are the process's */
        commit_counters(l->shared->commit, &e->counters, &e->counters.own[LOCAL_LOG_WRITES]);
        e->counters.own[LOCAL_DISK_FREE] = store_space_free(l->shared->store);
    }
    return count;
}

static int64_t next_due_ms(struct engine *e, struct instant now)
{
    const struct local *l = local_of(e);
    return l->fetched || hold_shows(l) ? 0 : resident_next_due_ms(e, now);
}

static bool holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                  struct instant now)
{
    struct local *l = local_of(e);
    struct local_queue *lq = local_queue_of(&resident_queue_of(q)->core);
    uint32_t missing;
    if (lq->rq->held && !e->failed)
        return false;
    if (queue_holds(&lq->rq->core, ask, now, &missing) || !l->shared->reader || e->failed)
        return true;
    for (; missing; missing &= missing - 1) {
        uint8_t slot = (uint8_t)__builtin_ctz(missing);
        fetch_bodies(lq, slot);
        if (lane_tail_claimable(&lq->rq->core.lanes[slot]))
            fetch_lane(lq, slot);
    }
    return false;
}

static enum status health(struct engine *e, struct buf *detail)
{
    struct local *l = local_of(e);
    enum status status;
    if (commit_failure(l->shared->commit, detail, &status))
        return STATUS_ENGINE_UNAVAILABLE;
    store_space_look(l->shared->store);
    status = store_space(l->shared->store);
    buf_puts(detail,
             status ? "the disk is nearly full: enqueues are refused, the rest goes on" : "ok");
    return status;
}

static enum status backup(struct engine *e, struct engine_backup *b)
{
    return backup_make(local_of(e)->shared->backups, b);
}

static void backup_progress(struct engine *e, struct engine_backup_progress *p)
{
    backup_tell(local_of(e)->shared->backups, p);
}

static void free_shard(struct local *l)
{
    size_t at = 0;
    for (struct resident_queue *rq; (rq = map_each(&l->r.queues, &at)); at = 0)
        local_queue_free(local_queue_of(&rq->core));
    assert(!l->pending);
    assert(!l->held);
    resident_fini(&l->r);
    while (l->spare) {
        struct group *g = l->spare;
        l->spare = g->next;
        store_batch_free(g->batch);
        free(g);
    }
    fetch_free_jobs(l->asked);
    fetch_free_jobs(l->fetched);
    free(l->cold_puts);
    buf_fini(&l->cold_values);
    buf_fini(&l->scratch);
    free(l);
}

/* Every op was reported. A group without ops, of a sweep that was put off, may be under way. */
static void await_groups(struct local *l)
{
    commit_wait(l->shared->commit, l->shard, l->submitted);
    struct group *g = commit_take(l->shared->commit, l->shard);
    for (struct group *next; g; g = next) {
        next = g->next;
        assert(!g->first);
        assert(g->number == l->finished + 1);
        l->finished = g->number;
        journal_recycle(l, g);
    }
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    struct local_shared *shared = local_of(shards[0])->shared;
    struct read_job *left = shared->reader ? reader_stop(shared->reader) : NULL;
    for (uint32_t i = 0; shared->commit && i < shard_count; i++)
        await_groups(local_of(shards[i]));
    if (shared->commit)
        commit_stop(shared->commit);
    backups_free(shared->backups);
    store_close(shared->store);
    for (uint32_t i = 0; i < shard_count; i++)
        free_shard(local_of(shards[i]));
    fetch_free_jobs(left); /* their queues knew of them */
    free(shared);
}

static const struct engine_ops local_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = next_due_ms,
    .holds = holds,
    .queue_find = resident_queue_find,
    .queue_each = resident_queue_each,
    .health = health,
    .backup = backup,
    .backup_progress = backup_progress,
    .check = resident_check,
    .close = close_all,
};

/* Tells one boot of the machine from another, for leases that outlive the process. */
static uint64_t boot_number(void)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0)
        close(fd);
    return XXH3_64bits(text, got > 0 ? (size_t)got : 0);
}

static enum status local_open(const struct engine_options *options, uint32_t shard_count,
                              struct engine *shards[], struct buf *error)
{
    struct store *store;
    bool synced = options->durability == DURABILITY_FSYNC;
    enum status status =
        store_open(engine_option_text(options, "data"),
                   engine_option_number(options, "disk_reserve"), synced, &store, error);
    if (status)
        return status;
    struct local_shared *shared = mem_zalloc(sizeof(*shared));
    uint64_t limit = engine_option_number(options, "memory_limit");
    limit = limit ? limit : MEMORY_LIMIT_DEFAULT;
    shared->store = store;
    shared->backups = backups_new(store, engine_option_text(options, "backup_dir"));
    shared->shard_count = shard_count;
    shared->memory_limit = limit / shard_count;
    shared->window = limit < 1024 * 1024 ? WINDOW_TINY : WINDOW;
    shared->boot = boot_number();
    struct local **locals = mem_zalloc(shard_count * sizeof(struct local *));
    for (uint32_t i = 0; i < shard_count; i++) {
        struct local *l = locals[i] = mem_zalloc(sizeof(*l));
        resident_init(&l->r, &local_ops, &local_kind);
        l->r.store = &local_store;
        l->shared = shared;
        l->shard = i;
        shards[i] = &l->r.base;
    }
    struct instant now = options->now.wall_ms ? options->now : clock_now();
    status = local_recover(locals, shard_count, now, error);
    free(locals);
    if (status) {
        close_all(shards, shard_count);
        return status;
    }
    shared->commit = commit_start(store, options, shard_count);
    if (options->asks)
        shared->reader = reader_start(store, shared->commit, options, shard_count);
    return STATUS_OK;
}

static const struct engine_setting settings[] = {
    {.name = "data",
     .type = ENGINE_TEXT,
     .max = 511,
     .value = "./data",
     .takes = "DIR",
     .help = "directory of the local engine; created when missing"},
    {.name = "backup_dir",
     .type = ENGINE_TEXT,
     .max = 511,
     .value = "",
     .takes = "DIR",
     .help = "folder in which POST /v1/admin/backup makes backups; empty: it makes none"},
    {.name = "memory_limit",
     .type = ENGINE_BYTES,
     .value = "128M",
     .takes = "BYTES[K|M|G|T]",
     .help = "messages kept in memory; what is behind stays on disk"},
    {.name = "disk_reserve",
     .type = ENGINE_BYTES,
     .value = "0",
     .takes = "BYTES[K|M|G|T]",
     .help = "enqueues get 507 below this much free space; 0: a third of a small disk, 1.5G of a "
             "large one"},
};

static const struct engine_counter counters[] = {
    [RESIDENT_BYTES] = RESIDENT_COUNTER,
    [LOCAL_REFILLS] = {.name = "refills_total",
                       .type = ENGINE_COUNTER,
                       .help = "Reads of waiting messages from disk."},
    [LOCAL_DISK_FREE] = {.name = "disk_free_bytes",
                         .type = ENGINE_GAUGE,
                         .help = "Free space where the data is."},
    [LOCAL_LOOP_READS] = {.name = "loop_reads_total",
                          .type = ENGINE_COUNTER,
                          .help = "Reads of single records that an event loop waited for."},
    [LOCAL_LOG_WRITES] = {.name = "log_write_seconds",
                          .type = ENGINE_HISTOGRAM,
                          .help = "How long it took to write the log, with its sync if there was "
                                  "one."},
};

const struct engine_kind local_kind = {
    .name = "local",
    .capabilities = ENGINE_DURABLE | ENGINE_LIVE_VIEW | ENGINE_MOVES,
    .open = local_open,
    .inspect = local_inspect,
    .preview = local_preview,
    .settings = settings,
    .setting_count = sizeof(settings) / sizeof(settings[0]),
    .counters = counters,
    .counter_count = sizeof(counters) / sizeof(counters[0]),
    .store = "data",
    .place = "data",
};
