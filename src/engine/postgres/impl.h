/* Private to engine/postgres: what its files share.
 *
 *   postgres.c  the engine: submit, flush, poll
 *   open.c      how its shards come and go
 *   queues.c    the queues that a shard knows
 *   calls.c     a group into calls of the SQL functions: which ops share one
 *   build.c     the parameters of a call
 *   claims.c    claims that share a call
 *   imports.c   imports: the call and its answer
 *   schedules.c schedules: the calls and their answers
 *   answers.c   answers of the other calls, back into ops; rows.c has the rows that are messages
 *   checks.c    what an answer has to be before anybody counts on it
 *   views.c     what is known of a queue: as the database said, and what was done here since
 *   config.c    a queue's configuration as JSON
 *   link.c      the thread that runs jobs on a connection, and finds out what became of them
 *   transaction.c  one transaction, with a limit of time
 *   listen.c    the thread that is notified of what other processes did
 *   schema.c    the tables and functions, installed and brought up to date
 *   tables.c    what the tables weigh, for the metrics
 *   duty.c      which server speaks for all
 *   wire.c      values in PostgreSQL's binary format
 *
 * A group of ops is a job: a list of calls, run as one transaction on a connection of the
 * shard's own while the next group gathers. Two jobs run side by side when neither reads what the
 * other may be changing, counts included. Ops of one verb on one queue become one call, and so do
 * most enqueues and all acks whatever their queues, so that a hundred enqueues are one INSERT. In a
 * job all calls that put or settle come before those that claim. So a claim may find a message that
 * was submitted after it in the same group; nobody can tell, because none of the group was answered
 * yet.
 *
 * What the database refuses. The answer says which call was refused; then nothing of the job has
 * happened. When that call carries one op, this op fails, and the others are run again without it.
 * When it carries several, they are run again in two calls. So the op to blame is found by halving.
 *
 * What a lost connection leaves behind. Until COMMIT is sent nothing has happened, and the group is
 * run again while it has time, also when it has to wait for a database that is being restarted.
 * After COMMIT was sent, the token tells: each transaction stores a random token. If the token can
 * be stored again, the transaction did not happen, and never will. If it cannot, and something can
 * be committed behind it, the transaction happened and the standbys have it. When neither can be
 * found out in time, the answer is ENGINE_UNAVAILABLE.
 *
 * Nothing depends on the session but LISTEN: a pooler may hand out connections by transaction. */
#ifndef TRIAGE_ENGINE_POSTGRES_IMPL_H
#define TRIAGE_ENGINE_POSTGRES_IMPL_H

#include "base/map.h"
#include "base/offset.h"
#include "base/tag.h"
#include "engine/engine.h"
#include "engine/postgres/wire.h"

#include <stdatomic.h>
#include <uv.h>

#define TOKEN_BYTES 16
#define LINKS       2 /* connections of a shard: one syncs while the other works */

struct pg;
struct pg_queue;
struct row;

/* How many messages a claim under way may take: from each lane of the view, and `anywhere` from
 * lanes that are not known yet, because its steps are taken in turn. */
struct taking {
    uint32_t tag; /* TAKING_TAG */
    uint16_t from[LEVEL_COUNT_MAX];
    uint16_t anywhere;
};

struct pg_queue {
    struct engine_queue face; /* first */
    uint32_t tag;             /* PG_QUEUE_TAG */
    struct pg *pg;
    struct queue_place *place; /* owned: what face.place shows */
    struct queue_view seen;    /* as far as is known; face.view is this less `taking` */
    struct queue_view moment;  /* as the database last said */
    uint64_t taking[LEVEL_COUNT_MAX];
    uint64_t taking_anywhere;
    int64_t read_ms; /* mono: when the database last said */
    bool behind;     /* something was done since */
    bool perishable; /* some message has a time to live of its own */
    uint64_t puts;   /* messages that this process has put so far */
    uint32_t busy;   /* ops under way */
    bool told;       /* another process changed it: look at it in the next sweep */
    bool deleting;   /* we are deleting it: it cannot be found until that is done */
    /* For the job that is being built. */
    bool listed;  /* in pg->listed */
    bool viewed;  /* its view is to be read */
    bool claimed; /* somebody may be about to wait */
    bool named;   /* the parameters of the call that is being built name it */
    struct pg_queue *next_listed;
    int64_t waits_until_ms; /* mono: others know until then that consumers wait here */
    bool retired;           /* out of the maps: freed when nothing is under way */
    struct pg_queue *next_replaced;
};

#define PG_QUEUE_TAG TAG('p', 'g', 'q', 'u')
#define TAKING_TAG   TAG('t', 'a', 'k', 'e')

/* Behind a handle, which may be NULL; and in what a map or an op has. */
static inline struct pg_queue *pg_queue_of(void *p)
{
    struct pg_queue *q = (struct pg_queue *)p;
    if (q)
        tag_check(q->tag, PG_QUEUE_TAG);
    return q;
}

static inline struct taking *taking_of(const struct engine_op *op)
{
    struct taking *t = (struct taking *)op->engine;
    tag_check(t->tag, TAKING_TAG);
    return t;
}

/* One call of a function. */
enum call_kind {
    CALL_PUT,
    CALL_SETTLE, /* ACK, NACK, RELEASE, EXTEND */
    CALL_CLAIM,
    CALL_OTHER, /* one op */
    CALL_VIEW,  /* of a queue, at the end */
    CALL_PLACE, /* of a queue */
    CALL_QUEUES,
    CALL_CHANGES, /* which queues have news */
    CALL_WAIT,
    CALL_DUE,
    CALL_SCHEDULES, /* that are due */
    CALL_TABLES,
    CALL_DUTY,
};

struct pg_call {
    enum call_kind kind;
    enum engine_verb verb;
    const char *sql; /* a constant: the same text is at the same address */
    struct params params;
    bool prepares; /* a PREPARE was sent before it, whose answer comes first */
    PGresult *result;
    struct pg_queue *queue; /* NULL: it is of no queue, or its ops are of several */
    uint64_t puts;          /* queue->puts when it was sent */
    uint32_t rules;         /* CLAIM: of the policy whose tokens went with it */
    struct engine_op **ops; /* in order */
    uint32_t op_count, op_cap;
    struct pg_call *next;
};

enum job_fate {
    JOB_DONE,    /* committed; every call has its answer */
    JOB_STALE,   /* a configuration is not what it was: read it, and build the job again */
    JOB_FAILED,  /* nothing happened, or nobody knows whether it did */
    JOB_REFUSED, /* a call made the database refuse: a bug, or an object that is missing */
};

#define LOT_REFUSED UINT32_MAX /* an op's lot: it failed, and the rest goes on without it */

struct pg_job {
    struct engine_op *first, **last; /* the group, in order of submission */
    uint32_t op_count;
    struct instant now;
    /* Wall clocks: ours when it began, the database's then, ours when that was heard; 0: it was
     * not. */
    struct exchange {
        int64_t asked_us, theirs_us, heard_us;
    } exchange;
    struct pg_call *calls, **calls_end;
    uint8_t token[TOKEN_BYTES];
    uint64_t commit_us; /* what its COMMIT took */
    bool writes;
    bool sweeps;       /* it lets time pass; it does not only look for news */
    bool reloading;    /* it reads configurations, to be built again */
    bool moved;        /* the place of a queue has refused an op: it is to be read */
    bool looked;       /* it reads the views of what a sweep moved, and places */
    struct link *link; /* which runs it; NULL while it gathers */
    uint32_t tries;
    int64_t until_ms; /* mono: its time ends; 0: it has not begun */
    uint32_t lots;    /* how many lots there are: ops share a call only within a lot */
    enum job_fate fate;
    struct pg_call *refused; /* JOB_REFUSED: the call whose values were refused; NULL: it was not
                                for values, as when an object is missing */
    char error[256];
};

/* What all shards of the process share. */
struct pg_shared {
    char *conninfo;
    char *listen_conninfo; /* for LISTEN alone */
    int64_t timeout_ms;    /* for a group, and again for finding out what became of it */
    _Atomic bool prepared; /* the schema is up to date: else whoever connects sees to it */
    bool invented_time;    /* tests pass their own clock */
    bool sync_commit;
    uint8_t node[16];
    _Atomic int64_t speaks_until_ms; /* mono: it has the duty until then */
    struct pg_listener *listener;
    void (*wake)(void *ctx, uint32_t shard);
    void *wake_ctx;
    uint32_t shard_count;
    struct pg **shards;
};

struct pg {
    struct engine base; /* first */
    struct pg_shared *shared;
    uint32_t shard;
    struct map queues; /* struct pg_queue by name */
    struct map by_id;
    struct clock_offset offset; /* how far the database's clock is ahead of ours */
    struct link *links[LINKS];
    struct pg_job *open;
    struct pg_queue *listed;   /* queues of the job that is being built */
    struct pg_queue *replaced; /* out of the maps, and gone: the next sweep says so */
    uint32_t jobs_under_way;
    uint32_t last_count;    /* ops in the one that went last */
    bool alone;             /* the job under way wants no other beside it */
    int64_t due_ms;         /* wall: the next delay or lease we know of ends */
    int64_t sweep_mono_ms;  /* when to sweep anyway */
    int64_t held_until_ms;  /* mono: no sweep before then */
    int64_t tables_mono_ms; /* when the tables were last looked at */
    int64_t duty_mono_ms;   /* when the duty was last asked for */
    bool duty_told;         /* what the log says: it has it */
    _Atomic bool running;   /* the shard has begun to ask: it may be woken */
    bool sweep_due;         /* time has something to do */
    bool list_due;          /* the list of queues could not be read: the next sweep is to */
    bool told;              /* by the listener: some queue has news */
    bool all_told;          /* … the list of queues has */
};

/* postgres.c */
extern const struct engine_ops postgres_ops;
void pg_wake(struct pg *pg); /* any thread: engine_poll or engine_next_due_ms has news */
struct pg_job *job_new(struct instant now);
void pg_fail(struct engine_op *op, enum status status); /* it found nothing */
void pg_learn_clock(struct pg *pg, struct pg_job *job); /* from what a job has heard */

/* open.c */
void pg_close(struct pg_shared *shared); /* all shards, as far as they were opened */

/* queues.c */
struct pg_queue *pg_queue_by_id(struct pg *pg, uint32_t id);
void pg_queue_tell(struct pg *pg, uint32_t id); /* it has news */
struct pg_queue *pg_queue_add(struct pg *pg, const char *name, uint32_t id, uint32_t version,
                              const struct queue_config *config);
/* The database has this place, or had it; it changes owner. True: it was news. */
bool pg_queue_place(struct pg_queue *q, struct queue_place *place);
void pg_queue_free(struct pg_queue *q);    /* it is retired, and nobody has a handle */
void pg_queue_retire(struct pg_queue *q);  /* another process, or we, deleted it */
void pg_queue_replace(struct pg_queue *q); /* the database has another one of its name or id */
void pg_queue_let_go(struct pg_queue *q);  /* freed when it is retired and nothing is under way */
/* Takes the messages that a claim may take out of the view that others see, as far as the view
 * tells which; pg_queue_unreserve() puts them back. */
void pg_queue_reserve(struct pg_queue *q, const struct plan *plan, struct taking *taking);
void pg_queue_unreserve(struct pg_queue *q, const struct taking *taking);
void pg_view_changed(struct pg_queue *q); /* `seen` or `taking` changed: face.view follows */

/* calls.c */
#define CHANGES_MAX 1000 /* queues that changed, in one answer of the database */
void calls_build(struct pg *pg, struct pg_job *job);
void calls_views(struct pg *pg, struct pg_job *job);  /* of queues with news */
void calls_places(struct pg *pg, struct pg_job *job); /* of queues whose places refused an op */
void calls_queues(struct pg_job *job);                /* all queues with their configurations */
void calls_free(struct pg_job *job);
bool job_asks_to_sweep(const struct pg_job *job);
bool job_is_asked_for(const struct pg_job *job); /* somebody waits for it */
struct pg_call *call_add(struct pg_job *job, enum call_kind kind, struct pg_queue *q,
                         enum engine_verb verb, const char *sql);

/* build.c */
void call_build(struct pg *pg, struct pg_job *job, struct pg_call *c);
void param_now(const struct pg *pg, const struct pg_job *job, struct params *p);
void param_queue(struct params *p, const struct pg_queue *q); /* its id and version */
bool cursor_valid(const struct engine_op *op); /* one of our lists may have made it */
/* Arrays of their slots, payloads, kinds, metadata and dedup keys. */
void params_drafts(struct params *p, const struct queue_config *config,
                   const struct draft *const *drafts, uint32_t count);

/* claims.c */
bool claims_fit(const struct pg_call *c, const struct plan *plan); /* one more into this call */
/* Makes one plan of the plans of a call; returns how many messages they want. */
uint32_t claims_put(const struct pg_job *job, struct pg_call *c);

/* imports.c */
void imports_check(struct pg_queue *q, struct engine_op *op); /* what needs no database */
void imports_put(struct pg_call *c, const struct engine_op *op);
void imports_answer(struct pg *pg, struct engine_op *op, struct pg_call *c);

/* schedules.c */
void pg_schedules_put(struct pg_call *c, const struct engine_op *op);
void pg_schedules_list(struct pg_call *c, const struct engine_op *op);
void pg_schedules_delete(struct pg_call *c, const struct engine_op *op);
void pg_schedules_fire(struct pg_call *c, const struct engine_op *op);
void pg_schedules_ask(struct pg *pg, struct pg_job *job);
void pg_schedules_answer_set(struct engine_op *op, struct pg_call *c, struct instant now);
void pg_schedules_answer_list(struct engine_op *op, struct pg_call *c, struct instant now);
void pg_schedules_answer_fire(struct pg *pg, struct engine_op *op, struct pg_call *c);
void pg_schedules_answer_due(struct pg *pg, struct pg_job *job, struct pg_call *c);

/* views.c. These functions change `seen`; pg_view_changed() then shows it in face.view. */
bool view_wanted(const struct pg_queue *q, const struct engine_op *op, struct instant now);
void view_read(struct pg_call *c, struct instant now);
void view_put(struct pg_queue *q, const struct put_item *item);
void view_claim(struct pg_queue *q, const struct row *row);
void view_drained(const struct pg_call *c, const struct plan *plan); /* a claim got too few */
void view_ack(struct pg_queue *q, uint8_t slot);

/* answers.c. Puts the answers of a job that is JOB_DONE into its ops, and calls their visits. */
void calls_answer(struct pg *pg, struct pg_job *job);

/* checks.c. An answer that cannot be right is named in the log. */
bool answer_fits(const struct pg_call *c, uint32_t rows); /* it has so many rows */
/* Whether a row is a possible message; `claimed`: with a receipt, `whole`: with its payload. */
bool row_fits(const struct pg_queue *q, const struct row *row, bool claimed, bool whole);

/* config.c */
void config_write(struct buf *out, const struct queue_config *config);
/* NULL, or the part that cannot be read. *place is the caller's to free then; NULL: there is none.
 */
const char *config_read(const char *text, size_t len, struct queue_config *config, char *name,
                        uint32_t *version, struct queue_place **place);

/* link.c: one connection, one thread, one job at a time. */
/* NULL: the database was not reached. While the schema is not prepared it is not tried here: the
 * link connects by itself. */
struct link *link_open(struct pg *pg, struct buf *error);
void link_close(struct link *l);
bool link_idle(const struct link *l);
void link_put(struct link *l, struct pg_job *job);  /* to an idle one */
struct pg_job *link_take(struct link *l);           /* a job that is done; NULL: it is not yet */
bool link_healthy(struct link *l, struct buf *why); /* any thread */
int link_backend(const struct link *l); /* any thread: the process at the other end; 0: none */
PGconn *link_connect(const char *conninfo, struct buf *error);

/* transaction.c: on a connection in pipeline mode, by the thread that has it. */
#define STATEMENTS_MAX 64

struct session {
    PGconn *conn;
    bool pooled;          /* the next transaction may be in another session: nothing is prepared */
    int64_t statement_ms; /* the statement_timeout that somebody set for us; 0: none */
    const char *statements[STATEMENTS_MAX]; /* that are */
    int known;
};

enum outcome {
    OUTCOME_OK,
    OUTCOME_LOST,    /* the connection, or its time: a new one is needed */
    OUTCOME_UNDONE,  /* … and nothing can have happened */
    OUTCOME_AGAIN,   /* met another transaction at the wrong time */
    OUTCOME_LATE,    /* waited for too long, or was cancelled: rolled back */
    OUTCOME_STALE,   /* a configuration has changed */
    OUTCOME_TAKEN,   /* its token is stored: it was committed before */
    OUTCOME_FORGOT,  /* the session does not know what it did before: it is pooled */
    OUTCOME_REFUSED, /* what should not happen */
};
/* Runs the job as one transaction. OUTCOME_LOST with *commit_sent: it may have happened. */
enum outcome transaction_run(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                             int64_t until_ms, bool *commit_sent);
/* Finds out what became of a job's transaction: OUTCOME_TAKEN: it was committed, and is as safe as
 * any commit. OUTCOME_OK: it did not happen, and never will. Anything else: it cannot be told. */
enum outcome transaction_ask(struct session *s, const struct pg_shared *shared, struct pg_job *job,
                             int64_t until_ms);
/* Begins a session on a new connection. It is taken for pooled when the backend that answers is
 * another one than the connection named. */
void transaction_start(struct session *s, PGconn *conn, int64_t until_ms);
void transaction_quiet(PGconn *conn); /* notices are dropped and not printed */

/* listen.c */
struct pg_listener *listener_open(struct pg_shared *shared);
void listener_close(struct pg_listener *l);
/* Calls `each` with the ids of the queues that have news since the last time. True: the list of
 * queues itself has changed. Any thread. */
bool listener_take(struct pg_listener *l, uint32_t shard, void (*each)(void *ctx, uint32_t queue),
                   void *ctx);

/* tables.c */
#define TABLES_COUNTERS 5
extern const struct engine_counter tables_counters[TABLES_COUNTERS]; /* all that the kind has */
void tables_ask(struct pg *pg, struct pg_job *job);                  /* when it is time */
void tables_answer(struct pg *pg, const struct pg_call *c);

/* duty.c */
void duty_ask(struct pg *pg, struct pg_job *job); /* when it is time */
void duty_answer(struct pg *pg, const struct pg_job *job, const struct pg_call *c);
bool duty_speaks(const struct pg_shared *shared, struct instant now); /* any thread */

/* schema.c */
MUST_USE enum status schema_install(PGconn *conn, struct buf *error);
int schema_version(void); /* that this program knows */

#endif
