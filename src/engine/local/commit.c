#include "engine/local/commit.h"
#include "base/mem.h"
#include "base/plant.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lane_out {
    struct group *first, **last; /* done, not yet taken */
    uint64_t done;               /* number of the last one */
};

struct commit {
    struct store *store;
    enum durability durability;
    int64_t interval_ms;
    void (*wake)(void *ctx, uint32_t shard);
    void *wake_ctx;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work, progress;
    struct group *first, **last;
    struct lane_out *out;
    uint32_t shard_count;
    bool stopping;
    enum status failed;
    struct buf failure;
    uint64_t groups, commit_us;
    struct durations commits, log_writes;
};

static void fail_locked(struct commit *c, enum status status, const char *text, size_t len)
{
    if (c->failed)
        return;
    c->failed = status;
    buf_put(&c->failure, text, len);
}

/* Writes a list of groups, with one sync for all of them. */
static enum status write_groups(struct commit *c, struct group *list, uint64_t *log_us,
                                struct buf *error)
{
    enum status status = STATUS_OK;
    for (struct group *g = list; g && !status; g = g->next)
        status = store_log(c->store, g->batch, error);
    uint64_t began_us = clock_mono_us();
    if (!status)
        status = store_log_write(c->store,
                                 c->durability == DURABILITY_FSYNC && !PLANTED(SKIP_FSYNC), error);
    *log_us = clock_mono_us() - began_us;
    for (struct group *g = list; g && !status; g = g->next)
        status = store_apply(c->store, g->batch, error);
    return status;
}

static void hand_out(struct commit *c, struct group *list, enum status status)
{
    while (list) {
        struct group *g = list;
        struct lane_out *out = &c->out[g->shard];
        assert(g->number == out->done + 1); /* who waits for a number waits for all before it */
        list = g->next;
        g->next = NULL;
        g->status = status;
        store_space_done(c->store, g->stored);
        *out->last = g;
        out->last = &g->next;
        out->done = g->number;
        c->groups++;
    }
    pthread_cond_broadcast(&c->progress);
}

static void wake_shards(struct commit *c, uint64_t shards)
{
    for (uint32_t i = 0; i < c->shard_count; i++) {
        if (shards >> (i & 63) & 1)
            c->wake(c->wake_ctx, i);
    }
}

static int64_t mono_ms(void)
{
    return (int64_t)(clock_mono_us() / 1000);
}

/* When to look around though there is no work: for the next periodic sync, and while the disk is
 * full, for what has become of it. */
static int64_t idle_until(struct commit *c, int64_t sync_at_ms)
{
    if (c->failed)
        return INT64_MAX;
    int64_t until_ms = c->durability == DURABILITY_INTERVAL ? sync_at_ms : INT64_MAX;
    int64_t tend_at_ms = store_space(c->store) ? mono_ms() + STORE_TEND_MS : INT64_MAX;
    return tend_at_ms < until_ms ? tend_at_ms : until_ms;
}

/* Called and returns with the mutex. */
static void await_work(struct commit *c, int64_t until_ms)
{
    struct timespec until = {until_ms / 1000, until_ms % 1000 * 1000000};
    while (!c->first && !c->stopping) {
        if (until_ms == INT64_MAX)
            pthread_cond_wait(&c->work, &c->mutex);
        else if (pthread_cond_timedwait(&c->work, &c->mutex, &until) != 0)
            return;
    }
}

/* Commits what is waiting; called and returns with the mutex. */
static void commit_waiting(struct commit *c)
{
    struct group *list = c->first;
    c->first = NULL;
    c->last = &c->first;
    enum status status = c->failed;
    pthread_mutex_unlock(&c->mutex);

    struct buf error = {0};
    uint64_t shards = 0, log_us = 0, started_us = clock_mono_us();
    for (const struct group *g = list; g; g = g->next)
        shards |= 1ULL << (g->shard & 63);
    if (!status)
        status = write_groups(c, list, &log_us, &error);
    if (status) /* whatever the reason: what the log holds is not known */
        status = STATUS_ENGINE_UNAVAILABLE;
    uint64_t took_us = clock_mono_us() - started_us;

    pthread_mutex_lock(&c->mutex);
    if (status)
        fail_locked(c, status, error.data, error.len);
    c->commit_us += took_us;
    durations_add(&c->commits, &duration_works, took_us);
    durations_add(&c->log_writes, &duration_works, log_us);
    hand_out(c, list, status);
    pthread_mutex_unlock(&c->mutex);
    buf_fini(&error);
    wake_shards(c, shards);
    pthread_mutex_lock(&c->mutex);
}

/* Between groups; called and returns with the mutex. */
static void tend(struct commit *c, enum status (*what)(struct store *, struct buf *))
{
    struct buf error = {0};
    pthread_mutex_unlock(&c->mutex);
    enum status status = what(c->store, &error);
    pthread_mutex_lock(&c->mutex);
    if (status)
        fail_locked(c, status, error.data, error.len);
    buf_fini(&error);
}

static enum status sync_now(struct store *s, struct buf *error)
{
    return store_log_write(s, true, error);
}

static void *commit_main(void *arg)
{
    struct commit *c = arg;
    int64_t sync_at_ms = mono_ms() + c->interval_ms;
    pthread_mutex_lock(&c->mutex);
    while (!c->stopping || c->first) {
        await_work(c, idle_until(c, sync_at_ms));
        if (c->first)
            commit_waiting(c);
        int64_t now_ms = mono_ms();
        if (c->durability == DURABILITY_INTERVAL && now_ms >= sync_at_ms && !c->failed) {
            tend(c, sync_now);
            sync_at_ms = mono_ms() + c->interval_ms;
        }
        if (!c->failed)
            tend(c, store_tend);
    }
    if (!c->failed && c->durability != DURABILITY_FSYNC)
        tend(c, sync_now);
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

struct commit *commit_start(struct store *store, const struct engine_options *options,
                            uint32_t shard_count)
{
    struct commit *c = mem_zalloc(sizeof(*c));
    c->store = store;
    c->durability = options->durability;
    c->interval_ms = options->sync_interval_ms;
    c->wake = options->wake;
    c->wake_ctx = options->wake_ctx;
    c->shard_count = shard_count;
    c->last = &c->first;
    c->out = mem_zalloc(shard_count * sizeof(*c->out));
    for (uint32_t i = 0; i < shard_count; i++)
        c->out[i].last = &c->out[i].first;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->work, &attr);
    pthread_cond_init(&c->progress, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&c->thread, NULL, commit_main, c) != 0)
        abort();
    return c;
}

void commit_stop(struct commit *c)
{
    pthread_mutex_lock(&c->mutex);
    c->stopping = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    assert(!c->first);
    for (uint32_t i = 0; i < c->shard_count; i++)
        assert(!c->out[i].first);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->progress);
    pthread_mutex_destroy(&c->mutex);
    buf_fini(&c->failure);
    free(c->out);
    free(c);
}

void commit_submit(struct commit *c, struct group *g)
{
    pthread_mutex_lock(&c->mutex);
    bool idle = !c->first;
    assert(g->shard < c->shard_count);
    assert(!c->stopping);
    g->next = NULL;
    *c->last = g;
    c->last = &g->next;
    pthread_mutex_unlock(&c->mutex);
    if (idle) /* after the unlock: who wakes up wants the mutex */
        pthread_cond_signal(&c->work);
}

struct group *commit_take(struct commit *c, uint32_t shard)
{
    pthread_mutex_lock(&c->mutex);
    struct lane_out *out = &c->out[shard];
    struct group *list = out->first;
    out->first = NULL;
    out->last = &out->first;
    pthread_mutex_unlock(&c->mutex);
    return list;
}

void commit_wait(struct commit *c, uint32_t shard, uint64_t number)
{
    assert(shard < c->shard_count);
    pthread_mutex_lock(&c->mutex);
    while (c->out[shard].done < number)
        pthread_cond_wait(&c->progress, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
}

bool commit_failure(struct commit *c, struct buf *detail, enum status *status)
{
    pthread_mutex_lock(&c->mutex);
    bool failed = c->failed != STATUS_OK;
    if (failed) {
        *status = c->failed;
        buf_put(detail, c->failure.data, c->failure.len);
    }
    pthread_mutex_unlock(&c->mutex);
    return failed;
}

void commit_fail(struct commit *c, const char *detail)
{
    pthread_mutex_lock(&c->mutex);
    fail_locked(c, STATUS_ENGINE_UNAVAILABLE, detail, strlen(detail));
    pthread_mutex_unlock(&c->mutex);
}

void commit_counters(struct commit *c, struct engine_counters *counters, uint64_t *log_writes)
{
    pthread_mutex_lock(&c->mutex);
    if (counters->groups != c->groups) {
        counters->groups = c->groups;
        counters->commit_us = c->commit_us;
        counters->commits = c->commits;
        memcpy(log_writes, &c->log_writes, sizeof(c->log_writes));
    }
    pthread_mutex_unlock(&c->mutex);
}
