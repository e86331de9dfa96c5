/* What this process knows of a queue. The database tells it after changes that only the database
 * can count, every VIEW_MS while there are claims, and otherwise with a sweep. What it costs to ask
 * does not depend on how much was done in between. Until then puts, claims and acks of this process
 * are counted here.
 *
 * The counts made here are for plans only. Messages that claims under way may take are subtracted,
 * and other processes change the queue, too. So the counts are a guess: a claim may even get a
 * message that this process never heard of. Clients are shown what the database said: it is one
 * snapshot, and its numbers add up. */
#include "engine/postgres/impl.h"
#include "engine/postgres/rows.h"

#define VIEW_MS 50 /* how old a view may be by which claims are planned */

/* Whether this process can count what a claim leaves. It cannot when time or a limit has a say. */
static bool countable(const struct pg_queue *q)
{
    const struct queue_config *config = &q->face.config;
    bool ok = config->max_in_flight == 0 && config->ttl_ms == 0 && !q->perishable;
    for (int rank = 0; ok && rank < config->level_count; rank++) {
        const struct level *l = &config->levels[rank];
        ok = l->age_ms == 0 && l->max_wait_ms == 0 && l->max_in_flight == 0;
    }
    return ok;
}

bool view_wanted(const struct pg_queue *q, const struct engine_op *op, struct instant now)
{
    if (op->verb == ENGINE_PUT || op->verb == ENGINE_ACK)
        return false; /* the next sweep reads it */
    return op->verb != ENGINE_CLAIM || !countable(q) || now.mono_ms - q->read_ms >= VIEW_MS;
}

void view_put(struct pg_queue *q, const struct put_item *item)
{
    const struct draft *d = &item->draft;
    struct queue_view *v = &q->seen;
    struct lane_view *lane = &v->lanes[item->id.slot];
    v->totals.deduplicated += item->status == STATUS_OK && item->deduplicated;
    if (item->status != STATUS_OK || item->deduplicated)
        return;
    if (item->id.seq >= q->face.next_seq)
        q->face.next_seq = item->id.seq + 1;
    q->puts++;
    v->totals.enqueued++;
    v->bytes += d->payload_len + d->metadata_len;
    q->perishable = q->perishable || (d->ttl_ms != TTL_DEFAULT && d->ttl_ms > 0);
    if (item->id.ready_ms > item->enqueued_ms) {
        lane->scheduled++;
        v->scheduled++;
        return;
    }
    if (lane->ready == 0 || item->id.ready_ms < lane->head_ms)
        lane->head_ms = item->id.ready_ms;
    lane->ready++;
    v->ready++;
}

void view_claim(struct pg_queue *q, const struct row *row)
{
    struct queue_view *v = &q->seen;
    struct lane_view *lane = &v->lanes[row_slot(row, COLUMN_SLOT)];
    uint64_t bytes = row_len(row, COLUMN_PAYLOAD) + row_len(row, COLUMN_METADATA);
    uint64_t known = lane->ready > 0; /* false: another process put it there */
    if (known && row_int(row, COLUMN_READY) > lane->head_ms)
        lane->head_ms = row_int(row, COLUMN_READY); /* what is left stands behind it */
    lane->ready -= known;
    v->ready -= known;
    lane->leased++;
    v->leased++;
    v->bytes -= bytes < v->bytes ? bytes : v->bytes;
    v->totals.claimed++;
    v->totals.redelivered += row_int(row, COLUMN_ATTEMPTS) > 1;
}

/* If a step found too little, its lanes are empty. That is not known of a lane of which it could
 * not take every message, nor if messages were put meanwhile that it could not see. */
void view_drained(const struct pg_call *c, const struct plan *plan)
{
    struct pg_queue *q = c->queue;
    bool known = countable(q) && c->puts == q->puts;
    for (uint32_t i = 0; known && i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        for (uint32_t k = 0; step->found < step->max && k < step->lane_count; k++) {
            const struct plan_lane *lane = &plan->lanes[step->first_lane + k];
            if (lane->until_ms != INT64_MAX || plan->room[lane->slot] != UINT32_MAX)
                continue;
            q->seen.ready -= q->seen.lanes[lane->slot].ready;
            q->seen.lanes[lane->slot].ready = 0;
        }
    }
}

void view_ack(struct pg_queue *q, uint8_t slot)
{
    struct queue_view *v = &q->seen;
    uint64_t known = v->lanes[slot].leased > 0;
    v->lanes[slot].leased -= known;
    v->leased -= known;
    v->totals.acked++;
}

void view_read(struct pg_call *c, struct instant now)
{
    static const struct {
        const char *name;
        size_t offset;
    } totals[] = {
#define TOTAL(name, field) {name, offsetof(struct queue_totals, field)}
        TOTAL("enqueued", enqueued),
        TOTAL("claimed", claimed),
        TOTAL("acked", acked),
        TOTAL("nacked", nacked),
        TOTAL("released", released),
        TOTAL("lease_expired", lease_expired),
        TOTAL("expired", expired),
        TOTAL("died", dead),
        TOTAL("deduplicated", deduplicated),
        TOTAL("redelivered", redelivered),
        TOTAL("cancelled", cancelled),
        TOTAL("redriven", redriven),
        TOTAL("aged", aged),
        TOTAL("late", late),
        TOTAL("escalated", escalated),
#undef TOTAL
    };
    const PGresult *r = c->result;
    struct queue_view *v = &c->queue->seen;
    *v = (struct queue_view){0};
    int slot = PQfnumber(r, "slot"), head = PQfnumber(r, "head_ms"), ready = PQfnumber(r, "ready"),
        scheduled = PQfnumber(r, "scheduled"), leased = PQfnumber(r, "leased"),
        dead = PQfnumber(r, "dead"), bytes = PQfnumber(r, "bytes");
    for (int row = 0; row < PQntuples(r); row++) {
        struct lane_view *lane = &v->lanes[cell_slot(r, row, slot)];
        lane->ready = cell_count(r, row, ready);
        lane->scheduled = cell_count(r, row, scheduled);
        lane->leased = cell_count(r, row, leased);
        lane->dead = cell_count(r, row, dead);
        lane->head_ms = cell_time(r, row, head);
        v->ready += lane->ready;
        v->scheduled += lane->scheduled;
        v->leased += lane->leased;
        v->dead += lane->dead;
        v->bytes += cell_count(r, row, bytes);
        for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
            int column = PQfnumber(r, totals[i].name);
            uint64_t *total = (uint64_t *)((char *)&v->totals + totals[i].offset);
            *total += cell_count(r, row, column);
        }
    }
    if (PQntuples(r) > 0)
        c->queue->face.next_seq = cell_count(r, 0, PQfnumber(r, "next_seq"));
    c->queue->read_ms = now.mono_ms;
    c->queue->behind = false;
    c->queue->moment = *v;
    c->queue->face.moments++;
    pg_view_changed(c->queue);
}
