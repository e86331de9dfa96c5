/* The engine contract: where messages live. This header alone is enough to write
 * an engine; memory.c is the smallest one and the runnable specification, and
 * tests/conformance must not be able to tell any other engine from it.
 *
 * Shape. An engine is opened once per process and handed out once per shard.
 * Everything below is called on that shard's own thread. Operations are
 * asynchronous: the caller embeds a `struct engine_op`, submits it, and gets it
 * back through `done`. Blocking client libraries are the engine's private trouble.
 *
 *   submit … submit  flush            poll: done, done, …
 *   └── one group, applied in order ──┘ └── when the group is durable ──┘
 *
 * Clocks. The caller passes `now`. Leases run on now.mono_ms; delays, time to live
 * and everything people see run on now.wall_ms. An engine shared between
 * machines may use its server's clock instead, and then uses only that.
 *
 * Order. Within a level messages stand by (ready_ms, seq). The engine hands out
 * seq in order of application. What comes back without a delay keeps both.
 *
 * Triage guarantees to an engine:
 *   1. Names, counts and lengths are within limits.h; times within ±TIME_MS_MAX.
 *   2. An op is not touched between submit and done; its arrays and strings stay.
 *   3. One thread per engine handle; `now` never goes back in mono_ms.
 *   4. A plan's steps name slots of the queue's present configuration.
 *
 * The engine guarantees back:
 *   1. Ops take effect in the order of submission. Over a crash each item of an op that carries
 *      several is there wholly or not at all; an op with one item is one item.
 *   2. `done` fires exactly once per op, from engine_poll, never inside submit, in
 *      order of submission. With status OK everything the op did is as durable as
 *      the engine's setting says, and so is everything submitted before it.
 *   3. A status other than OK and ENGINE_UNAVAILABLE means nothing was changed
 *      (per item, for verbs that carry items). ENGINE_UNAVAILABLE after submit means unknown:
 *      the effect is there wholly or not at all after recovery. ENGINE_REFUSED is for one op
 *      that the store will never take; the others of its group are done without it.
 *   4. At most one unexpired receipt per message; a receipt that is not the newest, or whose lease
 *      has run out, is refused with RECEIPT_EXPIRED and changes nothing.
 *   5. Leases, attempts, places, totals and configuration survive a restart of a durable engine.
 *   6. Foreign errors stop inside: a status, and engine_health() has the words.
 *   7. The cost of an op does not depend on how many messages wait, are scheduled or are leased. */
#ifndef TRIAGE_ENGINE_ENGINE_H
#define TRIAGE_ENGINE_ENGINE_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "core/levels.h"
#include "core/message.h"
#include "core/policy.h"
#include "core/queue.h"
#include "core/schedule.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;
struct engine_op;

/* A queue as the layer above sees it: the head of each engine's own struct. Lives from the
 * QUEUE_SET that created it (or from open) until its QUEUE_DELETE is done. Read only above. */
struct engine_queue {
    char name[QUEUE_NAME_MAX + 1];
    uint32_t id;
    struct queue_config config;
    uint32_t version;       /* of config: every change makes it another one */
    bool gone;              /* another process deleted it: it lives until `touched` has said so */
    struct queue_view view; /* what plans are made by */
    /* The queue at one moment, all numbers of which add up: what people are shown. NULL: the view
     * is that. */
    const struct queue_view *moment;
    uint64_t next_seq;  /* the seq the next message will get, or one that is larger */
    uint32_t schedules; /* how many it has; without ENGINE_LIVE_VIEW not known, and 0 */
    uint32_t waiting;   /* the caller's: how many consumers wait for something to be ready */
    void *user;         /* the caller's */
};

typedef void engine_done(struct engine_op *op);

/* Shows one message, on the caller's thread, before done; borrowed for the call. The body is in
 * memory. For CLAIM the lease is already in m->delivery; who escalated the message may be missing
 * there, because no consumer is told. */
typedef void engine_visit(struct engine_op *op, const struct engine_queue *q,
                          const struct message *m, struct instant now);

/* A queue that changed in a sweep: it may have something for waiting consumers; in an engine with
 * the capability SHARED its configuration may be another one, or it may be gone. */
typedef void engine_touched(struct engine_op *op, struct engine_queue *q);

/* Shows a schedule, with the same promises. In a sweep it is due at `now`, by the engine's clock.
 */
typedef void engine_schedule(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                             struct instant now);

enum engine_verb {
    /* SHARED engines only. Another process may have made open.name: op->queue is its handle at
     * done, or QUEUE_NOT_FOUND. */
    ENGINE_QUEUE_OPEN,
    /* queue NULL creates set.name (op->queue is the new handle at done, or that of the queue
     * another process made of that name meanwhile: then set.existed, and its configuration is left
     * as it is); else changes it. A level in use that the new configuration lacks: LEVEL_IN_USE.
     * In use is what holds messages, and what a schedule names. Slots and history_since_ms are the
     * engine's to assign: a level keeps the slot of its name, or of the level whose heir it is; and
     * a schedule names the heir from then on. With set.dry nothing is changed, and the answer is
     * the one that it would have had. */
    ENGINE_QUEUE_SET,
    /* Everything in it goes too. The caller submits nothing more for this queue. With
     * remove.if_empty a queue that other processes have filled, or given schedules, stays:
     * QUEUE_NOT_EMPTY. */
    ENGINE_QUEUE_DELETE,
    /* Stores the drafts of put.items. Per item: OK with the id (deduplicated set when an earlier
     * message had the key: then that one's id), QUEUE_FULL, PAYLOAD_TOO_LARGE (for this queue),
     * UNKNOWN_PRIORITY, STORAGE_FULL. The body of a stored draft is taken (draft.body is NULL
     * then). */
    ENGINE_PUT,
    /* Stores import.items as they were elsewhere: dead ones dead, the others by their ready time;
     * one whose time to live is over ends at once. No limit of the queue refuses them. Per item: OK
     * with the id (known set when the same message was imported within IMPORT_KNOWN_MS: then that
     * one's), UNKNOWN_PRIORITY, STORAGE_FULL. The dedup key
     * counts from when it was enqueued, unless somebody else has it. The body of a stored one is
     * taken. */
    ENGINE_IMPORT,
    /* Leases up to claim.plan->want messages by the plan, says in each step how many it found, and
     * visit shows each. Each counts an attempt. For steps in turn the engine asks policy_turn()
     * when it carries the plan out, and pays with policy_spend(): claims of one policy see what
     * those before them have paid. An engine with the capability SHARED also keeps to the in-flight
     * limits of the configuration itself. */
    ENGINE_CLAIM,
    /* settle.items by id and receipt. Per item OK, MESSAGE_NOT_FOUND, RECEIPT_EXPIRED; and the
     * state the message is in now. */
    ENGINE_ACK,
    ENGINE_NACK, /* settle.delay_ms (-1: by the queue's backoff), settle.reason; may end in DEAD */
    ENGINE_RELEASE, /* back to its place, the attempt not counted */
    ENGINE_EXTEND,  /* the lease ends settle.lease_ms from now */
    /* one.id. SCHEDULED or READY only, else NOT_PENDING. */
    ENGINE_CANCEL,
    /* Gives move.items the level with move.slot, and notes who asked for it and why. Ready or
     * scheduled ones only; they keep their place in order of time. Per item, see struct move_item.
     */
    ENGINE_MOVE,
    /* How many ready messages stand before each place of count.items. Cheap however many there are,
     * and so perhaps an estimate. */
    ENGINE_COUNT,
    /* Where the first ready messages of the lanes of heads.items stand, in order. */
    ENGINE_HEADS,
    /* one.id in any state, also DEAD, and DONE while it is kept (levels_keeps(), to the
     * millisecond); visit shows it, or MESSAGE_NOT_FOUND. */
    ENGINE_GET,
    /* Cancels up to bulk.max scheduled and ready messages with seq < bulk.before_seq; bulk.count
     * says how many, bulk.more whether to ask again. */
    ENGINE_PURGE,
    /* Up to list.limit messages after list.after, in an order of the engine's; list.next continues.
     * Every message that is neither claimed, put nor moved meanwhile is shown once.
     * list.after may come from a stranger: one that no list.next can have been is INVALID_FIELD,
     * and any other costs no more than a page.
     * With list.slots only what is scheduled or ready at these levels is asked for: others may be
     * shown too, and payloads may be missing. What the caller moves to the first of them meanwhile
     * is still shown once. */
    ENGINE_LIST,
    /* Dead letters by seq, from list.after.seq + 1 on. */
    ENGINE_DEAD_LIST,
    /* bulk.ids, or up to bulk.max in order when bulk.id_count is 0 (and seq < bulk.before_seq):
     * DEAD to READY, at its old place, attempts 0, at bulk.slot unless that is -1. Ids that are not
     * dead are skipped. */
    ENGINE_DEAD_REDRIVE,
    /* The same selection; they are gone. */
    ENGINE_DEAD_DROP,
    /* Lets time pass for up to sweep.max messages: delays, leases, time to live, history. A SHARED
     * engine also tells what other processes did. sweep.due is shown schedules whose time has come;
     * one that is not fired then is shown again, at the earliest SCHEDULE_AGAIN_MS later. */
    ENGINE_SWEEP,
    /* Sets schedule.set, a copy of which is kept, as schedule_inherit() has it and with the name of
     * the level that its priority means; show gets the one that is there then. QUOTA_EXCEEDED when
     * the queue has SCHEDULES_MAX others, STORAGE_FULL. */
    ENGINE_SCHEDULE_SET,
    ENGINE_SCHEDULE_DELETE, /* schedule.name, or SCHEDULE_NOT_FOUND */
    /* Shows schedule.name, or SCHEDULE_NOT_FOUND; without a name up to schedule.limit of them
     * behind schedule.after, by name. */
    ENGINE_SCHEDULE_LIST,
    /* Takes fire.step for the schedule fire.name: the message fire.item, if the step puts one, and
     * the new timing (schedule_after) are there both or neither. Only if the next due time is still
     * step.due_ms; else fire.stale is set, and nothing was done. What refuses the message (as in
     * PUT) refuses the step. SCHEDULE_NOT_FOUND. With fire.refused the caller refuses it, and that
     * is the answer. What was refused is put off for SCHEDULE_AGAIN_MS: it is not to stand before
     * what others have due. */
    ENGINE_FIRE,
    ENGINE_VERB_COUNT
};

/* Where a LIST stands; zero is the start. Opaque above the engine, which knows it as a text. */
struct list_cursor {
    uint32_t phase;
    uint32_t slot;
    int64_t ready_ms;
    uint64_t seq;
};

#define SCHEDULE_AGAIN_MS 1000

struct engine_op {
    /* Set by the caller. */
    enum engine_verb verb;
    struct engine_queue *queue;
    engine_done *done;
    engine_visit *visit; /* verbs that show messages */
    void *user;
    /* Set by the engine. */
    enum status status;
    /* QUEUE_SET, CLAIM, MOVE and COUNT in a SHARED engine: the configuration is not the one any
     * more that the op was made by, and the queue has the new one. Nothing was done; status is not
     * OK. */
    bool outdated;
    struct engine_op *next; /* while submitted */
    void *engine;           /* the engine's own, while submitted; so are the next two */
    uint32_t lot;
    uint32_t version; /* of the queue's configuration when it was submitted */
    union {
        struct {
            const char *name;
        } open;
        struct {
            const char *name;
            const struct queue_config *config;
            bool dry;
            const char *level_name;                 /* out: the level that is in use */
            char schedule_name[QUEUE_NAME_MAX + 1]; /* out: of one that names it; empty: it holds
                                                       messages */
            bool existed;                           /* out: see QUEUE_SET */
        } set;
        struct {
            bool if_empty; /* what this process put there the caller has looked for */
        } remove;
        struct {
            struct put_item *items;
            uint32_t count;
        } put;
        struct {
            struct import_item *items;
            uint32_t count;
        } import;
        struct {
            struct plan *plan;
            int64_t lease_ms; /* -1: the queue's own */
            uint32_t found;   /* out */
        } claim;
        struct {
            struct settle_item *items;
            uint32_t count;
            int64_t delay_ms;
            int64_t lease_ms;
            const char *reason;
            uint32_t reason_len;
        } settle;
        struct {
            struct move_item *items;
            uint32_t count;
            uint8_t slot;
            struct move_note note;
        } move;
        struct {
            struct count_item *items;
            uint32_t count;
            bool waits; /* SHARED: the caller is about to wait for something to be ready */
        } count;
        struct {
            struct heads_item *items;
            uint32_t count;
        } heads;
        struct {
            struct message_id id;
        } one;
        struct {
            struct list_cursor after;
            uint32_t limit;
            const uint8_t *slots;    /* LIST */
            uint32_t slot_count;     /* 0: everything */
            struct list_cursor next; /* out */
            uint32_t found;          /* out */
            bool more;               /* out */
        } list;
        struct {
            const struct message_id *ids;
            uint32_t id_count;
            uint32_t max;
            uint64_t before_seq;
            int slot;
            struct list_cursor cursor; /* the engine's, from one ask to the next; zero at first */
            uint32_t count;            /* out */
            bool more;                 /* out */
        } bulk;
        struct {
            uint32_t max;
            bool look; /* SHARED: tell of every queue that others changed, however many there are */
            engine_touched *touched;
            engine_schedule *due; /* may be NULL: then nothing is fired */
            bool more;            /* out: ask again at once */
        } sweep;
        struct {
            const struct schedule *set;
            const char *name;
            const char *after;
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
    };
};

enum engine_capability {
    ENGINE_DURABLE = 1 << 0, /* survives a restart */
    /* Ops apply inside submit; the view is exact from then on. Else a view is what the answers so
     * far say, less what claims under way are to take; its heads may be older than its counts. */
    ENGINE_LIVE_VIEW = 1 << 1,
    ENGINE_SHARED = 1 << 2, /* other processes change the same queues */
};

/* The tables of an engine that keeps messages in a database, as far as they can swell. */
#define ENGINE_TABLES(X)                                                                           \
    X(READY, "ready")                                                                              \
    X(SCHEDULED, "scheduled")                                                                      \
    X(LEASED, "leased")                                                                            \
    X(DEAD, "dead")                                                                                \
    X(HISTORY, "history")                                                                          \
    X(BODY, "body")                                                                                \
    X(DEDUP, "dedup")                                                                              \
    X(TALLY, "tally")                                                                              \
    X(COUNTED, "counted")                                                                          \
    X(LANE, "lane")                                                                                \
    X(MARK, "mark")

enum engine_table {
#define X(symbol, name) ENGINE_TABLE_##symbol,
    ENGINE_TABLES(X)
#undef X
        ENGINE_TABLE_COUNT
};

struct engine_counters {
    uint64_t ops[ENGINE_VERB_COUNT];
    uint64_t groups;         /* commits */
    uint64_t group_ops;      /* ops in them */
    uint64_t commit_us;      /* time spent committing */
    uint64_t refills;        /* reads of a tail from disk */
    uint64_t resident_bytes; /* messages in memory */
    uint64_t disk_free_bytes;
    uint64_t table_looks; /* how often what follows was read; 0: there are no tables */
    uint64_t table_dead_rows[ENGINE_TABLE_COUNT];
    uint64_t table_bytes[ENGINE_TABLE_COUNT];
    uint64_t table_index_bytes[ENGINE_TABLE_COUNT];
    uint64_t oldest_transaction_ms; /* for so long nothing that died could be taken away */
};

/* A consistent copy of an engine's store, made while it serves. It appears under its name when it
 * is whole and on the disk; until then, and after a failure, there is nothing of that name. */
#define BACKUP_PATH_MAX 1024

struct engine_backup {
    /* Set by the caller. */
    const char *directory;     /* a name in engine_options.backup_dir, or the path of one */
    const atomic_bool *cancel; /* ends it: DRAINING */
    /* Set by the engine. */
    char path[BACKUP_PATH_MAX];
    int64_t moment_ms; /* wall clock: all that was answered before is in it */
    int64_t took_ms;
    uint64_t bytes;
    struct buf error; /* a sentence when it failed; the caller's to free */
};

struct engine_backup_progress {
    bool running;
    char path[BACKUP_PATH_MAX]; /* of the one under way */
    int64_t started_ms;         /* wall clock */
    uint64_t bytes, bytes_total;
    uint64_t made, failed;  /* since the engine was opened */
    int64_t last_moment_ms; /* of the last one that was made; 0: none */
};

/* A look at a store that no server has open, which changes nothing there. What is damaged is told
 * and passed over. */
struct engine_inspection {
    /* Set by the caller; each may be NULL. */
    void (*damage)(void *ctx, const char *sentence); /* with file and offset, or the key */
    /* Every queue before its messages, which come in several runs; then every message that is not
     * finished, with its body. A queue whose name cannot be read has none, and no levels. What was
     * deleted may come again where a part is damaged. */
    void (*queue)(void *ctx, const struct engine_queue *q);
    void (*message)(void *ctx, const struct engine_queue *q, const struct message *m);
    void (*schedule)(void *ctx, const struct engine_queue *q, const struct schedule *s);
    void (*progress)(void *ctx, uint64_t bytes, uint64_t bytes_total);
    void *ctx;
    /* Set by the engine. */
    uint64_t damages, queues, messages, schedules;
    uint64_t unreadable; /* messages that are known to be missing; there may be more */
};

/* Whether an engine could be opened, as far as can be told without changing anything, or disturbing
 * a server that has it open. Lines, each with its newline; the caller's to free. */
struct engine_preview {
    struct buf problems; /* why it could not */
    struct buf notes;
};

/* What each engine provides; callers use the wrappers below, which assert and count. */
struct engine_ops {
    const char *name;
    uint32_t capabilities;
    void (*submit)(struct engine *e, struct engine_op *op, struct instant now);
    void (*flush)(struct engine *e);
    uint32_t (*poll)(struct engine *e);
    int64_t (*next_due_ms)(struct engine *e, struct instant now);
    bool (*holds)(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                  struct instant now); /* or NULL: it always does */
    struct engine_queue *(*queue_find)(struct engine *e, const char *name, size_t len);
    struct engine_queue *(*queue_each)(struct engine *e, size_t *at);
    bool (*speaks)(struct engine *e, struct instant now); /* or NULL: it always does */
    enum status (*health)(struct engine *e, struct buf *detail);
    /* NULL, both: it makes none. */
    enum status (*backup)(struct engine *e, struct engine_backup *b);
    void (*backup_progress)(struct engine *e, struct engine_backup_progress *p);
    void (*close)(struct engine *shards[], uint32_t shard_count);
};

/* First member of each engine's struct. */
struct engine {
    const struct engine_ops *ops;
    struct engine_counters counters;
    uint64_t in_flight; /* submitted and not done */
    uint32_t reading;   /* reads under way, each of which will wake the shard */
    bool failed;        /* for good: only a restart can bring it back to what is on disk */
};

static inline const struct queue_view *engine_queue_moment(const struct engine_queue *q)
{
    return q->moment ? q->moment : &q->view;
}

static inline bool engine_has(const struct engine *e, enum engine_capability capability)
{
    return e->ops->capabilities & capability;
}

enum durability { DURABILITY_FSYNC, DURABILITY_OS, DURABILITY_INTERVAL };

struct engine_options {
    const char *kind;            /* "memory", "local", "postgres" */
    const char *data_dir;        /* local */
    const char *backup_dir;      /* local: where backups are made; NULL or empty: none are */
    const char *postgres;        /* postgres: a connection string as libpq takes them */
    const char *postgres_listen; /* … for notifications alone; NULL or empty: the same */
    int64_t postgres_timeout_ms; /* … how long a group may take; 0: the default */
    enum durability durability;
    int64_t sync_interval_ms; /* DURABILITY_INTERVAL */
    uint64_t memory_limit;    /* bytes of messages to keep in memory; 0: the default */
    struct instant now;       /* when it is opened; zero: the machine's clocks */
    uint64_t disk_reserve;    /* enqueues are refused below this much free space; 0: the default */
    bool asks;                /* the caller asks engine_holds() before each claim */
    /* Called from any thread when engine_poll has something to do. */
    void (*wake)(void *ctx, uint32_t shard);
    void *wake_ctx;
};

/* Opens the store once and hands out one engine per shard, each with the queues that
 * engine_shard_of() gives it. On failure nothing stays open and `error` has a sentence. */
MUST_USE enum status engine_open(const struct engine_options *options, uint32_t shard_count,
                                 struct engine *shards[], struct buf *error);
/* Brings the engine's store up to date, which opening it does too; `report` has a sentence. */
MUST_USE enum status engine_migrate(const struct engine_options *options, struct buf *report);
/* OK also when there is damage. Otherwise nothing was looked at, and `error` has a sentence. */
MUST_USE enum status engine_inspect(const struct engine_options *options,
                                    struct engine_inspection *i, struct buf *error);
void engine_preview(const struct engine_options *options, struct engine_preview *p);
bool engine_known(const char *kind);
void engine_close(struct engine *shards[], uint32_t shard_count); /* nothing in flight */
extern const char *const engine_table_names[ENGINE_TABLE_COUNT];
uint32_t engine_shard_of(const char *queue, size_t len, uint32_t shard_count);
bool durability_parse(const char *text, enum durability *d, int64_t *interval_ms);

void engine_submit(struct engine *e, struct engine_op *op, struct instant now);
void engine_flush(struct engine *e);    /* what was submitted may now be committed */
uint32_t engine_poll(struct engine *e); /* fires done for what is durable; returns how many */
int64_t engine_next_due_ms(struct engine *e, struct instant now); /* ms until a SWEEP; INT64_MAX */

/* Whether such a claim can be answered without waiting for a disk. When not, what is missing is
 * being brought, and a SWEEP will touch the queue when it is time to ask again. With options.asks a
 * claim finds only what is there; a caller that does not ask makes the engine wait instead. */
static inline bool engine_holds(struct engine *e, struct engine_queue *q,
                                const struct claim_question *ask, struct instant now)
{
    return !e->ops->holds || e->ops->holds(e, q, ask, now);
}

/* Whether this process is the one of all that share the store that tells the world about it. At
 * most one does at a time; when it dies, another one does within ENGINE_SPEAKER_MS. Any thread. */
#define ENGINE_SPEAKER_MS 10000
static inline bool engine_speaks(struct engine *e, struct instant now)
{
    return !e->ops->speaks || e->ops->speaks(e, now);
}

struct engine_queue *engine_queue_find(struct engine *e, const char *name, size_t len);
struct engine_queue *engine_queue_each(struct engine *e,
                                       size_t *at); /* at starts at 0; NULL ends */

/* A cursor as clients have it. Whether an engine can have made it only that engine knows. */
#define CURSOR_TEXT_MAX 64
void cursor_format(const struct list_cursor *c, char out[CURSOR_TEXT_MAX]);
bool cursor_parse(const char *text, size_t len, struct list_cursor *c);

/* For engines: every engine file offers one of these, and reports each op through engine_finish. */
typedef enum status engine_opener(const struct engine_options *options, uint32_t shard_count,
                                  struct engine *shards[], struct buf *error);
void engine_finish(struct engine *e, struct engine_op *op);

/* Takes its time, and may be called from any thread, for any shard. BACKUP_UNAVAILABLE,
 * BACKUP_RUNNING (one at a time), INVALID_FIELD for the directory, STORAGE_FULL, DRAINING; each
 * with a sentence. Over before the engine is closed. */
MUST_USE enum status engine_backup(struct engine *e, struct engine_backup *b);
void engine_backup_progress(struct engine *e, struct engine_backup_progress *p);

/* OK, STORAGE_FULL (enqueues are refused, the rest goes on) or ENGINE_UNAVAILABLE, with words. */
enum status engine_health(struct engine *e, struct buf *detail);

#endif
