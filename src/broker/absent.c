/* Claims that wait for a queue that does not exist yet. Consumers often start before producers, so
 * with auto_create on such a claim waits as it would for a message; the queue is made by its first
 * message or by a PUT, never by a claim. Claims of one name stand in one line. When the queue is
 * being made, or looked for, the line moves to the queue's dispatcher with the time that is left.
 *
 * In an engine that is shared another process may make the queue, and does not tell this one. So
 * the first of each line asks the engine again every LOOK_MS. */
#include "base/mem.h"
#include "broker/shard.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_MS 250

/* The claims that wait for one name. The line is in shard->absent while it has any. */
struct absent {
    char name[QUEUE_NAME_MAX + 1];
    struct request_list line;
};

static struct absent *absent_get(struct shard *s, const char *name)
{
    struct absent *a = map_get(&s->absent, name, strlen(name));
    if (a)
        return a;
    a = mem_zalloc(sizeof(*a));
    memcpy(a->name, name, strlen(name) + 1);
    map_put(&s->absent, a->name, strlen(a->name), a);
    return a;
}

/* Takes the claim out of its line, and removes the line after the last one. The timer is stopped,
 * too: it could go off before the claim is answered, and the claim would leave a second time. */
static void leave(struct request *r)
{
    struct shard *s = r->shard;
    struct absent *a = map_get(&s->absent, r->queue, strlen(r->queue));
    struct work *w = work_of(r, WORK_ABSENT);
    assert(a);
    assert(w->parked);
    assert(s->counters.waiting > 0);
    list_remove(&a->line, r);
    w->parked = false;
    work_set_timer(s, w, INT64_MAX);
    s->counters.waiting--;
    if (a->line.first)
        return;
    map_remove(&s->absent, a->name, strlen(a->name));
    free(a);
}

static void give_up(struct request *r, enum status status)
{
    leave(r);
    r->op.claim.found = 0;
    request_finish(r->shard, r, status);
}

static int64_t next_look_ms(const struct shard *s, const struct work *w)
{
    int64_t look_ms = s->now.mono_ms + LOOK_MS;
    return engine_has(s->engine, ENGINE_SHARED) && look_ms < w->absent.until_ms
               ? look_ms
               : w->absent.until_ms;
}

void absent_claim(struct shard *s, struct request *r)
{
    assert(r->kind == REQUEST_CLAIM);
    assert(!r->dispatcher);
    if (r->claim.wait_ms <= 0 || request_hung_up(r)) {
        r->op.claim.found = 0;
        request_finish(s, r, STATUS_OK);
        return;
    }
    struct work *w = work_new(s, r, WORK_ABSENT);
    w->absent.until_ms = s->now.mono_ms + r->claim.wait_ms;
    w->parked = true;
    list_append(&absent_get(s, r->queue)->line, r);
    s->counters.waiting++;
    work_set_timer(s, w, next_look_ms(s, w));
}

/* Takes the claim out of its line. It is then as it was when it came, with less time left to
 * wait. */
static void stand_up(struct request *r)
{
    struct shard *s = r->shard;
    int64_t left_ms = work_of(r, WORK_ABSENT)->absent.until_ms - s->now.mono_ms;
    leave(r);
    work_free(s, r);
    r->claim.wait_ms = left_ms > 0 ? left_ms : 0;
    r->looked_up = false;
}

void absent_join(struct dispatcher *d)
{
    struct absent *a;
    assert(d->state == DISPATCHER_OPENING); /* else nobody unparks them */
    while ((a = map_get(&d->shard->absent, d->name, strlen(d->name)))) {
        struct request *r = a->line.first;
        stand_up(r);
        r->dispatcher = d;
        dispatcher_ref(d);
        list_append(&d->parked, r);
    }
}

void absent_timeout(struct request *r)
{
    struct shard *s = r->shard;
    assert(work_of(r, WORK_ABSENT)->parked);
    if (work_of(r, WORK_ABSENT)->absent.until_ms <= s->now.mono_ms) {
        give_up(r, STATUS_OK);
        return;
    }
    creation_look_up(s, r->queue, NULL); /* the others of the line go along with it */
}

void absent_hangup(struct request *r)
{
    if (work_of(r, WORK_ABSENT)->parked)
        give_up(r, STATUS_OK);
}

void absent_end_all(struct shard *s)
{
    struct absent *a;
    for (size_t at = 0; (a = map_each(&s->absent, &at)); at = 0)
        give_up(a->line.first, STATUS_OK);
    assert(s->absent.count == 0);
}
