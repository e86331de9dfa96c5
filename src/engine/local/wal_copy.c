/* A copy of the log while it is written. Of each segment that is needed it takes the frames up to
 * the last one that was in the files when it began, and zeros for the rest: so no frame of the copy
 * says of another one that it was synced that the copy does not have. */
#include "base/mem.h"
#include "base/plant.h"
#include "engine/local/wal_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES (1024 * 1024)

void wal_hold(struct wal *w)
{
    pthread_mutex_lock(&w->mutex);
    w->held = true;
    w->floor_held = w->floor_synced;
    pthread_mutex_unlock(&w->mutex);
}

void wal_let_go(struct wal *w)
{
    pthread_mutex_lock(&w->mutex);
    w->held = false;
    pthread_mutex_unlock(&w->mutex);
}

/* A segment as it was when the copy began. */
struct copy_source {
    char *path;
    uint64_t number, size;
    uint64_t last; /* what it has behind that was left there by a crash */
};

struct copying {
    struct wal *w;
    const char *to;
    wal_copy_step *step;
    void *ctx;
    struct buf *error;
    uint64_t last; /* the last sequence number that is wanted */
    struct copy_source *sources;
    size_t count;
    char *bytes; /* of the segment at hand */
    /* What was found: the highest floor of any frame, and the frames without a gap behind one. */
    uint64_t floor, run_first, run_next;
};

static int by_number(const void *a, const void *b)
{
    const struct copy_source *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool is_needed(const struct wal *w, const struct segment *s)
{
    return s == w->busy || (s->number > 0 && s->last >= w->floor_held);
}

static void find_sources(struct copying *c)
{
    struct wal *w = c->w;
    pthread_mutex_lock(&w->mutex);
    c->sources = mem_alloc((w->segment_count + 1) * sizeof(*c->sources));
    for (size_t i = 0; i < w->segment_count; i++) {
        const struct segment *s = w->segments[i];
        if (is_needed(w, s))
            c->sources[c->count++] = (struct copy_source){mem_dup(s->path, strlen(s->path)),
                                                          s->number, s->size, s->last};
    }
    pthread_mutex_unlock(&w->mutex);
    if (c->count > 1)
        qsort(c->sources, c->count, sizeof(*c->sources), by_number);
}

uint64_t wal_copy_bytes(struct wal *w)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&w->mutex);
    for (size_t i = 0; i < w->segment_count; i++)
        bytes += is_needed(w, w->segments[i]) ? w->segments[i]->size : 0;
    pthread_mutex_unlock(&w->mutex);
    return bytes;
}

static bool read_whole(const char *path, char *out, uint64_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0;
    while (fd >= 0 && at < size) {
        ssize_t got = pread(fd, out + at, size - at, (off_t)at);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        at += got > 0 ? (uint64_t)got : 0;
    }
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = at < size && fd >= 0 && reason == 0 ? EIO : reason;
    return at == size;
}

/* Keeps the frames that belong, and tells whether there is a head to belong to. A segment that was
 * taken into use after the copy began may still have the head of an older life; or one of its own,
 * which knows of frames that the copy does not have. */
static bool keep_frames(struct copying *c, const struct copy_source *s)
{
    const struct frame_key *key = &c->w->key;
    struct frame head, f;
    if (!frame_read(c->bytes, s->size, &head) || head.kind != FRAME_SEGMENT ||
        !frame_sealed(c->bytes, &head, key) ||
        frame_get_u64(c->bytes + frame_body(&head)) != s->number || head.seq > c->last + 1)
        return false;
    uint64_t last = s->last < c->last ? s->last : c->last;
    c->floor = head.floor > c->floor ? head.floor : c->floor;
    for (uint64_t at = frame_size(head.len), end; at < s->size; at = end) {
        bool wanted = frame_read(c->bytes + at, s->size - at, &f) && f.epoch == head.epoch &&
                      f.format == head.format && f.kind != FRAME_SEGMENT && f.seq <= last &&
                      f.seq >= head.seq && frame_sealed(c->bytes + at, &f, key);
        end = at + (wanted ? frame_size(f.len) : FRAME_ALIGN);
        end = end > s->size ? s->size : end;
        if (!wanted) {
            memset(c->bytes + at, 0, end - at);
            continue;
        }
        if (f.seq != c->run_next)
            c->run_first = f.seq;
        c->run_next = f.seq + 1;
        c->floor = f.floor > c->floor ? f.floor : c->floor;
    }
    return true;
}

static enum status write_out(struct copying *c, int fd, uint64_t size, const char *path)
{
    enum status status = STATUS_OK;
    for (uint64_t at = 0; !status && at < size;) {
        uint64_t len = size - at < STEP_BYTES ? size - at : STEP_BYTES;
        ssize_t put = pwrite(fd, c->bytes + at, len, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return wal_refuse(c->error, "cannot write", path);
        at += (uint64_t)put;
        status = c->step(c->ctx, (uint64_t)put, c->error);
    }
    if (!status && fsync(fd) != 0)
        status = wal_refuse(c->error, "cannot sync", path);
    return status;
}

static enum status copy_segment(struct copying *c, const struct copy_source *s)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", c->to, strrchr(s->path, '/') + 1);
    c->bytes = mem_realloc(c->bytes, s->size);
    enum status status = STATUS_OK;
    if (!read_whole(s->path, c->bytes, s->size)) {
        status = wal_refuse(c->error, "cannot read", s->path);
    } else if (keep_frames(c, s)) {
        int fd = open(buf_cstr(&path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
        status = fd >= 0 ? write_out(c, fd, s->size, path.data)
                         : wal_refuse(c->error, "cannot create", path.data);
        if (fd >= 0)
            close(fd);
    }
    buf_fini(&path);
    return status;
}

/* Whether the copy starts with its floor, or before, and ends with the last one, without a gap. */
static bool is_complete(const struct copying *c)
{
    if (c->last < c->floor)
        return c->last + 1 == c->floor || c->floor == 0;
    return c->run_next == c->last + 1 && c->run_first <= (c->floor > 0 ? c->floor : 1);
}

enum status wal_copy(struct wal *w, const char *to, wal_copy_step *step, void *ctx,
                     struct buf *error)
{
    struct copying c = {.w = w, .to = to, .step = step, .ctx = ctx, .error = error};
    c.last = wal_written(w);
    if (PLANTED(BACKUP_EARLY))
        c.last -= c.last > w->floor_held + 50 ? 50 : 0;
    find_sources(&c);
    enum status status = mkdir(to, 0750) < 0 ? wal_refuse(error, "cannot create", to) : STATUS_OK;
    for (size_t i = 0; !status && i < c.count; i++)
        status = copy_segment(&c, &c.sources[i]);
    if (!status && !is_complete(&c)) {
        buf_printf(error, "the log in %s cannot be read as it was written; is the disk damaged?",
                   w->dir);
        status = STATUS_ENGINE_UNAVAILABLE;
    }
    for (size_t i = 0; i < c.count; i++)
        free(c.sources[i].path);
    free(c.sources);
    free(c.bytes);
    return status;
}
