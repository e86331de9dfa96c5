/* The write-ahead log: records in, and after a crash the same records out, in order.
 *
 * Segments. The log is in segments: files of one size that are filled with zeros once and then
 * written over and over, so that a sync writes data and no metadata. Measured on ext4, 16 KiB a
 * time: 173–263 us at the end of a growing file, 121–129 us this way. A segment's first frame says
 * what the segment is (number, epoch, first sequence number); the file's name says nothing. The
 * first frame is on the disk before any other of the segment is written. So a segment begins with
 * such a frame or is all zeros; anything else is damage.
 *
 * Reuse. A segment may be used again only when all of its frames are in the tables (`floor`) and
 * the disk holds a later frame that says so. Otherwise a crash would replay from frames that were
 * written over.
 *
 * Start. Every frame is read and checked. A frame counts when it has the epoch of its segment's
 * first frame and was sealed with our secret (frame.h). Other bytes are a client's, or of an older
 * use of the file, and are passed over. No synced frame is lost by that: a segment is begun only
 * when everything before it is on the disk, and its first frame says so.
 *
 * End. The log ends before the first sequence number that is missing. If any frame says that the
 * missing one was synced, this is damage: the log is refused, with file and offset. Otherwise a
 * crash came while it was being written: what is behind it is dropped, and the next record goes to
 * a new segment with an epoch of its own.
 *
 * Threads. wal_recycle and wal_prepare: any one thread; the rest: one thread at a time. After an
 * error nothing may be written any more. */
#ifndef TRIAGE_ENGINE_LOCAL_WAL_H
#define TRIAGE_ENGINE_LOCAL_WAL_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WAL_BLOCK 4096 /* each write starts and ends at a multiple of it */

struct wal;

/* Told of each damage, in a sentence with file and offset. */
typedef void wal_damage(void *ctx, const char *sentence);

struct wal_options {
    const char *dir;        /* created when missing */
    uint64_t segment_bytes; /* of new segments; a multiple of WAL_BLOCK, two at least */
    bool direct;            /* past the page cache, where the file system can: for synced writes */
    const uint8_t *secret;  /* SECRET_BYTES of it */
    int64_t full_wait_ms;   /* how long a started log waits for room when the disk is full */
    bool old; /* the segments are of format 1. A segment of format 2 among them was begun by a start
                 that died before it was done with the takeover, and holds no records. */
    /* Not NULL: the log is only looked at. Nothing is written or synced, damage is reported and
     * passed over, and the log can be replayed but not started. */
    wal_damage *damage;
    void *damage_ctx;
};

struct wal_part {
    const void *data;
    size_t len;
};

typedef enum status wal_replay_fn(void *ctx, uint64_t seq, const char *data, size_t len,
                                  struct buf *error);

/* Reads what is there. On failure `error` has a sentence. */
MUST_USE enum status wal_open(const struct wal_options *options, struct wal **out,
                              struct buf *error);
void wal_close(struct wal *w); /* NULL is fine; syncs nothing */

/* Before wal_start: what was found. */
bool wal_empty(const struct wal *w);   /* no segment at all: the log is new, or was taken away */
uint64_t wal_end(const struct wal *w); /* the last sequence number in use */
MUST_USE enum status wal_replay(struct wal *w, wal_replay_fn *each, void *ctx, struct buf *error);

/* The last record that is missing from the middle of the log, or 0. Only with options.damage. */
uint64_t wal_gap(const struct wal *w);

/* Makes the log ready for writing. Every frame before `floor` is in the tables. */
MUST_USE enum status wal_start(struct wal *w, uint64_t floor, struct buf *error);

/* Appends a record, whole or not at all; wal_next() tells its sequence number beforehand. The
 * record is in the files when wal_write() returns, and on the disk when wal_sync() returns. */
uint64_t wal_next(const struct wal *w);
MUST_USE enum status wal_append(struct wal *w, const struct wal_part *parts, size_t count,
                                struct buf *error);
MUST_USE enum status wal_write(struct wal *w, struct buf *error);
MUST_USE enum status wal_sync(struct wal *w, struct buf *error);
uint64_t wal_synced(const struct wal *w); /* the last sequence number on the disk */
uint64_t wal_written(struct wal *w);      /* the last one in the files; any thread */

uint64_t wal_bytes(const struct wal *w); /* written so far, by this process */
/* Every frame before `floor` is in the tables: segments with such frames alone may be used again.
 */
void wal_recycle(struct wal *w, uint64_t floor);

/* A copy of the log while it is written (wal_copy.c), from any other thread. Between wal_hold() and
 * wal_let_go() the floor stands still, and no segment that a copy needs is used again; the log
 * grows meanwhile. The copy has every record that was written when wal_copy() was called and none
 * that came later, and looks like a log that ended there. `step` is called now and then with how
 * many bytes were copied; any status but OK ends the copy. */
typedef enum status wal_copy_step(void *ctx, uint64_t bytes, struct buf *error);
void wal_hold(struct wal *w);
void wal_let_go(struct wal *w);
uint64_t wal_copy_bytes(struct wal *w); /* about as many as a copy now would have */
MUST_USE enum status wal_copy(struct wal *w, const char *to, wal_copy_step *step, void *ctx,
                              struct buf *error);

/* Keeps so many spare segments ready, 16 at most; removes those beyond. A failure is not reported
 * here: it is met again when a segment is wanted and none is there. */
void wal_prepare(struct wal *w, size_t spares);

#endif
