/* The thread that reads tails, and what ops need, so that no event loop waits for a disk or a
 * commit: jobs in, messages and records out. A job first waits until the group that it names is
 * committed: so it sees everything that its shard had done when it asked. */
#ifndef TRIAGE_ENGINE_LOCAL_READER_H
#define TRIAGE_ENGINE_LOCAL_READER_H

#include "engine/local/commit.h"

#define READ_BYTES_MAX (1024 * 1024) /* a job ends with the message that reaches it */

/* A place in the index of times to live. */
struct expiry_mark {
    int64_t expire_ms;
    struct message_id id;
};

int expiry_mark_compare(const struct expiry_mark *a, const struct expiry_mark *b);

/* One record of the cold family, asked for by its key or found in a page. */
struct read_record {
    struct read_record *next;
    enum { RECORD_ASKED, RECORD_ABSENT, RECORD_FOUND, RECORD_UNREADABLE } state;
    struct key key;
    struct buf value; /* FOUND */
};

void read_records_free(struct read_record *list);

enum read_kind {
    READ_LANE,    /* messages of a lane from `from` on */
    READ_DUE,     /* places of those from `from` on that are ready by until_ms */
    READ_BODIES,  /* the messages `ids`, for their bodies */
    READ_EXPIRED, /* those whose time to live ends by until_ms, from from_mark on */
    READ_RECORDS, /* each of `records` */
    READ_PAGE,    /* the records under `prefix` from `start` on */
};

struct read_job {
    struct read_job *next;
    uint32_t shard;
    enum read_kind kind;
    uint64_t group; /* the last group that was submitted; it is waited for */
    struct message_id from;
    struct expiry_mark from_mark;
    int64_t until_ms;
    struct message_id *ids;   /* BODIES: max of them; owned */
    struct key prefix, start; /* PAGE */
    uint32_t max;
    /* Out. */
    struct read_record *records; /* RECORDS: in and out. PAGE: `count` of them, in order */
    struct message **found; /* max of them; the first `count` are there, the taker's. BODIES: each
                             * by its id, NULL when it cannot be read */
    struct place *places;   /* DUE: `count` of them */
    uint32_t count;
    bool more;                    /* it stopped before the end */
    struct message_id at;         /* LANE: the last place it saw */
    int64_t next_ms;              /* DUE: no other is ready before this; INT64_MAX: there is none */
    struct expiry_mark next_mark; /* EXPIRED: where it stopped; with INT64_MAX at the end */
    const char *damage;           /* what is wrong with the store, or NULL */
};

/* On this thread, at once. */
void read_run(struct store *store, struct read_job *job);
void read_free(struct read_job *job); /* and the messages; the job itself is the caller's */

struct reader;

struct reader *reader_start(struct store *store, struct commit *commit,
                            const struct engine_options *options, uint32_t shard_count);
struct read_job *reader_stop(struct reader *r);                 /* what was not taken */
void reader_submit(struct reader *r, struct read_job *job);     /* the reader's until taken */
struct read_job *reader_take(struct reader *r, uint32_t shard); /* done ones in order, or NULL */

#endif
