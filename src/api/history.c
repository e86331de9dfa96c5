/* What the numbers of a queue were: columns of numbers at equal distances of time. A number that is
 * not known is null: from before the server's start, or let go of. */
#include "api/call.h"
#include "api/encode.h"
#include "base/clock.h"

#include <assert.h>
#include <stdio.h>

#define POINTS_WANTED 360 /* when the client names no step */
#define RANGE_S       3600

enum column_kind { COLUMN_GAUGE, COLUMN_AGE, COLUMN_RATE };

static const struct history_column {
    const char *name;
    enum column_kind kind;
    enum history_value value;
} columns[] = {
    {"ready", COLUMN_GAUGE, HISTORY_READY},
    {"scheduled", COLUMN_GAUGE, HISTORY_SCHEDULED},
    {"in_flight", COLUMN_GAUGE, HISTORY_IN_FLIGHT},
    {"dead", COLUMN_GAUGE, HISTORY_DEAD},
    {"oldest_seconds", COLUMN_AGE, HISTORY_OLDEST},
    {"enqueued_per_second", COLUMN_RATE, HISTORY_ENQUEUED},
    {"claimed_per_second", COLUMN_RATE, HISTORY_CLAIMED},
    {"acked_per_second", COLUMN_RATE, HISTORY_ACKED},
    {"failed_per_second", COLUMN_RATE, HISTORY_FAILED},
};

#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

struct history_call {
    int64_t from_ms, to_ms; /* 0: not given */
    int64_t step_s;         /* 0: not given */
    uint32_t wanted;        /* columns, as bits; 0: all */
    struct priority_ref level;
    bool of_level;
    /* While the queue is shown. */
    int tier, slot;        /* slot -1: of the queue */
    int64_t now_s, from_s; /* the time of the first point … */
    int64_t at_s;          /* … of the next one, … */
    int64_t to_s;          /* … and of the last one */
    bool known, was_known; /* `values` are, and `before` are */
    uint64_t values[SERIES_VALUES], before[SERIES_VALUES];
    struct buf out[COLUMN_COUNT];
    enum status status;
};

static struct history_call *history_of(const struct call *c)
{
    assert(c->extra);
    return c->extra;
}

static void cleanup(struct call *c)
{
    struct history_call *h = c->extra;
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        buf_fini(&h->out[i]);
}

/* A point of the answer */

static uint64_t value_of(const struct history_call *h, const uint64_t *values,
                         enum history_value value)
{
    return values[h->slot < 0 ? value : HISTORY_LEVELS + h->slot * HISTORY_LEVEL_VALUES + value];
}

static void put_age(struct buf *out, int64_t at_s, uint64_t since_s)
{
    buf_put_u64(out, since_s > 0 && (int64_t)since_s < at_s ? (uint64_t)at_s - since_s : 0);
}

static void put_number(struct history_call *h, const struct history_column *col, struct buf *out)
{
    uint64_t value = value_of(h, h->values, col->value);
    uint64_t before = value_of(h, h->before, col->value);
    if (!h->known || (col->kind == COLUMN_RATE && (!h->was_known || value < before)))
        buf_lit(out, "null");
    else if (col->kind == COLUMN_GAUGE)
        buf_put_u64(out, value);
    else if (col->kind == COLUMN_AGE)
        put_age(out, h->at_s, value);
    else
        encode_rate(out, (double)(value - before) / (double)h->step_s);
}

static bool is_wanted(const struct history_call *h, size_t column)
{
    return (h->wanted == 0 || h->wanted >> column & 1) &&
           (!h->of_level || columns[column].kind != COLUMN_RATE);
}

/* The point before the first one is there for its totals alone. */
static void put_point(struct history_call *h)
{
    for (size_t i = 0; i < COLUMN_COUNT && h->at_s >= h->from_s; i++) {
        if (!is_wanted(h, i))
            continue;
        if (h->at_s > h->from_s)
            buf_putc(&h->out[i], ',');
        put_number(h, &columns[i], &h->out[i]);
    }
    h->was_known = h->known;
    memcpy(h->before, h->values, sizeof(h->before));
    h->at_s += h->step_s;
}

static void visit(void *ctx, int64_t at_s, const uint64_t values[SERIES_VALUES])
{
    struct history_call *h = ctx;
    while (h->at_s < at_s && h->at_s <= h->to_s)
        put_point(h);
    h->known = true;
    memcpy(h->values, values, sizeof(h->values));
}

/* What is held for the answer is counted in the client's budget. Without room for it the answer is
 * refused. */
static void count(struct call *c, struct request *r)
{
    struct history_call *h = history_of(c);
    size_t bytes = 0;
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        r->answer_len += h->out[i].len;
        bytes += h->out[i].cap;
    }
    if (bytes > call_bytes_left(c)) {
        cleanup(c);
        h->status = STATUS_OVERLOADED;
        return;
    }
    call_count_bytes(c, bytes);
}

static void show(struct request *r, const struct queue_facts *facts)
{
    struct history_call *h = history_of(call_of(r));
    const struct queue_config *config = &facts->queue->config;
    h->slot = -1;
    if (h->of_level) {
        int rank = levels_resolve(config, &h->level);
        h->status = rank < 0 ? STATUS_UNKNOWN_PRIORITY : STATUS_OK;
        if (h->status)
            return;
        h->slot = config->levels[rank].slot;
    }
    h->at_s = h->from_s - h->step_s;
    broker_history_read(facts, h->tier, h->at_s, h->to_s, visit, h);
    while (h->at_s <= h->to_s)
        put_point(h);
    count(call_of(r), r);
}

static void finish(struct call *c)
{
    const struct history_call *h = history_of(c);
    if (h->status == STATUS_OVERLOADED) {
        call_refuse_no_room(c);
        return;
    }
    if (h->status) {
        call_refuse_as(c, h->status, "/level", NULL);
        return;
    }
    buf_lit(&c->out, "{\"queue\":");
    json_put_cstr(&c->out, c->request.queue);
    buf_lit(&c->out, ",\"from\":");
    encode_time(&c->out, h->from_s * 1000);
    buf_lit(&c->out, ",\"to\":");
    encode_time(&c->out, h->to_s * 1000);
    buf_lit(&c->out, ",\"step_seconds\":");
    buf_put_u64(&c->out, (uint64_t)h->step_s);
    buf_lit(&c->out, ",\"series\":{");
    const char *comma = "";
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (!is_wanted(h, i))
            continue;
        buf_printf(&c->out, "%s\"%s\":[", comma, columns[i].name);
        buf_put(&c->out, h->out[i].data, h->out[i].len);
        buf_putc(&c->out, ']');
        comma = ",";
    }
    buf_lit(&c->out, "}}");
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

/* The question */

static bool take_from(struct field *f, void *target)
{
    return field_time(f, &((struct history_call *)target)->from_ms);
}

static bool take_to(struct field *f, void *target)
{
    return field_time(f, &((struct history_call *)target)->to_ms);
}

static bool take_step(struct field *f, void *target)
{
    return field_i64(f, 1, 90 * 86400, &((struct history_call *)target)->step_s);
}

static bool take_level(struct field *f, void *target)
{
    struct history_call *h = target;
    h->of_level = true;
    return field_priority(f, &h->level);
}

static bool take_series(struct field *f, void *target)
{
    struct history_call *h = target;
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (!json_is(f->value, columns[i].name))
            continue;
        h->wanted |= 1u << i;
        return true;
    }
    return field_refuse(f, "is no series: GET without it shows all of them.");
}

static bool question_refuse(struct call *c, const char *field, const char *detail)
{
    call_refuse_as(c, STATUS_INVALID_FIELD, field, detail);
    return false;
}

/* Points lie at whole steps, from the finest tier that reaches back so far. */
static bool question_settle(struct call *c, struct history_call *h)
{
    h->now_s = clock_now().wall_ms / 1000;
    h->to_s = h->to_ms ? h->to_ms / 1000 : h->now_s;
    h->from_s = h->from_ms ? h->from_ms / 1000 : h->to_s - RANGE_S;
    if (h->to_s > h->now_s)
        h->to_s = h->now_s;
    if (h->from_s >= h->to_s)
        return question_refuse(c, "/from", "from has to be before to, and not in the future.");
    const struct series_tier *tiers = series_tiers;
    while (h->tier < SERIES_TIERS - 1 && h->now_s - h->from_s > tiers[h->tier].span_s)
        h->tier++;
    int64_t least_s = tiers[h->tier].step_s;
    int64_t wanted_s = h->step_s ? h->step_s : (h->to_s - h->from_s) / POINTS_WANTED;
    h->step_s = (wanted_s + least_s - 1) / least_s * least_s;
    h->step_s = h->step_s ? h->step_s : least_s;
    if ((h->to_s - h->from_s) / h->step_s >= HISTORY_POINTS_MAX)
        return question_refuse(c, "/step",
                               "That would be more than 1,000 points: ask for a larger "
                               "step, or for less time.");
    h->from_s = (h->from_s + h->step_s - 1) / h->step_s * h->step_s;
    h->to_s = h->to_s / h->step_s * h->step_s;
    return h->from_s <= h->to_s ||
           question_refuse(c, "/step", "The step is longer than the time from from to to.");
}

void history_get(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("from", take_from),
        FIELD("to", take_to),
        FIELD("step", take_step),
        FIELD("level", take_level),
        FIELD_REPEATED("series", take_series),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct history_call *h = c->extra = mem_zalloc(sizeof(*h));
    c->cleanup = cleanup;
    if (!call_query(c, &table, h) || !question_settle(c, h))
        return;
    c->request.show.each = show;
    call_submit(c, REQUEST_QUEUE, finish);
}
