#include "conformance/driver.h"
#include "base/log.h"
#include "base/mem.h"
#include "example_engine/example.h"

#include <stdio.h>
#include <string.h>

struct driver d;

/* Engines */

struct variant {
    const char *name;
    struct rig_options rig;
    bool restarts_always;
    bool files;
    bool threads; /* it has some, beside those with files */
};

#define HOLD 3 /* polls that may report nothing, where answers are held back */

static const struct variant variants[] = {
    {.name = "memory", .rig = {.kind = "memory"}},
    {.name = "local", .rig = {.kind = "local"}, .files = true},
    {.name = "local, os", .rig = {.kind = "local", .durability = DURABILITY_OS}, .files = true},
    {.name = "local, interval, small memory",
     .rig = {.kind = "local", .durability = DURABILITY_INTERVAL, .memory_limit = 1},
     .files = true},
    {.name = "local, asked, small memory",
     .rig = {.kind = "local", .durability = DURABILITY_OS, .memory_limit = 1, .asks = true},
     .files = true},
    {.name = "local, restarted again and again",
     .rig = {.kind = "local", .durability = DURABILITY_OS},
     .restarts_always = true,
     .files = true},
    {.name = "postgres", .rig = {.kind = "postgres", .durability = DURABILITY_OS}},
    {.name = "postgres, restarted again and again",
     .rig = {.kind = "postgres", .durability = DURABILITY_OS},
     .restarts_always = true},
    {.name = "one cell of memory", .rig = {.kind = "memory", .cells = 1}},
    {.name = "three cells of memory", .rig = {.kind = "memory", .cells = 3}},
    {.name = "three cells of local",
     .rig = {.kind = "local", .cells = 3, .durability = DURABILITY_OS},
     .files = true},
    {.name = "one cell of postgres",
     .rig = {.kind = "postgres", .cells = 1, .durability = DURABILITY_OS}},
    {.name = "three cells of postgres",
     .rig = {.kind = "postgres", .cells = 3, .durability = DURABILITY_OS}},
    {.name = "example", .rig = {.kind = "example"}, .threads = true},
    /* With wrappers around them: nobody can tell, but for the time it takes. */
    {.name = "memory, traced", .rig = {.kind = "memory", .traced = true}},
    {.name = "memory, held back", .rig = {.kind = "memory", .hold_polls_max = HOLD}},
    {.name = "local, traced",
     .rig = {.kind = "local", .durability = DURABILITY_OS, .traced = true},
     .files = true},
    {.name = "local, held back, asked, small memory",
     .rig = {.kind = "local",
             .durability = DURABILITY_OS,
             .memory_limit = 1,
             .asks = true,
             .hold_polls_max = HOLD},
     .files = true},
    {.name = "postgres, traced and held back",
     .rig =
         {.kind = "postgres", .durability = DURABILITY_OS, .traced = true, .hold_polls_max = HOLD}},
};
static const struct variant *variant;

#define EVERY_STEP 60 /* of a test, and then some of them */

static int setup(void **state)
{
    (void)state;
    d.variant = variant->name;
    d.restarts_always = variant->restarts_always;
    d.checks = true;
    d.shown_count = d.steps = 0;
    log_set_level(variant->rig.traced ? LOG_WARN : LOG_INFO); /* the lines are made all the same */
    rig_init(&d.rig, &variant->rig);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_fini(&d.rig);
    return 0;
}

static int run_variant(const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest *named = mem_zalloc(count * sizeof(*named));
    for (size_t i = 0; i < count; i++) {
        struct buf name = {0};
        buf_printf(&name, "%s: %s", variant->name, tests[i].name);
        named[i] = tests[i];
        named[i].name = buf_take(&name);
        named[i].setup_func = setup;
        named[i].teardown_func = teardown;
    }
    int failed = _cmocka_run_group_tests(variant->name, named, count, NULL, NULL);
    for (size_t i = 0; i < count; i++)
        free((char *)named[i].name);
    free(named);
    return failed;
}

/* tools/run-tests starts a database for those that need one; the slowest wait for `make soak`.
 * With the thread sanitizer only those are of interest that have threads. */
static bool by_default(const struct variant *v)
{
    if (strcmp(v->rig.kind, "postgres") != 0)
        return !getenv("TRIAGE_TEST_THREADS") || v->threads || (v->files && !v->restarts_always);
    return getenv("TRIAGE_TEST_POSTGRES") && (!v->restarts_always || getenv("TRIAGE_SOAK"));
}

static bool in_scope(const struct variant *v, enum driver_scope scope)
{
    return scope == DRIVER_ALL || (scope == DRIVER_FILES ? v->files : v->rig.cells == 0);
}

int driver_run(const struct CMUnitTest *tests, size_t count, enum driver_scope scope)
{
    int failed = 0;
    engine_kind_add(&example_kind);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        variant = &variants[i];
        const char *only = getenv("TRIAGE_TEST_VARIANT");
        bool wanted = only ? strcmp(only, variant->name) == 0 : by_default(variant);
        if (wanted && in_scope(variant, scope))
            failed += run_variant(tests, count);
    }
    return failed;
}

/* What holds after any op */

static void see(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                struct instant now)
{
    (void)op, (void)now;
    assert_true(d.shown_count < SHOWN_MAX);
    struct shown *s = &d.shown[d.shown_count++];
    *s = (struct shown){.id = message_identity(m, q->id),
                        .state = m->state,
                        .slot = m->slot,
                        .kind = m->kind,
                        .attempts = m->attempts,
                        .ready_ms = m->ready_ms,
                        .enqueued_ms = m->enqueued_ms,
                        .expire_ms = m->expiry ? m->expiry->node.key : INT64_MAX,
                        .payload_len = m->payload_len};
    snprintf(s->payload, sizeof(s->payload), "%.*s", (int)m->payload_len, message_payload(m));
    snprintf(s->metadata, sizeof(s->metadata), "%.*s", (int)m->metadata_len, message_metadata(m));
    snprintf(s->dedup, sizeof(s->dedup), "%.*s", (int)m->dedup_len, message_dedup_key(m));
    if (!m->delivery)
        return;
    memcpy(s->receipt, m->delivery->receipt, RECEIPT_BYTES);
    s->lease_ms = m->delivery->lease_ms;
    s->lease_until_ms = m->delivery->lease_until_ms;
    s->died_ms = m->delivery->died_ms;
    snprintf(s->reason, sizeof(s->reason), "%.*s", (int)m->delivery->reason_len,
             m->delivery->reason ? m->delivery->reason : "");
    const struct escalation *e = m->delivery->escalation;
    s->escalated = e != NULL;
    if (!e)
        return;
    s->escalated_from = e->from_slot;
    s->escalated_ms = e->at_ms;
    snprintf(s->actor, sizeof(s->actor), "%.*s", e->actor_len, e->text);
    snprintf(s->why, sizeof(s->why), "%.*s", e->reason_len, e->text + e->actor_len);
}

static struct engine_op op_on(const char *q, enum engine_verb verb)
{
    d.shown_count = 0;
    return (struct engine_op){.verb = verb, .queue = queue(q), .visit = see};
}

/* Counts a queue by listing it, and compares with its view. An engine that has to ask knows the
 * heads once it was asked. */
static void recount(const char *q)
{
    struct queue_view have = *view(q);
    struct lane_view lanes[LEVEL_COUNT_MAX] = {0};
    uint64_t by_state[MESSAGE_STATE_COUNT] = {0};
    uint32_t found = list_all(q, 7);
    engine_check(d.rig.engine);
    for (uint32_t i = 0; i < found; i++) {
        const struct shown *s = &d.shown[i];
        by_state[s->state]++;
        lanes[s->slot].ready += s->state == MESSAGE_READY;
        lanes[s->slot].scheduled += s->state == MESSAGE_SCHEDULED;
        lanes[s->slot].leased += s->state == MESSAGE_LEASED;
        lanes[s->slot].dead += s->state == MESSAGE_DEAD;
        if (s->state == MESSAGE_READY &&
            (lanes[s->slot].ready == 1 || s->ready_ms < lanes[s->slot].head_ms))
            lanes[s->slot].head_ms = s->ready_ms;
    }
    assert_int_equal(have.ready, by_state[MESSAGE_READY]);
    assert_int_equal(have.scheduled, by_state[MESSAGE_SCHEDULED]);
    assert_int_equal(have.leased, by_state[MESSAGE_LEASED]);
    assert_int_equal(have.dead, by_state[MESSAGE_DEAD]);
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        assert_int_equal(have.lanes[i].ready, lanes[i].ready);
        assert_int_equal(have.lanes[i].scheduled, lanes[i].scheduled);
        assert_int_equal(have.lanes[i].leased, lanes[i].leased);
        assert_int_equal(have.lanes[i].dead, lanes[i].dead);
        if (lanes[i].ready)
            assert_int_equal(view(q)->lanes[i].head_ms, lanes[i].head_ms);
    }
    const struct queue_totals *t = &have.totals;
    assert_int_equal(t->enqueued, have.ready + have.scheduled + have.leased + have.dead + t->acked +
                                      t->expired + t->cancelled);
}

static void check_all(void)
{
    static struct shown kept[SHOWN_MAX];
    uint32_t kept_count = d.shown_count;
    if (!d.checks)
        return;
    memcpy(kept, d.shown, kept_count * sizeof(kept[0]));
    char names[16][QUEUE_NAME_MAX + 1];
    size_t count = 0, at = 0;
    for (struct engine_queue *q; count < 16 && (q = engine_queue_each(d.rig.engine, &at));)
        memcpy(names[count++], q->name, sizeof(names[0]));
    for (size_t i = 0; i < count; i++)
        recount(names[i]);
    memcpy(d.shown, kept, kept_count * sizeof(kept[0]));
    d.shown_count = kept_count;
}

/* Runs an op that changes something. Where one op is like the last, a restart now and then will do.
 */
static void run(struct engine_op *op)
{
    rig_run_one(&d.rig, op);
    d.steps++;
    if (d.restarts_always && (d.steps < EVERY_STEP || d.steps % 16 == 0))
        restart();
    check_all();
}

/* Time */

static void let_time_pass(int64_t wall_ms, int64_t mono_ms)
{
    d.rig.now.wall_ms += wall_ms;
    d.rig.now.mono_ms += mono_ms;
    rig_sweep(&d.rig, 1000);
    check_all();
}

void sleep_ms(int64_t ms)
{
    let_time_pass(ms, ms);
}

void pass_unswept(int64_t ms)
{
    d.rig.now.wall_ms += ms;
    d.rig.now.mono_ms += ms;
}

void jump_wall(int64_t ms)
{
    let_time_pass(ms, 0);
}

bool own_clocks(void)
{
    return !engine_has(d.rig.engine, ENGINE_SHARED);
}

bool one_order(void)
{
    return variant->rig.cells <= 1 || own_clocks();
}

void restart(void)
{
    if (!rig_durable(&d.rig))
        return;
    rig_reopen(&d.rig);
    rig_sweep(&d.rig, 1000);
}

/* Queues */

struct engine_queue *queue(const char *name)
{
    return engine_queue_find(d.rig.engine, name, strlen(name));
}

const struct queue_view *view(const char *name)
{
    return &queue(name)->view;
}

int slot_of(const char *name, int rank)
{
    return queue(name)->config.levels[rank].slot;
}

enum status set_queue(const char *name, const struct queue_config *config)
{
    struct engine_op op = op_on(name, ENGINE_QUEUE_SET);
    op.set.name = name;
    op.set.config = config;
    run(&op);
    return op.status;
}

void make_queue(const char *name, const struct queue_config *config)
{
    assert_null(queue(name));
    assert_int_equal(set_queue(name, config), STATUS_OK);
    assert_non_null(queue(name));
}

void delete_queue(const char *name)
{
    struct engine_op op = op_on(name, ENGINE_QUEUE_DELETE);
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_null(queue(name));
}

/* Messages */

struct draft draft_of(const char *q, struct spec s)
{
    struct buf body = {0};
    struct draft draft = {
        .kind = PAYLOAD_TEXT,
        .payload_len = s.payload ? (uint32_t)strlen(s.payload) : 0,
        .metadata_len = s.metadata ? (uint16_t)strlen(s.metadata) : 0,
        .dedup_len = s.dedup ? (uint16_t)strlen(s.dedup) : 0,
        .ready_ms = s.has_ready_at ? s.ready_at_ms : READY_NOW,
        .delay_ms = s.delay_ms,
        .ttl_ms = s.ttl_ms == 0  ? TTL_DEFAULT
                  : s.ttl_ms < 0 ? 0
                                 : s.ttl_ms,
        .priority = {.kind = PRIORITY_NAME},
    };
    buf_puts(&body, s.payload ? s.payload : "");
    buf_puts(&body, s.metadata ? s.metadata : "");
    buf_puts(&body, s.dedup ? s.dedup : "");
    draft.body = buf_take(&body);
    snprintf(draft.priority.name, sizeof(draft.priority.name), "%s",
             s.rank < 0 ? "none such" : queue(q)->config.levels[s.rank].name);
    return draft;
}

struct put_item put_spec(const char *q, struct spec s)
{
    struct put_item item = {.draft = draft_of(q, s)};
    struct engine_op op = op_on(q, ENGINE_PUT);
    op.put.items = &item;
    op.put.count = 1;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_true((item.draft.body == NULL) == (item.status == STATUS_OK && !item.deduplicated));
    draft_fini(&item.draft);
    return item;
}

struct message_id put(const char *q, const char *payload, int rank)
{
    struct put_item item = put_spec(q, (struct spec){.payload = payload, .rank = rank});
    assert_int_equal(item.status, STATUS_OK);
    assert_false(item.deduplicated);
    return item.id;
}

void import(const char *q, struct import_item *items, uint32_t count)
{
    struct engine_op op = op_on(q, ENGINE_IMPORT);
    op.import.items = items;
    op.import.count = count;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_true((items[i].draft.body == NULL) ==
                    (items[i].status == STATUS_OK && !items[i].known));
}

void put_many(const char *q, uint32_t count, int rank)
{
    struct put_item *items = mem_zalloc(count * sizeof(*items));
    for (uint32_t i = 0; i < count; i++) {
        char payload[16];
        snprintf(payload, sizeof(payload), "m%u", i);
        items[i].draft = draft_of(q, (struct spec){.payload = payload, .rank = rank});
    }
    struct engine_op op = op_on(q, ENGINE_PUT);
    op.put.items = items;
    op.put.count = count;
    run(&op);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(items[i].status, STATUS_OK);
    free(items);
}

uint32_t claim_plan(const char *q, struct plan *plan, int64_t lease_ms)
{
    struct engine_op op = op_on(q, ENGINE_CLAIM);
    op.claim.plan = plan;
    op.claim.lease_ms = lease_ms;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.claim.found, d.shown_count);
    return op.claim.found;
}

struct plan plan_from(const char *q, int rank, uint32_t want)
{
    struct plan plan = {.want = want, .step_count = 1, .lane_count = 1};
    memset(plan.room, 0xFF, sizeof(plan.room));
    plan.lanes[0] = (struct plan_lane){
        .until_ms = INT64_MAX, .slot = (uint8_t)slot_of(q, rank), .rank = (uint8_t)rank};
    plan.steps[0] =
        (struct plan_step){.max = (uint16_t)want, .lane_count = 1, .rank = (uint8_t)rank};
    return plan;
}

uint32_t claim_by(const char *q, struct policy *policy, uint32_t n)
{
    struct plan plan;
    const struct queue_config *c = &queue(q)->config;
    bool live = engine_has(d.rig.engine, ENGINE_LIVE_VIEW);
    policy_plan(policy, c, live ? view(q) : NULL, c->level_count - 1, n, d.rig.now.wall_ms, &plan);
    return claim_plan(q, &plan, -1);
}

uint32_t claim(const char *q, uint32_t n)
{
    struct policy policy;
    policy_init(&policy, &queue(q)->config);
    return claim_by(q, &policy, n);
}

struct shown claim_one(const char *q)
{
    assert_int_equal(claim(q, 1), 1);
    assert_int_equal(d.shown[0].state, MESSAGE_LEASED);
    return d.shown[0];
}

static enum status settle(const char *q, enum engine_verb verb, const struct shown *s,
                          int64_t delay_ms, int64_t lease_ms, const char *reason,
                          enum message_state *state)
{
    struct settle_item item = {.id = s->id};
    memcpy(item.receipt, s->receipt, RECEIPT_BYTES);
    struct engine_op op = op_on(q, verb);
    op.settle.items = &item;
    op.settle.count = 1;
    op.settle.delay_ms = delay_ms;
    op.settle.lease_ms = lease_ms;
    op.settle.reason = reason;
    op.settle.reason_len = reason ? (uint32_t)strlen(reason) : 0;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    if (item.status == STATUS_OK && state)
        *state = item.state;
    if (item.status == STATUS_OK)
        assert_int_equal(item.slot, s->slot);
    if (item.status == STATUS_OK && verb == ENGINE_EXTEND)
        assert_int_equal(item.lease_until_ms, d.rig.now.wall_ms + lease_ms);
    return item.status;
}

enum status ack(const char *q, const struct shown *s)
{
    return settle(q, ENGINE_ACK, s, 0, 0, NULL, NULL);
}

enum status nack(const char *q, const struct shown *s, int64_t delay_ms, const char *reason,
                 enum message_state *state)
{
    return settle(q, ENGINE_NACK, s, delay_ms, 0, reason, state);
}

enum status release(const char *q, const struct shown *s)
{
    return settle(q, ENGINE_RELEASE, s, 0, 0, NULL, NULL);
}

enum status extend(const char *q, const struct shown *s, int64_t lease_ms)
{
    return settle(q, ENGINE_EXTEND, s, 0, lease_ms, NULL, NULL);
}

enum status cancel(const char *q, struct message_id id)
{
    struct engine_op op = op_on(q, ENGINE_CANCEL);
    op.one.id = id;
    run(&op);
    return op.status;
}

static void run_move(const char *q, struct escalate_item *items, uint32_t count, int rank,
                     const char *actor, const char *why)
{
    struct engine_op op = op_on(q, ENGINE_ESCALATE);
    op.escalate.items = items;
    op.escalate.count = count;
    op.escalate.slot = (uint8_t)slot_of(q, rank);
    op.escalate.note = (struct escalate_note){.actor = actor,
                                              .actor_len = actor ? (uint16_t)strlen(actor) : 0,
                                              .reason = why,
                                              .reason_len = why ? (uint16_t)strlen(why) : 0};
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
}

struct escalate_item move(const char *q, struct message_id id, int rank, const char *actor,
                          const char *why)
{
    struct escalate_item item = {.id = id, .status = STATUS_ENGINE_UNAVAILABLE};
    run_move(q, &item, 1, rank, actor, why);
    return item;
}

uint32_t move_many(const char *q, const struct message_id *ids, uint32_t count, int rank)
{
    struct escalate_item *items = mem_zalloc(count * sizeof(*items));
    for (uint32_t i = 0; i < count; i++)
        items[i].id = ids[i];
    run_move(q, items, count, rank, "many", "at once");
    uint32_t changed = 0;
    for (uint32_t i = 0; i < count; i++)
        changed += items[i].status == STATUS_OK && items[i].changed;
    free(items);
    return changed;
}

enum status leave_items(const char *q, struct leave_item *items, uint32_t count, uint64_t epoch)
{
    struct engine_op op = op_on(q, ENGINE_LEAVE);
    op.leave.items = items;
    op.leave.count = count;
    op.leave.epoch = epoch;
    run(&op);
    assert_true(op.status || op.leave.found == d.shown_count);
    return op.status;
}

uint32_t leaving(const char *q, uint32_t limit)
{
    struct engine_op op = op_on(q, ENGINE_LEAVE);
    op.leave.limit = limit;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.leave.found, d.shown_count);
    return op.leave.found;
}

void left_items(const char *q, struct leave_item *items, uint32_t count)
{
    struct engine_op op = op_on(q, ENGINE_LEFT);
    op.leave.items = items;
    op.leave.count = count;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
}

struct count_item count_before(const char *q, int rank, int64_t ready_ms, uint64_t seq)
{
    struct count_item item = {
        .slot = (uint8_t)slot_of(q, rank), .ready_ms = ready_ms, .seq = seq, .before = 999};
    struct engine_op op = op_on(q, ENGINE_COUNT);
    op.count.items = &item;
    op.count.count = 1;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    return item;
}

const struct shown *get(const char *q, struct message_id id)
{
    struct engine_op op = op_on(q, ENGINE_GET);
    op.one.id = id;
    rig_run_one(&d.rig, &op);
    if (op.status == STATUS_MESSAGE_NOT_FOUND) {
        assert_int_equal(d.shown_count, 0);
        return NULL;
    }
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(d.shown_count, 1);
    assert_int_equal(d.shown[0].id.seq, id.seq);
    return &d.shown[0];
}

enum message_state state_of(const char *q, struct message_id id)
{
    const struct shown *s = get(q, id);
    return s ? s->state : MESSAGE_NEW;
}

uint32_t purge(const char *q, uint32_t max, uint64_t before_seq)
{
    uint32_t purged = 0;
    struct list_cursor cursor = {0};
    for (bool more = true; more;) {
        struct engine_op op = op_on(q, ENGINE_PURGE);
        op.bulk.max = max;
        op.bulk.before_seq = before_seq;
        op.bulk.cursor = cursor;
        run(&op);
        assert_int_equal(op.status, STATUS_OK);
        assert_true(op.bulk.count <= max);
        purged += op.bulk.count;
        cursor = op.bulk.cursor;
        more = op.bulk.more;
    }
    return purged;
}

uint32_t dead_list(const char *q, uint64_t after_seq, uint32_t limit)
{
    struct engine_op op = op_on(q, ENGINE_DEAD_LIST);
    op.list.after.seq = after_seq;
    op.list.limit = limit;
    rig_run_one(&d.rig, &op);
    assert_int_equal(op.status, STATUS_OK);
    assert_int_equal(op.list.found, d.shown_count);
    return op.list.found;
}

uint32_t dead_bulk(const char *q, enum engine_verb verb, const struct message_id *ids,
                   uint32_t id_count, uint32_t max, int slot)
{
    struct engine_op op = op_on(q, verb);
    op.bulk.ids = ids;
    op.bulk.id_count = id_count;
    op.bulk.max = max;
    op.bulk.before_seq = UINT64_MAX;
    op.bulk.slot = slot;
    run(&op);
    assert_int_equal(op.status, STATUS_OK);
    return op.bulk.count;
}

static uint32_t list_some(const char *q, uint32_t states, bool bare, uint32_t page)
{
    struct list_cursor at = {0};
    bool more = true;
    d.shown_count = 0;
    for (uint32_t rounds = 0; more; rounds++) {
        assert_true(rounds < 10000);
        uint32_t before = d.shown_count;
        struct engine_op op = {.verb = ENGINE_LIST, .queue = queue(q), .visit = see};
        op.list.after = at;
        op.list.limit = page;
        op.list.states = states;
        op.list.bare = bare;
        rig_run_one(&d.rig, &op);
        assert_int_equal(op.status, STATUS_OK);
        assert_int_equal(op.list.found, d.shown_count - before);
        assert_true(op.list.found <= page);
        at = op.list.next;
        more = op.list.more;
    }
    for (uint32_t i = 0; i < d.shown_count; i++) {
        for (uint32_t k = 0; k < i; k++)
            assert_true(d.shown[i].id.seq != d.shown[k].id.seq ||
                        d.shown[i].id.queue != d.shown[k].id.queue);
    }
    return d.shown_count;
}

uint32_t list_all(const char *q, uint32_t page)
{
    return list_some(q, 0, false, page);
}

uint32_t list_states(const char *q, uint32_t states, bool bare, uint32_t page)
{
    uint32_t found = list_some(q, states, bare, page), kept = 0;
    for (uint32_t i = 0; i < found; i++) {
        if (states >> d.shown[i].state & 1)
            d.shown[kept++] = d.shown[i];
    }
    return d.shown_count = kept;
}

void assert_id_of(const char *q, struct message_id id)
{
    if (variant->rig.cells > 1)
        assert_true(id.queue % QUEUE_CELLS < variant->rig.cells);
    else
        assert_int_equal(id.queue, queue(q)->id);
}

static void put_payloads(struct buf *out)
{
    for (uint32_t i = 0; i < d.shown_count; i++)
        buf_printf(out, "%s%s", out->len ? " " : "", d.shown[i].payload);
}

void assert_claims(const char *q, struct plan *p, const char *payloads)
{
    struct buf got = {0};
    claim_plan(q, p, -1);
    put_payloads(&got);
    assert_string_equal(buf_cstr(&got), payloads);
    buf_fini(&got);
}

void assert_claims_by(const char *q, struct policy *policy, uint32_t n, const char *payloads)
{
    struct buf got = {0};
    claim_by(q, policy, n);
    put_payloads(&got);
    assert_string_equal(buf_cstr(&got), payloads);
    buf_fini(&got);
}

void assert_drains_as(const char *q, const char *payloads)
{
    struct buf got = {0};
    while (claim(q, 3) > 0)
        put_payloads(&got);
    assert_string_equal(buf_cstr(&got), payloads);
    buf_fini(&got);
}
