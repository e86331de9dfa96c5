#include "engine/local/store.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/local/ending.h"
#include "engine/local/store_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OPEN_BYTES ((uint64_t)256 * 1024) /* free, for what RocksDB writes when it opens */
#define MIB        (1024ULL * 1024)
#define LOG_FATAL  4 /* of RocksDB's levels; above it is only the header */

struct store_iter {
    rocksdb_iterator_t *it;
    rocksdb_readoptions_t *read;
    struct key upper; /* RocksDB borrows it */
};

/* The directory */

static enum status refuse(struct buf *error, const char *what, const char *path)
{
    buf_printf(error, "%s %s: %s", what, path, strerror(errno));
    return STATUS_ENGINE_UNAVAILABLE;
}

static enum status lock_directory(struct store *s, struct buf *error)
{
    char path[4096];
    if (mkdir(s->dir, 0750) < 0 && errno != EEXIST) {
        bool orphan = errno == ENOENT;
        enum status status = refuse(error, "cannot create", s->dir);
        buf_puts(error, orphan ? "; create the folder that it is to be in" : "");
        return status;
    }
    snprintf(path, sizeof(path), "%s/LOCK", s->dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (s->lock_fd < 0)
        return refuse(error, "cannot open", path);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return STATUS_OK;
    if (errno != EWOULDBLOCK)
        return refuse(error, "cannot lock", path);
    buf_printf(error, "%s is in use by another triaged; stop it or choose another directory",
               s->dir);
    return STATUS_ENGINE_UNAVAILABLE;
}

enum status store_format(const char *dir, long *format, struct buf *error)
{
    char path[4096], text[32] = "";
    snprintf(path, sizeof(path), "%s/FORMAT", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? STATUS_OK : refuse(error, "cannot open", path);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    char *end;
    *format = got > 0 ? strtol(text, &end, 10) : 0;
    if (*format >= 1 && *format <= STORE_FORMAT)
        return STATUS_OK;
    if (*format > STORE_FORMAT)
        buf_printf(error, "%s has format %ld, and this triaged knows up to %d; use a newer triaged",
                   dir, *format, STORE_FORMAT);
    else
        buf_printf(error, "%s does not hold a format number; is %s a data directory?", path, dir);
    return STATUS_ENGINE_UNAVAILABLE;
}

/* The name of a new directory is durable before anything in it is promised. Who may not read the
 * folder above cannot see to that. */
static enum status settle_name(const struct store *s, struct buf *error)
{
    if (s->format > 0 || file_sync_name(s->dir) || errno == EACCES)
        return STATUS_OK;
    return refuse(error, "cannot sync the folder of", s->dir);
}

/* A directory gets its secret before it has a log. One that has a log and not its secret was copied
 * without it, unless the log is older than secrets are. */
static enum status get_secret(struct store *s, struct buf *error)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/log", s->dir);
    bool make = s->format > 0 ? s->format < STORE_FORMAT : access(path, F_OK) != 0;
    enum status status = secret_open(s->dir, make, s->secret, error);
    struct stat key;
    snprintf(path, sizeof(path), "%s/KEY", s->dir);
    if (!status && stat(path, &key) == 0 && key.st_mode & (S_IRWXG | S_IRWXO))
        log_warn("others on this machine can read the secret of the log",
                 "file=\"%s\" remedy=\"chmod 600\"", path);
    return status;
}

/* A new directory gets its number, and an older one ours, when all that it stands for is there. */
static enum status settle_format(const struct store *s, struct buf *error)
{
    char path[4096], text[32];
    snprintf(path, sizeof(path), "%s/FORMAT", s->dir);
    int len = snprintf(text, sizeof(text), "%d\n", STORE_FORMAT);
    if (s->format == STORE_FORMAT || file_replace(path, text, (size_t)len, 0640))
        return STATUS_OK;
    return refuse(error, "cannot write", path);
}

/* Options */

/* Drops what nobody will ask for again: dedup keys and history past their time. */
static unsigned char drop_outdated(void *state, int level, const char *key, size_t key_len,
                                   const char *value, size_t value_len, char **new_value,
                                   size_t *new_len, unsigned char *changed)
{
    (void)level, (void)new_value, (void)new_len, (void)changed;
    /* Clocks are set back by less than this, or oddly; and a configuration is durable by then. */
    const int64_t slack_ms = 60000;
    struct store *s = state;
    uint32_t queue;
    int64_t until_ms, history_ms;
    if (!key_parse_queue(key, key_len, &queue))
        return 0;
    if (key[0] == KEY_HISTORY && terms_get(&s->terms, queue, &history_ms) &&
        record_whole_died(value, value_len, &until_ms))
        return until_ms + history_ms + slack_ms < clock_now().wall_ms;
    return key[0] == KEY_DEDUP && record_dedup_until(value, value_len, &until_ms) &&
           until_ms != INT64_MAX && until_ms + slack_ms < clock_now().wall_ms;
}

static void nothing_to_free(void *state)
{
    (void)state;
}

static const char *filter_name(void *state)
{
    (void)state;
    return "triage.outdated";
}

/* How large things may get. On a small disk everything is smaller, so that the log and a compaction
 * fit into the reserve. On a roomy one files may pile up for long before they are compacted: reads
 * are few and in order, and most of what is in them will be deleted before it would have paid off.
 */
struct sizes {
    uint64_t buffer; /* a memtable, when it is flushed */
    int files;       /* in level 0 before they are merged into level 1, which is as large */
    uint64_t
        reserve; /* free space for the log (four buffers), a flush, and twice `files` of output */
};

static struct sizes sizes_for(uint64_t disk_bytes)
{
    bool roomy = disk_bytes >= 32 * 1024 * MIB;
    uint64_t buffer = disk_bytes / 64;
    buffer = buffer > 32 * MIB ? 32 * MIB : buffer < MIB / 4 ? MIB / 4 : buffer;
    struct sizes z = {.buffer = buffer, .files = roomy ? 20 : 6};
    z.reserve = (uint64_t)(2 * z.files + 8) * buffer;
    return z;
}

static rocksdb_options_t *common_options(const struct sizes *z)
{
    rocksdb_options_t *o = rocksdb_options_create();
    /* Out of reach: when to flush is for store_write.c to say. */
    rocksdb_options_set_write_buffer_size(o, z->buffer * 4);
    rocksdb_options_set_max_write_buffer_number(o, 3);
    rocksdb_options_set_target_file_size_base(o, z->buffer);
    rocksdb_options_set_max_bytes_for_level_base(o, z->buffer * (uint64_t)z->files);
    rocksdb_options_set_max_compaction_bytes(o, z->buffer * (uint64_t)z->files);
    rocksdb_options_set_level0_file_num_compaction_trigger(o, z->files);
    rocksdb_options_set_level0_slowdown_writes_trigger(o, z->files * 3);
    rocksdb_options_set_level0_stop_writes_trigger(o, z->files * 5);
    rocksdb_options_set_paranoid_checks(o, 1);
    rocksdb_options_set_compression(o, rocksdb_no_compression);
    return o;
}

static void set_table(struct store *s, rocksdb_options_t *o, bool bloom)
{
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(t, s->cache);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_block_size(t, 16 * 1024);
    if (bloom)
        rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_options_set_block_based_table_factory(o, t);
    rocksdb_block_based_options_destroy(t);
}

/* Files do not take more than is in them: what RocksDB would allocate ahead, four buffers for each
 * flush and 4 MiB for its manifest, is as much as a small disk has left. */
static rocksdb_options_t *without_preallocation(rocksdb_options_t *o)
{
    rocksdb_options_t *without = rocksdb_options_create();
    char *message = NULL;
    rocksdb_get_options_from_string(o, "allow_fallocate=false", without, &message);
    assert(!message);
    rocksdb_options_destroy(o);
    return without;
}

static void make_options(struct store *s, const struct sizes *z)
{
    s->cache = rocksdb_cache_create_lru(32 * MIB);
    s->filter = rocksdb_compactionfilter_create(s, nothing_to_free, drop_outdated, filter_name);

    rocksdb_options_t *db = s->db_options = without_preallocation(common_options(z));
    rocksdb_options_set_create_if_missing(db, 1);
    rocksdb_options_set_create_missing_column_families(db, 1);
    rocksdb_options_set_allow_concurrent_memtable_write(db, 0); /* a vector takes one writer */
    /* RocksDB's own log is empty but in a directory of format 1. There a torn tail is a crash and
     * is cut off; damage before the tail is refused and named. */
    rocksdb_options_set_wal_recovery_mode(db, rocksdb_tolerate_corrupted_tail_records_recovery);
    rocksdb_options_set_max_background_jobs(db, 2);
    rocksdb_options_set_bytes_per_sync(db, 1 * MIB);
    /* Its LOG has the settings and nothing else: RocksDB aborts when it cannot write a line. */
    rocksdb_options_set_info_log_level(db, LOG_FATAL);
    rocksdb_options_set_keep_log_file_num(db, 3);
    rocksdb_options_set_max_log_file_size(db, z->buffer / 4);
    rocksdb_options_set_max_manifest_file_size(db, z->buffer / 4);
    rocksdb_options_set_max_open_files(db, 1000);
    rocksdb_options_set_stats_dump_period_sec(db, 0);

    rocksdb_options_t *hot = s->family_options[STORE_HOT] = common_options(z);
    rocksdb_options_set_memtable_vector_rep(hot);
    set_table(s, hot, false);

    rocksdb_options_t *cold = s->family_options[STORE_COLD] = common_options(z);
    rocksdb_options_set_compaction_filter(cold, s->filter);
    set_table(s, cold, true);
}

/* The error is RocksDB's own sentence; it names the file. */
enum status store_failure(char *message, struct buf *error)
{
    buf_puts(error, message);
    bool full = strstr(message, "No space left") != NULL;
    rocksdb_free(message);
    return full ? STATUS_STORAGE_FULL : STATUS_ENGINE_UNAVAILABLE;
}

/* RocksDB ends the process when the list of its files meets the end of the disk while it opens. */
static enum status look_for_room(const struct store *s, const struct statvfs *fs, struct buf *error)
{
    uint64_t there = (uint64_t)fs->f_bavail * fs->f_frsize;
    if (there >= OPEN_BYTES)
        return STATUS_OK;
    buf_printf(error, "%s is on a disk with %llu KiB free, and a start needs %llu; make room there",
               s->dir, (unsigned long long)there / 1024, (unsigned long long)OPEN_BYTES / 1024);
    return STATUS_STORAGE_FULL;
}

static enum status open_db(struct store *s, struct buf *error)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/store", s->dir);
    const char *names[] = {"default", "cold"};
    const rocksdb_options_t *options[] = {s->family_options[0], s->family_options[1]};
    char *message = NULL;
    s->db =
        rocksdb_open_column_families(s->db_options, path, 2, names, options, s->families, &message);
    return message ? store_failure(message, error) : STATUS_OK;
}

static void set_sizes(struct store *s, const struct sizes *z, uint64_t disk_reserve)
{
    space_init(s, disk_reserve, z->reserve);
    s->buffer_bytes = z->buffer;
    s->segment_bytes = z->buffer / 8 / WAL_BLOCK * WAL_BLOCK;
    s->log_bytes_max = z->buffer * 4;
}

static void make_ways(struct store *s)
{
    s->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(s->write, 1);
    s->flush_now = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(s->flush_now, 1);
    s->flush_later = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(s->flush_later, 0);
    s->read = rocksdb_readoptions_create();
    s->read_tables = rocksdb_readoptions_create();
    rocksdb_readoptions_set_read_tier(s->read_tables, 2); /* kPersistedTier */
}

enum status store_open(const char *dir, uint64_t disk_reserve, bool synced, struct store **out,
                       struct buf *error)
{
    struct store *s = mem_zalloc(sizeof(*s));
    s->dir = mem_dup(dir, strlen(dir));
    s->lock_fd = -1;
    terms_init(&s->terms);
    enum status status = lock_directory(s, error);
    if (!status)
        status = store_format(s->dir, &s->format, error);
    if (!status)
        status = settle_name(s, error);
    if (!status)
        status = get_secret(s, error);
    struct statvfs fs;
    if (!status && statvfs(dir, &fs) < 0)
        status = refuse(error, "cannot look at", dir);
    if (!status)
        status = look_for_room(s, &fs, error);
    if (status) {
        store_close(s);
        return status;
    }
    uint64_t disk_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    struct sizes sizes = sizes_for(disk_bytes);
    set_sizes(s, &sizes, disk_reserve);
    store_copy_forget(s);
    make_options(s, &sizes);
    make_ways(s);
    status = open_db(s, error);
    if (!status)
        status = store_recover(s, synced, error);
    if (!status)
        status = settle_format(s, error);
    if (status) {
        store_close(s);
        return status;
    }
    store_space_look(s);
    store_keeper_start(s);
    *out = s;
    return STATUS_OK;
}

void store_close(struct store *s)
{
    bool served = s->keeper.running;
    store_keeper_stop(s);
    if (served) /* if it cannot be written, the one before is still true */
        (void)ending_write(s->dir, wal_synced(s->wal));
    wal_close(s->wal);
    for (int i = 0; i < 2; i++) {
        if (s->families[i])
            rocksdb_column_family_handle_destroy(s->families[i]);
    }
    if (s->db)
        rocksdb_close(s->db);
    for (int i = 0; i < 2; i++) {
        if (s->family_options[i])
            rocksdb_options_destroy(s->family_options[i]);
    }
    if (s->db_options)
        rocksdb_options_destroy(s->db_options);
    if (s->cache)
        rocksdb_cache_destroy(s->cache);
    if (s->filter)
        rocksdb_compactionfilter_destroy(s->filter);
    if (s->write) {
        rocksdb_writeoptions_destroy(s->write);
        rocksdb_flushoptions_destroy(s->flush_now);
        rocksdb_flushoptions_destroy(s->flush_later);
        rocksdb_readoptions_destroy(s->read);
        rocksdb_readoptions_destroy(s->read_tables);
    }
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    terms_fini(&s->terms);
    free(s->dir);
    free(s);
}

/* Reading */

/* The first key behind all that start with the prefix. Prefixes begin with a letter, so that the
 * carry always ends inside. */
struct key store_key_behind(const struct key *prefix)
{
    struct key k = *prefix;
    while ((unsigned char)k.bytes[k.len - 1] == 0xff)
        k.len--;
    k.bytes[k.len - 1]++;
    return k;
}

bool store_get(struct store *s, enum store_family f, const struct key *k, struct buf *value,
               bool *damaged)
{
    char *message = NULL;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned_cf(s->db, s->read, s->families[f], k->bytes, k->len, &message);
    if (message) {
        *damaged = true;
        rocksdb_free(message);
        return false;
    }
    if (!slice)
        return false;
    size_t len;
    const char *data = rocksdb_pinnableslice_value(slice, &len);
    buf_clear(value);
    buf_put(value, data, len);
    rocksdb_pinnableslice_destroy(slice);
    return true;
}

/* RocksDB says "found" with an empty value when it did not get as far as the value, because a block
 * of an index is not in its cache. No record that is looked for this way is empty. */
enum peek store_peek(struct store *s, enum store_family f, const struct key *k, struct buf *value)
{
    char *data = NULL;
    size_t len = 0;
    unsigned char known = 0;
    bool may_be = rocksdb_key_may_exist_cf(s->db, s->read, s->families[f], k->bytes, k->len, &data,
                                           &len, NULL, 0, &known);
    if (may_be && known && len > 0) {
        buf_clear(value);
        buf_put(value, data, len);
    }
    rocksdb_free(data); /* which it may allocate for a key that is absent, too */
    return !may_be ? PEEK_ABSENT : known && len > 0 ? PEEK_FOUND : PEEK_ELSEWHERE;
}

void store_keeps(struct store *s, uint32_t queue, int64_t history_ms)
{
    if (history_ms < 0)
        terms_drop(&s->terms, queue);
    else
        terms_set(&s->terms, queue, history_ms);
}

struct store_iter *store_iter_open(struct store *s, enum store_family f, const struct key *prefix,
                                   const struct key *from)
{
    struct store_iter *it = mem_alloc(sizeof(*it));
    it->upper = store_key_behind(prefix);
    it->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_iterate_upper_bound(it->read, it->upper.bytes, it->upper.len);
    rocksdb_readoptions_set_fill_cache(it->read, 0);
    it->it = rocksdb_create_iterator_cf(s->db, it->read, s->families[f]);
    const struct key *start = from ? from : prefix;
    rocksdb_iter_seek(it->it, start->bytes, start->len);
    return it;
}

bool store_iter_valid(const struct store_iter *it)
{
    return rocksdb_iter_valid(it->it);
}

void store_iter_next(struct store_iter *it)
{
    rocksdb_iter_next(it->it);
}

const char *store_iter_key(const struct store_iter *it, size_t *len)
{
    return rocksdb_iter_key(it->it, len);
}

const char *store_iter_value(const struct store_iter *it, size_t *len)
{
    return rocksdb_iter_value(it->it, len);
}

bool store_iter_close(struct store_iter *it, struct buf *error)
{
    char *message = NULL;
    rocksdb_iter_get_error(it->it, &message);
    if (message)
        store_failure(message, error);
    rocksdb_iter_destroy(it->it);
    rocksdb_readoptions_destroy(it->read);
    free(it);
    return message == NULL;
}
