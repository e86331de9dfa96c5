/* How late it had been when the wall clock was set back. A message that was ready then stays ready,
 * also over a restart. A message that was put after that waits for its own time.
 *
 * The record of an untouched message does not say whether it was ready: that follows from its ready
 * time and the clock. So a queue keeps with its counters the latest time that it has seen, and for
 * each time that the clock was set back a peak: how late it had been, and which messages there were
 * by then. A peak is forgotten when the clock has come so far again. */
#ifndef TRIAGE_ENGINE_LOCAL_PEAK_H
#define TRIAGE_ENGINE_LOCAL_PEAK_H

#include <stdbool.h>
#include <stdint.h>

/* Known limit: a clock that is set back more often before it catches up loses the last but one. */
#define PEAKS_MAX 8

struct peak {
    int64_t wall_ms;
    uint64_t before_seq; /* the peak counts for messages with a smaller seq */
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

bool peaks_valid(const struct peaks *p); /* whether peaks from a disk keep the order above */

#endif
