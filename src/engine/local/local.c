#include "engine/local/local.h"
#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MEMORY_LIMIT_DEFAULT (256ULL * 1024 * 1024)
#define WINDOW               512
#define WINDOW_TINY          8 /* with less than a megabyte, even a short queue has a tail */

static const struct engine_ops local_ops;

static struct local *local_of(struct engine *e)
{
    assert(e->ops == &local_ops);
    return (struct local *)e;
}

struct local_queue *local_queue_of(struct queue *q)
{
    return q->store;
}

struct message_id local_id(const struct queue *q, const struct message *m)
{
    return message_identity(m, q->id);
}

/* Groups */

static struct group *group_new(struct local *l)
{
    struct group *g = mem_zalloc(sizeof(*g));
    g->shard = l->shard;
    g->number = l->submitted + 1;
    g->batch = store_batch_new();
    g->last = &g->first;
    return g;
}

static struct group *open_group(struct local *l)
{
    if (!l->open)
        l->open = group_new(l);
    return l->open;
}

static struct store_batch *batch_of(struct local *l)
{
    return open_group(l)->batch;
}

uint64_t local_group(struct local *l)
{
    return open_group(l)->number;
}

static int compare_places(const void *a, const void *b)
{
    const struct message_id *x = &((const struct cold_put *)a)->id;
    const struct message_id *y = &((const struct cold_put *)b)->id;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->ready_ms != y->ready_ms)
        return x->ready_ms < y->ready_ms ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void write_cold_puts(struct local *l)
{
    if (l->cold_count == 0)
        return;
    qsort(l->cold_puts, l->cold_count, sizeof(*l->cold_puts), compare_places);
    for (uint32_t i = 0; i < l->cold_count; i++) {
        const struct cold_put *p = &l->cold_puts[i];
        struct key k;
        key_message(&k, &p->id);
        struct buf value = {.data = l->cold_values.data + p->offset, .len = p->len};
        store_put(l->shared->store, batch_of(l), STORE_COLD, &k, &value);
    }
    l->cold_count = 0;
    buf_clear(&l->cold_values);
}

static void mark_cold(struct local *l)
{
    l->cold_group = open_group(l)->number;
}

void local_write_cold(struct local *l, struct queue *q, const struct message *m)
{
    if (l->cold_count == l->cold_cap) {
        l->cold_cap = l->cold_cap ? l->cold_cap * 2 : 256;
        l->cold_puts = mem_realloc(l->cold_puts, l->cold_cap * sizeof(*l->cold_puts));
    }
    struct cold_put *p = &l->cold_puts[l->cold_count++];
    *p = (struct cold_put){.id = local_id(q, m), .offset = l->cold_values.len};
    record_put_message(&l->cold_values, m);
    p->len = l->cold_values.len - p->offset;
    mark_cold(l);
    if (m->expiry) {
        struct key k;
        key_expiry(&k, &p->id, m->expiry->node.key);
        store_put(l->shared->store, batch_of(l), STORE_COLD, &k, NULL);
        if (m->expiry->node.key < q->store_due_ms)
            q->store_due_ms = m->expiry->node.key;
    }
}

/* How a lane's cold messages divide at the time `clock_ms`, which no scheduled one of the tail is
 * before: those in memory stand around it in their sets. */
static void count_cold_at(const struct lane *l, int64_t clock_ms, struct record_lane *out)
{
    uint64_t late = 0, early = 0;
    for (struct order_node *n = order_last(&l->ready); n && n->key > clock_ms;
         n = order_prev(&l->ready, n)) {
        const struct message *m = container_of(n, struct message, node);
        late += m->cold && !m->touched;
    }
    for (struct order_node *n = order_first(&l->scheduled); n && n->key <= clock_ms;
         n = order_next(&l->scheduled, n)) {
        const struct message *m = container_of(n, struct message, node);
        early += m->cold && !m->touched;
    }
    out->cold_ready = l->tail_ready + l->cold_ready - late + early;
    out->cold_scheduled = l->tail_scheduled + l->cold_scheduled + late - early;
}

static void lower(struct record_lane *out, int64_t ms, uint64_t seq)
{
    if (ms < out->low_ms || (ms == out->low_ms && seq < out->low_seq)) {
        out->low_ms = ms;
        out->low_seq = seq;
    }
}

static void describe_lane(const struct queue *q, uint8_t slot, int64_t wall_ms,
                          struct record_lane *out)
{
    const struct lane *l = &q->lanes[slot];
    out->dead = q->view->lanes[slot].dead;
    if (!lane_has_tail(l) && l->cold_ready + l->cold_scheduled == 0)
        return;
    int64_t clock = l->tail_due_ms > wall_ms ? wall_ms : l->tail_due_ms - 1;
    if (clock < l->tail_clock_ms && lane_has_tail(l))
        clock = l->tail_clock_ms;
    count_cold_at(l, clock, out);
    out->clock_ms = clock;
    out->low_ms = INT64_MAX;
    out->low_seq = UINT64_MAX;
    if (lane_has_tail(l))
        lower(out, l->bound_ms, l->bound_seq);
    const struct order_node *r = order_first(&l->ready), *s = order_first(&l->scheduled);
    if (r)
        lower(out, r->key, r->tie);
    if (s)
        lower(out, s->key, s->tie);
}

static void write_counters(struct resident_queue *rq, void *ctx)
{
    struct local *l = ctx;
    struct local_queue *lq = local_queue_of(&rq->core);
    if (!lq->changed || rq->deleted)
        return;
    lq->changed = false;
    struct record_counters c = {
        .next_seq = rq->face.next_seq,
        .cold_bytes = lq->cold_bytes,
        .totals = rq->face.view.totals,
    };
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        describe_lane(&rq->core, slot, l->now.wall_ms, &c.lanes[slot]);
    struct key k;
    key_queue(&k, KEY_COUNTERS, rq->face.id);
    buf_clear(&l->scratch);
    record_put_counters(&l->scratch, &c);
    store_put(l->shared->store, batch_of(l), STORE_HOT, &k, &l->scratch);
}

static void close_group(struct local *l)
{
    resident_settle(&l->r, write_counters, l);
    write_cold_puts(l);
    if (!l->open)
        return;
    struct group *g = l->open;
    l->open = NULL;
    l->submitted = g->number;
    commit_submit(l->shared->commit, g);
}

void local_settle_store(struct local *l, uint64_t up_to)
{
    if (l->open && up_to >= l->open->number)
        close_group(l);
    commit_wait(l->shared->commit, l->shard, up_to);
}

void local_read_cold(struct local *l)
{
    if (l->cold_group > l->finished)
        local_settle_store(l, l->cold_group);
}

void local_damage(struct local *l, const char *what)
{
    if (l->shared->commit)
        commit_fail(l->shared->commit, what);
    else
        l->shared->damage = what; /* while recovering: refuse to start */
}

/* What is written for each move of a message */

static void stored(struct queue *q, struct message *m, bool in_memory)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    lq->changed = true;
    if (!in_memory) {
        m->cold = true;
        lq->cold_bytes += message_bytes(m);
        local_write_cold(l, q, m);
        tail_limbo_add(lq, m);
        return;
    }
    struct message_id id = local_id(q, m);
    struct key k;
    key_message(&k, &id);
    buf_clear(&l->scratch);
    record_put_message(&l->scratch, m);
    store_put(l->shared->store, batch_of(l), STORE_HOT, &k, &l->scratch);
    tail_spill(q, m->slot);
}

static void changed(struct queue *q, struct message *m)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    lq->changed = true;
    if (m->cold && !m->touched)
        lq->cold_bytes -= message_bytes(m);
    struct key k;
    key_seq(&k, KEY_STATE, q->id, message_seq(m));
    buf_clear(&l->scratch);
    record_put_state(&l->scratch, m, l->shared->boot);
    store_put(l->shared->store, batch_of(l), STORE_HOT, &k, &l->scratch);
}

void local_delete_hot(struct local *l, struct queue *q, const struct message *m)
{
    struct message_id id = local_id(q, m);
    struct key k;
    key_message(&k, &id);
    store_delete_once(l->shared->store, batch_of(l), STORE_HOT, &k);
}

static void delete_home(struct local *l, struct queue *q, const struct message *m)
{
    if (!m->cold) {
        local_delete_hot(l, q, m);
        return;
    }
    struct store *store = l->shared->store;
    struct message_id id = local_id(q, m);
    struct key k;
    key_message(&k, &id);
    write_cold_puts(l); /* its own may be among them, and has to come first */
    store_delete_once(store, batch_of(l), STORE_COLD, &k);
    mark_cold(l);
    const struct lane *lane = &q->lanes[m->born_slot];
    if (lane_has_tail(lane) && !lane_within_bound(lane, m->born_ms, message_seq(m)))
        l->refill_group = open_group(l)->number;
    if (m->expiry) {
        key_expiry(&k, &id, m->expiry->node.key);
        store_delete(store, batch_of(l), STORE_COLD, &k);
    }
}

static void write_whole(struct local *l, struct queue *q, struct message *m, enum key_tag tag,
                        enum message_state to, int64_t until_ms)
{
    queue_need_body(q, m);
    enum message_state from = m->state;
    struct key k;
    key_seq(&k, tag, q->id, message_seq(m));
    m->state = (uint8_t)to;
    buf_clear(&l->scratch);
    record_put_whole(&l->scratch, m, l->shared->boot, until_ms);
    m->state = (uint8_t)from;
    store_put(l->shared->store, batch_of(l), STORE_COLD, &k, &l->scratch);
    mark_cold(l);
}

static void ended(struct queue *q, struct message *m, enum message_state to, struct instant now)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    struct key k;
    lq->changed = true;
    if (m->state == MESSAGE_DEAD) { /* a dead letter is dropped: it is its own record */
        key_seq(&k, KEY_DEAD, q->id, message_seq(m));
        store_delete(l->shared->store, batch_of(l), STORE_COLD, &k);
        mark_cold(l);
        return;
    }
    if (to == MESSAGE_DEAD)
        write_whole(l, q, m, KEY_DEAD, to, INT64_MAX);
    else if (to == MESSAGE_DONE && q->config->history_ms > 0)
        write_whole(l, q, m, KEY_HISTORY, to, now.wall_ms + q->config->history_ms);
    if (m->cold && !m->touched)
        lq->cold_bytes -= message_bytes(m);
    delete_home(l, q, m);
    if (m->touched) {
        key_seq(&k, KEY_STATE, q->id, message_seq(m));
        store_delete(l->shared->store, batch_of(l), STORE_HOT, &k);
    }
}

static void revived(struct queue *q, struct message *m)
{
    struct local *l = local_queue_of(q)->local;
    struct message_id id = local_id(q, m);
    struct key k;
    m->cold = true;
    key_message(&k, &id);
    buf_clear(&l->scratch);
    record_put_message(&l->scratch, m);
    store_put(l->shared->store, batch_of(l), STORE_COLD, &k, &l->scratch);
    key_seq(&k, KEY_DEAD, q->id, message_seq(m));
    store_delete(l->shared->store, batch_of(l), STORE_COLD, &k);
    mark_cold(l);
    changed(q, m);
}

/* Queues with something under way */

void local_pend(struct local_queue *lq)
{
    if (lq->pending)
        return;
    lq->pending = true;
    lq->next_pending = lq->local->pending;
    lq->local->pending = lq;
}

static void unpend(struct local_queue *lq)
{
    for (struct local_queue **at = &lq->local->pending; *at; at = &(*at)->next_pending) {
        if (*at == lq) {
            *at = lq->next_pending;
            return;
        }
    }
}

/* Dedup keys */

static void dedup_await(struct local_queue *lq, const char *key, size_t len, uint64_t seq,
                        bool dropped)
{
    if (lq->dedup_first == lq->dedup_count)
        lq->dedup_first = lq->dedup_count = 0;
    if (lq->dedup_count == lq->dedup_cap) {
        lq->dedup_cap = lq->dedup_cap ? lq->dedup_cap * 2 : 64;
        lq->dedup = mem_realloc(lq->dedup, lq->dedup_cap * sizeof(*lq->dedup));
    }
    local_pend(lq);
    lq->dedup[lq->dedup_count++] = (struct dedup_pending){
        .group = open_group(lq->local)->number,
        .seq = seq,
        .dropped = dropped,
        .key_len = (uint32_t)len,
        .key = mem_dup(key, len),
    };
}

static void dedup_release(struct local_queue *lq, uint64_t group)
{
    while (lq->dedup_first < lq->dedup_count && lq->dedup[lq->dedup_first].group <= group) {
        struct dedup_pending *p = &lq->dedup[lq->dedup_first++];
        queue_dedup_committed(&lq->rq->core, p->key, p->key_len, p->seq, p->dropped);
        free(p->key);
    }
}

static bool dedup_find_cold(struct queue *q, const char *key, size_t len, struct dedup_hit *hit)
{
    struct local *l = local_queue_of(q)->local;
    struct key k;
    bool damaged = false;
    key_dedup(&k, q->id, key, len);
    if (!store_get(l->shared->store, STORE_COLD, &k, &l->scratch, &damaged)) {
        if (damaged)
            local_damage(l, "a dedup key cannot be read");
        return false;
    }
    return record_get_dedup(l->scratch.data, l->scratch.len, q->id, hit);
}

static void dedup_put_cold(struct queue *q, const char *key, size_t len,
                           const struct dedup_hit *hit)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    struct key k;
    key_dedup(&k, q->id, key, len);
    buf_clear(&l->scratch);
    record_put_dedup(&l->scratch, hit);
    store_put(l->shared->store, batch_of(l), STORE_COLD, &k, &l->scratch);
    dedup_await(lq, key, len, hit->id.seq, false);
}

static void dedup_drop_cold(struct queue *q, const char *key, size_t len)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    struct dedup_entry *e = map_get(&q->dedup, key, len);
    struct key k;
    key_dedup(&k, q->id, key, len);
    store_delete(l->shared->store, batch_of(l), STORE_COLD, &k);
    dedup_await(lq, key, len, e->hit.id.seq, true);
}

const struct queue_backing local_backing = {
    .admit = tail_admit,
    .stored = stored,
    .changed = changed,
    .ended = ended,
    .revived = revived,
    .body = tail_body,
    .recall = tail_recall,
    .refill = tail_refill,
    .tail_due = tail_due,
    .dedup_find = dedup_find_cold,
    .dedup_put = dedup_put_cold,
    .dedup_drop = dedup_drop_cold,
};

/* Queues */

struct local_queue *local_queue_new(struct local *l, const char *name, uint32_t id,
                                    const struct queue_config *config)
{
    struct local_queue *lq = mem_zalloc(sizeof(*lq));
    lq->local = l;
    lq->rq = resident_queue_new(&l->r, name, id, config);
    lq->rq->core.backing = &local_backing;
    lq->rq->core.store = lq;
    return lq;
}

static void local_queue_free(struct local_queue *lq)
{
    unpend(lq);
    tail_limbo_release(lq, UINT64_MAX);
    dedup_release(lq, UINT64_MAX);
    resident_queue_free(lq->rq);
    free(lq->limbo);
    free(lq->dedup);
    free(lq->guests);
    free(lq);
}

static void write_queue(struct local *l, const struct resident_queue *rq)
{
    struct key k;
    key_queue(&k, KEY_QUEUE, rq->face.id);
    buf_clear(&l->scratch);
    record_put_queue(&l->scratch, rq->face.name, &rq->face.config);
    store_put(l->shared->store, batch_of(l), STORE_HOT, &k, &l->scratch);
}

static void queue_set(struct local *l, struct engine_op *op)
{
    op->status = STATUS_OK;
    if (op->queue) {
        struct resident_queue *rq = resident_queue_of(op->queue);
        op->status = resident_configure(rq, op->set.config, &op->set.level_name);
        if (!op->status)
            write_queue(l, rq);
        return;
    }
    struct queue_config config = *op->set.config;
    bool ok = levels_adopt_slots(NULL, NULL, &config, NULL);
    assert(ok);
    uint32_t id = atomic_fetch_add(&l->shared->next_queue_id, 1);
    struct local_queue *lq = local_queue_new(l, op->set.name, id, &config);
    op->queue = &lq->rq->face;
    write_queue(l, lq->rq);
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
    store_put(l->shared->store, batch_of(l), STORE_HOT, &k, &l->scratch);
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
    };
    struct resident_queue *rq = resident_queue_of(op->queue);
    op->status = STATUS_OK;
    write_cold_puts(l);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct key k;
        key_queue(&k, all[i].tag, rq->face.id);
        store_delete_prefix(l->shared->store, batch_of(l), all[i].family, &k);
    }
    write_next_queue(l);
    map_remove(&l->r.queues, rq->face.name, strlen(rq->face.name));
    rq->deleted = true;
}

/* The engine */

static void apply(struct local *l, struct engine_op *op, struct instant now)
{
    struct local_queue *lq = op->queue ? local_queue_of(&resident_queue_of(op->queue)->core) : NULL;
    switch (op->verb) {
    case ENGINE_QUEUE_SET:
        queue_set(l, op);
        return;
    case ENGINE_QUEUE_DELETE:
        queue_delete(l, op);
        return;
    case ENGINE_LIST:
        op->status = STATUS_OK;
        tail_list(lq, op, now);
        break;
    case ENGINE_PURGE:
        op->status = STATUS_OK;
        tail_purge(lq, op, now);
        break;
    case ENGINE_DEAD_LIST:
        tail_stage_dead(lq, op->list.after.seq + 1, op->list.limit + 1);
        resident_apply(&l->r, op, now);
        break;
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        if (op->bulk.id_count == 0)
            tail_stage_dead(lq, 0, op->bulk.max + 1);
        resident_apply(&l->r, op, now);
        break;
    default:
        resident_apply(&l->r, op, now);
        if (op->verb == ENGINE_PUT)
            lq->changed = true; /* what was deduplicated shows only in the totals */
    }
    if (lq) {
        tail_dismiss_guests(lq);
        tail_top_up(lq->rq, now);
    }
}

static void refuse_puts(struct engine_op *op, enum status status)
{
    op->status = status;
    for (uint32_t i = 0; i < op->put.count; i++)
        op->put.items[i].status = status;
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct local *l = local_of(e);
    l->now = now;
    if (e->failed)
        op->status = STATUS_ENGINE_UNAVAILABLE;
    else if (op->verb == ENGINE_PUT && store_space(l->shared->store) != STATUS_OK)
        refuse_puts(op, STATUS_STORAGE_FULL);
    else
        apply(l, op, now);
    struct group *g = open_group(l);
    *g->last = op;
    g->last = &op->next;
    g->op_count++;
}

static void flush(struct engine *e)
{
    struct local *l = local_of(e);
    if (l->open || l->r.dirty)
        close_group(l);
}

/* Everything the group left in limbo is in the store now. */
static void release_group(struct local *l, const struct group *g)
{
    l->finished = g->number;
    for (struct local_queue **at = &l->pending; *at;) {
        struct local_queue *lq = *at;
        tail_limbo_release(lq, g->number);
        dedup_release(lq, g->number);
        lq->pending = lq->limbo_first < lq->limbo_count || lq->dedup_first < lq->dedup_count;
        if (lq->pending)
            at = &lq->next_pending;
        else
            *at = lq->next_pending;
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
            release_group(l, g);
        e->counters.group_ops += g->op_count;
        for (struct engine_op *op = g->first; op; count++) {
            struct engine_op *next = op->next;
            struct resident_queue *gone =
                op->verb == ENGINE_QUEUE_DELETE ? resident_queue_of(op->queue) : NULL;
            if (g->status)
                op->status = g->status;
            engine_finish(e, op);
            if (gone)
                local_queue_free(local_queue_of(&gone->core));
            op = next;
        }
        store_batch_free(g->batch);
        free(g);
        g = next_group;
    }
    commit_counters(l->shared->commit, &e->counters.groups, &e->counters.commit_us);
    e->counters.disk_free_bytes = store_space_free(l->shared->store);
    return count;
}

static enum status health(struct engine *e, struct buf *detail)
{
    struct local *l = local_of(e);
    enum status status;
    if (commit_failure(l->shared->commit, detail, &status))
        return STATUS_ENGINE_UNAVAILABLE;
    status = store_space(l->shared->store);
    buf_puts(detail,
             status ? "the disk is nearly full: enqueues are refused, the rest goes on" : "ok");
    return status;
}

static void free_shard(struct local *l)
{
    size_t at = 0;
    for (struct resident_queue *rq; (rq = map_each(&l->r.queues, &at)); at = 0)
        local_queue_free(local_queue_of(&rq->core));
    resident_fini(&l->r);
    free(l->cold_puts);
    buf_fini(&l->cold_values);
    buf_fini(&l->scratch);
    free(l);
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    struct local_shared *shared = local_of(shards[0])->shared;
    if (shared->commit)
        commit_stop(shared->commit);
    store_close(shared->store);
    for (uint32_t i = 0; i < shard_count; i++)
        free_shard(local_of(shards[i]));
    free(shared);
}

static const struct engine_ops local_ops = {
    .name = "local",
    .capabilities = ENGINE_DURABLE | ENGINE_LIVE_VIEW,
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = resident_next_due_ms,
    .queue_find = resident_queue_find,
    .queue_each = resident_queue_each,
    .health = health,
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

enum status local_open(const struct engine_options *options, uint32_t shard_count,
                       struct engine *shards[], struct buf *error)
{
    struct store *store;
    enum status status = store_open(options->data_dir, options->disk_reserve, &store, error);
    if (status)
        return status;
    struct local_shared *shared = mem_zalloc(sizeof(*shared));
    uint64_t limit = options->memory_limit ? options->memory_limit : MEMORY_LIMIT_DEFAULT;
    shared->store = store;
    shared->shard_count = shard_count;
    shared->memory_limit = limit / shard_count;
    shared->window = limit < 1024 * 1024 ? WINDOW_TINY : WINDOW;
    shared->boot = boot_number();
    struct local **locals = mem_zalloc(shard_count * sizeof(struct local *));
    for (uint32_t i = 0; i < shard_count; i++) {
        struct local *l = locals[i] = mem_zalloc(sizeof(*l));
        resident_init(&l->r, &local_ops);
        l->r.before_sweep = tail_expire;
        l->r.after_sweep = tail_top_up;
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
    return STATUS_OK;
}
