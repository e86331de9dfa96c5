#define _GNU_SOURCE /* nftw */
#include "engine/local/tree.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_MAX_FOLDERS 8
#define STEP_BYTES       (1024 * 1024)

enum status tree_refuse(struct buf *error, const char *what, const char *path)
{
    int reason = errno;
    buf_printf(error, "%s %s: %s", what, path, strerror(reason));
    return reason == ENOSPC || reason == EDQUOT ? STATUS_STORAGE_FULL : STATUS_ENGINE_UNAVAILABLE;
}

static int sync_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)at;
    if (type == FTW_SL)
        return 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok ? 0 : -1;
}

bool tree_sync(const char *path)
{
    return nftw(path, sync_one, OPEN_MAX_FOLDERS, FTW_PHYS | FTW_DEPTH) == 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

bool tree_remove(const char *path)
{
    return nftw(path, remove_one, OPEN_MAX_FOLDERS, FTW_PHYS | FTW_DEPTH) == 0;
}

static _Thread_local uint64_t counted; /* nftw hands on no context */

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)at;
    counted += type == FTW_F ? (uint64_t)st->st_size : 0;
    return 0;
}

uint64_t tree_bytes(const char *path)
{
    counted = 0;
    nftw(path, count_one, OPEN_MAX_FOLDERS, FTW_PHYS);
    return counted;
}

static enum status copy_bytes(int in, int out, const char *from, const char *to, tree_step *step,
                              void *ctx, struct buf *error)
{
    char *bytes = mem_alloc(STEP_BYTES);
    enum status status = STATUS_OK;
    for (ssize_t got; !status && (got = read(in, bytes, STEP_BYTES)) != 0;) {
        if (got < 0 && errno != EINTR)
            status = tree_refuse(error, "cannot read", from);
        else if (got > 0 && !file_write_all(out, bytes, (size_t)got))
            status = tree_refuse(error, "cannot write", to);
        else if (got > 0)
            status = step(ctx, (uint64_t)got, error);
    }
    free(bytes);
    if (!status && fsync(out) != 0)
        status = tree_refuse(error, "cannot sync", to);
    return status;
}

enum status tree_copy_file(const char *from, const char *to, tree_step *step, void *ctx,
                           struct buf *error)
{
    struct stat st;
    int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0) {
        enum status status = tree_refuse(error, "cannot open", from);
        if (in >= 0)
            close(in);
        return status;
    }
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st.st_mode & 0777);
    enum status status = out < 0 ? tree_refuse(error, "cannot create", to)
                                 : copy_bytes(in, out, from, to, step, ctx, error);
    close(in);
    if (out >= 0)
        close(out);
    return status;
}

enum status tree_copy_files(const char *from, const char *to, tree_step *step, void *ctx,
                            struct buf *error)
{
    DIR *dir = opendir(from);
    if (!dir)
        return tree_refuse(error, "cannot read", from);
    enum status status = mkdir(to, 0750) < 0 ? tree_refuse(error, "cannot create", to) : STATUS_OK;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (e->d_type == DT_DIR)
            continue;
        struct buf in = {0}, out = {0};
        buf_printf(&in, "%s/%s", from, e->d_name);
        buf_printf(&out, "%s/%s", to, e->d_name);
        status = tree_copy_file(buf_cstr(&in), buf_cstr(&out), step, ctx, error);
        buf_fini(&in);
        buf_fini(&out);
    }
    closedir(dir);
    return status;
}
