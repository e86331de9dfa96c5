#include "loadgen/run.h"

#include "base/clock.h"
#include "loadgen/cpu.h"

#include <unistd.h>

#define TICK_US      1000000
#define DRAIN_MS_MAX 3000

static int64_t server_cpu_ns(const struct loadgen_config *config)
{
    return loadgen_cpu_of_families(config->server_pids, config->server_pid_count);
}

static void phase_enter(struct loadgen_run *run, enum loadgen_phase phase, uint64_t length_ms)
{
    run->phase = phase;
    run->phase_start_us = clock_mono_us();
    run->phase_end_us = run->phase_start_us + length_ms * 1000;
    run->tick_us = run->phase_start_us + TICK_US;
}

static void measure_begin(struct loadgen_run *run)
{
    memset(run->report, 0, sizeof(*run->report));
    run->lost_before = run->loop.lost;
    run->own_cpu_ns = (uint64_t)loadgen_cpu_of_process(getpid());
    run->server_cpu_ns = server_cpu_ns(run->config);
    phase_enter(run, LOADGEN_MEASURE, run->config->duration_ms);
}

void loadgen_run_begin(struct loadgen_run *run)
{
    if (run->config->warmup_ms > 0)
        phase_enter(run, LOADGEN_WARMUP, run->config->warmup_ms);
    else
        measure_begin(run);
}

/* A run that ends inside its warmup has nothing else to show: the warmup is the measurement. */
void loadgen_run_stop(struct loadgen_run *run)
{
    struct loadgen_report *report = run->report;
    if (run->phase == LOADGEN_DRAIN)
        return;
    report->elapsed_us = clock_mono_us() - run->phase_start_us;
    report->own_cpu_ns = (uint64_t)loadgen_cpu_of_process(getpid()) - run->own_cpu_ns;
    report->lost_connections = run->loop.lost - run->lost_before;
    int64_t server_ns = server_cpu_ns(run->config);
    bool known = run->server_cpu_ns >= 0 && server_ns >= 0;
    report->server_cpu_ns = known ? server_ns - run->server_cpu_ns : -1;
    phase_enter(run, LOADGEN_DRAIN, DRAIN_MS_MAX);
}

uint64_t loadgen_run_tick(struct loadgen_run *run)
{
    uint64_t now_us = run->loop.now_us;
    if (now_us >= run->phase_end_us && run->phase == LOADGEN_WARMUP)
        measure_begin(run);
    else if (now_us >= run->phase_end_us && run->phase == LOADGEN_MEASURE)
        loadgen_run_stop(run);
    if (now_us >= run->tick_us && run->phase != LOADGEN_DRAIN) {
        run->tick_us += TICK_US;
        if (run->progress)
            run->progress(run->progress_context, run->report, run->phase == LOADGEN_WARMUP,
                          now_us - run->phase_start_us);
    }
    return run->tick_us < run->phase_end_us ? run->tick_us : run->phase_end_us;
}

static void record_refusal(struct loadgen_report *report, const struct loadgen_answer *answer)
{
    int status = answer->status > 0 && answer->status < LOADGEN_STATUS_MAX ? answer->status : 0;
    report->refused[status] += answer->refused;
    if (report->first_refusal[0] == '\0' && answer->detail) {
        size_t len = answer->detail_len;
        if (len >= sizeof(report->first_refusal))
            len = sizeof(report->first_refusal) - 1;
        memcpy(report->first_refusal, answer->detail, len);
        report->first_refusal[len] = '\0';
    }
}

void loadgen_run_record(struct loadgen_run *run, const struct loadgen_slot *slot,
                        const struct loadgen_answer *answer)
{
    if (run->phase == LOADGEN_DRAIN)
        return;
    struct loadgen_op_report *op = &run->report->ops[slot->op];
    uint64_t now_us = run->loop.now_us;
    op->messages += answer->messages;
    if (answer->refused > 0) {
        record_refusal(run->report, answer);
        return;
    }
    op->operations++;
    hist_add(&op->latency_us, now_us > slot->sent_us ? now_us - slot->sent_us : 0);
}
