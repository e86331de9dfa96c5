/* The clocks of cells. Each cell has its own (engine.ahead_us), and a time means something only
 * together with the cell that it is from. The rule: what is compared, planned or shown of several
 * cells is on this process's clock. A time is translated where it comes out of a cell's view or
 * answer, and translated back where a plan or a place goes into a cell. Times in messages stay as
 * their cell has them, but for the ready time in a GET, which is the message's place.
 *
 *   cell a, 50 ms ahead    head 12:00:00.130  ──>  12:00:00.080 ┐
 *   cell b                 head 12:00:00.100  ──>  12:00:00.100 ┘ so a's head is the older one
 *   claim up to 12:00:00.090 on this clock    ──>  up to 12:00:00.140 in a
 */
#include "engine/cells/impl.h"

int64_t cell_ahead_ms(const struct cell *c)
{
    int64_t us = c->engine->ahead_us;
    return (us + (us < 0 ? -500 : 500)) / 1000;
}

/* The ends of time are no times: they are the same on every clock. */
static bool is_time(int64_t ms)
{
    return ms >= -TIME_MS_MAX && ms <= TIME_MS_MAX;
}

int64_t time_from_cell(const struct cell *c, int64_t ms)
{
    return is_time(ms) ? ms - cell_ahead_ms(c) : ms;
}

int64_t time_to_cell(const struct cell *c, int64_t ms)
{
    return is_time(ms) ? ms + cell_ahead_ms(c) : ms;
}

void plan_to_cell(const struct cell *c, struct plan *plan)
{
    if (cell_ahead_ms(c) == 0)
        return;
    plan->until_ms = time_to_cell(c, plan->until_ms);
    for (uint32_t i = 0; i < plan->lane_count; i++)
        plan->lanes[i].until_ms = time_to_cell(c, plan->lanes[i].until_ms);
}
