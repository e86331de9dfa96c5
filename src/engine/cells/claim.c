/* Claims: the heads of all partitions are merged.
 *
 * A plan has steps, the most urgent first. A claim goes by rounds. Each round looks for the first
 * step for which a partition is known to have something, and asks the partitions that have it, side
 * by side. A partition is asked for that step and for everything before it; for less urgent steps
 * only as far as no other partition is known to have something for them. So nothing less urgent
 * is taken while something more urgent is known elsewhere.
 *
 * What is not known is what others put into a cell since it was looked at last. Each claim has the
 * other partitions looked at on its way, so that this time is short: it is the window W of
 * docs/scaling.md (window.c measures it). A claim that comes after a pause waits for such a look,
 * so that W has a bound. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 64
#define STALE_MS   40 /* a claim waits for a look at heads that are known from longer ago */

/* What is known */

static const struct plan *plan_of(const struct trip *t)
{
    return t->op->claim.plan;
}

static uint64_t lane_known(const struct partition *p, const struct plan_lane *lane)
{
    const struct lane_view *v = &p->q->view.lanes[lane->slot];
    return v->ready > 0 && time_from_cell(p->cell, v->head_ms) <= lane->until_ms ? v->ready : 0;
}

static uint64_t step_known(const struct partition *p, const struct plan *plan, uint32_t step)
{
    const struct plan_step *s = &plan->steps[step];
    uint64_t known = 0;
    if (!partition_serves(p) || s->found >= s->max)
        return 0;
    for (uint32_t i = 0; i < s->lane_count; i++)
        known += lane_known(p, &plan->lanes[s->first_lane + i]);
    return known;
}

/* Where the first message of a step stands in a partition. */
static struct place step_head(const struct partition *p, const struct plan *plan, uint32_t step)
{
    const struct plan_step *s = &plan->steps[step];
    struct place best = {INT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < s->lane_count; i++) {
        const struct plan_lane *lane = &plan->lanes[s->first_lane + i];
        const struct lane_view *v = &p->q->view.lanes[lane->slot];
        struct place at = {time_from_cell(p->cell, v->head_ms) + lane->bias_ms, v->head_seq};
        if (lane_known(p, lane) > 0 &&
            (at.ready_ms < best.ready_ms || (at.ready_ms == best.ready_ms && at.seq < best.seq)))
            best = at;
    }
    return best;
}

static bool place_before(struct place a, struct place b)
{
    return a.ready_ms != b.ready_ms ? a.ready_ms < b.ready_ms : a.seq < b.seq;
}

/* What a claim may count on: a partition that was asked for a step, and had nothing, is not asked
 * for it again, whatever the view says. */
static uint64_t hoped_for(const struct trip *t, const struct partition *p, uint32_t step)
{
    return step < t->barren[p->cell->number] ? 0 : step_known(p, plan_of(t), step);
}

/* The first step for which somebody has something; step_count: none. */
static uint32_t first_known(const struct trip *t)
{
    const struct plan *plan = plan_of(t);
    for (uint32_t step = 0; step < plan->step_count; step++) {
        for (uint32_t i = 0; i < t->cells->cell_count; i++) {
            if (hoped_for(t, &t->whole->partitions[i], step) > 0)
                return step;
        }
    }
    return plan->step_count;
}

static bool known_elsewhere(const struct trip *t, const struct partition *p, uint32_t step)
{
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        const struct partition *other = &t->whole->partitions[i];
        if (other != p && hoped_for(t, other, step) > 0)
            return true;
    }
    return false;
}

/* Up to which step a partition may be asked: steps in turn are asked for together, or not at all.
 */
static uint32_t last_alone(const struct trip *t, const struct partition *p, uint32_t step)
{
    const struct plan *plan = plan_of(t);
    uint32_t end = step;
    for (uint32_t i = step; i < plan->step_count; i++) {
        if (known_elsewhere(t, p, i))
            return end;
        bool whole = !plan->steps[i].in_turn || i + 1 == plan->step_count;
        end = whole ? i + 1 : end;
    }
    return end;
}

/* Ends */

static void claim_finish(struct trip *t)
{
    struct whole *w = t->whole;
    const struct engine_op *op = t->op;
    bool turn = w->claiming == t;
    enum status status = op->claim.found > 0 ? STATUS_OK : t->status;
    if (turn)
        w->claiming = NULL;
    if (op->outdated && op->claim.found == 0)
        trip_outdated(t);
    else {
        t->op->outdated = false;
        trip_finish(t, status);
    }
    if (turn)
        claims_next(w);
}

/* Cells that hesitate */

static bool known_without_them(const struct trip *t)
{
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        const struct partition *p = &t->whole->partitions[i];
        for (uint32_t step = 0; !p->cell->hesitates && step < plan_of(t)->step_count; step++) {
            if (hoped_for(t, p, step) > 0)
                return true;
        }
    }
    return false;
}

/* What they have is passed over: they are taken for cells that have nothing. */
static void pass_over(struct trip *t)
{
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        if (t->cells->cells[i].hesitates)
            t->barren[i] = UINT8_MAX;
    }
}

static bool waits_for_them_alone(const struct trip *t)
{
    for (const struct cell_part *p = t->parts; p; p = p->next) {
        if (!p->cell->hesitates || !p->droppable)
            return false;
    }
    return true;
}

static struct trip *first_held(const struct cell *cell)
{
    for (const struct cell_part *p = cell->parts; p; p = p->cell_next) {
        struct trip *t = p->trip;
        if (t && t->op->verb == ENGINE_CLAIM && t->barren && waits_for_them_alone(t) &&
            (t->op->claim.found > 0 || known_without_them(t)))
            return t;
    }
    return NULL;
}

bool claims_leave(struct cell *cell)
{
    bool any = false;
    for (struct trip *t; (t = first_held(cell)); any = true) {
        pass_over(t);
        t->fresh = false; /* if others were faster, all are asked once more */
        t->submitting = true;
        while (t->parts)
            part_leave(t->parts);
        t->submitting = false;
        t->then(t);
    }
    return any;
}

/* Parts */

static void keep_stray(struct cell_part *p, const struct engine_queue *q, const struct message *m)
{
    if (!p->stray)
        p->stray = mem_alloc(p->op.claim.plan->want * sizeof(p->stray[0]));
    struct settle_item *item = &p->stray[p->stray_count++];
    *item = (struct settle_item){.id = message_identity(m, q->id)};
    memcpy(item->receipt, m->delivery->receipt, RECEIPT_BYTES);
}

static void show(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    struct cell_part *p = part_of(op);
    if (!p->trip) {
        keep_stray(p, q, m);
        return;
    }
    p->droppable = false; /* what was shown is the caller's */
    uint32_t *room = &p->trip->op->claim.plan->room[m->slot];
    *room -= *room != UINT32_MAX && *room > 0;
    if (p->trip->op->visit)
        p->trip->op->visit(p->trip->op, q, m, now);
}

/* Its cell answered when nobody waited any more: the messages go back to their places. */
static void release_stray(struct cell_part *p)
{
    if (p->stray_count == 0 || !p->partition->q || p->partition->q->gone ||
        p->partition->whole->deleting)
        return;
    struct cell_part *back = part_new_alone(p->cells, p->cell, p->partition);
    back->op.verb = ENGINE_RELEASE;
    back->items = p->stray;
    back->op.settle.items = p->stray;
    back->op.settle.count = p->stray_count;
    p->stray = NULL;
    p->cells->base.counters.own[COUNT_STRAY] += p->stray_count;
    part_submit(back);
}

static void claimed(struct cell_part *p)
{
    struct trip *t = p->trip;
    struct plan *mine = p->op.claim.plan;
    p->partition->sought -= p->sought;
    if (!t) {
        release_stray(p);
        return;
    }
    struct plan *plan = t->op->claim.plan;
    t->op->outdated = t->op->outdated || p->op.outdated;
    if (p->op.status || p->op.claim.found == 0)
        t->barren[p->cell->number] = (uint8_t)(p->from + mine->step_count);
    if (p->op.status == STATUS_ENGINE_UNAVAILABLE)
        t->status = p->op.status;
    if (p->op.status)
        return;
    t->op->claim.found += p->op.claim.found;
    for (uint32_t i = 0; i < mine->step_count; i++)
        plan->steps[p->from + i].found += mine->steps[i].found;
    window_took(p, plan);
}

/* The steps `from` … `end` - 1 of the caller's plan. */
static void copy_steps(const struct plan *plan, uint32_t from, uint32_t end, struct plan *mine)
{
    mine->step_count = end - from;
    mine->lane_count = 0;
    mine->policy = NULL;
    for (uint32_t i = from; i < end; i++) {
        struct plan_step *s = &mine->steps[i - from];
        *s = plan->steps[i];
        s->max -= s->found;
        s->found = 0;
        s->first_lane = (uint16_t)mine->lane_count;
        memcpy(&mine->lanes[mine->lane_count], &plan->lanes[plan->steps[i].first_lane],
               s->lane_count * sizeof(mine->lanes[0]));
        mine->lane_count += s->lane_count;
        if (s->in_turn)
            mine->policy = plan->policy;
    }
}

/* The limits are for all partitions together: no partition may use what is left by itself alone. */
static void limit(const struct trip *t, const struct partition *p, struct plan *mine)
{
    const struct queue_config *config = &t->whole->face.config;
    if (!cell_is_live(p->cell) && t->whole->there == 1)
        return; /* it keeps them itself */
    for (int rank = 0; rank < config->level_count; rank++) {
        uint32_t room = policy_lane_room(config, &t->whole->face.view, rank);
        uint32_t *mine_room = &mine->room[config->levels[rank].slot];
        *mine_room = room < *mine_room ? room : *mine_room;
    }
    uint64_t room = policy_room(config, &t->whole->face.view);
    mine->want = room < mine->want ? (uint32_t)room : mine->want;
}

static struct cell_part *claim_part(struct trip *t, struct partition *p, uint32_t from,
                                    uint32_t end, uint32_t want)
{
    const struct plan *plan = plan_of(t);
    struct cell_part *part = part_new(t, p->cell, p);
    struct plan *mine = part->items = mem_alloc(sizeof(*mine));
    mine->want = want;
    mine->max_rank = plan->max_rank;
    mine->until_ms = plan->until_ms;
    memcpy(mine->room, plan->room, sizeof(mine->room));
    copy_steps(plan, from, end, mine);
    limit(t, p, mine);
    part->from = from;
    part->sought = want;
    p->sought += want;
    part->droppable = true;
    part->op.visit = show;
    part->op.claim.plan = mine;
    part->op.claim.lease_ms = t->op->claim.lease_ms;
    part->op.claim.found = 0;
    part->done = claimed;
    return part;
}

static void claim_submit(struct cell_part *part)
{
    plan_to_cell(part->cell, part->op.claim.plan);
    part_submit(part);
}

/* Rounds */

static void claim_round(struct trip *t);

static uint32_t left_of(const struct trip *t)
{
    return plan_of(t)->want - t->op->claim.found;
}

static struct partition *oldest(const struct trip *t, uint32_t step)
{
    struct partition *best = NULL;
    struct place at = {0};
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (hoped_for(t, p, step) == 0)
            continue;
        struct place head = step_head(p, plan_of(t), step);
        if (!best || place_before(head, at)) {
            best = p;
            at = head;
        }
    }
    return best;
}

/* Of the partitions that have something for a step, the one that claims under way want the least
 * of; of equals the one whose head is the oldest. Many claims at once see the same heads: if all
 * went to the oldest, one cell would work and the others wait. */
static struct partition *idlest(const struct trip *t, uint32_t step)
{
    struct partition *best = oldest(t, step);
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (hoped_for(t, p, step) > p->sought && p->sought < best->sought)
            best = p;
    }
    return best;
}

static bool has_limits(const struct queue_config *config, const struct plan *plan)
{
    bool limits = config->max_in_flight > 0;
    for (int rank = 0; rank < config->level_count && rank <= plan->max_rank; rank++) {
        const struct level *l = &config->levels[rank];
        limits = limits || l->max_in_flight > 0 || plan->room[l->slot] != UINT32_MAX;
    }
    return limits;
}

/* From one partition alone. */
static void ask_one(struct trip *t, struct partition *p, uint32_t step, uint32_t end)
{
    const struct plan_step *s = &plan_of(t)->steps[step];
    uint32_t want = left_of(t), most = (uint32_t)(s->max - s->found);
    if (end == 1 && most < want)
        want = most;
    claim_submit(claim_part(t, p, 0, end, want));
}

/* A step that several partitions have something for: each gives as much as it has of all that is
 * known, the oldest first when that does not come out even. */
static void ask_several(struct trip *t, uint32_t step)
{
    const struct plan *plan = plan_of(t);
    uint64_t *known = mem_alloc(t->cells->cell_count * sizeof(known[0])), all = 0;
    uint32_t *share = mem_alloc(t->cells->cell_count * sizeof(share[0]));
    uint32_t want = left_of(t), given = 0;
    uint32_t most = (uint32_t)(plan->steps[step].max - plan->steps[step].found);
    want = most < want ? most : want;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        known[i] = hoped_for(t, &t->whole->partitions[i], step);
        all += known[i];
    }
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        uint64_t part = all > want ? known[i] * want / all : known[i];
        share[i] = (uint32_t)part;
        given += share[i];
    }
    uint32_t first = oldest(t, step)->cell->number;
    for (uint32_t i = 0; given < want && given < all; i++) {
        uint32_t at = (first + i) % t->cells->cell_count;
        if (share[at] < known[at]) {
            share[at]++;
            given++;
        }
    }
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        if (share[i] > 0)
            claim_submit(claim_part(t, &t->whole->partitions[i], 0, step + 1, share[i]));
    }
    free(known);
    free(share);
}

/* Engines with an exact view, where a claim has taken effect when it is submitted: heads are merged
 * one after the other, and all goes into the same group. */

#define MERGED_MAX 200 /* parts in a round */

static bool all_live(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]) && !cell_is_live(w->partitions[i].cell))
            return false;
    }
    return true;
}

/* The first place of the step in any other partition; the end of time: there is none. */
static struct place rival(const struct trip *t, const struct partition *p, uint32_t step)
{
    struct place best = {INT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        const struct partition *other = &t->whole->partitions[i];
        if (other == p || hoped_for(t, other, step) == 0)
            continue;
        struct place head = step_head(other, plan_of(t), step);
        best = place_before(head, best) ? head : best;
    }
    return best;
}

/* No further than to what stands elsewhere. Within the same millisecond one at a time, because the
 * plan of a claim ends at a time and not at a place. */
static void stop_before(struct plan *mine, struct place head, struct place other)
{
    bool tie = head.ready_ms == other.ready_ms;
    struct plan_step *last = &mine->steps[mine->step_count - 1];
    if (tie && mine->want > 1) /* 0: a limit leaves no room */
        mine->want = 1;
    for (uint32_t i = 0; !tie && i < last->lane_count; i++) {
        struct plan_lane *lane = &mine->lanes[last->first_lane + i];
        int64_t until = other.ready_ms - lane->bias_ms - 1;
        lane->until_ms = until < lane->until_ms ? until : lane->until_ms;
    }
}

/* How many it took; 0: the engine has put it off. */
static uint64_t take_from(struct trip *t, struct partition *p, uint32_t step, uint32_t want)
{
    struct cell_part *part = claim_part(t, p, 0, step + 1, want);
    struct place other = rival(t, p, step);
    uint64_t before = p->q->view.totals.claimed;
    if (other.ready_ms != INT64_MAX)
        stop_before(part->op.claim.plan, step_head(p, plan_of(t), step), other);
    claim_submit(part);
    whole_merge(t->whole);
    return p->q->view.totals.claimed - before;
}

/* With limits one part in a round, which sees what those before it took. */
static void ask_merging(struct trip *t, uint32_t step, bool limits)
{
    const struct plan_step *s = &plan_of(t)->steps[step];
    uint32_t left = left_of(t), most = (uint32_t)(s->max - s->found);
    left = most < left ? most : left;
    for (uint32_t i = 0; left > 0 && i < (limits ? 1 : MERGED_MAX); i++) {
        struct partition *p = oldest(t, step);
        uint64_t took = p ? take_from(t, p, step, left) : 0;
        if (took == 0)
            return;
        left -= (uint32_t)took;
    }
}

/* Steps in turn for which several partitions have something. The turns are decided here, by what is
 * known, and paid for at once, so that the claims that come next see it. */
static void ask_in_turn(struct trip *t, uint32_t from)
{
    const struct plan *plan = plan_of(t);
    uint32_t steps = plan->step_count - from, cells = t->cells->cell_count;
    uint64_t(*known)[PLAN_STEPS_MAX] = mem_alloc(cells * sizeof(known[0]));
    uint16_t(*take)[PLAN_STEPS_MAX] = mem_zalloc(cells * sizeof(take[0]));
    uint32_t *total = mem_zalloc(cells * sizeof(total[0]));
    uint32_t left = left_of(t), ranks = 0;
    if (has_limits(&t->whole->face.config, plan) && left > 1)
        left = 1; /* each round sees what the one before took */
    for (uint32_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < cells; i++) {
            known[i][s] = hoped_for(t, &t->whole->partitions[i], from + s);
            if (known[i][s] > 0)
                ranks |= 1u << plan->steps[from + s].rank;
        }
    }
    for (; left > 0 && ranks; left--) {
        int rank = policy_turn(plan->policy, plan->max_rank, ranks);
        uint32_t s = 0;
        while (plan->steps[from + s].rank != rank)
            s++;
        struct partition *old = oldest(t, from + s);
        uint32_t cell = old->cell->number;
        for (uint32_t i = 0; known[cell][s] == 0 || (i < cells && take[cell][s] > take[i][s]);
             i++) {
            if (known[i % cells][s] > 0)
                cell = i % cells;
        }
        known[cell][s]--;
        take[cell][s]++;
        total[cell]++;
        policy_spend(plan->policy, plan->max_rank, rank);
        bool any = false;
        for (uint32_t i = 0; i < cells; i++)
            any = any || known[i][s] > 0;
        if (!any)
            ranks &= ~(1u << rank);
    }
    for (uint32_t i = 0; i < cells; i++) {
        if (total[i] == 0)
            continue;
        struct cell_part *part =
            claim_part(t, &t->whole->partitions[i], from, plan->step_count, total[i]);
        struct plan *mine = part->op.claim.plan;
        mine->policy = NULL;
        for (uint32_t s = 0; s < steps; s++) {
            mine->steps[s].in_turn = false;
            mine->steps[s].max = take[i][s];
        }
        claim_submit(part);
    }
    free(known);
    free(take);
    free(total);
}

/* From one partition if it has as much, because each part of a claim costs its database as much as
 * a claim. */
static void ask_some(struct trip *t, uint32_t step)
{
    struct partition *p = idlest(t, step);
    uint32_t want = left_of(t);
    if (want == 1 || hoped_for(t, p, step) >= (uint64_t)p->sought + want)
        ask_one(t, p, step, step + 1);
    else
        ask_several(t, step);
}

static void ask(struct trip *t, uint32_t step)
{
    struct partition *first = oldest(t, step);
    uint32_t end = last_alone(t, first, step);
    bool limits = has_limits(&t->whole->face.config, plan_of(t));
    if (end > step)
        ask_one(t, first, step, end);
    else if (plan_of(t)->steps[step].in_turn)
        ask_in_turn(t, step);
    else if (all_live(t->whole))
        ask_merging(t, step, limits);
    else if (limits)
        ask_one(t, first, step, step + 1);
    else
        ask_some(t, step);
}

static void looked(struct cell_part *p)
{
    if (p->trip && p->op.status == STATUS_ENGINE_UNAVAILABLE && !p->op.outdated)
        p->trip->status = p->op.status;
}

/* Nothing is known: everybody is asked what there is, once. */
static void look_everywhere(struct trip *t)
{
    t->fresh = true;
    memset(t->barren, 0, t->cells->cell_count * sizeof(t->barren[0]));
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (!partition_serves(p) || cell_is_live(p->cell))
            continue;
        struct cell_part *part = part_new(t, p->cell, p);
        part->op.verb = ENGINE_COUNT;
        part->droppable = true;
        part->done = looked;
        p->looked_ms = t->cells->now.mono_ms;
        part_submit(part);
    }
}

static bool anybody_serves(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]))
            return true;
    }
    return false;
}

static void round_done(struct trip *t)
{
    if (t->op->claim.found == t->want)
        t->fresh = t->fresh && t->rounds > 1; /* others were faster: one more look */
    whole_merge(t->whole);
    claim_round(t);
}

static void looked_all(struct trip *t)
{
    whole_merge(t->whole);
    claim_round(t);
}

static void claim_round(struct trip *t)
{
    const struct plan *plan = plan_of(t);
    /* After a wait for a cell that is gone now, what there is goes to the caller: its leases run.
     */
    bool late = t->status && t->op->claim.found > 0;
    bool over = late || left_of(t) == 0 || t->rounds++ >= ROUNDS_MAX || t->op->outdated;
    uint32_t step = over ? plan->step_count : first_known(t);
    if (!over && !anybody_serves(t->whole)) {
        t->status = STATUS_ENGINE_UNAVAILABLE;
        claim_finish(t);
        return;
    }
    t->submitting = true;
    t->cells->base.counters.own[COUNT_ROUNDS]++;
    if (step < plan->step_count) {
        t->want = t->op->claim.found;
        ask(t, step);
    } else if (!over && !t->fresh && t->op->claim.found == 0) {
        look_everywhere(t);
        step = UINT32_MAX;
    }
    t->submitting = false;
    if (t->under_way == 0 && step >= plan->step_count && step != UINT32_MAX)
        claim_finish(t);
    else
        trip_await(t, step == UINT32_MAX ? looked_all : round_done);
}

/* One after the other, where a claim has to see what the one before it has taken. */
static bool goes_alone(const struct whole *w, const struct plan *plan)
{
    return has_limits(&w->face.config, plan) || plan->policy;
}

static bool claims_know(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]) && !partition_is_known(&w->partitions[i]))
            return false;
    }
    return true;
}

static bool is_stale(const struct partition *p)
{
    return partition_serves(p) && !cell_is_live(p->cell) && !p->cell->hesitates &&
           p->whole->cells->now.mono_ms - p->known_ms > STALE_MS;
}

static bool knows_enough(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (is_stale(&w->partitions[i]))
            return false;
    }
    return true;
}

static void look_around(struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]))
            partition_look(&w->partitions[i]);
    }
}

static void look_first(struct trip *t)
{
    t->submitting = true;
    look_everywhere(t);
    t->submitting = false;
    trip_await(t, looked_all);
}

static void claim_begin(struct trip *t)
{
    struct plan *plan = t->op->claim.plan;
    t->barren = mem_zalloc(t->cells->cell_count * sizeof(t->barren[0]));
    t->op->claim.found = 0;
    for (uint32_t i = 0; i < plan->step_count; i++)
        plan->steps[i].found = 0;
    if (!claims_know(t->whole)) {
        t->op->outdated = true;
        claim_finish(t);
        return;
    }
    if (t->whole->there > 1 && !knows_enough(t->whole)) {
        look_first(t);
        return;
    }
    if (t->whole->there > 1)
        look_around(t->whole);
    if (known_without_them(t))
        pass_over(t);
    claim_round(t);
}

void claims_next(struct whole *w)
{
    struct trip *t = w->claims_first;
    if (!t || w->claiming)
        return;
    w->claims_first = t->next;
    if (!w->claims_first)
        w->claims_last = &w->claims_first;
    t->next = NULL;
    w->claiming = t;
    claim_begin(t);
}

void trip_claim(struct trip *t)
{
    struct whole *w = t->whole;
    struct partition *only = whole_only(w);
    if (only && partition_is_known(only) && !cell_is_live(only->cell)) {
        plan_to_cell(only->cell, t->op->claim.plan);
        trip_pass(t, only);
        return;
    }
    if (!goes_alone(w, plan_of(t))) {
        claim_begin(t);
        return;
    }
    *w->claims_last = t;
    w->claims_last = &t->next;
    claims_next(w);
}
