#include "unit/toy.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void toy_configured(struct toy *t)
{
    for (int i = 0; i < t->config.level_count; i++)
        t->config.levels[i].slot = (uint8_t)(t->config.level_count - 1 - i);
    policy_init(&t->policy, &t->config);
}

void toy_init(struct toy *t, const char *profile)
{
    *t = (struct toy){.now_ms = TOY_NOW, .next_seq = 1};
    bool known = config_profile(profile, &t->config);
    assert(known);
    toy_configured(t);
}

void toy_custom(struct toy *t, int level_count)
{
    *t = (struct toy){.now_ms = TOY_NOW, .next_seq = 1};
    t->config.level_count = (uint8_t)level_count;
    for (int i = 0; i < level_count; i++) {
        t->config.levels[i].weight = 1;
        snprintf(t->config.levels[i].name, LEVEL_NAME_MAX, "L%d", i);
    }
    toy_configured(t);
}

void toy_fini(struct toy *t)
{
    for (int i = 0; i < LEVEL_COUNT_MAX; i++)
        free(t->lanes[i].messages);
}

static struct toy_lane *lane_of(struct toy *t, int rank)
{
    return &t->lanes[t->config.levels[rank].slot];
}

static void refresh(struct toy *t, int rank)
{
    const struct toy_lane *l = lane_of(t, rank);
    struct lane_view *v = &t->view.lanes[t->config.levels[rank].slot];
    t->view.ready += l->count - l->head - v->ready;
    v->ready = l->count - l->head;
    if (v->ready > 0) {
        v->head_ms = l->messages[l->head].ready_ms;
        v->head_seq = l->messages[l->head].seq;
    }
}

uint64_t toy_put(struct toy *t, int rank, int64_t ready_ms)
{
    struct toy_lane *l = lane_of(t, rank);
    if (l->count == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->messages = mem_realloc(l->messages, l->cap * sizeof(*l->messages));
    }
    uint32_t at = l->count++;
    for (; at > l->head && l->messages[at - 1].ready_ms > ready_ms; at--)
        l->messages[at] = l->messages[at - 1];
    l->messages[at] = (struct toy_message){ready_ms, t->next_seq++, rank};
    refresh(t, rank);
    return l->messages[at].seq;
}

void toy_fill(struct toy *t, int rank, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        toy_put(t, rank, t->now_ms);
}

void toy_drop(struct toy *t, int rank, uint32_t count)
{
    lane_of(t, rank)->head += count;
}

void toy_finish(struct toy *t, int rank, uint32_t count)
{
    t->view.lanes[t->config.levels[rank].slot].leased -= count;
    t->view.leased -= count;
}

void toy_plan(struct toy *t, int max_rank, uint32_t want)
{
    memset(&t->plan, 0xAA, sizeof(t->plan));
    policy_plan(&t->policy, &t->config, &t->view, max_rank, want, t->now_ms, &t->plan);
}

static struct toy_lane *next_lane(struct toy *t, const struct plan_step *step)
{
    struct toy_lane *best = NULL;
    int64_t best_ms = 0;
    for (int i = 0; i < step->lane_count; i++) {
        const struct plan_lane *p = &t->plan.lanes[step->first_lane + i];
        struct toy_lane *l = &t->lanes[p->slot];
        const struct toy_message *m = &l->messages[l->head];
        assert(t->config.levels[p->rank].slot == p->slot);
        if (l->head == l->count || t->plan.room[p->slot] == 0 || m->ready_ms > p->until_ms)
            continue;
        int64_t ms = m->ready_ms + p->bias_ms;
        if (!best || ms < best_ms || (ms == best_ms && m->seq < best->messages[best->head].seq)) {
            best = l;
            best_ms = ms;
        }
    }
    return best;
}

static struct toy_message take(struct toy *t, struct toy_lane *l)
{
    struct toy_message m = l->messages[l->head++];
    uint8_t slot = t->config.levels[m.rank].slot;
    t->plan.room[slot]--;
    t->view.lanes[slot].leased++;
    t->view.leased++;
    return m;
}

/* The step that gives the next message, or NULL: the first that can, or the one whose turn it is.
 */
static struct plan_step *next_step(struct toy *t)
{
    struct plan_step *at[LEVEL_COUNT_MAX];
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < t->plan.step_count; i++) {
        struct plan_step *step = &t->plan.steps[i];
        assert(step->max > 0);
        if (step->found == step->max || !next_lane(t, step))
            continue;
        if (!step->in_turn)
            return step;
        at[step->rank] = step;
        ranks |= 1U << step->rank;
    }
    return ranks ? at[policy_turn(t->plan.policy, t->plan.max_rank, ranks)] : NULL;
}

uint32_t toy_follow(struct toy *t, struct toy_message *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->plan.step_count; i++)
        t->plan.steps[i].found = 0;
    struct plan_step *step;
    for (; n < t->plan.want && (step = next_step(t)); n++) {
        struct toy_message m = take(t, next_lane(t, step));
        step->found++;
        if (step->in_turn)
            policy_spend(t->plan.policy, t->plan.max_rank, step->rank);
        if (out)
            out[n] = m;
    }
    for (int rank = 0; rank < t->config.level_count; rank++)
        refresh(t, rank);
    return n;
}

uint32_t toy_claim(struct toy *t, int max_rank, uint32_t want, struct toy_message *out)
{
    toy_plan(t, max_rank, want);
    return toy_follow(t, out);
}

void toy_drain(struct toy *t, uint64_t total, uint32_t want, uint64_t counts[LEVEL_COUNT_MAX])
{
    memset(counts, 0, LEVEL_COUNT_MAX * sizeof(*counts));
    while (total > 0) {
        struct toy_message out[CLAIM_MAX];
        uint32_t n =
            toy_claim(t, t->config.level_count - 1, total < want ? (uint32_t)total : want, out);
        if (n == 0)
            return;
        for (uint32_t i = 0; i < n; i++)
            counts[out[i].rank]++;
        total -= n;
    }
}
