/* Queues as things to make, look at, list, pause, empty and remove. */
#include "api/call.h"
#include "api/config.h"

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
