/* Private to the core: the moves behind a queue's verbs.
 *
 *   queue.c     places, and the one function that moves a message between them
 *   put.c       a draft becomes a message
 *   import.c    an imported message comes in, with its past
 *   lease.c     heads of lanes, leases on them, and their receipts
 *   end.c       what ends a message, and what brings a dead one back
 *   escalate.c  from one level to another
 *   leave.c     to another store
 *   lane.c      lanes with a tail: what is in memory and what is counted
 *   sweep.c     what time does
 *   dedup.c     keys */
#ifndef TRIAGE_CORE_MOVES_H
#define TRIAGE_CORE_MOVES_H

#include "core/queue.h"

#include <assert.h>

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

/* Marks a message as not as it was born any more, and reports the change. `from` and `slot` are its
 * state and level before the change. */
static inline void queue_touch(struct queue *q, struct message *m, enum message_state from,
                               uint8_t slot)
{
    bool first = !m->touched;
    m->touched = true;
    queue_report(q, m, REPORT_CHANGED, from, slot, first);
}

/* The seq of a new message, not below `min`. */
static inline uint64_t queue_take_seq(struct queue *q, uint64_t min)
{
    uint64_t seq = *q->next_seq > min ? *q->next_seq : min;
    assert(seq >> 48 == 0);
    *q->next_seq = seq + 1;
    return seq;
}

/* Adds `by` (1 or -1) to all counts of messages in this state. */
void queue_count(struct queue *q, const struct message *m, enum message_state state, int by);

/* Adds the message to those that can be found by seq, or removes it. Dead letters have a map of
 * their own: m->state says which is meant. */
void queue_enlist(struct queue *q, struct message *m);
void queue_delist(struct queue *q, struct message *m);

/* Moves the message to DONE, EXPIRED, CANCELLED or DEAD. The caller must not use it afterwards: a
 * message that is not kept is freed. */
void queue_end(struct queue *q, struct message *m, enum message_state to, struct instant now);

/* The time to live has passed: moves the message to EXPIRED or DEAD. The caller must not use it
 * afterwards. */
void queue_expire(struct queue *q, struct message *m, struct instant now);

/* The state in which messages of the queue end when they expire. */
static inline enum message_state queue_expires_as(const struct queue *q)
{
    return q->config->expired == EXPIRED_DEAD ? MESSAGE_DEAD : MESSAGE_EXPIRED;
}

/* An attempt failed. The message goes back in line, at once or after delay_ms (-1: the queue's
 * backoff), or becomes DEAD (NACK_DEAD: in any case). Returns its state now. The caller must not
 * use it afterwards. */
enum message_state queue_fail(struct queue *q, struct message *m, int64_t delay_ms,
                              const char *reason, uint32_t reason_len, struct instant now);

/* The time by which a message is ordered that is put now. */
int64_t queue_order_time(struct queue *q, struct instant now);

/* A new message takes its place, in memory or in its lane's tail. */
void queue_take_place(struct queue *q, struct message *m);

bool queue_past_ttl(const struct message *m, struct instant now);
struct escalation *escalation_new(uint8_t from_slot, const struct escalate_note *note,
                                  int64_t wall_ms);

/* Whether a new message stays in memory or joins its lane's tail, which it may begin. */
bool queue_keeps_in_memory(struct queue *q, const struct message *m);

#endif
