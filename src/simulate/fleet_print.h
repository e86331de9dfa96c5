/* What a simulation of many cells found out, for people and for programs. */
#ifndef TRIAGE_SIMULATE_FLEET_PRINT_H
#define TRIAGE_SIMULATE_FLEET_PRINT_H

#include "simulate/fleet.h"

#define FLEET_STEPS_MAX 12 /* 1, 2, 4 … cells */

/* A run at full load on so many cells. */
struct fleet_step {
    struct fleet_terms terms;
    double per_second, cells_busy;
    int64_t p50_us, p99_us, longest_us; /* of W */
};

struct fleet_report {
    const struct fleet_terms *terms;
    const struct fleet_result *result;
    struct fleet_step steps[FLEET_STEPS_MAX];
    uint32_t step_count;
    int64_t rebuild_us;
};

void fleet_print(const struct fleet_report *r);
void fleet_print_json(const struct fleet_report *r);

#endif
