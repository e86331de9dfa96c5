/* Faults from inside: preloaded into a server, this stands between it and the C library.
 *
 * A page that the test shares with the server says what is to happen, and counts what did:
 *   - every call that changes a file below one folder is numbered; the n-th one can be
 *     killed before or after it took effect, with or without the disk's power, fail, do
 *     only half of its work, or hang until something else is to happen. So can reads of
 *     RocksDB's tables, if they are asked for;
 *   - the n-th allocation can fail;
 *   - the wall clock can be any time off.
 * Calls are counted over all threads, which strace does not do, and cost next to nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum action { NOTHING, KILL_BEFORE, KILL_AFTER, FAIL, HALF, CUT_BEFORE, CUT_AFTER, HANG };

#define SHUTDOWN    _IOR('X', 125, uint32_t) /* of ext4 and xfs: nothing more reaches the disk */
#define WITHOUT_LOG 2

/* The names of these stand in the same order in shim.py. */
struct page {
    atomic_llong calls;  /* numbered so far */
    atomic_llong at;     /* the number to act on; 0: none */
    atomic_llong every;  /* … and on all that follow */
    atomic_llong action; /* enum action */
    atomic_llong error;  /* errno, for FAIL */
    atomic_llong kinds;  /* bit per enum kind: which calls are numbered */
    atomic_llong fired;
    atomic_llong allocations;
    atomic_llong fail_allocation;
    atomic_llong clock_ms; /* added to the wall clock */
    char folder[1024];
    char power[1024]; /* a folder on the file system to shut down */
    char last[64];    /* the call that was acted on */
};

enum kind { KIND_WRITE, KIND_SYNC, KIND_NAME, KIND_SIZE, KIND_READ };

#define FD_MAX 65536
static struct page *page;
static atomic_uchar ours[FD_MAX]; /* descriptors of files below the folder; TABLE: of a table */
#define TABLE 2

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("FAULT_PAGE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *at = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    page = at == MAP_FAILED ? NULL : at;
}

static bool below(const char *path)
{
    return page && path && strncmp(path, page->folder, strlen(page->folder)) == 0;
}

static bool is_ours(int fd)
{
    return fd >= 0 && fd < FD_MAX && atomic_load(&ours[fd]);
}

static void note(int fd, const char *path)
{
    bool table = below(path) && strlen(path) > 4 && strcmp(path + strlen(path) - 4, ".sst") == 0;
    if (fd >= 0 && fd < FD_MAX)
        atomic_store(&ours[fd], table ? TABLE : below(path));
}

static bool is_table(int fd)
{
    return fd >= 0 && fd < FD_MAX && atomic_load(&ours[fd]) == TABLE;
}

/* The power fails. A sync that is under way when ext4 shuts down may return 0 although nothing was
 * written, so from here on no call returns: who has no power answers nobody. */
static atomic_bool over;

static void cut(void)
{
    uint32_t how = WITHOUT_LOG;
    atomic_store(&over, true);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, page->power, O_RDONLY);
    if (fd < 0 || ioctl(fd, SHUTDOWN, &how) < 0)
        snprintf(page->last, sizeof(page->last), "no shutdown");
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Numbers a call, and says what is to be done about it. */
static enum action meet(bool counts, enum kind kind, const char *name)
{
    if (!counts || !page || !(atomic_load(&page->kinds) >> kind & 1))
        return NOTHING;
    long long number = atomic_fetch_add(&page->calls, 1) + 1, at = atomic_load(&page->at);
    if (at == 0 || number < at || (number > at && !atomic_load(&page->every)))
        return NOTHING;
    atomic_fetch_add(&page->fired, 1);
    snprintf(page->last, sizeof(page->last), "%s", name);
    enum action action;
    while ((action = (enum action)atomic_load(&page->action)) == HANG)
        usleep(1000);
    if (action == CUT_BEFORE)
        cut();
    if (action == KILL_BEFORE || action == CUT_BEFORE)
        die();
    return action;
}

static void after(enum action action)
{
    while (atomic_load(&over))
        pause();
    if (action == CUT_AFTER)
        cut();
    if (action == KILL_AFTER || action == CUT_AFTER)
        die();
}

static int failed(void)
{
    errno = (int)atomic_load(&page->error);
    return -1;
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

#define AROUND(type, counts, kind, name, ...)                                                      \
    do {                                                                                           \
        static __typeof__(&name) next;                                                             \
        if (!next)                                                                                 \
            next = REAL(name);                                                                     \
        enum action action = meet(counts, kind, #name);                                            \
        if (action == FAIL || action == HALF)                                                      \
            return failed();                                                                       \
        type result = next(__VA_ARGS__);                                                           \
        after(action);                                                                             \
        return result;                                                                             \
    } while (0)

/* Names */

static int open_file(int dir, const char *path, int flags, mode_t mode, const char *name)
{
    static __typeof__(&openat) next;
    if (!next)
        next = REAL(openat);
    bool makes = flags & (O_CREAT | O_TRUNC);
    enum action action = meet(makes && below(path), KIND_NAME, name);
    if (action == FAIL || action == HALF)
        return failed();
    int fd = next(dir, path, flags, mode);
    note(fd, path);
    after(action);
    return fd;
}

#define MODE(flags, mode)                                                                          \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode = va_arg(args, mode_t);                                                               \
        va_end(args);                                                                              \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags, mode, "open");
}

int open64(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags, mode, "open");
}

int openat(int dir, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(dir, path, flags, mode, "openat");
}

int openat64(int dir, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(dir, path, flags, mode, "openat");
}

int __open_2(const char *path, int flags)
{
    return open_file(AT_FDCWD, path, flags, 0, "open");
}

int __open64_2(const char *path, int flags)
{
    return open_file(AT_FDCWD, path, flags, 0, "open");
}

int close(int fd)
{
    static __typeof__(&close) next;
    if (!next)
        next = REAL(close);
    note(fd, NULL);
    return next(fd);
}

int rename(const char *from, const char *to)
{
    AROUND(int, below(to), KIND_NAME, rename, from, to);
}

int unlink(const char *path)
{
    AROUND(int, below(path), KIND_NAME, unlink, path);
}

int mkdir(const char *path, mode_t mode)
{
    AROUND(int, below(path), KIND_NAME, mkdir, path, mode);
}

int link(const char *from, const char *to)
{
    AROUND(int, below(to), KIND_NAME, link, from, to);
}

/* Sizes */

int ftruncate(int fd, off_t size)
{
    AROUND(int, is_ours(fd), KIND_SIZE, ftruncate, fd, size);
}

int ftruncate64(int fd, off_t size)
{
    AROUND(int, is_ours(fd), KIND_SIZE, ftruncate64, fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    AROUND(int, is_ours(fd), KIND_SIZE, fallocate, fd, mode, at, len);
}

int fallocate64(int fd, int mode, off_t at, off_t len)
{
    AROUND(int, is_ours(fd), KIND_SIZE, fallocate64, fd, mode, at, len);
}

int posix_fallocate(int fd, off_t at, off_t len)
{
    AROUND(int, is_ours(fd), KIND_SIZE, posix_fallocate, fd, at, len);
}

/* Bytes. A write may also do half of its work, as the kernel may. */

#define HALVED(len) ((len) > 1 ? (len) / 2 : (len))
#define AROUND_WRITE(name, len, whole, part)                                                       \
    do {                                                                                           \
        static __typeof__(&name) next;                                                             \
        if (!next)                                                                                 \
            next = REAL(name);                                                                     \
        enum action action = meet(is_ours(fd), KIND_WRITE, #name);                                 \
        if (action == FAIL)                                                                        \
            return failed();                                                                       \
        ssize_t result = action == HALF ? part : whole;                                            \
        after(action);                                                                             \
        return result;                                                                             \
    } while (0)

ssize_t write(int fd, const void *data, size_t len)
{
    AROUND_WRITE(write, len, next(fd, data, len), next(fd, data, HALVED(len)));
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    AROUND_WRITE(pwrite, len, next(fd, data, len, at), next(fd, data, HALVED(len), at));
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at)
{
    AROUND_WRITE(pwrite64, len, next(fd, data, len, at), next(fd, data, HALVED(len), at));
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    AROUND_WRITE(writev, count, next(fd, parts, count), next(fd, parts, HALVED(count)));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    AROUND_WRITE(pwritev, count, next(fd, parts, count, at), next(fd, parts, HALVED(count), at));
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    AROUND_WRITE(pwritev2, count, next(fd, parts, count, at, flags),
                 next(fd, parts, HALVED(count), at, flags));
}

/* Reads */

ssize_t pread(int fd, void *data, size_t len, off_t at)
{
    AROUND(ssize_t, is_table(fd), KIND_READ, pread, fd, data, len, at);
}

ssize_t pread64(int fd, void *data, size_t len, off64_t at)
{
    AROUND(ssize_t, is_table(fd), KIND_READ, pread64, fd, data, len, at);
}

/* Syncs */

int fsync(int fd)
{
    AROUND(int, is_ours(fd), KIND_SYNC, fsync, fd);
}

int fdatasync(int fd)
{
    AROUND(int, is_ours(fd), KIND_SYNC, fdatasync, fd);
}

int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags)
{
    AROUND(int, is_ours(fd), KIND_SYNC, sync_file_range, fd, at, len, flags);
}

/* The wall clock; the others are nobody's to set. */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static __typeof__(&clock_gettime) next;
    if (!next)
        next = REAL(clock_gettime);
    int result = next(clock, now);
    if (page && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long off_ms = atomic_load(&page->clock_ms),
                  ns = now->tv_nsec + off_ms % 1000 * 1000000;
        now->tv_sec += off_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec at;
    int result = clock_gettime(CLOCK_REALTIME, &at);
    *now = (struct timeval){at.tv_sec, at.tv_nsec / 1000};
    return result;
}

time_t time(time_t *out)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out)
        *out = at.tv_sec;
    return at.tv_sec;
}

/* Memory */

static bool denied(void)
{
    if (!page)
        return false;
    long long number = atomic_fetch_add(&page->allocations, 1) + 1;
    if (number != atomic_load(&page->fail_allocation))
        return false;
    atomic_fetch_add(&page->fired, 1);
    errno = ENOMEM;
    return true;
}

#define ALLOCATE(name, ...)                                                                        \
    do {                                                                                           \
        static __typeof__(&name) next;                                                             \
        if (!next)                                                                                 \
            next = REAL(name);                                                                     \
        return denied() ? NULL : next(__VA_ARGS__);                                                \
    } while (0)

void *malloc(size_t size)
{
    ALLOCATE(malloc, size);
}

void *calloc(size_t count, size_t size)
{
    ALLOCATE(calloc, count, size);
}

void *realloc(void *old, size_t size)
{
    ALLOCATE(realloc, old, size);
}

/* What C++ calls, which an allocator may not send through malloc. */

void *_Znwm(size_t size)
{
    void *got = malloc(size ? size : 1);
    if (!got)
        ((void (*)(void))real("_ZSt17__throw_bad_allocv"))();
    return got;
}

void *_Znam(size_t size)
{
    return _Znwm(size);
}
