/* Ops of several queues in one group: an engine may do them at once, and each is as if it were
 * alone. */
#include "conformance/driver.h"

#include <string.h>

#define MOST 16

static struct engine_op ops[MOST];
static struct put_item puts[MOST];
static struct settle_item settles[MOST];
static uint32_t count;

static struct put_item *add_put(const char *q, struct spec s)
{
    puts[count] = (struct put_item){.draft = draft_of(q, s)};
    ops[count] = (struct engine_op){
        .verb = ENGINE_PUT, .queue = queue(q), .put = {.items = &puts[count], .count = 1}};
    return &puts[count++];
}

static struct settle_item *add_ack(const char *q, const struct shown *s)
{
    settles[count] = (struct settle_item){.id = s->id};
    memcpy(settles[count].receipt, s->receipt, RECEIPT_BYTES);
    ops[count] = (struct engine_op){
        .verb = ENGINE_ACK, .queue = queue(q), .settle = {.items = &settles[count], .count = 1}};
    return &settles[count++];
}

static void run(void)
{
    struct engine_op *all[MOST];
    for (uint32_t i = 0; i < count; i++)
        all[i] = &ops[i];
    rig_run(&d.rig, all, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(ops[i].status, STATUS_OK);
        if (ops[i].verb == ENGINE_PUT)
            draft_fini(&puts[i].draft);
    }
    count = 0;
    if (d.restarts_always)
        restart();
}

static void enqueues_of_several_queues_keep_order_keys_and_limits(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config plain = rig_config(2), limited = plain;
    limited.max_depth = 1;
    make_queue("a", &plain);
    make_queue("b", &plain);
    make_queue("c", &limited);
    add_put("a", (struct spec){.payload = "a1"});
    struct put_item *b1 = add_put("b", (struct spec){.payload = "b1", .rank = 1});
    struct put_item *c1 = add_put("c", (struct spec){.payload = "c1"});
    struct put_item *a2 = add_put("a", (struct spec){.payload = "a2", .dedup = "k"});
    add_put("b", (struct spec){.payload = "b2", .metadata = "{}"});
    struct put_item *none = add_put("b", (struct spec){.payload = "b3", .rank = -1});
    struct put_item *c2 = add_put("c", (struct spec){.payload = "c2"});
    add_put("a", (struct spec){.payload = "a3"});
    struct put_item *again = add_put("a", (struct spec){.payload = "a4", .dedup = "k"});
    struct put_item *other = add_put("b", (struct spec){.payload = "b4", .dedup = "k"});
    run();
    assert_id_of("b", b1->id);
    assert_int_equal(b1->id.slot, slot_of("b", 1));
    assert_int_equal(none->status, STATUS_UNKNOWN_PRIORITY);
    assert_int_equal(c1->status, STATUS_OK);
    assert_int_equal(c2->status, STATUS_QUEUE_FULL);
    assert_true(again->deduplicated);
    assert_int_equal(again->id.seq, a2->id.seq);
    assert_id_of("a", again->id);
    assert_false(other->deduplicated);
    assert_int_equal(view("a")->ready, 3);
    assert_drains_as("a", "a1 a2 a3");
    assert_drains_as("b", "b2 b4 b1");
    assert_drains_as("c", "c1");
}

static void each_goes_by_the_times_of_its_own_queue(void **state)
{
    (void)state;
    struct queue_config lasting = rig_config(2), brief = lasting;
    brief.ttl_ms = 10000;
    make_queue("lasting", &lasting);
    make_queue("brief", &brief);
    add_put("lasting", (struct spec){.payload = "l1"});
    add_put("brief", (struct spec){.payload = "b1"});
    add_put("brief", (struct spec){.payload = "b2", .ttl_ms = -1});
    add_put("lasting", (struct spec){.payload = "l2", .ttl_ms = 5000});
    add_put("lasting", (struct spec){.payload = "l3", .delay_ms = 20000});
    run();
    assert_int_equal(view("lasting")->ready, 2);
    assert_int_equal(view("lasting")->scheduled, 1);
    sleep_ms(11000);
    assert_drains_as("lasting", "l1");
    assert_drains_as("brief", "b2");
    sleep_ms(11000);
    assert_drains_as("lasting", "l3");
}

static void acks_of_several_queues_open_what_is_theirs(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config keyed = rig_config(2), remembers = keyed;
    keyed.dedup_scope = DEDUP_LIVE;
    remembers.history_ms = 3600000;
    make_queue("a", &keyed);
    make_queue("b", &remembers);
    assert_int_equal(put_spec("a", (struct spec){.payload = "a1", .dedup = "k"}).status, STATUS_OK);
    put("a", "a2", 0);
    put("b", "b1", 0);
    put("b", "b2", 1);
    struct shown a1 = claim_one("a"), a2 = claim_one("a"), b1 = claim_one("b"), b2 = claim_one("b");
    struct settle_item *good[] = {add_ack("a", &a1), add_ack("b", &b1)};
    struct settle_item *astray = add_ack("a", &b2), *twice = add_ack("b", &b1);
    struct shown forged = a2;
    memcpy(forged.receipt, b2.receipt, RECEIPT_BYTES);
    struct settle_item *false_one = add_ack("a", &forged);
    run();
    for (int i = 0; i < 2; i++)
        assert_int_equal(good[i]->status, STATUS_OK);
    assert_int_equal(astray->status, STATUS_MESSAGE_NOT_FOUND);
    assert_int_equal(false_one->status, STATUS_RECEIPT_EXPIRED);
    assert_int_not_equal(twice->status, STATUS_OK);
    assert_int_equal(view("a")->leased, 1);
    assert_int_equal(view("b")->leased, 1);
    assert_int_equal(state_of("a", a1.id), MESSAGE_NEW);
    assert_int_equal(state_of("b", b1.id), MESSAGE_DONE);
    assert_false(put_spec("a", (struct spec){.payload = "a3", .dedup = "k"}).deduplicated);
    assert_int_equal(ack("a", &a2), STATUS_OK);
    assert_int_equal(ack("b", &b2), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enqueues_of_several_queues_keep_order_keys_and_limits),
        cmocka_unit_test(each_goes_by_the_times_of_its_own_queue),
        cmocka_unit_test(acks_of_several_queues_open_what_is_theirs),
    };
    return driver_main(tests);
}
