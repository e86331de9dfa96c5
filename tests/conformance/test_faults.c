/* An engine that is away now and then: what it refuses it did not do, and the rest is done as ever.
 * The faults are those of chaos.h, around every engine. */
#include "conformance/driver.h"
#include "engine/chaos.h"

#include <stdio.h>
#include <string.h>

#define Q     "q"
#define STEPS 300
#define MOST  64

static void begin(void)
{
    struct chaos_options options = {
        .seed = 7,
        .hold_polls_max = 2,
        .wake = d.rig.options.wake,
        .wake_ctx = d.rig.options.wake_ctx,
    };
    d.restarts_always = false; /* a restart would be without the wrapper */
    chaos_wrap(&d.rig.engine, 1, &options);
    struct queue_config config = rig_config(1);
    make_queue(Q, &config);
}

static void refuse(uint32_t permille)
{
    chaos_refuse(d.rig.engine, permille);
}

static struct engine_op op_of(enum engine_verb verb)
{
    return (struct engine_op){.verb = verb, .queue = queue(Q)};
}

static enum status run(struct engine_op *op)
{
    rig_run_one(&d.rig, op);
    assert_true(op->status == STATUS_OK || op->status == STATUS_ENGINE_UNAVAILABLE);
    return op->status;
}

static enum status try_put(void)
{
    struct put_item item = {.draft = draft_of(Q, (struct spec){.payload = "m"})};
    struct engine_op op = op_of(ENGINE_PUT);
    op.put.items = &item;
    op.put.count = 1;
    enum status status = run(&op);
    assert_true(!item.draft.body == !status); /* the body of a refused draft stays the caller's */
    draft_fini(&item.draft);
    return status;
}

static struct settle_item held[STEPS];
static uint32_t held_count;

static void hold(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    (void)op, (void)now;
    struct settle_item *item = &held[held_count++];
    *item = (struct settle_item){.id = message_identity(m, q->id)};
    memcpy(item->receipt, m->delivery->receipt, RECEIPT_BYTES);
}

static enum status try_claim(void)
{
    uint32_t before = held_count;
    struct plan plan = plan_from(Q, 0, 1);
    plan.steps[0].found = 1;
    struct engine_op op = op_of(ENGINE_CLAIM);
    op.visit = hold;
    op.claim.plan = &plan;
    op.claim.lease_ms = -1;
    op.claim.found = 1;
    enum status status = run(&op);
    assert_int_equal(op.claim.found, held_count - before);
    assert_int_equal(plan.steps[0].found, op.claim.found);
    return status;
}

static enum status try_settle(enum engine_verb verb, struct settle_item *item)
{
    struct engine_op op = op_of(verb);
    op.settle.items = item;
    op.settle.count = 1;
    op.settle.lease_ms = 60000;
    enum status status = run(&op);
    if (!status)
        assert_int_equal(item->status, STATUS_OK);
    return status;
}

static void a_refused_op_changes_nothing(void **state)
{
    (void)state;
    begin();
    held_count = 0;
    put_many(Q, 5, 0);
    refuse(0);
    assert_int_equal(try_claim(), STATUS_OK);
    sleep_ms(0);
    struct queue_view before = *engine_queue_moment(queue(Q));
    uint64_t refused = chaos_refused(d.rig.engine);
    refuse(1000);
    assert_int_equal(try_put(), STATUS_ENGINE_UNAVAILABLE);
    assert_int_equal(try_claim(), STATUS_ENGINE_UNAVAILABLE);
    for (int verb = ENGINE_ACK; verb <= ENGINE_EXTEND; verb++)
        assert_int_equal(try_settle((enum engine_verb)verb, &held[0]), STATUS_ENGINE_UNAVAILABLE);
    struct engine_op purge = op_of(ENGINE_PURGE), end = op_of(ENGINE_QUEUE_DELETE);
    purge.bulk.max = 100;
    purge.bulk.before_seq = queue(Q)->next_seq;
    assert_int_equal(run(&purge), STATUS_ENGINE_UNAVAILABLE);
    assert_int_equal(run(&end), STATUS_ENGINE_UNAVAILABLE);
    assert_int_equal(chaos_refused(d.rig.engine), refused + 8);
    refuse(0);
    sleep_ms(0);
    const struct queue_view *after = engine_queue_moment(queue(Q));
    assert_memory_equal(&before.totals, &after->totals, sizeof(before.totals));
    assert_int_equal(after->ready, 4);
    assert_int_equal(after->leased, 1);
    assert_int_equal(try_settle(ENGINE_ACK, &held[0]), STATUS_OK);
    assert_drains_as(Q, "m1 m2 m3 m4");
}

/* Puts, claims and acks at random; the same three are counted here. */
static void what_is_not_refused_is_done(void **state)
{
    (void)state;
    begin();
    d.checks = false;
    held_count = 0;
    uint32_t stored = 0, acked = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        refuse(300);
        if (i % 3 == 0)
            stored += try_put() == STATUS_OK;
        else if (i % 3 == 1)
            try_claim();
        else if (held_count > acked)
            acked += try_settle(ENGINE_ACK, &held[acked]) == STATUS_OK;
    }
    refuse(0);
    assert_true(chaos_refused(d.rig.engine) > STEPS / 6);
    d.checks = true;
    sleep_ms(0);
    const struct queue_view *v = engine_queue_moment(queue(Q));
    assert_int_equal(v->totals.enqueued, stored);
    assert_int_equal(v->totals.claimed, held_count);
    assert_int_equal(v->totals.acked, acked);
    assert_int_equal(v->ready, stored - held_count);
}

/* A caller that submits again from inside done, until each is taken. */

struct retried {
    struct engine_op op;
    struct put_item item;
    uint32_t answers;
};

static struct retried retried[MOST];
static uint32_t left;
static uint32_t order[MOST], order_count;

static void submit_retried(struct retried *t)
{
    t->op.put.items = &t->item;
    t->op.put.count = 1;
    engine_submit(d.rig.engine, &t->op, d.rig.now);
}

static void put_again(struct engine_op *op)
{
    struct retried *t = op->user;
    t->answers++;
    if (op->status == STATUS_OK)
        left--;
    else
        submit_retried(t);
}

static void note_order(struct engine_op *op)
{
    order[order_count++] = (uint32_t)((struct retried *)op->user - retried);
    left--;
}

static void run_all(engine_done *done)
{
    left = MOST;
    for (uint32_t i = 0; i < MOST; i++) {
        retried[i] = (struct retried){
            .item = {.draft = draft_of(Q, (struct spec){.payload = "m"})},
            .op = {.verb = ENGINE_PUT, .queue = queue(Q), .done = done, .user = &retried[i]},
        };
        submit_retried(&retried[i]);
    }
    assert_int_equal(left, MOST);
    while (left > 0) {
        engine_flush(d.rig.engine);
        if (engine_poll(d.rig.engine) == 0 && left > 0)
            rig_wait(&d.rig);
    }
    for (uint32_t i = 0; i < MOST; i++)
        draft_fini(&retried[i].item.draft);
}

static void each_op_is_answered_once_for_each_time_it_is_submitted(void **state)
{
    (void)state;
    begin();
    refuse(500);
    run_all(put_again);
    uint64_t answers = 0;
    for (uint32_t i = 0; i < MOST; i++)
        answers += retried[i].answers;
    assert_int_equal(answers, MOST + chaos_refused(d.rig.engine));
    refuse(0);
    sleep_ms(0);
    assert_int_equal(engine_queue_moment(queue(Q))->totals.enqueued, MOST);
}

static void live_engines_answer_in_order_of_submission(void **state)
{
    (void)state;
    begin();
    if (!engine_has(d.rig.engine, ENGINE_LIVE_VIEW))
        return;
    order_count = 0;
    refuse(500);
    run_all(note_order);
    refuse(0);
    for (uint32_t i = 0; i < MOST; i++)
        assert_int_equal(order[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_op_changes_nothing),
        cmocka_unit_test(what_is_not_refused_is_done),
        cmocka_unit_test(each_op_is_answered_once_for_each_time_it_is_submitted),
        cmocka_unit_test(live_engines_answer_in_order_of_submission),
    };
    return driver_main(tests);
}
