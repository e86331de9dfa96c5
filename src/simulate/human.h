/* Durations as people say them: 340 ms, 2.4 s, 3 min 20 s, 1 h 30 min, 2 d 4 h. */
#ifndef TRIAGE_SIMULATE_HUMAN_H
#define TRIAGE_SIMULATE_HUMAN_H

#include <stdint.h>

#define HUMAN_DURATION_MAX 32

/* Two units at most, cut rather than rounded from minutes on; returns `out`. */
const char *human_duration(int64_t ms, char out[HUMAN_DURATION_MAX]);

#endif
