/* A copy of the directory while it is written.
 *
 * The tables come first, as a checkpoint of RocksDB: links to files that never change, and the list
 * of them, at one moment. Memtables are not flushed for it, since only the writer may do that. The
 * log comes second, up to a moment that is later, so it has all that the tables lack, and replay
 * gives each family what is behind its own number. It is held from before the first until after the
 * second: no frame of the copy says that something is in tables which the copied ones lack.
 *
 * On another file system there are no links. There the checkpoint is made beside the store, and
 * then copied file by file, when the log is already free again. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/local/ending.h"
#include "engine/local/store_impl.h"
#include "engine/local/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Beside log and store. */
static const char *const single_files[] = {"KEY"};

static char *path_in(const char *dir, const char *name)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", dir, name);
    return buf_take(&path);
}

const char *store_dir(const struct store *s)
{
    return s->dir;
}

enum status store_room(struct store *s, const char *path)
{
    struct statvfs fs;
    if (statvfs(path, &fs) != 0)
        return STATUS_ENGINE_UNAVAILABLE;
    return (uint64_t)fs.f_bavail * fs.f_frsize < store_reserve(s) ? STATUS_STORAGE_FULL : STATUS_OK;
}

static bool same_disk(const struct store *s, const char *to)
{
    struct stat here, there;
    return stat(s->dir, &here) == 0 && stat(to, &there) == 0 && here.st_dev == there.st_dev;
}

uint64_t store_copy_bytes(struct store *s, const char *to)
{
    uint64_t bytes = wal_copy_bytes(s->wal);
    if (!same_disk(s, to)) {
        char *store = path_in(s->dir, "store");
        bytes += tree_bytes(store);
        free(store);
    }
    return bytes;
}

static enum status checkpoint(struct store *s, const char *to, struct buf *error)
{
    char *message = NULL;
    rocksdb_checkpoint_t *c = rocksdb_checkpoint_object_create(s->db, &message);
    if (!message)
        rocksdb_checkpoint_create(c, to, UINT64_MAX /* without a flush */, &message);
    if (c)
        rocksdb_checkpoint_object_destroy(c);
    return message ? store_failure(message, error) : STATUS_OK;
}

static enum status copy_moment(struct store *s, const char *tables, const char *log,
                               store_copy_step *step, void *ctx, int64_t *moment_ms, uint64_t *end,
                               struct buf *error)
{
    wal_hold(s->wal);
    enum status status = checkpoint(s, tables, error);
    *moment_ms = clock_now().wall_ms;
    *end = wal_written(s->wal);
    if (!status)
        status = wal_copy(s->wal, log, step, ctx, error);
    wal_let_go(s->wal);
    return status;
}

static enum status copy_single(const struct store *s, const char *to, const char *name,
                               store_copy_step *step, void *ctx, struct buf *error)
{
    char *from = path_in(s->dir, name), *copy = path_in(to, name);
    enum status status = STATUS_OK;
    if (access(from, F_OK) == 0)
        status = tree_copy_file(from, copy, step, ctx, error);
    free(from);
    free(copy);
    return status;
}

enum status store_copy(struct store *s, const char *to, store_copy_step *step, void *ctx,
                       int64_t *moment_ms, struct buf *error)
{
    char *log = path_in(to, "log"), *tables = path_in(to, "store"),
         *links = path_in(s->dir, "links");
    bool linked = same_disk(s, to);
    uint64_t end;
    enum status status =
        copy_moment(s, linked ? tables : links, log, step, ctx, moment_ms, &end, error);
    if (!status && !linked)
        status = tree_copy_files(links, tables, step, ctx, error);
    for (size_t i = 0; !status && i < sizeof(single_files) / sizeof(single_files[0]); i++)
        status = copy_single(s, to, single_files[i], step, ctx, error);
    if (!status && !ending_write(to, end))
        status = tree_refuse(error, "cannot write END in", to);
    store_copy_forget(s);
    free(log);
    free(tables);
    free(links);
    return status;
}

void store_copy_forget(const struct store *s)
{
    static const char *const names[] = {"links", "links.tmp"}; /* RocksDB's, before it is whole */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = path_in(s->dir, names[i]);
        if (access(path, F_OK) == 0)
            tree_remove(path);
        free(path);
    }
}
