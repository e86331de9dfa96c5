/* Claims by plans with several lanes, and what policies leave behind in an engine: counts in
 * flight, totals, and levels that nothing a message goes through can change. */
#include "conformance/driver.h"
#include "core/age.h"

#include <stdio.h>
#include <string.h>

#define Q "plan"

static void make(void)
{
    struct queue_config c = rig_config(4);
    make_queue(Q, &c);
}

static const struct lane_view *lane(int rank)
{
    return &view(Q)->lanes[slot_of(Q, rank)];
}

/* A plan of one step that takes from several levels. */
static struct plan merge(uint32_t want, uint32_t lanes)
{
    struct plan p = plan_from(Q, 0, want);
    p.lane_count = lanes;
    p.steps[0].lane_count = (uint8_t)lanes;
    for (uint32_t i = 0; i < lanes; i++)
        p.lanes[i] = (struct plan_lane){
            .until_ms = INT64_MAX, .slot = (uint8_t)slot_of(Q, (int)i), .rank = (uint8_t)i};
    return p;
}

/* a0 b0 a1 b1 …: levels in turns, ten milliseconds apart. */
static void put_in_turns(int levels, int each)
{
    for (int i = 0; i < each; i++) {
        for (int rank = 0; rank < levels; rank++) {
            put(Q, (char[]){(char)('a' + rank), (char)('0' + i), '\0'}, rank);
            sleep_ms(10);
        }
    }
}

static void show_nobody(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                        struct instant now)
{
    (void)op, (void)q, (void)m, (void)now;
}

static void ignore_done(struct engine_op *op)
{
    (void)op;
}

static void claims_of_one_group_keep_to_their_levels(void **state)
{
    (void)state;
    make();
    put_in_turns(2, 3);
    struct plan urgent = plan_from(Q, 0, 10), any;
    struct policy policy;
    policy_init(&policy, &queue(Q)->config);
    policy_plan(&policy, &queue(Q)->config, NULL, 3, 1, d.rig.now.wall_ms, &any);
    struct engine_op first = {.verb = ENGINE_CLAIM,
                              .queue = queue(Q),
                              .visit = show_nobody,
                              .done = ignore_done,
                              .claim = {.plan = &urgent, .lease_ms = -1}};
    engine_submit(d.rig.engine, &first, d.rig.now);
    assert_claims(Q, &any, "b0");
    assert_int_equal(first.claim.found, 3);
}

static void a_step_takes_the_oldest_of_its_lanes(void **state)
{
    (void)state;
    make();
    put_in_turns(3, 3);
    struct plan p = merge(5, 3);
    assert_claims(Q, &p, "a0 b0 c0 a1 b1");
    assert_int_equal(p.steps[0].found, 5);
    p = merge(9, 2);
    assert_claims(Q, &p, "a2 b2");
    assert_int_equal(p.steps[0].found, 2);
}

static void the_same_time_is_decided_by_arrival(void **state)
{
    (void)state;
    make();
    static const int ranks[] = {2, 0, 1, 2, 0, 1};
    for (int i = 0; i < 6; i++)
        put(Q, (char[]){(char)('1' + i), '\0'}, ranks[i]);
    struct plan p = merge(6, 3);
    assert_claims(Q, &p, "1 2 3 4 5 6");
}

static void a_lane_ends_at_its_cutoff(void **state)
{
    (void)state;
    make();
    int64_t start_ms = d.rig.now.wall_ms;
    put_in_turns(2, 4); /* at 0 10 20 … */
    struct plan p = merge(9, 2);
    p.lanes[1].until_ms = start_ms + 30; /* b0 and b1, the latter to the millisecond */
    assert_claims(Q, &p, "a0 b0 a1 b1 a2 a3");
    p = merge(9, 2);
    p.lanes[1].until_ms = start_ms + 49;
    assert_claims(Q, &p, "");
    p.lanes[1].until_ms = start_ms + 50;
    assert_claims(Q, &p, "b2");
}

/* A bias makes a level younger than it is. */
static void lanes_are_compared_with_their_bias(void **state)
{
    (void)state;
    make();
    put_in_turns(2, 3);
    struct plan p = merge(9, 2);
    p.lanes[0].bias_ms = 25;
    assert_claims(Q, &p, "b0 a0 b1 a1 b2 a2");
    put_in_turns(2, 2);
    p = merge(9, 2);
    p.lanes[0].bias_ms = 10; /* at the same place: by arrival */
    assert_claims(Q, &p, "a0 b0 a1 b1");
}

static void room_is_per_level_and_shared_by_the_steps(void **state)
{
    (void)state;
    make();
    put_in_turns(3, 4);
    struct plan p = merge(9, 3);
    p.room[slot_of(Q, 0)] = 1;
    p.room[slot_of(Q, 1)] = 0;
    p.step_count = 2; /* the same lanes once more */
    p.steps[0].max = 3;
    p.steps[1] = p.steps[0];
    p.steps[1].max = 9;
    assert_claims(Q, &p, "a0 c0 c1 c2 c3");
    assert_int_equal(p.steps[0].found, 3);
    assert_int_equal(p.steps[1].found, 2);
    assert_int_equal(lane(0)->leased, 1);
    assert_int_equal(lane(1)->leased, 0);
    assert_int_equal(lane(2)->leased, 4);
}

static void steps_say_what_they_found_up_to_the_sum(void **state)
{
    (void)state;
    make();
    put_in_turns(2, 4);
    struct plan p = merge(5, 2);
    p.step_count = 3;
    p.steps[0] = (struct plan_step){.max = 3, .first_lane = 0, .lane_count = 1, .found = 77};
    p.steps[1] = (struct plan_step){.max = 9, .first_lane = 1, .lane_count = 1, .found = 77};
    p.steps[2] = (struct plan_step){.max = 9, .first_lane = 0, .lane_count = 2, .found = 77};
    assert_claims(Q, &p, "a0 a1 a2 b0 b1");
    assert_int_equal(p.steps[0].found, 3);
    assert_int_equal(p.steps[1].found, 2);
    assert_int_equal(p.steps[2].found, 0);
}

/* With little memory all of these lanes have a tail. */
static void lanes_with_tails_are_merged(void **state)
{
    (void)state;
    make();
    for (int i = 0; i < 40; i++) {
        char payload[8];
        snprintf(payload, sizeof(payload), "%d", i);
        put(Q, payload, (i * 7) % 3);
        if (i % 4 == 0)
            pass_unswept(1);
    }
    for (int i = 0; i < 40;) {
        struct plan p = merge(7, 3);
        uint32_t n = claim_plan(Q, &p, -1);
        for (uint32_t k = 0; k < n; k++, i++)
            assert_int_equal(atoi(d.shown[k].payload), i);
        assert_true(n > 0);
    }
}

/* In flight */

static void what_is_in_flight_is_counted_by_level(void **state)
{
    (void)state;
    make();
    struct message_id ids[4];
    for (int rank = 0; rank < 4; rank++)
        ids[rank] = put(Q, "x", rank);
    assert_int_equal(claim(Q, 4), 4);
    struct shown s[4];
    memcpy(s, d.shown, sizeof(s));
    restart();
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(lane(rank)->leased, 1);
    assert_int_equal(ack(Q, &s[0]), STATUS_OK);
    assert_int_equal(nack(Q, &s[1], 0, NULL, NULL), STATUS_OK);
    assert_int_equal(release(Q, &s[2]), STATUS_OK);
    restart();
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(lane(rank)->leased, rank == 3);
    sleep_ms(30000); /* the last lease ends by itself */
    assert_int_equal(lane(3)->leased, 0);
    assert_int_equal(view(Q)->leased, 0);
    assert_int_equal(state_of(Q, ids[3]), MESSAGE_READY);
}

/* The policy reads the limits from the view: over restarts they hold all the same. */
static void limits_hold_over_a_restart(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.levels[0].max_in_flight = 2;
    c.max_in_flight = 3;
    make_queue(Q, &c);
    put_many(Q, 10, 0);
    put_many(Q, 10, 1);
    assert_int_equal(claim(Q, 10), 3);
    struct shown first = d.shown[0];
    restart();
    assert_int_equal(claim(Q, 10), 0);
    assert_int_equal(ack(Q, &first), STATUS_OK);
    restart();
    assert_int_equal(claim(Q, 10), 1);
    assert_int_equal(d.shown[0].slot, slot_of(Q, 0));
    assert_int_equal(claim(Q, 10), 0);
}

/* Priority survives */

static void whatever_a_message_goes_through_it_keeps_its_level(void **state)
{
    (void)state;
    struct queue_config c = rig_config(4);
    c.max_attempts = 5;
    make_queue(Q, &c);
    struct message_id id =
        put_spec(Q, (struct spec){.payload = "x", .rank = 2, .delay_ms = 100}).id;
    sleep_ms(100);
    enum { NACK, NACK_LATER, RELEASE, EXPIRE, RESTART, DIE, STEPS };
    for (int step = 0; step < STEPS; step++) {
        struct shown s = claim_one(Q);
        assert_int_equal(s.slot, slot_of(Q, 2));
        if (step == NACK)
            nack(Q, &s, 0, NULL, NULL);
        else if (step == NACK_LATER)
            nack(Q, &s, 500, NULL, NULL);
        else if (step == RELEASE)
            release(Q, &s);
        else if (step == EXPIRE)
            sleep_ms(30000);
        else if (step == RESTART) {
            restart();
            release(Q, &s);
            restart();
        } else
            for (int i = 0; nack(Q, &s, 0, NULL, NULL) == STATUS_OK && claim(Q, 1) == 1; i++)
                s = d.shown[0];
        if (step == NACK_LATER) {
            assert_int_equal(lane(2)->scheduled, 1);
            sleep_ms(500);
        }
        const struct shown *now = get(Q, id);
        assert_int_equal(now->slot, slot_of(Q, 2));
        assert_int_equal(now->state, step == DIE ? MESSAGE_DEAD : MESSAGE_READY);
        if (step != DIE)
            assert_int_equal(lane(2)->ready, 1);
    }
    assert_int_equal(lane(2)->dead, 1);
    restart();
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, &id, 1, 1, -1), 1);
    restart();
    assert_int_equal(lane(2)->ready, 1);
    assert_int_equal(claim_one(Q).slot, slot_of(Q, 2));
}

static void what_comes_back_without_a_delay_keeps_its_age(void **state)
{
    (void)state;
    make();
    put(Q, "old", 2);
    sleep_ms(10);
    put(Q, "young", 2);
    int64_t ready_ms = 0;
    for (int i = 0; i < 3; i++) {
        struct shown s = claim_one(Q);
        assert_string_equal(s.payload, "old");
        ready_ms = ready_ms ? ready_ms : s.ready_ms;
        assert_int_equal(s.ready_ms, ready_ms);
        if (i == 0)
            nack(Q, &s, 0, NULL, NULL);
        else if (i == 1)
            release(Q, &s);
        restart();
    }
}

/* Configuration and totals */

static void every_rule_of_order_survives_a_restart(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.policy = POLICY_WEIGHTED;
    c.max_in_flight = 7;
    for (int i = 0; i < 3; i++) {
        c.levels[i].weight = 0.5 * (i + 1);
        c.levels[i].age_ms = 1000 * (i + 1);
        c.levels[i].max_wait_ms = 5000 * (i + 1);
        c.levels[i].max_in_flight = (uint32_t)i + 2;
    }
    make_queue(Q, &c);
    age_pause(&c, true, d.rig.now.wall_ms);
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    sleep_ms(50);
    age_pause(&c, false, d.rig.now.wall_ms);
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    const struct queue_config *now = &queue(Q)->config;
    assert_int_equal(now->policy, POLICY_WEIGHTED);
    assert_int_equal(now->max_in_flight, 7);
    assert_int_equal(now->pause_count, 1);
    assert_int_equal(now->pauses[0].until_ms - now->pauses[0].from_ms, 50);
    for (int i = 0; i < 3; i++) {
        assert_true(now->levels[i].weight == c.levels[i].weight);
        assert_int_equal(now->levels[i].age_ms, c.levels[i].age_ms);
        assert_int_equal(now->levels[i].max_wait_ms, c.levels[i].max_wait_ms);
        assert_int_equal(now->levels[i].max_in_flight, c.levels[i].max_in_flight);
    }
}

static void aged_late_and_escalated_are_counted_and_survive_a_restart(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.levels[2].age_ms = 1000;
    c.levels[1].max_wait_ms = 800;
    make_queue(Q, &c);
    put(Q, "ages", 2);
    put(Q, "late", 1);
    put(Q, "also late", 1);
    sleep_ms(801); /* promises of rank 1 are broken; rank 2 has not aged yet */
    assert_string_equal(claim_one(Q).payload, "late");
    assert_int_equal(view(Q)->totals.late, 1);
    assert_int_equal(view(Q)->totals.aged, 1); /* it counted as the most urgent */
    sleep_ms(199);
    assert_string_equal(claim_one(Q).payload, "also late");
    assert_string_equal(claim_one(Q).payload, "ages");
    move(Q, put(Q, "x", 2), 0, NULL, NULL);
    restart();
    const struct queue_totals *t = &view(Q)->totals;
    assert_int_equal(t->aged, 3);
    assert_int_equal(t->late, 2);
    assert_int_equal(t->escalated, 1);
    assert_int_equal(t->claimed, 3);
}

static void what_is_claimed_in_time_is_neither_late_nor_aged(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    c.levels[2].age_ms = 1000;
    c.levels[1].max_wait_ms = 8000;
    make_queue(Q, &c);
    put(Q, "a", 1);
    put(Q, "b", 2);
    sleep_ms(999);
    assert_int_equal(claim(Q, 2), 2);
    assert_int_equal(view(Q)->totals.aged, 0);
    assert_int_equal(view(Q)->totals.late, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_takes_the_oldest_of_its_lanes),
        cmocka_unit_test(claims_of_one_group_keep_to_their_levels),
        cmocka_unit_test(the_same_time_is_decided_by_arrival),
        cmocka_unit_test(a_lane_ends_at_its_cutoff),
        cmocka_unit_test(lanes_are_compared_with_their_bias),
        cmocka_unit_test(room_is_per_level_and_shared_by_the_steps),
        cmocka_unit_test(steps_say_what_they_found_up_to_the_sum),
        cmocka_unit_test(lanes_with_tails_are_merged),
        cmocka_unit_test(what_is_in_flight_is_counted_by_level),
        cmocka_unit_test(limits_hold_over_a_restart),
        cmocka_unit_test(whatever_a_message_goes_through_it_keeps_its_level),
        cmocka_unit_test(what_comes_back_without_a_delay_keeps_its_age),
        cmocka_unit_test(every_rule_of_order_survives_a_restart),
        cmocka_unit_test(aged_late_and_escalated_are_counted_and_survive_a_restart),
        cmocka_unit_test(what_is_claimed_in_time_is_neither_late_nor_aged),
    };
    return driver_main(tests);
}
