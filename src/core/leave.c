/* Messages that leave for another store. One that is leaving is LEASED without an end, and to
 * nobody: so it is in one place at a time, whatever clients and clocks do meanwhile. */
#include "core/moves.h"

#include <assert.h>
#include <string.h>

/* A lease that is given has to be accounted for: it counts as claimed, and at the end as released.
 */
static void leave(struct queue *q, struct message *m, const struct leave_item *item)
{
    enum message_state from = m->state;
    struct delivery *d = message_delivery(m);
    memcpy(d->receipt, item->receipt, RECEIPT_BYTES);
    d->lease_ms = leaving_ms(from == MESSAGE_DEAD, d->died_ms);
    d->lease_until_ms = LEAVING_UNTIL_MS;
    q->view->totals.claimed++;
    if (from != MESSAGE_DEAD) {
        queue_move(q, m, MESSAGE_LEASED);
        queue_touch(q, m, from, m->slot);
        return;
    }
    queue_delist(q, m);
    queue_move(q, m, MESSAGE_NEW);
    m->touched = true;
    queue_move(q, m, MESSAGE_LEASED);
    queue_enlist(q, m);
    queue_report(q, m, REPORT_REVIVED, MESSAGE_DEAD, m->slot, false);
}

static bool leaves_with(const struct message *m, const uint8_t receipt[RECEIPT_BYTES])
{
    return m->state == MESSAGE_LEASED && message_leaves(m) &&
           memcmp(m->delivery->receipt, receipt, RECEIPT_BYTES) == 0;
}

void queue_leave(struct queue *q, struct leave_item *item, struct instant now)
{
    struct message *m = queue_find(q, &item->id, now);
    item->status = STATUS_OK;
    if (!m) {
        item->status = STATUS_MESSAGE_NOT_FOUND;
    } else if (message_pending(m) || m->state == MESSAGE_DEAD) {
        leave(q, m, item);
    } else if (leaves_with(m, item->from)) {
        memcpy(m->delivery->receipt, item->receipt, RECEIPT_BYTES);
        queue_touch(q, m, MESSAGE_LEASED, m->slot);
    } else if (!leaves_with(m, item->receipt)) {
        bool leaves = m->state == MESSAGE_LEASED && message_leaves(m);
        item->status = leaves ? STATUS_RECEIPT_EXPIRED : STATUS_NOT_PENDING;
    }
}

void queue_left(struct queue *q, struct leave_item *item, struct instant now)
{
    struct message *m = queue_find(q, &item->id, now);
    item->status = !m                               ? STATUS_MESSAGE_NOT_FOUND
                   : !leaves_with(m, item->receipt) ? STATUS_RECEIPT_EXPIRED
                                                    : STATUS_OK;
    if (item->status)
        return;
    q->view->totals.released++;
    queue_end(q, m, MESSAGE_CANCELLED, now);
}

struct message *queue_leaving(const struct queue *q, const struct message *m)
{
    struct order_node *n = m ? order_prev(&q->leased, &m->node) : order_last(&q->leased);
    return n && message_leaves(message_of(n)) ? message_of(n) : NULL;
}
