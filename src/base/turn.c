#define _GNU_SOURCE /* RUSAGE_THREAD */
#include "base/turn.h"
#include "base/log.h"

#include <sys/resource.h>
#include <time.h>

static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* How often the thread gave up the processor. It does so once a turn, when it waits for events. */
static uint64_t waits(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? (uint64_t)u.ru_nvcsw : 0;
}

static void raise_to(atomic_ullong *max, uint64_t value)
{
    if (value > atomic_load_explicit(max, memory_order_relaxed))
        atomic_store_explicit(max, value, memory_order_relaxed);
}

static void add_one(atomic_ullong *to)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* After a minute the longest turn becomes that of the minute before. After two minutes it is
 * dropped. */
static void turn_window(struct turn_watch *w, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms - w->window_ms;
    if (passed_ms < TURN_WINDOW_MS)
        return;
    uint64_t last = passed_ms < 2 * (uint64_t)TURN_WINDOW_MS
                        ? atomic_load_explicit(&w->max_us, memory_order_relaxed)
                        : 0;
    atomic_store_explicit(&w->max_before_us, last, memory_order_relaxed);
    atomic_store_explicit(&w->max_us, 0, memory_order_relaxed);
    w->window_ms = now_ms;
}

void turn_watch_count(struct turn_watch *w, uint64_t took_us, uint64_t now_ms)
{
    turn_window(w, now_ms);
    add_one(&w->turns);
    raise_to(&w->max_us, took_us);
    shared_durations_add(&w->times, &duration_works, took_us);
    if (took_us > TURN_SLOW_US)
        add_one(&w->slow);
}

static void on_check(uv_check_t *check)
{
    struct turn_watch *w = check->data;
    w->began_ms = uv_now(check->loop);
    w->clock_us = 0;
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct turn_watch *w = prepare->data;
    uint64_t now_us = uv_hrtime() / 1000;
    w->clock_us = 0;
    if (w->began_ms > 0)
        turn_watch_count(w, now_us - w->began_ms * 1000, now_us / 1000);
    if (!w->detail)
        return;
    uint64_t cpu = cpu_us(), waited = waits(), took_us = now_us - w->began_ms * 1000;
    if (w->began_ms > 0 && took_us > TURN_SLOW_US)
        log_debug("slow turn", "took_us=%llu cpu_us=%llu waits=%llu", (unsigned long long)took_us,
                  (unsigned long long)(cpu - w->cpu_us), (unsigned long long)(waited - w->waits));
    w->cpu_us = cpu;
    w->waits = waited;
}

void turn_watch_init(struct turn_watch *w, uv_loop_t *loop)
{
    uv_prepare_init(loop, &w->prepare);
    uv_check_init(loop, &w->check);
    w->prepare.data = w->check.data = w;
    uv_prepare_start(&w->prepare, on_prepare);
}

void turn_watch_start(struct turn_watch *w, bool detail)
{
    w->detail = detail;
    uv_check_start(&w->check, on_check);
}

void turn_watch_close(struct turn_watch *w)
{
    uv_close((uv_handle_t *)&w->prepare, NULL);
    uv_close((uv_handle_t *)&w->check, NULL);
}

void turn_watch_add(const struct turn_watch *w, struct turn_counters *sum)
{
    uint64_t max = atomic_load_explicit(&w->max_us, memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&w->max_before_us, memory_order_relaxed);
    sum->turns += atomic_load_explicit(&w->turns, memory_order_relaxed);
    sum->slow += atomic_load_explicit(&w->slow, memory_order_relaxed);
    if (before > max)
        max = before;
    if (max > sum->max_us)
        sum->max_us = max;
    shared_durations_sum(&w->times, &sum->times);
}
