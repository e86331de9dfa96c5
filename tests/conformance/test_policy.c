/* What claims by a policy find: the same on every engine, also where the engine's view of the queue
 * is old, or empty because it has just begun. */
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "policy"

static void put_each(const char *letters, int rank)
{
    for (int i = 0; letters[i]; i++)
        put(Q, (char[]){letters[i], '\0'}, rank);
}

static void put_number(char letter, int first, int count, int rank)
{
    for (int i = first; i < first + count; i++)
        put(Q, (char[]){letter, (char)('0' + i), '\0'}, rank);
}

/* One batch: all of it is ready in the same millisecond. */
static void put_batch(const char *const *payloads, const int *ranks, uint32_t count)
{
    struct put_item items[16] = {0};
    for (uint32_t i = 0; i < count; i++)
        items[i].draft = draft_of(Q, (struct spec){.payload = payloads[i], .rank = ranks[i]});
    struct engine_op op = {.verb = ENGINE_PUT, .queue = queue(Q)};
    op.put.items = items;
    op.put.count = count;
    rig_run_one(&d.rig, &op);
}

static struct policy weighted(struct queue_config *c, const double *weights)
{
    struct policy policy;
    c->policy = POLICY_WEIGHTED;
    for (int rank = 0; rank < c->level_count; rank++)
        c->levels[rank].weight = weights[rank];
    policy_init(&policy, c);
    return policy;
}

/* Limits */

static void a_level_at_its_limit_is_passed_over(void **state)
{
    (void)state;
    struct queue_config c = rig_config(4);
    c.levels[0].max_in_flight = c.levels[1].max_in_flight = 2;
    make_queue(Q, &c);
    struct policy policy;
    policy_init(&policy, &c);
    put_number('b', 0, 4, 0);
    put_number('c', 0, 4, 1);
    assert_claims_by(Q, &policy, 10, "b0 b1 c0 c1");
    put_each("C", 1);
    put_each("D", 2);
    put_each("E", 3);
    assert_claims_by(Q, &policy, 1, "D");
    assert_claims_by(Q, &policy, 2, "E");
    assert_claims_by(Q, &policy, 2, "");
}

static void levels_at_their_limits_leave_their_shares_to_the_others(void **state)
{
    (void)state;
    struct queue_config c = rig_config(4);
    c.levels[0].max_in_flight = c.levels[1].max_in_flight = 1;
    struct policy policy = weighted(&c, (const double[]){8, 4, 2, 1});
    make_queue(Q, &c);
    put_number('a', 0, 9, 0);
    put_number('b', 0, 9, 1);
    put_number('c', 0, 9, 2);
    put_number('d', 0, 9, 3);
    assert_claims_by(Q, &policy, 8, "a0 b0 c0 c1 d0 c2 c3 d1");
    struct shown first = d.shown[0];
    assert_int_equal(ack(Q, &first), STATUS_OK);
    assert_claims_by(Q, &policy, 3, "a1 c4 c5"); /* a had been refilled with the rest */
}

static void the_limit_of_a_queue_ends_a_batch(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.max_in_flight = 4;
    struct policy policy = weighted(&c, (const double[]){2, 1, 1});
    make_queue(Q, &c);
    put_number('a', 0, 9, 0);
    put_number('b', 0, 9, 1);
    assert_claims_by(Q, &policy, 9, "a0 a1 b0 a2");
    assert_claims_by(Q, &policy, 9, "");
}

/* Promises */

static void what_is_overdue_goes_first_and_pays_nothing(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.levels[2].max_wait_ms = 1000;
    struct policy policy = weighted(&c, (const double[]){4, 3, 1});
    make_queue(Q, &c);
    put_number('p', 0, 9, 0);
    put_number('d', 0, 5, 2);
    sleep_ms(1400);
    assert_claims_by(Q, &policy, 4, "d0 d1 d2 d3");
    assert_claims_by(Q, &policy, 3, "d4 p0 p1");
    put_number('s', 0, 3, 1);
    put_number('e', 0, 3, 2);
    assert_claims_by(Q, &policy, 7, "s0 p2 s1 p3 s2 e0 p4"); /* 2:3:1 left, then all again */
}

static void promises_of_several_levels_are_kept_by_their_ends(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.levels[1].max_wait_ms = 2000;
    c.levels[2].max_wait_ms = 1000;
    make_queue(Q, &c);
    put_each("b", 1);
    sleep_ms(500);
    put_each("c", 2);
    put_each("a", 0);
    sleep_ms(1250); /* both are in the last eighth; c ends at 1500, b at 2000 */
    struct policy policy;
    policy_init(&policy, &c);
    assert_claims_by(Q, &policy, 3, "c b a");
}

/* A process that has just begun, and one that has not met the queue. */

static void ages_and_promises_count_from_the_first_claim_on(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.levels[1].age_ms = 500;
    c.levels[2].max_wait_ms = 300;
    for (int k = 0; k < 2; k++) {
        struct policy policy;
        c.policy = k ? POLICY_WEIGHTED : POLICY_STRICT;
        make_queue(Q, &c);
        put_each("b", 1);
        sleep_ms(1);
        put_each("a", 0);
        put_each("c", 2);
        put_each("A", 0);
        sleep_ms(600);
        restart();
        policy_init(&policy, &c);
        assert_claims_by(Q, &policy, 1, "c");
        restart();
        policy_init(&policy, &c);
        assert_claims_by(Q, &policy, 1, "b");
        restart();
        policy_init(&policy, &c);
        assert_claims_by(Q, &policy, 3, "a A");
        delete_queue(Q);
    }
}

/* Ages */

static void of_one_millisecond_the_first_to_come_is_the_oldest(void **state)
{
    (void)state;
    static const char *const payloads[] = {"c1", "b2", "c3", "b4", "a5", "c6"};
    static const int ranks[] = {2, 1, 2, 1, 0, 2};
    for (uint32_t n = 1; n <= 6; n *= 3) {
        struct queue_config c = rig_config(3);
        c.levels[1].age_ms = c.levels[2].age_ms = 100;
        struct policy policy;
        policy_init(&policy, &c);
        make_queue(Q, &c);
        put_batch(payloads, ranks, 6);
        sleep_ms(300);
        struct buf got = {0};
        while (claim_by(Q, &policy, n) > 0) {
            for (uint32_t i = 0; i < d.shown_count; i++)
                buf_printf(&got, "%s%s", got.len ? " " : "", d.shown[i].payload);
        }
        assert_string_equal(buf_cstr(&got), "c1 b2 c3 b4 a5 c6");
        buf_fini(&got);
        delete_queue(Q);
    }
}

/* Batches */

/* Everything at once: shares, ages, promises, limits. */
static void fill_with_everything(const struct queue_config *c)
{
    make_queue(Q, c);
    for (int i = 0; i < 60; i++) {
        char payload[8];
        snprintf(payload, sizeof(payload), "m%02d", i);
        put(Q, payload, i * 7 % 4);
        if (i % 5 == 0)
            sleep_ms(40);
    }
}

static void drain_with_everything(const struct queue_config *c, uint32_t each, struct buf *got)
{
    struct policy policy;
    policy_init(&policy, c);
    fill_with_everything(c);
    for (uint32_t left = 48; left > 0;) {
        uint32_t n = claim_by(Q, &policy, each < left ? each : left);
        assert_true(n > 0);
        left -= n;
        for (uint32_t i = 0; i < n; i++)
            buf_printf(got, "%s ", d.shown[i].payload);
    }
    delete_queue(Q);
}

static void a_batch_is_as_many_claims_of_one(void **state)
{
    (void)state;
    static const double weights[] = {3, 2, 1, 1};
    for (int k = 0; k < 2; k++) {
        struct queue_config c = rig_config(4);
        weighted(&c, weights);
        c.policy = k ? POLICY_WEIGHTED : POLICY_STRICT;
        c.levels[1].max_in_flight = 12;
        c.levels[2].age_ms = 300;
        c.levels[3].age_ms = 100;
        c.levels[3].max_wait_ms = 450;
        struct buf ones = {0};
        drain_with_everything(&c, 1, &ones);
        static const uint32_t sizes[] = {3, 16};
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct buf some = {0};
            drain_with_everything(&c, sizes[i], &some);
            assert_string_equal(buf_cstr(&some), buf_cstr(&ones));
            buf_fini(&some);
        }
        buf_fini(&ones);
    }
}

/* Claims that were made before any of them ran spend the same tokens. */
static void claims_of_one_group_share_their_tokens(void **state)
{
    (void)state;
    enum { CLAIMS = 6 };
    struct queue_config c = rig_config(2);
    struct policy policy = weighted(&c, (const double[]){2, 1});
    make_queue(Q, &c);
    put_number('a', 0, 9, 0);
    put_number('b', 0, 9, 1);
    struct plan plans[CLAIMS];
    struct engine_op ops[CLAIMS] = {0};
    struct engine_op *group[CLAIMS];
    for (int i = 0; i < CLAIMS; i++) {
        policy_plan(&policy, &queue(Q)->config, NULL, 1, 1, d.rig.now.wall_ms, &plans[i]);
        ops[i] = (struct engine_op){.verb = ENGINE_CLAIM, .queue = queue(Q)};
        ops[i].claim.plan = &plans[i];
        ops[i].claim.lease_ms = i < CLAIMS / 2 ? 1000 : 2000; /* two calls of a database */
        group[i] = &ops[i];
    }
    rig_run(&d.rig, group, CLAIMS);
    for (int i = 0; i < CLAIMS; i++)
        assert_int_equal(ops[i].claim.found, 1);
    assert_int_equal(view(Q)->lanes[slot_of(Q, 0)].leased, 4);
    assert_int_equal(view(Q)->lanes[slot_of(Q, 1)].leased, 2);
    assert_claims_by(Q, &policy, 3, "a4 a5 b2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_level_at_its_limit_is_passed_over),
        cmocka_unit_test(levels_at_their_limits_leave_their_shares_to_the_others),
        cmocka_unit_test(the_limit_of_a_queue_ends_a_batch),
        cmocka_unit_test(what_is_overdue_goes_first_and_pays_nothing),
        cmocka_unit_test(promises_of_several_levels_are_kept_by_their_ends),
        cmocka_unit_test(ages_and_promises_count_from_the_first_claim_on),
        cmocka_unit_test(of_one_millisecond_the_first_to_come_is_the_oldest),
        cmocka_unit_test(a_batch_is_as_many_claims_of_one),
        cmocka_unit_test(claims_of_one_group_share_their_tokens),
    };
    return driver_main(tests);
}
