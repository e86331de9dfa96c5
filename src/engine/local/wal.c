#define _GNU_SOURCE /* O_DIRECT */
#include "engine/local/wal.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/local/wal_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES  (1024 * 1024)
#define ZEROS_BYTES   (1024 * 1024)
#define FULL_PAUSE_MS 50
#define SPARES_MAX    16 /* segments that hold nothing that is needed; more are removed */

enum status wal_refuse(struct buf *error, const char *what, const char *path)
{
    int reason = errno;
    buf_printf(error, "%s %s: %s", what, path, strerror(reason));
    return reason == ENOSPC || reason == EDQUOT ? STATUS_STORAGE_FULL : STATUS_ENGINE_UNAVAILABLE;
}

/* Segments */

void wal_add_segment(struct wal *w, struct segment *s)
{
    if (w->segment_count == w->segment_cap) {
        w->segment_cap = w->segment_cap ? w->segment_cap * 2 : 16;
        w->segments = mem_realloc(w->segments, w->segment_cap * sizeof(struct segment *));
    }
    w->segments[w->segment_count++] = s;
}

void wal_free_segment(struct segment *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    free(s);
}

char *wal_segment_path(const struct wal *w, unsigned slot, const char *suffix)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%03u.wal%s", w->dir, slot, suffix);
    return buf_take(&path);
}

/* A write that ended early ended anywhere, and what is left of it need not be aligned. */
static void write_through_cache(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_DIRECT)
        fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

static bool write_at(int fd, const char *data, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t put = pwrite(fd, data, len, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put == 0 ? EIO : errno;
            return false;
        }
        data += put;
        len -= (size_t)put;
        offset += (uint64_t)put;
        if (len > 0)
            write_through_cache(fd);
    }
    return true;
}

static bool fill_with_zeros(int fd, uint64_t size)
{
    char *zeros = mem_zalloc(ZEROS_BYTES);
    bool ok = true;
    for (uint64_t at = 0; ok && at < size; at += ZEROS_BYTES)
        ok = write_at(fd, zeros, size - at < ZEROS_BYTES ? size - at : ZEROS_BYTES, at);
    int reason = errno;
    free(zeros);
    errno = reason;
    return ok && fsync(fd) == 0;
}

/* Under another name until it is whole. */
static int create_file(const struct wal *w, const char *path, const char *unfinished)
{
    int fd = open(unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return -1;
    if (fill_with_zeros(fd, w->segment_bytes) && rename(unfinished, path) == 0 &&
        fsync(w->dir_fd) == 0)
        return fd;
    int reason = errno;
    close(fd);
    unlink(unfinished);
    errno = reason;
    return -1;
}

static void set_direct(const struct wal *w, const struct segment *s)
{
    if (w->direct) /* not every file system can */
        (void)fcntl(s->fd, F_SETFL, O_DIRECT);
}

static unsigned unused_slot(struct wal *w)
{
    for (unsigned slot = 0;; slot++) {
        char *path = wal_segment_path(w, slot, "");
        bool used = access(path, F_OK) == 0;
        free(path);
        if (!used)
            return slot;
    }
}

static enum status create_segment(struct wal *w, struct buf *error)
{
    unsigned slot = unused_slot(w);
    char *path = wal_segment_path(w, slot, "");
    char *unfinished = wal_segment_path(w, slot, ".new");
    int fd = create_file(w, path, unfinished);
    free(unfinished);
    if (fd < 0) {
        enum status status = wal_refuse(error, "cannot create", path);
        free(path);
        return status;
    }
    struct segment *s = mem_zalloc(sizeof(*s));
    *s = (struct segment){.path = path, .fd = fd, .size = w->segment_bytes};
    set_direct(w, s);
    pthread_mutex_lock(&w->mutex);
    wal_add_segment(w, s);
    pthread_mutex_unlock(&w->mutex);
    return STATUS_OK;
}

/* Under the mutex. A segment may be used again only when the disk holds a frame that says that all
 * of it is in the tables. Otherwise a crash would look for records that were written over. */
static bool is_spare(const struct wal *w, const struct segment *s)
{
    uint64_t needed = w->held ? w->floor_held : w->floor_synced;
    return s != w->busy && (s->number == 0 || s->last < needed);
}

/* The one that has been spare for longest, or NULL. */
static struct segment *find_spare(struct wal *w)
{
    struct segment *spare = NULL;
    for (size_t i = 0; i < w->segment_count; i++) {
        struct segment *s = w->segments[i];
        if (is_spare(w, s) && s->size == w->segment_bytes && (!spare || s->number < spare->number))
            spare = s;
    }
    return spare;
}

/* Opening */

static struct wal *wal_new(const struct wal_options *o)
{
    struct wal *w = mem_zalloc(sizeof(*w));
    w->dir = mem_dup(o->dir, strlen(o->dir));
    w->dir_fd = -1;
    w->segment_bytes = o->segment_bytes;
    w->direct = o->direct;
    w->full_wait_ms = o->full_wait_ms;
    w->old = o->old;
    w->damage = o->damage;
    w->damage_ctx = o->damage_ctx;
    frame_key_init(&w->key, o->secret);
    if (posix_memalign((void **)&w->buffer, WAL_BLOCK, BUFFER_BYTES) != 0)
        abort();
    pthread_mutex_init(&w->creating, NULL);
    pthread_mutex_init(&w->mutex, NULL);
    return w;
}

enum status wal_open(const struct wal_options *options, struct wal **out, struct buf *error)
{
    assert(options->segment_bytes % WAL_BLOCK == 0);
    assert(options->segment_bytes >= 2 * WAL_BLOCK);
    struct wal *w = wal_new(options);
    enum status status = STATUS_OK;
    if (!w->damage && mkdir(w->dir, 0750) < 0 && errno != EEXIST)
        status = wal_refuse(error, "cannot create", w->dir);
    if (!status && (w->dir_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        status = wal_refuse(error, "cannot open", w->dir);
    if (!status)
        status = wal_scan(w, error);
    if (status) {
        wal_close(w);
        return status;
    }
    *out = w;
    return STATUS_OK;
}

void wal_close(struct wal *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->segment_count; i++)
        wal_free_segment(w->segments[i]);
    if (w->dir_fd >= 0)
        close(w->dir_fd);
    pthread_mutex_destroy(&w->creating);
    pthread_mutex_destroy(&w->mutex);
    free(w->segments);
    free(w->found);
    free(w->buffer);
    free(w->dir);
    free(w);
}

bool wal_empty(const struct wal *w)
{
    for (size_t i = 0; i < w->segment_count; i++) {
        if (w->segments[i]->number > 0)
            return false;
    }
    return true;
}

uint64_t wal_gap(const struct wal *w)
{
    return w->gap;
}

uint64_t wal_end(const struct wal *w)
{
    return w->next - 1;
}

static bool read_body(const struct wal_found *f, struct buf *out)
{
    buf_reserve(out, f->len);
    for (uint64_t at = 0; at < f->len;) {
        ssize_t got =
            pread(f->segment->fd, out->data + out->len, f->len - at, (off_t)(f->offset + at));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        at += got > 0 ? (uint64_t)got : 0;
        out->len += got > 0 ? (size_t)got : 0;
    }
    return true;
}

enum status wal_replay(struct wal *w, wal_replay_fn *each, void *ctx, struct buf *error)
{
    struct buf record = {0};
    enum status status = STATUS_OK;
    uint64_t seq = 0;
    for (size_t i = 0; !status && i < w->found_count; i++) {
        const struct wal_found *f = &w->found[i];
        if (f->kind & FRAME_FIRST) { /* one before it that has no end was cut off by a crash */
            buf_clear(&record);
            seq = f->seq;
        } else if (i > 0 && f->seq != f[-1].seq + 1) { /* the first of it is in a gap */
            seq = 0;
        }
        if (!read_body(f, &record))
            status = wal_refuse(error, "cannot read", f->segment->path);
        else if (f->kind & FRAME_LAST && seq > 0)
            status = each(ctx, seq, record.data, record.len, error);
    }
    buf_fini(&record);
    return status;
}

/* Writing */

enum status wal_write(struct wal *w, struct buf *error)
{
    if (w->used == 0)
        return STATUS_OK;
    static_assert(WAL_BLOCK % FRAME_ALIGN == 0, "each write begins with a frame");
    static_assert(BUFFER_BYTES % WAL_BLOCK == 0, "a full buffer is whole blocks");
    size_t len = (w->used + WAL_BLOCK - 1) / WAL_BLOCK * WAL_BLOCK;
    assert(len <= BUFFER_BYTES);
    assert(w->offset % WAL_BLOCK == 0);
    assert(w->offset + len <= w->current->size); /* it would be in no segment */
    memset(w->buffer + w->used, 0, len - w->used);
    if (!write_at(w->current->fd, w->buffer, len, w->offset))
        return wal_refuse(error, "cannot write", w->current->path);
    w->dirty = true;
    w->offset += len;
    w->bytes += len;
    w->used = 0;
    atomic_store_explicit(&w->written, w->next - 1, memory_order_release);
    return STATUS_OK;
}

enum status wal_sync(struct wal *w, struct buf *error)
{
    enum status status = wal_write(w, error);
    if (status || !w->dirty)
        return status;
    if (fdatasync(w->current->fd) != 0)
        return wal_refuse(error, "cannot sync", w->current->path);
    w->dirty = false;
    assert(w->used == 0);
    assert(w->synced < w->next);
    w->synced = w->next - 1;
    if (w->floor_written == w->floor_synced)
        return STATUS_OK;
    pthread_mutex_lock(&w->mutex);
    w->floor_synced = w->floor_written;
    pthread_mutex_unlock(&w->mutex);
    return STATUS_OK;
}

uint64_t wal_synced(const struct wal *w)
{
    return w->synced;
}

uint64_t wal_written(struct wal *w)
{
    return atomic_load_explicit(&w->written, memory_order_acquire);
}

static void seal(struct wal *w, char *at, unsigned kind, size_t len)
{
    pthread_mutex_lock(&w->mutex);
    w->floor_written = w->floor;
    pthread_mutex_unlock(&w->mutex);
    struct frame f = {.kind = kind,
                      .len = len,
                      .epoch = w->current->epoch,
                      .seq = w->next,
                      .synced = w->synced,
                      .floor = w->floor_written};
    assert(f.synced < f.seq); /* frame_read() would not take it back, as with the next two */
    assert(f.floor <= f.seq);
    assert(kind != FRAME_SEGMENT || len == 8);
    frame_seal(at, &f, &w->key);
}

/* Makes a spare segment the current one; false when there is none. */
static bool take_spare(struct wal *w)
{
    pthread_mutex_lock(&w->mutex);
    if (w->current)
        w->current->last = w->next - 1;
    struct segment *s = find_spare(w);
    if (s) {
        s->number = ++w->number;
        s->last = UINT64_MAX;
        w->current = w->busy = s;
    }
    pthread_mutex_unlock(&w->mutex);
    return s != NULL;
}

static enum status take_or_create(struct wal *w, struct buf *error)
{
    if (take_spare(w))
        return STATUS_OK;
    pthread_mutex_lock(&w->creating);
    bool taken = take_spare(w); /* the other thread may just have made one */
    enum status status = taken ? STATUS_OK : create_segment(w, error);
    if (!status && !taken)
        taken = take_spare(w);
    pthread_mutex_unlock(&w->creating);
    assert(status || taken);
    return status;
}

/* A disk that others have filled to its end may have room again soon, and nothing was written yet
 * that could be half there: so the writer waits. A start does not: it has nothing to lose. */
static enum status take_segment(struct wal *w, struct buf *error)
{
    const struct timespec pause = {.tv_nsec = FULL_PAUSE_MS * 1000000L};
    int64_t wait_ms = w->current ? w->full_wait_ms : 0;
    enum status status = take_or_create(w, error);
    if (status == STATUS_STORAGE_FULL && wait_ms > 0)
        log_warn("the disk is full; the log waits for room", "dir=\"%s\" wait_ms=%lld", w->dir,
                 (long long)wait_ms);
    while (status == STATUS_STORAGE_FULL && wait_ms > 0) {
        nanosleep(&pause, NULL);
        wait_ms -= FULL_PAUSE_MS;
        buf_clear(error);
        status = take_or_create(w, error);
    }
    return status;
}

/* Goes on in another segment. All before it is on the disk first, so that a segment that has a
 * beginning vouches for the end of the one before; and so is the beginning before what follows it,
 * so that a segment whose beginning cannot be read was damaged. */
static enum status rotate(struct wal *w, struct buf *error)
{
    enum status status = w->current ? wal_sync(w, error) : STATUS_OK;
    if (!status)
        status = take_segment(w, error);
    if (status)
        return status;
    struct segment *s = w->current;
    assert(w->used == 0); /* what is in the buffer belongs to the segment before */
    assert(!w->dirty);
    s->first = w->next;
    random_bytes(&s->epoch, sizeof(s->epoch));
    w->offset = 0;
    frame_put_u64(w->buffer + FRAME_HEAD, s->number);
    seal(w, w->buffer, FRAME_SEGMENT, 8);
    w->used = frame_size(8);
    return wal_sync(w, error);
}

enum status wal_start(struct wal *w, uint64_t floor, struct buf *error)
{
    assert(floor <= w->next);
    free(w->found);
    w->found = NULL;
    w->found_count = w->found_cap = 0;
    for (size_t i = 0; i < w->segment_count; i++)
        set_direct(w, w->segments[i]);
    w->floor = floor > w->floor ? floor : w->floor;
    return rotate(w, error);
}

uint64_t wal_next(const struct wal *w)
{
    return w->next;
}

/* Bytes of a body that the next frame can take. */
static size_t room(const struct wal *w)
{
    uint64_t left = w->current->size - w->offset;
    left = (left > BUFFER_BYTES ? BUFFER_BYTES : left) - w->used;
    return left > FRAME_HEAD ? (size_t)(left - FRAME_HEAD) : 0;
}

/* Room for all of it, or for a frame that is worth its head. */
static enum status make_room(struct wal *w, size_t wanted, struct buf *error)
{
    if (room(w) >= wanted)
        return STATUS_OK;
    enum status status = wal_write(w, error);
    if (!status && room(w) < wanted && room(w) < WAL_BLOCK - FRAME_HEAD)
        status = rotate(w, error);
    return status;
}

struct cursor {
    const struct wal_part *part;
    size_t at;
};

static void copy_out(struct cursor *c, char *out, size_t len)
{
    while (len > 0) {
        size_t left = c->part->len - c->at, some = left < len ? left : len;
        if (some > 0)
            memcpy(out, (const char *)c->part->data + c->at, some);
        out += some;
        len -= some;
        c->at += some;
        if (c->at == c->part->len && len > 0) {
            c->part++;
            c->at = 0;
        }
    }
}

enum status wal_append(struct wal *w, const struct wal_part *parts, size_t count, struct buf *error)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        left += parts[i].len;
    assert(left > 0);
    struct cursor from = {parts, 0};
    for (unsigned kind = FRAME_FIRST; left > 0; kind = 0) {
        enum status status = make_room(w, left, error);
        if (status)
            return status;
        size_t len = left < room(w) ? left : room(w);
        assert(len > 0);
        assert(w->used + frame_size(len) <= BUFFER_BYTES);
        left -= len;
        char *at = w->buffer + w->used;
        copy_out(&from, at + FRAME_HEAD, len);
        seal(w, at, kind | (left == 0 ? FRAME_LAST : 0), len);
        w->used += frame_size(len);
        w->next++;
    }
    return STATUS_OK;
}

uint64_t wal_bytes(const struct wal *w)
{
    return w->bytes;
}

/* The other thread */

void wal_recycle(struct wal *w, uint64_t floor)
{
    pthread_mutex_lock(&w->mutex);
    if (!w->held) /* otherwise the next call says it again */
        w->floor = floor > w->floor ? floor : w->floor;
    pthread_mutex_unlock(&w->mutex);
}

/* One that nobody needs: there are more than enough, or it has another size. */
static struct segment *take_surplus(struct wal *w)
{
    size_t spares = 0, surplus = w->segment_count;
    for (size_t i = 0; i < w->segment_count; i++) {
        if (!is_spare(w, w->segments[i]))
            continue;
        if (w->segments[i]->size != w->segment_bytes || ++spares > SPARES_MAX)
            surplus = i;
    }
    if (surplus == w->segment_count)
        return NULL;
    struct segment *s = w->segments[surplus];
    w->segments[surplus] = w->segments[--w->segment_count];
    return s;
}

/* Spares that are there, or will be once the disk knows the floor. */
static size_t provided(const struct wal *w)
{
    size_t count = 0;
    for (size_t i = 0; i < w->segment_count; i++) {
        const struct segment *s = w->segments[i];
        uint64_t needed = w->held ? w->floor_held : w->floor;
        count +=
            s != w->busy && s->size == w->segment_bytes && (s->number == 0 || s->last < needed);
    }
    return count;
}

void wal_prepare(struct wal *w, size_t spares)
{
    assert(spares <= SPARES_MAX);
    pthread_mutex_lock(&w->creating);
    pthread_mutex_lock(&w->mutex);
    struct segment *surplus = take_surplus(w);
    size_t there = provided(w);
    pthread_mutex_unlock(&w->mutex);
    if (surplus) {
        unlink(surplus->path);
        wal_free_segment(surplus);
    }
    struct buf error = {0};
    while (there < spares && create_segment(w, &error) == STATUS_OK)
        there++;
    buf_fini(&error);
    pthread_mutex_unlock(&w->creating);
}
