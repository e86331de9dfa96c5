#include "api/mover.h"

#include "api/call.h"
#include "api/encode.h"
#include "base/log.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define PAGE_MAX      500           /* messages of one import … */
#define PAGE_BYTES    (1024 * 1024) /* … to which nothing is added once it has so many bytes */
#define STEP_MAX      16            /* messages of one listing, as listing.c */
#define EMPTY_MS      1000
#define HOLD_MS       60000
#define LEASED_MS     200 /* messages may come back at any time */
#define RESULT_TOKENS (PAGE_MAX * 16)

/* A message of the page, or all its dead letters, that is to end here. */
struct end {
    struct request request;
    struct mover *mover;
};

struct mover {
    struct api *api;
    struct mover *next; /* in moves.movers */
    char queue[QUEUE_NAME_MAX + 1];
    struct request request;
    struct forward forward;
    struct target target;
    struct json_doc doc;
    /* What a look found. */
    bool moves;
    uint64_t waiting, leased, dead;
    uint32_t schedules;
    /* The schedule under way. */
    char schedule[QUEUE_NAME_MAX + 1];
    /* The page under way. */
    struct list_cursor cursor;
    bool more;
    uint32_t count;
    struct message_id ids[PAGE_MAX];
    bool is_dead[PAGE_MAX];
    struct buf lines;
    /* Ending it. */
    struct message_id dead_ids[PAGE_MAX];
    uint32_t dead_count;
    struct end *ends;
    uint32_t end_count;
    uint32_t out; /* of them, under way */
    uint32_t ended;
    char refused[MOVE_ERROR_MAX]; /* why the target did not take a message; empty: it took all */
    /* Under the mutex of moves. */
    struct move_progress progress;
    bool busy;              /* a page may be on both servers */
    bool asked;             /* the move was begun (again) since its last look began */
    uint64_t held_until_ms; /* it begins no page before */
};

struct moves {
    uv_mutex_t mutex;
    struct mover *movers;
    char server[33];
};

struct moves *moves_new(void)
{
    struct moves *m = mem_zalloc(sizeof(*m));
    uint64_t name[2];
    random_bytes(name, sizeof(name));
    snprintf(m->server, sizeof(m->server), "%016llx%016llx", (unsigned long long)name[0],
             (unsigned long long)name[1]);
    if (uv_mutex_init(&m->mutex) != 0)
        abort();
    return m;
}

static void mover_free(struct mover *j)
{
    free(j->ends);
    buf_fini(&j->lines);
    forward_fini(&j->forward);
    json_fini(&j->doc);
    free(j);
}

void moves_free(struct moves *m)
{
    if (!m)
        return;
    for (struct mover *j = m->movers, *next; j; j = next) {
        next = j->next;
        mover_free(j);
    }
    uv_mutex_destroy(&m->mutex);
    free(m);
}

const char *moves_server(const struct moves *m)
{
    return m->server;
}

/* The mutex is held. */
static struct mover **mover_find(struct moves *m, const char *queue)
{
    struct mover **at = &m->movers;
    while (*at && strcmp((*at)->queue, queue) != 0)
        at = &(*at)->next;
    return at;
}

void mover_progress(struct moves *m, const char *queue, struct move_progress *p)
{
    uv_mutex_lock(&m->mutex);
    const struct mover *j = *mover_find(m, queue);
    *p = j ? j->progress : (struct move_progress){0};
    p->running = j != NULL;
    uv_mutex_unlock(&m->mutex);
}

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

bool mover_hold(struct moves *m, const char *queue)
{
    uv_mutex_lock(&m->mutex);
    struct mover *j = *mover_find(m, queue);
    if (j)
        j->held_until_ms = now_ms() + HOLD_MS;
    bool safe = !j || !j->busy;
    uv_mutex_unlock(&m->mutex);
    return safe;
}

/* Whether a page may begin, or that it has ended. */
static bool mover_set_busy(struct mover *j, bool busy)
{
    struct moves *m = j->api->options.moves;
    uv_mutex_lock(&m->mutex);
    j->busy = busy && j->held_until_ms <= now_ms();
    bool is_busy = j->busy;
    uv_mutex_unlock(&m->mutex);
    return is_busy;
}

/* Steps */

static struct mover *mover_of(struct request *r)
{
    return container_of(r, struct mover, request);
}

static struct mover *mover_of_op(struct engine_op *op)
{
    return mover_of(container_of(op, struct request, op));
}

static struct request *mover_request(struct mover *j, enum request_kind kind, request_done *done)
{
    struct request *r = &j->request;
    request_init(r);
    memcpy(r->queue, j->queue, sizeof(r->queue));
    r->kind = kind;
    r->moves = true;
    r->done = done;
    return r;
}

static void mover_submit(struct mover *j)
{
    broker_submit(j->api->port, &j->request);
}

static void look(struct mover *j);

/* Sends what is in forward.path and forward.body. */
static void mover_send(struct mover *j, const char *method, const char *type, request_done *done)
{
    struct forward *f = &j->forward;
    mover_request(j, REQUEST_QUEUE, done);
    f->request = &j->request;
    f->target = &j->target;
    f->method = method;
    f->type = type;
    f->timeout_ms = FORWARD_MS;
    broker_forward(j->api->port, f);
}

/* Empties the forward for the next request. */
static void forward_renew(struct mover *j)
{
    struct forward next = {0};
    next.path = j->forward.path;
    next.body = j->forward.body;
    next.answer = j->forward.answer;
    buf_fini(&j->forward.url);
    buf_clear(&next.path);
    buf_clear(&next.body);
    buf_clear(&next.answer);
    j->forward = next;
}

static void paused(struct request *r)
{
    look(mover_of(r));
}

static void rest(struct mover *j, int64_t ms)
{
    forward_renew(j);
    mover_request(j, REQUEST_QUEUE, paused);
    j->forward.request = &j->request;
    j->forward.timeout_ms = ms;
    broker_forward(j->api->port, &j->forward);
}

static bool mover_leave(struct mover *j, bool even_asked)
{
    struct moves *m = j->api->options.moves;
    uv_mutex_lock(&m->mutex);
    bool leaves = even_asked || !j->asked;
    struct mover **at = mover_find(m, j->queue);
    if (leaves)
        *at = j->next;
    uv_mutex_unlock(&m->mutex);
    return leaves;
}

/* What it saw may be older than a move that was begun again meanwhile: whoever began that found
 * this mover and started no other. */
static void mover_end(struct mover *j, bool even_asked)
{
    if (mover_leave(j, even_asked))
        mover_free(j);
    else
        look(j);
}

static void mover_tell(struct mover *j, const char *error)
{
    struct moves *m = j->api->options.moves;
    uv_mutex_lock(&m->mutex);
    bool news = strcmp(j->progress.error, error) != 0;
    problem_copy_text(j->progress.error, sizeof(j->progress.error), error);
    uv_mutex_unlock(&m->mutex);
    if (!news || !error[0])
        return;
    char plain[MOVE_ERROR_MAX];
    problem_copy_text(plain, sizeof(plain), error);
    log_warn("a move waits", "queue=%s reason=\"%s\"", j->queue, log_plain(plain));
}

/* The round ends, and another one begins after a while. */
static void give_up(struct mover *j, const char *what, const char *why)
{
    char error[MOVE_ERROR_MAX];
    snprintf(error, sizeof(error), "%s: %s", what, why);
    mover_set_busy(j, false);
    mover_tell(j, error);
    rest(j, EMPTY_MS);
}

static void give_up_answer(struct mover *j, const char *what)
{
    char why[MOVE_ERROR_MAX];
    const struct forward *f = &j->forward;
    const struct json_token *detail = NULL;
    if (f->status == 0) {
        give_up(j, what, f->why);
        return;
    }
    if (json_parse(&j->doc, f->answer.data, f->answer.len, BODY_TOKENS_MAX))
        detail = json_get(&j->doc, 0, "detail");
    snprintf(why, sizeof(why), "the other server answers %ld. %.*s", f->status,
             detail && detail->type == JSON_STRING ? (int)detail->len : 0,
             detail && detail->type == JSON_STRING ? detail->str : "");
    give_up(j, what, why);
}

/* Ending what the target has */

static void page_begin(struct mover *j);

static void page_ended(struct mover *j)
{
    struct moves *m = j->api->options.moves;
    uv_mutex_lock(&m->mutex);
    j->progress.moved += j->ended;
    uv_mutex_unlock(&m->mutex);
    free(j->ends);
    j->ends = NULL;
    mover_set_busy(j, false);
    if (j->refused[0])
        give_up(j, "a message is not taken", j->refused);
    else if (j->more)
        page_begin(j);
    else
        look(j);
}

/* A message that could not be ended is found again by the next round. */
static void end_done(struct request *r)
{
    struct mover *j = container_of(r, struct end, request)->mover;
    if (!r->status)
        j->ended += r->kind == REQUEST_DEAD_DROP ? (uint32_t)r->count : 1;
    if (--j->out == 0)
        page_ended(j);
}

static struct request *end_add(struct mover *j, enum request_kind kind, enum engine_verb verb)
{
    struct end *e = &j->ends[j->end_count++];
    request_init(&e->request);
    e->mover = j;
    memcpy(e->request.queue, j->queue, sizeof(j->queue));
    e->request.kind = kind;
    e->request.op.verb = verb;
    e->request.moves = true;
    e->request.done = end_done;
    return &e->request;
}

static void end_message(struct mover *j, uint32_t i)
{
    if (j->is_dead[i])
        j->dead_ids[j->dead_count++] = j->ids[i];
    else
        end_add(j, REQUEST_CANCEL, ENGINE_CANCEL)->op.one.id = j->ids[i];
}

/* All of them are under way together, so that they become durable together. */
static void end_all(struct mover *j)
{
    if (j->dead_count > 0) {
        struct request *r = end_add(j, REQUEST_DEAD_DROP, ENGINE_DEAD_DROP);
        r->op.bulk.ids = j->dead_ids;
        r->op.bulk.id_count = j->dead_count;
    }
    j->out = j->end_count;
    if (j->out == 0) {
        page_ended(j);
        return;
    }
    for (uint32_t i = 0, count = j->end_count; i < count; i++)
        broker_submit(j->api->port, &j->ends[i].request);
}

/* Pages */

static void note_refusal(struct mover *j, uint32_t error)
{
    const struct json_token *title = json_get(&j->doc, error, "title");
    if (title && title->type == JSON_STRING)
        snprintf(j->refused, sizeof(j->refused), "%.*s", (int)title->len, title->str);
    else
        snprintf(j->refused, sizeof(j->refused), "the other server does not say why");
}

/* Ends the messages for which the answer has an id. False: the answer makes no sense. */
static bool results_take(struct mover *j)
{
    const struct buf *answer = &j->forward.answer;
    if (!json_parse(&j->doc, answer->data, answer->len, RESULT_TOKENS))
        return false;
    uint32_t list = json_array(&j->doc, 0, "results"), i = 0;
    if (!list || j->doc.tokens[list].count != j->count)
        return false;
    for (uint32_t at = json_first(&j->doc, list); at; at = json_next(&j->doc, list, at), i++) {
        const struct json_token *error = json_get(&j->doc, at, "error");
        if (!error && json_get(&j->doc, at, "message_id"))
            end_message(j, i);
        else
            note_refusal(j, error ? json_index(&j->doc, error) : at);
    }
    return true;
}

static void imported(struct request *r)
{
    struct mover *j = mover_of(r);
    if (j->forward.status != 200) {
        give_up_answer(j, "an import");
        return;
    }
    j->ends = mem_alloc((j->count + 1) * sizeof(j->ends[0]));
    j->end_count = j->dead_count = j->ended = 0;
    j->refused[0] = '\0';
    if (results_take(j)) {
        mover_tell(j, "");
        end_all(j);
    } else {
        free(j->ends);
        j->ends = NULL;
        give_up(j, "an import", "the answer makes no sense");
    }
}

static void import_page(struct mover *j)
{
    if (!mover_set_busy(j, true)) {
        rest(j, LEASED_MS);
        return;
    }
    forward_renew(j);
    buf_printf(&j->forward.path, "/v1/queues/%s/messages/import", j->queue);
    struct buf empty = j->forward.body;
    j->forward.body = j->lines;
    j->lines = empty;
    mover_send(j, "POST", "application/x-ndjson", imported);
}

/* On the thread of the shard. What is leased stays until it comes back or has ended. */
static void page_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                       struct instant now)
{
    struct mover *j = mover_of_op(op);
    bool moves = m->state == MESSAGE_READY || m->state == MESSAGE_SCHEDULED;
    (void)now;
    if (moves || m->state == MESSAGE_DEAD) {
        j->is_dead[j->count] = !moves;
        j->ids[j->count++] = message_identity(m, q->id);
        encode_exported(&j->lines, q, m);
    }
    j->request.answer_len = j->lines.len;
    if (j->lines.len >= PAGE_BYTES)
        op->list.limit = op->list.found + 1; /* `found` does not count the one just shown */
}

static void page_step(struct mover *j);

static void page_listed(struct request *r)
{
    struct mover *j = mover_of(r);
    if (r->status) {
        give_up(j, "a list", status_title(r->status));
        return;
    }
    j->cursor = r->op.list.next;
    j->more = r->op.list.more;
    if (j->more && j->count + STEP_MAX <= PAGE_MAX && j->lines.len < PAGE_BYTES)
        page_step(j);
    else if (j->count > 0)
        import_page(j);
    else
        rest(j, LEASED_MS); /* it was all leased, or somebody else has ended it */
}

static void page_step(struct mover *j)
{
    struct list_cursor after = j->cursor;
    struct request *r = mover_request(j, REQUEST_LIST, page_listed);
    r->op.verb = ENGINE_LIST;
    r->op.visit = page_visit;
    r->op.list.after = after;
    r->op.list.limit = STEP_MAX;
    mover_submit(j);
}

static void page_begin(struct mover *j)
{
    j->count = 0;
    buf_clear(&j->lines);
    page_step(j);
}

/* Schedules */

static void schedule_deleted(struct request *r)
{
    struct mover *j = mover_of(r);
    if (r->status && r->status != STATUS_SCHEDULE_NOT_FOUND)
        give_up(j, "a schedule", status_title(r->status));
    else
        look(j);
}

static void schedule_set(struct request *r)
{
    struct mover *j = mover_of(r);
    if (j->forward.status != 200 && j->forward.status != 201) {
        give_up_answer(j, "a schedule");
        return;
    }
    mover_request(j, REQUEST_SCHEDULE, schedule_deleted);
    r->op.verb = ENGINE_SCHEDULE_DELETE;
    r->op.schedule.name = j->schedule;
    mover_submit(j);
}

/* On the thread of the shard. */
static void schedule_show(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                          struct instant now)
{
    struct mover *j = mover_of_op(op);
    (void)now;
    memcpy(j->schedule, s->name, sizeof(j->schedule));
    encode_schedule_definition(&j->forward.body, &q->config, s);
    buf_putc(&j->forward.body, '}');
}

static void schedule_found(struct request *r)
{
    struct mover *j = mover_of(r);
    if (r->status || r->op.schedule.found == 0) {
        give_up(j, "a schedule", r->status ? status_title(r->status) : "it is gone");
        return;
    }
    buf_printf(&j->forward.path, "/v1/queues/%s/schedules/%s", j->queue, j->schedule);
    mover_send(j, "PUT", "application/json", schedule_set);
}

static void schedule_next_one(struct mover *j)
{
    forward_renew(j);
    struct request *r = mover_request(j, REQUEST_SCHEDULE, schedule_found);
    r->op.verb = ENGINE_SCHEDULE_LIST;
    r->op.schedule.limit = 1;
    r->op.schedule.show = schedule_show;
    mover_submit(j);
}

/* Rounds */

/* On the thread of the shard. */
static void look_show(struct request *r, const struct queue_facts *facts)
{
    struct mover *j = mover_of(r);
    const struct queue_config *config = &facts->queue->config;
    j->moves = config_moves(config);
    memcpy(j->target.url, config->forward_to, sizeof(j->target.url));
    memcpy(j->target.token, config->forward_token, sizeof(j->target.token));
    j->waiting = facts->view->ready + facts->view->scheduled;
    j->leased = facts->view->leased;
    j->dead = facts->view->dead;
    j->schedules = facts->queue->schedules;
}

static void looked(struct request *r)
{
    struct mover *j = mover_of(r);
    const atomic_bool *draining = j->api->options.draining;
    bool over = r->status == STATUS_QUEUE_NOT_FOUND || (!r->status && !j->moves);
    bool drains = draining && atomic_load(draining);
    if (over || drains) {
        mover_end(j, drains);
    } else if (r->status) {
        give_up(j, "a look at the queue", status_title(r->status));
    } else if (j->schedules > 0) {
        schedule_next_one(j);
    } else if (j->waiting + j->dead > 0) {
        j->cursor = (struct list_cursor){0};
        page_begin(j);
    } else {
        mover_tell(j, "");
        rest(j, j->leased > 0 ? LEASED_MS : EMPTY_MS);
    }
}

static void look(struct mover *j)
{
    struct moves *m = j->api->options.moves;
    uv_mutex_lock(&m->mutex);
    j->asked = false;
    uv_mutex_unlock(&m->mutex);
    struct request *r = mover_request(j, REQUEST_QUEUE, looked);
    r->show.each = look_show;
    mover_submit(j);
}

void mover_start(struct api *api, const char *queue)
{
    struct moves *m = api->options.moves;
    uv_mutex_lock(&m->mutex);
    struct mover **at = mover_find(m, queue), *j = NULL;
    if (!*at) {
        j = *at = mem_zalloc(sizeof(*j));
        j->api = api;
        snprintf(j->queue, sizeof(j->queue), "%s", queue);
        json_init(&j->doc);
    } else {
        (*at)->held_until_ms = 0; /* a cancelled move that begins again */
        (*at)->asked = true;
    }
    uv_mutex_unlock(&m->mutex);
    if (!j)
        return;
    log_info("a queue moves", "queue=%s", queue);
    look(j);
}

/* Queues that moved before this server was started. */

struct resume {
    struct request request;
    struct api *api;
    struct buf names; /* each with its NUL */
};

static void resume_show(struct request *r, const struct queue_facts *facts)
{
    struct resume *s = container_of(r, struct resume, request);
    if (config_moves(&facts->queue->config))
        buf_put(&s->names, facts->queue->name, strlen(facts->queue->name) + 1);
}

static void resume_done(struct request *r)
{
    struct resume *s = container_of(r, struct resume, request);
    for (size_t at = 0; at < s->names.len; at += strlen(s->names.data + at) + 1)
        mover_start(s->api, s->names.data + at);
    buf_fini(&s->names);
    free(s);
}

static void resume_begin(struct request *r)
{
    struct resume *s = container_of(r, struct resume, request);
    r->kind = REQUEST_QUEUES;
    r->done = resume_done;
    r->show.each = resume_show;
    broker_submit(s->api->port, r);
}

void api_resume_moves(struct api *api)
{
    if (!api->options.moves || !broker_moves(api->options.broker))
        return;
    struct resume *s = mem_zalloc(sizeof(*s));
    s->api = api;
    s->request.done = resume_begin; /* when the loop runs */
    broker_later(api->port, &s->request);
}
