/* Queues as things to make, look at, list, pause, empty and remove. */
#include "api/auth.h"
#include "api/call.h"
#include "api/config.h"
#include "api/stats.h"

static void reply_ok(struct call *c)
{
    call_reply(c, 200);
}

/* PUT and PATCH: the body is read again on the thread of the shard, where the configuration is. */
static enum status put_configure(struct request *r, struct queue_config *config, bool is_new)
{
    struct call *c = call_of(r);
    struct problem p = {0};
    struct config_change change = {.is_new = is_new, .stay = r->configure.stay};
    if (!config_patch(c->text.data, c->text.len, &change, config, &p)) {
        problem_copy_text(r->field, sizeof(r->field), p.field);
        problem_copy_text(r->detail, sizeof(r->detail), p.detail);
        return p.status;
    }
    r->configure.keeps_used = change.keeps_used;
    buf_clear(&c->out);
    config_put(&c->out, r->queue, config);
    return STATUS_OK;
}

static enum status patch_configure(struct request *r, struct queue_config *config, bool is_new)
{
    return is_new ? STATUS_QUEUE_NOT_FOUND : put_configure(r, config, is_new);
}

static void put_finish(struct call *c)
{
    call_reply(c, c->request.created ? 201 : 200);
}

static bool take_dry_run(struct field *f, void *target)
{
    return field_bool(f, target);
}

static void configure_start(struct call *c, request_configure *configure)
{
    static const struct field_spec specs[] = {FIELD("dry_run", take_dry_run)};
    static const struct field_table table = FIELD_TABLE(specs);
    if (!call_query(c, &table, &c->request.configure.dry_run) || !call_json(c))
        return;
    if (c->http->body_len > 0)
        buf_put(&c->text, c->http->body, c->http->body_len);
    else
        buf_lit(&c->text, "{}");
    c->request.configure.edit = configure;
    call_submit(c, REQUEST_CONFIGURE, put_finish);
}

void queues_put(struct call *c)
{
    configure_start(c, put_configure);
}

void queues_patch(struct call *c)
{
    configure_start(c, patch_configure);
}

static enum status pause_configure(struct request *r, struct queue_config *config, bool is_new)
{
    (void)r;
    config->paused = true;
    return is_new ? STATUS_QUEUE_NOT_FOUND : STATUS_OK;
}

static enum status resume_configure(struct request *r, struct queue_config *config, bool is_new)
{
    (void)r;
    config->paused = false;
    return is_new ? STATUS_QUEUE_NOT_FOUND : STATUS_OK;
}

static void pause_set(struct call *c, bool paused)
{
    static const struct field_table none = {NULL, 0};
    if (!call_body(c, &none, NULL))
        return;
    buf_puts(&c->out, paused ? "{\"paused\":true}" : "{\"paused\":false}");
    c->request.configure.edit = paused ? pause_configure : resume_configure;
    call_submit(c, REQUEST_CONFIGURE, reply_ok);
}

void queues_pause(struct call *c)
{
    pause_set(c, true);
}

void queues_resume(struct call *c)
{
    pause_set(c, false);
}

static void get_show(struct request *r, const struct queue_facts *facts)
{
    config_put(&call_of(r)->out, facts->queue->name, &facts->queue->config);
}

void queues_get(struct call *c)
{
    c->request.show.each = get_show;
    call_submit(c, REQUEST_QUEUE, reply_ok);
}

static bool take_force(struct field *f, void *target)
{
    return field_bool(f, target);
}

static void delete_finish(struct call *c)
{
    call_reply(c, 204);
}

void queues_delete(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("force", take_force)};
    static const struct field_table table = FIELD_TABLE(specs);
    if (call_query(c, &table, &c->request.deletion.force))
        call_submit(c, REQUEST_DELETE, delete_finish);
}

static void purge_finish(struct call *c)
{
    buf_lit(&c->out, "{\"purged\":");
    buf_put_u64(&c->out, c->request.count);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void queues_purge(struct call *c)
{
    static const struct field_table none = {NULL, 0};
    if (!call_body(c, &none, NULL))
        return;
    c->request.op.verb = ENGINE_PURGE;
    call_submit(c, REQUEST_PURGE, purge_finish);
}

/* The list. The rows gather in c->text and are put in order at the end. */

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
