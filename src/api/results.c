#include "api/results.h"

void results_fini(struct results *r)
{
    buf_fini(&r->errors);
}

void results_add_item(struct results *r)
{
    r->items++;
    r->ends[r->count++] = 0;
}

void results_add_problem(struct results *r, const struct problem *p)
{
    problem_put(&r->errors, p);
    r->ends[r->count++] = (uint32_t)r->errors.len;
}

void results_put_all(struct call *c, const struct results *r, results_put *put)
{
    struct buf *out = &c->out;
    uint32_t item = 0, from = 0;
    buf_lit(out, "{\"results\":[");
    for (uint32_t i = 0; i < r->count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        if (r->ends[i] == 0) {
            put(c, item++);
            continue;
        }
        buf_lit(out, "{\"error\":");
        buf_put(out, r->errors.data + from, r->ends[i] - from);
        buf_putc(out, '}');
        from = r->ends[i];
    }
    buf_putc(out, ']');
}

void results_reply(struct call *c, const struct results *r, results_put *put)
{
    results_put_all(c, r, put);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}
