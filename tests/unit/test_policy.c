#include "core/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A queue whose slots run against its ranks, so that mixing them up shows. */
static struct queue_config config;
static struct queue_view view;
static struct policy policy;
static struct plan plan;

static int setup(void **state)
{
    (void)state;
    assert_true(levels_profile("levels", &config));
    for (int i = 0; i < config.level_count; i++)
        config.levels[i].slot = (uint8_t)(config.level_count - 1 - i);
    view = (struct queue_view){0};
    policy_init(&policy, &config);
    memset(&plan, 0xAA, sizeof(plan));
    return 0;
}

static void ready(int rank, uint64_t count)
{
    view.lanes[config.levels[rank].slot].ready = count;
    view.ready += count;
}

static void plan_for(int max_rank, uint32_t want)
{
    policy_plan(&policy, &config, &view, max_rank, want, 1750000000000, &plan);
    assert_int_equal(plan.want, want);
    uint32_t total = 0;
    for (uint32_t i = 0; i < plan.step_count; i++) {
        const struct plan_step *s = &plan.steps[i];
        assert_true(s->rank <= max_rank);
        assert_int_equal(s->slot, config.levels[s->rank].slot);
        assert_true(s->max > 0);
        total += s->max;
    }
    assert_true(total >= want || total >= policy_eligible(&config, &view, max_rank));
}

static void nothing_ready_means_no_steps(void **state)
{
    (void)state;
    view.lanes[3].scheduled = view.lanes[3].leased = 5;
    plan_for(9, 10);
    assert_int_equal(plan.step_count, 0);
    assert_int_equal(policy_eligible(&config, &view, 9), 0);
}

static void strict_takes_the_most_urgent_first(void **state)
{
    (void)state;
    ready(7, 100);
    ready(2, 3);
    ready(4, 1);
    plan_for(9, 1);
    assert_int_equal(plan.steps[0].rank, 2);
    plan_for(9, 6);
    static const uint8_t ranks[] = {2, 4, 7};
    static const uint16_t least[] = {3, 1, 2};
    assert_int_equal(plan.step_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(plan.steps[i].rank, ranks[i]);
        assert_true(plan.steps[i].max >= least[i]);
    }
}

static void strict_leaves_less_urgent_ranks_alone(void **state)
{
    (void)state;
    ready(2, 1);
    ready(3, 5);
    plan_for(1, 10);
    assert_int_equal(plan.step_count, 0);
    plan_for(2, 10);
    assert_int_equal(plan.step_count, 1);
    assert_int_equal(policy_eligible(&config, &view, 1), 0);
    assert_int_equal(policy_eligible(&config, &view, 2), 1);
    assert_int_equal(policy_eligible(&config, &view, 9), 6);
}

static void deep_levels_do_not_overflow_a_plan(void **state)
{
    (void)state;
    for (int rank = 0; rank < 10; rank++)
        ready(rank, 10000000000);
    plan_for(9, CLAIM_MAX);
    assert_int_equal(plan.step_count, 1);
    assert_int_equal(plan.steps[0].rank, 0);
    assert_true(plan.steps[0].max >= CLAIM_MAX);
}

static void sixteen_levels_fit_a_plan(void **state)
{
    (void)state;
    config.level_count = LEVEL_COUNT_MAX;
    for (int i = 0; i < LEVEL_COUNT_MAX; i++)
        config.levels[i].slot = (uint8_t)(15 - i);
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++)
        ready(rank, 1);
    plan_for(15, CLAIM_MAX);
    assert_int_equal(plan.step_count, 16);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_ready_means_no_steps),
        TEST(strict_takes_the_most_urgent_first),
        TEST(strict_leaves_less_urgent_ranks_alone),
        TEST(deep_levels_do_not_overflow_a_plan),
        TEST(sixteen_levels_fit_a_plan),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
