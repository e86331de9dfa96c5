#include "broker/broker.h"
#include "base/mem.h"
#include "base/plant.h"
#include "base/turn.h"
#include "broker/shard.h"
#include "broker/webhook.h"

#include <stdlib.h>
#include <string.h>

#define INBOX_MAX_DEFAULT 65536

static void wake(void *ctx, uint32_t shard)
{
    struct broker *b = ctx;
    shard_wake(&b->shards[shard]);
}

enum status broker_open(const struct broker_options *options, uv_loop_t *loops[],
                        uint32_t shard_count, struct broker **out, struct buf *error)
{
    assert(shard_count > 0);
    struct broker *b = mem_zalloc(sizeof(*b));
    b->options = *options;
    if (b->options.inbox_max == 0)
        b->options.inbox_max = INBOX_MAX_DEFAULT;
    b->options.engine.asks = true;
    b->options.engine.wake = wake;
    b->options.engine.wake_ctx = b;
    b->shard_count = shard_count;
    b->shards = mem_zalloc(shard_count * sizeof(*b->shards));
    b->engines = mem_zalloc(shard_count * sizeof(struct engine *));
    enum status status = engine_open(&b->options.engine, shard_count, b->engines, error);
    if (status) {
        free(b->engines);
        free(b->shards);
        free(b);
        return status;
    }
    b->webhooks = webhooks_new(&options->webhook);
    b->forwards = forwards_new(&options->webhook);
    uv_mutex_init(&b->backups_mutex);
    for (uint32_t i = 0; i < shard_count; i++) {
        shard_open(&b->shards[i], b, i, loops[i], b->engines[i]);
        b->shards[i].port = broker_port_open(b, loops[i]);
    }
    *out = b;
    return STATUS_OK;
}

/* Gives answers to their requests. An answer may be large, and it is copied here. So when the turn
 * has no time left, the rest are given in the next turn. */
static void on_answers(uv_async_t *async)
{
    struct broker_port *port = async->data;
    size_t given = 0;
    *port->answers_end = inbox_take(&port->inbox);
    while (port->answers && (given < SHARE_FREE || turn_us(port->loop) < TURN_SHARE_US)) {
        struct request *r = container_of(port->answers, struct request, mail);
        port->answers = r->mail.next;
        assert(r->tag != REQUEST_TAG); /* no shard has it any more */
        given += r->answer_len;
        r->done(r);
    }
    port->answers_end = &port->answers;
    while (*port->answers_end)
        port->answers_end = &(*port->answers_end)->next;
    if (port->answers)
        inbox_wake(&port->inbox);
}

struct broker_port *broker_port_open(struct broker *b, uv_loop_t *loop)
{
    struct broker_port *port = mem_zalloc(sizeof(*port));
    port->broker = b;
    port->loop = loop;
    port->answers_end = &port->answers;
    inbox_open(&port->inbox, loop, on_answers, port);
    port->next = b->ports;
    b->ports = port;
    return port;
}

void broker_submit(struct broker_port *port, struct request *r)
{
    struct broker *b = port->broker;
    uint32_t index = 0;
    assert(r->kind < REQUEST_KIND_COUNT);
    assert(r->done);
    assert(r->tag != REQUEST_TAG); /* else it is under way */
    if (r->kind != REQUEST_QUEUES)
        index = engine_shard_of(r->queue, strlen(r->queue), b->shard_count);
    struct shard *s = &b->shards[index];
    r->tag = REQUEST_TAG;
    r->port = port;
    r->shard = s;
    r->status = STATUS_OK;
    r->field[0] = r->detail[0] = '\0';
    r->created = false;
    r->count = 0;
    r->answer_len = 0;
    r->work = NULL;
    r->hangup_taken = r->answer_waits = false;
    atomic_store_explicit(&r->flags, 0, memory_order_relaxed);
    r->local = s->loop == port->loop;
    if (r->local)
        shard_take(s, r);
    else
        inbox_put(&s->inbox, &r->mail);
}

void broker_later(struct broker_port *port, struct request *r)
{
    assert(r->tag != REQUEST_TAG); /* the mail has one place for each request */
    assert(r->done);
    r->answer_len = SHARE_FREE; /* counts as a large answer, so that others get their turn */
    inbox_put(&port->inbox, &r->mail);
}

void broker_forward(struct broker_port *port, struct forward *f)
{
    assert(f->request->tag != REQUEST_TAG);
    assert(f->request->done);
    forwards_put(port->broker->forwards, port, f);
}

void broker_forward_cancel(struct broker_port *port, struct forward *f)
{
    forwards_cancel(port->broker->forwards, f);
}

bool broker_is_late(const struct broker_port *port)
{
    return turn_us(port->loop) >= TURN_SHARE_US;
}

/* A shard on another loop is told by mail that the client hung up. At the same time the shard may
 * answer the request, and the answer may free it. Whichever flag is set first decides: after
 * ANSWERED no mail is sent, and after HUNG_UP the shard keeps the answer until it has the mail. */
void broker_hangup(struct request *r)
{
    uint8_t before = atomic_fetch_or(&r->flags, REQUEST_HUNG_UP);
    if (r->local)
        shard_hangup(r);
    else if (!(before & (REQUEST_ANSWERED | REQUEST_HUNG_UP)) && !PLANTED(HANGUP_LOST))
        inbox_put(&r->shard->hangups, &r->hangup_mail);
}

void broker_drain(struct broker *b, uint32_t shard, void (*drained)(void *ctx), void *ctx)
{
    broker_backups_end(b);
    forwards_end(b->forwards);
    shard_drain(&b->shards[shard], drained, ctx);
}

static void ignore_close(uv_handle_t *handle)
{
    (void)handle;
}

void broker_close_handles(struct broker *b, uv_loop_t *loop)
{
    for (uint32_t i = 0; i < b->shard_count; i++) {
        struct shard *s = &b->shards[i];
        if (s->loop != loop)
            continue;
        inbox_close(&s->inbox, ignore_close);
        inbox_close(&s->hangups, ignore_close);
        uv_close((uv_handle_t *)&s->check, ignore_close);
        uv_close((uv_handle_t *)&s->timer, ignore_close);
        uv_close((uv_handle_t *)&s->idle, ignore_close);
    }
    for (struct broker_port *p = b->ports; p; p = p->next) {
        if (p->loop == loop)
            inbox_close(&p->inbox, ignore_close);
    }
}

void broker_close(struct broker *b)
{
    webhooks_free(b->webhooks);
    forwards_free(b->forwards);
    uv_mutex_destroy(&b->backups_mutex);
    engine_close(b->engines, b->shard_count);
    for (uint32_t i = 0; i < b->shard_count; i++)
        shard_free(&b->shards[i]);
    while (b->ports) {
        struct broker_port *p = b->ports;
        b->ports = p->next;
        uv_mutex_destroy(&p->inbox.mutex);
        free(p);
    }
    free(b->engines);
    free(b->shards);
    free(b);
}

enum status broker_health(struct broker *b, struct buf *detail)
{
    return engine_health(b->engines[0], detail);
}

const struct engine_kind *broker_engine_kind(const struct broker *b)
{
    return b->engines[0]->kind;
}

uint32_t broker_queue_count(struct broker *b)
{
    return atomic_load(&b->queue_count);
}

void broker_cell_each(struct broker *b, engine_cell_visit *visit, void *ctx)
{
    engine_cell_each(b->engines[0], visit, ctx);
}

const struct level_times *broker_level_times(const struct queue_facts *facts, uint8_t slot)
{
    assert(slot < LEVEL_COUNT_MAX);
    return facts->dispatcher->times[slot];
}

void broker_partition_each(const struct queue_facts *facts, engine_partition_visit *visit,
                           void *ctx)
{
    engine_partition_each(facts->dispatcher->shard->engine, facts->dispatcher->queue, visit, ctx);
}

bool broker_moves(const struct broker *b)
{
    return engine_has(b->engines[0], ENGINE_MOVES);
}

bool broker_speaks(struct broker *b)
{
    return engine_speaks(b->engines[0], clock_now());
}

bool broker_failed(struct broker *b)
{
    bool failed = false;
    for (uint32_t i = 0; i < b->shard_count; i++) {
        struct shard *s = &b->shards[i];
        uv_mutex_lock(&s->published_mutex);
        failed = failed || s->published_failed;
        uv_mutex_unlock(&s->published_mutex);
    }
    return failed;
}

static void add(uint64_t *to, const uint64_t *from, size_t size)
{
    for (size_t i = 0; i < size / sizeof(uint64_t); i++)
        to[i] += from[i];
}

void broker_counters(struct broker *b, struct broker_counters *counters,
                     struct engine_counters *engine)
{
    *counters = (struct broker_counters){0};
    *engine = (struct engine_counters){0};
    for (uint32_t i = 0; i < b->shard_count; i++) {
        struct shard *s = &b->shards[i];
        uv_mutex_lock(&s->published_mutex);
        add((uint64_t *)counters, (uint64_t *)&s->published, sizeof(*counters));
        add((uint64_t *)engine, (uint64_t *)&s->published_engine, sizeof(*engine));
        uv_mutex_unlock(&s->published_mutex);
    }
    counters->webhooks_lost = webhooks_lost(b->webhooks);
}
