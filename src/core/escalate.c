#include "base/mem.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct escalation *escalation_new(uint8_t from_slot, const struct escalate_note *note,
                                  int64_t wall_ms)
{
    assert(from_slot < LEVEL_COUNT_MAX);
    struct escalation *e = mem_alloc(sizeof(*e) + note->actor_len + note->reason_len);
    e->at_ms = wall_ms;
    e->from_slot = from_slot;
    e->actor_len = note->actor_len;
    e->reason_len = note->reason_len;
    if (note->actor_len > 0)
        memcpy(e->text, note->actor, note->actor_len);
    if (note->reason_len > 0)
        memcpy(e->text + note->actor_len, note->reason, note->reason_len);
    return e;
}

/* The message keeps its ready time and number, so it has the same place in the other lane. */
static void change_lane(struct queue *q, struct message *m, uint8_t slot)
{
    enum message_state state = m->state;
    uint8_t from_slot = m->slot;
    queue_move(q, m, MESSAGE_NEW);
    m->slot = slot;
    queue_move(q, m, state);
    queue_touch(q, m, state, from_slot);
    assert(m->state == state);
    assert(m->slot != from_slot);
}

void queue_escalate(struct queue *q, struct escalate_item *item, uint8_t slot,
                    const struct escalate_note *note, struct instant now)
{
    assert(levels_rank_of_slot(q->config, slot) >= 0);
    struct message *m = queue_find(q, &item->id, now);
    item->changed = false;
    item->status = !m                   ? STATUS_MESSAGE_NOT_FOUND
                   : message_pending(m) ? STATUS_OK
                                        : STATUS_NOT_PENDING;
    if (item->status)
        return;
    item->state = m->state;
    item->from_slot = m->slot;
    if (m->slot == slot)
        return;
    struct delivery *d = message_delivery(m);
    free(d->escalation);
    d->escalation = escalation_new(m->slot, note, now.wall_ms);
    item->changed = true;
    q->view->totals.escalated++;
    change_lane(q, m, slot);
}

void queue_promote(struct queue *q, struct message *m, struct instant now)
{
    uint8_t slot = m->slot;
    assert(m->state == MESSAGE_SCHEDULED);
    queue_move(q, m, MESSAGE_NEW);
    if (m->ready_ms > now.wall_ms)
        m->ready_ms = now.wall_ms;
    queue_move(q, m, MESSAGE_READY);
    queue_touch(q, m, MESSAGE_SCHEDULED, slot);
}
