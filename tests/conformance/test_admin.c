/* Without a receipt: cancel, get, purge, list, dead letters, and the queues themselves. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "admin"

static void make(uint32_t levels)
{
    struct queue_config c = rig_config(levels);
    make_queue(Q, &c);
}

/* Makes dead letters of `count` messages of one rank, with payloads m0, m1 … */
static void make_dead(uint32_t count, int rank)
{
    put_many(Q, count, rank);
    for (uint32_t i = 0; i < 3 * count; i++) {
        struct shown s = claim_one(Q);
        assert_int_equal(nack(Q, &s, 0, "broken", NULL), STATUS_OK);
    }
    assert_true(view(Q)->dead >= count);
}

static void only_waiting_messages_can_be_cancelled(void **state)
{
    (void)state;
    make(1);
    struct message_id ready = put(Q, "ready", 0);
    struct message_id later = put_spec(Q, (struct spec){.payload = "later", .delay_ms = 1000}).id;
    assert_int_equal(cancel(Q, ready), STATUS_OK);
    assert_int_equal(cancel(Q, later), STATUS_OK);
    assert_int_equal(cancel(Q, ready), STATUS_MESSAGE_NOT_FOUND);
    put(Q, "held", 0);
    struct shown held = claim_one(Q);
    assert_int_equal(cancel(Q, held.id), STATUS_NOT_PENDING);
    assert_int_equal(ack(Q, &held), STATUS_OK);
    assert_int_equal(cancel(Q, held.id), STATUS_MESSAGE_NOT_FOUND);
    make_dead(1, 0);
    assert_int_equal(dead_list(Q, 0, 1), 1);
    assert_int_equal(cancel(Q, d.shown[0].id), STATUS_NOT_PENDING);
    restart();
    assert_int_equal(cancel(Q, later), STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(view(Q)->totals.cancelled, 2);
    sleep_ms(2000);
    assert_int_equal(claim(Q, 1), 0);
}

static void a_message_can_be_looked_up_in_every_state(void **state)
{
    (void)state;
    make(2);
    struct message_id id = put_spec(Q, (struct spec){.payload = "p", .rank = 1, .delay_ms = 9}).id;
    assert_int_equal(state_of(Q, id), MESSAGE_SCHEDULED);
    sleep_ms(9);
    assert_int_equal(state_of(Q, id), MESSAGE_READY);
    for (int i = 0; i < 3; i++) {
        struct shown s = claim_one(Q);
        const struct shown *seen = get(Q, id);
        assert_int_equal(seen->state, MESSAGE_LEASED);
        assert_int_equal(seen->attempts, i + 1);
        assert_int_equal(seen->lease_until_ms, s.lease_until_ms);
        assert_int_equal(nack(Q, &s, 0, "x", NULL), STATUS_OK);
    }
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
    struct message_id other = id;
    other.slot ^= 1;
    assert_null(get(Q, other));
    other = id;
    other.ready_ms--;
    assert_null(get(Q, other));
    other = id;
    other.seq++;
    assert_null(get(Q, other));
    other.seq = (1ULL << 48) - 1;
    assert_null(get(Q, other));
    other = id;
    other.queue += 7;
    assert_null(get(Q, other));
}

static void a_purge_takes_what_was_there_when_it_began(void **state)
{
    (void)state;
    make(3);
    for (int rank = 0; rank < 3; rank++)
        put_many(Q, 5, rank);
    for (int i = 0; i < 5; i++)
        put_spec(Q, (struct spec){.payload = "later", .delay_ms = 100 + i});
    struct shown held = claim_one(Q);
    uint64_t before = queue(Q)->next_seq;
    put(Q, "new", 1);
    assert_int_equal(purge(Q, 4, before), 19);
    restart();
    assert_int_equal(view(Q)->totals.cancelled, 19);
    assert_int_equal(view(Q)->ready, 1);
    assert_int_equal(view(Q)->scheduled, 0);
    assert_int_equal(view(Q)->leased, 1);
    assert_int_equal(ack(Q, &held), STATUS_OK);
    assert_drains_as(Q, "new");
}

static void a_list_shows_every_message_once(void **state)
{
    (void)state;
    make(4);
    make_dead(2, 3);
    for (int rank = 0; rank < 4; rank++) {
        put_many(Q, 6, rank);
        put_spec(Q, (struct spec){.payload = "later", .rank = rank, .delay_ms = 5000});
        put_spec(Q,
                 (struct spec){
                     .payload = "old", .rank = rank, .has_ready_at = true, .ready_at_ms = -rank});
    }
    assert_int_equal(claim(Q, 9), 9);
    restart();
    static const uint32_t pages[] = {1, 2, 3, 7, 100};
    for (int i = 0; i < 5; i++) {
        uint32_t by_state[MESSAGE_STATE_COUNT] = {0};
        uint32_t found = list_all(Q, pages[i]);
        for (uint32_t k = 0; k < found; k++)
            by_state[d.shown[k].state]++;
        assert_int_equal(by_state[MESSAGE_SCHEDULED], 4);
        assert_int_equal(by_state[MESSAGE_READY], 28 - 9);
        assert_int_equal(by_state[MESSAGE_LEASED], 9);
    }
}

static void chosen_messages_are_cancelled_and_others_skipped(void **state)
{
    (void)state;
    struct message_id ids[5];
    struct queue_config c = rig_config(2);
    c.dedup_scope = DEDUP_LIVE;
    make_queue(Q, &c);
    ids[0] = put(Q, "leased", 0);
    struct shown held = claim_one(Q);
    ids[1] = put(Q, "a", 1);
    ids[2] = put_spec(Q, (struct spec){.payload = "b", .delay_ms = 1000, .dedup = "key"}).id;
    ids[3] = ids[1]; /* twice */
    ids[4] = ids[2];
    ids[4].ready_ms++; /* nobody's */
    put(Q, "stays", 0);
    assert_int_equal(dead_bulk(Q, ENGINE_PURGE, ids, 5, 5, -1), 2);
    restart();
    assert_int_equal(state_of(Q, ids[1]), MESSAGE_NEW);
    assert_int_equal(state_of(Q, ids[2]), MESSAGE_NEW);
    assert_int_equal(view(Q)->totals.cancelled, 2);
    assert_int_equal(ack(Q, &held), STATUS_OK);
    /* Less urgent: of one level, messages of two cells stand in no promised order in one answer. */
    struct spec again = {.payload = "c", .rank = 1, .dedup = "key"};
    assert_false(put_spec(Q, again).deduplicated);
    assert_drains_as(Q, "stays c");
}

static void what_is_promoted_is_ready_behind_what_was(void **state)
{
    (void)state;
    struct message_id ids[4];
    make(2);
    ids[0] = put_spec(Q, (struct spec){.payload = "one", .rank = 1, .delay_ms = 100000}).id;
    ids[1] = put_spec(Q, (struct spec){.payload = "two", .rank = 1, .delay_ms = 50000}).id;
    ids[2] = put_spec(Q, (struct spec){.payload = "later", .rank = 1, .delay_ms = 80000}).id;
    ids[3] = put(Q, "first", 1);
    sleep_ms(1000);
    struct message_id chosen[] = {ids[1], ids[3], ids[0], ids[1]};
    assert_int_equal(dead_bulk(Q, ENGINE_PROMOTE, chosen, 4, 4, -1), 2);
    restart();
    assert_int_equal(state_of(Q, ids[0]), MESSAGE_READY);
    assert_int_equal(state_of(Q, ids[2]), MESSAGE_SCHEDULED);
    assert_int_equal(view(Q)->scheduled, 1);
    sleep_ms(1000);
    put(Q, "last", 1);
    if (one_order())
        assert_drains_as(Q, "first one two last");
    else
        assert_int_equal(claim(Q, 10), 4);
}

static void a_promoted_message_keeps_its_attempts_and_its_time_to_live(void **state)
{
    (void)state;
    make(1);
    struct message_id id = put_spec(Q, (struct spec){.payload = "x", .ttl_ms = 5000}).id;
    struct shown s = claim_one(Q);
    assert_int_equal(nack(Q, &s, 3000, "no", NULL), STATUS_OK);
    assert_int_equal(dead_bulk(Q, ENGINE_PROMOTE, &id, 1, 1, -1), 1);
    s = claim_one(Q);
    assert_int_equal(s.attempts, 2);
    assert_int_equal(release(Q, &s), STATUS_OK);
    sleep_ms(6000);
    assert_int_equal(state_of(Q, id), MESSAGE_NEW);
    assert_int_equal(view(Q)->totals.expired, 1);
}

static void a_nack_can_be_the_last_attempt(void **state)
{
    (void)state;
    enum message_state become;
    make(1);
    struct message_id id = put(Q, "x", 0);
    struct shown s = claim_one(Q);
    assert_int_equal(nack(Q, &s, NACK_DEAD, "never", &become), STATUS_OK);
    assert_int_equal(become, MESSAGE_DEAD);
    restart();
    assert_int_equal(dead_list(Q, 0, 10), 1);
    assert_string_equal(d.shown[0].reason, "never");
    assert_int_equal(d.shown[0].attempts, 1);
    assert_int_equal(view(Q)->totals.nacked, 1);
    assert_int_equal(state_of(Q, id), MESSAGE_DEAD);
}

/* Three in each state, of two levels. */
static void make_all_states(void)
{
    struct queue_config c = rig_config(2);
    c.max_attempts = 1;
    c.history_ms = 3600000;
    make_queue(Q, &c);
    for (int i = 0; i < 9; i++) {
        put_spec(Q, (struct spec){.payload = "taken", .rank = i % 2});
        struct shown s = claim_one(Q);
        if (i % 3 == 0)
            assert_int_equal(ack(Q, &s), STATUS_OK);
        if (i % 3 == 1)
            assert_int_equal(nack(Q, &s, 0, "no", NULL), STATUS_OK);
    }
    for (int i = 0; i < 3; i++) {
        put_spec(Q, (struct spec){.payload = "waits", .rank = i % 2});
        put_spec(Q, (struct spec){.payload = "later", .rank = i % 2, .delay_ms = 3600000});
    }
}

static void assert_listed(uint32_t states, uint32_t count)
{
    static const uint32_t pages[] = {1, 2, 100};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(list_states(Q, states, true, pages[i]), count);
        assert_int_equal(list_states(Q, states, false, pages[i]), count);
        for (uint32_t k = 0; k < count; k++)
            assert_int_equal(d.shown[k].payload_len, 5);
    }
}

static void a_list_of_states_shows_every_message_in_them_once(void **state)
{
    (void)state;
    make_all_states();
    for (enum message_state s = MESSAGE_SCHEDULED; s <= MESSAGE_DONE; s++)
        assert_listed(1U << s, 3);
    assert_listed(1U << MESSAGE_READY | 1U << MESSAGE_SCHEDULED, 6);
    assert_listed(1U << MESSAGE_LEASED | 1U << MESSAGE_DEAD, 6);
    restart();
    assert_listed(1U << MESSAGE_DONE, 3);
}

static void what_is_done_is_listed_for_as_long_as_it_is_kept(void **state)
{
    (void)state;
    make_all_states();
    sleep_ms(3600001);
    assert_int_equal(list_states(Q, 1U << MESSAGE_DONE, false, 2), 0);
}

static void dead_letters_are_listed_by_arrival(void **state)
{
    (void)state;
    make(2);
    make_dead(5, 1);
    make_dead(2, 0);
    restart();
    assert_int_equal(dead_list(Q, 0, 4), 4);
    uint64_t last = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(d.shown[i].id.seq > last);
        last = d.shown[i].id.seq;
        assert_int_equal(d.shown[i].state, MESSAGE_DEAD);
        assert_string_equal(d.shown[i].reason, "broken");
        assert_int_equal(d.shown[i].attempts, 3);
    }
    assert_string_equal(d.shown[0].payload, "m0");
    assert_int_equal(dead_list(Q, last, 100), 3);
    assert_string_equal(d.shown[2].payload, "m1");
}

static void redriven_messages_start_again_at_their_old_place(void **state)
{
    (void)state;
    make(2);
    make_dead(3, 1);
    sleep_ms(1000);
    put(Q, "young", 1);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 100, -1), 3);
    assert_int_equal(view(Q)->dead, 0);
    assert_int_equal(view(Q)->totals.redriven, 3);
    restart();
    struct shown first = claim_one(Q);
    assert_string_equal(first.payload, "m0");
    assert_int_equal(first.attempts, 1);
    assert_int_equal(first.slot, slot_of(Q, 1));
    assert_int_equal(first.enqueued_ms, d.rig.now.wall_ms - 1000);
    assert_int_equal(first.ready_ms, d.rig.now.wall_ms - 1000);
    assert_drains_as(Q, "m1 m2 young");
}

static void chosen_dead_letters_can_be_redriven_to_another_level(void **state)
{
    (void)state;
    make(2);
    make_dead(4, 1);
    assert_int_equal(dead_list(Q, 0, 10), 4);
    struct message_id ids[4] = {d.shown[2].id, d.shown[0].id, d.shown[2].id, d.shown[1].id};
    ids[3].seq += 1000; /* none such: skipped, and so is the repeated one */
    put(Q, "low", 1);
    put(Q, "high", 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, ids, 4, 4, slot_of(Q, 0)), 2);
    restart();
    assert_int_equal(view(Q)->dead, 2);
    assert_int_equal(view(Q)->lanes[slot_of(Q, 0)].ready, 3);
    assert_int_equal(state_of(Q, ids[0]), MESSAGE_READY);
    assert_int_equal(get(Q, ids[0])->slot, slot_of(Q, 0));
    assert_drains_as(Q, "m0 m2 high low");
}

static void redriving_and_dropping_go_in_order_up_to_a_count(void **state)
{
    (void)state;
    make(1);
    make_dead(6, 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 2, -1), 2);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 2, -1), 2);
    restart();
    assert_int_equal(dead_list(Q, 0, 10), 2);
    assert_string_equal(d.shown[0].payload, "m4");
    struct message_id id = d.shown[1].id;
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, &id, 1, 1, -1), 1);
    assert_null(get(Q, id));
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, &id, 1, 1, -1), 0);
    assert_drains_as(Q, "m2 m3");
    assert_int_equal(view(Q)->dead, 1);
}

static void a_redriven_message_can_die_again(void **state)
{
    (void)state;
    make(1);
    make_dead(1, 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 1, -1), 1);
    for (int i = 0; i < 3; i++) {
        struct shown s = claim_one(Q);
        assert_int_equal(nack(Q, &s, 0, "still broken", NULL), STATUS_OK);
        restart();
    }
    assert_int_equal(dead_list(Q, 0, 10), 1);
    assert_string_equal(d.shown[0].reason, "still broken");
    assert_int_equal(view(Q)->totals.dead, 2);
}

static void configuration_survives(void **state)
{
    (void)state;
    struct queue_config c;
    assert_true(config_profile("tiers", &c));
    c.paused = true;
    c.ttl_ms = 77;
    c.backoff_jitter = 0.25;
    c.max_depth = 12345678901;
    c.alert_dead_letters = 5;
    snprintf(c.alert_webhook, sizeof(c.alert_webhook), "http://localhost/x");
    make_queue(Q, &c);
    restart();
    const struct queue_config *have = &queue(Q)->config;
    assert_string_equal(have->profile, "tiers");
    assert_int_equal(have->level_count, 5);
    assert_int_equal(have->default_rank, c.default_rank);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(have->levels[i].name, c.levels[i].name);
        assert_int_equal(have->levels[i].number, c.levels[i].number);
        assert_true(have->levels[i].weight == c.levels[i].weight);
    }
    assert_true(have->paused);
    assert_int_equal(have->ttl_ms, 77);
    assert_true(have->backoff_jitter == 0.25);
    assert_int_equal(have->max_depth, 12345678901);
    assert_int_equal(have->alert_dead_letters, 5);
    assert_string_equal(have->alert_webhook, "http://localhost/x");
    assert_int_equal(have->visibility_ms, 300000);
    c.paused = false;
    c.max_attempts = 9;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    assert_false(queue(Q)->config.paused);
    assert_int_equal(queue(Q)->config.max_attempts, 9);
}

static void levels_can_be_reordered_with_messages_in_them(void **state)
{
    (void)state;
    make(3);
    put(Q, "l0", 0);
    put(Q, "l1", 1);
    put(Q, "l2", 2);
    struct queue_config c = rig_config(4);
    struct level first = c.levels[0];
    c.levels[0] = c.levels[2]; /* L2, L1, NEW, L0 */
    c.levels[2] = c.levels[3];
    c.levels[3] = first;
    snprintf(c.levels[2].name, sizeof(c.levels[2].name), "NEW");
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    put(Q, "new", 2);
    put(Q, "l2b", 0);
    assert_drains_as(Q, "l2 l2b l1 new l0");
}

static void a_level_in_use_cannot_vanish(void **state)
{
    (void)state;
    make(3);
    struct message_id id = put_spec(Q, (struct spec){.payload = "x", .rank = 1, .delay_ms = 50}).id;
    struct queue_config c = rig_config(3);
    snprintf(c.levels[1].name, sizeof(c.levels[1].name), "renamed");
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .queue = queue(Q)};
    op.set.name = Q;
    op.set.config = &c;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_LEVEL_IN_USE);
    assert_string_equal(op.set.level_name, "L1");
    assert_string_equal(queue(Q)->config.levels[1].name, "L1");
    sleep_ms(50);
    struct shown s = claim_one(Q);
    assert_int_equal(set_queue(Q, &c), STATUS_LEVEL_IN_USE);
    assert_int_equal(nack(Q, &s, 0, "no", NULL), STATUS_OK);
    assert_int_equal(cancel(Q, id), STATUS_OK);
    restart();
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    put(Q, "y", 1);
    assert_drains_as(Q, "y");
}

/* A level goes on under another name, and the name may go to another level. */
static void a_level_has_an_heir_of_another_name(void **state)
{
    (void)state;
    make(3);
    make_dead(1, 1);
    put(Q, "l0", 0);
    put(Q, "l1", 1);
    put(Q, "l2", 2);
    struct queue_config c = rig_config(4);
    c.levels[3] = c.levels[1]; /* L0, L1 (a new one), L2, old: what was L1 */
    c.levels[3].heir_of = (uint8_t)(queue(Q)->config.levels[1].slot + 1);
    snprintf(c.levels[3].name, sizeof(c.levels[3].name), "old");
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    assert_int_equal(queue(Q)->config.level_count, 4);
    put(Q, "new", 1);
    restart();
    assert_string_equal(queue(Q)->config.levels[3].name, "old");
    assert_int_equal(queue(Q)->config.levels[3].heir_of, 0);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 10, -1), 1);
    assert_drains_as(Q, "l0 new l2 l1");
    c = rig_config(3); /* it is leased, and so in use */
    assert_int_equal(set_queue(Q, &c), STATUS_LEVEL_IN_USE);
}

static void a_level_of_dead_letters_cannot_vanish(void **state)
{
    (void)state;
    make(2);
    make_dead(1, 1);
    struct queue_config c = rig_config(1);
    assert_int_equal(set_queue(Q, &c), STATUS_LEVEL_IN_USE);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 10, -1), 1);
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    assert_int_equal(queue(Q)->config.level_count, 1);
}

static void a_deleted_queue_leaves_nothing(void **state)
{
    (void)state;
    make(2);
    make_dead(2, 0);
    struct message_id id = put(Q, "old", 0);
    put_spec(Q, (struct spec){.payload = "k", .dedup = "key", .rank = 1});
    put_spec(Q, (struct spec){.payload = "later", .delay_ms = 100});
    struct shown held = claim_one(Q);
    uint32_t old_id = queue(Q)->id;
    delete_queue(Q);
    restart();
    assert_null(queue(Q));
    sleep_ms(100000);
    make(2);
    assert_int_not_equal(queue(Q)->id, old_id);
    restart();
    struct queue_view empty = {0};
    assert_memory_equal(&view(Q)->totals, &empty.totals, sizeof(empty.totals));
    assert_int_equal(view(Q)->dead, 0);
    assert_null(get(Q, id));
    assert_int_equal(ack(Q, &held), STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(list_all(Q, 10), 0);
    assert_int_equal(dead_list(Q, 0, 10), 0);
    assert_false(put_spec(Q, (struct spec){.payload = "k", .dedup = "key"}).deduplicated);
    put(Q, "fresh", 0);
    if (one_order())
        assert_drains_as(Q, "k fresh");
    else
        assert_int_equal(claim(Q, 3), 2);
    assert_null(get(Q, id));
}

static void a_queue_that_moves_stores_nothing_new(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make(2);
    if (!engine_has(d.rig.engine, ENGINE_MOVES))
        return;
    struct message_id known =
        put_spec(Q, (struct spec){.payload = "k", .dedup = "key", .rank = 1}).id;
    snprintf(c.forward_to, sizeof(c.forward_to), "http://target");
    snprintf(c.forward_token, sizeof(c.forward_token), "secret");
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    assert_string_equal(queue(Q)->config.forward_to, "http://target");
    assert_string_equal(queue(Q)->config.forward_token, "secret");
    assert_int_equal(put_spec(Q, (struct spec){.payload = "x"}).status, STATUS_QUEUE_MOVED);
    assert_int_equal(put_spec(Q, (struct spec){.payload = "y", .dedup = "other"}).status,
                     STATUS_QUEUE_MOVED);
    struct put_item again = put_spec(Q, (struct spec){.payload = "z", .dedup = "key"});
    assert_true(again.status == STATUS_OK && again.deduplicated);
    assert_int_equal(again.id.seq, known.seq);
    assert_int_equal(view(Q)->ready, 1);
    c.forward_to[0] = c.forward_token[0] = '\0';
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    put(Q, "here again", 0);
    assert_int_equal(claim(Q, 3), 2);
}

static void queues_do_not_see_each_other(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    static const char *const names[] = {"a", "a.b", "a-b", "A", "ab"};
    for (int i = 0; i < 5; i++)
        make_queue(names[i], &c);
    for (int i = 0; i < 5; i++)
        put(names[i], names[i], i % 2);
    restart();
    delete_queue("a.b");
    size_t at = 0;
    uint32_t count = 0;
    while (engine_queue_each(d.rig.engine, &at))
        count++;
    assert_int_equal(count, 4);
    assert_drains_as("a", "a");
    assert_drains_as("ab", "ab");
    assert_drains_as("A", "A");
    assert_drains_as("a-b", "a-b");
}

static void totals_survive(void **state)
{
    (void)state;
    make(2);
    make_dead(2, 0);
    put_many(Q, 10, 1);
    struct shown a = claim_one(Q), b = claim_one(Q), c = claim_one(Q);
    assert_int_equal(ack(Q, &a), STATUS_OK);
    assert_int_equal(nack(Q, &b, 0, "x", NULL), STATUS_OK);
    assert_int_equal(release(Q, &c), STATUS_OK);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 1, -1), 1);
    struct queue_view before = *view(Q);
    uint64_t next_seq = queue(Q)->next_seq;
    restart();
    assert_memory_equal(&before.totals, &view(Q)->totals, sizeof(before.totals));
    assert_int_equal(before.ready, view(Q)->ready);
    assert_int_equal(before.dead, view(Q)->dead);
    assert_int_equal(before.bytes, view(Q)->bytes);
    assert_true(queue(Q)->next_seq >= next_seq);
}

static void health_has_words(void **state)
{
    (void)state;
    struct buf detail = {0};
    assert_int_equal(engine_health(d.rig.engine, &detail), STATUS_OK);
    assert_true(detail.len > 0);
    buf_fini(&detail);
}

#define TEST(name) cmocka_unit_test(name)

/* Stores may keep what is large apart. */
static void a_listing_shows_large_payloads_whole(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    c.max_attempts = 1;
    make_queue(Q, &c);
    char *large = mem_alloc(20001);
    memset(large, 'x', 20000);
    large[20000] = '\0';
    put(Q, large, 0);
    struct shown s = claim_one(Q);
    assert_int_equal(nack(Q, &s, 0, "no", NULL), STATUS_OK);
    put_spec(Q, (struct spec){.payload = large, .delay_ms = 1000});
    put(Q, large, 0);
    free(large);
    assert_int_equal(dead_list(Q, 0, 10), 1);
    assert_int_equal(d.shown[0].payload_len, 20000);
    assert_int_equal(list_all(Q, 10), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(d.shown[i].payload_len, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_waiting_messages_can_be_cancelled),
        TEST(a_message_can_be_looked_up_in_every_state),
        TEST(a_purge_takes_what_was_there_when_it_began),
        TEST(a_list_shows_every_message_once),
        TEST(chosen_messages_are_cancelled_and_others_skipped),
        TEST(what_is_promoted_is_ready_behind_what_was),
        TEST(a_promoted_message_keeps_its_attempts_and_its_time_to_live),
        TEST(a_nack_can_be_the_last_attempt),
        TEST(a_list_of_states_shows_every_message_in_them_once),
        TEST(what_is_done_is_listed_for_as_long_as_it_is_kept),
        TEST(dead_letters_are_listed_by_arrival),
        TEST(redriven_messages_start_again_at_their_old_place),
        TEST(chosen_dead_letters_can_be_redriven_to_another_level),
        TEST(redriving_and_dropping_go_in_order_up_to_a_count),
        TEST(a_redriven_message_can_die_again),
        TEST(configuration_survives),
        TEST(levels_can_be_reordered_with_messages_in_them),
        TEST(a_level_in_use_cannot_vanish),
        TEST(a_level_has_an_heir_of_another_name),
        TEST(a_level_of_dead_letters_cannot_vanish),
        TEST(a_deleted_queue_leaves_nothing),
        TEST(a_queue_that_moves_stores_nothing_new),
        TEST(queues_do_not_see_each_other),
        TEST(totals_survive),
        TEST(health_has_words),
        cmocka_unit_test(a_listing_shows_large_payloads_whole),
    };
    return driver_main(tests);
}
