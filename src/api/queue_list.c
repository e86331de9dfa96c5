/* The list of the queues. The rows gather in c->text, and are put in order at the end. */
#define _GNU_SOURCE /* qsort_r, strcasestr */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"
#include "api/stats.h"

#include <stdlib.h>
#include <string.h>

/* What rows can be put in order by. */
enum list_key {
    KEY_NONE,
    KEY_READY,
    KEY_SCHEDULED,
    KEY_IN_FLIGHT,
    KEY_DEAD,
    KEY_DEPTH,
    KEY_OLDEST,
    KEY_CLAIMS,
};

#define ORDER_KEYS_MAX 4
#define ORDER_COUNT    (sizeof(order_names) / sizeof(order_names[0]))
#define ORDER_NAME     0

/* The value of ?sort= and the keys that it stands for, the weightiest first, each with its largest
 * value on top. Rows that are equal in all of them stand by name. */
static const char *const order_names[] = {
    "name", "trouble", "ready", "scheduled", "in_flight", "dead", "depth", "oldest", "claims",
};
static const enum list_key order_keys[ORDER_COUNT][ORDER_KEYS_MAX] = {
    {KEY_NONE},      {KEY_DEAD, KEY_OLDEST, KEY_DEPTH, KEY_IN_FLIGHT},
    {KEY_READY},     {KEY_SCHEDULED},
    {KEY_IN_FLIGHT}, {KEY_DEAD},
    {KEY_DEPTH},     {KEY_OLDEST},
    {KEY_CLAIMS},
};

struct queue_list {
    char prefix[QUEUE_NAME_MAX + 1];
    char contains[QUEUE_NAME_MAX + 1];
    char after[QUEUE_NAME_MAX + 1];
    int64_t limit, skip;
    int order; /* in order_names */
    bool reverse;
    bool details;
};

static bool take_name(struct field *f, char out[QUEUE_NAME_MAX + 1])
{
    const char *name;
    size_t len;
    if (!field_text(f, 0, QUEUE_NAME_MAX, &name, &len))
        return false;
    if (!queue_prefix_valid(name, len))
        return field_refuse(f, "must be the name of a queue, or a part of one.");
    memcpy(out, name, len);
    out[len] = '\0';
    return true;
}

static bool take_prefix(struct field *f, void *target)
{
    struct queue_list *list = target;
    return take_name(f, list->prefix);
}

static bool take_contains(struct field *f, void *target)
{
    struct queue_list *list = target;
    return take_name(f, list->contains);
}

static bool take_after(struct field *f, void *target)
{
    struct queue_list *list = target;
    return take_name(f, list->after);
}

static bool take_limit(struct field *f, void *target)
{
    struct queue_list *list = target;
    return field_i64(f, 1, LIST_MAX, &list->limit);
}

static bool take_skip(struct field *f, void *target)
{
    struct queue_list *list = target;
    return field_i64(f, 0, COUNT_MAX, &list->skip);
}

static bool take_sort(struct field *f, void *target)
{
    struct queue_list *list = target;
    return field_choice(f, order_names, (int)ORDER_COUNT, &list->order);
}

static bool take_reverse(struct field *f, void *target)
{
    struct queue_list *list = target;
    return field_bool(f, &list->reverse);
}

static bool take_details(struct field *f, void *target)
{
    struct queue_list *list = target;
    return field_bool(f, &list->details);
}

static bool list_has(const struct queue_list *list, const char *name)
{
    return strncmp(name, list->prefix, strlen(list->prefix)) == 0 &&
           strcmp(name, list->after) > 0 && strcasestr(name, list->contains) != NULL;
}

static void list_show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    const char *name = facts->queue->name;
    struct queue_row row;
    if (!list_has(c->extra, name) || (c->token && !auth_allows(c->token, 0, name)))
        return;
    stats_row(facts, &row);
    buf_put(&c->text, &row, sizeof(row));
}

/* Order */

/* A rate counts as what is shown of it: hundredths. */
static uint64_t row_value(const struct queue_row *row, enum list_key key)
{
    switch (key) {
    case KEY_NONE:
        return 0;
    case KEY_READY:
        return row->ready;
    case KEY_SCHEDULED:
        return row->scheduled;
    case KEY_IN_FLIGHT:
        return row->leased;
    case KEY_DEAD:
        return row->dead;
    case KEY_DEPTH:
        return row->ready + row->scheduled;
    case KEY_OLDEST:
        return row->oldest_ms / 1000;
    case KEY_CLAIMS:
        return (uint64_t)(row->claims_per_second * 100 + 0.5);
    }
    abort();
}

static int row_compare(const void *a, const void *b, void *ctx)
{
    const struct queue_row *x = a, *y = b;
    const struct queue_list *list = ctx;
    const enum list_key *keys = order_keys[list->order];
    int way = 0;
    for (int i = 0; i < ORDER_KEYS_MAX && keys[i] != KEY_NONE && way == 0; i++) {
        uint64_t v = row_value(x, keys[i]), w = row_value(y, keys[i]);
        way = (v < w) - (v > w);
    }
    if (way == 0)
        way = strcmp(x->name, y->name);
    return list->reverse ? -way : way;
}

/* Answer */

static void put_count(struct buf *out, const char *name, uint64_t count)
{
    buf_puts(out, name);
    buf_put_u64(out, count);
}

static void put_counts(struct buf *out, const struct queue_row *row)
{
    put_count(out, ",\"ready\":", row->ready);
    put_count(out, ",\"scheduled\":", row->scheduled);
    put_count(out, ",\"in_flight\":", row->leased);
    put_count(out, ",\"dead\":", row->dead);
    put_count(out, ",\"depth\":", row->ready + row->scheduled);
}

static void put_details(struct buf *out, const struct queue_row *row)
{
    put_count(out, ",\"oldest_message_age_seconds\":", row->oldest_ms / 1000);
    put_count(out, ",\"waiting_consumers\":", row->waiting);
    buf_lit(out, ",\"claims_per_second\":");
    encode_rate(out, row->claims_per_second);
    put_count(out, ",\"bytes\":", row->bytes);
    buf_putc(out, ',');
    stats_totals_put(out, &row->totals);
}

static void put_row(struct buf *out, const struct queue_row *row, bool details)
{
    buf_lit(out, "{\"name\":");
    json_put_cstr(out, row->name);
    put_counts(out, row);
    buf_puts(out, row->paused ? ",\"paused\":true" : ",\"paused\":false");
    if (details)
        put_details(out, row);
    buf_putc(out, '}');
}

/* What all that match have together, shown or not. `paused` counts queues. */
static void put_all(struct buf *out, const struct queue_row *rows, size_t count)
{
    struct queue_row all = {0};
    for (size_t i = 0; i < count; i++)
        stats_row_add(&all, &rows[i]);
    put_count(out, ",\"all\":{\"queues\":", count);
    put_count(out, ",\"paused\":", all.paused);
    put_counts(out, &all);
    put_details(out, &all);
    buf_putc(out, '}');
}

static void put_next(struct buf *out, const struct queue_list *list, const char *last)
{
    buf_lit(out, ",\"next\":");
    if (last && list->order == ORDER_NAME && !list->reverse)
        json_put_cstr(out, last);
    else
        buf_lit(out, "null");
}

static void list_finish(struct call *c)
{
    struct queue_list *list = c->extra;
    struct queue_row *rows = (struct queue_row *)c->text.data;
    size_t count = c->text.len / sizeof(rows[0]);
    size_t from = count < (size_t)list->skip ? count : (size_t)list->skip;
    size_t left = count - from;
    size_t shown = left < (size_t)list->limit ? left : (size_t)list->limit;
    if (count > 1)
        qsort_r(rows, count, sizeof(rows[0]), row_compare, list);
    buf_lit(&c->out, "{\"queues\":[");
    for (size_t i = 0; i < shown; i++) {
        if (i > 0)
            buf_putc(&c->out, ',');
        put_row(&c->out, &rows[from + i], list->details);
    }
    buf_putc(&c->out, ']');
    put_next(&c->out, list, shown < left ? rows[from + shown - 1].name : NULL);
    if (list->details)
        put_all(&c->out, rows, count);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void queues_list(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("prefix", take_prefix),   FIELD("contains", take_contains),
        FIELD("limit", take_limit),     FIELD("after", take_after),
        FIELD("skip", take_skip),       FIELD("sort", take_sort),
        FIELD("reverse", take_reverse), FIELD("details", take_details),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct queue_list list = {.limit = 100, .order = ORDER_NAME};
    if (!call_query(c, &table, &list))
        return;
    c->extra = mem_dup(&list, sizeof(list));
    c->request.show.each = list_show;
    c->request.show.fresh = true;
    call_submit(c, REQUEST_QUEUES, list_finish);
}
