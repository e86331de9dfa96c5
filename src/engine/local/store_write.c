/* Writing: into the log, then into memtables; and what makes the log shorter again.
 *
 * A record of the log is a batch: the length of the hot part in eight bytes, the hot part, the cold
 * part, each as RocksDB encodes a batch. Each part that is not empty puts the record's number
 * under KEY_LOG into its own family. So a family's tables hold exactly the records up to the number
 * in them, whenever they were flushed: nothing is applied twice, which SingleDelete could not
 * bear.
 *
 * Memtables are flushed by the thread that writes, which syncs the log first: tables are never
 * ahead of what the log has on disk, and the two families do not drift apart in a crash. */
#include "base/log.h"
#include "base/mem.h"
#include "base/plant.h"
#include "engine/local/ending.h"
#include "engine/local/frame.h"
#include "engine/local/store_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETRY_PAUSE_MS 50
#define RETRY_MAX_MS   (60 * 1000)
#define SPARES_SCARCE  8  /* segments that wait to be used, so that others can fill the disk */
#define ENTRY_BYTES    32 /* what a memtable adds to each record */

struct store_batch {
    rocksdb_writebatch_t *parts[STORE_FAMILIES];
    uint64_t seq, end; /* of its record, once logged: the number, and that of its last frame */
};

static const char position_key[] = {KEY_LOG};

/* Batches */

struct store_batch *store_batch_new(void)
{
    struct store_batch *b = mem_zalloc(sizeof(*b));
    for (int f = 0; f < STORE_FAMILIES; f++)
        b->parts[f] = rocksdb_writebatch_create();
    return b;
}

void store_batch_free(struct store_batch *b)
{
    if (!b)
        return;
    for (int f = 0; f < STORE_FAMILIES; f++)
        rocksdb_writebatch_destroy(b->parts[f]);
    free(b);
}

bool store_batch_reset(struct store_batch *b)
{
    bool small = true;
    for (int f = 0; f < STORE_FAMILIES; f++) {
        size_t bytes;
        rocksdb_writebatch_data(b->parts[f], &bytes);
        rocksdb_writebatch_clear(b->parts[f]);
        small = small && bytes < 1024 * 1024;
    }
    b->seq = b->end = 0;
    return small;
}

static uint32_t part_count(const struct store_batch *b, int f)
{
    return (uint32_t)rocksdb_writebatch_count(b->parts[f]);
}

static bool batch_empty(const struct store_batch *b)
{
    return part_count(b, STORE_HOT) == 0 && part_count(b, STORE_COLD) == 0;
}

void store_put(struct store *s, struct store_batch *b, enum store_family f, const struct key *k,
               const struct buf *value)
{
    assert(b->seq == 0); /* what comes after it was logged would not be in the log */
    assert(k->len > 0);
    rocksdb_writebatch_put_cf(b->parts[f], s->families[f], k->bytes, k->len,
                              value ? value->data : "", value ? value->len : 0);
}

void store_delete(struct store *s, struct store_batch *b, enum store_family f, const struct key *k)
{
    assert(b->seq == 0);
    rocksdb_writebatch_delete_cf(b->parts[f], s->families[f], k->bytes, k->len);
}

void store_delete_once(struct store *s, struct store_batch *b, enum store_family f,
                       const struct key *k)
{
    assert(b->seq == 0);
    rocksdb_writebatch_singledelete_cf(b->parts[f], s->families[f], k->bytes, k->len);
}

void store_delete_prefix(struct store *s, struct store_batch *b, enum store_family f,
                         const struct key *prefix)
{
    struct key end = store_key_behind(prefix);
    assert(b->seq == 0);
    assert(prefix->len >= 5); /* a letter and a queue's number: no range is wider than a queue */
    rocksdb_writebatch_delete_range_cf(b->parts[f], s->families[f], prefix->bytes, prefix->len,
                                       end.bytes, end.len);
}

/* The log */

static struct wal_part part_bytes(const struct store_batch *b, int f)
{
    struct wal_part p = {0};
    p.data = rocksdb_writebatch_data(b->parts[f], &p.len);
    return p;
}

enum status store_log(struct store *s, struct store_batch *b, struct buf *error)
{
    if (batch_empty(b))
        return STATUS_OK;
    char number[8];
    assert(b->seq == 0); /* it is logged once */
    b->seq = wal_next(s->wal);
    frame_put_u64(number, b->seq);
    for (int f = 0; f < STORE_FAMILIES; f++) {
        if (part_count(b, f) > 0)
            rocksdb_writebatch_put_cf(b->parts[f], s->families[f], position_key,
                                      sizeof(position_key), number, sizeof(number));
    }
    struct wal_part hot = part_bytes(b, STORE_HOT), cold = part_bytes(b, STORE_COLD);
    char hot_len[8];
    frame_put_u64(hot_len, hot.len);
    const struct wal_part parts[] = {{hot_len, sizeof(hot_len)}, hot, cold};
    enum status status = wal_append(s->wal, parts, sizeof(parts) / sizeof(parts[0]), error);
    b->end = wal_end(s->wal);
    assert(status || b->end >= b->seq);
    return status;
}

enum status store_log_write(struct store *s, bool sync, struct buf *error)
{
    return sync ? wal_sync(s->wal, error) : wal_write(s->wal, error);
}

/* Memtables */

/* A flush has met the end of the disk, because others took what was left while it ran. RocksDB
 * writes nothing until it has tried again, some seconds later; what was not written is in the log
 * and can be written then. By the time it says so there may be room again: what counts is that
 * there was little a while ago. */
static bool out_of_space(const struct store *s, const char *message)
{
    uint64_t scarce_us = atomic_load(&s->space.scarce_us);
    return message && strstr(message, "No space left") && scarce_us > 0 &&
           clock_mono_us() - scarce_us < 2 * RETRY_MAX_MS * 1000ull;
}

enum status store_flush(struct store *s, int f, bool wait, struct buf *error)
{
    char *message = NULL;
    rocksdb_flush_cf(s->db, wait ? s->flush_now : s->flush_later, s->families[f], &message);
    if (!wait && out_of_space(s, message)) {
        rocksdb_free(message);
        return STATUS_OK; /* it stays due */
    }
    s->unflushed[f].bytes = 0;
    return message ? store_failure(message, error) : STATUS_OK;
}

static bool flush_due(const struct store *s, int f)
{
    const struct unflushed *u = &s->unflushed[f];
    return u->bytes > 0 &&
           (u->bytes >= s->buffer_bytes || wal_bytes(s->wal) - u->log_from >= s->log_bytes_max);
}

static enum status flush_what_is_due(struct store *s, struct buf *error)
{
    enum status status = STATUS_OK;
    for (int f = 0; f < STORE_FAMILIES && !status; f++) {
        if (!flush_due(s, f) || !space_for(s, s->unflushed[f].bytes))
            continue; /* what is in memory is in the log: a flush that fails would be worse */
        if (s->applied_end > wal_synced(s->wal))
            status = wal_sync(s->wal, error);
        if (!status)
            status = store_flush(s, f, false, error);
    }
    return status;
}

static bool flush_is_retried(struct store *s, const char *message, int *turn)
{
    if (!out_of_space(s, message))
        return false;
    if (*turn == 0)
        log_warn("the disk is full; the tables wait for room", "dir=\"%s\" wait_ms=%d", s->dir,
                 RETRY_MAX_MS);
    const struct timespec pause = {.tv_nsec = RETRY_PAUSE_MS * 1000000L};
    nanosleep(&pause, NULL);
    return ++*turn * RETRY_PAUSE_MS <= RETRY_MAX_MS;
}

static char *write_part(struct store *s, rocksdb_writebatch_t *part)
{
    char *message = NULL;
    for (int turn = 0;;) {
        rocksdb_write(s->db, s->write, part, &message);
        if (!flush_is_retried(s, message, &turn))
            break;
        rocksdb_free(message);
        message = NULL;
    }
    return message;
}

static enum status apply_part(struct store *s, int f, rocksdb_writebatch_t *part, uint64_t seq,
                              struct buf *error)
{
    struct unflushed *u = &s->unflushed[f];
    size_t bytes;
    rocksdb_writebatch_data(part, &bytes);
    if (u->bytes == 0)
        u->log_from = wal_bytes(s->wal);
    u->bytes += bytes + (uint64_t)rocksdb_writebatch_count(part) * ENTRY_BYTES;
    atomic_store(&u->last, seq);
    char *message = write_part(s, part);
    return message ? store_failure(message, error) : STATUS_OK;
}

void store_kick_keeper(struct store *s)
{
    s->kicked_at = wal_bytes(s->wal);
    pthread_mutex_lock(&s->keeper.mutex);
    s->keeper.kicked = true;
    pthread_mutex_unlock(&s->keeper.mutex);
    pthread_cond_signal(&s->keeper.wanted);
}

enum status store_apply(struct store *s, struct store_batch *b, struct buf *error)
{
    enum status status = STATUS_OK;
    if (batch_empty(b))
        return status;
    for (int f = 0; f < STORE_FAMILIES && !status; f++) {
        if (part_count(b, f) > 0)
            status = apply_part(s, f, b->parts[f], b->seq, error);
    }
    if (status)
        return status;
    s->applied_end = b->end;
    atomic_store(&s->applied, b->seq);
    if (wal_bytes(s->wal) - s->kicked_at >= s->segment_bytes / 2)
        store_kick_keeper(s);
    return flush_what_is_due(s, error);
}

/* The keeper */

/* The number in a family's tables; false when it cannot be read. */
static bool position(struct store *s, int f, uint64_t *seq, struct buf *error)
{
    char *message = NULL;
    size_t len;
    char *value = rocksdb_get_cf(s->db, s->read_tables, s->families[f], position_key,
                                 sizeof(position_key), &len, &message);
    if (message) {
        store_failure(message, error);
        return false;
    }
    *seq = value && len == 8 ? frame_get_u64(value) : 0;
    rocksdb_free(value);
    return true;
}

enum status store_note_position(struct store *s, int f, struct buf *error)
{
    uint64_t last = atomic_load(&s->unflushed[f].last), seq;
    if (!position(s, f, &seq, error))
        return STATUS_ENGINE_UNAVAILABLE;
    char number[8];
    frame_put_u64(number, seq > last ? seq : last);
    rocksdb_writebatch_t *part = rocksdb_writebatch_create();
    rocksdb_writebatch_put_cf(part, s->families[f], position_key, sizeof(position_key), number,
                              sizeof(number));
    char *message = write_part(s, part);
    rocksdb_writebatch_destroy(part);
    s->unflushed[f].bytes += ENTRY_BYTES;
    return message ? store_failure(message, error) : STATUS_OK;
}

/* From where on the log is needed. */
static uint64_t floor_now(struct store *s)
{
    uint64_t floor = atomic_load(&s->applied) + 1;
    struct buf error = {0};
    for (int f = 0; f < STORE_FAMILIES; f++) {
        uint64_t last = atomic_load(&s->unflushed[f].last), seq = 0;
        if (!position(s, f, &seq, &error))
            floor = 0;
        else if (seq < last && seq + 1 < floor && !PLANTED(LOG_RELEASED))
            floor = seq + 1;
    }
    buf_fini(&error);
    return floor;
}

static void *keeper_main(void *arg)
{
    struct store *s = arg;
    struct keeper *k = &s->keeper;
    pthread_mutex_lock(&k->mutex);
    while (!k->stopping) {
        while (!k->kicked && !k->stopping)
            pthread_cond_wait(&k->wanted, &k->mutex);
        k->kicked = false;
        pthread_mutex_unlock(&k->mutex);
        wal_recycle(s->wal, floor_now(s));
        wal_prepare(s->wal, atomic_load(&s->space.scarce) ? SPARES_SCARCE : 1);
        pthread_mutex_lock(&k->mutex);
    }
    pthread_mutex_unlock(&k->mutex);
    return NULL;
}

void store_keeper_start(struct store *s)
{
    pthread_mutex_init(&s->keeper.mutex, NULL);
    pthread_cond_init(&s->keeper.wanted, NULL);
    if (pthread_create(&s->keeper.thread, NULL, keeper_main, s) != 0)
        abort();
    s->keeper.running = true;
    if (atomic_load(&s->space.scarce))
        store_kick_keeper(s);
}

void store_keeper_stop(struct store *s)
{
    if (!s->keeper.running)
        return;
    pthread_mutex_lock(&s->keeper.mutex);
    s->keeper.stopping = true;
    pthread_mutex_unlock(&s->keeper.mutex);
    pthread_cond_signal(&s->keeper.wanted);
    pthread_join(s->keeper.thread, NULL);
    pthread_cond_destroy(&s->keeper.wanted);
    pthread_mutex_destroy(&s->keeper.mutex);
}

/* After a crash */

struct replay {
    struct store *s;
    uint64_t positions[STORE_FAMILIES];
};

static enum status replay_part(struct replay *r, int f, uint64_t seq, const char *data, size_t len,
                               struct buf *error)
{
    if (seq <= r->positions[f])
        return STATUS_OK;
    rocksdb_writebatch_t *part = rocksdb_writebatch_create_from(data, len);
    enum status status = STATUS_OK;
    if (rocksdb_writebatch_count(part) > 0)
        status = apply_part(r->s, f, part, seq, error);
    rocksdb_writebatch_destroy(part);
    return status;
}

static enum status replay_record(void *ctx, uint64_t seq, const char *data, size_t len,
                                 struct buf *error)
{
    struct replay *r = ctx;
    uint64_t hot_len = len >= 8 ? frame_get_u64(data) : UINT64_MAX;
    if (len < 8 || hot_len > len - 8) {
        buf_printf(error, "record %llu of the log is malformed", (unsigned long long)seq);
        return STATUS_ENGINE_UNAVAILABLE;
    }
    const char *hot = data + 8, *cold = hot + hot_len;
    enum status status = replay_part(r, STORE_HOT, seq, hot, hot_len, error);
    if (!status)
        status = replay_part(r, STORE_COLD, seq, cold, len - 8 - hot_len, error);
    return status ? status : flush_what_is_due(r->s, error);
}

static enum status replay(struct store *s, struct buf *error)
{
    struct replay r = {.s = s};
    for (int f = 0; f < STORE_FAMILIES; f++) {
        if (!position(s, f, &r.positions[f], error))
            return STATUS_ENGINE_UNAVAILABLE;
        if (r.positions[f] > wal_end(s->wal)) {
            buf_printf(error, "%s/log ends at record %llu, and %s/store has record %llu", s->dir,
                       (unsigned long long)wal_end(s->wal), s->dir,
                       (unsigned long long)r.positions[f]);
            return STATUS_ENGINE_UNAVAILABLE;
        }
    }
    enum status status = wal_replay(s->wal, replay_record, &r, error);
    for (int f = 0; f < STORE_FAMILIES && !status; f++) {
        if (s->unflushed[f].bytes > 0)
            status = store_flush(s, f, true, error);
    }
    return status;
}

/* An END that cannot be read says nothing: the log speaks for itself then, as after a crash. */
static bool log_is_whole(const struct store *s, struct buf *error)
{
    uint64_t ending;
    struct buf unread = {0};
    if (s->format < STORE_FORMAT) /* what it says is of another log */
        return true;
    (void)ending_read(s->dir, &ending, &unread);
    buf_fini(&unread);
    return ending_reached(s->dir, ending, wal_end(s->wal), error);
}

enum status store_recover(struct store *s, bool direct, struct buf *error)
{
    struct buf dir = {0};
    buf_printf(&dir, "%s/log", s->dir);
    struct wal_options options = {.dir = buf_cstr(&dir),
                                  .segment_bytes = s->segment_bytes,
                                  .direct = direct,
                                  .secret = s->secret,
                                  .full_wait_ms = RETRY_MAX_MS,
                                  .old = s->format == 2};
    enum status status = wal_open(&options, &s->wal, error);
    if (!status && s->format >= 2 && wal_empty(s->wal)) {
        buf_printf(error, "%s has no log in it; was it moved?", buf_cstr(&dir));
        status = STATUS_ENGINE_UNAVAILABLE;
    }
    buf_fini(&dir);
    if (!status && !log_is_whole(s, error))
        status = STATUS_ENGINE_UNAVAILABLE;
    if (!status)
        status = replay(s, error);
    if (status)
        return status;
    atomic_store(&s->applied, wal_end(s->wal));
    return wal_start(s->wal, wal_end(s->wal) + 1, error);
}
