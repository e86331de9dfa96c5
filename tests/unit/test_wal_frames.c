/* Which frames of a segment are the log: those that we wrote, in this life of it. */
#include "unit/wal_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

/* Frames that somebody put behind the end of the log, as the rest of an old body lies there. */

static struct frame first_frame(const char *name)
{
    struct frame f;
    struct buf bytes = {0};
    load(name, &bytes);
    assert_true(frame_read(bytes.data, bytes.len, &f));
    buf_fini(&bytes);
    return f;
}

static void plant_frame(struct frame f, const uint8_t *with, size_t at)
{
    char bytes[FRAME_HEAD + 40] = "";
    struct frame_key key;
    frame_key_init(&key, with);
    f.kind = FRAME_FIRST | FRAME_LAST;
    f.len = 40;
    frame_seal(bytes, &f, &key);
    overwrite("000.wal", at, bytes, sizeof(bytes));
}

static void assert_not_believed(struct frame f, const uint8_t *with)
{
    static const uint64_t far = 1ULL << 62;
    const struct {
        uint64_t seq, synced, floor;
    } claims[] = {{far, far - 1, 1}, {far, 0, far}, {4, 3, 4}};
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        f.seq = claims[i].seq;
        f.synced = claims[i].synced;
        f.floor = claims[i].floor;
        plant_frame(f, with, 6 * BLOCK);
        plant_frame(f, with, 6 * BLOCK + 5 * FRAME_ALIGN);
        assert_reopens_with(1, 3);
    }
}

static void wal_believes_nobody_without_the_secret(void **state)
{
    (void)state;
    fresh(3);
    shut();
    assert_not_believed(first_frame("000.wal"), other_secret); /* although it knows the epoch */
}

static void wal_believes_no_other_epoch(void **state)
{
    (void)state;
    fresh(3);
    shut();
    struct frame f = first_frame("000.wal");
    f.epoch ^= 1;
    assert_not_believed(f, secret); /* although it has the secret */
}

static void wal_believes_no_frame_that_knows_the_future(void **state)
{
    (void)state;
    fresh(3);
    shut();
    struct frame f = first_frame("000.wal");
    f.seq = 4;
    f.synced = 4;
    f.floor = 1;
    plant_frame(f, secret, 6 * BLOCK);
    assert_reopens_with(1, 3);
}

static void wal_believes_who_has_both(void **state)
{
    (void)state;
    fresh(3);
    shut();
    struct frame f = first_frame("000.wal");
    f.seq = 5;
    f.synced = 4;
    plant_frame(f, secret, 6 * BLOCK); /* else the tests above could not fail */
    assert_int_equal(reopen(), STATUS_ENGINE_UNAVAILABLE);
    assert_non_null(strstr(buf_cstr(&error), "record 4"));
}

static void wal_cannot_be_read_with_another_secret(void **state)
{
    (void)state;
    fresh(3);
    assert_int_equal(reopen_as(other_secret, false), STATUS_ENGINE_UNAVAILABLE);
    assert_non_null(strstr(buf_cstr(&error), "000.wal"));
    assert_reopens_with(1, 3);
}

/* Format 1: a head of 56 bytes, and a checksum of all that follows it in place of the seal. */

static void make_frame_old(char *at, const struct frame *f)
{
    memmove(at + 56, at + FRAME_HEAD, f->len);
    memset(at + 56 + f->len, 0, FRAME_HEAD - 56);
    at[13] = 1;
    frame_put_u64(at, XXH3_64bits(at + 8, 56 - 8 + f->len));
}

static void make_old(void)
{
    struct buf bytes = {0};
    char name[16];
    shut();
    for (unsigned slot = 0; slot < file_count(); slot++) {
        snprintf(name, sizeof(name), "%03u.wal", slot);
        load(name, &bytes);
        struct frame f;
        for (size_t at = 0; at < bytes.len; at += FRAME_ALIGN) {
            if (!frame_read(bytes.data + at, bytes.len - at, &f))
                continue;
            make_frame_old(bytes.data + at, &f);
            at = frame_end(at + FRAME_HEAD + f.len) - FRAME_ALIGN;
        }
        store(name, bytes.data, bytes.len);
    }
    buf_fini(&bytes);
}

static void wal_takes_over_a_log_of_format_one(void **state)
{
    (void)state;
    fresh(40);
    append(41, 200000);
    put(42, 9);
    make_old();
    assert_int_equal(reopen(), STATUS_OK); /* who is not told that it is old does not see it */
    assert_true(wal_empty(wal));
    for (int death = 0; death < 3; death++) { /* each before the directory has its number */
        assert_int_equal(reopen_as(secret, true), STATUS_OK);
        assert_seen(1, 42);
        start(wal_end(wal) + 1);
    }
    uint64_t end = wal_end(wal);
    assert_int_equal(reopen(), STATUS_OK);
    assert_int_equal(wal_end(wal), end);
    assert_int_equal(seen.count, 0);
    start(end + 1);
    put(43, 50);
    assert_reopens_with(43, 43);
}

static void wal_finds_damage_in_a_log_of_format_one(void **state)
{
    (void)state;
    fresh(4);
    make_old();
    struct buf whole = {0};
    load("000.wal", &whole);
    for (size_t at = 0; at < 4 * BLOCK; at = next_place(at)) {
        char flipped = (char)(whole.data[at] ^ 1 << at % 8);
        overwrite("000.wal", at, &flipped, 1);
        bool between = at % BLOCK >= 56 + (at < BLOCK ? 8 : 100 + at / BLOCK);
        assert_int_equal(reopen_as(secret, true), between ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE);
        overwrite("000.wal", at, whole.data + at, 1);
    }
    buf_fini(&whole);
}

static void wal_believes_no_other_epoch_of_format_one(void **state)
{
    (void)state;
    fresh(3);
    make_old();
    char bytes[FRAME_HEAD + 8] = "";
    struct frame_key key;
    frame_key_init(&key, secret);
    struct frame f = {.kind = FRAME_FIRST | FRAME_LAST, .len = 8, .epoch = 4711};
    f.seq = 1ULL << 62;
    f.floor = f.synced = f.seq - 1;
    frame_seal(bytes, &f, &key);
    make_frame_old(bytes, &f);
    overwrite("000.wal", 6 * BLOCK, bytes, sizeof(bytes));
    assert_int_equal(reopen_as(secret, true), STATUS_OK);
    assert_seen(1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wal_believes_nobody_without_the_secret),
        TEST(wal_believes_no_other_epoch),
        TEST(wal_believes_no_frame_that_knows_the_future),
        TEST(wal_believes_who_has_both),
        TEST(wal_cannot_be_read_with_another_secret),
        TEST(wal_takes_over_a_log_of_format_one),
        TEST(wal_finds_damage_in_a_log_of_format_one),
        TEST(wal_believes_no_other_epoch_of_format_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
