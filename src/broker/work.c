#include "base/mem.h"
#include "broker/shard.h"

#include <stdlib.h>

/* What a request needs while it is under way: its memory, and its timer. */

struct work *work_new(struct shard *s, struct request *r, enum work_kind kind)
{
    uint64_t ticket = ++s->next_ticket;
    struct work *w = mem_alloc(sizeof(*w) + order_node_extra(ticket));
    assert(r->tag == REQUEST_TAG);
    assert(r->shard == s);
    assert(!r->work); /* else its op or its place in line would be lost */
    assert(kind < WORK_KIND_COUNT);
    w->tag = WORK_TAG;
    w->kind = kind;
    w->request = r;
    w->parked = false;
    w->timer.tie = ticket;
    w->timer.height = 0;
    r->work = w;
    return w;
}

void work_set_timer(struct shard *s, struct work *w, int64_t mono_ms)
{
    assert(w->tag == WORK_TAG);
    if (w->timer.height > 0)
        order_remove(&s->timers, &w->timer);
    w->timer.key = mono_ms;
    if (mono_ms != INT64_MAX)
        order_insert(&s->timers, &w->timer);
}

/* What a work has allocated, by its kind; NULL: such a work has nothing. */
static void *owned_by(const struct work *w)
{
    switch (w->kind) {
    case WORK_CLAIM:
        return w->claim.items;
    case WORK_ESCALATION:
        return w->escalation.ids; /* and the items behind them */
    case WORK_EXPLANATION:
        return w->explanation.counts;
    case WORK_SHOW:
        return w->show.left;
    case WORK_STORE:
        return w->store.portions;
    default:
        return NULL;
    }
}

void work_free(struct shard *s, struct request *r)
{
    struct work *w = r->work;
    if (!w)
        return;
    assert(w->tag == WORK_TAG);
    assert(w->request == r);
    assert(!w->parked);                                      /* else a line leads to freed memory */
    assert(w->kind != WORK_SHOW || w->show.left_count == 0); /* their references were given back */
    assert(w->kind != WORK_STORE || w->store.out == 0);      /* the engine has none of its ops */
    work_set_timer(s, w, INT64_MAX);
    free(owned_by(w));
    w->tag = 0;
    free(w);
    r->work = NULL;
}
