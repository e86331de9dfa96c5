/* Private to the broker: a shard and the dispatchers of its queues. Everything
 * here runs on the shard's own loop.
 *
 *   shard.c          the loop: requests in, ops to the engine, answers out; timers; drain
 *   request.c        a request: the lists it stands in, and how it ends
 *   work.c           what a request needs while it is under way
 *   dispatcher.c     a queue as its shard has it: found, opened, referred to, unlisted
 *   creation.c       queues that are not known yet: made, or found where another process made them
 *   configuration.c  a queue gets another configuration, and the dispatcher follows
 *   deletion.c       a queue goes
 *   view.c           what other processes did to a queue, before something is decided by it
 *   level.c          the level that a request names, or its refusal
 *   dispatch.c       which consumer gets which message: policy, waiting consumers
 *   absent.c         consumers that wait for a queue that is not there yet
 *   many.c           consumers that take from several queues at once
 *   portions.c       purge, redrive and drop: work that is done in portions
 *   escalate.c       messages get another level, one or many
 *   store.c          messages come in: large batches in portions
 *   import.c         imports: refused as a whole when the queue lacks a level
 *   show.c           queues are shown, one or all of them
 *   watch.c          which queues changed since somebody looked last
 *   history.c        what the numbers of queues were
 *   explain.c        why a message waits; how many messages have aged or are late
 *   claim_rate.c     how many messages were claimed of late
 *   move.c           a queue moves to another server: what is still done here
 *   forward.c        requests to another server, on a thread of its own
 *   schedules.c      messages of due times; what clients ask about schedules
 *   backup.c         a copy of the store, on a thread of its own
 *   alerts.c         thresholds that were crossed; webhook.c posts them */
#ifndef TRIAGE_BROKER_SHARD_H
#define TRIAGE_BROKER_SHARD_H

#include "base/inbox.h"
#include "base/map.h"
#include "base/tag.h"
#include "broker/alerts.h"
#include "broker/broker.h"
#include "broker/claim_rate.h"

#include <assert.h>

struct shard;

#define SWEEP_MAX          500         /* messages that time passes for in one sweep */
#define SWEEP_UNDER_WAY_MS 20          /* how often the engine is asked while one is under way */
#define SHARE_FREE         (64 * 1024) /* bytes of answers in a turn before anybody looks at the clock */

/* The request that an op was submitted for, by op->user. */
#define REQUEST_TAG                                                                                \
    TAG('r', 'e', 'q', 'b') /* from broker_submit() until its answer is on its way */

static inline struct request *request_of_op(const struct engine_op *op)
{
    struct request *r = op->user;
    assert(r);
    assert(r->tag == REQUEST_TAG);
    return r;
}

/* What a request needs while it is under way, besides what is in it: one work at a time, and none
 * for most. A request may need several of them one after the other: a claim looks up its queue,
 * asks for a fresh view of it, and stands in line. */
enum work_kind {
    WORK_CREATION,      /* creation.c: the queue is being made */
    WORK_LOOK_UP,       /* … or looked for; of the first of those who are parked */
    WORK_CONFIGURATION, /* configuration.c */
    WORK_VIEW,          /* view.c; it stays as a sign that the request has looked */
    WORK_CLAIM,         /* dispatch.c */
    WORK_ABSENT,        /* absent.c */
    WORK_PORTIONS,      /* portions.c */
    WORK_ESCALATION,    /* matching.c: ESCALATE_ALL, MATCHING */
    WORK_EXPLANATION,   /* explain.c: POSITION, STATS */
    WORK_SHOW,          /* show.c: QUEUES */
    WORK_STORE,         /* store.c: PUT and IMPORT in portions */
    WORK_KIND_COUNT
};

#define WORK_TAG TAG('w', 'o', 'r', 'k')

struct work {
    uint32_t tag;
    enum work_kind kind;
    struct request *request;
    bool parked;          /* CLAIM, ABSENT: it stands in a line */
    struct engine_op own; /* what the broker asks for itself, beside request.op; one at a time */
    union {
        struct { /* CREATION, CONFIGURATION */
            struct queue_config config;
            char schedule_name[QUEUE_NAME_MAX + 1]; /* of one that keeps a level */
        } configuration;
        struct {
            void (*then)(struct dispatcher *d, struct request *r); /* what to do with it */
        } view;
        struct {
            uint64_t ticket; /* its place in line */
            int max_rank;
            bool waited;               /* it was not served at once */
            bool brief;                /* it waits for a disk only, not for a message */
            uint8_t tries;             /* how often nothing was found though there was something */
            engine_visit *visit;       /* the caller's */
            struct settle_item *items; /* owned: what was leased, to give it back */
            uint32_t item_count;
            uint32_t shown_count; /* of the items, those that are in the answer */
            struct plan plan;
        } claim;
        struct {
            int64_t until_ms; /* mono: when the wait ends */
        } absent;
        struct {
            uint64_t limit; /* how many in all */
            double credit;  /* how many may be done now */
            int64_t credited_ms;
            uint32_t ids_left; /* of op.bulk.ids, behind those of the present portion */
        } portions;
        struct {
            struct message_id *ids; /* owned: those of a page that match */
            uint32_t id_count;
            size_t bytes;                   /* of their bodies */
            size_t sought;                  /* filter_cost() of all that were listed */
            struct escalate_item *items;    /* owned: the same, for an ESCALATE */
            int slot;                       /* of the filter; -1: any */
            uint8_t slots[LEVEL_COUNT_MAX]; /* the levels to look at */
            uint32_t slot_count;
            struct instant asked; /* when; older_than counts from here */
        } escalation;
        struct {
            struct count_item *counts;                /* owned */
            struct instant asked;                     /* POSITION, as the rest: when */
            uint64_t seq;                             /* of the message */
            struct heads_item heads[LEVEL_COUNT_MAX]; /* by rank */
        } explanation;
        struct {
            struct dispatcher **left; /* owned: those still to show, each referred to */
            uint32_t left_count;
        } show;
        struct {
            struct engine_op *portions; /* owned */
            uint32_t portion_count;     /* of these, those that were submitted */
            uint32_t portions_max;      /* how many there are room for */
            uint32_t out;               /* under way */
            uint32_t next_item;         /* the first that is in no portion yet */
            enum status refused;        /* why a portion was */
        } store;
    };
    struct order_node timer; /* in shard->timers; key: mono_ms; last */
};

/* The work of this kind that the request has. */
static inline struct work *work_of(const struct request *r, enum work_kind kind)
{
    assert(r->work);
    assert(r->work->tag == WORK_TAG);
    assert(r->work->kind == kind);
    return r->work;
}

enum dispatcher_state { DISPATCHER_OPENING, DISPATCHER_OPEN, DISPATCHER_GONE };

struct request_list {
    struct request *first, *last;
};

/* What of a queue was seen when somebody looked last for changes, and in which look each part was
 * found changed. Zero: nobody ever looked. */
struct queue_watch {
    uint64_t digest; /* of its numbers */
    uint32_t version;
    uint32_t alerts; /* that were raised */
    int64_t looked_ms;
    uint64_t numbers_at, config_at, alert_at[ALERT_KIND_COUNT]; /* looks; 0: not changed yet */
};

struct queue_history {
    struct series *series;          /* owned; NULL: nothing was noted yet */
    struct dispatcher *next, *prev; /* of all that are open */
};

/* Zero: none is kept. */
struct history {
    struct series_pool pool;
    struct dispatcher *first;
    struct dispatcher *cursor; /* of the round under way; NULL: none is */
    int64_t round_s, before_s; /* wall clock: of the last round, and of the one before it */
};

#define WATCH_GONE_MAX 128

/* The names of the queues that went last. */
struct watch_gone {
    struct {
        uint64_t at; /* the look that found it gone; 0: none has yet */
        char name[QUEUE_NAME_MAX + 1];
    } names[WATCH_GONE_MAX]; /* a ring */
    uint64_t count;          /* that ever went */
    bool dropped;            /* a name left the ring that no look has found */
    uint64_t dropped_at;     /* the last look that found one of those that left */
};

struct dispatcher {
    char name[QUEUE_NAME_MAX + 1];
    struct shard *shard;
    enum dispatcher_state state;
    struct engine_queue *queue; /* NULL while opening */
    uint32_t version;           /* of the queue's configuration, as the lines stand now */
    struct policy policy;
    struct claim_rate rate;
    struct level_times *times[LEVEL_COUNT_MAX];   /* owned, by slot; NULL: nothing was timed yet */
    struct request_list parked;                   /* while opening */
    struct request_list looking;                  /* until the engine holds what is there */
    struct request_list waiting[LEVEL_COUNT_MAX]; /* by the least urgent rank they take */
    uint32_t waiting_count;
    uint32_t brief;  /* of those who wait, only until the engine holds what is there */
    bool fetching;   /* what the next in line is to get comes later: the engine is bringing it,
                        or this turn has no time for it */
    uint32_t claims; /* that the engine has not answered yet */
    uint32_t fit;    /* how many messages a claim asks for at most, by the size of the last ones;
                        only where the engine leases them before it shows them */
    uint32_t
        references; /* the map, requests under way, the dirty list, due times, a list of queues */
    bool dirty;
    struct dispatcher *next_dirty;
    struct alert_watch alerts;
    struct queue_watch watch;
    struct queue_history history;
    struct refusal *refusals; /* owned: schedules whose due time waits */
};

struct shard {
    struct broker *broker;
    uint32_t index;
    uv_loop_t *loop;
    struct engine *engine;
    struct broker_port *port; /* for requests of its own to other shards */
    struct inbox inbox;       /* requests from other loops; also the engine's wake-up */
    struct inbox hangups;     /* of requests from other loops */
    uv_check_t check;
    uv_timer_t timer;
    uv_idle_t idle;      /* active while the next turn has work already */
    int64_t timer_at_ms; /* mono; INT64_MAX when not set */
    struct map dispatchers;
    struct map absent; /* claims whose queue is not there, by its name */
    struct dispatcher *dirty;
    struct request_list later;    /* requests that this turn had no time to take */
    struct request_list finished; /* to be answered at the end of the turn */
    size_t shown;                 /* bytes of answers since the last turn */
    struct order timers;          /* struct work */
    struct alert_list alerts;
    struct watch_gone gone;
    struct request_list watchers; /* whose look has not begun */
    uint32_t looks;               /* … that have, and are under way */
    struct history history;
    uint64_t next_ticket;
    struct instant now;
    bool now_fresh; /* read since the last turn */
    struct engine_op sweep;
    struct firing *firings, **firings_end; /* due times, to be fired in this turn */
    bool sweeping;
    bool sweep_again;
    bool engine_away; /* it failed to answer, and has not swept since: views may be old */
    bool in_turn;
    bool busy;      /* the idle handle is active */
    bool submitted; /* ops since the last flush */
    uint64_t led;   /* CLAIM_MANY under way: what is done for them is counted with their parts */

    bool draining;
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct broker_counters counters;

    uv_mutex_t published_mutex;
    struct broker_counters published;
    struct engine_counters published_engine;
    bool published_failed;
};

struct broker {
    struct broker_options options;
    uint32_t shard_count;
    struct shard *shards;
    struct engine **engines;
    struct broker_port *ports;
    struct webhooks *webhooks;
    struct forwards *forwards;
    _Atomic uint32_t queue_count;
    uint64_t epoch;
    _Atomic uint64_t looks;   /* of those who watch for changes: watch.c */
    uv_mutex_t backups_mutex; /* guards what follows */
    struct broker_backup *backups;
    bool backups_end; /* no more of them */
};

struct broker_port {
    struct broker *broker;
    uv_loop_t *loop;
    struct inbox inbox;                        /* answered requests from other loops */
    struct inbox_node *answers, **answers_end; /* of these, taken out and not given yet */
    struct broker_port *next;
};

/* shard.c */
void shard_open(struct shard *s, struct broker *b, uint32_t index, uv_loop_t *loop,
                struct engine *engine);
void shard_take(struct shard *s, struct request *r);       /* a request arrives */
void shard_take_again(struct shard *s, struct request *r); /* one that was taken and had to wait */
void shard_wake(struct shard *s);                          /* any thread */
void shard_drain(struct shard *s, void (*drained)(void *ctx), void *ctx);
void shard_hangup(struct request *r);
void shard_free(struct shard *s);

void shard_look_at_clock(struct shard *s); /* unless it was done in this turn */
/* Whether the turn has had its share of work: then work that shows messages waits for the next
 * turn. False as long as the answers of this turn are small, whatever the clock says. */
bool shard_is_late(const struct shard *s);
void shard_submit(struct shard *s, struct engine_op *op);
void shard_touched(struct shard *s, struct engine_queue *q); /* a sweep has changed it */
void shard_pass_on(struct dispatcher *d, struct request *r); /* r->op, as it is, to the engine */
int64_t shard_oldest_ready_ms(const struct dispatcher *d);   /* its age; -1: none, or not known */

/* request.c */
void list_insert(struct request_list *l, struct request *r, struct request *before);
void list_append(struct request_list *l, struct request *r);
void list_remove(struct request_list *l, struct request *r);
void request_finish(struct shard *s, struct request *r, enum status status);
void request_refuse(struct shard *s, struct request *r, enum status status, const char *field,
                    const char *detail);
/* Finishes a request with the status that the engine gave. If that says that the queue is gone,
 * another process may have made it again: then the request starts over instead. */
void request_conclude(struct shard *s, struct request *r, enum status status);
/* It was finished: gives it back, unless a hang-up is on its way to it. */
void request_answer(struct shard *s, struct request *r);
void request_give_back(struct shard *s, struct request *r); /* it is the port's from here on */

/* work.c */
struct work *work_new(struct shard *s, struct request *r, enum work_kind kind); /* it has none */
void work_free(struct shard *s, struct request *r); /* its timer too; r->work may be NULL */
void work_set_timer(struct shard *s, struct work *w, int64_t mono_ms); /* INT64_MAX: none */

/* dispatch.c */
void dispatch_claim(struct dispatcher *d, struct request *r);
void dispatch_mark(struct dispatcher *d);      /* it may have something for a waiting consumer */
void dispatch_mark_late(struct dispatcher *d); /* the same, after an op is done */
void dispatch_serve(struct dispatcher *d);
void dispatch_timeout(struct request *r); /* it waited long enough */
void dispatch_hangup(struct request *r);
void dispatch_reconfigured(struct dispatcher *d);
void dispatch_end_all(struct dispatcher *d, enum status status);
bool dispatch_urgent_waiting(const struct dispatcher *d, uint8_t slot);
void dispatch_look(struct dispatcher *d, struct request *r);

/* many.c */
void many_claim(struct shard *s, struct request *r);
void many_hangup(struct request *r);

/* absent.c */
void absent_claim(struct shard *s, struct request *r); /* waits, or finds nothing */
void absent_join(struct dispatcher *d); /* it is opening: who waits for its name is parked there */
void absent_timeout(struct request *r);
void absent_hangup(struct request *r);
void absent_end_all(struct shard *s);

/* show.c */
void show_queue(struct dispatcher *d, struct request *r);
void show_queues(struct shard *s, struct request *r);
void show_go_on(struct request *r);         /* with the next portion */
bool show_has_looks(const struct shard *s); /* of watchers, that can begin */
void show_begin_looks(struct shard *s);

/* watch.c */
void watch_shard(struct shard *s, struct request *r); /* its queues will be shown now */
uint32_t watch_queue(struct dispatcher *d, const struct request *r); /* enum queue_change */
void watch_forget(const struct dispatcher *d);                       /* the queue goes */

/* history.c */
void history_open(struct shard *s, size_t bytes);
void history_join(struct dispatcher *d);  /* it is open */
void history_leave(struct dispatcher *d); /* it goes, and its history with it */
void history_turn(struct shard *s);
int64_t history_due_ms(const struct shard *s); /* from now; INT64_MAX: never */

/* explain.c */
void explain_position(struct dispatcher *d, struct request *r);
void explain_stats(struct dispatcher *d, struct request *r);
void explain_show(struct dispatcher *d, struct request *r, struct queue_facts facts);

/* schedules.c */
void schedules_due(struct shard *s, struct engine_queue *q, const struct schedule *schedule,
                   struct instant now); /* the engine shows it, in a sweep */
void schedules_fire(struct shard *s);   /* what is due */
void schedules_request(struct dispatcher *d, struct request *r);
/* placement.c */
void placement_change(struct dispatcher *d, struct request *r);
void placement_of_cell(struct shard *s, struct request *r);
void schedules_forget(struct dispatcher *d); /* it goes */

/* escalate.c */
void escalate_some(struct dispatcher *d, struct request *r);

/* matching.c */
void matching_begin(struct dispatcher *d, struct request *r); /* ESCALATE_ALL, MATCHING */

/* store.c */
void store_items(struct dispatcher *d, struct request *r); /* PUT, IMPORT */
void store_go_on(struct request *r);

/* import.c */
void import_check(struct dispatcher *d, struct request *r);

/* move.c */
/* Of a queue that moves: whether the request is for this server. */
bool move_lets_in(const struct request *r);
void move_refuse(struct dispatcher *d, struct request *r);
/* It is finished: what this server does not have is to be asked for at the other one. */
void move_finish(const struct dispatcher *d, struct request *r);

/* dispatcher.c */
struct dispatcher *dispatcher_find(struct shard *s, const char *name); /* NULL: not known */
/* Opening, in the map, with all who waited for a queue of this name parked in it. */
struct dispatcher *dispatcher_new(struct shard *s, const char *name);
void dispatcher_open(struct dispatcher *d,
                     struct engine_queue *q); /* it is opening: it has q now */
/* Those who are parked go on, or end with the status. */
void dispatcher_unpark(struct dispatcher *d, enum status status);
void dispatcher_unlist(struct dispatcher *d); /* out of the map: the name is free for a new queue */
void dispatcher_unref(struct dispatcher *d);
void dispatcher_adopt(struct shard *s, struct engine_queue *q); /* at start, or made by others */
void dispatcher_touched(struct engine_queue *q); /* time passed, or others changed it */

/* The dispatcher of a queue that has one. */
static inline struct dispatcher *dispatcher_of(const struct engine_queue *q)
{
    struct dispatcher *d = q->user;
    assert(d);
    assert(d->queue == q);
    return d;
}

static inline void dispatcher_ref(struct dispatcher *d)
{
    assert(d->references > 0);
    d->references++;
}

/* creation.c */
void creation_begin(struct shard *s, struct request *r); /* a request for a queue not known */
/* Asks the engine whether another process has made the queue `name`; for r, or for the claims that
 * wait for the queue (r is NULL). */
void creation_look_up(struct shard *s, const char *name, struct request *r);

/* configuration.c */
/* To be called before the policy is used: makes the policy anew when the queue has another
 * configuration by now. That fills the buckets, once for each configuration. */
void configuration_follow(struct dispatcher *d);
/* The request edits the configuration; that it is paused or not any more is noted with the time. */
enum status configuration_edit(struct shard *s, struct request *r, struct queue_config *config,
                               bool is_new);
void configuration_change(struct dispatcher *d, struct request *r);

/* deletion.c */
void deletion_begin(struct dispatcher *d, struct request *r);

/* view.c */
/* Asks the engine what other processes have done to the queue up to now, then calls `then`. */
void view_refresh(struct dispatcher *d, struct request *r,
                  void (*then)(struct dispatcher *d, struct request *r));

/* portions.c */
void portions_begin(struct dispatcher *d, struct request *r); /* PURGE, REDRIVE, DEAD_DROP */
void portions_go_on(struct request *r);                       /* its timer */

/* level.c */
/* Whether r has to look first: as far as we know the queue has no such level, but another process
 * may have made it, and r has not looked yet. */
bool level_may_be_new(const struct dispatcher *d, const struct request *r,
                      const struct priority_ref *priority);
void level_refuse(struct shard *s, struct request *r, const char *field);
/* The slot of the level that `priority` names; -1 when it names none. False: r was refused. */
bool level_take(struct dispatcher *d, struct request *r, const struct priority_ref *priority,
                const char *field, int *slot);
/* LIST: the messages of the level that r names are asked for, where the engine can tell. */
void level_list(struct dispatcher *d, struct request *r);

/* level_times.c */
void level_times_claimed(struct dispatcher *d, const struct message *m); /* a delivery */
void level_times_settled(struct dispatcher *d, const struct engine_op *op);
void level_times_follow(struct dispatcher *d); /* levels came, went or were renamed */
void level_times_free(struct dispatcher *d);

/* backup.c */
void broker_backups_end(struct broker *broker); /* those under way too */

#endif
