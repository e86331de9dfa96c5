#include "engine/local/ending.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define LINE_MAX_BYTES 64

static size_t put_line(char line[LINE_MAX_BYTES], uint64_t seq)
{
    char number[24];
    int len = snprintf(number, sizeof(number), "%llu", (unsigned long long)seq);
    return (size_t)snprintf(line, LINE_MAX_BYTES, "%s %016llx\n", number,
                            (unsigned long long)XXH3_64bits(number, (size_t)len));
}

static void path_of(const char *dir, struct buf *path)
{
    buf_printf(path, "%s/END", dir);
}

bool ending_write(const char *dir, uint64_t seq)
{
    struct buf path = {0};
    char line[LINE_MAX_BYTES];
    path_of(dir, &path);
    bool ok = file_replace(buf_cstr(&path), line, put_line(line, seq), 0640);
    int reason = errno;
    buf_fini(&path);
    errno = reason;
    return ok;
}

/* The line has to be exactly what would be written for its number. */
static bool parse(const char *text, size_t len, uint64_t *seq)
{
    char line[LINE_MAX_BYTES];
    uint64_t number = strtoull(text, NULL, 10);
    if (put_line(line, number) != len || memcmp(line, text, len) != 0)
        return false;
    *seq = number;
    return true;
}

bool ending_read(const char *dir, uint64_t *seq, struct buf *error)
{
    struct buf path = {0};
    char text[LINE_MAX_BYTES + 1] = "";
    path_of(dir, &path);
    int fd = open(buf_cstr(&path), O_RDONLY | O_CLOEXEC);
    bool none = fd < 0 && errno == ENOENT;
    ssize_t got = fd >= 0 ? read(fd, text, LINE_MAX_BYTES) : -1;
    if (fd >= 0)
        close(fd);
    *seq = 0;
    bool ok = none || (got > 0 && parse(text, (size_t)got, seq));
    if (!ok)
        buf_printf(error, "%s is damaged: whether the log is whole cannot be said",
                   buf_cstr(&path));
    buf_fini(&path);
    return ok;
}

bool ending_reached(const char *dir, uint64_t ending, uint64_t log_end, struct buf *error)
{
    if (log_end >= ending)
        return true;
    buf_printf(
        error,
        "%s/log ends at record %llu, and %s/END says that it went on to record %llu: its end "
        "is damaged or was taken away",
        dir, (unsigned long long)log_end, dir, (unsigned long long)ending);
    return false;
}
