/* The answers of the SQL functions, back into the ops that asked. */
#include "base/log.h"
#include "base/mem.h"
#include "base/plant.h"
#include "engine/postgres/impl.h"
#include "engine/postgres/rows.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status status_of(const PGresult *r, int row, int column)
{
    static const enum status known[] = {
        STATUS_MESSAGE_NOT_FOUND,
        STATUS_RECEIPT_EXPIRED,
        STATUS_NOT_PENDING,
        STATUS_QUEUE_FULL,
        STATUS_PAYLOAD_TOO_LARGE,
        STATUS_QUEUE_NOT_FOUND,
        STATUS_LEVEL_IN_USE,
        STATUS_UNKNOWN_PRIORITY,
        STATUS_QUEUE_NOT_EMPTY,
        STATUS_SCHEDULE_NOT_FOUND,
        STATUS_QUOTA_EXCEEDED,
        STATUS_INVALID_FIELD,
        STATUS_MOVED,
    };
    if (cell_null(r, row, column))
        return STATUS_OK;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (cell_is(r, row, column, status_name(known[i])))
            return known[i];
    }
    return STATUS_ENGINE_UNAVAILABLE;
}

/* Places */

static struct queue_place *read_place(const PGresult *r)
{
    size_t len;
    int64_t epoch = cell_int(r, 0, PQfnumber(r, "place_epoch"));
    bool closed = cell_int(r, 0, PQfnumber(r, "place_closed")) != 0;
    const char *map = cell_bytes(r, 0, PQfnumber(r, "place_map"), &len);
    bool there = epoch > 0 && len <= PLACE_MAP_MAX;
    return there ? queue_place_new((uint64_t)epoch, closed, map, (uint32_t)len) : NULL;
}

static void answer_queue_place(struct engine_op *op, struct pg_call *c)
{
    op->status = status_of(c->result, 0, PQfnumber(c->result, "status"));
    op->place.stale = cell_int(c->result, 0, PQfnumber(c->result, "stale")) != 0;
    pg_queue_place(c->queue, read_place(c->result));
}

/* Shares */

/* Numbers with a blank between them; false: there are not as many. */
static bool read_numbers(const PGresult *r, const char *column, uint64_t numbers[SHARE_COUNT])
{
    size_t len;
    const char *at = cell_bytes(r, 0, PQfnumber(r, column), &len), *end = at + len;
    for (int i = 0; i < SHARE_COUNT; i++) {
        numbers[i] = 0;
        if (at == end || !isdigit((unsigned char)*at))
            return false;
        for (; at < end && isdigit((unsigned char)*at); at++) {
            if (numbers[i] > SHARE_WHOLE / 10)
                return false;
            numbers[i] = numbers[i] * 10 + (uint64_t)(*at - '0');
            if (numbers[i] > SHARE_WHOLE)
                return false;
        }
        at += at < end;
    }
    return true;
}

static struct queue_share *read_share(const PGresult *r)
{
    size_t len;
    const char *note = cell_bytes(r, 0, PQfnumber(r, "note"), &len);
    struct queue_share head = {.epoch = (uint64_t)cell_int(r, 0, PQfnumber(r, "epoch"))};
    if (head.epoch == 0 || len > PLACE_MAP_MAX || !read_numbers(r, "most", head.most))
        return NULL;
    head.note_len = (uint32_t)len;
    struct queue_share *share = mem_alloc(sizeof(*share) + len);
    memcpy(share, &head, sizeof(head));
    memcpy(share->note, note, len);
    return share;
}

static void answer_queue_share(struct engine_op *op, struct pg_call *c)
{
    const PGresult *r = c->result;
    op->share.stale = cell_int(r, 0, PQfnumber(r, "stale")) != 0;
    if (!read_numbers(r, "used", op->share.used)) {
        log_error("postgres: what a queue holds cannot be read", "queue=%s", c->queue->face.name);
        pg_fail(op, STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    op->share.now = read_share(r);
}

/* Whether the place of its queue has refused the op, whose first row is this one. Which place that
 * was is read before the op is reported. In a call of one queue the first row is for all ops: an op
 * that has nothing to store has no row. */
static bool answer_moved(struct pg_job *job, struct engine_op *op, const struct pg_call *c, int row)
{
    int at = c->queue ? 0 : row;
    bool moved = at < PQntuples(c->result) &&
                 cell_is(c->result, at, PQfnumber(c->result, "status"), status_name(STATUS_MOVED));
    if (moved)
        pg_fail(op, STATUS_MOVED);
    job->moved = job->moved || moved;
    return moved;
}

/* Verbs */

/* Makes the next sweep come in time: the end of this message's delay or time to live may be the
 * next thing that is due. */
static void note_due(struct pg *pg, const struct pg_queue *q, const struct put_item *item)
{
    int64_t ttl_ms = item->draft.ttl_ms == TTL_DEFAULT ? q->face.config.ttl_ms : item->draft.ttl_ms;
    if (item->id.ready_ms > item->enqueued_ms && item->id.ready_ms < pg->due_ms)
        pg->due_ms = item->id.ready_ms;
    if (ttl_ms > 0 && item->enqueued_ms + ttl_ms < pg->due_ms)
        pg->due_ms = item->enqueued_ms + ttl_ms;
}

/* How many of its items the database was asked to store. */
static uint32_t rows_of_put(const struct engine_op *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->put.count; i++)
        count += op->put.items[i].status == STATUS_OK;
    return count;
}

static void answer_put(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    int row = 0;
    int status = PQfnumber(c->result, "status"), slot = PQfnumber(c->result, "slot"),
        ready = PQfnumber(c->result, "ready_ms"), seq = PQfnumber(c->result, "seq"),
        enqueued = PQfnumber(c->result, "enqueued_ms"),
        deduplicated = PQfnumber(c->result, "deduplicated");
    for (uint32_t o = 0; o < c->op_count; o++) {
        struct engine_op *op = c->ops[o];
        struct pg_queue *q = pg_queue_of(op->queue);
        if (answer_moved(job, op, c, row)) {
            row += (int)rows_of_put(op);
            continue;
        }
        for (uint32_t i = 0; i < op->put.count; i++) {
            struct put_item *item = &op->put.items[i];
            if (item->status != STATUS_OK)
                continue;
            item->status = status_of(c->result, row, status);
            item->deduplicated = cell_int(c->result, row, deduplicated) != 0;
            item->enqueued_ms = cell_int(c->result, row, enqueued);
            item->id = (struct message_id){
                .queue = q->face.id,
                .slot = cell_slot(c->result, row, slot),
                .ready_ms = cell_int(c->result, row, ready),
                .seq = (uint64_t)cell_int(c->result, row, seq),
            };
            view_put(q, item);
            if (item->status == STATUS_OK && !item->deduplicated) {
                draft_fini(&item->draft);
                note_due(pg, q, item);
            }
            row++;
        }
        pg_view_changed(q);
    }
}

static void answer_settle(struct pg *pg, struct pg_call *c)
{
    int row = 0;
    int status = PQfnumber(c->result, "status"), state = PQfnumber(c->result, "state"),
        slot = PQfnumber(c->result, "slot"), until = PQfnumber(c->result, "until_ms");
    for (uint32_t o = 0; o < c->op_count; o++) {
        struct engine_op *op = c->ops[o];
        struct pg_queue *q = pg_queue_of(op->queue);
        for (uint32_t i = 0; i < op->settle.count; i++, row++) {
            struct settle_item *item = &op->settle.items[i];
            item->status = status_of(c->result, row, status);
            if (item->status)
                continue;
            item->state = cell_state(c->result, row, state);
            item->slot = cell_slot(c->result, row, slot);
            item->lease_until_ms = cell_int(c->result, row, until);
            if (item->state == MESSAGE_SCHEDULED)
                pg->due_ms = 0; /* sweep soon, and learn what is due next */
            if (c->verb == ENGINE_ACK)
                view_ack(q, item->slot);
        }
        pg_view_changed(q);
    }
}

/* A message was found by that step, which costs a token. Tokens of an older policy do not count in
 * a new one. */
static void count_found(const struct pg_call *c, struct plan *plan, int64_t number)
{
    if (number < 1 || number > plan->step_count)
        return;
    struct plan_step *step = &plan->steps[number - 1];
    step->found++;
    if (step->in_turn && plan->policy->rules == c->rules)
        policy_spend(plan->policy, plan->max_rank, step->rank);
}

static void answer_claim(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct columns columns = columns_of(c->result);
    int row = 0, rows = PQntuples(c->result);
    for (uint32_t o = 0; o < c->op_count; o++) {
        struct engine_op *op = c->ops[o];
        struct plan *plan = op->claim.plan;
        op->claim.found = 0;
        for (uint32_t i = 0; i < plan->step_count; i++)
            plan->steps[i].found = 0;
        for (; row < rows && op->claim.found < plan->want; row++) {
            struct row at = {c->result, &columns, row};
            int64_t until_ms = row_int(&at, COLUMN_UNTIL);
            /* It comes back, until its attempts are used up. */
            if (!row_fits(c->queue, &at, true, true))
                continue;
            op->claim.found++;
            count_found(c, plan, row_int(&at, COLUMN_STEP));
            row_show(op, &at, job->now);
            view_claim(c->queue, &at);
            if (until_ms < pg->due_ms)
                pg->due_ms = until_ms;
        }
        if (op->claim.found < plan->want)
            view_drained(c, plan);
    }
    pg_view_changed(c->queue);
}

static void answer_get(struct engine_op *op, struct pg_call *c, struct instant now)
{
    struct columns columns = columns_of(c->result);
    struct row at = {c->result, &columns, 0};
    if (PQntuples(c->result) == 0)
        op->status = STATUS_MESSAGE_NOT_FOUND;
    else if (!row_fits(c->queue, &at, false, true))
        op->status = STATUS_ENGINE_UNAVAILABLE;
    else
        row_show(op, &at, now);
}

static void answer_list(struct engine_op *op, struct pg_call *c, struct instant now)
{
    struct columns columns = columns_of(c->result);
    int rows = PQntuples(c->result);
    op->list.found = 0;
    op->list.more = false;
    op->list.next = op->list.after;
    int row = 0;
    for (; row < rows && row < (int)op->list.limit; row++) {
        struct row at = {c->result, &columns, row};
        if (!row_fits(c->queue, &at, false, !op->list.bare)) {
            op->status = STATUS_ENGINE_UNAVAILABLE;
            return;
        }
        row_show(op, &at, now);
        op->list.found++;
        op->list.next = (struct list_cursor){
            .phase = (uint32_t)cell_int(c->result, row, 0),
            .slot = (uint32_t)row_int(&at, COLUMN_SLOT),
            .ready_ms = row_int(&at, COLUMN_READY),
            .seq = (uint64_t)row_int(&at, COLUMN_SEQ),
        };
    }
    op->list.more = row < rows; /* the limit may have changed since the call was made */
}

static void answer_escalate(struct engine_op *op, struct pg_call *c)
{
    int status = PQfnumber(c->result, "status"), changed = PQfnumber(c->result, "changed"),
        state = PQfnumber(c->result, "state"), from = PQfnumber(c->result, "from_slot");
    for (uint32_t i = 0; i < op->escalate.count; i++) {
        struct escalate_item *item = &op->escalate.items[i];
        item->status = status_of(c->result, (int)i, status);
        item->changed = !item->status && cell_int(c->result, (int)i, changed) != 0;
        item->state = cell_state(c->result, (int)i, state);
        item->from_slot = cell_slot(c->result, (int)i, from);
    }
}

/* A row has a status, or a message. Without items, each row is a message. */
static void answer_leave(struct engine_op *op, struct pg_call *c, struct instant now)
{
    struct columns columns = columns_of(c->result);
    uint32_t count = op->leave.count, rows = count > 0 ? count : (uint32_t)PQntuples(c->result);
    op->leave.found = 0;
    for (uint32_t i = 0; i < rows; i++) {
        struct row at = {c->result, &columns, (int)i};
        enum status status = status_of(c->result, (int)i, PQfnumber(c->result, "status"));
        if (!status && !row_fits(c->queue, &at, true, true))
            status = STATUS_ENGINE_UNAVAILABLE;
        if (count > 0)
            op->leave.items[i].status = status;
        if (status)
            continue;
        op->leave.found++;
        row_show(op, &at, now);
    }
}

static void answer_left(struct engine_op *op, struct pg_call *c)
{
    int status = PQfnumber(c->result, "status");
    for (uint32_t i = 0; i < op->leave.count; i++)
        op->leave.items[i].status = status_of(c->result, (int)i, status);
}

static void answer_count(struct engine_op *op, struct pg_call *c)
{
    int before = PQfnumber(c->result, "before"), exact = PQfnumber(c->result, "exact");
    for (uint32_t i = 0; i < op->count.count; i++) {
        op->count.items[i].before = (uint64_t)cell_int(c->result, (int)i, before);
        op->count.items[i].exact = cell_int(c->result, (int)i, exact) != 0;
    }
}

/* Rows come item by item, in order. An item with fewer rows than its max has no more heads. */
static void answer_heads(struct engine_op *op, struct pg_call *c)
{
    int row = 0, rows = PQntuples(c->result), item_column = PQfnumber(c->result, "item"),
        ready = PQfnumber(c->result, "ready_ms"), seq = PQfnumber(c->result, "seq");
    for (uint32_t i = 0; i < op->heads.count; i++) {
        struct heads_item *item = &op->heads.items[i];
        int end = row;
        while (end < rows && cell_int(c->result, end, item_column) == (int64_t)i + 1 &&
               (uint32_t)(end - row) < item->max)
            end++;
        item->count = (uint32_t)(end - row);
        item->whole = item->count < item->max;
        item->places = item->count > 0 ? mem_alloc(item->count * sizeof(*item->places)) : NULL;
        for (uint32_t k = 0; k < item->count; k++, row++)
            item->places[k] = (struct place){cell_int(c->result, row, ready),
                                             (uint64_t)cell_int(c->result, row, seq)};
    }
}

static void answer_bulk(struct engine_op *op, struct pg_call *c)
{
    op->bulk.count = (uint32_t)cell_int(c->result, 0, 0);
    op->bulk.more = op->bulk.id_count == 0 && op->bulk.count > 0 && op->bulk.count >= op->bulk.max;
    if (op->bulk.id_count > 0)
        return;
    uint64_t seq = (uint64_t)cell_int(c->result, 0, 1);
    if (op->verb == ENGINE_PURGE)
        op->bulk.before_seq = seq;
    else if (!cell_null(c->result, 0, 1))
        op->bulk.cursor.seq = seq;
}

/* Queues */

/* The queue that has this id and this name, if it is known. A known queue that has only the id, or
 * only the name, does not exist any more: another process has deleted it and used its name again,
 * or the database is another one. */
static struct pg_queue *known_queue(struct pg *pg, uint32_t id, const char *name)
{
    struct pg_queue *q = pg_queue_by_id(pg, id);
    struct pg_queue *namesake = pg_queue_of(map_get(&pg->queues, name, strlen(name)));
    if (q && q == namesake)
        return q;
    if (q)
        pg_queue_replace(q);
    if (namesake && !PLANTED(NAMESAKE_KEPT))
        pg_queue_replace(namesake);
    return NULL;
}

static struct pg_queue *adopt(struct pg *pg, const PGresult *r, int row, int id_column,
                              int config_column)
{
    struct queue_config config;
    struct queue_place *place = NULL;
    char name[QUEUE_NAME_MAX + 1];
    uint32_t version;
    size_t len;
    const char *text = cell_json(r, row, config_column, &len);
    int64_t id = cell_int(r, row, id_column);
    const char *odd =
        id > 0 && id <= INT32_MAX ? config_read(text, len, &config, name, &version, &place) : "id";
    if (odd) {
        log_error("postgres: a queue's configuration cannot be read",
                  "table=triage.queue id=%lld column=\"%s\"", (long long)id, odd);
        return NULL;
    }
    if (engine_shard_of(name, strlen(name), pg->shared->shard_count) != pg->shard) {
        free(place);
        return NULL;
    }
    struct pg_queue *q = known_queue(pg, (uint32_t)id, name);
    bool known = q != NULL;
    if (!known)
        q = pg_queue_add(pg, name, (uint32_t)id, version, &config);
    bool changed = pg_queue_place(q, place) || q->face.version != version;
    if (known && changed) {
        q->face.config = config;
        q->face.version = version;
        q->told = pg->told = true;
    }
    return q;
}

/* Hands the queue to the op. The queue is kept until the op is done, even if the same job finds
 * that it is gone. */
static void give_queue(struct engine_op *op, struct pg_queue *q)
{
    assert(!op->queue);
    assert(!op->engine);
    op->queue = &q->face;
    op->engine = q;
    q->busy++;
}

static void answer_level_in_use(struct engine_op *op, struct pg_call *c)
{
    int rank = -1;
    size_t len, schedule_len = 0;
    const char *name = cell_bytes(c->result, 0, 3, &len);
    const char *schedule = cell_bytes(c->result, 0, 5, &schedule_len);
    for (int i = 0; i < op->queue->config.level_count; i++) {
        const char *each = op->queue->config.levels[i].name;
        if (strlen(each) == len && memcmp(each, name, len) == 0)
            rank = i;
    }
    op->set.level_name = rank >= 0 ? op->queue->config.levels[rank].name : "";
    if (op->set.schedule_name)
        snprintf(op->set.schedule_name, QUEUE_NAME_MAX + 1, "%.*s", (int)schedule_len,
                 schedule ? schedule : "");
}

static void answer_queue_set(struct pg *pg, struct engine_op *op, struct pg_call *c)
{
    op->status = status_of(c->result, 0, 2);
    if (op->status == STATUS_LEVEL_IN_USE && op->queue)
        answer_level_in_use(op, c);
    if (!op->status && (cell_null(c->result, 0, 0) || cell_null(c->result, 0, 4)))
        op->status = STATUS_QUEUE_NOT_FOUND; /* others made it first, and have deleted it since */
    if (op->status)
        return;
    struct pg_queue *q = adopt(pg, c->result, 0, 0, 4);
    if (!q)
        op->status = STATUS_ENGINE_UNAVAILABLE;
    else if (!op->queue)
        give_queue(op, q);
    op->set.existed = q && cell_int(c->result, 0, 1) == 0;
}

static void answer_queue_open(struct pg *pg, struct engine_op *op, struct pg_call *c)
{
    bool there = PQntuples(c->result) > 0;
    struct pg_queue *q = there ? adopt(pg, c->result, 0, 0, 1) : NULL;
    op->status = q ? STATUS_OK : there ? STATUS_ENGINE_UNAVAILABLE : STATUS_QUEUE_NOT_FOUND;
    if (q)
        give_queue(op, q);
}

static void answer_queue_delete(struct engine_op *op, struct pg_call *c)
{
    op->status = status_of(c->result, 0, 0);
    if (op->status == STATUS_QUEUE_NOT_EMPTY)
        return;
    op->queue->gone = true; /* ops that are under way for it are told so */
    pg_queue_retire(pg_queue_of(op->queue));
}

/* Reads the list of all queues: some are new, some have changed, and those that are missing are
 * gone. */
static void answer_queues(struct pg *pg, struct pg_call *c)
{
    size_t at = 0;
    pg->list_due = false;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));)
        q->face.gone = true;
    for (int row = 0; row < PQntuples(c->result); row++) {
        struct pg_queue *q = adopt(pg, c->result, row, 0, 1);
        if (!q) /* another shard's, or not readable: a known one stays as it is */
            q = pg_queue_by_id(pg, (uint32_t)cell_int(c->result, row, 0));
        if (!q)
            continue;
        q->face.gone = false;
        if (!q->face.user)
            q->told = pg->told = true;
    }
    at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at));) {
        if (q->face.gone)
            q->told = pg->told = true;
    }
}

static void answer_sweep(struct pg *pg, struct engine_op *op, struct pg_call *c)
{
    uint32_t moved = 0;
    for (int row = 0; row < PQntuples(c->result); row++) {
        pg_queue_tell(pg, (uint32_t)cell_int(c->result, row, 0));
        moved += (uint32_t)cell_count(c->result, row, 1);
    }
    op->sweep.more = moved >= op->sweep.max;
    pg->sweep_due = pg->sweep_due || op->sweep.more;
}

static void answer_other(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct engine_op *op = c->ops[0];
    switch (op->verb) {
    case ENGINE_QUEUE_OPEN:
        answer_queue_open(pg, op, c);
        break;
    case ENGINE_QUEUE_SET:
        answer_queue_set(pg, op, c);
        break;
    case ENGINE_QUEUE_DELETE:
        answer_queue_delete(op, c);
        break;
    case ENGINE_QUEUE_PLACE:
        answer_queue_place(op, c);
        break;
    case ENGINE_QUEUE_SHARE:
        answer_queue_share(op, c);
        break;
    case ENGINE_IMPORT:
        if (!answer_moved(job, op, c, 0))
            imports_answer(pg, op, c);
        break;
    case ENGINE_CANCEL:
        op->status = status_of(c->result, 0, 0);
        break;
    case ENGINE_GET:
        answer_get(op, c, job->now);
        break;
    case ENGINE_ESCALATE:
        answer_escalate(op, c);
        break;
    case ENGINE_LEAVE:
        if (!answer_moved(job, op, c, 0))
            answer_leave(op, c, job->now);
        break;
    case ENGINE_LEFT:
        answer_left(op, c);
        break;
    case ENGINE_COUNT:
        answer_count(op, c);
        break;
    case ENGINE_HEADS:
        answer_heads(op, c);
        break;
    case ENGINE_LIST:
    case ENGINE_DEAD_LIST:
        answer_list(op, c, job->now);
        break;
    case ENGINE_PURGE:
    case ENGINE_PROMOTE:
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        answer_bulk(op, c);
        break;
    case ENGINE_SWEEP:
        answer_sweep(pg, op, c);
        break;
    case ENGINE_SCHEDULE_SET:
        op->status = status_of(c->result, 0, 0);
        pg_schedules_answer_set(op, c, job->now);
        break;
    case ENGINE_SCHEDULE_DELETE:
        op->status = status_of(c->result, 0, 0);
        break;
    case ENGINE_SCHEDULE_LIST:
        pg_schedules_answer_list(op, c, job->now);
        break;
    case ENGINE_FIRE:
        op->status = status_of(c->result, 0, PQfnumber(c->result, "status"));
        pg_schedules_answer_fire(pg, op, c);
        break;
    default:
        break;
    }
}

static void answer_changes(struct pg *pg, struct pg_call *c)
{
    int rows = PQntuples(c->result);
    uint32_t last = 0;
    for (int row = 0; row < rows; row++) {
        last = (uint32_t)cell_int(c->result, row, 0);
        pg_queue_tell(pg, last);
    }
    for (uint32_t o = 0; o < c->op_count; o++) {
        uint32_t *cursor = &c->ops[o]->sweep.cursor;
        /* The cursor ends in any case, whatever the database answers. */
        *cursor = rows == CHANGES_MAX && last > *cursor ? last : 0;
    }
}

static void answer_due(struct pg *pg, struct pg_call *c)
{
    pg->due_ms = cell_null(c->result, 0, 0) ? INT64_MAX : cell_time(c->result, 0, 0);
}

static uint32_t rows_of_puts(const struct pg_call *c)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < c->op_count; o++)
        count += rows_of_put(c->ops[o]);
    return count;
}

static uint32_t rows_of_import(const struct engine_op *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->import.count; i++)
        count += op->import.items[i].status == STATUS_OK;
    return count;
}

/* How many rows the answer to the call must have. */
static uint32_t rows_wanted(const struct pg_call *c)
{
    uint32_t count = 0;
    switch (c->verb) {
    case ENGINE_PUT:
        return rows_of_puts(c);
    case ENGINE_IMPORT:
        return rows_of_import(c->ops[0]);
    case ENGINE_ACK:
    case ENGINE_NACK:
    case ENGINE_RELEASE:
    case ENGINE_EXTEND:
        for (uint32_t o = 0; o < c->op_count; o++)
            count += c->ops[o]->settle.count;
        return count;
    case ENGINE_ESCALATE:
        return c->ops[0]->escalate.count;
    case ENGINE_LEAVE:
    case ENGINE_LEFT:
        return c->ops[0]->leave.count;
    case ENGINE_COUNT:
        return c->ops[0]->count.count;
    case ENGINE_QUEUE_SET:
    case ENGINE_QUEUE_DELETE:
    case ENGINE_QUEUE_PLACE:
    case ENGINE_QUEUE_SHARE:
    case ENGINE_SCHEDULE_SET:
    case ENGINE_SCHEDULE_DELETE:
    case ENGINE_FIRE:
    case ENGINE_CANCEL:
    case ENGINE_PURGE:
    case ENGINE_PROMOTE:
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        return 1;
    default:
        return 0;
    }
}

/* An answer that is too short counts as no answer. A missing cell reads as NULL, and NULL would
 * read as success. The database may have done what was asked, but nobody can say so. */
static bool answered(struct pg_call *c)
{
    enum status status = STATUS_OK;
    uint32_t rows = c->op_count > 0 ? rows_wanted(c) : 0;
    if (c->op_count > 0 && (!c->result || (uint32_t)PQntuples(c->result) < rows)) {
        log_error("postgres: an answer is too short", "sql=\"%s\"", c->sql);
        status = STATUS_ENGINE_UNAVAILABLE;
    } else if (c->op_count > 0 && !answer_fits(c, rows)) {
        status = STATUS_ENGINE_UNAVAILABLE;
    }
    for (uint32_t o = 0; o < c->op_count; o++)
        pg_fail(c->ops[o], status);
    return c->result && !status;
}

void calls_answer(struct pg *pg, struct pg_job *job)
{
    for (struct pg_call *c = job->calls; c; c = c->next) {
        if (!answered(c))
            continue;
        switch (c->kind) {
        case CALL_PUT:
            answer_put(pg, job, c);
            break;
        case CALL_SETTLE:
            answer_settle(pg, c);
            break;
        case CALL_CLAIM:
            answer_claim(pg, job, c);
            break;
        case CALL_OTHER:
            answer_other(pg, job, c);
            break;
        case CALL_VIEW:
            view_read(c, job->now);
            break;
        case CALL_PLACE:
            pg_queue_place(c->queue, read_place(c->result));
            break;
        case CALL_QUEUES:
            answer_queues(pg, c);
            break;
        case CALL_CHANGES:
            answer_changes(pg, c);
            break;
        case CALL_DUE:
            answer_due(pg, c);
            break;
        case CALL_DUTY:
            duty_answer(pg, job, c);
            break;
        case CALL_SCHEDULES:
            pg_schedules_answer_due(pg, job, c);
            break;
        case CALL_TABLES:
            tables_answer(pg, c);
            break;
        case CALL_WAIT:
            break;
        }
    }
}
