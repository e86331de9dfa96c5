/* Private to the log: wal.c writes it, wal_scan.c reads it at start. */
#ifndef TRIAGE_ENGINE_LOCAL_WAL_IMPL_H
#define TRIAGE_ENGINE_LOCAL_WAL_IMPL_H

#include "engine/local/frame.h"
#include "engine/local/wal.h"

#include <pthread.h>
#include <stdatomic.h>

struct segment {
    char *path;
    int fd;
    uint64_t size;
    uint64_t number; /* 0: holds nothing */
    uint64_t epoch;
    uint64_t first; /* sequence number of its first frame */
    uint64_t last;  /* sequence number of its last frame, when it is full */
};

/* A frame that belongs to the log. */
struct wal_found {
    uint64_t seq;
    uint64_t offset, len; /* of the body */
    struct segment *segment;
    uint8_t kind;
};

struct wal {
    char *dir;
    int dir_fd;
    uint64_t segment_bytes;
    bool direct;
    int64_t full_wait_ms;
    bool old; /* as found */
    struct frame_key key;
    wal_damage *damage; /* not NULL: only to look at it */
    void *damage_ctx;
    uint64_t gap; /* … the last record that is missing from the middle */

    /* Found at start, freed by wal_start. */
    struct wal_found *found;
    size_t found_count, found_cap;

    /* The writer's. */
    struct segment *current;
    uint64_t offset; /* in it, of the next write */
    char *buffer;    /* frames that are not written yet */
    size_t used;
    bool dirty;      /* something written is not synced yet */
    uint64_t number; /* the highest number of any segment, of either format */
    uint64_t next;   /* sequence number */
    uint64_t synced;
    uint64_t floor_written; /* in the last frame */
    uint64_t bytes;

    pthread_mutex_t creating; /* held around `mutex` */
    pthread_mutex_t mutex;    /* guards what follows, and number and last of every segment */
    struct segment **segments;
    size_t segment_count, segment_cap;
    struct segment *busy; /* the current one, for the other thread */
    uint64_t floor;
    uint64_t floor_synced; /* the floor in the last frame that is on the disk */
    bool held;           /* for a copy: the floor stays, and no frame from floor_held on is lost */
    uint64_t floor_held; /* floor_synced when the hold began */

    atomic_ullong written; /* the last sequence number that is in the files, for other threads */
};

enum status wal_refuse(struct buf *error, const char *what, const char *path);
void wal_add_segment(struct wal *w, struct segment *s);
void wal_free_segment(struct segment *s);
char *wal_segment_path(const struct wal *w, unsigned slot, const char *suffix);

/* wal_scan.c: finds the segments, and in them the log. */
MUST_USE enum status wal_scan(struct wal *w, struct buf *error);

#endif
