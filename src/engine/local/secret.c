#include "engine/local/secret.h"
#include "base/file.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define DIGITS     ((size_t)2 * SECRET_BYTES)
#define LINE_BYTES (DIGITS + 1 + 16 + 1)

static void put_line(struct buf *out, const uint8_t secret[SECRET_BYTES])
{
    for (size_t i = 0; i < SECRET_BYTES; i++)
        buf_printf(out, "%02x", secret[i]);
    buf_printf(out, " %016llx\n", (unsigned long long)XXH3_64bits(secret, SECRET_BYTES));
}

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The line has to be exactly what would be written for these bytes. */
static bool get_line(const char *line, size_t len, uint8_t secret[SECRET_BYTES])
{
    if (len != LINE_BYTES)
        return false;
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        int high = digit_value(line[2 * i]), low = digit_value(line[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        secret[i] = (uint8_t)(high << 4 | low);
    }
    struct buf again = {0};
    put_line(&again, secret);
    bool same = again.len == len && memcmp(again.data, line, len) == 0;
    buf_fini(&again);
    return same;
}

static enum status refuse(struct buf *error, const char *what, const char *path)
{
    buf_printf(error, "cannot %s %s: %s", what, path, strerror(errno));
    return STATUS_ENGINE_UNAVAILABLE;
}

static enum status make_file(const char *path, uint8_t secret[SECRET_BYTES], struct buf *error)
{
    struct buf line = {0};
    random_bytes(secret, SECRET_BYTES);
    put_line(&line, secret);
    enum status status =
        file_replace(path, line.data, line.len, 0600) ? STATUS_OK : refuse(error, "write", path);
    buf_fini(&line);
    return status;
}

static enum status read_file(const char *path, bool make, uint8_t secret[SECRET_BYTES],
                             struct buf *error)
{
    char line[LINE_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make)
        return make_file(path, secret, error);
    if (fd < 0 && errno == ENOENT) {
        buf_printf(error,
                   "%s is missing, and without it the log cannot be read; put it back from where "
                   "this directory was copied from",
                   path);
        return STATUS_ENGINE_UNAVAILABLE;
    }
    ssize_t got = fd >= 0 ? read(fd, line, sizeof(line)) : -1;
    if (got < 0) {
        enum status status = refuse(error, "read", path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    close(fd);
    if (get_line(line, (size_t)got, secret))
        return STATUS_OK;
    buf_printf(error,
               "%s is damaged, and without it the log cannot be read; put it back from a backup",
               path);
    return STATUS_ENGINE_UNAVAILABLE;
}

enum status secret_open(const char *dir, bool make, uint8_t out[SECRET_BYTES], struct buf *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s/KEY", dir);
    enum status status = read_file(buf_cstr(&path), make, out, error);
    buf_fini(&path);
    return status;
}
