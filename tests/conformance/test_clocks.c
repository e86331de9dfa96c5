/* Cells whose clocks differ: three stores in memory, each with a wall clock of its own, as an
 * engine that goes by its server's clock would have it. Nobody may be able to tell from the order.
 */
#include "base/mem.h"
#include "conformance/driver.h"
#include "engine/wrap.h"

#include <stdio.h>
#include <string.h>

#define Q     "clocks"
#define CELLS 3

static const int64_t ahead_ms[CELLS] = {60, 0, -75};
static uint32_t opened; /* cells so far */

/* An engine in memory whose clock is ahead of the caller's */

struct ahead {
    struct wrapper w; /* first */
    int64_t by_ms;
};

static const struct engine_ops ahead_ops;

static struct instant shifted(struct engine *e, struct instant now)
{
    assert_ptr_equal(e->ops, &ahead_ops);
    return (struct instant){now.wall_ms + ((struct ahead *)e)->by_ms, now.mono_ms};
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    engine_submit(wrapper_of(e)->inner, op, shifted(e, now));
    wrapper_sync(wrapper_of(e));
    e->ahead_us = ((struct ahead *)e)->by_ms * 1000;
}

static int64_t next_due_ms(struct engine *e, struct instant now)
{
    int64_t due_ms = engine_next_due_ms(wrapper_of(e)->inner, shifted(e, now));
    wrapper_sync(wrapper_of(e));
    e->ahead_us = ((struct ahead *)e)->by_ms * 1000;
    return due_ms;
}

static void flush(struct engine *e)
{
    engine_flush(wrapper_of(e)->inner);
}

static uint32_t poll(struct engine *e)
{
    return engine_poll(wrapper_of(e)->inner);
}

static void finished(struct engine *e, struct engine_op *op)
{
    engine_finish(e, op);
}

static const struct engine_ops ahead_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = next_due_ms,
    .holds = wrapper_holds,
    .queue_find = wrapper_queue_find,
    .queue_each = wrapper_queue_each,
    .speaks = wrapper_speaks,
    .health = wrapper_health,
    .finished = finished,
    .close = wrapper_close,
};

static enum status ahead_open(const struct engine_options *options, uint32_t shard_count,
                              struct engine *shards[], struct buf *error);

static const struct engine_kind ahead_kind = {.name = "ahead",
                                              .capabilities = ENGINE_LIVE_VIEW,
                                              .open = ahead_open,
                                              .no_backup = "there is none"};

static enum status ahead_open(const struct engine_options *options, uint32_t shard_count,
                              struct engine *shards[], struct buf *error)
{
    struct engine_options inner = *options;
    struct engine *memory;
    assert_int_equal(shard_count, 1);
    inner.kind = "memory";
    enum status status = engine_open(&inner, 1, &memory, error);
    assert_int_equal(status, STATUS_OK);
    struct ahead *a = mem_zalloc(sizeof(*a));
    wrapper_init(&a->w, &ahead_ops, memory);
    a->w.base.kind = &ahead_kind;
    a->by_ms = ahead_ms[opened++ % CELLS];
    a->w.base.ahead_us = a->by_ms * 1000;
    shards[0] = &a->w.base;
    return STATUS_OK;
}

static int setup(void **state)
{
    (void)state;
    d.variant = "three cells with three clocks";
    d.restarts_always = d.checks = false;
    d.shown_count = d.steps = opened = 0;
    rig_init(&d.rig, &(struct rig_options){.kind = "ahead", .cells = CELLS});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_fini(&d.rig);
    return 0;
}

/* A message that the cell of this number gets. */
static struct put_item put_into(uint32_t cell, const char *payload, int rank, int64_t delay_ms)
{
    static uint32_t keys;
    char key[16];
    struct put_item item;
    do {
        snprintf(key, sizeof(key), "k%u", keys++);
        item = put_spec(
            Q, (struct spec){.payload = payload, .dedup = key, .rank = rank, .delay_ms = delay_ms});
        assert_int_equal(item.status, STATUS_OK);
        if (item.partition != cell)
            assert_int_equal(cancel(Q, item.id), STATUS_OK);
    } while (item.partition != cell);
    return item;
}

static const uint32_t ways[] = {2, 0, 1, 0, 2, 1, 1, 2, 0}; /* cells, one after the other */
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void put_all_ways(int64_t apart_ms)
{
    for (uint32_t i = 0; i < WAYS; i++) {
        put_into(ways[i], (const char[]){(char)('a' + i), 0}, 1, 0);
        sleep_ms(apart_ms);
    }
}

static void what_came_first_goes_first(void **state)
{
    (void)state;
    struct queue_config config = rig_config(3);
    make_queue(Q, &config);
    put_all_ways(2);
    for (uint32_t i = 0; i < WAYS; i++)
        assert_int_equal(claim_one(Q).payload[0], 'a' + (int)i);
}

static void batches_are_in_order_too(void **state)
{
    (void)state;
    struct queue_config config = rig_config(3);
    make_queue(Q, &config);
    put_all_ways(2);
    assert_drains_as(Q, "a b c d e f g h i");
}

static void the_view_has_the_head_on_this_clock(void **state)
{
    (void)state;
    struct queue_config config = rig_config(3);
    make_queue(Q, &config);
    sleep_ms(1000);
    int64_t first_ms = d.rig.now.wall_ms;
    put_all_ways(2);
    for (uint32_t i = 0; i < WAYS; i++) {
        assert_int_equal(view(Q)->lanes[slot_of(Q, 1)].head_ms, first_ms + 2 * i);
        claim_one(Q);
    }
}

/* A level ages into the next one after 100 ms; what has aged stands by its age among the others. */
static void ages_are_compared_on_one_clock(void **state)
{
    (void)state;
    for (uint32_t old = 0; old < CELLS; old++) {
        for (uint32_t young = 0; young < CELLS; young++) {
            struct queue_config config = rig_config(2);
            config.levels[1].age_ms = 100;
            make_queue(Q, &config);
            put_into(old, "old", 1, 0);
            sleep_ms(90);
            put_into(young, "young", 0, 0);
            assert_string_equal(claim_one(Q).payload, "young"); /* the other has not aged */
            put_into(young, "late", 0, 0);
            sleep_ms(10);
            assert_string_equal(claim_one(Q).payload, "old");
            assert_string_equal(claim_one(Q).payload, "late");
            delete_queue(Q);
        }
    }
}

static void a_delay_ends_by_the_clock_of_its_cell(void **state)
{
    (void)state;
    struct queue_config config = rig_config(2);
    make_queue(Q, &config);
    for (uint32_t cell = 0; cell < CELLS; cell++)
        put_into(cell, (const char[]){(char)('a' + cell), 0}, 0, 30 + 10 * cell);
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        sleep_ms(cell == 0 ? 29 : 9);
        assert_int_equal(claim(Q, 1), 0);
        sleep_ms(1);
        assert_int_equal(claim_one(Q).payload[0], 'a' + (int)cell);
    }
}

static void positions_are_counted_on_one_clock(void **state)
{
    (void)state;
    struct queue_config config = rig_config(3);
    struct message_id ids[WAYS];
    struct policy policy;
    make_queue(Q, &config);
    policy_init(&policy, &queue(Q)->config);
    for (uint32_t i = 0; i < WAYS; i++) {
        ids[i] = put_into(ways[i], "x", 1, 0).id;
        sleep_ms(2);
    }
    for (uint32_t i = 0; i < WAYS; i++) {
        const struct shown *s = get(Q, ids[i]);
        bool exact;
        struct place at = {s->ready_ms, s->id.seq};
        assert_int_equal(rig_position(&d.rig, queue(Q), &policy, 1, at, &exact), i);
        assert_true(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_came_first_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(batches_are_in_order_too, setup, teardown),
        cmocka_unit_test_setup_teardown(the_view_has_the_head_on_this_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(ages_are_compared_on_one_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(a_delay_ends_by_the_clock_of_its_cell, setup, teardown),
        cmocka_unit_test_setup_teardown(positions_are_counted_on_one_clock, setup, teardown),
    };
    engine_kind_add(&ahead_kind);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
