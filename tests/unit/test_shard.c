#include "base/clock.h"
#include "base/mem.h"
#include "broker/broker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define HANG_SECONDS 120 /* then SIGALRM ends the test */

struct rig {
    uv_loop_t loop;
    struct broker *broker;
    struct broker_port *port;
    bool drained;
};

struct waiting {
    struct request request;
    bool done;
};

static void rig_open(struct rig *t)
{
    struct broker_options options = {.engine = {.kind = "memory"}, .auto_create = true};
    uv_loop_t *loops[] = {&t->loop};
    struct buf error = {0};
    *t = (struct rig){0};
    snprintf(options.default_profile, sizeof(options.default_profile), "levels");
    assert_int_equal(uv_loop_init(&t->loop), 0);
    assert_int_equal(broker_open(&options, loops, 1, &t->broker, &error), STATUS_OK);
    t->port = broker_port_open(t->broker, &t->loop);
    buf_fini(&error);
}

static void on_drained(void *ctx)
{
    *(bool *)ctx = true;
}

static void rig_close(struct rig *t)
{
    broker_drain(t->broker, 0, on_drained, &t->drained);
    while (!t->drained)
        uv_run(&t->loop, UV_RUN_ONCE);
    broker_close_handles(t->broker, &t->loop);
    uv_run(&t->loop, UV_RUN_DEFAULT);
    broker_close(t->broker);
    assert_int_equal(uv_loop_close(&t->loop), 0);
}

static void on_done(struct request *r)
{
    container_of(r, struct waiting, request)->done = true;
}

static void let_pass(int64_t ms)
{
    int64_t until = clock_now().mono_ms + ms;
    while (clock_now().mono_ms < until)
        continue;
}

/* The loop has no other timer, and nothing comes in: it must not poll for ever. */
static void a_timer_that_is_due_before_the_loop_polls_is_not_slept_over(void **state)
{
    (void)state;
    struct rig t;
    rig_open(&t);
    struct waiting w = {.request = {.kind = REQUEST_CLAIM, .queue = "q", .done = on_done}};
    w.request.claim.max = 1;
    w.request.claim.wait_ms = 1;
    w.request.op.claim.lease_ms = 1000;
    broker_submit(t.port, &w.request);
    uv_run(&t.loop, UV_RUN_NOWAIT); /* it waits, and the timer is set */
    assert_false(w.done);
    let_pass(5);
    alarm(HANG_SECONDS);
    while (!w.done)
        uv_run(&t.loop, UV_RUN_ONCE);
    alarm(0);
    assert_int_equal(w.request.status, STATUS_OK);
    assert_int_equal(w.request.op.claim.found, 0);
    rig_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_that_is_due_before_the_loop_polls_is_not_slept_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
