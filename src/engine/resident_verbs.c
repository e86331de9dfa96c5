/* The verbs: one function for each, which asks the core, brings what the core does not find, and
 * asks again. */
#include "engine/resident.h"

#include <assert.h>

typedef void verb_fn(struct resident_queue *rq, struct engine_op *op, struct instant now);

static void show(struct resident_queue *rq, struct engine_op *op, struct message *m,
                 struct instant now)
{
    if (!m->body)
        rq->engine->store->bring_body(rq, m);
    assert(m->body || message_body_len(m) == 0);
    if (op->visit)
        op->visit(op, &rq->face, m, now);
}

/* A message that the core did not find; true: it is to be asked again. */
static bool bring(struct resident_queue *rq, const struct message_id *id)
{
    const struct resident_store *store = rq->engine->store;
    if (!store || id->queue != rq->face.id || id->seq >= rq->face.next_seq)
        return false;
    resident_report(rq);
    return store->bring(rq, id);
}

static struct message *find(struct resident_queue *rq, const struct message_id *id,
                            struct instant now)
{
    struct message *m = queue_find(&rq->core, id, now);
    return m || !bring(rq, id) ? m : queue_find(&rq->core, id, now);
}

/* What the store knows of a key, or NULL. */
static const struct dedup_hit *key_elsewhere(struct resident_queue *rq, const char *key, size_t len,
                                             struct dedup_hit *hit)
{
    const struct resident_store *store = rq->engine->store;
    bool asks = store && len > 0 && !queue_key_here(&rq->core, key, len);
    return asks && store->find_key(rq, key, len, hit) ? hit : NULL;
}

static const struct dedup_hit *draft_key_elsewhere(struct resident_queue *rq, const struct draft *d,
                                                   struct dedup_hit *hit)
{
    return key_elsewhere(rq, d->body + d->payload_len + d->metadata_len, d->dedup_len, hit);
}

static inline void put(struct resident_queue *rq, struct put_item *item, struct instant now)
{
    struct dedup_hit hit;
    const struct draft *d = &item->draft;
    queue_put(&rq->core, item, d->dedup_len > 0 ? draft_key_elsewhere(rq, d, &hit) : NULL, now);
    resident_report(rq);
}

void resident_put(struct resident_queue *rq, struct put_item *item, struct instant now)
{
    put(rq, item, now);
}

static void apply_place(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    (void)now;
    op->place.stale = rq->place && rq->place->epoch >= op->place.epoch;
    if (op->place.stale)
        return;
    resident_place(
        rq, queue_place_new(op->place.epoch, op->place.closed, op->place.map, op->place.map_len));
    if (rq->engine->store)
        rq->engine->store->place_changed(rq);
}

static void apply_share(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    const struct queue_share *next = op->share.next;
    (void)now;
    op->share.stale = next && next->epoch != (rq->share ? rq->share->epoch : 0) + 1;
    if (next && !op->share.stale) {
        resident_share(rq, queue_share_copy(next));
        if (rq->engine->store)
            rq->engine->store->share_changed(rq);
    }
    op->share.now = queue_share_copy(rq->share);
    share_used(&rq->face.view, op->share.used);
}

static void put_elsewhere(struct resident_queue *rq, struct put_item *item, struct instant now)
{
    struct dedup_hit hit;
    queue_put_elsewhere(&rq->core, item, draft_key_elsewhere(rq, &item->draft, &hit), now);
}

static void apply_put(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    if (engine_moved(op)) {
        op->status = STATUS_MOVED;
        return;
    }
    bool moves = config_moves(&rq->face.config);
    for (uint32_t i = 0; i < op->put.count; i++) {
        if (moves)
            put_elsewhere(rq, &op->put.items[i], now);
        else
            put(rq, &op->put.items[i], now);
    }
}

static void import(struct resident_queue *rq, struct import_item *item, struct instant now)
{
    struct dedup_hit hit, own;
    char key[IMPORT_KEY_BYTES];
    import_key(item, key);
    queue_import(&rq->core, item, key_elsewhere(rq, key, sizeof(key), &hit),
                 draft_key_elsewhere(rq, &item->draft, &own), now);
    resident_report(rq);
}

static void apply_import(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    if (engine_moved(op)) {
        op->status = STATUS_MOVED;
        return;
    }
    for (uint32_t i = 0; i < op->import.count; i++)
        import(rq, &op->import.items[i], now);
}

/* A claim under way, and the heads that it has looked at. Taking one changes no other. */
struct claiming {
    struct resident_queue *rq;
    struct engine_op *op;
    struct instant now;
    int64_t lease_ms;
    uint32_t known; /* a set of slots */
    struct message *heads[LEVEL_COUNT_MAX];
};

static bool bring_head(struct claiming *c, uint8_t slot)
{
    resident_report(c->rq);
    return c->rq->engine->store->bring_head(c->rq, slot, c->now);
}

static struct message *head_of(struct claiming *c, uint8_t slot)
{
    assert(slot < LEVEL_COUNT_MAX);
    struct message **head = &c->heads[slot];
    if (c->known & 1U << slot)
        return *head;
    c->known |= 1U << slot;
    while (queue_head(&c->rq->core, slot, c->now, head) == HEAD_ELSEWHERE && bring_head(c, slot))
        ;
    return *head;
}

/* The message whose turn it is in a step, or NULL. */
static struct message *step_head(struct claiming *c, const struct plan_step *step)
{
    const struct plan *plan = c->op->claim.plan;
    struct message *best = NULL;
    assert(step->first_lane + step->lane_count <= PLAN_LANES_MAX);
    int64_t best_key = 0;
    for (uint32_t i = 0; i < step->lane_count; i++) {
        const struct plan_lane *lane = &plan->lanes[step->first_lane + i];
        struct message *m = plan->room[lane->slot] > 0 ? head_of(c, lane->slot) : NULL;
        if (!m || m->ready_ms > lane->until_ms)
            continue;
        int64_t key = m->ready_ms + lane->bias_ms;
        if (!best || key < best_key || (key == best_key && message_seq(m) < message_seq(best))) {
            best = m;
            best_key = key;
        }
    }
    return best;
}

/* False when the step has nothing more to give. */
static bool take_one(struct claiming *c, struct plan_step *step)
{
    struct engine_op *op = c->op;
    struct message *m = step->found < step->max ? step_head(c, step) : NULL;
    if (!m)
        return false;
    assert(op->claim.plan->room[m->slot] > 0);
    op->claim.plan->room[m->slot]--;
    c->known &= ~(1U << m->slot);
    queue_lease(&c->rq->core, m, c->lease_ms, c->now);
    step->found++;
    op->claim.found++;
    show(c->rq, op, m, c->now);
    return true;
}

/* The steps in turn, which begin at this one. */
static void take_in_turn(struct claiming *c, uint32_t first)
{
    struct plan *plan = c->op->claim.plan;
    uint8_t at[LEVEL_COUNT_MAX]; /* by rank: its step */
    uint32_t ranks = 0;          /* that have something, as far as is known */
    assert(plan->policy);
    for (uint32_t i = first; i < plan->step_count; i++) {
        assert(plan->steps[i].in_turn); /* these come last */
        assert(plan->steps[i].rank <= plan->max_rank);
        at[plan->steps[i].rank] = (uint8_t)i;
        ranks |= 1U << plan->steps[i].rank;
    }
    while (ranks && c->op->claim.found < plan->want) {
        int rank = policy_turn(plan->policy, plan->max_rank, ranks);
        if (take_one(c, &plan->steps[at[rank]]))
            policy_spend(plan->policy, plan->max_rank, rank);
        else
            ranks &= ~(1U << rank);
    }
}

static void apply_claim(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    struct plan *plan = op->claim.plan;
    struct claiming c;
    c.rq = rq;
    c.op = op;
    c.now = now;
    c.lease_ms = op->claim.lease_ms < 0 ? rq->face.config.visibility_ms : op->claim.lease_ms;
    c.known = 0;
    assert(c.lease_ms >= 0);
    op->claim.found = 0;
    for (uint32_t i = 0; i < plan->step_count; i++)
        plan->steps[i].found = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].in_turn) {
            take_in_turn(&c, i);
            return;
        }
        while (op->claim.found < plan->want && take_one(&c, &plan->steps[i]))
            ;
    }
}

static void settle(struct resident_queue *rq, const struct engine_op *op, struct settle_item *item,
                   struct instant now)
{
    if (op->verb == ENGINE_ACK)
        queue_ack(&rq->core, item, now);
    else if (op->verb == ENGINE_NACK)
        queue_nack(&rq->core, item, op->settle.delay_ms, op->settle.reason, op->settle.reason_len,
                   now);
    else if (op->verb == ENGINE_RELEASE)
        queue_release(&rq->core, item, now);
    else
        queue_extend(&rq->core, item, op->settle.lease_ms, now);
}

static void apply_settle(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    for (uint32_t i = 0; i < op->settle.count; i++) {
        struct settle_item *item = &op->settle.items[i];
        settle(rq, op, item, now);
        if (item->status == STATUS_MESSAGE_NOT_FOUND && bring(rq, &item->id))
            settle(rq, op, item, now);
    }
}

static void apply_cancel(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->status = queue_cancel(&rq->core, &op->one.id, now);
    if (op->status == STATUS_MESSAGE_NOT_FOUND && bring(rq, &op->one.id))
        op->status = queue_cancel(&rq->core, &op->one.id, now);
}

static void apply_escalate(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    for (uint32_t i = 0; i < op->escalate.count; i++) {
        struct escalate_item *item = &op->escalate.items[i];
        queue_escalate(&rq->core, item, op->escalate.slot, &op->escalate.note, now);
        if (item->status == STATUS_MESSAGE_NOT_FOUND && bring(rq, &item->id))
            queue_escalate(&rq->core, item, op->escalate.slot, &op->escalate.note, now);
    }
}

static void show_leaving(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    struct message *m = NULL;
    while (op->leave.found < op->leave.limit && (m = queue_leaving(&rq->core, m))) {
        op->leave.found++;
        show(rq, op, m, now);
    }
}

static void apply_leave(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->leave.found = 0;
    if (op->leave.count == 0) {
        show_leaving(rq, op, now);
        return;
    }
    if (engine_stays(op)) {
        op->status = STATUS_MOVED;
        return;
    }
    for (uint32_t i = 0; i < op->leave.count; i++) {
        struct leave_item *item = &op->leave.items[i];
        struct message *m = find(rq, &item->id, now);
        queue_leave(&rq->core, item, now);
        resident_report(rq);
        if (item->status == STATUS_OK) {
            op->leave.found++;
            show(rq, op, m, now);
        }
    }
}

static void apply_left(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    for (uint32_t i = 0; i < op->leave.count; i++) {
        struct leave_item *item = &op->leave.items[i];
        queue_left(&rq->core, item, now);
        if (item->status == STATUS_MESSAGE_NOT_FOUND && bring(rq, &item->id))
            queue_left(&rq->core, item, now);
    }
}

static void apply_count(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    (void)now;
    for (uint32_t i = 0; i < op->count.count; i++)
        queue_count_before(&rq->core, &op->count.items[i]);
}

static void apply_heads(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    (void)now;
    for (uint32_t i = 0; i < op->heads.count; i++)
        queue_heads(&rq->core, &op->heads.items[i]);
}

static void apply_get(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    struct message *m = find(rq, &op->one.id, now);
    if (m)
        show(rq, op, m, now);
    else
        op->status = STATUS_MESSAGE_NOT_FOUND;
}

/* Cancels the pending messages of one ordered set that are older than the purge. */
static void purge_set(struct resident_queue *rq, struct order *set, struct engine_op *op,
                      struct instant now)
{
    struct order_node *n = order_first(set);
    while (n && op->bulk.count < op->bulk.max) {
        struct message *m = message_of(n);
        n = order_next(set, n);
        if (message_seq(m) < op->bulk.before_seq) {
            queue_cancel_pending(&rq->core, m, now);
            op->bulk.count++;
        }
    }
}

static void purge_ids(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->bulk.more = false;
    for (uint32_t i = 0; i < op->bulk.id_count; i++) {
        struct message *m = find(rq, &op->bulk.ids[i], now);
        if (!m || !message_pending(m))
            continue;
        queue_cancel_pending(&rq->core, m, now);
        op->bulk.count++;
    }
}

static void apply_promote(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->bulk.count = 0;
    op->bulk.more = false;
    for (uint32_t i = 0; i < op->bulk.id_count; i++) {
        struct message *m = find(rq, &op->bulk.ids[i], now);
        if (!m || m->state != MESSAGE_SCHEDULED)
            continue;
        queue_promote(&rq->core, m, now);
        op->bulk.count++;
    }
}

static void apply_purge(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->bulk.count = 0;
    if (op->bulk.id_count > 0) {
        purge_ids(rq, op, now);
        return;
    }
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        purge_set(rq, &rq->core.lanes[slot].ready, op, now);
        purge_set(rq, &rq->core.lanes[slot].scheduled, op, now);
    }
    assert(op->bulk.count <= op->bulk.max);
    op->bulk.more = op->bulk.count == op->bulk.max;
}

/* Shows entries of `map` from `from` on; true when the limit was reached first, or when many were
 * passed over. */
static bool list_map(struct resident_queue *rq, struct seqmap *map, uint64_t from,
                     struct engine_op *op, struct instant now)
{
    const struct resident_store *store = rq->engine->store;
    uint64_t seq = from;
    uint32_t passed = 0;
    for (struct message *m; (m = seqmap_next(map, seq, &seq)); seq++) {
        if (passed == RESIDENT_PASSED_MAX)
            return true;
        if (!engine_lists(op, m->state)) {
            op->list.next.seq = seq;
            passed++;
            continue;
        }
        if ((store && store->lists(m)) || !queue_shows(&rq->core, m, now))
            continue;
        if (op->list.found == op->list.limit)
            return true;
        show(rq, op, m, now);
        op->list.found++;
        op->list.next.seq = seq;
    }
    return false;
}

enum { LIST_LIVE, LIST_DEAD };

/* Ours are a phase and a seq. */
static bool cursor_valid(const struct list_cursor *c)
{
    return c->phase <= LIST_DEAD && c->slot == 0 && c->ready_ms == 0 && c->seq < 1ULL << 48;
}

static void apply_list(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->list.found = 0;
    op->list.more = false;
    op->list.next = op->list.after;
    if (!cursor_valid(&op->list.after)) {
        op->status = STATUS_INVALID_FIELD;
        return;
    }
    if (op->list.next.phase == LIST_LIVE) {
        op->list.more = list_map(rq, &rq->core.messages, op->list.next.seq + 1, op, now);
        if (op->list.more)
            return;
        op->list.next = (struct list_cursor){.phase = LIST_DEAD};
    }
    op->list.more = engine_lists(op, MESSAGE_DEAD) &&
                    list_map(rq, &rq->core.dead, op->list.next.seq + 1, op, now);
}

static void apply_dead_list(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->list.found = 0;
    op->list.more = false;
    op->list.next = op->list.after;
    if (!cursor_valid(&op->list.after))
        op->status = STATUS_INVALID_FIELD;
    else
        op->list.more = list_map(rq, &rq->core.dead, op->list.after.seq + 1, op, now);
}

static void revive_or_drop(struct resident_queue *rq, struct engine_op *op, struct message *m,
                           struct instant now)
{
    if (op->verb == ENGINE_DEAD_REDRIVE)
        queue_redrive(&rq->core, m, op->bulk.slot, now);
    else
        queue_drop_dead(&rq->core, m, now);
    op->bulk.count++;
}

static void apply_dead_bulk(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    op->bulk.count = 0;
    for (uint32_t i = 0; i < op->bulk.id_count; i++) {
        struct message *m = find(rq, &op->bulk.ids[i], now);
        if (m && m->state == MESSAGE_DEAD)
            revive_or_drop(rq, op, m, now);
    }
    op->bulk.more = false;
    if (op->bulk.id_count > 0)
        return;
    uint64_t seq = 0;
    for (struct message *m; (m = seqmap_next(&rq->core.dead, seq, &seq)); seq++) {
        if (seq >= op->bulk.before_seq)
            break;
        if (op->bulk.count == op->bulk.max) {
            op->bulk.more = true;
            break;
        }
        revive_or_drop(rq, op, m, now);
    }
}

static verb_fn *const verbs[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_PLACE] = apply_place,
    [ENGINE_QUEUE_SHARE] = apply_share,
    [ENGINE_PUT] = apply_put,
    [ENGINE_IMPORT] = apply_import,
    [ENGINE_CLAIM] = apply_claim,
    [ENGINE_ACK] = apply_settle,
    [ENGINE_NACK] = apply_settle,
    [ENGINE_RELEASE] = apply_settle,
    [ENGINE_EXTEND] = apply_settle,
    [ENGINE_CANCEL] = apply_cancel,
    [ENGINE_ESCALATE] = apply_escalate,
    [ENGINE_PROMOTE] = apply_promote,
    [ENGINE_LEAVE] = apply_leave,
    [ENGINE_LEFT] = apply_left,
    [ENGINE_COUNT] = apply_count,
    [ENGINE_HEADS] = apply_heads,
    [ENGINE_GET] = apply_get,
    [ENGINE_PURGE] = apply_purge,
    [ENGINE_LIST] = apply_list,
    [ENGINE_DEAD_LIST] = apply_dead_list,
    [ENGINE_DEAD_REDRIVE] = apply_dead_bulk,
    [ENGINE_DEAD_DROP] = apply_dead_bulk,
    [ENGINE_SCHEDULE_SET] = resident_schedule_set,
    [ENGINE_SCHEDULE_DELETE] = resident_schedule_delete,
    [ENGINE_SCHEDULE_LIST] = resident_schedule_list,
    [ENGINE_FIRE] = resident_fire,
};

void resident_apply(struct resident *r, struct engine_op *op, struct instant now)
{
    op->status = STATUS_OK;
    if (op->verb == ENGINE_SWEEP) {
        resident_sweep(r, op, now);
        return;
    }
    struct resident_queue *rq = resident_queue_of(op->queue);
    assert(!rq->deleted);
    verbs[op->verb](rq, op, now);
    resident_report(rq);
    resident_touch(rq);
}
