/* The mixes that keep every slot busy: enqueue, claim, mixed. */
#include "base/clock.h"
#include "base/mem.h"
#include "loadgen/run.h"

#include <stdio.h>
#include <stdlib.h>

struct mix {
    struct loadgen_run *run;
    bool counted;
    uint64_t left; /* messages still to begin, when the run has a count */
    /* With a rate: the slots that wait for the next due time, and that time. */
    uint64_t due_ns;
    uint64_t interval_ns;
    uint32_t idle_count;
    struct loadgen_slot **idle;
    /* With a refill: the slot that enqueues, whether it waits, and how many it has to put back. */
    struct loadgen_slot *refiller;
    bool refiller_idle;
    uint64_t owed;
};

static enum loadgen_op chain_first(const struct mix *m)
{
    return m->run->config->mix == LOADGEN_MIX_CLAIM ? LOADGEN_CLAIM : LOADGEN_ENQUEUE;
}

static bool chain_ends(const struct loadgen_config *config, enum loadgen_op op)
{
    return op == LOADGEN_ACK || (op == LOADGEN_CLAIM && config->leave_leased) ||
           (op == LOADGEN_ENQUEUE && config->mix == LOADGEN_MIX_ENQUEUE);
}

/* With a rate, latency counts from when the request was due. So a server that stalls pays for every
 * request that it kept waiting, and not only for one on each connection. */
static void chain_begin(struct mix *m, struct loadgen_slot *slot)
{
    struct loadgen_run *run = m->run;
    uint64_t sent_us = run->loop.now_us;
    if (run->phase == LOADGEN_DRAIN || (m->counted && m->left == 0))
        return;
    if (m->interval_ns > 0) {
        if (m->due_ns > sent_us * 1000) {
            m->idle[m->idle_count++] = slot;
            return;
        }
        sent_us = m->due_ns / 1000;
        m->due_ns += m->interval_ns;
    }
    enum loadgen_op op = chain_first(m);
    uint32_t batch = op == LOADGEN_CLAIM ? run->config->batch : run->config->enqueue_batch;
    if (m->counted)
        m->left -= m->left < batch ? m->left : batch;
    loadgen_loop_submit(&run->loop, slot, op, sent_us);
}

static void idle_begin(struct mix *m)
{
    while (m->idle_count > 0 && m->due_ns <= m->run->loop.now_us * 1000) {
        struct loadgen_slot *slot = m->idle[--m->idle_count];
        chain_begin(m, slot);
        loadgen_loop_flush(&m->run->loop, slot->conn);
    }
}

/* The refiller has a connection of its own, so it sends at once. It goes on while the run drains.
 * At the end less than one batch is missing. */
static void refill(struct mix *m, uint32_t claimed)
{
    struct loadgen_run *run = m->run;
    m->owed += claimed;
    if (!m->refiller_idle || m->owed < run->config->enqueue_batch)
        return;
    m->owed -= run->config->enqueue_batch;
    m->refiller_idle = false;
    loadgen_loop_submit(&run->loop, m->refiller, LOADGEN_ENQUEUE, run->loop.now_us);
    loadgen_loop_flush(&run->loop, m->refiller->conn);
}

static void on_refill(struct mix *m, const struct loadgen_answer *answer)
{
    m->refiller_idle = true;
    if (answer)
        loadgen_run_record(m->run, m->refiller, answer);
    refill(m, 0);
}

static void claim_fell_short(struct mix *m, const struct loadgen_slot *slot,
                             const struct loadgen_answer *answer)
{
    if (m->counted && chain_first(m) == LOADGEN_CLAIM && slot->op == LOADGEN_CLAIM)
        m->left += m->run->config->batch - answer->messages;
    if (answer->messages == 0 && answer->refused == 0)
        m->run->report->empty++;
}

static void on_answer(struct loadgen_loop *loop, struct loadgen_slot *slot,
                      const struct loadgen_answer *answer)
{
    struct mix *m = loop->context;
    struct loadgen_run *run = m->run;
    const struct loadgen_config *config = run->config;
    if (slot == m->refiller) {
        on_refill(m, answer);
        return;
    }
    if (!answer) {
        chain_begin(m, slot);
        return;
    }
    loadgen_run_record(run, slot, answer);
    if (slot->op == LOADGEN_CLAIM && config->refill)
        refill(m, answer->messages);
    if (slot->op == LOADGEN_CLAIM && answer->messages < config->batch) {
        bool refused = answer->refused > 0;
        claim_fell_short(m, slot, answer);
        if (config->mix == LOADGEN_MIX_CLAIM && !config->refill && !answer->messages && !refused)
            return; /* nothing is left for this slot */
    }
    if (answer->messages == 0) {
        chain_begin(m, slot);
        return;
    }
    if (chain_ends(config, slot->op)) {
        if (run->phase != LOADGEN_DRAIN)
            run->report->completed += answer->messages;
        chain_begin(m, slot);
        return;
    }
    loadgen_loop_submit(loop, slot, slot->op == LOADGEN_ENQUEUE ? LOADGEN_CLAIM : LOADGEN_ACK,
                        loop->now_us);
}

static void mix_start(struct mix *m)
{
    struct loadgen_run *run = m->run;
    run->loop.now_us = clock_mono_us();
    m->due_ns = run->loop.now_us * 1000;
    for (uint32_t i = 0; i < run->config->connections; i++) {
        struct loadgen_conn *conn = &run->loop.conns[i];
        for (uint32_t s = 0; s < run->config->pipeline; s++)
            chain_begin(m, &conn->slots[s]);
        loadgen_loop_flush(&run->loop, conn);
    }
}

static void mix_loop(struct mix *m)
{
    struct loadgen_run *run = m->run;
    while (!run->loop.failed) {
        uint64_t wake_us = loadgen_run_tick(run);
        bool more = m->idle_count > 0 && run->phase != LOADGEN_DRAIN && !(m->counted && !m->left);
        if (run->loop.busy == 0 && !more)
            break;
        if (run->phase == LOADGEN_DRAIN && run->loop.now_us >= run->phase_end_us)
            break;
        if (more && m->due_ns / 1000 < wake_us)
            wake_us = m->due_ns / 1000;
        loadgen_loop_wait(&run->loop, wake_us);
        idle_begin(m);
    }
    loadgen_run_stop(run);
    run->report->unanswered = run->loop.busy;
}

bool loadgen_mix_run(struct loadgen_run *run)
{
    const struct loadgen_config *config = run->config;
    size_t slots = (size_t)config->connections * config->pipeline;
    struct mix m = {
        .run = run,
        .counted = config->count > 0,
        .left = config->count,
        .interval_ns = config->rate > 0 ? 1000000000 / config->rate : 0,
        .idle = mem_alloc(slots * sizeof(struct loadgen_slot *)),
    };
    run->loop.on_answer = on_answer;
    run->loop.context = &m;
    uint32_t conns = config->connections + (config->refill ? 1 : 0);
    if (loadgen_loop_open(&run->loop, config, run->state, conns)) {
        m.refiller = config->refill ? &run->loop.conns[config->connections].slots[0] : NULL;
        m.refiller_idle = true;
        loadgen_run_begin(run);
        mix_start(&m);
        mix_loop(&m);
    } else {
        run->loop.failed = true;
    }
    bool done = !run->loop.failed;
    if (!done)
        snprintf(run->report->error, sizeof(run->report->error), "%s", run->loop.error);
    loadgen_loop_close(&run->loop);
    free(m.idle);
    return done;
}
