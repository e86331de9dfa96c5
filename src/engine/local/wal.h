/* The write-ahead log: records in, and after a crash the same records out, in order.
 *
 * It lives in segments: files of one size that are filled with zeros once and then written over
 * and over, so that a sync has to write data and no metadata. Measured on ext4, 16 KiB a time:
 * 173–263 us at the end of a growing file, 121–129 us this way. What is in a segment is said
 * by its first frame (number, epoch, first sequence number) and not by its name. That frame is on
 * the disk before any other of the segment is written: so a segment begins with such a frame or is
 * all zeros, and anything else is damage.
 *
 * A segment is used again when all in it is in the tables (`floor`), and when a later frame that
 * says so is on the disk.
 *
 * At start every frame is read and checked. A frame counts when it has the epoch with which its
 * segment begins, and was sealed with our secret (frame.h). Else it is bytes: of a client, or of an
 * older life of the file. Nothing is lost by that, because a segment is begun when all before it is
 * on the disk, and says so in its first frame.
 *
 * The log ends before the first sequence number that is missing. If any frame says that this one
 * was synced, it is damage: the log is refused, with file and offset. Otherwise it was being
 * written in a crash, and the rest is left behind: the next record goes to a new segment with an
 * epoch of its own.
 *
 * wal_recycle and wal_prepare: any one thread; the rest: one thread at a time. After an error
 * nothing may be written any more. */
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
    bool old; /* what is there has frames of format 1. Those of format 2 that are there all the same
                 were begun by a start that died before it could say so, and hold nothing. */
    /* Not NULL: only to look at it. Nothing is written, not even made durable, damage is told and
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
bool wal_empty(const struct wal *w);   /* no segment at all: it is new, or was taken away */
uint64_t wal_end(const struct wal *w); /* the last sequence number in use */
MUST_USE enum status wal_replay(struct wal *w, wal_replay_fn *each, void *ctx, struct buf *error);

/* The last record that is missing from the middle of it, or 0; for those who only look. */
uint64_t wal_gap(const struct wal *w);

/* Makes it ready for writing. `floor`: all before it is in the tables. */
MUST_USE enum status wal_start(struct wal *w, uint64_t floor, struct buf *error);

/* A record goes in whole or not at all. wal_next tells its sequence number beforehand. It is
 * written when wal_write returns, and on the disk when wal_sync does. */
uint64_t wal_next(const struct wal *w);
MUST_USE enum status wal_append(struct wal *w, const struct wal_part *parts, size_t count,
                                struct buf *error);
MUST_USE enum status wal_write(struct wal *w, struct buf *error);
MUST_USE enum status wal_sync(struct wal *w, struct buf *error);
uint64_t wal_synced(const struct wal *w); /* the last sequence number on the disk */
uint64_t wal_written(struct wal *w);      /* … in the files; any thread */

uint64_t wal_bytes(const struct wal *w);         /* written so far, by this process */
void wal_recycle(struct wal *w, uint64_t floor); /* all before it is in the tables */

/* A copy of the log while it is written, wal_copy.c. From any other thread: while the log is held,
 * no frame says more of what is in the tables than those before did, and nothing that a copy needs
 * is written over; the log grows meanwhile. The copy has every record that was written when
 * wal_copy was called, none that came later, and looks as a log does that ended there. `step` is
 * told of each few bytes on their way and ends it with any status but OK. */
typedef enum status wal_copy_step(void *ctx, uint64_t bytes, struct buf *error);
void wal_hold(struct wal *w);
void wal_let_go(struct wal *w);
uint64_t wal_copy_bytes(struct wal *w); /* about as many as a copy now would have */
MUST_USE enum status wal_copy(struct wal *w, const char *to, wal_copy_step *step, void *ctx,
                              struct buf *error);

/* Sees to it that so many segments, 16 at most, are there before they are wanted; removes more than
 * enough. A failure is met again, and reported, when one is wanted and none is there. */
void wal_prepare(struct wal *w, size_t spares);

#endif
