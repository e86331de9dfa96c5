/* Claims that share a call. They all want the same levels. So one claim for the sum of them finds
 * the same messages, and these are dealt out to the claims in order. */
#include "engine/postgres/impl.h"

#include <stdio.h>
#include <string.h>

#define CALL_WANT_MAX 1000 /* messages: the whole answer of the database is in memory at once */

/* Whether no step and no lane of the plan has a limit of its own. */
static bool is_open(const struct plan *plan)
{
    bool open = true;
    for (uint32_t i = 0; open && i < plan->step_count; i++)
        open = plan->steps[i].max >= plan->want;
    for (uint32_t i = 0; open && i < plan->lane_count; i++)
        open = plan->room[plan->lanes[i].slot] == UINT32_MAX;
    return open;
}

static bool same_steps(const struct plan *a, const struct plan *b)
{
    bool same = a->step_count == b->step_count && a->lane_count == b->lane_count;
    for (uint32_t i = 0; same && i < a->step_count; i++) {
        const struct plan_step *x = &a->steps[i], *y = &b->steps[i];
        same = x->rank == y->rank && x->first_lane == y->first_lane &&
               x->lane_count == y->lane_count && x->in_turn == y->in_turn;
    }
    for (uint32_t i = 0; same && i < a->lane_count; i++)
        same = a->lanes[i].slot == b->lanes[i].slot && a->lanes[i].bias_ms == b->lanes[i].bias_ms;
    return same;
}

/* Whether two plans are for the same levels and end at the same place. They may have been made a
 * moment apart. */
static bool are_alike(const struct plan *a, const struct plan *b)
{
    return a->max_rank == b->max_rank && a->until_ms == b->until_ms && a->policy == b->policy &&
           is_open(a) && is_open(b) && same_steps(a, b);
}

static uint32_t wanted(const struct pg_call *c)
{
    uint32_t want = 0;
    for (uint32_t i = 0; i < c->op_count; i++)
        want += c->ops[i]->claim.plan->want;
    return want;
}

bool claims_fit(const struct pg_call *c, const struct plan *plan)
{
    return are_alike(c->ops[0]->claim.plan, plan) && wanted(c) + plan->want <= CALL_WANT_MAX;
}

/* Whether each step has one lane, and may take everything from it. */
static bool is_plain(const struct plan *plan)
{
    bool plain = is_open(plan);
    for (uint32_t i = 0; plain && i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        plain = step->lane_count == 1 && !step->in_turn &&
                plan->lanes[step->first_lane].until_ms == INT64_MAX;
    }
    return plain;
}

static void put_slots(struct params *p, const struct plan *plan)
{
    param_array(p, WIRE_INT2_ARRAY);
    for (uint32_t i = 0; i < plan->step_count; i++)
        element_int(p, WIRE_INT2, plan->lanes[plan->steps[i].first_lane].slot);
    param_array_end(p);
}

/* The tokens of the steps that are served in turn. */
static void put_tokens(struct params *p, const struct plan *plan, const uint32_t *tokens)
{
    param_array(p, WIRE_INT4_ARRAY);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].in_turn)
            element_int(p, WIRE_INT4, tokens[plan->steps[i].rank]);
        else
            element_null(p);
    }
    param_array_end(p);
}

static void put_steps(struct params *p, const struct plan *plan, uint32_t want)
{
    const struct policy *policy = plan->policy;
    param_array(p, WIRE_INT4_ARRAY); /* how many, for each step */
    for (uint32_t i = 0; i < plan->step_count; i++)
        element_int(p, WIRE_INT4, plan->steps[i].max >= plan->want ? want : plan->steps[i].max);
    param_array_end(p);
    put_tokens(p, plan, policy ? policy->tokens[plan->max_rank] : NULL);
    put_tokens(p, plan, policy ? policy->quota : NULL);
    param_array(p, WIRE_INT4_ARRAY); /* the lanes, each with its step */
    for (uint32_t i = 0; i < plan->step_count; i++)
        for (uint32_t k = 0; k < plan->steps[i].lane_count; k++)
            element_int(p, WIRE_INT4, i + 1);
    param_array_end(p);
}

/* The lanes of all steps, one after the other, numbered as in put_steps(). */
static void put_lanes(struct params *p, const struct plan *plan)
{
#define EACH_LANE(lane)                                                                            \
    for (uint32_t i = 0; i < plan->step_count; i++)                                                \
        for (const struct plan_lane *lane = &plan->lanes[plan->steps[i].first_lane],               \
                                    *stop = lane + plan->steps[i].lane_count;                      \
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
}

/* The limits of the plan. Those of the configuration are not sent: the database knows them. */
static void put_room(struct params *p, const struct plan *plan)
{
    if (is_open(plan)) {
        param_null(p, WIRE_INT8_ARRAY);
        return;
    }
    param_array(p, WIRE_INT8_ARRAY);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        if (plan->room[slot] < UINT32_MAX)
            element_int(p, WIRE_INT8, plan->room[slot]);
        else
            element_null(p);
    }
    param_array_end(p);
}

/* Whether another call of the job uses the same tokens. How many the first call leaves is known
 * only in the database when the second one runs, so the tokens are kept there. */
static bool shares_tokens(const struct pg_job *job, const struct pg_call *c)
{
    const struct plan *plan = c->ops[0]->claim.plan;
    for (const struct pg_call *other = job->calls; plan->policy && other; other = other->next) {
        const struct plan *its = other->kind == CALL_CLAIM ? other->ops[0]->claim.plan : NULL;
        if (other != c && its && its->policy == plan->policy && its->max_rank == plan->max_rank)
            return true;
    }
    return false;
}

static void put_bucket(struct params *p, const struct pg_job *job, const struct pg_call *c)
{
    char name[32];
    int len =
        snprintf(name, sizeof(name), "%u/%d", c->queue->face.id, c->ops[0]->claim.plan->max_rank);
    if (shares_tokens(job, c))
        param_text(p, name, (size_t)len);
    else
        param_null(p, WIRE_TEXT);
}

uint32_t claims_put(const struct pg_job *job, struct pg_call *c)
{
    /* The latest plan: in it messages are oldest. */
    const struct plan *plan = c->ops[c->op_count - 1]->claim.plan;
    uint32_t want = wanted(c);
    if (is_plain(plan)) {
        c->sql = "SELECT * FROM triage.engine_claim($1,$2,$3,$4,$5,$6,$7)";
        put_slots(&c->params, plan);
        return want;
    }
    c->sql = "SELECT * FROM "
             "triage.engine_claim_plan($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)";
    c->rules = plan->policy ? plan->policy->rules : 0;
    put_steps(&c->params, plan, want);
    put_lanes(&c->params, plan);
    put_room(&c->params, plan);
    put_bucket(&c->params, job, c);
    return want;
}
