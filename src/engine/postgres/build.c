/* The parameters of a call, from the ops that share it. */
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void param_now(const struct pg *pg, const struct pg_job *job, struct params *p)
{
    if (pg->shared->invented_time)
        param_int(p, WIRE_INT8, job->now.wall_ms);
    else
        param_null(p, WIRE_INT8);
}

void param_queue(struct params *p, const struct pg_queue *q)
{
    param_int(p, WIRE_INT4, q->face.id);
    param_int(p, WIRE_INT4, q->face.version);
}

/* The queues that the ops of a shared call are of, each of them once, and their versions. */
static void param_queues(struct params *p, const struct pg_call *c)
{
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t o = 0; o < c->op_count; o++) {
        struct pg_queue *q = pg_queue_of(c->ops[o]->queue);
        if (!q->named)
            element_int(p, WIRE_INT4, q->face.id);
        q->named = true;
    }
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t o = 0; o < c->op_count; o++) {
        struct pg_queue *q = pg_queue_of(c->ops[o]->queue);
        if (q->named)
            element_int(p, WIRE_INT4, q->face.version);
        q->named = false;
    }
    param_array_end(p);
}

static void element_slot(struct params *p, const struct queue_config *config, const struct draft *d)
{
    element_int(p, WIRE_INT2, config->levels[levels_resolve(config, &d->priority)].slot);
}

static void params_slots(struct params *p, const struct queue_config *config,
                         const struct draft *const *drafts, uint32_t count)
{
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_slot(p, config, drafts[i]);
    param_array_end(p);
}

static void params_keys(struct params *p, const struct draft *const *drafts, uint32_t count)
{
    param_array(p, WIRE_BYTEA_ARRAY);
    for (uint32_t i = 0; i < count; i++) {
        const struct draft *d = drafts[i];
        element_bytes_or_null(p, d->body + d->payload_len + d->metadata_len, d->dedup_len);
    }
    param_array_end(p);
}

/* Arrays of their payloads, kinds and metadata. */
static void params_bodies(struct params *p, const struct draft *const *drafts, uint32_t count)
{
    param_array(p, WIRE_BYTEA_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_bytes(p, drafts[i]->body, drafts[i]->payload_len);
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_int(p, WIRE_INT2, drafts[i]->kind);
    param_array_end(p);
    param_array(p, WIRE_TEXT_ARRAY);
    for (uint32_t i = 0; i < count; i++) {
        const struct draft *d = drafts[i];
        element_bytes_or_null(p, d->body + d->payload_len, d->metadata_len);
    }
    param_array_end(p);
}

void params_drafts(struct params *p, const struct queue_config *config,
                   const struct draft *const *drafts, uint32_t count)
{
    params_slots(p, config, drafts, count);
    params_bodies(p, drafts, count);
    params_keys(p, drafts, count);
}

/* The drafts of the items that are to be stored, and the queue and the epoch that each is for. */
struct drafts {
    const struct draft **each;
    const struct pg_queue **to;
    uint64_t *epochs;
    uint32_t count;
};

static void drafts_init(struct drafts *drafts, const struct pg_call *c)
{
    uint32_t most = 0, count = 0;
    for (uint32_t o = 0; o < c->op_count; o++)
        most += c->ops[o]->put.count;
    drafts->each = mem_alloc(most * sizeof(*drafts->each));
    drafts->to = mem_alloc(most * sizeof(*drafts->to));
    drafts->epochs = mem_alloc(most * sizeof(*drafts->epochs));
    for (uint32_t o = 0; o < c->op_count; o++) {
        for (uint32_t i = 0; i < c->ops[o]->put.count; i++) {
            if (c->ops[o]->put.items[i].status != STATUS_OK)
                continue;
            drafts->each[count] = &c->ops[o]->put.items[i].draft;
            drafts->to[count] = pg_queue_of(c->ops[o]->queue);
            drafts->epochs[count++] = c->ops[o]->put.epoch;
        }
    }
    drafts->count = count;
}

static void drafts_fini(struct drafts *drafts)
{
    free(drafts->each);
    free(drafts->to);
    free(drafts->epochs);
}

/* Arrays of when they are ready: at a time, or after a delay. */
static void params_times(struct params *p, const struct drafts *drafts)
{
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_int_unless(p, WIRE_INT8, READY_NOW, drafts->each[i]->ready_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_int_unless(p, WIRE_INT8, 0, drafts->each[i]->delay_ms);
    param_array_end(p);
}

static void build_known(struct pg_call *c, const struct drafts *drafts)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_known($1,$2,$3,$4,$5,$6)";
    param_queue(p, c->queue);
    params_slots(p, &c->queue->face.config, drafts->each, drafts->count);
    params_keys(p, drafts->each, drafts->count);
}

static void build_put(struct pg_call *c, const struct drafts *drafts)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_put_at($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)";
    param_queue(p, c->queue);
    params_drafts(p, &c->queue->face.config, drafts->each, drafts->count);
    params_times(p, drafts);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_int_unless(p, WIRE_INT8, TTL_DEFAULT, drafts->each[i]->ttl_ms);
    param_array_end(p);
}

/* The database does not look up the queues' own times to live: they are filled in here. */
static void build_put_many(struct pg_call *c, const struct drafts *drafts)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_put_many($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)";
    param_queues(p, c);
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_int(p, WIRE_INT4, drafts->to[i]->face.id);
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_slot(p, &drafts->to[i]->face.config, drafts->each[i]);
    param_array_end(p);
    params_bodies(p, drafts->each, drafts->count);
    params_times(p, drafts);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++) {
        int64_t ttl_ms = drafts->each[i]->ttl_ms;
        element_int_unless(p, WIRE_INT8, 0,
                           ttl_ms == TTL_DEFAULT ? drafts->to[i]->face.config.ttl_ms : ttl_ms);
    }
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < drafts->count; i++)
        element_int_unless(p, WIRE_INT8, 0, (int64_t)drafts->epochs[i]);
    param_array_end(p);
}

static void build_puts(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct drafts drafts;
    drafts_init(&drafts, c);
    if (!c->queue)
        build_put_many(c, &drafts);
    else if (engine_only_known(c->ops[0]))
        build_known(c, &drafts);
    else
        build_put(c, &drafts);
    param_now(pg, job, &c->params);
    if (c->queue)
        param_int(&c->params, WIRE_INT8, (int64_t)c->ops[0]->put.epoch);
    drafts_fini(&drafts);
}

/* The number of a message; 0, which no message has, for the id of another queue's message. */
static int64_t seq_of(const struct pg_queue *q, const struct message_id *id)
{
    return id->queue == q->face.id ? (int64_t)id->seq : 0;
}

/* A message, and the queue in which it is looked for. */
struct sought {
    const struct message_id *id;
    const struct pg_queue *in;
};

/* Ids as three arrays: seq, slot, first ready time. */
static void put_ids(struct params *p, const struct sought *ids, uint32_t count)
{
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_int(p, WIRE_INT8, seq_of(ids[i].in, ids[i].id));
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_int(p, WIRE_INT2, ids[i].id->slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_int(p, WIRE_INT8, ids[i].id->ready_ms);
    param_array_end(p);
}

/* The queues of a shared call, and which of them each message is looked for in. */
static void put_from(struct params *p, const struct pg_call *c, const struct sought *ids,
                     uint32_t count)
{
    param_queues(p, c);
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_int(p, WIRE_INT4, ids[i].in->face.id);
    param_array_end(p);
}

/* The queues, ids and receipts of all items of all ops. */
static void put_receipts(struct params *p, const struct pg_call *c)
{
    uint32_t count = 0, n = 0;
    for (uint32_t o = 0; o < c->op_count; o++)
        count += c->ops[o]->settle.count;
    const struct settle_item **items = mem_alloc(count * sizeof(struct settle_item *));
    struct sought *ids = mem_alloc(count * sizeof(*ids));
    for (uint32_t o = 0; o < c->op_count; o++) {
        for (uint32_t i = 0; i < c->ops[o]->settle.count; i++, n++) {
            items[n] = &c->ops[o]->settle.items[i];
            ids[n] = (struct sought){&items[n]->id, pg_queue_of(c->ops[o]->queue)};
        }
    }
    if (c->queue)
        param_queue(p, c->queue);
    else
        put_from(p, c, ids, count);
    put_ids(p, ids, count);
    param_array(p, WIRE_BYTEA_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        element_bytes(p, items[i]->receipt, RECEIPT_BYTES);
    param_array_end(p);
    free(items);
    free(ids);
}

static void build_settle(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct params *p = &c->params;
    const struct engine_op *op = c->ops[0];
    put_receipts(p, c);
    if (c->verb == ENGINE_ACK) {
        c->sql = "SELECT * FROM triage.engine_ack_many($1,$2,$3,$4,$5,$6,$7,$8)";
    } else if (c->verb == ENGINE_EXTEND) {
        c->sql = "SELECT * FROM triage.engine_extend($1,$2,$3,$4,$5,$6,$7,$8)";
        param_int(p, WIRE_INT8, op->settle.lease_ms);
    } else {
        static const char unsaid[] = "nacked";
        bool said = op->settle.reason_len > 0;
        c->sql = "SELECT * FROM triage.engine_return($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)";
        param_bool(p, c->verb == ENGINE_RELEASE);
        if (op->settle.delay_ms == -1)
            param_null(p, WIRE_INT8);
        else
            param_int(p, WIRE_INT8, op->settle.delay_ms);
        param_text(p, said ? op->settle.reason : unsaid,
                   said ? op->settle.reason_len : sizeof(unsaid) - 1);
    }
    param_now(pg, job, p);
}

static void build_claim(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct params *p = &c->params;
    int64_t lease_ms = c->ops[0]->claim.lease_ms;
    param_queue(p, c->queue);
    uint32_t want = claims_put(job, c);
    param_int(p, WIRE_INT4, want);
    if (lease_ms < 0)
        param_null(p, WIRE_INT8);
    else
        param_int(p, WIRE_INT8, lease_ms);
    size_t len = (size_t)want * RECEIPT_BYTES;
    uint8_t *receipts = mem_alloc(len);
    for (size_t at = 0; at < len; at += RECEIPT_BYTES) {
        random_bytes(receipts + at, RECEIPT_BYTES);
        receipt_stamp(receipts + at, job->now.wall_ms + pg->base.ahead_us / 1000);
    }
    param_bytes(p, WIRE_BYTEA, receipts, len);
    free(receipts);
    param_now(pg, job, p);
}

/* Verbs whose ops are not shared: one call for each op. */

static void put_id(struct params *p, const struct pg_queue *q, const struct message_id *id)
{
    param_int(p, WIRE_INT8, seq_of(q, id));
    param_int(p, WIRE_INT2, id->slot);
    param_int(p, WIRE_INT8, id->ready_ms);
}

static int64_t seq_limit(uint64_t seq)
{
    return seq > INT64_MAX ? INT64_MAX : (int64_t)seq;
}

static void put_bulk_ids(struct params *p, const struct engine_op *op)
{
    const struct pg_queue *q = pg_queue_of(op->queue);
    struct sought *ids = mem_alloc(op->bulk.id_count * sizeof(*ids));
    for (uint32_t i = 0; i < op->bulk.id_count; i++)
        ids[i] = (struct sought){&op->bulk.ids[i], q};
    put_ids(p, ids, op->bulk.id_count);
    free(ids);
}

static void put_selection(struct params *p, const struct engine_op *op)
{
    if (op->bulk.id_count > 0) {
        put_bulk_ids(p, op);
    } else {
        param_null(p, WIRE_INT8_ARRAY);
        param_null(p, WIRE_INT2_ARRAY);
        param_null(p, WIRE_INT8_ARRAY);
    }
    param_int(p, WIRE_INT4, op->bulk.max);
    param_int(p, WIRE_INT8, (int64_t)op->bulk.cursor.seq);
    param_int(p, WIRE_INT8, seq_limit(op->bulk.before_seq));
}

static void build_escalate(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct escalate_note *note = &op->escalate.note;
    c->sql = "SELECT * FROM triage.engine_move($1,$2,$3,$4,$5,$6,$7,$8,$9)";
    param_queue(p, c->queue);
    struct sought *ids = mem_alloc(op->escalate.count * sizeof(*ids));
    for (uint32_t i = 0; i < op->escalate.count; i++)
        ids[i] = (struct sought){&op->escalate.items[i].id, c->queue};
    put_ids(p, ids, op->escalate.count);
    free(ids);
    param_int(p, WIRE_INT2, op->escalate.slot);
    param_text(p, note->actor, note->actor_len);
    param_text(p, note->reason, note->reason_len);
}

static void put_leaving(struct params *p, const struct pg_call *c, const struct engine_op *op)
{
    const struct leave_item *items = op->leave.items;
    struct sought *ids = mem_alloc(op->leave.count * sizeof(*ids));
    for (uint32_t i = 0; i < op->leave.count; i++)
        ids[i] = (struct sought){&items[i].id, c->queue};
    put_ids(p, ids, op->leave.count);
    free(ids);
    if (op->verb == ENGINE_LEAVE) {
        param_array(p, WIRE_BYTEA_ARRAY);
        for (uint32_t i = 0; i < op->leave.count; i++)
            element_bytes(p, items[i].from, RECEIPT_BYTES);
        param_array_end(p);
    }
    param_array(p, WIRE_BYTEA_ARRAY);
    for (uint32_t i = 0; i < op->leave.count; i++)
        element_bytes(p, items[i].receipt, RECEIPT_BYTES);
    param_array_end(p);
}

#define LEAVE_COLUMNS "SELECT place, status, (message).* FROM "

static void build_leave(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    if (op->leave.count == 0) {
        c->sql = LEAVE_COLUMNS "triage.engine_leaving($1,$2)";
        param_int(p, WIRE_INT4, op->queue->id);
        param_int(p, WIRE_INT4, op->leave.limit);
        return;
    }
    c->sql = LEAVE_COLUMNS "triage.engine_leave($1,$2,$3,$4,$5,$6,$7,$8)";
    param_queue(p, c->queue);
    put_leaving(p, c, op);
    param_int(p, WIRE_INT8, seq_limit(op->leave.epoch));
}

static void build_left(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT place, status FROM triage.engine_left($1,$2,$3,$4,$5,$6)";
    param_queue(&c->params, c->queue);
    put_leaving(&c->params, c, op);
}

/* For calls that only read: before anything else the database checks once that the queue is still
 * as this process knows it. */
#define IF_CURRENT " WHERE (triage.queue_at($1,$2)).id IS NOT NULL"

static void build_heads(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_heads($1,$3,$4)" IF_CURRENT;
    param_queue(p, c->queue);
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < op->heads.count; i++)
        element_int(p, WIRE_INT2, op->heads.items[i].slot);
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t i = 0; i < op->heads.count; i++)
        element_int(p, WIRE_INT4, op->heads.items[i].max);
    param_array_end(p);
}

static void build_count(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_count($1,$3,$4,$5)" IF_CURRENT;
    param_queue(p, c->queue);
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < op->count.count; i++)
        element_int(p, WIRE_INT2, op->count.items[i].slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < op->count.count; i++)
        element_int(p, WIRE_INT8, op->count.items[i].ready_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    for (uint32_t i = 0; i < op->count.count; i++) {
        element_int(p, WIRE_INT8, seq_limit(op->count.items[i].seq));
    }
    param_array_end(p);
}

enum { PHASE_DEAD = 4 }; /* the last phase of engine_browse() */

/* The phases that the op asks for, as bits. */
static int phases_of(const struct engine_op *op)
{
    static const enum message_state states[] = {MESSAGE_READY, MESSAGE_SCHEDULED, MESSAGE_LEASED,
                                                MESSAGE_DONE, MESSAGE_DEAD};
    int phases = 0;
    for (int phase = 0; phase <= PHASE_DEAD; phase++)
        phases |= engine_lists(op, states[phase]) << phase;
    return op->verb == ENGINE_DEAD_LIST ? 1 << PHASE_DEAD : phases;
}

bool cursor_valid(const struct engine_op *op)
{
    const struct list_cursor *c = &op->list.after;
    return c->phase <= PHASE_DEAD && c->slot < LEVEL_COUNT_MAX && c->ready_ms >= -TIME_MS_MAX - 1 &&
           c->ready_ms <= TIME_MS_MAX && c->seq < 1ULL << 48;
}

static void put_slots(struct params *p, const struct engine_op *op)
{
    if (op->list.slot_count == 0) {
        param_null(p, WIRE_INT2_ARRAY);
        return;
    }
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < op->list.slot_count; i++)
        element_int(p, WIRE_INT2, op->list.slots[i]);
    param_array_end(p);
}

static void build_list(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct list_cursor *after = &op->list.after;
    bool dead = op->verb == ENGINE_DEAD_LIST;
    bool start = after->phase == 0 && after->seq == 0 && after->slot == 0 && after->ready_ms == 0;
    c->sql = "SELECT phase, (message).* FROM "
             "triage.engine_browse($1,$3,$4,$5,$6,$7,$8,$9,$10)" IF_CURRENT;
    param_queue(p, c->queue);
    param_int(p, WIRE_INT4, dead ? PHASE_DEAD : after->phase);
    param_int(p, WIRE_INT2, start ? -1 : (int64_t)after->slot);
    param_int(p, WIRE_INT8, after->ready_ms);
    param_int(p, WIRE_INT8, (int64_t)after->seq);
    param_int(p, WIRE_INT4, op->list.limit + 1); /* one more shows whether there are more */
    put_slots(p, op);
    param_int(p, WIRE_INT4, phases_of(op));
    param_bool(p, op->list.bare);
}

static void build_queue_set(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    struct buf json = {0};
    const char *name = op->queue ? op->queue->name : op->set.name;
#define COLUMNS "SELECT id, created, status, level_name, config"
#define KEPT_BY                                                                                    \
    ", CASE WHEN status = 'level-in-use' THEN triage.schedule_of_level($1, level_name) END"
    bool makes = !op->queue && op->set.celled;
    c->sql = makes         ? COLUMNS " FROM triage.engine_queue_make($1,$2,$3)"
             : !op->queue  ? COLUMNS " FROM triage.engine_queue_set(NULL,$1,$2)"
             : op->set.dry ? COLUMNS KEPT_BY " FROM triage.engine_queue_try($1,$2,$3)"
                           : COLUMNS KEPT_BY " FROM triage.engine_queue_change($1,$2,$3,$4)";
#undef KEPT_BY
#undef COLUMNS
    if (op->queue)
        param_queue(p, c->queue);
    if (!op->set.dry)
        param_bytes(p, WIRE_TEXT, name, strlen(name));
    config_write(&json, op->set.config);
    param_jsonb(p, &json);
    buf_fini(&json);
    if (makes)
        param_int(p, WIRE_INT4, op->set.cell);
}

static void build_queue_open(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT id, config FROM triage.engine_queue_open($1)";
    param_bytes(&c->params, WIRE_TEXT, op->open.name, strlen(op->open.name));
}

static void build_queue_delete(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT triage.engine_queue_delete($1,$2)";
    param_int(&c->params, WIRE_INT4, op->queue->id);
    param_bool(&c->params, op->remove.if_empty);
}

static void build_queue_place(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_queue_place($1,$2,$3,$4)";
    param_int(p, WIRE_INT4, op->queue->id);
    param_int(p, WIRE_INT8, (int64_t)op->place.epoch);
    param_bool(p, op->place.closed);
    param_text(p, op->place.map, op->place.map_len);
}

static void build_queue_share(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct queue_share *next = op->share.next;
    c->sql = "SELECT * FROM triage.engine_queue_share($1,$2,$3,$4,$5)";
    param_queue(p, c->queue);
    if (!next) {
        param_null(p, WIRE_INT8);
        param_null(p, WIRE_INT8_ARRAY);
        param_null(p, WIRE_TEXT);
        return;
    }
    param_int(p, WIRE_INT8, (int64_t)next->epoch);
    param_array(p, WIRE_INT8_ARRAY);
    for (int i = 0; i < SHARE_COUNT; i++)
        element_int(p, WIRE_INT8, (int64_t)next->most[i]);
    param_array_end(p);
    param_text(p, next->note, next->note_len);
}

static void build_cancel(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT triage.engine_cancel($1,$2,$3,$4,$5,$6)";
    param_queue(&c->params, c->queue);
    put_id(&c->params, c->queue, &op->one.id);
}

static void build_get(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT 0, * FROM triage.engine_get($1,$3,$4,$5)" IF_CURRENT;
    param_queue(&c->params, c->queue);
    put_id(&c->params, c->queue, &op->one.id);
}

static void build_purge(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    if (op->bulk.id_count > 0) {
        c->sql = "SELECT triage.engine_cancel_some($1,$2,$3,$4,$5,$6)";
        param_queue(p, c->queue);
        put_bulk_ids(p, op);
        return;
    }
    c->sql = "SELECT * FROM triage.engine_purge($1,$2,$3,$4,$5)";
    param_queue(p, c->queue);
    param_int(p, WIRE_INT4, op->bulk.max);
    if (op->bulk.before_seq == c->queue->face.next_seq)
        param_null(p, WIRE_INT8); /* all there are, also those that others have added */
    else
        param_int(p, WIRE_INT8, seq_limit(op->bulk.before_seq));
}

static void build_promote(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT triage.engine_promote($1,$2,$3,$4,$5,$6)";
    param_queue(&c->params, c->queue);
    put_bulk_ids(&c->params, op);
}

static void build_redrive(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_redrive($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)";
    param_queue(p, c->queue);
    put_selection(p, op);
    if (op->bulk.slot >= 0)
        param_int(p, WIRE_INT2, op->bulk.slot);
    else
        param_null(p, WIRE_INT2);
}

static void build_dead_drop(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT * FROM triage.engine_dead_drop($1,$2,$3,$4,$5,$6,$7,$8)";
    param_queue(&c->params, c->queue);
    put_selection(&c->params, op);
}

static void build_sweep(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT * FROM triage.engine_sweep($1,$2)";
    param_int(&c->params, WIRE_INT4, op->sweep.max);
}

/* Verbs whose ops have a call each. */
static const struct {
    void (*build)(struct pg_call *c, const struct engine_op *op);
    bool timed; /* whether the last parameter is the time */
} builders[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_OPEN] = {build_queue_open, false},
    [ENGINE_QUEUE_SET] = {build_queue_set, false},
    [ENGINE_QUEUE_DELETE] = {build_queue_delete, false},
    [ENGINE_QUEUE_PLACE] = {build_queue_place, false},
    [ENGINE_QUEUE_SHARE] = {build_queue_share, false},
    [ENGINE_IMPORT] = {imports_put, true},
    [ENGINE_CANCEL] = {build_cancel, true},
    [ENGINE_ESCALATE] = {build_escalate, true},
    [ENGINE_PROMOTE] = {build_promote, true},
    [ENGINE_LEAVE] = {build_leave, false},
    [ENGINE_LEFT] = {build_left, false},
    [ENGINE_COUNT] = {build_count, false},
    [ENGINE_HEADS] = {build_heads, false},
    [ENGINE_GET] = {build_get, false},
    [ENGINE_PURGE] = {build_purge, true},
    [ENGINE_LIST] = {build_list, false},
    [ENGINE_DEAD_LIST] = {build_list, false},
    [ENGINE_DEAD_REDRIVE] = {build_redrive, true},
    [ENGINE_DEAD_DROP] = {build_dead_drop, false},
    [ENGINE_SWEEP] = {build_sweep, true},
    [ENGINE_SCHEDULE_SET] = {pg_schedules_put, true},
    [ENGINE_SCHEDULE_DELETE] = {pg_schedules_delete, false},
    [ENGINE_SCHEDULE_LIST] = {pg_schedules_list, false},
    [ENGINE_FIRE] = {pg_schedules_fire, true},
};

static void build_other(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    const struct engine_op *op = c->ops[0];
    assert(builders[op->verb].build);
    builders[op->verb].build(c, op);
    if (builders[op->verb].timed)
        param_now(pg, job, &c->params);
    if (op->verb == ENGINE_IMPORT && op->import.anyway)
        param_null(&c->params, WIRE_INT8);
    else if (op->verb == ENGINE_IMPORT)
        param_int(&c->params, WIRE_INT8, (int64_t)op->import.epoch);
}

void call_build(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    static void (*const builders[])(struct pg *, struct pg_job *, struct pg_call *) = {
        [CALL_PUT] = build_puts,
        [CALL_SETTLE] = build_settle,
        [CALL_CLAIM] = build_claim,
        [CALL_OTHER] = build_other,
    };
    assert(c->kind <= CALL_OTHER);
    assert(c->op_count > 0);
    params_clear(&c->params);
    builders[c->kind](pg, job, c);
}
