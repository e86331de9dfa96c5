/* Schedules: each due time has one message, and what is known of them is as durable as the rest. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "jobs"

/* What was shown last. */
static struct schedule seen[SCHEDULES_MAX + 1];
static uint32_t seen_count;

static void forget_seen(void)
{
    while (seen_count > 0)
        schedule_fini(&seen[--seen_count]);
}

static void remember(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                     struct instant now)
{
    (void)op, (void)q, (void)now;
    assert_true(seen_count < SCHEDULES_MAX + 1);
    schedule_copy(&seen[seen_count++], s);
}

static void run(struct engine_op *op)
{
    rig_run_one(&d.rig, op);
    if (d.restarts_always)
        restart();
}

static struct schedule every(const char *name, int64_t seconds, struct spec spec)
{
    struct schedule s = {
        .rule = {.time_zone = "UTC", .every_s = seconds},
        .missed = MISSED_ALL,
        .grace_ms = 60000,
        .draft = draft_of(Q, spec),
    };
    snprintf(s.name, sizeof(s.name), "%s", name);
    s.timing.next_ms = schedule_next(&s.rule, NULL, d.rig.now.wall_ms);
    return s;
}

/* Takes the schedule; seen[0] is what it has become. */
static enum status set(struct schedule s)
{
    struct engine_op op = {.verb = ENGINE_SCHEDULE_SET, .queue = queue(Q)};
    forget_seen();
    op.schedule.set = &s;
    op.schedule.show = remember;
    run(&op);
    schedule_fini(&s);
    return op.status;
}

static const struct schedule *show(const char *name)
{
    struct engine_op op = {.verb = ENGINE_SCHEDULE_LIST, .queue = queue(Q)};
    forget_seen();
    op.schedule.name = name;
    op.schedule.show = remember;
    run(&op);
    assert_int_equal(op.status, seen_count ? STATUS_OK : STATUS_SCHEDULE_NOT_FOUND);
    return seen_count ? &seen[0] : NULL;
}

static enum status drop(const char *name)
{
    struct engine_op op = {.verb = ENGINE_SCHEDULE_DELETE, .queue = queue(Q)};
    op.schedule.name = name;
    run(&op);
    return op.status;
}

/* Fires steps of a schedule as one group; the answers are in the ops. */
static void fire(const struct schedule *s, const struct schedule_step *steps, uint32_t count,
                 struct engine_op *ops)
{
    struct put_item items[64];
    struct engine_op *group[64];
    assert_true(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct put_item){0};
        ops[i] = (struct engine_op){.verb = ENGINE_FIRE, .queue = queue(Q)};
        ops[i].fire.name = s->name;
        ops[i].fire.step = steps[i];
        if (steps[i].puts) {
            schedule_draft(s, steps[i].at_ms, &items[i].draft);
            ops[i].fire.item = &items[i];
        }
        group[i] = &ops[i];
    }
    rig_run(&d.rig, group, count);
    for (uint32_t i = 0; i < count; i++)
        draft_fini(&items[i].draft);
    if (d.restarts_always)
        restart();
}

/* Does what the broker does in one turn; returns how many schedules were due. */
static uint32_t turn(void)
{
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 1000, .due = remember}};
    struct engine_op ops[8];
    forget_seen();
    engine_next_due_ms(d.rig.engine, d.rig.now);
    rig_run_one(&d.rig, &op);
    uint32_t due = seen_count;
    for (uint32_t i = 0; i < due; i++) {
        struct schedule_step steps[8];
        struct schedule at = seen[i];
        uint32_t count = 0;
        for (; count < 8 && at.timing.next_ms <= d.rig.now.wall_ms; count++) {
            steps[count] = schedule_decide(&at, NULL, d.rig.now.wall_ms);
            at.timing = schedule_after(&at.timing, &steps[count]);
        }
        fire(&seen[i], steps, count, ops);
    }
    return due;
}

/* Until nothing is due. What a restart's own sweep was shown is shown again a second later. */
static void turns(void)
{
    int idle = 0;
    for (int i = 0; i < 1000 && idle < 2; i++) {
        if (turn() > 0) {
            idle = 0;
            continue;
        }
        idle++;
        pass_unswept(SCHEDULE_AGAIN_MS);
    }
    assert_int_equal(idle, 2);
}

static int64_t due_of(const struct shown *m)
{
    static const char mark[] = "\"due_at\":\"";
    const char *at = strstr(m->metadata, mark);
    int64_t ms;
    assert_non_null(at);
    assert_true(time_parse_ms(at + strlen(mark), strcspn(at + strlen(mark), "\""), &ms));
    return ms;
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The messages there are are those of the due times from `first` on, one each. */
static void assert_due(int64_t first_ms, int64_t step_ms, uint32_t count)
{
    static int64_t found[SHOWN_MAX];
    uint32_t have = list_all(Q, 100);
    assert_int_equal(have, count);
    for (uint32_t i = 0; i < have; i++)
        found[i] = due_of(&d.shown[i]);
    qsort(found, have, sizeof(found[0]), by_number);
    for (uint32_t i = 0; i < have; i++)
        assert_int_equal(found[i], first_ms + i * step_ms);
}

static void begin(uint32_t max_depth)
{
    struct queue_config config = rig_config(2);
    config.max_depth = max_depth;
    make_queue(Q, &config);
}

static void each_due_time_has_one_message(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick", .rank = 1})),
                     STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    assert_true(first > d.rig.now.wall_ms && first <= d.rig.now.wall_ms + 60000);
    static const int64_t naps[] = {100, 59000, 1000, 300, 180000, 7, 61000, 59999, 1};
    for (size_t i = 0; i < sizeof(naps) / sizeof(naps[0]); i++) {
        pass_unswept(naps[i]);
        turns();
        restart();
    }
    uint32_t count = (uint32_t)((d.rig.now.wall_ms - first) / 60000 + 1);
    assert_due(first, 60000, count);
    assert_int_equal(show("tick")->timing.count, count);
    assert_int_equal(seen[0].timing.last_ms, first + (count - 1) * 60000);
    assert_int_equal(seen[0].timing.next_ms, first + count * 60000);
    const struct shown m = claim_one(Q);
    assert_string_equal(m.payload, "tick");
    assert_int_equal(m.slot, slot_of(Q, 1));
    assert_non_null(strstr(m.metadata, "\"schedule\":\"tick\""));
}

static void of_two_that_fire_a_due_time_one_does(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick"})), STATUS_OK);
    struct schedule s;
    schedule_copy(&s, &seen[0]);
    pass_unswept(s.timing.next_ms - d.rig.now.wall_ms);
    struct schedule_step steps[2] = {schedule_decide(&s, NULL, d.rig.now.wall_ms)};
    struct engine_op ops[2];
    steps[1] = steps[0];
    fire(&s, steps, 2, ops);
    assert_int_equal(ops[0].status, STATUS_OK);
    assert_int_equal(ops[1].status, STATUS_OK);
    assert_false(ops[0].fire.stale);
    assert_true(ops[1].fire.stale);
    restart();
    fire(&s, steps, 1, ops);
    assert_true(ops[0].fire.stale);
    assert_due(steps[0].at_ms, 60000, 1);
    schedule_fini(&s);
}

static void what_the_queue_refuses_stays_due(void **state)
{
    (void)state;
    begin(1);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick"})), STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    pass_unswept(60000);
    turns();
    pass_unswept(60000);
    assert_int_equal(turn(), 1); /* there is no room */
    assert_int_equal(show("tick")->timing.next_ms, first + 60000);
    assert_int_equal(seen[0].timing.count, 1);
    assert_due(first, 0, 1);
    struct shown m = claim_one(Q);
    assert_int_equal(ack(Q, &m), STATUS_OK);
    pass_unswept(SCHEDULE_AGAIN_MS);
    turns();
    assert_due(first + 60000, 0, 1);
}

/* Changes the configuration of the queue, or only asks. */
static void configure(struct engine_op *op, const struct queue_config *config, bool dry)
{
    static char schedule_name[QUEUE_NAME_MAX + 1];
    *op = (struct engine_op){.verb = ENGINE_QUEUE_SET, .queue = queue(Q)};
    op->set.schedule_name = schedule_name;
    op->set.name = Q;
    op->set.config = config;
    op->set.dry = dry;
    rig_run_one(&d.rig, op);
}

static void a_level_that_a_schedule_names_cannot_vanish(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick", .rank = 1})),
                     STATUS_OK);
    struct queue_config config = rig_config(1);
    struct engine_op op;
    for (int dry = 1; dry >= 0; dry--) {
        configure(&op, &config, dry);
        assert_int_equal(op.status, STATUS_LEVEL_IN_USE);
        assert_string_equal(op.set.level_name, "L1");
        assert_string_equal(op.set.schedule_name, "tick");
    }
    put(Q, "x", 1); /* and of both reasons the message is told */
    configure(&op, &config, false);
    assert_int_equal(op.status, STATUS_LEVEL_IN_USE);
    assert_string_equal(op.set.schedule_name, "");
    struct shown s = claim_one(Q);
    assert_int_equal(ack(Q, &s), STATUS_OK);
    assert_int_equal(drop("tick"), STATUS_OK);
    assert_int_equal(set_queue(Q, &config), STATUS_OK);
}

static void what_is_asked_dry_changes_nothing(void **state)
{
    (void)state;
    begin(0);
    struct queue_config config = rig_config(3);
    struct engine_op op;
    configure(&op, &config, true);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(queue(Q)->config.level_count, 2);
    configure(&op, &config, false);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(queue(Q)->config.level_count, 3);
}

/* It was set by a number, and numbers have changed their levels since. */
static void a_schedule_keeps_its_level_under_another_name(void **state)
{
    (void)state;
    begin(0);
    struct queue_config config = rig_config(3);
    for (int rank = 0; rank < 3; rank++) {
        config.levels[rank].has_number = true;
        config.levels[rank].number = rank;
    }
    assert_int_equal(set_queue(Q, &config), STATUS_OK);
    struct schedule s = every("tick", 60, (struct spec){.payload = "tick"});
    s.draft.priority = (struct priority_ref){.kind = PRIORITY_NUMBER, .number = 1};
    assert_int_equal(set(s), STATUS_OK);
    assert_int_equal(seen[0].draft.priority.kind, PRIORITY_NAME);
    assert_string_equal(seen[0].draft.priority.name, "L1");
    /* L0 has the number 1 now, and what was L1 goes on behind the others. */
    struct level was = config.levels[1];
    config.levels[1] = config.levels[2];
    config.levels[2] = was;
    config.levels[2].has_number = false;
    config.levels[2].number = 0;
    config.levels[2].heir_of = (uint8_t)(queue(Q)->config.levels[1].slot + 1);
    config.levels[0].number = 1;
    snprintf(config.levels[2].name, sizeof(config.levels[2].name), "old");
    assert_int_equal(set_queue(Q, &config), STATUS_OK);
    restart();
    assert_string_equal(show("tick")->draft.priority.name, "old");
    pass_unswept(60000);
    turns();
    put(Q, "first", 0);
    put(Q, "second", 1);
    assert_drains_as(Q, "first second tick");
}

static void a_step_without_a_message_only_moves_on(void **state)
{
    (void)state;
    begin(0);
    struct schedule s = every("tick", 60, (struct spec){.payload = "tick"});
    s.missed = MISSED_SKIP;
    s.grace_ms = 1000;
    assert_int_equal(set(s), STATUS_OK);
    pass_unswept(600000);
    turns();
    assert_int_equal(list_all(Q, 10), 0);
    assert_int_equal(show("tick")->timing.count, 0);
    assert_true(seen[0].timing.next_ms > d.rig.now.wall_ms - 3000);
    assert_int_equal(seen[0].timing.last_ms, SCHEDULE_NEVER_YET);
}

static void a_dedup_key_that_is_known_ends_the_due_time(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick", .dedup = "k"})),
                     STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    pass_unswept(180000);
    turns();
    restart();
    assert_due(first, 0, 1);
    assert_true(show("tick")->timing.count >= 3);
    assert_true(seen[0].timing.next_ms > d.rig.now.wall_ms - 3000);
}

static void setting_it_again_forgets_nothing(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "a"})), STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    pass_unswept(60000);
    turns();
    /* Another payload: what is due next stays, though it may be over by now. */
    pass_unswept(60000);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "b"})), STATUS_OK);
    assert_int_equal(seen[0].timing.next_ms, first + 60000);
    assert_int_equal(seen[0].timing.count, 1);
    assert_int_equal(seen[0].timing.last_ms, first);
    /* Another rule: from now on. */
    assert_int_equal(set(every("tick", 7, (struct spec){.payload = "c"})), STATUS_OK);
    assert_true(seen[0].timing.next_ms > d.rig.now.wall_ms);
    assert_int_equal(seen[0].timing.count, 1);
    /* Paused: never; and then from now on. */
    struct schedule s = every("tick", 7, (struct spec){.payload = "c"});
    s.paused = true;
    assert_int_equal(set(s), STATUS_OK);
    assert_int_equal(seen[0].timing.next_ms, SCHEDULE_NEVER);
    pass_unswept(700000);
    turns();
    assert_int_equal(list_all(Q, 10), 1);
    restart();
    assert_int_equal(set(every("tick", 7, (struct spec){.payload = "d"})), STATUS_OK);
    assert_true(seen[0].timing.next_ms > d.rig.now.wall_ms);
    assert_int_equal(show("tick")->timing.count, 1);
    assert_string_equal(seen[0].draft.body, "d");
}

static void a_clock_that_is_set_back_brings_no_due_time_twice(void **state)
{
    (void)state;
    begin(0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "a"})), STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    pass_unswept(120000);
    turns();
    uint32_t count = list_all(Q, 10);
    d.rig.now.wall_ms -= 120000;
    assert_int_equal(turn(), 0);
    assert_int_equal(set(every("tick", 30, (struct spec){.payload = "a"})), STATUS_OK);
    assert_true(seen[0].timing.next_ms <= first + 60000);
    pass_unswept(60000);
    turns();
    assert_due(first, 60000, count);
}

static void it_is_all_there_after_a_restart(void **state)
{
    (void)state;
    begin(0);
    struct schedule s = {
        .name = "nightly.report_1-A",
        .rule = {.cron = "0 3 * * MON-FRI", .time_zone = "Europe/Berlin"},
        .missed = MISSED_ONCE,
        .grace_ms = 1500,
        .draft = draft_of(Q, (struct spec){.payload = "{}",
                                           .metadata = "{\"a\":1}",
                                           .dedup = "key",
                                           .rank = 1,
                                           .delay_ms = 1200,
                                           .ttl_ms = 3400}),
        .timing = {.next_ms = d.rig.now.wall_ms + 5000},
    };
    s.draft.kind = PAYLOAD_JSON;
    assert_int_equal(set(s), STATUS_OK);
    restart();
    const struct schedule *r = show("nightly.report_1-A");
    assert_non_null(r);
    assert_string_equal(r->rule.cron, "0 3 * * MON-FRI");
    assert_string_equal(r->rule.time_zone, "Europe/Berlin");
    assert_int_equal(r->rule.every_s, 0);
    assert_int_equal(r->missed, MISSED_ONCE);
    assert_int_equal(r->grace_ms, 1500);
    assert_false(r->paused);
    assert_int_equal(r->timing.last_ms, SCHEDULE_NEVER_YET);
    assert_int_equal(r->draft.kind, PAYLOAD_JSON);
    assert_int_equal(r->draft.priority.kind, PRIORITY_NAME);
    assert_string_equal(r->draft.priority.name, "L1");
    assert_int_equal(r->draft.delay_ms, 1200);
    assert_int_equal(r->draft.ttl_ms, 3400);
    assert_memory_equal(r->draft.body, "{}{\"a\":1}key", 12);
    assert_int_equal(r->draft.payload_len, 2);
    assert_int_equal(r->draft.metadata_len, 7);
    assert_int_equal(r->draft.dedup_len, 3);
}

static void they_are_listed_by_name_and_go_with_their_queue(void **state)
{
    (void)state;
    begin(0);
    static const char *const names[] = {"b", "a.1", "B", "c", "a_1", "a"};
    static const char *const sorted[] = {"B", "a", "a.1", "a_1", "b", "c"};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(set(every(names[i], 60, (struct spec){.payload = "x"})), STATUS_OK);
    char after[QUEUE_NAME_MAX + 1] = "";
    for (size_t i = 0; i < 6; i += 2) {
        struct engine_op op = {.verb = ENGINE_SCHEDULE_LIST, .queue = queue(Q)};
        forget_seen();
        op.schedule.after = i > 0 ? after : NULL;
        op.schedule.limit = 2;
        op.schedule.show = remember;
        run(&op);
        assert_int_equal(op.schedule.found, 2);
        assert_int_equal(op.schedule.more, i < 4);
        assert_string_equal(seen[0].name, sorted[i]);
        assert_string_equal(seen[1].name, sorted[i + 1]);
        memcpy(after, seen[1].name, sizeof(after));
    }
    assert_int_equal(drop("b"), STATUS_OK);
    assert_int_equal(drop("b"), STATUS_SCHEDULE_NOT_FOUND);
    assert_null(show("b"));
    assert_non_null(show("c"));
    delete_queue(Q);
    begin(0);
    restart();
    assert_null(show("c"));
    pass_unswept(120000);
    assert_int_equal(turn(), 0);
}

static void a_queue_has_only_so_many(void **state)
{
    static struct schedule all[SCHEDULES_MAX];
    struct engine_op *ops[100];
    (void)state;
    if (d.restarts_always)
        return;
    begin(0);
    struct engine_op *memory = mem_zalloc(100 * sizeof(struct engine_op));
    for (uint32_t i = 0; i < SCHEDULES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%u", i);
        all[i] = every(name, 3600, (struct spec){.payload = "x"});
        ops[i % 100] = &memory[i % 100];
        memory[i % 100] = (struct engine_op){.verb = ENGINE_SCHEDULE_SET, .queue = queue(Q)};
        memory[i % 100].schedule.set = &all[i];
        if (i % 100 == 99)
            rig_run(&d.rig, ops, 100);
    }
    for (uint32_t i = 0; i < SCHEDULES_MAX; i++)
        schedule_fini(&all[i]);
    free(memory);
    assert_non_null(show("s0"));
    assert_non_null(show("s999"));
    assert_int_equal(set(every("one-too-many", 60, (struct spec){.payload = "x"})),
                     STATUS_QUOTA_EXCEEDED);
    assert_int_equal(set(every("s17", 60, (struct spec){.payload = "y"})), STATUS_OK);
    assert_int_equal(drop("s3"), STATUS_OK);
    assert_int_equal(set(every("one-more", 60, (struct spec){.payload = "x"})), STATUS_OK);
}

/* With little memory the message joins a tail, which is written otherwise. */
static void behind_a_backlog_it_is_the_same(void **state)
{
    (void)state;
    begin(0);
    d.checks = false;
    for (int i = 0; i < 40; i++)
        put_many(Q, 1, 0);
    assert_int_equal(set(every("tick", 60, (struct spec){.payload = "tick", .dedup = ""})),
                     STATUS_OK);
    int64_t first = seen[0].timing.next_ms;
    for (int i = 0; i < 6; i++) {
        pass_unswept(60000);
        turns();
        restart();
    }
    uint32_t count = (uint32_t)show("tick")->timing.count, found = 0;
    assert_int_equal(count, (d.rig.now.wall_ms - first) / 60000 + 1);
    uint32_t have = list_all(Q, 100);
    for (uint32_t i = 0; i < have; i++)
        found += strcmp(d.shown[i].payload, "tick") == 0;
    assert_int_equal(found, count);
    assert_int_equal(have, 40 + count);
}

static int finish(void **state)
{
    (void)state;
    forget_seen();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_due_time_has_one_message),
        cmocka_unit_test(of_two_that_fire_a_due_time_one_does),
        cmocka_unit_test(what_the_queue_refuses_stays_due),
        cmocka_unit_test(a_level_that_a_schedule_names_cannot_vanish),
        cmocka_unit_test(what_is_asked_dry_changes_nothing),
        cmocka_unit_test(a_schedule_keeps_its_level_under_another_name),
        cmocka_unit_test(a_step_without_a_message_only_moves_on),
        cmocka_unit_test(a_dedup_key_that_is_known_ends_the_due_time),
        cmocka_unit_test(setting_it_again_forgets_nothing),
        cmocka_unit_test(a_clock_that_is_set_back_brings_no_due_time_twice),
        cmocka_unit_test(it_is_all_there_after_a_restart),
        cmocka_unit_test(they_are_listed_by_name_and_go_with_their_queue),
        cmocka_unit_test(a_queue_has_only_so_many),
        cmocka_unit_test(behind_a_backlog_it_is_the_same),
    };
    int failed = driver_main(tests);
    finish(NULL);
    return failed;
}
