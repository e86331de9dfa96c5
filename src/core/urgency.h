/* How urgent a queue is, for consumers that take from several queues at once.
 *
 * A queue is as urgent as the most urgent message that may be claimed from it now. The degree of a
 * message says where its level stands between the most urgent level of its queue (0) and the least
 * urgent one (URGENCY_LEAST). So the first levels of all queues count the same, and so do the last,
 * however many levels there are between them. A queue with one level says nothing about urgency and
 * stands in the middle. A message that has aged stands at the level that it counts as. A message
 * that is about to wait longer than its level promises goes before everything else
 * (URGENCY_PROMISED). Of two with the same degree the one that has been ready for longer goes
 * first.
 *
 * Example: with the levels a, b and c the degrees are 0, 180180 and 360360; with x and y they are 0
 * and 360360. So a message at b goes after one at x, and before one at y. */
#ifndef TRIAGE_CORE_URGENCY_H
#define TRIAGE_CORE_URGENCY_H

#include "core/policy.h"

#define URGENCY_PROMISED (-1)
#define URGENCY_LEAST    360360 /* every number of steps up to 15 divides it */

struct urgency {
    int32_t degree;
    int64_t ready_ms; /* of the message that has this degree */
};

/* False: nothing may be claimed from the ranks 0 … max_rank. */
bool urgency_of(const struct queue_config *config, const struct queue_view *view, int max_rank,
                int64_t now_ms, struct urgency *out);

/* Whether `a` goes before `b`. */
bool urgency_before(const struct urgency *a, const struct urgency *b);

/* Cuts a plan down to messages that are at least as urgent as `least`. Of the degree of `least`
 * only those stay that were ready no later. Only for policies that plan in order of urgency: see
 * urgency_orders(). */
void urgency_cut(struct plan *plan, const struct queue_config *config, const struct urgency *least);

/* Whether a policy hands out its messages in order of urgency. With weights or promises it does
 * not: a less urgent message may have its turn in between. */
bool urgency_orders(const struct policy *p);

#endif
