#include "unit/api_rig.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct api_rig t;

/* The broker. */

static void op_done(struct engine_op *op)
{
    (void)op;
}

static void submit(struct engine_op *op)
{
    engine_submit(t.engine, op, clock_now());
    engine_flush(t.engine);
    engine_poll(t.engine);
}

static void run(struct request *r, struct engine_queue *q)
{
    r->op.queue = q;
    r->op.done = op_done;
    submit(&r->op);
    r->status = r->op.status;
}

static void configure(struct request *r, struct engine_queue *q)
{
    struct queue_config config;
    if (q)
        config = q->config;
    else
        assert_true(config_profile("levels", &config));
    r->status = r->kind == REQUEST_CONFIGURE ? r->configure.edit(r, &config, !q) : STATUS_OK;
    if (r->status != STATUS_OK)
        return;
    r->created = !q;
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .queue = q, .done = op_done};
    op.set.name = r->queue;
    op.set.config = &config;
    submit(&op);
    r->status = op.status;
}

static void claim(struct request *r, struct engine_queue *q)
{
    struct policy policy;
    struct plan plan;
    policy_init(&policy, &q->config);
    int rank = r->priority.kind == PRIORITY_DEFAULT ? q->config.level_count - 1
                                                    : levels_resolve(&q->config, &r->priority);
    if (rank < 0) {
        r->status = STATUS_UNKNOWN_PRIORITY;
        return;
    }
    policy_plan(&policy, &q->config, &q->view, rank, r->claim.max, clock_now().wall_ms, &plan);
    if (plan.step_count == 0)
        return;
    r->op.claim.plan = &plan;
    run(r, q);
}

static void bulk(struct request *r, struct engine_queue *q)
{
    r->op.bulk.max = r->claim.max ? r->claim.max : 1000;
    r->op.bulk.before_seq = UINT64_MAX;
    r->op.bulk.slot = -1;
    run(r, q);
    r->count = r->op.bulk.count;
}

static void show(struct request *r, const struct engine_queue *q)
{
    struct queue_facts facts = {.queue = q, .view = &q->view, .oldest_ready_ms = -1};
    r->show.each(r, &facts);
}

static void purge(struct engine_queue *q)
{
    struct engine_op op = {.verb = ENGINE_PURGE, .queue = q, .done = op_done};
    op.bulk.max = 1000;
    op.bulk.before_seq = UINT64_MAX;
    submit(&op);
}

static void move(struct request *r, struct engine_queue *q)
{
    int rank = levels_resolve(&q->config, &r->priority);
    if (rank < 0) {
        r->status = STATUS_UNKNOWN_PRIORITY;
        return;
    }
    r->op.verb = ENGINE_ESCALATE;
    r->op.escalate.slot = q->config.levels[rank].slot;
    run(r, q);
    if (t.vanish)
        purge(q);
}

/* What a broker finds out is not looked at here: how it is asked for and told is. */

static void move_many(struct request *r)
{
    r->escalate.matched = r->escalate.filter->has_metadata ? 3 : 5;
    r->count = r->escalate.dry_run ? 0 : r->op.escalate.note.actor_len;
}

static void explain(struct request *r, const struct engine_queue *q)
{
    *r->position.answer = (struct position){.id = r->op.one.id,
                                            .state = MESSAGE_READY,
                                            .level = q->config.levels[4],
                                            .effective = q->config.levels[3],
                                            .ahead = 17,
                                            .wait_for = WAIT_PAUSE | WAIT_LIMIT,
                                            .claims_per_second = 2.5,
                                            .start_ms = INT64_MAX};
}

static void serve(struct request *r)
{
    struct engine_queue *q = engine_queue_find(t.engine, r->queue, strlen(r->queue));
    size_t at = 0;
    if (r->kind == REQUEST_CONFIGURE || (r->kind == REQUEST_PUT && !q))
        configure(r, q);
    if (r->kind == REQUEST_CONFIGURE || r->status != STATUS_OK)
        return;
    if (r->kind == REQUEST_QUEUES) {
        while ((q = engine_queue_each(t.engine, &at)))
            show(r, q);
        return;
    }
    q = engine_queue_find(t.engine, r->queue, strlen(r->queue));
    if (!q)
        r->status = STATUS_QUEUE_NOT_FOUND;
    else if (r->kind == REQUEST_QUEUE || r->kind == REQUEST_STATS)
        show(r, q);
    else if (r->kind == REQUEST_ESCALATE)
        move(r, q);
    else if (r->kind == REQUEST_ESCALATE_ALL)
        move_many(r);
    else if (r->kind == REQUEST_POSITION)
        explain(r, q);
    else if (r->kind == REQUEST_CLAIM)
        claim(r, q);
    else if (r->kind == REQUEST_PURGE || r->kind == REQUEST_REDRIVE || r->kind == REQUEST_DEAD_DROP)
        bulk(r, q);
    else if (r->kind != REQUEST_DELETE)
        run(r, q);
}

void broker_submit(struct broker_port *port, struct request *r)
{
    (void)port;
    assert_true(t.queued < 8);
    t.queue[t.queued++] = r;
}

/* Every turn has had its share after one step. */
bool broker_is_late(const struct broker_port *port)
{
    (void)port;
    return true;
}

void broker_later(struct broker_port *port, struct request *r)
{
    (void)port;
    assert_null(t.later);
    t.later = r;
    t.turns++;
}

void broker_hangup(struct request *r)
{
    assert_ptr_equal(r, t.parked);
    t.hangups++;
}

bool broker_speaks(struct broker *b)
{
    (void)b;
    return true;
}

enum status broker_health(struct broker *b, struct buf *detail)
{
    (void)b;
    (void)detail;
    return STATUS_OK;
}

const struct engine_kind *broker_engine_kind(const struct broker *b)
{
    (void)b;
    return t.engine->kind;
}

uint32_t broker_queue_count(struct broker *b)
{
    (void)b;
    return 1;
}

/* The rig times nothing. */
const struct level_times *broker_level_times(const struct queue_facts *facts, uint8_t slot)
{
    (void)facts;
    (void)slot;
    return NULL;
}

void broker_cell_each(struct broker *b, engine_cell_visit *visit, void *ctx)
{
    (void)b;
    engine_cell_each(t.engine, visit, ctx);
}

void broker_partition_each(const struct queue_facts *facts, engine_partition_visit *visit,
                           void *ctx)
{
    engine_partition_each(t.engine, (struct engine_queue *)facts->queue, visit, ctx);
}

void broker_counters(struct broker *b, struct broker_counters *counters,
                     struct engine_counters *engine)
{
    (void)b;
    *counters = (struct broker_counters){.waiting = 3};
    *engine = t.engine->counters;
}

void broker_backup(struct broker_port *port, struct broker_backup *b)
{
    (void)port;
    b->status = STATUS_BACKUP_UNAVAILABLE;
    buf_puts(&b->backup.error, "The rig makes none.");
    b->done(b);
}

void broker_backup_cancel(struct broker_backup *b)
{
    (void)b;
}

void broker_backup_progress(struct broker *b, struct engine_backup_progress *p)
{
    (void)b;
    *p = (struct engine_backup_progress){0};
}

/* There is no other server. */
void broker_forward(struct broker_port *port, struct forward *f)
{
    f->why = "the rig has no network";
    broker_later(port, f->request);
}

void broker_forward_cancel(struct broker_port *port, struct forward *f)
{
    (void)port;
    (void)f;
}

bool broker_moves(const struct broker *b)
{
    (void)b;
    return true;
}

static void broker_turn(void)
{
    while (t.queued > 0 || t.later) {
        struct request *r = t.later;
        if (r) {
            t.later = NULL;
            r->done(r);
            continue;
        }
        r = t.queue[0];
        memmove(t.queue, t.queue + 1, --t.queued * sizeof(t.queue[0]));
        if (t.hold && r->kind == REQUEST_CLAIM) {
            t.parked = r;
            continue;
        }
        serve(r);
        r->done(r);
    }
}

/* The net. */

void http_respond(struct http_request *req, int status, const char *content_type,
                  const char *extra_headers, const void *body, size_t body_len)
{
    assert_int_equal(t.status, 0); /* one answer */
    (void)req;
    t.status = status;
    snprintf(t.headers, sizeof(t.headers), "%s", extra_headers ? extra_headers : "");
    snprintf(t.type, sizeof(t.type), "%s", content_type ? content_type : "");
    buf_clear(&t.body);
    buf_put(&t.body, body, body_len);
}

struct http_slice http_header(const struct http_request *req, const char *name)
{
    (void)req;
    (void)name;
    return (struct http_slice){NULL, 0};
}

/* Bodies of tests outlive the call. */
bool http_body_take(struct http_request *req, struct buf *memory)
{
    (void)req;
    *memory = (struct buf){0};
    return true;
}

bool http_wait(struct http_request *req, unsigned places)
{
    (void)req;
    (void)places;
    return !t.wait_refused;
}

struct account *http_account(const struct http_request *req)
{
    (void)req;
    return t.account;
}

static void ask_api(struct http_request *req)
{
    struct http_verdict verdict = {0};
    api_admit(req, t.api, &verdict);
    req->fresh = true;
    req->pass = verdict.pass;
    if (verdict.status)
        http_respond(req, verdict.status, "application/problem+json", verdict.headers,
                     verdict.body.data, verdict.body.len);
    else
        api_handle(req, t.api);
    buf_fini(&verdict.body);
}

int ask_as(struct http_request *req, const struct ask *ask, enum http_verb verb, const char *target,
           const char *body)
{
    const char *mark = strchr(target, '?');
    *req = (struct http_request){
        .verb = verb,
        .path = target,
        .path_len = mark ? (size_t)(mark - target) : strlen(target),
        .query = mark ? mark + 1 : NULL,
        .query_len = mark ? strlen(mark + 1) : 0,
        .body = body && *body ? body : NULL,
        .body_len = body ? strlen(body) : 0,
        .has_body = body && *body,
    };
    const char *type = ask->type ? ask->type : "application/json";
    req->content_type = (struct http_slice){type, strlen(type)};
    if (ask->receipt)
        req->receipt = (struct http_slice){ask->receipt, strlen(ask->receipt)};
    if (ask->authorization)
        req->authorization = (struct http_slice){ask->authorization, strlen(ask->authorization)};
    t.status = 0;
    ask_api(req);
    broker_turn();
    if (strstr(t.type, "json") && t.status != 0 && t.body.len > 0 && !strstr(t.type, "ndjson"))
        assert_true(json_parse(&t.doc, t.body.data, t.body.len, 100000));
    return t.status;
}

int ask(enum http_verb verb, const char *target, const char *body)
{
    struct http_request req;
    return ask_as(&req, &(struct ask){0}, verb, target, body);
}

const char *text(const char *key)
{
    static char copy[256];
    const struct json_token *v = json_get(&t.doc, 0, key);
    assert_non_null(v);
    snprintf(copy, sizeof(copy), "%.*s", (int)v->len, v->str);
    return copy;
}

void problem_is(int status, const char *type, const char *field)
{
    char urn[64];
    snprintf(urn, sizeof(urn), "urn:triage:%s", type);
    assert_int_equal(t.status, status);
    assert_string_equal(t.type, "application/problem+json");
    assert_string_equal(text("type"), urn);
    if (field)
        assert_string_equal(text("field"), field);
    assert_true(text("detail")[0] != '\0');
}

int api_setup(void **state)
{
    struct engine_options engine = {.kind = "memory"};
    struct api_options options = {.version = "1.2.3", .engine = "memory", .durability = "none"};
    struct buf error = {0};
    (void)state;
    memset(&t, 0, sizeof(t));
    json_init(&t.doc);
    assert_int_equal(engine_open(&engine, 1, &t.engine, &error), STATUS_OK);
    t.budget = budget_new(&(struct budget_limits){.max = {API_ROOM, 1}});
    t.account = account_open(t.budget, &(struct sockaddr){.sa_family = AF_UNIX});
    t.api = api_new(NULL, &options);
    return 0;
}

int api_teardown(void **state)
{
    (void)state;
    api_free(t.api);
    account_close(t.account); /* nothing is counted any more */
    budget_free(t.budget);
    engine_close(&t.engine, 1);
    json_fini(&t.doc);
    buf_fini(&t.body);
    return 0;
}
