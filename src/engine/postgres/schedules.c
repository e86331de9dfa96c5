/* Schedules: the parameters of the calls, and their answers. */
#include "engine/postgres/impl.h"
#include "engine/postgres/rows.h"

#include <stdio.h>
#include <string.h>

#define DUE_MAX 100 /* schedules that a sweep shows */

/* The columns of triage.schedule, in order. Those that only the database sets are 0. */
#define COLUMNS "ROW($1,$3,$4,$5,$6,$7,$8,$9,$10,0,0,0,0,$11,$12,$13,$14,$15,$16,$17,$18,$19)"

static void put_text(struct params *p, const char *text)
{
    param_bytes(p, WIRE_TEXT, text, strlen(text));
}

void pg_schedules_put(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    const struct schedule *s = op->schedule.set;
    const struct draft *d = &s->draft;
    const char *missed = missed_names[s->missed];
    c->sql = "SELECT status, created, (schedule).* FROM triage.engine_schedule_set($1,$2," COLUMNS
             "::triage.schedule,$20)";
    param_queue(p, c->queue);
    put_text(p, s->name);
    put_text(p, s->rule.cron);
    param_int(p, WIRE_INT8, s->rule.every_s);
    put_text(p, s->rule.time_zone);
    put_text(p, missed);
    param_int(p, WIRE_INT8, s->grace_ms);
    param_bool(p, s->paused);
    param_int(p, WIRE_INT8, s->timing.next_ms);
    param_int(p, WIRE_INT2, d->priority.kind);
    param_int(p, WIRE_INT8, d->priority.kind == PRIORITY_NUMBER ? d->priority.number : 0);
    put_text(p, d->priority.kind == PRIORITY_NAME ? d->priority.name : "");
    param_int(p, WIRE_INT8, d->delay_ms);
    param_int(p, WIRE_INT8, d->ttl_ms);
    param_int(p, WIRE_INT2, d->kind);
    param_bytes(p, WIRE_BYTEA, d->body, d->payload_len);
    param_text(p, d->body + d->payload_len, d->metadata_len);
    param_bytes(p, WIRE_BYTEA, d->body + d->payload_len + d->metadata_len, d->dedup_len);
}

static void put_text_or_null(struct params *p, const char *text)
{
    if (text)
        put_text(p, text);
    else
        param_null(p, WIRE_TEXT);
}

void pg_schedules_list(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    c->sql = "SELECT * FROM triage.engine_schedule_list($1,$3,$4,$5)"
             " WHERE (triage.queue_at($1,$2)).id IS NOT NULL";
    param_queue(p, c->queue);
    put_text_or_null(p, op->schedule.name);
    put_text_or_null(p, op->schedule.name ? NULL : op->schedule.after);
    param_int(p, WIRE_INT4, op->schedule.name ? 1 : op->schedule.limit + 1LL);
}

void pg_schedules_delete(struct pg_call *c, const struct engine_op *op)
{
    c->sql = "SELECT triage.engine_schedule_delete($1,$2,$3)";
    param_queue(&c->params, c->queue);
    put_text(&c->params, op->schedule.name);
}

/* Why the schedule cannot be fired, as far as that is known without the database. */
static enum status refusal_of(const struct pg_queue *q, const struct engine_op *op)
{
    const struct draft *d = op->fire.step.puts && op->fire.item ? &op->fire.item->draft : NULL;
    if (op->fire.refused)
        return op->fire.refused;
    return !d || levels_resolve(&q->face.config, &d->priority) >= 0 ? STATUS_OK
                                                                    : STATUS_UNKNOWN_PRIORITY;
}

/* Shows the schedule again only after a while. Otherwise schedules that cannot be fired could fill
 * all DUE_MAX places of every sweep, and no other would be shown. The row is not waited for, as in
 * engine_fire(). */
static void put_off(struct pg_call *c, const struct engine_op *op, enum status why)
{
    struct params *p = &c->params;
    c->sql = "WITH off AS (UPDATE triage.schedule SET"
             " show_ms = coalesce($7, triage.now_ms()) + $5 WHERE (queue, name) IN"
             " (SELECT queue, name FROM triage.schedule"
             " WHERE queue = $1 AND name = $3 AND next_ms = $4 FOR UPDATE SKIP LOCKED)"
             " RETURNING 1) SELECT (triage.queue_at($1,$2)).id IS NOT NULL AS known,"
             " NOT EXISTS (SELECT FROM off) AS stale, false AS puts,"
             " CASE WHEN EXISTS (SELECT FROM off) THEN $6 END AS status";
    param_queue(p, c->queue);
    put_text(p, op->fire.name);
    param_int(p, WIRE_INT8, op->fire.step.due_ms);
    param_int(p, WIRE_INT8, SCHEDULE_AGAIN_MS);
    put_text(p, status_name(why));
}

/* A step without a message sends empty arrays. */
void pg_schedules_fire(struct pg_call *c, const struct engine_op *op)
{
    struct params *p = &c->params;
    enum status why = refusal_of(c->queue, op);
    if (why) {
        put_off(c, op, why);
        return;
    }
    const struct schedule_step *step = &op->fire.step;
    const struct draft *draft = step->puts ? &op->fire.item->draft : NULL;
    /* The status is of the message. A step without one has no row for it in the call. */
    c->sql = "SELECT known, stale, puts, (put).status, (put).deduplicated FROM"
             " triage.engine_fire($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)";
    param_queue(p, c->queue);
    put_text(p, op->fire.name);
    param_int(p, WIRE_INT8, step->due_ms);
    param_int(p, WIRE_INT8, step->next_ms);
    if (draft)
        param_int(p, WIRE_INT8, step->at_ms);
    else
        param_null(p, WIRE_INT8);
    param_int(p, WIRE_INT4, step->made_up);
    params_drafts(p, &c->queue->face.config, &draft, draft ? 1 : 0);
    param_array(p, WIRE_INT8_ARRAY);
    if (draft)
        element_int_unless(p, WIRE_INT8, 0, draft->delay_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    if (draft)
        element_int_unless(p, WIRE_INT8, TTL_DEFAULT, draft->ttl_ms);
    param_array_end(p);
}

/* Answers. Others may write to the tables, so a text that is too long is cut. */

struct cells {
    const PGresult *result;
    int row;
};

static int64_t get_int(const struct cells *c, const char *column)
{
    return cell_int(c->result, c->row, PQfnumber(c->result, column));
}

static int64_t get_within(const struct cells *c, const char *column, int64_t least, int64_t most)
{
    int64_t value = get_int(c, column);
    return value < least ? least : value > most ? most : value;
}

static void get_text(const struct cells *c, const char *column, char *out, size_t size)
{
    size_t len = 0;
    const char *text = cell_bytes(c->result, c->row, PQfnumber(c->result, column), &len);
    snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), text ? text : "");
}

static void get_body(const struct cells *c, struct draft *d)
{
    static const char *const columns[] = {"payload", "metadata", "dedup_key"};
    static const size_t limits[] = {SCHEDULE_PAYLOAD_MAX, SCHEDULE_METADATA_MAX, DEDUP_KEY_MAX};
    size_t lens[3];
    struct buf body = {0};
    for (int i = 0; i < 3; i++) {
        const char *bytes =
            cell_bytes(c->result, c->row, PQfnumber(c->result, columns[i]), &lens[i]);
        lens[i] = lens[i] <= limits[i] ? lens[i] : 0;
        buf_put(&body, bytes, lens[i]);
    }
    d->payload_len = (uint32_t)lens[0];
    d->metadata_len = (uint16_t)lens[1];
    d->dedup_len = (uint16_t)lens[2];
    d->body = buf_take(&body);
}

static void read_schedule(const struct cells *c, struct schedule *s)
{
    char missed[8];
    *s = (struct schedule){0};
    get_text(c, "name", s->name, sizeof(s->name));
    get_text(c, "cron", s->rule.cron, sizeof(s->rule.cron));
    get_text(c, "time_zone", s->rule.time_zone, sizeof(s->rule.time_zone));
    s->rule.every_s = get_within(c, "every_seconds", 0, SCHEDULE_EVERY_SECONDS_MAX);
    get_text(c, "missed", missed, sizeof(missed));
    while (s->missed < MISSED_COUNT - 1 && strcmp(missed, missed_names[s->missed]) != 0)
        s->missed++;
    s->paused = get_int(c, "paused") != 0;
    s->grace_ms = get_within(c, "grace_ms", 0, SCHEDULE_GRACE_SECONDS_MAX * 1000LL);
    s->timing = (struct schedule_timing){
        .next_ms = get_within(c, "next_ms", SCHEDULE_NEVER_YET, SCHEDULE_NEVER),
        .last_ms = get_within(c, "last_ms", SCHEDULE_NEVER_YET, SCHEDULE_NEVER),
        .count = (uint64_t)get_within(c, "count", 0, INT64_MAX),
        .made_up = (uint32_t)get_within(c, "made_up", 0, SCHEDULE_MADE_UP_MAX),
    };
    struct draft *d = &s->draft;
    d->priority.kind = (int)get_within(c, "priority_kind", PRIORITY_DEFAULT, PRIORITY_NAME);
    d->priority.number = get_int(c, "priority_number");
    get_text(c, "priority_name", d->priority.name, sizeof(d->priority.name));
    d->ready_ms = READY_NOW;
    d->delay_ms = get_within(c, "delay_ms", 0, TIME_MS_MAX);
    d->ttl_ms = get_within(c, "ttl_ms", TTL_DEFAULT, TIME_MS_MAX);
    d->kind = (uint8_t)get_within(c, "kind", 0, PAYLOAD_BYTES);
    get_body(c, d);
}

/* Makes the next sweep come in time for this due time. */
static void note_next(struct pg *pg, int64_t next_ms)
{
    if (next_ms < pg->due_ms && next_ms != SCHEDULE_NEVER)
        pg->due_ms = next_ms;
}

static void show(struct engine_op *op, const struct cells *c, struct pg_queue *q,
                 engine_schedule *show, struct instant now)
{
    struct schedule s;
    read_schedule(c, &s);
    if (show)
        show(op, &q->face, &s, now);
    schedule_fini(&s);
}

void pg_schedules_answer_set(struct engine_op *op, struct pg_call *c, struct instant now)
{
    struct cells cells = {c->result, 0};
    op->schedule.created = cell_int(c->result, 0, 1) != 0;
    if (op->status)
        return;
    note_next(c->queue->pg, get_int(&cells, "next_ms"));
    show(op, &cells, c->queue, op->schedule.show, now);
}

void pg_schedules_answer_list(struct engine_op *op, struct pg_call *c, struct instant now)
{
    int rows = PQntuples(c->result);
    uint32_t limit = op->schedule.name ? 1 : op->schedule.limit;
    if (op->schedule.name && rows == 0)
        op->status = STATUS_SCHEDULE_NOT_FOUND;
    op->schedule.more = (uint32_t)rows > limit;
    op->schedule.found = op->schedule.more ? limit : (uint32_t)rows;
    for (uint32_t row = 0; row < op->schedule.found; row++)
        show(op, &(struct cells){c->result, (int)row}, c->queue, op->schedule.show, now);
}

void pg_schedules_answer_fire(struct pg *pg, struct engine_op *op, struct pg_call *c)
{
    struct cells cells = {c->result, 0};
    struct put_item *item = op->fire.item;
    op->fire.stale = get_int(&cells, "stale") != 0;
    if (!get_int(&cells, "known"))
        op->status = STATUS_SCHEDULE_NOT_FOUND;
    if (op->status || op->fire.stale)
        return;
    note_next(pg, op->fire.step.next_ms);
    if (!get_int(&cells, "puts"))
        return;
    c->queue->perishable = c->queue->perishable || item->draft.ttl_ms > 0;
    item->deduplicated = get_int(&cells, "deduplicated") != 0;
    if (item->draft.delay_ms > 0 || item->draft.ttl_ms > 0 || c->queue->face.config.ttl_ms > 0)
        pg->due_ms = 0; /* sweep soon, and learn which delay or time to live ends first */
}

void pg_schedules_ask(struct pg *pg, struct pg_job *job)
{
    struct pg_call *c =
        call_add(job, CALL_SCHEDULES, NULL, 0,
                 "SELECT now_ms, (schedule).* FROM triage.engine_schedules_due($1,$2)");
    param_int(&c->params, WIRE_INT4, DUE_MAX);
    param_now(pg, job, &c->params);
}

/* Shows due schedules to the sweep that asked. Rows of queues of other shards are left to them. */
void pg_schedules_answer_due(struct pg *pg, struct pg_job *job, struct pg_call *c)
{
    struct engine_op *op = job->first;
    while (op && (op->verb != ENGINE_SWEEP || !op->sweep.due))
        op = op->next;
    for (int row = 0; op && row < PQntuples(c->result); row++) {
        struct cells cells = {c->result, row};
        struct pg_queue *q = pg_queue_by_id(pg, (uint32_t)get_int(&cells, "queue"));
        struct instant now = {.wall_ms = get_int(&cells, "now_ms"), .mono_ms = job->now.mono_ms};
        struct schedule s;
        if (!q || q->face.gone || q->deleting)
            continue;
        read_schedule(&cells, &s);
        op->sweep.due(op, &q->face, &s, now);
        schedule_fini(&s);
    }
}
