#include "core/age.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1750000000000

static struct queue_config config;

static int setup(void **state)
{
    (void)state;
    config = (struct queue_config){.level_count = 4};
    return 0;
}

static void pause_between(int64_t from_ms, int64_t until_ms)
{
    age_pause(&config, true, from_ms);
    age_pause(&config, false, until_ms);
}

static void age_is_the_time_since_the_message_was_ready(void **state)
{
    (void)state;
    assert_int_equal(age_between(&config, NOW - 5000, NOW), 5000);
    assert_int_equal(age_between(&config, NOW, NOW), 0);
    assert_int_equal(age_between(&config, NOW + 5000, NOW), 0);
    assert_int_equal(age_between(&config, -1000, NOW), NOW + 1000);
}

static void a_pause_is_nobodys_age(void **state)
{
    (void)state;
    pause_between(NOW - 4000, NOW - 3000);
    assert_int_equal(age_between(&config, NOW - 2000, NOW), 2000); /* it was over before */
    assert_int_equal(age_between(&config, NOW - 3000, NOW), 3000);
    assert_int_equal(age_between(&config, NOW - 3500, NOW), 3000); /* ready in it */
    assert_int_equal(age_between(&config, NOW - 4000, NOW), 3000);
    assert_int_equal(age_between(&config, NOW - 4001, NOW), 3001);        /* across */
    assert_int_equal(age_between(&config, NOW - 9000, NOW - 4000), 5000); /* before it began */
    assert_int_equal(age_between(&config, NOW - 9000, NOW - 3500), 5000);
}

static void while_paused_nothing_ages(void **state)
{
    (void)state;
    age_pause(&config, true, NOW - 1000);
    assert_true(config.paused);
    assert_int_equal(age_between(&config, NOW - 1500, NOW), 500);
    assert_int_equal(age_between(&config, NOW - 1500, NOW + 100000), 500);
    assert_int_equal(age_between(&config, NOW - 500, NOW), 0);
    age_pause(&config, false, NOW);
    assert_false(config.paused);
    assert_int_equal(age_between(&config, NOW - 1500, NOW + 10), 510);
}

static void pausing_twice_is_one_pause(void **state)
{
    (void)state;
    age_pause(&config, false, NOW - 5000);
    assert_int_equal(config.pause_count, 0);
    age_pause(&config, true, NOW - 4000);
    age_pause(&config, true, NOW - 3000);
    assert_int_equal(config.pause_count, 1);
    age_pause(&config, false, NOW - 2000);
    age_pause(&config, false, NOW - 1000);
    assert_int_equal(age_between(&config, NOW - 10000, NOW), 8000);
}

/* As a queue comes from a store that did not write down when it was paused. */
static void a_pause_of_unknown_begin_counts_as_none(void **state)
{
    (void)state;
    config.paused = true;
    age_pause(&config, false, NOW);
    assert_false(config.paused);
    assert_int_equal(age_between(&config, NOW - 1000, NOW), 1000);
    pause_between(NOW, NOW + 10);
    config.paused = true;
    age_pause(&config, false, NOW + 100);
    assert_int_equal(age_between(&config, NOW - 1000, NOW + 100), 1090);
}

static void more_pauses_than_are_remembered_keep_their_sum(void **state)
{
    (void)state;
    int64_t at = NOW;
    for (int i = 0; i < 3 * PAUSES_MAX; i++, at += 100)
        pause_between(at + 40, at + 50 + i);
    int64_t paused_ms = 0;
    for (int i = 0; i < 3 * PAUSES_MAX; i++)
        paused_ms += 10 + i;
    assert_int_equal(config.pause_count, PAUSES_MAX);
    assert_int_equal(age_between(&config, NOW - 1000, at), at - NOW + 1000 - paused_ms);
    /* What came while the pauses were still remembered one by one is exact as well. */
    int64_t last = at - 100 * (PAUSES_MAX - 2);
    int64_t since_ms = 0;
    for (int i = 2 * PAUSES_MAX + 2; i < 3 * PAUSES_MAX; i++)
        since_ms += 10 + i;
    assert_int_equal(age_between(&config, last, at), at - last - since_ms);
    for (int i = 1; i < config.pause_count; i++)
        assert_true(config.pauses[i - 1].until_ms <= config.pauses[i].from_ms);
}

static void a_wall_clock_that_goes_back_does_not_pause_twice(void **state)
{
    (void)state;
    pause_between(NOW, NOW + 1000);
    pause_between(NOW + 500, NOW + 800); /* the clock was set back */
    pause_between(NOW + 200, NOW + 1500);
    age_pause(&config, true, NOW + 3000);
    age_pause(&config, false, NOW + 2000);
    assert_int_equal(age_between(&config, NOW - 100, NOW + 4000), 4100 - 1500);
    for (int i = 0; i < config.pause_count; i++)
        assert_true(config.pauses[i].from_ms <= config.pauses[i].until_ms);
}

static uint64_t seed = 7;

static int64_t any(int64_t n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* The cut-off is the latest ready time that has waited so long: one later has not. */
static void the_cutoff_is_the_inverse_of_the_age(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        setup(NULL);
        int64_t at = NOW;
        for (int i = (int)any(PAUSES_MAX + 4); i > 0; i--) {
            at += any(50);
            age_pause(&config, true, at);
            at += any(50);
            if (i > 1 || any(2))
                age_pause(&config, false, at);
        }
        int64_t now_ms = at + any(50), wait_ms = 1 + any(1500);
        int64_t cutoff = age_cutoff(&config, now_ms, wait_ms);
        assert_int_equal(age_between(&config, cutoff, now_ms), wait_ms);
        assert_true(age_between(&config, cutoff + 1, now_ms) < wait_ms);
    }
}

static void the_effective_rank_steps_up_level_by_level(void **state)
{
    (void)state;
    config.levels[1].age_ms = 100;
    config.levels[2].age_ms = 50;
    config.levels[3].age_ms = 10;
    static const struct {
        int rank;
        int64_t age_ms;
        int counts_as;
    } cases[] = {
        {3, 9, 3},    {3, 10, 2}, {3, 59, 2}, {3, 60, 1}, {3, 159, 1}, {3, 160, 0},
        {3, 9999, 0}, {2, 49, 2}, {2, 50, 1}, {1, 99, 1}, {1, 100, 0}, {0, 9999, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(age_effective_rank(&config, cases[i].rank, NOW - cases[i].age_ms, NOW),
                         cases[i].counts_as);
    config.levels[2].age_ms = 0; /* a level that does not age is as far as it goes */
    assert_int_equal(age_effective_rank(&config, 3, NOW - 9999, NOW), 2);
    pause_between(NOW - 9990, NOW);
    assert_int_equal(age_effective_rank(&config, 3, NOW - 9999, NOW), 3);
}

static void aged_is_whatever_counts_as_more_urgent(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        setup(NULL);
        for (int rank = 0; rank < 4; rank++) {
            config.levels[rank].age_ms = any(2) * any(20);
            config.levels[rank].max_wait_ms = any(2) * any(20);
        }
        if (any(2))
            pause_between(NOW - 10, NOW - any(10));
        int rank = (int)any(4);
        int64_t ready_ms = NOW - any(40);
        assert_int_equal(age_aged(&config, rank, ready_ms, NOW),
                         age_effective_rank(&config, rank, ready_ms, NOW) < rank);
    }
}

static void a_promise_is_urgent_before_it_is_late(void **state)
{
    (void)state;
    config.levels[2].max_wait_ms = 8000;
    assert_int_equal(age_urgent_ms(&config.levels[2]), 7000);
    assert_int_equal(age_effective_rank(&config, 2, NOW - 6999, NOW), 2);
    assert_int_equal(age_effective_rank(&config, 2, NOW - 7000, NOW), 0);
    assert_false(age_late(&config, 2, NOW - 8000, NOW));
    assert_true(age_late(&config, 2, NOW - 8001, NOW));
    assert_false(age_late(&config, 1, NOW - 999999, NOW));
    config.levels[3].max_wait_ms = 1; /* as short as can be: urgent at the very end of it */
    assert_int_equal(age_effective_rank(&config, 3, NOW, NOW), 3);
    assert_int_equal(age_effective_rank(&config, 3, NOW - 1, NOW), 0);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(age_is_the_time_since_the_message_was_ready),
        TEST(a_pause_is_nobodys_age),
        TEST(while_paused_nothing_ages),
        TEST(pausing_twice_is_one_pause),
        TEST(a_pause_of_unknown_begin_counts_as_none),
        TEST(more_pauses_than_are_remembered_keep_their_sum),
        TEST(a_wall_clock_that_goes_back_does_not_pause_twice),
        TEST(the_cutoff_is_the_inverse_of_the_age),
        TEST(the_effective_rank_steps_up_level_by_level),
        TEST(aged_is_whatever_counts_as_more_urgent),
        TEST(a_promise_is_urgent_before_it_is_late),
    };
    return cmocka_run_group_tests_name("age", tests, NULL, NULL);
}
