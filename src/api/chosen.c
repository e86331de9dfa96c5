/* Messages that somebody has chosen by a filter: cancelled, or made ready before their time. */
#include "api/matching.h"

static void chosen_cleanup(struct call *c)
{
    match_fini(c->extra);
}

/* False: the call was refused. */
static bool chosen_read(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("filter", match_take_filter), MATCH_FIELDS};
    static const struct field_table table = FIELD_TABLE(specs);
    struct match_call *m = mem_zalloc(sizeof(*m));
    match_init(m, c);
    c->extra = m;
    c->cleanup = chosen_cleanup;
    return call_body(c, &table, m);
}

static void cancel_finish(struct call *c)
{
    match_answer(c, c->extra, "cancelled");
}

void cancel_many(struct call *c)
{
    if (!chosen_read(c))
        return;
    c->request.op.verb = ENGINE_PURGE;
    match_submit(c, c->extra, REQUEST_MATCHING, "scheduled and ready message", cancel_finish);
}

static void promote_finish(struct call *c)
{
    match_answer(c, c->extra, "promoted");
}

void promote_many(struct call *c)
{
    if (!chosen_read(c))
        return;
    struct match_call *m = c->extra;
    m->matching.filter.states = 1U << MESSAGE_SCHEDULED;
    c->request.op.verb = ENGINE_PROMOTE;
    match_submit(c, m, REQUEST_MATCHING, "scheduled message", promote_finish);
}
