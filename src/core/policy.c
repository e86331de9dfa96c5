#include "core/policy.h"
#include "base/plant.h"

#include <assert.h>

typedef void plan_fn(struct policy *p, const struct queue_config *config,
                     const struct queue_view *view, int max_rank, int64_t wall_ms,
                     struct plan *plan);

/* The most urgent level that has a ready message; in it the oldest. */
static void plan_strict(struct policy *p, const struct queue_config *config,
                        const struct queue_view *view, int max_rank, int64_t wall_ms,
                        struct plan *plan)
{
    (void)p;
    (void)wall_ms;
    uint64_t left = plan->want;
    for (int rank = 0; rank <= max_rank && left > 0; rank++) {
        uint8_t slot = config->levels[rank].slot;
        uint64_t take = view->lanes[slot].ready;
        if (take == 0 || (PLANTED(INVERTED) && rank == 0 && max_rank > 0))
            continue;
        if (take > left)
            take = left;
        plan->steps[plan->step_count++] = (struct plan_step){slot, (uint8_t)rank, (uint16_t)take};
        left -= take;
    }
}

static plan_fn *const planners[] = {[POLICY_STRICT] = plan_strict};

void policy_init(struct policy *p, const struct queue_config *config)
{
    *p = (struct policy){.kind = config->policy};
}

void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan)
{
    assert(want > 0);
    assert(want <= CLAIM_MAX);
    assert(max_rank < config->level_count);
    plan->want = want;
    plan->step_count = 0;
    planners[p->kind](p, config, view, max_rank, wall_ms, plan);
}

uint64_t policy_eligible(const struct queue_config *config, const struct queue_view *view,
                         int max_rank)
{
    uint64_t ready = 0;
    for (int rank = 0; rank <= max_rank; rank++)
        ready += view->lanes[config->levels[rank].slot].ready;
    return ready;
}
