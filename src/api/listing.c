/* A listing is asked for in steps. A message can take over a megabyte of JSON, so
 * each step asks for no more messages than are sure to fit what is left of the
 * budget; small messages only cost a few more steps. */
#include "api/call.h"
#include "api/encode.h"

static uint32_t step_limit(const struct call *c)
{
    size_t left = OUTPUT_BUDGET > c->out.len ? OUTPUT_BUDGET - c->out.len : 0;
    size_t sure = left / ENCODED_MESSAGE_MAX;
    uint32_t wanted = c->listing.limit - c->listing.shown;
    uint32_t room = call_room(c);
    wanted = wanted < room ? wanted : room;
    return sure < wanted ? (uint32_t)sure : wanted;
}

static void listing_step(struct call *c)
{
    call_count(c);
    c->listing.shown += c->request.op.list.found;
    bool wanted = c->request.op.list.more && !request_hung_up(&c->request);
    uint32_t limit = wanted ? step_limit(c) : 0;
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
