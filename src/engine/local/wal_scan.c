/* Reading the log at start: which frames are there, which of them are the log, and whether what is
 * missing was lost or never finished. */
#include "base/mem.h"
#include "base/plant.h"
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
    uint64_t synced, floor; /* the highest that any frame of the log knows of */
    struct buf *error;
};

/* The end of it, or when it is only looked at a sentence, and on with the rest. */
static enum status met(const struct scan *scan, enum status status)
{
    const struct wal *w = scan->w;
    if (!status || !w->damage)
        return status;
    w->damage(w->damage_ctx, buf_cstr(scan->error));
    buf_clear(scan->error);
    return STATUS_OK;
}

/* Who only looks at the log has zeros for a block that the disk does not give. */
static bool pass_over(const struct scan *scan, const struct segment *s, char *out, uint64_t *at)
{
    if (!scan->w->damage)
        return false;
    uint64_t end = (*at / WAL_BLOCK + 1) * WAL_BLOCK;
    end = end > s->size ? s->size : end;
    memset(out + *at, 0, end - *at);
    buf_printf(scan->error, "cannot read %s offset %llu: %s", s->path, (unsigned long long)*at,
               strerror(errno));
    *at = end;
    return met(scan, STATUS_ENGINE_UNAVAILABLE) == STATUS_OK;
}

/* The page cache may hold what a failed sync never wrote, so it is not asked. */
static bool read_past_cache(const struct scan *scan, const struct segment *s, char *out)
{
    if (!scan->w->damage && fdatasync(s->fd) != 0)
        return false;
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
    for (uint64_t at = 0; at < s->size;) {
        ssize_t got = pread(s->fd, out + at, s->size - at, (off_t)at);
        if (got <= 0 && !(got < 0 && errno == EINTR) && !pass_over(scan, s, out, &at))
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
    return read_past_cache(scan, s, scan->bytes);
}

static enum status add_file(struct scan *scan, const char *name)
{
    struct segment *s = mem_zalloc(sizeof(*s));
    struct buf path = {0};
    buf_printf(&path, "%s/%s", scan->w->dir, name);
    s->path = buf_take(&path);
    s->fd = open(s->path, (scan->w->damage ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    struct stat st;
    if (s->fd < 0 || fstat(s->fd, &st) < 0) {
        enum status status = wal_refuse(scan->error, "cannot open", s->path);
        wal_free_segment(s);
        return met(scan, status);
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

static bool all_zeros(const char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static void believe(struct scan *scan, const struct frame *f)
{
    scan->synced = f->synced > scan->synced ? f->synced : scan->synced;
    scan->floor = f->floor > scan->floor ? f->floor : scan->floor;
}

/* A segment that was never begun is all zeros. In format 1 its beginning could reach the disk after
 * what follows it. */
static enum status read_blank(struct scan *scan, const struct segment *s)
{
    uint64_t looked_at = scan->w->old && s->size > WAL_BLOCK ? WAL_BLOCK : s->size;
    if (all_zeros(scan->bytes, looked_at))
        return STATUS_OK;
    buf_printf(scan->error, "the log is damaged: %s does not begin as a segment does, offset 0",
               s->path);
    return STATUS_ENGINE_UNAVAILABLE;
}

/* What a segment is, by its first frame. One of the format that the log does not have holds
 * nothing, but its number is taken. */
static enum status read_beginning(struct scan *scan, struct segment *s)
{
    struct wal *w = scan->w;
    struct frame f;
    if (!frame_read(scan->bytes, s->size, &f) || f.kind != FRAME_SEGMENT ||
        !frame_sealed(scan->bytes, &f, &w->key))
        return read_blank(scan, s);
    uint64_t number = frame_get_u64(scan->bytes + frame_body(&f));
    if ((f.format == 1) != w->old) {
        w->number = number > w->number ? number : w->number;
        return STATUS_OK;
    }
    s->number = number;
    s->epoch = f.epoch;
    s->first = f.seq;
    believe(scan, &f);
    return STATUS_OK;
}

/* For who only looks: a segment whose beginning is damaged is what its latest frame belongs to. Its
 * number is found later, by its place among the others. Frames of format 1 have no seal: without a
 * beginning that vouches for them they may be a part of a payload. */
static void revive(struct scan *scan, struct segment *s)
{
    struct frame f, latest = {0};
    uint64_t first = UINT64_MAX;
    for (int turn = 0; turn < 2; turn++) {
        for (uint64_t at = 0; at < s->size; at += FRAME_ALIGN) {
            if (!frame_read(scan->bytes + at, s->size - at, &f) || f.kind == FRAME_SEGMENT ||
                f.format == 1 || !frame_sealed(scan->bytes + at, &f, &scan->w->key))
                continue;
            if (turn == 0 && f.seq > latest.seq)
                latest = f;
            if (turn == 1 && f.epoch == latest.epoch && f.seq < first)
                first = f.seq;
        }
    }
    if (latest.seq == 0)
        return;
    s->number = UINT64_MAX;
    s->epoch = latest.epoch;
    s->first = first;
}

/* Looks for a frame of this life of the segment. The epoch first: whoever does not know it costs us
 * no look at a body. */
static bool find_frame(const struct scan *scan, const struct segment *s, uint64_t at,
                       struct frame *f)
{
    const char *bytes = scan->bytes + at;
    return frame_read(bytes, s->size - at, f) && (f->epoch == s->epoch || PLANTED(ANY_EPOCH)) &&
           (f->format == 1) == scan->w->old && frame_sealed(bytes, f, &scan->w->key);
}

/* Every frame of the segment, also those behind damage: all of them tell what was synced. */
static void read_frames(struct scan *scan, struct segment *s)
{
    struct frame f;
    for (uint64_t at = FRAME_ALIGN; s->number > 0 && at < s->size;) {
        if (!find_frame(scan, s, at, &f)) {
            at += FRAME_ALIGN;
            continue;
        }
        believe(scan, &f);
        uint64_t body = at + frame_body(&f);
        if (f.kind != FRAME_SEGMENT)
            add_found(scan->w, &(struct wal_found){.seq = f.seq,
                                                   .offset = body,
                                                   .len = f.len,
                                                   .segment = s,
                                                   .kind = (uint8_t)f.kind});
        at = frame_end(body + f.len);
    }
}

static enum status read_segment(struct scan *scan, struct segment *s)
{
    if (!load(scan, s))
        return wal_refuse(scan->error, "cannot read", s->path);
    enum status status = read_beginning(scan, s);
    if (status && scan->w->damage)
        revive(scan, s);
    status = met(scan, status);
    if (!status)
        read_frames(scan, s);
    return status;
}

static int by_first(const void *a, const void *b)
{
    const struct segment *x = *(struct segment *const *)a, *y = *(struct segment *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Those that were revived have no number: all get new ones, in the same order. */
static void renumber(struct wal *w)
{
    uint64_t number = 0;
    if (w->segment_count > 1)
        qsort(w->segments, w->segment_count, sizeof(struct segment *), by_first);
    for (size_t i = 0; i < w->segment_count; i++) {
        if (w->segments[i]->number > 0)
            w->segments[i]->number = ++number;
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
            if (met(scan, STATUS_ENGINE_UNAVAILABLE))
                return STATUS_ENGINE_UNAVAILABLE;
        }
        w->number = s->number > w->number ? s->number : w->number;
    }
    return STATUS_OK;
}

static enum status missing(struct scan *scan, uint64_t seq, const struct wal_found *before)
{
    const struct wal *w = scan->w;
    buf_printf(scan->error, "the log is damaged: record %llu", (unsigned long long)seq);
    if (before && before->seq < before->segment->last) {
        buf_printf(scan->error, " is not readable, %s offset %llu", before->segment->path,
                   (unsigned long long)frame_end(before->offset + before->len));
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
        bool belongs = f->seq >= f->segment->first && f->seq <= f->segment->last;
        if (w->damage && belongs && f->seq > next && next <= scan->synced) {
            met(scan, missing(scan, next, kept > 0 ? &w->found[kept - 1] : NULL));
            w->gap = f->seq - 1;
            next = f->seq;
        }
        if (f->seq == next && belongs) {
            w->found[kept++] = *f;
            next++;
        }
    }
    if (next <= scan->synced) {
        enum status status = missing(scan, next, kept > 0 ? &w->found[kept - 1] : NULL);
        if (met(scan, status))
            return status;
    }
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
    for (size_t i = 0; !status && i < w->segment_count; i++)
        status = read_segment(&scan, w->segments[i]);
    if (!status && w->damage)
        renumber(w);
    if (!status)
        status = find_ends(&scan);
    if (!status)
        status = find_log(&scan);
    free(scan.bytes);
    return status;
}
