/* A listing is fetched in steps, and ends when the page is full or has ANSWER_FULL bytes. A step is
 * a few messages, because an engine may read all messages of a step before it shows the first. */
#include "api/call.h"
#include "api/encode.h"

#define STEP_MAX 16

static uint32_t step_limit(const struct call *c)
{
    uint32_t wanted = c->listing.limit - c->listing.shown;
    uint32_t room = call_room(c);
    wanted = wanted < room ? wanted : room;
    return wanted < STEP_MAX ? wanted : STEP_MAX;
}

void listing_shown(struct call *c)
{
    struct engine_op *op = &c->request.op;
    c->request.answer_len = c->out.len;
    if (c->out.len >= ANSWER_FULL)
        op->list.limit = op->list.found + 1; /* `found` does not count the one just shown */
}

static void listing_step(struct call *c)
{
    call_count(c);
    c->listing.shown += c->request.op.list.found;
    bool wanted = c->request.op.list.more && !request_hung_up(&c->request);
    uint32_t limit = wanted && c->out.len < ANSWER_FULL ? step_limit(c) : 0;
    if (limit == 0) {
        c->listing.finish(c);
        return;
    }
    c->request.op.list.after = c->request.op.list.next;
    c->request.op.list.limit = limit;
    call_again(c);
}

void listing_start(struct call *c, call_finish *finish)
{
    if (!call_has_room(c))
        return;
    c->listing.shown = 0;
    c->listing.finish = finish;
    c->request.op.list.limit = step_limit(c);
    call_end_with_peer(c);
    call_submit(c, REQUEST_LIST, listing_step);
}

bool listing_take_limit(struct field *f, void *target)
{
    struct call *c = target;
    int64_t limit;
    if (!field_i64(f, 1, LIST_MAX, &limit))
        return false;
    c->listing.limit = (uint32_t)limit;
    return true;
}
