/* Something is done to all messages of a queue that match a filter: they are escalated, cancelled,
 * promoted, redriven or dropped. The queue is listed page by page, so that others get their turn in
 * between, and what matches of a page is one op. It ends with the last page, with as many as were
 * asked for, or when the client hangs up. */
#include "base/mem.h"
#include "broker/shard.h"

#define PAGE       500
#define PAGE_WHOLE 32 /* when payloads are looked into: an engine may read all of them first */
#define PAGE_BYTES (1024 * 1024) /* of bodies that match: an op may read them again */
#define PAGE_SOUGHT                                                                                \
    (1024 * 1024) /* bytes that the filter looks through: some payloads take 2 ns a byte */

static void next_page(struct request *r);

static bool of_dead(const struct request *r)
{
    return r->op.verb == ENGINE_DEAD_REDRIVE || r->op.verb == ENGINE_DEAD_DROP;
}

static bool escalates(const struct request *r)
{
    return r->kind == REQUEST_ESCALATE_ALL;
}

static bool has_enough(const struct request *r, uint64_t matched)
{
    return r->matching->max > 0 && matched >= r->matching->max;
}

static void gather(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                   struct instant now)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_ESCALATION);
    (void)now;
    assert(w->escalation.id_count < PAGE);
    r->matching->looked++;
    w->escalation.sought += filter_cost(&r->matching->filter, m);
    if (w->escalation.sought >= PAGE_SOUGHT)
        op->list.limit = op->list.found + 1; /* `found` does not count the one being shown */
    if (!filter_matches(&r->matching->filter, m, w->escalation.slot, w->escalation.asked.wall_ms))
        return;
    w->escalation.ids[w->escalation.id_count++] = message_identity(m, q->id);
    w->escalation.bytes += message_body_len(m);
    if (w->escalation.bytes >= PAGE_BYTES ||
        has_enough(r, r->matching->matched + w->escalation.id_count))
        op->list.limit = op->list.found + 1;
}

static void page_done(struct request *r, enum status status)
{
    bool looked = r->matching->look_max > 0 && r->matching->looked >= r->matching->look_max;
    bool go_on = r->matching->more && !looked && !has_enough(r, r->matching->matched) &&
                 r->dispatcher->state == DISPATCHER_OPEN && !r->shard->draining &&
                 !request_hung_up(r);
    if (status || !go_on)
        request_conclude(r->shard, r, status);
    else
        next_page(r);
}

static void change_page(struct request *r);

static void changed(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &work_of(r, WORK_ESCALATION)->own);
    assert(!r->matching->dry_run);
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN) {
        change_page(r);
        return;
    }
    if (!op->status && !escalates(r))
        r->count += op->bulk.count;
    for (uint32_t i = 0; !op->status && escalates(r) && i < op->escalate.count; i++)
        r->count += op->escalate.items[i].changed;
    dispatch_mark_late(r->dispatcher);
    page_done(r, op->status);
}

static void submit_page(struct request *r, struct engine_op op, engine_done *done)
{
    op.queue = r->dispatcher->queue;
    op.done = done;
    op.user = r;
    struct work *w = work_of(r, WORK_ESCALATION);
    w->own = op;
    shard_submit(r->shard, &w->own);
}

static struct engine_op escalation_of(struct request *r, int slot)
{
    const struct work *w = work_of(r, WORK_ESCALATION);
    struct engine_op op = {.verb = ENGINE_ESCALATE, .escalate = r->op.escalate};
    assert(slot >= 0);
    for (uint32_t i = 0; i < w->escalation.id_count; i++)
        w->escalation.items[i] = (struct escalate_item){.id = w->escalation.ids[i]};
    op.escalate.slot = (uint8_t)slot;
    op.escalate.items = w->escalation.items;
    op.escalate.count = w->escalation.id_count;
    return op;
}

/* Changes the messages of one page. The level is looked up for each page: it may have another slot
 * now, or be gone. */
static void change_page(struct request *r)
{
    int slot;
    if (!level_take(r->dispatcher, r, &r->priority, "/priority", &slot))
        return;
    const struct work *w = work_of(r, WORK_ESCALATION);
    assert(w->escalation.id_count > 0);
    struct engine_op op = {.verb = r->op.verb};
    if (escalates(r)) {
        op = escalation_of(r, slot);
    } else {
        op.bulk.ids = w->escalation.ids;
        op.bulk.id_count = op.bulk.max = w->escalation.id_count;
        op.bulk.before_seq = r->matching->before_seq;
        op.bulk.slot = slot;
    }
    submit_page(r, op, changed);
    dispatch_mark(r->dispatcher);
}

/* Drops messages that were enqueued after the first page was listed: they are not part of the job.
 * The first answer of the engine says where they begin, because it also knows what other processes
 * have put. */
static void drop_later(struct request *r)
{
    struct work *w = work_of(r, WORK_ESCALATION);
    uint32_t kept = 0;
    if (r->matching->before_seq == 0)
        r->matching->before_seq = r->dispatcher->queue->next_seq;
    for (uint32_t i = 0; i < w->escalation.id_count; i++) {
        if (w->escalation.ids[i].seq < r->matching->before_seq)
            w->escalation.ids[kept++] = w->escalation.ids[i];
    }
    w->escalation.id_count = kept;
}

static void take_sample(struct request *r)
{
    const struct work *w = work_of(r, WORK_ESCALATION);
    uint64_t have = r->matching->matched;
    for (uint32_t i = 0; i < w->escalation.id_count && have < MATCHING_SAMPLE; i++)
        r->matching->sample[have++] = w->escalation.ids[i];
}

static void listed(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_ESCALATION);
    assert(op == &w->own);
    if (!op->status && r->dispatcher->state == DISPATCHER_OPEN)
        drop_later(r);
    take_sample(r);
    r->matching->matched += w->escalation.id_count;
    r->matching->next = op->list.next;
    r->matching->more = op->list.more;
    if (op->status || w->escalation.id_count == 0 || r->matching->dry_run ||
        r->dispatcher->state != DISPATCHER_OPEN) {
        page_done(r, op->status);
        return;
    }
    change_page(r);
}

static uint32_t page_limit(const struct request *r)
{
    uint64_t limit = filter_needs_payload(&r->matching->filter) ? PAGE_WHOLE : PAGE;
    uint64_t left = r->matching->look_max - r->matching->looked;
    return (uint32_t)(r->matching->look_max > 0 && left < limit ? left : limit);
}

static void next_page(struct request *r)
{
    struct work *w = work_of(r, WORK_ESCALATION);
    struct engine_op list = {.verb = of_dead(r) ? ENGINE_DEAD_LIST : ENGINE_LIST, .visit = gather};
    w->escalation.id_count = 0;
    w->escalation.bytes = 0;
    w->escalation.sought = 0;
    list.list.after = r->matching->next;
    list.list.limit = page_limit(r);
    list.list.bare = !filter_needs_payload(&r->matching->filter);
    if (!of_dead(r)) {
        list.list.states = r->matching->filter.states;
        list.list.slots = w->escalation.slots;
        list.list.slot_count = w->escalation.slot_count;
    }
    submit_page(r, list, listed);
}

/* The slots to list: that of the level in the filter, or all. The level that messages are moved to
 * comes first. Otherwise a later page would list messages that an earlier page has moved there. */
static void choose_slots(struct work *w, const struct queue_config *config, int from, int to)
{
    w->escalation.slot_count = 0;
    if (from >= 0 || to >= 0)
        w->escalation.slots[w->escalation.slot_count++] = (uint8_t)(from >= 0 ? from : to);
    for (int rank = 0; from < 0 && rank < config->level_count; rank++) {
        if (config->levels[rank].slot != to)
            w->escalation.slots[w->escalation.slot_count++] = config->levels[rank].slot;
    }
}

void matching_begin(struct dispatcher *d, struct request *r)
{
    int from, to;
    assert(r->matching);
    if (level_may_be_new(d, r, &r->priority) ||
        level_may_be_new(d, r, &r->matching->filter.priority)) {
        view_refresh(d, r, matching_begin);
        return;
    }
    if (!level_take(d, r, &r->priority, "/priority", &to) ||
        !level_take(d, r, &r->matching->filter.priority, "/filter/priority", &from))
        return;
    work_free(d->shard, r); /* left from a refreshed view */
    struct work *w = work_new(d->shard, r, WORK_ESCALATION);
    w->escalation.ids =
        mem_alloc(PAGE * (sizeof(struct message_id) + sizeof(struct escalate_item)));
    static_assert(sizeof(struct message_id) % _Alignof(struct escalate_item) == 0, "they fit");
    w->escalation.items = (struct escalate_item *)(w->escalation.ids + PAGE);
    w->escalation.slot = from;
    choose_slots(w, &d->queue->config, from, escalates(r) ? to : -1);
    w->escalation.asked = d->shard->now;
    r->count = r->matching->matched = r->matching->looked = 0;
    r->matching->next = r->matching->after;
    r->matching->more = false;
    next_page(r);
}
