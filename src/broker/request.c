#include "broker/shard.h"

#include <stdio.h>

/* A request in its shard: the lists it stands in, and how it ends. A request that has ended waits
 * in shard->finished; shard.c takes it from there and has it answered. */

/* Lists of requests */

void list_insert(struct request_list *l, struct request *r, struct request *before)
{
    assert(!r->next);
    assert(!r->prev);
    assert(l->first != r); /* it is in no list: in two it would be served twice */
    r->next = before;
    r->prev = before ? before->prev : l->last;
    *(r->prev ? &r->prev->next : &l->first) = r;
    *(before ? &before->prev : &l->last) = r;
}

void list_append(struct request_list *l, struct request *r)
{
    list_insert(l, r, NULL);
}

void list_remove(struct request_list *l, struct request *r)
{
    assert(r->prev ? r->prev->next == r : l->first == r); /* it is in this list */
    assert(r->next ? r->next->prev == r : l->last == r);
    *(r->prev ? &r->prev->next : &l->first) = r->next;
    *(r->next ? &r->next->prev : &l->last) = r->prev;
    r->next = r->prev = NULL;
}

/* Answers */

void request_finish(struct shard *s, struct request *r, enum status status)
{
    assert(r->tag == REQUEST_TAG);
    assert(r->shard == s);
    assert(!r->work || !r->work->parked); /* else it would get a message after its answer */
    r->status = status;
    const struct dispatcher *d = r->dispatcher;
    if (d && d->state == DISPATCHER_OPEN && config_moves(&d->queue->config))
        move_finish(d, r);
    list_append(&s->finished, r);
}

void request_refuse(struct shard *s, struct request *r, enum status status, const char *field,
                    const char *detail)
{
    snprintf(r->field, sizeof(r->field), "%s", field);
    snprintf(r->detail, sizeof(r->detail), "%s", detail);
    request_finish(s, r, status);
}

/* A request starts over when its queue was deleted under it. Each start is a round trip to the
 * database, so it may lose many races in a row against somebody who does nothing but delete; the
 * bound is there for a database that never gets it right. */
#define RESTARTS_MAX 100

/* As it came, but for the time that it has waited. */
static void start_over(struct shard *s, struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    assert(r->count == 0); /* nothing of it was done, so nothing is done twice */
    assert(d);
    assert(d->shard == s);
    if (d->state == DISPATCHER_OPEN && d->queue->gone)
        dispatcher_touched(d->queue);
    if (r->work && r->work->kind == WORK_CLAIM) {
        bool waits = r->work->timer.height > 0;
        int64_t left_ms = waits ? r->work->timer.key - s->now.mono_ms : 0;
        r->claim.wait_ms = left_ms > 0 ? left_ms : 0;
        r->op.visit = r->work->claim.visit;
    }
    work_free(s, r);
    r->dispatcher = NULL;
    dispatcher_unref(d);
    r->looked_up = false;
    if (r->kind == REQUEST_CONFIGURE)
        r->configure.stay = 0;
    r->restarts++;
    shard_take_again(s, r);
}

void request_conclude(struct shard *s, struct request *r, enum status status)
{
    bool gone = status == STATUS_QUEUE_NOT_FOUND && engine_has(s->engine, ENGINE_SHARED);
    if (gone && r->dispatcher && r->count == 0 && r->restarts < RESTARTS_MAX && !s->draining)
        start_over(s, r);
    else
        request_finish(s, r, status);
}

void request_give_back(struct shard *s, struct request *r)
{
    assert(r->tag == REQUEST_TAG); /* else it was answered before */
    assert(!r->work);
    assert(!r->dispatcher);
    assert(s->counters.under_way > 0);
    r->tag = 0;
    s->counters.under_way--;
    if (r->port->loop == s->loop)
        r->done(r);
    else
        inbox_put(&r->port->inbox, &r->mail);
}

void request_answer(struct shard *s, struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    work_free(s, r);
    r->dispatcher = NULL;
    if (d)
        dispatcher_unref(d);
    uint8_t before = r->local ? 0 : atomic_fetch_or(&r->flags, REQUEST_ANSWERED);
    assert(!(before & REQUEST_ANSWERED));
    if (before & REQUEST_HUNG_UP && !r->hangup_taken)
        r->answer_waits = true;
    else
        request_give_back(s, r);
}
