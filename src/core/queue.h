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
 * engine takes right after it. An engine that has more messages than fit in memory
 * keeps some of them elsewhere: the tail of a lane. Everything up to the tail's
 * bound is in memory; behind it there may be gaps, so a head behind the bound is
 * not a head. A question about what is not here has the answer "elsewhere" or "not
 * found"; the engine brings it, and asks again. */
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
struct escalate_item {
    struct message_id id;
    enum status status;       /* OK, MESSAGE_NOT_FOUND, NOT_PENDING */
    bool changed;             /* OK, but it was at that level already: false */
    enum message_state state; /* after a success, as is the next */
    uint8_t from_slot;
};

/* Who asks for it and why; either may be empty. */
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

/* A key, and the message that it stands for. */
struct dedup_entry {
    struct dedup_hit hit;
    bool dropped; /* by a change the store has not seen committed */
    uint32_t key_len;
    char *key;
    struct order_node node; /* in dedup_until; tie: the message's seq */
};

/* One thing that a verb did. */
enum report_kind {
    REPORT_STORED,  /* a new message is in its place in memory */
    REPORT_JOINED,  /* a new message joined its lane's tail, and is the engine's to free */
    REPORT_CAME,    /* time made it ready; it is as it was born */
    REPORT_CHANGED, /* its lease, attempts, place or level are others */
    REPORT_ENDED,   /* it left for the state that it has now, and is the engine's to free */
    REPORT_REVIVED, /* a dead one is ready again */
    REPORT_KEY,     /* a dedup key stands for a message */
};

struct queue_report {
    union {
        struct message *message;
        const struct dedup_entry *key;
    };
    uint8_t kind; /* enum report_kind */
    uint8_t from; /* CAME, CHANGED, ENDED: enum message_state before … */
    uint8_t slot; /* … and its level */
    bool first;   /* CHANGED: until now it was as it was born */
};

_Static_assert(sizeof(struct queue_report) <= 16, "four reports in a cache line");

/* How much of a queue may be in memory. */
struct queue_room {
    uint32_t window; /* so many messages of a lane always may; 0: all of them */
    uint64_t bytes;  /* beyond that, while the messages of all queues take less than this */
};

/* The tail of a lane: those of its messages that are elsewhere. The engine has them, and says with
 * the functions at the end what the core has to know of them. */
struct tail {
    uint64_t ready, scheduled; /* how many there are */
    int64_t clock_ms;          /* those with a ready time up to this count as ready */
    int64_t next_ms;           /* none of the scheduled ones is ready before this */
    int64_t wanted_ms;         /* it lags: the engine is to count up to this time */
    bool lags;                 /* there are scheduled ones whose time has come */
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
    bool reports; /* the engine takes them, and keeps what has ended itself */
    uint32_t report_count, report_cap;
    struct queue_report *report; /* owned */
};

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len));
void queue_fini(struct queue *q);
/* Frees up to `max` messages of a queue that only queue_fini() will see again; true: none is left.
 */
bool queue_empty_some(struct queue *q, uint32_t max);

/* Verbs. `now` is the time at which they happen. A refusal changes nothing. MESSAGE_NOT_FOUND means
 * "not in memory" where the engine has messages elsewhere.
 *
 * `elsewhere` is what a key stands for that is not here (queue_key_here()); NULL: nothing. */
void queue_put(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
               struct instant now);
/* The same for the two keys of an import: the one it is known by, and its own. */
void queue_import(struct queue *q, struct import_item *item, const struct dedup_hit *elsewhere,
                  const struct dedup_hit *own_elsewhere, struct instant now);
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

/* Whether all that such a claim could take is in memory with its body, and none that it would have
 * to look past has outlived its time to live. `missing`: the slots of lanes of which something is
 * to be brought first; none, but false: a sweep is due. */
bool queue_holds(const struct queue *q, const struct claim_question *ask, struct instant now,
                 uint32_t *missing);

enum head {
    HEAD_HERE,
    HEAD_NONE,      /* nothing in the lane is ready */
    HEAD_ELSEWHERE, /* what is ready stands in the lane's tail */
};

/* The head of a lane in *m, which is NULL unless it is here. What has outlived its time to live is
 * out of the way then. */
enum head queue_head(struct queue *q, uint8_t slot, struct instant now, struct message **m);
/* Leases such a head, which counts an attempt. */
void queue_lease(struct queue *q, struct message *m, int64_t lease_ms, struct instant now);

/* Gives a scheduled or ready message the level with this slot. It keeps its age. */
void queue_escalate(struct queue *q, struct escalate_item *item, uint8_t slot,
                    const struct escalate_note *note, struct instant now);

void queue_count_before(const struct queue *q, struct count_item *item);
void queue_heads(const struct queue *q, struct heads_item *item);

/* The message in any state; NULL when it is not in memory. */
struct message *queue_find(struct queue *q, const struct message_id *id, struct instant now);
/* False when it is done, and not kept any more. */
bool queue_shows(const struct queue *q, const struct message *m, struct instant now);

void queue_cancel_pending(struct queue *q, struct message *m, struct instant now);
void queue_redrive(struct queue *q, struct message *m, int slot, struct instant now);
void queue_drop_dead(struct queue *q, struct message *m, struct instant now);

/* Lets time pass for up to `max` messages; returns how many it moved. */
uint32_t queue_sweep(struct queue *q, uint32_t max, struct instant now);

/* When the next timer is due; INT64_MAX for none. */
void queue_due(const struct queue *q, int64_t *wall_ms, int64_t *mono_ms);

/* For engines that write down what happens. */

static inline void queue_reported(struct queue *q) /* they were taken */
{
    q->report_count = 0;
}

/* Whether the core knows by itself what a dedup key stands for. When not, only the engine does. */
bool queue_key_here(const struct queue *q, const char *key, size_t len);
/* A message has ended, and its body is here. True: its key ended with it, and is to be deleted;
 * `elsewhere` as above. Called by the core itself for a queue without reports. */
bool queue_key_drop(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere);

/* For engines that keep some messages elsewhere. */

/* The body of a message in memory, which had none; taken. */
void queue_body_take(struct queue *q, struct message *m, char *body);

/* Puts a message back in its place as it was recorded: m->state, slot, ready_ms, delivery and so on
 * are set; totals are not touched. What is SCHEDULED and as it was born is READY if its ready time
 * is within clock_ms; if it was touched it is so with the next sweep, which reports it. One that
 * comes from a tail is taken out of the tail's counts first. */
void queue_restore(struct queue *q, struct message *m, int64_t clock_ms);
void queue_forget(struct queue *q, struct message *m); /* out of memory; the engine still has it */
void queue_detach(struct queue *q, struct message *m); /* the same, but m is the caller's now */

/* One more, or one less, in the tail of its lane. */
void queue_tail_add(struct queue *q, const struct message *m);
void queue_tail_take(struct queue *q, const struct message *m);
/* All that a tail has, which had nothing. None of the scheduled ones is ready at its clock. */
void queue_tail_load(struct queue *q, uint8_t slot, const struct tail *tail);
void queue_tail_bound(struct queue *q, uint8_t slot, struct place bound);
/* Nothing is left that was counted by its clock: the wall clock may be set back. */
void queue_tail_forget_clock(struct queue *q, uint8_t slot);
/* Lets the clock come to wall_ms. Where the tail has messages that are ready by then it stays, and
 * the tail lags: the engine is to count them. */
void queue_tail_advance(struct queue *q, uint8_t slot, int64_t wall_ms);
/* Of the scheduled ones, `due` are ready by to_ms, and the next one is at next_ms or later. */
void queue_tail_counted(struct queue *q, uint8_t slot, uint64_t due, int64_t to_ms,
                        int64_t next_ms);
bool lane_within_bound(const struct lane *l, int64_t ready_ms, uint64_t seq);
static inline bool lane_has_tail(const struct lane *l)
{
    return l->tail.ready + l->tail.scheduled > 0;
}
bool lane_tail_claimable(const struct lane *l); /* something in the tail is ready, or may be */
bool lane_head_known(const struct lane *l); /* its first ready message is here, or there is none */
struct message *lane_last_born(const struct lane *l); /* in memory and untouched; NULL: none near */

/* With reports, memory holds only the keys whose change is not committed. This one is. */
void queue_dedup_committed(struct queue *q, const char *key, size_t len, uint64_t seq,
                           bool dropped);

void queue_check(const struct queue *q); /* asserts every invariant; for tests */

#endif
