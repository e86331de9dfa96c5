/* How long the turns of an event loop take. A turn is the work between two waits: from when the
 * poll returned until the next one begins. Everybody on the loop waits for as long.
 *
 * It costs one look at the clock a turn. The start is libuv's own time, in whole milliseconds: what
 * is shown may be up to one too long. */
#ifndef TRIAGE_BASE_TURN_H
#define TRIAGE_BASE_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define TURN_SLOW_US   10000
#define TURN_WINDOW_MS 60000
#define TURN_SHARE_US  4000 /* of one turn, after which work that can wait for the next one does */

struct turn_counters {
    uint64_t turns;
    uint64_t slow;   /* longer than TURN_SLOW_US */
    uint64_t max_us; /* the longest of this minute and the one before */
};

struct turn_watch {
    uv_prepare_t prepare;
    uv_check_t check;
    uint64_t began_ms; /* 0: not begun */
    uint64_t window_ms;
    uint64_t cpu_us, waits; /* of the thread when it began; only with `detail` */
    bool detail;
    /* Written by the loop, read by anybody. */
    atomic_ullong turns, slow, max_us, max_before_us;
};

/* libuv runs first what was started last. So init comes before, and start after, all else on this
 * loop that has handles of these kinds. With `detail` slow turns are logged, with the processor
 * time they took; that costs a system call. */
void turn_watch_init(struct turn_watch *w, uv_loop_t *loop);
void turn_watch_start(struct turn_watch *w, bool detail);
void turn_watch_close(struct turn_watch *w);

void turn_watch_add(const struct turn_watch *w, struct turn_counters *sum); /* any thread */

/* How long the turn has been going on, by the same start. On its loop's thread. */
static inline int64_t turn_us(const uv_loop_t *loop)
{
    return (int64_t)(uv_hrtime() / 1000) - (int64_t)uv_now(loop) * 1000;
}

/* One turn is over. turn_watch_start() has it called. */
void turn_watch_count(struct turn_watch *w, uint64_t took_us, uint64_t now_ms);

#endif
