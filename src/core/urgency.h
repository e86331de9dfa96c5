/* How urgent a queue is, for consumers that take from several queues at once.
 *
 * A queue is as urgent as the most urgent message that may be claimed from it now. The degree of a
 * message says where its level stands between the most urgent level of its queue (0) and the least
 * urgent one (URGENCY_LEAST): so the ends of all queues count the same, however many levels there
 * are, and the levels between lie evenly. A queue with one level says nothing about urgency and
 * stands in the middle. Aging counts: what has aged stands at the level as which it counts. What is
 * about to wait longer than its level promises goes before everything else (URGENCY_PROMISED). Of
 * the same degree, who has been ready for longer goes first. */
#ifndef TRIAGE_CORE_URGENCY_H
#define TRIAGE_CORE_URGENCY_H

#include "core/policy.h"

#define URGENCY_PROMISED (-1)
#define URGENCY_LEAST    360360 /* every number of steps up to 15 divides it */

struct urgency {
    int32_t degree;
    int64_t ready_ms; /* of the message that has it */
};

/* False: nothing may be claimed from the ranks 0 … max_rank. */
bool urgency_of(const struct queue_config *config, const struct queue_view *view, int max_rank,
                int64_t now_ms, struct urgency *out);

/* Whether `a` goes before `b`. */
bool urgency_before(const struct urgency *a, const struct urgency *b);

/* Leaves in a plan what is as urgent as `least` or more, and in its last step nobody who was ready
 * later than `least`. Only for policies that plan in this order: see urgency_orders(). */
void urgency_cut(struct plan *plan, const struct queue_config *config, const struct urgency *least);

/* Whether a policy hands out its messages in order of urgency. With weights, or with promises,
 * others may have their turn in between. */
bool urgency_orders(const struct policy *p);

#endif
