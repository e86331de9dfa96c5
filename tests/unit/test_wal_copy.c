#include "base/mem.h"
#include "engine/local/frame.h"
#include "engine/local/wal.h"
#include "folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCK   4096
#define SEGMENT (16 * BLOCK)

static const uint8_t secret[SECRET_BYTES] = "a secret of thirty-two bytes ...";

static char dir[FOLDER_PATH_MAX], copies[FOLDER_PATH_MAX];
static struct wal *wal;
static struct buf error;
static char copy_path[FOLDER_PATH_MAX + 16];
static unsigned copy_count;

static struct {
    uint32_t first, next, count;
    bool gap;
} seen;

static enum status on_record(void *ctx, uint64_t seq, const char *data, size_t len,
                             struct buf *failure)
{
    uint32_t number;
    (void)ctx, (void)seq, (void)failure;
    assert_true(len >= sizeof(number));
    memcpy(&number, data, sizeof(number));
    if (seen.count++ == 0)
        seen.first = number;
    else if (number != seen.next)
        seen.gap = true;
    seen.next = number + 1;
    return STATUS_OK;
}

static int setup(void **state)
{
    (void)state;
    folder_make(dir);
    folder_make(copies);
    struct wal_options options = {
        .dir = dir, .segment_bytes = SEGMENT, .direct = true, .secret = secret};
    assert_int_equal(wal_open(&options, &wal, &error), STATUS_OK);
    assert_int_equal(wal_start(wal, 1, &error), STATUS_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wal_close(wal);
    wal = NULL;
    buf_fini(&error);
    folder_remove(dir);
    folder_remove(copies);
    return 0;
}

static void put(uint32_t number, size_t len)
{
    char *bytes = mem_zalloc(len);
    memcpy(bytes, &number, sizeof(number));
    struct wal_part part = {bytes, len};
    struct buf failure = {0};
    assert_int_equal(wal_append(wal, &part, 1, &failure), STATUS_OK);
    assert_int_equal(wal_sync(wal, &failure), STATUS_OK);
    free(bytes);
}

static void put_all(uint32_t from, uint32_t to, size_t len)
{
    for (uint32_t i = from; i <= to; i++)
        put(i, len);
}

static void (*meanwhile)(void); /* done once, when the first bytes are copied */

static enum status on_step(void *ctx, uint64_t bytes, struct buf *failure)
{
    (void)failure;
    *(uint64_t *)ctx += bytes;
    if (meanwhile)
        meanwhile();
    meanwhile = NULL;
    return STATUS_OK;
}

static void copy(void)
{
    uint64_t bytes = 0;
    snprintf(copy_path, sizeof(copy_path), "%s/%u", copies, copy_count++);
    enum status status = wal_copy(wal, copy_path, on_step, &bytes, &error);
    assert_int_equal(status, STATUS_OK);
    assert_true(bytes >= SEGMENT);
}

static void read_copy(wal_damage *damage)
{
    struct wal *w = NULL;
    memset(&seen, 0, sizeof(seen));
    struct wal_options options = {
        .dir = copy_path, .segment_bytes = SEGMENT, .secret = secret, .damage = damage};
    enum status status = wal_open(&options, &w, &error);
    if (status)
        fail_msg("%s", buf_cstr(&error));
    assert_int_equal(wal_replay(w, on_record, NULL, &error), STATUS_OK);
    wal_close(w);
}

static void assert_copied(uint32_t from, uint32_t to)
{
    read_copy(NULL);
    assert_false(seen.gap);
    assert_int_equal(seen.count, to - from + 1);
    assert_int_equal(seen.first, from);
}

static void wal_copy_has_what_was_written_and_nothing_later(void **state)
{
    (void)state;
    wal_hold(wal);
    copy();
    read_copy(NULL);
    assert_int_equal(seen.count, 0); /* of a log without a record */
    put_all(1, 50, 3000);
    copy();
    put_all(51, 60, 3000);
    wal_let_go(wal);
    assert_copied(1, 50);
}

/* What is in tables after a checkpoint is not in those of the checkpoint. */
static void wal_copy_goes_back_to_where_it_was_held(void **state)
{
    (void)state;
    put_all(1, 20, 100);
    wal_recycle(wal, 11);
    put_all(21, 25, 100);
    wal_hold(wal);
    wal_recycle(wal, 26);
    put_all(26, 30, 100);
    copy();
    wal_let_go(wal);
    assert_copied(11, 30);
    wal_recycle(wal, 31);
    put(31, 100);
    wal_hold(wal);
    copy();
    wal_let_go(wal);
    assert_copied(31, 31);
}

static void write_much(void)
{
    for (uint32_t i = 101; i <= 400; i++) {
        put(i, 4000);
        wal_recycle(wal, i);
    }
}

/* Also what the disk knows to be needless since it was held: the frames of the copy do not. */
static void wal_writes_over_nothing_that_a_copy_needs(void **state)
{
    (void)state;
    put_all(1, 100, 4000);
    wal_recycle(wal, 90); /* which no frame has said yet */
    wal_hold(wal);
    meanwhile = write_much;
    copy();
    wal_let_go(wal);
    assert_copied(1, 100);
}

static atomic_uint written;
static atomic_bool stop;

static void *write_on(void *arg)
{
    (void)arg;
    for (uint32_t i = 1; !atomic_load(&stop); i++) {
        put(i, 500 + i % 7 * 1000);
        atomic_store(&written, i);
        if (i % 50 == 0) {
            wal_recycle(wal, i - 20);
            wal_prepare(wal, 1);
        }
    }
    return NULL;
}

static void wal_copies_are_whole_while_it_is_written(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&written, 0);
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, write_on, NULL), 0);
    for (int turn = 0; turn < 60; turn++) {
        uint32_t before = atomic_load(&written);
        wal_hold(wal);
        copy();
        wal_let_go(wal);
        uint32_t after = atomic_load(&written);
        read_copy(NULL);
        assert_false(seen.gap);
        assert_true(before == 0 || seen.next > before);
        assert_true(seen.count == 0 || seen.next <= after + 2);
        folder_remove(copy_path);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

/* Looking */

static unsigned told;

static void on_damage(void *ctx, const char *sentence)
{
    (void)ctx;
    assert_non_null(strstr(sentence, "wal"));
    told++;
}

static void overwrite(size_t offset)
{
    char path[sizeof(copy_path) + 16];
    snprintf(path, sizeof(path), "%s/000.wal", copy_path);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "????????", 8, (off_t)offset), 8);
    close(fd);
}

static void wal_that_is_looked_at_gives_what_is_readable(void **state)
{
    (void)state;
    put_all(1, 10, 100);
    copy();
    overwrite(4 * BLOCK + FRAME_HEAD + 50); /* record 4 has the fifth block */
    told = 0;
    read_copy(on_damage);
    assert_int_equal(told, 1);
    assert_int_equal(seen.count, 9);
    overwrite(0); /* and how the segment begins */
    told = 0;
    read_copy(on_damage);
    assert_int_equal(told, 2);
    assert_int_equal(seen.count, 9);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wal_copy_has_what_was_written_and_nothing_later),
        TEST(wal_copy_goes_back_to_where_it_was_held),
        TEST(wal_writes_over_nothing_that_a_copy_needs),
        TEST(wal_copies_are_whole_while_it_is_written),
        TEST(wal_that_is_looked_at_gives_what_is_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
