/* How far the wall clock had come, for a queue whose clock was set back: what was ready by then
 * stays ready, also over a restart, and what was put since waits for its own time.
 *
 * A message that is as it was born does not say whether it was ready; its ready time and the clock
 * do. So a queue keeps with its counters how late it has seen the clock, and for each time that the
 * clock was set back how late it had been, and which messages there were. A peak is forgotten when
 * the clock has come so far again. */
#ifndef TRIAGE_ENGINE_LOCAL_PEAK_H
#define TRIAGE_ENGINE_LOCAL_PEAK_H

#include <stdbool.h>
#include <stdint.h>

/* Known limit: a clock that is set back more often before it catches up loses the last but one. */
#define PEAKS_MAX 8

struct peak {
    int64_t wall_ms;
    uint64_t before_seq; /* it is about messages before this one */
};

struct peaks {
    int64_t seen_ms; /* the clock as it was last seen */
    uint8_t count;
    struct peak at[PEAKS_MAX]; /* each earlier than the one before, and about more messages */
};

/* The clock is seen. `next_seq`: of the first message that is not there yet. */
void peaks_see(struct peaks *p, int64_t wall_ms, uint64_t next_seq);

/* Whether a message had become ready before the clock was set back. */
bool peaks_passed(const struct peaks *p, int64_t ready_ms, uint64_t seq);

bool peaks_valid(const struct peaks *p); /* as above; for what was read from a disk */

#endif
