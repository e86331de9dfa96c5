/* Claims that share a call: first what each plan took tokens for, in order; then, for whoever got
 * too little, what all of them would take instead. */
#include "engine/postgres/impl.h"

#define MERGED_MAX (PLAN_STEPS_MAX * 4)

struct merged {
    struct plan_step steps[MERGED_MAX];
    const struct plan *plans[MERGED_MAX]; /* whose lanes a step names */
    uint32_t count;
    uint32_t want;
    const uint32_t *room; /* of a claim alone, by slot; or NULL */
};

static bool same_lanes(const struct plan *a, const struct plan_step *x, const struct plan *b,
                       const struct plan_step *y)
{
    if (x->rank != y->rank || x->lane_count != y->lane_count || x->tokens != y->tokens)
        return false;
    for (uint32_t i = 0; i < x->lane_count; i++) {
        const struct plan_lane *l = &a->lanes[x->first_lane + i], *m = &b->lanes[y->first_lane + i];
        if (l->slot != m->slot || l->until_ms != m->until_ms || l->bias_ms != m->bias_ms)
            return false;
    }
    return true;
}

static void merge_step(struct merged *all, uint32_t from, const struct plan *plan,
                       const struct plan_step *step, uint32_t max)
{
    for (uint32_t i = from; i < all->count; i++) {
        if (same_lanes(all->plans[i], &all->steps[i], plan, step)) {
            all->steps[i].max = (uint16_t)(all->steps[i].max + max);
            return;
        }
    }
    all->steps[all->count] = *step;
    all->steps[all->count].max = (uint16_t)max;
    all->plans[all->count++] = plan;
}

static void merge_claims(const struct call *c, struct merged *all)
{
    all->count = all->want = 0;
    all->room = c->op_count == 1 ? c->ops[0]->claim.plan->room : NULL;
    for (uint32_t o = 0; o < c->op_count; o++) {
        const struct plan *plan = c->ops[o]->claim.plan;
        all->want += plan->want;
        for (uint32_t i = 0; i < plan->step_count; i++) {
            const struct plan_step *step = &plan->steps[i];
            uint32_t from = all->count > 0 ? all->count - 1 : 0; /* only with the one before */
            if (step->tokens == TOKENS_TAKEN)
                merge_step(all, from, plan, step, step->max);
        }
    }
    uint32_t from = all->count;
    for (uint32_t o = 0; o < c->op_count; o++) {
        const struct plan *plan = c->ops[o]->claim.plan;
        for (uint32_t i = 0; i < plan->step_count; i++) {
            if (plan->steps[i].tokens != TOKENS_TAKEN)
                merge_step(all, from, plan, &plan->steps[i], plan->want);
        }
    }
}

/* One lane in each step, and all that is wanted from it. */
static bool plain(const struct merged *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const struct plan_step *step = &all->steps[i];
        const struct plan_lane *lane = &all->plans[i]->lanes[step->first_lane];
        if (step->lane_count != 1 || step->max < all->want || lane->until_ms != INT64_MAX ||
            (all->room && all->room[lane->slot] < UINT32_MAX))
            return false;
    }
    return true;
}

static void put_slots(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < all->count; i++)
        element_int(p, WIRE_INT2, all->plans[i]->lanes[all->steps[i].first_lane].slot);
    param_array_end(p);
}

/* The configuration's own limits are kept to by the database; a plan may have others. */
static void put_room(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT8_ARRAY);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        if (all->room && all->room[slot] < UINT32_MAX)
            element_int(p, WIRE_INT8, all->room[slot]);
        else
            element_null(p);
    }
    param_array_end(p);
}

static void put_lanes(struct params *p, const struct merged *all)
{
    param_array(p, WIRE_INT4_ARRAY); /* how many, by step */
    for (uint32_t i = 0; i < all->count; i++)
        element_int(p, WIRE_INT4, all->steps[i].max);
    param_array_end(p);
    param_array(p, WIRE_INT4_ARRAY); /* the lanes, each with its step */
    for (uint32_t i = 0; i < all->count; i++)
        for (uint32_t k = 0; k < all->steps[i].lane_count; k++)
            element_int(p, WIRE_INT4, i + 1);
    param_array_end(p);
#define EACH_LANE(lane)                                                                            \
    for (uint32_t i = 0; i < all->count; i++)                                                      \
        for (const struct plan_lane *lane = &all->plans[i]->lanes[all->steps[i].first_lane],       \
                                    *stop = lane + all->steps[i].lane_count;                       \
             lane < stop; lane++)
    param_array(p, WIRE_INT2_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT2, lane->slot);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT8, lane->until_ms);
    param_array_end(p);
    param_array(p, WIRE_INT8_ARRAY);
    EACH_LANE(lane) element_int(p, WIRE_INT8, lane->bias_ms);
    param_array_end(p);
#undef EACH_LANE
    put_room(p, all);
}

/* What a call finds is dealt out in order: only claims that may have the same levels share one. */
bool claims_fit(const struct call *c, const struct plan *plan)
{
    if (c->ops[0]->claim.plan->max_rank != plan->max_rank)
        return false;
    uint32_t steps = plan->step_count;
    for (uint32_t i = 0; i < c->op_count; i++)
        steps += c->ops[i]->claim.plan->step_count;
    return steps <= MERGED_MAX;
}

uint32_t claims_put(struct call *c)
{
    struct merged all;
    merge_claims(c, &all);
    if (plain(&all)) {
        c->sql = "SELECT * FROM triage.engine_claim($1,$2,$3,$4,$5,$6,$7)";
        put_slots(&c->params, &all);
    } else {
        c->sql = "SELECT * FROM "
                 "triage.engine_claim_lanes($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12)";
        put_lanes(&c->params, &all);
    }
    return all.want;
}
