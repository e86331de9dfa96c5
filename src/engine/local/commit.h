/* The commit thread: groups in, durable groups out. While it writes and syncs some
 * groups, the shards fill the next ones. All groups that wait when it comes back
 * share one sync.
 *
 *   shard:   apply apply apply | apply apply apply apply | …
 *   commit:                    | log log sync put put     | log sync put …
 *
 * After an error it writes nothing more: every later group comes back failed. */
#ifndef TRIAGE_ENGINE_LOCAL_COMMIT_H
#define TRIAGE_ENGINE_LOCAL_COMMIT_H

#include "engine/engine.h"
#include "engine/local/store.h"

/* What one shard submitted between two flushes. The shard's until committed, and again after. */
struct group {
    struct group *next;
    uint32_t shard;
    uint64_t number; /* per shard, from 1 on */
    struct store_batch *batch;
    struct engine_op *first, **last;
    uint32_t op_count;
    uint64_t stored; /* bytes, as store_space_take() was told */
    enum status status;
};

struct commit;

struct commit *commit_start(struct store *store, const struct engine_options *options,
                            uint32_t shard_count);
void commit_stop(struct commit *c); /* the shards have taken every group back */

void commit_submit(struct commit *c, struct group *g); /* the group is the commit thread's now */
struct group *commit_take(struct commit *c, uint32_t shard); /* done groups in order, or NULL */
void commit_wait(struct commit *c, uint32_t shard, uint64_t number); /* until that group is done */

/* Puts a sentence about the first failure into `detail`; false while there is none. Any thread. */
bool commit_failure(struct commit *c, struct buf *detail, enum status *status);
void commit_fail(struct commit *c, const char *detail); /* damage was read: stop writing */
/* Brings the part of the counters that is about commits up to date; `log_writes` are the places of
 * a struct durations. */
void commit_counters(struct commit *c, struct engine_counters *counters, uint64_t *log_writes);

#endif
