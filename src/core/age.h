/* How long a message has waited, as the policies count it: from its ready time on,
 * without the time its queue was paused.
 *
 * Nothing is stored and nothing is scanned. Inside a level messages stand by age,
 * so "has waited for T" is one cut-off time per level: all that were ready by then
 * have, all others have not. */
#ifndef TRIAGE_CORE_AGE_H
#define TRIAGE_CORE_AGE_H

#include "core/config.h"

/* Time from `from_ms` to `now_ms` in which the queue was not paused; 0 when `from_ms` is in the
 * future. */
int64_t age_between(const struct queue_config *config, int64_t from_ms, int64_t now_ms);

/* The latest ready time that has waited `wait_ms` by now. */
int64_t age_cutoff(const struct queue_config *config, int64_t now_ms, int64_t wait_ms);

/* The rank that a message counts as which is at `rank` and ready since `ready_ms`. */
int age_effective_rank(const struct queue_config *config, int rank, int64_t ready_ms,
                       int64_t now_ms);

/* Does it count as a more urgent level than its own? */
bool age_aged(const struct queue_config *config, int rank, int64_t ready_ms, int64_t now_ms);

/* From this wait on a message of the level goes before all others, so that it is claimed within
 * max_wait_ms; 0 when the level has no promise. */
int64_t age_urgent_ms(const struct level *level);

/* Has a message waited for longer than its level promises? */
bool age_late(const struct queue_config *config, int rank, int64_t ready_ms, int64_t now_ms);

/* Pauses or resumes, and remembers when. */
void age_pause(struct queue_config *config, bool paused, int64_t now_ms);

#endif
