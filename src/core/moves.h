/* Private to the core: the moves behind a queue's verbs.
 *
 *   queue.c     places, and the one function that moves a message between them
 *   put.c       a draft becomes a message
 *   import.c    and so does one from elsewhere, with its past
 *   lease.c     heads of lanes, leases on them, and their receipts
 *   end.c       what ends a message, and what brings a dead one back
 *   escalate.c  from one level to another
 *   lane.c      lanes with a tail: what is in memory and what is counted
 *   sweep.c     what time does
 *   dedup.c     keys */
#ifndef TRIAGE_CORE_MOVES_H
#define TRIAGE_CORE_MOVES_H

#include "core/queue.h"

/* The one function that moves a message. NEW stands for "not in memory". */
void queue_move(struct queue *q, struct message *m, enum message_state to);

void queue_report_grow(struct queue *q);

static inline struct queue_report *queue_report_next(struct queue *q) /* at the end of the list */
{
    if (q->report_count == q->report_cap)
        queue_report_grow(q);
    return &q->report[q->report_count++];
}

/* Leaves a report for an engine that takes them. `from`, `slot`, `first`: see struct queue_report.
 */
static inline void queue_report(struct queue *q, struct message *m, enum report_kind kind,
                                enum message_state from, uint8_t slot, bool first)
{
    if (q->reports)
        *queue_report_next(q) = (struct queue_report){.message = m,
                                                      .kind = (uint8_t)kind,
                                                      .from = (uint8_t)from,
                                                      .slot = slot,
                                                      .first = first};
}

/* It is not as it was born any more; it was in this state and level before. */
static inline void queue_touch(struct queue *q, struct message *m, enum message_state from,
                               uint8_t slot)
{
    bool first = !m->touched;
    m->touched = true;
    queue_report(q, m, REPORT_CHANGED, from, slot, first);
}

/* Adds `by` (1 or -1) to whatever counts messages in this state. */
void queue_count(struct queue *q, const struct message *m, enum message_state state, int by);

/* Into the messages that can be found, and out of them; m->state says whether it is a dead one. */
void queue_enlist(struct queue *q, struct message *m);
void queue_delist(struct queue *q, struct message *m);

/* To DONE, EXPIRED, CANCELLED or DEAD. The caller has lost it: what is not kept is freed. */
void queue_end(struct queue *q, struct message *m, enum message_state to, struct instant now);

/* Its time to live has passed: EXPIRED, or DEAD. The message is gone. */
void queue_expire(struct queue *q, struct message *m, struct instant now);

/* An attempt failed: back in line, perhaps later (delay_ms -1: by the queue's backoff), or DEAD.
 * Returns the state it is in now; the message may be gone. */
enum message_state queue_fail(struct queue *q, struct message *m, int64_t delay_ms,
                              const char *reason, uint32_t reason_len, struct instant now);

/* The time by which what is put now is ordered. */
int64_t queue_order_time(struct queue *q, struct instant now);

/* A new message takes its place, in memory or in its lane's tail. */
void queue_take_place(struct queue *q, struct message *m);

bool queue_past_ttl(const struct message *m, struct instant now);
struct escalation *escalation_new(uint8_t from_slot, const struct escalate_note *note,
                                  int64_t wall_ms);

/* Whether a new message stays in memory or joins its lane's tail, which it may begin. */
bool queue_keeps_in_memory(struct queue *q, const struct message *m);

#endif
