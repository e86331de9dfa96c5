/* The position of a message, against a simulation that really claims everything. */
#include "base/mem.h"
#include "core/age.h"
#include "core/explain.h"
#include "unit/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct toy t;
static uint64_t seed = 3;

static int64_t any(int64_t n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

static uint64_t count_before(const struct count_item *item)
{
    const struct toy_lane *l = &t.lanes[item->slot];
    uint64_t before = 0;
    for (uint32_t i = l->head; i < l->count; i++) {
        const struct toy_message *m = &l->messages[i];
        before += m->ready_ms != item->ready_ms ? m->ready_ms < item->ready_ms : m->seq < item->seq;
    }
    return before;
}

static void find_heads(const struct explain *e, struct heads_item *heads, uint32_t max)
{
    explain_heads(e, heads);
    for (int rank = 0; rank < t.config.level_count; rank++) {
        const struct toy_lane *l = &t.lanes[heads[rank].slot];
        uint32_t all = l->count - l->head;
        assert_int_equal(heads[rank].slot, t.config.levels[rank].slot);
        heads[rank].count = all < max ? all : max;
        heads[rank].whole = heads[rank].count == all;
        heads[rank].places = mem_alloc((heads[rank].count + 1) * sizeof(struct place));
        for (uint32_t i = 0; i < heads[rank].count; i++)
            heads[rank].places[i] =
                (struct place){l->messages[l->head + i].ready_ms, l->messages[l->head + i].seq};
    }
}

/* As the broker asks, of an engine that has `heads_max` of each level at hand. */
static uint64_t position_of(const struct toy_message *m, uint32_t heads_max, bool *exact)
{
    struct count_item items[EXPLAIN_ITEMS_MAX];
    struct explain e = {.config = &t.config,
                        .policy = &t.policy,
                        .now_ms = t.now_ms,
                        .rank = m->rank,
                        .ready_ms = m->ready_ms,
                        .seq = m->seq};
    explain_places(&e, items);
    for (uint32_t i = 0; i < explain_item_count(&e); i++) {
        if (i < t.config.level_count)
            assert_int_equal(items[i].slot, t.config.levels[i].slot);
        items[i].before = count_before(&items[i]);
        items[i].exact = true;
    }
    uint64_t ahead = explain_ahead(&e, items, exact);
    if (!explain_is_near(&e, items))
        return ahead;
    struct heads_item heads[LEVEL_COUNT_MAX];
    find_heads(&e, heads, heads_max);
    *exact = explain_follow(&e, heads, &ahead);
    for (int rank = 0; rank < t.config.level_count; rank++)
        free(heads[rank].places);
    return ahead;
}

static uint64_t position(const struct toy_message *m, bool *exact)
{
    return position_of(m, POSITION_EXACT, exact);
}

/* Asks for the position of every message, claims them one by one, and compares. */
static void compare_all(void)
{
    static struct toy_message all[1000];
    static uint64_t said[2000]; /* by seq */
    uint32_t count = 0, claimed = 0;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        for (uint32_t i = t.lanes[slot].head; i < t.lanes[slot].count; i++)
            all[count++] = t.lanes[slot].messages[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        bool exact;
        said[all[i].seq] = position(&all[i], &exact);
        assert_true(exact);
    }
    struct toy_message m;
    while (toy_claim(&t, t.config.level_count - 1, 1, &m) == 1)
        assert_int_equal(said[m.seq], claimed++);
    assert_int_equal(claimed, count);
}

static void put_some(int most, int64_t ages_ms)
{
    for (int rank = 0; rank < t.config.level_count; rank++) {
        for (int64_t n = any(4) ? any(most) : 0; n > 0; n--)
            toy_put(&t, rank, TOY_NOW - any(ages_ms));
    }
}

static void random_queue(enum policy_kind kind)
{
    toy_custom(&t, 1 + (int)any(6));
    t.config.policy = kind;
    for (int rank = 0; rank < t.config.level_count; rank++)
        t.config.levels[rank].weight = (double)(1 + any(12)) / 4;
}

#define ROUNDS 3000

/* Ages, promises and pauses of any kind. */
static void random_order(int64_t span)
{
    for (int rank = 0; rank < t.config.level_count; rank++) {
        t.config.levels[rank].age_ms = any(3) ? 1 + any(span / 2) : 0;
        t.config.levels[rank].max_wait_ms = any(3) ? 0 : 1 + any(span);
    }
    toy_configured(&t);
    for (int64_t n = any(3), at = TOY_NOW - span; n > 0; n--) {
        age_pause(&t.config, true, at += any(span / 3));
        age_pause(&t.config, false, at += any(span / 9));
    }
}

static void strict_positions_are_exact(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_STRICT);
        toy_configured(&t);
        put_some(20, 10); /* many of the same millisecond */
        compare_all();
        toy_fini(&t);
    }
}

static void strict_positions_with_aging_and_promises_are_exact(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_STRICT);
        int64_t span = any(2) ? 20 : 2000; /* few places, so that there are ties; and many */
        random_order(span);
        put_some(20, span);
        compare_all();
        toy_fini(&t);
    }
}

static void weighted_positions_are_exact_from_any_tokens(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_WEIGHTED);
        toy_configured(&t);
        put_some(60, 10);
        for (int64_t n = any(40); n > 0; n--) /* somewhere in a cycle */
            toy_claim(&t, t.config.level_count - 1, 1, NULL);
        put_some(60, 10);
        compare_all();
        toy_fini(&t);
    }
}

/* Levels may age and promise as they like, as long as nothing has waited for that long. */
static void weighted_positions_are_exact_while_nothing_has_aged(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_WEIGHTED);
        for (int rank = 0; rank < t.config.level_count; rank++) {
            t.config.levels[rank].age_ms = any(3) ? 10 : 0;
            t.config.levels[rank].max_wait_ms = any(3) ? 0 : 12;
        }
        toy_configured(&t);
        put_some(60, 10);
        compare_all();
        toy_fini(&t);
    }
}

static void weighted_positions_with_aging_and_promises_are_exact(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_WEIGHTED);
        int64_t span = any(2) ? 20 : 2000;
        random_order(span);
        put_some(60, span);
        for (int64_t n = any(40); n > 0; n--)
            toy_claim(&t, t.config.level_count - 1, 1, NULL);
        put_some(20, span);
        compare_all();
        toy_fini(&t);
    }
}

/* What is scheduled stands behind all that is ready in its level. */
static void a_message_that_is_not_ready_yet_has_a_position(void **state)
{
    (void)state;
    bool exact;
    toy_init(&t, "tiers");
    toy_fill(&t, 1, 3);
    toy_fill(&t, 3, 3);
    t.now_ms += t.config.levels[3].age_ms; /* all of rank 3 count as rank 2 */
    assert_int_equal(position(&(struct toy_message){t.now_ms + 1, 99, 3}, &exact), 6);
    assert_true(exact);
    toy_fini(&t);
}

/* Far back, and where an engine has too little at hand, no more are said to be ahead than could be:
 * those before it in its level, and all of the others. */
static void an_estimate_is_bounded_by_what_there_is(void **state)
{
    (void)state;
    uint32_t estimates = 0;
    for (int round = 0; round < ROUNDS; round++) {
        random_queue(POLICY_WEIGHTED);
        int64_t span = any(2) ? 20 : 2000;
        random_order(span);
        put_some(60, span);
        for (int rank = 0; rank < t.config.level_count; rank++) {
            const struct toy_lane *l = &t.lanes[t.config.levels[rank].slot];
            for (uint32_t i = l->head; i < l->count; i += 7) {
                bool exact;
                uint64_t others = 0, ahead = position_of(&l->messages[i], 3, &exact);
                for (int other = 0; other < t.config.level_count; other++)
                    others += other == rank ? 0 : t.view.lanes[t.config.levels[other].slot].ready;
                assert_true(ahead <= i - l->head + others);
                estimates += !exact;
            }
        }
        toy_fini(&t);
    }
    assert_true(estimates > 1000);
}

static void an_estimated_count_makes_an_estimated_position(void **state)
{
    (void)state;
    toy_custom(&t, 2);
    struct count_item items[EXPLAIN_ITEMS_MAX] = {{.before = 3, .exact = true}, {.before = 4}};
    struct explain e = {.config = &t.config, .policy = &t.policy, .now_ms = TOY_NOW};
    bool exact = true;
    assert_int_equal(explain_ahead(&e, items, &exact), 7);
    assert_false(exact);
    toy_fini(&t);
}

/* What stats count, against the definition. */
static void aged_and_late_messages_are_told_from_the_others(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct count_item aged[LEVEL_COUNT_MAX], late[LEVEL_COUNT_MAX];
        random_queue(POLICY_STRICT);
        for (int rank = 0; rank < t.config.level_count; rank++) {
            t.config.levels[rank].age_ms = any(2) ? 1 + any(30) : 0;
            t.config.levels[rank].max_wait_ms = any(2) ? 1 + any(30) : 0;
        }
        toy_configured(&t);
        put_some(20, 40);
        explain_aged(&t.config, t.now_ms, aged);
        explain_late(&t.config, t.now_ms, late);
        for (int rank = 0; rank < t.config.level_count; rank++) {
            const struct toy_lane *l = &t.lanes[t.config.levels[rank].slot];
            uint64_t want_aged = 0, want_late = 0;
            for (uint32_t i = l->head; i < l->count; i++) {
                int64_t ready_ms = l->messages[i].ready_ms;
                want_aged += age_effective_rank(&t.config, rank, ready_ms, t.now_ms) < rank;
                want_late += age_late(&t.config, rank, ready_ms, t.now_ms);
            }
            assert_int_equal(count_before(&aged[rank]), want_aged);
            assert_int_equal(count_before(&late[rank]), want_late);
        }
        toy_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_positions_are_exact),
        cmocka_unit_test(strict_positions_with_aging_and_promises_are_exact),
        cmocka_unit_test(weighted_positions_are_exact_from_any_tokens),
        cmocka_unit_test(weighted_positions_are_exact_while_nothing_has_aged),
        cmocka_unit_test(weighted_positions_with_aging_and_promises_are_exact),
        cmocka_unit_test(a_message_that_is_not_ready_yet_has_a_position),
        cmocka_unit_test(an_estimate_is_bounded_by_what_there_is),
        cmocka_unit_test(an_estimated_count_makes_an_estimated_position),
        cmocka_unit_test(aged_and_late_messages_are_told_from_the_others),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
