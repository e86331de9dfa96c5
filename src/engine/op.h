/* Operations: what is asked of an engine, verb by verb. Half of the contract;
 * engine.h has the other half, and the promises that hold for every verb.
 *
 * The caller embeds a `struct engine_op` in its request, fills in the part of the
 * union that belongs to the verb, and submits it. From engine_submit() until `done`
 * the op is the engine's. Under each verb stand two lists:
 *
 *   Triage   what the caller guarantees
 *   Engine   what the engine guarantees when op->status is OK, and which other
 *            statuses there are. ENGINE_UNAVAILABLE and ENGINE_REFUSED are possible
 *            for every verb (engine.h), and so is QUEUE_NOT_FOUND, for a queue that another
 *            process has deleted (SHARED), or that was deleted while the op was put off.
 *
 * With a status other than OK the fields marked "out" are not looked at, with two exceptions:
 * claim.found and the `found` of its steps are 0 then, and the statuses of items may be set. */
#ifndef TRIAGE_ENGINE_OP_H
#define TRIAGE_ENGINE_OP_H

#include "base/clock.h"
#include "base/status.h"
#include "core/config.h"
#include "core/message.h"
#include "core/policy.h"
#include "core/queue.h"
#include "core/schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_op;
struct engine_queue;
struct queue_share;

/* Callbacks of the caller. All of them run on the shard's thread. An engine calls `done` from
 * engine_poll() alone, and the others before it, from engine_submit() or engine_poll(). `done` may
 * submit ops, and in a SHARED engine so may `touched`; nothing else in them calls the engine. */

typedef void engine_done(struct engine_op *op);

/* Shows one message. Everything in it is borrowed for the call. What is filled in:
 *
 *   - always: the seq (message_new() takes it), born_slot and born_ms (with them
 *     message_identity() works), slot, ready_ms, enqueued_ms, attempts, state, kind, payload_len,
 *     metadata_len; and expiry, if the message has a time to live
 *   - body: payload and metadata are in it. The dedup key is, too, except for CLAIM, where
 *     dedup_len may be 0. For LIST with slots there may be no payload: payload_len is 0 then
 *   - CLAIM: state LEASED, the attempt counted, delivery with receipt, lease_ms and lease_until_ms
 *     of this lease. Reason and escalation may be missing: no consumer is told
 *   - other verbs: delivery, as far as the message has one; NULL and zeroes mean the same. LEASED:
 *     receipt, lease_ms and lease_until_ms. DEAD and DONE: died_ms, which for DONE is when it was
 *     acknowledged. The reason of the last failed attempt, and the last escalation
 *
 * lease_until_ms is on now.mono_ms' scale, also where the engine's own clock is another. `cold`,
 * `touched` and the links are not looked at.
 *
 * visit may end the op that shows it messages, because there is no room for more. In a LIST or
 * DEAD_LIST it sets list.limit to list.found + 1. In a CLAIM of an engine with the capability
 * LIVE_VIEW, which leases and shows one message after the other, it sets claim.plan->want to
 * claim.found. */
typedef void engine_visit(struct engine_op *op, const struct engine_queue *q,
                          const struct message *m, struct instant now);

/* Shows a queue that changed in a sweep. It may have messages for waiting consumers. In a SHARED
 * engine the queue may be new, or have another configuration or place. With q->gone another process
 * has deleted it: the handle ends when the call has returned and no op of the queue is under way
 * any more. */
typedef void engine_touched(struct engine_op *op, struct engine_queue *q);

/* Shows a schedule, borrowed for the call. In a sweep the schedule is due at `now`, which is the
 * engine's clock. */
typedef void engine_schedule(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                             struct instant now);

enum engine_verb {
    /* Finds a queue that another process may have made.
     * Triage:
     *   - only to SHARED engines, and only for a name that queue_find() does not know
     * Engine:
     *   - op->queue is the handle at done
     *   - QUEUE_NOT_FOUND: the store has no such queue */
    ENGINE_QUEUE_OPEN,

    /* Creates a queue (op->queue is NULL), or gives one another configuration.
     * Triage:
     *   - set.config is valid (config_valid), but for slots and history_since_ms: these are the
     *     engine's to assign. It stays the caller's until done
     *   - one creation of a name at a time, and none while the name has a handle here
     * Engine, creating:
     *   - op->queue is the new handle at done; slots come from levels_adopt_slots(NULL, …)
     *   - the queue's id was never used in this store before, not by a deleted queue either; with
     *     set.celled it is as set.cell says
     *   - SHARED: when another process has made the name meanwhile, op->queue is that queue,
     *     set.existed is true and its configuration is left as it is
     * Engine, changing:
     *   - slots come from levels_adopt_slots(): a level keeps the slot of its name, or of the level
     *     whose heir it is; history_since_ms from config_adopt_history()
     *   - q->version is another one, and q->config the new one, at done at the latest
     *   - every op submitted before goes by the old configuration, every op after by the new one
     *   - a schedule keeps the level that it names, or the heir of that level
     *   - LEVEL_IN_USE: a level with messages (queue_view_used), or one that a schedule names,
     *     would vanish; set.level_name names it, and points into q->config or to a constant.
     *     set.schedule_name, unless it is NULL, gets the name of the schedule, or none
     *   - with set.dry nothing is changed, and the answer is the one that it would have had */
    ENGINE_QUEUE_SET,

    /* Deletes a queue with everything in it: messages, schedules, keys, history.
     * Triage:
     *   - submits nothing more for this handle, unless the op is refused
     *   - with remove.if_empty, the caller has seen that the view is empty and q->schedules is 0
     * Engine:
     *   - the name is free at done; the handle ends when done returns
     *   - with remove.if_empty: QUEUE_NOT_EMPTY when other processes (SHARED) or ops that were put
     *     off have filled the queue or given it schedules. The queue stays, and the handle with it
     *   - deleting a large queue takes time, which the engine spreads over the sweeps to come */
    ENGINE_QUEUE_DELETE,

    /* Gives a queue another place (struct queue_place), if that is newer than the one it has.
     * Triage:
     *   - place.epoch is 1 to INT64_MAX; place.map has up to PLACE_MAP_MAX bytes of UTF-8, no NUL
     * Engine:
     *   - if place.epoch is larger than the epoch of the present place (0 when there is none), the
     *     store takes epoch, closed and map in one step; place.stale is false. Otherwise nothing is
     *     changed and place.stale is true, which is OK too
     *   - at done q->place is no older than what the store had at that moment
     *   - when it is done, no PUT or IMPORT that the new place refuses takes effect any more, in no
     *     process; and every one that took effect before is as durable as the op
     *   - the configuration and its version stay: no op is `outdated` by it
     *   - a place is kept, copied by backups and deleted with its queue */
    ENGINE_QUEUE_PLACE,

    /* Asks for the share that a queue has of its limits (struct queue_share), or gives it another.
     * Triage:
     *   - share.next is NULL, which only asks; or its epoch is 1 to INT64_MAX, each of its numbers
     *     0 to SHARE_WHOLE, and its note up to PLACE_MAP_MAX bytes of UTF-8, no NUL
     * Engine:
     *   - if the epoch of share.next is that of the present share (0 when there is none) plus 1,
     *     the store takes it in one step; share.stale is false. Otherwise nothing is changed and
     *     share.stale is true, which is OK too
     *   - share.now is the share that the queue has then, malloc()ed and the caller's to free;
     *     NULL: it has none. share.used is what the queue holds (share_used())
     *   - of a limit that is set the queue uses no more than the share's number for it: PUT as to
     *     max_depth and max_bytes, and without LIVE_VIEW also CLAIM as to max_in_flight. With
     *     LIVE_VIEW the caller sees to in-flight shares. What the queue holds already stays
     *   - when a share was taken, share.used is exact for the limits that are set, and no PUT or
     *     CLAIM that goes by an older share takes effect any more, in no process
     *   - a queue that is made with set.celled has the share of queue_share_new()
     *   - the configuration and its version stay: no op is `outdated` by it. A share is kept,
     * copied by backups and deleted with its queue */
    ENGINE_QUEUE_SHARE,

    /* Stores the drafts of put.items, in order.
     * Triage:
     *   - count is 1 or more; draft.body holds payload, metadata and dedup key, one after the other
     *   - put.epoch is that of the place by which the caller chose this queue; 0: it knows of none
     *   - only_known is set in all items or in none
     * Engine, for each item:
     *   - item.status OK: it is stored, at the level that levels_resolve() finds for its priority,
     *     ready at draft.ready_ms, or at now + delay_ms when that is READY_NOW; scheduled until
     *     then. item.id and item.enqueued_ms are set, and the body is taken: draft.body is NULL
     *   - OK and item.deduplicated: an earlier message has the dedup key. id and enqueued_ms are
     *     that one's, the body stays the caller's, totals.deduplicated counts it. A key counts for
     *     config.dedup_window_ms from enqueued_ms (DEDUP_WINDOW), or until its message has ended
     *     as DONE, EXPIRED or CANCELLED (DEDUP_LIVE)
     *   - the time to live is draft.ttl_ms, or the queue's for TTL_DEFAULT; 0 is none
     *   - in this order: UNKNOWN_PRIORITY; deduplicated; PAYLOAD_TOO_LARGE, when it would not fit
     *     into max_bytes of an empty queue; QUEUE_FULL, when ready and scheduled have reached
     *     max_depth or would pass max_bytes, or the queue's share of these
     *   - an item with only_known is never stored: OK and deduplicated as above, or
     *     MESSAGE_NOT_FOUND when no message has its key; no limit of the queue refuses it
     *   - MOVED, then STORAGE_FULL, are before all of these, and are for the op with all its items
     *   - MOVED: the queue has a place, and put.epoch is smaller than the epoch of that, or it is
     *     closed; at done q->place is the place that refused the op, or a newer one. Items with
     *     only_known are let through by a closed place
     *   - MOVES: a queue whose configuration has forward_to stores nothing. What is deduplicated is
     *     answered so; every other item is refused with QUEUE_MOVED */
    ENGINE_PUT,

    /* Stores import.items as they were in another store, in order.
     * Triage:
     *   - as for PUT; draft.ready_ms is set, delay_ms and ttl_ms are not looked at
     * Engine, for each item:
     *   - OK: dead ones are dead, with died_ms and reason; the others ready or scheduled by their
     *     ready time. One whose expire_ms is past ends at once (config.expired). attempts,
     *     enqueued_ms and the escalation (import_from_slot) are kept. id is a new one. The body is
     *     taken. No limit of the queue refuses it
     *   - OK and item.known: the same message (import_key) was imported within IMPORT_KNOWN_MS; id
     *     is that one's, the body stays the caller's
     *   - its dedup key counts as if it had been put at enqueued_ms, unless somebody has the key
     *   - UNKNOWN_PRIORITY; MOVED (by import.epoch, but not with import.anyway) and STORAGE_FULL
     * for the op with all its items */
    ENGINE_IMPORT,

    /* Leases messages by a plan (core/policy.h says how to carry one out).
     * Triage:
     *   - the plan names slots of the configuration that the queue had at submit
     *   - a plan for an engine with LIVE_VIEW was made by the exact view, within the in-flight
     *     limits. For other engines it names all lanes that could have a message, and the in-flight
     *     limits were not looked at
     *   - only one op has the plan; plan->policy may be shared by claims of the queue
     * Engine:
     *   - up to plan->want messages get a lease of claim.lease_ms, or of config.visibility_ms for
     *     -1. Each counts an attempt, has a new random receipt, stamped with the time
     *     (receipt_stamp), and is shown to visit, in the order of the plan. claim.found says how
     *     many; each step's `found`, how many of them it gave
     *   - a message whose time to live has passed is never leased; it ends as in a sweep
     *   - never more than plan->room[slot] from a lane (UINT32_MAX: no limit). An engine may lower
     *     room[] as it goes; nobody reads it afterwards
     *   - without LIVE_VIEW: also never beyond max_in_flight of level and queue at that moment, and
     *     the queue's share of these
     *   - for steps in turn the engine asks policy_turn() for each message when it takes it, and
     *     pays with policy_spend(). Claims of one policy see what those before them have paid. An
     *     engine that decides elsewhere takes the tokens there, and pays at done
     *   - finding nothing is OK with found 0 */
    ENGINE_CLAIM,

    /* The next four verbs settle the messages of settle.items, by id and receipt.
     * Engine, for each item, in order (one message may stand there twice):
     *   - OK only for the newest receipt of a leased message, whose lease has not run out, by
     *     now.mono_ms or the engine's clock; item.state says in which state the message is then,
     *     and item.slot at which level it was leased
     *   - RECEIPT_EXPIRED for any other receipt, MESSAGE_NOT_FOUND when there is no such message
     *     (any more). Nothing was changed then
     *
     * ACK: DONE. Kept for config.history_ms as of config_done_ms(). */
    ENGINE_ACK,
    /* NACK: the attempt failed, with settle.reason ("nacked" when that is empty). READY at its old
     * place; or SCHEDULED for settle.delay_ms from now, where -1 means config_backoff_ms(); or DEAD
     * when attempts have reached config.max_attempts, or settle.delay_ms is NACK_DEAD; or ended,
     * when its time to live is over. */
    ENGINE_NACK,
    /* RELEASE: back to its old place, the attempt is not counted; or ended, as above. */
    ENGINE_RELEASE,
    /* EXTEND: the lease ends settle.lease_ms from now. item.lease_until_ms is set, on the wall
     * clock. */
    ENGINE_EXTEND,

    /* Ends the scheduled or ready message one.id as CANCELLED.
     * Engine:
     *   - NOT_PENDING when it is in another state, MESSAGE_NOT_FOUND */
    ENGINE_CANCEL,

    /* Gives escalate.items the level with escalate.slot, and notes who asked for it and why.
     * Triage:
     *   - the slot is one of the queue's
     * Engine, for each item (struct escalate_item):
     *   - scheduled or ready ones only, else NOT_PENDING; MESSAGE_NOT_FOUND
     *   - ready_ms and seq stay, so that the message keeps its age. A message that is at that level
     *     already stays as it was: OK, and `changed` is false */
    ENGINE_ESCALATE,

    /* Makes scheduled messages ready before their time: those of bulk.ids.
     * Engine:
     *   - SCHEDULED to READY at now, or at its ready time if that is past; attempts, level and time
     *     to live stay
     *   - ids that are not of scheduled messages are skipped; bulk.count says how many were not,
     * and bulk.more is false */
    ENGINE_PROMOTE,
    /* Lets the messages of leave.items leave for another store. A message that is leaving is LEASED
     * to nobody, and without an end: its lease_ms is below 0, and leaving_died() says whether it
     * was a dead letter. It counts as claimed.
     * Triage:
     *   - not to a PARTITIONED engine: it is what such an engine asks of its stores
     *   - leave.epoch is that of the place by which the caller lets the messages go
     *   - item.receipt is new, or the one with which the message is leaving already
     * Engine, for each item, in order:
     *   - SCHEDULED, READY or DEAD: it is leaving, with item.receipt. If it is leaving already with
     *     item.from or item.receipt, it leaves with item.receipt from now on
     *   - RECEIPT_EXPIRED when it is leaving with another receipt, NOT_PENDING when it is in
     *     another state, MESSAGE_NOT_FOUND
     *   - those that are OK are shown to visit as they are then, with their bodies, in order;
     *     leave.found says how many
     *   - MOVED for the op with all its items: the queue has a place that is not closed, or whose
     *     epoch is larger than leave.epoch
     *   - without items: up to leave.limit of those that are leaving are shown to visit */
    ENGINE_LEAVE,
    /* The messages of leave.items have arrived elsewhere: they end.
     * Engine, for each item:
     *   - OK: it was leaving with item.receipt, and has ended as CANCELLED; it counts as released,
     *     too. Its dedup key ends with it, whatever the window says
     *   - RECEIPT_EXPIRED for any other receipt or state, MESSAGE_NOT_FOUND */
    ENGINE_LEFT,

    /* Counts the ready messages before each place of count.items.
     * Triage:
     *   - count.count may be 0: then the op is asked for the view alone
     * Engine:
     *   - `before` is right, or an estimate (`exact` is false): counting costs the same however
     *     many messages there are
     *   - at done q->view and engine_queue_moment() are no older than the submission
     *   - SHARED, with count.waits: a message that becomes ready from now on wakes the shard */
    ENGINE_COUNT,

    /* Finds the places of the first ready messages of each lane of heads.items.
     * Engine:
     *   - `places` is malloc()ed, in order, at most `max`, and the caller's to free; NULL for none
     *   - messages that are not in memory may be missing: `whole` says that the lane has no
     *     others */
    ENGINE_HEADS,

    /* Shows the message one.id to visit.
     * Engine:
     *   - in any state that lasts: scheduled, ready, leased, dead, and DONE while config_keeps()
     *   - MESSAGE_NOT_FOUND */
    ENGINE_GET,

    /* Cancels scheduled and ready messages: bulk.ids, or with seq < bulk.before_seq, bulk.max at
     * most.
     * Triage:
     *   - the first ask has bulk.cursor zero and before_seq q->next_seq, which means all there are.
     *     The next asks submit the same struct as it came back
     * Engine:
     *   - bulk.count says how many, bulk.more whether there may be others: the caller asks again
     *   - ids that are not of such messages are skipped; with ids, more is false
     *   - messages that are put after the first ask are not cancelled. To know them on the next
     *     ask, the engine may change before_seq and cursor */
    ENGINE_PURGE,

    /* Shows messages to visit, a page at a time.
     * Triage:
     *   - list.after is zero, or a cursor that a client sent, which may be anything
     *   - list.states is 0, which asks for all that are not DONE; or a set of states without DONE;
     *     or DONE alone
     * Engine:
     *   - up to list.limit messages behind list.after, in an order of the engine's own; list.found
     *     says how many. With list.more, list.next is where the next page begins
     *   - every scheduled, ready, leased and dead message that is not put, claimed, moved or ended
     *     between the pages is shown exactly once. DONE ones may be shown while config_keeps()
     *   - INVALID_FIELD for a cursor that no list.next can have been. Any other cursor costs no
     *     more than a page
     *   - with list.states only messages in these states are asked for; others may be shown too,
     * and a page may be short though there is more. DONE ones are shown all then
     *   - with list.bare the payloads are not asked for, and may be missing
     *   - with list.slots only scheduled and ready messages of these levels are asked for; others
     *     may be shown too. A message that the caller escalates to slots[0] between the pages is
     *     still shown once */
    ENGINE_LIST,

    /* As LIST, for dead letters alone. list.states and list.slots are zero.
     * Triage:
     *   - list.after is zero, a cursor, or has the seq of a message alone; then list.after_queue is
     *     the queue in the id of that message, or 0
     * Engine:
     *   - by seq, from list.after.seq + 1 on. An engine that makes one queue of several has to look
     *     at list.after_queue; others do not */
    ENGINE_DEAD_LIST,

    /* Makes dead letters ready: bulk.ids, or up to bulk.max of all with seq < bulk.before_seq.
     * Triage:
     *   - bulk.slot is one of the queue's, or -1; cursor and before_seq as for PURGE
     * Engine:
     *   - DEAD to READY at its old place, or at now if its ready time is yet to come; attempts 0,
     *     no time to live, at bulk.slot unless that is -1
     *   - ids that are not dead letters are skipped. count and more as for PURGE; with ids, more is
     *     false */
    ENGINE_DEAD_REDRIVE,

    /* Ends dead letters as CANCELLED. Which ones, is said as for DEAD_REDRIVE. */
    ENGINE_DEAD_DROP,

    /* Lets time pass.
     * Triage:
     *   - submits one when next_due_ms() says 0, or the last one said `more`; one at a time, but
     *     for those with sweep.look
     * Engine, for about sweep.max messages:
     *   - scheduled messages that are due become READY
     *   - a lease that ran out counts in totals.lease_expired. What becomes of the message is what
     *     NACK says for the delay -1, with the reason "lease expired"
     *   - messages that outlived their time to live end as EXPIRED, or as DEAD with the reason
     *     "expired" (config.expired)
     *   - each queue in which something became ready is shown to `touched`, and in a SHARED engine
     *     each queue that other processes made, changed or deleted
     *   - schedules whose time has come are shown to `due`, unless that is NULL. One that is not
     *     fired then is shown again, SCHEDULE_AGAIN_MS later at the earliest
     *   - sweep.more: there is more to do at once
     *   - SHARED, with sweep.look: every queue that other processes changed is shown to `touched`.
     *     When there are many of them, a portion is shown and sweep.cursor is not 0: the caller
     *     asks again with that cursor until it is 0 */
    ENGINE_SWEEP,

    /* Sets a schedule.
     * Triage:
     *   - schedule.set is valid, its timing.next_ms what the rule gives for now
     * Engine:
     *   - a copy is kept, with the timing that schedule_inherit() gives it and the name of the
     *     level that its priority means. `show`, unless it is NULL, is shown that copy.
     *     schedule.created: there was none of this name
     *   - QUOTA_EXCEEDED when the queue has SCHEDULES_MAX others, STORAGE_FULL */
    ENGINE_SCHEDULE_SET,

    /* Deletes the schedule schedule.name.
     * Engine:
     *   - SCHEDULE_NOT_FOUND */
    ENGINE_SCHEDULE_DELETE,

    /* Shows the schedule schedule.name to `show`; or, when that is NULL, up to schedule.limit
     * behind the name schedule.after (NULL: from the first), ordered by the bytes of their names.
     * Engine:
     *   - found and more as for LIST; SCHEDULE_NOT_FOUND only for a name */
    ENGINE_SCHEDULE_LIST,

    /* Takes a step of the schedule fire.name.
     * Triage:
     *   - fire.step is what schedule_decide() made of the schedule that a sweep has shown
     *   - fire.item has the message's draft when step.puts, else it may be NULL
     * Engine:
     *   - only while the next due time is step.due_ms; else fire.stale is set and nothing is done
     *   - timing becomes what schedule_after() says. The message is put as by PUT, if step.puts is
     *     still true after that. Over a crash both are there or neither
     *   - when the put is refused, so is the step: op->status is the status of the item. The caller
     *     refuses a step itself with fire.refused, which becomes op->status. A schedule whose step
     *     was refused is not shown as due for SCHEDULE_AGAIN_MS, so that it does not stand before
     *     others
     *   - no place refuses it
     *   - SCHEDULE_NOT_FOUND */
    ENGINE_FIRE,

    /* Changes which cells have a queue, and where its new messages go.
     * Triage:
     *   - only asked of an engine with the capability PARTITIONED; docs/scaling.md has the rules
     *   - placement.cell is a name, which the engine may not have
     *   - without a queue (op->queue is NULL) it is about the cell as a whole: PLACEMENT_OPEN,
     * DRAIN or REMOVE, and only to the shard of the name ENGINE_CELLS_QUEUE Engine:
     *   - of a cell as a whole: queues that are made from now on have no partition that takes
     *     messages there, and those that have one are drained there. It survives a restart
     *   - OK: the change is in force, and every cell that answers holds to it
     *   - CELL_NOT_FOUND; PLACEMENT_REFUSED, with a sentence in placement.why */
    ENGINE_PLACEMENT,
    ENGINE_VERB_COUNT
};

enum placement_change {
    PLACEMENT_OPEN,   /* the cell takes new messages, and a fair share of the dedup keys */
    PLACEMENT_DRAIN,  /* it takes no new ones; what it has is claimed, or moved away */
    PLACEMENT_REMOVE, /* it has none, and its partition goes */
    PLACEMENT_GIVE,   /* placement.text: buckets of dedup keys, "0-41 99" */
    PLACEMENT_WANT,   /* placement.text: names of levels, each ended by a newline; NULL: none */
};

/* The name of no queue: a PARTITIONED engine keeps there what it knows of its cells. */
#define ENGINE_CELLS_QUEUE "triage.cells"

#define SCHEDULE_AGAIN_MS 1000
#define QUEUE_CELLS       1024 /* see set.cell */

extern const char *const engine_verb_names[ENGINE_VERB_COUNT]; /* "put" */

/* Where a LIST stands: four numbers, to which the engine gives a meaning. Zero is the start.
 * Clients get a cursor as text (cursor_format) and send it back: so it may come back as anything.
 */
struct list_cursor {
    uint32_t phase;
    uint32_t slot;
    int64_t ready_ms;
    uint64_t seq;
};

#define CURSOR_TEXT_MAX 64
void cursor_format(const struct list_cursor *c, char out[CURSOR_TEXT_MAX]);
bool cursor_parse(const char *text, size_t len, struct list_cursor *c); /* checks the form alone */

struct engine_op {
    /* Set by the caller, but for the tag: whether the op is under way, which engine_submit() and
     * engine_finish() keep and check. */
    enum engine_verb verb;
    uint32_t tag;
    struct engine_queue *queue; /* NULL for SWEEP, QUEUE_OPEN and a creating QUEUE_SET */
    engine_done *done;
    engine_visit *visit; /* CLAIM, GET, LIST, DEAD_LIST; NULL: nobody looks */
    void *user;
    /* Set by the engine. */
    enum status status;
    /* A SHARED engine, for QUEUE_SET, QUEUE_SHARE, CLAIM, ESCALATE, HEADS and COUNT: the
     * configuration by which the op was made has been replaced by another process, and q->config is
     * the new one. Nothing was done; status is not OK. engine_submit() clears it. */
    bool outdated;
    /* The engine's own, from submit until engine_finish(). */
    struct engine_op *next;
    void *engine;
    uint32_t lot;
    uint32_t version; /* of the queue's configuration at submit */
    union {
        struct { /* QUEUE_OPEN */
            const char *name;
        } open;
        struct {              /* QUEUE_SET */
            const char *name; /* creating */
            const struct queue_config *config;
            bool dry;
            /* Creating: the queue's id is `cell` modulo QUEUE_CELLS, so that the queues of several
             * stores have different ids. */
            bool celled;
            uint16_t cell;
            const char *level_name; /* out: the level that is in use */
            /* Out: of one that names it. The caller's, QUEUE_NAME_MAX + 1 bytes, or NULL. */
            char *schedule_name;
            bool existed; /* out: see QUEUE_SET */
        } set;
        struct {           /* QUEUE_DELETE */
            bool if_empty; /* what this process put there the caller has looked for */
        } remove;
        struct { /* QUEUE_PLACE */
            uint64_t epoch;
            bool closed;
            const char *map;
            uint32_t map_len;
            bool stale; /* out */
        } place;
        struct { /* QUEUE_SHARE */
            const struct queue_share *next;
            uint64_t *used;          /* out: the caller's, SHARE_COUNT numbers */
            struct queue_share *now; /* out */
            bool stale;              /* out */
        } share;
        struct {
            struct put_item *items;
            uint32_t count;
            uint64_t epoch;
        } put;
        struct {
            struct import_item *items;
            uint32_t count;
            uint64_t epoch;
            bool anyway; /* no place refuses it */
        } import;
        struct {
            struct plan *plan;
            int64_t lease_ms; /* -1: the queue's own */
            uint32_t found;   /* out */
        } claim;
        struct { /* ACK, NACK, RELEASE, EXTEND */
            struct settle_item *items;
            uint32_t count;
            int64_t delay_ms;   /* NACK */
            int64_t lease_ms;   /* EXTEND */
            const char *reason; /* NACK */
            uint32_t reason_len;
        } settle;
        struct {
            struct escalate_item *items;
            uint32_t count;
            uint8_t slot;
            struct escalate_note note;
        } escalate;
        struct { /* LEAVE, LEFT */
            struct leave_item *items;
            uint32_t count;
            uint64_t epoch; /* LEAVE, as the next */
            uint32_t limit;
            uint32_t found; /* out */
        } leave;
        struct {
            struct count_item *items;
            uint32_t count;
            bool waits; /* SHARED: the caller is about to wait for something to be ready */
        } count;
        struct {
            struct heads_item *items;
            uint32_t count;
        } heads;
        struct { /* CANCEL, GET */
            struct message_id id;
        } one;
        struct { /* LIST, DEAD_LIST */
            struct list_cursor after;
            uint32_t after_queue; /* DEAD_LIST */
            uint32_t limit;
            const uint8_t *slots; /* LIST */
            uint32_t slot_count;  /* 0: everything */
            uint32_t states;      /* LIST: a set of 1 << enum message_state; 0: see there */
            bool bare;
            struct list_cursor next; /* out */
            uint32_t found;          /* out */
            bool more;               /* out */
        } list;
        struct {                          /* PURGE, PROMOTE, DEAD_REDRIVE, DEAD_DROP */
            const struct message_id *ids; /* NULL: all */
            uint32_t id_count;
            uint32_t max;
            uint64_t before_seq;       /* the engine may change it, as it does the cursor */
            int slot;                  /* DEAD_REDRIVE */
            struct list_cursor cursor; /* the engine's, from one ask to the next; zero at first */
            uint32_t count;            /* out */
            bool more;                 /* out */
        } bulk;
        struct {
            uint32_t max;
            bool look;       /* SHARED: tell of every queue that others changed */
            uint32_t cursor; /* in and out, with `look`: 0 at first, and when all were told */
            engine_touched *touched;
            engine_schedule *due; /* may be NULL: then nothing is fired */
            bool more;            /* out: ask again at once */
        } sweep;
        struct {                        /* SCHEDULE_SET, SCHEDULE_DELETE, SCHEDULE_LIST */
            const struct schedule *set; /* SET */
            const char *name;
            const char *after; /* LIST, as the next */
            uint32_t limit;
            engine_schedule *show;
            bool created;   /* out: SET */
            uint32_t found; /* out: LIST */
            bool more;      /* out: LIST */
        } schedule;
        struct {
            const char *name;
            struct schedule_step step;
            enum status refused;
            struct put_item *item; /* its answer is the engine's; NULL when the step puts none */
            bool stale;            /* out */
        } fire;
        struct { /* PLACEMENT */
            const char *cell;
            enum placement_change change;
            const char *text;
            const char *why; /* out */
            /* Out: what the partition holds that a REMOVE would take away. All 0: nothing. */
            struct placement_left {
                uint64_t ready, scheduled, leased, dead;
            } left;
        } placement;
    };
};

/* Whether this LIST asks for messages in that state. */
static inline bool engine_lists(const struct engine_op *op, enum message_state state)
{
    bool pending = state == MESSAGE_SCHEDULED || state == MESSAGE_READY;
    if (op->list.states > 0)
        return op->list.states >> state & 1;
    return pending || (op->list.slot_count == 0 && state != MESSAGE_DONE);
}

#endif
