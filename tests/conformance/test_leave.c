/* Messages that leave for another store: nobody else can touch one meanwhile, whatever it was
 * before, and it ends when it has arrived. On the engines that stand under `cells`. */
#include "conformance/driver.h"

#include <string.h>

#define Q "left"

static void make(void)
{
    struct queue_config c = rig_config(3);
    c.max_attempts = 1;
    c.dedup_window_ms = 60000;
    make_queue(Q, &c);
}

static struct leave_item item_of(struct message_id id, uint8_t receipt)
{
    struct leave_item item = {.id = id, .status = STATUS_ENGINE_UNAVAILABLE};
    memset(item.receipt, receipt, RECEIPT_BYTES);
    return item;
}

static enum status leave_one(struct message_id id, uint8_t receipt)
{
    struct leave_item item = item_of(id, receipt);
    assert_int_equal(leave_items(Q, &item, 1, 0), STATUS_OK);
    return item.status;
}

static enum status left_one(struct message_id id, uint8_t receipt)
{
    struct leave_item item = item_of(id, receipt);
    left_items(Q, &item, 1);
    return item.status;
}

static struct message_id put_dated(const char *payload)
{
    return put_spec(Q, (struct spec){.payload = payload, .rank = 1, .delay_ms = 5000}).id;
}

static struct message_id put_dead(const char *payload)
{
    struct message_id id = put(Q, payload, 2);
    struct shown s = claim_one(Q);
    assert_int_equal(s.id.seq, id.seq);
    assert_int_equal(nack(Q, &s, 0, "it failed", NULL), STATUS_OK);
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    return id;
}

static bool shows_as_dead(const struct shown *s, int64_t *died_ms)
{
    assert_int_equal(s->state, MESSAGE_LEASED);
    assert_true(s->lease_ms < 0);
    return leaving_died(s->lease_ms, died_ms);
}

static void a_scheduled_message_leaves_with_all_that_it_is(void **state)
{
    (void)state;
    int64_t died_ms;
    make();
    struct put_item put = put_spec(Q, (struct spec){.payload = "dated",
                                                    .metadata = "{\"a\":1}",
                                                    .dedup = "key",
                                                    .rank = 1,
                                                    .delay_ms = 5000,
                                                    .ttl_ms = 90000});
    assert_true(move(Q, put.id, 0, "ann", "vip").changed);
    struct shown before = *get(Q, put.id);
    assert_int_equal(leave_one(put.id, 1), STATUS_OK);
    const struct shown *s = &d.shown[0];
    assert_int_equal(d.shown_count, 1);
    assert_false(shows_as_dead(s, &died_ms));
    assert_string_equal(s->payload, "dated");
    assert_string_equal(s->metadata, "{\"a\":1}");
    assert_string_equal(s->dedup, "key");
    assert_string_equal(s->actor, "ann");
    assert_int_equal(s->slot, before.slot);
    assert_int_equal(s->ready_ms, before.ready_ms);
    assert_int_equal(s->enqueued_ms, before.enqueued_ms);
    assert_int_equal(s->expire_ms, before.expire_ms);
    assert_int_equal(view(Q)->scheduled, 0);
    assert_int_equal(view(Q)->leased, 1);
    assert_int_equal(left_one(put.id, 1), STATUS_OK);
    assert_int_equal(state_of(Q, put.id), MESSAGE_NEW);
    assert_int_equal(view(Q)->leased, 0);
    assert_int_equal(view(Q)->totals.cancelled, 1);
}

static void a_dead_letter_leaves_with_the_time_and_reason_of_its_death(void **state)
{
    (void)state;
    int64_t died_ms;
    make();
    struct message_id id = put_dead("dead");
    struct shown before = *get(Q, id);
    sleep_ms(20);
    assert_int_equal(leave_one(id, 1), STATUS_OK);
    assert_true(shows_as_dead(&d.shown[0], &died_ms));
    assert_int_equal(died_ms, before.died_ms);
    assert_string_equal(d.shown[0].reason, "it failed");
    assert_int_equal(d.shown[0].attempts, 1);
    assert_int_equal(view(Q)->dead, 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, &id, 1, 1, -1), 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 10, -1), 0);
    assert_int_equal(left_one(id, 1), STATUS_OK);
    assert_int_equal(state_of(Q, id), MESSAGE_NEW);
}

static void a_message_that_is_leaving_is_nobodys(void **state)
{
    (void)state;
    make();
    struct message_id ready = put(Q, "ready", 0), dated = put_dated("dated");
    assert_int_equal(leave_one(ready, 1), STATUS_OK);
    assert_int_equal(leave_one(dated, 2), STATUS_OK);
    struct shown s = d.shown[0];
    assert_int_equal(claim(Q, 10), 0);
    assert_int_equal(cancel(Q, dated), STATUS_NOT_PENDING);
    assert_int_equal(move(Q, dated, 0, NULL, NULL).status, STATUS_NOT_PENDING);
    assert_int_equal(purge(Q, 10, UINT64_MAX), 0);
    s.id = ready;
    memset(s.receipt, 9, sizeof(s.receipt));
    assert_int_equal(ack(Q, &s), STATUS_RECEIPT_EXPIRED);
    sleep_ms(20000); /* neither its delay nor its lease ends */
    assert_int_equal(claim(Q, 10), 0);
    assert_int_equal(view(Q)->leased, 2);
    assert_int_equal(leaving(Q, 10), 2);
}

static void what_is_leaving_can_be_found_and_taken_over_by_its_receipt(void **state)
{
    (void)state;
    make();
    struct message_id a = put_dated("a"), b = put_dead("b");
    put_dated("stays");
    put(Q, "claimed", 0);
    claim_one(Q);
    assert_int_equal(leaving(Q, 10), 0);
    assert_int_equal(leave_one(a, 1), STATUS_OK);
    assert_int_equal(leave_one(b, 2), STATUS_OK);
    restart();
    assert_int_equal(leaving(Q, 1), 1);
    assert_int_equal(leaving(Q, 10), 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(d.shown[i].receipt[0], d.shown[i].id.seq == a.seq ? 1 : 2);
    assert_int_equal(leave_one(a, 1), STATUS_OK); /* once more */
    assert_int_equal(leave_one(a, 3), STATUS_RECEIPT_EXPIRED);
    struct leave_item other = item_of(a, 3);
    memset(other.from, 1, RECEIPT_BYTES);
    assert_int_equal(leave_items(Q, &other, 1, 0), STATUS_OK);
    assert_int_equal(other.status, STATUS_OK);
    assert_string_equal(d.shown[0].payload, "a");
    assert_int_equal(d.shown[0].receipt[0], 3);
    assert_int_equal(left_one(a, 1), STATUS_RECEIPT_EXPIRED);
    assert_int_equal(left_one(a, 3), STATUS_OK);
    assert_int_equal(left_one(a, 3), STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(left_one(b, 2), STATUS_OK);
    assert_int_equal(leaving(Q, 10), 0);
}

static void what_others_hold_does_not_leave(void **state)
{
    (void)state;
    make();
    put(Q, "claimed", 0);
    struct shown s = claim_one(Q);
    struct message_id gone = put_dated("gone");
    assert_int_equal(cancel(Q, gone), STATUS_OK);
    struct leave_item items[] = {item_of(s.id, 1), item_of(gone, 2), item_of(put_dated("x"), 3)};
    assert_int_equal(leave_items(Q, items, 3, 0), STATUS_OK);
    assert_int_equal(items[0].status, STATUS_NOT_PENDING);
    assert_int_equal(items[1].status, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(items[2].status, STATUS_OK);
    assert_int_equal(d.shown_count, 1);
    assert_string_equal(d.shown[0].payload, "x");
    left_items(Q, items, 3);
    assert_int_equal(items[0].status, STATUS_RECEIPT_EXPIRED);
    assert_int_equal(items[1].status, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(items[2].status, STATUS_OK);
    assert_int_equal(ack(Q, &s), STATUS_OK);
}

static void the_dedup_key_ends_with_a_message_that_has_left(void **state)
{
    (void)state;
    make();
    const struct spec keyed = {.payload = "k", .dedup = "key", .rank = 1, .delay_ms = 5000};
    struct message_id id = put_spec(Q, keyed).id;
    assert_int_equal(leave_one(id, 1), STATUS_OK);
    assert_true(put_spec(Q, keyed).deduplicated);
    assert_int_equal(left_one(id, 1), STATUS_OK);
    struct put_item again = put_spec(Q, keyed);
    assert_false(again.deduplicated);
    assert_int_not_equal(again.id.seq, id.seq);
}

static void place_as(uint64_t epoch, bool closed)
{
    struct engine_op op = {.verb = ENGINE_QUEUE_PLACE, .queue = queue(Q)};
    op.place.epoch = epoch;
    op.place.closed = closed;
    op.place.map = "map";
    op.place.map_len = 3;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
}

static void messages_leave_a_closed_place_by_its_own_epoch_alone(void **state)
{
    (void)state;
    make();
    struct leave_item item = item_of(put_dated("a"), 1);
    place_as(4, false);
    assert_int_equal(leave_items(Q, &item, 1, 4), STATUS_MOVED);
    place_as(5, true);
    assert_int_equal(leave_items(Q, &item, 1, 4), STATUS_MOVED);
    assert_int_equal(view(Q)->scheduled, 1);
    assert_int_equal(leave_items(Q, &item, 1, 5), STATUS_OK);
    assert_int_equal(item.status, STATUS_OK);
    place_as(6, false);
    assert_int_equal(leaving(Q, 10), 1);
    left_items(Q, &item, 1); /* what has begun goes on */
    assert_int_equal(item.status, STATUS_OK);
}

static void many_leave_from_wherever_they_are(void **state)
{
    enum { MANY = 300 };
    static struct leave_item items[MANY];
    (void)state;
    make();
    d.checks = false;
    for (uint32_t i = 0; i < MANY; i++)
        items[i] = item_of(i % 3 == 0 ? put(Q, "ready", 1) : put_dated("dated"), (uint8_t)i);
    restart();
    for (uint32_t i = 0; i < MANY; i += 50) {
        assert_int_equal(leave_items(Q, items + i, 50, 0), STATUS_OK);
        assert_int_equal(d.shown_count, 50);
        for (uint32_t k = 0; k < 50; k++)
            assert_int_equal(d.shown[k].id.seq, items[i + k].id.seq);
    }
    restart();
    assert_int_equal(leaving(Q, 1000), MANY);
    for (uint32_t i = 0; i < MANY; i += 50)
        left_items(Q, items + i, 50);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(items[i].status, STATUS_OK);
    d.checks = true;
    put(Q, "last", 0);
    assert_drains_as(Q, "last");
    assert_int_equal(leaving(Q, 10), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scheduled_message_leaves_with_all_that_it_is),
        cmocka_unit_test(a_dead_letter_leaves_with_the_time_and_reason_of_its_death),
        cmocka_unit_test(a_message_that_is_leaving_is_nobodys),
        cmocka_unit_test(what_is_leaving_can_be_found_and_taken_over_by_its_receipt),
        cmocka_unit_test(what_others_hold_does_not_leave),
        cmocka_unit_test(the_dedup_key_ends_with_a_message_that_has_left),
        cmocka_unit_test(messages_leave_a_closed_place_by_its_own_epoch_alone),
        cmocka_unit_test(many_leave_from_wherever_they_are),
    };
    return driver_main_stores(tests);
}
