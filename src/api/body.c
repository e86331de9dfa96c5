#include "api/body.h"

#define LARGE (1024 * 1024)

void body_init(struct body *b, struct call *c)
{
    const struct http_request *req = c->http;
    b->at = req->body_len > 0 ? req->body : "";
    b->end = b->at + req->body_len;
    b->memory = (struct buf){0};
    b->large = req->body_len > LARGE && http_body_take(c->http, &b->memory);
    b->doc = &c->api->doc;
    if (b->large) {
        json_init(&b->own);
        b->doc = &b->own;
    }
}

void body_fini(struct body *b)
{
    if (b->large)
        json_fini(&b->own);
    b->large = false;
    buf_fini(&b->memory);
}

/* Giving the memory back is a step of its own, because unmapping takes milliseconds. */
static enum body_step next_step(struct call *c)
{
    struct body *b = c->reading.body;
    if (c->reading.ended)
        return BODY_END;
    enum body_step step = c->reading.read(c);
    if (step != BODY_END || !b->large)
        return step;
    body_fini(b);
    c->reading.ended = true;
    return BODY_MORE;
}

static void go_on(struct request *r)
{
    struct call *c = call_of(r);
    enum body_step step;
    bool large = c->reading.body->large;
    while ((step = next_step(c)) == BODY_MORE) {
        if (large && broker_is_late(c->api->port)) {
            c->request.done = go_on;
            broker_later(c->api->port, &c->request);
            return;
        }
    }
    if (step == BODY_END)
        c->reading.then(c);
}

void body_read(struct call *c, struct body *b, body_reader *read, call_finish *then)
{
    c->reading.body = b;
    c->reading.read = read;
    c->reading.then = then;
    c->reading.ended = false;
    go_on(&c->request);
}
