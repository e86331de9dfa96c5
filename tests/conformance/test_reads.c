/* What is read of a tail, counted in keys that RocksDB looked at on this thread, which here is the
 * event loop's: not more than once around for a job that is done in many portions, and nothing at
 * all where a thread reads for the loop. */
#include "conformance/driver.h"

#include <rocksdb/c.h>

#define Q     "reads"
#define COUNT 6000U
#define STEP  50U /* of a job that takes many */

static bool in_files(void)
{
    return d.rig.memory_limit > 0;
}

static bool asked(void)
{
    return d.rig.options.asks;
}

static void make(enum expired_fate expired, int64_t ttl_ms)
{
    struct queue_config c = rig_config(1);
    c.visibility_ms = LEASE_SECONDS_MAX * 1000LL;
    c.ttl_ms = ttl_ms;
    c.expired = expired;
    make_queue(Q, &c);
    d.checks = false;
    put_many(Q, COUNT, 0);
}

/* Counting */

static rocksdb_perfcontext_t *meter;

static void meter_start(void)
{
    rocksdb_set_perf_level(2); /* counts only */
    meter = rocksdb_perfcontext_create();
    rocksdb_perfcontext_reset(meter);
}

static uint64_t meter_stop(int metric)
{
    uint64_t value = rocksdb_perfcontext_metric(meter, metric);
    rocksdb_perfcontext_destroy(meter);
    rocksdb_set_perf_level(1);
    return value;
}

/* After a restart nobody knows where the first one is. */
static void assert_skipped_once(void)
{
    uint64_t keys = meter_stop(rocksdb_internal_key_skipped_count);
    if (!d.restarts_always)
        assert_in_range(keys, 0, 4 * COUNT);
}

static uint64_t compared(void)
{
    return meter_stop(rocksdb_user_key_comparison_count);
}

/* Jobs in many portions */

static void a_tail_that_expires_is_stepped_over_once(void **state)
{
    (void)state;
    make(EXPIRED_DROP, 1000);
    pass_unswept(2000);
    meter_start();
    rig_sweep(&d.rig, STEP);
    assert_skipped_once();
    assert_int_equal(view(Q)->totals.expired, COUNT);
}

static void what_joins_before_the_last_place_expires_too(void **state)
{
    (void)state;
    make(EXPIRED_DROP, 100000);
    pass_unswept(200000);
    rig_sweep(&d.rig, STEP);
    assert_int_equal(view(Q)->totals.expired, COUNT);
    put_many(Q, COUNT, 0); /* these end in 100 s … */
    struct queue_config c = queue(Q)->config;
    c.ttl_ms = 1000;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    put_many(Q, COUNT, 0); /* … and these before them */
    sleep_ms(2000);
    assert_int_equal(view(Q)->totals.expired, 2 * COUNT);
    sleep_ms(100000);
    assert_int_equal(view(Q)->totals.expired, 3 * COUNT);
    assert_int_equal(view(Q)->ready, 0);
}

static void dead_letters_are_stepped_over_once(void **state)
{
    (void)state;
    make(EXPIRED_DEAD, 1000);
    sleep_ms(2000);
    assert_int_equal(view(Q)->dead, COUNT);
    meter_start();
    uint32_t half = 0, count = 1;
    while (half < COUNT / 2)
        half += dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, STEP, -1);
    while (count > 0)
        count = dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, STEP, -1);
    assert_skipped_once();
    assert_int_equal(view(Q)->dead, 0);
    assert_int_equal(view(Q)->ready, COUNT - half);
}

static void a_letter_that_dies_before_the_last_place_is_found(void **state)
{
    (void)state;
    make(EXPIRED_DEAD, 0);
    struct queue_config c = queue(Q)->config;
    c.max_attempts = 1;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    assert_int_equal(claim(Q, 20), 20);
    static struct shown first[20];
    for (int i = 0; i < 20; i++)
        first[i] = d.shown[i];
    for (int i = 10; i < 20; i++)
        nack(Q, &first[i], 0, "late", NULL);
    assert_int_equal(dead_list(Q, 0, 100), 10);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 5, -1), 5);
    assert_int_equal(dead_list(Q, 0, 100), 5);
    for (int i = 0; i < 10; i++)
        nack(Q, &first[i], 0, "early", NULL);
    assert_int_equal(dead_list(Q, 0, 100), 15);
    assert_int_equal(d.shown[0].id.seq, first[0].id.seq);
}

/* On the loop's own thread */

static void ack_all(uint32_t count)
{
    struct settle_item items[CLAIM_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        items[i].id = d.shown[i].id;
        memcpy(items[i].receipt, d.shown[i].receipt, RECEIPT_BYTES);
    }
    struct engine_op op = {.verb = ENGINE_ACK, .queue = queue(Q)};
    op.settle.items = items;
    op.settle.count = count;
    rig_run_one(&d.rig, &op);
}

static void a_drained_tail_is_not_read_by_the_loop(void **state)
{
    (void)state;
    make(EXPIRED_DROP, 0);
    meter_start();
    for (uint32_t left = COUNT, n; left > 0; left -= n) {
        n = claim(Q, CLAIM_MAX);
        assert_int_equal(n, left < CLAIM_MAX ? left : CLAIM_MAX);
        ack_all(n);
    }
    uint64_t keys = compared();
    if (asked())
        assert_int_equal(keys, 0);
    else if (in_files())
        assert_true(keys > COUNT);
    assert_int_equal(view(Q)->ready, 0);
}

static void a_tail_that_expires_is_not_read_by_the_loop(void **state)
{
    (void)state;
    make(EXPIRED_DROP, 1000);
    pass_unswept(2000);
    meter_start();
    rig_sweep(&d.rig, STEP);
    uint64_t keys = compared();
    if (asked())
        assert_int_equal(keys, 0);
    else if (in_files())
        assert_true(keys > COUNT);
    assert_int_equal(view(Q)->totals.expired, COUNT);
}

/* After a restart a message that was delivered is in memory without its body. */
static void what_comes_back_after_a_restart_is_not_read_by_the_loop(void **state)
{
    (void)state;
    make(EXPIRED_DROP, 0);
    for (uint32_t left = 1000; left > 0; left -= 100)
        assert_int_equal(claim(Q, 100), 100);
    restart();
    sleep_ms(LEASE_SECONDS_MAX * 1000LL + 1000);
    meter_start();
    assert_int_equal(claim(Q, 100), 100);
    uint64_t keys = compared();
    if (asked())
        assert_int_equal(keys, 0);
    assert_string_equal(d.shown[0].payload, "m0");
    assert_string_equal(d.shown[99].payload, "m99");
}

/* A thousand that are ready after one, two and three seconds each. */
static void put_later(void)
{
    static struct put_item items[3000];
    for (int i = 0; i < 3000; i++)
        items[i].draft =
            draft_of(Q, (struct spec){.payload = "later", .delay_ms = 1000 + i % 3 * 1000});
    struct engine_op op = {.verb = ENGINE_PUT, .queue = queue(Q)};
    op.put.items = items;
    op.put.count = 3000;
    rig_run_one(&d.rig, &op);
}

/* Delays in a tail: what they made ready is counted, by a put and by a sweep. */
static void what_is_due_in_a_tail_is_not_counted_by_the_loop(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make_queue(Q, &c);
    d.checks = false;
    put_many(Q, 100, 0);
    put_later();
    meter_start();
    pass_unswept(1000);
    put(Q, "behind", 0);
    uint64_t keys = compared();
    if (asked())
        assert_int_equal(keys, 0);
    meter_start();
    sleep_ms(1000);
    keys = compared();
    if (asked())
        assert_int_equal(keys, 0);
    assert_int_equal(view(Q)->ready, 2101);
    assert_int_equal(view(Q)->scheduled, 1000);
    sleep_ms(1000);
    assert_int_equal(view(Q)->ready, 3101);
    assert_int_equal(view(Q)->scheduled, 0);
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_tail_that_expires_is_stepped_over_once),
        TEST(what_joins_before_the_last_place_expires_too),
        TEST(dead_letters_are_stepped_over_once),
        TEST(a_letter_that_dies_before_the_last_place_is_found),
        TEST(a_drained_tail_is_not_read_by_the_loop),
        TEST(a_tail_that_expires_is_not_read_by_the_loop),
        TEST(what_is_due_in_a_tail_is_not_counted_by_the_loop),
        TEST(what_comes_back_after_a_restart_is_not_read_by_the_loop),
    };
    return driver_main_files(tests);
}
