/* A queue moves to another server: begun, shown, ended. Before anything is changed here, the target
 * is asked whether it takes the queue. Then the target is written into the queue's configuration:
 * from that moment on this server passes on what comes for the queue, also after a restart. A mover
 * does the rest: mover.h. */
#include "api/call.h"
#include "api/config.h"
#include "api/mover.h"

#include <stdio.h>
#include <stdlib.h>

#define CANCEL_LOOK_MS 20

struct move {
    struct forward forward;
    struct target target;
    char now_to[FORWARD_URL_MAX + 1]; /* where it moves already; empty: nowhere */
    struct buf config;                /* as a PUT takes it */
    struct json_doc doc;              /* the target's answer */
    bool cancel;
};

static void move_cleanup(struct call *c)
{
    struct move *m = c->extra;
    forward_fini(&m->forward);
    buf_fini(&m->config);
    json_fini(&m->doc);
}

static struct move *move_new(struct call *c)
{
    struct move *m = c->extra = mem_zalloc(sizeof(*m));
    json_init(&m->doc);
    c->cleanup = move_cleanup;
    return m;
}

/* Fields */

static bool take_to(struct field *f, void *target)
{
    struct move *m = target;
    const char *url;
    size_t len;
    bool fits = field_text(f, 1, FORWARD_URL_MAX, &url, &len) && config_url_valid(url, len);
    if (!fits || memchr(url, '@', len) || memchr(url, '?', len) || memchr(url, '#', len))
        return field_refuse(f,
                            "must be the URL of a server, such as https://host:7420: of at most %d "
                            "bytes, without a user, a query or blanks.",
                            FORWARD_URL_MAX);
    while (len > 0 && url[len - 1] == '/')
        len--;
    memcpy(m->target.url, url, len);
    m->target.url[len] = '\0';
    return true;
}

static bool take_token(struct field *f, void *target)
{
    struct move *m = target;
    const char *token;
    size_t len;
    if (field_null(f))
        return true;
    if (!field_text(f, 0, FORWARD_TOKEN_MAX, &token, &len))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            return field_refuse(f, "must be a token as clients send it.");
    }
    memcpy(m->target.token, token, len);
    m->target.token[len] = '\0';
    return true;
}

static bool take_cancel(struct field *f, void *target)
{
    return field_bool(f, &((struct move *)target)->cancel);
}

/* The target */

/* `body` may be NULL; it is taken. */
static void ask(struct call *c, const char *method, const char *suffix, struct buf *body,
                request_done *done)
{
    struct move *m = c->extra;
    struct forward *f = &m->forward;
    forward_fini(f);
    *f = (struct forward){.target = &m->target, .method = method, .timeout_ms = FORWARD_MS};
    if (body) {
        f->type = "application/json";
        f->body = *body;
        *body = (struct buf){0};
    }
    buf_printf(&f->path, "/v1/queues/%s%s", c->request.queue, suffix);
    call_renew(c);
    f->request = &c->request;
    c->request.done = done;
    broker_forward(c->api->port, f);
}

/* The answer's problem in one word, "queue-not-found"; empty when it has none. */
static void answer_type(struct move *m, char out[64])
{
    static const char urn[] = "urn:triage:";
    const struct buf *answer = &m->forward.answer;
    out[0] = '\0';
    if (!json_parse(&m->doc, answer->data, answer->len, BODY_TOKENS_MAX))
        return;
    const struct json_token *t = json_get(&m->doc, 0, "type");
    size_t skip = sizeof(urn) - 1;
    if (t && t->type == JSON_STRING && t->len > skip && t->len - skip < 64 &&
        memcmp(t->str, urn, skip) == 0)
        snprintf(out, 64, "%.*s", (int)(t->len - skip), t->str + skip);
}

static void refuse(struct call *c, const char *detail)
{
    call_refuse_as(c, STATUS_MOVE_REFUSED, "/to", detail);
}

static void refuse_answer(struct call *c)
{
    struct move *m = c->extra;
    struct problem p = {0};
    char type[64];
    answer_type(m, type);
    problem_set_field(&p, "", "to", 2);
    if (m->forward.status == 0)
        problem_set(&p, STATUS_TARGET_UNAVAILABLE, "Nothing was changed: %s.", m->forward.why);
    else
        problem_set(&p, STATUS_MOVE_REFUSED,
                    "Nothing was changed here. The other server answers %ld %s%s",
                    m->forward.status, type,
                    m->forward.status == 401 || m->forward.status == 403
                        ? ": give a token of its role admin."
                        : ".");
    call_refuse(c, &p);
}

static bool answer_read(struct call *c)
{
    struct move *m = c->extra;
    const struct buf *answer = &m->forward.answer;
    if (m->forward.status == 200 && json_parse(&m->doc, answer->data, answer->len, BODY_TOKENS_MAX))
        return true;
    refuse_answer(c);
    return false;
}

/* Beginning */

static void begin_finish(struct call *c)
{
    const struct move *m = c->extra;
    mover_start(c->api, c->request.queue);
    buf_clear(&c->out);
    buf_lit(&c->out, "{\"queue\":");
    json_put_cstr(&c->out, c->request.queue);
    buf_lit(&c->out, ",\"to\":");
    json_put_cstr(&c->out, m->target.url);
    buf_lit(&c->out, ",\"state\":\"moving\"}");
    call_reply(c, 202);
}

/* On the thread of the shard. */
static enum status set_target(struct request *r, struct queue_config *config, bool is_new)
{
    const struct move *m = call_of(r)->extra;
    if (is_new)
        return STATUS_QUEUE_NOT_FOUND;
    memcpy(config->forward_to, m->target.url, sizeof(config->forward_to));
    memcpy(config->forward_token, m->target.token, sizeof(config->forward_token));
    return STATUS_OK;
}

static void target_write(struct call *c)
{
    call_renew(c);
    c->request.moves = true;
    c->request.configure.edit = set_target;
    call_submit(c, REQUEST_CONFIGURE, begin_finish);
}

static void on_configured(struct request *r)
{
    struct call *c = call_of(r);
    const struct move *m = c->extra;
    if (m->forward.status == 200 || m->forward.status == 201)
        target_write(c);
    else
        refuse_answer(c);
}

/* The queue is at the target already. Messages go by the names of their levels, and producers by
 * their numbers: so both have to be the same. */
static void on_found(struct request *r)
{
    struct call *c = call_of(r);
    struct move *m = c->extra;
    struct json_doc own;
    if (!answer_read(c))
        return;
    json_init(&own);
    const struct json_token *there = json_get(&m->doc, 0, "levels"), *here = NULL;
    if (json_parse(&own, m->config.data, m->config.len, BODY_TOKENS_MAX))
        here = json_get(&own, 0, "levels");
    bool same = there && here && there->raw_len == here->raw_len &&
                memcmp(there->raw, here->raw, here->raw_len) == 0;
    json_fini(&own);
    if (same)
        target_write(c);
    else
        refuse(c, "Nothing was changed: the other server has a queue of this name, with other "
                  "levels. Delete that queue, or give both the same levels.");
}

static void on_state(struct request *r)
{
    struct call *c = call_of(r);
    struct move *m = c->extra;
    char type[64];
    answer_type(m, type);
    if (m->forward.status == 404 && strcmp(type, "queue-not-found") == 0) {
        ask(c, "PUT", "", &m->config, on_configured);
        return;
    }
    if (!answer_read(c))
        return;
    const struct json_token *server = json_get(&m->doc, 0, "server"),
                            *to = json_get(&m->doc, 0, "to");
    if (!server || !to)
        refuse(c, "Nothing was changed: this is no server that queues can move to.");
    else if (json_is(server, moves_server(c->api->options.moves)))
        refuse(c, "Nothing was changed: this is the server that has the queue.");
    else if (to->type != JSON_NULL)
        refuse(c, "Nothing was changed: the queue of this name there moves on to another server. "
                  "Name that server, or end that move first.");
    else
        ask(c, "GET", "", NULL, on_found);
}

static void begin_look(struct request *r, const struct queue_facts *facts)
{
    struct move *m = call_of(r)->extra;
    const struct queue_config *config = &facts->queue->config;
    memcpy(m->now_to, config->forward_to, sizeof(m->now_to));
    if (!m->target.token[0] && strcmp(m->now_to, m->target.url) == 0)
        memcpy(m->target.token, config->forward_token, sizeof(m->target.token));
    buf_clear(&m->config);
    config_put(&m->config, facts->queue->name, config);
}

/* The same target again: the token may be another one, and the mover begins where it is not
 * running.
 */
static void begin_looked(struct call *c)
{
    struct move *m = c->extra;
    if (m->now_to[0] && strcmp(m->now_to, m->target.url) != 0)
        call_refuse_as(c, STATUS_QUEUE_MOVED, "/to",
                       "Nothing was changed: it moves to another server already. End that move, or "
                       "cancel it with DELETE /v1/queues/{queue}/move?cancel=true.");
    else
        ask(c, "GET", "/move", NULL, on_state);
}

void move_begin(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("to", take_to), FIELD("token", take_token)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct move *m = move_new(c);
    if (!call_body(c, &table, m))
        return;
    if (!m->target.url[0]) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/to", "to is missing: the URL of a server.");
        return;
    }
    if (!c->api->options.moves || !broker_moves(c->api->options.broker)) {
        call_refuse_as(c, STATUS_MOVE_REFUSED, NULL,
                       "Queues move away from the engines local and memory. From this one take "
                       "`triage export` and `triage import`.");
        return;
    }
    c->request.show.each = begin_look;
    call_submit(c, REQUEST_QUEUE, begin_looked);
}

/* Showing */

static void put_count(struct buf *out, const char *name, uint64_t count)
{
    buf_printf(out, ",\"%s\":%llu", name, (unsigned long long)count);
}

static void show_each(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    const struct queue_view *v = facts->view;
    bool moves = config_moves(&facts->queue->config);
    bool holds = v->ready + v->scheduled + v->leased + v->dead + facts->queue->schedules > 0;
    struct buf *out = &c->out;
    buf_clear(out);
    buf_lit(out, "{\"queue\":");
    json_put_cstr(out, facts->queue->name);
    buf_lit(out, ",\"to\":");
    if (moves)
        json_put_cstr(out, facts->queue->config.forward_to);
    else
        buf_lit(out, "null");
    buf_printf(out, ",\"state\":\"%s\"", !moves ? "none" : holds ? "moving" : "empty");
    put_count(out, "ready", v->ready);
    put_count(out, "scheduled", v->scheduled);
    put_count(out, "in_flight", v->leased);
    put_count(out, "dead", v->dead);
    put_count(out, "schedules", facts->queue->schedules);
}

static void show_finish(struct call *c)
{
    struct move_progress p = {0};
    struct buf *out = &c->out;
    struct moves *moves = c->api->options.moves;
    if (moves)
        mover_progress(moves, c->request.queue, &p);
    put_count(out, "moved", p.moved);
    buf_lit(out, ",\"error\":");
    if (p.error[0])
        json_put_cstr(out, p.error);
    else
        buf_lit(out, "null");
    buf_lit(out, ",\"server\":");
    json_put_cstr(out, moves ? moves_server(moves) : "");
    buf_putc(out, '}');
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void move_show(struct call *c)
{
    c->request.show.each = show_each;
    call_submit(c, REQUEST_QUEUE, show_finish);
}

/* Ending */

static void end_finish(struct call *c)
{
    call_reply(c, 204);
}

/* On the thread of the shard. */
static enum status clear_target(struct request *r, struct queue_config *config, bool is_new)
{
    (void)r;
    if (is_new)
        return STATUS_QUEUE_NOT_FOUND;
    memset(config->forward_to, 0, sizeof(config->forward_to));
    memset(config->forward_token, 0, sizeof(config->forward_token));
    return STATUS_OK;
}

static void cancel(struct call *c);

static void cancel_again(struct request *r)
{
    cancel(call_of(r));
}

/* What is on both servers for a moment would come twice. So the page under way is waited for. */
static void cancel(struct call *c)
{
    struct move *m = c->extra;
    call_renew(c);
    if (!mover_hold(c->api->options.moves, c->request.queue)) {
        m->forward = (struct forward){.request = &c->request, .timeout_ms = CANCEL_LOOK_MS};
        c->request.done = cancel_again;
        broker_forward(c->api->port, &m->forward);
        return;
    }
    c->request.moves = true;
    c->request.configure.edit = clear_target;
    call_submit(c, REQUEST_CONFIGURE, end_finish);
}

static void end_looked(struct call *c)
{
    const struct move *m = c->extra;
    if (!m->now_to[0]) {
        call_refuse_as(c, STATUS_MOVE_REFUSED, NULL, "The queue does not move.");
        return;
    }
    if (m->cancel) {
        cancel(c);
        return;
    }
    call_renew(c);
    c->request.moves = true;
    call_submit(c, REQUEST_DELETE, end_finish);
}

void move_end(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("cancel", take_cancel)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct move *m = move_new(c);
    if (c->http->query_len > 0 && !call_query(c, &table, m))
        return;
    c->request.show.each = begin_look;
    call_submit(c, REQUEST_QUEUE, end_looked);
}
