#include "base/durations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct duration_scale *const scales[] = {&duration_waits, &duration_works};

/* The bucket by its definition. */
static uint32_t bucket_slowly(const struct duration_scale *s, uint64_t value)
{
    uint32_t i = 0;
    while (value > s->bounds[i])
        i++;
    return i;
}

static void bounds_are_at_least_doubled_each_time(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i + 1 < DURATION_BOUNDS; i++)
            assert_true(scales[k]->bounds[i + 1] >= 2 * scales[k]->bounds[i]);
        assert_true(scales[k]->bounds[DURATION_BOUNDS] == UINT64_MAX);
    }
}

static void a_value_falls_into_the_first_bucket_whose_bound_it_does_not_exceed(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct duration_scale *s = scales[k];
        for (int i = 0; i < DURATION_BOUNDS; i++) {
            for (uint64_t v = s->bounds[i] - 1; v <= s->bounds[i] + 1; v++)
                assert_int_equal(duration_bucket(s, v), bucket_slowly(s, v));
        }
        for (int bits = 0; bits < 64; bits++) {
            for (uint64_t v = (1ULL << bits) - 1; v <= (1ULL << bits) + 1; v++)
                assert_int_equal(duration_bucket(s, v), bucket_slowly(s, v));
        }
        assert_int_equal(duration_bucket(s, UINT64_MAX), DURATION_BOUNDS);
    }
}

static void a_quantile_lies_in_the_bucket_of_its_value(void **state)
{
    (void)state;
    struct durations d = {0};
    assert_float_equal(durations_quantile(&d, &duration_waits, 0.5), 0, 0);
    for (int i = 0; i < 98; i++)
        durations_add(&d, &duration_waits, 4);
    durations_add(&d, &duration_waits, 1500);
    durations_add(&d, &duration_waits, 1500);
    assert_int_equal(durations_count(&d), 100);
    assert_int_equal(d.sum, 98 * 4 + 3000);
    double median = durations_quantile(&d, &duration_waits, 0.5);
    double late = durations_quantile(&d, &duration_waits, 0.99);
    assert_true(median > 2 && median <= 5);
    assert_true(late > 1000 && late <= 2000);
}

static void a_quantile_beyond_the_last_bound_is_the_last_bound(void **state)
{
    (void)state;
    struct durations d = {0};
    durations_add(&d, &duration_waits, 10 * 86400000ULL);
    assert_float_equal(durations_quantile(&d, &duration_waits, 0.5), 86400000, 0);
}

static void shared_durations_add_up(void **state)
{
    (void)state;
    static struct shared_durations a, b;
    struct durations sum = {0};
    shared_durations_add(&a, &duration_works, 15);
    shared_durations_add(&b, &duration_works, 15);
    shared_durations_add(&b, &duration_works, 2000);
    shared_durations_sum(&a, &sum);
    shared_durations_sum(&b, &sum);
    assert_int_equal(sum.sum, 2030);
    assert_int_equal(sum.buckets[1], 2);
    assert_int_equal(sum.buckets[7], 1);
    assert_int_equal(durations_count(&sum), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_at_least_doubled_each_time),
        cmocka_unit_test(a_value_falls_into_the_first_bucket_whose_bound_it_does_not_exceed),
        cmocka_unit_test(a_quantile_lies_in_the_bucket_of_its_value),
        cmocka_unit_test(a_quantile_beyond_the_last_bound_is_the_last_bound),
        cmocka_unit_test(shared_durations_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
