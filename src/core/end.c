#include "base/plant.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>

static bool kept_in_memory(const struct queue *q, enum message_state to)
{
    return !q->reports && (to == MESSAGE_DEAD || (to == MESSAGE_DONE && q->config->history_ms > 0));
}

void queue_end(struct queue *q, struct message *m, enum message_state to, struct instant now)
{
    struct queue_totals *t = &q->view->totals;
    assert(to != MESSAGE_DONE || m->state == MESSAGE_LEASED);
    t->acked += to == MESSAGE_DONE;
    t->expired += to == MESSAGE_EXPIRED;
    t->cancelled += to == MESSAGE_CANCELLED;
    t->dead += to == MESSAGE_DEAD;
    if (m->dedup_len > 0 && to != MESSAGE_DEAD && !q->reports)
        queue_key_drop(q, m, NULL);
    if (to == MESSAGE_DEAD)
        message_delivery(m)->died_ms = now.wall_ms;
    if (to == MESSAGE_DONE)
        message_delivery(m)->died_ms = config_done_ms(q->config, now.wall_ms);
    queue_report(q, m, REPORT_ENDED, m->state, m->slot, false);
    queue_delist(q, m);
    bool keep = kept_in_memory(q, to);
    /* without a history a done message has no place to move to */
    if (to == MESSAGE_DONE && !keep) {
        order_remove(&q->leased, &m->node);
        queue_count(q, m, MESSAGE_LEASED, -1);
        m->state = MESSAGE_DONE;
    } else {
        queue_move(q, m, to);
    }
    assert(keep || m->node.height == 0);
    if (keep)
        queue_enlist(q, m);
    else if (!q->reports)
        message_free(m);
}

void queue_expire(struct queue *q, struct message *m, struct instant now)
{
    static const char reason[] = "expired";
    enum message_state to = queue_expires_as(q);
    if (to == MESSAGE_DEAD)
        message_set_reason(m, reason, sizeof(reason) - 1);
    queue_end(q, m, to, now);
}

void queue_cancel_pending(struct queue *q, struct message *m, struct instant now)
{
    assert(message_pending(m));
    queue_end(q, m, MESSAGE_CANCELLED, now);
}

enum status queue_cancel(struct queue *q, const struct message_id *id, struct instant now)
{
    struct message *m = queue_find(q, id, now);
    if (!m)
        return STATUS_MESSAGE_NOT_FOUND;
    if (!message_pending(m))
        return STATUS_NOT_PENDING;
    if (!PLANTED(CANCEL_FORGOTTEN))
        queue_cancel_pending(q, m, now);
    return STATUS_OK;
}

void queue_redrive(struct queue *q, struct message *m, int slot, struct instant now)
{
    assert(m->state == MESSAGE_DEAD);
    assert(slot < LEVEL_COUNT_MAX);
    assert(!m->expiry || m->expiry->node.height == 0);
    queue_delist(q, m);
    queue_move(q, m, MESSAGE_NEW);
    m->attempts = 0;
    message_drop_expiry(m); /* its time to live is over, but somebody asked for it again */
    if (m->ready_ms > now.wall_ms)
        m->ready_ms = now.wall_ms;
    if (slot >= 0)
        m->slot = (uint8_t)slot;
    m->touched = true;
    q->view->totals.redriven++;
    queue_move(q, m, MESSAGE_READY);
    queue_enlist(q, m);
    queue_report(q, m, REPORT_REVIVED, MESSAGE_DEAD, m->slot, false);
}

void queue_drop_dead(struct queue *q, struct message *m, struct instant now)
{
    assert(m->state == MESSAGE_DEAD);
    queue_end(q, m, MESSAGE_CANCELLED, now);
}
