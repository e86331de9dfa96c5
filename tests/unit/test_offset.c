#include "base/offset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND 1000000
#define START  1700000000000000

/* At `at`, an exchange whose question takes `there` and whose answer takes `back`. */
static void exchange(struct clock_offset *o, int64_t at, int64_t ahead, int64_t there, int64_t back)
{
    offset_learn(o, at, at + there + ahead, at + there + back);
}

static void offset_is_none_before_the_first_exchange(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    assert_int_equal(offset_us(&o), 0);
}

static void offset_is_the_middle_of_the_shortest_exchange(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    exchange(&o, START, 50000, 20000, 1000);
    assert_in_range(offset_us(&o), 50000, 50000 + 20000);
    exchange(&o, START + 1000, 50000, 200, 200);
    assert_int_equal(offset_us(&o), 50000);
    for (int i = 0; i < 1000; i++) /* longer ones do not change it */
        exchange(&o, START + 2000 + i * 5000, 50000, 300 + i, 9000);
    assert_int_equal(offset_us(&o), 50000);
}

static void offset_may_be_behind(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    exchange(&o, START, -3600LL * SECOND, 100, 100);
    assert_int_equal(offset_us(&o), -3600LL * SECOND);
}

static void offset_follows_a_clock_that_is_set(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    exchange(&o, START, 0, 100, 100);
    exchange(&o, START + SECOND, 70000, 5000, 5000);
    int64_t first = offset_us(&o);
    assert_in_range(first, 65000, 75000); /* as sure as that exchange is long */
    for (int s = 2; s < 25; s++)
        exchange(&o, START + s * SECOND, 70000, 100, 100);
    assert_int_equal(offset_us(&o), 70000);
}

static void offset_follows_a_clock_that_drifts(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    for (int s = 0; s < 100000; s++) {
        exchange(&o, START + (int64_t)s * SECOND, s * 50, 300, 300); /* 50 in a million */
        int64_t wrong = offset_us(&o) - s * 50;
        assert_in_range(wrong + 1000, 0, 2000);
    }
}

static void offset_forgets_a_short_exchange_in_time(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    exchange(&o, START, 400, 0, 0); /* nothing is shorter */
    for (int s = 1; s <= 25; s++)
        exchange(&o, START + s * SECOND, 0, 500, 500); /* which does not contradict it */
    assert_int_equal(offset_us(&o), 0);
}

static void offset_learns_nothing_when_our_own_clock_is_set_back_meanwhile(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    exchange(&o, START, 1234, 0, 0);
    offset_learn(&o, START + SECOND, START + SECOND, START);
    assert_int_equal(offset_us(&o), 1234);
}

static void offset_follows_when_our_own_clock_is_set(void **state)
{
    (void)state;
    struct clock_offset o = {0};
    int64_t hour = 3600LL * SECOND;
    exchange(&o, START, 0, 100, 100);
    exchange(&o, START - hour, hour, 100, 100);
    assert_in_range(offset_us(&o), hour - 100, hour + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offset_is_none_before_the_first_exchange),
        cmocka_unit_test(offset_is_the_middle_of_the_shortest_exchange),
        cmocka_unit_test(offset_may_be_behind),
        cmocka_unit_test(offset_follows_a_clock_that_is_set),
        cmocka_unit_test(offset_follows_a_clock_that_drifts),
        cmocka_unit_test(offset_forgets_a_short_exchange_in_time),
        cmocka_unit_test(offset_learns_nothing_when_our_own_clock_is_set_back_meanwhile),
        cmocka_unit_test(offset_follows_when_our_own_clock_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
