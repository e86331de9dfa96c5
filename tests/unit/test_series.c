/* Time series: what was recorded is read, within the bytes that there are. */
#include "core/series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POINTS_MAX 20000

struct seen {
    size_t count;
    int64_t at_s[POINTS_MAX];
    uint64_t first[POINTS_MAX], last[POINTS_MAX];
};

static struct seen seen;

static void see(void *ctx, int64_t at_s, const uint64_t values[SERIES_VALUES])
{
    (void)ctx;
    assert_true(seen.count < POINTS_MAX);
    assert_true(seen.count == 0 || at_s > seen.at_s[seen.count - 1]);
    seen.at_s[seen.count] = at_s;
    seen.first[seen.count] = values[0];
    seen.last[seen.count++] = values[SERIES_VALUES - 1];
}

static void look(const struct series *s, int tier, int64_t from_s, int64_t to_s)
{
    seen.count = 0;
    series_read(s, tier, from_s, to_s, see, NULL);
}

static void record(struct series_pool *pool, struct series **s, int tier, int64_t at_s,
                   uint64_t first, uint64_t last)
{
    uint64_t values[SERIES_VALUES] = {0};
    values[0] = first;
    values[SERIES_VALUES - 1] = last;
    series_record(pool, s, tier, at_s, values);
}

static void what_was_recorded_is_read_over_many_blocks(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s = NULL;
    series_pool_init(&pool, 1 << 20);
    for (int64_t at = 1; at <= 3000; at++)
        record(&pool, &s, 0, 1000 + at, (uint64_t)(at * at), UINT64_MAX - (uint64_t)(at % 7));
    look(s, 0, 0, INT64_MAX);
    assert_int_equal(seen.count, 3000);
    for (int64_t at = 1; at <= 3000; at++) {
        assert_int_equal(seen.at_s[at - 1], 1000 + at);
        assert_int_equal(seen.first[at - 1], at * at);
        assert_true(seen.last[at - 1] == UINT64_MAX - (uint64_t)(at % 7));
    }
    look(s, 0, 2500, 2600);
    assert_int_equal(seen.count, 101);
    assert_int_equal(seen.at_s[0], 2500);
    series_free(&pool, &s);
    assert_int_equal(pool.bytes, 0);
}

static void numbers_that_do_not_change_take_no_room(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s = NULL;
    series_pool_init(&pool, 1 << 20);
    record(&pool, &s, 0, 1, 0, 0);
    assert_null(s);
    record(&pool, &s, 0, 2, 5, 0);
    size_t bytes = pool.bytes;
    for (int64_t at = 3; at < 3000; at++)
        record(&pool, &s, 0, at, 5, 0);
    assert_int_equal(pool.bytes, bytes);
    look(s, 0, 2000, 2500);
    assert_int_equal(seen.count, 1); /* what they have been since */
    assert_int_equal(seen.at_s[0], 2);
    look(s, 0, 0, 1);
    assert_int_equal(seen.count, 0);
    series_free(&pool, &s);
}

static void a_time_that_is_not_later_is_left_out(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s = NULL;
    series_pool_init(&pool, 1 << 20);
    record(&pool, &s, 0, 10, 1, 0);
    record(&pool, &s, 0, 10, 2, 0);
    record(&pool, &s, 0, 9, 3, 0);
    record(&pool, &s, 0, 11, 4, 0);
    look(s, 0, 0, 100);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.first[1], 4);
    series_free(&pool, &s);
}

static void the_pool_never_takes_more_than_it_may(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s[4] = {0};
    series_pool_init(&pool, 32 * 1024);
    for (int64_t at = 1; at < 5000; at++) {
        for (int i = 0; i < 4; i++) {
            record(&pool, &s[i], 0, at, (uint64_t)rand(), (uint64_t)at);
            record(&pool, &s[i], i % SERIES_TIERS, at, (uint64_t)rand(), (uint64_t)at);
            assert_true(pool.bytes <= pool.bytes_max);
        }
    }
    for (int i = 0; i < 4; i++) {
        look(s[i], 0, 0, 5000);
        assert_true(seen.count > 0); /* the newest are there, and in order */
        assert_int_equal(seen.at_s[seen.count - 1], 4999);
        assert_int_equal(seen.last[seen.count - 1], 4999);
        series_free(&pool, &s[i]);
    }
    assert_int_equal(pool.bytes, 0);
}

static void a_pool_that_is_too_small_keeps_nothing(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s = NULL;
    series_pool_init(&pool, 100);
    record(&pool, &s, 0, 1, 1, 1);
    assert_null(s);
    series_free(&pool, &s);
}

static void old_points_go_and_the_last_state_stays(void **state)
{
    (void)state;
    struct series_pool pool;
    struct series *s = NULL, *idle = NULL;
    series_pool_init(&pool, 1 << 20);
    record(&pool, &idle, 0, 1, 7, 0);
    for (int64_t at = 2; at < 1000; at++)
        record(&pool, &s, 0, at, (uint64_t)(at * at * at), (uint64_t)at);
    size_t bytes = pool.bytes;
    for (int i = 0; i < 1000; i++)
        series_expire(&pool, 1000 + 3600 + 100000);
    assert_true(pool.bytes < bytes);
    look(idle, 0, 50000, 60000);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.first[0], 7);
    look(s, 0, 0, 60000);
    assert_in_range(seen.count, 1, 100);
    assert_int_equal(seen.at_s[seen.count - 1], 999);
    series_free(&pool, &s);
    series_free(&pool, &idle);
    assert_int_equal(pool.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_is_read_over_many_blocks),
        cmocka_unit_test(numbers_that_do_not_change_take_no_room),
        cmocka_unit_test(a_time_that_is_not_later_is_left_out),
        cmocka_unit_test(the_pool_never_takes_more_than_it_may),
        cmocka_unit_test(a_pool_that_is_too_small_keeps_nothing),
        cmocka_unit_test(old_points_go_and_the_last_state_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
