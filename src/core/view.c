#include "core/view.h"

void queue_view_used(const struct queue_view *view, bool used[LEVEL_COUNT_MAX])
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane_view *v = &view->lanes[slot];
        used[slot] = v->ready + v->scheduled + v->leased + v->dead > 0;
    }
}
