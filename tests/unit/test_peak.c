#include "engine/local/peak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void peaks_of_a_clock_that_goes_forward_are_none(void **state)
{
    (void)state;
    struct peaks p = {0};
    for (int64_t ms = 1; ms < 100; ms++)
        peaks_see(&p, ms, (uint64_t)ms);
    assert_int_equal(p.count, 0);
    assert_false(peaks_passed(&p, 5, 1));
}

static void peaks_are_about_what_was_there(void **state)
{
    (void)state;
    struct peaks p = {0};
    peaks_see(&p, 1000, 1);
    peaks_see(&p, 400, 7);
    assert_true(peaks_passed(&p, 1000, 6));
    assert_false(peaks_passed(&p, 1001, 6)); /* was not due */
    assert_false(peaks_passed(&p, 1000, 7)); /* was not there */
}

static void peaks_are_forgotten_when_the_clock_has_come_so_far_again(void **state)
{
    (void)state;
    struct peaks p = {0};
    peaks_see(&p, 1000, 1);
    peaks_see(&p, 400, 7);
    peaks_see(&p, 999, 9);
    assert_int_equal(p.count, 1);
    peaks_see(&p, 1000, 9);
    assert_int_equal(p.count, 0);
    peaks_see(&p, 300, 11); /* and this is about all of them */
    assert_true(peaks_passed(&p, 1000, 10));
}

static void peaks_of_several_steps_back_each_count(void **state)
{
    (void)state;
    struct peaks p = {0};
    peaks_see(&p, 1000, 1);
    peaks_see(&p, 500, 10);
    peaks_see(&p, 700, 15);
    peaks_see(&p, 100, 20);
    assert_true(peaks_passed(&p, 900, 9) && peaks_passed(&p, 600, 19));
    assert_false(peaks_passed(&p, 900, 10));
    assert_false(peaks_passed(&p, 600, 20));
    assert_true(peaks_valid(&p));
}

static void peaks_are_bounded_and_keep_the_highest(void **state)
{
    (void)state;
    struct peaks p = {0};
    for (int i = 0; i < 3 * PEAKS_MAX; i++) {
        peaks_see(&p, 10000 - 10 * i, (uint64_t)i + 1);
        assert_true(peaks_valid(&p));
    }
    assert_int_equal(p.count, PEAKS_MAX);
    assert_true(peaks_passed(&p, 10000, 1));
    assert_false(peaks_passed(&p, 10000, 3 * PEAKS_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_a_clock_that_goes_forward_are_none),
        cmocka_unit_test(peaks_are_about_what_was_there),
        cmocka_unit_test(peaks_are_forgotten_when_the_clock_has_come_so_far_again),
        cmocka_unit_test(peaks_of_several_steps_back_each_count),
        cmocka_unit_test(peaks_are_bounded_and_keep_the_highest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
