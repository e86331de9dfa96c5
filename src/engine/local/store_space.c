/* The disk: whether there is room for more, and how a full one gets room again.
 *
 * RocksDB must never meet the end of the disk. A compaction that does leaves what it has written
 * lying for a second; a flush or a segment of the log that is wanted in that second fails, and the
 * engine with it. And from then on RocksDB compacts only what would fit if nothing in it were
 * deleted, which after a drain may be never. So enqueues are refused while there is still room for
 * the log, for what is in memory only, and for the largest compaction that RocksDB may come to
 * think of: all of level 0, whatever has piled up there, into all of level 1. */
#include "base/clock.h"
#include "engine/local/store_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define LOOK_PAUSE_US    (50 * 1000)
#define SQUEEZE_PAUSE_US (STORE_TEND_MS * 1000)
#define SQUEEZES_MAX     32 /* enough for a compaction of level 0, and for all levels down */
#define PATIENT_US       (10 * 1000 * 1000)
#define LEVELS           7 /* RocksDB's default */
#define COPIES           2 /* of what is stored: in the log and in a table */

static uint64_t free_bytes(const struct store *s)
{
    struct statvfs fs;
    return statvfs(s->dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static uint64_t property(const struct store *s, int f, const char *name)
{
    uint64_t value = 0;
    rocksdb_property_int_cf(s->db, s->families[f], name, &value);
    return value;
}

/* What is not in tables yet, the memtables that are being flushed among it. */
static uint64_t memory_bytes(const struct store *s)
{
    return property(s, STORE_HOT, "rocksdb.cur-size-all-mem-tables") +
           property(s, STORE_COLD, "rocksdb.cur-size-all-mem-tables");
}

static bool compacting(struct store *s)
{
    uint64_t running = 0;
    rocksdb_property_int(s->db, "rocksdb.num-running-compactions", &running);
    return running > 0;
}

/* The largest input of a compaction: levels 0 and 1 of a family. One runs at a time. */
static uint64_t compaction_bytes(struct store *s)
{
    uint64_t sums[STORE_FAMILIES] = {0};
    const rocksdb_livefiles_t *files = rocksdb_livefiles(s->db);
    int count = rocksdb_livefiles_count(files);
    for (int i = 0; i < count; i++) {
        bool cold = strcmp(rocksdb_livefiles_column_family_name(files, i), "cold") == 0;
        if (rocksdb_livefiles_level(files, i) <= 1)
            sums[cold ? STORE_COLD : STORE_HOT] += rocksdb_livefiles_size(files, i);
    }
    rocksdb_livefiles_destroy(files);
    return sums[STORE_HOT] > sums[STORE_COLD] ? sums[STORE_HOT] : sums[STORE_COLD];
}

/* What a compaction has written so far: the space will be free when it is done, or its input's. */
static uint64_t unfinished_bytes(struct store *s)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/store", s->dir);
    DIR *dir = opendir(path);
    uint64_t tables = property(s, STORE_HOT, "rocksdb.total-sst-files-size") +
                      property(s, STORE_COLD, "rocksdb.total-sst-files-size");
    uint64_t there = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        struct stat st;
        if (len > 4 && strcmp(e->d_name + len - 4, ".sst") == 0 &&
            fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
            there += (uint64_t)st.st_size;
    }
    if (dir)
        closedir(dir);
    return there > tables ? there - tables : 0;
}

/* Free space that is not for messages: four buffers for the log and two for flushes, beside what a
 * compaction needs. */
uint64_t store_reserve(struct store *s)
{
    if (s->space.reserve > 0)
        return s->space.reserve;
    uint64_t wanted = 6 * s->buffer_bytes + compaction_bytes(s);
    return wanted > s->space.need_min ? wanted : s->space.need_min;
}

void space_init(struct store *s, uint64_t reserve, uint64_t need_min)
{
    s->space.reserve = reserve;
    s->space.need_min = need_min;
    atomic_store(&s->space.room, INT64_MAX);
}

bool space_for(const struct store *s, uint64_t bytes)
{
    return free_bytes(s) > bytes + s->buffer_bytes / 4;
}

void store_space_look(struct store *s)
{
    struct space *p = &s->space;
    uint64_t there = free_bytes(s), floor = p->reserve ? p->reserve : p->need_min;
    if (there == UINT64_MAX)
        return;
    atomic_store(&p->free, there);
    atomic_store(&p->scarce, there < 4 * floor);
    if (there < 4 * floor)
        atomic_store(&p->scarce_us, clock_mono_us());
    uint64_t done = atomic_load(&p->done); /* first: it never gets ahead of what was stored */
    uint64_t pending = atomic_load(&p->stored) - done;
    if (!atomic_load(&p->scarce)) {
        atomic_store(&p->room, (int64_t)(there - floor - COPIES * pending));
        return;
    }
    uint64_t taken = store_reserve(s) + memory_bytes(s) + COPIES * pending;
    if (there < taken && compacting(s))
        there += unfinished_bytes(s);
    atomic_store(&p->room, (int64_t)(there - taken));
}

enum status store_space(struct store *s)
{
    return atomic_load_explicit(&s->space.room, memory_order_relaxed) < 0 ? STATUS_STORAGE_FULL
                                                                          : STATUS_OK;
}

enum status store_space_take(struct store *s, uint64_t bytes)
{
    struct space *p = &s->space;
    if (atomic_load_explicit(&p->room, memory_order_relaxed) < (int64_t)(COPIES * bytes)) {
        atomic_store(&p->refused, true);
        return STATUS_STORAGE_FULL;
    }
    atomic_fetch_add_explicit(&p->stored, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&p->room, (int64_t)(COPIES * bytes), memory_order_relaxed);
    return STATUS_OK;
}

void store_space_done(struct store *s, uint64_t bytes)
{
    atomic_fetch_add_explicit(&s->space.done, bytes, memory_order_relaxed);
}

uint64_t store_space_free(struct store *s)
{
    return atomic_load(&s->space.free);
}

/* A full disk */

/* Often while messages leave. When nothing leaves any more there is soon nothing to gain. */
static bool squeeze_due(struct store *s, uint64_t now_us)
{
    struct space *p = &s->space;
    uint64_t seq = atomic_load(&s->applied);
    if (seq != p->squeezed_seq)
        p->squeezes = 0;
    p->squeezed_seq = seq;
    uint64_t pause_us = p->squeezes < SQUEEZES_MAX ? SQUEEZE_PAUSE_US : PATIENT_US;
    return now_us >= p->squeezed_us + pause_us && !compacting(s);
}

static uint64_t level_files(const struct store *s, int f, int level)
{
    char name[] = "rocksdb.num-files-at-level0";
    name[sizeof(name) - 2] = (char)('0' + level);
    char *text = rocksdb_property_value_cf(s->db, s->families[f], name);
    uint64_t files = text ? strtoull(text, NULL, 10) : 0;
    rocksdb_free(text);
    return files;
}

/* A suggestion leaves level 0 alone when nothing is below it. Then its own rule has to act, by the
 * number of files: one more, that says again what is said already. */
static enum status nudge(struct store *s, int f, struct buf *error)
{
    uint64_t files = level_files(s, f, 0), below = 0;
    for (int level = 1; level < LEVELS; level++)
        below += level_files(s, f, level);
    return files > 0 && below == 0 ? store_note_position(s, f, error) : STATUS_OK;
}

/* Deletions free space once they are in tables and have met there what they delete. Usually that
 * can wait until a memtable is full of them; a full disk never fills one. */
static enum status squeeze(struct store *s, struct buf *error)
{
    enum status status = wal_sync(s->wal, error);
    for (int f = 0; f < STORE_FAMILIES && !status; f++) {
        if (s->unflushed[f].bytes == 0)
            status = nudge(s, f, error);
        if (!status && s->unflushed[f].bytes > 0 && space_for(s, s->unflushed[f].bytes))
            status = store_flush(s, f, false, error);
        char *message = NULL;
        rocksdb_suggest_compact_range_cf(s->db, s->families[f], NULL, 0, NULL, 0, &message);
        rocksdb_free(message); /* it was a suggestion */
    }
    store_kick_keeper(s);
    return status;
}

enum status store_tend(struct store *s, struct buf *error)
{
    struct space *p = &s->space;
    uint64_t now_us = clock_mono_us();
    if (now_us < p->looked_us + LOOK_PAUSE_US &&
        wal_bytes(s->wal) < p->looked_log + s->segment_bytes)
        return STATUS_OK;
    p->looked_us = now_us;
    p->looked_log = wal_bytes(s->wal);
    store_space_look(s);
    bool full = atomic_exchange(&p->refused, false) || store_space(s) != STATUS_OK;
    if (!full || !squeeze_due(s, now_us))
        return STATUS_OK;
    p->squeezed_us = now_us;
    p->squeezes++;
    return squeeze(s, error);
}
