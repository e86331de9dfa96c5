/* Runs seeded simulations of an engine against the model and prints TAP. With no arguments: what
 * `make test` wants, sized by how the program was built.
 *
 *   test_sim_sim [--engine memory|local] [--seed FIRST] [--seeds N] [--steps N]
 *
 * A failure prints the broken promise, the last ops and the command that replays it. */
#include "sim/sim.h"

#include "base/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#ifndef SLOW_BUILD
#define SLOW_BUILD 0
#endif

struct run {
    const char *engine;
    uint64_t first_seed;
    uint64_t seeds;
    uint64_t steps; /* of each seed */
};

static struct sim sim;

/* An assertion in the engine ends the run too; the way back to it is the same. */
static void on_abort(int signum)
{
    (void)signum;
    sim_report(&sim);
    signal(SIGABRT, SIG_DFL);
}

static void run_seeds(const struct run *r, int number)
{
    uint64_t started = clock_mono_us();
    for (uint64_t i = 0; i < r->seeds; i++) {
        sim_open(&sim, r->engine, r->first_seed + i, r->steps);
        for (uint64_t step = 0; step < r->steps; step++)
            sim_step(&sim);
        sim_close(&sim);
    }
    printf("ok %d - %s keeps every promise for %" PRIu64 " steps over %" PRIu64 " seeds\n", number,
           r->engine, r->steps * r->seeds, r->seeds);
    printf("# %.1f s, %" PRIu64 " reads of a tail\n", (double)(clock_mono_us() - started) / 1e6,
           sim.refills);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct run runs[] = {
        {"memory", 1, SLOW_BUILD ? 300 : 1000, 1000},
        {"local", 1, SLOW_BUILD ? 25 : 80, 1000},
    };
    size_t run_count = sizeof(runs) / sizeof(runs[0]);
    size_t first_run = argc == 1 && getenv("TRIAGE_TEST_THREADS") ? 1 : 0; /* memory has none */
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--engine") == 0)
            runs[0].engine = argv[i + 1];
        else if (strcmp(argv[i], "--seed") == 0)
            runs[0].first_seed = value;
        else if (strcmp(argv[i], "--seeds") == 0)
            runs[0].seeds = value;
        else if (strcmp(argv[i], "--steps") == 0)
            runs[0].steps = value;
        if (run_count > 1)
            runs[0].seeds = strcmp(argv[i], "--seeds") == 0 ? value : 1;
        run_count = 1;
    }
    signal(SIGABRT, on_abort);
    printf("1..%zu\n", run_count - first_run);
    for (size_t i = first_run; i < run_count; i++)
        run_seeds(&runs[i], (int)(i - first_run) + 1);
    return 0;
}
