#include "base/turn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct turn_counters counters_of(const struct turn_watch *w)
{
    struct turn_counters sum = {0};
    turn_watch_add(w, &sum);
    return sum;
}

static void the_longest_turn_is_forgotten_after_two_minutes(void **state)
{
    (void)state;
    struct turn_watch w = {0};
    turn_watch_count(&w, 5000, 100);
    turn_watch_count(&w, 70000, 200);
    turn_watch_count(&w, 6000, 300);
    assert_int_equal(counters_of(&w).max_us, 70000);
    turn_watch_count(&w, 1000, 200 + TURN_WINDOW_MS);
    assert_int_equal(counters_of(&w).max_us, 70000); /* of the minute before */
    turn_watch_count(&w, 2000, 300 + 2 * TURN_WINDOW_MS);
    assert_int_equal(counters_of(&w).max_us, 2000);
}

static void a_long_silence_forgets_too(void **state)
{
    (void)state;
    struct turn_watch w = {0};
    turn_watch_count(&w, 70000, 100);
    turn_watch_count(&w, 1000, 100 + 10 * TURN_WINDOW_MS);
    assert_int_equal(counters_of(&w).max_us, 1000);
}

static void slow_turns_are_counted_and_loops_added_up(void **state)
{
    (void)state;
    struct turn_watch a = {0}, b = {0};
    turn_watch_count(&a, TURN_SLOW_US, 100);
    turn_watch_count(&a, TURN_SLOW_US + 1, 100);
    turn_watch_count(&b, 3 * TURN_SLOW_US, 100);
    struct turn_counters sum = {0};
    turn_watch_add(&a, &sum);
    turn_watch_add(&b, &sum);
    assert_int_equal(sum.turns, 3);
    assert_int_equal(sum.slow, 2);
    assert_int_equal(sum.max_us, 3 * TURN_SLOW_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_turn_is_forgotten_after_two_minutes),
        cmocka_unit_test(a_long_silence_forgets_too),
        cmocka_unit_test(slow_turns_are_counted_and_loops_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
