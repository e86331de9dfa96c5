/* The store as a crash leaves it: a child writes and kills itself, the parent opens. */
#include "base/clock.h"
#include "engine/local/store.h"
#include "engine/local/store_impl.h"
#include "folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[FOLDER_PATH_MAX];
static struct store *store;
static struct buf error;

static char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    folder_make(dir);
    return 0;
}

static void close_store(void)
{
    if (store)
        store_close(store);
    store = NULL;
}

static int teardown(void **state)
{
    (void)state;
    close_store();
    buf_fini(&error);
    folder_remove(dir);
    return 0;
}

static enum status open_store(void)
{
    buf_clear(&error);
    return store_open(dir, 1, true, &store, &error);
}

static struct key key_of(char tag, uint32_t n)
{
    struct key k;
    key_queue(&k, (enum key_tag)tag, n);
    return k;
}

static bool commit(struct store_batch *b, bool sync)
{
    bool ok = store_log(store, b, &error) == STATUS_OK;
    ok = ok && store_log_write(store, sync, &error) == STATUS_OK;
    ok = ok && store_apply(store, b, &error) == STATUS_OK;
    store_batch_reset(b);
    return ok;
}

/* Key n in both families, with `size` bytes. */
static bool put_both(struct store_batch *b, uint32_t n, size_t size)
{
    struct buf value = {0};
    for (size_t i = 0; i < size; i++)
        buf_putc(&value, (char)(n + i));
    struct key k = key_of('q', n);
    store_put(store, b, STORE_HOT, &k, &value);
    store_put(store, b, STORE_COLD, &k, &value);
    buf_fini(&value);
    return commit(b, n % 3 != 0);
}

static bool has(enum store_family f, uint32_t n)
{
    struct key k = key_of('q', n);
    struct buf value = {0};
    bool damaged = false;
    bool found = store_get(store, f, &k, &value, &damaged);
    assert_false(damaged);
    buf_fini(&value);
    return found;
}

/* Runs it in a process that dies by kill -9 at its end: this program again, because RocksDB's
 * threads do not outlive a fork. */
static void crash_after(const char *work)
{
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_store", work, dir, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static bool put_a_hundred(void)
{
    struct store_batch *b = store_batch_new();
    bool ok = true;
    for (uint32_t n = 0; ok && n < 100; n++)
        ok = put_both(b, n, 300);
    store_batch_free(b);
    return ok;
}

static void store_has_after_a_kill_what_was_written(void **state)
{
    (void)state;
    crash_after("put");
    for (int round = 0; round < 3; round++) {
        assert_int_equal(open_store(), STATUS_OK);
        for (uint32_t n = 0; n < 100; n++)
            assert_true(has(STORE_HOT, n) && has(STORE_COLD, n));
        assert_false(has(STORE_HOT, 100));
        close_store();
    }
}

#define CHURN      1000
#define CHURN_LATE 60

/* More than the log may hold: memtables are flushed, the hot one more often than the cold one, and
 * segments are used again. Every tenth key is deleted some time after it was put, often when the
 * hot tables have it and the log has both: who applies both again finds it alive once they are
 * flushed. */
static bool churn(void)
{
    struct store_batch *b = store_batch_new();
    struct buf filler = {0};
    bool ok = true;
    for (size_t i = 0; i < 256 * 1024; i++)
        buf_putc(&filler, (char)i);
    for (uint32_t n = 0; ok && n < CHURN; n++) {
        struct key k = key_of('f', n % 7);
        store_put(store, b, STORE_HOT, &k, &filler);
        ok = put_both(b, n, 100);
        if (n >= CHURN_LATE && n % 10 == 0) {
            k = key_of('q', n - CHURN_LATE);
            store_delete_once(store, b, STORE_HOT, &k);
            store_delete_once(store, b, STORE_COLD, &k);
            ok = ok && commit(b, true);
        }
    }
    buf_fini(&filler);
    store_batch_free(b);
    return ok;
}

static uint64_t log_bytes(void)
{
    uint64_t bytes = 0;
    for (int slot = 0; slot < 1000; slot++) {
        char name[32];
        struct stat st;
        snprintf(name, sizeof(name), "log/%03d.wal", slot);
        bytes += stat(path_of(name), &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    return bytes;
}

static void store_keeps_its_log_short_and_replays_the_rest_once(void **state)
{
    (void)state;
    crash_after("churn");
    assert_in_range(log_bytes(), 1, 224 * 1024 * 1024);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(open_store(), STATUS_OK);
        for (uint32_t n = 0; n < CHURN; n++) {
            bool expected = n >= CHURN - CHURN_LATE || n % 10 != 0;
            assert_int_equal(has(STORE_HOT, n), expected);
            assert_int_equal(has(STORE_COLD, n), expected);
        }
        close_store();
    }
}

static void store_refuses_to_start_without_its_log(void **state)
{
    (void)state;
    crash_after("put");
    folder_remove(path_of("log"));
    assert_int_not_equal(open_store(), STATUS_OK);
    assert_non_null(strstr(buf_cstr(&error), "/log"));
}

static void store_refuses_a_log_that_ends_before_the_tables(void **state)
{
    (void)state;
    assert_int_equal(open_store(), STATUS_OK);
    assert_true(put_a_hundred());
    close_store(); /* everything is in tables */
    folder_remove(path_of("log/000.wal"));
    assert_int_equal(open_store(), STATUS_ENGINE_UNAVAILABLE);
}

/* What format 1 was: the same tables, RocksDB's own log, and none of ours. The last that is written
 * to it, by the deletes, is in RocksDB's log alone: without them it would not open. */
static void make_format_one(void)
{
    rocksdb_options_t *options = rocksdb_options_create();
    const rocksdb_options_t *both[] = {options, options};
    const char *names[] = {"default", "cold"};
    rocksdb_column_family_handle_t *families[2];
    char *message = NULL;
    rocksdb_t *db =
        rocksdb_open_column_families(options, path_of("store"), 2, names, both, families, &message);
    assert_null(message);
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    for (int f = 0; f < 2; f++) {
        rocksdb_delete_cf(db, write, families[f], "l", 1, &message);
        assert_null(message);
        rocksdb_put_cf(db, write, families[f], "q\0\0\3\350", 5, "x", 1, &message);
        assert_null(message);
        rocksdb_column_family_handle_destroy(families[f]);
    }
    rocksdb_writeoptions_destroy(write);
    rocksdb_close(db);
    rocksdb_options_destroy(options);
    folder_remove(path_of("log"));
    FILE *format = fopen(path_of("FORMAT"), "w");
    fputs("1\n", format);
    fclose(format);
}

static int format_number(void)
{
    int number = 0;
    FILE *format = fopen(path_of("FORMAT"), "r");
    assert_int_equal(fscanf(format, "%d", &number), 1);
    fclose(format);
    return number;
}

static void store_takes_over_a_directory_of_format_one(void **state)
{
    (void)state;
    assert_int_equal(open_store(), STATUS_OK);
    assert_true(put_a_hundred());
    close_store();
    make_format_one();
    crash_after("put"); /* opened, upgraded, used and killed */
    assert_int_equal(format_number(), STORE_FORMAT);
    assert_int_equal(open_store(), STATUS_OK);
    assert_true(has(STORE_HOT, 1000) && has(STORE_COLD, 1000));
    for (uint32_t n = 0; n < 100; n++)
        assert_true(has(STORE_HOT, n) && has(STORE_COLD, n));
}

/* A message that was done so long ago, as a queue's history has it. */
static void put_done(struct store_batch *b, uint32_t queue, uint64_t seq, int64_t ago_ms)
{
    struct buf value = {0};
    struct key k;
    struct message *m = message_new(seq);
    int64_t done_ms = clock_now().wall_ms - ago_ms;
    m->state = MESSAGE_DONE;
    message_delivery(m)->died_ms = done_ms;
    record_put_whole(&value, m, 1, done_ms + 1000);
    key_seq(&k, KEY_HISTORY, queue, seq);
    store_put(store, b, STORE_COLD, &k, &value);
    message_free(m);
    buf_fini(&value);
}

static void compact(void)
{
    assert_int_equal(store_flush(store, STORE_COLD, true, &error), STATUS_OK);
    rocksdb_compact_range_cf(store->db, store->families[STORE_COLD], NULL, 0, NULL, 0);
}

static bool has_done(uint32_t queue, uint64_t seq)
{
    struct buf value = {0};
    struct key k;
    bool damaged = false;
    key_seq(&k, KEY_HISTORY, queue, seq);
    bool found = store_get(store, STORE_COLD, &k, &value, &damaged);
    assert_false(damaged);
    buf_fini(&value);
    return found;
}

/* Their queue may have been told to keep them for longer since they were written. */
static void store_drops_done_messages_by_what_their_queue_keeps_now(void **state)
{
    (void)state;
    const int64_t hour_ms = 3600 * 1000;
    assert_int_equal(open_store(), STATUS_OK);
    struct store_batch *b = store_batch_new();
    for (uint32_t queue = 1; queue <= 3; queue++) {
        put_done(b, queue, 1, hour_ms);
        put_done(b, queue, 2, 2 * hour_ms);
    }
    assert_true(commit(b, true));
    store_batch_free(b);
    store_keeps(store, 1, hour_ms + hour_ms / 2); /* and nothing is known of the second queue */
    store_keeps(store, 3, 0);
    compact();
    assert_true(has_done(1, 1) && !has_done(1, 2));
    assert_true(has_done(2, 1) && has_done(2, 2));
    assert_false(has_done(3, 1) || has_done(3, 2));
}

static int work_and_die(const char *work, const char *where)
{
    snprintf(dir, sizeof(dir), "%s", where);
    if (open_store() != STATUS_OK)
        return 1;
    if (strcmp(work, "churn") == 0 ? churn() : put_a_hundred())
        raise(SIGKILL);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return work_and_die(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(store_has_after_a_kill_what_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(store_keeps_its_log_short_and_replays_the_rest_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(store_refuses_to_start_without_its_log, setup, teardown),
        cmocka_unit_test_setup_teardown(store_refuses_a_log_that_ends_before_the_tables, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(store_takes_over_a_directory_of_format_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(store_drops_done_messages_by_what_their_queue_keeps_now,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
