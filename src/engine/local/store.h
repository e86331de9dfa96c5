/* The data directory, with RocksDB in it: two families of records, batches that are
 * written whole, reads of the cold family. Nobody else sees rocksdb/c.h but manifest.c.
 *
 * hot   write-only while running. Its memtable is a plain vector: an insert costs a
 *       fraction of a skip list's, but reading it would sort it. Everything in it is
 *       in the queues' memory as well, so it is read only at start.
 * cold  tails, dead letters, history and dedup keys: a skip list, readable at any time.
 *
 * One write-ahead log of our own serves both families, so that a batch is atomic across them;
 * RocksDB's log is off. Each family keeps the number of the last record of the log that it has. So
 * after a crash a family gets exactly the records that it lacks, whenever it was flushed.
 *
 *   DIR/FORMAT   the number of the format, as text
 *   DIR/KEY      the secret that the log is sealed with (secret.h)
 *   DIR/END      how far the log went when that was last known (ending.h)
 *   DIR/LOCK     locked for as long as a server has the directory
 *   DIR/log/     the write-ahead log
 *   DIR/store/   RocksDB's own
 *   DIR/links/   while a backup to another disk is made: links to what is in store/ */
#ifndef TRIAGE_ENGINE_LOCAL_STORE_H
#define TRIAGE_ENGINE_LOCAL_STORE_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/local/record.h"

#include <stdbool.h>
#include <stdint.h>

#define STORE_TEND_MS 200
#define STORE_FORMAT  3 /* 1 had RocksDB's log, and 2 a log without a seal; both are taken over */

struct store;
struct store_batch;
struct store_iter;

enum store_family { STORE_HOT, STORE_COLD };

/* Reads the number in FORMAT; *format is untouched when there is no such file, as in a new
 * directory. Changes nothing in the directory. */
MUST_USE enum status store_format(const char *dir, long *format, struct buf *error);

/* Creates the directory when missing. `synced`: most writes will be. On failure `error` has a
 * sentence. */
MUST_USE enum status store_open(const char *dir, uint64_t disk_reserve, bool synced,
                                struct store **out, struct buf *error);
void store_close(struct store *s);

/* Space on the disk; any thread. store_space() is STORAGE_FULL when free space is below the
 * reserve; the disk is looked at now and then. Whoever is about to store something takes the space
 * first (store_space_take), or is refused, and calls store_space_done() when it was applied or
 * given up. */
enum status store_space(struct store *s);
MUST_USE enum status store_space_take(struct store *s, uint64_t bytes);
void store_space_done(struct store *s, uint64_t bytes);
uint64_t store_space_free(struct store *s);
void store_space_look(struct store *s); /* asks the file system */

/* Building a batch: one thread. */
struct store_batch *store_batch_new(void);
void store_batch_free(struct store_batch *b);
bool store_batch_reset(
    struct store_batch *b); /* empty again; false: it has grown too large to keep */
void store_put(struct store *s, struct store_batch *b, enum store_family f, const struct key *k,
               const struct buf *value);
void store_delete(struct store *s, struct store_batch *b, enum store_family f, const struct key *k);
/* For keys that were put once since they were last deleted. RocksDB drops put and delete when they
 * meet. */
void store_delete_once(struct store *s, struct store_batch *b, enum store_family f,
                       const struct key *k);
void store_delete_prefix(struct store *s, struct store_batch *b, enum store_family f,
                         const struct key *prefix);

/* Writing: one thread, three steps for each batch.
 *   1. store_log() appends it to the log's buffer, which promises nothing.
 *   2. store_log_write() writes everything that was logged. With `sync` all of it is on the disk
 *      when this returns OK.
 *   3. store_apply() puts it into RocksDB, in the same order; from then on it can be read.
 * After an error nothing may be written any more, because nobody knows what the log holds. */
MUST_USE enum status store_log(struct store *s, struct store_batch *b, struct buf *error);
MUST_USE enum status store_log_write(struct store *s, bool sync, struct buf *error);
MUST_USE enum status store_apply(struct store *s, struct store_batch *b, struct buf *error);
/* To be called between batches, and at least every STORE_TEND_MS while the disk is full. Looks at
 * the disk when that is due. On a full disk it flushes and compacts, so that deleted records free
 * their space soon. */
MUST_USE enum status store_tend(struct store *s, struct buf *error);

/* Reading. Any thread; sees what was written before. */
bool store_get(struct store *s, enum store_family f, const struct key *k, struct buf *value,
               bool *damaged); /* false when absent; damaged is set when it cannot be read */

/* The same without touching the disk: from memtables and the cache alone, filters included. */
enum peek { PEEK_ABSENT, PEEK_FOUND, PEEK_ELSEWHERE /* the disk has to be asked */ };
enum peek store_peek(struct store *s, enum store_family f, const struct key *k, struct buf *value);

/* Keys that start with `prefix`, from `from` on (NULL: all of them). */
struct store_iter *store_iter_open(struct store *s, enum store_family f, const struct key *prefix,
                                   const struct key *from);
bool store_iter_valid(const struct store_iter *it);
void store_iter_next(struct store_iter *it);
const char *store_iter_key(const struct store_iter *it, size_t *len);
const char *store_iter_value(const struct store_iter *it, size_t *len);
bool store_iter_close(struct store_iter *it, struct buf *error); /* false: it met damage */

/* Says for how long a queue keeps done messages; -1: the queue is deleted. Any thread. Until it was
 * said for a queue, its history is kept as a whole. */
void store_keeps(struct store *s, uint32_t queue, int64_t history_ms);

/* Copies the directory while it is written (store_copy.c); from any other thread, one copy at a
 * time. `to` is an empty folder, and gets all but FORMAT and LOCK. The copy has every batch that
 * was applied before *moment_ms of the wall clock, and none that was logged after the copy of the
 * log began. `step` is told how many bytes were copied; any status but OK from it ends the copy. */
typedef enum status store_copy_step(void *ctx, uint64_t bytes, struct buf *error);
uint64_t store_copy_bytes(struct store *s, const char *to); /* about as many as it will write */
MUST_USE enum status store_copy(struct store *s, const char *to, store_copy_step *step, void *ctx,
                                int64_t *moment_ms, struct buf *error);
enum status store_room(struct store *s, const char *path); /* OK: the reserve is free at `path` */
const char *store_dir(const struct store *s);
uint64_t store_reserve(struct store *s);

#endif
