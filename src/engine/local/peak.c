#include "engine/local/peak.h"

static void drop_up_to(struct peaks *p, int64_t wall_ms)
{
    while (p->count > 0 && p->at[p->count - 1].wall_ms <= wall_ms)
        p->count--;
}

void peaks_see(struct peaks *p, int64_t wall_ms, uint64_t next_seq)
{
    if (wall_ms < p->seen_ms) {
        drop_up_to(p, p->seen_ms); /* the new one is about all that these are about */
        p->count -= p->count == PEAKS_MAX;
        p->at[p->count++] = (struct peak){p->seen_ms, next_seq};
    } else {
        drop_up_to(p, wall_ms);
    }
    p->seen_ms = wall_ms;
}

bool peaks_passed(const struct peaks *p, int64_t ready_ms, uint64_t seq)
{
    for (uint8_t i = 0; i < p->count; i++) {
        if (ready_ms <= p->at[i].wall_ms && seq < p->at[i].before_seq)
            return true;
    }
    return false;
}

bool peaks_valid(const struct peaks *p)
{
    int64_t above_ms = INT64_MAX;
    uint64_t from = 0;
    for (uint8_t i = 0; i < p->count; i++) {
        if (p->at[i].wall_ms >= above_ms || p->at[i].before_seq < from)
            return false;
        above_ms = p->at[i].wall_ms;
        from = p->at[i].before_seq;
    }
    return p->count == 0 || p->seen_ms < above_ms;
}
