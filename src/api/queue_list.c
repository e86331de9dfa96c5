/* The list of the queues. The rows gather in c->text, and are put in order at the end. */
#include "api/auth.h"
#include "api/call.h"
#include "api/stats.h"

struct queue_list {
    char prefix[QUEUE_NAME_MAX + 1];
    char after[QUEUE_NAME_MAX + 1];
    int64_t limit;
};

static bool take_name(struct field *f, char out[QUEUE_NAME_MAX + 1])
{
    const char *name;
    size_t len;
    if (!field_text(f, 0, QUEUE_NAME_MAX, &name, &len))
        return false;
    if (!queue_prefix_valid(name, len))
        return field_refuse(f, "must be the name of a queue, or the start of one.");
    memcpy(out, name, len);
    out[len] = '\0';
    return true;
}

static bool take_prefix(struct field *f, void *target)
{
    struct queue_list *list = target;
    return take_name(f, list->prefix);
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

static void list_show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    const struct queue_list *list = c->extra;
    const char *name = facts->queue->name;
    struct queue_row row;
    if (strncmp(name, list->prefix, strlen(list->prefix)) != 0 || strcmp(name, list->after) <= 0)
        return;
    if (c->token && !auth_allows(c->token, 0, name))
        return;
    stats_row(facts, &row);
    buf_put(&c->text, &row, sizeof(row));
}

static void put_row(struct buf *out, const struct queue_row *row)
{
    buf_lit(out, "{\"name\":");
    json_put_cstr(out, row->name);
    buf_lit(out, ",\"ready\":");
    buf_put_u64(out, row->ready);
    buf_lit(out, ",\"scheduled\":");
    buf_put_u64(out, row->scheduled);
    buf_lit(out, ",\"in_flight\":");
    buf_put_u64(out, row->leased);
    buf_lit(out, ",\"dead\":");
    buf_put_u64(out, row->dead);
    buf_lit(out, ",\"depth\":");
    buf_put_u64(out, row->ready + row->scheduled);
    buf_puts(out, row->paused ? ",\"paused\":true}" : ",\"paused\":false}");
}

static void list_finish(struct call *c)
{
    const struct queue_list *list = c->extra;
    struct queue_row *rows = (struct queue_row *)c->text.data;
    size_t count = c->text.len / sizeof(rows[0]);
    size_t shown = count < (size_t)list->limit ? count : (size_t)list->limit;
    stats_rows_sort(rows, count);
    buf_lit(&c->out, "{\"queues\":[");
    for (size_t i = 0; i < shown; i++) {
        if (i > 0)
            buf_putc(&c->out, ',');
        put_row(&c->out, &rows[i]);
    }
    buf_lit(&c->out, "],\"next\":");
    if (shown < count)
        json_put_cstr(&c->out, rows[shown - 1].name);
    else
        buf_lit(&c->out, "null");
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void queues_list(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("prefix", take_prefix),
        FIELD("limit", take_limit),
        FIELD("after", take_after),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct queue_list list = {.limit = 100};
    if (!call_query(c, &table, &list))
        return;
    c->extra = mem_dup(&list, sizeof(list));
    c->request.show.each = list_show;
    c->request.show.fresh = true;
    call_submit(c, REQUEST_QUEUES, list_finish);
}
