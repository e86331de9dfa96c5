#include "base/mem.h"
#include "sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_see(struct engine_op *op, const struct engine_queue *q, const struct message *m,
             struct instant now)
{
    (void)now;
    struct sim_op *o = container_of(op, struct sim_op, op);
    if (o->seen_count == SIM_SEEN_MAX)
        abort();
    struct sim_seen *seen = &o->seen[o->seen_count++];
    *seen = (struct sim_seen){
        .id = message_identity(m, q->id),
        .state = m->state,
        .slot = m->slot,
        .attempts = m->attempts,
        .ready_ms = m->ready_ms,
        .enqueued_ms = m->enqueued_ms,
        .body_hash = sim_hash(m->body, message_body_len(m)),
        .has_delivery = m->delivery != NULL,
        .claimed = op->verb == ENGINE_CLAIM,
    };
    if (!m->delivery)
        return;
    memcpy(seen->receipt, m->delivery->receipt, RECEIPT_BYTES);
    seen->lease_until_ms = m->delivery->lease_until_ms;
    snprintf(seen->reason, sizeof(seen->reason), "%.*s", (int)m->delivery->reason_len,
             m->delivery->reason ? m->delivery->reason : "");
    const struct escalation *e = m->delivery->escalation;
    seen->escalated = e != NULL;
    if (!e)
        return;
    seen->escalated_from = e->from_slot;
    seen->escalated_ms = e->at_ms;
    snprintf(seen->escalated_why, sizeof(seen->escalated_why), "%.*s",
             (int)(e->actor_len + e->reason_len), e->text);
}

void sim_compare(struct sim *s, const struct sim_seen *seen, const struct model_message *m)
{
    uint64_t seq = m->id.seq;
    sim_check(s,
              seen->id.seq == seq && seen->id.slot == m->id.slot &&
                  seen->id.ready_ms == m->id.ready_ms && seen->id.queue == m->id.queue,
              "shown seq %" PRIu64 " (slot %u, ready %" PRId64 "), expected %" PRIu64
              " (slot %u, ready %" PRId64 "): order or identity",
              seen->id.seq, seen->slot, seen->ready_ms, seq, m->slot, m->ready_ms);
    sim_check(s, seen->state == m->state, "seq %" PRIu64 " is %s, expected %s", seq,
              message_state_name(seen->state), message_state_name(m->state));
    sim_check(s, seen->slot == m->slot, "seq %" PRIu64 " is in slot %u, expected %u", seq,
              seen->slot, m->slot);
    sim_check(s, seen->attempts == m->attempts, "seq %" PRIu64 " has %u attempts, expected %u", seq,
              seen->attempts, m->attempts);
    sim_check(s, seen->ready_ms == m->ready_ms,
              "seq %" PRIu64 " ready at %" PRId64 ", expected %" PRId64, seq, seen->ready_ms,
              m->ready_ms);
    sim_check(s, seen->enqueued_ms == m->enqueued_ms, "seq %" PRIu64 ": enqueued time", seq);
    sim_check(s, seen->body_hash == m->body_hash, "seq %" PRIu64 ": other bytes", seq);
    if (m->state == MESSAGE_LEASED)
        sim_check(s, seen->has_delivery && seen->lease_until_ms == m->lease_until_ms,
                  "seq %" PRIu64 ": lease until %" PRId64 ", expected %" PRId64, seq,
                  seen->lease_until_ms, m->lease_until_ms);
    if (m->state == MESSAGE_DEAD)
        sim_check(s, strcmp(seen->reason, m->reason) == 0,
                  "seq %" PRIu64 ": dead for \"%s\", expected \"%s\"", seq, seen->reason,
                  m->reason);
    if (seen->claimed && s->shared && !seen->escalated)
        return;
    sim_check(s, seen->escalated == m->escalated, "seq %" PRIu64 ": escalated is %d", seq,
              seen->escalated);
    if (m->escalated)
        sim_check(s,
                  seen->escalated_from == m->escalated_from &&
                      seen->escalated_ms == m->escalated_ms &&
                      strcmp(seen->escalated_why, m->escalated_why) == 0,
                  "seq %" PRIu64 ": escalated from %u for \"%s\", expected %u for \"%s\"", seq,
                  seen->escalated_from, seen->escalated_why, m->escalated_from, m->escalated_why);
}

/* A message of any state, or NULL in an empty queue. */
static struct model_message *any_message(struct sim *s, struct model_queue *q)
{
    return q->count ? &q->messages[sim_pick(s, q->count)] : NULL;
}

static struct model_message *any_in(struct sim *s, struct model_queue *q, enum message_state state)
{
    for (uint32_t i = 0, at = sim_pick(s, MODEL_LIVE_MAX); i < q->count; i++) {
        struct model_message *m = &q->messages[(at + i) % q->count];
        if (m->state == state)
            return m;
    }
    return NULL;
}

/* An id: mostly of a message that is there, sometimes of one that was, rarely made up. */
struct message_id sim_any_id(struct sim *s, struct sim_queue *q)
{
    const struct model_message *m = any_message(s, &q->model);
    if (m && sim_chance(s, 85))
        return m->id;
    if (s->past_count > 0 && sim_chance(s, 80))
        return s->past[sim_pick(s, s->past_count < SIM_PAST ? s->past_count : SIM_PAST)].id;
    return (struct message_id){q->model.id, (uint8_t)sim_pick(s, 2), s->rig.now.wall_ms,
                               sim_pick(s, 1000)};
}

/* Lists the whole queue, `limit` at a time, and says which of the model's messages were shown. */
static void list_shown(struct sim *s, struct sim_queue *q, uint32_t limit, bool *shown)
{
    static struct sim_op o;
    struct list_cursor at = {0};
    memset(shown, 0, MODEL_LIVE_MAX * sizeof(*shown));
    do {
        o.op = (struct engine_op){.verb = ENGINE_LIST, .queue = q->real, .visit = sim_see};
        o.op.list.after = at;
        o.op.list.limit = limit;
        o.seen_count = 0;
        rig_run_one(&s->rig, &o.op);
        sim_check(s, o.op.status == STATUS_OK, "list: %s", status_name(o.op.status));
        sim_check(s, o.op.list.found == o.seen_count, "list: found %u of %u", o.op.list.found,
                  o.seen_count);
        for (uint32_t i = 0; i < o.seen_count; i++) {
            struct model_message *m = model_find(&q->model, &o.seen[i].id);
            uint64_t seq = o.seen[i].id.seq;
            sim_check(s, m, "list shows seq %" PRIu64 ", which is gone", seq);
            sim_check(s, !shown[m - q->model.messages], "list shows seq %" PRIu64 " twice", seq);
            shown[m - q->model.messages] = true;
            sim_compare(s, &o.seen[i], m);
        }
        at = o.op.list.next;
    } while (o.op.list.more);
}

/* Put. */

static int64_t any_ready_ms(struct sim *s, struct model_draft *d)
{
    d->delay_ms = 0;
    switch (sim_pick(s, 10)) {
    case 0:
        return s->rig.now.wall_ms - (int64_t)sim_pick(s, 100000);
    case 1:
        return -(int64_t)sim_pick(s, 1000);
    case 2:
        return s->rig.now.wall_ms + (int64_t)sim_pick(s, 60000);
    case 3:
        d->delay_ms = 1 + (int64_t)sim_pick(s, 20000);
        return READY_NOW;
    default:
        return READY_NOW;
    }
}

static void make_draft(struct sim *s, struct sim_op *o, uint32_t i)
{
    struct model_draft *d = &o->drafts[i];
    const struct queue_config *c = &o->q->model.config;
    *d = (struct model_draft){.rank = (int)sim_pick(s, c->level_count), .dedup_key = -1};
    d->ready_ms = any_ready_ms(s, d);
    d->ttl_ms = sim_chance(s, 80) ? TTL_DEFAULT : (int64_t)sim_pick(s, 30000);
    int key = (int)sim_pick(s, 12);
    if (sim_chance(s, 25) && model_dedup_certain(&o->q->model, key, s->rig.now, s->wall_high_ms) &&
        o->q->model.dedup_count < MODEL_DEDUP_MAX - SIM_GROUP_MAX * SIM_ITEMS)
        d->dedup_key = key;

    static char body[SIM_PAYLOAD_MAX + 64];
    memset(body, '.', sizeof(body));
    size_t payload = (size_t)snprintf(body, sizeof(body), "p%" PRIu64, s->tag++);
    payload += sim_pick(s, s->payload_max);
    size_t metadata = (size_t)sim_pick(s, 20);
    size_t dedup = 0;
    memset(body + payload, 'm', metadata);
    if (d->dedup_key >= 0)
        dedup = (size_t)snprintf(body + payload + metadata, 8, "k%d", d->dedup_key);
    size_t len = payload + metadata + dedup;
    d->body_hash = sim_hash(body, len);
    d->bytes = (uint32_t)(payload + metadata);

    struct draft *real = &o->put[i].draft;
    *real = (struct draft){.body = mem_dup(body, len),
                           .payload_len = (uint32_t)payload,
                           .metadata_len = (uint16_t)metadata,
                           .dedup_len = (uint16_t)dedup,
                           .kind = (uint8_t)sim_pick(s, 3),
                           .ready_ms = d->ready_ms,
                           .delay_ms = d->delay_ms,
                           .ttl_ms = d->ttl_ms};
    real->priority.kind = PRIORITY_NAME;
    snprintf(real->priority.name, sizeof(real->priority.name), "%s", c->levels[d->rank].name);
    if (sim_chance(s, 2)) {
        d->rank = -1;
        snprintf(real->priority.name, sizeof(real->priority.name), "none such");
    }
}

static void make_put(struct sim *s, struct sim_op *o)
{
    uint32_t count = 1 + sim_pick(s, s->items_max);
    bool full = o->q->model.count + count * SIM_GROUP_MAX > s->live_max;
    if (full)
        o->q->draining = s->deep;
    else if (o->q->model.count < s->live_max / 10)
        o->q->draining = false;
    if (full || o->q->draining) { /* it gets no more: the op asks for the view alone */
        o->op.verb = ENGINE_COUNT;
        sim_note(s, "%s put nothing", o->q->name);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        make_draft(s, o, i);
    o->op.verb = ENGINE_PUT;
    o->op.put.items = o->put;
    o->op.put.count = count;
    sim_note(s, "%s put %u", o->q->name, count);
}

/* Those in between are other queues', or nobody's. */
static void skip_seqs(struct sim *s, struct sim_queue *q, uint64_t seq)
{
    sim_check(s, seq >= q->model.next_seq, "seq %" PRIu64 " is given out again", seq);
    q->model.next_seq = seq;
}

static void judge_put(struct sim *s, struct sim_op *o)
{
    sim_check(s, o->op.status == STATUS_OK, "put: %s", status_name(o->op.status));
    for (uint32_t i = 0; o->op.verb == ENGINE_PUT && i < o->op.put.count; i++) {
        struct put_item *item = &o->put[i];
        struct message_id id = {0};
        bool dup;
        if (s->shared && item->status == STATUS_OK && !item->deduplicated)
            skip_seqs(s, o->q, item->id.seq);
        enum status want = model_put(&o->q->model, &o->drafts[i], s->rig.now, &dup, &id);
        sim_check(s, item->status == want,
                  "put item %u (key %d, expected to be known: %d): %s, expected %s", i,
                  o->drafts[i].dedup_key, dup, status_name(item->status), status_name(want));
        sim_check(s, (item->draft.body == NULL) == (want == STATUS_OK && !dup),
                  "put item %u: the body was %s", i, item->draft.body ? "left" : "taken");
        draft_fini(&item->draft);
        if (want != STATUS_OK)
            continue;
        sim_check(s, item->deduplicated == dup, "put item %u (key %d): deduplicated is %d", i,
                  o->drafts[i].dedup_key, item->deduplicated);
        sim_check(s,
                  item->id.seq == id.seq && item->id.slot == id.slot &&
                      item->id.ready_ms == id.ready_ms && item->id.queue == id.queue,
                  "put item %u: id seq %" PRIu64 " ready %" PRId64 ", expected %" PRIu64
                  " ready %" PRId64,
                  i, item->id.seq, item->id.ready_ms, id.seq, id.ready_ms);
    }
}

/* Ack, nack, release, extend. */

static void make_receipt(struct sim *s, struct sim_op *o, struct settle_item *item)
{
    *item = (struct settle_item){0};
    struct model_message *m = any_in(s, &o->q->model, MESSAGE_LEASED);
    if (!m || sim_chance(s, 10))
        m = any_message(s, &o->q->model);
    if (m && sim_chance(s, 85)) {
        item->id = m->id;
        memcpy(item->receipt, m->receipt, RECEIPT_BYTES);
        if (sim_chance(s, 5))
            item->receipt[sim_pick(s, RECEIPT_BYTES)] ^= 1;
    } else if (s->past_count > 0) {
        uint32_t n = s->past_count < SIM_PAST ? s->past_count : SIM_PAST;
        item->id = s->past[sim_pick(s, n)].id;
        memcpy(item->receipt, s->past[sim_pick(s, n)].receipt, RECEIPT_BYTES);
    } else {
        item->id = sim_any_id(s, o->q);
    }
}

static void make_settle(struct sim *s, struct sim_op *o)
{
    static const enum engine_verb verbs[] = {ENGINE_ACK,  ENGINE_ACK,     ENGINE_ACK,
                                             ENGINE_NACK, ENGINE_RELEASE, ENGINE_EXTEND};
    o->op.verb = verbs[sim_pick(s, 6)];
    o->op.settle.items = o->settle;
    o->op.settle.count = 1 + sim_pick(s, s->items_max);
    for (uint32_t i = 0; i < o->op.settle.count; i++)
        make_receipt(s, o, &o->settle[i]);
    o->op.settle.delay_ms = sim_chance(s, 60)   ? -1
                            : sim_chance(s, 50) ? 0
                                                : (int64_t)sim_pick(s, 9000);
    o->op.settle.lease_ms = (int64_t)sim_pick(s, 20000);
    snprintf(o->reason, sizeof(o->reason), "why %u", sim_pick(s, 1000));
    o->op.settle.reason = o->reason;
    o->op.settle.reason_len = (uint32_t)strlen(o->reason);
    sim_note(s, "%s settle verb %d, %u items, delay %" PRId64 ", first seq %" PRIu64, o->q->name,
             o->op.verb, o->op.settle.count, o->op.settle.delay_ms, o->settle[0].id.seq);
}

static enum message_state settle_model(struct sim *s, struct sim_op *o, struct model_message *m)
{
    struct model_queue *q = &o->q->model;
    switch (o->op.verb) {
    case ENGINE_ACK:
        model_ack(q, m, s->rig.now);
        return MESSAGE_DONE;
    case ENGINE_NACK:
        q->totals.nacked++;
        return model_fail(q, m, o->op.settle.delay_ms, o->reason, s->rig.now);
    case ENGINE_RELEASE:
        return model_release(q, m, s->rig.now);
    default:
        m->lease_until_ms = s->rig.now.mono_ms + o->op.settle.lease_ms;
        return m->state;
    }
}

/* An item with another receipt ends the message. Which of two items comes first nobody knows who
 * has no answer yet. */
static bool ends_later(const struct sim_op *o, uint32_t i)
{
    bool ends = false;
    for (uint32_t k = i + 1; k < o->op.settle.count; k++) {
        const struct settle_item *other = &o->settle[k];
        ends = ends || (other->id.seq == o->settle[i].id.seq && !other->status &&
                        other->state == MESSAGE_EXPIRED);
    }
    return ends;
}

static void judge_settle(struct sim *s, struct sim_op *o)
{
    sim_check(s, o->op.status == STATUS_OK, "settle: %s", status_name(o->op.status));
    for (uint32_t i = 0; i < o->op.settle.count; i++) {
        struct settle_item *item = &o->settle[i];
        struct model_message *m;
        enum status want = model_open(&o->q->model, item, s->rig.now, &m);
        if (s->shared && want == STATUS_RECEIPT_EXPIRED && ends_later(o, i))
            want = item->status == STATUS_MESSAGE_NOT_FOUND ? item->status : want;
        sim_check(s, item->status == want, "settle item %u (seq %" PRIu64 "): %s, expected %s", i,
                  item->id.seq, status_name(item->status), status_name(want));
        if (want != STATUS_OK)
            continue;
        enum message_state state = settle_model(s, o, m);
        sim_check(s, item->state == state, "settle item %u (seq %" PRIu64 ") is %s, expected %s", i,
                  item->id.seq, message_state_name(item->state), message_state_name(state));
        if (o->op.verb == ENGINE_EXTEND)
            sim_check(s, item->lease_until_ms == s->rig.now.wall_ms + o->op.settle.lease_ms,
                      "extend says the lease ends at %" PRId64, item->lease_until_ms);
    }
}

/* Without a receipt. */

static void make_cancel(struct sim *s, struct sim_op *o)
{
    o->op.verb = ENGINE_CANCEL;
    o->op.one.id = sim_any_id(s, o->q);
    sim_note(s, "%s cancel seq %" PRIu64, o->q->name, o->op.one.id.seq);
}

static void judge_cancel(struct sim *s, struct sim_op *o)
{
    enum status want = model_cancel(&o->q->model, &o->op.one.id);
    sim_check(s, o->op.status == want, "cancel: %s, expected %s", status_name(o->op.status),
              status_name(want));
}

static void make_get(struct sim *s, struct sim_op *o)
{
    o->op.verb = ENGINE_GET;
    o->op.one.id = sim_any_id(s, o->q);
    sim_note(s, "%s get seq %" PRIu64, o->q->name, o->op.one.id.seq);
}

static void judge_get(struct sim *s, struct sim_op *o)
{
    const struct model_message *m = model_find(&o->q->model, &o->op.one.id);
    enum status want = m ? STATUS_OK : STATUS_MESSAGE_NOT_FOUND;
    sim_check(s, o->op.status == want, "get: %s, expected %s", status_name(o->op.status),
              status_name(want));
    sim_check(s, o->seen_count == (m != NULL), "get showed %u", o->seen_count);
    if (m)
        sim_compare(s, &o->seen[0], m);
}

static void make_purge(struct sim *s, struct sim_op *o)
{
    o->op.verb = ENGINE_PURGE;
    o->op.bulk.max = 1 + sim_pick(s, s->live_max / 10);
    o->op.bulk.before_seq = o->q->model.next_seq - sim_pick(s, 20) * (o->q->model.next_seq > 20);
    o->before_seq = o->op.bulk.before_seq;
    o->op.bulk.slot = -1;
    sim_note(s, "%s purge %u before %" PRIu64, o->q->name, o->op.bulk.max, o->op.bulk.before_seq);
}

static bool purgeable(const struct model_message *m, const struct sim_op *o)
{
    return (m->state == MESSAGE_READY || m->state == MESSAGE_SCHEDULED) &&
           m->id.seq < o->before_seq;
}

/* Which ones a purge takes first is the engine's choice: the model asks what is left. */
static void judge_purge(struct sim *s, struct sim_op *o)
{
    static bool shown[MODEL_LIVE_MAX];
    struct model_queue *q = &o->q->model;
    uint32_t eligible = 0, gone = 0;
    for (uint32_t i = 0; i < q->count; i++)
        eligible += purgeable(&q->messages[i], o);
    uint32_t want = eligible < o->op.bulk.max ? eligible : o->op.bulk.max;
    sim_check(s, o->op.bulk.count == want, "purged %u, expected %u", o->op.bulk.count, want);
    sim_check(s, o->op.bulk.more || eligible <= want, "purge says there is no more");
    list_shown(s, o->q, 500, shown);
    for (uint32_t i = q->count; i-- > 0;) { /* from the end: a gap is filled with the last one */
        if (!shown[i] && purgeable(&q->messages[i], o)) {
            model_cancel(q, &q->messages[i].id);
            gone++;
        }
    }
    sim_check(s, gone == want, "purge took %u, and said %u", gone, want);
}

/* Dead letters. */

static void make_dead(struct sim *s, struct sim_op *o)
{
    o->op.verb = sim_chance(s, 60) ? ENGINE_DEAD_REDRIVE : ENGINE_DEAD_DROP;
    const struct queue_config *c = &o->q->model.config;
    o->op.bulk.slot = sim_chance(s, 70) ? -1 : c->levels[sim_pick(s, c->level_count)].slot;
    o->op.bulk.before_seq = UINT64_MAX;
    o->op.bulk.max = 1 + sim_pick(s, s->items_max);
    if (sim_chance(s, 40)) {
        o->op.bulk.ids = o->ids;
        o->op.bulk.id_count = 1 + sim_pick(s, s->items_max);
        o->op.bulk.max = o->op.bulk.id_count;
        for (uint32_t i = 0; i < o->op.bulk.id_count; i++) {
            const struct model_message *m = any_in(s, &o->q->model, MESSAGE_DEAD);
            o->ids[i] = m && sim_chance(s, 80) ? m->id : sim_any_id(s, o->q);
        }
    } else if (sim_chance(s, 30)) {
        o->op.bulk.before_seq = o->q->model.next_seq / 2;
    }
    sim_note(s, "%s %s %u ids, max %u, before %" PRIu64, o->q->name,
             o->op.verb == ENGINE_DEAD_REDRIVE ? "redrive" : "drop", o->op.bulk.id_count,
             o->op.bulk.max, o->op.bulk.before_seq);
}

static void end_dead(struct sim *s, struct sim_op *o, struct model_message *m)
{
    if (o->op.verb == ENGINE_DEAD_REDRIVE) {
        model_redrive(&o->q->model, m, o->op.bulk.slot, s->rig.now);
    } else {
        model_gone(&o->q->model, m);
        o->q->model.totals.cancelled++;
    }
}

static void judge_dead(struct sim *s, struct sim_op *o)
{
    struct model_queue *q = &o->q->model;
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->op.bulk.id_count; i++) {
        struct model_message *m = model_find(q, &o->ids[i]);
        if (m && m->state == MESSAGE_DEAD) {
            end_dead(s, o, m);
            count++;
        }
    }
    while (o->op.bulk.id_count == 0 && count < o->op.bulk.max) {
        struct model_message *m = model_next(q, MESSAGE_DEAD, 0);
        if (!m || m->id.seq >= o->op.bulk.before_seq)
            break;
        end_dead(s, o, m);
        count++;
    }
    sim_check(s, o->op.status == STATUS_OK, "dead letters: %s", status_name(o->op.status));
    sim_check(s, o->op.bulk.count == count, "dead letters: %u, expected %u", o->op.bulk.count,
              count);
}

static void make_dead_list(struct sim *s, struct sim_op *o)
{
    o->op.verb = ENGINE_DEAD_LIST;
    o->op.list.limit = 1 + sim_pick(s, 10);
    if (sim_chance(s, 50))
        o->op.list.after.seq = sim_pick(s, (uint32_t)o->q->model.next_seq + 1);
    sim_note(s, "%s dead list %u after %" PRIu64, o->q->name, o->op.list.limit,
             o->op.list.after.seq);
}

static void judge_dead_list(struct sim *s, struct sim_op *o)
{
    uint64_t from = o->op.list.after.seq + 1;
    const struct model_message *m = NULL;
    if (o->op.list.after.seq == 0)
        from = 0;
    for (uint32_t i = 0; i < o->seen_count; i++) {
        m = model_next(&o->q->model, MESSAGE_DEAD, from);
        sim_check(s, m, "dead list shows seq %" PRIu64 ", expected none", o->seen[i].id.seq);
        sim_compare(s, &o->seen[i], m);
        from = m->id.seq + 1;
    }
    bool more = model_next(&o->q->model, MESSAGE_DEAD, from) != NULL;
    sim_check(s, o->op.list.found == o->seen_count, "dead list: found");
    sim_check(s, o->seen_count == o->op.list.limit || !more, "dead list ends early");
    sim_check(s, !more || o->op.list.more, "dead list says there is no more");
}

static const struct sim_verb put = {30, make_put, judge_put};
static const struct sim_verb settle = {25, make_settle, judge_settle};
static const struct sim_verb cancel = {4, make_cancel, judge_cancel};
static const struct sim_verb get = {8, make_get, judge_get};
static const struct sim_verb dead = {3, make_dead, judge_dead};
static const struct sim_verb dead_list = {2, make_dead_list, judge_dead_list};

const struct sim_verb *const sim_verbs[] = {&put,    &sim_claim, &settle, &sim_move, &sim_count,
                                            &cancel, &get,       &dead,   &dead_list};
const uint32_t sim_verb_count = sizeof(sim_verbs) / sizeof(sim_verbs[0]);

/* A purge is judged by looking at what is left, and so stands alone. */
const struct sim_verb sim_purge = {1, make_purge, judge_purge};

void sim_list_all(struct sim *s, struct sim_queue *q)
{
    static bool shown[MODEL_LIVE_MAX];
    uint32_t limit = 1 + sim_pick(s, s->deep ? 500 : 50);
    sim_note(s, "%s list by %u", q->name, limit);
    list_shown(s, q, limit, shown);
    for (uint32_t i = 0; i < q->model.count; i++) {
        const struct model_message *m = &q->model.messages[i];
        sim_check(s, shown[i] || m->state == MESSAGE_DEAD || m->state == MESSAGE_DONE,
                  "list leaves out seq %" PRIu64 " (%s)", m->id.seq, message_state_name(m->state));
    }
}
