/* Cells that are drained, on invented time: when messages leave, and what is as before when they
 * have arrived. On the engines that are made of several. */
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q    "drained"
#define MANY 60
#define FAR  (48LL * 3600 * 1000)

static void make(void)
{
    struct queue_config c = rig_config(3);
    c.max_attempts = 1;
    c.history_ms = 0;
    make_queue(Q, &c);
}

static bool has_cells(void)
{
    return engine_has(d.rig.engine, ENGINE_PARTITIONED) && own_clocks();
}

static void change(const char *q, const char *cell, enum placement_change to)
{
    struct engine_op op = {.verb = ENGINE_PLACEMENT, .queue = q ? queue(q) : NULL};
    op.placement.cell = cell;
    op.placement.change = to;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
}

struct seen {
    uint32_t count; /* of partitions */
    const char *cell;
    struct queue_view view; /* of that cell */
};

static void see(void *ctx, const struct engine_partition *p)
{
    struct seen *s = ctx;
    s->count++;
    if (strcmp(p->cell, s->cell) == 0)
        s->view = *p->view;
}

static struct seen in_cell(const char *q, const char *cell)
{
    struct seen s = {.cell = cell};
    engine_partition_each(d.rig.engine, queue(q), see, &s);
    return s;
}

static uint64_t held(const char *q, const char *cell)
{
    struct queue_view v = in_cell(q, cell).view;
    return v.ready + v.scheduled + v.leased + v.dead;
}

/* A store on a disk answers in its own time. */
static void drain_out(const char *cell)
{
    for (int i = 0; i < 3600 && held(Q, cell) > 0; i++)
        sleep_ms(1000);
    assert_int_equal(held(Q, cell), 0);
}

static void put_keyed(const char *q, uint32_t count, int64_t delay_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        char key[16], payload[16];
        snprintf(key, sizeof(key), "k%u", i);
        snprintf(payload, sizeof(payload), "m%u", i);
        put_spec(q, (struct spec){.payload = payload, .dedup = key, .delay_ms = delay_ms});
        sleep_ms(1);
    }
}

/* What is ready is for consumers, who get a minute. */
static void what_nobody_claims_leaves_after_a_minute_and_keeps_its_place(void **state)
{
    (void)state;
    make();
    if (!has_cells() || in_cell(Q, "c1").count < 2)
        skip();
    d.checks = false;
    put_keyed(Q, MANY, 0);
    uint64_t before = held(Q, "c1");
    assert_true(before > 0);
    change(Q, "c1", PLACEMENT_DRAIN);
    for (int i = 0; i < 50; i++)
        sleep_ms(1000);
    assert_int_equal(in_cell(Q, "c1").view.ready, before);
    drain_out("c1");
    assert_int_equal(view(Q)->ready, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        char payload[16];
        snprintf(payload, sizeof(payload), "m%u", i);
        assert_string_equal(claim_one(Q).payload, payload);
    }
}

/* Its old cell has kept it in vain if it became ready there: so it leaves at once. */
static void a_dated_message_leaves_long_before_it_is_due(void **state)
{
    (void)state;
    make();
    if (!has_cells() || in_cell(Q, "c1").count < 2)
        skip();
    d.checks = false;
    put_keyed(Q, MANY, FAR);
    assert_true(held(Q, "c1") > 0);
    change(Q, "c1", PLACEMENT_DRAIN);
    drain_out("c1");
    assert_int_equal(view(Q)->scheduled, MANY);
    sleep_ms(FAR);
    assert_int_equal(view(Q)->ready, MANY);
}

static void a_queue_that_is_made_later_has_no_partition_in_a_drained_cell(void **state)
{
    (void)state;
    make();
    if (!has_cells() || in_cell(Q, "c1").count < 2)
        skip();
    d.checks = false;
    uint32_t cells = in_cell(Q, "c1").count;
    change(NULL, "c1", PLACEMENT_DRAIN);
    struct queue_config c = rig_config(3);
    make_queue("later", &c);
    put_keyed("later", MANY, FAR);
    for (int i = 0; i < 30; i++)
        sleep_ms(1000);
    assert_int_equal(in_cell("later", "c1").count, cells - 1);
    assert_int_equal(held("later", "c1"), 0);
    restart();
    make_queue("last", &c);
    for (int i = 0; i < 30; i++)
        sleep_ms(1000);
    assert_int_equal(in_cell("last", "c1").count, cells - 1);
    change(NULL, "c1", PLACEMENT_OPEN);
    change("last", "c1", PLACEMENT_OPEN);
    assert_int_equal(in_cell("last", "c1").count, cells);
    delete_queue("last");
    delete_queue("later");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_nobody_claims_leaves_after_a_minute_and_keeps_its_place),
        cmocka_unit_test(a_dated_message_leaves_long_before_it_is_due),
        cmocka_unit_test(a_queue_that_is_made_later_has_no_partition_in_a_drained_cell),
    };
    return driver_main(tests);
}
