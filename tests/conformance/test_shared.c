/* What an engine has to do because others work on the same queues. A session of SQL is the others:
 * what it does, and when, is up to the test. Needs a database: see tools/run-tests. */
#include "base/mem.h"
#include "conformance/driver.h"
#include "engine/postgres/wire.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

#define Q "shared"

static PGconn *others;

/* One value, as text; borrowed until the next. */
static const char *sql(const char *text)
{
    static char value[64];
    PGresult *r = PQexec(others, text);
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", text, PQerrorMessage(others));
    snprintf(value, sizeof(value), "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    return value;
}

static void make(void)
{
    struct queue_config c = rig_config(2);
    c.max_depth = 1000; /* whoever puts waits for who has the turn to count */
    make_queue(Q, &c);
}

static int setup(void **state)
{
    (void)state;
    d.variant = "postgres";
    d.restarts_always = d.checks = false;
    d.shown_count = d.steps = 0;
    rig_init(&d.rig, &(struct rig_options){.kind = "postgres", .durability = DURABILITY_OS});
    others = PQconnectdb(getenv("TRIAGE_TEST_POSTGRES"));
    make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    PQfinish(others);
    rig_fini(&d.rig);
    return 0;
}

/* Groups that are under way side by side */

static void count_done(struct engine_op *op)
{
    ++*(uint32_t *)op->user;
}

static void ignore(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                   struct instant now)
{
    (void)op, (void)q, (void)m, (void)now;
}

/* A group of its own. */
static void begin(struct engine_op *op, uint32_t *done)
{
    op->queue = queue(Q);
    op->done = count_done;
    op->visit = ignore;
    op->user = done;
    engine_submit(d.rig.engine, op, d.rig.now);
    engine_flush(d.rig.engine);
}

static struct engine_op a_claim(struct plan *plan)
{
    *plan = plan_from(Q, 0, 1);
    return (struct engine_op){.verb = ENGINE_CLAIM, .claim = {.plan = plan, .lease_ms = -1}};
}

/* The put is answered first, and the claim, which saw none of it, behind it: that there was nothing
 * to claim does not mean that there is nothing. Each group asks for attention once. */
static void a_claim_that_found_nothing_does_not_hide_what_came_meanwhile(void **state)
{
    (void)state;
    struct put_item item = {.draft = {.body = mem_alloc(1),
                                      .payload_len = 1,
                                      .ready_ms = READY_NOW,
                                      .ttl_ms = TTL_DEFAULT,
                                      .priority = {.kind = PRIORITY_NUMBER, .number = 0}}};
    *item.draft.body = 'x';
    struct engine_op put_op = {.verb = ENGINE_PUT, .put = {.items = &item, .count = 1}};
    struct plan first_plan, plan;
    uint32_t done = 0;
    rig_reopen(&d.rig);
    struct engine_op first = a_claim(&first_plan), claim_op = a_claim(&plan);
    begin(&first, &done); /* now it knows the queue */
    rig_wait(&d.rig);
    assert_int_equal(engine_poll(d.rig.engine), 1);
    sql("SELECT pg_advisory_lock(7422, id) FROM triage.queue WHERE name = '" Q "'");
    begin(&put_op, &done);
    begin(&claim_op, &done);
    rig_wait(&d.rig);
    sql("SELECT pg_advisory_unlock_all()");
    rig_wait(&d.rig);
    assert_int_equal(engine_poll(d.rig.engine), 2);
    assert_int_equal(done, 3);
    assert_int_equal(item.status, STATUS_OK);
    assert_int_equal(claim_op.claim.found, 0);
    assert_int_equal(view(Q)->ready, 1);
}

/* What others configured */

static void what_others_configured_counts_from_the_next_op_on(void **state)
{
    (void)state;
    uint32_t version = queue(Q)->version;
    sql("SELECT triage.configure('" Q "', '{\"levels\": [{\"name\": \"new\", \"number\": 7},"
        " {\"name\": \"L1\", \"number\": 1}], \"drop_levels\": true, \"max_attempts\": 9}')");
    struct message_id id = put(Q, "x", 1);
    assert_int_equal(id.slot, slot_of(Q, 1));
    assert_true(queue(Q)->version > version);
    assert_int_equal(queue(Q)->config.max_attempts, 9);
    assert_string_equal(queue(Q)->config.levels[0].name, "new");
    sql("SELECT triage.pause('" Q "')");
    struct plan plan;
    uint32_t done = 0;
    struct engine_op claim_op = a_claim(&plan); /* planned before anybody here knew */
    begin(&claim_op, &done);
    while (done == 0) {
        rig_wait(&d.rig);
        engine_poll(d.rig.engine);
    }
    assert_true(claim_op.outdated);
    assert_true(claim_op.status != STATUS_OK);
    assert_int_equal(claim_op.claim.found, 0);
    assert_true(queue(Q)->config.paused);
    assert_string_equal(sql("SELECT count(*) FROM triage.leased"), "0");
}

/* Where there are no limits enqueues go another way. */
static void so_it_does_without_limits(void **state)
{
    (void)state;
    struct queue_config config = rig_config(2);
    make_queue("plain", &config);
    uint32_t version = queue("plain")->version;
    sql("SELECT triage.configure('plain', '{\"levels\": [{\"name\": \"new\", \"number\": 7},"
        " {\"name\": \"L1\", \"number\": 1}], \"drop_levels\": true}')");
    struct message_id id = put("plain", "x", 1);
    assert_int_equal(id.slot, slot_of("plain", 1));
    assert_true(queue("plain")->version > version);
    struct shown s = claim_one("plain");
    version = queue("plain")->version;
    sql("SELECT triage.configure('plain', '{\"history_seconds\": 60}')");
    assert_int_equal(ack("plain", &s), STATUS_OK);
    assert_true(queue("plain")->version > version);
    assert_int_equal(state_of("plain", id), MESSAGE_DONE);
}

static void a_queue_that_others_deleted_is_not_found(void **state)
{
    (void)state;
    uint32_t done = 0;
    struct engine_op op = {.verb = ENGINE_PURGE, .bulk = {.max = 1, .before_seq = UINT64_MAX}};
    sql("SELECT triage.drop_queue('" Q "', true)");
    begin(&op, &done);
    while (done == 0) {
        rig_wait(&d.rig);
        engine_poll(d.rig.engine);
    }
    assert_int_equal(op.status, STATUS_QUEUE_NOT_FOUND);
    rig_sweep(&d.rig, 100);
    assert_null(queue(Q));
}

/* The id belongs to another name now, and the name to another id: as after a restored backup. */
static void a_database_that_is_another_one_is_taken_as_it_is(void **state)
{
    (void)state;
    struct queue_config config = rig_config(2);
    make_queue("other", &config);
    struct engine_queue *old = queue(Q);
    sql("DELETE FROM triage.queue WHERE name = 'other' RETURNING id");
    sql("UPDATE triage.queue SET name = 'other', version = 77 WHERE name = '" Q "' RETURNING id");
    struct engine_op op = {.verb = ENGINE_QUEUE_OPEN, .open = {.name = "other"}};
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.queue->version, 77);
    assert_ptr_equal(queue("other"), op.queue);
    assert_ptr_not_equal(op.queue, old);
    assert_null(queue(Q));
    assert_true(old->gone);
    rig_sweep(&d.rig, 100);
    assert_true(put("other", "x", 0).seq > 0);
}

/* Places that others set */

#define ID "(SELECT id FROM triage.queue WHERE name = '" Q "')"

static uint32_t touched_count;

static void count_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op;
    touched_count += q == queue(Q);
}

static void look(void)
{
    struct engine_op op = {.verb = ENGINE_SWEEP,
                           .sweep = {.max = 100, .look = true, .touched = count_touched}};
    touched_count = 0;
    rig_run_one(&d.rig, &op);
}

static void assert_place(uint64_t epoch, bool closed, const char *map)
{
    assert_non_null(queue(Q)->place);
    assert_int_equal(queue(Q)->place->epoch, epoch);
    assert_int_equal(queue(Q)->place->closed, closed);
    assert_int_equal(queue(Q)->place->map_len, strlen(map));
    assert_memory_equal(queue(Q)->place->map, map, strlen(map));
}

static enum status put_by(uint64_t epoch)
{
    struct put_item item = {.draft = draft_of(Q, (struct spec){.payload = "x"})};
    struct engine_op op = {
        .verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = &item, .count = 1, .epoch = epoch}};
    rig_run_one(&d.rig, &op);
    draft_fini(&item.draft);
    return op.status;
}

static void a_place_that_others_set_is_shown_by_a_sweep(void **state)
{
    (void)state;
    look();
    uint32_t version = queue(Q)->version;
    sql("SELECT stale FROM triage.engine_queue_place(" ID ", 4, false, 'a=1')");
    assert_null(queue(Q)->place);
    look();
    assert_true(touched_count > 0);
    assert_place(4, false, "a=1");
    assert_int_equal(queue(Q)->version, version);
    assert_string_equal(sql("SELECT stale FROM triage.engine_queue_place(" ID ", 4, true, 'late')"),
                        "t");
    look();
    assert_place(4, false, "a=1");
}

static void what_a_place_of_others_refuses_is_told_with_the_place(void **state)
{
    (void)state;
    struct plan plan;
    uint32_t done = 0;
    put(Q, "before", 0);
    sql("SELECT stale FROM triage.engine_queue_place(" ID ", 4, true, 'gone')");
    assert_null(queue(Q)->place);
    struct engine_op claim_op = a_claim(&plan);
    begin(&claim_op, &done);
    while (done == 0) {
        rig_wait(&d.rig);
        engine_poll(d.rig.engine);
    }
    assert_false(claim_op.outdated); /* a place is no configuration */
    assert_int_equal(claim_op.claim.found, 1);
    assert_int_equal(put_by(9), STATUS_MOVED);
    assert_place(4, true, "gone");
    sql("SELECT stale FROM triage.engine_queue_place(" ID ", 5, false, 'back')");
    assert_int_equal(put_by(4), STATUS_MOVED);
    assert_place(5, false, "back");
    assert_int_equal(put_by(5), STATUS_OK);
    assert_string_equal(sql("SELECT count(*) FROM triage.ready"), "1");
}

static void a_place_that_is_stale_here_is_answered_with_the_newer_one(void **state)
{
    (void)state;
    sql("SELECT stale FROM triage.engine_queue_place(" ID ", 6, true, 'theirs')");
    struct engine_op op = {.verb = ENGINE_QUEUE_PLACE, .queue = queue(Q)};
    op.place.epoch = 6;
    op.place.map = "ours";
    op.place.map_len = 4;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true(op.place.stale);
    assert_place(6, true, "theirs");
}

/* Others are about to commit a put that the new place would refuse: that is waited for, so that
 * nothing comes in after the answer. */
static void a_place_waits_for_puts_that_are_under_way(void **state)
{
    (void)state;
    uint32_t done = 0;
    struct engine_op op = {.verb = ENGINE_QUEUE_PLACE};
    op.place.epoch = 1;
    op.place.closed = true;
    op.place.map = "";
    PQclear(PQexec(others, "BEGIN"));
    sql("SELECT triage.enqueue('" Q "', 'late'::text)");
    begin(&op, &done);
    PGconn *watcher = PQconnectdb(getenv("TRIAGE_TEST_POSTGRES"));
    for (bool waits = false; !waits;) {
        PGresult *r = PQexec(watcher, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND "
                                      "classid = 7425 AND NOT granted");
        waits = PQntuples(r) > 0;
        PQclear(r);
    }
    PQfinish(watcher);
    engine_poll(d.rig.engine);
    assert_int_equal(done, 0);
    PQclear(PQexec(others, "COMMIT"));
    while (done == 0) {
        rig_wait(&d.rig);
        engine_poll(d.rig.engine);
    }
    assert_int_equal(op.status, STATUS_OK);
    assert_string_equal(sql("SELECT count(*) FROM triage.ready"), "1");
    PGresult *r = PQexec(others, "SELECT triage.enqueue('" Q "', 'later'::text)");
    assert_string_equal(PQresultErrorField(r, PG_DIAG_SQLSTATE), "TR503");
    PQclear(r);
}

static void a_queue_that_others_placed_has_its_place_when_it_is_found(void **state)
{
    (void)state;
    sql("SELECT triage.configure('theirs', '{}')");
    sql("SELECT stale FROM triage.engine_queue_place("
        "(SELECT id FROM triage.queue WHERE name = 'theirs'), 3, false, 'm')");
    struct engine_op op = {.verb = ENGINE_QUEUE_OPEN, .open = {.name = "theirs"}};
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_non_null(op.queue->place);
    assert_int_equal(op.queue->place->epoch, 3);
}

/* What a group carries */

#define LARGE      (256 * 1024)
#define LARGE_MANY 96

static struct put_item large_item(uint32_t number)
{
    struct put_item item = {.draft = {.body = mem_alloc(LARGE),
                                      .payload_len = LARGE,
                                      .kind = PAYLOAD_BYTES,
                                      .ready_ms = READY_NOW,
                                      .ttl_ms = TTL_DEFAULT,
                                      .priority = {.kind = PRIORITY_NUMBER, .number = 0}}};
    memset(item.draft.body, (int)('a' + number % 26), LARGE);
    return item;
}

/* 24 MiB are waiting when the group is flushed: that is two groups, and nothing of it is missing.
 */
static void a_group_carries_so_many_bytes_and_the_rest_is_the_next_one(void **state)
{
    (void)state;
    struct put_item items[LARGE_MANY];
    struct engine_op ops[LARGE_MANY], *all[LARGE_MANY];
    for (uint32_t i = 0; i < LARGE_MANY; i++) {
        items[i] = large_item(i);
        ops[i] = (struct engine_op){
            .verb = ENGINE_PUT, .queue = queue(Q), .put = {.items = &items[i], .count = 1}};
        all[i] = &ops[i];
    }
    uint64_t groups = d.rig.engine->counters.groups;
    rig_run(&d.rig, all, LARGE_MANY);
    assert_int_equal(d.rig.engine->counters.groups, groups + 2);
    for (uint32_t i = 0; i < LARGE_MANY; i++) {
        assert_int_equal(ops[i].status, STATUS_OK);
        assert_int_equal(items[i].status, STATUS_OK);
        assert_true(i == 0 || items[i].id.seq > items[i - 1].id.seq);
    }
    assert_string_equal(sql("SELECT count(*) || ' of ' || min(octet_length(payload)) FROM "
                            "triage.body"),
                        "96 of 262144");
}

/* A value that does not fit is refused, and never NULL. */
static void a_value_that_is_too_long_for_the_database_is_not_sent(void **state)
{
    (void)state;
    struct params p = {0};
    param_int(&p, WIRE_INT4, 7);
    param_array(&p, WIRE_BYTEA_ARRAY);
    buf_reserve(&p.bytes, (size_t)PARAM_BYTES_MAX + 1);
    p.bytes.len += PARAM_BYTES_MAX; /* as if it had been written */
    param_array_end(&p);
    assert_true(p.too_long);
    params_clear(&p);
    param_int(&p, WIRE_INT4, 7);
    assert_false(p.too_long);
    params_fini(&p);
}

/* Notifications */

static uint64_t touched_ready;

static void see_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op;
    if (strcmp(q->name, Q) == 0)
        touched_ready = q->view.ready;
}

/* With the machine's clocks the engine listens. Here they stand still for it, so that it never
 * looks by itself. */
static void a_notification_asks_for_a_look(void **state)
{
    (void)state;
    delete_queue(Q);
    d.rig.now = (struct instant){0};
    rig_reopen(&d.rig);
    while (engine_next_due_ms(d.rig.engine, d.rig.now) > 0)
        rig_wait(&d.rig); /* it listens, and looks at what it may have missed */
    rig_sweep(&d.rig, 100);
    make();
    struct plan plan = plan_from(Q, 0, 1);
    assert_int_equal(claim_plan(Q, &plan, -1), 0);
    assert_string_equal(sql("UPDATE triage.waiting SET until_ms = until_ms + 3600000 RETURNING "
                            "(SELECT name FROM triage.queue WHERE id = queue)"),
                        Q); /* others know that somebody waits, now for long */
    assert_true(engine_next_due_ms(d.rig.engine, d.rig.now) > 0);
    sql("SELECT triage.enqueue('" Q "', 'x'::text)");
    while (engine_next_due_ms(d.rig.engine, d.rig.now) > 0)
        rig_wait(&d.rig);
    struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 100, .touched = see_touched}};
    touched_ready = 0;
    rig_run_one(&d.rig, &op);
    assert_int_equal(touched_ready, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_claim_that_found_nothing_does_not_hide_what_came_meanwhile),
        TEST(what_others_configured_counts_from_the_next_op_on),
        TEST(so_it_does_without_limits),
        TEST(a_queue_that_others_deleted_is_not_found),
        TEST(a_database_that_is_another_one_is_taken_as_it_is),
        TEST(a_group_carries_so_many_bytes_and_the_rest_is_the_next_one),
        TEST(a_value_that_is_too_long_for_the_database_is_not_sent),
        TEST(a_notification_asks_for_a_look),
        TEST(a_place_that_others_set_is_shown_by_a_sweep),
        TEST(what_a_place_of_others_refuses_is_told_with_the_place),
        TEST(a_place_that_is_stale_here_is_answered_with_the_newer_one),
        TEST(a_place_waits_for_puts_that_are_under_way),
        TEST(a_queue_that_others_placed_has_its_place_when_it_is_found),
    };
    enum { SKIPPED = 77 }; /* as Meson counts it */
    return getenv("TRIAGE_TEST_POSTGRES") ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
