/* One queue: its messages, each in the place of its state, and the moves between
 * places. No I/O and no clock: time comes in, decisions go out.
 *
 * Each level has a lane with two ordered sets, ready and scheduled. Leased
 * messages stand by the end of their lease, those with a time to live also by the
 * end of it. So every timer is the head of some set, and letting time pass costs
 * nothing while no head is due.
 *
 * A queue can stand in front of a store. Then the store is told of every move
 * (struct queue_backing), and a lane may have a tail: messages that are only in
 * the store. In a lane everything up to `bound` is in memory; behind it there may
 * be gaps, so a head behind the bound is not a head until the lane was refilled. */
#ifndef TRIAGE_CORE_QUEUE_H
#define TRIAGE_CORE_QUEUE_H

#include "base/clock.h"
#include "base/map.h"
#include "base/order.h"
#include "base/seqmap.h"
#include "base/status.h"
#include "core/levels.h"
#include "core/message.h"
#include "core/policy.h"

#include <stdbool.h>
#include <stdint.h>

/* One message to store, and what became of it. */
struct put_item {
    struct draft draft;
    enum status status;
    bool deduplicated;
    struct message_id id;
    int64_t enqueued_ms;
};

/* A message as it was elsewhere, to be stored as it was there; and what became of it. */
struct import_item {
    struct draft draft;       /* ready_ms is set; a delay or time to live is not looked at */
    struct message_id origin; /* its id there */
    int64_t enqueued_ms;
    int64_t expire_ms; /* the end of its time to live; INT64_MAX: none */
    int64_t died_ms;   /* when dead */
    bool dead;
    uint16_t attempts;
    /* The last escalation. A level that the queue does not have any more is left out. */
    bool escalated;
    int64_t escalated_ms;
    struct priority_ref escalated_from;
    /* The number of its level there, as a line shows it. A number of escalated_from means the same
     * level here only where this one does. */
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
/* Where the escalation came from, or the message's own slot when that is not known. */
uint8_t import_from_slot(const struct import_item *item, const struct queue_config *config,
                         uint8_t slot);

/* What it is known by: its id there, when it was enqueued, and what is in it. No client can name
 * this as a dedup key: it starts with a byte that no UTF-8 has. */
#define IMPORT_KEY_BYTES (1 + MESSAGE_ID_TEXT + 2 * 8)
void import_key(const struct import_item *item, char out[IMPORT_KEY_BYTES]);

#define IMPORT_KNOWN_MS (7LL * 86400 * 1000) /* for so long an import is remembered */

struct settle_item {
    struct message_id id;
    uint8_t receipt[RECEIPT_BYTES];
    enum status status;
    enum message_state state; /* after a success */
    int64_t lease_until_ms;   /* EXTEND: wall clock */
    uint8_t slot;             /* EXTEND: its level */
};

/* One message to give another level, and what became of it. */
struct move_item {
    struct message_id id;
    enum status status;       /* OK, MESSAGE_NOT_FOUND, NOT_PENDING */
    bool changed;             /* OK, but it was at that level already: false */
    enum message_state state; /* after a success, as is the next */
    uint8_t from_slot;
};

/* Who asks for it and why; either may be empty. */
struct move_note {
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

/* The places of the first `max` ready messages of a lane, as far as they are at hand. */
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

/* What a store does for a queue. Every call may change nothing but the store and what its own
 * comment says. A queue without backing passes NULL. */
struct queue_backing {
    /* Is there room in memory for one more in this lane? */
    bool (*admit)(struct queue *q, uint8_t slot);
    /* A new message. In memory: it is in its place. Else it joins the tail, and is the store's to
     * free. */
    void (*stored)(struct queue *q, struct message *m, bool in_memory);
    /* Lease, attempts, place or level changed: its state record is to be written. `first`: until
     * now it was as it was born. */
    void (*changed)(struct queue *q, struct message *m, bool first);
    /* It leaves for DONE, EXPIRED, CANCELLED or DEAD and is freed after this call. */
    void (*ended)(struct queue *q, struct message *m, enum message_state to);
    /* DEAD to pending again: the message is in memory, its record is to move back. */
    void (*revived)(struct queue *q, struct message *m);
    /* Brings the body of a message into memory. */
    void (*body)(struct queue *q, struct message *m);
    /* Brings a message that is only in the store into memory, through queue_restore(). */
    void (*recall)(struct queue *q, const struct message_id *id);
    /* A lane has ready messages in its tail and none before the bound: bring some. */
    void (*refill)(struct queue *q, uint8_t slot, struct instant now);
    /* How many of the tail have from_ms < ready_ms <= to_ms, and when the next one after is due.
     * When there are very many, to_ms is lowered to how far it has come. */
    uint64_t (*tail_due)(struct queue *q, uint8_t slot, int64_t from_ms, int64_t *to_ms,
                         int64_t *next_ms);
    /* Dedup keys. The entry's key, id and times are set; find fills in all but the key. */
    bool (*dedup_find)(struct queue *q, const char *key, size_t len, struct dedup_hit *hit);
    void (*dedup_put)(struct queue *q, const char *key, size_t len, const struct dedup_hit *hit);
    void (*dedup_drop)(struct queue *q, const char *key, size_t len);
};

struct lane {
    struct order ready; /* by (ready_ms, seq), as is the next */
    struct order scheduled;
    /* The tail: in the store only. */
    uint64_t tail_ready;
    uint64_t tail_scheduled;
    int64_t tail_clock_ms; /* up to this time ready messages of the tail are counted as ready */
    int64_t tail_due_ms;   /* when the next scheduled one of the tail will be ready */
    bool tail_lags;        /* more of it is ready than was counted; only sweeps go on counting */
    int64_t bound_ms;      /* with a tail: the last place up to which all is in memory */
    uint64_t bound_seq;
    /* In memory, recorded as cold and as yet untouched: after a restart these are tail again. */
    uint64_t cold_ready;
    uint64_t cold_scheduled;
};

struct queue {
    uint32_t id;
    /* Shared with whoever shows the queue to the layers above; owned by the engine. */
    struct queue_config *config;
    struct queue_view *view;
    uint64_t *next_seq;

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
    uint64_t memory;        /* bytes of messages in memory */
    uint64_t *memory_total; /* … of all queues together, or NULL */
    int64_t store_due_ms;   /* the backing's own timer, wall; INT64_MAX for none */
    void (*random)(void *out, size_t len);
    const struct queue_backing *backing; /* or NULL */
    void *store;                         /* the backing's */
};

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len));
void queue_fini(struct queue *q);
/* Frees up to `max` messages of a queue that only queue_fini() will see again; true: none is left.
 */
bool queue_empty_some(struct queue *q, uint32_t max);

/* Verbs. `now` is the time at which they happen. A refusal changes nothing. */
void queue_put(struct queue *q, struct put_item *item, struct instant now);
void queue_import(struct queue *q, struct import_item *item, struct instant now);
void queue_ack(struct queue *q, struct settle_item *item, struct instant now);
void queue_nack(struct queue *q, struct settle_item *item, int64_t delay_ms, const char *reason,
                uint32_t reason_len, struct instant now);
void queue_release(struct queue *q, struct settle_item *item, struct instant now);
void queue_extend(struct queue *q, struct settle_item *item, int64_t lease_ms, struct instant now);
MUST_USE enum status queue_cancel(struct queue *q, const struct message_id *id, struct instant now);

/* A claim of up to `want` messages that take at most rank max_rank. `in_order`: a more urgent level
 * is emptied before the next is looked at. */
struct claim_question {
    int max_rank;
    uint32_t want;
    bool in_order;
};

/* Whether all that such a claim could take is in memory, and none that it would have to look past
 * has outlived its time to live. `missing`: the slots of lanes that are to be refilled first; none,
 * but false: a sweep is due. */
bool queue_holds(const struct queue *q, const struct claim_question *ask, struct instant now,
                 uint32_t *missing);

/* The head of a lane; NULL when nothing there is ready. Brought into memory if need be; what has
 * outlived its time to live is out of the way then. */
struct message *queue_head(struct queue *q, uint8_t slot, struct instant now);
/* Leases such a head, which counts an attempt. */
void queue_lease(struct queue *q, struct message *m, int64_t lease_ms, struct instant now);

/* Gives a scheduled or ready message the level with this slot. It keeps its age. */
void queue_escalate(struct queue *q, struct move_item *item, uint8_t slot,
                    const struct move_note *note, struct instant now);

void queue_count_before(const struct queue *q, struct count_item *item);
void queue_heads(const struct queue *q, struct heads_item *item);

/* The message in memory or brought there, in any state; NULL when there is none. */
struct message *queue_find(struct queue *q, const struct message_id *id, struct instant now);
/* False when it is done, and not kept any more. */
bool queue_shows(const struct queue *q, const struct message *m, struct instant now);
void queue_need_body(struct queue *q, struct message *m);

void queue_cancel_pending(struct queue *q, struct message *m, struct instant now);
void queue_redrive(struct queue *q, struct message *m, int slot, struct instant now);
void queue_drop_dead(struct queue *q, struct message *m, struct instant now);

/* Lets time pass for up to `max` messages; returns how many it moved. */
uint32_t queue_sweep(struct queue *q, uint32_t max, struct instant now);

/* When the next timer is due; INT64_MAX for none. */
void queue_due(const struct queue *q, int64_t *wall_ms, int64_t *mono_ms);

/* For stores. */

/* Puts a message back in its place as it was recorded: m->state, slot, ready_ms, delivery and so on
 * are set; totals are not touched. What is SCHEDULED and as it was born is READY if its time has
 * come; if it was touched it is so with the next sweep, of which the store is told. The lane's tail
 * counts are the caller's to correct first. */
void queue_restore(struct queue *q, struct message *m, struct instant now);
/* Up to when a message counts as ready: now, or what its lane's tail has been counted by. */
int64_t queue_ready_time(const struct queue *q, const struct message *m, struct instant now);
void queue_forget(struct queue *q, struct message *m); /* out of memory; the store still has it */
void queue_detach(struct queue *q, struct message *m); /* the same, but m is the caller's now */

/* Tails. A message is counted as ready when its ready time is within the lane's tail clock. */
void queue_tail_add(struct queue *q, const struct message *m);
void queue_tail_take(struct queue *q, const struct message *m);
void queue_tail_advance(struct queue *q, uint8_t slot, int64_t wall_ms);
bool lane_within_bound(const struct lane *l, int64_t ready_ms, uint64_t seq);
static inline bool lane_has_tail(const struct lane *l)
{
    return l->tail_ready + l->tail_scheduled > 0;
}
static inline bool lane_has_cold(const struct lane *l) /* a tail, or what will be one */
{
    return lane_has_tail(l) || l->cold_ready + l->cold_scheduled > 0;
}
bool lane_tail_claimable(const struct lane *l); /* something in the tail is ready, or may be */
bool lane_head_known(const struct lane *l);     /* no refill is needed to claim from it */
struct message *lane_last_born(const struct lane *l); /* in memory and untouched; NULL: none near */

struct dedup_entry {
    struct dedup_hit hit;
    bool dropped; /* by a change the store has not seen committed */
    uint32_t key_len;
    char *key;
    struct order_node node; /* in dedup_until; tie: the message's seq */
};

/* With a backing, memory holds only the keys whose change is not committed. This one is. */
void queue_dedup_committed(struct queue *q, const char *key, size_t len, uint64_t seq,
                           bool dropped);

void queue_check(const struct queue *q); /* asserts every invariant; for tests */

#endif
