/* Who comes first: places within a level, plans over levels, delays. */
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "orders"

static void make(uint32_t levels)
{
    struct queue_config c = rig_config(levels);
    make_queue(Q, &c);
}

static void equal_times_leave_in_order_of_arrival(void **state)
{
    (void)state;
    make(1);
    for (int i = 0; i < 9; i++)
        put(Q, (char[]){(char)('a' + i), '\0'}, 0);
    restart();
    assert_drains_as(Q, "a b c d e f g h i");
}

static void urgent_levels_leave_first(void **state)
{
    (void)state;
    make(3);
    put(Q, "low1", 2);
    put(Q, "mid1", 1);
    put(Q, "low2", 2);
    put(Q, "high1", 0);
    put(Q, "mid2", 1);
    restart();
    assert_drains_as(Q, "high1 mid1 mid2 low1 low2");
}

static void earlier_ready_times_leave_first(void **state)
{
    (void)state;
    make(1);
    int64_t now = d.rig.now.wall_ms;
    put(Q, "now", 0);
    put_spec(Q, (struct spec){.payload = "past", .has_ready_at = true, .ready_at_ms = now - 5000});
    put_spec(Q, (struct spec){.payload = "minus", .has_ready_at = true, .ready_at_ms = -7});
    put_spec(Q, (struct spec){.payload = "zero", .has_ready_at = true, .ready_at_ms = 0});
    put_spec(Q,
             (struct spec){.payload = "least", .has_ready_at = true, .ready_at_ms = -TIME_MS_MAX});
    put_spec(Q, (struct spec){.payload = "past2", .has_ready_at = true, .ready_at_ms = now - 5000});
    assert_int_equal(view(Q)->lanes[slot_of(Q, 0)].head_ms, -TIME_MS_MAX);
    restart();
    assert_int_equal(view(Q)->lanes[slot_of(Q, 0)].head_ms, -TIME_MS_MAX);
    assert_drains_as(Q, "least minus zero past past2 now");
}

static void delayed_messages_wait_for_their_time(void **state)
{
    (void)state;
    make(2);
    put_spec(Q, (struct spec){.payload = "late", .delay_ms = 2000});
    put_spec(Q, (struct spec){.payload = "soon", .delay_ms = 1000});
    put(Q, "low", 1);
    assert_int_equal(view(Q)->scheduled, 2);
    assert_int_equal(engine_next_due_ms(d.rig.engine, d.rig.now), 1000);
    sleep_ms(999);
    assert_int_equal(view(Q)->scheduled, 2);
    restart();
    assert_int_equal(view(Q)->scheduled, 2);
    assert_string_equal(claim_one(Q).payload, "low");
    assert_int_equal(claim(Q, 1), 0);
    sleep_ms(1);
    assert_int_equal(view(Q)->ready, 1);
    sleep_ms(5000);
    assert_drains_as(Q, "soon late");
}

static void a_delayed_message_takes_the_place_of_its_time(void **state)
{
    (void)state;
    make(1);
    put_spec(Q, (struct spec){.payload = "b", .delay_ms = 1000});
    sleep_ms(500);
    put(Q, "a", 0);
    sleep_ms(1000);
    put(Q, "c", 0);
    assert_drains_as(Q, "a b c");
}

static void a_delay_far_ahead_is_kept(void **state)
{
    (void)state;
    make(1);
    struct message_id id =
        put_spec(Q, (struct spec){.payload = "x", .has_ready_at = true, .ready_at_ms = TIME_MS_MAX})
            .id;
    restart();
    assert_int_equal(get(Q, id)->ready_ms, TIME_MS_MAX);
    assert_int_equal(state_of(Q, id), MESSAGE_SCHEDULED);
    sleep_ms(1000);
    assert_int_equal(claim(Q, 1), 0);
}

/* Pairs of rank and count: a step with one lane each. */
static struct plan plan_of(uint32_t want, uint32_t steps, ...)
{
    struct plan p = {.want = want, .step_count = steps, .lane_count = steps};
    va_list args;
    va_start(args, steps);
    memset(p.room, 0xFF, sizeof(p.room));
    for (uint32_t i = 0; i < steps; i++) {
        uint8_t rank = (uint8_t)va_arg(args, int);
        p.lanes[i] = (struct plan_lane){
            .until_ms = INT64_MAX, .slot = (uint8_t)slot_of(Q, rank), .rank = rank};
        p.steps[i] = (struct plan_step){.max = (uint16_t)va_arg(args, int),
                                        .first_lane = (uint16_t)i,
                                        .lane_count = 1,
                                        .rank = rank};
    }
    va_end(args);
    return p;
}

static void a_plan_is_followed_step_by_step(void **state)
{
    (void)state;
    make(3);
    for (int rank = 0; rank < 3; rank++) {
        for (int i = 0; i < 4; i++)
            put(Q, (char[]){(char)('a' + rank), (char)('0' + i), '\0'}, rank);
    }
    struct plan p = plan_of(5, 4, 2, 1, 0, 2, 2, 1, 1, 9);
    assert_claims(Q, &p, "c0 a0 a1 c1 b0");
    p = plan_of(2, 1, 1, 1);
    assert_claims(Q, &p, "b1");
    p = plan_of(9, 2, 0, 9, 2, 1);
    assert_claims(Q, &p, "a2 a3 c2");
    p = plan_of(3, 0);
    assert_claims(Q, &p, "");
    p = plan_of(3, 1, 0, 3);
    assert_claims(Q, &p, "");
}

static void a_plan_may_leave_urgent_levels_alone(void **state)
{
    (void)state;
    make(3);
    put(Q, "high", 0);
    put(Q, "low", 2);
    struct plan p = plan_of(10, 2, 1, 10, 2, 10);
    assert_claims(Q, &p, "low");
    assert_int_equal(view(Q)->ready, 1);
}

static void a_group_takes_effect_in_order(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    make(1);
    struct put_item items[2] = {0};
    for (int i = 0; i < 2; i++) {
        items[i].draft = (struct draft){.body = strdup(i ? "second" : "first"),
                                        .payload_len = i ? 6 : 5,
                                        .ready_ms = READY_NOW,
                                        .ttl_ms = TTL_DEFAULT};
    }
    struct engine_op ops[3] = {
        {.verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = &items[0], .count = 1}},
        {.verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = &items[1], .count = 1}},
        {.verb = ENGINE_PURGE, .queue = queue(Q), .bulk = {.max = 100, .before_seq = 2}},
    };
    struct engine_op *group[3] = {&ops[0], &ops[1], &ops[2]};
    rig_run(&d.rig, group, 3);
    assert_int_equal(items[0].id.seq, 1);
    assert_int_equal(items[1].id.seq, 2);
    assert_int_equal(ops[2].bulk.count, 1);
    assert_drains_as(Q, "second");
}

static void what_comes_back_keeps_its_place(void **state)
{
    (void)state;
    make(2);
    put(Q, "a", 1);
    sleep_ms(10);
    put(Q, "b", 1);
    sleep_ms(10);
    put(Q, "c", 1);
    struct shown a = claim_one(Q), b = claim_one(Q);
    assert_int_equal(nack(Q, &b, 0, "no", NULL), STATUS_OK);
    restart();
    assert_int_equal(release(Q, &a), STATUS_OK);
    restart();
    put(Q, "d", 1);
    assert_drains_as(Q, "a b c d");
}

static void what_comes_back_with_a_delay_takes_a_new_place(void **state)
{
    (void)state;
    make(1);
    put(Q, "a", 0);
    put(Q, "b", 0);
    struct shown a = claim_one(Q);
    enum message_state to;
    assert_int_equal(nack(Q, &a, 1000, "later", &to), STATUS_OK);
    assert_int_equal(to, MESSAGE_SCHEDULED);
    sleep_ms(500);
    put(Q, "c", 0);
    restart();
    sleep_ms(600);
    put(Q, "d", 0);
    assert_int_equal(get(Q, a.id)->ready_ms, a.ready_ms + 1000);
    assert_drains_as(Q, "b c a d");
}

static void a_small_step_of_the_wall_clock_keeps_arrival_order(void **state)
{
    (void)state;
    if (!own_clocks() || d.restarts_always) /* a restart forgets what smooths it */
        skip();
    make(1);
    put(Q, "a", 0);
    jump_wall(-400);
    put(Q, "b", 0);
    assert_drains_as(Q, "a b");
}

static void a_message_is_shown_whole(void **state)
{
    (void)state;
    make(2);
    struct put_item item = put_spec(
        Q, (struct spec){.payload = "hello", .metadata = "{\"k\":1}", .dedup = "key", .rank = 1});
    assert_int_equal(item.enqueued_ms, d.rig.now.wall_ms);
    restart();
    struct shown s = claim_one(Q);
    assert_string_equal(s.payload, "hello");
    assert_string_equal(s.metadata, "{\"k\":1}");
    assert_int_equal(s.id.seq, item.id.seq);
    assert_int_equal(s.id.ready_ms, item.id.ready_ms);
    assert_int_equal(s.id.slot, slot_of(Q, 1));
    assert_id_of(Q, s.id);
    assert_int_equal(s.attempts, 1);
    assert_int_equal(s.enqueued_ms, item.enqueued_ms);
    assert_int_equal(s.lease_ms, 30000);
    assert_int_equal(s.lease_until_ms, d.rig.now.mono_ms + 30000);
}

static void empty_and_large_payloads_come_back(void **state)
{
    (void)state;
    make(1);
    static char large[PAYLOAD_MAX + 1];
    memset(large, 'x', PAYLOAD_MAX);
    put(Q, "", 0);
    put(Q, large, 0);
    restart();
    assert_int_equal(claim_one(Q).payload_len, 0);
    assert_int_equal(claim_one(Q).payload_len, PAYLOAD_MAX);
}

static void an_unknown_priority_is_refused_alone(void **state)
{
    (void)state;
    make(2);
    struct put_item item = put_spec(Q, (struct spec){.payload = "x", .rank = -1});
    assert_int_equal(item.status, STATUS_UNKNOWN_PRIORITY);
    assert_int_equal(view(Q)->totals.enqueued, 0);
    put(Q, "y", 0);
    assert_drains_as(Q, "y");
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_times_leave_in_order_of_arrival),
        TEST(urgent_levels_leave_first),
        TEST(earlier_ready_times_leave_first),
        TEST(delayed_messages_wait_for_their_time),
        TEST(a_delayed_message_takes_the_place_of_its_time),
        TEST(a_delay_far_ahead_is_kept),
        TEST(a_plan_is_followed_step_by_step),
        TEST(a_plan_may_leave_urgent_levels_alone),
        TEST(a_group_takes_effect_in_order),
        TEST(what_comes_back_keeps_its_place),
        TEST(what_comes_back_with_a_delay_takes_a_new_place),
        TEST(a_small_step_of_the_wall_clock_keeps_arrival_order),
        TEST(a_message_is_shown_whole),
        TEST(empty_and_large_payloads_come_back),
        TEST(an_unknown_priority_is_refused_alone),
    };
    return driver_main(tests);
}
