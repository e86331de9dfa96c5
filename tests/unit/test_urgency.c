#include "core/urgency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1750000000000

static struct queue_config config;
static struct queue_view view;
static struct policy policy;
static struct plan plan;

static void start(int level_count)
{
    config = (struct queue_config){.level_count = (uint8_t)level_count};
    view = (struct queue_view){0};
    for (int rank = 0; rank < level_count; rank++) {
        config.levels[rank].slot = (uint8_t)rank;
        config.levels[rank].weight = 1;
    }
}

static int setup(void **state)
{
    (void)state;
    start(5);
    return 0;
}

static void put(int rank, uint64_t count, int64_t head_ms)
{
    view.lanes[rank].ready = count;
    view.lanes[rank].head_ms = head_ms;
    view.ready += count;
}

static struct urgency urgency(void)
{
    struct urgency u = {0};
    assert_true(urgency_of(&config, &view, config.level_count - 1, NOW, &u));
    return u;
}

static void the_ends_of_all_queues_count_the_same(void **state)
{
    (void)state;
    for (int levels = 2; levels <= LEVEL_COUNT_MAX; levels++) {
        start(levels);
        put(levels - 1, 1, NOW);
        assert_int_equal(urgency().degree, URGENCY_LEAST);
        put(0, 1, NOW);
        assert_int_equal(urgency().degree, 0);
    }
}

static void levels_between_lie_evenly(void **state)
{
    (void)state;
    for (int levels = 2; levels <= LEVEL_COUNT_MAX; levels++) {
        for (int rank = 0; rank < levels; rank++) {
            start(levels);
            put(rank, 1, NOW);
            assert_int_equal(urgency().degree * (levels - 1), rank * URGENCY_LEAST);
        }
    }
}

static void a_single_level_is_in_the_middle(void **state)
{
    (void)state;
    start(1);
    put(0, 1, NOW);
    assert_int_equal(urgency().degree, URGENCY_LEAST / 2);
}

static void of_the_same_degree_the_oldest_goes_first(void **state)
{
    (void)state;
    struct urgency old = {5, 100}, young = {5, 101}, urgent = {4, 999};
    assert_true(urgency_before(&old, &young));
    assert_false(urgency_before(&young, &old));
    assert_false(urgency_before(&old, &old));
    assert_true(urgency_before(&urgent, &old));
}

static void what_has_aged_counts_as_what_it_is_now(void **state)
{
    (void)state;
    config.levels[4].age_ms = config.levels[3].age_ms = 1000;
    put(4, 1, NOW - 2500);
    put(3, 1, NOW - 500);
    assert_int_equal(urgency().degree, URGENCY_LEAST / 2);
    assert_int_equal(urgency().ready_ms, NOW - 2500);
}

static void a_promise_goes_before_everything(void **state)
{
    (void)state;
    config.levels[4].max_wait_ms = 800;
    put(0, 1, NOW - 5000);
    put(4, 1, NOW - 699);
    assert_int_equal(urgency().degree, 0);
    put(4, 1, NOW - 700);
    assert_int_equal(urgency().degree, URGENCY_PROMISED);
}

static void what_may_not_be_claimed_does_not_count(void **state)
{
    (void)state;
    struct urgency u;
    assert_false(urgency_of(&config, &view, 4, NOW, &u));
    put(3, 1, NOW);
    assert_false(urgency_of(&config, &view, 2, NOW, &u));
    config.paused = true;
    assert_false(urgency_of(&config, &view, 4, NOW, &u));
    config.paused = false;
    config.max_in_flight = view.leased = 1;
    assert_false(urgency_of(&config, &view, 4, NOW, &u));
    config.max_in_flight = 2;
    assert_true(urgency_of(&config, &view, 4, NOW, &u));
    config.levels[3].max_in_flight = 1;
    view.lanes[3].leased = 1;
    assert_false(urgency_of(&config, &view, 4, NOW, &u));
}

static void make_plan(uint32_t want)
{
    policy_init(&policy, &config);
    policy_plan(&policy, &config, &view, config.level_count - 1, want, NOW, &plan);
}

static void a_plan_is_cut_where_another_queue_goes_first(void **state)
{
    (void)state;
    for (int rank = 0; rank < 5; rank++)
        put(rank, 3, NOW - 100);
    make_plan(100);
    assert_int_equal(plan.step_count, 5);
    urgency_cut(&plan, &config, &(struct urgency){URGENCY_LEAST / 4 + 1, NOW - 200});
    assert_int_equal(plan.step_count, 2);
    assert_int_equal(plan.max_rank, 1);
    assert_true(plan.lanes[plan.steps[1].first_lane].until_ms >= NOW);
}

static void of_the_same_degree_it_is_cut_by_time(void **state)
{
    (void)state;
    put(0, 3, NOW - 100);
    put(2, 3, NOW - 100);
    make_plan(100);
    urgency_cut(&plan, &config, &(struct urgency){URGENCY_LEAST / 2, NOW - 50});
    assert_int_equal(plan.step_count, 2);
    assert_true(plan.lanes[plan.steps[0].first_lane].until_ms >= NOW);
    assert_int_equal(plan.lanes[plan.steps[1].first_lane].until_ms, NOW - 50);
}

static void only_strict_order_is_by_urgency(void **state)
{
    (void)state;
    policy_init(&policy, &config);
    assert_true(urgency_orders(&policy));
    config.levels[1].age_ms = 1000;
    policy_init(&policy, &config);
    assert_true(urgency_orders(&policy));
    config.levels[1].max_wait_ms = 1000;
    policy_init(&policy, &config);
    assert_false(urgency_orders(&policy));
    start(5);
    config.policy = POLICY_WEIGHTED;
    policy_init(&policy, &config);
    assert_false(urgency_orders(&policy));
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_ends_of_all_queues_count_the_same),
        TEST(levels_between_lie_evenly),
        TEST(a_single_level_is_in_the_middle),
        TEST(of_the_same_degree_the_oldest_goes_first),
        TEST(what_has_aged_counts_as_what_it_is_now),
        TEST(a_promise_goes_before_everything),
        TEST(what_may_not_be_claimed_does_not_count),
        TEST(a_plan_is_cut_where_another_queue_goes_first),
        TEST(of_the_same_degree_it_is_cut_by_time),
        TEST(only_strict_order_is_by_urgency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
