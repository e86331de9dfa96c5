/* Private to engine/local: what its files share.
 *
 *   local.c    the engine: queues come and go; submit, flush, poll
 *   journal.c  what is written for each move of a message; the open group
 *   tail.c     messages that are only in the store, on their way there and back
 *   fetch.c    reads of tails by the reader: for claims, delays and times to live
 *   guest.c    messages that are in memory for the time of one op
 *   hold.c     ops that wait until the store has what memory has done, or for what they read
 *   look.c     what an op reads of the store, in hand before it takes effect
 *   walk.c     verbs that walk the store: list, purge, times to live
 *   recover.c  from the store to queues in memory, at start
 *   commit.c   the thread that makes groups durable
 *   reader.c   the thread that reads tails
 *   backup.c   copies of the directory while it serves
 *   store.c    RocksDB: opening and reading; store_write.c writes, through the log;
 *              store_copy.c copies it
 *   wal.c      the write-ahead log, of frame.c's frames; wal_scan.c reads it at start;
 *              wal_copy.c copies it
 *   inspect.c  finds what of a directory is damaged, and what is left; remains.c reads the
 *              directory, manifest.c, table.c and batch.c the files that RocksDB wrote
 *   secret.c   what the frames are sealed with
 *   terms.c    for how long queues keep done messages, for RocksDB's own threads
 *   peak.c     which messages were ready before the clock was set back
 *   record.c   bytes: of messages; record_queue.c of queues, record_schedule.c of schedules,
 *              key.c of keys
 *
 * A message's record is written once, when it is put, and deleted once. The record is hot
 * when the message stays in memory from then on, and cold when it joined a tail. A
 * message that was delivered, escalated or redriven is `touched`: it has a small state
 * record, and is always in memory (perhaps without its body). So a message that is only
 * in the store is cold, untouched, and scheduled or ready; or dead; or history.
 *
 * The store lags behind memory by the groups under way. Three rules follow. (A refill is
 * a read of the next messages of a tail into memory.)
 *   1. A message that joins a tail stays in limbo, in memory, until its group is
 *      committed; a refill looks there too.
 *   2. A refill never looks before the lane's bound, where records may be about to be
 *      deleted. Where a record behind the bound was deleted, the refill waits for that
 *      group first.
 *   3. Every other read of a queue's cold records waits until the groups with cold
 *      records of that queue are committed: the op is parked, and the queue held (hold.c).
 *      Then the reader reads what the op needs, while the queue is still held (look.c).
 *
 * When the caller asks before it claims (engine_holds), the reader reads what claims, delays and
 * times to live need, and a sweep merges it into memory (fetch.c). Rule 3 is then left for calls
 * that name a message or ask for a page, and for sweeps; no loop waits for a commit or for a disk.
 * A caller that does not ask has no reader, and waits in all of these places (journal_wait).
 *
 * The core reports what its verbs did; journal.c writes that down before anything else is asked of
 * the store. So a group that is closed early has the records and the counters of one moment. */
#ifndef TRIAGE_ENGINE_LOCAL_IMPL_H
#define TRIAGE_ENGINE_LOCAL_IMPL_H

#include "engine/local/backup.h"
#include "engine/local/commit.h"
#include "engine/local/reader.h"
#include "engine/local/record.h"
#include "engine/local/store.h"
#include "engine/resident.h"

#include <stdatomic.h>

/* The counters that local_kind declares. */
enum { LOCAL_REFILLS = RESIDENT_BYTES + 1, LOCAL_DISK_FREE, LOCAL_LOOP_READS, LOCAL_LOG_WRITES };

struct local_shared {
    struct store *store;
    struct commit *commit;
    struct backups *backups;
    struct reader *reader; /* NULL: the caller does not ask before it claims, and waits for reads */
    atomic_uint next_queue_id;
    uint32_t shard_count;
    uint64_t memory_limit; /* per shard */
    uint32_t window;       /* messages that a lane may always keep in memory */
    uint64_t boot;
    char damage[512]; /* a sentence on the first damage that was met while recovering, or empty */
};

struct limbo {
    struct message *message; /* owned; NULL once it was taken back to memory */
    uint64_t group;
};

/* A read of a tail under way, and what happened to the tail since it was asked for. */
struct fetch {
    struct read_job job;    /* first */
    struct local_queue *lq; /* NULL: the queue is gone */
    struct fetch *next;     /* of the queue */
    struct place bound;     /* LANE: the bound when it was asked for */
    int64_t clock_ms;       /* DUE: the tail's clock */
    /* What was done since. */
    int64_t cut_ms; /* LANE, DUE: the first place at which something was put; INT64_MAX: none */
    uint64_t cut_seq;
    struct expiry_mark low; /* EXPIRED: the first mark that was put */
    struct seqmap gone;     /* deleted messages by seq */
};

/* A part of the store in order, for an op that walks there. */
struct look_page {
    bool there;  /* it was begun */
    bool wanted; /* more of it has to be read before the op takes effect */
    bool end;    /* nothing is behind it */
    struct key prefix, start;
    struct key next;           /* where it is read on */
    struct read_record *first; /* owned */
    uint32_t count, want;
    size_t bytes;
};

/* What the next op of the queue will read (look.c). */
struct looks {
    struct map known;            /* struct read_record by key */
    struct read_record *records; /* all in it; owned */
    struct read_record *asked;   /* those that only the disk has; owned */
    struct look_page page;
    struct look *under_way; /* the reader has it; or NULL */
    bool drafts;            /* every dedup key of the op's drafts that was found is known */
    bool resumed;           /* a LIST that has shown what is in memory goes on in the tail */
    uint32_t portion;       /* PURGE: so many of the messages in memory may end now */
};

/* A dedup key whose change is under way. */
struct dedup_pending {
    uint64_t group;
    uint64_t seq;
    bool dropped;
    uint32_t key_len;
    char *key;
};

/* Messages of a lane that are in memory, cold and untouched. After a restart they are in the tail
 * again. */
struct cold_count {
    uint64_t ready, scheduled;
};

struct local_queue {
    struct local *local;
    struct resident_queue *rq;
    bool pending; /* in the list of queues with something under way */
    struct local_queue *next_pending;
    bool changed;                            /* its counters are to be written */
    uint64_t cold_bytes;                     /* of all cold, untouched messages */
    struct cold_count cold[LEVEL_COUNT_MAX]; /* by slot */
    uint64_t cold_here;                      /* the sum of all in cold[] */
    struct peaks peaks;
    /* First in, first out; entries before `*_first` are gone. */
    struct limbo *limbo;
    uint32_t limbo_first, limbo_count, limbo_cap;
    struct dedup_pending *dedup;
    uint32_t dedup_first, dedup_count, dedup_cap;
    uint64_t cold_group; /* the last group with cold records of this queue */
    /* hold.c */
    struct engine_op *parked, *parked_last; /* in order; none while it is not held */
    uint64_t hold_group;                    /* held until this one is committed */
    uint32_t sweep_max; /* held for a sweep of so many messages, before what is parked; 0: not */
    bool listed;        /* in local.held */
    struct local_queue *next_held;
    struct looks looks;
    struct fetch *fetches;
    int64_t expiry_due_ms;          /* when the index of times to live is to be read; INT64_MAX */
    struct expiry_mark expiry_from; /* before it no message of a tail is in the index */
    uint32_t counting;  /* without a reader: slots of lanes whose count of a tail stopped early */
    uint64_t dead_from; /* no dead letter in the store has a smaller seq */
    /* Sequence numbers of the messages that are in memory for the present op alone. */
    uint64_t *guests;
    uint32_t guest_count, guest_cap;
    /* Messages that ended in the present op, which may name them again; owned. */
    struct message **ended;
    uint32_t ended_count, ended_cap;
};

struct cold_put {
    struct message_id id;
    size_t offset, len; /* in cold_values */
};

struct local {
    struct resident r; /* first */
    struct local_shared *shared;
    uint32_t shard;
    struct instant now; /* of the present op */
    /* The queue of the present op. If the group is closed in the middle of the op, the counters of
     * what the op did so far go into that group, and those of the rest into the next. */
    struct resident_queue *present;
    uint64_t ready_before; /* ready messages of the queue before a sweep */
    struct group *open;    /* being filled */
    struct group *spare;   /* reported groups, to be used again with the memory of their batches */
    struct local_queue *pending;
    uint64_t submitted;         /* number of the last group handed to the commit thread */
    uint64_t finished;          /* … and of the last one taken back */
    uint64_t cold_group;        /* the last group with cold records */
    uint64_t refill_group;      /* the last group that a refill must wait for */
    struct cold_put *cold_puts; /* of the open group, written sorted: cheaper for a skip list */
    uint32_t cold_count, cold_cap;
    struct buf cold_values;
    struct buf scratch;
    bool synced;              /* the store had all cold records of `present` when its op began */
    bool repeats;             /* the present op may name a message twice */
    size_t sweep_bytes;       /* of bodies that the present sweep writes or reads */
    struct local_queue *held; /* queues that are, or were since the last sweep */
    struct read_job *asked;   /* to be handed to the reader with the open group */
    struct read_job *fetched; /* back from it, to be merged by the next sweep */
};

/* journal.c */
struct group *journal_group(struct local *l); /* the open one, made when missing */
struct store_batch *journal_batch(struct local *l);
void journal_recycle(struct local *l, struct group *g); /* it was reported */
void journal_write_cold(struct local *l); /* the cold puts that were gathered, sorted */
void journal_close(struct local *l);      /* hands the open group to the commit thread */
void journal_committed(struct local *l, uint64_t group); /* the groups up to this one are */
void journal_report(struct resident_queue *rq);          /* writes down what the core did */
bool journal_find_key(struct resident_queue *rq, const char *key, size_t len,
                      struct dedup_hit *hit);
void journal_keys_free(struct local_queue *lq, uint64_t group);
void journal_unpend(struct local_queue *lq);
struct local_queue *local_queue_of(struct queue *q);
struct local *local_behind(struct queue *q);
struct message_id local_id(const struct queue *q, const struct message *m);
void journal_pend(struct local_queue *lq);
void journal_delete_hot(struct local *l, struct queue *q, const struct message *m);
void journal_put_cold(struct local *l, struct queue *q, const struct message *m);
void journal_expiry_put(struct local_queue *lq, const struct message *m); /* it is in a tail */
void journal_wait(struct local *l, uint64_t up_to); /* waits until that group is committed */
void journal_schedule(struct resident_queue *rq, const char *name, const struct schedule *s);
void journal_place(struct resident_queue *rq);
void journal_await_cold(struct local_queue *lq); /* waits until the queue's cold records are */
void journal_damage(struct local *l, const char *what);
void journal_damage_of(struct queue *q, uint64_t seq, const char *what); /* damage of a message */

/* local.c */
struct local_queue *local_queue_new(struct local *l, const char *name, uint32_t id,
                                    const struct queue_config *config);

/* tail.c */
void tail_count_cold(struct local_queue *lq, uint8_t slot, enum message_state state, int by);
static inline bool tail_has_cold(const struct local_queue *lq, uint8_t slot)
{
    return lane_has_tail(&lq->rq->core.lanes[slot]) ||
           lq->cold[slot].ready + lq->cold[slot].scheduled > 0;
}
static inline bool tail_is_cold(const struct message *m) /* cold and untouched */
{
    return m->home == HOME_COLD && !m->touched;
}
/* The time up to which a cold message counts as ready: now, or the clock of its lane's tail if that
 * is later. */
int64_t tail_ready_ms(const struct queue *q, uint8_t slot, struct instant now);
void tail_limbo_add(struct local_queue *lq, struct message *m);
void tail_limbo_free(struct local_queue *lq, uint64_t group);
void tail_spill(struct queue *q, uint8_t slot);
bool tail_bring_head(struct resident_queue *rq, uint8_t slot, struct instant now);
void tail_top_up(struct resident_queue *rq, struct instant now); /* every lane knows its head */
void tail_count_on(struct local_queue *lq); /* goes on with counts that stopped early */
/* Brings a message of a tail into memory; false: it is not there. */
bool tail_bring(struct queue *q, const struct message_id *id);
char *tail_read_body(struct queue *q, const struct message *m);
void tail_bring_body(struct resident_queue *rq, struct message *m);
/* Takes a message into memory that was read from the store. False: it cannot belong where it was
 * found. That is damage, and m is freed. */
bool tail_take_in(struct queue *q, struct message *m, struct instant now);
bool tail_in_memory(struct queue *q, uint64_t seq);
/* The key and the message at which a walk through cold messages stands; the message is the
 * caller's. False or NULL: it does not decode, which is damage. */
bool tail_record_id(struct queue *q, const struct read_record *r, struct message_id *id);
struct message *tail_record_message(struct queue *q, const struct read_record *r,
                                    const struct message_id *id);

struct message_id tail_place_after(const struct queue *q, uint8_t slot, int64_t ready_ms,
                                   uint64_t seq); /* the place right behind */
/* Takes messages back from limbo that are within the lane's bound by now. */
void tail_from_limbo(struct queue *q, uint8_t slot, struct instant now);

/* fetch.c */
/* These ask the reader, unless such a read is under way already: for the next messages of a tail,
 * for the count of those that became ready in it, for the bodies of the messages that a claim would
 * take first, for messages whose time to live is over. */
void fetch_lane(struct local_queue *lq, uint8_t slot);
void fetch_due(struct local_queue *lq, uint8_t slot);
void fetch_bodies(struct local_queue *lq, uint8_t slot);
void fetch_expired(struct local_queue *lq, uint32_t max, struct instant now);
void fetch_send(struct local *l); /* hands the jobs to the reader; the open group was closed */
void fetch_take(struct local *l); /* takes the finished jobs back */
void fetch_merge(struct local *l, struct engine_op *sweep, struct instant now);
bool fetch_lane_now(struct local_queue *lq, uint8_t slot, struct instant now); /* waits */
void fetch_due_now(struct local_queue *lq, uint8_t slot);
void fetch_expired_now(struct local_queue *lq, uint32_t max, struct instant now);
/* These tell the reads under way what has changed: the bound of a lane went back; a message was put
 * at this place of a tail; a mark was put in the index of times to live; a message's record was
 * deleted. */
void fetch_cut(struct local_queue *lq, uint8_t slot);
void fetch_put(struct local_queue *lq, uint8_t slot, int64_t ready_ms, uint64_t seq);
void fetch_expiry_put(struct local_queue *lq, const struct expiry_mark *mark);
void fetch_gone(struct local_queue *lq, uint64_t seq);
void fetch_abandon(struct local_queue *lq); /* the queue goes */
void fetch_free_jobs(struct read_job *list);

/* guest.c */
bool guest_bring(struct resident_queue *rq, const struct message_id *id);
/* Brings dead letters from this number on, as far as the page of the op goes; returns how many. */
uint32_t guests_stage_dead(struct local_queue *lq, uint64_t from_seq, uint32_t count);
void guests_dead_range(const struct local_queue *lq, uint64_t from_seq, struct key *prefix,
                       struct key *start);                   /* where staging begins */
void guests_dismiss(struct local_queue *lq);                 /* after the op */
void guest_ended(struct local_queue *lq, struct message *m); /* takes it */

/* hold.c */
bool hold_needed(struct local_queue *lq, const struct engine_op *op); /* op cannot run now */
void hold_park(struct local_queue *lq, struct engine_op *op); /* … or is behind one that cannot */
void hold_sweep(struct local_queue *lq, uint32_t max);        /* a sweep cannot run now */
void hold_return(struct local_queue *lq, struct engine_op *op); /* it is first, and goes on later */
struct local_queue *hold_over(struct local *l);      /* ends one hold that can end, or NULL */
struct engine_op *hold_next(struct local_queue *lq); /* takes the first parked op, or NULL */
bool hold_again(struct local_queue *lq);  /* after a hold: the first parked op needs one */
void hold_forget(struct local_queue *lq); /* the queue goes; nothing is parked */
bool hold_shows(const struct local *l);   /* a hold has ended, and a sweep is to tell */
void hold_show(struct local *l, struct engine_op *sweep);

/* look.c */
bool look_needed(struct local_queue *lq, const struct engine_op *op); /* the disk has to be read */
/* The disk has to be read before a sweep of the queue. *max is lowered to how many messages the
 * sweep may move: its dead letters and the bodies that it reads have READ_BYTES_MAX, or are one. */
bool look_needed_by_sweep(struct local_queue *lq, uint32_t *max, struct instant now);
/* The keys of the enqueues behind `first`, which is looked for, are read along: one by one they
 * would hold the queue for as long as producers send keys that only the disk has. */
void look_ahead(struct local_queue *lq, const struct engine_op *first);
void look_ask(struct local_queue *lq);       /* the reader is to read what look_needed() found */
void look_take(struct read_job *job);        /* … and has */
void look_done(struct local_queue *lq);      /* after the op */
void look_page_done(struct local_queue *lq); /* the op has seen all of the page */
void look_abandon(struct local_queue *lq);   /* the queue goes */
/* For a caller that does not ask before it claims: reads the pages of an op, here and now. */
void look_pages_now(struct local_queue *lq, const struct engine_op *op);
/* As store_get() for the cold family, with what was read for the op. */
bool look_get(struct local_queue *lq, const struct key *k, struct buf *value, bool *damaged);
bool look_lacks_key(const struct local_queue *lq, const struct key *k); /* of the op's drafts */
/* The page that begins there, or NULL. */
const struct look_page *look_page(const struct local_queue *lq, const struct key *start);

/* walk.c */
/* False: the op goes on when the next page of the tail is there. */
bool walk_list(struct local_queue *lq, struct engine_op *op, struct instant now);
bool walk_lists(const struct message *m); /* a list shows it from the store, not from memory */
/* Where a LIST goes on in the tail, and how many it wants; false: it does not. */
bool walk_tail_range(const struct local_queue *lq, const struct engine_op *op, struct key *prefix,
                     struct key *start, uint32_t *want);
void walk_purge_range(const struct local_queue *lq, const struct engine_op *op, struct key *prefix,
                      struct key *start);
void walk_purge(struct local_queue *lq, struct engine_op *op, struct instant now);
/* REDRIVE or DROP of all dead letters. */
void walk_dead(struct local_queue *lq, struct engine_op *op, struct instant now);
void walk_expire(struct resident_queue *rq, uint32_t max, struct instant now);
void walk_expiry_start(struct local_queue *lq); /* finds when the first one expires */

/* recover.c */
MUST_USE enum status local_recover(struct local *shards[], uint32_t shard_count, struct instant now,
                                   struct buf *error);

#endif
