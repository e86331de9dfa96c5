/* Held queues. An op that has to read the store must find there what memory has done already, and
 * may not wait for the disk. While cold records of its queue are under way, and then while the
 * reader reads what the op needs (look.c), the op is parked, and the queue is held: later ops of
 * the queue are parked behind it, claims are told to wait (engine_holds), and time does nothing to
 * the queue. So nothing new gets under way, the hold ends with the commit of one group or with one
 * read, and ops of a queue take effect in the order in which they were submitted. Other queues and
 * the loop go on.
 *
 *   submit: GET      held        poll: the group is committed    poll: the reader has the record
 *           └ parked └ PUT: parked     └ GET: held again               └ GET, PUT take effect
 *
 * A sweep that has to read holds its queue, too. It goes on before what is parked.
 *
 * Only with a reader: a caller that does not ask before it claims waits instead. */
#include "engine/local/impl.h"

#include <assert.h>

/* Which ops read the store */

static bool in_memory(struct local_queue *lq, const struct message_id *id)
{
    struct queue *q = &lq->rq->core;
    bool nowhere = id->queue != q->id || id->seq >= *q->next_seq;
    return nowhere || tail_in_memory(q, id->seq) || seqmap_get(&q->dead, id->seq);
}

static bool ids_in_memory(struct local_queue *lq, const struct engine_op *op)
{
    bool all = true;
    for (uint32_t i = 0; all && i < op->bulk.id_count; i++)
        all = in_memory(lq, &op->bulk.ids[i]);
    return all;
}

static bool settled_in_memory(struct local_queue *lq, const struct engine_op *op)
{
    bool all = true;
    for (uint32_t i = 0; all && i < op->settle.count; i++)
        all = in_memory(lq, &op->settle.items[i].id);
    return all;
}

static bool escalated_in_memory(struct local_queue *lq, const struct engine_op *op)
{
    bool all = true;
    for (uint32_t i = 0; all && i < op->escalate.count; i++)
        all = in_memory(lq, &op->escalate.items[i].id);
    return all;
}

static bool leaving_in_memory(struct local_queue *lq, const struct engine_op *op)
{
    bool all = true;
    for (uint32_t i = 0; all && i < op->leave.count; i++)
        all = in_memory(lq, &op->leave.items[i].id);
    return all;
}

/* Dedup keys are not among what an op needs here: those under way are in memory. */
static bool reads_store(struct local_queue *lq, const struct engine_op *op)
{
    bool dead = lq->rq->face.view.dead > 0;
    switch (op->verb) {
    case ENGINE_LIST:
        return dead || lq->rq->core.tail + lq->cold_here > 0 ||
               op->list.states == 1U << MESSAGE_DONE;
    case ENGINE_DEAD_LIST:
        return dead;
    case ENGINE_PURGE:
        return op->bulk.id_count == 0 ? lq->rq->core.tail > 0 : !ids_in_memory(lq, op);
    case ENGINE_PROMOTE:
        return !ids_in_memory(lq, op);
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        return op->bulk.id_count == 0 ? dead : !ids_in_memory(lq, op);
    case ENGINE_GET:
    case ENGINE_CANCEL:
        return !in_memory(lq, &op->one.id);
    case ENGINE_ACK:
    case ENGINE_NACK:
    case ENGINE_RELEASE:
    case ENGINE_EXTEND:
        return !settled_in_memory(lq, op);
    case ENGINE_LEAVE:
    case ENGINE_LEFT:
        return !leaving_in_memory(lq, op);
    case ENGINE_ESCALATE:
        return !escalated_in_memory(lq, op);
    default:
        return false;
    }
}

bool hold_needed(struct local_queue *lq, const struct engine_op *op)
{
    return (lq->cold_group > lq->local->finished && reads_store(lq, op)) || look_needed(lq, op);
}

/* Parking */

static void list(struct local_queue *lq)
{
    if (lq->listed)
        return;
    lq->listed = true;
    lq->next_held = lq->local->held;
    lq->local->held = lq;
}

static void unlist(struct local_queue *lq)
{
    struct local_queue **at = &lq->local->held;
    while (lq->listed && *at != lq)
        at = &(*at)->next_held;
    if (lq->listed)
        *at = lq->next_held;
    lq->listed = false;
}

static void begin(struct local_queue *lq)
{
    assert(!lq->rq->held);
    assert(!lq->looks.under_way);
    lq->rq->held = true;
    lq->hold_group = lq->cold_group;
    lq->local->r.base.reading++;
    list(lq);
    resident_touch(lq->rq); /* its timers stop */
    look_ask(lq);
}

static void end(struct local_queue *lq)
{
    assert(lq->rq->held);
    assert(lq->local->r.base.reading > 0);
    lq->rq->held = false;
    lq->local->r.base.reading--;
    resident_touch(lq->rq);
}

void hold_park(struct local_queue *lq, struct engine_op *op)
{
    assert(lq->local->shared->reader);
    if (!lq->rq->held)
        begin(lq);
    assert(lq->listed); /* hold_over() finds it */
    op->next = NULL;
    *(lq->parked ? &lq->parked_last->next : &lq->parked) = op;
    lq->parked_last = op;
}

void hold_sweep(struct local_queue *lq, uint32_t max)
{
    assert(max > 0);
    begin(lq);
    lq->sweep_max = max;
}

void hold_return(struct local_queue *lq, struct engine_op *op)
{
    assert(!lq->rq->held);
    op->next = lq->parked;
    if (!lq->parked)
        lq->parked_last = op;
    lq->parked = op;
}

struct engine_op *hold_next(struct local_queue *lq)
{
    struct engine_op *op = lq->parked;
    assert(!op || op->next || op == lq->parked_last);
    if (op)
        lq->parked = op->next;
    return op;
}

static bool is_over(const struct local_queue *lq)
{
    const struct local *l = lq->local;
    return lq->rq->held &&
           (l->r.base.failed || (lq->hold_group <= l->finished && !lq->looks.under_way));
}

struct local_queue *hold_over(struct local *l)
{
    struct local_queue *lq = l->held;
    while (lq && !is_over(lq))
        lq = lq->next_held;
    if (lq)
        end(lq);
    return lq;
}

/* The first op waits again, for what those before it have done; the others stay behind it. */
bool hold_again(struct local_queue *lq)
{
    bool waits = !lq->local->r.base.failed && lq->parked && hold_needed(lq, lq->parked);
    if (waits) {
        look_ahead(lq, lq->parked);
        begin(lq);
    }
    return waits;
}

void hold_forget(struct local_queue *lq)
{
    assert(!lq->parked);
    if (lq->rq->held)
        end(lq);
    lq->sweep_max = 0;
    unlist(lq);
}

/* Consumers were told to wait */

bool hold_shows(const struct local *l)
{
    const struct local_queue *lq = l->held;
    while (lq && lq->rq->held)
        lq = lq->next_held;
    return lq;
}

void hold_show(struct local *l, struct engine_op *sweep)
{
    for (struct local_queue **at = &l->held, *lq; (lq = *at);) {
        if (lq->rq->held) {
            at = &lq->next_held;
            continue;
        }
        *at = lq->next_held;
        lq->listed = false;
        if (sweep->sweep.touched)
            sweep->sweep.touched(sweep, &lq->rq->face);
    }
}
