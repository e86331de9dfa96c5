/* The share that one queue has of the limits of a larger queue, of which it is a part: a number for
 * each limit. */
#ifndef TRIAGE_CORE_SHARE_H
#define TRIAGE_CORE_SHARE_H

#include "base/limits.h"
#include "core/view.h"

#include <stdint.h>

enum {
    SHARE_DEPTH,     /* max_depth */
    SHARE_BYTES,     /* max_bytes */
    SHARE_IN_FLIGHT, /* max_in_flight of the queue */
    SHARE_LEVEL,     /* … of the level with slot 0; the other slots follow */
    SHARE_COUNT = SHARE_LEVEL + LEVEL_COUNT_MAX
};

#define SHARE_WHOLE INT64_MAX /* as much as the configuration says */

/* What of a limit that is set a queue may use. `share` has SHARE_COUNT numbers; NULL: it stands
 * alone. */
static inline uint64_t share_limit(const uint64_t *share, int which, uint64_t limit)
{
    return share && share[which] < limit ? share[which] : limit;
}

/* How much of each limit a queue with this view uses. */
static inline void share_used(const struct queue_view *v, uint64_t used[SHARE_COUNT])
{
    used[SHARE_DEPTH] = v->ready + v->scheduled;
    used[SHARE_BYTES] = v->bytes;
    used[SHARE_IN_FLIGHT] = v->leased;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        used[SHARE_LEVEL + slot] = v->lanes[slot].leased;
}

#endif
