/* Who gets which message: claims by the policy and by made-up plans, escalations, and counts. */
#include "sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Claim: mostly by the policy, sometimes by an odd plan that is still a plan. */

/* An engine that others use, too, keeps to the limits itself: no plan can ask for more. */
static void keep_to_limits(const struct sim_queue *q, struct plan *plan)
{
    const struct queue_config *c = &q->model.config;
    struct queue_view view = model_view(&q->model);
    uint64_t all = policy_room(c, &view);
    plan->want = plan->want < all ? plan->want : (uint32_t)all;
    for (int rank = 0; rank < c->level_count; rank++) {
        uint32_t room = policy_lane_room(c, &view, rank),
                 *asked = &plan->room[c->levels[rank].slot];
        *asked = *asked < room ? *asked : room;
    }
}

static void odd_plan(struct sim *s, struct sim_op *o, uint32_t want)
{
    const struct queue_config *c = &o->q->model.config;
    struct plan *plan = &o->plan;
    plan->want = want;
    plan->step_count = sim_pick(s, 6);
    plan->lane_count = 0;
    o->max_rank = plan->max_rank = c->level_count - 1;
    plan->policy = NULL;
    uint32_t lanes_max = c->level_count < 3 ? c->level_count : 3;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        plan->room[slot] = sim_chance(s, 70) ? UINT32_MAX : sim_pick(s, 4);
    if (s->shared)
        keep_to_limits(o->q, plan);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        plan->steps[i] = (struct plan_step){.max = (uint16_t)(1 + sim_pick(s, 5)),
                                            .found = 99,
                                            .first_lane = (uint16_t)plan->lane_count,
                                            .lane_count = (uint8_t)(1 + sim_pick(s, lanes_max))};
        uint32_t first = sim_pick(s, c->level_count);
        for (uint32_t k = 0; k < plan->steps[i].lane_count; k++) {
            uint8_t rank = (uint8_t)((first + k) % c->level_count);
            plan->lanes[plan->lane_count++] = (struct plan_lane){
                .until_ms = sim_chance(s, 60) ? INT64_MAX
                                              : s->rig.now.wall_ms - (int64_t)sim_pick(s, 20000),
                .bias_ms = sim_chance(s, 60) ? 0 : (int64_t)sim_pick(s, 20000),
                .slot = c->levels[rank].slot,
                .rank = rank,
            };
        }
    }
}

/* As the dispatcher does: an engine whose view may be old gets a plan that is right whatever there
 * is, and so are its claims, whoever else is in their group. */
static void policy_claim(struct sim *s, struct sim_op *o, uint32_t want)
{
    struct sim_queue *q = o->q;
    o->max_rank = (int)sim_pick(s, q->model.config.level_count);
    if (sim_chance(s, 50)) /* most consumers take everything, and share one row of buckets */
        o->max_rank = q->model.config.level_count - 1;
    const struct queue_view *view = s->shared ? NULL : &q->real->view;
    policy_plan(&q->policy, &q->model.config, view, o->max_rank, want, s->rig.now.wall_ms,
                &o->plan);
    bool sure = (o->alone || s->shared) && !model_has_expired(&q->model, s->rig.now);
    o->claim_by = sure ? SIM_BY_ORDER : SIM_BY_POLICY;
}

static void make_claim(struct sim *s, struct sim_op *o)
{
    uint32_t want = 1 + sim_pick(s, s->deep ? CLAIM_MAX : sim_chance(s, 10) ? 40 : 4);
    if (sim_chance(s, 40))
        want = 1;
    o->claim_by = SIM_BY_PLAN;
    if (sim_chance(s, 80) || (s->shared && !o->alone))
        policy_claim(s, o, want);
    else
        odd_plan(s, o, want);
    o->asked = o->plan;
    o->op.verb = ENGINE_CLAIM;
    o->op.claim.plan = &o->plan;
    o->op.claim.lease_ms = sim_chance(s, 80) ? -1 : (int64_t)sim_pick(s, 20000);
    const struct policy *p = &o->q->policy;
    sim_note(s, "%s claim %u up to rank %d in %u steps, lease %" PRId64 ", by %d (%s%s%s)",
             o->q->name, want, o->max_rank, o->plan.step_count, o->op.claim.lease_ms, o->claim_by,
             p->kind == POLICY_STRICT ? "strict" : "weighted", p->ages ? ", aging" : "",
             p->promises ? ", promises" : "");
}

static void judge_delivery(struct sim *s, struct sim_op *o, struct model_message *m, uint32_t n)
{
    model_lease(&o->q->model, m, o->op.claim.lease_ms, s->rig.now);
    sim_check(s, n < o->seen_count, "claim found %u, expected seq %" PRIu64 " too", o->seen_count,
              m->id.seq);
    const struct sim_seen *seen = &o->seen[n];
    sim_compare(s, seen, m);
    sim_check(s, !m->delivered || memcmp(seen->receipt, m->receipt, RECEIPT_BYTES) != 0,
              "seq %" PRIu64 ": the receipt is used again", m->id.seq);
    m->delivered = true;
    memcpy(m->receipt, seen->receipt, RECEIPT_BYTES);
    struct sim_past *past = &s->past[s->past_count++ % SIM_PAST];
    past->id = m->id;
    memcpy(past->receipt, m->receipt, RECEIPT_BYTES);
}

static struct model_message *next_of_step(struct sim *s, struct sim_op *o, struct plan_step *step)
{
    return step->found < step->max ? model_next_planned(&o->q->model, &o->asked, step, s->rig.now)
                                   : NULL;
}

/* The next message of the steps in turn, the first of which is given. A step is looked at when its
 * turn has come: to look ends what has outlived its time. */
static struct model_message *next_in_turn(struct sim *s, struct sim_op *o, uint32_t first,
                                          struct plan_step **from)
{
    struct model_queue *q = &o->q->model;
    struct plan_step *at[LEVEL_COUNT_MAX] = {0};
    for (uint32_t i = first; i < o->asked.step_count; i++)
        at[o->asked.steps[i].rank] = &o->asked.steps[i];
    for (;;) {
        uint32_t tokens[LEVEL_COUNT_MAX];
        memcpy(tokens, q->tokens[o->max_rank], sizeof(tokens));
        int rank = model_turn(q, o->max_rank, (const void *const *)at);
        struct model_message *m = rank >= 0 ? next_of_step(s, o, at[rank]) : NULL;
        *from = rank >= 0 ? at[rank] : NULL;
        if (m || rank < 0)
            return m;
        memcpy(q->tokens[o->max_rank], tokens, sizeof(tokens));
        at[rank] = NULL;
    }
}

/* The next message by the plan and the step that gives it, or NULL when there is none. */
static struct model_message *next_by_plan(struct sim *s, struct sim_op *o, struct plan_step **from)
{
    for (uint32_t i = 0; i < o->asked.step_count; i++) {
        *from = &o->asked.steps[i];
        if ((*from)->in_turn)
            return next_in_turn(s, o, i, from);
        struct model_message *m = next_of_step(s, o, *from);
        if (m)
            return m;
    }
    return NULL;
}

static uint32_t judge_by_plan(struct sim *s, struct sim_op *o)
{
    struct plan *plan = &o->asked;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->step_count; i++)
        plan->steps[i].found = 0;
    struct plan_step *step;
    for (struct model_message *m; n < plan->want && (m = next_by_plan(s, o, &step)); n++) {
        step->found++;
        plan->room[m->slot]--;
        judge_delivery(s, o, m, n);
    }
    for (uint32_t i = 0; i < plan->step_count; i++)
        sim_check(s, o->plan.steps[i].found == plan->steps[i].found,
                  "step %u found %u, expected %u", i, o->plan.steps[i].found, plan->steps[i].found);
    return n;
}

static uint32_t judge_by_order(struct sim *s, struct sim_op *o, uint32_t want)
{
    struct model_message *m;
    uint32_t n = 0;
    while (n < want && (m = model_pick(&o->q->model, o->max_rank, s->rig.now)))
        judge_delivery(s, o, m, n++);
    return n;
}

/* With nothing in between, a limit holds right after the claim that might have broken it. */
static void check_limits(struct sim *s, const struct sim_op *o)
{
    const struct model_queue *q = &o->q->model;
    const struct queue_view view = model_view(q);
    if (o->seen_count == 0) /* limits may have been lowered below what was there */
        return;
    sim_check(s, q->config.max_in_flight == 0 || view.leased <= q->config.max_in_flight,
              "%" PRIu64 " in flight, limit %u", view.leased, q->config.max_in_flight);
    for (uint32_t i = 0; i < o->seen_count; i++) {
        int rank = levels_rank_of_slot(&q->config, o->seen[i].slot);
        uint32_t limit = q->config.levels[rank].max_in_flight;
        uint64_t leased = view.lanes[o->seen[i].slot].leased;
        sim_check(s, limit == 0 || leased <= limit, "rank %d has %" PRIu64 " in flight, limit %u",
                  rank, leased, limit);
    }
}

/* Work conserving: what could have been found was, up to as many as were wanted. */
static void check_nothing_left(struct sim *s, struct sim_op *o, uint32_t found)
{
    struct model_queue *q = &o->q->model;
    uint32_t tokens[LEVEL_COUNT_MAX];
    memcpy(tokens, q->tokens[o->max_rank], sizeof(tokens));
    const struct model_message *m = model_pick(q, o->max_rank, s->rig.now);
    memcpy(q->tokens[o->max_rank], tokens, sizeof(tokens));
    sim_check(s, !m || found == o->asked.want, "claim found %u of %u, and left seq %" PRIu64, found,
              o->asked.want, m->id.seq);
}

static void judge_claim(struct sim *s, struct sim_op *o)
{
    sim_check(s, o->op.status == STATUS_OK, "claim: %s", status_name(o->op.status));
    bool policy = o->claim_by != SIM_BY_PLAN;
    bool sure = policy && o->alone && !model_has_expired(&o->q->model, s->rig.now);
    uint32_t n =
        o->claim_by == SIM_BY_ORDER ? judge_by_order(s, o, o->asked.want) : judge_by_plan(s, o);
    sim_check(s, o->seen_count == n, "claim showed %u, expected %u", o->seen_count, n);
    sim_check(s, o->op.claim.found == n, "claim found %u, expected %u", o->op.claim.found, n);
    if (policy && o->alone)
        sim_check(s,
                  memcmp(o->q->model.tokens[o->max_rank], o->q->policy.tokens[o->max_rank],
                         (size_t)(o->max_rank + 1) * sizeof(uint32_t)) == 0,
                  "claim up to rank %d leaves other tokens", o->max_rank);
    if (sure || s->shared)
        check_limits(s, o);
    if (sure)
        check_nothing_left(s, o, n);
}

/* Move. */

static void make_move(struct sim *s, struct sim_op *o)
{
    const struct queue_config *c = &o->q->model.config;
    o->op.verb = ENGINE_ESCALATE;
    o->op.escalate.items = o->moves;
    o->op.escalate.count = 1 + sim_pick(s, s->items_max);
    o->op.escalate.slot = c->levels[sim_pick(s, c->level_count)].slot;
    snprintf(o->reason, sizeof(o->reason), "anna%u", sim_pick(s, 1000));
    size_t len = strlen(o->reason);
    o->op.escalate.note = (struct escalate_note){.actor = o->reason,
                                                 .actor_len = 4,
                                                 .reason = o->reason + 4,
                                                 .reason_len = (uint16_t)(len - 4)};
    for (uint32_t i = 0; i < o->op.escalate.count; i++) {
        o->moves[i] = (struct escalate_item){.id = sim_any_id(s, o->q)};
        for (uint32_t k = 0; k < i; k++) { /* nobody names a message twice */
            if (o->moves[k].id.seq == o->moves[i].id.seq)
                o->op.escalate.count = i;
        }
    }
    sim_note(s, "%s move %u to slot %u, first seq %" PRIu64, o->q->name, o->op.escalate.count,
             o->op.escalate.slot, o->moves[0].id.seq);
}

static void judge_move(struct sim *s, struct sim_op *o)
{
    sim_check(s, o->op.status == STATUS_OK, "move: %s", status_name(o->op.status));
    for (uint32_t i = 0; i < o->op.escalate.count; i++) {
        const struct escalate_item *item = &o->moves[i];
        const struct model_message *m = model_find(&o->q->model, &item->id);
        uint8_t from = m ? m->slot : 0;
        bool changed;
        enum status want = model_move(&o->q->model, &item->id, o->op.escalate.slot, o->reason,
                                      s->rig.now, &changed);
        sim_check(s, item->status == want, "move item %u (seq %" PRIu64 "): %s, expected %s", i,
                  item->id.seq, status_name(item->status), status_name(want));
        if (want != STATUS_OK)
            continue;
        sim_check(s, item->changed == changed && item->from_slot == from && item->state == m->state,
                  "move item %u (seq %" PRIu64 "): changed %d from slot %u, %s", i, item->id.seq,
                  item->changed, item->from_slot, message_state_name(item->state));
    }
}

/* Count. */

static void make_count(struct sim *s, struct sim_op *o)
{
    const struct queue_config *c = &o->q->model.config;
    o->op.verb = ENGINE_COUNT;
    o->op.count.items = o->counts;
    o->op.count.count = 1 + sim_pick(s, 5);
    for (uint32_t i = 0; i < o->op.count.count; i++) {
        struct message_id at = sim_any_id(s, o->q);
        o->counts[i] = (struct count_item){.slot = c->levels[sim_pick(s, c->level_count)].slot,
                                           .ready_ms = sim_chance(s, 10) ? INT64_MAX : at.ready_ms,
                                           .seq = sim_chance(s, 50) ? at.seq : UINT64_MAX};
    }
    sim_note(s, "%s count %u", o->q->name, o->op.count.count);
}

static void judge_count(struct sim *s, struct sim_op *o)
{
    struct queue_view view = model_view(&o->q->model);
    sim_check(s, o->op.status == STATUS_OK, "count: %s", status_name(o->op.status));
    for (uint32_t i = 0; i < o->op.count.count; i++) {
        const struct count_item *item = &o->counts[i];
        uint64_t want = model_before(&o->q->model, item), all = view.lanes[item->slot].ready;
        sim_check(s, item->before <= all, "%" PRIu64 " before, of %" PRIu64, item->before, all);
        sim_check(s, !item->exact || item->before == want,
                  "slot %u: %" PRIu64 " before %" PRId64 ", expected %" PRIu64, item->slot,
                  item->before, item->ready_ms, want);
        sim_check(s, item->exact || s->rig.memory_limit, "an estimate of %" PRIu64, all);
    }
}

/* Position: what the engine counts and shows has to say when the model would claim it. */

static const struct model_message *any_ready(struct sim *s, const struct model_queue *q)
{
    for (uint32_t i = 0, at = sim_pick(s, MODEL_LIVE_MAX); i < q->count; i++) {
        const struct model_message *m = &q->messages[(at + i) % q->count];
        if (m->state == MESSAGE_READY)
            return m;
    }
    return NULL;
}

void sim_position(struct sim *s, struct sim_queue *q)
{
    const struct model_message *m = any_ready(s, &q->model);
    if (!m || model_has_expired(&q->model, s->rig.now))
        return;
    sim_note(s, "%s position of seq %" PRIu64, q->name, m->id.seq);
    bool exact;
    int rank = levels_rank_of_slot(&q->model.config, m->slot);
    uint64_t ahead = rig_position(&s->rig, q->real, &q->policy, rank,
                                  (struct place){m->ready_ms, m->id.seq}, &exact);
    uint64_t want = model_ahead(&q->model, &m->id, s->rig.now, POSITION_EXACT);
    q->met = true;
    sim_check(s, ahead < model_view(&q->model).ready, "%" PRIu64 " ahead of seq %" PRIu64, ahead,
              m->id.seq);
    sim_check(s, exact || want == POSITION_EXACT || s->rig.memory_limit,
              "an estimate of %" PRIu64 " ahead of seq %" PRIu64 ", expected %" PRIu64, ahead,
              m->id.seq, want);
    sim_check(s, !exact || ahead == want || want == POSITION_EXACT,
              "%" PRIu64 " ahead of seq %" PRIu64 ", expected %" PRIu64, ahead, m->id.seq, want);
}

const struct sim_verb sim_claim = {30, make_claim, judge_claim};
const struct sim_verb sim_move = {5, make_move, judge_move};
const struct sim_verb sim_count = {2, make_count, judge_count};
