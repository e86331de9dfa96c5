/* Messages get another level: what changes, what does not, and what remains of it. */
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "move"

static void make(void)
{
    struct queue_config c = rig_config(4);
    make_queue(Q, &c);
}

static const struct lane_view *lane(int rank)
{
    return &view(Q)->lanes[slot_of(Q, rank)];
}

static void a_moved_message_keeps_its_age_and_its_place(void **state)
{
    (void)state;
    make();
    put(Q, "early", 1);
    sleep_ms(10);
    struct message_id id = put(Q, "moved", 3);
    sleep_ms(10);
    put(Q, "late", 1);
    put(Q, "last", 3);
    struct shown before = *get(Q, id);
    struct escalate_item item = move(Q, id, 1, "ann", "vip");
    assert_int_equal(item.status, STATUS_OK);
    assert_true(item.changed);
    assert_int_equal(item.state, MESSAGE_READY);
    assert_int_equal(item.from_slot, slot_of(Q, 3));
    const struct shown *s = get(Q, id);
    assert_int_equal(s->slot, slot_of(Q, 1));
    assert_int_equal(s->ready_ms, before.ready_ms);
    assert_int_equal(s->enqueued_ms, before.enqueued_ms);
    assert_int_equal(s->attempts, 0);
    assert_int_equal(lane(1)->ready, 3);
    assert_int_equal(lane(3)->ready, 1);
    assert_drains_as(Q, "early moved late last");
}

static void a_moved_head_is_the_next_claim(void **state)
{
    (void)state;
    make();
    put(Q, "a", 1);
    struct message_id id = put(Q, "b", 3);
    assert_true(move(Q, id, 0, NULL, NULL).changed);
    assert_drains_as(Q, "b a");
}

static void a_level_can_go_down_too(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "a", 0);
    put(Q, "b", 2);
    assert_true(move(Q, id, 3, NULL, NULL).changed);
    assert_drains_as(Q, "b a");
}

/* "Urgent, but later": the delay stays. */
static void a_scheduled_message_is_moved_and_stays_scheduled(void **state)
{
    (void)state;
    make();
    struct message_id id =
        put_spec(Q, (struct spec){.payload = "later", .rank = 3, .delay_ms = 5000}).id;
    put(Q, "now", 2);
    struct escalate_item item = move(Q, id, 0, "ann", "vip");
    assert_int_equal(item.state, MESSAGE_SCHEDULED);
    assert_int_equal(lane(0)->scheduled, 1);
    assert_int_equal(lane(3)->scheduled, 0);
    restart();
    assert_int_equal(state_of(Q, id), MESSAGE_SCHEDULED);
    assert_string_equal(claim_one(Q).payload, "now");
    sleep_ms(4999);
    assert_int_equal(claim(Q, 1), 0);
    put(Q, "other", 2);
    sleep_ms(1);
    assert_drains_as(Q, "later other");
}

static void only_waiting_messages_are_moved(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 2);
    struct shown s = claim_one(Q);
    struct escalate_item item = move(Q, id, 0, "ann", NULL);
    assert_int_equal(item.status, STATUS_NOT_PENDING);
    assert_false(item.changed);
    assert_int_equal(lane(2)->leased, 1);
    assert_int_equal(view(Q)->totals.escalated, 0);
    assert_false(get(Q, id)->escalated);
    assert_int_equal(extend(Q, &s, 60000), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(nack(Q, &s, 0, "no", NULL), STATUS_OK);
        if (i < 2)
            s = claim_one(Q);
    }
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    assert_int_equal(move(Q, id, 0, NULL, NULL).status, STATUS_NOT_PENDING);
    assert_int_equal(lane(2)->dead, 1);
}

static void an_unknown_message_is_not_found(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 2), other = id;
    other.seq++;
    assert_int_equal(move(Q, other, 0, NULL, NULL).status, STATUS_MESSAGE_NOT_FOUND);
    other = id;
    other.ready_ms--;
    assert_int_equal(move(Q, other, 0, NULL, NULL).status, STATUS_MESSAGE_NOT_FOUND);
    struct shown s = claim_one(Q);
    assert_int_equal(ack(Q, &s), STATUS_OK);
    assert_int_equal(move(Q, id, 0, NULL, NULL).status, STATUS_MESSAGE_NOT_FOUND);
}

static void the_same_level_changes_nothing(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 2);
    struct escalate_item item = move(Q, id, 2, "ann", "vip");
    assert_int_equal(item.status, STATUS_OK);
    assert_false(item.changed);
    assert_int_equal(item.from_slot, slot_of(Q, 2));
    assert_false(get(Q, id)->escalated);
    assert_int_equal(view(Q)->totals.escalated, 0);
}

static void assert_escalated(struct message_id id, int64_t at_ms)
{
    restart();
    const struct shown *s = get(Q, id);
    assert_true(s->escalated);
    assert_int_equal(s->escalated_from, slot_of(Q, 3));
    assert_int_equal(s->escalated_ms, at_ms);
    assert_string_equal(s->actor, "ann");
    assert_string_equal(s->why, "a vip");
    assert_int_equal(s->slot, slot_of(Q, 1));
}

static void who_when_and_why_survive_all_that_follows(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 3);
    sleep_ms(123);
    move(Q, id, 1, "ann", "a vip");
    int64_t at_ms = d.rig.now.wall_ms;
    sleep_ms(50);
    assert_escalated(id, at_ms);
    struct shown s = claim_one(Q);
    assert_escalated(id, at_ms);
    assert_int_equal(nack(Q, &s, 1000, "no", NULL), STATUS_OK);
    assert_escalated(id, at_ms); /* scheduled */
    sleep_ms(1000);
    for (int i = 0; i < 2; i++) {
        s = claim_one(Q);
        nack(Q, &s, 0, "no", NULL);
    }
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    assert_escalated(id, at_ms);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, &id, 1, 1, -1), 1);
    assert_escalated(id, at_ms);
    assert_int_equal(view(Q)->totals.escalated, 1);
    assert_drains_as(Q, "x");
}

static void the_last_escalation_is_the_one_that_is_kept(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 3);
    move(Q, id, 1, "ann", "a vip");
    sleep_ms(10);
    move(Q, id, 0, NULL, "louder");
    restart();
    const struct shown *s = get(Q, id);
    assert_int_equal(s->escalated_from, slot_of(Q, 1));
    assert_int_equal(s->escalated_ms, d.rig.now.wall_ms);
    assert_string_equal(s->actor, "");
    assert_string_equal(s->why, "louder");
    assert_int_equal(view(Q)->totals.escalated, 2);
    move(Q, id, 3, NULL, NULL); /* back home */
    s = get(Q, id);
    assert_true(s->escalated);
    assert_int_equal(s->slot, slot_of(Q, 3));
    assert_drains_as(Q, "x");
}

/* With little memory these are in files, and are brought in by their ids. */
static void messages_far_behind_are_moved_claimed_and_acked(void **state)
{
    (void)state;
    make();
    struct message_id ids[60];
    char payload[8];
    for (int i = 0; i < 60; i++) {
        snprintf(payload, sizeof(payload), "m%d", i);
        ids[i] = put(Q, payload, 3);
    }
    for (int i = 59; i > 0; i -= 20)
        assert_true(move(Q, ids[i], 0, "ann", NULL).changed);
    restart();
    assert_int_equal(lane(0)->ready, 3);
    assert_int_equal(lane(3)->ready, 57);
    static const char *const first[] = {"m19", "m39", "m59"};
    for (int i = 0; i < 3; i++) {
        struct shown s = claim_one(Q);
        assert_string_equal(s.payload, first[i]);
        assert_int_equal(ack(Q, &s), STATUS_OK);
    }
    restart();
    for (int i = 0; i < 60; i++) {
        if (i % 20 == 19)
            continue;
        struct shown s = claim_one(Q);
        assert_int_equal(s.id.seq, ids[i].seq);
        assert_int_equal(ack(Q, &s), STATUS_OK);
    }
    assert_int_equal(view(Q)->totals.acked, 60);
    assert_int_equal(claim(Q, 1), 0);
}

static void a_moved_message_can_be_cancelled_and_purged(void **state)
{
    (void)state;
    make();
    struct message_id a = put(Q, "a", 3), b = put(Q, "b", 3);
    put(Q, "c", 3);
    move(Q, a, 0, NULL, NULL);
    move(Q, b, 1, NULL, NULL);
    assert_int_equal(cancel(Q, a), STATUS_OK);
    restart();
    assert_int_equal(state_of(Q, a), MESSAGE_NEW);
    assert_int_equal(purge(Q, 10, UINT64_MAX), 2);
    assert_int_equal(view(Q)->ready, 0);
    restart();
    assert_int_equal(claim(Q, 1), 0);
}

static void a_time_to_live_goes_on_at_the_new_level(void **state)
{
    (void)state;
    make();
    struct message_id id = put_spec(Q, (struct spec){.payload = "x", .rank = 3, .ttl_ms = 1000}).id;
    put(Q, "stays", 3);
    sleep_ms(900);
    move(Q, id, 0, NULL, NULL);
    restart();
    sleep_ms(100);
    assert_int_equal(state_of(Q, id), MESSAGE_NEW);
    assert_int_equal(view(Q)->totals.expired, 1);
    assert_int_equal(lane(0)->ready, 0);
    assert_drains_as(Q, "stays");
}

/* A level whose last message was moved away may go; the one it was moved to may not. */
static void a_level_is_in_use_by_what_was_moved_to_it(void **state)
{
    (void)state;
    make();
    struct message_id id = put(Q, "x", 3);
    struct queue_config c = queue(Q)->config;
    c.level_count = 3;
    assert_int_equal(set_queue(Q, &c), STATUS_LEVEL_IN_USE);
    move(Q, id, 2, NULL, NULL);
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    c.level_count = 2;
    assert_int_equal(set_queue(Q, &c), STATUS_LEVEL_IN_USE);
    restart();
    assert_int_equal(get(Q, id)->slot, slot_of(Q, 2));
    assert_drains_as(Q, "x");
}

static void each_item_has_its_own_answer(void **state)
{
    (void)state;
    make();
    struct message_id ids[4] = {put(Q, "leased", 0), put(Q, "a", 1), put(Q, "b", 2)};
    claim_one(Q);
    ids[3] = ids[1];
    ids[3].seq = 999;
    assert_int_equal(move_many(Q, ids, 4, 2), 1);
    assert_int_equal(lane(2)->ready, 2);
    assert_int_equal(view(Q)->totals.escalated, 1);
    assert_drains_as(Q, "a b");
}

/* Count */

static void what_stands_before_a_place_is_counted(void **state)
{
    (void)state;
    make();
    struct message_id ids[6];
    for (int i = 0; i < 6; i++) {
        ids[i] = put(Q, "x", 1);
        if (i % 2)
            sleep_ms(10);
    }
    put_spec(Q, (struct spec){.payload = "later", .rank = 1, .delay_ms = 1});
    put(Q, "other", 2);
    for (uint64_t i = 0; i < 6; i++) {
        struct count_item c = count_before(Q, 1, ids[i].ready_ms, ids[i].seq);
        if (c.exact)
            assert_int_equal(c.before, i);
    }
    assert_int_equal(count_before(Q, 1, INT64_MAX, UINT64_MAX).before, 6);
    assert_int_equal(count_before(Q, 1, INT64_MIN, UINT64_MAX).before, 0);
    assert_int_equal(count_before(Q, 0, INT64_MAX, UINT64_MAX).before, 0);
    move(Q, ids[0], 2, NULL, NULL);
    assert_int_equal(count_before(Q, 1, ids[1].ready_ms, ids[1].seq).before, 0);
    assert_int_equal(count_before(Q, 2, INT64_MAX, UINT64_MAX).before, 2);
    struct shown s = claim_one(Q);
    assert_int_equal(s.id.seq, ids[1].seq);
    assert_int_equal(count_before(Q, 1, INT64_MAX, UINT64_MAX).before, 4);
}

#define PAGES 40 /* messages of a walk by pages of three */

static uint32_t times_met[PAGES + 1];
static struct message_id met[3];
static uint32_t met_count;

static void meet(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    (void)op, (void)now;
    if (!message_pending(m))
        return;
    times_met[message_seq(m)]++;
    met[met_count++] = message_identity(m, q->id);
}

/* Lists the waiting messages of these levels, and moves what it meets to the first of them. */
static void walk(const int *ranks, uint32_t count, bool moves)
{
    uint8_t slots[4];
    for (uint32_t i = 0; i < count; i++)
        slots[i] = (uint8_t)slot_of(Q, ranks[i]);
    memset(times_met, 0, sizeof(times_met));
    struct list_cursor at = {0};
    for (bool more = true; more;) {
        struct engine_op op = {.verb = ENGINE_LIST, .queue = queue(Q), .visit = meet};
        op.list.after = at;
        op.list.limit = 3;
        op.list.slots = slots;
        op.list.slot_count = count;
        met_count = 0;
        rig_run_one(&d.rig, &op);
        assert_int_equal(op.status, STATUS_OK);
        at = op.list.next;
        more = op.list.more;
        if (moves && met_count > 0)
            move_many(Q, met, met_count, ranks[0]);
    }
}

static void fill_for_walks(void)
{
    make();
    for (int i = 0; i < PAGES; i++)
        put_spec(Q, (struct spec){.payload = "x", .rank = i % 4, .delay_ms = i % 5 ? 0 : 3600000});
}

static void who_moves_what_it_lists_meets_each_message_once(void **state)
{
    (void)state;
    static const int orders[][4] = {{3, 0, 1, 2}, {0, 1, 2, 3}, {2, 0, 1, 3}, {2, 0, 1, 3}};
    fill_for_walks();
    assert_int_equal(claim(Q, 4), 4);
    uint64_t waiting = view(Q)->ready + view(Q)->scheduled;
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        uint64_t sum = 0;
        walk(orders[i], 4, true);
        for (int seq = 1; seq <= PAGES; seq++) {
            assert_in_range(times_met[seq], 0, 1);
            sum += times_met[seq];
        }
        const struct lane_view *to = lane(orders[i][0]);
        assert_int_equal(sum, waiting);
        assert_int_equal(to->ready + to->scheduled, waiting);
    }
}

static void a_listing_of_one_level_leaves_none_of_it_out(void **state)
{
    (void)state;
    fill_for_walks();
    walk((int[]){2}, 1, false);
    for (int seq = 1; seq <= PAGES; seq++)
        assert_true(times_met[seq] == 1 || ((seq - 1) % 4 != 2 && times_met[seq] == 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_moves_what_it_lists_meets_each_message_once),
        cmocka_unit_test(a_listing_of_one_level_leaves_none_of_it_out),
        cmocka_unit_test(a_moved_message_keeps_its_age_and_its_place),
        cmocka_unit_test(a_moved_head_is_the_next_claim),
        cmocka_unit_test(a_level_can_go_down_too),
        cmocka_unit_test(a_scheduled_message_is_moved_and_stays_scheduled),
        cmocka_unit_test(only_waiting_messages_are_moved),
        cmocka_unit_test(an_unknown_message_is_not_found),
        cmocka_unit_test(the_same_level_changes_nothing),
        cmocka_unit_test(who_when_and_why_survive_all_that_follows),
        cmocka_unit_test(the_last_escalation_is_the_one_that_is_kept),
        cmocka_unit_test(messages_far_behind_are_moved_claimed_and_acked),
        cmocka_unit_test(a_moved_message_can_be_cancelled_and_purged),
        cmocka_unit_test(a_time_to_live_goes_on_at_the_new_level),
        cmocka_unit_test(a_level_is_in_use_by_what_was_moved_to_it),
        cmocka_unit_test(each_item_has_its_own_answer),
        cmocka_unit_test(what_stands_before_a_place_is_counted),
    };
    return driver_main(tests);
}
