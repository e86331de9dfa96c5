/* Private to the broker: a shard and the dispatchers of its queues. Everything
 * here runs on the shard's own loop.
 *
 *   shard.c     the loop: requests in, ops to the engine, answers out; timers; drain
 *   dispatch.c  which consumer gets which message: policy, waiting consumers
 *   absent.c    consumers that wait for a queue that is not there yet
 *   many.c      consumers that take from several queues at once
 *   manage.c    queues come, change and go; work that is done in portions
 *   escalate.c  messages get another level, one or many
 *   store.c     messages come in: large batches in portions
 *   import.c    imports: refused as a whole when the queue lacks a level
 *   show.c      queues are shown, one or all of them
 *   explain.c   why a message waits; how many messages have aged or are late
 *   schedules.c messages of due times; what clients ask about schedules
 *   backup.c    a copy of the store, on a thread of its own
 *   alerts.c    thresholds that were crossed; webhook.c posts them */
#ifndef TRIAGE_BROKER_SHARD_H
#define TRIAGE_BROKER_SHARD_H

#include "base/inbox.h"
#include "base/map.h"
#include "broker/alerts.h"
#include "broker/broker.h"

struct shard;

#define SWEEP_MAX  500         /* messages that time passes for in one sweep */
#define SHARE_FREE (64 * 1024) /* bytes of answers in a turn before anybody looks at the clock */

/* What a request needs while it is under way, allocated for the kinds that need it. */
struct work {
    struct request *request;
    uint64_t ticket;  /* its place in line */
    int max_rank;     /* CLAIM */
    int64_t until_ms; /* CLAIM of a queue that is not there: mono, when the wait ends */
    bool parked;
    bool waited;         /* it was not served at once */
    bool brief;          /* CLAIM: it waits for a disk only, not for a message */
    uint8_t tries;       /* CLAIM: how often nothing was found though there was something */
    engine_visit *visit; /* CLAIM: the caller's */
    struct plan plan;
    struct queue_config config;                              /* CONFIGURE, and creation by a PUT */
    void (*looked)(struct dispatcher *d, struct request *r); /* what to do with a fresh view */
    uint64_t limit;                                          /* portions: how many in all */
    double credit;                                           /* … and how many may be done now */
    int64_t credited_ms;
    union {
        struct settle_item *items;         /* CLAIM: what was leased, to give it back */
        struct escalate_item *escalations; /* ESCALATE_ALL: those of a page that match */
        struct count_item *counts;         /* POSITION, STATS */
        struct dispatcher **shown;         /* QUEUES: those still to show, each referred to */
        struct engine_op *portions;        /* PUT, IMPORT */
    };
    uint32_t item_count;
    uint32_t next_item;             /* PUT, IMPORT: the first that is in no portion yet */
    uint32_t portions_out;          /* … under way */
    enum status refused;            /* … why a portion was */
    uint32_t shown_count;           /* CLAIM: of the items, those that are in the answer */
    int slot;                       /* ESCALATE_ALL: of the filter; -1: any */
    uint8_t slots[LEVEL_COUNT_MAX]; /* … the levels to look at */
    uint32_t slot_count;
    uint64_t before_seq;       /* … what came later is not part of it */
    struct list_cursor cursor; /* … where the next page begins */
    bool more;                 /* … and whether there is one */
    struct instant asked;      /* … when; older_than counts from here. POSITION: the same */
    uint64_t seq;              /* POSITION: of the message */
    struct heads_item heads[LEVEL_COUNT_MAX]; /* … by rank */
    struct engine_op own;    /* what the broker asks for itself, beside request.op; one at a time */
    struct order_node timer; /* in shard->timers; key: mono_ms; last */
};

/* Claims of the last seconds. */
#define RATE_SECONDS 30
struct claim_rate {
    int64_t first_s; /* when counting began, monotonic */
    int64_t last_s;
    uint32_t counts[RATE_SECONDS]; /* by second modulo RATE_SECONDS */
};

enum dispatcher_state { DISPATCHER_OPENING, DISPATCHER_OPEN, DISPATCHER_GONE };

struct request_list {
    struct request *first, *last;
};

struct dispatcher {
    char name[QUEUE_NAME_MAX + 1];
    struct shard *shard;
    enum dispatcher_state state;
    struct engine_queue *queue; /* NULL while opening */
    uint32_t version;           /* of the queue's configuration, as the lines stand now */
    struct policy policy;
    struct claim_rate rate;
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
    uint32_t references; /* requests under way */
    bool dirty;
    struct dispatcher *next_dirty;
    struct alert_watch alerts;
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
    _Atomic uint32_t queue_count;
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
void shard_finish(struct shard *s, struct request *r, enum status status);
/* Finishes a request with the status that the engine gave. If that says that the queue is gone,
 * another process may have made it again: then the request starts over instead. */
void shard_end(struct shard *s, struct request *r, enum status status);
void shard_refuse(struct shard *s, struct request *r, enum status status, const char *field,
                  const char *detail);
void shard_pass_on(struct dispatcher *d, struct request *r); /* r->op, as it is, to the engine */
void shard_set_timer(struct shard *s, struct work *w, int64_t mono_ms); /* INT64_MAX: none */
struct work *work_new(struct shard *s, struct request *r);
void work_free(struct shard *s, struct request *r);        /* its timer too; r->work may be NULL */
int64_t shard_oldest_ready_ms(const struct dispatcher *d); /* its age; -1: none, or not known */
void list_insert(struct request_list *l, struct request *r, struct request *before);
void list_append(struct request_list *l, struct request *r);
void list_remove(struct request_list *l, struct request *r);

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
void show_go_on(struct request *r); /* with the next portion */

/* explain.c */
void explain_position(struct dispatcher *d, struct request *r);
void explain_stats(struct dispatcher *d, struct request *r);
void explain_show(struct dispatcher *d, struct request *r, struct queue_facts facts);
void rate_add(struct claim_rate *rate, uint32_t claims, int64_t mono_ms);
double rate_per_second(const struct claim_rate *rate, int64_t mono_ms);

/* schedules.c */
void schedules_due(struct shard *s, struct engine_queue *q, const struct schedule *schedule,
                   struct instant now); /* the engine shows it, in a sweep */
void schedules_fire(struct shard *s);   /* what is due */
void schedules_request(struct dispatcher *d, struct request *r);
void schedules_forget(struct dispatcher *d); /* it goes */

/* escalate.c */
void escalate_some(struct dispatcher *d, struct request *r);
void escalate_all(struct dispatcher *d, struct request *r);

/* store.c */
void store_items(struct dispatcher *d, struct request *r); /* PUT, IMPORT */
void store_go_on(struct request *r);

/* import.c */
void import_check(struct dispatcher *d, struct request *r);

/* manage.c */
struct dispatcher *manage_find(struct shard *s, const char *name);
void manage_adopt(struct shard *s, struct engine_queue *q); /* at start */
void manage_missing(struct shard *s, struct request *r);    /* a request for a queue not known */
/* Asks the engine whether another process has made the queue `name`; for r, or for the claims that
 * wait for the queue (r is NULL). */
void manage_look_up(struct shard *s, const char *name, struct request *r);
void manage_touched(struct engine_queue *q); /* time passed, or others changed it */
/* To be called before the policy is used: makes the policy anew when the queue has another
 * configuration by now. That fills the buckets, once for each configuration. */
void manage_follow(struct dispatcher *d);
void manage_configure(struct dispatcher *d, struct request *r);
void manage_delete(struct dispatcher *d, struct request *r);
/* Asks the engine what other processes have done to the queue up to now, then calls `then`. */
void manage_look_first(struct dispatcher *d, struct request *r,
                       void (*then)(struct dispatcher *d, struct request *r));
void manage_portions(struct dispatcher *d, struct request *r); /* PURGE, REDRIVE, DEAD_DROP */
void manage_portion_timer(struct request *r);
/* Whether r has to look first: as far as we know the queue has no such level, but another process
 * may have made it, and r has not looked yet. */
bool manage_has_to_look(const struct dispatcher *d, const struct request *r,
                        const struct priority_ref *priority);
void manage_refuse_level(struct shard *s, struct request *r, const char *field);
/* The slot of the level that `priority` names; -1 when it names none. False: r was refused. */
bool manage_level(struct dispatcher *d, struct request *r, const struct priority_ref *priority,
                  const char *field, int *slot);
void manage_unref(struct dispatcher *d); /* one reference less */

/* backup.c */
void broker_backups_end(struct broker *broker); /* those under way too */

#endif
