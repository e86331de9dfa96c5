/* When a partition gives a share away, on invented time. */
#include "engine/cells/split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define WALL_MS 1700000000000LL

static const struct split_terms terms = {
    .on = true, .commit_ms = 50, .depth = 1000, .after_ms = 60000, .rest_ms = 600000};

static struct split_figures f[3];
static int64_t split_ms;

static int set_up(void **state)
{
    (void)state;
    split_ms = 0;
    for (int i = 0; i < 3; i++)
        f[i] = (struct split_figures){.open = true, .buckets = 85, .commit_ms = 1, .depth = 10};
    return 0;
}

static struct split_decision at(int64_t seconds)
{
    struct instant now = {.wall_ms = WALL_MS + seconds * 1000, .mono_ms = (seconds + 1) * 1000};
    return split_decide(&terms, f, 3, split_ms, now);
}

static void nothing_happens_while_nothing_is_over(void **state)
{
    (void)state;
    f[0].commit_ms = 50;
    f[1].depth = 1000; /* at the threshold, not over it */
    for (int64_t s = 0; s < 200; s++)
        assert_int_equal(at(s).state, SPLIT_CALM);
}

static void slow_commits_split_after_a_minute(void **state)
{
    (void)state;
    f[1].commit_ms = 51;
    assert_int_equal(at(0).state, SPLIT_OVER);
    assert_int_equal(at(0).wait_ms, 60000);
    assert_int_equal(at(59).state, SPLIT_OVER);
    struct split_decision d = at(60);
    assert_int_equal(d.state, SPLIT_NOW);
    assert_int_equal(d.cause, SPLIT_BY_COMMIT);
    assert_int_equal(d.from, 1);
    assert_int_equal(d.buckets, 42);
}

static void depth_splits_too(void **state)
{
    (void)state;
    f[2].depth = 1001;
    at(0);
    struct split_decision d = at(60);
    assert_int_equal(d.state, SPLIT_NOW);
    assert_int_equal(d.cause, SPLIT_BY_DEPTH);
    assert_int_equal(d.from, 2);
}

static void a_pause_begins_the_minute_anew(void **state)
{
    (void)state;
    f[0].depth = 2000;
    at(0);
    at(50);
    f[0].depth = 10;
    assert_int_equal(at(55).state, SPLIT_CALM);
    f[0].depth = 2000;
    assert_int_equal(at(56).state, SPLIT_OVER);
    assert_int_equal(at(115).state, SPLIT_OVER);
    assert_int_equal(at(116).state, SPLIT_NOW);
}

static void the_one_with_the_most_room_gets_it(void **state)
{
    (void)state;
    f[0].depth = 2000;
    f[1].depth = 20;
    at(0);
    assert_int_equal(at(60).to, 2);
    f[1].depth = f[2].depth; /* of equals the one with fewer buckets */
    f[1].buckets = 84;
    assert_int_equal(at(60).to, 1);
}

static void who_has_no_room_gets_nothing(void **state)
{
    (void)state;
    f[0].depth = 2000;
    f[1].depth = 501;    /* more than half of the threshold */
    f[2].commit_ms = 26; /* the same */
    at(0);
    assert_int_equal(at(60).state, SPLIT_NO_ROOM);
    f[1] = f[2] = (struct split_figures){.open = false};
    assert_int_equal(at(61).state, SPLIT_NO_ROOM);
}

static void what_is_closed_or_away_is_not_split(void **state)
{
    (void)state;
    f[0].depth = 2000;
    at(0);
    f[0].open = false;
    assert_int_equal(at(60).state, SPLIT_CALM);
}

static void a_queue_rests_after_a_split(void **state)
{
    (void)state;
    f[0].depth = 2000;
    at(0);
    split_ms = WALL_MS + 60000;
    struct split_decision d = at(120);
    assert_int_equal(d.state, SPLIT_RESTS);
    assert_int_equal(d.wait_ms, 540000);
    assert_int_equal(at(659).state, SPLIT_RESTS);
    assert_int_equal(at(660).state, SPLIT_NOW);
}

static void a_clock_that_was_set_back_does_not_make_it_rest_for_longer(void **state)
{
    (void)state;
    f[0].depth = 2000;
    at(0);
    split_ms = WALL_MS + 100LL * 86400 * 1000;
    assert_int_equal(at(60).state, SPLIT_RESTS);
    assert_int_equal(at(60).wait_ms, 600000);
}

static void one_bucket_is_not_divided(void **state)
{
    (void)state;
    f[0].depth = 2000;
    f[0].buckets = 1;
    at(0);
    assert_int_equal(at(60).state, SPLIT_NO_SHARE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(nothing_happens_while_nothing_is_over),
        TEST(slow_commits_split_after_a_minute),
        TEST(depth_splits_too),
        TEST(a_pause_begins_the_minute_anew),
        TEST(the_one_with_the_most_room_gets_it),
        TEST(who_has_no_room_gets_nothing),
        TEST(what_is_closed_or_away_is_not_split),
        TEST(a_queue_rests_after_a_split),
        TEST(a_clock_that_was_set_back_does_not_make_it_rest_for_longer),
        TEST(one_bucket_is_not_divided),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
