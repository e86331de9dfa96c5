/* How a run of the load generator is shown to people and to programs. */
#ifndef TRIAGE_LOADGEN_BENCH_REPORT_H
#define TRIAGE_LOADGEN_BENCH_REPORT_H

#include "loadgen/loadgen.h"

void bench_report_text(const struct loadgen_config *config, const struct loadgen_report *report);

/* One object on one line. Latencies in milliseconds, CPU in microseconds a message. */
void bench_report_json(const struct loadgen_config *config, const struct loadgen_report *report);

uint64_t bench_report_refused(const struct loadgen_report *report);

/* A loadgen_progress_fn for a terminal: one line, rewritten. The context is a struct
 * bench_progress. */
struct bench_progress {
    uint64_t completed; /* at the last call */
    bool shown;
};
loadgen_progress_fn bench_progress_show;
void bench_progress_clear(const struct bench_progress *progress);

#endif
