/* The local engine's records: what is written comes back, and what the first format wrote is still
 * read. The bytes of format 1 are spelled out here, as they stand on somebody's disk. */
#include "base/mem.h"
#include "engine/local/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BOOT 42
static const struct record_clock now = {.boot = BOOT, .mono_ms = 5000000};

static struct buf out, old;

static int teardown(void **state)
{
    (void)state;
    buf_fini(&out);
    buf_fini(&old);
    out = old = (struct buf){0};
    return 0;
}

/* Bytes by hand */

static void be(uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--) {
        char byte = (char)(value >> (8 * i));
        buf_put(&old, &byte, 1);
    }
}

static void text(const char *s)
{
    be(strlen(s), 2);
    buf_put(&old, s, strlen(s));
}

static void number(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    be(bits, 8);
}

static void shape(void)
{
    be(PAYLOAD_JSON, 1);
    be(1750000000000, 8); /* enqueued */
    be(1750000060000, 8); /* expires */
    be(4, 4);             /* payload, metadata, dedup key */
    be(2, 2);
    be(3, 2);
}

static void state_1(enum message_state state)
{
    be(state, 1);
    be(5, 1); /* slot, born slot, cold, attempts */
    be(3, 1);
    be(1, 1);
    be(2, 2);
    be(1750000001000, 8); /* ready, born */
    be(1750000000500, 8);
    for (int i = 0; i < RECEIPT_BYTES; i++)
        be((uint64_t)i + 1, 1);
    be(BOOT, 8);
    be(5001000, 8); /* lease until, lease, died */
    be(30000, 8);
    be(1750000002000, 8);
    text("no luck");
    shape();
}

static void assert_state(const struct message *m, enum message_state state)
{
    assert_non_null(m);
    assert_int_equal(m->state, state);
    assert_int_equal(m->slot, 5);
    assert_int_equal(m->born_slot, 3);
    assert_int_equal(m->home, HOME_COLD);
    assert_int_equal(m->attempts, 2);
    assert_int_equal(m->ready_ms, 1750000001000);
    assert_int_equal(m->born_ms, 1750000000500);
    assert_int_equal(m->enqueued_ms, 1750000000000);
    assert_int_equal(m->expiry->node.key, 1750000060000);
    assert_int_equal(m->kind, PAYLOAD_JSON);
    assert_int_equal(m->payload_len, 4);
    assert_int_equal(m->metadata_len, 2);
    assert_int_equal(m->dedup_len, 3);
    assert_true(m->touched);
    const struct delivery *d = m->delivery;
    assert_int_equal(d->receipt[0], 1);
    assert_int_equal(d->receipt[15], 16);
    assert_int_equal(d->lease_until_ms, 5001000);
    assert_int_equal(d->lease_ms, 30000);
    assert_int_equal(d->died_ms, 1750000002000);
    assert_int_equal(d->reason_len, 7);
    assert_memory_equal(d->reason, "no luck", 7);
}

static struct escalation *escalation(const char *actor, const char *reason)
{
    size_t actor_len = strlen(actor), reason_len = strlen(reason);
    struct escalation *e = mem_alloc(sizeof(*e) + actor_len + reason_len);
    e->at_ms = 1750000003000;
    e->from_slot = 9;
    e->actor_len = (uint16_t)actor_len;
    e->reason_len = (uint16_t)reason_len;
    memcpy(e->text, actor, actor_len);
    memcpy(e->text + actor_len, reason, reason_len);
    return e;
}

/* No prefix of a record is one, nor is a record with something behind it. */
static void assert_only_whole(bool (*reads)(const char *data, size_t len), struct buf *bytes)
{
    assert_true(reads(bytes->data, bytes->len));
    for (size_t len = 0; len < bytes->len; len++) {
        char *exact = mem_dup(bytes->data, len);
        assert_false(reads(exact, len));
        free(exact);
    }
    buf_put(bytes, "", 1);
    assert_false(reads(bytes->data, bytes->len));
}

static bool reads_state(const char *data, size_t len)
{
    struct message *m = record_get_state(data, len, 7, now);
    message_free(m);
    return m != NULL;
}

static bool reads_whole(const char *data, size_t len)
{
    int64_t until_ms;
    struct message *m = record_get_whole(data, len, 7, &until_ms);
    message_free(m);
    return m != NULL;
}

static bool reads_queue(const char *data, size_t len)
{
    struct queue_config c;
    char name[QUEUE_NAME_MAX + 1];
    return record_get_queue(data, len, name, &c);
}

/* Messages */

static void a_message_of_format_1_is_read(void **state)
{
    (void)state;
    struct message_id id = {1, 3, -5, 99};
    be(1, 1);
    shape();
    buf_put(&old, "bodymmkey", 9);
    struct message *m = record_get_message(old.data, old.len, &id);
    assert_non_null(m);
    assert_int_equal(m->payload_len, 4);
    assert_memory_equal(m->body, "bodymmkey", 9);
    assert_int_equal(m->expiry->node.key, 1750000060000);
    assert_int_equal(m->born_ms, -5);
    message_free(m);
}

static void a_state_of_format_1_is_read_and_has_no_escalation(void **state)
{
    (void)state;
    be(1, 1);
    state_1(MESSAGE_LEASED);
    struct message *m = record_get_state(old.data, old.len, 7, now);
    assert_state(m, MESSAGE_LEASED);
    assert_null(m->delivery->escalation);
    message_free(m);
    assert_only_whole(reads_state, &old);
}

static void a_dead_letter_of_format_1_is_read(void **state)
{
    (void)state;
    int64_t until_ms, died_ms;
    be(1, 1);
    be(1750000099000, 8);
    state_1(MESSAGE_DEAD);
    buf_put(&old, "bodymmkey", 9);
    struct message *m = record_get_whole(old.data, old.len, 7, &until_ms);
    assert_state(m, MESSAGE_DEAD);
    assert_int_equal(until_ms, 1750000099000);
    assert_memory_equal(m->body, "bodymmkey", 9);
    assert_true(record_whole_died(old.data, old.len, &died_ms));
    assert_int_equal(died_ms, m->delivery->died_ms);
    message_free(m);
    assert_only_whole(reads_whole, &old);
}

static void an_escalation_comes_back_with_the_state(void **state)
{
    (void)state;
    static const char *const texts[][2] = {{"ann", "a vip"}, {"", "why"}, {"bob", ""}, {"", ""}};
    for (int i = 0; i < 4; i++) {
        teardown(NULL);
        be(1, 1);
        state_1(MESSAGE_READY);
        struct message *m = record_get_state(old.data, old.len, 7, now);
        m->delivery->escalation = escalation(texts[i][0], texts[i][1]);
        record_put_state(&out, m, BOOT);
        message_free(m);
        m = record_get_state(out.data, out.len, 7, now);
        assert_state(m, MESSAGE_READY);
        const struct escalation *e = m->delivery->escalation;
        assert_non_null(e);
        assert_int_equal(e->at_ms, 1750000003000);
        assert_int_equal(e->from_slot, 9);
        assert_int_equal(e->actor_len, strlen(texts[i][0]));
        assert_int_equal(e->reason_len, strlen(texts[i][1]));
        assert_memory_equal(e->text, texts[i][0], e->actor_len);
        assert_memory_equal(e->text + e->actor_len, texts[i][1], e->reason_len);
        message_free(m);
        assert_only_whole(reads_state, &out);
    }
}

static void an_escalation_survives_death(void **state)
{
    (void)state;
    int64_t until_ms;
    be(1, 1);
    be(5, 8);
    state_1(MESSAGE_DEAD);
    buf_put(&old, "bodymmkey", 9);
    struct message *m = record_get_whole(old.data, old.len, 7, &until_ms);
    m->delivery->escalation = escalation("ann", "a vip");
    record_put_whole(&out, m, BOOT, 6);
    message_free(m);
    m = record_get_whole(out.data, out.len, 7, &until_ms);
    assert_state(m, MESSAGE_DEAD);
    assert_int_equal(until_ms, 6);
    assert_memory_equal(m->delivery->escalation->text, "anna vip", 8);
    message_free(m);
    assert_only_whole(reads_whole, &out);
}

static void an_escalation_from_nowhere_is_damage(void **state)
{
    (void)state;
    be(1, 1);
    state_1(MESSAGE_READY);
    struct message *m = record_get_state(old.data, old.len, 7, now);
    m->delivery->escalation = escalation("ann", "a vip");
    m->delivery->escalation->from_slot = LEVEL_COUNT_MAX;
    record_put_state(&out, m, BOOT);
    message_free(m);
    assert_false(reads_state(out.data, out.len));
}

static void a_format_from_the_future_is_refused(void **state)
{
    (void)state;
    be(3, 1);
    state_1(MESSAGE_READY);
    assert_false(reads_state(old.data, old.len));
    old.data[0] = 0;
    assert_false(reads_state(old.data, old.len));
}

/* Queues */

static void queue_1(bool paused)
{
    be(1, 1);
    text("orders");
    text("custom");
    be(2, 1); /* levels, default */
    be(1, 1);
    text("HIGH");
    be(1, 1);
    be((uint64_t)-7, 8);
    number(2.5);
    be(4, 1);
    text("LOW");
    be(0, 1);
    be(0, 8);
    number(0.5);
    be(0, 1);
    text("strict");
    be(paused, 1);
    be(30000, 8); /* visibility, attempts */
    be(3, 4);
    be(BACKOFF_FIXED, 1);
    be(1000, 8);
    be(2000, 8);
    number(0.25);
    be(60000, 8); /* time to live */
    be(EXPIRED_DEAD, 1);
    be(300000, 8);
    be(DEDUP_LIVE, 1);
    be(10, 8); /* depth, bytes, history */
    be(20, 8);
    be(30, 8);
    be(100, 8); /* alerts */
    be(200, 8);
    text("http://127.0.0.1/hook");
}

static void a_queue_of_format_1_is_read_with_nothing_that_came_later(void **state)
{
    (void)state;
    struct queue_config c;
    char name[QUEUE_NAME_MAX + 1];
    queue_1(true);
    assert_true(record_get_queue(old.data, old.len, name, &c));
    assert_string_equal(name, "orders");
    assert_int_equal(c.level_count, 2);
    assert_int_equal(c.default_rank, 1);
    assert_string_equal(c.levels[0].name, "HIGH");
    assert_int_equal(c.levels[0].number, -7);
    assert_true(c.levels[0].weight == 2.5);
    assert_int_equal(c.levels[0].slot, 4);
    assert_false(c.levels[1].has_number);
    assert_true(c.levels[1].weight == 0.5);
    assert_true(c.paused);
    assert_int_equal(c.pause_count, 0);
    assert_int_equal(c.max_attempts, 3);
    assert_int_equal(c.history_ms, 30);
    assert_int_equal(c.max_in_flight, 0);
    assert_string_equal(c.alert_webhook, "http://127.0.0.1/hook");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c.levels[i].age_ms, 0);
        assert_int_equal(c.levels[i].max_wait_ms, 0);
        assert_int_equal(c.levels[i].max_in_flight, 0);
    }
    assert_only_whole(reads_queue, &old);
}

static struct queue_config busy_config(void)
{
    struct queue_config c;
    assert_true(config_profile("tiers", &c));
    for (int i = 0; i < c.level_count; i++) {
        c.levels[i].slot = (uint8_t)(15 - i);
        c.levels[i].age_ms = 1000 * (i + 1);
        c.levels[i].max_wait_ms = 7000 * (i + 1);
        c.levels[i].max_in_flight = (uint32_t)(i + 3);
    }
    c.policy = POLICY_WEIGHTED;
    c.max_in_flight = 120000;
    c.paused = true;
    c.pause_count = 3;
    c.pauses[0] = (struct pause){-1000, 5000};
    c.pauses[1] = (struct pause){5000, 5000};
    c.pauses[2] = (struct pause){9000, PAUSE_OPEN};
    return c;
}

static void a_queue_comes_back_as_it_was(void **state)
{
    (void)state;
    struct queue_config c = busy_config(), back;
    char name[QUEUE_NAME_MAX + 1];
    record_put_queue(&out, "q", &c);
    assert_true(record_get_queue(out.data, out.len, name, &back));
    assert_int_equal(back.policy, POLICY_WEIGHTED);
    assert_int_equal(back.max_in_flight, 120000);
    for (int i = 0; i < c.level_count; i++) {
        assert_string_equal(back.levels[i].name, c.levels[i].name);
        assert_true(back.levels[i].weight == c.levels[i].weight);
        assert_int_equal(back.levels[i].age_ms, c.levels[i].age_ms);
        assert_int_equal(back.levels[i].max_wait_ms, c.levels[i].max_wait_ms);
        assert_int_equal(back.levels[i].max_in_flight, c.levels[i].max_in_flight);
    }
    assert_int_equal(back.pause_count, 3);
    assert_memory_equal(back.pauses, c.pauses, 3 * sizeof(c.pauses[0]));
    assert_int_equal(back.history_since_ms, 0);
    assert_only_whole(reads_queue, &out);
}

/* The field came later: a record without it is one of a queue that has forgotten nothing. */
static void a_queue_comes_back_with_what_it_has_forgotten(void **state)
{
    (void)state;
    struct queue_config c = busy_config(), back;
    char name[QUEUE_NAME_MAX + 1];
    c.history_since_ms = 1750000000000;
    record_put_queue(&out, "q", &c);
    assert_true(record_get_queue(out.data, out.len, name, &back));
    assert_int_equal(back.history_since_ms, 1750000000000);
    assert_false(reads_queue(out.data, out.len - 1));
    assert_true(reads_queue(out.data, out.len - 8));
    c.history_since_ms = TIME_MS_MAX + 1;
    buf_clear(&out);
    record_put_queue(&out, "q", &c);
    assert_false(reads_queue(out.data, out.len));
}

static void assert_refused(const struct queue_config *c)
{
    buf_clear(&out);
    record_put_queue(&out, "q", c);
    assert_false(reads_queue(out.data, out.len));
}

/* Such bytes must not reach the arithmetic of the policies. */
static void a_queue_that_could_not_have_been_written_is_damage(void **state)
{
    (void)state;
    static const double weights[] = {0, -1, 1e300, -1e300};
    struct queue_config c = busy_config();
    for (int i = 0; i < 4; i++) {
        c.levels[2].weight = weights[i];
        assert_refused(&c);
    }
    c.levels[2].weight = strtod("nan", NULL);
    assert_refused(&c);
    c = busy_config();
    c.levels[1].age_ms = -1;
    assert_refused(&c);
    c = busy_config();
    c.levels[1].max_wait_ms = -1;
    assert_refused(&c);
    static const struct pause bad[] = {
        {INT64_MIN, 0}, {4999, 6000}, {8000, 7000}, {6000, PAUSE_OPEN}, {8000, 9001}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        c = busy_config();
        c.pauses[1] = bad[i];
        assert_refused(&c);
    }
}

/* Counters */

static void counters_of_format_1_are_read_and_the_new_totals_start_at_nothing(void **state)
{
    (void)state;
    struct record_counters c;
    be(1, 1);
    be(1000, 8); /* next seq, cold bytes */
    be(77, 8);
    be(12, 1);
    for (uint64_t i = 1; i <= 12; i++)
        be(i, 8);
    be(3, 1); /* a lane */
    for (uint64_t i = 1; i <= 6; i++)
        be(100 + i, 8);
    assert_true(record_get_counters(old.data, old.len, &c));
    assert_int_equal(c.next_seq, 1000);
    assert_int_equal(c.cold_bytes, 77);
    assert_int_equal(c.totals.enqueued, 1);
    assert_int_equal(c.totals.redriven, 12);
    assert_int_equal(c.totals.aged, 0);
    assert_int_equal(c.totals.late, 0);
    assert_int_equal(c.totals.escalated, 0);
    assert_int_equal(c.lanes[3].cold_ready, 101);
    assert_int_equal(c.lanes[3].low_seq, 106);
}

static void counters_come_back_as_they_were(void **state)
{
    (void)state;
    struct record_counters c = {.next_seq = 5}, back;
    c.totals.aged = 11;
    c.totals.late = 12;
    c.totals.escalated = 13;
    c.lanes[15] = (struct record_lane){1, 2, 3, -4, -5, 6};
    peaks_see(&c.peaks, 1000, 1);
    peaks_see(&c.peaks, -7, 4);
    record_put_counters(&out, &c);
    assert_true(record_get_counters(out.data, out.len, &back));
    assert_memory_equal(&back.peaks, &c.peaks, sizeof(c.peaks));
    assert_memory_equal(&back.totals, &c.totals, sizeof(c.totals));
    assert_memory_equal(&back.lanes, &c.lanes, sizeof(c.lanes));
}

static void a_dedup_key_of_format_1_is_read(void **state)
{
    (void)state;
    struct dedup_hit hit;
    be(1, 1);
    be(1750000060000, 8);
    be(1750000000000, 8);
    be(3, 1);
    be((1ULL << 47) - 5, 6);
    be(99, 6);
    assert_true(record_get_dedup(old.data, old.len, 8, &hit));
    assert_int_equal(hit.until_ms, 1750000060000);
    assert_int_equal(hit.id.queue, 8);
    assert_int_equal(hit.id.slot, 3);
    assert_int_equal(hit.id.ready_ms, -5);
    assert_int_equal(hit.id.seq, 99);
}

/* Schedules */

static struct schedule nightly(char *body)
{
    return (struct schedule){
        .name = "nightly",
        .rule = {.cron = "0 3 * * MON-FRI", .time_zone = "Europe/Berlin"},
        .missed = MISSED_ALL,
        .paused = true,
        .grace_ms = 1500,
        .draft = {.body = body,
                  .payload_len = 5,
                  .metadata_len = 7,
                  .dedup_len = 3,
                  .kind = PAYLOAD_BYTES,
                  .priority = {.kind = PRIORITY_NAME, .name = "high"},
                  .ready_ms = READY_NOW,
                  .delay_ms = 1200,
                  .ttl_ms = TTL_DEFAULT},
        .timing = {.next_ms = SCHEDULE_NEVER, .last_ms = -7, .count = 9, .made_up = 4},
    };
}

static bool reads_schedule(const char *data, size_t len)
{
    struct schedule s;
    bool reads = record_get_schedule(data, len, &s);
    if (reads)
        schedule_fini(&s);
    return reads;
}

static void a_schedule_comes_back_as_it_was(void **state)
{
    (void)state;
    char body[] = "hello{\"a\":1}key";
    struct schedule s = nightly(body), back;
    struct buf bytes = {0};
    record_put_schedule(&bytes, &s);
    assert_true(record_get_schedule(bytes.data, bytes.len, &back));
    assert_string_equal(back.name, s.name);
    assert_string_equal(back.rule.cron, s.rule.cron);
    assert_string_equal(back.rule.time_zone, s.rule.time_zone);
    assert_int_equal(back.timing.next_ms, s.timing.next_ms);
    assert_int_equal(back.timing.last_ms, s.timing.last_ms);
    assert_int_equal(back.timing.count, s.timing.count);
    assert_int_equal(back.timing.made_up, s.timing.made_up);
    assert_memory_equal(back.draft.body, body, 15);
    assert_int_equal(back.draft.ready_ms, READY_NOW);
    struct buf again = {0};
    record_put_schedule(&again, &back);
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.data, bytes.data, bytes.len);
    schedule_fini(&back);
    assert_only_whole(reads_schedule, &bytes);
    buf_fini(&again);
    buf_fini(&bytes);
}

static void a_schedule_that_could_not_have_been_written_is_damage(void **state)
{
    (void)state;
    char body[] = "hello{\"a\":1}key";
    for (int i = 0; i < 7; i++) {
        struct schedule s = nightly(body);
        struct buf bytes = {0};
        if (i == 0)
            snprintf(s.rule.cron, sizeof(s.rule.cron), "0 0 31 2 *");
        else if (i == 1)
            s.rule.every_s = 5; /* and a cron line */
        else if (i == 2)
            s.missed = MISSED_COUNT;
        else if (i == 3)
            s.name[0] = '\0';
        else if (i == 4)
            s.draft.kind = PAYLOAD_BYTES + 1;
        else if (i == 5)
            s.timing.next_ms = SCHEDULE_NEVER + 1;
        else
            s.draft.delay_ms = -1;
        record_put_schedule(&bytes, &s);
        assert_false(reads_schedule(bytes.data, bytes.len));
        buf_fini(&bytes);
    }
}

static bool reads_place(const char *data, size_t len)
{
    struct queue_place *place = record_get_place(data, len);
    free(place);
    return place != NULL;
}

static void a_place_comes_back_as_it_was(void **state)
{
    (void)state;
    static const char map[] = "a=1 b=2";
    for (int i = 0; i < 4; i++) {
        uint64_t epoch = i < 2 ? 1 : INT64_MAX;
        uint32_t len = i % 2 ? sizeof(map) - 1 : 0;
        struct queue_place *place = queue_place_new(epoch, i > 1, map, len);
        struct buf bytes = {0};
        record_put_place(&bytes, place);
        struct queue_place *back = record_get_place(bytes.data, bytes.len);
        assert_non_null(back);
        assert_int_equal(back->epoch, epoch);
        assert_int_equal(back->closed, i > 1);
        assert_int_equal(back->map_len, len);
        assert_memory_equal(back->map, map, len);
        assert_only_whole(reads_place, &bytes);
        free(back);
        free(place);
        buf_fini(&bytes);
    }
}

static void a_place_that_could_not_have_been_written_is_damage(void **state)
{
    (void)state;
    static const char map[PLACE_MAP_MAX + 1];
    static const size_t epoch_at = 1 + 7, closed_at = 1 + 8, len_at = 1 + 8 + 1;
    struct queue_place *place = queue_place_new(1, false, map, PLACE_MAP_MAX);
    struct buf bytes = {0};
    record_put_place(&bytes, place);
    assert_true(reads_place(bytes.data, bytes.len));
    bytes.data[epoch_at] = 0;
    assert_false(reads_place(bytes.data, bytes.len));
    bytes.data[epoch_at] = 1;
    bytes.data[closed_at] = 2;
    assert_false(reads_place(bytes.data, bytes.len));
    bytes.data[closed_at] = 1;
    assert_true(reads_place(bytes.data, bytes.len));
    bytes.data[len_at + 1]++; /* one byte more, which is there: longer than any map */
    buf_putc(&bytes, 'x');
    assert_false(reads_place(bytes.data, bytes.len));
    free(place);
    buf_fini(&bytes);
}

#define TEST(name) cmocka_unit_test_teardown(name, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_of_format_1_is_read),
        TEST(a_state_of_format_1_is_read_and_has_no_escalation),
        TEST(a_dead_letter_of_format_1_is_read),
        TEST(an_escalation_comes_back_with_the_state),
        TEST(an_escalation_survives_death),
        TEST(an_escalation_from_nowhere_is_damage),
        TEST(a_format_from_the_future_is_refused),
        TEST(a_queue_of_format_1_is_read_with_nothing_that_came_later),
        TEST(a_queue_comes_back_as_it_was),
        TEST(a_queue_comes_back_with_what_it_has_forgotten),
        TEST(a_queue_that_could_not_have_been_written_is_damage),
        TEST(counters_of_format_1_are_read_and_the_new_totals_start_at_nothing),
        TEST(counters_come_back_as_they_were),
        TEST(a_dedup_key_of_format_1_is_read),
        TEST(a_schedule_comes_back_as_it_was),
        TEST(a_schedule_that_could_not_have_been_written_is_damage),
        TEST(a_place_comes_back_as_it_was),
        TEST(a_place_that_could_not_have_been_written_is_damage),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
