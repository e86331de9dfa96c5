/* One queue: its messages, each in the place of its state, and the moves between
 * places. No I/O and no clock: time comes in, decisions go out.
 *
 * Each level has a lane with two ordered sets, ready and scheduled. Leased
 * messages stand by the end of their lease, those with a time to live also by the
 * end of it. So every timer is the head of some set, and letting time pass costs
 * nothing while no head is due.
 *
 * The core calls nobody. An engine that writes down what happens sets `reports`:
 * then every verb leaves a list of what it did (struct queue_report), which the
 * engine takes right after the verb.
 *
 * An engine that has more messages than fit in memory keeps some of them elsewhere:
 * the tail of a lane. Every message up to the tail's bound is in memory. Behind the
 * bound some may be missing, so the first message there need not be the lane's head.
 * When a verb needs a message that is not in memory, it answers "elsewhere" or "not
 * found"; the engine brings the message, and asks again. */
#ifndef TRIAGE_CORE_QUEUE_H
#define TRIAGE_CORE_QUEUE_H

#include "base/clock.h"
#include "base/map.h"
#include "base/order.h"
#include "base/seqmap.h"
#include "base/status.h"
#include "core/config.h"
#include "core/message.h"
#include "core/policy.h"
#include "core/share.h"

#include <stdbool.h>
#include <stdint.h>

/* One message to store, and what became of it. */
struct put_item {
    struct draft draft;
    enum status status;
    bool deduplicated;
    struct message_id id;
    int64_t enqueued_ms;
    uint32_t partition; /* where it is, in an engine that has several; the caller sets it to 0 */
    bool only_known;    /* the caller's: it is asked for by its dedup key, and never stored */
};

/* A message of another store, to be stored as it was there; and what became of it. */
struct import_item {
    struct draft draft;       /* ready_ms is set; a delay or time to live is not looked at */
    struct message_id origin; /* its id in the other store */
    int64_t enqueued_ms;
    int64_t expire_ms; /* the end of its time to live; INT64_MAX: none */
    int64_t died_ms;   /* when dead */
    bool dead;
    uint16_t attempts;
    /* The last escalation. A level that the queue does not have any more is left out. */
    bool escalated;
    int64_t escalated_ms;
    struct priority_ref escalated_from;
    /* The number of its level in the other store, as the exported line has it. If escalated_from is
     * a number, it means the same level here only when this number means the message's level here.
     */
    bool has_number;
    int64_t number;
    char *text; /* owned, or NULL: reason, then who escalated it, then why */
    uint16_t reason_len, actor_len, why_len;
    /* Out. */
    enum status status;
    bool known; /* it had been imported before */
    struct message_id id;
};

void import_item_fini(struct import_item *item);
/* The message of a queue with this number and configuration, to be imported into another queue that
 * has the same levels. Everything in it is a copy. One that is leaving is as it was before. */
void import_item_of(const struct message *m, uint32_t queue, const struct queue_config *config,
                    struct import_item *item);
/* Where the escalation came from, or the message's own slot when that is not known. */
uint8_t import_from_slot(const struct import_item *item, const struct queue_config *config,
                         uint8_t slot);

/* The key by which a repeated import is recognised: made of the message's old id, the time of its
 * enqueue, and its content. No client can send it as a dedup key: it starts with a byte that UTF-8
 * never has. */
#define IMPORT_KEY_BYTES (1 + MESSAGE_ID_TEXT + 2 * 8)
void import_key(const struct import_item *item, char out[IMPORT_KEY_BYTES]);

#define IMPORT_KNOWN_MS (7LL * 86400 * 1000) /* for so long an import is remembered */

/* One message to settle by its receipt, and what became of it. */
struct settle_item {
    struct message_id id;
    uint8_t receipt[RECEIPT_BYTES];
    enum status status;
    enum message_state state; /* after a success */
    int64_t lease_until_ms;   /* EXTEND: wall clock */
    uint8_t slot;             /* after a success: its level, at which it was leased */
};

/* One message to give another level, and what became of it. */
struct escalate_item {
    struct message_id id;
    enum status status;       /* OK, MESSAGE_NOT_FOUND, NOT_PENDING */
    bool changed;             /* OK, but it was at that level already: false */
    enum message_state state; /* after a success, as is the next */
    uint8_t from_slot;
};

/* One message that is to leave for another store, or that has arrived there. */
struct leave_item {
    struct message_id id;
    uint8_t from[RECEIPT_BYTES];    /* LEAVE: what it left with so far */
    uint8_t receipt[RECEIPT_BYTES]; /* what it leaves with: the caller's choice */
    enum status status;
};

/* Who asks for an escalation and why; either may be empty. */
struct escalate_note {
    const char *actor;
    const char *reason;
    uint16_t actor_len;
    uint16_t reason_len;
};

/* A place in a lane: what stands before it is claimed first. */
struct place {
    int64_t ready_ms;
    uint64_t seq;
};

/* The places of the first `max` ready messages of a lane, as far as they are in memory. */
struct heads_item {
    uint8_t slot;
    uint32_t max;
    struct place *places; /* out: the caller's to free; NULL: none */
    uint32_t count;       /* out: of places */
    bool whole;           /* out: the lane has no others */
};

/* How many ready messages of a lane stand before a place. */
struct count_item {
    uint8_t slot;
    int64_t ready_ms;
    uint64_t seq;
    uint64_t before;
    bool exact; /* false: an estimate */
};

struct queue;

/* The message that a dedup key stands for. */
struct dedup_hit {
    struct message_id id;
    int64_t enqueued_ms;
    int64_t until_ms; /* INT64_MAX: as long as the message exists */
};

/* A key, and the message that it stands for. */
struct dedup_entry {
    struct dedup_hit hit;
    bool dropped; /* the key ended, in a group that is not committed yet */
    uint32_t key_len;
    char *key;
    struct order_node node; /* in dedup_until; tie: the message's seq */
};

/* One thing that a verb did. */
enum report_kind {
    REPORT_STORED,  /* a new message is in its place in memory */
    REPORT_JOINED,  /* a new message joined its lane's tail, and is the engine's to free */
    REPORT_CAME,    /* an untouched message became ready by the passing of time */
    REPORT_CHANGED, /* a message has another lease, attempt count, place or level */
    REPORT_ENDED,   /* a message ended, in the state that it has now; it is the engine's to free */
    REPORT_REVIVED, /* a dead letter is ready again, or is leaving */
    REPORT_KEY,     /* a dedup key stands for a message from now on */
};

struct queue_report {
    union {
        struct message *message;
        const struct dedup_entry *key;
    };
    uint8_t kind; /* enum report_kind */
    uint8_t from; /* CAME, CHANGED, ENDED: enum message_state before … */
    uint8_t slot; /* … and its level before */
    bool first;   /* CHANGED: until now the message was untouched */
};

_Static_assert(sizeof(struct queue_report) <= 16, "four reports in a cache line");

/* How much of a queue may be in memory. */
struct queue_room {
    uint32_t window; /* messages of a lane that may always be in memory; 0: all of them */
    uint64_t bytes;  /* more may be, while the messages of all queues take less than this */
};

/* The tail of a lane: those of its messages that are not in memory. The engine has them. With the
 * queue_tail_… functions below it tells the core what the core has to know of them. */
struct tail {
    uint64_t ready, scheduled; /* how many there are */
    int64_t clock_ms;          /* those with a ready time up to this count as ready */
    int64_t next_ms;           /* none of the scheduled ones is ready before this */
    int64_t wanted_ms;         /* with `lags`: the engine is to count up to this time */
    bool lags;                 /* some scheduled ones are due, and not yet counted as ready */
    struct place bound;        /* every message of the lane up to this place is in memory */
};

struct lane {
    struct order ready; /* by (ready_ms, seq), as is the next */
    struct order scheduled;
    struct tail tail;
};

struct queue {
    uint32_t id;
    /* Shared with whoever shows the queue to the layers above; owned by the engine. */
    struct queue_config *config;
    struct queue_view *view;
    uint64_t *next_seq;
    const uint64_t *share; /* the engine's: of the limits, SHARE_COUNT numbers; NULL: all */

    struct lane lanes[LEVEL_COUNT_MAX]; /* by slot */
    struct order leased;                /* by lease_until_ms, monotonic */
    struct order expiring;              /* struct expiry, by wall time */
    struct order history;               /* DONE and kept, by the time it was done */
    struct seqmap messages;             /* every message in memory but the dead, by seq */
    struct seqmap dead;
    struct map dedup; /* struct dedup_entry by key */
    struct order dedup_until;
    int64_t clock_ms; /* the latest wall time used for ordering */

    uint64_t tail;          /* messages in the tails of all lanes */
    uint64_t bodiless;      /* messages in memory whose body is elsewhere */
    uint64_t memory;        /* bytes of messages in memory */
    uint64_t *memory_total; /* … of all queues together, or NULL */
    struct queue_room room;
    void (*random)(void *out, size_t len);

    /* What was done since queue_reported(), in order. */
    bool reports; /* the engine takes reports, and frees messages that have ended */
    uint32_t report_count, report_cap;
    struct queue_report *report; /* owned */
};

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len));
void queue_fini(struct queue *q);
/* Frees up to `max` messages of a queue on which nothing but this and queue_fini() is called any
 * more. True: none is left. */
bool queue_empty_some(struct queue *q, uint32_t max);

/* Verbs. `now` is the time at which they happen. A refusal changes nothing. In an engine that has
 * messages elsewhere, MESSAGE_NOT_FOUND means "not in memory".
 *
 * `elsewhere`: when the core does not know the dedup key (queue_key_here() is false), the message
 * that the engine says it stands for; NULL: none. */
void queue_put(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
               struct instant now);
/* For a queue that moves to another server: the item is answered as a repeat when its dedup key is
 * known here, and else refused with QUEUE_MOVED. */
void queue_put_elsewhere(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
                         struct instant now);
/* An import has two keys: `elsewhere` is about its import_key(), `own_elsewhere` about the dedup
 * key that the message has. */
void queue_import(struct queue *q, struct import_item *item, const struct dedup_hit *elsewhere,
                  const struct dedup_hit *own_elsewhere, struct instant now);
#define NACK_DEAD (-2) /* a delay: there is no other attempt, and the message becomes DEAD */
void queue_ack(struct queue *q, struct settle_item *item, struct instant now);
void queue_nack(struct queue *q, struct settle_item *item, int64_t delay_ms, const char *reason,
                uint32_t reason_len, struct instant now);
void queue_release(struct queue *q, struct settle_item *item, struct instant now);
void queue_extend(struct queue *q, struct settle_item *item, int64_t lease_ms, struct instant now);
MUST_USE enum status queue_cancel(struct queue *q, const struct message_id *id, struct instant now);

/* A claim of up to `want` messages from the ranks 0 … max_rank. `in_order`: a level is emptied
 * before the next, less urgent one is looked at. */
struct claim_question {
    int max_rank;
    uint32_t want;
    bool in_order;
};

/* Whether every message that such a claim could take is in memory with its body, and no expired
 * message stands before them. False: *missing has a bit for each slot of whose lane something has
 * to be brought first. False with no bit set: a sweep is due. */
bool queue_holds(const struct queue *q, const struct claim_question *ask, struct instant now,
                 uint32_t *missing);

enum head {
    HEAD_HERE,
    HEAD_NONE,      /* nothing in the lane is ready */
    HEAD_ELSEWHERE, /* the first ready message is in the lane's tail */
};

/* Finds the head of a lane; *m is NULL unless the answer is HEAD_HERE. Messages before it that have
 * outlived their time to live end here. */
enum head queue_head(struct queue *q, uint8_t slot, struct instant now, struct message **m);
/* Leases a head that queue_head() found, and counts an attempt. */
void queue_lease(struct queue *q, struct message *m, int64_t lease_ms, struct instant now);

/* Gives a scheduled or ready message the level with this slot. It keeps its age. */
void queue_escalate(struct queue *q, struct escalate_item *item, uint8_t slot,
                    const struct escalate_note *note, struct instant now);

/* Makes a scheduled message ready now. */
void queue_promote(struct queue *q, struct message *m, struct instant now);
/* The message begins to leave: nobody can claim, cancel, escalate or redrive it. If it was leaving
 * with `from` already, it leaves with the new receipt. */
void queue_leave(struct queue *q, struct leave_item *item, struct instant now);
/* The message has arrived elsewhere: it ends here as CANCELLED, and its dedup key with it. */
void queue_left(struct queue *q, struct leave_item *item, struct instant now);
/* One that is leaving; behind `m`, or the first for NULL. NULL: there are no more. */
struct message *queue_leaving(const struct queue *q, const struct message *m);

void queue_count_before(const struct queue *q, struct count_item *item);
void queue_heads(const struct queue *q, struct heads_item *item);

/* The message in any state; NULL when it is not in memory. */
struct message *queue_find(struct queue *q, const struct message_id *id, struct instant now);
/* False when the message is done, and not kept any more. */
bool queue_shows(const struct queue *q, const struct message *m, struct instant now);

void queue_cancel_pending(struct queue *q, struct message *m, struct instant now);
void queue_redrive(struct queue *q, struct message *m, int slot, struct instant now);
void queue_drop_dead(struct queue *q, struct message *m, struct instant now);

/* Lets time pass for up to `max` messages; returns how many it moved. */
uint32_t queue_sweep(struct queue *q, uint32_t max, struct instant now);

/* Shows the messages that queue_sweep() would end now, in order, with the state in which each would
 * end. `ends` says false to a message that is not to end yet. Returns for how many messages
 * queue_sweep() may be called, so that it ends none but those to which `ends` said true. */
typedef bool queue_end_fn(void *ctx, const struct message *m, enum message_state to);
uint32_t queue_sweep_ends(const struct queue *q, uint32_t max, struct instant now,
                          queue_end_fn *ends, void *ctx);

/* When the next timer is due; INT64_MAX for none. */
void queue_due(const struct queue *q, int64_t *wall_ms, int64_t *mono_ms);

/* For engines that write down what happens. */

static inline void queue_reported(struct queue *q) /* the reports were taken */
{
    q->report_count = 0;
}

/* Whether the core knows what a dedup key stands for. If not, the engine has to look. */
bool queue_key_here(const struct queue *q, const char *key, size_t len);
/* To be called for a message that has ended, while its body is in memory. True: its dedup key ended
 * with it, and the engine has to delete the key. `elsewhere` as for the verbs. In a queue without
 * reports the core itself calls it. */
bool queue_key_drop(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere);

/* For engines that keep some messages elsewhere. */

/* Gives a message in memory its body, which it did not have. The body's memory changes owner. */
void queue_body_take(struct queue *q, struct message *m, char *body);

/* Puts a message in its place as it was recorded; totals stay as they are. m->state, slot,
 * ready_ms, delivery and so on are set. A SCHEDULED message whose ready time is within clock_ms
 * becomes READY at once if it is untouched; if it is touched, the next sweep makes it READY and
 * reports that. A message that comes from a tail is to be taken out of the tail's counts before
 * (queue_tail_take). */
void queue_restore(struct queue *q, struct message *m, int64_t clock_ms);
/* Takes a message out of memory: queue_forget() frees it, queue_detach() leaves it to the caller.
 * The engine still has it elsewhere. */
void queue_forget(struct queue *q, struct message *m);
void queue_detach(struct queue *q, struct message *m);

/* The tail of m's lane has one message more, or one less. */
void queue_tail_add(struct queue *q, const struct message *m);
void queue_tail_take(struct queue *q, const struct message *m);
/* Says all that a tail has; so far it had nothing. None of its scheduled messages is ready by
 * tail->clock_ms. */
void queue_tail_load(struct queue *q, uint8_t slot, const struct tail *tail);
void queue_tail_bound(struct queue *q, uint8_t slot, struct place bound);
/* No message is left that was counted by the tail's clock. So the clock may go back with the wall
 * clock. */
void queue_tail_forget_clock(struct queue *q, uint8_t slot);
/* Moves the tail's clock on to wall_ms. If scheduled messages of the tail may be ready by then, the
 * clock stays and the tail lags: the engine has to count them (queue_tail_counted). */
void queue_tail_advance(struct queue *q, uint8_t slot, int64_t wall_ms);
/* The engine has counted: `due` of the scheduled messages are ready by to_ms, and no other is ready
 * before next_ms. */
void queue_tail_counted(struct queue *q, uint8_t slot, uint64_t due, int64_t to_ms,
                        int64_t next_ms);
bool lane_within_bound(const struct lane *l, int64_t ready_ms, uint64_t seq);
static inline bool lane_has_tail(const struct lane *l)
{
    return l->tail.ready + l->tail.scheduled > 0;
}
bool lane_tail_claimable(const struct lane *l); /* something in the tail is ready, or may be */
bool lane_head_known(const struct lane *l);     /* the head is in memory, or the lane has none */
/* The last untouched message in memory; NULL: none is near the end of the lane. */
struct message *lane_last_born(const struct lane *l);

/* In a queue with reports memory holds only the dedup keys whose change is not committed yet. The
 * change of this key is committed now. */
void queue_dedup_committed(struct queue *q, const char *key, size_t len, uint64_t seq,
                           bool dropped);

void queue_check(const struct queue *q); /* asserts every invariant; for tests */

#endif
