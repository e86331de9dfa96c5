/* Which level a claim is served from: by rank, by weight, and within limits. */
#include "unit/policy_rig.h"

/* Strict */

static void nothing_ready_means_no_steps(void **state)
{
    (void)state;
    t.view.lanes[3].scheduled = t.view.lanes[3].leased = 5;
    toy_plan(&t, lowest(), 10);
    assert_int_equal(t.plan.step_count, 0);
    assert_int_equal(policy_eligible(&t.config, &t.view, lowest()), 0);
}

static void strict_takes_the_most_urgent_first(void **state)
{
    (void)state;
    toy_fill(&t, 7, 100);
    toy_fill(&t, 2, 3);
    toy_fill(&t, 4, 1);
    assert_ranks(1, "2");
    assert_ranks(6, "224777");
}

static void less_urgent_ranks_are_left_alone(void **state)
{
    (void)state;
    toy_fill(&t, 2, 1);
    toy_fill(&t, 3, 5);
    assert_int_equal(toy_claim(&t, 1, 10, NULL), 0);
    assert_int_equal(policy_eligible(&t.config, &t.view, 1), 0);
    assert_int_equal(policy_eligible(&t.config, &t.view, 2), 1);
    assert_int_equal(policy_eligible(&t.config, &t.view, 9), 6);
    assert_int_equal(toy_claim(&t, 2, 10, NULL), 1);
}

static void counts_beyond_any_batch_do_not_overflow_a_plan(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        t.config.policy = kinds[k];
        toy_configured(&t);
        for (int slot = 0; slot < 10; slot++)
            t.view.lanes[slot].ready = 10000000000;
        toy_plan(&t, lowest(), CLAIM_MAX);
        uint32_t total = 0;
        for (uint32_t i = 0; i < t.plan.step_count; i++)
            total += t.plan.steps[i].max;
        assert_true(total >= CLAIM_MAX);
        assert_int_equal(t.plan.steps[0].rank, 0);
    }
}

static void sixteen_levels_that_age_fit_a_plan(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        start_custom(LEVEL_COUNT_MAX, kinds[k]);
        for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
            t.config.levels[rank].age_ms = 1;
            t.config.levels[rank].max_wait_ms = 1000;
            t.config.levels[rank].weight = 0.001 * (rank + 1);
        }
        toy_configured(&t);
        for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
            for (int i = 0; i < 10; i++)
                toy_put(&t, rank, TOY_NOW - 10000 - i);
        }
        struct toy_message out[CLAIM_MAX];
        assert_int_equal(toy_claim(&t, lowest(), CLAIM_MAX, out), CLAIM_MAX);
        assert_int_equal(toy_claim(&t, lowest(), CLAIM_MAX, out), 60);
    }
}

/* Weighted */

static void tiers_share_by_sixteen_eight_four_two_one(void **state)
{
    (void)state;
    static const uint64_t want[] = {16000, 8000, 4000, 2000, 1000};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        uint64_t have[LEVEL_COUNT_MAX];
        start("tiers");
        for (int rank = 0; rank <= lowest(); rank++)
            toy_fill(&t, rank, 16200);
        assert_int_equal(policy_cycle(&t.policy, &t.config), 31);
        toy_drain(&t, 31000, batches[i], have);
        assert_counts(have, want);
    }
}

static void environments_share_by_four_three_two_one(void **state)
{
    (void)state;
    static const uint64_t want[] = {4000, 3000, 2000, 1000};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        uint64_t have[LEVEL_COUNT_MAX];
        start("environments");
        for (int rank = 0; rank <= lowest(); rank++)
            toy_fill(&t, rank, 4200);
        toy_drain(&t, 10000, batches[i], have);
        assert_counts(have, want);
    }
}

static void every_whole_cycle_is_exact_on_its_own(void **state)
{
    (void)state;
    static const uint64_t want[] = {16, 8, 4, 2, 1};
    start("tiers");
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 400);
    for (int cycle = 0; cycle < 20; cycle++) {
        uint64_t have[LEVEL_COUNT_MAX];
        toy_drain(&t, 31, 1 + (uint32_t)cycle, have);
        assert_counts(have, want);
    }
}

/* Smallest whole numbers: 0.3 : 0.2 : 1 is 3 : 2 : 10. */
static void fractional_weights_are_exact(void **state)
{
    (void)state;
    static const double weights[] = {0.3, 0.2, 1};
    static const uint64_t want[] = {3000, 2000, 10000};
    start_custom(3, POLICY_WEIGHTED);
    for (int rank = 0; rank < 3; rank++)
        t.config.levels[rank].weight = weights[rank];
    toy_configured(&t);
    for (int rank = 0; rank < 3; rank++)
        toy_fill(&t, rank, 11000);
    assert_int_equal(policy_cycle(&t.policy, &t.config), 15);
    uint64_t have[LEVEL_COUNT_MAX];
    toy_drain(&t, 15000, 9, have);
    assert_counts(have, want);
}

static void an_empty_level_leaves_its_share_to_the_others(void **state)
{
    (void)state;
    static const uint64_t cycles[][5] = {
        {0, 8, 4, 2, 1}, {16, 0, 4, 2, 1}, {16, 8, 0, 2, 1}, {16, 8, 4, 2, 0}};
    for (size_t empty = 0; empty < sizeof(cycles) / sizeof(cycles[0]); empty++) {
        for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
            uint64_t have[LEVEL_COUNT_MAX], want[LEVEL_COUNT_MAX], cycle = 0;
            start("tiers");
            for (int rank = 0; rank <= lowest(); rank++) {
                want[rank] = cycles[empty][rank] * 100;
                cycle += cycles[empty][rank];
                if (want[rank] > 0)
                    toy_fill(&t, rank, 3000);
            }
            toy_drain(&t, cycle * 100, batches[i], have);
            assert_counts(have, want);
        }
    }
}

static void weighted_is_never_idle(void **state)
{
    (void)state;
    start("tiers");
    toy_fill(&t, 4, 250);
    uint64_t have[LEVEL_COUNT_MAX];
    toy_drain(&t, 1000, 7, have);
    assert_int_equal(have[4], 250);
}

static void the_richest_level_goes_first_and_ties_to_the_more_urgent(void **state)
{
    (void)state;
    start("environments");
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 10);
    assert_ranks(10, "0010120123");
    assert_ranks(3, "001");
    assert_ranks(1, "0");
}

/* Consumers of the urgent levels alone have buckets of their own. */
static void claims_of_urgent_levels_leave_the_buckets_of_the_others_alone(void **state)
{
    (void)state;
    static const uint64_t want[] = {160, 80, 40, 20, 10}, urgent[] = {192, 96};
    start("tiers");
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 1000);
    uint64_t have[LEVEL_COUNT_MAX] = {0}, above[LEVEL_COUNT_MAX] = {0};
    for (int i = 0; i < 310; i++) {
        struct toy_message m;
        assert_int_equal(toy_claim(&t, lowest(), 1, &m), 1);
        have[m.rank]++;
        for (int k = 0; k < 2 && i < 144; k++) {
            assert_int_equal(toy_claim(&t, 1, 1, &m), 1);
            above[m.rank]++;
        }
    }
    assert_counts(have, want);
    assert_int_equal(above[0], urgent[0]);
    assert_int_equal(above[1], urgent[1]);
}

static void what_is_not_there_costs_no_tokens(void **state)
{
    (void)state;
    start("environments");
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 100);
    struct policy before = t.policy;
    uint32_t others = (uint32_t)policy_cycle(&before, &t.config) - before.quota[0];
    toy_plan(&t, lowest(), others);
    toy_drop(&t, 0, 100); /* all of the first level expired meanwhile */
    struct toy_message out[CLAIM_MAX];
    uint32_t n = toy_follow(&t, out);
    uint32_t spent[LEVEL_COUNT_MAX] = {0};
    for (uint32_t i = 0; i < n; i++)
        spent[out[i].rank]++;
    assert_int_equal(n, others);
    assert_int_equal(spent[0], 0);
    for (int rank = 0; rank <= lowest(); rank++)
        assert_int_equal(t.policy.tokens[lowest()][rank],
                         before.tokens[lowest()][rank] - spent[rank]);
}

static void a_new_configuration_starts_with_full_buckets(void **state)
{
    (void)state;
    static const uint64_t want[] = {1, 2, 3, 4, 5};
    start("tiers");
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 200);
    uint64_t have[LEVEL_COUNT_MAX];
    toy_drain(&t, 17, 5, have);
    for (int rank = 0; rank <= lowest(); rank++)
        t.config.levels[rank].weight = rank + 1;
    toy_configured(&t);
    toy_drain(&t, 15, 4, have);
    assert_counts(have, want);
}

/* Limits */

static void a_level_at_its_limit_is_passed_over(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        start_custom(3, kinds[k]);
        t.config.levels[0].max_in_flight = 2;
        t.config.levels[1].max_in_flight = 1;
        toy_configured(&t);
        toy_fill(&t, 0, 10);
        toy_fill(&t, 1, 10);
        assert_int_equal(policy_claimable(&t.config, &t.view, 0), 2);
        assert_int_equal(policy_eligible(&t.config, &t.view, 2), 3);
        assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 3);
        assert_int_equal(policy_eligible(&t.config, &t.view, 2), 0);
        assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 0);
        toy_finish(&t, 1, 1);
        assert_ranks(5, "1");
        toy_fill(&t, 2, 1);
        assert_ranks(5, "2");
        toy_finish(&t, 0, 2);
        assert_ranks(5, "00");
    }
}

/* Lowered below what is in flight, a limit lets nothing through, and does not wrap around. */
static void a_limit_below_what_is_in_flight_waits_for_it_to_end(void **state)
{
    (void)state;
    start_custom(2, POLICY_STRICT);
    toy_fill(&t, 0, 20);
    assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 10);
    t.config.max_in_flight = t.config.levels[0].max_in_flight = 4;
    assert_int_equal(policy_room(&t.config, &t.view), 0);
    assert_int_equal(policy_claimable(&t.config, &t.view, 0), 0);
    assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 0);
    toy_finish(&t, 0, 7);
    assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 1);
}

static void a_queue_at_its_limit_gives_nothing(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        start_custom(2, kinds[k]);
        t.config.max_in_flight = 3;
        toy_configured(&t);
        toy_fill(&t, 0, 10);
        toy_fill(&t, 1, 10);
        assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 3);
        toy_plan(&t, lowest(), 1);
        assert_int_equal(t.plan.step_count, 0);
        toy_finish(&t, 0, 1);
        assert_int_equal(toy_claim(&t, lowest(), 10, NULL), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_ready_means_no_steps),
        TEST(strict_takes_the_most_urgent_first),
        TEST(less_urgent_ranks_are_left_alone),
        TEST(counts_beyond_any_batch_do_not_overflow_a_plan),
        TEST(sixteen_levels_that_age_fit_a_plan),
        TEST(tiers_share_by_sixteen_eight_four_two_one),
        TEST(environments_share_by_four_three_two_one),
        TEST(every_whole_cycle_is_exact_on_its_own),
        TEST(fractional_weights_are_exact),
        TEST(an_empty_level_leaves_its_share_to_the_others),
        TEST(weighted_is_never_idle),
        TEST(the_richest_level_goes_first_and_ties_to_the_more_urgent),
        TEST(claims_of_urgent_levels_leave_the_buckets_of_the_others_alone),
        TEST(what_is_not_there_costs_no_tokens),
        TEST(a_new_configuration_starts_with_full_buckets),
        TEST(a_level_at_its_limit_is_passed_over),
        TEST(a_limit_below_what_is_in_flight_waits_for_it_to_end),
        TEST(a_queue_at_its_limit_gives_nothing),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
