/* What a group leaves behind when it ends in the middle: an op that must read the store closes the
 * group it is in, and what it did so far may be all that is there after a crash. A crash is a copy
 * of the folder as it is at that moment, opened in place of the original. Local engine only, with
 * so little memory that every level has a tail. */
#include "base/mem.h"
#include "conformance/driver.h"
#include "engine/local/impl.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define Q    "groups"
#define TINY 1024

/* Ops that are submitted and left so */

#define PENDING_MAX 8

static struct engine_op pending[PENDING_MAX];
static uint32_t pending_at;

static void ignore_done(struct engine_op *op)
{
    (void)op;
}

static void ignore_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op, (void)q;
}

/* Applied, but neither flushed nor reported; the next op that is run to its end takes it along. */
static struct engine_op *submit(struct engine_op op)
{
    struct engine_op *kept = &pending[pending_at++ % PENDING_MAX];
    *kept = op;
    kept->done = ignore_done;
    engine_submit(d.rig.engine, kept, d.rig.now);
    return kept;
}

static struct put_item item(const char *payload, int rank, const char *dedup)
{
    struct buf body = {0};
    buf_puts(&body, payload);
    buf_puts(&body, dedup ? dedup : "");
    return (struct put_item){.draft = {.kind = PAYLOAD_TEXT,
                                       .body = buf_take(&body),
                                       .payload_len = (uint32_t)strlen(payload),
                                       .dedup_len = dedup ? (uint16_t)strlen(dedup) : 0,
                                       .ready_ms = READY_NOW,
                                       .ttl_ms = TTL_DEFAULT,
                                       .priority = {.kind = PRIORITY_NUMBER, .number = rank}}};
}

static void submit_put(struct put_item *items, uint32_t count)
{
    submit((struct engine_op){
        .verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = items, .count = count}});
}

static void submit_sweep(void)
{
    submit((struct engine_op){.verb = ENGINE_SWEEP,
                              .sweep = {.max = 1000, .touched = ignore_touched}});
}

/* Crashes */

static void shell(const char *format, const char *a, const char *b)
{
    struct buf command = {0};
    buf_printf(&command, format, a, b);
    assert_int_equal(system(buf_cstr(&command)), 0);
    buf_fini(&command);
}

static void remove_folder(const char *dir)
{
    shell("rm -r '%s'%s", dir, "");
}

static struct engine *open_copy(const char *dir)
{
    struct engine_options options = d.rig.options;
    struct engine *engine = NULL;
    struct buf error = {0};
    struct engine_value values[] = {{.name = "data", .text = dir},
                                    {.name = "memory_limit", .number = d.rig.memory_limit},
                                    {.name = "disk_reserve", .number = 1}};
    options.values = values;
    options.value_count = sizeof(values) / sizeof(values[0]);
    options.now = d.rig.now;
    enum status status = engine_open(&options, 1, &engine, &error);
    if (status != STATUS_OK) {
        print_error("%s: %s\n", status_name(status), buf_cstr(&error));
        remove_folder(dir);
    }
    buf_fini(&error);
    return status == STATUS_OK ? engine : NULL;
}

/* From here on the test is about the copy. What was pending in the original is brought to its end
 * there, as the engine asks. */
static void crash(void)
{
    char copy[sizeof(d.rig.dir)];
    int len = snprintf(copy, sizeof(copy), "%.50s.copy", d.rig.dir);
    assert_true(len > 0 && strncmp(copy, d.rig.dir, (size_t)len - 5) == 0);
    shell("cp -r '%s' '%s'", d.rig.dir, copy);
    rig_sweep(&d.rig, 1000);
    struct engine *after = open_copy(copy);
    assert_non_null(after);
    engine_close(&d.rig.engine, 1);
    remove_folder(d.rig.dir);
    memcpy(d.rig.dir, copy, sizeof(copy));
    d.rig.engine = after;
}

/* Counters agree with the messages, now and when time passes. */
static void check(void)
{
    d.checks = true;
    sleep_ms(0);
    sleep_ms(5000);
    d.checks = false;
}

static int setup_with(uint64_t memory_limit)
{
    d.variant = "local";
    d.restarts_always = d.checks = false;
    d.shown_count = 0;
    rig_init(&d.rig, &(struct rig_options){.kind = "local",
                                           .durability = DURABILITY_OS,
                                           .memory_limit = memory_limit});
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_with(TINY);
}

static int setup_roomier(void **state)
{
    (void)state;
    return setup_with(64 * TINY);
}

static int teardown(void **state)
{
    (void)state;
    rig_fini(&d.rig);
    return 0;
}

static void make(uint32_t levels, uint32_t max_attempts)
{
    struct queue_config c = rig_config(levels);
    c.max_attempts = max_attempts;
    c.dedup_scope = DEDUP_LIVE;
    make_queue(Q, &c);
}

static uint64_t tail(void)
{
    return resident_queue_of(queue(Q))->core.tail;
}

/* Gives the level a tail, the end of which is ready in a second: whoever puts there later, or
 * sweeps, must count it first. */
static void make_tail_that_comes_due(int rank)
{
    put_many(Q, 12, rank);
    for (int i = 0; i < 5; i++)
        put_spec(Q, (struct spec){.payload = "soon", .rank = rank, .delay_ms = 1000});
    assert_true(tail() > 5);
}

static void a_crash_within_a_batch_leaves_counters_that_agree(void **state)
{
    (void)state;
    make(3, 3);
    make_tail_that_comes_due(0);
    put_many(Q, 12, 1);
    pass_unswept(2000);
    struct put_item items[] = {item("hot", 2, NULL), item("cold", 1, NULL), item("third", 0, NULL)};
    submit_put(items, 3);
    crash();
    check();
}

static void a_crash_within_a_group_leaves_counters_that_agree(void **state)
{
    (void)state;
    make(2, 3);
    make_tail_that_comes_due(0);
    put_many(Q, 12, 1);
    pass_unswept(2000);
    struct put_item cold = item("cold", 1, NULL), due = item("due", 0, NULL);
    submit_put(&cold, 1);
    submit_put(&due, 1);
    crash();
    check();
}

static void a_crash_within_a_sweep_leaves_counters_that_agree(void **state)
{
    (void)state;
    make(1, 1);
    put(Q, "dies", 0);
    struct plan plan = plan_from(Q, 0, 1);
    assert_int_equal(claim_plan(Q, &plan, 1000), 1);
    make_tail_that_comes_due(0);
    pass_unswept(2000);
    submit_sweep();
    crash();
    check();
    assert_int_equal(view(Q)->dead, 1);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_DROP, NULL, 0, 1000, -1), 1);
    assert_int_equal(view(Q)->dead, 0);
}

static void a_crash_within_a_redrive_leaves_counters_that_agree(void **state)
{
    (void)state;
    make(1, 1);
    struct message_id ids[3];
    put_many(Q, 3, 0);
    assert_int_equal(claim(Q, 3), 3);
    for (int i = 0; i < 3; i++)
        ids[i] = d.shown[i].id;
    sleep_ms(60000);
    assert_int_equal(view(Q)->dead, 3);
    submit((struct engine_op){.verb = ENGINE_DEAD_REDRIVE,
                              .queue = queue(Q),
                              .bulk = {.ids = ids, .id_count = 3, .slot = -1, .max = 1000}});
    crash();
    assert_int_equal(view(Q)->ready + view(Q)->dead, 3);
    check();
}

static void a_deleted_queue_is_not_swept(void **state)
{
    (void)state;
    make(1, 3);
    put(Q, "x", 0);
    assert_int_equal(claim(Q, 1), 1);
    submit((struct engine_op){.verb = ENGINE_QUEUE_DELETE, .queue = queue(Q)});
    pass_unswept(60000);
    rig_sweep(&d.rig, 1000);
    crash();
    assert_null(queue(Q));
    make(1, 3);
    put(Q, "y", 0);
    check();
}

static void a_purge_of_a_tail_survives_a_restart(void **state)
{
    (void)state;
    make(1, 3);
    put_many(Q, 60, 0);
    assert_int_equal(claim(Q, 10), 10);
    assert_true(tail() > 0);
    assert_int_equal(purge(Q, 1000, queue(Q)->next_seq), 50);
    crash();
    assert_int_equal(view(Q)->totals.cancelled, 50);
    assert_int_equal(view(Q)->ready, 0);
    assert_int_equal(view(Q)->leased, 10);
    check();
}

/* The producer had no answer and tries again: either its message is there, or it is stored now. */
static void a_dedup_key_never_outlives_a_crash_without_its_message(void **state)
{
    (void)state;
    make(2, 3);
    make_tail_that_comes_due(0);
    put_many(Q, 12, 1);
    pass_unswept(2000);
    struct put_item cold = item("cold", 1, NULL), keyed = item("keyed", 0, "K");
    submit_put(&cold, 1);
    submit_put(&keyed, 1);
    crash();
    struct put_item again = put_spec(Q, (struct spec){.payload = "keyed", .rank = 0, .dedup = "K"});
    assert_int_equal(again.status, STATUS_OK);
    assert_int_equal(state_of(Q, again.id), MESSAGE_READY);
    check();
}

static struct message_id gone;
static uint32_t times_returned;

static void look_for_gone(struct engine_op *op, const struct engine_queue *q,
                          const struct message *m, struct instant now)
{
    (void)op, (void)q, (void)now;
    times_returned += message_seq(m) == gone.seq;
}

/* It is cancelled while all of its level is in memory, and its record still on the way out when the
 * next message begins a tail. */
static void a_cancelled_message_stays_gone_when_a_tail_begins(void **state)
{
    (void)state;
    make(1, 3);
    put_many(Q, 25, 0);
    assert_int_equal(claim(Q, 10), 10);
    while (tail() > 0)
        claim_one(Q);
    uint64_t left = view(Q)->ready;
    gone = message_identity(lane_last_born(&resident_queue_of(queue(Q))->core.lanes[slot_of(Q, 0)]),
                            queue(Q)->id);
    struct put_item next = item("new", 0, NULL);
    struct plan plan = plan_from(Q, 0, 40);
    submit((struct engine_op){.verb = ENGINE_CANCEL, .queue = queue(Q), .one = {.id = gone}});
    submit_put(&next, 1);
    uint64_t begun = tail();
    times_returned = 0;
    struct engine_op op = {.verb = ENGINE_CLAIM,
                           .queue = queue(Q),
                           .visit = look_for_gone,
                           .claim = {.plan = &plan, .lease_ms = -1}};
    rig_run_one(&d.rig, &op);
    assert_int_equal(begun, 1);
    assert_int_equal(times_returned, 0);
    assert_int_equal(op.claim.found, left);
    assert_int_equal(view(Q)->ready, 0);
    check();
}

static void one_delayed_message_does_not_keep_a_lane_in_memory(void **state)
{
    (void)state;
    make(1, 9);
    put(Q, "later", 0);
    struct shown s = claim_one(Q);
    assert_int_equal(nack(Q, &s, 3600000, "not now", NULL), STATUS_OK);
    for (int i = 0; i < 20; i++) {
        put_many(Q, 200, 0);
        pass_unswept(1);
    }
    assert_int_equal(view(Q)->ready, 4000);
    assert_true(tail() > 3000);
    assert_true(rig_counter(&d.rig, "resident_bytes") < 2 * d.rig.memory_limit);
}

#define LISTED 60

static uint32_t times_listed[LISTED + 1];

static void count_listed(struct engine_op *op, const struct engine_queue *q,
                         const struct message *m, struct instant now)
{
    (void)op, (void)q, (void)now;
    assert_in_range(message_seq(m), 1, LISTED);
    times_listed[message_seq(m)]++;
}

/* The first page is followed by claims that bring some of the tail into memory. */
static void a_listing_shows_each_message_once_while_the_window_moves(void **state)
{
    (void)state;
    bool claimed[LISTED + 1] = {false};
    memset(times_listed, 0, sizeof(times_listed));
    make(1, 3);
    put_many(Q, LISTED, 0);
    struct list_cursor at = {0};
    for (bool more = true, first = true; more; first = false) {
        struct engine_op op = {.verb = ENGINE_LIST, .queue = queue(Q), .visit = count_listed};
        op.list.after = at;
        op.list.limit = 10;
        rig_run_one(&d.rig, &op);
        at = op.list.next;
        more = op.list.more;
        for (int i = 0; first && i < 9; i++)
            claimed[claim_one(Q).id.seq] = true;
    }
    for (int seq = 1; seq <= LISTED; seq++)
        assert_true(times_listed[seq] == 1 || claimed[seq]);
}

/* Groups follow each other without a pause: there is always one under way. */
static void what_waits_for_a_group_does_not_pile_up(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    make(1, 3);
    struct local_queue *lq = local_queue_of(&resident_queue_of(queue(Q))->core);
    struct put_item *items = mem_zalloc(COUNT * sizeof(*items));
    for (uint32_t i = 0; i < COUNT; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%u", i);
        items[i] = item("x", 0, key);
        submit_put(&items[i], 1);
        while (d.rig.engine->in_flight > 1) {
            if (engine_poll(d.rig.engine) == 0)
                sched_yield();
        }
        engine_flush(d.rig.engine);
    }
    rig_sweep(&d.rig, 1000);
    free(items);
    assert_in_range(lq->limbo_cap, 1, 512);
    assert_in_range(lq->dedup_cap, 1, 512);
    assert_int_equal(view(Q)->ready, COUNT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_crash_within_a_batch_leaves_counters_that_agree),
        TEST(a_crash_within_a_group_leaves_counters_that_agree),
        TEST(a_crash_within_a_sweep_leaves_counters_that_agree),
        TEST(a_crash_within_a_redrive_leaves_counters_that_agree),
        TEST(a_deleted_queue_is_not_swept),
        TEST(a_purge_of_a_tail_survives_a_restart),
        TEST(a_dedup_key_never_outlives_a_crash_without_its_message),
        TEST(a_cancelled_message_stays_gone_when_a_tail_begins),
        cmocka_unit_test_setup_teardown(one_delayed_message_does_not_keep_a_lane_in_memory,
                                        setup_roomier, teardown),
        TEST(a_listing_shows_each_message_once_while_the_window_moves),
        TEST(what_waits_for_a_group_does_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
