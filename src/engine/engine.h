/* The engine contract: where messages live. This header and op.h, which has the
 * operations one by one, are enough to write an engine. docs/writing-an-engine.md
 * does so step by step. tests/conformance must not be able to tell any engine from
 * `memory`, but for what a capability allows.
 *
 * Shape. An engine is opened once per process and handed out as one `struct engine` for each
 * shard. A shard is a thread that owns queues. Operations are asynchronous: the caller embeds a
 * `struct engine_op`, submits it, and gets it back through `done`. A client library that blocks is
 * the engine's private trouble: it needs a thread of its own.
 *
 *   submit … submit  flush            poll: done, done, …
 *   └── one group ────────┘           └── when the group is durable
 *
 * Clocks. The caller passes `now`. Leases run on now.mono_ms. Delays, times to live and everything
 * that people see run on now.wall_ms. An engine with the capability SHARED may go by its server's
 * clock instead, and then by that alone; engine.ahead_us says how far that clock is ahead. Times
 * in ops, views and messages are on the engine's clock, and no engine translates them, but for one
 * that is made of others: what it says of all of them together is on now.wall_ms.
 *
 * Order in a queue. Within a level messages stand by (ready_ms, seq). The engine hands out seq,
 * below 2^48, growing in order of application. A message that comes back without a delay keeps
 * both, and so its place and its age. `core/policy.h` says which level is next: the caller makes a
 * plan of that, and the engine carries it out.
 *
 * Threads. Everything is called on the shard's own thread, except engine_health, engine_speaks,
 * engine_cell_each, engine_backup and engine_backup_progress: these may be called from any thread,
 * for any shard, between open and close, several at a time. `wake` may be called from any thread.
 *
 * What Triage guarantees for every op:
 *   1. Names, counts and lengths are within limits.h; times are within ±TIME_MS_MAX.
 *   2. An op is not touched between submit and done; its arrays and strings stay where they are.
 *   3. now.mono_ms never goes back; now.wall_ms may.
 *   4. op->queue is a handle of this shard that has not ended.
 *   5. After each run of submits there is a flush, and after a wake a poll, sooner or later.
 *
 * What the engine guarantees for every op:
 *   1. It takes effect as a whole, at one moment between its submit and its done, and after
 *      everything whose `done` had fired when it was submitted. Items of one op take effect in
 *      order. Over a crash each item is there wholly or not at all.
 *   2. Of ops that are under way at the same time, PUT, ACK, NACK, RELEASE, EXTEND and CLAIM may
 *      change places with each other: a claim may find what was put after it. Every other op keeps
 *      its place in the order of submission, but for the exception that LIVE_VIEW names. LIVE_VIEW
 *      promises more.
 *   3. `done` fires exactly once, from engine_poll, never inside submit. Ops may be done in another
 *      order than they were submitted in. With status OK everything the op did is as durable as
 *      options.durability says.
 *   4. A status other than OK and ENGINE_UNAVAILABLE means that nothing was changed (per item, for
 *      verbs that carry items).
 *   5. ENGINE_UNAVAILABLE means that nobody can tell: after recovery the effect is there wholly or
 *      not at all. An engine that comes back by itself goes on; one that needs a restart sets
 *      engine.failed, and answers every op with ENGINE_UNAVAILABLE from then on.
 *   6. ENGINE_REFUSED is for one op that the store will never take, however often it is asked. The
 *      other ops of its group are done without it.
 *   7. At most one unexpired receipt exists for a message.
 *   8. In a DURABLE engine leases, attempts, order, totals, configurations, places (struct
 *      queue_place) and shares (struct queue_share) survive a restart.
 *   9. Foreign errors stop inside. They become a status, and engine_health() has the words.
 *  10. The cost of an op does not depend on how many messages wait, are scheduled or are leased.
 *
 * What an engine calls. It gets the rules from the core, so that there is one of each:
 *   levels_resolve, levels_adopt_slots, config_adopt_history, config_keeps, config_done_ms,
 *   config_backoff_ms, queue_view_used             configurations, history, backoff (config.h)
 *   policy_turn, policy_spend                      whose turn it is (policy.h)
 *   age_aged, age_late                             for the totals of those names (age.h)
 *   import_key, import_from_slot                   messages from elsewhere (queue.h)
 *   schedule_copy, schedule_inherit, schedule_after schedules (schedule.h)
 *   message_new, message_set_…, message_free       a message to show (message.h)
 *   engine_moved, queue_place_new                  the place of a queue (below), as are the next
 *   share_limit, queue_share_new, …_copy           the share of a queue (core/share.h)
 *   engine_finish                                  an op is done
 * An engine that keeps its queues in this process takes core/queue.h as a whole, through
 * resident.h: then every verb but QUEUE_SET and QUEUE_DELETE is there already. (QUEUE_OPEN is for
 * SHARED engines, which cannot be of that sort.) */
#ifndef TRIAGE_ENGINE_ENGINE_H
#define TRIAGE_ENGINE_ENGINE_H

#include "base/buf.h"
#include "base/durations.h"
#include "engine/op.h"

#include <stdatomic.h>

struct engine;
struct engine_kind;

/* Which part of a larger queue this queue is. A caller that spreads a queue over several stores
 * keeps it in each of them, so that a store refuses messages that were sent by an old map. */
struct queue_place {
    uint64_t epoch; /* grows with each change */
    bool closed;    /* no new messages come in; what is there is claimed, moved and settled */
    uint32_t map_len;
    char map[]; /* text of the caller's, which the engine keeps and does not read */
};

/* How much of the limits of a larger queue this queue may use. A caller that spreads a queue over
 * several stores divides its limits among them, and each store keeps to its share. */
struct queue_share {
    uint64_t epoch; /* grows by one with each change; the share of a new part has the epoch 1 */
    uint64_t most[SHARE_COUNT]; /* by limit (core/share.h), 0 to SHARE_WHOLE */
    uint32_t note_len;
    char note[]; /* text of the caller's, which the engine keeps and does not read */
};

/* A queue as the layer above sees it: the head of each engine's own struct. The caller reads it,
 * and writes only the last two fields. The handle begins with the QUEUE_SET or QUEUE_OPEN that gave
 * it out, with `touched`, or at open. It ends when the `done` of its QUEUE_DELETE returns, or, with
 * `gone`, as engine_touched says. */
struct engine_queue {
    char name[QUEUE_NAME_MAX + 1];
    uint32_t id; /* never used again in this store, not even after a delete */
    struct queue_config config;
    uint32_t version; /* of config: every change makes it another one */
    bool gone;        /* SHARED: another process deleted it */
    /* Owned by the engine, and there until the next call of this shard; NULL: none was ever set,
     * and the queue stands alone. */
    const struct queue_place *place;
    /* What plans are made by. See LIVE_VIEW for how fresh it is. In a lane head_ms means something
     * only while `ready` is above 0; head_seq may be 0 then, which means that it is not known. */
    struct queue_view view;
    /* The view that people are shown: all its numbers are of one moment, so they add up. NULL: take
     * `view`. */
    const struct queue_view *moment;
    uint32_t moments;   /* another number for each new *moment; 0 where there is none */
    uint64_t next_seq;  /* larger than every seq that was handed out, as far as is known here */
    uint32_t schedules; /* how many it has; without LIVE_VIEW not known, and 0 */
    uint32_t waiting;   /* the caller's: how many consumers wait for something to be ready */
    void *user;         /* the caller's */
};

static inline const struct queue_view *engine_queue_moment(const struct engine_queue *q)
{
    return q->moment ? q->moment : &q->view;
}

/* What an engine may do differently. The layers above ask for these, and never for a name. */
enum engine_capability {
    /* What was answered with OK survives a restart. Without it everything is gone at close. */
    ENGINE_DURABLE = 1 << 0,
    /* Ops take effect inside submit, in order of submission, and are done in that order; when one
     * is done, everything submitted before it is as durable as it is. The view is exact at every
     * moment between two calls, and so is q->schedules; but the head of a lane may be an older one
     * until engine_holds() was true.
     *
     * One exception, with options.asks: an op that needs something of a store that lags behind, or
     * that has to be read from a disk, may be put off, and with it every later op of its queue but
     * QUEUE_DELETE. They take effect in engine_poll, in order of submission, and engine_holds() is
     * false for the queue until then; a SWEEP shows it to `touched` afterwards. What a SWEEP does
     * to a queue may be put off in the same way, after the SWEEP itself is done. A QUEUE_DELETE
     * takes effect inside submit: of what was put off, the ops that need the store are answered
     * with QUEUE_NOT_FOUND, the others take effect first, and with remove.if_empty the answer may
     * be QUEUE_NOT_EMPTY.
     *
     * Without LIVE_VIEW the view is what the answers so far say, less the messages that claims
     * under way may take. Its heads may be older than its counts, and a claim may find more or less
     * than it shows. So plans are made without a view, and the engine keeps the in-flight limits
     * itself. An ENGINE_COUNT brings the view up to date. */
    ENGINE_LIVE_VIEW = 1 << 1,
    /* Other processes change the same queues. Queues come and go (QUEUE_OPEN, `touched`, `gone`),
     * configurations change under ops (op.outdated), and one of the processes speaks for all
     * (engine_speaks). Clocks are the store's. Without LIVE_VIEW. */
    ENGINE_SHARED = 1 << 2,
    /* A queue is made of partitions in several cells: engine_partition_each() and the verb
     * PLACEMENT. */
    ENGINE_PARTITIONED = 1 << 3,
    /* Keeps forward_to of a configuration, and answers PUT of a queue that has it as
     * queue_put_elsewhere() does. Without it no queue moves away from this engine. */
    ENGINE_MOVES = 1 << 4,
};

/* What an engine is told when it is opened. */

/* A setting of one engine, declared in its kind. From this table come the key in triage.conf, the
 * flag, the variable in the environment, the line in --help, and the check of what is given. */
struct engine_setting {
    const char *name; /* "memory_limit": no other setting has it */
    enum engine_setting_type {
        ENGINE_TEXT,
        ENGINE_NUMBER, /* up to UINT32_MAX */
        ENGINE_BYTES,  /* 64K, 128M, 1G, 2T */
        ENGINE_LINES,  /* may be given several times: a text with a line for each */
    } type;
    uint64_t min, max; /* the range of a number, both 0 for any; the longest text */
    const char *value; /* the default, as it would be written */
    const char *takes; /* "DIR": what --help calls it */
    const char *help;
    /* ENGINE_LINES, or NULL: the section of triage.conf in which NAME = VALUE means NAME=VALUE. */
    const char *section;
    /* Not NULL: this is logged when the setting is given and another engine runs, because whoever
     * gives it means this engine. */
    const char *unused;
};

/* The value that was given for a setting. */
struct engine_value {
    const char *name;
    const char *text;
    uint64_t number;
};

/* When an op may be answered: when it is on the disk (FSYNC), or when the kernel has it, with a
 * sync by the kernel's choice (OS) or every sync_interval_ms (INTERVAL). */
enum durability { DURABILITY_FSYNC, DURABILITY_OS, DURABILITY_INTERVAL };
bool durability_parse(const char *text, enum durability *d, int64_t *interval_ms);

/* Asks for a poll of this shard, and for another look at next_due_ms. Any thread may call it, also
 * the shard's own; but not while it holds a lock that a callback of the engine needs. Calling it
 * too often does no harm. Not before the first submit or next_due_ms of that shard, and not after
 * close has returned. */
typedef void engine_wake(void *ctx, uint32_t shard);

struct engine_options {
    const char *kind;                  /* a name: engine_kind_find() */
    const struct engine_value *values; /* of the settings that its kind declares */
    uint32_t value_count;
    enum durability durability;
    int64_t sync_interval_ms; /* DURABILITY_INTERVAL */
    struct instant now;       /* when it is opened; zero: the machine's clocks */
    bool asks;                /* the caller asks engine_holds() before each claim */
    bool trace;               /* every op is logged: trace.h */
    engine_wake *wake;
    void *wake_ctx;
};

/* For engines. A setting that was not given is "" or 0, which an engine takes for its default. */
const char *engine_option_text(const struct engine_options *o, const char *name);
uint64_t engine_option_number(const struct engine_options *o, const char *name);

/* What an engine counts. */

/* A counter of one engine, declared in its kind. /metrics has it as triage_engine_NAME, or as
 * triage_NAME. */
struct engine_counter {
    const char *name; /* "refills_total" */
    bool bare;        /* triage_NAME */
    /* A histogram has the places of a struct durations on the scale duration_works, and no label.
     */
    enum engine_counter_type { ENGINE_COUNTER, ENGINE_GAUGE, ENGINE_HISTOGRAM } type;
    enum engine_counter_unit {
        ENGINE_PLAIN,
        ENGINE_MILLI,
        ENGINE_MICRO,
        ENGINE_MICRO_SIGNED, /* an int64_t in the place of the uint64_t */
    } unit;                  /* in which the engine counts; /metrics shows whole units */
    const char *help;
    bool of_store; /* the same on every server that shares the store */
    /* Not NULL: a value for each of these, which /metrics shows with the label. */
    const char *label;
    /* Each NULL has a place and no value. An open engine may have other labels than its kind in the
     * registry, but as many. */
    const char *const *labels;
    uint32_t label_count;
    const char *after; /* the name of another counter: no samples while that is 0; or NULL */
};

#define ENGINE_OWN_MAX          480
#define ENGINE_HISTOGRAM_PLACES (1 + DURATION_BUCKETS)

/* How many places in engine_counters.own the counter takes. */
static inline uint32_t engine_counter_places(const struct engine_counter *c)
{
    return c->type == ENGINE_HISTOGRAM ? ENGINE_HISTOGRAM_PLACES : c->label ? c->label_count : 1;
}

/* Each shard counts for itself, and the layer above adds up; what belongs to the process is counted
 * by the first shard alone. An engine brings its part up to date in poll at the latest. */
struct engine_counters {
    uint64_t ops[ENGINE_VERB_COUNT]; /* engine_submit counts */
    uint64_t groups;                 /* commits; 0 where there are none, as the next two */
    uint64_t group_ops;              /* ops in them */
    uint64_t commit_us;              /* time spent committing */
    struct durations commits;        /* the same, commit by commit: duration_works */
    /* The counters that its kind declares, in that order; each has engine_counter_places(). */
    uint64_t own[ENGINE_OWN_MAX];
};

#define BACKUP_PATH_MAX 1024

/* A backup: see engine_backup_fn. */
struct engine_backup {
    /* Set by the caller. */
    const char *directory;     /* a name in the folder of backups, or the path of one */
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

/* A look at a store that no server has open. It changes nothing. Damaged parts are reported and
 * passed over. */
struct engine_inspection {
    /* Set by the caller; each may be NULL. */
    void (*damage)(void *ctx, const char *sentence); /* with file and offset, or the key */
    /* `queue` is called for every queue, `message` for every message that is not finished, with its
     * body. A queue comes before its messages, which come in several runs. A queue whose name
     * cannot be read has an empty name and no levels. Where a part is damaged, deleted messages may
     * appear again. */
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

/* The callbacks. One typedef for each, with what Triage guarantees when it calls and what the
 * engine guarantees when it returns. Those marked optional may be NULL. */

/* Takes an op over.
 * Triage:
 *   - engine_submit() has asserted, counted and cleared what op.h says
 *   - also from inside `done`, and so from inside engine_poll
 * Engine:
 *   - waits for no network. It should not wait for a disk either, because all of the shard waits
 *     with it; with options.asks a CLAIM never does
 *   - never calls op->done; may call its other callbacks
 *   - LIVE_VIEW: the op has taken effect when it returns, unless it was put off (see there) */
typedef void engine_submit_fn(struct engine *e, struct engine_op *op, struct instant now);

/* What was submitted may now be made durable: it is worth a commit.
 * Triage:
 *   - once for each turn of the loop, also when nothing was submitted
 * Engine:
 *   - returns without waiting
 *   - may keep the group open to gather more: then it sends it by itself, or in a poll after a
 *     wake */
typedef void engine_flush_fn(struct engine *e);

/* Reports what is done.
 * Triage:
 *   - at any time, also without a wake; never from inside itself
 * Engine:
 *   - calls engine_finish() for each op that is done, and returns for how many it did
 *   - returns without waiting; when ops are under way and nothing more will be reported by calling
 *     again at once, a wake will come
 *   - `reading`, `failed` and the counters are brought up to date here at the latest */
typedef uint32_t engine_poll_fn(struct engine *e);

/* When time has something to do: milliseconds until a SWEEP is due, 0 for now, INT64_MAX for never.
 * Triage:
 *   - any number of times in a turn. After 0 it submits a SWEEP, unless one is under way, the
 *     server drains, or the engine failed
 *   - submits no SWEEP without it, but after one that said `more`, and for sweep.look
 * Engine:
 *   - may have effects: it is the moment to take news from other threads, and to note that the next
 *     SWEEP has work to do
 *   - when the answer becomes smaller without a call of this shard, a wake comes */
typedef int64_t engine_next_due_fn(struct engine *e, struct instant now);

/* Whether a claim like this can be answered without waiting for a disk. Optional; without it the
 * answer is always true.
 * Triage:
 *   - only with options.asks, before each CLAIM of the queue
 * Engine:
 *   - false: the engine is reading what is missing. `reading` is above 0 until that is in memory;
 *     then a wake comes, and a SWEEP will show the queue to `touched`
 *   - with options.asks a CLAIM finds only messages that are in memory, and does not wait */
typedef bool engine_holds_fn(struct engine *e, struct engine_queue *q,
                             const struct claim_question *ask, struct instant now);

/* The handle of a queue that this shard knows, or NULL.
 * Engine:
 *   - LIVE_VIEW: from the QUEUE_SET that makes it to the QUEUE_DELETE that takes it, inside submit
 *   - others: from done to done; SHARED: a queue that others made may be missing (QUEUE_OPEN) */
typedef struct engine_queue *engine_queue_find_fn(struct engine *e, const char *name, size_t len);

/* All of them, in no order: *at starts at 0 and is the engine's; NULL ends.
 * Triage:
 *   - no other call on this shard until the end */
typedef struct engine_queue *engine_queue_each_fn(struct engine *e, size_t *at);

/* Whether this process is the one that sends the alerts of the store. Optional; without it the
 * answer is always true. Any thread.
 * Engine:
 *   - true in at most one process on the store at a time; when that dies, in another one within
 *     ENGINE_SPEAKER_MS */
typedef bool engine_speaks_fn(struct engine *e, struct instant now);
#define ENGINE_SPEAKER_MS 10000

/* How the store is. Any thread.
 * Engine:
 *   - OK; STORAGE_FULL: enqueues are refused, the rest goes on; ENGINE_UNAVAILABLE: ops fail
 *   - puts words for people into detail, without secrets
 *   - returns soon: it may look at a disk, and waits for no network */
typedef enum status engine_health_fn(struct engine *e, struct buf *detail);

/* A store of an engine that is made of several. */
struct engine_cell {
    const char *name;
    uint32_t number;    /* the `partition` of what was put there */
    const char *engine; /* the name of its kind */
    const char *state;  /* a constant: "ok", or "away" while it does not answer */
    /* A constant: "open"; "draining", "removed": new queues have nothing there. */
    const char *placement;
    int64_t ahead_us;  /* see struct engine */
    struct buf detail; /* words for people as in engine_health; the engine's to free */
    /* A constant: whether partitions there are about to give a share away of their own accord.
     * NULL: the engine does not do that. */
    const char *split;
    struct buf split_detail; /* words for people; the engine's to free */
};

/* Shows the stores that the engine is made of. Optional; without it there is one, which has no
 * name. Any thread.
 * Engine:
 *   - in order of their numbers; what is shown is borrowed for the call
 *   - returns soon, as engine_health */
typedef void engine_cell_visit(void *ctx, const struct engine_cell *c);
typedef void engine_cell_each_fn(struct engine *e, engine_cell_visit *visit, void *ctx);

/* A part of a queue, in one store. */
struct engine_partition {
    uint32_t number;
    const char *cell;              /* a name, or NULL: the store has none */
    const char *state;             /* as of a cell */
    const struct queue_view *view; /* of one moment; times are on now.wall_ms */
    const char *placement;         /* "open", "draining"; NULL: the engine has no placements */
    uint32_t buckets;              /* of dedup keys; of 256 */
    const char *levels;            /* that it wants, each ended by a newline; NULL: it names none */
};

/* Shows the partitions of a queue. Optional; without it there is one, with the number 0 and all
 * that engine_queue_moment() has.
 * Engine:
 *   - in order of their numbers; together they are what engine_queue_moment() has */
typedef void engine_partition_visit(void *ctx, const struct engine_partition *p);
typedef void engine_partition_each_fn(struct engine *e, struct engine_queue *q,
                                      engine_partition_visit *visit, void *ctx);

/* Makes a consistent copy of the store while it serves. Optional; without it there are no backups.
 * Any thread; takes its time.
 * Triage:
 *   - b->directory and b->cancel are set; it is over before the engine is closed
 * Engine:
 *   - the copy appears under its name when it is whole and on the disk. Until then, and after a
 *     failure, there is nothing of that name
 *   - BACKUP_UNAVAILABLE, BACKUP_RUNNING (one at a time), INVALID_FIELD for the directory,
 *     STORAGE_FULL, DRAINING when cancelled; each with a sentence in b->error */
typedef enum status engine_backup_fn(struct engine *e, struct engine_backup *b);
typedef void engine_backup_progress_fn(struct engine *e, struct engine_backup_progress *p);

/* Asserts what the engine relies on, for tests: as much of it as can be walked through. Optional.
 */
typedef void engine_check_fn(struct engine *e);

/* Wrappers only (wrap.h): the inner engine has finished op. */
typedef void engine_finished_fn(struct engine *e, struct engine_op *op);

/* Ends all shards of an open engine.
 * Triage:
 *   - on one thread, when no other uses any shard; nothing is in flight or being read
 * Engine:
 *   - everything is freed, every thread is gone; no wake comes after it has returned */
typedef void engine_close_fn(struct engine *shards[], uint32_t shard_count);

struct engine_ops {
    engine_submit_fn *submit;
    engine_flush_fn *flush;
    engine_poll_fn *poll;
    engine_next_due_fn *next_due_ms;
    engine_holds_fn *holds; /* optional */
    engine_queue_find_fn *queue_find;
    engine_queue_each_fn *queue_each;
    engine_speaks_fn *speaks; /* optional */
    engine_health_fn *health;
    engine_cell_each_fn *cell_each; /* optional, as the next */
    engine_partition_each_fn *partition_each;
    engine_backup_fn *backup; /* optional, as the next */
    engine_backup_progress_fn *backup_progress;
    engine_check_fn *check;       /* optional */
    engine_finished_fn *finished; /* wrappers only */
    engine_close_fn *close;
};

/* First member of each engine's struct. What is in it changes only inside a call on the shard's
 * thread. */
struct engine {
    const struct engine_ops *ops;
    const struct engine_kind *kind;
    struct engine *outer; /* the wrapper around it, or NULL */
    struct engine_counters counters;
    uint64_t in_flight; /* submitted and not done: engine_submit and engine_finish count */
    uint32_t reading;   /* reads under way, for engine_holds or a sweep; each will wake the shard */
    bool failed;        /* for good: only a restart can bring it back to what is on disk */
    /* SHARED: by how many microseconds the store's clock is ahead of now.wall_ms, as far as the
     * answers tell; below 0: it is behind. 0: it is the same clock, or nothing is known yet. */
    int64_t ahead_us;
};

/* Kinds */

/* Opens the store once and hands out one engine per shard, each with the queues that
 * engine_shard_of() gives it.
 * Triage:
 *   - `options` and what it points to stay until close
 * Engine:
 *   - when this returns, the queues of a DURABLE engine can be found (queue_find) and claimed from.
 *     A SHARED engine whose store is away may open without them: sweeps show them when it is back
 *   - on failure nothing stays open, and `error` has a sentence */
typedef enum status engine_open_fn(const struct engine_options *options, uint32_t shard_count,
                                   struct engine *shards[], struct buf *error);

/* Brings the store's format up to date. Opening it does that too. `report` has a sentence. */
typedef enum status engine_migrate_fn(const struct engine_options *options, struct buf *report);

/* Looks at a store that no server has open. The status is OK also when there is damage. With
 * another status nothing was looked at, and `error` has a sentence. */
typedef enum status engine_inspect_fn(const char *path, struct engine_inspection *i,
                                      struct buf *error);
typedef void engine_preview_fn(const struct engine_options *options, struct engine_preview *p);

/* An engine as a whole: what registry.c lists. */
struct engine_kind {
    const char *name;
    uint32_t capabilities; /* a set of enum engine_capability; an open engine may have fewer */
    engine_open_fn *open;
    engine_migrate_fn *migrate; /* optional, as the next two */
    engine_inspect_fn *inspect;
    engine_preview_fn *preview;
    const struct engine_setting *settings;
    uint32_t setting_count;
    const struct engine_counter *counters;
    uint32_t counter_count;
    const char *store;     /* the setting that names its store, in a cell too; NULL: it has none */
    const char *place;     /* the setting that says where the data is, for the log; or NULL */
    const char *no_backup; /* what to do instead, where there is no backup: half a sentence */
};

const struct engine_kind *engine_kind_at(size_t i); /* NULL behind the last */
const struct engine_kind *engine_kind_find(const char *name);
void engine_kind_names(struct buf *out, const char *between); /* of all */
/* Adds a kind to those of registry.c, for tests, before any engine is opened. `kind` must stay. */
void engine_kind_add(const struct engine_kind *kind);

static inline bool engine_has(const struct engine *e, enum engine_capability capability)
{
    return e->kind->capabilities & capability;
}

MUST_USE enum status engine_open(const struct engine_options *options, uint32_t shard_count,
                                 struct engine *shards[], struct buf *error);
MUST_USE enum status engine_migrate(const struct engine_options *options, struct buf *report);
MUST_USE enum status engine_inspect(const char *path, struct engine_inspection *i,
                                    struct buf *error); /* with the first kind that can */
void engine_preview(const struct engine_options *options, struct engine_preview *p);
void engine_close(struct engine *shards[], uint32_t shard_count); /* nothing in flight */

uint32_t engine_shard_of(const char *queue, size_t len, uint32_t shard_count);

/* For callers: these functions call the callbacks of the same names, and assert and count. */
void engine_submit(struct engine *e, struct engine_op *op, struct instant now);
void engine_flush(struct engine *e);
uint32_t engine_poll(struct engine *e);
int64_t engine_next_due_ms(struct engine *e, struct instant now);

static inline bool engine_holds(struct engine *e, struct engine_queue *q,
                                const struct claim_question *ask, struct instant now)
{
    return !e->ops->holds || e->ops->holds(e, q, ask, now);
}

static inline bool engine_speaks(struct engine *e, struct instant now)
{
    return !e->ops->speaks || e->ops->speaks(e, now);
}

struct engine_queue *engine_queue_find(struct engine *e, const char *name, size_t len);
struct engine_queue *engine_queue_each(struct engine *e, size_t *at);

MUST_USE enum status engine_backup(struct engine *e, struct engine_backup *b);
void engine_backup_progress(struct engine *e, struct engine_backup_progress *p);
void engine_check(struct engine *e);
enum status engine_health(struct engine *e, struct buf *detail);
void engine_cell_each(struct engine *e, engine_cell_visit *visit, void *ctx);
void engine_partition_each(struct engine *e, struct engine_queue *q, engine_partition_visit *visit,
                           void *ctx);

/* For engines: the id of a queue that is being made, as op->set asks for. *next is the smallest
 * that was never used; it is shared by all shards of the store. */
uint32_t engine_queue_id(atomic_uint *next, const struct engine_op *op);

/* For engines: whether the place of its queue refuses this PUT or IMPORT, which is MOVED then. */
bool engine_place_refuses(const struct queue_place *place, const struct engine_op *op);
static inline bool engine_moved(const struct engine_op *op)
{
    return op->queue->place && engine_place_refuses(op->queue->place, op);
}
/* … and whether it keeps the messages of this LEAVE, which is MOVED then. */
bool engine_stays(const struct engine_op *op);
static inline bool engine_only_known(const struct engine_op *op)
{
    return op->verb == ENGINE_PUT && op->put.items[0].only_known;
}
/* To be freed with free(). */
struct queue_place *queue_place_new(uint64_t epoch, bool closed, const char *map, uint32_t map_len);
/* The share of a part that is being made: nothing of any limit. To be freed with free(), as the
 * copy. */
struct queue_share *queue_share_new(void);
struct queue_share *queue_share_copy(const struct queue_share *share); /* of NULL: NULL */

/* For engines: reports an op as done, from inside poll. The op is the caller's again, and may be
 * gone when this returns. */
void engine_finish(struct engine *e, struct engine_op *op);

#endif
