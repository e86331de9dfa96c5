/* Cells: which there are, which of them have a queue, and where its new messages go. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"
#include "api/fields.h"
#include "api/stats.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CELL_TEXT_MAX 64
#define LEVELS_MAX    (LEVEL_COUNT_MAX * (LEVEL_NAME_MAX + 1))
#define BUCKETS_MAX   1024 /* bytes of a text with 256 numbers */

/* A change. Owned by the call as its `extra`. */
struct placement_call {
    char cell[CELL_TEXT_MAX + 1];
    uint32_t given; /* of state, buckets and levels */
    enum placement_change change;
    bool has_text;
    char text[LEVELS_MAX + 1];
};

static bool take_cell(struct field *f, void *target)
{
    struct placement_call *p = target;
    const char *text;
    size_t len;
    if (!field_text(f, 1, CELL_TEXT_MAX, &text, &len))
        return false;
    memcpy(p->cell, text, len);
    return true;
}

static bool take_state(struct field *f, void *target)
{
    static const char *const names[] = {"open", "draining", "removed"};
    static const enum placement_change changes[] = {PLACEMENT_OPEN, PLACEMENT_DRAIN,
                                                    PLACEMENT_REMOVE};
    struct placement_call *p = target;
    int choice;
    if (!field_choice(f, names, 3, &choice))
        return false;
    p->change = changes[choice];
    p->given++;
    return true;
}

static bool take_buckets(struct field *f, void *target)
{
    struct placement_call *p = target;
    const char *text;
    size_t len;
    static_assert(BUCKETS_MAX <= LEVELS_MAX, "it has room");
    if (!field_text(f, 1, BUCKETS_MAX, &text, &len))
        return false;
    memcpy(p->text, text, len);
    p->change = PLACEMENT_GIVE;
    p->has_text = true;
    p->given++;
    return true;
}

static bool add_level(struct placement_call *p, const struct json_token *t)
{
    size_t at = strlen(p->text);
    if (t->type != JSON_STRING || t->len == 0 || t->len > LEVEL_NAME_MAX ||
        memchr(t->str, '\n', t->len) || memchr(t->str, '\0', t->len) ||
        at + t->len + 1 > LEVELS_MAX)
        return false;
    memcpy(p->text + at, t->str, t->len);
    p->text[at + t->len] = '\n';
    return true;
}

static bool take_levels(struct field *f, void *target)
{
    struct placement_call *p = target;
    bool fits = field_null(f) || f->value->type == JSON_ARRAY;
    p->change = PLACEMENT_WANT;
    p->has_text = !field_null(f);
    p->given++;
    for (uint32_t i = p->has_text && fits ? json_first(f->doc, f->at) : 0; i && fits;
         i = json_next(f->doc, f->at, i))
        fits = add_level(p, &f->doc->tokens[i]);
    if (p->has_text && p->text[0] == '\0')
        p->has_text = false; /* [] is none */
    return fits || field_refuse(f, "must be an array with the names of levels, or null.");
}

static void change_finish(struct call *c)
{
    call_reply(c, 204);
}

void placement_post(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("cell", take_cell),
        FIELD("state", take_state),
        FIELD("buckets", take_buckets),
        FIELD("levels", take_levels),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct placement_call *p = c->extra = mem_zalloc(sizeof(*p));
    if (!call_body(c, &table, p))
        return;
    if (p->cell[0] == '\0' || p->given != 1) {
        call_refuse_as(c, STATUS_INVALID_FIELD, p->cell[0] ? "/state" : "/cell",
                       "Give the name of a cell, and one of `state`, `buckets` and `levels`.");
        return;
    }
    c->request.op.verb = ENGINE_PLACEMENT;
    c->request.op.placement.cell = p->cell;
    c->request.op.placement.change = p->change;
    c->request.op.placement.text = p->has_text ? p->text : NULL;
    call_submit(c, REQUEST_PLACEMENT, change_finish);
}

/* Of a cell as a whole, for queues that are there and for those that will be made. */
void cells_post(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("cell", take_cell),
        FIELD("state", take_state),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    static_assert(sizeof(ENGINE_CELLS_QUEUE) <= sizeof(c->request.queue), "it is a name");
    struct placement_call *p = c->extra = mem_zalloc(sizeof(*p));
    if (!call_body(c, &table, p))
        return;
    if (p->cell[0] == '\0' || p->given == 0) {
        call_refuse_as(c, STATUS_INVALID_FIELD, p->cell[0] ? "/state" : "/cell",
                       "Give the name of a cell, and the state that it is to have.");
        return;
    }
    memcpy(c->request.queue, ENGINE_CELLS_QUEUE, sizeof(ENGINE_CELLS_QUEUE));
    c->request.op.verb = ENGINE_PLACEMENT;
    c->request.op.placement.cell = p->cell;
    c->request.op.placement.change = p->change;
    call_submit(c, REQUEST_CELL, change_finish);
}

/* Showing */

static void placement_show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    buf_lit(&c->out, "{\"queue\":");
    json_put_cstr(&c->out, facts->queue->name);
    buf_lit(&c->out, ",\"partitions\":[");
    stats_partitions(&c->out, facts);
    buf_lit(&c->out, "]}");
}

static void show_finish(struct call *c)
{
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void placement_get(struct call *c)
{
    c->request.show.each = placement_show;
    call_submit(c, REQUEST_STATS, show_finish);
}

/* All cells, with the sums of their partitions. Owned by the call as its `extra`. */

struct cell_sum {
    uint64_t partitions, open, ready, scheduled, leased, dead;
};

struct cell_sums {
    uint32_t count;
    struct cell_sum *each; /* owned; by number */
    struct call *call;     /* … whose answer is written, … */
    bool any;              /* … and has a cell already */
};

static void add_partition(void *ctx, const struct engine_partition *p)
{
    struct cell_sums *sums = ctx;
    if (p->number >= sums->count)
        return;
    struct cell_sum *sum = &sums->each[p->number];
    sum->partitions++;
    sum->open += p->placement && strcmp(p->placement, "open") == 0;
    sum->ready += p->view->ready;
    sum->scheduled += p->view->scheduled;
    sum->leased += p->view->leased;
    sum->dead += p->view->dead;
}

static void sum_queue(struct request *r, const struct queue_facts *facts)
{
    broker_partition_each(facts, add_partition, call_of(r)->extra);
}

static void put_cell(void *ctx, const struct engine_cell *cell)
{
    struct cell_sums *sums = ctx;
    struct buf *out = &sums->call->out;
    const struct cell_sum none = {0},
                          *s = cell->number < sums->count ? &sums->each[cell->number] : &none;
    buf_puts(out, sums->any ? ",{\"cell\":" : "{\"cell\":");
    json_put_cstr(out, cell->name);
    buf_printf(out, ",\"partition\":%u,\"engine\":", cell->number);
    json_put_cstr(out, cell->engine);
    buf_lit(out, ",\"state\":");
    json_put_cstr(out, cell->state);
    buf_lit(out, ",\"placement\":");
    json_put_cstr(out, cell->placement);
    buf_lit(out, ",\"clock_offset_seconds\":");
    encode_seconds(out, cell->ahead_us / 1000);
    buf_printf(out,
               ",\"partitions\":%llu,\"open\":%llu,\"ready\":%llu,\"scheduled\":%llu,"
               "\"in_flight\":%llu,\"dead\":%llu",
               (unsigned long long)s->partitions, (unsigned long long)s->open,
               (unsigned long long)s->ready, (unsigned long long)s->scheduled,
               (unsigned long long)s->leased, (unsigned long long)s->dead);
    buf_lit(out, ",\"split\":");
    json_put_cstr(out, cell->split ? cell->split : "off");
    buf_lit(out, ",\"split_detail\":");
    json_put_string(out, cell->split_detail.len > 0 ? cell->split_detail.data : "",
                    cell->split_detail.len);
    buf_putc(out, '}');
    sums->any = true;
}

static void cells_finish(struct call *c)
{
    struct cell_sums *sums = c->extra;
    sums->call = c;
    buf_lit(&c->out, "{\"cells\":[");
    broker_cell_each(c->api->options.broker, put_cell, sums);
    buf_lit(&c->out, "]}");
    show_finish(c);
}

static void count_cell(void *ctx, const struct engine_cell *cell)
{
    struct cell_sums *sums = ctx;
    sums->count = cell->number >= sums->count ? cell->number + 1 : sums->count;
}

static void sums_free(struct call *c)
{
    struct cell_sums *sums = c->extra;
    free(sums->each);
}

void cells_list(struct call *c)
{
    struct cell_sums *sums = c->extra = mem_zalloc(sizeof(*sums));
    c->cleanup = sums_free;
    broker_cell_each(c->api->options.broker, count_cell, sums);
    sums->each = mem_zalloc((sums->count + 1) * sizeof(sums->each[0]));
    c->request.show.each = sum_queue;
    c->request.show.fresh = true;
    call_submit(c, REQUEST_QUEUES, cells_finish);
}
