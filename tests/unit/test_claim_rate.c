#include "broker/claim_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void rate_before_the_first_claim_is_none(void **state)
{
    (void)state;
    struct claim_rate rate = {0};
    assert_float_equal(claim_rate_per_second(&rate, 5000000), 0, 0);
}

static void rate_of_a_young_queue_is_a_mean_since_its_first_claim(void **state)
{
    (void)state;
    struct claim_rate rate = {0};
    claim_rate_add(&rate, 6, 100000);
    assert_float_equal(claim_rate_per_second(&rate, 100999), 6, 0);
    assert_float_equal(claim_rate_per_second(&rate, 102000), 2, 0); /* the third second */
}

static void rate_is_a_mean_of_the_last_seconds_alone(void **state)
{
    (void)state;
    struct claim_rate rate = {0};
    for (int64_t s = 1000; s < 1100; s++)
        claim_rate_add(&rate, 10, s * 1000);
    assert_float_equal(claim_rate_per_second(&rate, 1099 * 1000), 10, 0);
    int64_t half_ms = (1099 + CLAIM_RATE_SECONDS / 2) * 1000;
    assert_float_equal(claim_rate_per_second(&rate, half_ms), 5, 0);
}

static void rate_falls_to_nothing_when_nobody_claims(void **state)
{
    (void)state;
    struct claim_rate rate = {0};
    claim_rate_add(&rate, 100, 7000);
    assert_float_equal(claim_rate_per_second(&rate, 7000 + CLAIM_RATE_SECONDS * 1000), 0, 0);
    claim_rate_add(&rate, CLAIM_RATE_SECONDS, 900000); /* what was before is not counted again */
    assert_float_equal(claim_rate_per_second(&rate, 900000), 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_before_the_first_claim_is_none),
        cmocka_unit_test(rate_of_a_young_queue_is_a_mean_since_its_first_claim),
        cmocka_unit_test(rate_is_a_mean_of_the_last_seconds_alone),
        cmocka_unit_test(rate_falls_to_nothing_when_nobody_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
