/* One run of the load generator: when it records, when it ends, what it counts. */
#ifndef TRIAGE_LOADGEN_RUN_H
#define TRIAGE_LOADGEN_RUN_H

#include "loadgen/loop.h"

enum loadgen_phase {
    LOADGEN_WARMUP,
    LOADGEN_MEASURE,
    LOADGEN_DRAIN, /* chains under way may end, nothing new begins, nothing is recorded */
};

struct loadgen_run {
    const struct loadgen_config *config;
    struct loadgen_report *report;
    loadgen_progress_fn *progress; /* may be NULL */
    void *progress_context;
    void *state; /* the driver's */
    struct loadgen_loop loop;

    enum loadgen_phase phase;
    uint64_t phase_start_us;
    uint64_t phase_end_us;
    uint64_t tick_us;      /* next progress */
    uint64_t own_cpu_ns;   /* at the start of the measurement */
    int64_t server_cpu_ns; /* the same */
    uint64_t lost_before;  /* connections lost before the measurement */
};

/* Starts the clocks: warmup, or the measurement at once when there is none. */
void loadgen_run_begin(struct loadgen_run *run);

/* Moves to the next phase when its time has come, and reports progress. Returns when to call
 * again at the latest. */
uint64_t loadgen_run_tick(struct loadgen_run *run);

/* Ends the measurement now and starts draining; nothing when that happened before. */
void loadgen_run_stop(struct loadgen_run *run);

/* Counts an answer and its latency, unless nothing is recorded at present. */
void loadgen_run_record(struct loadgen_run *run, const struct loadgen_slot *slot,
                        const struct loadgen_answer *answer);

bool loadgen_mix_run(struct loadgen_run *run);  /* enqueue, claim and mixed */
bool loadgen_poll_run(struct loadgen_run *run); /* poll */

#endif
