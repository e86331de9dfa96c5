/* How long the turns of an event loop take. A turn is the work between two waits: from when one
 * poll returns until the next begins. Everybody on the loop has to wait while a turn lasts.
 *
 * Measuring costs one look at the clock a turn. The start of a turn is libuv's own time, in whole
 * milliseconds: so a turn may be shown as up to a millisecond too long. */
#ifndef TRIAGE_BASE_TURN_H
#define TRIAGE_BASE_TURN_H

#include "base/durations.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define TURN_SLOW_US   10000
#define TURN_WINDOW_MS 60000
#define TURN_SHARE_US  4000 /* after so long, work that can wait is left to the next turn */

struct turn_counters {
    uint64_t turns;
    uint64_t slow;   /* longer than TURN_SLOW_US */
    uint64_t max_us; /* the longest of this minute and the one before */
    struct durations times;
};

struct turn_watch {
    uv_prepare_t prepare;
    uv_check_t check;
    uint64_t began_ms; /* 0: not begun */
    uint64_t window_ms;
    uint64_t clock_us;      /* turn_clock_us(); 0: not looked at yet */
    uint64_t cpu_us, waits; /* of the thread when it began; only with `detail` */
    bool detail;
    /* Written by the loop, read by anybody. */
    atomic_ullong turns, slow, max_us, max_before_us;
    struct shared_durations times; /* duration_works */
};

/* libuv runs the handle that was started last first. So init comes before, and start after, all
 * other prepare and check handles of this loop. With `detail` slow turns are logged with the
 * processor time that they took; that costs a system call a turn. */
void turn_watch_init(struct turn_watch *w, uv_loop_t *loop);
void turn_watch_start(struct turn_watch *w, bool detail);
void turn_watch_close(struct turn_watch *w);

void turn_watch_add(const struct turn_watch *w, struct turn_counters *sum); /* any thread */

/* How long the present turn has taken so far, by the same start. On the loop's thread. */
static inline int64_t turn_us(const uv_loop_t *loop)
{
    return (int64_t)(uv_hrtime() / 1000) - (int64_t)uv_now(loop) * 1000;
}

/* A clock for timing what a loop does many times a turn: it is looked at once for what a turn takes
 * in, and once for what it does after that. On the loop's thread; microseconds, monotonic. */
static inline uint64_t turn_clock_us(struct turn_watch *w)
{
    if (w->clock_us == 0)
        w->clock_us = uv_hrtime() / 1000;
    return w->clock_us;
}

/* Counts one turn. Called by the handles of turn_watch_start(); public for tests. */
void turn_watch_count(struct turn_watch *w, uint64_t took_us, uint64_t now_ms);

#endif
