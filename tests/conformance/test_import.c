/* Messages that come from elsewhere: nothing of what happened to them there is lost. "Elsewhere" is
 * another queue of the same engine, listed as an export lists it. */
#include "base/mem.h"
#include "conformance/driver.h"

#include <stdio.h>
#include <string.h>

#define FROM "from"
#define TO   "to"

static struct shown moved[SHOWN_MAX]; /* as the export saw them, in order of arrival */
static uint32_t moved_count;

static int by_seq(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    return x->id.seq < y->id.seq ? -1 : x->id.seq > y->id.seq;
}

static void export_all(const char *q)
{
    moved_count = list_all(q, 100);
    memcpy(moved, d.shown, moved_count * sizeof(moved[0]));
    qsort(moved, moved_count, sizeof(moved[0]), by_seq);
}

static struct import_item item_of(const char *q, const struct shown *s)
{
    const struct queue_config *config = &queue(q)->config;
    struct buf body = {0}, text = {0};
    buf_printf(&body, "%s%s%s", s->payload, s->metadata, s->dedup);
    buf_printf(&text, "%s%s%s", s->reason, s->actor, s->why);
    struct import_item item = {
        .draft = {.body = buf_take(&body),
                  .payload_len = (uint32_t)strlen(s->payload),
                  .metadata_len = (uint16_t)strlen(s->metadata),
                  .dedup_len = (uint16_t)strlen(s->dedup),
                  .kind = s->kind,
                  .priority = {.kind = PRIORITY_NAME},
                  .ready_ms = s->ready_ms},
        .origin = s->id,
        .enqueued_ms = s->enqueued_ms,
        .expire_ms = s->expire_ms,
        .dead = s->state == MESSAGE_DEAD,
        .died_ms = s->died_ms,
        .attempts = (uint16_t)s->attempts,
        .escalated = s->escalated,
        .escalated_ms = s->escalated_ms,
        .text = buf_take(&text),
        .reason_len = (uint16_t)strlen(s->reason),
        .actor_len = (uint16_t)strlen(s->actor),
        .why_len = (uint16_t)strlen(s->why),
    };
    int rank = levels_rank_of_slot(config, s->slot);
    snprintf(item.draft.priority.name, LEVEL_NAME_MAX + 1, "%s", config->levels[rank].name);
    rank = s->escalated ? levels_rank_of_slot(config, s->escalated_from) : -1;
    if (rank >= 0) {
        item.escalated_from.kind = PRIORITY_NAME;
        snprintf(item.escalated_from.name, LEVEL_NAME_MAX + 1, "%s", config->levels[rank].name);
    }
    return item;
}

/* Imports what was exported; returns how many were new. */
static uint32_t import_all(const char *from, const char *to)
{
    struct import_item *items = mem_zalloc(moved_count * sizeof(*items));
    uint32_t stored = 0;
    for (uint32_t i = 0; i < moved_count; i++)
        items[i] = item_of(from, &moved[i]);
    import(to, items, moved_count);
    for (uint32_t i = 0; i < moved_count; i++) {
        assert_int_equal(items[i].status, STATUS_OK);
        stored += !items[i].known;
        import_item_fini(&items[i]);
    }
    free(items);
    return stored;
}

static struct import_item import_one(const char *from, const char *to, const struct shown *s)
{
    struct import_item item = item_of(from, s);
    import(to, &item, 1);
    import_item_fini(&item);
    return item;
}

static const struct shown *find(const char *payload)
{
    for (uint32_t i = 0; i < d.shown_count; i++) {
        if (strcmp(d.shown[i].payload, payload) == 0)
            return &d.shown[i];
    }
    return NULL;
}

static void make_both(const struct queue_config *c)
{
    make_queue(FROM, c);
    make_queue(TO, c);
    /* Slots of the two need not be the same. */
    struct queue_config other = *c;
    other.levels[0] = c->levels[c->level_count - 1];
    other.levels[c->level_count - 1] = c->levels[0];
    assert_int_equal(set_queue(TO, &other), STATUS_OK);
    assert_int_equal(set_queue(TO, c), STATUS_OK);
}

static void kill(const char *q, const char *reason)
{
    for (;;) {
        enum message_state state;
        struct shown s = claim_one(q);
        assert_int_equal(nack(q, &s, 0, reason, &state), STATUS_OK);
        if (state == MESSAGE_DEAD)
            return;
    }
}

static void fill_mixed(void)
{
    put_spec(FROM, (struct spec){.payload = "poison", .metadata = "{\"a\":1}", .rank = 0});
    kill(FROM, "it broke");
    put_spec(FROM, (struct spec){.payload = "tried", .rank = 1, .dedup = "once"});
    struct shown s = claim_one(FROM);
    assert_int_equal(nack(FROM, &s, 0, "not yet", NULL), STATUS_OK);
    s = claim_one(FROM);
    assert_int_equal(nack(FROM, &s, 0, "still not", NULL), STATUS_OK);
    sleep_ms(7);
    put(FROM, "plain", 1);
    put(FROM, "plain too", 1);
    put_spec(FROM, (struct spec){.payload = "later", .rank = 2, .delay_ms = 60000});
    put_spec(FROM,
             (struct spec){.payload = "past", .rank = 1, .has_ready_at = true, .ready_at_ms = -5});
    put_spec(FROM, (struct spec){.payload = "mortal", .rank = 2, .ttl_ms = 5000});
    struct message_id id = put(FROM, "raised", 3);
    move(FROM, id, 1, "ann", "vip");
    put(FROM, "held", 0);
    assert_string_equal(claim_one(FROM).payload, "held");
    sleep_ms(11);
}

static void compare(const struct shown *was, const struct shown *is)
{
    assert_non_null(is);
    bool leased = was->state == MESSAGE_LEASED;
    assert_int_equal(is->state, leased ? MESSAGE_READY : was->state);
    assert_int_equal(levels_rank_of_slot(&queue(TO)->config, is->slot),
                     levels_rank_of_slot(&queue(FROM)->config, was->slot));
    assert_int_equal(is->kind, was->kind);
    assert_int_equal(is->attempts, was->attempts);
    assert_int_equal(is->ready_ms, was->ready_ms);
    assert_int_equal(is->enqueued_ms, was->enqueued_ms);
    assert_int_equal(is->expire_ms, was->expire_ms);
    assert_int_equal(is->died_ms, was->died_ms);
    assert_string_equal(is->metadata, was->metadata);
    assert_string_equal(is->dedup, was->dedup);
    assert_string_equal(is->reason, was->reason);
    assert_int_equal(is->escalated, was->escalated);
    assert_int_equal(is->escalated_ms, was->escalated_ms);
    assert_string_equal(is->actor, was->actor);
    assert_string_equal(is->why, was->why);
    if (was->escalated)
        assert_int_equal(levels_rank_of_slot(&queue(TO)->config, is->escalated_from),
                         levels_rank_of_slot(&queue(FROM)->config, was->escalated_from));
}

static void compare_all(void)
{
    assert_int_equal(list_all(TO, 100), moved_count);
    for (uint32_t i = 0; i < moved_count; i++)
        compare(&moved[i], find(moved[i].payload));
}

static void a_queue_that_was_moved_is_the_same_again(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config c = rig_config(4);
    make_both(&c);
    fill_mixed();
    export_all(FROM);
    assert_int_equal(moved_count, 9);
    assert_int_equal(import_all(FROM, TO), 9);
    compare_all();
    assert_int_equal(view(TO)->totals.enqueued, 9);
    restart();
    compare_all();
    assert_drains_as(TO, "held past tried plain plain too raised mortal");
}

static void equal_times_keep_their_order(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config c = rig_config(2);
    make_both(&c);
    put_many(FROM, 30, 1);
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 30);
    restart();
    assert_int_equal(claim(TO, 30), 30);
    for (uint32_t i = 0; i < 30; i++)
        assert_string_equal(d.shown[i].payload, moved[i].payload);
}

static void the_same_message_again_is_known(void **state)
{
    (void)state;
    struct queue_config c = rig_config(4);
    make_both(&c);
    fill_mixed();
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 9);
    assert_int_equal(import_all(FROM, TO), 0);
    compare_all();
    struct shown s = claim_one(TO);
    assert_int_equal(ack(TO, &s), STATUS_OK);
    restart();
    assert_int_equal(import_all(FROM, TO), 0);
    assert_int_equal(view(TO)->totals.enqueued, 9);
    sleep_ms(IMPORT_KNOWN_MS);
    const struct shown *was = NULL;
    for (uint32_t i = 0; i < moved_count; i++)
        was = strcmp(moved[i].payload, s.payload) == 0 ? &moved[i] : was;
    assert_false(import_one(FROM, TO, was).known);
}

/* Two servers number their messages alike. What is not the same must not be taken for it. */
static void messages_that_only_look_alike_are_all_stored(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put_many(FROM, 20, 1);
    put_many(TO, 3, 1);
    uint32_t have = list_all(TO, 100);
    export_all(FROM);
    for (uint32_t i = 0; i < moved_count; i++)
        moved[i].id.queue = queue(TO)->id; /* ids that this queue gives, too */
    assert_int_equal(import_all(FROM, TO), moved_count);
    assert_int_equal(list_all(TO, 100), have + moved_count);
    for (uint32_t i = 0; i < moved_count; i++)
        snprintf(moved[i].payload, sizeof(moved[i].payload), "other %u", i);
    assert_int_equal(import_all(FROM, TO), moved_count);
}

static void a_key_is_known_until_its_own_window_ends(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.dedup_window_ms = 1000;
    make_both(&c);
    put_spec(FROM, (struct spec){.payload = "over", .dedup = "old"});
    sleep_ms(600);
    put_spec(FROM, (struct spec){.payload = "a", .dedup = "k"});
    sleep_ms(500);
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 2);
    restart();
    export_all(TO);
    struct put_item again = put_spec(TO, (struct spec){.payload = "b", .dedup = "k"});
    assert_true(again.deduplicated);
    assert_int_equal(again.id.seq, moved[1].id.seq);
    assert_int_equal(again.enqueued_ms, moved[1].enqueued_ms);
    assert_false(put_spec(TO, (struct spec){.payload = "new", .dedup = "old"}).deduplicated);
    sleep_ms(500);
    assert_false(put_spec(TO, (struct spec){.payload = "c", .dedup = "k"}).deduplicated);
}

static void a_key_that_somebody_has_stays_theirs(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config c = rig_config(2);
    c.dedup_scope = DEDUP_LIVE;
    make_both(&c);
    put_spec(FROM, (struct spec){.payload = "a", .dedup = "k"});
    put_spec(FROM, (struct spec){.payload = "b", .dedup = "other"});
    struct message_id first = put_spec(TO, (struct spec){.payload = "mine", .dedup = "k"}).id;
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 2);
    struct put_item again = put_spec(TO, (struct spec){.payload = "c", .dedup = "k"});
    assert_true(again.deduplicated);
    assert_int_equal(again.id.seq, first.seq);
    assert_true(put_spec(TO, (struct spec){.payload = "c", .dedup = "other"}).deduplicated);
    assert_int_equal(cancel(TO, first), STATUS_OK);
    assert_false(put_spec(TO, (struct spec){.payload = "c", .dedup = "k"}).deduplicated);
    assert_drains_as(TO, "a b c");
}

static void dead_letters_stay_dead_until_they_are_redriven(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put(FROM, "one", 0);
    kill(FROM, "first");
    put(FROM, "two", 0);
    kill(FROM, "second");
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 2);
    assert_int_equal(claim(TO, 1), 0);
    assert_int_equal(dead_list(TO, 0, 10), 2);
    /* Those of several cells are listed cell by cell. */
    int first =
        engine_has(d.rig.engine, ENGINE_PARTITIONED) && strcmp(d.shown[0].reason, "first") != 0;
    assert_string_equal(d.shown[first].reason, "first");
    assert_string_equal(d.shown[!first].reason, "second");
    struct message_id one = d.shown[first].id;
    assert_int_equal(dead_bulk(TO, ENGINE_DEAD_DROP, &one, 1, 10, -1), 1);
    assert_int_equal(dead_bulk(TO, ENGINE_DEAD_REDRIVE, NULL, 0, 10, -1), 1);
    restart();
    struct shown s = claim_one(TO);
    assert_string_equal(s.payload, "two");
    assert_int_equal(s.attempts, 1);
    assert_int_equal(ack(TO, &s), STATUS_OK);
}

static void attempts_go_on_where_they_were(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put(FROM, "x", 0);
    for (int i = 0; i < 2; i++) {
        struct shown s = claim_one(FROM);
        assert_int_equal(nack(FROM, &s, 0, "no", NULL), STATUS_OK);
    }
    export_all(FROM);
    assert_int_equal(import_all(FROM, TO), 1);
    restart();
    struct shown s = claim_one(TO);
    assert_int_equal(s.attempts, 3);
    enum message_state end;
    assert_int_equal(nack(TO, &s, 0, "no", &end), STATUS_OK);
    assert_int_equal(end, MESSAGE_DEAD);
}

static void attempts_stop_at_the_most_there_can_be(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put(FROM, "x", 0);
    export_all(FROM);
    moved[0].attempts = UINT16_MAX;
    assert_int_equal(import_all(FROM, TO), 1);
    struct shown s = claim_one(TO);
    assert_int_equal(s.attempts, UINT16_MAX);
    restart();
    enum message_state end;
    assert_int_equal(nack(TO, &s, 0, "no", &end), STATUS_OK);
    assert_int_equal(end, MESSAGE_DEAD);
}

static void a_time_to_live_ends_when_it_was_to_end(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put_spec(FROM, (struct spec){.payload = "short", .ttl_ms = 1000});
    put_spec(FROM, (struct spec){.payload = "long", .ttl_ms = 5000, .delay_ms = 60000});
    export_all(FROM);
    sleep_ms(2000);
    assert_int_equal(import_all(FROM, TO), 2);
    assert_int_equal(view(TO)->totals.expired, 1);
    assert_int_equal(view(TO)->scheduled, 1);
    restart();
    sleep_ms(2999);
    assert_int_equal(view(TO)->scheduled, 1);
    sleep_ms(1);
    assert_int_equal(view(TO)->scheduled, 0);
    assert_int_equal(view(TO)->totals.expired, 2);
}

static void what_is_overdue_dies_where_that_is_the_rule(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    c.expired = EXPIRED_DEAD;
    make_both(&c);
    put_spec(FROM, (struct spec){.payload = "short", .ttl_ms = 1000});
    export_all(FROM);
    pass_unswept(2000);
    assert_int_equal(import_all(FROM, TO), 1);
    assert_int_equal(dead_list(TO, 0, 10), 1);
    assert_string_equal(d.shown[0].reason, "expired");
    assert_int_equal(d.shown[0].died_ms, d.rig.now.wall_ms);
}

static void limits_do_not_refuse_what_was_admitted_before(void **state)
{
    (void)state;
    struct queue_config c = rig_config(2);
    make_both(&c);
    put_many(FROM, 5, 0);
    export_all(FROM);
    c.max_depth = 2;
    c.max_bytes = 4;
    assert_int_equal(set_queue(TO, &c), STATUS_OK);
    assert_int_equal(import_all(FROM, TO), 5);
    assert_int_equal(view(TO)->ready, 5);
    assert_int_equal(put_spec(TO, (struct spec){.payload = "x"}).status, STATUS_QUEUE_FULL);
}

static void each_item_has_its_own_answer(void **state)
{
    (void)state;
    struct queue_config c = rig_config(3);
    make_both(&c);
    put(FROM, "a", 0);
    put(FROM, "b", 2);
    export_all(FROM);
    struct import_item items[] = {item_of(FROM, &moved[0]), item_of(FROM, &moved[1]),
                                  item_of(FROM, &moved[0])};
    snprintf(items[1].draft.priority.name, LEVEL_NAME_MAX + 1, "none such");
    import(TO, items, 3);
    assert_int_equal(items[0].status, STATUS_OK);
    assert_int_equal(items[1].status, STATUS_UNKNOWN_PRIORITY);
    assert_int_equal(items[2].status, STATUS_OK);
    assert_true(items[2].known);
    assert_int_equal(items[2].id.seq, items[0].id.seq);
    assert_drains_as(TO, "a");
    for (int i = 0; i < 3; i++)
        import_item_fini(&items[i]);
}

/* More than a small memory keeps, every third with a past. */
static void many_find_their_places(void **state)
{
    (void)state;
    if (!one_order())
        skip();
    struct queue_config c = rig_config(2);
    uint32_t count = d.restarts_always ? 40 : 900;
    d.checks = false;
    make_both(&c);
    put_many(FROM, count, 1);
    export_all(FROM);
    for (uint32_t i = 0; i < moved_count; i += 3) {
        moved[i].attempts = 1;
        snprintf(moved[i].reason, sizeof(moved[i].reason), "again");
    }
    assert_int_equal(import_all(FROM, TO), count);
    restart();
    assert_int_equal(view(TO)->ready, count);
    for (uint32_t i = 0; i < count; i++) {
        struct shown s = claim_one(TO);
        assert_string_equal(s.payload, moved[i].payload);
        assert_int_equal(s.attempts, moved[i].attempts + 1);
        assert_int_equal(ack(TO, &s), STATUS_OK);
    }
    assert_int_equal(claim(TO, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_that_was_moved_is_the_same_again),
        cmocka_unit_test(equal_times_keep_their_order),
        cmocka_unit_test(the_same_message_again_is_known),
        cmocka_unit_test(messages_that_only_look_alike_are_all_stored),
        cmocka_unit_test(a_key_is_known_until_its_own_window_ends),
        cmocka_unit_test(a_key_that_somebody_has_stays_theirs),
        cmocka_unit_test(dead_letters_stay_dead_until_they_are_redriven),
        cmocka_unit_test(attempts_go_on_where_they_were),
        cmocka_unit_test(attempts_stop_at_the_most_there_can_be),
        cmocka_unit_test(a_time_to_live_ends_when_it_was_to_end),
        cmocka_unit_test(what_is_overdue_dies_where_that_is_the_rule),
        cmocka_unit_test(limits_do_not_refuse_what_was_admitted_before),
        cmocka_unit_test(each_item_has_its_own_answer),
        cmocka_unit_test(many_find_their_places),
    };
    return driver_main(tests);
}
