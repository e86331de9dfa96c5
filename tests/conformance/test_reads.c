/* What is read of a tail, counted in keys that RocksDB looked at on this thread, which here is the
 * event loop's: not more than once around for a job that is done in many portions, and nothing at
 * all where a thread reads for the loop. */
#include "conformance/driver.h"

#include <rocksdb/c.h>
#include <stdio.h>

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

static bool one_store(void)
{
    return engine_has(d.rig.engine, ENGINE_LIVE_VIEW);
}

/* What time ends */

#define KEYED 100

static uint64_t loop_reads(void)
{
    return rig_counter(&d.rig, "loop_reads_total");
}

static void put_keyed(const char *prefix)
{
    for (int i = 0; i < KEYED; i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        put_spec(Q, (struct spec){.payload = "keyed", .dedup = key});
    }
}

/* Messages of a queue whose keys are in files, and not in memory. */
static void make_keyed(enum expired_fate expired, int64_t ttl_ms)
{
    struct queue_config c = rig_config(1);
    c.ttl_ms = ttl_ms;
    c.expired = expired;
    c.dedup_scope = DEDUP_LIVE;
    c.max_attempts = 1;
    make_queue(Q, &c);
    put_keyed("key ");
    assert_int_equal(claim(Q, KEYED / 2), KEYED / 2);
    restart();
}

static void assert_keys_are_free(void)
{
    put_keyed("key ");
    assert_int_equal(view(Q)->ready, KEYED);
}

static void what_expires_with_its_key_is_not_read_by_the_loop(void **state)
{
    (void)state;
    make_keyed(EXPIRED_DROP, 1000);
    sleep_ms(2000);
    assert_int_equal(view(Q)->totals.expired, KEYED / 2);
    sleep_ms(60000); /* these were the last attempts */
    assert_int_equal(view(Q)->dead, KEYED / 2);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, KEYED, -1), KEYED / 2);
    assert_keys_are_free();
    assert_int_equal(loop_reads(), 0);
}

static void what_expires_under_a_lease_is_not_read_by_the_loop(void **state)
{
    (void)state;
    make_keyed(EXPIRED_DROP, 1000);
    struct queue_config c = queue(Q)->config;
    c.max_attempts = 5;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    sleep_ms(60000);
    assert_int_equal(view(Q)->totals.expired, KEYED);
    assert_keys_are_free();
    assert_int_equal(loop_reads(), 0);
}

static void what_a_claim_has_to_pass_over_is_not_read_by_the_loop(void **state)
{
    (void)state;
    if (!one_store())
        return; /* a claim on one of several stores may find nothing before a sweep */
    make_keyed(EXPIRED_DROP, 1000);
    pass_unswept(2000);
    put_spec(Q, (struct spec){.payload = "young"});
    assert_int_equal(claim(Q, 1), 1);
    assert_string_equal(d.shown[0].payload, "young");
    assert_int_equal(loop_reads(), 0);
}

/* Portions, in bytes */

#define LARGE       40
#define LARGE_BYTES (200 * 1000)
#define PORTION_MAX 6 /* of these have a megabyte */

static void make_large(void)
{
    struct queue_config c = rig_config(1);
    static char payload[LARGE_BYTES + 1];
    memset(payload, 'x', LARGE_BYTES);
    c.max_attempts = 1;
    make_queue(Q, &c);
    for (int i = 0; i < LARGE; i++)
        put_spec(Q, (struct spec){.payload = payload});
    for (int left = LARGE; left > 0;)
        left -= (int)claim(Q, 20);
}

/* How many died of one sweep. */
static uint64_t sweep_once(void)
{
    uint64_t before = view(Q)->totals.dead;
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 500}};
    rig_run_one(&d.rig, &op);
    return view(Q)->totals.dead - before;
}

static void a_sweep_writes_no_more_than_a_megabyte_of_dead_letters(void **state)
{
    (void)state;
    make_large();
    pass_unswept(60000);
    for (uint64_t dead = 0, n; dead < LARGE; dead += n) {
        n = sweep_once();
        assert_in_range(n, 1, PORTION_MAX);
    }
    assert_int_equal(view(Q)->dead, LARGE);
}

static uint32_t bulk_all(enum engine_verb verb, uint32_t *asks)
{
    uint32_t count = 0;
    struct engine_op op = {.verb = verb, .queue = queue(Q)};
    op.bulk.max = 500;
    op.bulk.before_seq = queue(Q)->next_seq;
    op.bulk.slot = -1;
    for (op.bulk.more = true, *asks = 0; op.bulk.more; count += op.bulk.count, ++*asks) {
        rig_run_one(&d.rig, &op);
        assert_int_equal(op.status, STATUS_OK);
        if (one_store()) /* a portion of several stores is made of portions of each */
            assert_in_range(op.bulk.count, 0, PORTION_MAX);
    }
    return count;
}

static void a_portion_of_dead_letters_has_a_megabyte_at_most(void **state)
{
    (void)state;
    uint32_t asks;
    make_large();
    sleep_ms(60000);
    assert_int_equal(bulk_all(ENGINE_DEAD_REDRIVE, &asks), LARGE);
    assert_in_range(asks, one_store() ? LARGE / PORTION_MAX : 1, LARGE);
    assert_int_equal(view(Q)->ready, LARGE);
    for (int left = LARGE; left > 0;)
        left -= (int)claim(Q, 20);
    sleep_ms(60000);
    assert_int_equal(view(Q)->dead, LARGE);
    assert_int_equal(bulk_all(ENGINE_DEAD_DROP, &asks), LARGE);
    assert_int_equal(view(Q)->dead, 0);
}

/* A job does not take what died after it began, and ends. */
static void a_job_ends_before_the_letters_that_came_after_it(void **state)
{
    (void)state;
    make_large();
    uint64_t first = d.shown[0].id.seq; /* of the second half */
    sleep_ms(60000);
    struct engine_op op = {.verb = ENGINE_DEAD_DROP, .queue = queue(Q)};
    op.bulk.max = 500;
    op.bulk.before_seq = first;
    uint32_t count = 0, asks = 0;
    for (op.bulk.more = true; op.bulk.more; count += op.bulk.count) {
        assert_true(asks++ < LARGE);
        rig_run_one(&d.rig, &op);
        assert_int_equal(op.status, STATUS_OK);
    }
    assert_int_equal(count, first - 1);
    assert_int_equal(view(Q)->dead, LARGE - count);
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
        TEST(what_expires_with_its_key_is_not_read_by_the_loop),
        TEST(what_expires_under_a_lease_is_not_read_by_the_loop),
        TEST(what_a_claim_has_to_pass_over_is_not_read_by_the_loop),
        TEST(a_sweep_writes_no_more_than_a_megabyte_of_dead_letters),
        TEST(a_portion_of_dead_letters_has_a_megabyte_at_most),
        TEST(a_job_ends_before_the_letters_that_came_after_it),
    };
    return driver_main_files(tests);
}
