/* Two servers over three stores that are simulated, on invented time: what becomes of dedup keys
 * when buckets move and not everybody hears of it, of partitions that are split, and of claims when
 * a store is silent. */
#include "base/mem.h"
#include "core/policy.h"
#include "engine/cells/cells.h"
#include "engine/cells/placement.h"
#include "simulate/depot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CELLS     3
#define STEP_US   5000
#define SECOND_US 1000000LL
#define WINDOW_MS 10000
#define LONG_US   (WINDOW_MS * 1000LL + 60 * SECOND_US) /* the window and the slack of clocks */

struct server {
    struct engine *engine;
    struct engine *links[CELLS]; /* to each store: the engine's */
    struct engine_queue *queue;
    struct engine_op sweep;
    bool sweeping;
};

static struct {
    struct agenda agenda;
    struct depot_terms terms;
    struct depot depots[CELLS];
    struct server a, b;
    const struct engine_value *values; /* settings */
    uint32_t value_count;
    bool over; /* nothing new is begun */
} t;

static struct instant now(void)
{
    return (struct instant){.wall_ms = t.terms.epoch_ms + t.agenda.now_us / 1000,
                            .mono_ms = t.agenda.now_us / 1000};
}

static void nothing(void *ctx, uint32_t shard)
{
    (void)ctx, (void)shard;
}

static void swept(struct engine_op *op)
{
    ((struct server *)op->user)->sweeping = false;
}

static void turn(struct server *s)
{
    if (!s->engine)
        return;
    engine_poll(s->engine);
    if (!t.over && engine_next_due_ms(s->engine, now()) == 0 && !s->sweeping) {
        s->sweeping = true;
        s->sweep = (struct engine_op){.verb = ENGINE_SWEEP, .done = swept, .user = s};
        s->sweep.sweep.max = 100;
        engine_submit(s->engine, &s->sweep, now());
    }
    engine_flush(s->engine);
}

static void step(void)
{
    int64_t until_us = t.agenda.now_us + STEP_US;
    while (agenda_step(&t.agenda, until_us)) {
    }
    turn(&t.a);
    turn(&t.b);
}

static void pass(int64_t us)
{
    for (int64_t until_us = t.agenda.now_us + us; t.agenda.now_us < until_us;)
        step();
}

static void answered(struct engine_op *op)
{
    *(bool *)op->user = true;
}

static enum status run(struct server *s, struct engine_op *op)
{
    bool over = false;
    op->done = answered;
    op->user = &over;
    engine_submit(s->engine, op, now());
    while (!over)
        step();
    return op->status;
}

/* Cut off from this store for so long. */
static void cut(struct server *s, uint32_t cell, int64_t us)
{
    depot_cut(s->links[cell], t.agenda.now_us + us);
}

static void server_open(struct server *s)
{
    struct engine_options options = {
        .now = now(), .wake = nothing, .values = t.values, .value_count = t.value_count};
    for (uint32_t i = 0; i < CELLS; i++)
        s->links[i] = depot_open(&t.depots[i], nothing, NULL);
    s->engine = cells_over(s->links, CELLS, &options);
}

static void queue_make(struct server *s)
{
    struct queue_config config;
    assert_true(config_profile("tiers", &config));
    config.dedup_window_ms = WINDOW_MS;
    struct engine_op op = {.verb = ENGINE_QUEUE_SET};
    op.set.name = "q";
    op.set.config = &config;
    assert_int_equal(run(s, &op), STATUS_OK);
    s->queue = op.queue;
}

static void queue_open(struct server *s)
{
    struct engine_op op = {.verb = ENGINE_QUEUE_OPEN};
    op.open.name = "q";
    assert_int_equal(run(s, &op), STATUS_OK);
    s->queue = op.queue;
}

static int begin(const struct engine_value *values, uint32_t value_count)
{
    memset(&t, 0, sizeof(t));
    t.values = values;
    t.value_count = value_count;
    t.terms = (struct depot_terms){.delay_us = 200, .group_us = 100, .operation_us = 10};
    t.terms.epoch_ms = 1700000000000;
    for (uint32_t i = 0; i < CELLS; i++)
        depot_init(&t.depots[i], &t.agenda, &t.terms, i, 1);
    server_open(&t.a);
    queue_make(&t.a);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return begin(NULL, 0);
}

static int set_up_splits(void **state)
{
    static const struct engine_value values[] = {{.name = "split", .text = "on"},
                                                 {.name = "split_depth", .number = 50}};
    (void)state;
    return begin(values, 2);
}

static int tear_down(void **state)
{
    (void)state;
    t.over = true;
    pass(5 * LONG_US); /* so that everything on its way has arrived */
    if (t.a.engine)
        engine_close(&t.a.engine, 1);
    if (t.b.engine)
        engine_close(&t.b.engine, 1);
    for (uint32_t i = 0; i < CELLS; i++)
        depot_fini(&t.depots[i]);
    agenda_fini(&t.agenda);
    return 0;
}

/* Keys that are in this cell at first, one after the other. */
static void key_in(uint32_t cell, int which, char key[16])
{
    for (int i = 0, found = 0;; i++) {
        snprintf(key, 16, "key %d", i);
        if (bucket_of(key, strlen(key)) % CELLS == cell && found++ == which)
            return;
    }
}

static struct put_item put(struct server *s, const char *key)
{
    struct put_item item = {.draft.ready_ms = READY_NOW, .draft.ttl_ms = TTL_DEFAULT};
    item.draft.body = mem_dup(key, strlen(key));
    item.draft.dedup_len = (uint16_t)strlen(key);
    struct engine_op op = {.verb = ENGINE_PUT, .queue = s->queue};
    op.put.items = &item;
    op.put.count = 1;
    enum status status = run(s, &op);
    draft_fini(&item.draft);
    item.status = status ? status : item.status;
    return item;
}

static enum status give(struct server *s, const char *key, const char *cell)
{
    char bucket[8];
    struct engine_op op = {.verb = ENGINE_PLACEMENT, .queue = s->queue};
    snprintf(bucket, sizeof(bucket), "%u", bucket_of(key, strlen(key)));
    op.placement.change = PLACEMENT_GIVE;
    op.placement.cell = cell;
    op.placement.text = bucket;
    return run(s, &op);
}

/* Server b does not hear of the move, and the old cell neither. They go on with each other for
 * longer than any key that was there before the move is known. */
static void a_split_that_is_longer_than_the_window_doubles_no_key(void **state)
{
    (void)state;
    char key[16];
    key_in(1, 0, key);
    server_open(&t.b);
    queue_open(&t.b);
    cut(&t.a, 1, LONG_US + 6 * SECOND_US);
    cut(&t.b, 0, 4 * LONG_US);
    cut(&t.b, 2, 4 * LONG_US);
    /* It is made, and not everybody could be told. */
    assert_int_equal(give(&t.a, key, "2"), STATUS_ENGINE_UNAVAILABLE);
    pass(LONG_US + 2 * SECOND_US);
    struct put_item first = put(&t.b, key);
    assert_int_equal(first.status, STATUS_OK);
    assert_int_equal(first.partition, 1);
    /* Nobody can tell server a whether the key is known. */
    assert_int_equal(put(&t.a, key).status, STATUS_ENGINE_UNAVAILABLE);
    pass(5 * SECOND_US); /* the cut of server a is over */
    struct put_item again = put(&t.a, key);
    assert_int_equal(again.status, STATUS_OK);
    assert_true(again.deduplicated);
    assert_int_equal(again.id.seq, first.id.seq);
    /* The old cell has been told: it takes no new key of the bucket. */
    pass(2 * WINDOW_MS * 1000);
    struct put_item later = put(&t.b, key);
    assert_true(later.status == STATUS_ENGINE_UNAVAILABLE || later.partition == 2);
}

/* The look-up ends: a key costs one question again, and the old cell need not be there. */
static void a_move_ends_one_window_after_its_cell_was_told(void **state)
{
    (void)state;
    char key[16];
    key_in(1, 0, key);
    assert_int_equal(give(&t.a, key, "2"), STATUS_OK);
    pass(LONG_US + 20 * SECOND_US);
    cut(&t.a, 1, 10 * SECOND_US);
    struct put_item item = put(&t.a, key);
    assert_int_equal(item.status, STATUS_OK);
    assert_int_equal(item.partition, 2);
}

/* As its home has it. */
static void placement_now(struct placement *p)
{
    const struct queue_place *place = t.depots[0].queue->place;
    assert_true(placement_read(place->map, place->map_len, place->epoch, p));
}

static void fill(struct server *s, uint32_t cell, int count)
{
    char key[16];
    for (int i = 0; i < count; i++) {
        key_in(cell, i, key);
        assert_int_equal(put(s, key).status, STATUS_OK);
    }
}

static uint32_t buckets_of(uint32_t seat)
{
    struct placement p;
    placement_now(&p);
    uint32_t count = placement_bucket_count(&p, seat);
    placement_fini(&p);
    return count;
}

static void what_two_servers_decide_at_once_is_done_once(void **state)
{
    (void)state;
    server_open(&t.b);
    queue_open(&t.b);
    assert_int_equal(buckets_of(1), 85);
    fill(&t.a, 1, 60);
    pass(50 * SECOND_US);
    assert_int_equal(buckets_of(1), 85);
    pass(40 * SECOND_US);
    assert_int_equal(buckets_of(1), 43);
    pass(500 * SECOND_US); /* it is over all the time, and rests */
    assert_int_equal(buckets_of(1), 43);
    pass(200 * SECOND_US);
    assert_int_equal(buckets_of(1), 22);
}

/* Without the home of the queue nobody changes a placement; and nobody says so. */
static void nothing_is_split_while_the_first_cell_is_away(void **state)
{
    (void)state;
    fill(&t.a, 1, 60);
    cut(&t.a, 0, 200 * SECOND_US);
    pass(190 * SECOND_US);
    assert_int_equal(buckets_of(1), 85);
    pass(100 * SECOND_US);
    assert_int_equal(buckets_of(1), 43);
}

static void nothing_shown(struct engine_op *op, const struct engine_queue *q,
                          const struct message *m, struct instant at)
{
    (void)op, (void)q, (void)m, (void)at;
}

/* How many it got; *ms is how long it took. */
static uint32_t claim(struct server *s, uint32_t want, int64_t *ms)
{
    struct policy policy;
    struct plan *plan = mem_alloc(sizeof(*plan));
    const struct queue_config *config = &s->queue->config;
    int64_t from_us = t.agenda.now_us;
    policy_init(&policy, config);
    policy_plan(&policy, config, NULL, config->level_count - 1, want, now().wall_ms, plan);
    struct engine_op op = {.verb = ENGINE_CLAIM, .queue = s->queue, .visit = nothing_shown};
    op.claim.plan = plan;
    op.claim.lease_ms = 3600000;
    assert_int_equal(run(s, &op), STATUS_OK);
    free(plan);
    *ms = (t.agenda.now_us - from_us) / 1000;
    return op.claim.found;
}

static void a_claim_gets_what_others_have_while_a_cell_is_silent(void **state)
{
    int64_t ms;
    (void)state;
    fill(&t.a, 1, 3);
    fill(&t.a, 2, 3);
    cut(&t.a, 1, 900000); /* it is never away */
    pass(60000);          /* what is known of the heads is old */
    assert_int_equal(claim(&t.a, 1, &ms), 1);
    assert_true(ms < 400);
    assert_int_equal(claim(&t.a, 1, &ms), 1); /* it is known to hesitate */
    assert_true(ms < 50);
    pass(2 * SECOND_US);
    assert_int_equal(claim(&t.a, 6, &ms), 4); /* nothing is lost, nor leased for nobody */
}

static void a_claim_waits_for_a_silent_cell_when_nobody_else_has_anything(void **state)
{
    int64_t ms;
    (void)state;
    fill(&t.a, 1, 2);
    cut(&t.a, 1, 700000);
    pass(60000);
    assert_int_equal(claim(&t.a, 1, &ms), 1);
    assert_true(ms >= 600);
}

/* What a put brings to another cell meanwhile ends the wait. */
static void a_claim_that_waits_for_a_silent_cell_takes_what_comes_elsewhere(void **state)
{
    struct engine_op op = {.verb = ENGINE_CLAIM, .queue = t.a.queue, .visit = nothing_shown};
    struct policy policy;
    struct plan *plan = mem_alloc(sizeof(*plan));
    bool over = false;
    (void)state;
    fill(&t.a, 1, 1);
    int64_t from_us = t.agenda.now_us;
    cut(&t.a, 1, 900000);
    pass(60000);
    policy_init(&policy, &t.a.queue->config);
    policy_plan(&policy, &t.a.queue->config, NULL, t.a.queue->config.level_count - 1, 1,
                now().wall_ms, plan);
    op.claim.plan = plan;
    op.claim.lease_ms = 3600000;
    op.done = answered;
    op.user = &over;
    engine_submit(t.a.engine, &op, now());
    pass(300000);
    assert_false(over);
    fill(&t.a, 2, 1);
    int64_t put_us = t.agenda.now_us;
    while (!over)
        step();
    assert_true(t.agenda.now_us - put_us < 100000);
    assert_true(put_us - from_us < 500000); /* the cell is not away yet */
    assert_int_equal(op.claim.found, 1);
    free(plan);
}

int main(void)
{
#define TEST(name)  cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define SPLIT(name) cmocka_unit_test_setup_teardown(name, set_up_splits, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_split_that_is_longer_than_the_window_doubles_no_key),
        TEST(a_move_ends_one_window_after_its_cell_was_told),
        TEST(a_claim_gets_what_others_have_while_a_cell_is_silent),
        TEST(a_claim_waits_for_a_silent_cell_when_nobody_else_has_anything),
        TEST(a_claim_that_waits_for_a_silent_cell_takes_what_comes_elsewhere),
        SPLIT(what_two_servers_decide_at_once_is_done_once),
        SPLIT(nothing_is_split_while_the_first_cell_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
