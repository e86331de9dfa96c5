#include "core/urgency.h"
#include "core/age.h"

#include <assert.h>

static int32_t degree_of(const struct queue_config *config, int rank)
{
    int steps = config->level_count - 1;
    assert(rank >= 0);
    assert(rank <= steps);
    return steps == 0 ? URGENCY_LEAST / 2 : rank * (URGENCY_LEAST / steps);
}

static int32_t head_degree(const struct queue_config *config, int rank, int64_t ready_ms,
                           int64_t now_ms)
{
    int64_t urgent_ms = age_urgent_ms(&config->levels[rank]);
    if (urgent_ms > 0 && age_between(config, ready_ms, now_ms) >= urgent_ms)
        return URGENCY_PROMISED;
    return degree_of(config, age_effective_rank(config, rank, ready_ms, now_ms));
}

bool urgency_before(const struct urgency *a, const struct urgency *b)
{
    return a->degree != b->degree ? a->degree < b->degree : a->ready_ms < b->ready_ms;
}

/* Only heads are compared: the oldest message of a level is its most urgent one. */
bool urgency_of(const struct queue_config *config, const struct queue_view *view, int max_rank,
                int64_t now_ms, struct urgency *out)
{
    bool any = false;
    assert(max_rank < config->level_count);
    if (config_closed(config) || policy_room(config, view) == 0)
        return false;
    for (int rank = 0; rank <= max_rank; rank++) {
        if (policy_claimable(config, view, rank) == 0)
            continue;
        int64_t ready_ms = view->lanes[config->levels[rank].slot].head_ms;
        struct urgency head = {head_degree(config, rank, ready_ms, now_ms), ready_ms};
        if (!any || urgency_before(&head, out))
            *out = head;
        any = true;
    }
    return any;
}

void urgency_cut(struct plan *plan, const struct queue_config *config, const struct urgency *least)
{
    uint32_t kept = 0;
    while (kept < plan->step_count && degree_of(config, plan->steps[kept].rank) < least->degree)
        kept++;
    if (kept < plan->step_count && degree_of(config, plan->steps[kept].rank) == least->degree) {
        const struct plan_step *last = &plan->steps[kept++];
        for (uint32_t i = 0; i < last->lane_count; i++) {
            struct plan_lane *lane = &plan->lanes[last->first_lane + i];
            if (lane->until_ms > least->ready_ms)
                lane->until_ms = least->ready_ms;
        }
    }
    assert(kept <= plan->step_count);
    plan->step_count = kept;
    plan->until_ms = least->ready_ms;
    if (kept > 0)
        plan->max_rank = plan->steps[kept - 1].rank;
}

bool urgency_orders(const struct policy *p)
{
    return p->kind == POLICY_STRICT && !p->promises;
}
