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
#include "engine/cells/shares.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX          64
#define CLAIM_DIVISIONS_MAX 2
#define STALE_MS            40 /* a claim waits for a look at heads that are known from longer ago */

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
    if (!partition_serves(p) || !partition_is_known(p) || s->found >= s->max)
        return 0;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        const struct plan_lane *lane = &plan->lanes[s->first_lane + i];
        known += share_blocks(p, lane->slot) ? 0 : lane_known(p, lane);
    }
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

/* Who has the first message of a step. The wholes' tournaments have it by the heads of lanes; what
 * this claim may not count on is passed over. */
struct search {
    const struct trip *trip;
    const struct partition *but; /* or NULL */
    uint32_t step;
    bool idle;       /* only who has more than is sought there */
    uint64_t choice; /* and is not in this choice; 0: of no choice */
};

static bool is_passed(const void *ctx, uint32_t place)
{
    const struct search *s = ctx;
    const struct partition *p = &s->trip->whole->partitions[place];
    if (p == s->but || (s->choice > 0 && p->chosen == s->choice))
        return true;
    uint64_t known = hoped_for(s->trip, p, s->step);
    return known == 0 || (s->idle && known <= p->sought);
}

/* The partition, of those that count, whose first message of the step is the oldest. */
static struct partition *search_oldest(const struct search *s)
{
    const struct trip *t = s->trip;
    const struct plan *plan = plan_of(t);
    const struct plan_step *step = &plan->steps[s->step];
    struct partition *best = NULL;
    struct place at = {0};
    for (uint32_t i = 0; i < step->lane_count; i++) {
        const struct plan_lane *lane = &plan->lanes[step->first_lane + i];
        uint32_t cell =
            tourney_first_but(&t->whole->heads[lane->slot], lane->until_ms, is_passed, s);
        if (cell == TOURNEY_NONE || (best && best->cell->number == cell))
            continue;
        struct partition *p = &t->whole->partitions[cell];
        struct place head = step_head(p, plan, s->step);
        bool tie = best && !place_before(at, head) && !place_before(head, at);
        if (!best || place_before(head, at) || (tie && cell < best->cell->number)) {
            best = p;
            at = head;
        }
    }
    return best;
}

static struct partition *oldest(const struct trip *t, uint32_t step)
{
    const struct search s = {.trip = t, .step = step};
    return search_oldest(&s);
}

/* The first step for which somebody has something; step_count: none. */
static uint32_t first_known(const struct trip *t)
{
    const struct plan *plan = plan_of(t);
    uint32_t step = 0;
    while (step < plan->step_count && !oldest(t, step))
        step++;
    return step;
}

static struct partition *oldest_but(const struct trip *t, const struct partition *p, uint32_t step)
{
    const struct search s = {.trip = t, .but = p, .step = step};
    return search_oldest(&s);
}

/* Up to which step a partition may be asked: steps in turn are asked for together, or not at all.
 */
static uint32_t last_alone(const struct trip *t, const struct partition *p, uint32_t step)
{
    const struct plan *plan = plan_of(t);
    uint32_t end = step;
    for (uint32_t i = step; i < plan->step_count; i++) {
        if (oldest_but(t, p, i))
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
    assert(t->under_way == 0);
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
    assert(p->stray_count < p->op.claim.plan->want);
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
    assert(p->op.claim.found <= mine->want);
    partition_seek(p->partition, 0, p->sought);
    p->sought = 0;
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
    assert(t->op->claim.found + p->op.claim.found <= plan->want);
    t->op->claim.found += p->op.claim.found;
    for (uint32_t i = 0; i < mine->step_count; i++)
        plan->steps[p->from + i].found += mine->steps[i].found;
    window_took(p, plan);
}

/* The steps `from` … `end` - 1 of the caller's plan. */
static void copy_steps(const struct plan *plan, uint32_t from, uint32_t end, struct plan *mine)
{
    assert(from < end);
    assert(end <= plan->step_count);
    mine->step_count = end - from;
    mine->lane_count = 0;
    mine->policy = NULL;
    for (uint32_t i = from; i < end; i++) {
        struct plan_step *s = &mine->steps[i - from];
        *s = plan->steps[i];
        assert(s->found <= s->max);
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

/* A cell with an exact view has its share kept by us. */
static void limit_by_share(const struct queue_config *config, const struct partition *p,
                           struct plan *mine)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        uint8_t slot = config->levels[rank].slot;
        uint64_t room = share_room(p, slot);
        mine->room[slot] = room < mine->room[slot] ? (uint32_t)room : mine->room[slot];
    }
    uint64_t room = share_room(p, -1);
    mine->want = room < mine->want ? (uint32_t)room : mine->want;
}

/* The limits are for all partitions together: no partition may use what is left by itself alone. */
static void limit(const struct trip *t, const struct partition *p, struct plan *mine)
{
    const struct queue_config *config = &t->whole->face.config;
    if (!cell_is_live(p->cell) && t->whole->there == 1)
        return; /* it keeps them itself */
    if (cell_is_live(p->cell) && !whole_is_live(t->whole))
        limit_by_share(config, p, mine);
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
    partition_seek(p, want, 0);
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
    assert(t->op->claim.found <= plan_of(t)->want);
    return plan_of(t)->want - t->op->claim.found;
}

/* Of the partitions that have something for a step, the one that claims under way want the least
 * of; of equals the one whose head is the oldest. Many claims at once see the same heads: if all
 * went to the oldest, one cell would work and the others wait. */
static struct partition *idlest(const struct trip *t, uint32_t step)
{
    const struct search s = {.trip = t, .step = step, .idle = true};
    const struct plan *plan = plan_of(t);
    const struct plan_step *its = &plan->steps[step];
    struct partition *best = oldest(t, step);
    for (uint32_t i = 0; best->sought > 0 && i < its->lane_count; i++) {
        struct tourney *idle = whole_idle(t->whole, plan->lanes[its->first_lane + i].slot);
        uint32_t cell = tourney_first_but(idle, (int64_t)best->sought - 1, is_passed, &s);
        best = cell == TOURNEY_NONE ? best : &t->whole->partitions[cell];
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

/* A step that several partitions have something for: each gives what it has, the oldest first, so
 * that few are asked. */
static void ask_several(struct trip *t, uint32_t step)
{
    const struct plan_step *s = &plan_of(t)->steps[step];
    const struct search next = {.trip = t, .step = step, .choice = ++t->cells->choices};
    uint32_t left = left_of(t), most = (uint32_t)(s->max - s->found);
    left = most < left ? most : left;
    for (struct partition *p; left > 0 && (p = search_oldest(&next));) {
        uint64_t known = hoped_for(t, p, step);
        uint32_t want = known < left ? (uint32_t)known : left;
        p->chosen = next.choice;
        left -= want;
        claim_submit(claim_part(t, p, 0, step + 1, want));
    }
}

/* Engines with an exact view, where a claim has taken effect when it is submitted: heads are merged
 * one after the other, and all goes into the same group. */

#define MERGED_MAX 200 /* parts in a round */

static bool all_live(const struct whole *w)
{
    for (uint32_t i = 0; w->remote > 0 && i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]) && !cell_is_live(w->partitions[i].cell))
            return false;
    }
    return true;
}

/* The first place of the step in any other partition; the end of time: there is none. */
static struct place rival(const struct trip *t, const struct partition *p, uint32_t step)
{
    const struct partition *other = oldest_but(t, p, step);
    return other ? step_head(other, plan_of(t), step) : (struct place){INT64_MAX, UINT64_MAX};
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

/* What is taken from one partition. */
struct turn_share {
    struct partition *partition;
    uint32_t total;
    uint16_t take[PLAN_STEPS_MAX];
};

/* Who has something for a step, the oldest first. They give in turn. */
struct turn_step {
    uint32_t count, at;
    uint64_t left; /* of all */
    struct turn_giver {
        struct partition *partition;
        uint64_t left;
    } * givers;
};

struct turns {
    struct trip *trip;
    uint64_t choice;
    uint32_t from, steps, share_count, share_room;
    struct turn_share *shares;
    struct turn_step by_step[PLAN_STEPS_MAX];
};

static struct turn_share *turns_share(struct turns *turns, struct partition *p)
{
    if (p->shared == turns->choice)
        return &turns->shares[p->share];
    if (turns->share_count == turns->share_room) {
        turns->share_room = 2 * turns->share_room + 4;
        turns->shares = mem_realloc(turns->shares, turns->share_room * sizeof(turns->shares[0]));
    }
    p->shared = turns->choice;
    p->share = turns->share_count;
    turns->shares[p->share] = (struct turn_share){.partition = p};
    return &turns->shares[turns->share_count++];
}

/* No more than `most` of them are needed. */
static void turns_gather(struct turns *turns, uint32_t step, uint32_t most)
{
    struct trip *t = turns->trip;
    struct turn_step *s = &turns->by_step[step];
    const struct search next = {
        .trip = t, .step = turns->from + step, .choice = ++t->cells->choices};
    uint32_t room = most < t->whole->there ? most : t->whole->there;
    s->givers = mem_alloc((room + 1) * sizeof(s->givers[0]));
    for (struct partition *p; s->count < room && (p = search_oldest(&next));) {
        uint64_t known = hoped_for(t, p, next.step);
        p->chosen = next.choice;
        s->givers[s->count++] = (struct turn_giver){p, known};
        s->left += known;
    }
}

static void turns_take(struct turns *turns, uint32_t step)
{
    struct turn_step *s = &turns->by_step[step];
    assert(s->left > 0);
    while (s->givers[s->at].left == 0)
        s->at = (s->at + 1) % s->count;
    struct turn_giver *g = &s->givers[s->at];
    struct turn_share *share = turns_share(turns, g->partition);
    g->left--;
    s->left--;
    s->at = (s->at + 1) % s->count;
    share->take[step]++;
    share->total++;
}

static void turns_decide(struct turns *turns, uint32_t left)
{
    const struct plan *plan = plan_of(turns->trip);
    const struct plan_step *steps = &plan->steps[turns->from];
    uint32_t ranks = 0;
    for (uint32_t s = 0; s < turns->steps; s++) {
        turns_gather(turns, s, left);
        if (turns->by_step[s].left > 0)
            ranks |= 1u << steps[s].rank;
    }
    for (; left > 0 && ranks; left--) {
        int rank = policy_turn(plan->policy, plan->max_rank, ranks);
        uint32_t s = 0;
        while (steps[s].rank != rank)
            s++;
        turns_take(turns, s);
        policy_spend(plan->policy, plan->max_rank, rank);
        if (turns->by_step[s].left == 0)
            ranks &= ~(1u << rank);
    }
}

static void turns_submit(const struct turns *turns, const struct turn_share *share)
{
    struct trip *t = turns->trip;
    struct cell_part *part =
        claim_part(t, share->partition, turns->from, plan_of(t)->step_count, share->total);
    struct plan *mine = part->op.claim.plan;
    mine->policy = NULL;
    for (uint32_t s = 0; s < turns->steps; s++) {
        mine->steps[s].in_turn = false;
        mine->steps[s].max = share->take[s];
    }
    claim_submit(part);
}

static void ask_in_turn(struct trip *t, uint32_t from)
{
    struct turns turns = {.trip = t,
                          .choice = ++t->cells->choices,
                          .from = from,
                          .steps = plan_of(t)->step_count - from};
    bool limits = has_limits(&t->whole->face.config, plan_of(t));
    uint32_t left = left_of(t);
    turns_decide(&turns, limits && left > 1 ? 1 : left); /* each round sees what the last took */
    for (uint32_t i = 0; i < turns.share_count; i++)
        turns_submit(&turns, &turns.shares[i]);
    for (uint32_t s = 0; s < turns.steps; s++)
        free(turns.by_step[s].givers);
    free(turns.shares);
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

/* Claims of one turn look together: what one has asked and not sent yet is an answer for all. */
static bool follow(struct trip *t)
{
    struct trip *leader = t->whole->looking;
    if (!leader || t->whole->looking_flush != t->cells->flushes)
        return false;
    t->next = leader->followers;
    leader->followers = t;
    t->under_way++; /* though it is no part of its own */
    return true;
}

/* Those who followed may go on, too, when nobody follows them any more. */
static void lead(struct trip *t)
{
    struct trip *followers = t->followers;
    t->followers = NULL;
    if (t->whole->looking == t)
        t->whole->looking = NULL;
    for (struct trip *f; (f = followers);) {
        followers = f->next;
        f->next = NULL;
        f->status = t->status ? t->status : f->status;
        assert(f->under_way > 0);
        if (--f->under_way == 0 && !f->submitting)
            f->then(f);
    }
}

/* Nothing is known: everybody is asked what there is, once. */
static void look_everywhere(struct trip *t)
{
    struct whole *w = t->whole;
    t->fresh = true;
    memset(t->barren, 0, t->cells->cell_count * sizeof(t->barren[0]));
    if (follow(t))
        return;
    w->looking = t;
    w->looking_flush = t->cells->flushes;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (!partition_serves(p) || cell_is_live(p->cell))
            continue;
        struct cell_part *part = part_new(t, p->cell, p);
        part->op.verb = ENGINE_COUNT;
        part->droppable = true;
        part->done = looked;
        partition_looked(p);
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
    claim_round(t);
}

/* Shares */

/* How much of a lane the claim would have from a partition, if its share did not matter. */
static uint64_t wanted_of(const struct trip *t, const struct partition *p,
                          const struct plan_lane *lane)
{
    uint64_t known = partition_serves(p) ? lane_known(p, lane) : 0;
    uint64_t left = left_of(t) > 0 ? left_of(t) : 1;
    return known < left ? known : left;
}

/* Whether a partition has something in this lane that only its share keeps it from giving, as far
 * as is known. `barren`: it was asked for it in vain. */
static bool is_short(const struct trip *t, const struct partition *p, const struct plan_lane *lane,
                     bool barren)
{
    const struct queue_config *config = &t->whole->face.config;
    bool limited = config->max_in_flight > 0 || config->levels[lane->rank].max_in_flight > 0;
    uint64_t want = wanted_of(t, p, lane);
    return limited && want > 0 && (barren || share_lacks(p, lane->slot, want)) &&
           policy_lane_room(config, &t->whole->face.view, lane->rank) > 0;
}

/* `idle`: only if what it lacks lies idle in another cell, as far as is known. */
static bool anybody_short(const struct trip *t, bool idle)
{
    const struct plan *plan = plan_of(t);
    const struct queue_view *v = &t->whole->face.view;
    if (!shares_apply(t->whole) || whole_is_live(t->whole) ||
        policy_room(&t->whole->face.config, v) == 0)
        return false;
    for (uint32_t step = 0; step < plan->step_count; step++) {
        const struct plan_step *s = &plan->steps[step];
        for (uint32_t i = 0; s->found < s->max && i < s->lane_count; i++) {
            const struct plan_lane *lane = &plan->lanes[s->first_lane + i];
            for (uint32_t k = 0; k < t->cells->cell_count; k++) {
                const struct partition *p = &t->whole->partitions[k];
                if (is_short(t, p, lane, step < t->barren[k]) &&
                    (!idle || share_idles(p, lane->slot, wanted_of(t, p, lane))))
                    return true;
            }
        }
    }
    return false;
}

static void divided(struct trip *t)
{
    memset(t->barren, 0, t->cells->cell_count * sizeof(t->barren[0]));
    claim_round(t);
}

/* A claim that could have more waits until the limits have been divided anew; so does one that
 * could have something, if a share that some cell lacks lies idle in another: what the cell has may
 * be more urgent. If others need that share, too, or the claim has all that it wants, it does not
 * wait; but what was passed over is to have its turn. That is said before the claim takes anything:
 * what it takes may be all that the limit leaves. `step`: for which somebody has something. */
static bool divide(struct trip *t, uint32_t step, bool over)
{
    bool known = step < plan_of(t)->step_count;
    if (t->op->outdated || !anybody_short(t, false))
        return false;
    bool waits = !known || anybody_short(t, true);
    if (!waits || over || t->divisions >= CLAIM_DIVISIONS_MAX) {
        shares_want(t->whole);
        return false;
    }
    t->divisions++;
    shares_await(t, false, divided);
    return true;
}

static void claim_round(struct trip *t)
{
    const struct plan *plan = plan_of(t);
    lead(t);
    whole_merge(t->whole);
    if (t->whole->strangers > 0 || t->version != t->whole->face.version)
        t->op->outdated = true; /* the plan is of another configuration */
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
    bool looks = step == plan->step_count && !over && !t->fresh && t->op->claim.found == 0;
    if (!looks && divide(t, step, over))
        return;
    t->submitting = true;
    t->cells->base.counters.own[COUNT_ROUNDS]++;
    if (step < plan->step_count) {
        t->want = t->op->claim.found;
        ask(t, step);
    } else if (looks) {
        look_everywhere(t);
        step = UINT32_MAX;
    }
    t->submitting = false;
    if (t->under_way == 0 && step >= plan->step_count && step != UINT32_MAX)
        claim_finish(t);
    else
        trip_await(t, step == UINT32_MAX ? claim_round : round_done);
}

/* One after the other, where a claim has to see what the one before it has taken. */
static bool goes_alone(const struct whole *w, const struct plan *plan)
{
    return has_limits(&w->face.config, plan) || plan->policy;
}

static void look_first(struct trip *t)
{
    t->submitting = true;
    look_everywhere(t);
    t->submitting = false;
    trip_await(t, claim_round);
}

static void claim_begin(struct trip *t)
{
    struct plan *plan = t->op->claim.plan;
    t->barren = mem_zalloc(t->cells->cell_count * sizeof(t->barren[0]));
    t->op->claim.found = 0;
    for (uint32_t i = 0; i < plan->step_count; i++)
        plan->steps[i].found = 0;
    whole_merge(t->whole);
    t->version = t->whole->face.version;
    if (t->whole->strangers > 0) {
        t->op->outdated = true;
        claim_finish(t);
        return;
    }
    if (t->whole->there > 1 && whole_is_stale(t->whole, STALE_MS)) {
        look_first(t);
        return;
    }
    if (t->whole->there > 1)
        whole_look(t->whole);
    if (t->cells->hesitating > 0 && known_without_them(t))
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
