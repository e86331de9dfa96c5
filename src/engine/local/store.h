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
 *   DIR/LOCK     locked for as long as a server has the directory
 *   DIR/log/     the write-ahead log
 *   DIR/store/   RocksDB's own */
#ifndef TRIAGE_ENGINE_LOCAL_STORE_H
#define TRIAGE_ENGINE_LOCAL_STORE_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/local/record.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STORE_FORMAT 2 /* 1 had RocksDB's log */

struct store;
struct store_batch;
struct store_iter;

enum store_family { STORE_HOT, STORE_COLD };

/* Creates the directory when missing. `synced`: most writes will be. On failure `error` has a
 * sentence. */
MUST_USE enum status store_open(const char *dir, uint64_t disk_reserve, bool synced,
                                struct store **out, struct buf *error);
void store_close(struct store *s);

/* Any thread. STORAGE_FULL when free space is below the reserve, looked at now and then. */
enum status store_space(struct store *s);
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
/* For as long as the disk is full, now and then: what was deleted leaves it soon. */
MUST_USE enum status store_squeeze(struct store *s, struct buf *error);

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

#endif
