#define _GNU_SOURCE /* renameat2 */
#include "engine/local/backup.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/local/tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME_MAX_BYTES 128
#define PARTIAL        ".partial"
#define MIB            (1024.0 * 1024)

struct backups {
    struct store *store;
    const char *dir; /* where they are made; empty: nowhere */
    pthread_mutex_t mutex;
    struct engine_backup_progress progress; /* under the mutex */
};

/* One that is being made. */
struct making {
    struct backups *all;
    struct engine_backup *backup;
    char partial[BACKUP_PATH_MAX + sizeof(PARTIAL)];
};

struct backups *backups_new(struct store *store, const char *backup_dir)
{
    struct backups *b = mem_zalloc(sizeof(*b));
    b->store = store;
    b->dir = backup_dir ? backup_dir : "";
    pthread_mutex_init(&b->mutex, NULL);
    return b;
}

void backups_free(struct backups *b)
{
    assert(!b->progress.running);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

void backup_tell(struct backups *b, struct engine_backup_progress *p)
{
    pthread_mutex_lock(&b->mutex);
    *p = b->progress;
    pthread_mutex_unlock(&b->mutex);
}

/* Which directory is meant */

static bool name_valid(const char *name)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name), tail = strlen(PARTIAL);
    return len > 0 && len <= NAME_MAX_BYTES && name[0] != '.' && strspn(name, known) == len &&
           (len < tail || strcmp(name + len - tail, PARTIAL) != 0);
}

/* The name alone, of a path that lies right in the folder for backups. */
static const char *name_of(const char *dir, const char *path)
{
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (path[0] != '/')
        return path;
    bool inside = strncmp(path, dir, len) == 0 && path[len] == '/';
    return inside ? path + len + 1 : "";
}

static enum status find_place(const struct backups *all, struct making *m)
{
    struct engine_backup *b = m->backup;
    if (!*all->dir) {
        buf_puts(&b->error, "The setting backup_dir says where backups may be made, and is empty; "
                            "set it and start the server again.");
        return STATUS_BACKUP_UNAVAILABLE;
    }
    const char *name = name_of(all->dir, b->directory);
    int len = snprintf(b->path, sizeof(b->path), "%s/%s", all->dir, name);
    if (!name_valid(name) || len < 0 || (size_t)len >= sizeof(b->path)) {
        b->path[0] = '\0';
        buf_printf(&b->error,
                   "directory must be a new name in %s, of 1 to %d of the characters A-Z a-z 0-9 "
                   ". _ - that neither begins with a dot nor ends with " PARTIAL ".",
                   all->dir, NAME_MAX_BYTES);
        return STATUS_INVALID_FIELD;
    }
    snprintf(m->partial, sizeof(m->partial), "%s" PARTIAL, b->path);
    return STATUS_OK;
}

/* A failure to make the folder is the caller's when something of that name is there. */
static enum status make_folder(struct making *m)
{
    struct buf *error = &m->backup->error;
    struct stat st;
    if (lstat(m->backup->path, &st) == 0) {
        buf_printf(error, "%s is there already; choose another name.", m->backup->path);
        return STATUS_INVALID_FIELD;
    }
    if (mkdir(m->partial, 0750) == 0)
        return STATUS_OK;
    if (errno == EEXIST) {
        buf_printf(error,
                   "%s is there, of a backup that was cut off or is being made by another server; "
                   "remove it, or choose another name.",
                   m->partial);
        return STATUS_INVALID_FIELD;
    }
    return tree_refuse(error, "cannot create", m->partial);
}

/* Making it */

static enum status say_full(struct making *m, uint64_t wanted)
{
    buf_printf(&m->backup->error,
               "the disk has not enough room: the backup needs %.0f MiB, and %.0f MiB are to stay "
               "free",
               (double)wanted / MIB, (double)store_reserve(m->all->store) / MIB);
    return STATUS_STORAGE_FULL;
}

static enum status on_step(void *ctx, uint64_t bytes, struct buf *error)
{
    struct making *m = ctx;
    struct store *store = m->all->store;
    m->backup->bytes += bytes;
    pthread_mutex_lock(&m->all->mutex);
    m->all->progress.bytes = m->backup->bytes;
    uint64_t total = m->all->progress.bytes_total;
    pthread_mutex_unlock(&m->all->mutex);
    if (atomic_load(m->backup->cancel)) {
        buf_puts(error, "the backup was stopped; nothing of it is left");
        return STATUS_DRAINING;
    }
    if (store_room(store, m->partial) || store_room(store, store_dir(store)))
        return say_full(m, total);
    return STATUS_OK;
}

static enum status look_for_room(struct making *m)
{
    uint64_t wanted = store_copy_bytes(m->all->store, m->partial);
    struct statvfs fs;
    pthread_mutex_lock(&m->all->mutex);
    m->all->progress.bytes_total = wanted;
    pthread_mutex_unlock(&m->all->mutex);
    if (statvfs(m->partial, &fs) != 0)
        return tree_refuse(&m->backup->error, "cannot look at", m->partial);
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return free_bytes < wanted + store_reserve(m->all->store) ? say_full(m, wanted) : STATUS_OK;
}

/* What stands in FORMAT keeps a server from starting on it, until it is a number. */
static enum status put_format(struct making *m, const char *text)
{
    char path[sizeof(m->partial) + 16];
    snprintf(path, sizeof(path), "%s/FORMAT", m->partial);
    if (file_replace(path, text, strlen(text), 0640))
        return STATUS_OK;
    return tree_refuse(&m->backup->error, "cannot write", path);
}

/* Never over something else. Not every file system can say so; then there was nothing a moment
 * ago. */
static bool rename_new(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
           (errno == EINVAL && access(to, F_OK) != 0 && rename(from, to) == 0);
}

static enum status give_name(struct making *m)
{
    char number[16];
    snprintf(number, sizeof(number), "%d\n", STORE_FORMAT);
    if (!tree_sync(m->partial))
        return tree_refuse(&m->backup->error, "cannot sync", m->partial);
    enum status status = put_format(m, number);
    if (status)
        return status;
    if (!rename_new(m->partial, m->backup->path))
        return tree_refuse(&m->backup->error, "cannot finish", m->partial);
    if (!folder_sync(m->all->dir))
        return tree_refuse(&m->backup->error, "cannot sync", m->all->dir);
    return STATUS_OK;
}

static enum status fill(struct making *m)
{
    enum status status = look_for_room(m);
    if (!status)
        status = put_format(m, "an unfinished backup\n");
    if (!status)
        status = store_copy(m->all->store, m->partial, on_step, m, &m->backup->moment_ms,
                            &m->backup->error);
    return status ? status : give_name(m);
}

static bool begin(struct backups *all, const struct engine_backup *b)
{
    struct engine_backup_progress *p = &all->progress;
    pthread_mutex_lock(&all->mutex);
    bool free = !p->running;
    if (free) {
        p->running = true;
        p->started_ms = clock_now().wall_ms;
        p->bytes = p->bytes_total = 0;
        snprintf(p->path, sizeof(p->path), "%s", b->path);
    }
    pthread_mutex_unlock(&all->mutex);
    return free;
}

static void end(struct backups *all, const struct engine_backup *b, enum status status)
{
    pthread_mutex_lock(&all->mutex);
    all->progress.running = false;
    all->progress.made += !status;
    all->progress.failed += status != STATUS_OK;
    if (!status)
        all->progress.last_moment_ms = b->moment_ms;
    pthread_mutex_unlock(&all->mutex);
}

enum status backup_make(struct backups *all, struct engine_backup *b)
{
    struct making m = {.all = all, .backup = b};
    uint64_t started_us = clock_mono_us();
    b->bytes = 0;
    enum status status = find_place(all, &m);
    if (status)
        return status;
    if (!begin(all, b)) {
        buf_puts(&b->error, "One backup is made at a time; GET /v1/admin/backup shows how far the "
                            "other one is.");
        return STATUS_BACKUP_RUNNING;
    }
    status = make_folder(&m);
    if (!status) {
        status = fill(&m);
        if (status)
            tree_remove(m.partial);
    }
    if (status == STATUS_ENGINE_UNAVAILABLE) /* a file could not be written: the engine goes on */
        status = STATUS_BACKUP_UNAVAILABLE;
    b->took_ms = (int64_t)((clock_mono_us() - started_us) / 1000);
    end(all, b, status);
    return status;
}
