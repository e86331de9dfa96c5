#include "unit/wal_rig.h"
#include "base/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const uint8_t secret[SECRET_BYTES] = "a secret of thirty-two bytes ...";
const uint8_t other_secret[SECRET_BYTES] = "another one of thirty-two bytes.";

char dir[FOLDER_PATH_MAX];
struct wal *wal;
struct buf error;

struct wal_seen seen;

int setup(void **state)
{
    (void)state;
    folder_make(dir);
    return 0;
}

void shut(void)
{
    wal_close(wal);
    wal = NULL;
}

int teardown(void **state)
{
    (void)state;
    shut();
    buf_fini(&error);
    free(seen.numbers);
    memset(&seen, 0, sizeof(seen));
    folder_remove(dir);
    return 0;
}

void start_over(void)
{
    teardown(NULL);
    setup(NULL);
}

/* A record's bytes follow from its number and length, so that any other bytes show. */
static void make_record(struct buf *out, uint32_t number, size_t len)
{
    buf_clear(out);
    buf_put(out, &number, sizeof(number));
    for (size_t i = sizeof(number); i < len; i++)
        buf_putc(out, (char)(number * 31 + i * 7));
}

static enum status on_record(void *ctx, uint64_t seq, const char *data, size_t len,
                             struct buf *failure)
{
    (void)ctx, (void)seq, (void)failure;
    uint32_t number;
    assert_true(len >= sizeof(number));
    memcpy(&number, data, sizeof(number));
    struct buf expected = {0};
    make_record(&expected, number, len);
    seen.wrong = seen.wrong || memcmp(expected.data, data, len) != 0;
    buf_fini(&expected);
    if (seen.count == seen.cap) {
        seen.cap = seen.cap ? seen.cap * 2 : 64;
        seen.numbers = mem_realloc(seen.numbers, seen.cap * sizeof(*seen.numbers));
    }
    seen.numbers[seen.count++] = number;
    return STATUS_OK;
}

enum status reopen_as(const uint8_t *with, bool old)
{
    shut();
    buf_clear(&error);
    seen.count = 0;
    struct wal_options options = {
        .dir = dir, .segment_bytes = SEGMENT, .direct = true, .secret = with, .old = old};
    enum status status = wal_open(&options, &wal, &error);
    if (!status)
        assert_int_equal(wal_replay(wal, on_record, NULL, &error), STATUS_OK);
    assert_false(seen.wrong);
    return status;
}

enum status reopen(void)
{
    return reopen_as(secret, false);
}

void start(uint64_t floor)
{
    assert_int_equal(wal_start(wal, floor, &error), STATUS_OK);
}

void append(uint32_t number, size_t len)
{
    struct buf record = {0};
    make_record(&record, number, len);
    struct wal_part parts[] = {{record.data, 3}, {record.data + 3, len - 3}};
    assert_int_equal(wal_append(wal, parts, 2, &error), STATUS_OK);
    buf_fini(&record);
}

void put(uint32_t number, size_t len)
{
    append(number, len);
    assert_int_equal(wal_sync(wal, &error), STATUS_OK);
    assert_int_equal(wal_synced(wal), wal_end(wal));
}

void assert_seen(uint32_t from, uint32_t to)
{
    assert_int_equal(seen.count, to - from + 1);
    for (uint32_t i = 0; i < seen.count; i++)
        assert_int_equal(seen.numbers[i], from + i);
}

void assert_reopens_with(uint32_t from, uint32_t to)
{
    assert_int_equal(reopen(), STATUS_OK);
    assert_seen(from, to);
}

char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

void load(const char *name, struct buf *out)
{
    int fd = open(path_of(name), O_RDONLY);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    buf_clear(out);
    buf_reserve(out, (size_t)st.st_size);
    out->len = (size_t)read(fd, out->data, (size_t)st.st_size);
    assert_int_equal(out->len, st.st_size);
    close(fd);
}

void store(const char *name, const void *data, size_t len)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0640);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

void overwrite(const char *name, size_t offset, const void *data, size_t len)
{
    int fd = open(path_of(name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, len, (off_t)offset), len);
    close(fd);
}

unsigned file_count(void)
{
    unsigned count = 0;
    char name[16];
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "%03u.wal", i);
        count += access(path_of(name), F_OK) == 0;
    }
    return count;
}

void fresh(uint32_t count)
{
    assert_int_equal(reopen(), STATUS_OK);
    assert_true(wal_empty(wal));
    start(1);
    for (uint32_t i = 1; i <= count; i++)
        put(i, 100 + i);
}

size_t next_place(size_t at)
{
    return at % BLOCK < FRAME_HEAD + 120         ? at + 1
           : at + 331 < (at / BLOCK + 1) * BLOCK ? at + 331
                                                 : (at / BLOCK + 1) * BLOCK;
}
