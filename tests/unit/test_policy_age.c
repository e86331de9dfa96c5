/* What waiting does to the order: aging, promised waits, and that nobody starves. */
#include "unit/policy_rig.h"

/* Aging */

static void aging_steps_accumulate(void **state)
{
    (void)state;
    start_custom(4, POLICY_STRICT);
    t.config.levels[3].age_ms = 1000;
    t.config.levels[2].age_ms = 500;
    toy_configured(&t);
    static const struct {
        int64_t waited_ms;
        const char *order; /* of what is put at each rank just now, and the old one of rank 3 */
    } cases[] = {{999, "0123"}, {1000, "0132"}, {1499, "0132"}, {1500, "0312"}, {900000, "0312"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        toy_put(&t, 3, TOY_NOW - cases[i].waited_ms);
        for (int rank = 0; rank < 3; rank++)
            toy_put(&t, rank, TOY_NOW);
        assert_ranks(10, cases[i].order);
    }
}

static void an_aged_message_uses_the_tokens_of_the_level_it_counts_as(void **state)
{
    (void)state;
    start_custom(2, POLICY_WEIGHTED);
    t.config.levels[0].weight = 3;
    t.config.levels[1].age_ms = 1000;
    toy_configured(&t);
    for (int i = 0; i < 20; i++)
        toy_put(&t, 1, TOY_NOW - 2000 + i);
    toy_fill(&t, 0, 20);
    /* They count as both: three of four go to the oldest of either, which are the aged ones. */
    assert_ranks(4, "1111");
    start_custom(2, POLICY_WEIGHTED);
    t.config.levels[0].weight = 3;
    t.config.levels[1].age_ms = 1000;
    toy_configured(&t);
    toy_put(&t, 1, TOY_NOW - 2000);
    for (int i = 0; i < 20; i++)
        toy_put(&t, 0, TOY_NOW - 3000);
    toy_fill(&t, 1, 20);
    assert_ranks(4, "0001");
}

/* However many are wanted, and however wrong the guess about what is behind the heads. */
static void batches_of_aged_messages_are_full(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
            start("tiers");
            t.config.policy = kinds[k];
            toy_configured(&t);
            for (int n = 0; n < 40; n++) {
                toy_put(&t, 4, TOY_NOW - (n % 7 ? 0 : 6000000));
                toy_put(&t, 3, TOY_NOW - (n % 5 ? 0 : 6000000));
                toy_put(&t, 1, TOY_NOW);
            }
            for (uint32_t left = 120, n; left > 0; left -= n) {
                n = toy_claim(&t, lowest(), batches[i], NULL);
                assert_int_equal(n, left < batches[i] ? left : batches[i]);
            }
        }
    }
}

/* Promises */

static void a_promise_goes_first_and_the_nearest_deadline_before_all(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        start_custom(4, kinds[k]);
        t.config.levels[2].max_wait_ms = 8000; /* urgent from 7000 on */
        t.config.levels[3].max_wait_ms = 4000; /* from 3500 on */
        toy_configured(&t);
        toy_fill(&t, 0, 3);
        toy_put(&t, 2, TOY_NOW - 6999);
        toy_put(&t, 3, TOY_NOW - 3499);
        assert_ranks(1, "0");
        t.now_ms++;
        /* Both are due: 1000 ms are left to the one, 500 to the other. */
        assert_ranks(1, "3");
        assert_ranks(1, "2");
        assert_ranks(5, "00");
    }
}

static void promises_cost_no_tokens(void **state)
{
    (void)state;
    static const uint64_t want[] = {16, 8, 4, 2, 1};
    start("tiers");
    t.config.levels[2].max_wait_ms = 1000;
    toy_configured(&t);
    for (int i = 0; i < 50; i++)
        toy_put(&t, 2, TOY_NOW - 5000);
    uint64_t have[LEVEL_COUNT_MAX];
    toy_drain(&t, 50, 9, have);
    for (int rank = 0; rank <= lowest(); rank++)
        toy_fill(&t, rank, 40);
    toy_drain(&t, 31, 1, have);
    assert_counts(have, want);
}

static void a_promised_message_is_not_counted_twice(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        start_custom(2, kinds[k]);
        t.config.levels[0].max_wait_ms = 1000;
        toy_configured(&t);
        toy_put(&t, 0, TOY_NOW - 5000);
        toy_fill(&t, 1, 5);
        assert_ranks(3, "011");
    }
}

static void a_promise_does_not_break_a_limit(void **state)
{
    (void)state;
    start_custom(2, POLICY_STRICT);
    t.config.levels[1].max_wait_ms = 1000;
    t.config.levels[1].max_in_flight = 2;
    toy_configured(&t);
    for (int i = 0; i < 5; i++)
        toy_put(&t, 1, TOY_NOW - 5000);
    toy_fill(&t, 0, 1);
    assert_ranks(5, "110");
    assert_ranks(5, "");
}

/* No starvation */

/* A day of one claim a second, with two CRITICAL messages coming for each; the longest wait of
 * each other level, by what the header promises: a message with k of its level before it is among
 * the next (⌈(k + 1) / quota⌉ + 1) cycles. */
static void a_flood_of_the_most_urgent_level_keeps_nobody_waiting_beyond_the_bound(void **state)
{
    (void)state;
    enum { DAY = 86400 };
    static const int every[] = {0, 10, 20, 50, 60}; /* seconds between arrivals, by rank */
    start("tiers");
    uint64_t cycle = policy_cycle(&t.policy, &t.config), longest = 0, claimed[5] = {0};
    static uint64_t due[DAY / 10 * 5]; /* by seq of the slow levels: claimed by then */
    static int64_t arrived[DAY / 10 * 5];
    static uint64_t index[3 * DAY + 10]; /* by seq */
    uint64_t slow = 1;
    for (uint64_t second = 0; second < DAY; second++, t.now_ms += 1000) {
        toy_fill(&t, 0, 2);
        for (int rank = 1; rank < 5; rank++) {
            if (second % (uint64_t)every[rank] != 0)
                continue;
            uint64_t before = t.view.lanes[t.config.levels[rank].slot].ready;
            uint64_t quota = t.policy.quota[rank];
            index[toy_put(&t, rank, t.now_ms)] = slow;
            due[slow] = second + ((before + quota) / quota + 1) * cycle;
            arrived[slow++] = (int64_t)second;
        }
        struct toy_message m;
        assert_int_equal(toy_claim(&t, lowest(), 1, &m), 1);
        claimed[m.rank]++;
        if (m.rank == 0)
            continue;
        assert_true(second <= due[index[m.seq]]);
        if (m.rank == 4 && second - (uint64_t)arrived[index[m.seq]] > longest)
            longest = second - (uint64_t)arrived[index[m.seq]];
    }
    assert_true(longest <= 2 * cycle);
    for (int rank = 1; rank < 5; rank++) /* all that came was served, but for the last few */
        assert_in_range(claimed[rank], DAY / every[rank] - 8, DAY / every[rank]);
}

/* Strict with aging: what has waited for all its steps goes before whatever came later than that
 * after it. */
static void with_aging_a_flood_overtakes_for_no_longer_than_the_thresholds(void **state)
{
    (void)state;
    enum { STEPS_MS = 3 * 100000 };
    start_custom(4, POLICY_STRICT);
    for (int rank = 1; rank < 4; rank++)
        t.config.levels[rank].age_ms = 100000;
    toy_configured(&t);
    int64_t last_ms[4] = {0};
    for (int second = 0; second < 20000; second++, t.now_ms += 1000) {
        toy_fill(&t, 0, second % 10 ? 1 : 2); /* a tenth more than is claimed */
        if (second % 100 == 0)
            toy_fill(&t, 3, 1);
        struct toy_message m;
        assert_int_equal(toy_claim(&t, lowest(), 1, &m), 1);
        last_ms[m.rank] = m.ready_ms;
        const struct lane_view *lane = &t.view.lanes[t.config.levels[3].slot];
        if (m.rank == 0 && lane->ready > 0) {
            bool due = t.now_ms - lane->head_ms >= STEPS_MS;
            assert_true(!due || m.ready_ms <= lane->head_ms);
        }
    }
    assert_true(last_ms[3] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(aging_steps_accumulate),
        TEST(an_aged_message_uses_the_tokens_of_the_level_it_counts_as),
        TEST(batches_of_aged_messages_are_full),
        TEST(a_promise_goes_first_and_the_nearest_deadline_before_all),
        TEST(promises_cost_no_tokens),
        TEST(a_promised_message_is_not_counted_twice),
        TEST(a_promise_does_not_break_a_limit),
        TEST(a_flood_of_the_most_urgent_level_keeps_nobody_waiting_beyond_the_bound),
        TEST(with_aging_a_flood_overtakes_for_no_longer_than_the_thresholds),
    };
    return cmocka_run_group_tests_name("policy, age", tests, NULL, NULL);
}
