#include "api/rate.h"

#include "base/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

struct rate {
    int64_t interval_ns;
    int64_t slack_ns; /* how far ahead of the even pace a burst may run */
    atomic_uint owners;
    _Atomic int64_t due_ns; /* when the next would be due at an even pace */
};

struct rate *rate_new(double per_second, double burst)
{
    assert(per_second > 0);
    assert(burst >= 1);
    struct rate *r = mem_zalloc(sizeof(*r));
    atomic_init(&r->owners, 1);
    r->interval_ns = per_second < 1e9 ? (int64_t)(1e9 / per_second) : 1;
    r->slack_ns = (int64_t)((double)r->interval_ns * (burst - 1));
    return r;
}

struct rate *rate_share(struct rate *r)
{
    if (r)
        atomic_fetch_add(&r->owners, 1);
    return r;
}

void rate_free(struct rate *r)
{
    if (r && atomic_fetch_sub(&r->owners, 1) == 1)
        free(r);
}

bool rate_take(struct rate *r, uint64_t now_us)
{
    int64_t now_ns = (int64_t)now_us * 1000;
    int64_t due = atomic_load_explicit(&r->due_ns, memory_order_relaxed);
    int64_t next;
    do {
        if (due - now_ns > r->slack_ns)
            return false;
        next = (due > now_ns ? due : now_ns) + r->interval_ns;
    } while (!atomic_compare_exchange_weak_explicit(&r->due_ns, &due, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}
