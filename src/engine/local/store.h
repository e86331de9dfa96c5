/* RocksDB behind one file: a data directory with two families of records, batches
 * that are written whole, reads of the cold family. Nobody else sees rocksdb/c.h.
 *
 * hot   write-only while running. Its memtable is a plain vector: an insert costs a
 *       fraction of a skip list's, but reading it would sort it. Everything in it is
 *       in the queues' memory as well, so it is read only at start.
 * cold  tails, dead letters, history and dedup keys: a skip list, readable at any time.
 *
 * One write-ahead log of our own serves both, so that a batch is atomic across them; RocksDB's is
 * off. Each family notes in itself the last record of the log that it has, so that after a crash
 * it gets exactly what is missing, whichever of the two was flushed when.
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

/* The number in FORMAT; *format is untouched when there is none, as in a new directory. Changes
 * nothing. */
MUST_USE enum status store_format(const char *dir, long *format, struct buf *error);

/* Creates the directory when missing. `synced`: most writes will be. On failure `error` has a
 * sentence. */
MUST_USE enum status store_open(const char *dir, uint64_t disk_reserve, bool synced,
                                struct store **out, struct buf *error);
void store_close(struct store *s);

/* Any thread. STORAGE_FULL when free space is below the reserve, looked at now and then. What is
 * to be stored takes its space at once, or is refused; it is done when it was applied. */
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
/* For keys that were put once since they were last deleted: both vanish when they meet. */
void store_delete_once(struct store *s, struct store_batch *b, enum store_family f,
                       const struct key *k);
void store_delete_prefix(struct store *s, struct store_batch *b, enum store_family f,
                         const struct key *prefix);

/* Writing: one thread. A batch is logged, which promises nothing; then what was logged is written
 * to the log, and with `sync` it, and all before it, is on the disk when that returns OK; then it
 * is applied, in the same order, and can be read. After an error nothing may be written any more:
 * what the log holds is not known. */
MUST_USE enum status store_log(struct store *s, struct store_batch *b, struct buf *error);
MUST_USE enum status store_log_write(struct store *s, bool sync, struct buf *error);
MUST_USE enum status store_apply(struct store *s, struct store_batch *b, struct buf *error);
/* Between batches, and at least every STORE_TEND_MS while the disk is full: looks at the disk when
 * that is due, and sees to it that what was deleted leaves a full one soon. */
MUST_USE enum status store_tend(struct store *s, struct buf *error);

/* Reading. Any thread; sees what was written before. */
bool store_get(struct store *s, enum store_family f, const struct key *k, struct buf *value,
               bool *damaged); /* false when absent; damaged is set when it cannot be read */

/* Keys that start with `prefix`, from `from` on (NULL: all of them). */
struct store_iter *store_iter_open(struct store *s, enum store_family f, const struct key *prefix,
                                   const struct key *from);
bool store_iter_valid(const struct store_iter *it);
void store_iter_next(struct store_iter *it);
const char *store_iter_key(const struct store_iter *it, size_t *len);
const char *store_iter_value(const struct store_iter *it, size_t *len);
bool store_iter_close(struct store_iter *it, struct buf *error); /* false: it met damage */

/* A queue keeps what is done for so long; -1: it is deleted. Any thread. Until this was said of a
 * queue, its history stays whole. */
void store_keeps(struct store *s, uint32_t queue, int64_t history_ms);

/* A copy of the directory while it is written, store_copy.c; from any other thread, one at a time.
 * `to` is an empty folder, and gets all but FORMAT and LOCK. With `moment_ms` the copy has every
 * batch that was applied before that time of the wall clock, and none that was logged after the
 * copy of the log began. `step` is told of bytes on their way, and ends it with any status but OK.
 */
typedef enum status store_copy_step(void *ctx, uint64_t bytes, struct buf *error);
uint64_t store_copy_bytes(struct store *s, const char *to); /* about as many as it will write */
MUST_USE enum status store_copy(struct store *s, const char *to, store_copy_step *step, void *ctx,
                                int64_t *moment_ms, struct buf *error);
enum status store_room(struct store *s, const char *path); /* the reserve is free there; asks */
const char *store_dir(const struct store *s);
uint64_t store_reserve(struct store *s);

#endif
