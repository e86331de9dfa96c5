/* Reading the log at start: which frames are there, which of them are the log, and whether what is
 * missing was lost or never finished. */
#include "base/mem.h"
#include "engine/local/wal_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct scan {
    struct wal *w;
    char *bytes; /* of the segment at hand */
    size_t cap;
    uint64_t synced, floor; /* the highest that any frame knows of */
    struct buf *error;
};

/* The page cache may hold what a failed sync never wrote, so it is not asked. */
static bool read_past_cache(const struct segment *s, char *out)
{
    if (fdatasync(s->fd) != 0)
        return false;
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
    for (uint64_t at = 0; at < s->size;) {
        ssize_t got = pread(s->fd, out + at, s->size - at, (off_t)at);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        at += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool load(struct scan *scan, const struct segment *s)
{
    if (scan->cap < s->size) {
        scan->bytes = mem_realloc(scan->bytes, s->size);
        scan->cap = s->size;
    }
    return read_past_cache(s, scan->bytes);
}

static enum status add_file(struct scan *scan, const char *name)
{
    struct segment *s = mem_zalloc(sizeof(*s));
    struct buf path = {0};
    buf_printf(&path, "%s/%s", scan->w->dir, name);
    s->path = buf_take(&path);
    s->fd = open(s->path, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (s->fd < 0 || fstat(s->fd, &st) < 0) {
        enum status status = wal_refuse(scan->error, "cannot open", s->path);
        wal_free_segment(s);
        return status;
    }
    s->size = (uint64_t)st.st_size;
    wal_add_segment(scan->w, s);
    return STATUS_OK;
}

/* Other files are not ours to touch. */
static bool is_segment_name(const char *name)
{
    unsigned slot;
    int end = 0;
    return sscanf(name, "%6u.wal%n", &slot, &end) == 1 && end > 0 && name[end] == '\0';
}

static enum status find_files(struct scan *scan)
{
    DIR *dir = opendir(scan->w->dir);
    if (!dir)
        return wal_refuse(scan->error, "cannot read", scan->w->dir);
    enum status status = STATUS_OK;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (is_segment_name(e->d_name))
            status = add_file(scan, e->d_name);
    }
    closedir(dir);
    return status;
}

static void add_found(struct wal *w, const struct wal_found *f)
{
    if (w->found_count == w->found_cap) {
        w->found_cap = w->found_cap ? w->found_cap * 2 : 256;
        w->found = mem_realloc(w->found, w->found_cap * sizeof(*w->found));
    }
    w->found[w->found_count++] = *f;
}

/* Every frame of a segment, also those behind damage and those that an older life of the file left:
 * all of them tell what was synced, those of its epoch may be the log. */
static void read_frames(struct scan *scan, struct segment *s)
{
    struct frame f;
    for (uint64_t at = 0; at < s->size;) {
        if (!frame_open(scan->bytes + at, s->size - at, &f)) {
            at += FRAME_ALIGN;
            continue;
        }
        scan->synced = f.synced > scan->synced ? f.synced : scan->synced;
        scan->floor = f.floor > scan->floor ? f.floor : scan->floor;
        if (f.kind == FRAME_SEGMENT && at == 0) {
            s->number = frame_get_u64(scan->bytes + FRAME_HEAD);
            s->epoch = f.epoch;
            s->first = f.seq;
        } else if (f.kind != FRAME_SEGMENT && s->number > 0 && f.epoch == s->epoch) {
            add_found(scan->w, &(struct wal_found){.seq = f.seq,
                                                   .offset = at + FRAME_HEAD,
                                                   .len = f.len,
                                                   .segment = s,
                                                   .kind = (uint8_t)f.kind});
        }
        at += frame_size(f.len);
    }
}

static int by_number(const void *a, const void *b)
{
    const struct segment *x = *(struct segment *const *)a, *y = *(struct segment *const *)b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_place(const void *a, const void *b)
{
    const struct wal_found *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment->number < y->segment->number ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* A segment ends where the next one begins; what it has behind that was left there by a crash. */
static enum status find_ends(struct scan *scan)
{
    struct wal *w = scan->w;
    if (w->segment_count > 1)
        qsort(w->segments, w->segment_count, sizeof(struct segment *), by_number);
    for (size_t i = 0; i < w->segment_count; i++) {
        struct segment *s = w->segments[i];
        struct segment *next = i + 1 < w->segment_count ? w->segments[i + 1] : NULL;
        if (s->number == 0)
            continue;
        s->last = next ? next->first - 1 : UINT64_MAX;
        if (next && (next->number == s->number || next->first < s->first)) {
            buf_printf(scan->error, "%s and %s do not belong to one log", s->path, next->path);
            return STATUS_ENGINE_UNAVAILABLE;
        }
        w->number = s->number;
    }
    return STATUS_OK;
}

static enum status missing(struct scan *scan, uint64_t seq, const struct wal_found *before)
{
    const struct wal *w = scan->w;
    buf_printf(scan->error, "the log is damaged: record %llu", (unsigned long long)seq);
    if (before && before->seq < before->segment->last) {
        uint64_t head = before->offset - FRAME_HEAD;
        buf_printf(scan->error, " is not readable, %s offset %llu", before->segment->path,
                   (unsigned long long)(head + frame_size(before->len)));
        return STATUS_ENGINE_UNAVAILABLE;
    }
    for (size_t i = 0; i < w->segment_count; i++) {
        const struct segment *s = w->segments[i];
        if (s->number > 0 && s->first <= seq && seq <= s->last) {
            buf_printf(scan->error, " is not readable, %s offset %d", s->path, WAL_BLOCK);
            return STATUS_ENGINE_UNAVAILABLE;
        }
    }
    buf_printf(scan->error, " is in no segment of %s; one is missing, or its start is damaged",
               w->dir);
    return STATUS_ENGINE_UNAVAILABLE;
}

/* Keeps of the frames those that are the log, without a gap from the floor on. */
static enum status find_log(struct scan *scan)
{
    struct wal *w = scan->w;
    size_t kept = 0;
    uint64_t next = scan->floor;
    if (w->found_count > 1)
        qsort(w->found, w->found_count, sizeof(*w->found), by_place);
    for (size_t i = 0; i < w->found_count; i++) {
        const struct wal_found *f = &w->found[i];
        if (f->seq == next && f->seq >= f->segment->first && f->seq <= f->segment->last) {
            w->found[kept++] = *f;
            next++;
        }
    }
    if (next <= scan->synced)
        return missing(scan, next, kept > 0 ? &w->found[kept - 1] : NULL);
    w->found_count = kept;
    w->next = next;
    w->synced = next - 1;
    w->floor = w->floor_synced = w->floor_written = scan->floor;
    for (size_t i = 0; i < w->segment_count; i++) {
        struct segment *s = w->segments[i];
        s->last = s->number > 0 && s->last > w->synced ? w->synced : s->last;
    }
    return STATUS_OK;
}

enum status wal_scan(struct wal *w, struct buf *error)
{
    struct scan scan = {.w = w, .floor = 1, .error = error};
    enum status status = find_files(&scan);
    for (size_t i = 0; !status && i < w->segment_count; i++) {
        struct segment *s = w->segments[i];
        if (load(&scan, s))
            read_frames(&scan, s);
        else
            status = wal_refuse(error, "cannot read", s->path);
    }
    if (!status)
        status = find_ends(&scan);
    if (!status)
        status = find_log(&scan);
    free(scan.bytes);
    return status;
}
