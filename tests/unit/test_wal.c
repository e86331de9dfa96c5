#include "unit/wal_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Records 1 and 2; then 3, 4 and 5 with one write, of which a crash tore the first. */
static void fresh_with_a_torn_write(void)
{
    fresh(2);
    append(3, 60);
    append(4, 60);
    put(5, 60);
    overwrite("000.wal", 3 * BLOCK, "????????????????", 16);
}

static void wal_gives_back_what_was_written_in_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {8, 100, 4040, 4096, 65536, 3000000, 20, 70000, 9};
    assert_int_equal(reopen(), STATUS_OK);
    start(1);
    uint32_t count = sizeof(sizes) / sizeof(sizes[0]);
    for (uint32_t i = 0; i < count; i++)
        put(i, sizes[i]);
    append(count, 50); /* several records with one write */
    append(count + 1, 5000);
    put(count + 2, 50);
    assert_reopens_with(0, count + 2);
    assert_reopens_with(0, count + 2); /* reading changes nothing */
}

static void wal_goes_on_after_a_restart(void **state)
{
    (void)state;
    fresh(3);
    for (uint32_t i = 4; i < 40; i++) {
        assert_reopens_with(1, i - 1);
        start(1);
        put(i, 300);
    }
}

static void wal_cuts_a_torn_tail_at_every_byte(void **state)
{
    (void)state;
    fresh(3);
    shut();
    struct buf whole = {0};
    load("000.wal", &whole);
    for (size_t len = BLOCK; len <= 4 * BLOCK; len = next_place(len)) {
        uint32_t complete =
            0; /* record n has a block of its own, the one after the segment's head */
        for (uint32_t n = 1; n <= 3; n++)
            complete += len >= n * BLOCK + FRAME_HEAD + 100 + n;
        store("000.wal", whole.data, len);
        assert_reopens_with(1, complete);
    }
    buf_fini(&whole);
}

static void wal_goes_on_after_a_torn_tail(void **state)
{
    (void)state;
    enum { ZEROS, NOISE, NOISE_AFTER_HALF_A_HEAD, KINDS };
    for (int kind = ZEROS; kind < KINDS; kind++) {
        fresh(3);
        char tail[2 * BLOCK] = {0};
        for (size_t i = 0; kind != ZEROS && i < sizeof(tail); i++)
            tail[i] = (char)(i * i >> 3);
        size_t keep = kind == NOISE_AFTER_HALF_A_HEAD ? 40 : 0;
        overwrite("000.wal", 3 * BLOCK + keep, tail, sizeof(tail) - keep);
        assert_reopens_with(1, 2);
        start(1);
        put(3, 77);
        put(4, 77);
        assert_reopens_with(1, 4);
        start_over();
    }
}

static void wal_never_serves_a_flipped_bit(void **state)
{
    (void)state;
    fresh(4);
    shut();
    struct buf whole = {0};
    load("000.wal", &whole);
    for (size_t at = 0; at < 6 * BLOCK; at = next_place(at)) {
        char flipped = (char)(whole.data[at] ^ 1 << at % 8);
        overwrite("000.wal", at, &flipped, 1);
        size_t block = at / BLOCK, in_block = at % BLOCK;
        size_t used = FRAME_HEAD + (block == 0 ? 8 : 100 + block);
        enum status status = reopen();
        if (block > 4 || in_block >= used) { /* between the frames */
            assert_int_equal(status, STATUS_OK);
            assert_seen(1, 4);
        } else if (block == 4) { /* the last: it may have been torn by a crash */
            assert_int_equal(status, STATUS_OK);
            assert_seen(1, 3);
        } else {
            assert_int_equal(status, STATUS_ENGINE_UNAVAILABLE);
            assert_non_null(strstr(buf_cstr(&error), dir));
        }
        overwrite("000.wal", at, whole.data + at, 1);
    }
    buf_fini(&whole);
}

/* A file is whole before it has its name, and the beginning of a segment is on the disk before
 * what follows: a segment without it was damaged. */
static void wal_refuses_a_segment_without_its_beginning(void **state)
{
    (void)state;
    char zeros[FRAME_HEAD + 8] = {0};
    fresh(3);
    shut();
    struct buf whole = {0};
    load("000.wal", &whole);
    overwrite("000.wal", 0, zeros, sizeof(zeros));
    assert_int_equal(reopen(), STATUS_ENGINE_UNAVAILABLE);
    assert_non_null(strstr(buf_cstr(&error), "000.wal"));
    for (size_t len = 1; len < FRAME_HEAD + 8; len++) {
        store("000.wal", whole.data, len);
        bool blank = whole.data[0] == 0 && memcmp(whole.data, whole.data + 1, len - 1) == 0;
        assert_int_equal(reopen(), blank ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE);
    }
    buf_fini(&whole);
}

static void wal_names_the_place_of_damage(void **state)
{
    (void)state;
    fresh(4);
    overwrite("000.wal", 2 * BLOCK + 70, "?", 1);
    assert_int_equal(reopen(), STATUS_ENGINE_UNAVAILABLE);
    char place[128];
    snprintf(place, sizeof(place), "%s/000.wal offset", dir);
    assert_non_null(strstr(buf_cstr(&error), place));
    assert_non_null(strstr(buf_cstr(&error), "record 2"));
}

/* Two records of one write may reach the disk in any order, and neither was acknowledged. */
static void wal_drops_what_comes_after_a_torn_record_of_the_same_write(void **state)
{
    (void)state;
    fresh_with_a_torn_write();
    assert_reopens_with(1, 2);
    start(1);
    put(3, 61); /* takes the number of the lost one; those behind that must not come back */
    assert_reopens_with(1, 3);
    start(1);
    assert_reopens_with(1, 3);
}

static void wal_drops_a_record_without_its_end(void **state)
{
    (void)state;
    fresh(2);
    append(3, 2000000); /* many segments, of which only the last is not synced */
    assert_int_equal(wal_write(wal, &error), STATUS_OK);
    uint64_t end = wal_end(wal);
    char name[16];
    snprintf(name, sizeof(name), "%03u.wal", file_count() - 1);
    assert_true(end > 10);
    char zeros[BLOCK] = {0};
    for (size_t at = 0; at < SEGMENT; at += BLOCK)
        overwrite(name, at, zeros, BLOCK);
    assert_reopens_with(1, 2);
    start(1);
    put(3, 50);
    assert_reopens_with(1, 3);
}

static void wal_uses_segments_again(void **state)
{
    (void)state;
    fresh(0);
    uint32_t floor = 1;
    for (uint32_t i = 1; i <= 3000; i++) {
        put(i, 300);
        if (i % 20 == 0) {
            floor = i - 10;
            wal_recycle(wal, floor);
            wal_prepare(wal, 1);
        }
        if (i % 500 == 0) {
            assert_int_equal(reopen(), STATUS_OK);
            assert_true(seen.count >= i - floor + 1);
            assert_seen(i + 1 - (uint32_t)seen.count, i);
            start(floor);
        }
    }
    assert_true(file_count() <= 8);
}

static void wal_keeps_what_the_disk_does_not_know_to_be_needless(void **state)
{
    (void)state;
    fresh(40);
    wal_recycle(wal, 41);
    shut(); /* before any frame told so */
    assert_reopens_with(1, 40);
}

static void wal_reuses_nothing_before_the_disk_knows(void **state)
{
    (void)state;
    const uint32_t full = 3 * (SEGMENT / BLOCK - 1); /* three segments to the last block */
    fresh(full);
    assert_int_equal(file_count(), 3);
    wal_recycle(wal, full + 1);
    append(full + 1, 50);
    assert_int_equal(wal_write(wal, &error), STATUS_OK);
    assert_int_equal(file_count(), 4);
    char zeros[BLOCK] = {0};
    overwrite("003.wal", 0, zeros, BLOCK); /* the crash tears the new segment's start */
    overwrite("003.wal", BLOCK, zeros, BLOCK);
    assert_reopens_with(1, full);
}

/* Records that a crash cut off stay in the file until it is used again, and then have just the
 * numbers that are next. */
static void wal_never_takes_an_older_life_of_a_file_for_its_own(void **state)
{
    (void)state;
    fresh_with_a_torn_write();
    assert_int_equal(reopen(), STATUS_OK);
    start(1);
    put(3, 61);
    for (int i = 0; i < 3; i++) { /* until the first file is the one that is used again */
        assert_int_equal(reopen(), STATUS_OK);
        start(4);
    }
    assert_int_equal(file_count(), 3);
    assert_int_equal(reopen(), STATUS_OK);
    assert_int_equal(seen.count, 0);
    assert_int_equal(wal_end(wal), 3);
}

static void wal_removes_more_than_enough(void **state)
{
    (void)state;
    fresh(500);
    assert_true(file_count() > 30);
    wal_recycle(wal, 501);
    put(501, 50);
    for (int i = 0; i < 40; i++)
        wal_prepare(wal, 1);
    assert_true(file_count() < 20);
    put(502, 50);
    assert_reopens_with(501, 502);
}

static void wal_refuses_when_a_segment_is_missing(void **state)
{
    (void)state;
    for (int gone = 0; gone < 4; gone++) {
        fresh(50);
        assert_int_equal(file_count(), 4);
        char name[16];
        snprintf(name, sizeof(name), "%03d.wal", gone);
        unlink(path_of(name));
        enum status status = reopen();
        /* Who takes away the last leaves a log that ends earlier; the tables would tell. */
        assert_int_equal(status, gone == 3 ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE);
        start_over();
    }
}

static void wal_does_not_care_for_names_and_leaves_other_files_alone(void **state)
{
    (void)state;
    fresh(50);
    store("notes.txt", "mine", 4);
    store("004.wal.new", "", 0);
    char from[128];
    strcpy(from, path_of("000.wal"));
    rename(from, path_of("900.wal"));
    strcpy(from, path_of("001.wal"));
    rename(from, path_of("000.wal"));
    assert_reopens_with(1, 50);
    start(1);
    put(51, 50);
    assert_reopens_with(1, 51);
    assert_int_equal(access(path_of("notes.txt"), F_OK), 0);
}

static void wal_refuses_a_segment_that_is_there_twice(void **state)
{
    (void)state;
    fresh(50);
    struct buf copy = {0};
    load("001.wal", &copy);
    store("700.wal", copy.data, copy.len);
    buf_fini(&copy);
    assert_int_equal(reopen(), STATUS_ENGINE_UNAVAILABLE);
    assert_non_null(strstr(buf_cstr(&error), "700.wal"));
}

static void wal_starts_on_what_a_crash_in_its_first_moments_left(void **state)
{
    (void)state;
    char zeros[SEGMENT] = {0};
    for (size_t len = 0; len <= SEGMENT; len += SEGMENT / 4) {
        store("000.wal", zeros, len);
        store("001.wal.new", zeros, len);
        assert_int_equal(reopen(), STATUS_OK);
        assert_true(wal_empty(wal));
        assert_int_equal(seen.count, 0);
        start(1);
        put(1, 50);
        assert_reopens_with(1, 1);
        start_over();
    }
}

/* Starting, and crashing before anything is written, again and again. */
static void wal_survives_crashes_while_it_starts(void **state)
{
    (void)state;
    fresh(30);
    for (int i = 0; i < 50; i++) {
        assert_reopens_with(1, 30);
        start(1);
    }
    put(31, 100);
    assert_reopens_with(1, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wal_gives_back_what_was_written_in_order),
        TEST(wal_goes_on_after_a_restart),
        TEST(wal_cuts_a_torn_tail_at_every_byte),
        TEST(wal_goes_on_after_a_torn_tail),
        TEST(wal_never_serves_a_flipped_bit),
        TEST(wal_refuses_a_segment_without_its_beginning),
        TEST(wal_names_the_place_of_damage),
        TEST(wal_drops_what_comes_after_a_torn_record_of_the_same_write),
        TEST(wal_drops_a_record_without_its_end),
        TEST(wal_uses_segments_again),
        TEST(wal_keeps_what_the_disk_does_not_know_to_be_needless),
        TEST(wal_reuses_nothing_before_the_disk_knows),
        TEST(wal_never_takes_an_older_life_of_a_file_for_its_own),
        TEST(wal_removes_more_than_enough),
        TEST(wal_refuses_when_a_segment_is_missing),
        TEST(wal_does_not_care_for_names_and_leaves_other_files_alone),
        TEST(wal_refuses_a_segment_that_is_there_twice),
        TEST(wal_starts_on_what_a_crash_in_its_first_moments_left),
        TEST(wal_survives_crashes_while_it_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
