#include "base/file.h"
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fsync(fd) == 0;
    int reason = errno;
    close(fd);
    errno = reason;
    return ok;
}

bool file_sync_name(const char *path)
{
    struct buf folder = {0};
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    buf_put(&folder, len > 0 ? path : "./", len > 0 ? len : 2);
    bool ok = folder_sync(buf_cstr(&folder));
    int reason = errno;
    buf_fini(&folder);
    errno = reason;
    return ok;
}

bool file_write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

static bool write_new(const char *path, const void *data, size_t len, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return false;
    bool ok = file_write_all(fd, data, len) && fsync(fd) == 0;
    int reason = errno;
    close(fd);
    errno = reason;
    return ok;
}

bool file_replace(const char *path, const void *data, size_t len, mode_t mode)
{
    struct buf unfinished = {0};
    buf_printf(&unfinished, "%s.new", path);
    bool ok = write_new(buf_cstr(&unfinished), data, len, mode) &&
              rename(buf_cstr(&unfinished), path) == 0 && file_sync_name(path);
    int reason = errno;
    buf_fini(&unfinished);
    errno = reason;
    return ok;
}

bool file_read(const char *path, struct buf *out)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0)
        return false;
    ssize_t n;
    do {
        buf_reserve(out, 65536);
        n = read(fd, out->data + out->len, 65536);
        if (n > 0)
            out->len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int error = errno;
    if (path)
        close(fd);
    errno = error;
    return n == 0;
}
