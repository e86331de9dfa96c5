/* Groups: ops that are submitted together, and the order in which the model is told of them.
 *
 * An engine of this process applies them one after the other. One that is SHARED says, in
 * engine/postgres/impl.h, what may change places while nobody has an answer yet: between two ops
 * that look at a queue or change it as a whole, ops of one verb on one queue go together, at the
 * place of the first, and claims go last. So what a claim finds there was perhaps submitted after
 * it. The rest of what is particular to such an engine:
 *
 *   - it has one clock, by which leases run, too: both of the simulation's move together;
 *   - it numbers the messages of all queues in one row: a queue's own numbers grow, with gaps;
 *   - between two answers it counts for itself; where the heads of the levels are, and what is in a
 *     queue that it has not met yet, it knows only when it has asked. */
#include "sim/sim.h"

#include <string.h>

static const struct sim_verb *any_verb(struct sim *s)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < sim_verb_count; i++)
        total += sim_verbs[i]->weight;
    uint32_t at = sim_pick(s, total), i = 0;
    while (at >= sim_verbs[i]->weight)
        at -= sim_verbs[i++]->weight;
    return sim_verbs[i];
}

struct sim_queue *sim_any_queue(struct sim *s)
{
    return &s->queues[sim_pick(s, s->queue_count)];
}

/* Order */

static bool gathers(enum engine_verb verb)
{
    return verb == ENGINE_PUT || verb == ENGINE_CLAIM || verb == ENGINE_ACK ||
           verb == ENGINE_NACK || verb == ENGINE_RELEASE || verb == ENGINE_EXTEND;
}

static bool go_together(const struct sim_op *a, const struct sim_op *b)
{
    if (a->q != b->q || a->op.verb != b->op.verb)
        return false;
    switch (a->op.verb) {
    case ENGINE_CLAIM:
        return a->op.claim.lease_ms == b->op.claim.lease_ms && a->max_rank == b->max_rank;
    case ENGINE_NACK:
    case ENGINE_RELEASE:
        return a->op.settle.delay_ms == b->op.settle.delay_ms && strcmp(a->reason, b->reason) == 0;
    case ENGINE_EXTEND:
        return a->op.settle.lease_ms == b->op.settle.lease_ms;
    default:
        return true;
    }
}

/* Judges the ops from `from` on up to the next that does not gather, which it returns. */
static uint32_t judge_gathered(struct sim *s, struct sim_op *ops,
                               const struct sim_verb *const verbs[], uint32_t from, uint32_t count)
{
    bool judged[SIM_GROUP_MAX] = {false};
    uint32_t end = from;
    while (end < count && gathers(ops[end].op.verb))
        end++;
    for (int claims = 0; claims < 2; claims++) {
        for (uint32_t i = from; i < end; i++) {
            for (uint32_t k = i; k < end && claims == (ops[i].op.verb == ENGINE_CLAIM); k++) {
                if (judged[k] || !go_together(&ops[i], &ops[k]))
                    continue;
                verbs[k]->judge(s, &ops[k]);
                judged[k] = true;
            }
        }
    }
    return end;
}

static void judge_group(struct sim *s, struct sim_op *ops, const struct sim_verb *const verbs[],
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (s->shared)
            i = judge_gathered(s, ops, verbs, i, count);
        if (i < count)
            verbs[i]->judge(s, &ops[i]);
    }
}

void sim_group(struct sim *s, uint32_t count, const struct sim_verb *only)
{
    static struct sim_op ops[SIM_GROUP_MAX];
    struct engine_op *group[SIM_GROUP_MAX];
    const struct sim_verb *verbs[SIM_GROUP_MAX];
    for (uint32_t i = 0; i < count; i++) {
        struct sim_op *o = &ops[i];
        o->q = sim_any_queue(s);
        o->op = (struct engine_op){.queue = o->q->real, .visit = sim_see};
        o->seen_count = 0;
        o->alone = count == 1;
        verbs[i] = only ? only : any_verb(s);
        verbs[i]->make(s, o);
        group[i] = &o->op;
    }
    s->rig.overlap = !s->shared && sim_chance(s, 50);
    rig_run(&s->rig, group, count);
    s->rig.overlap = false;
    for (uint32_t i = 0; i < count; i++)
        ops[i].q->met = true;
    judge_group(s, ops, verbs, count);
}
