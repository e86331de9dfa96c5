/* The broker: shards that own queues. A request names a queue and what to do with
 * it; the broker carries it to the thread that owns the queue, applies the policy,
 * keeps waiting consumers in line, and brings it back when its effect is durable.
 *
 * Threads. A shard is bound to one uv_loop_t. A request may be submitted on any
 * loop that has a `struct broker_port`; `done` is called on that same loop. When
 * the port's loop is the shard's own, nothing is handed between threads at all. */
#ifndef TRIAGE_BROKER_BROKER_H
#define TRIAGE_BROKER_BROKER_H

#include "base/durations.h"
#include "base/inbox.h"
#include "broker/forward.h"
#include "broker/webhook.h"
#include "core/filter.h"
#include "core/series.h"
#include "core/urgency.h"
#include "engine/engine.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <uv.h>

struct broker;
struct broker_port; /* one per loop that submits requests */
struct request;

enum request_kind {
    /* Straight to the engine; op.verb, op.visit and the op's inputs are set by the caller
     * (op.done, op.queue and op.user are the broker's). */
    REQUEST_PUT,     /* op.put; the queue is created when missing and auto_create is on */
    REQUEST_IMPORT,  /* op.import */
    REQUEST_SETTLE,  /* op.verb ACK, NACK, RELEASE or EXTEND; settle */
    REQUEST_CANCEL,  /* op.one */
    REQUEST_PROMOTE, /* op.verb PROMOTE */
    REQUEST_GET,     /* op.one */
    REQUEST_LIST,    /* op.verb LIST or DEAD_LIST; list; priority: of which level */
    /* What these take and tell besides is in the struct of `struct request` with their name. */
    REQUEST_CLAIM,        /* claim; priority (min_priority), op.claim.lease_ms; op.claim.found */
    REQUEST_CLAIM_MANY,   /* the same over claim.many.queues[] */
    REQUEST_LOOK,         /* look: how urgent is the queue; priority in, and out as a name */
    REQUEST_ESCALATE,     /* op.escalate.items and note; priority */
    REQUEST_ESCALATE_ALL, /* matching; op.escalate.note, priority; count */
    /* Does something to all that match: matching; op.verb PURGE, PROMOTE, DEAD_REDRIVE (priority)
     * or DEAD_DROP; count. */
    REQUEST_MATCHING,
    REQUEST_POSITION,  /* position; op.one */
    REQUEST_PURGE,     /* count */
    REQUEST_REDRIVE,   /* portions; op.bulk.ids, priority; count */
    REQUEST_DEAD_DROP, /* op.bulk.ids, or all; count */
    /* The queue itself. */
    REQUEST_CONFIGURE,    /* configure; created */
    REQUEST_DELETE,       /* deletion */
    REQUEST_QUEUE,        /* show.each is called once */
    REQUEST_STATS,        /* as QUEUE, with `aged` and `late`, which the engine has to count */
    REQUEST_SCHEDULE_SET, /* op.schedule; the queue is created as by PUT; created */
    REQUEST_SCHEDULE,     /* op.verb SCHEDULE_LIST or SCHEDULE_DELETE */
    REQUEST_PLACEMENT,    /* op.placement: which cells have the queue */
    REQUEST_CELL,         /* op.placement: of a cell as a whole */
    REQUEST_QUEUES,       /* show.each is called for every queue of every shard, in no order */
    REQUEST_KIND_COUNT
};

typedef void request_done(struct request *r);

struct queue_name {
    char text[QUEUE_NAME_MAX + 1];
};

/* The kinds of alerts, with the name of the threshold in a queue's configuration. */
#define ALERT_KINDS(X)                                                                             \
    X(DEAD_LETTERS, "dead_letters")                                                                \
    X(OLDEST_READY, "oldest_ready_seconds")

enum alert_kind {
#define X(symbol, name) ALERT_##symbol,
    ALERT_KINDS(X)
#undef X
        ALERT_KIND_COUNT
};

/* What changed in a queue since a reader looked last; bits. Those of alerts stand from
 * CHANGE_ALERT on, 1 << enum alert_kind each. */
enum queue_change {
    CHANGE_NUMBERS = 1 << 0,
    CHANGE_CONFIG = 1 << 1,
    CHANGE_ALERT = 1 << 2,
};

/* What a reader may see of a queue; borrowed for the call, on the shard's thread. */
struct queue_facts {
    struct dispatcher *dispatcher; /* private */
    const struct engine_queue *queue;
    const struct queue_view *view; /* of one moment: its numbers add up */
    uint32_t waiting_consumers;
    int64_t oldest_ready_ms;  /* age of the oldest ready message; -1 when none */
    uint32_t alerts;          /* raised now: bit 1 << enum alert_kind */
    uint32_t changes;         /* QUEUES with a watch: enum queue_change */
    double claims_per_second; /* of late */
    /* STATS: ready messages that count as more urgent than their level, and that have waited longer
     * than it promises. */
    uint64_t aged;
    uint64_t late;
    bool exact; /* `aged` and `late` are no estimates */
};

/* How long messages of one level have waited and were held, on this server alone and since it was
 * started, or since the level has its name. duration_waits is the scale. */
struct level_times {
    char level[LEVEL_NAME_MAX + 1];
    struct durations wait;  /* from ready to claimed, for each delivery */
    struct durations lease; /* from claimed to acked, nacked or released */
};

/* NULL: nothing was claimed or settled at the level. Borrowed, as the facts are. */
const struct level_times *broker_level_times(const struct queue_facts *facts, uint8_t slot);
/* The numbers of a point of a queue's history. The first ones are of the queue, and then come as
 * many for each slot of a level. */
enum history_value {
    HISTORY_READY,
    HISTORY_SCHEDULED,
    HISTORY_IN_FLIGHT,
    HISTORY_DEAD,
    HISTORY_OLDEST, /* since when the oldest ready message is ready, in seconds; 0: none is */
    HISTORY_LEVEL_VALUES,
    HISTORY_ENQUEUED = HISTORY_LEVEL_VALUES, /* totals */
    HISTORY_CLAIMED,
    HISTORY_ACKED,
    HISTORY_FAILED, /* nacked, or the lease ran out */
    HISTORY_LEVELS
};
static_assert(HISTORY_LEVELS + LEVEL_COUNT_MAX * HISTORY_LEVEL_VALUES == SERIES_VALUES,
              "a point has them all");

/* Visits what is known of the time from `from_s` to `to_s`, as series_read(). While the queue is
 * shown. */
void broker_history_read(const struct queue_facts *facts, int tier, int64_t from_s, int64_t to_s,
                         series_visit *visit, void *ctx);

/* Appends a change of an alert, as webhooks get it: the queue, the alert, its value and threshold,
 * whether it is raised, and the time. While the queue is shown. */
void broker_alert_put(const struct queue_facts *facts, enum alert_kind kind, struct buf *out);

/* Shows the partitions of the queue, while it is shown. Afterwards facts->view is what they are
 * together. */
void broker_partition_each(const struct queue_facts *facts, engine_partition_visit *visit,
                           void *ctx);

/* What a message waits for; bits. */
enum wait_for {
    WAIT_DELAY = 1 << 0, /* it is scheduled */
    WAIT_PAUSE = 1 << 1, /* the queue is paused */
    WAIT_LIMIT = 1 << 2, /* its level or queue has as many in flight as it may */
};

#define MATCHING_SAMPLE 10

/* What is to be done to all messages that match, and how far it came. */
struct matching {
    struct filter filter;
    bool dry_run;             /* nothing is changed */
    uint64_t max, look_max;   /* so many are to match, or be looked at; 0: all */
    struct list_cursor after; /* where an earlier one ended; zero: from the start */
    uint64_t before_seq;      /* what came later is not part of it; 0: not known yet */
    /* Set by the broker. */
    uint64_t matched, looked;
    bool more; /* it goes on at … */
    struct list_cursor next;
    struct message_id sample[MATCHING_SAMPLE]; /* the first that matched */
};

/* Why a message waits. */
struct position {
    struct message_id id;
    enum message_state state;
    uint8_t slot;
    struct level level; /* without a name when the queue does not have it any more */
    int64_t ready_ms;
    /* The rest is for scheduled and ready messages. */
    struct level effective; /* the level that it counts as */
    uint64_t ahead;         /* messages that go before it */
    bool exact;             /* `ahead` is no estimate */
    uint32_t wait_for;      /* enum wait_for */
    double claims_per_second;
    int64_t start_ms; /* wall clock; INT64_MAX: nobody can tell */
};
/* How many messages the answer of a claim has room for now. Called on the shard's thread, before
 * anything is leased. 0 refuses the claim as overloaded. */
typedef uint32_t request_room(struct request *r);

typedef void request_show_queue(struct request *r, const struct queue_facts *facts);

/* Makes of QUEUES a look at what changed since an earlier one: only queues that changed are shown,
 * and those that went are named. The first look has since = 0, and shows every queue. watch.c. */
struct watcher {
    uint64_t since; /* `now` of the earlier look, of this run of the server */
    uint64_t now;   /* out */
    bool lost;      /* out: more queues went since then than are remembered; begin with 0 again */
    void (*gone)(struct request *r, const char *queue); /* on the shard's thread, as each() */
};

/* Edits a configuration in place (the profile's defaults when the queue is new), on the shard's
 * thread. Any status but OK refuses the request, with r->field and r->detail set. It is called
 * again in two cases: somebody else changed the configuration meanwhile; or it has set
 * r->configure.keeps_used and dropped a level that is in use. In the second case r->configure.stay
 * has the slot of that level. */
typedef enum status request_configure(struct request *r, struct queue_config *config, bool is_new);

/* The parts of a CLAIM_MANY that wait: only one of them may take messages, the first whose turn
 * comes. */
struct race {
    _Atomic uint32_t holder; /* the place of the one that is taking; 0: nobody is */
};

/* A request is zero but for what its kind asks for. What only some kinds have is in the union, in a
 * struct that is named after them; nobody looks at that of another kind. */
struct request {
    /* Private. It stands first, with what every request needs: on its way through the shard and
     * back a request is touched here, and in few cache lines. */
    uint32_t tag; /* REQUEST_TAG while it is under way */
    struct broker_port *port;
    struct shard *shard;
    struct dispatcher *dispatcher;
    struct inbox_node mail;
    struct request *next, *prev;
    struct work *work;
    bool looked_up;   /* no other process has made its queue */
    uint8_t restarts; /* its queue was another one than we thought */
    bool local;       /* the shard runs on the port's own loop */
    /* A hang-up that comes from another loop. It travels on its own, so the request stays where it
     * is until the shard has it in hand: see broker_hangup(). */
    struct inbox_node hangup_mail;
    bool hangup_taken;
    bool answer_waits;     /* for hangup_mail */
    _Atomic uint8_t flags; /* enum request_flag */

    /* Set by the broker. */
    enum status status;
    bool created;      /* its queue was */
    size_t answer_len; /* set by visit: the bytes that the answer has now. A CLAIM gets no further
                          message once they are ANSWER_FULL */
    uint64_t count;    /* messages that it changed; PUT, IMPORT: portions that were stored */
    /* PUT, SETTLE, CLAIM of a queue that moves: the server that it moves to; the caller's to free.
     * Items that are to be asked for there have the status QUEUE_MOVED, and so has a claim. */
    struct target *target;

    /* Set by the caller. */
    enum request_kind kind;
    bool inner; /* it belongs to a request that was let in: a part of a CLAIM_MANY */
    bool moves; /* it is about the move of its queue: let in though the queue moves */
    request_done *done;
    struct engine_op op;
    char queue[QUEUE_NAME_MAX + 1]; /* CLAIM_MANY: the first of them */
    struct priority_ref priority;   /* the level that it names */

    union {
        struct { /* CLAIM, CLAIM_MANY */
            uint32_t max;
            int64_t wait_ms;
            request_room *room; /* NULL: for as many as it asks */
            union {
                struct {               /* CLAIM: as a part of a CLAIM_MANY; else zero */
                    struct race *race; /* NULL: none */
                    uint32_t place;    /* in the race, from 1 on */
                    uint64_t ticket;   /* its place in line from an earlier time; 0: it is new */
                    bool bounded;      /* nothing that is less urgent than … */
                    struct urgency least;
                    bool passed; /* out: its turn came in vain; it may have another */
                } part;
                struct {                             /* CLAIM_MANY */
                    const struct queue_name *queues; /* borrowed until done */
                    uint32_t queue_count;
                    bool listed;        /* in the order of queues[], and not by urgency */
                    struct many *state; /* private */
                } many;
            };
        } claim;
        struct { /* LOOK */
            int64_t wait_ms;
            uint64_t ticket;        /* as of a part; out: the one that it has from now on */
            bool any;               /* out: something may be claimed */
            struct urgency urgency; /* out, with `any` */
        } look;
        struct {         /* LIST */
            int slot;    /* out, before visit: of the level that priority names, or -1 */
            uint8_t own; /* private */
        } list;
        struct {                 /* SETTLE */
            bool urgent_waiting; /* out, for EXTEND */
        } settle;
        struct matching *matching;   /* ESCALATE_ALL, MATCHING; borrowed until done */
        struct {                     /* POSITION */
            struct position *answer; /* out; borrowed until done */
        } position;
        struct {               /* PURGE, REDRIVE, DEAD_DROP */
            uint32_t max;      /* 0: all */
            double per_second; /* 0: at once */
        } portions;
        struct { /* CONFIGURE */
            request_configure *edit;
            bool dry_run;    /* nothing is changed */
            uint32_t stay;   /* set by the broker: slots of levels that are in use and were dropped,
                                as bits */
            bool keeps_used; /* set by edit: such levels are to stay */
        } configure;
        struct { /* DELETE */
            bool force;
        } deletion;
        struct {                      /* QUEUE, STATS, QUEUES */
            request_show_queue *each; /* is called for each queue */
            bool fresh;               /* QUEUES: with all that other processes did up to now */
            struct watcher *watch;    /* QUEUES: borrowed until done; NULL: all queues are shown */
        } show;
    };

    /* Why it was refused. Set by the broker; last, so that request_init() need not clear them. */
    char field[64];   /* JSON pointer, or empty */
    char detail[320]; /* one sentence, or empty */
};

/* Makes it zero, and its texts empty. */
static inline void request_init(struct request *r)
{
    memset(r, 0, offsetof(struct request, field));
    r->field[0] = '\0';
    r->detail[0] = '\0';
}

enum request_flag {
    REQUEST_HUNG_UP = 1 << 0,
    REQUEST_ANSWERED = 1 << 1, /* it is on its way to the port */
};

static inline bool request_hung_up(const struct request *r)
{
    return atomic_load(&r->flags) & REQUEST_HUNG_UP;
}

struct broker_options {
    struct engine_options engine;
    bool auto_create;
    char default_profile[16];
    uint32_t max_queues;
    struct webhook_options webhook; /* also where queues may move to, and who signs there */
    uint64_t history_bytes;         /* for the history of all queues; 0: none is kept */
    uint32_t inbox_max; /* requests under way in one shard before 503 overloaded; 0: the default */
};

struct broker_counters {
    uint64_t requests[REQUEST_KIND_COUNT];
    uint64_t refused_overloaded;
    uint64_t under_way;
    uint64_t waiting;       /* parked claims */
    uint64_t wakeups;       /* parked claims that were served */
    uint64_t webhooks_lost; /* of alerts: given up, or dropped */
    uint64_t fired;         /* messages of schedules */
    uint64_t history_bytes; /* taken by the history of queues */
};

/* Why the due time of a schedule has no message yet, or OK. Only while the schedule is shown, on
 * the shard's thread. */
enum status broker_schedule_refusal(const struct request *r, const char *name);

/* Opens the engine with one shard on each of loops[0 … shard_count). */
MUST_USE enum status broker_open(const struct broker_options *options, uv_loop_t *loops[],
                                 uint32_t shard_count, struct broker **out, struct buf *error);

/* Ports are opened before the loops run, one for each loop that will submit. */
struct broker_port *broker_port_open(struct broker *b, uv_loop_t *loop);

/* `r` is the broker's until done; done may not be called before this returns. */
void broker_submit(struct broker_port *port, struct request *r);

/* Calls r->done in a later turn of the port's loop, and does nothing else with `r`. For long work
 * that is done in steps: it stops when broker_is_late(), and goes on in that later turn. */
void broker_later(struct broker_port *port, struct request *r);
bool broker_is_late(const struct broker_port *port);

/* The consumer has hung up, or is not to wait any longer. A parked claim ends empty. Messages that
 * were claimed for it are released, and op.claim.found is 0. `done` is still called. On the port's
 * loop. */
void broker_hangup(struct request *r);

/* On each shard's loop, from its own thread: no new work (503 draining), parked claims end empty;
 * `drained` is called when nothing is under way and everything is durable. */
void broker_drain(struct broker *b, uint32_t shard, void (*drained)(void *ctx), void *ctx);

/* Closes what the broker has on this loop, from its thread, so that the loop can end. */
void broker_close_handles(struct broker *b, uv_loop_t *loop);
void broker_close(struct broker *b); /* all shards drained and their loops ended */

/* Sends a request to another server: forward.h. Its answer comes on the port's loop. */
void broker_forward(struct broker_port *port, struct forward *f);
void broker_forward_cancel(struct broker_port *port, struct forward *f); /* done is still called */
bool broker_moves(const struct broker *b); /* its queues can move to another server */

/* Makes a backup of the engine's store on a thread of its own, so that no queue waits for it;
 * `done` is called on the port's loop. It is ended when the broker drains. */
struct broker_backup {
    struct engine_backup backup; /* directory is set by the caller; cancel is the broker's */
    enum status status;
    void (*done)(struct broker_backup *b);
    struct broker *broker; /* private, as is the rest */
    struct broker_backup *next;
    atomic_bool cancel;
    uv_work_t work;
};
void broker_backup(struct broker_port *port, struct broker_backup *b);
void broker_backup_cancel(struct broker_backup *b); /* any thread; done is still called */

/* Any thread. */
void broker_backup_progress(struct broker *b, struct engine_backup_progress *p);
enum status broker_health(struct broker *b, struct buf *detail);
const struct engine_kind *broker_engine_kind(const struct broker *b);
void broker_cell_each(struct broker *b, engine_cell_visit *visit, void *ctx);
bool broker_speaks(struct broker *b); /* it sends the alerts for all servers on the store */
uint32_t broker_queue_count(struct broker *b); /* that it knows now */
uint64_t broker_epoch(const struct broker *b); /* a number that no other run of a server has */
bool broker_failed(struct broker *b);          /* the engine has failed: the process has to end */
void broker_counters(struct broker *b, struct broker_counters *counters,
                     struct engine_counters *engine);

#endif
