#include "engine/local/reader.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct read_list {
    struct read_job *first, **last;
};

struct reader {
    struct store *store;
    struct commit *commit;
    void (*wake)(void *ctx, uint32_t shard);
    void *wake_ctx;
    pthread_t thread;

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t work;
    struct read_list asked;
    struct read_list *out; /* by shard */
    uint32_t shard_count;
    bool stopping;
};

int expiry_mark_compare(const struct expiry_mark *a, const struct expiry_mark *b)
{
    if (a->expire_ms != b->expire_ms)
        return a->expire_ms < b->expire_ms ? -1 : 1;
    if (a->id.slot != b->id.slot)
        return a->id.slot < b->id.slot ? -1 : 1;
    if (a->id.ready_ms != b->id.ready_ms)
        return a->id.ready_ms < b->id.ready_ms ? -1 : 1;
    return a->id.seq < b->id.seq ? -1 : a->id.seq > b->id.seq;
}

/* Reading */

static const char undecodable[] = "a message record in the store does not decode";
static const char bad_key[] = "a key in the store does not decode";
static const char unreadable[] = "a message in the store cannot be read";

static size_t keep(struct read_job *job, const char *data, size_t len, const struct message_id *id)
{
    struct message *m = record_get_message(data, len, id);
    if (!m) {
        job->damage = undecodable;
        return 0;
    }
    m->home = HOME_COLD;
    assert(job->count < job->max);
    job->found[job->count++] = m;
    return message_body_len(m);
}

static void end_iter(struct read_job *job, struct store_iter *it)
{
    struct buf error = {0};
    if (!store_iter_close(it, &error))
        job->damage = unreadable;
    buf_fini(&error);
}

static void read_lane(struct store *store, struct read_job *job)
{
    struct key prefix, start;
    key_lane(&prefix, job->from.queue, job->from.slot);
    key_message(&start, &job->from);
    struct store_iter *it = store_iter_open(store, STORE_COLD, &prefix, &start);
    size_t bytes = 0;
    job->at = job->from;
    for (; store_iter_valid(it) && job->count < job->max && bytes < READ_BYTES_MAX;
         store_iter_next(it)) {
        size_t key_len, len;
        const char *key = store_iter_key(it, &key_len);
        const char *value = store_iter_value(it, &len);
        if (key_parse_message(key, key_len, &job->at))
            bytes += keep(job, value, len, &job->at);
        else
            job->damage = bad_key;
    }
    job->more = store_iter_valid(it);
    end_iter(job, it);
}

/* The message of an entry in the index. It is gone when both are in memory's hands by now. */
static size_t read_message(struct store *store, struct read_job *job, const struct message_id *id,
                           struct buf *value)
{
    struct key k;
    bool damaged = false;
    key_message(&k, id);
    if (store_get(store, STORE_COLD, &k, value, &damaged))
        return keep(job, value->data, value->len, id);
    if (damaged)
        job->damage = unreadable;
    return 0;
}

static void read_expired(struct store *store, struct read_job *job)
{
    struct key prefix, start;
    key_queue(&prefix, KEY_EXPIRY, job->from_mark.id.queue);
    key_expiry(&start, &job->from_mark.id, job->from_mark.expire_ms);
    struct store_iter *it = store_iter_open(store, STORE_COLD, &prefix, &start);
    struct buf value = {0};
    struct expiry_mark *next = &job->next_mark;
    size_t bytes = 0;
    for (*next = job->from_mark; store_iter_valid(it); store_iter_next(it)) {
        size_t len;
        const char *key = store_iter_key(it, &len);
        if (!key_parse_expiry(key, len, &next->id, &next->expire_ms)) {
            job->damage = bad_key;
            break;
        }
        job->more = job->count == job->max || bytes >= READ_BYTES_MAX;
        if (job->more || next->expire_ms > job->until_ms)
            break;
        bytes += read_message(store, job, &next->id, &value);
    }
    if (!store_iter_valid(it))
        next->expire_ms = INT64_MAX;
    end_iter(job, it);
    buf_fini(&value);
}

static void keep_place(struct read_job *job, uint32_t *cap, const struct message_id *id)
{
    if (job->count == *cap) {
        *cap = *cap ? *cap * 2 : 64;
        job->places = mem_realloc(job->places, *cap * sizeof(*job->places));
    }
    job->places[job->count++] = (struct place){id->ready_ms, id->seq};
}

/* Keys alone. It stops after `max` of them, but not inside a millisecond: then until_ms is lowered
 * to how far it has come. */
static void read_due(struct store *store, struct read_job *job)
{
    struct key prefix, start;
    key_lane(&prefix, job->from.queue, job->from.slot);
    key_message(&start, &job->from);
    struct store_iter *it = store_iter_open(store, STORE_COLD, &prefix, &start);
    uint32_t cap = 0;
    int64_t last_ms = job->from.ready_ms;
    job->next_ms = INT64_MAX;
    for (; store_iter_valid(it); store_iter_next(it)) {
        struct message_id at;
        size_t len;
        const char *key = store_iter_key(it, &len);
        if (!key_parse_message(key, len, &at)) {
            job->damage = bad_key;
            break;
        }
        bool enough = job->count >= job->max && at.ready_ms > last_ms;
        if (enough || at.ready_ms > job->until_ms) {
            job->next_ms = at.ready_ms;
            if (at.ready_ms <= job->until_ms)
                job->until_ms = at.ready_ms - 1;
            break;
        }
        last_ms = at.ready_ms;
        keep_place(job, &cap, &at);
    }
    end_iter(job, it);
}

static void read_bodies(struct store *store, struct read_job *job)
{
    struct buf value = {0};
    size_t bytes = 0;
    for (; job->count < job->max && bytes < READ_BYTES_MAX; job->count++) {
        const struct message_id *id = &job->ids[job->count];
        struct message *m = NULL;
        struct key k;
        bool damaged = false;
        key_message(&k, id);
        if (store_get(store, STORE_COLD, &k, &value, &damaged))
            m = record_get_message(value.data, value.len, id);
        job->found[job->count] = m;
        bytes += m ? message_body_len(m) : 0;
    }
    buf_fini(&value);
}

static void read_records(struct store *store, struct read_job *job)
{
    for (struct read_record *r = job->records; r; r = r->next) {
        bool damaged = false;
        bool found = store_get(store, STORE_COLD, &r->key, &r->value, &damaged);
        r->state = found ? RECORD_FOUND : damaged ? RECORD_UNREADABLE : RECORD_ABSENT;
    }
}

static struct read_record *page_record(const struct store_iter *it)
{
    struct read_record *r = mem_zalloc(sizeof(*r));
    size_t key_len, len;
    const char *key = store_iter_key(it, &key_len);
    const char *value = store_iter_value(it, &len);
    r->state = RECORD_FOUND;
    r->key.len = (uint16_t)(key_len < KEY_MAX ? key_len : KEY_MAX); /* ours are never longer */
    memcpy(r->key.bytes, key, r->key.len);
    buf_put(&r->value, value, len);
    return r;
}

static void read_page(struct store *store, struct read_job *job)
{
    struct store_iter *it = store_iter_open(store, STORE_COLD, &job->prefix, &job->start);
    struct read_record **last = &job->records;
    size_t bytes = 0;
    for (; store_iter_valid(it) && job->count < job->max && bytes < READ_BYTES_MAX;
         store_iter_next(it), job->count++) {
        *last = page_record(it);
        bytes += (*last)->value.len;
        last = &(*last)->next;
    }
    job->more = store_iter_valid(it);
    end_iter(job, it);
}

void read_records_free(struct read_record *list)
{
    while (list) {
        struct read_record *r = list;
        list = r->next;
        buf_fini(&r->value);
        free(r);
    }
}

typedef void read_fn(struct store *store, struct read_job *job);

static read_fn *const reads[] = {
    [READ_LANE] = read_lane,       [READ_DUE] = read_due,         [READ_BODIES] = read_bodies,
    [READ_EXPIRED] = read_expired, [READ_RECORDS] = read_records, [READ_PAGE] = read_page,
};

static bool finds_messages(const struct read_job *job)
{
    return job->kind == READ_LANE || job->kind == READ_BODIES || job->kind == READ_EXPIRED;
}

static_assert(sizeof(reads) / sizeof(reads[0]) == READ_PAGE + 1, "each kind has its read");

void read_run(struct store *store, struct read_job *job)
{
    assert(job->kind == READ_RECORDS || job->max > 0 || job->until_ms < 0);
    job->found = finds_messages(job) ? mem_alloc(job->max * sizeof(struct message *)) : NULL;
    job->places = NULL;
    job->count = 0;
    job->more = false;
    job->damage = NULL;
    reads[job->kind](store, job);
    assert(job->kind == READ_DUE || job->count <= job->max);
}

void read_free(struct read_job *job)
{
    for (uint32_t i = 0; job->found && i < job->count; i++)
        message_free(job->found[i]);
    free(job->found);
    free(job->places);
    free(job->ids);
    read_records_free(job->records);
}

/* The thread */

static void append(struct read_list *list, struct read_job *job)
{
    job->next = NULL;
    *list->last = job;
    list->last = &job->next;
}

static struct read_job *take_first(struct read_list *list)
{
    struct read_job *job = list->first;
    if (job && !(list->first = job->next))
        list->last = &list->first;
    return job;
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->asked.first && !r->stopping)
            pthread_cond_wait(&r->work, &r->mutex);
        struct read_job *job = take_first(&r->asked);
        if (!job)
            break;
        uint32_t shard = job->shard;
        pthread_mutex_unlock(&r->mutex);
        commit_wait(r->commit, shard, job->group);
        read_run(r->store, job);
        pthread_mutex_lock(&r->mutex);
        append(&r->out[shard], job);
        pthread_mutex_unlock(&r->mutex);
        r->wake(r->wake_ctx, shard);
        pthread_mutex_lock(&r->mutex);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

struct reader *reader_start(struct store *store, struct commit *commit,
                            const struct engine_options *options, uint32_t shard_count)
{
    struct reader *r = mem_zalloc(sizeof(*r));
    r->store = store;
    r->commit = commit;
    r->wake = options->wake;
    r->wake_ctx = options->wake_ctx;
    r->shard_count = shard_count;
    r->asked.last = &r->asked.first;
    r->out = mem_zalloc(shard_count * sizeof(*r->out));
    for (uint32_t i = 0; i < shard_count; i++)
        r->out[i].last = &r->out[i].first;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    if (pthread_create(&r->thread, NULL, reader_main, r) != 0)
        abort();
    return r;
}

struct read_job *reader_stop(struct reader *r)
{
    pthread_mutex_lock(&r->mutex);
    r->stopping = true;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->mutex);
    pthread_join(r->thread, NULL);
    struct read_job *left = NULL, **last = &left;
    for (uint32_t i = 0; i < r->shard_count; i++) {
        *last = r->out[i].first;
        if (*last)
            last = r->out[i].last;
    }
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->work);
    free(r->out);
    free(r);
    return left;
}

void reader_submit(struct reader *r, struct read_job *job)
{
    assert(job->shard < r->shard_count);
    pthread_mutex_lock(&r->mutex);
    assert(!r->stopping);
    append(&r->asked, job);
    pthread_mutex_unlock(&r->mutex);
    pthread_cond_signal(&r->work);
}

struct read_job *reader_take(struct reader *r, uint32_t shard)
{
    assert(shard < r->shard_count);
    pthread_mutex_lock(&r->mutex);
    struct read_list *out = &r->out[shard];
    struct read_job *list = out->first;
    out->first = NULL;
    out->last = &out->first;
    pthread_mutex_unlock(&r->mutex);
    return list;
}
