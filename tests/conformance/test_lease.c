/* One holder: leases, receipts, attempts, backoff. */
#include "conformance/driver.h"

#include <string.h>

#define Q "leases"

static struct queue_config config(void)
{
    struct queue_config c = rig_config(2);
    c.visibility_ms = 10000;
    return c;
}

static void make(void)
{
    struct queue_config c = config();
    make_queue(Q, &c);
}

static void a_leased_message_is_nobody_elses(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    assert_int_equal(claim(Q, 1), 0);
    restart();
    assert_int_equal(claim(Q, 1), 0);
    assert_int_equal(view(Q)->leased, 1);
    assert_int_equal(view(Q)->lanes[slot_of(Q, 0)].leased, 1);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    assert_int_equal(view(Q)->leased, 0);
    assert_int_equal(view(Q)->totals.acked, 1);
    assert_int_equal(state_of(Q, a.id), MESSAGE_NEW);
}

static void a_lease_runs_out_on_the_monotonic_clock(void **state)
{
    (void)state;
    if (!own_clocks())
        skip();
    make();
    put(Q, "a", 1);
    struct shown a = claim_one(Q);
    jump_wall(3600000);
    jump_wall(-3600000);
    assert_int_equal(claim(Q, 1), 0);
    assert_int_equal(view(Q)->leased, 1);
    assert_int_equal(engine_next_due_ms(d.rig.engine, d.rig.now), 10000);
    restart();
    sleep_ms(9999);
    assert_int_equal(view(Q)->leased, 1);
    sleep_ms(1);
    assert_int_equal(view(Q)->leased, 0);
    assert_int_equal(view(Q)->totals.lease_expired, 1);
    struct shown again = claim_one(Q);
    assert_int_equal(again.id.seq, a.id.seq);
    assert_int_equal(again.attempts, 2);
    assert_int_equal(again.slot, a.slot);
    assert_int_equal(again.ready_ms, a.ready_ms);
    assert_memory_not_equal(again.receipt, a.receipt, RECEIPT_BYTES);
    assert_int_equal(view(Q)->totals.redelivered, 1);
}

static void a_claim_may_choose_its_lease(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    struct plan p = plan_from(Q, 0, 1);
    assert_int_equal(claim_plan(Q, &p, 50), 1);
    assert_int_equal(d.shown[0].lease_ms, 50);
    sleep_ms(50);
    assert_int_equal(view(Q)->ready, 1);
}

static void refused_everywhere(const struct shown *s, enum status with)
{
    struct queue_view before = *view(Q);
    assert_int_equal(ack(Q, s), with);
    assert_int_equal(nack(Q, s, 0, "x", NULL), with);
    assert_int_equal(release(Q, s), with);
    assert_int_equal(extend(Q, s, 99999), with);
    assert_memory_equal(&before.totals, &view(Q)->totals, sizeof(before.totals));
    assert_int_equal(before.leased, view(Q)->leased);
    assert_int_equal(before.ready, view(Q)->ready);
}

static void a_receipt_dies_with_its_lease(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    struct shown old = claim_one(Q);
    pass_unswept(10000);
    if (!d.restarts_always)
        refused_everywhere(&old, STATUS_RECEIPT_EXPIRED);
    sleep_ms(0);
    refused_everywhere(&old, STATUS_RECEIPT_EXPIRED);
    struct shown fresh = claim_one(Q);
    refused_everywhere(&old, STATUS_RECEIPT_EXPIRED);
    restart();
    refused_everywhere(&old, STATUS_RECEIPT_EXPIRED);
    assert_int_equal(ack(Q, &fresh), STATUS_OK);
    refused_everywhere(&fresh, STATUS_MESSAGE_NOT_FOUND);
    restart();
    refused_everywhere(&fresh, STATUS_MESSAGE_NOT_FOUND);
}

static void a_foreign_receipt_opens_nothing(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    put(Q, "b", 0);
    put(Q, "c", 0);
    struct shown a = claim_one(Q), b = claim_one(Q);
    struct shown mixed = a;
    memcpy(mixed.receipt, b.receipt, RECEIPT_BYTES);
    refused_everywhere(&mixed, STATUS_RECEIPT_EXPIRED);
    memset(mixed.receipt, 0, RECEIPT_BYTES);
    refused_everywhere(&mixed, STATUS_RECEIPT_EXPIRED);
    mixed.id = (struct message_id){a.id.queue, a.id.slot, a.id.ready_ms, a.id.seq + 2};
    refused_everywhere(&mixed, STATUS_RECEIPT_EXPIRED); /* "c", never claimed */
    mixed = a;
    mixed.id.ready_ms++;
    refused_everywhere(&mixed, STATUS_MESSAGE_NOT_FOUND);
    mixed = a;
    mixed.id.seq += 1000;
    refused_everywhere(&mixed, STATUS_MESSAGE_NOT_FOUND);
    mixed = a;
    mixed.id.queue++;
    refused_everywhere(&mixed, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(ack(Q, &a), STATUS_OK);
}

static void a_receipt_is_used_once(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    assert_int_equal(nack(Q, &a, 0, "no", NULL), STATUS_OK);
    refused_everywhere(&a, STATUS_RECEIPT_EXPIRED);
    restart();
    refused_everywhere(&a, STATUS_RECEIPT_EXPIRED);
    struct shown again = claim_one(Q);
    assert_int_equal(release(Q, &again), STATUS_OK);
    refused_everywhere(&again, STATUS_RECEIPT_EXPIRED);
}

static void items_of_one_ack_are_judged_one_by_one(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    put(Q, "b", 0);
    struct shown a = claim_one(Q), b = claim_one(Q);
    struct settle_item items[4] = {{.id = a.id}, {.id = b.id}, {.id = a.id}, {.id = b.id}};
    memcpy(items[0].receipt, a.receipt, RECEIPT_BYTES);
    memcpy(items[1].receipt, a.receipt, RECEIPT_BYTES);
    memcpy(items[2].receipt, a.receipt, RECEIPT_BYTES);
    memcpy(items[3].receipt, b.receipt, RECEIPT_BYTES);
    struct engine_op op = {.verb = ENGINE_ACK, .queue = queue(Q)};
    op.settle.items = items;
    op.settle.count = 4;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(items[0].status, STATUS_OK);
    assert_int_equal(items[0].state, MESSAGE_DONE);
    assert_int_equal(items[1].status, STATUS_RECEIPT_EXPIRED);
    assert_int_equal(items[2].status, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(items[3].status, STATUS_OK);
}

static void extending_moves_the_end_of_the_lease(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    sleep_ms(9000);
    assert_int_equal(extend(Q, &a, 20000), STATUS_OK);
    restart();
    sleep_ms(19999);
    assert_int_equal(view(Q)->leased, 1);
    assert_int_equal(extend(Q, &a, 5), STATUS_OK);
    sleep_ms(5);
    assert_int_equal(view(Q)->leased, 0);
    refused_everywhere(&a, STATUS_RECEIPT_EXPIRED);
}

static void a_receipt_tells_how_long_the_lease_is_held(void **state)
{
    (void)state;
    make();
    put(Q, "a", 1);
    sleep_ms(700);
    struct shown a = claim_one(Q);
    assert_int_equal(receipt_held_ms(a.receipt, d.rig.now.wall_ms), 0);
    sleep_ms(4000);
    assert_int_equal(extend(Q, &a, 9000), STATUS_OK);
    restart();
    sleep_ms(5000);
    assert_int_equal(receipt_held_ms(a.receipt, d.rig.now.wall_ms), 9000);
    assert_int_equal(release(Q, &a), STATUS_OK);
    struct shown again = claim_one(Q);
    assert_int_equal(receipt_held_ms(again.receipt, d.rig.now.wall_ms), 0);
    assert_memory_not_equal(again.receipt + RECEIPT_TIME_BYTES, a.receipt + RECEIPT_TIME_BYTES,
                            RECEIPT_BYTES - RECEIPT_TIME_BYTES);
}

static void an_escalated_message_is_settled_at_its_new_level(void **state)
{
    (void)state;
    make();
    for (int i = 0; i < 3; i++) { /* settle() compares the levels */
        assert_int_equal(move(Q, put(Q, "a", 1), 0, NULL, NULL).status, STATUS_OK);
        struct shown a = claim_one(Q);
        assert_int_equal(a.slot, slot_of(Q, 0));
        enum status status = i == 0   ? ack(Q, &a)
                             : i == 1 ? nack(Q, &a, 60000, NULL, NULL)
                                      : release(Q, &a);
        assert_int_equal(status, STATUS_OK);
    }
}

static void a_release_does_not_count(void **state)
{
    (void)state;
    make();
    put(Q, "a", 0);
    for (int i = 0; i < 10; i++) {
        struct shown a = claim_one(Q);
        assert_int_equal(a.attempts, 1);
        assert_int_equal(release(Q, &a), STATUS_OK);
    }
    restart();
    assert_int_equal(claim_one(Q).attempts, 1);
    assert_int_equal(view(Q)->totals.released, 10);
    assert_int_equal(view(Q)->totals.claimed, 11);
    assert_int_equal(view(Q)->totals.redelivered, 0);
}

static void the_last_failed_attempt_is_death(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "a", 1);
    enum message_state to;
    for (uint32_t i = 1; i <= 3; i++) {
        struct shown a = claim_one(Q);
        assert_int_equal(a.attempts, i);
        assert_int_equal(nack(Q, &a, 0, i == 3 ? "third" : "early", &to), STATUS_OK);
        assert_int_equal(to, i == 3 ? MESSAGE_DEAD : MESSAGE_READY);
        restart();
    }
    assert_int_equal(view(Q)->dead, 1);
    assert_int_equal(view(Q)->totals.dead, 1);
    assert_int_equal(view(Q)->totals.nacked, 3);
    const struct shown *dead = get(Q, id);
    assert_int_equal(dead->state, MESSAGE_DEAD);
    assert_string_equal(dead->reason, "third");
    assert_string_equal(dead->payload, "a");
    assert_int_equal(dead->attempts, 3);
    assert_int_equal(dead->died_ms, d.rig.now.wall_ms);
    assert_int_equal(dead->slot, slot_of(Q, 1));
    assert_int_equal(claim(Q, 1), 0);
}

static void the_last_lease_to_run_out_is_death(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "a", 0);
    for (int i = 0; i < 3; i++) {
        claim_one(Q);
        sleep_ms(10000);
    }
    restart();
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    assert_true(get(Q, id)->reason[0] != '\0');
    assert_int_equal(view(Q)->totals.lease_expired, 3);
    assert_int_equal(view(Q)->totals.dead, 1);
}

static void a_dead_message_refuses_its_receipt(void **state)
{
    (void)state;
    struct queue_config c = config();
    c.max_attempts = 1;
    make_queue(Q, &c);
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    assert_int_equal(nack(Q, &a, 5000, "once", NULL), STATUS_OK);
    assert_int_equal(view(Q)->dead, 1);
    refused_everywhere(&a, STATUS_RECEIPT_EXPIRED);
}

static void backoff_grows_to_its_limit(void **state)
{
    (void)state;
    struct queue_config c = config();
    c.backoff = BACKOFF_EXPONENTIAL;
    c.backoff_base_ms = 1000;
    c.backoff_max_ms = 3000;
    c.max_attempts = 10;
    make_queue(Q, &c);
    put(Q, "a", 0);
    static const int64_t delays[] = {1000, 2000, 3000, 3000};
    for (int i = 0; i < 4; i++) {
        struct shown a = claim_one(Q);
        enum message_state to;
        assert_int_equal(nack(Q, &a, -1, "no", &to), STATUS_OK);
        assert_int_equal(to, MESSAGE_SCHEDULED);
        restart();
        sleep_ms(delays[i] - 1);
        assert_int_equal(view(Q)->ready, 0);
        sleep_ms(1);
        assert_int_equal(view(Q)->ready, 1);
    }
}

static void backoff_follows_a_lease_that_ran_out(void **state)
{
    (void)state;
    struct queue_config c = config();
    c.backoff = BACKOFF_FIXED;
    c.backoff_base_ms = 700;
    make_queue(Q, &c);
    put(Q, "a", 0);
    claim_one(Q);
    sleep_ms(10000);
    assert_int_equal(view(Q)->scheduled, 1);
    sleep_ms(699);
    assert_int_equal(view(Q)->ready, 0);
    sleep_ms(1);
    assert_int_equal(claim_one(Q).attempts, 2);
}

static void a_nack_with_a_delay_overrides_backoff(void **state)
{
    (void)state;
    struct queue_config c = config();
    c.backoff = BACKOFF_FIXED;
    c.backoff_base_ms = 700;
    make_queue(Q, &c);
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    assert_int_equal(nack(Q, &a, 0, NULL, NULL), STATUS_OK);
    assert_int_equal(view(Q)->ready, 1);
}

static void leases_survive_many_restarts(void **state)
{
    (void)state;
    make();
    put_many(Q, 20, 0);
    assert_int_equal(claim(Q, 10), 10);
    struct shown held[10];
    memcpy(held, d.shown, sizeof(held));
    for (int i = 0; i < 10; i++) {
        restart();
        assert_int_equal(view(Q)->leased, 10 - i);
        assert_int_equal(ack(Q, &held[i]), STATUS_OK);
    }
    assert_int_equal(view(Q)->ready, 10);
    assert_int_equal(view(Q)->totals.acked, 10);
    assert_drains_as(Q, "m10 m11 m12 m13 m14 m15 m16 m17 m18 m19");
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_leased_message_is_nobody_elses),
        TEST(a_lease_runs_out_on_the_monotonic_clock),
        TEST(a_claim_may_choose_its_lease),
        TEST(a_receipt_dies_with_its_lease),
        TEST(a_foreign_receipt_opens_nothing),
        TEST(a_receipt_is_used_once),
        TEST(items_of_one_ack_are_judged_one_by_one),
        TEST(extending_moves_the_end_of_the_lease),
        TEST(a_receipt_tells_how_long_the_lease_is_held),
        TEST(an_escalated_message_is_settled_at_its_new_level),
        TEST(a_release_does_not_count),
        TEST(the_last_failed_attempt_is_death),
        TEST(the_last_lease_to_run_out_is_death),
        TEST(a_dead_message_refuses_its_receipt),
        TEST(backoff_grows_to_its_limit),
        TEST(backoff_follows_a_lease_that_ran_out),
        TEST(a_nack_with_a_delay_overrides_backoff),
        TEST(leases_survive_many_restarts),
    };
    return driver_main(tests);
}
