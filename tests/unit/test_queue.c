/* A queue by itself, as an engine that writes down what happens meets it: what verbs leave as
 * reports, and what they answer when a message is elsewhere. */
#include "base/mem.h"
#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct queue q;
static struct queue_config config;
static struct queue_view view;
static uint64_t next_seq, memory;
static const struct instant now = {.wall_ms = 1750000000000, .mono_ms = 1000};

static void no_random(void *out, size_t len)
{
    memset(out, 7, len);
}

static void start(uint32_t window)
{
    assert_true(config_profile("levels", &config));
    assert_true(levels_adopt_slots(NULL, NULL, &config, NULL));
    memset(&view, 0, sizeof(view));
    next_seq = 1;
    memory = 0;
    queue_init(&q, 1, &config, &view, &next_seq, no_random);
    q.memory_total = &memory;
    q.reports = true;
    q.room = (struct queue_room){window, 0};
}

static void end(void)
{
    queue_check(&q);
    queue_fini(&q);
}

static struct put_item put(const char *text, const char *key, const struct dedup_hit *elsewhere)
{
    size_t len = strlen(text), key_len = strlen(key);
    struct put_item item = {.draft = {.payload_len = (uint32_t)len,
                                      .dedup_len = (uint16_t)key_len,
                                      .ready_ms = READY_NOW,
                                      .ttl_ms = TTL_DEFAULT}};
    item.draft.body = mem_alloc(len + key_len + 1);
    memcpy(item.draft.body, text, len);
    memcpy(item.draft.body + len, key, key_len);
    queue_put(&q, &item, elsewhere, now);
    assert_int_equal(item.status, STATUS_OK);
    return item;
}

/* The one report that there is. */
static struct queue_report only(enum report_kind kind)
{
    assert_int_equal(q.report_count, 1);
    assert_int_equal(q.report[0].kind, kind);
    struct queue_report report = q.report[0];
    queue_reported(&q);
    return report;
}

static struct message *lease_head(void)
{
    struct message *m;
    assert_int_equal(queue_head(&q, config.levels[config.default_rank].slot, now, &m), HEAD_HERE);
    queue_lease(&q, m, 1000, now);
    return m;
}

static void a_life_is_three_reports(void **state)
{
    (void)state;
    start(0);
    put("a", "", NULL);
    struct message *m = only(REPORT_STORED).message;
    assert_ptr_equal(lease_head(), m);
    struct queue_report changed = only(REPORT_CHANGED);
    assert_ptr_equal(changed.message, m);
    assert_int_equal(changed.from, MESSAGE_READY);
    assert_true(changed.first);
    struct settle_item ack = {.id = message_identity(m, q.id)};
    memcpy(ack.receipt, m->delivery->receipt, RECEIPT_BYTES);
    queue_ack(&q, &ack, now);
    struct queue_report ended = only(REPORT_ENDED);
    assert_ptr_equal(ended.message, m); /* still there, and the engine's to free */
    assert_int_equal(ended.from, MESSAGE_LEASED);
    assert_int_equal(m->state, MESSAGE_DONE);
    message_free(m);
    end();
}

static void a_refusal_leaves_no_report(void **state)
{
    (void)state;
    start(0);
    struct settle_item ack = {.id = {.queue = 1, .seq = 5}};
    queue_ack(&q, &ack, now);
    assert_int_equal(ack.status, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(q.report_count, 0);
    end();
}

static void what_does_not_fit_joins_the_tail(void **state)
{
    (void)state;
    start(1);
    uint8_t slot = config.levels[config.default_rank].slot;
    put("a", "", NULL);
    struct message *first = only(REPORT_STORED).message;
    put("b", "", NULL);
    struct message *second = only(REPORT_JOINED).message;
    assert_int_equal(view.ready, 2);
    assert_ptr_equal(lease_head(), first);
    only(REPORT_CHANGED);
    struct message *m;
    assert_int_equal(queue_head(&q, slot, now, &m), HEAD_ELSEWHERE);
    assert_null(m);
    /* The engine brings it, and asks again. */
    queue_tail_take(&q, second);
    second->state = MESSAGE_SCHEDULED;
    queue_restore(&q, second, now.wall_ms);
    assert_int_equal(queue_head(&q, slot, now, &m), HEAD_HERE);
    assert_ptr_equal(m, second);
    assert_int_equal(view.ready, 1);
    end();
}

static void a_tail_lags_until_it_was_counted(void **state)
{
    (void)state;
    start(1);
    uint8_t slot = config.levels[config.default_rank].slot;
    const struct tail tail = {.ready = 1,
                              .scheduled = 5,
                              .clock_ms = now.wall_ms - 10,
                              .next_ms = now.wall_ms - 5,
                              .bound = {INT64_MIN, 0}};
    queue_tail_load(&q, slot, &tail);
    view.totals.enqueued = 6;
    put("a", "", NULL);
    message_free(only(REPORT_JOINED).message);
    assert_true(q.lanes[slot].tail.lags);
    assert_int_equal(view.scheduled, 6); /* nobody has counted yet */
    queue_tail_counted(&q, slot, 3, now.wall_ms - 1, now.wall_ms);
    assert_true(q.lanes[slot].tail.lags);
    queue_tail_counted(&q, slot, 1, now.wall_ms, now.wall_ms + 9);
    assert_false(q.lanes[slot].tail.lags);
    assert_int_equal(view.ready, 5);
    assert_int_equal(view.scheduled, 2);
    int64_t wall, mono;
    queue_due(&q, &wall, &mono);
    assert_int_equal(wall, now.wall_ms + 9);
    end();
}

static void a_key_that_is_elsewhere_counts(void **state)
{
    (void)state;
    start(0);
    const struct dedup_hit hit = {
        .id = {.queue = 1, .seq = 40}, .enqueued_ms = 3, .until_ms = now.wall_ms + 1};
    struct put_item known = put("a", "key", &hit);
    assert_true(known.deduplicated);
    assert_int_equal(known.id.seq, 40);
    assert_int_equal(q.report_count, 0);
    draft_fini(&known.draft);
    put("a", "key", NULL);
    assert_int_equal(q.report_count, 2); /* the key before the message */
    assert_int_equal(q.report[0].kind, REPORT_KEY);
    assert_int_equal(q.report[1].kind, REPORT_STORED);
    assert_memory_equal(q.report[0].key->key, "key", 3);
    queue_reported(&q);
    assert_true(queue_key_here(&q, "key", 3));
    end();
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_life_is_three_reports),          TEST(a_refusal_leaves_no_report),
        TEST(what_does_not_fit_joins_the_tail), TEST(a_tail_lags_until_it_was_counted),
        TEST(a_key_that_is_elsewhere_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
