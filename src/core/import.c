/* Messages that come from elsewhere, with all that happened to them there. */
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void import_item_fini(struct import_item *item)
{
    draft_fini(&item->draft);
    free(item->text);
    item->text = NULL;
}

static void name_level(const struct queue_config *config, uint8_t slot, struct priority_ref *ref)
{
    int rank = levels_rank_of_slot(config, slot);
    if (rank < 0)
        return;
    ref->kind = PRIORITY_NAME;
    memcpy(ref->name, config->levels[rank].name, sizeof(ref->name));
}

/* Reason, then who escalated it, then why. */
static void copy_texts(const struct delivery *d, struct import_item *item)
{
    const struct escalation *e = d->escalation;
    size_t more = e ? (size_t)e->actor_len + e->reason_len : 0;
    item->reason_len = d->reason ? (uint16_t)d->reason_len : 0;
    item->text = mem_alloc(item->reason_len + more + 1);
    if (item->reason_len > 0)
        memcpy(item->text, d->reason, item->reason_len);
    if (!e)
        return;
    memcpy(item->text + item->reason_len, e->text, more);
    item->escalated = true;
    item->escalated_ms = e->at_ms;
    item->actor_len = e->actor_len;
    item->why_len = e->reason_len;
}

void import_item_of(const struct message *m, uint32_t queue, const struct queue_config *config,
                    struct import_item *item)
{
    *item = (struct import_item){.origin = message_identity(m, queue),
                                 .enqueued_ms = m->enqueued_ms,
                                 .expire_ms = m->expiry ? m->expiry->node.key : INT64_MAX,
                                 .dead = m->state == MESSAGE_DEAD,
                                 .attempts = m->attempts};
    item->draft = (struct draft){.body = mem_dup(m->body ? m->body : "", message_body_len(m)),
                                 .payload_len = m->payload_len,
                                 .metadata_len = m->metadata_len,
                                 .dedup_len = m->dedup_len,
                                 .kind = m->kind,
                                 .ready_ms = m->ready_ms};
    name_level(config, m->slot, &item->draft.priority);
    const struct delivery *d = m->delivery;
    if (!d)
        return;
    item->died_ms = d->died_ms;
    if (message_leaves(m))
        item->dead = leaving_died(d->lease_ms, &item->died_ms);
    copy_texts(d, item);
    if (d->escalation)
        name_level(config, d->escalation->from_slot, &item->escalated_from);
}

uint8_t import_from_slot(const struct import_item *item, const struct queue_config *config,
                         uint8_t slot)
{
    int own_rank = levels_rank_of_slot(config, slot);
    assert(own_rank >= 0);
    const struct level *own = &config->levels[own_rank];
    const struct priority_ref *from = &item->escalated_from;
    bool foreign = from->kind == PRIORITY_NUMBER && item->has_number &&
                   !(own->has_number && own->number == item->number);
    int rank = from->kind == PRIORITY_DEFAULT || foreign ? -1 : levels_resolve(config, from);
    return rank >= 0 ? config->levels[rank].slot : slot;
}

/* The id alone is not enough. Two servers may have given the same id to different messages, such
 * as the first message of their first queue. So the key also has the time and a digest of the
 * message. */
void import_key(const struct import_item *item, char out[IMPORT_KEY_BYTES])
{
    const struct draft *d = &item->draft;
    char id[MESSAGE_ID_TEXT + 1];
    size_t len = (size_t)d->payload_len + d->metadata_len + d->dedup_len;
    uint64_t digest = XXH3_64bits(d->body, len);
    message_id_format(&item->origin, id);
    out[0] = (char)0xff;
    memcpy(out + 1, id, MESSAGE_ID_TEXT);
    for (int i = 0; i < 8; i++) {
        out[1 + MESSAGE_ID_TEXT + i] = (char)((uint64_t)item->enqueued_ms >> (56 - 8 * i));
        out[1 + MESSAGE_ID_TEXT + 8 + i] = (char)(digest >> (56 - 8 * i));
    }
}

static void take_past(struct message *m, const struct import_item *item,
                      const struct queue_config *config)
{
    const char *text = item->text ? item->text : "";
    const struct escalate_note note = {
        .actor = text + item->reason_len,
        .actor_len = item->actor_len,
        .reason = text + item->reason_len + item->actor_len,
        .reason_len = item->why_len,
    };
    m->attempts = item->attempts;
    if (item->reason_len > 0)
        message_set_reason(m, text, item->reason_len);
    if (item->escalated)
        message_delivery(m)->escalation =
            escalation_new(import_from_slot(item, config, m->slot), &note, item->escalated_ms);
}

static struct message *from_item(struct queue *q, struct import_item *item, uint8_t slot)
{
    struct draft *d = &item->draft;
    assert(d->ready_ms != READY_NOW);
    assert(slot < LEVEL_COUNT_MAX);
    struct message *m = message_new(queue_take_seq(q, d->seq_min));
    m->born_ms = m->ready_ms = d->ready_ms;
    m->enqueued_ms = item->enqueued_ms;
    m->body = d->body;
    d->body = NULL;
    m->payload_len = d->payload_len;
    m->metadata_len = d->metadata_len;
    m->dedup_len = d->dedup_len;
    m->kind = d->kind;
    m->slot = m->born_slot = slot;
    if (item->expire_ms != INT64_MAX)
        message_set_expiry(m, item->expire_ms);
    take_past(m, item, q->config);
    return m;
}

/* Gives the message its place. A dead letter goes on to be dead, and a message whose time to live
 * has passed meanwhile expires. */
static void place(struct queue *q, struct message *m, const struct import_item *item,
                  struct instant now)
{
    bool overdue = !item->dead && queue_past_ttl(m, now);
    bool touched = item->dead || overdue || m->attempts > 0 || m->delivery;
    m->touched = touched;
    queue_take_place(q, m);
    if (item->dead)
        queue_end(q, m, MESSAGE_DEAD,
                  (struct instant){.wall_ms = item->died_ms, .mono_ms = now.mono_ms});
    else if (overdue)
        queue_expire(q, m, now);
    else if (touched)
        queue_report(q, m, REPORT_CHANGED, m->state, m->slot, false);
}

void queue_import(struct queue *q, struct import_item *item, const struct dedup_hit *elsewhere,
                  const struct dedup_hit *own_elsewhere, struct instant now)
{
    char key[IMPORT_KEY_BYTES];
    struct dedup_hit hit;
    int rank = levels_resolve(q->config, &item->draft.priority);
    item->status = rank < 0 ? STATUS_UNKNOWN_PRIORITY : STATUS_OK;
    item->known = false;
    if (rank < 0)
        return;
    import_key(item, key);
    item->known = dedup_find(q, key, sizeof(key), elsewhere, now, &hit);
    if (item->known) {
        item->id = hit.id;
        return;
    }
    uint8_t slot = q->config->levels[rank].slot;
    int64_t clock_ms = queue_order_time(q, now);
    if (lane_has_tail(&q->lanes[slot])) /* as queue_put() does */
        queue_tail_advance(q, slot, clock_ms);
    struct message *m = from_item(q, item, slot);
    item->id = message_identity(m, q->id);
    q->view->totals.enqueued++;
    hit = (struct dedup_hit){
        .id = item->id, .enqueued_ms = m->enqueued_ms, .until_ms = now.wall_ms + IMPORT_KNOWN_MS};
    dedup_remember(q, key, sizeof(key), &hit);
    if (m->dedup_len > 0)
        dedup_adopt(q, m, own_elsewhere, now);
    place(q, m, item, now);
}
