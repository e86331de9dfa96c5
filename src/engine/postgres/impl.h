/* Private to engine/postgres: what its files share.
 *
 *   postgres.c  the engine: submit, flush, poll; queues and what is known of them
 *   calls.c     a group into calls of the SQL functions: which ops share one
 *   build.c     the parameters of a call
 *   claims.c    claims that share a call
 *   imports.c   messages from elsewhere: the call and its answer
 *   answers.c   their answers, back into ops; rows.c has the rows that are messages
 *   views.c     what is known of a queue: as the database said, and what was done here since
 *   config.c    a queue's configuration as JSON
 *   link.c      the thread that runs jobs on a connection, and settles what became of them
 *   transaction.c  one transaction, with a limit of time
 *   listen.c    the thread that hears what other processes did
 *   schema.c    the tables and functions, installed and brought up to date
 *   tables.c    what the tables weigh, for the metrics
 *   wire.c      values in PostgreSQL's binary format
 *
 * A group of ops is a job: a list of calls, run as one transaction on a connection of the
 * shard's own while the next group gathers. Two run side by side when neither reads what the
 * other may be changing, be it only how many there are. Ops of one verb on one queue become one
 * call, so that a hundred enqueues are one INSERT. In a job everything that puts, settles or
 * extends comes before what claims; a claim may therefore find what was submitted after
 * it in the same group, when nobody could know yet that it was.
 *
 * What a lost connection leaves behind. Until COMMIT is sent nothing has happened. After
 * that each transaction is known by the token that it stored: whoever can store that token
 * again knows that it did not happen, and that it never will. Whoever cannot, and can commit
 * something behind it, knows that it happened and is where the standbys must have it. When neither
 * can be found out in time, the answer is ENGINE_UNAVAILABLE.
 *
 * Nothing depends on the session but LISTEN: a pooler may hand out connections by transaction. */
#ifndef TRIAGE_ENGINE_POSTGRES_IMPL_H
#define TRIAGE_ENGINE_POSTGRES_IMPL_H

#include "base/map.h"
#include "engine/engine.h"
#include "engine/postgres/wire.h"

#include <stdatomic.h>
#include <uv.h>

#define TOKEN_BYTES 16
#define LINKS       2 /* connections of a shard: one syncs while the other works */

struct pg;
struct pg_queue;
struct row;

/* A claim under way takes this many from each lane of the view. */
struct taking {
    uint16_t from[LEVEL_COUNT_MAX];
};

struct pg_queue {
    struct engine_queue face; /* first */
    struct pg *pg;
    struct queue_view seen; /* as far as is known; face.view is this less `taking` */
    uint64_t taking[LEVEL_COUNT_MAX];
    int64_t read_ms; /* mono: when the database last said */
    bool behind;     /* something was done since */
    bool perishable; /* some message has a time to live of its own */
    uint64_t puts;   /* messages put here so far */
    uint32_t busy;   /* ops under way */
    bool told;       /* something happened to it elsewhere: look at it in the next sweep */
    /* For the job that is being built. */
    bool listed;  /* in pg->listed */
    bool viewed;  /* its view is to be read */
    bool claimed; /* somebody may be about to wait */
    struct pg_queue *next_listed;
    int64_t waits_until_ms; /* mono: others know until then that consumers wait here */
    bool retired;           /* out of the map: freed when nothing is under way */
};

/* One call of a function. */
enum call_kind {
    CALL_PUT,
    CALL_SETTLE, /* ACK, NACK, RELEASE, EXTEND */
    CALL_CLAIM,
    CALL_OTHER, /* one op */
    CALL_VIEW,  /* of a queue, at the end */
    CALL_QUEUES,
    CALL_WAIT,
    CALL_DUE,
    CALL_TABLES,
};

struct call {
    enum call_kind kind;
    enum engine_verb verb;
    const char *sql; /* a constant: the same text is at the same address */
    struct params params;
    bool prepares; /* it went behind its preparation, whose answer comes first */
    PGresult *result;
    struct pg_queue *queue;
    uint64_t puts;          /* queue->puts when it was sent */
    struct engine_op **ops; /* in order */
    uint32_t op_count, op_cap;
    struct call *next;
};

enum job_fate {
    JOB_DONE,    /* committed; every call has its answer */
    JOB_STALE,   /* a configuration is not what it was: read it, and build the job again */
    JOB_FAILED,  /* nothing happened, or nobody knows whether it did */
    JOB_REFUSED, /* a call made the database refuse: a bug, or an object that is missing */
};

struct job {
    struct engine_op *first, **last; /* the group, in order of submission */
    uint32_t op_count;
    struct instant now;
    struct call *calls, **calls_end;
    uint8_t token[TOKEN_BYTES];
    bool writes;
    bool sweeps;    /* and does not only look at what is new */
    bool reloading; /* it reads configurations, to be built again */
    bool looked;    /* it reads the views of what a sweep moved */
    struct link *link;
    uint32_t tries;
    enum job_fate fate;
    char error[256];
};

/* What all shards of the process share. */
struct pg_shared {
    char *conninfo;
    char *listen_conninfo; /* for LISTEN alone */
    int64_t timeout_ms;    /* for a group, and again for finding out what became of it */
    bool invented_time;    /* tests pass their own clock */
    bool sync_commit;
    uint8_t node[16];
    struct listener *listener;
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
    struct link *links[LINKS];
    struct job *open;
    struct pg_queue *listed; /* queues of the job that is being built */
    uint32_t jobs_under_way;
    uint32_t last_count;    /* ops in the one that went last */
    bool alone;             /* it wants no other beside it */
    int64_t due_ms;         /* wall: the next delay or lease we know of ends */
    int64_t sweep_mono_ms;  /* when to sweep anyway */
    int64_t tables_mono_ms; /* when the tables were last looked at */
    _Atomic bool running;   /* the shard has begun to ask: it may be woken */
    bool sweep_due;         /* time has something to do */
    bool told;              /* by the listener: some queue has news */
    bool all_told;          /* … the list of queues has */
};

/* postgres.c */
void pg_wake(struct pg *pg); /* any thread: engine_poll or engine_next_due_ms has news */
struct pg_queue *pg_queue_by_id(struct pg *pg, uint32_t id);
struct pg_queue *pg_queue_add(struct pg *pg, const char *name, uint32_t id, uint32_t version,
                              const struct queue_config *config);
void pg_queue_retire(struct pg_queue *q);               /* another process, or we, deleted it */
void pg_view_changed(struct pg_queue *q);               /* `seen` or `taking` did */
void pg_fail(struct engine_op *op, enum status status); /* it found nothing */

/* calls.c */
void calls_build(struct pg *pg, struct job *job);
void calls_views(struct pg *pg, struct job *job); /* of queues with news */
void calls_queues(struct job *job);               /* all queues with their configurations */
void calls_free(struct job *job);
bool job_asks_to_sweep(const struct job *job);
struct call *call_add(struct job *job, enum call_kind kind, struct pg_queue *q,
                      enum engine_verb verb, const char *sql);

/* build.c */
void call_build(struct pg *pg, struct job *job, struct call *c);
void param_now(const struct pg *pg, const struct job *job, struct params *p);
void param_queue(struct params *p, const struct pg_queue *q); /* its id and version */
/* Arrays of their slots, payloads, kinds, metadata and dedup keys. */
void params_drafts(struct params *p, const struct queue_config *config,
                   const struct draft *const drafts[], uint32_t count);

/* claims.c */
bool claims_fit(const struct call *c, const struct plan *plan); /* one more into this call */
uint32_t claims_put(struct call *c); /* the plans, as one; returns how many messages they want */

/* imports.c */
void imports_check(struct pg_queue *q, struct engine_op *op); /* what needs no database */
void imports_put(struct call *c, const struct engine_op *op);
void imports_answer(struct pg *pg, struct engine_op *op, struct call *c);

/* views.c. What is done here changes `seen`, for pg_view_changed to show. */
bool view_wanted(const struct pg_queue *q, const struct engine_op *op, struct instant now);
void view_read(struct call *c, struct instant now);
void view_put(struct pg_queue *q, const struct put_item *item);
void view_claim(struct pg_queue *q, const struct row *row);
void view_drained(const struct call *c, const struct plan *plan); /* it got less than it wanted */
void view_ack(struct pg_queue *q, uint8_t slot);

/* answers.c */
void calls_answer(struct pg *pg, struct job *job); /* JOB_DONE: into the ops, with their visits */

/* config.c */
void config_write(struct buf *out, const struct queue_config *config);
bool config_read(const char *text, size_t len, struct queue_config *config, char *name,
                 uint32_t *version);

/* link.c: one connection, one thread, one job at a time. */
struct link *link_open(struct pg *pg, struct buf *error); /* NULL: not reached */
void link_close(struct link *l);
bool link_idle(const struct link *l);
void link_put(struct link *l, struct job *job);     /* to an idle one */
struct job *link_take(struct link *l);              /* when it is done; NULL: it is not yet */
bool link_healthy(struct link *l, struct buf *why); /* any thread */
int link_backend(const struct link *l); /* any thread: the process at the other end; 0: none */
PGconn *link_connect(const char *conninfo, struct buf *error);

/* transaction.c: on a connection in pipeline mode, by the thread that has it. */
#define STATEMENTS_MAX 64

struct session {
    PGconn *conn;
    bool pooled; /* the next transaction may be in another session: nothing is prepared */
    const char *statements[STATEMENTS_MAX]; /* that are */
    int known;
};

enum outcome {
    OUTCOME_OK,
    OUTCOME_LOST,    /* the connection, or its time: a new one is needed */
    OUTCOME_AGAIN,   /* met another transaction at the wrong time */
    OUTCOME_LATE,    /* waited for too long, or was cancelled: rolled back */
    OUTCOME_STALE,   /* a configuration has changed */
    OUTCOME_TAKEN,   /* its token is stored: it was committed before */
    OUTCOME_FORGOT,  /* the session does not know what it did before: it is pooled */
    OUTCOME_REFUSED, /* what should not happen */
};
/* The job, wholly. LOST with *commit_sent: perhaps. */
enum outcome transaction_run(struct session *s, const struct pg_shared *shared, struct job *job,
                             int64_t until_ms, bool *commit_sent);
/* What became of one: TAKEN (committed, and as safe as any commit), OK (it never will be), or
 * anything else: cannot be told. */
enum outcome transaction_ask(struct session *s, const struct pg_shared *shared, struct job *job,
                             int64_t until_ms);
/* On a new connection. It is pooled when who answers is not who we were told is there. */
void transaction_start(struct session *s, PGconn *conn, int64_t until_ms);
void transaction_quiet(PGconn *conn); /* notices are dropped and not printed */

/* listen.c */
struct listener *listener_open(struct pg_shared *shared);
void listener_close(struct listener *l);
/* Which queues have news since the last time: calls `each` with their ids; true when the list of
 * queues itself has. Any thread. */
bool listener_take(struct listener *l, uint32_t shard, void (*each)(void *ctx, uint32_t queue),
                   void *ctx);

/* tables.c */
void tables_ask(struct pg *pg, struct job *job); /* when it is time */
void tables_answer(struct pg *pg, const struct call *c);

/* schema.c */
MUST_USE enum status schema_install(PGconn *conn, struct buf *error);
int schema_version(void); /* that this program knows */

#endif
