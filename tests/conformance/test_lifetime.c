/* What time and limits do: time to live, history, sweeps, dedup keys, depth. */
#include "conformance/driver.h"

#include <string.h>

#define Q "lives"

static void a_time_to_live_passes_while_waiting(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_queue(Q, &c);
    struct message_id ready = put_spec(Q, (struct spec){.payload = "r", .ttl_ms = 1000}).id;
    struct message_id later =
        put_spec(Q, (struct spec){.payload = "s", .ttl_ms = 1000, .delay_ms = 5000, .rank = 1}).id;
    struct message_id stays = put(Q, "stays", 1);
    assert_int_equal(engine_next_due_ms(d.rig.engine, d.rig.now), 1000);
    restart();
    sleep_ms(999);
    assert_int_equal(state_of(Q, ready), MESSAGE_READY);
    assert_int_equal(state_of(Q, later), MESSAGE_SCHEDULED);
    sleep_ms(1);
    assert_int_equal(state_of(Q, ready), MESSAGE_NEW);
    assert_int_equal(state_of(Q, later), MESSAGE_NEW);
    assert_int_equal(state_of(Q, stays), MESSAGE_READY);
    assert_int_equal(view(Q)->totals.expired, 2);
    restart();
    assert_int_equal(view(Q)->totals.expired, 2);
    assert_drains_as(Q, "stays");
}

static void a_queue_has_a_time_to_live_of_its_own(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.ttl_ms = 2000;
    make_queue(Q, &c);
    put(Q, "own", 0);
    put_spec(Q, (struct spec){.payload = "longer", .ttl_ms = 4000});
    put_spec(Q, (struct spec){.payload = "shorter", .ttl_ms = 1000});
    put_spec(Q, (struct spec){.payload = "none", .ttl_ms = -1});
    restart();
    sleep_ms(1500);
    assert_int_equal(view(Q)->ready, 3);
    sleep_ms(500);
    assert_int_equal(view(Q)->ready, 2);
    sleep_ms(2000);
    assert_drains_as(Q, "none");
}

static void expired_messages_may_be_kept_as_dead(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.expired = EXPIRED_DEAD;
    make_queue(Q, &c);
    struct message_id id = put_spec(Q, (struct spec){.payload = "x", .ttl_ms = 10}).id;
    restart();
    sleep_ms(10);
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    assert_string_equal(get(Q, id)->reason, "expired");
    assert_int_equal(view(Q)->dead, 1);
    assert_int_equal(view(Q)->totals.dead, 1);
    assert_int_equal(view(Q)->totals.expired, 0);
    restart();
    assert_string_equal(get(Q, id)->reason, "expired");
}

static void a_message_past_its_time_is_never_claimed(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    put_spec(Q, (struct spec){.payload = "gone", .ttl_ms = 100});
    put(Q, "here", 0);
    pass_unswept(100);
    assert_string_equal(claim_one(Q).payload, "here");
    assert_int_equal(view(Q)->totals.expired, 1);
}

static void a_lease_outlives_the_time_to_live(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    put_spec(Q, (struct spec){.payload = "a", .ttl_ms = 1000});
    put_spec(Q, (struct spec){.payload = "b", .ttl_ms = 1000});
    put_spec(Q, (struct spec){.payload = "c", .ttl_ms = 1000});
    struct shown a = claim_one(Q), b = claim_one(Q), last = claim_one(Q);
    restart();
    sleep_ms(5000);
    assert_int_equal(view(Q)->leased, 3);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    enum message_state to;
    assert_int_equal(nack(Q, &b, 0, "no", &to), STATUS_OK);
    assert_int_equal(to, MESSAGE_EXPIRED);
    sleep_ms(30000);
    assert_int_equal(state_of(Q, last.id), MESSAGE_NEW);
    assert_int_equal(view(Q)->totals.expired, 2);
    assert_int_equal(claim(Q, 1), 0);
}

static void done_messages_are_kept_as_history(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.history_ms = 5000;
    make_queue(Q, &c);
    put(Q, "a", 0);
    struct shown a = claim_one(Q);
    sleep_ms(3);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    restart();
    assert_int_equal(state_of(Q, a.id), MESSAGE_DONE);
    assert_int_equal(get(Q, a.id)->died_ms, d.rig.now.wall_ms);
    assert_string_equal(get(Q, a.id)->payload, "a");
    assert_int_equal(ack(Q, &a), STATUS_RECEIPT_EXPIRED);
    assert_int_equal(cancel(Q, a.id), STATUS_NOT_PENDING);
    sleep_ms(4999);
    assert_int_equal(state_of(Q, a.id), MESSAGE_DONE);
    sleep_ms(1);
    assert_int_equal(state_of(Q, a.id), MESSAGE_NEW);
    restart();
    assert_int_equal(state_of(Q, a.id), MESSAGE_NEW);
    assert_int_equal(view(Q)->totals.acked, 1);
}

/* However few messages one sweep is for. */
static void a_sweep_goes_on_until_all_history_past_its_time_is_gone(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.history_ms = 5000;
    make_queue(Q, &c);
    struct message_id ids[12];
    for (int i = 0; i < 12; i++) {
        put(Q, "done", 0);
        struct shown s = claim_one(Q);
        assert_int_equal(ack(Q, &s), STATUS_OK);
        ids[i] = s.id;
    }
    pass_unswept(5000);
    rig_sweep(&d.rig, 5);
    for (int i = 0; i < 12; i++)
        assert_int_equal(state_of(Q, ids[i]), MESSAGE_NEW);
}

/* Reads the state of a done message through every verb that could tell. */
static void assert_forgotten(struct shown *s)
{
    struct escalate_item moved = move(Q, s->id, 0, NULL, NULL);
    assert_int_equal(state_of(Q, s->id), MESSAGE_NEW);
    assert_int_equal(ack(Q, s), STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(cancel(Q, s->id), STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(moved.status, STATUS_MESSAGE_NOT_FOUND);
    list_all(Q, 2);
    for (uint32_t i = 0; i < d.shown_count; i++)
        assert_true(d.shown[i].id.seq != s->id.seq);
}

static void assert_kept(struct shown *s)
{
    assert_int_equal(state_of(Q, s->id), MESSAGE_DONE);
    assert_int_equal(ack(Q, s), STATUS_RECEIPT_EXPIRED);
    assert_int_equal(cancel(Q, s->id), STATUS_NOT_PENDING);
}

static void keep_for(int64_t ms)
{
    struct queue_config c = queue(Q)->config;
    c.history_ms = ms;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
}

static struct shown do_one(const char *payload)
{
    put(Q, payload, 0);
    struct shown s = claim_one(Q);
    assert_int_equal(ack(Q, &s), STATUS_OK);
    return s;
}

static void what_is_forgotten_is_not_remembered(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.history_ms = 60000;
    make_queue(Q, &c);
    struct shown first = do_one("first");
    pass_unswept(1000);
    struct shown second = do_one("second");
    pass_unswept(500);
    keep_for(501);
    assert_forgotten(&first);
    assert_kept(&second);
    keep_for(60000);
    assert_forgotten(&first);
    assert_kept(&second);
    restart();
    assert_forgotten(&first);
    assert_kept(&second);
    keep_for(0);
    assert_forgotten(&second);
    keep_for(60000);
    assert_forgotten(&second);
    struct shown third = do_one("third"); /* in the very millisecond of the change */
    assert_kept(&third);
    restart();
    assert_forgotten(&second);
    assert_kept(&third);
    sleep_ms(60001);
    assert_forgotten(&third);
}

static void a_longer_history_keeps_what_is_there(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.history_ms = 1000;
    make_queue(Q, &c);
    struct shown early = do_one("early");
    pass_unswept(400);
    struct shown late = do_one("late");
    pass_unswept(600);
    keep_for(60000); /* the first has had its second, the other has not */
    assert_forgotten(&early);
    assert_kept(&late);
    restart();
    sleep_ms(59399);
    assert_kept(&late);
    pass_unswept(1);
    assert_forgotten(&late);
}

static void history_ends_without_a_sweep(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.history_ms = 1000;
    make_queue(Q, &c);
    struct shown s = do_one("a");
    pass_unswept(999);
    assert_kept(&s);
    pass_unswept(1);
    assert_forgotten(&s);
}

static void sweeps_are_bounded(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    make_queue(Q, &c);
    for (int i = 0; i < 9; i++)
        put_spec(Q, (struct spec){.payload = "x", .rank = i % 3, .delay_ms = 1000 + i});
    pass_unswept(2000);
    for (int left = 9; left > 0; left -= 3) {
        assert_int_equal(engine_next_due_ms(d.rig.engine, d.rig.now), 0);
        struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 3}};
        rig_run_one(&d.rig, &op);
        assert_true(op.sweep.more || left == 3);
        assert_true(view(Q)->scheduled >= (uint64_t)left - 3);
    }
    sleep_ms(0);
    assert_int_equal(view(Q)->ready, 9);
    assert_int_equal(engine_next_due_ms(d.rig.engine, d.rig.now), INT64_MAX);
}

static uint32_t touched_count;

static void count_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op;
    touched_count += strcmp(q->name, Q) == 0;
}

static void a_sweep_names_the_queues_it_changed(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    make_queue("other", &c);
    put_spec(Q, (struct spec){.payload = "x", .delay_ms = 10});
    put("other", "y", 0);
    pass_unswept(10);
    touched_count = 0;
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 100, .touched = count_touched}};
    rig_run_one(&d.rig, &op);
    assert_true(touched_count >= 1);
    touched_count = 0;
    rig_run_one(&d.rig, &op);
    assert_int_equal(touched_count, 0);
}

static struct put_item put_key(const char *key, const char *payload)
{
    struct put_item item = put_spec(Q, (struct spec){.payload = payload, .dedup = key});
    assert_int_equal(item.status, STATUS_OK);
    return item;
}

static void a_key_is_known_for_its_window(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.dedup_window_ms = 1000;
    make_queue(Q, &c);
    struct put_item first = put_key("k", "a");
    assert_false(first.deduplicated);
    assert_false(put_key("other", "b").deduplicated);
    restart();
    struct put_item second = put_key("k", "a2");
    assert_true(second.deduplicated);
    assert_int_equal(second.id.seq, first.id.seq);
    assert_int_equal(second.enqueued_ms, first.enqueued_ms);
    struct shown a = claim_one(Q);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    sleep_ms(999);
    restart();
    assert_true(put_key("k", "a3").deduplicated);
    sleep_ms(1);
    assert_false(put_key("k", "a4").deduplicated);
    assert_int_equal(view(Q)->totals.deduplicated, 2);
    assert_int_equal(view(Q)->totals.enqueued, 3);
}

static void a_live_key_is_known_while_its_message_lives(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.dedup_scope = DEDUP_LIVE;
    c.max_attempts = 1;
    make_queue(Q, &c);
    struct put_item first = put_key("k", "a");
    sleep_ms(10000000);
    restart();
    assert_true(put_key("k", "b").deduplicated);
    struct shown a = claim_one(Q);
    assert_true(put_key("k", "c").deduplicated);
    assert_int_equal(nack(Q, &a, 0, "dead", NULL), STATUS_OK);
    assert_true(put_key("k", "d").deduplicated);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 10, -1), 1);
    restart();
    assert_true(put_key("k", "e").deduplicated);
    a = claim_one(Q);
    assert_int_equal(a.id.seq, first.id.seq);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    restart();
    struct put_item next = put_key("k", "f");
    assert_false(next.deduplicated);
    assert_int_equal(cancel(Q, next.id), STATUS_OK);
    assert_false(put_key("k", "g").deduplicated);
}

/* Both items are in one op, and a third in the same group: nothing is committed in between. */
static void a_key_is_known_within_a_group(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    struct put_item items[3] = {0};
    for (int i = 0; i < 3; i++)
        items[i].draft = (struct draft){.body = strdup("pk"),
                                        .payload_len = 1,
                                        .dedup_len = 1,
                                        .ready_ms = READY_NOW,
                                        .ttl_ms = TTL_DEFAULT};
    struct engine_op ops[2] = {
        {.verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = items, .count = 2}},
        {.verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = &items[2], .count = 1}},
    };
    rig_run(&d.rig, (struct engine_op *[]){&ops[0], &ops[1]}, 2);
    assert_false(items[0].deduplicated);
    assert_true(items[1].deduplicated);
    assert_true(items[2].deduplicated);
    assert_int_equal(items[1].id.seq, items[0].id.seq);
    assert_int_equal(items[2].id.seq, items[0].id.seq);
    assert_int_equal(view(Q)->ready, 1);
    for (int i = 0; i < 3; i++)
        draft_fini(&items[i].draft);
}

static void keys_of_other_queues_are_other_keys(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    make_queue("other", &c);
    put_key("k", "a");
    assert_false(put_spec("other", (struct spec){.payload = "b", .dedup = "k"}).deduplicated);
}

static void depth_is_limited(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.max_depth = 3;
    make_queue(Q, &c);
    put(Q, "a", 0);
    put(Q, "b", 1);
    put_spec(Q, (struct spec){.payload = "c", .delay_ms = 1000});
    restart();
    struct put_item refused = put_spec(Q, (struct spec){.payload = "d"});
    assert_int_equal(refused.status, STATUS_QUEUE_FULL);
    assert_int_equal(view(Q)->totals.enqueued, 3);
    struct shown a = claim_one(Q); /* leased messages do not count */
    put(Q, "d", 0);
    assert_int_equal(release(Q, &a), STATUS_OK); /* what comes back is never refused */
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, 4);
    c.max_depth = 0;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    put(Q, "e", 0);
}

static void a_known_key_is_answered_by_a_full_queue(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.max_depth = 1;
    make_queue(Q, &c);
    put_key("k", "a");
    assert_true(put_key("k", "b").deduplicated);
}

static void bytes_are_limited(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.max_bytes = 10;
    make_queue(Q, &c);
    put_spec(Q, (struct spec){.payload = "12345", .metadata = "{}"});
    assert_int_equal(view(Q)->bytes, 7);
    restart();
    assert_int_equal(view(Q)->bytes, 7);
    assert_int_equal(put_spec(Q, (struct spec){.payload = "1234"}).status, STATUS_QUEUE_FULL);
    struct put_item never = put_spec(Q, (struct spec){.payload = "12345678901"});
    assert_int_equal(never.status, STATUS_PAYLOAD_TOO_LARGE); /* alone, it is too much already */
    put(Q, "123", 0);
    assert_int_equal(view(Q)->bytes, 10);
    struct shown a = claim_one(Q);
    assert_int_equal(view(Q)->bytes, 3);
    assert_int_equal(release(Q, &a), STATUS_OK);
    assert_int_equal(view(Q)->bytes, 10);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_time_to_live_passes_while_waiting),
        TEST(a_queue_has_a_time_to_live_of_its_own),
        TEST(expired_messages_may_be_kept_as_dead),
        TEST(a_message_past_its_time_is_never_claimed),
        TEST(a_lease_outlives_the_time_to_live),
        TEST(done_messages_are_kept_as_history),
        TEST(a_sweep_goes_on_until_all_history_past_its_time_is_gone),
        TEST(what_is_forgotten_is_not_remembered),
        TEST(a_longer_history_keeps_what_is_there),
        TEST(history_ends_without_a_sweep),
        TEST(sweeps_are_bounded),
        TEST(a_sweep_names_the_queues_it_changed),
        TEST(a_key_is_known_for_its_window),
        TEST(a_live_key_is_known_while_its_message_lives),
        TEST(a_key_is_known_within_a_group),
        TEST(keys_of_other_queues_are_other_keys),
        TEST(depth_is_limited),
        TEST(a_known_key_is_answered_by_a_full_queue),
        TEST(bytes_are_limited),
    };
    return driver_main(tests);
}
