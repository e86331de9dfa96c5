/* Places: which part of a larger queue a queue is. What is put by an older place is refused, what
 * is there already goes its way. On the engines that stand under `cells`: that has no places
 * itself. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define Q "part"

static void run(struct engine_op *op)
{
    rig_run_one(&d.rig, op);
    if (d.restarts_always)
        restart();
}

/* True: it was stale. */
static bool place_as(const char *q, uint64_t epoch, bool closed, const char *map, size_t len)
{
    struct engine_op op = {.verb = ENGINE_QUEUE_PLACE, .queue = queue(q)};
    op.place.epoch = epoch;
    op.place.closed = closed;
    op.place.map = map;
    op.place.map_len = (uint32_t)len;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    return op.place.stale;
}

static bool place(uint64_t epoch, bool closed, const char *map)
{
    return place_as(Q, epoch, closed, map, strlen(map));
}

static void assert_place(const char *q, uint64_t epoch, bool closed, const char *map)
{
    const struct queue_place *p = queue(q)->place;
    assert_non_null(p);
    assert_int_equal(p->epoch, epoch);
    assert_int_equal(p->closed, closed);
    assert_int_equal(p->map_len, strlen(map));
    assert_memory_equal(p->map, map, p->map_len);
}

static struct put_item put_at(uint64_t epoch, struct spec s, bool only_known, enum status *status)
{
    struct put_item item = {.draft = draft_of(Q, s), .only_known = only_known};
    struct engine_op op = {.verb = ENGINE_PUT, .queue = queue(Q)};
    op.put.items = &item;
    op.put.count = 1;
    op.put.epoch = epoch;
    run(&op);
    *status = op.status;
    bool taken = !op.status && !item.status && !item.deduplicated;
    assert_true((item.draft.body == NULL) == taken);
    draft_fini(&item.draft);
    return item;
}

static enum status put_by(uint64_t epoch, const char *payload)
{
    enum status status;
    struct put_item item = put_at(epoch, (struct spec){.payload = payload}, false, &status);
    if (!status)
        assert_int_equal(item.status, STATUS_OK);
    return status;
}

static struct put_item ask(uint64_t epoch, const char *dedup)
{
    enum status status;
    struct put_item item =
        put_at(epoch, (struct spec){.payload = "?", .dedup = dedup}, true, &status);
    assert_int_equal(status, STATUS_OK);
    return item;
}

static struct import_item imported(const char *payload)
{
    struct buf body = {0};
    buf_puts(&body, payload);
    struct import_item item = {
        .draft = {.body = buf_take(&body),
                  .payload_len = (uint32_t)strlen(payload),
                  .priority = {.kind = PRIORITY_NUMBER, .number = 0},
                  .ready_ms = d.rig.now.wall_ms},
        .origin = {.queue = 7, .ready_ms = d.rig.now.wall_ms, .seq = 99},
        .enqueued_ms = d.rig.now.wall_ms,
        .expire_ms = INT64_MAX,
    };
    return item;
}

static enum status import_by(uint64_t epoch, const char *payload)
{
    struct import_item item = imported(payload);
    struct engine_op op = {.verb = ENGINE_IMPORT, .queue = queue(Q)};
    op.import.items = &item;
    op.import.count = 1;
    op.import.epoch = epoch;
    run(&op);
    assert_true((item.draft.body == NULL) == (op.status == STATUS_OK));
    import_item_fini(&item);
    return op.status;
}

static void make(void)
{
    struct queue_config c = rig_config(2);
    make_queue(Q, &c);
}

/* What a place is */

static void a_queue_stands_alone_until_it_is_given_a_place(void **state)
{
    (void)state;
    make();
    assert_null(queue(Q)->place);
    assert_int_equal(put_by(0, "a"), STATUS_OK);
    assert_int_equal(put_by(7, "b"), STATUS_OK);
    assert_int_equal(import_by(0, "c"), STATUS_OK);
    restart();
    assert_null(queue(Q)->place);
    assert_int_equal(view(Q)->ready, 3);
}

static void a_newer_place_is_taken_and_any_other_is_stale(void **state)
{
    (void)state;
    make();
    assert_false(place(5, false, "a=1"));
    assert_place(Q, 5, false, "a=1");
    assert_true(place(5, true, "again"));
    assert_true(place(4, true, "older"));
    assert_true(place(1, true, ""));
    assert_place(Q, 5, false, "a=1");
    assert_false(place(6, true, ""));
    assert_place(Q, 6, true, "");
    assert_false(place(INT64_MAX, false, "last"));
    assert_true(place(7, true, "late"));
    assert_place(Q, INT64_MAX, false, "last");
}

static void a_place_survives_a_restart(void **state)
{
    (void)state;
    make();
    place(2, true, "b=2");
    restart();
    assert_place(Q, 2, true, "b=2");
    assert_int_equal(put_by(2, "a"), STATUS_MOVED);
    assert_true(place(2, false, "b=3"));
    assert_false(place(3, false, "b=3"));
    restart();
    restart();
    assert_place(Q, 3, false, "b=3");
    assert_int_equal(put_by(3, "a"), STATUS_OK);
    assert_int_equal(put_by(2, "a"), STATUS_MOVED);
}

static void a_map_is_kept_as_it_is(void **state)
{
    (void)state;
    static const char pattern[16] = "{\"a\":'\t\n\\u\xc3\xbc%s,;";
    char *map = mem_alloc(PLACE_MAP_MAX);
    assert_int_equal(PLACE_MAP_MAX % sizeof(pattern), 0); /* no character is cut */
    make();
    for (uint32_t i = 0; i < PLACE_MAP_MAX; i++)
        map[i] = pattern[i % sizeof(pattern)];
    assert_false(place_as(Q, 1, false, map, PLACE_MAP_MAX));
    restart();
    assert_int_equal(queue(Q)->place->map_len, PLACE_MAP_MAX);
    assert_memory_equal(queue(Q)->place->map, map, PLACE_MAP_MAX);
    free(map);
}

static void a_place_goes_with_its_queue(void **state)
{
    (void)state;
    struct queue_config c = rig_config(1);
    make();
    make_queue("other", &c);
    place(9, true, "gone");
    place_as("other", 4, true, "stays", 5);
    delete_queue(Q);
    make();
    assert_null(queue(Q)->place);
    assert_int_equal(put_by(0, "a"), STATUS_OK);
    restart();
    assert_null(queue(Q)->place);
    assert_false(place(1, false, "new"));
    assert_place("other", 4, true, "stays");
}

static void place_and_configuration_do_not_touch_each_other(void **state)
{
    (void)state;
    make();
    uint32_t version = queue(Q)->version;
    struct queue_config c = queue(Q)->config;
    place(3, false, "m");
    if (!d.restarts_always) /* an engine may count from anywhere at a start */
        assert_int_equal(queue(Q)->version, version);
    assert_int_equal(queue(Q)->config.max_attempts, c.max_attempts);
    c.max_attempts = 9;
    assert_int_equal(set_queue(Q, &c), STATUS_OK);
    restart();
    assert_place(Q, 3, false, "m");
    assert_int_equal(queue(Q)->config.max_attempts, 9);
}

/* What it refuses */

static void what_is_put_by_an_older_place_is_refused(void **state)
{
    (void)state;
    make();
    assert_int_equal(put_by(0, "a"), STATUS_OK);
    place(5, false, "m");
    assert_int_equal(put_by(0, "b"), STATUS_MOVED);
    assert_int_equal(put_by(4, "b"), STATUS_MOVED);
    assert_int_equal(import_by(0, "c"), STATUS_MOVED);
    assert_int_equal(import_by(4, "c"), STATUS_MOVED);
    assert_place(Q, 5, false, "m");
    assert_int_equal(put_by(5, "d"), STATUS_OK);
    assert_int_equal(put_by(6, "e"), STATUS_OK);
    assert_int_equal(import_by(5, "f"), STATUS_OK);
    assert_int_equal(view(Q)->totals.enqueued, 4);
    assert_int_equal(view(Q)->ready, 4);
    assert_int_equal(list_all(Q, 10), 4);
}

static void a_closed_queue_takes_nothing_from_anybody(void **state)
{
    (void)state;
    make();
    place(5, true, "m");
    assert_int_equal(put_by(0, "a"), STATUS_MOVED);
    assert_int_equal(put_by(5, "a"), STATUS_MOVED);
    assert_int_equal(put_by(INT64_MAX, "a"), STATUS_MOVED);
    assert_int_equal(import_by(5, "a"), STATUS_MOVED);
    assert_int_equal(import_by(INT64_MAX, "a"), STATUS_MOVED);
    assert_place(Q, 5, true, "m");
    assert_int_equal(view(Q)->totals.enqueued, 0);
    place(6, false, "m");
    assert_int_equal(put_by(5, "a"), STATUS_MOVED);
    assert_int_equal(put_by(6, "a"), STATUS_OK);
    assert_int_equal(import_by(6, "b"), STATUS_OK);
    assert_drains_as(Q, "a b");
}

/* Whatever else would be wrong with it: the refusal is for the whole op. */
static void the_place_is_looked_at_first(void **state)
{
    (void)state;
    enum status status;
    struct queue_config c = rig_config(1);
    c.max_depth = 1;
    make_queue(Q, &c);
    assert_int_equal(put_by(0, "a"), STATUS_OK);
    place(1, false, "");
    put_at(0, (struct spec){.payload = "x", .rank = -1}, false, &status);
    assert_int_equal(status, STATUS_MOVED);
    put_at(0, (struct spec){.payload = "x"}, false, &status);
    assert_int_equal(status, STATUS_MOVED);
    struct put_item item = put_at(1, (struct spec){.payload = "x"}, false, &status);
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(item.status, STATUS_QUEUE_FULL);
    assert_int_equal(view(Q)->totals.enqueued, 1);
}

/* What it leaves alone */

static void what_is_in_a_closed_queue_goes_its_way(void **state)
{
    (void)state;
    struct shown s;
    enum message_state after;
    struct queue_config c = rig_config(2);
    c.max_attempts = 1;
    make_queue(Q, &c);
    for (int i = 0; i < 6; i++)
        put(Q, (char[]){(char)('a' + i), '\0'}, 0);
    put_spec(Q, (struct spec){.payload = "later", .delay_ms = 1000});
    struct message_id last = put(Q, "last", 1);
    place(3, true, "");
    s = claim_one(Q);
    assert_string_equal(s.payload, "a");
    assert_int_equal(extend(Q, &s, 60000), STATUS_OK);
    assert_int_equal(ack(Q, &s), STATUS_OK);
    s = claim_one(Q);
    assert_int_equal(release(Q, &s), STATUS_OK);
    s = claim_one(Q);
    assert_string_equal(s.payload, "b");
    assert_int_equal(nack(Q, &s, 0, "no", &after), STATUS_OK);
    assert_int_equal(after, MESSAGE_DEAD);
    assert_int_equal(dead_list(Q, 0, 10), 1);
    assert_int_equal(dead_bulk(Q, ENGINE_DEAD_REDRIVE, NULL, 0, 10, -1), 1);
    assert_int_equal(move(Q, last, 0, "me", "now").status, STATUS_OK);
    assert_int_equal(state_of(Q, last), MESSAGE_READY);
    assert_int_equal(cancel(Q, last), STATUS_OK);
    assert_int_equal(count_before(Q, 0, d.rig.now.wall_ms + 1, 0).before, 5);
    assert_int_equal(list_all(Q, 3), 6);
    sleep_ms(2000);
    assert_drains_as(Q, "b c d e f later");
    assert_int_equal(put_by(3, "x"), STATUS_MOVED);
}

static void forget(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                   struct instant now)
{
    (void)op, (void)q, (void)s, (void)now;
}

/* A due time has its message where the schedule is. */
static void schedules_are_fired_in_a_closed_queue(void **state)
{
    (void)state;
    make();
    place(3, true, "");
    struct schedule s = {
        .name = "tick",
        .rule = {.time_zone = "UTC", .every_s = 60},
        .missed = MISSED_ALL,
        .grace_ms = 60000,
        .draft = draft_of(Q, (struct spec){.payload = "tick"}),
    };
    s.timing.next_ms = schedule_next(&s.rule, NULL, d.rig.now.wall_ms);
    struct engine_op set = {.verb = ENGINE_SCHEDULE_SET, .queue = queue(Q)};
    set.schedule.set = &s;
    set.schedule.show = forget;
    run(&set);
    assert_int_equal(set.status, STATUS_OK);
    pass_unswept(s.timing.next_ms - d.rig.now.wall_ms);
    struct put_item item = {0};
    struct engine_op fire = {.verb = ENGINE_FIRE, .queue = queue(Q)};
    fire.fire.name = s.name;
    fire.fire.step = schedule_decide(&s, NULL, d.rig.now.wall_ms);
    assert_true(fire.fire.step.puts);
    schedule_draft(&s, fire.fire.step.at_ms, &item.draft);
    fire.fire.item = &item;
    run(&fire);
    assert_int_equal(fire.status, STATUS_OK);
    assert_false(fire.fire.stale);
    draft_fini(&item.draft);
    schedule_fini(&s);
    assert_drains_as(Q, "tick");
}

/* Keys */

static void a_known_key_is_found_and_nothing_is_stored(void **state)
{
    (void)state;
    make();
    struct put_item first = put_spec(Q, (struct spec){.payload = "a", .dedup = "k"});
    for (int i = 0; i < 3; i++) {
        struct put_item found = ask(i == 0 ? 0 : 4, "k");
        assert_int_equal(found.status, STATUS_OK);
        assert_true(found.deduplicated);
        assert_int_equal(found.id.seq, first.id.seq);
        assert_int_equal(found.enqueued_ms, first.enqueued_ms);
        assert_int_equal(ask(4, "other").status, STATUS_MESSAGE_NOT_FOUND);
        assert_int_equal(ask(4, NULL).status, STATUS_MESSAGE_NOT_FOUND);
        if (i < 2)
            place((uint64_t)i + 3, i == 1, ""); /* then it is open, then closed */
    }
    assert_int_equal(view(Q)->totals.deduplicated, 3);
    assert_int_equal(view(Q)->totals.enqueued, 1);
    assert_int_equal(list_all(Q, 10), 1);
    enum status status;
    place(5, false, "");
    put_at(5, (struct spec){.payload = "x", .dedup = "other"}, false, &status);
    assert_int_equal(status, STATUS_OK); /* asking has not taken the key */
    assert_int_equal(view(Q)->totals.enqueued, 2);
}

static void keys_are_not_told_by_an_older_place(void **state)
{
    (void)state;
    enum status status;
    make();
    put_spec(Q, (struct spec){.payload = "a", .dedup = "k"});
    place(2, false, "");
    put_at(1, (struct spec){.payload = "?", .dedup = "k"}, true, &status);
    assert_int_equal(status, STATUS_MOVED);
    assert_true(ask(2, "k").deduplicated);
    sleep_ms(300001); /* the window is over */
    assert_int_equal(ask(2, "k").status, STATUS_MESSAGE_NOT_FOUND);
}

/* Groups */

struct part {
    struct engine_op op;
    struct put_item item;
};

static void part_of(struct part *p, const char *q, uint64_t epoch, const char *payload)
{
    p->item = (struct put_item){.draft = draft_of(q, (struct spec){.payload = payload})};
    p->op = (struct engine_op){.verb = ENGINE_PUT, .queue = queue(q)};
    p->op.put.items = &p->item;
    p->op.put.count = 1;
    p->op.put.epoch = epoch;
}

static void run_parts(struct part *parts, uint32_t count, const enum status *expected)
{
    struct engine_op *ops[8];
    for (uint32_t i = 0; i < count; i++)
        ops[i] = &parts[i].op;
    rig_run(&d.rig, ops, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(parts[i].op.status, expected[i]);
        if (parts[i].op.verb == ENGINE_PUT && !expected[i])
            assert_int_equal(parts[i].item.status, STATUS_OK);
        draft_fini(&parts[i].item.draft);
    }
    if (d.restarts_always)
        restart();
}

static void what_is_refused_fails_alone(void **state)
{
    (void)state;
    static const enum status expected[] = {STATUS_OK,    STATUS_MOVED, STATUS_OK, STATUS_MOVED,
                                           STATUS_MOVED, STATUS_OK,    STATUS_OK};
    struct queue_config c = rig_config(1);
    struct part parts[7];
    make();
    make_queue("closed", &c);
    make_queue("alone", &c);
    place(4, false, "m");
    place_as("closed", 1, true, "gone", 4);
    part_of(&parts[0], "alone", 0, "a");
    part_of(&parts[1], Q, 3, "b");
    part_of(&parts[2], Q, 4, "c");
    part_of(&parts[3], "closed", 1, "d");
    part_of(&parts[4], Q, 0, "e");
    part_of(&parts[5], Q, 5, "f");
    part_of(&parts[6], "alone", 9, "g");
    run_parts(parts, 7, expected);
    assert_place(Q, 4, false, "m");
    assert_place("closed", 1, true, "gone");
    assert_int_equal(view("alone")->ready, 2);
    assert_int_equal(view(Q)->ready, 2);
    assert_int_equal(view("closed")->ready, 0);
    assert_int_equal(view("closed")->totals.enqueued, 0);
}

/* Ops of many queues may share what they cost, but not a refusal. Each has several items, of which
 * some have a level that its queue does not have, or nothing but such items. */
static void what_is_refused_of_several_items_fails_alone(void **state)
{
    (void)state;
    enum { OPS = 8, EACH = 3 };
    static const char *const names[] = {"a", Q, "closed", "a", "closed", "b", "limited", "limited"};
    static const int known[] = {EACH, 2, 2, 1, 0, EACH, 1, 0}; /* items at a level that there is */
    static const uint64_t epochs[] = {0, 2, 7, 5, 7, 0, 7, 7};
    static const enum status expected[] = {STATUS_OK,    STATUS_MOVED, STATUS_MOVED, STATUS_OK,
                                           STATUS_MOVED, STATUS_OK,    STATUS_MOVED, STATUS_MOVED};
    struct queue_config c = rig_config(1);
    struct put_item items[OPS][EACH];
    struct engine_op each[OPS], *ops[OPS];
    make();
    make_queue("a", &c);
    make_queue("b", &c);
    make_queue("closed", &c);
    c.max_depth = 100;
    make_queue("limited", &c);
    place(3, false, "m");
    place_as("closed", 7, true, "gone", 4);
    place_as("limited", 7, true, "", 0);
    for (int o = 0; o < OPS; o++) {
        for (int i = 0; i < EACH; i++) {
            items[o][i] = (struct put_item){
                .draft = draft_of(names[o],
                                  (struct spec){.payload = "x", .rank = i < known[o] ? 0 : -1})};
        }
        each[o] = (struct engine_op){.verb = ENGINE_PUT, .queue = queue(names[o])};
        each[o].put.items = items[o];
        each[o].put.count = EACH;
        each[o].put.epoch = epochs[o];
        ops[o] = &each[o];
    }
    rig_run(&d.rig, ops, OPS);
    for (int o = 0; o < OPS; o++) {
        assert_int_equal(each[o].status, expected[o]);
        for (int i = 0; i < EACH; i++) {
            if (!expected[o])
                assert_int_equal(items[o][i].status,
                                 i < known[o] ? STATUS_OK : STATUS_UNKNOWN_PRIORITY);
            draft_fini(&items[o][i].draft);
        }
    }
    assert_place("closed", 7, true, "gone");
    assert_int_equal(view("a")->ready, EACH + 1);
    assert_int_equal(view("b")->ready, EACH);
    assert_int_equal(view(Q)->totals.enqueued, 0);
    assert_int_equal(view("closed")->totals.enqueued, 0);
    assert_int_equal(view("limited")->totals.enqueued, 0);
}

static void a_place_counts_from_where_it_was_submitted(void **state)
{
    (void)state;
    static const enum status expected[] = {STATUS_OK, STATUS_OK,    STATUS_MOVED, STATUS_MOVED,
                                           STATUS_OK, STATUS_MOVED, STATUS_OK};
    struct part parts[7];
    make();
    part_of(&parts[0], Q, 0, "a");
    part_of(&parts[2], Q, 0, "b");
    part_of(&parts[3], Q, 2, "c");
    part_of(&parts[5], Q, 2, "d");
    part_of(&parts[6], Q, 3, "e");
    for (uint32_t i = 1; i <= 4; i += 3) {
        parts[i].item = (struct put_item){0};
        parts[i].op = (struct engine_op){.verb = ENGINE_QUEUE_PLACE, .queue = queue(Q)};
        parts[i].op.place.epoch = i == 1 ? 2 : 3;
        parts[i].op.place.closed = i == 1;
        parts[i].op.place.map = "map";
        parts[i].op.place.map_len = 3;
    }
    run_parts(parts, 7, expected);
    assert_place(Q, 3, false, "map");
    assert_drains_as(Q, "a e");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_stands_alone_until_it_is_given_a_place),
        cmocka_unit_test(a_newer_place_is_taken_and_any_other_is_stale),
        cmocka_unit_test(a_place_survives_a_restart),
        cmocka_unit_test(a_map_is_kept_as_it_is),
        cmocka_unit_test(a_place_goes_with_its_queue),
        cmocka_unit_test(place_and_configuration_do_not_touch_each_other),
        cmocka_unit_test(what_is_put_by_an_older_place_is_refused),
        cmocka_unit_test(a_closed_queue_takes_nothing_from_anybody),
        cmocka_unit_test(the_place_is_looked_at_first),
        cmocka_unit_test(what_is_in_a_closed_queue_goes_its_way),
        cmocka_unit_test(schedules_are_fired_in_a_closed_queue),
        cmocka_unit_test(a_known_key_is_found_and_nothing_is_stored),
        cmocka_unit_test(keys_are_not_told_by_an_older_place),
        cmocka_unit_test(what_is_refused_fails_alone),
        cmocka_unit_test(what_is_refused_of_several_items_fails_alone),
        cmocka_unit_test(a_place_counts_from_where_it_was_submitted),
    };
    return driver_main_stores(tests);
}
