/* Ops into calls of the SQL functions. */
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Building */

static struct call *call_add(struct job *job, enum call_kind kind, struct pg_queue *q,
                             enum engine_verb verb, const char *sql)
{
    struct call *c = mem_zalloc(sizeof(*c));
    c->kind = kind;
    c->verb = verb;
    c->queue = q;
    c->sql = sql;
    *job->calls_end = c;
    job->calls_end = &c->next;
    return c;
}

static void call_join(struct call *c, struct engine_op *op)
{
    if (c->op_count == c->op_cap) {
        c->op_cap = c->op_cap ? c->op_cap * 2 : 4;
        c->ops = mem_realloc(c->ops, c->op_cap * sizeof(struct engine_op *));
    }
    c->ops[c->op_count++] = op;
}

static void put_now(const struct pg *pg, const struct job *job, struct params *p)
{
    if (pg->shared->invented_time)
        param_int(p, WIRE_INT8, job->now.wall_ms);
    else
        param_null(p, WIRE_INT8);
}

static void put_queue(struct params *p, const struct pg_queue *q)
{
    param_int(p, WIRE_INT4, q->face.id);
    param_int(p, WIRE_INT4, q->face.version);
}

/* An array of one thing of every item of every op. */
#define EACH_PUT(c, item)                                                                          \
    for (uint32_t o_ = 0; o_ < (c)->op_count; o_++)                                                \
        for (struct put_item *item = (c)->ops[o_]->put.items,                                      \
                             *end_ = item + (c)->ops[o_]->put.count;                               \
             item < end_; item++)                                                                  \
            if (item->status == STATUS_OK)

static void build_put(struct pg *pg, struct job *job, struct call *c)
{
    struct params *p = &c->params;
    const struct queue_config *config = &c->queue->face.config;
    bool keys = false;
    c->sql = "SELECT * FROM triage.engine_put($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)";
    put_queue(p, c->queue);
    param_array(p, WIRE_INT2_ARRAY);
    EACH_PUT(c, item)
    {
        int rank = levels_resolve(config, &item->draft.priority);
        element_int(p, WIRE_INT2, config->levels[rank].slot);
        keys = keys || item->draft.dedup_len > 0;
    }
    param_array_end(p);
    param_array(p, WIRE_BYTEA_ARRAY);
    EACH_PUT(c, item) element_bytes(p, item->draft.body, item->draft.payload_len);
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    EACH_PUT(c, item) element_int(p, WIRE_INT2, item->draft.kind);
    param_array_end(p);
    param_array(p, WIRE_TEXT_ARRAY);
    EACH_PUT(c, item)
    {
        const struct draft *d = &item->draft;
        if (d->metadata_len > 0)
            element_bytes(p, d->body + d->payload_len, d->metadata_len);
        else
            element_null(p);
    }
    param_array_end(p);
    if (keys)
        param_array(p, WIRE_BYTEA_ARRAY);
    EACH_PUT(c, item)
    {
        const struct draft *d = &item->draft;
        if (keys && d->dedup_len > 0)
            element_bytes(p, d->body + d->payload_len + d->metadata_len, d->dedup_len);
        else if (keys)
            element_null(p);
    }
    if (keys)
        param_array_end(p);
    else
        param_null(p, WIRE_BYTEA_ARRAY);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_PUT(c, item)
    {
        if (item->draft.ready_ms != READY_NOW)
            element_int(p, WIRE_INT8, item->draft.ready_ms);
        else
            element_null(p);
    }
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_PUT(c, item) element_int(p, WIRE_INT8, item->draft.delay_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_PUT(c, item)
    {
        if (item->draft.ttl_ms != TTL_DEFAULT)
            element_int(p, WIRE_INT8, item->draft.ttl_ms);
        else
            element_null(p);
    }
    param_array_end(p);
    put_now(pg, job, p);
}

/* The id of another queue's message is nobody's here; no message has the seq 0. */
static int64_t seq_of(const struct pg_queue *q, const struct message_id *id)
{
    return id->queue == q->face.id ? (int64_t)id->seq : 0;
}

/* Ids as three arrays: seq, slot, first ready time. */
static void put_ids(struct params *p, const struct pg_queue *q, const struct message_id *first,
                    size_t stride, uint32_t count)
{
    const char *at = (const char *)first;
#define EACH_ID(id)                                                                                \
    for (uint32_t i_ = 0; i_ < count; i_++)                                                        \
        for (const struct message_id *id = (const void *)(at + i_ * stride), *once_ = id; once_;   \
             once_ = NULL)
    param_array(p, WIRE_INT8_ARRAY);
    EACH_ID(id) element_int(p, WIRE_INT8, seq_of(q, id));
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    EACH_ID(id) element_int(p, WIRE_INT2, id->slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_ID(id) element_int(p, WIRE_INT8, id->ready_ms);
    param_array_end(p);
#undef EACH_ID
}

#define EACH_SETTLE(c, item)                                                                       \
    for (uint32_t o_ = 0; o_ < (c)->op_count; o_++)                                                \
        for (struct settle_item *item = (c)->ops[o_]->settle.items,                                \
                                *end_ = item + (c)->ops[o_]->settle.count;                         \
             item < end_; item++)

static void build_settle(struct pg *pg, struct job *job, struct call *c)
{
    struct params *p = &c->params;
    const struct engine_op *op = c->ops[0];
    put_queue(p, c->queue);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_SETTLE(c, item) element_int(p, WIRE_INT8, seq_of(c->queue, &item->id));
    param_array_end(p);
    param_array(p, WIRE_INT2_ARRAY);
    EACH_SETTLE(c, item) element_int(p, WIRE_INT2, item->id.slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_SETTLE(c, item) element_int(p, WIRE_INT8, item->id.ready_ms);
    param_array_end(p);
    param_array(p, WIRE_BYTEA_ARRAY);
    EACH_SETTLE(c, item) element_bytes(p, item->receipt, RECEIPT_BYTES);
    param_array_end(p);
    if (c->verb == ENGINE_ACK) {
        c->sql = "SELECT * FROM triage.engine_ack($1,$2,$3,$4,$5,$6,$7)";
    } else if (c->verb == ENGINE_EXTEND) {
        c->sql = "SELECT * FROM triage.engine_extend($1,$2,$3,$4,$5,$6,$7,$8)";
        param_int(p, WIRE_INT8, op->settle.lease_ms);
    } else {
        static const char unsaid[] = "nacked";
        bool said = op->settle.reason_len > 0;
        c->sql = "SELECT * FROM triage.engine_return($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)";
        param_bool(p, c->verb == ENGINE_RELEASE);
        if (op->settle.delay_ms < 0)
            param_null(p, WIRE_INT8);
        else
            param_int(p, WIRE_INT8, op->settle.delay_ms);
        param_bytes(p, WIRE_TEXT, said ? op->settle.reason : unsaid,
                    said ? op->settle.reason_len : sizeof(unsaid) - 1);
    }
    put_now(pg, job, p);
}

/* Claims of one call: first what each plan took tokens for, in order; then, for whoever got too
 * little, what all of them would take instead. */

#define MERGED_MAX (PLAN_STEPS_MAX * 4)

struct merged {
    struct plan_step steps[MERGED_MAX];
    const struct plan *plans[MERGED_MAX]; /* whose lanes a step names */
    uint32_t count;
    uint32_t want;
    const uint32_t *room; /* of a claim alone, by slot; or NULL */
};

static bool same_lanes(const struct plan *a, const struct plan_step *x, const struct plan *b,
                       const struct plan_step *y)
{
    if (x->rank != y->rank || x->lane_count != y->lane_count || x->tokens != y->tokens)
        return false;
    for (uint32_t i = 0; i < x->lane_count; i++) {
        const struct plan_lane *l = &a->lanes[x->first_lane + i], *m = &b->lanes[y->first_lane + i];
        if (l->slot != m->slot || l->until_ms != m->until_ms || l->bias_ms != m->bias_ms)
            return false;
    }
    return true;
}

static void merge_step(struct merged *all, uint32_t from, const struct plan *plan,
                       const struct plan_step *step, uint32_t max)
{
    for (uint32_t i = from; i < all->count; i++) {
        if (same_lanes(all->plans[i], &all->steps[i], plan, step)) {
            all->steps[i].max = (uint16_t)(all->steps[i].max + max);
            return;
        }
    }
    all->steps[all->count] = *step;
    all->steps[all->count].max = (uint16_t)max;
    all->plans[all->count++] = plan;
}

static void merge_claims(const struct call *c, struct merged *all)
{
    all->count = all->want = 0;
    all->room = c->op_count == 1 ? c->ops[0]->claim.plan->room : NULL;
    for (uint32_t o = 0; o < c->op_count; o++) {
        const struct plan *plan = c->ops[o]->claim.plan;
        all->want += plan->want;
        for (uint32_t i = 0; i < plan->step_count; i++) {
            const struct plan_step *step = &plan->steps[i];
            uint32_t from = all->count > 0 ? all->count - 1 : 0; /* only with the one before */
            if (step->tokens == TOKENS_TAKEN)
                merge_step(all, from, plan, step, step->max);
        }
    }
    uint32_t from = all->count;
    for (uint32_t o = 0; o < c->op_count; o++) {
        const struct plan *plan = c->ops[o]->claim.plan;
        for (uint32_t i = 0; i < plan->step_count; i++) {
            if (plan->steps[i].tokens != TOKENS_TAKEN)
                merge_step(all, from, plan, &plan->steps[i], plan->want);
        }
    }
}

/* One lane in each step, and all of it. */
static bool plain(const struct merged *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const struct plan_step *step = &all->steps[i];
        const struct plan_lane *lane = &all->plans[i]->lanes[step->first_lane];
        if (step->lane_count != 1 || lane->until_ms != INT64_MAX ||
            (all->room && all->room[lane->slot] < UINT32_MAX))
            return false;
    }
    return true;
}

static void put_slots(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < all->count; i++)
        element_int(p, WIRE_INT2, all->plans[i]->lanes[all->steps[i].first_lane].slot);
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t i = 0; i < all->count; i++)
        element_int(p, WIRE_INT4, all->steps[i].max);
    param_array_end(p);
}

/* The configuration's own limits are kept to by the database; a plan may have others. */
static void put_room(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT8_ARRAY);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        if (all->room && all->room[slot] < UINT32_MAX)
            element_int(p, WIRE_INT8, all->room[slot]);
        else
            element_null(p);
    }
    param_array_end(p);
}

static void put_lanes(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT4_ARRAY); /* how many, by step */
    for (uint32_t i = 0; i < all->count; i++)
        element_int(p, WIRE_INT4, all->steps[i].max);
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY); /* the lanes, each with its step */
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t k = 0; k < all->steps[i].lane_count; k++)
            element_int(p, WIRE_INT4, i + 1);
    param_array_end(p);
#define EACH_LANE(lane)                                                                            \
    for (uint32_t i = 0; i < all->count; i++)                                                      \
        for (const struct plan_lane *lane = &all->plans[i]->lanes[all->steps[i].first_lane],       \
                                    *stop = lane + all->steps[i].lane_count;                       \
             lane < stop; lane++)
    param_array(p, WIRE_INT2_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT2, lane->slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT8, lane->until_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT8, lane->bias_ms);
    param_array_end(p);
#undef EACH_LANE
    put_room(p, all);
}

static void build_claim(struct pg *pg, struct job *job, struct call *c)
{
    struct params *p = &c->params;
    struct merged all;
    int64_t lease_ms = c->ops[0]->claim.lease_ms;
    merge_claims(c, &all);
    put_queue(p, c->queue);
    if (plain(&all))
        put_slots(p, &all);
    else
        put_lanes(p, &all);
    c->sql = plain(&all) ? "SELECT * FROM triage.engine_claim($1,$2,$3,$4,$5,$6,$7,$8)"
                         : "SELECT * FROM "
                           "triage.engine_claim_lanes($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)";
    param_int(p, WIRE_INT4, all.want);
    if (lease_ms < 0)
        param_null(p, WIRE_INT8);
    else
        param_int(p, WIRE_INT8, lease_ms);
    uint8_t *receipts = mem_alloc((size_t)all.want * RECEIPT_BYTES);
    for (uint32_t i = 0; i < all.want; i++)
        random_bytes(receipts + (size_t)i * RECEIPT_BYTES, RECEIPT_BYTES);
    param_bytes(p, WIRE_BYTEA, receipts, (size_t)all.want * RECEIPT_BYTES);
    free(receipts);
    put_now(pg, job, p);
}

/* One op, one call. */

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

static void put_selection(struct params *p, const struct engine_op *op)
{
    if (op->bulk.id_count > 0) {
        put_ids(p, (const struct pg_queue *)op->queue, op->bulk.ids, sizeof(op->bulk.ids[0]),
                op->bulk.id_count);
    } else {
        param_null(p, WIRE_INT8_ARRAY);
        param_null(p, WIRE_INT2_ARRAY);
        param_null(p, WIRE_INT8_ARRAY);
    }
    param_int(p, WIRE_INT4, op->bulk.max);
    param_int(p, WIRE_INT8, (int64_t)op->bulk.cursor.seq);
    param_int(p, WIRE_INT8, seq_limit(op->bulk.before_seq));
}

static void build_move(struct call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct move_note *note = &op->move.note;
    c->sql = "SELECT * FROM triage.engine_move($1,$2,$3,$4,$5,$6,$7,$8,$9)";
    put_queue(p, c->queue);
    put_ids(p, c->queue, &op->move.items->id, sizeof(op->move.items[0]), op->move.count);
    param_int(p, WIRE_INT2, op->move.slot);
    param_bytes(p, WIRE_TEXT, note->actor, note->actor_len);
    param_bytes(p, WIRE_TEXT, note->reason, note->reason_len);
}

static void build_count(struct call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_count($1,$2,$3,$4)";
    param_int(p, WIRE_INT4, c->queue->face.id);
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

static void build_list(struct call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct list_cursor *after = &op->list.after;
    enum { PHASE_DEAD = 4 };
    bool dead = op->verb == ENGINE_DEAD_LIST;
    bool start = after->phase == 0 && after->seq == 0 && after->slot == 0 && after->ready_ms == 0;
    c->sql = "SELECT phase, (message).* FROM triage.engine_list($1,$2,$3,$4,$5,$6)";
    param_int(p, WIRE_INT4, c->queue->face.id);
    param_int(p, WIRE_INT4, dead ? PHASE_DEAD : after->phase);
    param_int(p, WIRE_INT2, start ? -1 : (int64_t)after->slot);
    param_int(p, WIRE_INT8, after->ready_ms);
    param_int(p, WIRE_INT8, (int64_t)after->seq);
    param_int(p, WIRE_INT4, op->list.limit + 1); /* one more tells whether there is more */
}

static void build_queue_set(struct call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    struct buf json = {0};
    c->sql =
        "SELECT id, created, status, level_name, config FROM triage.engine_queue_set($1,$2,$3)";
    if (op->queue)
        param_int(p, WIRE_INT4, op->queue->id);
    else
        param_null(p, WIRE_INT4);
    const char *name = op->queue ? op->queue->name : op->set.name;
    param_bytes(p, WIRE_TEXT, name, strlen(name));
    config_write(&json, op->set.config);
    param_jsonb(p, &json);
    buf_fini(&json);
}

static void build_other(struct pg *pg, struct job *job, struct call *c)
{
    struct params *p = &c->params;
    const struct engine_op *op = c->ops[0];
    switch (op->verb) {
    case ENGINE_QUEUE_OPEN:
        c->sql = "SELECT id, config FROM triage.engine_queue_open($1)";
        param_bytes(p, WIRE_TEXT, op->open.name, strlen(op->open.name));
        break;
    case ENGINE_QUEUE_SET:
        build_queue_set(c, op);
        break;
    case ENGINE_QUEUE_DELETE:
        c->sql = "SELECT triage.engine_queue_delete($1)";
        param_int(p, WIRE_INT4, op->queue->id);
        break;
    case ENGINE_CANCEL:
        c->sql = "SELECT triage.engine_cancel($1,$2,$3,$4,$5,$6)";
        put_queue(p, c->queue);
        put_id(p, c->queue, &op->one.id);
        put_now(pg, job, p);
        break;
    case ENGINE_GET:
        c->sql = "SELECT 0, * FROM triage.engine_get($1,$2,$3,$4)";
        param_int(p, WIRE_INT4, c->queue->face.id);
        put_id(p, c->queue, &op->one.id);
        break;
    case ENGINE_MOVE:
        build_move(c, op);
        put_now(pg, job, p);
        break;
    case ENGINE_COUNT:
        build_count(c, op);
        break;
    case ENGINE_PURGE:
        c->sql = "SELECT * FROM triage.engine_purge($1,$2,$3,$4,$5)";
        put_queue(p, c->queue);
        param_int(p, WIRE_INT4, op->bulk.max);
        if (op->bulk.before_seq == c->queue->face.next_seq)
            param_null(p, WIRE_INT8); /* all there are, which others may have added to */
        else
            param_int(p, WIRE_INT8, seq_limit(op->bulk.before_seq));
        put_now(pg, job, p);
        break;
    case ENGINE_LIST:
    case ENGINE_DEAD_LIST:
        build_list(c, op);
        break;
    case ENGINE_DEAD_REDRIVE:
        c->sql = "SELECT * FROM triage.engine_redrive($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)";
        put_queue(p, c->queue);
        put_selection(p, op);
        if (op->bulk.slot >= 0)
            param_int(p, WIRE_INT2, op->bulk.slot);
        else
            param_null(p, WIRE_INT2);
        put_now(pg, job, p);
        break;
    case ENGINE_DEAD_DROP:
        c->sql = "SELECT * FROM triage.engine_dead_drop($1,$2,$3,$4,$5,$6,$7,$8)";
        put_queue(p, c->queue);
        put_selection(p, op);
        break;
    case ENGINE_SWEEP:
        c->sql = "SELECT * FROM triage.engine_sweep($1,$2)";
        param_int(p, WIRE_INT4, op->sweep.max);
        put_now(pg, job, p);
        break;
    default:
        assert(!"one of the verbs that are gathered");
    }
}

/* Gathering. Everything between two ops that look at a queue or change it as a whole is a segment,
 * in which ops of a kind become one call. */

struct segment {
    struct call *first, **end; /* puts and settles */
    struct call *claims, **claims_end;
};

static bool fits(const struct call *c, const struct plan *plan)
{
    uint32_t steps = plan->step_count;
    for (uint32_t i = 0; i < c->op_count; i++)
        steps += c->ops[i]->claim.plan->step_count;
    return steps <= MERGED_MAX;
}

static bool joins(const struct call *c, const struct pg_queue *q, const struct engine_op *op)
{
    const struct engine_op *like = c->ops[0];
    if (c->queue != q || c->verb != op->verb)
        return false;
    switch (op->verb) {
    case ENGINE_PUT:
    case ENGINE_ACK:
        return true;
    case ENGINE_NACK:
    case ENGINE_RELEASE:
        return like->settle.delay_ms == op->settle.delay_ms &&
               like->settle.reason_len == op->settle.reason_len &&
               (op->settle.reason_len == 0 ||
                memcmp(like->settle.reason, op->settle.reason, op->settle.reason_len) == 0);
    case ENGINE_EXTEND:
        return like->settle.lease_ms == op->settle.lease_ms;
    case ENGINE_CLAIM:
        return like->claim.lease_ms == op->claim.lease_ms && fits(c, op->claim.plan);
    default:
        return false;
    }
}

static enum call_kind kind_of(enum engine_verb verb)
{
    static const enum call_kind kinds[ENGINE_VERB_COUNT] = {
        [ENGINE_PUT] = CALL_PUT,
        [ENGINE_ACK] = CALL_SETTLE,
        [ENGINE_NACK] = CALL_SETTLE,
        [ENGINE_RELEASE] = CALL_SETTLE,
        [ENGINE_EXTEND] = CALL_SETTLE,
        [ENGINE_CLAIM] = CALL_CLAIM,
        [ENGINE_QUEUE_OPEN] = CALL_OTHER,
        [ENGINE_QUEUE_SET] = CALL_OTHER,
        [ENGINE_QUEUE_DELETE] = CALL_OTHER,
        [ENGINE_CANCEL] = CALL_OTHER,
        [ENGINE_MOVE] = CALL_OTHER,
        [ENGINE_COUNT] = CALL_OTHER,
        [ENGINE_GET] = CALL_OTHER,
        [ENGINE_PURGE] = CALL_OTHER,
        [ENGINE_LIST] = CALL_OTHER,
        [ENGINE_DEAD_LIST] = CALL_OTHER,
        [ENGINE_DEAD_REDRIVE] = CALL_OTHER,
        [ENGINE_DEAD_DROP] = CALL_OTHER,
        [ENGINE_SWEEP] = CALL_OTHER,
    };
    return kinds[verb];
}

static void segment_end(struct job *job, struct segment *s)
{
    *s->end = s->claims;
    if (s->first) {
        *job->calls_end = s->first;
        job->calls_end = s->claims ? s->claims_end : s->end;
    }
    *s = (struct segment){0};
    s->end = &s->first;
    s->claims_end = &s->claims;
}

static void segment_add(struct segment *s, struct pg_queue *q, struct engine_op *op)
{
    bool claim = op->verb == ENGINE_CLAIM;
    for (struct call *c = claim ? s->claims : s->first; c; c = c->next) {
        if (joins(c, q, op)) {
            call_join(c, op);
            return;
        }
    }
    struct call ***end = claim ? &s->claims_end : &s->end;
    struct job tail = {.calls_end = *end};
    call_join(call_add(&tail, kind_of(op->verb), q, op->verb, NULL), op);
    *end = tail.calls_end;
}

/* Items that need no database to be refused. */
static void check_puts(struct pg_queue *q, struct engine_op *op)
{
    for (uint32_t i = 0; i < op->put.count; i++) {
        struct put_item *item = &op->put.items[i];
        bool known = levels_resolve(&q->face.config, &item->draft.priority) >= 0;
        item->status = known ? STATUS_OK : STATUS_UNKNOWN_PRIORITY;
        item->deduplicated = false;
    }
}

static bool only_reads(enum engine_verb verb)
{
    return verb == ENGINE_GET || verb == ENGINE_COUNT || verb == ENGINE_LIST ||
           verb == ENGINE_DEAD_LIST || verb == ENGINE_QUEUE_OPEN;
}

static void build(struct pg *pg, struct job *job, struct call *c)
{
    static void (*const builders[])(struct pg *, struct job *, struct call *) = {
        [CALL_PUT] = build_put,
        [CALL_SETTLE] = build_settle,
        [CALL_CLAIM] = build_claim,
        [CALL_OTHER] = build_other,
    };
    params_clear(&c->params);
    builders[c->kind](pg, job, c);
}

static void add_view(struct job *job, struct pg_queue *q)
{
    struct call *c = call_add(job, CALL_VIEW, q, 0, "SELECT * FROM triage.engine_view($1)");
    param_int(&c->params, WIRE_INT4, q->face.id);
}

/* Its queue is not there any more. */
static void refuse(struct engine_op *op)
{
    op->status = STATUS_QUEUE_NOT_FOUND;
    for (uint32_t i = 0; op->verb == ENGINE_PUT && i < op->put.count; i++)
        op->put.items[i].status = op->status;
    if (op->verb == ENGINE_CLAIM)
        op->claim.found = 0;
}

static void gather(struct job *job)
{
    struct segment s = {0};
    s.end = &s.first;
    s.claims_end = &s.claims;
    for (struct engine_op *op = job->first; op; op = op->next) {
        struct pg_queue *q = (struct pg_queue *)op->queue;
        if (q && q->face.gone) {
            refuse(op);
            continue;
        }
        job->writes = job->writes || !only_reads(op->verb);
        if (op->verb == ENGINE_PUT)
            check_puts(q, op);
        if (q) {
            q->touched = op->verb != ENGINE_QUEUE_DELETE;
            q->claimed = q->claimed || op->verb == ENGINE_CLAIM;
        }
        if (kind_of(op->verb) != CALL_OTHER) {
            segment_add(&s, q, op);
            continue;
        }
        segment_end(job, &s);
        call_join(call_add(job, CALL_OTHER, q, op->verb, NULL), op);
    }
    segment_end(job, &s);
}

void calls_queues(struct job *job)
{
    call_add(job, CALL_QUEUES, NULL, 0, "SELECT id, config FROM triage.engine_queues()");
}

void calls_views(struct pg *pg, struct job *job)
{
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        if (q->told && !q->face.gone)
            add_view(job, q);
    }
    pg->told = false;
}

#define WAIT_MS      4000
#define WAIT_MS_LEFT 2000 /* told again when less than this is left */

/* Others notify only for queues on which somebody waits: says where that is, or is about to be. */
static void add_waits(struct pg *pg, struct job *job, bool sweeps)
{
    struct call *c = NULL;
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        bool waits = q->claimed || (sweeps && q->face.waiting > 0);
        q->claimed = false;
        if (!waits || q->waits_until_ms - job->now.mono_ms > WAIT_MS_LEFT)
            continue;
        q->waits_until_ms = job->now.mono_ms + WAIT_MS;
        if (!c) {
            c = call_add(job, CALL_WAIT, NULL, 0, "SELECT triage.engine_wait($1,$2,$3)");
            param_bytes(&c->params, WIRE_UUID, pg->shared->node, sizeof(pg->shared->node));
            param_array(&c->params, WIRE_INT4_ARRAY);
        }
        element_int(&c->params, WIRE_INT4, q->face.id);
    }
    if (!c)
        return;
    param_array_end(&c->params);
    param_int(&c->params, WIRE_INT8, WAIT_MS);
    job->writes = true;
}

void calls_build(struct pg *pg, struct job *job)
{
    assert(!job->calls);
    job->calls_end = &job->calls;
    job->writes = false;
    random_bytes(job->token, sizeof(job->token));
    gather(job);
    bool sweeps = false;
    for (struct call *c = job->calls; c; c = c->next) {
        build(pg, job, c);
        sweeps = sweeps || c->verb == ENGINE_SWEEP;
    }
    if (!pg->shared->invented_time)
        add_waits(pg, job, sweeps);
    if (sweeps && pg->all_told)
        calls_queues(job);
    if (sweeps) {
        struct call *c = call_add(job, CALL_DUE, NULL, 0, "SELECT triage.engine_due($1)");
        put_now(pg, job, &c->params);
        pg->all_told = pg->told = false;
    }
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        bool told = sweeps && (q->told || q->face.waiting > 0) && !q->face.gone;
        if (q->touched || told)
            add_view(job, q);
        q->touched = false;
        if (sweeps)
            q->told = q->told || told;
    }
}

void calls_free(struct job *job)
{
    while (job->calls) {
        struct call *c = job->calls;
        job->calls = c->next;
        params_fini(&c->params);
        PQclear(c->result);
        free(c->ops);
        free(c);
    }
    job->calls_end = &job->calls;
}
