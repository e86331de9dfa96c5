/* Queues that do not fit in memory: with a tiny memory limit most of every level lives in files,
 * and nothing but the time it takes may tell. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q      "tail"
#define LEVELS 4
#define BATCH  500

static uint32_t total; /* messages in a test; most where they do not fit in memory */

static void make(void)
{
    struct queue_config c = rig_config(LEVELS);
    c.visibility_ms = LEASE_SECONDS_MAX * 1000LL;
    make_queue(Q, &c);
    total = d.restarts_always ? 1500 : 4000;
    d.checks = false;
}

/* For the tests of order: twenty thousand where they do not fit in memory. */
static void make_deep(void)
{
    make();
    if (d.rig.memory_limit)
        total = 20000;
}

/* What was put, kept sorted as it must come out. */
struct expected {
    int rank;
    int64_t ready_ms;
    struct message_id id;
};
static struct expected *expected;
static uint32_t expected_count;

static void forget_expected(void)
{
    free(expected);
    expected = NULL;
    expected_count = 0;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7FB5D329728EA185ULL;
    x = (x ^ x >> 27) * 0x81DADEF4BC2DD44DULL;
    return x ^ x >> 33;
}

typedef int64_t ready_fn(uint32_t i); /* offset from now, in ms; 0: READY_NOW */

static void put_all(uint32_t count, ready_fn *offset, int64_t ttl_ms)
{
    expected = mem_realloc(expected, (expected_count + count) * sizeof(*expected));
    for (uint32_t at = 0; at < count; at += BATCH) {
        uint32_t n = count - at < BATCH ? count - at : BATCH;
        struct put_item *items = mem_zalloc(n * sizeof(*items));
        for (uint32_t i = 0; i < n; i++) {
            struct draft *draft = &items[i].draft;
            char body[32];
            int64_t ms = offset(at + i);
            draft->payload_len = (uint32_t)snprintf(body, sizeof(body), "body of %u", at + i);
            draft->body = mem_dup(body, draft->payload_len);
            draft->ready_ms = ms == 0 ? READY_NOW : d.rig.now.wall_ms + ms;
            draft->ttl_ms = ttl_ms;
            draft->priority = (struct priority_ref){.kind = PRIORITY_NUMBER,
                                                    .number = (int64_t)(mix(at + i) % LEVELS)};
        }
        struct engine_op op = {.verb = ENGINE_PUT, .queue = queue(Q)};
        op.put.items = items;
        op.put.count = n;
        rig_run_one(&d.rig, &op);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(items[i].status, STATUS_OK);
            expected[expected_count++] = (struct expected){(int)items[i].draft.priority.number,
                                                           items[i].id.ready_ms, items[i].id};
        }
        free(items);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct expected *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->ready_ms != y->ready_ms)
        return x->ready_ms < y->ready_ms ? -1 : 1;
    return x->id.seq < y->id.seq ? -1 : 1;
}

/* Claims and acks everything, in exactly the order of `expected`, with restarts on the way. */
static void drain(uint32_t restarts)
{
    qsort(expected, expected_count, sizeof(*expected), by_place);
    uint32_t at = 0, every = restarts ? expected_count / (restarts + 1) + 1 : UINT32_MAX;
    bool always = d.restarts_always;
    d.restarts_always = false;
    for (uint32_t next = every; at < expected_count;) {
        uint32_t n = claim(Q, 1 + at % 100);
        assert_true(n > 0);
        struct settle_item items[CLAIM_MAX] = {0};
        for (uint32_t i = 0; i < n; i++, at++) {
            assert_int_equal(d.shown[i].id.seq, expected[at].id.seq);
            assert_true(d.shown[i].payload_len > 8);
            items[i].id = d.shown[i].id;
            memcpy(items[i].receipt, d.shown[i].receipt, RECEIPT_BYTES);
        }
        struct engine_op op = {.verb = ENGINE_ACK, .queue = queue(Q)};
        op.settle.items = items;
        op.settle.count = n;
        rig_run_one(&d.rig, &op);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(items[i].status, STATUS_OK);
        if (at >= next) {
            restart();
            next += every;
        }
    }
    d.restarts_always = always;
    assert_int_equal(claim(Q, 1), 0);
    assert_int_equal(view(Q)->ready, 0);
    assert_int_equal(view(Q)->bytes, 0);
    forget_expected();
}

static int64_t at_once(uint32_t i)
{
    (void)i;
    return 0;
}

static int64_t scattered(uint32_t i)
{
    return i % 3 == 0 ? 0 : (int64_t)(mix(i * 3 + 1) % 20001) - 10000;
}

/* Every third message goes to another level, wherever it is kept; the others stay. */
static void messages_moved_between_tails_come_out_in_order(void **state)
{
    (void)state;
    make();
    put_all(total, scattered, TTL_DEFAULT);
    uint32_t moved = 0;
    for (int rank = 0; rank < LEVELS; rank++) {
        struct message_id ids[BATCH];
        uint32_t count = 0, changes = 0;
        for (uint32_t i = (uint32_t)rank; i < expected_count && count < BATCH; i += 3 * LEVELS) {
            ids[count++] = expected[i].id;
            changes += expected[i].rank != rank;
            expected[i].rank = rank;
        }
        assert_int_equal(move_many(Q, ids, count, rank), changes);
        moved += changes;
    }
    assert_true(moved > 100);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total);
    assert_int_equal(view(Q)->totals.escalated, moved);
    restart();
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total);
    assert_int_equal(view(Q)->totals.escalated, moved);
    sleep_ms(10000);
    assert_int_equal(view(Q)->ready, total);
    drain(2);
}

/* The whole backlog changes its level: nothing of it is left in the old one. */
static void a_backlog_can_be_moved_as_a_whole(void **state)
{
    (void)state;
    make();
    put_all(total, at_once, TTL_DEFAULT);
    for (uint32_t at = 0; at < expected_count; at += BATCH) {
        struct message_id ids[BATCH];
        uint32_t count = 0;
        for (; count < BATCH && at + count < expected_count; count++) {
            ids[count] = expected[at + count].id;
            expected[at + count].rank = LEVELS - 1;
        }
        move_many(Q, ids, count, LEVELS - 1);
    }
    for (int rank = 0; rank < LEVELS; rank++)
        assert_int_equal(view(Q)->lanes[slot_of(Q, rank)].ready, rank < LEVELS - 1 ? 0 : total);
    restart();
    assert_int_equal(view(Q)->lanes[slot_of(Q, LEVELS - 1)].ready, total);
    drain(2);
}

/* Near the front exactly, and nowhere far off; an estimate says that it is one. */
static void places_in_a_deep_queue_are_counted(void **state)
{
    (void)state;
    make_deep();
    put_all(total, at_once, TTL_DEFAULT);
    qsort(expected, expected_count, sizeof(*expected), by_place);
    for (uint32_t i = 0, before = 0; i < expected_count; i++, before++) {
        int rank = expected[i].rank;
        if (i > 0 && expected[i - 1].rank != rank)
            before = 0;
        if (before > 40 && i % 97)
            continue;
        struct count_item c = count_before(Q, rank, expected[i].ready_ms, expected[i].id.seq);
        uint64_t all = view(Q)->lanes[slot_of(Q, rank)].ready;
        if (c.exact || before < 8)
            assert_int_equal(c.before, before);
        assert_true(c.before <= all);
        assert_in_range(c.before, before > all / 5 ? before - all / 5 : 0, before + all / 5);
    }
    for (int rank = 0; rank < LEVELS; rank++) {
        struct count_item all = count_before(Q, rank, INT64_MAX, UINT64_MAX);
        assert_true(all.exact);
        assert_int_equal(all.before, view(Q)->lanes[slot_of(Q, rank)].ready);
    }
    forget_expected();
}

static void a_deep_queue_comes_out_in_order(void **state)
{
    (void)state;
    make_deep();
    put_all(total, at_once, TTL_DEFAULT);
    assert_int_equal(view(Q)->ready, total);
    drain(3);
}

static void scattered_times_come_out_in_order(void **state)
{
    (void)state;
    make_deep();
    put_all(total, scattered, TTL_DEFAULT);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total);
    restart();
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total);
    uint64_t ready = 0;
    for (uint32_t i = 0; i < expected_count; i++)
        ready += expected[i].ready_ms <= d.rig.now.wall_ms;
    assert_int_equal(view(Q)->ready, ready);
    sleep_ms(5000);
    ready = 0;
    for (uint32_t i = 0; i < expected_count; i++)
        ready += expected[i].ready_ms <= d.rig.now.wall_ms;
    assert_int_equal(view(Q)->ready, ready);
    sleep_ms(5000);
    assert_int_equal(view(Q)->ready, total);
    drain(3);
}

static void late_arrivals_find_their_place_in_a_tail(void **state)
{
    (void)state;
    make();
    put_all(total / 2, at_once, TTL_DEFAULT);
    sleep_ms(1000);
    put_all(total / 4, scattered, TTL_DEFAULT);
    restart();
    sleep_ms(11000);
    put_all(total / 4, scattered, TTL_DEFAULT);
    sleep_ms(11000);
    drain(2);
}

static void what_is_not_in_memory_can_be_found(void **state)
{
    (void)state;
    make();
    put_all(total, scattered, TTL_DEFAULT);
    for (uint32_t i = 0; i < 300; i++) {
        const struct expected *e = &expected[mix(i) % expected_count];
        const struct shown *s = get(Q, e->id);
        assert_non_null(s);
        assert_int_equal(s->slot, slot_of(Q, e->rank));
        assert_int_equal(s->state,
                         e->ready_ms <= d.rig.now.wall_ms ? MESSAGE_READY : MESSAGE_SCHEDULED);
        assert_true(s->payload_len > 8);
    }
    sleep_ms(20000);
    assert_int_equal(view(Q)->ready, total);
    drain(1);
}

static void remove_expected(uint32_t at)
{
    expected[at] = expected[--expected_count];
}

static void what_is_not_in_memory_can_be_cancelled(void **state)
{
    (void)state;
    make();
    put_all(total, scattered, TTL_DEFAULT);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t at = (uint32_t)(mix(i) % expected_count);
        struct message_id id = expected[at].id;
        assert_int_equal(cancel(Q, id), STATUS_OK);
        assert_int_equal(cancel(Q, id), STATUS_MESSAGE_NOT_FOUND);
        remove_expected(at);
    }
    restart();
    assert_int_equal(view(Q)->totals.cancelled, 200);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total - 200);
    sleep_ms(20000);
    drain(1);
}

static void a_purge_reaches_into_the_tail(void **state)
{
    (void)state;
    make();
    put_all(total / 2, scattered, TTL_DEFAULT);
    uint64_t before = queue(Q)->next_seq;
    forget_expected();
    put_all(total / 2, scattered, TTL_DEFAULT);
    assert_int_equal(purge(Q, d.restarts_always ? 400 : 1000, before), total / 2);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total / 2);
    restart();
    assert_int_equal(view(Q)->totals.cancelled, total / 2);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total / 2);
    sleep_ms(20000);
    drain(1);
}

static void a_time_to_live_reaches_into_the_tail(void **state)
{
    (void)state;
    make();
    put_all(total / 2, scattered, 5000);
    forget_expected();
    put_all(total / 2, scattered, TTL_DEFAULT);
    restart();
    sleep_ms(4999);
    assert_int_equal(view(Q)->totals.expired, 0);
    sleep_ms(1);
    assert_int_equal(view(Q)->totals.expired, total / 2);
    assert_int_equal(view(Q)->ready + view(Q)->scheduled, total / 2);
    restart();
    assert_int_equal(view(Q)->totals.expired, total / 2);
    sleep_ms(20000);
    drain(1);
}

static uint32_t listed;
static uint8_t *listed_seqs;

static void mark(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    (void)op, (void)q, (void)now;
    assert_true(m->body != NULL);
    assert_true(message_seq(m) <= total);
    assert_false(listed_seqs[message_seq(m)]);
    listed_seqs[message_seq(m)] = 1;
    listed++;
}

static void a_list_shows_the_tail_once(void **state)
{
    (void)state;
    make();
    put_all(total, scattered, TTL_DEFAULT);
    assert_true(claim(Q, 50) == 50);
    restart();
    listed = 0;
    listed_seqs = mem_zalloc(total + 1);
    struct list_cursor at = {0};
    for (bool more = true; more;) {
        struct engine_op op = {.verb = ENGINE_LIST, .queue = queue(Q), .visit = mark};
        op.list.after = at;
        op.list.limit = 777;
        rig_run_one(&d.rig, &op);
        assert_int_equal(op.status, STATUS_OK);
        at = op.list.next;
        more = op.list.more;
    }
    assert_int_equal(listed, total);
    free(listed_seqs);
    forget_expected();
}

/* Messages that die while the level has a tail come back at their old place, ahead of it. */
static void redriven_messages_stand_before_the_tail(void **state)
{
    (void)state;
    make();
    struct queue_config c = queue(Q)->config;
    c.max_attempts = 1;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    put_all(total, at_once, TTL_DEFAULT);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(claim(Q, 1), 1);
        struct shown s = d.shown[0];
        assert_int_equal(nack(Q, &s, 0, "no", NULL), STATUS_OK);
    }
    assert_int_equal(view(Q)->dead, 60);
    restart();
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 30, -1), 30);
    restart();
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 100, -1), 30);
    assert_int_equal(view(Q)->ready, total);
    drain(1);
}

static void returned_messages_stand_before_the_tail(void **state)
{
    (void)state;
    make();
    put_all(total, at_once, TTL_DEFAULT);
    for (int round = 0; round < 2; round++) {
        static struct shown held[100];
        assert_int_equal(claim(Q, 100), 100);
        memcpy(held, d.shown, sizeof(held));
        for (int i = 99; i >= 0; i -= 7)
            assert_int_equal(release(Q, &held[i]), STATUS_OK);
        for (int i = 0; i < 100; i++) {
            if ((99 - i) % 7 != 0)
                assert_int_equal(nack(Q, &held[i], 0, "x", NULL), STATUS_OK);
        }
        if (round == 0)
            restart();
    }
    drain(2);
}

static uint64_t claimed_seqs[300];
static uint32_t claimed;

static void note_claim(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                       struct instant now)
{
    (void)op, (void)q, (void)now;
    assert_true(claimed < 300);
    claimed_seqs[claimed++] = message_seq(m);
}

/* Each op is a group of its own and none is reported before the last was submitted: what was put is
 * on its way to the files when it is cancelled, and the cancel is when the claims come. */
static void a_cancelled_message_stays_gone_while_groups_are_under_way(void **state)
{
    (void)state;
    enum { COUNT = 200, CANCELLED = 150, CLAIMS = 3 };
    make();
    struct put_item items[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        items[i].draft = (struct draft){.body = strdup("x"),
                                        .payload_len = 1,
                                        .ready_ms = READY_NOW,
                                        .ttl_ms = TTL_DEFAULT,
                                        .priority = {.kind = PRIORITY_NUMBER}};
    uint8_t slot = (uint8_t)slot_of(Q, 0);
    struct message_id id = {queue(Q)->id, slot, d.rig.now.wall_ms, queue(Q)->next_seq + CANCELLED};
    struct plan plan = plan_from(Q, 0, CLAIM_MAX);
    struct engine_op ops[2 + CLAIMS] = {
        {.verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = items, .count = COUNT}},
        {.verb = ENGINE_CANCEL, .queue = queue(Q), .one = {.id = id}},
    };
    struct engine_op *group[2 + CLAIMS] = {&ops[0], &ops[1]};
    for (int i = 2; i < 2 + CLAIMS; i++) {
        ops[i] = (struct engine_op){.verb = ENGINE_CLAIM, .queue = queue(Q), .visit = note_claim};
        ops[i].claim.plan = &plan;
        ops[i].claim.lease_ms = -1;
        group[i] = &ops[i];
    }
    claimed = 0;
    d.rig.overlap = true;
    rig_run(&d.rig, group, 2 + CLAIMS);
    d.rig.overlap = false;
    assert_int_equal(ops[1].status, STATUS_OK);
    assert_int_equal(claimed, COUNT - 1);
    for (uint32_t i = 0; i < claimed; i++)
        assert_int_not_equal(claimed_seqs[i], id.seq);
    assert_int_equal(view(Q)->ready, 0);
    assert_int_equal(view(Q)->leased, COUNT - 1);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_deep_queue_comes_out_in_order),
        TEST(scattered_times_come_out_in_order),
        TEST(late_arrivals_find_their_place_in_a_tail),
        TEST(what_is_not_in_memory_can_be_found),
        TEST(what_is_not_in_memory_can_be_cancelled),
        TEST(messages_moved_between_tails_come_out_in_order),
        TEST(a_backlog_can_be_moved_as_a_whole),
        TEST(places_in_a_deep_queue_are_counted),
        TEST(a_purge_reaches_into_the_tail),
        TEST(a_time_to_live_reaches_into_the_tail),
        TEST(a_list_shows_the_tail_once),
        TEST(redriven_messages_stand_before_the_tail),
        TEST(returned_messages_stand_before_the_tail),
        TEST(a_cancelled_message_stays_gone_while_groups_are_under_way),
    };
    return driver_main(tests);
}
