/* Shares: how much of the limits of a larger queue a queue may use. On the engines that stand under
 * `cells`: that has no shares itself. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <string.h>

#define Q "part"

static uint64_t used[SHARE_COUNT];

/* What the queue has then, which is the caller's to free. */
static struct queue_share *share_with(const struct queue_share *next, bool *stale)
{
    struct engine_op op = {.verb = ENGINE_QUEUE_SHARE, .queue = queue(Q)};
    op.share.next = next;
    op.share.used = used;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    *stale = op.share.stale;
    if (d.restarts_always)
        restart();
    return op.share.now;
}

/* True: it was taken. `most` is for every limit. */
static bool give(uint64_t epoch, uint64_t most, const char *note)
{
    size_t len = strlen(note);
    bool stale;
    struct queue_share *next = mem_zalloc(sizeof(*next) + len);
    next->epoch = epoch;
    for (int k = 0; k < SHARE_COUNT; k++)
        next->most[k] = most;
    next->note_len = (uint32_t)len;
    memcpy(next->note, note, len);
    free(share_with(next, &stale));
    free(next);
    return !stale;
}

static void assert_share(uint64_t epoch, uint64_t most, const char *note)
{
    bool stale;
    struct queue_share *now = share_with(NULL, &stale);
    assert_false(stale);
    assert_non_null(now);
    assert_int_equal(now->epoch, epoch);
    for (int k = 0; k < SHARE_COUNT; k++)
        assert_int_equal(now->most[k], most);
    assert_int_equal(now->note_len, strlen(note));
    assert_memory_equal(now->note, note, now->note_len);
    free(now);
}

static void make_limited(uint64_t depth, uint64_t bytes, uint32_t in_flight)
{
    struct queue_config c = rig_config(2);
    c.max_depth = depth;
    c.max_bytes = bytes;
    c.max_in_flight = in_flight;
    make_queue(Q, &c);
}

static enum status put_one(const char *payload)
{
    return put_spec(Q, (struct spec){.payload = payload}).status;
}

static void a_queue_has_all_of_its_limits_until_it_is_given_a_share(void **state)
{
    (void)state;
    bool stale;
    make_limited(2, 0, 0);
    assert_null(share_with(NULL, &stale));
    assert_int_equal(put_one("a"), STATUS_OK);
    assert_int_equal(put_one("b"), STATUS_OK);
    assert_int_equal(put_one("c"), STATUS_QUEUE_FULL);
}

static void a_share_is_taken_only_on_top_of_the_one_before(void **state)
{
    (void)state;
    make_limited(0, 0, 0);
    assert_false(give(2, 5, "too early"));
    assert_true(give(1, 5, "first"));
    assert_share(1, 5, "first");
    assert_false(give(1, 6, "again"));
    assert_false(give(3, 6, "later"));
    assert_share(1, 5, "first");
    assert_true(give(2, SHARE_WHOLE, ""));
    assert_share(2, SHARE_WHOLE, "");
}

static void a_share_survives_a_restart(void **state)
{
    (void)state;
    make_limited(10, 0, 0);
    assert_true(give(1, 0, ""));
    assert_true(give(2, 1, "a ledger\nof lines\n"));
    restart();
    assert_share(2, 1, "a ledger\nof lines\n");
    assert_int_equal(put_one("a"), STATUS_OK);
    assert_int_equal(put_one("b"), STATUS_QUEUE_FULL);
}

static void a_put_beyond_the_share_is_refused(void **state)
{
    (void)state;
    make_limited(10, 10, 0);
    assert_true(give(1, 3, ""));
    assert_int_equal(put_one("1234567890a"), STATUS_PAYLOAD_TOO_LARGE); /* by the limit itself */
    assert_int_equal(put_one("1234"), STATUS_QUEUE_FULL);
    assert_int_equal(put_one("12"), STATUS_OK);
    assert_int_equal(put_one("12"), STATUS_QUEUE_FULL);
    assert_int_equal(put_one("1"), STATUS_OK);
    assert_int_equal(put_one(""), STATUS_OK);
    assert_int_equal(put_one(""), STATUS_QUEUE_FULL);
    assert_true(give(2, 4, ""));
    assert_int_equal(put_one(""), STATUS_OK);
}

static void a_share_does_not_limit_what_has_no_limit(void **state)
{
    (void)state;
    make_limited(0, 0, 0);
    assert_true(give(1, 0, ""));
    assert_int_equal(put_one("a"), STATUS_OK);
    assert_drains_as(Q, "a");
}

static void a_share_tells_what_the_queue_holds(void **state)
{
    (void)state;
    make_limited(10, 100, 10);
    assert_int_equal(put_one("abc"), STATUS_OK);
    assert_int_equal(put_one("de"), STATUS_OK);
    assert_int_equal(put_spec(Q, (struct spec){.payload = "f", .rank = 1}).status, STATUS_OK);
    assert_int_equal(claim(Q, 1), 1);
    assert_true(give(1, 0, ""));
    assert_int_equal(used[SHARE_DEPTH], 2);
    assert_int_equal(used[SHARE_BYTES], 3);
    assert_int_equal(used[SHARE_IN_FLIGHT], 1);
    assert_int_equal(used[SHARE_LEVEL + queue(Q)->config.levels[0].slot], 1);
    assert_int_equal(used[SHARE_LEVEL + queue(Q)->config.levels[1].slot], 0);
}

static void a_share_goes_with_its_queue(void **state)
{
    (void)state;
    bool stale;
    make_limited(1, 0, 0);
    assert_true(give(1, 0, ""));
    delete_queue(Q);
    make_limited(1, 0, 0);
    assert_null(share_with(NULL, &stale));
}

static void a_part_that_is_made_begins_with_a_share_of_nothing(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.max_depth = 10;
    struct engine_op op = {.verb = ENGINE_QUEUE_SET};
    op.set.name = Q;
    op.set.config = &c;
    op.set.celled = true;
    op.set.cell = 3;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_share(1, 0, "");
    assert_int_equal(put_one("a"), STATUS_QUEUE_FULL);
    assert_true(give(2, 1, ""));
    assert_int_equal(put_one("a"), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_has_all_of_its_limits_until_it_is_given_a_share),
        cmocka_unit_test(a_share_is_taken_only_on_top_of_the_one_before),
        cmocka_unit_test(a_share_survives_a_restart),
        cmocka_unit_test(a_put_beyond_the_share_is_refused),
        cmocka_unit_test(a_share_does_not_limit_what_has_no_limit),
        cmocka_unit_test(a_share_tells_what_the_queue_holds),
        cmocka_unit_test(a_share_goes_with_its_queue),
        cmocka_unit_test(a_part_that_is_made_begins_with_a_share_of_nothing),
    };
    return driver_main_stores(tests);
}
