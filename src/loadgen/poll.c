/* Many consumers wait on one queue, one message at a time is sent: how long until
 * it is delivered, and did it wake exactly one of them?
 *
 * The last connection sends. A round is over when the message was delivered, its enqueue
 * answered and its ack answered; then the next message is sent. A poll that is answered
 * without the message under way, and before its wait is over, is an extra wakeup. */
#include "base/clock.h"
#include "loadgen/connect.h"
#include "loadgen/run.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_MS_MAX  20000
#define SETTLE_STEP_MS 50
#define POLL_EARLY_US  (WAIT_SECONDS_MAX * 1000000ull * 9 / 10)

struct poll {
    struct loadgen_run *run;
    struct loadgen_slot *sender;
    bool started;   /* consumers are in place; before that only leftovers are cleared */
    bool enqueued;  /* the message under way was … */
    bool delivered; /* … was */
    bool acked;     /* … was */
    uint64_t sent_us;
    uint64_t due_us; /* earliest time of the next message */
    uint64_t interval_us;
    uint64_t left;
    bool counted;
};

static bool round_over(const struct poll *p)
{
    return p->enqueued && p->delivered && p->acked;
}

static void message_send(struct poll *p)
{
    struct loadgen_run *run = p->run;
    uint64_t now_us = run->loop.now_us;
    if (!round_over(p) || run->phase == LOADGEN_DRAIN || now_us < p->due_us)
        return;
    if (p->counted && p->left-- == 0) {
        p->left = 0;
        loadgen_run_stop(run);
        return;
    }
    p->enqueued = p->delivered = p->acked = false;
    p->sent_us = clock_mono_us();
    p->due_us = now_us + p->interval_us;
    loadgen_loop_submit(&run->loop, p->sender, LOADGEN_ENQUEUE, p->sent_us);
    loadgen_loop_flush(&run->loop, p->sender->conn);
}

static void on_delivery(struct poll *p)
{
    struct loadgen_run *run = p->run;
    if (!p->started)
        return;
    if (p->delivered) {
        run->report->extra_wakeups++;
        return;
    }
    p->delivered = true;
    if (run->phase == LOADGEN_DRAIN)
        return;
    run->report->completed++;
    hist_add(&run->report->delivery_us, run->loop.now_us - p->sent_us);
}

static void on_poll(struct poll *p, struct loadgen_slot *slot, const struct loadgen_answer *answer)
{
    struct loadgen_loop *loop = &p->run->loop;
    if (answer->refused > 0)
        loadgen_run_record(p->run, slot, answer);
    if (answer->messages > 0) {
        on_delivery(p);
        loadgen_loop_submit(loop, slot, LOADGEN_ACK, loop->now_us);
        return;
    }
    if (p->started && loop->now_us - slot->sent_us < POLL_EARLY_US)
        p->run->report->extra_wakeups++;
    loadgen_loop_submit(loop, slot, LOADGEN_POLL, loop->now_us);
}

static void on_answer(struct loadgen_loop *loop, struct loadgen_slot *slot,
                      const struct loadgen_answer *answer)
{
    struct poll *p = loop->context;
    if (slot == p->sender) {
        p->enqueued = true;
        if (!answer || answer->refused > 0)
            p->delivered = p->acked = true; /* it was refused, so it will not come */
        if (answer)
            loadgen_run_record(p->run, slot, answer);
        return;
    }
    if (answer && slot->op == LOADGEN_POLL) {
        on_poll(p, slot, answer);
        return;
    }
    if (slot->op == LOADGEN_ACK) {
        p->acked = p->delivered;
        if (answer && p->started)
            loadgen_run_record(p->run, slot, answer);
    }
    loadgen_loop_submit(loop, slot, LOADGEN_POLL, loop->now_us);
}

/* Waits until the server counts every consumer as waiting; a fixed while if it does not count. */
static int64_t consumers_steady(struct poll *p)
{
    struct loadgen_run *run = p->run;
    const struct loadgen_driver *driver = run->config->driver;
    char error[LOADGEN_ERROR_MAX];
    int fd = driver->waiting ? loadgen_connect(run->config, error, sizeof(error)) : -1;
    int64_t waiting = -1;
    uint64_t limit_us = clock_mono_us() + (fd < 0 ? 1000 : SETTLE_MS_MAX) * 1000ull;
    while (clock_mono_us() < limit_us && !run->loop.failed) {
        loadgen_loop_wait(&run->loop, clock_mono_us() + SETTLE_STEP_MS * 1000);
        if (fd >= 0)
            waiting = driver->waiting(run->state, fd);
        if (fd >= 0 && (waiting < 0 || waiting >= run->config->connections))
            break;
    }
    if (fd >= 0)
        close(fd);
    return waiting;
}

static void poll_loop(struct poll *p)
{
    struct loadgen_run *run = p->run;
    while (!run->loop.failed && run->phase != LOADGEN_DRAIN) {
        uint64_t wake_us = loadgen_run_tick(run);
        message_send(p);
        if (round_over(p) && p->due_us < wake_us)
            wake_us = p->due_us;
        loadgen_loop_wait(&run->loop, wake_us);
    }
    run->report->unanswered = round_over(p) ? 0 : 1;
}

static void poll_start(struct poll *p)
{
    struct loadgen_run *run = p->run;
    uint32_t consumers = run->config->connections;
    p->sender = &run->loop.conns[consumers].slots[0];
    run->loop.now_us = clock_mono_us();
    for (uint32_t i = 0; i < consumers; i++) {
        struct loadgen_conn *conn = &run->loop.conns[i];
        loadgen_loop_submit(&run->loop, &conn->slots[0], LOADGEN_POLL, run->loop.now_us);
        loadgen_loop_flush(&run->loop, conn);
    }
    int64_t waiting = consumers_steady(p);
    p->started = true;
    loadgen_run_begin(run);
    poll_loop(p);
    loadgen_run_stop(run);
    run->report->waiting = waiting;
}

bool loadgen_poll_run(struct loadgen_run *run)
{
    const struct loadgen_config *config = run->config;
    struct poll p = {
        .run = run,
        .enqueued = true,
        .delivered = true,
        .acked = true,
        .counted = config->count > 0,
        .left = config->count,
        .interval_us = config->rate > 0 ? 1000000 / config->rate : 0,
    };
    run->loop.on_answer = on_answer;
    run->loop.context = &p;
    if (loadgen_loop_open(&run->loop, config, run->state, config->connections + 1))
        poll_start(&p);
    else
        run->loop.failed = true;
    bool done = !run->loop.failed;
    if (!done)
        snprintf(run->report->error, sizeof(run->report->error), "%s", run->loop.error);
    loadgen_loop_close(&run->loop);
    return done;
}
