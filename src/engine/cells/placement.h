/* The placement of a queue: which cells have a part of it, and where new messages go.
 *
 * A placement has a seat for each cell that has, or had, a partition of the queue. An open seat
 * takes new messages. A draining one takes none, and what it has is claimed, or moved away. A seat
 * that is out has no partition any more.
 *
 * A message with a dedup key goes to the seat of its bucket, whatever its level, because the same
 * key has to meet its message. A message without one goes to an open seat that wants its level.
 *
 * A bucket that moves from one seat to another leaves its known keys behind. A key of that bucket
 * is looked for at the old seat before its message is stored at the new one, for as long as it may
 * be known there. That time cannot begin before the old cell has been told of the move: a server
 * that has not heard of it may still store keys there. So a move has no end at first. When the old
 * cell is known to have the placement, the next placement says until when (placement_settle).
 *
 * A placement is never changed in place: a new one is made with the next epoch, written as text
 * (JSON) and handed to each cell, which refuses messages that were sent by an older one. This file
 * does no I/O. */
#ifndef TRIAGE_ENGINE_CELLS_PLACEMENT_H
#define TRIAGE_ENGINE_CELLS_PLACEMENT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CELL_NAME_MAX  31
#define BUCKETS        256
#define MOVED_MAX      64        /* moves of buckets that are still looked up in two cells */
#define MOVED_FOR_GOOD INT64_MAX /* until_ms: the keys end with their messages */

enum seat_state { SEAT_OPEN, SEAT_DRAINING, SEAT_OUT, SEAT_STATE_COUNT };
extern const char *const seat_state_names[SEAT_STATE_COUNT];

struct seat {
    char cell[CELL_NAME_MAX + 1];
    enum seat_state state;
    bool
        drained; /* it is open, and was draining before: what was leaving then may still be there */
    /* Owned: the names of the levels that it wants, each ended by a newline. NULL: it names none,
     * and takes those that nobody names. */
    char *levels;
};

struct bucket_set {
    uint64_t bits[BUCKETS / 64];
};

/* Buckets that were at another seat. */
struct moved {
    uint16_t from; /* the place in `seats` */
    /* The epoch by which they moved, of which the old cell may not have been told; 0: it was. */
    uint64_t epoch;
    int64_t until_ms; /* wall; MOVED_FOR_GOOD as long as there is an epoch */
    struct bucket_set buckets;
};

struct placement {
    uint64_t epoch; /* 0: there is none */
    uint32_t seat_count;
    struct seat *seats;        /* owned */
    uint16_t buckets[BUCKETS]; /* places in `seats` */
    uint32_t moved_count;
    struct moved *moved; /* owned */
    int64_t
        split_ms; /* wall: when a part of a partition was given away of its own accord; 0: never */
};

void placement_fini(struct placement *p);
void placement_copy(const struct placement *from, struct placement *to);

/* False for a text that placement_write() cannot have written: then *p is as placement_fini() left
 * it. */
bool placement_read(const char *text, size_t len, uint64_t epoch, struct placement *p);
void placement_write(const struct placement *p, struct buf *out);

uint32_t bucket_of(const char *key, size_t len);
bool bucket_set_has(const struct bucket_set *s, uint32_t bucket);
void bucket_set_add(struct bucket_set *s, uint32_t bucket);
/* "0-41 99"; an empty text for none. False for anything else. */
bool bucket_set_read(const char *text, size_t len, struct bucket_set *s);
void bucket_set_write(const struct bucket_set *s, struct buf *out);

int placement_seat(const struct placement *p, const char *cell); /* -1: it has none */
/* How many buckets the seat has. */
uint32_t placement_bucket_count(const struct placement *p, uint32_t seat);

/* Changes of a placement that has its new epoch already. False when it cannot be done; *why is a
 * sentence then. Buckets that move get their end from placement_settle(). */

/* The first placement of a new queue: the buckets are spread over all open seats. */
void placement_spread(struct placement *p);
/* Opens the seat of a cell, made if need be, and gives it a fair share of the buckets. */
bool placement_open(struct placement *p, const char *cell, const char **why);
/* Closes a seat. Its buckets go to the open ones. */
bool placement_drain(struct placement *p, const char *cell, const char **why);
/* A drained seat has no partition any more. Not before its keys are forgotten: its buckets are
 * elsewhere, and until the end of their move a key may be known here alone. */
bool placement_remove(struct placement *p, const char *cell, int64_t now_ms, const char **why);
/* Gives buckets to a seat. */
bool placement_give(struct placement *p, const char *cell, const struct bucket_set *buckets,
                    const char **why);
/* Gives so many buckets of one seat to another, which is open. */
bool placement_share(struct placement *p, uint32_t from, uint32_t to, uint32_t count,
                     const char **why);
/* Names the levels that a seat wants, as in struct seat; NULL: none. */
bool placement_want(struct placement *p, const char *cell, const char *levels, const char **why);
/* Adds a seat without changing anything else. */
void placement_add(struct placement *p, const char *cell, enum seat_state state);
/* Whether a move from this seat waits for its end, and the cell has the placement of `epoch`, which
 * is enough to give it one. */
bool placement_unsettled(const struct placement *p, uint32_t seat, uint64_t epoch);
/* Moves from this seat of which its cell was told with the placement of `epoch`, or before, end at
 * `until_ms`: it stores no key of these buckets any more, and knows those that it has no longer. */
void placement_settle(struct placement *p, uint32_t seat, uint64_t epoch, int64_t until_ms);
/* Forgets moves that are over, and those from seats that are out. */
void placement_tidy(struct placement *p, int64_t now_ms);
bool placement_fits(const struct placement *p); /* a store takes its text */

#endif
